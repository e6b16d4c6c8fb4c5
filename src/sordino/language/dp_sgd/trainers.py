"""A reward or a policy from raw pairs: units as tokens, their losses, and the two trainers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from peft import PeftConfig
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback
from trl.trainer.reward_trainer import DataCollatorForPreference

from sordino.language.dp_sgd.privacy import CentralPrivacy
from sordino.language.dp_sgd.training import CentralTraining, TokenPair, UnitPairs
from sordino.language.models.checkpoints import (
    load_causal_model,
    load_reward_checkpoint,
    matching_tokenizer,
    refuse_other_heads,
    with_head,
)
from sordino.language.models.generation import (
    Completions,
    answer_log_probabilities,
    evaluating,
    padded,
)
from sordino.language.models.promises import weights_digest
from sordino.language.training.losses import LOSSES, PreferenceLoss, debiased_preference_loss
from sordino.language.training.private_training import (
    CentralDPOConfig,
    CentralRewardConfig,
    own_settings,
)
from sordino.preferences.pairs import Pairs
from sordino.privacy.ledger import Ledger

if TYPE_CHECKING:
    from sordino.language.rewards.text_rewards import TextRewardModel


def _unit_losses(
    margins: torch.Tensor, units: Sequence[UnitPairs], loss: PreferenceLoss
) -> torch.Tensor:
    """Return the loss of every unit, shape (units,): the sum over its pairs."""
    liked = torch.tensor([pair.liked for unit in units for pair in unit], device=margins.device)
    owners = [number for number, unit in enumerate(units) for _ in unit]
    losses = torch.zeros(len(units), device=margins.device, dtype=margins.dtype)
    each = loss(margins, liked=liked)
    return losses.index_add(0, torch.tensor(owners, device=margins.device), each)


def _reward_losses(
    model: PreTrainedModel,
    units: Sequence[UnitPairs],
    *,
    padding: int,
    loss: PreferenceLoss = debiased_preference_loss,
) -> torch.Tensor:
    """Return the loss of every unit; the margin of a pair is the difference of its rewards."""
    examples = [
        {"chosen_ids": pair.first, "rejected_ids": pair.second} for unit in units for pair in unit
    ]
    batch = DataCollatorForPreference(padding)(examples)
    device = next(model.parameters()).device
    inputs = {name: batch[name].to(device) for name in ("input_ids", "attention_mask")}
    rewards = model(**inputs, use_cache=False).logits.squeeze(-1)
    first, second = rewards.chunk(2)
    return _unit_losses(first - second, units, loss)


def _policy_losses(
    model: PreTrainedModel,
    units: Sequence[UnitPairs],
    *,
    temperature: float,
    padding: int,
    loss: PreferenceLoss = debiased_preference_loss,
) -> torch.Tensor:
    """Return the loss of every unit; the margin of a pair is the gap of its log ratios."""
    # Source: Rafailov et al. (2023), equation 7: Δ = temperature (there called β) times the gap of
    # the log ratios to the reference.
    pairs = [pair for unit in units for pair in unit]
    gaps = log_ratio_gaps(model, pairs, padding=padding)
    reference = torch.tensor([pair.reference for pair in pairs], dtype=gaps.dtype)
    return _unit_losses(temperature * (gaps - reference.to(gaps.device)), units, loss)


def log_ratio_gaps(
    model: PreTrainedModel, pairs: Sequence[TokenPair], *, padding: int
) -> torch.Tensor:
    """Return by how much likelier the first answer of each pair is, in nats, shape (pairs,)."""
    first = [(pair.first, pair.answers[0]) for pair in pairs]
    second = [(pair.second, pair.answers[1]) for pair in pairs]
    prompts = [ids[: len(ids) - answer] for ids, answer in first + second]
    answers = [ids[len(ids) - answer :] for ids, answer in first + second]
    padding_of = partial(padded, padding=padding, device=next(model.parameters()).device)
    completions = Completions(*padding_of(prompts, left=True), *padding_of(answers))
    one, other = answer_log_probabilities(model, completions).chunk(2)
    return one - other


def with_reference_gaps(
    model: PreTrainedModel, units: Sequence[UnitPairs], *, padding: int
) -> list[UnitPairs]:
    """Return the units with what the reference makes of their pairs, each of them read alone."""
    # Where the model has adapters, it counts as it is with them.

    def known(pair: TokenPair) -> TokenPair:
        """Return a pair with its gap: beside others it would be padded, and rounded otherwise."""
        return pair._replace(reference=float(log_ratio_gaps(model, [pair], padding=padding)))

    with torch.no_grad(), evaluating(model):
        return [tuple(known(pair) for pair in unit) for unit in units]


class CentralRewardTrainer(CentralTraining):
    """Trains a reward on raw pairs so that no record, or no person, shows in what comes out.

    In every step units are drawn by a coin each, the gradient of each is clipped as a whole,
    Gaussian noise is added to the sum, and the sum is divided by a public number. The weights of
    every checkpoint, and everything computed from them, are covered. Nothing that is computed
    from the pairs leaves the trainer in another way: no loss and no metric is logged, and no row
    is written.

    What a checkpoint takes is reserved on the ledger before its first step. A run that is killed
    goes on from its last checkpoint and pays for every step from there on anew.

    Args:
        model: The folder of a causal model, which gets a head that starts at 0, or of a reward;
            or such a model, in 32-bit floats.
        args: Settings; defaults if left out.
        train_dataset: Raw pairs of texts.
        privacy: What is promised, and what it takes.
        ledger: Its budget must be of the same unit and relation.
        processing_class: The tokenizer; the one in the model's folder if left out.
        peft_config: Adapters to train instead of the whole model; the head is trained and saved
            with them.
        callbacks: As in transformers; they see noised gradients only.
        optimizers: An optimizer and a schedule, as in transformers.
        declare_unread: Whether you declare that nothing that training starts from has read these
            records before. It is needed where that is not known, and becomes a caveat.
        simulate_seed: A seed for study; the guarantee then says ``simulated``.

    Raises:
        PrivacyError: The ledger is about another unit or relation, or persons are not known; or a
            start has read these records, or nobody knows what it has read.
        UsageError: A setting, the model, the tokenizer or the pairs cannot be used.
        DataError: An answer is empty or longer than the model reads; which one is not said.
        FileSystemError: There is no such folder.

    Guarantee:
        What ``privacy`` says for a run that is not interrupted; after interruptions, what its
        entries on the ledger promise together, which every checkpoint carries. Unit and relation
        as in ``privacy``, trust ``"central"``, caveats ``real-arithmetic`` and ``timing``. Shown
        by tests/language/test_central_training.py.

    Source:
        Abadi et al. (2016), Algorithm 1; docs/language_models.md, "Norms of pairs".
    """

    kind = "reward"

    def __init__(  # noqa: PLR0913 (each is one choice of the user)
        self,
        model: str | Path | PreTrainedModel,
        args: CentralRewardConfig | None = None,
        *,
        train_dataset: Pairs,
        privacy: CentralPrivacy,
        ledger: Ledger,
        processing_class: PreTrainedTokenizerBase | None = None,
        peft_config: PeftConfig | None = None,
        callbacks: Sequence[TrainerCallback] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        declare_unread: bool = False,
        simulate_seed: int | None = None,
    ) -> None:
        """Set everything up; nothing is spent yet."""
        args = own_settings(args, CentralRewardConfig).with_steps(privacy.steps)
        body = load_reward_checkpoint(model) if isinstance(model, str | Path) else model
        refuse_other_heads(body)
        tokenizer = matching_tokenizer(body, processing_class)
        body.config.get_text_config().pad_token_id = tokenizer.pad_token_id
        self._start(body, args, tokenizer)
        self._open(
            train_dataset,
            privacy,
            body,
            ledger=ledger,
            simulate_seed=simulate_seed,
            declared=declare_unread,
            reward_bound=float(args.reward_bound),
            **args.other_loss(),
        )
        self._set_up(body, args, with_head(peft_config), callbacks, optimizers)

    def _losses(self, model: PreTrainedModel, units: Sequence[UnitPairs]) -> torch.Tensor:
        """Return the loss of every unit."""
        padding = self._tokens.tokenizer.pad_token_id
        return _reward_losses(model, units, padding=padding, loss=LOSSES[self.args.loss])

    def text_reward(self) -> TextRewardModel:
        """Return the reward as it stands, for scoring texts; later steps do not show in it."""
        return self._as_reward(self.merged())


class CentralDPOTrainer(CentralTraining):
    """Trains a policy on raw pairs by DPO so that no record, or no person, shows in it.

    In every step units are drawn by a coin each, the gradient of each is clipped as a whole,
    Gaussian noise is added to the sum, and the sum is divided by a public number. What the
    reference makes of each answer is computed once, before the first step, and kept in memory.
    Units are read one at a time, so that nobody's gradient depends on another's.

    What a checkpoint takes is reserved on the ledger before its first step. A run that is killed
    goes on from its last checkpoint and pays for every step from there on anew. No loss and no
    metric is logged, and no row is written.

    Args:
        model: The folder of a causal model, or such a model, in 32-bit floats.
        reference: What the policy stays close to: a folder, a model, or the model as it is now
            if left out. It must not have been trained on the preferred answers alone.
        args: Settings; defaults if left out.
        train_dataset: Raw pairs of texts.
        privacy: What is promised, and what it takes.
        ledger: Its budget must be of the same unit and relation.
        processing_class: The tokenizer; the one in the model's folder if left out.
        peft_config: Adapters to train instead of the whole model; without them it is the
            reference.
        callbacks: As in transformers; they see noised gradients only.
        optimizers: An optimizer and a schedule, as in transformers.
        declare_unread: Whether you declare that nothing that training starts from has read these
            records before. It is needed where that is not known, and becomes a caveat.
        simulate_seed: A seed for study; the guarantee then says ``simulated``.

    Raises:
        PrivacyError: The ledger is about another unit or relation, or persons are not known; or a
            start has read these records, or nobody knows what it has read.
        UsageError: A setting, the model, the tokenizer or the pairs cannot be used.
        DataError: An answer is empty or longer than the model reads; which one is not said.
        FileSystemError: There is no such folder.

    Guarantee:
        What ``privacy`` says for a run that is not interrupted; after interruptions, what its
        entries on the ledger promise together, which every checkpoint carries. Unit and relation
        as in ``privacy``, trust ``"central"``, caveats ``real-arithmetic`` and ``timing``. What
        model and reference promise is added. Shown by tests/language/test_central_training.py.

    Source:
        Abadi et al. (2016), Algorithm 1, on the loss of Rafailov et al. (2023), equation 7;
        docs/language_models.md, "Norms of pairs".
    """

    kind = "policy"

    def __init__(  # noqa: PLR0913 (each is one choice of the user)
        self,
        model: str | Path | PreTrainedModel,
        reference: str | Path | PreTrainedModel | None = None,
        args: CentralDPOConfig | None = None,
        *,
        train_dataset: Pairs,
        privacy: CentralPrivacy,
        ledger: Ledger,
        processing_class: PreTrainedTokenizerBase | None = None,
        peft_config: PeftConfig | None = None,
        callbacks: Sequence[TrainerCallback] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        declare_unread: bool = False,
        simulate_seed: int | None = None,
    ) -> None:
        """Set everything up; nothing is spent yet."""
        args = own_settings(args, CentralDPOConfig).with_steps(privacy.steps)
        policy = load_causal_model(model) if isinstance(model, str | Path) else model
        fixed = load_causal_model(reference) if isinstance(reference, str | Path) else reference
        tokenizer = matching_tokenizer(policy, processing_class)
        self._start(policy, args, tokenizer)
        start = policy if fixed is None else fixed
        self._open(
            train_dataset,
            privacy,
            *(policy, fixed),
            ledger=ledger,
            simulate_seed=simulate_seed,
            declared=declare_unread,
            loss="dpo",
            temperature=float(args.temperature),
            reference=weights_digest(start),
            **args.other_loss(),
        )
        self._ask_reference(start.to(args.device))
        self._set_up(policy, args, peft_config, callbacks, optimizers)

    def _ask_reference(self, reference: PreTrainedModel) -> None:
        """Keep what the reference makes of the pairs of every unit that this process clips."""
        own = self._processes.share(range(len(self._units)))
        units = [self._units[number] for number in own]
        padding = self._tokens.tokenizer.pad_token_id
        known = with_reference_gaps(reference, units, padding=padding)
        self._units = list(self._units)
        for number, unit in zip(own, known, strict=True):
            self._units[number] = unit

    def _losses(self, model: PreTrainedModel, units: Sequence[UnitPairs]) -> torch.Tensor:
        """Return the loss of every unit."""
        return _policy_losses(
            model,
            units,
            temperature=self.args.temperature,
            padding=self._tokens.tokenizer.pad_token_id,
            loss=LOSSES[self.args.loss],
        )
