"""Whether something other than the answers of a released file tells who was preferred.

The raw file says what the labels are. A channel refutes the claim if it is right more often than
ε permits anything in the file to be, given what is public anyway: people have tastes, so labels are
not even given a person, a question that many answered, a declared column, which answer is longer. A
channel is held to no more than the claim allows *on top of* that.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from itertools import accumulate
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from jaxtyping import Bool, Integer
from scipy.special import expit, logit

from sordino._validate import Integers
from sordino.auditing.statistical.bounds import clopper_pearson

from .reading import UNKNOWN, Channel, Evidence, Released, mixed_at_least, parsed, tidied
from .recipes import AGREEMENT, CANONICAL, in_canonical_order, reproduces, rule_bits

_MOST_VALUES = 50
"""A column of more distinct values is read by its characters or numbers, not by its values."""

Number: TypeAlias = int | float
_T = TypeVar("_T")
_MICROSECONDS = 10**6
_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH = 10**8  # seconds since then; a smaller number is no time stamp
_DECIMAL = re.compile(r"[+-]?\d{1,40}(\.\d{1,40})?")
_STAMP = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?\s*(Z|[+-]\d\d:?\d\d)?)?")
_FEWEST_CHARACTERS = 20  # a shorter beginning is a word that many texts begin with
_FITTING = 0.9  # share of rows in which a number must be a length, or it is another number


class Reading(NamedTuple):
    """One way to read a column: rows of one group may share a label."""

    attack: str  # `"column"`, or `"time"` for numbers and time stamps
    name: str  # how it is read, for details
    groups: Integer[np.ndarray, " n"]  # group number of every row


def numbered(values: Iterable[object], *, most: int | None = None) -> Integer[np.ndarray, " n"]:
    """Return a group number for every value, equal for equal values, the most frequent first."""
    # Kinds are not mixed: true is not 1, "1" is not 1.
    keys: list[Hashable] = [
        value
        if isinstance(value, str | bytes) or value is None
        else (type(value).__name__, json.dumps(value, sort_keys=True, default=str))
        for value in values
    ]
    ranks = {key: rank for rank, (key, _) in enumerate(Counter(keys).most_common())}
    groups = np.array([ranks[key] for key in keys], dtype=np.int64)
    return groups if most is None else np.minimum(groups, most - 1)


def _number(value: object) -> Number | None:
    """Return a number, a numeral, or a time stamp in microseconds; None for anything else."""
    if not isinstance(value, str):
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return value if isinstance(value, int) or math.isfinite(value) else None
    text = value.strip()
    if _DECIMAL.fullmatch(text):
        return float(text) if "." in text else int(text)
    with suppress(ValueError):
        if _STAMP.fullmatch(text):
            moment = datetime.fromisoformat(re.sub(r"\s+(?=[Z+-])", "", text))
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return (moment - _1970) // timedelta(microseconds=1)
    return None


def ordered_values(values: Sequence[object]) -> list[Number | None] | None:
    """Return a column as numbers, None where a row lacks it; None if it is not all numbers."""
    numbers = [_number(value) for value in values]
    there = [number is not None for number in numbers]
    return numbers if any(there) and there == [value is not None for value in values] else None


def ranked_blocks(numbers: Sequence[Number | None], blocks: int) -> Integer[np.ndarray, " n"]:
    """Return which of some blocks of about equal size each number lies in; equal ones together."""
    counts = Counter(number for number in numbers if number is not None)
    distinct = sorted(counts)
    upto = dict(zip(distinct, accumulate(counts[one] for one in distinct), strict=True))
    total = max(1, sum(counts.values()))
    return np.array(
        [blocks if one is None else (upto[one] - counts[one]) * blocks // total for one in numbers],
        dtype=np.int64,
    )


def _blocks(n: int) -> int:
    """Return into how many blocks n rows are cut, so that each has rows to learn from."""
    return min(32, max(2, n // 16))


def readings(values: Sequence[object]) -> Iterator[Reading]:
    """Yield every way to read a column that has more than one group."""
    ordered, whole = ordered_values(values), numbered(values)
    kinds = int(whole.max(initial=0)) + 1
    found = [("column", "value", whole)] if kinds <= _MOST_VALUES else []
    if kinds > min(_MOST_VALUES, len(values) // 8):
        found += [("column", *each) for each in _text_parts(values, ids=ordered is None)]
        if ordered is not None:
            found += [("time", *each) for each in _number_parts(values, ordered)]
    for attack, name, groups in found:
        if groups.any():
            yield Reading(attack, name, groups)


def _text_parts(values: Sequence[object], *, ids: bool) -> Iterator[tuple[str, np.ndarray]]:
    """Yield what texts begin and end with, how long they are, and the parts of ids."""
    # Of a time stamp, the time zone is the same in every row.
    texts: list[str | None] = []
    for value in values:
        text = value.strip() if isinstance(value, str) else json.dumps(value, default=str)
        plain = re.sub(r"\s*(Z|[+-]\d\d:?\d\d)$", "", text) if _STAMP.fullmatch(text) else text
        texts.append(None if value is None else plain)
    whole: dict[str, Callable[[str], object]] = {
        "first character": lambda text: text[:1],
        "last character": lambda text: text[-1:],
        "length": len,
    }
    for name, part in whole.items():
        yield name, numbered((t if t is None else part(t) for t in texts), most=_MOST_VALUES)
    last = [None if text is None else text[-1:] for text in texts]
    if all(one is None or re.fullmatch("[0-9a-fA-F]", one) for one in last):
        yield "parity", numbered(one if one is None else int(one, 16) % 2 for one in last)
    if not ids:
        return
    # The parts of ids such as "q17-b-1", where they are few different ones.
    split = [[] if text is None else re.split(r"[^0-9A-Za-z]+", text) for text in texts]
    most = max(map(len, split), default=0)
    for place in (*range(min(most, 6)), -1) if most > 1 else ():
        groups = numbered(parts[place] if place < len(parts) > 0 else None for parts in split)
        if groups.max() < _MOST_VALUES:
            yield f"part {place + 1}" if place >= 0 else "last part", groups


def _number_parts(
    values: Sequence[object], ordered: Sequence[Number | None]
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield ranges of numbers and of time stamps, and the last digits of whole numbers."""
    yield "range", ranked_blocks(ordered, _blocks(len(ordered)))
    yield "half", ranked_blocks(ordered, 2)
    digits: list[int | None] = [None] * len(ordered)
    fractions: list[Number | None] = [None] * len(ordered)
    for row, (value, number) in enumerate(zip(values, ordered, strict=True)):
        if number is None:
            continue
        # The last digit is that before the point; of a time stamp, that of its whole seconds. A
        # fraction is what lies below one; of an epoch, below its second.
        stamp = isinstance(value, str) and not _DECIMAL.fullmatch(value.strip())
        size = abs(number) // _EPOCH  # of seconds; larger epochs count parts of them
        unit = next((unit for unit in (10**9, 10**6, 10**3) if size >= unit), 1)
        digits[row] = int(abs(number)) // (_MICROSECONDS if stamp else 1) % 10
        fractions[row] = round(number % (_MICROSECONDS if stamp else unit), 6)
    yield "last digit", numbered(digits)
    yield "fraction", numbered(fractions, most=_MOST_VALUES)
    yield "half of the fraction", ranked_blocks(fractions, 2)


