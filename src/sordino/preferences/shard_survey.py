"""What is public of judgments in many files: how many, by whom, and which of them count."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from sordino.engines.engine import Engine, Taken
from sordino.engines.exchange import PARTS, Exchange, opened_exchange
from sordino.errors import DataError, EngineError, UsageError
from sordino.preferences.files import TWO_FORMS, untold
from sordino.preferences.folds import refuse_one_side
from sordino.preferences.shard_digests import digest_of_part, digest_of_parts, refuse_copies
from sordino.preferences.shard_facts import ENTRY, Facts, FactsOf
from sordino.preferences.shard_selection import ROW_BITS, PartSelection, Selection, write_numbers
from sordino.preferences.shards import Piece, Shards

__all__ = ["Part", "ShardSurvey", "survey_shards"]

Part = Literal["all", "fitted", "held-out"]
"""What a survey is of: all records, those that a fit may see, or those that are held out."""


@dataclass(frozen=True, kw_only=True)
class ShardSurvey:
    """What is public of judgments in many files.

    Attributes:
        shards: The files.
        n: How many records carry a preference.
        counted: How many of them count: each question of a person once, and no more of one
            person than are permitted.
        dropped: How many were left out for identical answers.
        public_digest: Binds a ledger to the questions and who answered, how often, with those
            that were left out for identical answers; in whatever order the records are, and in
            whatever files. It is not that of the same records in one file that is read as a whole.
        linked: Whether it is known who answered.
        repeats: Whether a question occurs twice, and nothing says who answered.
        selection: Which rows count.
        starts: Number of the first record of each piece, and of all records at the end.
        most: How many rows of one person count; None for all.
        largest: The largest number of different questions of one person, whether they count or
            not; 1 where persons are not known.
        digests: Of all public fields of each piece.
        part: What ``counted`` and ``selection`` are about; all else is about all records.
        parts: What is fitted and what is held out, if that was asked for. In each of them no more
            rows of one person count than are permitted; here, both count.
    """

    shards: Shards
    n: int
    counted: int
    dropped: int
    public_digest: str
    linked: bool
    repeats: bool
    selection: Selection
    starts: tuple[int, ...]
    most: int | None
    largest: int
    digests: tuple[bytes, ...]
    part: Part = "all"
    parts: tuple[ShardSurvey, ShardSurvey] | None = None

    def divided(self) -> tuple[ShardSurvey, ShardSurvey]:
        """Return the same with only the rows that a fit may see, and with only the held-out ones.

        Raises:
            UsageError: It was not surveyed for that.
            DataError: All questions fall on one side.
        """
        if self.parts is None:
            raise UsageError(
                "The files were surveyed for a fit on all rows. Nothing was released. Survey them "
                "with hold_out=True."
            )
        # no part is without a row that counts unless it is without rows
        refuse_one_side(pairs=self.counted, held_out=self.parts[1].counted)
        return self.parts


@dataclass(frozen=True)
class _Doubts:
    """What some parts of persons say: the sum of two is all that both say.

    Attributes:
        parts: How many say it.
        digests: Of every part.
        doubled: Whether a question occurs twice.
        left_out: Rows that do not count, of those that are not held out and of those that are.
        largest: Most questions of one person.
    """

    parts: int
    digests: dict[int, bytes]
    doubled: bool
    left_out: tuple[np.ndarray, np.ndarray]
    largest: int

    def plus(self, other: _Doubts) -> _Doubts:
        """Return what both say."""
        fitted, held_out = map(np.concatenate, zip(self.left_out, other.left_out, strict=True))
        return _Doubts(
            self.parts + other.parts,
            self.digests | other.digests,
            self.doubled or other.doubled,
            (fitted, held_out),
            max(self.largest, other.largest),
        )


@contextmanager
def survey_shards(
    shards: Shards,
    engine: Engine,
    *,
    most: int | None = None,
    hold_out: bool = False,
    scratch: str | Path | None = None,
    taken: Taken | None = None,
) -> Iterator[ShardSurvey]:
    """Read all public fields once; keep which rows count for as long as the context is open.

    Labels are checked and not used. Digests of questions and persons pass through a folder,
    which is taken away at the end.

    Args:
        shards: The files.
        engine: Where they are read.
        most: How many rows of one person count; all if left out.
        hold_out: Whether to find out, too, which rows the public rule holds out for metrics, so
            that the survey can be divided.
        scratch: A folder that all machines see; the system's own place for temporary files if
            left out.
        taken: Called as pieces are done.

    Raises:
        DataError: A record cannot be used, or there is none, or persons or prompts are given in
            some files only, or persons in none although the rows of a person are limited, or two
            files hold an answer of the same person to the same question, or are copies.
        EngineError: The engine lost pieces, or added them twice.
        FileSystemError: A file or the folder cannot be used.
    """
    with opened_exchange(ENTRY, scratch) as shuffle:
        read = FactsOf(shards, shuffle, hold_out)
        facts = engine.fold(shards.pieces, read, Facts.plus, taken=taken)
        _refuse_loss(len(shards.pieces), facts.pieces, facts.rows)
        linked = _known(shards, facts, most)
        look = _Look(shards.pieces, shuffle, most, linked=linked, raw=not shards.privatized)
        doubts = engine.fold(range(PARTS), look, _Doubts.plus)
        _refuse_loss(PARTS, doubts.parts, doubts.digests)
        together = np.concatenate(doubts.left_out)
        starts = _starts(facts.rows[piece.number] for piece in shards.pieces)
        found = ShardSurvey(
            shards=shards,
            n=starts[-1],
            counted=starts[-1] - len(together),
            dropped=facts.dropped,
            public_digest=digest_of_parts(doubts.digests),
            linked=linked,
            repeats=doubts.doubled and not linked,
            selection=Selection(write_numbers(Path(shuffle.folder) / "left-out.npy", together)),
            starts=starts,
            most=most,
            largest=doubts.largest,
            digests=tuple(facts.digests[piece.number] for piece in shards.pieces),
        )
        parts = _parts(found, facts, doubts.left_out, shuffle.folder) if hold_out else None
        yield replace(found, parts=parts)


def _refuse_loss(expected: int, added: int, known: Collection[int]) -> None:
    """Refuse a sum that is not of everything, once: what was lost would count without limit.

    Raises:
        EngineError: It is not.
    """
    if added != expected or len(known) != expected:
        raise EngineError(
            f"The engine returned a sum of {added} parts, {len(known)} of them different, where "
            f"there are {expected}. Nothing was released. Its method fold must add the part of "
            "every piece, once."
        )


def _starts(sizes: Iterable[int]) -> tuple[int, ...]:
    """Return the sum of all sizes before each, and of all at the end."""
    return tuple(np.cumsum([0, *sizes]).tolist())


def _parts(
    whole: ShardSurvey, facts: Facts, left_out: tuple[np.ndarray, np.ndarray], folder: str
) -> tuple[ShardSurvey, ShardSurvey]:
    """Return what is fitted, and what is held out."""
    held_out = _starts(facts.held_out[piece.number] for piece in whole.shards.pieces)
    fitted = tuple(np.subtract(whole.starts, held_out).tolist())

    def part(name: Part, mine: tuple[int, ...], others: tuple[int, ...]) -> ShardSurvey:
        is_held_out = name == "held-out"
        rows = left_out[is_held_out]
        path = write_numbers(Path(folder) / f"left-out-{name}.npy", rows)
        return replace(
            whole,
            counted=mine[-1] - len(rows),
            selection=PartSelection(path, folder, is_held_out, others),
            part=name,
        )

    return part("fitted", fitted, held_out), part("held-out", held_out, fitted)


@dataclass(frozen=True)
class _Look:
    """The second task: which rows of the persons in one part do not count."""

    pieces: tuple[Piece, ...]
    shuffle: Exchange
    most: int | None
    linked: bool
    raw: bool

    def __call__(self, part: int) -> _Doubts:
        """Return whether anything occurs twice, which rows do not count, and the largest person."""
        rows = self.shuffle.read(part, len(self.pieces))
        digests = {part: digest_of_part(rows)}
        rows = rows[~rows["dropped"]]
        who, rank = rows["who"].T, rows["rank"].T
        order = [rows["row"], rank[1], rank[0], rows["held_out"], who[1], who[0]]
        rows = rows[np.lexsort(order)]
        same = _same(rows["who"])
        again = same & _same(rows["rank"])
        if not self.linked:
            nothing = np.zeros(0, np.uint64)
            return _Doubts(1, digests, bool(again.any()), (nothing, nothing), 1)
        if self.raw:  # of answers that were stored, a repeat is the same observation
            self._refuse_overlap(rows, again)
        out = again | self._beyond(same & _same(rows["held_out"][:, np.newaxis]), again)
        largest = int(_places(same, again).max(initial=0))
        left_out = tuple(rows["row"][out & (rows["held_out"] == side)] for side in (False, True))
        return _Doubts(1, digests, bool(again.any()), (left_out[0], left_out[1]), largest)

    def _beyond(self, same: np.ndarray, again: np.ndarray) -> np.ndarray:
        """Return which rows are beyond the most that count of one person in one part."""
        if self.most is None:
            return np.zeros(len(same), dtype=bool)
        return _places(same, again) > self.most

    def _refuse_overlap(self, rows: np.ndarray, again: np.ndarray) -> None:
        """Refuse two files that hold the same answer of one person.

        Raises:
            DataError: They do.
        """
        numbers = (rows["row"] >> np.uint64(ROW_BITS)).astype(np.int64)
        shards = np.array([piece.shard for piece in self.pieces])[numbers]
        across = np.flatnonzero(again[1:] & (shards[1:] != shards[:-1])) + 1
        if len(across):
            one, other = (self.pieces[numbers[across[0] - back]].name for back in (1, 0))
            raise DataError(
                f"{one} and {other} both hold an answer of the same person to the same question: "
                "these files overlap, and labels would count twice. Nothing was released. Give "
                "each record once."
            )


def _places(same: np.ndarray, again: np.ndarray) -> np.ndarray:
    """Return which question of its person, or of its part of that person, every row is, from 1.

    Args:
        same: Whether a row is of the same person, or of the same part, as the one before.
        again: Whether it is a repeat of the one before.
    """
    first = ~same
    different = np.cumsum(~again)  # questions so far, of all persons
    before = different[np.flatnonzero(first)] - 1
    return np.asarray(different - before[np.cumsum(first) - 1])


def _same(values: np.ndarray) -> np.ndarray:
    """Return which rows are as the one before."""
    same = np.zeros(len(values), dtype=bool)
    same[1:] = (values[1:] == values[:-1]).all(axis=1)
    return same


def _known(shards: Shards, facts: Facts, most: int | None) -> bool:
    """Return whether persons are known; refuse some here and none there.

    Raises:
        DataError: Persons or prompts are given in some files only, or persons in none although
            they must be known, or there is no record, or files are copies.
    """
    if not facts.forms and not shards.hides_records:
        raise DataError("There is no record that carries a preference. Nothing was released.")
    if shards.hides_records:
        with untold(hides_records=True):
            refuse_copies(shards, facts.questions)
        return False
    known, cut = facts.forms[min(facts.forms)]
    for at, form in sorted(facts.forms.items()):
        if form[0] != known:
            raise DataError(
                f"{shards.pieces[at].name}: a person id is given for some records and not for "
                "others. Nothing was released."
            )
        if form[1] != cut:
            raise DataError(f"{shards.pieces[at].name}: {TWO_FORMS}")
    if most is not None and not known:
        raise DataError(
            f"These records have no person ids, which a limit of {most} records of one person "
            "needs. Nothing was released. Name the field that holds them (person_field, "
            "--person-field)."
        )
    if not known:
        refuse_copies(shards, facts.questions)
    return known
