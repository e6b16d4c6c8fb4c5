"""The public part of judgments, raw or randomized: columns of records, and no label in it."""

from __future__ import annotations

import hashlib
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, Final, TypeVar, overload

import numpy as np
from jaxtyping import Bool, Float, Integer, UInt64
from scipy import sparse
from scipy.sparse import csr_array

from sordino import _validate
from sordino._markup import card
from sordino._validate import person_id
from sordino.errors import DataError, PrivacyError, PrivacyWarning, UsageError
from sordino.privacy.guarantee import SHARES, Guarantee, promise_rows
from sordino.privacy.persons import People

from .features import Features, differences, flatten, refuse_other_features
from .records import (
    Absent,
    Levels,
    Names,
    Record,
    Text,
    canonical,
    encoded,
    family_of,
    named_fields,
    person_key,
    rated_key,
    told_beside,
)


class PublicDigest:
    """A running SHA-256 of the public fields in row order; no label ever enters it."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.dropped = 0

    def add(self, key: bytes, person: str | None, beside: str = "") -> None:
        """Take in one record: its question, who answered, its family or whose answers met."""
        self._hash.update(self._piece(key, person, beside))

    @staticmethod
    def _piece(key: bytes, person: str | None, beside: str) -> bytes:
        said = [person_key(text) for text in (person, beside or None) if text is not None]
        return key + bytes([(person is not None) + 2 * bool(beside)]) + b"".join(said)

    def add_alike(self, records: Sequence[Record], kinds: Integer[np.ndarray, " n"]) -> None:
        """Take in n records of a few kinds, one after the other."""
        pieces = [
            self._piece(row.key, row.person, told_beside(row.second, row.names)) for row in records
        ]
        self._hash.update(b"".join(map(pieces.__getitem__, kinds.tolist())))

    def hexdigest(self) -> str:
        """Return the digest of everything taken in so far."""
        return self._hash.copy().hexdigest()

    @classmethod
    def of(
        cls, keys: Sequence[bytes], persons: Sequence[str] | None, beside: Sequence[str] = ()
    ) -> str:
        """Return the digest of some questions, of who answered each, and of what is beside."""
        digest = cls()
        for index, key in enumerate(keys):
            said = beside[index] if beside else ""
            digest.add(key, None if persons is None else persons[index], said)
        return digest.hexdigest()


def taken(column: Any, at: Sequence[int] | Integer[np.ndarray, " k"]) -> Any:
    """Return some entries of a column, which may be one that is left out or empty."""
    if column is None or not len(column):
        return column
    if isinstance(column, np.ndarray):
        return column[np.asarray(at, dtype=np.int64)]
    return tuple(column[row] for row in at)


RAW = ("raw", "yes: privatize them, or let a curator add noise")
"""What a notebook says of judgments that nothing hides."""

Q = TypeVar("Q", bound="Questions")
C = TypeVar("C", bound="Comparisons")

_EITHER = {"prompts", "first", "second", "candidates", "given"}  # columns of texts, or features


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Questions(ABC):
    """The public part of n judgments of any kind, each about a question in canonical order."""

    # What a kind calls one judgment, what its order could tell, and how it is made, for messages.
    _said = ("", "", "")

    keys: tuple[bytes, ...]  # one for each judgment's question: the prompt and a set of answers
    public_digest: str  # SHA-256 of all public fields, before any row was dropped
    persons: tuple[str, ...] | None = None  # public person ids, or None

    def __post_init__(self) -> None:
        if self.persons is not None:
            object.__setattr__(self, "persons", _validate.person_ids(self.persons, len(self)))

    def _refuse_lengths(self, wanted: Mapping[str, int]) -> None:
        for name, length in wanted.items():
            column = getattr(self, name)
            if column is not None and len(column) != length:
                why = " (texts and features exclude each other)" if name in _EITHER else ""
                raise DataError(
                    f"{name} must have {length} entries beside {len(self)} keys{why}, got "
                    f"{len(column)}."
                )

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def n(self) -> int:
        """Return how many judgments there are, as a survey of files says it."""
        return len(self)

    @property
    def linked(self) -> bool:
        """Return whether it is known who answered."""
        return self.persons is not None

    @property
    def repeats(self) -> bool:
        """Return whether a question occurs twice, and nothing says who answered."""
        return not self.linked and len(set(self.keys)) < len(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={len(self)})"  # never data

    @abstractmethod
    def _question(self, row: int) -> dict[str, Any]: ...

    def _outcome(self, row: int) -> dict[str, Any]:
        del row
        return {}  # of questions alone

    @overload
    def __getitem__(self, at: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, at: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, at: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        """Return a judgment as it was read, texts and all: whoever asks for it sees it."""
        if isinstance(at, slice):
            return [self[row] for row in range(*at.indices(len(self)))]
        row = range(len(self))[at]
        person = {} if self.persons is None else {"person": self.persons[row]}
        return self._question(row) | self._outcome(row) | person

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[row] for row in range(len(self)))

    def head(self, n: int = 5) -> list[dict[str, Any]]:
        """Return the first judgments, as :meth:`__getitem__` does."""
        return self[:n]

    def _card(self) -> list[tuple[str, object]]:
        """Return what a notebook may show: sizes, what is promised, and no text."""
        people = None if self.persons is None else f"{len(set(self.persons)):,}"
        promise: Guarantee | None = getattr(self, "guarantee", None)
        promised = [] if promise is None else promise_rows(promise)
        return [("judgments", f"{len(self):,}"), ("persons", people), *promised]

    def _repr_html_(self) -> str:
        promise: Guarantee | None = getattr(self, "guarantee", None)
        simulated = promise is not None and promise.simulated
        return card(type(self).__name__, self._card(), simulated=simulated)

    @cached_property
    def questions(self) -> UInt64[np.ndarray, " q"] | None:
        """Return 64 bits of each question, sorted, each once: a ledger knows the data set by it."""
        # None of features: scaled, rounded or fewer of them are other numbers of the same
        # judgments.
        # Two questions that look alike only put two data sets on one account: too much is counted.
        if getattr(self, "given", None) is not None:
            return None
        keys = (*self.keys, *getattr(self, "asked", ()))
        return np.unique(np.frombuffer(b"".join(key[:8] for key in keys), "<u8"))

    def people(self, *, most: int | None = None) -> People | None:
        """Return who judged, and how many different questions each, at most so many; if known."""
        if self.persons is None:
            return None
        once = np.flatnonzero(self.first_rows())
        return People.of((person_key(self.persons[row]) for row in once), most=most)

    @abstractmethod
    def canonical_keys(self) -> Iterator[bytes | None]:
        """Yield the key of every question, or None where its answers are in another order."""

    def refuse_other_order(self) -> None:
        """Refuse judgments whose order or keys were not made by the public rule."""
        # Those written as "best first" would give everything away, whatever the noise.
        name, tells, makers = self._said
        for index, (found, key) in enumerate(zip(self.canonical_keys(), self.keys, strict=True)):
            if found != key:
                raise PrivacyError(
                    f"{name} {index} is not in canonical order, so {tells}. Nothing was released. "
                    f"Make {makers}."
                )

    def first_rows(self) -> Bool[np.ndarray, " n"]:
        """Return which rows are the first of their (person, question)."""
        # A repeated answer of one person to one question is the same observation, so fits and error
        # bars count it once. Without person ids every record is a person of its own.
        if self.persons is None:
            return np.ones(len(self), dtype=bool)
        seen: set[tuple[str, bytes]] = set()
        once = np.zeros(len(self), dtype=bool)
        for index, pair in enumerate(zip(self.persons, self.keys, strict=True)):
            once[index] = pair not in seen
            seen.add(pair)
        return once

    def _part(self: Q, rows: Sequence[int], names: Iterable[str], **columns: Any) -> Q:  # noqa: PYI019 (Self cannot be checked at run time)
        """Return some judgments, with the public digest of those alone."""
        at = np.asarray(rows)  # of a record that is taken twice, what hides one hides half
        numbers = at.tolist() if at.ndim == 1 and at.dtype.kind in "iu" else []
        if len({*numbers}.intersection(range(len(self)))) < at.size:
            raise DataError("rows must be numbers of rows from 0, each once. Nothing was taken.")
        columns |= {name: taken(getattr(self, name), rows) for name in ("keys", "persons", *names)}
        beside = _beside(columns.get("second", ()), columns.get("names"))
        digest = PublicDigest.of(columns["keys"], columns["persons"], beside)
        return replace(self, public_digest=digest, **columns)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Comparisons(Questions):
    """The public part of n comparisons, in canonical order."""

    prompts: tuple[Text, ...] = ()
    first: tuple[Text, ...] = ()
    second: tuple[Any, ...] = ()  # texts, or absent where single answers were judged: all, or none
    # Feature differences φ(first) − φ(second), when made from features.
    given: Float[np.ndarray, "n d"] | None = None
    dropped: int = 0  # how many records were left out because their answers are identical
    levels: Levels | None = None  # of ratings
    parts: int = 2  # P, of which every raw label is a whole number: 2 unless levels are declared
    # Keys of single answers whose ratings these are: a ledger knows the data set by them too.
    asked: tuple[bytes, ...] = ()
    names: tuple[Names, ...] | None = None  # whose answers met, where it is said
    shared: bool = False  # whether one record was read as several judgments, or two as one

    def __post_init__(self) -> None:
        # Beside features there are no texts to hide an order in.
        n = len(self) if self.given is None else 0
        texts = dict.fromkeys(("prompts", "first", "second"), n)
        beside = dict.fromkeys(("given", "persons", "names"), len(self))
        self._refuse_lengths(texts | beside)
        if len({isinstance(other, Absent) for other in self.second}) > 1:
            raise DataError("Some judgments are of one answer and some of two. Nothing was done.")
        super().__post_init__()

    def part(self: C, rows: Sequence[int]) -> C:  # noqa: PYI019 (Self cannot be checked at run time)
        """Return some of the rows, in the order given, with the public digest of those alone.

        Randomized answers keep the promise and the entries of them all.

        Args:
            rows: Their numbers. They must be chosen without looking at a label.
        """
        names = ("prompts", "first", "second", "given", "names", "labels", "answers")
        sealed = {"seal": None} if hasattr(self, "seal") else {}
        return self._part(rows, [name for name in names if hasattr(self, name)], **sealed)

    def refuse_shared(self) -> None:
        """Refuse judgments of which several are one record, where a whole record is hidden."""
        if self.shared:
            raise PrivacyError(
                "A record holds the 'labels' of several people, or ratings were put together in "
                "pairs: what hides one judgment does not hide all that a record is in. Nothing was "
                "released. Give each person's label a record of its own, or protect labels or "
                "persons (unit='label', unit='person')."
            )

    @property
    def alone(self) -> bool:
        """Return whether single answers were judged, each by itself."""
        return bool(self.second) and isinstance(self.second[0], Absent)

    def subjects(self, other: Comparisons) -> list[set[bytes]]:
        """Return by which keys each question is known beside those of other comparisons."""
        # Where either are of single answers, or made of their ratings, it is by its answers: a
        # thumb, ratings on any scale and pairs that were made of them are about the same.
        if not any(one.alone or one.asked for one in (self, other)):
            return [{key} for key in self.keys]
        texts = zip(self.prompts, self.first, self.second, strict=True)
        return [
            {canonical(prompt, text, Absent())[1] for text in both if not isinstance(text, Absent)}
            for prompt, *both in texts
        ]

    @property
    def beside(self) -> list[str]:
        """Return what is public of each judgment beside its question and person."""
        return _beside(self.second, self.names)

    @property
    def bare(self) -> bool:
        """Return whether there are names and no texts: the names then stand for them."""
        if not self.names or self.alone or not self.first:
            return False
        return (self.first[0], self.second[0]) == self.names[0][:2]

    def refuse_alone(self) -> None:
        """Refuse judgments of single answers where two are needed."""
        if self.alone:
            raise DataError(
                "These are judgments of single answers, and comparisons of two are needed here. "
                "Nothing was done. Learn a reward of them (sordino align); or compare the rated "
                "answers to one prompt with each other (sordino privatize --ratings pairs)."
            )

    def canonical_keys(self) -> Iterator[bytes | None]:
        """Yield the key of every question, or None where its answers are in another order."""
        if self.given is None:
            texts = zip(self.prompts, self.first, self.second, strict=True)
            found, levels = (canonical(*text) for text in texts), str(self.levels or "")
            return (None if swap else rated_key(key, levels) for swap, key in found)
        leads = zip(leads_of(self.given), self.given, strict=True)
        return (None if lead < 0 else row_key(row) for lead, row in leads)

    @property
    def families(self) -> tuple[str, ...]:
        """Return the public groups of the prompts of single answers, in order."""
        return tuple(sorted({*map(family_of, self.second)})) if self.alone else ()

    @property
    def choices(self) -> Comparisons:
        """Return comparisons of two answers: these, or of single answers two to each prompt."""
        # By the order of their keys, which reads no label.
        if not self.alone:
            return self
        groups: dict[bytes, dict[bytes, int]] = {}
        for row, prompt in enumerate(self.prompts):
            answer = encoded(self.first[row])
            groups.setdefault(encoded(prompt), {}).setdefault(answer, row)
        rows = [sorted(group.values(), key=self.keys.__getitem__)[:2] for group in groups.values()]
        both = [(one[0], one[1]) for one in rows if len(one) > 1]
        return Comparisons(
            keys=tuple(self.keys[one] for one, _ in both),
            public_digest=self.public_digest,
            prompts=tuple(self.prompts[one] for one, _ in both),
            first=tuple(self.first[one] for one, _ in both),
            second=tuple(self.first[other] for _, other in both),
        )

    def _question(self, row: int) -> dict[str, Any]:
        columns = {"prompt": self.prompts, "first": self.first, "second": self.second}
        told: dict[str, Any] = {name: held[row] for name, held in columns.items() if held}
        if self.given is not None:
            told = {"difference": self.given[row]}
        if self.alone:
            del told["second"]
        return told | named_fields(self.names[row] if self.names else None)

    def differences(self, features: Features | None) -> Float[np.ndarray, "n d"] | csr_array:
        """Return φ(first) − φ(second) for every record."""
        if isinstance(features, ItemDifferences):
            return features.rows(self)
        if self.bare:
            raise DataError(
                "These judgments name what was compared and hold no answers, so no reward of "
                "answers can be learned. Nothing was done. Rank the names: sordino rank."
            )
        what = "pairs of texts, and left out for pairs made by from_features"
        refuse_other_features(features, what, needed=self.given is None)
        if self.given is not None:
            return self.given
        assert features is not None  # noqa: S101 (for the type checker; shown one line above)
        return differences(features, self.prompts, self.first, self.second)


def leads_of(rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
    """Return the first entry of every row that is not 0; 0 where all are."""
    return np.asarray(rows[np.arange(len(rows)), (rows != 0).argmax(axis=1)])


def row_key(row: Float[np.ndarray, " d"]) -> bytes:
    """Return the key of a question that is known by its features."""
    return hashlib.sha256(row.tobytes()).digest()


def outcomes(name: str, values: object, n: int, *, parts: int = 1) -> Integer[np.ndarray, " n"]:
    """Return n outcomes that nobody can change afterwards; each a whole number of so many parts."""
    outcomes = np.array(values)
    permitted = [code for code, share in enumerate(SHARES) if (share * parts).denominator == 1]
    if outcomes.shape != (n,) or not np.isin(outcomes, permitted).all():
        also = " (or 2: undecided)" if parts > 1 else ""
        also += "" if len(permitted) <= 3 else f", or the code of one of {parts} parts"  # noqa: PLR2004
        raise DataError(f"{name} must be 0 or 1{also}, one for each of the {n} keys.")
    outcomes = outcomes.astype(np.int8)
    outcomes.setflags(write=False)
    return outcomes


_PROBLEMS: Mapping[str, str] = {
    "identical": "both answers are the same, so nothing can be preferred",
    "empty": "an answer is empty, so there is nothing to judge",
    "overlong": "its texts are longer than is permitted",
}
"""For what a record may be left out, or refused: for its texts, and nothing else."""


@dataclass(frozen=True)
class TextRules:
    """Which records are left out, and which are refused: never for what was said of them."""

    drop: frozenset[str] = frozenset()  # for which of the problems
    longest: int | None = None  # most characters of all texts; None for any

    @classmethod
    def of(cls, drop: Collection[str], longest: int | None = None) -> TextRules:
        """Return the rules that a user asked for, or refuse them."""
        drop = (drop,) if isinstance(drop, str) else drop or ()  # None leaves nothing out
        for name in drop:
            _validate.one_of("drop", name, tuple(_PROBLEMS))
        if longest is not None:
            _validate.integer("longest", longest, at_least=1)
        elif "overlong" in drop:
            raise UsageError(
                "drop: what is overlong? Nothing was read. Say how many characters the texts of a "
                "record may have: longest=20000 (--longest 20000)."
            )
        return cls(frozenset(drop), longest)

    def problems(self, record: Record) -> list[str]:
        """Return what keeps a record from being used, as these rules have it."""
        return [
            *(["identical"] if record.identical else []),
            *(["empty"] if "empty" in self.drop and record.empty else []),
            *(["overlong"] if self.longest is not None and record.size > self.longest else []),
        ]

    def drops(self, record: Record) -> bool:
        """Return whether a record is left out."""
        return not self.drop.isdisjoint(self.problems(record))


USUAL = TextRules()  # nothing is left out


def _beside(second: Sequence[Any], names: Sequence[Names] | None) -> list[str]:
    """Return what is public of each record beside its question and person; vectors say nothing."""
    return [told_beside(text, names[row] if names else None) for row, text in enumerate(second)]


def looks_swapped(texts: Sequence[tuple[Any, Any, Any]]) -> bool:
    """Return whether prompts look like answers: next to none asks, and half of the answers do."""
    # A rule on texts, alike in both answers; a guess, for a warning.
    told = [each for each in texts if all(isinstance(one, str) for one in each)]
    asking = [[one.rstrip().endswith("?") for one in each] for each in told]
    share = np.mean(asking, axis=0) if len(told) >= _ENOUGH else np.zeros(3)
    return bool(share[0] < _FEW and min(share[1:]) > _MANY)


_ENOUGH, _FEW, _MANY = 10, 0.1, 0.5


def warn_swapped(pairs: Comparisons) -> None:
    """Warn where prompts look like answers, and answers like prompts: texts must be public."""
    texts = zip(pairs.prompts, pairs.first, pairs.second, strict=True)
    if pairs.given is None and looks_swapped(list(texts)):
        warnings.warn(
            "Answers look like prompts and prompts like answers: they may be swapped. Look with "
            "sordino inspect, and say which is which with --columns.",
            PrivacyWarning,  # what the promise is about is then not what was meant
            stacklevel=2,
        )


def kept(records: Iterable[Record], digest: PublicDigest, rules: TextRules) -> Iterator[Record]:
    """Yield the records that carry a preference; every one enters the digest first."""
    for record in records:
        digest.add(record.key, record.person, told_beside(record.second, record.names))
        problems = rules.problems(record)
        if not problems:
            yield record
            continue
        if rules.drop.isdisjoint(problems):
            raise DataError(
                f"{record.where}: {_PROBLEMS[problems[0]]}. Nothing was released. Remove it, or "
                f"leave all such pairs out: drop={problems} (--drop {','.join(problems)})."
            )
        digest.dropped += 1


def outcomes_of(rows: Sequence[Record]) -> Integer[np.ndarray, " n"]:
    """Return the label, or the randomized answer, of every record."""
    return np.fromiter((row.outcome for row in rows), dtype=np.int8, count=len(rows))


def columns_of(rows: Sequence[Record], digest: PublicDigest) -> dict[str, Any]:
    """Return the public columns of records, as :class:`Comparisons` takes them."""
    levels = rows[0].levels if rows else None
    return {
        "keys": tuple(row.key for row in rows),
        "public_digest": digest.hexdigest(),
        "dropped": digest.dropped,
        "prompts": tuple(row.prompt for row in rows),
        "first": tuple(row.first for row in rows),
        "second": tuple(row.second for row in rows),
        "levels": levels,
        "parts": 2 if levels is None else levels.parts,
        "asked": tuple(key for row in rows for key in row.asked),
        "persons": all_named(row.person for row in rows),
        "names": all_named(row.names for row in rows),
        "shared": any(row.shared for row in rows),
    }


N = TypeVar("N")


def all_named(named: Iterable[N | None]) -> tuple[N, ...] | None:
    """Return who gave each record if every record names somebody, and there is one."""
    given = tuple(named)
    known = tuple(one for one in given if one is not None)
    return known if given and len(known) == len(given) else None


FOLDS: Final = 5
MEASURING: Final = 1  # the level of the folds that metrics are measured on


def held_out_questions(keys: Sequence[bytes]) -> Bool[np.ndarray, " n"]:
    """Return which questions are kept for metrics: one fifth of them, by their keys alone."""
    # Source: docs/central.md, "Metrics that are paid for".
    return np.asarray(folds_of(question_numbers(keys), MEASURING) == 0)


def question_numbers(keys: Sequence[bytes]) -> Integer[np.ndarray, " n"]:
    """Return 64 bits of every question's key."""
    return np.frombuffer(b"".join(key[:8] for key in keys), dtype=">u8").astype(np.uint64)


