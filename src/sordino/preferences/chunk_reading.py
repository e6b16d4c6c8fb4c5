"""Chunks of many files as batches of judgments, a few thousand at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from jaxtyping import Int64, Integer

from sordino import _validate
from sordino.errors import DataError

from .chunks import Chunk, Chunks
from .comparisons import PublicDigest, columns_of, kept, outcomes_of, taken
from .containers import Rows, contained
from .features import Features, Matrix
from .files import records_of, untold
from .pairs import Pairs, number_labels, turned_rows
from .parquet import DIFFERENCE, alike_rows, column_parts, column_values, numbers, place_of, vectors
from .records import FIELDS, PERSON, Record

_RECORDS: Final = 4096  # of texts in one batch
_ALIKE: Final = 1 << 20  # rows in one batch where they can only be of few kinds
_KNOWN: Final = 1 << 17  # kinds of rows that are remembered
_NUMBERS: Final = 1 << 21  # of vectors in one batch
_LABEL, _ANSWER = "label", "answer"
_ALREADY: Final = (
    "these answers are randomized already: use them as they are. Nothing was released."
)
_RAW: Final = (
    "these are raw judgments, and randomized answers are wanted here. Randomize them first "
    "(privatize_chunks, sordino privatize)."
)


class Batch(NamedTuple):
    """Some records of a chunk: those that carry a preference, and the others."""

    pairs: Pairs  # of labels or answers; each kind once where rows are alike
    dropped: Sequence[Record]
    cut: bool  # whether prompts are what both answers began with
    kinds: Int64[np.ndarray, " n"] | None = None  # which of the pairs each record is; None: itself

    @property
    def whole(self) -> Pairs:
        """Return the pairs of all records, one after the other."""
        if self.kinds is None:
            return self.pairs
        columns = {name: taken(getattr(self.pairs, name), self.kinds) for name in _COLUMNS}
        return replace(self.pairs, **columns)


_COLUMNS: Final = ("keys", "prompts", "first", "second", "names", "persons", "labels")


def judgments(chunks: Chunks, chunk: Chunk) -> Iterator[Pairs]:
    """Yield the raw judgments of a chunk, in batches, with all that is public of them."""
    refuse_kind(chunks, privatized=False)
    return comparisons(chunks, chunk)


def comparisons(chunks: Chunks, chunk: Chunk) -> Iterator[Pairs]:
    """Yield those records of a chunk that carry a preference, with labels or answers."""
    return (batch.whole for batch in questions(chunks, chunk))


def refuse_kind(chunks: Chunks, *, privatized: bool) -> None:
    """Refuse answers where raw judgments are wanted, and the reverse."""
    if chunks.privatized != privatized:
        raise DataError(f"{chunks[0].name}: {_RAW if privatized else _ALREADY}")


def judged_vectors(
    chunks: Chunks,
    chunk: Chunk,
    features: Features | None,
    *,
    privatized: bool = False,
    seen: hashlib._Hash | None = None,
) -> Iterator[tuple[Matrix, Integer[np.ndarray, " n"]]]:
    """Yield (differences, labels or answers) of a chunk, in batches, in canonical order."""
    # Of texts, `seen` is given what is public of them, as a survey keeps it.
    refuse_kind(chunks, privatized=privatized)
    if chunks.dimension is None:
        for pairs in comparisons(chunks, chunk):
            if seen is not None:
                seen.update(bytes.fromhex(pairs.public_digest))
            yield pairs.differences(features), pairs.labels
        return
    with _named(chunks, chunk):
        for rows, labels, _ in _vectors(chunks, chunk, chunks.dimension):
            used = rows.any(axis=1) if chunks.hides_records else slice(None)
            yield turned_rows(rows[used], number_labels(labels, len(rows), chunks.parts)[used])


def questions(chunks: Chunks, chunk: Chunk) -> Iterator[Batch]:
    """Yield all records of a chunk, in batches."""
    hidden = chunks.hides_records
    with _named(chunks, chunk):
        if chunks.dimension is not None:
            for rows, labels, persons in _vectors(chunks, chunk, chunks.dimension):
                terms: dict[str, Any] = {"persons": persons, "hides_records": hidden}
                terms["parts"] = chunks.parts
                yield Batch(Pairs.from_features(rows, labels, **terms), (), cut=False)
            return
        for some, kinds in _records(chunks, chunk):
            if some[0].privatized != chunks.privatized:
                raise DataError(_ALREADY if some[0].privatized else _RAW)
            if some[0].alone != chunks.alone:
                raise DataError(
                    "judgments of one answer and of two in one input. Nothing was released."
                )
            if not chunks.privatized and some[0].levels not in (None, chunks.levels):
                raise DataError(
                    "which levels ratings have is read in pieces, so it must be declared: "
                    "levels='1..5' (--levels 1..5). Nothing was released."
                )
            digest, dropped = PublicDigest(), list[Record]()
            left = list(kept(some, digest, chunks.rules))
            if digest.dropped:
                dropped = [row for row in some if chunks.rules.drops(row)]
            if kinds is not None:
                digest = PublicDigest()
                digest.add_alike(some, kinds)
                if dropped:  # and what is left is numbered anew
                    drops = np.array([chunks.rules.drops(row) for row in some])
                    out = drops[kinds]
                    dropped = [some[kind] for kind in kinds[out].tolist()]
                    kinds = (np.cumsum(~drops) - 1)[kinds[~out]]  # noqa: PLW2901
                digest.dropped = len(dropped)
            columns = columns_of(left, digest) | ({"persons": None} if hidden else {})
            pairs = Pairs(**columns, labels=outcomes_of(left))
            yield Batch(pairs, dropped, some[0].cut, kinds)


@lru_cache(maxsize=2)
def _parsed(*_table: object) -> dict[object, Record]:
    """Return the records that rows of one kind of table were read as, to be added to."""
    return {}


def _records(
    chunks: Chunks, chunk: Chunk
) -> Iterator[tuple[list[Record], Int64[np.ndarray, " n"] | None]]:
    """Yield some records of a chunk; of a table of names and winners each kind of row once."""
    terms: dict[str, Any] = {
        "person_field": chunks.person_field,
        "hides_records": chunks.hides_records,
        "levels": chunks.levels,
    }
    path, groups = Path(chunk.path), range(chunk.first, chunk.last)
    if path.suffix.lower() == ".parquet" and chunks.schema.unasked and chunk.rows:
        place, number = place_of(path, groups), chunk.start
        for batch in column_parts(path, groups, chunks.schema.columns, _ALIKE, whole=True):
            found = alike_rows(place, batch)
            first, kinds = found or (np.arange(len(batch)), None)
            records = list[Record]()
            known = _parsed(chunks.schema, *terms.values(), *batch.schema.names)
            for where, row in _dicts(place, batch.take(first), first + number):
                values = tuple(row.items())
                if found is None or values not in known:
                    one = iter([(where, row)])
                    (record,) = records_of(chunks.schema.rows(one, whole=False), **terms)
                    if found is not None and len(known) < _KNOWN:
                        known[values] = record
                else:
                    record = known[values]
                records.append(record)
            number += len(batch)
            if records:
                yield records, kinds
        return
    records_left = records_of(_rows(chunks, chunk), **terms)
    while some := list(islice(records_left, _RECORDS)):
        yield some, None


def _rows(chunks: Chunks, chunk: Chunk) -> Rows:
    path = Path(chunk.path)
    if chunk.first == chunk.last:  # a file without a record
        return iter(())
    if path.suffix.lower() == ".parquet":
        rows: Rows = _table_rows(chunks, chunk)
    else:
        part = None if chunk.rows is None else (chunk.first, chunk.last, chunk.start)
        rows = contained(path, person_field=chunks.person_field, part=part).rows
    return chunks.schema.rows(rows, whole=False)


def _table_rows(chunks: Chunks, chunk: Chunk) -> Rows:
    """Yield (place, row) for every row of a chunk, without the fields that are empty in it."""
    path, groups = Path(chunk.path), range(chunk.first, chunk.last)
    people = (chunks.person_field or PERSON, f"{chunks.person_field or PERSON}s")
    place, number = place_of(path, groups), chunk.start
    wanted = chunks.schema.columns if chunks.schema.fields else (*FIELDS, *people)
    for batch in column_parts(path, groups, wanted, _RECORDS):
        yield from _dicts(place, batch, range(number, number + len(batch)))
        number += len(batch)


def _dicts(place: str, batch: Any, numbers: Iterable[int]) -> Rows:
    names = batch.schema.names
    columns = [column_values(place, batch, name) for name in names]
    for number, *values in zip(numbers, *columns, strict=True):
        row = zip(names, values, strict=True)
        yield f"row {number}", {name: value for name, value in row if value is not None}


def _vectors(
    chunks: Chunks, chunk: Chunk, dimension: int
) -> Iterator[tuple[np.ndarray, np.ndarray, list[str] | None]]:
    """Yield (differences as they stand, labels, persons) of a chunk."""
    if chunk.first == chunk.last:  # a file without a record
        return
    path, names = Path(chunk.path), (DIFFERENCE, _LABEL, _ANSWER, chunks.person_field or "")
    height, groups = max(1, _NUMBERS // dimension), range(chunk.first, chunk.last)
    place = place_of(path, groups)
    for batch in column_parts(path, groups, names, height):
        found = batch.schema.names
        if _LABEL in found and _ANSWER in found:
            raise DataError(
                f"columns {_LABEL!r} and {_ANSWER!r} exclude each other: one is raw, the other "
                "randomized. Nothing was released."
            )
        outcome, other = (_ANSWER, _LABEL) if chunks.privatized else (_LABEL, _ANSWER)
        if other in found:
            raise DataError(_RAW if chunks.privatized else _ALREADY)
        if outcome not in found:
            raise DataError(f"column {outcome!r} is missing. Nothing was released.")
        rows = vectors(place, batch.column(DIFFERENCE), dimension)
        labels = numbers(place, batch, outcome)
        if chunks.privatized and not np.isin(labels, (0, 1)).all():
            raise DataError("column 'answer' must hold 0 or 1.")
        who = None if chunks.hides_records else chunks.person_field
        persons = column_values(place, batch, who) if who is not None and who in found else None
        yield _validate.finite_array(DIFFERENCE, rows, ndim=2), labels, persons


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
