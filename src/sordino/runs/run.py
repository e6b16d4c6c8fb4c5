"""One run: plan, account, release, publish, whatever is drawn and on whatever data.

Everything that can be refused is refused before anything is spent, and files that belong together
appear together. A plan is made on the ledger as it would be.
"""

from __future__ import annotations

import sys
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sordino._files import (
    atomic_draft,
    clear,
    explained,
    refuse_existing,
    refuse_output,
    refuse_unwritable,
    sole_holder,
    to_json,
)
from sordino.errors import PrivacyError, PrivacyWarning, UsageError
from sordino.preferences.comparisons import Questions
from sordino.preferences.pairs import Randomized
from sordino.privacy import accounting
from sordino.privacy.accounting import EVERYTHING
from sordino.privacy.books import EVERY, owners_way
from sordino.privacy.guarantee import (
    REPLACE_ONE,
    Event,
    Guarantee,
    NeighboringRelation,
    Trust,
    Unit,
    merge,
)
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import Row, canonical_json, columns_of, event_of, promise_of
from sordino.privacy.ledger_chain import ledger_path as project_ledger
from sordino.privacy.persons import People
from sordino.reporting.result import judge

from .settings import Budget, IntoFolder, Paying, Spending, reworded
from .tables import closing_rows, plan_rows, verdict_rows

RESULT = "result.json"
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Limit:
    """What a run spends, and what the user said of the limit of the ledger that pays."""

    run: Guarantee
    budget: Budget
    arrived: bool = False  # whether it came private, so that no promise is too weak any more


def spending_limit(
    epsilon: float,
    budget: Budget,
    *,
    unit: Unit,
    trust: Trust = "central",
    delta: float = 0.0,
    neighbors: NeighboringRelation = REPLACE_ONE,
) -> Limit:
    """Return the limit of a run: of a new ledger what it spends, unless more was said."""
    run = Guarantee(epsilon, delta=delta, unit=unit, neighbors=neighbors, trust=trust)
    return Limit(run=run, budget=budget)


def limit_of_private(promise: Guarantee, budget: Budget) -> Limit:
    """Return the limit of a run on what arrived private, or was released before."""
    terms: dict[str, Any] = {"unit": promise.unit, "trust": promise.trust, "delta": promise.delta}
    return replace(spending_limit(promise.epsilon, budget, **terms), arrived=True)


def future_ledger(
    path: Path, data: str | None, limit: Limit, *more: Limit, request: str | None = None
) -> Ledger:
    """Return the ledger as :func:`open_ledger` would, for planning: nothing on disk is touched."""
    if not is_limited(path):
        return imagined_ledger(path, data, limit, *more)
    unit, known = limit.run.unit, _known_ledger(path, data)
    _refuse_other_terms(known, limit)
    if limit.budget.given or unit not in known.budgets:
        budget = limit.budget.of(known.budgets.get(unit, limit.run)).to_dict()
        known = known.with_rows([*known.rows, _imagined("budget", known.data, {"budget": budget})])
    return known.counting(unit).continuing(request)


def is_limited(path: Path) -> bool:
    """Return whether there is a ledger that has any budget."""
    if not path.exists():
        return False
    first, *rows = Ledger.read(path).rows
    return '"budget":' in first.payload or any(row.kind == "budget" for row in rows)


def imagined_ledger(path: Path, data: str | None, *limits: Limit) -> Ledger:
    """Return a new ledger that is not written anywhere."""
    budgets = [{"budget": limit.budget.of(limit.run).to_dict()} for limit in limits]
    kinds = ["open", *["budget"] * (len(limits) - 1)]
    told = zip(kinds, budgets, strict=True)
    return Ledger(path, [_imagined(kind, data or EVERY, budget) for kind, budget in told])


def _imagined(kind: str, data: str, payload: Mapping[str, object]) -> Row:
    """Return a row that is not written anywhere."""
    return Row(sequence=0, kind=kind, time="", data=data, payload=canonical_json(payload))


def open_ledger(path: Path, data: str | None, limit: Limit) -> Ledger:
    """Return the ledger at a path, made if there is none."""
    # What the user said of the limit becomes that of a ledger that is there, in a row of its own;
    # what was left out stays as it is on the ledger.
    known = _known_ledger(path, data) if path.exists() else None
    if known is not None:
        _refuse_other_terms(known, limit)
    if known is None or limit.run.unit not in known.budgets:  # which is set by what the user said
        return Ledger.open(path, data=data or EVERY, budget=limit.budget.of(limit.run))
    ledger = Ledger.open(path, data=data or EVERY, unit=limit.run.unit)
    changed = limit.budget.of(ledger.budget)
    if changed.to_dict() != ledger.budget.to_dict():
        ledger.change_budget(changed)
    return ledger


def _known_ledger(path: Path, data: str | None) -> Ledger:
    """Return the ledger at a path, for reading, about the data set of a name if one was given."""
    return Ledger(path, Ledger.read(path).rows, data or EVERY).asked(None)


