"""Who took part in which release, under digests that only the project can make.

Where who answered is public, a release says how many judgments of each person it is about, and
what all releases promise together to one person is the largest over persons of what was spent on
the judgments of that one. The proof is in docs/privacy.md, "Persons".
"""

from __future__ import annotations

import hashlib
import heapq
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Int64, UInt64

from sordino import _random
from sordino._files import explained, settle
from sordino.errors import LedgerMismatch, UsageError

from . import ledger_chain
from .guarantee import Event, NeighboringRelation, Unit
from .ledger_chain import secret_path

KEY_BYTES: Final = 16
"""Of the key of a person that a digest is made of."""

_SHORT = 8  # of the keyed digest of a person, or of a vote
_TOKEN = re.compile(rb"[\w-]{40,}")  # what the file of a secret holds
_MOST_COMPOSED = 16  # compositions for one total: a few, unless nobody had nearly as much as all


class People(NamedTuple):
    """Persons, who are public here, and how many of their judgments a release is about."""

    keys: bytes  # 128 bits of the key of each person
    counts: Int64[np.ndarray, " k"]  # how many judgments of each, at least 1

    @classmethod
    def of(cls, keys: Iterable[bytes], *, most: int | None = None) -> People:
        """Return persons by their keys, each as often as it comes up and at most so often."""
        found = Counter(key[:KEY_BYTES] for key in keys)
        counts = np.fromiter(found.values(), np.int64, len(found))
        return cls(b"".join(found), counts if most is None else np.minimum(counts, most))

    @classmethod
    def counted(cls, keys: np.ndarray, counts: np.ndarray) -> People:
        """Return persons by an array of 128 bits each; those without a judgment are left out."""
        return cls(keys[counts > 0].tobytes(), counts[counts > 0].astype(np.int64))

    def plus(self, *others: People) -> People:
        """Return the persons of groups that share none."""
        keys, counts = zip(self, *others, strict=True)
        return People(b"".join(keys), np.concatenate(counts))


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
        self._path = path
        self._known: dict[str, Roster] = {}
        self._secret = b""
        self._kept = False  # whether the secret is in its file

    def of(self, digests: Iterable[str]) -> list[Roster]:
        """Return the rosters that rows name; refuse others."""
        wanted = list(digests)
        missing = [digest for digest in wanted if digest not in self._known]
        for digest, value in zip(missing, self._stored(missing), strict=True):
            self._known[digest] = Roster.read(value)
        return [self._known[digest] for digest in wanted]

    def _stored(self, digests: Sequence[str]) -> list[bytes]:
        """Return what rows of the ledger name by some digests."""
        if not digests:  # and there may be no file yet
            return []
        with ledger_chain.connect_reader(self._path) as connection:
            return [ledger_chain.beside(connection, "named", each, each) for each in digests]

    def __getitem__(self, digest: str) -> Roster:
        return self.of([digest])[0]

    def made(self, people: People, mark: str | None) -> Roster:
        """Return the roster of some people, which rows may then name; nothing is written."""
        # The mark is the one that a row of the ledger has, if any does.
        if (people.counts < 1).any():
            raise UsageError("A person in a release has at least one judgment in it.")
        self.refuse_other_secret(mark)
        keys = people.keys
        each = (keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES))
        digests = b"".join(self._keyed(key) for key in each)
        roster = Roster.added(np.frombuffer(digests, "<u8"), people.counts)
        self._known[roster.digest] = roster
        return roster

    def arrived(
        self, coins: Iterable[tuple[bytes, bytes]], known: Sequence[str], mark: str | None
    ) -> tuple[Roster, bytes]:
        """Return who has coins that were in no earlier file, how many, and digests of all coins."""
        # Of each coin it takes the keys of person and question, and of those that arrived before
        # digests of their digests.
        self.refuse_other_secret(mark)
        held = {self._keyed(person[:KEY_BYTES] + what, KEY_BYTES): person for person, what in coins}
        beside = b"".join(sorted(held))
        for earlier in self._stored(known):
            for at in range(0, len(earlier), KEY_BYTES):
                held.pop(earlier[at : at + KEY_BYTES], None)
        return self.made(People.of(held.values()), mark), beside

    def noted(self, votes: Iterable[bytes], mark: str | None) -> dict[str, bytes]:
        """Return what is kept of some votes, so that they are known again, by its digest."""
        # Of each vote it takes the keys of person and question.
        self.refuse_other_secret(mark)
        packed = b"".join(sorted({self._keyed(vote) for vote in votes}))
        return {hashlib.sha256(packed).hexdigest(): packed}

    def places(
        self, votes: Iterable[bytes], notes: Sequence[str], mark: str | None
    ) -> tuple[Int64[np.ndarray, " n"], list[int]]:
        """Return in which list every vote was noted, −1 in none, and how many each list has."""
        self.refuse_other_secret(mark)
        known: dict[bytes, int] = {}
        for place, value in enumerate(self._stored(notes)):
            for at in range(0, len(value), _SHORT):
                known.setdefault(value[at : at + _SHORT], place)
        found = [known.get(self._keyed(vote), -1) for vote in votes]
        return np.array(found, np.int64), [*map([*known.values()].count, range(len(notes)))]

    def _keyed(self, key: bytes, size: int = _SHORT) -> bytes:
        return hashlib.blake2b(key, digest_size=size, key=self._secret[:64]).digest()

    @property
    def mark(self) -> str:
        """Return what tells the secret from others, and nothing of it."""
        return self._keyed(b"sordino").hex()

    def refuse_other_secret(self, mark: str | None) -> None:
        """Read the secret of the project, or think of one; refuse one that made other digests."""
        # Without it the digests say nothing: who has the ledger cannot try out names.
        path = secret_path(self._path)
        with explained(f"{path.name} cannot be read"):
            self._kept = path.exists()
            kept = path.read_bytes() if self._kept else b""
        if self._kept or not self._secret:
            self._secret = kept if self._kept else _random.new_token().encode()
        if mark not in {None, self.mark} or not _TOKEN.fullmatch(self._secret):
            raise LedgerMismatch(
                f"{path.name} beside {self._path.name} is gone or another one: the ledger would "
                "not know again who took part before. Nothing was released. Restore it."
            )

    def keep(self) -> None:
        """Keep the secret durably, before a row is written that needs it."""
        path, mark = secret_path(self._path), self.mark
        with explained(f"{path.name} cannot be written"):
            if not self._kept:
                draft = path.with_name(f".{path.name}.{_random.new_release_id()}")
                draft.touch(0o600, exist_ok=False)
                with draft.open("wb") as file:
                    file.write(self._secret)
                    file.flush()
                    os.fsync(file.fileno())
                # Another process that spends on another ledger may have been first, and tidied.
                with suppress(FileExistsError, FileNotFoundError):
                    os.link(draft, path)
                settle(path.parent)
            for left in path.parent.glob(f".{path.name}.{'[0-9a-f]' * 16}"):  # also by the killed
                left.unlink(missing_ok=True)
        self.refuse_other_secret(mark)


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
        self._persons = np.zeros(0, np.uint64)
        self._class_of = np.zeros(0, np.int64)
        self._uses: list[Uses] = [Uses()]  # of each class; the first is of those in no release
        self._numbers: dict[frozenset[tuple[Use, int]], int] = {frozenset(): 0}

    def __len__(self) -> int:
        return len(self._persons)

    def _classes(self, roster: Roster) -> Int64[np.ndarray, " k"]:
        """Return the class of each person of a roster."""
        # They are found as the numbers of judgments in a roster are, and who is nowhere is in 0.
        return Roster(self._persons, self._class_of).counts_of(roster.digests)

    def _moved(
        self, roster: Roster, use: Callable[[int], tuple[Use, int]]
    ) -> tuple[list[tuple[Uses, Uses]], np.ndarray]:
        """Return from which uses to which a release moves persons, and which move is whose."""
        more = int(roster.counts.max(initial=0)) + 1
        both = self._classes(roster) * more + roster.counts
        moves, whose = np.unique(both, return_inverse=True)
        found = []
        for number, labels in (divmod(move, more) for move in moves.tolist()):
            key, count = use(labels)
            after = self._uses[number].copy()
            after[key] += count
            found.append((self._uses[number], after))
        return found, whose

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

    def done(self, roster: Roster | None = None) -> Exposures:
        """Return what was done to whom, of some or of all."""
        classes = self._class_of if roster is None else self._classes(roster)
        return Exposures([self._uses[number] for number in np.unique(classes)] or self._uses[:1])

    def done_after(self, roster: Roster, use: Callable[[int], tuple[Use, int]]) -> Exposures:
        """Return the same of those whom one more release is about, with that."""
        return Exposures([after for _, after in self._moved(roster, use)[0]] or self._uses[:1])


