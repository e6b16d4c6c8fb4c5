"""How much one draw of a multi-armed policy loses on one data set, over all its neighbors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sordino import _validate
from sordino.auditing._arm_changes import ArmRule, Arms, whole_counts
from sordino.auditing.instance_loss import InstanceLoss
from sordino.errors import DataError, UsageError
from sordino.mechanisms._penalty import penalty_step
from sordino.preferences.bandit_logs import BanditLogs

__all__ = ["arm_class_bound", "arm_delta", "arm_delta_of", "arm_losses", "arm_losses_of"]

_PUBLIC = ("arms", "reward range", "temperature", "shrinkage", "center", "penalty", "reference")
_EVERY = "every added or removed record"


def arm_losses(  # noqa: PLR0913 (each is one public setting of the policy)
    counts: Any,
    sums: Any,
    least: Any,
    most: Any,
    *,
    temperature: float,
    reward_range: float,
    shrinkage: float = 0.0,
    center: float | None = None,
    penalty: float = 0.0,
    reference: Any = None,
) -> InstanceLoss:
    """Return the privacy loss of one draw on this data set, over every added or removed record.

    The policy draws arm a with chance ∝ reference(a)·exp(f(a)/temperature), where
    f(a) = (S + λ·center)/(N + λ) − penalty/√(N + λ), N the count, S the sum, λ the shrinkage.
    Without shrinkage an arm that was never pulled is never drawn; then an arm with no record or
    one record makes the loss infinite, as its first or last record decides whether it can be
    drawn at all. The time is linear in the number of arms.

    Args:
        counts: How often each of k arms was pulled, private, k ≥ 1.
        sums: Summed rewards of each arm; every reward counts from the lower end of its range.
        least: Smallest reward of each arm; any finite number where it was never pulled.
        most: Largest reward of each arm, likewise.
        temperature: KL strength in units of reward, > 0.
        reward_range: Upper minus lower end of the rewards, > 0.
        shrinkage: λ ≥ 0; 0 is the plain mean.
        center: What an arm without records is worth, from the lower end of the rewards;
            reward_range / 2 if left out.
        penalty: What is taken off a score for uncertainty, ≥ 0.
        reference: k positive probabilities; uniform if left out.

    Returns:
        The exact supremum over all neighbors of these data, up to floating point; confidential.

    Raises:
        UsageError: A setting is out of range.
        DataError: Arrays disagree, or no records have such sums; without shrinkage, fewer than
            two records.

    Source:
        docs/intrinsic.md, "Per-instance losses".

    Example:
        >>> arm_losses([3, 2], [1.5, 1.0], [0.2, 0.0], [0.9, 1.0], temperature=0.5,
        ...            reward_range=1.0)
        InstanceLoss(confidential: privacy loss of one draw, over every added or removed record)
    """
    rule = ArmRule(
        temperature=temperature,
        reward_range=reward_range,
        shrinkage=shrinkage,
        center=center,
        penalty=penalty,
        reference=reference,
    )
    loss = Arms.of(counts, sums, least, most, rule=rule).loss()
    return InstanceLoss(loss, about="privacy loss of one draw", changes=_EVERY, public=_PUBLIC)


def arm_delta(
    counts: Any, sums: Any, least: Any, most: Any, *, epsilon: float, **settings: Any
) -> InstanceLoss:
    """Return the δ of one draw on this data set at an ε, over every added or removed record.

    It is the largest Σ max(0, P − e^ε·P′) between the policy of these data and that of a
    neighbor, both ways round: two events suffice, the moved arm and all others.

    Args:
        counts: As in :func:`arm_losses`, and so are the three below.
        sums: Summed rewards of each arm.
        least: Smallest reward of each arm.
        most: Largest reward of each arm.
        epsilon: Bound on the privacy loss, finite and ≥ 0.
        **settings: Those of :func:`arm_losses`.

    Raises:
        UsageError: A setting is out of range.
        DataError: As in :func:`arm_losses`.

    Source:
        docs/intrinsic.md, "Per-instance losses".
    """
    bound = _validate.non_negative("epsilon", epsilon)
    if bound == math.inf:
        raise UsageError("epsilon must be finite, got inf.")
    delta = Arms.of(counts, sums, least, most, rule=ArmRule(**settings)).delta(bound)
    about = f"δ of one draw at ε = {bound:g}"
    return InstanceLoss(delta, about=about, changes=_EVERY, public=(*_PUBLIC, "epsilon"))


def arm_losses_of(logs: BanditLogs, **settings: Any) -> InstanceLoss:
    """Return what :func:`arm_losses` returns for the records of bandit logs.

    Args:
        logs: Raw records; arms and reward range are their public part.
        **settings: Those of :func:`arm_losses`, without ``reward_range``.

    Raises:
        UsageError: A setting is out of range.
        DataError: Without shrinkage, fewer than two records.
    """
    return arm_losses(*_gathered(logs), reward_range=_width(logs), **settings)


def arm_delta_of(logs: BanditLogs, *, epsilon: float, **settings: Any) -> InstanceLoss:
    """Return what :func:`arm_delta` returns for the records of bandit logs.

    Args:
        logs: Raw records; arms and reward range are their public part.
        epsilon: Bound on the privacy loss, finite and ≥ 0.
        **settings: Those of :func:`arm_losses`, without ``reward_range``.

    Raises:
        UsageError: A setting is out of range.
        DataError: Without shrinkage, fewer than two records.
    """
    return arm_delta(*_gathered(logs), epsilon=epsilon, reward_range=_width(logs), **settings)


def _width(logs: BanditLogs) -> float:
    low, high = logs.reward_range
    return high - low


def _gathered(
    logs: BanditLogs,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return counts, sums, least and largest reward of every arm, from the lower end."""
    k, rewards = len(logs.catalogue.names), logs.rewards - logs.reward_range[0]
    counts = np.bincount(logs.arms, minlength=k)
    sums = np.bincount(logs.arms, weights=rewards, minlength=k)
    least, most = np.full(k, _width(logs)), np.zeros(k)
    np.minimum.at(least, logs.arms, rewards)
    np.maximum.at(most, logs.arms, rewards)
    return counts, sums, least, most


