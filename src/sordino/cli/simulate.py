"""``sordino simulate``: people whose true reward is known."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from sordino._files import atomic_writer, refuse_output, to_json
from sordino.environments.annotators import simulate_pairs
from sordino.errors import UsageError
from sordino.runs.progress import Bar
from sordino.runs.settings import Option, Output

from ._app import COMMANDS, app, command, finish

simulate = typer.Typer(help=COMMANDS["simulate"], no_args_is_help=True)
app.add_typer(simulate, name="simulate")


@dataclass(frozen=True, kw_only=True)
class _SimulatedPairs(Output):
    """Who judges, and how often."""

    out: Annotated[Path, Option("Judgments to write.", metavar="FILE")]
    n: Annotated[int, Option("Number of pairs.")] = 4000
    truth: Annotated[Path | None, Option("Where to write the true reward.", metavar="FILE")] = None
    people: Annotated[int | None, Option("Spread the pairs over so many person ids.")] = None
    seed: Annotated[int, Option("Seed of the simulated world.")] = 0


@command(simulate, _SimulatedPairs)
def pairs(settings: _SimulatedPairs) -> None:
    """Write pairs of generated answers with the choices of simulated people."""
    out, truth, force = settings.out, settings.truth, settings.force
    if truth is not None and truth.absolute() == out.absolute():
        raise UsageError("--out and --truth must be two files.")
    rows, known = simulate_pairs(settings.n, seed=settings.seed, people=settings.people)
    for path in (out, truth):
        if path is not None:
            refuse_output(path, force=force)
    with ExitStack() as stack, Bar.shown("Simulating") as bar:
        if truth is not None:
            file = stack.enter_context(atomic_writer(truth, force=force))
            file.write(to_json(known.to_dict()).encode())
        file = stack.enter_context(atomic_writer(out, force=force))
        for done, row in enumerate(rows, start=1):
            file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            bar(done, settings.n)
    value = {"pairs": settings.n, "seed": settings.seed, "people": settings.people}
    rows_shown = {"pairs": f"{settings.n:,}", "written": out.name}
    finish("sordino simulate", rows_shown, value, as_json=settings.as_json)
