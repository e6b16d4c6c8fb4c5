"""The application that every command registers with."""

from __future__ import annotations

from typing import Annotated

import typer

from sordino._version import __version__

__all__ = ["app"]

app = typer.Typer(
    name="sordino",
    help="Learn from human preferences so that no single judgment can be read out.",
    epilog="Exit codes: 2 usage, 3 budget, 4 bad data, 5 an audit refuted the claim, 6 ledger "
    "damaged or of another data set, 7 file system, 130 interrupted, 143 terminated.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _version(*, value: bool) -> None:
    """Print the version and stop."""
    if value:
        typer.echo(f"sordino {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=lambda value: _version(value=value), is_eager=True),
    ] = False,
) -> None:
    """Learn from human preferences so that no single judgment can be read out."""
