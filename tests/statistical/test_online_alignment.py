"""Regret of online alignment grows slowly, and what is said to be possible holds the truth."""

from __future__ import annotations

import numpy as np
import online_regret

from sordino.algorithms.online_alignment import LinearLearner, _FiniteLearner
from sordino.rewards.pair_losses import answer_probability


def test_regret_grows_slower_than_the_root_of_rounds():
    # At epsilon 2, from 2^11 to 2^13 rounds, 8 runs. The slope is .34 with a standard error of
    # .024: false alarm below 1e-6. Power: √T has slope .5; a policy that learns nothing, 1.
    curve = online_regret.family(
        online_regret.SIZE,
        epsilon=2.0,
        exploration="optimistic",
        runs=8,
        rounds=2**13,
        first=100,
    ).mean(axis=0)
    assert online_regret.last_slope(curve) <= 0.46


def test_optimism_pays_on_the_hard_instance():
    # Balanced level, C = 20, epsilon 1, 2^13 rounds, 16 runs of each. The logarithm of the ratio
    # is -.68 with a standard error of .11: false alarm 4e-5. Power: without a bonus the ratio is 1
    # with .16, so that 9 of 10 such errors are seen; the unit tests see all.
    [setting] = [one for one in online_regret.HARD if one.concentrability == 20 and one.balanced]
    bold, plain = (
        online_regret.hard_finals(setting, name, online_regret.SCALE, runs=16).mean()
        for name in ("optimistic", "none")
    )
    assert bold <= 0.8 * plain


def _questions(rng, belief, rows):
    """Return the row that is most uncertain: chosen by all earlier answers."""
    return rows[int(np.argmax(belief.widths(rows)))]


def test_the_self_normalized_set_holds_the_truth_for_chosen_questions():
    # 60 runs of 250 questions, each chosen by earlier answers, all rounds together at confidence
    # .9: the truth may be outside in 6 runs. The largest distance of a run is .37 of the radius
    # in the middle and .67 at most: false alarm below 1e-9. Power: with a third of the radius
    # more than half of the runs fail.
    outside = largest = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        truth = rng.normal(size=3)
        truth *= 1.0 / np.linalg.norm(truth)
        learner = LinearLearner(
            3, feature_bound=0.5, ball=1.0, ridge=1.0, flip_probability=0.27, confidence=0.9
        )
        worst = 0.0
        for _ in range(250):
            rows = rng.normal(size=(12, 3))
            row = _questions(rng, learner, rows / np.linalg.norm(rows, axis=1)[:, None])
            chance = answer_probability(row @ truth, 0.27)
            learner.take(row[None])
            learner.learn(row[None], np.array([int(rng.random() < chance)]))
            error = np.linalg.solve(learner.root, learner.weights - truth)
            worst = max(worst, float(np.linalg.norm(error)) / learner.radius)
        outside += worst > 1
        largest = max(largest, worst)
    assert outside <= 6
    assert largest > 1 / 3, "the radius is larger than this test was made for"


def test_the_finite_set_holds_the_truth_and_shrinks():
    # 150 runs of 300 questions, chosen by earlier answers, at confidence .8, among 12 candidates.
    # At most 30 may exclude the truth at any time; 8 % do (25 of 300 measured): false alarm below
    # 1e-5. Power: half of the gap excludes it in 44 %.
    excluded, left = 0, []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        table = rng.random((12, 30))  # rewards of 30 actions under every candidate
        names = {f"{index:02d}": (lambda rows: rows) for index in range(12)}
        learner = _FiniteLearner(names, flip_probability=0.1, confidence=0.8)
        kept = True
        for _ in range(300):
            pairs = rng.integers(0, 30, size=(8, 2))
            rows = (table[:, pairs[:, 0]] - table[:, pairs[:, 1]]).T
            row = _questions(rng, learner, rows)
            answer = int(rng.random() < answer_probability(row[0], 0.1))
            learner.learn(row[None], np.array([answer]))
            kept = kept and bool(learner.kept[0])
        excluded += not kept
        left.append(int(learner.kept.sum()))
    assert excluded <= 30
    assert np.mean(left) < 3  # of 12: 1.6 measured
