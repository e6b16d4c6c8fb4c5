"""``sordino init``: a project, whose releases all count on one ledger."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from sordino.errors import UsageError
from sordino.privacy.ledger import Ledger
from sordino.privacy.project import LEDGER, nearest_ledger

from ._app import app, finish
from ._settings import Argument, Json, command


@dataclass(frozen=True, kw_only=True)
class Init(Json):
    """Where the project is."""

    folder: Annotated[Path, Argument("The project's folder.", metavar="[FOLDER]")] = Path()


@command(app, Init)
def init(settings: Init) -> None:
    """Make a folder a project: every command in it, or below, spends on its one ledger."""
    path, known = settings.folder / LEDGER, nearest_ledger(settings.folder)
    if known is not None:
        raise UsageError(
            f"This is a project already: its ledger is {known}. Nothing was done. A second ledger "
            "would not count what was spent on the first."
        )
    ledger = Ledger.create(path)
    rows = {
        "ledger": str(path),
        "head": ledger.head.digest,
        "next": "sordino budget set label EPSILON, or spend: the first release sets its budget",
    }
    value = {"ledger": str(path), "head": ledger.head.digest}
    finish("sordino init", rows, value, as_json=settings.as_json)
