"""From a prompt and an answer to a bounded vector, independent of the data.

A feature map is public: it is fixed before any data is seen and learns nothing from it (no
vocabulary, no document frequencies, no standardization). What is private is only which answer
was preferred, or the rows themselves, so every row is clipped on its own and its norm bound
holds for every text that can be written.

No vocabulary outlives a call either, so no word of a private text stays in memory. Only +, −, ×,
÷ and √ are used, which IEEE 754 rounds the same everywhere: a row is the same to the last bit on
every machine, whatever other rows stand beside it.
"""

from __future__ import annotations

import re
import tomllib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial, reduce
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
import scipy.sparse
from jaxtyping import Bool, Float, Int, UInt64

from sordino._validate import finite_array, integer, non_negative, one_of, positive, settle
from sordino.errors import DataError, PrivacyError, UsageError

from .records import Absent, Alternative, Text

_CACHED = 1 << 16  # distinct words that are remembered at most while one call runs
_END = "\uffff"  # ends each text: no character, and taken out of texts
_SEPARATOR = f" {_END} "
_MARKS = [(mark, "'") for mark in "’ʼ"]
_MARKS += [(mark, " ") for mark in "“”‘«»…—–•¿¡。、，？！：；（）\u00a0\u3000"]
_HALF, _LOW, _FOLD = np.uint64(32), np.uint64(0xFFFFFFFF), np.uint64(33)
_ASCII = 127
_SPACED = bytes(
    code if code > _ASCII or chr(code).isalnum() or chr(code) == "'" else ord(" ")
    for code in range(256)
)

_TABLE = tomllib.loads(Path(__file__).with_name("signals.toml").read_text("utf-8"))
_FLAGS: dict[str, str] = _TABLE["words"]

_BIT = {name: 1 << (32 + place) for place, name in enumerate(_FLAGS)}
_END_BIT = 1 << 63  # a flag and not a number: a word could be made to have any number


_LISTED = {_END.encode(): _END_BIT}  # the flags of each listed word as bits above the lowest 32
for _name, _words in _FLAGS.items():
    for _word in map(str.encode, _words.split()):
        _LISTED[_word] = _LISTED.get(_word, 0) | _BIT[_name]


class Numbers(dict[bytes, int]):
    """Word to number: CRC-32 in the low half, flags above; forgets everything when full."""

    def __missing__(self, word: bytes) -> int:
        number = zlib.crc32(word) | _LISTED.get(word, 0)
        if b"0" <= word[:1] <= b"9":
            number |= _BIT["figure"]
        if len(self) >= _CACHED:
            self.clear()
        self[word] = number
        return number


@dataclass(frozen=True)
class Tokens:
    """The words of n texts in a row, each text followed by one end mark."""

    numbers: UInt64[np.ndarray, " m"]  # CRC-32 of each word in the low 32 bits, its flags above
    ends: Int[np.ndarray, " n"]  # where the end mark of each text stands

    @property
    def starts(self) -> Int[np.ndarray, " n"]:
        """Return where each text begins."""
        return np.append(0, self.ends[:-1] + 1)[: len(self.ends)]

    @property
    def lengths(self) -> Float[np.ndarray, " n"]:
        """Return the number of words of each text."""
        return np.asarray(self.ends - self.starts, dtype=np.float64)

    @property
    def keyed(self) -> UInt64[np.ndarray, " m"]:
        """Return each word's number (flags left out) under the row of its text."""
        rows = np.arange(len(self.ends), dtype=np.uint64) << _HALF
        return np.asarray(np.repeat(rows, self.ends - self.starts + 1) | (self.numbers & _LOW))

    def flag(self, name: str) -> Bool[np.ndarray, " m"]:
        """Return at each position whether its word is on a list of ``_FLAGS``."""
        return np.asarray((self.numbers & np.uint64(_BIT[name])) != 0)

    def count(self, marked: Bool[np.ndarray, " m"]) -> Float[np.ndarray, " n"]:
        """Return how many positions of each text are marked."""
        total = np.append(0.0, np.cumsum(marked, dtype=np.float64))
        return np.asarray(total[self.ends] - total[self.starts])


