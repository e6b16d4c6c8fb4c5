"""A minimizer whose objective was tilted at random before it was minimized.

The mechanism draws the tilt and the noise of the output. It never sees the data: whoever holds
them passes a function that minimizes, and says how far the gradient is from zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol, cast

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino._random import Entropy, normals
from sordino.errors import UsageError
from sordino.mechanisms import _tilted
from sordino.mechanisms._tilt import SLACK, Tilt, usable_atol
from sordino.mechanisms._tilt_sizes import joint_delta, largest_mu
from sordino.mechanisms.base import WorstCase
from sordino.privacy.curves import (
    amp_delta,
    objective_perturbation_delta,
    objective_perturbation_delta_closed_form,
    objective_perturbation_delta_ranked,
    slack_of_jacobian,
)
from sordino.privacy.gaussian import gaussian_delta
from sordino.privacy.group_curves import (
    amp_delta_replace_one,
    objective_perturbation_delta_replace_one,
)
from sordino.privacy.guarantee import REPLACE_ONE, NeighboringRelation

__all__ = [
    "ObjectivePerturbation",
    "Solution",
    "amp_delta",
    "amp_delta_replace_one",
    "joint_delta",
    "objective_perturbation_delta",
    "objective_perturbation_delta_closed_form",
    "objective_perturbation_delta_ranked",
    "objective_perturbation_delta_replace_one",
    "usable_bound",
]

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
        second_moment_mu: μ of a :class:`~sordino.mechanisms.second_moment.SecondMoment` released
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
        return _tilted.clipped(_validate.finite_array("values", values, ndim=2), self.bound)

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
        weights = _tilted.minimizers(records, tilts, self._ridge, self.atol)
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
            _tilted.log_density(
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
        return _tilted.worst_case(neighbors, self.bound, self._ridge, self.standard_deviation)

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
    """Return a bound whose powers are floats.

    Args:
        value: The bound, > 0.
        powers: Of two: how far it may be from 1.

    Raises:
        UsageError: It is further.
    """
    bound = _validate.positive("bound", value)
    if not 2.0**-powers <= bound <= 2.0**powers:
        raise UsageError(
            f"bound={bound!r} is too small or too large to compute with: it must be within "
            f"2^-{powers} and 2^{powers}. Measure the values in another unit."
        )
    return bound
