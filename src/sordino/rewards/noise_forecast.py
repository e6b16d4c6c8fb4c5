"""How well a reward would be learned with each kind of noise, before anything is spent.

From what is public of the very questions, or of a stated population, and from sizes: a fit is
pictured as linear, θ̂ = (B + λI)⁻¹z with z normal around Aθ, so that noise on labels, on one sum, on
an objective or on draws differ in three matrices alone. Draws of θ and of z then say how often θ̂
predicts a judgment, and how much that varies. Unlike :func:`sordino.estimate` it knows how far
features reach in each direction; what it cannot know without public judgments is the true reward.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array, issparse
from scipy.special import erf

from sordino._validate import Numbers, Square, Vector
from sordino.mechanisms.grid import Matrix, counting_less
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.preferences.features import HashedText

from .forecast import SIZES, mean, spread_of

DRAWS = 96
"""Pairs of a true reward and of a release that a forecast is the mean of."""
ROWS = 1_000
"""Questions that say enough about the directions of features."""
_ENOUGH_PUBLIC = 1_000
"""Public judgments from which on a forecast can tell: their accuracy is known within 0.03."""
NARROW = 0.015
"""Half the width of an interval within which a forecast can tell without public judgments."""
_FEWEST = 500
"""Judgments below which none tells: how the few fall decides more than the noise."""
WIDE = 0.12
"""Width of an interval beyond which no mean of runs is told."""

# The stated population: hashed features of dialogues, as answers to one prompt differ in them, and
# how well the best reward predicts judgments of them. Source: docs/central.md, "Which noise".
_SQUARE = 0.32  # mean ‖x‖², in squares of the feature bound
_SHARES = (
    0.35, 0.13, 0.095, 0.06, 0.05, 0.04, 0.035, 0.03, 0.025, 0.023, 0.021, 0.02, 0.017, 0.015,
    0.011, 0.01, 0.008, 0.006, 0.006, 0.005, 0.004, 0.004, 0.003, 0.002,
)  # fmt: skip
_WIDEST = 128  # features that are looked at
_ACCURACIES = (0.58, 0.62, 0.66, 0.72, 0.8)
_POWERS = (1.0, 1.5, 2.0)  # a: the reward's variance along a direction goes as λ^a
_PRIORS = (*(0.51 + 0.01 * step for step in range(30)), 0.84, 0.9)
_FOLDS = 5
_TRIED = (1.0, 4.0, 16.0)
_FLAT = 1e-9  # of the longest direction: below it nothing differs
_SMALL = 1e-12
_REACH = 1.96
_HALF = 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class Picture:
    """A fit as it is pictured: θ̂ = (B + λI)⁻¹z, z ∼ N(Aθ, S)."""

    mean: Square  # A
    scatter: Square  # S
    bend: Square  # B
    ridge: float  # λ
    n: float  # judgments
    tried: tuple[float, ...] = (1.0,)  # multiples of it of which what was released chooses the best
    temperature: float | None = None  # of draws from a reward that is withheld


def _moment(one: Matrix, other: Matrix) -> Square:
    return np.asarray(_filled(one.T @ other) / one.shape[0])


def _filled(rows: Matrix) -> Float[np.ndarray, "m d"]:
    if issparse(rows):
        rows = csr_array(rows).toarray()
    return np.asarray(rows, dtype=np.float64)


def _pictured(
    cut: Matrix,
    seen: Matrix,
    n: float,
    *,
    ridge: float,
    scatter: Square | None = None,
    tried: tuple[float, ...] = (1.0,),
    temperature: float | None = None,
) -> Picture:
    """Return the fit of n judgments of which rows are used that differ from what is seen."""
    bend = _moment(cut, cut) / 4
    return Picture(
        mean=_moment(cut, seen) / 4,
        bend=bend,
        scatter=bend / n if scatter is None else scatter,
        ridge=ridge / n,
        n=n,
        tried=tried,
        temperature=temperature,
    )


def of_answers(
    rows: Matrix, n: float, *, flip_probability: float, ridge: float | None = None
) -> Picture:
    """Return the fit of n answers that were flipped with a known chance."""
    # Source: docs/local.md, "Debiased likelihood": (ỹ − ½)² = 1/(4κ²). The usual ridge is L²/κ².
    seen, kappa = dense(rows), 1 - 2 * flip_probability
    scatter = _moment(seen, seen) / 4 / (kappa**2 * n)
    usual, tried = (1 / kappa**2, _TRIED) if ridge is None else (ridge, (1.0,))
    return _pictured(seen, seen, n, ridge=usual, scatter=scatter, tried=tried)


def of_sum(
    rows: Matrix, n: float, mechanism: LabelGaussian, *, ridge: float | None = None
) -> Picture:
    """Return the fit of a noised sum over n labels."""
    # Source: docs/central.md, "Label privacy, one Gaussian release".
    seen = dense(rows)
    shorter = dense(counting_less(seen, longest=mechanism.longest))
    shape = mechanism.ellipsoid_of(shorter).unwhiten
    shape = shape * ((mechanism.records_per_person or 1) / mechanism.mu)
    added, square = float(np.sum(shape**2)), float(np.mean(np.sum(seen**2, axis=1)))
    usual = 1 + 4 * added / (n * max(square, _SMALL)) if ridge is None else ridge
    bend = _moment(shorter, seen) / 4
    scatter = _moment(shorter, shorter) / (4 * n) + shape @ shape.T / n**2
    tried = _TRIED if ridge is None else (1.0,)
    return Picture(mean=bend, bend=bend, scatter=scatter, ridge=usual / n, n=n, tried=tried)


def of_records(rows: Matrix, n: float, mechanism: ObjectivePerturbation) -> Picture:
    """Return the minimizer of a tilted objective over n records, each cut to the bound."""
    # Source: docs/central.md, "Objective perturbation".
    seen = dense(rows)
    cut, noise = mechanism.clipped(seen), mechanism.standard_deviation / n
    scatter = _moment(cut, cut) / 4 / n + noise**2 * np.eye(cut.shape[1])
    return _pictured(cut, seen, n, ridge=mechanism.ridge or 0.0, scatter=scatter)


def of_draws(
    rows: Matrix, n: float, *, ridge: float, temperature: float, bound: float | None = None
) -> Picture:
    """Return the fit of n judgments as they are, from which answers are drawn one by one."""
    cut = seen = dense(rows)
    if bound is not None:
        norms = np.linalg.norm(seen, axis=1, keepdims=True)
        cut = seen * np.minimum(1, bound / np.maximum(norms, _SMALL))
    return _pictured(cut, seen, n, ridge=ridge, temperature=temperature)


@dataclass(frozen=True, kw_only=True, eq=False)
class Signal:
    """What is known of the true reward: draws of its weights, and how new questions differ."""

    moment: Square  # E xxᵀ of the questions that will be asked
    weights: Float[np.ndarray, "k d"]
    scale: float = 1.0  # of what public judgments were predicted better than the picture says
    error: float = 0.0  # standard error of their accuracy
    tells: bool = False  # whether they are enough
    # Of single answers, whose rewards are not symmetric around the bar: those that will be judged.
    alone: Float[np.ndarray, "m d"] | None = None

    @classmethod
    def of_population(cls, rows: Matrix, *, alone: bool = False) -> Signal:
        """Return the reward of the stated population, on features that differ as these rows do."""
        moment, (values, directions) = _spectrum(dense(rows))
        generator, weights = np.random.Generator(np.random.PCG64(0)), []
        both = [(power, accuracy) for accuracy in _ACCURACIES for power in _POWERS]
        for power, accuracy in islice(cycle(both), DRAWS):  # all alike often
            size = _linear(_spread(accuracy)) ** 2
            drawn = generator.normal(size=len(values)) * values ** ((power - 1) / 2)
            drawn *= np.sqrt(size / np.sum(drawn**2 * values))
            weights.append(directions @ drawn)
        answers = dense(rows) if alone else None
        return cls(moment=moment, weights=np.array(weights), alone=answers)

    @classmethod
    def of_public(cls, rows: Matrix, labels: Numbers, *, alone: bool = False) -> Signal:
        """Return what public judgments say of the reward that made them."""
        # Empirical Bayes: weights with variances τ²λ^{a−1} along the directions of E xxᵀ, τ and a
        # by their likelihood. Source: docs/central.md, "Which noise".
        n = len(labels)
        moment, (values, directions) = _spectrum(rows)
        score = directions.T @ np.asarray(rows.T @ (labels - _HALF)) / n
        noise = values / (4 * n)
        priors = [(power, accuracy) for power in _POWERS for accuracy in _PRIORS]
        # the variance of the weight along each direction
        widths = [
            _linear(_spread(accuracy)) ** 2 / np.sum(values**power) * values ** (power - 1)
            for power, accuracy in priors
        ]
        spreads = [width * values**2 / 16 + noise for width in widths]
        logs = np.array([-_HALF * np.sum(np.log(v) + score**2 / v) for v in spreads])
        chances = np.exp(logs - logs.max())
        generator, weights = np.random.Generator(np.random.PCG64(0)), []
        for chosen in generator.choice(len(priors), DRAWS, p=chances / chances.sum()):
            gain = widths[chosen] * values / 4 / spreads[chosen]
            left = widths[chosen] * (1 - gain * values / 4)
            drawn = gain * score + np.sqrt(left) * generator.normal(size=len(values))
            weights.append(directions @ drawn)
        answers = dense(rows) if alone else None
        found = cls(moment=moment, weights=np.array(weights), alone=answers)
        reached = _held_out(rows, labels, apart=alone)
        pictured = found.foresee(of_answers(rows, n * (1 - 1 / _FOLDS), flip_probability=0.0))
        scale = (reached - _HALF) / max(pictured.accuracy - _HALF, _SMALL)
        return replace(
            found,
            scale=float(np.clip(scale, 0.5, 1.5)),
            error=float(np.sqrt(reached * (1 - reached) / n)),
            tells=n >= _ENOUGH_PUBLIC,
        )

    def foresee(self, picture: Picture) -> Foreseen:
        """Return how often a fit predicts a judgment, and how far one run may be from that."""
        # Source: docs/central.md, "Which noise".
        generator = np.random.Generator(np.random.PCG64(1))
        theta, moment, d = self.weights, self.moment, len(self.moment)
        values, directions = np.linalg.eigh(picture.scatter)
        root = directions * np.sqrt(np.maximum(values, 0))
        drawn = theta @ picture.mean.T + generator.normal(size=(len(theta), d)) @ root.T
        values, directions = np.linalg.eigh(picture.bend)
        size = np.sqrt(np.maximum(np.sum(theta @ moment * theta, axis=1), _SMALL))
        runs = []
        for times in picture.tried:
            found = drawn @ directions / (values + times * picture.ridge) @ directions.T
            if self.alone is not None:  # how often it is right about single answers, E σ(±Δ)
                scale = np.interp(size, *_curve()) / size
                truth = theta @ self.alone.T * scale[:, np.newaxis]
                gain = np.mean(np.tanh(truth / 2) * np.sign(found @ self.alone.T), axis=1)
                runs.append(_HALF + gain / 2)
                continue
            turned = found @ moment
            length = np.sqrt(np.maximum(np.sum(turned * found, axis=1), _SMALL**2))
            agreement = np.sum(turned * theta, axis=1) / (size * length)
            runs.append(_accuracies(size, agreement, length, picture.temperature))
        right = _HALF + self.scale * (max(runs, key=np.mean) - _HALF)
        low, high = np.quantile(right, (0.025, 0.975))
        middle, more = float(np.mean(right)), _REACH * self.error
        low = middle - float(np.hypot(middle - low, more))
        high = middle + float(np.hypot(high - middle, more))
        known = self.tells and picture.n >= _FEWEST and high - low <= WIDE
        tells = known or high - low <= 2 * NARROW
        return Foreseen(accuracy=middle, low=max(low, 0.0), high=min(high, 1.0), tells=tells)


@dataclass(frozen=True, kw_only=True)
class Foreseen:
    """The share of new judgments that would be predicted, or that a draw would agree with."""

    accuracy: float
    low: float  # ends of a 95% interval for one run
    high: float
    tells: bool  # whether the accuracy is foreseen, and not only which kind of noise is best

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as JSON holds them."""
        ends = [round(self.low, 4), round(self.high, 4)]
        return {"accuracy": round(self.accuracy, 4), "interval": ends, "tells": self.tells}


