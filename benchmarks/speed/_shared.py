"""What the scripts share: versions, real or made-up judgments, and whole-process timing."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of packages."""
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


def show(value: dict[str, Any]) -> None:
    """Print one measurement as JSON."""
    print(json.dumps(value, indent=2))


def run(command: Sequence[str]) -> tuple[float, float]:
    """Return wall seconds and peak resident megabytes of a whole process."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(command[:4])} failed with {child.returncode}")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def median_seconds(command: Sequence[str], repeats: int) -> float:
    """Return the median wall time of a whole process after one warm-up."""
    run(command)
    return statistics.median(run(command)[0] for _ in range(repeats))


def python(*arguments: str) -> list[str]:
    """Return a command of this interpreter."""
    return [sys.executable, *arguments]


__all__ = ["DATA", "median_seconds", "python", "run", "show", "versions"]
