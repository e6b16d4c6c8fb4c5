"""One project, one ledger: where it lies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

LEDGER: Final = Path(".sordino", "ledger.db")


def nearest_ledger(start: Path) -> Path | None:
    """Return the ledger of the project that a folder lies in: in it, or above it; None if none.

    Args:
        start: The folder to begin at. The nearest ledger wins.
    """
    start = start.resolve()
    for folder in (start, *start.parents):
        # A link that leads nowhere counts: its ledger is gone, and another one is no substitute.
        if os.path.lexists(folder / LEDGER):
            return folder / LEDGER
    return None
