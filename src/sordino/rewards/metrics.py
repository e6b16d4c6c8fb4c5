"""What a reward measures for free: on randomized answers, or on a sum that was released.

Every number estimates what the answers before the flips would have given; they were private when
they arrived, so that nothing is spent. Predictions must come from fits on other records (held-out),
or the numbers flatter. They are in memory, or in files of which sums are taken by parts. A released
sum is split into two independent parts (Gaussian thinning): one is fitted, the other judges. What
is judged then is a fit with a quarter more noise than the released one, on fresh answers to the
same questions; held-out accuracy is no function of the sum, so it is not told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import add
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
from jaxtyping import Float, Integer
from scipy.special import expit, ndtri

from sordino._validate import Integers, Numbers, finite_array
from sordino.engines.engine import Rows
from sordino.engines.exchange import PARTS, Exchange, opened_exchange
from sordino.errors import DataError
from sordino.mechanisms.grid import each_added
from sordino.preferences.chunk_survey import ChunkSurvey
from sordino.preferences.chunks import Chunk
from sordino.preferences.comparisons import FOLDS, MEASURING
from sordino.preferences.features import Features
from sordino.preferences.records import person_key

from .evidence import MOST_FEATURES, Design, Evidence, added_and_largest
from .finite import likeliest
from .pair_losses import debias, debiased_loss, debiased_slope
from .reward_fit import BALL, fit_design, fit_sum

_VAGUE = 0.1
"""A standard error above which a share or a loss is told as a sentence, and not as a number."""

_VAGUE_SLOPE = 0.5  # a slope has no unit: with more, "too bold" and "too timid" are one
_SHARES = ("accuracy", "win_rate")
_MOST_STEPS = 1000  # of Newton's method; about six are needed
_CLOSE = 1e-8  # relative: what such a last step leaves is about its square

REACH: Final = 1.96
"""Half of a 95% interval, in standard errors, where a normal approximation holds."""

_FARTHEST = 4.0**166
"""Of slopes, in units of one over the largest difference: beyond it there is none."""


@dataclass(frozen=True)
class Estimate:
    """A number and its standard error."""

    # Source: docs/local.md, metrics on randomized labels.

    value: float  # unbiased, and for that reason sometimes outside its natural range
    standard_error: float  # infinity where the data cannot tell (one record, one cluster)

    def widened(self, factor: float) -> Estimate:
        """Return the same value with a standard error that is larger by a factor."""
        return Estimate(self.value, self.standard_error * factor)

    @property
    def share_interval(self) -> list[float]:
        """Return the ends of the normal 95% interval of a share, clipped to what is possible."""
        reach = float(ndtri(0.975)) * self.standard_error
        return [min(max(end, 0.0), 1.0) for end in (self.value - reach, self.value + reach)]


def numbers_of(metrics: object) -> dict[str, float | None]:
    """Return every number of a reward and its standard error, None where it is not known."""
    told: dict[str, float | None] = {}
    for name in ("accuracy", "negative_log_likelihood", "calibration_slope"):
        estimate: Estimate | None = getattr(metrics, name)
        told[name] = None if estimate is None else estimate.value
        told[f"{name}_standard_error"] = None if estimate is None else estimate.standard_error
    return told


def legible(measured: Mapping[str, Any]) -> dict[str, Any]:
    """Return measured numbers as they may be shown: none that is too vague, no impossible share."""
    # An unbiased estimate from a few answers may be -15 %, and is no accuracy. Where the standard
    # error is above `_VAGUE` or unknown the number becomes None, and `NAME_reason` says why; where
    # that is so of an accuracy, of the loss and the slope of the same answers too.
    told = dict(measured)
    few = told.get("accuracy") is not None and _error_of(told, "accuracy") > _VAGUE
    for name in ("accuracy", "negative_log_likelihood", "calibration_slope", "win_rate"):
        value = told.get(name)
        if value is None:
            continue
        error = _error_of(told, name)
        vague = few and name != "win_rate"  # others would be told where they only look sure
        if vague:
            error = max(error, _error_of(measured, "accuracy"))
        if not vague and error <= (_VAGUE_SLOPE if name == "calibration_slope" else _VAGUE):
            told[name] = min(max(value, 0.0), 1.0) if name in _SHARES else value
            continue
        size = (
            f"the standard error would be {error:.2g}" if error < math.inf else "no error is known"
        )
        told |= {name: None, f"{name}_reason": f"too few answers to tell: {size}"}
        told |= {"win_rate_interval": None} if name == "win_rate" else {}
        if error == math.inf and name != "win_rate":
            told[f"{name}_standard_error"] = None
    return told


def _error_of(measured: Mapping[str, Any], name: str) -> float:
    """Return the standard error of a number; infinity where none is known."""
    if name == "win_rate":
        low, high = measured["win_rate_interval"]
        # an end that was clipped to what is possible is no nearer than the other one
        reach = max(high - measured[name], measured[name] - low)
        error = reach / float(ndtri(0.975))
    else:
        error = measured[f"{name}_standard_error"]
    return math.inf if error is None or math.isnan(error) else float(error)


def refit_widening(parts: int, *, measured: int) -> float:
    """Return how much larger errors are where fits on less speak of the one that is released."""
    # Answers are in K parts; of J of them each is predicted by a fit on all the others. How far
    # these fits are from each other, and from that on everything, shows in no scatter within a
    # part.
    # Source: Nadeau and Bengio (2003), Inference for the Generalization Error: a variance σ²/J
    # becomes (1/J + 1/(K − 1))σ². docs/local.md, metrics on randomized labels.
    return math.sqrt(1 + measured / (parts - 1))


@dataclass(frozen=True, kw_only=True)
class AnswerMetrics:
    """What the predictions of a reward say about randomized answers, and a policy of it."""

    accuracy: Estimate  # how often the predicted preference is the true one
    negative_log_likelihood: Estimate  # the mean logistic loss on the true answers
    # The factor that would calibrate the predictions, below 1 where they are too sure of
    # themselves; None without a finite one.
    calibration_slope: Estimate | None
    # How often a Gibbs policy on the two answers picks the preferred one; None where no temperature
    # was given.
    win_rate: Estimate | None
    rows: int  # how many answers it was measured on

    def to_dict(self) -> dict[str, Any]:
        """Return every number of the reward and its standard error, as results hold them."""
        return legible(numbers_of(self))


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldOut:
    """Predictions in memory, for answers that the fit behind them did not see."""

    differences: Float[np.ndarray, " n"]
    answers: Integer[np.ndarray, " n"]
    flip_probability: float
    clusters: Integer[np.ndarray, " n"] | None = None  # who answered
    widening: float = 1.0  # of errors, because a fit on all answers is spoken of

    @property
    def linked(self) -> bool:
        """Return whether it is known who answered."""
        return self.clusters is not None

    @property
    def parts(self) -> Rows:
        """Return differences, ỹ, and who answered, numbered from 0; refuse what does not fit."""
        predictions = finite_array("predictions", self.differences, ndim=1)
        targets = debias(self.answers, self.flip_probability)
        if len(targets) != len(predictions) or len(targets) == 0:
            raise DataError(
                "predictions and answers must be as many and at least one, got shapes "
                f"{predictions.shape} and {targets.shape}."
            )
        persons = None
        if self.clusters is not None:
            who = np.asarray(self.clusters)
            if who.dtype.kind not in "iu" or who.shape != targets.shape:
                raise DataError(
                    f"clusters must be one integer a record, got dtype {who.dtype} and shape "
                    f"{who.shape}."
                )
            persons = np.unique(who, return_inverse=True)[1]
        return Rows.of(predictions, targets, persons)


def cross_fit(
    design: Design,
    *,
    ridge: float | None = None,
    ball: float = BALL,
    method: str = "auto",
    finite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> HeldOut:
    """Return predictions for every observation from fits that did not see its question."""
    # Each fit chooses its own ridge and method, or (finite) its own candidate, without the part
    # that it is measured on.
    folds = design.folds(MEASURING)
    predictions = np.zeros(len(design))
    parts = np.unique(folds)
    for done, fold in enumerate(parts):
        if progress:
            progress(done, FOLDS)
        inside = design.part(folds != fold)
        if not len(inside):
            raise DataError("These are too few different questions to hold any out.")
        if finite:
            weights = likeliest(inside)[0]
        else:
            weights = fit_design(inside, ridge=ridge, ball=ball, level=2, method=method).weights
        rows = np.flatnonzero(folds == fold)
        predictions[rows] = design.differences[rows] @ weights
    return HeldOut(
        differences=predictions,
        answers=design.answers,
        flip_probability=design.flip_probability,
        clusters=design.clusters,
        widening=refit_widening(len(parts), measured=len(parts)),
    )


_ROW: Final = [("who", "<u8", 2), ("difference", "<f8"), ("answer", "?")]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Predictions:
    """Predictions in a folder that all machines see, in parts that memory holds."""

    parts: Rows  # as of predictions in memory; all answers of a person are in one part
    flip_probability: float  # chance that an answer is not the judgment
    linked: bool  # whether it is known who answered


def _read_part(
    exchange: Exchange, chunks: int, flip_probability: float, linked: object, part: int
) -> Iterator[tuple[int, Numbers, Numbers, Integers | None]]:
    """Yield the predictions of one part, which may be none."""
    rows, persons = exchange.read(part, chunks), None
    if linked:
        persons = np.unique(rows["who"], axis=0, return_inverse=True)[1].ravel()
    yield (
        part,
        rows["difference"],
        debias(rows["answer"].astype(np.int8), flip_probability),
        persons,
    )


@contextmanager
def opened_predictions(
    survey: ChunkSurvey,
    weights: Float[np.ndarray, " d"],
    *,
    features: Features | None,
    flip_probability: float,
    scratch: str | Path | None = None,
) -> Iterator[_Predictions]:
    """Read the answers that count once; keep the predictions for as long as the context is open."""
    with opened_exchange(_ROW, scratch) as exchange:
        task, chunks = partial(_predict, survey, exchange, weights, features), survey.chunks
        if survey.engine.fold(chunks, task, add, taken=survey.taken) != survey.counted:
            raise DataError("The input changed while it was read. Nothing was measured.")
        linked = survey.linked
        read = partial(_read_part, exchange, len(chunks), flip_probability, linked)
        parts = Rows(survey.engine, range(PARTS), read, (survey.counted, 1), survey.taken)
        yield _Predictions(parts=parts, flip_probability=flip_probability, linked=linked)


def _predict(
    survey: ChunkSurvey,
    exchange: Exchange,
    weights: Float[np.ndarray, " d"],
    features: Features | None,
    chunk: Chunk,
) -> int:
    """Leave the predictions for those answers of a chunk that count; return how many there are."""
    found = [np.zeros(0, _ROW)]
    for batch, counts in survey.read(chunk):
        if not len(kept := np.flatnonzero(counts)):
            continue
        pairs, rows = batch.whole, np.zeros(len(kept), _ROW)
        rows["difference"] = pairs.differences(features)[kept] @ weights
        rows["answer"] = pairs.labels[kept]  # labels are answers here
        if pairs.persons is not None:
            digests = b"".join(person_key(pairs.persons[index])[:16] for index in kept)
            rows["who"] = np.frombuffer(digests, dtype=">u8").reshape(-1, 2)
        found.append(rows)
    rows = np.concatenate(found)
    parts = rows["who"][:, 0] if survey.linked else np.arange(len(rows))
    exchange.write(chunk.number, rows, (parts % PARTS).astype(np.int64))
    return len(rows)


_ACCURACY, _LOSS, _WINS = range(3)
_EVEN: Final = math.inf  # a temperature at which nobody wins


def measure_predictions(
    predictions: HeldOut | _Predictions, *, temperature: float | None = None, widening: float = 1.0
) -> AnswerMetrics:
    """Return what predictions say about answers, with the randomization taken out; it is free."""
    # Source: docs/local.md, metrics on randomized labels. Accuracy is (mean(sign agrees with z) −
    # f)/(1 − 2f), its standard error √(p(1 − p)/n)/(1 − 2f) where it is not known who answered;
    # the loss is the mean of softplus(Δ) − ỹΔ, the win rate that of ỹp + (1 − ỹ)(1 − p), and the
    # slope the root b of Σ (σ(bΔ) − ỹ)Δ = 0, with the error √Σ(score²)/Σσ′(bΔ)Δ² (delta method).
    # Errors are robust to dependence between the answers of a person.
    heat, parts = _EVEN if temperature is None else temperature, predictions.parts
    sums, largest = parts.fold(partial(_totals, heat), added_and_largest)
    (lowest, highest), rows, unit = sums[4:], int(sums[0]), float(largest)
    means, root, information = sums[1:4] / rows, None, 0.0
    if lowest < 0 < highest:
        root = increasing_root(lambda slope: parts.fold(partial(_scores, unit, slope), add))
    if root is not None:  # where the scores add up to 0, up to rounding
        score, information = parts.fold(partial(_scores, unit, root), add).tolist()
        means = np.append(means, score / rows)
    persons, squares = parts.fold(partial(_spread, heat, means, root, unit), each_added)
    g = int(persons)  # of a mean over clusters: √(G/(G − 1) · Σ(sum of a cluster)²)/n
    errors = [math.inf if g == 1 else math.sqrt(g / (g - 1) * float(of)) / rows for of in squares]
    if not predictions.linked:
        value = float(means[_ACCURACY])
        # Source: docs/local.md, metrics on randomized labels: √(p(1 − p)/n)/(1 − 2f), p the share
        # of answers that agree.
        kept = 1 - 2 * predictions.flip_probability
        agreement = predictions.flip_probability + kept * value
        agreement = min(max(agreement, 0.0), 1.0)  # all agree, up to rounding
        errors[_ACCURACY] = math.sqrt(agreement * (1 - agreement) / rows) / kept
    known = [
        Estimate(float(mean), error).widened(widening)
        for mean, error in zip(means[:3], errors[:3], strict=True)
    ]
    slope = None
    if root is not None:
        # A subnormal information would divide to nonsense: nothing is known about such a slope.
        enough = information > np.finfo(float).tiny
        error = errors[-1] * rows / information if enough else math.inf
        slope = Estimate(root / unit, error / unit).widened(widening)
    return AnswerMetrics(
        accuracy=known[_ACCURACY],
        negative_log_likelihood=known[_LOSS],
        calibration_slope=slope,
        win_rate=None if temperature is None else known[_WINS],
        rows=rows,
    )


def _values(gaps: Numbers, targets: Numbers, heat: float) -> Float[np.ndarray, "3 n"]:
    """Return what accuracy, loss and win rate are means of: how often the winner is picked."""
    # a reward picks the first answer of each pair with chance 1, 0, or ½ without a gap
    greedy, tilted = 0.5 + 0.5 * np.sign(gaps), expit(gaps / heat)
    picks = [targets * chance + (1 - targets) * (1 - chance) for chance in (greedy, tilted)]
    return np.stack([picks[0], debiased_loss(gaps, targets), picks[1]])


def _totals(
    heat: float, _part: int, gaps: Numbers, targets: Numbers, _: object
) -> list[np.ndarray]:
    """Return what one part adds up to, and the largest |Δ|."""
    # How many there are; what accuracy, loss and win rate are means of; and Σ(1[Δ < 0] − ỹ)Δ and
    # Σ(1[Δ > 0] − ỹ)Δ, the scores of an infinite slope.
    limits = [((side - targets) * gaps).sum() for side in (gaps < 0, gaps > 0)]
    sums = np.array([len(gaps), *_values(gaps, targets, heat).sum(axis=1), *limits])
    return [sums, np.asarray(np.abs(gaps).max(initial=0.0))]


def _scores(
    unit: float, slope: float, _part: int, gaps: Numbers, targets: Numbers, _: object
) -> Float[np.ndarray, " two"]:
    """Return the sums of the scores of one part, and of their derivatives."""
    score, bend = _slope_scores(gaps, targets, unit, slope)
    return np.array([score.sum(), bend.sum()])


def _slope_scores(
    gaps: Numbers, targets: Numbers, unit: float, slope: float
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Return (σ(bΔ) − ỹ)Δ and its derivative σ′(bΔ)Δ² for every record."""
    scaled = gaps / unit
    chosen = expit(slope * scaled)
    return (chosen - targets) * scaled, chosen * (1 - chosen) * scaled**2


