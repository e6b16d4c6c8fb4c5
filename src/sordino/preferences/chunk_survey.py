"""What is public of judgments in many files: how many, by whom, and which of them count.

Digests are of public fields alone, and of all records together: neither the order of files nor
where they are cut may be seen in them. Which rows count is kept in files that all machines see, and
never as a whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import add
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import numpy as np
from jaxtyping import Bool, Int64

from sordino._files import atomic_writer, explained
from sordino.engines.engine import Engine, Taken
from sordino.engines.exchange import PARTS, Exchange, opened_exchange
from sordino.errors import DataError, EngineError, UsageError
from sordino.privacy.persons import People

from .chunks import Batch, Chunk, Chunks, questions
from .comparisons import held_out_questions, refuse_one_side
from .files import TWO_FORMS, untold
from .records import Names, person_key, told_beside

T = TypeVar("T")

_ROW_BITS: Final = 40
"""Bits of the number of a row in its chunk; the chunk's number is above them."""


@dataclass(frozen=True)
class _Selection:
    """Which rows of the chunks count, kept in a file that all machines see."""

    path: str | None  # sorted numbers of the rows that do not; None if all rows count

    @cached_property
    def _left_out(self) -> np.ndarray:
        """Return the numbers, of which only what is looked at is read."""
        return np.asanyarray(np.load(self.path or "", mmap_mode="r"))

    def left_out(self, chunk: int) -> Int64[np.ndarray, " k"]:
        if self.path is None:
            return np.zeros(0, dtype=np.int64)
        ends = np.array([chunk << _ROW_BITS, (chunk + 1) << _ROW_BITS], dtype=np.uint64)
        first, last = np.searchsorted(self._left_out, ends)
        return np.asarray(self._left_out[first:last] - ends[0]).astype(np.int64)

    def before(self, chunk: int) -> int:
        if self.path is None:
            return 0
        return int(np.searchsorted(self._left_out, np.uint64(chunk << _ROW_BITS)))

    def __getstate__(self) -> dict[str, object]:
        """Leave the opened file behind."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True)
class _PartSelection(_Selection):
    """Which rows of one part count, where every question is on one of two sides."""

    folder: str  # where there is a file for each chunk
    held_out: bool  # whether this part is what is held out
    others: tuple[int, ...]  # how many rows of the other part come before each chunk

    def left_out(self, chunk: int) -> Int64[np.ndarray, " k"]:
        with explained("A file of the survey cannot be read"):
            sides = np.frombuffer(_sides_of(self.folder, chunk).read_bytes(), dtype=np.bool_)
        others = np.flatnonzero(sides != self.held_out)
        return np.union1d(super().left_out(chunk), others).astype(np.int64)

    def before(self, chunk: int) -> int:
        return super().before(chunk) + self.others[chunk]


def _sides_of(folder: str, chunk: int) -> Path:
    return Path(folder) / f"{chunk:08d}.held-out"


def _write_numbers(path: Path, rows: np.ndarray) -> str | None:
    """Write which rows do not count, where every machine sees it; None if there is none."""
    if not len(rows):
        return None
    np.save(path, np.sort(rows))
    return str(path)


_ENTRY: Final = [
    ("who", "<u8", 2),  # 128 bits of who answered
    ("rank", "<u8", 2),  # and of who answered what
    ("row", "<u8"),
    ("held_out", "?"),
    ("dropped", "?"),
    ("beside", "<u8"),  # 64 bits of its family and whose answers met; 0 where nothing is said
    ("times", "<u8"),  # how many rows there are like it, where nobody is told apart
]


@dataclass(frozen=True)
class _ChunkFacts:
    """What one chunk says."""

    rows: int  # how many records carry a preference
    dropped: int
    held_out: int
    digest: bytes  # of all its public fields
    # How many records there are, and the sum of the digests of what they ask, of 2⁶⁴, in whatever
    # order: it finds copies that nobody made to deceive; it binds nothing.
    questions: tuple[int, int, int]
    asked: np.ndarray | None  # 64 bits of each question, for the ledger; None of features
    # Whether persons are named, and whether prompts are what both answers began with.
    form: tuple[bool, bool] | None
    families: frozenset[str]  # of prompts whose answers were judged by themselves
    names: frozenset[Names]  # of answers that met, with their group, where records are public


def _facts_of(
    chunks: Chunks, shuffle: Exchange, chunk: Chunk, *, hold_out: bool
) -> list[tuple[int, _ChunkFacts]]:
    """The first task: what a chunk says, by its number; its digests are left for the second."""
    digest, entries, form, count = hashlib.sha256(), [np.zeros(0, _ENTRY)], None, 0
    start, asked = chunk.number << _ROW_BITS, list[np.ndarray | None]()
    families, names = set[str](), set[Names]()
    for pairs, dropped, cut, kinds in questions(chunks, chunk):
        digest.update(bytes.fromhex(pairs.public_digest))
        count += pairs.dropped
        # Of records with identical answers only the digest knows.
        named = tuple(row.person for row in dropped if row.person is not None)
        beside = [told_beside(row.second, row.names) for row in dropped]
        left_out = _entries([row.key for row in dropped], named or None, beside)
        left_out["dropped"] = True
        entries.append(left_out)
        if len(pairs):
            form = pairs.persons is not None, cut
            asked.append(pairs.questions)
            families |= set(pairs.families)
            names.update(() if chunks.hides_records else pairs.names or ())
            found = _entries(pairs.keys, pairs.persons, pairs.beside)
            if hold_out:
                found["held_out"] = held_out_questions(pairs.keys)
            if kinds is not None and (hold_out or pairs.persons is not None):
                found = found[kinds]
            elif kinds is not None:
                found["times"] = np.bincount(kinds)
            found["row"] = start + np.arange(len(found), dtype=np.uint64)
            entries.append(found)
            start += len(found)
    rows = np.concatenate(entries)
    parts = (rows["who"][:, 0] % PARTS).astype(np.int64)
    shuffle.write(chunk.number, rows, parts)
    rows = rows[~rows["dropped"]]
    times = rows["times"]
    if hold_out:
        path = _sides_of(shuffle.folder, chunk.number)
        with atomic_writer(path, force=True, held=False) as file:
            file.write(rows["held_out"].tobytes())
    high, low = (rows["rank"] * times[:, np.newaxis]).sum(axis=0, dtype=np.uint64)
    facts = _ChunkFacts(
        rows=int(times.sum()),
        dropped=count,
        held_out=int(rows["held_out"].sum()),
        digest=digest.digest(),
        questions=(int(times.sum()), int(high), int(low)),
        asked=_all_asked(asked),
        form=form,
        families=frozenset(families),
        names=frozenset(names),
    )
    return [(chunk.number, facts)]


def _all_asked(parts: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Return what all parts ask; None where one does not say it, or there is none."""
    known = [part for part in parts if part is not None]
    return np.unique(np.concatenate(known)) if known and len(known) == len(parts) else None


