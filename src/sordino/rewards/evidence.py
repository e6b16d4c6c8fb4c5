"""What a fit sees of pairs: public vectors, with one sum of answers or the answers themselves.

Everything here is public or already private: a released sum of labels with its noise, or answers
that were randomized one by one. Vectors are in memory or in files; sums over them are one path.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import numpy as np
from jaxtyping import Bool, Float, Integer
from scipy.sparse import csr_array, issparse

from sordino import _validate
from sordino._files import atomic_writer, explained
from sordino._random import SimulatedEntropy, new_secret, normals
from sordino._validate import Square, Vector
from sordino.engines.engine import Rows
from sordino.errors import DataError, UsageError
from sordino.mechanisms.ellipsoid import stacked
from sordino.mechanisms.grid import Matrix, each_added, row_weights
from sordino.preferences.chunk_survey import ChunkSurvey
from sordino.preferences.chunks import Chunk, Chunks, judged_vectors, refuse_kind
from sordino.preferences.comparisons import MEASURING, Comparisons, folds_of, question_numbers
from sordino.preferences.features import Features
from sordino.preferences.pairs import PrivatePairs
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.ledger import provenance

from .pair_losses import (
    DebiasedLogistic,
    debias,
    debiased_covariance,
    debiased_noise,
    debiased_slope,
    weighted_grams,
)
from .solver import ChunkedLoss, Solution

MOST_FEATURES = 1024
"""Most features for which a matrix of features by features is made unasked."""

_SHARE = 0.5  # c: how much noise a part that is fitted gets; the other gets 1/c
_ROWS = 32  # rows a feature that a matrix rests on
_ROWS_OF_ERRORS = 128  # and standard errors
_FLOPS = 1 << 27  # a matrix this cheap takes every row
ANSWER_POWERS = (-3, -2, -1, 0, 1, 2)  # of four, around the ridge that public settings suggest
SUM_POWERS = (*ANSWER_POWERS, 3, 4)


def ridges_around(middle: float, powers: Iterable[int] = ANSWER_POWERS) -> list[float]:
    """Return a ridge for each power of four, around one that public settings suggest."""
    return [middle * 4.0**power for power in powers]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Evidence:
    """What a fit sees where answers are known as one sum; all of it is public.

    The sum is of labels, with noise, or of randomized answers, each debiased.
    """

    differences: Rows  # x, one row for each pair that counts, in memory or in files
    statistic: Vector  # T̃ = Σ wyx, w = min(1, longest/‖x‖), with its noise
    # F; the noise that was added to the sum has covariance V = FFᵀ. None where none was, and each
    # answer was randomized.
    factor: Float[np.ndarray, "d r"] | None = None
    flip_probability: float = 0.0  # chance that an answer in the sum is not the judgment
    feature_bound: float  # bound L on the norm of one answer's features
    # How far the grid moved the sum at most, in standard deviations of the noise.
    rounding: float = 0.0
    inflation: float = 1.0  # variance of T̃ over that of the released sum: above 1 for a part of it
    longest: float = np.inf  # rows that are longer count less; with infinity every one counts 1
    known_squares: float | None = None  # Σ‖x‖², where it was measured with the sum

    def __len__(self) -> int:
        return int(self.differences.shape[0])

    def __repr__(self) -> str:
        return f"Evidence(n={len(self)}, d={len(self.statistic)})"

    @cached_property
    def loss(self) -> DebiasedLogistic | ChunkedLoss:
        """Return the loss that answers enter through their sum alone."""
        part = self.statistic * (self.sample.shape[0] / len(self))
        sample = DebiasedLogistic.of_statistic(self.sample, part, self.weights)
        if self.differences.held is not None:
            return sample
        return ChunkedLoss(self.differences, self.statistic, longest=self.longest, sample=sample)

    def _step(self, n: int) -> int:
        """Return which of n rows a matrix rests on: every so many-th."""
        d = len(self.statistic)
        return max(1, n // max(_ROWS * d, _FLOPS // d**2))

    @cached_property
    def sample(self) -> Matrix:
        """Return the rows in memory; of files evenly spaced ones, enough for matrices: one pass."""
        if self.differences.held is not None:
            return cast("Matrix", self.differences.held)
        return self.differences.fold(partial(_every, self._step(len(self))), stacked)

    @cached_property
    def weights(self) -> Float[np.ndarray, " m"]:
        """Return w, how much each row of the sample counts."""
        return row_weights(self.sample, self.longest)

    @property
    def covariance(self) -> Square | None:
        """Return V, the covariance of the noise that was added; None where none was."""
        return None if self.factor is None else np.asarray(self.factor @ self.factor.T)

    @property
    def squares(self) -> float:
        """Return Σ‖x‖², the trace of G."""
        if self.known_squares is None:
            return float((self.sample**2).sum())
        return self.known_squares

    @property
    def public_ridge(self) -> float:
        """Return the ridge that public numbers suggest, which no answer decides."""
        # L² is the prior that a reward of one answer is about 1 (θ ∼ N(0, I/L²)), inflated as much
        # as noise inflates the variance of the sum: tr(G/4 + V)/tr(G/4) times, or 1/κ² times.
        if self.factor is None:
            return (self.feature_bound / (1 - 2 * self.flip_probability)) ** 2
        added = float(np.sum(self.factor**2))
        return self.feature_bound**2 * (1 + 4 * added / self.squares)

    def ridges(self) -> list[float]:
        """Return the ridges that are tried: powers of four around the public one."""
        powers = ANSWER_POWERS if self.factor is None else SUM_POWERS
        return ridges_around(self.public_ridge, powers)

    def value(self, found: Solution) -> float:
        """Return the loss at a solution, without its ridge."""
        if found.value is not None:
            return found.value
        assert isinstance(self.loss, DebiasedLogistic)  # noqa: S101 - in files it is known
        return self.loss.value(found.theta)

    def mean_and_spread(self, theta: Vector) -> tuple[Square, Square]:
        """Return Σ wa(θᵀx)xxᵀ, which takes θ to the mean of T̃ − Σwx/2; and the covariance of T̃."""
        # Source: docs/central.md, "Label privacy, one Gaussian release"; a of `_secant_slope`.
        margins = np.asarray(self.sample @ theta)
        bends = self.weights * _secant_slope(margins)
        mean, drawn = self._grams(bends, self.weights**2 * debiased_slope(margins))
        return mean, self.inflation * self._with_noise(drawn)

    def optimism(self, solution: Solution, ridge: float) -> float:
        """Return by how much a fit flatters itself on the sum it was made of."""
        # Source: docs/central.md, "Label privacy, one Gaussian release": tr[(H + ΛI)⁻¹S], S = H + V
        # the covariance of T̃ or, of randomized answers, Σ p(1 − p)/κ² xxᵀ; from Stein's identity,
        # the trace of ∂θ̂/∂T̃ · Cov(T̃). Where the ball binds, with its multiplier in Λ and without
        # the direction of θ̂, in which the fit cannot move.
        margins = np.asarray(self.sample @ solution.theta)
        noise = debiased_noise(margins, self.flip_probability)
        bend, drawn = self._grams(self.weights * debiased_slope(margins), self.weights * noise)
        shift = ridge + solution.multiplier
        response = np.linalg.inv(bend + shift * np.eye(len(bend)))
        if solution.multiplier > 0:
            along = response @ solution.theta
            response -= np.outer(along, along) / (solution.theta @ along)
        return self.inflation * float(np.sum(response * self._with_noise(drawn)))

    def scatter(self, solution: Solution, ridge: float) -> Square:
        """Return the asymptotic covariance of the estimate."""
        n, d = self.differences.shape
        whole = self.differences.held is None  # what was read of files is a sample
        return debiased_covariance(
            self.sample,
            solution.theta,
            self.flip_probability,
            noise=self.covariance,
            ridge=ridge + solution.multiplier,
            longest=self.longest,
            step=1 if whole else max(1, n // (_ROWS_OF_ERRORS * d)),
            n=n,
        )

    def variance_along(self, theta: Vector) -> float:
        """Return θᵀ(H + V)θ, the variance of T̃ᵀθ; no matrix is made."""
        # Source: docs/central.md, "Label privacy, one Gaussian release".
        assert self.factor is not None  # noqa: S101 - for the type checker
        margins = np.asarray(self.sample @ theta)
        drawn = float(debiased_slope(margins) @ (self.weights * margins) ** 2)
        return drawn + float(np.sum((theta @ self.factor) ** 2))

    def thinned(self, theta: Vector, draws: int, purpose: str) -> list[Thinned]:
        """Return pairs of independent parts of T̃, to fit on and to judge by, several times."""
        # The split is drawn from what was released, so it hides nothing and needs no entropy: it
        # comes from a digest of T̃, and the same T̃ is always split the same way.
        # Source: docs/central.md, "Label privacy, one Gaussian release": T₁ = T̃ + cξ, T₂ = T̃ −
        # ξ/c, ξ ~ N(0, H + V).
        assert self.factor is not None  # noqa: S101 - for the type checker
        digest = hashlib.sha256(purpose.encode() + b"\n" + self.statistic.tobytes()).digest()
        entropy = SimulatedEntropy(int.from_bytes(digest[:8], "big"))
        spreads = self.weights * np.sqrt(debiased_slope(np.asarray(self.sample @ theta)))
        parts = []
        for _ in range(draws):
            drawn = self.sample.T @ (spreads * normals(entropy, len(self)))
            drawn += self.factor @ normals(entropy, self.factor.shape[1])
            fitted = replace(
                self, statistic=self.statistic + _SHARE * drawn, inflation=1 + _SHARE**2
            )
            parts.append(Thinned(fitted, judged=self.statistic - drawn / _SHARE))
        return parts

    def _grams(self, *weights: Float[np.ndarray, " m"]) -> list[Square]:
        """Return Σ wxxᵀ for each list of weights, from enough rows."""
        step = self._step(self.sample.shape[0])  # 1 where they are a sample
        share = len(range(0, self.sample.shape[0], step)) / len(self)
        return [
            np.asarray(total / share) for total in weighted_grams(self.sample, *weights, step=step)
        ]

    def _with_noise(self, drawn: Square) -> Square:
        """Return the covariance of answers with that of the noise that was added."""
        return drawn if self.covariance is None else drawn + self.covariance


def _every(step: int, first: int, block: Any, *_: object) -> Float[np.ndarray, "k d"]:
    """Return the rows of a block whose number is a multiple of the step."""
    kept = block[-first % step :: step]
    return np.asarray(kept.toarray() if issparse(kept) else kept)


@dataclass(frozen=True, eq=False)
class Thinned:
    """Two parts of one released sum, each of them unbiased and independent of the other."""

    fitted: Evidence  # evidence with T₁
    judged: Vector  # T₂, by which a fit on T₁ is judged

    def score(self, theta: Vector) -> float:
        """Return the loss of weights from T₁ on T₂, summed: unbiased for fresh answers."""
        # Source: docs/central.md, "Label privacy, one Gaussian release".
        loss = self.fitted.loss
        assert isinstance(loss, DebiasedLogistic)  # noqa: S101 - files are not thinned
        return replace(loss, pull=self.judged).value(theta)


Measure = Callable[[Vector], tuple[Square, Square]]
"""From weights θ to Σ a(θᵀx)xxᵀ, a of :func:`_secant_slope`, and the covariance of the sum."""

USUAL_SPREAD = 0.8277372510614669
"""Spread of reward differences at which a perfect reward predicts 65% of judgments: no more is
assumed before anything is known."""

_ROUNDS = 3  # of the curvature, which depends on the weights; a fourth changes nothing
_POWERS = np.arange(-10, 9) / 2  # of two: widths of the prior over the usual one
_DOUBTS = np.array([0.25, 2.0])  # standard deviations of the logarithm of that width,
_BELIEFS = np.array([0.9, 0.1])  # and how likely each: people agree about as usual, or not at all
_RANK = 1e-9  # of the largest variance: below it nothing is released along a direction


def _secant_slope(margins: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return (σ(m) − ½)/m, which takes a margin to its expected answer; ¼ at 0."""
    # Source: docs/central.md, "Label privacy, one Gaussian release".
    small = np.abs(margins) < 1e-6  # noqa: PLR2004 (where the quotient rounds to its limit)
    known = np.where(small, 1.0, margins)
    return np.asarray(np.where(small, debiased_slope(margins), np.tanh(known / 2) / (2 * known)))


