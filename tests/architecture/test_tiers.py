"""How many of the deep tests run where time is short."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("minutes", "says"), [("5", "1 passed"), ("0", "1 skipped")])
def test_no_test_begins_when_the_minutes_are_over(monkeypatch, minutes, says):
    monkeypatch.delenv("SORDINO_TESTS_UNTIL", raising=False)  # of a run that this one is part of
    test = "tests/unit/test_validate.py::test_one_of"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--for-minutes", minutes, test],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert says in done.stdout
