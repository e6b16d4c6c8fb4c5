"""Chunks of many files as blocks of judgments, a few thousand at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import Integer

from sordino import _validate
from sordino._files import explained
from sordino.errors import DataError
from sordino.preferences.chunks import Chunk, Chunks
from sordino.preferences.comparisons import Comparisons, PublicDigest
from sordino.preferences.features import Features
from sordino.preferences.files import LONGEST_LINE, every_line, records_of, untold
from sordino.preferences.pairs import Pairs, number_labels, turned_rows
from sordino.preferences.parquet import (
    DIFFERENCE,
    column_parts,
    column_values,
    numbers,
    place_of,
    vectors,
)
from sordino.preferences.records import FIELDS, Record

from .comparisons import Gathered, columns_of, kept

__all__ = ["answered_vectors", "comparisons", "judged_vectors", "judgments", "questions"]

_RECORDS: Final = 4096  # of texts in one block
_NUMBERS: Final = 1 << 21  # of vectors in one block
_OUTCOMES: Final = ("label", "answer")
_ALREADY: Final = (
    "these answers are randomized already: use them as they are. Nothing was released."
)
_RAW: Final = (
    "these are raw judgments, and randomized answers are wanted here. Randomize them first "
    "(privatize_chunks, sordino privatize)."
)


def judgments(chunks: Chunks, chunk: Chunk) -> Iterator[Pairs]:
    """Yield the raw judgments of a chunk, block by block, with all that is public of them."""
    _refuse_kind(chunks, privatized=False)
    yield from _without_dropped(chunks, chunk)


def comparisons(chunks: Chunks, chunk: Chunk) -> Iterator[Comparisons]:
    """Yield what is public of a chunk, block by block, of raw judgments or randomized answers."""
    yield from _without_dropped(chunks, chunk)


def questions(chunks: Chunks, chunk: Chunk) -> Iterator[tuple[Comparisons, Sequence[Record], bool]]:
    """Yield what :func:`comparisons` does, and the records left out for identical answers."""
    # Last comes whether prompts are what both answers began with.
    yield from _pairs(chunks, chunk)


def judged_vectors(
    chunks: Chunks, chunk: Chunk, features: Features | None
) -> Iterator[tuple[Any, Integer[np.ndarray, " n"]]]:
    """Yield (differences, labels) of a chunk, block by block, in canonical order."""
    _refuse_kind(chunks, privatized=False)
    yield from _turned_vectors(chunks, chunk, features)


def answered_vectors(
    chunks: Chunks, chunk: Chunk, features: Features | None
) -> Iterator[tuple[Any, Integer[np.ndarray, " n"]]]:
    """Yield (differences, randomized answers) of a chunk, as :func:`judged_vectors` does labels."""
    _refuse_kind(chunks, privatized=True)
    yield from _turned_vectors(chunks, chunk, features)


def _refuse_kind(chunks: Chunks, *, privatized: bool) -> None:
    """Refuse answers where judgments are wanted, and the reverse."""
    if chunks.privatized != privatized:
        raise DataError(f"{chunks.chunks[0].name}: {_RAW if privatized else _ALREADY}")


def _without_dropped(chunks: Chunks, chunk: Chunk) -> Iterator[Pairs]:
    """Yield the records of a chunk, with labels or, of privatized files, answers."""
    return (pairs for pairs, _, _ in _pairs(chunks, chunk))


def _pairs(chunks: Chunks, chunk: Chunk) -> Iterator[tuple[Pairs, Sequence[Record], bool]]:
    """Yield the records of a chunk that carry a preference, those that do not, and their form."""
    with _named(chunks, chunk):
        if chunks.layout == "texts":
            for found, left_out in _gathered(chunks, chunk):
                yield Pairs(**found.public, labels=found.outcomes), left_out, found.cut
            return
        for rows, labels, persons in _vector_parts(chunks, chunk):
            hidden = chunks.hides_records
            yield (
                Pairs.from_features(rows, labels, persons=persons, hides_records=hidden),
                (),
                False,
            )


def _turned_vectors(
    chunks: Chunks, chunk: Chunk, features: Features | None
) -> Iterator[tuple[Any, Integer[np.ndarray, " n"]]]:
    """Yield (differences, labels or answers) of a chunk, in canonical order."""
    if chunks.layout == "texts":
        for pairs in _without_dropped(chunks, chunk):
            yield pairs.differences(features), pairs.labels
        return
    with _named(chunks, chunk):
        for rows, labels, _ in _vector_parts(chunks, chunk):
            kept = rows.any(axis=1) if chunks.hides_records else slice(None)
            yield turned_rows(rows[kept], number_labels(labels, len(rows))[kept])


def _gathered(chunks: Chunks, chunk: Chunk) -> Iterator[tuple[Gathered, list[Record]]]:
    """Yield the records of a chunk, some thousands at a time; a block may be empty."""
    # Those whose answers are identical stand apart.
    numbered = _mappings(chunks, chunk)
    placed = ((row, where) for where, row in numbered)
    hidden = chunks.hides_records
    records = records_of(placed, person_field=chunks.person_field, hides_records=hidden)
    while some := list(islice(records, _RECORDS)):
        if some[0].privatized != chunks.privatized:
            raise DataError(_ALREADY if some[0].privatized else _RAW)
        digest = PublicDigest()
        left = list(kept(some, digest, drop_identical=chunks.drop_identical))
        outcomes = np.fromiter((row.outcome for row in left), dtype=np.int8, count=len(left))
        columns = columns_of(left, digest) | ({"persons": None} if hidden else {})
        found = Gathered(columns, outcomes, some[0].privatized, some[0].cut)
        yield found, [row for row in some if row.identical] if digest.dropped else []


def _mappings(chunks: Chunks, chunk: Chunk) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (place, row) for every record of a chunk of texts."""
    path = Path(chunk.path)
    if chunk.first == chunk.last:  # a file without a record
        return
    if path.suffix == ".parquet":
        people = (chunks.person_field, f"{chunks.person_field}s")
        groups = range(chunk.first, chunk.last)
        place, number = place_of(path, groups), chunk.start
        for batch in column_parts(path, groups, (*FIELDS, *people), _RECORDS):
            names = batch.schema.names
            columns = [column_values(place, batch, name) for name in names]
            for values in zip(*columns, strict=True):
                yield f"row {number}", _given(dict(zip(names, values, strict=True)))
                number += 1
        return
    lines = every_line(path) if path.suffix == ".gz" else _lines(path, chunk)
    for number, line in lines:
        if line.strip():
            yield f"line {number}", _object(line, number)


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a table without the fields that are empty in it."""
    return {name: value for name, value in values.items() if value is not None}


def _lines(path: Path, chunk: Chunk) -> Iterator[tuple[int, bytes]]:
    """Yield (number in the file, bytes) of every line of a chunk, without a byte-order mark."""
    number = chunk.start
    with explained(f"{chunk.name} cannot be read"), path.open("rb") as file:
        file.seek(chunk.first)
        while file.tell() < chunk.last:
            number += 1
            line = file.readline(LONGEST_LINE)
            if not line:  # the file was cut short, which is said at the end
                break
            yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line


def _object(line: bytes, number: int) -> Mapping[str, Any]:
    """Return what a line says."""
    try:
        value = json.loads(line.decode())
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    raise DataError(
        f"line {number}: not a JSON object on a line of its own, of less than 16 MiB. Is the file "
        "cut short? Nothing was released."
    )


def _vector_parts(
    chunks: Chunks, chunk: Chunk
) -> Iterator[tuple[np.ndarray, np.ndarray, list[Any] | None]]:
    """Yield (differences as they stand, labels, persons) of a chunk."""
    assert chunks.dimension is not None  # noqa: S101 - for the type checker
    if chunk.first == chunk.last:  # a file without a record
        return
    path, names = Path(chunk.path), (DIFFERENCE, *_OUTCOMES, chunks.person_field)
    height, groups = max(1, _NUMBERS // chunks.dimension), range(chunk.first, chunk.last)
    place = place_of(path, groups)
    for batch in column_parts(path, groups, names, height):
        outcome = _outcome_column(batch.schema.names, privatized=chunks.privatized)
        rows = vectors(place, batch.column(DIFFERENCE), chunks.dimension)
        labels = numbers(place, batch, outcome)
        if chunks.privatized and not np.isin(labels, (0, 1)).all():
            raise DataError("column 'answer' must hold 0 or 1.")
        known = chunks.person_field in batch.schema.names and not chunks.hides_records
        persons = column_values(place, batch, chunks.person_field) if known else None
        yield _validate.finite_array(DIFFERENCE, rows, ndim=2), labels, persons


def _outcome_column(names: Sequence[str], *, privatized: bool) -> str:
    """Return what the column of labels, or of answers, is called."""
    label, answer = _OUTCOMES
    if label in names and answer in names:
        raise DataError(
            f"columns {label!r} and {answer!r} exclude each other: one is raw, the other "
            "randomized. Nothing was released."
        )
    wanted, other = (answer, label) if privatized else (label, answer)
    if other in names:
        raise DataError(_RAW if privatized else _ALREADY)
    if wanted not in names:
        raise DataError(f"column {wanted!r} is missing. Nothing was released.")
    return wanted


@contextmanager
def _named(chunks: Chunks, chunk: Chunk) -> Iterator[None]:
    """Put the name of the file in front of what refuses a chunk; refuse a file that changed."""
    # Where all of a record is private nothing else is said than that one cannot be used.
    chunk.refuse_change()
    try:
        with untold(hides_records=chunks.hides_records):
            yield
    except DataError as error:
        problem = str(error)
    else:
        chunk.refuse_change()
        return
    named = "" if chunks.hides_records else f"{chunk.name}: "
    raise DataError(f"{named}{problem.removeprefix(named)}")
