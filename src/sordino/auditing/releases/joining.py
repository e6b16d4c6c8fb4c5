"""What was truly preferred, for every row of a released file, looked up in the raw file."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sordino.errors import DataError
from sordino.preferences.files import Progress, read_rows
from sordino.preferences.records import canonical, parse_records, question_of, turned
from sordino.privacy.guarantee import UNDECIDED

from .reading import UNKNOWN, Released, flat

_FEWEST = 0.5  # share of rows that must be found, or it is another file
_CHOSEN_FIRST = 0.99  # share of one label in the order written that makes the order the label
_MATCHED, _UNMATCHED, _AMBIGUOUS, _NEITHER = range(4)


class _JoinCounts(NamedTuple):
    """How many rows of a released file were found in the raw one."""

    matched: int  # rows whose truth is known
    unmatched: int  # rows whose question is not in the raw file
    # Rows that raw records with different labels fit, or whose two answers are the same.
    ambiguous: int
    undecided: int  # rows whose raw label says neither, so that there is nothing to recover


class _Judgment(NamedTuple):
    """One raw record: its texts in some order, and 1 if the first one won."""

    texts: tuple[str, str, str]
    outcome: int
    person: str | None
    # Whether that order is that of a `first` and a `second`, which may have been there before the
    # label.
    displays: bool


class _Fit(NamedTuple):
    """What a raw record says of a question, in the canonical order of its texts."""

    outcome: int
    person: str | None
    first: bool


def join_truth(
    released: Released,
    raw: str | Path,
    *,
    person_field: str = "person",
    progress: Progress | None = None,
) -> tuple[Released, _JoinCounts]:
    """Return the same rows with what was truly preferred, and how many were found."""
    # A row is found by its question: letter by letter, and where that fails, after all texts were
    # tidied (NFC, line ends, spaces). Where a question occurs more than once, the person decides,
    # and the n-th judgment of one person goes to the n-th row if there are as many of both;
    # anything else is known only if all labels that fit agree.
    judgments = list(_judgments(Path(raw), person_field, progress))
    search, n = _Search(released), len(released)
    search.look_up(judgments, str)
    if (search.status == _UNMATCHED).any():
        search.look_up(judgments, tidied)
    counts = _JoinCounts(*np.bincount(search.status, minlength=4).tolist())
    found = n - counts.unmatched
    if found < _FEWEST * n or not counts.matched:
        raise DataError(
            f"The raw file does not fit: of {n} released rows, {found} have a question "
            "that is in it, and half of them must, with at least one label that is certain. "
            "Nothing was audited. Give the file that the release was made from."
        )
    # The raw file's order may have been there before its labels, unless it nearly is the label.
    decided = [each.outcome for each in judgments if each.outcome != UNDECIDED]
    share = sum(decided) / max(len(decided), 1)
    displays = all(each.displays for each in judgments) and max(share, 1 - share) < _CHOSEN_FIRST
    displayed = search.displayed if displays else None
    return replace(released, truth=search.truth, displayed=displayed), counts


def _judgments(raw: Path, person_field: str, progress: Progress | None) -> Iterator[_Judgment]:
    """Yield every raw record with flat texts, in the order written if that is not the label."""
    for where, row in read_rows(raw, person_field=person_field, progress=progress):
        named = {person_field, f"{person_field}s"} & row.keys()
        for record in parse_records(row, where, person_field=person_field if named else "person"):
            if record.privatized:
                raise DataError(
                    f"{record.where}: a randomized answer, not a raw judgment. The raw file is "
                    "the one that was never released. Nothing was audited."
                )
            pair, displays = (flat(record.first), flat(record.second)), "chosen" not in row
            swap = displays and pair[0] != flat(
                question_of(row, "first", "second", record.where)[1]
            )
            texts = (flat(record.prompt), pair[swap], pair[not swap])
            yield _Judgment(texts, turned(record.outcome, swap=swap), record.person, displays)


def tidied(text: str) -> str:
    r"""Return a text in NFC, without spaces around it, each run of white space one space."""
    return " ".join(unicodedata.normalize("NFC", text).split())


class _Search:
    """What is known of every row of a released file so far."""

    def __init__(self, released: Released) -> None:
        self.released = released
        self.truth = np.full(len(released), UNKNOWN, dtype=np.int8)
        self.displayed = np.full(len(released), UNKNOWN, dtype=np.int8)
        self.status = np.full(len(released), _UNMATCHED, dtype=np.int8)

    def look_up(self, judgments: Sequence[_Judgment], rule: Callable[[str], str]) -> None:
        """Look for the rows that were not found yet, by texts after a rule."""
        known: defaultdict[bytes, list[_Fit]] = defaultdict(list)
        for each in judgments:
            swap, key = canonical(*map(rule, each.texts))
            known[key].append(_Fit(turned(each.outcome, swap=swap), each.person, not swap))
        # Rows of one question and person, with how they are turned.
        groups: defaultdict[tuple[bytes, str | None], list[tuple[int, bool]]] = defaultdict(list)
        has = self.released
        for row in np.flatnonzero(self.status == _UNMATCHED).tolist():
            prompt, one, other = map(rule, (has.prompts[row], has.first[row], has.second[row]))
            if one == other:
                self.status[row] = _AMBIGUOUS
                continue
            swap, key = canonical(prompt, one, other)
            groups[key, has.persons[row] if has.persons else None].append((row, swap))
        for (key, person), rows in groups.items():
            # All records count if the person is not named among them: the ids of a released file
            # may be pseudonyms of those in the raw one.
            fits = known.get(key, [])
            own = [fit for fit in fits if person is not None and fit.person == person]
            paired = bool(own) and len(own) == len(rows)
            for at, (row, swap) in enumerate(rows):
                those = [own[at]] if paired else own or fits
                outcomes = {fit.outcome for fit in those}
                firsts = {fit.first for fit in those}
                if len(firsts) == 1:
                    self.displayed[row] = firsts.pop() != swap
                if len(outcomes) > 1:
                    self.status[row] = _AMBIGUOUS
                elif outcomes == {UNDECIDED}:
                    self.status[row] = _NEITHER
                elif outcomes:
                    self.status[row] = _MATCHED
                    self.truth[row] = turned(outcomes.pop(), swap=swap)
