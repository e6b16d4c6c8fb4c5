"""What one data set loses: an audit result, as confidential as the data it was computed from.

What one record can do to a multi-armed policy, for every arm at once.

One record belongs to one arm, so a neighbor moves one score, by h. With p the chance of that arm
and t = h / temperature, the log-ratio of its chances is t − log(1 − p + p·eᵗ) and that of all
other arms −log(1 − p + p·eᵗ). Both grow with |t|, so among rewards only the extremes count.

How much one draw of a multi-armed policy loses on one data set, over all its neighbors.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from jaxtyping import Float, Int64

from sordino import _validate
from sordino._markup import card
from sordino._withholding import Withholding, confidential, hide
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.exact_bounds import penalty_step
from sordino.preferences.bandit_logs import BanditLogs
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, NeighboringRelation


def _refuse(what: str) -> NoReturn:
    raise PrivacyError(
        f"An instance loss is computed from the private data, so it is confidential, and it was "
        f"not {what}. Publish the Guarantee, which holds for every data set. Whoever holds the "
        "data can read the number with for_curator_only()."
    )


class InstanceLoss(Withholding):
    """How much one draw gives away about this very data set, for the eyes of its curator."""

    # The number depends on the data and is no guarantee: a neighbor of the data may lose more, and
    # the number itself tells about the data. So it is not shown, written, compared or turned into a
    # float, and `certify` refuses it. What is shown is what it is about.
    # Source: docs/intrinsic.md, "Per-instance losses".

    __slots__ = ("about", "changes", "neighbors", "public")  # so that vars() is empty
    _held = "An instance loss"
    about: str  # what the number measures
    changes: str  # which neighbors of the data were searched
    neighbors: NeighboringRelation  # the relation that these changes belong to
    public: tuple[str, ...]  # which inputs were taken to be public; every other one is private

    def __init__(self, value: float, *, about: str, changes: str, public: tuple[str, ...]) -> None:
        """Keep the number and what it is about."""
        hide(self, value=float(value))
        self._keep(
            about=about,
            changes=changes,
            public=public,
            neighbors=ADD_OR_REMOVE_ONE,
        )

    def for_curator_only(self) -> float:
        """Return the number itself, which is as confidential as the data."""
        # It is an audit result about one data set and never a promise: do not publish it, and do
        # not choose a temperature by it, because that would release it.
        return float(confidential(self).value)

    def __repr__(self) -> str:
        """Return what the number is about, without the number."""
        return f"InstanceLoss(confidential: {self.about}, over {self.changes})"

    def _repr_html_(self) -> str:
        """Return the same as a card, for notebooks."""
        rows = [
            ("value", "confidential"),
            ("about", self.about),
            ("over", self.changes),
            ("relation", self.neighbors.name),
            ("public", ", ".join(self.public) or None),
        ]
        return card("InstanceLoss", rows)

    def to_dict(self) -> NoReturn:
        """Refuse to become what JSON holds."""
        _refuse("written as JSON")

    def _stay(self, *_: object) -> NoReturn:
        """Refuse to be pickled or copied."""
        _refuse("pickled or copied")

    __reduce__ = __reduce_ex__ = __getstate__ = __setstate__ = __copy__ = __deepcopy__ = _stay

    def __format__(self, spec: str) -> str:
        """Return the text of ``repr``; refuse the format of a number."""
        return _refuse("formatted as a number") if spec else repr(self)

    def __float__(self) -> NoReturn:
        """Refuse to become a plain number, which nothing would protect."""
        _refuse("turned into a number")

    def __int__(self) -> NoReturn:
        _refuse("turned into a number")

    def __bool__(self) -> bool:
        return bool(_refuse("compared"))

    def __eq__(self, other: object) -> NoReturn:
        """Refuse to be compared: enough comparisons spell a number."""
        _refuse("compared")

    def __lt__(self, other: object) -> NoReturn:
        _refuse("compared")

    __le__ = __gt__ = __ge__ = __lt__
    __ne__ = __eq__

    def __hash__(self) -> int:
        """Refuse to be a key: what cannot be compared is none."""
        return int(_refuse("hashed"))


_ROUNDING = 1e-9  # of a sum, relative to the largest that its arm can have
_GENTLE = 1.0  # up to this |t|, p·(eᵗ − 1) is added to 1 without cancellation
_STEEPEST = 700.0  # e^b beyond it is no float
_FEWEST = 2  # records without shrinkage, so that a plain mean is left in every neighbor


@dataclass(frozen=True, kw_only=True)
class ArmRule:
    """What is public about the policy: its scores are (S + λ·center)/(N + λ) − penalty/√(N + λ)."""

    temperature: float
    reward_range: float
    shrinkage: float = 0.0
    center: float | None = None
    penalty: float = 0.0
    reference: Any = None

    def __post_init__(self) -> None:
        """Refuse settings that make no policy."""
        _validate.positive("temperature", self.temperature)
        _validate.positive("reward_range", self.reward_range)
        for name in ("shrinkage", "penalty"):
            if _validate.non_negative(name, getattr(self, name)) == math.inf:
                raise UsageError(f"{name} must be finite, got inf.")
        if not 0 <= _validate.number("center", self.middle) <= self.reward_range:
            raise UsageError(
                f"center must lie between 0 and reward_range={self.reward_range!r}, got "
                f"{self.center!r}: it counts from the lower end of the rewards."
            )

    @property
    def middle(self) -> float:
        """Return what an arm without records is worth."""
        return self.reward_range / 2 if self.center is None else self.center


@dataclass(frozen=True, repr=False, eq=False)
class Arms:
    """What an audit needs of the records of every arm, and all that a neighbor can change."""

    # The two rows of additions come first, then those of removals; where an arm has no record, its
    # removals change nothing.

    counts: Int64[np.ndarray, " k"]
    sums: Float[np.ndarray, " k"]
    least: Float[np.ndarray, " k"]
    most: Float[np.ndarray, " k"]
    _: KW_ONLY
    rule: ArmRule

    @classmethod
    def of(cls, counts: Any, sums: Any, least: Any, most: Any, *, rule: ArmRule) -> Arms:
        """Return the arms; refuse sums that no records within the reward range can have."""
        pulled = whole_counts(counts)
        given = {"sums": sums, "least": least, "most": most}
        total, low, high = (_validate.finite_array(name, v, ndim=1) for name, v in given.items())
        if not len(pulled) == len(total) == len(low) == len(high) > 0:
            raise DataError(
                "counts, sums, least and most must have one entry for each of k >= 1 arms, got "
                f"{len(pulled)}, {len(total)}, {len(low)} and {len(high)}. Nothing was computed."
            )
        slack = _ROUNDING * rule.reward_range * pulled
        apart = (low < 0) | (high > rule.reward_range) | (low > high)
        apart |= (total < pulled * low - slack) | (total > pulled * high + slack)
        wrong = np.flatnonzero((apart & (pulled > 0)) | ((pulled == 0) & (total != 0)))
        if len(wrong):
            raise DataError(
                f"sums, least and most: those of arm {wrong[0]} are not those of rewards between 0 "
                "and reward_range, counted from the lower end. Nothing was computed."
            )
        if rule.shrinkage == 0 and pulled.sum() < _FEWEST:
            raise DataError(
                "Without shrinkage an audit needs two records or more, so that a mean is left when "
                "one is removed. Nothing was computed; give the shrinkage of the policy."
            )
        return cls(pulled, total, low, high, rule=rule)

    @property
    def _sizes(self) -> Float[np.ndarray, " k"]:
        return self.counts + self.rule.shrinkage

    @cached_property
    def steps(self) -> Float[np.ndarray, "4 k"]:
        """T of every change; infinite where an arm gains its first record or loses its last."""
        # This is so without shrinkage, where an arm without records is never drawn.
        rule, sizes = self.rule, self._sizes
        whole = np.where(sizes > 0, sizes, 1.0)
        means = (self.sums + rule.shrinkage * rule.middle) / whole
        left = np.where(self.counts > 0, self.counts - 1 + rule.shrinkage, 1.0)
        divisor = np.where(left > 0, left, 1.0)
        more, fewer = _penalty_steps(whole, rule.penalty), _penalty_steps(divisor, rule.penalty)
        added = [(r - means) / (whole + 1) + more for r in (0.0, rule.reward_range)]
        removed = [(means - r) / divisor - fewer for r in (self.least, self.most)]
        added = [np.where(sizes > 0, step, math.inf) for step in added]
        kept = np.where(left > 0, 0.0, -math.inf)
        removed = [np.where(self.counts > 0, step + kept, 0.0) for step in removed]
        return np.asarray([*added, *removed]) / rule.temperature

    @cached_property
    def log_weights(self) -> Float[np.ndarray, " k"]:
        """Return log reference + score / temperature, −∞ where the plain mean has no record."""
        rule, sizes = self.rule, self._sizes
        whole = np.where(sizes > 0, sizes, 1.0)
        scores = (self.sums + rule.shrinkage * rule.middle) / whole - rule.penalty / np.sqrt(whole)
        base = log_reference(rule.reference, (len(self.counts),))
        return np.asarray(base + np.where(sizes > 0, scores, -math.inf) / rule.temperature)

    @cached_property
    def log_others(self) -> Float[np.ndarray, " k"]:
        """Return for every arm the logarithm of the summed weights of all others."""
        # They are summed from both ends: subtracting from the total would cancel where one arm has
        # nearly all of it.
        weights, none = self.log_weights, [-math.inf]
        before = np.logaddexp.accumulate(weights)[:-1]
        after = np.logaddexp.accumulate(weights[::-1])[::-1][1:]
        return np.asarray(
            np.logaddexp(np.concatenate([none, before]), np.concatenate([after, none]))
        )

    @property
    def log_new_weights(self) -> Float[np.ndarray, "4 k"]:
        """Return the weights of the moved arms after every change."""
        rule, steps = self.rule, self.steps
        base = log_reference(rule.reference, (len(self.counts),))
        first = [(r - rule.penalty) / rule.temperature + base for r in (0.0, rule.reward_range)]
        gone = np.full_like(self.log_weights, -math.inf)
        with np.errstate(invalid="ignore"):  # −∞ + ∞, which is not taken
            moved = self.log_weights + steps
        return np.where(np.isfinite(steps), moved, np.asarray([*first, gone, gone]))

    def loss(self) -> float:
        """Return the largest log-ratio of any arm's chances over all changes."""
        if len(self.counts) == 1:
            return 0.0
        if np.isinf(self.steps).any():
            return math.inf
        total = np.logaddexp.reduce(self.log_weights)
        share, others = self.log_weights - total, self.log_others - total
        moved = _log_mixed(others, share, -self.steps)
        rest = _log_mixed(share, others, self.steps)
        return float(max(abs(moved).max(), abs(rest).max()))

    def delta(self, epsilon: float) -> float:
        """Return the largest hockey-stick divergence over all changes, both ways round."""
        if len(self.counts) == 1:
            return 0.0
        new, others = self.log_new_weights, self.log_others
        old = _pair(np.broadcast_to(self.log_weights, new.shape), others)
        moved = _pair(new, others)
        return float(max(_excess(old, moved, epsilon).max(), _excess(moved, old, epsilon).max()))


