"""The command line: one module per stage, each command a few lines over the library.

Here is what all commands share: how one is made of settings, tables, errors without data, exit
codes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tomllib
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field
from functools import cache
from importlib import import_module
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypeVar

# A command fits small problems: BLAS threads that wait for each other on a busy machine made it
# up to five times slower. It must be said before numpy is loaded; the user's own choice stays.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command, get_command_from_info, get_group_from_info

from sordino._markup import harmless
from sordino._version import __version__
from sordino.errors import FileSystemError, PrivacyWarning, SordinoError, UsageError

if TYPE_CHECKING:
    from sordino.runs.settings import Declared, Spending

COMMANDS: dict[str, str] = tomllib.loads(
    Path(__file__).with_name("commands.toml").read_text("utf-8")
)
"""Every command, and what the list of commands says of it."""

_RUNS = {
    "align": ("alignment", "Align"),
    "bandit": ("bandit_run", "Bandit"),
    "online": ("online_run", "Online"),
    "optimize": ("optimize_run", "Optimize"),
    "plan": ("plan_run", "Planning"),
    "rank": ("rank_run", "Rank"),
}
"""Commands that do one run: who prepares it, and from which settings; others are modules here."""


class _OnDemand(TyperGroup):
    """Commands whose modules are imported when they are asked for: a list of them is quick."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=line) for name, line in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in COMMANDS:
            self.commands[args[0]] = load_command(args[0])
        return super().resolve_command(ctx, args)


@cache
def load_command(name: str) -> Any:
    """Return one command, ready to be called."""
    if name in _RUNS:
        module, settings = _RUNS[name]
        home = import_module(f"sordino.runs.{module}")

        def body(given: Spending) -> None:  # what is told of a run is what its list says
            run = home.prepare(given)
            tell(run.settings, *run.outcome())

        body.__name__, body.__doc__ = name, COMMANDS[name]
        command(app, getattr(home, settings))(body)
    else:
        import_module(f"sordino.cli.{name}")
    shown: dict[str, Any] = {"pretty_exceptions_short": True, "rich_markup_mode": "rich"}
    for info in app.registered_commands:
        if info.callback is not None and info.callback.__name__ == name:
            return get_command_from_info(info, **shown)
    (group,) = (info for info in app.registered_groups if info.name == name)
    return get_group_from_info(group, suggest_commands=True, **shown)


