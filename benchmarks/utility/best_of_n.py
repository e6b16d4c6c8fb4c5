"""Prints as JSON how much a judge prefers the answers that a private reward chooses among many.

Of ``judged_answers`` in the folder ``shared/data`` beside this checkout: 505 prompts, each with the
answers of 57 language models and a judge's preference (0 to 1) of each over one baseline. Rewards
learn from pairs of answers to 400 prompts and choose among all answers to the other 105; what
counts is the preference of what is chosen. Nothing is trained but a linear reward of hashed
features.

Every row is over seeds that draw pairs and noise and over the 105 prompts; intervals are those of
the middle 95% of 2,000 means over seeds and prompts that were drawn again with replacement. With
``--work`` a folder keeps what was measured, and another run goes on from there.

    python benchmarks/utility/best_of_n.py [--seeds 2] [--work FOLDER]
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from _worlds import versions

import sordino
from sordino.algorithms.offline_bandit import bounded_range_of_draws, settle
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.mechanisms.score_sensitivity import withheld_ridge_label_range
from sordino.preferences.features import usual_features
from sordino.privacy.accounting import composed_epsilon
from sordino.privacy.guarantee import REPLACE_ONE, REPLACE_SPECIAL, BoundedRangeEvent, Unit
from sordino.rewards.noise_forecast import Signal, of_answers, of_sum

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "judged_answers.jsonl.gz"
PAIRS, LEARNED = 20_000, 400
DELTA, BOUND = 1e-6, 0.6  # the bound of records as align has it
EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0)
TEMPERATURE, COLD = 0.5, 0.02  # as align has it, and one that all but takes the best
FEW = 10  # pairs of a person that count, where not all do
SIZES = (300, 1_000, 3_000, PAIRS)  # for which draws are set against one release
REQUESTS = (1, 3, 10, 30, 100, 300, 1_000)
SCALES = (0.0, 0.01, 0.1, 1.0)  # shares of the proved bonus
BALL = 5.0  # of which the confidence set is made
Rows = np.ndarray


class Judged:
    """All answers with their features, and pairs of those to the prompts that are learned from."""

    def __init__(self, work: Path | None) -> None:
        self.work = work
        with gzip.open(DATA, "rt", encoding="utf-8") as lines:
            told = [json.loads(line) for line in lines]
        answers = [(row["prompt"], one) for row in told for one in row["answers"]]
        self.texts = [prompt for prompt, _ in answers], [one["text"] for _, one in answers]
        self.preference = np.array([one["preference"] for _, one in answers])
        self.sizes = np.array([len(row["answers"]) for row in told])
        self.starts = np.cumsum(self.sizes) - self.sizes
        order = np.random.default_rng(0).permutation(len(told))
        self.learned, self.held_out = order[:LEARNED], order[LEARNED:]

    def kept(self, name: str, make: Callable[[], Any]) -> Rows:
        """Return what was measured before under a name, or measure it."""
        path = None if self.work is None else self.work / f"{name}.npy"
        if path is not None and path.exists():
            return np.asarray(np.load(path))
        found = np.asarray(make())
        if path is not None:
            np.save(path, found)
        print(f"{time.process_time():.0f} s: {name}", file=sys.stderr, flush=True)
        return found

    @cached_property
    def words(self) -> Rows:
        """Return the features that align has for so many judgments."""
        return self.features(PAIRS)

    @cached_property
    def shapes(self) -> Rows:
        """Return the features that align has for fewer."""
        return self.features(PAIRS - 1)

    def features(self, n: int) -> Rows:
        """Return the features of all answers."""
        return np.asarray(usual_features(n).transform(*self.texts).toarray())

    def options(self, prompt: int) -> slice:
        """Return where the answers to a prompt are."""
        return slice(self.starts[prompt], self.starts[prompt] + self.sizes[prompt])

    def pairs(self, rows: Rows, n: int, seed: int, prompts: Rows | None = None) -> dict[str, Any]:
        """Return differences, labels and prompts of decided pairs; equal preferences are none."""
        generator = np.random.default_rng(seed)
        found: list[tuple[Rows, Rows, Rows]] = []
        while sum(len(part[1]) for part in found) < n:
            at = generator.choice(self.learned if prompts is None else prompts, 2 * n)
            ends = [self.starts[at] + generator.integers(self.sizes[at]) for _ in range(2)]
            gap = self.preference[ends[0]] - self.preference[ends[1]]
            differences = rows[ends[0]] - rows[ends[1]]
            kept = (gap != 0) & differences.any(axis=1)
            found.append((differences[kept], (gap > 0)[kept].astype(np.int64), at[kept]))
        parts = (np.concatenate(part)[:n] for part in zip(*found, strict=True))
        return dict(zip(("differences", "labels", "prompts"), parts, strict=True))

    def chosen(self, scores: Rows, temperature: float) -> Rows:
        """Return for every held-out prompt how much what is drawn is preferred on average."""
        found = []
        for prompt in self.held_out:
            here = self.options(prompt)
            chances = np.exp((scores[here] - scores[here].max()) / temperature)
            found.append(float(chances @ self.preference[here] / chances.sum()))
        return np.array(found)

    def accuracy(self, scores: Rows) -> Rows:
        """Return for every held-out prompt how many of its decided pairs are ordered rightly."""
        found = []
        for prompt in self.held_out:
            score, truth = scores[self.options(prompt)], self.preference[self.options(prompt)]
            gaps = np.sign(truth[:, None] - truth)
            right = np.sign(score[:, None] - score)[gaps != 0] * gaps[gaps != 0]
            found.append(float(right.mean() + 1) / 2)
        return np.array(found)


def interval(values: Any) -> dict[str, Any]:
    """Return the mean over seeds and prompts, with its interval."""
    table = np.asarray(values)  # seeds × prompts
    generator, (seeds, prompts) = np.random.default_rng(0), table.shape
    means = []
    for _ in range(2_000):
        some = table[generator.integers(seeds, size=seeds)].mean(axis=0)
        means.append(some[generator.integers(prompts, size=prompts)].mean())
    ends = [round(float(end), 4) for end in np.quantile(means, (0.025, 0.975))]
    return {"mean": round(float(table.mean()), 4), "interval": ends}


@contextmanager
def ledger(epsilon: float, unit: Unit = "label") -> Iterator[sordino.Ledger]:
    """Yield a ledger that lets one release pass."""
    budget = sordino.Guarantee(
        epsilon * (1 + 1e-9),
        delta=DELTA if math.isfinite(epsilon) else 0.0,
        unit=unit,
        neighbors=REPLACE_SPECIAL if unit == "record" else REPLACE_ONE,
        trust="central",
    )
    with tempfile.TemporaryDirectory() as folder:
        yield sordino.Ledger.open(Path(folder) / "spend.db", data="pairs", budget=budget)


def learn(noise: str, drawn: dict[str, Any], epsilon: float, seed: int, **fit: Any) -> Any:
    """Return the reward that one kind of noise teaches."""
    rows, labels, prompts = (drawn[name] for name in ("differences", "labels", "prompts"))
    persons = [f"judge of {prompt}" for prompt in prompts] if "person" in noise else None
    pairs = sordino.Pairs.from_features(rows, labels, persons=persons)
    n, d = rows.shape
    fit = {"ellipsoid": False} | fit
    hidden: tuple[Unit, ...] = ("record", "person")
    unit: Unit = next((unit for unit in hidden if unit in noise), "label")
    with ledger(epsilon, unit) as spend:
        if noise == "labels" and math.isfinite(epsilon):
            coin = sordino.RandomizedResponse(epsilon)
            private = sordino.privatize(pairs, coin, ledger=spend, simulate_seed=seed)
            return sordino.fit_reward(private, **fit)
        sizes: dict[str, Any] = {"d": d, "delta": DELTA}
        if not math.isfinite(epsilon):
            return sordino.fit_reward(pairs, mechanism=sordino.NonPrivate(), ledger=spend, **fit)
        if unit == "record":
            mechanism: Any = ObjectivePerturbation.for_sizes(
                epsilon, n=n, bound=BOUND, neighbors=REPLACE_SPECIAL, **sizes
            )
        else:
            most = int(np.bincount(prompts).max()) if unit == "person" else None
            if "few" in noise:
                most, n = FEW, FEW * len(set(prompts))
            mechanism = sordino.LabelGaussian.for_sizes(
                epsilon, n=n, feature_bound=1.0, records_per_person=most, **sizes
            )
        return sordino.fit_reward(
            pairs, mechanism=mechanism, ledger=spend, simulate_seed=seed, **fit
        )


def planned(epsilon: float, requests: int, temperature: float, longest: float) -> float:
    """Return the ridge at which so many draws keep an epsilon, whatever is asked; as align has."""
    target = bounded_range_of_draws(epsilon, DELTA, requests, neighbors=REPLACE_ONE, adaptive=True)
    return settle(
        lambda ridge: withheld_ridge_label_range(ridge, spread=2.0, bound=longest),
        target=target,
        temperature=temperature,
        regularization=None,
        name="ridge",
        usual=TEMPERATURE,
    )[0]


def withheld(
    drawn: dict[str, Any], epsilon: float, requests: int, temperature: float
) -> tuple[sordino.WithheldReward, Rows]:
    """Return a reward that is kept for so many requests, and its weights, for the measurement."""
    longest = float(np.linalg.norm(drawn["differences"], axis=1).max())
    kept = sordino.WithheldReward(
        sordino.Pairs.from_features(drawn["differences"], drawn["labels"]),
        unit="label",
        neighbors=REPLACE_ONE,
        ridge=planned(epsilon, requests, temperature, longest),
    )
    with ledger(math.inf) as spend:
        return kept, kept.reveal(ledger=spend).weights


KINDS = {  # a row of the table: what is hidden, and by which noise
    "labels": ("label", "randomized response"),
    "estimate": ("label", "noised sum of labels"),
    "record": ("record", "objective perturbation"),
    "person": ("person", "noised sum, all pairs of a prompt"),
    "person, few": ("person", f"noised sum, {FEW} pairs of a prompt"),
    "draws": ("label", "draws, reward withheld"),
}


def row(judged: Judged, drawn: dict[str, Any], noise: str, epsilon: float, seed: int) -> Rows:
    """Return accuracy, and preference at both temperatures, for every held-out prompt."""
    rows, many, heats = judged.words, len(judged.held_out), (TEMPERATURE, COLD)
    if noise == "draws":  # nothing but draws leaves, so that no accuracy is known
        scores = [rows @ withheld(drawn, epsilon, many, heat)[1] for heat in heats]
        accuracy = np.full(many, np.nan)
    else:
        scores = [rows @ learn(noise, drawn, epsilon, seed).weights] * 2
        accuracy = judged.accuracy(scores[0])
    chosen = [judged.chosen(one, heat) for one, heat in zip(scores, heats, strict=True)]
    return np.stack([accuracy, *chosen])


def table(judged: Judged, seeds: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of every noise and epsilon, and what a plan foresaw of the first two."""
    found: dict[tuple[str, float], list[Any]] = {}
    rows = judged.words
    cells = [("none", math.inf), *((noise, epsilon) for epsilon in EPSILONS for noise in KINDS)]
    for seed in range(seeds):
        drawn = judged.pairs(rows, PAIRS, seed)
        for noise, epsilon in cells:
            values = judged.kept(
                f"{noise} {epsilon:g} {seed}", partial(row, judged, drawn, noise, epsilon, seed)
            )
            found.setdefault((noise, epsilon), []).append(values)
    names, out = ("accuracy", "preference", "cold"), list[dict[str, Any]]()
    plain = np.array(found["none", math.inf])
    for (noise, epsilon), each in found.items():
        unit, way = KINDS.get(noise, ("none", "none"))
        told: dict[str, Any] = {"noise": way, "unit": unit}
        told["epsilon"] = None if noise == "none" else epsilon
        for at, name in enumerate(names):
            if not (noise == "draws" and name == "accuracy"):
                told[name] = interval(np.array(each)[:, at])
                told[f"{name}_above_not_private"] = interval((np.array(each) - plain)[:, at])
        out.append(told)
    public = judged.pairs(rows, 2_000, 0, judged.held_out)
    signal = Signal.of_public(public["differences"], public["labels"].astype(np.float64))
    known = judged.pairs(rows, PAIRS, 0)["differences"]
    foreseen = []
    for epsilon in EPSILONS:
        coin = sordino.RandomizedResponse(epsilon)
        sizes = {"n": PAIRS, "d": rows.shape[1], "feature_bound": 1.0, "delta": DELTA}
        noised = sordino.LabelGaussian.for_sizes(epsilon, **sizes)
        both = {
            "labels": of_answers(known, PAIRS, flip_probability=coin.flip_probability),
            "estimate": of_sum(known, PAIRS, noised),
        }
        plan = {noise: signal.foresee(picture).to_dict() for noise, picture in both.items()}
        gains = (
            np.array(found["estimate", epsilon])[:, 0] - np.array(found["labels", epsilon])[:, 0]
        )
        gain = round(plan["estimate"]["accuracy"] - plan["labels"]["accuracy"], 4)
        foreseen.append(
            {"epsilon": epsilon, **plan, "foreseen_gain": gain, "gain": interval(gains)}
        )
    return out, foreseen


