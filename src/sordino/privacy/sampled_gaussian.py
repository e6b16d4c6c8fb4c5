"""The loss distribution of noised sums of Poisson samples, under each relation.

What one change does at worst is proved in docs/privacy.md, "Poisson-sampled Gaussian". Settings
that dp_accounting cannot compute with are moved to where more is lost: less noise, more sampling.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from dp_accounting import NeighboringRelation

from .events import Event, PoissonGaussianEvent

__all__ = ["Samples", "samples", "samples_interval", "samples_losses"]

Samples = Mapping[tuple[float, float], int]
"""(noise multiplier, sampling probability) → how many sums."""

_MOST_NOISE = 1e6
_LEAST_CHANCE = 1e-6  # from here on log(1 − q) is precise enough to be told from a loss
_WIDEST = 1e-4
_NARROWEST = 1e-6  # rounding of masses is 1e-16 over the width
_MOST_CELLS = 2**18
_MOST_LOSS = 400.0  # a larger loss promises nothing and overflows exp
_TAIL = 10.5  # standard deviations until nothing is left


def samples(counts: Mapping[Event, int]) -> Samples:
    """Return how many sums there were of each noise and chance, within what can be computed."""
    found: dict[tuple[float, float], int] = {}
    for event, count in counts.items():
        if isinstance(event, PoissonGaussianEvent):
            chance = max(event.sampling_probability, _LEAST_CHANCE)
            key = (
                min(event.noise_multiplier, _MOST_NOISE),
                chance if chance <= 1 - _LEAST_CHANCE else 1.0,
            )
            found[key] = found.get(key, 0) + count * event.steps
    return found


def samples_interval(
    sums: Samples, neighbors: NeighboringRelation, rest: float = 0.0
) -> float | None:
    """Return the width of a cell, or None if no width would do.

    Args:
        sums: What ``samples`` returned; not empty.
        neighbors: What one change is.
        rest: Largest loss of all other releases that are composed with them.

    Returns:
        About 1e-4, or a 16th of what one sum loses typically, where that is not too narrow. It
        moves no promise: any width gives an upper bound.
    """
    norm = 2.0 if neighbors == NeighboringRelation.REPLACE_ONE else 1.0
    span, interval = 2 * rest, _WIDEST
    for (noise, chance), steps in sums.items():
        farthest = (_TAIL + norm / noise) / noise * norm
        if farthest > _MOST_LOSS:
            return None
        typical = norm * chance * math.sqrt(math.expm1(min(noise**-2, 500.0)))
        mean = min(chance * (norm / noise) ** 2 / 2, typical**2)
        span += farthest + steps * mean + _TAIL * math.sqrt(steps) * min(typical, farthest)
        interval = min(interval, typical / 16)
        if steps * mean > _MOST_LOSS or steps * min(typical, farthest) > _MOST_CELLS:
            return None
    # A power of two, so that the searches for a budget's rest find their distributions again.
    interval = 2.0 ** math.ceil(math.log2(max(interval, _NARROWEST, span / _MOST_CELLS)))
    while any(_is_last_loss(interval, chance) for _, chance in sums):
        interval *= 1 + 1e-6
    return interval


def _is_last_loss(interval: float, chance: float) -> bool:
    """Return whether a cell ends so near log(1 − q) that dp_accounting takes it for that loss."""
    if chance == 1:
        return False
    cells = -math.log1p(-chance) / interval
    return math.isclose(cells, round(cells), rel_tol=1e-8)


@lru_cache(maxsize=4)
def samples_losses(
    noise: float, chance: float, steps: int, neighbors: NeighboringRelation, interval: float
) -> Any:
    """Return the loss distribution of so many sums, as dp_accounting holds it.

    Args:
        noise: Standard deviation over the bound on the norm of one contribution, not over the
            sensitivity: dp_accounting puts two contributions 2 apart under REPLACE_ONE.
        chance: Of each contribution to be drawn.
        steps: Number of sums.
        neighbors: What one change is.
        interval: Width of a cell.

    Source:
        Doroshenko, Ghazi, Kamath, Kumar, Manurangsi (2022), Algorithm 1 (connect the dots);
        docs/privacy.md, "Poisson-sampled Gaussian".

    Guarantee:
        dominates each of ``steps`` such sums, chosen adaptively, under the relation.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld  # noqa: PLC0415 - slow

    one = pld.from_gaussian_mechanism(
        standard_deviation=noise,
        sampling_prob=chance,
        value_discretization_interval=interval,
        neighboring_relation=neighbors,
    )
    return one.self_compose(steps)
