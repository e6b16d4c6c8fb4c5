"""Running code of other people: whatever it does, it ends in one of our errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sordino.errors import SordinoError, UsageError

__all__ = ["explained_calls", "explained_stranger"]

_TERMINATED: Final = 143  # how the command line leaves when it is told to: no doing of a stranger


@contextmanager
def explained_stranger(problem: str) -> Iterator[None]:
    """Turn what somebody's code raises into one error that names the kind and is chained.

    Code that leaves the interpreter would leave with a code of its own, which could be the code
    of an audit that refuted nothing: it is an error like any other.

    Args:
        problem: What happened, with ``{}`` for the kind of error; its message may hold anything.

    Raises:
        UsageError: The code raised something that is none of our errors, or tried to exit.
    """
    try:
        yield
    except SordinoError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and error.code == _TERMINATED:
            raise
        raise UsageError(problem.format(type(error).__name__)) from error


@contextmanager
def explained_calls(mechanism: object, member: str) -> Iterator[None]:
    """Turn what a member of a mechanism raises into one error.

    Raises:
        UsageError: See :func:`explained_stranger`.
    """
    kind = type(mechanism).__name__
    with explained_stranger(
        f"{member} of {kind} raised {{}}; nothing was audited. Call it in Python to see why."
    ):
        yield
