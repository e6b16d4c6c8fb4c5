"""Vectors of contexts: bounded for each record on its own, and one rule for logs and queries."""

import gzip
import json

import numpy as np
import pytest

from sordino.errors import UsageError
from sordino.preferences import bandit_logs
from sordino.preferences.bandit_logs import bounded_vectors, columns_of, read_cells
from sordino.preferences.containers import UNNAMED
from sordino.preferences.features import usable_bound
from sordino.preferences.files import read_rows

COLUMNS = columns_of("x", ["age", "city:5", "height"])
ROWS = [
    {"age": 0.5, "city": "Berlin", "height": -1},
    {"age": "-3e200", "city": 14, "height": "2"},
    {"age": 0, "city": None, "height": 0.0, "other": "ignored"},
]


def test_each_row_is_scaled_and_then_shortened():
    rows = np.array([[0.6, 0.8], [3.0, 4.0], [-1e300, 1e300], [0.0, 0.0], [1e-300, 0.0]])
    found = bounded_vectors(rows, (), 2.0)
    assert found[0].tolist() == [0.3, 0.4]
    assert np.allclose(found[1:3], [[0.6, 0.8], [-(0.5**0.5), 0.5**0.5]], rtol=0, atol=1e-11)
    assert found[3:].tolist() == [[0.0, 0.0], [5e-301, 0.0]]


@pytest.mark.parametrize("bound", [1e-100, 0.3, 1.0, 7.0, 1e100])
def test_no_vector_is_longer_than_one(bound):
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(4000, 9)) * 10.0 ** generator.uniform(-120, 120, size=(4000, 1))
    rows[100] = 1e300  # over a small bound it would overflow
    rows[:100] *= bound / np.linalg.norm(rows[:100], axis=1, keepdims=True)  # at the bound
    found = bounded_vectors(rows, (), bound)
    assert np.linalg.norm(found, axis=1).max() <= 1
    assert np.linalg.norm(found, axis=1).max() > 1 - 1e-11


def test_a_row_does_not_depend_on_the_others(monkeypatch):
    generator = np.random.default_rng(1)
    rows = generator.normal(size=(200, 13))
    whole = bounded_vectors(rows, (), 3.0)
    alone = np.concatenate([bounded_vectors(row[None], (), 3.0) for row in rows])
    assert whole.tobytes() == alone.tobytes()
    monkeypatch.setattr(bandit_logs, "_BLOCK", 7)
    assert bounded_vectors(np.asfortranarray(rows), (), 3.0).tobytes() == whole.tobytes()


def test_every_source_gives_the_same_vectors(tmp_path):
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    table = '\ufeff,age,city,height\n0,0.5,Berlin,-1\r\n\n1,-3e200,"14", 2 \n2,0,,0\n'
    sources = [ROWS, iter(ROWS)]
    for name, text in (("x.jsonl", lines), ("x.csv", table), ("x.tsv", table.replace(",", "\t"))):
        (tmp_path / name).write_text(text)
        packed = tmp_path / f"{name}.gz"
        packed.write_bytes(gzip.compress(text.encode()))
        sources += [tmp_path / name, str(tmp_path / name), packed]
    cells = (read_cells(read_rows(source, unnamed=True), COLUMNS) for source in sources)
    found = {bounded_vectors(each, COLUMNS, 3.0**0.5).tobytes() for each in cells}
    assert len(found) == 1
    assert np.frombuffer(found.pop()).reshape(3, 7)[0, 0] == 0.5 / 3.0**0.5


@pytest.mark.parametrize("mark", [",", "\t"])
@pytest.mark.parametrize(
    ("header", "names"),
    [
        ("a,b,", ["a", "b"]),
        ("a,b,\r", ["a", "b"]),
        (",a,b", ["a", "b"]),
        ('"","a","b"', ["a", "b"]),
        (",,", []),
        ('a,"b,,c",', ["a", "b,,c"]),
        ('"b ""q"",",a,', ['b "q",', "a"]),
        ("a,b,c", ["a", "b", "c"]),
    ],
)
def test_columns_without_a_name(tmp_path, mark, header, names):
    path = tmp_path / ("x.csv" if mark == "," else "x.tsv")
    path.write_text(f"\n{header}\n1,2,3".replace(",", mark), newline="")
    ((_, row),) = read_rows(path, unnamed=True)
    named = [name for name in row if not name.startswith(UNNAMED)]
    assert named == [name.replace(",", mark) for name in names]
    assert list(row.values()) == ["1", "2", "3"]


@pytest.mark.parametrize("bound", [0, -1.0, 1e-101, 1e101, float("inf"), float("nan"), "1", None])
def test_bounds_that_cannot_be_used(bound):
    with pytest.raises(UsageError, match="context_bound"):
        usable_bound("context_bound", bound)
