"""Settings of direct preference optimization on randomized answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from trl import DPOConfig

from sordino.errors import UsageError
from sordino.language.training._training_settings import PrivateTrainingSettings

__all__ = ["PrivateDPOConfig"]

_PLAIN = (
    "the loss is the debiased logistic loss of beta times the gap of log ratios and nothing else, "
    "which is checked when training starts"
)


@dataclass
class PrivateDPOConfig(PrivateTrainingSettings, DPOConfig):
    """Settings of :class:`PrivateDPOTrainer`; those of trl's ``DPOConfig``, less what is fixed.

    Args:
        beta: What the rest of the library calls the temperature: the KL strength, in units of
            reward. The policy that is aimed at is the reference tilted by reward / beta.
        loss_type: ``["robust"]``, trl's name of the debiased loss.
        label_smoothing: Left out; the trainer sets it to the flip probability of the pairs.

    Raises:
        UsageError: A setting cannot be used.
    """

    loss_type: list[str] = field(default_factory=lambda: ["robust"])
    label_smoothing: float | None = field(default=None)

    refused: ClassVar[Mapping[str, tuple[Any, str]]] = {
        **PrivateTrainingSettings.refused,
        "loss_weights": (None, _PLAIN),
        "use_weighting": (False, _PLAIN),
        "f_divergence_type": ("reverse_kl", _PLAIN),
        "ld_alpha": (None, _PLAIN),
        "sync_ref_model": (False, "the KL strength counts from one fixed reference"),
    }

    def settle(self, flip_probability: float) -> None:
        """Set the loss from the pairs, or refuse one that is set otherwise.

        Args:
            flip_probability: Of the answers that are trained on.

        Raises:
            UsageError: Another loss or another flip probability was asked for.
        """
        asked = list(self.loss_type)
        if asked != ["robust"] and (asked != ["sigmoid"] or flip_probability > 0):
            raise UsageError(
                f"loss_type={asked!r} does not correct for labels that are flipped with "
                f"probability {flip_probability:.6g}: of trl's losses only 'robust' does, and "
                "'sigmoid' does not read label_smoothing at all. Nothing was trained. Leave "
                "loss_type out."
            )
        given = self.label_smoothing
        if given is not None and not math.isclose(given, flip_probability, rel_tol=1e-9):
            raise UsageError(
                f"label_smoothing={given!r} is not the probability {flip_probability:.9g} with "
                "which the labels of these pairs are flipped. Nothing was trained. Leave it out: "
                "it is read from the pairs."
            )
        self.loss_type, self.label_smoothing = ["robust"], flip_probability
