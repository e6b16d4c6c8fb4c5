"""The interface of private least squares, and what its regressions give."""

import math

import numpy as np
import pytest

from sordino._random import entropy
from sordino.errors import DataError, UsageError
from sordino.mechanisms.base import Mechanism, Repeatable
from sordino.mechanisms.regressions.base import LeastSquares, Oracle, PlainRegression
from sordino.mechanisms.regressions.descent import OnePassDescent
from sordino.mechanisms.regressions.gaussian import AdaptiveStatistics, GaussianStatistics
from sordino.privacy.events import NonPrivateEvent
from sordino.privacy.guarantee import REPLACE_ONE, REPLACE_SPECIAL

ORACLES = (GaussianStatistics(), AdaptiveStatistics(), OnePassDescent())
RELATIONS = (REPLACE_SPECIAL, REPLACE_ONE)
EVERY = pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.name)


def calibrated(oracle, rows, epsilon=1.0, relation=REPLACE_SPECIAL, **changes):
    public = {"feature_bound": 1.0, "target_bound": 2.0, "radius": 2.0} | changes
    return oracle.calibrated(epsilon, delta=1e-5, **public, neighbors=relation, rows=rows)


def world(m, d, *, seen=None, seed=0):
    """Features on the sphere of the first ``seen`` coordinates, and noisy linear targets."""
    rng, k = np.random.default_rng(seed), seen or d
    rows, truth = np.zeros((m, d)), np.zeros(d)
    rows[:, :k] = rng.normal(size=(m, k))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    truth[:k] = rng.normal(size=k)
    truth /= np.linalg.norm(truth)
    return rows, np.clip(rows @ truth + rng.normal(size=m) * 0.5, -2, 2)


def errors(regression, rows, targets, releases):
    """The root mean square of what privacy changes in predictions, and its mean estimate."""
    plain = np.linalg.lstsq(rows, targets, rcond=None)[0]
    found = [regression.release(rows, targets, entropy=entropy(s)) for s in range(releases)]
    squares = [np.mean((rows @ (one.weights - plain)) ** 2) for one in found]
    return math.sqrt(np.mean(squares)), float(np.mean([one.error for one in found]))


@EVERY
def test_every_oracle_is_one_and_makes_a_regression(oracle):
    found = calibrated(oracle, 50)
    assert isinstance(oracle, Oracle)
    for kind in (LeastSquares, Mechanism, Repeatable):
        assert isinstance(found, kind)
    assert (found.rows, found.radius, found.neighbors) == (50, 2.0, REPLACE_SPECIAL)
    assert isinstance(calibrated(oracle, 50, math.inf), LeastSquares)


# --- how far off ------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 5.0])
@pytest.mark.parametrize(("m", "d"), [(1000, 4), (5000, 8), (4000, 32)])
@pytest.mark.parametrize("relation", RELATIONS, ids=lambda one: one.name)
@pytest.mark.parametrize("oracle", ORACLES[:2], ids=lambda oracle: oracle.name)
def test_the_estimate_of_the_error_is_right_within_a_factor(oracle, relation, m, d, epsilon):
    # 20 releases of seeded noise; the ratio of both is .84 to 1.14 in all of these cases, and
    # predicted_error, which knows no batch, is 1.0 to 2.0 times the error.
    regression = calibrated(oracle, m, epsilon, relation)
    actual, estimated = errors(regression, *world(m, d), 20)
    assert actual / 1.3 <= estimated <= 1.3 * actual
    assert 0.8 * actual <= regression.predicted_error(d) <= 2.5 * actual


@pytest.mark.parametrize("oracle", ORACLES[:2], ids=lambda oracle: oracle.name)
def test_directions_that_no_row_has_hardly_raise_the_estimate(oracle):
    actual, estimated = errors(calibrated(oracle, 4000), *world(4000, 32, seen=4), 10)
    assert actual / 1.3 <= estimated <= 2.5 * actual


def test_a_large_least_eigenvalue_needs_no_ridge():
    rows, targets = world(5000, 4)
    adaptive = calibrated(AdaptiveStatistics(), 5000)
    least = np.linalg.eigvalsh(rows.T @ rows)[0]
    assert adaptive.adapted_ridge(4, least) == 0.0
    assert adaptive.adapted_ridge(4, 0.0) == adaptive.ridge(4)
    assert 0 < adaptive.adapted_ridge(4, 1.8 * adaptive.ridge(4)) < adaptive.ridge(4)
    assert errors(adaptive, rows, targets, 20)[0] < 0.9 * errors(
        calibrated(GaussianStatistics(), 5000), rows, targets, 20
    )[0]  # fmt: skip


