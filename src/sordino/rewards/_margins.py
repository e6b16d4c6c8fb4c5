"""What the solver needs of a loss: a convex function of margins, which are linear in the weights.

A pair has one margin, its reward difference; a ballot has one for each candidate, its score.
"""

from __future__ import annotations

from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from ._curvature import Curvature
from .likelihoods import DebiasedLogistic, softplus

__all__ = ["Bend", "MarginLoss", "as_margin_loss"]


@runtime_checkable
class Bend(Protocol):
    """An approximate Hessian: see :class:`sordino.rewards._curvature.Curvature`."""

    patience: float
    matrix: np.ndarray

    def refresh(self, margins: Float[np.ndarray, " m"]) -> None:
        """Measure again at the given margins."""
        ...


@runtime_checkable
class MarginLoss(Protocol):
    """A loss Σ convex(margins) − targetsᵀmargins − known_sumᵀθ with margins = rows·θ."""

    @property
    def rows(self) -> Any:
        """Return the matrix that weights are multiplied by, shape (m, d), dense or sparse."""
        ...

    @property
    def targets(self) -> Float[np.ndarray, " m"]:
        """Return what margins are multiplied by in the linear part."""
        ...

    @property
    def known_sum(self) -> Float[np.ndarray, " d"] | float:
        """Return what weights are multiplied by in the linear part; 0 if there is no such sum."""
        ...

    @property
    def row_by_row(self) -> bool:
        """Return whether each term reads one margin, so that rows can be taken in blocks."""
        ...

    def convex(self, margins: Float[np.ndarray, " m"]) -> Float[np.ndarray, " terms"]:
        """Return the terms of the convex part."""
        ...

    def slopes(self, margins: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """Return the derivative of the convex part in each margin, in a new array."""
        ...

    def span(self, change: Float[np.ndarray, " m"]) -> float:
        """Return a length of a step within which 1 bounds |log| of the change of curvature."""
        ...

    def bend(self, margins: Float[np.ndarray, " m"]) -> Bend:
        """Return the approximate Hessian."""
        ...

    def sample(self, step: int) -> MarginLoss:
        """Return the loss of every ``step``-th observation, linear terms shrunk alike."""
        ...


class PairMargins:
    """The loss of pairs: one margin each."""

    def __init__(self, loss: DebiasedLogistic) -> None:
        self._loss = loss
        self.row_by_row = np.ndim(loss.weights) == 0  # a block does not know its own weights
        self.rows: Any = loss.differences
        self.targets = loss.targets
        self.known_sum = loss.known_sum

    def convex(self, margins: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """Return log(1 + e^margin), as much as its pair counts."""
        return np.asarray(self._loss.weights * softplus(margins))

    def slopes(self, margins: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """Return the probability of each answer, as much as its pair counts."""
        return np.asarray(self._loss.weights * expit(margins))

    def span(self, change: Float[np.ndarray, " m"]) -> float:
        """Return the farthest that a margin moves: |σ″| ≤ σ′."""
        return float(np.max(np.abs(change), initial=0.0))

    def bend(self, margins: Float[np.ndarray, " m"]) -> Bend:
        """Return the approximate Hessian."""
        return cast("Bend", Curvature(self._loss, margins))

    def sample(self, step: int) -> MarginLoss:
        """Return the loss of every ``step``-th pair."""
        loss = self._loss
        pull = None if loss.pull is None else loss.pull / step
        rows, targets = loss.differences[::step], loss.targets[::step]
        weights = loss.weights if self.row_by_row else np.asarray(loss.weights)[::step]
        return PairMargins(DebiasedLogistic(rows, targets, pull, weights))


def as_margin_loss(loss: DebiasedLogistic | MarginLoss) -> MarginLoss:
    """Return a loss as the solver takes it."""
    return PairMargins(loss) if isinstance(loss, DebiasedLogistic) else loss
