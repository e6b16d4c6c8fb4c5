"""What randomized answers say about predictions, with the randomization taken out.

Every number here estimates what the answers before the flips would have given. The answers were
private when they arrived, so that nothing is spent. Predictions must come from other records
than these (held-out), or the numbers flatter.

How good a reward is, from the one sum that was released; it costs nothing.

The sum is split into two independent parts (Gaussian thinning): one is fitted, the other judges.
What is judged is a fit with a quarter more noise than the released one, on fresh answers to the
same questions. Held-out accuracy is no function of the sum, so it is not told.

What metrics are made of: sums over public margins, in memory or in files, and one noised sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import brentq
from scipy.special import expit, ndtri

from sordino._validate import failure_probability, finite_array
from sordino.errors import DataError

from .covariance import debiased_slope
from .evidence import MOST_FEATURES, LabelEvidence, Thinned
from .pair_losses import debias, debiased_loss, softplus
from .ridge_selection import fit_statistic, label_ridges

VAGUE = 0.1
"""A standard error above which a share or a loss is told as a sentence, and not as a number."""

_VAGUE_SLOPE = 0.5  # a slope has no unit: with more, "too bold" and "too timid" are one
_SHARES = ("accuracy", "win_rate")

FARTHEST = 4.0**166
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

    def interval(
        self, confidence: float = 0.95, *, lower: float = -math.inf, upper: float = math.inf
    ) -> Interval:
        """Return the normal interval around the value, clipped to what is possible."""
        # Source: docs/local.md, metrics on randomized labels.
        level = failure_probability("confidence", confidence, zero=False)
        reach = float(ndtri(0.5 + level / 2)) * self.standard_error
        return Interval(
            value=self.value,
            standard_error=self.standard_error,
            lower=min(max(self.value - reach, lower), upper),
            upper=min(max(self.value + reach, lower), upper),
            confidence=level,
        )


@dataclass(frozen=True)
class Interval(Estimate):
    """An estimate with an interval that covers the truth as often as ``confidence`` says."""

    # Source: docs/local.md, metrics on randomized labels.

    lower: float
    upper: float
    confidence: float


@dataclass(frozen=True, kw_only=True)
class RewardMetrics:
    """What the predictions of a reward say about randomized answers."""

    accuracy: Estimate  # how often the predicted preference is the true one
    negative_log_likelihood: Estimate  # the mean logistic loss on the true answers
    # The factor that would calibrate the predictions; None without a finite one.
    calibration_slope: Estimate | None

    def to_dict(self) -> dict[str, Any]:
        """Return every number and its standard error, as results hold them."""
        slope, likelihood = self.calibration_slope, self.negative_log_likelihood
        found = {
            "accuracy": self.accuracy.value,
            "accuracy_standard_error": self.accuracy.standard_error,
            "negative_log_likelihood": likelihood.value,
            "negative_log_likelihood_standard_error": likelihood.standard_error,
            "calibration_slope": None if slope is None else slope.value,
            "calibration_slope_standard_error": None if slope is None else slope.standard_error,
        }
        return legible(found)


def legible(measured: Mapping[str, Any]) -> dict[str, Any]:
    """Return measured numbers as they may be shown: none that is too vague, no impossible share."""
    # An unbiased estimate from a few answers may be -15 %, and is no accuracy. Where the standard
    # error is above `VAGUE` or unknown the number becomes None, and `NAME_reason` says why; where
    # that is so of an accuracy, of the loss and the slope of the same answers too.
    told = dict(measured)
    few = told.get("accuracy") is not None and _error_of(told, "accuracy") > VAGUE
    for name in ("accuracy", "negative_log_likelihood", "calibration_slope", "win_rate"):
        value = told.get(name)
        if value is None:
            continue
        error = _error_of(told, name)
        vague = few and name != "win_rate"  # others would be told where they only look sure
        if vague:
            error = max(error, _error_of(measured, "accuracy"))
        if not vague and error <= (_VAGUE_SLOPE if name == "calibration_slope" else VAGUE):
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


def accuracy(
    differences: Float[np.ndarray, " n"],
    answers: Int[np.ndarray, " n"],
    flip_probability: float,
    *,
    clusters: Int[np.ndarray, " n"] | None = None,
) -> Estimate:
    """Return how often the predicted preference is the true one."""
    # Source: docs/local.md, metrics on randomized labels: (mean(sign agrees with z) − f)/(1 − 2f),
    # standard error √(p(1 − p)/n)/(1 − 2f).
    differences, targets = _checked(differences, answers, flip_probability)
    debiased = agreements(greedy_picks(differences), targets)
    value = float(np.mean(debiased))
    if clusters is not None:
        return Estimate(value, _standard_error(debiased, clusters))
    return Estimate(value, accuracy_error(value, flip_probability, len(targets)))


def negative_log_likelihood(
    differences: Float[np.ndarray, " n"],
    answers: Int[np.ndarray, " n"],
    flip_probability: float,
    *,
    clusters: Int[np.ndarray, " n"] | None = None,
) -> Estimate:
    """Return the mean logistic loss that the predictions have on the true answers."""
    # Source: docs/local.md, debiased likelihood: mean of softplus(Δ) − ỹΔ.
    differences, targets = _checked(differences, answers, flip_probability)
    return _mean(debiased_loss(differences, targets), clusters)


def calibration_slope(
    differences: Float[np.ndarray, " n"],
    answers: Int[np.ndarray, " n"],
    flip_probability: float,
    *,
    clusters: Int[np.ndarray, " n"] | None = None,
) -> Estimate | None:
    """Return the factor by which predicted differences should be multiplied; 1 is calibrated."""
    # Below 1 the predictions are too sure of themselves, above 1 not sure enough.
    # Source: docs/local.md, metrics on randomized labels: root b of Σ (σ(bΔ) − ỹ)Δ = 0. The
    # standard error is the delta method's: √Σ(score²)/Σσ′(bΔ)Δ².
    differences, targets = _checked(differences, answers, flip_probability)
    unit = float(np.max(np.abs(differences)))
    if unit == 0:
        return None
    scaled = differences / unit
    root = increasing_root(scaled, float(targets @ scaled))
    if root is None:
        return None
    scores, bends = slope_scores(scaled, targets, root)
    error = _standard_error(scores, clusters) * len(scores)
    return slope_estimate(root, unit, float(np.sum(bends)), error)


def win_rate(
    probabilities_of_first: Float[np.ndarray, " n"],
    answers: Int[np.ndarray, " n"],
    flip_probability: float,
    *,
    confidence: float = 0.95,
    clusters: Int[np.ndarray, " n"] | None = None,
) -> Interval:
    """Return how often a policy that picks the first with these probabilities picks the winner."""
    # Source: docs/local.md, metrics on randomized labels: mean of ỹp + (1 − ỹ)(1 − p), normal
    # interval clipped to [0, 1].
    picks_first, targets = _checked(probabilities_of_first, answers, flip_probability)
    outside = (picks_first < 0) | (picks_first > 1)
    if outside.any():
        raise DataError(
            f"probabilities_of_first must be in [0, 1]: row {int(np.argmax(outside))} is not."
        )
    estimate = _mean(agreements(picks_first, targets), clusters)
    return estimate.interval(confidence, lower=0.0, upper=1.0)


def greedy_picks(differences: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return how likely a reward picks the first answer of each pair: 1, 0, or ½ without a gap."""
    return np.asarray(0.5 + 0.5 * np.sign(differences))


