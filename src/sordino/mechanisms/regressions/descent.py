"""One pass of noisy gradient steps over a batch: least squares without a matrix.

Every row is in one inner batch and is read once. Neighbors differ in one inner batch; what the
others add depends on the weights before it, which are released. The whole pass therefore costs
what one step costs. The oracle is for thousands of features.

How far a pass gets, its number of steps and its error are public. Features are taken to point
everywhere alike, so that the mean squared error bends by h = 2B²/d in every direction: a step then
shortens the distance to the solution by 1 − step·h, and noise enters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino._random import Entropy
from sordino.errors import UsageError
from sordino.mechanisms.base import WorstCase
from sordino.mechanisms.gaussian import GaussianMechanism
from sordino.mechanisms.grid import clipped_rows, with_noise
from sordino.privacy.guarantee import REPLACE_ONE, GaussianEvent, NeighboringRelation

from .base import (
    Batch,
    LeastSquares,
    Oracle,
    PlayedRegression,
    Regression,
    RegressionTerms,
    slot_relation,
)

_HALVINGS = 14  # of the step, from the largest that is stable for any features
_MOST_BATCHES = 4096


@dataclass(frozen=True)
class _DescentPlan:
    """One pass: how many inner batches, and how far each of them moves."""

    inner_batches: int  # J
    step: float  # of each, > 0

    def reached(self, bend: float) -> tuple[float, float]:
        """Return what is left of the distance, and how much of a step's noise stays."""
        count, first = self.inner_batches, _first_averaged(self.inner_batches)
        shorter = max(1 - self.step * bend, -1.0)
        averaged = np.arange(first, count + 1)
        left = float(np.mean(shorter**averaged))
        powers = np.concatenate([[0.0], np.cumsum(shorter ** np.arange(count))])
        each = np.arange(1, count + 1)
        before = np.maximum(first - each, 0)
        kept = self.step * (powers[count - each + 1] - powers[before]) / len(averaged)
        return left, float(kept @ kept)

    def error(self, bend: float, distance: float, noise: float) -> float:
        """Return the root mean square error of predictions after the pass."""
        left, stays = self.reached(bend)
        return math.sqrt(bend / 2 * ((left * distance) ** 2 + noise * stays))


def _first_averaged(inner_batches: int) -> int:
    """Return after which step the average of the weights begins: the second half counts."""
    return inner_batches // 2 + 1


def _refuse_unusable(settings: DescentRegression | OnePassDescent, *, most: int = 2**63) -> None:
    """Refuse numbers of a pass that are out of range; those that are None are chosen later."""
    if settings.inner_batches is not None:
        _validate.integer("inner_batches", settings.inner_batches, at_least=1, at_most=most)
    for name in ("step", "effective_dimension", "prediction_bound"):
        if getattr(settings, name) is not None:
            _validate.positive(name, getattr(settings, name))


_STEPS = 2**20  # of a bound on a grid
_NUMBERS = 1 << 20  # held at once


