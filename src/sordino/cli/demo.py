"""``sordino demo``: from nothing to a report, of simulated people."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from sordino._files import explained, to_json
from sordino.environments.annotators import simulate_pairs
from sordino.errors import UsageError
from sordino.privacy.ledger_chain import LEDGER
from sordino.runs.align_settings import Align
from sordino.runs.alignment import prepare
from sordino.runs.settings import Argument

from . import app, command, tell


@dataclass(frozen=True, kw_only=True)
class _Demo:
    folder: Path = Argument("A new folder.", Path("demo"), required=False, metavar="[FOLDER]")


@command(app, _Demo)
def demo(settings: _Demo) -> None:
    """Simulate 4,000 judgments in a new folder, learn from them at epsilon 2, write a report."""
    folder = settings.folder.absolute()
    if os.path.lexists(folder):
        raise UsageError(
            f"{folder.name} is there already. Nothing was done. Name a new folder: sordino demo "
            "FOLDER."
        )
    with explained(f"The folder {folder.name} could not be made"):
        folder.mkdir(parents=True)
    rows, known = simulate_pairs(4000, seed=0)
    prefs, truth, out = folder / "prefs.jsonl", folder / "truth.json", folder / "run"
    prefs.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    truth.write_text(to_json(known.to_dict()), encoding="utf-8")
    # A ledger of its own: simulated people count on no project's budget.
    run = prepare(Align(prefs=[prefs], epsilon=2.0, truth=truth, out=out, ledger=folder / LEDGER))
    tell(run.settings, *run.outcome())
