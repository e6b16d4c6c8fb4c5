"""The solver against SciPy and scikit-learn, and its certificate against its own definition."""

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse import random as random_sparse
from sklearn.linear_model import LogisticRegression

from sordino.errors import ConvergenceError, DataError, UsageError
from sordino.rewards.pair_losses import DebiasedLogistic, debias
from sordino.rewards.solver import _certified, _FitState, _Line, minimize_ridge, ridge_path


def problem(seed, n=300, d=6, *, flip=0.3, strength=1.5, spread=0.0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d)) * 10.0 ** (-spread * np.arange(d))
    chance = 1 / (1 + np.exp(-strength * rows[:, 0]))
    truth = rng.random(n) < chance
    answers = np.where(rng.random(n) < flip, ~truth, truth).astype(int)
    return rows, debias(answers, flip)


def objective(rows, targets, ridge):
    """F and its gradient, written out a second time."""

    def value(theta):
        margins = rows @ theta
        return np.logaddexp(0, margins).sum() - targets @ margins + ridge / 2 * theta @ theta

    def slope(theta):
        chance = 1 / (1 + np.exp(-np.clip(rows @ theta, -700, 700)))
        return rows.T @ (chance - targets) + ridge * theta

    return value, slope


def assert_optimal(solution, rows, targets, *, ridge, ball, atol):
    """Check the first-order conditions from nothing but the weights and the multiplier."""
    gradient = objective(rows, targets, ridge)[1](solution.theta)
    residual = np.linalg.norm(gradient + solution.multiplier * solution.theta)
    rounding = 1e-12 * (1 + np.abs(rows).T @ np.abs(targets)).sum()
    assert residual <= atol + rounding
    assert solution.gradient_norm <= atol
    assert solution.gradient_norm == pytest.approx(residual, abs=rounding)
    assert solution.multiplier >= 0
    length = np.linalg.norm(solution.theta)
    if ball is None:
        assert solution.multiplier == 0
    else:
        assert length <= ball
        assert solution.multiplier == 0 or length == pytest.approx(ball, rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ridge", [0.01, 1.0, 100.0])
def test_against_scipy(seed, ridge):
    rows, targets = problem(seed, spread=0.3 * seed)
    value, slope = objective(rows, targets, ridge)
    peer = scipy.optimize.minimize(
        value, np.zeros(6), jac=slope, method="BFGS", options={"gtol": 1e-8}
    )
    ours = minimize_ridge(DebiasedLogistic(rows, targets), ridge=ridge, atol=1e-9)
    assert_optimal(ours, rows, targets, ridge=ridge, ball=None, atol=1e-9)
    np.testing.assert_allclose(ours.theta, peer.x, atol=1e-6 * (1 + np.abs(peer.x).max()))


def test_without_flips_it_is_logistic_regression():
    rows, targets = problem(5, n=500, d=8, flip=0.0)
    peer = LogisticRegression(C=1 / 0.7, fit_intercept=False, tol=1e-12, max_iter=10_000)
    peer.fit(rows, targets.astype(int))
    ours = minimize_ridge(DebiasedLogistic(rows, targets), ridge=0.7, atol=1e-10)
    np.testing.assert_allclose(ours.theta, peer.coef_[0], atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ridge", [0.0, 2.0])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.98])
def test_on_the_sphere_against_scipy(seed, ridge, share):
    rows, targets = problem(seed, spread=0.2 * seed)
    loss = DebiasedLogistic(rows, targets)
    ball = share * np.linalg.norm(minimize_ridge(loss, ridge=ridge + 1e-3, atol=1e-9).theta)
    ours = minimize_ridge(loss, ridge=ridge, ball=ball, atol=1e-8)
    assert ours.multiplier > 0
    assert_optimal(ours, rows, targets, ridge=ridge, ball=ball, atol=1e-8)
    value, slope = objective(rows, targets, ridge)
    inside = {"type": "ineq", "fun": lambda t: ball**2 - t @ t, "jac": lambda t: -2 * t}
    start = np.zeros(6)
    start[0] = ball / 2
    options = {"ftol": 1e-14, "maxiter": 500}
    peer = scipy.optimize.minimize(
        value, start, jac=slope, method="SLSQP", constraints=[inside], options=options
    )
    assert value(ours.theta) <= peer.fun + 1e-7 * abs(peer.fun)
    np.testing.assert_allclose(ours.theta, peer.x, atol=1e-3 * ball)


def test_a_ball_that_does_not_bind_changes_nothing():
    rows, targets = problem(8)
    loss = DebiasedLogistic(rows, targets)
    free = minimize_ridge(loss, ridge=1.0, atol=1e-10)
    for share in (1.0001, 1.5, 100.0):
        ball = share * np.linalg.norm(free.theta)
        held = minimize_ridge(loss, ridge=1.0, ball=ball, atol=1e-10)
        assert held.multiplier == 0
        np.testing.assert_allclose(held.theta, free.theta, atol=1e-9)


def test_a_wrong_guess_that_the_ball_binds_is_taken_back():
    # Started far outside, the descent is first taken to leave the ball, which it does not.
    rows, targets = problem(9)
    loss = DebiasedLogistic(rows, targets)
    free = minimize_ridge(loss, ridge=1.0, atol=1e-10)
    ball = 1.2 * np.linalg.norm(free.theta)
    held = minimize_ridge(loss, ridge=1.0, ball=ball, start=np.full(6, 50.0), atol=1e-9)
    assert held.multiplier == 0
    np.testing.assert_allclose(held.theta, free.theta, atol=1e-8)


def test_an_unbounded_loss_is_held_by_the_ball():
    """Claim: Others, Chowdhury et al. 2024: debiased logistic loss"""
    # Every answer says yes, so that without ridge the loss falls for ever along x.
    rows, targets = np.ones((50, 1)), debias(np.ones(50, int), 0.4)
    held = minimize_ridge(DebiasedLogistic(rows, targets), ridge=0.0, ball=3.0, atol=1e-9)
    assert held.theta[0] == pytest.approx(3.0, rel=1e-14)
    assert held.multiplier == pytest.approx(50 * (3.0 - 1 / (1 + np.exp(-3.0))) / 3, rel=1e-9)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 60),
    d=st.integers(1, 70),
    ridge=st.sampled_from([0.0, 1e-3, 1.0, 50.0]),
    ball=st.sampled_from([None, 1e-3, 0.3, 5.0, 50.0]),
    flip=st.sampled_from([0.0, 0.25, 0.45]),
    spread=st.floats(0, 0.1),
    sparse=st.booleans(),
)
def test_every_solution_is_optimal(seed, n, d, ridge, ball, flip, spread, sparse):
    if ridge == 0 and ball is None:
        ball = 10.0
    rows, targets = problem(seed, n, d, flip=flip, spread=spread)
    if sparse:
        rows = rows * (np.random.default_rng(seed).random((n, d)) < 0.2)
    atol = 1e-6 * n
    loss = DebiasedLogistic(csr_array(rows) if sparse else rows, targets)
    solution = minimize_ridge(loss, ridge=ridge, ball=ball, atol=atol)
    assert_optimal(solution, rows, targets, ridge=ridge, ball=ball, atol=atol)


