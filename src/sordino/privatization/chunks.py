"""Raw judgments in files in, a privatized file for each out; tasks of an engine draw.

Each task may run twice, and draws once. Where people are named the task of a part of them answers,
on a memo that many machines may write. Where nobody is named the task of a chunk draws, and its
part too appears once, whole or not at all.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import add, or_
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from sordino import _random
from sordino._files import explained, sha256_of, written_once
from sordino._validate import Integers
from sordino.engines.engine import Engine, Taken, refuse_other_engines
from sordino.engines.exchange import PARTS, Exchange, opened_exchange
from sordino.errors import DataError, UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.chunk_survey import ChunkSurvey, survey_chunks
from sordino.preferences.chunks import Chunk, Chunks, Layout
from sordino.preferences.memo import KEY, parts_of
from sordino.preferences.pairs import Manifest, Pairs, answer_lines
from sordino.preferences.parquet import VectorWriter, copy_tables
from sordino.privacy.ledger import Ledger

from .answers import manifest_of
from .people import LEFT_OUT, AskedPeople, PersonQuestions, record_release, short_keys
from .publication import ChunkOutputs, FileOfWork, bind, digest_of_request, see_folder
from .randomization import CHANGED, Randomization, Survey

_JUDGMENT: Final = np.dtype([("key", KEY), ("row", "<u8"), ("label", "u1")])
_ANSWERED: Final = np.dtype([("row", "<u8"), ("answer", "i1")])
_FEW: Final = 1 << 18  # records of people who are not taken apart: files cost more than memory


@dataclass(frozen=True, repr=False)
class _Sorted:
    """The judgments of many files by person, in a folder that goes when the run ends."""

    # Labels lie in it hidden by a secret that only tasks of this run know, so that what a killed
    # run leaves tells none.

    survey: ChunkSurvey  # how to read them
    shuffle: Exchange  # where they lie
    parts: int  # of the people
    secret: bytes = field(repr=False)  # hides the labels

    def sort(self, chunk: Chunk) -> int:
        """Leave the judgments of a chunk, by person and with their labels hidden; count them."""
        start, found = self.survey.starts[chunk.number], [np.zeros(0, _JUDGMENT)]
        for batch, _ in self.survey.read(chunk):
            if len(pairs := batch.whole):
                rows = np.zeros(len(pairs), _JUDGMENT)
                rows["key"] = short_keys(pairs.persons or (), pairs.keys)
                rows["label"] = pairs.labels
                rows["row"] = start + np.arange(len(pairs), dtype=np.uint64)
                start += len(pairs)
                found.append(rows)
        rows = np.concatenate(found)
        parts = parts_of(rows["key"], self.parts)
        sizes = np.bincount(parts, minlength=PARTS)
        pads = [_pad(self.secret, chunk.number, part, size) for part, size in enumerate(sizes)]
        rows["label"][np.argsort(parts, kind="stable")] ^= np.concatenate(pads)
        self.shuffle.write(chunk.number, rows, parts)
        return len(rows)

    def asked(self, part: int) -> PersonQuestions:
        """Return the questions of one part of the people, with the label given first to each."""
        rows = self.shuffle.read(part, len(self.survey.chunks))
        chunks = np.searchsorted(self.survey.starts, rows["row"], side="right") - 1
        numbers, sizes = np.unique(chunks, return_counts=True)
        pads = [
            _pad(self.secret, int(chunk), part, size)
            for chunk, size in zip(numbers, sizes, strict=True)
        ]
        labels = rows["label"] ^ np.concatenate([np.zeros(0, np.uint8), *pads])
        return PersonQuestions.of(rows["key"], labels, rows["row"])


def _pad(secret: bytes, chunk: int, part: int, size: int) -> np.ndarray:
    """Return a byte for each of the rows that one chunk has for one part: a pad for labels."""
    name = secret + chunk.to_bytes(8, "big") + part.to_bytes(2, "big")
    return np.frombuffer(hashlib.shake_256(name).digest(int(size)), np.uint8)


@dataclass(frozen=True)
class AnswerPart:
    """The task of a part of the people: every question of theirs is answered once and for all."""

    people: AskedPeople  # the questions
    coin: RandomizedResponse  # what answers are drawn with
    seed: int | None  # for study; None for system entropy
    release_id: str | None  # the entry that pays; None where nothing may be drawn
    work: str  # the folder in which answers are left for those who write files

    def __call__(self, part: int) -> int:
        """Return how many questions there are."""
        path = _left_answers(self.work, part)
        if path.exists():
            return 0
        entropy = _random.entropy_of_part(self.seed, f"people {part}")
        asked, answers, _ = self.people.answers(part, self.coin, self.release_id, entropy)
        found = np.zeros(len(asked.rows), _ANSWERED)
        found["row"], found["answer"] = asked.rows, answers[asked.which]
        with written_once(path) as draft:
            np.save(draft.file, np.sort(found, order="row"), allow_pickle=False)
        return len(asked.keys)


def _answers_of_chunk(work: str, parts: int, first: int, last: int) -> Integers:
    """Return the answers to the records from one number to before another."""
    found = [np.zeros(0, _ANSWERED)]
    for part in range(parts):
        with explained("The answers of a part of the people cannot be read"):
            rows = np.load(_left_answers(work, part), mmap_mode="r", allow_pickle=False)
        ends = np.searchsorted(rows["row"], np.array([first, last], np.uint64))
        found.append(np.array(rows[slice(*ends)]))
    together = np.sort(np.concatenate(found), order="row")
    if not np.array_equal(together["row"], np.arange(first, last, dtype=np.uint64)):
        raise DataError(CHANGED)
    return np.asarray(together["answer"])


def _left_answers(work: str, part: int) -> Path:
    return Path(work) / f"people-{part:03d}.npy"


@dataclass(frozen=True)
class AnswerChunk:
    """The task of a chunk: its records with randomized answers, in a file of their own."""

    survey: ChunkSurvey  # how to read, and what is read
    parts: int | None  # in which the answers are there already, by person; else they are drawn here
    coin: RandomizedResponse  # what they are drawn with
    seed: int | None  # for study; None for system entropy
    work: str  # the folder that the part is left in

    def __call__(self, chunk: Chunk) -> int:
        """Return how many answers were written to records of a chunk."""
        path = _part(self.work, chunk)
        if path.exists():
            return 0
        stored, written = None, 0
        if self.parts is not None:
            ends = self.survey.starts[chunk.number : chunk.number + 2]
            stored = _answers_of_chunk(self.work, self.parts, *ends)
        if len(self.survey.chunks) == 1:  # as in memory
            entropy = _random.entropy(self.seed)
        else:
            entropy = _random.entropy_of_part(self.seed, f"piece {chunk.number}")
        with written_once(path) as draft, self._writer(draft.file) as write:
            for batch, _ in self.survey.read(chunk):
                if not len(pairs := batch.whole):
                    continue
                if stored is None:
                    answers = self._drawn(pairs, entropy)
                else:
                    answers = stored[written : written + len(pairs)]
                if len(answers) < len(pairs):
                    raise DataError(CHANGED)
                write(pairs, answers, np.flatnonzero(answers != LEFT_OUT))
                written += len(answers)
        return written

    def _drawn(self, pairs: Pairs, entropy: _random.Entropy) -> Integers:
        """Return fresh answers of records that nothing links; the spend is on the ledger."""
        return self.coin.release(pairs.labels, entropy=entropy)

    @contextmanager
    def _writer(self, file: BinaryIO) -> Iterator[Callable[[Pairs, np.ndarray, np.ndarray], None]]:
        """Yield what writes those records and answers that are used."""
        if (dimension := self.survey.chunks.dimension) is None:
            yield lambda pairs, answers, used: file.writelines(answer_lines(pairs, answers, used))
            return
        vectors = VectorWriter(file, dimension, persons=self.parts is not None)

        def write(pairs: Pairs, answers: np.ndarray, used: np.ndarray) -> None:
            assert pairs.given is not None  # noqa: S101 - for the type checker
            if len(used):
                persons = pairs.persons and [pairs.persons[row] for row in used]
                vectors.write(pairs.given[used], answers[used], persons)

        yield write
        vectors.close()


def _join_file(layout: Layout, work: str, file: FileOfWork) -> dict[str, str]:
    """Return the SHA-256 of a file, by its name: made of its chunks' parts, and nothing drawn."""
    path = Path(work) / file.name
    if not path.exists():
        parts = [_part(work, chunk) for chunk in file.chunks]
        with written_once(path) as draft:
            if layout == "vectors":
                copy_tables(parts, draft.file)
            for part in () if layout == "vectors" else parts:
                with (
                    explained("A part of a privatized file cannot be read"),
                    part.open("rb") as read,
                ):
                    shutil.copyfileobj(read, draft.file)
    return {file.name: sha256_of(path)}


