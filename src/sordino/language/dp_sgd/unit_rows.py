"""From raw pairs to units, and from units to a batch: nothing of it is ever written or logged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.nn.functional import softplus
from trl.trainer.reward_trainer import DataCollatorForPreference

from sordino.errors import DataError, PrivacyError, UsageError
from sordino.language.dp_sgd.privacy_terms import CentralPrivacy
from sordino.language.models.tokens import Dialogue, DialogueTokens
from sordino.preferences.pairs import Pairs, PrivatePairs
from sordino.privacy.events import UNDECIDED

__all__ = [
    "TokenPair",
    "UnitPairs",
    "preference_losses",
    "reward_losses",
    "units_of",
]


class TokenPair(NamedTuple):
    """Both answers of a pair after their prompt, and how much the first one is preferred."""

    first: list[int]  # tokens of the prompt, then of the first answer
    second: list[int]  # likewise with the second answer
    # 1 where the first answer is preferred, 0 where the second one is, 1/2 for neither.
    liked: float
    answers: tuple[int, int] = (0, 0)  # how many of the last tokens of each are the answer
    reference: float = 0.0  # by how much the reference finds the first answer likelier, in nats


UnitPairs: TypeAlias = tuple[TokenPair, ...]
"""All pairs of one record or person that are used."""


def units_of(pairs: Any, tokens: DialogueTokens, privacy: CentralPrivacy) -> list[UnitPairs]:
    """Return the pairs of every unit, in the order of the data."""
    if isinstance(pairs, PrivatePairs):
        raise UsageError(
            "train_dataset holds answers that are randomized already: no gradient needs to be "
            "clipped. Nothing was trained. Train with PrivateRewardTrainer, which spends nothing."
        )
    if not isinstance(pairs, Pairs):
        raise UsageError(
            f"train_dataset must be raw pairs, from sordino.read_pairs, got {type(pairs).__name__}."
            " Nothing was trained."
        )
    pairs.refuse_other_order()
    read, rows = _read(pairs, tokens)
    if privacy.unit == "record" or not len(pairs):
        return [(pair,) for pair in read]
    if pairs.persons is None or privacy.cap is None:
        raise PrivacyError(
            "unit='person' hides all pairs of a person, and the pairs do not say whose they are. "
            "Nothing was trained. Read them with person ids, or use unit='record'."
        )
    people: dict[str, list[TokenPair]] = {}
    for pair, row in zip(read, rows, strict=True):
        people.setdefault(pairs.persons[row], []).append(pair)
    return [tuple(theirs[: privacy.cap]) for theirs in people.values()]


def _read(pairs: Pairs, tokens: DialogueTokens) -> tuple[list[TokenPair], list[int]]:
    """Return pairs as tokens, and the rows that they are of."""
    try:
        first, second, rows = tokens.pairs(pairs, least=0)  # to refuse nobody would tell of one
    except DataError:
        raise DataError(
            "A pair holds no texts, or an answer that is empty or longer than the model reads; "
            "which one is not said, as records are private. Nothing was trained. Remove such "
            "pairs, or leave those that are too long out with overlong='drop'."
        ) from None
    liked = [0.5 if label == UNDECIDED else float(label) for label in pairs.labels[rows]]
    both = zip(first, second, liked, strict=True)
    return [_token_pair(*one) for one in both], rows


def _token_pair(first: Dialogue, second: Dialogue, liked: float) -> TokenPair:
    """Return both answers after their prompt."""
    one, other = ([*each.prompt, *each.answer] for each in (first, second))
    return TokenPair(one, other, liked, (len(first.answer), len(second.answer)))


def reward_losses(model: Any, units: Sequence[UnitPairs], *, padding: int) -> Any:
    """Return the loss of every unit, shape (units,): the sum over its pairs."""
    # Source: Bradley, Terry (1952): Σ softplus(Δ) − yΔ over the pairs of a unit, with Δ the reward
    # of the first answer less that of the second.
    examples = [
        {"chosen_ids": pair.first, "rejected_ids": pair.second} for unit in units for pair in unit
    ]
    batch = DataCollatorForPreference(padding)(examples)
    device = next(model.parameters()).device
    inputs = {name: batch[name].to(device) for name in ("input_ids", "attention_mask")}
    rewards = model(**inputs, use_cache=False).logits.squeeze(-1)
    first, second = rewards.chunk(2)
    return preference_losses(first - second, units)


def preference_losses(margins: Any, units: Sequence[UnitPairs]) -> Any:
    """Return the loss of every unit, shape (units,): the sum over its pairs."""
    # Source: Bradley, Terry (1952): Σ softplus(Δ) − yΔ over the pairs of a unit.
    liked = torch.tensor([pair.liked for unit in units for pair in unit], device=margins.device)
    owners = [number for number, unit in enumerate(units) for _ in unit]
    losses = torch.zeros(len(units), device=margins.device, dtype=margins.dtype)
    each = softplus(margins) - liked * margins
    return losses.index_add(0, torch.tensor(owners, device=margins.device), each)