def arm_class_bound(
    counts: Any,
    *,
    temperature: float,
    reward_range: float,
    shrinkage: float = 0.0,
    penalty: float = 0.0,
) -> InstanceLoss:
    """Return a bound on :func:`arm_losses` for all data sets whose rarest arm is as rare.

    With m the least count and λ the shrinkage it is R/(m + λ) + penalty·(1/√(m + λ − 1) −
    1/√(m + λ)), over the temperature, for any rewards and any reference. It reads the private
    least count, so it is as confidential.

    Args:
        counts: How often each arm was pulled, private.
        temperature: KL strength in units of reward, > 0.
        reward_range: Upper minus lower end of the rewards, > 0.
        shrinkage: λ ≥ 0.
        penalty: What is taken off a score for uncertainty, ≥ 0.

    Raises:
        UsageError: A setting is out of range.
        DataError: An arm was never pulled, or m + λ ≤ 1: there is no such bound then.

    Source:
        docs/intrinsic.md, "Per-instance losses".

    Example:
        >>> arm_class_bound([3, 2, 4], temperature=0.5, reward_range=1.0).for_curator_only()
        1.0
    """
    rule = ArmRule(
        temperature=temperature, reward_range=reward_range, shrinkage=shrinkage, penalty=penalty
    )
    pulled = whole_counts(counts)
    fewest = int(pulled.min()) if len(pulled) else 0
    left = fewest - 1 + rule.shrinkage
    if not (fewest > 0 and left > 0):
        raise DataError(
            "counts: without shrinkage every arm needs two records for a bound over its class, "
            "with shrinkage one. Nothing was computed; arm_losses needs no such thing."
        )
    size = rule.reward_range / (left + 1)
    size += rule.penalty * penalty_step(left)
    about = "bound on the privacy loss of one draw"
    changes = "every added or removed record of all data sets with the same least count"
    return InstanceLoss(size / rule.temperature, about=about, changes=changes, public=_PUBLIC)