class Exposures:
    """What was done to each of some persons, to find out who is most exposed."""

    # A release about more judgments of a person shows as much as one about fewer, and more often is
    # more. So a column of the table counts the releases of one kind that were about at least so
    # many, and whoever has no less in any column is exposed no less. The largest in each column of
    # some rows is what nobody among them exceeds: mostly somebody has just that, and one
    # composition tells. Else the rows are halved, and the half that may have more comes first.

    def __init__(self, held: list[Uses]) -> None:
        """Take in the uses of each class of persons."""
        sizes: dict[Use, set[int]] = {}
        for use in set().union(*held):
            sizes.setdefault(use._replace(labels=0), set()).add(use.labels)
        self._columns = [
            use._replace(labels=size) for use, known in sizes.items() for size in sorted(known)
        ]
        places = {use: place for place, use in enumerate(self._columns)}
        self._table = np.zeros((len(held), len(places)), np.int64)
        for row, uses in enumerate(held):
            for use, count in uses.items():
                for size in sizes[use._replace(labels=0)]:
                    if size <= use.labels:
                        self._table[row, places[use._replace(labels=size)]] += count

    def _uses(self, row: np.ndarray) -> Uses:
        """Return a row of the table as it was made."""
        found = Uses()
        for place, use in enumerate(self._columns):
            following = self._columns[place + 1 : place + 2]
            more = following and following[0]._replace(labels=0) == use._replace(labels=0)
            if count := int(row[place] - (row[place + 1] if more else 0)):
                found[use] = count
        return found

    @property
    def together(self) -> Uses:
        """Return uses that nobody exceeds."""
        return self._uses(self._table.max(axis=0))

    def largest(
        self, size: Callable[[Uses], float], *, at_most: float = -math.inf
    ) -> tuple[float, Uses]:
        """Return the largest size of anybody and whose it is, or what nobody exceeds."""
        # More uses never lower a size; if none is above `at_most`, nobody need be looked at.
        table = self._table
        waiting = [(-size(self.together), 0, np.arange(len(table)))]
        composed = 1
        while True:
            bound, _, rows = heapq.heappop(waiting)
            together = table[rows].max(axis=0)
            attained = bool((table[rows] == together).all(axis=1).any())
            if attained or -bound <= at_most or composed >= _MOST_COMPOSED:
                return -bound, self._uses(together)
            spread = together - table[rows].min(axis=0)
            column = table[rows, int(spread.argmax())]
            above = column > (int(column.max()) + int(column.min())) // 2
            for half in (rows[above], rows[~above]):
                worst = size(self._uses(table[half].max(axis=0)))
                composed += 1
                heapq.heappush(waiting, (-worst, composed, half))
