"""Trajectories: the sum is what is compared, and no step is larger than its bound."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.errors import DataError, UsageError
from sordino.preferences.pairs import Pairs, read_pairs
from sordino.preferences.trajectories import Trajectories


def steps(n=5, horizon=4, d=3, seed=0, size=3.0):
    return np.random.default_rng(seed).normal(size=(2, n, horizon, d)) * size


def clipped(array, bound):
    norm = np.linalg.norm(array, axis=-1, keepdims=True)
    return array * np.minimum(1, bound / norm)


def test_the_sum_of_the_differences_of_clipped_steps():
    first, second = steps()
    labels = [1, 0, 0.5, 1, 0]
    found = Trajectories.from_steps(first, second, labels, feature_bound=2.0)
    wanted = Pairs.from_features((clipped(first, 2.0) - clipped(second, 2.0)).sum(axis=1), labels)
    assert np.allclose(found.pairs.given, wanted.given, rtol=0, atol=1e-9)
    assert found.pairs.labels.tolist() == wanted.labels.tolist()
    assert (found.horizon, found.feature_bound, found.difference_bound) == (4, 2.0, 16.0)
    assert repr(found) == str(found) == "Trajectories(n=5, horizon=4)"
    whole = clipped((first - second).sum(axis=1), 2.0)
    assert not np.allclose(np.abs(found.pairs.given), np.abs(whole)), "clipped after the sum"


@given(
    st.integers(1, 40),
    st.integers(1, 4),
    st.floats(1e-90, 1e90),
    st.floats(1e-3, 1e200),
    st.integers(0, 9),
)
def test_no_row_exceeds_its_bound(horizon, d, bound, size, seed):
    """Also where all steps are alike, so that the bound is attained and rounding would pass it."""
    row = np.random.default_rng(seed).normal(size=d)
    first = np.tile(row * size, (1, horizon, 1))
    found = Trajectories.from_steps(first, -first, [1], feature_bound=bound)
    longest = np.abs(found.pairs.given).max()
    norm = longest * np.linalg.norm(found.pairs.given / longest)
    assert norm <= 2 * horizon * bound
    if np.linalg.norm(row) * size > bound:
        assert norm >= 2 * horizon * bound * (1 - 1e-11)


def test_swapping_the_two_turns_the_label_and_nothing_else():
    first, second = steps(n=30)
    labels = np.arange(30) % 2
    one = Trajectories.from_steps(first, second, labels, feature_bound=1.0).pairs
    other = Trajectories.from_steps(second, first, 1 - labels, feature_bound=1.0).pairs
    assert one.given.tobytes() == other.given.tobytes()
    assert (one.keys, one.public_digest) == (other.keys, other.public_digest)
    assert one.labels.tolist() == other.labels.tolist()
    one.refuse_other_order()


def test_the_second_moment_is_of_the_sum():
    """All steps differ alike: x = H·e, so x xᵀ is H times the sum of the outer products.

    The curvature of the loss at zero is a quarter of x xᵀ. The sum of the outer products is below
    it, so it bounds nothing.

    Claim: PPHJ, equation (21): trajectory curvature as a sum of outer products
    Verdict: false
    Ours: sordino.preferences.trajectories.Trajectories: the outer product of the sum
    """
    horizon = 6
    first = np.zeros((1, horizon, 2))
    first[:, :, 0] = 1.0
    found = Trajectories.from_steps(first, np.zeros_like(first), [1]).pairs.given
    moment = found.T @ found
    of_steps = np.einsum("nhi,nhj->ij", first, first)
    assert moment[0, 0] == horizon**2
    assert of_steps[0, 0] == horizon

    def loss(weight):
        return np.logaddexp(0.0, -weight * first[0, :, 0].sum())

    curvature = (loss(1e-3) - 2 * loss(0.0) + loss(-1e-3)) / 1e-6
    assert curvature == pytest.approx(moment[0, 0] / 4, rel=1e-4)
    assert curvature > of_steps[0, 0]


def test_steps_are_not_kept():
    found = Trajectories.from_steps(*steps(), [1] * 5)
    assert [field.name for field in fields(found)] == ["pairs", "horizon", "feature_bound"]
    assert found.pairs.given.shape == (5, 3)


def test_equal_sums_are_refused_or_dropped():
    first, second = steps()
    second[2] = first[2]
    people = list("abcde")
    with pytest.raises(DataError, match=r"Comparison 2: .*drop="):
        Trajectories.from_steps(first, second, [1] * 5)
    found = Trajectories.from_steps(first, second, [1] * 5, people, drop=["identical"])
    assert (len(found), found.pairs.dropped) == (4, 1)
    assert found.pairs.persons == ("a", "b", "d", "e")
    with pytest.raises(DataError, match="labels"):
        Trajectories.from_steps(first, second, [1, 1, 7, 1, 1], drop=["identical"])
    with pytest.raises(DataError, match="empty"):
        Trajectories.from_steps(first, first, [1] * 5, drop=["identical"])
    for drop in (["same"], [5], 5):
        with pytest.raises(UsageError, match="drop must be"):
            Trajectories.from_steps(first, second, [1] * 5, drop=drop)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("steps_there", [3, 5])
def test_unequal_lengths_are_refused_by_their_index_alone(side, steps_there):
    sides = [list(array) for array in steps()]
    sides[side][3] = np.ones((steps_there, 3))
    with pytest.raises(DataError, match="comparison 3: trajectories of unequal length") as one:
        Trajectories.from_steps(*sides, [1] * 5)
    with pytest.raises(DataError) as other:
        Trajectories.from_steps(*sides[::-1], [1] * 5)
    assert str(one.value) == str(other.value), "it may be known which went better"


@pytest.mark.parametrize(
    ("first", "second", "word"),
    [
        ([[[1.0]]], [], "as many"),
        ([], [], "empty"),
        ([[1.0]], [[2.0]], "comparison 0: .*dimension"),
        ([[["a"]]], [[[1.0]]], "comparison 0: .*numeric"),
        ([[[1.0], [np.nan]]], [[[1.0], [2.0]]], "comparison 0: .*row 1"),
        ([[[]]], [[[]]], "comparison 0: .*at least one"),
        ([np.zeros((0, 2))], [np.zeros((0, 2))], "comparison 0: .*at least one"),
        ([[[1.0, 2.0]]], [[[1.0]]], "comparison 0: .*as many features"),
        ([[[1.0]], [[1.0, 2.0]]], [[[2.0]], [[1.0, 3.0]]], "as many features"),
        ([[[1.0], [1.0, 2.0]]], [[[1.0], [1.0]]], "comparison 0"),
        ([3], [4], "comparison 0"),
        ([[[1e308], [1e308]]], [[[-1e308], [-1e308]]], "finite"),
    ],
)
def test_steps_that_cannot_be_used(first, second, word):
    with pytest.raises(DataError, match=word):
        Trajectories.from_steps(first, second, [1] * len(first))


def test_pairs_that_break_the_bound_cannot_be_called_trajectories():
    found = Trajectories.from_steps(*steps(), [1] * 5, feature_bound=1.0)
    with pytest.raises(DataError, match="above 2HL"):
        replace(found, feature_bound=1e-3)
    with pytest.raises(DataError, match="from_steps"):
        Trajectories(read_pairs([{"prompt": "p", "chosen": "a", "rejected": "b"}]), horizon=1)


def test_a_sum_that_is_rounded_up_stays_within_its_bound():
    """The sum of 100,000 clipped steps of 0.1 is rounded to 1.8e-12 above 2HL."""
    horizon = 100_000
    first = np.zeros((1, horizon, 2))
    first[:, :, 0] = 1.0
    found = Trajectories.from_steps(first, -first, [1], feature_bound=0.1)
    assert found.pairs.given[0, 0] <= 2 * horizon * 0.1
