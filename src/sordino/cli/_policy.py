"""Which policy a run makes of its reward: plain, or one that distrusts it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sordino import _validate
from sordino.errors import UsageError
from sordino.policies.gibbs import CandidatePolicy, gibbs_policy
from sordino.policies.pessimism import ConfidencePolicy, pessimistic_policy
from sordino.rewards.design import MOST_FEATURES
from sordino.rewards.model import RewardModel

__all__ = ["describe_policy", "make_policy", "refuse_settings", "remake_policy"]


def refuse_settings(
    *, confidence: float | None, scale: float | None, method: str, dimension: int
) -> None:
    """Refuse settings of a policy that no reward could meet, before anything is spent.

    Raises:
        UsageError: A value is out of range, or of no use.
    """
    if scale is not None:
        _validate.non_negative("--scale", scale)
    square = "--confidence" if confidence is not None else "--method mixture"
    if (confidence is not None or method == "mixture") and dimension > MOST_FEATURES:
        raise UsageError(
            f"{square} needs a matrix of features by features: --dimension may be at most "
            f"{MOST_FEATURES}, got {dimension}. Nothing was done."
        )
    if confidence is None:
        if scale is not None:
            raise UsageError(
                "--scale is for the bonus of a pessimistic policy: give --confidence too, or leave "
                "it out. Nothing was done."
            )
        return
    _validate.failure_probability("--confidence", confidence, zero=False)
    if method == "mixture":
        raise UsageError(
            "--confidence needs the debiased estimate, which its set is proved for: leave --method "
            "mixture out. Nothing was done."
        )


def make_policy(
    reward: RewardModel, *, temperature: float, confidence: float | None, scale: float | None
) -> CandidatePolicy:
    """Return the Gibbs policy, or with a confidence the pessimistic one."""
    if confidence is None:
        return gibbs_policy(reward, temperature=temperature)
    return pessimistic_policy(
        reward,
        temperature=temperature,
        confidence=confidence,
        scale=1.0 if scale is None else scale,
    )


def describe_policy(policy: CandidatePolicy) -> dict[str, Any]:
    """Return what :func:`make_policy` needs to make it again, and whether it is proved."""
    if not isinstance(policy, ConfidencePolicy):
        return {"kind": "gibbs", "confidence": None, "scale": None}
    return {"kind": policy.kind, "confidence": policy.confidence, "scale": policy.scale}


def remake_policy(
    reward: RewardModel, described: Mapping[str, Any], *, temperature: float | None
) -> CandidatePolicy:
    """Return the policy of an earlier run, at its own temperature unless another is given."""
    return make_policy(
        reward,
        temperature=described["temperature"] if temperature is None else temperature,
        confidence=described.get("confidence"),
        scale=described.get("scale"),
    )
