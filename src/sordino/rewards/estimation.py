"""From randomized answers to a reward, with every number it reports already private."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from sordino import _random, _validate
from sordino.errors import ConvergenceError, DataError, PrivacyError, UsageError
from sordino.mechanisms.no_privacy import NonPrivate
from sordino.preferences.features import Features
from sordino.preferences.pairs import Pairs
from sordino.preferences.private_pairs import PrivatePairs
from sordino.privacy.guarantee import REPLACE_ONE
from sordino.privacy.ledger import Ledger
from sordino.rewards.confidence import ConfidenceEllipsoid, confidence_ellipsoid
from sordino.rewards.covariance import covariances
from sordino.rewards.design import FOLDS, MEASURING, Design, HeldOut
from sordino.rewards.likelihoods import debias, debiased_loss
from sordino.rewards.model import RewardModel
from sordino.rewards.refinement import refine
from sordino.rewards.solver import Solution, minimize_ridge, ridge_path

__all__ = [
    "Fit",
    "choose_ridge",
    "cross_fit",
    "fit_design",
    "fit_reward",
    "refining_pays",
    "ridges",
    "standard_errors",
]

METHODS = ("auto", "debiased", "mixture")
BALL = 100.0
"""Default bound on the norm of the weights, chosen before any data are seen."""
_POWERS = (-3, -2, -1, 0, 1, 2)  # of four, around the ridge that public settings suggest
_MANY = 50_000  # pairs above which one held-out part is precise enough
_ATOL = 1e-7  # accepted norm of the gradient, per pair
MOST_FEATURES = 1024
"""Most features for which a matrix of features by features is made unasked."""
_FEW_ROWS, _MANY_ROWS = 16, 128  # rows a feature that decide on a method; that errors rest on
_CLEARLY = 0.9  # share of the debiased variance that refining must promise to stay below
_KNOWN = 0.1  # share of ‖θ̂‖² that the variance of a refined estimate may have at most


def ridges(feature_bound: float, flip_probability: float) -> list[float]:
    """Return the ridges that are tried: powers of four around L²/κ².

    L²/κ² is the prior that a reward of one answer is about 1 (θ ∼ N(0, I/L²)), inflated as
    debiasing inflates the noise. It uses public settings only.

    Args:
        feature_bound: Bound L on the norm of one answer's features.
        flip_probability: Chance that an answer is not the judgment; κ = 1 − 2·flip.
    """
    kappa = 1 - 2 * flip_probability
    return [(feature_bound / kappa) ** 2 * 4.0**power for power in _POWERS]


def choose_ridge(design: Design, *, ball: float, level: int = 0) -> float:
    """Return a ridge by the debiased likelihood of held-out randomized answers; it costs nothing.

    Of the candidates whose likelihood is within one standard error of the best, the one nearest
    to L²/κ² is taken: with little signal the best alone is mostly noise.

    Args:
        design: The observations.
        ball: Bound on the norm of the weights.
        level: Which folds to use, so that what chooses is not what measures.
    """
    candidates = ridges(design.feature_bound, design.flip_probability)
    folds = design.folds(level)
    losses: list[np.ndarray] = []
    for fold in range(1 if len(design) > _MANY else FOLDS):
        inside, outside = design.part(folds != fold), design.part(folds == fold)
        if len(inside) and len(outside):
            path = ridge_path(inside.loss, candidates, ball=ball, atol=_atol(inside))
            losses.append(np.stack([_held_out(outside, solution) for solution in path], axis=1))
    if not losses:
        return candidates[_POWERS.index(0)]
    rows = np.concatenate(losses)
    excess = rows - rows[:, [int(rows.sum(axis=0).argmin())]]
    error = excess.std(axis=0) * np.sqrt(len(rows))
    close = np.flatnonzero(excess.sum(axis=0) <= error)
    return candidates[min(close, key=lambda index: abs(_POWERS[index]))]


def _held_out(outside: Design, solution: Solution) -> Float[np.ndarray, " n"]:
    """Return the debiased loss of every observation that a fit did not see."""
    targets = debias(outside.answers, outside.flip_probability)
    return np.asarray(debiased_loss(outside.differences @ solution.theta, targets))


def _atol(design: Design) -> float:
    """Return the accepted norm of the gradient for a design of this size."""
    return _ATOL * len(design)


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
    candidates = len(_POWERS) if ridge is None else 1
    if ridge is None:
        ridge = choose_ridge(design, ball=ball, level=level)
    center = minimize_ridge(design.loss, ridge=ridge, ball=ball, atol=_atol(design))
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
    kappa = 1 - 2 * design.flip_probability
    solution = refine(
        design.mixture,
        found.center.theta,
        ridge=kappa**2 * found.ridge,
        atol=kappa * _atol(design),
        ball=ball,
    )
    return replace(found, solution=solution, method="mixture")


def refining_pays(design: Design, center: Solution, ridge: float) -> bool:
    """Return whether the mixture likelihood promises a clearly better estimate.

    It does where rewards are large, so that the debiased estimate is inefficient.

    Source:
        docs/local.md, mixture likelihood: asymptotic efficiency, by the traces of both
        covariances; the threshold is measured in tests/statistical/test_mixture.py.
    """
    if design.flip_probability == 0 or design.differences.shape[1] > MOST_FEATURES:
        return False
    debiased, mixture = _covariances(design, center, ridge, rows=_FEW_ROWS)
    return float(np.trace(mixture)) <= _CLEARLY * float(np.trace(debiased))


def _well_known(design: Design, refined: Fit) -> bool:
    """Return whether a refined estimate is known well enough to be trusted.

    With too few answers the mixture likelihood is flat far from the truth, and refining there
    raises the error by a third.
    """
    theta = refined.solution.theta
    _, mixture = _covariances(design, refined.solution, refined.ridge, rows=_FEW_ROWS)
    return float(np.trace(mixture)) <= _KNOWN * float(theta @ theta)


def _covariances(
    design: Design, solution: Solution, ridge: float, *, rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return both covariances at a solution, from at least so many rows a feature."""
    step = max(1, len(design) // (rows * design.differences.shape[1]))
    return covariances(
        design.differences,
        solution.theta,
        design.flip_probability,
        ridge=ridge + solution.multiplier,
        step=step,
    )


def standard_errors(design: Design, found: Fit) -> Float[np.ndarray, " d"] | None:
    """Return the asymptotic standard error of every weight; None for too many features.

    Source:
        docs/local.md, standard errors.
    """
    if design.differences.shape[1] > MOST_FEATURES:
        return None
    both = _covariances(design, found.solution, found.ridge, rows=_MANY_ROWS)
    return np.asarray(np.sqrt(np.diagonal(both[found.method == "mixture"])))


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


def fit_reward(  # noqa: PLR0913 (each is one choice of the user)
    pairs: Pairs | PrivatePairs,
    *,
    features: Features | None = None,
    method: str = "auto",
    ridge: float | None = None,
    ball: float = BALL,
    ellipsoid: bool | None = None,
    mechanism: NonPrivate | None = None,
    ledger: Ledger | None = None,
    design: Design | None = None,
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
        design: ``Design.of(pairs, features)``, if it was made already.

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
    private = _private(pairs, mechanism, ledger)
    design = design or Design.of(private, features)
    if ellipsoid is None:
        ellipsoid = design.differences.shape[1] <= MOST_FEATURES
    found = fit_design(design, ridge=ridge, ball=ball, method=method)
    return RewardModel(
        weights=found.solution.theta,
        features=features,
        guarantee=private.guarantee,
        method=found.method,
        ridge=found.ridge,
        ball=ball,
        gradient_norm=found.solution.gradient_norm,
        atol=_atol(design),
        pairs=len(private),
        standard_errors=standard_errors(design, found),
        ellipsoid=_ellipsoid(design, found, ball) if ellipsoid else None,
        release_ids=private.release_ids,
        artifact=private.artifact,
    )


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
    promise = mechanism.guarantee(unit="label", neighbors=REPLACE_ONE, trust="central")
    digest = pairs.public_digest
    reservation = ledger.reserve(mechanism.event, promise=promise, public_digest=digest)
    reservation.commit(digest)  # of the public fields: raw labels are not digested
    public = {name: getattr(pairs, name) for name in Pairs.__dataclass_fields__ if name != "labels"}
    return PrivatePairs(
        **public,
        answers=mechanism.release(pairs.labels, entropy=_random.entropy(None)),
        flip_probability=0.0,
        guarantee=promise,
        release_ids=(reservation.release_id,),
        artifact=digest,
    )
