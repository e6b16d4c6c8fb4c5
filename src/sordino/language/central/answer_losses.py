"""The loss of direct preference optimization, unit by unit, by the model's own forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from sordino.language.central.unit_rows import TokenPair, UnitPairs, preference_losses
from sordino.language.models.completions import (
    Completions,
    answer_log_probabilities,
    evaluating,
)

__all__ = ["log_ratio_gaps", "policy_losses", "with_reference"]


def policy_losses(
    model: Any, units: Sequence[UnitPairs], *, temperature: float, padding: int
) -> Any:
    """Return the loss of every unit, shape (units,): the sum over its pairs.

    Args:
        model: The policy.
        units: Each with its pairs, which know what the reference makes of them.
        temperature: KL strength, in units of reward.
        padding: The token that pads.

    Source:
        Rafailov et al. (2023), equation 7: Σ softplus(Δ) − yΔ with Δ = temperature (there
        called β) times the gap of the log ratios to the reference.
    """
    pairs = [pair for unit in units for pair in unit]
    gaps = log_ratio_gaps(model, pairs, padding=padding)
    reference = torch.tensor([pair.reference for pair in pairs], dtype=gaps.dtype)
    return preference_losses(temperature * (gaps - reference.to(gaps.device)), units)


def log_ratio_gaps(model: Any, pairs: Sequence[TokenPair], *, padding: int) -> Any:
    """Return by how much likelier the first answer of each pair is, in nats, shape (pairs,).

    Args:
        model: Any causal model.
        pairs: At least one.
        padding: The token that pads.
    """
    first = [(pair.first, pair.answers[0]) for pair in pairs]
    second = [(pair.second, pair.answers[1]) for pair in pairs]
    device = next(model.parameters()).device
    completions = _completions(first + second, padding)
    both = answer_log_probabilities(model, Completions(*(one.to(device) for one in completions)))
    one, other = both.chunk(2)
    return one - other


def with_reference(model: Any, units: Sequence[UnitPairs], *, padding: int) -> list[UnitPairs]:
    """Return the units with what the reference makes of their pairs, each of them read alone.

    Where the model has adapters, it counts as it is with them.

    Args:
        model: The reference, which is left as it is.
        units: Each with its pairs.
        padding: The token that pads.
    """

    def known(pair: TokenPair) -> TokenPair:
        """Return a pair with its gap: beside others it would be padded, and rounded otherwise."""
        return pair._replace(reference=float(log_ratio_gaps(model, [pair], padding=padding)))

    with torch.no_grad(), evaluating(model):
        return [tuple(known(pair) for pair in unit) for unit in units]


def _completions(rows: Sequence[tuple[list[int], int]], padding: int) -> Completions:
    """Return prompts, padded on the left, and answers, padded on the right."""
    prompts = [ids[: len(ids) - answer] for ids, answer in rows]
    answers = [ids[len(ids) - answer :] for ids, answer in rows]
    left, right = (max(map(len, some)) for some in (prompts, answers))
    return Completions(
        torch.tensor([[padding] * (left - len(ids)) + ids for ids in prompts]),
        torch.tensor([[0] * (left - len(ids)) + [1] * len(ids) for ids in prompts]),
        torch.tensor([ids + [padding] * (right - len(ids)) for ids in answers]),
        torch.tensor([[1] * len(ids) + [0] * (right - len(ids)) for ids in answers]),
    )
