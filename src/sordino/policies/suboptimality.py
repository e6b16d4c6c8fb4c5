"""How much better any policy could be: a bound that needs no knowledge of the best one."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.sparse import issparse

from .contexts import Contexts
from .worst_case import PlausibleRewards

__all__ = ["certified_losses", "certified_suboptimality"]

_BLOCK = 1 << 16  # candidates whose features are made dense at once


def certified_losses(
    rewards: PlausibleRewards,
    contexts: Contexts,
    chances: Float[np.ndarray, " m"],
    *,
    temperature: float | None = None,
) -> Float[np.ndarray, " n"]:
    """Return, for every context, what the best policy gains over this one at most.

    Valid for every true reward in the set, hence as often as the confidence says. It says
    nothing of the best policy, which nobody knows.

    Source:
        docs/planning.md, "Certificate": max_a θ̂ᵀ(φ_a − φ̄) + radius·‖φ_a − φ̄‖_{M⁻¹}; with a
        penalty, temperature · (log Σ reference · exp(that / temperature) + KL).

    Args:
        rewards: Which rewards may be true.
        contexts: What was chosen from.
        chances: The policy, as probabilities of all candidates.
        temperature: KL strength, if the loss is that of E r − temperature · KL.
    """
    means = contexts.means(chances)
    place = np.repeat(np.arange(len(contexts)), contexts.sizes)
    gains = np.empty(len(chances))
    for first in range(0, len(chances), _BLOCK):
        here = slice(first, first + _BLOCK)
        rows = contexts.rows[here]
        dense = rows.toarray() if issparse(rows) else rows
        gains[here] = rewards.most(dense - means[place[here]])
    if temperature is None:
        return np.asarray(np.maximum.reduceat(gains, contexts.starts))
    return _soft_losses(gains, contexts, chances, temperature)


def certified_suboptimality(
    rewards: PlausibleRewards,
    contexts: Contexts,
    chances: Float[np.ndarray, " m"],
    *,
    temperature: float | None = None,
) -> float:
    """Return what the best policy gains over this one at most, on average over contexts.

    Source:
        docs/planning.md, "Certificate".

    Args:
        rewards: Which rewards may be true.
        contexts: What was chosen from.
        chances: The policy, as probabilities of all candidates.
        temperature: KL strength, if the loss is that of E r − temperature · KL.
    """
    losses = certified_losses(rewards, contexts, chances, temperature=temperature)
    return max(float(contexts.weights @ losses), 0.0)


def _soft_losses(
    gains: Float[np.ndarray, " m"],
    contexts: Contexts,
    chances: Float[np.ndarray, " m"],
    temperature: float,
) -> Float[np.ndarray, " n"]:
    """Return temperature · (log Σ reference · exp(gain / temperature) + KL), by context."""
    top = np.maximum.reduceat(gains, contexts.starts)
    tilted = np.exp((gains - np.repeat(top, contexts.sizes)) / temperature)
    soft = np.log(np.add.reduceat(contexts.reference * tilted, contexts.starts))
    kl = np.add.reduceat(contexts.divergences(chances), contexts.starts)
    return np.asarray(top + temperature * (soft + kl))
