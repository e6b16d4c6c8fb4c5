"""Learn from human preferences, and bound what is told about any one judgment.

The public names, in the order of the data flow, are those of the stub beside this file; each is
imported when it is first used, so that ``import sordino`` costs next to nothing.

Example:
    >>> import sordino
    >>> coin = sordino.RandomizedResponse(epsilon=1.0)
"""

import ast as _ast
from importlib import import_module as _import_module
from pathlib import Path as _Path
from typing import Any as _Any

from ._version import __version__ as __version__


def _read_stub(file: str) -> dict[str, str]:
    """Return public name → module from the stub of a package, the one list of what is exported."""
    tree = _ast.parse(_Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, _ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


_HOME = _read_stub(__file__)
__all__ = list(_HOME)


def __getattr__(name: str) -> _Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sordino' has no attribute {name!r}")
    value = getattr(_import_module(f"sordino.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