def agreements(
    picks_first: Float[np.ndarray, " n"], targets: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Ỹp + (1 − ỹ)(1 − p) for every record: how often the winner is picked, in expectation."""
    return np.asarray(targets * picks_first + (1 - targets) * (1 - picks_first))


def accuracy_error(value: float, flip_probability: float, rows: int) -> float:
    """Return the standard error of an accuracy of answers by as many people."""
    # Source: docs/local.md, metrics on randomized labels: √(p(1 − p)/n)/(1 − 2f), p the share of
    # answers that agree.
    kept = 1 - 2 * flip_probability
    agreement = min(max(flip_probability + kept * value, 0.0), 1.0)  # all agree, up to rounding
    return math.sqrt(agreement * (1 - agreement) / rows) / kept


def clustered_error(squares: float, clusters: int, rows: int) -> float:
    """Return the standard error of a mean: √(G/(G − 1) · Σ(sum of a cluster)²)/n."""
    if clusters == 1:
        return math.inf
    return math.sqrt(clusters / (clusters - 1) * squares) / rows


def slope_scores(
    scaled: Float[np.ndarray, " n"], targets: Float[np.ndarray, " n"], slope: float
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Return (σ(bΔ) − ỹ)Δ and its derivative σ′(bΔ)Δ² for every record."""
    chosen = expit(slope * scaled)
    return (chosen - targets) * scaled, chosen * (1 - chosen) * scaled**2


def slope_estimate(root: float, unit: float, information: float, error: float) -> Estimate:
    """Return a calibration slope and its error, by the delta method."""
    # A subnormal information would divide to nonsense: nothing is known about such a slope.
    error = error / information if information > np.finfo(float).tiny else math.inf
    return Estimate(root / unit, error / unit)


def _checked(
    predictions: np.ndarray, answers: np.ndarray, flip_probability: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the predictions and the debiased targets; refuse what does not fit."""
    predictions = finite_array("predictions", predictions, ndim=1)
    targets = debias(answers, flip_probability)
    if len(targets) != len(predictions) or len(targets) == 0:
        raise DataError(
            "predictions and answers must be as many and at least one, got shapes "
            f"{predictions.shape} and {targets.shape}."
        )
    return predictions, targets


def _mean(values: np.ndarray, clusters: np.ndarray | None) -> Estimate:
    """Return the mean and its standard error."""
    return Estimate(float(np.mean(values)), _standard_error(values, clusters))


def _standard_error(values: np.ndarray, clusters: np.ndarray | None) -> float:
    """Return the standard error of the mean of values, robust to dependence within clusters."""
    # Without clusters every record is one of its own, and this is the usual standard error.
    sums = values - np.mean(values)
    if clusters is not None:
        labels = np.asarray(clusters)
        if labels.dtype.kind not in "iu" or labels.shape != values.shape:
            raise DataError(
                f"clusters must be one integer a record, got dtype {labels.dtype} and shape "
                f"{labels.shape}."
            )
        sums = np.bincount(np.unique(labels, return_inverse=True)[1], weights=sums)
    return clustered_error(float(sums @ sums), len(sums), len(values))


def increasing_root(
    scaled: np.ndarray, pull: float, weights: np.ndarray | float = 1.0
) -> float | None:
    """Return the finite root b of Σ wσ(bΔ)Δ = pull, or None where there is none."""
    # Source: docs/local.md, metrics on randomized labels.
    counted = weights * scaled
    positive, negative = float(counted[scaled > 0].sum()), float(counted[scaled < 0].sum())
    if not negative < pull < positive:
        return None

    def rising(slope: float) -> float:
        return float(expit(slope * scaled) @ counted) - pull

    reach = 1.0
    while rising(-reach) > 0 or rising(reach) < 0:
        reach *= 4
        if reach > FARTHEST:
            return None  # the limits differ from the data only by rounding
    return float(brentq(rising, -reach, reach, xtol=1e-14, rtol=1e-13, maxiter=500))


_DRAWS = 10
_MIDDLE = 3  # of the candidates: the ridge that public settings suggest


def measure_statistic(
    evidence: LabelEvidence, *, ridge: float | None = None, ball: float
) -> dict[str, float | None]:
    """Return what a reward measures on held-out answers, with None where nothing is free."""
    # Source: docs/central.md, "Label privacy, one Gaussian release": fit on T₁, score on T₂.
    if ridge is None and len(evidence.statistic) > MOST_FEATURES:
        ridge = label_ridges(evidence)[_MIDDLE]
    pilot = fit_statistic(evidence, ridge=ridge, ball=ball).weights
    parts = evidence.thinned(pilot, _DRAWS, "measure")
    fits = [fit_statistic(part.fitted, ridge=ridge, ball=ball).weights for part in parts]
    shared = float(np.mean([evidence.variance_along(theta) for theta in fits]))
    loss = _loss(parts, fits, shared)
    slope = _slope(parts, fits, shared)
    return {
        "accuracy": None,
        "accuracy_standard_error": None,
        "negative_log_likelihood": loss.value,
        "negative_log_likelihood_standard_error": loss.standard_error,
        "calibration_slope": None if slope is None else slope.value,
        "calibration_slope_standard_error": None if slope is None else slope.standard_error,
    }


def _loss(parts: Sequence[Thinned], fits: Sequence[Any], shared: float) -> Estimate:
    """Return the mean loss of fits on T₁, by T₂."""
    # Source: docs/central.md, "Label privacy, one Gaussian release".
    n = parts[0].fitted.weights.sum()
    scores = np.array([part.score(theta) for part, theta in zip(parts, fits, strict=True)])
    return Estimate(float(scores.mean()) / n, _spread(scores, shared) / n)


def _slope(parts: Sequence[Thinned], fits: Sequence[Any], shared: float) -> Estimate | None:
    """Return the factor by which predicted differences should be multiplied; 1 is calibrated."""
    # Source: docs/local.md, metrics on randomized labels: root b of Σ wσ(bΔ)Δ = T₂ᵀθ, which stands
    # for Σ wyΔ; both summed over the splits.
    margins = np.stack(
        [part.fitted.differences @ theta for part, theta in zip(parts, fits, strict=True)]
    )
    pulls = np.array([part.judged @ theta for part, theta in zip(parts, fits, strict=True)])
    weights = parts[0].fitted.weights
    found = slope_of_sum(margins.ravel(), float(pulls.sum()), np.tile(weights, len(parts)))
    if found is None:
        return None
    slope, information = found
    scores = pulls - (expit(slope * margins) * margins) @ weights
    error = _spread(scores, shared) * len(parts)
    return Estimate(slope, error / information if information else math.inf)


def slope_of_sum(
    margins: Float[np.ndarray, " n"],
    pull: float,
    weights: Float[np.ndarray, " n"] | float = 1.0,
) -> tuple[float, float] | None:
    """Return the slope b that answers of this sum call for, and how sharply they do."""
    # Source: docs/local.md, metrics on randomized labels: root b of Σ wσ(bΔ)Δ = Σ wyΔ.
    unit = float(np.max(np.abs(margins)))
    if unit == 0:
        return None
    root = increasing_root(margins / unit, pull / unit, weights)
    if root is None:
        return None
    slope = root / unit
    return slope, float(np.sum(weights * debiased_slope(slope * margins) * margins**2))


def _spread(scores: Float[np.ndarray, " k"], shared: float) -> float:
    """Return the standard error of the mean over splits of one sum."""
    # T̃ᵀθ is common to all of them; what each split added averages out.
    return math.sqrt(shared + float(scores.var(ddof=1)) / len(scores))


def label_columns(margins: Float[np.ndarray, " n"], temperature: float) -> Float[np.ndarray, "n 3"]:
    """Return v = (sign(m), 2σ(m/temperature) − 1, m), which labels are summed with."""
    # Source: docs/central.md, "Metrics that are paid for".
    with np.errstate(over="ignore", under="ignore"):
        tilted = np.tanh(margins / (2 * temperature))  # 2σ(m) − 1 without its rounding near 0
    return np.stack([np.sign(margins), tilted, margins], axis=1)


def refuse_no_preference(largest: float) -> None:
    """Refuse to measure a reward that prefers nothing; margins are public."""
    if largest == 0:
        raise DataError(
            "The reward scores both answers of every held-out pair alike: it prefers nothing, so "
            "there is nothing to measure. Nothing was spent."
        )


@dataclass(frozen=True, eq=False)
class MarginSums:
    """What some margins add up to; no label is in it."""

    rows: int  # how many
    below: float  # #{m < 0} + ½ #{m = 0}
    loses: float  # Σ (1 − p), p = σ(m/temperature)
    loses_squared: float  # Σ (1 − p)²
    softplus: float  # Σ softplus(m)
    positive: float
    negative: float
    squares: float  # Σ m²
    sizes: Float[np.ndarray, " 3"]  # the largest size of each of `label_columns`

    @classmethod
    def of(cls, margins: Float[np.ndarray, " n"], temperature: float) -> MarginSums:
        """Return the sums of some margins."""
        with np.errstate(over="ignore"):
            loses = expit(-margins / temperature)
        return cls(
            rows=len(margins),
            below=float(np.sum(margins < 0) + np.sum(margins == 0) / 2),
            loses=float(loses.sum()),
            loses_squared=float(loses @ loses),
            softplus=float(softplus(margins).sum()),
            positive=float(margins[margins > 0].sum()),
            negative=float(margins[margins < 0].sum()),
            squares=float(margins @ margins),
            sizes=np.abs(label_columns(margins, temperature)).max(axis=0, initial=0.0),
        )

    def plus(self, other: MarginSums) -> MarginSums:
        """Return the sums of both."""
        return MarginSums(
            self.rows + other.rows,
            self.below + other.below,
            self.loses + other.loses,
            self.loses_squared + other.loses_squared,
            self.softplus + other.softplus,
            self.positive + other.positive,
            self.negative + other.negative,
            self.squares + other.squares,
            np.maximum(self.sizes, other.sizes),
        )


@dataclass(frozen=True, eq=False)
class SlopeSums:
    """What some margins add up to if labels have chances σ(bm), for some slopes b."""

    pulls: Float[np.ndarray, " b"]  # Σ σ(bm)m, what Σ ym would be
    information: Float[np.ndarray, " b"]  # Σ σ′(bm)m², its slope in b
    losses: Float[np.ndarray, " b"]  # Σ of the expected loss softplus(m) − ym
    squares: Float[np.ndarray, " b"]  # Σ of its expected square

    @classmethod
    def of(cls, margins: Float[np.ndarray, " n"], slopes: Sequence[float]) -> SlopeSums:
        """Return the sums of some margins."""
        first, second = softplus(-margins), softplus(margins)
        sums = np.array([_at_slope(margins, first, second, slope) for slope in slopes])
        return cls(*sums.T)

    def plus(self, other: SlopeSums) -> SlopeSums:
        """Return the sums of both."""
        return SlopeSums(
            self.pulls + other.pulls,
            self.information + other.information,
            self.losses + other.losses,
            self.squares + other.squares,
        )


def _at_slope(margins: Any, first: Any, second: Any, slope: float) -> tuple[float, ...]:
    """Return the four sums of :class:`SlopeSums` at one slope."""
    chances = expit(slope * margins)
    return (
        float(chances @ margins),
        float(debiased_slope(slope * margins) @ margins**2),
        float(chances @ first + (1 - chances) @ second),
        float(chances @ first**2 + (1 - chances) @ second**2),
    )


@dataclass(frozen=True, eq=False)
class NoisedSums:
    """The released Σ y v with its noise, and all that is public of the margins it is about."""

    known: MarginSums  # sums of the margins of all rows that count
    totals: Float[np.ndarray, " 3"]  # the released sum, on the scale of the columns
    variances: Float[np.ndarray, " 3"]  # of its noise
    slope: float | None  # the root b of Σ σ(bm)m = Σ ym; None where there is none
    bent: SlopeSums  # sums at that slope; at 0 where there is none

    def estimates(self) -> dict[str, Any]:
        """Return numbers of :class:`~sordino.rewards.private_metrics.PrivateMetrics`, by name."""
        return {
            "accuracy": self._accuracy(),
            "negative_log_likelihood": self._loss(),
            "calibration_slope": self._slope(),
            "win_rate": self._win_rate().interval(lower=0.0, upper=1.0),
            "pairs": self.known.rows,
        }

    def _accuracy(self) -> Estimate:
        """Return (Σ y sign + #{m < 0} + ½ #{m = 0})/k; it is 0 or 1 (or ½) a row."""
        # Source: docs/central.md, "Metrics that are paid for".
        value = (self.known.below + self.totals[0]) / self.known.rows
        share = min(max(value, 0.0), 1.0)
        return self._estimate(value, share * (1 - share), self.variances[0])

    def _win_rate(self) -> Estimate:
        """Return (Σ (1 − p) + Σ y(2p − 1))/k."""
        # Source: docs/central.md, "Metrics that are paid for": of a row that wins with 1 − p + y(2p
        # − 1) the square is (1 − p)² + y(2p − 1) for y = 0 and 1, and less for ½.
        value = (self.known.loses + self.totals[1]) / self.known.rows
        square = (self.known.loses_squared + self.totals[1]) / self.known.rows
        return self._estimate(value, square - value**2, self.variances[1])

    def _loss(self) -> Estimate:
        """Return (Σ softplus(m) − Σ ym)/k."""
        # Source: docs/central.md, "Metrics that are paid for": how far losses spread is taken at
        # chances σ(bm), b the slope, which have the same mean loss.
        value = (self.known.softplus - self.totals[2]) / self.known.rows
        mean, square = (
            float(sums[0]) / self.known.rows for sums in (self.bent.losses, self.bent.squares)
        )
        return self._estimate(value, square - mean**2, self.variances[2])

    def _slope(self) -> Estimate | None:
        """Return the root b of Σ σ(bm)m = Σ ym; None where there is none."""
        # Source: docs/central.md, "Metrics that are paid for".
        if self.slope is None:
            return None
        information = float(self.bent.information[0])
        error = float(np.sqrt(information + self.variances[2]))
        return Estimate(self.slope, error / information if information else np.inf)

    def _estimate(self, value: float, variance: float, noise: float) -> Estimate:
        """Return a mean over rows, from the variance of one row and that of the summed noise."""
        k = self.known.rows
        return Estimate(float(value), float(np.sqrt(max(variance, 0.0) / k + noise / k**2)))
