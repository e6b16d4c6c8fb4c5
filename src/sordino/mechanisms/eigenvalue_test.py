"""Propose, test, release with the least eigenvalue of a design: what was tested, and its range.

One record raises the least eigenvalue of a sum of xxᵀ by at most the square of its norm, so a
noisy value less a margin is, but with probability δ, not above the least eigenvalue of the smaller
one of two neighboring data sets. The test spends (ε, δ) once, each draw its range on top. The
noise is the caller's, drawn once from the Laplace distribution of scale ``step``/epsilon after the
spend was recorded; caveat ``real-arithmetic``.
"""

from __future__ import annotations

import math

from sordino import _validate
from sordino.mechanisms.preference_sensitivity import withheld_record_range

from .exact_bounds import UP, size
from .preference_sensitivity import least_slope
from .score_sensitivity import constrained_ridge_range

__all__ = ["noisy_least_eigenvalue", "preference_range_above", "ridge_range_above"]


def noisy_least_eigenvalue(
    least_eigenvalue: float, noise: float, *, epsilon: float, delta: float, step: float = 1.0
) -> float:
    """Return a value that the least eigenvalue of the smaller data set undercuts rarely.

    v = λ_min − step + noise − step·log(1/(2δ))/ε, rounded down. Two neighboring values of λ_min
    are at most ``step`` apart, also if a record is replaced. That v is above the least eigenvalue
    of the smaller data set (of what both share, if a record is replaced) has probability at most
    δ under both data sets; apart from that, v and what follows from it is ε-private.

    Args:
        least_eigenvalue: Of Σφφᵀ, with or without its ridge; confidential.
        noise: One draw of Laplace(step/ε).
        epsilon: ε of the test, > 0.
        delta: δ of the test, in (0, 1/2].
        step: The square of the bound on a record's norm.

    Raises:
        UsageError: An argument is out of range.

    Source:
        docs/intrinsic.md, "Propose, test, release".

    Example:
        >>> round(noisy_least_eigenvalue(50.0, 0.0, epsilon=1.0, delta=1e-6), 6)
        35.877637
    """
    least = _validate.number("least_eigenvalue", least_eigenvalue)
    noise = _validate.number("noise", noise)
    epsilon, step = size("epsilon", epsilon), size("step", step)
    delta = min(_validate.failure_probability("delta", delta, zero=False), 0.5)
    margin = step + step / epsilon * -math.log(2 * delta) * UP
    value = least + noise - margin * UP
    return value - (abs(least) + abs(noise) + margin) * (UP - 1)


def ridge_range_above(
    tested: float,
    ridge: float,
    *,
    spread: float,
    ball: float,
    reward_bound: float,
    penalty: float = 0.0,
    inexactness: float = 0.0,
) -> float:
    """Return the range of one record after the test, for the fit over a ball.

    Args:
        tested: v, of λ_min(ridge·I + Σφφᵀ), from :func:`noisy_least_eigenvalue` with step 1.
        ridge: λ.
        spread: As for
            :func:`~sordino.mechanisms.score_sensitivity.constrained_ridge_range`, as all others.
        ball: B.
        reward_bound: Bound on |r|.
        penalty: β.
        inexactness: ξ.

    Raises:
        UsageError: An argument is out of range.

    Source:
        docs/intrinsic.md, "Propose, test, release": the range for a ridge of max(λ, v).

    Example:
        >>> terms = {"spread": 2.0, "ball": 1.0, "reward_bound": 1.0}
        >>> round(ridge_range_above(99.0, 1.0, **terms), 6)
        0.040202
    """
    least = max(size("ridge", ridge), _validate.number("tested", tested))
    return constrained_ridge_range(
        min(least, 1e60),
        spread=spread,
        ball=ball,
        reward_bound=reward_bound,
        penalty=penalty,
        inexactness=inexactness,
    )


def preference_range_above(
    tested: float,
    ridge: float,
    *,
    spread: float,
    bound: float,
    ball: float,
    penalty: float = 0.0,
    penalty_ridge: float | None = None,
    inexactness: float = 0.0,
) -> float:
    """Return the range of one pair after the test, for the fit over a ball.

    Args:
        tested: v, of λ_min(Σxxᵀ) without any ridge, from :func:`noisy_least_eigenvalue` with
            step ``bound``²; 0 stands for anything below.
        ridge: λr of the fit.
        spread: As for
            :func:`~sordino.mechanisms.preference_sensitivity.withheld_record_range`, as all
            others.
        bound: X.
        ball: B.
        penalty: β.
        penalty_ridge: λ of the matrix of the penalty.
        inexactness: ξ.

    Raises:
        UsageError: An argument is out of range.

    Source:
        docs/intrinsic.md, "Propose, test, release": every loss is bent by γ = σ′(BX) at least,
        so that the ridge of the fit is λr + γv, and λ + v that of the penalty.

    Example:
        >>> terms = {"spread": 2.0, "bound": 2.0, "ball": 1.0}
        >>> round(preference_range_above(100.0, 1.0, **terms), 6)
        0.300935
    """
    tested = min(max(0.0, _validate.number("tested", tested)), 1e50)
    slope = least_slope(size("ball", ball) * size("bound", bound) * UP)
    wider = None if penalty_ridge is None else (size("penalty_ridge", penalty_ridge) + tested) / UP
    return withheld_record_range(
        (size("ridge", ridge) + slope * tested) / UP,
        spread=spread,
        bound=bound,
        ball=ball,
        penalty=penalty,
        penalty_ridge=wider,
        inexactness=inexactness,
    )
