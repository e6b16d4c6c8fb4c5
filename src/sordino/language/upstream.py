"""The names of trl and transformers that are used here, and the settings that they took away.

Whoever tries another release of either reads this file: a test compares the first table with every
import, and tells which names the installed release lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from sordino.errors import UsageError

USED: Final[Mapping[str, frozenset[str]]] = {
    "transformers": frozenset(
        {
            "AutoConfig",
            "AutoModelForCausalLM",
            "AutoModelForSequenceClassification",
            "AutoTokenizer",
            "GPT2Config",
            "GPT2LMHeadModel",
            "GenerationConfig",
            "LlamaConfig",
            "LlamaForCausalLM",
            "PreTrainedModel",
            "PreTrainedTokenizerBase",
            "PreTrainedTokenizerFast",
            "PrinterCallback",
            "Trainer",
            "TrainerCallback",
            "TrainerControl",
            "TrainerState",
            "TrainingArguments",
            "set_seed",
        }
    ),
    "transformers.modeling_layers": frozenset({"GradientCheckpointingLayer"}),
    "transformers.trainer_utils": frozenset({"TrainOutput", "rotate_checkpoints"}),
    "transformers.utils": frozenset({"logging"}),
    "trl": frozenset(
        {
            "DPOConfig",
            "DPOTrainer",
            "GRPOConfig",
            "GRPOTrainer",
            "RLOOConfig",
            "RLOOTrainer",
            "RewardConfig",
            "RewardTrainer",
        }
    ),
    "trl.models": frozenset({"unwrap_model_for_generation"}),
    "trl.trainer.reward_trainer": frozenset(
        {"DataCollatorForPreference", "suppress_seqcls_warning"}
    ),
}
"""By module."""

_PROMPT = "max_length: a longer prompt loses its beginning"
_LOADED = "the model itself, loaded with its settings"
_REMOVED: Final[Mapping[str, tuple[str, str]]] = {
    "max_prompt_length": ("trl 1.0", _PROMPT),
    "max_completion_length": ("trl 1.0", "max_length: an answer is never cut"),
    "ref_model_init_kwargs": ("trl 1.0", _LOADED),
    "generate_during_eval": ("trl 1.0", "sordino language judge, on public prompts"),
    "use_liger_loss": ("trl 1.0", "use_liger_kernel"),
    **dict.fromkeys(
        ("label_pad_token_id", "padding_value", "rpo_alpha", "reference_free", "tools"),
        ("trl 1.0", ""),
    ),
    **dict.fromkeys(
        ("base_model_attribute_name", "force_use_ref_model", "use_logits_to_keep"), ("trl 1.0", "")
    ),
    **dict.fromkeys(("model_adapter_name", "ref_adapter_name"), ("trl 1.0", "peft_config")),
    **dict.fromkeys(("is_encoder_decoder", "max_target_length"), ("trl 0.20", "")),
}
"""Settings that no config of a trainer has any more: the release, and what to use instead."""


def refuse_removed(kind: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse settings that do not exist; tell those that a release removed from mistakes."""
    for name in sorted({*given} - {*known}):
        release, instead = _REMOVED.get(name, ("", ""))
        way = f"Use {instead}" if instead else "Leave it out"
        said = f"{release} removed it. {way}." if release else "Look at its name again."
        raise UsageError(f"{kind} has no setting {name!r}: {said} Nothing was trained.")
