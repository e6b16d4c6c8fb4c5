"""What one data set loses by one draw: an audit result, as confidential as the data it came from.

For multi-armed policies: one record belongs to one arm, so a neighbor moves one score, by h. With p
the chance of that arm and t = h / temperature, the log-ratio of its chances is
t − log(1 − p + p·eᵗ) and that of all other arms −log(1 − p + p·eᵗ). Both grow with |t|, so among
rewards only the extremes count.

For linear policies: with Σ = ridge·I + Σφφᵀ = LLᵀ everything is read off rows multiplied by L⁻ᵀ.
One record changes Σ by rank one, so no neighbor needs a fit of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import NoReturn, Required, TypedDict, Unpack

import numpy as np
from jaxtyping import Float, Int64
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from scipy.spatial.distance import pdist
from scipy.special import logsumexp, softmax

from sordino import _validate
from sordino._markup import card
from sordino._withholding import Withholding, confidential, hide
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.exact_bounds import penalty_step
from sordino.mechanisms.score_sensitivity import own_reward_step
from sordino.preferences.bandit_logs import BanditLogs
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, NeighboringRelation

_ROUNDING = 1e-9  # of a sum, relative to the largest that its arm can have
_GENTLE = 1.0  # up to this |t|, p·(eᵗ − 1) is added to 1, or summed, without cancellation
_STEEPEST = 700.0  # e^b beyond it is no float
_FEWEST = 2  # records without shrinkage, so that a plain mean is left in every neighbor
_BLOCK = 1 << 20  # numbers held at once
_HALVINGS = 60
_ALONE = 1e-9  # what one record leaves of its own direction
_UNIT = 1 + 1e-9  # a norm of 1, rounded
_DRAW = "privacy loss of one draw"
_BOUND = f"bound on the {_DRAW}"
_EVERY = "every added or removed record"
_REMOVED = "every removed record"
_ADDED = "every record with features of a public catalogue and any reward that could be added"
_SCORES = ("center", "penalty", "reference")
_OF_ARMS = ("arms", "reward range", "temperature", "shrinkage", *_SCORES)
_OF_LINES = ("queries", "reward range", "temperature", "ridge", *_SCORES)
_TOO_SMALL = (
    "ridge is too small for these features: leaving one record out cannot be computed to enough "
    "digits. Nothing was computed; give a larger ridge."
)


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


@dataclass(frozen=True, kw_only=True)
class _ArmRule:
    """What is public about the policy: its scores are (S + λ·center)/(N + λ) − penalty/√(N + λ)."""

    temperature: float
    reward_range: float
    shrinkage: float = 0.0
    center: float | None = None
    penalty: float = 0.0
    reference: ArrayLike | None = None

    def __post_init__(self) -> None:
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
    rule: _ArmRule

    @classmethod
    def of(
        cls,
        counts: ArrayLike,
        sums: ArrayLike,
        least: ArrayLike,
        most: ArrayLike,
        *,
        rule: _ArmRule,
    ) -> Arms:
        """Return the arms; refuse sums that no records within the reward range can have."""
        pulled = _whole_counts(counts)
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
        base = _log_reference(rule.reference, (len(self.counts),))
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
        rule, steps, others = self.rule, self.steps, self.log_others
        # The weights of the moved arms after every change.
        base = _log_reference(rule.reference, (len(self.counts),))
        first = [(r - rule.penalty) / rule.temperature + base for r in (0.0, rule.reward_range)]
        gone = np.full_like(self.log_weights, -math.inf)
        with np.errstate(invalid="ignore"):  # −∞ + ∞, which is not taken
            moved = self.log_weights + steps
        new = np.where(np.isfinite(steps), moved, np.asarray([*first, gone, gone]))
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


def _log_reference(reference: ArrayLike | None, shape: tuple[int, ...]) -> np.ndarray:
    """Return the logarithms of a starting policy's probabilities; uniform if left out."""
    if reference is None:
        return np.full(shape, -math.log(shape[-1]))
    ndim = max(1, min(_depth_of(reference), len(shape)))
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


def _depth_of(value: ArrayLike) -> int:
    """Return how many dimensions a value has as an array; 0 for what is none."""
    with suppress(ValueError):
        return np.ndim(value)
    return 0