@pytest.mark.parametrize("ball", [None, 2.0])
def test_sparse_equals_dense(ball):
    rng = np.random.default_rng(11)
    rows = random_sparse(400, 120, density=0.08, rng=rng, format="csr").toarray()
    targets = debias(rng.integers(0, 2, 400), 0.2)
    dense = minimize_ridge(DebiasedLogistic(rows, targets), ridge=0.1, ball=ball, atol=1e-9)
    sparse = minimize_ridge(
        DebiasedLogistic(csr_array(rows), targets), ridge=0.1, ball=ball, atol=1e-9
    )
    np.testing.assert_allclose(sparse.theta, dense.theta, atol=1e-7)


def test_more_features_than_a_matrix_is_worth():
    rng = np.random.default_rng(12)
    rows = csr_array(random_sparse(300, 5000, density=0.01, rng=rng, format="csr"))
    targets = debias(rng.integers(0, 2, 300), 0.2)
    loss = DebiasedLogistic(rows, targets)
    for ball in (None, 1.0):
        solution = minimize_ridge(loss, ridge=0.1, ball=ball, atol=1e-7)
        assert_optimal(solution, rows, targets, ridge=0.1, ball=ball, atol=1e-7)


@pytest.mark.parametrize("ball", [None, 0.5, 30.0])
def test_many_records_start_on_a_sample(ball):
    rows, targets = problem(13, n=30_000, d=5, spread=0.5)
    atol = 1e-6 * 30_000
    solution = minimize_ridge(DebiasedLogistic(rows, targets), ridge=1.0, ball=ball, atol=atol)
    assert_optimal(solution, rows, targets, ridge=1.0, ball=ball, atol=atol)


def test_records_in_a_misleading_order_are_solved_all_the_same():
    # Every step-th row is zero, so that the sample sees nothing.
    rows, targets = problem(14, n=20_000, d=3)
    rows[::20] = 0
    loss = DebiasedLogistic(rows, targets)
    solution = minimize_ridge(loss, ridge=1e-6, ball=9.0, atol=0.01)
    assert_optimal(solution, rows, targets, ridge=1e-6, ball=9.0, atol=0.01)


def test_the_start_does_not_change_what_is_found_and_is_not_written_to():
    rows, targets = problem(15)
    loss, start = DebiasedLogistic(rows, targets), np.full(6, -4.0)
    before = targets.copy()
    near = minimize_ridge(loss, ridge=1.0, atol=1e-10)
    far = minimize_ridge(loss, ridge=1.0, start=start, atol=1e-10)
    again = minimize_ridge(loss, ridge=1.0, start=near.theta, atol=1e-9)
    np.testing.assert_allclose(far.theta, near.theta, atol=1e-9)
    np.testing.assert_array_equal(start, np.full(6, -4.0))
    np.testing.assert_array_equal(targets, before)
    assert again.passes == 1


