"""How far a checkpoint on raw pairs came, and with which settings it goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sordino.errors import UsageError
from sordino.language.training._resuming import LAST_WRITTEN

__all__ = ["refuse_other_settings", "steps_taken"]


def steps_taken(folder: Path) -> int:
    """Return how many steps a complete checkpoint took."""
    return int(json.loads((folder / LAST_WRITTEN).read_bytes())["global_step"])


def refuse_other_settings(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to go on with other settings than those that were paid for.

    Args:
        found: Those of the checkpoint.
        wanted: Those of the run that wants to go on.

    Raises:
        UsageError: A setting differs; its name is said.
    """
    differ = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
    if differ:
        raise UsageError(
            f"The checkpoint was made with another {' and '.join(differ)}. Nothing was trained. "
            "Use the settings that it was started with, or another checkpoint."
        )
