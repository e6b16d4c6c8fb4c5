"""Intervals of held-out metrics hold what is true of the reward that is released.

Each fold is predicted by a fit on the others, and the released reward is another fit, on all.
"""

import numpy as np
import pytest
from scipy.special import expit

import sordino
from sordino.reporting.result import measure_policy, measure_reward
from sordino.rewards.evidence import Design
from sordino.rewards.metrics import cross_fit
from sordino.rewards.private_metrics import (
    measure_labels,
    measure_records,
    record_metrics_mechanism,
)
from sordino.rewards.reward_fit import fit_design

NAMES = ("accuracy", "negative_log_likelihood", "win_rate")
TEMPERATURE = 0.5


def rewarded(generator, n, d, epsilon):
    """Return randomized answers to questions about a reward of norm 1, and that reward."""
    flips = sordino.RandomizedResponse(epsilon).flip_probability
    theta = generator.standard_normal(d)
    theta /= np.linalg.norm(theta)
    rows = generator.standard_normal((n, d))
    labels = generator.random(n) < expit(rows @ theta)
    answers = (labels ^ (generator.random(n) < flips)).astype(np.int64)
    longest = float(np.linalg.norm(rows, axis=1).max())
    questions = generator.integers(0, 2**64, n, dtype=np.uint64)
    design = Design(
        differences=rows, answers=answers, flip_probability=flips, feature_bound=longest,
        questions=questions, clusters=None,
    )  # fmt: skip
    return design, theta


def truth(generator, found, theta):
    """Return what is true of a reward on 20,000 fresh questions."""
    rows = generator.standard_normal((20_000, len(theta)))
    gaps, chances = rows @ found, expit(rows @ theta)
    picks = expit(gaps / TEMPERATURE)
    return {
        "accuracy": np.mean(np.where(gaps > 0, chances, 1 - chances)),
        "negative_log_likelihood": np.mean(np.logaddexp(0, gaps) - chances * gaps),
        "win_rate": np.mean(chances * picks + (1 - chances) * (1 - picks)),
    }


def holding(n, d, epsilon, fits):
    """Return which part of the printed intervals holds the truth, by metric."""
    held = {name: [] for name in NAMES}
    for fit in range(fits):
        generator = np.random.default_rng([n, d, fit])
        design, theta = rewarded(generator, n, d, epsilon)
        released = fit_design(design, ridge=None, ball=100.0).solution.theta
        true, predicted = truth(generator, released, theta), cross_fit(design)
        told = measure_reward(predicted) | measure_policy(predicted, TEMPERATURE)
        for name in NAMES[:2]:
            if told[name] is not None:
                reach = 1.96 * told[f"{name}_standard_error"]
                held[name].append(abs(told[name] - true[name]) <= reach)
        if told["win_rate"] is not None:
            low, high = told["win_rate_interval"]
            held["win_rate"].append(low <= true["win_rate"] <= high)
    return {name: (float(np.mean(values)), len(values)) for name, values in held.items()}


@pytest.mark.deep
def test_intervals_hold_what_is_true_of_the_released_reward():
    """They say 95 %. Were it so, less than 88 of 100 would come once in 400; without the
    correction for refits some 80 hold, and 88 or more come once in 40."""
    for share, printed in holding(1000, 32, 1.0, 100).values():
        assert printed == 100
        assert share >= 0.88


def paid(unit, n, d, epsilon, fits, folder):
    """Return which part of the intervals that were paid for holds the truth, by metric.

    A curator's reward is fitted without the held-out fifth, and the same one is released.
    """
    held = {name: [] for name in NAMES}
    budget = sordino.Guarantee(
        np.inf, delta=0.5, unit=unit, trust="central",
        neighbors=sordino.REPLACE_ONE if unit == "label" else sordino.ADD_OR_REMOVE_ONE,
    )  # fmt: skip
    for fit in range(fits):
        ledger = sordino.Ledger.open(folder / f"{fit}.db", data="pairs", budget=budget)
        generator = np.random.default_rng([n, d, fit])
        theta = generator.standard_normal(d)
        theta /= np.linalg.norm(theta)
        rows = generator.standard_normal((n, d))
        labels = (generator.random(n) < expit(rows @ theta)).astype(float)
        pairs = sordino.Pairs.from_features(rows, labels)
        spent = {"ledger": ledger, "simulate_seed": fit}
        if unit == "label":
            noise = sordino.LabelGaussian(epsilon, delta=1e-6)
            reward = sordino.fit_reward(pairs, mechanism=noise, held_out=True, **spent)
            found = measure_labels(reward, pairs, noise, temperature=TEMPERATURE, **spent)
        else:
            related = {"delta": 1e-6, "neighbors": budget.neighbors}
            tilt = sordino.ObjectivePerturbation(5.0, bound=4.0, **related)
            reward = sordino.fit_reward(pairs, mechanism=tilt, held_out=True, **spent)
            noise = record_metrics_mechanism(epsilon, **related)
            found = measure_records(reward, pairs, noise, temperature=TEMPERATURE, **spent)
        true = truth(generator, reward.weights, theta)
        told = found.to_dict()
        for name in NAMES[:2]:
            if told[name] is not None:
                reach = 1.96 * told[f"{name}_standard_error"]
                held[name].append(abs(told[name] - true[name]) <= reach)
        if told["win_rate"] is not None:
            low, high = told["win_rate_interval"]
            held["win_rate"].append(low <= true["win_rate"] <= high)
    return {
        name: (float(np.mean(values or [np.nan])), len(values)) for name, values in held.items()
    }


@pytest.mark.deep
@pytest.mark.parametrize("unit", ["label", "record"])
def test_intervals_that_were_paid_for_hold(tmp_path, unit):
    """Less than 50 of 60 would come once in 10,000; if the noise were left out of the errors of
    labels, 23 to 39 of 60 hold."""
    for share, printed in paid(
        unit, 1000, 8, 0.5 if unit == "label" else 1.0, 60, tmp_path
    ).values():
        assert printed == 0 or share >= 0.82
