"""Where pessimism bites: what bonuses change, and how many answers make a gain certain."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tests.tiers import few

import sordino
from sordino.algorithms.planning import plan
from sordino.policies.robust import robust_policy
from sordino.rewards.confidence import AnswersNeeded, confidence_ellipsoid

THETA = np.array([1.2, 0.6, 0.0, 0.0])
LISTS = list(np.random.default_rng(5).uniform(-0.5, 0.5, size=(20, 6, 4)))


def fitted(n, seed, noise, folder):
    """Return a reward of n simulated judgments, released with epsilon 1."""
    generator = np.random.default_rng([seed, n])
    rows = generator.uniform(-1, 1, size=(n, 4))
    labels = generator.random(n) < 1 / (1 + np.exp(-rows @ THETA))
    pairs = sordino.Pairs.from_features(rows, labels.astype(int))
    terms = {"ridge": 1.0, "ball": 2.0}
    budget = sordino.Guarantee(
        1.01, delta=1e-6, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    path = folder / f"{noise}-{n}-{seed}.db"
    ledger = sordino.Ledger.open(path, data="test", budget=budget)
    if noise == "estimate":
        told = {
            "mechanism": sordino.LabelGaussian(1.0, delta=1e-6),
            "ledger": ledger,
            "simulate_seed": seed,
        }
        return sordino.fit_reward(pairs, **told, **terms)
    coin = sordino.RandomizedResponse(1.0)
    private = sordino.privatize(pairs, coin, ledger=ledger, simulate_seed=seed)
    return sordino.fit_reward(private, method="debiased", **terms)


def effect(reward, lists=LISTS):
    return sordino.pessimistic_policy(reward, temperature=0.5).effect(None, lists)


@pytest.mark.parametrize(("noise", "n"), few([("labels", 2_000), ("estimate", 700)], first=1))
def test_at_the_stated_number_of_answers_pessimism_bites(noise, n, tmp_path):
    """Nothing is certain with 2/5 of what is said to be needed, and something with 8/5 of it."""
    fits = [fitted(n, seed, noise, tmp_path) for seed in range(5)]
    said = [(effect(fit).needed, robust_policy(fit, None, LISTS).needed) for fit in fits]
    bonus, robust = np.median([[one.answers for one in pair] for pair in said], axis=0)
    assert n < robust <= bonus
    for share, bites in ((0.4, False), (1.6, True)):
        for seed in (10, 11):
            found = effect(fitted(int(share * bonus), seed, noise, tmp_path))
            assert (found.certain > 0, found.needed.times == 1) == (bites, bites)
            policy = robust_policy(fitted(int(share * robust), seed, noise, tmp_path), None, LISTS)
            assert (policy.value > 1e-4, policy.needed.times == 1) == (bites, bites)
            assert ("No gain" in repr(policy)) is not bites


def test_bonuses_of_two_answers_cancel_and_that_is_said(tmp_path):
    reward = fitted(700, 0, "estimate", tmp_path)
    pairs = effect(reward, [rows[:2] for rows in LISTS])
    assert (pairs.alike, pairs.moved) == (len(LISTS), 0)
    assert "Bonuses cancel" in str(pairs)
    longer = effect(reward)
    assert (longer.alike, longer.lists) == (0, len(LISTS))
    assert longer.moved > 0
    plain, bold = (
        sordino.pessimistic_policy(reward, temperature=0.5, scale=scale) for scale in (0.0, 1.0)
    )
    firsts = [
        [chances.argmax() for chances in policy.probabilities(None, LISTS)]
        for policy in (plain, bold)
    ]
    assert longer.moved == np.sum(np.array(firsts[0]) != firsts[1])
    assert f"{longer.moved} of 20 lists" in str(longer)
    assert f"{longer.needed.answers:,}" in str(longer)
    assert json.loads(json.dumps(longer.to_dict()))["needed"] == longer.needed.answers


@pytest.mark.parametrize("covariance", [None, 4.0 * np.eye(3)])
def test_a_set_grows_as_the_set_of_as_many_more_answers(covariance):
    """Exactly where all differences are equally long."""
    rows = np.random.default_rng(3).normal(size=(60, 3)) * [3.0, 1.0, 0.3]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    solution = SimpleNamespace(theta=np.ones(3), gradient_norm=0.0)
    terms = {"ball": 2.0, "ridge": 5.0, "candidates": 1, "covariance": covariance}
    one, seven = (
        confidence_ellipsoid(np.tile(rows, (times, 1)), solution, flip_probability=0.2, **terms)
        for times in (1, 7)
    )
    grown = one.grown(7.0)
    np.testing.assert_allclose(grown.metric, seven.metric, rtol=1e-9)
    for confidence in (0.5, 0.95):
        assert grown.radius(confidence) == pytest.approx(seven.radius(confidence), rel=1e-9)
    assert one.grown(1.0).radius(0.9) == pytest.approx(one.radius(0.9), rel=1e-12)


def test_the_usual_error_is_about_what_fits_are_off_by(tmp_path):
    """Within a factor of two, the mean over 6 fits; the square of the radius is far above."""
    for noise in ("labels", "estimate"):
        sets = [fitted(2_000, seed, noise, tmp_path).ellipsoid for seed in range(6)]
        usual = np.mean([known.usual_error for known in sets])
        assert usual / 2 < np.mean([known.distance(THETA) ** 2 for known in sets]) < 2 * usual
        assert min(known.radius(0.95) ** 2 for known in sets) > 3 * usual


def test_a_plan_says_how_many_answers_it_takes(tmp_path):
    reward = fitted(700, 0, "estimate", tmp_path)
    moves = np.full((2, 3, 2), 0.5)
    table = np.random.default_rng(1).uniform(-0.5, 0.5, size=(2, 3, 4))
    found = plan(reward, moves, horizon=3, features=table, initial=0)
    assert found.value <= 1e-4
    assert found.needed.answers > 700
    assert f"{found.needed.answers:,}" in repr(found)
    assert found.to_dict()["answers_needed"] == found.needed.answers
    certain = plan(reward, moves, horizon=3, features=table, initial=0, radius_scale=0.05)
    assert (certain.needed.times, certain.warning) == (1.0, "")


def test_noise_alone_needs_nobody_knows_how_many(tmp_path):
    known = fitted(700, 0, "labels", tmp_path).ellipsoid
    short = known.center * math.sqrt(0.9 * known.usual_error) / known.distance(np.zeros(4))
    needed = AnswersNeeded.of(
        replace(known, center=short), short, confidence=0.95, scale=1.0, now=None
    )
    assert (needed.times, needed.answers) == (math.inf, None)
    assert "mostly noise" in str(needed)
