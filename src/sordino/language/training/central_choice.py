"""Which trainer raw pairs get: one that clips gradients, if it is said what they are promised."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sordino.errors import PrivacyError, UsageError

__all__ = ["central_trainer"]

_HOMES = {
    "reward": ("reward_trainer", "CentralRewardTrainer"),
    "policy": ("dpo_trainer", "CentralDPOTrainer"),
}


def central_trainer(kind: str, *given: Any, privacy: Any, **named: Any) -> Any:
    """Return a trainer on raw pairs.

    Args:
        kind: ``"reward"`` or ``"policy"``.
        given: What the trainer takes by position.
        privacy: What is promised.
        named: What it takes by name.

    Raises:
        UsageError: The promise is none, or there is no ledger.
        PrivacyError: There are pairs to measure on.
    """
    from sordino.language.central.privacy_terms import CentralPrivacy  # noqa: PLC0415 (a circle)

    if not isinstance(privacy, CentralPrivacy):
        raise UsageError(
            "privacy must be CentralPrivacy(epsilon, delta, unit=..., neighbors=..., "
            f"sampling_probability=..., steps=..., expected_batch=...), got {privacy!r}: an "
            "epsilon alone promises nothing. Nothing was trained."
        )
    if named.get("ledger") is None:
        raise UsageError("Raw pairs are paid for: pass the ledger. Nothing was trained.")
    if named.pop("eval_dataset", None) is not None:
        raise PrivacyError(
            "A metric on raw pairs is a release of its own, and none is made here. Nothing was "
            "trained. Leave eval_dataset out, and measure on public pairs afterwards."
        )
    home, name = _HOMES[kind]
    trainer = getattr(import_module(f"sordino.language.central.{home}"), name)
    return trainer(*given, privacy=privacy, **named)
