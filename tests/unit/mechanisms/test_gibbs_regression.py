"""Least squares by the exponential mechanism: settings, errors, accuracy, what an auditor plays."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from sordino._random import SimulatedEntropy
from sordino.errors import DataError, UsageError
from sordino.mechanisms.regressions.base import (
    PlainRegression,
    RegressionTerms,
)
from sordino.mechanisms.regressions.gibbs import (
    BestCandidate,
    ExponentialRegression,
    _log_mass,
    loss_range,
)
from sordino.privacy.guarantee import (
    REPLACE_ONE,
    REPLACE_SPECIAL,
    NonPrivateEvent,
)

TERMS = {"feature_bound": 1.0, "target_bound": 1.0, "radius": 2.0, "rows": 400}
FOUR = ((0.0, 0.0), (1.0, 1.0), (-1.0, 0.5), (0.0, 2.0))
RELATIONS = [REPLACE_ONE, REPLACE_SPECIAL]


def made(epsilon=1.0, *, delta=0.0, neighbors=REPLACE_SPECIAL, candidates=None, **terms):
    oracle = ExponentialRegression(candidates)
    public = RegressionTerms(**{**TERMS, **terms})
    return oracle.calibrated(public, epsilon, delta=delta, neighbors=neighbors)


def batch(d=2, rows=400, seed=0):
    g = np.random.default_rng(seed)
    features = g.normal(size=(rows, d))
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1)
    return features, features @ np.full(d, 0.5) + g.uniform(-0.2, 0.2, size=rows)


@pytest.mark.parametrize("candidates", [None, FOUR])
def test_the_temperature_is_the_range_over_epsilon(candidates):
    # (WB + R)² = 9 once for a row that is emptied, and twice for one that is replaced.
    for epsilon in (0.1, 1.0, 5.0):
        emptied = made(epsilon, candidates=candidates)
        replaced = made(epsilon, neighbors=REPLACE_ONE, candidates=candidates)
        assert emptied.temperature == pytest.approx(9 / epsilon, rel=1e-9)
        assert replaced.temperature == pytest.approx(18 / epsilon, rel=1e-9)
        for mechanism in (emptied, replaced):
            assert mechanism.event.bounded_range == pytest.approx(epsilon, rel=1e-9)
            promise = mechanism.guarantee(
                unit="record", neighbors=mechanism.neighbors, trust="central"
            )
            assert promise.epsilon <= epsilon
            assert promise.delta == 0


def test_the_range_is_what_a_search_finds():
    # One row's loss between two predictions p and q within ±H, and a target within ±R.
    for reach, bound in ((1.0, 1.0), (2.0, 0.5), (0.5, 2.0)):
        p, q = np.meshgrid(*[np.linspace(-reach, reach, 401)] * 2)
        found = max(float(((p - y) ** 2 - (q - y) ** 2).max()) for y in (-bound, 0, bound))
        terms = RegressionTerms(feature_bound=1.0, target_bound=bound, radius=reach, rows=1)
        assert found <= loss_range(terms) <= found * (1 + 1e-9)


def test_a_delta_buys_a_little():
    alone, helped = made(delta=0.0), made(delta=1e-3)
    assert helped.temperature < alone.temperature
    promise = helped.guarantee(unit="record", neighbors=REPLACE_SPECIAL, trust="central")
    assert (promise.epsilon <= 1.0, promise.delta) == (True, 1e-3)


def test_a_draw_in_a_ball_has_caveats_and_a_choice_has_none():
    terms = {"unit": "record", "neighbors": REPLACE_SPECIAL, "trust": "central"}
    assert made().guarantee(**terms).caveats == ("real-arithmetic", "timing")
    assert made(candidates=FOUR).guarantee(**terms).caveats == ()


@pytest.mark.parametrize("d", [1, 2, 10])
def test_weights_are_as_close_as_the_error_says(d):
    # 40 batches: the mean square is below its bound unless it is 5 standard errors off; chance
    # of a false alarm below 1e-6 for each d. Power: a temperature four times as high fails.
    mechanism = made(5.0, rows=2000)
    squares = []
    for seed in range(40):
        rows, targets = batch(d, 2000, seed)
        released = mechanism.release(rows, targets, entropy=SimulatedEntropy(seed))
        assert released.weights.shape == (d,)
        assert np.linalg.norm(released.weights) <= 2.0
        best = np.linalg.lstsq(rows, targets, rcond=None)[0]  # within the ball here
        assert np.linalg.norm(best) < 2
        squares.append(np.mean((rows @ (released.weights - best)) ** 2))
    bound = released.error**2
    assert released.error == mechanism.predicted_error(d)
    assert bound == pytest.approx(d * mechanism.temperature / 4000)
    spread = np.std(squares) / math.sqrt(40)
    assert bound / 3 < np.mean(squares) < bound + 5 * spread


def test_the_bound_on_the_error_holds_at_the_border_too():
    rows, targets = batch(3, 400)
    targets = 3 * targets
    mechanism = made(30.0, radius=0.4)
    best = minimize(
        lambda w: ((rows @ w - np.clip(targets, -1, 1)) ** 2).sum(),
        np.zeros(3),
        constraints={"type": "ineq", "fun": lambda w: 0.16 - w @ w},
    ).x
    assert np.linalg.norm(best) == pytest.approx(0.4, rel=1e-6)
    values = np.hstack([rows, targets[:, None]])
    drawn = mechanism.repeat(values, 4000, entropy=SimulatedEntropy(1))
    square = np.mean((rows @ (drawn - best).T) ** 2)
    assert square <= mechanism.predicted_error(3) ** 2


def test_a_choice_finds_the_best_candidate_when_it_is_much_better():
    mechanism = made(20.0, candidates=FOUR, rows=400)
    rows, targets = batch()
    near = [
        mechanism.release(rows, targets * 2, entropy=SimulatedEntropy(seed)).weights.tolist()
        for seed in range(20)
    ]
    assert near == [[1.0, 1.0]] * 20
    assert mechanism.predicted_error(2) == pytest.approx(math.sqrt(0.45 * math.log(4) / 400))


def test_without_privacy_it_is_least_squares():
    rows, targets = batch()
    ball = made(math.inf)
    assert isinstance(ball, PlainRegression)
    choice = made(math.inf, candidates=FOUR)
    assert isinstance(choice, BestCandidate)
    assert choice.event == ball.event == NonPrivateEvent()
    released = choice.release(rows, targets * 2, entropy=SimulatedEntropy(0))
    assert released.weights.tolist() == [1.0, 1.0]
    assert released.error == 0


def test_candidates_beyond_the_radius_are_pulled_back():
    mechanism = made(candidates=np.array([[3.0, 4.0], [0.0, 1.0], [0.0, 0.0]]))
    np.testing.assert_allclose(mechanism.candidates, [[1.2, 1.6], [0, 1], [0, 0]])
    assert mechanism == made(candidates=[(3.0, 4.0), (0.0, 1.0), (0.0, 0.0)])
    assert hash(mechanism) == hash(made(candidates=((3, 4), (0, 1), (0, 0))))


@pytest.mark.parametrize(
    "candidates",
    [
        [[1.0]],
        [[1.0, math.nan], [0.0, 0.0]],
        [1.0, 2.0],
        np.zeros((2, 0)),
        np.zeros((2**16 + 1, 1)),
        [["a"], ["b"]],
    ],
)
def test_candidates_that_are_none_are_refused(candidates):
    with pytest.raises(UsageError, match="candidates"):
        ExponentialRegression(candidates)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"radius": -1.0}, "radius"),
        ({"rows": 0}, "rows"),
        ({"radius": 1e200}, "radius·feature_bound"),
        ({"target_bound": 1e308}, "radius·feature_bound"),
        ({"epsilon": 1e13}, "must be at most 1.1e"),
        ({"epsilon": 1e-25, "candidates": FOUR}, "no finite temperature"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        made(**{"epsilon": 1.0, **settings})


@pytest.mark.parametrize("candidates", [None, FOUR])
@pytest.mark.parametrize(
    ("rows", "targets", "message"),
    [
        (np.full((400, 2), math.nan), np.zeros(400), "rows must be finite: row 0"),
        (np.zeros((400, 2)), np.full(400, math.inf), "targets must be finite: row 0"),
        (np.zeros((399, 2)), np.zeros(399), "each of 400 slots"),
    ],
)
def test_batches_that_cannot_be_used_are_refused(candidates, rows, targets, message):
    with pytest.raises(DataError, match=message):
        made(candidates=candidates).release(rows, targets, entropy=SimulatedEntropy(0))


def test_candidates_have_as_many_numbers_as_rows_have_features():
    with pytest.raises(DataError, match="each of 2 numbers of a candidate, got 3"):
        made(candidates=FOUR).release(
            np.zeros((400, 3)), np.zeros(400), entropy=SimulatedEntropy(0)
        )


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("candidates", [None, FOUR, np.eye(3)])
@pytest.mark.parametrize("bound", [0.5, 1.0, 4.0])
def test_a_worst_case_is_one_change_and_shows(candidates, neighbors, bound):
    mechanism = made(2.0, neighbors=neighbors, candidates=candidates, target_bound=bound)
    case = mechanism.worst_case(neighbors)
    differs = np.flatnonzero((case.one != case.other).any(axis=1))
    assert differs.tolist() == [0]
    assert (neighbors is REPLACE_ONE) == bool(case.other[0].any())
    assert np.linalg.norm(case.one[:, :-1], axis=1).max() <= 1 + 1e-12
    one, other = (
        mechanism.log_ratio(mechanism.repeat(side, 20_000, entropy=SimulatedEntropy(seed)), case)
        for seed, side in ((1, case.one), (2, case.other))
    )
    # E[e^-L] = 1 under the first and E[e^L] = 1 under the second: 5 standard errors, 6e-7 each.
    for ratios in (np.exp(-one), np.exp(other)):
        assert abs(ratios.mean() - 1) < 5 * ratios.std() / math.sqrt(20_000)
    assert np.ptp(np.concatenate([one, other])) <= mechanism.event.bounded_range
    advantage = np.mean(one > 0) - np.mean(other > 0)
    # Of the most that a range of 2 permits; candidates may be close to each other.
    assert advantage > (0.4 if candidates is None else 0.15) * math.tanh(0.5)


def test_a_log_ratio_in_a_ball_is_for_two_features():
    mechanism = made()
    with pytest.raises(UsageError, match="two features"):
        mechanism.log_ratio(np.zeros((1, 3)), mechanism.worst_case(REPLACE_SPECIAL))


def test_the_mass_of_a_disk_is_known_without_shift():
    # ∫ e^{-a r²} over a disk is π(1 − e^{-aW²})/a.
    for level, radius in ((0.3, 1.0), (50.0, 2.0), (1e4, 0.5)):
        exact = math.log(math.pi * -math.expm1(-level * radius**2) / level)
        assert _log_mass(level * np.eye(2), np.zeros(2), radius) == pytest.approx(exact, rel=1e-9)
