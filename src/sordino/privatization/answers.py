"""Raw judgments in, randomized answers out: of pairs in memory, or of one file as it is read."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Integer

from sordino import _random
from sordino._files import atomic_draft, clear, refuse_output, sha256_of, to_json
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.randomized_response import NonPrivate, RandomizedResponse
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
)
from sordino.preferences.records import Levels, Record
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee
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
    questions, asked = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
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
    together = np.sort(np.concatenate(questions))
    return Survey(
        n=n,
        dropped=dropped,
        public_digest=public_digest,
        questions=np.unique(np.concatenate([together, *asked])) if texts else None,
        several_people=len(people) > 1,
        repeats=memo is None and bool((together[1:] == together[:-1]).any()),
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
        output holds prompt, first, second, answer and person only, in the order of the input,
        which counts as public.
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
