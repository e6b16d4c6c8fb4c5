"""What training on clipped gradients promises, who is drawn, and what a run pays part by part.

A part is the steps up to the next checkpoint. Its entry is written before anything of it is drawn.
Whoever resumes finds the last checkpoint and pays anew for every step after it: what was drawn
there before the run was killed is never drawn again, and stays paid for.

A command that is given again (:meth:`sordino.Ledger.attempt`) takes the entries of such steps over.
That is sound because nobody saw a first draw: noised sums stay in the process until a checkpoint
holds them, which is written under a hidden name, recorded on the ledger, and only then shown. A
hidden one that the ledger does not know is removed before anything is drawn; steps whose checkpoint
it knows are never drawn again; nor are those of a part whose drawing failed, which was seen.
"""

from __future__ import annotations

import json
import math
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, fields, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args

import numpy as np
from transformers.trainer_utils import rotate_checkpoints

from sordino import _validate
from sordino._random import Entropy, new_release_id
from sordino._validate import positive
from sordino.errors import LedgerMismatch, PrivacyError, UsageError
from sordino.language.models.promises import (
    LAST_WRITTEN,
    Answers,
    CheckpointPromise,
    Kind,
    complete_checkpoint,
)
from sordino.privacy.accounting import EVERYTHING, calibrated_noise_multiplier, composed_epsilon
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_SPECIAL,
    Event,
    Guarantee,
    NeighboringRelation,
    PoissonGaussianEvent,
)
from sordino.privacy.ledger import Ledger, Reservation
from sordino.privacy.ledger_chain import Row, event_of
from sordino.rewards.release_checks import weighed

Unit = TypeVar("Unit")

_WORDS: Final = 2**64
_CHUNK: Final = 1 << 16


def sampling_threshold(probability: float) -> int:
    """Return how many of the 2^64 words draw a unit: rounded down, so never more than stated."""
    stated = positive("sampling_probability", probability)
    least = min(Fraction(stated), Fraction(Decimal(repr(stated))))
    threshold = int(least * _WORDS)
    if not 1 <= threshold <= _WORDS:
        raise UsageError(
            f"sampling_probability must be in (0, 1] and at least 2^-64, got {probability!r}."
        )
    return threshold


def poisson_sample(units: Iterable[Unit], probability: float, *, entropy: Entropy) -> list[Unit]:
    """Return the units that take part: each with the same chance, whoever else does.

    Guarantee:
        None by itself: with chance at most q each unit is in the sample, independently, which is
        what :class:`~sordino.privacy.guarantee.PoissonGaussianEvent` counts on. Who is drawn must
        stay secret, and so must how many. Shown by tests/language/test_clipping.py.
    """
    # One word is drawn for each unit, and it takes part exactly when the word lies below a
    # threshold, so that nothing is rounded. The number of those that do is random: it may be 0, and
    # no data set is too small. Nothing is shuffled, and nothing but the units is looked at.
    # Source: Abadi et al. (2016), Algorithm 1.
    threshold = sampling_threshold(probability)
    chosen: list[Unit] = []
    rest = iter(units)
    while some := list(islice(rest, _CHUNK)):
        words = entropy.words(len(some))
        drawn = np.ones(len(some), bool) if threshold == _WORDS else words < np.uint64(threshold)
        chosen.extend(unit for unit, takes_part in zip(some, drawn, strict=True) if takes_part)
    return chosen


_CentralUnit = Literal["record", "person"]

_MARGIN: Final = 1 + 1e-6  # so that steps that are recorded in parts fit the budget of the whole


