"""One question asked more than once: what its answers say without the raw file."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeGuard

import numpy as np
from jaxtyping import Integer

from sordino.auditing.findings import Finding
from sordino.preferences.pairs import MANIFEST_FORMAT, label_loss, most_questions
from sordino.privacy.guarantee import Guarantee, never_less

from .evidence import at_least
from .reading import Released

__all__ = [
    "agreement_of_coins",
    "canonical_answers",
    "find_repeats",
    "most_paid_labels",
    "stated_losses",
]

_CERTAIN = "flip_probability"
_RATE = "flip_rate"  # may be counted from the flips themselves, which is no coin
_EPSILONS = ("epsilon", "epsilon_float", "eps")
_ACCIDENT = 1e-9
_FAIR = 0.5
_SLACK = 1e-9  # relative: a total is a product of floats
_SUSPICIOUS = 1e-3


@dataclass(frozen=True)
class _Repeats:
    """Answers to each question, by who gave them, in the canonical order of the question."""

    # Without person ids every answer has the same giver, None.

    answers: Mapping[bytes, Mapping[str | None, Sequence[int]]]

    @classmethod
    def of(cls, released: Released) -> _Repeats:
        """Return the answers of a released file by question and person."""
        turned = canonical_answers(released)
        people = released.persons or (None,) * len(released)
        found: defaultdict[bytes, defaultdict[str | None, list[int]]]
        found = defaultdict(lambda: defaultdict(list))
        for key, person, answer in zip(released.keys, people, turned.tolist(), strict=True):
            found[key][person].append(answer)
        return cls(found)

    def groups(self) -> Iterable[tuple[str | None, Sequence[int]]]:
        """Return (person, answers) for every question that one giver answered twice or more."""
        every = (item for givers in self.answers.values() for item in givers.items())
        return [(person, answers) for person, answers in every if len(answers) > 1]

    def couples(self) -> list[tuple[int, int]]:
        """Return the first answers of two persons to each question: no answer is used twice."""
        first = ([a[0] for a in givers.values()][:2] for givers in self.answers.values())
        return [(one[0], one[1]) for one in first if len(one) > 1]


def canonical_answers(released: Released) -> Integer[np.ndarray, " n"]:
    """Return answers in the canonical order; 0 where both texts are the same and none can win."""
    same = [one == other for one, other in zip(released.first, released.second, strict=True)]
    return np.where(same, 0, released.answers ^ released.swapped)


def find_repeats(released: Released, claim: Guarantee) -> list[Finding]:
    """Return what questions that occur more than once say of the claim."""
    # Only a promise about whole persons can be refuted here: answers of one person to one question
    # that differ are releases of their own, and a coin that the manifest states, paid for that many
    # times, is more than was promised. It is arithmetic, so it has no p-value. A rate that may have
    # been counted states no coin: it is a warning.
    repeats = _Repeats.of(released)
    several = [] if released.releases is None else [_several(released, released.releases)]
    if released.persons is None:
        return [*several, _unlinked(repeats)]
    return [*several, _paid_again(released, repeats, claim), _together(released, repeats)]


def _several(released: Released, releases: Sequence[str]) -> Finding:
    """Return whether a folder holds answers of several releases, to the same questions."""
    people = released.persons or (None,) * len(released)
    found: defaultdict[tuple[bytes, str | None], set[str]] = defaultdict(set)
    for key, person, release in zip(released.keys, people, releases, strict=True):
        found[key, person].add(release)
    drawn = [len(ids) for ids in found.values() if len(ids) > 1]
    count = len(set(releases))
    whose = "" if released.persons is None else " of one person"
    return Finding(
        attack="releases",
        outcome="warning" if drawn else "clear",
        summary=f"This folder holds {count} releases, and {len(drawn)} questions have answers"
        f"{whose} in up to {max(drawn)} of them: where these are of one label, it pays the epsilon "
        "of each."
        if drawn
        else f"No question has answers{whose} in several releases.",
        details={"releases": count, "questions": len(drawn), "most": max(drawn, default=1)},
    )


def _unlinked(repeats: _Repeats) -> Finding:
    """Return what repeats say when nobody knows whose answers they are."""
    groups = [answers for _, answers in repeats.groups()]
    if not groups:
        return Finding(attack="repeats", outcome="clear", summary="No question occurs twice.")
    most = max(map(len, groups))
    return Finding(
        attack="repeats",
        outcome="warning",
        summary="Questions occur more than once and no person ids say whose answers they are: if "
        "one person gave several, the loss of that person adds up, and independent coins average "
        "out.",
        details={"questions": len(groups), "most": most, "differing": sum(map(_differ, groups))},
    )


def _differ(answers: Sequence[int]) -> bool:
    """Return whether not all answers are the same."""
    return len(set(answers)) > 1


def _paid_again(released: Released, repeats: _Repeats, claim: Guarantee) -> Finding:
    """Return what answers of one person say that differ from each other on one question."""
    again = [answers for _, answers in repeats.groups() if _differ(answers)]
    details = {"differing": len(again), "most": max(map(len, again), default=1)}
    total = _overpaid(released, claim, details)
    if total is not None:
        return total
    if not again:
        return Finding(
            attack="repeats",
            outcome="clear",
            summary="No person has two different answers to one question.",
            details=details,
        )
    return Finding(
        attack="repeats",
        outcome="warning",
        summary="Persons have different answers to one question: m coins are m paid releases, and "
        "together they cost m times the epsilon of one.",
        details=details,
    )


def _overpaid(released: Released, claim: Guarantee, details: Mapping[str, Any]) -> Finding | None:
    """Return that one person pays more than was promised for a person, or None."""
    losses = stated_losses(released.manifest)
    if claim.unit != "person" or losses is None:
        return None
    labels = most_paid_labels(released)
    total = labels * losses[0]
    if total * (1 - _SLACK) <= claim.epsilon:
        return None
    cost = f"epsilon={never_less(total)} for that person, more than is claimed"
    details = {**details, "labels": labels, "total": total}
    if not _is_a_coin(released, claim):
        return Finding(
            attack="repeats",
            outcome="warning",
            summary=f"One person gave {labels} paid answers; if the flip rate in the manifest is "
            f"that of the coin, they cost {cost}. A rate that was counted would be no coin, so "
            "nothing is refuted.",
            details=details,
        )
    return Finding(
        attack="repeats",
        outcome="refutes",
        summary=f"One person gave {labels} paid answers with the coin that the manifest "
        f"states: {cost}.",
        details=details,
    )


def _is_a_coin(released: Released, claim: Guarantee) -> bool:
    """Return whether the flips that a manifest states are surely the chance of a coin."""
    # A flip rate in anybody's manifest may be the share of answers that were flipped. It is a coin
    # if it fits an epsilon that the manifest states, and honest coins hardly flip so few.
    has, losses = released.manifest or {}, stated_losses(released.manifest)
    if losses is None or has.get("format") == MANIFEST_FORMAT or _is_rate(has.get(_CERTAIN)):
        return losses is not None
    fits = any(_is_between(has.get(name), *losses) for name in _EPSILONS)
    most = min(has[_RATE] + _last_digit(has[_RATE]), _FAIR)
    return fits and _chance_of_rate(released, claim.epsilon, most) < _ACCIDENT


def _is_between(value: object, low: float, high: float) -> bool:
    """Return whether a value of a manifest is a number between two others."""
    return isinstance(value, int | float) and value is not True and low <= value <= high


def _chance_of_rate(released: Released, epsilon: float, most: float) -> float:
    """Return a bound on the chance that coins of ε for a person flip no larger share of rows."""
    # Source: A coin of ε_i flips with probability at least 1/2 − ε_i/4, and the ε_i of one person
    # add up to ε; rows that may repeat one stored answer count as one coin of their weight. The
    # tail by Hoeffding 1963, Theorem 2.
    weights = Counter(zip(released.persons or (), released.keys, strict=True))
    largest: defaultdict[str, int] = defaultdict(int)
    for (person, _), weight in weights.items():
        largest[person] = max(largest[person], weight)
    gap = len(released) * (_FAIR - most) - epsilon / 4 * sum(largest.values())
    squares = sum(weight * weight for weight in weights.values())
    return math.exp(-2 * gap * gap / squares) if gap > 0 else 1.0


def most_paid_labels(released: Released) -> int:
    """Return how many paid answers one person gave at most, as far as the answers show it."""
    # Equal answers to one question count once, for they may be one answer repeated; different ones
    # count twice, for they cannot.
    people: Sequence[str] = released.persons or ()
    turned = canonical_answers(released).tolist()
    paid = [key + bytes([answer]) for key, answer in zip(released.keys, turned, strict=True)]
    return most_questions(people, paid)


def stated_losses(manifest: Mapping[str, Any] | None) -> tuple[float, float] | None:
    """Return the least and the most that one label loses by the coin that a manifest states."""
    # Our manifests state the coin exactly; in any other a flip probability may have been rounded or
    # cut to the digits that it is written with, and the coin itself may be honest.
    has = manifest or {}
    for value in (has.get(_CERTAIN), has.get(_RATE)):
        if _is_rate(value):
            exact = has.get("format") == MANIFEST_FORMAT
            slack = 0.0 if exact else _last_digit(value)
            return label_loss(min(value + slack, _FAIR)), label_loss(max(value - slack, 0.0))
    return None


def _is_rate(value: object) -> TypeGuard[float]:
    """Return whether a value of a manifest may be the chance of a flip."""
    return isinstance(value, float) and 0 < value <= _FAIR


def _last_digit(value: float) -> float:
    """Return one unit of the last digit that a number is written with: cutting loses up to that."""
    exponent = Decimal(repr(value)).as_tuple().exponent
    return float(Decimal(1).scaleb(int(exponent)))


def agreement_of_coins(epsilon: float) -> float:
    """Return how often two independent coins agree at most on the labels of two persons."""
    # It is a² + (1 − a)² with a = e^ε/(1 + e^ε), attained if both labels are the same.
    kept = math.tanh(epsilon / 2)
    return (1 + kept * kept) / 2


def _together(released: Released, repeats: _Repeats) -> Finding:
    """Return whether different persons agree on one question more often than coins let them."""
    couples = repeats.couples()
    agree = sum(one == other for one, other in couples)
    most = agreement_of_coins(released.epsilon)
    chance = at_least(agree, len(couples), most)
    details = {"questions": len(couples), "agree": agree, "expected_at_most": most}
    if chance > _SUSPICIOUS:
        return Finding(
            attack="shared-answers",
            outcome="clear",
            summary="Different persons do not agree more often than independent coins let them.",
            p_value=chance,
            details=details,
        )
    return Finding(
        attack="shared-answers",
        outcome="warning",
        summary="Different persons agree on one question more often than independent coins let "
        "them: they may share a coin, or be one person under two names.",
        p_value=chance,
        details=details,
    )
