"""Does a result describe the coin that its entries on the ledger paid for?

Does a result describe the noise of a curator that its entries on the ledger paid for?

Which numbers does a result state, and what had to be paid before they could be?

Does a result describe what its entries on the ledger paid for, and nothing that they did not?
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from sordino import _validate
from sordino.auditing.findings import Finding
from sordino.errors import UsageError
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.mechanisms.ranking_objective_perturbation import RankingObjectivePerturbation
from sordino.privacy import accounting
from sordino.privacy.coins import flip_probability
from sordino.privacy.events import ApproximateEvent, GaussianEvent, RandomizedResponseEvent
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_SPECIAL,
    Guarantee,
    NeighboringRelation,
    float_from_json,
)
from sordino.privacy.ledger_chain import Row
from sordino.privacy.spend import event_of
from sordino.rewards.model import RewardModel, Worth

_ATTACK = "mechanism"
_NOISE, _NAME = "labels", "randomized-response"
_FAIR = 0.5
_SLACK = 1e-9  # of rounding: a share of a person's promise is a quotient


@dataclass(frozen=True, kw_only=True)
class StatedCoin:
    """What ``result.json`` says of its mechanism."""

    noise: str  # where it is
    name: str  # the mechanism
    flips: float  # share of labels that it flips, in [0, 1/2]; 0 for a mechanism that flips none
    loss: float | None  # privacy loss of one label; None where an early version left it out

    @classmethod
    def read(cls, result: Mapping[str, Any]) -> StatedCoin:
        """Return what a result says; KeyError, TypeError or ValueError where it is malformed."""
        told, noise = result["mechanism"], result["noise"]
        name, loss = told["name"], told.get("epsilon_per_label")
        if not isinstance(noise, str) or not isinstance(name, str):
            raise TypeError
        flips = told["flip_probability"] if name == _NAME else told.get("flip_probability", 0.0)
        flips = _validate.non_negative("flip_probability", flips)
        if flips > _FAIR:
            raise ValueError
        if loss is not None:
            loss = _validate.non_negative("epsilon_per_label", float_from_json(loss))
        return cls(noise=noise, name=name, flips=flips, loss=loss)


def check_coin(stated: StatedCoin, paid: Guarantee, entries: Iterable[Row]) -> Finding:
    """Return whether the coin that is described is the one that the entries paid for."""
    # A description that promises more noise than was paid for refutes; one that only differs is a
    # warning. A file that arrived private was paid for elsewhere: its coin must then agree with
    # itself and with the promise that it arrived with.
    rows = tuple(entries)
    events = [event_of(row) for row in rows if row.kind == "reserve"]
    losses = [event.epsilon for event in events if isinstance(event, RandomizedResponseEvent)]
    if len(losses) < len(events):
        summary = "The entries are of a kind that no coin is described by."
        return Finding(attack=_ATTACK, outcome="skipped", summary=summary)
    wrong = [*_other_names(stated), *_too_private(stated, losses, paid)]
    odd = [] if wrong else [*_other_numbers(stated, losses, paid)]
    return Finding(
        attack=_ATTACK,
        outcome="refutes" if wrong else "warning" if odd else "clear",
        summary=" ".join([*wrong, *odd])
        or "The mechanism that is described is the one that was paid for.",
        details={"paid_epsilon_per_label": sorted(set(losses))},
    )


def _other_names(stated: StatedCoin) -> Iterator[str]:
    """Yield what is wrong about the names."""
    if (stated.noise, stated.name) != (_NOISE, _NAME):
        yield "Another mechanism is described than the one that was paid for."


def _too_private(stated: StatedCoin, losses: list[float], paid: Guarantee) -> Iterator[str]:
    """Yield what says that less was lost than was paid for."""
    least = max(losses, default=_arrived(paid))
    if stated.loss is not None and stated.loss < least * (1 - _SLACK):
        yield "A smaller loss of one label is described than was paid for."
    if losses and stated.flips > flip_probability(max(losses)) * (1 + _SLACK):
        yield "More labels are said to be flipped than the coin that was paid for flips."
    if stated.loss is not None and stated.flips < _least_flips(stated.loss) * (1 - _SLACK):
        yield "Fewer labels are said to be flipped than the loss of one label needs."


def _least_flips(loss: float) -> float:
    """Return the share of labels that must be flipped for a loss; coins are rounded up from it."""
    # Source: Warner 1965: 1/(1 + e^ε).
    odds = math.exp(-loss)
    return odds / (1 + odds)


def _arrived(paid: Guarantee) -> float:
    """Return the least loss of one label in a file that arrived with this promise."""
    return paid.epsilon if paid.unit == "label" else 0.0


def _other_numbers(stated: StatedCoin, losses: list[float], paid: Guarantee) -> Iterator[str]:
    """Yield what differs from the coin that was paid for without promising more."""
    # Entries that no person ids link may add up for one label, which the result then says.
    known = [*losses, *([paid.epsilon] if paid.unit == "label" else [])]
    told = stated.loss
    if told is not None and losses and not any(math.isclose(told, one) for one in known):
        yield "A larger loss of one label is described than was paid for."
    exact = [flip_probability(loss) for loss in losses]
    if exact and not any(math.isclose(stated.flips, one) for one in exact):
        yield "Fewer labels are said to be flipped than the coin that was paid for flips."


LABELS, RECORDS = "label-gaussian", "objective-perturbation"
RANKINGS, RANKED = "ranking-gaussian", "ranked-perturbation"
METRICS = ("label-gaussian", "gaussian")
# of rounding
_CALIBRATED = 1e-3  # how exactly a noise is found again from its settings, on any machine
_ROOM = 1e-3  # what a calibration may leave unused


@dataclass(frozen=True, kw_only=True)
class StatedGaussian:
    """One release with Gaussian noise, as ``result.json`` describes it."""

    name: str  # the mechanism
    epsilon: float  # privacy loss that it is said to keep
    delta: float  # with this failure probability
    mu: float  # what one change moves it, in units of its noise
    # How many records of one person count; None if there is no limit.
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
    """A minimizer of a tilted objective, as ``result.json`` describes it."""

    name: str  # the mechanism
    epsilon: float  # privacy loss that it is said to keep
    delta: float  # with this failure probability
    bound: float  # norm to which every record was clipped
    ridge: float  # strength of the quadratic penalty
    standard_deviation: float  # noise of every coordinate of the tilt
    second_moment: bool  # whether a second moment was released with it
    second_moment_mu: float  # what one record moves that, in units of its noise

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
    """A minimizer of a tilted objective of rankings, as ``result.json`` describes it."""

    name: str  # the mechanism
    epsilon: float  # privacy loss that it is said to keep
    delta: float  # with this failure probability
    bound: float  # norm to which the features of every candidate were clipped
    candidates: int  # the most candidates of one ballot
    dimension: int  # number of features
    ridge: float  # strength of the quadratic penalty
    standard_deviation: float  # noise of every coordinate of the tilt

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
            return RankingObjectivePerturbation(
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
    """The one Gaussian release that several are as good as; None if one is of another kind."""
    # Source: Dong, Roth, Su (2022), Corollary 3.3: the squares of μ add up.
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


_Path = tuple[str, ...]

_REWARD = "reward.json"

_LIKELIHOOD = {
    ("reward", "negative_log_likelihood"),
    ("reward", "negative_log_likelihood_standard_error"),
}
_BOUGHT = {
    ("reward", "accuracy"),
    ("reward", "accuracy_standard_error"),
    ("policy", "win_rate"),
    ("policy", "win_rate_interval"),
}
_NEVER = {("calibration",)}
_OF_TEXTS = {
    ("seconds",),
    ("reward", "calibration_slope"),
    ("reward", "calibration_slope_standard_error"),
    ("reward", "weight_standard_error"),
    ("policy", "kl"),
    ("policy", "pessimism"),
    ("data", "dropped_identical"),
    ("data", "capped"),
    ("data", "persons"),
    ("utility",),
}
_TEXTS = {("decisive",), ("examples",)}
_COUNTS = {("data", "pairs"), ("data", "ballots"), ("metrics", "pairs")}
_NUMBER_SLACK = 1e-6  # of rounding, where one machine made a worth and another makes it again


@dataclass(frozen=True, kw_only=True)
class StatedItems:
    """What ``result.json`` says of the items that everybody ranked; None where it says nothing."""

    # Name, worth and ends of the interval, if it has one, the best first.
    worths: tuple[Worth, ...] | None
    # Name and chance in a Gibbs policy, the best first; those of another one do not follow from
    # worths.
    choices: tuple[tuple[str, float], ...] | None
    count: int | None  # how many items there are
    temperature: float | None  # of the policy

    @classmethod
    def read(cls, result: Mapping[str, Any]) -> StatedItems:
        """Return what a result says; KeyError, TypeError or ValueError where it is malformed."""
        items, count = result.get("items"), _at(result, ("data", "items"))
        plain = _at(result, ("policy", "confidence")) is None
        choices = _at(result, ("policy", "choices")) if plain else None
        temperature = None if choices is None else result["policy"]["temperature"]
        return cls(
            worths=None if items is None else tuple(map(_worth, items)),
            choices=None
            if choices is None
            else tuple(
                (str(row["name"]), _validate.number("probability", row["probability"]))
                for row in choices
            ),
            count=None if count is None else _validate.integer("items", count, at_least=0),
            temperature=None
            if temperature is None
            else _validate.positive("temperature", temperature),
        )

    def wrong(self, reward: RewardModel) -> Iterator[str]:
        """Yield what the reward does not say of its items."""
        known: list[Worth] = [] if reward.items is None else reward.worths()
        if self.count not in (None, len(known)):
            yield "Another number of items is told than the reward has."
        if self.worths is not None:
            yield from self._wrong_worths(known)
        if self.choices is not None and not self._follows(known):
            yield "The policy's choices do not follow from the worths of the reward."

    def odd(self, reward: RewardModel) -> Iterator[str]:
        """Yield what is left unsaid."""
        if self.worths is None and reward.items is not None:
            yield "The items of the reward are not told."

    def _wrong_worths(self, known: list[Worth]) -> Iterator[str]:
        """Yield what differs from the worths in the reward; equal ones may change places."""
        told = self.worths or ()
        of_name = {name: numbers for name, *numbers in known}
        names = [name for name, *_ in told]
        if sorted(names) != sorted(of_name):
            yield "Other items are told than those of the reward."
        elif not all(_close(numbers[0], of_name[name][0]) for name, *numbers in told):
            yield "Another worth of an item is told than in the reward."
        elif not _descending([worth for _, worth, *_ in told if worth is not None]):
            yield "Another order of the items is told than in the reward."
        elif not all(all(map(_close, ends, of_name[name][1:])) for name, _, *ends in told):
            yield "Another interval of an item is told than the reward gives."

    def _follows(self, known: list[Worth]) -> bool:
        """Return whether every chance is that of the reference, all alike, tilted by the worth."""
        chances = dict(self.choices or ())
        if self.temperature is None or not known or len(self.choices or ()) != len(known):
            return False
        if set(chances) != {name for name, *_ in known}:
            return False
        # Of items without data the weight is 0, as is the mean of the others.
        worths = {name: worth or 0.0 for name, worth, *_ in known}
        best = max(worths.values())
        tilts = {
            name: math.exp((worth - best) / self.temperature) for name, worth in worths.items()
        }
        total = sum(tilts.values())
        exact = all(_close(chances[name], tilt / total) for name, tilt in tilts.items())
        return exact and _descending(list(chances.values()))


@dataclass(frozen=True, kw_only=True)
class StatedNumbers:
    """The numbers of ``result.json`` that cost something under one promise or another."""

    present: frozenset[_Path]  # where a value is that is not null
    private_texts: frozenset[_Path]  # where something was made of texts that nobody declared public
    items: StatedItems  # the worths of what everybody ranked

    @classmethod
    def read(cls, result: Mapping[str, Any]) -> StatedNumbers:
        """Return what a result says; TypeError where it is malformed."""
        known = _LIKELIHOOD | _BOUGHT | _NEVER | _OF_TEXTS | _COUNTS
        return cls(
            present=frozenset(path for path in known if _says(_at(result, path))),
            private_texts=frozenset(
                path
                for path in _TEXTS
                if _says(part := _at(result, path)) and _at(part, ("source",)) != "public"
            ),
            items=StatedItems.read(result),
        )

    def wrong(self, paid: Guarantee, *, bought: bool, reward: RewardModel) -> Iterator[str]:
        """Yield what a curator could not state without a release that is on no ledger."""
        # A sum of labels, once released, gives likelihood and slope for nothing, and no more. Of
        # whole records nothing is free, and where they may come and go not even their number is.
        records = paid.unit != "label" and "labels-only" not in paid.caveats
        dear = _NEVER | (set() if bought else _BOUGHT | (_LIKELIHOOD if records else set()))
        told = self.present & dear
        if told:
            yield f"Nothing on the ledger paid for {_names(told)}."
        texts = self.present & _OF_TEXTS | self.private_texts
        texts |= set() if reward.standard_errors is None else {(_REWARD, "standard_errors")}
        texts |= set() if reward.worth_intervals is None else {(_REWARD, "worth_intervals")}
        texts |= {(_REWARD, "unoffered")} if reward.unoffered else set()
        if records and texts:
            yield f"Nothing but private prompts and answers tells {_names(texts)}."
        counts = self.present & _COUNTS | (set() if reward.pairs is None else {(_REWARD, "pairs")})
        if paid.neighbors == ADD_OR_REMOVE_ONE and counts:
            yield f"How many records there are is private, and this tells: {_names(counts)}."
        yield from self.items.wrong(reward)


def _worth(row: Mapping[str, Any]) -> Worth:
    """Return one item; KeyError, TypeError or ValueError where it is malformed."""
    if not isinstance(row["name"], str):
        raise TypeError
    ends = (None, None) if row["interval"] is None else row["interval"]
    low, high = (None if end is None else _validate.number("interval", end) for end in ends)
    worth = None if row["worth"] is None else _validate.number("worth", row["worth"])
    return row["name"], worth, low, high


def _close(one: float | None, other: float | None) -> bool:
    """Return whether two numbers are equal but for rounding, or both are missing."""
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=_NUMBER_SLACK, abs_tol=_NUMBER_SLACK)


def _descending(values: list[float]) -> bool:
    """Return whether no value is above the one before it, but for rounding."""
    return all(low <= high + _NUMBER_SLACK for high, low in pairwise(values))


def _at(value: Any, path: _Path) -> Any:
    """Return what lies at a path; None where there is nothing, TypeError where there is no dict."""
    for step in path:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise TypeError
        value = value.get(step)
    return value


def _says(value: Any) -> bool:
    """Return whether a value says anything."""
    return any(map(_says, value)) if isinstance(value, list) else value is not None


def _names(paths: Iterable[_Path]) -> str:
    """Return places in a result as one text, in a fixed order."""
    return ", ".join(sorted(".".join(path) for path in paths))


_NOISE_OF = "estimate"
_FREE = "Metrics are said to be bought, and nothing on the ledger paid for them."
_HIDES_NO_RECORD = "Noise on labels or rankings hides no record."
_OTHER = "Another mechanism is described than the one that was paid for."


_Noise = StatedGaussian | StatedTilt | StatedRankedTilt
_READERS: Mapping[str, Callable[[Mapping[str, Any]], _Noise]] = {
    LABELS: StatedGaussian.read,
    RANKINGS: StatedGaussian.read,
    RECORDS: StatedTilt.read,
    RANKED: StatedRankedTilt.read,
}


@dataclass(frozen=True, kw_only=True)
class StatedMechanism:
    """What ``result.json`` says of the noise, of the metrics it bought, and of what it measured."""

    coin: StatedCoin  # the mechanism, as far as coins are described
    noise: _Noise | None  # the mechanism of a curator; None if it is another one
    metrics: StatedGaussian | None  # what bought metrics; None if nothing did
    numbers: StatedNumbers  # what the result measured

    @classmethod
    def read(cls, result: Mapping[str, Any]) -> StatedMechanism:
        """Return what a result says; KeyError, TypeError or ValueError where it is malformed."""
        bought = result.get("metrics")
        return cls(
            coin=StatedCoin.read(result),
            noise=_noise(result["mechanism"]),
            metrics=None if bought is None else StatedGaussian.read(bought),
            numbers=StatedNumbers.read(result),
        )


def _noise(told: Mapping[str, Any]) -> _Noise | None:
    """Return the mechanism of a curator; None for a name that is not known."""
    reader = _READERS.get(told["name"])
    return None if reader is None else reader(told)


@dataclass(frozen=True, kw_only=True)
class _Payment:
    """What a curator paid: the entry behind the reward, and the entries for metrics."""

    terms: Guarantee  # what all of them promise together
    entry: Row  # the spend that the released reward was drawn on
    others: tuple[Row, ...]  # every other spend that the reward names
    reward: RewardModel  # the reward in `reward.json`


def check_mechanism(
    stated: StatedMechanism, paid: Guarantee, rows: Iterable[Row], *, reward: RewardModel
) -> Finding:
    """Return whether what is described is what the entries paid for."""
    # A description that promises more noise or a smaller loss than was paid for refutes, and so do
    # metrics that nothing paid for, and a number that tells what the promise hides. A description
    # that only differs is a warning.
    # Source: docs/central.md, "Confidence under label privacy": what is free after one noised sum.
    rows = tuple(rows)
    spends = [row for row in rows if row.kind == "reserve"]
    if all(isinstance(event_of(row), RandomizedResponseEvent) for row in spends):
        found = check_coin(stated.coin, paid, rows)
        return found if stated.metrics is None else replace(found, outcome="refutes", summary=_FREE)
    drawn = [row for row in spends if row.release_id in _drawn(rows, reward.artifact)]
    if len(drawn) != 1 or type(event_of(drawn[0])) not in {GaussianEvent, ApproximateEvent}:
        summary = "The entries are of a kind that no mechanism is described by."
        return Finding(attack=_ATTACK, outcome="skipped", summary=summary)
    others = tuple(row for row in spends if row is not drawn[0])
    payment = _Payment(terms=paid, entry=drawn[0], others=others, reward=reward)
    return _judged(stated, payment)


def _drawn(rows: Iterable[Row], artifact: str) -> set[str]:
    """Return the names of the releases of which one gave this reward."""
    commits = (row for row in rows if row.kind == "commit")
    return {row.release_id for row in commits if json.loads(row.payload)["artifact"] == artifact}


def _judged(stated: StatedMechanism, payment: _Payment) -> Finding:
    """Return the finding about a curator's run."""
    terms, bought = payment.terms, bool(payment.others)
    wrong = [
        *_wrong_noise(stated, payment),
        *_wrong_metrics(stated.metrics, payment),
        *stated.numbers.wrong(terms, bought=bought, reward=payment.reward),
    ]
    odd = [] if wrong else [*_odd_noise(stated.noise, payment), *_odd_metrics(stated, payment)]
    odd += [] if wrong else stated.numbers.items.odd(payment.reward)
    return Finding(
        attack=_ATTACK,
        outcome="refutes" if wrong else "warning" if odd else "clear",
        summary=" ".join(dict.fromkeys([*wrong, *odd]))
        or "The mechanism that is described is the one that was paid for, and so is every number.",
        details={
            "paid": json.loads(payment.entry.parameters),
            "paid_for_metrics": [json.loads(row.parameters) for row in payment.others],
        },
    )


