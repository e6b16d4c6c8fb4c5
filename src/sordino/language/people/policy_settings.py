"""Settings of a policy that learns from people, batch by batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

from sordino import _validate
from sordino.errors import UsageError
from sordino.language.central.settings import CentralConfig
from sordino.language.people.person_gradients import PolicyUpdate
from sordino.language.people.slot_privacy import SlotPrivacy

__all__ = ["CentralPolicyConfig", "PolicySamples"]

PolicySamples = Literal["on_policy", "reference"]


@dataclass
class CentralPolicyConfig(CentralConfig):
    """Settings of :class:`CentralPolicyTrainer`; those of transformers and these.

    ``optim`` may be any optimizer: it reads noised gradients alone.

    Args:
        update: ``"pg"``, the policy gradient, or ``"rebel"``, regression on relative rewards.
        samples: Who gives the first of the two answers: the policy (``"on_policy"``) or, with
            ``"rebel"``, a fixed one (``"reference"``). The policy gives the second.
        step: Of REBEL: how far a batch moves the log-odds of two answers, per unit of reward.
        reward_bound: R; every reward is clipped to ±R.
        max_completion_length: Most tokens of an answer, its end included.
        overlong: What happens to a prompt that leaves no room for an answer: ``"refuse"`` or
            ``"drop"``, which leaves that person's slot empty.
        save_batches: Batches between two checkpoints. Whoever resumes pays anew for every batch
            after the last one.
        save_total_limit: How many checkpoints are kept.

    Raises:
        UsageError: A setting cannot be used.
    """

    update: PolicyUpdate = field(default="pg")
    samples: PolicySamples = field(default="on_policy")
    step: float = field(default=1.0)
    reward_bound: float = field(default=1.0)
    max_completion_length: int = field(default=128)
    learning_rate: float = field(default=1e-5)
    save_batches: int = field(default=1)
    save_total_limit: int | None = field(default=2)

    def check(self) -> None:
        """Refuse settings that cannot be used.

        Raises:
            UsageError: There is one.
        """
        super().check()
        _validate.one_of("update", self.update, get_args(PolicyUpdate))
        _validate.one_of("samples", self.samples, get_args(PolicySamples))
        for name in ("step", "reward_bound"):
            _validate.positive(name, getattr(self, name))
        for name in ("max_completion_length", "save_batches"):
            _validate.integer(name, getattr(self, name), at_least=1)
        if self.update == "pg" and self.samples == "reference":
            raise UsageError(
                "A policy gradient is about answers of the policy itself: samples='reference' "
                "needs update='rebel'. Nothing was trained."
            )

    def with_batches(self, privacy: SlotPrivacy) -> Self:
        """Return the settings, which end with the last batch and save between batches.

        Args:
            privacy: For which the noise was calibrated.

        Raises:
            UsageError: They say otherwise.
        """
        each = privacy.updates_per_batch
        if each > 1 and self.update == "pg":
            raise UsageError(
                f"After one update the answers are not the policy's any more: updates_per_batch="
                f"{each} needs update='rebel'. Nothing was trained."
            )
        self.save_steps = self.save_batches * each
        return self.with_steps(privacy.steps)

    def public_settings(self) -> dict[str, Any]:
        """Return what a reader of a checkpoint needs to know."""
        names = ("update", "samples", "step", "reward_bound", "max_completion_length")
        return {name: getattr(self, name) for name in names}
