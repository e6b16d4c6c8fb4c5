"""The best mixture of best responses, and what it says when there is none."""

from __future__ import annotations

import numpy as np
import pytest

from sordino.errors import ConvergenceError, DataError, UsageError
from sordino.policies import worst_case
from sordino.policies.robust import Contexts
from sordino.policies.worst_case import PlausibleRewards, best_mixture


def simplex(theta):
    """Three policies with the unit vectors as features."""
    at = int(np.argmax(theta))
    return np.eye(3)[at], at


def rewards(**changed):
    given = {"center": np.zeros(3), "metric": np.eye(3), "radius": 1.0}
    return PlausibleRewards(**given | changed)


def test_what_is_alike_is_spread_evenly():
    found = best_mixture(rewards(), simplex, gap=1e-8)
    assert found.moments == pytest.approx([1 / 3] * 3, abs=1e-4)
    assert found.value == pytest.approx(-1 / np.sqrt(3), abs=1e-8)
    assert sorted(policy for _, policy in found.responses) == [0, 1, 2]
    assert found.gap <= 1e-8


def test_the_certificate_is_honest():
    """No point of the hull does better than ``upper``, and ``value`` is what the mixture has."""
    g = np.random.default_rng(3)
    points = g.normal(size=(30, 3))
    plausible = rewards(center=g.normal(size=3), radius=0.7)

    def answer(theta):
        at = int(np.argmax(points @ theta))
        return points[at], at

    found = best_mixture(plausible, answer, gap=1e-3)
    mixed = found.weights @ points[[policy for _, policy in found.responses]]
    assert plausible.worst(mixed).value == pytest.approx(found.value, abs=1e-12)
    assert found.upper - found.value <= 1e-3
    for _ in range(3000):
        tried = g.dirichlet(np.full(30, 0.1)) @ points
        assert plausible.worst(tried).value <= found.upper + 1e-9


def test_at_most_one_more_policy_than_features():
    g = np.random.default_rng(0)
    weights = g.random(40)
    moments = np.tile(g.normal(size=(8, 3)), (5, 1))
    few = worst_case._few(moments, weights / weights.sum())
    assert np.count_nonzero(few) <= 4
    assert few @ moments == pytest.approx(weights / weights.sum() @ moments, abs=1e-12)
    assert few.min() >= 0
    assert few.sum() == pytest.approx(1)


def test_standing_still_at_the_reference_does_not_go_round_in_circles():
    """Where q = 0 is best for many rounds, forgetting unused answers would repeat them."""
    g = np.random.default_rng(2)
    d = 40
    contexts = Contexts.of(None, g.normal(size=(60, 4, d)))
    plausible = PlausibleRewards(
        center=g.normal(size=d) / 20, metric=np.eye(d) + np.diag(g.random(d)), radius=0.5
    )
    found = best_mixture(
        plausible,
        contexts.best_response,
        reference_vector=contexts.start()[0],
        start=(contexts.start(),),
    )
    assert found.gap <= 1e-4
    assert found.value >= -1e-9


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_the_answer_scales(scale):
    def scaled(theta):
        moments, at = simplex(theta)
        return scale * moments, at

    found = best_mixture(rewards(), scaled, gap=1e-7 * scale)
    assert found.value == pytest.approx(-scale / np.sqrt(3), rel=1e-6)


def test_a_gap_below_rounding_is_refused():
    g = np.random.default_rng(0)
    points = 1e9 * g.normal(size=(30, 3))

    def answer(theta):
        return points[int(np.argmax(points @ theta))]

    with pytest.raises(ConvergenceError, match="gap=1e-09 could not be certified"):
        best_mixture(rewards(center=g.normal(size=3)), answer, gap=1e-9)


def test_nothing_bounds_a_direction_that_no_comparison_saw():
    blind = rewards(metric=np.diag([0.0, 1.0, 1.0]))
    with pytest.raises(UsageError, match="Nothing bounds the worst case"):
        best_mixture(blind, lambda theta: np.array([1.0, *np.sign(theta[1:])]))
    found = best_mixture(
        blind,
        lambda theta: np.array([1.0, *np.sign(theta[1:])]),
        reference_vector=np.array([1.0, 0.0, 0.0]),
    )
    assert np.isfinite(found.value)


def test_answers_are_checked():
    with pytest.raises(DataError, match=r"best_response\(theta\) must have 3 entries"):
        best_mixture(rewards(), lambda theta: theta[:2])
    with pytest.raises(DataError, match="finite"):
        best_mixture(rewards(), lambda theta: theta * np.nan)
    with pytest.raises(UsageError, match="gap must be finite and greater than 0"):
        best_mixture(rewards(), simplex, gap=0.0)
    with pytest.raises(DataError, match="reference_vector must have 3 entries"):
        best_mixture(rewards(), simplex, reference_vector=np.ones(2))
