"""Files of answers that are paid for, and how they appear: all of them, also after a crash.

Before the first appears, what was asked is noted beside them. A run that asks the same and finds
the note lets the rest appear: the same bytes, for nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

from sordino._files import read_json, write_json
from sordino.errors import DataError, FileSystemError
from sordino.preferences.manifest import Manifest, digest_of_files, manifest_path, read_manifest
from sordino.preferences.shards import Shards
from sordino.privacy.chain import canonical_json
from sordino.privacy.ledger import Ledger
from sordino.privatization.crossing import Crossing
from sordino.privatization.stored_answers import rows_on_disk

__all__ = [
    "DONE",
    "digest_of_request",
    "has_begun",
    "note_files",
    "noted_request",
    "publish",
    "published",
]

DONE: Final = ".done"
"""How the folder of a run ends whose files have all appeared."""

_FORMAT: Final = "sordino.publication"
_VERSION: Final = 1
_NOTED: Final = "noted.json"
_BEGUN: Final = "begun.json"


def digest_of_request(shards: Shards, crossing: Crossing) -> str:
    """Return one SHA-256 for files as they are now, and for how they are to be answered."""
    request = asdict(shards) | {
        "settings": crossing.memo_settings,
        "unit": crossing.unit,
        "cap": crossing.cap,
        "entropy": repr(crossing.entropy),  # with its seed, if it has one
    }
    return hashlib.sha256(canonical_json(request).encode()).hexdigest()


def note_files(work: Path, request: str, manifests: Mapping[str, Manifest]) -> None:
    """Write what each file says of itself, and then what they answer.

    Raises:
        FileSystemError: It cannot be written.
    """
    for name, manifest in manifests.items():
        write_json(manifest_path(work / name), manifest.to_dict())
    content = {"format": _FORMAT, "version": _VERSION, "request": request}
    write_json(work / _NOTED, content)


def noted_request(work: Path) -> str | None:
    """Return which request a folder of a run answers, if the run got as far as to note it."""
    for name in (_NOTED, _BEGUN):
        if (work / name).exists():
            return _request(work / name)
    return None


def _request(path: Path) -> str | None:
    """Return what a note says; None if it is none."""
    try:
        found = read_json(path, kind=_FORMAT, version=_VERSION, problem="No note")["request"]
    except (DataError, FileSystemError, KeyError):
        return None
    return found if isinstance(found, str) else None


def has_begun(work: Path) -> bool:
    """Return whether some files appeared already, and not all."""
    return (work / _BEGUN).exists()


def published(
    work: Path, folder: Path, names: Iterable[str], ledger: Ledger
) -> tuple[Manifest, ...]:
    """Return the manifests of files of which some may have appeared and the others are made.

    There are none if one is missing or is not what its manifest says, or if the ledger does not
    say that just these were released.
    """
    try:
        manifests = tuple(_manifest(work / name, folder / name) for name in names)
    except (DataError, FileSystemError):
        return ()
    artifact = digest_of_files(manifests)
    released = (
        json.loads(row.payload).get("artifact")
        for row in rows_on_disk(ledger)
        if row.kind in {"commit", "repeat"}
    )
    return manifests if artifact in released else ()


def _manifest(made: Path, final: Path) -> Manifest:
    """Return what a file says of itself, checked, wherever the two are by now.

    Raises:
        DataError: One of them is missing, or they do not belong together.
    """
    path = made if made.exists() else final
    note = manifest_path(made)
    return read_manifest(path, note if note.exists() else manifest_path(final))


def publish(work: Path, folder: Path, names: Iterable[str]) -> None:
    """Let all files appear that have not, each whole and after its manifest.

    The folder of the run is then called as one of which nothing is needed.

    Raises:
        FileSystemError: One cannot be written; the others wait.
    """
    reason = None
    try:
        if (work / _NOTED).exists():
            (work / _NOTED).replace(work / _BEGUN)
        for name in names:
            _show(work / name, folder / name)
        work.rename(work.with_suffix(DONE))  # nothing is left to do, wherever this is killed
    except OSError as error:
        reason = error.strerror or type(error).__name__
    if reason is not None:
        raise FileSystemError(
            f"The folder for the answers cannot be written ({reason}). Some files may be missing "
            "there. They are made and paid for: give the same command again."
        )


def _show(made: Path, final: Path) -> None:
    """Let one file appear, unless it did."""
    if made.exists():
        final.unlink(missing_ok=True)  # no moment with a file and another's manifest
        if manifest_path(made).exists():
            manifest_path(made).replace(manifest_path(final))
        made.replace(final)
