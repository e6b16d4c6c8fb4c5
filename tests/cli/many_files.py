"""Judgments in many files: texts, or vectors in Parquet, for tests of what reads them in chunks."""

import numpy as np
import pytest

from .conftest import CANARY

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

GOOD = ["calm", "bright", "short", "plain", "warm", "clear", "kind", "brief"]
BAD = ["wordy", "vague", "loud", "cold", "long", "harsh", "odd", "rude"]


def text_rows(n, *, first=0, people=False):
    """Judgments in which words decide, mostly; every text holds a canary."""
    generator = np.random.default_rng(first)
    rows = []
    for index in range(first, first + n):
        good, bad = (
            f"{CANARY} " + " ".join(generator.choice(words, 3)) + f" {index}"
            for words in (GOOD, BAD)
        )
        chosen, rejected = (bad, good) if generator.random() < 0.1 else (good, bad)
        row = {"prompt": f"{CANARY} {index}", "chosen": chosen, "rejected": rejected}
        rows.append(row | ({"person": f"p{index % 20}"} if people else {}))
    return rows


def write_vectors(path, n, *, d=6, seed=0, **columns):
    """Feature differences in a file, with labels that follow them."""
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(n, d)) / np.sqrt(d)
    labels = (generator.random(n) < 1 / (1 + np.exp(-3 * rows[:, 0]))).astype(np.int8)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), d)
    table = pa.table({"difference": lists, "label": labels} | columns)
    parquet.write_table(table, path, row_group_size=100)
    return rows, labels


def texts_in(folder):
    """Write a folder of three files of texts, and return where it is."""
    (folder / "texts").mkdir()
    for file in range(3):
        folder.write(f"texts/{file}.jsonl", text_rows(100, first=100 * file, people=True))
    return folder


def vectors_in(folder):
    """Write a folder of three files of vectors, and return where it is."""
    (folder / "vectors").mkdir()
    for file in range(3):
        write_vectors(folder / f"vectors/{file}.parquet", 300, seed=file)
    return folder
