"""Does a result describe what its entries on the ledger paid for, and nothing that they did not?

A coin, the noise of a curator, what bought metrics, and every number that is stated: each is
compared with the events on the ledger. What promises more than was paid for refutes; what only
differs warns.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
from scipy.special import softmax

from sordino import _validate
from sordino._files import finite
from sordino.algorithms.planning import assess, tabular_world
from sordino.algorithms.policy_optimization import Run as TrainedPolicy
from sordino.auditing.findings import ATTACKS, Finding
from sordino.errors import UsageError
from sordino.mechanisms.label_sum import coefficients
from sordino.mechanisms.objective_perturbation import (
    ObjectivePerturbation,
    RankingObjectivePerturbation,
)
from sordino.policies.robust import confidence_ellipsoid_of
from sordino.policies.worst_case import PlausibleRewards
from sordino.preferences.features import CLASS
from sordino.privacy import accounting
from sordino.privacy.conversions import flip_probability
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    ApproximateEvent,
    GaussianEvent,
    Guarantee,
    NeighboringRelation,
    PoissonGaussianEvent,
    RandomizedResponseEvent,
    Unit,
    float_from_json,
)
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import Row, event_of
from sordino.privacy.persons import Rosters
from sordino.rewards.finite import describe_class
from sordino.rewards.label_release import ROUNDED_UP
from sordino.rewards.leaderboard import Board, BoardRelease, Votes
from sordino.rewards.model import RewardModel, Worth

_ATTACK = "mechanism"
_COIN_NOISE, _COIN, _DIE = "labels", "randomized-response", "randomized-choice"
_CURATOR_NOISE = "estimate"
_LABELS, _GAUSSIAN, _RANKED = "label-gaussian", "gaussian", "ranked-perturbation"
_FAIR = 0.5
_SLACK = 1e-9  # of rounding: a share of a person's promise is a quotient
_CALIBRATED = 1e-3  # how exactly a noise is found again from its settings, on any machine
_UNUSED = 1 + 1e-3  # what a calibration may leave unused of a loss
_OF_NOISE = 0.01  # of what one vote moves a sum in its own noise, which rounding moves, too
_NUMBER_SLACK = 1e-6  # of rounding, where one machine made a worth and another makes it again

_SAID: Final[Mapping[str, str]] = ATTACKS[_ATTACK]  # the sentences of what may differ, by name


@dataclass
class _Differences:
    """What a description says that its entries do not: what promises more, and what does not."""

    wrong: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)

    def refute(self, told: str = "", **wrong: object) -> None:
        """Take note of what promises more than was paid for, by the names of sentences."""
        self.wrong += [_SAID[name].replace("{told}", told) for name, so in wrong.items() if so]

    def warn(self, **odd: object) -> None:
        """Take note of what differs without promising more."""
        self.odd += [_SAID[name] for name, so in odd.items() if so]

    def finding(self, *, details: Mapping[str, object], clear: str | bool = True) -> Finding:
        """Return all of it in words; what only differs is not worth a word beside what refutes."""
        wrong = " ".join(dict.fromkeys(self.wrong))
        odd = "" if wrong else " ".join(dict.fromkeys(self.odd))
        return Finding.judged(_ATTACK, wrong=wrong, odd=odd, clear=clear, details=details)


def _check_coin(stated: StatedMechanism, paid: Guarantee, entries: Iterable[Row]) -> Finding:
    """Return whether the coin that is described is the one that the entries paid for."""
    # A file that arrived private was paid for elsewhere: its coin must then agree with itself and
    # with the promise that it arrived with.
    events = [event_of(row) for row in entries if row.kind == "reserve"]
    losses = [event.epsilon for event in events if isinstance(event, RandomizedResponseEvent)]
    if len(losses) < len(events):
        return Finding.skipped(_ATTACK, "The entries are of a kind that no coin is described by.")
    found, flips, loss = _Differences(), stated.flips, stated.loss
    sizes = {getattr(event, "categories", 2) for event in events}  # of a die, how many choices
    named = stated.name == _DIE or (stated.name == _COIN and sizes <= {2})
    found.refute(other_mechanism=stated.place != _COIN_NOISE or not named)
    others = max(sizes, default=stated.categories) - 1
    arrived = [paid.epsilon] if paid.unit == "label" else []
    exact = [flip_probability(each, others + 1) for each in losses]
    if loss is not None:
        found.refute(smaller_label=loss < max(losses or arrived, default=0.0) * (1 - _SLACK))
        # Entries that no person ids link may add up for one label, which the result then says.
        known = any(math.isclose(loss, one) for one in [*losses, *arrived])
        found.warn(larger_label=losses and not known)
        # Source: Warner 1965: at least 1/(1 + e^ε) of the labels; coins are rounded up from it.
        odds = others * math.exp(-loss)
        found.refute(few_flips=flips < odds / (1 + odds) * (1 - _SLACK))
    found.refute(more_flips=any(flips > one * (1 + _SLACK) for one in exact))
    found.warn(fewer_flips=exact and not any(math.isclose(flips, one) for one in exact))
    return found.finding(details={"paid_epsilon_per_label": sorted(set(losses))})


def _loss(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return name, ε and δ; KeyError, TypeError or ValueError where one is malformed."""
    return {
        "name": text_of(told["name"]),
        "epsilon": _validate.non_negative("epsilon", float_from_json(told["epsilon"])),
        "delta": _validate.failure_probability("delta", told["delta"]),
    }


