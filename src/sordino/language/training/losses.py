"""What a preference loss is, for every trainer of language models: a new one is a function here.

It serves randomized answers, whose flips it knows, and raw ones, which are never flipped; settings
and the command line take its name from :data:`LOSSES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from sordino.errors import UsageError

if TYPE_CHECKING:
    import torch


class PreferenceLoss(Protocol):
    """The loss of pairs, one by one."""

    def __call__(
        self,
        margins: torch.Tensor,
        flip_probability: float = 0.0,
        *,
        liked: torch.Tensor | float = 1.0,
    ) -> torch.Tensor:
        """Return losses from margins r(first) − r(second) and how far first answers are liked."""
        # 1 says that the first is liked, 0 that the second is, and 1/2 neither; the answer may have
        # been flipped with that probability.
        ...


def debiased_preference_loss(
    margins: torch.Tensor, flip_probability: float = 0.0, *, liked: torch.Tensor | float = 1.0
) -> torch.Tensor:
    """Return the loss of each margin whose mean over the flips is that of the true answer."""
    # Source: docs/local.md, debiased likelihood: softplus(Δ) − (y − f)Δ/(1 − 2f), which without
    # flips is that of Bradley and Terry (1952).
    from torch.nn.functional import softplus  # noqa: PLC0415 (names are asked for without torch)

    flip = _flips(flip_probability)
    return softplus(margins) - margins * ((liked - flip) / (1 - 2 * flip))


def _mixture_preference_loss(
    margins: torch.Tensor, flip_probability: float = 0.0, *, liked: torch.Tensor | float = 1.0
) -> torch.Tensor:
    """Return minus the log-likelihood of each randomized answer; not convex."""
    # Source: docs/local.md, mixture likelihood: −log[(1 − f)σ(Δ) + fσ(−Δ)] where y = 1.
    import torch  # noqa: PLC0415 (as above)
    from torch.nn.functional import logsigmoid  # noqa: PLC0415

    flip = torch.tensor(_flips(flip_probability), dtype=margins.dtype, device=margins.device)

    def of_liked(ahead: torch.Tensor) -> torch.Tensor:
        kept, flipped = torch.log1p(-flip) + logsigmoid(ahead), torch.log(flip) + logsigmoid(-ahead)
        return -torch.logaddexp(kept, flipped)

    return liked * of_liked(margins) + (1 - liked) * of_liked(-margins)


def _flips(flip_probability: float) -> float:
    """Return a flip probability that says something."""
    if not 0 <= flip_probability < 0.5:  # noqa: PLR2004 (a fair coin says nothing)
        raise UsageError(f"flip_probability must be in [0, 0.5), got {flip_probability!r}.")
    return float(flip_probability)


LOSSES: Mapping[str, PreferenceLoss] = {
    "debiased": debiased_preference_loss,
    "mixture": _mixture_preference_loss,
}
"""The losses by name."""