def _entries(
    keys: Sequence[bytes], persons: Sequence[str] | None, beside: Sequence[str]
) -> np.ndarray:
    """Return 128 bits of who answered, and of who answered what, for every row."""
    # Without persons the question stands for both: it tells whether one occurs twice.
    entries = np.zeros(len(keys), _ENTRY)
    entries["times"] = 1
    if persons is None:
        ranks = who = list(keys)
    else:
        who = [person_key(person) for person in persons]
        both = zip(who, keys, strict=True)
        ranks = [hashlib.sha256(person + key).digest() for person, key in both]
    # big-endian, so that numbers are in the order of the digests
    for name, digests in (("who", who), ("rank", ranks)):
        short = b"".join(digest[:16] for digest in digests)
        entries[name] = np.frombuffer(short, dtype=">u8").reshape(-1, 2)
    for row, text in enumerate(beside):
        if text:
            entries["beside"][row] = int.from_bytes(person_key(text)[:8], "big")
    return entries


Part = Literal["all", "fitted", "held-out"]
"""What a survey is of: all records, those that a fit may see, or those that are held out."""


@dataclass(frozen=True, kw_only=True)
class ChunkSurvey:
    """What is public of judgments in many files."""

    chunks: Chunks  # the files
    n: int  # how many records carry a preference
    # How many of them count: each question of a person once, and no more of one person than are
    # permitted.
    counted: int
    dropped: int  # how many were left out for identical answers
    # Binds a ledger to the questions and who answered, how often, with those that were left out for
    # identical answers; in whatever order the records are, and in whatever files. It is not that of
    # the same records in one file that is read as a whole.
    public_digest: str
    questions: np.ndarray | None  # 64 bits of each, sorted: a ledger knows the data set by them
    linked: bool  # whether it is known who answered
    people: People | None  # and if so who, and how many rows of each count
    repeats: bool  # whether a question occurs twice, and nothing says who answered
    families: tuple[str, ...]  # of prompts whose answers were judged by themselves, in order
    names: frozenset[Names]  # of answers that met, with their group, where records are public
    selection: _Selection  # which rows count
    folder: str  # where tasks leave what later ones read; gone when the context ends
    # Number of the first record of each chunk, and of all records at the end.
    starts: tuple[int, ...]
    most: int | None  # how many rows of one person count; None for all
    # The largest number of different questions of one person, whether they count or not; 1 where
    # persons are not known.
    largest: int
    digests: tuple[bytes, ...]  # of all public fields of each chunk
    part: Part = "all"  # what `counted` and `selection` are about; all else is about all records
    # What is fitted and what is held out, if that was asked for. In each of them no more rows of
    # one person count than are permitted; here, both count.
    parts: tuple[ChunkSurvey, ChunkSurvey] | None = None
    engine: Engine  # where the files are read again
    taken: Taken | None = None  # called as chunks are done

    def __getstate__(self) -> dict[str, object]:
        """Leave behind what no task needs: the engine, whoever watches it, and who asked what."""
        return {**vars(self), "engine": None, "taken": None, "questions": None, "people": None}

    def read(self, chunk: Chunk) -> Iterator[tuple[Batch, Bool[np.ndarray, " n"]]]:
        """Yield the records of a chunk, and which count; refuse others than were surveyed."""
        digest = hashlib.sha256()
        for batch, counts in self.counting(chunk, questions(self.chunks, chunk), Batch.size):
            digest.update(bytes.fromhex(batch.pairs.public_digest))
            yield batch, counts
        if digest.digest() != self.digests[chunk.number]:
            raise DataError(f"{chunk.name} changed while it was read. Nothing was released.")

    def counting(
        self, chunk: Chunk, blocks: Iterable[T], size: Callable[[T], int]
    ) -> Iterator[tuple[T, Bool[np.ndarray, " n"]]]:
        """Yield the blocks of a chunk, each with which of its records count."""
        out, first = self.selection.left_out(chunk.number), 0
        for block in blocks:
            counts = np.ones(size(block), dtype=bool)
            counts[out[(out >= first) & (out < first + len(counts))] - first] = False
            first += len(counts)
            yield block, counts

    def divided(self) -> tuple[ChunkSurvey, ChunkSurvey]:
        """The same with only the rows that a fit may see, and with only the held-out ones."""
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
    """What one part of the persons says."""

    digest: bytes
    doubled: bool  # whether a question occurs twice
    # Rows that do not count, of those that are not held out and of those that are.
    left_out: tuple[np.ndarray, np.ndarray]
    largest: int  # most questions of one person
    people: tuple[People, People]  # who has how many rows that count, likewise