def shrunk_weights(theta: Vector, ridge: float, measure: Measure, *, mean_square: float) -> Vector:
    """Return the mean of the weights given what was released; it costs nothing more."""
    # A fit of a noised sum takes every direction alike, but the noise is known: its covariance is
    # public. So the most that can be learned is the mean of the weights given what was released,
    # for a prior that all directions share; how wide it is, the release says by its likelihood.
    # Source: docs/central.md, "Label privacy, one Gaussian release": s = (A + ΛI)θ̂ is the released
    # sum without its mean, s ∼ N(Aθ, C); with θ ∼ N(0, τ²I) the mean of θ is τ²Aᵀ(τ²AAᵀ + C)⁻¹s. Of
    # τ the mean is taken by its likelihood, log τ ∼ .9 N(log τ₀, ¼²) + .1 N(log τ₀, 2²).
    total = measure(theta)[0] @ theta + ridge * theta
    usual = USUAL_SPREAD / np.sqrt(mean_square)
    weights = np.zeros(len(theta))
    widths = usual * 2.0**_POWERS
    for _ in range(_ROUNDS):
        bend, spread = measure(weights)
        variances, directions = np.linalg.eigh(spread)
        known = variances > _RANK * variances[-1]
        whiten = (directions[:, known] / np.sqrt(variances[known])).T
        left, sizes, right = np.linalg.svd(whiten @ bend, full_matrices=False)
        seen = left.T @ (whiten @ total)
        gains = 1 + np.outer(widths, sizes) ** 2
        logs = -0.5 * np.sum(np.log(gains) + seen**2 / gains, axis=1)
        apart = np.log(widths / widths[list(_POWERS).index(0)])[:, np.newaxis]
        logs += np.log(np.exp(-0.5 * (apart / _DOUBTS) ** 2) @ (_BELIEFS / _DOUBTS))
        chances = np.exp(logs - logs.max())
        shares = chances / chances.sum() @ (widths[:, np.newaxis] ** 2 * sizes / gains)
        weights = np.asarray(right.T @ (shares * seen))
    return weights


