"""What every release by a curator settles before anything is spent."""

from __future__ import annotations

from sordino import _random, _validate
from sordino.errors import UsageError
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, Guarantee

__all__ = ["LARGEST_DELTA", "entropy_of", "refuse_large_delta"]

LARGEST_DELTA = 1e-3
"""A δ from here on is refused where nobody may know how many records or persons there are."""


def entropy_of(simulate_seed: int | None) -> _random.Entropy:
    """Return system entropy, or a seeded stream marked as such.

    Raises:
        UsageError: The seed is no whole number of at least 0.
    """
    if simulate_seed is not None:
        _validate.integer("simulate_seed", simulate_seed, at_least=0)
    return _random.entropy(simulate_seed)


def refuse_large_delta(promise: Guarantee, n: int | None) -> None:
    """Refuse a δ that allows what nobody means by privacy; call it before anything is spent.

    A mechanism that publishes one of n records at random keeps δ = 1/n.

    Args:
        promise: What is about to be promised.
        n: How many pairs or records there are; None where that is not known or not public. It is
            not looked at under ADD_OR_REMOVE_ONE: a refusal must not tell a private number.

    Raises:
        UsageError: δ is 1/n or more; or, without n, :data:`LARGEST_DELTA` or more.

    Source:
        docs/privacy.md, "How large delta may be".
    """
    ways = f"Nothing was spent. Use a delta far below 1 in the number of {promise.unit}s, such as "
    if n is None or promise.neighbors == ADD_OR_REMOVE_ONE:
        if promise.delta >= LARGEST_DELTA:
            raise UsageError(
                f"delta must be below {LARGEST_DELTA:g} where the number of {promise.unit}s is not "
                f"public, got {promise.delta!r}: with so large a delta a mechanism may publish "
                f"some of them outright and still keep its promise. {ways}1e-06."
            )
    elif promise.delta * n >= 1:
        raise UsageError(
            f"delta must be below 1/n=1/{n}, got {promise.delta!r}: with so large a delta a "
            f"mechanism may publish one {promise.unit} outright and still keep its promise. "
            f"{ways}{0.01 / n:.0e}."
        )
