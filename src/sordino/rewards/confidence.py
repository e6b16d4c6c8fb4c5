"""The set around an estimate that holds the truth, with an explicit radius.

Only what was released and public numbers enter, so a set costs nothing. It is about the debiased
estimate inside the ball, about weights released under record privacy, or about a fit from one
noised sum of rankings. Radii of rankings hold for ballots that are complete and strict: ballots
completed by ties do not follow the Plackett–Luce model, and for them there are only intervals,
about the weights that the objective has on average.
"""

from __future__ import annotations

import base64
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, TypeVar

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.sparse import issparse
from scipy.special import expit

from sordino import _validate
from sordino._validate import (
    Square,
    Vector,
    failure_probability,
    finite_array,
    integer,
    non_negative,
    positive,
)
from sordino.engines.engine import Rows
from sordino.errors import DataError, UsageError
from sordino.mechanisms.gaussian import SecondMoment
from sordino.mechanisms.grid import Matrix, each_added, row_weights
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.mechanisms.ranking_sum import SizeGroup, groups_by_size
from sordino.preferences.features import CLASS
from sordino.privacy.guarantee import NeighboringRelation

from .pair_losses import blocks, debiased_slope, weighted_grams
from .ranking_losses import FirstChoice, PairwiseComposite, add_bends, pair_weight
from .solver import Solution