def _whole_counts(counts: ArrayLike) -> Int64[np.ndarray, " k"]:
    """Return how often each arm was pulled; refuse what is no count."""
    found = _validate.finite_array("counts", counts, ndim=1)
    wrong = np.flatnonzero((found < 0) | (found != np.floor(found)))
    if len(wrong):
        raise DataError(f"counts: entry {wrong[0]} is no whole number of at least 0.")
    return found.astype(np.int64)


class _ArmSettings(TypedDict, total=False):
    """The public settings of a policy that draws arms, beside the range of rewards."""

    temperature: Required[float]
    shrinkage: float
    center: float | None
    penalty: float
    reference: ArrayLike | None


def _arm_losses(
    *arms: ArrayLike, reward_range: float, **policy: Unpack[_ArmSettings]
) -> InstanceLoss:
    """Return the privacy loss of one draw on this data set, over every added or removed record."""
    # Arms are counts, sums, least and largest rewards, from the lower end of the range.
    # The policy draws arm a with chance ∝ reference(a)·exp(f(a)/temperature), where f(a) = (S +
    # λ·center)/(N + λ) − penalty/√(N + λ), N the count, S the sum, λ the shrinkage. Without
    # shrinkage an arm that was never pulled is never drawn; then an arm with no record or one
    # record makes the loss infinite, as its first or last record decides whether it can be drawn at
    # all. The time is linear in the number of arms.
    # Source: docs/intrinsic.md, "Per-instance losses".
    rule = _ArmRule(reward_range=reward_range, **policy)
    loss = Arms.of(*arms, rule=rule).loss()
    return InstanceLoss(loss, about=_DRAW, changes=_EVERY, public=_OF_ARMS)


def _arm_delta(
    *arms: ArrayLike, epsilon: float, reward_range: float, **policy: Unpack[_ArmSettings]
) -> InstanceLoss:
    """Return the δ of one draw on this data set at an ε, over every added or removed record."""
    # It is the largest Σ max(0, P − e^ε·P′) between the policy of these data and that of a
    # neighbor, both ways round: two events suffice, the moved arm and all others.
    # Source: docs/intrinsic.md, "Per-instance losses".
    bound = _validate.non_negative("epsilon", epsilon)
    if bound == math.inf:
        raise UsageError("epsilon must be finite, got inf.")
    rule = _ArmRule(reward_range=reward_range, **policy)
    delta = Arms.of(*arms, rule=rule).delta(bound)
    about = f"δ of one draw at ε = {bound:g}"
    return InstanceLoss(delta, about=about, changes=_EVERY, public=(*_OF_ARMS, "epsilon"))


