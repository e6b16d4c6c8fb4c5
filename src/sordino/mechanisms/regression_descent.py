"""The oracle of one-pass gradient descent, for thousands of features."""

from __future__ import annotations

from dataclasses import dataclass

from sordino import _validate
from sordino.errors import UsageError
from sordino.mechanisms._regressions import RegressionTerms
from sordino.mechanisms.descent_regression import DescentRegression
from sordino.mechanisms.gaussian import GaussianMechanism
from sordino.mechanisms.least_squares import LeastSquares, RegressionOracle
from sordino.privacy.guarantee import NeighboringRelation

__all__ = ["DescentRegression", "OnePassDescent"]


@dataclass(frozen=True)
class OnePassDescent(RegressionOracle):
    """The oracle of :class:`DescentRegression`: noisy gradient steps, each row read once.

    Args:
        inner_batches: Number of steps; None chooses it by the number of features.
        step: Of each; None chooses it likewise.
        effective_dimension: As for the regression: a public guess of how many directions matter.
        prediction_bound: Predictions are clipped to within plus and minus this; None takes the
            bound of the targets, or what the radius allows if that is less.

    Raises:
        UsageError: A setting is out of range.

    Source:
        docs/policy_optimization.md, "One-pass gradient descent".

    Example:
        >>> from sordino.privacy.guarantee import REPLACE_SPECIAL
        >>> regression = OnePassDescent().calibrated(
        ...     1.0, delta=1e-5, feature_bound=1.0, target_bound=2.0, radius=2.0,
        ...     neighbors=REPLACE_SPECIAL, rows=100_000,
        ... )
        >>> round(regression.standard_deviation, 2), regression.gradient_bound
        (29.85, 8.0)
    """

    inner_batches: int | None = None
    step: float | None = None
    effective_dimension: float | None = None
    prediction_bound: float | None = None

    def __post_init__(self) -> None:
        """Refuse settings that are out of range."""
        if self.inner_batches is not None:
            _validate.integer("inner_batches", self.inner_batches, at_least=1)
        for name in ("step", "effective_dimension", "prediction_bound"):
            if getattr(self, name) is not None:
                _validate.positive(name, getattr(self, name))

    @property
    def name(self) -> str:
        """Return a short name."""
        return "one-pass-descent"

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
