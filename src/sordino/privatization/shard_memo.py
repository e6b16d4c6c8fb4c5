"""Stored answers in parts, by person, which many machines may write and none writes twice.

Beside a ledger lies a folder. For every entry that paid, and every part of the people, one file
holds the answers that it paid for; it is written once, whole, and never changed. A task that is
run again, or twice at the same time, finds the file and draws nothing, or what it drew is thrown
away. What a run that died left unwritten is closed before anybody counts what is stored.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import Integer

from sordino._files import explained, read_json, to_json, written_once
from sordino.engines.exchange import PARTS
from sordino.errors import LedgerDamaged, PrivacyError
from sordino.preferences.memo import refuse_other_settings
from sordino.privacy.chain import Row
from sordino.privacy.ledger import Ledger
from sordino.privatization.stored_answers import (
    linked_entries,
    memo_of_parts,
    one_memo,
    refuse_disagreement,
    refuse_loss,
    rows_on_disk,
    shown_entries,
    turn,
)

__all__ = ["KEY", "PartedMemo", "Stored", "agreeing_parts"]

KEY: Final = "S32"
"""128 bits of who answered, and 128 of the question."""

_FORMAT: Final = "sordino.memo"
_VERSION: Final = 1
_ANSWER: Final = np.dtype([("key", KEY), ("answer", "i1")])
_SETTINGS: Final = "settings.json"
_OTHERS: Final = 0o077
_NAME: Final = re.compile(r"(\d{3})-([0-9a-f]+)\.npy")


@dataclass(frozen=True, repr=False, eq=False)
class Stored:
    """The stored answers of one part of the people, in the order of their keys.

    Attributes:
        keys: Who, and what.
        answers: 0 or 1.
        payers: Which of ``release_ids`` paid for each.
        release_ids: Entries on the ledger.
    """

    keys: np.ndarray
    answers: Integer[np.ndarray, " n"]
    payers: Integer[np.ndarray, " n"]
    release_ids: tuple[str, ...]

    def places(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return which of some keys have an answer, and where it stands."""
        places = np.searchsorted(self.keys, keys)
        known = places < len(self.keys)
        known[known] = self.keys[places[known]] == keys[known]
        return known, places


@dataclass(frozen=True)
class PartedMemo:
    """Stored answers by (person, question) in parts, in a folder that all machines see.

    Attributes:
        folder: Where they are; None where there are none and nothing may be written.
    """

    folder: str | None

    def has(self, part: int, release_id: str) -> bool:
        """Return whether an entry's answers of one part of the people are stored."""
        return self._path(part, release_id).exists()

    def keep(
        self, part: int, release_id: str, keys: np.ndarray, answers: Integer[np.ndarray, " n"]
    ) -> None:
        """Store an entry's answers of one part durably, unless some are there already.

        Whoever calls it must use what :meth:`stored` then says, and throw its own away.

        Raises:
            FileSystemError: The folder cannot be written.
        """
        found = np.zeros(len(keys), _ANSWER)
        found["key"], found["answer"] = keys, answers
        with written_once(self._path(part, release_id)) as draft:
            np.save(draft.file, found, allow_pickle=False)

    def stored(self, part: int) -> Stored:
        """Return all stored answers of one part of the people.

        Raises:
            LedgerDamaged: A file is no file of answers.
            FileSystemError: It cannot be read.
        """
        ids = sorted(name for name, parts in self.entries().items() if part in parts)
        files = [self._read(self._path(part, release_id)) for release_id in ids]
        found = np.concatenate([np.zeros(0, _ANSWER), *files])
        payers = np.repeat(np.arange(len(ids)), [len(file) for file in files])
        order = np.argsort(found["key"], kind="stable")
        found = found[order]
        return Stored(found["key"], found["answer"], payers[order], tuple(ids))

    def digests(self, release_ids: Iterable[str], part: int) -> dict[tuple[str, int], bytes]:
        """Return a digest of the answers of some entries to one part of the people.

        Raises:
            LedgerDamaged: A file is no file of answers.
            FileSystemError: It cannot be read.
        """
        paths = {name: self._path(part, name) for name in release_ids if self.has(part, name)}
        return {
            (name, part): hashlib.sha256(self._read(path).tobytes()).digest()
            for name, path in paths.items()
        }

    def entries(self) -> dict[str, set[int]]:
        """Return the entries whose answers are stored, and of which parts of the people.

        Raises:
            FileSystemError: The folder cannot be read.
        """
        found: dict[str, set[int]] = defaultdict(set)
        if self.folder is not None:
            with explained("The folder of stored answers beside the ledger cannot be read"):
                for name in os.listdir(self.folder):  # noqa: PTH208 (names are wanted)
                    if match := _NAME.fullmatch(name):
                        found[match[2]].add(int(match[1]))
        return dict(found)

    def close(self, release_ids: Iterable[str]) -> None:
        """Leave an empty file wherever an entry that will never go on has none.

        What a lost task of its run still draws is then thrown away.

        Raises:
            FileSystemError: The folder cannot be written.
        """
        known = self.entries()
        nothing = np.zeros(0, _ANSWER)
        for release_id in release_ids:
            for part in sorted(set(range(PARTS)) - known.get(release_id, set())):
                self.keep(part, release_id, nothing["key"], nothing["answer"])

    def _path(self, part: int, release_id: str) -> Path:
        """Return the file of an entry and a part."""
        return Path(self.folder or "") / f"{part:03d}-{release_id}.npy"

    @staticmethod
    def _read(path: Path) -> np.ndarray:
        """Return the answers in a file."""
        found: Any = None
        with explained(f"{path.name} cannot be read"):
            try:
                found = np.load(path, allow_pickle=False)
            except (ValueError, EOFError):
                found = None
        if not isinstance(found, np.ndarray) or found.dtype != _ANSWER:
            raise LedgerDamaged(
                f"{path.name} is not a readable memo of answers. Nothing was released."
            )
        return found


