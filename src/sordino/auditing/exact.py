"""The true privacy loss of a finite mechanism: every output against every neighbor, exactly.

Where a mechanism has finitely many outputs and its probabilities are known as fractions, nothing
needs to be sampled: the loss is a maximum over a table. It is computed in 50 decimal digits.

What one given data set loses is another question, and its answer is confidential: for policies
that a curator draws from, :class:`InstanceLoss` and what returns it are offered here too.

How much one draw of a linear policy loses on one data set, over all its neighbors.

With Σ = ridge·I + Σφφᵀ = LLᵀ everything is read off rows multiplied by L⁻ᵀ: one record changes Σ
by rank one, so no neighbor needs a fit of its own.

A bound on what one draw of a linear policy loses, for all data sets that are as well spread.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_triangular
from scipy.spatial.distance import pdist
from scipy.special import logsumexp, softmax

from sordino import _validate
from sordino.errors import DataError, UsageError
from sordino.mechanisms.exact_bounds import penalty_step
from sordino.mechanisms.score_sensitivity import own_reward_step

from .arm_loss import (
    InstanceLoss,
    depth_of,
    log_reference,
)

PUBLIC: tuple[str, ...] = (
    "queries",
    "reward range",
    "temperature",
    "ridge",
    "center",
    "penalty",
    "reference",
)
_REMOVED = "every removed record"
_ADDED = "every record with features of a public catalogue and any reward that could be added"
_TOO_SMALL = (
    "ridge is too small for these features: leaving one record out cannot be computed to enough "
    "digits. Nothing was computed; give a larger ridge."
)
_BLOCK = 1 << 20  # numbers held at once
_HALVINGS = 60
_GENTLE = 1.0  # up to this |t|, π·(eᵗ − 1) is summed without cancellation
_ALONE = 1e-9  # what one record leaves of its own direction
UNIT = 1 + 1e-9  # a norm of 1, rounded


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
        reference: Any,
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
        logs = log_reference(reference, (q, k)) + scores / temperature
        logs -= logsumexp(logs, axis=-1, keepdims=True)
        return cls(factor, theta, asked, logs, penalty, temperature)

    def rows(self, features: Float[np.ndarray, "b d"]) -> Float[np.ndarray, "b d"]:
        """Return rows in these coordinates."""
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


def ridge_losses(  # noqa: PLR0913 (each is one public setting of the policy)
    features: Any,
    rewards: Any,
    queries: Any,
    *,
    ridge: float,
    temperature: float,
    reward_range: float,
    center: float = 0.0,
    penalty: float = 0.0,
    additions: Any = None,
    reference: Any = None,
) -> InstanceLoss:
    """Return the privacy loss of one draw on this data set, over every record left out or added."""
    # The policy draws action a of a question with chance ∝ reference(a)·exp(f(a)/temperature),
    # where f(a) = θᵀφ_a − penalty·‖φ_a‖ in the norm of Σ⁻¹, Σ = ridge·I + Σφφᵀ, and θ minimizes Σ(r
    # − center − θᵀφ)² + ridge·‖θ‖². One record moves θ and Σ by rank one, so all n are left out in
    # time n·(d² + actions·d), without another fit. A fit that a ball holds back is another one.
    # Source: docs/intrinsic.md, "Per-instance losses".
    width = _validate.positive("reward_range", reward_range)
    rows, gains, asked = checked_records(features, rewards, queries, width)
    middle = _validate.number("center", center)
    if not 0 <= middle <= width:
        raise UsageError(f"center must lie between 0 and reward_range={width!r}, got {center!r}.")
    gains = gains - middle
    new = None if additions is None else _rows("additions", additions, rows.shape[1])
    fit = _Fit.of(
        rows,
        gains,
        asked,
        ridge=_validate.positive("ridge", ridge),
        reference=reference,
        penalty=checked_penalty(penalty),
        temperature=_validate.positive("temperature", temperature),
    )
    loss, changes, public = fit.removed(rows, gains), _REMOVED, PUBLIC
    if new is not None:
        loss = max(loss, fit.added(new, (-middle, width - middle)))
        changes, public = f"{_REMOVED}, and {_ADDED}", (*PUBLIC, "additions")
    return InstanceLoss(loss, about="privacy loss of one draw", changes=changes, public=public)


def checked_penalty(penalty: float) -> float:
    """Return a finite penalty of at least 0; refuse any other."""
    if _validate.non_negative("penalty", penalty) == math.inf:
        raise UsageError("penalty must be finite, got inf.")
    return float(penalty)


def _rows(name: str, value: Any, d: int) -> Float[np.ndarray, "n d"]:
    """Return rows of d features; refuse others."""
    rows = _validate.finite_array(name, value, ndim=2)
    if rows.shape[1] != d:
        raise DataError(f"{name} has {rows.shape[1]} columns, the features have {d}.")
    return rows


def checked_records(
    features: Any, rewards: Any, queries: Any, reward_range: float
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
    return rows, gains, _questions(queries, rows.shape[1])


def _questions(queries: Any, d: int) -> Float[np.ndarray, "q k d"]:
    """Return one question or several as several."""
    ndim = 3 if depth_of(queries) == 3 else 2  # noqa: PLR2004 (several questions)
    asked = _validate.finite_array("queries", queries, ndim=ndim)
    if not asked.size or asked.shape[-1] != d:
        raise DataError(
            f"queries must have one row of {d} features for each action, got shape {asked.shape}."
        )
    return asked.reshape(-1, *asked.shape[-2:])


def ridge_class_bound(
    features: Any,
    queries: Any,
    *,
    ridge: float,
    temperature: float,
    reward_range: float,
    penalty: float = 0.0,
) -> InstanceLoss:
    """Return a bound on :func:`ridge_losses` for all data sets as well spread as this one."""
    # With n the number of records, l = max(ridge, λ_min(Σ) − 1) and D the largest distance of two
    # actions of one question it is D·R·(κ + √n·q) + penalty·(1/√l − 1/√(l + 1)), over the
    # temperature: κ bounds how far a reward of 1 moves θ, and q how far what was predicted does. It
    # reads the private λ_min, so it is as confidential. All features have norm at most 1.
    # Source: docs/intrinsic.md, "Per-instance losses".
    ridge, width = (
        _validate.positive("ridge", ridge),
        _validate.positive("reward_range", reward_range),
    )
    rows, _, asked = checked_records(features, np.zeros(len(features)), queries, width)
    for name, flat in (("features", rows), ("queries", asked.reshape(-1, rows.shape[1]))):
        longer = np.flatnonzero((flat**2).sum(axis=1) > UNIT**2)
        if len(longer):
            raise DataError(f"{name}: row {longer[0]} is longer than 1. Nothing was computed.")
    spread = max(pdist(actions).max(initial=0.0) for actions in asked)
    least = np.linalg.eigvalsh(rows.T @ rows)[0] + ridge
    size = max(ridge, float(least) - 1)
    moved = (
        spread * width * (own_reward_step(size) + math.sqrt(len(rows)) * _fit_reach(size, ridge))
    )
    bound = moved + checked_penalty(penalty) * penalty_step(size)
    return InstanceLoss(
        bound / _validate.positive("temperature", temperature),
        about="bound on the privacy loss of one draw",
        changes="every added or removed record of all data sets with the same least eigenvalue",
        public=PUBLIC,
    )


def _fit_reach(size: float, ridge: float) -> float:
    """Q, the same times √(φᵀΣ⁻¹(Σ − ridge·I)Σ⁻¹φ), which bounds |θᵀφ| for each unit of ‖r‖."""
    # With x = φᵀΣ⁻¹φ ≤ 1/size and y = ‖Σ⁻¹φ‖² ≤ x/size it is √(y(x − ridge·y))/(1 + x), largest in
    # y at x/size or, where that comes first, at x/(2·ridge), and then at the largest x.
    if size > 2 * ridge:
        return math.sqrt((1 - ridge / size) / size) / (1 + size)
    return 1 / (2 * math.sqrt(ridge) * (1 + size))


DIGITS = 50
Input = TypeVar("Input", bound=Hashable)
Channel = Mapping[Input, Mapping[Hashable, Fraction]]
"""For every input, the exact probability of every output."""


def _checked(channel: Channel[Input]) -> None:
    """Refuse a table whose rows are not probabilities."""
    for row in channel.values():
        if any(chance < 0 for chance in row.values()) or sum(row.values()) != 1:
            raise UsageError("Every input of a channel needs probabilities that sum to exactly 1.")


def label_neighbors(labels: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield every pair of 0/1 labelings that differ in exactly one label, both ways round.

    Args:
        labels: How many labels there are.

    Example:
        >>> list(label_neighbors(1))
        [((0,), (1,)), ((1,), (0,))]
    """
    for one in product((0, 1), repeat=labels):
        for index in range(labels):
            yield one, (*one[:index], 1 - one[index], *one[index + 1 :])


