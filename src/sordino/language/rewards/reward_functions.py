"""What answers are worth: a private reward as the callable that trl takes, and asking several."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import torch

from sordino import _validate
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.language.models.promises import CheckpointPromise
from sordino.language.rewards.text_rewards import TextRewardModel
from sordino.preferences.records import Text


@dataclass(frozen=True)
class RewardFunction:
    """What trl calls for rewards; made by :func:`reward_function`.

    Guarantee:
        What ``promise.guarantee`` says; calling it is post-processing. Shown by
        tests/language/test_text_rewards.py.
    """

    reward: TextRewardModel  # the private reward
    pessimism: float = field(default=0.0, kw_only=True)  # `scale` of its pessimistic score

    def __post_init__(self) -> None:
        """Refuse what is no private reward, and pessimism that nothing was measured for."""
        if not isinstance(self.reward, TextRewardModel):
            raise PrivacyError(
                f"A policy is trained on a TextRewardModel, got {type(self.reward).__name__}. "
                "Nothing was made. Use PrivateRewardTrainer.text_reward() or "
                "TextRewardModel.load(folder)."
            )
        if not np.isfinite(_validate.non_negative("pessimism", self.pessimism)):
            raise UsageError("pessimism must be finite, got inf.")
        if self.pessimism and self.reward.uncertainty is None:
            raise UsageError(
                "pessimism needs an uncertainty, and none was measured. Nothing was made. Call "
                "reward.with_uncertainty(pairs) with the pairs it was trained on first."
            )

    @property
    def __name__(self) -> str:
        """Return what trl calls the reward in its logs."""
        return "pessimistic_reward" if self.pessimism else "private_reward"

    @property
    def promise(self) -> CheckpointPromise:
        """Return what a policy promises that is trained on this reward and on public prompts."""
        return self.reward.promise

    def __call__(
        self, prompts: Sequence[Text], completions: Sequence[Text], **_: object
    ) -> list[float]:
        """Return the reward of each completion; what cannot be read gets the lowest."""
        answers = [_said(one) for one in completions]
        readable = [
            index
            for index, both in enumerate(zip(prompts, answers, strict=True))
            if self.reward.can_read(*both)
        ]
        texts = [prompts[i] for i in readable], [answers[i] for i in readable]
        if self.pessimism:
            known = self.reward.pessimistic_score(*texts, scale=self.pessimism)
        else:
            known = self.reward.score(*texts)
        rewards = np.full(len(answers), min([-self.reward.reward_bound, *known]))
        rewards[readable] = known
        return [float(value) for value in rewards]


def reward_function(reward: TextRewardModel, *, pessimism: float = 0.0) -> RewardFunction:
    """Return a function for ``reward_funcs`` of trl's ``RLOOTrainer`` and ``GRPOTrainer``.

    Optimizing a policy against it is post-processing: with public prompts, however long it runs,
    the promise of the reward is that of the policy. Prompts and completions may be texts or chat
    messages; the reward wraps them as it did in training.

    What a policy says must never end its training. A completion that is empty, or alone longer
    than the reward reads, gets −``reward_bound``, or less where pessimism gave another one in the
    same call less, so that saying nothing never pays. Give the trainer a
    ``max_completion_length`` below the reward's ``max_length``. A completion that was cut off is
    read as if it ended there.

    With pessimism the bonus of a completion is its distance from the others to its prompt, if
    there are at least three: set ``num_generations`` to 4 or more (the default of trl's
    ``RLOOConfig`` is 2, for which the center is that of the training answers).

    trl's trainers report their use over the network when they are made. With the environment
    variable ``HF_HUB_DISABLE_TELEMETRY=1`` (or ``HF_HUB_OFFLINE=1``), set before Python starts,
    they report nothing.

    Guarantee:
        What ``reward.guarantee`` says; calling it is post-processing. Shown by
        tests/language/test_text_rewards.py.

    Args:
        reward: The private reward.
        pessimism: ``scale`` of :meth:`TextRewardModel.pessimistic_score`; at 0 the score itself.

    Raises:
        PrivacyError: It is no private reward.
        UsageError: The pessimism is out of range, or no uncertainty was measured.

    Example:
        >>> trainer = RLOOTrainer(  # doctest: +SKIP
        ...     model, reward_funcs=reward_function(reward), args=RLOOConfig(beta=0.05), ...
        ... )
    """
    return RewardFunction(reward, pessimism=pessimism)


def _said(completion: Text) -> Text:
    """Return a completion as text or messages; a turn that only calls a tool says nothing."""
    if isinstance(completion, str):
        return completion
    return [{"role": turn["role"], "content": turn.get("content") or ""} for turn in completion]


RewardCallable: TypeAlias = Callable[..., Sequence[float]]
"""From ``prompts`` and ``completions``, both given by name, to one number for each, as in trl."""


def listed_functions(given: object) -> list[RewardCallable]:
    """Return one or several reward functions as a list."""
    functions: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
    models = torch.nn.Module | type  # which are called otherwise
    if not functions or not all(callable(f) and not isinstance(f, models) for f in functions):
        raise UsageError(
            "reward_funcs must be a function of (prompts, completions, **kwargs) that returns one "
            "number for each, or a list of such functions. For a reward model, give "
            "reward_function(TextRewardModel.load(folder))."
        )
    return functions


def summed_rewards(
    functions: Sequence[RewardCallable],
    prompts: Sequence[Text],
    texts: Sequence[str],
    **also: object,
) -> list[float]:
    """Return the sum of all rewards of each answer."""
    # Answers to chat messages are given as messages, others as text.
    said = [
        text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]
        for prompt, text in zip(prompts, texts, strict=True)
    ]
    lists = [
        _checked(at, function(prompts=list(prompts), completions=said, **also), len(texts))
        for at, function in enumerate(functions)
    ]
    return [math.fsum(each) for each in zip(*lists, strict=True)]


def _checked(at: int, values: Iterable[Any], wanted: int) -> list[float]:
    """Return the rewards of one function as numbers, one for each answer."""
    values = list(values)
    if len(values) != wanted:
        raise DataError(
            f"Reward function {at} returned {len(values)} rewards for {wanted} answers. The policy "
            "was not changed by them."
        )
    for i, value in enumerate(values):
        if not isinstance(value, Real | torch.Tensor) or not math.isfinite(value):
            raise DataError(
                f"Reward function {at}: the reward of answer {i} is not a finite number. The "
                "policy was not changed by it."
            )
    return [float(value) for value in values]