def flatten(texts: Sequence[Text], name: str) -> list[str]:
    """Return each text as one string; one message is its content, several say who speaks."""
    if isinstance(texts, str):
        raise DataError(f"{name} must be a sequence of texts, got one text.")
    return [text if type(text) is str else _joined(text, name, at) for at, text in enumerate(texts)]


def _joined(text: Text, name: str, index: int) -> str:
    if isinstance(text, str):
        return str(text)
    try:
        turns = [(message["role"], message["content"]) for message in text]
    except (TypeError, KeyError, IndexError):
        turns = [(None, None)]
    if not all(isinstance(part, str) for turn in turns for part in turn):
        raise DataError(
            f"{name}[{index}] must be a text, or a list of messages with a 'role' and a "
            "'content' text each."
        )
    if len(turns) == 1:
        return str(turns[0][1])
    return "\n\n".join(f"{role}: {content}" for role, content in turns)


def _tokenize(texts: Sequence[str], numbers: Numbers) -> Tokens:
    """Return the words of the texts, in lower case, without punctuation."""
    lower = [text.lower() for text in texts]
    whole = _SEPARATOR.join([*lower, ""])
    if whole.count(_END) != len(texts):
        whole = _SEPARATOR.join([*(text.replace(_END, " ") for text in lower), ""])
    for mark, plain in _MARKS:
        whole = whole.replace(mark, plain)
    words = whole.encode("utf-8", "surrogatepass").translate(_SPACED).split()
    found = np.fromiter(map(numbers.__getitem__, words), np.uint64, len(words))
    return Tokens(found, np.flatnonzero(found >= np.uint64(_END_BIT)))


def _hashed_words(tokens: Tokens, width: int) -> scipy.sparse.csr_array:
    """Return words and pairs of neighboring words, hashed with signs into rows of norm 1 or 0."""
    # A bucket holds sign(c)·√|c| / √Σ|c| for signed counts c, so that a repeated word counts less
    # than the same number of different words. The beginning and the end of a text pair with its
    # first and last word.
    # Source: Weinberger et al., Feature hashing for large scale multitask learning (2009),
    # definition 1.
    low = tokens.numbers & _LOW
    before = np.concatenate([low[tokens.ends[:1]], low[:-1]])
    bits = np.stack([low, ((before + np.uint64(1)) << _HALF) | low], axis=1)
    # 64 well-mixed bits for each 64-bit number. Source: A. Appleby, MurmurHash3 (public domain),
    # `fmix64`.
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        bits = (bits ^ (bits >> _FOLD)) * np.uint64(factor)
    bits ^= bits >> _FOLD
    values = 1.0 - 2.0 * (bits & np.uint64(1)).astype(np.float64)
    values[tokens.ends, 0] = 0.0
    buckets = ((bits >> _HALF) * np.uint64(width)) >> _HALF
    bounds = np.concatenate([[0], 2 * (tokens.ends + 1)])
    counts = scipy.sparse.csr_array(
        (values.ravel(), buckets.ravel().astype(np.int32), bounds.astype(np.int32)),
        shape=(len(tokens.ends), width),
    )
    counts.sum_duplicates()
    counts.eliminate_zeros()
    size = np.abs(counts.data)  # whole numbers: their sums are exact in any order
    total = np.concatenate([[0.0], np.cumsum(size)])[counts.indptr]
    share = size / np.repeat(np.diff(total), np.diff(counts.indptr))
    counts.data = np.sign(counts.data) * np.sqrt(share)
    return counts


SIGNALS: dict[str, float] = _TABLE["typical"]
"""Each signal, most telling first, with the typical value that is subtracted: a public constant."""

_TYPICAL = np.array(list(SIGNALS.values()))[:, None]
_ITEM = re.compile(r"^[ \t]{0,8}(?:[-*•]|\d{1,3}[.)])[ \t]", re.MULTILINE)
_OPENINGS = {"with a question": "asking", "by agreeing": "agreeing", "by denying": "denying"}
_CLOSED = tuple(".!?:)]}\"'”’…*`。！？")

_Amounts = Float[np.ndarray, " n"]


