"""Raw judgments in, randomized answers out: of pairs in memory, or of one file as it is read.

And first choices of raw ballots in, randomized ones out. The spend is recorded first.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Integer

from sordino import _random, _validate
from sordino._files import atomic_draft, clear, refuse_output, sha256_of, to_json
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.randomized_response import (
    KaryRandomizedResponse,
    NonPrivate,
    RandomizedResponse,
    debiased_choices,
)
from sordino.preferences.comparisons import (
    Comparisons,
    PublicDigest,
    TextRules,
    columns_of,
    kept,
    outcomes_of,
)
from sordino.preferences.containers import Progress, separator
from sordino.preferences.files import read_records
from sordino.preferences.memo import AnswerMemo
from sordino.preferences.pairs import (
    RANDOMIZED_RESPONSE,
    Manifest,
    Pairs,
    PrivatePairs,
    answer_lines,
    digest_of_answers,
    manifest_path,
    most_questions,
)
from sordino.preferences.rankings import Rankings, Slates
from sordino.preferences.records import Levels, Record
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee, Unit, never_less
from sordino.privacy.ledger import Ledger, Reservation

from .randomization import CHANGED, Randomization, Survey, memo_keys, refuse_unlinked

_OF_TEXTS = ("drop", "longest")  # what keeps a record from being used
_BATCH = 8192
_BATCH_CHARACTERS = 1 << 23


@dataclass(frozen=True)
class MemoryRows:
    """Raw pairs in memory: all of them are one batch."""

    pairs: Pairs

    @property
    def linked(self) -> bool:
        """Return whether it is known who answered."""
        return self.pairs.persons is not None

    def batches(self, _: int) -> Iterator[Pairs]:
        """Yield the pairs."""
        yield self.pairs


@dataclass(frozen=True, kw_only=True)
class FileSettings:
    """How a raw file is read: the same for the survey and for the release."""

    columns: Mapping[str, str] | None = None
    person_field: str | None = "person"
    drop: Collection[str] = ()
    longest: int | None = None
    levels: Levels | None = None
    ratings: str = "levels"

    def records(self, source: Path, progress: Progress | None = None) -> Iterator[Record]:
        """Yield every record of a file."""
        reading = {name: value for name, value in vars(self).items() if name not in _OF_TEXTS}
        return read_records(source, **reading, progress=progress)


@dataclass(frozen=True)
class FileRows:
    """One raw file, in batches: memory does not grow with its size."""

    source: Path
    settings: FileSettings
    progress: Progress | None = None

    @property
    def linked(self) -> bool:
        """Return whether the first record has a person id."""
        source = self.source
        if os.path.exists(source) and not (os.path.isfile(source) or os.path.isdir(source)):  # noqa: PTH110, PTH112, PTH113 (they never raise)
            raise UsageError(
                "The input must be a file: it is read more than once. Nothing was done."
            )
        return next(self.settings.records(source)).person is not None

    def batches(self, reading: int) -> Iterator[Pairs]:
        """Yield records as they are read the first or the second time; the last batch is empty."""
        # Limited in number and in characters. Each says the digest of all that was read so far.
        report, half = self.progress, None
        if report is not None:
            half = lambda done, total: report(done + reading * total, 2 * total)  # noqa: E731
        rules = TextRules.of(self.settings.drop, self.settings.longest)
        batch: list[Record] = []
        size, digest = 0, PublicDigest()
        for record in kept(self.settings.records(self.source, half), digest, rules):
            if record.privatized:
                raise UsageError(
                    "These answers are randomized already; use them as they are (sordino fit, "
                    "sordino align)."
                )
            batch.append(record)
            size += record.size
            if len(batch) >= _BATCH or size >= _BATCH_CHARACTERS:
                yield Pairs(**columns_of(batch, digest), labels=outcomes_of(batch))
                batch, size = [], 0
        for rest in (batch, []) if batch else ([],):
            yield Pairs(**columns_of(rest, digest), labels=outcomes_of(rest))


def _survey(rows: MemoryRows | FileRows, memo: AnswerMemo | None, cap: int | None) -> Survey:
    """Return what the public fields say; the questions are then staged in the memo, if any."""
    n, people, texts = 0, set[str](), True
    questions, asked = [np.zeros(0, np.uint64)], list[np.ndarray]()
    for pairs in rows.batches(0):
        n += len(pairs)
        texts = texts and pairs.given is None
        dropped, public_digest = pairs.dropped, pairs.public_digest  # of all so far
        people |= set(pairs.persons or ()) if len(people) < 2 else set()  # noqa: PLR2004 (one, or several)
        if memo is not None:
            memo.stage(memo_keys(pairs.keys, pairs.persons))
        # 64 bits per question suffice to warn of repeats, in constant memory per record
        short = b"".join(key[:8] for key in pairs.keys)
        questions.append(np.frombuffer(short, dtype="<u8"))
        if pairs.asked:
            asked.append(np.frombuffer(b"".join(key[:8] for key in pairs.asked), dtype="<u8"))
    if not n and not isinstance(rows, MemoryRows):
        raise DataError("No pair is left: every record is left out for its texts.")
    together = np.concatenate(questions)
    questions.clear()  # of very many records each copy counts
    together.sort()
    first = np.ones(len(together), dtype=bool)
    first[1:] = together[1:] != together[:-1]
    known = together[first]
    return Survey(
        n=n,
        dropped=dropped,
        public_digest=public_digest,
        questions=(np.unique(np.concatenate([known, *asked])) if asked else known)
        if texts
        else None,
        several_people=len(people) > 1,
        repeats=memo is None and len(known) < len(together),
        counts=None if memo is None else memo.counts(cap),
        people=None if memo is None else memo.people(cap),
        people_on=lambda entry: None if memo is None else memo.people(cap, entry),
    )


def plan_answers(
    rows: MemoryRows | FileRows, randomization: Randomization
) -> tuple[dict[str, Any], Survey]:
    """Return what :func:`privatize`, or :func:`privatize_file`, would spend and promise."""
    # Every record is checked and nothing on disk is touched: an unusable file leaves no ledger.
    with randomization.open_memo(linked=rows.linked, dry_run=True) as memo:
        survey = _survey(rows, memo, randomization.cap)
        # A file states its own promise; what is in memory is certified by the entries that paid.
        covering = memo.release_ids() if memo and isinstance(rows, MemoryRows) else None
        return randomization.plan(survey, covering=covering), survey


def count_labels(rows: FileRows) -> int:
    """Return the largest number of different questions of one person in a raw file: public."""
    if not rows.linked:
        refuse_unlinked("a budget for each person")
    with AnswerMemo.scratch() as memo:
        _survey(rows, memo, None)
        return memo.counts(None).labels


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
    randomization = Randomization.of(
        mechanism, ledger, on_device=on_device, simulate_seed=simulate_seed, cap=cap
    )
    rows = MemoryRows(pairs)
    with randomization.open_memo(linked=rows.linked) as memo:
        survey = _survey(rows, memo, randomization.cap)
        promise = randomization.promise(survey)
        reservation = randomization.pay(survey)
        randomization.choose(memo)
        [(used, answers)] = _answered(rows, survey, randomization, memo, reservation)
        artifact = digest_of_answers(used.public_digest, answers)
        paid = randomization.record(memo, reservation, artifact)
    return PrivatePairs(
        **{name: getattr(used, name) for name in Comparisons.__dataclass_fields__},
        answers=answers,
        flip_probability=mechanism.flip_probability,
        guarantee=randomization.covering(promise, paid),
        release_ids=paid,
        artifact=artifact,
    )


def privatize_file(  # noqa: PLR0913 (each is one choice of the user)
    source: str | Path,
    destination: str | Path,
    mechanism: RandomizedResponse,
    *,
    ledger: Ledger,
    settings: FileSettings | None = None,
    cap: int | None = None,
    on_device: bool = False,
    simulate_seed: int | None = None,
    force: bool = False,
    surveyed: Survey | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Write a raw file's answers, randomized, with a manifest beside them; return the manifest.

    Guarantee:
        As :func:`privatize`, where the manifest states the promise of this file alone; the
        output holds prompt, first, second, answer, person and whose answers met only, in the order
        of the input, which counts as public.
    """
    # The file is read twice: once to refuse what cannot be used and to see what will be spent, once
    # to randomize.
    rows = FileRows(Path(source), settings or FileSettings(), progress)
    destination = Path(destination)
    refuse_table(destination)
    for path in (destination, manifest_path(destination)):
        refuse_output(path, force=force, spends=True)
    randomization = Randomization.of(
        mechanism, ledger, on_device=on_device, simulate_seed=simulate_seed, cap=cap
    )
    with randomization.open_memo(linked=rows.linked) as memo:
        if surveyed is None or memo is not None:
            surveyed = _survey(rows, memo, randomization.cap)
        survey = surveyed
        promise = randomization.promise(survey)
        with (  # opened first: nothing is spent on what cannot be written
            atomic_draft(destination, force=force) as out,
            atomic_draft(manifest_path(destination), force=force) as note,
        ):
            reservation = randomization.pay(survey)
            randomization.choose(memo)
            for used, answers in _answered(rows, survey, randomization, memo, reservation):
                out.file.writelines(answer_lines(used, answers))
            out.finish()
            release_id = reservation.release_id if reservation else _random.new_release_id()
            manifest = manifest_of(mechanism, promise, sha256_of(out.path), release_id)
            note.file.write(to_json(manifest.to_dict()).encode())
            note.finish()
            randomization.record(memo, reservation, manifest.sha256)
            clear(destination, force=force)  # no moment with a file and another's manifest
    return manifest