def exact_epsilon(channel: Channel[Input], neighbors: Iterable[tuple[Input, Input]]) -> Decimal:
    """Return the smallest ε for which the channel is (ε, 0)-private, to 50 digits.

    Args:
        channel: For every input, the exact probability of every output.
        neighbors: Ordered pairs of inputs that differ by one change.

    Returns:
        The largest log-ratio over all outputs and pairs; infinity if some output is possible
        for one input only.

    Raises:
        UsageError: A row of the channel does not sum to exactly 1.

    Source:
        Dwork & Roth 2014, Definition 2.4 with δ = 0.

    Example:
        >>> coin = {0: {0: Fraction(3, 4), 1: Fraction(1, 4)},
        ...         1: {0: Fraction(1, 4), 1: Fraction(3, 4)}}
        >>> abs(float(exact_epsilon(coin, [(0, 1)])) - 1.0986122886681098) < 1e-15
        True
    """
    _checked(channel)
    worst = Fraction(1)
    for one, other in neighbors:
        for output, chance in channel[one].items():
            against = channel[other].get(output, Fraction(0))
            if chance > 0 == against:
                return Decimal("Infinity")
            if chance > 0:
                worst = max(worst, chance / against)
    with localcontext(prec=DIGITS):
        return (Decimal(worst.numerator) / Decimal(worst.denominator)).ln()


def exact_delta(
    channel: Channel[Input], neighbors: Iterable[tuple[Input, Input]], epsilon: float
) -> Decimal:
    """Return the smallest δ for which the channel is (ε, δ)-private, to 50 digits."""
    # Source: The hockey-stick divergence; Balle & Wang 2018, Theorem 5.
    _checked(channel)
    with localcontext(prec=DIGITS):
        factor = Decimal(epsilon).exp()

        def excess(one: Input, other: Input) -> Decimal:
            return sum(
                (
                    max(Decimal(0), _decimal(chance) - factor * _decimal(channel[other].get(o)))
                    for o, chance in channel[one].items()
                ),
                start=Decimal(0),
            )

        return max((excess(one, other) for one, other in neighbors), default=Decimal(0))


def _decimal(chance: Fraction | None) -> Decimal:
    """Return a fraction in the digits of the context; a missing output has probability 0."""
    return Decimal(0) if chance is None else Decimal(chance.numerator) / chance.denominator