def _shape_signals(texts: Sequence[str], words: Tokens, asked: Tokens) -> Float[np.ndarray, "s n"]:
    """Return the signals of each answer, one row for each of ``SIGNALS``, centered."""
    # Each lies in [−1, 1] and is independent of the data: of everything but this prompt and this
    # answer.
    n = words.lengths
    asking, calling = _marks(texts, "?"), _marks(texts, "!")
    sentences = np.maximum(1.0, _marks(texts, ".") + calling + asking)
    ends = [text.rstrip() for text in texts]
    items = _column(len(_ITEM.findall(text)) if "\n" in text else 0 for text in texts)
    speaker = words.flag("first")
    refusal = words.flag("cannot") & np.append([False], speaker[:-1])  # "I can't", "I'm not"
    some = n / 5 + 1
    known, said = np.sort(asked.keyed), words.keyed
    place = np.minimum(np.searchsorted(known, said), len(known) - 1)
    found = {
        # how much is said: steep for short answers, flat for long ones
        "words, saturating at 20": _saturated(n, 20),
        "words, saturating at 60": _saturated(n, 60),
        "words, saturating at 150": _saturated(n, 150),
        "root of words": np.sqrt(np.minimum(n, 400) / 400),
        "brevity": 8 / (8 + n),
        "word length": np.minimum(1, _column(map(len, texts)) / (10 * (n + 1))),
        # how much is question, exclamation or statement
        "share of questions": np.minimum(1.0, asking / sentences),
        "questions only": (asking >= sentences).astype(np.float64),
        "ends with a question": _column(end.endswith("?") for end in ends),
        "cut off": _column(not end.endswith(_CLOSED) for end in ends),
        "sentences": _saturated(sentences, 3),
        "exclamations": _saturated(calling, 1),
        # how it is laid out
        "commas": _saturated(_marks(texts, ","), 3),
        "list items": _saturated(items, 3),
        "lines": _saturated(_marks(texts, "\n"), 3),
        "links": np.minimum(1.0, _marks(texts, "http") + _marks(texts, "www.")),
        "code": np.minimum(1.0, _marks(texts, "`")),
        "asides": _saturated(_marks(texts, "("), 2),
        "colons": _saturated(_marks(texts, ":"), 2),
        # who speaks to whom, and whether it is an answer
        "refusals": _saturated(words.count(refusal | words.flag("regret")), 1),
        "speaks of itself": np.minimum(1.0, words.count(speaker) / some),
        "speaks to the reader": np.minimum(1.0, words.count(words.flag("you")) / some),
        "figures": _saturated(words.count(words.flag("figure")), 3),
        "hedges": _saturated(words.count(words.flag("hedge")), 1),
        "shared words": _saturated(words.count(np.asarray(known[place] == said)), 3),
    }
    for how, name in _OPENINGS.items():
        found[f"opens {how}"] = words.flag(name)[words.starts].astype(np.float64)
    return np.asarray(np.stack([found[name] for name in SIGNALS]) - _TYPICAL)


def _saturated(count: _Amounts, half: int) -> _Amounts:
    """Return 0 for none, 1/2 at ``half``, and below 1 for any number."""
    return np.asarray(count / (count + half))


def _column(values: Iterable[Any]) -> _Amounts:
    return np.fromiter(values, np.float64)


def _marks(texts: Sequence[str], mark: str) -> _Amounts:
    return _column([text.count(mark) for text in texts])


Matrix: TypeAlias = scipy.sparse.csr_array | Float[np.ndarray, "n d"]
"""n rows of d features, sparse or dense."""

_FeatureFunction: TypeAlias = Callable[[Sequence[Text], Sequence[Text]], Any]
"""Prompts and answers in, an array of shape (n, d) out."""

_INSIDE = 1 - 2.0**-40  # rows are clipped to this share of the bound: rounding stays within it
_SMALLEST = 1e-100
_MOST = 2**20  # hashed features; words and word pairs of English are no more
_SHAPE_SCALE = 0.4  # of a signal's full range; typical rows then have norm 0.5, few are clipped
_MANY = 20_000  # judgments from which words can be learned
_CHUNK = 1 << 20  # characters that are worked on at once, which bounds the memory


CLASS = "finite-class"
"""What features, sets and fits are called that are of a finite class of rewards."""


