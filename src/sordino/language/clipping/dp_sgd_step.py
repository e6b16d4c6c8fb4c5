"""Gaussian noise on the gradients of a model: what hides a clipped contribution."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

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

    Guarantee:
        That of :class:`~sordino.privacy.events.PoissonGaussianEvent` for one step, if these are
        sums of contributions of bounded norm over a Poisson sample; trust
        ``"central"``, caveat ``real-arithmetic``. The spend must already be on a ledger. Shown by
        tests/language/test_noisy_gradients.py.
    """
    # The noise is added in 64-bit floats. To round a sum before would let one unit move it by more
    # than the bound; to round what is noised is post-processing.
    # Source: Abadi et al. (2016), Algorithm 1.
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
    """Return n independent standard normal numbers in 64-bit floats, one word for each."""
    # Two words give a length and an angle: two and a half times as fast as quantiles, which is what
    # counts where every weight of a model takes one in every step. None is beyond 13.4, where a
    # number of the normal law lies with chance 1e-40.
    # Source: Box, Muller (1958).
    words = entropy.words(n + n % 2).reshape(2, -1)
    length = torch.from_numpy(_open_interval(words[0], entropy) * _PART)
    length = length.log_().mul_(-2).clamp_(min=0).sqrt_()
    angle = torch.from_numpy(words[1].astype(np.float64) * (2 * math.pi * _PART))
    return torch.cat([length * angle.cos(), length * angle.sin()])[:n]


def _open_interval(words: np.ndarray, entropy: Entropy) -> np.ndarray:
    """Return words as numbers in (0, 2^64); small ones get 64 bits more behind the point."""
    # With chance 2^-64 a word is 0, and where billions of numbers are drawn in every step the tail
    # that hangs on this one word is not negligible beside a δ.
    numbers = words.astype(np.float64) + 0.5
    small = np.flatnonzero(words < _SMALL)
    if len(small):
        behind = (entropy.words(len(small)).astype(np.float64) + 0.5) * _PART
        numbers[small] = words[small].astype(np.float64) + behind
    return numbers
