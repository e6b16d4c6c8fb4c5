from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import sordino
from sordino.rewards import reward_fit
from sordino.rewards.estimation import fit_reward
from sordino.rewards.evidence import Design, refuse_too_few
from sordino.rewards.metrics import cross_fit
from sordino.rewards.reward_fit import choose_ridge


def private(ledger, pairs, epsilon: float, seed: int = 1) -> sordino.PrivatePairs:
    coin = sordino.RandomizedResponse(epsilon)
    return sordino.privatize(pairs, coin, ledger=ledger(epsilon), simulate_seed=seed)


def test_raw_judgments_are_refused_and_the_ways_out_are_named(linear_world):
    pairs, _ = linear_world(50, 3)
    with pytest.raises(sordino.PrivacyError, match=r"privatize.*NonPrivate"):
        fit_reward(pairs)


def test_no_privacy_needs_a_ledger_with_an_infinite_budget(linear_world, ledger):
    pairs, _ = linear_world(400, 3)
    with pytest.raises(sordino.BudgetExceeded):
        fit_reward(pairs, mechanism=sordino.NonPrivate(), ledger=ledger(5.0), ridge=1.0)
    account = ledger(float("inf"))
    reward = fit_reward(pairs, mechanism=sordino.NonPrivate(), ledger=account, ridge=1.0)
    assert reward.guarantee.epsilon == float("inf")
    assert account.total().epsilon == float("inf")
    peer = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10, max_iter=1000)
    np.testing.assert_allclose(
        reward.weights, peer.fit(pairs.given, pairs.labels).coef_[0], atol=1e-5
    )


def test_private_answers_cost_nothing_more(linear_world, ledger):
    pairs, _ = linear_world(200, 3)
    answers = private(ledger, pairs, 1.0)
    with pytest.raises(sordino.UsageError, match="private already"):
        fit_reward(answers, ledger=ledger(1.0))
    assert fit_reward(answers, ridge=1.0).guarantee == answers.guarantee


def test_the_fit_is_certified_and_recovers_the_scale(linear_world, ledger):
    pairs, theta = linear_world(60_000, 4)
    reward = fit_reward(private(ledger, pairs, 2.0), ridge=1.0)
    assert reward.gradient_norm <= reward.atol
    # standard error about .06 a coordinate; plain logistic on the answers shrinks by .76
    assert np.linalg.norm(reward.weights - theta) < 0.35
    assert np.linalg.norm(reward.weights) > 0.85 * np.linalg.norm(theta)


def test_the_ball_bounds_the_weights(linear_world, ledger):
    pairs, _ = linear_world(2000, 4)
    reward = fit_reward(private(ledger, pairs, 2.0), ridge=0.01, ball=0.5)
    assert np.linalg.norm(reward.weights) <= 0.5


def test_a_ridge_is_chosen_near_the_public_default_unless_the_answers_object(linear_world, ledger):
    pairs, _ = linear_world(400, 3)
    noisy = private(ledger, pairs, 0.3)
    design = Design.of(noisy, None)
    kappa = 1 - 2 * noisy.flip_probability
    default = (design.feature_bound / kappa) ** 2
    assert choose_ridge(design, ball=100.0) in [default * 4.0**k for k in range(-3, 3)]
    pairs, _ = linear_world(2000, 40, size=80.0)
    strong = Design.of(private(ledger, pairs, 8.0), None)
    assert choose_ridge(strong, ball=1000.0) < strong.feature_bound**2


def test_held_out_predictions_come_from_fits_that_did_not_see_the_question(linear_world, ledger):
    pairs, _ = linear_world(60, 3)
    answers = private(ledger, pairs, 1.0)
    design = Design.of(answers, None)
    whole = cross_fit(design, ridge=1.0)
    folds = design.folds(1)
    fold = folds[0]
    turned = design.answers.copy()
    turned[folds == fold] ^= 1
    again = cross_fit(
        Design(
            differences=design.differences,
            answers=turned,
            flip_probability=design.flip_probability,
            feature_bound=design.feature_bound,
            questions=design.questions,
            clusters=None,
        ),
        ridge=1.0,
    )
    same = folds == fold
    np.testing.assert_array_equal(whole.differences[same], again.differences[same])
    assert not np.array_equal(whole.differences[~same], again.differences[~same])


def test_repeats_of_a_question_share_a_fold(linear_world, ledger):
    pairs, _ = linear_world(50, 3)
    rows = np.repeat(pairs.given, 2, axis=0)
    doubled = sordino.Pairs.from_features(rows, np.repeat(pairs.labels, 2))
    design = Design.of(private(ledger, doubled, 1.0), None)
    for level in range(3):
        folds = design.folds(level)
        assert (folds[::2] == folds[1::2]).all()
        assert len(set(folds)) == 5


def test_a_repeat_of_one_person_counts_once(linear_world, ledger):
    pairs, _ = linear_world(30, 3)
    rows = np.concatenate([pairs.given, pairs.given])
    labels = np.concatenate([pairs.labels, 1 - pairs.labels])
    people = [f"p{i}" for i in range(30)] * 2
    linked = sordino.Pairs.from_features(rows, labels, persons=people)
    design = Design.of(private(ledger, linked, 1.0), None)
    assert len(design) == 30
    assert len(set(design.clusters)) == 30


def test_predictions_are_bradley_terry(budget):
    """Claim: KLDP, Section 3: σ(z) = 1/(1 + e^z) and Bradley–Terry σ(e^r1 − e^r2)"""
    features = sordino.HashedText(dimension=32)
    reward = sordino.RewardModel(
        weights=np.arange(32.0) / 10,
        features=features,
        guarantee=budget(1.0),
        ridge=1.0,
        ball=20.0,
        gradient_norm=0.0,
        atol=1e-9,
        pairs=3,
    )
    gap = reward.score(["p"], ["yes it is"]) - reward.score(["p"], ["no"])
    np.testing.assert_allclose(reward.predict_proba(["p"], ["yes it is"], ["no"]), expit(gap))
    with pytest.raises(sordino.DataError, match=r"\(n, 32\)"):
        reward.score_features(np.zeros((2, 3)))


def test_too_few_questions_cannot_be_measured(linear_world, ledger):
    pairs = sordino.Pairs.from_features([[1.0, 2.0]], [1])
    with pytest.raises(sordino.DataError, match=r"too few.*Nothing was spent"):
        refuse_too_few(pairs)
    design = Design.of(private(ledger, pairs, 1.0), None)
    with pytest.raises(sordino.DataError, match="too few"):
        cross_fit(design, ridge=1.0)


def test_many_pairs_are_chosen_on_one_part(linear_world, ledger, monkeypatch):
    monkeypatch.setattr(reward_fit, "_MANY", 100)
    pairs, _ = linear_world(400, 3)
    calls = []
    original = reward_fit.ridge_path
    monkeypatch.setattr(
        reward_fit, "ridge_path", lambda *a, **k: calls.append(1) or original(*a, **k)
    )
    choose_ridge(Design.of(private(ledger, pairs, 1.0), None), ball=20.0)
    assert len(calls) == 1
