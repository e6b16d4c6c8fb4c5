"""The minimizer of a tilted objective: certified, and not drowned by the noise added to it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from sordino.errors import ConvergenceError, UsageError

from ._margins import MarginLoss
from .likelihoods import DebiasedLogistic
from .solver import Solution, minimize_ridge

__all__ = ["Tilt", "explained_tilt", "minimize_tilted", "refuse_drowned", "ridge_of"]

_MOST_PASSES = 10_000


@runtime_checkable
class Tilt(Protocol):
    """What a minimizer must know of the mechanism that tilts its objective."""

    @property
    def ridge(self) -> float | None:
        """Return the strength of the penalty, Λ."""
        ...

    @property
    def atol(self) -> float:
        """Return the largest norm of a gradient that is accepted."""
        ...

    @property
    def output_standard_deviation(self) -> float:
        """Return the noise that is added to every weight."""
        ...


def ridge_of(mechanism: Tilt) -> float:
    """Return Λ, which a mechanism has once it is built."""
    assert mechanism.ridge is not None  # noqa: S101 - for the type checker
    return mechanism.ridge


def minimize_tilted(
    loss: DebiasedLogistic | MarginLoss, mechanism: Tilt, *, ball: float
) -> Solution:
    """Return the certified minimizer of a tilted objective inside the ball.

    Feasible, and pushed back by the ball only on its sphere: it is within atol/Λ of the exact one,
    for the objective is Λ-strongly convex.

    Args:
        loss: With the tilt as a part of what is known as a sum.
        mechanism: What tilted it.
        ball: Bound on the norm of the weights.

    Raises:
        ConvergenceError: No exact enough minimizer was found; nothing was released.

    Source:
        docs/central.md, "Objective perturbation": an inexact minimizer.
    """
    with explained_tilt(mechanism):
        return minimize_ridge(
            loss,
            ridge=ridge_of(mechanism),
            atol=mechanism.atol,
            ball=ball,
            max_passes=_MOST_PASSES,
        )


@contextmanager
def explained_tilt(mechanism: Tilt) -> Iterator[None]:
    """Say of a minimizer that was not found what it means for a release.

    Raises:
        ConvergenceError: It was not found.
    """
    try:
        yield
    except ConvergenceError:
        raise ConvergenceError(
            f"The minimizer was not found to atol={mechanism.atol!r}. Nothing was released; what "
            "was spent stays spent. Use a larger atol, which adds more noise to the output."
        ) from None


def refuse_drowned(mechanism: Tilt, *, d: int, ball: float) -> None:
    """Refuse settings with which the noise of the output alone leaves the ball.

    Raises:
        UsageError: It does; only settings enter.
    """
    if mechanism.output_standard_deviation * math.sqrt(d) > ball:
        raise UsageError(
            f"The noise that hides how exact the minimizer is, "
            f"{mechanism.output_standard_deviation:.3g} in each of {d} weights, is larger than "
            f"ball={ball!r}: nothing would be learned. Nothing was spent. Use a larger ridge, a "
            "smaller atol, or a larger ball."
        )
