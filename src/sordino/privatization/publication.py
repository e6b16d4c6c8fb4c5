"""Files of answers that are paid for, and how they appear in a folder: all, also after a crash.

Before the first appears, what was asked is noted beside them. A run that asks the same and finds
the note lets the rest appear: the same bytes, for nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from sordino import _random
from sordino._files import (
    clear,
    explained,
    read_json,
    refuse_output,
    sole_holder,
    write_json,
    written_once,
)
from sordino.errors import DataError, FileSystemError, UsageError
from sordino.preferences.chunks import ENDINGS, Chunk, Chunks
from sordino.preferences.containers import separator
from sordino.preferences.pairs import Manifest, digest_of_files, manifest_path, read_manifest, stem
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import digest_of_json

from .randomization import Randomization, rows_on_disk

_FOLDER: Final = "sordino"
_DONE: Final = ".done"  # how the folder of a run ends whose files have all appeared
_FORMAT: Final = "sordino.publication"
_VERSION: Final = 1
_NOTED: Final = "noted.json"
_BEGUN: Final = "begun.json"  # what the first becomes when files begin to appear
_DRAWING: Final = "drawing.json"
_WRITING: Final = "The folder for the answers cannot be written"


def digest_of_request(chunks: Chunks, randomization: Randomization) -> str:
    """Return one SHA-256 for which files are to be answered, and how; nothing of what they hold."""
    # It outlives a run that is killed, so neither their size nor their time may be in it.
    request = {
        "files": list(dict.fromkeys(chunk.path for chunk in chunks)),
        "layout": chunks.layout,
        "dimension": chunks.dimension,
        "person_field": chunks.person_field,
        "drop": sorted(chunks.rules.drop),
        "longest": chunks.rules.longest,
        "columns": [*chunks.schema.fields, chunks.schema.label, chunks.schema.each],
        "levels": str(chunks.levels),
        "ratings": chunks.ratings,
        "settings": randomization.memo_settings,
        "unit": randomization.unit,
        "cap": randomization.cap,
        "entropy": repr(randomization.entropy),  # with its seed, if it has one
    }
    return digest_of_json(request)


def _requested(path: Path) -> str | None:
    """Return which request a note is about; None if it is none."""
    try:
        found = read_json(path, kind=_FORMAT, version=_VERSION, problem="No note")["request"]
    except (DataError, FileSystemError, KeyError):
        return None
    return found if isinstance(found, str) else None


def _noted_request(work: Path) -> str | None:
    """Return which request the folder of a run answers, if the run got as far as to note it."""
    note = next((work / name for name in (_NOTED, _BEGUN) if (work / name).exists()), None)
    return None if note is None else _requested(note)


@dataclass(frozen=True)
class FileOfWork:
    """A file to be, and the chunks that it is made of, in order."""

    name: str  # of the file
    chunks: tuple[Chunk, ...]  # of the raw file


@dataclass(frozen=True)
class ChunkOutputs:
    """Where the answers of many files go."""

    folder: Path  # the folder
    files: tuple[FileOfWork, ...]  # a file to be for every raw file
    force: bool  # overwrite what is there
    # What the folder of a run is called after that has not ended: several files of one folder may
    # be written by runs that know nothing of each other.
    mark: str = _FOLDER

    @classmethod
    def of(cls, chunks: Chunks, out: Path, *, force: bool, one_file: bool = False) -> ChunkOutputs:
        """Return where the answers go, to a folder or to one file; nothing is written yet."""
        folder = out
        if one_file:
            if separator(out) is not None or chunks.layout != "texts":
                raise UsageError(
                    "A privatized file is JSON Lines: give it a name that ends in .jsonl or "
                    ".jsonl.gz. Nothing was done."
                )
            made = cls(out.parent, (FileOfWork(out.name, tuple(chunks)),), force, out.name)
            made._refuse_taken()
            return made
        ending = ".jsonl" if chunks.layout == "texts" else ".parquet"
        files: dict[int, list[Chunk]] = {}
        for chunk in chunks:
            files.setdefault(chunk.file, []).append(chunk)
        raw = r"(?i)\.(json|jsonl|ndjson|csv|tsv|arrow|feather|parquet)$"
        made_of = []
        for some in files.values():
            path = Path(some[0].path)
            name = re.sub(raw, "", stem(path.with_name(re.sub(r"(?i)\.(gz|zst)$", "", path.name))))
            made_of.append(FileOfWork(f"{name}{ending}", tuple(some)))
        made = cls(folder, tuple(made_of), force)
        for name in made.names:
            if made.names.count(name) > 1:
                raise UsageError(
                    f"The answers of two files would both be called {name}. Nothing was done. "
                    "Rename one, or give them one after the other, each with a folder of its own."
                )
        made._refuse_folder(chunks)
        made._refuse_taken()
        return made

    def _refuse_taken(self) -> None:
        """Refuse names that are taken, unless by what an interrupted run left that may go on."""
        if not any(map(_noted_request, self._left())):
            self._refuse_existing()

    @property
    def names(self) -> list[str]:
        """Return what the files will be called."""
        return [file.name for file in self.files]

    def _refuse_folder(self, chunks: Chunks) -> None:
        """Refuse a folder that must not be written to."""
        if not self.folder.exists():
            return
        if not self.folder.is_dir():
            raise FileSystemError(f"{self.folder.name} is no folder; the answers need one.")
        for raw in {Path(chunk.path).parent for chunk in chunks}:
            if raw.samefile(self.folder):
                raise UsageError(
                    "The answers would lie among the raw judgments. Nothing was done. Give "
                    "another folder for them."
                )
        for path in sorted(self.folder.iterdir()):
            known = path.name.startswith((".", "_")) or not path.name.endswith(ENDINGS)
            if not known and path.name not in self.names:
                raise UsageError(
                    f"{path.name} lies in the folder for the answers and would be read with them. "
                    "Nothing was done. Give an empty folder."
                )

    def _refuse_existing(self) -> None:
        for name in self.names:
            for path in (self.folder / name, manifest_path(self.folder / name)):
                refuse_output(path, force=self.force, spends=True)

    def _left(self) -> list[Path]:
        return sorted(self.folder.glob(self._work("*")))

    def _work(self, run: str) -> str:
        """Return what the folder of a run is called that has not ended."""
        return f".{self.mark}-{run}.parts"

    @property
    def _alone(self) -> AbstractContextManager[None]:
        """Return what holds these outputs while the context is open; nobody is waited for."""
        if self.is_one_file:
            unusable, what, way = f"{self.mark} cannot be written", self.mark, "choose another name"
        else:
            unusable = "The folder for the answers cannot be locked"
            what, way = "into the folder for the answers", "give another folder"
        busy = f"Another run is writing {what}. Nothing was released. Try again when it is done, "
        return sole_holder(self.folder / f".{self.mark}.lock", unusable, f"{busy}or {way}.")

    @property
    def is_one_file(self) -> bool:
        """Return whether they go to a file, and not to a folder."""
        return self.mark != _FOLDER

    def artifact(self, manifests: Iterable[Manifest]) -> str:
        """Return the one SHA-256 of what is released."""
        return next(iter(manifests)).sha256 if self.is_one_file else digest_of_files(manifests)

    def finished(self, request: str, ledger: Ledger) -> tuple[Manifest, ...]:
        """Let the rest appear of what an interrupted run paid for; return the manifests."""
        # All of it may have appeared, where the command does more with it afterwards.
        if shown := self._made(self.folder, ledger, ledger.open_entries):
            return shown
        if request in map(_noted_request, self._left()):
            with self._alone:
                for work in self._left():
                    if _noted_request(work) == request and (made := self._made(work, ledger)):
                        self.publish(work)
                        _take_away(work)
                        return made
                self._refuse_existing()
        self._refuse_existing()
        return ()

    def _made(
        self, work: Path, ledger: Ledger, entries: Collection[str] | None = None
    ) -> tuple[Manifest, ...]:
        """Return the manifests of files of which some may have appeared and the others are made."""
        # There are none if one is missing or is not what its manifest says, or if the ledger does
        # not say that just these were released, by one of the entries if they are named.
        manifests = []
        try:
            for name in self.names:
                made, final = work / name, self.folder / name
                note = manifest_path(made)
                manifests.append(
                    read_manifest(
                        made if made.exists() else final,
                        note if note.exists() else manifest_path(final),
                    )
                )
        except (DataError, FileSystemError):
            return ()
        released = (
            json.loads(row.payload).get("artifact")
            for row in rows_on_disk(ledger)
            if row.kind in {"commit", "repeat"} and (entries is None or row.release_id in entries)
        )
        return tuple(manifests) if self.artifact(manifests) in released else ()

    @contextmanager
    def working(self, request: str) -> Iterator[Path]:
        """Yield a folder that only this user can read, inside the one for the answers."""
        # It is the one that an interrupted run left that was asked the same; what others left is
        # taken away. It is gone afterwards, unless it is noted there what entry it draws on, or
        # only some files appeared. No other run can write there until the context ends.
        work = self.folder / self._work(_random.new_release_id())
        if not self.is_one_file:
            with explained(_WRITING):
                self.folder.mkdir(parents=True, exist_ok=True)
        with self._alone:
            self._refuse_existing()
            with explained(_WRITING):
                drawing = (left for left in self._left() if _requested(left / _DRAWING) == request)
                mine = next(drawing, None)
                done = self.folder.glob(str(Path(self._work("*")).with_suffix(_DONE)))
                for left in [*self._left(), *done]:
                    if left != mine:
                        shutil.rmtree(left)
                work = mine or work
                work.mkdir(mode=0o700, exist_ok=True)
            try:
                yield work
            finally:
                if not (work / _BEGUN).exists() and _requested(work / _DRAWING) != request:
                    _take_away(work)

    def note(self, work: Path, request: str, manifests: Mapping[str, Manifest]) -> None:
        """Write what each file says of itself, and then what they answer."""
        for name, manifest in manifests.items():
            write_json(manifest_path(work / name), manifest.to_dict(), force=True)
        content = {"format": _FORMAT, "version": _VERSION, "request": request, "force": self.force}
        write_json(work / _NOTED, content, force=True)

    def publish(self, work: Path) -> None:
        """Let all files appear that have not, each whole and after its manifest; they are paid."""
        # The folder of the run is then called as one of which nothing is needed.
        reason = None
        try:
            note = next(work / name for name in (_NOTED, _BEGUN) if (work / name).exists())
            force = json.loads(note.read_bytes()).get("force") is True
            if (work / _NOTED).exists():
                (work / _NOTED).replace(work / _BEGUN)
            for name in self.names:
                _show(work / name, self.folder / name, force=force)
            work.rename(work.with_suffix(_DONE))  # nothing is left to do, wherever this is killed
        except OSError as error:
            reason = error.strerror or type(error).__name__
        if reason is not None:
            raise FileSystemError(
                f"{_WRITING} ({reason}). Some files may be missing there. They are made and paid "
                "for: give the same command again."
            )


def bind(work: Path, request: str, entry: str) -> None:
    """Tie what will be drawn in the folder of a run to the entry that pays; other draws go."""
    content = {"format": _FORMAT, "version": _VERSION, "request": request, "entry": entry}
    note = work / _DRAWING
    with explained(_WRITING):
        if not note.exists() or json.loads(note.read_bytes()) != content:
            for path in work.iterdir():
                path.unlink()
            write_json(note, content)


def _show(made: Path, final: Path, *, force: bool) -> None:
    """Let one file appear, unless it did."""
    if made.exists():
        clear(final, force=force)  # no moment with a file and another's manifest
        if manifest_path(made).exists():
            manifest_path(made).replace(manifest_path(final))
        made.replace(final)


def _take_away(work: Path) -> None:
    """Remove the folder of a run that has ended, however it ended."""
    for path in (work, work.with_suffix(_DONE)):
        shutil.rmtree(path, ignore_errors=True)


def see_folder(folders: tuple[str, ...], _: int) -> int:
    """Return 0 if folders are there for whoever runs this, and take files that are written once."""
    for folder in folders:
        if not os.path.isdir(folder):  # noqa: PTH112 (it never raises)
            raise FileSystemError(
                "A machine does not see the folder for the answers, or for stored ones beside the "
                "ledger. Nothing was released. Give folders that all machines see at the same "
                "place."
            )
        _try_writing(folder, folders)
    return 0


@lru_cache(maxsize=16)  # once in every process of a run, whose folders have names of their own
def _try_writing(folder: str, _: tuple[str, ...]) -> None:
    """Write a file once, as all answers are; then it goes."""
    path, reason = Path(folder) / f".{_random.new_release_id()}.partial", None
    try:
        with written_once(path) as draft:
            draft.file.write(b"\n")
    except FileSystemError as error:
        reason = str(error).partition("(")[2].partition(")")[0]
    finally:
        path.unlink(missing_ok=True)
    if reason is not None:
        raise FileSystemError(
            "The folder for the answers, or for stored ones beside the ledger, cannot take files "
            f"that are written once ({reason}). Nothing was released. Give one that every machine "
            "can write, on a file system with hard links."
        )
