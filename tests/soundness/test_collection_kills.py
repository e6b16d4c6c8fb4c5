"""Whatever is killed, every acknowledged answer is stored once, and nobody is above the cap.

The scripts that measure it at full size run here with few people and few kills. ``--early`` is a
planted bug, an acknowledgment before the commit, which shows that the kills are dense enough.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("psycopg")

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def run(script, *arguments):
    """Return what a script prints."""
    command = [sys.executable, str(BENCHMARKS / script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


@pytest.mark.deep
def test_nothing_acknowledged_is_lost_doubled_or_above_the_cap_when_something_is_killed():
    done = run("faults/killed_collection.py", "--kills", 3, "--restarts", 3, "--people", 6)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    kinds = {"sqlite", "postgresql"} & found.keys()
    assert "sqlite" in kinds
    for kind in kinds:
        counted = found[kind]["service_killed"]
        assert counted["acknowledged"] == 6 * found["cap"]
        assert counted["requests_sent_again"] > 0
        assert found[kind]["two_servers"]["both_stored"] == 0
    if "postgresql" in kinds:
        assert found["postgresql"]["database_killed"]["requests_sent_again"] > 0


@pytest.mark.deep
def test_the_kills_find_an_acknowledgment_that_comes_too_early():
    done = run("faults/killed_collection.py", "--kills", 20, "--people", 6, "--early")
    assert done.returncode != 0
    assert "An acknowledged" in done.stderr or "unknown-device" in done.stderr


@pytest.mark.deep
def test_many_people_at_once_lose_and_double_nothing():
    done = run("speed/collection_load.py", "--people", 40, "--answers", 25, "--pace", 0.1)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for kind in {"sqlite", "postgresql"} & found.keys():
        for way in ("paced", "closed", "closed_with_a_transaction_each"):
            assert found[kind][way]["submits"] == 1000
            assert found[kind][way]["lost"] == found[kind][way]["doubled"] == 0
