"""One action drawn with probability ∝ reference · exp(score / temperature), exactly.

The scores are those of an estimate that is withheld, or totals over records; and scores on which
a draw shows as much of one record as it ever can.

A policy is given by the logarithms of its weights. No floating-point exponential, sum or
comparison of probabilities stands between them and the drawn action: weights are integers,
cumulative sums are integers, and a draw compares a word of 128 bits with integer thresholds.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from fractions import Fraction
from functools import lru_cache, partial
from itertools import accumulate, pairwise
from typing import Any, Final, TypeAlias

import numpy as np
from jaxtyping import Float, Int64, Real, UInt64

from sordino import _validate
from sordino._random import Entropy
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.privacy.conversions import bounded_range_for
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    BoundedRangeEvent,
    Guarantee,
    NeighboringRelation,
    Trust,
    Unit,
)

from .base import Repeated, Values, WorstCase, least_that_keeps, stated
from .grid import matrix

Scores: TypeAlias = Sequence[float | Decimal] | Float[np.ndarray, " k"]
"""One score for each action, in units of reward."""


class Draws(Repeated[Values]):
    """Draws of actions by the logarithms of their weights; what they promise each kind states."""

    draws: int = 1  # how many one release makes

    def log_probabilities(self, values: Values | np.ndarray) -> Float[np.ndarray, " k"]:
        """Return the log-probabilities that a release draws from, −∞ for never."""
        # They are a function of the raw scores: confidential, for audits and studies only.
        return log_chances(thresholds(self._log_weights(values)))

    def log_ratio(self, outputs: np.ndarray, case: WorstCase) -> Float[np.ndarray, " trials"]:
        """Return log P(output | case.one) − log P(output | case.other) for every row."""
        one, other = (self.log_probabilities(scores) for scores in (case.one, case.other))
        drawn = np.asarray(outputs).reshape(-1, self.draws)
        if not np.isin(drawn, np.flatnonzero(one > -math.inf)).all():
            raise UsageError("outputs must be indices of actions that can be drawn.")
        rows = drawn.astype(np.int64)
        return np.asarray((one[rows] - other[rows]).sum(axis=1))

    def _releases(
        self, values: Values, trials: int, entropy: Entropy
    ) -> Int64[np.ndarray, "trials draws"]:
        """Return drawn actions, as indices."""
        drawn = draw_actions(self._log_weights(values), trials * self.draws, entropy=entropy)
        return drawn.reshape(trials, self.draws)

    @abstractmethod
    def _log_weights(self, values: Values | np.ndarray) -> Iterator[Decimal]:
        """Return the log-weights of all actions, up to a constant, in 50 digits."""


@dataclass(frozen=True)
class SoftmaxMechanism(Draws[Scores]):
    """Draw actions from a policy of an estimate that nobody else ever sees.

    Guarantee:
        Each draw has bounded range (so pure ε, δ = 0) :attr:`bounded_range` under ``neighbors``,
        if ``score_range`` bounds what it says. Chances are exact multiples of 2^-128 whose
        distance from the formula is part of the bound: no arithmetic caveat of the draw; that of
        the scores is the estimate's. Shown by tests/soundness/test_gibbs_sampling.py.
    """

    # P(a) ∝ reference(a) · exp(score(a) / temperature). The scores are those of an estimate that a
    # curator withholds; how far one change of the data can move them is bounded by whoever made the
    # estimate, and is a setting here. Actions more than e^30 times less likely than the likeliest
    # are drawn as if they were e^30 times less likely.
    # Source: KLDP, Lemma 1 (pure), with the range of the change instead of twice its size;
    # docs/intrinsic.md, "Setting and lemmas".

    # KL strength in units of the scores, finite and > 0; large stays with the reference.
    temperature: float
    # Bound on max h − min h over the actions that can be drawn, where h is the change of the scores
    # between any two neighboring data sets; finite and ≥ 0.
    score_range: float = field(kw_only=True)
    # Public probabilities of at most 2^16 actions, summing to 1. An action of probability 0 is
    # never drawn.
    reference: tuple[float, ...] = field(kw_only=True)
    neighbors: NeighboringRelation = field(kw_only=True)  # the relation that `score_range` is about
    # How many independent draws one release makes, all from this policy.
    draws: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        _validate.settle(
            self,
            temperature=_validate.positive,
            score_range=_validate.non_negative,
            reference=lambda _, chances: _checked_reference(chances, least=1),
            draws=partial(_validate.integer, at_least=1),
        )
        if self.score_range == math.inf:
            raise UsageError("score_range must be finite: nothing bounds what one change shows.")
        _validate.one_of("neighbors", self.neighbors, NeighboringRelation)

    @property
    def bounded_range(self) -> float:
        """Return the length of the interval that holds the log-ratios of one draw."""
        several = sum(chance > 0 for chance in self.reference) > 1
        return _range_of_draw(self.score_range, self.temperature) if several else 0.0

    @property
    def event(self) -> BoundedRangeEvent:
        """Return what one release does, for the ledger: independent draws from one policy."""
        return BoundedRangeEvent(self.bounded_range, draws=self.draws)

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return the range of the change of the scores."""
        if neighbors is not self.neighbors:
            raise PrivacyError(
                f"score_range was bounded under {self.neighbors.name}; it says nothing under "
                f"{getattr(neighbors, 'name', neighbors)}. Nothing was drawn."
            )
        return self.score_range

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return what one release promises without a δ: the sum over its draws."""
        self.sensitivity(neighbors)
        return stated(self.event, delta=0.0, unit=unit, neighbors=neighbors, trust=trust)

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return scores of which one action moves by the whole range, around even odds."""
        # The action is the likeliest under the reference; before and after the change its odds
        # against all others together are e^{±range/2}.
        moves = self.sensitivity(neighbors) / 2
        scores = np.zeros(len(self.reference))
        first = int(np.argmax(self.reference))
        rest = 1 - self.reference[first] or 1.0
        even = -self.temperature * math.log(self.reference[first] / rest)
        one, other = scores.copy(), scores.copy()
        one[first], other[first] = even + moves, even - moves
        return WorstCase(one, other)

    def _log_weights(self, values: Scores) -> Iterator[Decimal]:
        if len(values) != len(self.reference):
            raise DataError(
                f"values must have one score for each of {len(self.reference)} actions, got "
                f"{len(values)}. Nothing was drawn."
            )
        exact = [v if isinstance(v, Decimal) else Decimal(float(v)) for v in values]
        for index, score in enumerate(exact):
            if not score.is_finite():
                raise DataError(f"values must be finite: index {index} is not. Nothing was drawn.")
        most, temperature = max(exact), Decimal(self.temperature)
        for score, chance in zip(exact, self.reference, strict=True):
            # less the largest first: 50 digits of what is left, however large the scores are
            behind = DIGITS.divide(DIGITS.subtract(score, most), temperature)
            yield DIGITS.add(log_of_chance(chance), behind) if chance else Decimal("-Infinity")


