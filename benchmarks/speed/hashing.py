"""Prints as JSON how many preference pairs a second ``HashedText`` turns into differences.

The peer is scikit-learn's ``HashingVectorizer`` on the same answers, in the same run and on the
same core; it computes words and word pairs only, without the shape of an answer. The texts are
the public pairs in ``../shared/data`` if that folder is there, or else made-up ones of about
the same lengths.

    python benchmarks/speed/hashing.py [--repeats 7]
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import sklearn
from sklearn.feature_extraction.text import HashingVectorizer

import sordino
from sordino.preferences.features import HashedText, differences

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
Pairs = tuple[list[str], list[str], list[str]]


def real_pairs() -> Pairs | None:
    """Return prompts and two lists of answers from the public files, or None without them."""
    rows: list[dict[str, str]] = []
    for path in sorted(DATA.glob("hh_helpful_*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            rows += [json.loads(line) for line in lines]
    if not rows:
        return None
    prompts, first, second = ([row[k] for row in rows] for k in ("prompt", "chosen", "rejected"))
    return prompts, first, second


def made_up_pairs(n: int = 4413, seed: int = 0) -> Pairs:
    """Return made-up texts: 15,000 words of falling frequency, answers of 45 words on average."""
    generator = np.random.default_rng(seed)
    letters = generator.integers(97, 123, size=(15_000, 9), dtype=np.uint8)
    sizes = generator.integers(2, 8, size=15_000)
    words = [row[:size].tobytes().decode() for row, size in zip(letters, sizes, strict=True)]

    def texts(mean: float) -> list[str]:
        found = []
        for length in 1 + generator.geometric(1 / mean, size=n):
            picks = np.minimum(generator.zipf(1.25, size=length) - 1, 14_999)
            ends = generator.choice(["", "", "", "", "", "", "", ",", ".", "?"], size=length)
            found.append(" ".join(words[p] + e for p, e in zip(picks, ends, strict=True)))
        return found

    return texts(11), texts(45), texts(36)


def best_seconds(work: Callable[[], Any], repeats: int) -> float:
    """Return the least processor time of several runs, so that other work does not count."""
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return min(seconds)


def measure(repeats: int, dimension: int) -> dict[str, Any]:
    """Return both speeds on the same texts, and their ratio."""
    pairs = real_pairs()
    prompts, first, second = pairs or made_up_pairs()
    features = HashedText(dimension)
    peer = HashingVectorizer(n_features=dimension, ngram_range=(1, 2), alternate_sign=True)
    ours = best_seconds(lambda: differences(features, prompts, first, second), repeats)
    theirs = best_seconds(lambda: peer.transform(first) - peer.transform(second), repeats)
    return {
        "name": "hashing",
        "pairs_per_second": round(len(prompts) / ours),
        "peer": {
            "name": "sklearn.feature_extraction.text.HashingVectorizer",
            "settings": {"n_features": dimension, "ngram_range": [1, 2], "alternate_sign": True},
            "pairs_per_second": round(len(prompts) / theirs),
        },
        "ratio": round(theirs / ours, 2),
        "clock": "processor time, best of the repeats",
        "texts": "hh_helpful" if pairs else "made up, seed 0",
        "pairs": len(prompts),
        "dimension": dimension,
        "repeats": repeats,
        "versions": {
            "sordino": sordino.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "scikit-learn": sklearn.__version__,
        },
    }


def main() -> None:
    """Print the measurement as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--dimension", type=int, default=512)
    print(json.dumps(measure(**vars(parser.parse_args())), indent=2))


if __name__ == "__main__":
    main()
