"""The first randomized answer of one person to one question, kept in a folder beside the ledger.

What a person says later to the same question is answered by what was stored, whatever they say:
reusing the coin on a changed answer would reveal the change, and a new coin would cost again.
Nothing raw is stored: hashed public keys, the randomized answer, and the entry that paid.

For every entry that paid, and every part of the people, one file holds the answers that it paid
for; it is written once, whole, and never changed. Many machines may write: a task that is run
again, or twice at the same time, finds the file and draws nothing, or what it drew is thrown away.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Int64

from sordino._files import explained, read_json, to_json, written_once
from sordino._validate import Integers
from sordino.errors import LedgerDamaged, PrivacyError

KEY: Final = "S32"
"""128 bits of who answered, and 128 of the question."""

_FORMAT: Final = "sordino.memo"
_VERSION: Final = 2
_ANSWER: Final = np.dtype([("key", KEY), ("answer", "i1")])
_SETTINGS: Final = "settings.json"
_OTHERS: Final = 0o077
_NAME: Final = re.compile(r"(\d{3})-(\d{3})-([0-9a-f]+)\.npy")


def parts_of(keys: np.ndarray, parts: int) -> Int64[np.ndarray, " n"]:
    """Return in which of so many parts of the people each key is."""
    words = np.frombuffer(keys.tobytes(), ">u4").reshape(-1, 8)
    return (words[:, 0].astype(np.int64) * parts) >> 32


@dataclass(frozen=True, repr=False, eq=False)
class Stored:
    """The stored answers of one part of the people, in the order of their keys."""

    keys: np.ndarray  # who, and what
    answers: Integers  # 0 or 1
    payers: Integers  # which of `release_ids` paid for each
    release_ids: tuple[str, ...]  # entries on the ledger

    def places(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return which of some keys have an answer, and where it stands."""
        places = np.searchsorted(self.keys, keys)
        known = places < len(self.keys)
        known[known] = self.keys[places[known]] == keys[known]
        return known, places

    def paid_for(self, keys: np.ndarray) -> frozenset[str]:
        """Return the entries that paid for the answers to some keys."""
        known, places = self.places(keys)
        return frozenset(self.release_ids[at] for at in np.unique(self.payers[places[known]]))


