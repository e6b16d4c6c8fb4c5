"""A win rate, with all that must be said beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sordino.language.judging.win_intervals import Share
from sordino.privacy.guarantee import Guarantee

__all__ = ["WinRate"]

_NESTED = {"length_matched", "guarantee"}


@dataclass(frozen=True, kw_only=True)
class WinRate:
    """How often a judge prefers a policy's answers to those of the reference.

    Attributes:
        mean, low, high: The share of comparisons won, and its interval; a tie counts one half.
        n: Comparisons.
        prompts: Different prompts among them.
        ties: Comparisons that nobody won.
        length_matched: The share where answers are as often longer as shorter, or None where
            that cannot be said.
        mean_length: Mean number of characters of the policy's answers.
        reference_length: The same of the reference's.
        confidence: How often the intervals should cover.
        guarantee: What the labels that the judge learned from were promised, if it says so.
    """

    mean: float
    low: float
    high: float
    n: int
    prompts: int
    ties: int
    length_matched: Share | None
    mean_length: float
    reference_length: float
    confidence: float = 0.95
    guarantee: Guarantee | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers and the judge's promise as JSON holds them."""
        promise, matched = self.guarantee, self.length_matched
        return {
            **{name: value for name, value in vars(self).items() if name not in _NESTED},
            "length_matched": matched and matched.to_dict(),
            "judge_guarantee": promise and {**promise.to_dict(), "caveats": list(promise.caveats)},
        }

    def __str__(self) -> str:
        """Return the numbers in one line, and below it what the judge's labels were promised."""
        share = Share(self.mean, self.low, self.high, self.n)
        matched = self.length_matched
        at_length = f"{matched} over {matched.n}" if matched else "not known"
        line = (
            f"win rate {share} over {self.n} comparisons of {self.prompts} prompts, {self.ties} "
            f"ties; length-matched {at_length}; mean length {self.mean_length:.0f} against "
            f"{self.reference_length:.0f} characters"
        )
        if self.guarantee is None:
            return line
        if math.isinf(self.guarantee.epsilon):
            return (
                f"{line}\nThe judge learned from unprotected labels (epsilon=inf): publish it "
                "only if the judge's labels are public."
            )
        return f"{line}\nThe judge's labels: {self.guarantee}"
