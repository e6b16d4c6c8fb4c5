"""Rows in many files, of which only those that stick out are kept in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
from jaxtyping import Float, Float32, Int64

from sordino.engines.rows import PiecedRows
from sordino.mechanisms._optimal_design import farthest_rows, whitener
from sordino.mechanisms._row_sums import dense_parts

__all__ = ["FarRows"]

_MOST: Final = 4096  # rows that are added in one pass, if not more are needed


@dataclass(frozen=True, eq=False)
class FarRows:
    """Rows of second moment I in the coordinates of a frame: the working set alone is held.

    Attributes:
        rows: As they were read.
        into: Takes a row (as a row vector) to coordinates.
    """

    rows: PiecedRows
    into: Float[np.ndarray, "d r"]
    _held: dict[int, Float32[np.ndarray, " r"]] = field(default_factory=dict, init=False)

    @property
    def shape(self) -> tuple[int, int]:
        """Return (n, r)."""
        return self.rows.shape[0], self.into.shape[1]

    def farthest(
        self, moment: Float[np.ndarray, "r r"], taken: Int64[np.ndarray, " w"], limit: float
    ) -> tuple[float, Int64[np.ndarray, " k"], Float32[np.ndarray, " k"]]:
        """Return the largest leverage, and the farthest rows, which are held from now on."""
        most = max(8 * self.shape[1], min(self.shape[0] // 100, _MOST), 64)
        look = _Far(self.into.astype(np.float32), whitener(moment), np.sort(taken), limit, most)
        found = self.rows.fold(look, partial(_farther, most=most))
        for index, row in zip(found.index, found.rows, strict=True):
            self._held[int(index)] = row
        return found.largest, found.index, found.leverage

    def take(self, index: Int64[np.ndarray, " w"]) -> Float32[np.ndarray, "w r"]:
        """Return rows that were found far."""
        return np.array([self._held[int(row)] for row in index], dtype=np.float32)


@dataclass(frozen=True, eq=False)
class _Found:
    """The farthest rows of some blocks, in order of their leverage."""

    largest: float
    index: Int64[np.ndarray, " k"]
    leverage: Float32[np.ndarray, " k"]
    rows: Float32[np.ndarray, "k r"]


@dataclass(frozen=True, eq=False)
class _Far:
    """The task: which rows of a block stick out."""

    into: Float32[np.ndarray, "d r"]
    inverse: Float32[np.ndarray, "r r"]
    taken: Int64[np.ndarray, " w"]
    limit: float
    most: int

    def __call__(self, first: int, block: Any, *_: Any) -> _Found:
        """Return the rows of one block that stick out."""
        inside = np.concatenate(
            [part.astype(np.float32) @ self.into for _, part in dense_parts(block)]
        )
        moved = inside @ self.inverse
        leverage = np.einsum("ij,ij->i", moved, moved)
        ends = np.searchsorted(self.taken, [first, first + len(inside)])
        known = self.taken[slice(*ends)] - first
        index = farthest_rows(leverage, known, self.limit, self.most)
        return _Found(float(leverage.max()), first + index, leverage[index], inside[index])


def _farther(one: _Found, other: _Found, *, most: int) -> _Found:
    """Return the farthest rows of both."""
    leverage = np.concatenate([one.leverage, other.leverage])
    kept = np.argsort(-leverage, kind="stable")[:most]
    return _Found(
        max(one.largest, other.largest),
        np.concatenate([one.index, other.index])[kept],
        leverage[kept],
        np.concatenate([one.rows, other.rows])[kept],
    )