def _spread(
    heat: float,
    means: Float[np.ndarray, " m"],
    root: float | None,
    unit: float,
    _part: int,
    gaps: Numbers,
    targets: Numbers,
    persons: Integers | None,
) -> list[np.ndarray]:
    """Return how many persons are in one part, and the squares of what each deviates."""
    values = list(_values(gaps, targets, heat))
    values += [] if root is None else [_slope_scores(gaps, targets, unit, root)[0]]
    sums = [of - mean for of, mean in zip(values, means, strict=True)]
    if persons is not None:
        sums = [np.bincount(persons, weights=of) for of in sums]
    return [np.array(len(sums[0])), np.array([float(of @ of) for of in sums])]


def increasing_root(rising: Callable[[float], Float[np.ndarray, " two"]]) -> float | None:
    """Return where Σ wσ(bΔ)Δ less a number is 0, from its value and slope at a b; or None."""
    # Newton's method from 0. Beyond 0 on either side the sum bends away from its tangent, so that
    # every step ends short of the root, and none needs a bracket.
    # Source: docs/local.md, metrics on randomized labels.
    root = 0.0
    for _ in range(_MOST_STEPS):
        value, bend = rising(root).tolist()
        if value == 0 or (root and (value > 0) == (root > 0)):
            return root  # which is passed by rounding only
        step = -value / bend if bend > 0 else math.inf
        if abs(root + step) > _FARTHEST:
            break  # the limits differ from the data only by rounding
        root += step
        if abs(step) <= _CLOSE * abs(root):
            return root
    return None


