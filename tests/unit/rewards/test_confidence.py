"""Confidence sets: of pairs, and of rankings by enumeration."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.special import expit

import sordino
from sordino.rewards.confidence import (
    ConfidenceEllipsoid,
    _choice_spread,
    _quadratic_tail,
    confidence_ellipsoid,
    flattest_curvature,
    ranking_covariance,
)
from sordino.rewards.pair_losses import DebiasedLogistic, debias, debiased_covariance
from sordino.rewards.ranking_losses import FirstChoice, PairwiseComposite, pair_weight
from sordino.rewards.solver import minimize_ridge

FLIP, BALL, RIDGE = 0.2, 3.0, 2.0


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(300, 4)) * np.array([1.0, 2.0, 0.5, 0.1])


def ellipsoid_of(rows, candidates=1):
    answers = np.random.default_rng(1).integers(0, 2, 300)
    loss = DebiasedLogistic(rows, debias(answers, FLIP))
    solution = minimize_ridge(loss, ridge=RIDGE, ball=BALL, atol=1e-6)
    return confidence_ellipsoid(
        rows, solution, flip_probability=FLIP, ball=BALL, ridge=RIDGE, candidates=candidates
    )


def test_the_radius_by_hand(rows):
    """Claim: PPKL, Theorem 4.2 (linear class)"""
    found = ellipsoid_of(rows)
    weights = [expit(z) * expit(-z) for z in BALL * np.linalg.norm(rows, axis=1)]
    metric = sum(w * np.outer(x, x) for w, x in zip(weights, rows, strict=True)) + RIDGE * np.eye(4)
    np.testing.assert_allclose(found.metric, metric, rtol=1e-12)
    values, vectors = np.linalg.eigh(metric)
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    spread = root @ rows.T @ rows @ root
    t = math.log(1 / 0.05)
    tail = (
        np.trace(spread)
        + 2 * math.sqrt(np.trace(spread @ spread) * t)
        + 2 * np.linalg.norm(spread, 2) * t
    )
    kappa = 1 - 2 * FLIP
    bias = RIDGE * BALL / math.sqrt(values[0])
    assert found.radius(0.95) == pytest.approx(math.sqrt(tail) / (2 * kappa) + bias, rel=1e-6)
    assert found.radius(0.95) >= math.sqrt(tail) / (2 * kappa) + bias  # inexactness adds
    assert _quadratic_tail(2.0, 3.0, 1.0, 0.5) == 2 + 2 * math.sqrt(1.5) + 1


def test_more_confidence_and_more_candidates_widen_it(rows):
    one, six = ellipsoid_of(rows), ellipsoid_of(rows, candidates=6)
    assert one.radius(0.5) < one.radius(0.95) < one.radius(0.999)
    # six ridges at 95% are one at 1 − .05/6
    assert six.radius(0.95) == pytest.approx(one.radius(1 - 0.05 / 6), rel=1e-12)


def test_widths_dense_and_sparse(rows):
    found = ellipsoid_of(rows)
    inverse = np.linalg.inv(found.metric)
    by_hand = np.sqrt(np.einsum("ij,jk,ik->i", rows, inverse, rows))
    np.testing.assert_allclose(found.widths(rows), by_hand, rtol=1e-9)
    np.testing.assert_allclose(found.widths(csr_array(rows)), by_hand, rtol=1e-9)
    with pytest.raises(sordino.DataError, match="4"):
        found.widths(rows[:, :2])


def test_what_lies_inside(rows):
    found = ellipsoid_of(rows)
    direction = np.array([1.0, 0.0, 0.0, 0.0])
    reach = found.radius(0.95) / math.sqrt(found.metric[0, 0])
    assert found.contains(found.center + 0.999 * reach * direction, 0.95)
    assert not found.contains(found.center + 1.001 * reach * direction, 0.95)


def test_it_is_the_same_after_a_file(rows):
    found = ellipsoid_of(rows)
    again = ConfidenceEllipsoid.from_dict(json.loads(json.dumps(found.to_dict())))
    np.testing.assert_array_equal(again.metric, found.metric)
    np.testing.assert_array_equal(again.center, found.center)
    assert again.radius(0.9) == found.radius(0.9)
    assert repr(again) == repr(found)
    assert "0." in repr(found)


@pytest.mark.parametrize(
    "change",
    [
        {"metric": "AAAA"}, {"metric": None}, {"center": [0.0]}, {"center": ["x"] * 4},
        {"ball": -1.0}, {"ridge": None}, {"candidates": 0}, {"noise": [{"trace": -1.0}]},
    ],
)  # fmt: skip
def test_a_malformed_set_is_refused(rows, change):
    with pytest.raises(sordino.SordinoError):
        ConfidenceEllipsoid.from_dict(ellipsoid_of(rows).to_dict() | change)


def test_a_metric_that_is_not_positive_definite_is_refused(rows):
    values = ellipsoid_of(rows)
    negative = ConfidenceEllipsoid(
        **{name: getattr(values, name) for name in values.__dataclass_fields__}
        | {"metric": -values.metric}
    ).to_dict()
    with pytest.raises(sordino.DataError, match="malformed"):
        ConfidenceEllipsoid.from_dict(negative)


KINDS = (PairwiseComposite, FirstChoice)


def objective(kind, features, starts, **known):
    return kind(features, starts=starts, statistic=np.zeros(features.shape[1]), **known)


def set_of(loss, ball=2.0, ridge=0.5, covariance=None):
    d = loss.features.shape[1]
    solution = minimize_ridge(loss, ridge=ridge, ball=ball, atol=1e-9)
    noise = np.eye(d) if covariance is None else covariance
    return confidence_ellipsoid(
        loss, solution, ball=ball, ridge=ridge, covariance=noise, rounding=1e-3, candidates=1,
    )  # fmt: skip


@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(1, 3), st.sampled_from(KINDS))
def test_no_ballot_spreads_farther_than_the_bound(seed, k, d, kind):
    """Half the range of the sum over all orders is at most half √(uᵀGu), along any u."""
    rng = np.random.default_rng(seed)
    features, along = rng.normal(size=(k, d)), rng.normal(size=d)
    spread = _choice_spread(objective(kind, features, np.array([0, k])))
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
    np.testing.assert_allclose(_choice_spread(loss), gram, rtol=1e-9, atol=1e-9)
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
        debiased_covariance(rows, theta, 0.0, noise=noise, ridge=0.5),
        rtol=1e-9,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_slate_with_a_count_is_that_many_ballots(kind):
    features = np.random.default_rng(1).normal(size=(4, 2))
    counted = objective(kind, features, np.array([0, 4]), counts=np.array([7.0]))
    single = objective(kind, np.tile(features, (7, 1)), np.arange(0, 29, 4))
    np.testing.assert_allclose(set_of(counted).metric, set_of(single).metric, rtol=1e-9)
    np.testing.assert_allclose(_choice_spread(counted), _choice_spread(single), rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_far_candidates_leave_no_curvature_and_no_overflow(kind):
    loss = objective(kind, 1e4 * np.eye(3), np.array([0, 3]))
    assert np.isfinite(set_of(loss, ball=10.0).metric).all()
