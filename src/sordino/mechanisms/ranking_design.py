"""A release of rankings whose slates are known: from orders to their noised sum."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int64, Integer

from sordino import _validate
from sordino._random import Entropy
from sordino.mechanisms._designed_sum import DesignedSum, SumSettings
from sordino.mechanisms._grid import PersonIds, with_noise
from sordino.mechanisms._label_steps import farthest
from sordino.mechanisms._ranking_sensitivity import farthest_choices, farthest_orders
from sordino.mechanisms._ranking_steps import SlateSteps, ballot_sum, top_sum
from sordino.mechanisms._slates import doubled_ranks, part_of
from sordino.mechanisms.base import WorstCase
from sordino.mechanisms.ellipsoid import Ellipsoid
from sordino.mechanisms.label_gaussian import LabelStatistic
from sordino.privacy.guarantee import NeighboringRelation

__all__ = ["RankingDesign"]


@runtime_checkable
class RankingSettings(SumSettings, Protocol):
    """What a design is made with: the settings of ``RankingGaussian``, and what they promise."""

    @property
    def statistic(self) -> str:
        """Return which sum it is."""
        ...


@dataclass(frozen=True, eq=False)
class RankingDesign(DesignedSum):
    """A release of rankings whose slates are known: a mechanism from orders to their noised sum.

    Made by :meth:`RankingGaussian.prepare`, from public features alone.

    Attributes:
        mechanism: The settings.
        steps: The candidates on the grid.
        starts: Where slates start.
        slates: Which slate each ballot ranks.
        used: Which ballots count.
        persons: Whose ballots they are, if all of one person change together.
        moved: How many steps one change moves the sum at most, rounded up: Δ.
        worst: The ballots of a change that may move it as far: one, or one person's.
        offset: The public part of the sum, which no order changes.

    Guarantee:
        As :class:`RankingGaussian` states it; nothing here is read from a ballot. Shown by
        tests/soundness/test_ranking_gaussian_mechanism.py.
    """

    mechanism: RankingSettings
    _: KW_ONLY
    steps: SlateSteps
    starts: Int64[np.ndarray, " s"]
    slates: Int64[np.ndarray, " n"]
    used: Bool[np.ndarray, " n"]
    persons: PersonIds | None = None
    offset: Float[np.ndarray, " d"]
    moved: float = field(init=False)
    worst: Int64[np.ndarray, " k"] = field(init=False)

    def __post_init__(self) -> None:
        """Find what the noise must hide: nobody else may say it."""
        moved, worst = farthest(np.where(self.used, self.steps.moves[self.slates], 0), self.persons)
        object.__setattr__(self, "moved", moved)
        object.__setattr__(self, "worst", worst)
        self.used.setflags(write=False)
        self.steps.moves.setflags(write=False)

    @property
    def ellipsoid(self) -> Ellipsoid:
        """Return the shape of the noise."""
        return self.steps.ellipsoid

    @property
    def step(self) -> Float[np.ndarray, "d r"]:
        """Return what one step in each direction is worth: from steps to the released sum."""
        return self.ellipsoid.unwhiten * self.steps.unit

    @property
    def rounding(self) -> float:
        """Return how far the grid moves the sum at most, in standard deviations of the noise.

        Every coordinate of κ is off by half a step at most; doubled ranks multiply it by
        |K + 1 − 2·rank|, which sum to ⌊K²/2⌋. A first choice may be rounded once more.
        """
        sizes = np.diff(self.starts)[self.slates[self.used]]
        once = sizes**2 // 2 if self.mechanism.statistic == "borda" else np.full(len(sizes), 2)
        return float(once.sum()) / 2 * float(np.sqrt(self.ellipsoid.rank)) / self.scale

    def statistic(self, values: Integer[np.ndarray, " m"], *, entropy: Entropy) -> LabelStatistic:
        """Return the noised sum; draws noise, so the spend must already be on a ledger.

        Args:
            values: As ``doubled_ranks`` of :meth:`RankingGaussian.release`.
            entropy: As there.

        Raises:
            DataError: Ranks are no orders, or not as many as the candidates.

        Guarantee:
            What :meth:`guarantee` returns.
        """
        value = np.asarray(self.repeat(values, 1, entropy=entropy)[0])
        return LabelStatistic(value, factor=self.factor, used=self.used)

    def repeat(
        self, values: Integer[np.ndarray, " m"], trials: int, *, entropy: Entropy
    ) -> Float[np.ndarray, "trials d"]:
        """Return independent releases of the same made-up orders, one in each row.

        Guarantee:
            None for all rows together: each row is one release. Never call it on private ballots.
        """
        trials = _validate.integer("trials", trials, at_least=1)
        total = np.tile(self._total(values), trials)
        noised = with_noise(total, self.scale, entropy).astype(np.float64)
        return np.asarray(noised.reshape(trials, -1) @ self.step.T + self.offset)

    def log_ratio(
        self, outputs: Float[np.ndarray, "trials d"], case: WorstCase
    ) -> Float[np.ndarray, " trials"]:
        """Return log P(output | case.one) − log P(output | case.other) for every row."""
        one, other = (self._total(side) / self.scale for side in (case.one, case.other))
        whitened = (outputs - self.offset) @ self.ellipsoid.whiten.T
        inside = whitened / (self.steps.unit * self.scale)
        return np.asarray((inside - (one + other) / 2) @ (one - other))

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return orders that differ in the ballot, or the person, that moves the sum farthest.

        One ballot attains the sensitivity up to five candidates, and a first choice always; those
        of one person are turned to one side as far as they can be. Ballots that do not count are
        reversed: they are promised to change nothing.
        """
        self.sensitivity(neighbors)
        _, cuts = self._flat
        sizes = np.diff(cuts)
        one = 2 * (np.arange(cuts[-1]) - np.repeat(cuts[:-1], sizes) + 1)
        counted = np.repeat(self.used, sizes)
        other = np.where(counted, one, 2 * np.repeat(sizes, sizes) + 2 - one)
        for ballot in self.worst:
            part = slice(int(cuts[ballot]), int(cuts[ballot + 1]))
            one[part], other[part] = self._extremes(int(ballot))
        return WorstCase(one, other)

    def _extremes(self, ballot: int) -> tuple[Int64[np.ndarray, " k"], Int64[np.ndarray, " k"]]:
        """Return two orders of one ballot, far apart; along one direction for a whole person."""
        vectors = self._vectors_of(ballot)
        along = None
        if len(self.worst) > 1:
            stacked = np.vstack([self._vectors_of(int(i)) for i in self.worst])
            along = np.linalg.svd(stacked, full_matrices=False)[2][0]
        if self.mechanism.statistic == "borda":
            one, other = farthest_orders(vectors, along)
            return 2 * one, 2 * other
        first, last = farthest_choices(vectors, along)
        plain = np.arange(len(vectors))
        orders = (np.argsort(np.argsort(plain != best, kind="stable")) for best in (first, last))
        one, other = (2 * (order.astype(np.int64) + 1) for order in orders)
        return one, other

    def _vectors_of(self, ballot: int) -> Float[np.ndarray, "k r"]:
        slate = self.slates[ballot]
        inside = self.steps.vectors[self.starts[slate] : self.starts[slate + 1]]
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
        known = rows[counted], doubled[counted]
        if self.mechanism.statistic == "borda":
            return ballot_sum(
                self.steps.vectors, known[0], np.repeat(sizes, sizes)[counted], known[1]
            )
        ballots = np.repeat(np.arange(len(sizes)), sizes)[counted]
        return top_sum(self.steps.vectors, known[0], ballots, known[1])
