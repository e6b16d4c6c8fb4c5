"""The first phase of a reward: the head learns while the body stands still."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from sordino.language.models._trained_models import HEAD

__all__ = ["HeadFirst"]

"""What transformers calls the head of a sequence classifier on a causal model."""


class HeadFirst(TrainerCallback):
    """Lets everything but the head learn only after so many epochs.

    Where training stands decides, and nothing that is remembered, so a run that is resumed is in
    the phase that it was killed in.

    Args:
        epochs: How long the head learns alone; 0 for not at all.
    """

    def __init__(self, epochs: float) -> None:
        """Wait for a model."""
        self._epochs = epochs
        self._body: list[Any] = []

    def on_init_end(self, *_: Any, model: Any = None, **__: Any) -> None:
        """Note what may learn beside the head."""
        self._body = [
            weight
            for name, weight in model.named_parameters()
            if weight.requires_grad and HEAD not in name.split(".")
        ]

    def on_step_begin(self, args: Any, state: Any, control: Any, **__: Any) -> None:  # noqa: ARG002
        """Set who learns in this step."""
        self._let(state.epoch >= self._epochs - 1e-9)  # epochs are sums of fractions

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Leave the model as it was found."""
        self._let(True)

    def _let(self, learn: bool) -> None:  # noqa: FBT001
        """Let the body learn, or not."""
        if self._body and self._body[0].requires_grad != learn:
            for weight in self._body:
                weight.requires_grad_(learn)
