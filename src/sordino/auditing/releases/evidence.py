"""From many attacks to one verdict: each has a p-value, and together they err as rarely as said.

Exact tails of a number of successes, for chances that are equal and for those that are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Integer
from scipy.special import betainc

from sordino.auditing.findings import Finding

from .reading import UNKNOWN


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Channel:
    """Something in a released file, other than its answers, that may say who was preferred."""

    # Name of the attack that reads it: `"position"`, `"id-hash"`, `"row-order"`, `"column"`,
    # `"time"`.
    name: str
    # 1 where it says that the answer written first is preferred, 0 where the other is, `UNKNOWN`
    #   where it says nothing. No released answer is used to make them.
    guesses: Integer[np.ndarray, " n"]
    # Which recipe, which column; JSON-like, no data.
    details: Mapping[str, object] = field(default_factory=dict)

    @property
    def speaks(self) -> Bool[np.ndarray, " n"]:
        """Return where it says something."""
        return np.asarray(self.guesses != UNKNOWN)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What one attack found, before it is known how many were tried."""

    attack: str  # name of the attack
    p_value: float  # chance of evidence as strong as this if the claim holds; 1 says nothing
    if_refutes: str  # one sentence for the case that it refutes
    if_clear: str  # one sentence for the case that it does not
    recovered: float | None = None  # share of labels that it reads out, if it reads any
    details: Mapping[str, object] = field(default_factory=dict)  # more numbers, JSON-like; no data
    # From a confidence to a lower bound on ε, for an attack that shows one where it refutes.
    bound: Callable[[float], float] | None = None


def decide(evidence: Sequence[Evidence], level: float) -> list[Finding]:
    """Return every attack with its verdict, in the order given."""
    # Source: Holm 1979: sorted p-values, the i-th of m against level/(m − i + 1), until one fails.
    order = sorted(range(len(evidence)), key=lambda index: evidence[index].p_value)
    refuting: set[int] = set()
    for rank, index in enumerate(order):
        if evidence[index].p_value > level / (len(evidence) - rank):
            break
        refuting.add(index)
    return [
        Finding(
            attack=each.attack,
            outcome="refutes" if index in refuting else "clear",
            summary=each.if_refutes if index in refuting else each.if_clear,
            recovered=each.recovered,
            p_value=each.p_value,
            details=each.details,
        )
        for index, each in enumerate(evidence)
    ]


def at_least(successes: int, n: int, chance: float) -> float:
    """Return the probability that n trials of one chance succeed at least this often."""
    return 1.0 if successes <= 0 else float(betainc(successes, n - successes + 1, chance))


def at_most(successes: int, n: int, chance: float) -> float:
    """Return the probability that n trials of one chance succeed at most this often."""
    return at_least(n - successes, n, 1 - chance)


def mixed_at_least(successes: int, n: int, mean: float) -> float:
    """A bound on the probability of so many successes, whatever the chances of each trial."""
    # Source: Hoeffding 1956, Theorem 4: from one above the expected number on, equal chances make
    # the tail heaviest. Below that the bound is 1.
    return at_least(successes, n, mean) if successes >= n * mean + 1 else 1.0
