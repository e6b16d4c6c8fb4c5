"""Two policies and what one draw tells of which it came from, in 60 digits, by hand.

Nothing here uses sordino: what refutes a certificate must not come from the library under test.
"""

import mpmath
import numpy as np

_DIGITS = mpmath.workdps(60)


@_DIGITS
def policy(scores, temperature, log_reference=None):
    """Return the probabilities ∝ reference · exp(scores / temperature)."""
    scores = [mpmath.mpf(float(s)) for s in scores]
    prior = [mpmath.mpf(0)] * len(scores) if log_reference is None else log_reference
    logs = [p + s / mpmath.mpf(temperature) for s, p in zip(scores, prior, strict=True)]
    top = max(logs)
    weights = [mpmath.exp(each - top) for each in logs]
    total = mpmath.fsum(weights)
    return [weight / total for weight in weights]


@_DIGITS
def loss(one, other):
    """Return the pure privacy loss: the largest |log ratio| of an action."""
    return float(max(abs(mpmath.log(p / q)) for p, q in zip(one, other, strict=True)))


@_DIGITS
def hockey_stick(one, other, epsilon):
    """Return the true δ at ε, the worse of the two directions."""
    growth = mpmath.exp(mpmath.mpf(epsilon))
    ahead = mpmath.fsum(max(mpmath.mpf(0), p - growth * q) for p, q in zip(one, other, strict=True))
    back = mpmath.fsum(max(mpmath.mpf(0), q - growth * p) for p, q in zip(one, other, strict=True))
    return float(max(ahead, back))


def spread(one, other):
    """Return how far the differences of two score vectors are apart."""
    moved = np.asarray(one, dtype=float) - np.asarray(other, dtype=float)
    return float(moved.max() - moved.min())


def pessimistic_means(sums, counts, penalty):
    """Return mean − penalty/√count of every arm, as KLDP has it; every arm was pulled."""
    return [total / n - penalty / n**0.5 for total, n in zip(sums, counts, strict=True)]


def shrunken_means(sums, counts, shrinkage, penalty, reward_range=1.0):
    """Return (sum + shrinkage·R/2)/(count + shrinkage) − penalty/√(count + shrinkage)."""
    middle = shrinkage * reward_range / 2
    return [
        (total + middle) / (n + shrinkage) - penalty / (n + shrinkage) ** 0.5
        for total, n in zip(sums, counts, strict=True)
    ]


def ridge_scores(rows, rewards, queries, ridge, penalty):
    """Return θ̂ᵀφ − penalty·‖φ‖ in the inverse of ridge·I + Σφφᵀ, for every query."""
    moment = ridge * np.eye(rows.shape[1]) + rows.T @ rows
    weights = np.linalg.solve(moment, rows.T @ rewards)
    lengths = np.sqrt(np.einsum("ad,da->a", queries, np.linalg.solve(moment, queries.T)))
    return queries @ weights - penalty * lengths


def ridge_logit(ones, n, ridge, *, short=(0, 0.0)):
    """Return argmin of the logistic loss + ridge·θ²/2, for n pairs x = 2 with this many ones.

    ``short`` is a number of further pairs, all answered 0, and their x.
    """
    low, high = -60.0, 60.0
    for _ in range(200):
        middle = (low + high) / 2
        slope = n * 2 / (1 + np.exp(-2 * middle)) - 2 * ones + ridge * middle
        slope += short[0] * short[1] / (1 + np.exp(-short[1] * middle))
        low, high = (middle, high) if slope < 0 else (low, middle)
    return (low + high) / 2
