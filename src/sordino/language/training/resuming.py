"""Where a killed run goes on, and with which answers."""

from __future__ import annotations

from pathlib import Path

from sordino.errors import PrivacyError, UsageError
from sordino.language.models.promises import CheckpointPromise

from .policy_promises import folder_promises

LAST_WRITTEN = "trainer_state.json"
"""The last file of a checkpoint: without it, it was not finished."""


def resumable(
    wanted: str | Path | bool | None,  # noqa: FBT001 (transformers')
    output: str | Path,
    promise: CheckpointPromise | None,
) -> tuple[str | None, CheckpointPromise | None]:
    """The folder of the checkpoint to go on from, or None to start, and what both promise."""
    # A checkpoint may speak for more than this run: for what it started from, or was measured on.
    if wanted is None or wanted is False:
        return None, promise
    folder = complete_checkpoint(wanted, output)
    if promise is None:
        return str(folder), next(iter(folder_promises(folder)), None)
    found = CheckpointPromise.read(folder)
    if found.artifact != promise.artifact:
        raise PrivacyError(
            f"The checkpoint {str(folder)!r} was trained on other answers than these, so its "
            "promise would not speak for what comes out. Nothing was trained. Resume with the "
            "answers that the run began with; they are never randomized again."
        )
    if (found.kind, dict(found.training)) != (promise.kind, dict(promise.training)):
        raise UsageError(
            f"The checkpoint {str(folder)!r} was made with other settings: {dict(found.training)} "
            f"and now {dict(promise.training)}. Nothing was trained."
        )
    return str(folder), promise.with_those_of(found)


def complete_checkpoint(wanted: str | Path | bool, output: str | Path) -> Path:  # noqa: FBT001
    """Return the folder of a checkpoint that was written to its end."""
    folder = _last(Path(output)) if isinstance(wanted, bool) else Path(wanted)
    if folder is None or not (folder / LAST_WRITTEN).is_file():
        raise UsageError(
            f"There is no complete checkpoint in {str(folder or output)!r} to resume from. Nothing "
            "was trained. Leave resume_from_checkpoint out to start from the beginning."
        )
    return folder


def _last(output: Path) -> Path | None:
    """Return the last checkpoint that was written to its end."""
    complete = {
        int(step): folder
        for folder in output.glob("checkpoint-*")
        if (step := folder.name.removeprefix("checkpoint-")).isdigit()
        and (folder / LAST_WRITTEN).is_file()
    }
    return complete[max(complete)] if complete else None