def counted_vectors(
    survey: ChunkSurvey, features: Features | None, *, answers: bool = False
) -> Rows:
    """Return the feature differences of the rows that count, with labels or answers beside them."""
    shape = survey.counted, width_of(survey.chunks, features)
    read: Callable[[Chunk], Iterator[_Block]] = partial(_counted, survey, features, answers)
    if features is not None and not survey.chunks.hides_records:  # else texts are private, too
        read = _Kept(read, shape[1], survey.folder, new_secret())
    return Rows(survey.engine, survey.chunks, read, shape, survey.taken)


_Block = tuple[int, Any, Integer[np.ndarray, " k"]]
"""(number of the first row, differences, labels) of some rows that count."""


def _counted(
    survey: ChunkSurvey, features: Features | None, answers: object, chunk: Chunk
) -> Iterator[_Block]:
    """Yield the rows of a chunk that count; of texts, refuse others than were surveyed."""
    refuse_kind(survey.chunks, privatized=bool(answers))
    start = survey.starts[chunk.number] - survey.selection.before(chunk.number)
    blocks: Iterator[tuple[tuple[Matrix, Integer[np.ndarray, " n"]], Bool[np.ndarray, " n"]]]
    if features is None:
        vectors = judged_vectors(survey.chunks, chunk)
        blocks = survey.counting(chunk, vectors, lambda block: len(block[1]))
    else:
        texts = ((batch.whole, counts) for batch, counts in survey.read(chunk))
        blocks = (((one.differences(features), one.labels), counts) for one, counts in texts)
    for (rows, labels), counts in blocks:
        kept = rows if counts.all() else rows[np.flatnonzero(counts)]
        if kept.shape[0]:
            numbers = kept.data if issparse(kept) else kept
            _validate.finite_array("features", np.ravel(numbers), ndim=1)
            yield start, kept, labels[counts]
            start += kept.shape[0]


