"""Raw judgments in many files in, a privatized file for each out; tasks of an engine draw.

Each task may run twice, and draws once.

Stored answers lie in parts, by person, in a folder beside the ledger that many machines may write.
For every entry that paid, and every part of the people, one file holds the answers that it paid
for; it is written once, whole, and never changed. A task that is run again, or twice at the same
time, finds the file and draws nothing, or what it drew is thrown away. What a run that died left
unwritten is closed before anybody counts what is stored.

Where nobody is named the task of a chunk draws, and its part too appears once, whole or not at all.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from operator import add, or_
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from jaxtyping import Bool, Integer, UInt64

from sordino import _random
from sordino._files import explained, read_json, sha256_of, to_json, written_once
from sordino._validate import Integers
from sordino.engines.engine import Engine, Taken, refuse_other_engines
from sordino.engines.exchange import PARTS, Exchange, opened_exchange
from sordino.errors import DataError, LedgerDamaged, UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.chunk_survey import ChunkSurvey, survey_chunks
from sordino.preferences.chunks import Chunk, Chunks, Layout, judgments
from sordino.preferences.memo import Counts, refuse_other_settings
from sordino.preferences.pairs import Manifest, Pairs, answer_lines, digest_of_files
from sordino.preferences.parquet import VectorWriter, copy_tables
from sordino.preferences.records import person_key
from sordino.privacy.ledger import Ledger
from sordino.privacy.persons import People

from .answers import manifest_of
from .publication import ChunkOutputs, FileOfWork, bind, digest_of_request, see_folder
from .randomization import (
    CHANGED,
    Randomization,
    Survey,
    held_answers,
    linked_entries,
    memo_of_parts,
    nothing_stored,
    one_memo,
    record_release,
    refuse_disagreement,
    rows_on_disk,
    shown_entries,
)

KEY: Final = "S32"
"""128 bits of who answered, and 128 of the question."""

_FORMAT: Final = "sordino.memo"
_VERSION: Final = 1
_ANSWER: Final = np.dtype([("key", KEY), ("answer", "i1")])
_SETTINGS: Final = "settings.json"
_OTHERS: Final = 0o077
_NAME: Final = re.compile(r"(\d{3})-([0-9a-f]+)\.npy")


@dataclass(frozen=True, repr=False, eq=False)
class _Stored:
    """The stored answers of one part of the people, in the order of their keys."""

    keys: np.ndarray  # who, and what
    answers: Integers  # 0 or 1
    payers: Integers  # which of `release_ids` paid for each
    release_ids: tuple[str, ...]  # entries on the ledger

    def places(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return which of some keys have an answer, and where it stands."""
        places = np.searchsorted(self.keys, keys)
        known = places < len(self.keys)
        known[known] = self.keys[places[known]] == keys[known]
        return known, places


