"""Prints as JSON what it costs to add up chunks of files on Ray instead of in this process.

The work is a pass that every fit makes: the second moment of vectors in Parquet files. The peer of
Ray on some cores is the engine that needs nothing, in one process on one core, in the same run.
Beside it stand the resident memory of Ray's workers as the files grow, and the time to start Ray.

    python benchmarks/speed/engines.py [--n 1000000] [--large]

``--large`` adds 10,000,000 vectors (5 GB of files in the folder for temporary files).
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as in Ray's workers: one core a task
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import psutil
import pyarrow as pa
from _shared import show, versions
from pyarrow import parquet

from sordino.engines.engine import Engine, InProcess
from sordino.engines.ray_data import RayData
from sordino.preferences.chunks import Chunk, find_chunks
from sordino.preferences.parquet import column_parts, vectors

D = 64
GROUP = 1 << 14  # rows of a row group
FILE = 1 << 20  # rows of a file
WORKERS = ("ray::IDLE", "ray::MapBatches")


def write(folder: Path, n: int) -> None:
    """Write n vectors and labels."""
    for number, start in enumerate(range(0, n, FILE)):
        generator = np.random.default_rng(number)
        rows = min(FILE, n - start)
        values = pa.array(generator.normal(size=rows * D))
        columns = {
            "difference": pa.FixedSizeListArray.from_arrays(values, D),
            "label": generator.integers(0, 2, size=rows, dtype=np.int8),
        }
        path = folder / f"{number:04d}.parquet"
        parquet.write_table(pa.table(columns), path, row_group_size=GROUP, compression="none")


def moment(chunk: Chunk) -> np.ndarray:
    """Return the sum of xxᵀ over a chunk."""
    total = np.zeros((D, D))
    path = Path(chunk.path)
    for batch in column_parts(path, range(chunk.first, chunk.last), ["difference"], GROUP):
        rows = vectors(path.name, batch.column(0), D)
        total += rows.T @ rows
    return total


def plus(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the sum of two parts."""
    return np.asarray(one + other)


@contextmanager
def watched() -> Iterator[list[int]]:
    """Yield the largest resident memory of a worker of Ray, as it is seen ten times a second."""
    most, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            for one in psutil.Process().children(recursive=True):
                with suppress(psutil.Error, IndexError):
                    if one.cmdline()[0].startswith(WORKERS):
                        most[0] = max(most[0], one.memory_info().rss)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


def seconds(engine: Engine, chunks: tuple[Chunk, ...], repeats: int) -> tuple[float, np.ndarray]:
    """Return the least time of a pass, and the sum."""
    took = []
    for _ in range(repeats):
        start = time.perf_counter()
        total = engine.fold(chunks, moment, plus)
        took.append(time.perf_counter() - start)
    return min(took), total


def compared(ray: Engine, n: int, repeats: int) -> dict[str, Any]:
    """Return both times for n vectors, and the memory of workers."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), n)
        chunks = find_chunks(folder).chunks
        here, expected = seconds(InProcess(), chunks, repeats)
        with watched() as most:
            there, total = seconds(ray, chunks, repeats)
    return {
        "n": n,
        "pieces": len(chunks),
        "seconds_in_process": round(here, 2),
        "seconds_ray": round(there, 2),
        "ratio": round(here / there, 2),
        "same_bits": bool((total == expected).all()),
        "worker_resident_megabytes": round(most[0] / 2**20),
        "caller_resident_megabytes": round(psutil.Process().memory_info().rss / 2**20),
    }


def measure(n: int, cores: int, repeats: int, *, large: bool) -> dict[str, Any]:
    """Return all measurements."""
    sizes = [n // 10, n] + [10_000_000] * large
    start = time.perf_counter()
    with RayData(cores=cores) as ray:
        started = time.perf_counter() - start
        ray.fold(range(64), float, float.__add__)  # workers are there, as in any pass but the first
        results = [compared(ray, size, repeats) for size in sizes]
        start = time.perf_counter()
        ray.fold(range(64), float, float.__add__)
        empty = time.perf_counter() - start
    return {
        "name": "engines",
        "work": "second moment of vectors in Parquet files, uncompressed",
        "dimension": D,
        "cores_of_ray": cores,
        "repeats": repeats,
        "clock": "wall, best of the repeats; files are in the page cache",
        "results": results,
        "seconds_to_start_ray": round(started, 1),
        "seconds_of_an_empty_pass": round(empty, 2),
        "machine_cores": os.cpu_count(),
        "load_average": [round(value, 1) for value in os.getloadavg()],
        "versions": versions("sordino", "numpy", "pyarrow", "ray"),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--large", action="store_true")
    show(measure(**vars(parser.parse_args())))
