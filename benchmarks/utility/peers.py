"""Prints as JSON how published private methods compare with ours at the same promise.

``rewards``: held-out accuracy of linear rewards from 20,000 pairs of judged_answers (answers of 57
models to 400 prompts; all decided pairs to the other 105 are held out), 512 hashed features.

- DPPrefSyn (arXiv 2605.30808), the stage that learns: principal components of chosen less rejected
  with noise (an eighth of ε), k-means with noise (an eighth), and DP-SGD in each of five clusters.
  Its accuracy is what its synthesis does: a cluster is drawn by size, its reward orders the pair.
  Its code tells how large clusters are for nothing, which is granted here.
- DP-SGD with clipped rows, as opacus has it: one model, Poisson batches, best of three rates.
- Ours: objective perturbation of whole records; a noised sum of labels; randomized labels.
- PROPS (arXiv 2508.06783) with this linear model: half of the randomized labels make a reward, the
  other half are the likelier of its label and the randomized one, and all are fitted again.

``boards``: Spearman's correlation with the mean preference of each model, 20,000 battles.

- ADRR (arXiv 2402.16792) with one ε for all is a debiased fit of randomized votes.
- The perturbed likelihood of arXiv 2507.09388 is a fit of sums of wins with Laplace noise, for a
  vote enters only linearly; its noisy counts are shares of wins with that noise.

Records of the peers come and go (their noise is less so); δ = 1e-6 wherever noise is Gaussian.

    python benchmarks/utility/peers.py [--seeds 5]
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import warnings
from typing import Any

import numpy as np
from _worlds import versions
from best_of_n import DELTA, Judged
from dp_accounting.pld import privacy_loss_distribution as losses
from ranking_judged import preferences, votes
from scipy.optimize import brentq, minimize
from scipy.special import expit
from scipy.stats import spearmanr

import sordino
from sordino.privacy.conversions import gaussian_mu

EPSILONS = (0.5, 1.0, 2.0, 4.0)
PAIRS, D = 20_000, 512
CLUSTERS, COMPONENTS, PART = 5, 20, 1 / 8  # as published
LLOYD = 3  # rounds of k-means
Rows = np.ndarray


def gaussian(sensitivity: float, epsilon: float, delta: float) -> float:
    """Return the standard deviation that keeps a promise."""
    return sensitivity / gaussian_mu(epsilon, delta)


def sgd_noise(rate: float, steps: int, epsilon: float, delta: float) -> float:
    """Return the noise multiplier of Poisson batches by privacy loss distributions."""

    def spent(log_noise: float) -> float:
        one = losses.from_gaussian_mechanism(
            math.exp(log_noise), sampling_prob=rate, value_discretization_interval=2e-3
        )
        return float(one.self_compose(steps).get_epsilon_for_delta(delta)) - epsilon

    return math.exp(brentq(spent, math.log(0.3), math.log(60.0), xtol=0.01)) * 1.01


def dp_sgd(rows: Rows, noise: float, batch: float, steps: int, rate: float, generator: Any) -> Rows:
    """Return weights after Poisson batches of rows (chosen less rejected), clipped to 1."""
    weights = np.zeros(rows.shape[1])
    for _ in range(steps):
        part = rows[generator.random(len(rows)) < batch / len(rows)]
        gradients = -expit(-(part @ weights))[:, None] * part
        gradients /= np.maximum(1.0, np.linalg.norm(gradients, axis=1, keepdims=True))
        noised = gradients.sum(axis=0) + noise * generator.standard_normal(len(weights))
        weights -= rate * noised / batch
    return weights


def clusters(rows: Rows, epsilon: float, delta: float, generator: Any) -> Rows:
    """Return the cluster of every row of norm 1: a few noised rounds of Lloyd's."""
    deviation = gaussian(math.sqrt(2 * LLOYD), epsilon, delta)  # a count and a sum in each round
    centers = generator.standard_normal((CLUSTERS, rows.shape[1]))
    centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    for _ in range(LLOYD):
        member = np.argmax(rows @ centers.T - (centers**2).sum(axis=1) / 2, axis=1)
        for k in range(CLUSTERS):
            mine = rows[member == k]
            size = len(mine) + deviation * generator.standard_normal()
            total = mine.sum(axis=0) + deviation * generator.standard_normal(rows.shape[1])
            centers[k] = total / max(size, 1.0)
            centers[k] /= max(1.0, np.linalg.norm(centers[k]))
    return np.asarray(np.argmax(rows @ centers.T - (centers**2).sum(axis=1) / 2, axis=1))


