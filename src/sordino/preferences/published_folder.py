"""A folder of privatized files in which some are missing, as an interrupted run leaves it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sordino._files import explained
from sordino.errors import DataError
from sordino.preferences.manifest import manifest_path

__all__ = ["ENDINGS", "WORK", "refuse_half_published"]

WORK: Final = ".sordino-*.parts"
"""What a run is called that has not ended, in the folder for its answers."""

ENDINGS: Final = (".jsonl", ".jsonl.gz", ".parquet")
"""How privatized files end."""

_MANIFEST: Final = manifest_path(Path("a.jsonl")).name.removeprefix("a")


def refuse_half_published(folders: Iterable[Path]) -> None:
    """Refuse folders whose files are not all there: a reward from some would pass as one of all.

    Args:
        folders: In which privatized files lie.

    Raises:
        DataError: A run has not ended there, or a manifest is without its file.
        FileSystemError: A folder cannot be read.
    """
    for folder in sorted(set(folders)):
        with explained(f"{folder.name} cannot be read"):
            left = sorted(folder.glob(WORK))
            names = {path.name for path in folder.iterdir()}
        if left:
            raise DataError(
                f"{folder.name} holds {left[0].name}: a run that writes answers there was "
                "interrupted, or is still going on, and files may be missing. Nothing was read. "
                "Let it end, or give the same command again: what was paid for then appears, free."
            )
        described = {manifest_path(Path(name)).name for name in names if name.endswith(ENDINGS)}
        for name in sorted(names - described):
            if name.endswith(_MANIFEST):
                raise DataError(
                    f"{folder.name} holds {name} without the file that it is about: answers are "
                    "missing. Nothing was read. Bring the file back, or take the manifest away if "
                    "the others are all that you want."
                )
