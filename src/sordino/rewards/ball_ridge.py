"""Ridge regression of logged rewards inside a ball, withheld: the estimate of a linear bandit."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Any, Final

import numpy as np
from jaxtyping import Float
from scipy.linalg import cholesky, solve_triangular

from sordino import _validate
from sordino._withholding import Withholding, confidential, hide
from sordino.errors import UsageError
from sordino.mechanisms._outward import farthest_rows, size
from sordino.mechanisms.ridge_sensitivity import constrained_ridge_range, public_design_ridge_range
from sordino.preferences.bandit_logs import BanditLogs
from sordino.privacy.events import Event
from sordino.privacy.guarantee import NeighboringRelation, Unit
from sordino.rewards.arm_means import arms_digest
from sordino.rewards.ball_least_squares import minimize_in_ball
from sordino.rewards.joint_features import JointFeatures
from sordino.rewards.withheld_checks import changes_of, refuse_other_terms

__all__ = ["BallRidge", "ball_ridge_range"]

_ATOL: Final = 2.0**-20  # what rounding may leave, as a share of what one record can push with


class BallRidge(Withholding):
    """θ̂ = argmin over ‖θ‖ ≤ ball of Σ (r − θᵀφ)² + ridge‖θ‖², and the scores it gives.

    f(x, a) = θ̂ᵀφ(x, a) − penalty·‖φ(x, a)‖ in the inverse of Σ = ridge·I + Σ φφᵀ. Rewards are
    cut to their public range and counted from its middle, features have norm at most 1; both are
    enforced record by record. Nothing depends on how many records there are.

    The object fits the logs it is given itself, so that no weights can stand beside settings
    that were made for others.

    Args:
        logs: Raw records; arms, their features and the reward range are public.
        unit: ``"record"``, or ``"label"`` where contexts and arms are public.
        neighbors: What one change is; ``REPLACE_ONE`` for labels.
        ridge: Strength of the quadratic penalty, > 0.
        ball: Bound on ‖θ‖, > 0; one reward range if left out. None for labels, whose bound needs
            none.
        penalty: Strength of pessimism, ≥ 0.

    Raises:
        UsageError: A setting is out of range.
        PrivacyError: No bound is known for the unit under the relation.

    Guarantee:
        :meth:`score_range` bounds how far one change moves the scores, in real arithmetic
        (caveat ``real-arithmetic``); what the solver may be off is part of it. Shown by
        tests/soundness/test_offline_bandit.py.

    Source:
        KLDP, Theorem 2 and Algorithm 2; docs/intrinsic.md, "Linear bandits".
        Differs: a ball, so that the bound depends on no eigenvalue of the data.
    """

    _held = "The regression behind a linear bandit"
    caveats = ("real-arithmetic",)
    unit: Unit
    neighbors: NeighboringRelation
    reward_range: float
    ridge: float
    ball: float | None
    penalty: float
    features: JointFeatures
    public_digest: str | None

    def __init__(
        self,
        logs: BanditLogs,
        *,
        unit: Unit,
        neighbors: NeighboringRelation,
        ridge: float,
        ball: float | None = None,
        penalty: float = 0.0,
    ) -> None:
        """Check the settings and fit."""
        refuse_other_terms(unit, neighbors)
        low, high = logs.reward_range
        width = _within("the width of reward_range", high - low, 1e-100, 1e100)
        bound, features = _ball(unit, ball, width), JointFeatures.of(logs)
        moment, pull = _sums(logs, features, _ridge(ridge))
        weights = minimize_in_ball(moment, pull, bound)
        factor = cholesky(moment, lower=True)
        for held in (weights, factor):
            held.setflags(write=False)
        hide(self, logs=logs, weights=weights, factor=factor)
        self._keep(
            unit=unit,
            neighbors=neighbors,
            reward_range=width,
            ridge=float(ridge),
            ball=bound,
            penalty=size("penalty", penalty, zero=True),
            features=features,
            public_digest=None if unit != "label" else _digest(logs),
        )

    @property
    def payments(self) -> tuple[tuple[str, Event], ...]:
        """Return what was paid for the scores before any draw: nothing."""
        return ()

    def options(self, context: Any, candidates: Any) -> Float[np.ndarray, "c d"]:
        """Return the features of arms in one context; of all arms if candidates is None.

        Args:
            context: A vector as :meth:`~sordino.preferences.bandit_logs.BanditLogs.contexts_of`
                makes it; None for one of zeros.
            candidates: Indices of arms.

        Raises:
            UsageError: It is no context, or an index is no arm.
        """
        k = len(self.features.catalogue)
        arms = np.arange(k) if candidates is None else np.asarray(candidates)
        if arms.ndim != 1 or arms.dtype.kind not in "iu" or not len(arms):
            raise UsageError(f"candidates must be indices of arms, 0 to {k - 1}.")
        if arms.min() < 0 or arms.max() >= k:
            raise UsageError(f"candidates must be indices of arms, 0 to {k - 1}.")
        return self.features.options(context, arms.astype(np.int64))

    def score_range(self, options: Float[np.ndarray, "c d"]) -> float:
        """Return how far one change can move the difference of two scores.

        Guarantee:
            An upper bound for every two neighboring data sets; of labels, for those with these
            public contexts and arms.
        """
        spread = min(farthest_rows(options), self.features.spread)
        if self.ball is not None:
            return ball_ridge_range(
                self.ridge,
                spread=spread,
                ball=self.ball,
                reward_range=self.reward_range,
                neighbors=self.neighbors,
                penalty=self.penalty,
            )
        return public_design_ridge_range(
            self._design,
            options,
            ridge=self.ridge,
            reward_range=self.reward_range,
            inexactness=_inexactness(self.ridge, spread, _push(self.reward_range, None)),
        )

    def _scores(self, options: Float[np.ndarray, "c d"]) -> Float[np.ndarray, " c"]:
        """Return the score of every option; confidential."""
        if farthest_rows(options) == 0:
            return np.zeros(len(options))  # equal options, whatever rounding makes of them
        # of differences, so that what all options share leaves no rounding behind
        held = confidential(self)
        scores = (options - options[:1]) @ held.weights
        if self.penalty > 0:
            inside = solve_triangular(held.factor, options.T, lower=True)
            scores = scores - self.penalty * np.linalg.norm(inside, axis=0)
        return np.asarray(scores)

    @cached_property
    def _design(self) -> Float[np.ndarray, "n d"]:
        """Return φ of every record, where it is public."""
        none = np.zeros((0, self.features.dimension))
        return np.vstack(
            [none, *(rows for _, rows in self.features.blocks(confidential(self).logs))]
        )


def ball_ridge_range(
    ridge: float,
    *,
    spread: float,
    ball: float,
    reward_range: float,
    neighbors: NeighboringRelation,
    penalty: float = 0.0,
) -> float:
    """Return how far one change of a record moves the difference of two scores of a fit.

    Args:
        ridge: Strength of the quadratic penalty, > 0.
        spread: max ‖φ − φ′‖ over the options.
        ball: Bound on the norm of the weights.
        reward_range: Upper less lower end of the rewards, which are counted from its middle.
        neighbors: What one change is.
        penalty: Strength of pessimism.

    Guarantee:
        An upper bound for every two neighboring data sets, with all that the solver may be off.

    Source:
        docs/intrinsic.md, "Linear bandits".
    """
    return changes_of(neighbors) * constrained_ridge_range(
        ridge,
        spread=spread,
        ball=ball,
        reward_bound=reward_range / 2,
        penalty=penalty,
        inexactness=_inexactness(ridge, spread, _push(reward_range, ball)),
    )


def _ball(unit: Unit, ball: float | None, width: float) -> float | None:
    """Return the bound on the norm of the weights; none for labels."""
    if unit == "label":
        if ball is not None:
            raise UsageError("ball is for unit='record': with public arms the bound needs none.")
        return None
    return _within("ball", width if ball is None else ball, 1e-9 * width, 1e9 * width)


def _ridge(ridge: float) -> float:
    """Return a ridge beside which the rounding of a billion features of records is nothing."""
    return _within("ridge", ridge, 1e-6, 1e60)


def _within(name: str, value: float, least: float, most: float) -> float:
    """Return a positive size; refuse what a fit might not be certified with, whatever the data."""
    result = _validate.positive(name, value)
    if not least <= result <= most:
        raise UsageError(f"{name} must be within {least:g} and {most:g}, got {value!r}.")
    return result


def _digest(logs: BanditLogs) -> str:
    """Return the SHA-256 of arms and contexts, where both are public."""
    digest = hashlib.sha256(arms_digest(logs).encode())
    if logs.contexts is not None:
        digest.update(logs.contexts.astype("<f8").tobytes())
    return digest.hexdigest()


def _sums(
    logs: BanditLogs, features: JointFeatures, ridge: float
) -> tuple[Float[np.ndarray, "d d"], Float[np.ndarray, " d"]]:
    """Return ridge·I + Σ φφᵀ and Σ rφ, rewards counted from the middle of their range."""
    low, high = logs.reward_range
    moment = ridge * np.eye(features.dimension)
    pull = np.zeros(features.dimension)
    for part, rows in features.blocks(logs):
        above = np.clip(np.clip(logs.rewards[part], low, high) - low, 0.0, high - low)
        rewards = above - (high - low) / 2
        moment += rows.T @ rows
        pull += rows.T @ rewards
    return moment, pull


def _inexactness(ridge: float, spread: float, push: float) -> float:
    """Return by how much an accepted fit may move a score, up to what all options share."""
    return spread / 2 * _ATOL * push / ridge


def _push(reward_range: float, ball: float | None) -> float:
    """Return how far one record can push the first-order conditions."""
    return reward_range / 2 + (reward_range if ball is None else ball)
