"""The interface of private least squares, and what its regressions give."""

import math

import numpy as np
import pytest
from tests.tiers import few

from sordino._random import entropy
from sordino.errors import DataError, UsageError
from sordino.mechanisms.regressions.base import PlainRegression, RegressionTerms
from sordino.mechanisms.regressions.descent import OnePassDescent, _DescentPlan, _first_averaged
from sordino.mechanisms.regressions.gaussian import AdaptiveStatistics, GaussianStatistics
from sordino.privacy.guarantee import REPLACE_ONE, REPLACE_SPECIAL, NonPrivateEvent

ORACLES = (GaussianStatistics(), AdaptiveStatistics(), OnePassDescent())
RELATIONS = (REPLACE_SPECIAL, REPLACE_ONE)
EVERY = pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.name)


def calibrated(oracle, rows, epsilon=1.0, relation=REPLACE_SPECIAL, **changes):
    public = {"feature_bound": 1.0, "target_bound": 2.0, "radius": 2.0} | changes
    terms = RegressionTerms(**public, rows=rows)
    return oracle.calibrated(terms, epsilon, delta=1e-5, neighbors=relation)


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


# --- how far off ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("m", "d", "epsilon"),
    few([(1000, 4, 0.5), (1000, 4, 5.0), (5000, 8, 1.0), (4000, 32, 0.5)], first=1),
)
@pytest.mark.parametrize("relation", few(RELATIONS, first=1), ids=lambda one: one.name)
@pytest.mark.parametrize("oracle", ORACLES[:2], ids=lambda oracle: oracle.name)
def test_the_estimate_of_the_error_is_right_within_a_factor(oracle, relation, m, d, epsilon):
    # 20 releases of seeded noise; the ratio of both is .84 to 1.14 in all of these cases.
    regression = calibrated(oracle, m, epsilon, relation)
    actual, estimated = errors(regression, *world(m, d), 20)
    assert actual / 1.3 <= estimated <= 1.3 * actual


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
    public = {"feature_bound": 1.0, "target_bound": 2.0, "radius": 2.0, "rows": 10}
    usual = {"epsilon": 1.0, "delta": 1e-5, "neighbors": REPLACE_ONE}
    terms = {name: change.get(name, value) for name, value in public.items()}
    rest = {name: change.get(name, value) for name, value in usual.items()}
    with pytest.raises(UsageError):
        oracle.calibrated(RegressionTerms(**terms), **rest)


def test_shares_out_of_range_are_refused():
    for make in (
        lambda: GaussianStatistics(share=0.0), lambda: GaussianStatistics(share=1.0),
        lambda: AdaptiveStatistics(failure_probability=0.0),
    ):  # fmt: skip
        with pytest.raises(UsageError):
            make()


# --- one pass of noisy gradient steps ----------------------------------------------------------

DESCENT = OnePassDescent()


@pytest.mark.parametrize(("count", "step", "bend"), [(8, 0.3, 1.0), (7, 0.1, 0.5), (1, 0.5, 2.0)])
def test_a_plan_knows_what_a_pass_leaves(count, step, bend):
    """Against the recursion itself, in one dimension, for a distance and for each step's noise."""

    def played(distance, noise):
        weight, kept = -distance, []
        for k in range(count):
            weight -= step * (bend * weight - noise[k])
            kept.append(weight)
        return np.mean(kept[_first_averaged(count) - 1 :])

    left, stays = _DescentPlan(count, step).reached(bend)
    assert left == pytest.approx(-played(1.0, np.zeros(count)))
    alone = [played(0.0, unit) for unit in np.eye(count)]
    assert stays == pytest.approx(float(np.square(alone).sum()))


@pytest.mark.parametrize("epsilon", [1.0, 5.0])
@pytest.mark.parametrize(("m", "d"), few([(1000, 4), (5000, 8), (4000, 32)], first=1))
def test_the_estimate_is_right_within_a_factor_for_features_that_point_everywhere(m, d, epsilon):
    # 20 releases of seeded noise; the ratio is .92 to 1.36 in these cases.
    regression = calibrated(DESCENT, m, epsilon)
    actual, estimated = errors(regression, *world(m, d), 20)
    assert actual / 1.6 <= estimated <= 1.6 * actual


@pytest.mark.deep
def test_a_plan_is_better_than_others():
    rows, targets = world(5000, 8)
    best = calibrated(DESCENT, 5000, 5.0).plan(8)
    error = errors(calibrated(DESCENT, 5000, 5.0), rows, targets, 20)[0]
    for oracle in (
        OnePassDescent(inner_batches=2), OnePassDescent(step=best.step / 16),
        OnePassDescent(inner_batches=2000),
    ):  # fmt: skip
        assert errors(calibrated(oracle, 5000, 5.0), rows, targets, 20)[0] > 1.1 * error


def test_settings_are_kept_where_given():
    found = calibrated(OnePassDescent(inner_batches=7, step=0.01), 1000)
    assert found.plan(5) == _DescentPlan(7, 0.01)
    assert 1 <= calibrated(DESCENT, 1).plan(5).inner_batches <= 1
    assert calibrated(DESCENT, 1000).plan(5).step <= 0.5
    assert found.gradient_bound == 8.0
    tight = calibrated(DESCENT, 1000, radius=0.5)
    assert (tight.prediction_bound, tight.gradient_bound) == (0.5, 5.0)


def test_settings_of_a_descent_out_of_range_are_refused():
    for make in (
        lambda: OnePassDescent(inner_batches=0), lambda: OnePassDescent(step=0.0),
        lambda: OnePassDescent(prediction_bound=-1.0),
        lambda: OnePassDescent(effective_dimension=0.0),
        lambda: calibrated(OnePassDescent(inner_batches=6), 5),
    ):  # fmt: skip
        with pytest.raises(UsageError):
            make()


def test_steps_that_leave_the_radius_are_reported():
    rows, targets = world(200, 3)
    found = calibrated(OnePassDescent(step=1e6, inner_batches=4), 200)
    release = found.release(rows, targets, entropy=entropy(0))
    assert release.projected
    assert np.linalg.norm(release.weights) <= 2.0 * (1 + 1e-12)
    assert release.error <= found.widest
    assert not calibrated(OnePassDescent(step=1e-6), 200).release(
        rows, targets, entropy=entropy(0)
    ).projected  # fmt: skip


def test_rows_of_some_chunks_add_up_like_all_at_once(monkeypatch):
    rows, targets = world(500, 3)
    found = calibrated(OnePassDescent(inner_batches=3), 500)
    whole = found.release(rows, targets, entropy=entropy(0)).weights
    monkeypatch.setattr("sordino.mechanisms.regressions.descent._NUMBERS", 30)
    assert found.release(rows, targets, entropy=entropy(0)).weights == pytest.approx(whole)


def test_it_needs_no_matrix_where_features_are_many_and_few_directions_matter():
    """2,048 features of which 8 are used, 8,000 rows, no d × d array: error .009 of .35."""
    rows, targets = world(8000, 2048, seen=8)
    plain = np.linalg.lstsq(rows[:, :8], targets, rcond=None)[0]
    oracle = OnePassDescent(effective_dimension=8)
    found = calibrated(oracle, 8000, 5.0).release(rows, targets, entropy=entropy(0))
    apart = math.sqrt(np.mean((rows @ found.weights - rows[:, :8] @ plain) ** 2))
    assert apart < 0.5 * math.sqrt(np.mean((rows[:, :8] @ plain) ** 2))
    assert apart / 2 < found.error < 12 * apart  # which includes the sampling noise of any target
