"""Does a result describe the coin that its entries on the ledger paid for?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sordino import _validate
from sordino.auditing.findings import Finding
from sordino.privacy.chain import Row
from sordino.privacy.coins import flip_probability
from sordino.privacy.events import RandomizedResponseEvent
from sordino.privacy.guarantee import Guarantee, float_from_json
from sordino.privacy.spend import event_of

__all__ = ["StatedCoin", "check_coin"]

_ATTACK = "mechanism"
_WAY, _NAME = "local", "randomized-response"
_FAIR = 0.5
_SLACK = 1e-9  # of rounding: a share of a person's promise is a quotient


@dataclass(frozen=True, kw_only=True)
class StatedCoin:
    """What ``result.json`` says of its mechanism.

    Attributes:
        way: How the labels were protected.
        name: The mechanism.
        flips: Share of labels that it flips, in [0, 1/2]; 0 for a mechanism that flips none.
        loss: Privacy loss of one label; None where an early version left it out.
    """

    way: str
    name: str
    flips: float
    loss: float | None

    @classmethod
    def read(cls, result: Mapping[str, Any]) -> StatedCoin:
        """Return what a result says; KeyError, TypeError or ValueError where it is malformed."""
        told, way = result["mechanism"], result["way"]
        name, loss = told["name"], told.get("epsilon_per_label")
        if not isinstance(way, str) or not isinstance(name, str):
            raise TypeError
        flips = told["flip_probability"] if name == _NAME else told.get("flip_probability", 0.0)
        flips = _validate.non_negative("flip_probability", flips)
        if flips > _FAIR:
            raise ValueError
        if loss is not None:
            loss = _validate.non_negative("epsilon_per_label", float_from_json(loss))
        return cls(way=way, name=name, flips=flips, loss=loss)


def check_coin(stated: StatedCoin, paid: Guarantee, entries: Iterable[Row]) -> Finding:
    """Return whether the coin that is described is the one that the entries paid for.

    A description that promises more noise than was paid for refutes; one that only differs is a
    warning. A file that arrived private was paid for elsewhere: its coin must then agree with
    itself and with the promise that it arrived with.

    Args:
        stated: What ``result.json`` says.
        paid: What the entries promise together.
        entries: The rows of the ledger that the reward names: spends, and files that arrived.
    """
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
    if (stated.way, stated.name) != (_WAY, _NAME):
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
    """Return the share of labels that must be flipped for a loss; coins are rounded up from it.

    Source:
        Warner 1965: 1/(1 + e^ε).
    """
    odds = math.exp(-loss)
    return odds / (1 + odds)


def _arrived(paid: Guarantee) -> float:
    """Return the least loss of one label in a file that arrived with this promise."""
    return paid.epsilon if paid.unit == "label" else 0.0


def _other_numbers(stated: StatedCoin, losses: list[float], paid: Guarantee) -> Iterator[str]:
    """Yield what differs from the coin that was paid for without promising more.

    Entries that no person ids link may add up for one label, which the result then says.
    """
    known = [*losses, *([paid.epsilon] if paid.unit == "label" else [])]
    told = stated.loss
    if told is not None and losses and not any(math.isclose(told, one) for one in known):
        yield "A larger loss of one label is described than was paid for."
    exact = [flip_probability(loss) for loss in losses]
    if exact and not any(math.isclose(stated.flips, one) for one in exact):
        yield "Fewer labels are said to be flipped than the coin that was paid for flips."
