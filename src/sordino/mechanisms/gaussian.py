"""Sums of clipped vectors, or of their outer products, with Gaussian noise: exact on a grid.

Nothing about the promise rests on floating-point arithmetic: a record becomes a vector of
integers whose length is bounded by integer arithmetic, integers and their products are summed
without rounding, and the noise is an exact draw from a distribution on the integers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int64

from sordino import _validate
from sordino._random import Entropy
from sordino._validate import Table, Vector
from sordino.errors import PrivacyError, UsageError
from sordino.privacy.conversions import gaussian_mu
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    GaussianEvent,
    Guarantee,
    NeighboringRelation,
    Trust,
    Unit,
)

from .base import Repeated, WorstCase, gaussian_log_ratio, least_that_keeps, stated, usable_mu
from .grid import (
    GRID_SLACK,
    STEPS_OF_NOISE,
    PersonIds,
    clipped_rows,
    clipped_sum,
    first_rows,
    outer_products,
    refuse_persons,
    vector_array,
    with_noise,
)
from .objective_perturbation import ObjectivePerturbation, usable_bound

_DEFAULT_GRID = 2.0**-20  # of the bound


@dataclass(frozen=True)
class _OnGrid(ABC):
    """What Gaussian noise on a grid says of itself, whatever is added up."""

    standard_deviation: float  # noise of every coordinate of the sum, absolute (s)
    _: KW_ONLY
    bound: float  # L2 norm to which every record's vector is clipped (R)
    neighbors: NeighboringRelation  # the relation that `event` is about; no default
    delta: float  # failure probability at which `guarantee` states ε, in (0, 1)
    grid: float | None = None  # step γ of the grid of a vector; by default `bound`·2^-20

    _power: ClassVar[int] = 1  # of γ: the step of the grid of the sum
    # So that every 64-bit number of steps is a float.
    _grids: ClassVar[tuple[float, float]] = (0.0, 2.0**900)
    _steps_of_bound: ClassVar[tuple[int, int]] = (2**10, 2**26)

    def __post_init__(self) -> None:
        _validate.settle(self, delta=_validate.fraction, neighbors=_known)
        if self.grid is not None:
            _validate.settle(self, grid=_validate.positive)
        # On other grids the promise would not hold, or the arithmetic not be exact.
        least_grid, largest = self._grids
        if not least_grid < self.step <= largest:
            raise UsageError(
                f"grid must be above {least_grid:.3g} and at most 2^{math.log2(largest):.0f}, got "
                f"{self.step!r}. Measure the values in another unit."
            )
        noise = ("standard_deviation", self._power, STEPS_OF_NOISE)
        for name, power, (least, most) in (noise, ("bound", 1, self._steps_of_bound)):
            size, step = Fraction(getattr(self, name)), Fraction(self.step) ** power
            if not least * step <= size <= most * step:
                square = "" if power == 1 else " (its square for the matrix)"
                raise UsageError(
                    f"{name} must be between {least} and {most} steps of the grid, got "
                    f"{name}={float(size)!r} with grid={self.step!r}{square}. Choose another grid."
                )

    @property
    def step(self) -> float:
        """Return the step of the grid of a vector, γ."""
        return self.bound * _DEFAULT_GRID if self.grid is None else self.grid

    @property
    def event(self) -> GaussianEvent:
        """Return what one release does under :attr:`neighbors`, for the ledger."""
        # It covers every promise that `guarantee` makes under that relation.
        return GaussianEvent(self.mu(self.neighbors))

    @abstractmethod
    def mu(self, neighbors: NeighboringRelation) -> float:
        """Return the sensitivity divided by the standard deviation, with what the grid costs."""

    def log_ratio(
        self, outputs: Float[np.ndarray, "trials numbers"], case: WorstCase
    ) -> Float[np.ndarray, " trials"]:
        """Return log P(output | case.one) − log P(output | case.other) for every row."""
        step, sides = self.step**self._power, (case.one, case.other)
        one, other = (self._sum(side).ravel() * step for side in sides)
        return gaussian_log_ratio(outputs, one, other, self.standard_deviation)

    @property
    def _most(self) -> int:
        """Return K: how many whole steps fit into the bound."""
        return int(Fraction(self.bound) // Fraction(self.step))

    @abstractmethod
    def _sum(self, values: np.ndarray) -> Int64[np.ndarray, "*size"]:
        """Return the exact sum over made-up records, in steps."""


@dataclass(frozen=True)
class GaussianMechanism(_OnGrid, Repeated[np.ndarray]):
    """Release the sum of one vector per record with noise that hides any one of them.

    Guarantee:
        GaussianEvent of μ = Δ(1 + 2^-20)/s with Δ from :meth:`sensitivity`, for any number of
        records, any finite values and any number of coordinates; no arithmetic caveat. The
        2^-20 pays for the grid: up to a factor within 1 ± 10^-130 for each coordinate, discrete
        noise of σ = s/γ ≥ 2^12 steps is what is left of continuous noise of variance σ² − 16
        after each coordinate was rounded at random, and √(1 − 16/σ²) costs at most 2^-21. The
        other half is more than that factor and the floats in s/γ and μ can take. Shown by
        tests/soundness/test_gaussian_mechanism.py.
    """

    # Every record's vector is clipped to the L2 norm `bound` = R, whatever the others are, and put
    # on a grid of step γ: it becomes a vector of integers, and integer arithmetic shortens it until
    # its squared norm is at most K², K = ⌊R/γ⌋. Integers are summed, a discrete Gaussian is added
    # to every coordinate, and the result is multiplied by γ. Rounding needs no allowance: no record
    # ever contributes more than γK ≤ R.
    # Source: Balle & Wang 2018, Theorem 8, for the curve; Canonne, Kamath & Steinke 2020 for the
    # discrete Gaussian and its exact draws (from OpenDP); Peikert 2010 for the convolution of a
    # continuous and a discrete Gaussian. Differs: rounding is enforced before the sum and costs no
    # γ√d/2 per record; σ is at least 2^12 steps, not 2^10.

    # The noise must be 2^12 to 2^52 steps of the grid, and the bound 2^10 to 2^26.
    _: KW_ONLY
    name: ClassVar[str] = "gaussian"
    # How many records of one person count, the first ones in row order (m). Needed for unit
    # `"person"`; `release` then asks for person ids, which are public.
    records_per_person: int | None = None

    def __post_init__(self) -> None:
        _validate.settle(self, standard_deviation=_validate.positive, bound=_validate.positive)
        super().__post_init__()
        _validate.settle(self, records_per_person=_cap)

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
        """Return the mechanism of least noise that keeps (epsilon, delta) under a relation."""
        # Guarantee: What :meth:`guarantee` states under ``neighbors`` is at most (epsilon, delta):
        # the statement itself was computed and compared. Within 1e-9 (relative) of the least
        # standard deviation.
        mu, bound = usable_mu(epsilon, delta), _validate.positive("bound", bound)
        moved = _sensitivity(1.0, neighbors, _cap("records_per_person", records_per_person))
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

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return how far one change moves the sum in L2 norm, at most."""
        # R if one record is added, removed or made empty, 2R if it is replaced (the triangle
        # inequality, attained by opposite vectors); m times that for all records of one person.
        return _sensitivity(self.bound, neighbors, self.records_per_person)

    def mu(self, neighbors: NeighboringRelation) -> float:
        """Return the sensitivity divided by the standard deviation, with what the grid costs."""
        return self._mu(neighbors, self.records_per_person or 1)

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return what one release promises to one label, record or person; δ is :attr:`delta`."""
        # Guarantee: For unit ``"person"`` all vectors of one person together. With
        # ``records_per_person``, one record or label costs what one record moves: ids stay with
        # their rows, so which rows count does not change.
        _validate.one_of("unit", unit, ("label", "record", "person"))
        _known("neighbors", neighbors)
        event = GaussianEvent(self._mu(neighbors, self._records(unit, neighbors)))
        return stated(event, delta=self.delta, unit=unit, neighbors=neighbors, trust=trust)

    def release(
        self, values: Table, *, entropy: Entropy, persons: PersonIds | None = None
    ) -> Vector:
        """Return the noised sum; draws noise, so the spend must already be on a ledger.

        Guarantee:
            What :meth:`guarantee` returns.
        """
        refuse_persons(given=persons is not None, most=self.records_per_person)
        return self._noised(self._sum(values, persons), entropy)

    def total(self, values: Table, times: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " d"]:
        """Return the exact sum of vectors, each so many times, in steps of the grid."""
        # Totals of parts of the data may be added, in any order. They are as secret as the data.
        vectors = vector_array(values, most=self._most)
        return np.asarray(times @ clipped_rows(vectors, self._most, self.step))

    def release_total(self, total: Int64[np.ndarray, " d"], *, entropy: Entropy) -> Vector:
        """Return a sum of totals with noise; the spend must already be on a ledger.

        Guarantee:
            What :meth:`guarantee` returns.
        """
        return self._noised(total, entropy)

    # Beside its own `release` a class says of itself how that is played: else an auditor learns it.
    repeat = Repeated.repeat
    log_ratio = _OnGrid.log_ratio

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return two neighboring inputs, one coordinate wide, that attain the sensitivity."""
        # One record at the bound against an empty one, against none, or against its opposite. With
        # `records_per_person` = m it is m such records of one person, so that the cap keeps all of
        # them: `repeat` plays them without ids, and `release` gives the same with one id for all
        # rows.
        most = self.records_per_person or 1
        others = {
            REPLACE_SPECIAL: np.zeros((most, 1)),
            ADD_OR_REMOVE_ONE: np.zeros((0, 1)),
            REPLACE_ONE: np.full((most, 1), -self.bound),
        }
        return WorstCase(np.full((most, 1), self.bound), others[_known("neighbors", neighbors)])

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

    def _sum(self, values: np.ndarray, persons: PersonIds | None = None) -> Int64[np.ndarray, " d"]:
        """Return the exact sum of the clipped vectors that count, in steps of the grid."""
        vectors = vector_array(values, most=self._most)
        if persons is not None:
            vectors = vectors[first_rows(persons, len(vectors), self.records_per_person or 0)]
        return clipped_sum(vectors, self._most, self.step)

    def _releases(
        self, values: Table, trials: int, entropy: Entropy
    ) -> Float[np.ndarray, "trials d"]:
        # It takes no person ids: with `records_per_person` the rows are played as those that
        # already count, as `worst_case` gives them.
        total = self._sum(values)
        return self._noised(np.tile(total, trials), entropy).reshape(trials, len(total))

    def _noised(
        self, total: Int64[np.ndarray, " size"], entropy: Entropy
    ) -> Float[np.ndarray, " size"]:
        """Return noised steps as multiples of the step."""
        return with_noise(total, self._scale, entropy).astype(np.float64) * self.step


