"""Which policy a run makes of its reward: plain, or one that distrusts it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sordino import _validate
from sordino.errors import UsageError
from sordino.policies.gibbs import CandidatePolicy, gibbs_policy
from sordino.policies.pessimism import ConfidencePolicy, pessimistic_policy
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.pairs import Pairs, PrivatePairs
from sordino.reporting.result import measure_confidence, measure_examples
from sordino.rewards.evidence import MOST_FEATURES
from sordino.rewards.model import RewardModel

NO_METRICS = {
    f"{metric}{of}": None
    for metric in ("accuracy", "negative_log_likelihood", "calibration_slope")
    for of in ("", "_standard_error")
}
"""What is said of a reward where nothing paid for more."""

NO_WINS = {"win_rate": None, "win_rate_interval": None}
"""What is said of a policy's wins where nothing paid for them."""


def refuse_settings(
    *, confidence: float | None, scale: float | None, method: str, dimension: int
) -> None:
    """Refuse settings of a policy that no reward could meet, before anything is spent."""
    if scale is not None and math.isinf(_validate.non_negative("--scale", scale)):
        raise UsageError("--scale must be finite, got inf. Nothing was done.")
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


def describe_distrust(policy: CandidatePolicy, pairs: Comparisons | None) -> dict[str, Any] | None:
    """Return what a pessimistic policy does on public texts; None if it is not one, or has none."""
    if pairs is None or not isinstance(policy, ConfidencePolicy):
        return None
    return measure_confidence(policy, pairs)


def show_examples(
    policy: CandidatePolicy, *, public: Pairs | None, released: PrivatePairs | None
) -> dict[str, Any] | None:
    """Return examples from texts that are public or were released before; None without such."""
    if public is not None:
        return measure_examples(policy, public, source="public")
    return None if released is None else measure_examples(policy, released, source="released")


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
