"""What a bandit's draws are made from, withheld: mean rewards of arms, or a linear regression.

Means are shrunken towards a public center; or plain, of arms that a private test found to be pulled
often enough. The regression of logged rewards is inside a ball, and linear in features of a context
and an arm together, which are public and of norm at most 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
from jaxtyping import Float, Int64
from scipy.linalg import cholesky, eigh

from sordino import _random, _validate
from sordino._validate import Square, Vector
from sordino._withholding import confidential, hide
from sordino.errors import DataError, UsageError
from sordino.mechanisms.gibbs import digits
from sordino.mechanisms.minimum_count_release import MinimumCount
from sordino.mechanisms.score_sensitivity import (
    constrained_ridge_range,
    farthest_rows,
    mean_range_after_test,
    public_design_ridge_range,
    rewards_only_range,
    shrunken_mean_range,
)
from sordino.preferences.bandit_logs import BanditLogs, Catalogue
from sordino.privacy.guarantee import Event, NeighboringRelation, Unit
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import digest_of_json

from .release_checks import paying, weighed
from .withheld import WithheldFit, changes_of, linear_scores, refuse_other_terms

_BLOCK = 1 << 20  # numbers held at once
_UP = 1 + 1e-12
_INSIDE = 1 - 2.0**-39  # so that no rounding makes a row longer than 1


@dataclass(frozen=True)
class JointFeatures:
    """φ(x, a) = every product of a feature of (1, x) with one of (1, a), of norm at most 1."""

    # The arm's own features are standardized over the catalogue, which is public, and scaled so
    # that the longest has norm 1; without any, arm a is the a-th unit vector. Contexts have norm at
    # most 1. Each of the two vectors is extended by a 1 and divided by √2 (a bandit without
    # contexts has the 1 alone). The first feature is a constant, so rewards may be centered.
    # Source: docs/intrinsic.md, "Linear bandits".

    catalogue: Catalogue  # the arms and their features
    context_size: int  # length p of a context; 0 for none

    @cached_property
    def arms(self) -> Float[np.ndarray, "k q1"]:
        """Return (1, a)/√2 for every arm."""
        given, own = self.catalogue.features, np.eye(len(self.catalogue))
        if given is not None:  # columns of mean 0 and equal spread, all rows of norm at most 1
            centered = given - given.mean(axis=0)
            spread = centered.std(axis=0)
            own = np.divide(centered, spread, out=np.zeros_like(centered), where=spread > 0)
            longest = float(np.linalg.norm(own, axis=1).max(initial=0.0))
            own = _shortened(own / max(longest, 1e-300))
        rows = np.asarray(np.hstack([np.ones((len(own), 1)), own]) / np.sqrt(2))
        rows.setflags(write=False)
        return rows

    @property
    def dimension(self) -> int:
        """Return d, the number of features."""
        return int(self.arms.shape[1]) * (self.context_size + 1)

    @cached_property
    def spread(self) -> float:
        """Return a bound on max ‖φ(x, a) − φ(x, a′)‖ over all contexts and arms; public."""
        return farthest_rows(self.arms)

    @classmethod
    def of(cls, logs: BanditLogs) -> JointFeatures:
        """Return the features that logs are fitted with."""
        return cls(logs.catalogue, 0 if logs.contexts is None else int(logs.contexts.shape[1]))

    def options(self, context: object, arms: Int64[np.ndarray, " c"]) -> Float[np.ndarray, "c d"]:
        """Return φ(x, a) of some arms in one context of norm at most 1 (None: all of it 0)."""
        blank = np.zeros(self.context_size)
        given = blank if context is None else np.atleast_1d(np.asarray(context, dtype=np.float64))
        if given.shape != blank.shape or not np.isfinite(given).all():
            raise UsageError(
                f"context must be {self.context_size} finite numbers, as the logs' own contexts "
                "are made (see contexts_of)."
            )
        if float(np.linalg.norm(given)) > _UP:
            raise UsageError("context must have norm at most 1: see contexts_of.")
        return self._joint(given[None, :], arms)

    def blocks(self, logs: BanditLogs) -> Iterator[tuple[slice, Float[np.ndarray, "b d"]]]:
        """Yield stretches of the logs: which they are, and φ of what was seen and pulled."""
        n, size = len(logs.arms), max(1, _BLOCK // self.dimension)
        for start in range(0, n, size):
            part = slice(start, min(start + size, n))
            contexts = np.zeros((part.stop - start, 0))
            if logs.contexts is not None:
                contexts = _shortened(logs.contexts[part])
            yield part, self._joint(contexts, logs.arms[part])

    def _joint(
        self, contexts: Float[np.ndarray, "b p"], arms: Int64[np.ndarray, " b"]
    ) -> Float[np.ndarray, "b d"]:
        """Return φ for every pair of a context (or the one for all) and an arm."""
        ones = np.ones((len(contexts), 1))
        seen = np.hstack([ones, contexts]) / (np.sqrt(2) if self.context_size else 1.0)
        pulled = self.arms[arms] * _INSIDE
        return np.asarray(
            (seen[:, :, None] * pulled[:, None, :]).reshape(len(pulled), self.dimension)
        )


def _shortened(rows: Float[np.ndarray, "b p"]) -> Float[np.ndarray, "b p"]:
    """Return rows of norm at most 1: the bound is enforced, row by row."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(norms, 1.0))


