"""From raw rankings to released weights under record privacy: one tilted minimizer.

A record is one ballot with its prompt, its candidates and its person: all of it is private, but
for the list of items in an election, which no ballot decides. Under ADD_OR_REMOVE_ONE so is how
many ballots there are, and nothing here depends on that number or tells it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array

from sordino import _random, _validate
from sordino.errors import PrivacyError, UsageError
from sordino.mechanisms.ranking_objective_perturbation import RankingObjectivePerturbation
from sordino.preferences.features import Features, features_of_hidden
from sordino.preferences.rankings import Rankings
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import digest_of_array

from .model import RewardModel, centered_weights
from .ranking_losses import PlackettLuce
from .release_checks import entropy_of, record_promise, record_rows
from .solver import Solution, minimize_tilted, refuse_drowned, ridge_of

METHOD = "ranked-perturbation"


def fit_ranked_records(
    rankings: Rankings,
    mechanism: RankingObjectivePerturbation,
    *,
    ledger: Ledger,
    features: Features | None = None,
    ball: float,
    simulate_seed: int | None = None,
) -> RewardModel:
    """Return a reward that hides every single ballot and all about it, after recording the spend.

    Guarantee:
        (ε, δ) of the mechanism for one record, under the relation of the ledger's budget and
        trust ``"central"``; caveat ``real-arithmetic``. Shown by
        tests/soundness/test_rankings_release.py.
    """
    # Minimizes the Plackett–Luce loss + (Λ/2)‖θ‖² + bᵀθ over ‖θ‖ ≤ ball with a random b. The
    # features of every candidate are shrunk to the bound of the mechanism. Each ballot is a record
    # of its own, also a repeated one of the same person.
    # Source: docs/central.md, "Rankings".
    _refuse_other_types(rankings, mechanism, ledger)
    ball = _validate.workable("ball", ball)
    entropy = entropy_of(simulate_seed)
    read = features if rankings.items is None else None  # items are public
    promise = record_promise(mechanism, ledger, entropy, n=len(rankings), features=read)
    mechanism.refuse_long_ballots(rankings.starts)
    records = _records(rankings, features, mechanism)
    refuse_drowned(mechanism, d=mechanism.dimension, ball=ball)
    size = None if promise.neighbors == ADD_OR_REMOVE_ONE else len(rankings)
    given = None if rankings.items is None else rankings.given
    plain = rankings.items is not None and features is None and given is None
    released = ledger.charge(
        mechanism.event,
        lambda: release_ranked_records(
            records, rankings, mechanism, ball=ball, entropy=entropy, centered=plain
        ),
        digest=digest_of_array,
        promise=promise,
    )
    return RewardModel(
        weights=released.value,
        features=features,
        guarantee=promise,
        method=METHOD,
        ridge=ridge_of(mechanism),
        ball=ball,
        gradient_norm=mechanism.atol,
        atol=mechanism.atol,
        pairs=size,
        release_ids=(released.release_id,),
        artifact=released.artifact,
        items=rankings.items,
        item_features=given,
    )


def release_ranked_records(
    records: Float[np.ndarray, "m d"] | csr_array,
    rankings: Rankings,
    mechanism: RankingObjectivePerturbation,
    *,
    ball: float,
    entropy: _random.Entropy,
    centered: bool = False,
) -> Float[np.ndarray, " d"]:
    """Return noised weights; draws noise, so the spend must already be on a ledger.

    Guarantee:
        That of the mechanism, if the candidates were clipped to its bound and no ballot is too
        long. Shown by tests/soundness/test_rankings_release.py.
    """

    def minimize(tilt: Float[np.ndarray, " d"]) -> Solution:
        loss = _Tilted(records, starts=rankings.starts, ranks=rankings.ranks, pull=-tilt)
        return minimize_tilted(loss, mechanism, ball=ball)

    weights = mechanism.release(minimize, entropy=entropy)
    # Over all items: which of them were offered to somebody is private here.
    return centered_weights(weights, np.ones(len(weights), dtype=bool)) if centered else weights


@dataclass(frozen=True, eq=False, kw_only=True)
class _Tilted(PlackettLuce):
    """The loss of rankings less pullᵀθ."""

    pull: Float[np.ndarray, " d"] = field(kw_only=True)

    @property
    def linear_term(self) -> Float[np.ndarray, " d"]:
        """Return what weights are multiplied by beside the choices."""
        return self.pull

    def sample(self, step: int) -> PlackettLuce:
        """Return the loss of every ``step``-th ballot, and the pull's share."""
        part = super().sample(step)
        pull = self.pull / step
        return _Tilted(part.features, starts=part.starts, ranks=part.ranks, pull=pull)


def _refuse_other_types(rankings: object, mechanism: object, ledger: object) -> None:
    """Refuse what is no raw rankings, no tilt or no ledger."""
    if not isinstance(rankings, Rankings):
        raise PrivacyError(
            f"fit_ranked_records takes raw rankings, got {type(rankings).__name__}. Nothing was "
            "spent."
        )
    if not isinstance(mechanism, RankingObjectivePerturbation) or not isinstance(ledger, Ledger):
        raise UsageError(
            "fit_ranked_records needs a RankingObjectivePerturbation and a Ledger. Nothing was "
            "spent."
        )


def _records(
    rankings: Rankings, features: Features | None, mechanism: RankingObjectivePerturbation
) -> Float[np.ndarray, "m d"] | csr_array:
    """Return the features of every candidate of every ballot, clipped."""
    # Items are clipped once; those without features keep one entry each.
    if rankings.items is None:
        return mechanism.clipped(_dense(rankings, features))
    clipped: Any = mechanism.clipped(_dense(rankings, features))
    if features is None and rankings.given is None:
        clipped = csr_array(clipped)
    return cast("csr_array | np.ndarray", clipped[rankings.offered])


def _dense(rankings: Rankings, features: Features | None) -> Float[np.ndarray, "rows d"]:
    """Return the features of the candidates or, in an election, of the items."""
    if rankings.items is not None:
        return record_rows(lambda: rankings.item_features(features))
    alone = features_of_hidden(features, rankings)
    return record_rows(lambda: rankings.flat_features(alone))