@contextmanager
def agreeing_parts(
    ledger: Ledger, *, settings: Mapping[str, str], dry_run: bool
) -> Iterator[PartedMemo]:
    """Yield the memo in parts beside a ledger; no other run uses it until the block ends.

    It lies in the folder ``NAME.memo`` and does for many machines what
    :func:`~sordino.privatization.stored_answers.agreeing_memo` does for one. A ledger has one of
    the two.

    Args:
        ledger: Whose entries paid for the stored answers.
        settings: What answers are drawn with; they cannot be mixed.
        dry_run: Only look: nothing on disk is touched, and nobody is waited for.

    Raises:
        PrivacyError: The memo is gone or older than the ledger, or holds answers that were paid
            for elsewhere, or were drawn with other settings; or the answers of this ledger are in
            a memo of the other kind.
        LedgerDamaged: The folder is no memo.
        FileSystemError: It cannot be read or written, or another process does not let go of it.
    """
    path = memo_of_parts(ledger)
    with nullcontext() if dry_run else turn(path.with_name(f"{path.name}.lock")):
        if one_memo(ledger).exists():
            raise PrivacyError(
                f"The answers that people gave before are in {one_memo(ledger).name}, which one "
                "machine alone can use. Nothing was released. Answer these in the same way "
                "(without an engine), or use another ledger."
            )
        rows = list(rows_on_disk(ledger))
        refuse_loss(path, rows)
        known = _bound(path, dict(settings), dry_run=dry_run)
        memo = PartedMemo(str(path) if known else None)
        _refuse_disagreement(path, memo, rows)
        if dry_run:
            yield memo
            return
        memo.close(sorted(_unfinished(rows) - set(ledger.open_entries)))
        try:
            yield memo
        finally:
            _tidy(path)


def _bound(path: Path, settings: dict[str, str], *, dry_run: bool) -> bool:
    """Return whether there is a folder bound to these settings; make it unless for a dry run."""
    place = path / _SETTINGS
    if not dry_run:
        _make_own(path)
    if not dry_run and not place.exists():
        if any(path.glob("*.npy")):
            raise LedgerDamaged(f"{path.name} lacks its {_SETTINGS}. Nothing was released.")
        content = {"format": _FORMAT, "version": _VERSION, "parts": PARTS, "settings": settings}
        with written_once(place) as draft:
            draft.file.write(to_json(content).encode())
    if not dry_run:
        _tidy(path)
    if not place.exists():
        return False
    problem = f"{path.name} cannot be used. Nothing was released"
    found = read_json(place, kind=_FORMAT, version=_VERSION, problem=problem)
    stated = found.get("settings")
    if found.get("parts") != PARTS or not isinstance(stated, dict):
        raise LedgerDamaged(f"{path.name}/{_SETTINGS} is malformed. Nothing was released.")
    refuse_other_settings(path, stated, settings)
    return True


def _make_own(path: Path) -> None:
    """Make the folder if there is none, and see that only this user can look into it.

    Raises:
        FileSystemError: It cannot be made, or others can read it and it cannot be changed.
    """
    with explained(f"{path.name} cannot be made a folder that only you can read"):
        path.mkdir(mode=0o700, exist_ok=True)
        if path.stat().st_mode & _OTHERS:
            path.chmod(0o700)


def _tidy(path: Path) -> None:
    """Take away what tasks that were killed had drawn and not stored: nobody saw it."""
    for left in path.glob(".*.partial"):
        left.unlink(missing_ok=True)


def _unfinished(rows: Iterable[Row]) -> set[str]:
    """Return the entries of runs that stopped, and of which nothing was shown."""
    rows = list(rows)
    return linked_entries(rows) - shown_entries(rows)


def _refuse_disagreement(path: Path, memo: PartedMemo, rows: list[Row]) -> None:
    """Refuse a memo and a ledger that do not belong together, or a part that is missing."""
    entries = memo.entries()
    refuse_disagreement(path, set(entries), rows)
    whole = {name for name, parts in entries.items() if parts >= set(range(PARTS))}
    refuse_disagreement(path, whole, rows)
