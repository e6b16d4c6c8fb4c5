"""The features of a reward's training pairs, read a few batches at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Integer

from sordino.errors import PrivacyError, UsageError
from sordino.language.models.tokens import Dialogue, DialogueTokens, Overlong
from sordino.language.rewards._last_tokens import read_dialogues, watched
from sordino.language.rewards.uncertainty import LastLayerUncertainty
from sordino.preferences.private_pairs import PrivatePairs
from sordino.preferences.records import Text

if TYPE_CHECKING:
    from sordino.language.rewards.text_rewards import TextRewardModel

__all__ = ["measured_uncertainty", "numbered"]

_BATCHES = 16  # of pairs, whose features are held at once


def measured_uncertainty(
    reward: TextRewardModel, pairs: PrivatePairs, *, overlong: Overlong, **settings: Any
) -> LastLayerUncertainty:
    """Return the uncertainty that its training pairs leave of a reward.

    Raises:
        PrivacyError: These are raw judgments.
        UsageError: They are not the answers behind the reward, or a setting is out of range.
        DataError: A pair cannot be read.
    """
    _refuse_other_pairs(reward, pairs)
    return LastLayerUncertainty.of(
        _features(reward, pairs, overlong),
        reward.model.score.weight.detach().double().cpu().numpy()[0],
        flip_probability=pairs.flip_probability,
        **settings,
    )


def numbered(texts: Sequence[Text]) -> Integer[np.ndarray, " n"]:
    """Return a number for each text, from 0 and the same for equal ones."""
    known: dict[str, int] = {}
    written = (json.dumps(text, sort_keys=True) for text in texts)
    return np.array([known.setdefault(text, len(known)) for text in written], dtype=np.int64)


def _refuse_other_pairs(reward: TextRewardModel, pairs: Any) -> None:
    """Refuse raw pairs, and those that the reward was not trained on."""
    if not isinstance(pairs, PrivatePairs):
        raise PrivacyError(
            "Uncertainty is measured on the randomized answers that the reward was trained on, "
            f"got {type(pairs).__name__}. Nothing was measured. Pass what sordino.privatize "
            "returned."
        )
    if pairs.artifact != reward.artifact:
        raise UsageError(
            "These are not the answers that this reward was trained on, so they do not say what "
            "it learned. Nothing was measured. Pass the same private pairs."
        )


def _features(
    reward: TextRewardModel, pairs: PrivatePairs, overlong: Overlong
) -> Iterator[tuple[Float[np.ndarray, "b d"], Float[np.ndarray, "b d"]]]:
    """Yield the features of first and second answers, one row for each person and question."""
    tokens = DialogueTokens(reward.tokenizer, reward.max_length, overlong=overlong)
    first, second, rows = tokens.pairs(pairs)
    once = pairs.first_rows()
    kept = [index for index, row in enumerate(rows) if once[row]]
    size = _BATCHES * reward.batch_size
    starts = range(0, len(kept), size)
    for start in watched(starts, texts=2 * len(kept), steps=len(starts), what="Measuring"):
        some = kept[start : start + size]
        both = _stacked(reward, [*(first[i] for i in some), *(second[i] for i in some)])
        yield both[: len(some)], both[len(some) :]


def _stacked(reward: TextRewardModel, dialogues: list[Dialogue]) -> Float[np.ndarray, "n d"]:
    """Return the feature of each dialogue, in order."""
    stacked = np.empty((len(dialogues), reward.model.score.in_features))
    for reading in read_dialogues(reward.model, dialogues, batch_size=reward.batch_size):
        stacked[reading.where] = reading.features
    return stacked
