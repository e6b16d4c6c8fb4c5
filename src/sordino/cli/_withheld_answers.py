"""What is asked of a reward that a curator keeps, and the answers that are drawn and paid for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int64

from sordino.cli._draw_spend import describe_draw, paid_since, quiet, warn_if_vacuous
from sordino.errors import BudgetExceeded
from sordino.policies.withheld import WithheldPolicy
from sordino.preferences.records import Text
from sordino.privacy import accounting
from sordino.privacy.events import BoundedRangeEvent
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.ledger import Ledger
from sordino.reporting.result import describe_guarantee_and_caveats
from sordino.rewards.release_checks import entropy_of

__all__ = ["Asked"]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked of a withheld policy, and what one answer costs at most.

    Attributes:
        policy: What is drawn from.
        prompts: One for each answer.
        candidates: The answers to choose from.
        bounded_range: The largest of one draw.
    """

    policy: WithheldPolicy
    prompts: Sequence[Text]
    candidates: Sequence[Sequence[Text]]
    bounded_range: float

    @classmethod
    def of(cls, policy: WithheldPolicy, questions: Sequence[tuple[Text, list[Text]]]) -> Asked:
        """Return questions with what they cost; warn where that protects nobody."""
        prompts, candidates = [row[0] for row in questions], [row[1] for row in questions]
        with quiet():
            widest = max(policy.bounded_range(*row) for row in questions)
        warn_if_vacuous(widest, "Use a higher --temperature, or prepare a run with a larger ridge.")
        return cls(policy=policy, prompts=prompts, candidates=candidates, bounded_range=widest)

    def plan(self, ledger: Ledger, simulate_seed: int | None) -> dict[str, Any]:
        """Return what the answers would spend; nothing is touched.

        Raises:
            BudgetExceeded: The ledger has not enough left for all.
            LedgerMismatch: It belongs to other prompts and answers.
        """
        held, delta, count = self.policy.estimate, ledger.budget.delta, len(self.prompts)
        one = BoundedRangeEvent(self.bounded_range)
        spend = accounting.composed_epsilon([(one, count)], neighbors=held.neighbors, delta=delta)
        promise = Guarantee(
            spend,
            delta=delta,
            unit=held.unit,
            neighbors=held.neighbors,
            trust="central",
            randomness=entropy_of(simulate_seed).randomness,
            caveats=held.caveats,
        )
        ledger.check_data(None, held.public_digest)
        try:
            ledger.check(one, promise=promise, count=count)
        except BudgetExceeded as error:
            raise BudgetExceeded(
                f"{error} Or ask for fewer answers, or at a higher --temperature."
            ) from None
        return {"spend": spend, **self._told(promise), "remaining_epsilon": None}

    def _told(self, promise: Guarantee) -> dict[str, Any]:
        """Return what is public of the answers and of what they cost."""
        return {
            "prompts": len(self.prompts),
            "temperature": self.policy.temperature,
            **describe_guarantee_and_caveats(promise),
            "per_draw": describe_draw(self.bounded_range),
        }

    def answers(
        self, ledger: Ledger, simulate_seed: int | None
    ) -> tuple[Int64[np.ndarray, " n"], dict[str, Any]]:
        """Return which candidates were drawn, and what that spent; the spend comes first.

        Raises:
            BudgetExceeded: The ledger has not enough left for all; nothing was drawn.
        """
        before = len(ledger.rows)
        with quiet():
            drawn = self.policy.draw_each(
                self.prompts, self.candidates, ledger=ledger, simulate_seed=simulate_seed
            )
        told = self._told(paid_since(ledger, before, ledger.budget.delta))
        return drawn, told | {"remaining_epsilon": ledger.remaining_epsilon()}
