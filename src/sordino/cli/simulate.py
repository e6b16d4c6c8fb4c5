"""``sordino simulate``: people whose true reward is known."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from sordino._files import atomic_writer, refuse_output, to_json
from sordino.environments.annotators import simulate_battles, simulate_pairs
from sordino.errors import UsageError
from sordino.runs.progress import Bar
from sordino.runs.settings import Option, Output, terms_of

from . import COMMANDS, app, command, finish

simulate = typer.Typer(help=COMMANDS["simulate"], no_args_is_help=True)
app.add_typer(simulate, name="simulate")


@dataclass(frozen=True, kw_only=True)
class _Simulated(Output):
    out: Path = Option("Judgments to write.", required=True, metavar="FILE")
    n: int = Option("Number of judgments.", 4000)
    truth: Path | None = Option("Where to write what is true.", metavar="FILE")
    people: int | None = Option("Spread them over so many person ids.")
    seed: int = Option("Seed of the simulated world.", 0)


@dataclass(frozen=True, kw_only=True)
class _SimulatedBattles(_Simulated):
    items: int = Option("Number of items that meet.", 20)
    ties: float = Option("How often two equal items tie.", 0.2)


@command(simulate, _Simulated)
def pairs(settings: _Simulated) -> None:
    """Write pairs of generated answers with the choices of simulated people."""
    rows, known = terms_of(settings, simulate_pairs)
    _write(settings, "pairs", rows, known.to_dict())


@command(simulate, _SimulatedBattles)
def battles(settings: _SimulatedBattles) -> None:
    """Write battles of models as arenas publish them: two names and a winner, or a tie."""
    rows, ratings = terms_of(settings, simulate_battles)
    _write(settings, "battles", rows, {"ratings": ratings})


def _write(settings: _Simulated, what: str, rows: Iterable[Any], known: Mapping[str, Any]) -> None:
    out, truth, force = settings.out, settings.truth, settings.force
    if truth is not None and truth.absolute() == out.absolute():
        raise UsageError("--out and --truth must be two files.")
    for path in (out, truth):
        if path is not None:
            refuse_output(path, force=force)
    with ExitStack() as stack, Bar.shown("Simulating") as bar:
        if truth is not None:
            file = stack.enter_context(atomic_writer(truth, force=force))
            file.write(to_json(known).encode())
        file = stack.enter_context(atomic_writer(out, force=force))
        for done, row in enumerate(rows, start=1):
            file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            bar(done, settings.n)
    value = {what: settings.n, "seed": settings.seed, "people": settings.people}
    rows_shown = {what: f"{settings.n:,}", "written": out.name}
    finish("sordino simulate", rows_shown, value, as_json=settings.as_json)