def _log_mixed(
    log_share: Float[np.ndarray, " k"],
    log_others: Float[np.ndarray, " k"],
    steps: Float[np.ndarray, "4 k"],
) -> Float[np.ndarray, "4 k"]:
    """Return log(1 − p + p·eᵗ) to nearly all digits, for p and 1 − p given by their logarithms."""
    small = np.log1p(np.exp(log_share) * np.expm1(np.clip(steps, -_GENTLE, _GENTLE)))
    wide = np.logaddexp(log_others, log_share + steps)
    return np.asarray(np.where(abs(steps) < _GENTLE, small, wide))


def _pair(
    log_weights: Float[np.ndarray, "4 k"], log_others: Float[np.ndarray, " k"]
) -> Float[np.ndarray, "2 4 k"]:
    """Return the logarithms of the chances of each arm, and of all others together."""
    total = np.logaddexp(log_weights, log_others)
    return np.asarray([log_weights - total, log_others - total])


def _excess(
    one: Float[np.ndarray, "2 4 k"], other: Float[np.ndarray, "2 4 k"], epsilon: float
) -> Float[np.ndarray, "4 k"]:
    """Return Σ max(0, P − e^ε·P′) over the two events."""
    raised = np.exp(np.minimum(other + epsilon, _STEEPEST))
    return np.asarray(np.maximum(np.exp(one) - raised, 0.0).sum(axis=0))


