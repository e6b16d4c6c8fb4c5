"""From one released sum of labels in many files to a reward; nothing here spends."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino.rewards.confidence import confidence_ellipsoid
from sordino.rewards.covariance import roots_of_variances
from sordino.rewards.design import MOST_FEATURES
from sordino.rewards.label_ridge import public_ridge
from sordino.rewards.likelihoods import DebiasedLogistic
from sordino.rewards.model import RewardModel
from sordino.rewards.ridge_choice import accepted_gradient
from sordino.rewards.sharded.evidence import PiecedEvidence
from sordino.rewards.sharded.newton import minimize_pieced
from sordino.rewards.sharded.release import ReleasedShards
from sordino.rewards.shrinkage import inside_ball, shrunk_weights
from sordino.rewards.solver import Solution, ridge_path

__all__ = ["fit_evidence", "fit_released_shards", "shard_errors"]


def fit_released_shards(
    released: ReleasedShards,
    *,
    ridge: float | None = None,
    ball: float,
    ellipsoid: bool | None = None,
) -> RewardModel:
    """Return the reward that explains one released sum best; as often as one likes, for free.

    The same fit as :func:`~sordino.rewards.label_estimation.fit_released`, with a pass over the
    files for each step of Newton's method.

    Args:
        released: From :func:`~sordino.rewards.sharded.release.release_shards`.
        ridge: Strength of the quadratic penalty, > 0; chosen on the sum if left out.
        ball: Bound on the norm of the weights, > 0, chosen before any data are seen.
        ellipsoid: Whether to keep a confidence set; by default for up to 1024 features.

    Raises:
        UsageError: A setting is out of range.
        ConvergenceError: The fit could not be certified; the released sum is not lost.
    """
    evidence = released.evidence
    ball = _validate.workable("ball", ball)
    shrinks = ridge is None and len(evidence.statistic) <= MOST_FEATURES
    used = public_ridge(evidence) if shrinks else ridge
    solution, ridge, candidates = fit_evidence(evidence, ridge=used, ball=ball)
    weights = solution.theta
    if shrinks:
        shift = ridge + solution.multiplier
        square = evidence.squares / len(evidence)
        weights = shrunk_weights(weights, shift, evidence.mean_and_spread, mean_square=square)
        weights = inside_ball(weights, ball)
    if ellipsoid is None:
        ellipsoid = len(evidence.statistic) <= MOST_FEATURES
    region = None
    if ellipsoid:
        region = confidence_ellipsoid(
            evidence.rows,
            solution,
            flip_probability=0.0,
            ball=ball,
            ridge=ridge,
            candidates=candidates,
            covariance=evidence.covariance,
            rounding=evidence.rounding,
            longest=evidence.longest,
        )
    return RewardModel(
        weights=weights,
        features=released.features,
        guarantee=released.guarantee,
        method="label-gaussian",
        ridge=ridge,
        ball=ball,
        gradient_norm=solution.gradient_norm,
        atol=accepted_gradient(evidence),
        pairs=len(evidence),
        standard_errors=shard_errors(evidence, solution, ridge),
        ellipsoid=region,
        release_ids=released.release_ids,
        artifact=released.artifact,
        statistic=evidence.statistic,
    )


def fit_evidence(
    evidence: PiecedEvidence, *, ridge: float | None, ball: float
) -> tuple[Solution, float, int]:
    """Return the certified estimate, its ridge, and how many ridges were tried.

    Args:
        evidence: The vectors, and what is known of Σ yx.
        ridge: Λ > 0; chosen by Takeuchi's criterion if left out.
        ball: Bound on the norm of the weights.

    Raises:
        UsageError: The ridge is not above 0.
        ConvergenceError: The fit could not be certified.

    Source:
        docs/central.md, "Label privacy, one Gaussian release"; the ridge by Takeuchi's criterion,
        Σ softplus(θ̂ᵀx) − T̃ᵀθ̂ + tr[(H + ΛI)⁻¹S], S the covariance of T̃.
    """
    candidates = evidence.ridges() if ridge is None else [_validate.positive("ridge", ridge)]
    found, values = minimize_pieced(
        evidence.loss,
        candidates,
        ball=ball,
        atol=accepted_gradient(evidence),
        starts=_starts(evidence, candidates, ball),
    )
    if ridge is not None:
        return found[0], candidates[0], 1
    flattery = [
        evidence.flattery(solution, tried)
        for solution, tried in zip(found, candidates, strict=True)
    ]
    best = int(np.argmin(values + np.array(flattery)))
    return found[best], candidates[best], len(candidates)


def _starts(
    evidence: PiecedEvidence, candidates: list[float], ball: float
) -> Float[np.ndarray, "k d"]:
    """Return rough solutions on the sample, so that few passes over the files are left."""
    sample, share = evidence.sample, evidence.share
    loss = DebiasedLogistic.of_statistic(sample, evidence.statistic * share, evidence.weights)
    # A tenth of the sampling noise of the gradient: more would be precision about nothing.
    atol = 0.05 * float(np.sqrt(np.vdot(sample, sample)))
    path = ridge_path(loss, [ridge * share for ridge in candidates], ball=ball, atol=atol)
    return np.stack([solution.theta for solution in path])


def shard_errors(
    evidence: PiecedEvidence, solution: Solution, ridge: float
) -> Float[np.ndarray, " d"] | None:
    """Return the asymptotic standard error of every weight; None for too many features.

    Args:
        evidence: What the fit saw.
        solution: The fit.
        ridge: Λ of the fit.
    """
    if len(evidence.statistic) > MOST_FEATURES:
        return None
    covariance = evidence.scatter(solution.theta, ridge + solution.multiplier)
    return roots_of_variances(covariance)
