"""From evidence to a certified estimate: which ridge, which likelihood, and how sure it is.

Everything here is free: ridges are chosen, and estimates refined, on what was released already.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import issparse

from sordino import _validate
from sordino._validate import Square, Vector
from sordino.engines.engine import Rows
from sordino.errors import ConvergenceError, UsageError
from sordino.preferences.comparisons import FOLDS
from sordino.privacy.guarantee import ADAPTIVE_QUESTIONS
from sordino.privacy.ledger import provenance

from .confidence import ConfidenceEllipsoid, confidence_ellipsoid
from .evidence import (
    ANSWER_POWERS,
    MOST_FEATURES,
    Design,
    Evidence,
    Released,
    ridges_around,
    shrunk_weights,
)
from .model import RewardModel
from .pair_losses import (
    MixtureLogistic,
    debias,
    debiased_covariance,
    debiased_loss,
    isotropic_efficiency,
    mixture_covariance,
    mixture_information,
    roots_of_variances,
    weighted_grams,
)
from .solver import Solution, minimize_ridge, norm, ridge_path

METHODS = ("auto", "debiased", "mixture")
_CRITERIA = ("tic", "thinning")
BALL = 100.0
"""Default bound on the norm of the weights, chosen before any data are seen."""

ATOL = 1e-7  # accepted norm of the gradient, per pair and bound on its features


def accepted_gradient(evidence: Evidence | Design) -> float:
    """Return the accepted norm of the gradient: in the unit of the features, whatever it is."""
    return ATOL * len(evidence) * evidence.feature_bound


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """A certified estimate, and the debiased one that it started from."""

    weights: Vector  # what is used
    solution: Solution  # what is certified: of a sum, before what noise explains is taken out
    center: Solution  # the debiased minimizer inside the ball, about which a confidence set is
    ridge: float  # Λ of the debiased fit
    candidates: int  # how many ridges were tried on the same answers
    method: str = "debiased"  # or `"mixture"`


def fit(
    released: Released[Evidence] | Released[Design],
    *,
    ridge: float | None = None,
    ball: float,
    ellipsoid: bool | None = None,
    method: str = "auto",
    criterion: str | None = None,
) -> RewardModel:
    """Return the reward that explains best what was released; as often as one likes, for free."""
    evidence = released.evidence
    if isinstance(evidence, Evidence):
        found = fit_sum(evidence, ridge=ridge, ball=ball, criterion=criterion)
    else:
        found = fit_design(evidence, ridge=ridge, ball=ball, method=method)
    # A set for questions that answers chose has another radius.
    # Source: docs/policy_optimization.md, "Online alignment".
    chosen = ADAPTIVE_QUESTIONS in released.guarantee.caveats
    if ellipsoid and chosen:
        raise UsageError(
            "Which questions were asked depends on earlier answers: no confidence set for fixed "
            "questions holds then. Nothing was fitted. Leave ellipsoid out (--confidence), or "
            "use `sordino online STUDY`, whose set holds for such questions."
        )
    if ellipsoid is None:
        ellipsoid = not chosen and evidence.differences.shape[1] <= MOST_FEATURES
    return RewardModel(
        weights=found.weights,
        features=released.features,
        method=released.method or found.method,
        ridge=found.ridge,
        ball=ball,
        gradient_norm=found.solution.gradient_norm,
        atol=accepted_gradient(evidence),
        pairs=released.pairs,
        standard_errors=None if chosen else standard_errors(evidence, found),
        ellipsoid=ellipsoid_of(evidence, found, ball=ball) if ellipsoid else None,
        **provenance(released),
        statistic=evidence.statistic
        if released.release_ids and isinstance(evidence, Evidence)
        else None,
    )


def standard_errors(evidence: Design | Evidence, found: Fit) -> Vector | None:
    """Return the asymptotic standard error of every weight; None for too many features."""
    # Source: docs/local.md, standard errors; docs/central.md, "Label privacy, one Gaussian
    # release".
    if evidence.differences.shape[1] > MOST_FEATURES:
        return None
    if isinstance(evidence, Evidence):
        return roots_of_variances(evidence.scatter(found.solution, found.ridge))
    terms = found.solution, found.ridge, found.method
    return roots_of_variances(_covariance(evidence, *terms, rows=_MANY_ROWS))


def ellipsoid_of(evidence: Design | Evidence, found: Fit, *, ball: float) -> ConfidenceEllipsoid:
    """Return the set around a fit that holds the truth, as often as it is asked to."""
    # Source: docs/local.md, confidence and pessimism; of a sum with noise κ = 1, with
    # √h(M^{-1/2}VM^{-1/2}, t) added for the noise and t = log(2 · candidates/(1 − confidence)).
    known = evidence if isinstance(evidence, Evidence) else None
    return confidence_ellipsoid(
        evidence.differences,
        found.center,
        flip_probability=evidence.flip_probability,
        ball=ball,
        ridge=found.ridge,
        candidates=found.candidates,
        covariance=None if known is None else known.covariance,
        rounding=0.0 if known is None else known.rounding,
        longest=np.inf if known is None else known.longest,
    )


# Answers as one sum.

_FEW = 256  # directions in which dense vectors cost no more than sparse ones
_DRAWS = 10  # splits of the sum that thinning averages over


def fit_sum(
    evidence: Evidence, *, ridge: float | None = None, ball: float, criterion: str | None = None
) -> Fit:
    """Return the certified estimate; whatever is tried, it costs nothing more."""
    # Of a sum with noise, the ridge that is not given is a public one, and what noise alone would
    # explain is taken out of the weights. Else it is chosen by a criterion.
    seen, basis = evidence, None
    if evidence.factor is not None and evidence.differences.held is not None:
        d, rank = evidence.factor.shape
        if 2 * rank <= d and (rank <= _FEW or not issparse(evidence.sample)):
            # Weights that minimize a loss and a ridge lie in what the vectors span, and keep their
            # norm there: an orthonormal basis of it saves work.
            basis = np.linalg.qr(evidence.factor)[0]
            seen = replace(
                evidence,
                differences=Rows.of(np.asarray(evidence.sample @ basis)),
                statistic=basis.T @ evidence.statistic,
                factor=basis.T @ evidence.factor,
            )
    few = len(seen.statistic) <= MOST_FEATURES
    shrinks = ridge is None and criterion is None and few and evidence.factor is not None
    if shrinks:
        ridge = evidence.public_ridge
    candidates = 1
    if ridge is None:
        tried = evidence.ridges()
        found, ridge = _best(seen, tried, criterion, ball=ball)
        candidates = len(tried)
    else:
        found = _fitted(seen, ridge, ball)
    weights = found.theta
    if shrinks:
        square, shift = seen.squares / len(seen), ridge + found.multiplier
        weights = shrunk_weights(weights, shift, seen.mean_and_spread, mean_square=square)
        if (length := float(np.linalg.norm(weights))) > ball:
            weights = weights * (ball / length * (1 - 2.0**-50))
    if basis is not None:  # certified for all features, and not in the span alone
        found = _fitted(evidence, ridge, ball, start=basis @ found.theta)
        weights = basis @ weights if shrinks else found.theta
    return Fit(weights=weights, solution=found, center=found, ridge=ridge, candidates=candidates)


def _fitted(evidence: Evidence, ridge: float, ball: float, start: Vector | None = None) -> Solution:
    """Return the certified minimizer with one ridge."""
    atol = accepted_gradient(evidence)
    return minimize_ridge(evidence.loss, ridge=ridge, ball=ball, atol=atol, start=start)


def _best(
    evidence: Evidence, candidates: Sequence[float], criterion: str | None, *, ball: float
) -> tuple[Solution, float]:
    """Return the fit that the criterion prefers, and its ridge."""
    d = len(evidence.statistic)
    if criterion is None:  # files have no answers of their own to thin
        in_files = evidence.differences.held is None
        criterion = "tic" if d <= MOST_FEATURES or in_files else "thinning"
    elif _validate.one_of("criterion", criterion, _CRITERIA) == "tic" and d > MOST_FEATURES:
        raise UsageError(
            f"criterion='tic' needs a matrix of features by features: at most {MOST_FEATURES} "
            f"features, got {d}. Use criterion='thinning', or give a ridge."
        )
    atol = accepted_gradient(evidence)
    path = ridge_path(evidence.loss, candidates, ball=ball, atol=atol)
    if criterion == "tic":
        # Source: docs/central.md, "Label privacy, one Gaussian release": the loss on fresh answers
        # by Takeuchi's criterion, Σ softplus(θ̂ᵀx) − T̃ᵀθ̂ + tr[(H + ΛI)⁻¹(H + V)].
        values = [
            evidence.value(found) + evidence.optimism(found, ridge)
            for ridge, found in zip(candidates, path, strict=True)
        ]
    else:
        # Source: docs/central.md, "Label privacy, one Gaussian release": fit on T₁, score on T₂.
        scores = np.zeros(len(candidates))
        for part in evidence.thinned(path[len(path) // 2].theta, _DRAWS, "ridge"):
            fits = ridge_path(part.fitted.loss, candidates, ball=ball, atol=atol)
            scores += [part.score(found.theta) for found in fits]
        values = scores.tolist()
    best = int(np.argmin(values))
    return path[best], candidates[best]


# Answers one by one.

_MANY = 50_000  # pairs above which one held-out part is precise enough
_FEW_ROWS, _MANY_ROWS = 16, 128  # rows a feature that decide on a method; that errors rest on
_HOPELESS = 0.96  # efficiency at a glance above which the whole one is not below _CLEARLY
_CLEARLY = 0.9  # share of the debiased variance that refining must promise to stay below
_KNOWN = 0.1  # share of ‖θ̂‖² that the variance of a refined estimate may have at most


def fit_design(
    design: Design, *, ridge: float | None, ball: float, level: int = 0, method: str = "auto"
) -> Fit:
    """Return the certified estimate."""
    _validate.one_of("method", method, METHODS)
    candidates = 1
    if ridge is None:
        ridge = choose_ridge(design, ball=ball, level=level)
        candidates = len(ANSWER_POWERS)
    center = minimize_ridge(design.loss, ridge=ridge, ball=ball, atol=accepted_gradient(design))
    found = Fit(
        weights=center.theta, solution=center, center=center, ridge=ridge, candidates=candidates
    )
    if method == "mixture":
        return _refined(design, found, ball)
    if method == "auto" and _refining_pays(design, center, ridge):
        with suppress(ConvergenceError):  # the debiased estimate is certified already
            refined = _refined(design, found, ball)
            # With too few answers the mixture likelihood is flat far from the truth, and refining
            # there raises the error by a third.
            theta = refined.solution.theta
            known = _covariance(design, refined.solution, ridge, "mixture", rows=_FEW_ROWS)
            return refined if float(np.trace(known)) <= _KNOWN * float(theta @ theta) else found
    return found


def choose_ridge(design: Design, *, ball: float, level: int = 0) -> float:
    """A ridge by the debiased likelihood of held-out randomized answers; it costs nothing."""
    # Of the candidates whose likelihood is within one standard error of the best, the one nearest
    # to L²/κ² is taken: with little signal the best alone is mostly noise. L²/κ² is the prior that
    # a reward of one answer is about 1 (θ ∼ N(0, I/L²)), inflated as debiasing inflates the noise.
    candidates = ridges_around((design.feature_bound / (1 - 2 * design.flip_probability)) ** 2)
    folds = design.folds(level)
    losses: list[np.ndarray] = []
    for fold in range(1 if len(design) > _MANY else FOLDS):
        inside, outside = design.part(folds != fold), design.part(folds == fold)
        if len(inside) and len(outside):
            path = ridge_path(inside.loss, candidates, ball=ball, atol=accepted_gradient(inside))
            targets = debias(outside.answers, outside.flip_probability)
            columns = [debiased_loss(outside.differences @ at.theta, targets) for at in path]
            losses.append(np.stack(columns, axis=1))
    if not losses:
        return candidates[ANSWER_POWERS.index(0)]
    rows = np.concatenate(losses)
    excess = rows - rows[:, [int(rows.sum(axis=0).argmin())]]
    error = excess.std(axis=0) * np.sqrt(len(rows))
    close = np.flatnonzero(excess.sum(axis=0) <= error)
    return candidates[min(close, key=lambda index: abs(ANSWER_POWERS[index]))]


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
        MixtureLogistic(design.differences, design.answers, design.flip_probability),
        found.center.theta,
        ridge=_mixture_ridge(design, found.ridge),
        atol=(1 - 2 * design.flip_probability) * accepted_gradient(design),
        ball=ball,
    )
    return replace(found, weights=solution.theta, solution=solution, method="mixture")


def _mixture_ridge(design: Design, ridge: float) -> float:
    """Return κ² times the debiased ridge."""
    # Near Δ = 0 the mixture loss is κ² times as steep, so that both fits then shrink alike.
    return (1 - 2 * design.flip_probability) ** 2 * ridge


def _refining_pays(design: Design, center: Solution, ridge: float) -> bool:
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


def _covariance(
    design: Design, solution: Solution, ridge: float, method: str, *, rows: int
) -> Square:
    """Return a covariance at a solution, from at least so many rows a feature."""
    step = max(1, len(design) // (rows * design.differences.shape[1]))
    given = design.differences, solution.theta, design.flip_probability
    if method == "debiased":
        return debiased_covariance(*given, ridge=ridge + solution.multiplier, step=step)
    return mixture_covariance(*given, ridge=_mixture_ridge(design, ridge), step=step)


_MOST_STEPS = 200
_MOST_HALVINGS = 40


def refine(
    loss: MixtureLogistic, start: Vector, *, ridge: float, atol: float, ball: float
) -> Solution:
    """Return a stationary point of the mixture likelihood plus ridge, certified."""
    # The likelihood is not convex, so the search starts at the debiased estimate, which is close
    # where there are many answers; a single step from there is already efficient. It is Newton's
    # method with step-halving; where the Hessian is not positive definite, the expected one takes
    # its place (Fisher scoring). A step is halved until the loss falls and the ball holds.
    # Source: docs/local.md, mixture likelihood; method of scoring, Fisher 1925.
    _validate.positive("ridge", ridge)
    theta, passes = np.array(start, dtype=np.float64), 0

    def objective(at: np.ndarray) -> float:
        return loss.value(at) + 0.5 * ridge * float(at @ at)

    while passes < _MOST_STEPS:
        gradient = loss.gradient(theta) + ridge * theta
        size = float(np.linalg.norm(gradient))
        if size <= atol:
            return Solution(theta=theta, gradient_norm=size, multiplier=0.0, passes=passes)
        curvature = loss.hessian(theta) + ridge * np.eye(len(theta))
        try:
            np.linalg.cholesky(curvature)
        except np.linalg.LinAlgError:  # not positive definite: what is expected of it always is
            margins = np.asarray(loss.differences @ theta)
            information = mixture_information(margins, loss.flip_probability)
            [expected] = weighted_grams(loss.differences, information)
            curvature = expected + ridge * np.eye(len(theta))
        direction = -np.linalg.solve(curvature, gradient)
        value, slope = objective(theta), float(gradient @ direction)
        rounding = 1e-12 * (1 + abs(value))
        for share in 0.5 ** np.arange(_MOST_HALVINGS):
            following = np.asarray(theta + share * direction)
            most = value + 1e-4 * share * slope + rounding
            if norm(following) <= ball and objective(following) <= most:
                break
        else:
            break
        theta, passes = following, passes + 1
    raise ConvergenceError(
        f"No stationary point of the mixture likelihood was found within atol={atol!r} inside the "
        f"ball of {ball!r}; nothing was returned. Use method='debiased', or raise the ridge."
    )
