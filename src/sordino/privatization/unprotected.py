"""Raw pairs used as they are, after an infinite spend was recorded."""

from __future__ import annotations

from sordino import _random
from sordino.mechanisms.no_privacy import NonPrivate
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.pairs import Pairs
from sordino.preferences.private_pairs import PrivatePairs
from sordino.privacy.guarantee import REPLACE_ONE
from sordino.privacy.ledger import Ledger

__all__ = ["use_unprotected"]


def use_unprotected(pairs: Pairs, mechanism: NonPrivate, *, ledger: Ledger) -> PrivatePairs:
    """Return raw judgments in the form of answers that were never flipped.

    Args:
        pairs: Raw judgments; a fair coin decides each undecided one.
        mechanism: Says that no privacy is meant.
        ledger: Where the infinite spend is recorded first; its budget must be infinite.

    Raises:
        BudgetExceeded: The ledger's budget is finite.
        LedgerMismatch: The ledger belongs to other prompts and answers.

    Guarantee:
        None: ε = ∞ per label. Shown by tests/unit/rewards/test_estimation.py.
    """
    promise = mechanism.guarantee(unit="label", neighbors=REPLACE_ONE, trust="central")
    digest = pairs.public_digest
    reservation = ledger.reserve(mechanism.event, promise=promise, public_digest=digest)
    answers = mechanism.release(pairs.labels, entropy=_random.entropy(None))
    reservation.commit(digest)  # of the public fields: raw labels are not digested
    return PrivatePairs(
        **{name: getattr(pairs, name) for name in Comparisons.__dataclass_fields__},
        answers=answers,
        flip_probability=0.0,
        guarantee=promise,
        release_ids=(reservation.release_id,),
        artifact=digest,
    )
