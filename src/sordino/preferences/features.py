"""From a prompt and an answer to a bounded vector, independent of the data.

A feature map is public: it is fixed before any data is seen and learns nothing from it (no
vocabulary, no document frequencies, no standardization). What is private is only which answer
was preferred, or the rows themselves, so every row is clipped on its own and its norm bound
holds for every text that can be written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import reduce
from itertools import pairwise
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import scipy.sparse
from jaxtyping import Float

from sordino._validate import finite_array, integer, non_negative, positive
from sordino.errors import DataError, PrivacyError, UsageError

from ._signals import SIGNALS, shape_signals
from ._tokens import Numbers, Tokens, flatten, hashed_words, tokenize
from .records import Text

__all__ = [
    "Features",
    "FunctionFeatures",
    "HashedText",
    "caveats_of_features",
    "caveats_of_reading",
    "clipped_rows",
    "differences",
    "features_from_dict",
    "features_of_hidden",
    "usable_dimension",
    "usable_feature_bound",
    "usual_features",
]

Matrix: TypeAlias = scipy.sparse.csr_array | Float[np.ndarray, "n d"]
"""n rows of d features, sparse or dense."""

FeatureFunction: TypeAlias = Callable[[Sequence[Text], Sequence[Text]], Any]
"""Prompts and answers in, an array of shape (n, d) out."""

_INSIDE = 1 - 2.0**-40  # rows are clipped to this share of the bound: rounding stays within it
_SMALLEST = 1e-100
_MOST = 2**20  # hashed features; words and word pairs of English are no more
_SHAPE_SCALE = 0.4  # of a signal's full range; typical rows then have norm 0.5, few are clipped
_MANY = 20_000  # judgments from which words can be learned
_CHUNK = 1 << 20  # characters that are worked on at once, which bounds the memory


@runtime_checkable
class Features(Protocol):
    """A public map from a prompt and an answer to a vector of bounded norm."""

    @property
    def dimension(self) -> int:
        """Return d, the number of features."""
        ...

    @property
    def feature_bound(self) -> float:
        """Return L: no row of ``transform`` has a larger Euclidean norm, for any text."""
        ...

    def transform(self, prompts: Sequence[Text], answers: Sequence[Text]) -> Matrix:
        """Return one row for each prompt and answer; a row depends on nothing else."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values, with ``kind``."""
        ...


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
        """Refuse settings for which the bound could not hold."""
        object.__setattr__(self, "dimension", usable_dimension("dimension", self.dimension))
        object.__setattr__(self, "feature_bound", usable_feature_bound(self.feature_bound))
        object.__setattr__(self, "word_norm", non_negative("word_norm", self.word_norm))
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
        return {
            "kind": "hashed-text",
            "dimension": self.dimension,
            "feature_bound": self.feature_bound,
            "word_norm": self.word_norm,
        }

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
        """Return the parts below each other."""
        return scipy.sparse.vstack(
            [scipy.sparse.csr_array((0, self.dimension)), *parts], format="csr"
        )

    def _rows(
        self, numbers: Numbers, prompts: list[str], *sides: list[str]
    ) -> list[scipy.sparse.csr_array]:
        """Return the rows of each list of answers to the same prompts."""
        asked = tokenize(prompts, numbers)
        kept = self.signals
        rows = []
        for answers in sides:
            words = tokenize(answers, numbers)
            shape = _SHAPE_SCALE * shape_signals(answers, words, asked)[:kept]
            rows.append(self._joined(shape, self._hashed(words, self.dimension - kept)))
        return rows

    def _hashed(self, words: Tokens, width: int) -> scipy.sparse.csr_array:
        """Return hashed words; nothing where they weigh nothing."""
        if self.word_norm == 0:
            return scipy.sparse.csr_array((len(words.ends), width))
        return hashed_words(words, width)

    def _joined(
        self, shape: Float[np.ndarray, "s n"], hashed: scipy.sparse.csr_array
    ) -> scipy.sparse.csr_array:
        """Return shape and words side by side, each row clipped to norm at most L."""
        # Added one signal after another: a sum over an axis may be rounded otherwise for n = 1.
        square = reduce(np.add, shape * shape, np.full(shape.shape[1], self.word_norm**2))
        scale = self.feature_bound * _INSIDE / np.maximum(1.0, np.sqrt(square))
        hashed.data *= np.repeat(self.word_norm * scale, np.diff(hashed.indptr))
        return scipy.sparse.hstack([scipy.sparse.csr_array((shape * scale).T), hashed], "csr")


