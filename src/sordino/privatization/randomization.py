"""The steps of every randomization, in this order: survey, promise, reserve, choose, answer.

Read everything once and refuse what cannot be used; write the ledger entry durably; only then
draw which questions of a person are used, where their number is capped, and only then coins. A
crash in between overcounts, it never undercounts.

An answer that is stored beside the ledger is free, and one that is not is drawn and paid for. So
a memo that lost answers would draw them again, and answers of another ledger would be free here
although nobody paid for them here. Both are refused, and one process at a time uses a memo.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

import numpy as np

from sordino import _random, _validate
from sordino._files import sole_holder
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.randomized_response import KaryRandomizedResponse, RandomizedResponse
from sordino.preferences.chunk_survey import ChunkSurvey
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.memo import AnswerMemo
from sordino.preferences.pairs import most_questions
from sordino.preferences.rankings import Slates
from sordino.preferences.records import person_key
from sordino.privacy import accounting
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee, Unit
from sordino.privacy.ledger import Ledger, Reservation
from sordino.privacy.ledger_chain import Row
from sordino.privacy.persons import People

CHANGED: Final = "The input changed while it was read. Nothing was released."
"""Why two readings of one input that differ are refused, for messages."""

_SHOWN: Final = {"commit", "repeat"}

_Coin: TypeAlias = RandomizedResponse | KaryRandomizedResponse
_PATIENCE = 60.0  # seconds, as long as SQLite waits


def rows_on_disk(ledger: Ledger) -> Iterable[Row]:
    """Return the rows as they are on disk now, what other processes wrote included."""
    return Ledger.read(ledger.path).rows if ledger.path.exists() else ledger.rows


def _linked_entries(rows: Iterable[Row]) -> dict[str, int]:
    """Return the entries whose answers are stored by person and question, and in how many parts."""
    details = {
        row.release_id: json.loads(row.payload).get("details", {})
        for row in rows
        if row.kind == "reserve"
    }
    return {
        release_id: int(told.get("parts", 1))
        for release_id, told in details.items()
        if "largest_person_labels" in told
    }


def shown_entries(rows: Iterable[Row]) -> set[str]:
    """Return the entries of which answers may have been seen."""
    # An entry whose run died before its commit is among them as soon as a later run released what
    # it had stored.
    return {row.release_id for row in rows if row.kind in _SHOWN}


def _refuse_disagreement(path: Path, payers: set[str], rows: Iterable[Row]) -> None:
    """Refuse answers that no entry paid for, and entries whose answers are not there."""
    # A reservation of which nothing was shown may have been interrupted before its first answer.
    rows = list(rows)
    if not payers <= {row.release_id for row in rows}:
        raise PrivacyError(
            f"{path.name} holds answers that no entry of this ledger paid for: it is the memo of "
            "another ledger, or the ledger is an older copy. Nothing was released. Put the two "
            "back together that belong together."
        )
    if not _linked_entries(rows).keys() & shown_entries(rows) <= payers:
        raise PrivacyError(
            f"{path.name} lacks answers that this ledger paid for: it is an older copy or of "
            "another ledger, and people would be answered again. Nothing was released. Restore "
            "the newest one, or start a new ledger, whose total is apart from this one."
        )


class Counts(NamedTuple):
    """What is about to be answered, in numbers that no draw of questions changes."""

    persons: int  # how many people
    labels: int  # the largest number of different questions of one person that are used
    fresh: int  # the largest number of those of one person that have no stored answer yet
    ever: int  # the largest number of one person, those answered earlier included
    left_out: int  # how many questions the cap leaves out, over all people
    payers: frozenset[str]  # entries that paid for stored answers to them
    people: People  # who takes how many coins

    def plus(self, other: Counts) -> Counts:
        """Return the same of two parts of the people."""
        return Counts(
            persons=self.persons + other.persons,
            labels=max(self.labels, other.labels),
            fresh=max(self.fresh, other.fresh),
            ever=max(self.ever, other.ever),
            left_out=self.left_out + other.left_out,
            payers=self.payers | other.payers,
            people=self.people.plus(other.people),
        )


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What the public fields say before anything is spent; labels never enter."""

    n: int
    dropped: int
    questions: np.ndarray | None = field(repr=False)  # by which a ledger knows data sets
    repeats: bool  # whether a question occurs twice, and nothing says who answered
    # Where persons are known: what is about to be answered, who would have how many coins on an
    # entry, those about to be tossed included, and in how many parts answers are stored.
    counts: Counts | None = field(default=None, repr=False)
    people_on: Callable[[str], People | None] = field(default=lambda _: None, repr=False)
    parts: int = 1

    @classmethod
    def of(cls, source: Comparisons | ChunkSurvey) -> Survey:
        """Return what the public fields say of judgments, in memory or in files."""
        names = ("n", "dropped", "questions", "repeats")
        return cls(**{name: getattr(source, name) for name in names})

    @property
    def linked(self) -> bool:
        """Return whether persons are known."""
        return self.counts is not None

    @property
    def people(self) -> People | None:
        """Return who takes how many coins, if persons are known."""
        return None if self.counts is None else self.counts.people


