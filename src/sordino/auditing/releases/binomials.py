"""Exact tails of a number of successes, for chances that are equal and for those that are not."""

from __future__ import annotations

from scipy.special import betainc

__all__ = ["at_least", "at_most", "mixed_at_least"]


def at_least(successes: int, n: int, chance: float) -> float:
    """Return the probability that n trials of one chance succeed at least this often.

    Example:
        >>> round(at_least(9, 10, 0.5), 6)
        0.010742
    """
    return 1.0 if successes <= 0 else float(betainc(successes, n - successes + 1, chance))


def at_most(successes: int, n: int, chance: float) -> float:
    """Return the probability that n trials of one chance succeed at most this often.

    Example:
        >>> round(at_most(1, 10, 0.5), 6)
        0.010742
    """
    return at_least(n - successes, n, 1 - chance)


def mixed_at_least(successes: int, n: int, mean: float) -> float:
    """Return a bound on the probability of so many successes, whatever the chances of each trial.

    Args:
        successes: How many there were.
        n: Number of independent trials, each with a chance of its own.
        mean: Mean of the chances, or more.

    Source:
        Hoeffding 1956, Theorem 4: from one above the expected number on, equal chances make the
        tail heaviest. Below that the bound is 1.

    Example:
        >>> round(mixed_at_least(9, 10, 0.5), 6), mixed_at_least(5, 10, 0.5)
        (0.010742, 1.0)
    """
    return at_least(successes, n, mean) if successes >= n * mean + 1 else 1.0