_STEPS: Final = 200


def _minimize_in_ball(moment: Square, pull: Vector, ball: float | None) -> Vector:
    """Return the θ that minimizes θᵀΣθ − 2bᵀθ over the ball, up to rounding."""
    # Private data have been read, and a refusal would tell of them: there is none. In real numbers
    # every step is exact, but for a shift that is found to the last bit.
    # Source: docs/intrinsic.md, "Linear bandits": the first-order conditions, solved in the basis
    # of eigenvectors, where ‖θ(ν)‖ falls with ν.
    values, basis = eigh(moment)
    rotated = basis.T @ pull

    def size(shift: float) -> float:
        return float(np.linalg.norm(rotated / (values + shift)))

    shift = 0.0
    if ball is not None and size(0.0) > ball:
        high = float(np.linalg.norm(pull)) / ball  # there the norm is below the ball's
        low = 0.0
        for _ in range(_STEPS):
            shift = low + (high - low) / 2
            low, high = (shift, high) if size(shift) > ball else (low, shift)
        shift = high
    theta = basis @ (rotated / (values + shift))
    for _ in range(3):  # what rounding left over
        residual = pull - moment @ theta - shift * theta
        theta = theta + basis @ ((basis.T @ residual) / (values + shift))
    norm = float(np.linalg.norm(theta))
    if ball is not None and (shift > 0 or norm > ball):
        theta = theta * (ball / norm)  # on the sphere, where a shift may push
    return np.asarray(theta)


_ATOL: Final = 2.0**-20  # what rounding may leave, as a share of what one record can push with


class BallRidge(WithheldFit):
    """θ̂ = argmin over ‖θ‖ ≤ ball of Σ (r − θᵀφ)² + ridge‖θ‖², and the scores it gives.

    Guarantee:
        :meth:`score_range` bounds how far one change moves the scores, in real arithmetic
        (caveat ``real-arithmetic``); what the solver may be off is part of it. Shown by
        tests/soundness/test_offline_bandit.py.
    """

    # f(x, a) = θ̂ᵀφ(x, a) − penalty·‖φ(x, a)‖ in the inverse of Σ = ridge·I + Σ φφᵀ. Rewards are
    # cut to their public range and counted from its middle, features have norm at most 1; both are
    # enforced record by record. Nothing depends on how many records there are.
    # The object fits the logs it is given itself, so that no weights can stand beside settings that
    # were made for others.
    # Source: KLDP, Theorem 2 and Algorithm 2; docs/intrinsic.md, "Linear bandits". Differs: a ball,
    # so that the bound depends on no eigenvalue of the data.

    _held = "The regression behind a linear bandit"
    caveats = ("real-arithmetic",)
    # Unit `"record"`, or `"label"` where contexts and arms are public.
    reward_range: float
    ridge: float  # strength of the quadratic penalty, > 0
    # Bound on ‖θ‖, > 0; one reward range if left out. None for labels, whose bound needs none.
    ball: float | None
    penalty: float  # strength of pessimism, ≥ 0
    features: JointFeatures

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
        if unit == "label" and ball is not None:
            raise UsageError("ball is for unit='record': with public arms the bound needs none.")
        bound = None
        if unit == "record":
            own = width if ball is None else ball
            bound = _within("ball", own, 1e-9 * width, 1e9 * width)
        features = JointFeatures.of(logs)
        # a ridge beside which the rounding of a billion features of records is nothing
        moment = _within("ridge", ridge, 1e-6, 1e60) * np.eye(features.dimension)
        pull = np.zeros(features.dimension)  # Σ rφ, rewards counted from the middle of their range
        for part, rows in features.blocks(logs):
            above = np.clip(np.clip(logs.rewards[part], low, high) - low, 0.0, high - low)
            moment += rows.T @ rows
            pull += rows.T @ (above - (high - low) / 2)
        weights = _minimize_in_ball(moment, pull, bound)
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
            penalty=_validate.moderate("penalty", penalty, zero=True),
            features=features,
        )

    def options(self, context: object, candidates: object) -> Float[np.ndarray, "c d"]:
        """Return the features of arms in one context; of all arms if candidates is None."""
        arms = _arms_of(candidates, len(self.features.catalogue))
        return self.features.options(context, arms)

    def score_range(self, options: Float[np.ndarray, "c d"]) -> float:
        """Return how far one change can move the difference of two scores."""
        # Guarantee: An upper bound for every two neighboring data sets; of labels, for those with
        # these public contexts and arms.
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
            inexactness=_inexactness(self.ridge, spread, self.reward_range, None),
        )

    def _scores(self, options: Float[np.ndarray, "c d"]) -> Float[np.ndarray, " c"]:
        """Return the score of every option; confidential."""
        held = confidential(self)
        return linear_scores(
            options, held.weights, doubted=options, factor=held.factor, penalty=self.penalty
        )

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
    """Return how far one change of a record moves the difference of two scores of a fit."""
    # Guarantee: An upper bound for every two neighboring data sets, with all that the solver may be
    # off.
    # Source: docs/intrinsic.md, "Linear bandits".
    return changes_of(neighbors) * constrained_ridge_range(
        ridge,
        spread=spread,
        ball=ball,
        reward_bound=reward_range / 2,
        penalty=penalty,
        inexactness=_inexactness(ridge, spread, reward_range, ball),
    )


