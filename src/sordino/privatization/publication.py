"""Files of answers that are paid for, and how they appear: all of them, also after a crash.

Before the first appears, what was asked is noted beside them. A run that asks the same and finds
the note lets the rest appear: the same bytes, for nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from sordino._files import clear, explained, read_json, write_json
from sordino.errors import DataError, FileSystemError
from sordino.preferences.manifest import Manifest, digest_of_files, manifest_path, read_manifest
from sordino.preferences.shards import Shards
from sordino.privacy.chain import canonical_json
from sordino.privacy.ledger import Ledger
from sordino.privatization.crossing import Crossing
from sordino.privatization.stored_answers import rows_on_disk

__all__ = [
    "DONE",
    "bind",
    "digest_of_request",
    "has_begun",
    "is_drawing",
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
_DRAWING: Final = "drawing.json"


def digest_of_request(shards: Shards, crossing: Crossing) -> str:
    """Return one SHA-256 for which files are to be answered, and how; nothing of what they hold.

    It outlives a run that is killed, so neither their size nor their time may be in it.
    """
    request = {
        "files": list(dict.fromkeys(piece.path for piece in shards.pieces)),
        "layout": shards.layout,
        "dimension": shards.dimension,
        "person_field": shards.person_field,
        "drop_identical": shards.drop_identical,
        "settings": crossing.memo_settings,
        "unit": crossing.unit,
        "cap": crossing.cap,
        "entropy": repr(crossing.entropy),  # with its seed, if it has one
    }
    return hashlib.sha256(canonical_json(request).encode()).hexdigest()


def note_files(work: Path, request: str, manifests: Mapping[str, Manifest], *, force: bool) -> None:
    """Write what each file says of itself, and then what they answer.

    Raises:
        FileSystemError: It cannot be written.
    """
    for name, manifest in manifests.items():
        write_json(manifest_path(work / name), manifest.to_dict(), force=True)
    content = {"format": _FORMAT, "version": _VERSION, "request": request, "force": force}
    write_json(work / _NOTED, content, force=True)


def is_drawing(work: Path, request: str) -> bool:
    """Return whether a folder of a run holds answers to a request, as far as they were drawn."""
    return _request(work / _DRAWING) == request


def bind(work: Path, request: str, entry: str) -> None:
    """Tie what will be drawn in a folder of a run to the entry that pays; other draws go.

    Args:
        work: The folder.
        request: What is answered, down to its public fields.
        entry: Id on the ledger.

    Raises:
        FileSystemError: It cannot be written.
    """
    content = {"format": _FORMAT, "version": _VERSION, "request": request, "entry": entry}
    with explained("The folder for the answers cannot be written"):
        known = (work / _DRAWING).exists() and json.loads((work / _DRAWING).read_bytes())
        if known != content:
            for path in work.iterdir():
                path.unlink()
            write_json(work / _DRAWING, content)


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
        UsageError: Another file has one of their names, and the run was not to overwrite any.
        FileSystemError: One cannot be written; the others wait.
    """
    reason = None
    try:
        note = next(work / name for name in (_NOTED, _BEGUN) if (work / name).exists())
        force = json.loads(note.read_bytes()).get("force") is True
        if (work / _NOTED).exists():
            (work / _NOTED).replace(work / _BEGUN)
        for name in names:
            _show(work / name, folder / name, force=force)
        work.rename(work.with_suffix(DONE))  # nothing is left to do, wherever this is killed
    except OSError as error:
        reason = error.strerror or type(error).__name__
    if reason is not None:
        raise FileSystemError(
            f"The folder for the answers cannot be written ({reason}). Some files may be missing "
            "there. They are made and paid for: give the same command again."
        )


def _show(made: Path, final: Path, *, force: bool) -> None:
    """Let one file appear, unless it did."""
    if made.exists():
        clear(final, force=force)  # no moment with a file and another's manifest
        if manifest_path(made).exists():
            manifest_path(made).replace(manifest_path(final))
        made.replace(final)