def _known(name: str, neighbors: NeighboringRelation) -> NeighboringRelation:
    """Return a relation; refuse what is none."""
    relation: NeighboringRelation = _validate.one_of(name, neighbors, NeighboringRelation)
    return relation


def _cap(name: str, most: int | None) -> int | None:
    """Return how many records of one person count; refuse what is no number of records."""
    # at most 2^40, so that a sensitivity stays a float
    return None if most is None else _validate.integer(name, most, at_least=1, at_most=2**40)


def _changes(neighbors: NeighboringRelation) -> int:
    """Return how many vectors differ between two neighbors: replacing takes one out, one in."""
    return 2 if _known("neighbors", neighbors) == REPLACE_ONE else 1


def _sensitivity(bound: float, neighbors: NeighboringRelation, records: int | None) -> float:
    """Return how far one change moves a sum of vectors of at most this norm, rounded up."""
    vectors = _changes(neighbors) * (records or 1)
    moved = vectors * bound
    exact = Fraction(moved) >= vectors * Fraction(bound)
    return moved if exact else math.nextafter(moved, math.inf)


_STEPS_OF_MOMENT_BOUND = (2**10, 2**24)
_MOST = 2**62
_POWERS_OF_BOUND = 400  # of two: its square, and that of its grid, is a float
_CHUNK = 1 << 18  # rows whose products of two halves, 2^24 each, a float adds exactly


