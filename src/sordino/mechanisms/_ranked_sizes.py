"""How much noise a tilt of rankings needs, with the noise that hides an inexact minimizer."""

from __future__ import annotations

import math
from functools import lru_cache

from sordino.errors import UsageError
from sordino.mechanisms._tilt_sizes import OUTPUT_SHARE, joint_delta
from sordino.privacy._search import narrow
from sordino.privacy.gaussian import gaussian_mu
from sordino.privacy.guarantee import REPLACE_ONE, NeighboringRelation
from sordino.privacy.ranked_curves import ranked_amp_delta

__all__ = ["largest_ranked_mu", "ranked_delta"]

_LEAST_MU = 1e-9
_PAIR = 2


def ranked_delta(
    epsilon: float,
    mu: float,
    jacobian: float,
    *,
    candidates: int,
    dimension: int,
    neighbors: NeighboringRelation,
    mu_output: float = 0.0,
) -> float:
    """Return δ of a tilted minimizer of rankings.

    Args:
        epsilon: At least 0.
        mu: Bound on one record's gradient over the standard deviation of the tilt, > 0.
        jacobian: J of one record.
        candidates: K, the most candidates of one record.
        dimension: d.
        neighbors: What one change is.
        mu_output: As for :func:`sordino.privacy.ranked_curves.ranked_amp_delta`.

    Guarantee:
        (ε, result); shown by tests/soundness/test_ranked_tilt.py.

    Source:
        docs/central.md, "Rankings". A replaced record moves the gradient by twice as much, in the
        span of two records' differences.
    """
    if candidates == _PAIR:  # J = log(1 + κ/4)
        kappa = 4 * math.expm1(jacobian)
        return joint_delta(epsilon, mu, kappa, mu_output, neighbors=neighbors)
    legs = 2 if neighbors == REPLACE_ONE else 1
    rank = min(dimension, legs * (candidates - 1))
    return ranked_amp_delta(epsilon, legs * mu, jacobian, rank, mu_output)


@lru_cache(maxsize=256)
def largest_ranked_mu(
    epsilon: float,
    delta: float,
    jacobian: float,
    candidates: int,
    dimension: int,
    neighbors: NeighboringRelation,
) -> float:
    """Return the largest μ of the tilt that keeps (ε, δ), its output noise included."""

    def keeps(mu: float) -> bool:
        found = ranked_delta(
            epsilon,
            mu,
            jacobian,
            candidates=candidates,
            dimension=dimension,
            neighbors=neighbors,
            mu_output=mu * OUTPUT_SHARE,
        )
        return found <= delta

    if not keeps(_LEAST_MU):
        raise UsageError(
            f"No tilt keeps epsilon={epsilon!r}, delta={delta!r} with this ridge. Use a larger "
            "ridge, or a larger budget."
        )
    return narrow(keeps, gaussian_mu(epsilon, delta) * (1 + 1e-9), _LEAST_MU, rtol=1e-4)[1]
