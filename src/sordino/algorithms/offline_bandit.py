"""Private policies from logged bandit pulls, whose own randomness is the noise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from sordino.algorithms.draw_calibration import bounded_range_of_draws, settle, usual_temperature
from sordino.errors import UsageError
from sordino.mechanisms.gibbs import least_temperature
from sordino.mechanisms.minimum_count_release import MinimumCount
from sordino.mechanisms.score_sensitivity import shrunken_mean_range
from sordino.policies.withheld import WithheldPolicy
from sordino.preferences.bandit_logs import BanditLogs
from sordino.privacy.guarantee import NeighboringRelation, Unit
from sordino.privacy.ledger import Ledger
from sordino.rewards.bandits import (
    ArmMeans,
    BallRidge,
    JointFeatures,
    ScreenedMeans,
    ball_ridge_range,
)
from sordino.rewards.withheld import changes_of, refuse_other_terms

_OF_ARMS: Final = 10.0  # how closely a policy follows means, in their standard errors
_OF_FEATURES: Final = 4.0


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
        usual=usual_temperature(width, records, shared_by=len(logs.catalogue), hotter=_OF_ARMS),
    )
    return WithheldPolicy(fixed(shrinkage=found), temperature=heat, reference=reference)


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
        usual=usual_temperature(width, records, shared_by=features.dimension, hotter=_OF_FEATURES),
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
