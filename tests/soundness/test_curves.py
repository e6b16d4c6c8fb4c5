"""The curves of objective perturbation: above the truth everywhere, and close to it."""

import json
import math
from functools import partial
from pathlib import Path

import mpmath
import numpy as np
import pytest
from scipy.special import expit, ndtr
from tests.tiers import few

from sordino.privacy import objective_curves
from sordino.privacy.conversions import gaussian_delta
from sordino.privacy.objective_curves import (
    _objective_perturbation_delta_closed_form,
    objective_perturbation_curve,
    objective_perturbation_delta,
    objective_perturbation_delta_replace_one,
    ranked_amp_delta,
)

CORE = json.loads((Path(__file__).parents[1] / "data/core.json").read_text(encoding="utf-8"))
BELOW, ABOVE = 1e-9, 5e-4
CURVES = {
    "objective_perturbation_delta": objective_perturbation_delta,
    "objective_perturbation_delta_closed_form": _objective_perturbation_delta_closed_form,
}


def just_above(found, exact, above=ABOVE):
    return exact * (1 - BELOW) <= found <= exact * (1 + above)


# --- stored values ----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "row"), [(n, r) for n in CURVES for r in CORE[n]])
def test_stored_values(name, row):
    settings = {key: value for key, value in row.items() if key not in {"value", "rel_tol"}}
    # stored with nine digits
    assert just_above(CURVES[name](**settings) * (1 + 5e-9), row["value"])


@pytest.mark.parametrize("row", CORE["objective_perturbation_delta_replace_one"])
def test_stored_values_of_a_replaced_record(row):
    found = objective_perturbation_delta_replace_one(row["epsilon"], row["mu"], row["kappa"])
    assert found == pytest.approx(row["value"], rel=row["rel_tol"])
    assert found >= row.get("at_least", 0.0)


@pytest.mark.parametrize("row", CORE["objective_perturbation_standard_deviation_R1"])
def test_stored_noise(row):
    kappa, delta = 1 / row["ridge"], row["delta"]
    less, more = (1 / (row["tight"] * factor) for factor in (1 - 1e-3, 1 + 1e-3))
    curve = partial(objective_perturbation_delta, row["epsilon"], kappa=kappa)
    assert curve(mu=more) <= delta <= curve(mu=less)
    assert gaussian_delta(row["epsilon"], 1 / row["label"]) == pytest.approx(delta, rel=1e-3)


# --- an independent quadrature ----------------------------------------------------------------


def exact_loss(noise, mu, kappa):
    """f*(N) from the roots of its derivative's numerator, a cubic."""

    def loss(t):
        return mpmath.log(1 + kappa * t * (1 - t)) + t * mu * noise + (t * mu) ** 2 / 2

    a, m = mu * noise, mu * mu
    roots = np.roots([float(x) for x in (-m * kappa, kappa * (m - a), m + a * kappa - 2 * kappa,
                                         kappa + a)])  # fmt: skip
    inside = [mpmath.mpf(float(r.real)) for r in roots if abs(r.imag) < 1e-6 and 0 < r.real < 1]
    return max(loss(t) for t in (mpmath.mpf(0), mpmath.mpf(1), *inside))


def exact_missed(spare, mu):
    if mu == 0:
        return -mpmath.expm1(min(spare, 0))
    return mpmath.ncdf(mu / 2 - spare / mu) - mpmath.exp(spare) * mpmath.ncdf(-mu / 2 - spare / mu)


def exact_delta(epsilon, mu, kappa, mu_output=0.0, loss=exact_loss):
    low, high = -12, 16
    if mu_output == 0:  # begin where the loss passes ε
        for _ in range(60):
            middle = (mpmath.mpf(low) + high) / 2
            low, high = (middle, high) if loss(middle, mu, kappa) < epsilon else (low, middle)
        low = high
    nodes = [low, *(low + x for x in (0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 9))]
    if mu_output or low < -1:
        nodes = [low + x for x in np.arange(0, 24.1, 0.5)]
    return mpmath.quad(
        lambda n: mpmath.npdf(n) * exact_missed(epsilon - loss(n, mu, kappa), mu_output),
        nodes,
        maxdegree=4,
    )


