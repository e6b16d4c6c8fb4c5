"""Which questions are held out: a public rule on their keys, the same for one file and for many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from jaxtyping import Bool, Integer

from sordino.errors import DataError

FOLDS: Final = 5
MEASURING: Final = 1  # the level of the folds that metrics are measured on


def held_out_questions(keys: Sequence[bytes]) -> Bool[np.ndarray, " n"]:
    """Return which questions are kept for metrics: one fifth of them, by their keys alone."""
    # Source: docs/central.md, "Metrics that are paid for".
    return np.asarray(folds_of(question_numbers(keys), MEASURING) == 0)


def question_numbers(keys: Sequence[bytes]) -> Integer[np.ndarray, " n"]:
    """Return 64 bits of every question's key."""
    return np.frombuffer(b"".join(key[:8] for key in keys), dtype=">u8").astype(np.uint64)


def folds_of(questions: Integer[np.ndarray, " n"], level: int) -> Integer[np.ndarray, " n"]:
    """Return a fold for every question by its key alone; a level mixes them in its own way."""
    mixed = (questions >> np.uint64(8 * level)) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray((mixed >> np.uint64(33)) % np.uint64(FOLDS), dtype=np.int64)


def refuse_one_side(*, pairs: int, held_out: int) -> None:
    """Refuse a hold-out of nothing or of everything; only where questions are public."""
    if not 0 < held_out < pairs:
        raise DataError(
            f"{pairs} pairs are too few different questions to hold out a fifth of them; a dozen "
            "is the least. Nothing was spent. Leave held_out out and buy no metrics."
        )
