"""``sordino simulate``: people whose true reward is known."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from sordino._files import atomic_writer, refuse_output, to_json
from sordino.cli import _options as options
from sordino.cli._app import COMMANDS, app
from sordino.environments.annotators import simulate_pairs
from sordino.errors import UsageError

from ._app import Bar, finish

simulate = typer.Typer(help=COMMANDS["simulate"], no_args_is_help=True)
app.add_typer(simulate, name="simulate")


@simulate.command("pairs")
def pairs(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Judgments to write.")],
    n: Annotated[int, typer.Option("--n", help="Number of pairs.")] = 4000,
    truth: Annotated[
        Path | None, typer.Option("--truth", metavar="FILE", help="Where to write the true reward.")
    ] = None,
    people: Annotated[
        int | None, typer.Option("--people", help="Spread the pairs over so many person ids.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the simulated world.")] = 0,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Write pairs of generated answers with the choices of simulated people."""
    if truth is not None and truth.absolute() == out.absolute():
        raise UsageError("--out and --truth must be two files.")
    rows, known = simulate_pairs(n, seed=seed, people=people)
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
            bar(done, n)
    value = {"pairs": n, "seed": seed, "people": people}
    finish("sordino simulate", {"pairs": f"{n:,}", "written": out.name}, value, as_json=as_json)