SETTINGS = [
    (1.0, 0.25, 1.0), (0.5, 0.2, 0.4), (0.2, 0.3, 4.0), (1.0, 0.23, 1.3), (0.1, 0.01, 0.3),
    (8.0, 1.2, 100.0), (3.0, 3.5, 30.0), (0.0, 0.5, 0.1), (-0.5, 0.4, 2.0), (12.0, 2.0, 1e5),
    (1.0, 0.2, 1e-9),
]  # fmt: skip


@pytest.mark.parametrize("settings", few(map(list, SETTINGS), first=4))
def test_against_an_independent_quadrature(settings):
    exact = float(exact_delta(*settings))
    assert just_above(objective_perturbation_delta(*settings), exact)
    assert just_above(objective_perturbation_curve(*settings[1:])(settings[0]), exact, 2e-3)


@pytest.mark.parametrize(
    "settings", few([[1.0, 0.25, 1.0, 0.02], [0.5, 0.2, 0.4, 0.2], [2.0, 0.1, 9.0, 0.6]], first=1)
)
def test_with_output_noise_against_an_independent_quadrature(settings):
    exact = float(exact_delta(*settings))
    assert just_above(objective_perturbation_delta(*settings), exact)


@pytest.mark.parametrize("settings", [(1.0, 0.2, 0.1, 1), (1.0, 0.3, 0.2, 2), (0.5, 0.5, 0.4, 7)])
def test_rankings_against_an_independent_quadrature(settings):
    epsilon, mu, jacobian, rank = settings

    def term(q):
        density = q ** (rank - 1) * mpmath.exp(-q * q / 2) / 2 ** (rank / 2 - 1)
        return (
            density
            / mpmath.gamma(rank / 2)
            * -mpmath.expm1(epsilon - jacobian - mu * q - mu * mu / 2)
        )

    first = max(0.0, (epsilon - jacobian) / mu - mu / 2)
    exact = float(mpmath.quad(term, [first, first + 1, first + 3, first + 8, first + 20]))
    assert just_above(ranked_amp_delta(*settings, 0.0), exact)


@pytest.mark.deep
def test_a_replaced_record_against_the_supremum():
    """F from the mpmath-checked curve on a fine grid of losses, the supremum on one of events."""
    for epsilon, mu, kappa in [(1.0, 0.12, 0.25), (0.5, 0.07, 0.6), (2.0, 0.4, 2.0)]:
        e = np.linspace(0.0, epsilon, 400)
        forward = np.array([objective_perturbation_delta(float(x), mu, kappa) for x in e])
        x = np.linspace(-9.0, -mu / 2, 1500)
        risen = ndtr(x + mu)
        low = np.array([(np.exp(e) * q + forward).min() for q in risen])
        attained = float((low - math.exp(epsilon) * ndtr(x)).max()) * (1 - ABOVE)
        found = objective_perturbation_delta_replace_one(epsilon, mu, kappa)
        assert attained <= found <= attained * 1.003


# --- extreme arguments ------------------------------------------------------------------------

SIDE = np.concatenate([[0.0], np.geomspace(1e-14, 0.5, 600)])
INSIDE = np.concatenate([SIDE, np.linspace(0.0, 1.0, 601)])


def loss_from_below(noise, mu, kappa, t=INSIDE, side=SIDE):
    """The largest loss over a grid of t, fine near both ends: never more than f*."""

    def loss(t, product):
        column = t[:, np.newaxis]
        return (
            np.log1p(kappa * product)[:, np.newaxis] + column * mu * noise + (column * mu) ** 2 / 2
        )

    return np.maximum(loss(t, t * (1 - t)).max(0), loss(1 - side, side * (1 - side)).max(0))


def delta_from_below(epsilon, mu, kappa, mu_output, loss=loss_from_below):
    spare = epsilon - math.log1p(kappa / 4) - 8 * mu_output
    first = max(spare / mu - mu / 2 if spare > 0 else -12.0, -12.0)
    noise = np.linspace(first, max(first, 0.0) + 9, 600)
    losses = loss(noise, mu, kappa)[:-1]  # at the left ends
    missed = [gaussian_delta(float(x), mu_output) for x in epsilon - losses]
    mass = np.where(noise[1:] < 0, np.diff(ndtr(noise)), -np.diff(ndtr(-noise)))
    return float(mass @ np.array(missed)) * (1 - 1e-9)


