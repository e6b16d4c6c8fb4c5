"""Judgments in many files: what the files are, and pieces of them small enough for memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from sordino._files import explained
from sordino.errors import DataError, UsageError
from sordino.preferences.parquet import row_groups, schema_of

__all__ = ["Layout", "Piece", "Shards", "find_shards"]

Layout = Literal["texts", "vectors"]
"""Records of texts, or feature differences that were computed already."""

_BYTES: Final = 1 << 24  # of JSON Lines in one piece
_ROWS: Final = 1 << 17  # of Parquet in one piece, if row groups are not larger
_TABLES: Final = (".parquet",)
_LINES: Final = (".jsonl", ".jsonl.gz")


@dataclass(frozen=True)
class Piece:
    """A part of one file that is read at once; it holds no data.

    Attributes:
        path: The file, as every machine that reads it must know it.
        shard: Which file of all.
        number: Which piece of all.
        first, last: Bytes of JSON Lines, or row groups of Parquet: from the first to before the
            last.
        stamp: Size and time of the file when it was found: it must not change afterwards.
    """

    path: str
    shard: int
    number: int
    first: int
    last: int
    stamp: tuple[int, int]

    def refuse_change(self) -> None:
        """Refuse a file that is no longer the one that was found.

        Which rows count is decided when it is first read, so it must be the same ever after.

        Raises:
            DataError: It was written to.
            FileSystemError: It is gone.
        """
        if _stamp(Path(self.path)) != self.stamp:
            raise DataError(f"{self.name} changed while it was read. Nothing was released.")

    @property
    def name(self) -> str:
        """Return the name of the file, for messages."""
        return Path(self.path).name


@dataclass(frozen=True, kw_only=True)
class Shards:
    """Judgments in files too large for memory, and how to read them.

    Attributes:
        pieces: All parts of all files, in order.
        layout: What the files hold.
        dimension: Of vectors; None for texts.
        person_field: Name of the optional public person id.
        drop_identical: Leave out pairs of identical answers instead of refusing them.
        privatized: Whether these are randomized answers, and not raw judgments.
    """

    pieces: tuple[Piece, ...]
    layout: Layout
    dimension: int | None
    person_field: str = "person"
    drop_identical: bool = False
    privatized: bool = False

    def __repr__(self) -> str:
        """Return the kind and how many files there are."""
        return f"Shards({self.layout}, files={self.pieces[-1].shard + 1})"

    @property
    def bytes(self) -> int:
        """Return how large all files are together."""
        return sum(os.path.getsize(path) for path in {piece.path for piece in self.pieces})  # noqa: PTH202


def find_shards(
    sources: str | Path | Iterable[str | Path],
    *,
    person_field: str = "person",
    drop_identical: bool = False,
    privatized: bool = False,
) -> Shards:
    """Return the judgments of many files, none of which is read yet but its ends.

    Parquet files hold the fields that JSON Lines do, or vectors: ``difference`` (a list of
    numbers, always as many: φ(first) − φ(second)), ``label`` (0, 1 or 0.5) and, if people are
    known, the person field.

    Args:
        sources: Files ending in ``.parquet``, ``.jsonl`` or ``.jsonl.gz``, or folders of them; a
            folder's files are taken in the order of their names. All of one kind. Other machines
            must find them at the same place.
        person_field: Name of the optional public person id.
        drop_identical: Leave out pairs of identical answers instead of refusing them.
        privatized: Whether they are randomized answers, each file with its manifest beside it:
            vectors then stand beside a column ``answer`` instead of ``label``.

    Raises:
        UsageError: There is no file, or they are of several kinds, or one is given twice.
        DataError: A Parquet file is cut short or malformed, or its columns are not those of the
            others.
        FileSystemError: A file is missing or cannot be read.
        MissingExtra: A file is Parquet, and what reads it is not installed.
    """
    paths = _files(sources)
    if paths[0].name.endswith(_TABLES):
        dimension = _one_schema(paths, person_field)
        ends = [(path, _bundles(row_groups(path))) for path in paths]
    else:
        dimension = None
        ends = [(path, _stretches(path)) for path in paths]
    pieces: list[Piece] = []
    stamps = [_stamp(path) for path in paths]
    for shard, (path, spans) in enumerate(ends):
        for first, last in spans:
            pieces.append(Piece(str(path), shard, len(pieces), first, last, stamps[shard]))
    if not pieces:
        raise DataError("The files are empty: no record in them.")
    return Shards(
        pieces=tuple(pieces),
        layout="texts" if dimension is None else "vectors",
        dimension=dimension,
        person_field=person_field,
        drop_identical=drop_identical,
        privatized=privatized,
    )


def _stamp(path: Path) -> tuple[int, int]:
    """Return size and time of a file.

    Raises:
        FileSystemError: It is missing.
    """
    with explained(f"{path.name} cannot be read"):
        status = path.stat()
    return status.st_size, status.st_mtime_ns


def _files(sources: str | Path | Iterable[str | Path]) -> list[Path]:
    """Return all files as absolute paths.

    Raises:
        UsageError: There is none, or they are of several kinds, or one is given twice.
        FileSystemError: One is missing.
    """
    given = [sources] if isinstance(sources, (str, Path)) else list(sources)
    paths = [path for source in given for path in _inside(Path(source).absolute())]
    if not paths:
        raise UsageError(
            "No file to read. Give files or folders of files that end in .parquet, .jsonl or "
            ".jsonl.gz."
        )
    kinds = {path.name.endswith(_TABLES) for path in paths}
    if len(kinds) > 1:
        raise UsageError("Some files are Parquet and some JSON Lines. Give one kind at a time.")
    seen: set[tuple[int, int]] = set()
    for path in paths:
        with explained(f"{path.name} cannot be read"):
            status = path.stat()
        if (status.st_dev, status.st_ino) in seen:
            raise UsageError(
                f"{path.name} is given twice: its labels would count twice, and be hidden half "
                "as well. Nothing was read."
            )
        seen.add((status.st_dev, status.st_ino))
    return paths


def _inside(path: Path) -> Sequence[Path]:
    """Return a file itself, or the files of a folder that are ours by name.

    Raises:
        UsageError: A file's name ends in nothing that is read.
        FileSystemError: It is missing.
    """
    with explained(f"{path.name} cannot be read"):
        if path.is_dir():
            found = [
                item for item in sorted(path.iterdir()) if not item.name.startswith(("_", "."))
            ]
            return [item for item in found if item.name.endswith(_TABLES + _LINES)]
    if not path.name.endswith(_TABLES + _LINES):
        raise UsageError(
            f"{path.name}: of many files, those that end in .parquet, .jsonl or .jsonl.gz are "
            "read. Nothing was read."
        )
    return [path]


def _one_schema(paths: Sequence[Path], person_field: str) -> int | None:
    """Return the dimension of vectors, or None for texts.

    Raises:
        DataError: A file has other columns than the first one.
    """
    first = schema_of(paths[0], person_field)
    for path in paths[1:]:
        if schema_of(path, person_field) != first:
            raise DataError(
                f"{path.name} has other columns, or other types in them, than {paths[0].name}. "
                "Nothing was released."
            )
    return first.dimension


def _bundles(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Return spans of row groups, each of about as many rows as a piece should have."""
    spans: list[tuple[int, int]] = []
    first = rows = 0
    for group, size in enumerate(sizes):
        if rows and rows + size > _ROWS:
            spans.append((first, group))
            first, rows = group, 0
        rows += size
    return [*spans, (first, len(sizes))] if rows else spans


def _stretches(path: Path) -> list[tuple[int, int]]:
    """Return spans of bytes; a line belongs to the span that its first byte is in."""
    size = path.stat().st_size
    if path.suffix == ".gz":  # cannot be entered in the middle
        return [(0, size)] if size else []
    return [(first, min(first + _BYTES, size)) for first in range(0, size, _BYTES)]
