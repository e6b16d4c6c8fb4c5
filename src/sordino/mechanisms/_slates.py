"""Slates of candidates in flat arrays, and the ranks that ballots give them.

Slate i holds the flat candidates ``starts[i]:starts[i+1]``. Ranks are doubled, so that average
ranks of ties are whole numbers: 2, 4, ..., 2K for a strict order of K candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64, Integer
from scipy import sparse

from sordino.errors import DataError

__all__ = [
    "SizeGroup",
    "centering",
    "checked_starts",
    "doubled_ranks",
    "groups_by_size",
    "pair_signs",
    "part_of",
]

_FEW = 9  # candidates up to which every pair is a row; above, candidates less their mean


@dataclass(frozen=True, eq=False)
class SizeGroup:
    """All slates with the same number of candidates.

    Attributes:
        slates: Which slates, in order.
        rows: Their flat candidates: position in the slate, then slate.
    """

    slates: Int64[np.ndarray, " g"]
    rows: Int64[np.ndarray, "k g"]

    @property
    def size(self) -> int:
        """Return the number of candidates, K."""
        return len(self.rows)


def checked_starts(starts: Integer[np.ndarray, " s"], m: int) -> Int64[np.ndarray, " s"]:
    """Return where slates start, with the end of the last one; there may be none.

    Raises:
        DataError: They do not cut ``m`` candidates into slates of at least two.
    """
    given = np.asarray(starts)
    if given.ndim != 1 or given.dtype.kind not in "iu" or not len(given):
        raise DataError("starts must be whole numbers in one dimension, from 0 to the end.")
    cuts = given.astype(np.int64)
    if cuts[0] != 0 or cuts[-1] != m:
        raise DataError(f"starts must begin with 0 and end with {m}, the number of candidates.")
    small = np.diff(cuts) < 2  # noqa: PLR2004
    if small.any():
        raise DataError(
            f"Every slate must hold at least two candidates: slate {int(np.argmax(small))} does "
            "not. Leave it out; it says nothing."
        )
    return cuts


def groups_by_size(starts: Int64[np.ndarray, " s"]) -> Iterator[SizeGroup]:
    """Yield the slates of each size, smallest first."""
    sizes = np.diff(starts)
    for size in np.unique(sizes):
        slates = np.flatnonzero(sizes == size)
        yield SizeGroup(slates, starts[slates] + np.arange(size)[:, np.newaxis])


def part_of(
    starts: Int64[np.ndarray, " s"], slates: Int64[np.ndarray, " g"]
) -> tuple[Int64[np.ndarray, " p"], Int64[np.ndarray, " t"]]:
    """Return the flat candidates of some slates one after the other, and where each starts."""
    sizes = np.diff(starts)[slates]
    cuts = np.concatenate([[0], np.cumsum(sizes)])
    inside = np.arange(cuts[-1]) - np.repeat(cuts[:-1], sizes)
    return np.repeat(starts[slates], sizes) + inside, cuts


def centering(starts: Int64[np.ndarray, " s"]) -> sparse.csr_array:
    """Return the matrix that subtracts from every candidate the mean of its slate."""
    sizes = np.diff(starts)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    m = int(starts[-1])
    member = sparse.csr_array((np.ones(m), (np.arange(m), owner)), shape=(m, len(sizes)))
    means = sparse.csr_array((1 / sizes[owner], (owner, np.arange(m))), shape=(len(sizes), m))
    return sparse.csr_array(sparse.eye_array(m, format="csr") - member @ means)


def pair_signs(starts: Int64[np.ndarray, " s"]) -> sparse.csr_array:
    """Return the matrix whose products with features are differences that span all of them.

    One row for each pair of candidates of a slate; for a slate of more than nine candidates one
    for each candidate, less the mean.
    """
    m, parts = int(starts[-1]), []
    for group in groups_by_size(starts):
        if group.size <= _FEW:
            high, low = np.triu_indices(group.size, 1)
            parts.append(_signs(group.rows[high].ravel(), group.rows[low].ravel(), m))
        else:
            parts.append(centering(starts)[np.sort(group.rows.ravel())])
    return sparse.csr_array(sparse.vstack(parts))


def _signs(
    plus: Int64[np.ndarray, " p"], minus: Int64[np.ndarray, " p"], m: int
) -> sparse.csr_array:
    """Return rows with a 1 and a −1 each."""
    count = np.arange(len(plus))
    values = np.repeat([1.0, -1.0], len(plus))
    places = np.concatenate([count, count]), np.concatenate([plus, minus])
    return sparse.csr_array((values, places), shape=(len(plus), m))


def doubled_ranks(
    values: Integer[np.ndarray, " m"], starts: Int64[np.ndarray, " s"]
) -> Int64[np.ndarray, " m"]:
    """Return doubled average ranks of ballots, one after the other, as 64-bit integers.

    Raises:
        DataError: They are not as many as the candidates, or a ballot's are not those of an
            order with ties; only its index is named.
    """
    ranks = np.asarray(values)
    if ranks.shape != (int(starts[-1]),) or ranks.dtype.kind not in "iu":
        raise DataError(
            f"Doubled ranks must be {int(starts[-1])} whole numbers in one dimension, one for each "
            "candidate of each ballot. Nothing was released."
        )
    ranks = ranks.astype(np.int64)
    for group in groups_by_size(starts):
        wrong = ~_averages(np.sort(ranks[group.rows], axis=0))
        if wrong.any():
            raise DataError(
                f"Doubled ranks of ballot {int(group.slates[np.argmax(wrong)])} are not those of "
                "an order: 2, 4, 6, ... from the best, and twice the average where candidates "
                "tie. Nothing was released."
            )
    return ranks


def _averages(ordered: Int64[np.ndarray, "k g"]) -> Bool[np.ndarray, " g"]:
    """Return which sorted columns hold twice the average of the places of every run of equals."""
    k = len(ordered)
    place = np.arange(1, k + 1)[:, np.newaxis]
    new = np.ones(ordered.shape, dtype=bool)
    new[1:] = ordered[1:] != ordered[:-1]
    last = np.ones(ordered.shape, dtype=bool)
    last[:-1] = new[1:]
    first_place = np.maximum.accumulate(np.where(new, place, 0), axis=0)
    last_place = np.minimum.accumulate(np.where(last, place, k + 1)[::-1], axis=0)[::-1]
    return np.asarray((first_place + last_place == ordered).all(axis=0))
