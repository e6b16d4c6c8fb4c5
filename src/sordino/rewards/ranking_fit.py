"""From one released sum of rankings to a reward; nothing here reads a rank or spends.

Rankings to a reward, in each of the ways that protect them, and in the one that does not.

From first choices that were randomized one by one to a reward; nothing here spends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array

from sordino import _validate
from sordino.errors import PrivacyError, UsageError
from sordino.mechanisms.no_privacy import NonPrivate
from sordino.mechanisms.randomized_response import KaryRandomizedResponse, debiased_choices
from sordino.mechanisms.ranking_objective_perturbation import RankingObjectivePerturbation
from sordino.mechanisms.ranking_sum import RankingGaussian
from sordino.preferences.features import Features
from sordino.preferences.rankings import Rankings
from sordino.privacy.guarantee import REPLACE_ONE
from sordino.privacy.ledger import Ledger
from sordino.privatization.choices import PrivateChoices

from .confidence import ConfidenceEllipsoid, ranking_covariance, ranking_ellipsoid
from .covariance import roots_of_variances
from .evidence import MOST_FEATURES, Ballots, RankingEvidence, measured_hessian, slate_bound
from .model import RewardModel, centered_weights, offered_items, unoffered_names, worth_intervals
from .ranking_losses import BallotLoss, FirstChoice, PairwiseComposite, PlackettLuce, gram
from .ranking_record_release import fit_ranked_records
from .ranking_release import ReleasedRankings, SlateRows, release_rankings, slate_rows
from .ridge_selection import accepted_gradient, ridges_around
from .solver import Solution, minimize_ridge, ridge_path

METHOD = "ranking-gaussian"
_POWERS = tuple(range(-3, 5))  # of four, around the ridge that public settings suggest

Spread = Callable[[Float[np.ndarray, " d"]], Float[np.ndarray, "d d"]]


@dataclass(frozen=True, kw_only=True, eq=False)
class RankingFit:
    """A certified estimate from ballots."""

    solution: Solution  # the estimate
    ridge: float  # Λ
    candidates: int  # how many ridges were tried
    atol: float  # the norm of the gradient that was accepted


def fit_released_rankings(
    released: ReleasedRankings,
    *,
    ridge: float | None = None,
    ball: float,
    ellipsoid: bool | None = None,
) -> RewardModel:
    """Return the reward that explains one released sum best; as often as one likes, for free."""
    # Standard errors hold for whatever ballots people gave, as ballots are added: those of the
    # weights that the objective has on average.
    # Source: docs/central.md, "Rankings".
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
    """Return intervals where ballots are known, in public, to be about all they were offered."""
    # A short list of three or more ties the others below it, which draws worths together by a part
    # that is as private as the length. Of two candidates the better one says all.
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
    """Return the certified estimate; the ridge is chosen on what the loss is made of."""
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
    """Return the loss on fresh ballots by Takeuchi's criterion, for each ridge."""
    # Source: docs/central.md, "Label privacy, one Gaussian release": the loss at θ̂ + tr[(H +
    # ΛI)⁻¹(J + V)], with the ball's multiplier in Λ and without the direction of θ̂, in which a fit
    # on the sphere cannot move.
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
    )


RANKING_SUM_METHOD = "plackett-luce"
RankingMechanism = RankingGaussian | RankingObjectivePerturbation | NonPrivate


def fit_rankings(
    rankings: Rankings,
    mechanism: RankingMechanism,
    *,
    ledger: Ledger,
    features: Features | None = None,
    ridge: float | None = None,
    ball: float,
    ellipsoid: bool | None = None,
    simulate_seed: int | None = None,
) -> RewardModel:
    """Return the reward that explains rankings best, in the way that the mechanism is for.

    Guarantee:
        That of :func:`~sordino.rewards.ranking_release.release_rankings` or
        :func:`~sordino.rewards.ranking_record_release.fit_ranked_records`; with ``NonPrivate``
        none.
        Shown by tests/soundness/test_rankings_release.py.
    """
    ball = _validate.workable("ball", ball)
    ridge = None if ridge is None else _validate.workable("ridge", ridge)
    if isinstance(mechanism, RankingGaussian):
        released = release_rankings(
            rankings, mechanism, ledger=ledger, features=features, simulate_seed=simulate_seed
        )
        return fit_released_rankings(released, ridge=ridge, ball=ball, ellipsoid=ellipsoid)
    if ellipsoid:
        raise UsageError(
            "ellipsoid: a confidence set of rankings needs mechanism=RankingGaussian(...). Nothing "
            "was spent. Leave it out."
        )
    if isinstance(mechanism, RankingObjectivePerturbation):
        _refuse_ridge(ridge)
        return fit_ranked_records(
            rankings,
            mechanism,
            ledger=ledger,
            features=features,
            ball=ball,
            simulate_seed=simulate_seed,
        )
    if simulate_seed is not None:
        raise UsageError("simulate_seed: NonPrivate draws nothing. Leave it out.")
    return fit_unprotected_rankings(
        rankings, mechanism, ledger=ledger, features=features, ridge=ridge, ball=ball
    )


