"""What a fit sees of labels in many files after their release, and how it reads the vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from jaxtyping import Float, Integer
from scipy.sparse import issparse

from sordino import _validate
from sordino.engines.engine import Engine, Taken
from sordino.engines.rows import PiecedRows
from sordino.errors import UsageError
from sordino.preferences.features import Features
from sordino.preferences.shard_blocks import judged_vectors
from sordino.preferences.shard_survey import ShardSurvey
from sordino.preferences.shards import Piece
from sordino.rewards._gram import weighted_grams
from sordino.rewards.covariance import debiased_slope
from sordino.rewards.sharded.newton import PiecedLoss

__all__ = ["ShardEvidence", "counted_vectors"]

_ROWS = 32  # rows a feature that a matrix rests on
_FLOPS = 1 << 27  # a matrix this cheap takes more of them


def counted_vectors(
    survey: ShardSurvey,
    engine: Engine,
    features: Features | None,
    *,
    taken: Taken | None = None,
) -> PiecedRows:
    """Return the feature differences of the rows that count, with their labels beside them.

    Raises:
        UsageError: Features are missing, or were given for files that hold vectors.
    """
    shards = survey.shards
    if (shards.dimension is None) == (features is None):
        raise UsageError(
            "features must be given for files of texts, and left out for files of vectors."
        )
    d = shards.dimension if features is None else features.dimension
    assert d is not None  # noqa: S101 - for the type checker
    read = _Counted(survey, features)
    return PiecedRows(engine, shards.pieces, read, (survey.counted, d), taken)


@dataclass(frozen=True)
class _Counted:
    """From a piece to its blocks of rows that count."""

    survey: ShardSurvey
    features: Features | None

    def __call__(self, piece: Piece) -> Iterator[tuple[int, Any, Integer[np.ndarray, " k"]]]:
        """Yield (number of the first row, differences, labels)."""
        out = self.survey.selection.left_out(piece.number)
        first, start = 0, self.survey.starts[piece.number] - self._left_out_before(piece)
        for rows, labels in judged_vectors(self.survey.shards, piece, self.features):
            counts = np.ones(len(labels), dtype=bool)
            counts[out[(out >= first) & (out < first + len(labels))] - first] = False
            first += len(labels)
            kept = rows if counts.all() else rows[np.flatnonzero(counts)]
            if kept.shape[0]:
                yield start, _finite(kept), labels[counts]
                start += kept.shape[0]

    def _left_out_before(self, piece: Piece) -> int:
        """Return how many rows of earlier pieces do not count."""
        return self.survey.selection.before(piece.number)


def _finite(rows: Any) -> Any:
    """Return rows; refuse what is not finite."""
    _validate.finite_array("features", np.ravel(rows.data if issparse(rows) else rows), ndim=1)
    return rows


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ShardEvidence:
    """What a fit sees after all labels of many files were released as one sum; it is public.

    Attributes:
        rows: x of the pairs that count.
        statistic: T̃ = Σ yx + noise.
        factor: F; the noise has covariance V = FFᵀ.
        feature_bound: Bound L on the norm of one answer's features.
        rounding: How far the grid moved the sum at most, in standard deviations of the noise.
        squares: Σ‖x‖².
        inflation: 1: the sum is whole.
    """

    rows: PiecedRows
    statistic: Float[np.ndarray, " d"]
    factor: Float[np.ndarray, "d r"]
    feature_bound: float
    rounding: float
    squares: float
    inflation: float = 1.0

    def __len__(self) -> int:
        """Return the number of pairs that count."""
        return self.rows.shape[0]

    def __repr__(self) -> str:
        """Return the size."""
        return f"ShardEvidence(n={len(self)}, d={len(self.statistic)})"

    @property
    def loss(self) -> PiecedLoss:
        """Return the loss that answers enter through their sum alone."""
        return PiecedLoss(self.rows, self.statistic)

    @property
    def covariance(self) -> Float[np.ndarray, "d d"]:
        """Return V, the covariance of the noise."""
        return np.asarray(self.factor @ self.factor.T)

    @property
    def step(self) -> int:
        """Return which rows the sample takes: every so many-th."""
        n, d = self.rows.shape
        return max(1, n // max(_ROWS * d, _FLOPS // d**2))

    @cached_property
    def sample(self) -> Float[np.ndarray, "m d"]:
        """Return evenly spaced rows, enough for matrices and a start; one pass."""
        return np.asarray(self.rows.fold(partial(_every, self.step), _stacked))

    def information(self, theta: Float[np.ndarray, " d"]) -> Float[np.ndarray, "d d"]:
        """Return H = Σ σ′(θᵀx)xxᵀ: the curvature, and the variance of Σ yx; from the sample.

        Source:
            docs/central.md, "Label privacy, one Gaussian release".
        """
        [total] = weighted_grams(self.sample, debiased_slope(self.sample @ theta))
        return np.asarray(total * (len(self) / len(self.sample)))


def _every(step: int, first: int, block: Any, *_: Any) -> Float[np.ndarray, "k d"]:
    """Return the rows of a block whose number is a multiple of the step."""
    kept = block[-first % step :: step]
    return np.asarray(kept.toarray() if issparse(kept) else kept)


def _stacked(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the rows of one block above those of another."""
    return np.concatenate([one, other])
