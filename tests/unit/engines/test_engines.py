"""What an engine is, and that the one that needs nothing needs nothing."""

import os
import subprocess
import sys

import numpy as np
import pytest
from tests.tiers import few

from sordino.engines.engine import InProcess, Rows, refuse_other_engines
from sordino.engines.ray_data import RayData
from sordino.errors import UsageError


def plus(one, other):
    return one + other


def test_chunks_are_added_one_after_the_other_and_counted():
    seen, done = [], []

    def task(chunk):
        seen.append(chunk)
        return 1 / (chunk + 1)

    chunks = [4, 2, 9, 1, 7]
    found = InProcess().fold(chunks, task, plus, taken=lambda *count: done.append(count))
    assert seen == chunks
    assert done == [(k + 1, 5) for k in range(5)]
    one, two, three, four, five = (1 / (chunk + 1) for chunk in chunks)
    assert found == ((one + two) + (three + four)) + five


def test_no_chunks_are_refused():
    with pytest.raises(UsageError, match="no piece"):
        InProcess().fold([], abs, plus)


@pytest.mark.parametrize("engine", [None, "ray", 3, InProcess, object()])
def test_what_computes_no_sums_is_refused(engine):
    with pytest.raises(UsageError, match="InProcess"):
        refuse_other_engines(engine)


def blocks(chunk):
    for start in range(chunk):
        yield start, np.full((2, 3), float(chunk)), "beside"


def test_rows_in_chunks_are_added_block_by_block_and_empty_chunks_left_out():
    rows = Rows(InProcess(), [0, 2, 0, 3], blocks, (10, 3))
    found = rows.fold(lambda first, block, beside: block.sum() + first, plus)
    assert found == 2 * 12 + 1 + 3 * 18 + 3
    assert repr(rows) == "Rows(shape=(10, 3))"
    assert repr(Rows.of(np.zeros(4))) == "Rows(shape=(4,))"


def test_no_rows_at_all_are_refused():
    with pytest.raises(UsageError, match="no row"):
        Rows(InProcess(), [0, 0], blocks, (0, 3)).fold(lambda *_: 1, plus)


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
        env=os.environ | {"COVERAGE_PROCESS_START": ""},
    )  # fmt: skip


@pytest.mark.parametrize("hidden", few(["ray", "ray.data", "pyarrow"], first=1))
def test_without_the_extra_the_error_says_how_to_install_it(hidden):
    """Whichever part of it is missing."""
    done = run(
        f"import sys\nsys.modules[{hidden!r}] = None\n"
        "from sordino.engines.ray_data import RayData\n"
        "from sordino.errors import MissingExtra\n"
        "try:\n    RayData()\nexcept MissingExtra as error:\n"
        "    print(error, error.__cause__, error.__suppress_context__ or error.__context__)"
    )
    assert done.stdout.strip() == (
        "This needs Ray. Nothing was read. Install it with: pip install 'sordino[scale]' None None"
    ), done.stdout + done.stderr[-2000:]


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"cores": 0}, "cores"),
        ({"cores": 1.5}, "cores"),
        ({"cores": True}, "cores"),
        ({"address": "auto", "cores": 2}, "cores"),
        ({"address": ""}, "address"),
        ({"address": 6379}, "address"),
    ],
)
def test_settings_out_of_range_are_refused_before_anything_starts(settings, word):
    with pytest.raises(UsageError, match=word):
        RayData(**settings)