class Synthesis:
    """The stage of DPPrefSyn that learns from private judgments; calibrated once for an ε."""

    def __init__(self, epsilon: float) -> None:
        self.shares, self.delta = PART * epsilon, DELTA / 3
        least = PAIRS / (CLUSTERS + 4)  # smaller clusters are left out
        self.noise = sgd_noise(4 / least, int(least), epsilon - 2 * self.shares, self.delta)

    def rewards(self, chosen: Rows, generator: Any) -> list[tuple[float, Rows]]:
        """Return the share of every cluster that is kept, and its weights."""
        deviation = gaussian(1.0, self.shares, self.delta)
        noise = np.triu(generator.standard_normal((D, D))) * deviation
        clipped = chosen / np.maximum(1.0, np.linalg.norm(chosen, axis=1, keepdims=True))
        _, basis = np.linalg.eigh(clipped.T @ clipped + noise + np.triu(noise, 1).T)
        basis = basis[:, -COMPONENTS:]
        short = chosen @ basis
        short /= np.maximum(np.linalg.norm(short, axis=1, keepdims=True), 1e-12)
        member = clusters(short, self.shares, self.delta, generator)
        kept = [short[member == k] for k in range(CLUSTERS)]
        kept = [rows for rows in kept if len(rows) >= PAIRS / (CLUSTERS + 4)]
        whole = sum(map(len, kept))
        return [
            (
                len(rows) / whole,
                basis @ dp_sgd(rows, self.noise, 4.0, len(rows), 0.1, generator),
            )
            for rows in kept
        ]


def fitted(pairs: dict[str, Any], noise: Any, seed: int, **terms: Any) -> Rows:
    """Return our weights, with the defaults of the library and a ledger of study."""
    judged = sordino.Pairs.from_features(pairs["differences"], pairs["labels"])
    with tempfile.TemporaryDirectory() as folder:
        budget = sordino.Guarantee(1e3, delta=0.1, trust="central", **terms)
        ledger = sordino.Ledger.open(f"{folder}/spend.db", data="study", budget=budget)
        if isinstance(noise, sordino.RandomizedResponse):
            answers = sordino.privatize(judged, noise, ledger=ledger, simulate_seed=seed)
            return sordino.fit_reward(answers).weights
        ball = 10.0 if terms["unit"] == "record" else 100.0
        return sordino.fit_reward(
            judged, mechanism=noise, ball=ball, ledger=ledger, simulate_seed=seed
        ).weights


def props(pairs: dict[str, Any], epsilon: float, seed: int) -> Rows:
    """Return the weights of the second stage of PROPS."""
    coin, half = sordino.RandomizedResponse(epsilon), PAIRS // 2
    flip, generator = coin.flip_probability, np.random.default_rng([seed, 3])
    told = pairs["labels"] ^ (generator.random(PAIRS) < flip)
    rows = pairs["differences"]

    def plain(rows: Rows, labels: Rows) -> Rows:
        signed = rows * (2 * labels - 1)[:, None]
        found = minimize(
            lambda w: (
                float(np.logaddexp(0, -(signed @ w)).sum() + w @ w / 2),
                w - signed.T @ expit(-(signed @ w)),
            ),
            np.zeros(D), jac=True, method="L-BFGS-B",
        )  # fmt: skip
        return np.asarray(found.x)

    first = plain(rows[:half], told[:half])
    guess = (rows[half:] @ first > 0).astype(np.int64)
    agree = float((guess == told[half:]).mean())
    wrong = (1 - flip - agree) / (1 - 2 * flip)  # of the reward, from randomized labels alone
    told[half:] = guess if wrong < flip else told[half:]
    return plain(rows, told)


def rewards(seeds: int) -> list[dict[str, Any]]:
    """Return held-out accuracies, mean and standard error over seeds."""
    judged, table = Judged(None), []
    features = np.asarray(sordino.HashedText(D).transform(*judged.texts).toarray())

    def right(weights: Rows) -> float:
        return float(judged.accuracy(features @ weights).mean())

    hidden = sordino.ADD_OR_REMOVE_ONE
    for epsilon in EPSILONS:
        synthesis, batch, steps = Synthesis(epsilon), 512.0, 400
        multiplier = sgd_noise(batch / PAIRS, steps, epsilon, DELTA)
        found: dict[tuple[str, str], list[float]] = {}
        for seed in range(seeds):
            pairs = judged.pairs(features, PAIRS, seed)
            chosen = pairs["differences"] * (2 * pairs["labels"] - 1)[:, None]
            generator = np.random.default_rng([seed, 1])

            def told(name: str, unit: str, value: float, kept: Any = found) -> None:
                kept.setdefault((name, unit), []).append(value)

            drawn = synthesis.rewards(chosen, generator)
            told("DPPrefSyn, its rewards", "record", sum(s * right(w) for s, w in drawn) or 0.5)
            weights = [
                dp_sgd(chosen, multiplier, batch, steps, rate, generator) for rate in (1, 4, 16)
            ]
            told("DP-SGD, clipped rows", "record", max(map(right, weights)))
            ours = sordino.ObjectivePerturbation(epsilon, delta=DELTA, bound=1.0, neighbors=hidden)
            made = fitted(pairs, ours, seed, unit="record", neighbors=hidden)
            told("objective perturbation", "record", right(made))
            label = {"unit": "label", "neighbors": sordino.REPLACE_ONE}
            summed = sordino.LabelGaussian(epsilon, delta=DELTA)
            told("noised sum of labels", "label", right(fitted(pairs, summed, seed, **label)))
            coin = sordino.RandomizedResponse(epsilon)
            told("randomized labels, debiased", "label", right(fitted(pairs, coin, seed, **label)))
            told("PROPS, linear", "label", right(props(pairs, epsilon, seed)))
        table += [
            {"method": name, "unit": unit, "epsilon": epsilon} | summary(values)
            for (name, unit), values in found.items()
        ]
    return table


