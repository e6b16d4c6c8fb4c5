"""The losses of randomized answers, for gradients: what ``rewards.likelihoods`` has for arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch.nn.functional import logsigmoid, softplus

from sordino.errors import UsageError

__all__ = ["LOSSES", "PreferenceLoss", "debiased_preference_loss", "mixture_preference_loss"]

PreferenceLoss: TypeAlias = Callable[[Any, float], Any]
"""From margins r(preferred) − r(other), by the randomized answer, and its flip probability."""


def debiased_preference_loss(margins: Any, flip_probability: float) -> Any:
    """Return the loss of each margin whose mean over the flips is that of the true answer."""
    # Source: docs/local.md, debiased likelihood: softplus(Δ) − (1 − f)Δ/(1 − 2f).
    flip = _flips(flip_probability)
    return softplus(margins) - margins * ((1 - flip) / (1 - 2 * flip))


def mixture_preference_loss(margins: Any, flip_probability: float) -> Any:
    """Return minus the log-likelihood of each randomized answer; not convex."""
    # Source: docs/local.md, mixture likelihood: −log[(1 − f)σ(Δ) + fσ(−Δ)].
    flip = torch.tensor(_flips(flip_probability), dtype=margins.dtype, device=margins.device)
    return -torch.logaddexp(
        torch.log1p(-flip) + logsigmoid(margins), torch.log(flip) + logsigmoid(-margins)
    )


def _flips(flip_probability: float) -> float:
    """Return a flip probability that says something."""
    if not 0 <= flip_probability < 0.5:  # noqa: PLR2004 (a fair coin says nothing)
        raise UsageError(f"flip_probability must be in [0, 0.5), got {flip_probability!r}.")
    return float(flip_probability)


LOSSES: Mapping[str, PreferenceLoss] = {
    "debiased": debiased_preference_loss,
    "mixture": mixture_preference_loss,
}
"""The losses by name."""