@dataclass(frozen=True)
class _Kept:
    """Vectors of texts, made once: a fit reads them some twenty times."""

    # Texts are public where labels are to be hidden, so vectors may lie in the folder of the survey
    # as they are. Labels lie there hidden by a secret that only tasks of this run know.

    read: Callable[[Chunk], Iterator[_Block]]  # from the texts
    width: int
    folder: str  # where they are kept, as long as it is there
    secret: bytes = field(repr=False)

    def __call__(self, chunk: Chunk) -> Iterator[_Block]:
        """Yield the rows of a chunk that count."""
        if not Path(self.folder).is_dir():
            yield from self.read(chunk)
            return
        chunk.refuse_change()
        name = hashlib.sha256(self.secret).hexdigest()[:16]
        path = Path(self.folder) / f"{chunk.number:08d}-{name}.vectors"
        if not path.exists():
            with atomic_writer(path, force=True, held=False) as file:
                for start, rows, labels in self.read(chunk):
                    parts = (rows.data, rows.indices, rows.indptr) if issparse(rows) else (rows,)
                    hidden = self._turned(chunk, start, labels)
                    for part in (np.array([start, len(parts)]), hidden, *parts):
                        np.save(file, part, allow_pickle=False)
        with explained("A file of vectors cannot be read"), path.open("rb") as kept:
            size = path.stat().st_size
            while kept.tell() < size:
                start, many = np.load(kept, allow_pickle=False).tolist()
                labels, *read = (np.load(kept, allow_pickle=False) for _ in range(many + 1))
                rows = read[0] if many == 1 else csr_array(tuple(read), (len(labels), self.width))
                yield start, rows, self._turned(chunk, start, labels)

    def _turned(
        self, chunk: Chunk, start: int, labels: Integer[np.ndarray, " k"]
    ) -> Integer[np.ndarray, " k"]:
        """Return labels hidden, or hidden ones as they were."""
        name = self.secret + chunk.number.to_bytes(8, "big") + start.to_bytes(8, "big")
        pad = np.frombuffer(hashlib.shake_256(name).digest(labels.nbytes), labels.dtype)
        return np.asarray(labels ^ pad)


