"""What a run of central training pays, part by part, and what all its parts promise together.

A part is the steps up to the next checkpoint. Its entry is written before anything of it is drawn.
Whoever resumes finds the last checkpoint and pays anew for every step after it: what was drawn
there before the run was killed is never drawn again, and stays paid for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sordino._random import new_release_id
from sordino.errors import LedgerMismatch
from sordino.language.central._checkpoints import refuse_other_settings, steps_taken
from sordino.language.central.privacy_terms import CentralPrivacy
from sordino.language.central.run_sources import counted_once, with_caveats_of
from sordino.language.models.promises import Answers, CheckpointPromise, Kind
from sordino.language.training._resuming import complete_checkpoint
from sordino.privacy.accounting import composed_epsilon
from sordino.privacy.chain import Row
from sordino.privacy.events import Event
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.ledger import Ledger, Reservation
from sordino.privacy.spend import event_of

__all__ = ["CentralRun", "reserve_steps"]


def reserve_steps(
    privacy: CentralPrivacy,
    promise: Guarantee,
    *,
    ledger: Ledger,
    run: str,
    first: int,
    steps: int,
) -> Reservation:
    """Return the permission to take so many steps, after recording what they spend.

    Args:
        privacy: What every step does.
        promise: What all steps of a run promise together.
        ledger: Where the entry is written durably.
        run: The random name of the run.
        first: How many steps were taken before.
        steps: How many are paid for.

    Raises:
        BudgetExceeded: The total would pass the budget; nothing was drawn.
        PrivacyError: The ledger is about another unit or relation.

    Guarantee:
        That of :class:`~sordino.language.central.privacy_terms.CentralPrivacy` for its steps;
        nothing is drawn here. Shown by tests/language/test_central_training.py.
    """
    details = {"run": run, "first_step": first}
    return ledger.reserve(privacy.event(steps), promise=promise, details=details)


class CentralRun:
    """One run: its random name, the entries that pay for it, and what they promise together.

    Args:
        promise: What the settings promise.
        training: Public settings, which checkpoints carry.
        starts: Promises of what the run starts from.
        ledger: On which it is paid for.
        kind: What is trained.
    """

    def __init__(
        self,
        promise: Guarantee,
        training: Mapping[str, Any],
        starts: Iterable[CheckpointPromise],
        ledger: Ledger,
        *,
        kind: Kind,
    ) -> None:
        """Start a run that has spent nothing."""
        self._kind = kind
        self.promise, self._training, self._ledger = promise, dict(training), ledger
        self._starts: tuple[Answers, ...] = ()
        self.start_from(starts)
        self.name = new_release_id()
        self._open: Reservation | None = None
        self._paid: list[tuple[str, Event]] = []
        self._known: tuple[list[tuple[str, Event]], float] = [], 0.0

    def start_from(self, starts: Iterable[CheckpointPromise]) -> None:
        """Take in what else the weights were trained on: from now on the run speaks for it."""
        more = (source for one in starts for source in one.sources)
        self._starts = tuple(dict.fromkeys((*self._starts, *more)))

    @property
    def spent(self) -> float:
        """Return the epsilon of everything that is paid for so far."""
        if self._known[0] != self._paid:  # a loss distribution takes a while
            events = [(event, 1) for _, event in self._paid]
            terms = {"neighbors": self.promise.neighbors, "delta": self.promise.delta}
            self._known = list(self._paid), composed_epsilon(events, **terms)
        return self._known[1]

    def add(self, reservation: Reservation, event: Event) -> None:
        """Take in an entry that was written."""
        self._open = reservation
        self._paid.append((reservation.release_id, event))

    def state(self) -> tuple[Any, ...]:
        """Return what every process of a run knows of it: its name, what was paid, what it is for.

        The permission to draw is not part of it; that stays with the process that paid.
        """
        return self.name, self.promise, tuple(self._paid), self._starts

    def take(self, state: tuple[Any, ...]) -> None:
        """Know of the run what the process that pays for it knows.

        Args:
            state: As :meth:`state` returned it there.
        """
        self.name, self.promise, paid, self._starts = state
        self._paid = list(paid)

    def commit(self, digest: str) -> None:
        """Record the SHA-256 of weights on the entry that paid for them last.

        Raises:
            PrivacyError: It paid for other weights.
        """
        if self._open is None and self._paid:
            last = self._paid[-1][0]
            known = {row.release_id for row in self._ledger.rows if row.kind == "commit"}
            if last in known:
                self._ledger.repeat(last, digest)
            else:  # killed between the checkpoint and its row
                self._open = Reservation(self._ledger, last)
        if self._open is not None:
            self._open.commit(digest)
        self._open = None

    def checkpoint(self, digest: str = "") -> CheckpointPromise:
        """Return what a checkpoint promises now: all entries of the run, and what it started from.

        Args:
            digest: SHA-256 of its weights.
        """
        answers = Answers(
            guarantee=replace(self.promise, epsilon=self.spent),
            release_ids=tuple(entry for entry, _ in self._paid),
            artifact=digest,
        )
        known = {**self._training, "run": self.name}
        sources = counted_once(answers, self._starts)
        return CheckpointPromise(kind=self._kind, sources=sources, training=known)

    def resume(self, wanted: str | Path | bool, output: str | Path) -> tuple[str, int]:  # noqa: FBT001 (transformers')
        """Go on with the run of a checkpoint, and return its folder and how many steps it took.

        All entries of that run count from now on, also those whose steps were lost, and so does
        every caveat of theirs: what was drawn with a known seed stays so.

        Args:
            wanted: A folder, or True for the last complete checkpoint.
            output: Where the checkpoints of the run are.

        Raises:
            UsageError: There is no checkpoint, or it was made with other settings.
            LedgerMismatch: The ledger did not pay for it.
        """
        folder = complete_checkpoint(wanted, output)
        found = CheckpointPromise.read(folder)
        settings = dict(found.training)
        name = str(settings.pop("run", ""))
        refuse_other_settings(settings, self._training)
        rows, own = _entries(self._ledger, name), found.sources[0]
        if not rows or not {row.release_id for row in rows}.issuperset(own.release_ids):
            raise LedgerMismatch(
                f"{self._ledger.path.name} did not pay for the checkpoint {str(folder)!r}. Nothing "
                "was trained. Use the ledger that the run was started on."
            )
        self.name, self._open = name, None
        self._paid = [(row.release_id, event_of(row)) for row in rows]
        self.promise = with_caveats_of(self.promise, own.guarantee, rows)
        self.start_from([found])  # its own part is in what was paid
        return str(folder), steps_taken(folder)


def _entries(ledger: Ledger, run: str) -> list[Row]:
    """Return every entry of a run, oldest first, as the file of the ledger has them."""
    rows = Ledger.read(ledger.path).spends
    details = {row.release_id: json.loads(row.payload).get("details") for row in rows}
    return [row for row in rows if (details[row.release_id] or {}).get("run") == run]
