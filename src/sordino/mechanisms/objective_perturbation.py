"""A minimizer whose objective was tilted at random before it was minimized, of pairs or rankings.

The mechanism draws the tilt and the noise of the output. It never sees the data: whoever holds
them passes a function that minimizes, and says how far the gradient is from zero. How much noise a
tilt needs, alone or with Gaussian releases, is public; so is the exact arithmetic of made-up
records, which an auditor plays with: the tilt under which θ is the minimizer is a function of θ, so
that the density of the minimizer is known in closed form.

Of rankings a whole record is private: candidates, their features and their order.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache, partial
from typing import Any, ClassVar, Protocol, cast

import numpy as np
from jaxtyping import Float, Integer
from scipy.special import expit

from sordino import _validate
from sordino._random import Entropy, normals
from sordino.errors import ConvergenceError, DataError, PrivacyError, UsageError
from sordino.privacy.conversions import gaussian_delta, gaussian_mu, narrow
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    ApproximateEvent,
    Guarantee,
    NeighboringRelation,
    Trust,
    Unit,
)
from sordino.privacy.objective_curves import (
    objective_perturbation_delta,
    objective_perturbation_delta_replace_one,
    ranked_amp_delta,
    slack_of_jacobian,
    slack_of_trace,
)

from .base import Described, WorstCase, usable_mu

_OUTPUT_SHARE = 1 / 32
"""μ of the output noise over that of the tilt, which then grows by about 0.05 %."""

SLACK = 1 + 1e-9
"""What clipping to a bound may lose to rounding."""

_UNSET = cast("float", None)  # replaced when settings are checked

_CLOSE = 1e-3
_ROUNDS = 60
_LEAST_MU = 1e-9
_ACCOUNTED = 2.0  # times atol: what rounding may hide from a gradient is paid for too
_OF_MOVE = 2.0**-32  # of what one record adds to a gradient: the least atol
_OF_TILT = 2.0**-36  # of one coordinate of the tilt: likewise
_USUAL = 1e-8  # of the bound: next to no noise
_LEAST_RIDGE = 0.75  # of the squared bound: with less, noise rules where few records differ
_SPREAD = 0.8277  # of reward differences where a perfect reward predicts 65 % of judgments
USUAL_RECORDS = 2_000  # where their number is private
_POWERS_OF_BOUND = 200  # of two: a minimizer takes fourth powers


def joint_delta(
    epsilon: float, mu: float, kappa: float, *parts: float, neighbors: NeighboringRelation
) -> float:
    """Return δ of a tilted minimizer released together with Gaussian releases."""
    # Guarantee: (ε, result) for all of them together, chosen one after another; shown by
    # tests/soundness/test_objective_perturbation.py.
    # Source: docs/central.md, "Objective perturbation": given the exact minimizer all parts are
    # Gaussian, and compose to the root of the sum of their squares.
    _validate.one_of("neighbors", neighbors, NeighboringRelation)
    rest = math.hypot(*(_validate.non_negative("parts", part) for part in parts), 0.0)
    if neighbors == REPLACE_ONE:
        return objective_perturbation_delta_replace_one(epsilon, mu, kappa, rest)
    return objective_perturbation_delta(epsilon, mu, kappa, rest)


@lru_cache(maxsize=256)
def _largest_mu(
    epsilon: float, delta: float, kappa: float, rest: float, neighbors: NeighboringRelation
) -> float:
    """Return the largest μ of the tilt that keeps (ε, δ), within 0.1 % in δ."""

    def excess(mu: float) -> float:
        found = joint_delta(epsilon, mu, kappa, mu * _OUTPUT_SHARE, rest, neighbors=neighbors)
        return math.log(max(found, 1e-300) / delta)

    enough = too_much = usable_mu(epsilon, delta)
    while (left := excess(enough)) > 0:
        too_much, over, enough = enough, left, enough / 2
        if enough < _LEAST_MU:
            raise UsageError(
                f"No tilt keeps epsilon={epsilon!r}, delta={delta!r} with this ridge and second "
                "moment. Use a larger ridge, a smaller second moment, or a larger budget."
            )
    if enough == too_much:
        return enough
    # False position (Illinois) for an excess of at most 0 and above −1e-3; what is returned was
    # evaluated.
    high, low, under, best, depth = too_much, enough, left, enough, left
    for _ in range(_ROUNDS):
        if depth > -_CLOSE or high - low <= 1e-12 * high:
            break
        target = _CLOSE / 2  # aim just below zero
        share = (over + target) / (over - under)
        middle = math.exp(math.log(high) + share * (math.log(low) - math.log(high)))
        middle = middle if low < middle < high else (low + high) / 2
        found = excess(middle)
        if found > 0:
            high, over, under = middle, found, under / 2
        else:
            low, under, over = middle, found, over / 2
            best, depth = middle, found
    return best


class Solution(Protocol):
    """A minimizer of the tilted objective, shape (d,), and the norm of the gradient there."""

    @property
    def theta(self) -> np.ndarray:
        """Return the weights."""

    @property
    def gradient_norm(self) -> float:
        """Return the norm of the gradient."""


@dataclass(frozen=True)
class Tilt(Described, ABC):
    """A random linear term in an objective, and noise that hides how exact its minimizer is.

    Guarantee:
        None of its own: each kind states one. Shown by
        tests/soundness/test_objective_perturbation.py and
        tests/soundness/test_ranking_objective_perturbation.py.
    """

    # Kinds differ in how far one record moves the gradient and bends the objective.

    dimension: ClassVar[int | None] = None  # number of features, where a kind is made for one

    epsilon: float
    _: KW_ONLY
    delta: float
    bound: float
    neighbors: NeighboringRelation
    ridge: float | None = None
    atol: float = _UNSET

    def __post_init__(self) -> None:
        positive = _validate.positive
        _validate.settle(self, epsilon=positive, bound=positive, delta=_validate.fraction)
        _validate.one_of("neighbors", self.neighbors, NeighboringRelation)
        usual = self._usual_ridge()
        ridge = usual if self.ridge is None else positive("ridge", self.ridge)
        object.__setattr__(self, "ridge", ridge)
        if not 0 < usual < math.inf or self.jacobian >= self.epsilon:
            raise UsageError(
                f"ridge must be above {self._ridge_for(self.epsilon):.6g} for "
                f"epsilon={self.epsilon!r}, bound={self.bound!r} and records of this size, got "
                f"{ridge!r}: with less no noise suffices. ridge={usual:.6g} would do."
            )
        # With a smaller atol it would depend on the records, and even on one of them, whether a
        # minimizer is found. Gradients are sums of the tilt, which is rounded by 2^-52 of it, in
        # up to 2^20 coordinates by 2^-42; and of slopes at weights that are rounded by 2^-53 of
        # their norm w: of n records that all point one way by n·w·bound/4·2^-53 of what one record
        # moves, which is below 2^-32 for n·w·bound up to 2^23, and with the default for twice what
        # is accepted for n·w·bound up to 2^29. What exceeds it is not refused: `nearest_minimum`.
        # Source: docs/central.md, "Objective perturbation": an inexact minimizer.
        moved, deviation = self.sensitivity(REPLACE_SPECIAL), self.standard_deviation
        least = max(moved * _OF_MOVE, deviation * _OF_TILT)
        atol = max(self.bound * _USUAL, least) if self.atol is _UNSET else self.atol
        object.__setattr__(self, "atol", positive("atol", atol))
        if self.atol < least:
            raise UsageError(
                f"atol must be at least {least:.3g} with these settings, got {self.atol!r}: "
                "rounding alone may leave more of a gradient, and whether it does would tell of "
                "the records. Nothing was spent. Leave it out; a smaller one saves no noise that "
                "matters."
            )

    @property
    @abstractmethod
    def jacobian(self) -> float:
        """Return J, the most that one record's curvature adds to the loss."""

    @property
    @abstractmethod
    def mu(self) -> float:
        """Return the bound on one record's gradient over the standard deviation of the tilt."""

    @property
    @abstractmethod
    def standard_deviation(self) -> float:
        """Return the noise of every coordinate of the tilt b."""

    @property
    def mu_output(self) -> float:
        """Return twice the distance from the exact minimizer over the output noise."""
        return self.mu * _OUTPUT_SHARE

    @property
    def output_standard_deviation(self) -> float:
        """Return the noise that is added to every coordinate of the minimizer."""
        return 2 * _ACCOUNTED * self.atol / (self._ridge * self.mu_output) * SLACK

    @property
    def event(self) -> ApproximateEvent:
        """Return what one release does under :attr:`neighbors`, for the ledger."""
        return ApproximateEvent(self.epsilon, self.delta)

    @abstractmethod
    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return how far one change moves the gradient of the objective, at most."""

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return what one release promises to one record."""
        # What is promised when a record is replaced is promised when it is made empty, added or
        # removed too, since an empty record changes nothing.
        _validate.one_of("unit", unit, ("label", "record", "person"))
        _validate.one_of("neighbors", neighbors, NeighboringRelation)
        if unit != "record":
            raise PrivacyError(
                f"Objective perturbation promises nothing with unit={unit!r}. Use unit='record', "
                "or a mechanism made for that unit."
            )
        if neighbors == REPLACE_ONE != self.neighbors:
            raise PrivacyError(
                f"This noise was calibrated for {self.neighbors.name} and promises nothing when a "
                "record is replaced. Build it with neighbors=REPLACE_ONE, which takes more noise."
            )
        terms: dict[str, Any] = {"unit": unit, "neighbors": neighbors, "trust": trust}
        return Guarantee(self.epsilon, delta=self.delta, **terms, caveats=("real-arithmetic",))

    def release(
        self, minimize: Callable[[np.ndarray], Solution], *, d: int, entropy: Entropy
    ) -> Float[np.ndarray, " d"]:
        """Return noised weights; draws noise, so the spend must already be on a ledger.

        Guarantee:
            What :meth:`guarantee` returns, if records were clipped.
        """
        # `minimize` takes a tilt b, which is as secret as the data, to a minimizer of the objective
        # with bᵀθ. More noise hides how exact that is.
        if self.dimension not in (None, d):
            raise UsageError(f"d must be dimension={self.dimension}, got {d!r}. Nothing was drawn.")
        tilt = self.standard_deviation * normals(entropy, _validate.integer("d", d, at_least=1))
        solution = minimize(tilt)
        if not 0 <= solution.gradient_norm <= self.atol:  # also NaN
            raise ConvergenceError(
                f"The minimizer was not found to atol={self.atol!r}. Nothing was released. Allow "
                "more steps, or a larger atol, which adds more noise to the output."
            )
        if solution.theta.shape != (d,) or not np.isfinite(solution.theta).all():
            raise DataError("theta must be one finite number for each feature.")
        return solution.theta + self.output_standard_deviation * normals(entropy, d)

    def repeat(
        self, values: np.ndarray, trials: int, *, entropy: Entropy
    ) -> Float[np.ndarray, "trials d"]:
        """Return independent releases on the same made-up records, one in each row.

        Guarantee:
            None for all rows together: each row is one release. Never call it on private data.
        """
        records, trials = self._records(values), _validate.integer("trials", trials, at_least=1)
        shape = (trials, records.shape[2])
        tilts = self.standard_deviation * normals(entropy, math.prod(shape)).reshape(shape)
        weights = _minimizers(records, tilts, self._ridge, self.atol)
        noise = normals(entropy, math.prod(shape)).reshape(shape)
        return np.asarray(weights + self.output_standard_deviation * noise)

    def log_ratio(
        self, outputs: Float[np.ndarray, "trials d"], case: WorstCase
    ) -> Float[np.ndarray, " trials"]:
        """Return log P(output | case.one) − log P(output | case.other) for every row."""
        # It is the ratio for exact minimizers, of which the output noise leaves next to nothing
        # untold.
        theta, deviation = np.asarray(outputs), self.standard_deviation
        one, other = (
            _log_density(theta, self._records(side), self._ridge, deviation)
            for side in (case.one, case.other)
        )
        return np.asarray(one - other)

    @abstractmethod
    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return two neighboring inputs that nearly attain the stated loss."""

    @abstractmethod
    def _records(self, values: np.ndarray) -> Float[np.ndarray, "n k d"]:
        """Return made-up records, clipped, each as features of candidates, best first."""

    @abstractmethod
    def _ridge_for(self, slack: float) -> float:
        """Return the ridge at which the Jacobian costs this much."""

    def _usual_ridge(self) -> float:
        return self._ridge_for(self.epsilon / 2) * 2

    @property
    def _ridge(self) -> float:
        """Return the ridge, which is set by now."""
        assert self.ridge is not None  # noqa: S101 - for the type checker
        return self.ridge


_STEPS = 500
_SHARES = 24
_BLOCK = 1 << 12
_PULL = 30.0
"""How far records that hardly differ pull the weights of a worst case, over what they differ by."""

_LEAN = 0.25  # sine of the angle between the pull and a replaced record
_STIFF = 200

Known = tuple[Float[np.ndarray, "u k d"], Integer[np.ndarray, " u"]]
"""Different records, and how often each occurs."""


def clipped(values: Float[np.ndarray, "n d"], bound: float) -> Float[np.ndarray, "n d"]:
    """Return every row shrunk to a norm of at most ``bound``, up to rounding."""
    largest = np.abs(values).max(axis=1, keepdims=True, initial=0.0)
    shape = values / np.where(largest > 0, largest, 1.0)  # no square overflows
    length = np.maximum(np.linalg.norm(shape, axis=1, keepdims=True), 1.0)
    return np.asarray(shape * np.minimum(largest, bound / length))


def _minimizers(
    records: Float[np.ndarray, "n k d"], tilts: Float[np.ndarray, "t d"], ridge: float, atol: float
) -> Float[np.ndarray, "t d"]:
    """Return the minimizer of every tilted objective, by damped Newton steps."""
    known = np.unique(records, axis=0, return_counts=True)
    blocks = (tilts[start : start + _BLOCK] for start in range(0, len(tilts), _BLOCK))
    return np.concatenate([_solved(known, block, ridge, atol) for block in blocks])


def _log_density(
    theta: Float[np.ndarray, "t d"],
    records: Float[np.ndarray, "n k d"],
    ridge: float,
    standard_deviation: float,
) -> Float[np.ndarray, " t"]:
    """Return the log-density of the minimizer at every row of theta, up to one constant."""
    known = np.unique(records, axis=0, return_counts=True)
    gradient, hessian, _ = _derivatives(theta, known, ridge)
    distance = (gradient / standard_deviation) ** 2
    return np.asarray(np.linalg.slogdet(hessian)[1] - distance.sum(axis=1) / 2)


def _derivatives(
    theta: Float[np.ndarray, "t d"], known: Known, ridge: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return gradients without the tilt, Hessians, and values, at every row of theta."""
    records, counts = known
    gradient, hessian = ridge * theta, np.tile(ridge * np.eye(theta.shape[1]), (len(theta), 1, 1))
    value = ridge / 2 * (theta * theta).sum(axis=1)
    for stage in range(records.shape[1] - 1):
        # less the best of the stage, so that nothing cancels where it is the likeliest by far
        apart = records[:, stage:] - records[:, stage : stage + 1]
        scores = np.einsum("td,ukd->tuk", theta, apart)
        top = scores.max(axis=2, keepdims=True)
        weights = np.exp(scores - top)
        total = weights.sum(axis=2, keepdims=True)
        chances = weights / total
        middle = np.einsum("tuk,ukd->tud", chances, apart)
        gradient = gradient + np.einsum("u,tud->td", counts, middle)
        value = value + (top + np.log(total))[..., 0] @ counts
        spread = apart - middle[:, :, np.newaxis]
        hessian = hessian + np.einsum(
            "u,tuk,tukd,tuke->tde", counts, chances, spread, spread, optimize=True
        )
    return gradient, hessian, value


