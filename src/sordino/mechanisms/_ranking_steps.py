"""Public candidates in whole steps of a grid, and what a ballot makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from jaxtyping import Float, Int32, Int64

from sordino.errors import UsageError
from sordino.mechanisms._grid import whole_steps
from sordino.mechanisms._ranking_sensitivity import borda_moves, choice_moves
from sordino.mechanisms._row_sums import Rows, dense_parts
from sordino.mechanisms._slates import centering, groups_by_size, pair_signs, part_of
from sordino.mechanisms.ellipsoid import (
    Ellipsoid,
    isotropic_ellipsoid,
    least_noise_ellipsoid,
)

__all__ = ["SlateSteps", "Statistic", "ballot_sum", "middle", "of_slates", "top_sum"]

Statistic: TypeAlias = Literal["borda", "first-choice"]

_FINER: Final = 2**6  # moves are rounded up to this part of a step
_MOST: Final = 2**62  # of a sum: it fits 64 bits
_PART: Final = 1 << 20


@dataclass(frozen=True, eq=False)
class SlateSteps:
    """Candidates on the grid.

    Attributes:
        ellipsoid: The shape of the noise.
        unit: What one step is worth in whitened coordinates.
        vectors: κ, one for each flat candidate: its vector less the mean of its slate, weighted,
            in steps. Those of slates that nobody ranks are zeros.
        moves: How far one ballot on each slate can move the sum at most, in 64ths of a step.
    """

    ellipsoid: Ellipsoid
    unit: float
    vectors: Int32[np.ndarray, "m r"]
    moves: Int64[np.ndarray, " slates"]


def of_slates(
    features: Rows,
    starts: Int64[np.ndarray, " s"],
    ranked: Int64[np.ndarray, " n"],
    statistic: Statistic,
    *,
    shaped: bool,
    grid: float,
) -> SlateSteps:
    """Return the candidates of the slates that are ranked, in steps.

    Source:
        docs/central.md, "Rankings".

    Args:
        features: φ of every flat candidate.
        starts: Where slates start.
        ranked: The slate of every ballot that counts.
        statistic: Which sum is released.
        shaped: Noise in the shape of the least variance that holds the pair differences.
        grid: Step of the grid, relative to the longest weighted vector.

    Raises:
        DataError: No two candidates of a slate differ.
        UsageError: A sum could take more than 62 bits.
    """
    live = np.unique(ranked)
    rows, cuts = part_of(starts, live)
    known: Any = features[rows]
    fit = least_noise_ellipsoid if shaped else isotropic_ellipsoid
    ellipsoid = fit(pair_signs(cuts) @ known)
    weighted, longest = _weighted(known, cuts, ellipsoid, statistic)
    unit = grid * 2 * longest
    vectors = np.zeros((int(starts[-1]), ellipsoid.rank), dtype=np.int32)
    vectors[rows] = whole_steps(weighted / unit, 1 / grid)
    _refuse_long_sums(cuts, len(ranked), grid)
    moves = np.zeros(len(starts) - 1, dtype=np.int64)
    moves[live] = _moves(vectors[rows], cuts, statistic)
    return SlateSteps(ellipsoid, unit, vectors, moves)


def _weighted(
    features: Any, starts: Int64[np.ndarray, " s"], ellipsoid: Ellipsoid, statistic: Statistic
) -> tuple[Float[np.ndarray, "m r"], float]:
    """Return whitened vectors less their slate's mean, times w/2 or 1, and the longest."""
    sizes = np.repeat(np.diff(starts), np.diff(starts)).astype(np.float64)
    weights = 1 / (sizes * (sizes - 1)) if statistic == "borda" else np.ones(len(sizes))
    turned = np.ascontiguousarray(ellipsoid.whiten.T)
    inside = np.empty((len(sizes), ellipsoid.rank))
    centered = centering(starts) @ features
    for part, values in dense_parts(centered):
        inside[part] = (values @ turned) * weights[part, np.newaxis]
    return inside, float(np.sqrt(np.einsum("ij,ij->i", inside, inside).max()))