@dataclass(frozen=True, kw_only=True)
class _StatedGaussian:
    """One release with Gaussian noise, as ``result.json`` describes it."""

    name: str  # the mechanism
    epsilon: float  # privacy loss that it is said to keep
    delta: float  # with this failure probability
    mu: float  # what one change moves it, in units of its noise
    # How many records of one person count; None if there is no limit.
    records_per_person: int | None

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> _StatedGaussian:
        """Return what a result says; KeyError, TypeError or ValueError where it is malformed."""
        most = told.get("records_per_person")
        if most is not None:
            most = _validate.integer("records_per_person", most, at_least=1)
        mu = _validate.non_negative("mu", told["mu"])
        return cls(**_loss(told), mu=mu, records_per_person=most)

    def compared(self, paid: GaussianEvent, relation: NeighboringRelation) -> _Differences:
        # The loss that the noise is shown to keep at the stated δ.
        least = accounting.composed_epsilon([(paid, 1)], neighbors=relation, delta=self.delta)
        found = _Differences()
        found.refute(louder=self.mu < paid.mu * (1 - _SLACK))
        found.refute(loss_below_noise=self.epsilon < least * (1 - _SLACK))
        found.warn(quieter=self.mu > paid.mu * (1 + _SLACK))
        found.warn(loss_above_noise=self.epsilon > least * _UNUSED)
        return found


@dataclass(frozen=True, kw_only=True)
class _StatedObjective:
    """A minimizer of a perturbed objective, on pairs or on rankings."""

    name: str  # the mechanism
    epsilon: float  # privacy loss that it is said to keep
    delta: float  # with this failure probability
    bound: float  # norm to which every record, or every candidate, was clipped
    ridge: float  # strength of the quadratic penalty
    standard_deviation: float  # noise of every coordinate of the linear term
    # On pairs, whether a second moment was released with it, and what one record moves that, in
    # units of its noise.
    moment: tuple[bool, float] | None
    # On rankings, the most candidates of one ballot, and the number of features.
    sizes: tuple[int, int] | None

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> _StatedObjective:
        """Return what a result says; KeyError, TypeError or ValueError where it is malformed."""
        names = ("bound", "ridge", "standard_deviation")
        given = _loss(told) | {name: _validate.positive(name, told[name]) for name in names}
        if given["name"] == _RANKED:
            candidates = _validate.integer("candidates", told["candidates"], at_least=2)
            dimension = _validate.integer("dimension", told["dimension"], at_least=1)
            return cls(**given, moment=None, sizes=(candidates, dimension))
        if not isinstance(told["second_moment"], bool):
            raise TypeError
        mu = _validate.non_negative("second_moment_mu", told["second_moment_mu"])
        return cls(**given, moment=(told["second_moment"], mu), sizes=None)

    def compared(
        self, paid: ApproximateEvent, relation: NeighboringRelation, *, reward: RewardModel
    ) -> _Differences:
        """Return what differs from what was paid for, and from the reward that was made of it."""
        found = _Differences()
        sizes = (self.epsilon, paid.epsilon), (self.delta, paid.delta)
        found.refute(smaller_loss=any(told < size * (1 - _SLACK) for told, size in sizes))
        found.warn(larger_loss=any(told > size * (1 + _SLACK) for told, size in sizes))
        found.refute(other_ridge=not math.isclose(self.ridge, reward.ridge, rel_tol=_SLACK))
        if self.moment is not None:
            held, (stated, mu) = reward.moment, self.moment
            other = stated != (held is not None) or (mu > 0 and not stated)
            found.refute(other_moment=other)
            if held is not None and not other:
                made = held.mechanism
                found.refute(louder_moment=mu < made.mu(REPLACE_SPECIAL) * (1 - _SLACK))
                found.refute(other_bound=not math.isclose(self.bound, made.bound, rel_tol=_SLACK))
        if self.sizes is not None:
            candidates, dimension = self.sizes
            found.refute(other_features=dimension != len(reward.weights))
            found.refute(few_candidates=candidates < len(reward.items or ()))
        # The noise that keeps what was paid for with these settings; none suffices with some.
        needed, given = math.inf, {"delta": paid.delta, "neighbors": relation, "ridge": self.ridge}
        kind: Callable[..., ObjectivePerturbation | RankingObjectivePerturbation]
        if self.moment is not None:
            kind, given["second_moment_mu"] = ObjectivePerturbation, self.moment[1]
        if self.sizes is not None:
            kind = RankingObjectivePerturbation
            given |= {"candidates": self.sizes[0], "dimension": self.sizes[1]}
        with suppress(UsageError):
            needed = kind(paid.epsilon, bound=self.bound, **given).standard_deviation
        found.refute(too_quiet=self.standard_deviation < needed * (1 - _CALIBRATED))
        found.refute(louder=self.standard_deviation > needed * (1 + _CALIBRATED))
        return found


