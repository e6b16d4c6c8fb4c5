"""An election whose ballots nobody can read out of its result: worths of candidates with intervals.

Every ballot ranks some of the candidates. All ballots are released once, as one noised sum of
ranks; from it come the worth of every candidate and how sure one can be of it. What is hidden is
one ballot, with its length and its ties.

    python examples/private_ballots.py --out runs/ballots
    python examples/private_ballots.py debian-2005.soi --epsilon 3 --out runs/debian

Without a file 500 ballots are made up. A file is one of PrefLib (.soc, .soi, .toc, .toi) or JSON
Lines (docs/rankings.md). It writes spend.db, reward.json, certificate.json, report.html and
worths.svg. Only for ballots that are no secret, made-up ones or with ``--public-ballots``, which
declares that the file is published anyway, the fit without privacy is drawn beside the private
one, and agreement.svg and agreement.json show how well they agree at which ε. For others these
would give away what the noise hides.
"""  # noqa: INP001

from __future__ import annotations

import argparse
import string
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from pictures import (
    BLUE,
    GRAY,
    ORANGE,
    budget,
    certified,
    half_width,
    new_figure,
    new_folder,
    save,
    write_numbers,
)
from scipy.stats import kendalltau

import sordino
from sordino.mechanisms.ranking_sum import RankingGaussian
from sordino.preferences.rankings import Rankings, read_rankings

BALL = 10.0
DELTA = 1e-6
STUDIED = (0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0)
BARE = 1e4  # ε of the fit beside it: the same likelihood, and noise that is nothing
MADE_UP = {"alder": 1.2, "birch": 1.1, "cedar": 0.5, "elm": 0.0, "fir": -0.6, "hazel": -1.0}

Worths = dict[str, tuple[float, float, float]]  # worth and both ends; NaN where none is known


def made_up(n: int, seed: int = 0) -> Rankings:
    """Return ballots of people who rank by worth and luck (Plackett–Luce), half of them short."""
    generator = np.random.default_rng(seed)
    names = list(MADE_UP)
    utilities = np.array(list(MADE_UP.values())) + generator.gumbel(size=(n, len(names)))
    order = np.argsort(-utilities, axis=1)
    short = generator.integers(1, len(names), size=n)
    lengths = np.where(generator.random(n) < 0.5, short, len(names))  # noqa: PLR2004 (half)
    ballots = [
        [names[number] for number in row[:length]]
        for row, length in zip(order, lengths, strict=True)
    ]
    return Rankings.from_orders(names, ballots, offered="all")


def released(
    ballots: Rankings, epsilon: float, path: Path, seed: int | None
) -> sordino.RewardModel:
    """Return the worths behind one noised sum of ranks, and leave a ledger that says so."""
    return sordino.fit_reward(
        ballots,
        mechanism=RankingGaussian(epsilon, delta=DELTA, statistic="borda"),
        ledger=sordino.Ledger.open(path, data="ballots", budget=budget(epsilon, DELTA)),
        ball=BALL,
        simulate_seed=seed,
    )


def worths(reward: sordino.RewardModel) -> Worths:
    """Return worth and 95% interval of every candidate, the best first."""
    return {
        name: (worth, np.nan if low is None else low, np.nan if high is None else high)
        for name, worth, low, high in reward.worths()
    }


def agreement(one: Worths, other: Worths) -> float:
    """Return Kendall's τ: 1 if both put all candidates into the same order, −1 if reversed."""
    names = sorted(one)
    return float(kendalltau([one[n][0] for n in names], [other[n][0] for n in names]).statistic)


def study(
    ballots: Rankings, bare: Worths, runs: int, epsilons: tuple[float, ...]
) -> list[dict[str, float]]:
    """Return how well private worths agree with those of the same fit without privacy."""
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for epsilon in epsilons:
            taus = [
                agreement(
                    worths(released(ballots, epsilon, Path(place) / f"{epsilon}-{run}.db", run)),
                    bare,
                )
                for run in range(runs)
            ]
            rows.append(
                {"epsilon": epsilon, "tau": float(np.mean(taus)), "half": float(half_width(taus))}
            )
    return rows


