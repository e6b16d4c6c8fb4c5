"""The curve δ(ε) of a tilted minimizer that is inexact, where one record's curvature has a rank.

It is :func:`sordino.privacy.curves.objective_perturbation_delta_ranked` with what hides how far the
minimizer is from the exact one.
"""

from __future__ import annotations

import math

import numpy as np

from sordino._validate import integer, non_negative, number, positive

from ._cells import Curve, chi_cells

__all__ = ["ranked_amp_delta", "slack_of_trace"]

_CELLS = 4096
_REACH = 10.0  # standard deviations past the first noise that matters; beyond, δ is taken as 1
_LARGEST_MU, _LARGEST_EPSILON = 1e4, 1e9  # beyond, nothing is stated but 1


def slack_of_trace(trace_over_ridge: float, rank: int) -> float:
    """Return J = r·log(1 + t/(rΛ)), the most that curvature of trace t and rank r adds to the loss.

    Args:
        trace_over_ridge: t/Λ ≥ 0.
        rank: r, at least 1.

    Source:
        docs/central.md, "Rankings": log det(I + B/Λ) with the eigenvalues of B equal, which is
        the most by concavity.

    Example:
        >>> round(slack_of_trace(1.0, 2), 6)
        0.81093
    """
    rank = integer("rank", rank, at_least=1)
    return rank * math.log1p(non_negative("trace_over_ridge", trace_over_ridge) / rank)


def ranked_amp_delta(
    epsilon: float, mu: float, jacobian: float, rank: int, mu_output: float
) -> float:
    """Return δ of a tilted minimizer that is inexact and noised once more, for curvature of a rank.

    Args:
        epsilon: Any real number.
        mu: Bound on the change of the gradient over the standard deviation of the tilt, > 0.
        jacobian: J, the bound on the log-determinant that the change can add, ≥ 0.
        rank: Dimension of a space that holds every change of the gradient, ≥ 1.
        mu_output: Twice the distance from the exact minimizer over the standard deviation of the
            noise that is added; 0 for an exact one.

    Guarantee:
        (ε, result) for any minimizer within that distance, and any change whose gradients stay in
        one space of that dimension; an upper bound on the expectation below. Shown by
        tests/soundness/test_ranked_tilt.py.

    Source:
        docs/central.md, "Rankings": the exact minimizer's loss is at most J + μQ + μ²/2, Q the
        length of the tilt in that space over its standard deviation, chi distributed; given it,
        the output is Gaussian, so that δ(ε) ≤ E[gaussian_delta(ε − J − μQ − μ²/2, μ_output)].

    Example:
        >>> exact = ranked_amp_delta(1.0, 0.2, math.log(1.1), 3, 0.0)
        >>> 9.01e-6 < exact < 9.02e-6 < ranked_amp_delta(1.0, 0.2, math.log(1.1), 3, 0.02)
        True
    """
    mu, mu_output = positive("mu", mu), non_negative("mu_output", mu_output)
    spare = number("epsilon", epsilon) - non_negative("jacobian", jacobian)
    rank = integer("rank", rank, at_least=1)
    if not (abs(spare) <= _LARGEST_EPSILON and max(mu, mu_output) <= _LARGEST_MU):
        return 1.0
    # Below this noise next to nothing is missed: gaussian_delta is at most Φ(−10) there.
    least = spare - 1e-9 * (1 + abs(spare)) - 10 * mu_output - mu_output**2
    first = max(least / mu - mu / 2, 0.0)
    ends = np.linspace(first, max(first, math.sqrt(rank)) + _REACH, _CELLS + 1)
    losses = mu * ends + mu * mu / 2
    rounded = losses + 1e-14 * (1 + 2 * np.abs(losses))
    return Curve(chi_cells(ends, rank), rounded).delta(spare, mu_output)
