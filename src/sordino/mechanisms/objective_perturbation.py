"""A minimizer whose objective was tilted at random before it was minimized.

The mechanism draws the tilt and the noise of the output. It never sees the data: whoever holds
them passes a function that minimizes, and says how far the gradient is from zero.

How much noise a tilt needs, alone or together with Gaussian releases.

What every mechanism promises and draws that tilts an objective and noises its minimizer.

Exact arithmetic of tilted logistic objectives, for made-up records: what an auditor plays with.

F(θ) = Σ log(1 + e^{−θᵀz}) + (Λ/2)‖θ‖² + bᵀθ. The tilt under which θ is the minimizer is a function
of θ, so that the density of the minimizer is known in closed form.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Any, Protocol, cast

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from sordino import _validate
from sordino._random import Entropy, normals
from sordino.errors import ConvergenceError, DataError, PrivacyError, UsageError
from sordino.privacy.events import ApproximateEvent
from sordino.privacy.gaussian import gaussian_delta, gaussian_mu
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    Guarantee,
    NeighboringRelation,
    Trust,
    Unit,
)
from sordino.privacy.objective_curves import (
    objective_perturbation_delta,
    objective_perturbation_delta_replace_one,
    slack_of_jacobian,
)

from .base import WorstCase

OUTPUT_SHARE = 1 / 32
"""μ of the output noise over that of the tilt, which then grows by about 0.05 %."""

_CLOSE = 1e-3
_ROUNDS = 60
_LEAST_MU = 1e-9


def joint_delta(
    epsilon: float,
    mu: float,
    kappa: float,
    *parts: float,
    neighbors: NeighboringRelation,
) -> float:
    """Return δ of a tilted minimizer released together with Gaussian releases.

    Guarantee:
        (ε, result) for all of them together, chosen one after another; shown by
        tests/soundness/test_objective_perturbation.py.
    """
    # Source: docs/central.md, "Objective perturbation": given the exact minimizer all parts are
    # Gaussian, and compose to the root of the sum of their squares.
    _validate.one_of("neighbors", neighbors, NeighboringRelation)
    rest = math.hypot(*(_validate.non_negative("parts", part) for part in parts), 0.0)
    if neighbors == REPLACE_ONE:
        return objective_perturbation_delta_replace_one(epsilon, mu, kappa, rest)
    return objective_perturbation_delta(epsilon, mu, kappa, rest)


@lru_cache(maxsize=256)
def largest_mu(
    epsilon: float, delta: float, kappa: float, rest: float, neighbors: NeighboringRelation
) -> float:
    """Return the largest μ of the tilt that keeps (ε, δ), within 0.1 % in δ."""

    def excess(mu: float) -> float:
        found = joint_delta(epsilon, mu, kappa, mu * OUTPUT_SHARE, rest, neighbors=neighbors)
        return math.log(max(found, 1e-300) / delta)

    too_much = gaussian_mu(epsilon, delta)
    if too_much == 0:
        raise UsageError(f"delta={delta!r} is too small for Gaussian noise of any size.")
    enough = too_much
    while (left := excess(enough)) > 0:
        too_much, over, enough = enough, left, enough / 2
        if enough < _LEAST_MU:
            raise UsageError(
                f"No tilt keeps epsilon={epsilon!r}, delta={delta!r} with this ridge and second "
                "moment. Use a larger ridge, a smaller second moment, or a larger budget."
            )
    return enough if enough == too_much else _between(excess, (too_much, over), (enough, left))


def _between(
    excess: Callable[[float], float], fails: tuple[float, float], holds: tuple[float, float]
) -> float:
    """Return a point where ``excess`` is at most 0 and above −1e-3: false position, Illinois."""
    # Each end is a point and its excess; what is returned was evaluated.
    (high, over), (low, under) = fails, holds
    best, depth = low, under
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


SLACK = 1 + 1e-9
"""What clipping to a bound may lose to rounding."""

_ACCOUNTED = 2.0  # times atol: what rounding may hide from a gradient is paid for too
_OF_MOVE = 2.0**-32  # of what one record adds to a gradient: the least atol
_OF_TILT = 2.0**-36  # of one coordinate of the tilt: likewise
_USUAL = 1e-8  # of the bound: next to no noise


def usable_atol(atol: float | None, *, bound: float, moved: float, deviation: float) -> float:
    """Return the norm of a gradient that is accepted, above what rounding leaves of one."""
    # With a smaller one it would depend on the records, and even on one of them, whether a
    # minimizer is found. Gradients are sums of the tilt, which is rounded by 2^-52 of it, in up to
    # 2^20 coordinates by 2^-42; and of slopes at weights that are rounded by 2^-53 of their norm w:
    # of n records that all point one way by n·w·bound/4·2^-53 of what one record moves, which is
    # below 2^-32 for n·w·bound up to 2^23, and with the default for twice what is accepted for
    # n·w·bound up to 2^29. What exceeds `atol` is not refused; see
    # `nearest_minimum`.
    # Source: docs/central.md, "Objective perturbation": an inexact minimizer.
    least = max(moved * _OF_MOVE, deviation * _OF_TILT)
    if atol is None:
        return max(bound * _USUAL, least)
    atol = _validate.positive("atol", atol)
    if atol < least:
        raise UsageError(
            f"atol must be at least {least:.3g} with these settings, got {atol!r}: rounding alone "
            "may leave more of a gradient, and whether it does would tell of the records. Nothing "
            "was spent. Leave it out; a smaller one saves no noise that matters."
        )
    return atol


class Tilt(ABC):
    """A random linear term in an objective, and noise that hides how exact its minimizer is."""

    # Kinds differ in how far one record moves the gradient and bends the objective, and so in `mu`
    # and `standard_deviation`.

    epsilon: float
    delta: float
    neighbors: NeighboringRelation
    ridge: float | None
    atol: float

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
        return self.mu * OUTPUT_SHARE

    @property
    def output_standard_deviation(self) -> float:
        """Return the noise that is added to every coordinate of the minimizer."""
        return 2 * _ACCOUNTED * self.atol / (self._ridge * self.mu_output) * SLACK

    @property
    def event(self) -> ApproximateEvent:
        """Return what one release does under :attr:`neighbors`, for the ledger."""
        return ApproximateEvent(self.epsilon, self.delta)

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
        return Guarantee(
            self.epsilon,
            delta=self.delta,
            unit=unit,
            neighbors=neighbors,
            trust=trust,
            caveats=("real-arithmetic",),
        )

    def finish(
        self, theta: Float[np.ndarray, " d"], gradient_norm: float, *, entropy: Entropy
    ) -> Float[np.ndarray, " d"]:
        """Return a minimizer of the tilted objective with the noise that hides its inexactness.

        Guarantee:
            What :meth:`guarantee` returns, if the tilt came from :meth:`draw` and records were
            clipped.
        """
        if not 0 <= gradient_norm <= self.atol:  # also NaN
            raise ConvergenceError(
                f"The minimizer was not found to atol={self.atol!r}. Nothing was released. Allow "
                "more steps, or a larger atol, which adds more noise to the output."
            )
        if theta.ndim != 1 or not np.isfinite(theta).all():
            raise DataError("theta must be one finite number for each feature.")
        return theta + self.output_standard_deviation * normals(entropy, len(theta))

    @property
    def _ridge(self) -> float:
        """Return the ridge, which is set by now."""
        assert self.ridge is not None  # noqa: S101 - for the type checker
        return self.ridge


_STEPS = 500
_SHRINKS = 0.9
_SHARES = 24
_BLOCK = 1 << 14
_PULL = 30.0  # how far short records pull the weights, in 1/R
_LEAN = 0.25  # sine of the angle between the pull and a replaced record
_STIFF = 200


def clipped(values: Float[np.ndarray, "n d"], bound: float) -> Float[np.ndarray, "n d"]:
    """Return every row shrunk to a norm of at most ``bound``, up to rounding."""
    largest = np.abs(values).max(axis=1, keepdims=True, initial=0.0)
    shape = values / np.where(largest > 0, largest, 1.0)  # no square overflows
    length = np.maximum(np.linalg.norm(shape, axis=1, keepdims=True), 1.0)
    return np.asarray(shape * np.minimum(largest, bound / length))


def minimizers(
    records: Float[np.ndarray, "n d"], tilts: Float[np.ndarray, "t d"], ridge: float, atol: float
) -> Float[np.ndarray, "t d"]:
    """Return the minimizer of every tilted objective."""
    # Newton's method. Where a full step does not shrink the gradient, the share of it that lowers
    # the objective most is taken.
    rows, counts = np.unique(records, axis=0, return_counts=True)
    found = [
        _solved(rows, counts, tilts[start : start + _BLOCK], ridge, atol)
        for start in range(0, len(tilts), _BLOCK)
    ]
    return np.concatenate(found)


def _solved(
    rows: np.ndarray, counts: np.ndarray, tilts: np.ndarray, ridge: float, atol: float
) -> np.ndarray:
    """Return the minimizers of one block of tilts."""
    theta, left = np.zeros_like(tilts), np.arange(len(tilts))
    for _ in range(_STEPS):
        gradient, hessian = _derivatives(theta[left], rows, counts, ridge)
        gradient += tilts[left]
        size = np.linalg.norm(gradient, axis=1)
        rough = size > atol
        left, size = left[rough], size[rough]
        if not len(left):
            return theta
        step = np.linalg.solve(hessian[rough], gradient[rough][..., np.newaxis])[..., 0]
        full = tilts[left] + _derivatives(theta[left] - step, rows, counts, ridge)[0]
        damped = np.linalg.norm(full, axis=1) > _SHRINKS * size
        share = np.ones(len(left))
        if damped.any():
            far = (theta[left][damped], step[damped], tilts[left][damped])
            share[damped] = _best_share(*far, rows, counts, ridge)
        theta[left] -= step * share[:, np.newaxis]
    raise ConvergenceError(f"A tilted objective was not minimized in {_STEPS} steps.")


def _best_share(
    theta: np.ndarray,
    step: np.ndarray,
    tilts: np.ndarray,
    rows: np.ndarray,
    counts: np.ndarray,
    ridge: float,
) -> np.ndarray:
    """Return the power of 1/2 times which every step lowers its objective most."""
    shares = 0.5 ** np.arange(_SHARES)
    values = []
    for share in shares:
        at = theta - share * step
        loss = np.logaddexp(0.0, -at @ rows.T) @ counts
        values.append(loss + ((ridge / 2 * at + tilts) * at).sum(axis=1))
    return np.asarray(shares[np.argmin(values, axis=0)])


def _derivatives(
    theta: np.ndarray, rows: np.ndarray, counts: np.ndarray, ridge: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return gradients without the tilt, and Hessians, at every row of theta."""
    margins = theta @ rows.T
    slopes, bends = counts * expit(-margins), counts * expit(margins) * expit(-margins)
    hessian = np.einsum("tn,ni,nj->tij", bends, rows, rows, optimize=True)
    return ridge * theta - slopes @ rows, hessian + ridge * np.eye(rows.shape[1])


