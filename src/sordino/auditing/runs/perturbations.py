"""Does a result describe the noise of a curator that its entries on the ledger paid for?"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sordino import _validate
from sordino.errors import UsageError
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.mechanisms.ranked_tilt import RankedPerturbation
from sordino.privacy import accounting
from sordino.privacy.chain import Row
from sordino.privacy.events import ApproximateEvent, GaussianEvent
from sordino.privacy.guarantee import REPLACE_SPECIAL, NeighboringRelation, float_from_json
from sordino.privacy.spend import event_of
from sordino.rewards.model import RewardModel

__all__ = [
    "LABELS",
    "METRICS",
    "RANKED",
    "RANKINGS",
    "RECORDS",
    "StatedGaussian",
    "StatedRankedTilt",
    "StatedTilt",
    "cap_of",
    "together",
]

LABELS, RECORDS = "label-gaussian", "objective-perturbation"
RANKINGS, RANKED = "ranking-gaussian", "ranked-perturbation"
METRICS = ("label-gaussian", "gaussian")
_SLACK = 1e-9  # of rounding
_CALIBRATED = 1e-3  # how exactly a noise is found again from its settings, on any machine
_ROOM = 1e-3  # what a calibration may leave unused


@dataclass(frozen=True, kw_only=True)
class StatedGaussian:
    """One release with Gaussian noise, as ``result.json`` describes it.

    Attributes:
        name: The mechanism.
        epsilon: Privacy loss that it is said to keep.
        delta: With this failure probability.
        mu: What one change moves it, in units of its noise.
        records_per_person: How many records of one person count; None if there is no limit.
    """

    name: str
    epsilon: float
    delta: float
    mu: float
    records_per_person: int | None

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> StatedGaussian:
        """Return what a result says; KeyError, TypeError or ValueError where it is malformed."""
        most = told.get("records_per_person")
        return cls(
            name=_text(told["name"]),
            **_loss(told),
            mu=_validate.non_negative("mu", told["mu"]),
            records_per_person=None
            if most is None
            else _validate.integer("records_per_person", most, at_least=1),
        )

    def wrong(self, paid: GaussianEvent, relation: NeighboringRelation) -> Iterator[str]:
        """Yield what says that less was lost than was paid for."""
        if self.mu < paid.mu * (1 - _SLACK):
            yield "More noise is described than was paid for."
        if self.epsilon < self._least(paid, relation) * (1 - _SLACK):
            yield "A smaller loss is described than the noise that was paid for keeps."

    def odd(self, paid: GaussianEvent, relation: NeighboringRelation) -> Iterator[str]:
        """Yield what differs without promising more."""
        if self.mu > paid.mu * (1 + _SLACK):
            yield "Less noise is described than was paid for."
        if self.epsilon > self._least(paid, relation) * (1 + _ROOM):
            yield "A larger loss is described than the noise that was paid for has."

    def _least(self, paid: GaussianEvent, relation: NeighboringRelation) -> float:
        """Return the loss that the noise is shown to keep at the stated δ."""
        return accounting.composed_epsilon([(paid, 1)], neighbors=relation, delta=self.delta)


@dataclass(frozen=True, kw_only=True)
class StatedTilt:
    """A minimizer of a tilted objective, as ``result.json`` describes it.

    Attributes:
        name: The mechanism.
        epsilon: Privacy loss that it is said to keep.
        delta: With this failure probability.
        bound: Norm to which every record was clipped.
        ridge: Strength of the quadratic penalty.
        standard_deviation: Noise of every coordinate of the tilt.
        second_moment: Whether a second moment was released with it.
        second_moment_mu: What one record moves that, in units of its noise.
    """

    name: str
    epsilon: float
    delta: float
    bound: float
    ridge: float
    standard_deviation: float
    second_moment: bool
    second_moment_mu: float

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> StatedTilt:
        """Return what a result says; KeyError, TypeError or ValueError where it is malformed."""
        if not isinstance(told["second_moment"], bool):
            raise TypeError
        sizes = ("bound", "ridge", "standard_deviation")
        return cls(
            name=_text(told["name"]),
            **_loss(told),
            **{size: _validate.positive(size, told[size]) for size in sizes},
            second_moment=told["second_moment"],
            second_moment_mu=_validate.non_negative("second_moment_mu", told["second_moment_mu"]),
        )

    def wrong(
        self, paid: ApproximateEvent, relation: NeighboringRelation, *, reward: RewardModel
    ) -> Iterator[str]:
        """Yield what says that less was lost than was paid for, or more noise was added."""
        yield from _wrong_loss(self, paid)
        yield from _wrong_ridge(self.ridge, reward)
        yield from self._wrong_moment(reward)
        yield from _wrong_size(self.standard_deviation, self._noise(paid, relation))

    def odd(self, paid: ApproximateEvent) -> Iterator[str]:
        """Yield what differs without promising more."""
        yield from _odd_loss(self, paid)

    def _wrong_moment(self, reward: RewardModel) -> Iterator[str]:
        """Yield what is wrong about the second moment, which the reward's file holds."""
        moment = reward.moment
        told = self.second_moment or self.second_moment_mu > 0
        if told != (moment is not None) or told != self.second_moment:
            yield "The reward holds another second moment than is described."
        elif moment is not None:
            if self.second_moment_mu < moment.mechanism.mu(REPLACE_SPECIAL) * (1 - _SLACK):
                yield "More noise of the second moment is described than it carries."
            if not math.isclose(self.bound, moment.bound, rel_tol=_SLACK):
                yield "Another bound is described than that of the second moment."

    def _noise(self, paid: ApproximateEvent, relation: NeighboringRelation) -> float | None:
        """Return the noise of a tilt with these settings that keeps what was paid; None if none."""
        try:
            return ObjectivePerturbation(
                paid.epsilon,
                delta=paid.delta,
                bound=self.bound,
                neighbors=relation,
                ridge=self.ridge,
                second_moment_mu=self.second_moment_mu,
            ).standard_deviation
        except UsageError:
            return None