def verified(rows: Rows, survey: ChunkSurvey) -> Rows:
    """Return rows that are refused if what is public of their file is not what was surveyed."""
    # Which rows of a person count was decided then: in other files too many might.
    return replace(rows, read=partial(_verified, rows.read, survey))


def _verified(
    read: Callable[[Any], Iterable[tuple[Any, ...]]], survey: ChunkSurvey, chunk: Chunk
) -> Iterator[tuple[Any, ...]]:
    """Yield the blocks of a chunk; after the last one, compare the chunk with the survey."""
    yield from read(chunk)
    for _ in survey.read(chunk):
        pass  # it says if they are others


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


def _sums(_first: int, block: Any, answers: Integer[np.ndarray, " n"]) -> list[np.ndarray]:
    """Return Σ zx, Σ x, how many rows and the largest ‖x‖² of one block; z are the answers."""
    lengths = block.power(2).sum(axis=1) if issparse(block) else (block**2).sum(axis=1)
    agreed, total = block.T @ answers.astype(np.float64), block.sum(axis=0)
    sums = [np.asarray(agreed).ravel(), np.asarray(total).ravel(), np.array(len(answers))]
    return [*sums, np.max(lengths)]


def added_and_largest(one: list[np.ndarray], other: list[np.ndarray]) -> list[np.ndarray]:
    """Return the sums of two parts, and the larger of what stands last."""
    return [*each_added(one[:-1], other[:-1]), np.maximum(one[-1], other[-1])]


