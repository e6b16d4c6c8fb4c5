"""Ballots as flat arrays: who was ranked where, whatever the number of candidates.

Ballot i ranks the candidates ``starts[i]:starts[i + 1]`` of arrays of length m. A rank is 1 for the
best; equal ranks are a tie, and 0 says that the person did not list the candidate.

A ballot that is read from a mapping has its candidates in an order that their texts decide: who
writes the best answer first would otherwise give every ranking away. The ranks are the only part of
a ballot that is private.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from typing import Any, TypeGuard

import numpy as np
from jaxtyping import Bool, Float, Integer

from sordino import _validate
from sordino.errors import DataError, UsageError

from .records import Text, candidate_order, encoded, person_of, read_text

_MOST = 2**31  # ranks that count; larger numbers are no ranks of candidates
OFFERS = ("all", "named")
"""What can be said of all ballots: everything was offered, or what they name."""
UNSAID = (  # why ballots that may be short are refused, and the ways out
    "offered: ballots may leave items out, and nothing says whether those people could have listed "
    "them. Nothing was done. Say for each ballot what it was offered (field 'offered'), or for all "
    'that do not say it "all" (--all-offered: everybody could list every item; what a ballot '
    'leaves out stays private) or "named" (--named-offered: each was offered just what it names, '
    "which makes public what it names)."
)


def doubled_average_ranks(
    starts: Integer[np.ndarray, " bounds"], ranks: Integer[np.ndarray, " m"]
) -> Integer[np.ndarray, " m"]:
    """Return twice the average rank of every candidate, a whole number from 2 to 2K."""
    # Candidates in a tie share the average of the places that they take up together, and those that
    # are not listed tie below all that are. In a ballot of K the numbers sum to K(K + 1) whatever
    # it says.
    # Source: docs/rankings.md, "Ties and candidates that are not listed".
    below = np.where(ranks == 0, ranks.max(initial=0) + 1, ranks)
    order, new, first = _groups(starts, below)
    begin = np.flatnonzero(new)
    size = np.diff(begin, append=len(ranks))
    place = np.arange(len(ranks)) - np.repeat(first, np.diff(starts))
    doubled = np.empty_like(ranks)
    doubled[order] = np.repeat(2 * place[begin] + size + 1, size)
    return doubled


def _groups(
    starts: Integer[np.ndarray, " bounds"], ranks: Integer[np.ndarray, " m"]
) -> tuple[Integer[np.ndarray, " m"], Bool[np.ndarray, " m"], Integer[np.ndarray, " n"]]:
    """Entries by ballot and rank, where another rank begins there, and each ballot's first."""
    # Ballots stay where they are, so the first entry of ballot i is the one at `starts[i]`.
    ballot = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    order = np.argsort(ballot * (ranks.max(initial=0) + 1) + ranks, kind="stable")
    new = np.diff(ranks[order], prepend=-1) != 0
    new[starts[:-1]] = True
    return order, new, starts[:-1]


def bounds_of(starts: object, n: int) -> Integer[np.ndarray, " bounds"]:
    """Return where n ballots begin and the last one ends, which nobody can change afterwards."""
    bounds = np.array(starts)
    if bounds.dtype.kind not in "iu" or bounds.shape != (n + 1,) or n < 0 or bounds[0] != 0:
        raise DataError(
            f"starts must be whole numbers, 0 first, one more than there are ballots; got dtype "
            f"{bounds.dtype} and shape {bounds.shape}."
        )
    bounds = bounds.astype(np.int64)
    few = np.diff(bounds) < 2  # noqa: PLR2004 (a ranking compares)
    if few.any():
        raise DataError(f"Ballot {int(np.flatnonzero(few)[0])} has fewer than two candidates.")
    bounds.setflags(write=False)
    return bounds


def flat_ranks(ranks: object, starts: Integer[np.ndarray, " bounds"]) -> Integer[np.ndarray, " m"]:
    """Return flat ranks as consecutive numbers, which nobody can change afterwards."""
    flat = np.array(ranks)
    m = int(starts[-1])
    whole = flat.dtype.kind in "iu" and flat.shape == (m,)
    if not whole or not ((flat >= 0) & (flat < _MOST)).all():  # ballot and rank fit into 64 bits
        raise DataError(
            "ranks must be whole numbers below 2^31, 1 for the best and 0 where not listed, one "
            f"for each of the {m} candidates; got dtype {flat.dtype} and shape {flat.shape}."
        )
    # Numbers 1, 2, 3, … that leave none out: `1, 2, 2, 4` and `1, 2, 2, 3` become the same.
    flat = flat.astype(np.int64)
    order, new, first = _groups(starts, flat)
    group = np.cumsum(new)
    before = group[first] - (flat[order][first] != 0)
    numbers = np.empty_like(flat)
    numbers[order] = group - np.repeat(before, np.diff(starts))
    numbers.setflags(write=False)
    return numbers


