"""What tasks send back: sums of branches, and errors that hold no data."""

import pickle
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.engines.engine import InProcess, tree_sum
from sordino.engines.ray_data import _in_turn, _stretches, _summed
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


def sent(task, add, number, stretch):
    """What a task sends back of a stretch."""
    [found] = _summed(task, add, {"stretch": [pickle.dumps((number, stretch))]})["found"]
    return found


def computed(chunks, task, add, *, order, least=7, taken=None):
    """The fold of an engine that ends its tasks in any order, one of them twice."""
    stretches = _stretches(chunks, least)
    rows = [sent(task, add, number, each) for number, each in enumerate(stretches)]
    order.shuffle(rows)
    rows += rows[:1]
    return tree_sum(_in_turn(rows, stretches, taken), add)


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
    assert [chunk for stretch in found for chunk in stretch] == list(range(n))
    assert len(found) >= min(n, least)
    *others, last = map(len, found)
    assert len({*others}) <= 1
    assert all(size in (1, 2, 4, 8) and last <= size for size in others)


@pytest.mark.parametrize("seed", range(5))
def test_the_error_is_that_of_the_first_chunk_that_failed(seed):
    """Whichever task ended first."""
    task = refusing({23, 24, 77, 90}, DataError)
    with pytest.raises(DataError, match=f"^{SAID}, piece 23$"):
        computed(range(100), task, plus, order=dice(seed))


def test_the_sum_stops_when_all_before_the_failed_chunk_are_known_to_be_good():
    task, parts = refusing({3}, DataError), _stretches(range(100), 100)
    arrived = (sent(task, plus, index, parts[index]) for index in (3, 99, 0, 2, 1, 4))
    with pytest.raises(DataError):
        tree_sum(_in_turn(arrived, parts, None), plus)
    assert pickle.loads(next(arrived))[0] == 4  # noqa: S301 (our own)


@given(st.data(), st.integers(2, 40))
def test_a_part_that_never_comes_is_noticed(data, n):
    stretches = _stretches(range(n), n)
    missing = data.draw(st.integers(0, n - 1))
    others = [number for number in range(n) if number != missing]
    arrived = [sent(third, plus, k, stretches[k]) for k in data.draw(st.permutations(others))]
    with pytest.raises(EngineError, match="missing"):
        tree_sum(_in_turn(arrived, stretches, None), plus)


@pytest.mark.parametrize("kind", [ValueError, MemoryError, ZeroDivisionError, KeyError, OSError])
def test_of_errors_that_are_not_ours_only_the_kind_is_sent(kind):
    """Their messages may quote what they were given, and an engine would write them down."""
    [stretch] = _stretches(range(5), 1)
    found = sent(refusing({2}, kind), plus, 0, stretch)
    assert SAID.encode() not in found
    _, part, error = pickle.loads(found)  # noqa: S301 (our own)
    assert part is None
    assert type(error) is EngineError
    assert kind.__name__ in str(error)


class Awkward(SordinoError):
    """An error that cannot be put together again elsewhere."""

    def __init__(self, one, two):
        super().__init__(f"{one}{two}")


@pytest.mark.parametrize("error", [DataError("a"), FileSystemError("b"), EngineError("c")])
def test_our_errors_arrive_as_they_are(error):
    found = sent(lambda _: (_ for _ in ()).throw(error), plus, 0, (0,))
    _, _, failed = pickle.loads(found)  # noqa: S301 (our own)
    assert type(failed) is type(error)
    assert str(failed) == str(error)


def test_an_error_that_cannot_be_sent_is_named():
    def task(_):
        raise Awkward("a", "b")

    _, _, failed = pickle.loads(sent(task, plus, 0, (0,)))  # noqa: S301 (our own)
    assert "Awkward" in str(failed)


def test_a_part_that_cannot_be_sent_is_an_error_and_not_a_crash():
    found = sent(lambda _: lambda: SAID, plus, 0, (0,))
    with pytest.raises(EngineError, match="A task failed with"):
        list(_in_turn([found], [(0,)], None))


def test_a_sum_that_fails_is_an_error_like_any_other():
    def add(one, other):
        raise ZeroDivisionError(SAID)

    with pytest.raises(EngineError, match="ZeroDivisionError") as caught:
        computed(range(20), third, add, order=dice(0))
    assert SAID not in str(caught.value)
