"""What a fit sees of labels in many files after their release, and how it reads the vectors.

What a fit sees of randomized answers in many files: their vectors, and one debiased sum.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from jaxtyping import Float, Integer
from scipy.sparse import issparse

from sordino import _validate
from sordino.engines.engine import ChunkedRows, Engine, Taken
from sordino.errors import DataError, UsageError
from sordino.mechanisms.grid import row_weights
from sordino.preferences.chunk_reading import answered_vectors, judged_vectors
from sordino.preferences.chunk_survey import ChunkSurvey, digest_of_chunk
from sordino.preferences.chunks import Chunk, Chunks
from sordino.preferences.features import Features

from .covariance import answer_sum_covariance, debiased_covariance, debiased_noise, debiased_slope
from .evidence import secant_slope
from .newton import ChunkedLoss
from .pair_losses import weighted_grams
from .ridge_selection import effective_features, label_ridges, optimism, ridges
from .solver import Solution

_ROWS = 32  # rows a feature that a matrix rests on
_FLOPS = 1 << 27  # a matrix this cheap takes more of them


def counted_vectors(
    survey: ChunkSurvey,
    engine: Engine,
    features: Features | None,
    *,
    answers: bool = False,
    taken: Taken | None = None,
) -> ChunkedRows:
    """Return the feature differences of the rows that count, with labels or answers beside them."""
    shape = survey.counted, width_of(survey.chunks, features)
    read = _Counted(survey, features, answers)
    return ChunkedRows(engine, survey.chunks.chunks, read, shape, taken)


def verified(rows: ChunkedRows, survey: ChunkSurvey) -> ChunkedRows:
    """Return rows that are refused if what is public of their file is not what was surveyed."""
    # Which rows of a person count was decided then: in other files too many might.
    return replace(rows, read=_Verified(rows.read, survey))


@dataclass(frozen=True)
class _Verified:
    """From a chunk to its blocks; after the last one, the chunk is compared with the survey."""

    read: Callable[[Any], Iterable[tuple[Any, ...]]]
    survey: ChunkSurvey

    def __call__(self, chunk: Chunk) -> Iterator[tuple[Any, ...]]:
        """Yield the blocks."""
        yield from self.read(chunk)
        if digest_of_chunk(self.survey.chunks, chunk) != self.survey.digests[chunk.number]:
            raise DataError(f"{chunk.name} changed while it was read. Nothing was released.")


def width_of(chunks: Chunks, features: Features | None) -> int:
    """Return how many features the records of many files have."""
    if (chunks.dimension is None) == (features is None):
        raise UsageError(
            "features must be given for files of texts, and left out for files of vectors."
        )
    d = chunks.dimension if features is None else features.dimension
    assert d is not None  # noqa: S101 - for the type checker
    _validate.refuse_unholdable("dimension", d, 4 * d**2)
    return d


@dataclass(frozen=True)
class _Counted:
    """From a chunk to its blocks of rows that count."""

    survey: ChunkSurvey
    features: Features | None
    answers: bool

    def __call__(self, chunk: Chunk) -> Iterator[tuple[int, Any, Integer[np.ndarray, " k"]]]:
        """Yield (number of the first row, differences, labels)."""
        out = self.survey.selection.left_out(chunk.number)
        first, start = 0, self.survey.starts[chunk.number] - self._left_out_before(chunk)
        read = answered_vectors if self.answers else judged_vectors
        for rows, labels in read(self.survey.chunks, chunk, self.features):
            counts = np.ones(len(labels), dtype=bool)
            counts[out[(out >= first) & (out < first + len(labels))] - first] = False
            first += len(labels)
            kept = rows if counts.all() else rows[np.flatnonzero(counts)]
            if kept.shape[0]:
                yield start, _finite(kept), labels[counts]
                start += kept.shape[0]

    def _left_out_before(self, chunk: Chunk) -> int:
        """Return how many rows of earlier chunks do not count."""
        return self.survey.selection.before(chunk.number)


def _finite(rows: Any) -> Any:
    """Return rows; refuse what is not finite."""
    _validate.finite_array("features", np.ravel(rows.data if issparse(rows) else rows), ndim=1)
    return rows


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ChunkedEvidence:
    """What a fit sees of many files: public vectors, and what is known of Σ yx."""

    rows: ChunkedRows  # x of the pairs that count
    statistic: Float[np.ndarray, " d"]  # what is known of Σ yx
    feature_bound: float  # bound L on the norm of one answer's features
    longest: float = np.inf  # rows that are longer count less; with infinity every one counts 1

    def __len__(self) -> int:
        """Return the number of pairs that count."""
        return self.rows.shape[0]

    def __repr__(self) -> str:
        """Return the size."""
        return f"{type(self).__name__}(n={len(self)}, d={len(self.statistic)})"

    @property
    def loss(self) -> ChunkedLoss:
        """Return the loss that answers enter through their sum alone."""
        return ChunkedLoss(self.rows, self.statistic, longest=self.longest)

    @property
    def step(self) -> int:
        """Return which rows the sample takes: every so many-th."""
        n, d = self.rows.shape
        return max(1, n // max(_ROWS * d, _FLOPS // d**2))

    @cached_property
    def sample(self) -> Float[np.ndarray, "m d"]:
        """Return evenly spaced rows, enough for matrices and a start; one pass."""
        return np.asarray(self.rows.fold(partial(_every, self.step), _stacked))

    @cached_property
    def weights(self) -> Float[np.ndarray, " m"]:
        """Return how much each row of the sample counts."""
        return row_weights(self.sample, self.longest)

    @property
    def share(self) -> float:
        """Return how much of the rows the sample is."""
        return len(self.sample) / len(self)

    def information(self, theta: Float[np.ndarray, " d"]) -> Float[np.ndarray, "d d"]:
        """Return H = Σ σ′(θᵀx)xxᵀ: the curvature, and the variance of Σ yx; from the sample."""
        # Source: docs/central.md, "Label privacy, one Gaussian release".
        slopes = debiased_slope(self.sample @ theta)
        [total] = weighted_grams(self.sample, self.weights * slopes)
        return np.asarray(total / self.share)

    @abstractmethod
    def ridges(self) -> list[float]:
        """Return the ridges that are tried, from public numbers alone."""

    @abstractmethod
    def optimism(self, solution: Solution, ridge: float) -> float:
        """Return by how much a fit flatters itself on the sum it was made of."""

    @abstractmethod
    def scatter(self, theta: Float[np.ndarray, " d"], ridge: float) -> Float[np.ndarray, "d d"]:
        """Return the covariance of the estimate, with what the ball adds to the ridge in it."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RawEvidence(ChunkedEvidence):
    """What a fit sees after all labels of many files were released as one sum; it is public."""

    factor: Float[np.ndarray, "d r"]  # F; the noise has covariance V = FFᵀ
    rounding: float  # how far the grid moved the sum at most, in standard deviations of the noise
    squares: float  # Σ‖x‖²
    inflation: float = 1.0  # 1: the sum is whole

    @property
    def covariance(self) -> Float[np.ndarray, "d d"]:
        """Return V, the covariance of the noise."""
        return np.asarray(self.factor @ self.factor.T)

    def mean_and_spread(
        self, theta: Float[np.ndarray, " d"]
    ) -> tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "d d"]]:
        """Return what :class:`~sordino.rewards.evidence.LabelEvidence` does, by the sample."""
        # Source: docs/central.md, "Label privacy, one Gaussian release".
        margins = self.sample @ theta
        slopes = self.weights * secant_slope(margins), self.weights**2 * debiased_slope(margins)
        both = weighted_grams(self.sample, *slopes)
        return np.asarray(both[0] / self.share), np.asarray(both[1] / self.share + self.covariance)

    def ridges(self) -> list[float]:
        """Return what :func:`~sordino.rewards.ridge_selection.label_ridges` says."""
        return label_ridges(self)

    def optimism(self, solution: Solution, ridge: float) -> float:
        """Return tr[(H + ΛI)⁻¹(H + V)]."""
        # Source: docs/central.md, "Label privacy, one Gaussian release".
        return effective_features(self, solution, ridge)

    def scatter(self, theta: Float[np.ndarray, " d"], ridge: float) -> Float[np.ndarray, "d d"]:
        """Return the covariance of the estimate, whatever the labels were."""
        # Source: docs/central.md, "Label privacy, one Gaussian release": (H + ΛI)⁻¹(G/4 + V)(H +
        # ΛI)⁻¹, H and G from the sample.
        share = self.share  # H, G, V and Λ are all smaller by it in the sample
        noise = self.covariance * share
        return share * answer_sum_covariance(
            self.sample, theta, noise, ridge=ridge * share, longest=self.longest
        )