def quoting_channels(released: Released) -> Iterator[Channel]:
    """Yield a channel for every column and way in which it quotes one answer and not the other.

    Guarantee:
        No released answer and no label is looked at.
    """
    pairs = list(zip(released.first, released.second, strict=True))
    said = [(_spoken(one) or "", _spoken(other) or "") for one, other in pairs]
    for name, values in released.columns.items():
        texts = [_spoken(value) for value in values]
        # Which answer each value is: as it is written, or else as it is spoken.
        written = _guesses(values, pairs, lambda value, answer: value == answer)
        tidy = _guesses(texts, said, lambda text, answer: text == answer != "")
        found = {"quotes an answer": np.where(written == UNKNOWN, tidy, written)}
        found["ends with an answer"] = _guesses(
            texts, said, lambda text, answer: len(text) > len(answer) > 0 and text.endswith(answer)
        )
        found["begins as an answer"] = _guesses(texts, said, _begins)
        numbers = ordered_values(values)
        for reading, size in _LENGTHS.items() if numbers is not None else ():
            sizes = [(size(one), size(other)) for one, other in pairs]
            fits = [one in both for one, both in zip(numbers or (), sizes, strict=True)]
            if np.mean(fits) >= _FITTING:
                found[reading] = _guesses(numbers or (), sizes, lambda one, other: one == other)
        for reading, guesses in found.items():
            if (guesses != UNKNOWN).any():
                details = {"column": name, "reading": reading}
                yield Channel(name="column", guesses=guesses, details=details)