def _gathered(logs: BanditLogs) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return counts, sums, least and largest reward of every arm, from the lower end."""
    low, high = logs.reward_range
    k, rewards = len(logs.catalogue.names), logs.rewards - low
    counts = np.bincount(logs.arms, minlength=k)
    sums = np.bincount(logs.arms, weights=rewards, minlength=k)
    least, most = np.full(k, high - low), np.zeros(k)
    np.minimum.at(least, logs.arms, rewards)
    np.maximum.at(most, logs.arms, rewards)
    return counts, sums, least, most


def _arm_class_bound(
    counts: ArrayLike,
    *,
    temperature: float,
    reward_range: float,
    shrinkage: float = 0.0,
    penalty: float = 0.0,
) -> InstanceLoss:
    """Return a bound on :func:`_arm_losses` for all data sets whose rarest arm is as rare."""
    # With m the least count and λ the shrinkage it is R/(m + λ) + penalty·(1/√(m + λ − 1) −
    # 1/√(m + λ)), over the temperature, for any rewards and any reference. It reads the private
    # least count, so it is as confidential.
    # Source: docs/intrinsic.md, "Per-instance losses".
    rule = _ArmRule(
        temperature=temperature, reward_range=reward_range, shrinkage=shrinkage, penalty=penalty
    )
    pulled = _whole_counts(counts)
    fewest = int(pulled.min()) if len(pulled) else 0
    left = fewest - 1 + rule.shrinkage
    if not (fewest > 0 and left > 0):
        raise DataError(
            "counts: without shrinkage every arm needs two records for a bound over its class, "
            "with shrinkage one. Nothing was computed; arm_losses needs no such thing."
        )
    size = rule.reward_range / (left + 1)
    size += rule.penalty * penalty_step(left)
    changes = "every added or removed record of all data sets with the same least count"
    return InstanceLoss(size / rule.temperature, about=_BOUND, changes=changes, public=_OF_ARMS)


@dataclass(frozen=True, repr=False, eq=False)
class _Fit:
    """A ridge fit and public questions, all in the coordinates in which Σ is the identity."""

    factor: Float[np.ndarray, "d d"]  # L, lower triangular
    theta: Float[np.ndarray, " d"]  # lᵀθ
    # The features of all actions of all questions, (questions · actions, d).
    queries: Float[np.ndarray, "m d"]
    logs: Float[np.ndarray, "q k"]  # logarithms of the policy's own chances, (questions, actions)
    penalty: float  # what is taken off a score for each unit of its width
    temperature: float  # KL strength

    @classmethod
    def of(
        cls,
        features: Float[np.ndarray, "n d"],
        rewards: Float[np.ndarray, " n"],
        queries: Float[np.ndarray, "q k d"],
        *,
        ridge: float,
        reference: ArrayLike | None,
        penalty: float,
        temperature: float,
    ) -> _Fit:
        """Return the fit of some records, and what its policy does at the questions."""
        q, k, d = queries.shape
        try:
            factor = np.linalg.cholesky(features.T @ features + ridge * np.eye(d))
        except np.linalg.LinAlgError:
            raise UsageError(_TOO_SMALL) from None
        theta = solve_triangular(factor, features.T @ rewards, lower=True)
        asked = solve_triangular(factor, queries.reshape(-1, d).T, lower=True).T
        scores = (asked @ theta - penalty * np.sqrt((asked**2).sum(axis=1))).reshape(q, k)
        logs = _log_reference(reference, (q, k)) + scores / temperature
        logs -= logsumexp(logs, axis=-1, keepdims=True)
        return cls(factor, theta, asked, logs, penalty, temperature)

    def rows(self, features: Float[np.ndarray, "b d"]) -> Float[np.ndarray, "b d"]:
        return np.asarray(solve_triangular(self.factor, features.T, lower=True).T)

    def blocks(self, n: int) -> Iterator[slice]:
        """Yield stretches of n records that bound the memory."""
        step = max(1, _BLOCK // max(len(self.queries), len(self.theta)))
        yield from (slice(start, start + step) for start in range(0, n, step))

    def moves(
        self, rows: Float[np.ndarray, "b d"], sign: float
    ) -> tuple[Float[np.ndarray, "b q k"], Float[np.ndarray, "b q k"]]:
        """Return φ_aᵀΣ⁻¹φ of every record, and what its change adds to each score by the width."""
        # The square of a width Γ moves by −sign·(φ_aᵀΣ⁻¹φ)²/(1 + sign·s), s = φᵀΣ⁻¹φ: sign is 1 for
        # a record that is added and −1 for one that is removed.
        shape = (len(rows), *self.logs.shape)
        along = (rows @ self.queries.T).reshape(shape)
        if self.penalty == 0:
            return along, np.zeros(shape)
        change = -sign * along**2 / (1 + sign * (rows**2).sum(axis=1))[:, None, None]
        square = (self.queries**2).sum(axis=1).reshape(self.logs.shape)
        both = np.sqrt(square) + np.sqrt(np.maximum(square + change, 0.0))
        # the difference of two roots, without cancellation
        width = np.divide(change, both, out=np.zeros(shape), where=both > 0)
        return along, -self.penalty * width

    def losses(self, moves: Float[np.ndarray, "b q k"]) -> Float[np.ndarray, "b q"]:
        """Return the largest |log-ratio| of any action when scores move by this much."""
        steps = moves / self.temperature
        log_mean = _log_mean(steps, self.logs)
        return np.asarray(np.maximum(steps.max(axis=-1) - log_mean, log_mean - steps.min(axis=-1)))

    def removed(
        self, features: Float[np.ndarray, "n d"], rewards: Float[np.ndarray, " n"]
    ) -> float:
        """Return the largest loss when one of the records is left out."""
        worst = 0.0
        for some in self.blocks(len(features)):
            rows = self.rows(features[some])
            left = 1.0 - (rows**2).sum(axis=1)
            if (left <= _ALONE).any():
                raise UsageError(_TOO_SMALL)
            along, widths = self.moves(rows, -1.0)
            missed = (rewards[some] - rows @ self.theta) / left
            worst = max(worst, self.losses(widths - along * missed[:, None, None]).max())
        return float(worst)

    def added(self, features: Float[np.ndarray, "m d"], rewards: tuple[float, float]) -> float:
        """Return the largest loss when one such record is added, with a reward between two."""
        worst = 0.0
        for some in self.blocks(len(features)):
            rows = self.rows(features[some])
            along, widths = self.moves(rows, 1.0)
            more = 1.0 + (rows**2).sum(axis=1)
            ends = [((r - rows @ self.theta) / more)[:, None] for r in rewards]
            moved = [widths + along * end[..., None] for end in ends]
            worst = max(worst, *(self.losses(move).max() for move in moved))
            if self.penalty > 0:
                reach = np.maximum(*(np.ptp(move, axis=-1) for move in moved))
                open_ = np.nonzero(reach / self.temperature > worst)
                worst = max(worst, self._between(along, widths, ends, open_))
        return float(worst)

    def _between(
        self,
        along: Float[np.ndarray, "b q k"],
        widths: Float[np.ndarray, "b q k"],
        ends: list[Float[np.ndarray, "b 1"]],
        where: tuple[np.ndarray, ...],
    ) -> float:
        """Return the largest log-ratio at a reward inside the range."""
        # Without a penalty it is attained at an end; with one, an action whose width shrinks can
        # gain most in between. The log-ratio of one action is concave in the reward, and its slope
        # is what the score gains less the mean of all gains: the peak is found by halving.
        worst = 0.0
        step = max(1, _BLOCK // self.logs.shape[1] ** 2)
        for first in range(0, len(where[0]), step):
            record, question = (index[first : first + step] for index in where)
            gain, gift = along[record, question][:, None], widths[record, question][:, None]
            logs = self.logs[question][:, None]
            low, high = (np.repeat(end[record], gain.shape[-1], axis=1) for end in ends)
            for _ in range(_HALVINGS):
                middle = (low + high) / 2
                weights = softmax(logs + (gift + gain * middle[..., None]) / self.temperature, -1)
                rises = gain[:, 0] > (weights * gain).sum(axis=-1)
                low, high = np.where(rises, middle, low), np.where(rises, high, middle)
            steps = (gift + gain * low[..., None]) / self.temperature
            own = np.diagonal(steps, axis1=1, axis2=2)
            worst = max(worst, (own - _log_mean(steps, logs)).max())
        return worst


def _log_mean(
    steps: Float[np.ndarray, "*n k"], logs: Float[np.ndarray, "*m k"]
) -> Float[np.ndarray, "*n"]:
    """Return log Σ π·eᵗ to nearly all digits, also where every t is small."""
    gentle = np.clip(steps, -_GENTLE, _GENTLE)
    small = np.log1p((np.exp(logs) * np.expm1(gentle)).sum(axis=-1))
    wide = logsumexp(logs + steps, axis=-1)
    return np.asarray(np.where((gentle == steps).all(axis=-1), small, wide))


def _ridge_losses(  # noqa: PLR0913 (each is one public setting of the policy)
    features: ArrayLike,
    rewards: ArrayLike,
    queries: ArrayLike,
    *,
    ridge: float,
    temperature: float,
    reward_range: float,
    center: float = 0.0,
    penalty: float = 0.0,
    additions: ArrayLike | None = None,
    reference: ArrayLike | None = None,
) -> InstanceLoss:
    """Return the privacy loss of one draw on this data set, over every record left out or added."""
    # The policy draws action a of a question with chance ∝ reference(a)·exp(f(a)/temperature),
    # where f(a) = θᵀφ_a − penalty·‖φ_a‖ in the norm of Σ⁻¹, Σ = ridge·I + Σφφᵀ, and θ minimizes Σ(r
    # − center − θᵀφ)² + ridge·‖θ‖². One record moves θ and Σ by rank one, so all n are left out in
    # time n·(d² + actions·d), without another fit. A fit that a ball holds back is another one.
    # Source: docs/intrinsic.md, "Per-instance losses".
    width = _validate.positive("reward_range", reward_range)
    rows, gains, asked = _checked_records(features, rewards, queries, width)
    middle = _validate.number("center", center)
    if not 0 <= middle <= width:
        raise UsageError(f"center must lie between 0 and reward_range={width!r}, got {center!r}.")
    gains = gains - middle
    new = None if additions is None else _validate.finite_array("additions", additions, ndim=2)
    if new is not None and new.shape[1] != rows.shape[1]:
        wide = f"{new.shape[1]} columns, the features have {rows.shape[1]}"
        raise DataError(f"additions has {wide}.")
    fit = _Fit.of(
        rows,
        gains,
        asked,
        ridge=_validate.positive("ridge", ridge),
        reference=reference,
        penalty=_checked_penalty(penalty),
        temperature=_validate.positive("temperature", temperature),
    )
    loss, changes = fit.removed(rows, gains), _REMOVED
    public: tuple[str, ...] = _OF_LINES
    if new is not None:
        loss = max(loss, fit.added(new, (-middle, width - middle)))
        changes, public = f"{_REMOVED}, and {_ADDED}", (*_OF_LINES, "additions")
    return InstanceLoss(loss, about=_DRAW, changes=changes, public=public)


def _checked_penalty(penalty: float) -> float:
    if _validate.non_negative("penalty", penalty) == math.inf:
        raise UsageError("penalty must be finite, got inf.")
    return float(penalty)


def _checked_records(
    features: ArrayLike, rewards: ArrayLike, queries: ArrayLike, reward_range: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, rewards and questions of shape (q, k, d); refuse what does not fit."""
    rows = _validate.finite_array("features", features, ndim=2)
    gains = _validate.finite_array("rewards", rewards, ndim=1)
    if len(rows) != len(gains):
        raise DataError(f"{len(rows)} rows of features, but {len(gains)} rewards.")
    outside = np.flatnonzero((gains < 0) | (gains > reward_range))
    if len(outside):
        raise DataError(
            f"rewards: row {outside[0]} is not between 0 and reward_range={reward_range!r}; "
            "count rewards from the lower end of their range. Nothing was computed."
        )
    several, d = _depth_of(queries) == 3, rows.shape[1]  # noqa: PLR2004 (or one question)
    asked = _validate.finite_array("queries", queries, ndim=3 if several else 2)
    if not asked.size or asked.shape[-1] != d:
        raise DataError(
            f"queries must have one row of {d} features for each action, got shape {asked.shape}."
        )
    return rows, gains, asked.reshape(-1, *asked.shape[-2:])