def crossover(judged: Judged, n: int, seeds: int, epsilon: float = 1.0) -> dict[str, Any]:
    """Return what requests to a withheld reward get, beside one release of the same cost."""
    rows = judged.words if n == PAIRS else judged.shapes

    def once(seed: int) -> list[Rows]:
        drawn = judged.pairs(rows, n, seed)
        weights = [learn("estimate", drawn, epsilon, seed).weights]
        weights += [withheld(drawn, epsilon, requests, COLD)[1] for requests in REQUESTS]
        return [judged.chosen(rows @ one, COLD) for one in weights]

    both = np.array([judged.kept(f"crossover {n} {s}", partial(once, s)) for s in range(seeds)])
    peer, values = both[:, 0], both[:, 1:]
    above = [interval(values[:, at] - peer) for at in range(len(REQUESTS))]
    return {
        "n": n,
        "epsilon": epsilon,
        "features": rows.shape[1],
        "release": interval(peer),
        "requests": REQUESTS,
        "withheld": [interval(values[:, at]) for at in range(len(REQUESTS))],
        "above_release": above,
        "crossover": crossing([row["mean"] for row in above]),
        "clear_from": next(
            (k for k, row in zip(REQUESTS, above, strict=True) if row["interval"][1] < 0), None
        ),
    }


