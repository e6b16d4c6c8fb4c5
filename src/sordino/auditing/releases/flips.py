"""Whether the flips of a released file, which the raw file tells, are those of coins of this ε.

A claim of ε per label says more than how many labels are flipped in all: whatever else is known,
a label is flipped with probability between 1/(1 + e^ε) and its complement, by a coin that nobody
shares. So the rate must lie there among the rows of each label, in each part of the file, among
rows alike in what is public, and among rows beside a flip or beside none; and no number of flips
may be fixed beforehand.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Integer
from scipy.special import betaincinv, expit, i0e, logit

from sordino.auditing.findings import ATTACKS, POWER, Finding, Measurement
from sordino.auditing.statistical.bounds import clopper_pearson
from sordino.privacy.guarantee import never_less

from .channels import independent_rows, numbered, ordered_values, ranked_blocks, readings
from .reading import (
    UNKNOWN,
    Evidence,
    Released,
    agreement_of_coins,
    at_least,
    at_most,
    mixed_at_least,
)
from .recipes import rule_bits

_PARTS = (2, 3, 4, 5, 8, 10, 16)  # equal parts into which rows are cut; periods
_LONG_LAGS = 1000  # in file order; elsewhere as many as a person would write by hand
_ROUND_SIZES = (10, 16, 20, 25, 32, 50, 64, 100, 128, 200, 250, 256, 500, 512, 1000, 1024, 2000)
_RARE = 0.05  # an honest file meets its expected number of flips exactly with this chance at most
_LAST = 2  # groups of fewer rows are not looked at
_MOST_ROWS = 10**9  # no file has more
_WHOSE = {
    "shared-coin": "different persons on one question",
    "person-coin": "one person on different questions",
    "reused-coin": "one person whose answer to a question changed",
}

_T = TypeVar("_T")


class _Group(NamedTuple):
    """Some rows, and how many of them are flipped."""

    name: str  # what the rows have in common; no data
    flipped: int
    rows: int


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class _Rows:
    """The rows of a file that have a coin of their own, in the order of the file."""

    released: Released
    places: Integer[np.ndarray, " m"]
    flips: Integer[np.ndarray, " m"]

    @cached_property
    def least(self) -> float:
        """Return the least flip rate that ε permits; its complement is the largest."""
        return float(expit(-self.released.epsilon))

    def shares(self, flipped: int, n: int) -> str:
        """Return in words how many labels are flipped, and how many have to be."""
        return (
            f"{100 * flipped / n:.1f} % of {n} labels are flipped; "
            f"epsilon={never_less(self.released.epsilon)} needs between {100 * self.least:.1f} % "
            f"and {100 - 100 * self.least:.1f} %"
        )

    @property
    def texts(self) -> dict[str, tuple[str, ...]]:
        has = self.released
        return {"prompt": has.prompts, "first answer": has.first, "second answer": has.second}

    @cached_property
    def lengths(self) -> dict[str, Integer[np.ndarray, " m"]]:
        """Return how long the texts of each row are, in several ways."""
        prompt, first, second = (
            np.array([len(text) for text in self.of(texts)], dtype=np.int64)
            for texts in self.texts.values()
        )
        return {
            "prompt": prompt,
            "first answer": first,
            "second answer": second,
            "both answers": first + second,
            "difference of the answers": first - second,
            "absolute difference of the answers": abs(first - second),
        }

    @cached_property
    def orders(self) -> dict[str, Integer[np.ndarray, " m"]]:
        """Return 1 or 0, or ``UNKNOWN``, for whether a row follows each public order."""
        return {name: bits[self.places] for name, bits in rule_bits(self.released).items()}

    @cached_property
    def truth(self) -> Integer[np.ndarray, " m"]:
        return np.asarray(np.asarray(self.released.truth)[self.places], dtype=np.int64)

    @cached_property
    def shared(self) -> dict[str, Integer[np.ndarray, " m"]]:
        """Return groups of rows that may have been given one coin."""
        has = self.released
        found = {name: numbered(self.of(texts)) for name, texts in self.texts.items()}
        if has.persons is not None:
            found["person"] = numbered(self.of(has.persons))
        columns = has.columns.items()
        return found | {f"column {name!r}": numbered(self.of(values)) for name, values in columns}

    def of(self, values: Sequence[_T]) -> list[_T]:
        return [values[row] for row in self.places.tolist()]


def _flips_of(released: Released) -> Integer[np.ndarray, " n"]:
    """Return 1 where the answer is not the truth, 0 where it is, ``UNKNOWN`` elsewhere."""
    truth = np.full(len(released), UNKNOWN) if released.truth is None else released.truth
    return np.where(truth == UNKNOWN, UNKNOWN, released.answers != truth)


def _own_coins(released: Released) -> _Rows:
    """Return the rows of known truth that have a coin of their own."""
    # Only the first row of a person and a question has one; later ones may hold a stored answer.
    # A first row of unknown truth is not replaced by a later one: that may hold the stored answer
    # to a label that was another then.
    flips = _flips_of(released)
    places = np.flatnonzero(independent_rows(released) & (flips != UNKNOWN))
    return _Rows(released=released, places=places, flips=flips[places].astype(np.int64))


def attack_flips(released: Released) -> list[Evidence]:
    """Return how surely the flips of a file are not those of independent coins of this ε.

    Guarantee:
        If every label is flipped by a coin of its own, of a rate that ε permits and that does not
        look at the label, or a repeat of one person to one question stores the first answer, each
        p-value is at most α with probability at most α. Rates may differ from row to row. Shown by
        tests/statistical/test_release_attacks.py and tests/statistical/test_flip_patterns.py.
    """
    # Source: Hoeffding 1956, Theorem 4, for rates of each row's own. Pairs of rows are disjoint,
    # and the second is judged given the first.
    if released.truth is None:
        return []
    rows = _own_coins(released)
    pairs: dict[str, list[tuple[int, int]]] = {}
    if released.persons is not None:
        pairs["shared-coin"] = _pairs(rows, released.keys)
        pairs["person-coin"] = _pairs(rows, released.persons)
        # The flips of one person on one question before and after the label changed.
        # There are three honest ways. The stored answer is repeated: the flips then differ, for the
        # label does and the answer does not. A new coin is drawn: the flips agree as often as
        # independent ones. Nothing else is released. Only one coin used twice makes them agree
        # more. Pairs of equal labels say nothing, for a stored answer makes their flips agree.
        flips = _flips_of(released)
        labels = np.asarray(released.truth) ^ released.swapped  # which all rows of a question share
        first: dict[tuple[str, bytes], int] = {}
        done: dict[tuple[str, bytes], tuple[int, int]] = {}
        for index, key in enumerate(zip(released.persons or (), released.keys, strict=True)):
            if key in done or flips[index] == UNKNOWN:
                continue
            start = first.setdefault(key, index)
            if labels[start] != labels[index]:
                done[key] = int(flips[start]), int(flips[index])
        pairs["reused-coin"] = list(done.values())
    # How surely flips agree more often than those of independent coins.
    agreements, most = [], agreement_of_coins(released.epsilon)
    for attack, each in pairs.items():
        if not (n := len(each)):
            continue
        agree = sum(one == other for one, other in each)
        said = (
            f"The flips of {_WHOSE[attack]} agree in {100 * agree / n:.1f} % of {n} pairs; "
            f"independent coins agree in {100 * most:.1f} % at most"
        )
        wrong = ". A coin used twice tells whether the two labels are equal."
        told = {"pairs": n, "agree": agree, "permitted": most}
        tail = at_least(agree, n, most)
        agreements.append(_evidence(attack, tail, said, wrong=wrong, details=told))
    if not len(rows.places):
        return agreements
    # Both tails count, each at the end of the permitted rates where it is heaviest; a rate of each
    # row's own inside them only makes it lighter.
    flipped, n, rate = int(rows.flips.sum()), len(rows.flips), rows.least
    tail = min(at_most(flipped, n, rate), at_least(flipped, n, 1 - rate))
    share = {"flipped": flipped, "rows": n, "permitted": [rate, 1 - rate]}
    return [
        _evidence("flip-rate", 2 * tail, rows.shares(flipped, n), details=share),
        *agreements,
        _label_evidence(rows),
        _rates(rows, "block-flips", _blocks(rows)),
        _rates(rows, "stratum-flips", _strata(rows)),
        _rates(rows, "neighbor-flips", _neighbors(rows)),
        _exact_evidence(rows),
    ]


def _evidence(
    attack: str, p_value: float, said: str, *, details: Mapping[str, object], wrong: str = "."
) -> Evidence:
    """Return evidence that says what was seen, and that it is wrong or up to chance."""
    return Evidence(
        attack=attack,
        p_value=min(1.0, p_value),
        if_refutes=f"{said}{wrong}",
        if_clear=f"{said}, up to chance.",
        details=details,
    )


def _pairs(rows: _Rows, shared: Sequence[str] | Sequence[bytes]) -> list[tuple[int, int]]:
    """Return flips of two persons on one question, or of one person on two; no flip twice."""
    # `shared` is what the two rows of a pair have in common.
    groups: defaultdict[str | bytes, list[int]] = defaultdict(list)
    for place, flip in zip(rows.places.tolist(), rows.flips.tolist(), strict=True):
        groups[shared[place]].append(flip)
    return [
        pair for group in groups.values() for pair in zip(group[::2], group[1::2], strict=False)
    ]


def _rates(rows: _Rows, attack: str, groups: Iterable[_Group]) -> Evidence:
    """Return how surely the rate of some group is not permitted; every group was looked at."""
    tried = [group for group in groups if group.rows >= _LAST]
    if not tried:
        nothing = "There are too few rows to compare."
        return Evidence(attack=attack, p_value=1.0, if_refutes=nothing, if_clear=nothing)
    tails = [at_most(min(k, n - k), n, rows.least) for _, k, n in tried]
    least = min(tails)
    worst = tried[tails.index(least)]

    def bound(confidence: float) -> float:
        # that it is flipped too seldom, or too often; of many groups, one
        fewest = min(worst.flipped, worst.rows - worst.flipped)
        _, high = clopper_pearson(fewest, worst.rows, 1 - (1 - confidence) / (2 * len(tried)))
        return max(0.0, float(logit(1 - high)))

    shares = rows.shares(worst.flipped, worst.rows)
    said = f"{worst.name[0].upper()}{worst.name[1:]}: {shares}, whatever is public"
    return Evidence(
        attack=attack,
        p_value=min(1.0, 2 * len(tried) * least),
        if_refutes=f"{said}. These labels lose more than is claimed.",
        if_clear=f"{said}, up to chance: this is the worst of {len(tried):,} groups of rows.",
        details={
            "flipped": worst.flipped,
            "rows": worst.rows,
            "group": worst.name,
            "groups": len(tried),
            "permitted": [rows.least, 1 - rows.least],
        },
        bound=bound,
    )


def _counted(
    name: str, flips: Integer[np.ndarray, " k"], groups: Integer[np.ndarray, " k"]
) -> Iterator[_Group]:
    """Yield the rows of each group; which one it is stays unsaid."""
    sizes, counts = np.bincount(groups), np.bincount(groups, weights=flips)
    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        yield _Group(name=name, flipped=int(count), rows=size)


def _blocks(rows: _Rows) -> Iterator[_Group]:
    """Yield equal parts of the rows, in the order of the file and in that of their questions."""
    n, keys = len(rows.places), rows.of(rows.released.keys)
    hashed = sorted(range(n), key=keys.__getitem__)
    for name, order in (("file", range(n)), ("canonical order", hashed)):
        flips = rows.flips[np.array(order)]
        for parts in _PARTS:
            counted = _counted("", flips, np.arange(n) * parts // n)
            for part, group in enumerate(counted, 1):
                yield group._replace(name=f"rows of part {part} of {parts} of the {name}")
    for period in _PARTS:
        yield from _counted(f"every row of {period}", rows.flips, np.arange(n) % period)


def _strata(rows: _Rows) -> Iterator[_Group]:
    """Yield rows alike in something that is public."""
    has, flips = rows.released, rows.flips
    for name, bits in rows.orders.items():
        yield from _counted(f"rows alike in the order {name!r}", flips, bits - UNKNOWN)
    for name, sizes in rows.lengths.items():
        ranges = ranked_blocks(sizes.tolist(), 8)
        yield from _counted(f"rows alike in the length ({name})", flips, ranges)
        yield from _counted(f"rows alike in the parity of the length ({name})", flips, sizes % 2)
    alike: list[tuple[str, list[str]]] = []
    for name, column in rows.texts.items():
        texts = rows.of(column)
        alike.append((f"first character ({name})", [text[:1] for text in texts]))
        alike.append((f"last character ({name})", [text[-1:] for text in texts]))
    for name, texts in (*alike, ("texts of the prompt", rows.of(has.prompts))):
        yield from _counted(f"rows alike in the {name}", flips, numbered(texts, most=256))
    if has.persons is not None:
        yield from _counted("rows of one person", flips, numbered(rows.of(has.persons)))
    for name, values in has.columns.items():
        for reading in readings(rows.of(values)):
            said = f"rows alike in the column {name!r} (read by {reading.name})"
            yield from _counted(said, flips, reading.groups)


def _neighbors(rows: _Rows) -> Iterator[_Group]:
    """Yield rows at a distance from flipped ones, and from ones that are not."""
    # Pairs are disjoint, so that what is known of the first rows says nothing of the second.
    n, has = len(rows.places), rows.released
    far = {n // part + near for part in (2, 3, 4) for near in (-1, 0, 1)}
    lags = sorted({*range(1, min(n, _LONG_LAGS + 1)), *(lag for lag in far if 0 < lag < n)})
    yield from _lagged("in the file", rows.flips, lags)
    mirrored = np.column_stack([np.arange(n // 2), n - 1 - np.arange(n // 2)])
    yield from _beside("rows mirrored at the middle of the file", rows.flips, mirrored)
    # Public orders of the rows; rows alike in it stand together.
    orders: dict[str, Sequence[bytes] | np.ndarray] = {"canonical texts": rows.of(has.keys)}
    orders |= {f"length ({name})": sizes for name, sizes in rows.lengths.items()}
    for name, values in has.columns.items():
        ordered = ordered_values(rows.of(values))
        if ordered is not None:
            numbers = [np.inf if one is None else float(one) for one in ordered]
            orders[f"the column {name!r}"] = np.array(numbers)
    for name, sizes in orders.items():
        order = np.argsort(np.asarray(sizes), kind="stable")
        short = range(1, min(n, 9))
        yield from _lagged(f"in the order of {name}", rows.flips[order], short)
    for name, groups in rows.shared.items():
        order = np.argsort(groups, kind="stable")
        starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
        inside = np.arange(n) - np.repeat(starts, np.diff(starts, append=n))
        same = np.append(groups[order][1:] == groups[order][:-1], False)
        seen = np.empty(n, dtype=bool)
        seen[order] = inside % 2 == 0
        # Half of the rows of each group, by how often the other half of it is flipped.
        counts = np.bincount(groups, weights=seen & (rows.flips == 1))
        seldom = counts <= np.bincount(groups, weights=seen) * rows.least
        classes = {"never": counts == 0, "seldom": seldom, "often": ~seldom}
        for often, chosen in classes.items():
            judged = rows.flips[chosen[groups] & ~seen]
            said = f"rows with the same {name} as others that are flipped {often}"
            yield _Group(name=said, flipped=int(judged.sum()), rows=len(judged))
        for odd in (0, 1):
            at = np.flatnonzero(same & (inside % 2 == odd))
            pairs = np.column_stack([order[at], order[np.minimum(at + 1, n - 1)]])
            yield from _beside(f"rows with the same {name}", rows.flips, pairs)


def _lagged(where: str, flips: Integer[np.ndarray, " m"], lags: Iterable[int]) -> Iterator[_Group]:
    """Yield the rows that follow a flip, or none, at each distance; every pair is in one half."""
    at = np.arange(len(flips))
    for lag in lags:
        half = at[: len(flips) - lag] // lag % 2
        before, after = flips[: len(flips) - lag], flips[lag:]
        table = np.bincount(4 * half + 2 * before + after, minlength=8).tolist()
        name = f"rows {lag} behind {{}} {where}"
        for kept, flipped, told in zip(table[::2], table[1::2], (0, 1, 0, 1), strict=True):
            said = name.format("a flip" if told else "a label that is kept")
            yield _Group(name=said, flipped=flipped, rows=kept + flipped)


def _beside(
    name: str, flips: Integer[np.ndarray, " m"], pairs: Integer[np.ndarray, "p 2"]
) -> Iterator[_Group]:
    """Yield the second rows of pairs by whether the first is flipped."""
    before, after = flips[pairs[:, 0]], flips[pairs[:, 1]]
    for told in (0, 1):
        chosen = after[before == told]
        said = f"{name} as a {'flip' if told else 'label that is kept'}"
        yield _Group(name=said, flipped=int(chosen.sum()), rows=len(chosen))


def _count_ratio(kept: int, rows: int, turned: int, others: int, epsilon: float) -> float:
    """Return the p-value of one output coming more than e^ε times as often from one label."""
    # Source: For each chance q of the output under the other label, at most e^ε·q under the one,
    # the two tails are independent; P(product ≤ t) ≤ t·(1 − log t) (Fisher 1932). The largest over
    # all q counts. Between grid points both tails are taken at the end where they are larger.
    if not rows or not others:
        return 1.0
    share = float(np.exp(-epsilon))
    low, high = turned / others, kept / rows * share
    if low >= high:
        return 1.0
    grid = np.linspace(low, high, 257)
    few = [mixed_at_least(others - turned, others, 1 - q) for q in grid.tolist()]
    many = [mixed_at_least(kept, rows, min(1.0, q / share)) for q in grid.tolist()]
    inside = max(one * other for one, other in zip(few[:-1], many[1:], strict=True))
    product = max(many[0], few[-1], inside)
    return min(1.0, product * (1 - float(np.log(product)))) if product > 0 else 0.0


def _label_evidence(rows: _Rows) -> Evidence:
    """Return how surely rows of one label are flipped too seldom for how often the others are."""
    # Labels are looked at in the order written and in every public order.
    has, truth = rows.released, rows.truth
    frames = {"the order written": np.ones_like(truth), **rows.orders}
    if has.displayed is not None:
        frames["the order shown"] = has.displayed[rows.places].astype(np.int64)
    at = np.arange(len(truth))
    frames |= {"an order that turns at half": 2 * at // len(at), "an order by turns": at % 2}
    tries: list[tuple[float, str, int, int, int, int]] = []
    for name, bits in frames.items():
        told = bits != UNKNOWN
        labels, flips = (truth ^ bits)[told], rows.flips[told]
        for label in (0, 1):
            mine, theirs = flips[labels == label], flips[labels != label]
            kept, turned = int(np.sum(mine == 0)), int(theirs.sum())
            p_value = _count_ratio(kept, len(mine), turned, len(theirs), has.epsilon)
            tries.append((p_value, name, kept, len(mine), turned, len(theirs)))
    least, name, kept, mine, turned, theirs = min(tries)
    said = (
        f"In {name!r}, one answer was written for {100 * kept / max(mine, 1):.1f} % of the {mine} "
        f"labels that say so and for {100 * turned / max(theirs, 1):.1f} % of the {theirs} others; "
        f"epsilon={never_less(has.epsilon)} lets these differ by a factor of "
        f"{np.exp(has.epsilon):.3g}"
    )
    told = {"order": name, "kept": [kept, mine], "turned": [turned, theirs], "groups": len(tries)}
    return _evidence("label-flips", len(tries) * least, said, details=told)


def _exact_evidence(rows: _Rows) -> Evidence:
    """Return how surely numbers of flips were fixed: they are just the expected ones too often."""
    # Source: For independent coins with variances of σ² in all, no number of flips has a chance
    # above e^(−σ²)·I₀(σ²): the characteristic function is at most exp(−2σ² sin²(t/2)).
    tries: list[tuple[float, str, int, int]] = []
    n, least = len(rows.places), rows.least
    for name, groups in _countings(rows):
        sizes, counts = np.bincount(groups), np.bincount(groups, weights=rows.flips)
        counts, sizes = counts[sizes >= _LAST], sizes[sizes >= _LAST]
        if not len(sizes):
            continue
        chance = float(i0e(sizes * least * (1 - least)).mean())
        for rounded in (np.floor(sizes * least), np.ceil(sizes * least)):
            hits = int(np.sum(counts == rounded))
            once = chance if hits else 1.0
            many = mixed_at_least(hits, len(sizes), chance)
            tries.append((many if len(sizes) > 1 else once, name, hits, len(sizes)))
    chance = float(i0e(n * least * (1 - least)))
    whole = int(rows.flips.sum()) == round(n * least)
    p_value, name, hits, among = min(tries, default=(1.0, "the file", 0, 0))
    said = f"In {hits} of {among} groups of rows ({name}) just the expected number is flipped"
    wrong = ": that number was fixed beforehand, and the last flip follows from the others."
    told = {"whole": whole, "chance": chance, "groups": among, "hits": hits}
    return _evidence("exact-flips", max(1, len(tries)) * p_value, said, wrong=wrong, details=told)


def _countings(rows: _Rows) -> Iterator[tuple[str, Integer[np.ndarray, " m"]]]:
    """Yield groups of rows whose numbers of flips may have been fixed."""
    n = len(rows.places)
    yield "all rows", np.zeros(n, dtype=np.int64)
    for size in _ROUND_SIZES:
        whole = n // size
        if whole > 1:
            # the rest stands alone in groups that are too small to count
            tail = whole + np.arange(n - whole * size)
            yield f"blocks of {size}", np.append(np.repeat(np.arange(whole), size), tail)
    for parts in _PARTS:
        yield f"{parts} equal parts", np.arange(n) * parts // n
    yield from ((f"rows with the same {name}", groups) for name, groups in rows.shared.items())
    yield "rows of one label", rows.truth
    swapped = rows.released.swapped[rows.places]
    yield "rows of one label in canonical order", rows.truth ^ swapped


def find_exact_count(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings with a warning where a whole file has just the expected number of flips."""
    # One file cannot refute that: honest coins meet the number now and then, in files of 2,000
    # labels once in 50. Two files of one maker that both do are another matter.
    told = list(findings)
    for place, found in enumerate(findings):
        chance = found.details.get("chance")
        whole = found.outcome == "clear" and found.details.get("whole")
        if whole and isinstance(chance, float) and chance <= _RARE:
            summary = ATTACKS["exact-flips"]["odd"].format(1 / chance)
            told[place] = replace(found, outcome="warning", summary=summary)
    return told


