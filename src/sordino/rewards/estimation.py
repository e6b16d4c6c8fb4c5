"""From randomized answers to a reward, with every number it reports already private."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino.errors import ConvergenceError, DataError, PrivacyError, UsageError
from sordino.mechanisms.no_privacy import NonPrivate
from sordino.preferences.features import Features
from sordino.preferences.pairs import Pairs
from sordino.preferences.private_pairs import PrivatePairs
from sordino.privacy.ledger import Ledger
from sordino.privatization.unprotected import use_unprotected
from sordino.rewards.confidence import ConfidenceEllipsoid, confidence_ellipsoid
from sordino.rewards.covariance import (
    debiased_covariance,
    isotropic_efficiency,
    mixture_covariance,
)
from sordino.rewards.design import FOLDS, MEASURING, Design, HeldOut
from sordino.rewards.model import RewardModel
from sordino.rewards.refinement import refine
from sordino.rewards.ridge_choice import accepted_gradient, choose_ridge, ridges
from sordino.rewards.solver import Solution, minimize_ridge

__all__ = [
    "Fit",
    "cross_fit",
    "fit_answers",
    "fit_design",
    "fit_reward",
    "refining_pays",
    "standard_errors",
]

METHODS = ("auto", "debiased", "mixture")
BALL = 100.0
"""Default bound on the norm of the weights, chosen before any data are seen."""
MOST_FEATURES = 1024
"""Most features for which a matrix of features by features is made unasked."""
_FEW_ROWS, _MANY_ROWS = 16, 128  # rows a feature that decide on a method; that errors rest on
_HOPELESS = 0.96  # efficiency at a glance above which the whole one is not below _CLEARLY
_CLEARLY = 0.9  # share of the debiased variance that refining must promise to stay below
_KNOWN = 0.1  # share of ‖θ̂‖² that the variance of a refined estimate may have at most


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """A certified estimate, and the debiased one that it started from.

    Attributes:
        solution: The estimate.
        center: The debiased minimizer inside the ball; the same where nothing was refined.
        ridge: Λ of the debiased fit.
        candidates: How many ridges were tried on the same answers.
        method: ``"debiased"`` or ``"mixture"``.
    """

    solution: Solution
    center: Solution
    ridge: float
    candidates: int
    method: str


def fit_design(
    design: Design,
    *,
    ridge: float | None,
    ball: float,
    level: int = 0,
    method: str = "auto",
) -> Fit:
    """Return the certified estimate.

    Raises:
        UsageError: The method is unknown, or there are too many features for it.
        ConvergenceError: The fit could not be certified.
    """
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
    """Return κ² times the debiased ridge.

    Near Δ = 0 the mixture loss is κ² times as steep, so that both fits then shrink alike.
    """
    return (1 - 2 * design.flip_probability) ** 2 * ridge


def refining_pays(design: Design, center: Solution, ridge: float) -> bool:
    """Return whether the mixture likelihood promises a clearly better estimate.

    It does where rewards are large, so that the debiased estimate is inefficient.

    Source:
        docs/local.md, mixture likelihood: asymptotic efficiency, by the traces of both
        covariances; the threshold is measured in tests/statistical/test_mixture.py.
    """
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
    """Return whether a refined estimate is known well enough to be trusted.

    With too few answers the mixture likelihood is flat far from the truth, and refining there
    raises the error by a third.
    """
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
    """Return the asymptotic standard error of every weight; None for too many features.

    Source:
        docs/local.md, standard errors.
    """
    if design.differences.shape[1] > MOST_FEATURES:
        return None
    solution, ridge = found.solution, found.ridge
    covariance = _covariance(design, solution, ridge, found.method, rows=_MANY_ROWS)
    return np.asarray(np.sqrt(np.diagonal(covariance)))


def _ellipsoid(design: Design, found: Fit, ball: float) -> ConfidenceEllipsoid:
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
    """Return predictions for every observation from fits that did not see its question.

    Each fit chooses its own ridge and method without the part that it is measured on.

    Raises:
        DataError: There are too few different questions to hold any out.
    """
    folds = design.folds(MEASURING)
    predictions = np.zeros(len(design))
    for done, fold in enumerate(np.unique(folds)):
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
    )


def fit_reward(
    pairs: Pairs | PrivatePairs,
    *,
    features: Features | None = None,
    method: str = "auto",
    ridge: float | None = None,
    ball: float = BALL,
    ellipsoid: bool | None = None,
    mechanism: NonPrivate | None = None,
    ledger: Ledger | None = None,
) -> RewardModel:
    """Return the linear reward that explains randomized answers best, with a certified fit.

    Minimizes Σ softplus(θᵀx) − ỹθᵀx + ridge/2·‖θ‖² over ‖θ‖ ≤ ball, where ỹ is the answer with
    its randomization taken out in expectation, so rewards come out on their true scale.

    Args:
        pairs: Randomized answers, from :func:`sordino.privatize` or an ``answer`` file.
        features: Turns texts into vectors; left out for pairs made by ``from_features``.
        method: ``"debiased"``, ``"mixture"`` (refined by the likelihood of what was released;
            better where rewards are large), or ``"auto"``, which refines where that clearly
            pays.
        ridge: Strength of the quadratic penalty, > 0; chosen on held-out randomized answers if
            left out.
        ball: Bound on the norm of the weights, > 0. Confidence sets take it as a promise about
            the truth, so choose it before you look at the data.
        ellipsoid: Whether to keep a confidence set, which pessimistic policies need: a matrix
            of features by features. By default for up to 1024 features.
        mechanism: Only :class:`sordino.NonPrivate` for now, to fit raw judgments as they are.
        ledger: Where a mechanism's spend is recorded.

    Raises:
        PrivacyError: The pairs are raw judgments and no mechanism was given.
        UsageError: A setting is out of range, or features do not fit the pairs.
        ConvergenceError: The fit could not be certified.

    Guarantee:
        Exactly what the answers promise: this is post-processing. Shown by
        tests/soundness/test_align_bytes.py.

    Source:
        Chowdhury, Kini & Natarajan 2024, debiased loss; docs/local.md.
    """
    ball = _validate.positive("ball", ball)
    ridge = None if ridge is None else _validate.positive("ridge", ridge)
    _validate.one_of("method", method, METHODS)
    reward, _ = fit_answers(
        _private(pairs, mechanism, ledger),
        features=features,
        method=method,
        ridge=ridge,
        ball=ball,
        ellipsoid=ellipsoid,
    )
    return reward


def fit_answers(
    private: PrivatePairs,
    *,
    features: Features | None,
    method: str,
    ridge: float | None,
    ball: float,
    ellipsoid: bool | None = None,
) -> tuple[RewardModel, Design]:
    """Return the reward of :func:`fit_reward`, and the design it was fitted on.

    The design is made here and nowhere else: a reward speaks for the answers behind it.

    Raises:
        UsageError: As :func:`fit_reward`.
        ConvergenceError: As :func:`fit_reward`.
    """
    design = Design.of(private, features)
    if ellipsoid is None:
        ellipsoid = design.differences.shape[1] <= MOST_FEATURES
    found = fit_design(design, ridge=ridge, ball=ball, method=method)
    reward = RewardModel(
        weights=found.solution.theta,
        features=features,
        guarantee=private.guarantee,
        method=found.method,
        ridge=found.ridge,
        ball=ball,
        gradient_norm=found.solution.gradient_norm,
        atol=accepted_gradient(design),
        pairs=len(private),
        standard_errors=standard_errors(design, found),
        ellipsoid=_ellipsoid(design, found, ball) if ellipsoid else None,
        release_ids=private.release_ids,
        artifact=private.artifact,
    )
    return reward, design


def _private(pairs: Any, mechanism: NonPrivate | None, ledger: Ledger | None) -> PrivatePairs:
    """Return answers that may be fitted; record the spend if raw ones are used as they are."""
    if isinstance(pairs, PrivatePairs):
        if mechanism is not None or ledger is not None:
            raise UsageError("These answers are private already: leave mechanism and ledger out.")
        return pairs
    if not isinstance(pairs, Pairs):
        raise UsageError(f"pairs must come from read_pairs, got {type(pairs).__name__}.")
    if not isinstance(mechanism, NonPrivate) or ledger is None:
        raise PrivacyError(
            "These are raw judgments; a reward fitted on them would give them away. Nothing was "
            "fitted. Randomize them first with sordino.privatize(pairs, "
            "sordino.RandomizedResponse(epsilon=...), ledger=...), or read a file that "
            "sordino privatize wrote. To record an infinite spend instead, pass "
            "mechanism=sordino.NonPrivate() and a ledger whose budget is infinite."
        )
    return use_unprotected(pairs, mechanism, ledger=ledger)