def _wrong_noise(stated: StatedMechanism, payment: _Payment) -> Iterator[str]:
    """Yield what promises more than the entry behind the reward paid for."""
    noise, event, terms = stated.noise, event_of(payment.entry), payment.terms
    fits = noise is not None and noise.name == payment.reward.method
    if stated.coin.noise != _NOISE_OF or not fits:
        yield _OTHER
    elif isinstance(noise, StatedGaussian) and isinstance(event, GaussianEvent):
        if terms.unit == "record":
            yield _HIDES_NO_RECORD
        yield from noise.wrong(event, terms.neighbors)
    elif isinstance(noise, (StatedTilt, StatedRankedTilt)) and isinstance(event, ApproximateEvent):
        if terms.unit != "record":
            yield f"A tilted objective hides records, and the promise is about a {terms.unit}."
        yield from noise.wrong(event, terms.neighbors, reward=payment.reward)
    else:
        yield _OTHER


def _odd_noise(noise: _Noise | None, payment: _Payment) -> Iterator[str]:
    """Yield what differs from the entry behind the reward without promising more."""
    event = event_of(payment.entry)
    if isinstance(noise, StatedGaussian) and isinstance(event, GaussianEvent):
        yield from noise.odd(event, payment.terms.neighbors)
        if noise.records_per_person != cap_of(payment.entry):
            yield "Another number of records of one person is described than was counted."
    elif isinstance(noise, (StatedTilt, StatedRankedTilt)) and isinstance(event, ApproximateEvent):
        yield from noise.odd(event)


def _wrong_metrics(told: StatedGaussian | None, payment: _Payment) -> Iterator[str]:
    """Yield what promises more than the entries for metrics paid for."""
    if told is None:
        return
    event = together(payment.others)
    if not payment.others:
        yield _FREE
    elif event is None or told.name not in METRICS:
        yield "Metrics are said to be bought by another mechanism than was paid for."
    else:
        if payment.terms.unit == "record" and told.name == LABELS:
            yield _HIDES_NO_RECORD
        yield from (f"Metrics: {text}" for text in told.wrong(event, payment.terms.neighbors))


def _odd_metrics(stated: StatedMechanism, payment: _Payment) -> Iterator[str]:
    """Yield what differs from the entries for metrics without promising more."""
    told, event = stated.metrics, together(payment.others)
    if told is None and payment.others:
        yield "An entry paid for something that is not described."
    if told is not None and event is not None:
        yield from (f"Metrics: {text}" for text in told.odd(event, payment.terms.neighbors))
