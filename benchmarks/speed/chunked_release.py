"""Time a private release of labels, and its fit, from Parquet files too large for memory.

Prints one JSON object: for every number of pairs the seconds of each stage, the largest resident
memory of any worker, and passes over the files; then the slope of log seconds against log n, by
the wall and, in this process, by the time of its cores, which a busy machine does not stretch. The
peer in the same run is one bare pass over the same files that multiplies out their second moment
with plain pyarrow and numpy, one process for each core.

    python benchmarks/speed/chunked_release.py [--pairs N ...] [--engine process|ray] [--folder DIR]
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from multiprocessing import get_context
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from _shared import show, versions
from pyarrow import parquet

import sordino
from sordino.engines.engine import Engine, InProcess
from sordino.engines.ray_data import RayData
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.preferences.chunk_survey import survey_chunks
from sordino.preferences.chunks import find_chunks
from sordino.rewards.label_release import release_labels
from sordino.rewards.reward_fit import fit

D = 64
FILE = 1_000_000
GROUP = 50_000
LEVELS = 256  # of every number, so that files stay small


def reward() -> np.ndarray:
    """Return the weights behind the judgments."""
    return np.random.default_rng(0).normal(size=D) / math.sqrt(D)


def write_file(path: Path, n: int, seed: int) -> None:
    """Write made-up pairs of known reward."""
    rng = np.random.default_rng(seed)
    theta = reward().astype(np.float32)
    schema = pa.schema([("difference", pa.list_(pa.float32(), D)), ("label", pa.int8())])
    with parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, n, GROUP):
            rows = min(GROUP, n - start)
            codes = rng.integers(0, LEVELS, size=(rows, D), dtype=np.uint8)
            x = (codes.astype(np.float32) - 127.5) / np.float32(64 * math.sqrt(D))
            wins = rng.random(rows) < 1 / (1 + np.exp(-2 * (x @ theta)))
            flat = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), D)
            writer.write_batch(
                pa.record_batch([flat, pa.array(wins.astype(np.int8))], schema=schema)
            )


def second_moment(path: Path) -> np.ndarray:
    """Return the peer's work on one file."""
    total = np.zeros((D, D))
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=32_768, columns=["difference"]):
            rows = batch.column(0).flatten().to_numpy().reshape(-1, D).astype(np.float64)
            total += rows.T @ rows
    return total


class Watched:
    """The largest resident megabytes of this process and of a worker of Ray; core seconds of Ray.

    Attributes:
        here, worker: Megabytes.
    """

    def __init__(self) -> None:
        """Start at nothing."""
        self.here = self.worker = 0.0
        self._times: dict[int, list[float]] = {}  # of each process: before, and now

    def look(self, *, first: bool = False) -> None:
        """Take note of this process and all below it."""
        me = psutil.Process()
        self.here = max(self.here, me.memory_info().rss / 2**20)
        for child in me.children(recursive=True):
            with suppress(psutil.Error):
                now = sum(child.cpu_times()[:2])
                self._times.setdefault(child.pid, [now if first else 0.0, now])[1] = now
                if "ray::" in " ".join(child.cmdline()[:1]):
                    used = child.memory_info()
                    self.worker = max(self.worker, (used.rss - used.shared) / 2**20)

    @property
    def core_seconds(self) -> float:
        """Return the time of cores of all processes of Ray, its own included."""
        return sum(now - before for before, now in self._times.values())


@contextmanager
def watched() -> Iterator[Watched]:
    """Look five times a second."""
    found, over = Watched(), Event()
    found.look(first=True)

    def watch() -> None:
        while not over.wait(0.2):
            found.look()

    thread = Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
        found.look()


class Counted:
    """An engine that counts passes over the files."""

    def __init__(self, engine: Engine) -> None:
        """Use an engine."""
        self.engine = engine
        self.passes = 0

    def fold(
        self, chunks: Any, task: Callable[..., Any], add: Callable[..., Any], *, taken: Any = None
    ) -> Any:
        """Return the sum."""
        self.passes += 1
        return self.engine.fold(chunks, task, add, taken=taken)


def measure(folder: Path, n: int, engine: Engine) -> dict[str, Any]:
    """Return the stages of one run."""
    chunks = find_chunks(folder)
    counted, seconds = Counted(engine), {}
    budget = sordino.Guarantee(
        1.0, delta=1e-10, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    with tempfile.TemporaryDirectory() as kept, watched() as seen:
        ledger = sordino.Ledger.open(Path(kept) / "spend.db", data="made-up", budget=budget)
        cores = time.process_time()
        start = time.perf_counter()
        with survey_chunks(chunks, counted, scratch=folder.parent) as survey:
            seconds["survey"] = time.perf_counter() - start
            start = time.perf_counter()
            noise = LabelGaussian(1.0, delta=1e-10)
            released = release_labels(survey, noise, ledger=ledger)
            seconds["release"] = time.perf_counter() - start
            start = time.perf_counter()
            found = fit(released, ball=10.0)
            seconds["fit"] = time.perf_counter() - start
        cores = time.process_time() - cores
    start = time.perf_counter()
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        list(pool.map(second_moment, sorted(folder.glob("*.parquet"))))
    bare = time.perf_counter() - start
    total = sum(seconds.values())
    return {
        "pairs": n,
        "bytes": chunks.bytes,
        "seconds": seconds,
        "total_seconds": total,
        "core_seconds_here": cores,
        "core_seconds_of_ray": seen.core_seconds,
        "passes": counted.passes,
        "bare_pass_seconds": bare,
        "over_bare_passes": total / (bare * counted.passes),
        "largest_driver_mb": seen.here,
        "largest_worker_mb": seen.worker,
        "error": float(np.linalg.norm(found.weights - 2 * reward())),
    }


def slope(rows: list[dict[str, Any]], time_of: str) -> float | None:
    """Return by which power of n a time grows."""
    if len(rows) < 2:
        return None
    sizes = [math.log(row["pairs"]) for row in rows]
    times = [math.log(row[time_of]) for row in rows]
    return float(np.polyfit(sizes, times, 1)[0])


def main() -> None:
    """Write files, run, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--engine", choices=["process", "ray"], default="process")
    parser.add_argument("--folder", type=Path, help="where files are kept for the next run")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    place: AbstractContextManager[Any] = (
        nullcontext(asked.folder) if asked.folder else tempfile.TemporaryDirectory()
    )
    with place as top, RayData() if asked.engine == "ray" else nullcontext(InProcess()) as engine:
        rows = []
        for n in asked.pairs:
            folder = Path(top) / str(n)
            if not folder.exists():
                folder.mkdir(parents=True)
                for number, start in enumerate(range(0, n, FILE)):
                    write_file(folder / f"{number:05d}.parquet", min(FILE, n - start), number)
            rows.append(measure(folder, n, engine))
        found = versions("numpy", "pyarrow", *(["ray"] if asked.engine == "ray" else []))
        slopes = {"slope": slope(rows, "total_seconds")}
        if asked.engine == "process":
            slopes["slope_of_core_seconds"] = slope(rows, "core_seconds_here")
        show({"engine": asked.engine, "features": D, "runs": rows} | slopes | found)


if __name__ == "__main__":
    main()
