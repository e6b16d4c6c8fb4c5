"""Files appear whole or not at all."""

import gzip
import json
import os

import pytest

from sordino._files import (
    atomic_draft,
    atomic_writer,
    explained,
    finite,
    read_json,
    refuse_existing,
    refuse_output,
    refuse_unwritable,
    sha256_of,
    to_json,
    write_json,
    write_text,
)
from sordino.errors import DataError, FileSystemError, UsageError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def write_half(path, error):
    with atomic_writer(path, force=True) as file:
        file.write(b"half")
        raise error


def test_written_whole(tmp_path):
    write_text(tmp_path / "a", "é\n")
    write_json(tmp_path / "b", {"x": 1})
    assert (tmp_path / "a").read_bytes() == "é\n".encode()
    assert json.loads((tmp_path / "b").read_text()) == {"x": 1}
    assert names(tmp_path) == ["a", "b"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit, OSError])
@pytest.mark.parametrize("name", ["a", "a.gz"])
def test_nothing_is_left_of_a_failure(tmp_path, error, name):
    expected = FileSystemError if error is OSError else error
    with pytest.raises(expected):
        write_half(tmp_path / name, error)
    assert names(tmp_path) == []


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failure_keeps_what_was_there(tmp_path, error):
    (tmp_path / "a").write_text("old")
    with pytest.raises(error):
        write_half(tmp_path / "a", error)
    assert (names(tmp_path), (tmp_path / "a").read_text()) == (["a"], "old")


def test_nothing_shows_before_the_end(tmp_path):
    with atomic_draft(tmp_path / "a") as draft:
        draft.file.write(b"x")
        assert not (tmp_path / "a").exists()
        draft.finish()
        draft.finish()
        assert sha256_of(draft.path) == sha256_of(draft.path)
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").read_bytes() == b"x"


def test_it_is_durable_before_it_shows(tmp_path, monkeypatch):
    order = []
    honest_sync, honest_replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (order.append("fsync"), honest_sync(fd)))
    monkeypatch.setattr(os, "replace", lambda *a: (order.append("replace"), honest_replace(*a)))
    honest_link = os.link
    monkeypatch.setattr(os, "link", lambda *a: (order.append("link"), honest_link(*a)))
    write_text(tmp_path / "a", "x")
    write_text(tmp_path / "a", "y", force=True)
    assert order == ["fsync", "link", "fsync", "replace"]


def test_packed_files_are_the_same_every_time(tmp_path):
    for name in ("a.gz", "b.gz"):
        with atomic_writer(tmp_path / name) as file:
            file.write(b"content")
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == b"content"
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_existing_files_are_refused(tmp_path):
    refuse_existing(tmp_path / "a", force=False)
    (tmp_path / "a").write_text("old")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("a", "link"):
        with pytest.raises(UsageError, match=r"exists already.*--force"):
            refuse_existing(tmp_path / name, force=False)
        refuse_existing(tmp_path / name, force=True)


def test_one_that_appears_meanwhile_is_kept(tmp_path):

    def write_while_another_does():
        with atomic_writer(tmp_path / "a") as file:
            file.write(b"new")
            (tmp_path / "a").write_text("other")

    with pytest.raises(UsageError, match="exists"):
        write_while_another_does()
    assert (names(tmp_path), (tmp_path / "a").read_text()) == (["a"], "other")


def test_a_database_is_never_overwritten(tmp_path):
    (tmp_path / "a").write_bytes(b"SQLite format 3\0 and so on")
    with pytest.raises(UsageError, match="ledger"):
        write_text(tmp_path / "a", "x", force=True)
    assert names(tmp_path) == ["a"]


def test_a_folder_is_never_overwritten(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(FileSystemError, match="folder"):
        refuse_output(tmp_path / "a", force=True)
    with pytest.raises(FileSystemError, match="folder"):
        write_text(tmp_path / "a", "x", force=True)


def test_places_that_cannot_be_written(tmp_path):
    refuse_unwritable(tmp_path / "a")
    assert names(tmp_path) == []
    for bad in (tmp_path / "none" / "a", tmp_path / ("x" * 300)):
        for write in (refuse_unwritable, lambda path: write_text(path, "x")):
            with pytest.raises(FileSystemError, match="cannot be written"):
                write(bad)


def test_explained_hides_paths():
    with pytest.raises(FileSystemError) as caught, explained("It cannot be read"):
        raise PermissionError(13, "Permission denied", "/a/secret/path")
    assert str(caught.value).startswith("It cannot be read (Permission denied).")
    assert "secret" not in str(caught.value)


def test_json_is_strict_and_finite():
    assert to_json({"é": [1]}) == '{\n "é": [\n  1\n ]\n}\n'
    with pytest.raises(ValueError, match="JSON"):
        to_json({"x": float("nan")})
    value = {"a": [float("nan"), (1.5, float("inf"))], "b": {"c": -float("inf")}, "d": "nan"}
    assert finite(value) == {"a": [None, [1.5, None]], "b": {"c": None}, "d": "nan"}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b"", "not a k file"),
        (b"{", "not a k file"),
        (b"[]", "not a k file"),
        (b"\xff", "not a k file"),
        (b"[" * 100_000, "not a k file"),
        (b'{"format": "other", "version": 1}', "not a k file"),
        (b'{"format": "k", "version": 3}', "newer"),
        (b'{"format": "k"}', "no version number"),
        (b'{"format": "k", "version": "1"}', "no version number"),
    ],
)
def test_json_of_ours_that_cannot_be_read(tmp_path, text, word):
    (tmp_path / "a").write_bytes(text)
    with pytest.raises(DataError, match=word):
        read_json(tmp_path / "a", kind="k", version=2, problem="No")


def test_json_of_ours(tmp_path):
    for version in (1, 2):
        write_json(tmp_path / "a", {"format": "k", "version": version}, force=True)
        assert read_json(tmp_path / "a", kind="k", version=2, problem="No")["version"] == version
    with pytest.raises(FileSystemError, match="cannot be read"):
        read_json(tmp_path / "none", kind="k", version=2, problem="No")
