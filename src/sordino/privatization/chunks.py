"""Raw judgments in many files in, a privatized file for each out; tasks of an engine draw."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from operator import add, or_
from pathlib import Path
from typing import Any

from sordino import _random
from sordino.engines.engine import Engine, Taken, refuse_other_engines
from sordino.engines.exchange import PARTS
from sordino.errors import UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.chunk_survey import ChunkSurvey, survey_chunks
from sordino.preferences.chunks import Chunks
from sordino.preferences.memo import Counts
from sordino.preferences.pairs import Manifest, digest_of_files
from sordino.privacy.ledger import Ledger
from sordino.privatization.chunk_outputs import ChunkOutputs, see_folder
from sordino.privatization.randomization import Randomization, Survey
from sordino.privatization.stream import manifest_of

from .chunk_tasks import (
    AnswerChunk,
    AnswerPart,
    ChunkOfWork,
    ChunkPeople,
    JoinFile,
    Tally,
    agreeing_parts,
)
from .randomization import nothing_stored, record_release
from .stream import bind, digest_of_request

__all__ = ["plan_chunks", "privatize_chunks"]


@dataclass
class ChunkTotals(Survey):
    """What the public fields of many files say before anything is spent."""

    doubled: bool = False  # whether a question occurs twice and nothing says who answered
    tally: Tally | None = None  # what answering takes, if it is known who answered
    coins: Callable[[str], int | None] | None = None  # what an entry would have paid for, then

    @property
    def linked(self) -> bool:
        """Return whether persons are known."""
        return self.tally is not None

    def repeats(self) -> bool:
        """Return whether a question occurs twice with nothing to link who answered."""
        return self.doubled

    def coins_on(self, release_id: str) -> int | None:
        """Return the most coins of one person on an entry, those about to be tossed included."""
        return None if self.coins is None else self.coins(release_id)

    def counts(self) -> Counts | None:
        """Return how many questions of how many people are about to be answered, if linked."""
        return None if self.tally is None else self.tally.counts


@dataclass(frozen=True)
class _Surveyed:
    """Everything that is known before the spend is written."""

    found: ChunkSurvey  # what is public of the files
    totals: ChunkTotals  # the same in numbers
    people: ChunkPeople | None  # the judgments by person, if it is known who answered

    def request(self, request: str) -> str:
        """Return what is asked, down to the public fields of every chunk, if nobody is named."""
        # What was drawn for chunks can then be used again. Under a unit that hides persons these
        # are named, and answers are stored by person.
        if self.people is not None:
            return request
        parts = (request.encode(), *self.found.digests)
        return hashlib.sha256(b"".join(parts)).hexdigest()

    def tally_without(self, release_ids: tuple[str, ...], engine: Engine) -> Tally | None:
        """Return what answering takes where some entries of an interrupted run never go on."""
        # A lost task of that run may have answered on them since they were counted.
        if self.people is None or not release_ids:
            return self.totals.tally
        self.people.memo.close(release_ids)
        return self.people.tally(engine)

    def drawn(self, release_ids: Iterable[str], engine: Engine) -> Callable[[str], Iterable[bytes]]:
        """Return what says of an entry what is stored of it."""
        if self.people is None:
            return nothing_stored
        digests = partial(self.people.memo.digests, tuple(release_ids))
        found: dict[tuple[str, int], bytes] = engine.fold(range(PARTS), digests, or_)
        return lambda name: [found[key] for key in sorted(found) if key[0] == name]

    def written_to(self, work: str) -> tuple[str, ...]:
        """Return the folders that tasks write answers to."""
        memo = None if self.people is None else self.people.memo.folder
        return (work,) if memo is None else (work, memo)


@dataclass(frozen=True)
class _Place:
    """Where tasks run, and what they exchange files in."""

    engine: Engine
    scratch: str | Path | None
    taken: Taken | None


def privatize_chunks(  # noqa: PLR0913 (each is one choice of the user)
    chunks: Chunks,
    out: str | Path,
    mechanism: RandomizedResponse,
    *,
    ledger: Ledger,
    engine: Engine,
    cap: int | None = None,
    simulate_seed: int | None = None,
    force: bool = False,
    scratch: str | Path | None = None,
    surveyed: ChunkSurvey | None = None,
    taken: Taken | None = None,
) -> tuple[Manifest, ...]:
    """Write a privatized file and its manifest for each of many raw files; return the manifests.

    Guarantee:
        That of :func:`~sordino.privatization.stream.privatize_file`, for all files together,
        wherever and however often a task runs: a part is drawn once, and what a task draws is
        used whole or thrown away. Trust is ``"central"``. A run that dies has spent its entry and
        shows nothing, or some files, which are read when all are there. Shown by
        tests/soundness/test_chunked_answers.py.
    """
    # Of texts JSON Lines are written, of vectors Parquet with `difference` (in the order that
    # ignores the labels), `answer` and, where it is known, `person`. The files appear when all of
    # them are done. Files are read twice, and three times where person ids are known; once less if
    # they were surveyed before.
    # Unlike one file's, the answers that people gave are stored in the folder `NAME.memo` beside
    # the ledger, by person; a ledger has either that or `NAME.memo.db`. The folder for the answers,
    # the ledger's, and `scratch` must be seen by all machines at the same place. A run that was
    # interrupted while its files appeared is ended by asking for the same again, for free.
    # Source: docs/local.md, "Repeats" and "Person-level budgets".
    refuse_other_engines(engine)
    _refuse_answers(chunks)
    randomization = Randomization.of(
        mechanism, ledger, on_device=False, simulate_seed=simulate_seed, cap=cap
    )
    outputs = ChunkOutputs.of(chunks, Path(out), force=force)
    request = digest_of_request(chunks, randomization)
    if finished := outputs.finished(request, ledger):
        return finished
    place = _Place(engine, scratch, taken)
    with (
        _surveyed(chunks, randomization, place, surveyed, dry_run=False) as known,
        outputs.working(drawing := known.request(request)) as folder,
    ):
        work = str(folder)
        promise = randomization.promise(known.totals)
        engine.fold(range(PARTS), partial(see_folder, known.written_to(work)), add)
        _refuse_changes(chunks)
        reservation = randomization.pay(known.totals, known.found.public_digest)
        entry = None if reservation is None else reservation.release_id
        tally = known.tally_without(ledger.open_entries, engine)
        if reservation is not None and reservation.is_noted and known.people is None:
            bind(folder, drawing, reservation.release_id)
        _answer_people(known, randomization, place, work, seed=simulate_seed, release_id=entry)
        sums = _written(known, randomization, place, work, outputs, seed=simulate_seed)
        release_id = entry or _random.new_release_id()
        manifests = {
            file.name: manifest_of(mechanism, promise, sums[file.name], release_id)
            for file in outputs.files
        }
        outputs.note(folder, request, manifests)
        payers = frozenset[str]() if tally is None else tally.payers
        drawn = known.drawn(payers | ({entry} if entry else set()), engine)
        record_release(ledger, reservation, payers, digest_of_files(manifests.values()), drawn)
        outputs.publish(folder)
    return tuple(manifests.values())


def plan_chunks(
    chunks: Chunks,
    randomization: Randomization,
    *,
    data: str,
    engine: Engine,
    scratch: str | Path | None = None,
    surveyed: ChunkSurvey | None = None,
    taken: Taken | None = None,
) -> dict[str, Any]:
    """Return what :func:`privatize_chunks` would spend, after checking every record."""
    # Nothing is written but what is exchanged between tasks, and that is gone afterwards.
    refuse_other_engines(engine)
    _refuse_answers(chunks)
    place = _Place(engine, scratch, taken)
    with _surveyed(chunks, randomization, place, surveyed, dry_run=True) as known:
        return randomization.plan(known.totals, known.found.public_digest, data=data)


def _refuse_answers(chunks: Chunks) -> None:
    """Refuse what is no raw judgments in many files."""
    if not isinstance(chunks, Chunks):
        raise UsageError(f"chunks must come from find_chunks, got {type(chunks).__name__}.")
    if chunks.privatized:
        raise UsageError(
            "These answers are randomized already; use them as they are (sordino fit, "
            "sordino align)."
        )


def _refuse_changes(chunks: Chunks) -> None:
    """Refuse files that are no longer those that were found, before anything is spent on them."""
    for chunk in {chunk.file: chunk for chunk in chunks.chunks}.values():
        chunk.refuse_change()


@contextmanager
def _surveyed(
    chunks: Chunks,
    randomization: Randomization,
    place: _Place,
    given: ChunkSurvey | None,
    *,
    dry_run: bool,
) -> Iterator[_Surveyed]:
    """Yield what is known before the spend; the memo is this run's until the context ends."""
    if given is not None and given.chunks != chunks:
        raise UsageError(
            "surveyed must be what survey_chunks found in these chunks. Nothing was done."
        )
    where: Any = {"scratch": place.scratch, "taken": place.taken}
    survey = survey_chunks(chunks, place.engine, **where) if given is None else nullcontext(given)
    with survey as found:
        totals = ChunkTotals(
            None, cap=randomization.cap, n=found.n, dropped=found.dropped, doubled=found.repeats
        )
        if not found.linked:
            randomization.refuse_unknown_people()
            yield _Surveyed(found, totals, None)
            return
        settings = randomization.memo_settings
        with (
            agreeing_parts(randomization.ledger, settings=settings, dry_run=dry_run) as memo,
            ChunkPeople.gathered(
                found, memo, place.engine, cap=randomization.cap, **where
            ) as people,
        ):
            totals = replace(
                totals,
                tally=people.tally(place.engine),
                coins=partial(people.coins_on, place.engine),
            )
            yield _Surveyed(found, totals, people)