def array_ranks(ranks: object, *, unlisted: float | None) -> Integer[np.ndarray, "n k"]:
    """Return an array of ranks in which 0 stands for "not listed", from numbers of a user."""
    given = np.asarray(None)
    with suppress(ValueError):  # rows of different lengths; its message is not ours to vouch for
        given = np.asarray(ranks)
    cells = [cell for cell in given.flat if cell is not None] if given.dtype.kind == "O" else [True]
    if all(isinstance(cell, Real) and not isinstance(cell, bool) for cell in cells):
        given = given.astype(np.float64)  # in which None is NaN
    if given.dtype.kind not in "iuf" or given.ndim != 2:  # noqa: PLR2004 (ballots, candidates)
        raise DataError(
            f"ranks must be an array of numbers with one row for each ballot, got dtype "
            f"{given.dtype} and shape {given.shape}."
        )
    absent = np.isnan(given) if given.dtype.kind == "f" else np.zeros(given.shape, dtype=bool)
    if unlisted is not None:
        absent |= given == unlisted
    with np.errstate(invalid="ignore"):
        wrong = ~absent & ~((given >= 1) & (given < _MOST) & (given == np.floor(given)))
    if wrong.any():
        index = int(np.flatnonzero(wrong.any(axis=1))[0])
        raise DataError(
            f"ranks: row {index} holds what is no rank. Ranks are whole numbers from 1 (the best); "
            "where a candidate is not listed, write NaN, or a number such as 0 or -1 and name it: "
            "unlisted=0."
        )
    return np.where(absent, 0, given).astype(np.int64)


def offered_table(
    ranks: Integer[np.ndarray, "n k"], offered: object
) -> tuple[Bool[np.ndarray, "n k"], bool]:
    """Return which items each ballot was offered, and whether it names all of them in public."""
    # An item that a ballot was offered and does not list ties below those that it lists, and that
    # is private. An item that it was not offered says nothing, and that is public.
    listed = ranks > 0
    if offered is None and not listed.all():
        raise UsageError(UNSAID)
    if offered is None or isinstance(offered, str):
        kind = "named" if offered is None else _validate.one_of("offered", offered, OFFERS)
        if kind == "named" and (listed.sum(axis=1) < 2).any():  # noqa: PLR2004 (a ranking compares)
            raise DataError(
                'offered="named": a ballot names fewer than two items, so that it was offered '
                "nothing to compare. Nothing was done. Leave such ballots out of the file, or say "
                'what they were offered, or "all" (--all-offered).'
            )
        return (listed, True) if kind == "named" else (np.ones_like(listed), False)
    shown = np.asarray(offered)
    if shown.shape != ranks.shape or shown.dtype != np.bool_:
        raise DataError(
            f"offered must say True or False of each item for each ballot, or be one of "
            f"{', '.join(map(repr, OFFERS))}; got dtype {shown.dtype} and shape {shown.shape}."
        )
    if (listed & ~shown).any():
        index = int(np.argmax((listed & ~shown).any(axis=1)))
        raise DataError(f"offered: ballot {index} lists an item that it was not offered.")
    return shown, False


def order_ranks(
    order: object, places: Mapping[Hashable, int], k: int, *, what: str, field: str
) -> list[int]:
    """Return the ranks of k candidates, 0 where not listed, from a list of them, best first."""
    if not _is_list(order) or isinstance(order, AbstractSet):
        raise DataError(f"{field} must be a list, best first; a list inside it is a tie.")
    ranks = [0] * k
    for rank, entry in enumerate(order, start=1):
        tied = entry if _is_list(entry) else (entry,)
        if not len(tied):
            raise DataError(f"{field} holds an empty tie; leave it out.")
        for name in tied:
            # True is not 1 here, and 1.0 is neither
            plain = isinstance(name, (str, int, np.integer)) and not isinstance(name, bool)
            place = places.get(name) if plain else None
            if place is None:
                raise DataError(f"{field} holds an entry that is unknown; each must be {what}.")
            if ranks[place]:
                raise DataError(f"{field} holds a candidate twice; each can be ranked once.")
            ranks[place] = rank
    return ranks


