"""From first choices that were randomized one by one to a reward; nothing here spends."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from sordino.errors import UsageError
from sordino.mechanisms.kary_randomized_response import KaryRandomizedResponse, debiased_choices
from sordino.preferences.features import Features
from sordino.privatization.choices import PrivateChoices

from ._ballot_curvature import gram
from .composite import FirstChoice
from .covariance import roots_of_variances
from .design import MOST_FEATURES
from .model import RewardModel
from .ranking_confidence import ranking_covariance
from .ranking_evidence import Ballots, slate_bound
from .ranking_fit import RankingFit, fit_ballots
from .ranking_release import SlateRows, slate_rows
from .worths import centered_weights, offered_items, unoffered_names

__all__ = ["METHOD", "fit_choices"]

METHOD = "randomized-choice"


def fit_choices(
    private: PrivateChoices,
    *,
    features: Features | None = None,
    ridge: float | None = None,
    ball: float,
    ellipsoid: bool | None = None,
) -> RewardModel:
    """Return the reward that explains randomized first choices best; it costs nothing.

    Args:
        private: From :func:`sordino.privatization.choices.privatize_choices`.
        features: Turns texts into vectors, as for rankings.
        ridge: Strength of the quadratic penalty, > 0; chosen on the answers if left out.
        ball: Bound on the norm of the weights, > 0.
        ellipsoid: None or False: there is no confidence set for these answers.

    Raises:
        UsageError: A setting is out of range, or a confidence set is asked for.
        ConvergenceError: The fit could not be certified.

    Source:
        docs/central.md, "Rankings": the first choice, on the sum of docs/local.md, "Randomized
        response".
    """
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
    covariance = _covariance(loss, found, coin) if small else None
    given = None if private.items is None else private.given
    plain = private.items is not None and features is None and given is None
    offered = offered_items(loss) if plain else None
    return RewardModel(
        weights=centered_weights(found.solution.theta, offered),
        features=features,
        guarantee=private.guarantee,
        method=METHOD,
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
    """Return the covariance of the debiased sum if the weights were θ.

    Source:
        docs/local.md, "Randomized response": an answer is j with probability
        p_j = q + (1 − f − q)π_j, so that a ballot varies by Φᵀ(diag p − ppᵀ)Φ/(1 − f − q)²: the
        curvature of log Σ p.
    """
    other = coin.flip_probability / (coin.categories - 1)
    kept = _kept(coin)
    ballots = np.repeat(loss.counts, np.diff(loss.starts))
    chances = loss.slopes(np.asarray(loss.features @ theta)) / ballots
    return gram(loss.features, loss.terms, np.log(other + kept * chances)) / kept**2


def _kept(coin: KaryRandomizedResponse) -> float:
    """Return 1 − f − q: how much likelier an answer is the choice than another candidate."""
    return 1 - coin.flip_probability - coin.flip_probability / (coin.categories - 1)


def _covariance(
    loss: FirstChoice, found: RankingFit, coin: KaryRandomizedResponse
) -> Float[np.ndarray, "d d"]:
    """Return the asymptotic covariance of the weights, whatever people chose."""
    theta = found.solution.theta
    drawn = _spread(loss, theta, coin) - loss.hessian(theta)
    ridge = found.ridge + found.solution.multiplier
    return ranking_covariance(loss, theta, drawn, ridge=ridge)
