"""Records into the columns of comparisons, by rules on public fields alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Integer

from sordino.errors import DataError
from sordino.preferences.comparisons import PublicDigest
from sordino.preferences.records import Record

__all__ = ["Gathered", "columns_of", "gathered", "kept"]


def kept(
    records: Iterable[Record], digest: PublicDigest, *, drop_identical: bool
) -> Iterator[Record]:
    """Yield the records that carry a preference; every one enters the digest first.

    Args:
        records: In file order.
        digest: Takes in the public fields of all of them, and counts what is dropped.
        drop_identical: Leave out pairs of identical answers, a rule on public fields, instead of
            refusing them.

    Raises:
        DataError: A pair has identical answers and they are not to be dropped.
    """
    for record in records:
        digest.add(record.key, record.person)
        if not record.identical:
            yield record
            continue
        if not drop_identical:
            raise DataError(
                f"{record.where}: both answers are the same, so nothing can be preferred. Remove "
                "it, or drop all such pairs with drop_identical=True (--drop-identical)."
            )
        digest.dropped += 1


@dataclass(frozen=True, repr=False, eq=False)
class Gathered:
    """All records of one source.

    Attributes:
        public: The columns of :class:`sordino.preferences.comparisons.Comparisons`.
        outcomes: One label or randomized answer for each record.
        privatized: Whether they are randomized answers.
        cut: Whether prompts are what both answers began with.
    """

    public: dict[str, Any]
    outcomes: Integer[np.ndarray, " n"]
    privatized: bool
    cut: bool


def gathered(
    records: Iterable[Record], *, drop_identical: bool, hides_records: bool = False
) -> Gathered:
    """Return the columns of all records that carry a preference.

    Args:
        records: In file order.
        drop_identical: As for :func:`kept`.
        hides_records: Whether all of a record is private: then those of identical answers are left
            out, and there may be none.

    Raises:
        DataError: There is none, or a pair has identical answers that are not to be dropped.
    """
    digest = PublicDigest()
    rows = list(kept(records, digest, drop_identical=drop_identical or hides_records))
    if not rows and not hides_records:
        raise DataError(
            "No pair is left: every record has identical answers."
            if digest.dropped
            else "The input is empty: no record in it."
        )
    outcomes = np.fromiter((row.outcome for row in rows), dtype=np.int8, count=len(rows))
    privatized, cut = (rows[0].privatized, rows[0].cut) if rows else (False, False)
    return Gathered(columns_of(rows, digest), outcomes, privatized, cut)


def columns_of(rows: list[Record], digest: PublicDigest) -> dict[str, Any]:
    """Return the public columns of records, as :class:`Comparisons` takes them.

    Persons are among them if every record names one.
    """
    persons = tuple(row.person for row in rows if row.person is not None)
    return {
        "keys": tuple(row.key for row in rows),
        "public_digest": digest.hexdigest(),
        "dropped": digest.dropped,
        "prompts": tuple(row.prompt for row in rows),
        "first": tuple(row.first for row in rows),
        "second": tuple(row.second for row in rows),
        "persons": persons if rows and len(persons) == len(rows) else None,
    }