def _penalty_steps(sizes: Float[np.ndarray, " k"], penalty: float) -> Float[np.ndarray, " k"]:
    """Return by how much one more record raises the penalized score of each arm."""
    if penalty == 0:
        return np.zeros(len(sizes))
    different, which = np.unique(sizes, return_inverse=True)
    return penalty * np.array([penalty_step(float(size)) for size in different])[which]


def log_reference(reference: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return the logarithms of a starting policy's probabilities; uniform if left out."""
    if reference is None:
        return np.full(shape, -math.log(shape[-1]))
    ndim = max(1, min(depth_of(reference), len(shape)))
    chances = _validate.finite_array("reference", reference, ndim=ndim)
    if chances.shape != shape[-ndim:]:
        raise DataError(
            f"reference must have one probability for each action, got shape {chances.shape} for "
            f"{shape[-1]} actions. Nothing was computed."
        )
    totals = chances.sum(axis=-1, keepdims=True)
    if (chances <= 0).any() or (abs(totals - 1) > 1e-6).any():  # noqa: PLR2004 (as everywhere)
        raise DataError(
            "reference must be positive and sum to 1: leave out actions that are never drawn. "
            "Nothing was computed."
        )
    return np.broadcast_to(np.log(chances) - np.log(totals), shape)


def depth_of(value: Any) -> int:
    """Return how many dimensions a value has as an array; 0 for what is none."""
    with suppress(ValueError):
        return np.ndim(value)
    return 0


def whole_counts(counts: Any) -> Int64[np.ndarray, " k"]:
    """Return how often each arm was pulled; refuse what is no count."""
    found = _validate.finite_array("counts", counts, ndim=1)
    if (found < 0).any() or (found != np.floor(found)).any():
        index = int(np.flatnonzero((found < 0) | (found != np.floor(found)))[0])
        raise DataError(f"counts: entry {index} is no whole number of at least 0.")
    return found.astype(np.int64)


_PUBLIC = ("arms", "reward range", "temperature", "shrinkage", "center", "penalty", "reference")
_EVERY = "every added or removed record"


def arm_losses(  # noqa: PLR0913 (each is one public setting of the policy)
    counts: Any,
    sums: Any,
    least: Any,
    most: Any,
    *,
    temperature: float,
    reward_range: float,
    shrinkage: float = 0.0,
    center: float | None = None,
    penalty: float = 0.0,
    reference: Any = None,
) -> InstanceLoss:
    """Return the privacy loss of one draw on this data set, over every added or removed record."""
    # The policy draws arm a with chance ∝ reference(a)·exp(f(a)/temperature), where f(a) = (S +
    # λ·center)/(N + λ) − penalty/√(N + λ), N the count, S the sum, λ the shrinkage. Without
    # shrinkage an arm that was never pulled is never drawn; then an arm with no record or one
    # record makes the loss infinite, as its first or last record decides whether it can be drawn at
    # all. The time is linear in the number of arms.
    # Source: docs/intrinsic.md, "Per-instance losses".
    rule = ArmRule(
        temperature=temperature,
        reward_range=reward_range,
        shrinkage=shrinkage,
        center=center,
        penalty=penalty,
        reference=reference,
    )
    loss = Arms.of(counts, sums, least, most, rule=rule).loss()
    return InstanceLoss(loss, about="privacy loss of one draw", changes=_EVERY, public=_PUBLIC)


def arm_delta(
    counts: Any, sums: Any, least: Any, most: Any, *, epsilon: float, **settings: Any
) -> InstanceLoss:
    """Return the δ of one draw on this data set at an ε, over every added or removed record."""
    # It is the largest Σ max(0, P − e^ε·P′) between the policy of these data and that of a
    # neighbor, both ways round: two events suffice, the moved arm and all others.
    # Source: docs/intrinsic.md, "Per-instance losses".
    bound = _validate.non_negative("epsilon", epsilon)
    if bound == math.inf:
        raise UsageError("epsilon must be finite, got inf.")
    delta = Arms.of(counts, sums, least, most, rule=ArmRule(**settings)).delta(bound)
    about = f"δ of one draw at ε = {bound:g}"
    return InstanceLoss(delta, about=about, changes=_EVERY, public=(*_PUBLIC, "epsilon"))


def arm_losses_of(logs: BanditLogs, **settings: Any) -> InstanceLoss:
    """Return what :func:`arm_losses` returns for the records of bandit logs."""
    return arm_losses(*_gathered(logs), reward_range=_width(logs), **settings)


def arm_delta_of(logs: BanditLogs, *, epsilon: float, **settings: Any) -> InstanceLoss:
    """Return what :func:`arm_delta` returns for the records of bandit logs."""
    return arm_delta(*_gathered(logs), epsilon=epsilon, reward_range=_width(logs), **settings)


def _width(logs: BanditLogs) -> float:
    low, high = logs.reward_range
    return high - low


def _gathered(
    logs: BanditLogs,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return counts, sums, least and largest reward of every arm, from the lower end."""
    k, rewards = len(logs.catalogue.names), logs.rewards - logs.reward_range[0]
    counts = np.bincount(logs.arms, minlength=k)
    sums = np.bincount(logs.arms, weights=rewards, minlength=k)
    least, most = np.full(k, _width(logs)), np.zeros(k)
    np.minimum.at(least, logs.arms, rewards)
    np.maximum.at(most, logs.arms, rewards)
    return counts, sums, least, most


def arm_class_bound(
    counts: Any,
    *,
    temperature: float,
    reward_range: float,
    shrinkage: float = 0.0,
    penalty: float = 0.0,
) -> InstanceLoss:
    """Return a bound on :func:`arm_losses` for all data sets whose rarest arm is as rare."""
    # With m the least count and λ the shrinkage it is R/(m + λ) + penalty·(1/√(m + λ − 1) −
    # 1/√(m + λ)), over the temperature, for any rewards and any reference. It reads the private
    # least count, so it is as confidential.
    # Source: docs/intrinsic.md, "Per-instance losses".
    rule = ArmRule(
        temperature=temperature, reward_range=reward_range, shrinkage=shrinkage, penalty=penalty
    )
    pulled = whole_counts(counts)
    fewest = int(pulled.min()) if len(pulled) else 0
    left = fewest - 1 + rule.shrinkage
    if not (fewest > 0 and left > 0):
        raise DataError(
            "counts: without shrinkage every arm needs two records for a bound over its class, "
            "with shrinkage one. Nothing was computed; arm_losses needs no such thing."
        )
    size = rule.reward_range / (left + 1)
    size += rule.penalty * penalty_step(left)
    about = "bound on the privacy loss of one draw"
    changes = "every added or removed record of all data sets with the same least count"
    return InstanceLoss(size / rule.temperature, about=about, changes=changes, public=_PUBLIC)
