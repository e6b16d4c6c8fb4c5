"""A reward as a feature map of one column, so that what reads features can read texts by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from sordino.preferences.records import Text
from sordino.privacy.guarantee import Guarantee

if TYPE_CHECKING:
    from sordino.language.rewards.text_rewards import TextRewardModel

__all__ = ["RewardFeature"]


@dataclass(frozen=True, repr=False, eq=False)
class RewardFeature:
    """The score of a trained reward as the only feature of an answer.

    Policies read texts with it. It was learned from answers of people, so nothing may be fitted
    on it: the fit would promise what its own answers do, and not what went into the feature.

    Args:
        reward: The trained reward.
    """

    reward: TextRewardModel

    @property
    def dimension(self) -> int:
        """Return the number of features, which is 1."""
        return 1

    @property
    def feature_bound(self) -> float:
        """Return the bound that every score is clipped to."""
        return float(self.reward.reward_bound)

    @property
    def guarantee(self) -> Guarantee:
        """Return what the answers behind the feature were promised: fits refuse it."""
        return self.reward.guarantee

    def transform(
        self, prompts: Sequence[Text], answers: Sequence[Text]
    ) -> Float[np.ndarray, "n 1"]:
        """Return the score of each answer as a column.

        Raises:
            DataError: An answer has no score; its index is named.
        """
        return self.reward.score(prompts, answers)[:, None]

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values; of the reward only what it was trained on."""
        return {
            "kind": "text-reward",
            "dimension": self.dimension,
            "feature_bound": self.feature_bound,
            "artifact": self.reward.artifact,
        }
