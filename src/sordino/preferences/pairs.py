"""Pairs of answers, one of which somebody preferred: raw, or already randomized."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Integer
from scipy.sparse import csr_array

from sordino import _validate
from sordino.errors import DataError, UsageError
from sordino.preferences.features import Features, differences
from sordino.preferences.files import Progress, alike, read_manifest, read_records
from sordino.preferences.records import Record, Text, parse_record, person_key, person_text
from sordino.privacy.guarantee import Guarantee

__all__ = ["Comparisons", "Pairs", "PrivatePairs", "PublicDigest", "kept", "read_pairs"]


class PublicDigest:
    """A running SHA-256 of the public fields in row order; no label ever enters it.

    Attributes:
        dropped: How many of the records taken in were left out for identical answers.
    """

    def __init__(self) -> None:
        """Start with no record."""
        self._hash = hashlib.sha256()
        self.dropped = 0

    def add(self, key: bytes, person: str | None) -> None:
        """Take in one record: its question, and who answered."""
        self._hash.update(key + (b"\0" if person is None else b"\1" + person_key(person)))

    def hexdigest(self) -> str:
        """Return the digest of everything taken in so far."""
        return self._hash.copy().hexdigest()


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Comparisons:
    """The public part of n comparisons, in canonical order.

    Attributes:
        keys: One key per record for its question, (prompt, {first, second}).
        public_digest: SHA-256 of all public fields, before any row was dropped.
        prompts, first, second: Texts or chat messages; empty when made from features.
        given: Feature differences φ(first) − φ(second), when made from features.
        persons: Public person ids, or None.
        dropped: How many records were left out because their answers are identical.
    """

    keys: tuple[bytes, ...]
    public_digest: str
    prompts: tuple[Text, ...] = ()
    first: tuple[Text, ...] = ()
    second: tuple[Text, ...] = ()
    given: Float[np.ndarray, "n d"] | None = None
    persons: tuple[str, ...] | None = None
    dropped: int = 0

    def __len__(self) -> int:
        """Return the number of comparisons."""
        return len(self.keys)

    def __repr__(self) -> str:
        """Return the kind and the size; never data."""
        return f"{type(self).__name__}(n={len(self)})"

    def differences(self, features: Features | None) -> Float[np.ndarray, "n d"] | csr_array:
        """Return φ(first) − φ(second) for every record.

        Args:
            features: Turns texts into vectors; None if the pairs were made from features.

        Raises:
            UsageError: Features are missing, or were given twice.
        """
        if (self.given is None) == (features is None):
            raise UsageError(
                "features must be given for pairs of texts, and left out for pairs made by "
                "from_features."
            )
        if self.given is not None:
            return self.given
        assert features is not None  # noqa: S101 (for the type checker; shown one line above)
        return differences(features, self.prompts, self.first, self.second)

    def first_rows(self) -> Bool[np.ndarray, " n"]:
        """Return which rows are the first of their (person, question).

        A repeated answer of one person to one question is the same observation, so fits and
        error bars count it once. Without person ids every record is a person of its own.
        """
        if self.persons is None:
            return np.ones(len(self), dtype=bool)
        seen: set[tuple[str, bytes]] = set()
        once = np.zeros(len(self), dtype=bool)
        for index, pair in enumerate(zip(self.persons, self.keys, strict=True)):
            once[index] = pair not in seen
            seen.add(pair)
        return once


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Pairs(Comparisons):
    """Raw judgments: confidential until :func:`sordino.privatize` has randomized them.

    Attributes:
        labels: 1 where ``first`` was preferred, else 0; never printed.

    Example:
        >>> pairs = Pairs.from_features([[1.0, 0.0], [0.0, -2.0]], [1, 0])
        >>> pairs
        Pairs(n=2)
    """

    labels: Integer[np.ndarray, " n"] = field(kw_only=True)

    def without(self, questions: Collection[bytes]) -> Pairs:
        """Return the judgments of other questions than these, by their keys: a public rule."""
        rows = [index for index, key in enumerate(self.keys) if key not in questions]
        columns: dict[str, Any] = {"labels": self.labels[rows]}
        for name in ("keys", "prompts", "first", "second", "persons"):
            column = getattr(self, name)
            columns[name] = tuple(column[index] for index in rows) if column else column
        if self.given is not None:
            columns["given"] = self.given[rows]
        return replace(self, **columns)

    @classmethod
    def from_features(
        cls, differences: Any, labels: Any, *, persons: Iterable[str] | None = None
    ) -> Pairs:
        """Return pairs from feature differences, put into an order that ignores the labels.

        A row x = φ(a) − φ(b) and its label say the same as −x with the other label, so each row
        is turned until its first nonzero entry is positive. Without this, rows written as
        "chosen minus rejected" would give every label away.

        Args:
            differences: φ(a) − φ(b), shape (n, d), finite.
            labels: 1 where a was preferred, else 0, shape (n,).
            persons: Public person ids, one per row.

        Raises:
            DataError: Shapes disagree, a value is not finite, a label is not 0 or 1, or a row is
                zero (identical answers carry no preference).
        """
        rows = _validate.finite_array("differences", differences, ndim=2)
        outcome = np.asarray(labels)
        if outcome.shape != (len(rows),) or not np.isin(outcome, (0, 1)).all():
            raise DataError(f"labels must be 0 or 1, one for each of the {len(rows)} rows.")
        if not len(rows):
            raise DataError("differences is empty: no record in it.")
        nonzero = rows != 0
        if not nonzero.any(axis=1).all():
            index = int(np.flatnonzero(~nonzero.any(axis=1))[0])
            raise DataError(f"differences: row {index} is zero; identical answers say nothing.")
        lead = rows[np.arange(len(rows)), nonzero.argmax(axis=1)]
        rows = rows * np.sign(lead)[:, None] + 0.0  # + 0.0 turns −0.0 into 0.0
        keys = tuple(hashlib.sha256(row.tobytes()).digest() for row in rows)
        people = None if persons is None else _people(persons, len(rows))
        digest = PublicDigest()
        for index, key in enumerate(keys):
            digest.add(key, people[index] if people else None)
        return cls(
            keys=keys,
            public_digest=digest.hexdigest(),
            given=rows,
            persons=people,
            labels=(outcome.astype(np.int8) ^ (lead < 0)).astype(np.int8),
        )


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class PrivatePairs(Comparisons):
    """Randomized answers with the promise they carry: everything done with them is free.

    Attributes:
        answers: 1 where the randomized answer prefers ``first``, else 0.
        flip_probability: Chance that an answer is not the judgment.
        guarantee: What the answers promise.
        release_ids: Ledger entries that paid for them, or recorded their arrival.
        artifact: SHA-256 of the released answers.
    """

    answers: Integer[np.ndarray, " n"] = field(kw_only=True)
    flip_probability: float = field(kw_only=True)
    guarantee: Guarantee = field(kw_only=True)
    release_ids: tuple[str, ...] = field(default=(), kw_only=True)
    artifact: str = field(kw_only=True)

    def received(self, release_id: str) -> PrivatePairs:
        """Return the same answers, tied to the ledger entry that recorded their arrival."""
        return replace(self, release_ids=(*self.release_ids, release_id))


def _people(persons: Iterable[Any], n: int) -> tuple[str, ...]:
    """Return one person id for each of n rows."""
    found = [person_text(value, f"persons: entry {at}") for at, value in enumerate(persons)]
    people = tuple(person for person in found if person is not None)
    if len(people) != n or len(found) != n:
        raise DataError(f"persons must have one entry for each of the {n} rows.")
    return people


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