@dataclass(frozen=True)
class _PartedMemo:
    """Stored answers by (person, question) in parts, in a folder that all machines see."""

    folder: str | None  # where they are; None where there are none and nothing may be written

    def has(self, part: int, release_id: str) -> bool:
        return self._path(part, release_id).exists()

    def keep(self, part: int, release_id: str, keys: np.ndarray, answers: Integers) -> None:
        """Store an entry's answers of one part durably, unless some are there already."""
        # Whoever calls it must use what `stored` then says, and throw its own away.
        found = np.zeros(len(keys), _ANSWER)
        found["key"], found["answer"] = keys, answers
        with written_once(self._path(part, release_id)) as draft:
            np.save(draft.file, found, allow_pickle=False)

    def stored(self, part: int) -> _Stored:
        ids = sorted(name for name, parts in self.entries().items() if part in parts)
        files = [self._read(self._path(part, release_id)) for release_id in ids]
        found = np.concatenate([np.zeros(0, _ANSWER), *files])
        payers = np.repeat(np.arange(len(ids)), [len(file) for file in files])
        order = np.argsort(found["key"], kind="stable")
        found = found[order]
        return _Stored(found["key"], found["answer"], payers[order], tuple(ids))

    def digests(self, release_ids: Iterable[str], part: int) -> dict[tuple[str, int], bytes]:
        """Return a digest of the answers of some entries to one part of the people."""
        paths = {name: self._path(part, name) for name in release_ids if self.has(part, name)}
        return {
            (name, part): hashlib.sha256(self._read(path).tobytes()).digest()
            for name, path in paths.items()
        }

    def entries(self) -> dict[str, set[int]]:
        """Return the entries whose answers are stored, and of which parts of the people."""
        found: dict[str, set[int]] = defaultdict(set)
        if self.folder is not None:
            with explained("The folder of stored answers beside the ledger cannot be read"):
                for name in os.listdir(self.folder):  # noqa: PTH208 (names are wanted)
                    if match := _NAME.fullmatch(name):
                        found[match[2]].add(int(match[1]))
        return dict(found)

    def close(self, release_ids: Iterable[str]) -> None:
        """Leave an empty file wherever an entry that will never go on has none."""
        # What a lost task of its run still draws is then thrown away.
        known = self.entries()
        nothing = np.zeros(0, _ANSWER)
        for release_id in release_ids:
            for part in sorted(set(range(PARTS)) - known.get(release_id, set())):
                self.keep(part, release_id, nothing["key"], nothing["answer"])

    def _path(self, part: int, release_id: str) -> Path:
        return Path(self.folder or "") / f"{part:03d}-{release_id}.npy"

    @staticmethod
    def _read(path: Path) -> np.ndarray:
        found: object = None
        with explained(f"{path.name} cannot be read"):
            try:
                found = np.load(path, allow_pickle=False)
            except (ValueError, EOFError):
                found = None
        if not isinstance(found, np.ndarray) or found.dtype != _ANSWER:
            raise LedgerDamaged(
                f"{path.name} is not a readable memo of answers. Nothing was released."
            )
        return found


@contextmanager
def agreeing_parts(
    ledger: Ledger, *, settings: Mapping[str, str], dry_run: bool
) -> Iterator[_PartedMemo]:
    """Yield the memo in parts beside a ledger; no other run uses it until the block ends."""
    # It lies in the folder `NAME.memo` and does for many machines what
    # `Randomization.open_memo` does for
    # one. A ledger has one of the two.
    path, other = memo_of_parts(ledger), one_memo(ledger)
    where = (
        "which one machine alone can use. Nothing was released. Answer these in the same way "
        "(without an engine), or use another ledger."
    )
    with held_answers(ledger, path, other, where, dry_run=dry_run):
        rows = list(rows_on_disk(ledger))
        known = _bound(path, dict(settings), dry_run=dry_run)
        memo = _PartedMemo(str(path) if known else None)
        entries = memo.entries()
        whole = {name for name, parts in entries.items() if parts >= set(range(PARTS))}
        refuse_disagreement(path, set(entries), rows)
        refuse_disagreement(path, whole, rows)  # nor may a part be missing
        if dry_run:
            yield memo
            return
        # Entries of runs that stopped, and of which nothing was shown, never go on.
        stopped = linked_entries(rows) - shown_entries(rows) - set(ledger.open_entries)
        memo.close(sorted(stopped))
        try:
            yield memo
        finally:
            _tidy(path)


def _bound(path: Path, settings: dict[str, str], *, dry_run: bool) -> bool:
    """Return whether there is a folder bound to these settings; make it unless for a dry run."""
    place = path / _SETTINGS
    if not dry_run:
        with explained(f"{path.name} cannot be made a folder that only you can read"):
            path.mkdir(mode=0o700, exist_ok=True)
            if path.stat().st_mode & _OTHERS:
                path.chmod(0o700)
        if not place.exists():
            if any(path.glob("*.npy")):
                raise LedgerDamaged(f"{path.name} lacks its {_SETTINGS}. Nothing was released.")
            content = {"format": _FORMAT, "version": _VERSION, "parts": PARTS, "settings": settings}
            with written_once(place) as draft:
                draft.file.write(to_json(content).encode())
        _tidy(path)
    if not place.exists():
        return False
    problem = f"{path.name} cannot be used. Nothing was released"
    found = read_json(place, kind=_FORMAT, version=_VERSION, problem=problem)
    stated = found.get("settings")
    if found.get("parts") != PARTS or not isinstance(stated, dict):
        raise LedgerDamaged(f"{path.name}/{_SETTINGS} is malformed. Nothing was released.")
    refuse_other_settings(path, stated, settings)
    return True


