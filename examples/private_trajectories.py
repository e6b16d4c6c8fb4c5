"""People compare short walks over a frozen lake; a plan is made from their private judgments.

Two clips of a few steps are shown, and somebody says which went better. Nobody tells the computer
what they like: to reach the goal, not to fall into a hole, and to keep off thin ice, which is any
tile beside a hole. All judgments are released once, as one noised sum. From the saved reward alone,
without any judgment, somebody else then plans a whole walk, and is told how far from the best it
may be.

    python examples/private_trajectories.py --out runs/lake
    python examples/private_trajectories.py --out runs/lake-quick --quick

It writes spend.db, reward.json, certificate.json, plan.json, report.html and lake.svg; and, on
people who are made up anew for every seed, value.svg and value.json: what plans are truly worth
against ε (the last row of numbers is without privacy). The lake is that of gymnasium
(FrozenLake-v1, 4x4, 80% of the steps go where they should) where that is installed, and the same
table, built here, where it is not.
"""  # noqa: INP001

from __future__ import annotations

import argparse
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.patches import Rectangle
from pictures import (
    BLUE,
    GRAY,
    GREEN,
    INK,
    ORANGE,
    budget,
    certified,
    half_width,
    new_figure,
    new_folder,
    save,
    write_numbers,
)
from scipy.special import expit

import sordino
from sordino.algorithms.planning import Plan, TabularWorld, plan, tabular_world
from sordino.preferences.trajectories import Trajectories

MAP = ("SFFF", "FHFH", "FFFH", "HFFG")
SIDE, STATES, ACTIONS = 4, 16, 4
MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))  # left, down, right, up, as gymnasium numbers them
STRAIGHT = 0.8
HORIZON, CLIP = 15, 4  # steps of a whole walk, and of a clip
FEATURES = 3  # of a step: reaches the goal, falls, a quarter of a step onto thin ice
TASTE = np.array([2.2, -1.2, -0.4])  # what people like, in log odds; the computer never sees it
RANDOM = np.full((STATES, ACTIONS), 1 / ACTIONS)
BALL = 2.8  # a promise about how much anybody can like anything, made before any data
DELTA = 1e-6
SCALES = (0.0, 0.3, 1.0)  # of the confidence radius: none, a heuristic, the proved one
STUDIED: tuple[float, ...] = (0.03, 0.06, 0.1, 0.3, 0.6, 1.0, 3.0)

Table = dict[int, dict[int, list[tuple[float, int, float, bool]]]]


def lake() -> Any:
    """Return gymnasium's frozen lake, or the same table where gymnasium is not installed."""
    try:
        import gymnasium  # noqa: PLC0415 (not needed)

        return gymnasium.make("FrozenLake-v1", map_name="4x4", success_rate=STRAIGHT)
    except (ImportError, TypeError):  # older versions know another slipperiness only
        return built_table()


def built_table() -> Table:
    """Return where every step may lead, as gymnasium writes it: ``P[state][action]``."""
    aside = (1 - STRAIGHT) / 2
    table: Table = {}
    for state in range(STATES):
        table[state] = {}
        for action in range(ACTIONS):
            if over(state):
                table[state][action] = [(1.0, state, 0.0, True)]
                continue
            turns = ((-1, aside), (0, STRAIGHT), (1, aside))
            ways = [(chance, moved(state, (action + turn) % ACTIONS)) for turn, chance in turns]
            table[state][action] = [
                (chance, there, float(tile(there) == "G"), over(there)) for chance, there in ways
            ]
    return table


