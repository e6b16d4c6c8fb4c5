"""Does a result describe what its entries on the ledger paid for, and nothing that they did not?"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sordino.auditing.findings import Finding
from sordino.auditing.runs.coins import StatedCoin, check_coin
from sordino.auditing.runs.numbers import StatedNumbers
from sordino.auditing.runs.perturbations import (
    LABELS,
    METRICS,
    RANKED,
    RANKINGS,
    RECORDS,
    StatedGaussian,
    StatedRankedTilt,
    StatedTilt,
    cap_of,
    together,
)
from sordino.privacy.chain import Row
from sordino.privacy.events import ApproximateEvent, GaussianEvent, RandomizedResponseEvent
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.spend import event_of
from sordino.rewards.model import RewardModel

__all__ = ["StatedMechanism", "check_mechanism"]

_ATTACK = "mechanism"
_WAY = "central"
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
    """What ``result.json`` says of the noise, of the metrics it bought, and of what it measured.

    Attributes:
        coin: The mechanism, as far as coins are described.
        noise: The mechanism of a curator; None if it is another one.
        metrics: What bought metrics; None if nothing did.
        numbers: What the result measured.
    """

    coin: StatedCoin
    noise: _Noise | None
    metrics: StatedGaussian | None
    numbers: StatedNumbers

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
    """What a curator paid: the entry behind the reward, and the entries for metrics.

    Attributes:
        terms: What all of them promise together.
        entry: The spend that the released reward was drawn on.
        others: Every other spend that the reward names.
        reward: The reward in ``reward.json``.
    """

    terms: Guarantee
    entry: Row
    others: tuple[Row, ...]
    reward: RewardModel


def check_mechanism(
    stated: StatedMechanism, paid: Guarantee, rows: Iterable[Row], *, reward: RewardModel
) -> Finding:
    """Return whether what is described is what the entries paid for.

    A description that promises more noise or a smaller loss than was paid for refutes, and so do
    metrics that nothing paid for, and a number that tells what the promise hides. A description
    that only differs is a warning.

    Args:
        stated: What ``result.json`` says.
        paid: What the entries promise together.
        rows: The rows of the ledger under the names that the reward gives.
        reward: The reward in ``reward.json``.

    Source:
        docs/central.md, "Confidence under label privacy": what is free after one noised sum.
    """
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
    if stated.coin.way != _WAY or not fits:
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