app = typer.Typer(
    cls=_OnDemand,
    name="sordino",
    help="Learn from human preferences, and bound what is told about any one judgment.",
    epilog="Exit codes: 2 usage, 3 budget, 4 bad data, 5 an audit refuted the claim, 6 an audit "
    "cannot tell, 7 file system, 8 ledger damaged or of another data set, 9 a policy is "
    "not met, 130 interrupted, 143 terminated.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"sordino {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False,
) -> None:
    """Learn from human preferences, and bound what is told about any one judgment."""


S = TypeVar("S")
_LITERAL: Any = Literal  # of words that a registry lists, which no type checker can read


def _parameter(field: Field[Any], kind: Any, said: Declared) -> Parameter:
    from sordino.runs.settings import flag_of  # noqa: PLC0415 (a list of commands needs none of it)

    if said.panel is None:
        info = typer.Argument(help=said.help, metavar=said.metavar)
    else:
        if said.choices:
            kind = _LITERAL[said.choices]
        info = typer.Option(
            flag_of(field, said),
            help=said.help,
            metavar=said.metavar,
            min=said.min,
            max=said.max,
            callback=said.callback,
            rich_help_panel=said.panel or None,
        )
    return Parameter(
        field.name,
        Parameter.KEYWORD_ONLY,
        default=Parameter.empty if field.default is MISSING else field.default,
        annotation=Annotated[kind, info],
    )


def command(
    home: typer.Typer, settings: type[S], name: str | None = None
) -> Callable[[Callable[[S], None]], Callable[[S], None]]:
    """Return a decorator that makes a command of a class of settings and what is done with them."""
    from sordino.runs.settings import declared  # noqa: PLC0415 (as above)

    def registered(body: Callable[[S], None]) -> Callable[[S], None]:
        def bound(**given: Any) -> None:
            body(settings(**given))

        parameters = [_parameter(*each) for each in declared(settings)]
        bound.__name__, bound.__doc__ = body.__name__, body.__doc__
        bound.__annotations__ = {each.name: each.annotation for each in parameters}
        bound.__dict__["__signature__"] = Signature(parameters)
        home.command(name)(bound)
        return body

    return registered


_LEAST_WIDTH = 88
_SIMULATED = "[bold white on red] SIMULATED: a seed was used, so nothing here is private [/]"


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
        from sordino._files import finite  # noqa: PLC0415 (as above)

        sys.stdout.write(json.dumps(finite(value), indent=1, allow_nan=False) + "\n")
        if simulated:
            say_simulated()
    else:
        table(title, rows, simulated=simulated)


def tell(settings: Spending, rows: Mapping[str, Any], told: Mapping[str, Any]) -> None:
    """Print the outcome of a run."""
    simulated = told.get("guarantee", {}).get("randomness") == "simulated"
    simulated |= settings.simulate_seed is not None
    finish(settings.title, rows, told, as_json=settings.as_json, simulated=simulated)


def say_simulated() -> None:
    """Print the banner on standard error, beside output that is read by programs."""
    Console(stderr=True).print(_SIMULATED)


def _say_error(error: BaseException) -> None:
    """Print one of our errors on standard error: its kind and its message."""
    sys.stderr.write(f"{type(error).__name__}: {error}\n")


def _say_warning(message: Warning | str, category: type[Warning], *_: object) -> None:
    """Print one of our warnings on standard error, without the line of code behind it."""
    sys.stderr.write(f"{category.__name__}: {message}\n")


_GROUP = get_command(app)  # built once; a command is loaded into it when it is asked for
_INTERRUPTED = 130
_TOO_LARGE = (
    "This needs more memory than there is. If coins were drawn before, the ledger shows the spend. "
    "Give fewer features (--dimension), or many files, which are read in pieces."
)


def preload(arguments: Sequence[str]) -> None:
    """Import what a command needs before it runs; a wrong name is refused later."""
    name = next((word for word in arguments if not word.startswith("-")), None)
    if name in COMMANDS:
        load_command(name)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; no error prints data or a traceback."""
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # a warning of a library may quote an array
        warnings.simplefilter("always", PrivacyWarning)
        warnings.showwarning = _say_warning  # type: ignore[assignment]  # called by position
    try:
        result: Any = _GROUP(args=arguments, standalone_mode=False)
    except (SordinoError, MemoryError) as problem:
        error = problem if isinstance(problem, SordinoError) else UsageError(_TOO_LARGE)
        _say_error(error)
        return error.exit_code
    except TyperException as error:
        getattr(error, "show", lambda: _say_error(error))()
        return getattr(error, "exit_code", 2)
    except (KeyboardInterrupt, typer.Abort):
        result = _INTERRUPTED
    except OSError as error:
        sys.stderr.write(f"FileSystemError: {error.strerror or type(error).__name__}.\n")
        return FileSystemError.exit_code
    except Exception as error:  # noqa: BLE001 (the last line of defense: no message may escape)
        # where it happened, but not its message, which may quote data
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "unknown"
        sys.stderr.write(
            f"InternalError: {type(error).__name__} at {place}. This is a bug in sordino; its "
            "message is withheld because it may quote data. The ledger says what was spent before "
            "it. Please report it with the command you ran.\n"
        )
        return 1
    if result == _INTERRUPTED:  # typer turns Ctrl-C into an exit of its own
        return _stopped("Interrupted", _INTERRUPTED)
    return result if isinstance(result, int) else 0


def _stopped(how: str, code: int) -> int:
    """Say that a command was stopped and where to look; return its exit code."""
    sys.stderr.write(f"{how}. If coins were drawn before, the ledger shows the spend.\n")
    return code


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    # in good order, so that half-written files are removed
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_stopped("Terminated", 143)))
    code = run()
    try:
        sys.stdout.flush()
    except OSError:  # whoever read the output has left, or its disk is full
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = code or FileSystemError.exit_code
    sys.exit(code)