def tile(state: int) -> str:
    """Return the letter of a state: start, frozen, hole or goal."""
    return MAP[state // SIDE][state % SIDE]


def over(state: int) -> bool:
    """Return whether the walk ends here."""
    return tile(state) in "HG"


def moved(state: int, action: int) -> int:
    """Return where a step leads; who walks against the shore stays."""
    row, column = (
        min(max(place + step, 0), SIDE - 1)
        for place, step in zip(divmod(state, SIDE), MOVES[action], strict=True)
    )
    return row * SIDE + column


def thin(state: int) -> bool:
    """Return whether the ice of a tile is thin: it lies beside a hole."""
    return not over(state) and any(tile(moved(state, way)) == "H" for way in range(ACTIONS))


def table_of(environment: Any) -> Table:
    """Return the transitions of an environment, or the table as it is."""
    found: Table = getattr(getattr(environment, "unwrapped", environment), "P", environment)
    return found


def step_features(table: Table) -> np.ndarray:
    """Return what every (state, action) is about, on average: public, shape (16, 4, 3)."""
    found = np.zeros((STATES, ACTIONS, FEATURES))
    for state in range(STATES):
        for action in range(ACTIONS):
            for chance, there, _, _ in table[state][action] if not over(state) else ():
                seen = [tile(there) == "G", tile(there) == "H", thin(there) / 4]
                found[state, action] += chance * np.array(seen)
    return found


def clips(table: Table, features: np.ndarray, n: int, seed: list[int]) -> np.ndarray:
    """Return clips of random steps from random tiles, by their features: shape (n, CLIP, 3)."""
    generator = np.random.default_rng(seed)
    chances = np.zeros((STATES * ACTIONS, STATES))
    for state, actions in table.items():
        for action, ways in actions.items():
            for chance, there, _, _ in ways:
                chances[state * ACTIONS + action, int(there)] += chance
    upto = chances.cumsum(axis=1)
    starts = [number for number in range(STATES) if not over(number)]
    here = np.asarray(starts)[generator.integers(len(starts), size=n)]
    found = np.empty((n, CLIP, FEATURES))
    for step in range(CLIP):
        taken = generator.integers(ACTIONS, size=n)
        found[:, step] = features[here, taken]  # 0 where the walk is over
        dice = generator.random((n, 1)) * upto[-1, -1]
        here = (dice > upto[here * ACTIONS + taken]).sum(axis=1)
    return found


def judged(table: Table, features: np.ndarray, n: int, seed: int) -> Trajectories:
    """Return what people say about n pairs of clips: confidential, if it were not made up."""
    first, second = (clips(table, features, n, [seed, side]) for side in (0, 1))
    likes = expit((first - second).sum(axis=1) @ TASTE)
    labels = (np.random.default_rng([seed, 2]).random(n) < likes).astype(np.int64)
    bound = float(np.linalg.norm(features, axis=2).max()) * (1 + 1e-9)
    return Trajectories.from_steps(
        first, second, labels, feature_bound=bound, horizon=CLIP, drop=["identical"]
    )


@dataclass(frozen=True)
class Truth:
    """What plans are really worth, which only a simulation knows."""

    environment: Any
    features: np.ndarray

    @property
    def world(self) -> TabularWorld:
        """Return the lake as a table that is walked forward and planned backward."""
        return tabular_world(
            self.environment, horizon=HORIZON, d=FEATURES, features=self.features, initial=0
        )

    def best(self) -> np.ndarray:
        """Return the policy that people like most, shape (HORIZON, 16, 4)."""
        _, actions = self.world.backward(self.world.scores(TASTE))
        return np.asarray(np.eye(ACTIONS)[actions[:, :STATES]])

    def visits(self, policy: Any) -> np.ndarray:
        """Return how often a walk takes each action on each tile, shape (16, 4)."""
        found = self.world.occupancy(self.world.policy(policy)).sum(axis=0)
        return np.asarray(found.reshape(-1, ACTIONS)[:STATES])

    def value(self, policy: Any) -> float:
        """Return what people think of a walk, on average."""
        return float((self.visits(policy)[..., None] * self.features).sum(axis=(0, 1)) @ TASTE)


def planned(reward: sordino.RewardModel, truth: Truth, scale: float) -> Plan:
    """Return a plan from a released reward; no judgment is needed, and nothing is spent."""
    return plan(
        reward,
        truth.environment,
        horizon=HORIZON,
        features=truth.features,
        confidence=0.95,
        radius_scale=scale,
        reference=RANDOM,
        initial=0,
    )


def fitted(said: Trajectories, epsilon: float, path: Path, seed: int | None) -> sordino.RewardModel:
    """Return the reward behind one noised sum of all judgments, and leave a ledger."""
    return sordino.fit_reward(
        said,
        mechanism=sordino.LabelGaussian(epsilon, delta=DELTA),
        ledger=sordino.Ledger.open(path, data="clips", budget=budget(epsilon, DELTA)),
        ball=BALL,
        simulate_seed=seed,
    )


def unprotected(said: Trajectories, path: Path) -> sordino.RewardModel:
    """Return the reward without privacy, of people who are made up; its ledger says ε = ∞."""
    return sordino.fit_reward(
        said,
        mechanism=sordino.NonPrivate(),
        ledger=sordino.Ledger.open(path, data="clips", budget=budget(math.inf, 0.0)),
        ball=BALL,
    )


def study(truth: Truth, n: int, seeds: int, epsilons: tuple[float, ...]) -> dict[str, Any]:
    """Return the true value of plans at every ε, on people made up anew for each seed."""
    found = np.empty((seeds, len(epsilons) + 1, len(SCALES)))
    for seed in range(seeds):
        said = judged(table_of(truth.environment), truth.features, n, 1000 + seed)
        with tempfile.TemporaryDirectory() as place:
            rewards = [fitted(said, one, Path(place) / f"{one}.db", seed) for one in epsilons]
            rewards.append(unprotected(said, Path(place) / "unprotected.db"))
        for column, reward in enumerate(rewards):
            plans = [planned(reward, truth, scale) for scale in SCALES]
            found[seed, column] = [truth.value(one.policy) for one in plans]
    return {
        "n": n,
        "seeds": seeds,
        "scales": SCALES,
        "epsilons": epsilons,
        "mean": found.mean(axis=0),
        "half": half_width(found),
        "best": truth.value(truth.best()),
        "random": truth.value(RANDOM),
    }


def draw_values(found: dict[str, Any], path: Path) -> None:
    """Draw what plans are worth against ε."""
    figure, axes = new_figure(7.2, 4.4)
    epsilons, bare = list(found["epsilons"]), found["mean"][-1]
    axes.axhline(found["best"], color=INK, linewidth=1, label="best, if tastes were known")
    axes.axhline(bare[0], color=ORANGE, linewidth=1, linestyle="--", label="without privacy")
    for number, (color, mark, label) in enumerate(
        (
            (ORANGE, "s", "best for the estimate"),
            (GREEN, "^", "pessimistic, 0.3 of the radius"),
            (BLUE, "o", "pessimistic, proved radius"),
        )
    ):
        axes.errorbar(
            epsilons, found["mean"][:-1, number], yerr=found["half"][:-1, number], color=color,
            marker=mark, markersize=5, capsize=3, label=label,
        )  # fmt: skip
    axes.axhline(found["random"], color=GRAY, linewidth=1, linestyle=":", label="random steps")
    axes.set(xscale="log", xlabel="ε per judgment (δ = 1e-6)")
    axes.set_ylabel("true value of a walk, in log odds")
    axes.set_xticks(epsilons, [f"{value:g}" for value in epsilons])
    axes.minorticks_off()
    axes.set_title(f"Planning from {found['n']:,} private comparisons of clips")
    figure.legend(loc="outside lower center", ncols=2)
    save(figure, path)


def draw_plan(visits: np.ndarray, path: Path) -> None:
    """Draw what is done on every tile, and how many steps of a walk are spent there."""
    figure, axes = new_figure(4.8, 5.0)
    for state in range(STATES):
        row, column = divmod(state, SIDE)
        shades = {"H": "#48617a", "G": "#cfe8d5"}
        shade = shades.get(tile(state), "#dfe9f3" if thin(state) else "#f7fafc")
        corner = (column - 0.5, row - 0.5)
        axes.add_patch(Rectangle(corner, 1, 1, facecolor=shade, edgecolor="white", linewidth=2))
        if over(state):
            word, color = ("hole", "white") if tile(state) == "H" else ("goal", INK)
            axes.text(column, row, word, ha="center", va="center", color=color)
            continue
        steps = visits[state].sum()
        axes.text(column - 0.44, row - 0.4, f"{steps:.1f}", va="top", fontsize=8, color=INK)
        for (down, right), share in zip(MOVES, visits[state] / max(steps, 1e-12), strict=True):
            if min(share, steps) > 0.05:  # noqa: PLR2004 (else hardly ever)
                axes.annotate(
                    "", (column + 0.42 * right * share**0.5, row + 0.42 * down * share**0.5),
                    (column, row),
                    arrowprops={"arrowstyle": "-|>", "color": BLUE, "shrinkA": 0, "shrinkB": 0},
                )  # fmt: skip
    axes.set(xlim=(-0.5, SIDE - 0.5), ylim=(SIDE - 0.5, -0.5), aspect="equal")
    axes.axis("off")
    axes.set_title(
        "The plan, from the top left; darker tiles are thin ice,\nnumbers are steps spent"
    )
    save(figure, path)


def arguments() -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to make")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--n", type=int, default=10_000, help="how many pairs of clips are judged")
    parser.add_argument("--seeds", type=int, default=20, help="made-up crowds behind value.svg")
    parser.add_argument(
        "--simulate-seed", type=int, help="a seed for the noise, for study: nothing is then private"
    )
    parser.add_argument("--quick", action="store_true", help="two crowds, two ε")
    return parser.parse_args()


