"""What binds a ledger to judgments in many files, and tells a file from its copy.

Digests are of public fields alone, and of all records together: neither the order of files nor
where they are cut may be seen in them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sordino.errors import DataError
from sordino.preferences.shards import Piece, Shards

__all__ = ["digest_of_part", "digest_of_parts", "refuse_copies", "sum_of_questions"]


def digest_of_part(rows: np.ndarray) -> bytes:
    """Return a digest of who answered what, for the persons of one part.

    Args:
        rows: Entries with ``who`` and ``rank``, 128 bits each, in any order; each counts as often
            as it is there.
    """
    order = np.lexsort([*rows["rank"].T[::-1], *rows["who"].T[::-1]])
    both = np.concatenate([rows["who"], rows["rank"]], axis=1)[order]
    return hashlib.sha256(both.astype("<u8").tobytes()).digest()


def digest_of_parts(parts: Mapping[int, bytes]) -> str:
    """Return one digest of all parts."""
    together = b"".join(parts[part] for part in sorted(parts))
    return hashlib.sha256(b"shards\n" + together).hexdigest()


def sum_of_questions(rows: np.ndarray) -> tuple[int, int, int]:
    """Return how many records there are, and the sum of their digests, in whatever order.

    It finds copies that nobody made to deceive; it binds nothing.
    """
    high, low = rows["rank"].sum(axis=0, dtype=np.uint64)  # of 2⁶⁴, whatever is carried
    return len(rows), int(high), int(low)


def refuse_copies(shards: Shards, sums: Mapping[int, tuple[int, int, int]]) -> None:
    """Refuse two files of the same questions where nothing says who answered.

    Args:
        shards: The files.
        sums: What :func:`sum_of_questions` says of every piece.

    Raises:
        DataError: There are two.
    """
    totals: dict[int, np.ndarray] = {}
    for piece in shards.pieces:
        mine = np.array(sums[piece.number], dtype=np.uint64)
        totals[piece.shard] = totals.get(piece.shard, np.uint64(0)) + mine
    files = {piece.shard: piece for piece in shards.pieces}
    seen: dict[tuple[int, ...], Piece] = {}
    for shard, total in totals.items():
        known = seen.setdefault(tuple(total.tolist()), files[shard])
        if total[0] and known.shard != shard:
            raise DataError(
                f"{' and '.join(_names(known, files[shard]))} hold the same questions, as often, "
                "and nothing says who answered: as one is a copy of the other, labels would count "
                "twice. Nothing was released. Give each record once; if other people answered the "
                "same questions, name them in a field (person_field, --person-field)."
            )


def _names(*pieces: Piece) -> list[str]:
    """Return the names of files; of those with one name, with that of their folder."""
    names = [piece.name for piece in pieces]
    if len(set(names)) == len(names):
        return names
    return [f"{Path(piece.path).parent.name}/{piece.name}" for piece in pieces]
