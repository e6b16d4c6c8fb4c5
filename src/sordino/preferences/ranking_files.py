"""Rankings from files, and from any iterable of mappings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from sordino import _validate
from sordino.errors import DataError, SordinoError, UsageError
from sordino.preferences.ballots import OFFERS, UNSAID
from sordino.preferences.files import Progress, read_mappings, untold
from sordino.preferences.preflib import is_preflib, read_preflib
from sordino.preferences.ranking_records import (
    Ballot,
    item_names,
    parse_ballot,
    refuse_person_name,
)
from sordino.preferences.rankings import Rankings
from sordino.preferences.slates import digest_of_ballots
from sordino.preferences.tables import separator

__all__ = ["holds_rankings", "read_rankings"]

_Rows = Iterator[tuple[str, Any]]
_FIELDS = {"ranking", "ranks", "items"}


def holds_rankings(path: Path) -> bool:
    """Return whether a file looks like rankings: by its ending, or by the fields of its start.

    It reads one record at most; whether the file can be used is another question.
    """
    if is_preflib(path):
        return True
    if separator(path) is not None or not path.is_file():
        return False
    try:
        first = next(iter(read_mappings(path)), None)
    except SordinoError:
        return False
    return first is not None and isinstance(first[1], Mapping) and not _FIELDS.isdisjoint(first[1])


def read_rankings(
    source: str | Path | Iterable[Mapping[str, Any]],
    *,
    items: Sequence[str] | None = None,
    person_field: str = "person",
    offered: str | None = None,
    hides_records: bool = False,
    progress: Progress | None = None,
) -> Rankings:
    """Return the rankings of a file, or of any iterable of mappings.

    A record holds ``prompt`` and ``candidates`` (texts or chat messages, at least two), and either
    ``ranking``, a list of numbers of candidates (from 0) or of their texts, best first, or
    ``ranks``, one whole number for each candidate, 1 for the best. In an election everybody ranks
    the same items: a first record ``{"items": [...]}``, or ``items=``, names them all, and the
    others hold ``ranking`` (names) or ``ranks`` alone. A list inside ``ranking`` is a tie; who is
    missing there, or null in ``ranks``, was not listed. A ballot that lists nothing is a ballot.
    Where people could not choose from all items, ``offered`` in a ballot lists those that they
    could. Candidates are put into an order that their texts decide, which tells nothing of a
    ranking.

    Args:
        source: A ``.jsonl`` file, or one of PrefLib (``.soc``, ``.soi``, ``.toc``, ``.toi``), also
            with ``.gz``; or mappings.
        items: What everybody ranks, if no record says it. It must be public: it cannot be
            collected from the ballots.
        person_field: Name of the optional public person id.
        offered: What ballots over items were offered that do not say it: ``"all"``, every item,
            and which of them a ballot lists is private; ``"named"``, what the ballot lists,
            which makes that public; ``"each"``, every ballot must say it. None refuses to guess:
            such ballots must list every item, and that they do is public then. The endings
            ``.soc`` and ``.toc`` say that ballots list every item.
        hides_records: Whether all of a ballot is private, as under unit ``"record"``. Then there
            may be none over items that are said, persons are known if every ballot names one,
            and no message says which ballot cannot be used, or why.
        progress: Called with (bytes read, size of the file).

    Raises:
        DataError: A record cannot be used; place and field are named.
        UsageError: The person field is one of the others, ``items`` is given twice, or a ballot
            leaves items out and nothing says whether it was offered them.
        FileSystemError: The file cannot be read.

    Example:
        >>> read_rankings([{"prompt": "Hi", "candidates": ["Hello!", "Yes?", "What?"],
        ...                 "ranking": ["Hello!", "Yes?"]}])
        Rankings(n=1)
    """
    refuse_person_name(person_field)
    _validate.one_of("offered", offered, (None, *OFFERS, "each"))
    if not isinstance(source, (str, Path)):
        numbered = ((f"record {number}", row) for number, row in enumerate(source, start=1))
        with untold(hides_records=hides_records):
            return _gathered(numbered, items, person_field, offered, hides_records)
    path = Path(source)
    if is_preflib(path):
        if items is not None or person_field != "person":
            raise UsageError(
                "items and person_field must be left out for a PrefLib file: it names its "
                "alternatives and nobody else. Nothing was read."
            )
        with untold(hides_records=hides_records):
            return read_preflib(path, offered=offered, empty=hides_records, progress=progress)
    if separator(path):
        raise DataError(
            "Rankings are not read from a table. Nothing was read. Convert it to JSON Lines, or "
            "give arrays to sordino.Rankings.from_ranks."
        )
    rows = read_mappings(path, progress, empty=True)
    with untold(hides_records=hides_records):
        return _gathered(rows, items, person_field, offered, hides_records)


def _gathered(
    rows: _Rows,
    items: Sequence[str] | None,
    person_field: str,
    offered: str | None,
    hides_records: bool,  # noqa: FBT001 (one of the options above)
) -> Rankings:
    """Return the rankings of (place, record), after what may be said of items in the first."""
    names, rows = _items(rows, None if items is None else item_names(items, "items"))
    ballots = [
        parse_ballot(row, where, items=names, person_field=person_field) for where, row in rows
    ]
    if not ballots and (names is None or not hides_records):
        raise DataError("The input is empty: no ballot in it.")
    for ballot in ballots:
        if not hides_records and (ballot.person is None) != (ballots[0].person is None):
            raise DataError(
                f"{ballot.where}: a person id is given for some ballots and not for others."
            )
    known = tuple(ballot.person for ballot in ballots if ballot.person is not None)
    persons = known if ballots and len(known) == len(ballots) else None
    if names is not None:
        return _election(tuple(sorted(names)), ballots, persons, offered)
    if offered in OFFERS:
        raise UsageError(
            "offered (--all-offered, --named-offered) is for ballots over items; what these were "
            "offered are their candidates. Nothing was done. Leave it out."
        )
    columns = _columns(ballots)
    sizes = [len(ballot.ranks) for ballot in ballots]
    return Rankings(
        **columns,
        persons=persons,
        public_digest=digest_of_ballots(columns["keys"], persons),
        starts=np.concatenate([[0], np.cumsum(sizes)]),
        ranks=np.fromiter(chain.from_iterable(b.ranks for b in ballots), np.int64, sum(sizes)),
    )


def _items(rows: _Rows, items: tuple[str, ...] | None) -> tuple[tuple[str, ...] | None, _Rows]:
    """Return the items that an argument or the first record names, and the other records."""
    first = next(rows, None)
    if first is None:
        return items, rows
    where, row = first
    head = isinstance(row, Mapping) and "items" in row and not {"ranking", "ranks"} & row.keys()
    if not head:
        return items, chain([first], rows)
    if items is not None:
        raise UsageError("items must be left out: the first record names them. Nothing was read.")
    return item_names(row["items"], f"{where}: field 'items'"), rows


def _columns(ballots: Sequence[Ballot]) -> dict[str, Any]:
    """Return the public columns of ballots with candidates of their own."""
    return {
        "keys": tuple(ballot.key for ballot in ballots),
        "prompts": tuple(ballot.prompt for ballot in ballots),
        "candidates": tuple(chain.from_iterable(ballot.candidates for ballot in ballots)),
    }


def _election(
    items: tuple[str, ...],
    ballots: Sequence[Ballot],
    persons: tuple[str, ...] | None,
    offered: str | None,
) -> Rankings:
    """Return the rankings of ballots over items, each of those that it was offered."""
    table = np.array([ballot.ranks for ballot in ballots], dtype=np.int64).reshape(-1, len(items))
    said = [ballot.offered for ballot in ballots]
    if all(shown is None for shown in said) and offered != "each":
        return Rankings.of_items(items, table, offered=offered, persons=persons, empty=True)
    if None in said and offered != "all":
        raise UsageError(UNSAID)
    shown = np.array([[True] * len(items) if row is None else row for row in said], dtype=bool)
    shown = shown.reshape(table.shape)
    return Rankings.of_items(items, table, offered=shown, persons=persons, empty=True)
