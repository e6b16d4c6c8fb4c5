"""The shape of an answer in a few bounded numbers: length, questions, lists, refusals.

Every number is a fixed public function of one prompt and one answer. Only +, −, ×, ÷ and √ are
used, which IEEE 754 rounds the same everywhere: a row is the same to the last bit on every
machine, whatever other rows stand beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ._tokens import Tokens

__all__ = ["SIGNALS", "shape_signals"]

SIGNALS: dict[str, float] = {
    "words, saturating at 20": 0.6,
    "words, saturating at 60": 0.35,
    "words, saturating at 150": 0.2,
    "root of words": 0.3,
    "commas": 0.3,
    "share of questions": 0.2,
    "shared words": 0.4,
    "refusals": 0.1,
    "sentences": 0.45,
    "brevity": 0.25,
    "questions only": 0.1,
    "ends with a question": 0.25,
    "speaks of itself": 0.15,
    "opens with a question": 0.1,
    "word length": 0.5,
    "figures": 0.1,
    "speaks to the reader": 0.2,
    "cut off": 0.1,
    "list items": 0.05,
    "lines": 0.05,
    "exclamations": 0.1,
    "hedges": 0.1,
    "opens by agreeing": 0.1,
    "opens by denying": 0.0,
    "links": 0.0,
    "code": 0.0,
    "asides": 0.0,
    "colons": 0.05,
}
"""Each signal, most telling first, with the typical value that is subtracted: a public constant."""

_TYPICAL = np.array(list(SIGNALS.values()))[:, None]
_ITEM = re.compile(r"^[ \t]{0,8}(?:[-*•]|\d{1,3}[.)])[ \t]", re.MULTILINE)
_OPENINGS = {"with a question": "asking", "by agreeing": "agreeing", "by denying": "denying"}
_CLOSED = tuple(".!?:)]}\"'”’…*`。！？")

_Amounts = Float[np.ndarray, " n"]


def shape_signals(texts: Sequence[str], words: Tokens, asked: Tokens) -> Float[np.ndarray, "s n"]:
    """Return the signals of each answer, one row for each of ``SIGNALS``, centered.

    Each lies in [−1, 1] and is independent of the data: of everything but this prompt and this
    answer.

    Args:
        texts: The n answers.
        words: Their words.
        asked: The words of their n prompts.
    """
    found = {
        **_lengths(texts, words),
        **_questions(texts),
        **_layout(texts),
        **_manner(words),
        "shared words": _saturated(words.count(_in_prompt(words, asked)), 3),
    }
    signals: np.ndarray = np.stack([found[name] for name in SIGNALS]) - _TYPICAL
    return signals


def _lengths(texts: Sequence[str], words: Tokens) -> dict[str, _Amounts]:
    """Return how much is said: steep for short answers, flat for long ones."""
    n = words.lengths
    return {
        "words, saturating at 20": _saturated(n, 20),
        "words, saturating at 60": _saturated(n, 60),
        "words, saturating at 150": _saturated(n, 150),
        "root of words": np.sqrt(np.minimum(n, 400) / 400),
        "brevity": 8 / (8 + n),
        "word length": np.minimum(1, _column(map(len, texts)) / (10 * (n + 1))),
    }


def _questions(texts: Sequence[str]) -> dict[str, _Amounts]:
    """Return how much of each text is question, exclamation or statement."""
    asking, calling = _marks(texts, "?"), _marks(texts, "!")
    sentences = np.maximum(1.0, _marks(texts, ".") + calling + asking)
    ends = [text.rstrip() for text in texts]
    return {
        "share of questions": np.minimum(1.0, asking / sentences),
        "questions only": (asking >= sentences).astype(np.float64),
        "ends with a question": _column(end.endswith("?") for end in ends),
        "cut off": _column(not end.endswith(_CLOSED) for end in ends),
        "sentences": _saturated(sentences, 3),
        "exclamations": _saturated(calling, 1),
    }


def _layout(texts: Sequence[str]) -> dict[str, _Amounts]:
    """Return how each text is laid out."""
    items = _column(len(_ITEM.findall(text)) if "\n" in text else 0 for text in texts)
    return {
        "commas": _saturated(_marks(texts, ","), 3),
        "list items": _saturated(items, 3),
        "lines": _saturated(_marks(texts, "\n"), 3),
        "links": np.minimum(1.0, _marks(texts, "http") + _marks(texts, "www.")),
        "code": np.minimum(1.0, _marks(texts, "`")),
        "asides": _saturated(_marks(texts, "("), 2),
        "colons": _saturated(_marks(texts, ":"), 2),
    }


def _manner(words: Tokens) -> dict[str, _Amounts]:
    """Return who speaks to whom, and whether the answer is an answer."""
    speaker = words.flag("first")
    refusal = words.flag("cannot") & np.append([False], speaker[:-1])  # "I can't", "I'm not"
    some = words.lengths / 5 + 1
    opening = {
        f"opens {how}": words.flag(name)[words.starts].astype(np.float64)
        for how, name in _OPENINGS.items()
    }
    return opening | {
        "refusals": _saturated(words.count(refusal | words.flag("regret")), 1),
        "speaks of itself": np.minimum(1.0, words.count(speaker) / some),
        "speaks to the reader": np.minimum(1.0, words.count(words.flag("you")) / some),
        "figures": _saturated(words.count(words.flag("figure")), 3),
        "hedges": _saturated(words.count(words.flag("hedge")), 1),
    }


def _saturated(count: _Amounts, half: int) -> _Amounts:
    """Return count / (count + half): 0 for none, 1/2 at ``half``, below 1 for any number."""
    saturated: np.ndarray = count / (count + half)
    return saturated


def _column(values: Iterable[Any]) -> _Amounts:
    """Return one number for each text."""
    return np.fromiter(values, np.float64)


def _marks(texts: Sequence[str], mark: str) -> _Amounts:
    """Return how often a mark stands in each text."""
    return _column([text.count(mark) for text in texts])


def _in_prompt(words: Tokens, asked: Tokens) -> Bool[np.ndarray, " m"]:
    """Return at each position whether its word stands in the prompt of its text."""
    known, said = np.sort(asked.keyed), words.keyed
    place = np.minimum(np.searchsorted(known, said), len(known) - 1)
    shared: np.ndarray = known[place] == said
    return shared
