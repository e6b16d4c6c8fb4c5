"""``sordino reproduce``: run again what the documents show, beside what they show."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import typer

from sordino.errors import AuditRefuted, UsageError
from sordino.runs.settings import Argument, Option

from . import app, command

_SCRIPT = Path("benchmarks", "reproduce.py")


@dataclass(frozen=True, kw_only=True)
class _Reproduce:
    paper: str = Argument(
        "kldp, ppkl, pphj or ppo-dp; else a list.", "", required=False, metavar="[PAPER]"
    )
    result: str = Argument("One result or figure; or all.", "", required=False, metavar="[FIGURE]")
    out: Path | None = Option("Folder to write into; runs/reproduce-PAPER by default.")


@command(app, _Reproduce)
def reproduce(settings: _Reproduce) -> None:
    """Run the study behind a figure again, smaller, and draw it beside the stored one."""
    places = [*(Path.cwd() / "-").parents, *Path(__file__).resolve().parents]
    checkout = next((place for place in places if (place / _SCRIPT).is_file()), None)
    if checkout is None:
        raise UsageError(
            "The studies are no part of the package: run this in a clone of the project. Nothing "
            "was done."
        )
    words = [word for word in (settings.paper, settings.result) if word]
    words += [] if settings.out is None else ["--out", str(settings.out)]
    done = subprocess.run([sys.executable, str(checkout / _SCRIPT), *words], check=False)  # noqa: S603
    if done.returncode == 1:
        raise AuditRefuted("Stored numbers lie outside the intervals of the fresh run.")
    if done.returncode:
        raise typer.Exit(done.returncode)
