"""Prints as JSON time and peak memory of privatizing a large file, with and without persons.

    python benchmarks/speed/privatize_memory.py [--megabytes 1000]

The peer is a program that only reads and writes the same lines as JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from _shared import python, run, show, versions

COPY = (
    "import json, sys\n"
    "with open(sys.argv[1], 'rb') as source, open(sys.argv[2], 'wb') as out:\n"
    "    for line in source:\n"
    "        out.write(json.dumps(json.loads(line)).encode() + b'\\n')\n"
)


def write(path: Path, megabytes: int, *, persons: bool) -> int:
    """Write raw judgments of about 700 bytes each; return how many."""
    count, size = 0, 0
    with path.open("wb") as file:
        while size < megabytes * 10**6:
            row = {"prompt": f"Question {count}", "chosen": "yes " * 80, "rejected": "no " * 100}
            row |= {"person": f"p{count % 50_000}"} if persons else {}
            size += file.write(json.dumps(row).encode() + b"\n")
            count += 1
    return count


def measure(megabytes: int) -> dict[str, Any]:
    """Return seconds and megabytes for both kinds of file."""
    results = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, out = folder / "raw.jsonl", folder / "private.jsonl"
        for kind in ("no persons", "persons"):
            records = write(source, megabytes, persons=kind == "persons")
            peer_seconds, _ = run(python("-c", COPY, str(source), str(folder / "copy.jsonl")))
            seconds, memory = run(
                python("-m", "sordino", "privatize", str(source), "--epsilon", "1", "--out",
                       str(out), "--force", "--ledger", str(folder / f"{records}{kind[:2]}.db"))
            )  # fmt: skip
            results[kind] = {
                "records": records,
                "seconds": round(seconds, 1),
                "records_per_second": round(records / seconds),
                "peak_resident_megabytes": round(memory),
                "ratio_to_reading_and_writing_once": round(seconds / peer_seconds, 2),
            }
    return {
        "name": "privatize-memory",
        "megabytes": megabytes,
        "results": results,
        "versions": versions("sordino", "numpy"),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    show(measure(**vars(parser.parse_args())))
