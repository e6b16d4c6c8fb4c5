"""Weights on rows under which no row sticks out: the dual of the smallest ellipsoid around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import numpy as np
import scipy.linalg
from jaxtyping import Bool, Float, Float32, Int64

__all__ = ["DesignRows", "HeldRows", "farthest_rows", "optimal_moment", "whitener"]

_PASSES: Final = 100
_ROUNDS: Final = 500  # of one pass; most take some dozens
_INSIDE: Final = 0.6  # of the gap, in the working set; the rest is for rows outside it
_PART: Final = 1 << 22  # numbers worked on at once
_EMPTY: Final = 1e-9  # of the average weight: less is none
_LEAST: Final = -60.0  # logarithm of a weight over the largest
_LEAP: Final = 1.0  # how far momentum moves the logarithm of a weight at most


@runtime_checkable
class DesignRows(Protocol):
    """Rows in coordinates in which their second moment is the identity, wherever they are."""

    @property
    def shape(self) -> tuple[int, int]:
        """Return (n, r)."""
        ...

    def farthest(
        self, moment: Float[np.ndarray, "r r"], taken: Int64[np.ndarray, " w"], limit: float
    ) -> tuple[float, Int64[np.ndarray, " k"], Float32[np.ndarray, " k"]]:
        """Return the largest leverage xᵀM⁻¹x, and the farthest rows with theirs.

        Args:
            moment: M.
            taken: Rows that are left out.
            limit: Leverage above which a row is far.
        """
        ...

    def take(self, index: Int64[np.ndarray, " w"]) -> Float32[np.ndarray, "w r"]:
        """Return rows that are taken, or were found far."""
        ...


@dataclass(frozen=True, eq=False)
class HeldRows:
    """Rows in memory.

    Attributes:
        rows: In coordinates in which their second moment is the identity.
    """

    rows: Float32[np.ndarray, "n r"]

    @property
    def shape(self) -> tuple[int, int]:
        """Return (n, r)."""
        n, rank = self.rows.shape
        return n, rank

    def farthest(
        self, moment: Float[np.ndarray, "r r"], taken: Int64[np.ndarray, " w"], limit: float
    ) -> tuple[float, Int64[np.ndarray, " k"], Float32[np.ndarray, " k"]]:
        """Return the largest leverage, and the farthest rows: a hundredth of all, or some."""
        n, rank = self.shape
        inverse, height = whitener(moment), max(1, _PART // rank)
        parts = [self.rows[start : start + height] @ inverse for start in range(0, n, height)]
        leverage = np.concatenate([np.einsum("ij,ij->i", part, part) for part in parts])
        most = max(8 * rank, n // 100, 64)
        index = farthest_rows(leverage, taken, limit, most)
        return float(leverage.max()), index, leverage[index]

    def take(self, index: Int64[np.ndarray, " w"]) -> Float32[np.ndarray, "w r"]:
        """Return some rows."""
        return np.asarray(self.rows[index])


def optimal_moment(
    rows: DesignRows, gap: float
) -> tuple[Float[np.ndarray, "r r"], Int64[np.ndarray, " w"], Float[np.ndarray, " w+1"]]:
    """Return the second moment of a D-optimal design for rows of second moment I, and weights.

    Weights live on a working set of far rows, to which rows that stick out are added until none
    does; all rows together, each of the same weight, always belong to it, so that the moment
    never loses a direction. Double precision is used once no row is left to add.

    Args:
        rows: In coordinates in which their second moment is the identity.
        gap: How far the largest leverage may exceed r, relative. After 100 passes over the rows
            it may exceed it by more.

    Returns:
        The moment, the rows of the working set, and their weights with, last, that of all rows
        together.

    Source:
        Silvey, Titterington & Torsney 1978 for the update of weights. Differs: the logarithms of
        weights move with Nesterov's momentum, from the weights that single rows would get.
    """
    _, rank = rows.shape
    design = _Design(np.zeros(0, dtype=np.int64), np.zeros(0), 1.0)
    moment = np.eye(rank)
    for _ in range(_PASSES):
        largest, added, leverage = rows.farthest(moment, design.index, rank * (1 + gap * _INSIDE))
        if largest <= rank * (1 + gap * 0.999):  # single precision
            break
        design.add(added, leverage.astype(np.float64) / rank, rank)
        working = rows.take(design.index)
        precise = np.float32 if len(added) else np.float64
        design.improve(working.astype(precise), gap * _INSIDE)
        moment = _moment(working.astype(np.float64), design.shares)
    return moment, design.index, design.shares


@dataclass
class _Design:
    """Weights on a working set of rows, and one on all rows together; they sum to 1."""

    index: Int64[np.ndarray, " w"]
    weights: Float[np.ndarray, " w"]
    together: float

    @property
    def shares(self) -> Float[np.ndarray, " w+1"]:
        """Return all weights, the last one that of all rows together."""
        return np.append(self.weights, self.together)

    def weigh(self, shares: Float[np.ndarray, " w+1"]) -> None:
        """Take weights, scaled until they sum to 1."""
        shares = shares / shares.sum()
        self.weights, self.together = shares[:-1], float(shares[-1])

    def add(
        self, index: Int64[np.ndarray, " k"], leverage: Float[np.ndarray, " k"], rank: int
    ) -> None:
        """Take more rows in, and leave out those without any weight.

        Each gets the weight that would be best if it came alone; leverages are over the rank.
        """
        kept = self.weights * len(self.weights) > _EMPTY
        added = (leverage - 1) / (leverage * rank - 1) if rank > 1 else np.ones(len(index))
        self.index = np.concatenate([self.index[kept], index])
        self.weigh(np.concatenate([self.weights[kept], added, [self.together]]))

    def improve(self, rows: Float[np.ndarray, "w r"], gap: float) -> None:
        """Multiply every weight by its leverage over the rank until none is above 1 + gap.

        Of all designs that were seen the one with the smallest gap remains.
        """
        ascent, least = _Ascent(np.log(self.shares)), np.inf
        for _ in range(_ROUNDS):
            try:
                leverage = _shares_of_rank(rows, ascent.shares)
            except np.linalg.LinAlgError:  # singular in this precision
                return
            if (worst := float(leverage.max())) < least:
                least = worst
                self.weigh(ascent.shares)
            if not worst > 1 + gap:  # also NaN
                return
            ascent.climb(leverage)


class _Ascent:
    """Weights that are multiplied by their leverage, and keep moving as long as that is uphill."""

    def __init__(self, logs: Float[np.ndarray, " k"]) -> None:
        """Start from the logarithms of weights."""
        self._logs = self._last = logs
        self._pace = 1.0

    @property
    def shares(self) -> Float[np.ndarray, " k"]:
        """Return the weights; they sum to 1."""
        shares = np.exp(self._logs)
        return np.asarray(shares / shares.sum())

    def climb(self, leverage: Float[np.ndarray, " k"]) -> None:
        """Take one step."""
        slope = np.log(np.maximum(leverage, np.exp(_LEAST)))
        reached = self._logs + slope
        moved = reached - self._last
        if self.shares @ (slope * moved) < 0:
            self._pace = 1.0
        pace = (1 + np.sqrt(1 + 4 * self._pace**2)) / 2
        logs = reached + np.clip(moved * ((self._pace - 1) / pace), -_LEAP, _LEAP)
        self._logs = np.maximum(logs - logs.max(), _LEAST)
        self._last, self._pace = reached - logs.max(), pace


def _moment(
    rows: Float[np.ndarray, "w r"], shares: Float[np.ndarray, " w+1"]
) -> Float[np.ndarray, "r r"]:
    """Return the second moment of weighted rows, all together having the identity."""
    weighted = rows * np.sqrt(shares[:-1]).astype(rows.dtype)[:, np.newaxis]
    moment = weighted.T @ weighted
    moment[np.diag_indices_from(moment)] += rows.dtype.type(shares[-1])
    return np.asarray(moment)


def _shares_of_rank(
    rows: Float[np.ndarray, "w r"], shares: Float[np.ndarray, " w+1"]
) -> Float[np.ndarray, " w+1"]:
    """Return every leverage over the rank, the last one the average of all rows."""
    root = scipy.linalg.cholesky(_moment(rows, shares), lower=True, check_finite=False)
    inside = _solved(root, rows.T)
    average = np.square(_solved(root, np.eye(len(root), dtype=root.dtype))).sum()
    leverage = np.append(np.einsum("ij,ij->j", inside, inside), average)
    return np.asarray(leverage.astype(np.float64) / rows.shape[1])


def _solved(root: Float[np.ndarray, "r r"], columns: np.ndarray) -> np.ndarray:
    """Return root⁻¹·columns."""
    return np.asarray(scipy.linalg.solve_triangular(root, columns, lower=True, check_finite=False))


def whitener(moment: Float[np.ndarray, "r r"]) -> Float32[np.ndarray, "r r"]:
    """Return W with ‖xW‖² the leverage xᵀM⁻¹x of a row x."""
    root = np.linalg.cholesky(moment)
    return np.asarray(_solved(root, np.eye(len(root))).T.astype(np.float32))


def farthest_rows(
    leverage: Float32[np.ndarray, " n"], taken: Int64[np.ndarray, " w"], limit: float, most: int
) -> Int64[np.ndarray, " k"]:
    """Return the rows above a limit that are not taken yet, the farthest ones if there are many."""
    out: Bool[np.ndarray, " n"] = leverage > limit
    out[taken] = False
    index = np.flatnonzero(out)
    return np.asarray(index[np.argsort(-leverage[index], kind="stable")[:most]])