def _tidy(path: Path) -> None:
    """Take away what tasks that were killed had drawn and not stored: nobody saw it."""
    for left in path.glob(".*.partial"):
        left.unlink(missing_ok=True)


_LEFT_OUT: Final = 2
"""What stands for the answer of a question that a cap leaves out."""
_JUDGMENT: Final = np.dtype([("key", KEY), ("row", "<u8"), ("label", "u1")])
_ANSWERED: Final = np.dtype([("row", "<u8"), ("answer", "i1")])
_NO_CAP: Final = 2**62


@dataclass(frozen=True)
class Tally:
    """What answering takes, in numbers that no draw of questions changes."""

    counts: Counts  # how many people and questions
    payers: frozenset[str]  # entries that paid for stored answers to them
    people: People  # who takes how many coins

    def plus(self, other: Tally) -> Tally:
        """Return what two parts of the people take."""
        one, two = self.counts, other.counts
        counts = Counts(
            persons=one.persons + two.persons,
            labels=max(one.labels, two.labels),
            fresh=max(one.fresh, two.fresh),
            ever=max(one.ever, two.ever),
            left_out=one.left_out + two.left_out,
        )
        return Tally(counts, self.payers | other.payers, self.people.plus(other.people))


@dataclass(frozen=True, repr=False)
class ChunkPeople:
    """The judgments of many files by person, in a folder that goes when the run ends."""

    # Labels lie in it hidden by a secret that only tasks of this run know, so that what a killed
    # run leaves tells none.

    shuffle: Exchange  # where they lie
    memo: _PartedMemo  # what the people answered before
    # Number of the first record of each chunk, and of all records at the end.
    starts: tuple[int, ...]
    cap: int | None  # the most questions of one person; None for all
    secret: bytes = field(repr=False)  # hides the labels

    @classmethod
    @contextmanager
    def gathered(
        cls,
        survey: ChunkSurvey,
        memo: _PartedMemo,
        engine: Engine,
        *,
        cap: int | None,
        scratch: str | Path | None,
        taken: Taken | None,
    ) -> Iterator[ChunkPeople]:
        """Yield the judgments by person, for as long as the context is open; one pass."""
        with opened_exchange(_JUDGMENT, scratch) as shuffle:
            people = cls(shuffle, memo, survey.starts, cap, _random.new_secret())
            engine.fold(survey.chunks, partial(people.sort, survey), add, taken=taken)
            yield people

    def tally(self, engine: Engine) -> Tally:
        """Return what answering these questions takes; nothing is drawn."""
        return engine.fold(range(PARTS), self._tally, Tally.plus)

    def on(self, engine: Engine, release_id: str) -> People | None:
        """Return who takes how many coins on an entry of which other parts may have theirs."""
        # None if a part of the people has its answers on that entry and asks for more: all of
        # them fall at once.
        done = engine.fold(range(PARTS), partial(self._is_over, release_id), max)
        return None if done else self.tally(engine).people

    def _is_over(self, release_id: str, part: int) -> bool:
        return self.memo.has(part, release_id) and self._tally(part).counts.fresh > 0

    def _tally(self, part: int) -> Tally:
        """Return what answering one part of the people takes."""
        asked, stored = self.asked(part), self.memo.stored(part)
        known, places = stored.places(asked.keys)
        paid = np.unique(stored.payers[places[known]])
        cap = _NO_CAP if self.cap is None else self.cap
        # What answering takes, as :meth:`sordino.preferences.memo.AnswerMemo.counts` has it.
        people, which = np.unique(
            np.concatenate([_persons(asked.keys), _persons(stored.keys)]), return_inverse=True
        )
        n, k = len(people), len(asked.keys)
        totals = np.bincount(which[:k], minlength=n)
        before = np.bincount(which[:k][known], minlength=n)
        ever = np.bincount(which[k:], minlength=n)
        labels = np.minimum(totals, cap)
        fresh = labels - np.minimum(before, cap)
        counts = Counts(
            persons=int((totals > 0).sum()),
            labels=int(labels.max(initial=0)),
            fresh=int(fresh.max(initial=0)),
            ever=int((ever + fresh).max(initial=0)),
            left_out=int((totals - labels).sum()),
        )
        payers = frozenset(stored.release_ids[index] for index in paid)
        return Tally(counts, payers, People.counted(people, fresh))

    def sort(self, survey: ChunkSurvey, chunk: Chunk) -> int:
        """Leave the judgments of a chunk, by person and with their labels hidden; count them."""
        start = survey.starts[chunk.number]
        found, digest = [np.zeros(0, _JUDGMENT)], hashlib.sha256()
        for pairs in judgments(survey.chunks, chunk):
            digest.update(bytes.fromhex(pairs.public_digest))
            if len(pairs):
                rows = np.zeros(len(pairs), _JUDGMENT)
                both = zip(pairs.persons or (), pairs.keys, strict=True)
                keys = b"".join(person_key(person)[:16] + key[:16] for person, key in both)
                rows["key"], rows["label"] = np.frombuffer(keys, KEY), pairs.labels
                rows["row"] = start + np.arange(len(pairs), dtype=np.uint64)
                start += len(pairs)
                found.append(rows)
        if digest.digest() != survey.digests[chunk.number]:
            raise DataError(CHANGED)
        rows = np.concatenate(found)
        words = np.frombuffer(rows["key"].tobytes(), ">u4").reshape(-1, 8)
        parts = words[:, 0].astype(np.int64) % PARTS
        sizes = np.bincount(parts, minlength=PARTS)
        pads = [_pad(self.secret, chunk.number, part, size) for part, size in enumerate(sizes)]
        rows["label"][np.argsort(parts, kind="stable")] ^= np.concatenate(pads)
        self.shuffle.write(chunk.number, rows, parts)
        return start - survey.starts[chunk.number]

    def asked(self, part: int) -> _PersonQuestions:
        """Return the questions of one part of the people, with the label given first to each."""
        rows = self.shuffle.read(part, len(self.starts) - 1)
        chunks = np.searchsorted(self.starts, rows["row"], side="right") - 1
        numbers, sizes = np.unique(chunks, return_counts=True)
        pads = [
            _pad(self.secret, int(chunk), part, size)
            for chunk, size in zip(numbers, sizes, strict=True)
        ]
        labels = rows["label"] ^ np.concatenate([np.zeros(0, np.uint8), *pads])
        keys, firsts, which = np.unique(rows["key"], return_index=True, return_inverse=True)
        return _PersonQuestions(keys, labels[firsts], rows["row"], which)


