"""What answers are worth: one or several functions, asked and checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, TypeAlias

import torch

from sordino.errors import DataError, UsageError
from sordino.preferences.records import Text

__all__ = ["RewardFunction", "listed_functions", "summed_rewards"]

RewardFunction: TypeAlias = Callable[..., Sequence[float]]
"""From ``prompts`` and ``completions``, both given by name, to one number for each, as in trl."""


def listed_functions(given: Any) -> list[RewardFunction]:
    """Return one or several reward functions as a list.

    Raises:
        UsageError: One of them is no function: a name, or a network.
    """
    functions = list(given) if isinstance(given, list | tuple) else [given]
    if not functions or not all(map(_is_function, functions)):
        raise UsageError(
            "reward_funcs must be a function of (prompts, completions, **kwargs) that returns one "
            "number for each, or a list of such functions. For a reward model, give "
            "reward_function(TextRewardModel.load(folder))."
        )
    return functions


def _is_function(given: Any) -> bool:
    """Return whether this can be asked for rewards of texts."""
    return callable(given) and not isinstance(given, torch.nn.Module | type)


def summed_rewards(
    functions: Sequence[RewardFunction],
    prompts: Sequence[Text],
    texts: Sequence[str],
    **also: Any,
) -> list[float]:
    """Return the sum of all rewards of each answer.

    Answers to chat messages are given as messages, others as text.

    Raises:
        DataError: A function returned too few or too many rewards, or one that is not finite;
            the indices of function and answer are named.
    """
    said = [
        text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]
        for prompt, text in zip(prompts, texts, strict=True)
    ]
    lists = [
        _checked(at, function(prompts=list(prompts), completions=said, **also), len(texts))
        for at, function in enumerate(functions)
    ]
    return [math.fsum(each) for each in zip(*lists, strict=True)]


def _checked(at: int, values: Any, wanted: int) -> list[float]:
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
