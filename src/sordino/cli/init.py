"""``sordino init``: a project, whose releases all count on one ledger."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sordino.errors import UsageError
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import LEDGER, nearest_ledger
from sordino.runs.settings import Argument, Json

from . import app, command, finish


@dataclass(frozen=True, kw_only=True)
class _Init(Json):
    folder: Path = Argument("The project's folder.", Path(), required=False, metavar="[FOLDER]")


@command(app, _Init)
def init(settings: _Init) -> None:
    """Make a folder a project: every command in it, or below, spends on its one ledger."""
    path = settings.folder / LEDGER
    if (known := nearest_ledger(settings.folder)) is not None:
        raise UsageError(
            f"This is a project already: its ledger is {known}. Nothing was done. A second ledger "
            "would not count what was spent on the first."
        )
    value = {"ledger": str(path), "head": Ledger.create(path).head.digest}
    way = "sordino budget set label EPSILON, or spend: the first release sets its budget"
    finish("sordino init", value | {"next": way}, value, as_json=settings.as_json)