def _pad(secret: bytes, chunk: int, part: int, size: int) -> np.ndarray:
    """Return a byte for each of the rows that one chunk has for one part: a pad for labels."""
    name = secret + chunk.to_bytes(8, "big") + part.to_bytes(2, "big")
    return np.frombuffer(hashlib.shake_256(name).digest(int(size)), np.uint8)


@dataclass(frozen=True, repr=False, eq=False)
class _PersonQuestions:
    """The questions of one part of the people."""

    keys: np.ndarray  # who, and what, each once, in order
    labels: Integer[np.ndarray, " k"]  # the label that the person gave first
    rows: UInt64[np.ndarray, " n"]  # numbers of the records
    which: Integers  # which question each record asks


def _persons(keys: np.ndarray) -> np.ndarray:
    """Return the first half of every key."""
    return np.frombuffer(keys.tobytes(), "S16").reshape(-1, 2)[:, 0].copy()


@dataclass(frozen=True)
class AnswerPart:
    """The task of a part of the people: every question of theirs is answered once and for all."""

    # What was stored before is used; for the rest coins are drawn, and stored before anybody sees
    # them. Run again it finds what was stored and draws nothing.

    people: ChunkPeople  # the questions
    coin: RandomizedResponse  # what answers are drawn with
    seed: int | None  # for study; None for system entropy
    release_id: str | None  # the entry that pays; None where nothing may be drawn
    work: str  # the folder in which answers are left for those who write files

    def __call__(self, part: int) -> int:
        """Return how many questions there are."""
        path = _left_answers(self.work, part)
        if path.exists():
            return 0
        asked, memo = self.people.asked(part), self.people.memo
        entropy = _random.entropy_of_part(self.seed, f"people {part}")
        # Drawn once, so that what is chosen is a function of what is stored alone.
        words = self._words(asked, entropy)
        stored = memo.stored(part)
        if self.release_id is not None and not memo.has(part, self.release_id):
            fresh = self._chosen(asked, words, stored) & ~stored.places(asked.keys)[0]
            drawn = self._drawn(asked.keys[fresh], asked.labels[fresh], entropy)
            memo.keep(part, self.release_id, asked.keys[fresh], drawn)
            stored = memo.stored(part)  # of two tasks at once one was faster
        chosen = self._chosen(asked, words, stored)
        known, places = stored.places(asked.keys)
        if not known[chosen].all():
            raise DataError(CHANGED)
        answers = np.full(len(asked.keys), _LEFT_OUT, np.int8)
        answers[chosen] = stored.answers[places[chosen]]
        found = np.zeros(len(asked.rows), _ANSWERED)
        found["row"], found["answer"] = asked.rows, answers[asked.which]
        with written_once(path) as draft:
            np.save(draft.file, np.sort(found, order="row"), allow_pickle=False)
        return len(asked.keys)

    def _drawn(self, _: np.ndarray, labels: Integers, entropy: _random.Entropy) -> Integers:
        """Return fresh answers to some questions; the spend is on the ledger."""
        return self.coin.release(labels, entropy=entropy)

    def _words(self, asked: _PersonQuestions, entropy: _random.Entropy) -> UInt64[np.ndarray, " k"]:
        """Return a word for every question of a person who has more than the cap, else 0."""
        words = np.zeros(len(asked.keys), np.uint64)
        if self.people.cap is not None:
            _, which, totals = np.unique(
                _persons(asked.keys), return_inverse=True, return_counts=True
            )
            over = totals[which] > self.people.cap
            words[over] = entropy.words(int(over.sum()))
        return words

    def _chosen(
        self, asked: _PersonQuestions, words: UInt64[np.ndarray, " k"], stored: _Stored
    ) -> Bool[np.ndarray, " k"]:
        """Return which questions are used: the stored ones of a person first, then by words."""
        # Source: docs/local.md, "Person-level budgets".
        if self.people.cap is None:
            return np.ones(len(asked.keys), dtype=bool)
        persons, (known, _) = _persons(asked.keys), stored.places(asked.keys)
        order = np.lexsort([words, ~known, persons])
        inside = persons[order]
        place = np.arange(len(order)) - np.searchsorted(inside, inside)
        chosen = np.zeros(len(order), dtype=bool)
        chosen[order] = place < self.people.cap
        return chosen


