"""A sum of clipped vectors with Gaussian noise, exact on a grid.

Nothing about the promise rests on floating-point arithmetic: a record becomes a vector of
integers whose length is bounded by integer arithmetic, integers are summed without rounding, and
the noise is an exact draw from a distribution on the integers.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from sordino import _validate
from sordino._random import Entropy
from sordino.errors import PrivacyError, UsageError
from sordino.mechanisms._calibration import least_that_keeps
from sordino.mechanisms._grid import (
    GRID_SLACK,
    STEPS_OF_NOISE,
    PersonIds,
    clipped_sum,
    first_rows,
    refuse_persons,
    vector_array,
    with_noise,
)
from sordino.mechanisms.base import WorstCase
from sordino.privacy import accounting
from sordino.privacy.events import GaussianEvent
from sordino.privacy.gaussian import gaussian_mu
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    Guarantee,
    NeighboringRelation,
    Trust,
    Unit,
)

__all__ = ["GaussianMechanism"]

_DEFAULT_GRID = 2.0**-20  # of the bound
_STEPS_OF_BOUND = (2**10, 2**26)
_LARGEST_GRID = 2.0**900  # so that every 64-bit number of steps is a float


@dataclass(frozen=True)
class GaussianMechanism:
    """Release the sum of one vector per record with noise that hides any one of them.

    Every record's vector is clipped to the L2 norm ``bound`` = R, whatever the others are, and
    put on a grid of step γ: it becomes a vector of integers, and integer arithmetic shortens it
    until its squared norm is at most K², K = ⌊R/γ⌋. Integers are summed, a discrete Gaussian is
    added to every coordinate, and the result is multiplied by γ. Rounding needs no allowance:
    no record ever contributes more than γK ≤ R.

    Args:
        standard_deviation: Noise of every coordinate of the sum, absolute (s); 2^12 to 2^52
            steps of the grid.
        bound: L2 norm to which every record's vector is clipped (R); 2^10 to 2^26 steps.
        neighbors: The relation that :attr:`event` is about; no default.
        delta: Failure probability at which :meth:`guarantee` states ε, in (0, 1).
        grid: Step γ of the grid; by default ``bound``·2^-20.
        records_per_person: How many records of one person count, the first ones in row order
            (m). Needed for unit ``"person"``; :meth:`release` then asks for person ids, which
            are public.

    Raises:
        UsageError: A setting is out of range.

    Guarantee:
        GaussianEvent of μ = Δ(1 + 2^-20)/s with Δ from :meth:`sensitivity`, for any number of
        records, any finite values and any number of coordinates; no arithmetic caveat. The
        2^-20 pays for the grid: up to a factor within 1 ± 10^-130 for each coordinate, discrete
        noise of σ = s/γ ≥ 2^12 steps is what is left of continuous noise of variance σ² − 16
        after each coordinate was rounded at random, and √(1 − 16/σ²) costs at most 2^-21. The
        other half is more than that factor and the floats in s/γ and μ can take. Shown by
        tests/soundness/test_gaussian_mechanism.py.

    Source:
        Balle & Wang 2018, Theorem 8, for the curve; Canonne, Kamath & Steinke 2020 for the
        discrete Gaussian and its exact draws (from OpenDP); Peikert 2010 for the convolution of
        a continuous and a discrete Gaussian. Differs: rounding is enforced before the sum and
        costs no γ√d/2 per record; σ is at least 2^12 steps, not 2^10.

    Example:
        >>> noise = GaussianMechanism.calibrated(
        ...     1.0, delta=1e-6, bound=2.0, neighbors=ADD_OR_REMOVE_ONE
        ... )
        >>> round(noise.standard_deviation, 4), round(noise.event.mu, 6)
        (8.4494, 0.236704)
        >>> noise.guarantee(
        ...     unit="record", neighbors=ADD_OR_REMOVE_ONE, trust="central"
        ... ).epsilon <= 1.0
        True
    """

    standard_deviation: float
    _: KW_ONLY
    bound: float
    neighbors: NeighboringRelation
    delta: float
    grid: float | None = None
    records_per_person: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be computed exactly."""
        for name in ("standard_deviation", "bound"):
            object.__setattr__(self, name, _validate.positive(name, getattr(self, name)))
        delta = _validate.failure_probability("delta", self.delta, zero=False)
        object.__setattr__(self, "delta", delta)
        _known(self.neighbors)
        if self.grid is not None:
            object.__setattr__(self, "grid", _validate.positive("grid", self.grid))
        object.__setattr__(self, "records_per_person", _cap(self.records_per_person))
        self._refuse_coarse_or_fine()

    @classmethod
    def calibrated(
        cls,
        epsilon: float,
        *,
        delta: float,
        bound: float,
        neighbors: NeighboringRelation,
        grid: float | None = None,
        records_per_person: int | None = None,
    ) -> GaussianMechanism:
        """Return the mechanism of least noise that keeps (epsilon, delta) under a relation.

        Args:
            epsilon: Bound on the privacy loss, finite and above 0; of one record, or of one
                person if ``records_per_person`` is given.
            delta: Failure probability, in (0, 1).
            bound: L2 norm to which every record's vector is clipped.
            neighbors: What one change is.
            grid: As for the class.
            records_per_person: As for the class.

        Raises:
            UsageError: A setting is out of range, or so much loss is allowed (or the grid is so
                coarse) that the noise would be below 2^12 steps of the grid.

        Guarantee:
            What :meth:`guarantee` states under ``neighbors`` is at most (epsilon, delta): the
            statement itself was computed and compared. Within 1e-9 (relative) of the least
            standard deviation.
        """
        epsilon, bound = _validate.positive("epsilon", epsilon), _validate.positive("bound", bound)
        mu = gaussian_mu(epsilon, _validate.failure_probability("delta", delta, zero=False))
        if mu == 0:
            raise UsageError(f"delta={delta!r} is too small for Gaussian noise of any size.")
        moved = _sensitivity(1.0, neighbors, _cap(records_per_person))
        unit: Unit = "record" if records_per_person is None else "person"
        terms: dict[str, Any] = {"unit": unit, "neighbors": neighbors, "trust": "central"}
        make = partial(
            cls,
            bound=bound,
            neighbors=neighbors,
            delta=delta,
            grid=grid,
            records_per_person=records_per_person,
        )
        return least_that_keeps(
            bound * (moved * GRID_SLACK / mu),
            make,
            lambda made: made.guarantee(**terms).epsilon <= epsilon,
        )

    @property
    def step(self) -> float:
        """Return the step of the grid, γ."""
        return self.bound * _DEFAULT_GRID if self.grid is None else self.grid

    @property
    def event(self) -> GaussianEvent:
        """Return what one release does under :attr:`neighbors`, for the ledger.

        It covers every promise that :meth:`guarantee` makes under that relation: of one person
        if ``records_per_person`` is set, else of one record.
        """
        return GaussianEvent(self.mu(self.neighbors))

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return how far one change moves the sum in L2 norm, at most.

        R if one record is added, removed or made empty, 2R if it is replaced (the triangle
        inequality, attained by opposite vectors); m times that for all records of one person.
        """
        return _sensitivity(self.bound, neighbors, self.records_per_person)

    def mu(self, neighbors: NeighboringRelation) -> float:
        """Return the sensitivity divided by the standard deviation, with what the grid costs."""
        return self._mu(neighbors, self.records_per_person or 1)

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return what one release promises to one label, record or person; δ is :attr:`delta`.

        Args:
            unit: ``"record"``; ``"label"`` for one record's label; or ``"person"``.
            neighbors: What one change is; any relation, not only :attr:`neighbors`.
            trust: Who saw the raw vectors.

        Raises:
            PrivacyError: For a person if ``records_per_person`` is not set; for a label under
                another relation than ``REPLACE_ONE``; for a record that is added or removed if
                ``records_per_person`` is set.

        Guarantee:
            For unit ``"person"`` all vectors of one person together. With
            ``records_per_person``, one record or label costs what one record moves: ids stay
            with their rows, so which rows count does not change.
        """
        _validate.one_of("unit", unit, ("label", "record", "person"))
        _known(neighbors)
        mu = self._mu(neighbors, self._records(unit, neighbors))
        loss = accounting.composed_epsilon(
            [(GaussianEvent(mu), 1)], neighbors=neighbors, delta=self.delta
        )
        return Guarantee(
            loss,
            delta=self.delta,
            unit=unit,
            neighbors=neighbors,
            trust=trust,
        )

    def release(
        self,
        values: Float[np.ndarray, "n d"],
        *,
        entropy: Entropy,
        persons: PersonIds | None = None,
    ) -> Float[np.ndarray, " d"]:
        """Return the noised sum; draws noise, so the spend must already be on a ledger.

        Args:
            values: One vector in each row; any finite numbers, also no rows at all.
            entropy: System entropy lets OpenDP draw from the operating system. A seeded stream
                gives rounded floating-point noise, for study only.
            persons: The public id of each row's person, text or whole numbers; exactly if
                ``records_per_person`` is set.

        Raises:
            DataError: A value or an id cannot be used; only its index is named, and never how
                many records there are.
            UsageError: ``persons`` is missing, or is not used by this mechanism.

        Guarantee:
            What :meth:`guarantee` returns.
        """
        refuse_persons(given=persons is not None, most=self.records_per_person)
        return self._noised(self._sum(values, persons), entropy)

    def repeat(
        self, values: Float[np.ndarray, "n d"], trials: int, *, entropy: Entropy
    ) -> Float[np.ndarray, "trials d"]:
        """Return independent releases of the same made-up values, one in each row.

        It takes no person ids: with ``records_per_person`` the rows are played as those that
        already count, as :meth:`worst_case` gives them.

        Guarantee:
            None for all rows together: each row is one release. Never call it on private data.
        """
        trials = _validate.integer("trials", trials, at_least=1)
        total = self._sum(values)
        return self._noised(np.tile(total, trials), entropy).reshape(trials, len(total))

    def log_ratio(
        self, outputs: Float[np.ndarray, "trials d"], case: WorstCase
    ) -> Float[np.ndarray, " trials"]:
        """Return log P(output | case.one) − log P(output | case.other) for every row.

        On the grid the discrete and the continuous Gaussian have the same log-ratio,
        ⟨a − b, output − (a + b)/2⟩/s² with a and b the two clipped sums.
        """
        one, other = (self._sum(side) * self.step for side in (case.one, case.other))
        difference = (one - other) / self.standard_deviation
        distance = (np.asarray(outputs) - (one + other) / 2) / self.standard_deviation
        return np.asarray(distance @ difference)

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return two neighboring inputs, one coordinate wide, that attain the sensitivity.

        One record at the bound against an empty one, against none, or against its opposite.
        With ``records_per_person`` = m it is m such records of one person, so that the cap keeps
        all of them: :meth:`repeat` plays them without ids, and ``release`` gives the same with
        one id for all rows.
        """
        most = self.records_per_person or 1
        others = {
            REPLACE_SPECIAL: np.zeros((most, 1)),
            ADD_OR_REMOVE_ONE: np.zeros((0, 1)),
            REPLACE_ONE: np.full((most, 1), -self.bound),
        }
        return WorstCase(np.full((most, 1), self.bound), others[_known(neighbors)])

    @property
    def _most(self) -> int:
        """Return K: how many whole steps fit into the bound."""
        return int(Fraction(self.bound) // Fraction(self.step))

    @property
    def _scale(self) -> float:
        """Return the standard deviation in steps of the grid."""
        return self.standard_deviation / self.step

    def _mu(self, neighbors: NeighboringRelation, records: int) -> float:
        # Nothing here can overflow: the bound is at most 2^14 standard deviations.
        return _changes(neighbors) * records * (self.bound / self.standard_deviation) * GRID_SLACK

    def _records(self, unit: Unit, neighbors: NeighboringRelation) -> int:
        """Return how many records one change touches; refuse what is not promised."""
        most = self.records_per_person
        if unit == "person" and most is None:
            raise PrivacyError(
                "One person may have any number of records, so nothing is promised with "
                "unit='person'. Set records_per_person, the most records of one person that "
                "count, or use unit='record'."
            )
        if unit == "label" and neighbors != REPLACE_ONE:
            raise PrivacyError(
                f"unit='label' is promised under REPLACE_ONE only, not {neighbors.name}: another "
                "label replaces a record's vector and never removes it. Use REPLACE_ONE, or "
                "unit='record'."
            )
        if unit == "record" and neighbors == ADD_OR_REMOVE_ONE and most is not None:
            raise PrivacyError(
                "With records_per_person, adding one record of a person may push another one out, "
                "so nothing is promised with unit='record' under ADD_OR_REMOVE_ONE. Use "
                "unit='person', another relation, or a mechanism without records_per_person."
            )
        return (most or 1) if unit == "person" else 1

    def _refuse_coarse_or_fine(self) -> None:
        """Refuse a grid on which the promise would not hold or the arithmetic not be exact."""
        if not 0 < self.step <= _LARGEST_GRID:
            raise UsageError(
                f"grid must be above 0 and at most 2^900, got {self.step!r}. Measure the values "
                "in another unit."
            )
        for name, (least, most) in (
            ("standard_deviation", STEPS_OF_NOISE),
            ("bound", _STEPS_OF_BOUND),
        ):
            size = getattr(self, name)
            if not least <= Fraction(size) / Fraction(self.step) <= most:
                raise UsageError(
                    f"{name} must be between {least} and {most} steps of the grid, got "
                    f"{name}={size!r} with grid={self.step!r}. Choose another grid."
                )

    def _sum(self, values: np.ndarray, persons: PersonIds | None = None) -> Int64[np.ndarray, " d"]:
        """Return the exact sum of the clipped vectors that count, in steps of the grid."""
        vectors = vector_array(values, most=self._most)
        if persons is not None:
            vectors = vectors[first_rows(persons, len(vectors), self.records_per_person or 0)]
        return clipped_sum(vectors, self._most, self.step)

    def _noised(
        self, total: Int64[np.ndarray, " size"], entropy: Entropy
    ) -> Float[np.ndarray, " size"]:
        """Return noised steps as multiples of the step."""
        return with_noise(total, self._scale, entropy).astype(np.float64) * self.step


def _known(neighbors: NeighboringRelation) -> NeighboringRelation:
    """Return a relation; refuse what is none."""
    relation: NeighboringRelation = _validate.one_of("neighbors", neighbors, NeighboringRelation)
    return relation


def _cap(records_per_person: int | None) -> int | None:
    """Return how many records of one person count; refuse what is no number of records."""
    if records_per_person is None:
        return None
    most = 2**40  # a sensitivity stays a float
    return _validate.integer("records_per_person", records_per_person, at_least=1, at_most=most)


def _changes(neighbors: NeighboringRelation) -> int:
    """Return how many vectors differ between two neighbors: replacing takes one out, one in."""
    return 2 if _known(neighbors) == REPLACE_ONE else 1


def _sensitivity(bound: float, neighbors: NeighboringRelation, records: int | None) -> float:
    """Return how far one change moves a sum of vectors of at most this norm, rounded up."""
    vectors = _changes(neighbors) * (records or 1)
    moved = vectors * bound
    return (
        moved if Fraction(moved) >= vectors * Fraction(bound) else math.nextafter(moved, math.inf)
    )
