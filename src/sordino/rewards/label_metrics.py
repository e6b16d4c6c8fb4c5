"""How good a reward is, from the one sum that was released; it costs nothing.

The sum is split into two independent parts (Gaussian thinning): one is fitted, the other judges.
What is judged is a fit with a quarter more noise than the released one, on fresh answers to the
same questions. Held-out accuracy is no function of the sum, so it is not told.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from sordino.rewards.covariance import debiased_slope
from sordino.rewards.design import MOST_FEATURES
from sordino.rewards.label_evidence import LabelEvidence, Thinned
from sordino.rewards.label_ridge import fit_statistic, label_ridges
from sordino.rewards.metrics import Estimate, increasing_root

__all__ = ["measure_statistic", "slope_of_sum"]

_DRAWS = 10
_MIDDLE = 3  # of the candidates: the ridge that public settings suggest


def measure_statistic(
    evidence: LabelEvidence, *, ridge: float | None = None, ball: float
) -> dict[str, float | None]:
    """Return what a reward measures on held-out answers, with None where nothing is free.

    Args:
        evidence: What was released.
        ridge: Λ of all fits; chosen by each on its own part if left out (with too many features
            for that, the one that public settings suggest).
        ball: Bound on the norm of the weights.

    Returns:
        ``accuracy`` (None), ``negative_log_likelihood`` for each pair and ``calibration_slope``
        (None where no finite one fits), each with ``..._standard_error``. Where long rows count
        less in the sum, they do here: no other mean can be told from it. A standard error holds
        for n answers to these questions and the noise, and is asymptotic.

    Source:
        docs/central.md, "Label privacy, one Gaussian release": fit on T₁, score on T₂.
    """
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
    """Return the mean loss of fits on T₁, by T₂.

    Source:
        docs/central.md, "Label privacy, one Gaussian release".
    """
    n = parts[0].fitted.weights.sum()
    scores = np.array([part.score(theta) for part, theta in zip(parts, fits, strict=True)])
    return Estimate(float(scores.mean()) / n, _spread(scores, shared) / n)


def _slope(parts: Sequence[Thinned], fits: Sequence[Any], shared: float) -> Estimate | None:
    """Return the factor by which predicted differences should be multiplied; 1 is calibrated.

    Source:
        docs/local.md, metrics on randomized labels: root b of Σ wσ(bΔ)Δ = T₂ᵀθ, which stands
        for Σ wyΔ; both summed over the splits.
    """
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
    """Return the slope b that answers of this sum call for, and how sharply they do.

    Source:
        docs/local.md, metrics on randomized labels: root b of Σ wσ(bΔ)Δ = Σ wyΔ.

    Args:
        margins: Δ, predicted for each answer.
        pull: Σ wyΔ, or what stands for it.
        weights: w, how much each answer counts.

    Returns:
        b and Σ wσ′(bΔ)Δ², the slope of that sum in b; None where no finite b fits.
    """
    unit = float(np.max(np.abs(margins)))
    if unit == 0:
        return None
    root = increasing_root(margins / unit, pull / unit, weights)
    if root is None:
        return None
    slope = root / unit
    return slope, float(np.sum(weights * debiased_slope(slope * margins) * margins**2))


def _spread(scores: Float[np.ndarray, " k"], shared: float) -> float:
    """Return the standard error of the mean over splits of one sum.

    T̃ᵀθ is common to all of them; what each split added averages out.
    """
    return math.sqrt(shared + float(scores.var(ddof=1)) / len(scores))
