"""The command line: one module per stage, each command a few lines over the library."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

# A command fits small problems: BLAS threads that wait for each other on a busy machine made it
# up to five times slower. It must be said before numpy is loaded; the user's own choice stays.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import typer
from typer.exceptions import TyperException
from typer.main import get_command

from sordino.errors import FileSystemError, PrivacyWarning, SordinoError, UsageError

from ._app import COMMANDS, app, explain_crash, load_command, say_error, say_warning

__all__ = ["app", "load_command", "main", "preload", "run"]


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
        warnings.showwarning = say_warning  # type: ignore[assignment]  # called by position
    try:
        result: Any = _GROUP(args=arguments, standalone_mode=False)
    except (SordinoError, MemoryError) as problem:
        error = problem if isinstance(problem, SordinoError) else UsageError(_TOO_LARGE)
        say_error(error)
        return error.exit_code
    except TyperException as error:
        getattr(error, "show", lambda: say_error(error))()
        return getattr(error, "exit_code", 2)
    except (KeyboardInterrupt, typer.Abort):
        result = _INTERRUPTED
    except OSError as error:
        sys.stderr.write(f"FileSystemError: {error.strerror or type(error).__name__}.\n")
        return FileSystemError.exit_code
    except Exception as error:  # noqa: BLE001 (the last line of defense: no message may escape)
        explain_crash(error)
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