@dataclass(frozen=True, kw_only=True)
class StatedRankedTilt:
    """A minimizer of a tilted objective of rankings, as ``result.json`` describes it.

    Attributes:
        name: The mechanism.
        epsilon: Privacy loss that it is said to keep.
        delta: With this failure probability.
        bound: Norm to which the features of every candidate were clipped.
        candidates: The most candidates of one ballot.
        dimension: Number of features.
        ridge: Strength of the quadratic penalty.
        standard_deviation: Noise of every coordinate of the tilt.
    """

    name: str
    epsilon: float
    delta: float
    bound: float
    candidates: int
    dimension: int
    ridge: float
    standard_deviation: float

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> StatedRankedTilt:
        """Return what a result says; KeyError, TypeError or ValueError where it is malformed."""
        sizes = ("bound", "ridge", "standard_deviation")
        return cls(
            name=_text(told["name"]),
            **_loss(told),
            **{size: _validate.positive(size, told[size]) for size in sizes},
            candidates=_validate.integer("candidates", told["candidates"], at_least=2),
            dimension=_validate.integer("dimension", told["dimension"], at_least=1),
        )

    def wrong(
        self, paid: ApproximateEvent, relation: NeighboringRelation, *, reward: RewardModel
    ) -> Iterator[str]:
        """Yield what says that less was lost than was paid for, or more noise was added."""
        yield from _wrong_loss(self, paid)
        yield from _wrong_ridge(self.ridge, reward)
        if self.dimension != len(reward.weights):
            yield "Another number of features is described than the reward has weights."
        if reward.items is not None and self.candidates < len(reward.items):
            yield "Fewer candidates are described than the items that everybody ranked."
        yield from _wrong_size(self.standard_deviation, self._noise(paid, relation))

    def odd(self, paid: ApproximateEvent) -> Iterator[str]:
        """Yield what differs without promising more."""
        yield from _odd_loss(self, paid)

    def _noise(self, paid: ApproximateEvent, relation: NeighboringRelation) -> float | None:
        """Return the noise of a tilt with these settings that keeps what was paid; None if none."""
        try:
            return RankedPerturbation(
                paid.epsilon,
                delta=paid.delta,
                bound=self.bound,
                candidates=self.candidates,
                dimension=self.dimension,
                neighbors=relation,
                ridge=self.ridge,
            ).standard_deviation
        except UsageError:
            return None


def together(rows: Iterable[Row]) -> GaussianEvent | None:
    """Return the one Gaussian release that several are as good as; None if one is of another kind.

    Source:
        Dong, Roth, Su (2022), Corollary 3.3: the squares of μ add up.
    """
    events = [(event_of(row), row.count) for row in rows]
    squares = [count * event.mu**2 for event, count in events if isinstance(event, GaussianEvent)]
    return GaussianEvent(math.sqrt(sum(squares))) if len(squares) == len(events) else None


def cap_of(row: Row) -> int | None:
    """Return how many records of one person count, as the entry says it."""
    cap: int | None = (json.loads(row.payload).get("details") or {}).get("cap")
    return cap


def _wrong_loss(told: StatedTilt | StatedRankedTilt, paid: ApproximateEvent) -> Iterator[str]:
    """Yield that less is described than was paid for, if it is."""
    if told.epsilon < paid.epsilon * (1 - _SLACK) or told.delta < paid.delta * (1 - _SLACK):
        yield "A smaller loss is described than was paid for."


def _odd_loss(told: StatedTilt | StatedRankedTilt, paid: ApproximateEvent) -> Iterator[str]:
    """Yield that more is described than was paid for, if it is."""
    if told.epsilon > paid.epsilon * (1 + _SLACK) or told.delta > paid.delta * (1 + _SLACK):
        yield "A larger loss is described than was paid for."


def _wrong_ridge(ridge: float, reward: RewardModel) -> Iterator[str]:
    """Yield that the reward was fitted with another ridge, if it was."""
    if not math.isclose(ridge, reward.ridge, rel_tol=_SLACK):
        yield "Another ridge is described than that of the reward."


def _wrong_size(stated: float, needed: float | None) -> Iterator[str]:
    """Yield that another size of noise is described than was paid for, if it is."""
    if needed is None or stated < needed * (1 - _CALIBRATED):
        yield "Less noise is described than what was paid for needs."
    elif stated > needed * (1 + _CALIBRATED):
        yield "More noise is described than was paid for."


def _loss(told: Mapping[str, Any]) -> dict[str, float]:
    """Return ε and δ."""
    epsilon = _validate.non_negative("epsilon", float_from_json(told["epsilon"]))
    return {"epsilon": epsilon, "delta": _validate.failure_probability("delta", told["delta"])}


def _text(value: Any) -> str:
    """Return a text; TypeError if it is anything else."""
    if not isinstance(value, str):
        raise TypeError
    return value
