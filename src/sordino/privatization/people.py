"""Questions by person, in memory or in files, and the one answer that each of them gets.

Every question of a person is answered once and for all: what was stored before is used, and for the
rest coins are drawn, and stored before anybody sees them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import or_
from typing import Final

import numpy as np
from jaxtyping import Bool, Integer, UInt64

from sordino import _random
from sordino._validate import Integers
from sordino.engines.engine import Engine
from sordino.errors import DataError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.memo import KEY, AnswerMemo, Stored
from sordino.preferences.records import person_key
from sordino.privacy.ledger import Ledger, Reservation
from sordino.privacy.persons import People

from .randomization import CHANGED, Counts, Survey

LEFT_OUT: Final = 2
"""What stands for the answer of a question that a cap leaves out."""

_NO_CAP: Final = 2**62


@dataclass(frozen=True, repr=False, eq=False)
class PersonQuestions:
    """The questions of some people."""

    keys: np.ndarray  # who, and what, each once, in order
    labels: Integer[np.ndarray, " k"]  # the label that the person gave first
    firsts: Integer[np.ndarray, " k"]  # which record that was
    which: Integers  # which question each record asks
    rows: Integers  # numbers of the records, in their order

    @classmethod
    def of(cls, keys: np.ndarray, labels: Integers, rows: np.ndarray) -> PersonQuestions:
        """Return the questions of records by their keys."""
        different, firsts, which = np.unique(keys, return_index=True, return_inverse=True)
        return cls(different, labels[firsts], firsts, which, rows)


def short_keys(persons: Sequence[str], keys: Sequence[bytes]) -> np.ndarray:
    """Return the key of every record under which its answer is stored."""
    both = zip(persons, keys, strict=True)
    return np.frombuffer(b"".join(person_key(person)[:16] + key[:16] for person, key in both), KEY)


def _persons(keys: np.ndarray) -> np.ndarray:
    """Return the first half of every key."""
    return np.frombuffer(keys.tobytes(), "S16").reshape(-1, 2)[:, 0].copy()


@dataclass(frozen=True, repr=False)
class AskedPeople:
    """People whose questions are answered, in the parts of their memo."""

    memo: AnswerMemo  # what they answered before
    cap: int | None  # the most questions of one person; None for all
    asked: Callable[[int], PersonQuestions]  # the questions of one part of the people

    def joined(self, survey: Survey, engine: Engine) -> Survey:
        """Return a survey with what it says of people."""
        on, parts = partial(self._on, engine), self.memo.parts
        return replace(survey, counts=self.tally(engine), people_on=on, parts=parts)

    def tally(self, engine: Engine) -> Counts:
        """Return what answering these questions takes; nothing is drawn."""
        return engine.fold(range(self.memo.parts), self._tally, Counts.plus)

    def _on(self, engine: Engine, release_id: str) -> People | None:
        """Return who takes how many coins on an entry of which other parts may have theirs."""
        # None if a part of the people has its answers on that entry and asks for more (all of
        # them fall at once), or if its answers are stored in other parts than these.
        if self.memo.tilings.get(release_id) != self.memo.parts:
            return None
        over = engine.fold(range(self.memo.parts), partial(self._is_over, release_id), max)
        return None if over else self.tally(engine).people

    def _is_over(self, release_id: str, part: int) -> bool:
        return self.memo.has(part, release_id) and self._tally(part).fresh > 0

    def _tally(self, part: int) -> Counts:
        """Return what answering one part of the people takes."""
        # Source: docs/local.md, "Person-level budgets": of t questions of one person of which s are
        # stored, min(t, cap) are used and min(t, cap) − min(s, cap) are fresh, whichever are
        # chosen.
        asked, stored = self.asked(part), self.memo.stored(part)
        known, _ = stored.places(asked.keys)
        cap = _NO_CAP if self.cap is None else self.cap
        people, which = np.unique(
            np.concatenate([_persons(asked.keys), _persons(stored.keys)]), return_inverse=True
        )
        n, k = len(people), len(asked.keys)
        totals = np.bincount(which[:k], minlength=n)
        before = np.bincount(which[:k][known], minlength=n)
        ever = np.bincount(which[k:], minlength=n)
        labels = np.minimum(totals, cap)
        fresh = labels - np.minimum(before, cap)
        return Counts(
            persons=int((totals > 0).sum()),
            labels=int(labels.max(initial=0)),
            fresh=int(fresh.max(initial=0)),
            ever=int((ever + fresh).max(initial=0)),
            left_out=int((totals - labels).sum()),
            payers=stored.paid_for(asked.keys),
            people=People.counted(people, fresh),
        )

    def answers(
        self, part: int, coin: RandomizedResponse, release_id: str | None, entropy: _random.Entropy
    ) -> tuple[PersonQuestions, Integer[np.ndarray, " k"], frozenset[str]]:
        """Return the questions of one part, an answer to each, and the entries that paid for them.

        Guarantee:
            None of its own: which questions a cap leaves in is a function of public fields and of
            fresh words, so what is released of them has the loss of their answers alone. Shown by
            tests/soundness/test_person_level.py.
        """
        # Run again it finds what was stored and draws nothing. Without an entry nothing may be.
        asked, memo = self.asked(part), self.memo
        # Drawn once, so that what is chosen is a function of what is stored alone.
        words = self._words(asked, entropy)
        stored = memo.stored(part)
        if release_id is not None and not memo.has(part, release_id):
            fresh = np.flatnonzero(
                self._chosen(asked, words, stored) & ~stored.places(asked.keys)[0]
            )
            fresh = fresh[np.argsort(asked.firsts[fresh])]  # in the order of the records
            drawn = self._drawn(coin, asked.keys[fresh], asked.labels[fresh], entropy)
            memo.keep(part, release_id, asked.keys[fresh], drawn)
            stored = memo.stored(part)  # of two tasks at once one was faster
        chosen = self._chosen(asked, words, stored)
        known, places = stored.places(asked.keys)
        if not known[chosen].all():
            raise DataError(CHANGED)
        answers = np.full(len(asked.keys), LEFT_OUT, np.int8)
        answers[chosen] = stored.answers[places[chosen]]
        return asked, answers, stored.paid_for(asked.keys[chosen])

    def _drawn(
        self, coin: RandomizedResponse, _: np.ndarray, labels: Integers, entropy: _random.Entropy
    ) -> Integers:
        """Return fresh answers to some questions; the spend is on the ledger."""
        return coin.release(labels, entropy=entropy)

    def _words(self, asked: PersonQuestions, entropy: _random.Entropy) -> UInt64[np.ndarray, " k"]:
        """Return a word for every question of a person who has more than the cap, else 0."""
        words = np.zeros(len(asked.keys), np.uint64)
        if self.cap is not None:
            _, which, totals = np.unique(
                _persons(asked.keys), return_inverse=True, return_counts=True
            )
            over = totals[which] > self.cap
            if over.any():
                words[over] = entropy.words(int(over.sum()))
        return words

    def _chosen(
        self, asked: PersonQuestions, words: UInt64[np.ndarray, " k"], stored: Stored
    ) -> Bool[np.ndarray, " k"]:
        """Return which questions are used: the stored ones of a person first, then by words."""
        # Stored answers cost nothing, and a run that was interrupted goes on with what it had
        # chosen. No label is looked at.
        # Source: docs/local.md, "Person-level budgets".
        if self.cap is None:
            return np.ones(len(asked.keys), dtype=bool)
        persons, (known, _) = _persons(asked.keys), stored.places(asked.keys)
        order = np.lexsort([words.view(np.int64), ~known, persons])
        inside = persons[order]
        place = np.arange(len(order)) - np.searchsorted(inside, inside)
        chosen = np.zeros(len(order), dtype=bool)
        chosen[order] = place < self.cap
        return chosen


def record_release(
    ledger: Ledger,
    reservation: Reservation | None,
    artifact: str,
    people: AskedPeople | None,
    payers: Iterable[str],
    engine: Engine,
) -> None:
    """Write on the ledger what is about to be released, and which entries paid for it."""
    # Every entry whose answers are seen then has this outcome, so that nobody can leave it out of
    # what paid, and its answers are missed if they are lost: also one of a run that died.
    own = None if reservation is None else reservation.release_id
    stored: dict[tuple[str, int], bytes] = {}
    if people is not None:
        paid = set(payers) | ({own} if own else set())
        entries = people.memo.entries()
        cuts = [parts for name in paid for _, parts in entries.get(name, ())]
        digests = partial(people.memo.digests, tuple(paid))
        stored = engine.fold(range(max(cuts, default=1)), digests, or_)
    drawn: Callable[[str], list[bytes]] = lambda name: [  # noqa: E731
        stored[key] for key in sorted(stored) if key[0] == name
    ]
    for payer in sorted(set(payers) - {own}):
        ledger.repeat(payer, artifact, drawn=drawn(payer))
    if reservation is not None:
        reservation.commit(artifact, drawn=drawn(reservation.release_id))