def folds_of(questions: Integer[np.ndarray, " n"], level: int) -> Integer[np.ndarray, " n"]:
    """Return a fold for every question by its key alone; a level mixes them in its own way."""
    mixed = (questions >> np.uint64(8 * level)) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray((mixed >> np.uint64(33)) % np.uint64(FOLDS), dtype=np.int64)


def refuse_one_side(*, pairs: int, held_out: int) -> None:
    """Refuse a hold-out of nothing or of everything; only where questions are public."""
    if not 0 < held_out < pairs:
        raise DataError(
            f"{pairs} pairs are too few different questions to hold out a fifth of them; a dozen "
            "is the least. Nothing was spent. Leave held_out out and buy no metrics."
        )


LEVEL: Final = "(liked)"
"""The item that a thumb holds an answer against: what people expect."""

STYLE: Final = {
    "length": re.compile(r"\w+"),
    "headings": re.compile(r"^#{1,6} ", re.MULTILINE),
    "lists": re.compile(r"^[ \t]{0,8}(?:[-*•]|\d{1,3}[.)]) ", re.MULTILINE),
    "bold": re.compile(r"\*\*[^*\n]+\*\*"),
    "code": re.compile(r"```"),
}
"""What is counted of an answer to control for style."""

_WEIGHT: Final = 0.3  # of a full difference in style, where one of two items is 1
_DOUBLINGS: Final = 2.0  # a full difference: four times as much