def fit_unprotected_rankings(
    rankings: Rankings,
    mechanism: NonPrivate,
    *,
    ledger: Ledger,
    features: Features | None = None,
    ridge: float | None = None,
    ball: float,
) -> RewardModel:
    """Return the weights that are most likely under Plackett–Luce, after an infinite spend.

    Guarantee:
        None: ε = ∞ per ballot. Shown by tests/unit/rewards/test_ranking_estimation.py.
    """
    if not isinstance(rankings, Rankings) or not isinstance(mechanism, NonPrivate):
        raise PrivacyError(
            "fit_unprotected_rankings takes raw rankings and NonPrivate(). Nothing was fitted."
        )
    ball = _validate.workable("ball", ball)
    promise = mechanism.guarantee(unit="label", neighbors=REPLACE_ONE, trust="central")
    digest = rankings.public_digest
    seen, loss = _ballots(rankings, features), _likelihood(rankings, features)
    released = ledger.charge(
        mechanism.event,
        lambda: fit_ballots(
            loss,
            seen=seen,
            inflation=1.0,
            spread=lambda theta: measured_hessian(loss, theta),
            ridge=ridge,
            ball=ball,
        ),
        digest=lambda _: digest,  # of the public fields: raw ranks are not digested
        promise=promise,
        stored=False,
        public_digest=digest,
    )
    found = released.value
    given = None if rankings.items is None else rankings.given
    plain = rankings.items is not None and features is None and given is None
    offered = offered_items(loss) if plain else None
    covariance = _sum_covariance(loss, found)
    return RewardModel(
        weights=centered_weights(found.solution.theta, offered),
        features=features,
        guarantee=promise,
        method=RANKING_SUM_METHOD,
        ridge=found.ridge,
        ball=ball,
        gradient_norm=found.solution.gradient_norm,
        atol=found.atol,
        pairs=len(rankings),
        standard_errors=None if covariance is None else roots_of_variances(covariance),
        release_ids=(released.release_id,),
        artifact=digest,
        items=rankings.items,
        item_features=given,
        unoffered=() if offered is None else unoffered_names(rankings.items, offered),
    )


def _likelihood(rankings: Rankings, features: Features | None) -> PlackettLuce:
    """Return the Plackett–Luce loss; items without features have one entry in each row."""
    if rankings.items is None:
        rows: Any = rankings.flat_features(features)
    else:
        rows = rankings.item_features(features)
        if features is None and rankings.given is None:
            rows = csr_array(rows)
        rows = rows[rankings.offered]
    return PlackettLuce(rows, starts=rankings.starts, ranks=rankings.ranks)


def _ballots(rankings: Rankings, features: Features | None) -> Ballots:
    """Return how many ballots there are, and how far their candidates reach."""
    slates = slate_rows(rankings, features)
    bound = slate_bound(slates.rows, slates.starts, features)
    return Ballots(n=len(rankings), feature_bound=bound)


def _sum_covariance(loss: PlackettLuce, found: RankingFit) -> Float[np.ndarray, "d d"] | None:
    """Return the asymptotic covariance of the weights if the model holds."""
    # Source: (H + ΛI)⁻¹H(H + ΛI)⁻¹ at the estimate.
    if loss.rows.shape[1] > MOST_FEATURES:
        return None
    bend = loss.hessian(found.solution.theta)
    shift = found.ridge + found.solution.multiplier
    inverse = np.linalg.inv(bend + shift * np.eye(len(bend)))
    return np.asarray(inverse @ bend @ inverse)


