"""The policy that is best in the worst case less a KL penalty: a Gibbs policy of one reward."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino.errors import ConvergenceError

from ._conic import reach_of, second_order_rows, solve_conic
from .contexts import Contexts
from .worst_case import PlausibleRewards

__all__ = ["Tempered", "best_tempered"]

_STEPS = 100  # at one temperature; about five are needed
_COOLING = 5.0
_COARSE = 0.05  # of a temperature on the way: how exactly it is solved
_HALVINGS = 40
_DESCENT = 1e-4


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Tempered:
    """A policy, its worst case less the penalty, and what no policy exceeds.

    Attributes:
        chances: Probabilities of all candidates.
        theta: The reward of which it is the Gibbs policy.
        value: The least θᵀq over the set, less temperature · KL.
        upper: What no policy exceeds.
        rounds: Number of Newton steps.
    """

    chances: Float[np.ndarray, " m"]
    theta: Float[np.ndarray, " d"]
    value: float
    upper: float
    rounds: int


def best_tempered(
    rewards: PlausibleRewards,
    contexts: Contexts,
    *,
    temperature: float,
    reference_vector: Float[np.ndarray, " d"],
    gap: float = 1e-4,
) -> Tempered:
    """Return the policy that is best in the worst case less temperature · KL, up to the gap.

    Source:
        docs/planning.md, "With a KL penalty": minimize the log-sum-exp over the set of rewards by
        Newton steps; the gradient there is the mean features of the Gibbs policy.

    Args:
        rewards: Which rewards may be true.
        contexts: What to choose from.
        temperature: KL strength in units of reward, > 0.
        reference_vector: v, subtracted from all mean features.
        gap: What the value may fall short of the best one, > 0.

    Raises:
        ConvergenceError: Floats are too coarse for the gap at this temperature.
    """
    wanted = _validate.positive("gap", gap)
    search = _Search(rewards, contexts, reference_vector)
    theta, rounds = rewards.inner, 0
    scores = contexts.rows @ theta
    levels = _levels(float(np.ptp(scores)), _validate.positive("temperature", temperature))
    for level in levels:
        aim = wanted if level == temperature else max(wanted, _COARSE * level)
        for _ in range(_STEPS):
            found = search.state(theta, level, rounds)
            if found.upper - found.value <= aim:
                break
            theta, rounds = search.step(theta, level), rounds + 1
            if theta is found.theta:
                break
    if found.upper - found.value <= wanted:
        return found
    raise ConvergenceError(
        f"gap={gap!r} could not be certified at temperature={temperature!r}: "
        f"{found.upper - found.value:.3g} was reached. No policy was returned. Allow a larger "
        "gap, or take a higher temperature, or None for no penalty."
    )


def _levels(start: float, temperature: float) -> list[float]:
    """Return falling temperatures that end at the one that is asked for."""
    found = [temperature]
    while found[-1] * _COOLING < start:
        found.append(found[-1] * _COOLING)
    return found[::-1]


class _Search:
    """Newton's method over the set of rewards."""

    def __init__(
        self, rewards: PlausibleRewards, contexts: Contexts, offset: Float[np.ndarray, " d"]
    ) -> None:
        self.rewards, self.contexts, self.offset = rewards, contexts, offset

    def state(self, theta: Float[np.ndarray, " d"], level: float, rounds: int) -> Tempered:
        """Return the Gibbs policy of a reward, with its value and the bound."""
        soft, chances = self.contexts.soft(theta, level)
        moments = self.contexts.moments(chances) - self.offset
        worst = self.rewards.worst(moments).value
        return Tempered(
            chances=chances,
            theta=theta,
            value=worst - level * self.contexts.kl(chances),
            upper=soft - float(theta @ self.offset),
            rounds=rounds,
        )

    def step(self, theta: Float[np.ndarray, " d"], level: float) -> Float[np.ndarray, " d"]:
        """Return a reward with a lower bound; the same one if rounding allows none."""
        before, chances = self.contexts.soft(theta, level)
        before -= float(theta @ self.offset)
        gradient = self.contexts.moments(chances) - self.offset
        curvature = self.contexts.covariance(chances) / level
        way = self._newton(theta, gradient, curvature) - theta
        slope = float(gradient @ way)
        share = 1.0
        for _ in range(_HALVINGS):
            tried = theta + share * way
            after = self.contexts.soft(tried, level)[0] - float(tried @ self.offset)
            if after <= before + _DESCENT * share * slope and after < before:
                return np.asarray(tried)
            share /= 2
        return theta

    def _newton(
        self,
        theta: Float[np.ndarray, " d"],
        gradient: Float[np.ndarray, " d"],
        curvature: Float[np.ndarray, "d d"],
    ) -> Float[np.ndarray, " d"]:
        """Return the minimizer over the set of the second-order expansion at θ."""
        rewards, reach = self.rewards, reach_of(self.rewards)
        turn = rewards.axes * reach
        moved = rewards.axes.T @ theta - rewards.middle
        z = np.divide(moved, reach, out=np.zeros_like(reach), where=reach > 0)
        square, linear = turn.T @ curvature @ turn, turn.T @ gradient
        size = max(float(abs(square).max()), float(abs(linear).max()), np.finfo(float).tiny)
        cost = (linear - square @ z) / size
        x, _ = solve_conic(cost, second_order_rows(rewards, len(z)), quadratic=square / size)
        return rewards.pulled(rewards.axes @ (rewards.middle + reach * x))
