"""Accuracy on real judgments, learned from randomized ones."""

from __future__ import annotations

import numpy as np
import pytest
from real_accuracy import Central, central_accuracy, read

import sordino
from sordino.reporting.result import measure_public
from sordino.rewards.estimation import fit_reward


@pytest.mark.parametrize(("epsilon", "least"), [(4.0, 0.585), (1.0, 0.575)])
def test_a_private_reward_agrees_with_public_judgments(epsilon, least, shared_data, ledger):
    # Measured over 100 coin draws with a fixed ridge: mean .653, sd .003 at epsilon 4 and mean
    # .638, sd .007 at epsilon 1, so the mean of five lies more than 15 standard errors above the
    # bound: false alarm below 1e-9. Power: labels ignored give .5, length alone about .56.
    pairs = sordino.read_pairs(shared_data / "hh_helpful_b.jsonl.gz", drop=["identical"])
    public = sordino.read_pairs(shared_data / "hh_helpful_a.jsonl.gz", drop=["identical"])
    features = sordino.HashedText(dimension=512)
    found = []
    for seed in range(5):
        coin = sordino.RandomizedResponse(epsilon)
        answers = sordino.privatize(pairs, coin, ledger=ledger(epsilon), simulate_seed=seed)
        reward = fit_reward(answers, features=features)
        found.append(measure_public(reward, public, 0.5)["accuracy"])
    assert np.mean(found) >= least


def test_a_released_sum_of_labels_agrees_with_public_judgments(shared_data):
    # Epsilon 4, delta 1e-6 and the default features. Measured over 20 seeds: mean .641, sd .0053,
    # least .632, so the mean of three lies 20 standard errors above the bound: false alarm below
    # 1e-9. Power: labels ignored give .5, and thirty times the noise .44, .51 and .58.
    pairs, public = read("b", shared_data), read("a", shared_data)
    found = [central_accuracy(Central("label", 4.0), pairs, public, seed=s) for s in range(3)]
    assert np.mean(found) >= 0.58


def test_flips_happen_as_often_as_stated(ledger):
    # False alarm 1e-5 (4.5 standard errors); power: half the noise is off by 80 of them.
    n, epsilon = 40_000, 1.0
    rows = np.random.default_rng(0).normal(size=(n, 2))
    pairs = sordino.Pairs.from_features(rows, np.arange(n) % 2)
    coin = sordino.RandomizedResponse(epsilon)
    answers = sordino.privatize(pairs, coin, ledger=ledger(epsilon), simulate_seed=11)
    flips = (answers.answers != pairs.labels).mean()
    error = np.sqrt(coin.flip_probability * (1 - coin.flip_probability) / n)
    assert abs(flips - coin.flip_probability) < 4.5 * error
