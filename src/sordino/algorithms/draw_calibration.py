"""How hot a policy must be, and how strongly its estimate regularized, to keep (ε, δ)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from sordino import _validate
from sordino.errors import UsageError
from sordino.mechanisms.gibbs import least_temperature
from sordino.privacy import accounting
from sordino.privacy.guarantee import BoundedRangeEvent, NeighboringRelation

_LARGEST: Final = 1e15  # regularization beyond it leaves nothing to learn
_SHARE: Final = 0.01  # the temperature, of the reward range, if nothing is known


def bounded_range_of_draws(
    epsilon: float,
    delta: float,
    draws: int,
    *,
    neighbors: NeighboringRelation,
    adaptive: bool = False,
) -> float:
    """Return the largest bounded range of one draw of which so many keep (epsilon, delta).

    Args:
        epsilon: Privacy loss of all draws together, finite and > 0.
        delta: Failure probability of all draws together, in [0, 1).
        draws: How many.
        neighbors: What one change is.
        adaptive: Whether they are from different policies, or paid for one by one.

    Raises:
        UsageError: A setting is out of range.

    Guarantee:
        The accountant shows (epsilon, delta) for that many draws of the result.

    Source:
        docs/intrinsic.md, "Draws and composition": the pure sum, zCDP, or for independent draws
        from one policy the exact composition.

    Example:
        >>> from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE
        >>> round(bounded_range_of_draws(1.0, 0.0, 10, neighbors=ADD_OR_REMOVE_ONE), 6)
        0.1
    """
    epsilon = _validate.positive("epsilon", epsilon)
    delta = _validate.failure_probability("delta", delta)
    draws = _validate.integer("draws", draws, at_least=1)

    def event(size: float) -> BoundedRangeEvent:
        return BoundedRangeEvent(size, draws=1 if adaptive else draws)

    def spent(size: float) -> float:
        return accounting.composed_epsilon([(event(size), count)], neighbors=neighbors, delta=delta)

    count = draws if adaptive else 1
    pure = epsilon / draws
    while spent(pure) > epsilon:
        pure = math.nextafter(pure, 0.0)  # what is stated is rounded up as it prints
    if delta == 0:
        return pure
    most = pure * (2 + 8 * math.sqrt(draws)) + 8 * math.sqrt(-math.log1p(-delta)) + 1
    found = accounting.calibrate(
        event, epsilon, delta, neighbors=neighbors, bracket=(pure, most), count=count
    )
    while spent(found) > epsilon:
        found *= 1 - 1e-7  # what is stated is the upper end of a bracket
    return found


def settle(
    range_of: Callable[[float], float],
    *,
    target: float | None,
    temperature: float | None,
    regularization: float | None,
    name: str,
    usual: float,
) -> tuple[float, float]:
    """Return regularization and temperature; no record is looked at."""
    given = (temperature is not None) + (regularization is not None)
    if (target is None) != (given == 2):  # noqa: PLR2004 (both)
        raise UsageError(
            f"Give an epsilon and at most one of temperature and {name}, or both of these and no "
            f"epsilon; got {given} of them {'without' if target is None else 'with'} an epsilon."
        )
    if temperature is not None:
        temperature = _validate.positive("temperature", temperature)
    if regularization is not None:
        regularization = _validate.positive(name, regularization)
    if regularization is None and temperature is None:
        temperature = usual
    if regularization is None:
        assert temperature is not None and target is not None  # noqa: S101, PT018 - one is given
        regularization = _least(range_of, temperature, target, name)
    if target is None:
        assert temperature is not None  # noqa: S101 - both are given
        return regularization, temperature
    least = least_temperature(range_of(regularization), target)
    return regularization, least if temperature is None else max(temperature, least)


def _least(
    range_of: Callable[[float], float], temperature: float, target: float, name: str
) -> float:
    """Return about the least regularization at which one draw has the target; at least 1e-6."""
    low, high = 1e-6, 1.0
    while range_of(high) > temperature * target:
        low, high = high, 2 * high
        if high > _LARGEST:
            raise UsageError(
                f"No {name} keeps a temperature of {temperature!r} private enough. Use a larger "
                "temperature or epsilon, or fewer draws."
            )
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if range_of(middle) > temperature * target else (low, middle)
    return high


def usual_temperature(
    reward_range: float, records: int | None, *, shared_by: int, hotter: float
) -> float:
    """Return a temperature that served well on logs that are like no particular one."""
    # A hundredth of the reward range; or, with a public guess of the number of records,
    # 1/(hotter·√(records/shared_by)) of it, which falls like the standard error of one estimate.
    # Source: docs/intrinsic.md, "Choosing temperature and regularization".
    if records is None:
        return _SHARE * reward_range
    each = max(1.0, _validate.integer("records", records, at_least=1) / shared_by)
    return reward_range / (hotter * math.sqrt(each))
