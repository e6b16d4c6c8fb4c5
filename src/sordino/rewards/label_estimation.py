"""From one released sum of labels to a reward; nothing here reads a label or spends."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from sordino.rewards.confidence import ConfidenceEllipsoid, confidence_ellipsoid
from sordino.rewards.covariance import answer_sum_covariance, roots_of_variances
from sordino.rewards.design import MOST_FEATURES
from sordino.rewards.label_evidence import LabelEvidence
from sordino.rewards.label_release import ReleasedLabels
from sordino.rewards.label_ridge import LabelFit, fit_statistic
from sordino.rewards.model import RewardModel
from sordino.rewards.ridge_choice import accepted_gradient

__all__ = ["fit_released", "label_ellipsoid", "label_standard_errors"]

_ROWS = 128  # rows a feature that standard errors rest on


def fit_released(
    released: ReleasedLabels,
    *,
    ridge: float | None = None,
    ball: float,
    ellipsoid: bool | None = None,
    criterion: str | None = None,
) -> RewardModel:
    """Return the reward that explains one released sum best; as often as one likes, for free.

    Args:
        released: From :func:`sordino.rewards.label_release.release_labels`.
        ridge: Strength of the quadratic penalty, > 0; chosen on the sum if left out.
        ball: Bound on the norm of the weights, > 0, chosen before any data are seen.
        ellipsoid: Whether to keep a confidence set; by default for up to 1024 features.
        criterion: How the ridge is chosen, ``"tic"`` or ``"thinning"``.

    Raises:
        UsageError: A setting is out of range.
        ConvergenceError: The fit could not be certified; the released sum is not lost.
    """
    evidence = released.evidence
    found = fit_statistic(evidence, ridge=ridge, ball=ball, criterion=criterion)
    if ellipsoid is None:
        ellipsoid = len(evidence.statistic) <= MOST_FEATURES
    return RewardModel(
        weights=found.weights,
        features=released.features,
        guarantee=released.guarantee,
        method="label-gaussian",
        ridge=found.ridge,
        ball=ball,
        gradient_norm=found.solution.gradient_norm,
        atol=accepted_gradient(evidence),
        pairs=len(evidence),
        standard_errors=label_standard_errors(evidence, found),
        ellipsoid=label_ellipsoid(evidence, found, ball=ball) if ellipsoid else None,
        release_ids=released.release_ids,
        artifact=released.artifact,
        statistic=evidence.statistic,
    )


def label_standard_errors(
    evidence: LabelEvidence, found: LabelFit
) -> Float[np.ndarray, " d"] | None:
    """Return the asymptotic standard error of every weight; None for too many features.

    Source:
        docs/central.md, "Label privacy, one Gaussian release": the roots of the diagonal of
        (H + ΛI)⁻¹(G/4 + V)(H + ΛI)⁻¹.
    """
    n, d = evidence.differences.shape
    if d > MOST_FEATURES:
        return None
    covariance = answer_sum_covariance(
        evidence.differences,
        found.solution.theta,
        evidence.covariance,
        ridge=found.ridge + found.solution.multiplier,
        longest=evidence.longest,
        step=max(1, n // (_ROWS * d)),
    )
    return roots_of_variances(covariance)


def label_ellipsoid(
    evidence: LabelEvidence, found: LabelFit, *, ball: float
) -> ConfidenceEllipsoid:
    """Return the set around a fit that holds the truth, as often as it is asked to.

    Source:
        docs/local.md, confidence and pessimism: κ = 1, with √h(M^{-1/2}VM^{-1/2}, t) added for the
        noise and t = log(2 · candidates/(1 − confidence)).
    """
    return confidence_ellipsoid(
        evidence.differences,
        found.solution,
        flip_probability=0.0,
        ball=ball,
        ridge=found.ridge,
        candidates=found.candidates,
        covariance=evidence.covariance,
        rounding=evidence.rounding,
        longest=evidence.longest,
    )
