"""From one released sum of rankings to a reward; nothing here reads a rank or spends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from sordino import _validate

from ._ballot_loss import BallotLoss
from .composite import PairwiseComposite
from .confidence import ConfidenceEllipsoid
from .covariance import roots_of_variances
from .design import MOST_FEATURES
from .model import RewardModel
from .ranking_confidence import ranking_covariance, ranking_ellipsoid
from .ranking_evidence import Ballots, RankingEvidence, measured_hessian
from .ranking_release import ReleasedRankings
from .ridge_choice import accepted_gradient, ridges_around
from .solver import Solution, minimize_ridge, ridge_path
from .worths import centered_weights, offered_items, unoffered_names, worth_intervals

__all__ = ["METHOD", "RankingFit", "fit_ballots", "fit_released_rankings"]

METHOD = "ranking-gaussian"
_POWERS = tuple(range(-3, 5))  # of four, around the ridge that public settings suggest

Spread = Callable[[Float[np.ndarray, " d"]], Float[np.ndarray, "d d"]]


@dataclass(frozen=True, kw_only=True, eq=False)
class RankingFit:
    """A certified estimate from ballots.

    Attributes:
        solution: The estimate.
        ridge: Λ.
        candidates: How many ridges were tried.
        atol: The norm of the gradient that was accepted.
    """

    solution: Solution
    ridge: float
    candidates: int
    atol: float


def fit_released_rankings(
    released: ReleasedRankings,
    *,
    ridge: float | None = None,
    ball: float,
    ellipsoid: bool | None = None,
) -> RewardModel:
    """Return the reward that explains one released sum best; as often as one likes, for free.

    Standard errors hold for whatever ballots people gave, as ballots are added: those of the
    weights that the objective has on average.

    Args:
        released: From :func:`sordino.rewards.ranking_release.release_rankings`.
        ridge: Strength of the quadratic penalty, > 0; chosen on the sum if left out.
        ball: Bound on the norm of the weights, > 0, chosen before any data are seen.
        ellipsoid: Whether to keep a confidence set, None for no. True declares, in public, that
            every ballot is complete and without ties (``"first-choice"``: has one best), as the
            rules of the election or the ending ``.soc`` may say: of others no radius holds.
            Nothing checks it, because which ballots are complete is private; never choose it by
            looking at them.

    Raises:
        UsageError: A setting is out of range.
        ConvergenceError: The fit could not be certified; the released sum is not lost.

    Source:
        docs/central.md, "Rankings".
    """
    evidence, d = released.evidence, len(released.evidence.statistic)
    found = fit_ballots(
        evidence.loss,
        seen=evidence,
        inflation=evidence.inflation,
        spread=evidence.spread,
        ridge=ridge,
        ball=ball,
    )
    covariance = _covariance(released, found) if d <= MOST_FEATURES else None
    offered = None
    if released.items is not None and released.features is None and released.item_features is None:
        offered = offered_items(evidence.loss)
    weights = centered_weights(found.solution.theta, offered)
    return RewardModel(
        weights=weights,
        features=released.features,
        guarantee=released.guarantee,
        method=METHOD,
        ridge=found.ridge,
        ball=ball,
        gradient_norm=found.solution.gradient_norm,
        atol=found.atol,
        pairs=len(evidence),
        standard_errors=None if covariance is None else roots_of_variances(covariance),
        ellipsoid=_declared_ellipsoid(released, found, ball) if ellipsoid else None,
        release_ids=released.release_ids,
        artifact=released.artifact,
        statistic=evidence.statistic,
        items=released.items,
        item_features=released.item_features,
        worth_intervals=None if offered is None else _intervals(released, weights),
        unoffered=() if offered is None else unoffered_names(released.items, offered),
    )


def _intervals(
    released: ReleasedRankings, weights: Float[np.ndarray, " k"]
) -> Float[np.ndarray, "offered 2"] | None:
    """Return intervals where ballots are known, in public, to be about all they were offered.

    A short list of three or more ties the others below it, which draws worths together by a part
    that is as private as the length. Of two candidates the better one says all.
    """
    evidence = released.evidence
    short = not released.named and np.diff(evidence.starts).max() > 2  # noqa: PLR2004
    if short or not isinstance(evidence.loss, PairwiseComposite):
        return None
    return worth_intervals(evidence.loss, evidence.covariance, weights, rounding=evidence.rounding)


def fit_ballots(
    loss: BallotLoss,
    *,
    seen: Ballots | RankingEvidence,
    inflation: float,
    spread: Spread,
    ridge: float | None,
    ball: float,
) -> RankingFit:
    """Return the certified estimate; the ridge is chosen on what the loss is made of.

    Args:
        loss: The objective.
        seen: How many ballots it is about, and how far their candidates reach.
        inflation: How many times as much the sum varies as the curvature says, at θ = 0.
        spread: From θ to the covariance of the sum that the loss is made of, were θ true.
        ridge: Λ > 0; by Takeuchi's criterion if left out or, where a matrix of features by
            features would be too large, what public settings suggest.
        ball: Bound on the norm of the weights.

    Raises:
        UsageError: A setting is out of range.
        ConvergenceError: A fit could not be certified.
    """
    ball, atol = _validate.workable("ball", ball), accepted_gradient(seen)
    if ridge is not None:
        return _alone(loss, _validate.positive("ridge", ridge), ball, atol)
    # The prior that a reward is about 1, θ ∼ N(0, I/L²), against a sum that varies so much.
    middle = seen.feature_bound**2 * inflation
    if loss.rows.shape[1] > MOST_FEATURES:
        return _alone(loss, middle, ball, atol)
    tried = ridges_around(middle, _POWERS)
    path = ridge_path(loss, tried, ball=ball, atol=atol)
    best = int(np.argmin(_by_tic(loss, spread, tried, path)))
    return RankingFit(solution=path[best], ridge=tried[best], candidates=len(tried), atol=atol)


def _alone(loss: BallotLoss, ridge: float, ball: float, atol: float) -> RankingFit:
    """Return the fit with one ridge."""
    found = minimize_ridge(loss, ridge=ridge, ball=ball, atol=atol)
    return RankingFit(solution=found, ridge=ridge, candidates=1, atol=atol)


def _by_tic(
    loss: BallotLoss, spread: Spread, ridges: Sequence[float], path: Sequence[Solution]
) -> Float[np.ndarray, " k"]:
    """Return the loss on fresh ballots by Takeuchi's criterion, for each ridge.

    Source:
        docs/central.md, "Label privacy, one Gaussian release": the loss at θ̂ +
        tr[(H + ΛI)⁻¹(J + V)], with the ball's multiplier in Λ and without the direction of θ̂,
        in which a fit on the sphere cannot move.
    """
    values = []
    for ridge, found in zip(ridges, path, strict=True):
        bend = measured_hessian(loss, found.theta)
        response = np.linalg.inv(bend + (ridge + found.multiplier) * np.eye(len(bend)))
        if found.multiplier > 0:
            along = response @ found.theta
            response -= np.outer(along, along) / (found.theta @ along)
        values.append(loss.value(found.theta) + float(np.sum(response * spread(found.theta))))
    return np.array(values)


def _covariance(released: ReleasedRankings, found: RankingFit) -> Float[np.ndarray, "d d"]:
    """Return the asymptotic covariance of the weights."""
    evidence, solution = released.evidence, found.solution
    ridge = found.ridge + solution.multiplier
    return ranking_covariance(evidence.loss, solution.theta, evidence.covariance, ridge=ridge)


def _declared_ellipsoid(
    released: ReleasedRankings, found: RankingFit, ball: float
) -> ConfidenceEllipsoid:
    """Return the confidence set of ballots that were declared to be complete and strict."""
    evidence = released.evidence
    return ranking_ellipsoid(
        evidence.loss,
        found.solution,
        ball=ball,
        ridge=found.ridge,
        covariance=evidence.covariance,
        rounding=evidence.rounding,
        candidates=found.candidates,
        strict=True,
    )
