"""What tasks send back: sums of branches, what they saw, and errors that hold no data."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.engines.engine import InProcess
from sordino.engines.ray_data import _Arrivals, _Branches, _stretches, _SumOfStretch
from sordino.errors import DataError, EngineError, FileSystemError, SordinoError

SAID = "what a person said"


def dice(seed):
    return random.Random(seed)  # noqa: S311 - no secret


def third(chunk):
    return 1 / (3 * chunk + 1)


def plus(one, other):
    return one + other


def refusing(at, kind):
    def task(chunk):
        if chunk in at:
            raise kind(f"{SAID}, piece {chunk}")
        return third(chunk)

    return task


def computed(chunks, task, add, *, order, least=7, taken=None):
    """The fold of an engine that ends its tasks in any order, one of them twice."""
    work = _SumOfStretch(task, add, len(chunks))
    rows = [work(stretch).packed() for stretch in _stretches(chunks, least)]
    order.shuffle(rows)
    rows += rows[:1]
    arrivals = _Arrivals(len(chunks), add, taken)
    for row in rows:
        arrivals.take(_Branches.unpacked(row))
    return arrivals.result()


@given(st.integers(1, 200), st.integers(1, 40), st.integers(0, 2**32))
def test_tasks_in_any_order_give_the_same_bits(n, least, seed):
    chunks, seen = range(n), []
    found = computed(
        chunks, third, plus, order=dice(seed), least=least,
        taken=lambda done, of: seen.append((done, of)),
    )  # fmt: skip
    assert found == InProcess().fold(chunks, third, plus)
    assert seen == sorted(seen)
    assert seen[-1] == (n, n)


@given(st.integers(1, 500), st.integers(1, 64))
def test_every_stretch_is_one_branch(n, least):
    """So that a sum as large as a matrix is sent once for a task, and not for each level."""
    found = _stretches(range(n), least)
    assert [chunk for stretch in found for chunk in stretch.chunks] == list(range(n))
    assert len(found) >= min(n, least)
    work = _SumOfStretch(third, plus, n)
    assert {len(work(stretch).nodes) for stretch in found} == {1}


@pytest.mark.parametrize("seed", range(5))
def test_the_error_is_that_of_the_first_chunk_that_failed(seed):
    """Whichever task ended first."""
    task = refusing({23, 24, 77, 90}, DataError)
    with pytest.raises(DataError, match=f"^{SAID}, piece 23$"):
        computed(range(100), task, plus, order=dice(seed))


def test_the_sum_stops_when_all_before_the_failed_chunk_are_known_to_be_good():
    work = _SumOfStretch(refusing({3}, DataError), plus, 100)
    arrivals = _Arrivals(100, plus)
    parts = _stretches(range(100), 100)
    for index in (3, 99, 0, 2):
        arrivals.take(work(parts[index]))
    with pytest.raises(DataError):
        arrivals.take(work(parts[1]))


@pytest.mark.parametrize("kind", [ValueError, MemoryError, ZeroDivisionError, KeyError, OSError])
def test_of_errors_that_are_not_ours_only_the_kind_is_sent(kind):
    """Their messages may quote what they were given, and an engine would write them down."""
    work = _SumOfStretch(refusing({2}, kind), plus, 5)
    [stretch] = _stretches(range(5), 1)
    found = work(stretch)
    assert SAID.encode() not in found.packed()
    assert found.failed is not None
    index, error = found.failed
    assert index == 2
    assert type(error) is EngineError
    assert kind.__name__ in str(error)


class Awkward(SordinoError):
    """An error that cannot be put together again elsewhere."""

    def __init__(self, one, two):
        super().__init__(f"{one}{two}")


@pytest.mark.parametrize("error", [DataError("a"), FileSystemError("b"), EngineError("c")])
def test_our_errors_arrive_as_they_are(error):
    work = _SumOfStretch(lambda _: (_ for _ in ()).throw(error), plus, 1)
    found = _Branches.unpacked(work(_stretches(range(1), 1)[0]).packed())
    assert type(found.failed[1]) is type(error)
    assert str(found.failed[1]) == str(error)


def test_an_error_that_cannot_be_sent_is_named():
    def task(_):
        raise Awkward("a", "b")

    found = _SumOfStretch(task, plus, 1)(_stretches(range(1), 1)[0])
    assert "Awkward" in str(found.failed[1])


def test_a_part_that_cannot_be_sent_is_an_error_and_not_a_crash():
    work = _SumOfStretch(lambda _: lambda: SAID, plus, 1)
    found = _Branches.unpacked(work(_stretches(range(1), 1)[0]).packed())
    with pytest.raises(EngineError, match="A task failed with"):
        _Arrivals(1, plus).take(found)


def test_a_sum_that_fails_is_an_error_like_any_other():
    def add(one, other):
        raise ZeroDivisionError(SAID)

    with pytest.raises(EngineError, match="ZeroDivisionError") as caught:
        computed(range(20), third, add, order=dice(0))
    assert SAID not in str(caught.value)