@contextmanager
def survey_chunks(
    chunks: Chunks,
    engine: Engine,
    *,
    most: int | None = None,
    hold_out: bool = False,
    scratch: str | Path | None = None,
    taken: Taken | None = None,
) -> Iterator[ChunkSurvey]:
    """Read all public fields once; keep which rows count for as long as the context is open."""
    # Labels are checked and not used. Digests of questions and persons pass through a folder, which
    # is taken away at the end.
    with opened_exchange(_ENTRY, scratch) as shuffle:
        told = _each(engine, chunks, partial(_facts_of, chunks, shuffle, hold_out=hold_out), taken)
        linked, raw = _known(chunks, told, most), not chunks.privatized
        look = partial(_doubts_of, tuple(chunks), shuffle, most=most, linked=linked, raw=raw)
        doubts = _each(engine, range(PARTS), look)
        sides = zip(*(one.left_out for one in doubts), strict=True)
        left_out = [np.concatenate(rows) for rows in sides]
        groups = zip(*(one.people for one in doubts), strict=True)
        people = [first.plus(*others) for first, *others in groups]
        together = np.concatenate(left_out)
        starts = _starts(one.rows for one in told)
        digests = b"".join(one.digest for one in doubts)
        whole = ChunkSurvey(
            chunks=chunks,
            n=starts[-1],
            counted=starts[-1] - len(together),
            dropped=sum(one.dropped for one in told),
            public_digest=hashlib.sha256(b"shards\n" + digests).hexdigest(),
            questions=_all_asked([one.asked for one in told]),
            linked=linked,
            people=people[0].plus(people[1]) if linked and raw else None,
            repeats=any(one.doubled for one in doubts) and not linked,
            families=tuple(sorted({name for one in told for name in one.families})),
            names=frozenset(name for one in told for name in one.names),
            folder=shuffle.folder,
            selection=_Selection(_write_numbers(Path(shuffle.folder) / "left-out.npy", together)),
            starts=starts,
            most=most,
            largest=max(one.largest for one in doubts),
            digests=tuple(one.digest for one in told),
            engine=engine,
            taken=taken,
        )
        if not hold_out:
            yield whole
            return
        held_out = _starts(one.held_out for one in told)
        fitted = tuple(np.subtract(starts, held_out).tolist())

        def part(name: Part, mine: tuple[int, ...], others: tuple[int, ...]) -> ChunkSurvey:
            folder, is_held_out = shuffle.folder, name == "held-out"
            rows = left_out[is_held_out]
            path = _write_numbers(Path(folder) / f"left-out-{name}.npy", rows)
            return replace(
                whole,
                counted=mine[-1] - len(rows),
                selection=_PartSelection(path, folder, is_held_out, others),
                people=people[is_held_out] if linked and raw else None,
                part=name,
            )

        both = part("fitted", fitted, held_out), part("held-out", held_out, fitted)
        yield replace(whole, parts=both)


