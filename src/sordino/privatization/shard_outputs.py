"""A folder of privatized files: what may be written there, and how it appears."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sordino import _random
from sordino._files import explained, refuse_output, write_json
from sordino.errors import FileSystemError, UsageError
from sordino.preferences.manifest import Manifest, manifest_path, stem
from sordino.preferences.shards import Piece, Shards
from sordino.privatization.shard_answers import ShardOfWork

__all__ = ["ShardOutputs", "see_folder"]

_WORK: Final = ".sordino-*.parts"
_DATA: Final = (".jsonl", ".jsonl.gz", ".parquet")


@dataclass(frozen=True)
class ShardOutputs:
    """Where the answers of many files go.

    Attributes:
        folder: The folder.
        shards: A file to be for every raw file.
        force: Overwrite what is there.
    """

    folder: Path
    shards: tuple[ShardOfWork, ...]
    force: bool

    @classmethod
    def of(cls, shards: Shards, folder: Path, *, force: bool) -> ShardOutputs:
        """Return where the answers go; nothing is written yet.

        Raises:
            UsageError: Two files would have one name, or the folder is one of the raw files', or
                a file is there already and ``force`` is False, or others are there that would be
                read with these.
            FileSystemError: It is no folder.
        """
        ending = ".jsonl" if shards.layout == "texts" else ".parquet"
        pieces: dict[int, list[Piece]] = {}
        for piece in shards.pieces:
            pieces.setdefault(piece.shard, []).append(piece)
        found = tuple(
            ShardOfWork(f"{stem(Path(some[0].path))}{ending}", tuple(some))
            for some in pieces.values()
        )
        made = cls(folder, found, force)
        made._refuse_one_name()
        made._refuse_folder(shards)
        return made

    def _refuse_one_name(self) -> None:
        """Refuse two raw files whose answers would have one name."""
        names = [shard.name for shard in self.shards]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(
                    f"The answers of two files would both be called {name}. Nothing was done. "
                    "Rename one, or give them one after the other, each with a folder of its own."
                )

    def _refuse_folder(self, shards: Shards) -> None:
        """Refuse a folder that must not be written to."""
        if not self.folder.exists():
            return
        if not self.folder.is_dir():
            raise FileSystemError(f"{self.folder.name} is no folder; the answers need one.")
        for raw in {Path(piece.path).parent for piece in shards.pieces}:
            if raw.samefile(self.folder):
                raise UsageError(
                    "The answers would lie among the raw judgments. Nothing was done. Give "
                    "another folder for them."
                )
        mine = {shard.name for shard in self.shards}
        for path in sorted(self.folder.iterdir()):
            known = path.name.startswith((".", "_")) or not path.name.endswith(_DATA)
            if not known and path.name not in mine:
                raise UsageError(
                    f"{path.name} lies in the folder for the answers and would be read with them. "
                    "Nothing was done. Give an empty folder."
                )
        for shard in self.shards:
            for path in (self.folder / shard.name, manifest_path(self.folder / shard.name)):
                refuse_output(path, force=self.force)
        left = sorted(self.folder.glob(_WORK))
        if left and not self.force:
            raise UsageError(
                f"A run that was interrupted left {left[0].name} in the folder for the answers. "
                "Nothing was done. Take it away, or pass --force; a run without person ids then "
                "pays again."
            )

    @contextmanager
    def working(self) -> Iterator[str]:
        """Yield a folder that only this user can read, inside the one for the answers.

        It is gone afterwards, with everything that was drawn and not used. What an interrupted
        run left is taken away first.

        Raises:
            FileSystemError: It cannot be made.
        """
        work = self.folder / _WORK.replace("*", _random.new_release_id())
        with explained("The folder for the answers cannot be written"):
            self.folder.mkdir(parents=True, exist_ok=True)
            for left in self.folder.glob(_WORK):
                shutil.rmtree(left)
            work.mkdir(mode=0o700)
        try:
            yield str(work)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def note(self, work: str, manifests: Mapping[str, Manifest]) -> None:
        """Write what each file says of itself.

        Raises:
            FileSystemError: It cannot be written.
        """
        for name, manifest in manifests.items():
            write_json(manifest_path(Path(work) / name), manifest.to_dict())

    def publish(self, work: str) -> None:
        """Let all files appear, each whole and after its manifest.

        Raises:
            FileSystemError: One cannot be written.
        """
        with explained("The folder for the answers cannot be written"):
            for shard in self.shards:
                made, final = Path(work) / shard.name, self.folder / shard.name
                final.unlink(missing_ok=True)  # no moment with a file and another's manifest
                manifest_path(made).replace(manifest_path(final))
                made.replace(final)


def see_folder(work: str, _: int) -> int:
    """Return 0 if a folder is there for whoever runs this.

    Raises:
        FileSystemError: It is not.
    """
    if not os.path.isdir(work):  # noqa: PTH112 (it never raises)
        raise FileSystemError(
            "A machine does not see the folder for the answers. Nothing was released. Give one "
            "that all machines see at the same place."
        )
    return 0