def _answers_of_chunk(work: str, first: int, last: int) -> Integers:
    """Return the answers to the records from one number to before another."""
    found = [np.zeros(0, _ANSWERED)]
    for part in range(PARTS):
        with explained("The answers of a part of the people cannot be read"):
            rows = np.load(_left_answers(work, part), mmap_mode="r", allow_pickle=False)
        ends = np.searchsorted(rows["row"], np.array([first, last], np.uint64))
        found.append(np.array(rows[slice(*ends)]))
    together = np.sort(np.concatenate(found), order="row")
    if not np.array_equal(together["row"], np.arange(first, last, dtype=np.uint64)):
        raise DataError(CHANGED)
    return np.asarray(together["answer"])


def _left_answers(work: str, part: int) -> Path:
    return Path(work) / f"people-{part:03d}.npy"


@dataclass(frozen=True)
class ChunkOfWork:
    """A chunk, and what is known of it."""

    chunk: Chunk  # what to read
    first: int
    last: int
    digest: bytes  # of its public fields


@dataclass(frozen=True)
class AnswerChunk:
    """The task of a chunk: its records with randomized answers, in a file of their own."""

    chunks: Chunks  # how to read
    linked: bool  # whether the answers are there already, by person; else they are drawn here
    coin: RandomizedResponse  # what they are drawn with
    seed: int | None  # for study; None for system entropy
    work: str  # the folder that the part is left in

    def __call__(self, given: ChunkOfWork) -> int:
        """Return how many answers were written."""
        path = _part(self.work, given.chunk)
        if path.exists():
            return 0
        digest, written = hashlib.sha256(), 0
        stored = _answers_of_chunk(self.work, given.first, given.last) if self.linked else None
        entropy = _random.entropy_of_part(self.seed, f"piece {given.chunk.number}")
        with written_once(path) as draft, self._writer(draft.file) as write:
            for pairs in judgments(self.chunks, given.chunk):
                digest.update(bytes.fromhex(pairs.public_digest))
                if not len(pairs):
                    continue
                if stored is None:
                    answers = self._drawn(pairs, entropy)
                else:
                    answers = stored[written : written + len(pairs)]
                if len(answers) < len(pairs):
                    raise DataError(CHANGED)
                write(pairs, answers, np.flatnonzero(answers != _LEFT_OUT))
                written += len(answers)
            if digest.digest() != given.digest:
                raise DataError(CHANGED)
        return written

    def _drawn(self, pairs: Pairs, entropy: _random.Entropy) -> Integers:
        """Return fresh answers of records that nothing links; the spend is on the ledger."""
        return self.coin.release(pairs.labels, entropy=entropy)

    @contextmanager
    def _writer(self, file: BinaryIO) -> Iterator[Callable[[Pairs, np.ndarray, np.ndarray], None]]:
        """Yield what writes those records and answers that are used."""
        if self.chunks.dimension is None:
            yield lambda pairs, answers, used: file.writelines(answer_lines(pairs, answers, used))
            return
        vectors = VectorWriter(file, self.chunks.dimension, persons=self.linked)

        def write(pairs: Pairs, answers: np.ndarray, used: np.ndarray) -> None:
            assert pairs.given is not None  # noqa: S101 - for the type checker
            if len(used):
                persons = pairs.persons and [pairs.persons[row] for row in used]
                vectors.write(pairs.given[used], answers[used], persons)

        yield write
        vectors.close()


