"""A sum whose shape depends on the number of its parts alone."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.engines.engine import tree_sum
from sordino.errors import UsageError


def joined(one, other):
    """Not associative: the result shows the whole tree."""
    return f"({one}{other})"


def tree(low, high):
    """The same by halves: the left one holds as many parts as the largest power of two below."""
    if high - low == 1:
        return f"{low},"
    middle = low + 2 ** math.floor(math.log2(high - low - 1))
    return joined(tree(low, middle), tree(middle, high))


@given(st.integers(1, 200))
def test_neighbors_are_added_first_and_then_neighbors_of_their_sums(n):
    assert tree_sum((f"{index}," for index in range(n)), joined) == tree(0, n)


@pytest.mark.parametrize("n", [1, 2, 3, 1000, 4097])
def test_parts_leave_no_more_than_one_for_each_level(n):
    held, most = 0, 0

    def parts():
        nonlocal held, most
        for _ in range(n):
            held += 1
            most = max(most, held)
            yield 1

    def plus(one, other):
        nonlocal held
        held -= 1
        return one + other

    assert tree_sum(parts(), plus) == n
    assert most <= math.log2(n) + 2  # the newest is on its way


def test_no_parts_at_all_are_refused():
    with pytest.raises(UsageError, match="no piece"):
        tree_sum([], joined)