@dataclass(frozen=True)
class ItemDifferences:
    """Features of battles: e_a − e_b over declared items, for all votes and for each group.

    A row holds the items, then the differences in style, then both again for each group, of which
    only the group of the battle is not 0. A style is w·clip(log₂((1 + s_a)/(1 + s_b))/2, −1, 1), s
    what :data:`STYLE` counts in an answer and w = 0.3. With ``ties`` a counter for all votes and
    one for each group come last, as :class:`~sordino.mechanisms.label_sum.LabelGaussian` takes
    them.

    Args:
        items: Their names, declared or public; at least two, each once.
        groups: Public groups of prompts that get a board of their own.
        style: Which of :data:`STYLE` are differences beside the items.
        ties: Whether ties are counted, or are half a win for both.
    """

    items: tuple[str, ...]
    _: KW_ONLY
    groups: tuple[str, ...] = ()
    style: tuple[str, ...] = ()
    ties: bool = False

    def __post_init__(self) -> None:
        for name, least in (("items", 2), ("groups", 0)):
            given = tuple(person_id(f"{name} {one!r}", one) for one in getattr(self, name))
            object.__setattr__(self, name, given)
            if len(set(given)) < max(len(given), least):
                raise UsageError(f"{name} must be at least {least} names, each once.")
        if not {*self.style} <= {*STYLE}:
            raise UsageError(f"style must be of {', '.join(STYLE)}, got {self.style!r}.")

    @classmethod
    def of(cls, pairs: Comparisons, **settings: Any) -> ItemDifferences:
        """Return the features of all items that are named: only where names are public."""
        named = {name for each in _names_of(pairs) for name in each[:2]} - {""}
        items = (*sorted(named), *([LEVEL] if pairs.alone else []))
        return cls(items, **settings)

    @property
    def width(self) -> int:
        """Return how many numbers each board has: its items and styles."""
        return len(self.items) + len(self.style)

    @property
    def counters(self) -> int:
        """Return how many numbers of ties are counted."""
        return (1 + len(self.groups)) * self.ties

    @property
    def dimension(self) -> int:
        """Return d, counters of ties included."""
        return self.width * (1 + len(self.groups)) + self.counters

    @property
    def feature_bound(self) -> float:
        """Return half of the longest row, without counters of ties."""
        square = 2 + len(self.style) * _WEIGHT**2
        return float(np.sqrt(square * (2 if self.groups else 1)) / 2)

    def transform(self, prompts: Sequence[Text], answers: Sequence[Text]) -> sparse.csr_array:
        """Return a row for each answer that is the name of an item."""
        del prompts
        places = [self._place(self._items, str(name), "item") for name in answers]
        ones = np.ones(len(places)), (np.arange(len(places)), places)
        return sparse.csr_array(ones, shape=(len(places), self.dimension))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        public = {name: list(getattr(self, name)) for name in ("items", "groups", "style")}
        return {"kind": "items", **public, "ties": self.ties}

    def rows(self, pairs: Comparisons) -> sparse.csr_array:
        """Return the differences of all battles.

        Raises:
            DataError: An answer has no name, or a name or a group is not among the declared ones.
        """
        names = _names_of(pairs)
        second = [LEVEL if pairs.alone else each.second for each in names]
        n, base = len(names), np.arange(len(names))
        blocks = [np.zeros(n, dtype=np.int64)]
        if self.groups:
            groups = [self._place(self._groups, each.group, "group") for each in names]
            blocks.append(1 + np.array(groups, dtype=np.int64))
        sides = (1.0, [each.first for each in names]), (-1.0, second)
        parts: list[tuple[Any, Any, Any]] = []
        for sign, side in sides:
            places = [self._place(self._items, name, "item") for name in side]
            parts += [(base, np.array(places, np.int64) + at * self.width, sign) for at in blocks]
        for number, style in enumerate(self._styles(pairs), start=len(self.items)):
            parts += [(base, number + at * self.width, style) for at in blocks]
        if self.ties:
            start = self.width * (1 + len(self.groups))
            parts += [(base, start + at, 1.0) for at in blocks]
        rows, columns, values = (
            np.concatenate([np.broadcast_to(part[k], n) for part in parts]) for k in range(3)
        )
        made = sparse.csr_array((values, (rows, columns)), shape=(n, self.dimension))
        made.sum_duplicates()  # an item that met itself
        made.eliminate_zeros()
        return made

    def board(self, group: str = "") -> slice:
        """Return the columns of the board of all votes, or of a group."""
        at = self.width * (0 if not group else 1 + self._groups[group])
        return slice(at, at + self.width)

    @cached_property
    def _items(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.items)}

    @cached_property
    def _groups(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.groups)}

    @staticmethod
    def _place(known: dict[str, int], name: str, what: str) -> int:
        if name not in known:
            raise DataError(
                f"{what} {name!r} is not among the {len(known)} that were declared. Nothing was "
                f"released. Declare it too ({what}s), or leave its battles out."
            )
        return known[name]

    def _styles(self, pairs: Comparisons) -> list[Float[np.ndarray, " n"]]:
        """Return the difference in every style, for all battles."""
        if not self.style:
            return []
        if pairs.bare or pairs.alone:
            raise DataError(
                "There is no style to control for: two answers to each prompt are needed, and "
                "these judgments hold none. Nothing was released. Leave style out."
            )
        sides = [
            flatten(side, name) for name, side in (("first", pairs.first), ("second", pairs.second))
        ]
        found = []
        for style in self.style:
            one, other = (
                np.log2([1.0 + len(STYLE[style].findall(text)) for text in side]) for side in sides
            )
            found.append(_WEIGHT * np.clip((one - other) / _DOUBLINGS, -1, 1))
        return found

    def _has_read(self, _private: object) -> dict[str, bool]:
        return {"known": True, "read": False}  # a public rule


def _names_of(pairs: Comparisons) -> Sequence[Names]:
    """Return whose answers met; refuse judgments that do not say it."""
    if pairs.names is None and len(pairs):
        raise DataError(
            "These judgments do not say whose answers met. Nothing was released. Name the columns "
            "that do: --columns first_name=COLUMN,second_name=COLUMN."
        )
    return pairs.names or ()
