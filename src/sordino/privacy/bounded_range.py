"""What draws from a Gibbs policy promise, when their log-ratios lie in an interval of length b.

They are zero-concentrated too, whose conversion to (epsilon, delta) and into it comes first. One
draw has a closed form. Independent draws from one policy have their worst case at some
position t of the interval, [t − b, t]; a grid over t under-estimates that supremum, so the
search below bounds whole cells of t from above and refines only the cells that could matter.
"""

from __future__ import annotations

import heapq
import math
from functools import lru_cache

import numpy as np
from scipy.special import gammaln

from sordino._validate import failure_probability, integer, non_negative, positive
from sordino.errors import UsageError

from .gaussian import narrow, raised

_SMALLEST = 2.3e-308  # what underflows is rounded up to about the smallest normal float
_UP = 1 + 1e-12
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
    """Return a delta for which every rho-zCDP release is (epsilon, delta)-private.

    Guarantee:
        an upper bound for every accepted argument: every order is valid, so an order that is not
        quite the best costs tightness and not soundness.
    """
    # The least over orders α > 1 of `exp((α−1)(αρ − ε))/(α−1) · (1 − 1/α)^α`.
    # Source: Canonne, Kamath, Steinke (2020), Proposition 12 and Corollary 13.
    epsilon, rho = non_negative("epsilon", epsilon), non_negative("rho", rho)
    if rho == 0 or epsilon == math.inf:
        return 0.0
    if rho > 1e6 + 4 * epsilon:
        return 1.0
    less = _best_order_less_one(epsilon, rho)
    log_delta = less * ((1 + less) * rho - epsilon - math.log1p(1 / less)) - math.log1p(less)
    # The exponent is a difference of large numbers: allow for the rounding of both.
    log_delta += 4e-16 * less * ((1 + less) * rho + epsilon)
    return min(1.0, max(_SMALLEST, math.exp(min(log_delta, 0.0)) * _UP))


def zcdp_epsilon(delta: float, rho: float) -> float:
    """Return an epsilon, at least 0, that every rho-zCDP release keeps at this delta.

    Guarantee:
        ``zcdp_delta(result, rho) <= delta``: an upper bound for every accepted argument.
    """
    # Source: Canonne, Kamath, Steinke (2020), Corollary 13.
    delta, rho = failure_probability("delta", delta), non_negative("rho", rho)
    if zcdp_delta(0.0, rho) <= delta:
        return 0.0
    if delta < _SMALLEST * 2 or rho == math.inf:
        return math.inf
    # Bun, Steinke (2016), Proposition 1.3 gives half of this.
    enough = 2 * (rho + 2 * math.sqrt(-rho * math.log(delta)))
    if not math.isfinite(enough) or zcdp_delta(enough, rho) > delta:
        return math.inf
    return narrow(lambda epsilon: zcdp_delta(epsilon, rho) <= delta, 0.0, enough, rtol=1e-13)[1]


def pure_to_zcdp(epsilon: float) -> float:
    """Return the rho of every pure epsilon-private release: epsilon²/2.

    Guarantee:
        an upper bound for every pure epsilon-private release (up to one rounding).
    """
    # Source: Bun, Steinke (2016), Proposition 1.4.
    epsilon = raised(non_negative("epsilon", epsilon))
    return epsilon * epsilon / 2


def bounded_range_to_zcdp(bounded_range: float) -> float:
    """Return the rho of one draw of bounded range b: b²/8.

    Guarantee:
        an upper bound for every pair of distributions of this bounded range.
    """
    # Source: Cesar, Rogers (2021), Lemma 3.4; docs/privacy.md, "Bounded range".
    bounded_range = raised(non_negative("bounded_range", bounded_range))
    return bounded_range * bounded_range / 8