@dataclass(frozen=True)
class AnswerMemo:
    """Stored answers by (person, question), in as many parts as whoever uses it works in."""

    folder: str | None  # where they are; None where there are none and nothing may be written
    parts: int  # 1, or as many as people are brought together in
    # In how many parts the answers of each entry are that may have some: a small run's are one.
    tilings: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def bound(
        cls, path: Path, settings: dict[str, str], tilings: Mapping[str, int], parts: int
    ) -> AnswerMemo:
        """Return the memo at ``path`` if there is one; refuse answers of other settings."""
        place = path / _SETTINGS
        if not place.exists():
            if any(path.glob("*.npy")):
                raise LedgerDamaged(f"{path.name} lacks its {_SETTINGS}. Nothing was released.")
            return cls(None, parts)
        problem = f"{path.name} cannot be used. Nothing was released"
        stated = read_json(place, kind=_FORMAT, version=_VERSION, problem=problem).get("settings")
        if not isinstance(stated, dict):
            raise LedgerDamaged(f"{path.name}/{_SETTINGS} is malformed. Nothing was released.")
        if stated != settings:
            differing = [
                f"{name}={value}" for name, value in settings.items() if stated.get(name) != value
            ]
            raise PrivacyError(
                f"{path.name} holds answers that were randomized with other settings or for "
                f"another ledger (not {', '.join(differing) or 'these'}). A second answer to the "
                "same question would cost again. Nothing was released. Use the same settings, or "
                "another ledger."
            )
        return cls(str(path), parts, tilings)

    @staticmethod
    def make(path: Path, settings: dict[str, str]) -> None:
        """Make the folder that only its owner can read, unless it is there."""
        place = path / _SETTINGS
        with explained(f"{path.name} cannot be made a folder that only you can read"):
            path.mkdir(mode=0o700, exist_ok=True)
            if path.stat().st_mode & _OTHERS:
                path.chmod(0o700)
        if not place.exists() and not any(path.glob("*.npy")):
            content = {"format": _FORMAT, "version": _VERSION, "settings": settings}
            with written_once(place) as draft:
                draft.file.write(to_json(content).encode())

    def has(self, part: int, release_id: str) -> bool:
        """Return whether an entry's answers of one part are stored."""
        return self._path(part, self.parts, release_id).exists()

    def keep(self, part: int, release_id: str, keys: np.ndarray, answers: Integers) -> None:
        """Store an entry's answers of one part durably, unless some are there already."""
        # Whoever calls it must use what `stored` then says, and throw its own away.
        found = np.zeros(len(keys), _ANSWER)
        found["key"], found["answer"] = keys, answers
        self._write(self._path(part, self.parts, release_id), found)

    def stored(self, part: int) -> Stored:
        """Return the stored answers of one part of the people."""
        entries = sorted(self.entries().items())
        files = [self._inside(part, release_id, theirs) for release_id, theirs in entries]
        found = np.concatenate([np.zeros(0, _ANSWER), *files])
        payers = np.repeat(np.arange(len(files)), [len(file) for file in files])
        order = np.argsort(found["key"], kind="stable")
        found = found[order]
        if (found["key"][1:] == found["key"][:-1]).any():
            raise PrivacyError(
                "Two runs answered one question of one person at the same time, as they can where "
                "a file system knows no locks. Nothing was released. Start a new ledger, whose "
                "total is apart from this one."
            )
        return Stored(
            found["key"], found["answer"], payers[order], tuple(name for name, _ in entries)
        )

    def _inside(self, part: int, release_id: str, theirs: set[tuple[int, int]]) -> np.ndarray:
        """Return an entry's answers of one part here, into however many parts it was cut."""
        inside = [np.zeros(0, _ANSWER)]
        for number, parts in sorted(theirs):
            low, high = part * parts, (part + 1) * parts  # of self.parts · parts in all
            if number * self.parts < high and low < (number + 1) * self.parts:
                rows = self._read(self._path(number, parts, release_id))
                inside.append(rows[parts_of(rows["key"], self.parts) == part])
        return np.concatenate(inside)

    def digests(self, release_ids: Iterable[str], part: int) -> dict[tuple[str, int], bytes]:
        """Return a digest of the answers of some entries to one part of the people as they cut."""
        entries, found = self.entries(), {}
        for release_id in release_ids:
            for number, parts in entries.get(release_id, ()):
                if number == part:
                    rows = self._read(self._path(number, parts, release_id))
                    found[release_id, part] = hashlib.sha256(rows.tobytes()).digest()
        return found

    def entries(self) -> dict[str, set[tuple[int, int]]]:
        """Return the entries whose answers are stored, and of which part of how many."""
        found: dict[str, set[tuple[int, int]]] = defaultdict(set)
        if self.folder is not None:
            with explained("The folder of stored answers beside the ledger cannot be read"):
                for name in os.listdir(self.folder):  # noqa: PTH208 (names are wanted)
                    if match := _NAME.fullmatch(name):
                        found[match[3]].add((int(match[1]), int(match[2])))
        return dict(found)

    def close(self, release_ids: Iterable[str]) -> None:
        """Leave an empty file wherever an entry that will never go on has none."""
        # What a lost task of its run still draws is then thrown away.
        known = self.entries()
        for release_id in release_ids:
            parts = self.tilings.get(release_id, 0)  # 0 of another kind of release
            for part in range(parts):
                if (part, parts) not in known.get(release_id, ()):
                    self._write(self._path(part, parts, release_id), np.zeros(0, _ANSWER))

    def tidy(self) -> None:
        """Take away what tasks that were killed had drawn and not stored: nobody saw it."""
        for left in Path(self.folder or "").glob(".*.partial") if self.folder else ():
            left.unlink(missing_ok=True)

    def _path(self, part: int, parts: int, release_id: str) -> Path:
        return Path(self.folder or "") / f"{part:03d}-{parts:03d}-{release_id}.npy"

    @staticmethod
    def _write(path: Path, rows: np.ndarray) -> None:
        with written_once(path) as draft:
            np.save(draft.file, rows, allow_pickle=False)

    @staticmethod
    def _read(path: Path) -> np.ndarray:
        found = None
        with explained(f"{path.name} cannot be read"), suppress(ValueError, EOFError):
            found = np.load(path, allow_pickle=False)
        if (
            not isinstance(found, np.ndarray)
            or (found.dtype, found.ndim) != (_ANSWER, 1)
            or (found["answer"] & ~np.int8(1)).any()
        ):
            raise LedgerDamaged(
                f"{path.name} is not a readable memo of answers. Nothing was released."
            )
        return found
