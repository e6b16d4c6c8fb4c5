"""How strong the penalty of a fit should be, from randomized answers that the fit did not see.

How strong the penalty should be, from the one sum that was released; it costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from scipy.sparse import issparse

from sordino import _validate
from sordino.errors import UsageError
from sordino.preferences.folds import FOLDS

from .evidence import MOST_FEATURES, Design, LabelEvidence, inside_ball, shrunk_weights
from .pair_losses import debias, debiased_loss
from .solver import Solution, minimize_ridge, ridge_path

_POWERS = (-3, -2, -1, 0, 1, 2)  # of four, around the ridge that public settings suggest
_MANY = 50_000  # pairs above which one held-out part is precise enough
_ATOL = 1e-7  # accepted norm of the gradient, per pair and bound on its features


@runtime_checkable
class Bounded(Protocol):
    """Observations whose features have a known bound."""

    @property
    def feature_bound(self) -> float:
        """Return the bound on the norm of one answer's features."""
        ...

    def __len__(self) -> int:
        """Return the number of observations."""
        ...


def accepted_gradient(design: Bounded) -> float:
    """Return the accepted norm of the gradient: in the unit of the features, whatever it is."""
    return _ATOL * len(design) * design.feature_bound


def ridges(feature_bound: float, flip_probability: float) -> list[float]:
    """Return the ridges that are tried: powers of four around L²/κ²."""
    # L²/κ² is the prior that a reward of one answer is about 1 (θ ∼ N(0, I/L²)), inflated as
    # debiasing inflates the noise. It uses public settings only.
    kappa = 1 - 2 * flip_probability
    return ridges_around((feature_bound / kappa) ** 2, _POWERS)


def ridges_around(middle: float, powers: Sequence[int]) -> list[float]:
    """Return a ridge for each power of four, around one that public settings suggest."""
    return [middle * 4.0**power for power in powers]


def choose_ridge(design: Design, *, ball: float, level: int = 0) -> float:
    """A ridge by the debiased likelihood of held-out randomized answers; it costs nothing."""
    # Of the candidates whose likelihood is within one standard error of the best, the one nearest
    # to L²/κ² is taken: with little signal the best alone is mostly noise.
    candidates = ridges(design.feature_bound, design.flip_probability)
    folds = design.folds(level)
    losses: list[np.ndarray] = []
    for fold in range(1 if len(design) > _MANY else FOLDS):
        inside, outside = design.part(folds != fold), design.part(folds == fold)
        if len(inside) and len(outside):
            path = ridge_path(inside.loss, candidates, ball=ball, atol=accepted_gradient(inside))
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


CRITERIA = ("tic", "thinning")
_FEW = 256  # directions in which dense vectors cost no more than sparse ones
_DRAWS = 10  # splits of the sum that thinning averages over
_LABEL_POWERS = tuple(range(-3, 5))  # of four, around the ridge that public settings suggest