def _best_order_less_one(epsilon: float, rho: float) -> float:
    """Return α − 1 for an order α close to the best one: the root of an increasing function."""
    # The logarithm of delta is convex in the order α, with slope (2α − 1)ρ − ε + log(1 − 1/α).
    # log(1 + 1/x) <= 1/x makes the slope positive here; any order is valid, so cutting it is too.
    high = min((epsilon + math.sqrt(epsilon * epsilon + 8 * rho)) / (4 * rho), _LARGEST_ORDER)
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2 if low >= high / 8 else high / 8
        if (2 * middle + 1) * rho - epsilon - math.log1p(1 / middle) < 0:
            low = middle
        else:
            high = middle
        if high - low < 1e-9 * high:
            break
    return high


def bounded_range_delta(epsilon: float, bounded_range: float) -> float:
    """Return the worst delta of one draw whose log-ratios lie in an interval of length b.

    Guarantee:
        an upper bound for every pair of bounded range b, reached by the pair with log-ratios at
        both ends of the worst interval; valid for every accepted argument.
    """
    # `(e^{b/2} − e^{ε/2})² / (e^b − 1)` for epsilon below b, else 0.
    # Source: Dong, Durfee, Rogers (2020), Lemma 3.2; docs/privacy.md, "Bounded range".
    epsilon = non_negative("epsilon", epsilon)
    bounded_range = non_negative("bounded_range", bounded_range)
    if epsilon >= bounded_range:
        return 0.0
    bounded_range = raised(bounded_range)
    share = math.expm1((epsilon - bounded_range) / 2) ** 2 / -math.expm1(-bounded_range)
    return min(1.0, max(_SMALLEST, share * _UP))


def bounded_range_for(epsilon: float, delta: float) -> float:
    """Return the largest bounded range of which one draw is (epsilon, delta)-private.

    Guarantee:
        ``bounded_range_delta(epsilon, result) <= delta`` for every accepted argument (rounded
        down).
    """
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


def total_variation_of_bounded_range(bounded_range: float) -> float:
    """Return the largest total variation of a pair of bounded range b: tanh(b/4).

    Guarantee:
        an upper bound for every pair of bounded range b, and reached by one.
    """
    # Source: docs/privacy.md, "Bounded range" (`bounded_range_delta` at epsilon 0).
    value = math.tanh(non_negative("bounded_range", bounded_range) / 4)
    return min(1.0, value * _UP)


def bounded_range_composition_delta(epsilon: float, bounded_range: float, draws: int) -> float:
    """Return a delta that T independent draws from one policy keep together.

    Guarantee:
        an upper bound for T draws that are independent given the data, from one policy of bounded
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
        an upper bound for T draws that are independent given the data, from one policy of bounded
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
    return narrow(
        lambda epsilon: composition_keeps(epsilon, delta, bounded_range, draws),
        fails,
        known,
        rtol=1e-6,
    )[1]


def two_point_delta(epsilon: float, high: float, low: float, draws: int) -> float:
    """Return the exact delta of T draws from the pair whose log-ratios are high or low.

    Guarantee:
        an upper bound (rounded up by at most 1e-8, relative) for every adaptive composition of T
        releases whose log-ratios lie in [low, high]; valid for T up to 1e6.
    """
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
    """Return the three arguments of a composition, checked."""
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
        left, right = _split(heap, enough)


def _split(heap: list[tuple[float, float, float]], enough: float) -> tuple[np.ndarray, np.ndarray]:
    """Take the cells whose bound exceeds what is enough off the heap, and quarter them."""
    taken: list[tuple[float, float]] = []
    while heap and -heap[0][0] > enough and len(taken) < _BATCH:
        _, left_end, right_end = heapq.heappop(heap)
        taken.append((left_end, right_end))
    left, right = np.array(taken).T
    edges = np.linspace(left, right, _PIECES + 1)
    return edges[:-1].ravel(), edges[1:].ravel()


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
    parts = [
        _window_sum(epsilon, columns[:, start : start + rows], draws, width)
        for start in range(0, len(high), rows)
    ]
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
    """Return log(i!) for i from 0 to draws."""
    return np.asarray(gammaln(np.arange(1, draws + 2, dtype=np.float64)))