_SPLITS = 10  # of the sum


def measure_statistic(
    evidence: Evidence, *, ridge: float | None = None, ball: float
) -> dict[str, float | None]:
    """Return what a reward measures on held-out answers, with None where nothing is free."""
    # Source: docs/central.md, "Label privacy, one Gaussian release": fit on T₁, score on T₂.
    if ridge is None and len(evidence.statistic) > MOST_FEATURES:
        ridge = evidence.public_ridge
    pilot = fit_sum(evidence, ridge=ridge, ball=ball).weights
    parts = evidence.thinned(pilot, _SPLITS, "measure")
    fits = [fit_sum(part.fitted, ridge=ridge, ball=ball).weights for part in parts]
    shared = float(np.mean([evidence.variance_along(theta) for theta in fits]))
    # Source: docs/central.md, "Label privacy, one Gaussian release".
    n = parts[0].fitted.weights.sum()
    scores = np.array([part.score(theta) for part, theta in zip(parts, fits, strict=True)])
    loss = Estimate(float(scores.mean()) / n, _split_error(scores, shared) / n)
    # The factor by which predicted differences should be multiplied; 1 is calibrated.
    # Source: docs/local.md, metrics on randomized labels: root b of Σ wσ(bΔ)Δ = T₂ᵀθ, which stands
    # for Σ wyΔ; both summed over the splits.
    margins = np.stack(
        [part.fitted.sample @ theta for part, theta in zip(parts, fits, strict=True)]
    )
    pulls = np.array([part.judged @ theta for part, theta in zip(parts, fits, strict=True)])
    weights = parts[0].fitted.weights
    found = slope_of_sum(margins.ravel(), float(pulls.sum()), np.tile(weights, len(parts)))
    calibration = None
    if found is not None:
        slope, information = found
        scores = pulls - (expit(slope * margins) * margins) @ weights
        error = _split_error(scores, shared) * len(parts)
        calibration = Estimate(slope, error / information if information else math.inf)
    return numbers_of(
        SimpleNamespace(accuracy=None, negative_log_likelihood=loss, calibration_slope=calibration)
    )


