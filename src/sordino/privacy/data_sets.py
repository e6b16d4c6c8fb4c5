"""The data sets of a project, as its ledger knows them, and what counts in which of them.

Judgments that share a question are one data set, whatever they are called: each release of any of
them counts in it. A release whose questions are private, and that names no data set, counts in
every one. A person may have judged in several, so persons have one account for all. The proof is in
docs/privacy.md, "Data sets".
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np

from sordino.errors import LedgerDamaged, LedgerMismatch, PrivacyError

from . import ledger_chain
from .books import UNITS, Account, Books, Spent, names_of, names_persons
from .guarantee import (
    DECLARED_DISJOINT,
    REPLACE_ONE,
    Guarantee,
    PureEvent,
    RandomizedResponseEvent,
    Unit,
    event_from_row,
    event_to_row,
    merge,
)
from .ledger_chain import Arrived, Row, canonical_json
from .persons import Rosters
from .project import other_ledgers

EVERY = ""
"""In place of the name of a data set: the questions are private, so it may be any of them."""

_UNNAMED = "preferences"  # the data set that nobody named
_NOT_OURS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    PrivacyError,
    RecursionError,
    TypeError,
    ValueError,
)  # what reading a value that this library never writes may raise


class DataSets:
    """The books of every data set on one ledger; every row is checked as it is taken in."""

    def __init__(self, rows: Iterable[Row], rosters: Rosters) -> None:
        """Take in all rows of a ledger."""
        self.names: dict[str, str] = {}  # every name, and the oldest of the same data set
        self.questions: list[Row] = []  # the rows that say which questions are whose
        self.paid: dict[str, str] = {}  # ids of the entries that spent or received, and of what
        self.committed: dict[str, dict[str, str]] = {}  # what entries released, by their ids
        self.persons = Spent("person", rosters)
        self.mark: str | None = None  # of the secret that persons are known by
        self.artifacts: set[str] = set()  # digests of what was released from this ledger
        self._unnamed: dict[str, list[str]] = {}  # ids of arrivals that name nobody, by artifact
        # Digests of the coins that arrived, by what they were drawn with.
        self.arrived: dict[tuple[str, str, str], list[str]] = {}
        self._books = {EVERY: Books(EVERY, self.persons)}
        self._entered: list[tuple[Row, dict[str, Any]]] = []
        self._opened = False
        for row in rows:
            self.take(row)

    @property
    def data_sets(self) -> tuple[str, ...]:
        """Return the data sets by their oldest names."""
        return tuple(name for name in self._books if name != EVERY)

    def of(self, data: str) -> tuple[Books, ...]:
        """Return the books that a release of a data set counts in, its own first."""
        if data == EVERY:
            return tuple(self._books.values())
        return (self._books[self.names.get(data, EVERY)],)

    def take(self, row: Row) -> None:
        """Take in the next row."""
        try:
            payload = {**json.loads(row.payload), **json.loads(row.parameters)}
            if (row.kind == "open") is self._opened:  # the first row, and no other
                raise LookupError(row.kind)
            self._opened = True
            if row.kind not in {"commit", "repeat"}:  # which have what they are about
                self._name(row, names_of(payload.get("joins", [])))
            if "questions" in payload:
                self.questions.append(row)
            if payload.get("secret", self.mark) != (self.mark or payload.get("secret")):
                raise LookupError("secret")  # persons would not be known again
            self.mark = payload.get("secret", self.mark)
            if row.kind == "open" and "budget" in payload:
                self._enter(replace(row, kind="budget"), payload)
            elif row.kind in {"commit", "repeat", "receive"}:
                self._outcome(row, payload)
            elif row.kind != "open" and (row.sequence or row.kind != "data"):  # in no file
                self._enter(row, payload)
        except _NOT_OURS:
            raise LedgerDamaged(
                f"Row {row.sequence} of the ledger says what no sordino writes. Nothing was "
                "released. Restore the ledger from a backup whose head you noted."
            ) from None

    def _outcome(self, row: Row, payload: dict[str, Any]) -> None:
        """Take in the digest of what an earlier entry paid for, or of what was private before."""
        if not isinstance(payload["artifact"], str):
            raise TypeError(row.kind)
        if row.kind == "receive":
            promise = Guarantee.from_dict(payload["promise"], names_of(payload["caveats"]))
            self.paid[row.release_id] = row.data
            if "persons" in payload:
                names_of([payload["persons"], payload["coins"]])
                kind, parameters = payload["event"]
                event = event_from_row(kind, parameters)
                self._books[EVERY].receive(row.release_id, event, promise, payload["persons"])
                drawn = payload["details"]["release"], kind, canonical_json(parameters)
                self.arrived.setdefault(drawn, []).append(payload["coins"])
            elif "counted" not in payload:  # nobody said whose answers they are
                self._unnamed.setdefault(payload["artifact"], []).append(row.release_id)
                self.persons.uncovered.append(row.release_id)
                return
            for release_id in self._unnamed.pop(payload["artifact"], []):  # until now
                self.persons.uncovered.remove(release_id)
        elif row.release_id not in self.paid:
            raise LookupError(row.kind)
        else:
            self.artifacts.add(payload["artifact"])
            if row.kind == "commit":
                self.committed[row.release_id] = dict(json.loads(row.payload))

    def refuse_undrawn(self, release_id: str, found: Mapping[str, str], name: str) -> None:
        """Refuse to say of an entry that it paid for what it did not draw."""
        # An entry whose run died before its commit may still be gone on with, so what it drew is
        # known, and fixed, when it is committed.
        known = self.committed.get(release_id, {})
        same = "drawn" in found if not known else known.get("drawn") == found.get("drawn")
        if not same:
            raise PrivacyError(
                f"What is stored for entry {release_id} of {name} is not what it drew: it was "
                "changed, or is of another ledger. Nothing was released. Restore what was stored "
                "beside the ledger, or start a new ledger, whose total is apart from this one."
            )
        if "drawn" not in found and known["artifact"] != found.get("artifact"):
            raise PrivacyError(
                f"Entry {release_id} of {name} paid for one artifact, and this is another. Nothing "
                "was released. Pay for it, or release the first again."
            )

    def receive(
        self, manifest: Arrived, answers: Iterable[tuple[bytes, bytes]] | None, name: str
    ) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Return what a row must say of who gave answers elsewhere, and what lies beside it."""
        # Of each answer it needs the keys of person and question; None if nobody is named.
        promise = manifest.guarantee
        if manifest.sha256 in self.artifacts:  # the answers were paid for here
            return {"counted": True}, {}
        if answers is None:
            return {}, {}
        if not names_persons(promise):
            raise PrivacyError("Only where who answered is public may persons be digested.")
        # Of a label there is one coin, whenever the file that holds it arrives. What a manifest
        # promises to a person is for all that the person gave.
        whole, rosters = promise.unit == "person", self.persons.rosters
        event = PureEvent(promise.epsilon) if whole else RandomizedResponseEvent(promise.epsilon)
        kind, parameters = event_to_row(event)
        drawn = manifest.release_id, kind, canonical_json(parameters)
        known = self.arrived.get(drawn, [])
        coins = ((person, b"" if whole else question) for person, question in answers)
        roster, beside = rosters.arrived(coins, known, self.mark)
        if not len(roster.digests):  # they arrived before
            return {"counted": True}, {}
        self._books[EVERY].check_arrived(event, promise, roster, name)
        kept = {roster.digest: roster.packed, sha256(beside).hexdigest(): beside}
        said: dict[str, Any] = dict(zip(("persons", "coins"), kept, strict=True))
        return {**said, "secret": rosters.mark, "event": [kind, parameters]}, kept

    def _name(self, row: Row, joins: Sequence[str]) -> None:
        """Take in a name of a data set, and with which others it is one."""
        if row.data == EVERY:
            return
        same = {self.names[name] for name in joins} | {self.names.get(row.data, row.data)}
        oldest = next((name for name in self.names.values() if name in same), row.data)
        self.names |= {name: oldest for name, first in self.names.items() if first in same}
        self.names[row.data] = oldest
        if same == {oldest} and oldest in self._books:
            return
        self._books = {name: books for name, books in self._books.items() if name not in same}
        books = self._books[oldest] = Books(oldest, self.persons)
        for entered, payload in self._entered:
            if self._is_about(entered, oldest):
                books.take(entered, payload, ("label", "record"))

    def _is_about(self, row: Row, data: str) -> bool:
        return row.data == EVERY or self.names[row.data] == data

    def counts(self, row: Row, data: str) -> bool:
        """Return whether a row counts in a data set."""
        return EVERY in {row.data, data} or self.names[row.data] == self.names.get(data)

    def total(self, data: str, unit: Unit, delta: float) -> Guarantee | None:
        """Return what everything promises to one unit of a data set, or of whichever it is."""
        spent = [books.spent[unit] for books in self.of(data)]
        relations = {held.relation() for held in spent if held.promises}
        relation = relations.pop() if len(relations) == 1 else REPLACE_ONE
        found = [total for held in spent if (total := held.total(delta, relation)) is not None]
        return self._with_names(data, found) if found else None

    def accounts(self, data: str, delta: float | None) -> dict[Unit, Account]:
        """Return what all releases promise together to each unit; see ``Ledger.accounts``."""
        each = [books.accounts(delta) for books in self.of(data)]
        found: dict[Unit, Account] = {}
        for unit in UNITS:
            uncovered = dict.fromkeys(name for one in each for name in one[unit].uncovered)
            held = [one[unit].guarantee for one in each]
            deltas = [one.delta for one in held if one is not None]
            total = None if uncovered or not deltas else self.total(data, unit, max(deltas))
            found[unit] = Account(unit, total, tuple(uncovered), each[0][unit].persons)
        return found

    def _with_names(self, data: str, totals: Sequence[Guarantee]) -> Guarantee:
        """Return the largest of some totals, which may rest on the names of data sets."""
        total = merge(
            totals,
            epsilon=max(one.epsilon for one in totals),
            delta=max(one.delta for one in totals),
        )
        # Names tell data sets apart, or questions as they are written: who rewrites one, or writes
        # it as numbers, has made another data set of the same judgments.
        rows = (row for row, _ in self._entered if row.kind == "reserve" and row.data != EVERY)
        sets = {self.names[row.data] for row in rows}
        whole = len(sets) <= 1 if data == EVERY else sets <= {self.names.get(data)}
        return total if total.unit == "person" or whole else total.with_caveats(DECLARED_DISJOINT)

    def overlaps(self, path: Path, questions: np.ndarray) -> dict[str, np.ndarray]:
        """Return the data sets that have some of the questions, and which of them each has."""
        found: dict[str, np.ndarray] = {}
        if not self.questions:  # and there may be no file yet
            return found
        with ledger_chain.connect_reader(path) as connection:
            for row in self.questions:
                digest = json.loads(row.payload)["questions"]
                value = ledger_chain.beside(connection, "questions", row.sequence, digest)
                has = np.isin(questions, np.frombuffer(value, "<u8"))
                if has.any():
                    name = self.names[row.data]
                    found[name] = found.get(name, has) | has
        return found

    def resolved(
        self, path: Path, name: str, questions: np.ndarray | None
    ) -> tuple[str, dict[str, Any], np.ndarray | None]:
        """Return which data set is meant, what a row must say of it, and which are new in it."""
        if questions is None:
            return name, {}, None
        shared = self.overlaps(path, questions)
        seen = np.zeros(len(questions), dtype=bool)
        for has in shared.values():
            seen |= has
        others = [other for other in self.data_sets if other in shared]  # the oldest first
        numbered = (f"{_UNNAMED}-{number}" for number in count(2))
        new = next(other for other in chain([_UNNAMED], numbered) if other not in self.names)
        name = name or next(iter(others), new)
        payload: dict[str, Any] = {}
        if joins := [other for other in others if other != self.names.get(name)]:
            payload["joins"] = joins
        if not seen.all():
            payload["questions"] = ledger_chain.digest_of_questions(questions[~seen])
        return name, payload, questions[~seen]

    def _enter(self, row: Row, payload: dict[str, Any]) -> None:
        """Enter a row in the books that it is about, and once in the account of persons."""
        if row.kind == "budget" and payload["budget"]["unit"] == "person":
            row = replace(row, data=EVERY)
        units: Collection[Unit] = UNITS
        for name, books in self._books.items():
            if self._is_about(row, name):
                books.take(row, payload, units)
                units = ("label", "record")
        self._entered.append((row, payload))
        if row.kind == "reserve":
            self.paid[row.release_id] = row.data


def refuse_known(path: Path, questions: np.ndarray) -> None:
    """Refuse judgments of which another ledger of the project counts what was spent."""
    for other in other_ledgers(path):
        with ledger_chain.connect_reader(other) as connection:
            sets = DataSets(ledger_chain.verified(connection, other), Rosters(other))
        if known := sets.overlaps(other, questions):
            raise LedgerMismatch(
                f"The ledger {other.name} of this project knows these judgments as the data set "
                f"{next(iter(known))!r}, and {path.name} would not count what was spent there. "
                "Nothing was released. Spend on that one: leave --ledger out, or name "
                f"{other.name}."
            )
