"""Losses of rankings against enumeration and 50 digits, and their certified fits."""

import itertools
import json
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.special import logsumexp

from sordino.errors import DataError
from sordino.rewards.pair_losses import DebiasedLogistic
from sordino.rewards.ranking_losses import FirstChoice, PairwiseComposite, PlackettLuce, pair_weight
from sordino.rewards.solver import minimize_ridge, ridge_path

VECTORS = json.loads((Path(__file__).parents[2] / "data" / "core.json").read_text("utf-8"))
TEN_SCALES = 10.0 ** np.arange(-6, 4)


def drawn(seed=0, sizes=(3, 2, 5, 3, 4), d=3, ties=False):
    """Features, starts and ranks: complete orders, short ones and (asked for) ties."""
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    features = rng.standard_normal((starts[-1], d))
    ranks = []
    for k in sizes:
        order = rng.permutation(k) + 1
        if ties:
            order = np.minimum(order, rng.integers(1, k + 1))
        listed = int(rng.integers(0, k + 1))
        ranks.append(np.where(order > listed, 0, order) if listed else order)
    return features, starts, np.concatenate(ranks).astype(int)


def by_definition(features, starts, ranks, theta):
    """The sum over stages, one by one."""
    total = 0.0
    for i in range(len(starts) - 1):
        rows = np.arange(starts[i], starts[i + 1])
        scores = features[rows] @ theta
        key = [r if r > 0 else 10**9 for r in ranks[rows]]
        for a, rank in enumerate(key):
            left = [b for b, other in enumerate(key) if other >= rank]
            if rank < max(key):
                total += logsumexp(scores[left]) - scores[a]
    return total


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_value_against_the_definition(seed, ties):
    features, starts, ranks = drawn(seed, ties=ties)
    theta = np.array([1.0, -0.7, 0.4])
    loss = PlackettLuce(features, starts=starts, ranks=ranks)
    expected = by_definition(features, starts, ranks, theta)
    assert loss.value(theta) == pytest.approx(expected, rel=1e-12)


def test_probabilities_of_all_orders_sum_to_1():
    features, starts = np.random.default_rng(1).standard_normal((4, 2)), np.array([0, 4])
    theta = np.array([2.0, -1.0])
    losses = [
        PlackettLuce(features, starts=starts, ranks=np.array(order)).value(theta)
        for order in itertools.permutations([1, 2, 3, 4])
    ]
    assert np.exp(-np.array(losses)).sum() == pytest.approx(1, rel=1e-12)
    firsts = [
        PlackettLuce(features, starts=starts, ranks=np.eye(4, dtype=int)[i]).value(theta)
        for i in range(4)
    ]
    assert np.exp(-np.array(firsts)).sum() == pytest.approx(1, rel=1e-12)
    all_tied = PlackettLuce(features, starts=starts, ranks=np.ones(4, dtype=int))
    empty = PlackettLuce(features, starts=starts, ranks=np.zeros(4, dtype=int))
    assert all_tied.value(theta) == empty.value(theta) == 0