def narrowed(features: HashedText) -> HashedText:
    """Return features with fewer buckets of words, which say as much and are quicker to look at."""
    # Words have next to no weight each, and as much together whatever their number.
    return replace(features, dimension=min(features.dimension, _WIDEST))


def population_rows(features: HashedText | None, given: Matrix | None, *, bars: int = 0) -> Matrix:
    """Return feature differences as the stated population has them, where none may be looked at."""
    if features is None:  # of vectors their number is public alone
        assert given is not None  # noqa: S101 - for the type checker
        d, words = given.shape[1], 0.0
    else:
        d, words = features.dimension, features.word_norm
    shares = np.array(_SHARES[:d])
    squares = np.zeros(d)
    squares[: len(shares)] = _SQUARE * shares / np.sum(_SHARES)
    squares[len(shares) :] = 2 * words**2 / max(d - len(shares), 1)
    generator = np.random.Generator(np.random.PCG64(2))
    drawn = generator.normal(size=(ROWS, d)) * np.sqrt(squares)
    return np.hstack([drawn, np.full((ROWS, bars), _HALF)])  # of single answers, as high as a bar


def dense(rows: Matrix) -> Float[np.ndarray, "m d"]:
    """Return some rows, evenly spaced, as one array."""
    return _filled(rows[:: max(1, -(-rows.shape[0] // ROWS))])


def _spectrum(rows: Matrix) -> tuple[Square, tuple[Vector, Square]]:
    """Return E xxᵀ, and its values and directions without those in which nothing differs."""
    moment = _moment(rows, rows)
    values, directions = np.linalg.eigh(moment)
    there = values > max(_FLAT * values[-1], _SMALL**2)
    return moment, (values[there], directions[:, there])


_spread = functools.cache(spread_of)


def _linear(spread: float) -> float:
    """Return the spread of 4E[yx]ᵀE[xxᵀ]⁻¹x, the linear reward, where that of the reward is s."""
    # Source: Stein's identity: E[(σ(Δ) − ½)g] = s·E σ′(Δ); docs/central.md, "Which noise".
    return 2 * mean(np.tanh(spread * SIZES / 2) * SIZES)


@functools.cache
def _curve() -> tuple[Vector, Vector]:
    """Return linear spreads and the spreads they belong to."""
    spreads = np.exp(np.arange(-12.0, 4.0, 0.05))
    return np.array([_linear(spread) for spread in spreads]), spreads


def _held_out(rows: Matrix, labels: Float[np.ndarray, " m"], *, apart: bool) -> float:
    """Return the accuracy of linear fits on the fifth that each did not see."""
    # Answers to one prompt, which tell of each other, stand together: then fifths are of one piece.
    order, right = np.arange(len(labels)), np.zeros(len(labels))
    place = order * _FOLDS // len(labels) if apart else order % _FOLDS
    for fold in range(_FOLDS):
        seen, out = rows[place != fold], place == fold
        bend = _moment(seen, seen) * (seen.shape[0] / 4) + np.eye(rows.shape[1])
        weights = np.linalg.solve(bend, seen.T @ (labels[~out] - _HALF))
        right[out] = (rows[out] @ weights > 0) == (labels[out] > _HALF)
    return float(np.mean(right))


def _accuracies(
    size: Vector, agreement: Vector, length: Vector, temperature: float | None
) -> Vector:
    """Return how often each of several fits, or draws from it, agrees with a judgment."""
    # Source: docs/central.md, "Which noise": E[tanh(|Δ|/2)·(2P − 1)]/2 + ½, where P is the chance
    # that the order of Δ is kept.
    spread = np.interp(size, *_curve())[:, np.newaxis]
    kept = np.clip(agreement, -1 + _SMALL, 1 - _SMALL)[:, np.newaxis]
    rest = np.sqrt(1 - kept**2)
    if temperature is None:
        lean = erf(kept / rest * SIZES / np.sqrt(2))
    else:
        points, weights = np.polynomial.hermite_e.hermegauss(15)
        steep = (length / temperature / 2)[:, np.newaxis, np.newaxis]
        both = kept[..., np.newaxis] * SIZES[:, np.newaxis] + rest[..., np.newaxis] * points
        lean = np.tanh(steep * both) @ (weights / weights.sum())
    gain = np.tanh(spread * SIZES / 2) * lean
    return np.array([_HALF + mean(row) / 2 for row in gain])
