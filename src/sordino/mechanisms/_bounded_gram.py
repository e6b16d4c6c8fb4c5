"""A matrix of second moments, with a proved bound on what float rounding did to it.

Notation: u = 2^-53. A sum of m products, in any order and with or without fused multiply-adds, is
wrong by at most m·u/(1 − m·u) of the sum of absolute values. Sums of absolute values of entries of
XᵀX form a matrix whose spectral norm is at most trace XᵀX.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from jaxtyping import Float

from sordino.mechanisms._outward import dense_blocks

__all__ = ["BLOCK", "ROUNDING", "BoundedGram"]

BLOCK: Final = 512
"""Rows that are summed at once; sums of blocks are added in pairs."""

ROUNDING: Final = 2.0**-52
"""Twice the unit roundoff: the other half pays for all terms of second order."""


@dataclass(frozen=True)
class BoundedGram:
    """Σ w_i x_i x_iᵀ up to rounding.

    Attributes:
        matrix: The computed sum, shape (d, d).
        error: Bound on the spectral norm of the computed less the exact sum.
        trace: Upper bound on the trace of both.
    """

    matrix: Float[np.ndarray, "d d"]
    error: float
    trace: float

    @classmethod
    def of(cls, rows: Any, weights: Float[np.ndarray, " n"] | None = None) -> BoundedGram:
        """Return the sum over rows, dense or sparse, with weights of at least 0.

        Args:
            rows: x, shape (n, d), finite, of usable size.
            weights: w, each at most 1; all 1 if left out.

        Source:
            docs/intrinsic.md, "Linear bandits": at most 512 + 4 + 3·log2(blocks) roundings on the
            way of a product into the sum.
        """
        d = rows.shape[1]
        waiting: list[tuple[int, np.ndarray]] = []  # sums of 2^level blocks, as in a binary counter
        for number, block in enumerate(dense_blocks(rows, BLOCK)):
            if weights is not None:
                roots = np.sqrt(weights[number * BLOCK : (number + 1) * BLOCK])
                block = block * roots[:, np.newaxis]  # noqa: PLW2901
            total, level = block.T @ block, 0
            while waiting and waiting[-1][0] == level:
                total, level = total + waiting.pop()[1], level + 1
            waiting.append((level, total))
        matrix = sum((total for _, total in reversed(waiting)), np.zeros((d, d)))
        trace = float(np.trace(matrix)) * (1 + 2.0**-20)
        steps = (
            min(BLOCK, rows.shape[0])
            + 4
            + 2 * max((level for level, _ in waiting), default=0)
            + len(waiting)
        )
        return cls(matrix, steps * ROUNDING * trace, trace)