def with_spend(
    ledger: Ledger,
    event: Event,
    promise: Guarantee,
    count: int = 1,
    *,
    questions: np.ndarray | None = None,
    people: People | None = None,
) -> Ledger:
    """Return the ledger as it would be after a spend, for planning the next one."""
    ledger.check(event, promise=promise, count=count, questions=questions, people=people)
    ledger = ledger.asked(questions)
    if ledger.was_paid(event, promise, count):
        return ledger
    payload: dict[str, object] = {"caveats": list(promise.caveats)}
    if (roster := ledger.roster_of(promise, people)) is not None:
        payload["persons"] = roster.digest
    columns = columns_of(event, promise, EVERYTHING, count)
    row = replace(_imagined("reserve", ledger.data, payload), release_id="planned", **columns)
    return ledger.with_rows([*ledger.rows, row])


def _refuse_other_terms(ledger: Ledger, limit: Limit) -> None:
    """Refuse a ledger that has no budget for the unit, or counts it under another relation."""
    # What a run tells (numbers of records, times) depends on the relation, so that the ledger's
    # must be the one that was asked for.
    if ledger.budgets and limit.run.unit not in ledger.budgets and not limit.budget.given:
        raise PrivacyError(
            f"{ledger.path.name} has no budget for {limit.run.unit} changes, only for "
            f"{' and '.join(ledger.budgets)} changes. Nothing was released; "
            f"{owners_way('set one', limit.run, ledger.path.name)}."
        )
    for relation in ledger.relations(limit.run.unit) - {limit.run.neighbors}:
        raise PrivacyError(
            f"{ledger.path.name} counts changes under {relation.name}; this release is about "
            f"{limit.run.neighbors.name}. Nothing was released. Relations cannot be mixed: use "
            f"--neighbors {relation.option} or another ledger."
        )
    ledger.refuse_other_terms(limit.run)


def describe_draw(bounded_range: float) -> dict[str, Any]:
    """Return what one draw promises by itself."""
    return {"epsilon": bounded_range, "delta": 0.0, "bounded_range": bounded_range}


@contextmanager
def quiet() -> Iterator[None]:
    """Keep a policy from warning: a command says the same once, in its own words."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        yield


def paid_here(ledger: Ledger, delta: float) -> Guarantee:
    """Return what the entries of the command on its way promise together, composed anew."""
    own = ledger.own_entries
    return promise_of_all([row for row in ledger.spends if row.release_id in own], delta)


def promise_of_all(rows: Sequence[Row], delta: float) -> Guarantee:
    """Return what entries of one unit promise together, composed anew."""
    events, promises = Counter[Any](), [promise_of(row) for row in rows]
    for row in rows:
        events[event_of(row)] += row.count
    relation = promises[0].neighbors
    epsilon = accounting.composed_epsilon(events, neighbors=relation, delta=delta)
    return merge(promises, epsilon=epsilon, delta=delta)


class Run(ABC):
    """What a command was asked for and has read; nothing is spent before it is performed."""

    settings: Spending

    @property
    def data(self) -> str | None:
        """Return the name of the data set on the ledger."""
        assert isinstance(self.settings, Paying)  # noqa: S101 - else a run says it
        return self.settings.data

    @property
    def overlap(self) -> tuple[str, ...]:
        """Return the caveats of public files that share questions with the private one."""
        return ()

    @property
    @abstractmethod
    def limit(self) -> Limit:
        """Return the limit of a new ledger: what this run spends."""

    @property
    def request(self) -> str | None:
        """Return the name by which an interrupted run finds what it paid for; None without one."""
        return self.settings.request

    @abstractmethod
    def plan(self, ledger: Ledger) -> dict[str, Any]:
        """Return what would be spent on a ledger as it would be; refuse all that can be refused."""

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold the place of the results, if that takes a folder; refuse one that is no place."""
        yield

    @abstractmethod
    def spend(self, ledger: Ledger) -> dict[str, Any]:
        """Spend, draw and publish; return what is told of it."""

    def plan_rows(self, plan: dict[str, Any]) -> dict[str, str]:
        """Return a plan in lines."""
        return plan_rows(plan)

    @abstractmethod
    def rows(self, told: dict[str, Any], ledger: Ledger) -> dict[str, str]:
        """Return what was done in lines."""

    def planned(self) -> dict[str, Any]:
        """Return what the run would spend; nothing is touched.

        Raises:
            BudgetExceeded: The ledger has not enough left.
            LedgerError: It belongs to other data, or is damaged.
        """
        return self.plan(self.account(planning=True))

    def account(self, *, planning: bool) -> Ledger:
        """Return the ledger that pays, or one as it would be: then nothing on disk is touched."""
        path, limit = self.settings.ledger_path, self.limit
        accepted = self.settings.accepted(() if limit.arrived else (limit.run.epsilon,))
        if planning:
            ledger = future_ledger(path, self.data, limit, request=self.request)
        else:
            new = not path.exists()
            ledger = open_ledger(path, self.data, limit)
            if new and path == project_ledger(Path.cwd()):
                sys.stderr.write(f"This folder is a project now. Its ledger is {path}.\n")
        ledger.accepted = None if accepted is None else (*accepted, *self.overlap)
        return ledger

    @contextmanager
    def ready(self) -> Iterator[Run]:
        """Yield the run with all that is public of many files read, if that takes long."""
        yield self

    def perform(self, spend: Callable[[Ledger], T]) -> tuple[T, Ledger]:
        """Do the whole job, in one of the ways in which this run spends; return the ledger too."""
        self.planned()
        with self.place():
            ledger = self.account(planning=False)
            stays = f" What was spent before stays on {ledger.path.name}."
            says = reworded(lambda said: f"{said}{stays if ledger.spends else ''}")
            with says, ledger.attempt(self.request):
                told = spend(ledger)
        return told, ledger

    def outcome(self) -> tuple[dict[str, str], dict[str, Any]]:
        """Plan, or do the whole job; return what there is to tell, in lines and in full."""
        self.settings.refuse_nothing_to_resume()
        if self.settings.dry_run:
            told = self.planned()
            return self.plan_rows(told) | {"touched": "nothing (dry run)"}, told
        with self.ready() as ready:
            told, ledger = ready.perform(ready.spend)
        return verdict_rows(told) | self.rows(told, ledger), told