def log_density(
    theta: Float[np.ndarray, "t d"],
    records: Float[np.ndarray, "n d"],
    ridge: float,
    standard_deviation: float,
) -> Float[np.ndarray, " t"]:
    """Return the log-density of the minimizer at every row of theta, up to one constant."""
    rows, counts = np.unique(records, axis=0, return_counts=True)
    tilt, hessian = _derivatives(theta, rows, counts, ridge)
    distance = (tilt / standard_deviation) ** 2
    return np.asarray(np.linalg.slogdet(hessian)[1] - distance.sum(axis=1) / 2)


def worst_case(
    neighbors: NeighboringRelation, bound: float, ridge: float, standard_deviation: float
) -> WorstCase:
    """Return two neighboring inputs whose weights lie where a record's slope is nearly 1."""
    noise = standard_deviation / bound
    if neighbors == REPLACE_ONE:
        around = _pull(np.array([0.0, -1.0]), bound, ridge, noise)
        stiff = np.repeat([[bound, 0.0], [-bound, 0.0]], _few(_STIFF + 10 * noise), axis=0)
        right = bound * np.array([[math.sqrt(1 - _LEAN**2), _LEAN]])
        one, other = (np.vstack([around, stiff, row]) for row in (right, right * [[-1.0, 1.0]]))
        return WorstCase(one, other)
    around = _pull(np.array([-1.0]), bound, ridge, noise)
    others = {REPLACE_SPECIAL: np.zeros((1, 1)), ADD_OR_REMOVE_ONE: np.zeros((0, 1))}
    return WorstCase(np.vstack([around, [[bound]]]), np.vstack([around, others[neighbors]]))


