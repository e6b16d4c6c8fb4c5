"""One project, one ledger: where it lies."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from sordino._files import explained
from sordino.errors import LedgerMismatch

LEDGER: Final = Path(".sordino", "ledger.db")
_FURTHER = "ledgers"  # beside it: where the project has further ledgers, one a line


def nearest_ledger(start: Path) -> Path | None:
    """Return the nearest ledger, in a folder or above it: that of its project; None if none."""
    start = start.resolve()
    for folder in (start, *start.parents):
        # A link that leads nowhere counts: its ledger is gone, and another one is no substitute.
        if os.path.lexists(folder / LEDGER):
            return folder / LEDGER
    return None


def ledger_path(start: Path) -> Path:
    """Return where the ledger of the project is, or would be: then the project is that folder."""
    return nearest_ledger(start) or start / LEDGER


def ledger_of_run(folder: Path) -> Path:
    """Return the ledger of a run in a folder: ``spend.db`` in it, or else its project's."""
    handed_on = folder / "spend.db"
    return handed_on if os.path.lexists(handed_on) else ledger_path(folder)


def secret_path(ledger: Path) -> Path:
    """Return where the secret lies that a ledger knows persons by: that of its project, if any."""
    own = ledger.with_name(f"{ledger.name}.secret")
    home = nearest_ledger(ledger.parent)
    return own if home is None or own.exists() else home.with_name("secret")


def other_ledgers(path: Path) -> list[Path]:
    """Return the further ledgers of the project that a ledger lies in, or from which one spends."""
    found: dict[Path, None] = {}
    for home in filter(None, {nearest_ledger(path.parent), nearest_ledger(Path.cwd())}):
        listed = home.with_name(_FURTHER)
        lines = listed.read_bytes().split(b"\n") if listed.exists() else []
        further = [Path(os.fsdecode(json.loads(line).encode("latin-1"))) for line in lines if line]
        if gone := [other.name for other in further if not other.exists()]:
            raise LedgerMismatch(
                f"The ledger {gone[0]} of this project is gone, and what was spent on it with it. "
                f"Nothing was released. Put it back, or take its line out of {listed.parent.name}/"
                f"{_FURTHER} if nothing that counts was spent there."
            )
        found |= dict.fromkeys([home, *further])
    return [other for other in found if not (path.exists() and other.samefile(path))]


def list_ledger(path: Path) -> None:
    """Let the project that a ledger lies in, or from which one spends, know of it."""
    for home in filter(None, {nearest_ledger(path.parent), nearest_ledger(Path.cwd())}):
        if path.resolve() == home.resolve():
            continue
        listed, line = home.with_name(_FURTHER), os.fsencode(path.resolve()).decode("latin-1")
        with explained(f"{home.parent.name} cannot be written"):
            known = listed.read_text().split("\n") if listed.exists() else []
            if json.dumps(line) not in known:
                with listed.open("a") as file:
                    file.write(f"{json.dumps(line)}\n")


def make_home(ledger: Path) -> None:
    """Make the folder of a project's ledger, if it is one."""
    home = ledger.parent
    if home.name != LEDGER.parent.name or home.is_dir():
        return
    with explained(f"{home.name} cannot be made"):
        home.mkdir(exist_ok=True)
        # A copy in version control would be an older ledger as soon as anything is spent.
        (home / ".gitignore").write_text("*\n")
