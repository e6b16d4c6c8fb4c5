"""How strong the penalty of a fit should be, from randomized answers that the fit did not see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from sordino.preferences.folds import FOLDS
from sordino.rewards.design import Design
from sordino.rewards.likelihoods import debias, debiased_loss
from sordino.rewards.solver import Solution, ridge_path

__all__ = ["accepted_gradient", "choose_ridge", "ridges", "ridges_around"]

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
    """Return the ridges that are tried: powers of four around L²/κ².

    L²/κ² is the prior that a reward of one answer is about 1 (θ ∼ N(0, I/L²)), inflated as
    debiasing inflates the noise. It uses public settings only.

    Args:
        feature_bound: Bound L on the norm of one answer's features.
        flip_probability: Chance that an answer is not the judgment; κ = 1 − 2·flip.
    """
    kappa = 1 - 2 * flip_probability
    return ridges_around((feature_bound / kappa) ** 2, _POWERS)


def ridges_around(middle: float, powers: Sequence[int]) -> list[float]:
    """Return a ridge for each power of four, around one that public settings suggest."""
    return [middle * 4.0**power for power in powers]


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