def crossing(above: list[float]) -> float | None:
    """Return the number of requests from which on the release is ahead; None if beyond."""
    if above[0] < 0:
        return 1.0
    for at in range(1, len(above)):
        if above[at] < 0:
            share = above[at - 1] / (above[at - 1] - above[at])
            ends = np.log(REQUESTS[at - 1 : at + 1])
            return round(float(np.exp(ends[0] + share * (ends[1] - ends[0]))), 1)
    return None


def pessimism(judged: Judged, epsilon: float, seeds: int) -> list[dict[str, Any]]:
    """Return what bonuses of several sizes make of choices, and how many they move."""
    rows = judged.words
    asked = [rows[judged.options(prompt)] for prompt in judged.held_out]

    def once(seed: int) -> Rows:
        drawn = judged.pairs(rows, PAIRS, seed)
        reward = learn("estimate", drawn, epsilon, seed, ellipsoid=True, ball=BALL)
        found, first = [], None
        for scale in SCALES:
            policy = sordino.pessimistic_policy(reward, temperature=TEMPERATURE, scale=scale)
            chances = policy.probabilities(None, asked)
            best = np.array([one.argmax() for one in chances])
            first = best if first is None else first
            each = zip(chances, judged.held_out, strict=True)
            value = [one @ judged.preference[judged.options(prompt)] for one, prompt in each]
            found.append((value, best != first))
        return np.array(found, dtype=np.float64)

    name = f"pessimism {epsilon:g}"
    both = np.array([judged.kept(f"{name} {seed}", partial(once, seed)) for seed in range(seeds)])
    return [
        {
            "epsilon": None if math.isinf(epsilon) else epsilon,
            "ball": BALL,
            "scale": scale,
            "preference": interval(both[:, at, 0]),
            "above_no_bonus": interval(both[:, at, 0] - both[:, 0, 0]),
            "first_choices_moved": round(float(both[:, at, 1].mean()), 4),
        }
        for at, scale in enumerate(SCALES)
    ]