def test_the_ridge_exceeds_the_noise():
    regression = calibrated(GaussianStatistics(), 10)
    size = regression.moment_deviation
    expected = size * (math.sqrt(16) + math.sqrt(2 * math.log(40)))
    assert regression.ridge(8) == pytest.approx(expected)
    matrices = regression.repeat(np.zeros((10, 9)), 400, entropy=entropy(0))[:, :64]
    least = np.linalg.eigvalsh(matrices.reshape(400, 8, 8))[:, 0]
    # below −λ with probability .05 at most: 40 or more of 400 have a chance below 1e-4
    assert (least < -regression.ridge(8)).sum() < 40
    assert least.min() < -0.5 * regression.ridge(8)


# --- without privacy --------------------------------------------------------------------------


@EVERY
def test_at_infinite_epsilon_it_is_least_squares(oracle):
    rows, targets = world(300, 5)
    found = calibrated(oracle, 300, math.inf)
    assert found.event == NonPrivateEvent()
    assert found.sensitivity(REPLACE_ONE) == math.inf
    promise = found.guarantee(unit="record", neighbors=REPLACE_ONE, trust="central")
    assert promise.epsilon == math.inf
    release = found.release(rows, targets, entropy=entropy(None))
    assert release.weights == pytest.approx(np.linalg.lstsq(rows, targets, rcond=None)[0])
    assert (release.error, release.projected) == (0.0, False)
    assert found.predicted_error(5) == 0.0
    assert (found.worst_case(REPLACE_ONE).one != found.worst_case(REPLACE_ONE).other).any()


def test_a_direction_that_no_row_has_gets_no_weight():
    rows, targets = world(300, 6, seen=3)
    found = calibrated(GaussianStatistics(), 300, math.inf)
    repeated = np.hstack([rows[:, :3], rows[:, :3]]) / 2
    for batch in (rows, repeated, 0 * rows):
        release = found.release(batch, targets, entropy=entropy(None))
        assert release.weights == pytest.approx(
            np.linalg.lstsq(batch, targets, rcond=None)[0], abs=1e-6
        )


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
@EVERY
def test_what_cannot_be_used_is_named_by_index_only(oracle, epsilon):
    rows, targets = world(20, 3)
    found = calibrated(oracle, 20, epsilon)
    for spoiled in (math.nan, math.inf):
        wrong_rows, wrong_targets = rows.copy(), targets.copy()
        wrong_rows[7, 1] = wrong_targets[4] = spoiled
        with pytest.raises(DataError, match="rows must be finite: row 7") as caught:
            found.release(wrong_rows, targets, entropy=entropy(0))
        assert "0." not in str(caught.value)
        with pytest.raises(DataError, match="targets must be finite: row 4"):
            found.release(rows, wrong_targets, entropy=entropy(0))
    for batch in (
        (rows[:19], targets[:19]), (rows, targets[:19]), (rows[:0], targets[:0]), (rows[:, :0],
        targets), (rows.ravel(), targets), (rows.astype(str), targets),
    ):  # fmt: skip
        with pytest.raises(DataError):
            found.release(*batch, entropy=entropy(0))


@EVERY
@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_huge_rows_and_targets_are_cut_and_weights_stay_within_the_radius(oracle, epsilon):
    rows, targets = world(40, 3)
    found = calibrated(oracle, 40, epsilon, radius=0.01)
    large = found.release(rows * 1e300, targets * 1e300, entropy=entropy(0))
    assert np.linalg.norm(large.weights) <= 0.01 * (1 + 1e-12)
    assert large.projected or isinstance(oracle, OnePassDescent)  # its steps may be tiny
    assert large.error <= found.widest
    empty = found.release(0 * rows, targets, entropy=entropy(0))
    assert np.isfinite(empty.weights).all()
    cut = PlainRegression(feature_bound=1.0, target_bound=2.0, radius=1e3, rows=1)
    row, target = np.array([[3e200, 4e200]]), np.array([-1e200])
    assert cut.release(row, target, entropy=entropy(0)).weights == pytest.approx([-1.2, -1.6])


@EVERY
@pytest.mark.parametrize(
    "change",
    [
        {"feature_bound": 0.0}, {"target_bound": -1.0}, {"radius": math.inf}, {"rows": 0},
        {"rows": 1.5}, {"epsilon": 0.0}, {"epsilon": -1.0}, {"neighbors": "replace"},
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused(oracle, change):
    usual = {
        "epsilon": 1.0, "delta": 1e-5, "feature_bound": 1.0, "target_bound": 2.0, "radius": 2.0,
        "neighbors": REPLACE_ONE, "rows": 10,
    }  # fmt: skip
    with pytest.raises(UsageError):
        oracle.calibrated(**usual | change)


def test_shares_out_of_range_are_refused():
    for make in (
        lambda: GaussianStatistics(share=0.0), lambda: GaussianStatistics(share=1.0),
        lambda: AdaptiveStatistics(failure_probability=0.0),
    ):  # fmt: skip
        with pytest.raises(UsageError):
            make()
