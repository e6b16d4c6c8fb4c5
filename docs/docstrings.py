# ruff: noqa: INP001 (griffe loads it by its path)
"""Docstrings as the site reads them: roles become links, and examples run on as examples."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:func|class|meth|attr|data|mod):`~?\.?([\w.]+)`")


class Plain(griffe.Extension):
    """Rewrites every docstring, once, when it is read."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring:
            text = ROLE.sub(r"`\1`", obj.docstring.value)
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)
