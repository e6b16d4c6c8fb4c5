"""What a run on batches of people pays, batch by batch, and what all of them promise together.

The entry of a batch is written before any noise of its updates is drawn. Whoever resumes finds
the last checkpoint and pays anew for every batch after it, in the scope of that batch: what was
drawn there before the run was killed is never drawn again, and stays paid for.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sordino.algorithms.user_slots import Slots
from sordino.errors import UsageError
from sordino.language.central.runs import CentralRun
from sordino.language.models.promises import CheckpointPromise
from sordino.language.people.slot_privacy import SlotPrivacy
from sordino.privacy.accounting import composed_epsilon
from sordino.privacy.chain import canonical_json
from sordino.privacy.events import Event
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.ledger import Ledger, Reservation
from sordino.privacy.spend import event_of

__all__ = ["BatchRun", "reserve_batch"]


def reserve_batch(
    privacy: SlotPrivacy,
    promise: Guarantee,
    *,
    ledger: Ledger,
    scope: str,
    details: Mapping[str, Any],
) -> Reservation:
    """Return the permission to make all updates of a batch, after recording what they spend.

    Args:
        privacy: What an update does, and how many there are.
        promise: What they promise.
        ledger: Where the entry is written durably.
        scope: Of this batch.
        details: The random name of the run, and a digest of the public ids of its people.

    Raises:
        BudgetExceeded: The total would pass the budget; nothing was drawn.
        PrivacyError: The ledger is about another unit or relation.

    Guarantee:
        That of :class:`~sordino.language.people.slot_privacy.SlotPrivacy` for the people of one
        batch; nothing is drawn here. Shown by tests/language/test_central_policy.py.
    """
    return ledger.reserve(
        privacy.event,
        promise=promise,
        scope=scope,
        count=privacy.updates_per_batch,
        details=dict(details),
    )


class BatchRun(CentralRun):
    """One run: its entries, one scope for each batch, and what they promise to its worst-off.

    Args:
        privacy: What is promised, and what it takes.
        promise: The same, and whether it is for study.
        training: Public settings, which checkpoints carry.
        starts: Promises of what the run starts from.
        ledger: On which it is paid for; every scope on it is of a batch.
        people: The public ids of the people of every batch.
    """

    def __init__(
        self,
        privacy: SlotPrivacy,
        promise: Guarantee,
        training: Mapping[str, Any],
        starts: Iterable[CheckpointPromise],
        ledger: Ledger,
        people: Sequence[Sequence[str | int]],
    ) -> None:
        """Start a run that has spent nothing."""
        super().__init__(promise, training, starts, ledger, kind="policy")
        self._privacy, self._people, self._declared = privacy, people, False

    @property
    def scopes(self) -> list[str]:
        """Return the name of every batch's scope."""
        return self._slots.scopes(self.name)

    @property
    def _slots(self) -> Slots:
        """Return how many people there are, in how many batches."""
        return Slots(users=self._privacy.people, batches=self._privacy.batches)

    @property
    def spent(self) -> float:
        """Return the epsilon of the person of this run who lost most.

        Guarantee:
            The maximum over batches, which share no person; within a batch all entries count,
            also those whose updates were lost. Shown by tests/language/test_central_policy.py.
        """
        spent: dict[str, Counter[Event]] = {scope: Counter() for scope in self.scopes}
        for row in self._ledger.spends:
            if row.scope in spent:
                spent[row.scope][event_of(row)] += row.count
        terms = {"neighbors": self.promise.neighbors, "delta": self.promise.delta}
        different = {frozenset(events.items()): events for events in spent.values()}
        return max(composed_epsilon(events, **terms) for events in different.values())

    def check(self, batch: int) -> None:
        """Refuse a batch that the budget has no room for, before anybody is asked.

        Raises:
            BudgetExceeded: There is none.
        """
        event, count = self._privacy.event, self._privacy.updates_per_batch
        scope = self.scopes[batch]
        self._ledger.check(event, promise=self.promise, scope=scope, count=count)

    def declare(self) -> None:
        """Record, before the first spend, that no two batches share a person.

        Raises:
            UsageError: Too many batches were declared on the ledger.
        """
        if not self._declared:
            self._slots.declare(self._ledger, self.scopes)
            self._declared = True

    def details(self, batch: int) -> dict[str, str]:
        """Return what the entry of a batch says besides: of which run, and of which people."""
        return {"run": self.name, "people": self._digest(batch)}

    def resume(self, wanted: str | Path | bool, output: str | Path) -> tuple[str, int]:  # noqa: FBT001 (transformers')
        """Go on with the run of a checkpoint, and return its folder and how many updates it made.

        Args:
            wanted: A folder, or True for the last complete checkpoint.
            output: Where the checkpoints of the run are.

        Raises:
            UsageError: There is no checkpoint; it was made with other settings, or with other
                people in a batch that was paid for; or it stands within a batch.
            LedgerMismatch: The ledger did not pay for it.
        """
        folder, first = super().resume(wanted, output)
        self._declared = True
        if first % self._privacy.updates_per_batch:
            raise UsageError(
                "The checkpoint stands within a batch, whose answers are gone. Nothing was "
                "trained. Go on from one that was written after a batch."
            )
        self._refuse_other_people()
        return folder, first

    def _refuse_other_people(self) -> None:
        """Refuse people who have slots of two batches: now, and when the run was killed."""
        number = {scope: batch for batch, scope in enumerate(self.scopes)}
        for row in Ledger.read(self._ledger.path).spends:
            if row.scope in number:
                batch = number[row.scope]
                found = (json.loads(row.payload).get("details") or {}).get("people")
                if found != self._digest(batch):
                    raise UsageError(
                        f"Other people have the slots of batch {batch} than when it was paid for. "
                        "Nothing was trained. Give them in the same order; more may follow."
                    )

    def _digest(self, batch: int) -> str:
        """Return what tells whether the same people have a batch; it is another in every run."""
        ids = canonical_json([self.name, list(self._people[batch])])
        return hashlib.sha256(ids.encode()).hexdigest()