def summary(values: list[float]) -> dict[str, float]:
    """Return the mean and its standard error."""
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return {"mean": round(float(np.mean(values)), 4), "mean_standard_error": round(error, 4)}


def boards(seeds: int) -> list[dict[str, Any]]:
    """Return how boards correlate with the truth, mean and standard error over seeds."""
    names, preferred = preferences()
    truth, table = np.nanmean(preferred, axis=0), []
    for epsilon in EPSILONS:
        found: dict[str, list[float]] = {}
        for seed in range(seeds):
            rows, generator = votes(names, preferred, 20_000, seed), np.random.default_rng(seed)
            for name, noise in (("noised sum", "estimate"), ("randomized, debiased", "labels")):
                with tempfile.TemporaryDirectory() as folder:
                    board = sordino.rank(
                        sordino.read_pairs(rows), epsilon=epsilon, noise=noise, simulate_seed=seed,
                        delta=DELTA if noise == "estimate" else None, accept_weak=True,
                        ledger=f"{folder}/spend.db",
                    )  # fmt: skip
                rated = dict(zip(board.items, board.ratings, strict=True))
                found.setdefault(name, []).append(agreement(truth, [rated[one] for one in names]))
            wins, met = counted(rows, names)
            # A vote moves the wins of two items by one each.
            noised = wins + generator.laplace(scale=2 / epsilon, size=len(names))
            share = noised / met.sum(axis=1)
            for name, ratings in (
                ("perturbed likelihood", likeliest(noised, met)),
                ("noisy counts", share),
            ):
                found.setdefault(name, []).append(agreement(truth, ratings))
        table += [
            {"method": name, "unit": "label", "epsilon": epsilon} | summary(values)
            for name, values in found.items()
        ]
    return table


def agreement(truth: Rows, ratings: Any) -> float:
    """Return Spearman's correlation of the items that have a rating."""
    rated = np.isfinite(ratings)
    return float(spearmanr(np.asarray(ratings)[rated], truth[rated])[0])


def counted(rows: list[dict[str, str]], names: list[str]) -> tuple[Rows, Rows]:
    """Return how often every item won (a tie is half a win), and how often each two met."""
    at, wins = {name: k for k, name in enumerate(names)}, np.zeros(len(names))
    met = np.zeros((len(names), len(names)))
    for row in rows:
        one, other = at[row["model_a"]], at[row["model_b"]]
        share = {"model_a": 1.0, "model_b": 0.0, "tie": 0.5}[row["winner"]]
        wins[one] += share
        wins[other] += 1 - share
        met[one, other] += 1
        met[other, one] += 1
    return wins, met


def likeliest(wins: Rows, met: Rows) -> Rows:
    """Return Bradley-Terry ratings of sums of wins, with a ridge of 1."""

    def loss(ratings: Rows) -> tuple[float, Rows]:
        gaps = ratings[:, None] - ratings
        value = float((met * np.logaddexp(ratings[:, None], ratings)).sum() / 2 - wins @ ratings)
        return value + float(ratings @ ratings) / 2, (met * expit(gaps)).sum(
            axis=1
        ) - wins + ratings

    found = minimize(loss, np.zeros(len(wins)), jac=True, method="L-BFGS-B")
    return np.asarray(found.x)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        json.dumps(
            {
                "name": "peers",
                "delta": DELTA,
                "pairs": PAIRS,
                "dimension": D,
                "seeds": asked.seeds,
                "rewards": rewards(asked.seeds),
                "boards": boards(asked.seeds),
                "versions": versions(),
            },
            indent=2,
        )
    )