@pytest.mark.parametrize("seed", few(range(6), first=2))
def test_never_below_a_lower_sum_for_extreme_arguments(seed):
    generator = np.random.default_rng(seed)
    seen = 0
    for _ in range(30):
        mu, kappa = 10 ** generator.uniform(-6, 1), 10 ** generator.uniform(-9, 6)
        mu_output = generator.choice([0.0, 10 ** generator.uniform(-9, 1)])
        near = math.log1p(kappa / 4) + generator.uniform(-0.5, 8) * mu + mu * mu / 2
        epsilon = float(generator.choice([0.0, generator.uniform(-3, 50), near, near]))
        low = delta_from_below(epsilon, mu, kappa, mu_output)
        found = objective_perturbation_delta(epsilon, mu, kappa, mu_output)
        assert low <= found
        assert low <= objective_perturbation_curve(mu, kappa, mu_output)(epsilon)
        seen += low > 1e-13
    assert seen > 10


EDGES = [0.0, 1e-300, 1e-6, 1.0, 1e5, 1e200, math.inf]


def test_any_argument_gives_a_probability():
    for epsilon in (-math.inf, -1e300, -1.0, 0.0, 1e-300, 50.0, 1e300, math.inf):
        for mu in EDGES:
            for kappa in EDGES:
                found = [objective_perturbation_delta(epsilon, mu, kappa, out) for out in EDGES]
                assert all(0 <= x <= 1 for x in found)
                assert not (epsilon < 0 and min(found) < -math.expm1(epsilon) * (1 - 1e-12))
                if 1e-9 <= mu < math.inf:  # less is never used
                    assert 0 <= ranked_amp_delta(epsilon, mu, kappa, 3, 0.0) <= 1


@pytest.mark.deep
def test_a_replaced_record_with_extreme_arguments():
    for epsilon in (0.0, 1e-300, 1e-3, 50.0, 1e300, math.inf):
        for mu in (1e-300, 1e-6, 10.0, 1e200):
            for kappa in (0.0, 1e-9, 1e6, 1e200):
                found = objective_perturbation_delta_replace_one(epsilon, mu, kappa, 0.01)
                assert 0 <= found <= 1


@pytest.mark.deep
def test_less_loss_allowed_or_less_noise_is_a_larger_delta():
    """What bisection on noise rests on, for J < ε."""
    for kappa in (0.0, 0.3, 1.3):
        by_noise = [
            objective_perturbation_delta(1.0, mu, kappa) for mu in np.geomspace(1e-2, 3, 60)
        ]
        assert (np.diff(by_noise) >= 0).all()
        losses = np.linspace(-1.0, 4.0, 60).tolist()
        by_loss = [objective_perturbation_delta(e, 0.3, kappa) for e in losses]
        assert (np.diff(by_loss) <= 0).all()
    by_noise = [
        objective_perturbation_delta_replace_one(1.0, mu, 0.5, mu / 32)
        for mu in np.geomspace(3e-2, 1, 12)
    ]
    assert (np.diff(by_noise) > 0).all()


def test_replacing_costs_more_than_removing():
    """And at least what a Gaussian of twice the μ misses; at most what two steps by the book do."""
    for epsilon, mu, kappa in [(1.0, 0.12, 0.25), (3.0, 0.3, 2.0)]:
        found = objective_perturbation_delta_replace_one(epsilon, mu, kappa)
        assert found > gaussian_delta(epsilon, 2 * mu)
        half = objective_perturbation_delta(epsilon / 2, mu, kappa)
        assert found <= (1 + math.exp(epsilon / 2)) * half


# --- exact instances --------------------------------------------------------------------------


def tilt(theta, records, ridge):
    """The b under which θ is the minimizer, and its derivative's size, for records in 1-D."""
    rows, counts = np.unique(records, return_counts=True)
    slopes = expit(-np.multiply.outer(theta, rows))
    bends = slopes * (1 - slopes)
    return slopes @ (counts * rows) - ridge * theta, ridge + bends @ (counts * rows**2)


