"""Public rules that put two answers in an order: functions of their texts, and of nothing else.

An order that such a rule explains tells nothing about a label, whatever people like. People
prefer longer answers, so the order by length predicts labels; it is no leak. The rules are
therefore exempt from the attacks on channels, and covariates of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Integer

from sordino.auditing.releases.released import UNKNOWN, Released

__all__ = ["CANONICAL", "OrderRule", "in_canonical_order", "order_rules", "reproduces", "rule_bits"]

OrderRule: TypeAlias = Callable[[str, str], Any]
"""From a prompt and one answer to what the answer is sorted by; equal values are a tie."""

CANONICAL = "canonical hash order"
"""Name of the rule of this library; it is computed with the file and always tried."""

AGREEMENT = 0.99
_SEPARATORS = {"": "", " after a line feed": "\n", " after a null": "\0", " after U+241E": "\u241e"}


def _bytes(text: str) -> bytes:
    """Return a text in UTF-8; a lone surrogate stays what it is."""
    return text.encode("utf-8", "surrogatepass")


def _hash_of_answer(algorithm: str) -> OrderRule:
    """Return the rule that sorts by a hash of the answer alone."""
    return lambda _, answer: hashlib.new(algorithm, _bytes(answer), usedforsecurity=False).digest()


def _hash_of_both(algorithm: str, separator: str) -> OrderRule:
    """Return the rule that sorts by a hash of prompt and answer."""
    return lambda prompt, answer: hashlib.new(
        algorithm, _bytes(prompt + separator + answer), usedforsecurity=False
    ).digest()


def _by_texts() -> dict[str, OrderRule]:
    """Return the rules that a person would think of."""
    return {
        "alphabetical": lambda _, answer: answer,
        "alphabetical, cases alike": lambda _, answer: answer.casefold(),
        "alphabetical without spaces around": lambda _, answer: answer.strip(),
        "characters": lambda _, answer: len(answer),
        "words": lambda _, answer: len(answer.split()),
        "bytes": lambda _, answer: len(_bytes(answer)),
        "lines": lambda _, answer: answer.count("\n"),
        "characters, then alphabetical": lambda _, answer: (len(answer), answer),
    }


def order_rules() -> Mapping[str, OrderRule]:
    """Return the public rules that are tried, by name; the reverse of each is tried too.

    To add a rule, pass ``{**order_rules(), "mine": rule}``. It must not know labels: a rule that
    does would excuse a leak.

    Example:
        >>> order_rules()["words"]("prompt", "two words")
        2
    """
    hashes: dict[str, OrderRule] = {}
    for algorithm in ("sha256", "md5"):
        hashes[f"{algorithm} of the answer"] = _hash_of_answer(algorithm)
        for place, separator in _SEPARATORS.items():
            name = f"{algorithm} of prompt and answer{place}"
            hashes[name] = _hash_of_both(algorithm, separator)
    return MappingProxyType(_by_texts() | hashes)


def rule_bits(
    released: Released, rules: Mapping[str, OrderRule] | None = None
) -> dict[str, Integer[np.ndarray, " n"]]:
    """Return, for every rule, 1 where the answer written first comes first by it.

    Args:
        released: The file.
        rules: The rules; :func:`order_rules` if None. The canonical order is always added.

    Returns:
        By name of the rule: 1, or 0 where the other comes first, or ``UNKNOWN`` where it ties.
    """
    tied = np.array([a == b for a, b in zip(released.first, released.second, strict=True)], bool)
    bits = {CANONICAL: np.where(tied, UNKNOWN, 1 - released.swapped.astype(np.int64))}
    for name, rule in (order_rules() if rules is None else rules).items():
        bits[name] = _bits(released, rule)
    return bits


def _bits(released: Released, rule: OrderRule) -> Integer[np.ndarray, " n"]:
    """Return the bits of one rule."""
    bits = np.full(len(released), UNKNOWN)
    rows = zip(released.prompts, released.first, released.second, strict=True)
    for index, (prompt, first, second) in enumerate(rows):
        one, other = rule(prompt, first), rule(prompt, second)
        if one != other:
            bits[index] = int(one < other)
    return bits


def in_canonical_order(
    bits: Integer[np.ndarray, " n"], swapped: Bool[np.ndarray, " n"]
) -> Integer[np.ndarray, " n"]:
    """Return bits about the order written as bits about the canonical order, or the reverse.

    Example:
        >>> in_canonical_order(np.array([1, 1, UNKNOWN]), np.array([True, False, True])).tolist()
        [0, 1, -1]
    """
    return np.where(bits == UNKNOWN, UNKNOWN, bits ^ swapped)


def reproduces(bits: Integer[np.ndarray, " n"], guesses: Integer[np.ndarray, " n"]) -> bool:
    """Return whether one says what the other says, or the reverse, in 99 % of the rows or more.

    A row of which a rule says nothing counts against it.
    """
    known = bits != UNKNOWN
    same, reverse = known & (bits == guesses), known & (bits == 1 - guesses)
    return len(bits) > 0 and bool(max(same.mean(), reverse.mean()) >= AGREEMENT)
