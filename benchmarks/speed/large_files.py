"""Prints as JSON the peak memory of the commands on files larger than memory should hold.

    python benchmarks/speed/large_files.py [--megabytes 100 1000] [--kinds parquet arrow csv]

Memory that is the same for a file of 100 MB and one of 1 GB does not grow with the data. The texts
are those of real judgments, a few put together, if the folder ``shared/data`` lies beside this
checkout, else made up; every record has its own. Labels are randomized (`privatize`) and fitted
(`fit`), and `align --noise estimate` reads the same file. What takes too long is stopped after so
many seconds, and its peak is that of the passes until then.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from _shared import DATA, python, show, versions
from pyarrow import parquet

KINDS = ("parquet", "arrow", "csv", "csv.zst", "jsonl.gz")
BATCH = 4096
TOGETHER = 4


def texts() -> list[dict[str, str]]:
    """Return real judgments, or made-up ones about as long."""
    real = sorted(DATA.glob("hh_helpful_*.jsonl.gz"))
    lines = (line for file in real for line in gzip.decompress(file.read_bytes()).splitlines())
    names, rows = ("prompt", "chosen", "rejected"), list(map(json.loads, lines))
    if rows:
        return [
            {name: " ".join(row[name] for row in rows[at : at + TOGETHER]) for name in names}
            for at in range(len(rows) - TOGETHER)
        ]
    rng = random.Random(0)  # noqa: S311 (of texts)
    words = ["".join(rng.choices("abcdefghijklmnopqrst", k=rng.randint(2, 9))) for _ in range(5000)]
    return [{name: " ".join(rng.choices(words, k=60)) for name in names} for _ in range(4000)]


def batches(megabytes: int) -> Iterator[list[dict[str, str]]]:
    """Yield records of so many megabytes of text, some thousand at a time."""
    known, size, number = texts(), 0, 0
    while size < megabytes * 10**6:
        some = []
        for _ in range(BATCH):
            row = known[number % len(known)]
            some.append(row | {"prompt": f"{row['prompt']} ({number})"})
            size += sum(map(len, some[-1].values()))
            number += 1
        yield some


def write(path: Path, megabytes: int) -> int:
    """Write a file whose texts are so many megabytes, and return how many records it has."""
    count, kind = 0, path.name.split(".", 1)[1]
    schema = pa.schema([(name, pa.string()) for name in ("prompt", "chosen", "rejected")])
    packed = {"zst": "zstd", "gz": "gzip"}.get(path.suffix[1:])
    with pa.output_stream(str(path), compression=packed) as raw:
        if kind == "parquet":
            out: Any = parquet.ParquetWriter(raw, schema, compression="none", use_dictionary=False)
        elif kind == "arrow":
            out = pa.ipc.new_file(raw, schema)
        else:
            text = io.TextIOWrapper(raw, encoding="utf-8", newline="")
            out = csv.DictWriter(text, schema.names)
            out.writeheader()
        for some in batches(megabytes):
            count += len(some)
            if kind in ("parquet", "arrow"):
                out.write_batch(pa.RecordBatch.from_pylist(some, schema))
            elif kind.startswith("csv"):
                out.writerows(some)
            else:
                text.writelines(json.dumps(row) + "\n" for row in some)
        text.flush() if kind.startswith(("csv", "jsonl")) else out.close()
    return count


def measure(
    folder: Path, kind: str, megabytes: int, commands: list[str], seconds: float
) -> dict[str, Any]:
    """Return seconds and peak memory of the commands on one file, which is gone afterwards."""
    source, answers = folder / f"raw.{kind}", folder / "answers"
    found: dict[str, Any] = {"megabytes": megabytes, "records": write(source, megabytes)}
    found["bytes"] = source.stat().st_size
    many = ["--engine", "process", "--scratch", str(folder), "--json"]
    paid = ["--epsilon", "1", "--ledger", str(folder / "spend.db"), *many]
    words = {
        "privatize": [str(source), "--out", str(answers), *paid],
        "fit": [str(answers), "--out", str(folder / "reward.json"), *many],
        "align": [
            str(source),
            "--noise",
            "estimate",
            "--out",
            str(folder / "run"),
            "--epsilon",
            "1",
            "--ledger",
            str(folder / "curator.db"),
            *many,
        ],
    }
    for name in commands:
        found[name] = watched(python("-m", "sordino", name, *words[name]), seconds)
        print(kind, megabytes, name, found[name], file=sys.stderr)
    return found


def watched(command: list[str], most: float) -> dict[str, Any]:
    """Return seconds and peak resident megabytes of a process, and whether it was stopped."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    timer = threading.Timer(most, child.kill)
    timer.start()
    _, status, usage = os.wait4(child.pid, 0)
    timer.cancel()
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, -signal.SIGKILL):
        raise SystemExit(f"{' '.join(command[:4])} failed with {child.returncode}")
    return {
        "seconds": round(time.perf_counter() - start, 1),
        "core_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_resident_megabytes": round(usage.ru_maxrss / 1024),
        "ended": child.returncode == 0,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--commands", nargs="+", default=["privatize", "fit", "align"])
    parser.add_argument("--seconds", type=float, default=86_400.0)
    asked = parser.parse_args()
    runs = []
    for kind in asked.kinds:
        for size in asked.megabytes:
            with tempfile.TemporaryDirectory() as name:
                runs.append(
                    {"kind": kind} | measure(Path(name), kind, size, asked.commands, asked.seconds)
                )
    show({"name": "large-files", "runs": runs, "versions": versions("sordino", "numpy", "pyarrow")})
