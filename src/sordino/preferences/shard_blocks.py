"""Pieces of many files as blocks of judgments, a few thousand at a time."""

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
from sordino.preferences.comparisons import Comparisons, PublicDigest
from sordino.preferences.features import Features
from sordino.preferences.files import LONGEST_LINE, read_mappings, records_of
from sordino.preferences.gathering import Gathered, columns_of, kept
from sordino.preferences.pairs import Pairs, number_labels, turned_rows
from sordino.preferences.parquet import DIFFERENCE, column_parts, vectors
from sordino.preferences.records import FIELDS
from sordino.preferences.shards import Piece, Shards

__all__ = ["answered_vectors", "comparisons", "judged_vectors", "judgments"]

_RECORDS: Final = 4096  # of texts in one block
_NUMBERS: Final = 1 << 21  # of vectors in one block
_OUTCOMES: Final = ("label", "answer")
_ALREADY: Final = (
    "these answers are randomized already: use them as they are. Nothing was released."
)
_RAW: Final = (
    "these are raw judgments, and randomized answers are wanted here. Randomize them first "
    "(privatize_shards, sordino privatize)."
)


def judgments(shards: Shards, piece: Piece) -> Iterator[Pairs]:
    """Yield the raw judgments of a piece, block by block, with all that is public of them.

    Raises:
        DataError: A record cannot be used, or is randomized already; file and place are named.
        FileSystemError: The file cannot be read.
    """
    _refuse_kind(shards, privatized=False)
    yield from _pairs(shards, piece)


def comparisons(shards: Shards, piece: Piece) -> Iterator[Comparisons]:
    """Yield what is public of a piece, block by block, of raw judgments or randomized answers.

    Raises:
        DataError: As :func:`judgments`.
        FileSystemError: As :func:`judgments`.
    """
    yield from _pairs(shards, piece)


def judged_vectors(
    shards: Shards, piece: Piece, features: Features | None
) -> Iterator[tuple[Any, Integer[np.ndarray, " n"]]]:
    """Yield (differences, labels) of a piece, block by block, in canonical order.

    Args:
        shards: How to read.
        piece: What to read.
        features: Turns texts into vectors; None where the files hold vectors.

    Raises:
        DataError: As :func:`judgments`.
        FileSystemError: As :func:`judgments`.
    """
    _refuse_kind(shards, privatized=False)
    yield from _turned_vectors(shards, piece, features)


def answered_vectors(
    shards: Shards, piece: Piece, features: Features | None
) -> Iterator[tuple[Any, Integer[np.ndarray, " n"]]]:
    """Yield (differences, randomized answers) of a piece, as :func:`judged_vectors` does labels.

    Raises:
        DataError: A record cannot be used, or is a raw judgment; file and place are named.
        FileSystemError: The file cannot be read.
    """
    _refuse_kind(shards, privatized=True)
    yield from _turned_vectors(shards, piece, features)


def _refuse_kind(shards: Shards, *, privatized: bool) -> None:
    """Refuse answers where judgments are wanted, and the reverse.

    Raises:
        DataError: The files hold the other kind.
    """
    if shards.privatized != privatized:
        raise DataError(f"{shards.pieces[0].name}: {_RAW if privatized else _ALREADY}")


def _pairs(shards: Shards, piece: Piece) -> Iterator[Pairs]:
    """Yield the records of a piece, with labels or, of privatized files, answers."""
    with _named(piece):
        if shards.layout == "texts":
            for found in _gathered(shards, piece):
                yield Pairs(**found.public, labels=found.outcomes)
            return
        for rows, labels, persons in _vector_parts(shards, piece):
            yield Pairs.from_features(rows, labels, persons=persons)


def _turned_vectors(
    shards: Shards, piece: Piece, features: Features | None
) -> Iterator[tuple[Any, Integer[np.ndarray, " n"]]]:
    """Yield (differences, labels or answers) of a piece, in canonical order."""
    if shards.layout == "texts":
        for pairs in _pairs(shards, piece):
            yield pairs.differences(features), pairs.labels
        return
    with _named(piece):
        for rows, labels, _ in _vector_parts(shards, piece):
            yield turned_rows(rows, number_labels(labels, len(rows)))


