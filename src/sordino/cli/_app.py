"""The application that every command registers with.

What every command shares: tables, progress beyond a second, errors without data.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info, get_group_from_info

from sordino import _random
from sordino._files import finite
from sordino._markup import harmless
from sordino._version import __version__

COMMANDS = {
    "align": "Learn a private reward and policy from judgments, with ledger and report.",
    "audit": "Try to break a promise. Exit code 5: it is refuted; 0: it is not, which is no proof.",
    "bandit": "Draw arms from a private policy of logged pulls; the randomness of the draws is the "
    "noise.",
    "budget": "Set how much may be spent on a label, a record or a person.",
    "check": "Hold a policy against everything that a project released. Exit code 9: it is not "
    "met.",
    "choose": "Draw one answer for every prompt, with its probability unless that is withheld.",
    "collect": "Ask people which of two answers is better; needs the extra 'collect'.",
    "estimate": "Foresee accuracy and cost from public numbers only; no data are read, nothing is "
    "spent.",
    "fit": "Fit a reward on answers that are randomized already.",
    "init": "Make a folder a project: everything released in it counts on one ledger.",
    "language": "Train language models on randomized preferences; needs the extra 'language'.",
    "ledger": "Show and verify the record of what was spent.",
    "privatize": "Randomize every label once, and write answers with a manifest that says how.",
    "report": "Write the report of a run again, with its ledger as it stands now.",
    "simulate": "Generate judgments of simulated people.",
}
"""Every command, which is a module beside this one, and what the list of commands says of it."""


class _OnDemand(TyperGroup):
    """Commands whose modules are imported when they are asked for: a list of them is quick."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=line) for name, line in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return what the first argument names, after importing it."""
        if args[0] in COMMANDS:
            self.commands[args[0]] = load_command(args[0])
        return super().resolve_command(ctx, args)


def load_command(name: str) -> Any:
    """Return one command, ready to be called."""
    import_module(f"sordino.cli.{name}")
    for info in app.registered_commands:
        if info.callback is not None and info.callback.__name__ == name:
            return get_command_from_info(
                info, pretty_exceptions_short=True, rich_markup_mode="rich"
            )
    (group,) = (info for info in app.registered_groups if info.name == name)
    return get_group_from_info(
        group, pretty_exceptions_short=True, suggest_commands=True, rich_markup_mode="rich"
    )


app = typer.Typer(
    cls=_OnDemand,
    name="sordino",
    help="Learn from human preferences so that no single judgment can be read out.",
    epilog="Exit codes: 2 usage, 3 budget, 4 bad data, 5 an audit refuted the claim, 6 an audit "
    "cannot tell, 7 file system, 8 ledger damaged or of another data set, 9 a policy is "
    "not met, 130 interrupted, 143 terminated.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _version(*, value: bool) -> None:
    if value:
        typer.echo(f"sordino {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=lambda value: _version(value=value), is_eager=True)
    ] = False,
) -> None:
    """Learn from human preferences so that no single judgment can be read out."""


_PATIENCE = 1.0
_LEAST_WIDTH = 88
_SIMULATED = "[bold white on red] SIMULATED: a seed was used, so nothing here is private [/]"


class Bar:
    """A progress bar on standard error that shows itself only after a second of work."""

    def __init__(self, console: Console, description: str) -> None:
        self._started = _random.clock()
        self._description = description
        self._console = console
        self._progress: Progress | None = None
        self._task: Any = None

    def __call__(self, done: int, total: int) -> None:
        if self._progress is None and _random.clock() - self._started > _PATIENCE:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%"),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._task = self._progress.add_task(self._description, total=total)
            self._progress.start()
        if self._progress is not None:
            self._progress.update(self._task, completed=done, total=total)

    def describe(self, description: str) -> None:
        """Say what is being done from now on."""
        self._description = description
        if self._progress is not None:
            self._progress.update(self._task, description=description)

    def close(self) -> None:
        """Take the bar away."""
        if self._progress is not None:
            self._progress.stop()

    @classmethod
    @contextmanager
    def shown(cls, description: str) -> Iterator[Bar]:
        """Yield a bar and take it away afterwards; silent unless a person is watching."""
        bar = cls(Console(stderr=True, quiet=not sys.stderr.isatty()), description)
        try:
            yield bar
        finally:
            bar.close()


def _wide() -> Console:
    """Return standard output, at least so wide that a digest stays in one piece."""
    console = Console()
    return Console(width=max(console.width, _LEAST_WIDTH))


def _shown(text: str) -> str:
    """Return text as it is, whatever markup or terminal commands it looks like."""
    return escape(harmless(text))


def table(title: str, rows: Mapping[str, Any], *, simulated: bool = False) -> None:
    """Print a closing summary on standard output."""
    console = _wide()
    if simulated:
        console.print(_SIMULATED)
    grid = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows.items():
        grid.add_row(name, _shown(str(value)))
    console.print(grid)


def grid(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with a heading for every column."""
    shown = Table(*columns, title=title, title_justify="left", box=None, pad_edge=False)
    for row in rows:
        shown.add_row(*map(_shown, row))
    _wide().print(shown)


def finish(
    title: str,
    rows: Mapping[str, Any],
    value: Mapping[str, Any],
    *,
    as_json: bool,
    simulated: bool = False,
) -> None:
    """Print either one JSON object or a summary table."""
    if as_json:
        sys.stdout.write(json.dumps(finite(value), indent=1, allow_nan=False) + "\n")
        if simulated:
            say_simulated()
    else:
        table(title, rows, simulated=simulated)


def say_simulated() -> None:
    """Print the banner on standard error, beside output that is read by programs."""
    Console(stderr=True).print(_SIMULATED)


def say_error(error: BaseException) -> None:
    """Print one of our errors on standard error: its kind and its message."""
    sys.stderr.write(f"{type(error).__name__}: {error}\n")


def say_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print one of our warnings on standard error, without the line of code behind it."""
    del filename, lineno, line
    (file or sys.stderr).write(f"{category.__name__}: {message}\n")


def explain_crash(error: BaseException) -> None:
    """Print where an unforeseen error happened, but not its message, which may quote data."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "unknown"
    sys.stderr.write(
        f"InternalError: {type(error).__name__} at {place}. This is a bug in sordino; its message "
        "is withheld because it may quote data. The ledger says what was spent before it. Please "
        "report it with the command you ran.\n"
    )
