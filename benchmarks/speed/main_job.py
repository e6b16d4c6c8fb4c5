"""Prints as JSON the whole-process time of the main job and of the import.

Real judgments are used if the folder ``shared/data`` lies beside this checkout, else simulated
ones of the same number.

    python benchmarks/speed/main_job.py [--repeats 5]
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
from pathlib import Path
from typing import Any

from _shared import DATA, median_seconds, python, run, show, versions


def judgments(folder: Path) -> tuple[Path, str]:
    """Return a file of about 4,400 pairs, and where they come from."""
    path = folder / "pairs.jsonl"
    real = sorted(DATA.glob("hh_helpful_*.jsonl.gz"))
    if not real:
        run(python("-m", "sordino", "simulate", "pairs", "--n", "4400", "--out", str(path)))
        return path, "simulated"
    path.write_bytes(b"".join(gzip.decompress(file.read_bytes()) for file in real))
    return path, "hh_helpful"


def measure(repeats: int) -> dict[str, Any]:
    """Return seconds from process start, and what the import adds to scipy."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, kind = judgments(folder)
        seconds = {}
        for epsilon in ("1", "4"):
            job = "import subprocess, sys, tempfile; folder = tempfile.mkdtemp(); sys.exit("
            job += "subprocess.run([sys.executable, '-m', 'sordino', 'align', sys.argv[1], "
            job += "'--epsilon', sys.argv[2], '--out', folder + '/run', '--drop identical', "
            job += "'--json'], stdout=subprocess.DEVNULL, cwd=folder).returncode)"
            seconds[epsilon] = median_seconds(python("-c", job, str(source), epsilon), repeats)
    scipy = median_seconds(python("-c", "import scipy.optimize, scipy.special"), repeats)
    ours = median_seconds(python("-c", "import scipy.optimize, scipy.special, sordino"), repeats)
    used = median_seconds(
        python("-c", "import scipy.optimize, scipy.special, sordino; sordino.fit_reward"), repeats
    )
    return {
        "name": "main-job",
        "judgments": kind,
        "align_seconds_by_epsilon": {key: round(value, 2) for key, value in seconds.items()},
        "import_seconds": {
            "peer": {"name": "import scipy.optimize, scipy.special", "seconds": round(scipy, 3)},
            "beyond_scipy": round(ours - scipy, 3),
            "beyond_scipy_with_fit_reward": round(used - scipy, 3),
        },
        "repeats": repeats,
        "versions": versions("sordino", "numpy", "scipy"),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    show(measure(**vars(parser.parse_args())))