def _pull(direction: np.ndarray, bound: float, ridge: float, noise: float) -> np.ndarray:
    """Return short records that hold the weights at about 30/R in one direction."""
    # Some balance the ridge. Others balance each other there, so many that the tilt moves the
    # weights by only a few 1/R.
    short = bound / _PULL
    against_ridge = ridge * (_PULL / bound) / (short * float(expit(-1.0)))
    stiff = noise * _PULL**2 / 4 / (float(expit(1.0) * expit(-1.0)) * (1 + math.exp(-1.0)))
    along, back = _few(against_ridge + stiff), _few(stiff * math.exp(-1.0))
    return np.vstack(
        [np.tile(short * direction, (along, 1)), np.tile(-short * direction, (back, 1))]
    )


def _few(count: float) -> int:
    """Return a whole number of records that fits into memory."""
    return min(math.ceil(count), 10**6)


_LEAST_RIDGE = 0.75  # of the squared bound: with less, noise rules where few records differ
_SPREAD = 0.8277  # of reward differences where a perfect reward predicts 65 % of judgments
_USUAL_RECORDS = 2_000  # where their number is private
_POWERS_OF_BOUND = 200  # of two: a minimizer takes fourth powers
_UNSET = cast("float", None)  # replaced in __post_init__


class Solution(Protocol):
    """A minimizer of the tilted objective."""

    @property
    def theta(self) -> np.ndarray:
        """Return the weights, shape (d,)."""
        ...

    @property
    def gradient_norm(self) -> float:
        """Return the norm of the gradient of the tilted objective there."""
        ...


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
        second_moment_mu: μ of a :class:`~sordino.mechanisms.gaussian.SecondMoment` released
            along with it, for one record made empty, added or removed. :attr:`event` pays for
            both.

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

    epsilon: float
    _: KW_ONLY
    delta: float
    bound: float
    neighbors: NeighboringRelation
    ridge: float | None = None
    atol: float = _UNSET
    second_moment_mu: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what no noise can protect, and find the noise."""
        object.__setattr__(self, "epsilon", _validate.positive("epsilon", self.epsilon))
        object.__setattr__(self, "bound", usable_bound(self.bound, _POWERS_OF_BOUND))
        delta = _validate.failure_probability("delta", self.delta, zero=False)
        object.__setattr__(self, "delta", delta)
        _validate.one_of("neighbors", self.neighbors, NeighboringRelation)
        rest = _validate.non_negative("second_moment_mu", self.second_moment_mu)
        object.__setattr__(self, "second_moment_mu", rest)
        usual = max(self._ridge_for(self.epsilon / 2) * 2, _LEAST_RIDGE * self.bound**2)
        ridge = usual if self.ridge is None else _validate.positive("ridge", self.ridge)
        object.__setattr__(self, "ridge", ridge)
        if slack_of_jacobian(self.kappa) >= self.epsilon:
            raise UsageError(
                f"ridge must be above {self._ridge_for(self.epsilon):.6g} for "
                f"epsilon={self.epsilon!r} and bound={self.bound!r}, got {ridge!r}: with less no "
                f"noise suffices. ridge={usual:.6g} would do."
            )
        self._refuse_a_full_second_moment()
        moved, deviation = self.bound, self.standard_deviation  # settings fail here and not later
        atol = usable_atol(self.atol, bound=moved, moved=moved, deviation=deviation)
        object.__setattr__(self, "atol", atol)

    @property
    def kappa(self) -> float:
        """Return R²/Λ."""
        return self.bound * SLACK / self._ridge * (self.bound * SLACK)

    @property
    def mu(self) -> float:
        """Return the bound on one record's gradient over the standard deviation of the tilt."""
        return largest_mu(
            self.epsilon, self.delta, self.kappa, self.second_moment_mu, self.neighbors
        )

    @property
    def standard_deviation(self) -> float:
        """Return the noise of every coordinate of the tilt b."""
        return self.bound * SLACK / self.mu

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return how far one change moves the gradient of the objective, at most."""
        _validate.one_of("neighbors", neighbors, NeighboringRelation)
        return self.bound * (2 if neighbors == REPLACE_ONE else 1)

    @classmethod
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
            docs/central.md, "Objective perturbation": Λ = (R/s)²(1 + 4dσ²/(nR²)), s = 0.83.

        Args:
            epsilon: As for the class, as are delta, bound and neighbors.
            n: Number of records; None where it is private: then as for 2,000.
            d: Number of features.
            delta: See above.
            bound: See above.
            neighbors: See above.
            second_moment_mu: See above.

        Example:
            >>> from sordino.privacy.guarantee import REPLACE_SPECIAL
            >>> settings = {"delta": 1e-6, "bound": 1.0, "neighbors": REPLACE_SPECIAL}
            >>> found = [ObjectivePerturbation.for_sizes(1.0, n=n, d=28, **settings).ridge
            ...          for n in (500, 20_000)]
            >>> [round(ridge, 2) for ridge in found]
            [7.38, 1.61]
        """
        rest: dict[str, Any] = {"delta": delta, "bound": bound, "neighbors": neighbors}
        usual = cls(epsilon, **rest, second_moment_mu=second_moment_mu)
        ridge = usual.ridge_for(_USUAL_RECORDS if n is None else max(n, 1), d)
        return cls(epsilon, **rest, ridge=ridge, second_moment_mu=second_moment_mu)

    def ridge_for(self, n: float, d: int) -> float:
        """Return the ridge that suits so many records and features, or that of these settings.

        Source:
            docs/central.md, "Objective perturbation": Λ = (R/s)²(1 + 4dσ²/(nR²)), s = 0.83.

        Args:
            n: Number of records, > 0.
            d: Number of features.
        """
        noise = 4 * d * (self.standard_deviation / self.bound) ** 2 / n
        return max(self._ridge, (self.bound / _SPREAD) ** 2 * (1 + noise))

    def clipped(self, values: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Return every record shrunk to the bound, whatever the others are.

        Raises:
            DataError: A value is not finite; only its index is named.
        """
        return clipped(_validate.finite_array("values", values, ndim=2), self.bound)

    def draw(self, d: int, *, entropy: Entropy) -> Float[np.ndarray, " d"]:
        """Return the tilt b; draws noise, so the spend must already be on a ledger.

        Guarantee:
            None by itself: the tilt is as secret as the data. Only what :meth:`finish` returns may
            leave.
        """
        return self.standard_deviation * normals(entropy, _validate.integer("d", d, at_least=1))

    def release(
        self, minimize: Callable[[np.ndarray], Solution], *, d: int, entropy: Entropy
    ) -> Float[np.ndarray, " d"]:
        """Return noised weights; draws noise, so the spend must already be on a ledger.

        Args:
            minimize: From a tilt b to a minimizer of the objective with bᵀθ, its records clipped.
            d: Number of features.
            entropy: Source of 64-bit words.

        Raises:
            ConvergenceError: The minimizer is not exact enough; what was spent stays spent.

        Guarantee:
            What :meth:`guarantee` returns.
        """
        solution = minimize(self.draw(d, entropy=entropy))
        return self.finish(solution.theta, solution.gradient_norm, entropy=entropy)

    def repeat(
        self, values: Float[np.ndarray, "n d"], trials: int, *, entropy: Entropy
    ) -> Float[np.ndarray, "trials d"]:
        """Return independent releases on the same made-up records, one in each row.

        Guarantee:
            None for all rows together: each row is one release. Never call it on private data.
        """
        records, trials = self.clipped(values), _validate.integer("trials", trials, at_least=1)
        shape = (trials, records.shape[1])
        tilts = self.standard_deviation * normals(entropy, trials * shape[1]).reshape(shape)
        weights = minimizers(records, tilts, self._ridge, self.atol)
        noise = normals(entropy, trials * shape[1]).reshape(shape)
        return np.asarray(weights + self.output_standard_deviation * noise)

    def log_ratio(
        self, outputs: Float[np.ndarray, "trials d"], case: WorstCase
    ) -> Float[np.ndarray, " trials"]:
        """Return log P(output | case.one) − log P(output | case.other) for every row.

        It is the ratio for exact minimizers, of which the output noise leaves next to nothing
        untold.
        """
        one, other = (
            log_density(
                np.asarray(outputs), self.clipped(side), self._ridge, self.standard_deviation
            )
            for side in (case.one, case.other)
        )
        return np.asarray(one - other)

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return two neighboring inputs that nearly attain the stated loss.

        Many short records pull the weights to where the slopes of one more record are as large as
        they can be. It is one coordinate wide, or two if that record is replaced.
        """
        _validate.one_of("neighbors", neighbors, NeighboringRelation)
        return worst_case(neighbors, self.bound, self._ridge, self.standard_deviation)

    def _ridge_for(self, slack: float) -> float:
        """Return the ridge at which the Jacobian costs this much: R²/(4(e^J − 1))."""
        try:
            return self.bound * (self.bound / (4 * math.expm1(slack)))
        except OverflowError:
            return 0.0

    def _refuse_a_full_second_moment(self) -> None:
        """Refuse a second moment that takes all there is."""
        legs = 2 if self.neighbors == REPLACE_ONE else 1
        spare = self.epsilon - slack_of_jacobian(self.kappa)
        if gaussian_delta(spare, legs * self.second_moment_mu) >= self.delta:
            raise UsageError(
                f"second_moment_mu={self.second_moment_mu!r} leaves nothing for the minimizer. "
                "Use less, or raise epsilon or delta."
            )


def usable_bound(value: float, powers: int) -> float:
    """Return a bound whose powers are floats."""
    bound = _validate.positive("bound", value)
    if not 2.0**-powers <= bound <= 2.0**powers:
        raise UsageError(
            f"bound={bound!r} is too small or too large to compute with: it must be within "
            f"2^-{powers} and 2^{powers}. Measure the values in another unit."
        )
    return bound
