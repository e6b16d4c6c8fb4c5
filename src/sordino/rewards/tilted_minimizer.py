"""The minimizer of a tilted objective: never refused, nor drowned by the noise added to it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Protocol, runtime_checkable

from sordino.errors import UsageError

from ._margins import MarginLoss
from .likelihoods import DebiasedLogistic
from .solver import Solution, nearest_minimum

__all__ = ["Tilt", "minimize_tilted", "refuse_drowned", "ridge_of", "within_allowance"]


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
    """Return the minimizer of a tilted objective inside the ball; it is never refused.

    Feasible, and pushed back by the ball only on its sphere: it is within atol/Λ of the exact one,
    for the objective is Λ-strongly convex.

    Args:
        loss: With the tilt as a part of what is known as a sum.
        mechanism: What tilted it.
        ball: Bound on the norm of the weights.

    Source:
        docs/central.md, "Objective perturbation": an inexact minimizer.
    """
    ridge = ridge_of(mechanism)
    return within_allowance(
        nearest_minimum(loss, ridge=ridge, atol=mechanism.atol, ball=ball), mechanism
    )


def within_allowance(solution: Solution, mechanism: Tilt) -> Solution:
    """Return a minimizer as the mechanism takes it: what exceeds ``atol`` is rounding.

    The mechanism pays for twice its ``atol``, and its least ``atol`` is above what rounding leaves
    of a gradient: see :func:`sordino.mechanisms._tilt.usable_atol`. To refuse what rounding left
    would tell of the records.

    Source:
        docs/central.md, "Objective perturbation": an inexact minimizer.
    """
    return replace(solution, gradient_norm=min(solution.gradient_norm, mechanism.atol))


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
