"""What the flips of a released file say, once the raw file tells which answers were flipped.

A claim of ε per label permits a flip rate between 1/(1 + e^ε) and its complement, and coins that
nobody shares.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import Integer
from scipy.special import betaincinv, expit, logit

from sordino.auditing.findings import Measurement
from sordino.auditing.releases.binomials import at_least, at_most
from sordino.auditing.releases.evidence import Evidence
from sordino.auditing.releases.flip_patterns import attack_patterns, flips_of
from sordino.auditing.releases.released import UNKNOWN, Released
from sordino.auditing.releases.repeats import agreement_of_coins
from sordino.auditing.releases.strata import independent_rows
from sordino.auditing.statistical.bounds import clopper_pearson
from sordino.privacy.guarantee import never_less

__all__ = ["attack_flips", "measure_flips"]

_MISSED = 0.05  # 1 − the power that a measurement states


def attack_flips(released: Released) -> list[Evidence]:
    """Return how surely the flips of a file are not those of independent coins of this ε.

    Args:
        released: The file, with ``truth``; without it, or where no row can be judged, an attack
            is left out.

    Returns:
        Evidence named ``"flip-rate"``; ``"shared-coin"``, for different persons on one question;
        ``"person-coin"``, for one person on different questions; ``"reused-coin"``, for changed
        answers of one person. The last three need person ids. What
        :func:`~sordino.auditing.releases.flip_patterns.attack_patterns` found comes behind.

    Guarantee:
        If every label is flipped by a coin of its own, of a rate that ε permits, or a repeat of
        one person to one question stores the first answer, each p-value is at most α with
        probability at most α. Shown by tests/statistical/test_release_attacks.py.
    """
    if released.truth is None:
        return []
    flips = flips_of(released)
    found = [_flip_rate(released, flips)]
    if released.persons is not None:
        found += [
            _agreement(released, "shared-coin", _pairs(released, flips, released.keys)),
            _agreement(released, "person-coin", _pairs(released, flips, released.persons)),
            _agreement(released, "reused-coin", _changed_answers(released, flips)),
        ]
    rates = [evidence for evidence in found if evidence is not None]
    return [*rates, *attack_patterns(released)]


def _counted(released: Released, flips: Integer[np.ndarray, " n"]) -> tuple[int, int]:
    """Return how many labels were flipped, of how many: those with a coin of their own.

    A first row of unknown truth is not replaced by a later one: that may hold the stored answer
    to a label that was another then.
    """
    own = flips[independent_rows(released) & (flips != UNKNOWN)]
    return int(own.sum()), len(own)


def _flip_rate(released: Released, flips: Integer[np.ndarray, " n"]) -> Evidence | None:
    """Return how surely the flip rate is not one that ε permits.

    Both tails count, each at the end of the permitted rates where it is heaviest; a rate of each
    row's own inside them only makes it lighter.
    """
    flipped, n = _counted(released, flips)
    if n == 0:
        return None
    rate = float(expit(-released.epsilon))
    tail = min(at_most(flipped, n, rate), at_least(flipped, n, 1 - rate))
    said = (
        f"{100 * flipped / n:.1f} % of {n} labels are flipped; "
        f"epsilon={never_less(released.epsilon)} needs "
        f"between {100 * rate:.1f} % and {100 - 100 * rate:.1f} %"
    )
    return Evidence(
        attack="flip-rate",
        p_value=min(1.0, 2 * tail),
        if_refutes=f"{said}.",
        if_clear=f"{said}, up to chance.",
        details={"flipped": flipped, "rows": n, "permitted": [rate, 1 - rate]},
    )


def _pairs(
    released: Released, flips: Integer[np.ndarray, " n"], shared: Sequence[str | bytes]
) -> list[tuple[int, int]]:
    """Return flips of two persons on one question, or of one person on two; no flip twice.

    Only the first row of a person and a question has a coin of its own; later ones may hold a
    stored answer. ``shared`` is what the two rows of a pair have in common.
    """
    groups: defaultdict[str | bytes, list[int]] = defaultdict(list)
    for index in np.flatnonzero(independent_rows(released) & (flips != UNKNOWN)).tolist():
        groups[shared[index]].append(int(flips[index]))
    return [pair for group in groups.values() for pair in _disjoint(group)]


def _disjoint(group: list[int]) -> Iterable[tuple[int, int]]:
    """Return the first and second, third and fourth, and so on."""
    return zip(group[::2], group[1::2], strict=False)


def _changed_answers(released: Released, flips: Integer[np.ndarray, " n"]) -> list[tuple[int, int]]:
    """Return the flips of one person on one question before and after the label changed.

    There are three honest ways. The stored answer is repeated: the flips then differ, for the
    label does and the answer does not. A new coin is drawn: the flips agree as often as
    independent ones. Nothing else is released. Only one coin used twice makes them agree more.
    Pairs of equal labels say nothing, for a stored answer makes their flips agree.
    """
    first: dict[tuple[str, bytes], int] = {}
    done: dict[tuple[str, bytes], tuple[int, int]] = {}
    for index, key in _linked(released):
        if key in done or flips[index] == UNKNOWN:
            continue
        start = first.setdefault(key, index)
        if _truth(released, start) != _truth(released, index):
            done[key] = int(flips[start]), int(flips[index])
    return list(done.values())


def _linked(released: Released) -> Iterator[tuple[int, tuple[str, bytes]]]:
    """Yield every row with its person and question."""
    return enumerate(zip(released.persons or (), released.keys, strict=True))


def _truth(released: Released, index: int) -> int:
    """Return the label of a row in canonical order, which two rows of a question share."""
    truth = 0 if released.truth is None else int(released.truth[index])
    return truth ^ int(released.swapped[index])


def _agreement(released: Released, attack: str, pairs: list[tuple[int, int]]) -> Evidence | None:
    """Return how surely flips agree more often than those of independent coins."""
    if not pairs:
        return None
    agree = sum(one == other for one, other in pairs)
    most = agreement_of_coins(released.epsilon)
    whose = {
        "shared-coin": "different persons on one question",
        "person-coin": "one person on different questions",
        "reused-coin": "one person whose answer to a question changed",
    }[attack]
    said = (
        f"The flips of {whose} agree in {100 * agree / len(pairs):.1f} % of {len(pairs)} pairs; "
        f"independent coins agree in {100 * most:.1f} % at most"
    )
    return Evidence(
        attack=attack,
        p_value=at_least(agree, len(pairs), most),
        if_refutes=f"{said}. A coin used twice tells whether the two labels are equal.",
        if_clear=f"{said}, up to chance.",
        details={"pairs": len(pairs), "agree": agree, "permitted": most},
    )


def measure_flips(released: Released, confidence: float = 0.95) -> Measurement | None:
    """Return the ε that the flip rate of a file shows, or None if no row can be judged.

    Args:
        released: The file, with ``truth``.
        confidence: Coverage of the interval, both ends together.

    Source:
        Warner 1965: ε = |log((1 − f)/f)| for a flip rate f; its interval by Clopper & Pearson
        1934.

    Example:
        >>> file = Released(name="r", layout="answer", prompts=("p",), first=("a",),
        ...                 second=("b",), answers=np.array([1]), epsilon=1.0,
        ...                 truth=np.array([1]))
        >>> found = measure_flips(file)
        >>> found.lower, found.upper
        (0.0, inf)
    """
    flipped, n = _counted(released, flips_of(released))
    if n == 0:
        return None
    low, high = clopper_pearson(flipped, n, (1 + confidence) / 2)
    ends = [float(logit(1 - high)), float(logit(1 - low))]
    return Measurement(
        metric="epsilon",
        claimed=released.epsilon,
        lower=0.0 if ends[0] <= 0 <= ends[1] else min(map(abs, ends)),
        upper=max(map(abs, ends)),
        confidence=confidence,
        power=_detectable(released.epsilon, n, (1 + confidence) / 2),
    )


def _detectable(epsilon: float, n: int, confidence: float) -> float:
    """Return the smallest ε whose coin would have shown more than the claim, 19 times of 20.

    It is shown with the most flips at which the bound on the rate is still under that of ε.
    """
    rate = float(expit(-epsilon))
    under = bisect_left(range(n), 1 - confidence, key=lambda k: at_most(k, n, rate))
    if not under:
        return math.inf
    return float(logit(1 - betaincinv(under, n - under + 1, _MISSED)))
