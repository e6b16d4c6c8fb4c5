"""The least noise that keeps a promise: computed, then compared with what it states."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["least_that_keeps"]

Made = TypeVar("Made")


def least_that_keeps(
    start: float, make: Callable[[float], Made], keeps: Callable[[Made], bool]
) -> Made:
    """Return what is made of the least size, from ``start`` up, whose own statement is kept.

    A formula gives the size up to the last bits of a float; it is raised by twice as many of them
    until the promise that is really stated holds.

    Args:
        start: Size from the formula: a standard deviation, a temperature.
        make: Makes a mechanism of a size.
        keeps: Whether what it states is at most what was asked for.

    Example:
        >>> least_that_keeps(1.0, float, lambda size: size >= 1.0)
        1.0
    """
    size, more = start, 2.0**-52
    while not keeps(made := make(size)):
        size, more = size * (1 + more), 2 * more
    return made
