"""What the scripts share: from comparisons of a simulated world to a private reward."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

import sordino
from sordino._random import SimulatedEntropy
from sordino.environments.preference_worlds import Judgments
from sordino.preferences.features import Matrix
from sordino.rewards.confidence import confidence_ellipsoid
from sordino.rewards.evidence import Design
from sordino.rewards.reward_fit import fit_design

NEVER = 40.0  # an epsilon at which no answer is ever flipped


def randomized(judgments: Judgments, epsilon: float, seed: int) -> Design:
    """Return what a fit sees after the coin; no ledger, for the judgments are nobody's."""
    coin = sordino.RandomizedResponse(epsilon)
    n = len(judgments.labels)
    return Design(
        differences=judgments.differences,
        answers=coin.release(judgments.labels, entropy=SimulatedEntropy(seed)),
        flip_probability=coin.flip_probability,
        feature_bound=1.0,
        questions=np.arange(n, dtype=np.uint64),
        clusters=None,
    )


def fitted(
    judgments: Judgments, *, epsilon: float, seed: int, ridge: float, ball: float
) -> sordino.RewardModel:
    """Return what ``privatize`` and ``fit_reward(method="debiased")`` make of the judgments."""
    design = randomized(judgments, epsilon, seed)
    solution = fit_design(design, ridge=ridge, ball=ball, method="debiased").solution
    coin = sordino.RandomizedResponse(epsilon)
    return sordino.RewardModel(
        weights=solution.theta,
        features=None,
        guarantee=coin.guarantee(unit="label", neighbors=sordino.REPLACE_ONE, trust="central"),
        ridge=ridge,
        ball=ball,
        gradient_norm=solution.gradient_norm,
        atol=1e-7 * len(design),
        pairs=judgments.drawn,
        ellipsoid=confidence_ellipsoid(
            design.differences,
            solution,
            flip_probability=design.flip_probability,
            ball=ball,
            ridge=ridge,
            candidates=1,
        ),
    )


def log_slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the slope of a straight line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def raw_pairs(source: object, **settings: Any) -> sordino.Pairs:
    """Return raw judgments that are read from a file or rows."""
    pairs = sordino.read_pairs(source, **settings)
    assert isinstance(pairs, sordino.Pairs)
    return pairs


def dense(rows: Matrix) -> np.ndarray:
    """Return rows of features as an array."""
    return rows if isinstance(rows, np.ndarray) else np.asarray(rows.toarray())


def versions() -> dict[str, str]:
    """Return what was measured with."""
    return {"python": platform.python_version(), "sordino": version("sordino")}
