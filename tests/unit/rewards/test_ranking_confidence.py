"""The pieces of a confidence set for rankings, each against what it must bound."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.rewards.confidence import (
    choice_spread,
    confidence_ellipsoid,
    flattest_curvature,
    ranking_covariance,
    ranking_ellipsoid,
)
from sordino.rewards.covariance import answer_sum_covariance
from sordino.rewards.pair_losses import DebiasedLogistic
from sordino.rewards.ranking_losses import FirstChoice, PairwiseComposite, pair_weight
from sordino.rewards.solver import minimize_ridge

KINDS = (PairwiseComposite, FirstChoice)


def objective(kind, features, starts, **known):
    return kind(features, starts=starts, statistic=np.zeros(features.shape[1]), **known)


def set_of(loss, ball=2.0, ridge=0.5, covariance=None):
    d = loss.features.shape[1]
    solution = minimize_ridge(loss, ridge=ridge, ball=ball, atol=1e-9)
    noise = np.eye(d) if covariance is None else covariance
    return ranking_ellipsoid(
        loss, solution, ball=ball, ridge=ridge, covariance=noise, rounding=1e-3, candidates=1,
    )  # fmt: skip


@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(1, 3), st.sampled_from(KINDS))
def test_no_ballot_spreads_farther_than_the_bound(seed, k, d, kind):
    """Half the range of the sum over all orders is at most half √(uᵀGu), along any u."""
    rng = np.random.default_rng(seed)
    features, along = rng.normal(size=(k, d)), rng.normal(size=d)
    spread = choice_spread(objective(kind, features, np.array([0, k])))
    reach = features @ along
    if kind is FirstChoice:
        sums = reach
    else:
        orders = np.array(list(itertools.permutations(range(k))))
        sums = pair_weight(k) * (orders @ reach)
    assert np.ptp(sums) ** 2 <= (along @ spread @ along) * (1 + 1e-9)


@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(1, 3), st.sampled_from(KINDS))
def test_the_metric_is_below_the_curvature_everywhere_in_the_ball(seed, k, d, kind):
    rng = np.random.default_rng(seed)
    n = 4
    features = rng.normal(size=(n * k, d))
    loss = objective(kind, features, np.arange(0, n * k + 1, k))
    metric = set_of(loss, ball=1.5, ridge=0.3).metric
    for _ in range(5):
        theta = rng.normal(size=d)
        theta *= 1.5 * rng.random() ** (1 / d) / np.linalg.norm(theta)
        above = loss.hessian(theta) + 0.3 * np.eye(d) - metric
        assert np.linalg.eigvalsh(above)[0] >= -1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_two_candidates_are_a_pair(kind):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(80, 3))
    rows, noise = features[::2] - features[1::2], np.diag([1.0, 2.0, 3.0])
    loss = objective(kind, features, np.arange(0, 81, 2))
    gram, bent = flattest_curvature(rows, ball=2.0, ridge=0.5)
    np.testing.assert_allclose(choice_spread(loss), gram, rtol=1e-9, atol=1e-9)
    ours = set_of(loss, covariance=noise)
    np.testing.assert_allclose(ours.metric, bent, rtol=1e-9, atol=1e-9)
    pairs = DebiasedLogistic(rows, np.full(40, 0.5))
    theirs = confidence_ellipsoid(
        rows, minimize_ridge(pairs, ridge=0.5, ball=2.0, atol=1e-9), flip_probability=0.0,
        ball=2.0, ridge=0.5, candidates=1, covariance=noise, rounding=1e-3,
    )  # fmt: skip
    assert ours.radius(0.95) == pytest.approx(theirs.radius(0.95), rel=1e-6)
    theta = np.array([0.3, -1.0, 0.5])
    np.testing.assert_allclose(
        ranking_covariance(loss, theta, noise, ridge=0.5),
        answer_sum_covariance(rows, theta, noise, ridge=0.5),
        rtol=1e-9,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_slate_with_a_count_is_that_many_ballots(kind):
    features = np.random.default_rng(1).normal(size=(4, 2))
    counted = objective(kind, features, np.array([0, 4]), counts=np.array([7.0]))
    single = objective(kind, np.tile(features, (7, 1)), np.arange(0, 29, 4))
    np.testing.assert_allclose(set_of(counted).metric, set_of(single).metric, rtol=1e-9)
    np.testing.assert_allclose(choice_spread(counted), choice_spread(single), rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_far_candidates_leave_no_curvature_and_no_overflow(kind):
    loss = objective(kind, 1e4 * np.eye(3), np.array([0, 3]))
    assert np.isfinite(set_of(loss, ball=10.0).metric).all()