def _part(work: str, chunk: Chunk) -> Path:
    return Path(work) / f"piece-{chunk.number:08d}.part"


def privatize_chunks(  # noqa: PLR0913 (each is one choice of the user)
    chunks: Chunks,
    out: str | Path,
    mechanism: RandomizedResponse,
    *,
    ledger: Ledger,
    engine: Engine,
    one_file: bool = False,
    cap: int | None = None,
    on_device: bool = False,
    simulate_seed: int | None = None,
    force: bool = False,
    scratch: str | Path | None = None,
    surveyed: ChunkSurvey | None = None,
    taken: Taken | None = None,
) -> tuple[Manifest, ...]:
    """Write a privatized file and its manifest for each of many raw files; return the manifests.

    Guarantee:
        That of :func:`~sordino.privatization.answers.privatize`, for all files together, wherever
        and however often a task runs: a part is drawn once, and what a task draws is used whole or
        thrown away. A run that dies has spent its entry and shows nothing, or some files, which are
        read when all are there. A manifest states the promise of this release alone; the outputs
        hold prompt, first, second, answer, person and whose answers met only, in the order of the
        input, which counts as public. Shown by tests/soundness/test_chunked_answers.py.
    """
    # Of texts JSON Lines are written, of vectors Parquet with `difference` (in the order that
    # ignores the labels), `answer` and, where it is known, `person`. The files appear when all of
    # them are done. `out` is their folder, or the name of the file of the only one there is. Files
    # are read twice, and three times where person ids are known; once less if they were surveyed
    # before.
    # The folder for the answers, the ledger's, and `scratch` must be seen by all machines at the
    # same place. A run that was interrupted while its files appeared is ended by asking for the
    # same again, for free.
    # Source: docs/local.md, "Repeats" and "Person-level budgets".
    _refuse_others(chunks, engine)
    randomization = Randomization(
        mechanism, ledger, on_device=on_device, simulate_seed=simulate_seed, cap=cap
    )
    outputs = ChunkOutputs.of(chunks, Path(out), force=force, one_file=one_file)
    request = digest_of_request(chunks, randomization)
    if finished := outputs.finished(request, ledger):
        return finished
    with ExitStack() as stack:
        opened = _surveyed(chunks, randomization, engine, scratch, surveyed, taken)
        found, survey, people = stack.enter_context(opened)
        drawing = request
        if people is None:  # then what was drawn for the same chunks can be used again
            drawing = hashlib.sha256(b"".join((request.encode(), *found.digests))).hexdigest()
        folder = stack.enter_context(outputs.working(drawing))
        work, promise = str(folder), randomization.promise(survey)
        memo = None if people is None else people.memo.folder
        written = (work,) if memo is None else (work, memo)
        engine.fold(range(PARTS), partial(see_folder, written), add)
        for chunk in {chunk.file: chunk for chunk in chunks}.values():
            chunk.refuse_change()  # before anything is spent on it
        reservation = randomization.pay(survey)
        entry = None if reservation is None else reservation.release_id
        parts, payers = None, survey.counts.payers if survey.counts else frozenset[str]()
        if people is not None:
            parts = people.memo.parts
            if ledger.open_entries:  # which never go on, nor do lost tasks of an interrupted run
                people.memo.close(ledger.open_entries)
                payers = people.tally(engine).payers  # one may have answered since it was counted
            answer_part = AnswerPart(people, mechanism, simulate_seed, entry, work)
            engine.fold(range(parts), answer_part, add, taken=taken)
        elif reservation is not None and reservation.is_noted:
            bind(folder, drawing, reservation.release_id)
        answer = AnswerChunk(found, parts, mechanism, simulate_seed, work)
        engine.fold(chunks, answer, add, taken=taken)
        join = partial(_join_file, chunks.layout, work)
        sums: dict[str, str] = engine.fold(outputs.files, join, or_, taken=taken)
        release_id = entry or _random.new_release_id()
        manifests = {
            name: manifest_of(mechanism, promise, sums[name], release_id) for name in outputs.names
        }
        outputs.note(folder, request, manifests)
        artifact = outputs.artifact(manifests.values())
        record_release(ledger, reservation, artifact, people, payers, engine)
        outputs.publish(folder)
    return tuple(manifests.values())


