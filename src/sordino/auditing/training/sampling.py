"""Does a sampler draw as its accountant counts: everybody alone, in every step anew?

The tests are exact: under the claim every number below is that of a binomial. A loader that
shuffles and cuts batches of one size draws each unit as often as a Poisson sample does, and is
found by its sizes and by who comes back in the next batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sordino._random import Entropy
from sordino._validate import integer
from sordino.auditing.findings import Finding
from sordino.language.clipping.poisson_batches import sampling_threshold

__all__ = ["ATTACK", "Draws", "Sampler", "sampling_finding"]

ATTACK: Final = "sampler"

Sampler = Callable[[Sequence[int], Entropy], Sequence[Hashable]]
"""From everybody, and a source of words, to those who take part in one step."""

_EXPECTED: Final = 2.0  # units in a batch: few enough that some batches are empty
_MOST: Final = 4096
_POWER: Final = 0.95


@dataclass(frozen=True, kw_only=True)
class Draws:
    """What was counted, and the binomial that it follows if the claim is true.

    Attributes:
        name: What was counted.
        count: How often it happened.
        trials: How often it could have.
        chance: Its probability under the claim, in [0, 1].
    """

    name: str
    count: int
    trials: int
    chance: float

    @property
    def p_value(self) -> float:
        """Return twice the smaller tail of the binomial, at most 1."""
        from scipy.stats import binom  # noqa: PLC0415 (slow to import)

        low = binom.cdf(self.count, self.trials, self.chance)
        high = binom.sf(self.count - 1, self.trials, self.chance)
        return float(min(1.0, 2 * min(low, high)))


def sampling_finding(
    sampler: Sampler, probability: float, *, level: float, entropy: Entropy, trials: int = 2000
) -> Finding:
    """Return whether batches are Poisson samples, by exact tests that share one level.

    Args:
        sampler: Draws one batch; called once for every step, with the units 0, 1, ...
        probability: q, with which the accountant counts; in (0, 1].
        level: Chance that a Poisson sampler is refuted; divided by the number of tests.
        entropy: Handed to the sampler.
        trials: Batches that are drawn; even, at least 20.

    Raises:
        UsageError: The probability is not in (0, 1].

    Guarantee:
        None is needed: the units are numbers, and nobody's.

    Source:
        docs/auditing.md, "Training".
    """
    sampling_threshold(probability)
    trials = 2 * (integer("trials", trials, at_least=20) // 2)
    units = min(_MOST, max(4, math.ceil(_EXPECTED / probability)))
    batches = [list(sampler(range(units), entropy)) for _ in range(trials)]
    tests = _counted(batches, units, probability)
    worst = min(tests, key=lambda test: test.p_value)
    strange = any(len(set(one)) < len(one) or not set(one) <= set(range(units)) for one in batches)
    refuted = strange or worst.p_value < level / len(tests)
    return Finding(
        attack=ATTACK,
        outcome="refutes" if refuted else "clear",
        summary=_summary(worst, refuted=refuted, strange=strange, trials=trials)
        + ("" if refuted else _limits(probability, units * trials, level / len(tests))),
        p_value=0.0 if strange else min(1.0, worst.p_value * len(tests)),
        details={
            "batches": trials,
            "units": units,
            "sampling_probability": probability,
            "tests": {test.name: _told(test) for test in tests},
        },
    )


def _counted(batches: list[list[Any]], units: int, q: float) -> list[Draws]:
    """Return everything that is counted in batches of made-up units."""
    from scipy.stats import binom  # noqa: PLC0415

    sizes = np.array([len(one) for one in batches])
    trials = len(batches)
    middle = round(units * q)
    again = sum(
        len({*one} & {*other}) for one, other in zip(batches[::2], batches[1::2], strict=True)
    )
    usual = float(binom.pmf(middle, units, q))
    fewer = float(binom.cdf(middle - 1, units, q))
    return [
        Draws(name="inclusions", count=int(sizes.sum()), trials=units * trials, chance=q),
        Draws(name="usual sizes", count=int((sizes == middle).sum()), trials=trials, chance=usual),
        Draws(name="smaller sizes", count=int((sizes < middle).sum()), trials=trials, chance=fewer),
        Draws(
            name="empty batches",
            count=int((sizes == 0).sum()),
            trials=trials,
            chance=(1 - q) ** units,
        ),
        Draws(name="drawn again", count=again, trials=units * (trials // 2), chance=q * q),
    ]


def _told(test: Draws) -> dict[str, float]:
    """Return a test as JSON holds it."""
    return {
        "count": test.count,
        "trials": test.trials,
        "chance": test.chance,
        "p_value": test.p_value,
    }


def _summary(worst: Draws, *, refuted: bool, strange: bool, trials: int) -> str:
    """Return in one sentence what the batches show."""
    if strange:
        return "A batch holds a unit twice, or one that was not there: that is no sample."
    share, expected = worst.count / worst.trials, worst.chance
    told = f"{worst.name} have a share of {share:.4g} where {expected:.4g} is expected"
    if refuted:
        return f"{trials} batches are not drawn as the accountant counts: {told}."
    return f"{trials} batches look like Poisson samples; at most, {told}."


def _limits(q: float, draws: int, level: float) -> str:
    """Return which chance would have been found."""
    from scipy.stats import binom  # noqa: PLC0415

    if q == 1:
        return " Anybody who is ever left out would have been noticed."
    above = binom.isf(level / 2, draws, q)
    tried = q + (1 - q) * np.geomspace(1e-6, 1, 400)
    found = tried[binom.sf(above, draws, tried) >= _POWER]
    return f" A chance of {found[0]:.3g} where {q:g} is claimed would have been detected."
