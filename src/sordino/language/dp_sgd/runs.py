"""What a run of central training pays, part by part, and what all its parts promise together.

A part is the steps up to the next checkpoint. Its entry is written before anything of it is drawn.
Whoever resumes finds the last checkpoint and pays anew for every step after it: what was drawn
there before the run was killed is never drawn again, and stays paid for.

What stands behind the weights of a run besides its own draws, each release counted once.

How far a checkpoint on raw pairs came, and with which settings it goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sordino._random import new_release_id
from sordino.errors import LedgerMismatch, UsageError
from sordino.language.models.promises import Answers, CheckpointPromise, Kind
from sordino.language.training.resuming import LAST_WRITTEN, complete_checkpoint
from sordino.privacy.accounting import composed_epsilon
from sordino.privacy.events import Event
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.ledger import Ledger, Reservation
from sordino.privacy.ledger_chain import Row
from sordino.privacy.spend import event_of

from .privacy_terms import CentralPrivacy


def counted_once(own: Answers, others: Iterable[Answers]) -> tuple[Answers, ...]:
    """Return what a run paid for, and then everything else that its weights were trained on."""
    # A model says what it was trained on, and so do its folder and its checkpoints: the same run
    # may be found several times, each time with the entries that it had by then. The last counts.
    different = [one for one in dict.fromkeys(others) if not _is_earlier(one, own)]
    apart = (one for one in different if not any(_covers(more, one) for more in different))
    return (own, *apart)


def with_caveats_of(promise: Guarantee, before: Guarantee, rows: Iterable[Row]) -> Guarantee:
    """Return a promise that is qualified as what it goes on from: seeds and caveats add up."""
    for row in rows:
        before = before.with_caveats(*json.loads(row.payload)["caveats"])
        before = replace(before, randomness="simulated") if row.randomness != "system" else before
    randomness = "simulated" if before.simulated else promise.randomness
    return replace(promise.with_caveats(*before.caveats), randomness=randomness)


def _is_earlier(one: Answers, own: Answers) -> bool:
    """Return whether this is a run before it drew anything, or our own at an earlier time."""
    if not one.release_ids:
        return _is_run(one) and not one.artifact and one.guarantee.epsilon == 0
    return set(one.release_ids) <= set(own.release_ids)


def _covers(more: Answers, one: Answers) -> bool:
    """Return whether both are of one other run, and the first at a later time."""
    if not (_is_run(more) and _is_run(one) and one.release_ids):
        return False
    ids, later = set(one.release_ids), set(more.release_ids)
    same = ids == later and one != more and one.artifact in {"", more.artifact}
    return (ids < later or same) and _promises_no_more(more.guarantee, one.guarantee)


def _promises_no_more(more: Guarantee, one: Guarantee) -> bool:
    """Return whether a promise owns up to everything that another one does."""
    return (
        more.epsilon >= one.epsilon
        and more.delta >= one.delta
        and set(more.caveats) >= set(one.caveats)
        and (more.unit, more.neighbors) == (one.unit, one.neighbors)
        and more.trust == one.trust
        and (more.simulated or not one.simulated)
    )


def _is_run(one: Answers) -> bool:
    """Return whether gradients were noised: answers that people randomized say no such thing."""
    # Of those, two parts of one release may be different answers of the same person.
    return "real-arithmetic" in one.guarantee.caveats


def steps_taken(folder: Path) -> int:
    """Return how many steps a complete checkpoint took."""
    return int(json.loads((folder / LAST_WRITTEN).read_bytes())["global_step"])


def refuse_other_settings(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to go on with other settings than those that were paid for."""
    differ = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
    if differ:
        raise UsageError(
            f"The checkpoint was made with another {' and '.join(differ)}. Nothing was trained. "
            "Use the settings that it was started with, or another checkpoint."
        )


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

    Guarantee:
        That of :class:`~sordino.language.dp_sgd.privacy_terms.CentralPrivacy` for its steps;
        nothing is drawn here. Shown by tests/language/test_central_training.py.
    """
    details = {"run": run, "first_step": first}
    return ledger.reserve(privacy.event(steps), promise=promise, details=details)


class CentralRun:
    """One run: its random name, the entries that pay for it, and what they promise together."""

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
            neighbors, delta = self.promise.neighbors, self.promise.delta
            loss = composed_epsilon(events, neighbors=neighbors, delta=delta)
            self._known = list(self._paid), loss
        return self._known[1]

    def add(self, reservation: Reservation, event: Event) -> None:
        """Take in an entry that was written."""
        self._open = reservation
        self._paid.append((reservation.release_id, event))

    def state(self) -> tuple[Any, ...]:
        """What every process of a run knows of it: its name, what was paid, what it is for."""
        # The permission to draw is not part of it; that stays with the process that paid.
        return self.name, self.promise, tuple(self._paid), self._starts

    def take(self, state: tuple[Any, ...]) -> None:
        """Know of the run what the process that pays for it knows."""
        self.name, self.promise, paid, self._starts = state
        self._paid = list(paid)

    def commit(self, digest: str) -> None:
        """Record the SHA-256 of weights on the entry that paid for them last."""
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
        """What a checkpoint promises now: all entries of the run, and what it started from."""
        answers = Answers(
            guarantee=replace(self.promise, epsilon=self.spent),
            release_ids=tuple(entry for entry, _ in self._paid),
            artifact=digest,
        )
        known = {**self._training, "run": self.name}
        sources = counted_once(answers, self._starts)
        return CheckpointPromise(kind=self._kind, sources=sources, training=known)

    def resume(self, wanted: str | Path | bool, output: str | Path) -> tuple[str, int]:  # noqa: FBT001 (transformers')
        """Go on with the run of a checkpoint, and return its folder and how many steps it took."""
        # All entries of that run count from now on, also those whose steps were lost, and so does
        # every caveat of theirs: what was drawn with a known seed stays so.
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