@dataclass(frozen=True)
class JoinFile:
    """The task of a file: the parts of its chunks as one file, for which nothing is drawn."""

    layout: Layout  # what the parts hold
    work: str  # the folder that they lie in

    def __call__(self, file: FileOfWork) -> dict[str, str]:
        """Return the SHA-256 of the file, by its name."""
        path = Path(self.work) / file.name
        if not path.exists():
            parts = [_part(self.work, chunk) for chunk in file.chunks]
            with written_once(path) as draft:
                if self.layout == "vectors":
                    copy_tables(parts, draft.file)
                for part in () if self.layout == "vectors" else parts:
                    with (
                        explained("A part of a privatized file cannot be read"),
                        part.open("rb") as read,
                    ):
                        shutil.copyfileobj(read, draft.file)
        return {file.name: sha256_of(path)}


def _part(work: str, chunk: Chunk) -> Path:
    return Path(work) / f"piece-{chunk.number:08d}.part"


@dataclass(frozen=True)
class _Known:
    """Everything that is known before the spend is written."""

    found: ChunkSurvey  # what is public of the files
    survey: Survey  # the same in numbers
    people: ChunkPeople | None = None  # the judgments by person, if it is known who answered
    tally: Tally | None = None  # what answering them takes

    def drawing(self, request: str) -> str:
        """Return what is asked, down to the public fields of every chunk, if nobody is named."""
        # What was drawn for chunks can then be used again. Under a unit that hides persons these
        # are named, and answers are stored by person.
        if self.people is not None:
            return request
        return hashlib.sha256(b"".join((request.encode(), *self.found.digests))).hexdigest()

    def payers(self, open_entries: tuple[str, ...], engine: Engine) -> frozenset[str]:
        """Return the entries that paid for stored answers, where some never go on."""
        # A lost task of an interrupted run may have answered on them since they were counted.
        if self.people is None or self.tally is None:
            return frozenset()
        if not open_entries:
            return self.tally.payers
        self.people.memo.close(open_entries)
        return self.people.tally(engine).payers