def meter(judged: Judged, epsilon: float = 1.0) -> dict[str, Any]:
    """Return what a ledger lets through of requests to a reward that was planned."""
    rows, planned_for = judged.words, len(judged.held_out)
    kept, _ = withheld(judged.pairs(rows, PAIRS, 0), epsilon, planned_for, COLD)
    policy = sordino.gibbs_policy(kept, temperature=COLD)
    asked = [rows[judged.options(prompt)] for prompt in judged.held_out]
    widest = max(policy.bounded_range(None, options) for options in asked)

    def read(requests: int) -> float:
        events = [(BoundedRangeEvent(widest), requests)]
        return composed_epsilon(events, neighbors=REPLACE_ONE, delta=DELTA)

    with ledger(epsilon) as spend:
        picks = policy.draw_each(None, asked, ledger=spend, simulate_seed=0)
        left = spend.remaining_epsilon()
    each = zip(judged.held_out, picks, strict=True)
    told = [judged.preference[judged.options(prompt)][pick] for prompt, pick in each]
    low, high = planned_for, 100 * planned_for
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if read(middle) <= epsilon else (low, middle)
    return {
        "epsilon": epsilon,
        "planned_for": planned_for,
        "bounded_range_of_one": round(widest, 5),
        "spent": [{"requests": k, "epsilon": round(read(k), 4)} for k in (*REQUESTS, low)],
        "served": low,
        "drawn": {
            "requests": len(picks),
            "ledger_spent": round(epsilon - left, 4),
            "preference": round(float(np.mean(told)), 4),
        },
    }


