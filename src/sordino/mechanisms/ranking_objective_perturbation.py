"""Exact arithmetic of tilted objectives of rankings, for made-up records: what an auditor plays.

A record is the features of its candidates, best first: an array (K, d). The tilt under which θ is
the minimizer is a function of θ, so that the density of the minimizer is known in closed form.

How much noise a tilt of rankings needs, with the noise that hides an inexact minimizer.

A minimizer of the likelihood of rankings, whose objective was tilted at random before.

As with pairs, the mechanism never sees the data: whoever holds them passes a function that
minimizes. What is private is a whole record: candidates, their features and their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import cast

import numpy as np
from jaxtyping import Float, Integer

from sordino import _validate
from sordino._random import Entropy, normals
from sordino.errors import ConvergenceError, DataError, UsageError
from sordino.privacy.gaussian import gaussian_mu, narrow
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    NeighboringRelation,
)
from sordino.privacy.objective_curves import ranked_amp_delta, slack_of_trace

from .base import WorstCase
from .objective_perturbation import OUTPUT_SHARE, SLACK, Solution, Tilt, joint_delta, usable_atol
from .objective_perturbation import clipped as shortened

_STEPS = 500
_SHARES = 24
_BLOCK = 1 << 12
_PULL = 30.0  # how far records that hardly differ pull the weights, in 1/(2L)


def minimizers(
    records: Float[np.ndarray, "n k d"], tilts: Float[np.ndarray, "t d"], ridge: float, atol: float
) -> Float[np.ndarray, "t d"]:
    """Return the minimizer of every tilted objective, by damped Newton steps."""
    known = np.unique(records, axis=0, return_counts=True)
    found = [
        _solved(known, tilts[start : start + _BLOCK], ridge, atol)
        for start in range(0, len(tilts), _BLOCK)
    ]
    return np.concatenate(found)


def log_density(
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


def worst_case(
    neighbors: NeighboringRelation,
    bound: float,
    shape: tuple[int, int],
    ridge: float,
    standard_deviation: float,
) -> WorstCase:
    """Return two neighboring inputs whose weights lie where a record's slope is nearly largest."""
    # There the last candidate of the one record is the best by far, so that every stage errs by 2L.
    k, d = shape
    around = _pull(bound, shape, ridge, standard_deviation)
    far = np.zeros((1, k, d))
    far[..., 0] = -bound
    far[:, -1, 0] = bound
    empty = np.zeros((0 if neighbors == ADD_OR_REMOVE_ONE else 1, k, d))
    other = -far if neighbors == REPLACE_ONE else empty
    return WorstCase(np.concatenate([around, far]), np.concatenate([around, other]))


def _pull(
    bound: float, shape: tuple[int, int], ridge: float, standard_deviation: float
) -> Float[np.ndarray, "n k d"]:
    """Return records that hold the first weight at about 30/(2L)."""
    # Their first candidate is a little better or worse than all the others, which are alike. Some
    # balance the ridge; others each other there, so many that the tilt moves the weights little.
    k, d = shape
    target = _PULL / (2 * bound)
    short = 1 / target
    up, down = ((k - 1) / (math.exp(sign) + k - 1) for sign in (1.0, -1.0))  # of not being first
    # The tilt moves the weights by s over the curvature: a fifteenth of the target.
    curvature = 15 * standard_deviation / target
    back = _few(curvature / (short**2 * (down * (1 - down) + down * (1 - up))))
    along = _few((ridge * target / short + back * down) / up)
    record = np.zeros((k, d))
    record[0, 0] = short
    return np.concatenate([np.tile(record, (along, 1, 1)), np.tile(-record, (back, 1, 1))])


def _few(count: float) -> int:
    """Return a whole number of records that fits into memory."""
    return min(math.ceil(count), 10**6)


Known = tuple[Float[np.ndarray, "u k d"], Integer[np.ndarray, " u"]]


def _derivatives(
    theta: Float[np.ndarray, "t d"], known: Known, ridge: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return gradients without the tilt, Hessians, and values, at every row of theta."""
    records, counts = known
    gradient, hessian = ridge * theta, np.tile(ridge * np.eye(theta.shape[1]), (len(theta), 1, 1))
    value = ridge / 2 * (theta * theta).sum(axis=1)
    scores = np.einsum("td,ukd->tuk", theta, records)
    for stage in range(records.shape[1] - 1):
        left, features = scores[:, :, stage:], records[:, stage:]
        top = left.max(axis=2, keepdims=True)
        weights = np.exp(left - top)
        total = weights.sum(axis=2, keepdims=True)
        chances = weights / total
        middle = np.einsum("tuk,ukd->tud", chances, features)
        gradient = gradient + np.einsum("u,tud->td", counts, middle - features[:, 0])
        value = value + (top + np.log(total) - left[:, :, :1])[..., 0] @ counts
        spread = features - middle[:, :, np.newaxis]
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
        theta[left] -= step * _shares(theta[left], step, tilts[left], value, known, ridge)
    raise ConvergenceError(f"A tilted objective was not minimized in {_STEPS} steps.")


def _shares(
    theta: np.ndarray,
    step: np.ndarray,
    tilts: np.ndarray,
    value: np.ndarray,
    known: Known,
    ridge: float,
) -> np.ndarray:
    """Return the first power of 1/2 times which every step does not raise its objective."""
    share, open_ = np.ones(len(theta)), np.arange(len(theta))
    for _ in range(_SHARES):
        at = theta[open_] - share[open_, np.newaxis] * step[open_]
        found = _derivatives(at, known, ridge)[2] + (tilts[open_] * at).sum(axis=1)
        open_ = open_[found > value[open_] + 1e-12 * (1 + np.abs(value[open_]))]
        if not len(open_):
            break
        share[open_] /= 2
    return np.asarray(share[:, np.newaxis])


_LEAST_MU = 1e-9
_PAIR = 2


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
    """Return δ of a tilted minimizer of rankings.

    Guarantee:
        (ε, result); shown by tests/soundness/test_ranking_objective_perturbation.py.
    """
    # Source: docs/central.md, "Rankings". A replaced record moves the gradient by twice as much, in
    # the span of two records' differences.
    if candidates == _PAIR:  # J = log(1 + κ/4)
        kappa = 4 * math.expm1(jacobian)
        return joint_delta(epsilon, mu, kappa, mu_output, neighbors=neighbors)
    legs = 2 if neighbors == REPLACE_ONE else 1
    rank = min(dimension, legs * (candidates - 1))
    return ranked_amp_delta(epsilon, legs * mu, jacobian, rank, mu_output)


@lru_cache(maxsize=256)
def largest_ranked_mu(
    epsilon: float,
    delta: float,
    jacobian: float,
    candidates: int,
    dimension: int,
    neighbors: NeighboringRelation,
) -> float:
    """Return the largest μ of the tilt that keeps (ε, δ), its output noise included."""

    def keeps(mu: float) -> bool:
        found = ranked_delta(
            epsilon,
            mu,
            jacobian,
            candidates=candidates,
            dimension=dimension,
            neighbors=neighbors,
            mu_output=mu * OUTPUT_SHARE,
        )
        return found <= delta

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
        weights = minimizers(records, tilts, self._ridge, self.atol)
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
            log_density(
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
        return worst_case(neighbors, self.bound, shape, self._ridge, self.standard_deviation)

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