@dataclass(frozen=True)
class SecondMoment(_OnGrid, Repeated[np.ndarray]):
    """Release Σ xxᵀ with noise (A + Aᵀ)/2, the entries of A independent.

    Guarantee:
        GaussianEvent of μ = Δ(1 + 2^-20)/s with Δ from :meth:`sensitivity`, for any number of
        records and any finite values; no arithmetic caveat. Shown by
        tests/unit/mechanisms/test_second_moment.py.
    """

    # Every record's vector x is clipped to the norm `bound` = R, whatever the others are. The
    # released matrix is symmetric; it may have negative eigenvalues.
    # Source: docs/central.md, "Second moment"; the grid as for `GaussianMechanism`. Differs:
    # vectors are rounded before their products are taken, so that the sensitivity needs no
    # allowance.

    # The noise is that of every entry of A, and of the released diagonal. The step of the matrix is
    # γ².
    unit: ClassVar[str] = "record"
    _power: ClassVar[int] = 2
    _grids: ClassVar[tuple[float, float]] = (2.0**-400, 2.0**400)
    _steps_of_bound = _STEPS_OF_MOMENT_BOUND

    def __post_init__(self) -> None:
        """Refuse what cannot be computed exactly."""
        object.__setattr__(self, "bound", usable_bound(self.bound, _POWERS_OF_BOUND))
        _validate.settle(self, standard_deviation=_validate.positive)
        super().__post_init__()

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return how far one change moves the sum in Frobenius norm, at most."""
        # R² if one record is added, removed or made empty, √2·R² if it is replaced (⟨xxᵀ, zzᵀ⟩ =
        # (xᵀz)² is never negative).
        return _moved(self.bound, neighbors)

    def mu(self, neighbors: NeighboringRelation) -> float:
        """Return the sensitivity divided by the standard deviation, with what the grid costs."""
        return self.sensitivity(neighbors) / self.standard_deviation * GRID_SLACK

    def operator_norm_bound(self, d: int, *, failure_probability: float) -> float:
        """Return a norm that the noise of a d × d matrix exceeds with this probability at most."""
        # Source: docs/central.md, "Second moment": s(√(2d) + √(2 log(2/η))), by Sudakov–Fernique
        # for the mean and Gaussian concentration around it.
        eta = _validate.fraction("failure_probability", failure_probability)
        spread = math.sqrt(2 * _validate.integer("d", d, at_least=1))
        return self.standard_deviation * (spread + math.sqrt(2 * math.log(2 / eta))) * GRID_SLACK

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return what one release promises; δ is :attr:`delta`."""
        _validate.one_of("unit", unit, ("label", "record", "person"))
        if unit != self.unit:
            raise PrivacyError(
                f"A second moment hides whole records and promises nothing with unit={unit!r}. Use "
                "unit='record', or a mechanism for that unit."
            )
        event = GaussianEvent(self.mu(neighbors))
        return stated(event, delta=self.delta, unit=unit, neighbors=neighbors, trust=trust)

    def total(self, values: Table) -> np.ndarray:
        """Return the exact sum of outer products in steps of the matrix's grid: whole numbers."""
        # Totals of parts of the data may be added, in any order. They are as secret as the data.
        vectors = vector_array(values, most=self._most)
        total = np.zeros((vectors.shape[1],) * 2, dtype=object)
        for start in range(0, len(vectors), _CHUNK):
            part = vectors[start : start + _CHUNK]
            total += outer_products(clipped_rows(part, self._most, self.step))
        return total

    def release_total(self, total: np.ndarray, *, entropy: Entropy) -> np.ndarray:
        """Return a sum of totals with noise, shape (d, d); the spend must already be on a ledger.

        Guarantee:
            What :meth:`guarantee` returns.
        """
        return np.asarray(self._noised(_cut(total), 1, entropy)[0])

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return two neighboring inputs that attain the sensitivity: orthogonal if replaced."""
        others = {
            REPLACE_SPECIAL: np.zeros((1, 2)),
            ADD_OR_REMOVE_ONE: np.zeros((0, 2)),
            REPLACE_ONE: np.array([[0.0, self.bound]]),
        }
        return WorstCase(np.array([[self.bound, 0.0]]), others[_known("neighbors", neighbors)])

    def _releases(
        self, values: Table, trials: int, entropy: Entropy
    ) -> Float[np.ndarray, "trials d d"]:
        return self._noised(self._sum(values), trials, entropy)

    def _sum(self, values: np.ndarray) -> Int64[np.ndarray, "d d"]:
        """Return the exact sum of outer products, cut."""
        return _cut(self.total(values))

    def _noised(
        self, total: Int64[np.ndarray, "d d"], trials: int, entropy: Entropy
    ) -> Float[np.ndarray, "trials d d"]:
        """Return symmetric matrices: noise on every entry at one scale, then the symmetric part."""
        scale = self.standard_deviation / self.step / self.step
        flat = with_noise(np.tile(total.ravel(), trials), scale, entropy)
        noised = flat.reshape(trials, *total.shape).astype(np.float64)
        return np.asarray((noised + noised.transpose(0, 2, 1)) / 2 * self.step**2)


def joint_mechanisms(
    epsilon: float,
    *,
    delta: float,
    bound: float,
    neighbors: NeighboringRelation,
    share: float = 0.5,
    ridge: float | None = None,
    atol: float | None = None,
) -> tuple[ObjectivePerturbation, SecondMoment]:
    """Return a tilted minimizer and a second moment that together keep (epsilon, delta).

    They are accounted for as one release: reserve the event of the first one, and no other.

    Args:
        epsilon: Bound on the privacy loss of both, finite and above 0.
        delta: Failure probability of both, in (0, 1).
        bound: Norm to which every record is clipped, for both.
        neighbors: What one change is.
        share: μ of the second moment, as a share in (0, 1) of the largest possible; the tilt gets
            what is left.
        ridge: As for :class:`~sordino.mechanisms.objective_perturbation.ObjectivePerturbation`.
        atol: As for that class.

    Raises:
        UsageError: A setting is out of range, or the second moment would need more noise than any
            grid holds.

    Guarantee:
        (epsilon, delta) for both together, for one record; caveat ``real-arithmetic``. Shown by
        tests/soundness/test_objective_perturbation.py.
    """
    tilted = partial(
        ObjectivePerturbation, epsilon, delta=delta, bound=bound, neighbors=neighbors, ridge=ridge
    )
    tilted = tilted if atol is None else partial(tilted, atol=atol)
    alone, share = tilted(), _validate.fraction("share", share)
    legs = 2 if neighbors == REPLACE_ONE else 1
    mu = share * gaussian_mu(alone.epsilon - alone.jacobian, alone.delta) / legs
    size = _moved(alone.bound, REPLACE_SPECIAL) * GRID_SLACK / mu * GRID_SLACK
    step = alone.bound * _DEFAULT_GRID
    times = size / step / step / STEPS_OF_NOISE[1] * 2  # above 1: the usual grid is too fine
    grid = None if times <= 1 else step * 2.0 ** math.ceil(math.log2(times) / 2)
    if grid is not None and grid * _STEPS_OF_MOMENT_BOUND[0] > alone.bound:
        raise UsageError(
            f"epsilon={epsilon!r} and share={share!r} ask for noise of {size:.6g} on a second "
            "moment: more than any grid holds. Use a larger epsilon or share, or no second moment."
        )
    return (
        tilted(second_moment_mu=mu),
        SecondMoment(size, bound=bound, neighbors=neighbors, delta=delta, grid=grid),
    )


def _moved(bound: float, neighbors: NeighboringRelation) -> float:
    """Return R², or √2·R² if a record is replaced, rounded up."""
    _known("neighbors", neighbors)
    square = math.nextafter(bound * bound, math.inf)
    return square if neighbors != REPLACE_ONE else square * math.sqrt(2) * (1 + 2.0**-50)


def _cut(total: np.ndarray) -> Int64[np.ndarray, "d d"]:
    """Return whole numbers cut to ±2^62, which brings no two sums further apart."""
    return np.asarray(np.clip(total, -_MOST, _MOST).astype(np.int64))
