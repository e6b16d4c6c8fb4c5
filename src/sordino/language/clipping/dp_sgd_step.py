"""Gaussian noise on the gradients of a model: what hides a clipped contribution.

Who takes part in a step: everybody is drawn alone, by a coin of known bias.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Any, Final, TypeVar

import numpy as np
import torch

from sordino._random import Entropy
from sordino._validate import positive
from sordino.errors import UsageError

_CHUNK: Final = 1 << 20
_PART: Final = 2.0**-64
_SMALL: Final = np.uint64(2**32)


def add_gradient_noise(sums: Iterable[Any], standard_deviation: float, *, entropy: Entropy) -> None:
    """Add independent Gaussian noise to every entry of sums of clipped gradients, in place.

    The noise is added in 64-bit floats. To round a sum before would let one unit move it by more
    than the bound; to round what is noised is post-processing.

    Args:
        sums: A tensor of 64-bit floats for every trained parameter, in an order that is always
            the same.
        standard_deviation: Noise multiplier times the bound on one contribution.
        entropy: Source of 64-bit words, one for each entry; a release needs system entropy.

    Raises:
        UsageError: The standard deviation is not finite and above 0, or a sum is rounded already.

    Guarantee:
        That of :class:`~sordino.privacy.events.PoissonGaussianEvent` for one step, if these are
        sums of contributions of bounded norm over a Poisson sample; trust
        ``"central"``, caveat ``real-arithmetic``. The spend must already be on a ledger. Shown by
        tests/language/test_noisy_gradients.py.

    Source:
        Abadi et al. (2016), Algorithm 1.
    """
    size = positive("standard_deviation", standard_deviation)
    for one in sums:
        if one.dtype != torch.float64:
            raise UsageError(
                f"Noise is added to sums in 64-bit floats, got {one.dtype}. Nothing was drawn."
            )
        flat = one.view(-1)
        for start in range(0, len(flat), _CHUNK):
            part = flat[start : start + _CHUNK]
            part.add_((_normals(entropy, len(part)) * size).to(one.device))


def _normals(entropy: Entropy, n: int) -> Any:
    """Return n independent standard normal numbers in 64-bit floats, one word for each.

    Two words give a length and an angle: two and a half times as fast as quantiles, which is what
    counts where every weight of a model takes one in every step. None is beyond 13.4, where a
    number of the normal law lies with chance 1e-40.

    Source:
        Box, Muller (1958).
    """
    words = entropy.words(n + n % 2).reshape(2, -1)
    length = torch.from_numpy(_open_interval(words[0], entropy) * _PART)
    length = length.log_().mul_(-2).clamp_(min=0).sqrt_()
    angle = torch.from_numpy(words[1].astype(np.float64) * (2 * math.pi * _PART))
    return torch.cat([length * angle.cos(), length * angle.sin()])[:n]


def _open_interval(words: np.ndarray, entropy: Entropy) -> np.ndarray:
    """Return words as numbers in (0, 2^64); small ones get 64 bits more behind the point.

    With chance 2^-64 a word is 0, and where billions of numbers are drawn in every step the tail
    that hangs on this one word is not negligible beside a δ.
    """
    numbers = words.astype(np.float64) + 0.5
    small = np.flatnonzero(words < _SMALL)
    if len(small):
        behind = (entropy.words(len(small)).astype(np.float64) + 0.5) * _PART
        numbers[small] = words[small].astype(np.float64) + behind
    return numbers


Unit = TypeVar("Unit")

_WORDS: Final = 2**64
_DRAWS_AT_ONCE: Final = 1 << 16


def sampling_threshold(probability: float) -> int:
    """Return how many of the 2^64 words draw a unit: rounded down, so never more than stated.

    Args:
        probability: q in (0, 1], read both as the float and as the decimal number that it prints
            as; the smaller counts.

    Raises:
        UsageError: It is not in (0, 1], or so small that nobody would ever be drawn.

    Example:
        >>> sampling_threshold(0.5) == 2**63, sampling_threshold(1.0) == 2**64
        (True, True)
    """
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

    One word is drawn for each unit, and it takes part exactly when the word lies below a
    threshold, so that nothing is rounded. The number of those that do is random: it may be 0, and
    no data set is too small. Nothing is shuffled, and nothing but the units is looked at.

    Args:
        units: Everybody.
        probability: q in (0, 1].
        entropy: Source of 64-bit words; a release needs system entropy.

    Raises:
        UsageError: The probability is not in (0, 1].

    Guarantee:
        None by itself: with chance at most q each unit is in the sample, independently, which is
        what :class:`~sordino.privacy.events.PoissonGaussianEvent` counts on. Who is drawn must
        stay secret, and so must how many. Shown by tests/language/test_poisson_batches.py.

    Source:
        Abadi et al. (2016), Algorithm 1.
    """
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
    while some := list(islice(rest, _DRAWS_AT_ONCE)):
        yield some