def together(rows: Iterable[Row]) -> GaussianEvent | None:
    """The one Gaussian release that several are as good as; None if one is of another kind."""
    # Source: Dong, Roth, Su (2022), Corollary 3.3: the squares of μ add up.
    events = [(event_of(row), row.count) for row in rows]
    squares = [count * event.mu**2 for event, count in events if isinstance(event, GaussianEvent)]
    return GaussianEvent(math.sqrt(sum(squares))) if len(squares) == len(events) else None


def text_of(value: object) -> str:
    """Return a text; TypeError if it is anything else."""
    if not isinstance(value, str):
        raise TypeError
    return value


_REWARD = "reward.json"

# The numbers that cost something, by where they stand in the result.
_LIKELIHOOD = {f"reward.negative_log_likelihood{end}" for end in ("", "_standard_error")}
_BOUGHT = {
    *("reward.accuracy", "reward.accuracy_standard_error"),
    *("policy.win_rate", "policy.win_rate_interval"),
}
_NEVER = {"calibration"}
_OF_TEXTS = {
    *("seconds", "utility", "policy.kl", "policy.pessimism", "reward.weight_standard_error"),
    *("reward.calibration_slope", "reward.calibration_slope_standard_error"),
    *("data.dropped", "data.capped", "data.persons"),
}
_TEXTS = {"decisive", "examples"}
_COUNTS = {"data.pairs", "data.ballots", "metrics.pairs"}


