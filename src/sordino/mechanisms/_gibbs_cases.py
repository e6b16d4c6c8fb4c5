"""Scores on which a Gibbs policy shows as much of one record as it ever can."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from jaxtyping import Float

from sordino.errors import UsageError
from sordino.mechanisms._gibbs_draws import FLOOR
from sordino.mechanisms.base import WorstCase
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, NeighboringRelation

__all__ = ["odds_case"]

_REST: Final = 2.0  # all other actions together are e^-2 as likely as the rarer of the two
_CELLS: Final = 1 << 18  # numbers in a case, at most
_LARGEST: Final = 1e12  # more records than any case holds


def odds_case(
    reference: tuple[float, ...],
    *,
    bound: float,
    steps: int,
    temperature: float,
    neighbors: NeighboringRelation,
) -> WorstCase:
    """Return scores between which the odds of two actions move by all that one record can.

    The two are the likeliest under the reference. Both inputs share records that make the rest
    negligible and place the two so that their odds move from one side of even to the other,
    where a count of draws tells most of them, as far as 2^18 numbers allow.

    Args:
        reference: Public probabilities, at least two above 0.
        bound: Range that the scores of one record are cut to.
        steps: How many steps make the bound.
        temperature: KL strength in units of the scores.
        neighbors: What one change is.

    Raises:
        UsageError: No such records bring the two actions within e^30 of each other, where
            they would have to be for the change to show in full.
    """
    first, second = np.argsort(-np.array(reference), kind="stable")[:2].tolist()
    record = bound / temperature
    lowers = neighbors is REPLACE_ONE  # the record of the other input raises the likely action
    width = 2 * record if lowers else record
    lead = math.log(reference[first]) - math.log(reference[second])
    aim = (record if lowers else 0.0) - width / 2
    rest = 0.0 if len(reference) == 2 else math.log(len(reference)) + _REST  # noqa: PLR2004
    lifts = [max(0.0, -aim - lead) + rest, max(0.0, aim + lead) + rest]
    heights, rows = _heights(lifts, temperature / bound, steps, len(reference))
    before = (heights[1] - heights[0]) * rows / steps * record - lead - (width - record)
    if width < 2 * FLOOR and not -FLOOR < before < FLOOR - width:
        raise UsageError(
            f"No worst case of at most {_CELLS} numbers attains the bounded range at "
            f"temperature={temperature!r}: the reference is too uneven, or the grid too coarse. "
            "Audit with a more even reference, or a finer grid."
        )
    one, other = np.zeros((2, rows + 1, len(reference)))
    one[:rows, [first, second]] = other[:rows, [first, second]] = heights / steps * bound
    one[rows, second] = bound
    other[rows, first] = bound if lowers else 0.0
    return WorstCase(one, other[:rows] if neighbors is ADD_OR_REMOVE_ONE else other)


def _heights(
    lifts: list[float], records: float, steps: int, k: int
) -> tuple[Float[np.ndarray, " 2"], int]:
    """Return the two scores in steps, and how many records of them lift two actions so far.

    Args:
        lifts: How far the two actions should rise above all others.
        records: How many records at the bound raise an action by 1.
        steps: How many steps make the bound.
        k: Number of actions.
    """
    wanted = np.array(lifts) * min(records, _LARGEST)
    rows = math.ceil(min(wanted.max(), _CELLS // k))
    shares = wanted / max(wanted.max(), rows, math.ulp(0.0))
    return np.ceil(shares * steps), rows
