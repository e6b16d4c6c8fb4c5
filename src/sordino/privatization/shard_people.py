"""People brought together from many files, and answered part by part, each question once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import add
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Bool, Integer, UInt64

from sordino import _random
from sordino._files import explained, written_once
from sordino.engines.engine import Engine, Taken
from sordino.engines.exchange import PARTS, Exchange, opened_exchange
from sordino.errors import DataError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.memo import Counts
from sordino.preferences.records import person_key
from sordino.preferences.shard_blocks import judgments
from sordino.preferences.shard_survey import ShardSurvey
from sordino.preferences.shards import Piece
from sordino.privatization.shard_memo import KEY, PartedMemo, Stored

__all__ = ["CHANGED", "LEFT_OUT", "AnswerPart", "ShardPeople", "Tally", "answers_of_piece"]

LEFT_OUT: Final = 2
"""What stands for the answer of a question that a cap leaves out."""
CHANGED: Final = "The input changed while it was read. Nothing was released."
_JUDGMENT: Final = np.dtype([("key", KEY), ("row", "<u8"), ("label", "u1")])
_ANSWERED: Final = np.dtype([("row", "<u8"), ("answer", "i1")])
_NO_CAP: Final = 2**62


@dataclass(frozen=True)
class Tally:
    """What answering takes, in numbers that no draw of questions changes.

    Attributes:
        counts: How many people and questions.
        payers: Entries that paid for stored answers to them.
    """

    counts: Counts
    payers: frozenset[str]

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
        return Tally(counts, self.payers | other.payers)


@dataclass(frozen=True, repr=False)
class ShardPeople:
    """The judgments of many files by person, in a folder that goes when the run ends.

    Labels lie in it hidden by a secret that only tasks of this run know, so that what a killed
    run leaves tells none.

    Attributes:
        shuffle: Where they lie.
        memo: What the people answered before.
        starts: Number of the first record of each piece, and of all records at the end.
        cap: The most questions of one person; None for all.
        secret: Hides the labels.
    """

    shuffle: Exchange
    memo: PartedMemo
    starts: tuple[int, ...]
    cap: int | None
    secret: bytes = field(repr=False)

    @classmethod
    @contextmanager
    def gathered(
        cls,
        survey: ShardSurvey,
        memo: PartedMemo,
        engine: Engine,
        *,
        cap: int | None,
        scratch: str | Path | None,
        taken: Taken | None,
    ) -> Iterator[ShardPeople]:
        """Yield the judgments by person, for as long as the context is open; one pass."""
        with opened_exchange(_JUDGMENT, scratch) as shuffle:
            people = cls(shuffle, memo, survey.starts, cap, _random.new_secret())
            sort = _Sort(survey, people)
            engine.fold(survey.shards.pieces, sort, add, taken=taken)
            yield people

    def tally(self, engine: Engine) -> Tally:
        """Return what answering these questions takes; nothing is drawn."""
        return engine.fold(range(PARTS), self._tally, Tally.plus)

    def coins_on(self, engine: Engine, release_id: str) -> int | None:
        """Return the most coins of one person on an entry, those about to be tossed included.

        None if a part of the people has its answers on that entry and asks for more.
        """
        most = engine.fold(range(PARTS), partial(self._coins_on, release_id), max)
        return None if most == _NO_CAP else most

    def _coins_on(self, release_id: str, part: int) -> int:
        """Return the same for one part of the people, all of whose coins fall at once."""
        fresh = self._tally(part).counts.fresh
        return _NO_CAP if fresh and self.memo.has(part, release_id) else fresh

    def _tally(self, part: int) -> Tally:
        """Return what answering one part of the people takes."""
        asked, stored = self.asked(part), self.memo.stored(part)
        known, places = stored.places(asked.keys)
        paid = np.unique(stored.payers[places[known]])
        counts = _counts(asked, known, stored, _NO_CAP if self.cap is None else self.cap)
        return Tally(counts, frozenset(stored.release_ids[index] for index in paid))

    def leave(self, piece: Piece, rows: np.ndarray) -> None:
        """Leave the judgments of a piece, with their labels hidden."""
        words = np.frombuffer(rows["key"].tobytes(), ">u4").reshape(-1, 8)
        parts = words[:, 0].astype(np.int64) % PARTS
        sizes = np.bincount(parts, minlength=PARTS)
        pads = [_pad(self.secret, piece.number, part, size) for part, size in enumerate(sizes)]
        rows["label"][np.argsort(parts, kind="stable")] ^= np.concatenate(pads)
        self.shuffle.write(piece.number, rows, parts)

    def asked(self, part: int) -> Asked:
        """Return the questions of one part of the people, with the label given first to each."""
        rows = self.shuffle.read(part, len(self.starts) - 1)
        pieces = np.searchsorted(self.starts, rows["row"], side="right") - 1
        numbers, sizes = np.unique(pieces, return_counts=True)
        pads = [
            _pad(self.secret, int(piece), part, size)
            for piece, size in zip(numbers, sizes, strict=True)
        ]
        labels = rows["label"] ^ np.concatenate([np.zeros(0, np.uint8), *pads])
        keys, firsts, which = np.unique(rows["key"], return_index=True, return_inverse=True)
        return Asked(keys, labels[firsts], rows["row"], which)


def _pad(secret: bytes, piece: int, part: int, size: int) -> np.ndarray:
    """Return two bits for each of the rows that one piece has for one part: a pad for labels."""
    name = secret + piece.to_bytes(8, "big") + part.to_bytes(2, "big")
    return np.frombuffer(hashlib.shake_256(name).digest(int(size)), np.uint8) & 3


@dataclass(frozen=True, repr=False, eq=False)
class Asked:
    """The questions of one part of the people.

    Attributes:
        keys: Who, and what, each once, in order.
        labels: The label that the person gave first.
        rows: Numbers of the records.
        which: Which question each record asks.
    """

    keys: np.ndarray
    labels: Integer[np.ndarray, " k"]
    rows: UInt64[np.ndarray, " n"]
    which: Integer[np.ndarray, " n"]

    @property
    def persons(self) -> np.ndarray:
        """Return who each question was asked."""
        return _persons(self.keys)


def _persons(keys: np.ndarray) -> np.ndarray:
    """Return the first half of every key."""
    return np.frombuffer(keys.tobytes(), "S16").reshape(-1, 2)[:, 0].copy()


def _counts(asked: Asked, known: Bool[np.ndarray, " k"], stored: Stored, cap: int) -> Counts:
    """Return what answering takes, as :meth:`sordino.preferences.memo.AnswerMemo.counts` does."""
    people, which = np.unique(
        np.concatenate([asked.persons, _persons(stored.keys)]), return_inverse=True
    )
    n, k = len(people), len(asked.keys)
    totals = np.bincount(which[:k], minlength=n)
    before = np.bincount(which[:k][known], minlength=n)
    ever = np.bincount(which[k:], minlength=n)
    labels = np.minimum(totals, cap)
    fresh = labels - np.minimum(before, cap)
    return Counts(
        persons=int((totals > 0).sum()),
        labels=int(labels.max(initial=0)),
        fresh=int(fresh.max(initial=0)),
        ever=int((ever + fresh).max(initial=0)),
        left_out=int((totals - labels).sum()),
    )


@dataclass(frozen=True)
class _Sort:
    """The task of a piece: its judgments, sorted by person."""

    survey: ShardSurvey
    people: ShardPeople

    def __call__(self, piece: Piece) -> int:
        """Return how many judgments there were."""
        start = self.survey.starts[piece.number]
        found, digest = [np.zeros(0, _JUDGMENT)], hashlib.sha256()
        for pairs in judgments(self.survey.shards, piece):
            digest.update(bytes.fromhex(pairs.public_digest))
            if len(pairs):
                rows = np.zeros(len(pairs), _JUDGMENT)
                rows["key"], rows["label"] = _keys(pairs), pairs.labels
                rows["row"] = start + np.arange(len(pairs), dtype=np.uint64)
                start += len(pairs)
                found.append(rows)
        if digest.digest() != self.survey.digests[piece.number]:
            raise DataError(CHANGED)
        self.people.leave(piece, np.concatenate(found))
        return start - self.survey.starts[piece.number]


def _keys(pairs: Comparisons) -> np.ndarray:
    """Return who was asked what, for every record."""
    who = pairs.persons or ()
    both = zip(who, pairs.keys, strict=True)
    joined = b"".join(person_key(person)[:16] + key[:16] for person, key in both)
    return np.frombuffer(joined, KEY)


@dataclass(frozen=True)
class AnswerPart:
    """The task of a part of the people: every question of theirs is answered once and for all.

    What was stored before is used; for the rest coins are drawn, and stored before anybody sees
    them. Run again it finds what was stored and draws nothing.

    Attributes:
        people: The questions.
        coin: What answers are drawn with.
        seed: For study; None for system entropy.
        release_id: The entry that pays; None where nothing may be drawn.
        work: The folder in which answers are left for those who write files.
    """

    people: ShardPeople
    coin: RandomizedResponse
    seed: int | None
    release_id: str | None
    work: str

    def __call__(self, part: int) -> int:
        """Return how many questions there are."""
        path = _left_answers(self.work, part)
        if path.exists():
            return 0
        asked = self.people.asked(part)
        entropy = _random.entropy_of_part(self.seed, f"people {part}")
        # Drawn once, so that what is chosen is a function of what is stored alone.
        words = self._words(asked, entropy)
        stored = self.people.memo.stored(part)
        if self.release_id is not None and not self.people.memo.has(part, self.release_id):
            self._draw(part, asked, self._chosen(asked, words, stored), stored, entropy)
            stored = self.people.memo.stored(part)  # of two tasks at once one was faster
        answers = self._answers(asked, self._chosen(asked, words, stored), stored)
        self._leave(path, asked, answers)
        return len(asked.keys)

    def _draw(
        self,
        part: int,
        asked: Asked,
        chosen: Bool[np.ndarray, " k"],
        stored: Stored,
        entropy: _random.Entropy,
    ) -> None:
        """Draw what is chosen and not stored, and store it."""
        assert self.release_id is not None  # noqa: S101 - for the type checker
        fresh = chosen & ~stored.places(asked.keys)[0]
        drawn = self.coin.release(asked.labels[fresh], entropy=entropy)
        self.people.memo.keep(part, self.release_id, asked.keys[fresh], drawn)

    def _words(self, asked: Asked, entropy: _random.Entropy) -> UInt64[np.ndarray, " k"]:
        """Return a word for every question of a person who has more than the cap, else 0."""
        words = np.zeros(len(asked.keys), np.uint64)
        if self.people.cap is not None:
            _, which, totals = np.unique(asked.persons, return_inverse=True, return_counts=True)
            over = totals[which] > self.people.cap
            words[over] = entropy.words(int(over.sum()))
        return words

    def _chosen(
        self, asked: Asked, words: UInt64[np.ndarray, " k"], stored: Stored
    ) -> Bool[np.ndarray, " k"]:
        """Return which questions are used: the stored ones of a person first, then by words.

        Source:
            docs/local.md, "Person-level budgets".
        """
        if self.people.cap is None:
            return np.ones(len(asked.keys), dtype=bool)
        persons, (known, _) = asked.persons, stored.places(asked.keys)
        order = np.lexsort([words, ~known, persons])
        inside = persons[order]
        place = np.arange(len(order)) - np.searchsorted(inside, inside)
        chosen = np.zeros(len(order), dtype=bool)
        chosen[order] = place < self.people.cap
        return chosen

    def _answers(
        self, asked: Asked, chosen: Bool[np.ndarray, " k"], stored: Stored
    ) -> Integer[np.ndarray, " k"]:
        """Return the answer of every question, or that it is left out.

        Raises:
            DataError: One that is used has none: it was not there when spends were counted.
        """
        known, places = stored.places(asked.keys)
        if not known[chosen].all():
            raise DataError(CHANGED)
        answers = np.full(len(asked.keys), LEFT_OUT, np.int8)
        answers[chosen] = stored.answers[places[chosen]]
        return answers

    def _leave(self, path: Path, asked: Asked, answers: Integer[np.ndarray, " k"]) -> None:
        """Leave the answers for whoever writes the records."""
        found = np.zeros(len(asked.rows), _ANSWERED)
        found["row"], found["answer"] = asked.rows, answers[asked.which]
        with written_once(path) as draft:
            np.save(draft.file, np.sort(found, order="row"), allow_pickle=False)


def answers_of_piece(work: str, first: int, last: int) -> Integer[np.ndarray, " n"]:
    """Return the answers to the records from one number to before another.

    Args:
        work: The folder that :class:`AnswerPart` left them in.
        first: Number of the first record.
        last: Number after the last.

    Raises:
        DataError: Some have none.
        FileSystemError: They cannot be read.
    """
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
    """Return where the answers of a part of the people are left."""
    return Path(work) / f"people-{part:03d}.npy"
