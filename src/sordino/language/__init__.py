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
    from sordino.language.dp_sgd.clipping import ClippedSum
    from sordino.language.dp_sgd.privacy import CentralPrivacy
    from sordino.language.dp_sgd.training import CentralDPOTrainer, CentralRewardTrainer
    from sordino.language.policies.dpo import PrivateDPOConfig, PrivateDPOTrainer
    from sordino.language.policies.rebel import RebelConfig, RebelTrainer
    from sordino.language.rewards.reward_training import PrivateRewardConfig, PrivateRewardTrainer
    from sordino.language.rewards.text_rewards import TextRewardModel
    from sordino.language.training.private_training import CentralDPOConfig, CentralRewardConfig
    from sordino.language.user_level import CentralPolicyConfig, CentralPolicyTrainer, SlotPrivacy

_HOMES = {
    "CentralDPOConfig": "training.private_training",
    "CentralDPOTrainer": "dp_sgd.training",
    "CentralPolicyConfig": "user_level",
    "CentralPolicyTrainer": "user_level",
    "CentralPrivacy": "dp_sgd.privacy",
    "CentralRewardConfig": "training.private_training",
    "CentralRewardTrainer": "dp_sgd.training",
    "ClippedSum": "dp_sgd.clipping",
    "PrivateDPOConfig": "policies.dpo",
    "PrivateDPOTrainer": "policies.dpo",
    "PrivateRewardConfig": "rewards.reward_training",
    "PrivateRewardTrainer": "rewards.reward_training",
    "RebelConfig": "policies.rebel",
    "RebelTrainer": "policies.rebel",
    "SlotPrivacy": "user_level",
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