def main() -> None:
    """Release, certify, plan from the file, and draw."""
    asked = arguments()
    n, seeds, epsilons = asked.n, asked.seeds, STUDIED
    if asked.quick:
        seeds, epsilons = 2, (0.1, 1.0)
    folder = new_folder(asked.out)
    environment = lake()
    truth = Truth(environment, step_features(table_of(environment)))
    said = judged(table_of(environment), truth.features, n, 0)
    reward = fitted(said, asked.epsilon, folder / "spend.db", asked.simulate_seed)
    reward.save(folder / "reward.json")

    # Somebody else: the file, the lake, and nothing that anybody said.
    loaded = sordino.RewardModel.load(folder / "reward.json")
    found = planned(loaded, truth, 1.0)
    write_numbers(found.to_dict(), folder / "plan.json")
    draw_plan(truth.visits(found.policy), folder / "lake.svg")
    studied = study(truth, n, seeds, epsilons)
    write_numbers(studied, folder / "value.json")
    draw_values(studied, folder / "value.svg")
    certified(loaded, sordino.Ledger.read(folder / "spend.db"), folder)
    print(  # noqa: T201
        f"plan: at least {max(found.value, 0.0):.3f} above random steps, and at most "
        f"{found.certificate:.3f} below the best plan, with confidence {found.confidence:g}.\n"
        f"In truth, which only this simulation knows: {truth.value(found.policy):.3f}; "
        f"best {truth.value(truth.best()):.3f}, random {truth.value(RANDOM):.3f}."
    )


if __name__ == "__main__":
    main()