def draw_worths(
    private: Worths, bare: Worths | None, epsilon: float, path: Path, *, letters: bool
) -> None:
    """Draw worth and interval of every candidate, private and, if given, without privacy."""
    figure, axes = new_figure(7.2, 1.3 + 0.46 * len(private))
    places = np.arange(len(private))
    shown: list[tuple[Worths, float, str, str, str]] = [
        (private, -0.12, BLUE, "o", f"private, ε = {epsilon:g}")
    ]
    if bare is not None:
        shown.append((bare, 0.12, ORANGE, "s", "without privacy"))
    for found, shift, color, mark, label in shown:
        rows = np.array([found[name] for name in private])
        reach = np.abs(rows[:, 1:].T - rows[:, 0])
        axes.errorbar(
            rows[:, 0], places + (shift if bare else 0), xerr=reach, color=color, marker=mark,
            markersize=5, capsize=3, linestyle="none", label=label,
        )  # fmt: skip
    axes.axvline(0.0, color=GRAY, linewidth=1)
    names = list(string.ascii_uppercase[: len(private)]) if letters else list(private)
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set(xlabel="worth above the mean of all, in log odds, with 95% interval")
    figure.legend(loc="outside upper center", ncols=2)
    save(figure, path)


def draw_agreement(rows: list[dict[str, float]], runs: int, path: Path) -> None:
    """Draw Kendall's τ to the fit without privacy against ε."""
    figure, axes = new_figure(6.4, 3.8)
    epsilons, taus = ([row[key] for row in rows] for key in ("epsilon", "tau"))
    reach = [row["half"] for row in rows]
    axes.errorbar(epsilons, taus, yerr=reach, color=BLUE, marker="o", markersize=5, capsize=3)
    axes.axhline(1.0, color=GRAY, linewidth=1, linestyle="--")
    axes.set(xscale="log", xlabel="ε per ballot (δ = 1e-6)", ylabel="Kendall's τ")
    axes.set_xticks(epsilons, [f"{value:g}" for value in epsilons])
    axes.minorticks_off()
    axes.set_title(f"Same order as without privacy? Mean of {runs} releases, 95% interval")
    save(figure, path)


def arguments() -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, nargs="?", help="ballots; made up if left out")
    parser.add_argument("--out", type=Path, required=True, help="folder to make")
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--runs", type=int, default=50, help="releases at each ε of agreement.svg")
    parser.add_argument(
        "--public-ballots", action="store_true", help="the file is published: compare with it"
    )
    parser.add_argument("--letters", action="store_true", help="call candidates A, B, ... in the "
                        "picture, the best first")  # fmt: skip
    parser.add_argument(
        "--simulate-seed", type=int, help="a seed for the noise, for study: nothing is then private"
    )
    parser.add_argument("--quick", action="store_true", help="three releases at two ε")
    return parser.parse_args()


def main() -> None:
    """Release, draw, compare where that gives nothing away, and certify."""
    asked = arguments()
    runs, epsilons = (3, (0.5, 3.0)) if asked.quick else (asked.runs, STUDIED)
    folder = new_folder(asked.out)
    ballots = made_up(500) if asked.file is None else read_rankings(asked.file, offered="all")
    reward = released(ballots, asked.epsilon, folder / "spend.db", asked.simulate_seed)
    reward.save(folder / "reward.json")
    private, bare = worths(reward), None
    if asked.file is None or asked.public_ballots:
        bare = compared(ballots, runs, epsilons, folder)
    draw_worths(private, bare, asked.epsilon, folder / "worths.svg", letters=asked.letters)
    for name, (worth, low, high) in private.items():
        interval = "[no interval]" if np.isnan(low) else f"[{low:+.2f}, {high:+.2f}]"
        print(f"{worth:+.2f}  {interval}  {name}")  # noqa: T201
    certified(reward, sordino.Ledger.read(folder / "spend.db"), folder)


def compared(ballots: Rankings, runs: int, epsilons: tuple[float, ...], folder: Path) -> Worths:
    """Return the worths without privacy, after drawing how close private ones come to them."""
    with tempfile.TemporaryDirectory() as place:
        bare = worths(released(ballots, BARE, Path(place) / "bare.db", 0))
    rows = study(ballots, bare, runs, epsilons)
    write_numbers({"releases": runs, "rows": rows}, folder / "agreement.json")
    draw_agreement(rows, runs, folder / "agreement.svg")
    told: list[Any] = [f"{row['tau']:.3f} at ε = {row['epsilon']:g}" for row in rows]
    print("Kendall's τ to the fit without privacy:", ", ".join(told))  # noqa: T201
    return bare


if __name__ == "__main__":
    main()
