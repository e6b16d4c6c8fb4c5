"""Raw pairs in memory in, randomized answers out."""

from __future__ import annotations

from sordino.errors import PrivacyError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.pairs import Pairs
from sordino.preferences.private_pairs import PrivatePairs, digest_of_answers
from sordino.privacy.ledger import Ledger
from sordino.privatization.crossing import Crossing, Survey, memo_keys

__all__ = ["privatize"]


def privatize(
    pairs: Pairs,
    mechanism: RandomizedResponse,
    *,
    ledger: Ledger,
    on_device: bool = False,
    simulate_seed: int | None = None,
) -> PrivatePairs:
    """Return the pairs with every label randomized, after recording the spend.

    Args:
        pairs: Raw judgments in canonical order, from :func:`sordino.read_pairs` or
            :meth:`sordino.Pairs.from_features`.
        mechanism: The coin.
        ledger: Where the spend is recorded before any coin is drawn. With person ids, answers
            are stored in ``NAME.memo.db`` beside it and repeated questions cost nothing.
        on_device: Whether this is the person's own device and these are their own labels, so
            that nobody else saw them.
        simulate_seed: A seed for study; the guarantee then says ``simulated``.

    Raises:
        BudgetExceeded: The spend would pass the ledger's budget; no coin was drawn.
        LedgerMismatch: The ledger belongs to other prompts and answers.
        PrivacyError: The pairs are privatized already, not in canonical order, of several people
            on one device, or the ledger is about another unit.

    Guarantee:
        Pure ε per label (unit ``"label"``, ``REPLACE_ONE``), δ = 0; trust ``"central"`` with the
        caveat ``randomized-at-ingestion`` unless ``on_device``. A person who judged m different
        pairs is protected with m·ε (caveat ``person-total``). Shown by
        tests/soundness/test_privatization.py.

    Source:
        PPKL, §3; docs/local.md.
    """
    if not isinstance(pairs, Pairs):
        raise PrivacyError(
            "privatize takes raw judgments; these answers are randomized already, so they can be "
            "used as they are."
        )
    pairs.refuse_other_order()
    crossing = Crossing.of(mechanism, ledger, on_device=on_device, simulate_seed=simulate_seed)
    with crossing.open_memo(linked=pairs.persons is not None) as memo:
        survey = Survey(memo, dropped=pairs.dropped)
        survey.add(pairs.keys, pairs.persons)
        promise = crossing.promise(survey)
        reservation = crossing.reserve(survey, pairs.public_digest)
        keys = memo_keys(pairs.keys, pairs.persons)
        answers = crossing.answers(pairs.labels, keys, memo, reservation)
        paid = memo.release_ids() if memo else ()
    artifact = digest_of_answers(pairs.public_digest, answers)
    if reservation:
        reservation.commit(artifact)
        paid = tuple(dict.fromkeys((*paid, reservation.release_id)))
    else:
        ledger.repeat(paid[0], artifact)
    public = {name: getattr(pairs, name) for name in Comparisons.__dataclass_fields__}
    return PrivatePairs(
        **public,
        answers=answers,
        flip_probability=mechanism.flip_probability,
        guarantee=promise,
        release_ids=paid,
        artifact=artifact,
    )