@dataclass(frozen=True, kw_only=True)
class _StatedNumbers:
    """The numbers of ``result.json`` that cost something under one promise or another."""

    present: frozenset[str]  # where a value is that is not null
    private_texts: frozenset[str]  # where something was made of texts that nobody declared public
    # Of the items that everybody ranked name, worth and ends of the interval, if it has one, the
    # best first; None where it says nothing.
    worths: tuple[Worth, ...] | None
    # Name and chance in a Gibbs policy, the best first; those of another one do not follow from
    # worths.
    choices: tuple[tuple[str, float], ...] | None
    count: int | None  # how many items there are
    temperature: float | None  # of the policy

    @classmethod
    def read(cls, result: Mapping[str, Any]) -> _StatedNumbers:
        """Return what a result says; KeyError, TypeError or ValueError where it is malformed."""
        known = _LIKELIHOOD | _BOUGHT | _NEVER | _OF_TEXTS | _COUNTS
        items, count = result.get("items"), _at(result, "data.items")
        plain = _at(result, "policy.confidence") is None
        rows = _at(result, "policy.choices") if plain else None
        choices, temperature = None, None
        if rows is not None:
            choices = tuple(
                (str(row["name"]), _validate.number("probability", row["probability"]))
                for row in rows
            )
            if (temperature := result["policy"]["temperature"]) is not None:
                temperature = _validate.positive("temperature", temperature)
        return cls(
            present=frozenset(path for path in known if _says(_at(result, path))),
            private_texts=frozenset(
                path
                for path in _TEXTS
                if _says(part := _at(result, path)) and _at(part, "source") != "public"
            ),
            worths=None if items is None else tuple(map(_worth, items)),
            choices=choices,
            count=None if count is None else _validate.integer("items", count, at_least=0),
            temperature=temperature,
        )

    def _compare_items(self, found: _Differences, reward: RewardModel) -> None:
        """Take note of what the reward does not say of its items, and of what is left unsaid."""
        known: list[Worth] = [] if reward.items is None else reward.worths()
        found.refute(other_count=self.count not in (None, len(known)))
        if self.worths is not None:
            # Equal worths may change places.
            of_name = {name: numbers for name, *numbers in known}
            told = self.worths
            if sorted(name for name, *_ in told) != sorted(of_name):
                found.refute(other_items=True)
            elif not all(_alike(numbers[0], of_name[name][0]) for name, *numbers in told):
                found.refute(other_worth=True)
            elif not _descending([worth for _, worth, *_ in told if worth is not None]):
                found.refute(other_order=True)
            else:
                ends_differ = not all(_alike(ends, of_name[name][1:]) for name, _, *ends in told)
                found.refute(other_interval=ends_differ)
        if self.choices is not None:
            # Every chance is that of the reference, all alike, tilted by the worth. Of items
            # without data the weight is 0, as is the mean of the others.
            chances, worths = dict(self.choices), {name: worth or 0.0 for name, worth, *_ in known}
            follows = self.temperature is not None and chances.keys() == worths.keys()
            follows = follows and len(self.choices) == len(known) > 0
            if self.temperature is not None and follows:
                tilts = [worths[name] / self.temperature for name in chances]
                follows = _alike([*chances.values()], softmax(tilts).tolist())
            found.refute(other_choices=not (follows and _descending([*chances.values()])))
        found.warn(untold_items=self.worths is None and reward.items is not None)

    def compared(self, paid: Guarantee, *, bought: bool, reward: RewardModel) -> _Differences:
        """Return what a curator could not state without a release that is on no ledger."""
        # A sum of labels, once released, gives likelihood and slope for nothing, and no more. Of
        # whole records nothing is free, and where they may come and go not even their number is.
        found = _Differences()
        records = paid.hides_texts
        dear = _NEVER | (set() if bought else _BOUGHT | (_LIKELIHOOD if records else set()))
        unpaid = self.present & dear
        found.refute(", ".join(sorted(unpaid)), unpaid_number=unpaid)
        texts = set(self.present & _OF_TEXTS | self.private_texts)
        texts |= set() if reward.standard_errors is None else {f"{_REWARD}.standard_errors"}
        texts |= set() if reward.worth_intervals is None else {f"{_REWARD}.worth_intervals"}
        texts |= {f"{_REWARD}.unoffered"} if reward.unoffered else set()
        found.refute(", ".join(sorted(texts)), private_texts=records and texts)
        counts = self.present & _COUNTS | (set() if reward.pairs is None else {f"{_REWARD}.pairs"})
        if paid.neighbors == ADD_OR_REMOVE_ONE and counts:
            found.refute(", ".join(sorted(counts)), private_count=True)
        self._compare_items(found, reward)
        return found


def _worth(row: Mapping[str, Any]) -> Worth:
    """Return one item; KeyError, TypeError or ValueError where it is malformed."""
    ends = (None, None) if row["interval"] is None else row["interval"]
    low, high = (None if end is None else _validate.number("interval", end) for end in ends)
    worth = None if row["worth"] is None else _validate.number("worth", row["worth"])
    return text_of(row["name"]), worth, low, high


def _descending(values: list[float]) -> bool:
    """Return whether no value is above the one before it, but for rounding."""
    return all(low <= high + _NUMBER_SLACK for high, low in pairwise(values))


def _at(value: object, path: str) -> Any:
    """Return what lies at a path; None where there is nothing, TypeError where there is no dict."""
    for step in path.split("."):
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise TypeError
        value = value.get(step)
    return value


def _says(value: object) -> bool:
    return any(map(_says, value)) if isinstance(value, list) else value is not None


_Noise = _StatedGaussian | _StatedObjective
_KINDS: Mapping[str, type[_Noise]] = {
    **dict.fromkeys((_LABELS, _GAUSSIAN, "ranking-gaussian", "ballot-gaussian"), _StatedGaussian),
    **dict.fromkeys(("objective-perturbation", _RANKED), _StatedObjective),
}


@dataclass(frozen=True, kw_only=True)
class StatedMechanism:
    """What ``result.json`` says of the noise, of the metrics it bought, and of what it measured."""

    place: str  # where the noise is
    name: str  # the mechanism
    flips: float  # share of labels that it flips, in [0, 1/2], or of choices; 0 if it flips none
    categories: int  # of a die, how many choices
    loss: float | None  # privacy loss of one label; None where an early version left it out
    noise: _Noise | None  # the mechanism of a curator; None if it is another one
    metrics: _StatedGaussian | None  # what bought metrics; None if nothing did
    numbers: _StatedNumbers  # what the result measured
    board: object = None  # what it shows of a leaderboard
    result: Mapping[str, Any] = field(default_factory=dict)  # as it was read
    confidence: float | None = None  # of a policy that is pessimistic

    @classmethod
    def read(cls, result: Mapping[str, Any]) -> StatedMechanism:
        """Return what a result says; KeyError, TypeError or ValueError where it is malformed."""
        bought, told = result.get("metrics"), result["mechanism"]
        name, loss = text_of(told["name"]), told.get("epsilon_per_label")
        flips = told["flip_probability"] if name == _COIN else told.get("flip_probability", 0.0)
        flips = _validate.non_negative("flip_probability", flips)
        if flips > (1 if name == _DIE else _FAIR):
            raise ValueError
        if loss is not None:
            loss = _validate.non_negative("epsilon_per_label", float_from_json(loss))
        kind, level = _KINDS.get(name), _at(result, "policy.confidence")
        return cls(
            place=text_of(result["noise"]),
            name=name,
            flips=flips,
            categories=_validate.integer("categories", told.get("categories", 2), at_least=2),
            loss=loss,
            noise=None if kind is None else kind.read(told),
            metrics=None if bought is None else _StatedGaussian.read(bought),
            numbers=_StatedNumbers.read(result),
            board=result.get("leaderboard"),
            result=result,
            confidence=None if level is None else _validate.failure_probability("level", level),
        )


