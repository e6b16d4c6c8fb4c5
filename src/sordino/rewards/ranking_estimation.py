"""Rankings to a reward, in each of the ways that protect them, and in the one that does not."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array

from sordino import _validate
from sordino.errors import PrivacyError, UsageError
from sordino.mechanisms.no_privacy import NonPrivate
from sordino.mechanisms.ranked_tilt import RankedPerturbation
from sordino.mechanisms.ranking_gaussian import RankingGaussian
from sordino.preferences.features import Features
from sordino.preferences.rankings import Rankings
from sordino.privacy.guarantee import REPLACE_ONE
from sordino.privacy.ledger import Ledger

from .covariance import roots_of_variances
from .design import MOST_FEATURES
from .model import RewardModel
from .plackett_luce import PlackettLuce
from .ranked_record_fit import fit_ranked_records
from .ranking_evidence import Ballots, measured_hessian, slate_bound
from .ranking_fit import RankingFit, fit_ballots, fit_released_rankings
from .ranking_release import release_rankings, slate_rows
from .worths import centered_weights, offered_items, unoffered_names

__all__ = ["METHOD", "RankingMechanism", "fit_rankings", "fit_unprotected_rankings"]

METHOD = "plackett-luce"
RankingMechanism = RankingGaussian | RankedPerturbation | NonPrivate


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

    Args:
        rankings: Raw ballots.
        mechanism: A :class:`~sordino.mechanisms.ranking_gaussian.RankingGaussian` for rankings
            of public candidates, a :class:`~sordino.mechanisms.ranked_tilt.RankedPerturbation`
            for whole records, or :class:`sordino.NonPrivate`.
        ledger: Where the spend is recorded first.
        features: Turns texts into vectors.
        ridge: Strength of the quadratic penalty, > 0. With a ``RankedPerturbation`` it is part of
            that.
        ball: Bound on the norm of the weights, > 0.
        ellipsoid: With a ``RankingGaussian``: True declares that ballots are complete and without
            ties; see :func:`~sordino.rewards.ranking_fit.fit_released_rankings`.
        simulate_seed: A seed for the mechanism's noise, for study.

    Raises:
        UsageError: A setting is out of range, or is not for this mechanism.
        PrivacyError: As the functions for each mechanism.
        BudgetExceeded: As they.
        DataError: As they.
        ConvergenceError: As they.

    Guarantee:
        That of :func:`~sordino.rewards.ranking_release.release_rankings` or
        :func:`~sordino.rewards.ranked_record_fit.fit_ranked_records`; none with ``NonPrivate``.
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
    if isinstance(mechanism, RankedPerturbation):
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

    Args:
        rankings: Raw ballots.
        mechanism: Says that no privacy is meant.
        ledger: Where the infinite spend is recorded first; its budget must be infinite.
        features: Turns texts into vectors; left out for rankings made from features, and for
            items that are to have one weight each.
        ridge: Strength of the quadratic penalty, > 0; chosen on the rankings if left out.
        ball: Bound on the norm of the weights, > 0.

    Raises:
        PrivacyError: These are no raw rankings.
        UsageError: A setting is out of range.
        BudgetExceeded: The ledger's budget is finite.
        LedgerMismatch: The ledger belongs to other questions.
        ConvergenceError: The fit could not be certified; the spend stays recorded.

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
    reservation = ledger.reserve(mechanism.event, promise=promise, public_digest=digest)
    found = fit_ballots(
        loss,
        seen=seen,
        inflation=1.0,
        spread=lambda theta: measured_hessian(loss, theta),
        ridge=ridge,
        ball=ball,
    )
    reservation.commit(digest)  # of the public fields: raw ranks are not digested
    given = None if rankings.items is None else rankings.given
    plain = rankings.items is not None and features is None and given is None
    offered = offered_items(loss) if plain else None
    covariance = _covariance(loss, found)
    return RewardModel(
        weights=centered_weights(found.solution.theta, offered),
        features=features,
        guarantee=promise,
        method=METHOD,
        ridge=found.ridge,
        ball=ball,
        gradient_norm=found.solution.gradient_norm,
        atol=found.atol,
        pairs=len(rankings),
        standard_errors=None if covariance is None else roots_of_variances(covariance),
        release_ids=(reservation.release_id,),
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


def _covariance(loss: PlackettLuce, found: RankingFit) -> Float[np.ndarray, "d d"] | None:
    """Return the asymptotic covariance of the weights if the model holds.

    Source:
        (H + ΛI)⁻¹H(H + ΛI)⁻¹ at the estimate.
    """
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
            "RankedPerturbation(ridge=...). Nothing was spent. Leave it out here."
        )
