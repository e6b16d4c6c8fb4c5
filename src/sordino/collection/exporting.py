"""Randomized answers out of the database, as a file with its manifest beside it.

Lines stand in the order of the questions and then of random person ids, so that nothing tells who
answered first. What is written is private already: whoever has it learns from it for nothing.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, func, select

from sordino._files import atomic_draft, clear, refuse_output, sha256_of, to_json
from sordino.collection.database import ANSWERS, reading
from sordino.collection.study import Study
from sordino.errors import DataError, UsageError
from sordino.preferences.files import line_of
from sordino.preferences.pairs import Manifest, manifest_path
from sordino.privacy.guarantee import Unit
from sordino.privatization.answers import manifest_of

from .study import Question

_AT_ONCE: Final = 1 << 16  # answers in memory; those to one question always are together
_QUESTIONS: Final = 500  # in one query
_ENDINGS: Final = (".jsonl", ".jsonl.gz")
_NAME: Final = Path("answers.jsonl")
_NO_TIME: Final = (1980, 1, 1, 0, 0, 0)


def export_answers(
    engine: Engine, study: Study, out: Path, *, unit: Unit, force: bool = False
) -> Manifest:
    """Write the answers of a study with their manifest beside them, and return the manifest.

    Guarantee:
        That of :meth:`Study.guarantee`; nothing is drawn and nothing is spent here. Shown by
        tests/unit/collection/test_exporting.py.
    """
    if not out.name.endswith(_ENDINGS):
        raise UsageError(
            "Answers are JSON Lines: give a name that ends in .jsonl or .jsonl.gz. Nothing was "
            "done."
        )
    note_path = manifest_path(out)
    for path in (out, note_path):
        refuse_output(path, force=force)
    promise = study.guarantee(unit)
    with (
        atomic_draft(out, force=force) as draft,
        atomic_draft(note_path, force=force) as note,
        closing(_lines(engine, study)) as lines,
    ):
        draft.file.writelines(lines)
        draft.finish()
        manifest = manifest_of(study.coin, promise, sha256_of(draft.path), study.id)
        note.file.write(to_json(manifest.to_dict()).encode())
        note.finish()
        clear(out, force=force)  # no moment with a file and another's manifest
    return manifest


def export_zip(engine: Engine, study: Study, *, unit: Unit) -> bytes:
    """Return the same two files, promised as they are, in a zip archive that holds no time."""
    promise = study.guarantee(unit)
    whole, digest = io.BytesIO(), hashlib.sha256()
    with zipfile.ZipFile(whole, "w") as archive, closing(_lines(engine, study)) as lines:
        with archive.open(_entry(_NAME.name), "w") as file:
            for line in lines:
                digest.update(line)
                file.write(line)
        manifest = manifest_of(study.coin, promise, digest.hexdigest(), study.id)
        note = to_json(manifest.to_dict())
        archive.writestr(_entry(manifest_path(_NAME).name), note)
    return whole.getvalue()


def _entry(name: str) -> zipfile.ZipInfo:
    """Return a file of an archive, without the time at which it was made."""
    entry = zipfile.ZipInfo(name, _NO_TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


def _lines(engine: Engine, study: Study) -> Generator[bytes]:
    """Yield every answer as a line, of one state of the database."""
    one = select(ANSWERS.c.question, func.count()).group_by(ANSWERS.c.question)
    given = select(func.count().label("given")).select_from(ANSWERS).group_by(ANSWERS.c.person)
    with reading(engine) as connection:
        counts = {question: int(count) for question, count in connection.execute(one)}
        if not counts:
            raise DataError("There are no answers yet. Nothing was written.")
        most = connection.execute(select(func.max(given.subquery().c.given))).scalar_one()
        if counts.keys() - {asked.id for asked in study.questions} or most > study.most_labels:
            raise DataError(
                "The database holds answers that this study does not take: to questions that it "
                "does not ask, or more of one person than its cap. Nothing was written."
            )
        for questions in _together(study.questions, counts):
            yield from _answers(connection, questions)


def _together(questions: Sequence[Question], counts: dict[str, int]) -> Iterator[list[Question]]:
    """Yield questions in their order, as many at once as have few enough answers together."""
    some: list[Question] = []
    waiting = 0
    for question in questions:
        count = counts.get(question.id, 0)
        if some and (waiting + count > _AT_ONCE or len(some) == _QUESTIONS):
            yield some
            some, waiting = [], 0
        if count:
            some.append(question)
            waiting += count
    if some:
        yield some


def _answers(connection: Connection, questions: Sequence[Question]) -> Iterator[bytes]:
    """Yield the answers to some questions, in the order of these and then of person ids."""
    places = {question.id: place for place, question in enumerate(questions)}
    chosen = select(ANSWERS.c.question, ANSWERS.c.person, ANSWERS.c.answer).where(
        ANSWERS.c.question.in_(places)
    )
    rows = connection.execute(chosen)
    for place, person, answer in sorted((places[row[0]], row[1], row[2]) for row in rows):
        asked = questions[place]
        yield line_of(asked.prompt, asked.first, asked.second, answer, person)
