"""Raw judgments in memory in, randomized answers out; and first choices of raw ballots.

The spend is recorded first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from jaxtyping import Integer

from sordino import _random
from sordino.engines.engine import InProcess
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.randomized_response import (
    KaryRandomizedResponse,
    NonPrivate,
    RandomizedResponse,
)
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.pairs import Manifest, Pairs, PrivatePairs, digest_of_answers
from sordino.preferences.rankings import PrivateChoices, Rankings, Slates
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee
from sordino.privacy.ledger import Ledger, provenance

from .people import LEFT_OUT, AskedPeople, PersonQuestions, record_release, short_keys
from .randomization import CHANGED, Randomization, Survey, questions_of_one_person


@contextmanager
def _surveyed(
    pairs: Pairs, randomization: Randomization, *, dry_run: bool = False
) -> Iterator[tuple[Survey, AskedPeople | None]]:
    """Yield what the public fields say; the memo is this run's until the context ends."""
    if pairs.persons is None:
        randomization.refuse_unknown_people()
        yield Survey.of(pairs), None
        return
    with randomization.open_memo(1, dry_run=dry_run) as memo:
        keys = short_keys(pairs.persons, pairs.keys)
        asked = PersonQuestions.of(keys, pairs.labels, np.arange(len(pairs)))
        people = AskedPeople(memo, randomization.cap, lambda _: asked)
        yield people.joined(Survey.of(pairs), InProcess()), people


def plan_answers(pairs: Pairs, randomization: Randomization) -> dict[str, Any]:
    """Return what :func:`privatize` would spend and promise; nothing on disk is touched."""
    # What is in memory is certified by the entries that paid.
    with _surveyed(pairs, randomization, dry_run=True) as (survey, _):
        return randomization.plan(survey, covering=survey.counts and survey.counts.payers)


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
            are stored in ``NAME.memo`` beside it and repeated questions cost nothing. The
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
    randomization = Randomization(
        mechanism, ledger, on_device=on_device, simulate_seed=simulate_seed, cap=cap
    )
    with _surveyed(pairs, randomization) as (survey, people):
        promise = randomization.promise(survey)
        reservation = randomization.pay(survey)
        entry = None if reservation is None else reservation.release_id
        used, payers = pairs, frozenset[str]()
        if people is None:
            assert reservation is not None  # noqa: S101 - for the type checker: nothing is stored
            answers = reservation.drawn_once(
                lambda: mechanism.release(pairs.labels, entropy=randomization.entropy)
            )
            if len(answers) != len(pairs):
                raise DataError(CHANGED)
        else:
            asked, found, payers = people.answers(0, mechanism, entry, randomization.entropy)
            answers = found[asked.which]
            rows = np.flatnonzero(answers != LEFT_OUT)
            if len(rows) < len(pairs):
                used, answers = pairs.part(rows.tolist()), answers[rows]
        artifact = digest_of_answers(used.public_digest, answers)
        record_release(ledger, reservation, artifact, people, payers, InProcess())
    paid = tuple(sorted(payers | ({entry} if entry else set())))
    return PrivatePairs(
        **{name: getattr(used, name) for name in Comparisons.__dataclass_fields__},
        answers=answers,
        flip_probability=mechanism.flip_probability,
        guarantee=randomization.covering(promise, paid),
        release_ids=paid,
        artifact=artifact,
    )


def manifest_of(
    mechanism: RandomizedResponse | KaryRandomizedResponse,
    promise: Guarantee,
    sha256: str,
    release_id: str,
) -> Manifest:
    """Return what a privatized file says of itself."""
    return Manifest(
        sha256=sha256,
        release_id=release_id,
        mechanism=mechanism.name,
        categories=mechanism.categories,
        epsilon=promise.epsilon,
        flip_probability=mechanism.flip_probability,
        unit=promise.unit,
        neighbors=promise.neighbors.name,
        trust=promise.trust,
        caveats=promise.caveats,
    )


def use_unprotected(pairs: Pairs, mechanism: NonPrivate, *, ledger: Ledger) -> PrivatePairs:
    """Return raw judgments in the form of answers that were never flipped.

    Guarantee:
        None: ε = ∞ per label. Shown by tests/unit/rewards/test_estimation.py.
    """
    promise = mechanism.guarantee(unit="label", neighbors=REPLACE_ONE, trust="central")
    digest = pairs.public_digest
    released = ledger.charge(
        mechanism.event,
        lambda: mechanism.release(pairs.labels, entropy=_random.entropy(None)),
        digest=lambda _: digest,  # of the public fields: raw labels are not digested
        promise=promise,
        stored=False,
        questions=pairs.questions,
        people=pairs.people(),
    )
    return PrivatePairs(
        **{name: getattr(pairs, name) for name in Comparisons.__dataclass_fields__},
        answers=released.value,
        flip_probability=0.0,
        **provenance(released),
    )


