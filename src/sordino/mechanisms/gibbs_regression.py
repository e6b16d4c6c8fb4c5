"""The exponential mechanism for least squares: weights drawn with chance ∝ exp(−loss/temperature).

The weights are a point of a ball, drawn by rejection, or one of finitely many public candidates,
drawn in whole numbers. Neither needs a Markov chain, and neither sees its noise grow with d².
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino._random import Entropy
from sordino.errors import UsageError
from sordino.mechanisms._calibration import least_that_keeps
from sordino.mechanisms._candidates import (
    BestCandidate,
    Candidates,
    public_vectors,
    pulled_back,
    scores_of,
)
from sordino.mechanisms._gibbs_draws import SLACK, rounded_up
from sordino.mechanisms._regression_cases import chord_case, longest_change, loss_range
from sordino.mechanisms._regressions import (
    Regression,
    RegressionTerms,
    keeps,
    slot_relation,
    unit_of_slots,
)
from sordino.mechanisms.ball_sampler import LONGEST_PULL, log_mass, truncated_gaussian
from sordino.mechanisms.base import WorstCase
from sordino.mechanisms.exponential import ExponentialMechanism
from sordino.mechanisms.least_squares import LeastSquares, RegressionOracle
from sordino.privacy import accounting
from sordino.privacy.bounded_range import bounded_range_for
from sordino.privacy.events import BoundedRangeEvent
from sordino.privacy.guarantee import (
    REPLACE_ONE,
    Guarantee,
    NeighboringRelation,
    Trust,
    Unit,
)

__all__ = ["ExponentialRegression", "GibbsRegression"]

_PLANE = 2


@dataclass(frozen=True)
class GibbsRegression(RegressionTerms):
    """Draw weights w with probability ∝ exp(−Σ(xᵀw − A)²/temperature): no number is noised.

    Args:
        feature_bound: As for every regression: see ``RegressionTerms``.
        target_bound: As there.
        radius: As there; the ball that weights are drawn from, if no candidates are given.
        rows: As there.
        temperature: In units of the squared loss, > 0; large draws uniformly.
        neighbors: The relation that :attr:`event` is about.
        delta: Failure probability at which :meth:`guarantee` states ε, in [0, 1); 0 is pure.
        candidates: 2 to 2^16 public vectors to choose from; longer ones are pulled back to the
            radius. A batch then takes 8 bytes for each row and candidate.

    Raises:
        UsageError: A setting is out of range.
        PrivacyError: ``neighbors`` is ``ADD_OR_REMOVE_ONE``.

    Guarantee:
        BoundedRangeEvent of :meth:`sensitivity`/temperature, so pure ε, for one row and target
        and any finite values. Among candidates it is exact. In the ball it holds in real
        arithmetic, and how long a draw takes depends on the batch (caveats ``real-arithmetic``
        and ``timing``). Shown by tests/soundness/test_gibbs_regression.py.

        Proof. Log-densities of two neighbors differ by h = (ℓ′ − ℓ)/temperature and a constant,
        with ℓ and ℓ′ the losses of the one row, so all log-ratios lie in an interval as long as
        the range of h over ‖w‖ ≤ W. With p = xᵀw and q = xᵀv, |p|, |q| ≤ H = WB, one row has
        ℓ(w) − ℓ(v) = (p − q)(p + q − 2A) ≤ |p − q|(|p + q| + 2R): (H + R)² at most if R ≤ H and
        4HR otherwise. ℓ′ and ℓ both have that range Δ, and ℓ′ = 0 for an emptied slot.

    Source:
        McSherry & Talwar 2007; docs/policy_optimization.md, "Exponential mechanism on a ball".
        Differs: Δ is 4HR, which is less than (H + R)², where targets exceed all predictions.

    Example:
        >>> from sordino import REPLACE_SPECIAL
        >>> regression = ExponentialRegression().calibrated(
        ...     1.0, delta=0.0, feature_bound=1.0, target_bound=1.0, radius=2.0,
        ...     neighbors=REPLACE_SPECIAL, rows=1000,
        ... )
        >>> round(regression.temperature, 6), round(regression.event.bounded_range, 6)
        (9.0, 1.0)
    """

    _: KW_ONLY
    temperature: float
    neighbors: NeighboringRelation
    delta: float = 0.0
    candidates: Candidates | None = None

    def __post_init__(self) -> None:
        """Refuse settings that are out of range, and batches that no draw in a ball could end."""
        super().__post_init__()
        temperature = _validate.positive("temperature", self.temperature)
        object.__setattr__(self, "temperature", temperature)
        delta = _validate.failure_probability("delta", self.delta)
        object.__setattr__(self, "delta", delta)
        slot_relation(self.neighbors)
        if self.candidates is not None:
            object.__setattr__(self, "candidates", pulled_back(self.candidates, self.radius))
        elif not self.rows * self.loss_range / temperature <= LONGEST_PULL:
            raise UsageError(
                f"rows·{self.loss_range:.3g}/temperature must be at most {LONGEST_PULL:.3g} for a "
                f"draw in a ball, got rows={self.rows!r} and temperature={temperature!r}. Use a "
                "smaller epsilon or batch, or a finite set of candidates."
            )

    @property
    def loss_range(self) -> float:
        """Return Δ: by how much one row's squared loss can differ between two weights, at most."""
        return loss_range(self)

    @property
    def event(self) -> BoundedRangeEvent:
        """Return what one release does under :attr:`neighbors`, for the ledger."""
        return BoundedRangeEvent(self.bounded_range(self.neighbors))

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return the largest range (over weights) of the change of the total loss.

        Δ if a row is emptied, 2Δ if it is replaced; Δ is :attr:`loss_range`.

        Raises:
            PrivacyError: For ``ADD_OR_REMOVE_ONE``.
        """
        return self.loss_range * (2 if slot_relation(neighbors) == REPLACE_ONE else 1)

    def bounded_range(self, neighbors: NeighboringRelation) -> float:
        """Return the length of the interval that holds all log-ratios of one release.

        Raises:
            PrivacyError: For ``ADD_OR_REMOVE_ONE``.

        Source:
            docs/privacy.md, "Bounded range".
        """
        moved = self.sensitivity(neighbors)
        if self.candidates is not None:
            return self._choice(self.candidates).bounded_range(neighbors)
        return rounded_up(Fraction(moved) / Fraction(self.temperature), "bounded range")

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return what one release promises to one row; δ is :attr:`delta`.

        Raises:
            PrivacyError: For another unit than ``"record"``, or for ``ADD_OR_REMOVE_ONE``.
        """
        unit_of_slots(unit)
        event = BoundedRangeEvent(self.bounded_range(neighbors))
        return Guarantee(
            accounting.composed_epsilon([(event, 1)], neighbors=neighbors, delta=self.delta),
            delta=self.delta,
            unit=unit,
            neighbors=neighbors,
            trust=trust,
            caveats=("real-arithmetic", "timing") if self.candidates is None else (),
        )

    def release(
        self,
        rows: Float[np.ndarray, "m d"],
        targets: Float[np.ndarray, " m"],
        *,
        entropy: Entropy,
    ) -> Regression:
        """Return weights that were drawn; the spend must already be on a ledger.

        Raises:
            DataError: A number is not finite (only its index is named), or the shapes do not fit.

        Guarantee:
            What :meth:`guarantee` returns.
        """
        rows, targets = self.batch(rows, targets)
        if self.candidates is not None:
            candidates = np.array(self.candidates)
            scores = scores_of(rows, targets, candidates)
            (drawn,) = self._choice(self.candidates).release(scores, entropy=entropy)
            weights = candidates[drawn]
        else:
            (weights,) = truncated_gaussian(
                *self._exponent(rows, targets), self.radius, entropy=entropy
            )
        return Regression(weights=weights, error=self.predicted_error(rows.shape[1]))

    def predicted_error(self, d: int) -> float:
        """Return ``Regression.error``, which no batch changes: √(d·temperature/(2m)) in a ball.

        That bounds the root mean square, with ŵ the best weights in the ball. Log-concavity
        gives E∇L(w)ᵀ(w − ŵ) ≤ d·temperature, and the left side is at least 2E‖X(w − ŵ)‖². Among
        k candidates the loss exceeds the least by temperature·log k on average at most, and the
        estimate is √(temperature·log k/m).
        """
        degrees = _validate.integer("d", d, at_least=1) / 2
        if self.candidates is not None:
            degrees = math.log(len(self.candidates))
        return min(math.sqrt(degrees * self.temperature / self.rows), self.widest)

    def repeat(
        self, values: Float[np.ndarray, "m columns"], trials: int, *, entropy: Entropy
    ) -> Float[np.ndarray, "trials numbers"]:
        """Return many draws for made-up rows, targets in the last column.

        Weights in the ball, or the index of a candidate, one in each row.

        Guarantee:
            None for all of them together: each row is one release. Never call it on private data.
        """
        trials = _validate.integer("trials", trials, at_least=1)
        rows, targets = self.batch(values[:, :-1], values[:, -1])
        if self.candidates is not None:
            scores = scores_of(rows, targets, np.array(self.candidates))
            drawn = self._choice(self.candidates).repeat(scores, trials, entropy=entropy)
            return drawn.astype(np.float64)
        exponent = self._exponent(rows, targets)
        return truncated_gaussian(*exponent, self.radius, entropy=entropy, size=trials)

    def log_ratio(
        self, outputs: Float[np.ndarray, "trials numbers"], case: WorstCase
    ) -> Float[np.ndarray, " trials"]:
        """Return log P(output | case.one) − log P(output | case.other) for every row.

        Raises:
            UsageError: The case is one of a ball, and not of two features.
        """
        outputs = np.asarray(outputs)
        sides = [self.batch(side[:, :-1], side[:, -1]) for side in (case.one, case.other)]
        if self.candidates is not None:
            choice, candidates = self._choice(self.candidates), np.array(self.candidates)
            logs = [choice.log_probabilities(scores_of(*side, candidates)) for side in sides]
            return np.asarray((logs[0] - logs[1])[outputs[:, 0].astype(np.int64)])
        if outputs.shape[1] != _PLANE:
            raise UsageError("log_ratio in a ball is for two features only, as worst_case has.")
        levels = [self._log_density(outputs, *side) for side in sides]
        return np.asarray(levels[0] - levels[1])

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return two neighboring batches, targets in the last column, that are told apart well.

        In a ball the two ends of a chord are where one row's loss differs by Δ; the rows that
        both batches share keep the draw near that chord and let it lie anywhere on it. Among
        candidates, of the rows that point to one of them, those whose change has the longest
        range.
        """
        replaced = slot_relation(neighbors) == REPLACE_ONE
        if self.candidates is None:
            return chord_case(self, temperature=self.temperature, replaced=replaced)
        return longest_change(self, np.array(self.candidates), replaced=replaced)

    def _choice(self, candidates: Candidates) -> ExponentialMechanism:
        """Return what draws one of the candidates; it cuts each row's scores to the range Δ."""
        return ExponentialMechanism(
            self.temperature,
            bound=self.loss_range,
            reference=(1 / len(candidates),) * len(candidates),
            neighbors=self.neighbors,
        )

    def _exponent(
        self, rows: Float[np.ndarray, "m d"], targets: Float[np.ndarray, " m"]
    ) -> tuple[Float[np.ndarray, "d d"], Float[np.ndarray, " d"]]:
        """Return the matrix and the shift of the density, XᵀX and Xᵀy over the temperature."""
        scaled = rows / self.temperature
        return scaled.T @ rows, scaled.T @ targets

    def _log_density(
        self,
        outputs: Float[np.ndarray, "trials 2"],
        rows: Float[np.ndarray, "m 2"],
        targets: Float[np.ndarray, " m"],
    ) -> Float[np.ndarray, " trials"]:
        """Return the logarithm of the density in the disk."""
        matrix, shift = self._exponent(rows, targets)
        square = np.einsum("ti,ij,tj->t", outputs, matrix, outputs)
        return np.asarray(2 * outputs @ shift - square - log_mass(matrix, shift, self.radius))


