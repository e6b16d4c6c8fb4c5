"""Every formula that turns one way to state privacy into another, under one roof.

Gaussian noise comes first: with sensitivity Δ and standard deviation s, μ = Δ/s is all that
matters, and k releases compose exactly to √Σμ². Every function of it is numerically stable where
the textbook formula is not: it subtracts two nearly equal tails and multiplies one by e^ε. Root
finding ends on the safe side: the bracket is returned, never its middle.

Draws from a Gibbs policy promise what follows from the length b of the interval of their
log-ratios. They are zero-concentrated too, whose conversion to (epsilon, delta) and into it comes
first. One draw has a closed form. Independent draws from one policy have their worst case at some
position t of the interval, [t − b, t]; a grid over t under-estimates that supremum, so the
search below bounds whole cells of t from above and refines only the cells that could matter.

A label is flipped when a uniform 64-bit word falls below an integer threshold, so what a person is
promised is a ratio of two integers and not the rounding of an exponential.

Arguments are positional, in the order in which the name reads. Nothing here knows of
dp_accounting: tests compare the two.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from decimal import ROUND_CEILING, Context, Decimal
from functools import lru_cache, partial

import numpy as np
from scipy.special import erfcx, gammaln

from sordino._validate import failure_probability, integer, non_negative, number, positive
from sordino.errors import PrivacyError, UsageError

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
        low, high = min(fails, succeeds), max(fails, succeeds)
        middle = low + (high - low) / 2
        if low > 0 and high > 2 * low:  # far apart: the geometric mean
            middle = math.sqrt(low) * math.sqrt(high)
        elif low == 0 and high > 1e-300:  # noqa: PLR2004 - a geometric step towards zero
            middle = high * 2.0**-8
        if middle in (fails, succeeds):
            break
        if holds(middle):
            succeeds = middle
        else:
            fails = middle
    return fails, succeeds


def bracket_up(holds: Callable[[float], bool], start: float) -> tuple[float, float]:
    """Return (last that fails, first that succeeds) of start, 2 start, 4 start, ..."""
    # The second is infinite if nothing finite succeeds; the first is 0 if start succeeds.
    fails = 0.0
    while start < _LARGEST:
        if holds(start):
            return fails, start
        fails, start = start, 2 * start
    return fails, math.inf


_SMALLEST = 2.3e-308  # what underflows is rounded up to about the smallest normal float
_FAR = 40.0  # the normal density at this many standard deviations is no float
_ABOVE_ERROR = 3e-14  # above the measured error of every branch, away from the exponential
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
        return min(1.0, (mirrored - math.expm1(epsilon)) * (1 + _ABOVE_ERROR))
    if mu == 0 or epsilon == math.inf:
        return 0.0
    if mu == math.inf:
        return 1.0
    below = epsilon / mu - mu / 2
    if below > _FAR:
        return _SMALLEST
    # u carries the rounding of ε/μ and μ/2; exp(-u²/2) multiplies it by u, R and Φ by about 1.
    rounding = 1 + _ABOVE_ERROR + 4e-16 * (1 + abs(below)) * (epsilon / mu + mu / 2)
    density = math.exp(-below * below / 2) / math.sqrt(2 * math.pi)
    if mu <= 1:
        # R(u) - R(u + μ) = ∫ (1 - t R(t)) dt: no subtraction of nearly equal numbers.
        t = below + mu * (1 + _NODES) / 2
        delta = density * mu / 2 * float(_WEIGHTS @ (1 - t * _mills(t)))
    else:
        tail = math.erfc(below / math.sqrt(2)) / 2
        tail = density * float(_mills(below)) if below >= 0 else tail
        delta = tail - density * float(_mills(below + mu))
    return min(1.0, max(_SMALLEST, delta * rounding))


def gaussian_epsilon(delta: float, mu: float) -> float:
    """Return the smallest epsilon, at least 0, that Gaussian noise keeps at this delta."""
    # `gaussian_delta(result, mu) <= delta` for every accepted argument; within 1e-9 (relative) of
    # the exact value for results in [1e-3, 50] and delta in [1e-12, .5].
    # Source: Balle, Wang (2018), Theorem 8.
    delta, mu = failure_probability("delta", delta), non_negative("mu", mu)
    # Φ(-u) <= exp(-u²/2), so this much always suffices; it is doubled against rounding.
    enough = mu * mu + 2 * mu * math.sqrt(-2 * math.log(delta or _SMALLEST))
    return _least_epsilon(gaussian_delta, delta, mu, enough, 1e-15)


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
    if delta < _SMALLEST * 2:
        return 0.0
    return _largest_mu(gaussian_delta, epsilon, delta)


# A run asks for the same few roots hundreds of times, and each takes fifty points of its curve.


@lru_cache(maxsize=4096)
def _least_epsilon(
    curve: Callable[[float, float], float], delta: float, loss: float, enough: float, rtol: float
) -> float:
    """Return the least epsilon, at most so much, at which the curve of a loss keeps delta."""
    if curve(0.0, loss) <= delta:
        return 0.0
    shown = delta >= _SMALLEST * 2 and math.isfinite(enough)
    if not shown or curve(enough, loss) > delta:
        return math.inf
    return narrow(lambda epsilon: curve(epsilon, loss) <= delta, 0.0, enough, rtol=rtol)[1]


@lru_cache(maxsize=4096)
def _largest_mu(curve: Callable[[float, float], float], epsilon: float, delta: float) -> float:
    too_much = 2 * math.sqrt(2 * epsilon) + 80.0  # then u < -39 and delta rounds to 1
    return narrow(lambda mu: curve(epsilon, mu) <= delta, too_much, 0.0)[1]


def _mills(t: float | np.ndarray) -> np.ndarray:
    """Return the upper tail of the standard normal divided by its density."""
    return np.asarray(math.sqrt(math.pi / 2) * erfcx(t / math.sqrt(2)))


_SEARCHED_UP = 1 + 1e-12
_WIDEST = 700.0  # e^b beyond it is no float; such a draw hides nothing
_TIGHTNESS = 1.005  # the search stops when upper <= 1.005 lower
_CELLS = 32  # first cells of t
_MOST_CELLS = 50_000
_BATCH = 64  # cells refined together
_PIECES = 4
_MOST_DRAWS = 1_000_000  # beyond it only zCDP and the pure sum are used
_BLOCK = 1 << 20  # numbers held at once
_LARGEST_ORDER = 1e150


def zcdp_delta(epsilon: float, rho: float) -> float:
    """Return a delta for which every rho-zCDP release is (epsilon, delta)-private."""
    # An upper bound for every accepted argument: every order is valid, so an order that is not
    # quite the best costs tightness and not soundness.
    # The least over orders α > 1 of `exp((α−1)(αρ − ε))/(α−1) · (1 − 1/α)^α`.
    # Source: Canonne, Kamath, Steinke (2020), Proposition 12 and Corollary 13.
    epsilon, rho = non_negative("epsilon", epsilon), non_negative("rho", rho)
    if rho == 0 or epsilon == math.inf:
        return 0.0
    if rho > 1e6 + 4 * epsilon:
        return 1.0
    # An order α close to the best one, less 1, is the root of an increasing function. The
    # logarithm of delta is convex in α, with slope (2α − 1)ρ − ε + log(1 − 1/α).
    # log(1 + 1/x) <= 1/x makes the slope positive here; any order is valid, so cutting it is too.
    less = min((epsilon + math.sqrt(epsilon * epsilon + 8 * rho)) / (4 * rho), _LARGEST_ORDER)
    low = 0.0
    for _ in range(60):
        middle = (low + less) / 2 if low >= less / 8 else less / 8
        if (2 * middle + 1) * rho - epsilon - math.log1p(1 / middle) < 0:
            low = middle
        else:
            less = middle
        if less - low < 1e-9 * less:
            break
    log_delta = less * ((1 + less) * rho - epsilon - math.log1p(1 / less)) - math.log1p(less)
    # The exponent is a difference of large numbers: allow for the rounding of both.
    log_delta += 4e-16 * less * ((1 + less) * rho + epsilon)
    return min(1.0, max(_SMALLEST, math.exp(min(log_delta, 0.0)) * _SEARCHED_UP))


def zcdp_epsilon(delta: float, rho: float) -> float:
    """Return an epsilon, at least 0, that every rho-zCDP release keeps at this delta."""
    # `zcdp_delta(result, rho) <= delta`: an upper bound for every accepted argument.
    # Source: Canonne, Kamath, Steinke (2020), Corollary 13.
    delta, rho = failure_probability("delta", delta), non_negative("rho", rho)
    # Bun, Steinke (2016), Proposition 1.3 gives half of this.
    enough = 2 * (rho + 2 * math.sqrt(-rho * math.log(delta or _SMALLEST)))
    return _least_epsilon(zcdp_delta, delta, rho, enough, 1e-13)


def pure_to_zcdp(epsilon: float) -> float:
    """Return the rho of every pure epsilon-private release (up to one rounding): epsilon²/2."""
    # Source: Bun, Steinke (2016), Proposition 1.4.
    epsilon = raised(non_negative("epsilon", epsilon))
    return epsilon * epsilon / 2


def bounded_range_to_zcdp(bounded_range: float) -> float:
    """Return the rho of every pair of distributions of bounded range b, in one draw: b²/8."""
    # Source: Cesar, Rogers (2021), Lemma 3.4; docs/privacy.md, "Bounded range".
    bounded_range = raised(non_negative("bounded_range", bounded_range))
    return bounded_range * bounded_range / 8


def bounded_range_delta(epsilon: float, bounded_range: float) -> float:
    """Return the worst delta of one draw whose log-ratios lie in an interval of length b."""
    # An upper bound for every pair of bounded range b, reached by the pair with log-ratios at both
    # ends of the worst interval; valid for every accepted argument.
    # `(e^{b/2} − e^{ε/2})² / (e^b − 1)` for epsilon below b, else 0.
    # Source: Dong, Durfee, Rogers (2020), Lemma 3.2; docs/privacy.md, "Bounded range".
    epsilon = non_negative("epsilon", epsilon)
    bounded_range = non_negative("bounded_range", bounded_range)
    if epsilon >= bounded_range:
        return 0.0
    bounded_range = raised(bounded_range)
    share = math.expm1((epsilon - bounded_range) / 2) ** 2 / -math.expm1(-bounded_range)
    return min(1.0, max(_SMALLEST, share * _SEARCHED_UP))


def bounded_range_for(epsilon: float, delta: float) -> float:
    """Return the largest bounded range of which one draw is (epsilon, delta)-private."""
    # `bounded_range_delta(epsilon, result) <= delta` for every accepted argument (rounded down).
    # With `g = e^{ε/2}`: `2 log((g + √(δ(g² − 1 + δ)))/(1 − δ))`.
    # Source: docs/privacy.md, "Bounded range" (the inverse of `bounded_range_delta`).
    epsilon, delta = non_negative("epsilon", epsilon), failure_probability("delta", delta)
    if epsilon == math.inf:
        raise UsageError("epsilon must be finite.")
    root = math.sqrt(delta * (delta * math.exp(-epsilon) - math.expm1(-epsilon)))
    excess, step = 2 * (math.log1p(root) - math.log1p(-delta)), 1e-12
    while bounded_range_delta(epsilon, epsilon + excess) > delta:
        excess, step = excess * (1 - min(1.0, step)), step * 2
    return epsilon + excess


def bounded_range_composition_delta(epsilon: float, bounded_range: float, draws: int) -> float:
    """Return a delta that T independent draws from one policy keep together.

    Guarantee:
        An upper bound for T draws that are independent given the data, from one policy of bounded
        range b; within 2 % of the supremum for T up to 1e5 and delta down to 1e-15. Not for
        adaptively chosen contexts: those compose through zCDP. Shown by
        ``tests/soundness/test_conversions_soundness.py``.
    """
    # `sup_t Σ_i C(T,i) p_t^{T−i} (1−p_t)^i (1 − e^{ε − (Tt − ib)})_+` with `p_t = (e^b − e^t)/(e^b
    # − 1)`, bounded from above over cells of t.
    # Source: Dong, Durfee, Rogers (2020), Theorem 2 and Lemma 4.4; the cell bound is
    # docs/privacy.md, "Bounded range".
    epsilon, bounded_range, draws = _checked(epsilon, bounded_range, draws)
    if draws * bounded_range <= epsilon:
        return 0.0
    bounded_range = raised(bounded_range)
    if draws == 1:
        return bounded_range_delta(epsilon, bounded_range)
    concentrated = zcdp_delta(epsilon, draws * bounded_range_to_zcdp(bounded_range))
    lower, upper = _search(epsilon, bounded_range, draws, 0.0)
    return min(1.0, concentrated, max(upper, lower, _SMALLEST))


def bounded_range_composition_epsilon(delta: float, bounded_range: float, draws: int) -> float:
    """Return an epsilon, at least 0, that T independent draws from one policy keep together.

    Args:
        delta: Failure probability in [0, 1).
        bounded_range: Length b of the interval of one draw's log-ratios, at least 0, finite.
        draws: Number T of draws from the same policy; at least 1.

    Returns:
        The least of the pure sum ``T b``, the zCDP conversion, and the upper end of a bracket
        around the inverse of ``bounded_range_composition_delta``.

    Raises:
        UsageError: If an argument is out of range.

    Source:
        Dong, Durfee, Rogers (2020), Theorem 2; docs/privacy.md, "Bounded range".

    Guarantee:
        An upper bound for T draws that are independent given the data, from one policy of bounded
        range b; valid for every accepted argument.

    Example:
        >>> round(bounded_range_composition_epsilon(1e-6, 0.5, 10), 2)
        3.57
    """
    delta = failure_probability("delta", delta)
    _, bounded_range, draws = _checked(0.0, bounded_range, draws)
    pure = draws * bounded_range
    if delta == 0 or pure == 0:
        return pure
    known = min(pure, zcdp_epsilon(delta, draws * bounded_range_to_zcdp(bounded_range)))
    if composition_keeps(0.0, delta, bounded_range, draws):
        return 0.0
    fails = known
    while composition_keeps(fails, delta, bounded_range, draws) and fails > 0:
        known, fails = fails, fails * 0.8 if fails > 1e-12 * pure else 0.0
    if fails == known:
        return known
    keeps = partial(composition_keeps, delta=delta, bounded_range=bounded_range, draws=draws)
    return narrow(keeps, fails, known, rtol=1e-6)[1]


def two_point_delta(epsilon: float, high: float, low: float, draws: int) -> float:
    """Return the exact delta of T draws from the pair whose log-ratios are high or low."""
    # An upper bound (rounded up by at most 1e-8, relative) for every adaptive composition of T
    # releases whose log-ratios lie in [low, high]; valid for T up to 1e6.
    # This pair dominates every pair with log-ratios in [low, high]; at high = -low it is the
    # optimal homogeneous composition of pure releases.
    # Source: Kairouz, Oh, Viswanath (2017), Theorem 3.3; docs/privacy.md, "Bounded range".
    epsilon, draws = non_negative("epsilon", epsilon), integer("draws", draws, at_least=1)
    high, low = positive("high", high), -positive("-low", -low)
    if draws > _MOST_DRAWS:
        raise UsageError(f"draws must be at most {_MOST_DRAWS}, got {draws}.")
    if draws * high <= epsilon:
        return 0.0
    if high - low > 2 * _WIDEST:
        return 1.0
    share = float(_two_point(epsilon, np.array([high]), np.array([low]), draws)[0])
    return max(_SMALLEST, share)


def _checked(epsilon: float, bounded_range: float, draws: int) -> tuple[float, float, int]:
    epsilon = non_negative("epsilon", epsilon)
    bounded_range = non_negative("bounded_range", bounded_range)
    if bounded_range == math.inf:
        raise UsageError("bounded_range must be finite.")
    return epsilon, bounded_range, integer("draws", draws, at_least=1)


def composition_keeps(epsilon: float, delta: float, bounded_range: float, draws: int) -> bool:
    """Return whether the bound for this epsilon is at most delta (False when undecided)."""
    if draws * bounded_range <= epsilon:
        return True
    if draws == 1:
        return bounded_range_delta(epsilon, bounded_range) <= delta
    if zcdp_delta(epsilon, draws * bounded_range_to_zcdp(bounded_range)) <= delta:
        return True
    return _search(epsilon, bounded_range, draws, delta)[1] <= delta


@lru_cache(maxsize=4096)
def _search(epsilon: float, bounded_range: float, draws: int, target: float) -> tuple[float, float]:
    """Return (lower, upper) around the supremum over t, by branch and bound."""
    # Stops when upper <= 1.005 lower, or as soon as both lie on one side of a positive target.
    if draws > _MOST_DRAWS or bounded_range > _WIDEST:
        return 0.0, 1.0
    edges = np.linspace(0.0, bounded_range, _CELLS + 1)
    left, right = edges[:-1], edges[1:]
    heap: list[tuple[float, float, float]] = []
    lower, spent = 0.0, 0
    while True:
        uppers = _two_point(epsilon, right, left - bounded_range, draws)
        for cell in zip((-uppers).tolist(), left.tolist(), right.tolist(), strict=True):
            heapq.heappush(heap, cell)
        middle = left + (right - left) / 2
        lower = max(lower, float(_two_point(epsilon, middle, middle - bounded_range, draws).max()))
        spent += len(left)
        enough = max(lower * (_TIGHTNESS - 1e-6), target)
        if lower > target > 0 or -heap[0][0] <= enough or spent > _MOST_CELLS:
            return lower, -heap[0][0]
        taken: list[tuple[float, ...]] = []  # cells whose bound exceeds what is enough: quartered
        while heap and -heap[0][0] > enough and len(taken) < _BATCH:
            taken.append(heapq.heappop(heap)[1:])
        left, right = np.array(taken).T
        edges = np.linspace(left, right, _PIECES + 1)
        left, right = edges[:-1].ravel(), edges[1:].ravel()


def _two_point(epsilon: float, high: np.ndarray, low: np.ndarray, draws: int) -> np.ndarray:
    """Return, for each pair of log-ratios (high, low), the delta of that many draws."""
    log_p = np.log(-np.expm1(low)) - np.log(-np.expm1(low - high))
    log_rest = low + np.log(-np.expm1(-high)) - np.log(-np.expm1(low - high))
    slack = 1e-15 * (draws * (high - low) + epsilon)  # rounding of the losses, upwards
    last = np.ceil((draws * high + slack - epsilon) / (high - low)) - 1
    mean = draws * np.exp(log_rest)
    spread = 12 * np.sqrt(mean * np.exp(log_p)) + 60
    top = np.minimum(np.minimum(last, draws), np.ceil(mean + spread))
    width = int(np.max(top - np.maximum(0, np.minimum(last, mean) - spread))) + 1
    if width <= 0:
        return np.zeros_like(high)
    columns = np.stack([high, low, log_p, log_rest, slack, top, last])
    rows = max(1, _BLOCK // width)
    starts = range(0, len(high), rows)
    parts = [_window_sum(epsilon, columns[:, at : at + rows], draws, width) for at in starts]
    return np.asarray(np.minimum(1.0, np.concatenate(parts)))


def _window_sum(epsilon: float, columns: np.ndarray, draws: int, width: int) -> np.ndarray:
    """Return the sum over the window of outcomes, plus a bound on all that it leaves out."""
    # The terms are log-concave in i with their peak inside the window, so each one left out is at
    # most the term at the nearer edge.
    high, low, log_p, log_rest, slack, top, last = (column[:, None] for column in columns)
    i = (top - np.arange(width)).astype(np.int64)
    inside = (i >= 0) & (top >= 0)
    i = np.clip(i, 0, draws)
    table = _log_factorials(draws)
    log_mass = table[draws] - table[i] - table[draws - i] + (draws - i) * log_p + i * log_rest
    gap = epsilon - ((draws - i) * high + i * low) - slack
    terms = np.exp(log_mass) * -np.expm1(np.minimum(gap, 0.0)) * inside
    bottom = np.maximum(top[:, 0] - width + 1, 0)
    above = np.maximum(np.minimum(last[:, 0], draws) - top[:, 0], 0)
    left_out = bottom * terms[:, -1] + above * terms[:, 0]
    rounding = 1 + 1e-10 + 4e-15 * draws * math.log(draws + 2)
    return np.asarray((terms.sum(axis=1) + left_out) * rounding)


@lru_cache(maxsize=4)
def _log_factorials(draws: int) -> np.ndarray:
    return np.asarray(gammaln(np.arange(1, draws + 2, dtype=np.float64)))


_WORDS = 2**64
_LARGEST_LOSS = 64 * math.log(2)  # log(2^64): beyond it (plus log(c - 1)) one word is enough
_DECIMAL = Context(prec=100)


def randomized_response_threshold(epsilon: float, categories: int = 2) -> int:
    """Return how many of the 2^64 words flip a label, so that the loss is at most epsilon.

    Guarantee:
        the exact loss ``|log((2^64 - k)(c - 1)/k)|`` of one label under REPLACE_ONE is at most
        epsilon, for every accepted argument. Shown by
        ``tests/soundness/test_conversions_soundness.py``.
    """
    # `k = ceil(2^64 (c - 1) / (e^epsilon + c - 1))`, at least 1, in 100-digit arithmetic. A flipped
    # label must then be uniform on the other `c - 1` categories.
    # Source: Warner (1965); Kairouz, Oh, Viswanath (2016), Section 4.1; the integer threshold is
    # docs/privacy.md, "Randomness and arithmetic".
    epsilon = positive("epsilon", epsilon)
    others = integer("categories", categories, at_least=2) - 1
    if epsilon > _LARGEST_LOSS + math.log(others) + 1:
        return 1
    # 0.1 is written for a float that is a little larger; whoever adds up what is written must
    # not be told too little, so the smaller of the two is kept.
    target = min(Decimal(epsilon), Decimal(repr(epsilon)))
    odds = _DECIMAL.add(_DECIMAL.exp(target), Decimal(others))
    share = _DECIMAL.divide(Decimal(_WORDS * others), odds)
    threshold = max(1, int(share.to_integral_value(ROUND_CEILING)))
    if _exact_loss(threshold, others) > target:
        raise UsageError(
            f"epsilon must be larger for {categories} categories: 64-bit words cannot keep "
            f"{epsilon!r}."
        )
    return threshold


def realized_epsilon(threshold: int, categories: int = 2) -> float:
    """Return the pure loss that a threshold really gives, rounded up to a float."""
    # An upper bound on the exact loss, above it by at most two units in the last place, and so is
    # the decimal number that it prints as; valid for every accepted argument.
    # Source: docs/privacy.md, "Randomness and arithmetic".
    threshold = integer("threshold", threshold, at_least=1, at_most=_WORDS - 1)
    loss = _exact_loss(threshold, integer("categories", categories, at_least=2) - 1)
    stated = float_up(loss)
    return stated if Decimal(stated) >= loss else math.nextafter(stated, math.inf)


def randomized_response_epsilon(epsilon: float, categories: int = 2) -> float:
    """Return the loss to state for randomized response that was asked to keep epsilon."""
    # An upper bound on the exact loss of one label; valid for every accepted argument, because the
    # exact loss is at most the request.
    # Source: docs/privacy.md, "Randomness and arithmetic".
    threshold = randomized_response_threshold(epsilon, categories)
    return min(float(epsilon), realized_epsilon(threshold, categories))


def flip_probability(epsilon: float, categories: int = 2) -> float:
    """Return the chance that randomized response changes a label, as the nearest float."""
    # A public number for debiasing, exact to one rounding; it promises nothing by itself.
    # Source: Warner (1965); docs/privacy.md, "Randomness and arithmetic".
    return randomized_response_threshold(epsilon, categories) / _WORDS


def _exact_loss(threshold: int, others: int) -> Decimal:
    odds = _DECIMAL.divide(Decimal((_WORDS - threshold) * others), Decimal(threshold))
    return abs(_DECIMAL.ln(odds))


def group_approximate(epsilon: float, delta: float, size: int) -> tuple[float, float]:
    """Return (epsilon, delta) of a group, from those of one change."""
    # An upper bound for every group of that size, under the same relation. Of Gaussian noise and
    # bounded range g times as much is tighter.
    # `(g ε, δ (e^{gε} − 1)/(e^ε − 1))`; at epsilon 0 the second is g δ.
    # Source: Vadhan (2017), Lemma 2.2, with the geometric sum written out.
    epsilon, delta = non_negative("epsilon", epsilon), failure_probability("delta", delta)
    size = integer("size", size, at_least=1)
    if delta == 0 or size == 1:
        return size * epsilon, delta
    if epsilon == 0:
        return 0.0, min(1.0, size * delta)
    # (e^{gε} − 1)/(e^ε − 1) = e^{(g−1)ε} (1 − e^{−gε})/(1 − e^{−ε}), which cannot overflow early.
    log_delta = math.log(delta) + (size - 1) * epsilon
    if log_delta >= 0:
        return size * epsilon, 1.0
    share = math.expm1(-size * epsilon) / math.expm1(-epsilon)
    rounding = 1 + 1e-15 * (1 + (size - 1) * epsilon)
    grown = delta * math.exp((size - 1) * epsilon) if log_delta > -1 else math.exp(log_delta)
    rounding += 1e-15 * abs(math.log(delta))
    return size * epsilon, min(1.0, grown * share * rounding)


def replace_from_add_remove(epsilon: float, delta: float) -> tuple[float, float]:
    """Return (epsilon, delta) under REPLACE_ONE, from those under ADD_OR_REMOVE_ONE."""
    # An upper bound for every mechanism. The converse is false: see `add_remove_from_replace`.
    # One replacement is a removal and an addition: `(2ε, (1 + e^ε) δ)`.
    # Source: docs/privacy.md, "Relations" (a group of two).
    return group_approximate(epsilon, delta, 2)


def add_remove_from_replace(
    epsilon: float, delta: float, *, ignored_null_record: bool
) -> tuple[float, float]:
    """Return (epsilon, delta) under ADD_OR_REMOVE_ONE, from those under REPLACE_ONE."""
    # An upper bound for every mechanism that ignores a null record of its universe.
    # The same pair, and only where the universe holds a null record that the mechanism ignores:
    # removing a record then equals replacing it by the null record.
    # Source: docs/privacy.md, "Relations".
    epsilon, delta = non_negative("epsilon", epsilon), failure_probability("delta", delta)
    if ignored_null_record is not True:
        raise PrivacyError(
            "A guarantee under REPLACE_ONE says nothing under ADD_OR_REMOVE_ONE: a mechanism that "
            "reveals the number of records has replace-loss 0 and unbounded add/remove loss. "
            "Nothing was converted. Analyze the mechanism under ADD_OR_REMOVE_ONE, or pass "
            "ignored_null_record=True if its universe holds a null record that it ignores."
        )
    return epsilon, delta