_LENGTHS: Mapping[str, Callable[[str], int]] = {
    "length of an answer": len,
    "words of an answer": lambda text: len(text.split()),
}


def _spoken(value: object) -> str | None:
    r"""Return what a value says, tidied: of messages the contents, of a ranking what is first."""
    inside = parsed(value)
    if not isinstance(inside, str):
        several = inside if isinstance(inside, list | tuple) else [inside]
        if several and isinstance(several[0], str):
            inside = several[0]
        else:
            contents = [one.get("content") for one in several if isinstance(one, Mapping)]
            texts = [one for one in contents if isinstance(one, str)]
            inside = " ".join(texts) if texts else value
    return tidied(inside) if isinstance(inside, str) else None


def _begins(text: str, answer: str) -> bool:
    """Return whether a text is the beginning of an answer, or the reverse; dots do not count."""
    text = text.rstrip(".… ")
    shorter = min(len(text), len(answer))
    return shorter >= _FEWEST_CHARACTERS and text[:shorter] == answer[:shorter]


def _guesses(
    values: Sequence[_T | None], pairs: Sequence[tuple[_T, _T]], quotes: Callable[[_T, _T], bool]
) -> Integer[np.ndarray, " n"]:
    """Return 1 or 0 where a value quotes the first or the second only, ``UNKNOWN`` elsewhere."""
    found = np.full(len(values), UNKNOWN)
    for row, (value, (first, second)) in enumerate(zip(values, pairs, strict=True)):
        if value is not None and (one := bool(quotes(value, first))) != bool(quotes(value, second)):
            found[row] = one
    return found


DISPLAYED = "order shown to the annotator"
# The largest share of labels that habit or taste may explain where nobody can measure it.
_MOST_BIAS = 0.9

FAILURE = 1e-7
"""Chance that the bound on one public factor is too small; added to every p-value."""

_SIDES = 3  # what a public order says of a row: yes, no, nothing
_RANGES = 8  # into which many numbers of a declared column are put
_WRITTEN = "written"
_MOST_CONSTANT = 0.95
_SUBJECTS = {
    "position": "The order in which two answers are written",
    "row-order": "The place of a row in the file",
    "id-hash": "An id",
}


