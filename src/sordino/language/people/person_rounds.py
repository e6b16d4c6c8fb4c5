"""What the people of one batch are shown, and what it is worth to each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch

from sordino._random import Entropy
from sordino.errors import DataError
from sordino.language.central.answer_losses import with_reference
from sordino.language.central.unit_rows import TokenPair, UnitPairs
from sordino.language.models.generation import sample_completions
from sordino.language.people.person_gradients import PersonAnswers
from sordino.language.people.person_slots import Person
from sordino.language.rewards.reward_sums import RewardFunction, summed_rewards
from sordino.preferences.records import Text

__all__ = ["PersonRounds"]


class _Shown(NamedTuple):
    """One answer: the tokens of its prompt, its own, and its text."""

    prompt: list[int]
    answer: list[int]
    text: str


@dataclass(frozen=True, repr=False, eq=False)
class PersonRounds:
    """Draws two answers for everybody in a batch, and asks what they are worth.

    Nothing here sees more than one person at a time: padding and batches round otherwise, and a
    word that is drawn, or a reward, could tip over. Coins are drawn anew for every slot, and an
    empty one takes as many as any, so that nobody's coins tell of another.

    Args:
        tokenizer: Of the policy.
        functions: The rewards.
        reward_bound: R; what an answer is worth is clipped to ±R, alone.
        max_completion_length: Most tokens of an answer, its end included.
        explorer: Gives the first answer, within a context; None where the policy gives both.
    """

    tokenizer: Any
    functions: Sequence[RewardFunction]
    reward_bound: float
    max_completion_length: int
    explorer: Callable[[Any], AbstractContextManager[Any]] | None = None

    def answers(
        self, policy: Any, people: Sequence[Person], *, entropy: Entropy
    ) -> list[tuple[PersonAnswers]]:
        """Return what everybody in a batch contributes; nothing of it may leave.

        Args:
            policy: As it is now.
            people: Of one batch; those whose slots are empty contribute nothing.
            entropy: Where the coins of the answers come from.

        Raises:
            DataError: A reward is missing or not finite; whose is not said.

        Guarantee:
            None, and none rests on the coins: what a person is shown depends on the policy and
            on their own prompt, and all that is computed here stays until it is clipped, summed
            and noised. Shown by tests/language/test_central_policy.py.

        Source:
            docs/policy_optimization.md, "Setting and privacy unit".
        """
        with _own_coins(policy.device), torch.no_grad():
            drawn = [(one, self._drawn(policy, one, entropy)) for one in people]
            present = [(one, both) for one, both in drawn if one.prompt is not None]
            worth = [self._worth(*shown) for shown in present]
        units: list[UnitPairs] = [(_pair(*both),) for _, both in present]
        padding = int(self.tokenizer.pad_token_id)
        known = with_reference(policy, units, padding=padding)
        return [(PersonAnswers(unit[0], own),) for unit, own in zip(known, worth, strict=True)]

    def _drawn(self, policy: Any, one: Person, entropy: Entropy) -> tuple[_Shown, _Shown]:
        """Return two answers for a slot, by coins of its own; for an empty one to no text."""
        prompt = one.prompt or ""
        if self.explorer is None:
            first, second = self._sampled(policy, [prompt, prompt], entropy)
            return first, second
        with self.explorer(policy) as other:
            (first,) = self._sampled(other, [prompt], entropy)
        (second,) = self._sampled(policy, [prompt], entropy)
        return first, second

    def _sampled(self, model: Any, prompts: list[Text], entropy: Entropy) -> list[_Shown]:
        """Return one answer to every prompt, by coins that are drawn for them."""
        torch.manual_seed(int(entropy.words(1)[0]) >> 1)
        room = self.max_completion_length
        found = sample_completions(model, self.tokenizer, prompts, max_new_tokens=room)
        asked = zip(found.prompt_ids, found.prompt_mask, strict=True)
        read = [ids[mask.bool()].tolist() for ids, mask in asked]
        parts = zip(read, found.token_lists(), found.texts(self.tokenizer), strict=True)
        return [_Shown(*one) for one in parts]

    def _worth(self, person: Person, both: tuple[_Shown, _Shown]) -> float:
        """Return by how much the first answer is worth more, each reward clipped alone."""
        prompts = [cast("Text", person.prompt)] * 2
        texts, ids = [one.text for one in both], [one.answer for one in both]
        also = {"completion_ids": ids, "persons": [person.id] * 2}
        try:
            found = summed_rewards(self.functions, prompts, texts, **also)
        except (DataError, OverflowError):
            raise DataError(
                "A reward function returned another number of rewards than the answers it was "
                "asked about, or one that is not a finite number; which one is not said, as "
                "rewards are private. Nothing was spent on this batch. Have it return one finite "
                "number for each completion, 0 where it knows none, and resume."
            ) from None
        first, second = map(self._clipped, found)
        return first - second

    def _clipped(self, reward: float) -> float:
        """Return a reward within the bound."""
        return max(-self.reward_bound, min(self.reward_bound, reward))


@contextmanager
def _own_coins(device: Any) -> Iterator[None]:
    """Leave the generators of PyTorch as they were: how far they moved tells of answers."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


def _pair(first: _Shown, second: _Shown) -> TokenPair:
    """Return both answers after their prompt."""
    one, other = ([*each.prompt, *each.answer] for each in (first, second))
    return TokenPair(one, other, 0.5, (len(first.answer), len(second.answer)))
