"""Declared columns: what is a number and what is hashed is said by the user, never by the cells."""

import hashlib
import json
import math

import numpy as np
import pytest

from sordino.errors import UsageError
from sordino.preferences import bandit_logs
from sordino.preferences.bandit_logs import ContextColumn, columns_of, whole_text

CITIES = ["Berlin", "東京", "", "a:b", "Berlin ", "x" * 999]


@pytest.mark.parametrize(
    ("declared", "name", "buckets"),
    [
        ("age", "age", None),
        ("city:8", "city", 8),
        ("city:1", "city", 1),
        ("a:b:65536", "a:b", 65536),
        ("time 12:", "time 12:", None),
        (":8", ":8", None),
        ("city:-8", "city:-8", None),
        ("city:٨", "city:٨", None),
        ("city:0000000008", "city:0000000008", None),
    ],
)
def test_what_a_declaration_says(declared, name, buckets):
    column = ContextColumn.of(declared)
    assert (column.name, column.buckets) == (name, buckets)
    assert column.width == (buckets or 1)
    assert str(column) == declared
    assert ContextColumn.of(column) is column


@pytest.mark.parametrize("declared", ["", "city:0", "city:65537", 5, None, ("a", 8)])
def test_declarations_that_cannot_be_used(declared):
    with pytest.raises(UsageError):
        ContextColumn.of(declared)


@pytest.mark.parametrize("declared", ["age", 5, None, {"age": 8}])
def test_a_list_of_columns_is_a_list(declared):
    with pytest.raises(UsageError, match="context_columns must be a list"):
        columns_of("context_columns", declared)


def test_no_column_twice():
    with pytest.raises(UsageError, match="twice"):
        columns_of("context_columns", ["city:8", "city"])
    assert columns_of("context_columns", iter(["a", "b:2"])) == (
        ContextColumn("a"),
        ContextColumn("b", 2),
    )


@pytest.mark.parametrize("cell", CITIES)
def test_a_bucket_is_a_public_rule(cell):
    """The rule is written out here once more: other programs must find the same bucket."""
    name, text = b"city", cell.strip().encode()
    framed = b"".join(len(part).to_bytes(8, "big") + part for part in (name, text))
    first = int.from_bytes(hashlib.sha256(framed).digest()[:8], "big")
    assert ContextColumn("city", 1000).reader()(cell) == first * 1000 // 2**64


def test_the_memory_of_buckets_changes_nothing(monkeypatch):
    texts = [f"text {i % 7}" for i in range(50)]
    before = list(map(ContextColumn("city", 99).reader(), texts))
    monkeypatch.setattr(bandit_logs, "_CACHED", 2)
    assert list(map(ContextColumn("city", 99).reader(), texts)) == before


def test_one_text_for_one_value():
    read = ContextColumn("city", 10**4).reader()
    for group in (["14", 14, " 14\n", np.int64(14)], ["0.5", 0.5, np.float64(0.5)]):
        assert len(set(map(read, group))) == 1
    assert len({read(None), read(""), read(math.nan)}) == 1
    assert len(set(map(read, ["14", "14.0", "014", 14.5]))) == 4
    assert read("\ud800") == read(json.loads('"\\ud800"'))


@pytest.mark.parametrize("cell", [[], {}, True, b"x", object()])
def test_what_is_no_text_has_no_bucket(cell):
    assert math.isnan(ContextColumn("city", 8).reader()(cell))


@pytest.mark.parametrize(
    ("cell", "number"),
    [(1, 1.0), ("1", 1.0), (" -2.5e1 ", -25.0), (True, 1.0), (np.float32(0.5), 0.5), ("1e-400", 0)],
)
def test_numbers(cell, number):
    assert ContextColumn("age").reader()(cell) == number


@pytest.mark.parametrize(
    "cell",
    [None, "", "x", "nan", "inf", "-Infinity", "1e400", "1_0", math.nan, math.inf, 10**400, [], 1j],
)
def test_what_is_no_number(cell):
    assert math.isnan(ContextColumn("age").reader()(cell))


def test_a_number_of_thousands_of_digits_is_no_text():
    assert whole_text(10**5000) is None