def independent_rows(released: Released) -> Bool[np.ndarray, " n"]:
    """Return the first row of every (person, question); without ids, of every question."""
    # Repeats of one person may carry one stored answer, and one label; without ids nobody knows
    # whether two rows are one person's, so the first alone counts.
    names = released.persons or ("",) * len(released)
    seen: set[tuple[str, bytes]] = set()
    once = np.zeros(len(released), dtype=bool)
    for index, pair in enumerate(zip(names, released.keys, strict=True)):
        once[index] = pair not in seen
        seen.add(pair)
    return once


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class PublicKnowledge:
    """What is public about the rows of a file whose labels the auditor holds."""

    released: Released  # the file, with `truth`
    # Columns that are declared to have been fixed before the labels.
    covariates: tuple[str, ...] = ()
    # The bounds already computed, by the rows they are for.
    _bounds: dict[tuple[bytes, bool], float] = field(default_factory=dict, init=False)

    @cached_property
    def truth(self) -> Integers:
        """Return who was preferred, in the order written."""
        truth = self.released.truth
        return np.full(len(self.released), UNKNOWN) if truth is None else truth

    @cached_property
    def known(self) -> Bool[np.ndarray, " n"]:
        """Return which rows count: independent of each other, and of known label."""
        return np.asarray(independent_rows(self.released) & (self.truth != UNKNOWN))

    @cached_property
    def factors(self) -> list[Integers]:
        """Return groups of rows that may share a taste: an array of group numbers per factor."""
        # Factors are the person, the question where one occurs twice, and each declared column; one
        # group of all rows if there is none of these.
        released, found = self.released, []
        for name in self.covariates:
            values = released.columns.get(name)
            if values is not None:
                groups, ordered = numbered(values), ordered_values(values)
                many = ordered is not None and groups.max(initial=0) >= _MOST_VALUES
                found.append(ranked_blocks(ordered, _RANGES) if ordered and many else groups)
        if released.persons is not None:
            found.append(numbered(released.persons))
        questions = numbered(released.keys)
        if len(released) and questions.max() + 1 < len(released):
            found.append(questions)
        return found or [np.zeros(len(released), dtype=np.int64)]

    @cached_property
    def orders(self) -> dict[str, Integers]:
        """Return where the order written is that of each public order: 1, 0 or ``UNKNOWN``."""
        # The order in which the raw file shows the answers is one, unless it predicts more labels
        # than a habit of taking the first would: an order that nearly always has the better answer
        # first was not fixed before the labels.
        orders = rule_bits(self.released)
        shown = self.released.displayed
        if shown is None or not (judged := self.known & (shown != UNKNOWN)).any():
            return orders
        bias = float(np.mean((shown == self.truth)[judged]))
        return {**orders, DISPLAYED: shown} if 1 - _MOST_BIAS < bias < _MOST_BIAS else orders

    def log_odds(self, rows: Bool[np.ndarray, " n"], *, written: bool = False) -> float:
        """Return an upper bound on the |log-odds| of a label given what is public, on average.

        Guarantee:
            For one factor and any one order: with λ the |log-odds| in a row's cell, the mean
            of σ(ε + λ) over the rows is at most σ(ε + result) for every ε ≥ 0, except with
            probability ``FAILURE``. The mean of the larger chance q = σ(λ) is bounded by
            Clopper-Pearson from the number of labels that agree with the majority of their cell,
            never fewer than agree with the larger chance; σ(ε + logit q) is concave in q ≥ 1/2.
            Shown by tests/statistical/test_release_attacks.py.
        """
        # Each factor is crossed with each public order as seen from the canonical one, and the
        # order that tells most counts, for people differ in taste; the log-odds of several factors
        # add up.
        # Source: Clopper & Pearson 1934, for unequal chances by Hoeffding 1956, Theorem 4: the
        # bound is below the mean only at counts whose binomial tail is under `FAILURE`; half of a
        # binomial lies at or below its rounded mean, so they are one or more below the mean, where
        # equal chances make the tail heaviest.
        key = rows.tobytes(), written
        if key not in self._bounds:
            swapped = self.released.swapped
            labels = in_canonical_order(self.truth, swapped)[rows]
            sides = [np.full(len(swapped), UNKNOWN)]
            sides += [in_canonical_order(bits, swapped) for bits in self.orders.values()]
            sides += [1 - swapped.astype(np.int64)] if written else []
            odds = 0.0
            for groups in self.factors:
                cells = (groups[rows] * _SIDES + side[rows] - UNKNOWN for side in sides)
                agreeing = max(_with_majority(labels, each) for each in cells)
                upper = clopper_pearson(agreeing, len(labels), 1 - FAILURE)[1]
                odds += float(logit(max(upper, 0.5)))
            # Where the order written is a public one other than the canonical hash order, whatever
            # tells people apart, such as the place of a row among those of one annotator, tells
            # something of labels in that order: some like longer answers, some shorter ones.
            once = np.ones(int(self.known.sum()), dtype=np.int64)
            if written and any(
                reproduces(bits[self.known], once)
                for name, bits in self.orders.items()
                if name != CANONICAL
            ):
                odds = max(odds, float(logit(_MOST_BIAS)))
            self._bounds[key] = odds
        return self._bounds[key]


def _with_majority(labels: Integers, cells: Integers) -> int:
    """Return how many labels are those of the majority of their cell."""
    # A row alone in its cell would always be; such rows are put together, by what the order says.
    last = cells.max(initial=0) // _SIDES * _SIDES + _SIDES
    alone = np.bincount(cells)[cells] == 1
    cells = np.where(alone, last + cells % _SIDES, cells)
    ones, sizes = np.bincount(cells, weights=labels), np.bincount(cells)
    return int(np.maximum(ones, sizes - ones).sum())


