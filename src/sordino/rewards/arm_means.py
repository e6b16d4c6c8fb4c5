"""The mean reward of every arm of a bandit, withheld.

Means are shrunken towards a public center; or plain, of arms that a private test found to be pulled
often enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    Context,
    Decimal,
    DivisionByZero,
    InvalidOperation,
    Overflow,
    localcontext,
)
from typing import Final

import numpy as np
from jaxtyping import Int64

from sordino._withholding import confidential, hide
from sordino.errors import DataError, UsageError
from sordino.mechanisms.exact_bounds import size
from sordino.mechanisms.minimum_count_release import MinimumCount
from sordino.mechanisms.score_sensitivity import (
    mean_range_after_test,
    rewards_only_range,
    shrunken_mean_range,
)
from sordino.preferences.bandit_logs import BanditLogs
from sordino.privacy.guarantee import Event, NeighboringRelation, Unit
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import digest_of_json

from .release_checks import entropy_of, weighed
from .withheld import WithheldFit, changes_of, refuse_other_terms

STEPS: Final = 2**20  # of one reward: sums of 2^32 of them stay exact
_MOST: Final = 2**32
_DIGITS: Final = Context(
    prec=200, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[InvalidOperation, DivisionByZero, Overflow]
)  # whatever the caller's own arithmetic is; sizes are within 1e-60 and 1e60


class ArmMeans(WithheldFit):
    """The score of every arm: its shrunken mean reward less a penalty for few pulls.

    Guarantee:
        :meth:`score_range` bounds how far one change moves the scores. Shown by
        tests/soundness/test_offline_bandit.py.
    """

    # f(a) = (S_a + shrinkage · center)/(N_a + shrinkage) − penalty/√(N_a + shrinkage), S_a being
    # the sum of N_a rewards above the lower end of their range. Rewards are cut to the range and
    # rounded to 2^-20 of it one by one, and sums are sums of integers: scores are exact to 50
    # digits, and need no arithmetic caveat. Nothing depends on how many records there are.
    # The object counts the logs itself, so that no counts can stand beside other settings.
    # Source: KLDP, Theorem 1 and Algorithm 1; docs/intrinsic.md, "Multi-armed bandits". Differs: a
    # shrunken mean, so that the bound holds for every data set.

    _held = "The means of a bandit's arms"
    # Unit `"record"`: a pull and its reward are hidden. `"label"`: the arms are public and one
    # reward is hidden.
    reward_range: float
    shrinkage: float  # how many made-up pulls of reward `center` each arm gets, > 0
    penalty: float  # strength of pessimism about arms that were pulled rarely, ≥ 0
    center: float  # their mean above the lower end; half the range if left out, which shows least
    _arms: int

    def __init__(
        self,
        logs: BanditLogs,
        *,
        unit: Unit,
        neighbors: NeighboringRelation,
        shrinkage: float,
        center: float | None = None,
        penalty: float = 0.0,
    ) -> None:
        """Check the settings and count."""
        refuse_other_terms(unit, neighbors)
        low, high = logs.reward_range
        width = size("the width of reward_range", high - low)
        middle = width / 2 if center is None else float(center)
        if not 0 <= middle <= width:
            raise UsageError(
                f"center must lie between 0 and the reward range {width!r} (it counts from the "
                f"lower end), got {center!r}."
            )
        if len(logs.arms) > _MOST:
            raise DataError("More than 2^32 records cannot be summed exactly.")
        # rewards in steps of 2^-20 of the range
        steps = np.rint(np.clip((logs.rewards - low) / (high - low), 0.0, 1.0) * STEPS)
        k = len(logs.catalogue)
        sums = np.bincount(logs.arms, weights=steps, minlength=k).astype(np.int64)  # below 2^53
        counts = np.bincount(logs.arms, minlength=k).astype(np.int64)
        for column in (counts, sums):
            column.setflags(write=False)
        hide(self, counts=counts, sums=sums)
        self._keep(
            unit=unit,
            neighbors=neighbors,
            reward_range=width,
            shrinkage=self._usable(shrinkage),
            penalty=size("penalty", penalty, zero=True),
            center=middle,
            questions=None,  # who pulled an arm, in which of many contexts, tells logs apart badly
            people=None,
            _arms=k,
        )

    @staticmethod
    def _usable(shrinkage: float) -> float:
        """Return the shrinkage; without one, arms that were never pulled would have no mean."""
        return size("shrinkage", shrinkage)

    def options(self, context: object, candidates: object) -> Int64[np.ndarray, " c"]:
        """Return the arms to choose from, as indices; all of them if candidates is None."""
        if context is not None:
            raise UsageError("A multi-armed bandit has no context: leave it out.")
        return arms_of(candidates, self._arms, distinct=True)

    def score_range(self, options: Int64[np.ndarray, " c"]) -> float:
        """Return how far one change can move the difference of two scores."""
        # Guarantee: An upper bound for every two neighboring data sets; of labels, for those with
        # these public arms.
        if self.unit == "label":
            return rewards_only_range(
                confidential(self).counts[options],  # of public arms
                shrinkage=self.shrinkage,
                reward_range=self.reward_range,
            )
        return changes_of(self.neighbors) * self._range_of_one()

    def _range_of_one(self) -> float:
        """Return how far a record that is added or removed moves its arm."""
        return shrunken_mean_range(
            self.shrinkage, reward_range=self.reward_range, center=self.center, penalty=self.penalty
        )

    def _scores(self, options: Int64[np.ndarray, " c"]) -> Sequence[Decimal]:
        """Return the score of every option, exact to 50 digits; confidential."""
        held = confidential(self)
        return [self._score(int(held.counts[arm]), int(held.sums[arm])) for arm in options]

    def _score(self, count: int, total: int) -> Decimal:
        """Return the score of an arm with so many pulls and such a sum of steps."""
        with localcontext(_DIGITS):
            shrinkage, center = Decimal(self.shrinkage), Decimal(self.center)
            weight = count + shrinkage
            if weight == 0:  # after a test only, and then with its failure probability
                return center
            reward = Decimal(total) * Decimal(self.reward_range) / STEPS
            mean = (reward + shrinkage * center) / weight
            return mean - Decimal(self.penalty) / weight.sqrt() if self.penalty else mean


def arms_of(candidates: object, k: int, *, distinct: bool = False) -> Int64[np.ndarray, " c"]:
    """Return which of k arms there are to choose from; all if None."""
    arms = np.arange(k) if candidates is None else np.array(candidates)
    wrong = arms.ndim != 1 or arms.dtype.kind not in "iu" or not len(arms)
    wrong = wrong or arms.min() < 0 or arms.max() >= k
    if wrong or (distinct and len(set(arms.tolist())) < len(arms)):
        kind = "different indices" if distinct else "indices"
        raise UsageError(f"candidates must be {kind} of arms, 0 to {k - 1}.")
    return arms.astype(np.int64)


class ScreenedMeans(ArmMeans):
    """Plain mean rewards, scored by what a noisy test of the least count found.

    Guarantee:
        :meth:`score_range` holds outside the test's bad event, whose probability is part of
        every promise made with them. Shown by tests/soundness/test_offline_bandit.py and
        tests/soundness/test_minimum_count.py.
    """

    # They can be drawn from after `screen` only, and on the ledger of that test only. Scores are
    # plain means (less the penalty) if the count was at least 1, and all equal otherwise.
    # Source: docs/intrinsic.md, "Propose, test, release".

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

    def screen(
        self, test: MinimumCount, *, ledger: Ledger, simulate_seed: int | None = None
    ) -> int:
        """Return the noisy least count, by which scores are made from then on.

        Guarantee:
            That of the test: unit ``"record"``, trust ``"central"``. Shown by
            tests/soundness/test_minimum_count.py.
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
        promise = weighed(promise, None, ledger)
        released = ledger.charge(
            test.event,
            lambda: test.release(confidential(self).counts, entropy=entropy),
            digest=lambda counts: digest_of_json({"least_count": int(counts[0])}),
            promise=promise,
        )
        count = int(released.value[0])
        self._keep(least_count=count, _payment=(released.release_id, test.event))
        return count

    def options(self, context: object, candidates: object) -> Int64[np.ndarray, " c"]:
        """Return the arms to choose from, as :meth:`ArmMeans.options`."""
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