def likes_of_sum(evidence: Evidence, bars: int) -> Estimate | None:
    """Return the share of single answers that are liked, by the released sums of their bars."""
    # Each row is as high as its bar at one of the last places: Σ wyh/Σ wh, and what is added to it
    # is known. Source: docs/local.md, "Thumbs and ratings".
    if not bars:
        return None
    heights = np.asarray(evidence.sample[:, -bars:].sum(axis=1)).ravel() * evidence.weights
    scale = len(evidence) / len(heights)
    whole, square = scale * float(heights.sum()), scale * float(heights @ heights) / 4
    if not whole:
        return None
    added = 0.0 if evidence.covariance is None else float(evidence.covariance[-bars:, -bars:].sum())
    share = float(evidence.statistic[-bars:].sum()) / whole
    return Estimate(share, math.sqrt(square + added) / whole)


def slope_of_sum(
    margins: Float[np.ndarray, " n"], pull: float, weights: Float[np.ndarray, " n"] | float = 1.0
) -> tuple[float, float] | None:
    """Return the slope b that answers of this sum call for, and how sharply they do."""
    # Source: docs/local.md, metrics on randomized labels: root b of Σ wσ(bΔ)Δ = Σ wyΔ.
    unit = float(np.max(np.abs(margins)))
    if unit == 0:
        return None
    scaled = margins / unit
    counted, needed = weights * scaled, pull / unit

    def rising(slope: float) -> Float[np.ndarray, " two"]:
        chosen = expit(slope * scaled)
        return np.array([chosen @ counted - needed, (chosen * (1 - chosen)) @ (counted * scaled)])

    within = float(counted[scaled < 0].sum()) < needed < float(counted[scaled > 0].sum())
    root = increasing_root(rising) if within else None
    if root is None:
        return None
    slope = root / unit
    return slope, float(np.sum(weights * debiased_slope(slope * margins) * margins**2))


def _split_error(scores: Float[np.ndarray, " k"], shared: float) -> float:
    """Return the standard error of the mean over splits of one sum."""
    # T̃ᵀθ is common to all of them; what each split added averages out.
    return math.sqrt(shared + float(scores.var(ddof=1)) / len(scores))
