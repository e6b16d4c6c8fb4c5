"""Who takes part in a step: everybody is drawn alone, by a coin of known bias."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Final, TypeVar

import numpy as np

from sordino._random import Entropy
from sordino._validate import positive
from sordino.errors import UsageError

__all__ = ["poisson_sample", "sampling_threshold"]

Unit = TypeVar("Unit")

_WORDS: Final = 2**64
_CHUNK: Final = 1 << 16


def sampling_threshold(probability: float) -> int:
    """Return how many of the 2^64 words draw a unit: rounded down, so never more than stated."""
    stated = positive("sampling_probability", probability)
    least = min(Fraction(stated), Fraction(Decimal(repr(stated))))
    threshold = int(least * _WORDS)
    if not 1 <= threshold <= _WORDS:
        raise UsageError(
            f"sampling_probability must be in (0, 1] and at least 2^-64, got {probability!r}."
        )
    return threshold


def poisson_sample(units: Iterable[Unit], probability: float, *, entropy: Entropy) -> list[Unit]:
    """Return the units that take part: each with the same chance, whoever else does.

    Guarantee:
        None by itself: with chance at most q each unit is in the sample, independently, which is
        what :class:`~sordino.privacy.events.PoissonGaussianEvent` counts on. Who is drawn must
        stay secret, and so must how many. Shown by tests/language/test_poisson_batches.py.
    """
    # One word is drawn for each unit, and it takes part exactly when the word lies below a
    # threshold, so that nothing is rounded. The number of those that do is random: it may be 0, and
    # no data set is too small. Nothing is shuffled, and nothing but the units is looked at.
    # Source: Abadi et al. (2016), Algorithm 1.
    threshold = sampling_threshold(probability)
    chosen: list[Unit] = []
    for some in _parts(units):
        words = entropy.words(len(some))
        drawn = np.ones(len(some), bool) if threshold == _WORDS else words < np.uint64(threshold)
        chosen.extend(unit for unit, takes_part in zip(some, drawn, strict=True) if takes_part)
    return chosen


def _parts(units: Iterable[Unit]) -> Iterator[list[Unit]]:
    """Yield the units in their order, some at a time."""
    rest = iter(units)
    while some := list(islice(rest, _CHUNK)):
        yield some
