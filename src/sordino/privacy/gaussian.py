"""What Gaussian noise promises: delta, epsilon and mu, each from the other two.

With sensitivity Δ and standard deviation s, μ = Δ/s is all that matters, and k releases compose
exactly to √Σμ². Every function here is numerically stable where the textbook formula is not: it
subtracts two nearly equal tails and multiplies one of them by e^ε.

Root finding that ends on the safe side: the bracket is returned, never its middle.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from functools import partial

import numpy as np
from scipy.special import erfcx

from sordino._validate import failure_probability, non_negative, number

_LARGEST = 1e308
_TINIEST = 1e-120


def float_up(value: Decimal) -> float:
    """Return a float whose printed decimal number is at least value."""
    # What counts is what is written, here as everywhere in accounting: 0.1 is written for a float
    # that is a little larger, other numbers for one that is smaller, and whoever adds up what is
    # written must not be told too little.
    result = float(value)
    while Decimal(repr(result)) < value:
        result = math.nextafter(result, math.inf)
    return result


def raised(value: float) -> float:
    """Return a loss or a ratio, or 1e-120 if it is positive but smaller."""
    # Squares of smaller numbers would underflow to "no loss at all"; more loss is always safe.
    return max(value, _TINIEST) if value > 0 else value


def narrow(
    holds: Callable[[float], bool], fails: float, succeeds: float, *, rtol: float = 1e-15
) -> tuple[float, float]:
    """Return a bracket (last that fails, last that succeeds), at most rtol apart."""
    # `fails` may lie on either side of `succeeds`. `holds` was true of every value returned second,
    # so that end is safe even where rounding makes `holds` not monotone.
    while abs(succeeds - fails) > rtol * max(abs(succeeds), abs(fails)):
        middle = _middle(fails, succeeds)
        if middle in (fails, succeeds):
            break
        if holds(middle):
            succeeds = middle
        else:
            fails = middle
    return fails, succeeds


def _middle(one: float, other: float) -> float:
    """Return the geometric mean of two positive numbers far apart, else the arithmetic one."""
    low, high = min(one, other), max(one, other)
    if low > 0 and high > 2 * low:
        return math.sqrt(low) * math.sqrt(high)
    if low == 0 and high > 1e-300:  # noqa: PLR2004 - a geometric step towards zero
        return high * 2.0**-8
    return low + (high - low) / 2


def bracket_up(holds: Callable[[float], bool], start: float) -> tuple[float, float]:
    """Return (last that fails, first that succeeds) of start, 2 start, 4 start, ..."""
    # The second is infinite if nothing finite succeeds; the first is 0 if start succeeds.
    fails = 0.0
    while start < _LARGEST:
        if holds(start):
            return fails, start
        fails, start = start, 2 * start
    return fails, math.inf


def bracket_down(holds: Callable[[float], bool], start: float) -> tuple[float, float]:
    """Return (last that fails, first that succeeds) of start, start/2, ...; then 0."""
    fails = start
    while start > 0:
        if holds(start):
            return fails, start
        fails, start = start, start / 2
    return fails, 0.0


_SMALLEST = 2.3e-308  # what underflows is rounded up to about the smallest normal float
_FAR = 40.0  # the normal density at this many standard deviations is no float
_UP = 3e-14  # above the measured error of every branch, away from the exponential
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the smallest delta for which Gaussian noise is (epsilon, delta)-private.

    Guarantee:
        an upper bound within 1e-9 (relative) of the exact value for epsilon in [1e-3, 50] and delta
        in [1e-12, .5], and an upper bound elsewhere too: a value that underflows is rounded up to
        the smallest normal float. Shown by ``tests/soundness/test_conversions_soundness.py``.
    """
    # `Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)`, computed as `φ(u)[R(u) − R(u + μ)]` with `u = ε/μ − μ/2`
    # and R the Mills ratio.
    # Source: Balle, Wang (2018), Theorem 8; Dong, Roth, Su (2022), Corollary 2.13.
    epsilon, mu = number("epsilon", epsilon), non_negative("mu", mu)
    if epsilon < 0:
        # The two directions are mirror images: 1 - e^ε + e^ε δ(-ε), a sum of positive terms.
        mirrored = math.exp(epsilon) * gaussian_delta(-epsilon, mu)
        return min(1.0, (mirrored - math.expm1(epsilon)) * (1 + _UP))
    if mu == 0 or epsilon == math.inf:
        return 0.0
    if mu == math.inf:
        return 1.0
    return min(1.0, max(_SMALLEST, _positive_side(epsilon, mu)))


