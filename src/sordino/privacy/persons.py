"""Who took part in which release, under digests that only the project can make.

Where who answered is public, a release says how many judgments of each person it is about, and
what all releases promise together to one person is the largest over persons of what was spent on
the judgments of that one. The proof is in docs/privacy.md, "Persons".
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64, UInt64

from sordino import _random
from sordino._files import explained, settle
from sordino.errors import LedgerMismatch, UsageError

from . import ledger_chain
from .guarantee import Event, NeighboringRelation, Unit
from .project import secret_path

_BYTES = 16  # of the key of a person that a digest is made of


class People(NamedTuple):
    """Persons, who are public here, and how many of their judgments a release is about."""

    keys: bytes  # 128 bits of the key of each person
    counts: Int64[np.ndarray, " k"]  # how many judgments of each, at least 1

    @classmethod
    def of(cls, keys: Iterable[bytes], *, most: int | None = None) -> People:
        """Return persons by their keys, each as often as it comes up and at most so often."""
        found = Counter(key[:_BYTES] for key in keys)
        counts = np.fromiter(found.values(), np.int64, len(found))
        return cls(b"".join(found), counts if most is None else np.minimum(counts, most))

    @classmethod
    def counted(cls, keys: np.ndarray, counts: np.ndarray) -> People:
        """Return persons by an array of 128 bits each; those without a judgment are left out."""
        return cls(keys[counts > 0].tobytes(), counts[counts > 0].astype(np.int64))

    def plus(self, other: People) -> People:
        """Return the persons of two groups that share none."""
        return People(self.keys + other.keys, np.concatenate([self.counts, other.counts]))


class Roster(NamedTuple):
    """The same, as a ledger has it."""

    digests: UInt64[np.ndarray, " k"]  # 64 bits of the keyed digest of each person, ascending
    counts: Int64[np.ndarray, " k"]

    @classmethod
    def added(cls, digests: np.ndarray, counts: np.ndarray) -> Roster:
        """Return a roster; two persons who look alike count as one: too much, never too little."""
        known, where = np.unique(digests, return_inverse=True)
        return cls(known, np.bincount(where, counts, len(known)).astype(np.int64))

    @classmethod
    def read(cls, value: bytes) -> Roster:
        """Return what :attr:`packed` was made of."""
        digests, counts = np.frombuffer(value, "<u8").reshape(2, -1)
        return cls(digests.astype(np.uint64), counts.astype(np.int64))

    @property
    def packed(self) -> bytes:
        """Return it in bytes."""
        return self.digests.astype("<u8").tobytes() + self.counts.astype("<u8").tobytes()

    @property
    def digest(self) -> str:
        """Return the SHA-256 by which a row names it."""
        return hashlib.sha256(self.packed).hexdigest()

    def counts_of(self, digests: np.ndarray) -> Int64[np.ndarray, " k"]:
        """Return how many judgments each of some persons has here: 0 of who is not in it."""
        if not len(self.digests):
            return np.zeros(len(digests), np.int64)
        at = np.minimum(np.searchsorted(self.digests, digests), len(self.digests) - 1)
        return np.where(self.digests[at] == digests, self.counts[at], 0)

    def covers(self, other: Roster) -> bool:
        """Return whether every person of another roster is in this one, as often or more."""
        return bool((self.counts_of(other.digests) >= other.counts).all())


class Rosters:
    """The rosters of a ledger's rows by their digests, and the secret that they are made with."""

    def __init__(self, path: Path) -> None:
        """Know where the ledger is; nothing is read yet."""
        self._path = path
        self._known: dict[str, Roster] = {}
        self._secret = b""

    def of(self, digests: Iterable[str]) -> list[Roster]:
        """Return the rosters that rows name; refuse others."""
        wanted = list(digests)
        if missing := [digest for digest in wanted if digest not in self._known]:
            with ledger_chain.connect_reader(self._path) as connection:
                for digest in missing:
                    self._known[digest] = Roster.read(ledger_chain.named(connection, digest))
        return [self._known[digest] for digest in wanted]

    def __getitem__(self, digest: str) -> Roster:
        """Return one of them."""
        return self.of([digest])[0]

    def made(self, people: People, mark: str | None, *, durable: bool) -> Roster:
        """Return the roster of some people, which rows may then name.

        Args:
            people: The persons.
            mark: :attr:`mark` as a row of the ledger has it, if there is one.
            durable: Whether a secret that is made now is kept.
        """
        if (people.counts < 1).any():
            raise UsageError("A person in a release has at least one judgment in it.")
        self._unlock(mark, durable=durable)
        keys = people.keys
        each = (keys[at : at + _BYTES] for at in range(0, len(keys), _BYTES))
        digests = b"".join(self._keyed(key) for key in each)
        roster = Roster.added(np.frombuffer(digests, "<u8"), people.counts)
        self._known[roster.digest] = roster
        return roster

    def arrived(
        self, coins: Iterable[tuple[bytes, bytes]], known: Iterable[str], mark: str | None
    ) -> tuple[Roster, bytes]:
        """Return who has coins that were in no earlier file, how many, and digests of all coins.

        Args:
            coins: Key of the person and of the question of each.
            known: Digests of the digests of coins that arrived before.
            mark: As in :meth:`made`.
        """
        self._unlock(mark, durable=True)
        held = {self._keyed(person[:_BYTES] + what, _BYTES): person for person, what in coins}
        beside = b"".join(sorted(held))
        for digest in known:
            with ledger_chain.connect_reader(self._path) as connection:
                earlier = ledger_chain.named(connection, digest)
            for at in range(0, len(earlier), _BYTES):
                held.pop(earlier[at : at + _BYTES], None)
        return self.made(People.of(held.values()), mark, durable=True), beside

    def _keyed(self, key: bytes, size: int = 8) -> bytes:
        return hashlib.blake2b(key, digest_size=size, key=self._secret).digest()

    @property
    def mark(self) -> str:
        """Return what tells the secret from others, and nothing of it."""
        return self._keyed(b"sordino").hex()

    def _unlock(self, mark: str | None, *, durable: bool) -> None:
        """Read the secret of the project, or make it."""
        # Without it the digests say nothing: who has the ledger cannot try out names.
        path = secret_path(self._path)
        with explained(f"{path.name} cannot be read or written"):
            if durable and mark is None and not path.exists():
                draft = path.with_name(f".{path.name}.{_random.new_release_id()}")
                draft.touch(0o600, exist_ok=False)
                with draft.open("w") as file:
                    file.write(_random.new_token())
                    file.flush()
                    os.fsync(file.fileno())
                with suppress(FileExistsError):  # of another process, just now
                    os.link(draft, path)
                draft.unlink()
                settle(path.parent)
            if path.exists():
                self._secret = hashlib.sha256(path.read_bytes().strip()).digest()
        self._secret = self._secret or hashlib.sha256(_random.new_token().encode()).digest()
        if mark not in {None, self.mark}:
            raise LedgerMismatch(
                f"{path.name} beside {self._path.name} is gone or another one: the ledger would "
                "not know again who took part before. Nothing was released. Restore it."
            )