def privatize_chunks(  # noqa: PLR0913 (each is one choice of the user)
    chunks: Chunks,
    out: str | Path,
    mechanism: RandomizedResponse,
    *,
    ledger: Ledger,
    engine: Engine,
    cap: int | None = None,
    simulate_seed: int | None = None,
    force: bool = False,
    scratch: str | Path | None = None,
    surveyed: ChunkSurvey | None = None,
    taken: Taken | None = None,
) -> tuple[Manifest, ...]:
    """Write a privatized file and its manifest for each of many raw files; return the manifests.

    Guarantee:
        That of :func:`~sordino.privatization.answers.privatize_file`, for all files together,
        wherever and however often a task runs: a part is drawn once, and what a task draws is
        used whole or thrown away. Trust is ``"central"``. A run that dies has spent its entry and
        shows nothing, or some files, which are read when all are there. Shown by
        tests/soundness/test_chunked_answers.py.
    """
    # Of texts JSON Lines are written, of vectors Parquet with `difference` (in the order that
    # ignores the labels), `answer` and, where it is known, `person`. The files appear when all of
    # them are done. Files are read twice, and three times where person ids are known; once less if
    # they were surveyed before.
    # Unlike one file's, the answers that people gave are stored in the folder `NAME.memo` beside
    # the ledger, by person; a ledger has either that or `NAME.memo.db`. The folder for the answers,
    # the ledger's, and `scratch` must be seen by all machines at the same place. A run that was
    # interrupted while its files appeared is ended by asking for the same again, for free.
    # Source: docs/local.md, "Repeats" and "Person-level budgets".
    _refuse_others(chunks, engine)
    randomization = Randomization.of(
        mechanism, ledger, on_device=False, simulate_seed=simulate_seed, cap=cap
    )
    outputs = ChunkOutputs.of(chunks, Path(out), force=force)
    request = digest_of_request(chunks, randomization)
    if finished := outputs.finished(request, ledger):
        return finished
    with (
        _surveyed(chunks, randomization, engine, scratch, surveyed, taken) as known,
        outputs.working(drawing := known.drawing(request)) as folder,
    ):
        work, found, people = str(folder), known.found, known.people
        promise = randomization.promise(known.survey)
        memo = None if people is None else people.memo.folder
        written = (work,) if memo is None else (work, memo)
        engine.fold(range(PARTS), partial(see_folder, written), add)
        for chunk in {chunk.file: chunk for chunk in chunks}.values():
            chunk.refuse_change()  # before anything is spent on it
        reservation = randomization.pay(known.survey)
        entry = None if reservation is None else reservation.release_id
        payers = known.payers(ledger.open_entries, engine)
        if people is not None:
            answer_part = AnswerPart(people, mechanism, simulate_seed, entry, work)
            engine.fold(range(PARTS), answer_part, add, taken=taken)
        elif reservation is not None and reservation.is_noted:
            bind(folder, drawing, reservation.release_id)
        answer = AnswerChunk(chunks, people is not None, mechanism, simulate_seed, work)
        given = zip(chunks, found.starts[:-1], found.starts[1:], found.digests, strict=True)
        engine.fold([ChunkOfWork(*one) for one in given], answer, add, taken=taken)
        sums: dict[str, str] = engine.fold(
            outputs.files, JoinFile(chunks.layout, work), or_, taken=taken
        )
        release_id = entry or _random.new_release_id()
        manifests = {
            name: manifest_of(mechanism, promise, sums[name], release_id) for name in outputs.names
        }
        outputs.note(folder, request, manifests)
        drawn: Callable[[str], Iterable[bytes]] = nothing_stored
        if people is not None:
            digests = partial(people.memo.digests, tuple(payers | ({entry} if entry else set())))
            stored: dict[tuple[str, int], bytes] = engine.fold(range(PARTS), digests, or_)
            drawn = lambda name: [stored[key] for key in sorted(stored) if key[0] == name]  # noqa: E731
        record_release(ledger, reservation, payers, digest_of_files(manifests.values()), drawn)
        outputs.publish(folder)
    return tuple(manifests.values())