def _within(name: str, value: float, least: float, most: float) -> float:
    """Return a positive size; refuse what a fit might not be certified with, whatever the data."""
    result = _validate.positive(name, value)
    if not least <= result <= most:
        raise UsageError(f"{name} must be within {least:g} and {most:g}, got {value!r}.")
    return result


def _inexactness(ridge: float, spread: float, reward_range: float, ball: float | None) -> float:
    """Return by how much an accepted fit may move a score, up to what all options share."""
    # The accepted residual is a share of what one record can push the first-order conditions by.
    push = reward_range / 2 + (reward_range if ball is None else ball)
    return spread / 2 * _ATOL * push / ridge


STEPS: Final = 2**20  # of one reward: sums of 2^32 of them stay exact
_MOST: Final = 2**32
_DIGITS: Final = digits(200)  # whatever the caller's are; sizes are within 1e-60 and 1e60


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
    _plain: ClassVar[bool] = False  # without shrinkage, where a test says that every arm was pulled

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
        width = _validate.moderate("the width of reward_range", high - low)
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
            shrinkage=_validate.moderate("shrinkage", shrinkage, zero=self._plain),
            penalty=_validate.moderate("penalty", penalty, zero=True),
            center=middle,
            _arms=k,  # no questions: who pulled an arm, in which of many contexts, tells logs badly
        )

    def options(self, context: object, candidates: object) -> Int64[np.ndarray, " c"]:
        """Return the arms to choose from, as indices; all of them if candidates is None."""
        if context is not None:
            raise UsageError("A multi-armed bandit has no context: leave it out.")
        return _arms_of(candidates, self._arms, distinct=True)

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


def _arms_of(candidates: object, k: int, *, distinct: bool = False) -> Int64[np.ndarray, " c"]:
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

    _plain: ClassVar[bool] = True
    least_count: int | None
    _payment: tuple[str, Event] | None

    def __init__(
        self, logs: BanditLogs, *, neighbors: NeighboringRelation, penalty: float = 0.0
    ) -> None:
        """Count, without a test yet."""
        super().__init__(logs, unit="record", neighbors=neighbors, shrinkage=0.0, penalty=penalty)
        self._keep(least_count=None, _payment=None)

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
        ledger = paying(ledger, "The test of counts spends", "drawn")
        if self.least_count is not None:
            raise UsageError("These means were screened before. Nothing was drawn.")
        entropy = _random.entropy(simulate_seed)
        promise = replace(
            test.guarantee(unit="record", neighbors=self.neighbors, trust="central"),
            randomness=entropy.randomness,
        )
        promise = weighed(promise, None, ledger.accepted)
        released = ledger.charge(
            test.event,
            lambda: test.release(confidential(self).counts, entropy=entropy),
            digest=lambda counts: digest_of_json({"least_count": int(counts[0])}),
            promise=promise,
        )
        count = int(released.value[0])
        self._keep(least_count=count, _payment=(released.release_ids[0], test.event))
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
