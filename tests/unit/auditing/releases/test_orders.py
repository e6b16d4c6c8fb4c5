from __future__ import annotations

import hashlib

import numpy as np
import pytest

from sordino.auditing.releases.reading import UNKNOWN, Released
from sordino.auditing.releases.recipes import (
    _ORDER_RULES,
    CANONICAL,
    in_canonical_order,
    reproduces,
    rule_bits,
)


def file_of(*rows: tuple[str, str, str]) -> Released:
    prompts, first, second = zip(*rows, strict=True)
    return Released(
        layout="answer",
        prompts=prompts,
        first=first,
        second=second,
        answers=np.ones(len(rows), dtype=np.int64),
        epsilon=1.0,
    )


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("alphabetical", [1, 0, UNKNOWN, 1]),
        ("alphabetical, cases alike", [0, 0, UNKNOWN, 1]),
        ("characters", [UNKNOWN, 1, UNKNOWN, 0]),
        ("words", [UNKNOWN, 1, UNKNOWN, 0]),
        ("bytes", [UNKNOWN, 0, UNKNOWN, 0]),
        ("lines", [UNKNOWN, UNKNOWN, UNKNOWN, 0]),
        ("characters, then alphabetical", [1, 1, UNKNOWN, 0]),
    ],
)
def test_a_rule_says_which_answer_comes_first(rule, expected):
    rows = [("p", "B", "a"), ("p", "€", "a b"), ("p", "x", "x"), ("p", "a\nb", "c")]
    if rule == "bytes":
        rows[1] = ("p", "€€", "a b")
    assert rule_bits(file_of(*rows))[rule].tolist() == expected


@pytest.mark.parametrize("rule", _ORDER_RULES)
def test_every_rule_turns_with_the_answers(rule):
    rows = [("p", f"{'word ' * (i % 5)}{i}", f"{'x' * (i % 7)}\n {i * i}") for i in range(40)]
    one = rule_bits(file_of(*rows))[rule]
    other = rule_bits(file_of(*[(p, b, a) for p, a, b in rows]))[rule]
    assert np.array_equal(in_canonical_order(one, np.ones(40, dtype=bool)), other)
    assert set(one[one != UNKNOWN].tolist()) == {0, 1} or rule == "lines"


def test_the_canonical_order_is_always_tried(monkeypatch):
    monkeypatch.setattr("sordino.auditing.releases.recipes._ORDER_RULES", {})
    file = file_of(*[("p", f"a{i}", f"b{i}") for i in range(50)], ("p", "same", "same"))
    bits = rule_bits(file)
    assert list(bits) == [CANONICAL]
    assert np.array_equal(bits[CANONICAL][:50], 1 - file.swapped[:50])
    assert bits[CANONICAL][50] == UNKNOWN


def test_a_hash_of_prompt_and_answer_is_what_it_says():
    def digest(text: str) -> bytes:
        return hashlib.sha256(text.encode()).digest()

    bits = rule_bits(file_of(("p", "a", "b")))
    assert bits["sha256 of the answer"][0] == (digest("a") < digest("b"))
    assert bits["sha256 of prompt and answer after a line feed"][0] == (
        digest("p\na") < digest("p\nb")
    )


def test_a_rule_reproduces_what_it_says_in_99_of_100_rows_and_its_reverse():
    bits = np.ones(200, dtype=np.int64)
    for wrong, expected in ((0, True), (2, True), (3, False)):
        guesses = bits.copy()
        guesses[:wrong] = 0
        assert reproduces(bits, guesses) is expected
        assert reproduces(bits, 1 - guesses) is expected


def test_a_tie_counts_against_a_rule():
    bits = np.array([1] * 97 + [UNKNOWN] * 3)
    assert not reproduces(bits, np.ones(100, dtype=np.int64))
    silent = np.full(100, UNKNOWN)
    assert not reproduces(silent, silent)
    assert not reproduces(np.array([], dtype=np.int64), np.array([], dtype=np.int64))


def test_an_answer_with_a_lone_surrogate_can_be_ordered():
    assert _ORDER_RULES["bytes"]("p", "\ud800") == 3
    assert _ORDER_RULES["md5 of the answer"]("p", "\ud800")
