"""Tilted objectives of rankings: what is released never shows more than is stated."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr
from tests.tiers import few

from sordino._random import SimulatedEntropy
from sordino.auditing.statistical.distinguishing import audit_mechanism
from sordino.errors import ConvergenceError, DataError, PrivacyError, UsageError
from sordino.mechanisms import objective_perturbation
from sordino.mechanisms.base import WorstCase
from sordino.mechanisms.objective_perturbation import (
    ObjectivePerturbation,
    RankingObjectivePerturbation,
    ranked_delta,
)
from sordino.privacy.conversions import gaussian_delta
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL
from sordino.privacy.objective_curves import (
    ranked_amp_delta,
    slack_of_trace,
)
from sordino.rewards.ranking_losses import PlackettLuce

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "core.json").read_text("utf-8"))
RELATIONS = (REPLACE_SPECIAL, ADD_OR_REMOVE_ONE, REPLACE_ONE)


def mechanism(neighbors=REPLACE_SPECIAL, epsilon=1.0, delta=1e-6, **known):
    given = {"bound": 1.0, "candidates": 3, "dimension": 1} | known
    return RankingObjectivePerturbation(epsilon, delta=delta, neighbors=neighbors, **given)


def exact_delta(case, ridge, deviation, epsilon):
    """δ(ε) of the minimizer in one dimension: a lower sum over cells of the tilt."""
    ends = np.linspace(-8.5, 8.5, 1701)
    theta = objective_perturbation._minimizers(
        case.one, deviation * ends[:, np.newaxis], ridge, 1e-9
    )
    loss = objective_perturbation._log_density(theta, case.one, ridge, deviation)
    loss -= objective_perturbation._log_density(theta, case.other, ridge, deviation)
    missed = -np.expm1(np.minimum(0.0, epsilon - loss))
    mass = np.where(ends[1:] > 0, -np.diff(ndtr(-ends)), np.diff(ndtr(ends)))
    return float(np.minimum(missed[1:], missed[:-1]) @ mass)


# --- the curve ------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", VECTORS["objective_perturbation_delta_ranked"])
def test_stored_values(row):
    found = ranked_amp_delta(row["epsilon"], row["mu"], math.log(1.1), row["rank"], 0.0)
    assert row["value"] <= found <= row["value"] * (1 + 1e-3)


@pytest.mark.parametrize("rank", few([1, 3, 20], 3))
@pytest.mark.parametrize("mu_output", [0.0, 0.01, 0.2])
@pytest.mark.parametrize("epsilon", few([0.3, 1.0, 3.0], 1.0))
def test_the_curve_is_above_its_expectation_and_near_it(epsilon, rank, mu_output):
    """Claim: PPHJ, Lemma B.6 ("adjust α by a constant")"""
    mu, slack = 0.3 / math.sqrt(rank), 0.1

    def missed(q):
        spare = epsilon - slack - mu * q - mu * mu / 2
        if mu_output:
            return gaussian_delta(float(spare), mu_output)
        return max(0.0, -math.expm1(spare))

    def density(q):
        scale = mpmath.power(2, 1 - rank / 2) / mpmath.gamma(rank / 2)
        return scale * mpmath.power(q, rank - 1) * mpmath.exp(-q * q / 2)

    ends = np.linspace(0, 12 + math.sqrt(rank), 4001)
    values = [missed(q) * float(density(q)) for q in ends]
    expected = np.trapezoid(values, ends)
    found = ranked_amp_delta(epsilon, mu, slack, rank, mu_output)
    assert expected * (1 - 1e-3) <= found <= expected * 1.01 + 1e-20


def test_the_curve_is_monotone_and_extremes_are_safe():
    sizes = [ranked_amp_delta(1.0, mu, 0.1, 3, 0.01) for mu in (0.05, 0.1, 0.2, 0.4)]
    assert sizes == sorted(sizes)
    outputs = [ranked_amp_delta(1.0, 0.2, 0.1, 3, out) for out in (0.0, 0.01, 0.1, 0.4)]
    assert outputs == sorted(outputs)
    assert ranked_amp_delta(1.0, 1e5, 0.1, 3, 0.0) == 1.0
    assert ranked_amp_delta(1.0, 0.2, math.inf, 3, 0.0) == 1.0
    assert slack_of_trace(2.0, 1) == pytest.approx(math.log(3))
    assert slack_of_trace(2.0, 2) > slack_of_trace(2.0, 1)


# --- the made-up objective ------------------------------------------------------------------------


def test_the_density_is_that_of_the_likelihood():
    rng = np.random.default_rng(0)
    records, theta = rng.normal(size=(6, 4, 3)), rng.normal(size=(2, 3))
    loss = PlackettLuce(
        records.reshape(-1, 3), starts=np.arange(0, 25, 4), ranks=np.tile([1, 2, 3, 4], 6)
    )
    known = np.unique(records, axis=0, return_counts=True)
    gradient, hessian, value = objective_perturbation._derivatives(theta, known, 0.7)
    for i, at in enumerate(theta):
        np.testing.assert_allclose(gradient[i], loss.gradient(at) + 0.7 * at, atol=1e-12)
        np.testing.assert_allclose(hessian[i], loss.hessian(at) + 0.7 * np.eye(3), atol=1e-12)
        assert value[i] == pytest.approx(loss.value(at) + 0.35 * at @ at, rel=1e-12)
    tilts = 20 * rng.normal(size=(30, 3))
    found = objective_perturbation._minimizers(records, tilts, 0.1, 1e-9)
    left = objective_perturbation._derivatives(found, known, 0.1)[0] + tilts
    assert np.linalg.norm(left, axis=1).max() < 1e-8


def test_the_density_integrates_to_the_same_constant():
    grid = np.linspace(-40.0, 40.0, 40_001)[:, np.newaxis]
    records = np.array([[[1.0], [-0.3], [0.8]], [[-1.0], [-1.0], [1.0]]])
    for made in (records, records[:0]):
        density = np.exp(objective_perturbation._log_density(grid, made, 0.7, 3.0))
        total = np.trapezoid(density, grid[:, 0])
        assert total == pytest.approx(3.0 * math.sqrt(2 * math.pi), rel=1e-6)


# --- the promise ----------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbors", few(RELATIONS, REPLACE_ONE))
@pytest.mark.parametrize("k", few([3, 5], first=1))
def test_the_stated_delta_is_kept(neighbors, k):
    """Claim: PPHJ, Lemma B.5 (K-wise: K⁶, 2K²L, 4K³L², rank K³)"""
    for ridge in (None, 200.0):
        noise = mechanism(neighbors, candidates=k, ridge=ridge)
        case = noise.worst_case(neighbors)
        back = WorstCase(case.other, case.one)
        for side in (case, back):
            exact = exact_delta(side, noise.ridge, noise.standard_deviation, 1.0)
            assert exact <= noise.delta
        if neighbors != REPLACE_ONE and ridge:
            # the curve takes the tilt's length for its part along the gradient: twice as much
            assert exact >= 0.2 * noise.delta


def test_noise_for_a_zeroed_record_does_not_hide_a_replaced_one():
    """In the plane the two gradients of a replacement are nearly opposite."""
    zeroed, replaced = mechanism(ridge=200.0), mechanism(REPLACE_ONE, ridge=200.0)
    assert replaced.standard_deviation > 1.9 * zeroed.standard_deviation
    assert replaced.sensitivity(REPLACE_ONE) == 2 * zeroed.sensitivity(REPLACE_SPECIAL)


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_two_candidates_are_a_pair(neighbors):
    known = {"delta": 1e-6, "neighbors": neighbors}
    pair = ObjectivePerturbation(1.0, bound=2.0, **known)
    ours = RankingObjectivePerturbation(1.0, bound=1.0, candidates=2, dimension=4, **known)
    assert ours.ridge == pytest.approx(pair.ridge, rel=1e-7)
    assert ours.standard_deviation == pytest.approx(pair.standard_deviation, rel=1e-3)
    assert ours.sensitivity(neighbors) == pair.sensitivity(neighbors)


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("k", [3, 6])
@pytest.mark.parametrize("d", [1, 4, 64])
def test_the_tilt_is_the_least_that_keeps_the_promise(neighbors, k, d):
    noise = mechanism(neighbors, candidates=k, dimension=d)
    known = {"candidates": k, "dimension": d, "neighbors": neighbors}
    legs = 2 if neighbors == REPLACE_ONE else 1
    stated = ranked_delta(1.0, noise.mu, noise.jacobian, mu_output=noise.mu_output, **known)
    assert stated <= noise.delta
    assert ranked_delta(1.0, noise.mu * 1.001, noise.jacobian, **known) > 0.95 * noise.delta
    assert noise.rank == min(d, k - 1)
    rank = min(d, legs * (k - 1))
    formula = ranked_amp_delta(1.0, legs * noise.mu, noise.jacobian, rank, 0.0)
    assert 0.9 * noise.delta <= formula <= noise.delta
    assert noise.jacobian < 0.5
    assert noise.standard_deviation >= 2 * (k - 1) / noise.mu


def test_an_inexact_minimizer_is_hidden():
    """The worst minimizer within the tolerance moves by twice the distance that is paid for."""
    noise = mechanism(dimension=2)
    distance = noise.atol / noise.ridge
    assert 2 * distance / noise.output_standard_deviation <= noise.mu_output / 1.9

    def finished(theta, size):
        found = SimpleNamespace(theta=theta, gradient_norm=size)
        return noise.release(lambda _: found, d=2, entropy=SimulatedEntropy(0))

    theta = finished(np.zeros(2), noise.atol)
    assert np.abs(theta).max() <= 10 * noise.output_standard_deviation
    for size in (2 * noise.atol, math.nan):
        with pytest.raises(ConvergenceError, match="Nothing was released"):
            finished(np.zeros(2), size)
    with pytest.raises(DataError):
        finished(np.zeros(3), 0.0)


def test_a_release_tilts_and_adds_the_output_noise():
    noise = mechanism(dimension=2)
    seen = []

    def minimize(tilt):
        seen.append(tilt)
        return SimpleNamespace(theta=-tilt / noise.ridge, gradient_norm=0.0)

    found = noise.release(minimize, d=noise.dimension, entropy=SimulatedEntropy(1))
    apart = found + seen[0] / noise.ridge
    assert 0 < np.linalg.norm(apart) < 10 * noise.output_standard_deviation
    for seed in range(2000):
        noise.release(minimize, d=2, entropy=SimulatedEntropy(seed))
    # 4,000 numbers: their standard deviation is known to 1.1 %; five of them
    assert np.std(seen[1:]) == pytest.approx(noise.standard_deviation, rel=0.056)


def test_features_are_clipped_and_long_records_refused():
    noise = mechanism(dimension=2)
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    np.testing.assert_allclose(noise.clipped(rows)[0], [0.6, 0.8])
    assert noise.clipped(rows)[1:].tolist() == rows[1:].tolist()
    noise.refuse_long_ballots(np.array([0, 3, 5]))
    with pytest.raises(DataError, match="candidates=3"):
        noise.refuse_long_ballots(np.array([0, 4, 6]))
    with pytest.raises(DataError, match="2 columns"):
        noise.clipped(np.ones((2, 3)))
    with pytest.raises(DataError, match="candidates=3"):
        noise.repeat(np.ones((1, 4, 2)), 1, entropy=SimulatedEntropy(0))
    with pytest.raises(UsageError, match="dimension=2"):
        noise.release(None, d=3, entropy=SimulatedEntropy(0))


def test_promises_that_are_not_made_are_refused():
    with pytest.raises(UsageError, match="ridge must be above"):
        mechanism(ridge=1e-3)
    with pytest.raises(UsageError, match="candidates"):
        mechanism(candidates=1)
    noise = mechanism()
    with pytest.raises(PrivacyError, match="REPLACE_ONE"):
        noise.guarantee(unit="record", neighbors=REPLACE_ONE, trust="central")
    for unit in ("label", "person"):
        with pytest.raises(PrivacyError, match="unit='record'"):
            noise.guarantee(unit=unit, neighbors=REPLACE_SPECIAL, trust="central")
    stated = mechanism(REPLACE_ONE).guarantee(
        unit="record", neighbors=REPLACE_SPECIAL, trust="central"
    )
    assert (stated.epsilon, stated.caveats) == (1.0, ("real-arithmetic",))


@pytest.mark.deep
def test_the_auditor_does_not_pass_the_promise_and_sees_a_quarter_of_the_tilt():
    """Refuted with probability 1e-3 at most if honest; the audit is seeded."""
    known = {"unit": "record", "neighbors": REPLACE_SPECIAL, "trust": "central"}
    honest = mechanism(epsilon=2.0, delta=0.01, ridge=60.0)
    audit = audit_mechanism(honest, **known, trials=4000, simulate_seed=1)
    assert audit.verdict == "not refuted"

    class Quarter(RankingObjectivePerturbation):
        @property
        def standard_deviation(self):
            return super().standard_deviation / 4

    broken = Quarter(
        2.0, delta=0.01, bound=1.0, candidates=3, dimension=1, neighbors=REPLACE_SPECIAL, ridge=60.0
    )
    assert audit_mechanism(broken, **known, trials=4000, simulate_seed=1).verdict == "refuted"
