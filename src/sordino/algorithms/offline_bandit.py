"""Private policies from logged bandit pulls, whose own randomness is the noise.

How hot a policy must be, and how strongly its estimate regularized, to keep (ε, δ), comes first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from sordino import _validate
from sordino.errors import UsageError
from sordino.mechanisms.gibbs import least_temperature
from sordino.mechanisms.minimum_count_release import MinimumCount
from sordino.mechanisms.score_sensitivity import shrunken_mean_range
from sordino.policies.gibbs import WithheldPolicy
from sordino.preferences.bandit_logs import BanditLogs
from sordino.privacy import accounting
from sordino.privacy.guarantee import BoundedRangeEvent, NeighboringRelation, Unit
from sordino.privacy.ledger import Ledger
from sordino.rewards.bandits import (
    ArmMeans,
    BallRidge,
    JointFeatures,
    ScreenedMeans,
    ball_ridge_range,
)
from sordino.rewards.withheld import changes_of, refuse_other_terms

_LARGEST: Final = 1e15  # regularization beyond it leaves nothing to learn


def bounded_range_of_draws(
    epsilon: float,
    delta: float,
    draws: int,
    *,
    neighbors: NeighboringRelation,
    adaptive: bool = False,
) -> float:
    """Return the largest bounded range of one draw of which so many keep (epsilon, delta).

    Args:
        epsilon: Privacy loss of all draws together, finite and > 0.
        delta: Failure probability of all draws together, in [0, 1).
        draws: How many.
        neighbors: What one change is.
        adaptive: Whether they are from different policies, or paid for one by one.

    Raises:
        UsageError: A setting is out of range.

    Guarantee:
        The accountant shows (epsilon, delta) for that many draws of the result.

    Source:
        docs/intrinsic.md, "Draws and composition": the pure sum, zCDP, or for independent draws
        from one policy the exact composition.

    Example:
        >>> from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE
        >>> round(bounded_range_of_draws(1.0, 0.0, 10, neighbors=ADD_OR_REMOVE_ONE), 6)
        0.1
    """
    epsilon = _validate.positive("epsilon", epsilon)
    delta = _validate.failure_probability("delta", delta)
    draws = _validate.integer("draws", draws, at_least=1)

    def event(size: float) -> BoundedRangeEvent:
        return BoundedRangeEvent(size, draws=1 if adaptive else draws)

    def spent(size: float) -> float:
        return accounting.composed_epsilon([(event(size), count)], neighbors=neighbors, delta=delta)

    count = draws if adaptive else 1
    pure = epsilon / draws
    while spent(pure) > epsilon:
        pure = math.nextafter(pure, 0.0)  # what is stated is rounded up as it prints
    if delta == 0:
        return pure
    most = pure * (2 + 8 * math.sqrt(draws)) + 8 * math.sqrt(-math.log1p(-delta)) + 1
    found = accounting.calibrate(
        event, epsilon, delta, neighbors=neighbors, bracket=(pure, most), count=count
    )
    while spent(found) > epsilon:
        found *= 1 - 1e-7  # what is stated is the upper end of a bracket
    return found


def settle(
    range_of: Callable[[float], float],
    *,
    target: float | None,
    temperature: float | None,
    regularization: float | None,
    name: str,
    usual: float,
) -> tuple[float, float]:
    """Return regularization and temperature; no record is looked at."""
    given = (temperature is not None) + (regularization is not None)
    if (target is None) != (given == 2):  # noqa: PLR2004 (both)
        raise UsageError(
            f"Give an epsilon and at most one of temperature and {name}, or both of these and no "
            f"epsilon; got {given} of them {'without' if target is None else 'with'} an epsilon."
        )
    if temperature is not None:
        temperature = _validate.positive("temperature", temperature)
    if regularization is not None:
        regularization = _validate.positive(name, regularization)
    if regularization is None and temperature is None:
        temperature = usual
    if regularization is None:
        assert temperature is not None and target is not None  # noqa: S101, PT018 - one is given
        regularization = _least(range_of, temperature, target, name)
    if target is None:
        assert temperature is not None  # noqa: S101 - both are given
        return regularization, temperature
    least = least_temperature(range_of(regularization), target)
    return regularization, least if temperature is None else max(temperature, least)


def _least(
    range_of: Callable[[float], float], temperature: float, target: float, name: str
) -> float:
    """Return about the least regularization at which one draw has the target; at least 1e-6."""
    low, high = 1e-6, 1.0
    while range_of(high) > temperature * target:
        low, high = high, 2 * high
        if high > _LARGEST:
            raise UsageError(
                f"No {name} keeps a temperature of {temperature!r} private enough. Use a larger "
                "temperature or epsilon, or fewer draws."
            )
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if range_of(middle) > temperature * target else (low, middle)
    return high


def _usual_temperature(
    reward_range: float, records: int | None, *, shared_by: int, hotter: float
) -> float:
    """Return a temperature that served well on logs that are like no particular one."""
    # A hundredth of the reward range; or, with a public guess of the number of records,
    # 1/(hotter·√(records/shared_by)) of it, which falls like the standard error of one estimate.
    # Source: docs/intrinsic.md, "Choosing temperature and regularization".
    if records is None:
        return 0.01 * reward_range  # the temperature, of the reward range, if nothing is known
    each = max(1.0, _validate.integer("records", records, at_least=1) / shared_by)
    return reward_range / (hotter * math.sqrt(each))


_OF_ARMS: Final = 10.0  # how closely a policy follows means, in their standard errors
_OF_FEATURES: Final = 4.0


@_validate.typed
def multi_armed_policy(  # noqa: PLR0913 (each is one choice of the user)
    logs: BanditLogs,
    *,
    unit: Unit,
    neighbors: NeighboringRelation,
    epsilon: float | None = None,
    delta: float = 0.0,
    draws: int = 1,
    temperature: float | None = None,
    shrinkage: float | None = None,
    penalty: float = 0.0,
    center: float | None = None,
    records: int | None = None,
    reference: Sequence[float] | None = None,
) -> WithheldPolicy:
    """Return a policy over arms that is drawn from the shrunken mean rewards of a log.

    Nothing is spent here: every draw of the policy does. With an epsilon, temperature and
    shrinkage are chosen so that ``draws`` draws in one call of ``draw_many`` keep
    (epsilon, delta); what is given of the two is kept. Without one, both must be given.

    Args:
        logs: Raw records; arms and reward range are public.
        unit: ``"record"`` hides a pull and its reward; ``"label"`` hides one reward, and who was
            given which arm is public.
        neighbors: What one change is; ``REPLACE_ONE`` for labels.
        epsilon: Privacy loss that all draws together may have.
        delta: Failure probability of all draws together, in [0, 1).
        draws: How many draws.
        temperature: KL strength, in units of reward.
        shrinkage: How many made-up pulls of reward ``center`` each arm gets.
        penalty: Strength of pessimism: what an arm loses is penalty/√(pulls + shrinkage).
        center: Reward of a made-up pull above the lower end of the range; half of it if left
            out, which shows least. Where rewards are rare, a public guess of what is typical
            serves far better, at up to twice the cost.
        records: A public guess of how many records there are, for the choice of the temperature,
            which otherwise is a hundredth of the reward range. No promise depends on it.
        reference: Public starting probabilities of the arms; uniform if left out.

    Raises:
        UsageError: A setting is out of range, or too much or too little is given.
        PrivacyError: No bound is known for this unit under this relation.

    Source:
        KLDP, Theorem 1; docs/intrinsic.md, "Multi-armed bandits" and "Choosing temperature and
        regularization".

    Example:
        >>> import sordino
        >>> logs = BanditLogs.from_arrays(
        ...     [0, 1, 1], [0.0, 1.0, 1.0], catalogue=2, reward_range=(0, 1))
        >>> policy = multi_armed_policy(
        ...     logs, unit="record", neighbors=sordino.ADD_OR_REMOVE_ONE, epsilon=1.0)
        >>> policy.guarantee().epsilon <= 1.0
        True
    """
    refuse_other_terms(unit, neighbors)
    width = logs.reward_range[1] - logs.reward_range[0]
    fixed = partial(ArmMeans, logs, unit=unit, neighbors=neighbors, penalty=penalty, center=center)
    if unit == "label" and shrinkage is None and (epsilon is None or temperature is None):
        shrinkage = 1.0

    def range_of(shrinkage: float) -> float:
        if unit == "label":
            means = fixed(shrinkage=shrinkage)
            return means.score_range(means.options(None, None))
        return changes_of(neighbors) * shrunken_mean_range(
            shrinkage, reward_range=width, center=center, penalty=penalty
        )

    target = None
    if epsilon is not None:
        target = bounded_range_of_draws(epsilon, delta, draws, neighbors=neighbors)
    found, heat = settle(
        range_of,
        target=target,
        temperature=temperature,
        regularization=shrinkage,
        name="shrinkage",
        usual=_usual_temperature(width, records, shared_by=len(logs.catalogue), hotter=_OF_ARMS),
    )
    return WithheldPolicy(fixed(shrinkage=found), temperature=heat, reference=reference)


@_validate.typed
def linear_policy(  # noqa: PLR0913 (each is one choice of the user)
    logs: BanditLogs,
    *,
    unit: Unit,
    neighbors: NeighboringRelation,
    epsilon: float | None = None,
    delta: float = 0.0,
    draws: int = 1,
    adaptive: bool = False,
    temperature: float | None = None,
    ridge: float | None = None,
    ball: float | None = None,
    penalty: float = 0.0,
    records: int | None = None,
    reference: Sequence[float] | None = None,
) -> WithheldPolicy:
    """Return a policy over arms that is drawn from a linear fit of logged rewards.

    The reward of arm a in context x is modeled as linear in the products of their features; see
    :class:`~sordino.rewards.bandits.JointFeatures`. Nothing is spent here: every draw of
    the policy does.

    Args:
        logs: Raw records with contexts, or without; the catalogue may have features.
        unit: ``"record"`` hides context, pull and reward; ``"label"`` hides one reward alone,
            and then temperature and ridge must be given: the loss follows from the public
            contexts and arms, see the policy's ``guarantee``.
        neighbors: What one change is; ``REPLACE_ONE`` for labels.
        epsilon: Privacy loss that all draws together may have, in any contexts.
        delta: Failure probability of all draws together, in [0, 1).
        draws: How many draws.
        adaptive: Whether the draws are for different contexts, or made one by one, which
            composes less tightly than draws for one context in one call.
        temperature: KL strength, in units of reward.
        ridge: Strength of the quadratic penalty.
        ball: Bound on the norm of the fitted weights; one reward range if left out.
        penalty: Strength of pessimism about what was seen rarely.
        records: A public guess of how many records there are, for the choice of the
            temperature. No promise depends on it.
        reference: Public starting probabilities of the arms; uniform if left out.

    Raises:
        UsageError: A setting is out of range, or too much or too little is given.
        PrivacyError: No bound is known for this unit under this relation.

    Source:
        KLDP, Theorem 2; docs/intrinsic.md, "Linear bandits" and "Choosing temperature and
        regularization".
    """
    refuse_other_terms(unit, neighbors)
    if unit == "label" and (temperature is None or ridge is None or epsilon is not None):
        raise UsageError(
            "With unit='label' give temperature and ridge, and no epsilon: the loss of a draw "
            "follows from the public contexts. Read it from policy.guarantee(draws, context)."
        )
    width = logs.reward_range[1] - logs.reward_range[0]
    features = JointFeatures.of(logs)

    def range_of(ridge: float) -> float:
        return ball_ridge_range(
            ridge,
            spread=features.spread,
            ball=width if ball is None else ball,
            reward_range=width,
            neighbors=neighbors,
            penalty=penalty,
        )

    target = None
    if epsilon is not None:
        target = bounded_range_of_draws(
            epsilon, delta, draws, neighbors=neighbors, adaptive=adaptive
        )
    found, heat = settle(
        range_of,
        target=target,
        temperature=temperature,
        regularization=ridge,
        name="ridge",
        usual=_usual_temperature(width, records, shared_by=features.dimension, hotter=_OF_FEATURES),
    )
    fit = BallRidge(logs, unit=unit, neighbors=neighbors, ridge=found, ball=ball, penalty=penalty)
    return WithheldPolicy(fit, temperature=heat, reference=reference)


def count_tested_policy(  # noqa: PLR0913 (each is one choice of the user)
    logs: BanditLogs,
    *,
    neighbors: NeighboringRelation,
    epsilon: float,
    delta: float = 0.0,
    draws: int = 1,
    test_epsilon: float,
    test_delta: float,
    penalty: float = 0.0,
    reference: Sequence[float] | None = None,
    ledger: Ledger,
    simulate_seed: int | None = None,
) -> WithheldPolicy:
    """Return a policy over arms whose temperature follows a private test of the least count.

    Guarantee:
        (test_epsilon, test_delta) for the test; each draw on top has the bounded range that its
        entry states. Unit ``"record"``, trust ``"central"``. Shown by
        tests/soundness/test_minimum_count.py and tests/soundness/test_offline_bandit.py.
    """
    # Propose, test, release: the least count of all arms is tested with discrete Laplace noise,
    # which is spent here and once. Where many pulls of every arm are certain enough, plain means
    # show little of one record, and the draws are from a policy as sharp as (epsilon, delta)
    # allows; else the policy is the reference, whose draws are free.
    # Source: Dwork & Lei 2009; docs/intrinsic.md, "Propose, test, release". Differs: KLDP, Theorem
    # 1, reads the least count from the data.
    refuse_other_terms("record", neighbors)
    share = bounded_range_of_draws(epsilon, delta, draws, neighbors=neighbors)
    means = ScreenedMeans(logs, neighbors=neighbors, penalty=penalty)
    test = MinimumCount(test_epsilon, delta=test_delta)
    means.screen(test, ledger=ledger, simulate_seed=simulate_seed)
    heat = least_temperature(means.score_range(means.options(None, None)), share)
    return WithheldPolicy(means, temperature=heat, reference=reference)
