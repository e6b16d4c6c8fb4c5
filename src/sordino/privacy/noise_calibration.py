"""How much noise the sums of Poisson samples need."""

from __future__ import annotations

import math

from dp_accounting import NeighboringRelation

from sordino._validate import failure_probability, positive
from sordino.errors import PrivacyError

from ._search import bracket_down, bracket_up, narrow
from .accounting import fits
from .closed_forms import plain
from .events import GaussianEvent, PoissonGaussianEvent
from .gaussian import gaussian_mu

__all__ = ["calibrated_noise_multiplier"]

_RTOL = 1e-4


def calibrated_noise_multiplier(
    epsilon: float,
    delta: float,
    *,
    sampling_probability: float,
    steps: int,
    neighbors: NeighboringRelation,
) -> float:
    """Return the least noise multiplier whose noised sums of Poisson samples fit a budget.

    Args:
        epsilon: Budget; finite, greater than 0.
        delta: Budget for the failure probability in (0, 1).
        sampling_probability: Chance of each contribution to be drawn; in (0, 1].
        steps: Number of sums; at least 1.
        neighbors: What one change is.

    Returns:
        The upper end of a bracket that is 1e-4 wide, relative; about twenty loss distributions.

    Raises:
        PrivacyError: If no noise is shown to fit.
        UsageError: If an argument is out of range.

    Source:
        docs/privacy.md, "Poisson-sampled Gaussian" (bisection; the start is the central limit of
        Bu, Dong, Long, Su (2020), Section 3).

    Guarantee:
        ``fits`` was true of ``PoissonGaussianEvent(result, sampling_probability, steps)``. Below a
        delta of 1e-10 sampling is not made use of. Shown by ``tests/soundness/test_poisson.py``.

    Example:
        >>> from sordino.privacy.guarantee import REPLACE_SPECIAL
        >>> settings = {"sampling_probability": 0.01, "steps": 1000, "neighbors": REPLACE_SPECIAL}
        >>> round(calibrated_noise_multiplier(2.0, 1e-5, **settings), 2)
        0.96
    """
    epsilon, delta = positive("epsilon", epsilon), failure_probability("delta", delta, zero=False)

    def holds(noise: float) -> bool:
        event = PoissonGaussianEvent(noise, sampling_probability, steps)
        return fits([(event, 1)], neighbors=neighbors, epsilon=epsilon, delta=delta)

    start = _start(gaussian_mu(epsilon, delta), sampling_probability, steps, neighbors)
    if holds(start):
        least, too_little = bracket_down(lambda noise: not holds(noise), start)
    else:
        too_little, least = bracket_up(holds, start)
    if least == math.inf:
        raise PrivacyError(
            f"No noise is shown to keep epsilon={epsilon!r}, delta={delta!r} over {steps} steps. "
            "Nothing was calibrated. Raise the budget."
        )
    return narrow(holds, too_little, least, rtol=_RTOL)[1]


def _start(mu: float, chance: float, steps: int, neighbors: NeighboringRelation) -> float:
    """Return about the noise multiplier of many sums that are worth mu together."""
    one, _ = plain(PoissonGaussianEvent(1.0, chance, steps), 1, neighbors)
    assert isinstance(one, GaussianEvent)  # noqa: S101 - for the type checker
    return one.mu / math.sqrt(max(math.log1p((mu / chance) ** 2 / steps), 1e-300))