def _answer_people(
    known: _Surveyed,
    randomization: Randomization,
    place: _Place,
    work: str,
    *,
    seed: int | None,
    release_id: str | None,
) -> None:
    """Have every question of every person answered, if it is known who they are."""
    if known.people is not None:
        answer = AnswerPart(known.people, randomization.mechanism, seed, release_id, work)
        place.engine.fold(range(PARTS), answer, add, taken=place.taken)


def _written(
    known: _Surveyed,
    randomization: Randomization,
    place: _Place,
    work: str,
    outputs: ChunkOutputs,
    *,
    seed: int | None,
) -> dict[str, str]:
    """Return the SHA-256 of every file, by its name; the spend is on the ledger."""
    found, engine, taken = known.found, place.engine, place.taken
    chunks = found.chunks
    work_of_chunks = [
        ChunkOfWork(*given)
        for given in zip(
            chunks.chunks, found.starts[:-1], found.starts[1:], found.digests, strict=True
        )
    ]
    answer = AnswerChunk(chunks, found.linked, randomization.mechanism, seed, work)
    engine.fold(work_of_chunks, answer, add, taken=taken)
    sums: dict[str, str] = engine.fold(
        outputs.files, JoinFile(chunks.layout, work), or_, taken=taken
    )
    return sums
