"""How far an estimate scatters around the truth, when there are many answers.

Asymptotic: the covariance that both estimators approach as pairs are added, evaluated at the
estimate. It says nothing of a feature map that cannot express what people want.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from ._gram import weighted_grams
from .likelihoods import answer_probability

__all__ = ["covariances", "debiased_noise", "debiased_slope", "mixture_information"]


def debiased_slope(margins: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return σ′(Δ): how much one pair bends the debiased loss.

    Source:
        docs/local.md, standard errors: A = E[σ′xxᵀ].

    Example:
        >>> debiased_slope(np.array([0.0]))
        array([0.25])
    """
    return np.asarray(expit(margins) * expit(-margins))


def debiased_noise(
    margins: Float[np.ndarray, " n"], flip_probability: float
) -> Float[np.ndarray, " n"]:
    """Return p(1 − p)/κ²: the variance of a debiased answer.

    Source:
        docs/local.md, standard errors: E[p(1 − p)/κ² xxᵀ], p = κσ(Δ) + f.

    Example:
        >>> debiased_noise(np.array([0.0]), 0.25)
        array([1.])
    """
    chance = answer_probability(margins, flip_probability)
    return np.asarray(chance * (1 - chance) / (1 - 2 * flip_probability) ** 2)


def mixture_information(
    margins: Float[np.ndarray, " n"], flip_probability: float
) -> Float[np.ndarray, " n"]:
    """Return κ²σ′²/(p(1 − p)): what one released answer says about Δ.

    Source:
        docs/local.md, standard errors: Fisher information of the mixture likelihood.

    Example:
        >>> mixture_information(np.array([0.0]), 0.25)
        array([0.0625])
    """
    slope = debiased_slope(margins)
    # p(1 − p)/κ² ≥ σ′, so that nothing is divided by zero before σ′ itself underflows.
    noise = np.maximum(debiased_noise(margins, flip_probability), np.finfo(float).tiny)
    return np.asarray(slope * (slope / noise))


def covariances(
    differences: Any,
    theta: Float[np.ndarray, " d"],
    flip_probability: float,
    *,
    ridge: float,
    step: int = 1,
) -> tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "d d"]]:
    """Return the covariance of the debiased and of the mixture estimate, as if θ were true.

    The ridge of the mixture is κ² times the debiased one: near Δ = 0 its loss is κ² times as
    steep, so that both fits then shrink alike.

    Source:
        docs/local.md, standard errors: A⁻¹E[p(1 − p)/κ² xxᵀ]A⁻¹/n and (E[κ²σ′²/(p(1 − p))
        xxᵀ])⁻¹/n, each with its ridge in the inverses.

    Args:
        differences: x, shape (n, d), dense or sparse.
        theta: The estimate.
        flip_probability: f, in [0, 1/2).
        ridge: Ridge of the debiased fit, > 0.
        step: Take every so many-th row only, and scale up.
    """
    margins = np.asarray(differences @ theta)
    bend, noise, information = weighted_grams(
        differences,
        debiased_slope(margins),
        debiased_noise(margins, flip_probability),
        mixture_information(margins, flip_probability),
        step=step,
    )
    share = len(margins) / max(len(margins[::step]), 1)
    bend, noise, information = share * bend, share * noise, share * information
    kappa = 1 - 2 * flip_probability
    return _sandwich(bend, noise, ridge), _sandwich(information, information, kappa**2 * ridge)


def _sandwich(
    bend: Float[np.ndarray, "d d"], noise: Float[np.ndarray, "d d"], ridge: float
) -> Float[np.ndarray, "d d"]:
    """Return (bend + ridge)⁻¹ noise (bend + ridge)⁻¹."""
    inverse = np.linalg.inv(bend + ridge * np.eye(len(bend)))
    return np.asarray(inverse @ noise @ inverse)
