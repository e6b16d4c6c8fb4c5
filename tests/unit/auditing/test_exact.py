from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import mpmath
import pytest

from sordino.auditing.exact import exact_epsilon, label_neighbors
from sordino.errors import UsageError


def coin(keep: Fraction) -> dict:
    return {0: {0: keep, 1: 1 - keep}, 1: {0: 1 - keep, 1: keep}}


def test_epsilon_of_a_coin_is_its_log_odds_to_fifty_digits():
    with mpmath.workdps(60):
        expected = mpmath.nstr(mpmath.log(mpmath.mpf(7) / 3), 48)
    found = exact_epsilon(coin(Fraction(7, 10)), [(0, 1), (1, 0)])
    assert str(found).startswith(expected[:-1])


def test_an_output_that_only_one_input_can_give_is_an_infinite_loss():
    table = {0: {"a": Fraction(1)}, 1: {"a": Fraction(1, 2), "b": Fraction(1, 2)}}
    assert exact_epsilon(table, [(1, 0)]) == Decimal("Infinity")
    assert (
        exact_epsilon(table, [(0, 1)]).compare_total(exact_epsilon(coin(Fraction(2, 3)), [(0, 1)]))
        == 0
    )


def test_an_output_of_probability_zero_counts_as_impossible():
    table = {0: {"a": Fraction(1), "b": Fraction(0)}, 1: {"a": Fraction(1)}}
    assert exact_epsilon(table, [(0, 1), (1, 0)]) == 0


def test_rows_must_be_probabilities():
    with pytest.raises(UsageError, match="sum to exactly 1"):
        exact_epsilon({0: {"a": Fraction(1, 2)}}, [])
    with pytest.raises(UsageError):
        exact_epsilon({0: {"a": Fraction(3, 2), "b": Fraction(-1, 2)}}, [])


def test_label_neighbors_differ_in_exactly_one_label():
    pairs = list(label_neighbors(3))
    assert len(pairs) == 8 * 3
    assert all(sum(a != b for a, b in zip(one, other, strict=True)) == 1 for one, other in pairs)
    assert set(pairs) == {(other, one) for one, other in pairs}
