"""What is public of judgments in many files: how many, by whom, and which of them count."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import Int64

from sordino.engines.engine import Engine, Taken
from sordino.engines.exchange import PARTS, Exchange, opened_exchange
from sordino.errors import DataError
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.records import person_key
from sordino.preferences.shard_blocks import comparisons
from sordino.preferences.shards import Piece, Shards

__all__ = ["Selection", "ShardSurvey", "survey_shards"]

_ENTRY: Final = [("who", "<u8", 2), ("rank", "<u8", 2), ("row", "<u8")]
_ROW_BITS: Final = 40  # of the number of a row in its piece; the piece's number is above them
_LEFT_OUT: Final = "left-out.npy"
_Doubts = tuple[bool, np.ndarray, int]
"""(whether a question occurs twice, rows that do not count, most questions of one person)"""


@dataclass(frozen=True)
class Selection:
    """Which rows of the pieces count, kept in a file that all machines see.

    Attributes:
        path: Sorted numbers of the rows that do not; None if all rows count.
    """

    path: str | None

    @cached_property
    def _left_out(self) -> Any:
        """Return the numbers, of which only what is looked at is read."""
        return np.load(self.path or "", mmap_mode="r")

    def left_out(self, piece: int) -> Int64[np.ndarray, " k"]:
        """Return which rows of a piece do not count."""
        if self.path is None:
            return np.zeros(0, dtype=np.int64)
        ends = np.array([piece << _ROW_BITS, (piece + 1) << _ROW_BITS], dtype=np.uint64)
        first, last = np.searchsorted(self._left_out, ends)
        return np.asarray(self._left_out[first:last] - ends[0]).astype(np.int64)

    def before(self, piece: int) -> int:
        """Return how many rows of earlier pieces do not count."""
        if self.path is None:
            return 0
        return int(np.searchsorted(self._left_out, np.uint64(piece << _ROW_BITS)))

    def __getstate__(self) -> dict[str, Any]:
        """Leave the opened file behind."""
        return {"path": self.path}


@dataclass(frozen=True, kw_only=True)
class ShardSurvey:
    """What is public of judgments in many files.

    Attributes:
        shards: The files.
        n: How many records carry a preference.
        counted: How many of them count: each question of a person once, and no more of one
            person than are permitted.
        dropped: How many were left out for identical answers.
        public_digest: Binds a ledger to the questions and who answered, in whatever order the
            files are given. It is not that of the same records in one file.
        linked: Whether it is known who answered.
        repeats: Whether a question occurs twice, and nothing says who answered.
        selection: Which rows count.
        starts: Number of the first record of each piece, and of all records at the end.
        most: How many rows of one person count; None for all.
        largest: The largest number of different questions of one person, whether they count or
            not; 1 where persons are not known.
        digests: Of all public fields of each piece.
    """

    shards: Shards
    n: int
    counted: int
    dropped: int
    public_digest: str
    linked: bool
    repeats: bool
    selection: Selection
    starts: tuple[int, ...]
    most: int | None
    largest: int
    digests: tuple[bytes, ...]


@dataclass
class _Facts:
    """What some pieces say: the sum of two is all that both say."""

    rows: dict[int, int] = field(default_factory=dict)
    digests: dict[int, bytes] = field(default_factory=dict)
    linked: dict[int, bool] = field(default_factory=dict)
    dropped: int = 0

    def plus(self, other: _Facts) -> _Facts:
        """Take in what others say."""
        self.rows |= other.rows
        self.digests |= other.digests
        self.linked |= other.linked
        self.dropped += other.dropped
        return self


@contextmanager
def survey_shards(
    shards: Shards,
    engine: Engine,
    *,
    most: int | None = None,
    scratch: str | Path | None = None,
    taken: Taken | None = None,
) -> Iterator[ShardSurvey]:
    """Read all public fields once; keep which rows count for as long as the context is open.

    Labels are checked and not used. Digests of questions and persons pass through a folder,
    which is taken away at the end.

    Args:
        shards: The files.
        engine: Where they are read.
        most: How many rows of one person count; all if left out.
        scratch: A folder that all machines see; the system's own place for temporary files if
            left out.
        taken: Called as pieces are done.

    Raises:
        DataError: A record cannot be used, or there is none, or persons are named in some files
            only, or in none although the rows of a person are limited, or two files hold an
            answer of the same person to the same question.
        FileSystemError: A file or the folder cannot be used.
    """
    with opened_exchange(_ENTRY, scratch) as shuffle:
        read = _Read(shards, shuffle)
        facts = engine.fold(shards.pieces, read, _Facts.plus, taken=taken)
        linked = _known(shards, facts, most)
        look = _Look(shards.pieces, shuffle, most, linked=linked, raw=not shards.privatized)
        doubled, left_out, largest = engine.fold(range(PARTS), look, _both)
        selection = Selection(_kept(shuffle, left_out))
        sizes = [facts.rows[piece.number] for piece in shards.pieces]
        starts = tuple(np.cumsum([0, *sizes]).tolist())
        yield ShardSurvey(
            shards=shards,
            n=starts[-1],
            counted=starts[-1] - len(left_out),
            dropped=facts.dropped,
            public_digest=_digest(shards, facts),
            linked=linked,
            repeats=doubled and not linked,
            selection=selection,
            starts=starts,
            most=most,
            largest=largest,
            digests=tuple(facts.digests[piece.number] for piece in shards.pieces),
        )


@dataclass(frozen=True)
class _Read:
    """The first task: what a piece says, its digests left for the second."""

    shards: Shards
    shuffle: Exchange

    def __call__(self, piece: Piece) -> _Facts:
        """Return what is public of one piece."""
        found = _Facts()
        digest, entries = hashlib.sha256(), []
        start = piece.number << _ROW_BITS
        for pairs in comparisons(self.shards, piece):
            digest.update(bytes.fromhex(pairs.public_digest))
            found.dropped += pairs.dropped
            if len(pairs):
                found.linked[piece.number] = pairs.persons is not None
                entries.append(_entries(pairs, start))
                start += len(pairs)
        rows = np.concatenate(entries) if entries else np.zeros(0, _ENTRY)
        self.shuffle.write(piece.number, rows, (rows["who"][:, 0] % PARTS).astype(np.int64))
        found.rows[piece.number] = len(rows)
        found.digests[piece.number] = digest.digest()
        return found


def _entries(pairs: Comparisons, start: int) -> np.ndarray:
    """Return 128 bits of who answered, and of who answered what, for every row.

    Without persons the question stands for both: it tells whether one occurs twice.
    """
    entries = np.zeros(len(pairs), _ENTRY)
    if pairs.persons is None:
        ranks = who = list(pairs.keys)
    else:
        who = [person_key(person) for person in pairs.persons]
        both = zip(who, pairs.keys, strict=True)
        ranks = [hashlib.sha256(person + key).digest() for person, key in both]
    # big-endian, so that numbers are in the order of the digests
    for name, digests in (("who", who), ("rank", ranks)):
        short = b"".join(digest[:16] for digest in digests)
        entries[name] = np.frombuffer(short, dtype=">u8").reshape(-1, 2)
    entries["row"] = start + np.arange(len(pairs), dtype=np.uint64)
    return entries


@dataclass(frozen=True)
class _Look:
    """The second task: which rows of the persons in one part do not count."""

    pieces: tuple[Piece, ...]
    shuffle: Exchange
    most: int | None
    linked: bool
    raw: bool

    def __call__(self, part: int) -> _Doubts:
        """Return whether anything occurs twice, which rows do not count, and the largest person."""
        rows = self.shuffle.read(part, len(self.pieces))
        who, rank = rows["who"].T, rows["rank"].T
        rows = rows[np.lexsort([rows["row"], rank[1], rank[0], who[1], who[0]])]
        again = _same(rows["who"]) & _same(rows["rank"])
        if not self.linked:
            return bool(again.any()), np.zeros(0, np.uint64), 1
        if self.raw:  # of answers that were stored, a repeat is the same observation
            self._refuse_overlap(rows, again)
        out = again | self._beyond(rows["who"], again)
        largest = int(_places(rows["who"], again).max(initial=0))
        return bool(again.any()), rows["row"][out], largest

    def _beyond(self, who: np.ndarray, again: np.ndarray) -> np.ndarray:
        """Return which rows are beyond the most that count of one person."""
        if self.most is None:
            return np.zeros(len(who), dtype=bool)
        return _places(who, again) > self.most

    def _refuse_overlap(self, rows: np.ndarray, again: np.ndarray) -> None:
        """Refuse two files that hold the same answer of one person.

        Raises:
            DataError: They do.
        """
        numbers = (rows["row"] >> np.uint64(_ROW_BITS)).astype(np.int64)
        shards = np.array([piece.shard for piece in self.pieces])[numbers]
        across = np.flatnonzero(again[1:] & (shards[1:] != shards[:-1])) + 1
        if len(across):
            one, other = (self.pieces[numbers[across[0] - back]].name for back in (1, 0))
            raise DataError(
                f"{one} and {other} both hold an answer of the same person to the same question: "
                "these files overlap, and labels would count twice. Nothing was released. Give "
                "each record once."
            )


def _places(who: np.ndarray, again: np.ndarray) -> np.ndarray:
    """Return which question of its person every row is, from 1."""
    first = ~_same(who)
    different = np.cumsum(~again)  # questions so far, of all persons
    before = different[np.flatnonzero(first)] - 1
    return np.asarray(different - before[np.cumsum(first) - 1])


def _same(values: np.ndarray) -> np.ndarray:
    """Return which rows are as the one before."""
    same = np.zeros(len(values), dtype=bool)
    same[1:] = (values[1:] == values[:-1]).all(axis=1)
    return same


def _both(one: _Doubts, other: _Doubts) -> _Doubts:
    """Return what two parts found together."""
    return one[0] or other[0], np.concatenate([one[1], other[1]]), max(one[2], other[2])


def _kept(shuffle: Exchange, left_out: np.ndarray) -> str | None:
    """Write which rows do not count where every machine sees it."""
    if not len(left_out):
        return None
    path = Path(shuffle.folder) / _LEFT_OUT
    np.save(path, np.sort(left_out))
    return str(path)


def _known(shards: Shards, facts: _Facts, most: int | None) -> bool:
    """Return whether persons are known; refuse some here and none there.

    Raises:
        DataError: Persons are named in some files only, or in none although they must be known,
            or there is no record.
    """
    if not facts.linked:
        raise DataError("There is no record that carries a preference. Nothing was released.")
    named = [(facts.linked[at], at) for at in sorted(facts.linked)]
    for linked, at in named:
        if linked != named[0][0]:
            raise DataError(
                f"{shards.pieces[at].name}: a person id is given for some records and not for "
                "others. Nothing was released."
            )
    if most is not None and not named[0][0]:
        raise DataError(
            f"These records have no person ids, which a limit of {most} records of one person "
            "needs. Nothing was released. Name the field that holds them (person_field, "
            "--person-field)."
        )
    return named[0][0]


def _digest(shards: Shards, facts: _Facts) -> str:
    """Return the digest of all public fields, in whatever order the files are given."""
    files: dict[int, Any] = {}
    for piece in shards.pieces:
        digest = files.setdefault(piece.shard, hashlib.sha256())
        digest.update(facts.digests[piece.number])
    together = b"".join(sorted(digest.digest() for digest in files.values()))
    return hashlib.sha256(b"shards\n" + together).hexdigest()
