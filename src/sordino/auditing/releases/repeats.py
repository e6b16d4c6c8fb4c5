"""One question asked more than once: what its answers say without the raw file."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from jaxtyping import Integer

from sordino.auditing.findings import Finding
from sordino.auditing.releases.binomials import at_least
from sordino.auditing.releases.released import Released
from sordino.preferences.manifest import MANIFEST_FORMAT
from sordino.preferences.private_pairs import label_loss, most_questions
from sordino.privacy.guarantee import Guarantee, never_less

__all__ = [
    "agreement_of_coins",
    "canonical_answers",
    "find_repeats",
    "most_paid_labels",
    "stated_losses",
]

_FLIPS = ("flip_probability", "flip_rate")
_FAIR = 0.5
_SLACK = 1e-9  # relative: a total is a product of floats
_SUSPICIOUS = 1e-3


@dataclass(frozen=True)
class _Repeats:
    """Answers to each question, by who gave them, in the canonical order of the question.

    Without person ids every answer has the same giver, None.
    """

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
    """Return what questions that occur more than once say of the claim.

    Only a promise about whole persons can be refuted here: answers of one person to one question
    that differ are releases of their own, and a coin that the manifest states, paid for that many
    times, is more than was promised. It is arithmetic, so it has no p-value.

    Args:
        released: A released file.
        claim: What it promises.
    """
    repeats = _Repeats.of(released)
    if released.persons is None:
        return [_unlinked(repeats)]
    return [_paid_again(released, repeats, claim), _together(released, repeats)]


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
    losses = stated_losses(released.manifest)
    if claim.unit == "person" and losses is not None:
        labels = most_paid_labels(released)
        total = labels * losses[0]
        if total * (1 - _SLACK) > claim.epsilon:
            return Finding(
                attack="repeats",
                outcome="refutes",
                summary=f"One person gave {labels} paid answers with the coin that the manifest "
                f"states: epsilon={never_less(total)} for that person, more than is claimed.",
                details={**details, "labels": labels, "total": total},
            )
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


def most_paid_labels(released: Released) -> int:
    """Return how many paid answers one person gave at most, as far as the answers show it.

    Equal answers to one question count once, for they may be one answer repeated; different ones
    count twice, for they cannot.

    Args:
        released: A released file with person ids.
    """
    people: Sequence[str] = released.persons or ()
    turned = canonical_answers(released).tolist()
    paid = [key + bytes([answer]) for key, answer in zip(released.keys, turned, strict=True)]
    return most_questions(people, paid)


def stated_losses(manifest: Mapping[str, Any] | None) -> tuple[float, float] | None:
    """Return the least and the most that one label loses by the coin that a manifest states.

    Our manifests state the coin exactly; in any other a flip probability may have been rounded to
    the digits that it is written with, and the coin itself may be honest.

    Args:
        manifest: Anybody's JSON object, or None.

    Returns:
        Two values of ε, or None if no flip probability in (0, 1/2] is stated.

    Example:
        >>> [round(end, 3) for end in stated_losses({"flip_rate": 0.475})]
        [0.098, 0.102]
        >>> stated_losses({"flip_rate": "much"})
    """
    has = manifest or {}
    for name in _FLIPS:
        value = has.get(name)
        if isinstance(value, float) and 0 < value <= _FAIR:
            exact = has.get("format") == MANIFEST_FORMAT
            slack = 0.0 if exact else _half_a_digit(value)
            return label_loss(min(value + slack, _FAIR)), label_loss(max(value - slack, 0.0))
    return None


def _half_a_digit(value: float) -> float:
    """Return how far rounding may have moved a number, by the digits that it is written with."""
    exponent = Decimal(repr(value)).as_tuple().exponent
    return float(Decimal(5).scaleb(int(exponent) - 1))


def agreement_of_coins(epsilon: float) -> float:
    """Return how often two independent coins agree at most on the labels of two persons.

    It is a² + (1 − a)² with a = e^ε/(1 + e^ε), attained if both labels are the same.

    Example:
        >>> agreement_of_coins(0.0)
        0.5
    """
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
