"""What one person adds to an update: the gradient of a loss that knows of nobody else.

What the people of one batch are shown, and what it is worth to each of them.

Updates on batches of people: paid for, answered, clipped, summed, noised.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, cast

import torch
from transformers import Trainer
from transformers.trainer_utils import TrainOutput

from sordino import _random
from sordino._random import Entropy
from sordino.errors import DataError, UsageError
from sordino.language.dp_sgd.dpo_trainer import log_ratio_gaps, with_reference
from sordino.language.dp_sgd.training import CentralTraining, invented_units
from sordino.language.dp_sgd.unit_rows import TokenPair, UnitPairs
from sordino.language.models.generation import sample_completions
from sordino.language.models.loading import upstream
from sordino.language.models.model_digests import weights_digest
from sordino.language.models.tokens import DialogueTokens
from sordino.language.rewards.reward_functions import RewardCallable, summed_rewards
from sordino.preferences.records import Text

from .slot_privacy import BatchRun, reserve_batch
from .slots import Person

PolicyUpdate = Literal["pg", "rebel"]
UPDATES: Final = ("pg", "rebel")


class PersonAnswers(NamedTuple):
    """Two answers that one person was shown, and what they were worth."""

    # The answers y and y′ after the prompt; `reference` is log π_t(y) − log π_t(y′) under the
    # policy π_t that the batch began with.
    pair: TokenPair
    advantage: float  # r(y) − r(y′), each reward clipped


def person_losses(
    model: Any,
    units: Sequence[tuple[PersonAnswers]],
    *,
    update: PolicyUpdate,
    step: float,
    padding: int,
) -> Any:
    """Return the loss of every person, shape (units,), whose gradients are clipped one by one."""
    # With Δ = log π(y) − log π(y′):
    # - `"pg"`: −Â·Δ/2. Its gradient is minus an unbiased one of the mean reward where both
    #   answers are of the policy itself: each is the other's baseline.
    # - `"rebel"`: ((Δ − Δ_t)/step − Â)², with Δ_t = Δ under the policy that the batch began with.
    # Source: docs/policy_optimization.md, "Updates", before a log-linear policy makes them linear.
    people = [one for (one,) in units]
    gaps = log_ratio_gaps(model, [one.pair for one in people], padding=padding)
    kind = {"dtype": gaps.dtype, "device": gaps.device}
    advantages = torch.tensor([one.advantage for one in people], **kind)
    if update == "pg":
        return -advantages * gaps / 2
    grown = gaps - torch.tensor([one.pair.reference for one in people], **kind)
    return (grown / step - advantages).square()


def invented_people(people: int, tokens: DialogueTokens) -> list[tuple[PersonAnswers]]:
    """Return people who are nobody, for the test of a model before its first update."""
    units = invented_units(people, tokens)
    return [(PersonAnswers(unit[0], 1.0 - 2.0 * (at % 2)),) for at, unit in enumerate(units)]


class _Shown(NamedTuple):
    """One answer: the tokens of its prompt, its own, and its text."""

    prompt: list[int]
    answer: list[int]
    text: str


@dataclass(frozen=True, repr=False, eq=False)
class PersonRounds:
    """Draws two answers for everybody in a batch, and asks what they are worth."""

    # Nothing here sees more than one person at a time: padding and batches round otherwise, and a
    # word that is drawn, or a reward, could tip over. Coins are drawn anew for every slot, and an
    # empty one takes as many as any, so that nobody's coins tell of another.

    tokenizer: Any  # of the policy
    functions: Sequence[RewardCallable]  # the rewards
    reward_bound: float  # R; what an answer is worth is clipped to ±R, alone
    max_completion_length: int  # most tokens of an answer, its end included
    # Gives the first answer, within a context; None where the policy gives both.
    explorer: Callable[[Any], AbstractContextManager[Any]] | None = None

    def answers(
        self, policy: Any, people: Sequence[Person], *, entropy: Entropy
    ) -> list[tuple[PersonAnswers]]:
        """Return what everybody in a batch contributes; nothing of it may leave.

        Guarantee:
            None, and none rests on the coins: what a person is shown depends on the policy and
            on their own prompt, and all that is computed here stays until it is clipped, summed
            and noised. Shown by tests/language/test_central_policy.py.
        """
        # Source: docs/policy_optimization.md, "Setting and privacy unit".
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


_TESTED = 4  # people, all of them invented


class PersonTraining(CentralTraining):
    """The part that goes from one batch of people to the next; who derives from it sets it up."""

    _privacy: Any  # SlotPrivacy
    _units: Sequence[tuple[PersonAnswers]] = ()  # of the batch that is paid for
    _run: BatchRun
    _people: list[list[Person]]
    _rounds: PersonRounds
    _replicas = False  # answers and rewards are asked for by one process

    def _losses(self, model: Any, units: Sequence[Any]) -> Any:
        """Return the loss of every person."""
        return person_losses(
            model,
            units,
            update=self.args.update,
            step=self.args.step,
            padding=self._tokens.tokenizer.pad_token_id,
        )

    def train(self, resume_from_checkpoint: str | Path | bool | None = None) -> Any:  # noqa: FBT001 (transformers')
        """Train, from the first batch or from a checkpoint; every batch is paid for."""
        first, folder = 0, None
        if resume_from_checkpoint:
            folder, first = self._run.resume(resume_from_checkpoint, self.args.output_dir)
        self._catch_up()
        if first >= self._privacy.steps:
            raise UsageError(
                f"The run made all of its {first} updates. Nothing was trained and nothing was "
                "spent."
            )
        self._run.check(first // self._privacy.updates_per_batch)
        self._paid, self._tested = 0, False
        self._promise = self._run.checkpoint()
        try:
            with upstream():
                Trainer.train(self, resume_from_checkpoint=folder)
        finally:
            self._units, self._paid = [], 0
        self._note(weights_digest(self.model))
        return TrainOutput(self.state.global_step, float("nan"), {})

    def _nobody(self) -> Sequence[Any]:
        """Return made-up people to test the model on."""
        return invented_people(_TESTED, self._tokens)

    def _pay(self) -> None:
        """Ask the people of the next batch and pay for its updates, unless that is done already."""
        if not self._paid:
            batch = self.state.global_step // self._privacy.updates_per_batch
            self._run.check(batch)
            policy = self.accelerator.unwrap_model(self.model)
            self._units = self._rounds.answers(
                policy, self._people[batch], entropy=self._coins(batch)
            )
            self._run.declare()
            reservation = reserve_batch(
                self._privacy,
                self._run.promise,
                ledger=self._ledger,
                scope=self._run.scopes[batch],
                details=self._run.details(batch),
            )
            self._run.add(reservation, self._privacy.event)
            self._mark()
            self._paid = self._privacy.updates_per_batch
        self._paid -= 1

    def _drawn(self, entropy: _random.Entropy) -> Sequence[int]:  # noqa: ARG002 (of those who draw)
        """Return everybody who has a slot of the batch: all of them take part."""
        return range(len(self._units))

    def _coins(self, batch: int) -> _random.Entropy:
        """Return system entropy for the answers of a batch, or for study a stream of its own."""
        if self._seed is None:
            return _random.entropy(None)
        words = hashlib.sha256(f"{self._seed}/answers/{batch}".encode()).digest()
        return _random.entropy(int.from_bytes(words[:8]))

    def _save_rng_state(self, output_dir: str) -> None:
        """Write no state of a generator: reward functions may have moved it for each answer."""