class UnitPrivacy(ABC):
    """What hiding a record, or a person, in noised sums of clipped gradients states in any case."""

    # Who derives from it is a frozen dataclass with these fields, and finds the noise it takes.

    epsilon: float
    delta: float
    unit: _CentralUnit
    neighbors: NeighboringRelation
    clip: float

    @property
    @abstractmethod
    def noise_multiplier(self) -> float:
        """Return the standard deviation of the noise over C: the least that keeps the promise."""

    @property
    def guarantee(self) -> Guarantee:
        """Return what all steps promise together."""
        return Guarantee(
            self.epsilon,
            delta=self.delta,
            unit=self.unit,
            neighbors=self.neighbors,
            trust="central",
            caveats=("real-arithmetic", "timing"),
        )

    def promise(self, simulate_seed: int | None) -> Guarantee:
        """Return what all steps promise, with every caveat; nothing of the data enters."""
        promise = self.guarantee
        if self.unit == "record":  # whether records name persons is as private as all else of them
            promise = promise.with_caveats("person-group")
        if simulate_seed is None:
            return promise
        _validate.integer("simulate_seed", simulate_seed, at_least=0)
        return replace(promise.with_caveats("simulated"), randomness="simulated")

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON holds them; all of them are public."""
        settings = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]  # of who derives
        noise = {"noise_multiplier": self.noise_multiplier}
        return {**settings, "neighbors": self.neighbors.name, **noise}


@dataclass(frozen=True)
class CentralPrivacy(UnitPrivacy):
    """Public settings of training on noised sums of clipped gradients; choose them before the data.

    In every step each unit is drawn alone with one chance, its gradient is clipped, and noise is
    added to the sum. The sum is divided by a number that the user gives: dividing by the size of
    the data set, or of the sample, would tell it.

    Args:
        epsilon: Bound on the loss of all steps together; finite, greater than 0.
        delta: Probability that the bound may fail, in (0, 1); far below one over the number of
            units.
        unit: Whose change is hidden: ``"record"`` or ``"person"`` (all their pairs together).
        neighbors: What one change is: ``ADD_OR_REMOVE_ONE`` or ``REPLACE_SPECIAL``.
        sampling_probability: Chance of a unit to take part in a step; in (0, 1].
        steps: Number of steps; at least 1.
        expected_batch: What noised sums are divided by: a public guess of how many units take
            part in a step. A wrong one scales the learning rate, and nothing else.
        clip: C, bound on the norm of what one unit adds to a sum.
        cap: For unit ``"person"``, and needed there: the most pairs of one person that are used,
            the first ones in the order of the data.
        accept_weak: Whether a delta that permits to publish somebody is taken, with a caveat.

    Raises:
        UsageError: A setting is out of range.

    Guarantee:
        (ε, δ) for one unit under the relation, for all steps and everything computed from them,
        trust ``"central"``; caveats ``real-arithmetic`` and ``timing``. Shown by
        tests/language/test_central_training.py and tests/language/test_central_training.py.

    Source:
        docs/privacy.md, "Poisson-sampled Gaussian".
    """

    epsilon: float
    delta: float
    _: KW_ONLY
    unit: _CentralUnit
    neighbors: NeighboringRelation
    sampling_probability: float
    steps: int
    expected_batch: float
    clip: float = 1.0
    cap: int | None = None
    accept_weak: bool = False

    def __post_init__(self) -> None:
        for name in ("epsilon", "expected_batch"):
            _validate.positive(name, getattr(self, name))
        _validate.moderate("clip", self.clip)
        _validate.failure_probability("delta", self.delta, zero=False)
        _validate.one_of("unit", self.unit, get_args(_CentralUnit))
        _validate.one_of("neighbors", self.neighbors, (ADD_OR_REMOVE_ONE, REPLACE_SPECIAL))
        _validate.integer("steps", self.steps, at_least=1)
        sampling_threshold(self.sampling_probability)
        if (self.cap is None) == (self.unit == "person"):
            raise UsageError(
                "cap is the most pairs of one person: give it with unit='person', and leave it "
                f"out with unit='record'; got cap={self.cap!r} with unit={self.unit!r}."
            )
        if self.cap is not None:
            _validate.integer("cap", self.cap, at_least=1)
        _ = self.guarantee  # refuses a delta that is too large

    @property
    def guarantee(self) -> Guarantee:
        """Return what all steps promise together."""
        promise, accepted = super().guarantee, () if self.accept_weak else None
        # how many units there are may be private; how many the settings speak of is public
        for n in (None, math.floor(self.expected_batch / self.sampling_probability)):
            promise = weighed(replace(promise, neighbors=REPLACE_SPECIAL), n, accepted)
        return replace(promise, neighbors=self.neighbors)

    @property
    def noise_multiplier(self) -> float:
        """Return the standard deviation of the noise over C: the least that keeps the promise.

        Raises:
            PrivacyError: No noise is shown to keep it.
        """
        terms = (self.epsilon, self.delta, self.sampling_probability, self.steps, self.neighbors)
        return _noise_multiplier(*terms)

    def event(self, steps: int) -> PoissonGaussianEvent:
        """Return what so many steps do, for the ledger."""
        return PoissonGaussianEvent(self.noise_multiplier, self.sampling_probability, steps)


@lru_cache
def _noise_multiplier(
    epsilon: float, delta: float, chance: float, steps: int, neighbors: NeighboringRelation
) -> float:
    """Return the calibrated noise, which takes seconds to find, once for all equal settings."""
    least = calibrated_noise_multiplier(
        epsilon, delta, sampling_probability=chance, steps=steps, neighbors=neighbors
    )
    return least * _MARGIN


def _counted_once(own: Answers, others: Iterable[Answers]) -> tuple[Answers, ...]:
    """Return what a run paid for, and then everything else that its weights were trained on."""
    # A model says what it was trained on, and so do its folder and its checkpoints: the same run
    # may be found several times, each time with the entries that it had by then. The last counts.

    different = [
        one
        for one in dict.fromkeys(others)
        if not (  # a run before it drew anything, or our own at an earlier time
            set(one.release_ids) <= set(own.release_ids)
            if one.release_ids
            else _is_run(one) and not one.artifact and one.guarantee.epsilon == 0
        )
    ]
    apart = (one for one in different if not any(_covers(more, one) for more in different))
    return (own, *apart)


def _covers(more: Answers, one: Answers) -> bool:
    """Return whether both are of one other run, and the first, at a later time, owns up to all."""
    if not (_is_run(more) and _is_run(one) and one.release_ids):
        return False
    ids, later = set(one.release_ids), set(more.release_ids)
    same = ids == later and one != more and one.artifact in {"", more.artifact}
    wide, narrow = more.guarantee, one.guarantee
    return (
        (ids < later or same)
        and wide.epsilon >= narrow.epsilon
        and wide.delta >= narrow.delta
        and set(wide.caveats) >= set(narrow.caveats)
        and (wide.unit, wide.neighbors, wide.trust) == (narrow.unit, narrow.neighbors, narrow.trust)
        and (wide.simulated or not narrow.simulated)
    )


def _is_run(one: Answers) -> bool:
    """Return whether gradients were noised: answers that people randomized say no such thing."""
    # Of those, two parts of one release may be different answers of the same person.
    return "real-arithmetic" in one.guarantee.caveats


HIDDEN: Final = ".checkpoint.partial"
"""Where a checkpoint is written before the ledger knows it."""

RunState: TypeAlias = tuple[str, Guarantee, tuple[tuple[str, Event], ...], tuple[Answers, ...]]


def _details(row: Row) -> dict[str, Any]:
    """Return the public numbers that are kept with an entry."""
    return dict(json.loads(row.payload).get("details") or {})


class PaidRun:
    """One run: its random name, the entries that pay for it, and what they promise together."""

    # How it is paid for, `check` and `pay` say: the first refuses what follows after some steps if
    # the budget has no room for it, the second records what some steps spend before any noise of
    # them is drawn.
    check: Callable[[int], None]
    pay: Callable[[int, int], None]

    def __init__(
        self,
        privacy: Any,
        promise: Guarantee,
        training: Mapping[str, Any],
        starts: Iterable[CheckpointPromise],
        ledger: Ledger,
        *,
        kind: Kind,
    ) -> None:
        """Start a run that has spent nothing."""
        self._privacy, self._kind = privacy, kind
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

    def _reserve_steps(
        self, event: Event, details: Mapping[str, object], scope: str = EVERYTHING, count: int = 1
    ) -> None:
        """Write an entry, or take in the one that the same command wrote before."""
        reservation = self._ledger.reserve(
            event, promise=self.promise, scope=scope, count=count, details=dict(details)
        )
        if reservation.release_id in self._committed():
            raise PrivacyError(
                "This run was interrupted after it had taken these steps, and its checkpoints are "
                "gone. Nothing was drawn again. Put them back, or train into another folder, which "
                "pays anew."
            )
        self._open = reservation
        if all(reservation.release_id != known for known, _ in self._paid):
            self._paid.append((reservation.release_id, event))

    def _committed(self) -> set[str]:
        return {row.release_id for row in self._ledger.rows if row.kind == "commit"}

    def fail(self, error: BaseException) -> None:
        """Let nobody draw again on the entry of a step whose drawing was seen to fail."""
        if isinstance(error, Exception) and self._open is not None:
            self._open.give_up()

    def go_on(self) -> bool:
        """Take the name of the run that the command on its way was; return whether it was one."""
        return False

    def start(self, wanted: str | Path | bool | None, output: str | Path) -> tuple[str | None, int]:  # noqa: FBT001 (transformers')
        """Return the checkpoint to go on from, if any, and how many steps are taken by then."""
        # Raises: BudgetExceeded: The steps that are left are over the budget. UsageError: There is
        # no such checkpoint, or no step is left.
        first, folder = 0, None
        self.show(output)
        begun = self.go_on()
        if wanted or (begun and any(Path(output).glob(f"checkpoint-*/{LAST_WRITTEN}"))):
            folder, first = self.resume(wanted or True, output)
        if first >= self._privacy.steps and not begun:
            raise UsageError(
                f"The run took all of its {first} steps. Nothing was trained and nothing was spent."
            )
        self.check(first)
        return folder, first

    def show(self, output: str | Path, *, most: int | None = None) -> None:
        """Give hidden checkpoints that the ledger knows their names; remove all others."""
        hidden, rows = Path(output) / HIDDEN, self._ledger.rows
        known = {json.loads(row.payload).get("artifact") for row in rows}
        for folder in sorted(hidden.glob("checkpoint-*")):
            if not (folder / LAST_WRITTEN).is_file():
                continue
            if CheckpointPromise.read(folder).sources[0].artifact in known:
                shown = hidden.with_name(folder.name)
                shutil.rmtree(shown, ignore_errors=True)
                folder.rename(shown)
        shutil.rmtree(hidden, ignore_errors=True)
        rotate_checkpoints(str(output), save_total_limit=most, use_mtime=True)

    def state(self) -> RunState:
        """What every process of a run knows of it: its name, what was paid, what it is for."""
        # The permission to draw is not part of it; that stays with the process that paid.
        return self.name, self.promise, tuple(self._paid), self._starts

    def take(self, state: RunState) -> None:
        """Know of the run what the process that pays for it knows."""
        self.name, self.promise, paid, self._starts = state
        self._paid = list(paid)

    def commit(self, digest: str) -> None:
        """Record the SHA-256 of weights on the entry that paid for them last."""
        if self._open is None and self._paid:
            last = self._paid[-1][0]
            if last in self._committed():
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
        training = {**self._training, "run": self.name}
        sources = _counted_once(answers, self._starts)
        return CheckpointPromise(kind=self._kind, sources=sources, training=training)

    def resume(self, wanted: str | Path | bool, output: str | Path) -> tuple[str, int]:  # noqa: FBT001 (transformers')
        """Go on with the run of a checkpoint, and return its folder and how many steps it took."""
        # All entries of that run count from now on, also those whose steps were lost, and so does
        # every caveat of theirs: what was drawn with a known seed stays so.
        folder = complete_checkpoint(wanted, output)
        found = CheckpointPromise.read(folder)
        settings, ours = dict(found.training), self._training
        name = str(settings.pop("run", ""))
        differ = sorted(at for at in {*settings, *ours} if settings.get(at) != ours.get(at))
        if differ:
            raise UsageError(
                f"The checkpoint was made with another {' and '.join(differ)}. Nothing was "
                "trained. Use the settings that it was started with, or another checkpoint."
            )
        own, paid = found.sources[0], Ledger.read(self._ledger.path).spends
        rows = [row for row in paid if _details(row).get("run") == name]
        if not rows or not {row.release_id for row in rows}.issuperset(own.release_ids):
            raise LedgerMismatch(
                f"{self._ledger.path.name} did not pay for the checkpoint {str(folder)!r}. Nothing "
                "was trained. Use the ledger that the run was started on."
            )
        self.name, self._open = name, None
        self._paid = [(row.release_id, event_of(row)) for row in rows]
        caveats = [json.loads(row.payload)["caveats"] for row in rows]
        self.promise = self.promise.with_caveats(*own.guarantee.caveats, *chain(*caveats))
        if own.guarantee.simulated or any(row.randomness != "system" for row in rows):
            self.promise = replace(self.promise, randomness="simulated")
        self.start_from([found])  # its own part is in what was paid
        state = json.loads((folder / LAST_WRITTEN).read_bytes())
        return str(folder), int(state["global_step"])


class CentralRun(PaidRun):
    """A run on raw pairs: each entry pays for the steps up to the next checkpoint."""

    _privacy: CentralPrivacy

    def _begun(self) -> dict[int, Row]:
        """Return the entries that the command on its way may go on with, by their first steps."""
        ids = set(self._ledger.open_entries)
        rows = [row for row in self._ledger.spends if row.release_id in ids]
        return {_details(row)["first_step"]: row for row in rows if "first_step" in _details(row)}

    def go_on(self) -> bool:
        """Take the name of the run that the command on its way was; return whether it was one."""
        begun = self._begun()
        if begun:
            self.name = _details(begun[min(begun)])["run"]
        return bool(begun)

    def check(self, first: int) -> None:
        """Refuse steps to the end that the budget has no room for."""
        paid = [event_of(row) for step, row in self._begun().items() if step >= first]
        left = self._privacy.steps - first - sum(getattr(event, "steps", 0) for event in paid)
        if left > 0:
            self._ledger.check(self._privacy.event(left), promise=self.promise)

    def pay(self, first: int, steps: int) -> None:
        """Record what some steps spend."""
        # Guarantee: That of :class:`CentralPrivacy` for its steps; nothing is drawn here. Shown by
        # tests/language/test_central_training.py.
        details = {"run": self.name, "first_step": first}
        self._reserve_steps(self._privacy.event(steps), details)