def evidence_of_answers(rows: Rows, features: Features | None, flips: float) -> Evidence:
    """Return what a fit sees: Σ ỹx = (Σ zx − f Σ x)/κ, and the bound of the features."""
    agreed, total, count, longest = rows.fold(_sums, added_and_largest)
    if count != rows.shape[0]:
        raise DataError("The input changed while it was read. Nothing was fitted.")
    bound = float(np.sqrt(longest)) / 2 if features is None else features.feature_bound
    return Evidence(
        differences=rows,
        statistic=(agreed - flips * total) / (1 - 2 * flips),
        feature_bound=bound,
        flip_probability=flips,
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Design:
    """What a fit sees: feature differences, randomized answers, and who belongs together."""

    # One row per (person, question): a memoized repeat is the same observation.

    differences: Float[np.ndarray, "n d"] | csr_array
    answers: Integer[np.ndarray, " n"]
    flip_probability: float
    feature_bound: float
    questions: Integer[np.ndarray, " n"]
    clusters: Integer[np.ndarray, " n"] | None

    @classmethod
    def of(cls, pairs: PrivatePairs, features: Features | None) -> Design:
        """Return the design of private pairs; repeats of one person are left out."""
        once = np.flatnonzero(pairs.first_rows())
        differences = pairs.differences(features)
        clusters = None
        if pairs.persons is not None:
            clusters = np.unique(np.asarray(pairs.persons), return_inverse=True)[1][once]
        return cls(
            differences=differences[once],
            answers=pairs.answers[once],
            flip_probability=pairs.flip_probability,
            feature_bound=longest_row(differences) / 2
            if features is None
            else features.feature_bound,
            questions=question_numbers(pairs.keys)[once],
            clusters=clusters,
        )

    def __len__(self) -> int:
        return len(self.answers)

    def __repr__(self) -> str:
        return f"Design(n={len(self)}, d={self.differences.shape[1]})"

    @property
    def loss(self) -> DebiasedLogistic:
        """Return the debiased loss of all observations."""
        targets = debias(self.answers, self.flip_probability)
        return DebiasedLogistic(self.differences, targets=targets)

    def part(self, rows: Bool[np.ndarray, " n"]) -> Design:
        """Return some of the observations."""
        index = np.flatnonzero(rows)
        return replace(
            self,
            differences=self.differences[index],
            answers=self.answers[index],
            questions=self.questions[index],
            clusters=None if self.clusters is None else self.clusters[index],
        )

    def folds(self, level: int) -> Integer[np.ndarray, " n"]:
        """Return a fold for every row, by its question alone, so that repeats stay together."""
        # `level` tells the folds that measure from those that choose.
        return folds_of(self.questions, level)


def refuse_too_few(pairs: Comparisons) -> None:
    """Refuse pairs of which none can be held out, from public fields, before anything is spent."""
    if len(np.unique(folds_of(question_numbers(pairs.keys), MEASURING))) < 2:  # noqa: PLR2004 (in and out)
        raise DataError(
            f"{len(pairs)} pairs are too few different questions to measure anything on held-out "
            "ones; a dozen is the least. Nothing was spent."
        )


def longest_row(differences: Matrix) -> float:
    """Return the largest ‖x‖; features are public under a label guarantee, so it may be used."""
    return float(np.sqrt((differences**2).sum(axis=1).max()))


Known = TypeVar("Known")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Released(Generic[Known]):
    """All that is known of judgments after their release: everything done with it is free."""

    evidence: Known  # what was released, and the public vectors it is about
    guarantee: Guarantee  # what the release promises
    artifact: str  # SHA-256 of what was released
    features: Features | None  # turns texts into vectors; None if pairs were made from features
    pairs: int  # how many there are
    release_ids: tuple[str, ...] = ()  # ledger entries that paid
    method: str | None = None  # how a reward says that it was fitted; None: by which likelihood

    def __repr__(self) -> str:
        return f"Released({self.evidence!r}, {self.guarantee})"

    @classmethod
    def of_answers(cls, pairs: PrivatePairs, features: Features | None) -> Released[Design]:
        """Return what is known of answers that were randomized one by one."""
        return Released(
            evidence=Design.of(pairs, features),
            features=features,
            pairs=len(pairs),
            **provenance(pairs),
        )
