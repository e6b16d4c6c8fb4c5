"""Options as a user writes them: lists with commas, and their names in errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sordino.errors import SordinoError, UsageError

__all__ = ["named_option", "split_names"]


@contextmanager
def named_option(option: str) -> Iterator[None]:
    """Say in an error which option it is about."""
    problem: SordinoError | None = None
    try:
        yield
    except SordinoError as error:
        problem = error
    if problem is not None:
        raise type(problem)(f"{option}: {problem}")


def split_names(option: str, given: str | None) -> tuple[str, ...]:
    """Return the names in a list with commas; refuse an empty one.

    Raises:
        UsageError: There is nothing between two commas.
    """
    if given is None:
        return ()
    names = tuple(name.strip() for name in given.split(","))
    if not all(names):
        raise UsageError(
            f"{option} must be names with commas between them, such as a,b:8; one of them is "
            "empty. Nothing was done."
        )
    return names