def check_board(
    stated: StatedMechanism, paid: Guarantee, rows: Iterable[Row], rosters: Rosters, *, board: Board
) -> Finding:
    """Return whether a board follows from what the entries paid for, and tells no more."""
    # Everything that is shown is made anew from what was released, and the noise of that is held
    # against the entry: it must hide every vote just as far as was paid for.
    rows, newest = tuple(rows), set(board.releases[-1].release_ids)
    behind = [row for row in rows if row.release_id in newest]
    events = [event_of(row) for row in behind if row.kind == "reserve"]
    mus = [event.mu for event in events if isinstance(event, GaussianEvent)]
    if stated.place == _COIN_NOISE:
        found = _Differences()
        came = [json.loads(row.payload)["promise"] for row in behind if row.kind == "receive"]
        newest_paid = replace(paid, epsilon=came[0]["epsilon"]) if len(came) == 1 else paid
        coin = _check_coin(stated, newest_paid, behind)
        found.wrong += [coin.summary] if coin.outcome == "refutes" else []
        k, first = stated.categories, stated.name == _DIE
        widening = 1 / (1 - stated.flips * k / (k - 1)) ** 2
        held = board.releases[-1].votes.values()
        same = all(math.isclose(one.inflation, widening) for one in held)
        sets = [one.ballots.members.sum(axis=1) for one in held if one.first and one.ballots]
        same &= all(one.first == first for one in held) and all((each == k).all() for each in sets)
        found.refute(other_mechanism=not same)
    elif len(events) == len(mus) > 0 and (len(mus) == 1 or board.updates):
        bought = {row.release_id: event_of(row) for row in rows if row.kind == "reserve"}

        def paid_for(one: BoardRelease) -> float:
            return min(
                (getattr(bought.get(name), "mu", 0.0) for name in one.release_ids), default=0
            )

        # Of planned updates all have the noise of the first, in which nobody came back: later on
        # who comes back pays more than that, and old votes less.
        event = GaussianEvent(paid_for(board.releases[0 if board.updates else -1]))
        votes, found = board.releases[-1].votes, _Differences([_SAID["other_mechanism"]])
        if isinstance(stated.noise, _StatedGaussian) and stated.place == _CURATOR_NOISE:
            found = stated.noise.compared(event, paid.neighbors)
        if len(votes) == 1 and paid.unit == "label" and not board.updates:
            moved = max(map(_moved, votes.values()))
            found.refute(other_sum=not math.isclose(moved, event.mu, rel_tol=_OF_NOISE))
        for one in board.releases:  # one vote is hidden at least as far as was paid for
            most = (event.mu if board.updates else paid_for(one)) * (1 + _OF_NOISE)
            found.refute(other_sum=any(_moved(votes) > most for votes in one.votes.values()))
        unpaid = board.updates and not _all_paid(board, paid.unit, rows, rosters)
        found.refute(unpaid_votes=unpaid)
    else:
        return Finding.skipped(_ATTACK, "The entries are of a kind that no board is made of.")
    every = [votes for one in board.releases for votes in one.votes.values()]
    records = paid.unit == "record"
    choices = stated.place == _COIN_NOISE  # of which all that was offered is a public question
    ballots = [one for one in every if records or (one.ballots and not (choices and one.first))]
    known = any(votes.count_variance == 0 for votes in ballots)
    complete = not records and "named-offered" in paid.caveats
    found.refute(private_meetings=known and not complete)
    told = stated.numbers.present & (_COUNTS if paid.neighbors == ADD_OR_REMOVE_ONE else set())
    found.refute(", ".join(sorted(told)), private_count=told)
    found.refute(other_board=not _alike(stated.board, finite(board.told)))
    return found.finding(
        clear="board",
        details={"paid": [json.loads(row.parameters) for row in rows if row.kind == "reserve"]},
    )


