"""Zero-concentrated privacy: its exact-order conversion to (epsilon, delta), and into it."""

from __future__ import annotations

import math

from sordino._validate import failure_probability, non_negative

from .gaussian import narrow, raised

__all__ = ["bounded_range_to_zcdp", "pure_to_zcdp", "zcdp_delta", "zcdp_epsilon"]

_SMALLEST = 2.3e-308  # what underflows is rounded up to about the smallest normal float
_UP = 1 + 1e-12
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
