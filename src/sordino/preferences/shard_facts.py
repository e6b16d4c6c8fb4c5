"""What one piece of many files says of itself, and what it leaves for the shuffle of persons."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from sordino.engines import exchange
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.folds import held_out_questions
from sordino.preferences.records import Record, person_key
from sordino.preferences.shard_blocks import questions
from sordino.preferences.shard_digests import sum_of_questions
from sordino.preferences.shard_selection import ROW_BITS, write_sides
from sordino.preferences.shards import Piece, Shards

__all__ = ["ENTRY", "Facts", "FactsOf", "digest_of_piece"]

ENTRY: Final = [
    ("who", "<u8", 2),
    ("rank", "<u8", 2),
    ("row", "<u8"),
    ("held_out", "?"),
    ("dropped", "?"),
]
"""Of one record: 128 bits of who answered and of who answered what, and its place."""


@dataclass
class Facts:
    """What some pieces say: the sum of two is all that both say.

    Attributes:
        pieces: How many say it.
        rows, digests, held_out, questions: By the number of the piece.
        forms: Whether persons are named, and whether prompts are what both answers began with,
            by the number of the piece.
        dropped: Of all of them.
    """

    pieces: int = 1
    rows: dict[int, int] = field(default_factory=dict)
    digests: dict[int, bytes] = field(default_factory=dict)
    forms: dict[int, tuple[bool, bool]] = field(default_factory=dict)
    held_out: dict[int, int] = field(default_factory=dict)
    questions: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    dropped: int = 0

    def plus(self, other: Facts) -> Facts:
        """Take in what others say."""
        self.pieces += other.pieces
        self.rows |= other.rows
        self.digests |= other.digests
        self.forms |= other.forms
        self.held_out |= other.held_out
        self.questions |= other.questions
        self.dropped += other.dropped
        return self


@dataclass(frozen=True)
class FactsOf:
    """The first task: what a piece says, its digests left for the second."""

    shards: Shards
    shuffle: exchange.Exchange
    hold_out: bool

    def __call__(self, piece: Piece) -> Facts:
        """Return what is public of one piece."""
        found = Facts()
        digest, entries = hashlib.sha256(), [np.zeros(0, ENTRY)]
        start = piece.number << ROW_BITS
        for pairs, dropped, cut in questions(self.shards, piece):
            digest.update(bytes.fromhex(pairs.public_digest))
            found.dropped += pairs.dropped
            entries.append(_left_out_entries(dropped))
            if len(pairs):
                found.forms[piece.number] = pairs.persons is not None, cut
                entries.append(self._entries(pairs, start))
                start += len(pairs)
        rows = np.concatenate(entries)
        self.shuffle.write(
            piece.number, rows, (rows["who"][:, 0] % exchange.PARTS).astype(np.int64)
        )
        rows = rows[~rows["dropped"]]
        if self.hold_out:
            write_sides(self.shuffle.folder, piece.number, rows["held_out"])
        found.held_out[piece.number] = int(rows["held_out"].sum())
        found.rows[piece.number] = len(rows)
        found.questions[piece.number] = sum_of_questions(rows)
        found.digests[piece.number] = digest.digest()
        return found

    def _entries(self, pairs: Comparisons, start: int) -> np.ndarray:
        """Return an entry for every row."""
        entries = _named_entries(pairs.keys, pairs.persons)
        entries["row"] = start + np.arange(len(pairs), dtype=np.uint64)
        if self.hold_out:
            entries["held_out"] = held_out_questions(pairs.keys)
        return entries


def _left_out_entries(records: Sequence[Record]) -> np.ndarray:
    """Return an entry for every record with identical answers, which only the digest knows."""
    persons = tuple(row.person for row in records if row.person is not None)
    entries = _named_entries([row.key for row in records], persons or None)
    entries["dropped"] = True
    return entries


def _named_entries(keys: Sequence[bytes], persons: Sequence[str] | None) -> np.ndarray:
    """Return 128 bits of who answered, and of who answered what, for every row.

    Without persons the question stands for both: it tells whether one occurs twice.
    """
    entries = np.zeros(len(keys), ENTRY)
    if persons is None:
        ranks = who = list(keys)
    else:
        who = [person_key(person) for person in persons]
        both = zip(who, keys, strict=True)
        ranks = [hashlib.sha256(person + key).digest() for person, key in both]
    # big-endian, so that numbers are in the order of the digests
    for name, digests in (("who", who), ("rank", ranks)):
        short = b"".join(digest[:16] for digest in digests)
        entries[name] = np.frombuffer(short, dtype=">u8").reshape(-1, 2)
    return entries


def digest_of_piece(shards: Shards, piece: Piece) -> bytes:
    """Return the digest of all public fields of a piece, as :class:`Facts` keeps it.

    Raises:
        DataError: A record cannot be used.
        FileSystemError: The file cannot be read.
    """
    digest = hashlib.sha256()
    for pairs, _, _ in questions(shards, piece):
        digest.update(bytes.fromhex(pairs.public_digest))
    return digest.digest()
