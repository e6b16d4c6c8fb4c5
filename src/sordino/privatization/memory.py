"""Raw pairs in memory in, randomized answers out."""

from __future__ import annotations

from typing import Any

from sordino.errors import PrivacyError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.memo import AnswerMemo
from sordino.preferences.pairs import Pairs
from sordino.preferences.private_pairs import PrivatePairs, digest_of_answers
from sordino.privacy.ledger import Ledger
from sordino.privatization.crossing import Crossing, Survey, memo_keys
from sordino.privatization.stored_answers import nothing_stored, record_release

__all__ = ["plan_pairs", "privatize"]


def privatize(
    pairs: Pairs,
    mechanism: RandomizedResponse,
    *,
    ledger: Ledger,
    cap: int | None = None,
    on_device: bool = False,
    simulate_seed: int | None = None,
) -> PrivatePairs:
    """Return the pairs with every label randomized, after recording the spend.

    Args:
        pairs: Raw judgments in canonical order, from :func:`sordino.read_pairs` or
            :meth:`sordino.Pairs.from_features`.
        mechanism: The coin.
        ledger: Where the spend is recorded before any coin is drawn. With person ids, answers
            are stored in ``NAME.memo.db`` beside it and repeated questions cost nothing. The
            unit of its budget is the unit of the promise: ``"label"`` or ``"person"``.
        cap: The most different questions of one person that are used, chosen uniformly at random
            before any label is looked at; the rest is left out. None uses all.
        on_device: Whether this is the person's own device and these are their own labels, so
            that nobody else saw them.
        simulate_seed: A seed for study; the guarantee then says ``simulated``.

    Raises:
        BudgetExceeded: The spend would pass the ledger's budget; no coin was drawn.
        DataError: The budget is for persons, or a cap is given, and there are no person ids.
        LedgerMismatch: The ledger belongs to other prompts and answers.
        UsageError: ``cap`` is no whole number of at least 1.
        PrivacyError: The pairs are privatized already, not in canonical order, of several people
            on one device, or the ledger is about another unit.

    Guarantee:
        With ε of the mechanism, the loss of one label, and δ = 0; trust ``"central"`` with the
        caveat ``randomized-at-ingestion`` unless ``on_device``. Unit ``"label"``,
        ``REPLACE_ONE``: ε; a person who judged m different pairs is protected with m·ε (caveat
        ``person-total``), at most cap·ε. Unit ``"person"``, ``REPLACE_ONE``: m·ε for all labels
        of one person together, m the largest number of different questions of one person that
        are used (caveat ``labels-only``: who answered what is public). In memory the promise to
        a person is never less than what its entries on the ledger spent together. Shown by
        tests/soundness/test_privatization.py and tests/soundness/test_person_level.py.

    Source:
        PPKL, §3; docs/local.md, "Person-level budgets".
    """
    if not isinstance(pairs, Pairs):
        raise PrivacyError(
            "privatize takes raw judgments; these answers are randomized already, so they can be "
            "used as they are."
        )
    pairs.refuse_other_order()
    crossing = Crossing.of(
        mechanism, ledger, on_device=on_device, simulate_seed=simulate_seed, cap=cap
    )
    with crossing.open_memo(linked=pairs.persons is not None) as memo:
        survey = _surveyed(pairs, crossing, memo)
        promise = crossing.promise(survey)
        reservation = crossing.reserve(survey, pairs.public_digest)
        crossing.choose(survey)
        keys = memo_keys(pairs.keys, pairs.persons)
        rows = crossing.rows(keys, memo)
        used = pairs.part(rows) if memo and len(rows) < len(pairs) else pairs
        keys = [keys[index] for index in rows]
        answers = crossing.answers(used.labels, keys, memo, reservation)
        paid = memo.release_ids() if memo else ()
        artifact = digest_of_answers(used.public_digest, answers)
        drawn = memo.drawn if memo else nothing_stored
        record_release(ledger, reservation, paid, artifact, drawn)
    if reservation:
        paid = tuple(dict.fromkeys((*paid, reservation.release_id)))
    public = {name: getattr(used, name) for name in Comparisons.__dataclass_fields__}
    return PrivatePairs(
        **public,
        answers=answers,
        flip_probability=mechanism.flip_probability,
        guarantee=crossing.covering(promise, paid),
        release_ids=paid,
        artifact=artifact,
    )


def plan_pairs(pairs: Pairs, crossing: Crossing, *, data: str) -> dict[str, Any]:
    """Return what :func:`privatize` would spend and promise; nothing is written.

    Raises:
        BudgetExceeded: The ledger has not enough left.
        LedgerMismatch: The ledger belongs to another data set.
        DataError: Person ids are missing.
    """
    with crossing.open_memo(linked=pairs.persons is not None, dry_run=True) as memo:
        survey = _surveyed(pairs, crossing, memo)
        return crossing.plan(survey, pairs.public_digest, data=data, in_memory=True)


def _surveyed(pairs: Pairs, crossing: Crossing, memo: AnswerMemo | None) -> Survey:
    """Return what the public fields of pairs say."""
    survey = Survey(memo, cap=crossing.cap, dropped=pairs.dropped)
    survey.add(pairs.keys, pairs.persons)
    return survey