def _moves(
    vectors: Int32[np.ndarray, "m r"], starts: Int64[np.ndarray, " s"], statistic: Statistic
) -> Int64[np.ndarray, " slates"]:
    """Return how far one ballot moves the sum at most, rounded up.

    Doubled ranks move by twice what ranks do. The mean of a tie for the first choice is rounded
    to whole steps, at most half a step away in each coordinate, on both sides of a change.
    """
    found = np.empty(len(starts) - 1)
    for group in groups_by_size(starts):
        inside = vectors[group.rows.T].astype(np.int64)
        if statistic == "borda":
            found[group.slates] = 2 * borda_moves(inside)
        else:
            found[group.slates] = choice_moves(inside) + np.sqrt(vectors.shape[1])
    return np.ceil(found * _FINER).astype(np.int64)


def _refuse_long_sums(starts: Int64[np.ndarray, " s"], ballots: int, grid: float) -> None:
    """Refuse what might not fit 64 bits: K² (1/2 + grid)/grid steps for each ballot."""
    size = int(np.diff(starts).max())
    if ballots * size**2 / grid > _MOST:
        raise UsageError(
            f"A sum over so many ballots of {size} candidates could pass 62 bits on the grid "
            f"{grid!r}. Nothing was released. Choose a coarser grid."
        )


def middle(
    features: Rows, starts: Int64[np.ndarray, " s"], ranked: Int64[np.ndarray, " n"]
) -> Float[np.ndarray, " d"]:
    """Return Σ over ballots of the mean of their slate: what no order changes, and public.

    w Σ_a (K − rank_a) = 1 for every order, as is the number of first choices.

    Source:
        docs/central.md, "Rankings".
    """
    sizes = np.diff(starts)
    shares = np.bincount(ranked, minlength=len(sizes)) / sizes
    known: Any = features
    return np.asarray(known.T @ np.repeat(shares, sizes))


def ballot_sum(
    vectors: Int32[np.ndarray, "m r"],
    rows: Int64[np.ndarray, " f"],
    sizes: Int64[np.ndarray, " f"],
    doubled: Int64[np.ndarray, " f"],
) -> Int64[np.ndarray, " r"]:
    """Return Σ (K + 1 − 2·rank)κ exactly.

    Args:
        vectors: κ of every flat candidate.
        rows: Which candidate every doubled rank is about.
        sizes: K of its ballot.
        doubled: Twice the average ranks.
    """
    times = np.zeros(len(vectors), dtype=np.int64)
    np.add.at(times, rows, sizes + 1 - doubled)
    return _times(times, vectors)


def top_sum(
    vectors: Int32[np.ndarray, "m r"],
    rows: Int64[np.ndarray, " f"],
    ballots: Int64[np.ndarray, " f"],
    doubled: Int64[np.ndarray, " f"],
) -> Int64[np.ndarray, " r"]:
    """Return Σ over ballots of κ of the best candidate, exactly; of a tie the rounded mean.

    The t candidates that tie as the best have the doubled rank t + 1, the least of the ballot.

    Args:
        vectors: κ of every flat candidate.
        rows: Which candidate every doubled rank is about.
        ballots: Of which ballot, never falling.
        doubled: Twice the average ranks.
    """
    begin = np.flatnonzero(np.diff(ballots, prepend=-1))
    least = np.minimum.reduceat(doubled, begin)
    owner = np.repeat(np.arange(len(begin)), np.diff(begin, append=len(ballots)))
    top = doubled == least[owner]
    alone = top & (doubled == 2)  # noqa: PLR2004 - twice rank 1
    total = _times(np.bincount(rows[alone], minlength=len(vectors)), vectors)
    tied = np.flatnonzero(top & ~alone)
    places = np.flatnonzero(np.diff(owner[tied], prepend=-1))
    ends = np.append(places, len(tied))
    step = max(1, _PART // vectors.shape[1] // max(1, int(least.max(initial=1))))
    for first in range(0, len(places), step):
        cuts = ends[first : first + step + 1]
        inside = vectors[rows[tied[cuts[0] : cuts[-1]]]].astype(np.int64)
        sums = np.add.reduceat(inside, cuts[:-1] - cuts[0], axis=0)
        count = np.diff(cuts)[:, np.newaxis]
        total += ((2 * sums + count) // (2 * count)).sum(axis=0)
    return total


def _times(
    times: Int64[np.ndarray, " m"], vectors: Int32[np.ndarray, "m r"]
) -> Int64[np.ndarray, " r"]:
    """Return Σ times·κ in 64-bit integers."""
    total = np.zeros(vectors.shape[1], dtype=np.int64)
    for part, values in dense_parts(vectors):
        total += times[part] @ values.astype(np.int64)
    return total
