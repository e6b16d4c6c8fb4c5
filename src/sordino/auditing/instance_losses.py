"""What one data set loses by one draw: an audit result, as confidential as the data it came from.

Every neighbor moves the scores of all actions by some steps t, after division by the temperature.
With π the chances of this data set, the log-ratio of an action is t − log Σ π·eᵗ.

For multi-armed policies one record moves the score of its own arm alone. Both log-ratios, that of
the arm and that of all others, grow with |t|, so among rewards only the extremes count.

For linear policies: with Σ = ridge·I + Σφφᵀ = LLᵀ everything is read off rows multiplied by L⁻ᵀ.
One record changes Σ by rank one, so no neighbor needs a fit of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from scipy.spatial.distance import pdist
from scipy.special import log_softmax, logsumexp, softmax

from sordino import _validate
from sordino._markup import card
from sordino._withholding import Withholding, confidential, hide
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.score_sensitivity import own_reward_step, penalty_step
from sordino.preferences.bandit_logs import BanditLogs
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, NeighboringRelation

_ROUNDING = 1e-9  # of a sum, relative to the largest that its arm can have
_GENTLE = 1.0  # up to this |t|, π·(eᵗ − 1) is summed without cancellation
_FEWEST = 2  # records without shrinkage, so that a plain mean is left in every neighbor
_BLOCK = 1 << 20  # numbers held at once
_ALONE = 1e-9  # what one record leaves of its own direction
_UNIT = 1 + 1e-9  # a norm of 1, rounded
_DRAW = "privacy loss of one draw"
_BOUND = f"bound on the {_DRAW}"
_EVERY = "every added or removed record"
_REMOVED = "every removed record"
_ADDED = "every record with features of a public catalogue and any reward that could be added"
_SETTINGS = ("reward range", "temperature", "center", "penalty", "reference")
_OF_ARMS = ("arms", "shrinkage", *_SETTINGS)
_OF_LINES = ("queries", "ridge", *_SETTINGS)
_TOO_SMALL = (
    "ridge is too small for these features: leaving one record out cannot be computed to enough "
    "digits. Nothing was computed; give a larger ridge."
)


def _refusal(what: str) -> Callable[..., NoReturn]:
    """Return a method that says what was not done with the number, and what to do instead."""

    def refuse(*_: object) -> NoReturn:
        raise PrivacyError(
            f"An instance loss is computed from the private data, so it is confidential, and it "
            f"was not {what}. Publish the Guarantee, which holds for every data set. Whoever holds "
            "the data can read the number with for_curator_only()."
        )

    return refuse


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
        self._keep(about=about, changes=changes, public=public, neighbors=ADD_OR_REMOVE_ONE)

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

    def __format__(self, spec: str) -> str:
        """Return the text of ``repr``; refuse the format of a number."""
        return _refusal("formatted as a number")() if spec else repr(self)

    to_dict = _refusal("written as JSON")
    __float__ = __int__ = _refusal("turned into a number")
    # enough comparisons spell a number, and what cannot be compared is no key
    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refusal("compared")
    __hash__ = _refusal("hashed")
    _stay = _refusal("pickled or copied")
    __reduce__ = __reduce_ex__ = __getstate__ = __setstate__ = __copy__ = __deepcopy__ = _stay


@dataclass(frozen=True, kw_only=True)
class _Policy:
    """What is public about a policy: it draws with chance ∝ reference·exp(score/temperature)."""

    temperature: float
    reward_range: float  # rewards count from its lower end
    center: float | None = None  # what an action without records is worth
    penalty: float = 0.0
    reference: ArrayLike | None = None

    def __post_init__(self) -> None:
        _validate.positive("temperature", self.temperature)
        _validate.positive("reward_range", self.reward_range)
        if _validate.non_negative("penalty", self.penalty) == math.inf:
            raise UsageError("penalty must be finite, got inf.")
        if not 0 <= _validate.number("center", self.center or 0.0) <= self.reward_range:
            raise UsageError(
                f"center must lie between 0 and reward_range={self.reward_range!r}, got "
                f"{self.center!r}: it counts from the lower end of the rewards."
            )

    def _log_reference(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return the logarithms of the starting policy's probabilities; uniform if left out."""
        if self.reference is None:
            return np.full(shape, -math.log(shape[-1]))
        ndim = max(1, min(_depth_of(self.reference), len(shape)))
        chances = _validate.finite_array("reference", self.reference, ndim=ndim)
        if chances.shape != shape[-ndim:]:
            raise DataError(
                f"reference must have one probability for each action, got shape {chances.shape} "
                f"for {shape[-1]} actions. Nothing was computed."
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


def _log_mean(
    steps: Float[np.ndarray, "*n k"], logs: Float[np.ndarray, "*m k"]
) -> Float[np.ndarray, "*n"]:
    """Return log Σ π·eᵗ to nearly all digits, also where every t is small."""
    gentle = np.clip(steps, -_GENTLE, _GENTLE)
    small = np.log1p((np.exp(logs) * np.expm1(gentle)).sum(axis=-1))
    wide = logsumexp(logs + steps, axis=-1)
    return np.asarray(np.where((gentle == steps).all(axis=-1), small, wide))


def _largest_loss(steps: Float[np.ndarray, "*n k"], logs: Float[np.ndarray, "*m k"]) -> float:
    """Return the largest |log-ratio| of any action when scores move by these steps."""
    return float(abs(steps - _log_mean(steps, logs)[..., None]).max(initial=0.0))


def _blocks(n: int, width: int) -> Iterator[slice]:
    """Yield stretches of n neighbors that bound the memory, each of so many numbers."""
    step = max(1, _BLOCK // width)
    yield from (slice(start, start + step) for start in range(0, n, step))


@dataclass(frozen=True, kw_only=True)
class ArmAudit(_Policy):
    """Audits of a policy that draws arms by (S + λ·center)/(N + λ) − penalty/√(N + λ)."""

    # N is the count, S the sum of the rewards, λ the shrinkage. Without shrinkage an arm that was
    # never pulled is never drawn; then an arm with no record or one record makes the loss infinite,
    # as its first or last record decides whether it can be drawn at all.
    # Source: docs/intrinsic.md, "Per-instance losses".

    shrinkage: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if _validate.non_negative("shrinkage", self.shrinkage) == math.inf:
            raise UsageError("shrinkage must be finite, got inf.")

    def loss(self, *arms: ArrayLike) -> InstanceLoss:
        """Return the loss of this data set, from counts, sums, least and largest rewards."""
        logs, steps, _ = self._changes(*arms)
        loss = 0.0 if np.isfinite(steps).all() else math.inf
        if not loss:
            for moved in _each_own(steps, np.zeros(len(logs))):
                loss = max(loss, _largest_loss(moved, logs))
        return InstanceLoss(loss, about=_DRAW, changes=_EVERY, public=_OF_ARMS)

    def delta(self, *arms: ArrayLike, epsilon: float) -> InstanceLoss:
        """Return the δ of one draw at an ε, the largest hockey-stick divergence both ways round."""
        bound = _validate.non_negative("epsilon", epsilon)
        if bound == math.inf:
            raise UsageError("epsilon must be finite, got inf.")
        logs, _, moved = self._changes(*arms)
        delta = 0.0
        for weights in _each_own(moved, logs):
            after = log_softmax(weights, axis=-1)
            for one, other in ((logs, after), (after, logs)):
                raised = np.exp(np.minimum(other + bound, 700.0))  # e^b beyond it is no float
                delta = max(delta, np.maximum(np.exp(one) - raised, 0.0).sum(axis=-1).max())
        about = f"δ of one draw at ε = {bound:g}"
        return InstanceLoss(delta, about=about, changes=_EVERY, public=(*_OF_ARMS, "epsilon"))

    def class_bound(self, counts: ArrayLike) -> InstanceLoss:
        """Return a bound on the loss of all data sets whose rarest arm is as rare."""
        # With m the least count it is R/(m + λ) + penalty·(1/√(m + λ − 1) − 1/√(m + λ)), over the
        # temperature, for any rewards and any reference. It reads the private least count, so it is
        # as confidential.
        fewest = _whole_counts(counts).min(initial=math.inf)
        left = fewest - 1 + self.shrinkage
        if not (0 < fewest < math.inf and left > 0):
            raise DataError(
                "counts: without shrinkage every arm needs two records for a bound over its class, "
                "with shrinkage one. Nothing was computed; ArmAudit.loss needs no such thing."
            )
        size = self.reward_range / (left + 1) + self.penalty * penalty_step(left)
        changes = "every added or removed record of all data sets with the same least count"
        return InstanceLoss(size / self.temperature, about=_BOUND, changes=changes, public=_OF_ARMS)

    def _changes(
        self, counts: ArrayLike, sums: ArrayLike, least: ArrayLike, most: ArrayLike
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the log-chances, and of all changes of one arm the step and its new log-weight."""
        # Two rows of additions, then two of removals, which change nothing where no record is.
        n = _whole_counts(counts)
        total, low, high = self._checked(n, sums, least, most)
        end, extra = self.reward_range, self.shrinkage
        sizes, left = n + extra, n - 1 + extra
        drawn, kept = sizes > 0, (left > 0) | (n == 0)
        sizes, left = np.where(drawn, sizes, 1.0), np.where((left > 0) & (n > 0), left, 1.0)
        means = (total + extra * (end / 2 if self.center is None else self.center)) / sizes
        base = self._log_reference(n.shape)
        logs = (
            base
            + np.where(drawn, means - self.penalty / np.sqrt(sizes), -math.inf) / self.temperature
        )
        roots = ((np.sqrt(least), np.sqrt(least + 1)) for least in (sizes, left))
        more, fewer = (self.penalty / a / b / (a + b) for a, b in roots)  # of 1/√N − 1/√(N + 1)
        added = [np.where(drawn, (r - means) / (sizes + 1) + more, math.inf) for r in (0.0, end)]
        gone = [np.where(kept, (means - r) / left - fewer, -math.inf) for r in (low, high)]
        steps = (
            np.array([*added, *(np.where(n > 0, step, 0.0) for step in gone)]) / self.temperature
        )
        # without shrinkage the first record of an arm decides alone what it is worth
        first = [base + (r - self.penalty) / self.temperature for r in (0.0, end)]
        with np.errstate(invalid="ignore"):  # −∞ + ∞, which is not taken
            moved = np.where(steps == math.inf, [*first, *first], logs + steps)
        whole = logsumexp(logs)
        return logs - whole, steps, moved - whole

    def _checked(
        self, n: Float[np.ndarray, " k"], *given: ArrayLike
    ) -> tuple[Float[np.ndarray, " k"], ...]:
        """Return sums, least and largest rewards; refuse what no records within the range have."""
        total, low, high = (
            _validate.finite_array(name, value, ndim=1)
            for name, value in zip(("sums", "least", "most"), given, strict=True)
        )
        if not len(n) == len(total) == len(low) == len(high) > 0:
            raise DataError(
                "counts, sums, least and most must have one entry for each of k >= 1 arms, got "
                f"{len(n)}, {len(total)}, {len(low)} and {len(high)}. Nothing was computed."
            )
        slack = _ROUNDING * self.reward_range * n
        apart = (low < 0) | (high > self.reward_range) | (low > high)
        apart |= (total < n * low - slack) | (total > n * high + slack)
        wrong = np.flatnonzero(np.where(n > 0, apart, total != 0))
        if len(wrong):
            raise DataError(
                f"sums, least and most: those of arm {wrong[0]} are not those of rewards between 0 "
                "and reward_range, counted from the lower end. Nothing was computed."
            )
        if self.shrinkage == 0 and n.sum() < _FEWEST:
            raise DataError(
                "Without shrinkage an audit needs two records or more, so that a mean is left when "
                "one is removed. Nothing was computed; give the shrinkage of the policy."
            )
        return total, low, high


def _each_own(
    own: Float[np.ndarray, "4 k"], others: Float[np.ndarray, " k"]
) -> Iterator[Float[np.ndarray, "4 b k"]]:
    """Yield, for every arm, a number of its own at its place and those of all others elsewhere."""
    arms = np.arange(len(others))
    for some in _blocks(len(arms), own.size):
        yield np.where(arms[some, None] == arms, own[:, some, None], others)


def _whole_counts(counts: ArrayLike) -> Float[np.ndarray, " k"]:
    """Return how often each arm was pulled; refuse what is no count."""
    found = _validate.finite_array("counts", counts, ndim=1)
    wrong = np.flatnonzero((found < 0) | (found != np.floor(found)))
    if len(wrong):
        raise DataError(f"counts: entry {wrong[0]} is no whole number of at least 0.")
    return found


def gathered_arms(logs: BanditLogs) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return counts, sums, least and largest reward of every arm, from the lower end."""
    low, high = logs.reward_range
    k, rewards = len(logs.catalogue.names), logs.rewards - low
    counts = np.bincount(logs.arms, minlength=k)
    sums = np.bincount(logs.arms, weights=rewards, minlength=k)
    least, most = np.full(k, high - low), np.zeros(k)
    np.minimum.at(least, logs.arms, rewards)
    np.maximum.at(most, logs.arms, rewards)
    return counts, sums, least, most


@dataclass(frozen=True, kw_only=True)
class LinearAudit(_Policy):
    """Audits of a policy that draws actions by θᵀφ − penalty·‖φ‖ in the norm of Σ⁻¹."""

    # Σ = ridge·I + Σφφᵀ, and θ minimizes Σ(r − center − θᵀφ)² + ridge·‖θ‖². A fit that a ball holds
    # back is another one.
    # Source: docs/intrinsic.md, "Per-instance losses".

    center: float = 0.0
    ridge: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.positive("ridge", self.ridge)

    def loss(
        self,
        features: ArrayLike,
        rewards: ArrayLike,
        queries: ArrayLike,
        additions: ArrayLike | None = None,
    ) -> InstanceLoss:
        """Return the loss of this data set over every removal, and over additions of features."""
        rows, gains, asked = self._checked(features, rewards, queries)
        gains, ends = gains - self.center, (-self.center, self.reward_range - self.center)
        (q, k, d), new = asked.shape, rows[:0]
        if additions is not None:
            new = _validate.finite_array("additions", additions, ndim=2)
            if new.shape[1] != d:
                wide = f"{new.shape[1]} columns, the features have {d}"
                raise DataError(f"additions has {wide}.")
        try:
            factor = np.linalg.cholesky(rows.T @ rows + self.ridge * np.eye(d))
        except np.linalg.LinAlgError:
            raise UsageError(_TOO_SMALL) from None
        theta, *whitened = (
            solve_triangular(factor, some.T, lower=True).T
            for some in (gains @ rows, asked.reshape(-1, d), np.vstack([rows, new, new]))
        )
        actions, records = whitened
        scores = actions @ theta - self.penalty * np.sqrt((actions**2).sum(axis=1))
        logs = log_softmax(
            self._log_reference((q, k)) + scores.reshape(q, k) / self.temperature, axis=-1
        )
        # Every neighbor is a record, its reward, and a sign: removals, then additions at both ends.
        signs = np.repeat([-1.0, 1.0], [len(rows), 2 * len(new)])
        rests = 1.0 + signs * (records**2).sum(axis=1)
        if (rests <= _ALONE).any():
            raise UsageError(_TOO_SMALL)
        paid = np.concatenate([gains, *(np.full(len(new), end) for end in ends)])
        shifts = signs * (paid - records @ theta) / rests
        square, loss = (actions**2).sum(axis=1), 0.0
        for some in _blocks(len(records), q * k):
            # φ_aᵀΣ⁻¹φ, along which θ moves, and what the change takes off the square of a width
            along, sign, rest = records[some] @ actions.T, signs[some, None], rests[some, None]
            taken = sign * along**2 / rest
            both = np.sqrt(square) + np.sqrt(np.maximum(square - taken, 0.0))
            # the difference of two roots, without cancellation
            gift = self.penalty * np.divide(taken, both, out=np.zeros_like(taken), where=both > 0)
            along, gift = (part.reshape(-1, q, k) / self.temperature for part in (along, gift))
            loss = max(loss, _largest_loss(gift + along * shifts[some, None, None], logs))
            if self.penalty > 0:
                for i in np.flatnonzero((signs[some] > 0) & (paid[some] == ends[0])):
                    span = shifts[some][i] + np.array([0.0, self.reward_range / rest[i, 0]])
                    loss = max(loss, _loss_between(along[i], gift[i], span, logs, loss))
        if additions is None:
            return InstanceLoss(loss, about=_DRAW, changes=_REMOVED, public=_OF_LINES)
        changes, public = f"{_REMOVED}, and {_ADDED}", (*_OF_LINES, "additions")
        return InstanceLoss(loss, about=_DRAW, changes=changes, public=public)

    def class_bound(self, features: ArrayLike, queries: ArrayLike) -> InstanceLoss:
        """Return a bound on the loss of all data sets as well spread as this one."""
        # With n the number of records, l = max(ridge, λ_min(Σ) − 1) and D the largest distance of
        # two actions of one question it is D·R·(κ + √n·q) + penalty·(1/√l − 1/√(l + 1)), over the
        # temperature: κ bounds how far a reward of 1 moves θ, and q how far what was predicted
        # does. It reads the private λ_min, so it is as confidential. All features have norm at most
        # 1.
        rows = _validate.finite_array("features", features, ndim=2)
        _, _, asked = self._checked(rows, np.zeros(len(rows)), queries)
        for name, flat in (("features", rows), ("queries", asked.reshape(-1, rows.shape[1]))):
            longer = np.flatnonzero((flat**2).sum(axis=1) > _UNIT**2)
            if len(longer):
                raise DataError(f"{name}: row {longer[0]} is longer than 1. Nothing was computed.")
        spread = max(pdist(actions).max(initial=0.0) for actions in asked)
        size = max(self.ridge, float(np.linalg.eigvalsh(rows.T @ rows)[0]) + self.ridge - 1)
        reach = own_reward_step(size) + math.sqrt(len(rows)) * _fit_reach(size, self.ridge)
        bound = spread * self.reward_range * reach + self.penalty * penalty_step(size)
        changes = "every added or removed record of all data sets with the same least eigenvalue"
        return InstanceLoss(
            bound / self.temperature, about=_BOUND, changes=changes, public=_OF_LINES
        )

    def _checked(
        self, features: ArrayLike, rewards: ArrayLike, queries: ArrayLike
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return features, rewards and questions of shape (q, k, d); refuse what does not fit."""
        rows = _validate.finite_array("features", features, ndim=2)
        gains = _validate.finite_array("rewards", rewards, ndim=1)
        if len(rows) != len(gains):
            raise DataError(f"{len(rows)} rows of features, but {len(gains)} rewards.")
        outside = np.flatnonzero((gains < 0) | (gains > self.reward_range))
        if len(outside):
            raise DataError(
                f"rewards: row {outside[0]} is not between 0 and reward_range="
                f"{self.reward_range!r}; count rewards from the lower end of their range. Nothing "
                "was computed."
            )
        several, d = _depth_of(queries) == 3, rows.shape[1]  # noqa: PLR2004 (or one question)
        asked = _validate.finite_array("queries", queries, ndim=3 if several else 2)
        if not asked.size or asked.shape[-1] != d:
            raise DataError(
                f"queries must have one row of {d} features for each action, got shape "
                f"{asked.shape}."
            )
        return rows, gains, asked.reshape(-1, *asked.shape[-2:])


def _loss_between(
    along: Float[np.ndarray, "q k"],
    gift: Float[np.ndarray, "q k"],
    span: Float[np.ndarray, " 2"],
    logs: Float[np.ndarray, "q k"],
    known: float,
) -> float:
    """Return the largest log-ratio at a reward inside the range, or less if it is not above."""
    # Without a penalty it is attained at an end; with one, an action whose width shrinks can gain
    # most in between. The log-ratio of one action is concave in the reward, and its slope is what
    # the score gains less the mean of all gains: the peak is found by halving.
    if max(np.ptp(gift + along * end, axis=-1).max() for end in span) <= known:
        return 0.0
    low, high = (np.full_like(along, end) for end in span)
    for _ in range(60):
        middle = (low + high) / 2
        weights = softmax(logs[:, None] + gift[:, None] + along[:, None] * middle[..., None], -1)
        rises = along > (weights * along[:, None]).sum(axis=-1)
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    steps = gift[:, None] + along[:, None] * low[..., None]
    own = np.diagonal(steps, axis1=1, axis2=2)
    return float((own - _log_mean(steps, logs[:, None])).max())


def _fit_reach(size: float, ridge: float) -> float:
    """Q, the same times √(φᵀΣ⁻¹(Σ − ridge·I)Σ⁻¹φ), which bounds |θᵀφ| for each unit of ‖r‖."""
    # With x = φᵀΣ⁻¹φ ≤ 1/size and y = ‖Σ⁻¹φ‖² ≤ x/size it is √(y(x − ridge·y))/(1 + x), largest in
    # y at x/size or, where that comes first, at x/(2·ridge), and then at the largest x.
    if size > 2 * ridge:
        return math.sqrt((1 - ridge / size) / size) / (1 + size)
    return 1 / (2 * math.sqrt(ridge) * (1 + size))