class Ellipsoid(ABC):
    """All θ with ‖θ − center‖_M ≤ radius; a subclass says what the radius is."""

    __dataclass_fields__: ClassVar[dict[str, Any]]  # of a subclass
    center: Vector  # the weights in the middle, shape (d,)
    metric: Square  # M, symmetric and positive definite, shape (d, d)
    ridge: float  # the part of it that answers do not grow
    _kind: ClassVar[str | None] = None  # as files call it
    _positive: ClassVar[tuple[str, ...]]
    _not_negative: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        d = len(finite_array("center", self.center, ndim=1))
        if not d or finite_array("metric", self.metric, ndim=2).shape != (d, d):
            raise DataError(f"metric must have shape ({d}, {d}), got {self.metric.shape}.")
        for names, check in ((self._positive, positive), (self._not_negative, non_negative)):
            for name in names:
                check(name, getattr(self, name))

    @abstractmethod
    def radius(self, confidence: float) -> float:
        """Return how far the truth lies from the center at most, in the metric."""

    def __repr__(self) -> str:
        """Return the size and the radius; no weights."""
        name = type(self).__name__
        return f"{name}(d={len(self.center)}, radius(0.95)={self.radius(0.95):.4g})"

    def widths(self, rows: Any) -> Float[np.ndarray, " m"]:
        """Return ‖row‖_{M⁻¹} of every row: times the radius, a bound on how wrong θ̂ᵀrow is."""
        # Source: docs/local.md, confidence and pessimism: |(θ̂ − θ*)ᵀv| ≤ ‖θ̂ − θ*‖_M ‖v‖_{M⁻¹}.
        if rows.ndim != 2 or rows.shape[1] != len(self.center):  # noqa: PLR2004
            raise DataError(f"rows must have shape (m, {len(self.center)}), got {rows.shape}.")
        widths = np.zeros(rows.shape[0])
        for block, chosen in blocks(rows):
            widths[chosen] = np.linalg.norm(block @ self._whiten.T, axis=1)
        return widths

    def distance(self, theta: Vector) -> float:
        """Return ‖θ − center‖_M."""
        # Source: docs/local.md, confidence and pessimism.
        gap = np.asarray(theta) - self.center
        return math.sqrt(max(float(gap @ self.metric @ gap), 0.0))

    def contains(self, theta: Vector, confidence: float) -> bool:
        """Return whether weights lie in the set."""
        # Source: docs/local.md, confidence and pessimism.
        return self.distance(theta) <= self.radius(confidence)

    def to_dict(self) -> dict[str, Any]:
        """Return the set as JSON holds it; the metric as its packed lower triangle."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain |= {"center": self.center.tolist(), "metric": packed(self.metric)}
        if "noise" in plain:
            plain["noise"] = [vars(term) for term in plain["noise"]]
        return plain if self._kind is None else {"kind": self._kind} | plain

    @classmethod
    def from_dict(cls: type[_E], values: Mapping[str, Any]) -> _E:  # noqa: PYI019 (Self cannot be checked at run time)
        """Return what :meth:`to_dict` wrote."""
        try:
            plain = {name: values[name] for name in cls.__dataclass_fields__}
            center = np.array(values["center"], dtype=np.float64)
            metric = unpacked(values["metric"], len(center))
            np.linalg.cholesky(metric)
            if "noise" in plain:
                plain["noise"] = tuple(_NoiseTerm(**term) for term in plain["noise"])
            known = values.get("kind") == cls._kind
        except (KeyError, OverflowError, TypeError, ValueError, np.linalg.LinAlgError):
            known = False
        if not known:
            raise DataError("The confidence set has a field that is missing or malformed.")
        return cls(**{**plain, "center": center, "metric": metric})

    @cached_property
    def _whiten(self) -> Square:
        """Return W with WᵀW = M⁻¹."""
        return np.asarray(np.linalg.inv(np.linalg.cholesky(self.metric)))

    @cached_property
    def _spectrum(self) -> tuple[Vector, Square]:
        """Return the eigenvalues of the metric, least first, and its axes."""
        return np.linalg.eigh(self.metric)

    def grown(self: _E, times: float) -> _E:  # noqa: PYI019 (Self cannot be checked at run time)
        """Return about the set that so many times as many answers to like questions would give."""
        # What answers added to the metric grows with their number; ridge and noise stay.
        values, axes = self._spectrum
        after = values + (times - 1) * np.maximum(values - self.ridge, 0.0)
        return replace(self, metric=(axes * after) @ axes.T, **self._grown(values, after))

    def _grown(self, _values: Vector, _after: Vector) -> dict[str, Any]:
        return {}

    @property
    @abstractmethod
    def usual_error(self) -> float:
        """Return about E‖θ̂ − θ*‖²_M; far below the square of the radius, which is a bound."""


@dataclass(frozen=True)
class AnswersNeeded:
    """How many answers it takes until a gain over the reference is certain."""

    times: float  # so many times as many; 1 where it is certain, inf where nobody can tell
    now: int | None  # how many there are; None where that is private

    @classmethod
    def of(
        cls,
        known: Ellipsoid | DisagreementSet,
        way: Vector,
        *,
        confidence: float,
        scale: float,
        now: int | None,
    ) -> AnswersNeeded:
        """Return how many it takes until scale · radius · ‖way‖_{M⁻¹} is below the gain θ*ᵀway."""
        # Source: docs/local.md, "Where pessimism bites": θ̂ without what noise adds to its length.
        gain = float(known.center @ way)
        if isinstance(known, Ellipsoid):
            square = max(known.distance(np.zeros_like(way)) ** 2, np.finfo(float).tiny)
            gain *= math.sqrt(max(1 - known.usual_error / square, 0.0))

        def missing(log_times: float) -> float:
            grown = known.grown(math.exp(log_times))
            return float(scale * grown.radius(confidence) * grown.widths(way[np.newaxis])[0] - gain)

        if missing(_MOST_TIMES) >= 0:
            return cls(math.inf, now)
        log_times = 0.0 if missing(0.0) < 0 else brentq(missing, 0.0, _MOST_TIMES, xtol=0.01)
        return cls(math.exp(log_times), now)

    @property
    def answers(self) -> int | None:
        """Return their number; None where nobody can tell."""
        told = self.now is not None and self.times < math.inf
        return math.ceil(self.now * self.times) if told and self.now else None

    def __str__(self) -> str:
        """Return what is said of it."""
        if self.times == 1:
            return "A gain over the reference is certain."
        answers = "answers" if self.answers is None else f"answers, {self.answers:,}"
        needed = (
            "the estimate is mostly noise, or bonuses fall too slowly, to tell how many it takes"
            if self.times == math.inf
            else f"it takes about {self.times:.3g} times as many {answers}"
        )
        return f"No gain over the reference is certain: {needed}."


@dataclass(frozen=True)
class BonusEffect:
    """What the bonus of a policy changes on lists of candidates."""

    lists: int
    alike: int  # lists in which all bonuses are the same, so that they change no choice
    moved: int  # lists whose likeliest candidate is another one without the bonus
    certain: int  # lists with a candidate that is certain to be better than the reference
    needed: AnswersNeeded  # until there is one

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as JSON holds them, and the sentences."""
        return vars(self) | {"needed": self.needed.answers, "said": str(self)}

    def __str__(self) -> str:
        """Return what is said of it."""
        moved = f"Bonuses change the likeliest answer of {self.moved:,} of {self.lists:,} lists."
        if self.alike == self.lists:
            moved = "Bonuses cancel: they are alike within every list, so they change no choice."
        return f"{moved} {self.needed}"


_MOST_TIMES = 40.0  # as a logarithm: a number of answers that nobody will have


def packed(matrix: Square) -> str:
    """Return the lower triangle of a symmetric matrix, row by row, in base 64."""
    lower = matrix[np.tril_indices(len(matrix))].astype("<f8")
    return base64.b64encode(lower.tobytes()).decode()


