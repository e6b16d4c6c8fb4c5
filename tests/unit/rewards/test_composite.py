"""Objectives of one released sum: their definition, finite differences, and pairs."""

import itertools

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import logsumexp

from sordino.errors import DataError
from sordino.rewards.pair_losses import DebiasedLogistic
from sordino.rewards.ranking_losses import FirstChoice, PairwiseComposite, pair_weight
from sordino.rewards.solver import minimize_ridge, ridge_path

TEN_SCALES = 10.0 ** np.arange(-6, 4)
KINDS = (PairwiseComposite, FirstChoice)


def world(seed=0, sizes=(3, 2, 5, 3), d=3):
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return rng.standard_normal((starts[-1], d)), starts, rng.standard_normal(d)


def by_definition(kind, features, starts, statistic, theta, counts=None):
    total = -float(statistic @ theta)
    for i, (a, b) in enumerate(itertools.pairwise(starts)):
        scores, times = features[a:b] @ theta, 1 if counts is None else counts[i]
        if kind is FirstChoice:
            total += times * logsumexp(scores)
        else:
            pairs = itertools.combinations(scores, 2)
            total += times * pair_weight(b - a) * sum(np.logaddexp(*pair) for pair in pairs)
    return total


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", TEN_SCALES)
def test_value_gradient_and_hessian(kind, scale):
    features, starts, statistic = world()
    counts = np.array([1.0, 4.0, 0.0, 2.0])
    loss = kind(features, starts=starts, statistic=statistic, counts=counts)
    theta = scale * np.array([1.0, -0.7, 0.4])
    expected = by_definition(kind, features, starts, statistic, theta, counts)
    assert loss.value(theta) == pytest.approx(expected, rel=1e-12)
    # Where scores differ by hundreds nothing bends, and a wide step shows it as well.
    step = 1e-5 * max(1.0, scale)
    slope = [(loss.value(theta + step * e) - loss.value(theta - step * e)) / 2 / step
             for e in np.eye(3)]  # fmt: skip
    np.testing.assert_allclose(loss.gradient(theta), slope, rtol=1e-5, atol=1e-5)
    bend = [(loss.gradient(theta + step * e) - loss.gradient(theta - step * e)) / 2 / step
            for e in np.eye(3)]  # fmt: skip
    np.testing.assert_allclose(loss.hessian(theta), bend, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_two_candidates_are_a_pair_exactly(kind):
    rng = np.random.default_rng(1)
    features, answers = rng.standard_normal((60, 4)), rng.choice([0.0, 0.5, 1.0], 30)
    first, second = features[::2], features[1::2]
    chosen = second.sum(axis=0) + (first - second).T @ answers
    loss = kind(features, starts=np.arange(0, 61, 2), statistic=chosen)
    pairs = DebiasedLogistic(first - second, answers)
    for theta in (np.zeros(4), rng.standard_normal(4), 50 * rng.standard_normal(4)):
        assert loss.value(theta) == pytest.approx(pairs.value(theta), rel=1e-12, abs=1e-10)
        np.testing.assert_allclose(loss.gradient(theta), pairs.gradient(theta), atol=1e-11)
        np.testing.assert_allclose(loss.hessian(theta), pairs.hessian(theta), atol=1e-12)
    known = {"ridge": 0.1, "ball": 1.0, "atol": 1e-9}
    ours, theirs = minimize_ridge(loss, **known), minimize_ridge(pairs, **known)
    np.testing.assert_allclose(ours.theta, theirs.theta, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_a_slate_with_a_count_is_that_many_ballots(kind):
    features, starts, statistic = world(2)
    one = kind(features, starts=starts, statistic=statistic, counts=np.array([3, 1, 1, 1]))
    more = np.vstack([features[:3], features[:3], features])
    cuts = np.concatenate([[0, 3], starts + 6])
    other = kind(more, starts=cuts, statistic=statistic)
    theta = np.array([0.4, -1.0, 2.0])
    assert one.value(theta) == pytest.approx(other.value(theta), rel=1e-12)
    np.testing.assert_allclose(one.hessian(theta), other.hessian(theta), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_items_as_sparse_rows(kind):
    statistic = np.array([5.0, 3.0, 2.0, 0.5])
    known = {"starts": np.array([0, 4]), "statistic": statistic, "counts": np.array([10.5])}
    dense, sparse = kind(np.eye(4), **known), kind(csr_array(np.eye(4)), **known)
    theta = np.array([1.0, 0.2, -0.3, 0.0])
    np.testing.assert_allclose(dense.hessian(theta), sparse.hessian(theta), atol=1e-13)
    ours = [minimize_ridge(x, ridge=0.1, atol=1e-10).theta for x in (dense, sparse)]
    np.testing.assert_allclose(*ours, atol=1e-9)
    left = dense.gradient(ours[0]) + 0.1 * ours[0]
    assert np.linalg.norm(left) < 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_a_path_of_ridges_starts_on_a_sample_and_is_certified(kind):
    rng = np.random.default_rng(3)
    features, n, k = rng.standard_normal((12_000, 3)), 3000, 4
    theta = np.array([1.0, -1.0, 0.5])
    scores = (features @ theta).reshape(n, k) + rng.gumbel(size=(n, k))
    ranks = np.argsort(np.argsort(-scores, axis=1), axis=1)
    weights = (ranks == 0) if kind is FirstChoice else (k - 1 - ranks) * pair_weight(k)
    loss = kind(features, starts=np.arange(0, 12_001, 4), statistic=features.T @ weights.ravel())
    for ridge, found in zip((0.1, 10.0), ridge_path(loss, (0.1, 10.0), atol=1e-5), strict=True):
        left = loss.gradient(found.theta) + ridge * found.theta
        assert np.linalg.norm(left) <= 1.01e-5
        alone = minimize_ridge(loss, ridge=ridge, atol=1e-5)
        np.testing.assert_allclose(alone.theta, found.theta, atol=1e-6)
        if ridge < 1:  # Plackett–Luce's pairs and first choices have these weights: 4 errors
            np.testing.assert_allclose(found.theta, theta, atol=0.13)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"statistic": np.ones(3)}, "statistic must have shape"),
        ({"statistic": np.array([np.inf, 0.0])}, "finite"),
        ({"counts": np.array([1.0, 2.0])}, "one number"),
        ({"counts": np.array([-1.0])}, "at least 0"),
        ({"starts": np.array([0, 2])}, "end with 3"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_bad_input_is_refused(kind, change, match):
    known = {"starts": np.array([0, 3]), "statistic": np.zeros(2)} | change
    with pytest.raises(DataError, match=match):
        kind(np.ones((3, 2)), **known)