_FREE_COUNTS: Final = 1.5
"""How much less noise than its order the number of a ballot's comparisons needs."""


def _all_paid(board: Board, unit: Unit, rows: Sequence[Row], rosters: Rosters) -> bool:
    """Return whether votes of every update paid for being in all later ones, by their weight."""
    said = {row.release_id: (row, json.loads(row.payload)) for row in rows if row.kind == "reserve"}
    new: list[str] = []  # what the votes were asked that were new in each update
    weeks: dict[int, list[int]] = {}  # in which updates votes of each person were new
    whole = 0.0  # what new votes pay: what all paid in the first update
    for number, one in enumerate(board.releases):
        mine = [
            (getattr(event_of(row), "mu", 0.0), told)
            for row, told in map(said.__getitem__, one.release_ids)
        ]
        whole = whole or max((mu for mu, _ in mine), default=0.0)
        weights = coefficients(number + 1)
        if unit == "label":
            mine.sort(key=lambda paid: -paid[0])
            new.append(mine[0][1].get("asked", "") if mine else "")
            if [told.get("asked", "") for _, told in mine] != new[::-1]:
                return False
            if any(mu < whole * w * (1 - _SLACK) for (mu, _), w in zip(mine, weights, strict=True)):
                return False
            continue
        paid: dict[int, float] = {}
        for mu, told in mine:
            (roster,) = rosters.of([told.get("persons", "")])
            paid |= dict.fromkeys(roster.digests.tolist(), mu / whole)
        for person in {*weeks, *paid}:
            old, share = (
                float(sum(weights[number - at] for at in weeks.get(person, []))),
                paid.get(person, 0.0),
            )
            if share >= (old + 1) * (1 - _SLACK):
                weeks.setdefault(person, []).append(number)
            elif not old * (1 - _SLACK) <= share <= old * ROUNDED_UP * (1 + _SLACK):
                return False  # neither what somebody pays who does not come again, nor who does
    return True


def _moved(votes: Votes) -> float:
    """Return how far the vote that moves the sum most does so, in units of the noise."""
    if (ballots := votes.ballots) is not None:  # an order and its reverse
        sizes, least = ballots.members.sum(axis=1), np.linalg.eigvalsh(votes.noise)[0]
        most = (ballots.weights * np.sqrt(sizes * (sizes**2 - 1) / 3)).max(initial=0.0)
        counted = votes.count_variance * _FREE_COUNTS
        hides = least > 0 and (counted == 0 or counted >= least)
        return float(most / math.sqrt(least)) if hides else math.inf
    d, records = votes.rows.shape[1], votes.count_variance > 0
    rows = votes.rows.toarray() if records else votes.rows[votes.counts > 0].toarray()
    noise = votes.noise[:d, :d]
    turned = rows @ np.linalg.pinv(noise, hermitian=True)
    squares = np.einsum("ij,ij->i", turned, rows)
    squares[np.abs(turned @ noise - rows).max(axis=1, initial=0.0) > _NUMBER_SLACK] = math.inf
    if records:  # half a row, or a tie as long, and the mark of who met
        squares = squares / 4 + 1 / votes.count_variance
    elif votes.ties is not None:  # or half a row, and a tie
        tie = votes.noise[d, d]
        squares = np.maximum(squares, squares / 4 + (1 / tie if tie > 0 else math.inf))
    return math.sqrt(float(squares.max(initial=0.0)))


