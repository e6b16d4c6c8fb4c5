"""Words of many texts at once, as numbers that are the same on every machine.

Nothing here is fitted: a word's number depends on its own bytes and on constants only. No
vocabulary outlives a call, so no word of a private text stays in memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse
from jaxtyping import Bool, Float, Int, UInt64

from sordino.errors import DataError

from .records import Text

__all__ = ["FLAGS", "Numbers", "Tokens", "flatten", "hashed_words", "tokenize"]

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

FLAGS = {
    "first": "i i'm i've i'd i'll im me my mine myself",
    "you": "you you're you've you'd you'll your yours yourself",
    "cannot": "can't cannot cant don't dont couldn't won't not am sorry afraid unable unsure",
    "regret": "sorry unfortunately unable cannot apologize",
    "hedge": "maybe perhaps might probably possibly could guess",
    "asking": "what do are can could is did have which where how why who when does would",
    "agreeing": "sure yes yeah here certainly absolutely great of okay ok",
    "denying": "no nope never not",
    "figure": "",
}
"""Small public lists of English words; ``figure`` marks words that start with a digit."""

_BIT = {name: 1 << (32 + place) for place, name in enumerate(FLAGS)}
_END_BIT = 1 << 63  # a flag and not a number: a word could be made to have any number


def _flagged() -> dict[bytes, int]:
    """Return the flags of each listed word as bits above the lowest 32."""
    table = {_END.encode(): _END_BIT}
    for name, words in FLAGS.items():
        for word in words.split():
            table[word.encode()] = table.get(word.encode(), 0) | _BIT[name]
    return table


_LISTED = _flagged()


class Numbers(dict[bytes, int]):
    """Word to number: CRC-32 in the low half, flags above; forgets everything when full."""

    def __missing__(self, word: bytes) -> int:
        """Return and remember the number of a word that is new."""
        number = zlib.crc32(word) | _LISTED.get(word, 0)
        if b"0" <= word[:1] <= b"9":
            number |= _BIT["figure"]
        if len(self) >= _CACHED:
            self.clear()
        self[word] = number
        return number


@dataclass(frozen=True)
class Tokens:
    """The words of n texts in a row, each text followed by one end mark.

    Attributes:
        numbers: CRC-32 of each word in the low 32 bits, its flags above.
        ends: Where the end mark of each text stands.
    """

    numbers: UInt64[np.ndarray, " m"]
    ends: Int[np.ndarray, " n"]

    @property
    def starts(self) -> Int[np.ndarray, " n"]:
        """Return where each text begins."""
        return np.append(0, self.ends[:-1] + 1)[: len(self.ends)]

    @property
    def lengths(self) -> Float[np.ndarray, " n"]:
        """Return the number of words of each text."""
        length: np.ndarray = self.ends - self.starts
        return length.astype(np.float64)

    @property
    def keyed(self) -> UInt64[np.ndarray, " m"]:
        """Return each word's number (flags left out) under the row of its text."""
        rows = np.arange(len(self.ends), dtype=np.uint64) << _HALF
        key: np.ndarray = np.repeat(rows, self.ends - self.starts + 1) | (self.numbers & _LOW)
        return key

    def flag(self, name: str) -> Bool[np.ndarray, " m"]:
        """Return at each position whether its word is on a list of ``FLAGS``."""
        on_list: np.ndarray = (self.numbers & np.uint64(_BIT[name])) != 0
        return on_list

    def count(self, marked: Bool[np.ndarray, " m"]) -> Float[np.ndarray, " n"]:
        """Return how many positions of each text are marked."""
        total = np.append(0.0, np.cumsum(marked, dtype=np.float64))
        inside: np.ndarray = total[self.ends] - total[self.starts]
        return inside


def flatten(texts: Sequence[Text], name: str) -> list[str]:
    """Return each text as one string; one message is its content, several say who speaks.

    Raises:
        DataError: A text is neither a string nor a list of messages; the message gives its
            index only.
    """
    if isinstance(texts, str):
        raise DataError(f"{name} must be a sequence of texts, got one text.")
    return [
        text if type(text) is str else _joined(text, name, index)
        for index, text in enumerate(texts)
    ]


def _joined(text: Text, name: str, index: int) -> str:
    """Return one text that is not a plain string as a string."""
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


def tokenize(texts: Sequence[str], numbers: Numbers) -> Tokens:
    """Return the words of the texts, in lower case, without punctuation.

    Args:
        texts: n texts in any language; words are told apart by spaces and punctuation.
        numbers: The memory of one call; it changes the speed and not the result.
    """
    lower = [text.lower() for text in texts]
    whole = _SEPARATOR.join([*lower, ""])
    if whole.count(_END) != len(texts):
        whole = _SEPARATOR.join([*(text.replace(_END, " ") for text in lower), ""])
    for mark, plain in _MARKS:
        whole = whole.replace(mark, plain)
    words = whole.encode("utf-8", "surrogatepass").translate(_SPACED).split()
    found = np.fromiter(map(numbers.__getitem__, words), np.uint64, len(words))
    return Tokens(found, np.flatnonzero(found >= np.uint64(_END_BIT)))


def _mixed(number: UInt64[np.ndarray, "m 2"]) -> UInt64[np.ndarray, "m 2"]:
    """Return 64 well-mixed bits for each 64-bit number.

    Source:
        A. Appleby, MurmurHash3 (public domain), ``fmix64``.
    """
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        number = (number ^ (number >> _FOLD)) * np.uint64(factor)
    mixed: np.ndarray = number ^ (number >> _FOLD)
    return mixed


def hashed_words(tokens: Tokens, width: int) -> scipy.sparse.csr_array:
    """Return words and pairs of neighboring words, hashed with signs into rows of norm 1 or 0.

    A bucket holds sign(c)·√|c| / √Σ|c| for signed counts c, so that a repeated word counts less
    than the same number of different words. The beginning and the end of a text pair with its
    first and last word.

    Source:
        Weinberger et al., Feature hashing for large scale multitask learning (2009), definition 1.

    Args:
        tokens: The words of n texts.
        width: Number of buckets, at least 1.
    """
    low = tokens.numbers & _LOW
    before = np.concatenate([low[tokens.ends[:1]], low[:-1]])
    bits = _mixed(np.stack([low, ((before + np.uint64(1)) << _HALF) | low], axis=1))
    values = 1.0 - 2.0 * (bits & np.uint64(1)).astype(np.float64)
    values[tokens.ends, 0] = 0.0
    buckets = ((bits >> _HALF) * np.uint64(width)) >> _HALF
    bounds = np.concatenate([[0], 2 * (tokens.ends + 1)])
    return _damped(
        scipy.sparse.csr_array(
            (values.ravel(), buckets.ravel().astype(np.int32), bounds.astype(np.int32)),
            shape=(len(tokens.ends), width),
        )
    )


def _damped(counts: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """Return signed counts c as sign(c)·√|c| / √Σ|c|, row by row, without explicit zeros."""
    counts.sum_duplicates()
    counts.eliminate_zeros()
    size = np.abs(counts.data)  # whole numbers: their sums are exact in any order
    total = np.concatenate([[0.0], np.cumsum(size)])[counts.indptr]
    share = size / np.repeat(np.diff(total), np.diff(counts.indptr))
    counts.data = np.sign(counts.data) * np.sqrt(share)
    return counts
