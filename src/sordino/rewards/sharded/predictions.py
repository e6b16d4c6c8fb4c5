"""What weights predict for answers in many files, and the answers, brought together by person."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import add
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from jaxtyping import Float, Integer

from sordino.engines.engine import Engine, Taken
from sordino.engines.exchange import PARTS, Exchange, opened_exchange
from sordino.errors import DataError
from sordino.preferences.features import Features
from sordino.preferences.pairs import Pairs
from sordino.preferences.records import person_key
from sordino.preferences.shard_blocks import comparisons
from sordino.preferences.shard_survey import ShardSurvey
from sordino.preferences.shards import Piece
from sordino.rewards.likelihoods import debias

__all__ = ["Predicted", "Predictions", "opened_predictions"]

T = TypeVar("T")

_ROW: Final = [("who", "<u8", 2), ("difference", "<f8"), ("answer", "?")]


@dataclass(frozen=True, eq=False)
class Predicted:
    """Predictions for the answers of some people, all of whose answers are here.

    Attributes:
        differences: Predicted reward of the first minus the second.
        targets: ỹ, the answers with their randomization taken out in expectation.
        persons: Who answered, numbered from 0; None where every answer counts as a person's.
    """

    differences: Float[np.ndarray, " n"]
    targets: Float[np.ndarray, " n"]
    persons: Integer[np.ndarray, " n"] | None

    def by_person(self, values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " g"]:
        """Return the sum of values of every person."""
        if self.persons is None:
            return values
        return np.bincount(self.persons, weights=values)


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """Predictions in a folder that all machines see, in parts that memory holds.

    Attributes:
        engine: Where they are added up.
        exchange: Where they are.
        pieces: From how many pieces they came.
        flip_probability: Chance that an answer is not the judgment.
        linked: Whether it is known who answered.
        taken: Called as parts are done.
    """

    engine: Engine
    exchange: Exchange
    pieces: int
    flip_probability: float
    linked: bool
    taken: Taken | None = None

    def fold(self, task: Callable[[Predicted], T], plus: Callable[[T, T], T]) -> T:
        """Return the sum of ``task(part)`` over all parts; a part may be empty.

        Args:
            task: Can be pickled.
            plus: From two parts to their sum.
        """
        read = _OfPart(self.exchange, self.pieces, self.flip_probability, self.linked, task)
        total: T = self.engine.fold(range(PARTS), read, plus, taken=self.taken)
        return total


@dataclass(frozen=True)
class _OfPart:
    """A task on the predictions of one part."""

    exchange: Exchange
    pieces: int
    flip_probability: float
    linked: bool
    task: Callable[[Predicted], Any]

    def __call__(self, part: int) -> Any:
        """Return what the task makes of them."""
        rows = self.exchange.read(part, self.pieces)
        persons = None
        if self.linked:
            persons = np.unique(rows["who"], axis=0, return_inverse=True)[1].ravel()
        targets = debias(rows["answer"].astype(np.int8), self.flip_probability)
        return self.task(Predicted(rows["difference"], targets, persons))


@contextmanager
def opened_predictions(
    survey: ShardSurvey,
    engine: Engine,
    weights: Float[np.ndarray, " d"],
    *,
    features: Features | None,
    flip_probability: float,
    scratch: str | Path | None = None,
    taken: Taken | None = None,
) -> Iterator[Predictions]:
    """Read the answers that count once; keep the predictions for as long as the context is open.

    Args:
        survey: Which of the randomized answers count.
        engine: Where the files are read.
        weights: What predicts.
        features: Turns texts into vectors; None for files of vectors.
        flip_probability: Chance that an answer is not the judgment.
        scratch: A folder that all machines see; the system's own place for temporary files if
            left out.
        taken: Called as pieces, and later parts, are done.

    Raises:
        DataError: There are other rows than before: the files changed while they were read.
        FileSystemError: A file or the folder cannot be used.
    """
    with opened_exchange(_ROW, scratch) as exchange:
        task = _Predict(survey, exchange, weights, features)
        if engine.fold(survey.shards.pieces, task, add, taken=taken) != survey.counted:
            raise DataError("The input changed while it was read. Nothing was measured.")
        yield Predictions(
            engine=engine,
            exchange=exchange,
            pieces=len(survey.shards.pieces),
            flip_probability=flip_probability,
            linked=survey.linked,
            taken=taken,
        )


@dataclass(frozen=True)
class _Predict:
    """The task: leave the predictions for a piece, and return how many there are."""

    survey: ShardSurvey
    exchange: Exchange
    weights: Float[np.ndarray, " d"]
    features: Features | None

    def __call__(self, piece: Piece) -> int:
        """Return the number of answers of one piece that count."""
        out, first, found = self.survey.selection.left_out(piece.number), 0, [np.zeros(0, _ROW)]
        for pairs in comparisons(self.survey.shards, piece):
            assert isinstance(pairs, Pairs)  # noqa: S101 - whose labels are the answers here
            counts = np.ones(len(pairs), dtype=bool)
            counts[out[(out >= first) & (out < first + len(pairs))] - first] = False
            first += len(pairs)
            if counts.any():
                found.append(self._rows(pairs, np.flatnonzero(counts)))
        rows = np.concatenate(found)
        parts = rows["who"][:, 0] if self.survey.linked else np.arange(len(rows))
        self.exchange.write(piece.number, rows, (parts % PARTS).astype(np.int64))
        return len(rows)

    def _rows(self, pairs: Pairs, counts: Integer[np.ndarray, " k"]) -> np.ndarray:
        """Return what is kept of the answers of a block that count."""
        rows = np.zeros(len(counts), _ROW)
        rows["difference"] = pairs.differences(self.features)[counts] @ self.weights
        rows["answer"] = pairs.labels[counts]
        if pairs.persons is not None:
            digests = b"".join(person_key(pairs.persons[index])[:16] for index in counts)
            rows["who"] = np.frombuffer(digests, dtype=">u8").reshape(-1, 2)
        return rows
