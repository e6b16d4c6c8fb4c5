"""Ridge regression with a withheld estimate: refits on neighbors never leave the stated range."""

import json
import math
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, sparse
from tests.tiers import few

from sordino.mechanisms.score_sensitivity import constrained_ridge_range, public_design_ridge_range

DATA = Path(__file__).parents[1] / "data"
VECTORS = json.loads((DATA / "intrinsic.json").read_text("utf-8"))
ROUNDING = 1 + 1e-9


def refit(rows, rewards, weights, ridge, ball=math.inf):
    """The exact minimizer; a row counts as often as its weight, any number from 0, says."""
    moment = ridge * np.eye(rows.shape[1]) + (rows.T * weights) @ rows
    target = (rows.T * weights) @ rewards
    theta = np.linalg.solve(moment, target)
    if np.linalg.norm(theta) <= ball:
        return theta, moment
    values, axes = np.linalg.eigh(moment)
    inside = axes.T @ target

    def excess(push):
        return np.linalg.norm(inside / (values + push)) - ball

    push = optimize.brentq(excess, 0, np.linalg.norm(target) / ball, xtol=1e-300, rtol=1e-15)
    return axes @ (inside / (values + push)), moment


def scores(world, queries, ridge, ball=math.inf, penalty=0.0):
    theta, moment = refit(*world, ridge, ball)
    widths = np.sqrt(np.einsum("kd,dk->k", queries, np.linalg.solve(moment, queries.T)))
    return queries @ theta - penalty * widths


def width(change):
    return float(change.max() - change.min())


def added(world, row, reward):
    rows, rewards, weights = world
    return np.vstack([rows, row]), np.append(rewards, reward), np.append(weights, 1.0)


def spread_of(queries):
    return float(np.linalg.norm(queries[:, None] - queries, axis=2).max())


def circle(radius, angle):
    return radius * np.array([math.cos(angle), math.sin(angle)])


def planar(point, *, most=1e8):
    """A world of three weighted rows, one more record and two queries, from numbers in [0, 1]."""
    turns = 2 * np.pi * point
    rows = np.array([circle(point[i] ** 4, turns[i + 3]) for i in range(3)])
    world = rows, point[6:9], most ** point[9:12] - 1
    queries = np.array([circle(point[15], turns[16]), circle(point[17], turns[18])])
    return world, (circle(point[12], turns[13]), point[14]), queries


def ratio_of(found, ridge, bound, ball=math.inf, penalty=0.0, shift=0.0):
    """How much of its bound one added record takes."""
    (rows, rewards, weights), (row, reward), queries = found
    world, one = (rows, rewards - shift, weights), (row, reward - shift)
    before = scores(world, queries, ridge, ball, penalty)
    after = scores(added(world, *one), queries, ridge, ball, penalty)
    return width(after - before) / max(bound(spread_of(queries), weights.sum()), 1e-9)


def largest_ratio(ratio, *, rounds=15, seed=0, size=19):
    result = optimize.differential_evolution(
        lambda point: -ratio(planar(point)), [(0, 1)] * size, maxiter=rounds, popsize=8, rng=seed,
        polish=False,
    )  # fmt: skip
    return -result.fun


def constrained_bound(ridge, ball, penalty=0.0, reward_bound=1.0):
    return lambda spread, n: constrained_ridge_range(
        ridge, spread=spread, ball=ball, reward_bound=reward_bound, penalty=penalty
    )


@st.composite
def worlds(draw, most=6):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    d, n = draw(st.integers(1, 3)), draw(st.integers(0, most))
    scale = draw(st.sampled_from([1.0, 0.1, 1e-3]))

    def unit(count):
        rows = rng.normal(size=(count, d))
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)

    rewards = rng.integers(0, 2, n) * 1.0 if draw(st.booleans()) else rng.random(n)
    weights = np.ceil(10.0 ** (rng.random(n) * draw(st.sampled_from([0.0, 2.0, 6.0]))))
    world = unit(n) * scale, rewards, weights
    one, other = ((unit(1)[0], float(rng.integers(0, 2))) for _ in range(2))
    return world, one, other, unit(draw(st.integers(1, 4))), rng


sizes = st.floats(-4, 4).map(lambda x: 10.0**x)


@given(worlds(), sizes, st.sampled_from([0.1, 1.0, 5.0]), st.sampled_from([0.0, 0.3, 10.0]),
       st.sampled_from([0.0, 0.5]), st.sampled_from([0.0, 0.01]))  # fmt: skip
@settings(max_examples=300)
def test_no_record_moves_the_constrained_fit_further(world, ridge, ball, penalty, shift, wrong):
    (rows, rewards, weights), one, other, queries, _ = world
    base = rows, rewards - shift, weights
    bound = constrained_ridge_range(
        ridge, spread=spread_of(queries), ball=ball, reward_bound=1 - shift, penalty=penalty,
        inexactness=wrong,
    )  # fmt: skip
    here = scores(base, queries, ridge, ball, penalty)
    first, second = (
        scores(added(base, row, reward - shift), queries, ridge, ball, penalty)
        for row, reward in (one, other)
    )
    empty = scores(added(base, 0 * one[0], 0.0), queries, ridge, ball, penalty)
    errors = wrong * np.where(first - here == (first - here).max(), 1, -1)  # the worst for this
    floor = 1e-13 * (1 + penalty)
    assert width(first - here + 2 * errors) <= bound * ROUNDING + floor
    assert width(first - empty) <= bound * ROUNDING + floor
    assert width(first - second) <= 2 * bound * ROUNDING + floor


def line(n, size, reward, last, ends=(1.0, -1.0)):
    """In one dimension: n rows of one size and reward, one more record, and actions."""
    world = np.array([[size]]), np.array([reward]), np.array([float(n)])
    return world, (np.array([last[0]]), last[1]), np.array(ends)[:, None]


