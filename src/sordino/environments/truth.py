"""The reward that simulated people follow, so that a run can be held against the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from sordino._files import read_json
from sordino.environments.values import best_value, kl_regret, regularized_value
from sordino.errors import DataError
from sordino.preferences.records import Text

__all__ = ["TRUTH_FORMAT", "TrueReward"]

TRUTH_FORMAT = "sordino.truth"
TRUTH_VERSION = 1


@dataclass(frozen=True)
class TrueReward:
    """The reward that simulated people follow: a weight times the count of each marker word.

    Example:
        >>> TrueReward({"then": 0.4}).score(["Wait, then act, then rest."])
        array([0.8])
    """

    weights: dict[str, float]

    def score(self, answers: Sequence[Text]) -> Float[np.ndarray, " n"]:
        """Return the true reward of every answer."""
        return np.array([self._one(answer) for answer in answers])

    def _one(self, answer: Text) -> float:
        """Return the true reward of one answer."""
        if not isinstance(answer, str):
            answer = " ".join(message["content"] for message in answer)
        words = [word.strip(".,?!").lower() for word in answer.split()]
        return sum(self.weights.get(word, 0.0) for word in words)

    def value(
        self,
        probabilities: Float[np.ndarray, "n 2"],
        scores: Float[np.ndarray, "n 2"],
        temperature: float,
    ) -> dict[str, float]:
        """Return how well a policy on two candidates does under the true reward.

        Args:
            probabilities: The policy's, for each candidate.
            scores: True rewards of the candidates.
            temperature: KL strength in units of reward.

        Returns:
            ``value``: mean of E r − temperature · KL(π ‖ uniform); ``best_value``: the largest
            possible; ``kl_regret``: their difference, ≥ 0.
        """
        uniform = np.full(scores.shape, 0.5)
        return {
            "kl_regret": kl_regret(probabilities, scores, temperature, uniform),
            "value": regularized_value(probabilities, scores, temperature, uniform),
            "best_value": best_value(scores, temperature, uniform),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the truth as JSON holds it."""
        return {"format": TRUTH_FORMAT, "version": TRUTH_VERSION, "weights": self.weights}

    @classmethod
    def load(cls, path: Path) -> TrueReward:
        """Return the truth that :func:`sordino.simulate_pairs` was run with.

        Raises:
            DataError: The file is of another format or malformed.
            FileSystemError: It cannot be read.
        """
        problem = "The truth cannot be used"
        weights = read_json(path, kind=TRUTH_FORMAT, version=TRUTH_VERSION, problem=problem)
        try:
            return cls({str(word): float(w) for word, w in weights["weights"].items()})
        except (KeyError, TypeError, ValueError, AttributeError):
            pass
        raise DataError(f"{problem}: field 'weights' must map words to numbers.")
