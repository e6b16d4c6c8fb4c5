"""Flat arrays of ballots: exact average ranks, whatever the ballots say."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.errors import DataError
from sordino.preferences.ballots import (
    array_ranks,
    bounds_of,
    doubled_average_ranks,
    flat_ranks,
    order_ranks,
)
from sordino.preferences.rankings import read_rankings

BALLOTS = st.lists(st.lists(st.integers(0, 5), min_size=2, max_size=6), min_size=1, max_size=8)


def flat(ballots):
    starts = np.concatenate([[0], np.cumsum([len(ballot) for ballot in ballots])])
    return starts, np.array([rank for ballot in ballots for rank in ballot])


def doubled_by_pairs(ballot):
    """Twice the average rank, by counting: 2 for oneself and above, 1 for each in the same tie."""
    place = [rank or 99 for rank in ballot]
    return [1 + sum(2 * (q < p) + (q == p) for q in place) for p in place]


@given(BALLOTS)
def test_doubled_ranks_are_what_counting_pairs_gives(ballots):
    starts, ranks = flat(ballots)
    found = doubled_average_ranks(starts, ranks)
    assert found.dtype == np.int64
    assert found.tolist() == [value for ballot in ballots for value in doubled_by_pairs(ballot)]
    sums = np.add.reduceat(found, starts[:-1])
    assert sums.tolist() == [len(ballot) * (len(ballot) + 1) for ballot in ballots]


@given(BALLOTS)
def test_consecutive_ranks_say_the_same_in_one_way(ballots):
    starts, ranks = flat(ballots)
    found = flat_ranks(ranks, starts)
    assert ((found == 0) == (ranks == 0)).all()
    assert (doubled_average_ranks(starts, found) == doubled_average_ranks(starts, ranks)).all()
    assert (flat_ranks(found, starts) == found).all()
    for start, stop in pairwise(starts):
        listed = set(found[start:stop].tolist()) - {0}
        assert listed == set(range(1, len(listed) + 1))


@given(BALLOTS)
def test_complete_means_no_tie_and_nobody_left_out(ballots):
    texts = [{"prompt": "", "candidates": [f"{at}" for at in range(len(b))]} for b in ballots]
    rows = [
        {**one, "ranks": [rank or None for rank in ballot]}
        for one, ballot in zip(texts, ballots, strict=True)
    ]
    found = read_rankings(rows).complete
    wanted = [0 not in ballot and len(set(ballot)) == len(ballot) for ballot in ballots]
    assert found.tolist() == wanted


def test_no_ballot_at_all():
    starts, ranks = bounds_of([0], 0), np.zeros(0, dtype=np.int64)
    assert flat_ranks(ranks, starts).tolist() == doubled_average_ranks(starts, ranks).tolist() == []


def test_large_ranks_do_not_run_over():
    starts = np.array([0, 2, 4])
    assert flat_ranks([2**31 - 1, 1, 1, 2**31 - 1], starts).tolist() == [2, 1, 1, 2]
    with pytest.raises(DataError, match="below"):
        flat_ranks([2**31, 1, 1, 1], starts)


def test_nobody_can_change_them_afterwards():
    given_starts, given_ranks = np.array([0, 2]), np.array([2, 1])
    starts = bounds_of(given_starts, 1)
    ranks = flat_ranks(given_ranks, starts)
    given_ranks[0] = given_starts[1] = 7
    assert (starts.tolist(), ranks.tolist()) == ([0, 2], [2, 1])
    for array in (starts, ranks):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize(
    ("starts", "n", "word"),
    [
        ([0, 2], 2, "one more"),
        ([1, 3], 1, "0 first"),
        ([0.0, 2.0], 1, "dtype float64"),
        ([0, 2, 3], 2, "Ballot 1 has fewer"),
        ([0, 3, 1], 2, "Ballot 1 has fewer"),
        ([[0, 2]], 1, "shape"),
        ([], -1, "shape"),
    ],
)
def test_bounds_that_cannot_be_used(starts, n, word):
    with pytest.raises(DataError, match=word):
        bounds_of(starts, n)


@pytest.mark.parametrize("ranks", [[1], [1, 2, 3], [-1, 1], [1.0, 2.0], ["a", "b"], [True, False]])
def test_flat_ranks_that_cannot_be_used(ranks):
    with pytest.raises(DataError, match="ranks must be"):
        flat_ranks(ranks, np.array([0, 2]))


# --- numbers of a user ---


def test_what_is_not_listed_may_be_written_in_several_ways():
    wanted = [[1, 0], [2, 1]]
    for ranks, unlisted in (
        ([[1, None], [2, 1]], None),
        ([[1, float("nan")], [2, 1]], None),
        ([[1, 0], [2, 1]], 0),
        ([[1, -1], [2, 1]], -1),
        (np.array([[1, 0], [2, 1]], dtype=np.uint8), 0),
    ):
        assert array_ranks(ranks, unlisted=unlisted).tolist() == wanted


@pytest.mark.parametrize(
    "bad",
    [0, -1, 1.5, float("inf"), -float("inf"), 2.0**31],
)
def test_a_number_that_is_no_rank_is_refused_by_its_row(bad):
    with pytest.raises(DataError, match="row 1 holds") as caught:
        array_ranks([[1, 2], [bad, 1], [bad, 1]], unlisted=None)
    assert "row 1 holds what is no rank" in str(caught.value)
    assert str(bad) not in str(caught.value).partition("write NaN")[0].replace("from 1 ", "")


@pytest.mark.parametrize(
    "ranks", [[1, 2], [["a", "b"]], [[1], [1, 2]], [[True, False]], [["1", None]], None, [[1j, 2]]]
)
def test_what_is_no_array_of_ranks(ranks):
    with pytest.raises(DataError, match="array of numbers"):
        array_ranks(ranks, unlisted=None)


# --- lists, best first ---

PLACES = {"a": 0, "b": 1, "c": 2}


@pytest.mark.parametrize(
    ("order", "ranks"),
    [
        (["c", "a", "b"], [2, 3, 1]),
        (["b"], [0, 1, 0]),
        ([], [0, 0, 0]),
        ([["a", "b", "c"]], [1, 1, 1]),
        ([{"c", "a"}, "b"], [1, 2, 1]),
        ((("c",), ("a",)), [2, 0, 1]),
        (np.array(["b", "a"]), [2, 1, 0]),
    ],
)
def test_an_order_gives_ranks(order, ranks):
    assert order_ranks(order, PLACES, 3, what="a name", field="x") == ranks


@pytest.mark.parametrize(
    ("order", "word"),
    [
        (["a", "a"], "twice"),
        ([["a", "b"], "b"], "twice"),
        (["a", "secret"], "unknown"),
        (["a", 1], "unknown"),
        (["a", None], "unknown"),
        ([["a", ["b"]]], "unknown"),
        ([{"a": 1}], "unknown"),
        (["a", []], "empty tie"),
        ("abc", "must be a list"),
        ({"a", "b"}, "must be a list"),
        ({"a": 1}, "must be a list"),
        (None, "must be a list"),
        (3, "must be a list"),
    ],
)
def test_orders_that_cannot_be_used(order, word):
    with pytest.raises(DataError, match=f"^x.*{word}") as caught:
        order_ranks(order, PLACES, 3, what="a name", field="x")
    assert "secret" not in str(caught.value)
