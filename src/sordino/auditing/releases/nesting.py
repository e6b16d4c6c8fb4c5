"""JSON inside JSON, taken apart level by level: hostile depth costs nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

__all__ = ["DEEPEST", "flattened", "is_deep", "parsed", "parts_of", "readable"]

DEEPEST = 64
"""How many levels deep objects and lists may lie in each other."""

_LEVELS = 4  # of a column that are taken apart
_LONGEST = 8  # a longer list is no record of a few fields


def readable(name: str) -> str:
    r"""Return a name in which no character hides or moves the others.

    Example:
        >>> readable("raw.jsonl"), readable("raw\x1b[2J")
        ('raw.jsonl', "'raw\\x1b[2J'")
    """
    return name if name.isprintable() else ascii(name)


def parts_of(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield what a JSON object or list holds, with the path to it; nothing for anything else.

    Example:
        >>> list(parts_of({"label": 1}, "meta")), list(parts_of([17], "m"))
        ([('meta.label', 1)], [('m[0]', 17)])
    """
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield f"{path}.{readable(str(name))}", part
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield f"{path}[{index}]", part


def flattened(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with what its objects and short lists hold, as columns of their own.

    A text that is JSON is one of these, for a table has no other way to hold them. Four levels
    are taken apart, and lists of at most eight. A name that is taken gets a mark, so that nothing
    can hide under another's.

    Example:
        >>> flattened({"id": 1, "meta": {"label": 0, "tags": ["x"]}})
        {'id': 1, 'meta': {'label': 0, 'tags': ['x']}, 'meta.label': 0, 'meta.tags[0]': 'x'}
    """
    found, level = dict(row), list(row.items())
    for left in reversed(range(_LEVELS)):
        opened = [(path, parsed(value)) for path, value in level]
        level = [part for path, value in opened if _opens(value) for part in parts_of(value, path)]
        for path, value in level:
            if left and _opens(parsed(value)):
                continue
            free = path
            while free in found:
                free += "'"
            found[free] = value
    return found


def _opens(value: Any) -> bool:
    """Return whether a value is taken apart."""
    return bool(value) and (
        isinstance(value, Mapping) or (isinstance(value, list | tuple) and len(value) <= _LONGEST)
    )


def parsed(value: Any) -> Any:
    """Return what a text holds if it is a JSON object or list of few levels; else the value.

    Example:
        >>> parsed('{"label": 1}'), parsed("[1"), parsed(3)
        ({'label': 1}, '[1', 3)
    """
    if isinstance(value, str) and value.lstrip()[:1] in {"[", "{"}:
        with suppress(ValueError, RecursionError):
            found = json.loads(value)
            return value if is_deep(found, DEEPEST) else found
    return value


def is_deep(value: Any, most: int) -> bool:
    """Return whether objects and lists lie in each other more than so many levels deep.

    Example:
        >>> is_deep({"a": [1]}, 2), is_deep({"a": [1]}, 1)
        (False, True)
    """
    level = [value]
    for _ in range(most + 1):
        level = [part for one in level for _, part in parts_of(one, "")]
        if not level:
            return False
    return True