def usual_features(n: int | None) -> HashedText:
    """Return the features that so many private judgments can teach the weights of.

    A word is in few answers. Fewer than 20,000 judgments under noise say nothing about single
    buckets of words, whatever epsilon is between 0.5 and 4, and hiding records costs noise in
    each of them; the shape of answers is learned from some hundred. Only the number of judgments
    decides, and only where it is public.

    Args:
        n: How many judgments there are; None where that is private.

    Example:
        >>> usual_features(2_000).dimension, usual_features(50_000).dimension
        (28, 512)
    """
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

    function: FeatureFunction
    _: KW_ONLY
    dimension: int
    feature_bound: float = 1.0
    name: str
    declare_unread: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse settings for which the bound could not hold."""
        if not callable(self.function):
            raise UsageError("function must be callable with prompts and answers.")
        if not isinstance(self.name, str) or not self.name:
            raise UsageError(f"name must be a text that is not empty, got {self.name!r}.")
        object.__setattr__(self, "dimension", integer("dimension", self.dimension, at_least=1))
        object.__setattr__(self, "feature_bound", usable_feature_bound(self.feature_bound))

    def transform(
        self, prompts: Sequence[Text], answers: Sequence[Text]
    ) -> Float[np.ndarray, "n d"]:
        """Return one row for each prompt and answer, of norm at most L.

        Raises:
            DataError: The function returned another shape, or a row that is not finite; the
                message gives its index.
        """
        _same_length(prompts=prompts, answers=answers)
        rows = finite_array("The features", _regular(self.function(prompts, answers)), ndim=2)
        if rows.shape != (len(answers), self.dimension):
            raise DataError(
                f"The features must have shape {(len(answers), self.dimension)}, got {rows.shape}."
            )
        return clipped_rows(rows, self.feature_bound)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values; of the function only its name."""
        return {
            "kind": "function",
            "dimension": self.dimension,
            "feature_bound": self.feature_bound,
            "name": self.name,
        }


def refuse_learned(features: Any) -> None:
    """Refuse features that were learned from judgments: a fit on them would hide what those paid.

    Raises:
        PrivacyError: The features state a guarantee of their own.
    """
    promise = getattr(features, "guarantee", None)
    if promise is not None:
        raise PrivacyError(
            f"These features were learned from judgments that were promised {promise}, and what is "
            "fitted on them would not say so. Nothing was fitted. Use features that no judgment "
            "went into, or the reward itself."
        )


def caveats_of_reading(*, known: bool, read: bool, declared: bool) -> tuple[str, ...]:
    """Return the caveats of hiding texts from what computes on them; refuse what has read them.

    Args:
        known: Whether it is known that nothing else was read, and these texts can be told apart.
        read: Whether some of these texts were read.
        declared: Whether the user says that none of them was, which is a caveat.

    Raises:
        PrivacyError: One was read; or nobody knows, and nothing is declared.
    """
    if not (known or declared):
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
    return ("texts-declared",) if declared else ()  # decided by no record


def caveats_of_features(features: Features | None, private: Any = None) -> tuple[str, ...]:
    """Return the caveats of features where whole records are hidden; refuse what has read them.

    Hashed words are a public rule, and a sentence model may say what it has read. What a function
    of the user was made from nobody knows but the user.

    Args:
        features: As a fit takes them.
        private: Pairs or rankings of texts that are to be hidden; None to compare with none.

    Raises:
        PrivacyError: They have read these texts; or nobody knows, and nothing is declared.
    """
    if features is None or isinstance(features, HashedText):
        return ()
    told = getattr(features, "_has_read", None)
    found = {"known": False, "read": False} if told is None else told(private)
    declared = getattr(features, "declare_unread", False) is True
    return caveats_of_reading(declared=declared, **found)


def features_of_hidden(features: Features | None, private: Any) -> Features | None:
    """Return features that read each text alone; refuse those that have read these before.

    Raises:
        PrivacyError: See :func:`caveats_of_features`.
    """
    caveats_of_features(features, private)
    alone: Features | None = getattr(features, "_alone", features)
    return alone


def differences(
    features: Features, prompts: Sequence[Text], first: Sequence[Text], second: Sequence[Text]
) -> Matrix:
    """Return the features of the first answers minus those of the second, row by row.

    No row has a norm above 2L. Swapping first and second changes the sign and nothing else.

    Args:
        features: The public feature map.
        prompts: n prompts.
        first: An answer to each.
        second: Another answer to each.

    Raises:
        DataError: The lengths differ, or the features cannot be computed.
        PrivacyError: The features were learned from judgments.

    Example:
        >>> differences(HashedText(), ["What is a fugue?"], ["No idea."], ["No idea."]).nnz
        0
    """
    refuse_learned(features)
    _same_length(prompts=prompts, first=first, second=second)
    together: Callable[..., Matrix] | None = getattr(features, "_differences", None)
    if together is not None:  # of our own feature maps, which read each prompt once
        return together(prompts, first, second)
    return features.transform(prompts, first) - features.transform(prompts, second)


