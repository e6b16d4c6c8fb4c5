"""From raw rankings to one noised sum of them: the spend is written first, then noise is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int64
from scipy.sparse import csr_array

from sordino import _random
from sordino.errors import PrivacyError, UsageError
from sordino.mechanisms.label_sum import LabelStatistic
from sordino.mechanisms.ranking_sum import RankingDesign, RankingGaussian, part_of
from sordino.preferences.features import Features, Matrix
from sordino.preferences.rankings import Rankings, Slates
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.ledger import Ledger
from sordino.privatization.randomization import refuse_unlinked

from .evidence import RankingEvidence, slate_bound
from .label_release import countable_rows, digest_of_statistic, label_promise
from .release_checks import entropy_of

__all__ = ["ReleasedRankings", "SlateRows", "ranking_promise", "release_rankings", "slate_rows"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReleasedRankings:
    """All that is known of rankings after their release: everything done with it is free."""

    evidence: RankingEvidence  # the sum, its noise, and the public slates it is about
    guarantee: Guarantee  # what the release promises
    release_ids: tuple[str, ...]  # ledger entries that paid
    artifact: str  # SHA-256 of the released sum
    # Turns texts into vectors; None if rankings were made from features or are of items without
    # any.
    features: Features | None
    # The names of what ballots choose from, sorted; None for candidates of a ballot's own.
    items: tuple[str, ...] | None
    named: bool  # whether, in public, every ballot names all the items that it was offered
    # φ of the items, if they were given some, shape (K, d).
    item_features: Float[np.ndarray, "k d"] | None

    def __repr__(self) -> str:
        """Return size and promise."""
        return f"ReleasedRankings({self.evidence!r}, {self.guarantee})"


def release_rankings(
    rankings: Rankings,
    mechanism: RankingGaussian,
    *,
    ledger: Ledger,
    features: Features | None = None,
    simulate_seed: int | None = None,
) -> ReleasedRankings:
    """Return all rankings as one noised sum, after recording the spend.

    Guarantee:
        That of the mechanism, trust ``"central"``, under ``REPLACE_ONE``: unit ``"label"``, one
        ballot with its length and its ties, or unit ``"person"`` for all ballots of one person
        (caveat ``labels-only``). Where persons are known and the unit is the label, the caveat is
        ``person-group``; where what ballots name counts as what was offered, ``named-offered``.
        Ranks are read once, when the noise is added. Shown by
        tests/soundness/test_rankings_release.py.
    """
    # A repeat of one person on one question does not count, and with `records_per_person` the
    # ballots of a person that count are chosen by a digest that anybody can compute, as for labels.
    _refuse_other_arguments(rankings, mechanism, ledger)
    entropy = entropy_of(simulate_seed)
    promise = ranking_promise(rankings, mechanism, ledger, entropy)
    digest = rankings.public_digest if promise.unit == "label" else None
    ledger.check_data(None, digest)
    ledger.check(mechanism.event, promise=promise)  # before the work on public vectors
    slates = slate_rows(rankings, features)
    design = _prepared(rankings, mechanism, slates)
    most = mechanism.records_per_person
    released = ledger.charge(
        mechanism.event,
        lambda: mechanism.release(rankings.doubled_ranks(), design=design, entropy=entropy).value,
        digest=lambda value: digest_of_statistic(rankings.public_digest, value),
        promise=promise,
        public_digest=digest,
        details=None if most is None else {"cap": most},
    )
    statistic = LabelStatistic(released.value, factor=design.factor, used=design.used)
    return ReleasedRankings(
        evidence=_evidence(slates, design, statistic, features),
        guarantee=promise,
        release_ids=(released.release_id,),
        artifact=released.artifact,
        features=features,
        items=rankings.items,
        named=rankings.named,
        item_features=None if rankings.items is None else rankings.given,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class SlateRows:
    """The candidates of public slates, each slate once."""

    rows: Matrix  # φ of every flat candidate
    starts: Int64[np.ndarray, " s"]  # where slates start, and the end
    slates: Int64[np.ndarray, " n"]  # which slate each ballot ranks

    def of_ballots(
        self, counted: Int64[np.ndarray, " c"]
    ) -> tuple[Matrix, Int64[np.ndarray, " t"], Int64[np.ndarray, " slates"]]:
        """Return rows, starts and numbers of ballots of the slates that some ballots rank."""
        live, counts = np.unique(self.slates[counted], return_counts=True)
        flat, starts = part_of(self.starts, live)
        rows: Any = self.rows
        return rows[flat], starts, counts.astype(np.int64)


def slate_rows(slates: Slates, features: Features | None) -> SlateRows:
    """Return the candidates of ballots with their features; ballots of the same items share one."""
    n = len(slates)
    if slates.items is None:
        rows = slates.flat_features(features)
        return SlateRows(rows=rows, starts=slates.starts.astype(np.int64), slates=np.arange(n))
    assert slates.offered is not None  # noqa: S101 (for the type checker; set at the start)
    numbers: dict[bytes, int] = {}
    which = np.array([numbers.setdefault(key, len(numbers)) for key in slates.keys])
    first = np.unique(which, return_index=True)[1]
    flat, starts = part_of(slates.starts.astype(np.int64), first)
    known: Any = slates.item_features(features)
    if features is None and slates.given is None and len(first) > 1:
        known = csr_array(known)  # one entry in each row
    return SlateRows(rows=known[slates.offered[flat]], starts=starts, slates=which)


def ranking_promise(
    rankings: Rankings, mechanism: RankingGaussian, ledger: Ledger, entropy: _random.Entropy
) -> Guarantee:
    """Return what a release promises under the terms of a ledger, with every caveat."""
    promise = label_promise(rankings, mechanism, ledger, entropy)
    return promise.with_caveats("named-offered") if rankings.named else promise


def _refuse_other_arguments(rankings: Any, mechanism: Any, ledger: Any) -> None:
    """Refuse what is no raw rankings, or not in canonical order, and other settings."""
    if not isinstance(rankings, Rankings):
        raise PrivacyError(
            f"release_rankings takes raw rankings, got {type(rankings).__name__}. Nothing was "
            "released."
        )
    if not isinstance(mechanism, RankingGaussian) or not isinstance(ledger, Ledger):
        raise UsageError(
            "release_rankings needs a RankingGaussian and a Ledger. Nothing was released."
        )
    rankings.refuse_other_order()
    if mechanism.records_per_person is not None and rankings.persons is None:
        refuse_unlinked(f"a limit of {mechanism.records_per_person} records of one person")


def _prepared(rankings: Rankings, mechanism: RankingGaussian, slates: SlateRows) -> RankingDesign:
    """Return the release made ready; no rank is read."""
    limited = mechanism.records_per_person is not None
    return mechanism.prepare(
        slates.rows,
        slates.starts,
        slates=slates.slates,
        persons=rankings.persons if limited else None,
        rows=countable_rows(rankings),
    )


def _evidence(
    slates: SlateRows, design: RankingDesign, released: LabelStatistic, features: Features | None
) -> RankingEvidence:
    """Return what a fit sees of a release."""
    rows, starts, counts = slates.of_ballots(np.flatnonzero(released.used))
    return RankingEvidence(
        rows=rows,
        starts=starts,
        counts=counts,
        kind=design.mechanism.statistic,
        statistic=released.value,
        factor=released.factor,
        feature_bound=slate_bound(slates.rows, slates.starts, features),
        rounding=design.rounding,
    )