def instance(one, other, ridge, deviation, epsilon, *, points=8001):
    """The exact δ(ε) of the minimizer's density on one side against the other.

    Returns the trapezoidal value and a lower sum. b falls in θ, so that the probability of a cell
    of θ is a difference of normal tails.
    """
    ends = []
    for size in (-9.5 * deviation, 9.5 * deviation):
        low, high = -1e9, 1e9
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if tilt(middle, one, ridge)[0] > size else (low, middle)
        ends.append(low)
    theta = np.linspace(*sorted(ends), points)
    (b, bend), (b_other, bend_other) = (tilt(theta, side, ridge) for side in (one, other))
    loss = np.log(bend) - np.log(bend_other) - (b**2 - b_other**2) / (2 * deviation**2)
    missed = -np.expm1(np.minimum(0.0, epsilon - loss))
    tails = ndtr(-np.abs(b) / deviation)
    below = np.where(b < 0, tails, 1 - tails)  # falls in θ
    mass = np.where(b[1:] > 0, np.diff(tails), below[:-1] - below[1:])
    low = np.minimum(missed[1:], missed[:-1])
    return float(mass @ (missed[1:] + missed[:-1]) / 2), float(mass @ low)


def pulling(bound, ridge):
    """Short records that hold the weight far on one side."""
    return np.full(math.ceil(3400 * ridge / bound**2), -bound / 30)


def random_pair(generator, relation):
    """Two neighboring sets of records of norm at most 1, a ridge and noise."""
    mu, kappa = 10 ** generator.uniform(-1.2, 0.4), 10 ** generator.uniform(-2, 1)
    rest = generator.uniform(-1, 1, generator.integers(0, 6))
    if generator.random() < 0.4:
        rest = np.concatenate([rest, pulling(1.0, 1 / kappa)])
    mine = generator.choice([1.0, -1.0, generator.uniform(-1, 1)], p=[0.6, 0.2, 0.2])
    others = {
        "zero-out": np.append(rest, 0.0),
        "add-remove": rest,
        "replace": np.append(rest, generator.choice([-mine, generator.uniform(-1, 1)])),
    }
    pair = [np.append(rest, mine), others[relation]]
    if generator.random() < 0.3:
        pair.reverse()
    epsilon = max(0.0, math.log1p(kappa / 4) + generator.uniform(-1, 4.5) * mu)
    return pair, mu, kappa, epsilon


def stated(relation, epsilon, mu, kappa):
    if relation == "replace":
        return objective_perturbation_delta_replace_one(epsilon, mu, kappa)
    return objective_perturbation_delta(epsilon, mu, kappa)


@pytest.mark.deep
@pytest.mark.parametrize(("relation", "seed"), [("zero-out", 1), ("add-remove", 2), ("replace", 3)])
def test_exact_instances_stay_below_the_curve(relation, seed):
    generator = np.random.default_rng(seed)
    largest = 0.0
    for _ in range(90):
        pair, mu, kappa, epsilon = random_pair(generator, relation)
        exact, low = instance(*pair, 1 / kappa, 1 / mu, epsilon)
        found = stated(relation, epsilon, mu, kappa)
        assert low <= found
        assert exact <= found * (1 + 1e-3) + 1e-15
        if exact > 1e-12:
            largest = max(largest, exact / found)
    assert largest > (0.5 if relation == "replace" else 0.9)


def test_an_instance_comes_within_two_percent():
    """One record whose slope is nearly 1 wherever the weights may lie."""
    for epsilon, mu, kappa in [(1.0, 0.25, 0.1), (1.0, 0.24, 0.5), (0.5, 0.13, 0.2)]:
        rest = pulling(1.0, 1 / kappa)
        for other in (rest, np.append(rest, 0.0)):
            low = instance(np.append(rest, 1.0), other, 1 / kappa, 1 / mu, epsilon, points=20001)[1]
            found = objective_perturbation_delta(epsilon, mu, kappa)
            assert 0.98 * found <= low <= found


# --- what others published --------------------------------------------------------------------


