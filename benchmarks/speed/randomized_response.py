"""Prints as JSON what one randomized label costs, against OpenDP's exact sampler per label.

python benchmarks/speed/randomized_response.py [--n 10000000]
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import opendp.prelude as dp
from _shared import show, versions

from sordino._random import SystemEntropy
from sordino.mechanisms.randomized_response import RandomizedResponse

PEER_LABELS = 20_000


def measure(n: int) -> dict[str, Any]:
    """Return nanoseconds per label of both, in the same run."""
    dp.enable_features("contrib")
    coin = RandomizedResponse(1.0)
    labels = np.random.default_rng(0).integers(0, 2, size=n, dtype=np.int8)
    peer = dp.m.make_randomized_response_bool(prob=1 - coin.flip_probability)
    start = time.perf_counter()
    for label in labels[:PEER_LABELS].astype(bool).tolist():
        peer(label)
    theirs = (time.perf_counter() - start) / PEER_LABELS * 1e9
    runs = []
    for _ in range(5):
        start = time.perf_counter()
        answers = coin.release(labels, entropy=SystemEntropy())
        runs.append((time.perf_counter() - start) / n * 1e9)
    return {
        "name": "randomized-response",
        "labels": n,
        "nanoseconds_per_label": round(sorted(runs)[2], 1),
        "share_flipped": round(float((answers != labels).mean()), 5),
        "peer": {
            "name": "opendp make_randomized_response_bool, one call per label",
            "nanoseconds_per_label": round(theirs),
        },
        "ratio": round(theirs / sorted(runs)[2]),
        "versions": versions("sordino", "numpy", "opendp"),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=10_000_000)
    show(measure(**vars(parser.parse_args())))