def _gathered(shards: Shards, piece: Piece) -> Iterator[Gathered]:
    """Yield the records of a piece, some thousands at a time; a block may be empty."""
    numbered = _mappings(shards, piece)
    records = records_of(
        ((row, where) for where, row in numbered), person_field=shards.person_field
    )
    while some := list(islice(records, _RECORDS)):
        if some[0].privatized != shards.privatized:
            raise DataError(_ALREADY if some[0].privatized else _RAW)
        digest = PublicDigest()
        left = list(kept(some, digest, drop_identical=shards.drop_identical))
        outcomes = np.fromiter((row.outcome for row in left), dtype=np.int8, count=len(left))
        yield Gathered(columns_of(left, digest), outcomes, some[0].privatized)


def _mappings(shards: Shards, piece: Piece) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (place, row) for every record of a piece of texts."""
    path = Path(piece.path)
    if path.suffix == ".gz":
        yield from read_mappings(path)
        return
    if path.suffix == ".parquet":
        people = (shards.person_field, f"{shards.person_field}s")
        groups = range(piece.first, piece.last)
        number = 0
        for batch in column_parts(path, groups, (*FIELDS, *people), _RECORDS):
            for values in batch.to_pylist():
                yield f"row {number} of those from row group {piece.first} on", _given(values)
                number += 1
        return
    yield from _lines(path, piece)


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a table without the fields that are empty in it."""
    return {name: value for name, value in values.items() if value is not None}


def _lines(path: Path, piece: Piece) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (place, object) for every line that starts in the piece."""
    with explained(f"{piece.name} cannot be read"), path.open("rb") as file:
        if piece.first:
            file.seek(piece.first - 1)
            file.readline(LONGEST_LINE)  # the rest of a line that starts before
        while (start := file.tell()) < piece.last:
            line = file.readline(LONGEST_LINE)
            if not line.strip():
                continue
            try:
                value = json.loads(line.decode("utf-8-sig" if start == 0 else "utf-8"))
            except (ValueError, RecursionError):
                value = None
            if not isinstance(value, dict):
                break
            yield f"byte {start}", value
        else:
            return
    raise DataError(
        f"byte {start}: not a JSON object on a line of its own. Is the file cut "
        "short? Nothing was released."
    )


def _vector_parts(
    shards: Shards, piece: Piece
) -> Iterator[tuple[np.ndarray, np.ndarray, list[Any] | None]]:
    """Yield (differences as they stand, labels, persons) of a piece."""
    assert shards.dimension is not None  # noqa: S101 - for the type checker
    path, names = Path(piece.path), (DIFFERENCE, *_OUTCOMES, shards.person_field)
    height = max(1, _NUMBERS // shards.dimension)
    for batch in column_parts(path, range(piece.first, piece.last), names, height):
        outcome = _outcome_column(batch.schema.names, privatized=shards.privatized)
        rows = vectors(path, batch.column(DIFFERENCE), shards.dimension)
        labels = batch.column(outcome).to_numpy(zero_copy_only=False)
        if shards.privatized and not np.isin(labels, (0, 1)).all():
            raise DataError("column 'answer' must hold 0 or 1.")
        known = shards.person_field in batch.schema.names
        persons = batch.column(shards.person_field).to_pylist() if known else None
        yield _validate.finite_array(DIFFERENCE, rows, ndim=2), labels, persons


def _outcome_column(names: Sequence[str], *, privatized: bool) -> str:
    """Return what the column of labels, or of answers, is called.

    Raises:
        DataError: It is not there, or the other one is.
    """
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
def _named(piece: Piece) -> Iterator[None]:
    """Put the name of the file in front of what refuses a piece; refuse a file that changed."""
    piece.refuse_change()
    try:
        yield
    except DataError as error:
        problem = str(error)
    else:
        piece.refuse_change()
        return
    raise DataError(f"{piece.name}: {problem.removeprefix(f'{piece.name}: ')}")
