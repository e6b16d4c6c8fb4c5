"""Judgments in many files: what the files are, and chunks of them, read a part at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, NamedTuple, overload

import numpy as np
from jaxtyping import Int64, Integer

from sordino import _validate
from sordino._files import UNPACKING_ERRORS, explained
from sordino._validate import refuse_special
from sordino.errors import DataError, UsageError

from .comparisons import USUAL, PublicDigest, TextRules, columns_of, kept, outcomes_of, taken
from .containers import Rows, contained, files_of, packing, plain_reader, stem_of
from .files import RATINGS as RATED
from .files import records_of, untold
from .pairs import Pairs, manifest_path, number_labels, turned_rows
from .parquet import (
    DIFFERENCE,
    alike_rows,
    arrow_batches,
    arrow_names,
    column_parts,
    column_values,
    numbers,
    place_of,
    row_groups,
    rows_of,
    schema_of,
    vectors,
)
from .records import FIELDS, PERSON, Levels, Record, paired_ratings, refuse_person_field
from .schemas import COMPARED, OWN, RATINGS, THUMBS, Schema, decide

WORK: Final = ".sordino-*.parts"
"""What a run is called that has not ended, in the folder for its answers."""

ENDINGS: Final = (".jsonl", ".jsonl.gz", ".parquet")
"""How privatized files end."""

_MANIFEST: Final = manifest_path(Path("a.jsonl")).name.removeprefix("a")


def _refuse_half_published(folders: Iterable[Path]) -> None:
    """Refuse folders whose files are not all there: a reward from some would pass as one of all."""
    for folder in sorted(set(folders)):
        with explained(f"{folder.name} cannot be read"):
            left = sorted(folder.glob(WORK))
            names = {path.name for path in folder.iterdir()}
        if left:
            raise DataError(
                f"{folder.name} holds {left[0].name}: a run that writes answers there was "
                "interrupted, or is still going on, and files may be missing. Nothing was read. "
                "Let it end, or give the same command again: what was paid for then appears, free."
            )
        described = {manifest_path(Path(name)).name for name in names if name.endswith(ENDINGS)}
        for name in sorted(names - described):
            if name.endswith(_MANIFEST):
                raise DataError(
                    f"{folder.name} holds {name} without the file that it is about: answers are "
                    "missing. Nothing was read. Bring the file back, or take the manifest away if "
                    "the others are all that you want."
                )


Layout = Literal["texts", "vectors"]
"""Records of texts, or feature differences that were computed already."""

_LINES: Final = 1 << 14  # of JSON Lines in one chunk; bytes would tell how long labels are
_ROWS: Final = 1 << 17  # of Parquet in one chunk, if row groups are not larger
_KINDS: Final = 16  # times as many of names and winners, which repeat
_CHUNK: Final = 1 << 20  # bytes in which line ends are looked for
_PARQUET: Final = ".parquet"
_NO_HEADER: Final = b"\xef\xbb\xbf \r\n"  # what a line in front of a table's header may hold

_Span = tuple[int, int, int, int | None]
"""(first, last, start, rows) of a chunk."""


@dataclass(frozen=True)
class Chunk:
    """A part of one file that is read at once; it holds no data."""

    path: str  # the file, as every machine that reads it must know it
    file: int  # which file of all
    number: int  # which chunk of all
    first: int
    last: int
    start: int  # how many lines, or rows of Parquet, stand before it in the file
    rows: int | None  # how many lines, records or rows it has; None of a packed file
    # Size, times and number of the file when it was found: it must not change afterwards. It is a
    # first line of defense: whoever can set clocks can also forge it.
    stamp: tuple[int, ...]

    def refuse_change(self) -> None:
        """Refuse a file that is no longer the one that was found."""
        # Which rows count is decided when it is first read, so it must be the same ever after. All
        # machines see one file system, on which size, times and number of a file are the same
        # everywhere, as on NFS: copies of a file on each machine's own disk are other files.
        if _stamp(Path(self.path)) != self.stamp:
            raise DataError(
                f"{self.name} changed while it was read, or this machine sees another file there "
                "than the one that was found. Nothing was released. Leave the files alone; all "
                "machines must read them from one file system."
            )

    @property
    def name(self) -> str:
        """Return the name of the file, for messages."""
        return Path(self.path).name


@dataclass(frozen=True, kw_only=True)
class Chunks(Sequence[Chunk]):
    """Judgments in files too large for memory, as a sequence of chunks, and how to read them."""

    chunks: tuple[Chunk, ...]  # all parts of all files, in order
    layout: Layout  # what the files hold
    dimension: int | None  # of vectors; None for texts
    schema: Schema = OWN  # what their columns mean, and which says who judged
    rules: TextRules = USUAL  # which records are left out for their texts
    privatized: bool = False  # whether these are randomized answers, and not raw judgments
    levels: Levels | None = None  # what ratings may be
    ratings: str = RATED[0]  # whether each counts by itself, or two as a comparison
    # Whether all of a record is private: then persons are not read, records of identical answers
    # are left out, and no message says which record cannot be used.
    hides_records: bool = False

    @overload
    def __getitem__(self, index: int) -> Chunk: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Chunk, ...]: ...

    def __getitem__(self, index: int | slice) -> Chunk | tuple[Chunk, ...]:
        return self.chunks[index]

    def __len__(self) -> int:
        return len(self.chunks)

    @property
    def person_field(self) -> str | None:
        """Return the name of the optional public person id; None if persons do not matter."""
        return self.schema.persons

    def __repr__(self) -> str:
        return f"Chunks({self.layout}, files={self.chunks[-1].file + 1})"

    @property
    def rows(self) -> int | None:
        """Return how many lines or rows all files have; None if some are packed."""
        known = [chunk.rows for chunk in self.chunks if chunk.rows is not None]
        return sum(known) if len(known) == len(self.chunks) else None

    @property
    def alone(self) -> bool:
        """Return whether single answers were judged, each by itself."""
        return self.schema.kind in {THUMBS, RATINGS} and self.ratings == RATED[0]

    @property
    def parts(self) -> int:
        """Return of what every label is a whole number: 2 unless levels are declared."""
        return 2 if self.levels is None else self.levels.parts

    @property
    def bytes(self) -> int:
        """How large all files are together: it tells how long labels are, so it stays here."""
        # Whatever is printed or written says `rows` instead.
        return sum(os.path.getsize(path) for path in {chunk.path for chunk in self.chunks})  # noqa: PTH202


@_validate.typed
def find_chunks(  # noqa: PLR0913 (each is one choice of the user)
    sources: str | Path | Iterable[str | Path],
    *,
    columns: Mapping[str, str] | None = None,
    person_field: str | None = PERSON,
    drop: Collection[str] = (),
    longest: int | None = None,
    privatized: bool = False,
    hides_records: bool = False,
    levels: object = None,
    ratings: str = RATED[0],
) -> Chunks:
    """Return the judgments of many files, none of which is read yet but its ends.

    Parquet files hold the fields that JSON Lines do, or vectors: ``difference`` (a list of
    numbers, always as many: φ(first) − φ(second)), ``label`` (0, 1 or 0.5) and, if people are
    known, the person field.

    Args:
        sources: Files as :func:`sordino.read_pairs` takes them, or folders of them; a folder's
            files are taken in the order of their names. All Parquet, or none. Other machines
            must find them at the same place, on one file system. JSON Lines and tables are cut
            by their number of records and Arrow by its batches, so each is passed through once
            here; what is packed, and a JSON array, is one chunk.
        columns: What our fields are called there, as in :func:`sordino.read_pairs`.
        person_field: Name of the optional public person id; None if persons do not matter.
        drop: Which records to leave out for their texts, as in :func:`sordino.read_pairs`.
        longest: Most characters of a record's texts.
        privatized: Whether they are randomized answers, each file with its manifest beside it:
            vectors then stand beside a column ``answer`` instead of ``label``.
        hides_records: Whether all of a record is private, as under unit ``"record"``: then there
            may be none, and vectors must be lists of a fixed size, for none need be there to tell.
        levels: The lowest and the highest rating, where records hold ``rating``.
        ratings: As in :func:`sordino.read_pairs`; of ``"pairs"`` each file is one chunk.

    Raises:
        UsageError: There is no file, or they are of several kinds, or one is given twice, or a
            folder holds what looks like data and is not read, or the person field is another.
        DataError: A Parquet file is cut short or malformed, or its columns are not those of the
            others, or the person field that was named is not among them; or randomized answers
            lie beside what an interrupted run left.
        FileSystemError: A file is missing or cannot be read.
        MissingExtra: A file is Parquet, and what reads it is not installed.
    """
    refuse_person_field(person_field or PERSON)
    paths = files_of(sources)
    tables = {stem_of(path).endswith(_PARQUET) for path in paths}
    if len(tables) > 1:
        raise UsageError("Some files are Parquet and others are not. Give one kind at a time.")
    if privatized:
        _refuse_half_published(path.parent for path in paths)
    stamps = [_stamp(path) for path in paths]  # first: what is appended later is noticed
    asked = partial(
        decide,
        columns=columns,
        person_field=person_field,
        kinds=COMPARED,
        asks=not (hides_records or privatized),
    )
    if tables == {True}:
        schema = asked(arrow_names(paths[0]))
        dimension = _one_schema(paths, schema, fixed=hides_records)
        many = _KINDS if schema.unasked else 1
        ends = [_bundles(row_groups(path), many) for path in paths]
    else:
        dimension = None
        with untold(hides_records=hides_records):
            schema, units, own = _meant(paths, asked)
        if not (levels or privatized or hides_records):
            with suppress(UsageError):  # said with its place when the file is read
                levels = Levels.of(own)
        if _validate.one_of("ratings", ratings, RATED) != RATED[0]:
            units = [""] * len(paths)
        ends = [_spans(path, unit) for path, unit in zip(paths, units, strict=True)]
    chunks: list[Chunk] = []
    for file, (path, spans) in enumerate(zip(paths, ends, strict=True)):
        for span in spans:
            chunks.append(Chunk(str(path), file, len(chunks), *span, stamps[file]))
    if not chunks and not hides_records:
        raise DataError("The files are empty: no record in them.")
    if not chunks:  # one without a record, so that there is a sum
        chunks.append(Chunk(str(paths[0]), 0, 0, 0, 0, 0, 0, stamps[0]))
    return Chunks(
        chunks=tuple(chunks),
        layout="texts" if dimension is None else "vectors",
        dimension=dimension,
        schema=schema,
        rules=TextRules.of((*drop, "identical") if hides_records else drop, longest),
        privatized=privatized,
        hides_records=hides_records,
        levels=None if (said := levels or schema.levels) is None else Levels.of(said),
        ratings=ratings,
    )


def _stamp(path: Path) -> tuple[int, ...]:
    # The time of its last change of any kind cannot be set back, as that of its content can. What
    # is no file has none that says anything, and cannot be read more than once.
    refuse_special(path, links=True)
    with explained(f"{path.name} cannot be read"):
        status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _meant(paths: Sequence[Path], asked: Callable[..., Schema]) -> tuple[Schema, list[str], object]:
    """Return what the columns of files mean, between what each can be entered, and levels."""
    schema, units, levels = None, list[str](), None
    for path in paths:
        found = contained(path)
        units.append(found.units)
        names, row = found.names, None
        if names is None or "levels" in names:
            with suppress(DataError):  # said with its place when the file is read
                row = next(found.rows, ("", None))[1]
        if isinstance(row, Mapping):  # all records say the same levels, or that is refused
            names, levels = names or tuple(row), levels or row.get("levels")
        if names is None:
            continue
        try:
            one = asked(names, table=found.table)
        except DataError as error:
            raise DataError(f"{path.name}: {error}") from None
        if one != (schema or one):
            raise DataError(
                f"{path.name} has other columns than the files before it. Nothing was released."
            )
        schema = schema or one
    schema = schema or replace(OWN, persons=asked(("chosen", "rejected")).persons)
    return schema, units, levels


def _one_schema(paths: Sequence[Path], schema: Schema, *, fixed: bool) -> int | None:
    """Return the dimension of vectors, or None for texts."""
    person_field = schema.persons or PERSON
    first, dimension = schema_of(paths[0], schema.columns, person_field), 0
    if fixed and any("fixed" not in kind for name, kind in first.types if name == DIFFERENCE):
        raise DataError(
            f"{paths[0].name}: column {DIFFERENCE!r} must hold lists of a fixed size "
            "(pyarrow.list_(pyarrow.float64(), d)): how many numbers a vector has is released, "
            "and no record may tell it. Nothing was released."
        )
    for path in paths:
        found = schema_of(path, schema.columns, person_field)
        # lists of any length, and none in the file: as long as those of others
        other = found.dimension and dimension and found.dimension != dimension
        if found.types != first.types or other:
            raise DataError(
                f"{path.name} has other columns, or other types in them, than {paths[0].name}. "
                "Nothing was released."
            )
        dimension = dimension or found.dimension or 0
    return None if first.dimension is None else dimension


def _bundles(sizes: Sequence[int], many: int = 1) -> list[_Span]:
    """Return spans of row groups, each of about as many rows as a chunk should have."""
    spans: list[_Span] = []
    first = start = rows = 0
    for group, size in enumerate(sizes):
        if rows and rows + size > many * _ROWS:
            spans.append((first, group, start, rows))
            first, start, rows = group, start + rows, 0
        rows += size
    return [*spans, (first, len(sizes), start, rows)] if rows else spans


def _spans(path: Path, units: str) -> list[_Span]:
    """Return the parts of a file that is no Parquet: one if it cannot be entered in the middle."""
    with explained(f"{path.name} cannot be read"), path.open("rb") as file:
        if units in ("lines", "records"):
            return _stretches(file, table=units == "records")
        if units == "batches":
            sizes, marks = arrow_batches(path)
            bundles = _bundles(sizes)
            return [(marks[one], marks[end], before, rows) for one, end, before, rows in bundles]
        with suppress(*UNPACKING_ERRORS):  # damage is said when it is read
            packed = packing(path, file)
            return [(0, 1, 0, None)] if plain_reader(file, packed).read(1) else []
        return [(0, 1, 0, None)]


def _stretches(file: BinaryIO, *, table: bool) -> list[_Span]:
    """Return spans of bytes, each of as many lines, or records of a table below its header."""
    # How many is a constant: nothing that is said of a chunk may depend on how long a label is.
    # In a table a line that ends inside quotes ends no record.
    lines, opened, line = 0, 0, b"\n" if table else b""
    while line and (opened or not line.strip(_NO_HEADER)):
        line = file.readline()
        lines, opened = lines + 1, opened ^ line.count(b'"') & 1
    size, buffer, count = file.tell(), b"", 0
    ends, before = [size], [lines]
    while some := file.read(_CHUNK):
        buffer, codes = some, np.frombuffer(some, np.uint8)
        marks = np.flatnonzero(codes == ord("\n"))
        full = np.arange(len(marks))
        if table:
            quotes = np.cumsum(codes == ord('"'), dtype=np.uint8) + np.uint8(opened) & 1
            full, opened = np.flatnonzero(quotes[marks] == 0), int(quotes[-1])
        cuts = full[-(count + 1) % _LINES :: _LINES]
        ends += (size + 1 + marks[cuts]).tolist()
        before += (lines + 1 + cuts).tolist()
        count, lines, size = count + len(full), lines + len(marks), size + len(buffer)
    if ends[-1] < size:
        ends.append(size)
    count += not buffer.endswith(b"\n") if buffer else 0
    rows = [_LINES] * (len(ends) - 2) + [count - max(0, len(ends) - 2) * _LINES]
    return list(zip(ends[:-1], ends[1:], before, rows, strict=False))


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

    def size(self) -> int:
        """Return how many records carry a preference."""
        return len(self.pairs if self.kinds is None else self.kinds)

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
    return (batch.whole for batch in questions(chunks, chunk))


def refuse_kind(chunks: Chunks, *, privatized: bool) -> None:
    """Refuse answers where raw judgments are wanted, and the reverse."""
    if chunks.privatized != privatized:
        raise DataError(f"{chunks[0].name}: {_RAW if privatized else _ALREADY}")


def judged_vectors(
    chunks: Chunks, chunk: Chunk
) -> Iterator[tuple[np.ndarray, Integer[np.ndarray, " n"]]]:
    """Yield (differences, labels or answers) of a chunk of vectors, in canonical order."""
    assert chunks.dimension is not None  # noqa: S101 - for the type checker
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
            for where, row in rows_of(place, batch.take(first), first + number):
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
    if chunks.ratings != RATED[0]:
        records_left = paired_ratings(records_left)
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
        yield from rows_of(place, batch, range(number, number + len(batch)))
        number += len(batch)


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