def _every(step: int, first: int, block: Any, *_: Any) -> Float[np.ndarray, "k d"]:
    """Return the rows of a block whose number is a multiple of the step."""
    kept = block[-first % step :: step]
    return np.asarray(kept.toarray() if issparse(kept) else kept)


def _stacked(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the rows of one block above those of another."""
    return np.concatenate([one, other])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AnswerEvidence(ChunkedEvidence):
    """What a fit sees of randomized answers in many files."""

    flip_probability: float  # chance that an answer is not the judgment

    def ridges(self) -> list[float]:
        """Return what :func:`~sordino.rewards.ridge_selection.ridges` says."""
        return ridges(self.feature_bound, self.flip_probability)

    def noise(self, theta: Float[np.ndarray, " d"]) -> Float[np.ndarray, "d d"]:
        """Return N = Σ p(1 − p)/κ² xxᵀ, the covariance of Σ ỹx; from the sample."""
        # Source: docs/local.md, standard errors.
        variances = debiased_noise(self.sample @ theta, self.flip_probability)
        [total] = weighted_grams(self.sample, variances)
        return np.asarray(total / self.share)

    def optimism(self, solution: Solution, ridge: float) -> float:
        """Return tr[(H + ΛI)⁻¹N]."""
        # Source: docs/central.md, "Label privacy, one Gaussian release", with N for H + V.
        theta = solution.theta
        return optimism(self.information(theta), self.noise(theta), solution, ridge)

    def scatter(self, theta: Float[np.ndarray, " d"], ridge: float) -> Float[np.ndarray, "d d"]:
        """Return the covariance of the estimate, as if θ were true."""
        # Source: docs/local.md, standard errors: A⁻¹E[p(1 − p)/κ² xxᵀ]A⁻¹/n, from the sample.
        share = self.share
        covariance = debiased_covariance(
            self.sample, theta, self.flip_probability, ridge=ridge * share
        )
        return share * covariance


@dataclass(eq=False)
class _Sums:
    """What some answers add up to."""

    agreed: Float[np.ndarray, " d"]  # Σ zx, z the randomized answer
    total: Float[np.ndarray, " d"]  # Σ x
    longest: float  # the largest ‖x‖²
    rows: int  # how many

    def plus(self, other: _Sums) -> _Sums:
        """Return the sums of both."""
        return _Sums(
            self.agreed + other.agreed,
            self.total + other.total,
            max(self.longest, other.longest),
            self.rows + other.rows,
        )


def _sums(_first: int, block: Any, answers: Integer[np.ndarray, " n"]) -> _Sums:
    """Return what the answers of one block add up to."""
    lengths = block.power(2).sum(axis=1) if issparse(block) else (block**2).sum(axis=1)
    return _Sums(
        np.asarray(block.T @ answers.astype(np.float64)).ravel(),
        np.asarray(block.sum(axis=0)).ravel(),
        float(np.max(lengths)),
        len(answers),
    )


def evidence_of_answers(
    rows: ChunkedRows, features: Features | None, flips: float
) -> AnswerEvidence:
    """Return what a fit sees: Σ ỹx = (Σ zx − f Σ x)/κ, and the bound of the features."""
    found = rows.fold(_sums, _Sums.plus)
    if found.rows != rows.shape[0]:
        raise DataError("The input changed while it was read. Nothing was fitted.")
    bound = float(np.sqrt(found.longest)) / 2 if features is None else features.feature_bound
    return AnswerEvidence(
        rows=rows,
        statistic=(found.agreed - flips * found.total) / (1 - 2 * flips),
        feature_bound=bound,
        flip_probability=flips,
    )
