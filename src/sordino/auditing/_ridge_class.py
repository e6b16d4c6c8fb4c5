"""A bound on what one draw of a linear policy loses, for all data sets that are as well spread."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist

from sordino import _validate
from sordino.auditing._ridge_losses import PUBLIC, UNIT, checked_penalty, checked_records
from sordino.auditing.instance_loss import InstanceLoss
from sordino.errors import DataError
from sordino.mechanisms._penalty import penalty_step
from sordino.mechanisms.ridge_sensitivity import own_reward_step

__all__ = ["ridge_class_bound"]


def ridge_class_bound(
    features: Any,
    queries: Any,
    *,
    ridge: float,
    temperature: float,
    reward_range: float,
    penalty: float = 0.0,
) -> InstanceLoss:
    """Return a bound on :func:`ridge_losses` for all data sets as well spread as this one.

    With n the number of records, l = max(ridge, λ_min(Σ) − 1) and D the largest distance of two
    actions of one question it is D·R·(κ + √n·q) + penalty·(1/√l − 1/√(l + 1)), over the
    temperature: κ bounds how far a reward of 1 moves θ, and q how far what was predicted does.
    It reads the private λ_min, so it is as confidential. All features have norm at most 1.

    Args:
        features: Features of n records, private, shape (n, d).
        queries: As in :func:`ridge_losses`.
        ridge: > 0.
        temperature: KL strength in units of reward, > 0.
        reward_range: Upper minus lower end of the rewards, > 0.
        penalty: What is taken off a score for each unit of its width, ≥ 0.

    Raises:
        UsageError: A setting is out of range.
        DataError: Arrays disagree, or a row is longer than 1.

    Source:
        docs/intrinsic.md, "Per-instance losses".
    """
    ridge, width = (
        _validate.positive("ridge", ridge),
        _validate.positive("reward_range", reward_range),
    )
    rows, _, asked = checked_records(features, np.zeros(len(features)), queries, width)
    for name, flat in (("features", rows), ("queries", asked.reshape(-1, rows.shape[1]))):
        longer = np.flatnonzero((flat**2).sum(axis=1) > UNIT**2)
        if len(longer):
            raise DataError(f"{name}: row {longer[0]} is longer than 1. Nothing was computed.")
    spread = max(pdist(actions).max(initial=0.0) for actions in asked)
    least = np.linalg.eigvalsh(rows.T @ rows)[0] + ridge
    size = max(ridge, float(least) - 1)
    moved = (
        spread * width * (own_reward_step(size) + math.sqrt(len(rows)) * _fit_reach(size, ridge))
    )
    bound = moved + checked_penalty(penalty) * penalty_step(size)
    return InstanceLoss(
        bound / _validate.positive("temperature", temperature),
        about="bound on the privacy loss of one draw",
        changes="every added or removed record of all data sets with the same least eigenvalue",
        public=PUBLIC,
    )


def _fit_reach(size: float, ridge: float) -> float:
    """Return q, the same times √(φᵀΣ⁻¹(Σ − ridge·I)Σ⁻¹φ), which bounds |θᵀφ| for each unit of ‖r‖.

    With x = φᵀΣ⁻¹φ ≤ 1/size and y = ‖Σ⁻¹φ‖² ≤ x/size it is √(y(x − ridge·y))/(1 + x), largest in
    y at x/size or, where that comes first, at x/(2·ridge), and then at the largest x.
    """
    if size > 2 * ridge:
        return math.sqrt((1 - ridge / size) / size) / (1 + size)
    return 1 / (2 * math.sqrt(ridge) * (1 + size))
