"""A folder of privatized files: what may be written there, and how it appears."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from sordino import _random
from sordino._files import explained, refuse_output, sole_holder, written_once
from sordino.errors import FileSystemError, UsageError
from sordino.preferences.chunks import ENDINGS, WORK, Chunk, Chunks
from sordino.preferences.pairs import Manifest, manifest_path, stem
from sordino.privacy.ledger import Ledger

from .chunk_tasks import FileOfWork
from .stream import DONE, has_begun, is_drawing, note_files, noted_request, publish, published

__all__ = ["ChunkOutputs", "see_folder", "sole_run"]

_LOCK: Final = ".sordino.lock"


@dataclass(frozen=True)
class ChunkOutputs:
    """Where the answers of many files go."""

    folder: Path  # the folder
    files: tuple[FileOfWork, ...]  # A file to be for every raw file
    force: bool  # overwrite what is there

    @classmethod
    def of(cls, chunks: Chunks, folder: Path, *, force: bool) -> ChunkOutputs:
        """Return where the answers go; nothing is written yet."""
        ending = ".jsonl" if chunks.layout == "texts" else ".parquet"
        files: dict[int, list[Chunk]] = {}
        for chunk in chunks.chunks:
            files.setdefault(chunk.file, []).append(chunk)
        found = tuple(
            FileOfWork(f"{stem(Path(some[0].path))}{ending}", tuple(some))
            for some in files.values()
        )
        made = cls(folder, found, force)
        made._refuse_one_name()
        made._refuse_folder(chunks)
        if not any(map(noted_request, made._left())):  # which may be what is asked for
            made.refuse_existing()
        return made

    def _refuse_one_name(self) -> None:
        """Refuse two raw files whose answers would have one name."""
        names = [file.name for file in self.files]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(
                    f"The answers of two files would both be called {name}. Nothing was done. "
                    "Rename one, or give them one after the other, each with a folder of its own."
                )

    def _refuse_folder(self, chunks: Chunks) -> None:
        """Refuse a folder that must not be written to."""
        if not self.folder.exists():
            return
        if not self.folder.is_dir():
            raise FileSystemError(f"{self.folder.name} is no folder; the answers need one.")
        for raw in {Path(chunk.path).parent for chunk in chunks.chunks}:
            if raw.samefile(self.folder):
                raise UsageError(
                    "The answers would lie among the raw judgments. Nothing was done. Give "
                    "another folder for them."
                )
        mine = {file.name for file in self.files}
        for path in sorted(self.folder.iterdir()):
            known = path.name.startswith((".", "_")) or not path.name.endswith(ENDINGS)
            if not known and path.name not in mine:
                raise UsageError(
                    f"{path.name} lies in the folder for the answers and would be read with them. "
                    "Nothing was done. Give an empty folder."
                )

    def refuse_existing(self) -> None:
        """Refuse to overwrite unless asked to."""
        for file in self.files:
            for path in (self.folder / file.name, manifest_path(self.folder / file.name)):
                refuse_output(path, force=self.force)

    def _left(self) -> list[Path]:
        """Return the folders of runs that have not ended."""
        return sorted(self.folder.glob(WORK))

    def finished(self, request: str, ledger: Ledger) -> tuple[Manifest, ...]:
        """Let the rest appear of what an interrupted run paid for; return the manifests."""
        if request not in map(noted_request, self._left()):
            self.refuse_existing()
            return ()
        names = [file.name for file in self.files]
        with sole_run(self.folder):
            for work in self._left():
                if noted_request(work) != request:
                    continue
                if manifests := published(work, self.folder, names, ledger):
                    self.publish(work)
                    _take_away(work)
                    return manifests
            self.refuse_existing()
        return ()

    @contextmanager
    def working(self, request: str) -> Iterator[Path]:
        """Yield a folder that only this user can read, inside the one for the answers."""
        # It is the one that an interrupted run left that was asked the same; what others left is
        # taken away. It is gone afterwards, unless it is noted there what entry it draws on, or
        # only some files appeared. No other run can write there until the context ends.
        work = self.folder / WORK.replace("*", _random.new_release_id())
        with explained("The folder for the answers cannot be written"):
            self.folder.mkdir(parents=True, exist_ok=True)
        with sole_run(self.folder):
            self.refuse_existing()
            with explained("The folder for the answers cannot be written"):
                mine = next((left for left in self._left() if is_drawing(left, request)), None)
                for left in [*self._left(), *self.folder.glob(str(Path(WORK).with_suffix(DONE)))]:
                    if left != mine:
                        shutil.rmtree(left)
                work = mine or work
                work.mkdir(mode=0o700, exist_ok=True)
            try:
                yield work
            finally:
                if not has_begun(work) and not is_drawing(work, request):
                    _take_away(work)

    def note(self, work: Path, request: str, manifests: Mapping[str, Manifest]) -> None:
        """Write what each file says of itself, and what was asked."""
        note_files(work, request, manifests, force=self.force)

    def publish(self, work: Path) -> None:
        """Let all files appear; what they cost is on the ledger."""
        publish(work, self.folder, [file.name for file in self.files])


@contextmanager
def sole_run(folder: Path) -> Iterator[None]:
    """Hold a folder for as long as the context is open; nobody is waited for."""
    what = "The folder for the answers cannot be locked"
    refusal = (
        "Another run is writing into the folder for the answers. Nothing was released. Try "
        "again when it is done, or give another folder."
    )
    with sole_holder(folder / _LOCK, what, refusal):
        yield


def _take_away(work: Path) -> None:
    """Remove the folder of a run that has ended, however it ended."""
    for path in (work, work.with_suffix(DONE)):
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
