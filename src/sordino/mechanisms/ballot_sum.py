"""Ballots over items, released once as one sum with exact Gaussian noise, for a leaderboard.

A ballot says of two items that it was offered which of them is better, if it lists at least one.
The sum has, for every item, how often it was better less how often it was worse, and for every two
items how many ballots compare them: as private as the order, because it tells how long a ballot is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
from jaxtyping import Bool, Float, Int64, Integer

from sordino._random import Entropy
from sordino.errors import DataError, UsageError
from sordino.privacy.guarantee import NeighboringRelation

from .base import WorstCase, gaussian_log_ratio
from .grid import PersonIds, refuse_persons, root_above, with_noise
from .label_sum import FINER, DesignedSum, Order, SumMechanism, counted_rows
from .ranking_sum import checked_starts, groups_by_size

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
    used: Bool[np.ndarray, " n"]  # which ballots count
    persons: PersonIds | None = None  # whose ballots they are, if all of one person change together
    weights: Int64[np.ndarray, " n"]  # how much a ballot counts, in whole numbers; 0 if not
    pairs: Int64[np.ndarray, "c 2"]  # items that some ballot was offered together, low and high
    moved: float = field(init=False)  # how many steps one change moves the sum at most
    worst: Int64[np.ndarray, " k"] = field(init=False)  # the ballots of a change that does so

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
        refuse_persons(given=persons is not None, most=self.records_per_person)
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
            sets = np.unique(np.asarray(offered)[group.rows[:, used[group.slates]]], axis=1)
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
