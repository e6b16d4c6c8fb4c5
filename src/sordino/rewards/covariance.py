"""How far an estimate scatters around the truth, when there are many answers.

Asymptotic: the covariance that both estimators approach as pairs are added, evaluated at the
estimate. It says nothing of a feature map that cannot express what people want.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from sordino.mechanisms.grid import Rows, row_weights

from .pair_losses import answer_probability, weighted_grams

_FAINT = 1e-12  # of the trace of a matrix: next to it, its smallest eigenvalues are rounding


def debiased_slope(margins: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return σ′(Δ): how much one pair bends the debiased loss."""
    # Source: docs/local.md, standard errors: A = E[σ′xxᵀ].
    return np.asarray(expit(margins) * expit(-margins))


def debiased_noise(
    margins: Float[np.ndarray, " n"], flip_probability: float
) -> Float[np.ndarray, " n"]:
    """Return p(1 − p)/κ²: the variance of a debiased answer."""
    # Source: docs/local.md, standard errors: E[p(1 − p)/κ² xxᵀ], p = κσ(Δ) + f.
    chance = answer_probability(margins, flip_probability)
    other = answer_probability(-margins, flip_probability)  # 1 − chance would round to 0
    return np.asarray(chance * other / (1 - 2 * flip_probability) ** 2)


def mixture_information(
    margins: Float[np.ndarray, " n"], flip_probability: float
) -> Float[np.ndarray, " n"]:
    """Return κ²σ′²/(p(1 − p)): what one released answer says about Δ."""
    # Source: docs/local.md, standard errors: Fisher information of the mixture likelihood.
    slope = debiased_slope(margins)
    # p(1 − p)/κ² ≥ σ′, so that nothing is divided by zero before σ′ itself underflows.
    noise = np.maximum(debiased_noise(margins, flip_probability), np.finfo(float).tiny)
    return np.asarray(slope * (slope / noise))


def isotropic_efficiency(
    margins: Float[np.ndarray, " n"], flip_probability: float, squares: Float[np.ndarray, " n"]
) -> float:
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
    differences: Rows,
    theta: Float[np.ndarray, " d"],
    flip_probability: float,
    *,
    noise: Float[np.ndarray, "d d"] | None = None,
    ridge: float,
    longest: float = np.inf,
    step: int = 1,
    n: int | None = None,
) -> Float[np.ndarray, "d d"]:
    """Return the covariance of the debiased estimate, the ridge in its bend.

    Without noise in the sum of answers it is as if θ were true; with noise whatever they were. Of n
    rows in all, every so many-th of those that are given is taken.
    """
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
    differences: Rows,
    theta: Float[np.ndarray, " d"],
    flip_probability: float,
    *,
    ridge: float,
    step: int = 1,
) -> Float[np.ndarray, "d d"]:
    """Return the covariance of the mixture estimate, as if θ were true."""
    # Source: docs/local.md, standard errors: (E[κ²σ′²/(p(1 − p)) xxᵀ])⁻¹/n, with the ridge as in
    # the debiased one.
    margins = np.asarray(differences @ theta)
    weights = mixture_information(margins, flip_probability)
    [information] = weighted_grams(differences, weights, step=step)
    information *= _share(len(margins), step)
    return _sandwich(information, information, ridge)


def roots_of_variances(covariance: Float[np.ndarray, "d d"]) -> Float[np.ndarray, " d"]:
    """The standard deviations; a variance below the rounding of the largest counts as that."""
    # Rounding can leave the smallest below 0, and a root of that is no number.
    # Source: the definition.
    variances = np.diagonal(covariance)
    faintest = float(np.finfo(np.float64).eps) * len(variances) * variances.max(initial=0.0)
    return np.asarray(np.sqrt(np.maximum(variances, faintest)))


def _share(rows: int, step: int, n: int | None = None) -> float:
    """Return how many of n rows each row that was taken stands for."""
    return (rows if n is None else n) / max(len(range(0, rows, step)), 1)


def _sandwich(
    bend: Float[np.ndarray, "d d"], noise: Float[np.ndarray, "d d"], ridge: float
) -> Float[np.ndarray, "d d"]:
    """Return (bend + ridge)⁻¹ noise (bend + ridge)⁻¹."""
    # a ridge that vanishes beside the rest leaves rounding, of which roots are no numbers
    inverse = np.linalg.inv(bend + max(ridge, _FAINT * np.trace(bend)) * np.eye(len(bend)))
    return np.asarray(inverse @ noise @ inverse)