@dataclass(frozen=True)
class Randomization:
    """The settings of one randomization, and the steps that every randomization takes in order."""

    mechanism: RandomizedResponse
    ledger: Ledger
    _: KW_ONLY
    on_device: bool
    simulate_seed: int | None  # of a stream that is marked as such; None for system entropy
    cap: int | None = None
    entropy: _random.Entropy = field(init=False)

    def __post_init__(self) -> None:
        kinds = isinstance(self.mechanism, RandomizedResponse), isinstance(self.ledger, Ledger)
        if not all(kinds):
            raise UsageError("privatize needs a RandomizedResponse and a Ledger.")
        _validate.one_of("on_device", self.on_device, (True, False))  # "no" would be a yes
        object.__setattr__(self, "entropy", _random.entropy(self.simulate_seed))
        if self.cap is not None:
            _validate.settle(self, cap=partial(_validate.integer, at_least=1))

    @property
    def unit(self) -> Unit:
        """Return whose change is hidden: a whole person's if the ledger's budget says so."""
        return "person" if self.ledger.budget.unit == "person" else "label"

    @contextmanager
    def open_memo(self, parts: int, *, dry_run: bool = False) -> Iterator[AnswerMemo]:
        """Yield the memo beside the ledger; no other run uses it until the context ends."""
        # From its survey to its last stored answer one process alone does.
        ledger, path = self.ledger, self.ledger.path.resolve().with_suffix(".memo")
        lock = path.with_name(f"{path.name}.lock")
        made, busy = f"{lock.name} cannot be made", f"{lock.name}: another process is answering "
        busy += "with this ledger. Nothing was released. Try again when it is done."
        with nullcontext() if dry_run else sole_holder(lock, made, busy, patience=_PATIENCE):
            rows = list(rows_on_disk(ledger))
            tilings = _linked_entries(rows)
            if not path.exists() and tilings:
                raise PrivacyError(
                    f"{path.name} is gone: it held the answers that people gave before, and "
                    "without it they would be answered again. Nothing was released. Restore it, or "
                    "start a new ledger, whose total is apart from this one."
                )
            if not dry_run:
                AnswerMemo.make(path, self.memo_settings)
            memo = AnswerMemo.bound(path, self.memo_settings, tilings, parts)
            entries = memo.entries()
            whole = {
                name
                for name, theirs in entries.items()
                if len(theirs) == tilings.get(name, len(theirs))
            }
            _refuse_disagreement(path, set(entries), rows)
            _refuse_disagreement(path, whole, rows)  # nor may a part be missing
            if dry_run:
                yield memo
                return
            # Entries of runs that stopped, and of which nothing was shown, never go on.
            memo.tidy()
            stopped = tilings.keys() - shown_entries(rows) - set(ledger.open_entries)
            memo.close(sorted(stopped))
            try:
                yield memo
            finally:
                memo.tidy()

    @property
    def memo_settings(self) -> dict[str, str]:
        """Return what answers are drawn with, so that stored ones of others are not mixed in."""
        return {
            "threshold": str(self.mechanism.threshold),
            "randomness": self.entropy.randomness,
            "ledger": self.ledger.rows[0].digest,
            "unit": self.unit,  # what was paid for labels did not pay for all of a person
            "trust": "local" if self.on_device else "central",
        }

    def refuse_unknown_people(self) -> None:
        """Refuse records without person ids where the budget or the cap is for persons."""
        if self.unit == "person":
            refuse_unlinked("a budget for each person")
        if self.cap is not None:
            refuse_unlinked(f"a cap of {self.cap} answers of one person")

    def promise(self, survey: Survey) -> Guarantee:
        """Return what the release promises, with every caveat that applies."""
        person, counts = self.unit == "person", survey.counts
        if self.on_device and counts is not None and counts.persons > 1:
            raise PrivacyError(
                "These are judgments of several people, so this cannot be the device of the one "
                "who made them. Nothing was released. Leave on_device (--on-device) out."
            )
        if self.on_device and survey.repeats:
            raise PrivacyError(
                "A question occurs more than once and nothing says who answered: the answers may "
                "be of several people, and this is the device of one. Nothing was released. Name "
                "the person, so that repeats are linked, or leave on_device (--on-device) out."
            )
        promise = self.mechanism.guarantee(
            unit=self.unit,
            neighbors=REPLACE_ONE,
            trust="local" if self.on_device else "central",
            labels=counts.labels if person and counts is not None else None,
        )
        caveats = {
            "randomized-at-ingestion": not self.on_device,
            "person-total": survey.linked and not person,
            "repeats-not-linked": survey.repeats,
        }
        named = promise.with_caveats(*(self.ledger.accepted or ()), when=caveats)
        return named.drawn(self.entropy.randomness)

    def covering(
        self, promise: Guarantee, release_ids: Collection[str], *, fresh: int = 0
    ) -> Guarantee:
        """Return a promise to one person that is at least what its entries spend together."""
        # Answers of earlier releases are free now, but the entries that paid for them may have paid
        # for more: an artifact in memory is certified by its entries, so it says their total.
        if promise.unit != "person":
            return promise
        counts = (row.count for row in self.ledger.spends if row.release_id in release_ids)
        spent = accounting.composed_epsilon(
            [(self.mechanism.event, count) for count in (*counts, fresh)],
            neighbors=promise.neighbors,
            delta=0.0,
        )
        return replace(promise, epsilon=max(promise.epsilon, spent))

    def pay(self, survey: Survey) -> Reservation | None:
        """Write the spend durably; None if every answer is stored already and nothing is drawn."""
        fresh = self._fresh(survey.counts)
        if not fresh:
            return None
        needed = {name: survey.people_on(name) for name in self.ledger.open_entries}
        return self.ledger.reserve(
            self.mechanism.event,
            promise=self.promise(survey),
            count=fresh,
            questions=survey.questions if self.unit == "label" else None,
            people=survey.people,
            details=self._details(survey) | ({"parts": survey.parts} if survey.parts > 1 else {}),
            needed=needed if survey.linked else None,
        )

    def _fresh(self, counts: Counts | None) -> int:
        """Return how many events this release is: coins of one unit, 0 if all are stored."""
        if counts is None:
            return 1
        # A label has one coin, whenever it is tossed: what is stored is never tossed again.
        return counts.fresh if self.unit == "person" else min(counts.fresh, 1)

    def _details(self, survey: Survey) -> dict[str, int | float]:
        """Return the public numbers that the ledger keeps: the largest total of one person."""
        if survey.counts is None:
            return {}
        ever = survey.counts.ever
        total = {
            "largest_person_labels": ever,
            "largest_person_epsilon": ever * self.mechanism.realized_epsilon,
        }
        return total if self.cap is None else total | {"cap": self.cap}

    def plan(self, survey: Survey, *, covering: Collection[str] | None = None) -> dict[str, Any]:
        """Return what :meth:`pay` would spend; nothing is written."""
        # No number depends on which questions a cap will leave in.
        promise, fresh = self.promise(survey), self._fresh(survey.counts)
        if covering is not None:
            promise = self.covering(promise, covering, fresh=fresh)
        if fresh:
            asked = survey.questions if self.unit == "label" else None
            self.ledger.check(
                self.mechanism.event,
                promise=promise,
                count=fresh,
                questions=asked,
                people=survey.people,
            )
            if self.ledger.was_paid(self.mechanism.event, promise, fresh):
                fresh = 0
        spend = [(self.mechanism.event, fresh)]
        counts = survey.counts
        people = (
            {}
            if counts is None
            else {
                "persons": counts.persons,
                "labels_per_person": counts.labels,
                "capped_questions": counts.left_out,
            }
        )
        return {
            "spend": accounting.composed_epsilon(spend, neighbors=promise.neighbors, delta=0.0),
            "pairs": survey.n,
            "dropped": survey.dropped,
            "guarantee": promise.to_dict(),
            "caveats": list(promise.caveats),
            "epsilon_per_label": self.mechanism.realized_epsilon,
            **people,
            **self._details(survey),
        }


