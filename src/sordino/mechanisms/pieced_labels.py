"""The noised sum of labels whose vectors are in many files: exact partial sums, noise once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from jaxtyping import Float, Int64, Integer

from sordino._random import Entropy
from sordino.engines.rows import PiecedRows
from sordino.errors import DataError, UsageError
from sordino.mechanisms._grid import GRID_SLACK, STEPS_OF_NOISE, with_noise
from sordino.mechanisms._label_steps import FINER, moves_of, times_of
from sordino.mechanisms._row_sums import counting_less, dense_parts
from sordino.mechanisms.ellipsoid import (
    Ellipsoid,
    isotropic_ellipsoid,
    least_noise_ellipsoid,
)
from sordino.mechanisms.label_gaussian import LabelGaussian

__all__ = ["PiecedLabels", "PiecedStatistic", "PiecedTotal"]


@dataclass(frozen=True, eq=False, repr=False)
class PiecedStatistic:
    """What was released of labels in many files, with all that is known about its noise.

    Attributes:
        value: T̃, the noised Σ y_i x_i over the rows that count.
        factor: F with covariance FFᵀ; the noise is F times independent draws of variance 1.
        rows: How many rows count.
        squares: Σ‖x_i‖².
        longest: The largest ‖x_i‖.
        scale: Standard deviation of the noise, in steps of its grid.
    """

    value: Float[np.ndarray, " d"]
    factor: Float[np.ndarray, "d r"]
    rows: int
    squares: float
    longest: float
    scale: float

    def __repr__(self) -> str:
        """Return sizes; no number of the sum."""
        return f"PiecedStatistic(n={self.rows}, d={len(self.value)})"


@dataclass(frozen=True, eq=False)
class PiecedLabels:
    """A release of labels whose public vectors an engine reads.

    Made by :meth:`prepare`, from public vectors alone.

    Attributes:
        mechanism: The settings.
        ellipsoid: The shape of the noise.

    Guarantee:
        That of :class:`~sordino.mechanisms.label_gaussian.LabelGaussian`, with the same integers
        and the same noise. How far a label may move the sum is measured in the same task, and on
        the same integers, that are summed: so it holds however machines round, and wherever and
        however often a task runs. For unit ``"person"`` it is the longest row times
        ``records_per_person``. Noise is drawn here, once, and in no task. Shown by
        tests/soundness/test_pieced_labels.py.
    """

    mechanism: LabelGaussian
    ellipsoid: Ellipsoid

    @classmethod
    def prepare(cls, mechanism: LabelGaussian, rows: PiecedRows) -> PiecedLabels:
        """Return the release made ready: it reads no label and spends nothing.

        Raises:
            DataError: A vector cannot be used, or all are 0.
            UsageError: There are too many directions.
        """
        shape = least_noise_ellipsoid if mechanism.shaped else isotropic_ellipsoid
        return cls(mechanism, shape(counting_less(rows, mechanism.longest)))

    def total(self, rows: PiecedRows) -> PiecedTotal:
        """Return the sum without noise, which is as secret as the labels, and spends nothing.

        So whatever is wrong with the files or the grid is found before anything is spent.

        Args:
            rows: What :meth:`prepare` was given; its blocks hold (number, vectors, labels), each
                label 0, 1 or 2 (undecided).

        Raises:
            DataError: There are other rows than before: the files changed while they were read.
            UsageError: So much loss is allowed, or so little, that the noise would be below 2^12
                steps of the grid or above 2^52.
        """
        whiten = self.ellipsoid.whiten / self.mechanism.grid
        # No row is longer than 1 as the noise measures it; more than twice that was not there.
        found = rows.fold(
            _Steps(whiten.T / 2, 1 / self.mechanism.grid, self.mechanism.longest), _Sum.plus
        )
        if found.rows != rows.shape[0]:
            raise DataError("The input changed while it was read. Nothing was released.")
        moved = found.moved * (self.mechanism.records_per_person or 1) / FINER
        return PiecedTotal(found, self._usable_noise(moved))

    def release_total(self, total: PiecedTotal, *, entropy: Entropy) -> PiecedStatistic:
        """Return the noised sum; draws noise, so the spend must already be on a ledger.

        Args:
            total: From :meth:`total`.
            entropy: As for :meth:`~sordino.mechanisms.label_gaussian.LabelGaussian.release`.

        Guarantee:
            What the mechanism's ``guarantee`` returns.
        """
        noised = with_noise(total.found.total, total.scale, entropy).astype(np.float64)
        step = self.ellipsoid.unwhiten * self.mechanism.grid
        return self.described(total, np.asarray(step @ noised))

    def described(self, total: PiecedTotal, value: Float[np.ndarray, " d"]) -> PiecedStatistic:
        """Return a noised sum with what is public of it."""
        found, scale = total.found, total.scale
        step = self.ellipsoid.unwhiten * self.mechanism.grid
        return PiecedStatistic(
            value=value,
            factor=step * scale,
            rows=found.rows,
            squares=found.squares,
            longest=found.longest,
            scale=scale,
        )

    def statistic(self, rows: PiecedRows, *, entropy: Entropy) -> PiecedStatistic:
        """Return both steps in one; the spend must already be on a ledger.

        Raises:
            DataError: As :meth:`total`.
            UsageError: As :meth:`total`.

        Guarantee:
            What the mechanism's ``guarantee`` returns.
        """
        return self.release_total(self.total(rows), entropy=entropy)

    def _usable_noise(self, moved: float) -> float:
        """Return the noise in steps; refuse what the grid is too coarse or too fine for.

        Raises:
            UsageError: It is.
        """
        scale, (least, most) = moved * GRID_SLACK / self.mechanism.mu, STEPS_OF_NOISE
        if least <= scale <= most:
            return scale
        raise UsageError(
            f"The noise must be between {least} and {most} steps of the grid, and it would be "
            f"{scale:.6g}. Nothing was released. Choose another grid than "
            f"{self.mechanism.grid!r}, or another epsilon."
        )


@dataclass(eq=False)
class _Sum:
    """What some rows contribute, in whole steps, and what is public of the rows.

    Attributes:
        total: Σ over rows of 0, 1 or 2 times h_i.
        moved: The largest ‖2h_i‖ of them, in parts of a step, rounded up.
        rows: How many.
        squares: Σ‖x_i‖².
        longest: The largest ‖x_i‖.
    """

    total: Int64[np.ndarray, " r"]
    moved: int
    rows: int
    squares: float
    longest: float

    def plus(self, other: _Sum) -> _Sum:
        """Take in what other rows contribute."""
        self.total += other.total
        self.moved = max(self.moved, other.moved)
        self.rows += other.rows
        self.squares += other.squares
        self.longest = max(self.longest, other.longest)
        return self


@dataclass(frozen=True, eq=False, repr=False)
class PiecedTotal:
    """A sum that has no noise yet: keep it secret.

    Attributes:
        found: What the rows contribute.
        scale: The noise that hides it, in steps.
    """

    found: _Sum
    scale: float


@dataclass(frozen=True, eq=False)
class _Steps:
    """The task: a block of rows and labels in whole steps, added up.

    Attributes:
        turned: Takes a row (as a row vector) to h_i, before rounding.
        longest: Largest ‖h_i‖ that can be; beyond it squares would not be exact.
        counted: As the mechanism's ``longest``.
    """

    turned: Float[np.ndarray, "d r"]
    longest: float
    counted: float = np.inf

    def __call__(self, _first: int, block: Any, labels: Integer[np.ndarray, " n"]) -> _Sum:
        """Return the sum of one block."""
        parts = [self._part(values, times_of(labels[part])) for part, values in dense_parts(block)]
        return reduce(_Sum.plus, parts)

    def _part(self, values: Float[np.ndarray, "k d"], times: Int64[np.ndarray, " k"]) -> _Sum:
        """Return the sum of some rows.

        Raises:
            DataError: A row is longer than the noise was made for.
        """
        halves = np.rint(counting_less(values, self.counted) @ self.turned)
        squares = np.einsum("ij,ij->i", halves, halves)
        if not squares.max() <= self.longest**2:  # also NaN
            raise DataError("The input changed while it was read. Nothing was released.")
        # Whole numbers below 2^53 throughout: the products and sums of these floats are exact.
        total = (times.astype(np.float64) @ halves).astype(np.int64)
        sizes = np.einsum("ij,ij->i", values, values)
        moved = int(moves_of(squares.max(keepdims=True).astype(np.int64))[0])
        return _Sum(total, moved, len(values), float(sizes.sum()), float(np.sqrt(sizes.max())))
