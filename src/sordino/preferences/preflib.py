"""Ballots of PrefLib, the public library of preferences: .soc, .soi, .toc and .toi files.

The file counts how many people gave each ballot; every one of them becomes a ballot here. Files of
today begin with lines "# NAME: value", those of before 2022 with the number of alternatives.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Integer

from sordino import _random
from sordino.errors import DataError, UsageError
from sordino.preferences.ballots import OFFERS, UNSAID, order_ranks
from sordino.preferences.files import Progress, read_lines
from sordino.preferences.ranking_records import item_names
from sordino.preferences.rankings import Rankings

__all__ = ["is_preflib", "read_preflib"]

_KINDS = {
    ".soc": (True, False),
    ".soi": (False, False),
    ".toc": (True, True),
    ".toi": (False, True),
}
"""Of each kind, whether a ballot lists everything, and whether it may hold ties."""

_OTHERS = (".cat", ".wmd", ".pwg", ".tog", ".mjg", ".wmg")
_MOST_BALLOTS = 10**6
_MOST_CELLS = 5 * 10**7  # candidates of all ballots together
_WHOLE = r"[0-9]{1,9}"
_PLACE = rf"(?:{_WHOLE}|\{{{_WHOLE}(?:,{_WHOLE})*\}})"
_ORDER = re.compile(rf"(?:{_PLACE}(?:,{_PLACE})*)?")
_PLACES = re.compile(_PLACE)
_MODERN = re.compile(rf"({_WHOLE}):(.*)")
_OLD = re.compile(rf"({_WHOLE})(?:,(.*))?")
_NAME = re.compile(rf"ALTERNATIVE NAME ({_WHOLE})")
_ALTERNATIVES, _VOTERS, _ORDERS = "NUMBER ALTERNATIVES", "NUMBER VOTERS", "NUMBER UNIQUE ORDERS"

_Lines = Sequence[tuple[int, str]]


def is_preflib(path: Path) -> bool:
    """Return whether a file is of PrefLib, by its name.

    Raises:
        DataError: It is of a kind of PrefLib that holds no rankings.

    Example:
        >>> is_preflib(Path("a.soi.gz")), is_preflib(Path("a.jsonl"))
        (True, False)
    """
    kind = _kind(path)
    if kind in _OTHERS:
        raise DataError(
            f"A PrefLib file {kind} holds no rankings of people. Nothing was read. Known are "
            f"{', '.join(_KINDS)}."
        )
    return kind in _KINDS


def _kind(path: Path) -> str:
    """Return the ending of a file's name, without .gz."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


@dataclass(frozen=True, slots=True, repr=False)
class _Header:
    """What a file says of its ballots, and the pattern and the lines of those."""

    names: tuple[str, ...]
    voters: int
    orders: int | None
    pattern: re.Pattern[str]
    ballots: _Lines


def read_preflib(
    path: Path,
    *,
    offered: str | None = None,
    empty: bool = False,
    progress: Progress | None = None,
) -> Rankings:
    """Return the ballots of a PrefLib file, one for every person, in random order.

    The name's ending decides what a ballot may be: ``.soc`` lists everything without ties, ``.soi``
    may leave out, ``.toc`` may tie, ``.toi`` may do both. A file has its ballots sorted by how
    many gave them, so a row number would tell something of a ballot; they are shuffled by the
    operating system's generator, after which it tells nothing.

    Args:
        path: A ``.soc``, ``.soi``, ``.toc`` or ``.toi`` file, also with ``.gz``.
        offered: For ``.soi`` and ``.toi``, whose ballots may leave out: ``"all"`` or ``"named"``,
            as for :func:`sordino.preferences.ballots.offered_table`. The other endings say it.
        empty: Whether there may be no ballot.
        progress: Called with (bytes read, size of the file).

    Raises:
        DataError: A line cannot be used, or the header does not agree with the ballots. The
            message gives the line.
        UsageError: Ballots may leave out, and nothing says whether they were offered it.
        FileSystemError: The file cannot be read.

    Source:
        docs/rankings.md, "PrefLib".
    """
    lines = _lines(path, progress)
    if not lines:
        raise DataError("The input is empty: no ballot in it.")
    modern = lines[0][1].startswith("#")
    header = (_modern_header if modern else _old_header)(lines, 0 if empty else 1)
    complete, ties = _KINDS[_kind(path)]
    k = len(header.names)
    _refuse_size(header, k)
    counts, orders = [], []
    for number, line in header.ballots:
        count, order = _ballot(line, header.pattern, f"line {number}")
        _refuse_kind(order, k, f"line {number}", complete=complete, ties=ties)
        counts.append(count)
        orders.append(_ranks(order, k, f"line {number}"))
    _refuse_counts(header, counts)
    table = np.repeat(np.array(orders, dtype=np.int64).reshape(-1, k), counts, axis=0)
    if not complete and offered not in OFFERS:
        raise UsageError(UNSAID)
    shown = "named" if complete else offered
    rows = _shuffled(table)
    return Rankings.of_items(header.names, rows, offered=shown, persons=None, empty=empty)


