"""Objective perturbation as a mechanism: what it releases never shows more than it states."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import ndtr
from tests.tiers import few

from sordino._random import entropy
from sordino.mechanisms import objective_perturbation as _tilted
from sordino.mechanisms.base import WorstCase
from sordino.mechanisms.gaussian import joint_mechanisms
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation, joint_delta
from sordino.privacy.conversions import gaussian_delta
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL
from sordino.privacy.objective_curves import (
    objective_perturbation_delta,
    objective_perturbation_delta_replace_one,
)

LEAST_USED = {
    (False, 0.2): 0.95, (False, 1.0): 0.8, (False, 4.0): 0.05,
    (True, 0.2): 0.1, (True, 1.0): 0.03, (True, 4.0): 1e-4,
}  # fmt: skip
RELATIONS = (REPLACE_SPECIAL, ADD_OR_REMOVE_ONE, REPLACE_ONE)


def as_rankings(records):
    """Every record z as the candidates z and 0, ranked in this order: the same loss."""
    return np.stack([records, np.zeros_like(records)], axis=1)


def mechanism(neighbors, epsilon=1.0, delta=1e-6, **settings):
    return ObjectivePerturbation(epsilon, delta=delta, bound=1.0, neighbors=neighbors, **settings)


def exact_delta(case, ridge, deviation, epsilon):
    """δ(ε) of the minimizer on one side, a lower sum over cells of the tilt in 1-D or 2-D.

    Integrates over the tilt b that produced the minimizer, θ(b) from Newton's method.
    """
    d = case.one.shape[1]
    ends = np.linspace(-8.5, 8.5, 1701 if d == 1 else 171)
    tilts = deviation * np.stack(np.meshgrid(*[ends] * d, indexing="ij"), axis=-1)
    theta = _tilted._minimizers(as_rankings(case.one), tilts.reshape(-1, d), ridge, 1e-9)
    loss = _tilted._log_density(theta, as_rankings(case.one), ridge, deviation)
    loss -= _tilted._log_density(theta, as_rankings(case.other), ridge, deviation)
    missed = -np.expm1(np.minimum(0.0, epsilon - loss)).reshape(tilts.shape[:-1])
    mass = np.where(ends[1:] > 0, -np.diff(ndtr(-ends)), np.diff(ndtr(ends)))
    for _ in range(d):  # the least of the corners of every cell
        missed = np.moveaxis(np.minimum(missed[1:], missed[:-1]), 0, -1)
    for _ in range(d):
        missed = mass @ missed
    return float(missed)


# --- the exact arithmetic that an auditor plays with ------------------------------------------


def test_clipping_acts_on_every_record_alone():
    values = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [1e300, -1e300], [1e-320, 0.0]])
    found = mechanism(REPLACE_SPECIAL).clipped(values)
    assert np.linalg.norm(found, axis=1).max() <= 1 + 1e-15
    assert found[0] == pytest.approx([0.6, 0.8])
    assert found[1:3].tolist() == values[1:3].tolist()
    alone = np.vstack([mechanism(REPLACE_SPECIAL).clipped(row[np.newaxis]) for row in values])
    assert found.tolist() == alone.tolist()


# --- the promise ------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("epsilon", few([0.2, 1.0, 4.0], 1.0))
def test_the_stated_delta_is_kept_and_nearly_used(neighbors, epsilon):
    noise = mechanism(neighbors, epsilon)
    case = noise.worst_case(neighbors)
    exact = exact_delta(case, noise.ridge, noise.standard_deviation, epsilon)
    back = exact_delta(
        WorstCase(case.other, case.one), noise.ridge, noise.standard_deviation, epsilon
    )
    assert max(exact, back) <= noise.delta
    # for small ε one removal uses nearly all of it; two legs and a large ε leave some unused
    assert max(exact, back) >= LEAST_USED[neighbors == REPLACE_ONE, epsilon] * noise.delta
    assert joint_delta(
        epsilon, noise.mu, noise.kappa, noise.mu_output, neighbors=neighbors
    ) == pytest.approx(noise.delta, rel=2e-3)


# --- the inexact minimizer --------------------------------------------------------------------


def parity_attack(noise, output_deviation, trials=4000):
    """How often the last digit of the weights tells which data set was used.

    An adversarial minimizer rounds to even or to odd multiples of its tolerance: within what is
    accepted, and with no overlap at all.
    """
    cell = 2 * noise.atol / noise.ridge
    generator = np.random.default_rng(5)
    exact = generator.normal(size=trials) * 1e-5
    side = generator.integers(0, 2, trials)
    chosen = 2 * cell * np.round((exact / cell - side) / 2) + cell * side
    assert np.abs(chosen - exact).max() <= cell * (1 + 1e-9)
    released = chosen + output_deviation * generator.normal(size=trials)
    return float((np.round(released / cell).astype(np.int64) % 2 == side).mean())


def test_output_noise_hides_which_side_an_inexact_minimizer_chose():
    """Without it the attack is always right. 4,000 fair coins exceed .56 with chance 2e-14."""
    noise = mechanism(REPLACE_SPECIAL)
    assert parity_attack(noise, 0.0) == 1.0
    assert parity_attack(noise, noise.output_standard_deviation) < 0.56
    # exactly: what a shift of twice the distance shows through this noise is what is accounted
    shown = 2 * noise.atol / noise.ridge / noise.output_standard_deviation
    assert shown <= noise.mu_output
    without = objective_perturbation_delta(1.0, noise.mu, noise.kappa)
    with_it = objective_perturbation_delta(1.0, noise.mu, noise.kappa, noise.mu_output)
    assert without < with_it <= noise.delta


def test_a_loose_tolerance_takes_more_output_noise():
    tight, loose = (mechanism(REPLACE_SPECIAL, atol=atol) for atol in (1e-8, 1e-3))
    assert loose.standard_deviation == tight.standard_deviation
    assert loose.output_standard_deviation == pytest.approx(1e5 * tight.output_standard_deviation)


# --- together with a second moment ------------------------------------------------------------


@pytest.mark.parametrize("neighbors", [ADD_OR_REMOVE_ONE, REPLACE_ONE])
def test_a_joint_release_is_accounted_for_as_one(neighbors):
    tilt, moment = joint_mechanisms(1.0, delta=1e-6, bound=1.0, neighbors=neighbors)
    mu_moment = moment.mu(REPLACE_SPECIAL)
    assert mu_moment <= tilt.second_moment_mu
    found = joint_delta(1.0, tilt.mu, tilt.kappa, tilt.mu_output, mu_moment, neighbors=neighbors)
    assert 0.99e-6 <= found <= 1e-6
    # less noise than halves of ε and δ would take, for both
    half = ObjectivePerturbation(0.5, delta=5e-7, bound=1.0, neighbors=neighbors, ridge=tilt.ridge)
    assert tilt.standard_deviation < half.standard_deviation


def test_a_joint_release_is_at_least_the_gaussian_part_alone():
    for neighbors, legs in ((REPLACE_SPECIAL, 1), (REPLACE_ONE, 2)):
        mu, rest = 0.2 / legs, 0.15 / legs
        delta = gaussian_delta(1.0, legs * math.hypot(mu, rest))
        assert delta <= joint_delta(1.0, mu, 1e-9, rest, neighbors=neighbors) <= delta * 1.1


def test_a_forgotten_second_moment_is_caught():
    tilt, moment = joint_mechanisms(1.0, delta=1e-6, bound=1.0, neighbors=REPLACE_SPECIAL)
    alone = mechanism(REPLACE_SPECIAL)
    spent = joint_delta(
        1.0, alone.mu, alone.kappa, moment.mu(REPLACE_SPECIAL), neighbors=REPLACE_SPECIAL
    )
    assert spent > 2e-6
    assert tilt.mu < alone.mu


# --- what an auditor sees ---------------------------------------------------------------------


@pytest.mark.parametrize("neighbors", few(RELATIONS, first=1))
def test_many_releases_follow_the_stated_density(neighbors):
    """The mean of e^{−loss} over releases is 1 (standard error known; five of them: 6e-7)."""
    noise = mechanism(neighbors)
    case = noise.worst_case(neighbors)
    ratios = noise.log_ratio(noise.repeat(case.one, 20_000, entropy=entropy(3)), case)
    weights = np.exp(-ratios)
    assert abs(weights.mean() - 1) < 5 * weights.std() / math.sqrt(len(weights))
    assert ratios.mean() > 0


def test_a_release_is_the_tilted_minimizer_with_noise():
    noise = mechanism(REPLACE_SPECIAL)
    records = np.array([[0.6, 0.1], [-0.2, 0.9]])
    seen = []

    def minimize(tilt):
        theta = _tilted._minimizers(
            as_rankings(records), tilt[np.newaxis], noise.ridge, noise.atol
        )[0]
        seen.append(theta)
        return SimpleNamespace(theta=theta, gradient_norm=noise.atol)

    released = noise.release(minimize, d=2, entropy=entropy(None))
    assert 0 < np.abs(released - seen[0]).max() < 9.3 * noise.output_standard_deviation


@pytest.mark.deep
def test_replacing_is_at_most_what_the_curve_of_two_legs_says():
    case = mechanism(REPLACE_ONE).worst_case(REPLACE_ONE)
    for epsilon, mu in ((0.5, 0.1), (1.0, 0.3)):
        exact = exact_delta(case, mechanism(REPLACE_ONE).ridge, 1 / mu, epsilon)
        kappa = 1 / mechanism(REPLACE_ONE).ridge
        assert exact <= objective_perturbation_delta_replace_one(epsilon, mu, kappa)
        assert exact > objective_perturbation_delta(epsilon, mu, kappa)


@pytest.mark.deep
def test_the_published_noise_is_refuted_when_a_record_is_replaced():
    """√(40 log(1/δ))·L/ε, said to give (ε/2, δ/2); L = 1/2, a large ridge.

    Claim: PPHJ, Algorithm 1 (Lemma A.10): (ε/2, δ/2) with σ² = 40L² log(1/δ)/ε²
    """
    deviation, ridge = math.sqrt(40 * math.log(1e8)) / 2, 50.0
    settings = SimpleNamespace(bound=1.0, _ridge=ridge, standard_deviation=deviation)
    case = ObjectivePerturbation.worst_case(settings, REPLACE_ONE)
    assert exact_delta(case, ridge, deviation, 0.5) > 5e-9