@dataclass(frozen=True)
class DescentRegression(PlayedRegression):
    """Least squares by one pass of gradient steps, each on other rows and with Gaussian noise.

    Guarantee:
        GaussianEvent of μ = Δ(1 + 2^-20)/s with Δ from :meth:`sensitivity`, for one row and target
        and all steps together (adaptive parallel composition: which rows are in which step is
        fixed); exact on a grid, with no arithmetic caveat. Shown by
        tests/soundness/test_regression_descent.py.
    """

    # A row's gradient is 2(xᵀw − A)x with xᵀw clipped to ±`prediction_bound`, so that its norm is
    # at most C = 2(`prediction_bound` + `target_bound`)·`feature_bound`; it is cut to C once more,
    # on a grid. After every step the weights are pulled back to the radius; what is returned is
    # their average over the second half of the pass.
    # Source: docs/policy_optimization.md, "One-pass gradient descent".

    _: KW_ONLY
    standard_deviation: float  # noise of every coordinate of a sum of gradients
    prediction_bound: float  # predictions are clipped to within plus and minus this
    # Number of steps (J), at most `rows`; None chooses it by the number of features when rows come.
    inner_batches: int | None = None
    step: float | None = None  # of each; None chooses it likewise
    # In how many directions features spread, by public knowledge; for the plan and the error alone.
    # None takes the number of features, and steps that are stable for any features.
    effective_dimension: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.settle(self, prediction_bound=_validate.positive)
        _refuse_unusable(self, most=self.rows)
        object.__setattr__(self, "standard_deviation", self._noise.standard_deviation)

    @property
    def gradient_bound(self) -> float:
        """Return C, the largest norm of one row's gradient."""
        return 2 * (self.prediction_bound + self.target_bound) * self.feature_bound

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return how far one change moves a sum of gradients: C, or 2C if a row is replaced."""
        return self._noise.sensitivity(slot_relation(neighbors))

    @lru_cache(maxsize=256)  # noqa: B019 (settings are frozen, compared by value, and small)
    def plan(self, d: int) -> _DescentPlan:
        """Return steps and their size for a number of features, from public numbers alone."""
        # Both minimize what the error will be about, for weights at the radius and features that
        # point everywhere alike, among powers of two, unless they are fields; a step is at most
        # 1/(2B²), which is stable for any features, or that many times the effective dimension.
        bend = self._bend(_validate.integer("d", d, at_least=1))
        steepest = 2 * self.feature_bound**2 if self.effective_dimension is None else bend
        private = self._directions(d) * self.standard_deviation**2
        powers = [2**k for k in range(13) if 2**k <= min(self.rows, _MOST_BATCHES)]
        counts = powers if self.inner_batches is None else [self.inner_batches]
        steps = [0.5**k / steepest for k in range(_HALVINGS)] if self.step is None else [self.step]

        def cost(plan: _DescentPlan) -> float:
            size = self.rows / plan.inner_batches
            return plan.error(bend, self.radius, self._sampling / size + private / size / size)

        return min((_DescentPlan(count, size) for count in counts for size in steps), key=cost)

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return two neighboring batches, targets last, that move a gradient far."""
        # An emptied row comes last, after all others have driven predictions up and its own target
        # is the lowest: C is reached with enough rows and steps. For a replacement 2C would need
        # opposite gradients of full size, which no weights allow: two opposite targets of the first
        # row move 4·`target_bound`·`feature_bound`.
        row = np.array([self.feature_bound, 0.0, self.target_bound])
        one = np.zeros((self.rows, 3))
        if slot_relation(neighbors) == REPLACE_ONE:
            other = one.copy()
            one[0], other[0] = row, row * (1, 1, -1)
            return WorstCase(one, other)
        one[:] = row
        other = one.copy()
        one[-1], other[-1] = row * (1, 1, -1), 0.0
        return WorstCase(one, other)

    def _event(self, neighbors: NeighboringRelation) -> GaussianEvent:
        return GaussianEvent(self._noise.mu(neighbors))

    def _solution(self, rows: np.ndarray, targets: np.ndarray, entropy: Entropy) -> Regression:
        """Return the averaged weights of one pass."""
        plan = self.plan(rows.shape[1])
        weights, projected, sums = self._passes(rows, targets, 1, entropy)
        sizes = [part.stop - part.start for part in self._parts(plan)]
        gradients = np.concatenate(sums) / np.array(sizes)[:, np.newaxis]
        # The error, if features point everywhere alike: how noisy a step is shows in how its
        # gradients differ from one another.
        d = rows.shape[1]
        size = self.rows / plan.inner_batches
        one = (self.standard_deviation / size) ** 2
        apart = np.diff(gradients, axis=0)
        least = d * one + (0.0 if len(apart) else self._sampling / size)
        noise = max(least, float((apart * apart).sum() / max(2 * len(apart), 1)))
        left, stays = plan.reached(self._bend(d))
        square = max(0.0, float(weights[0] @ weights[0]) - noise * stays)
        distance = min(self.radius, math.sqrt(square) / max(1 - left, 1e-3))
        error = plan.error(self._bend(d), distance, noise - (d - self._directions(d)) * one)
        within = self.kept(weights[0], error)
        return replace(within, projected=projected)

    def _seen(
        self, rows: np.ndarray, targets: np.ndarray, trials: int, entropy: Entropy
    ) -> np.ndarray:
        """Return all noised sums of gradients, one step after the other."""
        return np.hstack(self._passes(rows, targets, trials, entropy)[2])

    def _passes(
        self, rows: np.ndarray, targets: np.ndarray, trials: int, entropy: Entropy
    ) -> tuple[np.ndarray, bool, list[np.ndarray]]:
        """Return averaged weights, whether any left the radius, and every step's noised sums."""
        plan = self.plan(rows.shape[1])
        scale, sums = self.standard_deviation / self._noise.step, []

        def noised(part: slice, weights: np.ndarray) -> np.ndarray:
            steps = self._steps_of_sum(rows[part], targets[part], weights)
            drawn = with_noise(steps.ravel(), scale, entropy).astype(np.float64)
            sums.append(np.asarray(drawn.reshape(steps.shape) * self._noise.step))
            return sums[-1]

        weights, projected = self._descended(noised, (trials, rows.shape[1]), plan)
        return weights, projected, sums

    def _log_ratio(self, outputs: np.ndarray, one: Batch, other: Batch) -> np.ndarray:
        d = one[0].shape[1]
        plan, steps = self.plan(d), iter(np.split(outputs, outputs.shape[1] // d, axis=1))
        ratio = np.zeros(len(outputs))

        def replayed(part: slice, weights: np.ndarray) -> np.ndarray:
            sums = next(steps)
            first, second = (
                self._steps_of_sum(rows[part], targets[part], weights) * self._noise.step
                for rows, targets in (one, other)
            )
            apart = (first - second) / self.standard_deviation
            distance = (sums - (first + second) / 2) / self.standard_deviation
            ratio[:] += (apart * distance).sum(axis=1)
            return sums

        self._descended(replayed, (len(outputs), d), plan)
        return ratio

    @property
    def _noise(self) -> GaussianMechanism:
        """Return the mechanism of one step; the others cost nothing more."""
        return GaussianMechanism(
            self.standard_deviation,
            bound=self.gradient_bound,
            neighbors=self.neighbors,
            delta=self.delta,
        )

    @property
    def _sampling(self) -> float:
        """Return the variance of one row's gradient if residuals are as large as targets."""
        return 4 * (self.target_bound * self.feature_bound) ** 2

    def _bend(self, d: int) -> float:
        """Return the second derivative of the mean squared error in directions that matter."""
        return 2 * self.feature_bound**2 / self._directions(d)

    def _directions(self, d: int) -> float:
        """Return in how many directions features spread."""
        return max(1.0, min(float(d), self.effective_dimension or d))

    def _parts(self, plan: _DescentPlan) -> list[slice]:
        """Return the rows of every inner batch: a public rule."""
        count = plan.inner_batches
        return [slice(*(self.rows * (k + j) // count for j in (0, 1))) for k in range(count)]

    def _descended(
        self,
        noised: Callable[[slice, np.ndarray], np.ndarray],
        shape: tuple[int, int],
        plan: _DescentPlan,
    ) -> tuple[Float[np.ndarray, "trials d"], bool]:
        """Return the averaged weights of some passes, and whether any left the radius."""
        weights, total, projected = np.zeros(shape), np.zeros(shape), False
        first = _first_averaged(plan.inner_batches)
        for k, part in enumerate(self._parts(plan)):
            weights = weights - plan.step / (part.stop - part.start) * noised(part, weights)
            length = np.linalg.norm(weights, axis=1, keepdims=True)
            projected |= bool((length > self.radius).any())
            weights *= self.radius / np.maximum(length, self.radius)
            total += weights if k + 1 >= first else 0.0
        return total / (plan.inner_batches - first + 1), projected

    def _steps_of_sum(
        self,
        rows: Float[np.ndarray, "m0 d"],
        targets: Float[np.ndarray, " m0"],
        weights: Float[np.ndarray, "trials d"],
    ) -> np.ndarray:
        """Return the sum of clipped gradients in whole steps, for each of some weights."""
        bound, step, d = self.prediction_bound, self._noise.step, rows.shape[1]
        total = np.zeros(weights.shape, dtype=np.int64)
        size = max(1, _NUMBERS // weights.size)
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            residuals = np.clip(weights @ rows[part].T, -bound, bound) - targets[part]
            gradients = 2 * residuals[:, :, np.newaxis] * rows[part]
            steps = clipped_rows(gradients.reshape(-1, d), _STEPS, step)
            total += steps.reshape(gradients.shape).sum(axis=1)
        return total


@dataclass(frozen=True)
class OnePassDescent(Oracle):
    """The oracle of :class:`DescentRegression`: noisy gradient steps, each row read once."""

    # Source: docs/policy_optimization.md, "One-pass gradient descent".

    name: ClassVar[str] = "one-pass-descent"

    inner_batches: int | None = None  # number of steps; None chooses it by the number of features
    step: float | None = None  # of each; None chooses it likewise
    # As for the regression: a public guess of how many directions matter.
    effective_dimension: float | None = None
    # Predictions are clipped to within plus and minus this; None takes the bound of the targets, or
    # what the radius allows if that is less.
    prediction_bound: float | None = None

    def __post_init__(self) -> None:
        _refuse_unusable(self)

    def _within_budget(
        self, terms: RegressionTerms, epsilon: float, delta: float, neighbors: NeighboringRelation
    ) -> LeastSquares:
        """Return the noise of one pass over the batch."""
        if self.inner_batches is not None and self.inner_batches > terms.rows:
            raise UsageError(
                f"inner_batches={self.inner_batches} needs as many rows, got rows={terms.rows}. "
                "Nothing was spent."
            )
        allowed = terms.radius * terms.feature_bound
        bound = self.prediction_bound or min(allowed, terms.target_bound)
        noise = GaussianMechanism.calibrated(
            epsilon,
            delta=delta,
            bound=2 * (bound + terms.target_bound) * terms.feature_bound,
            neighbors=neighbors,
        )
        return DescentRegression(
            **vars(terms),
            standard_deviation=noise.standard_deviation,
            prediction_bound=bound,
            neighbors=neighbors,
            delta=delta,
            inner_batches=self.inner_batches,
            step=self.step,
            effective_dimension=self.effective_dimension,
        )
