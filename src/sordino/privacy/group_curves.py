"""The curve δ(ε) of objective perturbation when one record is replaced by any other.

Replacing is removing and adding. The removal is a Gaussian leg without a Jacobian, the addition has
one; both are followed on probabilities of events, which loses less than adding ε and δ twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float

from sordino._validate import non_negative, positive

from .curves import amp_delta, objective_perturbation_curve
from .gaussian import gaussian_delta

__all__ = [
    "amp_delta_replace_one",
    "objective_perturbation_delta_replace_one",
]

_LINES = 32  # of each leg, in every round
_ROUNDS = 4
_POINTS = 64
_LEAST, _MOST = 1e-300, 1e3  # probabilities between which the supremum is searched
_LARGEST_EPSILON = 300.0
_MARGIN = 1e-12
_UP = 1 + 1e-10


def objective_perturbation_delta_replace_one(
    epsilon: float, mu: float, kappa: float, mu_output: float = 0.0
) -> float:
    """Return δ of objective perturbation when one record is replaced.

    Args:
        epsilon: At least 0.
        mu: Bound on one record's gradient over the standard deviation of the tilt, > 0.
        kappa: Squared bound on a record's features over the ridge, ≥ 0.
        mu_output: As :func:`sordino.privacy.curves.objective_perturbation_delta` takes it, for
            each of two legs.

    Returns:
        An upper bound, within about 0.1 % of the supremum that it bounds.

    Guarantee:
        (ε, result) for one record replaced by any other; the bound on its features is enforced by
        clipping. Shown by tests/soundness/test_curves.py.

    Source:
        docs/central.md, "Objective perturbation": sup over q of F(Φ(Φ⁻¹(q) + μ)) − e^ε q, with
        F(x) = min over e of e^e x + δ(e).

    Example:
        >>> 1.3247e-6 < objective_perturbation_delta_replace_one(1.0, 0.12, 0.25) < 1.329e-6
        True
    """
    epsilon, mu = non_negative("epsilon", epsilon), positive("mu", mu)
    mu_output = non_negative("mu_output", mu_output)
    forward = objective_perturbation_curve(mu, kappa, mu_output)
    return _two_legs(epsilon, forward, _removal(mu, mu_output))


def amp_delta_replace_one(epsilon: float, mu: float, kappa: float, mu_output: float) -> float:
    """Return a simple upper bound on δ of an inexact, noised minimizer when a record is replaced.

    As :func:`sordino.privacy.curves.amp_delta` it splits the Jacobian off, so that
    :func:`objective_perturbation_delta_replace_one` with ``mu_output`` is never larger.

    Args:
        epsilon: At least 0.
        mu: Bound on one record's gradient over the standard deviation of the tilt, > 0.
        kappa: Squared bound on a record's features over the ridge, ≥ 0.
        mu_output: As for :func:`objective_perturbation_delta_replace_one`.

    Guarantee:
        As :func:`objective_perturbation_delta_replace_one`, for any minimizer within the distance
        that ``mu_output`` stands for; shown by tests/soundness/test_curves.py.

    Source:
        docs/central.md, "Objective perturbation": F_forward(F_reverse(q)), the reverse leg
        without a Jacobian.
    """
    epsilon, mu = non_negative("epsilon", epsilon), positive("mu", mu)
    forward = partial(_amp, mu, kappa, non_negative("mu_output", mu_output))
    return _two_legs(epsilon, forward, _removal(mu, mu_output))


def _amp(mu: float, kappa: float, mu_output: float, epsilon: float) -> float:
    return amp_delta(epsilon, mu, kappa, mu_output)


def _removal(mu: float, mu_output: float) -> Callable[[float], float]:
    """Return the curve of the leg that takes a record away, for ε ≥ 0."""
    if mu_output:
        return objective_perturbation_curve(mu, 0.0, mu_output)
    return lambda epsilon: gaussian_delta(epsilon, mu)


@dataclass(frozen=True)
class _Lines:
    """Lines e^e q + δ(e) above what an event of probability q becomes over one leg."""

    losses: Float[np.ndarray, " m"]
    heights: Float[np.ndarray, " m"]

    @classmethod
    def of(cls, curve: Callable[[float], float], losses: Float[np.ndarray, " m"]) -> _Lines:
        """Return the lines at these losses.

        δ is taken at slightly smaller ones, so that rounding of the slopes is paid for.
        """
        return cls(losses, np.array([curve(max(0.0, x - _MARGIN * (1 + x))) for x in losses]))

    def __add__(self, other: _Lines) -> _Lines:
        """Return all lines of both."""
        losses = np.concatenate([self.losses, other.losses])
        return _Lines(losses, np.concatenate([self.heights, other.heights]))

    def lowest(self, q: Float[np.ndarray, " p"]) -> tuple[np.ndarray, np.ndarray]:
        """Return which line is lowest at every q, and its value."""
        values = np.exp(self.losses)[:, np.newaxis] * q + self.heights[:, np.newaxis]
        return values.argmin(axis=0), values.min(axis=0)

    def around(self, used: list[int], width: float) -> Float[np.ndarray, " m"]:
        """Return further losses near those of some lines, at least 0."""
        chosen = self.losses[used]
        low, high = max(0.0, float(chosen.min()) - width), float(chosen.max()) + width
        return np.linspace(low, high, _LINES)


def _two_legs(
    epsilon: float, forward: Callable[[float], float], reverse: Callable[[float], float]
) -> float:
    """Return an upper bound on sup over q of F(F_reverse(q)) − e^ε q.

    Any finite set of lines bounds both legs. More of them are drawn where the supremum lies.
    """
    epsilon = min(epsilon, _LARGEST_EPSILON)  # δ falls in ε
    losses, width = np.linspace(0.0, epsilon, _LINES), epsilon / (_LINES - 1)
    ahead, back = _Lines.of(forward, losses), _Lines.of(reverse, losses)
    bound = 1.0
    for _ in range(_ROUNDS):
        pairs = _active(ahead, back, epsilon)
        bound = min(bound, _bound(ahead, back, pairs, epsilon))
        if width <= _MARGIN:
            break
        ahead += _Lines.of(forward, ahead.around([i for i, _ in pairs], width))
        back += _Lines.of(reverse, back.around([j for _, j in pairs], width))
        width *= 4 / _LINES
    return min(bound, _bound(ahead, back, _active(ahead, back, epsilon), epsilon))


def _active(ahead: _Lines, back: _Lines, epsilon: float) -> list[tuple[int, int]]:
    """Return the pairs of lines that meet where the (concave) difference is largest."""
    low, high = math.log(_LEAST), math.log(_MOST)
    for _ in range(8):
        q = np.exp(np.linspace(low, high, _POINTS))
        values = ahead.lowest(back.lowest(q)[1])[1] - math.exp(epsilon) * q
        best, step = int(values.argmax()), (high - low) / (_POINTS - 1)
        middle = low + best * step
        low, high = middle - step, middle + step
    ends = np.exp(np.array([low, high]))
    second, risen = back.lowest(ends)
    return list(zip(ahead.lowest(risen)[0].tolist(), second.tolist(), strict=True))


def _bound(ahead: _Lines, back: _Lines, pairs: list[tuple[int, int]], epsilon: float) -> float:
    """Return what two pairs of lines prove.

    A pair is one line of slope e^{e₁ + e₂} above everything. So is any mixture of two of them,
    and one of slope at most e^ε bounds the difference by its height.
    """
    # relative to e^ε, which the slopes' margin keeps from rounding
    slopes = [float(ahead.losses[i] + back.losses[j]) - epsilon for i, j in pairs]
    heights = [
        float(math.exp(ahead.losses[i]) * back.heights[j] + ahead.heights[i]) for i, j in pairs
    ]
    known = [1.0, *(h for s, h in zip(slopes, heights, strict=True) if s <= 0)]
    if slopes[0] > 0 > slopes[1]:
        steep, flat = math.expm1(slopes[0]), -math.expm1(slopes[1])
        share = flat / (steep + flat)
        known.append(share * heights[0] + (1 - share) * heights[1])
    return min(1.0, min(known) * _UP)
