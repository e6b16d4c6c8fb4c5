"""What private trainers share: their public settings, and the promise of what they write."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar, get_args

import torch
from peft import PeftConfig
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer, TrainingArguments

from sordino import _validate
from sordino._validate import integer, non_negative, one_of, positive
from sordino.errors import UsageError
from sordino.language.models.checkpoints import (
    HEAD,
    default_device,
    is_adapted,
    load_causal_model,
    load_reward_checkpoint,
    matching_tokenizer,
    own_copy,
    readable_length,
    refuse_unknown_adapters,
)
from sordino.language.models.loading import upstream
from sordino.language.models.promises import CheckpointPromise, Kind
from sordino.language.models.tokens import DialogueTokens, Overlong
from sordino.language.references.texts import TextsRead
from sordino.language.training.losses import LOSSES

if TYPE_CHECKING:
    from sordino.language.rewards.text_rewards import TextRewardModel

Settings = TypeVar("Settings", bound="PrivateTrainingSettings")

_REMOVED: Final[Mapping[str, tuple[str, str]]] = {
    "max_prompt_length": ("trl 1.0", "max_length: a longer prompt loses its beginning"),
    "max_completion_length": ("trl 1.0", "max_length: an answer is never cut"),
    "ref_model_init_kwargs": ("trl 1.0", "the model itself, loaded with its settings"),
    "generate_during_eval": ("trl 1.0", "sordino language judge, on public prompts"),
    "use_liger_loss": ("trl 1.0", "use_liger_kernel"),
    **dict.fromkeys(
        (
            *("label_pad_token_id", "padding_value", "rpo_alpha", "reference_free", "tools"),
            *("base_model_attribute_name", "force_use_ref_model", "use_logits_to_keep"),
        ),
        ("trl 1.0", ""),
    ),
    **dict.fromkeys(("model_adapter_name", "ref_adapter_name"), ("trl 1.0", "peft_config")),
    **dict.fromkeys(("is_encoder_decoder", "max_target_length"), ("trl 0.20", "")),
}
"""Settings that no config of a trainer has any more: the release, and what to use instead."""


_NETWORK = "a trainer sends nothing; save, and call sordino.language.push_to_hub on the folder"
_LOADED = "models come from a folder of this machine, in 32-bit floats and without foreign code"
_TOKENIZER = "set it on the tokenizer, and pass that as processing_class"
_IGNORED = "the flips of the labels are known and corrected for; nothing else would read it"
_REFUSED: Mapping[str, tuple[Any, str]] = {
    "push_to_hub": (False, _NETWORK),
    "trust_remote_code": (False, _LOADED),
    "model_init_kwargs": (None, _LOADED),
    "pad_token": (None, _TOKENIZER),
    "eos_token": (None, _TOKENIZER),
    "chat_template_path": (None, _TOKENIZER),
    "label_smoothing_factor": (0.0, _IGNORED),
}
_POSITIVE = ("reward_bound", "temperature", "step")  # settings of some trainers


@dataclass
class PrivateTrainingSettings:
    """What differs from the settings of trl, for rewards and policies alike."""

    # Off unless it is asked for, where trl has it on.
    gradient_checkpointing: bool | None = field(default=None)
    # Left out, 16-bit floats are used on accelerators that have them, and never on the processor,
    # where asking for them is refused.
    bf16: bool | None = field(default=None)
    # Nothing is reported unless it is asked for.
    report_to: str | list[str] | None = field(default="none")
    # Where there is an accelerator.
    dataloader_pin_memory: bool = field(default_factory=lambda: default_device() != "cpu")
    # Most tokens of prompt and answer together; what the model reads if left out. A longer prompt
    # loses its beginning, an answer is never cut.
    max_length: int | None = field(default=None)
    # What happens to a pair of which an answer alone is longer: `"refuse"` or `"drop"`.
    overlong: Overlong = field(default="refuse")

    refused: ClassVar[Mapping[str, tuple[Any, str]]] = _REFUSED
    # Returns what a reader of a checkpoint needs to know.
    public_settings: ClassVar[Callable[[Any], dict[str, Any]]]

    def __new__(cls, *_: object, **given: object) -> Self:
        """Refuse settings that no release has, or that one removed, before anything else."""
        for name in sorted({*given} - {each.name for each in fields(cls)}):
            release, instead = _REMOVED.get(name, ("", ""))
            way = f"Use {instead}" if instead else "Leave it out"
            said = f"{release} removed it. {way}." if release else "Look at its name again."
            raise UsageError(f"{cls.__name__} has no setting {name!r}: {said} Nothing was trained.")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        self.check()
        if self.bf16 is None:
            otherwise = self.fp16 or self._on_processor  # type: ignore[attr-defined]
            self.bf16 = not otherwise and torch.cuda.is_bf16_supported()
        super().__post_init__()  # type: ignore[misc]  # of the settings of trl beside it

    def check(self) -> None:
        """Refuse settings that cannot be used."""
        _validate.one_of("overlong", self.overlong, get_args(Overlong))
        if self.max_length is not None:
            _validate.integer("max_length", self.max_length, at_least=2)
        if hasattr(self, "loss"):
            _validate.one_of("loss", self.loss, LOSSES)
        for name in _POSITIVE:
            if hasattr(self, name):
                _validate.positive(name, getattr(self, name))
        for name, (permitted, reason) in self.refused.items():
            if getattr(self, name, permitted) != permitted:
                raise UsageError(
                    f"{name} must be left at {permitted!r}, got {getattr(self, name)!r}: {reason}. "
                    "Nothing was trained."
                )
        halves = [name for name in ("bf16", "fp16") if getattr(self, name)]
        if halves and self._on_processor:
            raise UsageError(
                f"{halves[0]}=True needs an accelerator, and training runs on the processor. "
                "Nothing was trained. Leave it out."
            )

    @property
    def _on_processor(self) -> bool:
        return bool(self.use_cpu) or default_device() == "cpu"  # type: ignore[attr-defined]


def own_settings(args: object, kind: type[Settings]) -> Settings:
    """Return settings of a trainer as a copy, so that one object may serve several trainers."""
    found = kind() if args is None else args
    if not isinstance(found, kind):
        raise UsageError(f"args must be a {kind.__name__}, got {type(found).__name__}.")
    found.check()
    return copy.copy(found)


@dataclass(frozen=True, kw_only=True)
class TrainingTerms:
    """Public settings of training on randomized answers."""

    loss: str = "debiased"  # of `losses.LOSSES`
    epochs: float = 1.0  # passes over the pairs
    head_epochs: float = 0.0  # passes before them that train the head of a reward alone
    batch_size: int = 16  # pairs in each step
    learning_rate: float = 1e-4  # of AdamW, at its largest
    max_length: int | None = None  # most tokens of prompt and answer; None for the model's context
    overlong: Overlong = "refuse"  # what happens to a pair with an answer that does not fit
    lora: int = 0  # rank of low-rank adapters; 0 trains every weight
    temperature: float = 0.1  # KL strength of DPO, in units of reward
    seed: int = 0  # of the order of the pairs, which is public
    # Steps between two entries of the log; held-out answers are measured as often.
    log_every: int = 10

    def __post_init__(self) -> None:
        one_of("loss", self.loss, LOSSES)
        one_of("overlong", self.overlong, get_args(Overlong))
        for name in ("epochs", "learning_rate", "temperature"):
            positive(name, getattr(self, name))
        non_negative("head_epochs", self.head_epochs)
        for name, least in {"batch_size": 1, "lora": 0, "seed": 0, "log_every": 1}.items():
            integer(name, getattr(self, name), at_least=least)


@dataclass(frozen=True, kw_only=True)
class PolicyTerms:
    """Public settings of improving a policy on a private reward."""

    temperature: float = 0.1  # KL strength, in units of reward
    pessimism: float = 0.0  # how much the reward is lowered where answers are unlike those compared
    steps: int = 100  # updates
    batch_size: int = 16  # prompts in each step
    learning_rate: float = 1e-5  # of AdamW, at its largest
    max_new_tokens: int = 64  # longest answer that is tried
    seed: int = 0  # of what is tried, which is public
    log_every: int = 10  # steps between two entries of the log

    def __post_init__(self) -> None:
        for name in ("temperature", "learning_rate"):
            positive(name, getattr(self, name))
        non_negative("pessimism", self.pessimism)
        for name in ("steps", "batch_size", "max_new_tokens", "log_every"):
            integer(name, getattr(self, name), at_least=1)
        integer("seed", self.seed, at_least=0)


_METRIC = "metrics on raw pairs are releases, and none is made here"
_WHOLE = "units are clipped one by one already, and noise is added once for every step"
_EXACT = "gradients are found in 32-bit floats"
_ALONE = "what is computed of a text must not depend on what was computed before it"
_COIN = "who takes part in a step is decided by a coin for each, drawn by the operating system"
_UNCLIPPABLE: Mapping[str, tuple[Any, str]] = {
    "max_grad_norm": (0.0, _WHOLE),
    "gradient_accumulation_steps": (1, _WHOLE),
    "per_device_train_batch_size": (8, "units are read one at a time, whatever it says"),
    "bf16": (False, _EXACT),
    "fp16": (False, _EXACT),
    "torch_compile": (False, _ALONE),
    "use_liger_kernel": (False, "its kernels are not tried here"),
    "neftune_noise_alpha": (None, _ALONE),
    "auto_find_batch_size": (False, "a second attempt would draw again"),
    "eval_strategy": ("no", _METRIC),
    "eval_on_start": (False, _METRIC),
    "load_best_model_at_end": (False, _METRIC),
    "deepspeed": (None, "every process holds the whole model, or gradients would be in pieces"),
    "train_sampling_strategy": ("random", _COIN),
    "dataloader_drop_last": (False, _COIN),
    "data_seed": (None, _COIN),
    "skip_memory_metrics": (True, "the memory that is taken tells who takes part"),
}


@dataclass
class CentralConfig(PrivateTrainingSettings, TrainingArguments):
    """Settings that trainers on raw pairs share; those of transformers and these."""

    bf16: bool | None = field(default=False)  # refused: gradients are found in 32-bit floats
    max_grad_norm: float = field(default=0.0)  # 0: units are clipped one by one
    max_steps: int = field(default=-1)  # that of the privacy settings; to be left out
    loss: str = field(default="debiased")  # of `losses.LOSSES`: without flips, the logistic one

    refused: ClassVar[Mapping[str, tuple[Any, str]]] = {
        **PrivateTrainingSettings.refused,
        **_UNCLIPPABLE,
    }

    def check(self) -> None:
        """Refuse settings that cannot be used."""
        super().check()
        saving = getattr(self.save_strategy, "value", self.save_strategy)
        _validate.one_of("save_strategy", saving, ("no", "steps"))
        if self.debug:
            raise UsageError(
                "debug must be left out: it prints what a model makes of raw pairs. Nothing was "
                "trained. Look for overflows on public pairs."
            )


@dataclass
class CentralRewardConfig(CentralConfig):
    """Settings of :class:`CentralRewardTrainer`; those of transformers and these.

    Args:
        loss: A name in ``losses.LOSSES``; the default is that of Bradley and Terry.
        reward_bound: Rewards are clipped to ± this in use.

    Raises:
        UsageError: A setting cannot be used.
    """

    reward_bound: float = field(default=10.0)

    def public_settings(self) -> dict[str, Any]:
        """Return what a reader of a checkpoint needs to know."""
        return {"reward_bound": float(self.reward_bound)}


@dataclass
class CentralDPOConfig(CentralConfig):
    """Settings of :class:`CentralDPOTrainer`; those of transformers and these.

    Args:
        loss: A name in ``losses.LOSSES``; the default is that of Bradley and Terry.
        temperature: KL strength, in units of reward; trl calls it beta. The policy that is aimed
            at is the reference tilted by reward / temperature.

    Raises:
        UsageError: A setting cannot be used.
    """

    temperature: float = field(default=0.1)

    def public_settings(self) -> dict[str, Any]:
        """Return what a reader of a checkpoint needs to know."""
        return {"loss": "dpo", "temperature": float(self.temperature)}


class PrivateTraining(Trainer):
    """What trainers of rewards and policies share: tokens, and the promise of what is written."""

    kind: ClassVar[Kind]
    _promise: CheckpointPromise
    _read: TextsRead  # without privacy
    _tokens: DialogueTokens
    _reference: str | Path | PreTrainedModel | None  # of a policy, as it was given

    def _start(
        self,
        model: str | Path | PreTrainedModel,
        args: PrivateTrainingSettings,
        tokenizer: PreTrainedTokenizerBase | None,
        adapters: PeftConfig | None,
        reference: str | Path | PreTrainedModel | None,
    ) -> tuple[PreTrainedModel, PeftConfig | None]:
        """Return the model, and adapters for it, and settle how texts become tokens."""
        if self.kind == "reward" and reference is not None:
            raise UsageError("reference is of a policy: a reward has none. Nothing was trained.")
        self._reference = reference
        load = load_reward_checkpoint if self.kind == "reward" else load_causal_model
        start = load(model)
        tokenizer = matching_tokenizer(start, tokenizer)
        refuse_unknown_adapters(start)
        length = readable_length(start, tokenizer, args.max_length)
        self._tokens = DialogueTokens(tokenizer, length, args.overlong)
        if self.kind == "policy":
            return start, adapters
        start.config.get_text_config().pad_token_id = tokenizer.pad_token_id
        if adapters is not None:  # the head is trained and saved with them
            adapters = copy.deepcopy(adapters)
            adapters.modules_to_save = sorted({*(adapters.modules_to_save or ()), HEAD})
        return start, adapters

    def _send_telemetry(self) -> None:
        """Tell nobody."""

    def merged(self) -> PreTrainedModel:
        """Return the model as it stands, as transformers knows it, adapters merged: a copy."""
        # Later steps do not show in it, so that what it promises stays what it promised.
        whole = own_copy(self.accelerator.unwrap_model(self.model))
        self._write_marks(whole)
        return whole

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:  # noqa: FBT001, FBT002 (transformers')
        """Write model, tokenizer, promise and model card to a folder that transformers loads."""
        # Adapters are merged first, so that the folder stands alone. The checkpoints of a run keep
        # them apart, as resuming needs them.
        partitioned = self.is_fsdp_enabled or self.is_deepspeed_enabled
        if _internal_call or partitioned or not is_adapted(self.model):
            super().save_model(output_dir, _internal_call)
        elif self.args.should_save:
            self._write_marks(self.model)
            folder = Path(output_dir or self.args.output_dir)
            self.merged().save_pretrained(folder)
            self.processing_class.save_pretrained(folder)
            self._write_promise(folder)

    def _save(
        self, output_dir: str | None = None, state_dict: dict[str, torch.Tensor] | None = None
    ) -> None:
        self._write_marks(self.accelerator.unwrap_model(self.model))
        with upstream():
            super()._save(output_dir, state_dict)
        if self.args.should_save:
            self._write_promise(Path(output_dir or self.args.output_dir))

    def push_to_hub(self, *_: object, **__: object) -> None:
        """Refuse: a folder is uploaded with its certificate, and a trainer knows no ledger."""
        raise UsageError(f"push_to_hub: {_NETWORK}. Nothing was sent.")

    def create_model_card(self, *_: object, **__: object) -> None:
        """Write the promise where trl writes a card that says nothing about privacy."""
        if self.is_world_process_zero():
            self._write_promise(Path(self.args.output_dir))

    def _write_marks(self, model: PreTrainedModel) -> None:
        """Write into a model what it promises, and what it has read without privacy."""
        self._promise.mark(model)
        self._read.mark(model)

    def _write_promise(self, folder: Path) -> None:
        self._write_marks(self.accelerator.unwrap_model(self.model))
        self._promise.write(folder, title=f"A private {self.kind}")


class RewardTraining(PrivateTraining):
    """What trainers of rewards share."""

    kind = "reward"

    def text_reward(self) -> TextRewardModel:
        """Return the reward as it stands, for scoring texts; later steps do not show in it."""
        from sordino.language.rewards.text_rewards import TextRewardModel  # noqa: PLC0415 (a stage)

        return TextRewardModel(
            self.merged().eval(),
            self.processing_class,
            promise=self._promise,
            reward_bound=self.args.reward_bound,
            max_length=self._tokens.max_length,
        )
