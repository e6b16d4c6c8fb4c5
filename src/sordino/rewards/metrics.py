"""What randomized answers say about predictions, with the randomization taken out.

Every number here estimates what the answers before the flips would have given. The answers were
private when they arrived, so that nothing is spent. Predictions must come from other records
than these (held-out), or the numbers flatter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import brentq
from scipy.special import expit, ndtri

from sordino._validate import failure_probability, finite_array
from sordino.errors import DataError

from .likelihoods import debias, debiased_loss

__all__ = [
    "FARTHEST",
    "VAGUE",
    "Estimate",
    "Interval",
    "RewardMetrics",
    "accuracy",
    "accuracy_error",
    "agreements",
    "calibration_slope",
    "clustered_error",
    "greedy_picks",
    "increasing_root",
    "legible",
    "negative_log_likelihood",
    "slope_estimate",
    "slope_scores",
    "win_rate",
]

VAGUE = 0.1
"""A standard error above which a share or a loss is told as a sentence, and not as a number."""

_VAGUE_SLOPE = 0.5  # a slope has no unit: with more, "too bold" and "too timid" are one
_SHARES = ("accuracy", "win_rate")

FARTHEST = 4.0**166
"""Of slopes, in units of one over the largest difference: beyond it there is none."""


@dataclass(frozen=True)
class Estimate:
    """A number and its standard error.

    Source:
        docs/local.md, metrics on randomized labels.

    Attributes:
        value: Unbiased, and for that reason sometimes outside its natural range.
        standard_error: Infinity where the data cannot tell (one record, one cluster).
    """

    value: float
    standard_error: float

    def interval(
        self, confidence: float = 0.95, *, lower: float = -math.inf, upper: float = math.inf
    ) -> Interval:
        """Return the normal interval around the value, clipped to what is possible.

        Source:
            docs/local.md, metrics on randomized labels.

        Args:
            confidence: How often it should cover, in (0, 1).
            lower: Least possible value.
            upper: Largest possible value.
        """
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
    """An estimate with an interval that covers the truth as often as ``confidence`` says.

    Source:
        docs/local.md, metrics on randomized labels.
    """

    lower: float
    upper: float
    confidence: float


@dataclass(frozen=True, kw_only=True)
class RewardMetrics:
    """What the predictions of a reward say about randomized answers.

    Attributes:
        accuracy: How often the predicted preference is the true one.
        negative_log_likelihood: The mean logistic loss on the true answers.
        calibration_slope: The factor that would calibrate the predictions; None without a finite
            one.
    """

    accuracy: Estimate
    negative_log_likelihood: Estimate
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
    """Return measured numbers as they may be shown: none that is too vague, no impossible share.

    An unbiased estimate from a few answers may be -15 %, and is no accuracy. Where the standard
    error is above :data:`VAGUE` or unknown the number becomes None, and ``NAME_reason`` says why;
    where that is so of an accuracy, of the loss and the slope of the same answers too.

    Args:
        measured: Numbers by their name, with ``NAME_standard_error`` or ``win_rate_interval``.

    Example:
        >>> legible({"accuracy": -0.149, "accuracy_standard_error": 0.6})["accuracy_reason"]
        'too few answers to tell: the standard error would be 0.6'
    """
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


def accuracy(
    differences: Float[np.ndarray, " n"],
    answers: Int[np.ndarray, " n"],
    flip_probability: float,
    *,
    clusters: Int[np.ndarray, " n"] | None = None,
) -> Estimate:
    """Return how often the predicted preference is the true one.

    Source:
        docs/local.md, metrics on randomized labels: (mean(sign agrees
        with z) − f)/(1 − 2f), standard error √(p(1 − p)/n)/(1 − 2f).

    Args:
        differences: Predicted reward of the first minus the second; 0 counts one half.
        answers: Released answers, 1 if the first was preferred and 0 otherwise.
        flip_probability: f, in [0, 1/2).
        clusters: Who answered, one integer a record, where persons answered more than once.

    Example:
        >>> accuracy(np.array([1.0, -1.0, 2.0, 1.0]), np.array([1, 0, 0, 1]), 0.25).value
        1.0
    """
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
    """Return the mean logistic loss that the predictions have on the true answers.

    Source:
        docs/local.md, debiased likelihood: mean of softplus(Δ) − ỹΔ.

    Args:
        differences: Predicted reward of the first minus the second.
        answers: Released answers, 1 if the first was preferred and 0 otherwise.
        flip_probability: f, in [0, 1/2).
        clusters: Who answered, one integer a record, where persons answered more than once.
    """
    differences, targets = _checked(differences, answers, flip_probability)
    return _mean(debiased_loss(differences, targets), clusters)


def calibration_slope(
    differences: Float[np.ndarray, " n"],
    answers: Int[np.ndarray, " n"],
    flip_probability: float,
    *,
    clusters: Int[np.ndarray, " n"] | None = None,
) -> Estimate | None:
    """Return the factor by which predicted differences should be multiplied; 1 is calibrated.

    Below 1 the predictions are too sure of themselves, above 1 not sure enough.

    Source:
        docs/local.md, metrics on randomized labels: root b of Σ (σ(bΔ)
        − ỹ)Δ = 0. The standard error is the delta method's: √Σ(score²)/Σσ′(bΔ)Δ².

    Args:
        differences: Predicted reward of the first minus the second.
        answers: Released answers, 1 if the first was preferred and 0 otherwise.
        flip_probability: f, in [0, 1/2).
        clusters: Who answered, one integer a record, where persons answered more than once.

    Returns:
        The slope, or None where no finite slope fits best (few records, or perfect ones).
    """
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
    """Return how often a policy that picks the first with these probabilities picks the winner.

    Source:
        docs/local.md, metrics on randomized labels: mean of ỹp + (1 −
        ỹ)(1 − p), normal interval clipped to [0, 1].

    Args:
        probabilities_of_first: p, how likely the policy picks the first of each pair.
        answers: Released answers, 1 if the first was preferred and 0 otherwise.
        flip_probability: f, in [0, 1/2).
        confidence: How often the interval should cover, in (0, 1).
        clusters: Who answered, one integer a record, where persons answered more than once.

    Raises:
        DataError: A probability is outside [0, 1].
    """
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
    """Return ỹp + (1 − ỹ)(1 − p) for every record: how often the winner is picked, in expectation.

    Args:
        picks_first: p, how likely the first of each pair is picked.
        targets: ỹ of :func:`~sordino.rewards.likelihoods.debias`.
    """
    return np.asarray(targets * picks_first + (1 - targets) * (1 - picks_first))


def accuracy_error(value: float, flip_probability: float, rows: int) -> float:
    """Return the standard error of an accuracy of answers by as many people.

    Source:
        docs/local.md, metrics on randomized labels: √(p(1 − p)/n)/(1 − 2f), p the share of
        answers that agree.
    """
    kept = 1 - 2 * flip_probability
    agreement = min(max(flip_probability + kept * value, 0.0), 1.0)  # all agree, up to rounding
    return math.sqrt(agreement * (1 - agreement) / rows) / kept


def clustered_error(squares: float, clusters: int, rows: int) -> float:
    """Return the standard error of a mean: √(G/(G − 1) · Σ(sum of a cluster)²)/n.

    Args:
        squares: The sum over clusters of the squared sum of their centered values.
        clusters: G, how many.
        rows: n, how many values.
    """
    if clusters == 1:
        return math.inf
    return math.sqrt(clusters / (clusters - 1) * squares) / rows


def slope_scores(
    scaled: Float[np.ndarray, " n"], targets: Float[np.ndarray, " n"], slope: float
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Return (σ(bΔ) − ỹ)Δ and its derivative σ′(bΔ)Δ² for every record.

    Args:
        scaled: Δ.
        targets: ỹ.
        slope: b.
    """
    chosen = expit(slope * scaled)
    return (chosen - targets) * scaled, chosen * (1 - chosen) * scaled**2


def slope_estimate(root: float, unit: float, information: float, error: float) -> Estimate:
    """Return a calibration slope and its error, by the delta method.

    Args:
        root: Where the scores of Δ/unit sum to 0.
        unit: The largest |Δ|.
        information: Σ σ′(bΔ)Δ² there, Δ in that unit.
        error: The standard error of the sum of the scores.
    """
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
    """Return the standard error of the mean of values, robust to dependence within clusters.

    Without clusters every record is one of its own, and this is the usual standard error.
    """
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
    """Return the finite root b of Σ wσ(bΔ)Δ = pull, or None where there is none.

    Source:
        docs/local.md, metrics on randomized labels.

    Args:
        scaled: Δ, scaled to at most 1.
        pull: Σ wỹΔ.
        weights: w, how much each counts.
    """
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
