"""Who has which slot of which batch, what that person is promised, and what a run pays for it.

The entry of a batch is written before any noise of its updates is drawn. Whoever resumes finds
the last checkpoint and pays anew for every batch after it, in the scope of that batch: what was
drawn there before the run was killed is never drawn again, and stays paid for.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from sordino import _validate
from sordino.algorithms.user_slots import Slots, refuse_shifting
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.language.dp_sgd.privacy import PaidRun, UnitPrivacy
from sordino.language.models.promises import CheckpointPromise
from sordino.language.models.tokens import Overlong
from sordino.preferences.records import Text, read_text
from sordino.privacy.accounting import calibrate, composed_epsilon
from sordino.privacy.guarantee import (
    REPLACE_ONE,
    Event,
    GaussianEvent,
    Guarantee,
    NeighboringRelation,
)
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import canonical_json, event_of
from sordino.rewards.release_checks import refuse_large_delta

_MARGIN: Final = 1 + 1e-9  # the noise is rounded, and what it costs is not


@dataclass(frozen=True)
class SlotPrivacy(UnitPrivacy):
    """Public settings of updates on batches of people; choose them before the data.

    Every person has one slot of one batch. An update sums what the people of its batch
    contribute, each clipped as a whole, adds noise, and divides by the number of slots, whether
    or not they are taken. Batches share nobody, so that what is promised for one holds for all.

    Args:
        epsilon: Bound on the loss of a person; finite, greater than 0.
        delta: Probability that the bound may fail, in (0, 1); far below one over the number of
            people.
        neighbors: What one change is: ``REPLACE_SPECIAL`` (a person's slot is left empty) or
            ``REPLACE_ONE`` (another person has it).
        slots: m, how many people one batch has room for; at least 1.
        batches: T, how many batches; at least 1.
        clip: C, bound on the norm of what one person adds to a sum.
        updates_per_batch: K, how many updates are made of one batch; each of them is a noised
            sum, and all of them together keep epsilon.

    Raises:
        UsageError: A setting is out of range.
        PrivacyError: The relation adds or removes people, which moves those behind them into
            other batches; or no noise is shown to keep the promise.

    Guarantee:
        (ε, δ) for one person under the relation, for all updates of all batches and everything
        computed from them, trust ``"central"``; caveats ``real-arithmetic`` and ``timing``. Shown
        by tests/language/test_central_policy.py.

    Source:
        docs/policy_optimization.md, "Setting and privacy unit"; docs/privacy.md, "Gaussian
        mechanism".

    Example:
        >>> terms = {"slots": 100, "batches": 10}
        >>> one = SlotPrivacy(1.0, 1e-6, neighbors=REPLACE_ONE, **terms)
        >>> round(one.noise_multiplier, 3)  # times C: what hides a change of 2C
        8.449
    """

    epsilon: float
    delta: float
    _: KW_ONLY
    neighbors: NeighboringRelation
    slots: int
    batches: int
    clip: float = 1.0
    updates_per_batch: int = 1
    unit: Literal["person"] = field(default="person", init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what nothing can be promised with."""
        for name in ("epsilon", "clip"):
            _validate.positive(name, getattr(self, name))
        _validate.failure_probability("delta", self.delta, zero=False)
        refuse_shifting(self.neighbors)
        for name in ("slots", "batches", "updates_per_batch"):
            _validate.integer(name, getattr(self, name), at_least=1)
        refuse_large_delta(self.guarantee, self.people)

    @property
    def people(self) -> int:
        """Return how many people all batches have room for."""
        return self.slots * self.batches

    @property
    def steps(self) -> int:
        """Return how many updates are made."""
        return self.batches * self.updates_per_batch

    @property
    def expected_batch(self) -> float:
        """Return what noised sums are divided by: the number of slots, taken or not."""
        return float(self.slots)

    @property
    def sensitivity(self) -> float:
        """Return how far one change moves a sum, over C: replacing takes one out, and one in."""
        return 2.0 if self.neighbors is REPLACE_ONE else 1.0

    @property
    def event(self) -> GaussianEvent:
        """Return what one update does, for the ledger."""
        return GaussianEvent(
            _largest_mu(self.epsilon, self.delta, self.updates_per_batch, self.neighbors)
        )

    @property
    def noise_multiplier(self) -> float:
        """Return the standard deviation of the noise over C: the least that keeps the promise."""
        return self.sensitivity / self.event.mu * _MARGIN


@lru_cache
def _largest_mu(epsilon: float, delta: float, count: int, neighbors: NeighboringRelation) -> float:
    """Return the most that each of some releases may cost."""
    return calibrate(GaussianEvent, epsilon, delta, neighbors=neighbors, count=count)


class BatchRun(PaidRun):
    """One run: its entries, one scope for each batch, and what they promise to its worst-off."""

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
        self._slots = Slots(users=privacy.people, batches=privacy.batches)

    @property
    def scopes(self) -> list[str]:
        """Return the name of every batch's scope."""
        return self._slots.scopes(self.name)

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
        neighbors, delta = self.promise.neighbors, self.promise.delta
        different = {frozenset(events.items()): events for events in spent.values()}
        return max(
            composed_epsilon(events, neighbors=neighbors, delta=delta)
            for events in different.values()
        )

    def check(self, first: int) -> None:
        """Refuse the batch of an update that the budget has no room for; nobody was asked yet."""
        privacy = self._privacy
        scope, count = self.scopes[first // privacy.updates_per_batch], privacy.updates_per_batch
        self._ledger.check(privacy.event, promise=self.promise, scope=scope, count=count)

    def pay(self, first: int, steps: int) -> None:
        """Record what the updates of a batch spend, and before it that no batches share a person.

        Guarantee:
            That of :class:`SlotPrivacy` for the people of one batch; nothing is drawn here. Shown
            by tests/language/test_central_policy.py.
        """
        if not self._declared:
            self._slots.declare(self._ledger, self.scopes)
            self._declared = True
        batch, event = first // self._privacy.updates_per_batch, self._privacy.event
        reservation = self._ledger.reserve(
            event,
            promise=self.promise,
            scope=self.scopes[batch],
            count=steps,
            details={"run": self.name, "people": self._digest(batch)},
        )
        self.add(reservation, event)

    def resume(self, wanted: str | Path | bool, output: str | Path) -> tuple[str, int]:  # noqa: FBT001 (transformers')
        """Go on with the run of a checkpoint, and return its folder and its number of updates."""
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


_FORM = "a mapping with 'person', a public id, and 'prompt', a text, chat messages or None"
_HIDDEN = "Which one is not said, as prompts are private. Nothing was trained."


class Person(NamedTuple):
    """Who has a slot."""

    id: str  # public
    prompt: Text | None  # what they ask; None where the slot is left empty


def batches_of(
    rows: object,
    privacy: SlotPrivacy,
    *,
    length: Callable[[Text], int],
    room: int,
    overlong: Overlong,
) -> list[list[Person]]:
    """Return the people of every batch, in the order of the data."""
    # The first row of a person counts, and no other: whoever has a slot gets no second one. Ids
    # alone decide, so that no prompt moves anybody's slot.
    found: dict[str, Person] = {}
    for person, row in _rows(rows):
        if len(found) < privacy.people and person not in found:
            found[person] = Person(person, _prompt(row, length, room, overlong))
    if len(found) < privacy.people:
        raise UsageError(
            f"There are {len(found)} different people, and {privacy.batches} batches of "
            f"{privacy.slots} slots need {privacy.people}. Nothing was trained. Choose fewer "
            "batches or slots, or give rows with prompt=None for people who are not there."
        )
    people, size = list(found.values()), privacy.slots
    return [people[start : start + size] for start in range(0, len(people), size)]


def _rows(rows: object) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Yield the person of every row, written as everywhere in this library, and the row."""
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        raise UsageError(
            f"train_dataset must hold for each person {_FORM}, got {type(rows).__name__}. Nothing "
            "was trained."
        )
    for row in rows:
        if not isinstance(row, Mapping) or "prompt" not in row:
            raise UsageError(f"Each row of train_dataset must be {_FORM}. Nothing was trained.")
        try:
            yield _validate.person_id("a person", row.get("person")), row
        except DataError:
            raise PrivacyError(
                "What is hidden is a person, and a row does not say whose it is. Nothing was "
                "trained. Give every row a 'person': a public id, a text or a whole number."
            ) from None


def _prompt(
    row: Mapping[str, Any], length: Callable[[Text], int], room: int, overlong: Overlong
) -> Text | None:
    """Return a prompt that leaves room for an answer, or None."""
    if row["prompt"] is None:
        return None
    try:
        prompt = read_text(row, "prompt", "a row")
    except DataError:
        raise DataError(f"A prompt is neither text nor chat messages. {_HIDDEN}") from None
    if not prompt or (isinstance(prompt, str) and not prompt.strip()):
        raise DataError(
            f"A prompt is empty. {_HIDDEN} Give prompt=None to leave the slot of a person empty."
        )
    if length(prompt) <= room:
        return prompt
    if overlong == "drop":
        return None
    raise DataError(
        f"A prompt has more than {room} tokens, which leaves no room for an answer. {_HIDDEN} "
        "Lower max_completion_length, or leave such slots empty with overlong='drop'."
    )
