"""One project, one ledger: where it lies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from sordino._files import explained

LEDGER: Final = Path(".sordino", "ledger.db")
_FURTHER = "ledgers"  # beside it: where the project has further ledgers, one a line


def nearest_ledger(start: Path) -> Path | None:
    """Return the ledger of the project that a folder lies in: in it, or above it; None if none.

    Args:
        start: The folder to begin at. The nearest ledger wins.
    """
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


def other_ledgers(path: Path) -> list[Path]:
    """Return the further ledgers of the project that a ledger lies in, which know of its data."""
    home = nearest_ledger(path.parent)
    if home is None:
        return []
    listed = home.with_name(_FURTHER)
    names = listed.read_text().splitlines() if listed.exists() else []
    known = [home, *(home.parent.parent / name for name in names)]
    return [other for other in known if other.exists() and not other.samefile(path)]


def list_ledger(path: Path) -> None:
    """Let the project that a new ledger lies in know of it."""
    home = nearest_ledger(path.parent)
    if home is None or path.resolve() == home:
        return
    place = os.path.relpath(path.resolve(), home.parent.parent)
    with (
        explained(f"{home.parent.name} cannot be written"),
        home.with_name(_FURTHER).open("a") as file,
    ):
        file.write(f"{place}\n")


def make_home(ledger: Path) -> None:
    """Make the folder of a project's ledger, if it is one.

    Raises:
        FileSystemError: The folder cannot be written.
    """
    home = ledger.parent
    if home.name != LEDGER.parent.name or home.is_dir():
        return
    with explained(f"{home.name} cannot be made"):
        home.mkdir(exist_ok=True)
        # A copy in version control would be an older ledger as soon as anything is spent.
        (home / ".gitignore").write_text("*\n")
