"""One question asked more than once: what its answers say without the raw file."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TypeGuard

import numpy as np
from jaxtyping import Integer

from sordino.auditing.findings import Finding
from sordino.preferences.pairs import MANIFEST_FORMAT, label_loss, most_questions
from sordino.privacy.guarantee import Guarantee, never_less

from .evidence import at_least
from .reading import EPSILONS, RATES, Released

_CERTAIN, _RATE = RATES  # the latter may be counted from the flips themselves, which is no coin

_ACCIDENT = 1e-9
_FAIR = 0.5
_SLACK = 1e-9  # relative: a total is a product of floats
_SUSPICIOUS = 1e-3


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
    # Without person ids every answer has the same giver, None.
    people = released.persons or (None,) * len(released)
    answers = canonical_answers(released).tolist()
    given: defaultdict[bytes, defaultdict[str | None, list[int]]]
    given = defaultdict(lambda: defaultdict(list))
    for key, person, answer in zip(released.keys, people, answers, strict=True):
        given[key][person].append(answer)
    several = [] if released.releases is None else [_several(released, released.releases)]
    again = [each for givers in given.values() for each in givers.values() if len(each) > 1]
    differing = [each for each in again if len(set(each)) > 1]
    if released.persons is None:
        odd = (
            "Questions occur more than once and no person ids say whose answers they are: if one "
            "person gave several, the loss of that person adds up, and independent coins average "
            "out."
        )
        most = max(map(len, again), default=0)
        counts = {"questions": len(again), "most": most, "differing": len(differing)}
        unlinked = Finding.judged(
            "repeats",
            odd=odd if again else "",
            clear="No question occurs twice.",
            details=counts if again else {},
        )
        return [*several, unlinked]
    # The first answers of two persons to each question: no answer is used twice.
    first = ([each[0] for each in givers.values()][:2] for givers in given.values())
    couples = [(pair[0], pair[1]) for pair in first if len(pair) > 1]
    details: dict[str, object] = {
        "differing": len(differing),
        "most": max(map(len, differing), default=1),
    }
    wrong = odd = ""
    losses, labels = stated_losses(released.manifest), most_paid_labels(released)
    total = 0.0 if losses is None or claim.unit != "person" else labels * losses[0]
    if total * (1 - _SLACK) > claim.epsilon:
        details |= {"labels": labels, "total": total}
        cost = f"epsilon={never_less(total)} for that person, more than is claimed"
        if _is_a_coin(released, claim):
            wrong = (
                f"One person gave {labels} paid answers with the coin that the manifest states: "
                f"{cost}."
            )
        else:
            odd = (
                f"One person gave {labels} paid answers; if the flip rate in the manifest is that "
                f"of the coin, they cost {cost}. A rate that was counted would be no coin, so "
                "nothing is refuted."
            )
    elif differing:
        odd = (
            "Persons have different answers to one question: m coins are m paid releases, and "
            "together they cost m times the epsilon of one."
        )
    clear = "No person has two different answers to one question."
    return [
        *several,
        Finding.judged("repeats", wrong=wrong, odd=odd, clear=clear, details=details),
        _together(released, couples),
    ]


def _several(released: Released, releases: Sequence[str]) -> Finding:
    """Return whether a folder holds answers of several releases, to the same questions."""
    people = released.persons or (None,) * len(released)
    found: defaultdict[tuple[bytes, str | None], set[str]] = defaultdict(set)
    for key, person, release in zip(released.keys, people, releases, strict=True):
        found[key, person].add(release)
    drawn = [len(ids) for ids in found.values() if len(ids) > 1]
    count, most = len(set(releases)), max(drawn, default=1)
    whose = "" if released.persons is None else " of one person"
    odd = (
        f"This folder holds {count} releases, and {len(drawn)} questions have answers{whose} in up "
        f"to {most} of them: where these are of one label, it pays the epsilon of each."
    )
    return Finding.judged(
        "releases",
        odd=odd if drawn else "",
        clear=f"No question has answers{whose} in several releases.",
        details={"releases": count, "questions": len(drawn), "most": most},
    )


def _is_a_coin(released: Released, claim: Guarantee) -> bool:
    """Return whether the flips that a manifest states are surely the chance of a coin."""
    # A flip rate in anybody's manifest may be the share of answers that were flipped. It is a coin
    # if it fits an epsilon that the manifest states, and honest coins hardly flip so few.
    has, losses = released.manifest or {}, stated_losses(released.manifest)
    rate = has.get(_RATE)
    if losses is None or has.get("format") == MANIFEST_FORMAT or _is_rate(has.get(_CERTAIN)):
        return losses is not None
    stated = [has.get(name) for name in EPSILONS]
    low, high = losses
    fits = any(isinstance(e, int | float) and e is not True and low <= e <= high for e in stated)
    if not fits or not _is_rate(rate):
        return False
    # Source: A coin of ε_i flips with probability at least 1/2 − ε_i/4, and the ε_i of one person
    # add up to ε; rows that may repeat one stored answer count as one coin of their weight. The
    # tail by Hoeffding 1963, Theorem 2.
    most = min(rate + _last_digit(rate), _FAIR)
    weights = Counter(zip(released.persons or (), released.keys, strict=True))
    largest: defaultdict[str, int] = defaultdict(int)
    for (person, _), weight in weights.items():
        largest[person] = max(largest[person], weight)
    gap = len(released) * (_FAIR - most) - claim.epsilon / 4 * sum(largest.values())
    squares = sum(weight * weight for weight in weights.values())
    return gap > 0 and math.exp(-2 * gap * gap / squares) < _ACCIDENT


def most_paid_labels(released: Released) -> int:
    """Return how many paid answers one person gave at most, as far as the answers show it."""
    # Equal answers to one question count once, for they may be one answer repeated; different ones
    # count twice, for they cannot.
    people: Sequence[str] = released.persons or ()
    turned = canonical_answers(released).tolist()
    paid = [key + bytes([answer]) for key, answer in zip(released.keys, turned, strict=True)]
    return most_questions(people, paid)


def stated_losses(manifest: Mapping[str, object] | None) -> tuple[float, float] | None:
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


def _together(released: Released, couples: Sequence[tuple[int, int]]) -> Finding:
    """Return whether different persons agree on one question more often than coins let them."""
    agree = sum(one == other for one, other in couples)
    most = agreement_of_coins(released.epsilon)
    chance = at_least(agree, len(couples), most)
    odd = (
        "Different persons agree on one question more often than independent coins let them: they "
        "may share a coin, or be one person under two names."
    )
    return Finding.judged(
        "shared-answers",
        odd="" if chance > _SUSPICIOUS else odd,
        clear="Different persons do not agree more often than independent coins let them.",
        p_value=chance,
        details={"questions": len(couples), "agree": agree, "expected_at_most": most},
    )