def _answered(
    rows: MemoryRows | FileRows,
    survey: Survey,
    randomization: Randomization,
    memo: AnswerMemo | None,
    reservation: Reservation | None,
) -> Iterator[tuple[Pairs, Integer[np.ndarray, " n"]]]:
    """Yield the records that are used, and their answers; the spend is on the ledger."""
    place, public_digest = 0, ""
    for batch in rows.batches(1):
        pairs, keys, public_digest = (
            batch,
            memo_keys(batch.keys, batch.persons),
            batch.public_digest,
        )
        if place and not len(batch):
            break
        if memo is not None:
            used = randomization.rows(keys, memo)
            if len(used) < len(pairs):
                pairs, keys = pairs.part(used), [keys[row] for row in used]
        yield pairs, randomization.answers(pairs.labels, keys, memo, reservation, place=place)
        place += len(batch)
    if public_digest != survey.public_digest:
        raise DataError(CHANGED)


def refuse_table(destination: Path) -> None:
    """Refuse a name under which answers would be read as a table."""
    if separator(destination) is not None:
        raise UsageError(
            "A privatized file is JSON Lines: give it a name that ends in .jsonl or .jsonl.gz. "
            "Nothing was done."
        )


def manifest_of(
    mechanism: RandomizedResponse, promise: Guarantee, sha256: str, release_id: str
) -> Manifest:
    """Return what a privatized file says of itself."""
    return Manifest(
        sha256=sha256,
        release_id=release_id,
        mechanism=RANDOMIZED_RESPONSE,
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
        guarantee=promise,
        release_ids=(released.release_id,),
        artifact=digest,
    )


