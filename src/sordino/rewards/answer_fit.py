"""The certified fit of a design of randomized answers, and what is known of its errors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino.errors import ConvergenceError, DataError, UsageError
from sordino.preferences.folds import FOLDS, MEASURING
from sordino.rewards.confidence import ConfidenceEllipsoid, confidence_ellipsoid
from sordino.rewards.covariance import (
    debiased_covariance,
    isotropic_efficiency,
    mixture_covariance,
    roots_of_variances,
)
from sordino.rewards.solver import Solution, minimize_ridge

from .evidence import MOST_FEATURES, Design, HeldOut
from .metrics import refit_widening
from .ridge_selection import accepted_gradient, choose_ridge, ridges
from .solver import refine

__all__ = [
    "BALL",
    "METHODS",
    "Fit",
    "answers_ellipsoid",
    "cross_fit",
    "fit_design",
    "refining_pays",
    "standard_errors",
]

METHODS = ("auto", "debiased", "mixture")
BALL = 100.0
"""Default bound on the norm of the weights, chosen before any data are seen."""
_FEW_ROWS, _MANY_ROWS = 16, 128  # rows a feature that decide on a method; that errors rest on
_HOPELESS = 0.96  # efficiency at a glance above which the whole one is not below _CLEARLY
_CLEARLY = 0.9  # share of the debiased variance that refining must promise to stay below
_KNOWN = 0.1  # share of ‖θ̂‖² that the variance of a refined estimate may have at most


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """A certified estimate, and the debiased one that it started from."""

    solution: Solution  # the estimate
    center: Solution  # the debiased minimizer inside the ball; the same where nothing was refined
    ridge: float  # Λ of the debiased fit
    candidates: int  # how many ridges were tried on the same answers
    method: str  # `"debiased"` or `"mixture"`


def fit_design(
    design: Design,
    *,
    ridge: float | None,
    ball: float,
    level: int = 0,
    method: str = "auto",
) -> Fit:
    """Return the certified estimate."""
    _validate.one_of("method", method, METHODS)
    candidates = 1
    if ridge is None:
        ridge = choose_ridge(design, ball=ball, level=level)
        candidates = len(ridges(design.feature_bound, design.flip_probability))
    center = minimize_ridge(design.loss, ridge=ridge, ball=ball, atol=accepted_gradient(design))
    found = Fit(
        solution=center, center=center, ridge=ridge, candidates=candidates, method="debiased"
    )
    if method == "mixture":
        return _refined(design, found, ball)
    if method == "auto" and refining_pays(design, center, ridge):
        with suppress(ConvergenceError):  # the debiased estimate is certified already
            refined = _refined(design, found, ball)
            return refined if _well_known(design, refined) else found
    return found


def _refined(design: Design, found: Fit, ball: float) -> Fit:
    """Return the mixture estimate, or the fit as it is where answers were never flipped."""
    if design.flip_probability == 0:
        return found  # the two likelihoods are one
    if design.differences.shape[1] > MOST_FEATURES:
        raise UsageError(
            f"method='mixture' needs a matrix of features by features: at most {MOST_FEATURES} "
            f"features, got {design.differences.shape[1]}. Use method='debiased'."
        )
    solution = refine(
        design.mixture,
        found.center.theta,
        ridge=_mixture_ridge(design, found.ridge),
        atol=(1 - 2 * design.flip_probability) * accepted_gradient(design),
        ball=ball,
    )
    return replace(found, solution=solution, method="mixture")


def _mixture_ridge(design: Design, ridge: float) -> float:
    """Return κ² times the debiased ridge."""
    # Near Δ = 0 the mixture loss is κ² times as steep, so that both fits then shrink alike.
    return (1 - 2 * design.flip_probability) ** 2 * ridge


def refining_pays(design: Design, center: Solution, ridge: float) -> bool:
    """Return whether the mixture likelihood promises a clearly better estimate."""
    # It does where rewards are large, so that the debiased estimate is inefficient.
    # Source: docs/local.md, mixture likelihood: asymptotic efficiency, by the traces of both
    # covariances; the threshold is measured in tests/statistical/test_mixture.py.
    rows, flip = design.differences, design.flip_probability
    if flip == 0 or rows.shape[1] > MOST_FEATURES:
        return False
    squares = np.asarray((rows**2).sum(axis=1)).ravel()
    if isotropic_efficiency(np.asarray(rows @ center.theta), flip, squares) > _HOPELESS:
        return False  # most fits: no matrix is needed to see it
    before = float(np.trace(_covariance(design, center, ridge, "debiased", rows=_FEW_ROWS)))
    after = float(np.trace(_covariance(design, center, ridge, "mixture", rows=_FEW_ROWS)))
    return after <= _CLEARLY * before


def _well_known(design: Design, refined: Fit) -> bool:
    """Return whether a refined estimate is known well enough to be trusted."""
    # With too few answers the mixture likelihood is flat far from the truth, and refining there
    # raises the error by a third.
    theta = refined.solution.theta
    known = _covariance(design, refined.solution, refined.ridge, "mixture", rows=_FEW_ROWS)
    return float(np.trace(known)) <= _KNOWN * float(theta @ theta)


def _covariance(
    design: Design, solution: Solution, ridge: float, method: str, *, rows: int
) -> Float[np.ndarray, "d d"]:
    """Return a covariance at a solution, from at least so many rows a feature."""
    step = max(1, len(design) // (rows * design.differences.shape[1]))
    given = design.differences, solution.theta, design.flip_probability
    if method == "debiased":
        return debiased_covariance(*given, ridge=ridge + solution.multiplier, step=step)
    return mixture_covariance(*given, ridge=_mixture_ridge(design, ridge), step=step)


def standard_errors(design: Design, found: Fit) -> Float[np.ndarray, " d"] | None:
    """Return the asymptotic standard error of every weight; None for too many features."""
    # Source: docs/local.md, standard errors.
    if design.differences.shape[1] > MOST_FEATURES:
        return None
    solution, ridge = found.solution, found.ridge
    covariance = _covariance(design, solution, ridge, found.method, rows=_MANY_ROWS)
    return roots_of_variances(covariance)


def answers_ellipsoid(design: Design, found: Fit, ball: float) -> ConfidenceEllipsoid:
    """Return the confidence set of a fit."""
    return confidence_ellipsoid(
        design.differences,
        found.center,
        flip_probability=design.flip_probability,
        ball=ball,
        ridge=found.ridge,
        candidates=found.candidates,
    )


def cross_fit(
    design: Design,
    *,
    ridge: float | None = None,
    ball: float = BALL,
    method: str = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> HeldOut:
    """Return predictions for every observation from fits that did not see its question."""
    # Each fit chooses its own ridge and method without the part that it is measured on.
    folds = design.folds(MEASURING)
    predictions = np.zeros(len(design))
    parts = np.unique(folds)
    for done, fold in enumerate(parts):
        if progress:
            progress(done, FOLDS)
        inside = design.part(folds != fold)
        if not len(inside):
            raise DataError("These are too few different questions to hold any out.")
        found = fit_design(inside, ridge=ridge, ball=ball, level=2, method=method)
        rows = np.flatnonzero(folds == fold)
        predictions[rows] = design.differences[rows] @ found.solution.theta
    return HeldOut(
        differences=predictions,
        answers=design.answers,
        flip_probability=design.flip_probability,
        clusters=design.clusters,
        widening=refit_widening(len(parts), measured=len(parts)),
    )
