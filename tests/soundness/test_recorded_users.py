"""Users of a file: what is made of one record is right on average, bounded, and of it alone."""

import dataclasses
import json
from itertools import product

import numpy as np
import pytest

from sordino._random import entropy
from sordino.algorithms.user_slots import RunUsers, Slots, interact, read_users
from sordino.errors import DataError
from sordino.policies.softmax import LogLinearPolicy

RANGE = (-1.0, 3.0)
FELT = [-1.0, 0.5, 3.0]  # of three actions


def record(person, **more):
    return {"person": person, "context": [0.6, -0.8], "rewards": FELT, **more}


def read(rows):
    return read_users(rows, reward_range=RANGE)


def test_one_record_moves_its_own_row_and_no_further_than_its_bound():
    quiet = [record(name) for name in "abcd"]
    one = read(quiet)
    for place in range(4):
        rows = [*quiet]
        rows[place] = record("abcd"[place], context=[5.0, 5.0], rewards=[9e9, -9e9, 0.0])
        other = read(rows)
        alike = [row for row in range(4) if row != place]
        for name in ("features", "rewards"):
            assert np.array_equal(getattr(one, name)[alike], getattr(other, name)[alike])
        assert abs(other.rewards).max() <= other.reward_bound * (1 + 1e-12)
        # what an update sees of it
        held = RunUsers(other, Slots(users=4, batches=2), entropy(0))
        world, features, rng = held.batch(place // 2)
        assert np.linalg.norm(features, axis=2).max() <= 1 + 1e-12
        uniform = LogLinearPolicy.uniform(6)
        batch = interact(world, features, policy=uniform, reference=uniform,
                         reward_bound=other.reward_bound, rng=rng)  # fmt: skip
        assert abs(batch.advantages).max() <= 2 * other.reward_bound


def test_only_the_first_record_of_a_person_counts():
    rows = [record(1), record("1", rewards=[3, 3, 3]), record(" 1"), record(2)]
    users = read(rows)
    assert users.persons == ("1", "2")
    assert users.rewards[0] == pytest.approx(np.array(FELT) - 1)
    assert users.order != read(rows[::-1]).order == read([rows[3], rows[2]]).order


HIDDEN = "CANARY"
SPOILED = {
    "text": {"context": [HIDDEN, 1.0]}, "length": {"context": [1.0]},
    "nan": {"rewards": [1, 2, None]},
    "rewards": {"rewards": [1, 2]}, "nothing": {"rewards": HIDDEN}, "person": {"person": [HIDDEN]},
}  # fmt: skip


@pytest.mark.parametrize("spoiled", SPOILED.values(), ids=SPOILED)
def test_what_is_wrong_with_a_record_is_not_said(spoiled):
    """All of a record is private, so nobody learns which one it was, or why."""
    said = set()
    for place, first in product((1, 5), ("a", "b")):
        rows = [record(f"{first}{number}") for number in range(8)]
        rows[place] |= spoiled
        with pytest.raises(DataError) as caught:
            read(rows)
        said.add(str(caught.value))
    assert len(said) == 1
    assert HIDDEN not in said.pop()


UNUSABLE = {
    "no person": ({"context": [1.0], "rewards": [1, 2]}, "two slots"),
    "no features": ({"person": 1, "rewards": [1, 2]}, "either 'candidates'"),
    "both": ({"person": 1, "context": [1], "candidates": [[1]], "rewards": [1]}, "either"),
    "one action": (
        {"person": 1, "context": [1], "action": 0, "reward": 1, "propensity": 1}, "unbiased"),
}  # fmt: skip


@pytest.mark.parametrize(("row", "words"), UNUSABLE.values(), ids=UNUSABLE)
def test_what_the_mathematics_does_not_allow_is_refused(row, words, tmp_path):
    path = tmp_path / "users.jsonl"
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=words):
        read_users(path, reward_range=RANGE)


def test_nobody_has_two_slots():
    users = read([record(name) for name in "abc"])
    with pytest.raises(DataError, match="two slots"):
        dataclasses.replace(users, persons=("a", " a", "c"))
