"""Rankings from files, and from any iterable of mappings.

Among them are ballots of PrefLib, the public library of preferences: .soc, .soi, .toc and .toi
files. Such a file counts how many people gave each ballot; every one of them becomes a ballot here.
Files of today begin with lines "# NAME: value", those of before 2022 with the number of
alternatives.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from sordino import _random, _validate
from sordino.errors import DataError, UsageError

from .ballots import OFFERS, UNSAID, Ballot, item_names, order_ranks, parse_ballot
from .comparisons import PublicDigest, all_named
from .containers import Progress, Rows, every_line
from .files import Kind, kind_of, untold
from .rankings import Rankings
from .records import JUDGING_FIELDS, refuse_person_field
from .schemas import RANKINGS

_KINDS = {  # of each kind, whether a ballot lists everything, and whether it may hold ties
    ".soc": (True, False),
    ".soi": (False, False),
    ".toc": (True, True),
    ".toi": (False, True),
}

_OTHERS = (".cat", ".wmd", ".pwg", ".tog", ".mjg", ".wmg")
_MOST_BALLOTS = 10**6
_MOST_CELLS = 5 * 10**7  # candidates of all ballots together
_WHOLE = r"[0-9]{1,9}"
_PLACE = rf"(?:{_WHOLE}|\{{{_WHOLE}(?:,{_WHOLE})*\}})"
_ORDER = re.compile(rf"(?:{_PLACE}(?:,{_PLACE})*)?")
_PLACES = re.compile(_PLACE)
_NUMBER = re.compile(_WHOLE)
_MODERN = re.compile(rf"({_WHOLE}):(.*)")
_OLD = re.compile(rf"({_WHOLE})(?:,(.*))?")
_NAME = re.compile(rf"ALTERNATIVE NAME ({_WHOLE})")
_ALTERNATIVES, _VOTERS, _ORDERS = "NUMBER ALTERNATIVES", "NUMBER VOTERS", "NUMBER UNIQUE ORDERS"

_Lines = Sequence[tuple[int, str]]


def is_preflib(path: Path) -> bool:
    """Return whether a file is one of PrefLib, by its name; refuse one that holds no ballots."""
    kind = _kind(path)
    if kind in _OTHERS:
        raise DataError(
            f"A PrefLib file {kind} holds no rankings of people. Nothing was read. Known are "
            f"{', '.join(_KINDS)}."
        )
    return kind in _KINDS


def _kind(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()


# The names of the alternatives, how many voters and unique orders there are, how a line with a
# ballot looks, and those lines.
_Header = tuple[tuple[str, ...], int, int | None, re.Pattern[str], _Lines]


def _read_preflib(
    path: Path, *, offered: str | None = None, empty: bool = False, progress: Progress | None = None
) -> Rankings:
    """Return the ballots of a PrefLib file, one for every person, in random order."""
    # The name's ending decides what a ballot may be: `.soc` lists everything without ties, `.soi`
    # may leave out, `.toc` may tie, `.toi` may do both. A file has its ballots sorted by how many
    # gave them, so a row number would tell something of a ballot; they are shuffled by the
    # operating system's generator, after which it tells nothing.
    # Source: docs/rankings.md, "PrefLib".
    lines = _lines(path, progress)
    if not lines:
        raise DataError("The input is empty: no ballot in it.")
    modern = lines[0][1].startswith("#")
    header = (_modern_header if modern else _old_header)(lines, 0 if empty else 1)
    names, voters, unique, pattern, lines_of_ballots = header
    complete, ties = _KINDS[_kind(path)]
    k = len(names)
    # Of a file of a few bytes that stands for more ballots than are read, none is.
    if voters > _MOST_BALLOTS or voters * k > _MOST_CELLS:
        raise DataError(
            f"The header says that there are more ballots than are read: up to {_MOST_BALLOTS:,}, "
            f"and up to {_MOST_CELLS:,} places in all of them together. Nothing was read. Draw "
            "some of the ballots at random and write the counts of those."
        )
    if len(lines_of_ballots) > voters:
        raise DataError(
            "There are more lines with ballots than the header has voters: the file was edited."
        )
    counts, orders = [], []
    places: dict[Hashable, int] = {number: number - 1 for number in range(1, k + 1)}
    for number, line in lines_of_ballots:
        where = f"line {number}"
        count, order = _ballot(line, pattern, where)
        if not ties and any(len(place) > 1 for place in order):
            raise DataError(f"{where}: a tie; a file with ties is named .toc or .toi.")
        if complete and sum(map(len, order)) < k:
            raise DataError(
                f"{where}: an alternative is left out; a file with partial ballots is named .soi "
                "or .toi."
            )
        what, field = f"the number of an alternative, 1 to {k}", f"{where}: the ballot"
        counts.append(count)
        orders.append(order_ranks(order, places, k, what=what, field=field))
    for known, found, said, there in (
        (voters, sum(counts), "voters", "sum of the counts of the ballots"),
        (unique, len(counts), "unique orders", "number of lines with ballots"),
    ):
        if known is not None and known != found:
            raise DataError(
                f"The number of {said} in the header is not the {there}: the file was cut short, "
                "or edited."
            )
    table = np.repeat(np.array(orders, dtype=np.int64).reshape(-1, k), counts, axis=0)
    if not complete and offered not in OFFERS:
        raise UsageError(UNSAID)
    shown = "named" if complete else offered
    words = _random.entropy(None).words(len(table))
    rows = table[np.argsort(words, kind="stable")]
    return Rankings.of_items(names, rows, offered=shown, persons=None, empty=empty)


def _lines(path: Path, progress: Progress | None) -> _Lines:
    found = []
    for number, line in every_line(path, progress):
        text = line.decode("utf-8", errors="replace").strip()
        if "\ufffd" in text:
            raise DataError(f"line {number}: not valid UTF-8.")
        if text:
            found.append((number, text))
    return found


def _modern_header(lines: _Lines, fewest: int) -> _Header:
    values: dict[str, str] = {}
    names: dict[int, str] = {}
    end = next((at for at, (_, line) in enumerate(lines) if line[0] != "#"), len(lines))
    for number, line in lines[:end]:
        said, colon, value = line[1:].partition(":")
        field = said.strip()
        if not colon or not field:
            continue  # a remark
        name = _NAME.fullmatch(field)
        if field in values or (name and int(name[1]) in names):
            raise DataError(f"line {number}: the header says this twice.")
        if name:
            names[int(name[1])] = value.strip()
        else:
            values[field] = value.strip()
    k = _whole(values.get(_ALTERNATIVES), f"header: {_ALTERNATIVES}")
    voters = _whole(values.get(_VOTERS), f"header: {_VOTERS}", fewest)
    orders = _whole(values[_ORDERS], f"header: {_ORDERS}", fewest) if _ORDERS in values else None
    return _names(names, k), voters, orders, _MODERN, lines[end:]


def _old_header(lines: _Lines, fewest: int) -> _Header:
    """Return the header of a file from before 2022: a number, the names, three numbers."""
    k = _whole(lines[0][1], f"line {lines[0][0]}: the number of alternatives")
    if len(lines) < k + 2:
        raise DataError("The header is cut short: a line is missing for each alternative.")
    names: dict[int, str] = {}
    for number, line in lines[1 : k + 1]:
        place, comma, name = line.partition(",")
        where = f"line {number}: the number of an alternative"
        if not comma or _whole(place, where) in names:
            raise DataError(f"{where} must stand there once, before a comma and its name.")
        names[int(place)] = name.strip()
    number, line = lines[k + 1]
    where = f"line {number}: numbers of voters, ballots and different ballots"
    totals = [_whole(part, where, fewest) for part in line.split(",")]
    if len(totals) != 3 or totals[0] != totals[1]:  # noqa: PLR2004 (as the message says)
        raise DataError(f"{where} must be three, the first two equal.")
    return _names(names, k), totals[0], totals[2], _OLD, lines[k + 2 :]


def _whole(text: str | None, what: str, least: int = 1) -> int:
    text = (text or "").strip()
    if not re.fullmatch(_WHOLE, text) or int(text) < least:
        raise DataError(f"{what} must be a whole number of at least {least}.")
    return int(text)


def _names(names: dict[int, str], k: int) -> tuple[str, ...]:
    if len(names) != k or sorted(names) != list(range(1, k + 1)):
        raise DataError("header: there must be one name for each alternative, numbered from 1.")
    return item_names([names[number] for number in sorted(names)], "header: alternatives")


def _ballot(line: str, pattern: re.Pattern[str], where: str) -> tuple[int, list[list[int]]]:
    found = pattern.fullmatch(re.sub(r"\s+", "", line))
    order = (found[2] or "") if found else ""
    if not found or not _ORDER.fullmatch(order):
        raise DataError(
            f"{where}: expected a count and numbers of alternatives, best first, ties in braces: "
            f"{'5: ' if pattern is _MODERN else '5,'}1,2,{{3,4}}."
        )
    places = [[int(one) for one in _NUMBER.findall(place)] for place in _PLACES.findall(order)]
    return _whole(found[1], f"{where}: the count"), places


BALLOTS = Kind(  # of several candidates at once
    fields=JUDGING_FIELDS,
    judges=(RANKINGS,),
    not_in_tables=(
        "Rankings are not read from a table. Nothing was read. Convert it to JSON Lines, or "
        "give arrays to sordino.Rankings.from_ranks."
    ),
)


def holds_rankings(source: Path | Sequence[Path]) -> bool:
    """Return whether files look like rankings: by their ending, or by the fields of their start."""
    return (isinstance(source, Path) and is_preflib(source)) or kind_of(source) == RANKINGS


def read_rankings(
    source: object,
    *,
    items: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    person_field: str | None = "person",
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
        source: A source as :func:`sordino.read_pairs` takes it, but no table; or a file of PrefLib
            (``.soc``, ``.soi``, ``.toc``, ``.toi``), also with ``.gz``.
        items: What everybody ranks, if no record says it. It must be public: it cannot be
            collected from the ballots.
        columns: What our fields are called there, as in :func:`sordino.read_pairs`.
        person_field: Name of the optional public person id; None if persons do not matter.
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
    refuse_person_field(person_field or "person", BALLOTS.fields)
    _validate.one_of("offered", offered, (None, *OFFERS, "each"))
    if isinstance(source, (str, Path)) and is_preflib(Path(source)):
        if items is not None or person_field not in ("person", None):
            raise UsageError(
                "items and person_field must be left out for a PrefLib file: it names its "
                "alternatives and nobody else. Nothing was read."
            )
        with untold(hides_records=hides_records):
            return _read_preflib(
                Path(source), offered=offered, empty=hides_records, progress=progress
            )
    rows = BALLOTS.rows(
        source,
        columns=columns,
        person_field=person_field,
        asks=not hides_records,
        empty=True,
        progress=progress,
    )
    with untold(hides_records=hides_records):
        names, rows = _items(rows, None if items is None else item_names(items, "items"))
        parse = partial(parse_ballot, items=names, person_field=person_field or "person")
        ballots = list(BALLOTS.judgments(rows, parse, hides_records=hides_records))
        if not ballots and (names is None or not hides_records):
            raise DataError("The input is empty: no ballot in it.")
        return _made(ballots, names, offered)


def _items(rows: Rows, items: tuple[str, ...] | None) -> tuple[tuple[str, ...] | None, Rows]:
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


def _made(
    ballots: Sequence[Ballot], items: tuple[str, ...] | None, offered: str | None
) -> Rankings:
    """Return ballots as rankings, over items or over candidates of their own."""
    persons = all_named(ballot.person for ballot in ballots)
    ranks = np.fromiter(chain.from_iterable(ballot.ranks for ballot in ballots), np.int64)
    if items is None:
        if offered in OFFERS:
            raise UsageError(
                "offered (--all-offered, --named-offered) is for ballots over items; what these "
                "were offered are their candidates. Nothing was done. Leave it out."
            )
        keys = tuple(ballot.key for ballot in ballots)
        return Rankings(
            keys=keys,
            prompts=tuple(ballot.prompt for ballot in ballots),
            candidates=tuple(chain.from_iterable(ballot.candidates for ballot in ballots)),
            persons=persons,
            public_digest=PublicDigest.of(keys, persons),
            starts=np.cumsum([0, *(len(ballot.ranks) for ballot in ballots)]),
            ranks=ranks,
        )
    names, table = tuple(sorted(items)), ranks.reshape(-1, len(items))
    said = [ballot.offered for ballot in ballots]
    shown: Any = offered
    if any(row is not None for row in said) or offered == "each":
        if None in said and offered != "all":
            raise UsageError(UNSAID)
        shown = [[True] * len(items) if row is None else row for row in said]
        shown = np.array(shown, dtype=bool).reshape(table.shape)
    return Rankings.of_items(names, table, offered=shown, persons=persons, empty=True)