def _refuse_ridge(ridge: float | None) -> None:
    """Refuse a ridge beside that of the promise."""
    if ridge is not None:
        raise UsageError(
            f"ridge={ridge!r}: the ridge of record privacy is part of the promise, "
            "RankingObjectivePerturbation(ridge=...). Nothing was spent. Leave it out here."
        )


CHOICE_METHOD = "randomized-choice"


def fit_choices(
    private: PrivateChoices,
    *,
    features: Features | None = None,
    ridge: float | None = None,
    ball: float,
    ellipsoid: bool | None = None,
) -> RewardModel:
    """Return the reward that explains randomized first choices best; it costs nothing."""
    # Source: docs/central.md, "Rankings": the first choice, on the sum of docs/local.md,
    # "Randomized response".
    if ellipsoid:
        raise UsageError(
            "ellipsoid: no radius is known for randomized first choices. Leave it out, or release "
            "the sum of rankings with mechanism=RankingGaussian(...)."
        )
    slates, coin = slate_rows(private, features), private.mechanism
    loss = _loss(private, slates)
    found = fit_ballots(
        loss,
        seen=Ballots(
            n=len(private), feature_bound=slate_bound(slates.rows, slates.starts, features)
        ),
        inflation=1 / _kept(coin) ** 2,
        spread=lambda theta: _spread(loss, theta, coin),
        ridge=ridge,
        ball=ball,
    )
    small = loss.rows.shape[1] <= MOST_FEATURES
    covariance = _choice_covariance(loss, found, coin) if small else None
    given = None if private.items is None else private.given
    plain = private.items is not None and features is None and given is None
    offered = offered_items(loss) if plain else None
    return RewardModel(
        weights=centered_weights(found.solution.theta, offered),
        features=features,
        guarantee=private.guarantee,
        method=CHOICE_METHOD,
        ridge=found.ridge,
        ball=ball,
        gradient_norm=found.solution.gradient_norm,
        atol=found.atol,
        pairs=len(private),
        standard_errors=None if covariance is None else roots_of_variances(covariance),
        release_ids=private.release_ids,
        artifact=private.artifact,
        items=private.items,
        item_features=given,
        unoffered=() if offered is None else unoffered_names(private.items, offered),
    )


def _loss(private: PrivateChoices, slates: SlateRows) -> FirstChoice:
    """Return the likelihood of first choices on the sum with its randomization taken out."""
    rows, starts, counts = slates.of_ballots(np.arange(len(private)))
    weights = np.zeros((len(counts), private.mechanism.categories))
    np.add.at(weights, slates.slates, debiased_choices(private.answers, private.mechanism))
    statistic = np.asarray(rows.T @ weights.ravel())
    return FirstChoice(rows, starts=starts, statistic=statistic, counts=counts)


def _spread(
    loss: FirstChoice, theta: Float[np.ndarray, " d"], coin: KaryRandomizedResponse
) -> Float[np.ndarray, "d d"]:
    """Return the covariance of the debiased sum if the weights were θ."""
    # Source: docs/local.md, "Randomized response": an answer is j with probability p_j = q + (1 − f
    # − q)π_j, so that a ballot varies by Φᵀ(diag p − ppᵀ)Φ/(1 − f − q)²: the curvature of log Σ p.
    other = coin.flip_probability / (coin.categories - 1)
    kept = _kept(coin)
    ballots = np.repeat(loss.counts, np.diff(loss.starts))
    chances = loss.slopes(np.asarray(loss.features @ theta)) / ballots
    return gram(loss.features, loss.terms, np.log(other + kept * chances)) / kept**2


def _kept(coin: KaryRandomizedResponse) -> float:
    """Return 1 − f − q: how much likelier an answer is the choice than another candidate."""
    return 1 - coin.flip_probability - coin.flip_probability / (coin.categories - 1)


def _choice_covariance(
    loss: FirstChoice, found: RankingFit, coin: KaryRandomizedResponse
) -> Float[np.ndarray, "d d"]:
    """Return the asymptotic covariance of the weights, whatever people chose."""
    theta = found.solution.theta
    drawn = _spread(loss, theta, coin) - loss.hessian(theta)
    ridge = found.ridge + found.solution.multiplier
    return ranking_covariance(loss, theta, drawn, ridge=ridge)
