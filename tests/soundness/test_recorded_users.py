"""Users of a file: what is made of one record is right on average, bounded, and of it alone."""

import dataclasses
import json
from itertools import product

import numpy as np
import pytest

from sordino._random import entropy
from sordino.algorithms.user_slots import RunUsers, Slots, interact, read_users
from sordino.errors import DataError, UsageError
from sordino.policies.softmax import LogLinearPolicy

RANGE = (-1.0, 3.0)
FELT = [-1.0, 0.5, 3.0]  # of three actions
SHOWN = [0.5, 0.3, 0.2]  # how likely each was to be shown
FORMS = {
    "all rewards": {"rewards": FELT},
    "one action": {"action": 1, "reward": 0.5, "propensity": 0.3},
}


def record(person, form="all rewards", **more):
    return {"person": person, "context": [0.6, -0.8], **FORMS[form], **more}


def read(rows, form="all rewards", **more):
    logged = {"least_propensity": 0.2, "actions": 3} if form == "one action" else {}
    return read_users(rows, reward_range=RANGE, **logged, **more)


def test_one_shown_action_tells_of_all_rewards_what_is_right_on_average():
    """Every action that the log may hold, by its propensity; what is common to all cancels."""
    rows = [
        record(action, "one action", action=action, reward=FELT[action], propensity=SHOWN[action])
        for action in range(3)
    ]
    mean = np.array(SHOWN) @ read(rows, "one action").rewards
    assert mean == pytest.approx(np.array(FELT) - sum(RANGE) / 2)
    assert read([record("a")]).rewards[0] == pytest.approx(mean)


@pytest.mark.parametrize("form", FORMS)
def test_one_record_moves_its_own_row_and_no_further_than_its_bound(form):
    loud = {"rewards": [9e9, -9e9, 0.0]} if form == "all rewards" else {
        "reward": 9e9, "propensity": 1e-9}  # fmt: skip
    quiet = [record(name, form) for name in "abcd"]
    one = read(quiet, form)
    for place in range(4):
        rows = [*quiet]
        rows[place] = record("abcd"[place], form) | {"context": [5.0, 5.0], **loud}
        other = read(rows, form)
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
    "no person": ({"context": [1.0], "rewards": [1, 2]}, {}, "two slots"),
    "no features": ({"person": 1, "rewards": [1, 2]}, {}, "either 'candidates'"),
    "both": ({"person": 1, "context": [1], "candidates": [[1]], "rewards": [1]}, {}, "either"),
    "no propensity": ({"person": 1, "context": [1], "action": 0, "reward": 1}, {}, "unbiased"),
    "no bound": (record(1, "one action"), {"actions": 3}, "least_propensity is needed"),
    "no number": (record(1, "one action"), {"least_propensity": 0.2}, "actions is needed"),
    "a bound of nothing": (record(1), {"least_propensity": 0.2}, "is for shown actions"),
    "a needless number": (record(1), {"actions": 3}, "these records tell it"),
    "a bound of 0": (
        record(1, "one action"), {"least_propensity": 0.0, "actions": 3}, "must be in"),
}  # fmt: skip


@pytest.mark.parametrize(("row", "more", "words"), UNUSABLE.values(), ids=UNUSABLE)
def test_what_the_mathematics_does_not_allow_is_refused(row, more, words, tmp_path):
    path = tmp_path / "users.jsonl"
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    with pytest.raises((DataError, UsageError), match=words):
        read_users(path, reward_range=RANGE, **more)


def test_nobody_has_two_slots():
    users = read([record(name) for name in "abc"])
    with pytest.raises(DataError, match="two slots"):
        dataclasses.replace(users, persons=("a", " a", "c"))