@runtime_checkable
class Features(Protocol):
    """A public map from a prompt and an answer to a vector of bounded norm."""

    @property
    def dimension(self) -> int:
        """Return d, the number of features."""

    @property
    def feature_bound(self) -> float:
        """Return L: no row of ``transform`` has a larger Euclidean norm, for any text."""

    def transform(self, prompts: Sequence[Text], answers: Sequence[Text]) -> Matrix:
        """Return one row for each prompt and answer; a row depends on nothing else."""

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values, with ``kind``."""


@dataclass(frozen=True)
class HashedText:
    """The shape of an answer, and its words and word pairs hashed with signs.

    The first min(28, dimension // 2) features (28 where words weigh nothing) say how much is said,
    what is asked or refused, how it is laid out, and how much it takes up the prompt; they carry
    most of the norm, because under privacy a few strong directions are learned and hundreds of weak
    ones are not. The others are hashed words. The map is independent of the data: only public
    constants enter, so that the same text gives the same row, bit by bit, on every machine. Words
    are told apart by spaces and punctuation, and the listed words (refusals, openings) are English.

    Args:
        dimension: d, from 1 to 1,048,576.
        feature_bound: L, within 1e-100 and 1e100; it scales all rows, and each row is clipped to
            it on its own.
        word_norm: Norm of the hashed words, as a share of L; 0 leaves only the shape. More lets
            a reward model learn words, for which it needs many answers and a large epsilon.

    Source:
        hashing: Weinberger et al., Feature hashing for large scale multitask learning (2009),
        definition 1.

    Example:
        >>> HashedText(dimension=64).transform(["What is a fugue?"], ["A piece for voices."]).shape
        (1, 64)
    """

    dimension: int = 512
    _: KW_ONLY
    feature_bound: float = 1.0
    word_norm: float = 0.15

    def __post_init__(self) -> None:
        settle(self, dimension=usable_dimension, feature_bound=usable_bound, word_norm=non_negative)
        if self.word_norm > 1:
            raise UsageError(f"word_norm must be at most 1, got {self.word_norm}.")

    def transform(self, prompts: Sequence[Text], answers: Sequence[Text]) -> scipy.sparse.csr_array:
        """Return one sparse row for each prompt and answer; a row depends on nothing else.

        Args:
            prompts: n texts or lists of chat messages.
            answers: n texts or lists of chat messages.

        Raises:
            DataError: The lengths differ, or an element is no text; the message gives its index.
        """
        sides = _flattened(prompts=prompts, answers=answers)
        numbers = Numbers()
        return self._stacked([self._rows(numbers, *part)[0] for part in _chunks(sides)])

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        return {"kind": "hashed-text", **vars(self)}

    def _differences(
        self, prompts: Sequence[Text], first: Sequence[Text], second: Sequence[Text]
    ) -> scipy.sparse.csr_array:
        """Return the rows of first minus those of second; each prompt is read once."""
        sides = _flattened(prompts=prompts, first=first, second=second)
        numbers = Numbers()
        rows = (self._rows(numbers, *part) for part in _chunks(sides))
        return self._stacked([one - other for one, other in rows])

    @property
    def signals(self) -> int:
        """Return how many features say the shape of an answer; they come first."""
        return min(len(SIGNALS), self.dimension if self.word_norm == 0 else self.dimension // 2)

    def _stacked(self, parts: list[scipy.sparse.csr_array]) -> scipy.sparse.csr_array:
        nothing = scipy.sparse.csr_array((0, self.dimension))
        return scipy.sparse.vstack([nothing, *parts], format="csr")

    def _rows(
        self, numbers: Numbers, prompts: list[str], *sides: list[str]
    ) -> list[scipy.sparse.csr_array]:
        """Return the rows of each list of answers to the same prompts."""
        asked = _tokenize(prompts, numbers)
        kept = self.signals
        rows = []
        for answers in sides:
            words = _tokenize(answers, numbers)
            shape = _SHAPE_SCALE * _shape_signals(answers, words, asked)[:kept]
            hashed = scipy.sparse.csr_array((len(words.ends), self.dimension - kept))
            if self.word_norm:
                hashed = _hashed_words(words, self.dimension - kept)
            # Added one signal after another: a sum over an axis may be rounded otherwise for n = 1.
            square = reduce(np.add, shape * shape, np.full(shape.shape[1], self.word_norm**2))
            scale = self.feature_bound * _INSIDE / np.maximum(1.0, np.sqrt(square))
            hashed.data *= np.repeat(self.word_norm * scale, np.diff(hashed.indptr))
            shaped = scipy.sparse.csr_array((shape * scale).T)
            rows.append(scipy.sparse.hstack([shaped, hashed], "csr"))
        return rows


INTERCEPTS = ("one", "none", "family")
"""What a single answer is held against: one bar for all, none, or one for each family."""

_HEIGHT = 0.5  # of the intercept, as a share of the bound: as long as typical rows


@dataclass(frozen=True)
class Intercept:
    """Features of answers, and of what an answer that is judged by itself is held against.

    A thumb or a rating compares an answer with an absent alternative, whose features are zero but
    for −L/2 at the place of its family: the last weights say how high the bar is there. Answers
    have zeros at these places, so that in a comparison of two of them the bar cancels.

    Args:
        features: Features of answers.
        families: Public groups of prompts, each with a bar of its own: one for all by default;
            without any, an answer is liked if its reward is positive.

    Source:
        docs/local.md, "Thumbs and ratings".

    Example:
        >>> Intercept(HashedText(dimension=28)).dimension
        29
    """

    features: Features
    _: KW_ONLY
    families: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        if not isinstance(self.features, Features) or isinstance(self.features, Intercept):
            raise UsageError("Intercept is for features of answers, such as HashedText.")
        names = tuple(self.families)
        if len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
            raise UsageError("families must be different texts.")
        object.__setattr__(self, "families", names)
        usable_dimension("dimension", self.dimension)

    @property
    def dimension(self) -> int:
        """Return d: features of answers, and one for each family."""
        return self.features.dimension + len(self.families)

    @property
    def feature_bound(self) -> float:
        """Return L, that of the answers."""
        return self.features.feature_bound

    def transform(self, prompts: Sequence[Text], answers: Sequence[Text]) -> Matrix:
        """Return one row for each prompt and answer, zero at the places of the families."""
        return self._beside(self.features.transform(prompts, answers), [])

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        kind = {"kind": "intercept", "families": list(self.families)}
        return {**kind, "features": self.features.to_dict()}

    def _differences(
        self, prompts: Sequence[Text], first: Sequence[Text], second: Sequence[Alternative]
    ) -> Matrix:
        return self._beside(differences(self.features, prompts, first, second), second)

    def _beside(self, rows: Matrix, second: Sequence[Alternative]) -> Matrix:
        """Return rows with the intercept of each that is held against an absent answer."""
        places = {family: place for place, family in enumerate(self.families)}
        bars = np.zeros((rows.shape[0], len(places)))
        for row, other in enumerate(second):
            if isinstance(other, Absent):
                # where there is one bar, it is for all
                place = 0 if self.families == ("",) else places.get(other.family)
                if place is not None:
                    bars[row, place] = _HEIGHT * self.feature_bound
        if scipy.sparse.issparse(rows):
            return scipy.sparse.csr_array(scipy.sparse.hstack([rows, bars], format="csr"))
        return np.hstack([rows, bars])

    def __getattr__(self, name: str) -> Any:
        # What features say of texts that they have read, or of a promise, holds with an intercept.
        if name in {"_has_read", "guarantee", "declare_unread"}:
            return getattr(self.features, name)
        if name == "_alone":
            return replace(self, features=getattr(self.features, name))
        raise AttributeError(name)


def suited_features(
    features: Features | None,
    *,
    alone: bool,
    intercept: str | None = None,
    families: Iterable[str] = (),
    hidden: bool = False,
) -> Features | None:
    """Return features for judgments of single answers (``alone``), or of two, where no bar is."""
    if not alone:
        if intercept is not None:
            raise UsageError(
                "An intercept (--intercept) is for thumbs and ratings of single answers; in a "
                "comparison of two it cancels. Nothing was done. Leave it out."
            )
        return features
    kind = one_of("intercept", intercept or "one", INTERCEPTS)
    if features is None or isinstance(features, Intercept):
        return features
    if hidden:  # no record may tell it, and how many weights there are is released
        raise UsageError(
            "These are judgments of single answers, and under unit='record' no record may tell "
            "that. Nothing was released. Say it: features=Intercept(features), which "
            "sordino.preferences.features has."
        )
    bars = {"one": ("",), "none": (), "family": tuple(families)}[kind]
    return Intercept(features, families=bars)


def usual_features(n: int | None) -> HashedText:
    """Return the features that so many private judgments can teach the weights of."""
    # A word is in few answers. Fewer than 20,000 judgments under noise say nothing about single
    # buckets of words, whatever epsilon is between 0.5 and 4, and hiding records costs noise in
    # each of them; the shape of answers is learned from some hundred. Only the number of judgments
    # decides, and only where it is public.
    if n is None or n < _MANY:
        return HashedText(dimension=len(SIGNALS), word_norm=0.0)
    return HashedText()


@dataclass(frozen=True)
class FunctionFeatures:
    """Features that your own function computes, checked and clipped row by row.

    The function must be independent of the data: fixed before any of it is seen, and a row must
    depend on its own prompt and answer only. Neither can be checked here; shape, finiteness and
    the norm bound are enforced.

    Args:
        function: Called with n prompts and n answers, returns an array of shape (n, dimension).
        dimension: d, at least 1.
        feature_bound: L, within 1e-100 and 1e100; each row is clipped to it on its own.
        name: What a saved model calls the function; the function itself is never stored.
        declare_unread: Whether you declare that no word list, weight or projection in the function
            was made from the records that a fit hides; a caveat of what hides whole records.

    Example:
        >>> def length(prompts, answers):
        ...     return [[len(answer)] for answer in answers]
        >>> FunctionFeatures(length, dimension=1, name="length").transform(["?"], ["yes"])
        array([[1.]])
    """

    function: _FeatureFunction
    _: KW_ONLY
    dimension: int
    feature_bound: float = 1.0
    name: str
    declare_unread: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise UsageError("function must be callable with prompts and answers.")
        if not isinstance(self.name, str) or not self.name:
            raise UsageError(f"name must be a text that is not empty, got {self.name!r}.")
        settle(self, dimension=partial(integer, at_least=1), feature_bound=usable_bound)

    def transform(
        self, prompts: Sequence[Text], answers: Sequence[Text]
    ) -> Float[np.ndarray, "n d"]:
        """Return one row for each prompt and answer, of norm at most L.

        Raises:
            DataError: The function returned another shape, or a row that is not finite; the
                message gives its index.
        """
        _same_length(prompts=prompts, answers=answers)
        found, array = self.function(prompts, answers), None
        with suppress(ValueError):  # its message is not ours to vouch for
            array = np.asarray(found)
        if array is None:
            raise DataError("The features must be an array, got rows of different lengths.")
        rows = finite_array("The features", array, ndim=2)
        if rows.shape != (len(answers), self.dimension):
            raise DataError(
                f"The features must have shape {(len(answers), self.dimension)}, got {rows.shape}."
            )
        return clipped_rows(rows, self.feature_bound)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values; of the function only its name."""
        names = ("dimension", "feature_bound", "name")
        return {"kind": "function", **{name: getattr(self, name) for name in names}}


def refuse_other_features(features: object, what: str, *, needed: bool) -> None:
    """Refuse what is no feature map, and one where there are features already, or none at all."""
    if features is not None and not isinstance(features, Features):
        raise UsageError(
            "features must be HashedText(...), or a function of yours wrapped as "
            f"FunctionFeatures(function, dimension=..., name=...); got {features!r}."
        )
    if needed != (features is not None):
        raise UsageError(f"features must be given for {what}.")
    _refuse_learned(features)


def _refuse_learned(features: object) -> None:
    """Refuse features that were learned from judgments: a fit would hide what those paid."""
    promise = getattr(features, "guarantee", None)
    if promise is not None:
        raise PrivacyError(
            f"These features were learned from judgments that were promised {promise}, and what is "
            "fitted on them would not say so. Nothing was fitted. Use features that no judgment "
            "went into, or the reward itself."
        )


def caveats_of_reading(*, known: bool, read: bool, declared: bool) -> tuple[str, ...]:
    """Return the caveats of hiding texts from what computes on them; refuse what has read them."""
    if not (known or declared is True):  # "no" declares nothing
        raise PrivacyError(
            "It cannot be told from the model, tokenizer, reference, reward, judge or features "
            "that none of them had read these records before. If one had, they show in what comes "
            "out, and no epsilon covers that. Nothing was done and nothing was spent. Use one of "
            "other texts (HashedText has read none; sordino language tiny OTHER.jsonl makes a "
            "model); or, if you know that none of them has read these records, declare it "
            "(declare_unread=True, --declare-unread): the promise then says that it was declared."
        )
    if read:
        raise PrivacyError(
            "The model, tokenizer, reference, reward, judge or features have read texts of these "
            "records as they are: words of them show in their files, and no epsilon covers that. "
            "Nothing was done and nothing was spent. Use one of other texts (HashedText has read "
            "none; sordino language tiny OTHER.jsonl makes a model). Which texts they are is not "
            "said, as records are private."
        )
    return ("texts-declared",) if declared is True else ()  # decided by no record


def caveats_of_features(features: Features | None, private: object = None) -> tuple[str, ...]:
    """Return the caveats of features where whole records are hidden; refuse what has read them."""
    # Hashed words are a public rule, and a sentence model may say what it has read. What a function
    # of the user was made from nobody knows but the user.
    if isinstance(features, Intercept):
        features = features.features
    if features is None or isinstance(features, HashedText):
        return ()
    told = getattr(features, "_has_read", None)
    found = {"known": False, "read": False} if told is None else told(private)
    declared = getattr(features, "declare_unread", False) is True
    return caveats_of_reading(declared=declared, **found)


def features_of_hidden(features: Features | None, private: object) -> Features | None:
    """Return features that read each text alone; refuse those that have read these before."""
    caveats_of_features(features, private)
    return cast("Features | None", getattr(features, "_alone", features))


def differences(
    features: Features,
    prompts: Sequence[Text],
    first: Sequence[Text],
    second: Sequence[Alternative],
) -> Matrix:
    """Return the features of the first answers minus those of the second, row by row."""
    # No row has a norm above 2L. Swapping first and second changes the sign and nothing else. An
    # absent answer has the features 0, but for an intercept.
    _refuse_learned(features)
    _same_length(prompts=prompts, first=first, second=second)
    together: Callable[..., Matrix] | None = getattr(features, "_differences", None)
    absent = any(isinstance(other, Absent) for other in second)
    if together is not None and (not absent or isinstance(features, Intercept)):
        return together(prompts, first, second)  # of our own maps, which read each prompt once
    given = features.transform(prompts, first)
    return given if absent else given - features.transform(prompts, cast("Any", second))


class UnreadClass:
    """The rewards of a finite class, as a file names them: they score nothing."""

    feature_bound = 1.0

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Hold the names; DataError where there are none."""
        given = settings.get("names")
        self.names: list[str] = given if isinstance(given, list) else []
        self._settings, texts = dict(settings), all(isinstance(name, str) for name in self.names)
        if not texts or not self.names or self.names != sorted({*self.names}):
            raise DataError("The names of a class of rewards are missing or malformed.")

    @property
    def dimension(self) -> int:
        """Return how many there are."""
        return len(self.names)

    def transform(self, prompts: Sequence[Text], answers: Sequence[Text]) -> Matrix:
        """Refuse to score."""
        del prompts, answers
        raise UsageError(
            "This reward is one of a finite class, of which its file holds the names alone. "
            "Nothing was scored. Give the class again: sordino choose --class FILE; in Python, "
            "features=sordino.FiniteRewards.read(FILE)."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what the file says."""
        return self._settings


def features_from_dict(
    settings: Mapping[str, Any], *, features: Features | None = None
) -> Features:
    """Return the feature map that ``to_dict`` described."""
    kind = settings.get("kind") if isinstance(settings, Mapping) else None
    if features is not None:
        if not isinstance(features, Features):
            raise UsageError(f"features must be a feature map, got {type(features).__name__}.")
        own, stored = features.to_dict(), settings if isinstance(settings, Mapping) else {}
        # Where there is a digest, names may differ.
        compared = [name for name in sorted(own) if name != "name" or not own.get("digest")]
        differing = [name for name in compared if own[name] != stored.get(name)]
        if differing or not set(stored) <= set(own):
            raise DataError(
                f"These are not the features of the file: {', '.join(differing) or 'its kind'} "
                "would differ. Nothing was loaded. Give the features that the reward was fitted "
                "with."
            )
        return features
    if kind == "intercept" and isinstance(settings.get("families"), list):
        alone = features_from_dict(settings["features"])
        with suppress(TypeError, UsageError):
            return Intercept(alone, families=tuple(settings["families"]))
    if kind == "sentence-embeddings":
        raise UsageError(
            "These features need a sentence model, which no file of a reward holds. Pass "
            "features=sordino.language.SentenceEmbeddings(...) with the folder of the model."
        )
    if kind == CLASS:
        return UnreadClass(settings)
    if kind == "function":
        raise UsageError(
            "These features are a function of your own, which no file of a reward holds. Pass "
            "features=sordino.FunctionFeatures(...) with it."
        )
    if kind != "hashed-text":
        raise DataError("The features are of an unknown kind: known are 'hashed-text', 'function'.")
    given = {name: value for name, value in settings.items() if name != "kind"}
    with suppress(TypeError, UsageError):  # the message below says it without quoting the file
        return HashedText(**given)
    raise DataError(f"The settings do not describe features of kind {kind!r}.")


def usable_dimension(name: str, value: object) -> int:
    """Return a number of hashed features; refuse more than a reward is kept and fitted for."""
    if (dimension := integer(name, value, at_least=1)) <= _MOST:
        return dimension
    raise UsageError(
        f"{name} must be at most {_MOST}, got {dimension}: a reward keeps one number for each "
        "feature, and every pass of its fit goes over all of them. Nothing was done. Give fewer."
    )


def usable_bound(name: str, value: object) -> float:
    """Return a bound on norms; refuse one whose square would leave the range of floats."""
    bound = positive(name, value)
    if not _SMALLEST <= bound <= 1 / _SMALLEST:
        raise UsageError(f"{name} must be within 1e-100 and 1e100, got {value!r}.")
    return bound


def _same_length(**sides: Sequence[Alternative]) -> None:
    for name, side in sides.items():
        if isinstance(side, str) or not hasattr(side, "__len__"):
            found = "one text" if isinstance(side, str) else type(side).__name__
            raise DataError(f"{name} must be a sequence of texts, got {found}.")
    if len({len(side) for side in sides.values()}) > 1:
        found = ", ".join(f"{len(side)} {name}" for name, side in sides.items())
        raise DataError(f"Each prompt needs its answers, got {found}.")


def _flattened(**sides: Sequence[Text]) -> list[list[str]]:
    """Return sequences of one length, each text as one string."""
    _same_length(**sides)
    return [flatten(side, name) for name, side in sides.items()]


def _chunks(sides: list[list[str]]) -> Iterator[list[list[str]]]:
    """Yield the same stretch of all sides, of about ``_CHUNK`` characters."""
    size: np.ndarray = reduce(np.add, [np.array([len(t) + 1 for t in side], int) for side in sides])
    cuts = np.flatnonzero(np.diff(np.cumsum(size) // _CHUNK)) + 1
    bounds = [0, *cuts.tolist(), len(size)]
    for start, stop in pairwise(bounds):
        if start < stop:
            yield [side[start:stop] for side in sides]


def clipped_rows(rows: Float[np.ndarray, "n d"], bound: float) -> Float[np.ndarray, "n d"]:
    """Return x·min(1, L/‖x‖) for each row, also where ‖x‖² would overflow."""
    largest = np.maximum(np.abs(rows).max(axis=1, keepdims=True), np.finfo(float).tiny)
    unit = rows / largest
    norm = np.maximum(1.0, np.sqrt((unit * unit).sum(axis=1, keepdims=True)))
    limit = bound * _INSIDE
    return np.where(largest > limit / norm, unit * (limit / norm), rows)