_SLACK = 1e-9  # relative, of an ε that was rounded


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class PrivateChoices(Slates):
    """Randomized first choices with the promise they carry: everything done with them is free."""

    # Which candidate of its ballot each answer is, from 0.
    answers: Integer[np.ndarray, " n"] = field(kw_only=True)
    mechanism: KaryRandomizedResponse = field(kw_only=True)  # what randomized them
    guarantee: Guarantee = field(kw_only=True)  # what the answers promise
    # Ledger entries that paid for them.
    release_ids: tuple[str, ...] = field(default=(), kw_only=True)
    artifact: str = field(kw_only=True)  # SHA-256 of the released answers

    def _outcome(self, row: int) -> dict[str, Any]:
        return {"answer": int(self.answers[row])}

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_other_sizes(self, self.mechanism)
        debiased_choices(self.answers, self.mechanism)
        if len(self.answers) != len(self):
            raise DataError(f"answers must be {len(self)}, one for each ballot.")
        promised, counts = self.guarantee.epsilon, _choices_of_one(self, self.guarantee.unit)
        if not math.isclose(promised, counts * self.mechanism.realized_epsilon, rel_tol=_SLACK):
            raise PrivacyError(
                f"These answers were not randomized for epsilon={never_less(promised)}, which "
                "they promise."
            )


