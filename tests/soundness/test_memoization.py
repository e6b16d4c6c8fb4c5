"""Two answers of one question: what each way of repeating costs, exactly."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest

from sordino.auditing.exact import exact_epsilon, label_neighbors
from sordino.mechanisms.randomized_response import RandomizedResponse

EPSILON = 0.1
ROWS = json.loads((Path(__file__).parents[1] / "data" / "core.json").read_text())[
    "memoization_realized_epsilon"
]
FLIP = Fraction(RandomizedResponse(EPSILON).threshold, 2**64)

Strategy = Callable[[tuple[int, int], tuple[int, int, int]], tuple[int, int]]


def same_coin(labels, coins):
    return labels[0] ^ coins[0], labels[1] ^ coins[0]


def label_keyed_coin(labels, coins):
    return tuple(label ^ coins[label] for label in labels)


def stored_answer(labels, coins):
    first = labels[0] ^ coins[0]
    return first, first


def independent_coins(labels, coins):
    return labels[0] ^ coins[0], labels[1] ^ coins[1]


def weighted_coins() -> Iterator[tuple[tuple[int, int], Fraction]]:
    for coins in product((0, 1), repeat=2):
        yield coins, (FLIP if coins[0] else 1 - FLIP) * (FLIP if coins[1] else 1 - FLIP)


def channel(strategy: Strategy) -> dict:
    table = {}
    for labels in product((0, 1), repeat=2):
        row: Counter = Counter()
        for coins, chance in weighted_coins():
            row[strategy(labels, coins)] += chance
        table[labels] = dict(row)
    return table


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("same_coin", same_coin),
        ("label_keyed_coin", label_keyed_coin),
        ("stored_answer", stored_answer),
        ("independent_coins", independent_coins),
    ],
)
def test_each_way_of_repeating_costs_what_was_stated(name, strategy):
    found = float(exact_epsilon(channel(strategy), label_neighbors(2)))
    assert found == pytest.approx(float(ROWS[name]), rel=1e-12)


def test_a_coin_shared_by_two_persons_on_one_question_protects_neither():
    assert float(exact_epsilon(channel(same_coin), label_neighbors(2))) == float("inf")