def _solved(known: Known, tilts: np.ndarray, ridge: float, atol: float) -> np.ndarray:
    """Return the minimizers of one block of tilts."""
    theta, left = np.zeros_like(tilts), np.arange(len(tilts))
    for _ in range(_STEPS):
        gradient, hessian, value = _derivatives(theta[left], known, ridge)
        gradient += tilts[left]
        rough = np.linalg.norm(gradient, axis=1) > atol
        left, gradient, value = left[rough], gradient[rough], value[rough]
        if not len(left):
            return theta
        step = np.linalg.solve(hessian[rough], gradient[..., np.newaxis])[..., 0]
        value += (tilts[left] * theta[left]).sum(axis=1)
        # the first power of 1/2 times which a step does not raise its objective
        share, open_ = np.ones(len(left)), np.arange(len(left))
        for _ in range(_SHARES):
            at = theta[left[open_]] - share[open_, np.newaxis] * step[open_]
            tried = _derivatives(at, known, ridge)[2] + (tilts[left[open_]] * at).sum(axis=1)
            open_ = open_[tried > value[open_] + 1e-12 * (1 + np.abs(value[open_]))]
            if not len(open_):
                break
            share[open_] /= 2
        theta[left] -= step * share[:, np.newaxis]
    raise ConvergenceError(f"A tilted objective was not minimized in {_STEPS} steps.")