def _is_list(value: object) -> TypeGuard[Collection[Any]]:
    return isinstance(value, Collection) and not isinstance(value, (str, bytes, Mapping))


_JUDGED = ("ranking", "ranks", "answer")
_PAIRS = ("chosen", "rejected", "label", "labels")


@dataclass(frozen=True, slots=True, repr=False)
class Ballot:
    """One ballot in canonical order."""

    # `candidates` is empty where all ballots rank the same items. `ranks` has one number for each
    # candidate or item: 1 for the best, equal in a tie, 0 where not listed. `offered` says of each
    # item whether the ballot was offered it; None where the record does not say. `key` identifies
    # the question, not the ranking, of a ballot with candidates; `where` says where it stood.
    # Of a randomized choice `answer` says which candidate it is, and `names` whose they are.

    prompt: Text
    candidates: tuple[Text, ...]
    ranks: tuple[int, ...]
    person: str | None
    key: bytes
    where: str
    offered: tuple[bool, ...] | None = None
    answer: int | None = None
    names: tuple[str, ...] | None = None

    @property
    def privatized(self) -> bool:
        """Return whether it is randomized."""
        return self.answer is not None

    @property
    def named(self) -> bool:
        """Return whether it is said whose its candidates are."""
        return self.names is not None


def row_order(rows: Float[np.ndarray, "k d"]) -> tuple[list[int], bytes | None]:
    """Return the canonical order of candidates known by their features, and the question's key."""
    # From the largest row to the smallest, by the first entry in which they differ, so that the
    # difference of two neighbors has a positive lead, as pairs made from features have. The key is
    # None if two rows are the same.
    values = rows[:, 0].tolist()
    if len(set(values)) < len(values):
        values = rows.tolist()
    order = sorted(range(len(values)), key=values.__getitem__, reverse=True)
    if any(values[one] == values[other] for one, other in pairwise(order)):
        return order, None
    return order, hashlib.sha256(rows[order].tobytes()).digest()


def item_names(values: object, what: str) -> tuple[str, ...]:
    """Return the names of the items that everybody ranks, in the order given."""
    names: tuple[object, ...] = ()
    if isinstance(values, Iterable) and not isinstance(values, (str, Mapping)):
        names = tuple(values)
    if len(names) < 2:  # noqa: PLR2004 (a ranking compares)
        raise DataError(f"{what} must be a list of at least two names.")
    for index, name in enumerate(names):
        plain = isinstance(name, str) and unicodedata.normalize("NFC", name).strip()
        if not plain or name != plain or name != name.encode(errors="replace").decode():
            raise DataError(f"{what}: entry {index} must be a text without spaces around it.")
    if len(set(names)) < len(names):
        raise DataError(f"{what} names an item twice; each must be there once.")
    return tuple(str(name) for name in names)


def parse_ballot(
    row: object, where: str, *, items: tuple[str, ...] | None = None, person_field: str = "person"
) -> Iterator[Ballot]:
    """Yield the ballot of a row in canonical order."""
    person = person_of(row, where, person_field)
    assert isinstance(row, Mapping)  # noqa: S101 (for the type checker; shown above)
    _refuse_fields(row, where, items=items)
    if items is not None:
        order = sorted(range(len(items)), key=items.__getitem__)
        ranks = _ranks(row, where, names=items, numbers=False)
        offered = None
        if row.get("offered") is not None:
            shown = _offered(row["offered"], where, items, ranks)
            offered = tuple(shown[index] for index in order)
        yield Ballot("", (), tuple(ranks[index] for index in order), person, b"", where, offered)
        return
    prompt = read_text(row, "prompt", where)
    given = row["candidates"]
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)) or len(given) < 2:  # noqa: PLR2004 (a ranking compares)
        raise DataError(f"{where}: field 'candidates' must be a list of at least two.")
    candidates = [read_text({"candidates": one}, "candidates", where) for one in given]
    if len({isinstance(text, str) for text in candidates}) > 1:
        raise DataError(f"{where}: field 'candidates' must be all texts, or all lists of messages.")
    try:
        order, key = candidate_order(prompt, candidates)
    except UnicodeEncodeError:
        key = b""
    if not key:
        raise DataError(f"{where}: a text is not valid Unicode.")
    if len(set(map(encoded, candidates))) < len(candidates):
        raise DataError(
            f"{where}: two candidates are the same, so neither can be preferred. Merge them."
        )
    in_order = tuple(candidates[index] for index in order)
    if "answer" in row:
        if order != list(range(len(candidates))):
            raise DataError(
                f"{where}: the candidates are not in canonical order, in which every randomized "
                "choice is written. Use the file as it was made."
            )
        said, names = _choice(row, where, len(candidates))
        yield Ballot(prompt, in_order, (), person, key, where, answer=said, names=names)
        return
    ranks = _ranks(row, where, names=candidates, numbers=True)
    yield Ballot(prompt, in_order, tuple(ranks[index] for index in order), person, key, where)