class FolderRun(Run):
    """A run whose files appear together, ``result.json`` among them: in a folder, or in memory."""

    settings: IntoFolder

    def rows(self, told: dict[str, Any], ledger: Ledger) -> dict[str, str]:
        """Return what was done in lines."""
        del ledger  # its head is certified
        return closing_rows(told, self.settings.out)

    @abstractmethod
    def draw(self, ledger: Ledger) -> tuple[dict[str, Any], dict[str, str]]:
        """Spend and draw; return what ``result.json`` holds, and the files that go with it."""

    @contextmanager
    def place(self) -> Iterator[None]:
        """Make the folder and hold it."""
        if (folder := self.settings.out) is None:
            yield
            return
        result = folder / RESULT
        with made_folder(folder):
            refuse_output(result, force=self.settings.force, spends=True)  # nobody writes now
            refuse_unwritable(result)
            yield

    def spend(self, ledger: Ledger) -> dict[str, Any]:
        """Draw, and show all files."""
        return self.finish(ledger)[0]

    def finish(self, ledger: Ledger) -> tuple[dict[str, Any], dict[str, str]]:
        """Draw, and show all files; return the result, and every file by its name."""
        settings = self.settings
        force = settings.force or settings.is_begun
        told, files = self.draw(ledger)
        told = {"verdict": judge(told), **told}
        told["spent"] = {unit: held.to_dict() for unit, held in ledger.accounts().items()}
        files = {**files, RESULT: to_json(told)}
        if settings.out is not None:
            publish(settings.out, files, force=force)
        return told, files


def refuse_randomized(pairs: Questions) -> None:
    """Refuse answers that were randomized one by one: a second noise would only harm."""
    if isinstance(pairs, Randomized):
        raise UsageError(
            "These answers are randomized already, so no curator has to add noise. Nothing was "
            "done. Use --noise labels, which costs nothing further."
        )


@contextmanager
def made_folder(path: Path) -> Iterator[None]:
    """Make the folder of a run and hold it; a failure takes it away if it is still empty."""
    lock = path / ".sordino.lock"
    busy = (
        f"Another run is writing into {path.name or path}. Nothing was done. Try again when it "
        "is done, or give another folder."
    )
    made = not path.exists()
    with explained(f"{path.name} cannot be made"):
        path.mkdir(parents=True, exist_ok=True)
    try:
        with sole_holder(lock, f"{path.name or path} cannot be written", busy):
            if made and any(not other.name.startswith(".") for other in path.iterdir()):
                refuse_existing(path, force=False, spends=True)
            yield
    except BaseException:
        if made:
            with suppress(OSError):
                path.rmdir()
        raise


def publish(
    folder: Path, files: Mapping[str, str | Callable[[], Iterable[bytes]]], *, force: bool
) -> None:
    """Write files that belong together: all of them or, short of a power cut, none."""
    # What is made while it is written may speak of the files before it.
    names = list(files)
    with ExitStack() as stack:
        drafts = [  # a stack closes the other way round
            stack.enter_context(atomic_draft(folder / name, force=force))
            for name in reversed(names)
        ]
        for draft, made in zip(reversed(drafts), files.values(), strict=True):
            draft.file.writelines([made.encode()] if isinstance(made, str) else made())
        for draft in drafts:
            draft.finish()
        clear(folder / names[-1], force=force)  # no old result beside a new reward