def refuse_unlinked(what: str) -> NoReturn:
    """Refuse records without person ids where somebody's answers must be counted."""
    raise DataError(
        f"These records have no person ids, which {what} needs. Nothing was released. Name the "
        "field that holds them (person_field, --person-field), or protect single labels without "
        "a cap (--unit label)."
    )


def questions_of_one_person(data: Comparisons | Slates) -> int:
    """Return the most different questions that one person answered; it is public."""
    if data.persons is None:
        refuse_unlinked("a budget for each person")
    return most_questions(data.persons, data.keys)


def memo_keys(keys: Sequence[bytes], persons: Sequence[str] | None) -> list[tuple[bytes, bytes]]:
    """Return (person key, question key) of every record."""
    if persons is None:
        return []
    return [(person_key(person), key) for person, key in zip(persons, keys, strict=True)]


def coin_for_person(
    epsilon: float, *, labels: int, make: Callable[[float], _Coin] = RandomizedResponse
) -> _Coin:
    """Return the coin of which so many answers of one person keep ε together, never more."""
    # Source: docs/local.md, "Person-level budgets": ε/m each, composed as m·(ε/m).
    share = _validate.positive("epsilon", epsilon) / labels
    problem: UsageError | None = None
    try:
        while True:
            coin = make(share)
            together = accounting.composed_epsilon(
                [(coin.event, labels)], neighbors=REPLACE_ONE, delta=0.0
            )
            if together <= epsilon:
                return coin
            share = math.nextafter(share, 0.0)  # a rounded share may be too large by one unit
    except UsageError as error:
        problem = error
    raise UsageError(f"epsilon={epsilon!r} for {labels} labels of one person: {problem}")