def plan_chunks(
    chunks: Chunks,
    randomization: Randomization,
    *,
    engine: Engine,
    scratch: str | Path | None = None,
    surveyed: ChunkSurvey | None = None,
    taken: Taken | None = None,
) -> dict[str, Any]:
    """Return what :func:`privatize_chunks` would spend, after checking every record."""
    # Nothing is written but what is exchanged between tasks, and that is gone afterwards.
    _refuse_others(chunks, engine)
    with _surveyed(chunks, randomization, engine, scratch, surveyed, taken, dry_run=True) as known:
        return randomization.plan(known[1])


def _refuse_others(chunks: object, engine: Engine) -> None:
    """Refuse what is no raw judgments in many files, and what cannot compute sums."""
    refuse_other_engines(engine)
    if not isinstance(chunks, Chunks):
        raise UsageError(f"chunks must come from find_chunks, got {type(chunks).__name__}.")
    if chunks.privatized:
        raise UsageError(
            "These answers are randomized already; use them as they are (sordino fit, "
            "sordino align)."
        )


@contextmanager
def _surveyed(
    chunks: Chunks,
    randomization: Randomization,
    engine: Engine,
    scratch: str | Path | None,
    surveyed: ChunkSurvey | None,
    taken: Taken | None,
    *,
    dry_run: bool = False,
) -> Iterator[tuple[ChunkSurvey, Survey, AskedPeople | None]]:
    """Yield what is known before the spend; the memo is this run's until the context ends."""
    if surveyed is not None and surveyed.chunks != chunks:
        raise UsageError(
            "surveyed must be what survey_chunks found in these chunks. Nothing was done."
        )
    with ExitStack() as stack:
        if surveyed is None:
            reading = survey_chunks(chunks, engine, scratch=scratch, taken=taken)
            surveyed = stack.enter_context(reading)
        if not surveyed.linked:
            randomization.refuse_unknown_people()
            yield surveyed, Survey.of(surveyed), None
            return
        parts = 1 if surveyed.n <= _FEW else PARTS
        memo = stack.enter_context(randomization.open_memo(parts, dry_run=dry_run))
        shuffle = stack.enter_context(opened_exchange(_JUDGMENT, scratch))
        judged = _Sorted(surveyed, shuffle, parts, _random.new_secret())
        engine.fold(chunks, judged.sort, add, taken=taken)
        people = AskedPeople(memo, randomization.cap, judged.asked)
        yield surveyed, people.joined(Survey.of(surveyed), engine), people
