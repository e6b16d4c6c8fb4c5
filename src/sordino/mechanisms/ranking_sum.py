"""All that rankings say about a reward, released once as one sum with exact Gaussian noise.

Candidates and their features are public and only their order is private. The sum is that of ranks
(Borda) or that of first choices; what one ballot can move it by is a whole number of steps that is
bounded beforehand, for every order with ties: the weights of an order with ties are the average of
those of the strict orders that break its ties, and a norm of a difference is convex, so that it is
largest between two strict orders.

Slate i holds the flat candidates ``starts[i]:starts[i+1]``. Ranks are doubled, so that average
ranks of ties are whole numbers: 2, 4, ..., 2K for a strict order of K candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, lru_cache
from itertools import permutations
from typing import Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int32, Int64, Integer
from scipy import sparse

from sordino import _validate
from sordino._random import Entropy
from sordino.errors import DataError, UsageError
from sordino.privacy.guarantee import NeighboringRelation

from .base import WorstCase, gaussian_log_ratio
from .ellipsoid import Ellipsoid, checked_rows
from .grid import Matrix, PersonIds, dense_parts, root_above, whole_steps, with_noise
from .label_sum import FINER, DesignedSum, Order, SumMechanism, counted_rows

EXACT_UP_TO: Final = 5
"""Slates of at most so many candidates are tried on all pairs of orders."""

_UP: Final = 1 + 2.0**-24  # above rounding, which is below K²√r 2^-53 relative
_BLOCK: Final = 1 << 20


@lru_cache(maxsize=8)
def _order_differences(size: int) -> Int64[np.ndarray, "u k"]:
    """Return every difference of the ranks of two strict orders, once up to its sign."""
    orders = np.array(list(permutations(range(size))), dtype=np.int64)
    gaps: np.ndarray = np.unique((orders - orders[:, np.newaxis]).reshape(-1, size), axis=0)
    first = gaps[np.arange(len(gaps)), (gaps != 0).argmax(axis=1)]
    return np.asarray(gaps[first > 0])


def _borda_moves(
    vectors: Integer[np.ndarray, "g k r"] | Float[np.ndarray, "g k r"],
) -> Float[np.ndarray, " g"]:
    """Return an upper bound on ‖Σ_a (rank_a − rank′_a) v_a‖ over any two orders, of each slate."""
    # Exact up to five candidates. Above, the smaller of two bounds: Σ_j d_j ρ_(j) with d = (K−1,
    # K−1, K−3, K−3, ...) and ρ the lengths of v_a less their mean, longest first; and the largest
    # singular value of those vectors times √(K(K² − 1)/3), the distance between an order and its
    # reverse.
    # Source: docs/central.md, "Rankings".
    size = vectors.shape[1]
    found = np.empty(len(vectors))
    bound = _by_all_orders if size <= EXACT_UP_TO else _by_lengths_and_spectrum
    step = max(1, _BLOCK // (size * max(vectors.shape[2], size)))
    for first in range(0, len(vectors), step):
        part = vectors[first : first + step].astype(np.float64)
        found[first : first + step] = bound(part - part[:, :1])
    return found


def _by_all_orders(vectors: Float[np.ndarray, "g k r"]) -> Float[np.ndarray, " g"]:
    """Return the largest move over all pairs of strict orders, rounded up."""
    # A square is a sum of r·K² products, with absolute values of at most 12² times the square of
    # the longest vector together: it is wrong by less than (r + 32)·2^-44 of that square.
    g, size, width = vectors.shape
    gaps = _order_differences(size)
    products = (vectors @ vectors.transpose(0, 2, 1)).reshape(g, -1)
    pairs = (gaps[:, :, np.newaxis] * gaps[:, np.newaxis]).reshape(len(gaps), -1)
    largest = np.zeros(g)
    rows = max(1, _BLOCK // len(gaps))
    for first in range(0, g, rows):
        block = slice(first, first + rows)
        largest[block] = (products[block] @ pairs.T.astype(np.float64)).max(axis=1)
    longest = np.einsum("gkr,gkr->gk", vectors, vectors).max(axis=1)
    return np.asarray(np.sqrt(largest + longest * ((width + 32) * 2.0**-44)) * (1 + 2.0**-50))


def _by_lengths_and_spectrum(vectors: Float[np.ndarray, "g k r"]) -> Float[np.ndarray, " g"]:
    """Return the smaller of two bounds on the largest move, rounded up."""
    size = vectors.shape[1]
    centered = vectors - vectors.mean(axis=1, keepdims=True)
    lengths = np.sort(np.linalg.norm(centered, axis=2), axis=1)[:, ::-1]
    steps = size - 1 - 2 * (np.arange(size) // 2)
    products = centered @ centered.transpose(0, 2, 1)
    top = np.linalg.eigvalsh(products)[:, -1]
    slack = products.trace(axis1=1, axis2=2) * 2.0**-30  # more than eigenvalues lose to rounding
    spectral = np.sqrt((top + slack) * (size * (size**2 - 1) / 3))
    return np.asarray(np.minimum(lengths @ steps.astype(np.float64), spectral) * _UP)


def _choice_moves(
    vectors: Integer[np.ndarray, "g k r"] | Float[np.ndarray, "g k r"],
) -> Float[np.ndarray, " g"]:
    """Return the largest distance between two vectors of each slate, rounded up."""
    # Source: docs/central.md, "Rankings": one choice replaced by another; the mean of several
    # choices lies between them.
    found = np.zeros(len(vectors))
    for one in range(vectors.shape[1] - 1):
        for part in range(0, len(vectors), step := max(1, _BLOCK // vectors[0].size)):
            block = vectors[part : part + step].astype(np.float64)
            gaps = np.linalg.norm(block[:, one + 1 :] - block[:, one : one + 1], axis=2)
            found[part : part + step] = np.maximum(found[part : part + step], gaps.max(axis=1))
    return found * _UP


def _farthest_orders(
    vectors: Float[np.ndarray, "k r"], along: Float[np.ndarray, " r"] | None
) -> tuple[Int64[np.ndarray, " k"], Int64[np.ndarray, " k"]]:
    """Return the ranks of two orders that move the sum far, or farthest along a direction."""
    # Up to five candidates and without a direction they are as far apart as any two.
    size = len(vectors)
    if along is None and size <= EXACT_UP_TO:
        gaps = _order_differences(size)
        target = gaps[np.linalg.norm(gaps @ vectors, axis=1).argmax()]
        orders = np.array(list(permutations(range(1, size + 1))), dtype=np.int64)
        known = {tuple(order) for order in orders}
        one = next(order for order in orders if tuple(order - target) in known)
        return one, one - target
    centered = vectors - vectors.mean(axis=0)
    if along is None:
        along = np.linalg.svd(centered, full_matrices=False)[2][0]
    place = np.argsort(np.argsort(-(centered @ along), kind="stable")).astype(np.int64)
    return place + 1, size - place


_FEW = 9  # candidates up to which every pair is a row; above, candidates less their mean


@dataclass(frozen=True, eq=False)
class SizeGroup:
    """All slates with the same number of candidates."""

    slates: Int64[np.ndarray, " g"]  # which slates, in order
    rows: Int64[np.ndarray, "k g"]  # their flat candidates: position in the slate, then slate

    @property
    def size(self) -> int:
        """Return the number of candidates, K."""
        return len(self.rows)


def checked_starts(starts: Integer[np.ndarray, " s"], m: int) -> Int64[np.ndarray, " s"]:
    """Return where slates start, with the end of the last one; there may be none."""
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


def pair_rows(
    one: Int64[np.ndarray, " p"], other: Int64[np.ndarray, " p"], width: int
) -> sparse.csr_array:
    """Return a row for each pair of columns: 1 in the one, −1 in the other."""
    n = len(one)
    places = np.tile(np.arange(n), 2), np.concatenate([one, other])
    return sparse.csr_array((np.repeat([1.0, -1.0], n), places), shape=(n, width))


def _pair_signs(starts: Int64[np.ndarray, " s"]) -> sparse.csr_array:
    """Return the matrix whose products with features are differences that span all of them."""
    # One row for each pair of candidates of a slate; for a slate of more than nine candidates one
    # for each candidate, less the mean.
    m, parts = int(starts[-1]), []
    for group in groups_by_size(starts):
        if group.size > _FEW:
            parts.append(centering(starts)[np.sort(group.rows.ravel())])
            continue
        high, low = (group.rows[side].ravel() for side in np.triu_indices(group.size, 1))
        parts.append(pair_rows(high, low, m))
    return sparse.csr_array(sparse.vstack(parts))


def doubled_ranks(
    values: Integer[np.ndarray, " m"], starts: Int64[np.ndarray, " s"]
) -> Int64[np.ndarray, " m"]:
    """Return doubled average ranks of ballots, one after the other, as 64-bit integers."""
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


_Statistic: TypeAlias = Literal["borda", "first-choice"]

_MOST: Final = 2**62  # of a sum: it fits 64 bits
_PART: Final = 1 << 20


def _moves(
    vectors: Int32[np.ndarray, "m r"], starts: Int64[np.ndarray, " s"], statistic: _Statistic
) -> Int64[np.ndarray, " slates"]:
    """Return how far one ballot moves the sum at most, rounded up."""
    # Doubled ranks move by twice what ranks do. The mean of a tie for the first choice is rounded
    # to whole steps, at most half a step away in each coordinate, on both sides of a change.
    found = np.empty(len(starts) - 1)
    for group in groups_by_size(starts):
        inside = vectors[group.rows.T].astype(np.int64)
        if statistic == "borda":
            found[group.slates] = 2 * _borda_moves(inside)
        else:
            found[group.slates] = _choice_moves(inside) + np.sqrt(vectors.shape[1])
    return np.ceil(found * FINER).astype(np.int64)


def _times(
    times: Int64[np.ndarray, " m"], vectors: Int32[np.ndarray, "m r"]
) -> Int64[np.ndarray, " r"]:
    """Return Σ times·κ in 64-bit integers."""
    total = np.zeros(vectors.shape[1], dtype=np.int64)
    for part, values in dense_parts(vectors):
        total += times[part] @ values.astype(np.int64)
    return total


@dataclass(frozen=True, eq=False)
class RankingDesign(DesignedSum):
    """A release of rankings whose slates are known: a mechanism from orders to their noised sum.

    Guarantee:
        As :class:`RankingGaussian` states it; nothing here is read from a ballot. Shown by
        tests/soundness/test_ranking_gaussian_mechanism.py.
    """

    # Made by `prepare`, from public features alone.

    mechanism: RankingGaussian  # the settings
    _: KW_ONLY
    ellipsoid: Ellipsoid  # the shape of the noise
    whitened_step: float  # what one step is worth in whitened coordinates
    # κ, one for each flat candidate: its vector less the mean of its slate, weighted, in steps.
    # Those of slates that nobody ranks are zeros.
    vectors: Int32[np.ndarray, "m r"]
    # How far one ballot on each slate can move the sum at most, in 64ths of a step.
    moves: Int64[np.ndarray, " slates"]
    starts: Int64[np.ndarray, " s"]  # where slates start
    slates: Int64[np.ndarray, " n"]  # which slate each ballot ranks

    def __post_init__(self) -> None:
        self._hide(np.where(self.used, self.moves[self.slates], 0), self.persons)
        self.used.setflags(write=False)
        self.moves.setflags(write=False)

    @property
    def unit(self) -> float:
        """Return what one step is worth in whitened coordinates."""
        return self.whitened_step

    @property
    def rounding(self) -> float:
        """Return how far the grid moves the sum at most, in standard deviations of the noise."""
        # Every coordinate of κ is off by half a step at most; doubled ranks multiply it by
        # |K + 1 − 2·rank|, which sum to ⌊K²/2⌋. A first choice may be rounded once more.
        sizes = np.diff(self.starts)[self.slates[self.used]]
        once = sizes**2 // 2 if self.mechanism.statistic == "borda" else np.full(len(sizes), 2)
        return float(once.sum()) / 2 * float(np.sqrt(self.ellipsoid.rank)) / self.scale

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return orders that differ in the ballot, or the person, that moves the sum farthest."""
        # One ballot attains the sensitivity up to five candidates, and a first choice always; those
        # of one person are turned to one side as far as they can be. Ballots that do not count are
        # reversed: they are promised to change nothing.
        self.sensitivity(neighbors)
        _, cuts = self._flat
        sizes = np.diff(cuts)
        one = 2 * (np.arange(cuts[-1]) - np.repeat(cuts[:-1], sizes) + 1)
        counted = np.repeat(self.used, sizes)
        other = np.where(counted, one, 2 * np.repeat(sizes, sizes) + 2 - one)
        along = None  # two orders of one ballot, far apart; along one direction for a whole person
        if len(self.worst) > 1:
            stacked = np.vstack([self._vectors_of(int(i)) for i in self.worst])
            along = np.linalg.svd(stacked, full_matrices=False)[2][0]
        for ballot in self.worst:
            part, vectors = slice(*cuts[ballot : ballot + 2]), self._vectors_of(int(ballot))
            if self.mechanism.statistic == "borda":
                high, low = _farthest_orders(vectors, along)
                one[part], other[part] = 2 * high, 2 * low
                continue
            if along is not None:
                reach = vectors @ along
                best = int(reach.argmax()), int(reach.argmin())
            else:  # two candidates as far apart as any two
                gaps = np.linalg.norm(vectors[:, np.newaxis] - vectors, axis=2)
                first, last = np.unravel_index(int(gaps.argmax()), gaps.shape)
                best = int(first), int(last)
            plain = np.arange(len(vectors))
            orders = (np.argsort(np.argsort(plain != at, kind="stable")) for at in best)
            one[part], other[part] = (2 * (order.astype(np.int64) + 1) for order in orders)
        return WorstCase(one, other)

    def _vectors_of(self, ballot: int) -> Float[np.ndarray, "k r"]:
        slate = self.slates[ballot]
        inside = self.vectors[self.starts[slate] : self.starts[slate + 1]]
        vectors = inside.astype(np.float64)
        return np.asarray(vectors - vectors.mean(axis=0))

    @cached_property
    def _flat(self) -> tuple[Int64[np.ndarray, " f"], Int64[np.ndarray, " t"]]:
        """Return the candidate that every doubled rank is about, and where ballots start."""
        return part_of(self.starts, self.slates)

    def _total(self, values: Integer[np.ndarray, " m"]) -> Int64[np.ndarray, " r"]:
        """Return the exact sum of what the ballots contribute, in steps."""
        rows, cuts = self._flat
        doubled = doubled_ranks(values, cuts)
        sizes = np.diff(cuts)
        counted = np.repeat(self.used, sizes)
        if self.mechanism.statistic == "borda":  # Σ (K + 1 − 2·rank)κ
            times = np.zeros(len(self.vectors), dtype=np.int64)
            np.add.at(times, rows[counted], (np.repeat(sizes, sizes) + 1 - doubled)[counted])
            return _times(times, self.vectors)
        ballots = np.repeat(np.arange(len(sizes)), sizes)[counted]
        rows, doubled = rows[counted], doubled[counted]
        # Σ over ballots of κ of the best candidate, exactly; of a tie the rounded mean. The t
        # candidates that tie as the best have the doubled rank t + 1, the least of the ballot.
        begin = np.flatnonzero(np.diff(ballots, prepend=-1))
        least = np.minimum.reduceat(doubled, begin)
        owner = np.repeat(np.arange(len(begin)), np.diff(begin, append=len(ballots)))
        top = doubled == least[owner]
        alone = top & (doubled == 2)  # noqa: PLR2004 - twice rank 1
        total = _times(np.bincount(rows[alone], minlength=len(self.vectors)), self.vectors)
        tied = np.flatnonzero(top & ~alone)
        places = np.flatnonzero(np.diff(owner[tied], prepend=-1))
        ends = np.append(places, len(tied))
        step = max(1, _PART // self.vectors.shape[1] // max(1, int(least.max(initial=1))))
        for first in range(0, len(places), step):
            cuts = ends[first : first + step + 1]
            inside = self.vectors[rows[tied[cuts[0] : cuts[-1]]]].astype(np.int64)
            sums = np.add.reduceat(inside, cuts[:-1] - cuts[0], axis=0)
            count = np.diff(cuts)[:, np.newaxis]
            total += ((2 * sums + count) // (2 * count)).sum(axis=0)
        return total


@dataclass(frozen=True)
class RankingGaussian(SumMechanism):
    """Release one sum over all ballots with noise that hides any one of them.

    ``"borda"``: T = Σ w Σ_a (K − rank_a)φ_a, w = 2/(K(K − 1)), which the composite likelihood of
    all pairs needs. Candidates that tie have the average of their ranks; those that a person did
    not list tie below the others, so that the length of a ballot is hidden too (and short ballots
    shrink what is estimated). ``"first-choice"``: T = Σ φ(best), the mean of the candidates that
    tie as the best; of a ballot that lists nobody, the mean of all.

    Args:
        epsilon: Bound on the privacy loss, finite and above 0: of one ballot, and of all ballots
            of one person if ``records_per_person`` is given.
        delta: Failure probability, in (0, 1).
        statistic: ``"borda"`` or ``"first-choice"``.
        shaped: Noise in the shape that has nearly the least variance in all and hides every
            difference of two candidates of a slate; False for the same noise in every direction.
        records_per_person: How many ballots of one person count; the others are left out,
            whatever they say. Needed for unit ``"person"``.
        grid: Step of the grid, relative to the longest weighted vector: 2^-24 to 2^-12.

    Raises:
        UsageError: A setting is out of range.

    Guarantee:
        GaussianEvent of :attr:`mu` for unit ``"label"`` (one ballot, also its length and what it
        lists) under ``REPLACE_ONE``, and for unit ``"person"`` with ``records_per_person``
        (caveat ``labels-only``): for any orders with ties of any slates; no arithmetic caveat.
        Shown by tests/soundness/test_ranking_gaussian_mechanism.py.

    Source:
        docs/central.md, "Rankings". Differs: every vector is taken less the mean of its slate,
        which is public and added to what is released; above five candidates the smaller of two
        bounds on what one ballot moves.

    Example:
        >>> noise = RankingGaussian(1.0, delta=1e-6, statistic="borda")
        >>> design = noise.prepare(np.eye(3), np.array([0, 3]), slates=np.zeros(50, dtype=int))
        >>> np.sqrt(np.diag(design.covariance)).round(2).tolist()  # 2·√2/3/mu, less the mean
        [3.25, 3.25, 3.25]
    """

    _: KW_ONLY
    statistic: _Statistic
    name: ClassVar[str] = "ranking-gaussian"
    public: ClassVar[tuple[str, ...]] = ("mu", "statistic", "shaped", "records_per_person")

    def __post_init__(self) -> None:
        _validate.one_of("statistic", self.statistic, ("borda", "first-choice"))
        super().__post_init__()

    def prepare(
        self,
        features: Matrix,
        starts: Integer[np.ndarray, " s"],
        *,
        slates: Integer[np.ndarray, " n"] | None = None,
        persons: PersonIds | None = None,
        rows: Order | None = None,
    ) -> RankingDesign:
        """Return the release made ready for public slates: it reads no ballot, spends nothing.

        Args:
            features: φ of every flat candidate, one in each row; dense or compressed sparse rows.
                For items without features, the identity.
            starts: Slate i holds the candidates ``starts[i]:starts[i+1]``; at least two.
            slates: Which slate each ballot ranks; if left out, ballot i ranks slate i. One common
                list is one slate, and zeros.
            persons: The public id of each ballot's person; exactly if ``records_per_person`` is
                set.
            rows: Which ballots may count, in order of preference; the choice must not depend on
                what they say.

        Raises:
            DataError: A vector, an id or a slate cannot be used, or no candidates differ.
            UsageError: ``persons`` is missing or is not used; or the noise would be too few
                steps of the grid, or the sum too many.
        """
        features = checked_rows("features", features)
        cuts = checked_starts(starts, features.shape[0])
        which = np.arange(len(cuts) - 1) if slates is None else np.asarray(slates)
        if which.ndim != 1 or which.dtype.kind not in "iu" or not len(which):
            raise DataError("slates must be whole numbers in one dimension. Nothing was released.")
        which = which.astype(np.int64)
        if which.min() < 0 or which.max() >= len(cuts) - 1:
            raise DataError(f"slates must be from 0 to {len(cuts) - 2}. Nothing was released.")
        used = counted_rows(len(which), persons, rows, self.records_per_person)
        if not used.any():
            raise DataError("rows must name at least one ballot that counts. Nothing was released.")
        ranked = which[used]
        sizes = np.diff(cuts)
        if len(ranked) * int(sizes[ranked].max()) ** 2 / self.grid > _MOST:
            # K² (1/2 + grid)/grid steps for each ballot might not fit 64 bits
            raise UsageError(
                f"A sum over so many ballots of {int(sizes[ranked].max())} candidates could pass "
                f"62 bits on the grid {self.grid!r}. Nothing was released. Choose a coarser grid."
            )
        live = np.unique(ranked)
        rows, live_cuts = part_of(cuts, live)
        flat: Any = features
        ellipsoid = self.ellipsoid_of(_pair_signs(live_cuts) @ flat[rows])
        # whitened vectors less their slate's mean, times w/2 or 1
        # Source: docs/central.md, "Rankings".
        many = np.repeat(np.diff(live_cuts), np.diff(live_cuts)).astype(np.float64)
        weights = 1 / (many * (many - 1)) if self.statistic == "borda" else np.ones(len(many))
        turned = np.ascontiguousarray(ellipsoid.whiten.T)
        weighted = np.empty((len(many), ellipsoid.rank))
        for part, values in dense_parts(centering(live_cuts) @ flat[rows]):
            weighted[part] = (values @ turned) * weights[part, np.newaxis]
        unit = self.grid * 2 * float(np.sqrt(np.einsum("ij,ij->i", weighted, weighted).max()))
        vectors = np.zeros((int(cuts[-1]), ellipsoid.rank), dtype=np.int32)
        vectors[rows] = whole_steps(weighted / unit, 1 / self.grid)
        moves = np.zeros(len(sizes), dtype=np.int64)
        moves[live] = _moves(vectors[rows], live_cuts, self.statistic)
        # Σ over ballots of the mean of their slate: w Σ_a (K − rank_a) = 1 for every order, as is
        # the number of first choices, so that no order changes it.
        shares = np.bincount(ranked, minlength=len(sizes)) / sizes
        design = RankingDesign(
            self,
            ellipsoid=ellipsoid,
            whitened_step=unit,
            vectors=vectors,
            moves=moves,
            starts=cuts,
            slates=which,
            used=used,
            persons=persons,
            offset=np.asarray(flat.T @ np.repeat(shares, sizes)),
        )
        design.refuse_unusable_noise()
        return design


_ORDER: Final = 5  # steps of an item for each that it is before, or behind; times the weight
_COUNT: Final = 12  # steps of a comparison: 12/(2·5) is below √(3/2), so that it costs nothing
_SCALE: Final = 3  # a ballot on all of M items weighs 3/(M + 1): as much as it would be sure of


def _moved_squared(size: int | Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
    """Return the square of how far an order of so many items is from its reverse: K(K² − 1)/3."""
    # Source: docs/ranking.md, "Ballots".
    sizes = np.asarray(size, dtype=np.int64)
    return np.asarray(sizes * (sizes**2 - 1) // 3)


@dataclass(frozen=True, eq=False)
class BallotDesign(DesignedSum):
    """A release of ballots of which all but the ranks is known: its noise is a number.

    Guarantee:
        As :class:`BallotGaussian` states it; nothing here is read from a rank. Shown by
        tests/soundness/test_ballot_sum.py.
    """

    # Made by `prepare`.

    mechanism: BallotGaussian  # the settings
    _: KW_ONLY
    offered: Int64[np.ndarray, " m"]  # which item every flat candidate is
    starts: Int64[np.ndarray, " n_and_1"]  # ballot i was offered `starts[i]:starts[i + 1]` of them
    items: int  # K
    weights: Int64[np.ndarray, " n"]  # how much a ballot counts, in whole numbers; 0 if not
    pairs: Int64[np.ndarray, "c 2"]  # items that some ballot was offered together, low and high

    def __post_init__(self) -> None:
        squares = _moved_squared(np.diff(self.starts)) * (2 * _ORDER * FINER * self.weights) ** 2
        self._hide(root_above(squares), self.persons)

    @property
    def unit(self) -> float:
        """Return what one step of an item is worth."""
        sizes = np.where(self.used, np.diff(self.starts), 0)
        largest = int(sizes.argmax())
        return float(_SCALE / (sizes[largest] + 1) / (2 * _ORDER * self.weights[largest]))

    @property
    def shares(self) -> Float[np.ndarray, " n"]:
        """Return how much every ballot counts in what is released; 0 if it does not count."""
        return np.asarray(2 * _ORDER * self.unit * self.weights)

    @cached_property
    def worth(self) -> Float[np.ndarray, " r"]:
        """Return what one step of every number is worth: of items, then of comparisons."""
        counters = len(self.pairs) if self.mechanism.counted else 0
        return self.unit * np.repeat([1.0, 2 * _ORDER / _COUNT], [self.items, counters])

    @property
    def step(self) -> Float[np.ndarray, "r r"]:
        """Return the same as a matrix."""
        return np.diag(self.worth)

    def _noised(
        self, total: Int64[np.ndarray, " r"], trials: int, entropy: Entropy
    ) -> Float[np.ndarray, "trials r"]:
        noised = with_noise(np.tile(total, trials), self.scale, entropy).astype(np.float64)
        return np.asarray(noised.reshape(trials, -1) * self.worth)

    def log_ratio(
        self, outputs: Float[np.ndarray, "trials r"], case: WorstCase
    ) -> Float[np.ndarray, " trials"]:
        """Return log P(output | case.one) − log P(output | case.other) for every row."""
        one, other = (self._total(side) for side in (case.one, case.other))
        return gaussian_log_ratio(outputs / self.worth, one, other, self.scale)

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return ranks that differ in the ballot, or the person, that moves the sum farthest."""
        # An order against its reverse. Ballots that do not count are reversed, too.
        self.sensitivity(neighbors)
        sizes = np.diff(self.starts)
        one = np.arange(len(self.offered)) - np.repeat(self.starts[:-1], sizes) + 1
        turned = ~self.used
        turned[self.worst] = True
        return WorstCase(
            one, np.where(np.repeat(turned, sizes), np.repeat(sizes, sizes) + 1 - one, one)
        )

    def _total(self, values: Integer[np.ndarray, " m"]) -> Int64[np.ndarray, " r"]:
        """Return the exact sum of what ballots contribute, from ranks: 1 is best, 0 not listed."""
        ranks = np.asarray(values)
        if ranks.shape != self.offered.shape or ranks.dtype.kind not in "iu" or (ranks < 0).any():
            raise DataError(
                f"Ranks must be {len(self.offered)} whole numbers from 0 (not listed), one for "
                "each item of each ballot. Nothing was released."
            )
        ranks = ranks.astype(np.int64)
        k = self.items
        better, compared = np.zeros(k, dtype=np.int64), np.zeros(k * k, dtype=np.int64)
        for rows, weights in self._counted():
            items, rank = self.offered[rows], ranks[rows]
            below = np.where(rank == 0, ranks.max(initial=0) + 1, rank)
            for a in range(len(rows) - 1):
                before = np.sign(below[a + 1 :] - below[a]) * weights
                np.add.at(better, items[a], before.sum(axis=0))
                np.add.at(better, items[a + 1 :], -before)
                if self.mechanism.counted:
                    told = ((rank[a] > 0) | (rank[a + 1 :] > 0)) * weights
                    np.add.at(compared, items[a] * k + items[a + 1 :], told)
        if not self.mechanism.counted:
            return _ORDER * better
        cells = self.pairs @ np.array([k, 1])
        return np.concatenate([_ORDER * better, _COUNT * compared[cells]])

    def _counted(self) -> Iterator[tuple[Int64[np.ndarray, "k g"], Int64[np.ndarray, " g"]]]:
        """Yield the flat candidates of the ballots of one size that count, and their weights."""
        for group in groups_by_size(self.starts):
            live = self.used[group.slates]
            if live.any():
                yield group.rows[:, live], self.weights[group.slates[live]]


@dataclass(frozen=True)
class BallotGaussian(SumMechanism):
    """Release ballots as one sum, from which a leaderboard can be made, with noise that hides one.

    A ballot over m items adds w·½(before − behind) for every item, w so that no ballot moves the
    sum farther than another, and w for every two items that it compares: one of them is listed.

    Settings are those of :class:`~sordino.mechanisms.label_sum.LabelGaussian`, of ballots.

    Guarantee:
        GaussianEvent of :attr:`mu` for unit ``"label"`` (one ballot, also its length and what it
        lists) under ``REPLACE_ONE``, and for unit ``"person"`` with ``records_per_person``
        (caveat ``labels-only``), for any orders with ties of any items offered. Shown by
        tests/soundness/test_ballot_sum.py.

    Source:
        docs/ranking.md, "Ballots".

    Example:
        >>> design = BallotGaussian(1.0, delta=1e-6).prepare(
        ...     np.tile(np.arange(3), 50), np.arange(0, 151, 3), items=3)
        >>> [round(float(x * design.scale), 1) for x in design.worth[2:4]]  # of an item, of a pair
        [9.0, 7.5]
    """

    _: KW_ONLY
    # Whether comparisons are counted in the sum. False only where it is public that every ballot
    # lists all that it was offered: then how many compare two is public.
    counted: bool = True
    name: ClassVar[str] = "ballot-gaussian"
    statistic: ClassVar[str] = "comparisons"
    public: ClassVar[tuple[str, ...]] = ("mu", "statistic", "counted", "records_per_person")

    def prepare(
        self,
        offered: Integer[np.ndarray, " m"],
        starts: Integer[np.ndarray, " n_and_1"],
        *,
        items: int,
        persons: PersonIds | None = None,
        rows: Order | None = None,
    ) -> BallotDesign:
        """Return the release made ready for what ballots were offered: it reads no rank."""
        # Ballot i was offered the items `offered[starts[i]:starts[i+1]]`, at least two and rising.
        # Of persons and rows as `RankingGaussian.prepare`.
        cuts = checked_starts(starts, len(offered))
        sizes = np.diff(cuts)
        used = counted_rows(len(sizes), persons, rows, self.records_per_person)
        if not used.any():
            raise DataError("No ballot counts. Nothing was released.")
        steps = 1 / (self.grid * 2 * _ORDER * np.sqrt(_moved_squared(sizes)))
        weights = steps.astype(np.int64) * used
        if (weights < 1)[used].any():
            raise UsageError(
                f"Ballots of {int(sizes[used].max())} items are too long for the grid "
                f"{self.grid!r}. Nothing was released. Choose a finer one."
            )
        cells: list[Int64[np.ndarray, " c"]] = []
        for group in groups_by_size(cuts):
            rows_of = group.rows[:, used[group.slates]]
            sets = np.unique(np.asarray(offered, dtype=np.int64)[rows_of], axis=1)
            if (np.diff(sets, axis=0, prepend=-1, append=items) < 1).any():
                raise DataError(f"offered must rise from 0 to at most {items - 1} in each ballot.")
            one, two = np.triu_indices(group.size, 1)
            cells.append(np.unique(sets[one] * items + sets[two]))
        both = np.unique(np.concatenate(cells))
        design = BallotDesign(
            self,
            offered=np.asarray(offered, dtype=np.int64),
            starts=cuts,
            items=items,
            used=used,
            persons=persons,
            weights=weights,
            pairs=np.column_stack([both // items, both % items]),
        )
        design.refuse_unusable_noise()
        return design
