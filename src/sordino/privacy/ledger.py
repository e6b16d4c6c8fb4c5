"""What has been spent: durable before any noise, never above the budget, edits are seen."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from sordino import _random
from sordino.errors import (
    BudgetExceeded,
    FileSystemError,
    LedgerDamaged,
    LedgerMismatch,
    PrivacyError,
    UsageError,
)
from sordino.privacy import chain
from sordino.privacy.chain import Row, canonical_json
from sordino.privacy.events import Event, event_to_row
from sordino.privacy.guarantee import Guarantee, merge, never_less
from sordino.privacy.spend import Spend, check_disjoint, event_of, promise_of, refuse_mixing

__all__ = ["Head", "Ledger", "Reservation"]


class Head(NamedTuple):
    """The anchor of a ledger: digest of its newest row, and how many rows there are."""

    digest: str
    rows: int


@dataclass(frozen=True)
class Reservation:
    """One spend that is already on the ledger: draw now, then :meth:`commit` what came out."""

    ledger: Ledger
    release_id: str

    def commit(self, artifact_digest: str) -> None:
        """Record the SHA-256 of what was released.

        Raises:
            PrivacyError: This reservation was committed before: one entry, one draw.
        """
        self.ledger._commit(self.release_id, artifact_digest)  # noqa: SLF001 (its own ledger)


class Ledger:
    """An append-only record of every spend on one data set, kept in one SQLite file.

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

    def __init__(self, path: Path, rows: Sequence[Row]) -> None:
        """Hold verified rows; use :meth:`open` instead."""
        self.path = path
        self._rows = list(rows)
        first = json.loads(rows[0].payload)
        self.data: str = first["data"]
        self._spend = Spend()
        for row in rows:
            self._absorb(row)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        data: str | None = None,
        budget: Guarantee | None = None,
        expected_head: str | None = None,
    ) -> Self:
        """Return the ledger at ``path``, verified; create it if there is none.

        Args:
            path: The SQLite file, by convention ``*.db``.
            data: Name of the data set, chosen by you, never derived from a path. Needed to
                create; checked when the ledger exists.
            budget: The limit on everything spent together. Needed to create; when the ledger
                exists it must be the one written there (see :meth:`change_budget`).
            expected_head: A digest noted earlier; a ledger that does not contain it is older
                than the note, and is refused.

        Raises:
            LedgerDamaged: The file was edited, is no ledger, or lacks ``expected_head``.
            LedgerMismatch: It belongs to a data set of another name.
            UsageError: It must be created and ``data`` or ``budget`` is missing, or the budget
                differs from the one on the ledger.
            FileSystemError: The file cannot be read or written.
        """
        path = Path(path)
        if not path.exists():
            if expected_head is not None:
                raise LedgerDamaged(f"There is no ledger {path.name}, but a head was expected.")
            cls._create(path, data, budget)
        with chain.connect(path) as connection:
            ledger = cls(path, chain.verified(connection, path, expected_head))
        ledger.check_data(data, None)
        if budget is not None and budget.to_dict() != ledger.budget.to_dict():
            raise UsageError(
                f"{path.name} has a budget of {ledger.budget}; you gave {budget}. Leave budget "
                "out, or have the data's owner change it with change_budget (it is recorded)."
            )
        return ledger

    @classmethod
    def read(cls, path: str | Path, *, expected_head: str | None = None) -> Self:
        """Return the ledger at ``path`` for reading: nothing on disk is touched.

        Raises:
            FileSystemError: There is no such file.
            LedgerDamaged: The file was edited, is no ledger, or lacks ``expected_head``.
        """
        path = Path(path)
        if not path.is_file():
            raise FileSystemError(f"There is no ledger {path.name} here.")
        with chain.connect(path, read_only=True) as connection:
            return cls(path, chain.verified(connection, path, expected_head))

    @staticmethod
    def _create(path: Path, data: str | None, budget: Guarantee | None) -> None:
        """Write a new ledger; if another process was faster, leave that one be."""
        if not data or budget is None:
            raise UsageError(
                f"There is no ledger {path.name} yet: to create it, give data (a name for the "
                "data set) and budget (a Guarantee)."
            )
        payload = {
            "format": chain.FORMAT,
            "version": chain.VERSION,
            "data": data,
            "budget": budget.to_dict(),
        }
        try:
            chain.create(path, kind="open", time=_random.now(), payload=canonical_json(payload))
        except FileExistsError:
            return

    def _absorb(self, row: Row) -> None:
        """Take one verified row into the running totals."""
        payload = json.loads(row.payload)
        if row.kind in {"open", "budget"}:
            self.budget = Guarantee.from_dict(payload["budget"])
        elif row.kind == "reserve":
            self._spend.add(row.scope, event_of(row), row.count)
        elif row.kind == "disjoint":
            self._spend.disjoint.update(payload["scopes"])
        elif row.kind not in {"commit", "receive", "repeat"}:
            raise LedgerDamaged(f"Row {row.sequence} of {self.path.name} is of an unknown kind.")

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        """Hold the write lock with every row of other processes taken in first."""
        if not self.path.exists():
            raise LedgerDamaged(f"The ledger {self.path.name} is gone. Nothing was released.")
        with chain.connect(self.path) as connection, chain.transaction(connection):
            for row in chain.read_rows(connection, self._rows[-1]):
                self._rows.append(row)
                self._absorb(row)
            yield lambda **values: chain.append(
                connection, self._rows[-1], time=_random.now(), **values
            )

    def _keep(self, row: Row) -> None:
        """Take in a row that this process has just made durable."""
        self._rows.append(row)
        self._absorb(row)

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
        """Return the rows that spend, oldest first."""
        return tuple(row for row in self._rows if row.kind == "reserve")

    @property
    def public_digest(self) -> str | None:
        """Return the digest of the public fields that this ledger is bound to, if any."""
        digests = (json.loads(row.payload).get("public_digest") for row in self.spends)
        return next((digest for digest in digests if digest), None)

    def total(self, *, delta: float | None = None) -> Guarantee | None:
        """Return what everything spent so far promises together; None before any spend.

        Args:
            delta: Failure probability to compose for; the budget's own by default.
        """
        if not self.spends:
            return None
        delta = self.budget.delta if delta is None else delta
        epsilon = self._spend.epsilon(neighbors=self.budget.neighbors, delta=delta)
        return merge((promise_of(row) for row in self.spends), epsilon=epsilon, delta=delta)

    def remaining_epsilon(self) -> float:
        """Return the largest further pure epsilon that still fits, by bisection."""
        return self._spend.remaining_epsilon(self.budget)

    def check(
        self, event: Event, *, promise: Guarantee, scope: str = "all", count: int = 1
    ) -> None:
        """Raise what :meth:`reserve` would raise, and write nothing.

        Raises:
            PrivacyError: The promise is of another unit, relation or weaker trust.
            BudgetExceeded: The total would pass the budget.
        """
        budget = self.budget
        refuse_mixing(budget, promise, self.spends)
        after = self._spend.with_one_more(scope, event, count)
        if not after.fits(budget):
            would = after.epsilon(neighbors=budget.neighbors, delta=budget.delta)
            raise BudgetExceeded(
                f"This release would spend epsilon={never_less(would)} in total, over the budget "
                f"of epsilon={budget.epsilon:g} (delta={budget.delta:g}) in {self.path.name}; "
                f"{self.remaining_epsilon():.6g} is left. Nothing was released. Lower the "
                "mechanism's epsilon, or have the data's owner raise the budget (the ledger "
                "records it)."
            )

    def reserve(
        self,
        event: Event,
        *,
        promise: Guarantee,
        scope: str = "all",
        count: int = 1,
        public_digest: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> Reservation:
        """Write one spend durably, before its noise is drawn, and return the permission to draw.

        Args:
            event: What the mechanism is about to do.
            promise: What the release promises on its own; unit and relation must be the budget's.
            scope: Entries of one scope compose; see :meth:`declare_disjoint`.
            count: How many such events, one after the other, this entry stands for.
            public_digest: Under unit ``label`` only, the digest of the public fields.
            details: Public numbers to keep with the entry (for example person totals).

        Raises:
            PrivacyError: The promise does not fit this ledger.
            BudgetExceeded: The total would pass the budget.
            LedgerMismatch: The public fields are not those of this ledger's data set.
        """
        if public_digest is not None and promise.unit != "label":
            raise PrivacyError("Only under unit='label' may public fields be digested.")
        kind, parameters = event_to_row(event)
        release_id = _random.new_release_id()
        payload: dict[str, Any] = {"caveats": list(promise.caveats)}
        payload |= {"details": details} if details else {}
        payload |= {"public_digest": public_digest} if public_digest else {}
        with self._writing() as write:
            self.check_data(None, public_digest)
            self.check(event, promise=promise, scope=scope, count=count)
            row = write(
                kind="reserve",
                release_id=release_id,
                scope=scope,
                event=kind,
                parameters=canonical_json(parameters),
                count=count,
                unit=promise.unit,
                neighbors=promise.neighbors.name,
                trust=promise.trust,
                randomness=promise.randomness,
                payload=canonical_json(payload),
            )
        self._keep(row)
        return Reservation(self, release_id)

    def check_data(self, data: str | None, public_digest: str | None) -> None:
        """Refuse another data set, by its name or by its public fields.

        Raises:
            LedgerMismatch: Name or public fields differ from the ledger's.
        """
        if data is not None and data != self.data:
            raise LedgerMismatch(
                f"{self.path.name} keeps the spend of the data set {self.data!r}, not of "
                f"{data!r}. Nothing was released. Use that data set's own ledger."
            )
        known = self.public_digest
        if known and public_digest and known != public_digest:
            raise LedgerMismatch(
                f"{self.path.name} belongs to another data set: prompts or answers differ from "
                "those it has seen. Nothing was released. Use that data set's own ledger."
            )

    def _commit(self, release_id: str, artifact_digest: str) -> None:
        """Record what a reservation released, once."""
        with self._writing() as write:
            if any(row.kind == "commit" and row.release_id == release_id for row in self._rows):
                raise PrivacyError(
                    "This reservation was already committed: one entry pays for one draw."
                )
            payload = canonical_json({"artifact": artifact_digest})
            row = write(kind="commit", release_id=release_id, payload=payload)
        self._keep(row)

    def repeat(self, release_id: str, artifact_digest: str) -> None:
        """Record another artifact made of answers that an earlier entry paid for: it is free."""
        payload = canonical_json({"artifact": artifact_digest})
        with self._writing() as write:
            row = write(kind="repeat", release_id=release_id, payload=payload)
        self._keep(row)

    def receive(self, artifact_digest: str, promise: Guarantee) -> str:
        """Record that data arrived already private, at no cost here; return the entry's id.

        Args:
            artifact_digest: SHA-256 of the privatized file.
            promise: What its manifest promises.
        """
        release_id = _random.new_release_id()
        payload = {"artifact": artifact_digest, "promise": promise.to_dict()}
        payload["caveats"] = list(promise.caveats)
        with self._writing() as write:
            row = write(kind="receive", release_id=release_id, payload=canonical_json(payload))
        self._keep(row)
        return release_id

    def change_budget(self, budget: Guarantee) -> None:
        """Record a new limit, by decision of the data's owner.

        Raises:
            PrivacyError: Unit, relation or trust differ from the ledger's: those never change.
        """
        fixed = ("unit", "neighbors", "trust")
        if any(getattr(budget, name) != getattr(self.budget, name) for name in fixed):
            raise PrivacyError(
                "A budget may change in size only: unit, neighbors and trust are the ledger's."
            )
        with self._writing() as write:
            row = write(kind="budget", payload=canonical_json({"budget": budget.to_dict()}))
        self._keep(row)

    def declare_disjoint(self, scopes: Sequence[str], *, rule: str) -> None:
        """Record that scopes share no unit by a public rule, so that only the largest counts.

        Args:
            scopes: Names of scopes, before anything was spent in them.
            rule: A key of :data:`sordino.privacy.spend.DISJOINT_RULES`.

        Raises:
            UsageError: The rule does not fit the unit, or a scope was spent in before.
        """
        check_disjoint(scopes, rule, self.budget)
        with self._writing() as write:
            if set(scopes) & {row.scope for row in self.spends}:
                raise UsageError(
                    "A scope can be declared disjoint only before it is first spent in. Nothing "
                    "was recorded."
                )
            payload = canonical_json({"scopes": list(scopes), "rule": rule})
            row = write(kind="disjoint", payload=payload)
        self._keep(row)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close nothing: every write has its own connection and is durable on return."""

    def __repr__(self) -> str:
        """Return the name, the spend and the head; no path."""
        return f"Ledger(data={self.data!r}, spent={self.total()}, rows={len(self._rows)})"