def measure(seeds: int, other_seeds: int, work: Path | None) -> dict[str, Any]:
    """Return all that is measured."""
    start, judged = time.process_time(), Judged(work)
    rows, foreseen = table(judged, seeds)
    same = np.zeros(len(judged.preference))
    best = np.array([[judged.preference[judged.options(p)].max() for p in judged.held_out]])
    return {
        "name": "best-of-n",
        "prompts": {"learned": LEARNED, "held_out": len(judged.held_out)},
        "answers": [int(judged.sizes.min()), int(judged.sizes.max())],
        "pairs": PAIRS,
        "seeds": {"rows": seeds, "crossover and pessimism": other_seeds, "split": 0},
        "delta": DELTA,
        "temperatures": {"preference": TEMPERATURE, "cold": COLD},
        "uniform": interval(judged.chosen(same, 1.0)[None]),
        "best_there_is": interval(best),
        "rows": rows,
        "foreseen": foreseen,
        "crossover": [crossover(judged, n, other_seeds) for n in SIZES],
        "pessimism": [
            one
            for epsilon in (0.1, 1.0, math.inf)
            for one in pessimism(judged, epsilon, other_seeds)
        ],
        "meter": meter(judged),
        "seconds": round(time.process_time() - start),
        "versions": versions(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--other-seeds", type=int, default=1, help="of draws and pessimism")
    parser.add_argument("--work", type=Path, help="a folder that keeps what was measured")
    warnings.simplefilter("ignore")
    print(json.dumps(measure(**vars(parser.parse_args())), indent=1))
