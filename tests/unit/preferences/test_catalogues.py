"""Catalogues: public names of arms, matched letter by letter, and what is known of each."""

from pathlib import Path

import numpy as np
import pytest

from sordino.errors import DataError, FileSystemError, UsageError
from sordino.preferences.bandit_logs import Catalogue

TABLE = ",id,size,kind,mixed,gap\n0,7,0.5,x,1,1\n1,a,-2,y,z,\n2, b ,1e3,x,3,3\n"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "arms.csv"
    path.write_text(TABLE)
    return path


def test_names_are_texts():
    given = Catalogue((" a", 14, "14.0", np.int64(3), "014"))
    assert given.names == ("a", "14", "14.0", "3", "014")
    assert len(given) == 5
    assert given.features is None
    assert repr(given) == "Catalogue(arms=5)"


@pytest.mark.parametrize(
    "names", [(), ("a", "b", "a"), (14, "14"), ("a", " a "), ("a", ""), ("a", " "), (1.5,), (None,)]
)
def test_names_that_cannot_be_used(names):
    with pytest.raises(DataError):
        Catalogue(names)


@pytest.mark.parametrize("names", ["ab", 5, None, {"a": 1}])
def test_names_are_a_list(names):
    with pytest.raises(UsageError, match="names must be a list"):
        Catalogue(names)


def test_duplicates_are_told_by_place():
    with pytest.raises(DataError, match=r"^names: entry 2 names an arm that names: entry 0 names"):
        Catalogue(("secret", "b", "secret "))


@pytest.mark.parametrize(
    "features",
    [
        np.ones(2),
        np.ones((3, 1)),
        np.ones((2, 0)),
        [["a"], ["b"]],
        [[1.0], [np.nan]],
        [[1], [1, 2]],
    ],
)
def test_features_that_cannot_be_used(features):
    with pytest.raises(DataError, match="features"):
        Catalogue(("a", "b"), features=features)


def test_features_cannot_be_changed_afterwards():
    given = np.ones((2, 1))
    known = Catalogue(("a", "b"), features=given)
    given[:] = 5
    assert known.features.tolist() == [[1.0], [1.0]]
    with pytest.raises(ValueError, match="read-only"):
        known.features[0] = 2


def test_places():
    known = Catalogue(("b", "14", "-3"))
    for arms in (
        ["b", 14, " 14 ", "x", -3, "14.0"],
        np.array(["b", "14", "14", "x", "-3", "B"]),
        np.array(["b", 14, "14", "x", -3, ""], dtype=object),
        (part for part in ("b", 14, 14, 99, -3, -1)),
    ):
        assert known.places(arms).tolist() == [0, 1, 1, -1, 2, -1]
    for dtype in (np.int64, np.int8):
        assert known.places(np.array([14, 3, -3, 14], dtype)).tolist() == [1, -1, 2, 1]
    assert known.places(np.array([14, 2**64 - 1], np.uint64)).tolist() == [1, -1]
    for empty in ([], np.array([]), np.array([], np.int64)):
        assert known.places(empty).shape == (0,)
    assert known.places(["b"]).dtype == np.int64
    assert Catalogue.numbered(3).places([2, 3, "1", "01", -1]).tolist() == [2, -1, 1, -1, -1]


@pytest.mark.parametrize(
    ("arms", "problem"),
    [
        (np.array([1.0, 2.0]), "dtype float64"),
        (np.array([True]), "dtype bool"),
        ([1, 2.5], "entry 1"),
        (["secret", None], "entry 1"),
        ([True], "entry 0"),
        ([["secret"], ["b"]], r"shape \(2, 1\)"),
        (np.zeros((2, 2), int), r"shape \(2, 2\)"),
        ("secret", "a list or an array"),
        ({"secret": 1}, "a list or an array"),
        (5, "a list or an array"),
    ],
)
def test_arms_that_cannot_be_used(arms, problem):
    with pytest.raises(DataError, match=f"^arms.*{problem}") as caught:
        Catalogue.numbered(3).places(arms)
    assert "secret" not in str(caught.value)


def test_a_file_of_names(table):
    assert Catalogue.read(table, arm="id").names == ("7", "a", "b")
    assert Catalogue.read(str(table), arm="id", features=False).features is None


def test_all_columns_of_numbers(table):
    """Neither the column without a name, nor one with a text or an empty cell."""
    found = Catalogue.read(table, arm="id", features=True)
    assert found.features.tolist() == [[0.5], [-2.0], [1000.0]]
    assert repr(found) == "Catalogue(arms=3, features=1)"


def test_listed_columns(table):
    found = Catalogue.read(table, arm="id", features=["kind:4", "size"]).features
    assert found.shape == (3, 5)
    assert found[:, 4].tolist() == [0.5, -2.0, 1000.0]
    assert found[:, :4].sum(axis=1).tolist() == [1.0, 1.0, 1.0]
    assert found[0, :4].tolist() == found[2, :4].tolist()


def test_files_that_cannot_be_used(table, tmp_path):
    with pytest.raises(DataError, match="line 2: field 'none' is missing"):
        Catalogue.read(table, arm="none")
    table.write_text("id\nsecret\nb\nsecret\n")
    with pytest.raises(DataError, match=r"line 4: field 'id' names .* line 2") as caught:
        Catalogue.read(table, arm="id")
    assert "secret" not in str(caught.value)
    table.write_text("id,x\n,1\n")
    with pytest.raises(DataError, match="line 2: field 'id' must name an arm"):
        Catalogue.read(table, arm="id")
    for text in ("", "id\n"):
        table.write_text(text)
        with pytest.raises(DataError, match="empty"):
            Catalogue.read(table, arm="id")
    with pytest.raises(FileSystemError):
        Catalogue.read(tmp_path / "none.csv", arm="id")
    with pytest.raises(UsageError, match="list of columns"):
        Catalogue.read(table, arm="id", features="size")


def test_whatever_says_a_catalogue(table):
    known = Catalogue(("x",))
    assert Catalogue.of(known) is known
    assert Catalogue.of(2).names == Catalogue.of("2").names == ("0", "1")
    assert Catalogue.of(np.int64(2)).names == ("0", "1")
    assert Catalogue.of(f"{table}:id").names == ("7", "a", "b")
    assert Catalogue.of(["x", 3]).names == Catalogue.of(np.array(["x", "3"])).names == ("x", "3")


@pytest.mark.parametrize("given", ["", "arms.csv", ":id", "arms.csv:", "-3", 2.0, None, {}, Path()])
def test_what_says_no_catalogue(given):
    with pytest.raises(UsageError, match="catalogue must be"):
        Catalogue.of(given)
