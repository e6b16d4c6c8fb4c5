"""Rewards that are linear in the features: what is known of them while questions are chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer
from scipy.special import expit

from sordino.rewards.likelihoods import DebiasedLogistic, debias
from sordino.rewards.solver import Solution, minimize_ridge

__all__ = ["LinearBelief", "LinearLearner", "self_normalized_radius"]

_DOUBLED = math.log(2.0)
_ATOL = 1e-7  # of the gradient, for each answer; the radius covers it


def self_normalized_radius(
    log_volume: float,
    *,
    kappa: float,
    curvature: float,
    ridge: float,
    ball: float,
    confidence: float,
    gradient_norm: float = 0.0,
) -> float:
    """Return how far the truth lies from the estimate at most, at all times together.

    Unlike the radius for a fixed design it holds for questions that were chosen by earlier
    answers.

    Source:
        docs/policy_optimization.md, "Online alignment":
        (1/(2κγ))√(log det(I + γG/Λ) + 2 log(1/(1 − confidence))) + B√(Λ/γ), from the
        self-normalized bound of Abbasi-Yadkori, Pál & Szepesvári 2011, Theorem 1; what the
        solver left of the gradient adds its norm/√(γΛ).

    Args:
        log_volume: log det(I + γG/Λ), G = Σ xxᵀ.
        kappa: κ = 1 − 2·flip probability.
        curvature: γ = σ′(XB), the least curvature of the loss at any question in the ball.
        ridge: Λ > 0.
        ball: B ≥ ‖θ*‖.
        confidence: How often it holds, in (0, 1).
        gradient_norm: The certificate of the fit.

    Example:
        >>> sizes = {"curvature": 0.25, "ridge": 1.0, "ball": 1.0, "confidence": 0.95}
        >>> round(self_normalized_radius(0.0, kappa=1.0, **sizes), 4)
        6.8955
    """
    noise = math.sqrt(log_volume + 2 * math.log(1 / (1 - confidence)))
    left = gradient_norm / math.sqrt(curvature * ridge)
    return noise / (2 * kappa * curvature) + ball * math.sqrt(ridge / curvature) + left


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearBelief:
    """What was known at a refit; it stays as it is until the next.

    Source:
        docs/policy_optimization.md, "Online alignment": with an estimate of round t0 the bonus
        is that of t0.

    Attributes:
        weights: θ̂, the debiased minimizer inside the ball, shape (d,).
        root: L with LLᵀ = M⁻¹, shape (d, d).
        radius: β, so that ‖θ̂ − θ*‖_M ≤ β as often as stated.
        gradient_norm: The certificate of the fit.
    """

    weights: Float[np.ndarray, " d"]
    root: Float[np.ndarray, "d d"]
    radius: float
    gradient_norm: float

    def rewards(self, encoded: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, "n k"]:
        """Return the estimated reward of every action."""
        return np.asarray(encoded @ self.weights)

    def bonus(self, centered: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, "n k"]:
        """Return by how much the truth may exceed the estimate along every row."""
        return np.asarray(self.radius * np.linalg.norm(centered @ self.root, axis=-1))

    def widths(self, differences: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """Return how far two rewards that are both still possible disagree at most."""
        return 2 * self.bonus(differences)


class LinearLearner:
    """The debiased estimate inside a ball, with the matrix of all questions kept up to date.

    Between refits M⁻¹ takes one rank-one update a question, which is how a doubled determinant
    is noticed; what policies use changes at refits only.

    Source:
        docs/policy_optimization.md, "Online alignment": M = G + (Λ/γ)I.
    """

    def __init__(
        self,
        dimension: int,
        *,
        feature_bound: float,
        ball: float,
        ridge: float,
        flip_probability: float,
        confidence: float,
    ) -> None:
        """Know nothing yet: the estimate is 0."""
        slope = float(expit(2 * feature_bound * ball))
        self.largest_error = 4 * feature_bound * ball
        self.ball, self.ridge = ball, ridge
        self._settings = {
            "kappa": 1 - 2 * flip_probability,
            "curvature": slope * (1 - slope),
            "ridge": ridge,
            "ball": ball,
            "confidence": confidence,
        }
        self._flip = flip_probability
        self._start = ridge / self._settings["curvature"]
        self._gram = np.zeros((dimension, dimension))
        self._rows = np.empty((64, dimension))
        self._targets = np.empty(64)
        self.asked = 0
        self._refresh(np.zeros(dimension), 0.0)

    @property
    def atol(self) -> float:
        """Return what the certificate of the next fit must meet."""
        return _ATOL * max(1, self.asked)

    def encode(self, features: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, "n k d"]:
        """Return the features: a reward is linear in them."""
        return features

    def take(self, differences: Float[np.ndarray, "n d"]) -> int:
        """Return how many of the next questions are asked before the next refit.

        They are taken into M; the last of them doubled its determinant, unless all are asked.
        """
        for index, row in enumerate(differences):
            column = self._inverse @ row
            lift = 1 + float(row @ column)
            self._inverse -= np.outer(column, column / lift)
            self._grown += math.log(lift)
            if self._grown > _DOUBLED:
                return index + 1
        return len(differences)

    def learn(
        self, differences: Float[np.ndarray, "n d"], answers: Integer[np.ndarray, " n"]
    ) -> None:
        """Take in randomized answers to the questions that were taken, and refit."""
        if len(answers):
            self._keep(differences, debias(answers, self._flip))
            self._gram += differences.T @ differences
            found = self._fit()
            self._refresh(found.theta, found.gradient_norm)

    def _keep(
        self, differences: Float[np.ndarray, "n d"], targets: Float[np.ndarray, " n"]
    ) -> None:
        """Append rows; the room doubles when it is full."""
        end = self.asked + len(targets)
        while end > len(self._targets):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
            self._targets = np.concatenate([self._targets, np.empty_like(self._targets)])
        self._rows[self.asked : end] = differences
        self._targets[self.asked : end] = targets
        self.asked = end

    def _fit(self) -> Solution:
        """Return the minimizer inside the ball on all answers, from the last one on."""
        loss = DebiasedLogistic(self._rows[: self.asked], self._targets[: self.asked])
        return minimize_ridge(
            loss,
            ridge=self.ridge,
            ball=self.ball,
            atol=self.atol,
            start=self.belief.weights,
        )

    def _refresh(self, weights: Float[np.ndarray, " d"], gradient_norm: float) -> None:
        """Set what is known, with M⁻¹ computed anew."""
        d = len(weights)
        metric = self._gram + self._start * np.eye(d)
        root = np.linalg.inv(np.linalg.cholesky(metric)).T
        log_volume = -2 * float(np.log(np.diagonal(root) * math.sqrt(self._start)).sum())
        self._inverse, self._grown = root @ root.T, 0.0
        self.belief = LinearBelief(
            weights=weights,
            root=root,
            radius=self_normalized_radius(
                max(0.0, log_volume), gradient_norm=gradient_norm, **self._settings
            ),
            gradient_norm=gradient_norm,
        )
