"""What is kept from those who watch a trainer on raw pairs: pairs, losses, sizes and times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset
from transformers import Trainer

from sordino.errors import PrivacyError
from sordino.language.central.runs import CentralRun
from sordino.language.training._private_training import PrivateTraining

__all__ = ["SilentTraining"]

_LOGGED = ("learning_rate",)


class _Steps(IterableDataset[dict[str, Any]]):
    """One empty batch for every step: who takes part is drawn only after it is paid for."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield without end."""
        while True:
            yield {}


class SilentTraining(PrivateTraining):
    """A trainer that tells transformers, and through it the world, nothing of its data."""

    _run: CentralRun

    def get_train_dataloader(self) -> Any:
        """Return empty batches: pairs are never shuffled, counted, or handed to transformers."""
        return DataLoader(_Steps(), batch_size=None)

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:  # noqa: ARG002
        """Return 0: how much was computed tells who took part."""
        return 0

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Refuse to measure.

        Raises:
            PrivacyError: Always.
        """
        raise PrivacyError(
            "A metric on raw pairs is a release of its own, and none is made here. Nothing was "
            "measured. Score public pairs with text_reward()."
        )

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:  # noqa: ARG002
        """Log the learning rate and the privacy spent; no loss, and no time that was taken."""
        known = {name: logs[name] for name in _LOGGED if name in logs}
        if known:
            self.state.epoch = self.state.global_step / self.args.max_steps
            Trainer.log(self, {**known, "epsilon": self._run.spent})
