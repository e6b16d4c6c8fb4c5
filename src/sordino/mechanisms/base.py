"""What every source of noise must say of itself, and what all of ours share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino._random import Entropy
from sordino._validate import Integers
from sordino.errors import DataError, UsageError
from sordino.privacy import accounting
from sordino.privacy.conversions import gaussian_mu
from sordino.privacy.guarantee import (
    SHARES,
    UNDECIDED,
    Event,
    Guarantee,
    NeighboringRelation,
    Trust,
    Unit,
)

Made = TypeVar("Made")
Values = TypeVar("Values")


@dataclass(frozen=True)
class WorstCase:
    """Two neighboring inputs on which the stated loss is attained: what an auditor plays with."""

    one: np.ndarray
    other: np.ndarray


@runtime_checkable
class Mechanism(Protocol):
    """A source of noise: public settings are its fields, private data only ever arguments.

    A mechanism is arithmetic: it does not know a ledger. Whoever calls :meth:`release` on
    private data must have reserved :attr:`event` on a ledger first; inside the library only the
    functions that take ``ledger=`` do.
    """

    @property
    def event(self) -> Event:
        """Return what one release does, for the ledger."""

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return how far one change can move the value that is released."""
        # Raises: PrivacyError: The mechanism promises nothing under this relation.
        ...

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return what one release promises under a relation."""

    def release(self, values: np.ndarray, *, entropy: Entropy) -> np.ndarray:
        """Return the noised values; draws noise, so the spend must already be on a ledger.

        Guarantee:
            What :meth:`guarantee` returns for the relation, for any two neighboring inputs;
            shown by the soundness tests of each mechanism.
        """

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return two neighboring inputs on which the stated loss is attained."""


@runtime_checkable
class Repeatable(Protocol):
    """What a mechanism may offer to an auditor beside :class:`Mechanism`: many releases at once."""

    # A mechanism without it is released once per trial, and an auditor learns how to tell its
    # outputs apart; both are slower and weaker.

    def repeat(self, values: np.ndarray, trials: int, *, entropy: Entropy) -> np.ndarray:
        """Return independent releases of the same made-up values, one in each row.

        Guarantee:
            None for all rows together: each row is one release. Never call it on private data.
        """

    def log_ratio(self, outputs: np.ndarray, case: WorstCase) -> np.ndarray:
        """Return log P(output | case.one) − log P(output | case.other) for every row."""


class Repeated(ABC, Generic[Values]):
    """A mechanism that is told once how to draw: one release is the first of many."""

    def release(self, values: Values, *, entropy: Entropy) -> np.ndarray:
        """Return what is released; draws noise, so the spend must already be on a ledger.

        Guarantee:
            What ``guarantee`` returns.
        """
        return np.asarray(self._releases(values, 1, entropy)[0])

    def repeat(self, values: Values, trials: int, *, entropy: Entropy) -> np.ndarray:
        """Return independent releases of the same made-up values, one in each row.

        Guarantee:
            None for all rows together: each row is one release. Never call it on private data.
        """
        trials = _validate.integer("trials", trials, at_least=1)
        return self._releases(values, trials, entropy).reshape(trials, -1)

    @abstractmethod
    def _releases(self, values: Values, trials: int, entropy: Entropy) -> np.ndarray:
        """Return independent releases of the same values, one in each row."""


class Described:
    """A mechanism that says in reports what it is and with which public settings."""

    name: ClassVar[str]  # as results and reports know it
    public: ClassVar[tuple[str, ...]] = ()  # settings and sizes of noise, beside ε and δ
    noise: ClassVar[str] = "Gaussian"  # as reports call it

    def describe(self) -> dict[str, object]:
        """Return its name and its public numbers, for reports; no auditor reads it."""
        values = {name: getattr(self, name) for name in ("name", "epsilon", "delta", *self.public)}
        return {name: None if value == math.inf else value for name, value in values.items()}


@lru_cache(maxsize=1024, typed=True)  # a forecast and a ledger ask the same again and again
def stated(
    event: Event,
    *,
    delta: float,
    unit: Unit,
    neighbors: NeighboringRelation,
    trust: Trust,
    caveats: tuple[str, ...] = (),
    count: int = 1,
) -> Guarantee:
    """Return what so many releases promise at a failure probability, as the accountant shows it."""
    loss = accounting.composed_epsilon([(event, count)], neighbors=neighbors, delta=delta)
    return Guarantee(
        loss, delta=delta, unit=unit, neighbors=neighbors, trust=trust, caveats=caveats
    )


def gaussian_log_ratio(
    outputs: Float[np.ndarray, "trials d"],
    one: Float[np.ndarray, " d"],
    other: Float[np.ndarray, " d"],
    deviation: float,
) -> Float[np.ndarray, " trials"]:
    """Return the log-ratio of every output of Gaussian noise around one value or another."""
    # On a grid the discrete and the continuous Gaussian have the same: ⟨a − b, output − (a + b)/2⟩
    # over the variance.
    distance = (np.asarray(outputs) - (one + other) / 2) / deviation
    return np.asarray(distance @ ((one - other) / deviation))


def usable_mu(epsilon: float, delta: float) -> float:
    """Return the largest μ that is (epsilon, delta)-private."""
    epsilon = _validate.positive("epsilon", epsilon)
    mu = gaussian_mu(epsilon, _validate.fraction("delta", delta))
    if mu == 0:
        raise UsageError(f"delta={delta!r} is too small for Gaussian noise of any size.")
    return mu


def least_that_keeps(
    start: float, make: Callable[[float], Made], keeps: Callable[[Made], bool]
) -> Made:
    """Return what is made of the least size, from ``start`` up, whose own statement is kept."""
    # A formula gives the size up to the last bits of a float; it is raised by twice as many of them
    # until the promise that is really stated holds.
    size, more = start, 2.0**-52
    while not keeps(made := make(size)):
        size, more = size * (1 + more), 2 * more
    return made


def label_array(values: Integers) -> Integers:
    """Return labels in one dimension as int8."""
    labels = np.asarray(values)
    wrong: np.ndarray | list[int] = [0]
    if labels.ndim == 1:
        wrong = np.flatnonzero(~np.isin(labels, np.arange(len(SHARES))))
    if len(wrong):
        raise DataError(
            f"Labels must be 0, 1, {UNDECIDED} (undecided) or the code of a level in one "
            f"dimension: index {wrong[0]} is not."
        )
    return labels.astype(np.int8)
