"""Privatized files in pieces, each written once, and then joined: tasks that may run twice.

Only the task of a piece without person ids draws here. Its part appears whole or not at all, and
once: a task that is run again finds it and draws nothing, and of two at once the slower one's
coins are thrown away. Who knows the people draws elsewhere, and nothing is drawn here.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Bool, Integer

from sordino import _random
from sordino._files import explained, sha256_of, written_once
from sordino.errors import DataError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.files import line_of
from sordino.preferences.pairs import Pairs
from sordino.preferences.parquet import VectorWriter, copy_tables
from sordino.preferences.shard_blocks import judgments
from sordino.preferences.shards import Layout, Piece, Shards
from sordino.privatization.shard_people import CHANGED, LEFT_OUT, answers_of_piece

__all__ = ["AnswerPiece", "JoinShard", "PieceOfWork", "ShardOfWork"]


@dataclass(frozen=True)
class PieceOfWork:
    """A piece, and what is known of it.

    Attributes:
        piece: What to read.
        first, last: Number of its first record, and of the first after it.
        digest: Of its public fields.
    """

    piece: Piece
    first: int
    last: int
    digest: bytes


@dataclass(frozen=True)
class AnswerPiece:
    """The task of a piece: its records with randomized answers, in a file of their own.

    Attributes:
        shards: How to read.
        linked: Whether the answers are there already, by person; else they are drawn here.
        coin: What they are drawn with.
        seed: For study; None for system entropy.
        work: The folder that the part is left in.
    """

    shards: Shards
    linked: bool
    coin: RandomizedResponse
    seed: int | None
    work: str

    def __call__(self, given: PieceOfWork) -> int:
        """Return how many answers were written.

        Raises:
            DataError: The piece is not what it was.
            FileSystemError: A file cannot be read or written.
        """
        path = _part(self.work, given.piece)
        if path.exists():
            return 0
        digest, written = hashlib.sha256(), 0
        source = self._source(given)
        with written_once(path) as draft, self._writer(draft.file) as write:
            for pairs in judgments(self.shards, given.piece):
                digest.update(bytes.fromhex(pairs.public_digest))
                if len(pairs):
                    answers = source.answers(pairs)
                    write(pairs, answers, answers != LEFT_OUT)
                    written += len(answers)
            if digest.digest() != given.digest:
                raise DataError(CHANGED)
        return written

    def _source(self, given: PieceOfWork) -> _Drawn | _Stored:
        """Return where the answers of a piece come from."""
        if self.linked:
            return _Stored(answers_of_piece(self.work, given.first, given.last))
        entropy = _random.entropy_of_part(self.seed, f"piece {given.piece.number}")
        return _Drawn(self.coin, entropy)

    @contextmanager
    def _writer(self, file: BinaryIO) -> Iterator[Any]:
        """Yield what writes records and answers."""
        if self.shards.layout == "texts":
            yield _Lines(file)
            return
        assert self.shards.dimension is not None  # noqa: S101 - for the type checker
        vectors = VectorWriter(file, self.shards.dimension, persons=self.linked)
        yield _Vectors(vectors)
        vectors.close()


@dataclass(frozen=True)
class _Drawn:
    """Answers of records that nothing links: a coin for each."""

    coin: RandomizedResponse
    entropy: _random.Entropy

    def answers(self, pairs: Pairs) -> Integer[np.ndarray, " n"]:
        """Return fresh answers; the spend is on the ledger."""
        return self.coin.release(pairs.labels, entropy=self.entropy)


@dataclass
class _Stored:
    """Answers that were drawn by person, in the order of records."""

    left: Integer[np.ndarray, " n"]

    def answers(self, pairs: Pairs) -> Integer[np.ndarray, " k"]:
        """Return the next ones.

        Raises:
            DataError: There are too few.
        """
        found, self.left = self.left[: len(pairs)], self.left[len(pairs) :]
        if len(found) < len(pairs):
            raise DataError(CHANGED)
        return found


@dataclass(frozen=True)
class _Lines:
    """Writes records of texts as JSON Lines."""

    file: BinaryIO

    def __call__(
        self, pairs: Pairs, answers: Integer[np.ndarray, " n"], used: Bool[np.ndarray, " n"]
    ) -> None:
        """Write those that are used."""
        for index in np.flatnonzero(used):
            texts = pairs.prompts[index], pairs.first[index], pairs.second[index]
            person = None if pairs.persons is None else pairs.persons[index]
            self.file.write(line_of(*texts, int(answers[index]), person))


@dataclass(frozen=True)
class _Vectors:
    """Writes records of vectors as Parquet."""

    writer: VectorWriter

    def __call__(
        self, pairs: Pairs, answers: Integer[np.ndarray, " n"], used: Bool[np.ndarray, " n"]
    ) -> None:
        """Write those that are used."""
        assert pairs.given is not None  # noqa: S101 - for the type checker
        rows = np.flatnonzero(used)
        if len(rows):
            persons = None if pairs.persons is None else [pairs.persons[row] for row in rows]
            self.writer.write(pairs.given[rows], answers[rows], persons)


@dataclass(frozen=True)
class ShardOfWork:
    """A file to be, and the pieces that it is made of, in order.

    Attributes:
        name: Of the file.
        pieces: Of the raw file.
    """

    name: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class JoinShard:
    """The task of a shard: the parts of its pieces as one file, for which nothing is drawn.

    Attributes:
        layout: What the parts hold.
        work: The folder that they lie in.
    """

    layout: Layout
    work: str

    def __call__(self, shard: ShardOfWork) -> dict[str, str]:
        """Return the SHA-256 of the file, by its name.

        Raises:
            FileSystemError: A part is missing, or the file cannot be written.
        """
        path = Path(self.work) / shard.name
        if not path.exists():
            parts = [_part(self.work, piece) for piece in shard.pieces]
            with written_once(path) as draft:
                if self.layout == "vectors":
                    copy_tables(parts, draft.file)
                else:
                    _append(parts, draft.file)
        return {shard.name: sha256_of(path)}


def _append(parts: list[Path], out: BinaryIO) -> None:
    """Write files one after the other."""
    for part in parts:
        with explained("A part of a privatized file cannot be read"), part.open("rb") as file:
            shutil.copyfileobj(file, out)


def _part(work: str, piece: Piece) -> Path:
    """Return the file of one piece."""
    return Path(work) / f"piece-{piece.number:08d}.part"