def _choices_of_one(ballots: Slates, unit: Unit) -> int:
    """Return how many ballots a promise is about: 1, or the most that one person answered."""
    if unit != "person":
        return 1
    if ballots.persons is None:
        refuse_unlinked("a budget for each person")
    return most_questions(ballots.persons, ballots.keys)


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
    if not isinstance(rankings, Rankings):
        raise PrivacyError(
            f"privatize_choices takes raw rankings, got {type(rankings).__name__}. Nothing was "
            "released."
        )
    if not isinstance(mechanism, KaryRandomizedResponse) or not isinstance(ledger, Ledger):
        raise UsageError(
            "privatize_choices needs a KaryRandomizedResponse and a Ledger. Nothing was released."
        )
    if simulate_seed is not None:
        _validate.integer("simulate_seed", simulate_seed, at_least=0)
    entropy = _random.entropy(simulate_seed)
    terms = terms_of_choices(rankings, mechanism, ledger, entropy)
    once = np.flatnonzero(rankings.first_rows())
    used = rankings if len(once) == len(rankings) else rankings.part(once.tolist())
    released = ledger.charge(
        mechanism.event,
        lambda: mechanism.release(_first_choices(used, entropy), entropy=entropy),
        digest=lambda answers: digest_of_answers(used.public_digest, answers),
        **terms,
    )
    return PrivateChoices(
        **{name: getattr(used, name) for name in Slates.__dataclass_fields__},
        answers=released.value,
        mechanism=mechanism,
        guarantee=terms["promise"],
        release_ids=(released.release_id,),
        artifact=released.artifact,
    )


def _refuse_other_sizes(slates: Slates, mechanism: KaryRandomizedResponse) -> None:
    """Refuse ballots whose number of candidates is not that of the die; it is public."""
    wrong = slates.sizes != mechanism.categories
    if wrong.any():
        raise DataError(
            f"Ballot {int(np.argmax(wrong))} has {slates.sizes[np.argmax(wrong)]} candidates, and "
            f"the die is for categories={mechanism.categories}. Nothing was released. Ballots of "
            "any length are for one noised sum (--noise estimate)."
        )


def terms_of_choices(
    rankings: Rankings, mechanism: KaryRandomizedResponse, ledger: Ledger, entropy: _random.Entropy
) -> dict[str, Any]:
    """Return what the release of first choices is recorded with; refuse what it cannot keep."""
    rankings.refuse_other_order()
    _refuse_other_sizes(rankings, mechanism)
    unit = ledger.budget.unit
    person, count = unit == "person", _choices_of_one(rankings, unit)
    about: dict[str, Any] = {"unit": unit, "labels": count if person else None}
    promise = mechanism.guarantee(**about, neighbors=REPLACE_ONE, trust="central")
    caveats = {
        "randomized-at-ingestion": True,
        "person-group": rankings.persons is not None and not person,
        "repeats-not-linked": rankings.persons is None and len(set(rankings.keys)) < len(rankings),
        "named-offered": rankings.named,
        "simulated": entropy.randomness == "simulated",
    }
    applying = (name for name, applies in caveats.items() if applies)
    named = promise.with_caveats(*applying, *(ledger.accepted or ()))
    return {
        "promise": replace(named, randomness=entropy.randomness),
        "count": count,
        "questions": None if person else rankings.questions,
        "people": rankings.people(),
    }


def _first_choices(rankings: Rankings, entropy: _random.Entropy) -> Integer[np.ndarray, " n"]:
    """Return the place of the best candidate of every ballot; a fair die decides a tie."""
    # A word is drawn for every candidate, whatever the ballot says.
    k = int(rankings.sizes[0])
    doubled = rankings.doubled_ranks().reshape(-1, k)
    best = doubled == doubled.min(axis=1, keepdims=True)
    words = entropy.words(doubled.size).reshape(-1, k) >> np.uint64(1)
    return np.asarray(np.where(best, words, np.uint64(2**63)).argmin(axis=1))
