"""Plain mean rewards of arms that a private test found to be pulled often enough."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
from jaxtyping import Int64

from sordino._withholding import confidential
from sordino.errors import UsageError
from sordino.mechanisms.arm_sensitivity import mean_range_after_test
from sordino.mechanisms.count_test import CountTest
from sordino.preferences.bandit_logs import BanditLogs
from sordino.privacy.chain import canonical_json
from sordino.privacy.events import Event
from sordino.privacy.guarantee import NeighboringRelation
from sordino.privacy.ledger import Ledger
from sordino.rewards.arm_means import ArmMeans
from sordino.rewards.release_checks import entropy_of, refuse_large_delta

__all__ = ["ScreenedMeans"]


class ScreenedMeans(ArmMeans):
    """Plain mean rewards, scored by what a noisy test of the least count found.

    They can be drawn from after :meth:`screen` only, and on the ledger of that test only. Scores
    are plain means (less the penalty) if the count was at least 1, and all equal otherwise.

    Args:
        logs: Raw records; the unit is ``"record"``.
        neighbors: What one change is.
        penalty: Strength of pessimism about arms that were pulled rarely, ≥ 0.

    Guarantee:
        :meth:`score_range` holds outside the test's bad event, whose probability is part of
        every promise made with them. Shown by tests/soundness/test_offline_bandit.py and
        tests/soundness/test_count_test.py.

    Source:
        docs/intrinsic.md, "Propose, test, release".
    """

    least_count: int | None
    _payment: tuple[str, Event] | None

    def __init__(
        self, logs: BanditLogs, *, neighbors: NeighboringRelation, penalty: float = 0.0
    ) -> None:
        """Count, without a test yet."""
        super().__init__(logs, unit="record", neighbors=neighbors, shrinkage=0.0, penalty=penalty)
        self._keep(least_count=None, _payment=None)

    @staticmethod
    def _usable(shrinkage: float) -> float:
        """Return no shrinkage: the test says that every arm was pulled."""
        return shrinkage

    @property
    def payments(self) -> tuple[tuple[str, Event], ...]:
        """Return the ledger entry of the test and what it did."""
        return () if self._payment is None else (self._payment,)

    def screen(self, test: CountTest, *, ledger: Ledger, simulate_seed: int | None = None) -> int:
        """Return the noisy least count, by which scores are made from then on.

        Args:
            test: The noise.
            ledger: Where the test is recorded before its noise is drawn.
            simulate_seed: A seed for study; the entry then says ``simulated``.

        Raises:
            UsageError: They were screened before, or there is no ledger.
            BudgetExceeded: The test would pass the ledger's budget; no noise was drawn.
            PrivacyError: The ledger is about another unit or relation.

        Guarantee:
            That of the test: unit ``"record"``, trust ``"central"``. Shown by
            tests/soundness/test_count_test.py.
        """
        if not isinstance(ledger, Ledger):
            raise UsageError(
                "The test of counts spends, so a ledger is needed to record it. Nothing was "
                "drawn. Pass ledger=sordino.Ledger.open(...)."
            )
        if self.least_count is not None:
            raise UsageError("These means were screened before. Nothing was drawn.")
        entropy = entropy_of(simulate_seed)
        promise = replace(
            test.guarantee(unit="record", neighbors=self.neighbors, trust="central"),
            randomness=entropy.randomness,
        )
        refuse_large_delta(promise, None)
        reservation = ledger.reserve(test.event, promise=promise)
        count = int(test.release(confidential(self).counts, entropy=entropy)[0])
        text = canonical_json({"least_count": count})
        reservation.commit(hashlib.sha256(text.encode()).hexdigest())
        self._keep(least_count=count, _payment=(reservation.release_id, test.event))
        return count

    def options(self, context: Any, candidates: Any) -> Int64[np.ndarray, " c"]:
        """Return the arms to choose from, as :meth:`ArmMeans.options`.

        Raises:
            UsageError: They were not screened, or the question is none.
        """
        if self.least_count is None:
            raise UsageError("These means were not screened yet: call screen first.")
        return super().options(context, candidates)

    def _range_of_one(self) -> float:
        """Return how far a record that is added or removed moves its arm."""
        if self.least_count is None or self.least_count < 1:
            return 0.0
        return mean_range_after_test(
            self.least_count, reward_range=self.reward_range, penalty=self.penalty
        )

    def _score(self, count: int, total: int) -> Decimal:
        """Return the score of an arm, that of all others if the test has not been passed."""
        if self.least_count is None or self.least_count < 1:
            return Decimal(0)
        return super()._score(count, total)
