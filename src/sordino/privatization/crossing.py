"""The steps that every crossing takes, in this order: survey, promise, reserve, answer.

Read everything once and refuse what cannot be used; write the ledger entry durably; only then
draw coins. A crash in between overcounts, it never undercounts.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Integer

from sordino import _random, _validate
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.memo import AnswerMemo, Key
from sordino.preferences.records import person_key
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee, Trust
from sordino.privacy.ledger import Ledger, Reservation

__all__ = ["Crossing", "Survey", "memo_keys"]


@dataclass
class Survey:
    """What the public fields say before anything is spent; labels never enter."""

    memo: AnswerMemo | None
    n: int = 0
    dropped: int = 0
    people: set[str] = field(default_factory=set)
    _questions: list[np.ndarray] = field(default_factory=list)

    def add(self, keys: Sequence[bytes], persons: Sequence[str] | None) -> None:
        """Take in a batch of records by question and person."""
        self.n += len(keys)
        if persons is not None and len(self.people) < 2:  # noqa: PLR2004 (one, or several)
            self.people.update(persons[:1], [name for name in persons if name != persons[0]][:1])
        if self.memo is not None:
            self.memo.stage(memo_keys(keys, persons))
            return
        # 64 bits per question suffice to warn of repeats, in constant memory per record
        short = b"".join(key[:8] for key in keys)
        self._questions.append(np.frombuffer(short, dtype=np.uint64))

    def repeats(self) -> bool:
        """Return whether a question occurs twice with nothing to link who answered."""
        if self.memo is not None or not self._questions:
            return False
        ordered = np.sort(np.concatenate(self._questions))
        return bool((ordered[1:] == ordered[:-1]).any())

    def details(self, epsilon: float) -> dict[str, Any]:
        """Return the public numbers that the ledger keeps: the largest total of one person."""
        if self.memo is None:
            return {}
        labels = self.memo.most_labels()
        return {"largest_person_labels": labels, "largest_person_epsilon": labels * epsilon}


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """The settings of one crossing, and the steps that every crossing takes in order."""

    mechanism: RandomizedResponse
    ledger: Ledger
    entropy: _random.Entropy
    on_device: bool = False

    @classmethod
    def of(
        cls,
        mechanism: RandomizedResponse,
        ledger: Ledger,
        *,
        on_device: bool,
        simulate_seed: int | None,
    ) -> Crossing:
        """Return a crossing with system entropy, or with a seeded stream marked as such.

        Raises:
            UsageError: The mechanism or the ledger is something else, or the seed is negative.
        """
        if not isinstance(mechanism, RandomizedResponse) or not isinstance(ledger, Ledger):
            raise UsageError("privatize needs a RandomizedResponse and a Ledger.")
        if simulate_seed is not None:
            _validate.integer("simulate_seed", simulate_seed, at_least=0)
        entropy = _random.entropy(simulate_seed)
        return cls(mechanism=mechanism, ledger=ledger, entropy=entropy, on_device=on_device)

    def open_memo(
        self, *, linked: bool, dry_run: bool = False
    ) -> AbstractContextManager[AnswerMemo | None]:
        """Return the memo beside the ledger if records are linked by person ids, else None."""
        if not linked:
            return nullcontext()
        path = self.ledger.path.with_suffix(".memo.db")
        if not path.exists() and any("largest_person" in row.payload for row in self.ledger.spends):
            raise PrivacyError(
                f"{path.name} is gone: it held the answers that people gave before, and without it "
                "they would be answered again. Nothing was released. Restore it, or start a new "
                "ledger, whose total is apart from this one."
            )
        settings = {
            "threshold": str(self.mechanism.threshold),
            "randomness": self.entropy.randomness,
            "ledger": self.ledger.rows[0].digest,
            "trust": "local" if self.on_device else "central",
        }
        return AnswerMemo.open(path, settings=settings, dry_run=dry_run)

    def _refuse_several_people(self, survey: Survey) -> None:
        """Refuse the claim that the labels of several people are on the device of each."""
        if self.on_device and len(survey.people) > 1:
            raise PrivacyError(
                "These are judgments of several people, so this cannot be the device of the one "
                "who made them. Nothing was released. Leave on_device (--on-device) out."
            )

    def promise(self, survey: Survey) -> Guarantee:
        """Return what the release promises, with every caveat that applies.

        Raises:
            PrivacyError: Labels of several people are said to be on the device of each.
        """
        self._refuse_several_people(survey)
        trust: Trust = "local" if self.on_device else "central"
        caveats = {
            "randomized-at-ingestion": not self.on_device,
            "person-total": survey.memo is not None,
            "repeats-not-linked": survey.repeats(),
            "simulated": self.entropy.randomness == "simulated",
        }
        return replace(
            self.mechanism.guarantee(unit="label", neighbors=REPLACE_ONE, trust=trust),
            randomness=self.entropy.randomness,
            caveats=tuple(name for name, applies in caveats.items() if applies),
        )

    def reserve(self, survey: Survey, public_digest: str) -> Reservation | None:
        """Write the spend durably; None if every answer is stored already and nothing is drawn."""
        if survey.memo is not None and survey.memo.fresh() == 0:
            return None
        return self.ledger.reserve(
            self.mechanism.event,
            promise=self.promise(survey),
            public_digest=public_digest,
            details=survey.details(self.mechanism.realized_epsilon),
        )

    def plan(self, survey: Survey, public_digest: str, *, data: str) -> dict[str, Any]:
        """Return what :meth:`reserve` would spend; nothing is written.

        Raises:
            BudgetExceeded: The ledger has not enough left.
            LedgerMismatch: The ledger belongs to another data set.
        """
        promise = self.promise(survey)
        free = survey.memo is not None and survey.memo.fresh() == 0
        self.ledger.check_data(data, public_digest)
        if not free:
            self.ledger.check(self.mechanism.event, promise=promise)
        return {
            "spend": 0.0 if free else promise.epsilon,
            "pairs": survey.n,
            "dropped_identical": survey.dropped,
            "guarantee": promise.to_dict(),
            "caveats": list(promise.caveats),
            **survey.details(self.mechanism.realized_epsilon),
        }

    def answers(
        self,
        labels: Integer[np.ndarray, " n"],
        keys: Sequence[Key],
        memo: AnswerMemo | None,
        reservation: Reservation | None,
    ) -> Integer[np.ndarray, " n"]:
        """Return randomized answers: stored ones where there are any, fresh coins elsewhere."""
        if memo is None:
            return self.mechanism.release(labels, entropy=self.entropy)
        stored = memo.recall(keys)
        first: dict[Key, int] = {}
        for index, key in enumerate(keys):
            if key not in stored:
                first.setdefault(key, index)
        if first:
            if reservation is None:
                raise DataError("The input changed while it was read. Nothing was released.")
            drawn = self.mechanism.release(labels[list(first.values())], entropy=self.entropy)
            memo.remember(dict(zip(first, map(int, drawn), strict=True)), reservation.release_id)
            stored |= memo.recall(list(first))
        return np.fromiter((stored[key] for key in keys), dtype=np.int8, count=len(keys))


def memo_keys(keys: Sequence[bytes], persons: Sequence[str] | None) -> list[Key]:
    """Return (person key, question key) of every record."""
    if persons is None:
        return []
    return [(person_key(person), key) for person, key in zip(persons, keys, strict=True)]
