"""The same stages on language models; needs the extra ``language`` and is never imported for you.

The public names are those of the stub beside this file. Nothing heavy is loaded before one is used.

Example:
    >>> from sordino.language import SentenceEmbeddings
"""

from typing import Any

from sordino import _read_stub
from sordino.errors import modules_of_extra

_HOME = _read_stub(__file__)
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    """Load what is asked for, and only then the libraries that it needs."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    need = f"{name} needs libraries that are not installed."
    (home,) = modules_of_extra("language", need, f"{__name__}.{_HOME[name]}")
    return getattr(home, name)