def plan_chunks(
    chunks: Chunks,
    randomization: Randomization,
    *,
    engine: Engine,
    scratch: str | Path | None = None,
    surveyed: ChunkSurvey | None = None,
    taken: Taken | None = None,
) -> dict[str, Any]:
    """Return what :func:`privatize_chunks` would spend, after checking every record."""
    # Nothing is written but what is exchanged between tasks, and that is gone afterwards.
    _refuse_others(chunks, engine)
    with _surveyed(chunks, randomization, engine, scratch, surveyed, taken, dry_run=True) as known:
        return randomization.plan(known.survey)


def _refuse_others(chunks: object, engine: Engine) -> None:
    """Refuse what is no raw judgments in many files, and what cannot compute sums."""
    refuse_other_engines(engine)
    if not isinstance(chunks, Chunks):
        raise UsageError(f"chunks must come from find_chunks, got {type(chunks).__name__}.")
    if chunks.privatized:
        raise UsageError(
            "These answers are randomized already; use them as they are (sordino fit, "
            "sordino align)."
        )


@contextmanager
def _surveyed(
    chunks: Chunks,
    randomization: Randomization,
    engine: Engine,
    scratch: str | Path | None,
    surveyed: ChunkSurvey | None,
    taken: Taken | None,
    *,
    dry_run: bool = False,
) -> Iterator[_Known]:
    """Yield what is known before the spend; the memo is this run's until the context ends."""
    if surveyed is not None and surveyed.chunks != chunks:
        raise UsageError(
            "surveyed must be what survey_chunks found in these chunks. Nothing was done."
        )
    survey = (
        survey_chunks(chunks, engine, scratch=scratch, taken=taken)
        if surveyed is None
        else nullcontext(surveyed)
    )
    with survey as found:

        def told(people: ChunkPeople | None, tally: Tally | None) -> Survey:
            return Survey(
                n=found.n,
                dropped=found.dropped,
                public_digest=found.public_digest,
                questions=found.questions,
                several_people=False,  # nobody says here that this is one person's device
                repeats=found.repeats,
                counts=None if tally is None else tally.counts,
                people=None if tally is None else tally.people,
                people_on=lambda entry: None if people is None else people.on(engine, entry),
            )

        if not found.linked:
            randomization.refuse_unknown_people()
            yield _Known(found, told(None, None))
            return
        with (
            agreeing_parts(
                randomization.ledger, settings=randomization.memo_settings, dry_run=dry_run
            ) as memo,
            ChunkPeople.gathered(
                found, memo, engine, cap=randomization.cap, scratch=scratch, taken=taken
            ) as people,
        ):
            tally = people.tally(engine)
            yield _Known(found, told(people, tally), people, tally)
