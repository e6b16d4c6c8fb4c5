"""How much noise a tilt needs, alone or together with Gaussian releases."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from sordino import _validate
from sordino.errors import UsageError
from sordino.privacy.curves import objective_perturbation_delta
from sordino.privacy.gaussian import gaussian_mu
from sordino.privacy.group_curves import objective_perturbation_delta_replace_one
from sordino.privacy.guarantee import REPLACE_ONE, NeighboringRelation

__all__ = ["OUTPUT_SHARE", "joint_delta", "largest_mu"]

OUTPUT_SHARE = 1 / 32
"""μ of the output noise over that of the tilt, which then grows by about 0.05 %."""

_CLOSE = 1e-3
_ROUNDS = 60
_LEAST_MU = 1e-9


def joint_delta(
    epsilon: float,
    mu: float,
    kappa: float,
    *parts: float,
    neighbors: NeighboringRelation,
) -> float:
    """Return δ of a tilted minimizer released together with Gaussian releases.

    Args:
        epsilon: At least 0.
        mu: Bound on one record's gradient over the standard deviation of the tilt, > 0.
        kappa: Squared bound on a record's features over the ridge, ≥ 0.
        parts: μ of the output noise, of a second moment and so on, each for one record made
            empty, added or removed, whatever ``neighbors`` is.
        neighbors: What one change is.

    Guarantee:
        (ε, result) for all of them together, chosen one after another; shown by
        tests/soundness/test_objective_perturbation.py.

    Source:
        docs/central.md, "Objective perturbation": given the exact minimizer all parts are
        Gaussian, and compose to the root of the sum of their squares.

    Example:
        >>> from sordino.privacy.guarantee import REPLACE_SPECIAL
        >>> 2.913e-07 < joint_delta(1.0, 0.2, 0.5, 0.1, neighbors=REPLACE_SPECIAL) < 2.918e-07
        True
    """
    _validate.one_of("neighbors", neighbors, NeighboringRelation)
    rest = math.hypot(*(_validate.non_negative("parts", part) for part in parts), 0.0)
    if neighbors == REPLACE_ONE:
        return objective_perturbation_delta_replace_one(epsilon, mu, kappa, rest)
    return objective_perturbation_delta(epsilon, mu, kappa, rest)


@lru_cache(maxsize=256)
def largest_mu(
    epsilon: float, delta: float, kappa: float, rest: float, neighbors: NeighboringRelation
) -> float:
    """Return the largest μ of the tilt that keeps (ε, δ), within 0.1 % in δ."""

    def excess(mu: float) -> float:
        found = joint_delta(epsilon, mu, kappa, mu * OUTPUT_SHARE, rest, neighbors=neighbors)
        return math.log(max(found, 1e-300) / delta)

    too_much = gaussian_mu(epsilon, delta)
    if too_much == 0:
        raise UsageError(f"delta={delta!r} is too small for Gaussian noise of any size.")
    enough = too_much
    while (left := excess(enough)) > 0:
        too_much, over, enough = enough, left, enough / 2
        if enough < _LEAST_MU:
            raise UsageError(
                f"No tilt keeps epsilon={epsilon!r}, delta={delta!r} with this ridge and second "
                "moment. Use a larger ridge, a smaller second moment, or a larger budget."
            )
    return enough if enough == too_much else _between(excess, (too_much, over), (enough, left))


def _between(
    excess: Callable[[float], float], fails: tuple[float, float], holds: tuple[float, float]
) -> float:
    """Return a point where ``excess`` is at most 0 and above −1e-3: false position, Illinois.

    Each end is a point and its excess; what is returned was evaluated.
    """
    (high, over), (low, under) = fails, holds
    best, depth = low, under
    for _ in range(_ROUNDS):
        if depth > -_CLOSE or high - low <= 1e-12 * high:
            break
        target = _CLOSE / 2  # aim just below zero
        share = (over + target) / (over - under)
        middle = math.exp(math.log(high) + share * (math.log(low) - math.log(high)))
        middle = middle if low < middle < high else (low + high) / 2
        found = excess(middle)
        if found > 0:
            high, over, under = middle, found, under / 2
        else:
            low, under, over = middle, found, over / 2
            best, depth = middle, found
    return best