def _choice(row: Mapping[str, Any], where: str, k: int) -> tuple[int, tuple[str, ...] | None]:
    """Return which of k candidates a randomized choice is, and whose they are if it is said."""
    said, names = row["answer"], row.get("names")
    whole = isinstance(said, (int, np.integer)) and not isinstance(said, bool)
    if not whole or not 0 <= said < k:
        raise DataError(f"{where}: field 'answer' must be a number of a candidate, 0 to {k - 1}.")
    if names is None:
        return int(said), None
    if not _is_list(names) or len(names) != k:
        raise DataError(f"{where}: field 'names' must be a list of one name for each candidate.")
    what = f"{where}: field 'names'"
    return int(said), tuple(_validate.person_id(what, name) for name in names)


def _refuse_fields(row: Mapping[str, Any], where: str, *, items: object) -> None:
    found = [name for name in _JUDGED if name in row]
    pairs = [name for name in _PAIRS if name in row]
    problem = None
    if len(found) > 1:
        problem = f"fields {' and '.join(map(repr, found))} exclude each other; give one"
    elif pairs:
        problem = (
            f"field {pairs[0]!r} belongs to a comparison of two answers, which "
            "sordino.read_pairs reads; a ballot has 'ranking' or 'ranks'"
        )
    elif not found:
        problem = "field 'ranking' (or 'ranks') is missing"
    elif items is not None and {"candidates", "items", "answer"} & row.keys():
        problem = (
            "ballots choose from the same items here, so a ballot has no 'candidates', 'items' or "
            "'answer'; 'offered' lists the items that it could choose from. Do not mix the two "
            "formats"
        )
    elif items is None and "offered" in row:
        problem = "field 'offered' is for items; what this ballot was offered are its 'candidates'"
    elif items is None and "candidates" not in row:
        problem = (
            "field 'candidates' is missing. Call the column so in the file. Where everybody ranks "
            'the same items, name them in a first line {"items": [...]}, or with items='
        )
    if problem is not None:
        raise DataError(f"{where}: {problem}.")


def _offered(offered: Any, where: str, items: Sequence[str], ranks: Sequence[int]) -> list[bool]:
    """Return which items a ballot says that it was offered."""
    field = f"{where}: field 'offered'"
    shown = [rank > 0 for rank in _from_ranking(offered, items, field=field, numbers=False)]
    if sum(shown) < 2 or sum(shown) != len(offered):  # noqa: PLR2004 (a ranking compares)
        raise DataError(f"{field} must be a list of at least two items, without lists inside it.")
    if any(rank and not known for rank, known in zip(ranks, shown, strict=True)):
        raise DataError(f"{where}: the ballot lists an item that was not offered.")
    return shown


def _ranks(
    row: Mapping[str, Any], where: str, *, names: Sequence[Text], numbers: bool
) -> list[int]:
    if "ranking" in row:
        field = f"{where}: field 'ranking'"
        return _from_ranking(row["ranking"], names, field=field, numbers=numbers)
    given = row["ranks"]
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != len(names):
        raise DataError(
            f"{where}: field 'ranks' must be a list of one number for each candidate, or null "
            "where it is not listed."
        )
    known = [rank for rank in given if rank is not None]
    numbers_alone = (int, float, np.integer, np.floating)
    plain = all(isinstance(rank, numbers_alone) and not isinstance(rank, bool) for rank in known)
    if not plain or not all(1 <= rank < _MOST and rank == int(rank) for rank in known):
        raise DataError(
            f"{where}: field 'ranks' must hold whole numbers from 1 (the best), or null where a "
            "candidate is not listed."
        )
    return [0 if rank is None else int(rank) for rank in given]


def _from_ranking(given: object, names: Sequence[Text], *, field: str, numbers: bool) -> list[int]:
    """Return the ranks that a list, best first, gives: of texts, or of numbers of candidates."""
    places: dict[Any, int] = {name: at for at, name in enumerate(names) if isinstance(name, str)}
    what = "an item"
    if numbers:
        what = "the text of a candidate, or its number, counted from 0"
        places |= {index: index for index in range(len(names))}
    return order_ranks(given, places, len(names), what=what, field=field)