@dataclass(frozen=True)
class ExponentialRegression(RegressionOracle):
    """The oracle of :class:`GibbsRegression`: weights drawn by how little they lose.

    Args:
        candidates: Public weights to choose from, one vector in each row (an array will do); the
            whole ball if left out.

    Raises:
        UsageError: The candidates are not finite, fewer than two or more than 2^16.

    Source:
        docs/policy_optimization.md, "Exponential mechanism on a ball".
    """

    candidates: Candidates | None = None

    def __post_init__(self) -> None:
        """Refuse candidates that cannot be drawn from."""
        if self.candidates is not None:
            object.__setattr__(self, "candidates", public_vectors(self.candidates))

    @property
    def name(self) -> str:
        """Return a short name."""
        return "exponential-ball" if self.candidates is None else "exponential-candidates"

    def _within_budget(
        self, terms: RegressionTerms, epsilon: float, delta: float, neighbors: NeighboringRelation
    ) -> LeastSquares:
        """Return the least temperature, Δ/ε if a row is emptied and 2Δ/ε if it is replaced.

        A delta above 0 buys a little, by the exact curve of a bounded range.
        """
        target = bounded_range_for(_validate.positive("epsilon", epsilon), delta)
        room = Fraction(target) - (SLACK if self.candidates is not None else 0)
        if room <= 0:
            raise UsageError(
                f"epsilon={epsilon!r} with delta={delta!r} is kept by no finite temperature. "
                "Nothing was spent. Use a larger epsilon."
            )

        def make(temperature: float) -> GibbsRegression:
            return GibbsRegression(
                **vars(terms),
                temperature=temperature,
                neighbors=neighbors,
                delta=delta,
                candidates=self.candidates,
            )

        changes = 2 if slot_relation(neighbors) == REPLACE_ONE else 1
        start = rounded_up(changes * Fraction(loss_range(terms)) / room, "temperature")
        return least_that_keeps(start, make, lambda made: keeps(made, epsilon))

    def _without_noise(
        self, terms: RegressionTerms, neighbors: NeighboringRelation
    ) -> LeastSquares:
        """Return the regression, or the choice of a candidate, without a promise."""
        if self.candidates is None:
            return super()._without_noise(terms, neighbors)
        return BestCandidate(**vars(terms), neighbors=neighbors, candidates=self.candidates)