def gaussian_epsilon(delta: float, mu: float) -> float:
    """Return the smallest epsilon, at least 0, that Gaussian noise keeps at this delta.

    Guarantee:
        ``gaussian_delta(result, mu) <= delta`` for every accepted argument; within 1e-9 (relative)
        of the exact value for results in [1e-3, 50] and delta in [1e-12, .5].
    """
    # Source: Balle, Wang (2018), Theorem 8.
    delta, mu = failure_probability("delta", delta), non_negative("mu", mu)
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    if delta < _SMALLEST * 2 or mu == math.inf:
        return math.inf
    # Φ(-u) <= exp(-u²/2), so this much always suffices; it is doubled against rounding.
    enough = mu * mu + 2 * mu * math.sqrt(-2 * math.log(delta))
    if not math.isfinite(enough) or gaussian_delta(enough, mu) > delta:
        return math.inf
    return narrow(lambda epsilon: gaussian_delta(epsilon, mu) <= delta, 0.0, enough)[1]


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu for which Gaussian noise is (epsilon, delta)-private.

    The standard deviation to use is then sensitivity / mu.

    Args:
        epsilon: Privacy loss, at least 0.
        delta: Failure probability in [0, 1).

    Returns:
        The lower end of the final bracket around the root of ``gaussian_delta``; 0 if delta is 0,
        infinity if epsilon is.

    Raises:
        UsageError: If an argument is out of range.

    Source:
        Balle, Wang (2018), Theorem 8 and Algorithm 1.

    Guarantee:
        ``gaussian_delta(epsilon, result) <= delta`` for every accepted argument; within 1e-9
        (relative) of the exact value for epsilon in [1e-3, 50] and delta in [1e-12, .5].

    Example:
        >>> round(gaussian_mu(1.0, 1e-6), 6)
        0.236704
    """
    epsilon, delta = non_negative("epsilon", epsilon), failure_probability("delta", delta)
    if epsilon == math.inf:
        return math.inf
    holds = partial(_keeps, epsilon, delta)
    if delta < _SMALLEST * 2:
        return 0.0
    too_much = 2 * math.sqrt(2 * epsilon) + 80.0  # then u < -39 and delta rounds to 1
    return narrow(holds, too_much, 0.0)[1]


def _keeps(epsilon: float, delta: float, mu: float) -> bool:
    """Return whether mu is small enough for (epsilon, delta)."""
    return gaussian_delta(epsilon, mu) <= delta


def _positive_side(epsilon: float, mu: float) -> float:
    """Return delta for epsilon >= 0 and finite mu > 0, rounded up."""
    below = epsilon / mu - mu / 2
    if below > _FAR:
        return 0.0
    # u carries the rounding of ε/μ and μ/2; exp(-u²/2) multiplies it by u, R and Φ by about 1.
    rounding = 1 + _UP + 4e-16 * (1 + abs(below)) * (epsilon / mu + mu / 2)
    density = math.exp(-below * below / 2) / math.sqrt(2 * math.pi)
    if mu <= 1:
        # R(u) - R(u + μ) = ∫ (1 - t R(t)) dt: no subtraction of nearly equal numbers.
        t = below + mu * (1 + _NODES) / 2
        return density * mu / 2 * float(_WEIGHTS @ (1 - t * _mills(t))) * rounding
    above = density * float(_mills(below + mu))
    if below >= 0:
        return (density * float(_mills(below)) - above) * rounding
    return (math.erfc(below / math.sqrt(2)) / 2 - above) * rounding


def _mills(t: float | np.ndarray) -> np.ndarray:
    """Return the upper tail of the standard normal divided by its density."""
    return np.asarray(math.sqrt(math.pi / 2) * erfcx(t / math.sqrt(2)))