def _each(
    engine: Engine,
    items: Sequence[Any],
    task: Callable[[Any], list[tuple[int, T]]],
    taken: Taken | None = None,
) -> list[T]:
    """Return what a task says of each item, in their order."""
    parts = engine.fold(items, task, add, taken=taken)
    known = dict(parts)
    # of everything, and once: what was lost would count without limit
    if not len(parts) == len(known) == len(items):
        raise EngineError(
            f"The engine returned a sum of {len(parts)} parts, {len(known)} of them different, "
            f"where there are {len(items)}. Nothing was released. Its method fold must add the "
            "part of every piece, once."
        )
    return [known[number] for number in sorted(known)]


def _starts(sizes: Iterable[int]) -> tuple[int, ...]:
    return tuple(np.cumsum([0, *sizes]).tolist())


def _doubts_of(
    chunks: Sequence[Chunk],
    shuffle: Exchange,
    part: int,
    *,
    most: int | None,
    linked: bool,
    raw: bool,
) -> list[tuple[int, _Doubts]]:
    """The second task: which rows of the persons in one part do not count; by its number."""
    rows = shuffle.read(part, len(chunks))
    nothing, nobody = np.zeros(0, np.uint64), People.of([])
    if not len(rows):  # as most parts of few people
        found = _Doubts(hashlib.sha256().digest(), False, (nothing, nothing), 1, (nobody, nobody))
        return [(part, found)]
    ordered = np.lexsort([rows["beside"], *rows["rank"].T[::-1], *rows["who"].T[::-1]])
    said = rows["beside"].any()  # nothing is added where there is no family and no name
    beside = [rows["beside"][:, np.newaxis]] if said else []
    answered = np.concatenate([rows["who"], rows["rank"], *beside], axis=1)[ordered]
    # in whatever pieces rows that are alike were counted
    starts = np.flatnonzero(~_same(answered))
    times = np.add.reduceat(rows["times"][ordered], starts) if len(starts) else starts
    binds = hashlib.sha256(answered[starts].astype("<u8").tobytes())
    binds.update(times.astype("<u8").tobytes())
    rows = rows[~rows["dropped"]]
    who, rank = rows["who"].T, rows["rank"].T
    order = [rows["row"], rank[1], rank[0], rows["held_out"], who[1], who[0]]
    rows = rows[np.lexsort(order)]
    same = _same(rows["who"])
    again = same & _same(rows["rank"])
    if not linked:
        doubled = bool(again.any() or (rows["times"] > 1).any())
        found = _Doubts(binds.digest(), doubled, (nothing, nothing), 1, (nobody, nobody))
        return [(part, found)]
    if raw:  # of answers that were stored, a repeat is the same observation
        numbers = (rows["row"] >> np.uint64(_ROW_BITS)).astype(np.int64)
        files = np.array([chunk.file for chunk in chunks])[numbers]
        across = np.flatnonzero(again[1:] & (files[1:] != files[:-1])) + 1
        if len(across):
            one, other = (chunks[numbers[across[0] - back]].name for back in (1, 0))
            raise DataError(
                f"{one} and {other} both hold an answer of the same person to the same "
                "question: these files overlap, and labels would count twice. Nothing was "
                "released. Give each record once."
            )
    out = again
    if most is not None:  # that count of one person in one part
        place = _places(same & _same(rows["held_out"][:, np.newaxis]), again)
        out = again | (place > most)
    largest = int(_places(same, again).max(initial=0))
    left_out = tuple(rows["row"][out & (rows["held_out"] == side)] for side in (False, True))
    # Of answers that are private already nobody is charged again.
    counts = ~out & raw
    people = [_people(rows["who"][counts & (rows["held_out"] == s)]) for s in (False, True)]
    both = (left_out[0], left_out[1]), largest, (people[0], people[1])
    return [(part, _Doubts(binds.digest(), bool(again.any()), *both))]


