"""Raw judgments of several candidates at once: rankings, whole, partial or with ties; their files.

Among these are ballots of PrefLib, the public library of preferences: .soc, .soi, .toc and .toi
files. Such a file counts how many people gave each ballot; every one of them becomes a ballot here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Integer
from numpy.typing import ArrayLike

from sordino import _random, _validate
from sordino.errors import DataError, UsageError

from .ballots import (
    OFFERS,
    UNSAID,
    Ballot,
    array_ranks,
    bounds_of,
    doubled_average_ranks,
    flat_ranks,
    item_names,
    offered_table,
    order_ranks,
    parse_ballot,
    row_order,
)
from .comparisons import RAW, PublicDigest, Questions, all_named, taken
from .containers import Progress, Rows, every_line
from .features import Features, Matrix, refuse_other_features
from .files import PREFLIB, Kind, preflib_ending, untold
from .pairs import RANDOMIZED_CHOICE, Randomized, read_manifest, refuse_manifest
from .records import JUDGING_FIELDS, Text, candidate_order, refuse_person_field
from .schemas import CHOICES, RANKINGS

_WHAT = "rankings of texts, and left out for rankings made from features"


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Slates(Questions):
    """What n ballots are about: lists of candidates, each in canonical order."""

    # Ballot i is over the K_i >= 2 candidates `starts[i]:starts[i + 1]` of the flat columns.

    # Where each ballot begins, and m at the end; n + 1 numbers.
    starts: Integer[np.ndarray, " bounds"]
    prompts: tuple[Text, ...] = ()  # texts or chat messages, one per ballot; empty without texts
    candidates: tuple[Text, ...] = ()  # texts or chat messages, m of them; empty without texts
    # The names of all that ballots choose from, sorted; None if ballots have candidates of their
    # own.
    items: tuple[str, ...] | None = None
    # Which item every flat candidate is, from 0 and rising within a ballot: what this ballot was
    # offered, listed or not. All items, if left out.
    offered: Integer[np.ndarray, " m"] | None = None
    # Whether, in public, every ballot names all that it was offered. Then which items a ballot
    # names is public; else it is as private as their order.
    named: bool = False
    # Features of the m candidates, or of the K items, when made from features.
    given: Float[np.ndarray, "rows d"] | None = None

    def __post_init__(self) -> None:
        starts = bounds_of(self.starts, len(self))
        object.__setattr__(self, "starts", starts)
        texts = self.items is None and self.given is None
        m, k = int(starts[-1]), len(self.items or ())
        wanted = {"prompts": texts * len(self), "candidates": texts * m, "given": k or m}
        self._refuse_lengths(wanted | {"persons": len(self)})
        super().__post_init__()
        if self.items is not None:
            offered = self.offered
            if offered is None:
                if not (np.diff(starts) == k).all():
                    raise DataError("starts must be every multiple of the number of items.")
                offered = np.tile(np.arange(k), len(starts) - 1)
            numbers = np.array(offered)
            if numbers.shape != (int(starts[-1]),) or numbers.dtype.kind not in "iu":
                raise DataError(
                    "offered must be one whole number for each candidate of each ballot."
                )
            rises = np.diff(numbers) > 0
            rises[starts[1:-1] - 1] = True  # from one ballot to the next
            if not rises.all() or numbers.min(initial=0) < 0 or numbers.max(initial=0) >= k:
                raise DataError(f"offered must rise from 0 to at most {k - 1} within each ballot.")
            numbers = numbers.astype(np.int64)
            numbers.setflags(write=False)
            object.__setattr__(self, "offered", numbers)
        elif self.offered is not None or self.named:
            raise DataError("offered and named are for ballots over items.")

    @property
    def sizes(self) -> Integer[np.ndarray, " n"]:
        """Return how many candidates each ballot has, listed or not; it is public."""
        return np.diff(self.starts)

    def _question(self, row: int) -> dict[str, Any]:
        here = slice(*self.starts[row : row + 2].tolist())
        if self.items is not None:
            assert self.offered is not None  # noqa: S101 (for the type checker; set at the start)
            return {"offered": [self.items[number] for number in self.offered[here].tolist()]}
        if self.given is not None:
            return {"features": self.given[here]}
        return {"prompt": self.prompts[row], "candidates": list(self.candidates[here])}

    def flat_features(self, features: Features | None) -> Matrix:
        """Return the features of all candidates of all ballots, shape (m, d), dense or sparse."""
        # Of items the rows are repeated for each ballot that was offered them; `item_features` has
        # them once.
        if self.items is not None:
            return self.item_features(features)[self.offered]
        refuse_other_features(features, _WHAT, needed=self.given is None)
        if features is None:
            assert self.given is not None  # noqa: S101 (for the type checker; shown above)
            return self.given
        sizes = self.sizes.tolist()
        prompts = [text for text, k in zip(self.prompts, sizes, strict=True) for _ in range(k)]
        return features.transform(prompts, self.candidates)

    def item_features(self, features: Features | None = None) -> Matrix:
        """Return the features of the items, shape (K, d), in the order of ``items``."""
        if self.items is None:
            raise UsageError(
                "items are needed: these ballots have candidates of their own, so use "
                "flat_features."
            )
        if features is None:
            return np.eye(len(self.items)) if self.given is None else self.given
        refuse_other_features(features, _WHAT, needed=self.given is None)
        return features.transform([""] * len(self.items), self.items)

    def canonical_keys(self) -> Iterator[bytes | None]:
        """Yield the key of every question, or None where its candidates are in another order."""
        if self.items is not None:
            assert self.offered is not None  # noqa: S101 (for the type checker; set at the start)
            in_order = list(self.items) == sorted(self.items)
            keys = _keys_of_offers(self.items, self.offered, self.starts)
            yield from (key if in_order else None for key in keys)
            return
        key: bytes | None
        for index, (start, stop) in enumerate(pairwise(self.starts.tolist())):
            if self.given is None:
                order, key = candidate_order(self.prompts[index], self.candidates[start:stop])
            else:
                order, key = row_order(self.given[start:stop])
            yield key if order == list(range(stop - start)) else None


def _keys_of_offers(
    items: Sequence[str], offered: Integer[np.ndarray, " m"], starts: Integer[np.ndarray, " bounds"]
) -> tuple[bytes, ...]:
    """Return the key of every ballot over items: that of the items that it was offered."""
    known: dict[bytes, bytes] = {}
    keys = []
    for start, stop in pairwise(starts.tolist()):
        numbers = offered[start:stop]
        what = numbers.tobytes()
        if what not in known:
            known[what] = candidate_order("", [items[number] for number in numbers.tolist()])[1]
        keys.append(known[what])
    return tuple(keys)


_CUBE = 3  # dimensions of features by ballot, candidate and feature


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Rankings(Slates):
    """Raw ballots: confidential, as :class:`sordino.Pairs` are.

    The candidates of a ballot stand in an order that a public rule decides, never in the order of
    the ranking. How many there are, and which, is public; the ranks are private, and with them
    which ballots list everything.

    Attributes:
        ranks: 1 for the best of a ballot, equal numbers for a tie, 0 where not listed, as flat as
            ``candidates``; never printed.

    Example:
        >>> orders = [["tea", "milk"], [["beer", "tea"]]]
        >>> Rankings.from_orders(["tea", "milk", "beer"], orders, offered="all")
        Rankings(n=2)
    """

    _said = (
        "Ballot",
        "the place of a candidate could tell its rank",
        "rankings with read_rankings, from_ranks or from_orders",
    )

    ranks: Integer[np.ndarray, " m"] = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "ranks", flat_ranks(self.ranks, self.starts))

    def _outcome(self, row: int) -> dict[str, Any]:
        # Of items by their names, else by numbers of candidates; a list is a tie.
        ranks = self.ranks[slice(*self.starts[row : row + 2].tolist())].tolist()
        names = self._question(row).get("offered", range(len(ranks)))
        places = [
            [name for name, rank in zip(names, ranks, strict=True) if rank == place]
            for place in range(1, max(ranks) + 1)
        ]
        return {"ranking": [tied[0] if len(tied) == 1 else tied for tied in places]}

    def _card(self) -> list[tuple[str, object]]:
        items = None if self.items is None else f"{len(self.items):,}"
        return [*super()._card(), ("items", items), RAW]

    @property
    def complete(self) -> Bool[np.ndarray, " n"]:
        """Return which ballots have no tie and list every candidate; as private as the ranks."""
        # Ranks are consecutive: the last one is K where nobody ties and nobody is missing.
        return np.asarray(np.maximum.reduceat(self.ranks, self.starts[:-1]) == self.sizes)

    def doubled_ranks(self) -> Integer[np.ndarray, " m"]:
        """Return twice the average rank of every candidate, from 2 to 2K: exact whole numbers.

        Who is not listed ties below all who are, so a ballot says something of every pair, if only
        that nothing is known; a ballot that lists nothing has K + 1 everywhere.

        Source:
            docs/rankings.md, "Ties and candidates that are not listed".
        """
        return doubled_average_ranks(self.starts, self.ranks)

    def part(self, rows: Sequence[int]) -> Rankings:
        """Return some of the ballots, in the order given, with the public digest of those alone.

        Args:
            rows: Their numbers. They must be chosen without looking at a ranking.
        """
        chosen = np.asarray(rows, dtype=np.int64)
        sizes = self.sizes[chosen]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        flat = np.arange(starts[-1]) + np.repeat(self.starts[:-1][chosen] - starts[:-1], sizes)
        names = ("ranks", "candidates", "offered", *(("given",) if self.items is None else ()))
        columns = {name: taken(getattr(self, name), flat) for name in names}
        return self._part(rows, ("prompts",), starts=starts, **columns)

    @classmethod
    @_validate.typed
    def from_ranks(
        cls,
        candidates: ArrayLike,
        ranks: object,
        persons: Iterable[str] | None = None,
        *,
        features: object = None,
        unlisted: float | None = None,
        offered: object = None,
    ) -> Rankings:
        """Return rankings from an array of ranks, each row of which is a ballot.

        Candidates are put into an order that ignores the ranks: items by name, and rows of
        features from the largest to the smallest, by the first entry in which they differ.

        Args:
            candidates: The names of what everybody ranks, K of them, in the order of the columns;
                or the features of each ballot's own candidates, shape (n, K, d).
            ranks: Whole numbers from 1 (the best), shape (n, K); NaN or None where not listed.
            persons: Public person ids, one per ballot.
            features: Features of the named items, shape (K, d), in the same order.
            unlisted: Another number, 0 or -1, say, that means "not listed". There is none by
                default, because ranks that count from 0 would be read upside down.
            offered: What each ballot was offered of the named items: an array of True and False,
                (n, K); or ``"all"`` or ``"named"``, as for :func:`offered_table`.

        Raises:
            DataError: Shapes disagree, a number is not finite or no rank, a name stands there
                twice, or two candidates of a ballot have the same features.
            UsageError: A ballot leaves items out, and nothing says whether it was offered them.

        Example:
            >>> short = Rankings.from_ranks(["b", "a"], [[1, 2], [1, None]], offered="all")
            >>> short.doubled_ranks().tolist()
            [4, 2, 4, 2]
        """
        if unlisted is not None and _validate.number("unlisted", unlisted) >= 1:
            raise UsageError(f"unlisted must be below 1, where no rank is, got {unlisted!r}.")
        table = array_ranks(ranks, unlisted=unlisted)
        n, k = table.shape
        named = np.ndim(candidates) == 1
        if named:
            names = item_names(candidates, "candidates")
            _refuse_shape("ranks", table.shape, (n, len(names)))
            return cls.of_items(names, table, offered=offered, persons=persons, features=features)
        if features is not None or offered is not None:
            raise UsageError(
                "features= and offered= are for named items; the candidates here are features "
                "already, and all of them were offered."
            )
        # −0.0 becomes 0.0
        cube = _validate.finite_array("candidates", candidates, ndim=_CUBE) + 0.0
        _refuse_shape("candidates", cube.shape, (n, k, max(1, cube.shape[2])))
        places, keys = np.empty((n, k), dtype=np.int64), []
        for index, rows in enumerate(cube):
            places[index], key = row_order(rows)
            if key is None:
                raise DataError(
                    f"Ballot {index} has two candidates with the same features, so neither can be "
                    "preferred. Merge them."
                )
            keys.append(key)
        given = np.take_along_axis(cube, places[:, :, np.newaxis], axis=1)
        return cls._made(
            tuple(keys),
            persons,
            starts=np.arange(n + 1) * k,
            ranks=np.take_along_axis(table, places, axis=1).ravel(),
            given=given.reshape(n * k, cube.shape[2]),
        )

    @classmethod
    @_validate.typed
    def from_orders(
        cls,
        items: Iterable[str],
        orders: Iterable[Any],
        persons: Iterable[str] | None = None,
        *,
        features: object = None,
        offered: object = None,
    ) -> Rankings:
        """Return rankings of one list of items, each ballot a list of names, best first.

        Args:
            items: All that ballots choose from, also what nobody listed. It is public, so it
                cannot be collected from the ballots.
            orders: One list of names per ballot. A list inside it is a tie; whoever is missing
                was not listed, and an empty ballot counts.
            persons: Public person ids, one per ballot.
            features: Features of the items, shape (K, d), in the same order.
            offered: What each ballot was offered: one list of names per ballot; or ``"all"`` or
                ``"named"``, as for :func:`offered_table`.

        Raises:
            DataError: A name is unknown or stands twice; the message gives the ballot, from 0.
            UsageError: A ballot leaves items out, and nothing says whether it was offered them.

        Example:
            >>> duels = [["tea", "milk"], ["beer", "tea"]]
            >>> Rankings.from_orders(["tea", "milk", "beer"], duels, offered="named").sizes.tolist()
            [2, 2]
        """
        names = item_names(items, "items")
        places: dict[Any, int] = {name: index for index, name in enumerate(names)}

        def table_of(what: str, lists: Iterable[Any]) -> Integer[np.ndarray, "n k"]:
            ranks = [
                order_ranks(one, places, len(names), what="an item", field=f"{what}: ballot {at}")
                for at, one in enumerate(lists)
            ]
            return np.array(ranks, dtype=np.int64).reshape(-1, len(names))

        table = table_of("orders", orders)
        if isinstance(offered, Iterable) and not isinstance(offered, str):
            offered = table_of("offered", map(list, offered)) > 0
        return cls.of_items(names, table, offered=offered, persons=persons, features=features)

    @classmethod
    def of_items(
        cls,
        names: tuple[str, ...],
        table: Integer[np.ndarray, "n k"],
        *,
        offered: object,
        persons: Iterable[str] | None,
        features: object = None,
        empty: bool = False,
    ) -> Rankings:
        """Return rankings of one list of items, whose columns are put in the order of names."""
        # As `from_ranks`, of a table that has a row for each ballot, 0 where not listed; `empty` if
        # there may be none. Features are in the order of the names that are given.
        shown, named = offered_table(table, offered)
        order = sorted(range(len(names)), key=names.__getitem__)
        items = tuple(names[index] for index in order)
        given = None
        if features is not None:
            given = _validate.finite_array("features", features, ndim=2)
            _refuse_shape("features", given.shape, (len(names), given.shape[1]))
            given = given[order] + 0.0
        shown = shown[:, order]
        starts = np.concatenate([[0], np.cumsum(shown.sum(axis=1))])
        flat = np.nonzero(shown)[1]
        keys = _keys_of_offers(items, flat, starts)
        return cls._made(
            keys,
            persons,
            empty=empty,
            starts=starts,
            ranks=table[:, order][shown],
            items=items,
            offered=flat,
            named=named,
            given=given,
        )

    @classmethod
    def _made(
        cls,
        keys: tuple[bytes, ...],
        persons: Iterable[str] | None,
        *,
        empty: bool = False,
        **columns: Any,
    ) -> Rankings:
        """Return rankings of at least one ballot, with the digest of what is public."""
        if not keys and not empty:
            raise DataError("There is no ballot.")
        people = None if persons is None else _validate.person_ids(persons, len(keys))
        digest = PublicDigest.of(keys, people)
        return cls(keys=keys, public_digest=digest, persons=people, **columns)


def _refuse_shape(name: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    if shape != wanted:
        raise DataError(f"{name} must have shape {wanted}, got {shape}.")


_MOST_BALLOTS = 10**6
_MOST_CELLS = 5 * 10**7  # candidates of all ballots together
_WHOLE = r"[0-9]{1,9}"
_PLACE = rf"(?:{_WHOLE}|\{{{_WHOLE}(?:,{_WHOLE})*\}})"
_ORDER = re.compile(rf"(?:{_PLACE}(?:,{_PLACE})*)?")
_PLACES = re.compile(_PLACE)
_NUMBER = re.compile(_WHOLE)
_COUNTED = re.compile(rf"({_WHOLE}):(.*)")
_NAME = re.compile(rf"ALTERNATIVE NAME ({_WHOLE})")
_ALTERNATIVES, _VOTERS, _ORDERS = "NUMBER ALTERNATIVES", "NUMBER VOTERS", "NUMBER UNIQUE ORDERS"

_Lines = Sequence[tuple[int, str]]


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
    names, voters, unique, lines_of_ballots = _header(lines, 0 if empty else 1)
    complete, ties = PREFLIB[preflib_ending(path)]
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
        count, order = _ballot(line, where)
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
            raise DataError(f"line {number}: not valid UTF-8. Save the file as UTF-8.")
        if text:
            found.append((number, text))
    return found


def _header(lines: _Lines, fewest: int) -> tuple[tuple[str, ...], int, int | None, _Lines]:
    """Return the names, how many voters and unique orders there are, and the lines of ballots."""
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
    if len(names) != k or sorted(names) != list(range(1, k + 1)):
        raise DataError("header: there must be one name for each alternative, numbered from 1.")
    known = item_names([names[number] for number in sorted(names)], "header: alternatives")
    return known, voters, orders, lines[end:]


def _whole(text: str | None, what: str, least: int = 1) -> int:
    text = (text or "").strip()
    if not re.fullmatch(_WHOLE, text) or int(text) < least:
        raise DataError(f"{what} must be a whole number of at least {least}.")
    return int(text)


def _ballot(line: str, where: str) -> tuple[int, list[list[int]]]:
    found = _COUNTED.fullmatch(re.sub(r"\s+", "", line))
    order = found[2] if found else ""
    if not found or not _ORDER.fullmatch(order):
        raise DataError(
            f"{where}: expected a count and numbers of alternatives, best first, ties in braces: "
            "5: 1,2,{3,4}."
        )
    places = [[int(one) for one in _NUMBER.findall(place)] for place in _PLACES.findall(order)]
    return _whole(found[1], f"{where}: the count"), places


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class PrivateChoices(Slates, Randomized):
    """Randomized first choices with the promise they carry: everything done with them is free.

    Attributes:
        answers: Which candidate of its ballot each randomized answer is, from 0.
        flip_probability: Chance that an answer is not the choice.
        names: Whose candidates these are, as flat as ``candidates``; None if it is not said.
    """

    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        self._refuse_lengths({"names": int(np.asarray(self.starts)[-1])})
        super().__post_init__()

    @property
    def categories(self) -> int:
        """Return how many candidates each ballot has: one die is for them all."""
        sizes = self.sizes
        if len(sizes) == 0 or (sizes != sizes[0]).any():
            raise DataError("Randomized choices must all be among as many candidates.")
        return int(sizes[0])

    @property
    def beside(self) -> list[str]:
        """Return what is public of each answer beside its question and person."""
        if self.names is None:
            return []
        return [json.dumps(self.names[a:b]) for a, b in pairwise(self.starts.tolist())]

    def _question(self, row: int) -> dict[str, Any]:
        named = {} if self.names is None else {"names": json.loads(self.beside[row])}
        return super()._question(row) | named


BALLOTS = Kind(  # of several candidates at once
    fields=JUDGING_FIELDS,
    judges=(RANKINGS, CHOICES),
    not_in_tables=(
        "Rankings are not read from a table. Nothing was read. Convert it to JSON Lines, or "
        "give arrays to sordino.Rankings.from_ranks."
    ),
    alike=(
        ("privatized", "raw ballots and randomized choices in one file."),
        ("named", "whose candidates these are is said of some records and not of others."),
    ),
)


@_validate.typed
def read_rankings(
    source: object,
    *,
    items: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    person_field: str | None = "person",
    offered: str | None = None,
    manifest: str | Path | None = None,
    hides_records: bool = False,
    progress: Progress | None = None,
) -> Rankings | PrivateChoices:
    """Return the rankings of a file, or of any iterable of mappings.

    A record holds ``prompt`` and ``candidates`` (texts or chat messages, at least two), and either
    ``ranking``, a list of numbers of candidates (from 0) or of their texts, best first, or
    ``ranks``, one whole number for each candidate, 1 for the best. In an election everybody ranks
    the same items: a first record ``{"items": [...]}``, or ``items=``, names them all, and the
    others hold ``ranking`` (names) or ``ranks`` alone. A list inside ``ranking`` is a tie; who is
    missing there, or null in ``ranks``, was not listed. A ballot that lists nothing is a ballot.
    Where people could not choose from all items, ``offered`` in a ballot lists those that they
    could. Candidates are put into an order that their texts decide, which tells nothing of a
    ranking. Randomized choices hold ``candidates`` and ``answer``, and need their manifest.

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
        manifest: Manifest of a file of randomized choices, if not beside it.
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
    if isinstance(source, (str, Path)) and preflib_ending(Path(source)):
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
        if not (ballots and ballots[0].privatized):
            refuse_manifest(manifest)
            return _made(ballots, names, offered)
    note = read_manifest(source, manifest, mechanism=RANDOMIZED_CHOICE)
    made = PrivateChoices(
        **_columns(ballots),
        names=tuple(chain.from_iterable(ballot.names or () for ballot in ballots)) or None,
        answers=np.array([ballot.answer for ballot in ballots]),
        flip_probability=note.flip_probability,
        guarantee=note.guarantee,
        artifact=note.sha256,
    )
    if made.categories != note.categories:
        raise DataError(
            f"These choices are among {made.categories} candidates, and their manifest is of a die "
            f"for {note.categories}: more was lost than it says. Nothing was done."
        )
    return made


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


def _columns(ballots: Sequence[Ballot]) -> dict[str, Any]:
    """Return the public columns of ballots that have candidates of their own."""
    keys = tuple(ballot.key for ballot in ballots)
    persons = all_named(ballot.person for ballot in ballots)
    return {
        "keys": keys,
        "prompts": tuple(ballot.prompt for ballot in ballots),
        "candidates": tuple(chain.from_iterable(ballot.candidates for ballot in ballots)),
        "persons": persons,
        "public_digest": PublicDigest.of(keys, persons),
        "starts": np.cumsum([0, *(len(ballot.candidates) for ballot in ballots)]),
    }


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
        return Rankings(**_columns(ballots), ranks=ranks)
    names, table = tuple(sorted(items)), ranks.reshape(-1, len(items))
    said = [ballot.offered for ballot in ballots]
    shown: Any = offered
    if any(row is not None for row in said) or offered == "each":
        if None in said and offered != "all":
            raise UsageError(UNSAID)
        shown = [[True] * len(items) if row is None else row for row in said]
        shown = np.array(shown, dtype=bool).reshape(table.shape)
    return Rankings.of_items(names, table, offered=shown, persons=persons, empty=True)