class Use(NamedTuple):
    """What was done to the judgments of a person, whoever it is."""

    scope: str
    event: Event
    unit: Unit  # what it was analyzed for
    neighbors: NeighboringRelation
    labels: int  # how many of its units one person has in it


Uses = Counter[Use]


class Classes:
    """Everybody by what was done to them: persons of one class were in the same releases."""

    def __init__(self) -> None:
        """Begin with nobody."""
        self._persons = np.zeros(0, np.uint64)
        self._class_of = np.zeros(0, np.int64)
        self._uses: list[Uses] = [Uses()]  # of each class; the first is of those in no release
        self._numbers: dict[frozenset[tuple[Use, int]], int] = {frozenset(): 0}

    def __len__(self) -> int:
        return len(self._persons)

    def _classes(self, roster: Roster) -> Int64[np.ndarray, " k"]:
        """Return the class of each person of a roster."""
        at = np.searchsorted(self._persons, roster.digests)
        known = at < len(self._persons)
        known[known] = self._persons[at[known]] == roster.digests[known]
        found = np.zeros(len(roster.digests), np.int64)
        found[known] = self._class_of[at[known]]
        return found

    def _moved(
        self, roster: Roster, use: Callable[[int], tuple[Use, int]]
    ) -> tuple[list[tuple[Uses, Uses]], np.ndarray]:
        """Return from which uses to which a release moves persons, and which move is whose."""
        pairs = np.stack([self._classes(roster), roster.counts])
        moves, whose = np.unique(pairs, axis=1, return_inverse=True)
        found = []
        for number, labels in moves.T.tolist():
            key, count = use(labels)
            after = self._uses[number].copy()
            after[key] += count
            found.append((self._uses[number], after))
        return found, whose.reshape(-1)

    def add(self, roster: Roster, use: Callable[[int], tuple[Use, int]]) -> None:
        """Take in a release: ``use`` says what it did to who has so many judgments in it."""
        moves, whose = self._moved(roster, use)
        numbers = []
        for _, after in moves:
            number = self._numbers.setdefault(frozenset(after.items()), len(self._uses))
            if number == len(self._uses):
                self._uses.append(after)
            numbers.append(number)
        persons = np.union1d(self._persons, roster.digests)
        classes = np.zeros(len(persons), np.int64)
        classes[np.searchsorted(persons, self._persons)] = self._class_of
        classes[np.searchsorted(persons, roster.digests)] = np.array(numbers)[whose]
        self._persons, self._class_of = persons, classes

    def most(self, roster: Roster | None = None) -> list[Uses]:
        """Return what was done to whom it was surely not less than to another, of some or all."""
        classes = self._class_of if roster is None else self._classes(roster)
        held = [self._uses[number] for number in np.unique(classes)] or self._uses[:1]
        return [held[index] for index in _most_exposed(held)]

    def most_after(
        self, roster: Roster, use: Callable[[int], tuple[Use, int]]
    ) -> list[tuple[Uses, Uses]]:
        """Return the same of those whom one more release is about, before and after it."""
        moves = self._moved(roster, use)[0]
        return [moves[index] for index in _most_exposed([after for _, after in moves])]


def _most_exposed(held: list[Uses]) -> list[int]:
    """Return the places of those of whom no other one had everything done, as much or more."""
    # A release about more judgments of a person shows as much as one about fewer, and more often
    # is more. So one lies below another if for every number of judgments it had as many releases
    # about at least so many, or fewer. Those are left out, which changes no maximum.
    sizes: dict[Use, set[int]] = {}
    for uses in held:
        for use in uses:
            sizes.setdefault(use._replace(labels=0), set()).add(use.labels)
    columns = {
        use._replace(labels=size): place
        for place, (use, size) in enumerate(
            (use, size) for use, known in sizes.items() for size in sorted(known)
        )
    }
    table = np.zeros((len(held), len(columns)), np.int64)
    for row, uses in enumerate(held):
        for use, count in uses.items():
            for size in sizes[use._replace(labels=0)]:
                if size <= use.labels:
                    table[row, columns[use._replace(labels=size)]] += count
    kept: list[int] = []
    for row in np.argsort(-table.sum(axis=1), kind="stable").tolist():
        if not (table[kept] >= table[row]).all(axis=1).any():
            kept.append(row)
    return kept
