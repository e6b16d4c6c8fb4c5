"""Raw judgments in many files in, a privatized file for each out; tasks of an engine draw."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
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
from sordino.preferences.pairs import Manifest, digest_of_files
from sordino.privacy.ledger import Ledger

from .answers import manifest_of
from .chunk_tasks import (
    AnswerChunk,
    AnswerPart,
    ChunkOfWork,
    ChunkPeople,
    JoinFile,
    Tally,
    agreeing_parts,
)
from .publication import ChunkOutputs, bind, digest_of_request, see_folder
from .randomization import Randomization, Survey, nothing_stored, record_release


@dataclass(frozen=True)
class _Known:
    """Everything that is known before the spend is written."""

    found: ChunkSurvey  # what is public of the files
    survey: Survey  # the same in numbers
    people: ChunkPeople | None = None  # the judgments by person, if it is known who answered
    tally: Tally | None = None  # what answering them takes

    def drawing(self, request: str) -> str:
        """Return what is asked, down to the public fields of every chunk, if nobody is named."""
        # What was drawn for chunks can then be used again. Under a unit that hides persons these
        # are named, and answers are stored by person.
        if self.people is not None:
            return request
        return hashlib.sha256(b"".join((request.encode(), *self.found.digests))).hexdigest()

    def payers(self, open_entries: tuple[str, ...], engine: Engine) -> frozenset[str]:
        """Return the entries that paid for stored answers, where some never go on."""
        # A lost task of an interrupted run may have answered on them since they were counted.
        if self.people is None or self.tally is None:
            return frozenset()
        if not open_entries:
            return self.tally.payers
        self.people.memo.close(open_entries)
        return self.people.tally(engine).payers


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
        That of :func:`~sordino.privatization.answers.privatize_file`, for all files together,
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
    _refuse_others(chunks, engine)
    randomization = Randomization.of(
        mechanism, ledger, on_device=False, simulate_seed=simulate_seed, cap=cap
    )
    outputs = ChunkOutputs.of(chunks, Path(out), force=force)
    request = digest_of_request(chunks, randomization)
    if finished := outputs.finished(request, ledger):
        return finished
    with (
        _surveyed(chunks, randomization, engine, scratch, surveyed, taken) as known,
        outputs.working(drawing := known.drawing(request)) as folder,
    ):
        work, found, people = str(folder), known.found, known.people
        promise = randomization.promise(known.survey)
        memo = None if people is None else people.memo.folder
        written = (work,) if memo is None else (work, memo)
        engine.fold(range(PARTS), partial(see_folder, written), add)
        for chunk in {chunk.file: chunk for chunk in chunks}.values():
            chunk.refuse_change()  # before anything is spent on it
        reservation = randomization.pay(known.survey)
        entry = None if reservation is None else reservation.release_id
        payers = known.payers(ledger.open_entries, engine)
        if people is not None:
            answer_part = AnswerPart(people, mechanism, simulate_seed, entry, work)
            engine.fold(range(PARTS), answer_part, add, taken=taken)
        elif reservation is not None and reservation.is_noted:
            bind(folder, drawing, reservation.release_id)
        answer = AnswerChunk(chunks, people is not None, mechanism, simulate_seed, work)
        given = zip(chunks, found.starts[:-1], found.starts[1:], found.digests, strict=True)
        engine.fold([ChunkOfWork(*one) for one in given], answer, add, taken=taken)
        sums: dict[str, str] = engine.fold(
            outputs.files, JoinFile(chunks.layout, work), or_, taken=taken
        )
        release_id = entry or _random.new_release_id()
        manifests = {
            name: manifest_of(mechanism, promise, sums[name], release_id) for name in outputs.names
        }
        outputs.note(folder, request, manifests)
        drawn: Callable[[str], Iterable[bytes]] = nothing_stored
        if people is not None:
            digests = partial(people.memo.digests, tuple(payers | ({entry} if entry else set())))
            stored: dict[tuple[str, int], bytes] = engine.fold(range(PARTS), digests, or_)
            drawn = lambda name: [stored[key] for key in sorted(stored) if key[0] == name]  # noqa: E731
        record_release(ledger, reservation, payers, digest_of_files(manifests.values()), drawn)
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
        return randomization.plan(known.survey)


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
) -> Iterator[_Known]:
    """Yield what is known before the spend; the memo is this run's until the context ends."""
    if surveyed is not None and surveyed.chunks != chunks:
        raise UsageError(
            "surveyed must be what survey_chunks found in these chunks. Nothing was done."
        )
    survey = (
        survey_chunks(chunks, engine, scratch=scratch, taken=taken)
        if surveyed is None
        else nullcontext(surveyed)
    )
    with survey as found:

        def told(people: ChunkPeople | None, tally: Tally | None) -> Survey:
            return Survey(
                n=found.n,
                dropped=found.dropped,
                public_digest=found.public_digest,
                questions=found.questions,
                several_people=False,  # nobody says here that this is one person's device
                repeats=found.repeats,
                counts=None if tally is None else tally.counts,
                people=None if tally is None else tally.people,
                people_on=lambda entry: None if people is None else people.on(engine, entry),
            )

        if not found.linked:
            randomization.refuse_unknown_people()
            yield _Known(found, told(None, None))
            return
        with (
            agreeing_parts(
                randomization.ledger, settings=randomization.memo_settings, dry_run=dry_run
            ) as memo,
            ChunkPeople.gathered(
                found, memo, engine, cap=randomization.cap, scratch=scratch, taken=taken
            ) as people,
        ):
            tally = people.tally(engine)
            yield _Known(found, told(people, tally), people, tally)
