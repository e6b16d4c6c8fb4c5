"""Losses of pairs, what the solver needs of any loss, and how far their minimizers scatter.

A loss is a function of linear margins. A pair has one, its reward difference ``Δ = θᵀx`` with
``x = φ(first) − φ(second)``; a ballot has one for each candidate, its score. A pair also has an
answer, 1 if the first was preferred. Where answers were flipped with a known probability,
:func:`debias` turns each into a target whose expectation over the flip is the true answer, so that
every loss that is linear in the answer stays unbiased and convex.

Another loss is one subclass of :class:`MarginLoss`: its margins, its convex part and the slopes of
that, and what approximates its Hessian.

How far an estimate scatters around the truth is asymptotic: the covariance that both estimators
approach as pairs are added, evaluated at the estimate. It says nothing of a feature map that cannot
express what people want.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array, issparse
from scipy.special import expit, log_expit

from sordino._validate import Numbers, Square, Vector, finite_array, number
from sordino.errors import DataError, UsageError
from sordino.mechanisms.grid import Matrix, row_weights

_BLOCK = 1 << 21  # numbers of rows made dense at once: 16 MiB
DENSE_FEATURES = 4096  # above this a d by d matrix costs more than the passes it saves
PASSES_PER_FEATURE = 1 / 16  # dense passes that cost twice one Hessian, for each feature
_FEW = 16  # passes that are not worth saving
_FLOPS = 1 << 26  # a Hessian this cheap takes every row

Solver = Callable[[np.ndarray], np.ndarray]


def blocks(differences: Any, step: int = 1) -> Iterator[tuple[np.ndarray, slice]]:
    """Yield every ``step``-th row in parts, with the rows each part holds."""
    # Sparse rows are made dense part by part: a dense product is faster than a sparse one.
    n, d = differences.shape
    if not issparse(differences) and step > 1:
        yield differences[::step], slice(0, n, step)
        return
    size = max(1, _BLOCK // max(d, 1)) * step
    for first in range(0, n, size):
        chosen = slice(first, min(first + size, n), step)
        block = differences[chosen]
        yield (block.toarray() if issparse(block) else block), chosen


def weighted_grams(differences: Any, *weights: Numbers, step: int = 1) -> list[Square]:
    """Return Σ wᵢ xᵢxᵢᵀ for each list of weights, in one reading of the rows."""
    d = differences.shape[1]
    totals = [np.zeros((d, d)) for _ in weights]
    for block, chosen in blocks(differences, step):
        for index, weight in enumerate(weights):
            scaled = np.sqrt(weight[chosen])[:, None] * block
            totals[index] += scaled.T @ scaled
    return totals


def softplus(value: Float[np.ndarray, " *size"] | float) -> Any:
    """Return log(1 + exp(value)), elementwise, without overflow."""
    # Source: docs/local.md, debiased likelihood.
    return -log_expit(-np.asarray(value, dtype=np.float64))


def checked_flip(flip_probability: float) -> float:
    """Return a flip probability; refuse one that leaves nothing to learn from."""
    flip = number("flip_probability", flip_probability)
    if not 0 <= flip < 0.5:  # noqa: PLR2004
        raise UsageError(f"flip_probability must be in [0, 0.5), got {flip_probability!r}.")
    return flip


def debias(answers: Int[np.ndarray, " n"], flip_probability: float) -> Numbers:
    """Return targets whose expectation over the flips is the answer before it was flipped.

    Source:
        docs/local.md, debiased likelihood: ỹ = (1[z = 1] − f)/(1 −
        2f). A target lies outside [0, 1] where f > 0.

    Args:
        answers: What was released, 1 if the first was preferred and 0 otherwise.
        flip_probability: f, in [0, 1/2): how often a released answer is the wrong one.

    Raises:
        DataError: An answer is neither 0 nor 1.
        UsageError: The flip probability is outside [0, 1/2).

    Example:
        >>> debias(np.array([1, 0]), 0.25)
        array([ 1.5, -0.5])
    """
    flip = checked_flip(flip_probability)
    targets = finite_array("answers", answers, ndim=1)
    wrong = (targets != 0) & (targets != 1)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(f"answers must be 0 or 1: row {row} is neither.")
    return (targets - flip) / (1 - 2 * flip)


def debiased_loss(
    difference: Float[np.ndarray, " *size"] | float, target: Float[np.ndarray, " *size"] | float
) -> Any:
    """Return the logistic loss of each reward difference under a debiased target."""
    # Source: docs/local.md, debiased likelihood: softplus(Δ) − ỹΔ. Convex in Δ; unbounded below
    # where ỹ is outside [0, 1].
    return softplus(difference) - np.asarray(target) * difference


def answer_probability(
    difference: Float[np.ndarray, " *size"] | float, flip_probability: float
) -> Any:
    """Return how likely a released answer prefers the first."""
    # Source: docs/local.md, mixture likelihood: p = κσ(Δ) + f, κ = 1 − 2f.
    return flip_probability + (1 - 2 * flip_probability) * expit(difference)


def inverse(matrix: Float[np.ndarray, " *size"], shift: float) -> Solver:
    """Return the function v ↦ (matrix + shift·I)⁻¹v."""
    # A matrix that is not positive definite in floating point gets the smallest of a few extra
    # shifts that makes it so.
    # Source: docs/local.md, the fit (F with its ridge).
    diagonal = matrix if matrix.ndim == 1 else np.diagonal(matrix)
    scale = float(diagonal.max(initial=0.0)) or 1.0
    if matrix.ndim == 1:
        inverted = 1 / (matrix + (shift + 1e-12 * scale))
        return lambda vector: inverted * vector
    for jitter in (0.0, 1e-12, 1e-9, 1e-6):
        shifted = matrix.copy()
        shifted.flat[:: len(matrix) + 1] += shift + jitter * scale
        try:
            # NumPy throughout: SciPy's own BLAS threads and NumPy's get in each other's way.
            whiten = np.linalg.inv(np.linalg.cholesky(shifted))
        except np.linalg.LinAlgError:
            continue
        return lambda vector: np.asarray(whiten.T @ (whiten @ vector))
    return inverse(diagonal, shift)


class HessianApproximation(ABC):
    """An approximate Hessian that is cheap to build, to shift by a ridge and to invert."""

    # Only the speed of the solver rests on it, so that a sample of the data is enough.

    matrix: np.ndarray  # or its diagonal, where there are many features
    patience: float  # passes after which measuring again is cheaper than going on

    @abstractmethod
    def refresh(self, margins: Float[np.ndarray, " m"]) -> None:
        """Measure again at the given margins, on more of the data."""


class MarginLoss(ABC):
    """A loss Σ convex(margins) − targetsᵀmargins − linear_termᵀθ with margins = rows·θ."""

    targets: Float[np.ndarray, " m"]  # what margins are multiplied by in the linear part

    @property
    @abstractmethod
    def rows(self) -> Any:
        """Return the matrix that weights are multiplied by, shape (m, d), dense or sparse."""

    @property
    def linear_term(self) -> Vector | float:
        """Return what weights are multiplied by beside the targets; 0 if there is no such sum."""
        return 0.0

    @property
    def row_by_row(self) -> bool:
        """Return whether each term reads one margin, so that rows can be taken in parts."""
        return False

    @abstractmethod
    def convex(self, margins: Float[np.ndarray, " m"]) -> Float[np.ndarray, " terms"]:
        """Return the terms of the convex part."""

    @abstractmethod
    def slopes(self, margins: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """Return the derivative of the convex part in each margin, in a new array."""

    @abstractmethod
    def hessian(self, theta: Vector) -> Square:
        """Return the Hessian, which nothing linear enters."""

    @abstractmethod
    def span(self, change: Float[np.ndarray, " m"]) -> float:
        """Return a length of a step within which 1 bounds |log| of the change of curvature."""

    @abstractmethod
    def bend(self, margins: Float[np.ndarray, " m"]) -> HessianApproximation:
        """Return the approximate Hessian."""

    @abstractmethod
    def sample(self, step: int) -> MarginLoss:
        """Return the loss of every ``step``-th observation, linear terms shrunk alike."""

    def value(self, theta: Vector) -> float:
        """Return the loss, summed over the observations."""
        margins = np.asarray(self.rows @ theta)
        linear = self.targets @ margins + np.sum(self.linear_term * theta)
        return float(np.sum(self.convex(margins)) - linear)

    def gradient(self, theta: Vector) -> Vector:
        """Return the gradient."""
        residuals = self.slopes(np.asarray(self.rows @ theta)) - self.targets
        return np.asarray(self.rows.T @ residuals - self.linear_term)


@dataclass(frozen=True)
class DebiasedLogistic(MarginLoss):
    """The debiased logistic loss of a whole data set, as a function of the reward weights."""

    # Answers enter it through Σ ỹx alone, so it is also the loss where only that sum is known: see
    # `of_statistic`.
    # Source: docs/local.md, debiased likelihood: Σ softplus(θᵀx) − ỹθᵀx. Sums, not means; no ridge.

    # x, one row a pair; dense or `scipy.sparse.csr_array`.
    differences: Float[np.ndarray, "n d"] | csr_array
    # ỹ of `debias` (any finite numbers; 0 and 1 give logistic regression).
    targets: Numbers
    # Added to Σ ỹx: what is known of the answers as a sum, and not row by row.
    pull: Vector | None = None
    # How much softplus of each pair counts, where not every one counts 1; ≥ 0.
    weights: Numbers | float = 1.0

    @classmethod
    def of_statistic(
        cls,
        differences: Float[np.ndarray, "n d"] | csr_array,
        statistic: Vector,
        weights: Numbers | float = 1.0,
    ) -> DebiasedLogistic:
        """Return the loss where Σ yx is known and no single answer is."""
        # Source: docs/central.md, "Label privacy, one Gaussian release": Σ w softplus(θᵀx) − T̃ᵀθ.
        targets = np.zeros(differences.shape[0])
        return cls(differences, targets=targets, pull=statistic, weights=weights)

    def __post_init__(self) -> None:
        """Check shapes; store float64, rows contiguous (no copy where they already are)."""
        differences = self.differences
        if issparse(differences):
            differences = csr_array(differences, dtype=np.float64)
        else:
            differences = np.ascontiguousarray(differences, dtype=np.float64)
        targets = finite_array("targets", self.targets, ndim=1)
        if differences.ndim != 2 or len(targets) != differences.shape[0]:  # noqa: PLR2004
            raise DataError(
                f"differences and targets must have one row a pair, got shapes "
                f"{differences.shape} and {targets.shape}."
            )
        object.__setattr__(self, "differences", differences)
        object.__setattr__(self, "targets", targets)
        if self.pull is not None:
            object.__setattr__(self, "pull", finite_array("pull", self.pull, ndim=1))
            if len(self.pull) != differences.shape[1]:
                raise DataError(
                    f"pull must have shape ({differences.shape[1]},), got {self.pull.shape}."
                )

    @property
    def rows(self) -> Any:
        """Return the feature differences."""
        return self.differences

    @property
    def linear_term(self) -> Vector | float:
        """Return what is known of the answers as a sum; 0 where there is no such thing."""
        return 0.0 if self.pull is None else self.pull

    @property
    def row_by_row(self) -> bool:
        """Return whether every row counts alike: some of the rows do not know their weights."""
        return np.ndim(self.weights) == 0

    def convex(self, margins: Numbers) -> Numbers:
        """Return log(1 + e^margin), as much as its pair counts."""
        return np.asarray(self.weights * softplus(margins))

    def slopes(self, margins: Numbers) -> Numbers:
        """Return the probability of each answer, as much as its pair counts."""
        return np.asarray(self.weights * expit(margins))

    def curvatures(self, margins: Numbers) -> Numbers:
        """Return σ′ of each margin, as much as its pair counts."""
        probabilities = expit(margins)
        return np.asarray(self.weights * probabilities * (1 - probabilities))

    def hessian(self, theta: Vector) -> Square:
        """Return the Hessian: Σ σ′(θᵀx) xxᵀ, which no target enters."""
        return weighted_grams(self.differences, self.curvatures(self.differences @ theta))[0]

    def span(self, change: Numbers) -> float:
        """Return the farthest that a margin moves: |σ″| ≤ σ′."""
        return float(np.max(np.abs(change), initial=0.0))

    def bend(self, margins: Numbers) -> HessianApproximation:
        """Return the approximate Hessian."""
        return _PairHessian(self, margins)

    def sample(self, step: int) -> DebiasedLogistic:
        """Return the loss of every ``step``-th pair."""
        pull = None if self.pull is None else self.pull / step
        weights = self.weights if self.row_by_row else np.asarray(self.weights)[::step]
        return DebiasedLogistic(self.rows[::step], self.targets[::step], pull, weights)


class _PairHessian(HessianApproximation):
    """Σ σ′(margin) xxᵀ over evenly spaced rows, or its diagonal where that is the better deal."""

    # 32 rows a feature put the eigenvalues of the whitened Hessian within a factor of about two.
    # Passes over sparse rows are so cheap that the diagonal is tried first.
    # Source: docs/local.md, debiased likelihood (Hessian).

    def __init__(self, loss: DebiasedLogistic, margins: Numbers) -> None:
        n, d = loss.differences.shape
        self._loss, matrix = loss, loss.rows
        self._dense = d <= DENSE_FEATURES
        filled = matrix.nnz / max(n * d, 1) if issparse(matrix) else 1.0
        passes = PASSES_PER_FEATURE * d / max(filled, 1e-9)
        self.patience = max(1.0, passes) if self._dense else math.inf
        whole = self._dense and (filled == 1 or passes < _FEW)
        # At first a quarter of the rows at most: a rough matrix costs a pass or two.
        rows = min(32, max(8, n // (4 * max(d, 1))))
        self.matrix = self._measure(margins, rows) if whole else self._diagonal(margins)

    def refresh(self, margins: Numbers) -> None:
        """Measure again at the given margins, on more rows."""
        self.matrix = self._measure(margins, 128) if self._dense else self._diagonal(margins)

    def _measure(self, margins: Numbers, rows_per_feature: int) -> np.ndarray:
        n, d = self._loss.differences.shape
        step = max(1, n // max(rows_per_feature * d, _FLOPS // max(d, 1) ** 2, 1))
        weights = self._loss.curvatures(margins)
        [total] = weighted_grams(self._loss.differences, weights, step=step)
        return np.asarray(total * (n / max(len(range(0, n, step)), 1)))

    def _diagonal(self, margins: Numbers) -> np.ndarray:
        rows = self._loss.rows
        squares = rows.power(2) if issparse(rows) else rows * rows
        return np.asarray(squares.T @ self._loss.curvatures(margins))


@dataclass(frozen=True)
class MixtureLogistic:
    """Minus the log probability of all released answers, as a function of the reward weights."""

    # The likelihood of what was released: efficient, but not convex where answers contradict a sure
    # prediction.
    # Source: docs/local.md, mixture likelihood: −Σ log p(z), p = κσ(θᵀx) + f for z = 1. Sums, not
    # means; no ridge.

    # x, one row a pair; dense or `scipy.sparse.csr_array`.
    differences: Float[np.ndarray, "n d"] | csr_array
    # What was released, 1 if the first was preferred and 0 otherwise.
    answers: Int[np.ndarray, " n"]
    flip_probability: float  # f, in [0, 1/2)

    def __post_init__(self) -> None:
        checked = DebiasedLogistic(self.differences, debias(self.answers, self.flip_probability))
        object.__setattr__(self, "differences", checked.differences)
        object.__setattr__(self, "answers", np.asarray(self.answers))

    def value(self, theta: Vector) -> float:
        """Return the loss, summed over the pairs."""
        return float(np.sum(self._losses(self.differences @ theta)))

    def gradient(self, theta: Vector) -> Vector:
        """Return the gradient: −Σ zκσ′(Δ)/p(z) x, with z = ±1."""
        slope = self._slope(self.differences @ theta)
        return np.asarray(self.differences.T @ (-self._z * slope))

    def hessian(self, theta: Vector) -> Square:
        """Return the Hessian: Σ s(s − 1 + 2σ(zΔ)) xxᵀ, s = κσ′(Δ)/p(z); it may be indefinite."""
        margins = self.differences @ theta
        slope = self._slope(margins)
        bend = slope * (slope - 1 + 2 * expit(self._z * margins))
        up, down = weighted_grams(self.differences, np.maximum(bend, 0), np.maximum(-bend, 0))
        return np.asarray(up - down)

    def _slope(self, margins: Numbers) -> Numbers:
        """Return κσ′(Δ)/p(z): how fast the log probability rises along its answer."""
        # In logarithms: where an answer contradicts a sure prediction, both factors underflow.
        logs = log_expit(margins) + log_expit(-margins) + self._losses(margins)
        return np.asarray((1 - 2 * self.flip_probability) * np.exp(logs))

    @property
    def _z(self) -> Int[np.ndarray, " n"]:
        return 2 * self.answers.astype(np.int64) - 1

    def _losses(self, margins: Numbers) -> Numbers:
        # Source: docs/local.md, mixture likelihood: −log[a σ(zΔ) + (1 − a) σ(−zΔ)], a = 1 − f.
        # Convex exactly where zΔ ≥ −ε/2.
        flip, agreement = self.flip_probability, self._z * margins
        epsilon = math.log((1 - flip) / flip) if flip > 0 else math.inf
        kept = log_expit(epsilon) + log_expit(agreement)
        return np.asarray(-np.logaddexp(kept, log_expit(-epsilon) + log_expit(-agreement)))


_FAINT = 1e-12  # of the trace of a matrix: next to it, its smallest eigenvalues are rounding


def debiased_slope(margins: Numbers) -> Numbers:
    """Return σ′(Δ): how much one pair bends the debiased loss."""
    # Source: docs/local.md, standard errors: A = E[σ′xxᵀ].
    return np.asarray(expit(margins) * expit(-margins))


def debiased_noise(margins: Numbers, flip_probability: float) -> Numbers:
    """Return p(1 − p)/κ²: the variance of a debiased answer."""
    # Source: docs/local.md, standard errors: E[p(1 − p)/κ² xxᵀ], p = κσ(Δ) + f.
    chance = answer_probability(margins, flip_probability)
    other = answer_probability(-margins, flip_probability)  # 1 − chance would round to 0
    return np.asarray(chance * other / (1 - 2 * flip_probability) ** 2)


def mixture_information(margins: Numbers, flip_probability: float) -> Numbers:
    """Return κ²σ′²/(p(1 − p)): what one released answer says about Δ."""
    # Source: docs/local.md, standard errors: Fisher information of the mixture likelihood.
    slope = debiased_slope(margins)
    # p(1 − p)/κ² ≥ σ′, so that nothing is divided by zero before σ′ itself underflows.
    noise = np.maximum(debiased_noise(margins, flip_probability), np.finfo(float).tiny)
    return np.asarray(slope * (slope / noise))


def isotropic_efficiency(margins: Numbers, flip_probability: float, squares: Numbers) -> float:
    """Return the variance of the mixture over that of the debiased estimate, at a glance."""
    # It is exact where directions do not depend on the margins, takes no matrix, and never exceeds
    # 1.
    # Source: docs/local.md, standard errors: with each xxᵀ replaced by ‖x‖²I/d, (Σ σ′‖x‖²)²/(Σ p(1
    # − p)/κ² ‖x‖² · Σ κ²σ′²/(p(1 − p)) ‖x‖²).
    bend = float(debiased_slope(margins) @ squares)
    noise = float(debiased_noise(margins, flip_probability) @ squares)
    information = float(mixture_information(margins, flip_probability) @ squares)
    return bend * (bend / noise) / information if noise and information else 1.0


def debiased_covariance(
    differences: Matrix,
    theta: Vector,
    flip_probability: float,
    *,
    noise: Square | None = None,
    ridge: float,
    longest: float = np.inf,
    step: int = 1,
    n: int | None = None,
) -> Square:
    """Return the covariance of the debiased estimate, the ridge in its bend."""
    # Without noise in the sum of answers it is as if θ were true; with noise whatever they were. Of
    # n rows in all, every so many-th of those that are given is taken.
    # Source: docs/local.md, standard errors: A⁻¹E[p(1 − p)/κ² xxᵀ]A⁻¹/n. docs/central.md, "Label
    # privacy, one Gaussian release": (H + ΛI)⁻¹(G/4 + V)(H + ΛI)⁻¹; an answer has variance ¼ at
    # most, so that this never states too little where Λ is small.
    margins = np.asarray(differences @ theta)
    counted = row_weights(differences, longest)
    answers = debiased_noise(margins, flip_probability) if noise is None else counted**2 / 4
    bend, drawn = weighted_grams(differences, counted * debiased_slope(margins), answers, step=step)
    share = _share(len(margins), step, n)
    spread = share * drawn if noise is None else share * drawn + noise
    return _sandwich(share * bend, spread, ridge)


def mixture_covariance(
    differences: Matrix, theta: Vector, flip_probability: float, *, ridge: float, step: int = 1
) -> Square:
    """Return the covariance of the mixture estimate, as if θ were true."""
    # Source: docs/local.md, standard errors: (E[κ²σ′²/(p(1 − p)) xxᵀ])⁻¹/n, with the ridge as in
    # the debiased one.
    margins = np.asarray(differences @ theta)
    weights = mixture_information(margins, flip_probability)
    [information] = weighted_grams(differences, weights, step=step)
    information *= _share(len(margins), step)
    return _sandwich(information, information, ridge)


def roots_of_variances(covariance: Square) -> Vector:
    """The standard deviations; a variance below the rounding of the largest counts as that."""
    # Rounding can leave the smallest below 0, and a root of that is no number.
    # Source: the definition.
    variances = np.diagonal(covariance)
    faintest = float(np.finfo(np.float64).eps) * len(variances) * variances.max(initial=0.0)
    return np.asarray(np.sqrt(np.maximum(variances, faintest)))


def _share(rows: int, step: int, n: int | None = None) -> float:
    """Return how many of n rows each row that was taken stands for."""
    return (rows if n is None else n) / max(len(range(0, rows, step)), 1)


def _sandwich(bend: Square, noise: Square, ridge: float) -> Square:
    """Return (bend + ridge)⁻¹ noise (bend + ridge)⁻¹."""
    # a ridge that vanishes beside the rest leaves rounding, of which roots are no numbers
    inverse = np.linalg.inv(bend + max(ridge, _FAINT * np.trace(bend)) * np.eye(len(bend)))
    return np.asarray(inverse @ noise @ inverse)
