"""Which numbers does a result state, and what had to be paid before they could be?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sordino import _validate
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, Guarantee
from sordino.rewards.model import RewardModel
from sordino.rewards.worths import Worth

__all__ = ["StatedItems", "StatedNumbers"]

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
_SLACK = 1e-6  # of rounding, where one machine made a worth and another makes it again


@dataclass(frozen=True, kw_only=True)
class StatedItems:
    """What ``result.json`` says of the items that everybody ranked; None where it says nothing.

    Attributes:
        worths: Name, worth and ends of the interval, if it has one, the best first.
        choices: Name and chance in a Gibbs policy, the best first; those of another one do not
            follow from worths.
        count: How many items there are.
        temperature: Of the policy.
    """

    worths: tuple[Worth, ...] | None
    choices: tuple[tuple[str, float], ...] | None
    count: int | None
    temperature: float | None

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
    """The numbers of ``result.json`` that cost something under one promise or another.

    Attributes:
        present: Where a value is that is not null.
        private_texts: Where something was made of texts that nobody declared public.
        items: The worths of what everybody ranked.
    """

    present: frozenset[_Path]
    private_texts: frozenset[_Path]
    items: StatedItems

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
        """Yield what a curator could not state without a release that is on no ledger.

        A sum of labels, once released, gives likelihood and slope for nothing, and no more. Of
        whole records nothing is free, and where they may come and go not even their number is.

        Args:
            paid: What the entries promise together.
            bought: Whether an entry paid for metrics.
            reward: The reward in ``reward.json``.
        """
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
    return math.isclose(one, other, rel_tol=_SLACK, abs_tol=_SLACK)


def _descending(values: list[float]) -> bool:
    """Return whether no value is above the one before it, but for rounding."""
    return all(low <= high + _SLACK for high, low in pairwise(values))


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
