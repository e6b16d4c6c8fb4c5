"""A minimizer of the likelihood of rankings, whose objective was tilted at random before.

As with pairs, the mechanism never sees the data: whoever holds them passes a function that
minimizes. What is private is a whole record: candidates, their features and their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import cast

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino._random import Entropy, normals
from sordino.errors import DataError, UsageError
from sordino.mechanisms import _ranked_density
from sordino.mechanisms._ranked_sizes import largest_ranked_mu, ranked_delta
from sordino.mechanisms._tilt import SLACK, Tilt, usable_atol
from sordino.mechanisms._tilted import clipped as shortened
from sordino.mechanisms.base import WorstCase
from sordino.mechanisms.objective_perturbation import Solution
from sordino.privacy.guarantee import REPLACE_ONE, REPLACE_SPECIAL, NeighboringRelation
from sordino.privacy.ranked_curves import slack_of_trace

__all__ = ["RankedPerturbation", "ranked_delta"]


@dataclass(frozen=True)
class RankedPerturbation(Tilt):
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
        ``real-arithmetic``. Shown by tests/soundness/test_ranked_tilt.py.

    Source:
        docs/central.md, "Rankings": a record's gradient is at most 2L(K − 1) long and lies in the
        span of its candidates' differences, of dimension r ≤ min(d, K − 1); its Hessian there has
        a trace of at most (K − 1)L². Two candidates are a pair, with the bound for pairs.
        Differs: a replaced record keeps the Jacobian of one record, since the other's curvature
        only lowers it.

    Example:
        >>> from sordino.privacy.guarantee import REPLACE_SPECIAL
        >>> noise = RankedPerturbation(
        ...     1.0, delta=1e-6, bound=1.0, candidates=4, dimension=8, neighbors=REPLACE_SPECIAL)
        >>> noise.sensitivity(REPLACE_SPECIAL), noise.jacobian < 0.5
        (6.0, True)
    """

    epsilon: float
    _: KW_ONLY
    delta: float
    bound: float
    candidates: int
    dimension: int
    neighbors: NeighboringRelation
    ridge: float | None = None
    atol: float = cast("float", None)  # replaced in __post_init__

    def __post_init__(self) -> None:
        """Refuse what no noise can protect, and find the noise."""
        for name in ("epsilon", "bound"):
            object.__setattr__(self, name, _validate.positive(name, getattr(self, name)))
        delta = _validate.failure_probability("delta", self.delta, zero=False)
        object.__setattr__(self, "delta", delta)
        for name, least in (("candidates", 2), ("dimension", 1)):
            size = _validate.integer(name, getattr(self, name), at_least=least, at_most=2**20)
            object.__setattr__(self, name, size)
        _validate.one_of("neighbors", self.neighbors, NeighboringRelation)
        usual = self._ridge_for(self.epsilon / 2) * 2
        ridge = usual if self.ridge is None else _validate.positive("ridge", self.ridge)
        object.__setattr__(self, "ridge", ridge)
        if not 0 < usual < math.inf or self.jacobian >= self.epsilon:
            raise UsageError(
                f"ridge must be above {self._ridge_for(self.epsilon):.6g} for "
                f"epsilon={self.epsilon!r}, bound={self.bound!r} and candidates="
                f"{self.candidates!r}, got {ridge!r}: with less no noise suffices. "
                f"ridge={usual:.6g} would do."
            )
        moved, deviation = self.sensitivity(REPLACE_SPECIAL), self.standard_deviation
        atol = usable_atol(self.atol, bound=self.bound, moved=moved, deviation=deviation)
        object.__setattr__(self, "atol", atol)

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
        return largest_ranked_mu(
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
        """Return every candidate's features shrunk to the bound, whatever the others are.

        Raises:
            DataError: A value is not finite, or there are not ``dimension`` columns.
        """
        known = _validate.finite_array("features", features, ndim=2)
        if known.shape[1] != self.dimension:
            raise DataError(f"features must have {self.dimension} columns, got {known.shape[1]}.")
        return shortened(known, self.bound)

    def refuse_long_ballots(self, starts: np.ndarray) -> None:
        """Refuse records of more candidates than the mechanism was built for.

        Raises:
            DataError: A record has more than ``candidates``; it is not said which.
        """
        if (np.diff(starts) > self.candidates).any():
            raise DataError(
                f"A record ranks more than candidates={self.candidates}. Nothing was released. "
                "Leave out candidates by a rule that reads only their record, or allow more."
            )

    def draw(self, d: int, *, entropy: Entropy) -> Float[np.ndarray, " d"]:
        """Return the tilt b; draws noise, so the spend must already be on a ledger.

        Raises:
            UsageError: ``d`` is not the dimension that was promised for.

        Guarantee:
            None by itself: the tilt is as secret as the data. Only what :meth:`finish` returns may
            leave.
        """
        if d != self.dimension:
            raise UsageError(f"d must be dimension={self.dimension}, got {d!r}. Nothing was drawn.")
        return self.standard_deviation * normals(entropy, d)

    def finish(
        self, theta: Float[np.ndarray, " d"], gradient_norm: float, *, entropy: Entropy
    ) -> Float[np.ndarray, " d"]:
        """Return a minimizer of the tilted objective with the noise that hides its inexactness.

        Raises:
            ConvergenceError: The gradient is larger than ``atol``, or not a number.
            DataError: A weight is not finite, or there are not ``dimension`` of them.

        Guarantee:
            What :meth:`guarantee` returns, if the tilt came from :meth:`draw` and records were
            clipped.
        """
        if theta.shape != (self.dimension,):
            raise DataError("theta must be one finite number for each feature.")
        return super().finish(theta, gradient_norm, entropy=entropy)

    def release(
        self, minimize: Callable[[np.ndarray], Solution], *, entropy: Entropy
    ) -> Float[np.ndarray, " d"]:
        """Return noised weights; draws noise, so the spend must already be on a ledger.

        Args:
            minimize: From a tilt b to a minimizer of the objective with bᵀθ, its records clipped
                and of at most ``candidates`` candidates.
            entropy: Source of 64-bit words.

        Raises:
            ConvergenceError: The minimizer is not exact enough; what was spent stays spent.

        Guarantee:
            What :meth:`guarantee` returns.
        """
        solution = minimize(self.draw(self.dimension, entropy=entropy))
        return self.finish(solution.theta, solution.gradient_norm, entropy=entropy)

    def repeat(
        self, values: Float[np.ndarray, "n k d"], trials: int, *, entropy: Entropy
    ) -> Float[np.ndarray, "trials d"]:
        """Return independent releases on the same made-up records, one in each row.

        Args:
            values: Features of the candidates of each record, in the order of its ballot.
            trials: How many releases.
            entropy: Source of 64-bit words.

        Guarantee:
            None for all rows together: each row is one release. Never call it on private data.
        """
        records, trials = self._records(values), _validate.integer("trials", trials, at_least=1)
        shape = (trials, self.dimension)
        tilts = self.standard_deviation * normals(entropy, math.prod(shape)).reshape(shape)
        weights = _ranked_density.minimizers(records, tilts, self._ridge, self.atol)
        noise = normals(entropy, math.prod(shape)).reshape(shape)
        return np.asarray(weights + self.output_standard_deviation * noise)

    def log_ratio(
        self, outputs: Float[np.ndarray, "trials d"], case: WorstCase
    ) -> Float[np.ndarray, " trials"]:
        """Return log P(output | case.one) − log P(output | case.other) for every row.

        It is the ratio for exact minimizers, of which the output noise leaves next to nothing
        untold.
        """
        one, other = (
            _ranked_density.log_density(
                np.asarray(outputs), self._records(side), self._ridge, self.standard_deviation
            )
            for side in (case.one, case.other)
        )
        return np.asarray(one - other)

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return two neighboring inputs on which much of the stated loss is attained.

        Records of candidates that hardly differ pull the weights to where the slopes of one more
        record are as large as they can be.
        """
        _validate.one_of("neighbors", neighbors, NeighboringRelation)
        shape = (self.candidates, self.dimension)
        return _ranked_density.worst_case(
            neighbors, self.bound, shape, self._ridge, self.standard_deviation
        )

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
