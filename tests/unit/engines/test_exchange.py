"""A shuffle through files: every row arrives once, in one order, whoever wrote it last."""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.engines import exchange as folders
from sordino.engines.exchange import PARTS, Exchange, opened_exchange
from sordino.errors import FileSystemError

ROW = [("who", "<u8", 2), ("row", "<u8")]


def rows_of(numbers):
    rows = np.zeros(len(numbers), ROW)
    rows["who"], rows["row"] = np.asarray(numbers, dtype=np.uint64)[:, None], numbers
    return rows


chunks_of_rows = st.lists(
    st.lists(st.tuples(st.integers(0, PARTS - 1), st.integers(0, 2**63)), max_size=30),
    min_size=1, max_size=6,
)  # fmt: skip


@settings(max_examples=10)
@given(chunks_of_rows, st.randoms(use_true_random=False))
def test_every_row_arrives_once_in_the_order_of_chunks_and_rows(chunks, order):
    with opened_exchange(ROW, None) as shuffle:
        tasks = list(enumerate(chunks)) * 2  # each is run twice
        order.shuffle(tasks)
        for number, chunk in tasks:
            rows = rows_of([row for _, row in chunk])
            shuffle.write(number, rows, np.array([part for part, _ in chunk], dtype=np.int64))
        for part in range(PARTS):
            expected = [row for chunk in chunks for at, row in chunk if at == part]
            assert shuffle.read(part, len(chunks))["row"].tolist() == expected
    assert not Path(shuffle.folder).exists()


def test_a_missing_chunk_is_refused(tmp_path):
    shuffle = Exchange(str(tmp_path), ROW)
    shuffle.write(0, rows_of([1]), np.array([5]))
    shuffle.write(2, rows_of([1]), np.array([5]))
    with pytest.raises(FileSystemError, match="cannot be read"):
        shuffle.read(5, 3)


@pytest.mark.parametrize("size", [0, 10, 8 * PARTS, 8 * (PARTS + 1) + 24, -1])
def test_a_chunk_that_was_cut_short_is_refused(tmp_path, size):
    """Also between two rows, where what is left would look whole."""
    shuffle = Exchange(str(tmp_path), ROW)
    shuffle.write(0, rows_of([1, 2, 3]), np.array([PARTS - 1] * 3))
    [path] = tmp_path.iterdir()
    os.truncate(path, size if size >= 0 else path.stat().st_size - 1)
    with pytest.raises(FileSystemError, match="cut short"):
        shuffle.read(PARTS - 1, 1)


@pytest.mark.parametrize("part", [-1, PARTS])
def test_a_row_for_no_part_is_never_lost_without_a_word(tmp_path, part):
    with pytest.raises(AssertionError):
        Exchange(str(tmp_path), ROW).write(0, rows_of([1]), np.array([part]))


def test_a_machine_that_does_not_see_the_folder_says_what_to_do(tmp_path):
    shuffle = Exchange(str(tmp_path / "elsewhere"), ROW)
    with pytest.raises(FileSystemError, match="--scratch"):
        shuffle.write(0, rows_of([1]), np.array([0]))
    with pytest.raises(FileSystemError, match="--scratch"):
        shuffle.read(0, 1)


def test_only_this_user_reads_the_folder_and_it_goes_with_an_error(tmp_path):
    def fail():
        with opened_exchange(ROW, tmp_path) as shuffle:
            assert Path(shuffle.folder).parent == tmp_path
            assert Path(shuffle.folder).stat().st_mode & 0o077 == 0
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_removed_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(folders.shutil, "rmtree", lambda *_, **__: None)
    monkeypatch.setattr(folders, "_TRIES", 2)
    with pytest.warns(UserWarning, match="could not be removed"), opened_exchange(ROW, tmp_path):
        pass


def test_what_a_late_task_still_writes_is_removed_as_well(tmp_path, monkeypatch):
    late = iter([True])
    real = folders.shutil.rmtree

    def rmtree(folder, **options):
        if next(late, False):
            return
        real(folder, **options)

    monkeypatch.setattr(folders.shutil, "rmtree", rmtree)
    with warnings.catch_warnings(), opened_exchange(ROW, tmp_path):
        warnings.simplefilter("error")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_another_run_tidied_away_at_its_birth_is_made_again(tmp_path, monkeypatch):
    """Until its owner holds it, it looks like one that a killed run left."""
    honest, lost = folders.sole_holder, iter([True])

    def tidied(owner, *said):
        if owner.parent.parent == tmp_path and next(lost, False):
            owner.parent.rmdir()
        return honest(owner, *said)

    monkeypatch.setattr(folders, "sole_holder", tidied)
    with opened_exchange(ROW, tmp_path) as shuffle:
        assert [Path(shuffle.folder)] == list(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []
