"""How far an estimate from one released sum of rankings may be from the truth.

A radius holds for any number of ballots if they were complete and strict. Ballots that were
completed by ties do not follow the Plackett–Luce model: for them there is no radius, and intervals
are about the weights that the objective has on average.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Int64
from scipy.sparse import issparse
from scipy.special import expit

from sordino.errors import UsageError
from sordino.mechanisms._slates import SizeGroup, groups_by_size

from ._ballot_curvature import add_bends
from .composite import FirstChoice, PairwiseComposite, pair_weight
from .confidence import ConfidenceEllipsoid, NoiseTerm, whitened
from .solver import Solution

__all__ = ["choice_spread", "ranking_covariance", "ranking_ellipsoid"]

Bends = Callable[[SizeGroup, Float[np.ndarray, "g k k"]], Float[np.ndarray, "g k k"]]

_BLOCK = 1 << 20


def ranking_ellipsoid(
    loss: PairwiseComposite | FirstChoice,
    solution: Solution,
    *,
    ball: float,
    ridge: float,
    covariance: Float[np.ndarray, "d d"],
    rounding: float,
    candidates: int,
    strict: bool,
) -> ConfidenceEllipsoid:
    """Return the confidence set of a fit from one noised sum of complete, strict rankings.

    Only public numbers and the released estimate enter it, so it costs nothing.

    Source:
        docs/central.md, "Rankings": M and G of the pairs, or of the first choice; the sum along
        any direction moves by at most twice ½√(uᵀGu) with one ballot, so that it is sub-Gaussian
        (Hoeffding).

    Args:
        loss: The objective, with what was released.
        solution: Its certified minimizer inside the ball.
        ball: B, chosen before the data were seen.
        ridge: Λ > 0.
        covariance: V, of the noise that was released.
        rounding: How far the grid moved the sum at most, in standard deviations of the noise.
        candidates: How many ridges were tried on the same sum; 1 if it was given.
        strict: Whether ballots were declared, in public, to be complete orders without ties.

    Raises:
        UsageError: They were not, so that no radius holds.
    """
    if not strict:
        raise UsageError(
            "No radius holds for ballots that were completed by ties: they do not follow the "
            "Plackett-Luce model. Use ranking_covariance for intervals, or the first choice of "
            "ballots without ties."
        )
    metric = _flattest(loss, ball) + ridge * np.eye(loss.features.shape[1])
    answers = NoiseTerm.of(1 / 2, whitened(choice_spread(loss), metric))
    drawn = NoiseTerm.of(1.0, whitened(covariance, metric))
    certain = NoiseTerm(factor=rounding, trace=drawn.largest, trace_of_square=0.0, largest=0.0)
    return ConfidenceEllipsoid(
        center=solution.theta,
        metric=metric,
        kappa=1.0,
        ball=ball,
        ridge=ridge,
        candidates=candidates,
        gradient_norm=solution.gradient_norm,
        least_eigenvalue=max(float(np.linalg.eigvalsh(metric)[0]), ridge),
        trace=answers.trace,
        trace_of_square=answers.trace_of_square,
        largest=answers.largest,
        noise=(drawn, certain),
        splits=2,
    )


def ranking_covariance(
    loss: PairwiseComposite | FirstChoice,
    theta: Float[np.ndarray, " d"],
    noise: Float[np.ndarray, "d d"],
    *,
    ridge: float,
) -> Float[np.ndarray, "d d"]:
    """Return the covariance of an estimate from one noised sum, whatever the rankings were.

    Asymptotic: as ballots are added. No ranking enters it.

    Source:
        docs/central.md, "Rankings": A⁻¹(G/4 + V)A⁻¹, A the Hessian at θ with the ridge.

    Args:
        loss: The objective.
        theta: The estimate.
        noise: V, the covariance of the noise.
        ridge: Λ > 0 of the fit.
    """
    bend = loss.hessian(theta) + ridge * np.eye(len(theta))
    inverse = np.linalg.inv(bend)
    return np.asarray(inverse @ (choice_spread(loss) / 4 + noise) @ inverse)


def choice_spread(loss: PairwiseComposite | FirstChoice) -> Float[np.ndarray, "d d"]:
    """Return G: the variance of the sum along u is at most uᵀGu/4, whatever the rankings are.

    Source:
        docs/central.md, "Rankings": pairs: along u one ballot's part moves by at most
        wΣ_{a<b}|u_a − u_b|, whose square is at most wΣ_{a<b}(u_a − u_b)², since the w sum to 1.
        First choice: by at most max|u_j − u_k|, whose square is at most (2/K) Σ_{j<k}(u_j − u_k)²,
        since (u_j − u_l)² + (u_l − u_k)² ≥ (u_j − u_k)²/2 for every other l.
    """
    shared = (lambda k: 2 / k) if isinstance(loss, FirstChoice) else pair_weight

    def even(group: SizeGroup, _gaps: np.ndarray) -> np.ndarray:
        return np.full((1, group.size, group.size), shared(group.size))

    return _total(loss, even)


def _flattest(loss: PairwiseComposite | FirstChoice, ball: float) -> Float[np.ndarray, "d d"]:
    """Return the least curvature of the objective anywhere in the ball.

    Source:
        docs/central.md, "Rankings": wσ′(‖x_ab‖B) for every pair; first choice:
        c_jk = σ′(‖x_jk‖B)(1 + ½Σ_l exp(B‖φ_l − (φ_j + φ_k)/2‖))⁻², l other than j and k.
    """

    def pairs(group: SizeGroup, gaps: np.ndarray) -> np.ndarray:
        return np.asarray(pair_weight(group.size) * expit(ball * gaps) * expit(-ball * gaps))

    def choices(_group: SizeGroup, gaps: np.ndarray) -> np.ndarray:
        others = np.zeros(gaps.shape)
        squares = gaps**2
        for one in range(gaps.shape[1]):
            # The median of a triangle: ‖l − (j + k)/2‖² = (2‖l−j‖² + 2‖l−k‖² − ‖j−k‖²)/4.
            near = 2 * squares[:, one]
            median = (near[:, :, np.newaxis] + near[:, np.newaxis] - squares) / 4
            with np.errstate(over="ignore"):  # infinitely many times as likely: no curvature
                reach = np.exp(ball * np.sqrt(np.maximum(median, 0.0)))
            reach[:, one] = reach[:, :, one] = 0.0
            others += reach
        return np.asarray(expit(ball * gaps) * expit(-ball * gaps) / (1 + others / 2) ** 2)

    return _total(loss, choices if isinstance(loss, FirstChoice) else pairs)


def _total(loss: PairwiseComposite | FirstChoice, bends: Bends) -> Float[np.ndarray, "d d"]:
    """Return Σ counts Σ_{a<b} bends_ab (φ_a − φ_b)(φ_a − φ_b)ᵀ over all slates."""
    d = loss.features.shape[1]
    total = np.zeros((d, d))
    for group in groups_by_size(loss.starts):
        step = max(1, _BLOCK // (group.size * max(group.size, d)))
        for first in range(0, len(group.slates), step):
            part = slice(first, first + step)
            inside = SizeGroup(group.slates[part], group.rows[:, part])
            weights = bends(inside, _gaps(loss.features, inside.rows))
            counted = weights * loss.counts[inside.slates][:, np.newaxis, np.newaxis]
            places = np.arange(group.size)
            counted[:, places, places] = 0.0
            add_bends(total, loss.features, inside.rows, counted)
    return (total + total.T) / 2


def _gaps(features: Any, rows: Int64[np.ndarray, "k g"]) -> Float[np.ndarray, "g k k"]:
    """Return the distance of every two candidates of a slate."""
    k, g = rows.shape
    block = features[rows.T.ravel()]
    block = (block.toarray() if issparse(block) else block).reshape(g, k, -1)
    found = np.empty((g, k, k))
    for one in range(k):
        found[:, one] = np.linalg.norm(block - block[:, one : one + 1], axis=2)
    return found
