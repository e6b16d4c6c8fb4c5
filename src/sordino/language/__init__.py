"""The same stages on language models; needs the extra ``language`` and is never imported for you.

Nothing heavy is loaded before a name is used.

Example:
    >>> from sordino.language import SentenceEmbeddings
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sordino.errors import MissingExtra

from .embeddings import SentenceEmbeddings

if TYPE_CHECKING:
    from sordino.language.clipping.clipped_sums import ClippedSum
    from sordino.language.dp_sgd.dpo_trainer import CentralDPOTrainer
    from sordino.language.dp_sgd.privacy_terms import CentralPrivacy
    from sordino.language.dp_sgd.reward_trainer import CentralRewardTrainer
    from sordino.language.dp_sgd.settings import CentralDPOConfig, CentralRewardConfig
    from sordino.language.policies.dpo import PrivateDPOConfig, PrivateDPOTrainer
    from sordino.language.policies.rebel import RebelTrainer
    from sordino.language.policies.rollouts import RebelConfig
    from sordino.language.rewards.reward_training import PrivateRewardConfig, PrivateRewardTrainer
    from sordino.language.rewards.text_rewards import TextRewardModel
    from sordino.language.user_level.policy_trainer import CentralPolicyConfig, CentralPolicyTrainer
    from sordino.language.user_level.slot_privacy import SlotPrivacy

_HOMES = {
    "CentralDPOConfig": "dp_sgd.dpo_trainer",
    "CentralDPOTrainer": "dp_sgd.dpo_trainer",
    "CentralPolicyConfig": "user_level.policy_trainer",
    "CentralPolicyTrainer": "user_level.policy_trainer",
    "CentralPrivacy": "dp_sgd.privacy_terms",
    "CentralRewardConfig": "dp_sgd.reward_trainer",
    "CentralRewardTrainer": "dp_sgd.reward_trainer",
    "ClippedSum": "clipping.clipped_sums",
    "PrivateDPOConfig": "policies.dpo",
    "PrivateDPOTrainer": "policies.dpo",
    "PrivateRewardConfig": "rewards.reward_training",
    "PrivateRewardTrainer": "rewards.reward_training",
    "RebelConfig": "policies.rollouts",
    "RebelTrainer": "policies.rebel",
    "SlotPrivacy": "user_level.slot_privacy",
    "TextRewardModel": "rewards.text_rewards",
}

__all__ = [
    "CentralDPOConfig",
    "CentralDPOTrainer",
    "CentralPolicyConfig",
    "CentralPolicyTrainer",
    "CentralPrivacy",
    "CentralRewardConfig",
    "CentralRewardTrainer",
    "ClippedSum",
    "PrivateDPOConfig",
    "PrivateDPOTrainer",
    "PrivateRewardConfig",
    "PrivateRewardTrainer",
    "RebelConfig",
    "RebelTrainer",
    "SentenceEmbeddings",
    "SlotPrivacy",
    "TextRewardModel",
]


def __getattr__(name: str) -> Any:
    """Load what is asked for, and only then the libraries that it needs."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ImportError as error:
        if (error.name or "").startswith("sordino"):
            raise
        raise MissingExtra(
            f"{name} needs libraries that are not installed. Make sure you have installed "
            "everything with: pip install 'sordino[language]'"
        ) from error
