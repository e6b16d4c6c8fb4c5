"""What stands under a name stays: of runs that race, of pipes, and of streams that are odd."""

import json
import os
import signal
import stat
import subprocess
import sys

import pytest
from tests.tiers import few

from sordino._files import clear, write_text
from sordino.errors import UsageError
from sordino.preferences.pairs import read_manifest
from sordino.privacy.ledger import Ledger

from .conftest import pair


@pytest.fixture
def rows(folder):
    folder.write("in.jsonl", [pair(index) for index in range(500)])
    return folder


@pytest.mark.deep
def test_of_two_runs_to_one_name_the_loser_pays_nothing_and_takes_nothing(rows):
    words = ["privatize", "in.jsonl", "--epsilon", "1", "--out", "o.jsonl"]
    racing = [rows.start(*words, "--ledger", f"{name}.db") for name in "ab"]
    for process in racing:
        process.communicate(timeout=120)
    codes = [process.returncode for process in racing]
    assert sorted(map(bool, codes)) == [False, True]
    assert read_manifest(rows / "o.jsonl").epsilon == 1.0
    lost = rows / f"{'ab'[codes.index(max(codes))]}.db"
    assert not lost.exists() or not Ledger.read(lost).spends


def test_what_appeared_meanwhile_is_not_taken_away(tmp_path):
    (tmp_path / "a").write_text("another's")
    with pytest.raises(UsageError, match="exists already"):
        clear(tmp_path / "a", force=False)
    assert (tmp_path / "a").read_text() == "another's"


@pytest.mark.parametrize("name", ["pipe", "device", "link"])
def test_only_files_are_overwritten(tmp_path, name):
    path = tmp_path / name
    if name == "pipe":
        os.mkfifo(path)
    elif name == "device":
        path = tmp_path / "null"
        try:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("only root makes devices")
    else:
        (tmp_path / "file").write_text("old")
        path.symlink_to("file")
    with pytest.raises(UsageError, match=r"pipe|link"):
        write_text(path, "new", force=True)
    assert not path.is_file() or path.read_text() == "old"


@pytest.mark.parametrize("words", [["--ledger", "."], ["--ledger", ""], ["--out", "."]])
def test_a_folder_is_no_ledger_and_no_file(folder, words):
    folder.write("in.jsonl", [pair(index) for index in range(30)])
    said = folder.run("privatize", "in.jsonl", "--epsilon", "1", "--out", "o.jsonl", *words)
    assert said.code == 2, said.err


@pytest.mark.parametrize("odd", few(["ascii", "closed"], first=1))
def test_output_never_fails_after_the_work(folder, odd):
    folder.write("in.jsonl", [pair(index) for index in range(60)])
    command = [sys.executable, "-m", "sordino", "align", "in.jsonl", "--epsilon", "1", "--out", "o"]
    env = {**os.environ, "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    if odd == "ascii":
        done = subprocess.run(command, cwd=folder.path, env=env, capture_output=True, check=False)
    else:
        shell = ["sh", "-c", '"$@" >&- 2>&-', "sh", *command]
        done = subprocess.run(shell, cwd=folder.path, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "o/result.json").read_text())["guarantee"]["epsilon"] == 1.0
    assert Ledger.read(folder / ".sordino/ledger.db").total().epsilon == 1.0


def test_an_interrupt_while_modules_load_ends_in_one_line(folder):
    for wait in (0.15, 0.4):
        process = folder.start("--version")
        try:
            process.wait(wait)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        _, failed = process.communicate(timeout=60)
        if wait > 0.3:  # before that Python itself may not have come as far
            assert "Traceback" not in failed
            # A busy machine may not have come as far even then.
            assert process.returncode in {0, 130, -signal.SIGINT}
