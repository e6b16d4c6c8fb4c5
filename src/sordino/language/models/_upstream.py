"""What trl is kept from while it works for us."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from sordino.language.models._loading import offline

__all__ = ["upstream"]


@contextmanager
def upstream() -> Iterator[None]:
    """Let trl neither ask a hub nor warn of a name that transformers has changed since."""
    with offline(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`(is_)?gradient_checkpointing", FutureWarning)
        yield