@pytest.mark.parametrize(
    ("ridge", "ball", "least"),
    [(1e-3, 1.0, 0.999), (0.2, 0.5, 0.99999), (10.0, 1.0, 0.953), (1e4, 0.3, 0.9999)],
)
def test_the_constrained_range_is_nearly_attained(ridge, ball, least):
    """Very many very short rows push the weights to −B and hardly bend the objective."""
    n = 1e12
    found = line(n, -ridge * ball / n, 1.0, (1.0, 1.0))
    share = ratio_of(found, ridge, constrained_bound(ridge, ball), ball)
    assert least <= share <= ROUNDING


@pytest.mark.parametrize("ridge", [10.0, 1e4])
def test_the_penalty_adds_to_the_constrained_range(ridge):
    """One action loses penalty and gains score, another one is the origin and does neither."""
    n = 1e12
    found = line(n, -ridge / n, 1.0, (1.0, 1.0), ends=(1.0, 0.0))
    share = ratio_of(found, ridge, constrained_bound(ridge, 1.0, 2.0), 1.0, 2.0)
    assert 0.95 <= share <= ROUNDING


@pytest.mark.deep
@pytest.mark.parametrize("ridge", few([0.01, 0.5, 3.0, 100.0], 0.5))
@pytest.mark.parametrize("penalty", few([0.0, 1.0], 1.0))
def test_no_search_refutes_the_constrained_range(ridge, penalty):
    bound = constrained_bound(ridge, 1.0, penalty)
    best = largest_ratio(lambda found: ratio_of(found, ridge, bound, 1.0, penalty))
    assert 0.3 <= best <= ROUNDING


@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 5), sizes, sizes)
@settings(max_examples=100)
def test_the_range_of_private_rewards_is_exact(seed, d, n, ridge, length):
    rng = np.random.default_rng(seed)
    design, queries = rng.normal(size=(n, d)) * length, rng.normal(size=(3, d))
    rewards = rng.random(n)
    truth = 0.0
    for i in range(n):
        ends = []
        for reward in (0.0, 1.0):
            rewards[i] = reward
            ends.append(queries @ refit(design, rewards, np.ones(n), ridge)[0])
        truth = max(truth, width(ends[1] - ends[0]))
    for given_as in (design, sparse.csr_array(design)):
        stated = public_design_ridge_range(given_as, queries, ridge=ridge, reward_range=1.0)
        assert stated >= truth * (1 - 1e-9)
        assert stated <= truth * (1 + 1e-6) + 1e-6 * spread_of(queries) * min(length / ridge, 1e4)
    more = public_design_ridge_range(
        design, queries, ridge=ridge, reward_range=2.0, inexactness=0.1
    )
    assert more >= 2 * truth * (1 - 1e-9) + 0.4


def exact_widest(design, queries, ridge):
    with mpmath.workdps(60):
        rows, actions = mpmath.matrix(design.tolist()), mpmath.matrix(queries.tolist())
        moment = rows.T * rows + mpmath.mpf(ridge) * mpmath.eye(rows.cols)
        values = rows * (moment**-1) * actions.T
        each = [[values[i, a] for a in range(actions.rows)] for i in range(rows.rows)]
        return max(max(line) - min(line) for line in each)


@pytest.mark.parametrize("decades", [0, 6, 12])
@pytest.mark.parametrize("seed", range(4))
def test_a_badly_conditioned_design_is_still_bounded(seed, decades):
    """Against 60 digits, up to a condition number of 1e12."""
    rng = np.random.default_rng(seed)
    d, n = 6, 12
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    design = rng.normal(size=(n, d)) * 10.0 ** -np.linspace(0, decades / 2, d) @ turn
    queries = (turn.T if seed % 2 else rng.normal(size=(4, d)))[:4]
    ridge = 10.0**-decades
    truth = exact_widest(design, queries, ridge)
    stated = public_design_ridge_range(design, queries, ridge=ridge, reward_range=1.0)
    assert truth <= stated
    assert stated <= truth * (1 + 1e-9 * 10.0 ** (decades / 2)) * (1.0 if decades < 12 else 2.0)


def vector(name, **inputs):
    return [
        row for row in VECTORS
        if row["name"] == name and all(row["inputs"][k] == v for k, v in inputs.items())
    ]  # fmt: skip


def test_the_vectors_of_ridge_regression():
    for row in vector("linear ridge worst case"):
        given_, ball = row["inputs"], 1.0
        terms = {"spread": given_["Dphi"], "reward_bound": given_["R"], "penalty": given_["beta0"]}
        stated = constrained_ridge_range(given_["lam"], ball=ball, **terms)
        assert stated == pytest.approx(row["constrained_B1"], rel=1e-9)
    (row,) = vector("linear reward-only")
    stated = public_design_ridge_range(
        row["inputs"]["Phi"], row["inputs"]["Q"], ridge=1.0, reward_range=1.0
    )
    assert row["corrected"] * (1 - 1e-15) <= stated <= row["corrected"] * ROUNDING


@pytest.mark.parametrize(("lam", "n", "size"), [(0.5, 32, 0.5), (2.0, 200, 0.1)])
def test_the_instance_in_one_dimension_is_below_our_ranges(lam, n, size):
    (row,) = vector("linear d=1 instance", lam=lam)
    found = line(n, size, 1.0, (-1.0, 1.0))
    truth = ratio_of(found, lam, lambda *_: 1.0)
    assert truth == pytest.approx(row["exact"], rel=1e-9)
    for ball in (0.2, 1.0, 1.5):
        assert ratio_of(found, lam, constrained_bound(lam, ball), ball) <= ROUNDING
