"""Actions drawn with probability ∝ reference · exp(withheld score / temperature), exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from jaxtyping import Float, Int64

from sordino import _validate
from sordino._random import Entropy
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms._gibbs_draws import (
    DIGITS,
    SLACK,
    checked_reference,
    draw_actions,
    log_chances,
    log_of_chance,
    range_of_draw,
    rounded_up,
    thresholds,
)
from sordino.mechanisms.base import WorstCase
from sordino.privacy import accounting
from sordino.privacy.events import BoundedRangeEvent
from sordino.privacy.guarantee import Guarantee, NeighboringRelation, Trust, Unit

__all__ = ["GibbsSampling", "Scores", "least_temperature"]

Scores: TypeAlias = Sequence[float | Decimal] | Float[np.ndarray, " k"]
"""One score for each action, in units of reward."""


@dataclass(frozen=True)
class GibbsSampling:
    """Draw actions from a policy of an estimate that nobody else ever sees.

    P(a) ∝ reference(a) · exp(score(a) / temperature). The scores are those of an estimate that a
    curator withholds; how far one change of the data can move them is bounded by whoever made
    the estimate, and is a setting here. Actions more than e^30 times less likely than the
    likeliest are drawn as if they were e^30 times less likely.

    Args:
        temperature: KL strength in units of the scores, finite and > 0; large stays with the
            reference.
        score_range: Bound on max h − min h over the actions that can be drawn, where h is the
            change of the scores between any two neighboring data sets; finite and ≥ 0.
        reference: Public probabilities of at most 2^16 actions, summing to 1. An action of
            probability 0 is never drawn.
        neighbors: The relation that ``score_range`` is about.
        draws: How many independent draws one release makes, all from this policy.

    Raises:
        UsageError: A setting is outside what is permitted.

    Guarantee:
        Each draw has bounded range (so pure ε, δ = 0) :attr:`bounded_range` under ``neighbors``,
        if ``score_range`` bounds what it says. Chances are exact multiples of 2^-128 whose
        distance from the formula is part of the bound: no arithmetic caveat of the draw; that of
        the scores is the estimate's. Shown by tests/soundness/test_gibbs_sampling.py.

    Source:
        KLDP, Lemma 1 (pure), with the range of the change instead of twice its size;
        docs/intrinsic.md, "Setting and lemmas".

    Example:
        >>> from sordino._random import entropy
        >>> from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE
        >>> policy = GibbsSampling(
        ...     0.01, score_range=0.5, reference=(0.5, 0.5), neighbors=ADD_OR_REMOVE_ONE, draws=3)
        >>> policy.release([0.0, 1.0], entropy=entropy(None)).tolist(), policy.event.draws
        ([1, 1, 1], 3)
    """

    temperature: float
    score_range: float = field(kw_only=True)
    reference: tuple[float, ...] = field(kw_only=True)
    neighbors: NeighboringRelation = field(kw_only=True)
    draws: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        """Check the settings."""
        checked = {
            "temperature": _validate.positive("temperature", self.temperature),
            "score_range": _validate.non_negative("score_range", self.score_range),
            "reference": checked_reference(self.reference, least=1),
            "draws": _validate.integer("draws", self.draws, at_least=1),
        }
        if checked["score_range"] == math.inf:
            raise UsageError("score_range must be finite: nothing bounds what one change shows.")
        _validate.one_of("neighbors", self.neighbors, tuple(NeighboringRelation))
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def bounded_range(self) -> float:
        """Return the length of the interval that holds the log-ratios of one draw."""
        several = sum(chance > 0 for chance in self.reference) > 1
        return range_of_draw(self.score_range, self.temperature) if several else 0.0

    @property
    def event(self) -> BoundedRangeEvent:
        """Return what one release does, for the ledger: independent draws from one policy."""
        return BoundedRangeEvent(self.bounded_range, draws=self.draws)

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return the range of the change of the scores.

        Raises:
            PrivacyError: ``score_range`` was stated for another relation.
        """
        if neighbors is not self.neighbors:
            raise PrivacyError(
                f"score_range was bounded under {self.neighbors.name}; it says nothing under "
                f"{getattr(neighbors, 'name', neighbors)}. Nothing was drawn."
            )
        return self.score_range

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return what one release promises without a δ: the sum over its draws.

        Args:
            unit: Whose change ``score_range`` is about.
            neighbors: What one change is.
            trust: Who saw the data.

        Raises:
            PrivacyError: ``score_range`` was stated for another relation.
        """
        self.sensitivity(neighbors)
        loss = accounting.composed_epsilon([(self.event, 1)], neighbors=neighbors, delta=0.0)
        return Guarantee(loss, delta=0.0, unit=unit, neighbors=neighbors, trust=trust)

    def release(self, values: Scores, *, entropy: Entropy) -> Int64[np.ndarray, " draws"]:
        """Return the drawn actions, as indices.

        Args:
            values: One score for each action; the estimate's, so confidential.
            entropy: Source of 64-bit words, two for each draw; a release needs system entropy.

        Raises:
            DataError: There is not one finite score for each action.

        Guarantee:
            As the class; draws noise, so the spend must already be on a ledger.
        """
        return draw_actions(self._log_weights(values), self.draws, entropy=entropy)

    def repeat(
        self, values: Scores, trials: int, *, entropy: Entropy
    ) -> Int64[np.ndarray, "trials draws"]:
        """Return independent releases of the same made-up scores, one in each row.

        Guarantee:
            None for all rows together: each row is one release. Never call it on private data.
        """
        drawn = draw_actions(self._log_weights(values), trials * self.draws, entropy=entropy)
        return drawn.reshape(trials, self.draws)

    def log_probabilities(self, values: Scores) -> Float[np.ndarray, " k"]:
        """Return the log-probabilities that a release draws from, −∞ for never; confidential.

        Raises:
            DataError: As :meth:`release`.
        """
        return log_chances(thresholds(self._log_weights(values)))

    def log_ratio(self, outputs: np.ndarray, case: WorstCase) -> Float[np.ndarray, " trials"]:
        """Return log P(output | case.one) − log P(output | case.other) for every row."""
        rows = np.asarray(outputs).reshape(-1, self.draws)
        one, other = (self.log_probabilities(scores) for scores in (case.one, case.other))
        return np.asarray((one[rows] - other[rows]).sum(axis=1))

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return scores of which one action moves by the whole range, around even odds.

        The action is the likeliest under the reference; before and after the change its odds
        against all others together are e^{±range/2}.

        Raises:
            PrivacyError: ``score_range`` was stated for another relation.
        """
        moves = self.sensitivity(neighbors) / 2
        scores = np.zeros(len(self.reference))
        first = int(np.argmax(self.reference))
        rest = 1 - self.reference[first] or 1.0
        even = -self.temperature * math.log(self.reference[first] / rest)
        one, other = scores.copy(), scores.copy()
        one[first], other[first] = even + moves, even - moves
        return WorstCase(one, other)

    def _log_weights(self, values: Scores) -> Iterator[Decimal]:
        """Return the log-weights of all actions, up to a constant, in 50 digits."""
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
    """Return the least temperature at which one draw has at most a bounded range.

    Args:
        score_range: Bound on the range of the change of the scores, finite and ≥ 0.
        bounded_range: What one draw may have, > 0.

    Returns:
        ``score_range / bounded_range``, raised by what arithmetic needs; 1 for scores that never
        change, which are as private at any other.

    Raises:
        UsageError: No finite temperature keeps it.

    Guarantee:
        ``GibbsSampling(result, score_range=score_range, ...).bounded_range <= bounded_range``.

    Source:
        docs/intrinsic.md, "Choosing temperature and regularization": η = ρ/ε.

    Example:
        >>> round(least_temperature(0.5, 1.0), 9)
        0.5
    """
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
    while range_of_draw(score_range, temperature) > bounded_range:
        temperature = math.nextafter(temperature, math.inf)
    return temperature
