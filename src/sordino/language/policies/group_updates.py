"""Policy updates by trl's own group trainers, RLOO and GRPO, on a private reward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import datasets
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from sordino._validate import one_of
from sordino.errors import DataError
from sordino.language.models.loading import quiet, upstream
from sordino.language.models.tokens import DialogueTokens
from sordino.language.rewards.reward_functions import reward_function
from sordino.language.rewards.text_rewards import TextRewardModel
from sordino.preferences.records import Text

__all__ = ["GroupUpdate", "group_trainer"]

GroupUpdate = Literal["rloo", "grpo"]


class _SilentRLOO(RLOOTrainer):
    """trl's trainer, which tells nobody that it ran."""

    def _send_telemetry(self) -> None:
        """Send nothing."""


class _SilentGRPO(GRPOTrainer):
    """trl's trainer, which tells nobody that it ran."""

    def _send_telemetry(self) -> None:
        """Send nothing."""


def group_trainer(
    update: GroupUpdate,
    reward: TextRewardModel,
    model: Any,
    tokenizer: Any,
    *,
    prompts: Sequence[Text],
    pessimism: float = 0.0,
    **settings: Any,
) -> Any:
    """Return one of trl's trainers, set up so that its temperature is in units of reward."""
    # GRPO's division by the spread of the rewards is switched off: with it neither the size of the
    # reward nor the temperature would mean anything.
    one_of("update", update, get_args(GroupUpdate))
    given = {**settings, "beta": settings["temperature"], "temperature": 1.0}
    kinds: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "rloo": (_SilentRLOO, RLOOConfig, {}),
        "grpo": (_SilentGRPO, GRPOConfig, {"scale_rewards": "none"}),
    }
    trainer, config, own = kinds[update]
    room = given["max_completion_length"]
    rows = _prompt_rows(prompts, tokenizer, model.config.max_position_embeddings, room)
    tokenizer.padding_side = "left"  # prompts are continued on their right
    with upstream(), quiet():
        return trainer(
            model=model,
            reward_funcs=reward_function(reward, pessimism=pessimism),
            args=config(**given, **own),
            train_dataset=rows,
            processing_class=tokenizer,
        )


def _prompt_rows(prompts: Sequence[Text], tokenizer: Any, most: int, room: int) -> Any:
    """Return the prompts that leave room, as trl reads them: as messages under a template."""
    encoder = DialogueTokens(tokenizer, most)
    rows = [
        {"prompt": _asked(prompt, tokenizer)}
        for prompt in prompts
        if len(encoder.prompt(prompt, room=-most)) + room <= most
    ]
    if not rows:
        raise DataError(
            f"No prompt leaves room for an answer of {room} tokens. Nothing was trained. Choose "
            "fewer new tokens, or a model with a longer context."
        )
    return datasets.Dataset.from_list(rows)


def _asked(prompt: Text, tokenizer: Any) -> Any:
    """Return a prompt as one turn of the user, where a template says what a turn is."""
    if tokenizer.chat_template is None or not isinstance(prompt, str):
        return prompt
    return [{"role": "user", "content": prompt}]
