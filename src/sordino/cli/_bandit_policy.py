"""The policy that a run of ``sordino bandit`` draws from, and what its draws cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from sordino.algorithms.draw_calibration import bounded_range_of_draws
from sordino.algorithms.offline_bandit import (
    count_tested_policy,
    linear_policy,
    multi_armed_policy,
)
from sordino.cli._bandit_inputs import BanditInputs
from sordino.cli._bandit_settings import BanditMethod, BanditSettings
from sordino.cli._draw_spend import describe_draw, quiet
from sordino.cli._options import Unit
from sordino.mechanisms.count_test import CountTest
from sordino.mechanisms.gibbs_sampling import least_temperature
from sordino.policies.withheld import WithheldPolicy
from sordino.privacy import accounting
from sordino.privacy.events import BoundedRangeEvent, Event
from sordino.privacy.ledger import Ledger
from sordino.rewards.arm_means import ArmMeans
from sordino.rewards.ball_ridge import BallRidge

__all__ = [
    "DrawCost",
    "make_bandit_policy",
    "regularization_of",
    "tested_policy",
]

_BELOW = 1 - 1e-12  # the parts of a sum of floats, so that they never pass the whole
_RIDGE = 1.0


@dataclass(frozen=True, kw_only=True)
class DrawCost:
    """What one run puts on the ledger, from public settings alone.

    Attributes:
        test: The test of counts; None without one.
        one: All draws of one question, or one draw of one question of several.
        count: How often ``one`` happens.
    """

    test: CountTest | None
    one: BoundedRangeEvent
    count: int

    @classmethod
    def of(
        cls, settings: BanditSettings, inputs: BanditInputs, policy: WithheldPolicy | None
    ) -> DrawCost:
        """Return the cost of a run.

        Args:
            settings: What the user chose.
            inputs: Of which only what is public counts.
            policy: What will be drawn from; None where a test comes first, whose outcome decides
                how sharp the policy is, but not what it costs.
        """
        if policy is None:
            one = BoundedRangeEvent(_share(settings), draws=settings.draws)
            epsilon, delta = settings.test_terms
            return cls(test=CountTest(epsilon, delta=delta), one=one, count=1)
        with quiet():
            widest = max(policy.bounded_range(question) for question in inputs.questions)
        several = len(inputs.questions) > 1
        return cls(
            test=None,
            one=BoundedRangeEvent(widest, draws=1 if several else settings.draws),
            count=settings.draws * len(inputs.questions) if several else 1,
        )

    @property
    def events(self) -> Counter[Event]:
        """Return everything that is spent."""
        events: Counter[Event] = Counter({self.one: self.count})
        if self.test is not None:
            events[self.test.event] += 1
        return events

    @property
    def per_draw(self) -> dict[str, Any]:
        """Return what one draw costs by itself."""
        return describe_draw(self.one.bounded_range)

    def epsilon(self, settings: BanditSettings) -> float:
        """Return the loss of everything together at the delta that the user allowed."""
        return accounting.composed_epsilon(
            self.events, neighbors=settings.relation, delta=settings.delta
        )


def make_bandit_policy(settings: BanditSettings, inputs: BanditInputs) -> WithheldPolicy | None:
    """Return what will be drawn from, at no cost; None where a test comes first.

    Raises:
        UsageError: The settings can be met by no temperature.
        ConvergenceError: The fit could not be certified.
    """
    if settings.tested:
        return None
    fixed: dict[str, Any] = {
        "unit": settings.unit.whose,
        "neighbors": settings.relation,
        "epsilon": settings.epsilon,
        "delta": settings.delta if settings.epsilon is not None else 0.0,
        "temperature": settings.temperature,
        "penalty": settings.penalty,
        "records": settings.records,
        "reference": inputs.reference,
    }
    if settings.method is BanditMethod.linear:
        return _linear(settings, inputs, fixed)
    chosen = settings.unit is Unit.label and settings.epsilon is not None
    policy = multi_armed_policy(
        inputs.logs,
        draws=settings.draws,
        shrinkage=settings.regularization,
        center=None if settings.center is None else settings.center - settings.ends[0],
        **(fixed | ({"temperature": None} if chosen else {})),
    )
    return _no_colder(policy, settings) if chosen else policy


def _no_colder(policy: WithheldPolicy, settings: BanditSettings) -> WithheldPolicy:
    """Return the policy at the temperature that was asked for, if that is as private."""
    return replace(policy, temperature=max(policy.temperature, settings.temperature or 0.0))


def _linear(
    settings: BanditSettings, inputs: BanditInputs, fixed: dict[str, Any]
) -> WithheldPolicy:
    """Return the policy of a regression.

    What is asked is public, so that the policy may be as sharp as these very questions allow.
    """
    count, ridge = len(inputs.questions), settings.regularization
    public = settings.unit is Unit.label and settings.epsilon is not None
    if public:  # the design is public too, and decides how far a reward can move the scores
        fixed = fixed | {"epsilon": None, "delta": 0.0, "temperature": 1.0}
        ridge = ridge or _RIDGE
    policy = linear_policy(
        inputs.logs,
        draws=settings.draws * count,
        adaptive=count > 1,
        ridge=ridge,
        ball=settings.ball,
        **fixed,
    )
    if settings.epsilon is None or (settings.temperature is not None and not public):
        return policy
    held = policy.estimate
    widest = max(held.score_range(held.options(asked, None)) for asked in inputs.questions)
    least = least_temperature(widest, _share(settings, count))
    return _no_colder(replace(policy, temperature=least), settings)


def tested_policy(settings: BanditSettings, inputs: BanditInputs, ledger: Ledger) -> WithheldPolicy:
    """Return the policy that a test of counts allows; the test is spent here.

    Raises:
        BudgetExceeded: The test would pass the ledger's budget; no noise was drawn.
    """
    epsilon, delta = settings.test_terms
    return count_tested_policy(
        inputs.logs,
        neighbors=settings.relation,
        **_rest(settings),
        draws=settings.draws,
        test_epsilon=epsilon,
        test_delta=delta,
        penalty=settings.penalty,
        reference=inputs.reference,
        ledger=ledger,
        simulate_seed=settings.simulate_seed,
    )


def _rest(settings: BanditSettings) -> dict[str, float]:
    """Return the epsilon and delta that the draws may spend beside a test, if there is one."""
    assert settings.epsilon is not None  # noqa: S101 - refused before
    if not settings.tested:
        return {"epsilon": settings.epsilon, "delta": settings.delta}
    epsilon, delta = settings.test_terms
    return {
        "epsilon": (settings.epsilon - epsilon) * _BELOW,
        "delta": (settings.delta - delta) * _BELOW,
    }


def _share(settings: BanditSettings, questions: int = 1) -> float:
    """Return the bounded range that one draw may have."""
    return bounded_range_of_draws(
        **_rest(settings),
        draws=settings.draws * questions,
        neighbors=settings.relation,
        adaptive=questions > 1,
    )


def regularization_of(policy: WithheldPolicy) -> float:
    """Return the shrinkage of means, or the ridge of a regression."""
    held = policy.estimate
    if isinstance(held, BallRidge):
        return held.ridge
    assert isinstance(held, ArmMeans)  # noqa: S101 - there are these two
    return held.shrinkage
