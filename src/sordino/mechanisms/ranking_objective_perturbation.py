"""A minimizer of the likelihood of rankings, whose objective was tilted at random before.

As with pairs, the mechanism never sees the data: whoever holds them passes a function that
minimizes. What is private is a whole record: candidates, their features and their order.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino._random import Entropy
from sordino.errors import DataError, UsageError
from sordino.privacy.conversions import gaussian_mu, narrow
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, NeighboringRelation
from sordino.privacy.objective_curves import ranked_amp_delta, slack_of_trace

from .base import WorstCase
from .objective_perturbation import OUTPUT_SHARE, PULL, SLACK, Tilt, few, joint_delta
from .objective_perturbation import clipped as shortened

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
    """Return δ of a tilted minimizer of rankings."""
    # Guarantee: (ε, result); shown by tests/soundness/test_ranking_objective_perturbation.py.
    # Source: docs/central.md, "Rankings". A replaced record moves the gradient by twice as much, in
    # the span of two records' differences.
    if candidates == _PAIR:  # J = log(1 + κ/4)
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

    _: KW_ONLY
    candidates: int
    dimension: int
    name: ClassVar[str] = "ranked-perturbation"
    public: ClassVar[tuple[str, ...]] = (
        "bound",
        "candidates",
        "dimension",
        "ridge",
        "standard_deviation",
    )

    def __post_init__(self) -> None:
        for name, least in (("candidates", 2), ("dimension", 1)):
            size = _validate.integer(name, getattr(self, name), at_least=least, at_most=2**20)
            object.__setattr__(self, name, size)
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
        return shortened(known, self.bound)

    def refuse_long_ballots(self, starts: np.ndarray) -> None:
        """Refuse records of more candidates than the mechanism was built for."""
        if (np.diff(starts) > self.candidates).any():
            raise DataError(
                f"A record ranks more than candidates={self.candidates}. Nothing was released. "
                "Leave out candidates by a rule that reads only their record, or allow more."
            )

    def draw(self, d: int, *, entropy: Entropy) -> Float[np.ndarray, " d"]:
        """Return the tilt b; draws noise, so the spend must already be on a ledger.

        Guarantee:
            None by itself: the tilt is as secret as the data. Only what :meth:`finish` returns may
            leave.
        """
        if d != self.dimension:
            raise UsageError(f"d must be dimension={self.dimension}, got {d!r}. Nothing was drawn.")
        return super().draw(d, entropy=entropy)

    def finish(
        self, theta: Float[np.ndarray, " d"], gradient_norm: float, *, entropy: Entropy
    ) -> Float[np.ndarray, " d"]:
        """Return a minimizer with the noise that hides its inexactness, of ``dimension`` weights.

        Guarantee:
            What :meth:`guarantee` returns, if the tilt came from :meth:`draw` and records were
            clipped.
        """
        if theta.shape != (self.dimension,):
            raise DataError("theta must be one finite number for each feature.")
        return super().finish(theta, gradient_norm, entropy=entropy)

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
        others, target = self.candidates - 1, PULL / (2 * self.bound)
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
