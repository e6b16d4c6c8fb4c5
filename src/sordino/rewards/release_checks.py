"""What every release by a curator settles before anything is spent."""

from __future__ import annotations

import inspect
import warnings

from sordino import _random, _validate
from sordino.errors import PrivacyWarning
from sordino.privacy.guarantee import Guarantee

__all__ = ["entropy_of", "warn_of_large_delta"]


def entropy_of(simulate_seed: int | None) -> _random.Entropy:
    """Return system entropy, or a seeded stream marked as such.

    Raises:
        UsageError: The seed is no whole number of at least 0.
    """
    if simulate_seed is not None:
        _validate.integer("simulate_seed", simulate_seed, at_least=0)
    return _random.entropy(simulate_seed)


def warn_of_large_delta(promise: Guarantee, n: int) -> None:
    """Warn where δ allows what nobody means by privacy; call it before anything is spent.

    Args:
        promise: What is about to be promised.
        n: How many pairs or records there are; only where that is public.
    """
    if promise.delta * n < 1:
        return
    warnings.warn(
        f"delta={promise.delta!r} is not below 1/n=1/{n}: with so large a delta a mechanism may "
        f"publish one {promise.unit} outright and still keep its promise. Nothing was spent yet. "
        f"Use a delta far below 1/n, such as {0.01 / n:.0e}.",
        PrivacyWarning,
        stacklevel=_levels_to_the_caller(),
    )


def _levels_to_the_caller() -> int:
    """Return the ``stacklevel``, for the function that asks, of the first line not in here."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith("sordino."):
        frame, level = frame.f_back, level + 1
    return level
