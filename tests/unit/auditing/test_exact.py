from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import mpmath
import pytest

from sordino.auditing.exact import _exact_delta, exact_epsilon, label_neighbors
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


def test_delta_of_a_coin_falls_to_zero_at_its_epsilon():
    keep = Fraction(3, 4)
    pairs = [(0, 1), (1, 0)]
    assert float(_exact_delta(coin(keep), pairs, 0.0)) == pytest.approx(0.5, abs=1e-15)
    assert float(_exact_delta(coin(keep), pairs, 0.5)) == pytest.approx(
        0.75 - 0.25 * float(mpmath.exp(0.5)), abs=1e-15
    )
    assert _exact_delta(coin(keep), pairs, 1.0986122886681100) == 0


def test_delta_counts_outputs_that_the_neighbor_cannot_give():
    table = {0: {"a": Fraction(1)}, 1: {"a": Fraction(2, 3), "b": Fraction(1, 3)}}
    assert float(_exact_delta(table, [(1, 0)], 5.0)) == pytest.approx(1 / 3, abs=1e-15)


def test_rows_must_be_probabilities():
    with pytest.raises(UsageError, match="sum to exactly 1"):
        exact_epsilon({0: {"a": Fraction(1, 2)}}, [])
    with pytest.raises(UsageError):
        _exact_delta({0: {"a": Fraction(3, 2), "b": Fraction(-1, 2)}}, [], 0.0)


def test_label_neighbors_differ_in_exactly_one_label():
    pairs = list(label_neighbors(3))
    assert len(pairs) == 8 * 3
    assert all(sum(a != b for a, b in zip(one, other, strict=True)) == 1 for one, other in pairs)
    assert set(pairs) == {(other, one) for one, other in pairs}