def features_from_dict(
    settings: Mapping[str, Any],
    *,
    function: FeatureFunction | None = None,
    features: Features | None = None,
) -> Features:
    """Return the feature map that ``to_dict`` described.

    Args:
        settings: What ``to_dict`` returned. Nothing in it is ever executed or imported.
        function: For kind ``function``: the function, which is not stored.
        features: The feature map itself, for kinds that settings cannot hold, such as a sentence
            model; it is checked against the settings.

    Raises:
        DataError: The kind is unknown, or the settings do not fit it or ``features``.
        UsageError: What is not stored was not given, or something was given that is stored.

    Example:
        >>> features_from_dict(HashedText(dimension=64).to_dict())
        HashedText(dimension=64, feature_bound=1.0, word_norm=0.15)
    """
    kind = settings.get("kind") if isinstance(settings, Mapping) else None
    if features is not None and function is None:
        return _same_features(features, settings)
    if kind == "sentence-embeddings":
        raise UsageError(
            "These features need a sentence model, which no file of a reward holds. Pass "
            "features=sordino.language.SentenceEmbeddings(...) with the folder of the model."
        )
    if kind not in ("hashed-text", "function"):
        raise DataError("The features are of an unknown kind: known are 'hashed-text', 'function'.")
    if (kind == "function") != (function is not None) or features is not None:
        raise UsageError("function= is needed for features of kind 'function', and only for them.")
    given = {name: value for name, value in settings.items() if name != "kind"}
    with suppress(TypeError, UsageError):  # the message below says it without quoting the file
        return HashedText(**given) if function is None else FunctionFeatures(function, **given)
    raise DataError(f"The settings do not describe features of kind {kind!r}.")


def _same_features(features: Features, settings: Any) -> Features:
    """Return features that the settings describe; where there is a digest, names may differ."""
    if not isinstance(features, Features):
        raise UsageError(f"features must be a feature map, got {type(features).__name__}.")
    own = features.to_dict()
    stored = settings if isinstance(settings, Mapping) else {}
    named = {"name"} if own.get("digest") else set()
    differing = [
        name for name in sorted(own) if own[name] != stored.get(name) and name not in named
    ]
    if differing or not set(stored) <= set(own):
        raise DataError(
            f"These are not the features of the file: {', '.join(differing) or 'its kind'} would "
            "differ. Nothing was loaded. Give the features that the reward was fitted with."
        )
    return features


def usable_dimension(name: str, value: Any) -> int:
    """Return a number of hashed features; refuse more than a reward is kept and fitted for.

    Raises:
        UsageError: It is no whole number, or out of range.
    """
    if (dimension := integer(name, value, at_least=1)) <= _MOST:
        return dimension
    raise UsageError(
        f"{name} must be at most {_MOST}, got {dimension}: a reward keeps one number for each "
        "feature, and every pass of its fit goes over all of them. Nothing was done. Give fewer."
    )


def usable_feature_bound(value: Any) -> float:
    """Return L; refuse one for which squared norms would leave the range of floats."""
    bound = positive("feature_bound", value)
    if not _SMALLEST <= bound <= 1 / _SMALLEST:
        raise UsageError(f"feature_bound must be within 1e-100 and 1e100, got {value!r}.")
    return bound


def _same_length(**sides: Sequence[Text]) -> None:
    """Refuse sequences of different lengths, and single texts."""
    for name, side in sides.items():
        if isinstance(side, str):
            raise DataError(f"{name} must be a sequence of texts, got one text.")
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


def _regular(value: Any) -> np.ndarray:
    """Return an array of what a function returned; refuse rows of different lengths."""
    array = None
    with suppress(ValueError):  # its message is not ours to vouch for
        array = np.asarray(value)
    if array is None:
        raise DataError("The features must be an array, got rows of different lengths.")
    return array


def clipped_rows(rows: Float[np.ndarray, "n d"], bound: float) -> Float[np.ndarray, "n d"]:
    """Return x·min(1, L/‖x‖) for each row, also where ‖x‖² would overflow."""
    largest = np.maximum(np.abs(rows).max(axis=1, keepdims=True), np.finfo(float).tiny)
    unit = rows / largest
    norm = np.maximum(1.0, np.sqrt((unit * unit).sum(axis=1, keepdims=True)))
    limit = bound * _INSIDE
    return np.where(largest > limit / norm, unit * (limit / norm), rows)