@runtime_checkable
class Released(Protocol):
    """What is known of labels after their release, wherever the public vectors are."""

    @property
    def factor(self) -> Float[np.ndarray, "d r"]:
        """Return F; the noise has covariance FFᵀ."""
        ...

    @property
    def covariance(self) -> Float[np.ndarray, "d d"]:
        """Return V, the covariance of the noise."""
        ...

    @property
    def inflation(self) -> float:
        """Return the variance of the sum over that of what was released."""
        ...

    @property
    def feature_bound(self) -> float:
        """Return the bound on the norm of one answer's features."""
        ...

    @property
    def squares(self) -> float:
        """Return Σ‖x‖²."""
        ...

    def information(self, theta: Float[np.ndarray, " d"]) -> Float[np.ndarray, "d d"]:
        """Return H = Σ σ′(θᵀx)xxᵀ, from enough rows."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelFit:
    """A certified estimate from one released sum."""

    solution: Solution  # the certified minimizer with a ridge: the center of a confidence set
    # What is used: the same, or what is left of it without what noise explains.
    weights: Float[np.ndarray, " d"]
    ridge: float  # Λ
    candidates: int  # how many ridges were tried on the same sum


def fit_statistic(
    evidence: LabelEvidence,
    *,
    ridge: float | None = None,
    ball: float,
    criterion: str | None = None,
) -> LabelFit:
    """Return the certified estimate; whatever is tried, it costs nothing more."""
    seen, basis = evidence.in_span() if _is_wide(evidence) else (evidence, None)
    candidates = label_ridges(evidence) if ridge is None else [ridge]
    shrinks = ridge is None and criterion is None and len(seen.statistic) <= MOST_FEATURES
    if shrinks:
        ridge = public_ridge(evidence)
        candidates = [ridge]
    if ridge is None:
        chosen = _checked(criterion, len(seen.statistic))
        found, ridge = _best(seen, candidates, chosen, ball=ball)
    else:
        found = _fitted(seen, ridge, ball)
    weights = found.theta
    if shrinks:
        squares = seen.squares / len(seen)
        shift = ridge + found.multiplier
        weights = shrunk_weights(found.theta, shift, seen.mean_and_spread, mean_square=squares)
        weights = inside_ball(weights, ball)
    if basis is not None:  # certified for all features, and not in the span alone
        found = _fitted(evidence, ridge, ball, start=basis @ found.theta)
        weights = basis @ weights if shrinks else found.theta
    return LabelFit(solution=found, weights=weights, ridge=ridge, candidates=len(candidates))


def _fitted(
    evidence: LabelEvidence,
    ridge: float,
    ball: float,
    start: Float[np.ndarray, " d"] | None = None,
) -> Solution:
    """Return the certified minimizer with one ridge."""
    atol = accepted_gradient(evidence)
    return minimize_ridge(evidence.loss, ridge=ridge, ball=ball, atol=atol, start=start)


def _best(
    evidence: LabelEvidence, candidates: Sequence[float], criterion: str, *, ball: float
) -> tuple[Solution, float]:
    """Return the fit that the criterion prefers, and its ridge."""
    path = ridge_path(evidence.loss, candidates, ball=ball, atol=accepted_gradient(evidence))
    known = evidence, candidates, path
    values = _by_tic(*known) if criterion == "tic" else _by_thinning(*known, ball=ball)
    best = int(np.argmin(values))
    return path[best], candidates[best]


def _is_wide(evidence: LabelEvidence) -> bool:
    """Return whether coordinates in the span of the vectors save work."""
    d, rank = evidence.factor.shape
    return 2 * rank <= d and (rank <= _FEW or not issparse(evidence.differences))


def _checked(criterion: str | None, d: int) -> str:
    """Return how the ridge is chosen; refuse matrices that are too large."""
    if criterion is None:
        return "tic" if d <= MOST_FEATURES else "thinning"
    if _validate.one_of("criterion", criterion, CRITERIA) == "tic" and d > MOST_FEATURES:
        raise UsageError(
            f"criterion='tic' needs a matrix of features by features: at most {MOST_FEATURES} "
            f"features, got {d}. Use criterion='thinning', or give a ridge."
        )
    return criterion


def label_ridges(evidence: Released) -> list[float]:
    """Return the ridges that are tried: powers of four around L²·tr(G/4 + V)/tr(G/4)."""
    # L² is the prior that a reward of one answer is about 1 (θ ∼ N(0, I/L²)), inflated as much as
    # the noise inflates the variance of Σ yx. It is made of public numbers only, G = Σ xxᵀ.
    added = float(np.sum(evidence.factor**2))
    return ridges_around(
        evidence.feature_bound**2 * (1 + 4 * added / evidence.squares), _LABEL_POWERS
    )


def public_ridge(evidence: Released) -> float:
    """Return the ridge in the middle of :func:`label_ridges`, which no label decides."""
    return label_ridges(evidence)[_LABEL_POWERS.index(0)]


def _by_tic(
    evidence: LabelEvidence, candidates: Sequence[float], path: Sequence[Solution]
) -> Float[np.ndarray, " k"]:
    """Return the loss on fresh answers by Takeuchi's criterion, of each candidate."""
    # Source: docs/central.md, "Label privacy, one Gaussian release": Σ softplus(θ̂ᵀx) − T̃ᵀθ̂ +
    # tr[(H + ΛI)⁻¹(H + V)].
    values = [
        evidence.loss.value(found.theta) + effective_features(evidence, found, ridge)
        for ridge, found in zip(candidates, path, strict=True)
    ]
    return np.array(values)


def _by_thinning(
    evidence: LabelEvidence,
    candidates: Sequence[float],
    path: Sequence[Solution],
    *,
    ball: float,
) -> Float[np.ndarray, " k"]:
    """Return the loss of fits on parts of the sum, judged by independent parts."""
    # Source: docs/central.md, "Label privacy, one Gaussian release": fit on T₁, score on T₂.
    scores = np.zeros(len(candidates))
    atol = accepted_gradient(evidence)
    for part in evidence.thinned(path[len(path) // 2].theta, _DRAWS, "ridge"):
        fits = ridge_path(part.fitted.loss, candidates, ball=ball, atol=atol)
        scores += [part.score(found.theta) for found in fits]
    return scores


def effective_features(evidence: Released, solution: Solution, ridge: float) -> float:
    """Return by how much a fit flatters itself on the sum it was made of."""
    # Source: docs/central.md, "Label privacy, one Gaussian release": tr[(H + ΛI)⁻¹(H + V)], from
    # Stein's identity, the trace of ∂θ̂/∂T̃ · Cov(T̃). Where the ball binds, with its multiplier in
    # Λ and without the direction of θ̂, in which the fit cannot move.
    bend = evidence.information(solution.theta)
    return evidence.inflation * optimism(bend, bend + evidence.covariance, solution, ridge)


def optimism(
    bend: Float[np.ndarray, "d d"],
    spread: Float[np.ndarray, "d d"],
    solution: Solution,
    ridge: float,
) -> float:
    """Return tr[(H + ΛI)⁻¹S]: by how much a fit flatters itself on a sum of covariance S."""
    # Source: docs/central.md, "Label privacy, one Gaussian release": tr[(H + ΛI)⁻¹(H + V)]; with
    # the ball as `effective_features` says.
    shift = ridge + solution.multiplier
    response = np.linalg.inv(bend + shift * np.eye(len(bend)))
    if solution.multiplier > 0:
        along = response @ solution.theta
        response -= np.outer(along, along) / (solution.theta @ along)
    return float(np.sum(response * spread))