def _lines(path: Path, progress: Progress | None) -> _Lines:
    """Return number and text of every line that is not blank."""
    found = []
    for number, line in read_lines(path, progress):
        text = line.decode("utf-8", errors="replace").strip()
        if "\ufffd" in text:
            raise DataError(f"line {number}: not valid UTF-8.")
        found.append((number, text))
    return found


def _modern_header(lines: _Lines, fewest: int) -> _Header:
    """Return the header of lines "# NAME: value"."""
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
    return _Header(_names(names, k), voters, orders, _MODERN, lines[end:])


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
    return _Header(_names(names, k), totals[0], totals[2], _OLD, lines[k + 2 :])


def _whole(text: str | None, what: str, least: int = 1) -> int:
    """Return a whole number that is large enough."""
    text = (text or "").strip()
    if not re.fullmatch(_WHOLE, text) or int(text) < least:
        raise DataError(f"{what} must be a whole number of at least {least}.")
    return int(text)


def _names(names: dict[int, str], k: int) -> tuple[str, ...]:
    """Return the names of k alternatives, in the order of their numbers."""
    if len(names) != k or sorted(names) != list(range(1, k + 1)):
        raise DataError("header: there must be one name for each alternative, numbered from 1.")
    return item_names([names[number] for number in sorted(names)], "header: alternatives")


def _ballot(line: str, pattern: re.Pattern[str], where: str) -> tuple[int, list[list[int]]]:
    """Return how many people gave a ballot, and the alternatives at each of its places."""
    found = pattern.fullmatch(re.sub(r"\s+", "", line))
    order = (found[2] or "") if found else ""
    if not found or not _ORDER.fullmatch(order):
        raise DataError(
            f"{where}: expected a count and numbers of alternatives, best first, ties in braces: "
            + ("5: 1,2,{3,4}." if pattern is _MODERN else "5,1,2,{3,4}.")
        )
    places = [
        [int(one) for one in place.strip("{}").split(",")] for place in _PLACES.findall(order)
    ]
    return _whole(found[1], f"{where}: the count"), places


def _refuse_kind(order: list[list[int]], k: int, where: str, *, complete: bool, ties: bool) -> None:
    """Refuse a ballot that a file of this kind may not hold."""
    if not ties and any(len(place) > 1 for place in order):
        raise DataError(f"{where}: a tie; a file with ties is named .toc or .toi.")
    if complete and sum(map(len, order)) < k:
        raise DataError(
            f"{where}: an alternative is left out; a file with partial ballots is named .soi or "
            ".toi."
        )


def _ranks(order: list[list[int]], k: int, where: str) -> list[int]:
    """Return the rank of each of k alternatives, 0 where not listed."""
    places: dict[Hashable, int] = {number: number - 1 for number in range(1, k + 1)}
    return order_ranks(
        order,
        places,
        k,
        what=f"the number of an alternative, 1 to {k}",
        field=f"{where}: the ballot",
    )


def _refuse_size(header: _Header, k: int) -> None:
    """Refuse a file of a few bytes that stands for more ballots than are read, before any is."""
    if header.voters > _MOST_BALLOTS or header.voters * k > _MOST_CELLS:
        raise DataError(
            f"The header says that there are more ballots than are read: up to {_MOST_BALLOTS:,}, "
            f"and up to {_MOST_CELLS:,} places in all of them together. Nothing was read. Draw "
            "some of the ballots at random and write the counts of those."
        )
    if len(header.ballots) > header.voters:
        raise DataError(
            "There are more lines with ballots than the header has voters: the file was edited."
        )


def _refuse_counts(header: _Header, counts: list[int]) -> None:
    """Refuse ballots that are not as many as the header says."""
    if header.voters != sum(counts):
        raise DataError(
            "The number of voters in the header is not the sum of the counts of the ballots: the "
            "file was cut short, or edited."
        )
    if header.orders is not None and header.orders != len(counts):
        raise DataError(
            "The number of unique orders in the header is not the number of lines with ballots: "
            "the file was cut short, or edited."
        )


def _shuffled(table: Integer[np.ndarray, "n k"]) -> Integer[np.ndarray, "n k"]:
    """Return the rows in an order that is independent of what they say."""
    words = _random.entropy(None).words(len(table))
    return np.asarray(table[np.argsort(words, kind="stable")])
