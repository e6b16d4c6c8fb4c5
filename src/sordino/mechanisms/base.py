"""What every source of noise must say of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from sordino._random import Entropy
from sordino.privacy.events import Event
from sordino.privacy.guarantee import Guarantee, NeighboringRelation, Trust, Unit

__all__ = ["Mechanism", "Repeatable", "WorstCase"]


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
        ...

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return how far one change can move the value that is released.

        Raises:
            PrivacyError: The mechanism promises nothing under this relation.
        """
        ...

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return what one release promises under a relation."""
        ...

    def release(self, values: np.ndarray, *, entropy: Entropy) -> np.ndarray:
        """Return the noised values; draws noise, so the spend must already be on a ledger.

        Guarantee:
            What :meth:`guarantee` returns for the relation, for any two neighboring inputs;
            shown by the soundness tests of each mechanism.
        """
        ...

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return two neighboring inputs on which the stated loss is attained."""
        ...


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
        ...

    def log_ratio(self, outputs: np.ndarray, case: WorstCase) -> np.ndarray:
        """Return log P(output | case.one) − log P(output | case.other) for every row."""
        ...