def published_tilt(epsilon, delta, feature_bound):
    """The noise of a published Algorithm 1, said to give (ε/2, δ/2) whatever the ridge."""
    return math.sqrt(40 * math.log(1 / delta)) * feature_bound / epsilon


def published_second_moment(epsilon, delta, feature_bound):
    """The noise of the same paper's Algorithm 2, for the sum, said to give (ε/2, δ/2)."""
    return 8 * math.sqrt(math.log(1 / delta)) * feature_bound**2 / epsilon


def test_the_published_tilt_is_refuted_by_an_exact_instance():
    """Claim: PPHJ, Algorithm 1 (Lemma A.10): (ε/2, δ/2) with σ² = 40L² log(1/δ)/ε²
    Verdict: false in general: Jacobian (above 1e-2 against 5e-7 at κ = 8), unaccounted output
        noise, replace-one (above the claimed 5e-9: 3.5e-8); fine for label flips
    Ours: sordino.LabelGaussian; sordino.ObjectivePerturbation
    """
    epsilon, delta = 1.0, 1e-6
    deviation, kappa = published_tilt(epsilon, delta, 0.5), 8.0  # records of norm 2·0.5
    low = instance(np.array([1.0]), np.array([0.0]), 1 / kappa, deviation, epsilon / 2)[1]
    assert low > 1e-2 > delta / 2
    # ours says so of that noise, too, and an honest amount of noise is not refuted
    assert objective_perturbation_delta(epsilon / 2, 1 / deviation, kappa) >= low


def test_the_published_second_moment_is_refuted_by_the_gaussian_curve():
    """Claim: PPHJ, Algorithm 2 (Lemma A.7): (ε/2, δ/2) with σ² = 64 log(1/δ)L⁴/(ε²n²)"""
    (row,) = CORE["published_second_moment_delta_at_half_epsilon"]
    noise = published_second_moment(row["epsilon"], row["delta"], 1.0)
    for name, moved in (("add_remove", 4.0), ("replace", 4 * math.sqrt(2))):
        realized = gaussian_delta(row["epsilon"] / 2, moved / noise)
        assert realized == pytest.approx(row[name], rel=1e-3)
        assert realized > row["target"]


# --- planted bugs -----------------------------------------------------------------------------


def test_half_the_noise_is_caught():
    rest = pulling(1.0, 2.0)
    low = instance(np.append(rest, 1.0), rest, 2.0, 1 / 0.48, 1.0)[1]
    assert low > 10 * objective_perturbation_delta(1.0, 0.24, 0.5)


def test_a_forgotten_jacobian_is_caught():
    low = instance(np.array([1.0]), np.array([0.0]), 1 / 2.0, 1 / 0.1, 0.2)[1]
    assert low > 10 * gaussian_delta(0.2, 0.1)
    assert low <= objective_perturbation_delta(0.2, 0.1, 2.0)


def test_a_maximum_over_a_grid_only_is_caught(monkeypatch):
    def grid_only(noise, mu, kappa):
        few = np.linspace(0.0, 1.0, 6)
        return loss_from_below(noise, mu, kappa, few, few)

    assert delta_from_below(1.0, 0.25, 3.0, 0.0) <= objective_perturbation_delta(1.0, 0.25, 3.0)
    monkeypatch.setattr(objective_curves, "_largest_loss", grid_only)
    assert delta_from_below(1.0, 0.25, 3.0, 0.0) > objective_perturbation_delta(1.0, 0.25, 3.0)


def test_cells_taken_at_their_left_ends_are_caught(monkeypatch):
    exact = float(exact_delta(1.0, 0.25, 1.0))
    monkeypatch.setattr(objective_curves, "_mean", lambda ends, slope: np.zeros(len(slope)))
    assert not just_above(objective_perturbation_delta(1.0, 0.25, 1.0), exact)


def test_a_removal_that_costs_nothing_is_caught(monkeypatch):
    monkeypatch.setattr(objective_curves, "gaussian_delta", lambda epsilon, mu: 0.0)
    assert objective_perturbation_delta_replace_one(1.0, 0.12, 0.25) < gaussian_delta(1.0, 0.24)