def _detectable_epsilon(rows: int, epsilon: float, level: float) -> float:
    """Return the smallest ε whose coins are refuted 19 times of 20, where this one is claimed."""
    # The flip rate refutes if so few flips have a probability of at most level/2 under the claim,
    # for two tails count. Of coins that all flip with one rate, the largest rate is sought that
    # shows so few flips with probability `POWER`.
    rate = float(expit(-epsilon))
    under = bisect_right(range(rows), level / 2, key=lambda k: at_most(k, rows, rate))
    if not under:
        return math.inf
    return float(logit(1 - betaincinv(under, rows - under + 1, 1 - POWER)))


def rows_that_judge(epsilon: float, level: float, largest: float) -> int | None:
    """Return about how many rows find a loss of so much; None if no file has so many."""

    def judges(rows: int) -> bool:
        return _detectable_epsilon(rows, epsilon, level) <= largest

    many = 1
    while not judges(many):
        many *= 2
        if many > _MOST_ROWS:
            return None
    return bisect_left(range(many), True, lo=many // 2, key=judges)


def measure_flips(
    released: Released, confidence: float = 0.95, *, level: float | None = None
) -> Measurement | None:
    """Return the ε that the flip rate of a file shows, or None if no row can be judged."""
    # The level is the p-value at which the flip rate refutes; 1 − confidence if it is None.
    # Source: Warner 1965: ε = |log((1 − f)/f)| for a flip rate f; its interval by Clopper & Pearson
    # 1934.
    flips = _own_coins(released).flips
    flipped, n = int(flips.sum()), len(flips)
    if n == 0:
        return None
    each = (1 + confidence) / 2
    low, high = clopper_pearson(flipped, n, each)
    ends = [float(logit(1 - high)), float(logit(1 - low))]
    needed = 1 - confidence if level is None else level
    return Measurement(
        attack="flip-rate",
        metric="epsilon",
        claimed=released.epsilon,
        lower=0.0 if ends[0] <= 0 <= ends[1] else min(map(abs, ends)),
        upper=max(map(abs, ends)),
        confidence=confidence,
        power=_detectable_epsilon(n, released.epsilon, needed),
    )
