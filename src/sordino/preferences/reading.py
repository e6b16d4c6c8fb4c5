"""Pairs from files, and from any iterable of mappings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sordino.errors import DataError
from sordino.preferences.comparisons import PublicDigest
from sordino.preferences.files import Progress, alike, read_records
from sordino.preferences.manifest import read_manifest
from sordino.preferences.pairs import Pairs
from sordino.preferences.private_pairs import PrivatePairs
from sordino.preferences.records import Record, parse_record

__all__ = ["kept", "read_pairs"]


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


def read_pairs(
    source: str | Path | Iterable[Mapping[str, Any]],
    *,
    drop_identical: bool = False,
    person_field: str = "person",
    manifest: str | Path | None = None,
    progress: Progress | None = None,
) -> Pairs | PrivatePairs:
    """Return the pairs of a file, or of any iterable of mappings (a ``datasets`` object, say).

    Raw records hold ``chosen`` and ``rejected`` (texts, chat messages, or transcripts whose
    shared beginning is the prompt) or ``prompt``, ``first``, ``second`` and ``label``;
    privatized ones hold ``answer`` and need their manifest. Which of two answers is called
    ``first`` is decided by a hash of the text, so it tells nothing about the label.

    Args:
        source: A ``.jsonl`` or ``.jsonl.gz`` file, or mappings.
        drop_identical: Drop pairs of identical answers instead of refusing them.
        person_field: Name of the optional public person id.
        manifest: Manifest of a privatized file, if not beside it.
        progress: Called with (bytes read, size of the file).

    Raises:
        DataError: A record or the manifest cannot be used; place and field are named.
        FileSystemError: The file cannot be read.

    Example:
        >>> read_pairs([{"prompt": "Hi", "chosen": "Hello!", "rejected": "What?"}])
        Pairs(n=1)
    """
    if isinstance(source, (str, Path)):
        path = Path(source)
        records = read_records(path, person_field=person_field, progress=progress)
    else:
        path = None
        numbered = ((row, f"record {number}") for number, row in enumerate(source, start=1))
        records = alike(
            parse_record(row, where, person_field=person_field) for row, where in numbered
        )
    digest = PublicDigest()
    rows = list(kept(records, digest, drop_identical=drop_identical))
    if not rows:
        raise DataError("No pair is left: every record has identical answers.")
    public = columns(rows, digest)
    outcomes = np.fromiter((row.outcome for row in rows), dtype=np.int8, count=len(rows))
    if not rows[0].privatized:
        return Pairs(**public, labels=outcomes)
    if path is None:
        raise DataError("Randomized answers can only be read from a file with a manifest.")
    found = read_manifest(path, None if manifest is None else Path(manifest))
    return PrivatePairs(
        **public,
        answers=outcomes,
        flip_probability=found.flip_probability,
        guarantee=found.guarantee,
        artifact=found.sha256,
    )


def columns(rows: list[Record], digest: PublicDigest) -> dict[str, Any]:
    """Return the public columns of records, as :class:`Comparisons` takes them."""
    persons = tuple(row.person for row in rows if row.person is not None)
    return {
        "keys": tuple(row.key for row in rows),
        "public_digest": digest.hexdigest(),
        "dropped": digest.dropped,
        "prompts": tuple(row.prompt for row in rows),
        "first": tuple(row.first for row in rows),
        "second": tuple(row.second for row in rows),
        "persons": persons or None,
    }
