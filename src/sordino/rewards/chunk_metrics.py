"""What weights predict for answers in many files, and the answers, brought together by person.

Where a rising sum over many rows crosses zero: a few passes, with several trials in each.

Metrics of predictions for randomized answers in many files: sums over parts of them.

The formulas are those of :mod:`sordino.rewards.metrics`, which holds all predictions in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import add
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from jaxtyping import Float, Integer
from scipy.special import expit

from sordino.engines.engine import Engine, Taken
from sordino.engines.exchange import PARTS, Exchange, opened_exchange
from sordino.errors import DataError
from sordino.preferences.chunk_reading import comparisons
from sordino.preferences.chunk_survey import ChunkSurvey
from sordino.preferences.chunks import Chunk
from sordino.preferences.features import Features
from sordino.preferences.pairs import Pairs
from sordino.preferences.records import person_key

from .metrics import (
    FARTHEST,
    Estimate,
    Interval,
    RewardMetrics,
    accuracy_error,
    agreements,
    clustered_error,
    greedy_picks,
    slope_estimate,
    slope_scores,
)
from .pair_losses import debias, debiased_loss

T = TypeVar("T")

_ROW: Final = [("who", "<u8", 2), ("difference", "<f8"), ("answer", "?")]


@dataclass(frozen=True, eq=False)
class Predicted:
    """Predictions for the answers of some people, all of whose answers are here."""

    differences: Float[np.ndarray, " n"]  # predicted reward of the first minus the second
    # ỹ, the answers with their randomization taken out in expectation.
    targets: Float[np.ndarray, " n"]
    # Who answered, numbered from 0; None where every answer counts as a person's.
    persons: Integer[np.ndarray, " n"] | None

    def by_person(self, values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " g"]:
        """Return the sum of values of every person."""
        if self.persons is None:
            return values
        return np.bincount(self.persons, weights=values)


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """Predictions in a folder that all machines see, in parts that memory holds."""

    engine: Engine  # where they are added up
    exchange: Exchange  # where they are
    chunks: int  # from how many chunks they came
    flip_probability: float  # chance that an answer is not the judgment
    linked: bool  # whether it is known who answered
    taken: Taken | None = None  # called as parts are done

    def fold(self, task: Callable[[Predicted], T], plus: Callable[[T, T], T]) -> T:
        """Return the sum of ``task(part)`` over all parts; a part may be empty."""
        read = _OfPart(self.exchange, self.chunks, self.flip_probability, self.linked, task)
        total: T = self.engine.fold(range(PARTS), read, plus, taken=self.taken)
        return total


@dataclass(frozen=True)
class _OfPart:
    """A task on the predictions of one part."""

    exchange: Exchange
    chunks: int
    flip_probability: float
    linked: bool
    task: Callable[[Predicted], Any]

    def __call__(self, part: int) -> Any:
        """Return what the task makes of them."""
        rows = self.exchange.read(part, self.chunks)
        persons = None
        if self.linked:
            persons = np.unique(rows["who"], axis=0, return_inverse=True)[1].ravel()
        targets = debias(rows["answer"].astype(np.int8), self.flip_probability)
        return self.task(Predicted(rows["difference"], targets, persons))


@contextmanager
def opened_predictions(
    survey: ChunkSurvey,
    engine: Engine,
    weights: Float[np.ndarray, " d"],
    *,
    features: Features | None,
    flip_probability: float,
    scratch: str | Path | None = None,
    taken: Taken | None = None,
) -> Iterator[Predictions]:
    """Read the answers that count once; keep the predictions for as long as the context is open."""
    with opened_exchange(_ROW, scratch) as exchange:
        task = _Predict(survey, exchange, weights, features)
        if engine.fold(survey.chunks.chunks, task, add, taken=taken) != survey.counted:
            raise DataError("The input changed while it was read. Nothing was measured.")
        yield Predictions(
            engine=engine,
            exchange=exchange,
            chunks=len(survey.chunks.chunks),
            flip_probability=flip_probability,
            linked=survey.linked,
            taken=taken,
        )


@dataclass(frozen=True)
class _Predict:
    """The task: leave the predictions for a chunk, and return how many there are."""

    survey: ChunkSurvey
    exchange: Exchange
    weights: Float[np.ndarray, " d"]
    features: Features | None

    def __call__(self, chunk: Chunk) -> int:
        """Return the number of answers of one chunk that count."""
        out, first, found = self.survey.selection.left_out(chunk.number), 0, [np.zeros(0, _ROW)]
        for pairs in comparisons(self.survey.chunks, chunk):
            assert isinstance(pairs, Pairs)  # noqa: S101 - whose labels are the answers here
            counts = np.ones(len(pairs), dtype=bool)
            counts[out[(out >= first) & (out < first + len(pairs))] - first] = False
            first += len(pairs)
            if counts.any():
                found.append(self._rows(pairs, np.flatnonzero(counts)))
        rows = np.concatenate(found)
        parts = rows["who"][:, 0] if self.survey.linked else np.arange(len(rows))
        self.exchange.write(chunk.number, rows, (parts % PARTS).astype(np.int64))
        return len(rows)

    def _rows(self, pairs: Pairs, counts: Integer[np.ndarray, " k"]) -> np.ndarray:
        """Return what is kept of the answers of a block that count."""
        rows = np.zeros(len(counts), _ROW)
        rows["difference"] = pairs.differences(self.features)[counts] @ self.weights
        rows["answer"] = pairs.labels[counts]
        if pairs.persons is not None:
            digests = b"".join(person_key(pairs.persons[index])[:16] for index in counts)
            rows["who"] = np.frombuffer(digests, dtype=">u8").reshape(-1, 2)
        return rows


Rising = Callable[[Float[np.ndarray, " k"]], Float[np.ndarray, "2 k"]]
"""From trials to the sum and its derivative at each, in one pass."""

_NEAR: Final = 4.0 ** np.arange(9)  # where a root is looked for first
_GRID: Final = 9  # trials that shrink the bracket whatever the guess is worth
_AROUND: Final = 0.5 * 10.0 ** -np.arange(1, 13)  # of the bracket, on both sides of the guess
_WIDE: Final = 4.0  # ratio of the ends from which on magnitudes are tried
_CLOSE: Final = 1e-12  # relative; the guess inside is closer by far
_PASSES: Final = 60


def crossing(rising: Rising, farthest: float) -> float | None:
    """Return where a sum crosses zero, from below; None if not between −farthest and farthest."""
    # Every pass tries points closely around a guess and some across the bracket, so that a good
    # guess makes it ten times narrower than its own error, and a bad one does no harm.
    trials = np.concatenate([[-farthest], -_NEAR[::-1], [0.0], _NEAR, [farthest]])
    found = rising(trials)
    if found[0, 0] > 0 or found[0, -1] < 0:
        return None
    for _ in range(_PASSES):
        above = 1 + int(np.argmax(found[0, 1:] >= 0))
        ends, found = trials[above - 1 : above + 1], found[:, above - 1 : above + 1]
        guess = _guess(ends, *found)
        if not found[0].all() or ends[1] - ends[0] <= _CLOSE * float(np.abs(ends).max()):
            break
        inner = _inner(ends, guess)
        if not len(inner):
            break
        trials = np.concatenate([ends[:1], inner, ends[1:]])
        found = np.concatenate([found[:, :1], rising(inner), found[:, 1:]], axis=1)
    return guess


def _guess(
    ends: Float[np.ndarray, " two"],
    values: Float[np.ndarray, " two"],
    bends: Float[np.ndarray, " two"],
) -> float:
    """Return where the cubic through both ends, as a function of the value, is at value 0."""
    # Source: Inverse Hermite interpolation.
    if values[0] == 0 or values[1] == 0:
        return float(ends[0] if values[0] == 0 else ends[1])
    height, width = float(values[1] - values[0]), float(ends[1] - ends[0])
    share = -float(values[0]) / height
    straight = float(ends[0]) + share * width
    if not (bends > 0).all():
        return straight
    with np.errstate(over="ignore", invalid="ignore"):
        first, last = height / bends - width
        bent = straight + share * (1 - share) * ((1 - share) * first - share * last)
    return float(bent) if ends[0] <= bent <= ends[1] else straight


def _inner(ends: Float[np.ndarray, " two"], guess: float) -> Float[np.ndarray, " k"]:
    """Return what to try between two ends."""
    low, high = ends
    width = high - low
    if low * high > 0 and max(low / high, high / low) > _WIDE:
        grid = np.geomspace(low, high, _GRID)
    else:
        grid = np.linspace(low, high, _GRID)
    around = width * _AROUND
    trials = np.concatenate([grid, [guess], guess - around, guess + around])
    return np.unique(trials[(trials > low) & (trials < high)])


_ACCURACY, _LOSS, _WINS = range(3)
_EVEN: Final = math.inf  # a temperature at which nobody wins


@dataclass(frozen=True, kw_only=True)
class AnswerMetrics(RewardMetrics):
    """What a reward measures on randomized answers, and a policy of it."""

    # How often a Gibbs policy on the two answers picks the preferred one; None where no temperature
    # was given.
    win_rate: Interval | None
    rows: int  # how many answers it was measured on


@dataclass(frozen=True, eq=False)
class _Totals:
    """What some predictions add up to."""

    rows: int  # how many
    values: Float[np.ndarray, " k"]  # the sums of what accuracy, loss and win rate are means of
    # Σ(1[Δ < 0] − ỹ)Δ and Σ(1[Δ > 0] − ỹ)Δ: the scores of an infinite slope.
    limits: Float[np.ndarray, " two"]
    unit: float  # the largest |Δ|

    def plus(self, other: _Totals) -> _Totals:
        """Return the totals of both."""
        return _Totals(
            self.rows + other.rows,
            self.values + other.values,
            self.limits + other.limits,
            max(self.unit, other.unit),
        )


@dataclass(frozen=True, eq=False)
class _Spread:
    """How the same scatters."""

    persons: int  # how many there are
    # Over persons, the sums of squares of the sums of what is centered: of the three values, and of
    # the scores of the slope.
    squares: Float[np.ndarray, " k"]
    information: float  # Σ σ′(bΔ)Δ²

    def plus(self, other: _Spread) -> _Spread:
        """Return that of both."""
        return _Spread(
            self.persons + other.persons,
            self.squares + other.squares,
            self.information + other.information,
        )


def measure_predictions(
    predictions: Predictions, *, temperature: float | None = None, widening: float = 1.0
) -> AnswerMetrics:
    """Return what predictions say about answers, with the randomization taken out; it is free."""
    # Everything is read from the predictions, a few times; no file of answers is read again.
    # Source: docs/local.md, metrics on randomized labels.
    heat = _EVEN if temperature is None else temperature
    total = predictions.fold(partial(_totals, heat), _Totals.plus)
    root = _slope(predictions, total)
    means, unit = total.values / total.rows, total.unit
    spread = predictions.fold(partial(_spread, heat, means, root, unit), _Spread.plus)
    errors = [clustered_error(float(of), spread.persons, total.rows) for of in spread.squares]
    if not predictions.linked:
        value = float(means[_ACCURACY])
        errors[_ACCURACY] = accuracy_error(value, predictions.flip_probability, total.rows)
    found = [
        Estimate(float(mean), error).widened(widening)
        for mean, error in zip(means, errors[:3], strict=True)
    ]
    slope = None
    if root is not None:
        slope = slope_estimate(root, unit, spread.information, errors[-1] * total.rows)
        slope = slope.widened(widening)
    wins = None if temperature is None else found[_WINS].interval(lower=0.0, upper=1.0)
    return AnswerMetrics(
        accuracy=found[_ACCURACY],
        negative_log_likelihood=found[_LOSS],
        calibration_slope=slope,
        win_rate=wins,
        rows=total.rows,
    )


def _values(part: Predicted, heat: float) -> Float[np.ndarray, "3 n"]:
    """Return what accuracy, loss and win rate are means of."""
    gaps, targets = part.differences, part.targets
    return np.stack(
        [
            agreements(greedy_picks(gaps), targets),
            debiased_loss(gaps, targets),
            agreements(expit(gaps / heat), targets),
        ]
    )


def _totals(heat: float, part: Predicted) -> _Totals:
    """Return the totals of one part."""
    gaps, targets = part.differences, part.targets
    limits = [((side - targets) * gaps).sum() for side in (gaps < 0, gaps > 0)]
    unit = float(np.abs(gaps).max(initial=0.0))
    return _Totals(len(gaps), _values(part, heat).sum(axis=1), np.array(limits), unit)


def _slope(predictions: Predictions, total: _Totals) -> float | None:
    """Return the calibration slope of Δ in its unit, or None where no finite one fits best."""
    if not total.limits[0] < 0 < total.limits[1]:
        return None

    def rising(trials: Float[np.ndarray, " k"]) -> Float[np.ndarray, "2 k"]:
        return predictions.fold(partial(_scores, trials, total.unit), add)

    return crossing(rising, FARTHEST)


def _scores(
    trials: Float[np.ndarray, " k"], unit: float, part: Predicted
) -> Float[np.ndarray, "2 k"]:
    """Return the sums of the scores of one part, and their derivatives, at every trial."""
    scaled = part.differences / unit
    found = [slope_scores(scaled, part.targets, slope) for slope in trials]
    return np.array([[score.sum(), bend.sum()] for score, bend in found]).T


def _spread(
    heat: float, means: Float[np.ndarray, " k"], root: float | None, unit: float, part: Predicted
) -> _Spread:
    """Return how one part scatters."""
    centered, information = list(_values(part, heat) - means[:, np.newaxis]), 0.0
    if root is not None:  # where the scores add up to 0: they are centered
        scores, bends = slope_scores(part.differences / unit, part.targets, root)
        centered.append(scores)
        information = float(bends.sum())
    sums = [part.by_person(values) for values in centered]
    squares = np.array([float(of @ of) for of in sums])
    return _Spread(len(sums[0]), squares, information)
