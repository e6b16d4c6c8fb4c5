"""One run of ``sordino bandit``, step by step: plan, pay, draw, write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int64

from sordino import _random
from sordino._files import finite, refuse_unwritable, to_json
from sordino.cli._accounts import Limit, future_ledger, open_ledger, spending_limit, with_spend
from sordino.cli._bandit_inputs import BanditInputs
from sordino.cli._bandit_policy import (
    DrawCost,
    make_bandit_policy,
    regularization_of,
    tested_policy,
)
from sordino.cli._bandit_settings import BanditSettings
from sordino.cli._draw_spend import describe_draw, paid_since, quiet, warn_if_vacuous
from sordino.cli._options import Unit
from sordino.cli._run import made_folder, publish, spend_is_said
from sordino.errors import BudgetExceeded
from sordino.policies.withheld import WithheldPolicy
from sordino.privacy.guarantee import Guarantee, never_less, never_more
from sordino.privacy.ledger import Ledger
from sordino.reporting.result import describe_guarantee_and_caveats
from sordino.rewards.release_checks import entropy_of, refuse_large_delta
from sordino.rewards.screened_means import ScreenedMeans

__all__ = ["BANDIT_FORMAT", "BANDIT_VERSION", "BanditRun"]

BANDIT_FORMAT = "sordino.bandit"
BANDIT_VERSION = 1
_WAY_OUT = "Use a smaller --epsilon, or a larger --temperature or --regularization."
_BLOCK = 1024  # questions whose features are held at once


@dataclass(frozen=True, kw_only=True)
class BanditRun:
    """A run that was prepared: nothing is spent, and nothing was written.

    Attributes:
        settings: What the user chose.
        inputs: What was read.
        policy: What will be drawn from; None where a test comes first.
        cost: What it will spend.
    """

    settings: BanditSettings
    inputs: BanditInputs
    policy: WithheldPolicy | None
    cost: DrawCost

    @classmethod
    def prepared(cls, settings: BanditSettings, inputs: BanditInputs) -> BanditRun:
        """Return the run of settings on inputs; warn where it protects nobody."""
        policy = make_bandit_policy(settings, inputs)
        cost = DrawCost.of(settings, inputs, policy)
        warn_if_vacuous(cost.one.bounded_range, _WAY_OUT)
        return cls(settings=settings, inputs=inputs, policy=policy, cost=cost)

    def plan(self) -> dict[str, Any]:
        """Return what the run would spend; nothing is touched.

        Raises:
            BudgetExceeded: The ledger has not enough left.
            LedgerError: The ledger belongs to other data, or is damaged.
        """
        path, data = self.settings.ledger_path, self.settings.data
        ledger = future_ledger(path, data, self._limit())
        ledger.check_data(data, None if self.policy is None else self.policy.estimate.public_digest)
        promise = self._promise()
        self._refuse_over_budget(ledger, promise)
        return {
            "spend": promise.epsilon,
            "temperature": None if self.policy is None else self.policy.temperature,
            "regularization": None if self.policy is None else regularization_of(self.policy),
            "draws": self.settings.draws * len(self.inputs.questions),
            "per_draw": self._per_draw(),
            **describe_guarantee_and_caveats(promise),
        }

    def run(self, *, started: float) -> tuple[dict[str, Any], Ledger]:
        """Pay, draw and write; return what ``result.json`` holds, and the ledger.

        Whatever can be refused is refused before anything is spent.
        """
        self.plan()
        settings = self.settings
        with made_folder(settings.out):
            refuse_unwritable(settings.out / "result.json")
            ledger = open_ledger(
                settings.ledger_path,
                settings.data,
                self._limit(),
            )
            with spend_is_said(ledger):
                result = self._drawn(ledger, started)
                publish(settings.out, {"result.json": to_json(result)}, force=settings.force)
        return result, ledger

    def _drawn(self, ledger: Ledger, started: float) -> dict[str, Any]:
        """Return the result of drawing, after each entry on the ledger."""
        before = len(ledger.rows)
        policy = self.policy or tested_policy(self.settings, self.inputs, ledger)
        with quiet():
            drawn = self._draws(policy, ledger)
        names = self.inputs.logs.catalogue.names
        paid = paid_since(ledger, before, self.settings.delta)
        timed = self.settings.unit is Unit.label  # else a time tells how many records there were
        result: dict[str, Any] = finite(
            {
                "format": BANDIT_FORMAT,
                "version": BANDIT_VERSION,
                **describe_guarantee_and_caveats(paid),
                "temperature": policy.temperature,
                "regularization": regularization_of(policy),
                "draws": [names[arm] for arm in drawn.tolist()],
                "per_draw": self._per_draw(policy),
                "seconds": round(_random.clock() - started, 3) if timed else None,
            }
        )
        return result

    def _draws(self, policy: WithheldPolicy, ledger: Ledger) -> Int64[np.ndarray, " n"]:
        """Return drawn arms, those for one context together, in the order of the contexts."""
        count, questions = self.settings.draws, self.inputs.questions
        seed = self.settings.simulate_seed
        if policy is not self.policy and seed is not None:
            seed += 1  # the test had the first
        if len(questions) == 1:
            return policy.draw_many(count, questions[0], ledger=ledger, simulate_seed=seed)
        asked = [question for question in questions for _ in range(count)]
        parts = [
            policy.draw_each(
                asked[start : start + _BLOCK],
                ledger=ledger,
                simulate_seed=None if seed is None else seed + start,
            )
            for start in range(0, len(asked), _BLOCK)
        ]
        return np.concatenate(parts)

    def _per_draw(self, policy: WithheldPolicy | None = None) -> dict[str, Any]:
        """Return what one draw costs, and what is public of how it came about."""
        told = self.cost.per_draw
        if self.inputs.logs.context_columns:
            given = self.inputs.contexts
            told["contexts"] = "zeros" if given is None else len(given)
        if self.cost.test is not None:
            told["test"] = {"epsilon": self.cost.test.epsilon, "delta": self.cost.test.delta}
        if policy is not None and self.policy is None:
            return told | _tested(policy)
        return told

    def _limit(self) -> Limit:
        """Return the limit of a new ledger: what this run may spend."""
        settings = self.settings
        asked = self.cost.epsilon(settings) if settings.epsilon is None else settings.epsilon
        return spending_limit(
            asked,
            settings.budget,
            unit=settings.unit.whose,
            trust="central",
            delta=settings.delta,
            neighbors=settings.relation,
        )

    def _promise(self) -> Guarantee:
        """Return what everything together would promise."""
        settings = self.settings
        promise = Guarantee(
            self.cost.epsilon(settings),
            delta=settings.delta,
            unit=settings.unit.whose,
            neighbors=settings.relation,
            trust="central",
            randomness=entropy_of(settings.simulate_seed).randomness,
            caveats=() if self.policy is None else self.policy.estimate.caveats,
        )
        refuse_large_delta(promise, None)
        return promise

    def _refuse_over_budget(self, ledger: Ledger, promise: Guarantee) -> None:
        """Refuse a run that the ledger has not enough left for."""
        cost, after = self.cost, ledger
        try:
            if cost.test is not None:
                after = with_spend(ledger, cost.test.event, promise)
            after.check(cost.one, promise=promise, count=cost.count)
        except BudgetExceeded as error:
            raise BudgetExceeded(f"{error}{self._way_out(ledger)}") from None

    def _way_out(self, ledger: Ledger) -> str:
        """Return what to do about a budget whose delta is less than what was planned with."""
        if ledger.budget.delta >= self.settings.delta:
            return ""
        return (
            f" This run was planned with delta={never_less(self.settings.delta)}, and "
            f"{ledger.path.name} allows delta={never_more(ledger.budget.delta)}: use that --delta, "
            "or change the limit with --budget-delta DELTA, which the ledger records."
        )


def _tested(policy: WithheldPolicy) -> dict[str, Any]:
    """Return what a test found, which was paid for, and what a draw costs after it."""
    held = policy.estimate
    assert isinstance(held, ScreenedMeans)  # noqa: S101 - counts are of arms
    with quiet():
        size = policy.bounded_range()
    return describe_draw(size) | {"least_count": held.least_count}
