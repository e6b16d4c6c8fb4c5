"""Pairs from files, and from any iterable of mappings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sordino.errors import DataError
from sordino.preferences.files import Progress, read_records, records_of, untold
from sordino.preferences.gathering import gathered, kept
from sordino.preferences.manifest import read_manifest
from sordino.preferences.pairs import Pairs
from sordino.preferences.private_pairs import PrivatePairs

__all__ = ["kept", "read_pairs"]


def read_pairs(
    source: str | Path | Iterable[Mapping[str, Any]],
    *,
    drop_identical: bool = False,
    person_field: str = "person",
    manifest: str | Path | None = None,
    hides_records: bool = False,
    progress: Progress | None = None,
) -> Pairs | PrivatePairs:
    """Return the pairs of a file, or of any iterable of mappings (a ``datasets`` object, say).

    Raw records hold ``prompt`` and either ``chosen`` and ``rejected`` (texts or chat messages) or
    ``first``, ``second`` and ``label``: 1 if ``first`` is preferred, 0, or undecided ("tie",
    "both bad", "both good", "skip", 0.5), which is as private as the other two. All records may
    leave ``prompt`` out: it is then what both answers begin with. ``labels`` (a list) instead of
    ``label`` is one judgment of each of several people. Privatized records hold ``answer`` and
    need their manifest. Which of two answers is called ``first`` is decided by a hash of the
    text, so it tells nothing about the label.

    Args:
        source: A ``.jsonl``, ``.csv`` or ``.tsv`` file, also with ``.gz``, or mappings.
        drop_identical: Drop pairs of identical answers instead of refusing them.
        person_field: Name of the optional public person id; its plural (``persons``) is a list
            beside ``labels``.
        manifest: Manifest of a privatized file, if not beside it.
        hides_records: Whether all of a record is private, as under unit ``"record"``. Then there
            may be no record at all, those of identical answers are left out, persons are known if
            every record names one, and no message says which record cannot be used, or why.
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
        records = read_records(
            path, person_field=person_field, hides_records=hides_records, progress=progress
        )
    else:
        path = None
        numbered = ((row, f"record {number}") for number, row in enumerate(source, start=1))
        records = records_of(numbered, person_field=person_field, hides_records=hides_records)
    with untold(hides_records=hides_records):
        found = gathered(records, drop_identical=drop_identical, hides_records=hides_records)
    if not found.privatized:
        return Pairs(**found.public, labels=found.outcomes)
    if path is None:
        raise DataError("Randomized answers can only be read from a file with a manifest.")
    note = read_manifest(path, None if manifest is None else Path(manifest))
    return PrivatePairs(
        **found.public,
        answers=found.outcomes,
        flip_probability=note.flip_probability,
        guarantee=note.guarantee,
        artifact=note.sha256,
    )
