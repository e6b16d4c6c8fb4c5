"""Settings of training on noised sums of clipped gradients, and what cannot go with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from transformers import TrainingArguments

from sordino import _validate
from sordino.errors import UsageError
from sordino.language.training._training_settings import PrivateTrainingSettings

__all__ = ["CentralRewardConfig", "refuse_other_arithmetic"]

_METRIC = "metrics on raw pairs are releases, and none is made here"
_WHOLE = "units are clipped one by one already, and noise is added once for every step"
_EXACT = "gradients are clipped in 32-bit floats"
_REFUSED: Mapping[str, tuple[Any, str]] = {
    "max_grad_norm": (0.0, _WHOLE),
    "gradient_accumulation_steps": (1, _WHOLE),
    "bf16": (False, _EXACT),
    "fp16": (False, _EXACT),
    "torch_compile": (False, "layers must tell what they saw"),
    "use_liger_kernel": (False, "layers must tell what they saw"),
    "neftune_noise_alpha": (None, "layers must tell what they saw"),
    "auto_find_batch_size": (False, "a second attempt would draw again"),
    "eval_strategy": ("no", _METRIC),
    "eval_on_start": (False, _METRIC),
    "load_best_model_at_end": (False, _METRIC),
    "deepspeed": (None, "one process draws the noise"),
}


@dataclass
class CentralRewardConfig(PrivateTrainingSettings, TrainingArguments):
    """Settings of :class:`CentralRewardTrainer`; those of transformers and these.

    Args:
        bf16: Refused: gradients are clipped in 32-bit floats.
        max_grad_norm: 0: units are clipped one by one.
        max_steps: That of the privacy settings; to be left out.
        reward_bound: Rewards are clipped to ± this in use.

    ``per_device_train_batch_size`` says how many pairs are read at once; it changes memory and
    time, and nothing else.

    Raises:
        UsageError: A setting cannot be used.
    """

    bf16: bool | None = field(default=False)
    max_grad_norm: float = field(default=0.0)
    max_steps: int = field(default=-1)
    reward_bound: float = field(default=10.0)

    refused: ClassVar[Mapping[str, tuple[Any, str]]] = {
        **PrivateTrainingSettings.refused,
        **_REFUSED,
    }

    def check(self) -> None:
        """Refuse settings that cannot be used.

        Raises:
            UsageError: There is one.
        """
        super().check()
        _validate.positive("reward_bound", self.reward_bound)
        _validate.one_of(
            "save_strategy",
            getattr(self.save_strategy, "value", self.save_strategy),
            ("no", "steps"),
        )

    def with_steps(self, steps: int) -> CentralRewardConfig:
        """Return the settings, which end after so many steps from now on.

        Args:
            steps: Of the privacy settings: the noise was calibrated for them.

        Raises:
            UsageError: They say otherwise.
        """
        if self.max_steps not in {-1, steps}:
            raise UsageError(
                f"max_steps is that of the privacy settings, {steps}, got {self.max_steps}: the "
                "noise was calibrated for it. Nothing was trained. Leave it out."
            )
        self.max_steps = steps
        self.ignore_data_skip = True  # who takes part is drawn anew in every step
        return self


def refuse_other_arithmetic(trainer: Any) -> None:
    """Refuse several devices, and arithmetic in which a clipped gradient could be too long.

    Args:
        trainer: As it is about to take its first step.

    Raises:
        UsageError: It would not run on one device in 32-bit floats.
    """
    args, parts = trainer.args, trainer.accelerator
    if args.n_gpu > 1 or args.world_size > 1 or parts.num_processes > 1:
        raise UsageError(
            "Noise is added once for every step, by one process on one device, and there are "
            "several here. Nothing was trained. Show it one (CUDA_VISIBLE_DEVICES=0)."
        )
    halves = [
        name
        for name, one in trainer.model.named_parameters()
        if one.requires_grad and one.dtype != torch.float32
    ]
    coarse = torch.get_float32_matmul_precision() != "highest"
    if halves or coarse or parts.mixed_precision != "no":
        what = f"{halves[0]!r} is not in them" if halves else "16-bit or TF32 products are on"
        raise UsageError(
            f"Gradients are clipped in 32-bit floats, and {what}. Nothing was trained. Load the "
            "model in float32, and set torch.set_float32_matmul_precision('highest')."
        )
