"""Bandit logs from files: every format says the same, and no message quotes a record."""

import json

import numpy as np
import pytest

from sordino.errors import DataError, FileSystemError, UsageError
from sordino.preferences.bandit_logs import read_bandit_logs

ROWS = [
    {"item": 14, "click": 1, "share": 0.5, "age": 0.25, "city": "Berlin", "other": "x"},
    {"item": 3, "click": 0, "share": 1, "age": -7.5, "city": "東京", "other": None},
    {"item": 99, "click": 1, "share": 0.25, "age": 0, "city": "", "other": "y"},
    {"item": 3, "click": 2.5, "share": 0.125, "age": 1, "city": 'a,"b"\nc', "other": "z"},
]
SETTINGS = {
    "arm": "item",
    "reward": "click",
    "catalogue": ["3", "14"],
    "reward_range": (0, 1),
    "propensity": "share",
    "context_columns": ["age", "city:8"],
}


def read(source=ROWS, **changes):
    return read_bandit_logs(source, **(SETTINGS | changes))


def columns(logs):
    return [one.tobytes() for one in (logs.arms, logs.rewards, logs.contexts, logs.propensities)]


def test_what_is_read():
    logs = read()
    assert logs.arms.tolist() == [1, 0, 0]
    assert logs.rewards.tolist() == [1.0, 0.0, 1.0]
    assert logs.propensities.tolist() == [0.5, 1.0, 0.125]
    assert logs.context_bound == 2**0.5
    assert list(map(str, logs.context_columns)) == ["age", "city:8"]
    assert logs.contexts.shape == (3, 9)
    assert np.isclose(logs.contexts[0, 0], 0.25 / 2**0.5, rtol=1e-15)
    assert np.isclose(logs.contexts[1, 0], -7.5 / (7.5**2 + 1) ** 0.5, rtol=1e-9)
    assert (logs.contexts[:, 1:] != 0).sum(axis=1).tolist() == [1, 1, 1]


def test_queries_are_made_as_the_logs_were(tmp_path):
    logs = read()
    inside = [ROWS[0], ROWS[1], ROWS[3]]
    assert logs.contexts_of(inside).tobytes() == logs.contexts.tobytes()
    for row, vector in zip(inside, logs.contexts, strict=True):
        asked = {name: row[name] for name in ("age", "city")}
        assert logs.contexts_of([asked]).tobytes() == vector.tobytes()
    path = tmp_path / "queries.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in inside))
    assert logs.contexts_of(path).tobytes() == logs.contexts.tobytes()
    with pytest.raises(DataError, match="record 2: field 'city' is missing"):
        logs.contexts_of([ROWS[0], {"age": 1}])
    for source in (ROWS[0], 5, None):
        with pytest.raises(UsageError, match="list of mappings"):
            logs.contexts_of(source)
    with pytest.raises(DataError, match="record 1: expected an object"):
        logs.contexts_of(np.zeros((1, 9)))


def changed(**fields):
    return {**ROWS[0], **fields}


def without(name):
    return {field: value for field, value in ROWS[0].items() if field != name}


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (changed(click="secret"), "'click' must be a finite number"),
        (changed(click=float("nan")), "'click' must be a finite number"),
        (changed(share=0), "'share' must be a probability"),
        (changed(share=1.5), "'share' must be a probability"),
        (changed(share="nan"), "'share' must be a finite number"),
        (changed(age="secret"), "'age' must be a finite number"),
        (changed(city=["secret"]), "'city' must be a text or a number"),
        (changed(item=14.0), "'item' must be a text or a whole number"),
        (changed(item=["secret"]), "'item' must be a text or a whole number"),
        (changed(item="outside", share=0), "'share' must be a probability"),
        (without("item"), "field 'item' is missing"),
        (without("city"), "field 'city' is missing"),
        (["secret"], "expected an object"),
    ],
)
def test_records_that_cannot_be_used(row, problem):
    with pytest.raises(DataError, match=f"^record 2: .*{problem}") as caught:
        read([ROWS[0], row])
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None, "the cause would quote the cell"


def test_no_record_is_a_data_set_like_any_other(tmp_path):
    for name, text in (("x.csv", ""), ("x.csv", "item,click\n"), ("x.jsonl", "\n")):
        (tmp_path / name).write_text(text)
        assert len(read(tmp_path / name).arms) == 0
    assert len(read([]).arms) == 0
    with pytest.raises(FileSystemError):
        read(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"reward_range": (1, 0)}, "reward_range"),
        ({"catalogue": 0}, "number of arms"),
        ({"reward": "item"}, "different columns"),
        ({"context_columns": ["item:8"]}, "different columns"),
        ({"context_columns": ["age", "age:8"]}, "twice"),
        ({"context_bound": 0}, "context_bound"),
        ({"arm": ""}, "must have a name"),
    ],
)
def test_settings_that_cannot_be_used(changes, problem):
    """They are refused before the first record is read."""

    def never():
        raise AssertionError
        yield

    with pytest.raises(UsageError, match=problem):
        read(never(), **changes)


def test_arms_are_not_collected_from_the_logs(tmp_path):
    path = tmp_path / "logs.csv"
    path.write_text("item,click\n14,1\n3,0\n")
    with pytest.raises(UsageError, match="would be released"):
        read(path, catalogue=f"{path}:item", context_columns=(), propensity=None)


def test_real_logs(shared_data):
    logs = read_bandit_logs(
        shared_data / "obd_random_men.csv.gz",
        arm="item_id",
        reward="click",
        catalogue=f"{shared_data / 'obd_men_item_context.csv'}:item_id",
        reward_range=(0, 1),
        propensity="propensity_score",
        context_columns=[f"user_feature_{i}:8" for i in range(4)],
    )
    assert len(logs.catalogue) == 34
    assert logs.contexts.shape == (10_000, 32)
    assert np.isclose(np.linalg.norm(logs.contexts, axis=1), 1, rtol=0, atol=1e-11).all()
    assert set(logs.rewards.tolist()) == {0.0, 1.0}
    assert 0.002 < logs.rewards.mean() < 0.008
    assert np.bincount(logs.arms, minlength=34).min() > 200, "it was drawn uniformly"
    assert (logs.propensities == 1 / 34).all()