def recovery_bound(right: int, rows: int, log_odds: float, confidence: float) -> float:
    """Return the ε without which so many labels cannot be read out, given what is public."""
    # Source: Under ε a guess is right with chance at most σ(ε + |log-odds given what is public|);
    # the chance itself by Clopper & Pearson 1934.
    low, _ = clopper_pearson(right, rows, confidence)
    return max(0.0, float(logit(low)) - log_odds) if low > 0 else 0.0


def order_channels(released: Released) -> list[Channel]:
    """Return everything in a file, but ids and answers, that may say who was preferred.

    Guarantee:
        No released answer is looked at, and no label of a row for a guess about that row or any
        row of its half.
    """
    channels = []
    if released.layout != "chosen-rejected":
        channels.append(Channel(name="position", guesses=np.ones(len(released), dtype=np.int64)))
    n = len(released)
    at, most = np.arange(n), max(1, n)
    places = {"block": at * _blocks(n) // most, "half": at * 2 // most, "parity": at % 2}
    told = {name: groups for name, groups in places.items() if groups.any()}
    rows = [Reading("row-order", name, groups) for name, groups in told.items()]
    read: list[tuple[dict[str, object], Iterable[Reading]]] = [({}, rows)]
    read += [({"column": name}, readings(values)) for name, values in released.columns.items()]
    usable, swapped = independent_rows(released), released.swapped
    turns = {_WRITTEN: np.zeros_like(swapped)}
    if swapped.min(initial=True) != swapped.max(initial=False):
        turns["canonical"] = swapped  # else it is the order written, or its reverse: nothing new
    for column, ways in read:
        for reading in ways:
            for frame, turn in turns.items():
                details = {**column, "reading": reading.name, "order": frame}
                if reading.groups.max() == 1:
                    guesses = reading.groups
                elif released.truth is not None:
                    labels = in_canonical_order(released.truth, turn)
                    guesses = _cross_fitted(reading.groups, labels, usable & (labels != UNKNOWN))
                    details["learned"] = True
                else:
                    continue
                guesses = in_canonical_order(guesses, turn)
                channels.append(Channel(name=reading.attack, guesses=guesses, details=details))
    return [*channels, *quoting_channels(released)]


def _halves(n: int) -> Integers:
    """0 or 1 for every row: two rows of one, two of the other, so that both have parities."""
    # Alternating single rows would hide a label written into the parity of the row.
    return np.arange(n) // 2 % 2


def _cross_fitted(groups: Integers, labels: Integers, usable: Bool[np.ndarray, " n"]) -> Integers:
    """Return the majority label of each row's group in the other half of the rows."""
    # Given the labels of one half, and all that is public, the labels of the other half are as
    # independent as ever; so each half may be judged by a binomial tail.
    guesses, half = np.full(len(groups), UNKNOWN), _halves(len(groups))
    for learnt in (0, 1):
        seen = usable & (half == learnt)
        votes = np.bincount(groups[seen], weights=2 * labels[seen] - 1, minlength=groups.max() + 1)
        majority = np.where(votes == 0, UNKNOWN, votes > 0)
        guesses[half != learnt] = majority[groups[half != learnt]]
    return guesses


def attack_channels(
    released: Released, channels: Iterable[Channel], *, covariates: Sequence[str] = ()
) -> list[Evidence]:
    """Return, for every channel, how surely it tells more about labels than the claim permits.

    Guarantee:
        If the file is ε-private for each label, labels of different (person, question) are
        independent given what is public, and every public factor that a channel may know is the
        person, the question, a declared column or a public order, then each p-value is at most
        α with probability at most α. Shown by tests/statistical/test_release_attacks.py.
    """
    # Source: Under ε the odds of a label move by at most e^ε when the file is seen, so that a guess
    # is right with probability at most σ(ε + |log-odds given what is public|); the number right has
    # a tail no heavier than the binomial with the mean of these (Hoeffding 1956). The mean is
    # bounded with failure probability `FAILURE`, which is added to the p-value (Berger & Boos
    # 1994).
    if released.truth is None:
        return []
    public = PublicKnowledge(released=released, covariates=tuple(covariates))
    spoken = [(channel, np.asarray(public.known & channel.speaks)) for channel in channels]
    return [_evidence(public, channel, rows) for channel, rows in spoken if rows.any()]


def _evidence(public: PublicKnowledge, channel: Channel, rows: Bool[np.ndarray, " n"]) -> Evidence:
    """Return what a channel shows in the rows where it may be judged."""
    learned = "learned" in channel.details
    right = channel.guesses == public.truth
    n, hits = int(rows.sum()), int(right[rows].sum())
    reverse = hits / n < 1 / 2 and not learned
    recovered = 1 - hits / n if reverse else hits / n
    column = channel.details.get("column")
    usual = _SUBJECTS.get(channel.name, f"The channel {channel.name!r}")
    subject = usual if column is None else f"The column {column!r}"
    if "reading" in channel.details:
        subject += f" (read by {channel.details['reading']})"
    details = {**channel.details, "rows": n, "reversed": reverse}
    reason = _exemption(public, channel, rows)
    if reason is not None:
        return Evidence(
            attack=channel.name,
            p_value=1.0,
            if_refutes=f"{subject} {reason}.",
            if_clear=f"{subject} {reason}.",
            recovered=None if reason == _AS_WRITTEN else recovered,
            details={**details, "exempt": True},
        )
    # What was learned is judged on each half on its own; what was not, both as it is and reversed.
    # The smaller tail counts twice (Bonferroni), for the two need not be independent.
    halves = [rows & (_halves(len(rows)) == half) for half in (0, 1)]
    tries = [(half, right) for half in halves] if learned else [(rows, right), (rows, ~right)]
    written = channel.details.get("order") == _WRITTEN
    tails, shares = [], []
    for judged, hit in tries:
        odds = public.released.epsilon + public.log_odds(judged, written=written)
        shares.append(float(expit(odds)))
        tails.append(mixed_at_least(int(hit[judged].sum()), int(judged.sum()), shares[-1]))
    p_value = min(1.0, len(tries) * (min(tails) + len(public.factors) * FAILURE))
    permitted = max(shares)
    told = (
        f"{subject} tells {100 * recovered:.1f} % of the labels; the claim and all that is public "
        f"let it tell {100 * permitted:.1f} %."
    )
    way_out = (
        "this is the order in which the answers were shown, give the raw file as first, second, "
        "label."
        if column is None
        else "it was fixed before the labels were given, declare "
        f"covariates=[{column!r}] (--covariate {column!r})."
    )
    told_rows = n - hits if reverse else hits
    public_odds = float(logit(permitted)) - public.released.epsilon
    return Evidence(
        attack=channel.name,
        p_value=p_value,
        if_refutes=f"{told} No public order rule explains it. If {way_out}",
        if_clear=f"{told} What is more may be chance." if recovered > permitted else told,
        recovered=recovered,
        details={**details, "permitted": permitted},
        bound=partial(recovery_bound, told_rows, n, public_odds) if permitted < 1 else None,
    )


_AS_WRITTEN = "says no more than the order written"


def _exemption(
    public: PublicKnowledge, channel: Channel, rows: Bool[np.ndarray, " n"]
) -> str | None:
    """Return why a channel says nothing about labels that is not public, or None."""
    guesses = channel.guesses[rows]
    if channel.details.get("column") in public.covariates:
        return "is declared to have been fixed before the labels"
    for name, bits in public.orders.items():
        if reproduces(bits[rows], guesses):
            return f"is explained by a public order ({name})"
    if channel.details.get("order") == _WRITTEN and reproduces(np.ones_like(guesses), guesses):
        return _AS_WRITTEN
    for name in public.covariates:
        if _explained(public.released, name, channel.guesses, rows):
            return f"is explained by the declared column {name!r}"
    return None


def _explained(
    released: Released, name: str, guesses: Integers, rows: Bool[np.ndarray, " n"]
) -> bool:
    """Return whether what a channel says follows from the value of a column, in either order."""
    # A channel that says nearly always the same is not explained by a column, whatever it holds.
    groups = numbered(released.columns.get(name, ()))
    if not len(groups) or groups.max() >= min(_MOST_VALUES, len(groups) // 8):
        return False
    groups = groups[rows]
    for turn in (np.zeros_like(released.swapped), released.swapped):
        said = in_canonical_order(guesses, turn)[rows]
        ones, sizes = np.bincount(groups, weights=said), np.bincount(groups)
        constant = max(said.mean(), 1 - said.mean()) > _MOST_CONSTANT
        if not constant and np.maximum(ones, sizes - ones).sum() >= AGREEMENT * len(said):
            return True
    return False
