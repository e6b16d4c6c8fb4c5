"""What has been spent: durable before any noise, never above the budget, edits are seen."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

import numpy as np

from sordino import _random, _validate
from sordino._files import explained, sha256_of, sole_holder
from sordino._markup import card
from sordino.errors import (
    DataError,
    FileSystemError,
    LedgerDamaged,
    LedgerMismatch,
    PrivacyError,
    UsageError,
)
from sordino.privacy.guarantee import (
    Event,
    Guarantee,
    NeighboringRelation,
    Unit,
    anchor,
    never_more,
    size,
)

from . import ledger_chain
from .accounting import EVERYTHING
from .books import EVERY, Account, Books, DataSets, owners_way, refuse_known
from .ledger_chain import LEDGER, Row, canonical_json, ledger_path, list_ledger
from .persons import People, Roster, Rosters

__all__ = ["Head", "Ledger", "Reservation"]

T = TypeVar("T")
Share: TypeAlias = tuple[Event, np.ndarray | None, People | None]
"""A part of what one release spends: an event, and the questions and people it is about."""


def _moment(units: Iterable[Unit]) -> str:
    """Return when a row is written: to the second for labels, else the day alone."""
    # How long reading and fitting took tells of the number of records and of their texts, and of
    # how long people took to answer; the first row comes after reading, like all others.
    return _random.now() if set(units) == {"label"} else _random.today()


class Head(NamedTuple):
    """The anchor of a ledger: digest of its newest row, and how many rows there are."""

    digest: str
    rows: int


@dataclass(frozen=True)
class Reservation:
    """One spend that is already on the ledger: draw now, then :meth:`commit` what came out."""

    ledger: Ledger
    release_id: str

    def commit(self, artifact_digest: str, *, drawn: Iterable[bytes] = ()) -> None:
        """Record the SHA-256 of what was released."""
        self.ledger._outcome("commit", self.release_id, artifact_digest, drawn)  # noqa: SLF001 (its own ledger)

    @property
    def is_noted(self) -> bool:
        """Return whether the same command, given again, would go on with this entry."""
        return self.release_id in self.ledger.own_entries

    def give_up(self) -> None:
        """Let no later run go on with this entry: its drawing was seen to fail."""
        if self.is_noted:
            self.ledger._forget([self.release_id])  # noqa: SLF001 (its own ledger)

    def drawn_once(self, draw: Callable[[], np.ndarray], *, part: int = 0) -> np.ndarray:
        """Return what this entry released: as it was stored, or drawn now and then stored."""
        # Outside `attempt` nothing is stored, and each entry is drawn on once.
        return self.ledger._drawn(self.release_id, part, draw)  # noqa: SLF001 (its own ledger)


@dataclass(frozen=True)
class Charged(Generic[T]):
    """What entries of a ledger paid for."""

    value: T  # what was drawn, as it may be seen
    guarantee: Guarantee  # what it promises
    release_ids: tuple[str, ...]  # the random ids of the entries
    artifact: str  # SHA-256 of the value, as the ledger has it


@runtime_checkable
class Paid(Protocol):
    """Anything that was released: what it promises, which entries paid, and their digest of it."""

    @property
    def guarantee(self) -> Guarantee:
        """Return what it promises."""

    @property
    def release_ids(self) -> tuple[str, ...]:
        """Return the random ids of the entries."""

    @property
    def artifact(self) -> str:
        """Return the SHA-256 that the ledger has of it."""


def provenance(released: Paid) -> dict[str, Any]:
    """Return by name what anything that was released says of that."""
    return {name: getattr(released, name) for name in ("guarantee", "release_ids", "artifact")}


class Ledger:
    """An append-only record of every spend of a project, kept in one SQLite file.

    What is opened counts one data set, known by a name or by its public questions (judgments that
    share one are one data set), and one of the units (label, record, person) under which it may be
    released, each with a budget of its own; :meth:`accounts` tells of all.
    Open it with :meth:`open`; it refuses to spend above its budget, and refuses to open if a
    row was edited. A reservation counts as spent from the moment it is written, whether or not
    anything was drawn afterwards: a crash overcounts, it never undercounts.

    Guarantee:
        Every release that went through this ledger together satisfies the budget, as long as
        the file is the newest one (see :attr:`head`). Shown by tests/soundness/test_ledger.py.

    Example:
        >>> import sordino, tempfile
        >>> budget = sordino.Guarantee(epsilon=2.0, delta=0.0, unit="label",
        ...     neighbors=sordino.REPLACE_ONE, trust="central")
        >>> path = tempfile.mkdtemp() + "/spend.db"
        >>> with sordino.Ledger.open(path, data="answers", budget=budget) as ledger:
        ...     ledger.remaining_epsilon()
        2.0
    """

    def __init__(
        self,
        path: Path,
        rows: Sequence[Row],
        data: str | None = None,
        unit: Unit | None = None,
        rosters: Rosters | None = None,
    ) -> None:
        """Hold verified rows; use :meth:`open` instead."""
        self.path = path
        self._attempt: ledger_chain.Attempt | None = None
        self._rows = list(rows)
        self.rosters = rosters or Rosters(path)
        self._sets = DataSets(rows, self.rosters)
        self._known = ""  # digest of the questions that were asked about last
        # The name that was given, or with which the ledger was made: none where questions decide.
        self._opened: str = rows[0].data if data is None else data
        self._data = self._opened
        self._unit: Unit = next(iter(self.budgets), "label") if unit is None else unit
        # Caveats of what whoever spends has accepted; None where a weak promise is refused.
        self.accepted: tuple[str, ...] | None = None

    @property
    def _books(self) -> Books:
        """Return the books of the data set."""
        return self._sets.of(self._data)[0]

    @classmethod
    @_validate.typed
    def open(
        cls,
        path: str | Path | None = None,
        *,
        data: str | None = None,
        budget: Guarantee | None = None,
        unit: Unit | None = None,
        expected_head: str | None = None,
    ) -> Ledger:
        """Return the ledger at ``path``, verified; create it if there is none.

        Args:
            path: The SQLite file, by convention ``*.db``; by default the project's own, the
                nearest ``.sordino/ledger.db`` in or above the working directory.
            data: Name of the data set, chosen by you; by default that with which the ledger was
                made. Without one its questions say which it is; if private, it may be any.
            budget: The limit on everything spent together on its unit. Needed to create; when the
                data set has a budget for that unit it must be this one (see
                :meth:`change_budget`), and else it is recorded.
            unit: Whose changes are counted; by default the budget's, or the only one that has a
                budget.
            expected_head: A digest noted earlier; a ledger that does not contain it is older
                than the note, and is refused.

        Raises:
            LedgerDamaged: The file was edited, is no ledger, or lacks ``expected_head``.
            UsageError: It must be created and ``budget`` is missing, the budget differs from the
                one on the ledger, or ``unit`` has none or is not said.
            FileSystemError: The file cannot be read or written.
        """
        if path is None:
            path, data = ledger_path(Path.cwd()), EVERY if data is None else data
        path = Path(path)
        if data not in (None, EVERY):  # a number would be read back as another one than was hashed
            ledger_chain.text("data", data)
        if not ledger_chain.exists(path):
            if expected_head is not None:
                raise LedgerDamaged(f"There is no ledger {path.name}, but a head was expected.")
            if budget is None:
                raise UsageError(
                    f"There is no ledger {path.name} yet: to create it, give budget (a Guarantee), "
                    "and data (a name for the data set) if its questions are private."
                )
            cls.create(path, data=data, budget=budget)
        list_ledger(path)
        own = unit if budget is None else budget.unit
        unit = _validate.one_of("unit", unit, (None, own)) or own
        with ledger_chain.connect(path) as connection:
            ledger = cls(path, ledger_chain.verified(connection, path, expected_head), data, unit)
        if budget is None and not ledger.budgets:
            ledger._refuse_no_budget()  # before anything is written
        if unit is None and len(ledger.budgets) > 1:
            raise UsageError(
                f"{path.name} counts {' and '.join(ledger.budgets)} changes. Nothing was done. Say "
                "which are meant: unit=... (--unit)."
            )
        ledger._unit = next(iter(ledger.budgets), "label") if unit is None else unit
        if budget is not None and budget.unit not in ledger.budgets:
            ledger.change_budget(budget, first=True)
        ledger._refuse_no_budget()
        if budget is not None and budget.to_dict() != ledger.budget.to_dict():
            raise UsageError(
                f"{path.name} has a budget of {ledger.budget}; you gave {budget}. Leave budget "
                f"out, or {owners_way('change it', budget, path.name, ledger.data)}."
            )
        return ledger

    @classmethod
    def create(
        cls, path: Path, *, data: str | None = None, budget: Guarantee | None = None
    ) -> Ledger:
        """Return a new ledger, or the one that another process made meanwhile."""
        payload: dict[str, Any] = {"format": ledger_chain.FORMAT, "version": ledger_chain.VERSION}
        if budget is not None:
            payload["budget"] = budget.to_dict()
        values = {
            "data": ledger_chain.text("data", data) if data else EVERY,
            "time": _moment([] if budget is None else [budget.unit]),
            "payload": canonical_json(payload),
        }
        home = path.parent
        if home.name == LEDGER.parent.name and not home.is_dir():  # of a project
            with explained(f"{home.name} cannot be made"):
                home.mkdir(exist_ok=True)
                # A copy in version control would be an older ledger as soon as anything is spent.
                (home / ".gitignore").write_text("*\n")
        with suppress(FileExistsError):
            ledger_chain.create(path, kind="open", **values)
        return cls.read(path)

    @classmethod
    @_validate.typed
    def read(
        cls,
        path: str | Path,
        *,
        data: str | None = None,
        unit: Unit | None = None,
        expected_head: str | None = None,
    ) -> Ledger:
        """Return the ledger at ``path`` for reading: no row is added, no file is left behind.

        Args:
            path: The SQLite file.
            data: Name of the data set; by default the only one there is, or what counts in all.
            unit: Whose changes are counted; by default those of the data set's first budget.
            expected_head: As in :meth:`open`.

        Raises:
            FileSystemError: There is no such file.
            LedgerDamaged: The file was edited, is no ledger, or lacks ``expected_head``.
            LedgerMismatch: It knows no data set of that name.
            UsageError: ``unit`` has no budget on it.
        """
        path = Path(path)
        if not ledger_chain.exists(path):
            raise FileSystemError(f"There is no ledger {path.name} here.")
        with ledger_chain.connect_reader(path) as connection:
            rows = ledger_chain.verified(connection, path, expected_head)
        ledger = cls(path, rows, None, unit)
        names = ledger.data_sets if data is None else (data,)
        ledger = ledger.about(names[0] if len(names) == 1 else EVERY)
        if unit is not None:
            ledger._unit = unit  # noqa: SLF001 (of this class)
            ledger._refuse_no_budget()  # noqa: SLF001 (of this class)
        return ledger

    def is_about(self, data: str) -> bool:
        """Return whether a name is one of this data set's."""
        names = self._sets.names
        return data == self._data or names.get(data, data) == names.get(self._data, self._data)

    @_validate.typed
    def about(self, data: str) -> Ledger:
        """Return the ledger as read for another data set; refuse a name that it does not know."""
        if data != EVERY and data not in self._sets.names:
            raise LedgerMismatch(f"{self.path.name} knows no data set {data!r}.")
        found = self.with_rows(self._rows, data)
        known = self._unit in found.budgets
        return found if known else found.counting(next(iter(found.budgets), self._unit))

    def asked(self, questions: np.ndarray | None) -> Ledger:
        """Return the ledger as a release about some questions would find it; nothing is written.

        Raises:
            PrivacyError: They are of data sets of which what was spent cannot be added up.
        """
        return self._asked(questions)[0]

    def _asked(
        self, questions: np.ndarray | None
    ) -> tuple[Ledger, dict[str, Any], np.ndarray | None]:
        """Return :meth:`asked`, what a row must say of the data set, and which are new in it."""
        name, said, unseen = self._sets.resolved(self.path, self._opened, questions)
        if "joins" not in said and name in {EVERY, *self._sets.names}:
            other = self if name == self._data else copy(self)  # with the same rows
            other._data = name  # noqa: SLF001 (of this class)
            return other, said, unseen
        # without the questions, which are in no file yet
        payload = canonical_json({"joins": said.get("joins", [])})
        row = Row(sequence=0, kind="data", time="", data=name, payload=payload)
        try:
            return self.with_rows([*self._rows, row], name), said, unseen
        except LedgerDamaged:
            raise PrivacyError(
                "These questions are of data sets that were released under relations or kinds of "
                "trust that cannot be added up. Nothing was released."
            ) from None

    def _digest_of(self, questions: np.ndarray) -> str:
        """Return the digest of some questions; refuse those that another ledger here knows."""
        asked = np.asarray(questions)
        if asked.dtype != np.uint64 or not asked.size or (asked[1:] <= asked[:-1]).any():
            raise UsageError("questions must be sorted digests, as pairs.questions has them.")
        digest = ledger_chain.digest_of_questions(questions)
        if digest != self._known:
            refuse_known(self.path, questions)
            self._known = digest
        return digest

    def _refuse_no_budget(self) -> None:
        if self._unit not in self.budgets:
            raise UsageError(
                f"{self.path.name} has no budget for {self._unit} changes. Nothing was done. Have "
                "the data's owner set one: change_budget, or on the command line sordino budget "
                f"set {self._unit} EPSILON."
            )

    def with_rows(
        self, rows: Sequence[Row], data: str | None = None, counted: Unit | None = None
    ) -> Ledger:
        """Return the ledger with other rows, for another data set or unit; nothing is written."""
        whose = self._data if data is None else data
        counted = self._unit if counted is None else counted
        other = Ledger(self.path, rows, whose, counted, self.rosters)
        other.accepted, other._attempt = self.accepted, self._attempt
        return other

    def counting(self, unit: Unit) -> Ledger:
        """Return the ledger as read for another unit, or as it is if that has no budget."""
        return self.with_rows(self._rows, counted=unit) if unit in self.budgets else self

    @contextmanager
    def _writing(self, *units: Unit) -> Iterator[Callable[..., None]]:
        """Hold the write lock, with every row of other processes taken in first."""
        # What is written counts here only when it is durable; if this process is interrupted in
        # between, its next write reads the row from the file.
        if not ledger_chain.exists(self.path):
            raise LedgerDamaged(f"The ledger {self.path.name} is gone. Nothing was released.")
        written: list[Row] = []
        known = (unit for books in self._sets.of(EVERY) for unit in books.budgets)
        time = _moment([*known, *units])

        def write(
            *,
            request: str | None = None,
            questions: np.ndarray | None = None,
            kept: Mapping[str, bytes] | None = None,
            **values: Any,
        ) -> None:
            written.append(ledger_chain.append(connection, self._rows[-1], time=time, **values))
            if request is not None:
                ledger_chain.keep(connection, "attempts", values["release_id"], request)
            if questions is not None and len(questions):
                asked = questions.astype("<u8").tobytes()
                ledger_chain.keep(connection, "questions", written[-1].sequence, asked)
            for digest, value in (kept or {}).items():
                self.rosters.keep()
                ledger_chain.keep(connection, "named", digest, value)

        with ledger_chain.connect(self.path) as connection:
            with ledger_chain.transaction(connection):
                for row in ledger_chain.read_rows(connection, self._rows[-1]):
                    self._take(row)
                yield write
            for row in written:
                self._take(row)

    def _take(self, row: Row) -> None:
        """Take in a durable row: first what it costs, so that an interruption overcounts."""
        self._sets.take(row)
        self._rows.append(row)

    @property
    def data(self) -> str:
        """Return the name of the data set; none where a release counts in every one."""
        return self._data

    @property
    def data_sets(self) -> tuple[str, ...]:
        """Return the oldest name of each data set that the ledger knows."""
        return self._sets.data_sets

    @property
    def unit(self) -> Unit:
        """Return whose changes this ledger was opened to count."""
        return self._unit

    @property
    def budget(self) -> Guarantee:
        """Return the limit that holds now for :attr:`unit`."""
        self._refuse_no_budget()
        return self._books.budgets[self._unit]

    @property
    def budgets(self) -> Mapping[Unit, Guarantee]:
        """Return the limits that hold now, by unit."""
        return MappingProxyType(self._books.budgets)

    def relations(self, unit: Unit) -> set[NeighboringRelation]:
        """Return under what a unit is counted in the data sets that a release counts in."""
        each = [books.budgets.get(unit) for books in self._sets.of(self._data)]
        return {budget.neighbors for budget in each if budget}

    def refuse_other_terms(self, budget: Guarantee) -> None:
        """Refuse a budget that counts something else than the unit's budget before."""
        for books in self._sets.of(EVERY if budget.unit == "person" else self._data):
            books.refuse_other_terms(budget)

    @property
    def head(self) -> Head:
        """Return the digest of the newest row and the number of rows: note it elsewhere."""
        return Head(self._rows[-1].digest, len(self._rows))

    @property
    def rows(self) -> tuple[Row, ...]:
        """Return every row, oldest first."""
        return tuple(self._rows)

    @property
    def spends(self) -> tuple[Row, ...]:
        """Return the rows that spend of this data set, oldest first."""
        rows = (row for row in self._rows if row.kind == "reserve")
        return tuple(row for row in rows if self._sets.counts(row, self._data))

    @property
    def events(self) -> Counter[Event]:
        """Return what was done at most to one of :attr:`unit`: events, and how often each."""
        return self._sets.events(self._data, self._unit)

    @property
    def open_entries(self) -> tuple[str, ...]:
        """Return the entries of the command on its way that it has not gone on with yet."""
        own = self._attempt
        if own is None or not own.held:
            return ()
        return tuple(name for name in own.entries if name not in own.used)

    @property
    def own_entries(self) -> frozenset[str]:
        """Return the entries that the command on its way wrote, or has gone on with."""
        return frozenset() if self._attempt is None else frozenset(self._attempt.used)

    @_validate.typed
    def total(self, *, delta: float | None = None) -> Guarantee | None:
        """Return what all that covers :attr:`unit` promises together; None before any spend.

        Args:
            delta: Failure probability to compose for; the budget's own by default.
        """
        if delta is None:  # of several data sets each may have its own
            limits = [books.budgets.get(self._unit) for books in self._sets.of(self._data)]
            delta = max((each.delta for each in limits if each), default=0.0)
        return self._sets.total(self._data, self._unit, delta)

    def accounts(self, *, delta: float | None = None) -> dict[Unit, Account]:
        """Return for each unit what everything spent so far promises to one that changes.

        Args:
            delta: Failure probability to compose for. By default the budget's own, or that
                of a group of two or four where no epsilon is finite at it.

        Guarantee:
            upper bounds, proved in docs/privacy.md, "Accounts by unit". Shown by
            tests/soundness/test_units.py.
        """
        return self._sets.accounts(self._data, delta)

    def remaining_epsilon(self) -> float:
        """Return the largest further pure epsilon that still fits, by bisection."""
        return min(books.remaining_epsilon(self._unit) for books in self._sets.of(self._data))

    def check(
        self,
        event: Event,
        *,
        promise: Guarantee,
        scope: str = EVERYTHING,
        count: int = 1,
        questions: np.ndarray | None = None,
        people: People | None = None,
    ) -> None:
        """Raise what :meth:`reserve` would raise, and write nothing.

        Raises:
            UsageError: Event, scope or count cannot be written.
            PrivacyError: The unit has no budget, or another relation or stronger trust.
            BudgetExceeded: The total would pass the budget.
        """
        if questions is not None:
            self._digest_of(questions)
        columns = ledger_chain.columns_of(event, promise, scope, count)
        roster = self.roster_of(promise, people)
        own = self._attempt
        if own is None or own.begun(self.spends, columns) is None:  # else paid already
            self.asked(questions)._refuse_excess(event, promise, scope, count, roster)  # noqa: SLF001

    def _refuse_excess(
        self, event: Event, promise: Guarantee, scope: str, count: int, roster: Roster | None
    ) -> None:
        """Refuse what does not belong here, or would pass a budget of a data set it counts in."""
        name = self.path.name
        for books in self._sets.of(self._data):
            books.check(event, promise, scope, count, data=self._data, name=name, roster=roster)

    def roster_of(self, promise: Guarantee, people: People | None) -> Roster | None:
        """Return who takes part as a row names them; nothing is written."""
        if people is None:
            return None
        if promise.hides_texts:
            raise PrivacyError("Only where who answered is public may persons be digested.")
        return self.rosters.made(people, self._sets.mark)

    def reserve(  # noqa: PLR0913 (each says another thing of one release)
        self,
        event: Event,
        *,
        promise: Guarantee,
        scope: str = EVERYTHING,
        count: int = 1,
        questions: np.ndarray | None = None,
        people: People | None = None,
        details: dict[str, Any] | None = None,
        votes: Sequence[bytes] = (),
        needed: Mapping[str, People | None] | None = None,
    ) -> Reservation:
        """Write one spend durably, before its noise is drawn, and return the permission to draw.

        Args:
            event: What the mechanism is about to do.
            promise: What the release promises on its own; its unit must have a budget, and that
                its relation.
            scope: Entries of one scope compose; see :meth:`declare_disjoint`.
            count: How many such events, one after the other, this entry stands for.
            questions: Under unit ``label`` only, digests of what is asked, by which the data set is
                known.
            people: Where who answered is public: who takes part, and how many labels of each the
                entry is about; for a coin per label, how many coins. Nobody else is charged.
            details: Public numbers to keep with the entry (for example person totals).
            votes: Keys of person and question of votes that are to be known again.
            needed: Only for what is drawn answer by answer and stored elsewhere: who would have
                how many coins on each of :attr:`open_entries`; None if it cannot be gone on with.

        Raises:
            UsageError: An argument cannot be written.
            PrivacyError: The promise does not fit this ledger.
            BudgetExceeded: The total would pass the budget.
        """
        if questions is not None and promise.unit != "label":
            raise PrivacyError("Only under unit='label' may questions be digested.")
        columns = ledger_chain.columns_of(event, promise, scope, count)
        release_id = _random.new_release_id()
        payload: dict[str, Any] = {"caveats": list(promise.caveats)}
        payload |= {"details": details} if details else {}
        if questions is not None:
            payload["asked"] = self._digest_of(questions)
        wanted: dict[str, Roster | None] | None = None
        if needed is not None:
            wanted = {name: self.roster_of(promise, these) for name, these in needed.items()}
        own = self._attempt if self._attempt is not None and self._attempt.held else None
        with self._writing() as write:
            # Who is made only now: another process may just have made the secret.
            if (roster := self.roster_of(promise, people)) is not None:
                payload |= {"persons": roster.digest, "secret": self.rosters.mark}
            kept = {} if roster is None else {roster.digest: roster.packed}
            if votes:
                kept |= (noted := self.rosters.noted(votes, self._sets.mark))
                payload |= {"votes": next(iter(noted)), "secret": self.rosters.mark}
            columns["payload"] = ledger_chain.strict_json("details", payload)
            row = None if own is None else own.begun(self.spends, columns)
            if own is not None and row is not None and self._goes_on(row, columns, wanted):
                own.used.add(row.release_id)
                return Reservation(self, row.release_id)
            there, said, unseen = self._asked(questions)
            there._refuse_excess(event, promise, scope, count, roster)  # noqa: SLF001
            columns["payload"] = canonical_json(payload | said)
            self._data = there.data
            beside = {"request": own and own.request, "questions": unseen, "kept": kept}
            write(kind="reserve", data=self._data, release_id=release_id, **beside, **columns)
        if questions is not None:  # of two that spend on two ledgers at once, one sees the other
            refuse_known(self.path, questions)
        if own is not None:
            own.entries.append(release_id)
            own.used.add(release_id)
        return Reservation(self, release_id)

    def charge(  # noqa: PLR0913 (each says another thing of one release)
        self,
        event: Event | Sequence[Share],
        draw: Callable[[], T],
        *,
        digest: Callable[[T], str],
        promise: Guarantee,
        stored: bool = True,
        count: int = 1,
        questions: np.ndarray | None = None,
        people: People | None = None,
        details: dict[str, Any] | None = None,
        votes: Sequence[bytes] = (),
    ) -> Charged[T]:
        """Pay for a draw, make it and record what came out, in this order.

        ``draw`` draws the noise and returns what may be seen, of which ``digest`` is the SHA-256.
        What is ``stored``, which must be an array, the same command gets again after an interrupt;
        what has no privacy is stored nowhere. In place of an event there may be several, each with
        the questions and people that it is about: then an entry pays for each, and the first has
        the votes. The others are those of :meth:`reserve`.

        Raises:
            PrivacyError: The promise does not fit this ledger.
            BudgetExceeded: The total would pass the budget; nothing was drawn.
        """
        shares = [(event, questions, people)] if isinstance(event, Event) else event
        terms: dict[str, Any] = {"promise": promise, "count": count, "details": details}
        paid = [
            self.reserve(one, questions=asked, people=who, votes=() if at else votes, **terms)
            for at, (one, asked, who) in enumerate(shares)
        ]
        # once, whoever pays for what of it
        value = cast("T", paid[0].drawn_once(cast("Any", draw))) if stored else draw()
        artifact = digest(value)
        for reservation in paid:
            reservation.commit(artifact)
        return Charged(value, promise, tuple(entry.release_id for entry in paid), artifact)

    def continuing(self, request: str | None) -> Ledger:
        """Return this ledger as the plan of a command sees it: what that paid for before is free.

        Nothing is written, and no entry is taken over: :meth:`attempt` does that.
        """
        self._attempt = None
        if request is not None:
            self._attempt = ledger_chain.Attempt(request)
            if ledger_chain.exists(self.path):
                with ledger_chain.connect_reader(self.path) as connection:
                    self._attempt.entries = ledger_chain.begun_entries(connection, request)
        return self

    def was_paid(self, event: Event, promise: Guarantee, count: int = 1) -> bool:
        """Return whether an entry of the planned command, if it was interrupted, pays for this.

        The next spend of that kind finds the next entry.
        """
        columns, own = ledger_chain.columns_of(event, promise, EVERYTHING, count), self._attempt
        row = None if own is None else own.begun(self.spends, columns)
        if own is not None and row is not None:
            own.used.add(row.release_id)
        return row is not None

    @contextmanager
    def attempt(self, request: str | None) -> Iterator[None]:
        """Go on with what the same command paid for before it was interrupted, if it was."""
        # Entries that are reserved inside are noted under the name of the command, which is from
        # `ledger_chain.request_of`, or None. If the block ends without an error they are forgotten:
        # whoever gives the command again pays again. Of the same command one runs at a time.
        if request is None:
            yield
            return
        lock = self.path.with_name(f".{self.path.name}.{request[:16]}.lock")
        busy = "The same command is running already. Nothing was done. Let it end."
        with sole_holder(lock, f"{self.path.name} cannot be locked", busy):
            self.continuing(request)
            assert self._attempt is not None  # noqa: S101 - for the type checker
            self._attempt.held = True
            try:
                yield
                if self._attempt.entries:  # else there may be no file
                    self._forget(self._attempt.entries)
            finally:
                self._attempt = None

    def _goes_on(
        self, row: Row, columns: dict[str, Any], needed: Mapping[str, Roster | None] | None
    ) -> bool:
        """Return whether a run may go on with an entry that was written before it."""
        who = json.loads(row.payload).get("persons")
        if needed is None:
            wanted = json.loads(columns["payload"]).get("persons")
            return row.count == columns["count"] and bool(who == wanted)
        roster = needed.get(row.release_id)
        return bool(who and roster is not None and self.rosters[who].covers(roster))

    def _drawn(self, release_id: str, part: int, draw: Callable[[], np.ndarray]) -> np.ndarray:
        """Return what an entry released; see :meth:`Reservation.drawn_once`."""
        if release_id not in self.own_entries:
            return draw()
        with ledger_chain.connect(self.path) as connection:
            known = ledger_chain.stored(connection, release_id, part)
        if known is not None:
            return known
        if release_id in self._sets.committed:
            raise PrivacyError("What this entry released is gone. Nothing was drawn again.")
        try:
            value = draw()
        except Exception:
            self._forget([release_id])
            raise
        with ledger_chain.connect(self.path) as connection, ledger_chain.transaction(connection):
            ledger_chain.keep(connection, "drawn", release_id, part, ledger_chain.packed(value))
        return value

    def _forget(self, release_ids: Sequence[str]) -> None:
        """Let no later run go on with some entries."""
        with ledger_chain.connect(self.path) as connection, ledger_chain.transaction(connection):
            ledger_chain.forget(connection, release_ids)

    def repeat(self, release_id: str, artifact_digest: str, *, drawn: Iterable[bytes] = ()) -> None:
        """Record another artifact made of answers that an earlier entry paid for: it is free."""
        # `drawn` is what the entry drew, as it is stored now; without it nothing but what the entry
        # released itself can be recorded again.
        self._outcome("repeat", release_id, artifact_digest, drawn)

    def _outcome(
        self, kind: str, release_id: str, artifact_digest: str, drawn: Iterable[bytes]
    ) -> None:
        """Record what an entry paid for: as a commit once, as a repeat any number of times."""
        found = {"artifact": ledger_chain.text("artifact_digest", artifact_digest)}
        found |= ledger_chain.digest_of_drawn(drawn)
        payload = canonical_json(found)
        with self._writing() as write:
            if release_id not in self._sets.paid:
                raise LedgerMismatch(
                    f"{self.path.name} holds no entry {release_id!r}: these answers were paid for "
                    "on another ledger. Nothing was released. Use that ledger."
                )
            if kind == "commit" and release_id in self._sets.committed:
                if self._attempt is not None and self._sets.committed[release_id] == found:
                    return  # an interrupted run came as far as this
                raise PrivacyError(
                    "This reservation was already committed: one entry pays for one draw."
                )
            data = self._sets.paid[release_id]
            if kind == "repeat":
                self._sets.refuse_undrawn(release_id, found, self.path.name)
            if kind == "repeat" and EVERY not in {data, self._data} and not self.is_about(data):
                raise LedgerMismatch(
                    f"These answers were paid for as the data set {data!r}, not as {self._data!r}. "
                    "Nothing was released. Use the first name, or start a new ledger."
                )
            write(kind=kind, data=data, release_id=release_id, payload=payload)

    def receive(
        self,
        file: Path,
        manifest: ledger_chain.Arrived,
        *,
        answers: Iterable[tuple[bytes, bytes]] | None = None,
    ) -> str:
        """Record once, at no cost, that data arrived already private; return the entry's id."""
        # `answers` are the keys of person and question of each, which count for that person unless
        # they were paid for here or came before; None leaves persons unprotected. Refused is what
        # would pass the budget of persons, and a file that the manifest is not of.
        promise = manifest.guarantee
        if sha256_of(file) != manifest.sha256:
            raise DataError(
                f"{file.name} is not the file that its manifest is about (its sha256 differs). "
                "Nothing was recorded."
            )
        payload: dict[str, Any] = {
            "artifact": manifest.sha256,
            "promise": promise.to_dict(),
            "caveats": list(promise.caveats),
            "details": {"release": manifest.release_id},
        }
        release_id = _random.new_release_id()
        with self._writing() as write:
            for row in self._rows:
                said = json.loads(row.payload) if row.kind == "receive" else {}
                known = answers is None or not said.keys().isdisjoint({"persons", "counted"})
                if known and said.items() >= payload.items():
                    return row.release_id
            self.asked(None)  # refuses a name under which these rows cannot be added up
            said, kept = self._sets.receive(manifest, answers, self.path.name)
            stored = ledger_chain.strict_json("promise", payload | said)
            write(kind="receive", data=self._data, release_id=release_id, payload=stored, kept=kept)
        return release_id

    def check_receive(
        self, manifest: ledger_chain.Arrived, answers: Iterable[tuple[bytes, bytes]] | None
    ) -> None:
        """Raise what :meth:`receive` would raise of persons, and write nothing."""
        self._sets.receive(manifest, answers, self.path.name)

    @_validate.typed
    def change_budget(self, budget: Guarantee, *, first: bool = False) -> None:
        """Record a new limit, by decision of the data's owner; for another unit, a further one.

        Args:
            budget: The limit on everything spent together on its unit.
            first: Whether to leave one as it is that another process set meanwhile.

        Raises:
            PrivacyError: Relation or trust differ from the unit's budget: those never change.
        """
        with self._writing(budget.unit) as write:
            if first and budget.unit in self.budgets:
                return
            self.refuse_other_terms(budget)
            payload = canonical_json({"budget": budget.to_dict()})
            write(kind="budget", data=self._data, payload=payload)

    def declare_disjoint(self, scopes: Sequence[str], *, rule: str) -> None:
        """Record that scopes share no unit by a public rule, so that only the largest counts.

        It is not checked: every total that rests on it has the caveat ``declared-disjoint``.

        Args:
            scopes: All scopes of the rule, by name, before anything was spent in them. Scopes of
                different declarations may share units, so those add.
            rule: A key of :data:`sordino.privacy.accounting.DISJOINT_RULES`.

        Raises:
            UsageError: The rule does not fit the unit, or a scope was spent in or declared before.
        """
        names = scopes if isinstance(scopes, str) else list(scopes)
        with self._writing() as write:
            for books in self._sets.of(self._data):
                books.check_disjoint(names, rule, self._data)
            payload = canonical_json({"scopes": names, "rule": rule})
            write(kind="disjoint", data=self._data, payload=payload)

    def __enter__(self) -> Ledger:  # noqa: PYI034 (Self cannot be checked at run time)
        return self

    def __exit__(self, *_: object) -> None:  # every write has its own connection
        """Close nothing: what was written is durable."""

    def __repr__(self) -> str:
        return f"Ledger(data={self.data!r}, spent={self.total()}, rows={len(self._rows)})"

    def _repr_html_(self) -> str:
        budget, total = self.budget, self.total()
        promised = total or budget
        return card(
            "Ledger",
            [
                ("data", self.data),
                ("budget", size(budget)),
                ("spent", size(total)),
                ("epsilon left", never_more(self.remaining_epsilon())),
                ("one change", f"{promised.change} ({promised.neighbors.name})"),
                ("trust", promised.trust),
                ("caveats", ", ".join(promised.caveats) or None),
                ("head", anchor(self.head)),
            ],
            simulated=budget.simulated or promised.simulated,
        )