def _ridge_class_bound(
    features: ArrayLike,
    queries: ArrayLike,
    *,
    ridge: float,
    temperature: float,
    reward_range: float,
    penalty: float = 0.0,
) -> InstanceLoss:
    """Return a bound on :func:`_ridge_losses` for all data sets as well spread as this one."""
    # With n the number of records, l = max(ridge, λ_min(Σ) − 1) and D the largest distance of two
    # actions of one question it is D·R·(κ + √n·q) + penalty·(1/√l − 1/√(l + 1)), over the
    # temperature: κ bounds how far a reward of 1 moves θ, and q how far what was predicted does. It
    # reads the private λ_min, so it is as confidential. All features have norm at most 1.
    # Source: docs/intrinsic.md, "Per-instance losses".
    ridge, width = (
        _validate.positive("ridge", ridge),
        _validate.positive("reward_range", reward_range),
    )
    rows = _validate.finite_array("features", features, ndim=2)
    _, _, asked = _checked_records(rows, np.zeros(len(rows)), queries, width)
    for name, flat in (("features", rows), ("queries", asked.reshape(-1, rows.shape[1]))):
        longer = np.flatnonzero((flat**2).sum(axis=1) > _UNIT**2)
        if len(longer):
            raise DataError(f"{name}: row {longer[0]} is longer than 1. Nothing was computed.")
    spread = max(pdist(actions).max(initial=0.0) for actions in asked)
    least = np.linalg.eigvalsh(rows.T @ rows)[0] + ridge
    size = max(ridge, float(least) - 1)
    reach = _fit_reach(size, ridge)
    moved = spread * width * (own_reward_step(size) + math.sqrt(len(rows)) * reach)
    bound = moved + _checked_penalty(penalty) * penalty_step(size)
    return InstanceLoss(
        bound / _validate.positive("temperature", temperature),
        about=_BOUND,
        changes="every added or removed record of all data sets with the same least eigenvalue",
        public=_OF_LINES,
    )


def _fit_reach(size: float, ridge: float) -> float:
    """Q, the same times √(φᵀΣ⁻¹(Σ − ridge·I)Σ⁻¹φ), which bounds |θᵀφ| for each unit of ‖r‖."""
    # With x = φᵀΣ⁻¹φ ≤ 1/size and y = ‖Σ⁻¹φ‖² ≤ x/size it is √(y(x − ridge·y))/(1 + x), largest in
    # y at x/size or, where that comes first, at x/(2·ridge), and then at the largest x.
    if size > 2 * ridge:
        return math.sqrt((1 - ridge / size) / size) / (1 + size)
    return 1 / (2 * math.sqrt(ridge) * (1 + size))
