"""Trajectories from files: vectors or a table, and no message says which side was wrong."""

import json

import numpy as np
import pytest

from sordino.errors import DataError, UsageError
from sordino.preferences.trajectories import Trajectories, read_trajectories

GENERATOR = np.random.default_rng(0)
FIRST, SECOND = GENERATOR.normal(size=(2, 6, 3, 2))
LABELS = [1, 0, 0.5, 1, 0, "tie"]
ROWS = [
    {"first": one.tolist(), "second": other.tolist(), "label": label}
    for one, other, label in zip(FIRST, SECOND, LABELS, strict=True)
]
TABLE = GENERATOR.normal(size=(4, 3, 2))
STATES, ACTIONS = GENERATOR.integers(0, 4, size=(2, 6, 3)), GENERATOR.integers(0, 3, size=(2, 6, 3))


def visits(side, index):
    return {"states": STATES[side, index].tolist(), "actions": ACTIONS[side, index].tolist()}


VISITED = [{"first": visits(0, i), "second": visits(1, i), "label": 1} for i in range(6)]


def same(one, other):
    return (
        one.pairs.given.tobytes() == other.pairs.given.tobytes()
        and one.pairs.labels.tolist() == other.pairs.labels.tolist()
        and one.pairs.public_digest == other.pairs.public_digest
        and (one.horizon, one.feature_bound) == (other.horizon, other.feature_bound)
    )


@pytest.mark.parametrize("bound", [None, 0.5])
def test_a_file_says_what_arrays_say(tmp_path, bound):
    numbers = [0.5 if label == "tie" else label for label in LABELS]
    wanted = Trajectories.from_steps(FIRST, SECOND, numbers, feature_bound=bound)
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    for source in (ROWS, iter(ROWS), path, str(path)):
        assert same(read_trajectories(source, feature_bound=bound), wanted)


def test_chosen_and_rejected():
    rows = [{"chosen": row["first"], "rejected": row["second"]} for row in ROWS]
    assert same(read_trajectories(rows), Trajectories.from_steps(FIRST, SECOND, [1] * 6))


@pytest.mark.parametrize("bound", [None, 0.5])
def test_states_and_actions_of_a_table(bound):
    given = TABLE[STATES, ACTIONS]
    wanted = Trajectories.from_steps(*given, [1] * 6, feature_bound=bound)
    assert same(read_trajectories(VISITED, features=TABLE, feature_bound=bound), wanted)


def test_a_table_that_changes_with_the_step():
    table = GENERATOR.normal(size=(3, 4, 3, 2))
    given = table[np.arange(3), STATES, ACTIONS]
    wanted = Trajectories.from_steps(*given, [1] * 6)
    assert same(read_trajectories(VISITED, features=table), wanted)
    with pytest.raises(DataError, match="record 1: trajectories of unequal length"):
        read_trajectories(VISITED, features=table[:2])


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ({"first": ROWS[0]["first"], "label": 1}, "both needed"),
        ({"chosen": ROWS[0]["first"]}, "both needed"),
        (ROWS[0] | {"chosen": []}, "exclude"),
        (ROWS[0] | {"label": 2}, "'label' must be"),
        ({name: ROWS[0][name] for name in ("first", "second")}, "'label' must be"),
        (ROWS[0] | {"first": ROWS[0]["first"][:2]}, "unequal length"),
        (ROWS[0] | {"first": [[1.0], [1.0], [1.0]]}, "as many features"),
        (ROWS[0] | {"first": []}, "each trajectory"),
        (ROWS[0] | {"first": "secret"}, "each trajectory"),
        (ROWS[0] | {"first": [[1.0, 2.0], [1.0]]}, "each trajectory"),
        (ROWS[0] | {"first": [[1.0, None]] * 3}, "each trajectory"),
        (ROWS[0] | {"first": visits(0, 0)}, "need a table"),
    ],
)
def test_records_that_cannot_be_used(row, word):
    with pytest.raises(DataError, match=f"^record 2: .*{word}") as caught:
        read_trajectories([ROWS[0], row])
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "bad",
    [
        {"states": [0, 1, 4], "actions": [0, 1, 2]},
        {"states": [0, 1, 2], "actions": [0, 1, 3]},
        {"states": [0, 1, -1], "actions": [0, 1, 2]},
        {"states": [0, 1, 2], "actions": [0, 1]},
        {"states": [0, 1, 2]},
        {"states": [], "actions": []},
        {"states": [0.0, 1.0, 2.0], "actions": [0, 1, 2]},
        {"states": [True, False, True], "actions": [0, 1, 2]},
        {"states": "012", "actions": [0, 1, 2]},
        {"states": [10**30, 1, 2], "actions": [0, 1, 2]},
        {"states": [[0], [1, 2]], "actions": [0, 1, 2]},
    ],
)
def test_visits_that_the_table_does_not_know(bad):
    messages = set()
    for sides in ((bad, visits(0, 0)), (visits(0, 0), bad)):
        row = dict(zip(("chosen", "rejected"), sides, strict=True))
        with pytest.raises(DataError, match=r"^record 1: 'states' and 'actions'") as caught:
            read_trajectories([row], features=TABLE)
        messages.add(str(caught.value))
    assert len(messages) == 1, "it is known which went better"


@pytest.mark.parametrize(
    ("one", "other", "word"),
    [
        ([[1.0]] * 2, [[1.0]] * 3, "all must have 2 steps"),
        ([[float("nan")]], [], "each trajectory"),
    ],
)
def test_no_message_says_which_of_two_went_better(one, other, word):
    told = set()
    for sides in ((one, other), (other, one)):
        with pytest.raises(DataError, match=word) as caught:
            read_trajectories([dict(zip(("chosen", "rejected"), sides, strict=True))])
        told.add(str(caught.value))
    assert len(told) == 1


def test_vectors_beside_a_table():
    with pytest.raises(DataError, match=r"record 1: .*beside a table"):
        read_trajectories(ROWS, features=TABLE)


@pytest.mark.parametrize(
    "table", [np.ones(3), np.ones((2, 2)), np.ones((0, 2, 2)), [[1], [1, 2]], "x"]
)
def test_tables_that_cannot_be_used(table):
    with pytest.raises(UsageError, match="table of shape"):
        read_trajectories(VISITED, features=table)
    with pytest.raises(DataError, match="finite"):
        read_trajectories(VISITED, features=np.full((4, 3, 2), np.nan))