def _alike(one: object, other: object) -> bool:
    """Return whether two JSON values are the same, numbers but for rounding."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, float) and isinstance(other, float | int):
        return math.isclose(one, other, rel_tol=_NUMBER_SLACK, abs_tol=_NUMBER_SLACK)
    return one == other


def check_policy(
    result: Mapping[str, Any], paid: Guarantee, ledger: Ledger, trained: TrainedPolicy
) -> Finding:
    """Return whether a policy is what the updates make that the entries of its batches paid for."""
    # Every update stands in the policy's file, and the ledger has its digest: a policy that does
    # not follow from them, or from all of them, was made of something else.
    found, told = _Differences(), result["trained"]
    scopes = trained.slots.scopes(trained.run)
    spends = {row.release_id: row for row in ledger.spends if row.scope in scopes}
    drawn = {row.release_id: row.payload for row in ledger.rows if row.kind == "commit"}
    found.refute(unnamed_batch=set(spends) != {*trained.release_ids})
    found.refute(other_updates=len(trained.steps) != len(scopes))
    for (name, made), scope in zip(trained.steps, scopes, strict=False):
        entry, seal = spends.get(name), json.loads(drawn.get(name, '{"artifact": ""}'))
        paid_for = entry is not None and entry.scope == scope and seal["artifact"] == made.digest
        found.refute(unpaid_update=not paid_for)
    found.refute(other_policy=not _alike(told, finite(trained.told)))
    least = max(
        accounting.composed_epsilon(
            [(event_of(row), row.count)], neighbors=paid.neighbors, delta=paid.delta
        )
        for row in spends.values()
    )
    mechanism = result["mechanism"] | _loss(result["mechanism"])
    smaller = mechanism["epsilon"] < least * (1 - _SLACK)
    smaller |= mechanism["delta"] < paid.delta * (1 - _SLACK)
    found.refute(smaller_batch=smaller)
    named = (mechanism["name"], mechanism["oracle"] is None)
    kinds = trained.settings["update"], trained.settings["update"] == "pg"
    found.refute(other_mechanism=named != kinds)
    found.refute(told_truth=told["recorded"] and _says(result["truth"]))
    details = {"batches": len(scopes), "paid_epsilon_per_batch": least}
    return found.finding(clear="policy", details=details)


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
        found, scores, result = _Differences(), reward.statistic, stated.result
        among, told = finite(describe_class(reward, stated.confidence)), result.get("online")
        found.refute(other_class=not _alike(result.get("class"), among))
        if reward.method == CLASS and scores is not None:
            found.refute(unlikely=reward.weights @ scores < scores.max())
        of_people = told and told["world"] is None and _says(result.get("truth"))
        other = told and (of_people or not _follows_rounds(told, spends, reward))
        found.refute(other_rounds=other, free_metrics=stated.metrics is not None)
        summary, coin = " ".join(found.wrong), _check_coin(stated, paid, rows)
        return replace(coin, outcome="refutes", summary=summary) if summary else coin
    # The entry behind the reward is the one that gave its artifact; all others are for metrics.
    commits = (row for row in rows if row.kind == "commit")
    drawn = {
        row.release_id for row in commits if json.loads(row.payload)["artifact"] == reward.artifact
    }
    behind = [row for row in spends if row.release_id in drawn]
    if len(behind) != 1 or type(event_of(behind[0])) not in {GaussianEvent, ApproximateEvent}:
        summary = "The entries are of a kind that no mechanism is described by."
        return Finding.skipped(_ATTACK, summary)
    entry = behind[0]
    others = [row for row in spends if row is not entry]
    parts = (
        _noise_differences(stated, paid, entry, reward),
        _metrics_differences(stated.metrics, paid, others),
        stated.numbers.compared(paid, bought=bool(others), reward=reward),
    )
    found = _Differences(
        [text for part in parts for text in part.wrong],
        [text for part in parts for text in part.odd],
    )
    return found.finding(
        clear="numbers",
        details={
            "paid": json.loads(entry.parameters),
            "paid_for_metrics": [json.loads(row.parameters) for row in others],
        },
    )


def _follows_rounds(told: Mapping[str, Any], spends: Sequence[Row], reward: RewardModel) -> bool:
    """Return whether rounds are as many as an entry says, and a heuristic is called one."""
    # Recorded answers were paid for before any round: their entry knows of none.
    noted = [(json.loads(row.payload).get("details") or {}).get("rounds") for row in spends]
    paid = all(rounds in (None, told.get("rounds")) for rounds in noted)
    with suppress(KeyError, TypeError):
        less = told["scale"] < 1 or told["bonus_bound"] < told["largest_error"]
        proved = not less or told["exploration"] not in ("optimistic", "symmetric")
        within = (reward.pairs or 0) == told["asked"] <= told["rounds"]
        return paid and within and told["heuristic"] is not proved
    return False


def _noise_differences(
    stated: StatedMechanism, terms: Guarantee, entry: Row, reward: RewardModel
) -> _Differences:
    """Return what differs from the entry behind the reward."""
    noise, event = stated.noise, event_of(entry)
    found, records = _Differences(), terms.unit == "record"
    alike = noise is not None and noise.name == reward.method and stated.place == _CURATOR_NOISE
    if alike and isinstance(noise, _StatedGaussian) and isinstance(event, GaussianEvent):
        found.refute(hides_no_record=records)
        more = noise.compared(event, terms.neighbors)
        cap = (json.loads(entry.payload).get("details") or {}).get("cap")
        more.warn(other_cap=noise.records_per_person != cap)
    elif alike and isinstance(noise, _StatedObjective) and isinstance(event, ApproximateEvent):
        found.refute(terms.unit, hides_records=not records)
        more = noise.compared(event, terms.neighbors, reward=reward)
    else:
        more = _Differences([_SAID["other_mechanism"]])
    return _Differences(found.wrong + more.wrong, more.odd)


def _metrics_differences(
    told: _StatedGaussian | None, terms: Guarantee, others: list[Row]
) -> _Differences:
    """Return what differs from the entries that paid for metrics."""
    found, event = _Differences(), together(others)
    found.warn(undescribed=told is None and others)
    found.refute(free_metrics=told is not None and not others)
    if told is None or not others:
        return found
    if event is None or told.name not in {_LABELS, _GAUSSIAN}:
        return _Differences([_SAID["other_metrics"]])
    found.refute(hides_no_record=terms.unit == "record" and told.name == _LABELS)
    more = told.compared(event, terms.neighbors)
    wrong, odd = ([f"Metrics: {text}" for text in texts] for texts in (more.wrong, more.odd))
    return _Differences(found.wrong + wrong, odd)


def check_plan(
    found: Finding, told: Mapping[str, Any] | None, plan: Mapping[str, Any], reward: RewardModel
) -> Finding:
    """Return what was found of a reward, refuted too if a plan is not worth what is told of it."""
    if told is None:
        return replace(found, outcome="refutes", summary=_SAID["untold_plan"])
    # The policy is walked through its world once more, and held against the worst reward; which
    # policy is best is not asked again: the reward that bounds all others is checked, and does it.
    tables, known = plan["world"], confidence_ellipsoid_of(reward)
    terms = {name: told[name] for name in ("confidence", "radius_scale")}
    plausible = PlausibleRewards.of(known, **terms)
    sizes = {name: tables[name] for name in ("horizon", "features", "initial")}
    world = tabular_world(tables["transitions"], d=len(reward.weights), **sizes)
    policy, theta = world.policy(plan["policy"]), np.asarray(plan["theta"], dtype=np.float64)
    offset = world.total(world.policy(tables.get("reference")))
    again = assess(plausible, world, policy, theta=theta, offset=offset)
    again["suboptimality"] = again.pop("certificate")
    again["gap"] = max(again["upper"] - again["value"], 0.0)
    names = ("value", "upper", "gap", "suboptimality")
    same = _alike([told[name] for name in names], [again[name] for name in names])
    shared = (*names[:3], *terms, "answers_needed", "said")  # with the plan's own file
    own = {name: told[name] for name in shared}
    own |= {"certificate": told["suboptimality"], "guarantee": finite(reward.guarantee.to_dict())}
    same &= _alike({name: plan[name] for name in own}, own)
    same &= (plan["label"] == "valid") is (told["radius_scale"] >= 1)
    gap = theta - plausible.center
    slack = 1 + _NUMBER_SLACK
    inside = math.sqrt(float(gap @ plausible.metric @ gap)) <= plausible.radius * slack + _SLACK
    inside &= plausible.ball is None or float(np.linalg.norm(theta)) <= plausible.ball * slack
    sized = (told["states"], told["actions"], told["horizon"])
    same &= sized == (world.states, world.actions, world.horizon)
    same &= told["vacuous"] == (told["value"] <= told["wanted_gap"]) and told["ball"] == reward.ball
    if same and inside:
        return found
    told_before = f"{found.summary} " if found.outcome == "refutes" else ""
    return replace(found, outcome="refutes", summary=told_before + _SAID["other_plan"])


def check_training(stated: object, paid: Guarantee, entries: Iterable[Row]) -> Finding:
    """Return whether the noise of gradients that a checkpoint describes was paid for."""
    # Whoever trained on randomized answers, or a reward, describes none. A run that was killed paid
    # for some steps twice, and one that goes on has not paid for all, so nobody counts steps.
    if stated is None:
        return Finding.judged(_ATTACK, clear="no_gradients")
    events, found = [event_of(row) for row in entries if row.kind == "reserve"], _Differences()
    told = stated if isinstance(stated, Mapping) else {}
    noise, chance = told.get("noise_multiplier"), told.get("sampling_probability", 1.0)
    if not (isinstance(noise, float) and isinstance(chance, float | int)):
        return Finding.judged(_ATTACK, wrong="no_number")
    moved = 2 if paid.neighbors == REPLACE_ONE else 1  # in C, by one change
    for event in events:
        least, drawn = math.inf, 1.0
        if isinstance(event, PoissonGaussianEvent):
            least, drawn = event.noise_multiplier, event.sampling_probability
        elif isinstance(event, GaussianEvent):
            least = moved / event.mu
        louder, smaller = noise > least * (1 + _NUMBER_SLACK), chance < drawn * (1 - _SLACK)
        found.refute(other_mechanism=math.isinf(least), louder=louder, smaller_chance=smaller)
    return found.finding(clear="gradients", details={"entries": len(events)})
