"""One run: plan, account, release, publish, whatever is drawn and on whatever data.

Everything that can be refused is refused before anything is spent, and files that belong together
appear together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

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
from sordino.errors import SordinoError, UsageError
from sordino.preferences.pairs import Pairs, PrivatePairs
from sordino.privacy.attempts import is_begun
from sordino.privacy.ledger import Ledger

from ._accounts import Limit, future_ledger, open_ledger
from ._settings import IntoFolder

_RESULT = "result.json"


class Run(ABC):
    """What a command was asked for and has read; nothing is spent before it is performed."""

    settings: IntoFolder

    @property
    @abstractmethod
    def limit(self) -> Limit:
        """Return the limit of a new ledger: what this run spends."""

    @abstractmethod
    def plan(self, ledger: Ledger) -> dict[str, Any]:
        """Return what would be spent on a ledger as it would be; refuse all that can be refused."""

    @abstractmethod
    def release(self, ledger: Ledger) -> tuple[dict[str, Any], dict[str, str]]:
        """Spend and draw; return what ``result.json`` holds, and the files that go with it."""

    @property
    def request(self) -> str | None:
        """Return the name by which an interrupted run finds what it paid for, if it can go on."""
        return None

    def planned(self) -> dict[str, Any]:
        """Return what the run would spend; nothing is touched.

        Raises:
            BudgetExceeded: The ledger has not enough left.
            LedgerError: It belongs to other data, or is damaged.
        """
        asked = self.settings
        ledger = future_ledger(asked.ledger_path, asked.data, self.limit, request=self.request)
        return self.plan(ledger)

    def perform(self) -> tuple[dict[str, Any], Ledger]:
        """Do the whole job; return what ``result.json`` holds, and the ledger."""
        self.planned()
        asked = self.settings
        result = asked.out / _RESULT
        with made_folder(asked.out):
            refuse_output(result, force=asked.force)  # nobody writes now
            force = asked.force or is_begun(asked.ledger_path, self.request)
            refuse_unwritable(result)
            ledger = open_ledger(asked.ledger_path, asked.data, self.limit)
            with add_spend_to_errors(ledger), ledger.attempt(self.request):
                told, files = self.release(ledger)
                publish(asked.out, {**files, _RESULT: to_json(told)}, force=force)
        return told, ledger


def refuse_randomized(pairs: Pairs | PrivatePairs) -> None:
    """Refuse answers that were randomized one by one: a second noise would only harm."""
    if isinstance(pairs, PrivatePairs):
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
                refuse_existing(path, force=False)
            yield
    except BaseException:
        if made:
            with suppress(OSError):
                path.rmdir()
        raise


def publish(folder: Path, files: Mapping[str, str], *, force: bool) -> None:
    """Write files that belong together: all of them or, short of a power cut, none."""
    names = list(files)
    with ExitStack() as stack:
        drafts = []
        for name in reversed(names):  # a stack closes the other way round
            drafts.append(stack.enter_context(atomic_draft(folder / name, force=force)))
            drafts[-1].file.write(files[name].encode())
        for draft in drafts:
            draft.finish()
        clear(folder / names[-1], force=force)  # no old result beside a new reward


@contextmanager
def add_spend_to_errors(ledger: Ledger) -> Iterator[None]:
    """Add to an error that the spend before it stays recorded."""
    try:
        yield
    except SordinoError as error:
        problem = error
    else:
        return
    stays = f" What was spent before stays on {ledger.path.name}." if ledger.spends else ""
    raise type(problem)(f"{problem}{stays}")
