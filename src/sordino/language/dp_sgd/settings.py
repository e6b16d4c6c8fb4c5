"""Settings of training on noised sums of clipped gradients, and what cannot go with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
from transformers import TrainingArguments

from sordino import _validate
from sordino.errors import UsageError
from sordino.language.training.settings import PrivateTrainingSettings

__all__ = [
    "CentralConfig",
    "CentralDPOConfig",
    "CentralRewardConfig",
    "refuse_other_arithmetic",
    "refuse_pieces",
]

_METRIC = "metrics on raw pairs are releases, and none is made here"
_WHOLE = "units are clipped one by one already, and noise is added once for every step"
_EXACT = "gradients are found in 32-bit floats"
_ALONE = "what is computed of a text must not depend on what was computed before it"
_COIN = "who takes part in a step is decided by a coin for each, drawn by the operating system"
_REFUSED: Mapping[str, tuple[Any, str]] = {
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

_WHOLE_MODELS = ("NO", "MULTI_CPU", "MULTI_GPU")
"""Ways of accelerate to run in which every process holds the whole model."""


@dataclass
class CentralConfig(PrivateTrainingSettings, TrainingArguments):
    """Settings that trainers on raw pairs share; those of transformers and these."""

    bf16: bool | None = field(default=False)  # refused: gradients are found in 32-bit floats
    max_grad_norm: float = field(default=0.0)  # 0: units are clipped one by one
    max_steps: int = field(default=-1)  # that of the privacy settings; to be left out

    refused: ClassVar[Mapping[str, tuple[Any, str]]] = {
        **PrivateTrainingSettings.refused,
        **_REFUSED,
    }

    def check(self) -> None:
        """Refuse settings that cannot be used."""
        super().check()
        _validate.one_of(
            "save_strategy",
            getattr(self.save_strategy, "value", self.save_strategy),
            ("no", "steps"),
        )
        if self.debug:
            raise UsageError(
                "debug must be left out: it prints what a model makes of raw pairs. Nothing was "
                "trained. Look for overflows on public pairs."
            )

    def with_steps(self, steps: int) -> Self:
        """Return the settings, which end after so many steps from now on."""
        if self.max_steps not in {-1, steps}:
            raise UsageError(
                f"max_steps is that of the privacy settings, {steps}, got {self.max_steps}: the "
                "noise was calibrated for it. Nothing was trained. Leave it out."
            )
        self.max_steps = steps
        self.ignore_data_skip = True  # who takes part is drawn anew in every step
        return self


@dataclass
class CentralRewardConfig(CentralConfig):
    """Settings of :class:`CentralRewardTrainer`; those of transformers and these.

    Args:
        reward_bound: Rewards are clipped to ± this in use.

    Raises:
        UsageError: A setting cannot be used.
    """

    reward_bound: float = field(default=10.0)

    def check(self) -> None:
        """Refuse settings that cannot be used.

        Raises:
            UsageError: There is one.
        """
        super().check()
        _validate.positive("reward_bound", self.reward_bound)


@dataclass
class CentralDPOConfig(CentralConfig):
    """Settings of :class:`CentralDPOTrainer`; those of transformers and these.

    Args:
        temperature: KL strength, in units of reward; trl calls it beta. The policy that is aimed
            at is the reference tilted by reward / temperature.

    Raises:
        UsageError: A setting cannot be used.
    """

    temperature: float = field(default=0.1)

    def check(self) -> None:
        """Refuse settings that cannot be used.

        Raises:
            UsageError: There is one.
        """
        super().check()
        _validate.positive("temperature", self.temperature)


def refuse_other_arithmetic(trainer: Any) -> None:
    """Refuse models in pieces, and arithmetic that is not tried here."""
    refuse_pieces(trainer)
    parts = trainer.accelerator
    halves = [
        name
        for name, one in trainer.model.named_parameters()
        if one.requires_grad and one.dtype != torch.float32
    ]
    around = any(map(torch.is_autocast_enabled, ("cpu", "cuda")))
    if halves or around or _coarse() or parts.mixed_precision != "no":
        what = f"{halves[0]!r} is not in them" if halves else "16-bit or TF32 products are on"
        raise UsageError(
            f"Gradients are found in 32-bit floats, and {what}. Nothing was trained. Load the "
            "model in float32, and set torch.set_float32_matmul_precision('highest')."
        )


def refuse_pieces(trainer: Any) -> None:
    """Refuse several devices in one process, and models of which no process holds the whole."""
    if trainer.args.n_gpu > 1:
        raise UsageError(
            "A process clips gradients on one device, and there are several here. Nothing was "
            "trained. Show it one (CUDA_VISIBLE_DEVICES=0), or start one process for each "
            "(accelerate launch --num_processes N)."
        )
    parts = trainer.accelerator
    way = str(getattr(parts.distributed_type, "value", parts.distributed_type))
    cut = trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled or _is_sharded(trainer.model)
    if cut or trainer.args.fsdp or way not in _WHOLE_MODELS:
        raise UsageError(
            "This model is in pieces, or each process holds another part of it (FSDP, DeepSpeed, "
            "tensor parallel): the gradient of a unit would be clipped by parts. Nothing was "
            "trained. Supported are one process, and several that each hold the whole model: "
            "accelerate launch --num_processes N, without FSDP or DeepSpeed. Adapters "
            "(peft_config=) make larger models fit."
        )


def _is_sharded(model: Any) -> bool:
    """Return whether a parameter lies on several devices."""
    return any(hasattr(one, "device_mesh") for one in model.parameters())


def _coarse() -> bool:
    """Return whether products of 32-bit floats are rounded more than these numbers are."""
    try:
        return bool(torch.get_float32_matmul_precision() != "highest")
    except RuntimeError:  # it was set by another name, as tf32=True does
        return True
