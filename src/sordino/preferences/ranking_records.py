"""One ballot, read from a mapping into a form that does not depend on how anybody ranked.

Candidates are put into an order that their texts decide, whatever order a file has them in: who
writes the best answer first would otherwise give every ranking away. The ranks are the only part of
a ballot that is private.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float

from sordino.errors import DataError, UsageError
from sordino.preferences.ballots import number_rank, order_ranks
from sordino.preferences.records import (
    FIELDS,
    Text,
    candidate_order,
    encoded,
    person_text,
    read_text,
)

__all__ = [
    "Ballot",
    "item_names",
    "items_key",
    "parse_ballot",
    "refuse_person_name",
    "row_order",
]

_JUDGED = ("ranking", "ranks")
_PUBLIC = ("prompt", "candidates", "items", "offered")
_PAIRS = ("chosen", "rejected", "label", "labels", "answer")


@dataclass(frozen=True, slots=True, repr=False)
class Ballot:
    """One ballot in canonical order.

    ``candidates`` is empty where all ballots rank the same items. ``ranks`` has one number for each
    candidate or item: 1 for the best, equal in a tie, 0 where not listed. ``offered`` says of each
    item whether the ballot was offered it; None where the record does not say. ``key`` identifies
    the question, not the ranking, of a ballot with candidates; ``where`` says where it stood.
    """

    prompt: Text
    candidates: tuple[Text, ...]
    ranks: tuple[int, ...]
    person: str | None
    key: bytes
    where: str
    offered: tuple[bool, ...] | None = None


def items_key(items: Sequence[str]) -> bytes:
    """Return the key that all ballots over one list of items have: the question is the same."""
    return candidate_order("", items)[1]


def row_order(rows: Float[np.ndarray, "k d"]) -> tuple[list[int], bytes | None]:
    """Return the canonical order of candidates known by their features, and the question's key.

    From the largest row to the smallest, by the first entry in which they differ, so that the
    difference of two neighbors has a positive lead, as pairs made from features have. The key is
    None if two rows are the same.
    """
    values = rows[:, 0].tolist()
    if len(set(values)) < len(values):
        values = rows.tolist()
    order = sorted(range(len(values)), key=values.__getitem__, reverse=True)
    if any(values[one] == values[other] for one, other in pairwise(order)):
        return order, None
    return order, hashlib.sha256(rows[order].tobytes()).digest()


def item_names(values: Any, what: str) -> tuple[str, ...]:
    """Return the names of the items that everybody ranks, in the order given.

    Args:
        values: Texts, at least two, all different.
        what: Where they stand, for messages.

    Raises:
        DataError: They are not; none is quoted.
    """
    several = isinstance(values, Iterable) and not isinstance(values, (str, Mapping))
    names = tuple(values) if several else ()
    if len(names) < 2:  # noqa: PLR2004 (a ranking compares)
        raise DataError(f"{what} must be a list of at least two names.")
    for index, name in enumerate(names):
        plain = isinstance(name, str) and unicodedata.normalize("NFC", name).strip()
        if not plain or name != plain or name != name.encode(errors="replace").decode():
            raise DataError(f"{what}: entry {index} must be a text without spaces around it.")
    if len(set(names)) < len(names):
        raise DataError(f"{what} names an item twice; each must be there once.")
    return tuple(str(name) for name in names)


def refuse_person_name(name: str) -> None:
    """Refuse a field as person id that says what was judged, or how.

    Raises:
        UsageError: It is such a field.
    """
    if name in (*FIELDS, *_JUDGED, *_PUBLIC):
        raise UsageError(
            f"The person field must not be {name!r}: person ids are published. Nothing was read."
        )


def parse_ballot(
    row: Any, where: str, *, items: tuple[str, ...] | None = None, person_field: str = "person"
) -> Ballot:
    """Return one ballot in canonical order.

    Args:
        row: A mapping with ``prompt`` and ``candidates`` (texts, or lists of messages), or neither
            where there are items, of which ``offered`` may list those that this ballot could
            list; and either ``ranking``, a list, best first, of numbers of candidates (from 0) or
            of their texts, in which a list is a tie and who is missing was not listed; or
            ``ranks``, one whole number from 1 (the best) for each candidate, null where not
            listed.
        where: Where it stands, for messages: ``"line 3"``.
        items: All that ballots choose from, in the order that ``ranks`` has them in.
        person_field: Name of the optional public person id.

    Raises:
        DataError: A field is missing, of a wrong type, or contradicts another. The message names
            place and field and never quotes the data.
    """
    if not isinstance(row, Mapping):
        raise DataError(f"{where}: expected an object with named fields.")
    _refuse_fields(row, where, items=items)
    if person_field != "person" and person_field not in row:
        raise DataError(f"{where}: the person field {person_field!r} is missing.")
    person = person_text(row.get(person_field), f"{where}: field {person_field!r}")
    if items is not None:
        order = sorted(range(len(items)), key=items.__getitem__)
        ranks = _ranks(row, where, names=items, numbers=False)
        shown = _offered(row, where, items, ranks)
        in_place = None if shown is None else tuple(shown[index] for index in order)
        return Ballot("", (), tuple(ranks[index] for index in order), person, b"", where, in_place)
    prompt = read_text(row, "prompt", where)
    candidates = _candidates(row, where)
    try:
        order, key = candidate_order(prompt, candidates)
    except UnicodeEncodeError:
        key = b""
    if not key:
        raise DataError(f"{where}: a text is not valid Unicode.")
    _refuse_identical([candidates[index] for index in order], where)
    ranks = _ranks(row, where, names=candidates, numbers=True)
    in_order = tuple(candidates[index] for index in order)
    return Ballot(prompt, in_order, tuple(ranks[index] for index in order), person, key, where)


def _refuse_fields(row: Mapping[str, Any], where: str, *, items: Any) -> None:
    """Refuse a record of another format, or of two."""
    found = [name for name in _JUDGED if name in row]
    if len(found) > 1:
        raise DataError(f"{where}: fields 'ranking' and 'ranks' exclude each other; give one.")
    pairs = [name for name in _PAIRS if name in row]
    if pairs:
        raise DataError(
            f"{where}: field {pairs[0]!r} belongs to a comparison of two answers, which "
            "sordino.read_pairs reads; a ballot has 'ranking' or 'ranks'."
        )
    if not found:
        raise DataError(f"{where}: field 'ranking' (or 'ranks') is missing.")
    if items is not None and ("candidates" in row or "items" in row):
        raise DataError(
            f"{where}: ballots choose from the same items here, so a ballot has neither "
            "'candidates' nor 'items'; 'offered' lists the items that it could choose from. Do not "
            "mix the two formats."
        )
    if items is None and "offered" in row:
        raise DataError(
            f"{where}: field 'offered' is for items; what this ballot was offered are its "
            "'candidates'."
        )
    if items is None and "candidates" not in row:
        raise DataError(
            f"{where}: field 'candidates' is missing. Where everybody ranks the same items, name "
            'them in a first line {"items": [...]}, or with items=.'
        )


def _offered(
    row: Mapping[str, Any], where: str, items: Sequence[str], ranks: Sequence[int]
) -> list[bool] | None:
    """Return which items a ballot was offered; None where it does not say."""
    if row.get("offered") is None:
        return None
    field = f"{where}: field 'offered'"
    found = _from_ranking(row["offered"], items, field=field, numbers=False)
    shown = [rank > 0 for rank in found]
    if sum(shown) < 2 or sum(shown) != len(row["offered"]):  # noqa: PLR2004 (a ranking compares)
        raise DataError(f"{field} must be a list of at least two items, without lists inside it.")
    if any(rank and not known for rank, known in zip(ranks, shown, strict=True)):
        raise DataError(f"{where}: the ballot lists an item that was not offered.")
    return shown


def _candidates(row: Mapping[str, Any], where: str) -> list[Text]:
    """Return the candidates of a ballot, in the order of the file."""
    given = row["candidates"]
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)) or len(given) < 2:  # noqa: PLR2004 (a ranking compares)
        raise DataError(f"{where}: field 'candidates' must be a list of at least two.")
    field = "candidates"
    texts = [read_text({field: candidate}, field, where) for candidate in given]
    if len({isinstance(text, str) for text in texts}) > 1:
        raise DataError(f"{where}: field 'candidates' must be all texts, or all lists of messages.")
    return texts


def _refuse_identical(in_order: Sequence[Text], where: str) -> None:
    """Refuse a ballot that has one candidate twice, which stand beside each other in order."""
    known = [encoded(candidate) for candidate in in_order]
    if len(set(known)) < len(known):
        raise DataError(
            f"{where}: two candidates are the same, so neither can be preferred. Merge them."
        )


def _ranks(
    row: Mapping[str, Any], where: str, *, names: Sequence[Text], numbers: bool
) -> list[int]:
    """Return the ranks of the candidates, in the order of the file."""
    if "ranking" in row:
        field = f"{where}: field 'ranking'"
        return _from_ranking(row["ranking"], names, field=field, numbers=numbers)
    given = row["ranks"]
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != len(names):
        raise DataError(
            f"{where}: field 'ranks' must be a list of one number for each candidate, or null "
            "where it is not listed."
        )
    ranks = [number_rank(value) for value in given]
    if None in ranks:
        raise DataError(
            f"{where}: field 'ranks' must hold whole numbers from 1 (the best), or null where a "
            "candidate is not listed."
        )
    return [rank for rank in ranks if rank is not None]


def _from_ranking(given: Any, names: Sequence[Text], *, field: str, numbers: bool) -> list[int]:
    """Return the ranks that a list, best first, gives: of texts, or of numbers of candidates."""
    places: dict[Any, int] = {
        name: index for index, name in enumerate(names) if isinstance(name, str)
    }
    what = "an item"
    if numbers:
        what = "the text of a candidate, or its number, counted from 0"
        places |= {index: index for index in range(len(names))}
    return order_ranks(given, places, len(names), what=what, field=field)