def privatize_choices(
    rankings: Rankings,
    mechanism: KaryRandomizedResponse,
    *,
    ledger: Ledger,
    simulate_seed: int | None = None,
) -> PrivateChoices:
    """Return the best candidate of every ballot, randomized, after recording the spend.

    A fair die decides among candidates that tie as the best; where nothing is listed, all do. A
    repeat of one person on one question is left out.

    Args:
        rankings: Raw ballots in canonical order, each of ``mechanism.categories`` candidates.
        mechanism: The die.
        ledger: Where the spend is recorded before a word is drawn; its unit is ``"label"``, or
            ``"person"`` for all ballots of one person together.
        simulate_seed: A seed for study; the guarantee then says ``simulated``.

    Raises:
        PrivacyError: These are no raw rankings, they are not in canonical order, or the ledger is
            about another unit.
        DataError: A ballot has another number of candidates, or persons must be known.
        UsageError: The mechanism or the ledger is something else, or the seed is negative.
        BudgetExceeded: The spend would pass the ledger's budget; nothing was drawn.
        LedgerMismatch: The ledger belongs to other questions.

    Guarantee:
        ε of the mechanism for one ballot, unit ``"label"``, ``REPLACE_ONE``, δ = 0, trust
        ``"central"``; caveats ``randomized-at-ingestion`` and, where persons are known,
        ``person-group``, and ``named-offered``. Of unit ``"person"`` so many times ε as one person
        answered questions, with the caveat ``labels-only``. Shown by
        tests/soundness/test_rankings_release.py.

    Source:
        docs/local.md, "Randomized response".
    """
    kind = KaryRandomizedResponse
    refuse_other_ballots("privatize_choices", rankings, mechanism, ledger, kind)
    entropy = _random.entropy(simulate_seed)
    terms = terms_of_choices(rankings, mechanism, ledger, entropy)
    once = np.flatnonzero(rankings.first_rows())
    used = rankings if len(once) == len(rankings) else rankings.part(once.tolist())

    def best_of_each() -> Integer[np.ndarray, " n"]:
        # A fair die decides a tie. A word is drawn for every candidate, whatever the ballot says.
        k = int(used.sizes[0])
        doubled = used.doubled_ranks().reshape(-1, k)
        best = doubled == doubled.min(axis=1, keepdims=True)
        words = entropy.words(doubled.size).reshape(-1, k) >> np.uint64(1)
        return np.asarray(np.where(best, words, np.uint64(2**63)).argmin(axis=1))

    released = ledger.charge(
        mechanism.event,
        lambda: mechanism.release(best_of_each(), entropy=entropy),
        digest=lambda answers: digest_of_answers(used.public_digest, answers),
        **terms,
    )
    return PrivateChoices(
        **{name: getattr(used, name) for name in Slates.__dataclass_fields__},
        answers=released.value,
        flip_probability=mechanism.flip_probability,
        **provenance(released),
    )


def refuse_other_ballots(
    asked: str, rankings: object, mechanism: object, ledger: object, kind: type
) -> None:
    """Refuse what is no raw rankings, another mechanism, and what is no ledger."""
    if not isinstance(rankings, Rankings):
        raise PrivacyError(
            f"{asked} takes raw rankings, got {type(rankings).__name__}. Nothing was spent."
        )
    if not isinstance(mechanism, kind) or not isinstance(ledger, Ledger):
        raise UsageError(f"{asked} needs a {kind.__name__} and a Ledger. Nothing was spent.")


def terms_of_choices(
    rankings: Rankings, mechanism: KaryRandomizedResponse, ledger: Ledger, entropy: _random.Entropy
) -> dict[str, Any]:
    """Return what the release of first choices is recorded with; refuse what it cannot keep."""
    rankings.refuse_other_order()
    wrong = rankings.sizes != mechanism.categories  # public
    if wrong.any():
        raise DataError(
            f"Ballot {int(np.argmax(wrong))} has {rankings.sizes[np.argmax(wrong)]} candidates, "
            f"and the die is for categories={mechanism.categories}. Nothing was released. Ballots "
            "of any length are for one noised sum (--noise estimate)."
        )
    unit = ledger.budget.unit
    person = unit == "person"
    count = questions_of_one_person(rankings) if person else 1  # ballots that a promise is about
    about: dict[str, Any] = {"unit": unit, "labels": count if person else None}
    promise = mechanism.guarantee(**about, neighbors=REPLACE_ONE, trust="central")
    caveats = {
        "randomized-at-ingestion": True,
        "person-group": rankings.persons is not None and not person,
        "repeats-not-linked": rankings.repeats,
        "named-offered": rankings.named,
    }
    named = promise.with_caveats(*(ledger.accepted or ()), when=caveats)
    return {
        "promise": named.drawn(entropy.randomness),
        "count": count,
        "questions": None if person else rankings.questions,
        "people": rankings.people(),
    }