def least_temperature(score_range: float, bounded_range: float) -> float:
    """Return the least temperature at which one draw has at most a bounded range."""
    # Guarantee: ``SoftmaxMechanism(result, score_range=score_range, ...).bounded_range <=
    # bounded_range``.
    # Source: docs/intrinsic.md, "Choosing temperature and regularization": η = ρ/ε.
    score_range = _validate.non_negative("score_range", score_range)
    room = Fraction(_validate.positive("bounded_range", bounded_range)) - SLACK
    if room <= 0:
        raise UsageError(
            f"bounded_range={bounded_range!r} is kept by no finite temperature. Use a larger "
            "epsilon, or draw from the reference, which costs nothing."
        )
    if score_range == 0:
        return 1.0
    temperature = rounded_up(Fraction(score_range) / room, "temperature")
    while _range_of_draw(score_range, temperature) > bounded_range:
        temperature = math.nextafter(temperature, math.inf)
    return temperature


_REST: Final = 2.0  # all other actions together are e^-2 as likely as the rarer of the two
_CELLS: Final = 1 << 18  # numbers in a case, at most
_LARGEST: Final = 1e12  # more records than any case holds


_STEPS: Final = 2**20  # that a bound is divided into
_EXPONENTIAL_CELLS: Final = 1 << 20  # numbers held at once


