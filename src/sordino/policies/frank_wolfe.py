"""The policy whose worst case is best, found from best responses alone, with its duality gap.

A best response is the policy that is best under one reward. A few of them are kept, the best
mixture of these is found exactly, and the best response to that mixture's worst reward is added,
until it adds nothing. One engine serves candidates, Markov decision processes and whatever a
user can answer for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import clarabel
import numpy as np
from jaxtyping import Float
from scipy import sparse

from sordino import _validate
from sordino._validate import Vector
from sordino.errors import ConvergenceError, DataError, UsageError

from .conic import reach_of, second_order_rows, solve_conic
from .worst_case import PlausibleRewards

Response: TypeAlias = tuple[Vector, Any]
"""Mean features of a policy, and whatever tells which policy it is."""

_BestResponse: TypeAlias = Callable[[Vector], Response]
"""From a reward θ to the policy whose mean features q make θᵀq largest."""

_ROUNDS = 2000
_IDLE = 5  # rounds after which a response that the mixture does not use is forgotten
_PROGRESS = 0.01  # of the gap: what the value gains at least between two times of forgetting
_NEGLIGIBLE = 1e-9  # a weight that only an interior-point solver gives
_ROUNDING = 1e-12  # relative to the values: a gap below it is none


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Mixture:
    """Policies and how often each is followed; worst-case optimal up to the gap."""

    weights: Float[np.ndarray, " j"]  # > 0, summing to 1; at most d + 1
    responses: tuple[Response, ...]  # mean features of every policy, and what the oracle said of it
    # Mean features of the mixture, less the reference vector, shape (d,).
    moments: Vector
    value: float  # its worst case, the least θᵀ moments over the set
    upper: float  # what no policy exceeds in the worst case
    theta: Vector  # the reward that shows `upper`
    rounds: int  # how many best responses were asked for

    @property
    def gap(self) -> float:
        """How much a better policy could gain in the worst case, at most."""
        return max(self.upper - self.value, 0.0)

    def __repr__(self) -> str:
        return (
            f"Mixture({len(self.weights)} policies, value={self.value:.6g}, gap={self.gap:.2g}, "
            f"rounds={self.rounds})"
        )


def best_mixture(
    rewards: PlausibleRewards,
    best_response: _BestResponse,
    *,
    reference_vector: Vector | None = None,
    start: Sequence[Response] = (),
    gap: float = 1e-4,
) -> Mixture:
    """Return the mixture of policies whose worst case is best, certified up to the gap."""
    # Source: docs/planning.md, "Frank–Wolfe by best responses".
    wanted, d = _validate.positive("gap", gap), len(rewards.center)
    offset = np.zeros(d) if reference_vector is None else reference_vector
    kept = _Columns(rewards, _checked("reference_vector", offset, d))
    for response in start:
        kept.add(response)
    shown = rewards.inner
    upper = kept.add(best_response(shown)) @ shown
    marked = -math.inf
    for rounds in range(1, _ROUNDS + 1):
        theta, weights = kept.solve()
        moments = weights @ kept.moments
        value = kept.worst(moments)
        found = best_response(theta)
        reached = float(theta @ (kept.checked(found)[0] - kept.offset))
        if reached < upper:
            upper, shown = reached, theta
        if upper - value <= wanted:
            return kept.mixture(weights, upper=float(upper), theta=shown, rounds=rounds + 1)
        if reached <= float(np.max(kept.moments @ theta)) + _ROUNDING * kept.size:
            break  # nothing is left to add, so what is left of the gap is rounding
        kept.idle = np.where(weights > _NEGLIGIBLE, 0, kept.idle + 1)
        # forgetting without progress would ask the same questions again for ever
        if value - marked >= _PROGRESS * (upper - value):
            marked = value
            kept.forget()
        kept.add(found)
    raise ConvergenceError(
        f"gap={gap!r} could not be certified: {upper - value:.3g} was reached in {rounds} rounds, "
        f"for values of about {kept.size:.3g}. No policy was returned. Allow a larger gap, or "
        "bring features and weights to a common scale of about 1."
    )


class _Columns:
    """The policies that are kept, and the best mixture of them."""

    def __init__(self, rewards: PlausibleRewards, offset: Vector) -> None:
        self.rewards, self.offset = rewards, offset
        self.responses: list[Response] = []
        self.moments = np.empty((0, len(offset)))
        # for how many rounds the best mixture has done without each policy
        self.idle = np.empty(0, dtype=np.int64)

    def checked(self, response: object) -> Response:
        """Return a response; refuse one that is no pair, or whose features are none."""
        if not isinstance(response, tuple) or len(response) != 2:  # noqa: PLR2004
            response = (response, None)
        return _checked("best_response(theta)", response[0], len(self.offset)), response[1]

    def add(self, response: object) -> Vector:
        """Keep one more policy; return its mean features less the reference vector."""
        found = self.checked(response)
        self.responses.append(found)
        self.moments = np.vstack([self.moments, found[0] - self.offset])
        self.idle = np.append(self.idle, 0)
        return np.asarray(self.moments[-1])

    def forget(self) -> None:
        """Drop the policies that the best mixture has done without for some rounds."""
        chosen = self.idle <= _IDLE
        self.responses = [self.responses[at] for at in np.flatnonzero(chosen)]
        self.moments, self.idle = self.moments[chosen], self.idle[chosen]

    @property
    def size(self) -> float:
        """The largest value that any kept policy has under any reward of the set, about."""
        turned = self.moments @ self.rewards.axes
        reach = np.linalg.norm(turned * reach_of(self.rewards), axis=1)
        return float(np.max(abs(turned @ self.rewards.middle) + reach)) or 1.0

    def worst(self, moments: Vector) -> float:
        """Return the worst case of a mixture; refuse one that nothing bounds."""
        value = self.rewards.worst(moments).value
        if value == -math.inf:
            raise UsageError(
                "Nothing bounds the worst case: policies differ from the reference vector in a "
                "direction that no comparison saw. No policy was returned. Subtract the mean "
                "features of a reference policy, or fit with a ridge, or give a ball."
            )
        return value

    def solve(self) -> tuple[Vector, Float[np.ndarray, " j"]]:
        """Return the reward that is worst for the best mixture, and the mixture's weights."""
        # In θ: minimize the largest θᵀq over the set; the multipliers are the weights.
        rewards, (count, d) = self.rewards, self.moments.shape
        if rewards.radius == 0:
            best = np.argmax(self.moments @ rewards.center)
            return rewards.center, (np.arange(count) == best).astype(np.float64)
        turned, size = self.moments @ rewards.axes / self.size, reach_of(rewards)
        rows = sparse.csc_matrix(np.hstack([turned * size, -np.ones((count, 1))]))
        linear = (rows, -(turned @ rewards.middle), [clarabel.NonnegativeConeT(count)])
        cost = np.append(np.zeros(d), 1.0)
        x, multipliers = solve_conic(cost, [linear, *second_order_rows(rewards, d + 1)])
        weights = np.maximum(multipliers[:count], 0.0)
        theta = rewards.pulled(rewards.axes @ (rewards.middle + size * x[:d]))
        return theta, weights / weights.sum()

    def mixture(
        self, weights: Float[np.ndarray, " j"], *, upper: float, theta: Vector, rounds: int
    ) -> Mixture:
        """Return the result, in as few policies as its mean features allow."""
        some = np.where(weights > _NEGLIGIBLE, weights, 0.0)
        fewer = _few(self.moments, some / some.sum())
        lost = self.rewards.worst(fewer @ self.moments).value
        asked = self.rewards.worst(weights @ self.moments).value
        # tidying up must not cost more than the rounding that it removes
        weights = fewer if lost >= asked - _NEGLIGIBLE * self.size else weights
        used = np.flatnonzero(weights)
        moments = weights @ self.moments
        return Mixture(
            weights=weights[used],
            responses=tuple(self.responses[at] for at in used),
            moments=moments,
            value=self.rewards.worst(moments).value,
            upper=upper,
            theta=theta,
            rounds=rounds,
        )


def _few(
    moments: Float[np.ndarray, "j d"], weights: Float[np.ndarray, " j"]
) -> Float[np.ndarray, " j"]:
    """Return weights of at most d + 1 rows with the same mean (Carathéodory)."""
    weights = weights.copy()
    while np.count_nonzero(weights) > moments.shape[1] + 1:
        used = np.flatnonzero(weights)[: moments.shape[1] + 2]
        system = np.column_stack([moments[used], np.ones(len(used))])
        way = np.linalg.qr(system, mode="complete")[0][:, -1]  # moves no mean, and no total
        with np.errstate(divide="ignore"):
            steps = np.where(way > 0, weights[used] / way, math.inf)
        first = int(np.argmin(steps))
        weights[used] = np.maximum(weights[used] - steps[first] * way, 0.0)
        weights[used[first]] = 0.0
    return np.asarray(weights / weights.sum())


def _checked(name: str, value: object, d: int) -> Vector:
    """Return d finite numbers."""
    array = _validate.finite_array(name, value, ndim=1)
    if len(array) != d:
        raise DataError(f"{name} must have {d} entries, one for each feature, got {len(array)}.")
    return array