@pytest.mark.parametrize("scale", TEN_SCALES)
@pytest.mark.parametrize("ties", [False, True])
def test_gradient_and_hessian_against_finite_differences(scale, ties):
    """In 60 digits, so that the differences are exact and far tails show."""
    features, starts, ranks = drawn(3, ties=ties)
    theta = scale * np.array([1.0, -0.7, 0.4])
    loss = PlackettLuce(features, starts=starts, ranks=ranks)

    def exact(point):
        total = mpmath.mpf(0)
        for i in range(len(starts) - 1):
            rows = range(starts[i], starts[i + 1])
            scores = [mpmath.fdot(map(mpmath.mpf, features[r].tolist()), point) for r in rows]
            key = [int(ranks[r]) or 10**9 for r in rows]
            for a, rank in enumerate(key):
                if rank < max(key):
                    left = [mpmath.exp(s) for s, k in zip(scores, key, strict=True) if k >= rank]
                    total += mpmath.log(sum(left)) - scores[a]
        return total

    with mpmath.workdps(60):
        step, axes = mpmath.mpf(10) ** -18, range(3)
        start = [mpmath.mpf(float(t)) for t in theta]

        def moved(*moves):
            point = list(start)
            for axis, sign in moves:
                point[axis] += sign * step
            return exact(point)

        gradient = [float((moved((i, 1)) - moved((i, -1))) / (2 * step)) for i in axes]
        hessian = [
            [
                float(
                    sum(a * b * moved((i, a), (j, b)) for a in (1, -1) for b in (1, -1))
                    / (4 * step**2)
                )
                for j in axes
            ]
            for i in axes
        ]
        value = float(exact(start))
    assert loss.value(theta) == pytest.approx(value, rel=1e-11)
    np.testing.assert_allclose(loss.gradient(theta), gradient, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(loss.hessian(theta), hessian, rtol=1e-7, atol=1e-13)


def test_sparse_features_and_items_equal_dense_ones():
    features, starts, ranks = drawn(2, d=6)
    features = features * (np.abs(features) > 0.7)
    theta = np.arange(6) - 2.5
    dense = PlackettLuce(features, starts=starts, ranks=ranks)
    sparse = PlackettLuce(csr_array(features), starts=starts, ranks=ranks)
    items = np.concatenate([np.random.default_rng(i).permutation(6)[:k]
                            for i, k in enumerate(np.diff(starts))])  # fmt: skip
    one_hot = PlackettLuce(np.eye(6)[items], starts=starts, ranks=ranks)
    listed = PlackettLuce(csr_array(np.eye(6)[items]), starts=starts, ranks=ranks)
    for one, other in ((dense, sparse), (one_hot, listed)):
        assert one.value(theta) == pytest.approx(other.value(theta), rel=1e-12)
        np.testing.assert_allclose(one.gradient(theta), other.gradient(theta), atol=1e-12)
        np.testing.assert_allclose(one.hessian(theta), other.hessian(theta), atol=1e-12)


def test_two_candidates_are_a_pair():
    rng = np.random.default_rng(4)
    features = rng.standard_normal((40, 3))
    labels = rng.integers(0, 2, 20)
    ranks = np.stack([2 - labels, 1 + labels], axis=1).ravel()
    loss = PlackettLuce(features, starts=np.arange(0, 41, 2), ranks=ranks)
    pairs = DebiasedLogistic(features[::2] - features[1::2], labels.astype(float))
    theta = np.array([0.4, 2.0, -1.0])
    assert loss.value(theta) == pytest.approx(pairs.value(theta), rel=1e-13)
    np.testing.assert_allclose(loss.gradient(theta), pairs.gradient(theta), atol=1e-13)
    np.testing.assert_allclose(loss.hessian(theta), pairs.hessian(theta), atol=1e-13)
    known = {"ridge": 0.3, "ball": 0.5, "atol": 1e-9}
    ours, theirs = minimize_ridge(loss, **known), minimize_ridge(pairs, **known)
    np.testing.assert_allclose(ours.theta, theirs.theta, atol=1e-8)
    assert ours.multiplier == pytest.approx(theirs.multiplier, rel=1e-6)


@pytest.mark.parametrize("row", VECTORS["plackett_luce_gradient_sup_over_L"])
def test_the_largest_gradient_of_a_record(row):
    """2(K − 1), reached as the last candidate becomes the best by far; never passed."""
    k = row["K"]
    features = -np.ones((k, 1))
    features[-1] = 1.0
    loss = PlackettLuce(features, starts=np.array([0, k]), ranks=np.arange(1, k + 1))
    assert loss.gradient(np.array([40.0]))[0] == pytest.approx(row["value"], rel=1e-9)
    assert loss.gradient(np.array([3.0]))[0] < row["value"]


@given(st.integers(0, 10**6), st.integers(2, 7), st.integers(1, 4), st.floats(0.01, 30))
def test_no_record_passes_the_bounds_on_gradient_and_curvature(seed, k, d, size):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((k, d))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    ranks = rng.integers(0, k + 1, k)  # ties and candidates that are not listed
    loss = PlackettLuce(features, starts=np.array([0, k]), ranks=ranks)
    theta = size * rng.standard_normal(d)
    assert np.linalg.norm(loss.gradient(theta)) <= 2 * (k - 1) * (1 + 1e-12)
    bend = loss.hessian(theta)
    assert np.trace(bend) <= (k - 1) * (1 + 1e-12)
    values = np.linalg.eigvalsh(bend)
    assert values[0] >= -1e-12 * (1 + values[-1])
    assert (values > 1e-9).sum() <= min(d, k - 1)


# The fit.


def simulated(n=400, k=4, d=5, seed=0, size=1.5):
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal(d)
    theta *= size / np.linalg.norm(theta)
    features = rng.standard_normal((n * k, d))
    scores = (features @ theta).reshape(n, k) + rng.gumbel(size=(n, k))
    ranks = (np.argsort(np.argsort(-scores, axis=1), axis=1) + 1).ravel()
    return PlackettLuce(features, starts=np.arange(0, n * k + 1, k), ranks=ranks), theta


@pytest.mark.parametrize("ball", [None, 0.5, 100.0])
def test_the_certificate_is_true(ball):
    loss, _ = simulated()
    found = minimize_ridge(loss, ridge=0.2, ball=ball, atol=1e-7)
    left = loss.gradient(found.theta) + (0.2 + found.multiplier) * found.theta
    assert np.linalg.norm(left) <= 1.001e-7
    assert (found.multiplier > 0) == (ball == 0.5)
    if ball is not None:
        assert np.linalg.norm(found.theta) <= ball


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"starts": np.array([0, 3])}, "end with 5"),
        ({"starts": np.array([1, 5])}, "begin with 0"),
        ({"starts": np.array([0, 1, 5])}, "slate 0"),
        ({"starts": np.array([0.0, 5.0])}, "whole numbers"),
        ({"ranks": np.array([1, 2, 3])}, "ranks must be 5"),
        ({"ranks": np.array([1, 2, 3, -4, 5])}, "candidate 3"),
        ({"ranks": np.ones(5)}, "whole numbers"),
        ({"features": np.full((5, 2), np.nan)}, "finite"),
    ],
)
def test_bad_input_is_refused(change, match):
    good = {
        "features": np.ones((5, 2)),
        "starts": np.array([0, 5]),
        "ranks": np.arange(1, 6),
    }
    given_ = good | change
    with pytest.raises(DataError, match=match):
        PlackettLuce(given_.pop("features"), **given_)


KINDS = (PairwiseComposite, FirstChoice)


def world(seed=0, sizes=(3, 2, 5, 3), d=3):
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return rng.standard_normal((starts[-1], d)), starts, rng.standard_normal(d)


def sum_by_definition(kind, features, starts, statistic, theta, counts=None):
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
    expected = sum_by_definition(kind, features, starts, statistic, theta, counts)
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
def test_bad_sums_are_refused(kind, change, match):
    known = {"starts": np.array([0, 3]), "statistic": np.zeros(2)} | change
    with pytest.raises(DataError, match=match):
        kind(np.ones((3, 2)), **known)
