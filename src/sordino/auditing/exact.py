"""The true privacy loss of a finite mechanism: every output against every neighbor, exactly.

Where a mechanism has finitely many outputs and its probabilities are known as fractions, nothing
needs to be sampled: the loss is a maximum over a table. It is computed in 50 decimal digits.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from typing import TypeVar

from sordino.errors import UsageError

DIGITS = 50
Input = TypeVar("Input", bound=Hashable)
Channel = Mapping[Input, Mapping[Hashable, Fraction]]
"""For every input, the exact probability of every output."""


def label_neighbors(labels: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield every pair of 0/1 labelings that differ in exactly one label, both ways round.

    Args:
        labels: How many labels there are.

    Example:
        >>> list(label_neighbors(1))
        [((0,), (1,)), ((1,), (0,))]
    """
    for one in product((0, 1), repeat=labels):
        for index in range(labels):
            yield one, (*one[:index], 1 - one[index], *one[index + 1 :])


def exact_epsilon(channel: Channel[Input], neighbors: Iterable[tuple[Input, Input]]) -> Decimal:
    """Return the smallest ε for which the channel is (ε, 0)-private, to 50 digits.

    Args:
        channel: For every input, the exact probability of every output.
        neighbors: Ordered pairs of inputs that differ by one change.

    Returns:
        The largest log-ratio over all outputs and pairs; infinity if some output is possible
        for one input only.

    Raises:
        UsageError: A row of the channel does not sum to exactly 1.

    Source:
        Dwork & Roth 2014, Definition 2.4 with δ = 0.

    Example:
        >>> coin = {0: {0: Fraction(3, 4), 1: Fraction(1, 4)},
        ...         1: {0: Fraction(1, 4), 1: Fraction(3, 4)}}
        >>> abs(float(exact_epsilon(coin, [(0, 1)])) - 1.0986122886681098) < 1e-15
        True
    """
    for row in channel.values():
        if any(chance < 0 for chance in row.values()) or sum(row.values()) != 1:
            raise UsageError("Every input of a channel needs probabilities that sum to exactly 1.")
    worst = Fraction(1)
    for one, other in neighbors:
        for output, chance in channel[one].items():
            against = channel[other].get(output, Fraction(0))
            if chance > 0 == against:
                return Decimal("Infinity")
            if chance > 0:
                worst = max(worst, chance / against)
    with localcontext(prec=DIGITS):
        return (Decimal(worst.numerator) / Decimal(worst.denominator)).ln()
