"""Settings of reward models on randomized answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from trl import RewardConfig

from sordino import _validate
from sordino.language.training._training_settings import PrivateTrainingSettings
from sordino.language.training.losses import LOSSES

__all__ = ["PrivateRewardConfig"]


@dataclass
class PrivateRewardConfig(PrivateTrainingSettings, RewardConfig):
    """Settings of :class:`PrivateRewardTrainer`; those of trl's ``RewardConfig`` and these.

    Args:
        loss: ``"debiased"``, unbiased for the loss on the true labels, or ``"mixture"``, the
            likelihood of the randomized ones.
        reward_bound: Rewards beyond ± this are pulled back while training, and clipped in use.
        head_epochs: For so many of the first epochs the head alone learns; then everything, or
            the adapters, learns with it.
        ddp_find_unused_parameters: As in transformers; True with ``head_epochs`` if left out.

    Raises:
        UsageError: A setting cannot be used.
    """

    loss: str = field(default="debiased")
    reward_bound: float = field(default=10.0)
    head_epochs: float = field(default=0.0)
    ddp_find_unused_parameters: bool | None = field(default=None)

    def check(self) -> None:
        """Refuse settings that cannot be used.

        Raises:
            UsageError: There is one.
        """
        super().check()
        _validate.one_of("loss", self.loss, LOSSES)
        _validate.positive("reward_bound", self.reward_bound)
        _validate.non_negative("head_epochs", self.head_epochs)

    def __post_init__(self) -> None:
        """Let processes that train together expect a body that stands still."""
        if self.head_epochs and self.ddp_find_unused_parameters is None:
            self.ddp_find_unused_parameters = True
        super().__post_init__()