@dataclass(frozen=True)
class ExponentialMechanism(Draws[np.ndarray]):
    """Draw one of k actions, the likelier the higher the records score it in total.

    Guarantee:
        One release has bounded range (so pure ε, δ = 0) :meth:`bounded_range`, for unit
        ``"record"`` under every relation and for unit ``"label"`` under ``REPLACE_ONE``; who
        sees the scores is the caller's to say. Bounds are enforced record by record, sums are
        sums of integers, and probabilities are exact multiples of 2^-128 whose distance from
        the formula is part of the bound: no arithmetic caveat. Shown by
        tests/soundness/test_exponential_mechanism.py.
    """

    # P(a) ∝ reference(a) · exp(Σ_i score_i(a) / temperature). Each record gives k scores. Before
    # they are summed, the least of them (over the actions that can be drawn) is subtracted, what
    # exceeds `bound` is cut to `bound`, and the result is rounded to a whole number of steps:
    # record by record, whatever the others are. Actions more than e^30 times less likely than the
    # likeliest are drawn as if they were e^30 times less likely.
    # Source: McSherry & Talwar 2007; bounded range: Durfee & Rogers 2019, Definition 3.1;
    # docs/privacy.md, "Bounded range".

    # KL strength in units of the scores, finite and > 0; large stays with the reference.
    temperature: float
    # Range (greatest minus least) that the scores of one record are cut to, > 0.
    bound: float = field(kw_only=True)
    # Public probabilities of the 2 to 2^16 actions, summing to 1. An action of probability 0 is
    # never drawn; at least two have more.
    reference: tuple[float, ...] = field(kw_only=True)
    # The relation that `event` is about, as the ledger keeps it.
    neighbors: NeighboringRelation = field(kw_only=True)

    def __post_init__(self) -> None:
        _validate.settle(
            self,
            temperature=_validate.positive,
            bound=_validate.positive,
            reference=lambda _, chances: _checked_reference(chances),
        )
        _validate.one_of("neighbors", self.neighbors, NeighboringRelation)
        _validate.positive("2·bound", 2 * self.bound)

    @classmethod
    def calibrated(
        cls,
        epsilon: float,
        *,
        delta: float,
        bound: float,
        reference: tuple[float, ...],
        neighbors: NeighboringRelation,
    ) -> ExponentialMechanism:
        """Return the mechanism of least temperature whose one draw keeps (epsilon, delta)."""
        # Guarantee: The accountant shows (epsilon, delta) for one draw under ``neighbors``; see the
        # class.
        # Source: docs/privacy.md, "Bounded range" (the inverse of `bounded_range_delta`).
        target = bounded_range_for(epsilon, delta)
        room = Fraction(target) - SLACK
        if room <= 0:
            raise UsageError(
                f"epsilon={epsilon!r} with delta={delta!r} is kept by no finite temperature. "
                "Use a larger epsilon, or draw from the reference, which costs nothing."
            )
        make = partial(cls, bound=bound, reference=reference, neighbors=neighbors)
        start = make(1.0).sensitivity(neighbors)
        temperature = rounded_up(Fraction(start) / room, "temperature")
        return least_that_keeps(temperature, make, lambda made: made.event.bounded_range <= target)

    @property
    def event(self) -> BoundedRangeEvent:
        """Return what one release does under :attr:`neighbors`, for the ledger."""
        return BoundedRangeEvent(self.bounded_range(self.neighbors))

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return the largest range (over actions) of the change of the total scores."""
        # A record that comes, goes or becomes empty moves the totals by its own scores, whose range
        # is `bound`. One that is replaced moves them by a difference: 2·`bound`.
        _validate.one_of("neighbors", neighbors, NeighboringRelation)
        return 2 * self.bound if neighbors is REPLACE_ONE else self.bound

    def bounded_range(self, neighbors: NeighboringRelation) -> float:
        """Return the length of the interval that holds all log-ratios of one draw."""
        # Guarantee: An upper bound for every two neighboring inputs, of the probabilities that are
        # really drawn from; shown by tests/soundness/test_exponential_mechanism.py.
        # The sensitivity over the temperature, at most 60 (no two actions are more than e^30
        # apart), plus 2^-64 for arithmetic; rounded up.
        # Source: docs/privacy.md, "Bounded range".
        return _range_of_draw(self.sensitivity(neighbors), self.temperature)

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return what drawing one action promises: ε = bounded range, δ = 0."""
        # Guarantee: As the class; under ``REPLACE_SPECIAL`` an empty record is a row of equal
        # scores.
        if unit not in {"record", "label"} or (unit == "label" and neighbors is not REPLACE_ONE):
            raise PrivacyError(
                "The exponential mechanism bounds one row of scores, so it promises nothing for "
                f"unit={unit!r} under {getattr(neighbors, 'name', neighbors)}. Use unit='record', "
                "or unit='label' with REPLACE_ONE; for a person, add up the scores of each person "
                "to one row first, which is then cut as a whole."
            )
        event = BoundedRangeEvent(self.bounded_range(neighbors))
        return stated(event, delta=0.0, unit=unit, neighbors=neighbors, trust=trust)

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Neighbors between which the odds of two actions move by the whole bounded range."""
        # The two are the likeliest under the reference. Records that both inputs share make the
        # rest negligible and place the two so that their odds move from one side of even to the
        # other, where a count of draws tells most of them, as far as 2^18 numbers allow.
        _validate.one_of("neighbors", neighbors, NeighboringRelation)
        reference, bound, temperature = self.reference, self.bound, self.temperature
        first, second = np.argsort(-np.array(reference), kind="stable")[:2].tolist()
        record = bound / temperature
        lowers = neighbors is REPLACE_ONE  # the record of the other input raises the likely action
        width = 2 * record if lowers else record
        lead = math.log(reference[first]) - math.log(reference[second])
        aim = (record if lowers else 0.0) - width / 2
        rest = 0.0 if len(reference) == 2 else math.log(len(reference)) + _REST  # noqa: PLR2004
        lifts = np.array([max(0.0, -aim - lead) + rest, max(0.0, aim + lead) + rest])
        # the two scores in steps, and how many records of them lift two actions so far
        wanted = lifts * min(temperature / bound, _LARGEST)
        rows = math.ceil(min(wanted.max(), _CELLS // len(reference)))
        heights = np.ceil(wanted / max(wanted.max(), rows, math.ulp(0.0)) * _STEPS)
        before = (heights[1] - heights[0]) * rows / _STEPS * record - lead - (width - record)
        if width < 2 * _FLOOR and not -_FLOOR < before < _FLOOR - width:
            raise UsageError(
                f"No worst case of at most {_CELLS} numbers attains the bounded range at "
                f"temperature={temperature!r}: the reference is too uneven. Audit with a more even "
                "reference."
            )
        one, other = np.zeros((2, rows + 1, len(reference)))
        one[:rows, [first, second]] = other[:rows, [first, second]] = heights / _STEPS * bound
        one[rows, second] = bound
        other[rows, first] = bound if lowers else 0.0
        return WorstCase(one, other[:rows] if neighbors is ADD_OR_REMOVE_ONE else other)

    def _log_weights(self, values: Real[np.ndarray, "n k"]) -> Iterator[Decimal]:
        # Those within 30 of the largest are wrong by less than 10^-44 < 2^-146, well within what
        # SLACK leaves for them; the others are floored, in 50 digits as in real numbers.
        totals = self._totals(values)
        most = max(totals.values())
        unit = DIGITS.multiply(Decimal(_STEPS), Decimal(self.temperature))
        step = DIGITS.divide(Decimal(self.bound), unit)
        for action, chance in enumerate(self.reference):
            if chance == 0:
                yield Decimal("-Infinity")
            else:
                behind = DIGITS.multiply(Decimal(totals[action] - most), step)
                yield DIGITS.add(log_of_chance(chance), behind)

    def _totals(self, values: Real[np.ndarray, "n k"]) -> dict[int, int]:
        """Return the total of every action that can be drawn, in steps; no sum overflows."""
        scores = _validate.finite_array("values", matrix(values), ndim=2)
        if scores.shape[1] != len(self.reference):
            raise DataError(
                f"values must have one column for each of {len(self.reference)} actions, got "
                f"{scores.shape[1]}. Nothing was drawn."
            )
        support = np.flatnonzero(np.array(self.reference) > 0)  # what can be drawn
        rows = max(1, _EXPONENTIAL_CELLS // scores.shape[1])
        totals = [0] * len(support)
        for start in range(0, len(scores), rows):
            part = scores[start : start + rows, support]
            sums = _in_steps(part, self.bound).sum(axis=0).tolist()
            totals = [total + more for total, more in zip(totals, sums, strict=True)]
        return dict(zip(support.tolist(), totals, strict=True))


def _in_steps(scores: Float[np.ndarray, "n s"], bound: float) -> Int64[np.ndarray, "n s"]:
    """Return each row less its least score in steps of bound·2^-20, cut and rounded."""
    with np.errstate(over="ignore"):  # an infinite difference is cut like any other
        above = (scores - scores.min(axis=1, keepdims=True)) / bound
    return np.asarray(np.rint(np.minimum(above, 1.0) * _STEPS), dtype=np.int64)


def digits(count: int) -> Context:
    """Return arithmetic of so many digits, in which nothing is too small."""
    traps = [InvalidOperation, DivisionByZero, Overflow]
    return Context(prec=count, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=traps)


DIGITS: Final = digits(50)
"""The arithmetic that logarithms of weights are computed in."""

_FLOOR: Final = 30
"""How far below the largest log-weight every action of the support is kept at least."""

MOST_ACTIONS: Final = 2**16
"""How many actions a policy may have: beyond it the slack below would not be proven."""

# Why this is enough. Let q be the policy ∝ exp(floored log-weights), in real numbers. Its least
# chance is at least e^-30/2^16 > 2^-59.3. A weight below is wrong by a factor of at most
# 1 ± 2^-115: 50 digits, then an integer of at least 2^160·e^-30 > 2^116 rounded down. So are
# their sums, and a chance by 1 ± 2^-113. The two roundings of its thresholds change it by less
# than 2^-128, a factor of 1 ± 2^-68.7. Every log-chance is therefore within 2^-68 of log q, and
# the difference of two log-ratios, made of four log-chances, within 2^-66. What is left up to
# SLACK is room for log-weights that are themselves wrong by at most 2^-68.
SLACK: Final = Fraction(1, 2**64)
"""How much longer the interval of log-ratios may be than with real arithmetic, at most."""

_WIDEST: Final = 2 * _FLOOR  # two actions are at most _FLOOR apart, before and after a change
_SUM_ATOL: Final = 1e-9  # how far the reference may sum from 1; it is normalized anyway
_FEW: Final = 8  # draws of one policy for which exact thresholds are seldom worth their time
_DOUBT: Final = 2.0**-35
_BITS: Final = 128
_WORD: Final = 2**64
_SCALE: Final = Decimal(2**160)


def draw_actions(
    log_weights: Iterable[float | Decimal], trials: int, *, entropy: Entropy
) -> Int64[np.ndarray, " trials"]:
    """Return independent draws of an action, each with probability ∝ exp(its log-weight).

    Guarantee:
        If one change of the data moves the log-weights by h with max h − min h ≤ b, then one draw
        has bounded range b + :data:`SLACK`; several draws from one policy compose as
        :class:`sordino.privacy.guarantee.BoundedRangeEvent` says. Exact: the slack holds all
        arithmetic behind the log-weights, and it is the caller who bounds h. Draws noise, so the
        spend must already be on a ledger. Shown by tests/soundness/test_exponential_mechanism.py.
    """
    # Log-weights more than 30 below the largest one count as 30 below it, so that no action that
    # one data set can draw is impossible under another.
    # Source: McSherry & Talwar 2007; docs/privacy.md, "Bounded range".
    trials = _validate.integer("trials", trials, at_least=0)
    levels = _levels(log_weights)
    words = entropy.words(2 * trials).reshape(trials, 2)
    if 0 < trials <= _FEW:
        plain = _drawn_plainly(levels, words[:, 0])
        if plain is not None:
            return plain
    # The last action needs no threshold, nor does any after the last one that can be drawn.
    cuts = [cut for cut in thresholds(levels) if cut < 1 << _BITS]
    return _drawn(cuts, words[:, 0], words[:, 1])


def thresholds(log_weights: Iterable[float | Decimal]) -> list[int]:
    """Return, for every action, the sum of the chances up to it in units of 2^-128."""
    # An action is drawn if a uniform integer below 2^128 is below its threshold and not below the
    # one before. The last threshold is 2^128.
    weights = _weights(_levels(log_weights))
    total = sum(weights)
    return [(part << _BITS) // total for part in accumulate(weights)]


def log_chances(cuts: list[int]) -> Float[np.ndarray, " k"]:
    """Return the log-probability of every action, −∞ for one that is never drawn."""
    sizes = [high - low for low, high in pairwise([0, *cuts])]
    return np.array([math.log(size / (1 << _BITS)) if size else -math.inf for size in sizes])


def _levels(log_weights: Iterable[float | Decimal]) -> list[Decimal]:
    """Return the log-weights as decimals, without any rounding; refuse what is none."""
    levels = [v if isinstance(v, Decimal) else Decimal(float(v)) for v in log_weights]
    if len(levels) > MOST_ACTIONS:
        raise UsageError(
            f"At most {MOST_ACTIONS} actions can be drawn from, got {len(levels)}. Nothing was "
            "drawn. Leave out actions by a public rule."
        )
    for index, level in enumerate(levels):
        if level.is_nan() or (level.is_infinite() and level > 0):
            raise DataError(f"Log-weights must be below infinity: index {index} is not.")
    if not any(level.is_finite() for level in levels):
        raise DataError("At least one log-weight must be finite. Nothing was drawn.")
    return levels


def _weights(levels: list[Decimal]) -> list[int]:
    """Return integers ∝ exp(floored log-weight), 2^160 for the largest and 0 for −∞."""
    # The floor costs nothing: let f and f' be two log-weights whose difference lies in [c, c + b].
    # Add c to f', which leaves its policy as it is: then f' ≤ f ≤ f' + b. The map f ↦ max(f, max f
    # − 30) never falls when f rises, and moves by b when all of f moves by b. So the floored
    # log-weights obey the same two inequalities.
    top, floor = max(levels), Decimal(-_FLOOR)
    depths = [max(DIGITS.subtract(v, top), floor) if v.is_finite() else v for v in levels]
    return [int(DIGITS.multiply(_SCALE, DIGITS.exp(depth))) for depth in depths]  # rounded down


def _drawn_plainly(
    levels: list[Decimal], high: UInt64[np.ndarray, " n"]
) -> Int64[np.ndarray, " n"] | None:
    """Return what exact thresholds would draw, from floats; None where floats cannot tell."""
    # Depths below 30 are wrong by less than 2^-47, so weights by a factor within 1 ± 2^-46 (with
    # that of `exp`), sums of 2^16 of them by 1 ± 2^-36, shares by less than 2^-35.9 and words by
    # 2^-53: a word that is 2^-35 or more away from every share lies on the same side of the exact
    # threshold.
    top = max(levels)
    depths = [
        max(float(DIGITS.subtract(level, top)), -float(_FLOOR)) if level.is_finite() else -math.inf
        for level in levels
    ]
    shares = np.cumsum(np.exp(depths))
    shares /= shares[-1]
    points = high * 2.0**-64
    drawn = np.searchsorted(shares, points, side="right")
    # The last share, 1, is no threshold, nor are those of actions after the last possible one.
    inner = shares[: np.flatnonzero(np.isfinite(depths))[-1]]
    near = np.abs(points[:, None] - inner[None, :]) < _DOUBT
    return None if near.any() else np.minimum(drawn, len(inner)).astype(np.int64)


def _drawn(
    cuts: list[int], high: UInt64[np.ndarray, " n"], low: UInt64[np.ndarray, " n"]
) -> Int64[np.ndarray, " n"]:
    """Return how many thresholds are at most the number high·2^64 + low, for every draw."""
    upper = np.array([cut // _WORD for cut in cuts], dtype=np.uint64)
    lower = np.array([cut % _WORD for cut in cuts], dtype=np.uint64)
    below = np.searchsorted(upper, high, side="left")
    not_above = np.searchsorted(upper, high, side="right")
    for tie in np.flatnonzero(below < not_above):
        # Equal high words: the low ones of these thresholds are sorted, and decide.
        span = slice(below[tie], not_above[tie])
        below[tie] += np.searchsorted(lower[span], low[tie], side="right")
    return below.astype(np.int64)


@lru_cache(maxsize=1 << 12)
def _range_of_draw(score_range: float | Fraction, temperature: float) -> float:
    """Return the length of the interval that holds all log-ratios of one draw."""
    # The range of the change of the scores over the temperature, at most 60 (no two actions are
    # more than e^30 apart), plus 2^-64 for arithmetic; rounded up. Scores that never change cost 0.
    # Source: Durfee & Rogers 2019, Definition 3.1; docs/privacy.md, "Bounded range".
    ideal = Fraction(score_range) / Fraction(temperature)
    return rounded_up(min(ideal, Fraction(_WIDEST)) + SLACK, "bounded range") if ideal else 0.0


def _checked_reference(reference: Any, *, least: int = 2) -> tuple[float, ...]:
    """Return public probabilities as a tuple of floats; refuse what is no distribution."""
    chances = tuple(reference)
    if all(isinstance(chance, float) for chance in chances):
        return _checked_chances(chances, least)
    return _checked_chances.__wrapped__(chances, least)


@lru_cache(maxsize=256)
def _checked_chances(reference: tuple[Any, ...], least: int) -> tuple[float, ...]:
    """Return checked probabilities; many draws repeat one reference."""
    chances = tuple(_validate.non_negative("reference", chance) for chance in reference)
    drawn = sum(chance > 0 for chance in chances)
    if len(chances) > MOST_ACTIONS or drawn < least:
        raise UsageError(
            f"reference must give at most {MOST_ACTIONS} actions a probability, and at least "
            f"{least} of them more than 0; got {len(chances)} actions, {drawn} of them above 0."
        )
    total = math.fsum(chances)
    if not abs(total - 1) <= _SUM_ATOL:
        raise UsageError(f"reference must sum to 1, got a sum of {total!r}.")
    return chances


@lru_cache(maxsize=MOST_ACTIONS)
def log_of_chance(chance: float) -> Decimal:
    """Return the logarithm of a public probability in 50 digits; references repeat them."""
    return DIGITS.ln(Decimal(chance))


def rounded_up(value: Fraction, name: str) -> float:
    """Return a float that is at least value, and so is the decimal number that it prints as."""
    try:
        result = float(value)
    except OverflowError:
        raise UsageError(
            f"The {name} would be larger than a float. Use a smaller bound or a larger epsilon."
        ) from None
    while min(Fraction(result), Fraction(repr(result))) < value:
        result = math.nextafter(result, math.inf)
    return result