def unpacked(text: str, d: int) -> Square:
    """Return the d × d matrix that :func:`packed` wrote; ValueError if the text is another's."""
    lower = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f8")
    if len(lower) != d * (d + 1) // 2:
        raise ValueError("The text has another length.")
    matrix = np.zeros((d, d))
    matrix[np.tril_indices(d)] = lower
    return matrix + np.tril(matrix, -1).T


def _quadratic_tail(trace: float, trace_of_square: float, largest: float, t: float) -> float:
    """Return the level that ξᵀKξ exceeds with probability at most e^−t, ξ 1-sub-Gaussian."""
    # Source: Hsu, Kakade & Zhang 2012, Theorem 2.1; docs/local.md, confidence and pessimism: h(K,
    # t) = tr K + 2√(tr(K²)t) + 2‖K‖t.
    return trace + 2 * math.sqrt(trace_of_square * t) + 2 * largest * t


_E = TypeVar("_E", bound="Ellipsoid")


@dataclass(frozen=True, kw_only=True)
class _NoiseTerm:
    """One source of error of an estimate: factor · √(ξᵀKξ), ξ 1-sub-Gaussian."""

    # Source: docs/local.md, confidence and pessimism. With trace alone, K a number, nothing is
    # random.

    factor: float  # what the length is multiplied by
    trace: float
    trace_of_square: float = 0.0
    largest: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            non_negative(name, getattr(self, name))

    @classmethod
    def of(cls, factor: float, shape: Float[np.ndarray, "r r"]) -> _NoiseTerm:
        """Return the term of a matrix K."""
        return cls(
            factor=factor,
            trace=float(np.trace(shape)),
            trace_of_square=float(np.sum(shape**2)),
            largest=float(np.linalg.eigvalsh(shape)[-1]),
        )

    def reach(self, t: float) -> float:
        """Return what the term exceeds with probability at most e^−t."""
        # Source: docs/local.md, confidence and pessimism: factor · √h(K, t).
        return self.factor * math.sqrt(
            _quadratic_tail(self.trace, self.trace_of_square, self.largest, t)
        )

    def reshaped(self, before: Vector, after: Vector) -> _NoiseTerm:
        """Return the term where the eigenvalues of K go from some to others, up to a factor."""
        size = before.max() or 1.0
        total, squares = (float(np.sum(after**k) / (np.sum(before**k) or size)) for k in (1, 2))
        return _NoiseTerm(
            factor=self.factor,
            trace=self.trace * total,
            trace_of_square=self.trace_of_square * squares,
            largest=self.largest * float(after.max() / size),
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ConfidenceEllipsoid(Ellipsoid):
    """All θ with ‖θ − center‖_M ≤ radius: it holds the true weights as often as stated."""

    # Valid for a linear reward, questions that were fixed before anybody answered, independent
    # answers, and `ball` chosen before the data were seen with ‖θ*‖ ≤ ball. It is conservative by a
    # factor of about 3 to 5.
    # Source: docs/local.md, confidence and pessimism: ‖θ̂ − θ*‖_M ≤ (1/(2κ))√h(M^{-1/2}GM^{-1/2},
    # t) + ΛB/√λ_min(M) + what the noise of a sum reaches, t = log(splits · candidates/(1 −
    # confidence)).

    center: Vector  # θ̂, the debiased minimizer inside the ball, shape (d,)
    metric: Square  # M = Σ σ′(‖xᵢ‖B) xᵢxᵢᵀ + ΛI, shape (d, d)
    ball: float  # B
    ridge: float  # Λ
    candidates: int  # how many ridges were tried on the same answers; 1 if it was given
    gradient_norm: float  # what is left of the gradient at the center; it widens the radius
    least_eigenvalue: float  # λ_min(M)
    # What the answers themselves, and what was added to their sum, reach in the metric.
    noise: tuple[_NoiseTerm, ...]
    # Into how many equal parts the chance of a failure is divided: one for each source of error
    # that is random.
    splits: int = 1

    _positive = ("ball", "ridge", "least_eigenvalue")
    _not_negative = ("gradient_norm",)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("candidates", "splits"):
            integer(name, getattr(self, name), at_least=1)

    def radius(self, confidence: float) -> float:
        """Return how far the truth lies from the center at most, in the metric."""
        level = failure_probability("confidence", confidence, zero=False)
        t = math.log(self.splits * self.candidates / (1 - level))
        # what ridge and solver move the center by
        bias = (self.ridge * self.ball + self.gradient_norm) / math.sqrt(self.least_eigenvalue)
        return bias + sum(term.reach(t) for term in self.noise)

    def _seen(self, values: Vector) -> Vector:
        """Return the share of the metric that answers made, along every axis."""
        return np.asarray(np.maximum(values - self.ridge, 0.0) / values)

    @property
    def usual_error(self) -> float:
        """Return about E‖θ̂ − θ*‖²_M."""
        # K = G/M in every term, and data = wG: of the bound (4w)² is left where the slope is ¼
        slope = float(self._seen(self._spectrum[0]).sum()) / (self.noise[0].trace or 1.0)
        return (4 * slope) ** 2 * sum(term.factor**2 * term.trace for term in self.noise)

    def _grown(self, values: Vector, after: Vector) -> dict[str, Any]:
        # of the answers K ∝ data/metric along every axis, of the noise of a sum 1/metric
        answers = self.noise[0].reshaped(self._seen(values), self._seen(after))
        sums = (term.reshaped(1 / values, 1 / after) for term in self.noise[1:])
        return {"least_eigenvalue": float(after.min()), "noise": (answers, *sums)}


def confidence_ellipsoid(  # noqa: PLR0913 (each is one public number)
    known: Matrix | Rows | PairwiseComposite | FirstChoice | tuple[Square, Square],
    solution: Solution,
    *,
    flip_probability: float = 0.0,
    ball: float,
    ridge: float,
    candidates: int,
    covariance: Square | None = None,
    rounding: float = 0.0,
    longest: float = math.inf,
) -> ConfidenceEllipsoid:
    """Return the set of a debiased fit of differences, or of a sum of complete, strict rankings."""
    # The sum may carry noise, and rounding, which is certain. What is known may be G and M already.
    # Only public numbers and the released estimate enter it, so it costs nothing.
    # Source: docs/local.md, confidence and pessimism: M = Σ wᵢxᵢxᵢᵀ + ΛI, wᵢ = σ′(‖xᵢ‖B).
    # docs/central.md, "Rankings": M and G of the pairs, or of the first choice; the sum along any
    # direction moves by at most twice ½√(uᵀGu) with one ballot, so that it is sub-Gaussian
    # (Hoeffding).
    if isinstance(known, PairwiseComposite | FirstChoice):
        gram = _choice_spread(known)
        metric = _flattest(known, ball) + ridge * np.eye(known.features.shape[1])
    elif isinstance(known, tuple):
        gram, metric = known
    else:
        gram, metric = flattest_curvature(known, ball=ball, ridge=ridge, longest=longest)
    answers = _NoiseTerm.of(1 / (2 * (1 - 2 * flip_probability)), whitened(gram, metric))
    noise: tuple[_NoiseTerm, ...] = (answers,)
    if covariance is not None:
        drawn = _NoiseTerm.of(1.0, whitened(covariance, metric))
        noise += (drawn,)
        if rounding:
            noise += (_NoiseTerm(factor=rounding, trace=drawn.largest),)
    return ConfidenceEllipsoid(
        center=solution.theta,
        metric=metric,
        ball=ball,
        ridge=ridge,
        candidates=candidates,
        gradient_norm=solution.gradient_norm,
        least_eigenvalue=max(float(np.linalg.eigvalsh(metric)[0]), ridge),
        noise=noise,
        splits=1 if covariance is None else 2,
    )


def flattest_curvature(
    differences: Matrix | Rows, *, ball: float, ridge: float, longest: float = math.inf
) -> tuple[Square, Square]:
    """Return G = Σ cᵢ²xᵢxᵢᵀ, and M: the least curvature of the loss anywhere in the ball."""
    # Source: docs/local.md, confidence and pessimism: M = Σ cᵢwᵢxᵢxᵢᵀ + ΛI, wᵢ = σ′(‖xᵢ‖B), cᵢ =
    # min(1, longest/‖xᵢ‖): a residual that counts c times has c² of its variance.
    gram, bent = Rows.of(differences).fold(partial(_grams, ball, longest), each_added)
    return gram, bent + ridge * np.eye(len(bent))


def _grams(
    ball: float, longest: float, _first: int, differences: Matrix, *_: object
) -> list[np.ndarray]:
    """Return Σ cᵢ²xᵢxᵢᵀ and Σ cᵢwᵢxᵢxᵢᵀ of some rows."""
    lengths = np.sqrt(np.asarray((differences**2).sum(axis=1)).ravel())
    counted = row_weights(differences, longest)
    return weighted_grams(differences, counted**2, counted * debiased_slope(lengths * ball))


def whitened(matrix: Square, metric: Square) -> Square:
    """Return a matrix with the eigenvalues of M^{-1/2} · matrix · M^{-1/2}."""
    # Source: docs/local.md, confidence and pessimism.
    whiten = np.linalg.inv(np.linalg.cholesky(metric))
    return np.asarray(whiten @ matrix @ whiten.T)


_SETTINGS = ("standard_deviation", "bound", "unit", "delta", "grid")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReleasedMoment:
    """A noised sum of outer products Σ xxᵀ: free to use, for it was paid for already."""

    # Source: docs/central.md, "Second moment".

    # G̃, symmetric; it may have negative eigenvalues. Shape (d, d).
    matrix: Square
    mechanism: SecondMoment  # what released it: the settings of the noise, all public

    def __post_init__(self) -> None:
        matrix = finite_array("matrix", self.matrix, ndim=2)
        if not len(matrix) or matrix.shape != (len(matrix),) * 2 or (matrix != matrix.T).any():
            raise DataError(f"matrix must be square and symmetric, got shape {matrix.shape}.")
        object.__setattr__(self, "matrix", matrix)

    def __repr__(self) -> str:
        """Return the size and the noise; no number of the matrix."""
        deviation = self.mechanism.standard_deviation
        return f"ReleasedMoment(d={self.d}, standard_deviation={deviation:.4g})"

    @property
    def d(self) -> int:
        """Return the number of features."""
        return len(self.matrix)

    def to_dict(self) -> dict[str, Any]:
        """Return the moment as JSON holds it; the matrix as its packed lower triangle."""
        settings = {name: getattr(self.mechanism, name) for name in _SETTINGS}
        neighbors = self.mechanism.neighbors.name
        return {"d": self.d, "matrix": packed(self.matrix), "neighbors": neighbors} | settings

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ReleasedMoment:
        """Return what :meth:`to_dict` wrote."""
        try:
            matrix = unpacked(values["matrix"], int(values["d"]))
            settings = {name: values[name] for name in _SETTINGS if name != "unit"}
            _validate.one_of("unit", values["unit"], (SecondMoment.unit,))
            neighbors = NeighboringRelation[values["neighbors"]]
        except (KeyError, OverflowError, TypeError, ValueError):
            raise DataError("The second moment has a field that is missing or malformed.") from None
        return cls(matrix=matrix, mechanism=SecondMoment(neighbors=neighbors, **settings))


# probability that the noise of the second moment is larger than the metric allows for
_MOMENT_FAILURE = 1e-3
_ROOM = 1e-6  # relative: what the metric keeps above 0 at the least ridge


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RecordEllipsoid(Ellipsoid):
    """All θ with ‖θ − center‖_M ≤ radius: it holds the true weights as often as stated."""

    # Valid for a reward that is linear in the features as they were used (shrunk to the bound, and
    # on the grid of the second moment), independent answers, and `ball` chosen before the data were
    # seen with ‖θ*‖ ≤ ball. It is conservative by a factor of about 3 to 5.
    # Source: docs/central.md, "Confidence under record privacy": M = γ(G̃ − νI) + ΛI, and ‖θ̂ −
    # θ*‖_M ≤ (1/(2√γ))√(d + 2√(dt) + 2t) + ΛB/√λ_min(M) + s√h(M⁻¹, t) + (τ/Λ)√λ_max(M) + s_o√h(M,
    # t).

    center: Vector  # the released weights, shape (d,)
    metric: Square  # M, shape (d, d)
    slope: float  # γ = σ′(RB), the least curvature of one answer inside the ball
    ball: float  # B
    ridge: float  # Λ
    standard_deviation: float  # s, the noise of every coordinate of the tilt
    output_standard_deviation: float  # s_o, the noise of every weight; 0 if there is none
    inexactness: float  # τ/Λ, how far the minimizer was from the exact one at most
    moment_failure: float  # probability with which the metric is too large

    _kind = "record"
    _positive = ("slope", "ball", "ridge", "standard_deviation")
    _not_negative = ("output_standard_deviation", "inexactness")

    def __post_init__(self) -> None:
        super().__post_init__()
        failure_probability("moment_failure", self.moment_failure)
        if not self._eigenvalues[0] > 0:
            raise DataError("metric must be positive definite.")

    def radius(self, confidence: float) -> float:
        """Return how far the truth lies from the center at most, in the metric."""
        # What may fail: the size of the noise of the moment (`moment_failure`), and, with equal
        # shares of the rest, the answers, the tilt and the noise of the weights.
        level = failure_probability("confidence", confidence, zero=False)
        left = (1 - self.moment_failure) - level
        if left <= 0:
            raise UsageError(
                f"confidence must be below {1 - self.moment_failure:g} for this set, got "
                f"{confidence!r}: the noise of the second moment exceeds its bound with "
                f"probability {self.moment_failure:g}."
            )
        events = 3 if self.output_standard_deviation else 2
        t, d = math.log(events / left), len(self.center)
        answers = math.sqrt(_quadratic_tail(d, d, 1.0, t) / self.slope) / 2
        bias = self.ridge * self.ball / math.sqrt(self._eigenvalues[0])
        tilt = self.standard_deviation * math.sqrt(_tail(1 / self._eigenvalues, t))
        inexact = self.inexactness * math.sqrt(self._eigenvalues[-1])
        output = self.output_standard_deviation * math.sqrt(_tail(self._eigenvalues, t))
        return answers + bias + tilt + inexact + output

    @property
    def usual_error(self) -> float:
        """Return about E‖θ̂ − θ*‖²_M."""
        # as the terms of the radius, where the slope is ¼
        tilt, output = self.standard_deviation**2, self.output_standard_deviation**2
        noise = tilt * np.sum(1 / self._eigenvalues) + output * np.sum(self._eigenvalues)
        return float(4 * self.slope * len(self.center) + (4 * self.slope) ** 2 * noise)

    @property
    def _eigenvalues(self) -> Vector:
        """Return the eigenvalues of the metric, least first."""
        return self._spectrum[0]


def _tail(eigenvalues: Vector, t: float) -> float:
    """Return h(K, t) of a matrix with these eigenvalues, all positive."""
    total, squares = float(eigenvalues.sum()), float((eigenvalues**2).sum())
    return _quadratic_tail(total, squares, float(eigenvalues.max()), t)


def _slope(bound: float, ball: float) -> float:
    """Return γ = σ′(RB); refuse a product at which nothing is left of it."""
    slope = float(debiased_slope(np.array([bound * ball]))[0])
    if slope == 0:
        raise UsageError(
            f"ball={ball!r} is too large for a confidence set with bound={bound!r}: their product "
            "must be below 700. Choose a smaller ball before you look at the data."
        )
    return slope


def least_ridge(noise: SecondMoment, *, d: int, ball: float) -> float:
    """Return the least ridge for which the noise of a second moment leaves a confidence set."""
    # Source: docs/central.md, "Confidence under record privacy": Λ ≥ 2γν, so that γG ≤ M on the
    # event that the noise is at most ν.
    norm = noise.operator_norm_bound(d, failure_probability=_MOMENT_FAILURE)
    return 2 * _slope(noise.bound, ball) * norm * (1 + _ROOM)


def refuse_small_ridge(ridge: float, noise: SecondMoment, *, d: int, ball: float) -> None:
    """Refuse a ridge that is too small for a confidence set; only public numbers enter."""
    least = least_ridge(noise, d=d, ball=ball)
    if ridge < least:
        enough = least * (1 + 1e-5)  # no smaller when it is written with six digits
        raise UsageError(
            f"ridge={ridge!r} is too small for a confidence set with this second moment, {d} "
            f"features and ball={ball!r}. Nothing was spent. Build both mechanisms with "
            f"ridge={enough:.6g}; or with a larger epsilon or share, so that the noise of the "
            f"second moment is at most {noise.standard_deviation * ridge / least:.6g}; or leave "
            "the set out (ellipsoid=False)."
        )


def record_ellipsoid(
    center: Vector, moment: ReleasedMoment, mechanism: ObjectivePerturbation, *, ball: float
) -> RecordEllipsoid:
    """Return the confidence set of weights that were released together with a second moment."""
    # Only what was released and public settings enter it, so it costs nothing.
    # Source: docs/central.md, "Confidence under record privacy": M = γ(G̃ − νI) + ΛI. Differs: ν
    # fails with a fixed probability, so that one metric serves every confidence.
    ridge = mechanism.ridge
    assert ridge is not None  # noqa: S101 - for the type checker: it is set once it is built
    noise = moment.mechanism
    refuse_small_ridge(ridge, noise, d=moment.d, ball=ball)
    slope = _slope(noise.bound, ball)
    norm = noise.operator_norm_bound(moment.d, failure_probability=_MOMENT_FAILURE)
    metric = slope * (moment.matrix - norm * np.eye(moment.d)) + ridge * np.eye(moment.d)
    # Wherever the noise is within its bound, all eigenvalues are above: only where the set may
    # fail anyway is anything changed.
    least = ridge - 2 * slope * norm
    values, vectors = np.linalg.eigh(metric)
    if values[0] < least:
        lifted = (vectors * np.maximum(values, least)) @ vectors.T
        metric = (lifted + lifted.T) / 2
    return RecordEllipsoid(
        center=center,
        metric=metric,
        slope=slope,
        ball=ball,
        ridge=ridge,
        standard_deviation=mechanism.standard_deviation,
        output_standard_deviation=mechanism.output_standard_deviation,
        inexactness=mechanism.mu_output * mechanism.output_standard_deviation / 2,
        moment_failure=_MOMENT_FAILURE,
    )


_Bends = Callable[[SizeGroup, Float[np.ndarray, "g k k"]], Float[np.ndarray, "g k k"]]

_BLOCK = 1 << 20


def ranking_covariance(
    loss: PairwiseComposite | FirstChoice, theta: Vector, noise: Square, *, ridge: float
) -> Square:
    """Return the covariance of an estimate from one noised sum, whatever the rankings were."""
    # Asymptotic: as ballots are added. No ranking enters it.
    # Source: docs/central.md, "Rankings": A⁻¹(G/4 + V)A⁻¹, A the Hessian at θ with the ridge.
    bend = loss.hessian(theta) + ridge * np.eye(len(theta))
    inverse = np.linalg.inv(bend)
    return np.asarray(inverse @ (_choice_spread(loss) / 4 + noise) @ inverse)


def _choice_spread(loss: PairwiseComposite | FirstChoice) -> Square:
    """Return G: the variance of the sum along u is at most uᵀGu/4, whatever the rankings are."""
    # Source: docs/central.md, "Rankings": pairs: along u one ballot's part moves by at most
    # wΣ_{a<b}|u_a − u_b|, whose square is at most wΣ_{a<b}(u_a − u_b)², since the w sum to 1. First
    # choice: by at most max|u_j − u_k|, whose square is at most (2/K) Σ_{j<k}(u_j − u_k)², since
    # (u_j − u_l)² + (u_l − u_k)² ≥ (u_j − u_k)²/2 for every other l.
    shared = (lambda k: 2 / k) if isinstance(loss, FirstChoice) else pair_weight

    def even(group: SizeGroup, _gaps: np.ndarray) -> np.ndarray:
        return np.full((1, group.size, group.size), shared(group.size))

    return _total(loss, even)


def _flattest(loss: PairwiseComposite | FirstChoice, ball: float) -> Square:
    """Return the least curvature of the objective anywhere in the ball."""
    # Source: docs/central.md, "Rankings": wσ′(‖x_ab‖B) for every pair; first choice: c_jk =
    # σ′(‖x_jk‖B)(1 + ½Σ_l exp(B‖φ_l − (φ_j + φ_k)/2‖))⁻², l other than j and k.

    def pairs(group: SizeGroup, gaps: np.ndarray) -> np.ndarray:
        return np.asarray(pair_weight(group.size) * expit(ball * gaps) * expit(-ball * gaps))

    def choices(_group: SizeGroup, gaps: np.ndarray) -> np.ndarray:
        others = np.zeros(gaps.shape)
        squares = gaps**2
        for one in range(gaps.shape[1]):
            # The median of a triangle: ‖l − (j + k)/2‖² = (2‖l−j‖² + 2‖l−k‖² − ‖j−k‖²)/4.
            near = 2 * squares[:, one]
            median = (near[:, :, np.newaxis] + near[:, np.newaxis] - squares) / 4
            with np.errstate(over="ignore"):  # infinitely many times as likely: no curvature
                reach = np.exp(ball * np.sqrt(np.maximum(median, 0.0)))
            reach[:, one] = reach[:, :, one] = 0.0
            others += reach
        return np.asarray(expit(ball * gaps) * expit(-ball * gaps) / (1 + others / 2) ** 2)

    return _total(loss, choices if isinstance(loss, FirstChoice) else pairs)


def _total(loss: PairwiseComposite | FirstChoice, bends: _Bends) -> Square:
    """Return Σ counts Σ_{a<b} bends_ab (φ_a − φ_b)(φ_a − φ_b)ᵀ over all slates."""
    d = loss.features.shape[1]
    total = np.zeros((d, d))
    for group in groups_by_size(loss.starts):
        step = max(1, _BLOCK // (group.size * max(group.size, d)))
        for first in range(0, len(group.slates), step):
            part = slice(first, first + step)
            inside = SizeGroup(group.slates[part], group.rows[:, part])
            k, g = inside.rows.shape
            block = loss.features[inside.rows.T.ravel()]
            block = (block.toarray() if issparse(block) else block).reshape(g, k, -1)
            found = np.empty((g, k, k))
            for one in range(k):
                found[:, one] = np.linalg.norm(block - block[:, one : one + 1], axis=2)
            weights = bends(inside, found)
            counted = weights * loss.counts[inside.slates][:, np.newaxis, np.newaxis]
            places = np.arange(group.size)
            counted[:, places, places] = 0.0
            add_bends(total, loss.features, inside.rows, counted)
    return (total + total.T) / 2


_CLASS = 103.5  # 4/σ′(1)², rounded up in the last digit
_SAMPLE = 8.0
_CACHED = 1 << 17  # numbers of gaps that are held at once while the largest is sought: 1 MiB


def spread_of(moments: Float[np.ndarray, "N N"]) -> Float[np.ndarray, "N N"]:
    """Return the second moment of g − g′ for each two variables, from those of their products."""
    # Source: docs/local.md, finite reward class: E(g − g′)² = E g² + E g′² − 2 E gg′.
    own = np.diagonal(moments)
    spread = np.maximum(own[:, None] + own - 2 * moments, 0.0)
    return np.asarray((spread + spread.T) / 2)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class DisagreementSet:
    """All candidates that disagree with the likeliest one by no more than the radius."""

    # Source: docs/local.md, finite reward class: the bonus is √(β² + λ) · D.

    center: Float[np.ndarray, " N"]  # the weights that pick the likeliest candidate
    # How far each two candidates disagree on the pairs, or under the reference.
    spread: Float[np.ndarray, "N N"]
    n: int  # number of independent answers
    kappa: float  # κ = 1 − 2 · flip probability
    ridge: float | None = None  # λ > 0; None where it follows the level

    def radius_squared(self, confidence: float) -> float:
        """Return how much the likeliest reward may disagree with the truth, that often."""
        # With the stated confidence, half the mean square of their difference over the pairs is at
        # most this, and so is the variance of their difference under the reference, where the pairs
        # were drawn from it.
        # Source: PPKL, Lemma B.1 and Theorem 4.2, with constants made explicit; docs/local.md,
        # finite reward class: β² = (103.5/κ² + 8) · log(2N/(1 − confidence))/n.
        failure = 1 - _validate.failure_probability("confidence", confidence, zero=False)
        most = math.log(2 * len(self.center) / failure) / self.n
        return (_CLASS / self.kappa**2 + _SAMPLE) * most

    def at(self, confidence: float) -> DisagreementSet:
        """Return the set with the ridge of a level, unless it has one."""
        # Source: docs/local.md, finite reward class: λ = β² unless given.
        ridge = self.radius_squared(confidence) if self.ridge is None else self.ridge
        return replace(self, ridge=_validate.positive("ridge", ridge))

    def grown(self, times: float) -> DisagreementSet:
        """Return the set of so many times as many answers to like questions."""
        return replace(
            self, n=max(1, round(self.n * times)), ridge=self.ridge and self.ridge / times
        )

    def possible(self, confidence: float) -> int:
        """Return how many candidates disagree with the center by no more than the radius."""
        likely = self.spread[np.argmax(self.center)] <= self.radius_squared(confidence)
        return int(likely.sum())

    def to_dict(self) -> dict[str, Any]:
        """Return the set as JSON holds it."""
        arrays = {"center": self.center.tolist(), "spread": self.spread.tolist()}
        return {"kind": CLASS, **arrays, "n": self.n, "kappa": self.kappa}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> DisagreementSet:
        """Return what :meth:`to_dict` wrote; ValueError, KeyError or TypeError if it did not."""
        center, spread = (np.array(values[name], np.float64) for name in ("center", "spread"))
        found = cls(
            center=center,
            spread=spread,
            n=_validate.integer("n", values["n"], at_least=1),
            kappa=_validate.positive("kappa", values["kappa"]),
        )
        square = spread.shape == (len(center), len(center)) and bool(np.isfinite(spread).all())
        if not square or (spread < 0).any() or (spread != spread.T).any():
            raise ValueError
        return found

    def radius(self, confidence: float) -> float:
        """Return what widths are multiplied by."""
        # Source: docs/local.md, finite reward class: √(β² + λ).
        return math.sqrt(self.radius_squared(confidence) + (self.at(confidence).ridge or 0.0))

    def widths(self, rows: Float[np.ndarray, "m N"]) -> Float[np.ndarray, " m"]:
        """Return how far two candidates disagree at most on each answer, per unit of radius."""
        # Source: docs/local.md, finite reward class: D = max over r ≠ r′ of |Δ − E_reference Δ| /
        # √(λ + spread), Δ = r − r′.
        assert self.ridge is not None  # noqa: S101 - `at` a level
        size = max(1, _CACHED // len(self.center))
        widths, steepness = np.zeros(len(rows)), 1 / np.sqrt(self.ridge + self.spread)
        for at in range(0, len(rows), size):
            columns, widest = np.ascontiguousarray(rows[at : at + size].T), widths[at : at + size]
            for one in range(len(columns) - 1):
                gaps = columns[one + 1 :] - columns[one]
                gaps *= steepness[one, one + 1 :, None]
                np.maximum(widest, np.abs(gaps, out=gaps).max(axis=0), out=widest)
        return widths