def test_a_path_is_its_fits_in_the_order_given():
    rows, targets = problem(16, n=200, d=40)
    loss, ridges = DebiasedLogistic(rows, targets), [1.0, 0.01, 30.0, 0.0]
    path = ridge_path(loss, ridges, ball=2.0, atol=1e-9)
    for ridge, solution in zip(ridges, path, strict=True):
        assert_optimal(solution, rows, targets, ridge=ridge, ball=2.0, atol=1e-9)
        alone = minimize_ridge(loss, ridge=ridge, ball=2.0, atol=1e-9)
        np.testing.assert_allclose(solution.theta, alone.theta, atol=1e-7)
    with pytest.raises(UsageError, match="ridge"):
        ridge_path(loss, ridges, atol=1e-9)


def test_nothing_to_learn_is_zero():
    for rows in (np.zeros((4, 3)), np.zeros((0, 3)), csr_array((4, 3))):
        loss = DebiasedLogistic(rows, np.ones(rows.shape[0]))
        for settings_ in ({"ridge": 1.0}, {"ridge": 0.0, "ball": 1.0}):
            assert not minimize_ridge(loss, atol=1e-9, **settings_).theta.any()


def test_neither_ridge_nor_ball_is_refused():
    rows, targets = problem(17)
    with pytest.raises(UsageError, match="fall without end"):
        minimize_ridge(DebiasedLogistic(rows, targets), ridge=0.0, atol=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        {"ridge": -1.0},
        {"ridge": np.inf},
        {"ridge": np.nan},
        {"ball": 0.0},
        {"ball": np.inf},
        {"atol": 0.0},
        {"max_passes": 0},
    ],
)
def test_settings_out_of_range_are_refused(wrong):
    rows, targets = problem(18)
    given_settings = {"ridge": 1.0, "atol": 1e-6} | wrong
    with pytest.raises(UsageError, match=next(iter(wrong))):
        minimize_ridge(DebiasedLogistic(rows, targets), **given_settings)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("n", [50, 20_000])
@pytest.mark.parametrize("sparse", [False, True])
def test_data_that_are_not_finite_are_refused(bad, n, sparse):
    rows, targets = problem(19, n=n)
    rows[0, 2] = bad
    loss = DebiasedLogistic(csr_array(rows) if sparse else rows, targets)
    with pytest.raises(DataError, match="finite"):
        minimize_ridge(loss, ridge=1.0, atol=1e-6)


def test_a_start_that_does_not_fit_is_refused():
    rows, targets = problem(20)
    loss = DebiasedLogistic(rows, targets)
    with pytest.raises(DataError, match="start"):
        minimize_ridge(loss, ridge=1.0, atol=1e-6, start=np.zeros(5))
    with pytest.raises(DataError, match="start"):
        minimize_ridge(loss, ridge=1.0, atol=1e-6, start=np.full(6, np.nan))


@pytest.mark.parametrize("ball", [None, 0.5])
@pytest.mark.parametrize("limits", [{"atol": 1e-9, "max_passes": 1}, {"atol": 1e-300}])
def test_what_is_not_certified_is_not_returned(ball, limits):
    rows, targets = problem(21)
    with pytest.raises(ConvergenceError, match="nothing was returned"):
        minimize_ridge(DebiasedLogistic(rows, targets), ridge=1.0, ball=ball, **limits)


def test_bad_conditioning_costs_few_passes():
    rows, targets = problem(22, n=3000, d=60, spread=0.08)
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((60, 60)))[0]
    solution = minimize_ridge(DebiasedLogistic(rows @ turn, targets), ridge=1e-3, atol=3e-3)
    assert solution.passes <= 15


def test_the_last_check_refuses_a_point_without_its_certificate():
    rows, targets = problem(23)
    work = _FitState(DebiasedLogistic(rows, targets), 1e-6, 10)
    with pytest.raises(ConvergenceError):
        _certified(work, work.first(None), 1.0, 0.0)


def test_a_step_that_overshoots_and_goes_up_is_not_taken():
    # The slope ends at 0.4 of its start, but the kink comes at once and the value rises by 207.
    work = _FitState(DebiasedLogistic(np.array([[1000.0]]), np.array([0.791])), 1e-6, 10)
    point = work.at(np.array([-0.001]), np.array([-1.0]), exact=True)
    line = _Line(work, point, np.array([1.0]), np.array([1000.0]), 0.0)
    start, end = line.slope(0.0), line.slope(1.0)
    assert start < 0 < end <= -0.41 * start
    assert not line.accepts(1.0, start, end * 0.99)
    length = line.search(start, end)
    value = objective(np.array([[1000.0]]), np.array([0.791]), 0.0)[0]
    assert value(point.theta + length) < value(point.theta)
