"""A sum whose shape depends on the number of its parts alone, however they arrive."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.engines.engine import Reduction
from sordino.errors import EngineError, UsageError


def joined(one, other):
    """Not associative: the result shows the whole tree."""
    return f"({one}{other})"


def in_order(n):
    total = Reduction(n, joined)
    for index in range(n):
        total.take(index, f"{index},")
    return total.result()


def branches(low, level, n):
    """Some aligned branches, from fine to coarse, that hold all parts from low on."""
    return (
        st.just((level, low))
        if level == 0 or low >= n
        else st.booleans().flatmap(
            lambda whole: (
                st.just((level, low))
                if whole
                else st.tuples(
                    branches(low, level - 1, n), branches(low + 2 ** (level - 1), level - 1, n)
                )
            )
        )
    )


def flat(tree, n):
    if isinstance(tree[0], tuple):
        return [leaf for part in tree for leaf in flat(part, n)]
    return [tree] if tree[1] < n else []


def branch(level, low, n):
    """Return one branch as a task would send it."""
    part = Reduction(n, joined)
    for index in range(low, min(low + 2**level, n)):
        part.take(index, f"{index},")
    return part.nodes()


@given(st.data(), st.integers(1, 40))
def test_any_order_and_any_repetition_give_the_sum_in_order(data, n):
    arrivals = data.draw(
        st.permutations(list(range(n)) + data.draw(st.lists(st.integers(0, n - 1), max_size=20)))
    )
    total = Reduction(n, joined)
    for index in arrivals:
        total.take(index, f"{index},")
    assert total.result() == in_order(n)


@given(st.data(), st.integers(1, 40))
def test_branches_of_any_size_may_overlap_and_still_give_the_sum_in_order(data, n):
    """As when a stretch is computed twice, once in small tasks and once in a large one."""
    height = math.ceil(math.log2(n)) if n > 1 else 0
    trees = [data.draw(branches(0, height, n)) for _ in range(2)]
    sent = data.draw(st.permutations([leaf for tree in trees for leaf in flat(tree, n)]))
    total = Reduction(n, joined)
    for level, low in sent:
        for node_level, index, part in branch(level, low, n):
            total.take(index, part, level=node_level)
    assert total.result() == in_order(n)


@given(st.data(), st.integers(2, 40))
def test_a_part_that_never_comes_is_noticed(data, n):
    missing = data.draw(st.integers(0, n - 1))
    total = Reduction(n, joined)
    for index in data.draw(st.permutations([k for k in range(n) if k != missing])):
        total.take(index, f"{index},")
    with pytest.raises(EngineError, match="missing"):
        total.result()


@pytest.mark.parametrize("n", [1, 2, 3, 1000, 4097])
def test_parts_in_order_leave_no_more_than_one_for_each_level(n):
    total = Reduction(n, lambda one, other: one + other)
    most = 0
    for index in range(n):
        total.take(index, 1)
        most = max(most, len(total.nodes()))
    assert total.result() == n
    assert most <= math.log2(n) + 1


@pytest.mark.parametrize("place", [(0, 5), (0, -1), (1, 3), (-1, 0), (3, 1)])
def test_a_part_that_nobody_asked_for_is_refused(place):
    level, index = place
    with pytest.raises(EngineError, match="not asked for"):
        Reduction(5, joined).take(index, "x", level=level)


def test_no_parts_at_all_are_refused():
    with pytest.raises(UsageError, match="no piece"):
        Reduction(0, joined)