def _people(who: np.ndarray) -> People:
    """Return persons, and how many rows each has."""
    packed = np.frombuffer(who.astype(">u8").tobytes(), "S16")
    return People.counted(*np.unique(packed, return_counts=True))


def _places(same: np.ndarray, again: np.ndarray) -> np.ndarray:
    """Return which question of its person, or of its part of that person, every row is, from 1."""
    first = ~same
    different = np.cumsum(~again)  # questions so far, of all persons
    before = different[np.flatnonzero(first)] - 1
    return np.asarray(different - before[np.cumsum(first) - 1])


def _same(values: np.ndarray) -> np.ndarray:
    same = np.zeros(len(values), dtype=bool)
    same[1:] = (values[1:] == values[:-1]).all(axis=1)
    return same


def _known(chunks: Chunks, told: Sequence[_ChunkFacts], most: int | None) -> bool:
    """Return whether persons are known; refuse some here and none there."""
    forms = [(chunk, one.form) for chunk, one in zip(chunks, told, strict=True) if one.form]
    if not forms and not chunks.hides_records:
        raise DataError(
            "No pair is left: there is no record that carries a preference. Nothing was released."
        )
    if chunks.hides_records:
        with untold(hides_records=True):
            _refuse_copies(chunks, told)
        return False
    known, cut = forms[0][1]
    for chunk, form in forms:
        if form[0] != known:
            raise DataError(
                f"{chunk.name}: a person id is given for some records and not for others. Nothing "
                "was released."
            )
        if form[1] != cut:
            raise DataError(f"{chunk.name}: {TWO_FORMS}")
    if most is not None and not known:
        raise DataError(
            f"These records have no person ids, which a limit of {most} records of one person "
            "needs. Nothing was released. Name the field that holds them (person_field, "
            "--person-field)."
        )
    if not known:
        _refuse_copies(chunks, told)
    return known


def _refuse_copies(chunks: Chunks, told: Sequence[_ChunkFacts]) -> None:
    """Refuse two files of the same questions where nothing says who answered."""
    totals: dict[int, np.ndarray] = {}
    for chunk, one in zip(chunks, told, strict=True):
        mine = np.array(one.questions, dtype=np.uint64)
        totals[chunk.file] = totals.get(chunk.file, np.uint64(0)) + mine
    files = {chunk.file: Path(chunk.path) for chunk in chunks}
    seen: dict[tuple[int, ...], int] = {}
    for file, total in totals.items():
        before = seen.setdefault(tuple(total.tolist()), file)
        if total[0] and before != file:
            names = [files[before].name, files[file].name]
            if names[0] == names[1]:
                names = [f"{path.parent.name}/{path.name}" for path in (files[before], files[file])]
            raise DataError(
                f"{' and '.join(names)} hold the same questions, as often, "
                "and nothing says who answered: as one is a copy of the other, labels would count "
                "twice. Nothing was released. Give each record once; if other people answered the "
                "same questions, name them in a field (person_field, --person-field)."
            )