def _pull(direction: np.ndarray, bound: float, ridge: float, noise: float) -> np.ndarray:
    """Return short records that hold the weights at about 30/R in one direction."""
    # Some balance the ridge. Others balance each other there, so many that the tilt moves the
    # weights by only a few 1/R.
    short = bound / _PULL
    against_ridge = ridge * (_PULL / bound) / (short * float(expit(-1.0)))
    stiff = noise * _PULL**2 / 4 / (float(expit(1.0) * expit(-1.0)) * (1 + math.exp(-1.0)))
    along, back = few(against_ridge + stiff), few(stiff * math.exp(-1.0))
    return np.vstack(
        [np.tile(short * direction, (along, 1)), np.tile(-short * direction, (back, 1))]
    )


def few(count: float) -> int:
    """Return a whole number of records that fits into memory."""
    return min(math.ceil(count), 10**6)


@dataclass(frozen=True)
class ObjectivePerturbation(Tilt):
    """Minimize Σ log(1 + e^{−θᵀz}) + (Λ/2)‖θ‖² + bᵀθ with a random b, and noise the minimizer.

    Nothing here depends on how many records there are. The loss is a sum, never a mean; every
    record z is clipped to the norm ``bound`` by :meth:`clipped`.

    Args:
        epsilon: Bound on the privacy loss, finite and above 0.
        delta: Failure probability, in (0, 1).
        bound: Norm to which every record is clipped (R); 2^-200 to 2^200.
        neighbors: What one change is; no default.
        ridge: Λ; by default R²/(2(e^{ε/2} − 1)), so that the Jacobian costs less than ε/2, or
            ¾R² if that is more.
        atol: Largest norm of the gradient at which a minimizer is accepted, at least 2^-32·R and
            2^-36 of the noise of the tilt; by default R·10^-8, or the latter if that is more.
        second_moment_mu: μ of a :class:`~sordino.mechanisms.gaussian.SecondMoment` released along
            with it, for one record made empty, added or removed. :attr:`event` pays for both.

    Raises:
        UsageError: A setting is out of range, the ridge is so small that no noise suffices, or
            ``second_moment_mu`` leaves nothing for the tilt.

    Guarantee:
        (epsilon, delta) for one record under ``neighbors``, whatever function minimizes, if the
        gradient norm that it reports is at most atol above the true one; caveat
        ``real-arithmetic``. Shown by tests/soundness/test_objective_perturbation.py.

    Source:
        docs/central.md, "Objective perturbation"; Chaudhuri, Monteleoni & Sarwate 2011 and Kifer,
        Smith & Thakurta 2012 for the mechanism. Differs: the slope and the curvature of the
        logistic loss are bounded together, and the inexact minimizer keeps that bound.

    Example:
        >>> from sordino.privacy.guarantee import REPLACE_SPECIAL
        >>> noise = ObjectivePerturbation(1.0, delta=1e-6, bound=1.0, neighbors=REPLACE_SPECIAL)
        >>> round(noise.ridge, 4), 4.2 < noise.standard_deviation < 4.3
        (0.7707, True)
    """

    _: KW_ONLY
    second_moment_mu: float = 0.0
    name: ClassVar[str] = "objective-perturbation"
    public: ClassVar[tuple[str, ...]] = ("bound", "ridge", "standard_deviation", "second_moment_mu")

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", usable_bound(self.bound, _POWERS_OF_BOUND))
        _validate.settle(self, second_moment_mu=_validate.non_negative)
        super().__post_init__()

    @property
    def kappa(self) -> float:
        """Return R²/Λ."""
        return self.bound * SLACK / self._ridge * (self.bound * SLACK)

    @property
    def jacobian(self) -> float:
        """Return J, the most that one record's curvature adds to the loss."""
        return slack_of_jacobian(self.kappa)

    @property
    def mu(self) -> float:
        """Return the bound on one record's gradient over the standard deviation of the tilt."""
        legs, rest = 2 if self.neighbors == REPLACE_ONE else 1, self.second_moment_mu
        if gaussian_delta(self.epsilon - self.jacobian, legs * rest) >= self.delta:
            raise UsageError(
                f"second_moment_mu={rest!r} leaves nothing for the minimizer. Use less, or raise "
                "epsilon or delta."
            )
        return _largest_mu(self.epsilon, self.delta, self.kappa, rest, self.neighbors)

    @property
    def standard_deviation(self) -> float:
        """Return the noise of every coordinate of the tilt b."""
        return self.bound * SLACK / self.mu

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return how far one change moves the gradient of the objective, at most."""
        _validate.one_of("neighbors", neighbors, NeighboringRelation)
        return self.bound * (2 if neighbors == REPLACE_ONE else 1)

    @classmethod
    @_validate.typed
    def for_sizes(
        cls,
        epsilon: float,
        *,
        n: int | None,
        d: int,
        delta: float,
        bound: float,
        neighbors: NeighboringRelation,
        second_moment_mu: float = 0.0,
    ) -> ObjectivePerturbation:
        """Return the mechanism with the ridge that suits so many records and features.

        The ridge is public and stands before any record is read. It is the inverse variance of a
        prior under which a perfect reward predicts 65 % of judgments, times one plus the variance
        of the tilt over the curvature that n records give each direction: with less noise rules
        where few records differ, with more the reward is lost.

        Source:
            docs/central.md, "Objective perturbation": Λ = (R/s)²(1 + 4dσ²/(nR²)), s = 0.83, for n
            records; None where their number is private: then as for 2,000.

        Example:
            >>> from sordino.privacy.guarantee import REPLACE_SPECIAL
            >>> settings = {"delta": 1e-6, "bound": 1.0, "neighbors": REPLACE_SPECIAL}
            >>> found = [ObjectivePerturbation.for_sizes(1.0, n=n, d=28, **settings).ridge
            ...          for n in (500, 20_000)]
            >>> [round(ridge, 2) for ridge in found]
            [7.38, 1.61]
        """
        terms: dict[str, Any] = {"delta": delta, "bound": bound, "neighbors": neighbors}
        usual = cls(epsilon, **terms, second_moment_mu=second_moment_mu)
        _validate.integer("n", n or 0, at_least=0)
        _validate.integer("d", d, at_least=1)
        return replace(usual, ridge=usual.ridge_for(USUAL_RECORDS if n is None else max(n, 1), d))

    def ridge_for(self, n: float, d: int) -> float:
        """Return the ridge that suits so many records and features, or that of these settings."""
        # Source: docs/central.md, "Objective perturbation": Λ = (R/s)²(1 + 4dσ²/(nR²)), s = 0.83.
        noise = 4 * d * (self.standard_deviation / self.bound) ** 2 / n
        return max(self._ridge, (self.bound / _SPREAD) ** 2 * (1 + noise))

    def clipped(self, values: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Return every record shrunk to the bound, whatever the others are."""
        return clipped(_validate.finite_array("values", values, ndim=2), self.bound)

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return two neighboring inputs that nearly attain the stated loss.

        Many short records pull the weights to where the slopes of one more record are as large as
        they can be. It is one coordinate wide, or two if that record is replaced.
        """
        _validate.one_of("neighbors", neighbors, NeighboringRelation)
        bound, ridge, noise = self.bound, self._ridge, self.standard_deviation / self.bound
        if neighbors == REPLACE_ONE:
            around = _pull(np.array([0.0, -1.0]), bound, ridge, noise)
            stiff = np.repeat([[bound, 0.0], [-bound, 0.0]], few(_STIFF + 10 * noise), axis=0)
            right = bound * np.array([[math.sqrt(1 - _LEAN**2), _LEAN]])
            one, other = (np.vstack([around, stiff, row]) for row in (right, right * [[-1.0, 1.0]]))
            return WorstCase(one, other)
        around = _pull(np.array([-1.0]), bound, ridge, noise)
        others = {REPLACE_SPECIAL: np.zeros((1, 1)), ADD_OR_REMOVE_ONE: np.zeros((0, 1))}
        return WorstCase(np.vstack([around, [[bound]]]), np.vstack([around, others[neighbors]]))

    def _records(self, values: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n 2 d"]:
        records = self.clipped(values)  # z as the candidates z and 0, in this order: the same loss
        return np.stack([records, np.zeros_like(records)], axis=1)

    def _usual_ridge(self) -> float:
        return max(super()._usual_ridge(), _LEAST_RIDGE * self.bound**2)

    def _ridge_for(self, slack: float) -> float:
        """Return the ridge at which the Jacobian costs this much: R²/(4(e^J − 1))."""
        try:
            return self.bound * (self.bound / (4 * math.expm1(slack)))
        except OverflowError:
            return 0.0


def usable_bound(value: float, powers: int) -> float:
    """Return a bound whose powers are floats."""
    bound = _validate.positive("bound", value)
    if not 2.0**-powers <= bound <= 2.0**powers:
        raise UsageError(
            f"bound={bound!r} is too small or too large to compute with: it must be within "
            f"2^-{powers} and 2^{powers}. Measure the values in another unit."
        )
    return bound


def ranked_delta(
    epsilon: float,
    mu: float,
    jacobian: float,
    *,
    candidates: int,
    dimension: int,
    neighbors: NeighboringRelation,
    mu_output: float = 0.0,
) -> float:
    """Return δ of a tilted minimizer of rankings."""
    # Guarantee: (ε, result); shown by tests/soundness/test_ranking_objective_perturbation.py.
    # Source: docs/central.md, "Rankings". A replaced record moves the gradient by twice as much, in
    # the span of two records' differences.
    if candidates == 2:  # noqa: PLR2004 - J = log(1 + κ/4)
        kappa = 4 * math.expm1(jacobian)
        return joint_delta(epsilon, mu, kappa, mu_output, neighbors=neighbors)
    legs = 2 if neighbors == REPLACE_ONE else 1
    rank = min(dimension, legs * (candidates - 1))
    return ranked_amp_delta(epsilon, legs * mu, jacobian, rank, mu_output)


@lru_cache(maxsize=256)
def _largest_ranked_mu(
    epsilon: float,
    delta: float,
    jacobian: float,
    candidates: int,
    dimension: int,
    neighbors: NeighboringRelation,
) -> float:
    """Return the largest μ of the tilt that keeps (ε, δ), its output noise included."""
    sizes: dict[str, Any] = {
        "candidates": candidates,
        "dimension": dimension,
        "neighbors": neighbors,
    }

    def keeps(mu: float) -> bool:
        return ranked_delta(epsilon, mu, jacobian, **sizes, mu_output=mu * _OUTPUT_SHARE) <= delta

    if not keeps(_LEAST_MU):
        raise UsageError(
            f"No tilt keeps epsilon={epsilon!r}, delta={delta!r} with this ridge. Use a larger "
            "ridge, or a larger budget."
        )
    return narrow(keeps, gaussian_mu(epsilon, delta) * (1 + 1e-9), _LEAST_MU, rtol=1e-4)[1]


@dataclass(frozen=True)
class RankingObjectivePerturbation(Tilt):
    """Minimize the Plackett–Luce loss + (Λ/2)‖θ‖² + bᵀθ with a random b, and noise the minimizer.

    Nothing here depends on how many records there are. The loss is a sum, never a mean. A record
    ranks at most ``candidates`` candidates, whose features :meth:`clipped` shrinks to the norm
    ``bound``; ties and candidates that are not listed make fewer or no stages.

    Args:
        epsilon: Bound on the privacy loss, finite and above 0.
        delta: Failure probability, in (0, 1).
        bound: Norm to which the features of every candidate are clipped (L).
        candidates: The most candidates of one record (K), a public number; at least 2.
        dimension: Number of features, d.
        neighbors: What one change is; no default.
        ridge: Λ; by default twice that at which the Jacobian would cost ε/2.
        atol: Largest norm of the gradient at which a minimizer is accepted, at least 2^-32 of what
            one record adds to it and 2^-36 of the noise of the tilt; by default L·10^-8, or the
            larger of the two if that is more.

    Raises:
        UsageError: A setting is out of range, or the ridge is so small that no noise suffices.

    Guarantee:
        (epsilon, delta) for one record under ``neighbors``, whatever function minimizes, if the
        gradient norm that it reports is at most atol above the true one; caveat
        ``real-arithmetic``. Shown by tests/soundness/test_ranking_objective_perturbation.py.

    Source:
        docs/central.md, "Rankings": a record's gradient is at most 2L(K − 1) long and lies in the
        span of its candidates' differences, of dimension r ≤ min(d, K − 1); its Hessian there has
        a trace of at most (K − 1)L². Two candidates are a pair, with the bound for pairs.
        Differs: a replaced record keeps the Jacobian of one record, since the other's curvature
        only lowers it.

    Example:
        >>> from sordino.privacy.guarantee import REPLACE_SPECIAL
        >>> noise = RankingObjectivePerturbation(
        ...     1.0, delta=1e-6, bound=1.0, candidates=4, dimension=8, neighbors=REPLACE_SPECIAL)
        >>> noise.sensitivity(REPLACE_SPECIAL), noise.jacobian < 0.5
        (6.0, True)
    """

    _: KW_ONLY
    candidates: int
    dimension: int  # type: ignore[misc]  # a setting of this kind
    name: ClassVar[str] = "ranked-perturbation"
    public = ("bound", "candidates", "dimension", "ridge", "standard_deviation")

    def __post_init__(self) -> None:
        for name, least in (("candidates", 2), ("dimension", 1)):
            settle = partial(_validate.integer, at_least=least, at_most=2**20)
            _validate.settle(self, **{name: settle})
        super().__post_init__()

    @property
    def rank(self) -> int:
        """Return the dimension of the span of one record's differences, at most."""
        return min(self.dimension, self.candidates - 1)

    @property
    def jacobian(self) -> float:
        """Return J, the most that one record's curvature adds to the loss."""
        return slack_of_trace(self._trace / self._ridge, self.rank)

    @property
    def mu(self) -> float:
        """Return the bound on one record's gradient over the standard deviation of the tilt."""
        return _largest_ranked_mu(
            self.epsilon, self.delta, self.jacobian, self.candidates, self.dimension, self.neighbors
        )

    @property
    def standard_deviation(self) -> float:
        """Return the noise of every coordinate of the tilt b."""
        return 2 * self.bound * SLACK * (self.candidates - 1) / self.mu

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return how far one change moves the gradient of the objective, at most."""
        _validate.one_of("neighbors", neighbors, NeighboringRelation)
        return self.bound * (self.candidates - 1) * (4 if neighbors == REPLACE_ONE else 2)

    def clipped(self, features: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m d"]:
        """Return every candidate's features shrunk to the bound, whatever the others are."""
        known = _validate.finite_array("features", features, ndim=2)
        if known.shape[1] != self.dimension:
            raise DataError(f"features must have {self.dimension} columns, got {known.shape[1]}.")
        return clipped(known, self.bound)

    def refuse_long_ballots(self, starts: np.ndarray) -> None:
        """Refuse records of more candidates than the mechanism was built for."""
        if (np.diff(starts) > self.candidates).any():
            raise DataError(
                f"A record ranks more than candidates={self.candidates}. Nothing was released. "
                "Leave out candidates by a rule that reads only their record, or allow more."
            )

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return two neighboring inputs on which much of the stated loss is attained."""
        # Records of candidates that hardly differ pull the weights to where the slopes of one more
        # record are as large as they can be.
        # There the last candidate of the one record is the best by far, so that every stage errs
        # by 2L.
        _validate.one_of("neighbors", neighbors, NeighboringRelation)
        # Their first candidate is a little better or worse than all the others, which are alike.
        # Some balance the ridge; others each other there, so many that the tilt moves the weights
        # little.
        others, target = self.candidates - 1, _PULL / (2 * self.bound)
        short = 1 / target
        up, down = (others / (math.exp(sign) + others) for sign in (1.0, -1.0))  # not being first
        # The tilt moves the weights by s over the curvature: a fifteenth of the target.
        curvature = 15 * self.standard_deviation / target
        back = few(curvature / (short**2 * (down * (1 - down) + down * (1 - up))))
        along = few((self._ridge * target / short + back * down) / up)
        record = np.zeros((self.candidates, self.dimension))
        record[0, 0] = short
        around = np.concatenate([np.tile(record, (along, 1, 1)), np.tile(-record, (back, 1, 1))])
        far = np.zeros((1, self.candidates, self.dimension))
        far[..., 0] = -self.bound
        far[:, -1, 0] = self.bound
        other = -far if neighbors == REPLACE_ONE else 0 * far
        if neighbors == ADD_OR_REMOVE_ONE:
            other = other[:0]
        return WorstCase(np.concatenate([around, far]), np.concatenate([around, other]))

    def _records(self, values: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, "n k d"]:
        """Return made-up records, clipped; refuse longer ones than were promised for."""
        known = _validate.finite_array("values", values, ndim=3)
        if known.shape[1] > self.candidates:
            raise DataError(f"values must rank at most candidates={self.candidates}.")
        return self.clipped(known.reshape(-1, known.shape[2])).reshape(known.shape)

    @property
    def _trace(self) -> float:
        """Return the largest trace of one record's Hessian."""
        return (self.candidates - 1) * (self.bound * SLACK) ** 2

    def _ridge_for(self, slack: float) -> float:
        """Return the ridge at which the Jacobian costs this much."""
        try:
            return self._trace / (self.rank * math.expm1(slack / self.rank)) * SLACK
        except (OverflowError, ZeroDivisionError):
            return 0.0
