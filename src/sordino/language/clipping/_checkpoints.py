"""From which checkpoint a run on raw pairs goes on, and with which settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sordino.errors import UsageError
from sordino.language.training._resuming import _LAST_WRITTEN, _last

__all__ = ["complete_checkpoint", "refuse_other_settings"]


def complete_checkpoint(wanted: str | Path | bool, output: str | Path) -> tuple[Path, int]:  # noqa: FBT001 (transformers')
    """Return the folder of a checkpoint that was written to its end, and how many steps it took.

    Args:
        wanted: A folder, or True for the last complete one.
        output: Where the checkpoints of the run are.

    Raises:
        UsageError: There is none.
    """
    folder = _last(Path(output)) if isinstance(wanted, bool) else Path(wanted)
    if folder is None or not (folder / _LAST_WRITTEN).is_file():
        raise UsageError(
            f"There is no complete checkpoint in {str(folder or output)!r} to resume from. Nothing "
            "was trained. Leave resume_from_checkpoint out to start from the beginning."
        )
    state = json.loads((folder / _LAST_WRITTEN).read_bytes())
    return folder, int(state["global_step"])


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
