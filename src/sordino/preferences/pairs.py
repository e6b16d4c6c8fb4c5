"""Raw judgments of which of two answers is better."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Integer

from sordino import _validate
from sordino.errors import DataError, PrivacyError
from sordino.preferences.comparisons import Comparisons, PublicDigest, outcomes
from sordino.preferences.files import records_of, untold
from sordino.preferences.frames import frame_rows
from sordino.preferences.gathering import gathered
from sordino.preferences.labels import UNDECIDED, turned
from sordino.preferences.records import canonical

__all__ = ["Pairs", "number_labels", "turned_rows"]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Pairs(Comparisons):
    """Raw judgments: confidential until :func:`sordino.privatize` has randomized them.

    Attributes:
        labels: 1 where ``first`` was preferred, 0 where ``second`` was, 2 where neither (a tie,
            "both bad", "skip"); never printed.

    Example:
        >>> pairs = Pairs.from_features([[1.0, 0.0], [0.0, -2.0]], [1, 0])
        >>> pairs
        Pairs(n=2)
    """

    labels: Integer[np.ndarray, " n"] = field(kw_only=True)

    def __post_init__(self) -> None:
        """Refuse labels that are not one 0, 1 or 2 for every question."""
        super().__post_init__()
        labels = outcomes("labels", self.labels, len(self), undecided=True)
        object.__setattr__(self, "labels", labels)

    def refuse_other_order(self) -> None:
        """Refuse pairs whose order or keys were not made by the public rule.

        Pairs written as "chosen first" would give every label away, whatever the noise.

        Raises:
            PrivacyError: A row is not in canonical order, or its key is of another question.
        """
        if self.given is None:
            texts = zip(self.prompts, self.first, self.second, strict=True)
            found = [canonical(*text) for text in texts]
        else:
            leads = _leads(self.given)
            found = [(lead < 0, _row_key(row)) for lead, row in zip(leads, self.given, strict=True)]
        for index, (pair, key) in enumerate(zip(found, self.keys, strict=True)):
            if pair != (False, key):
                raise PrivacyError(
                    f"Row {index} is not in canonical order, so its position could tell its "
                    "label. Nothing was released. Make pairs with read_pairs or from_features."
                )

    def without(self, questions: Collection[bytes]) -> Pairs:
        """Return the judgments of other questions than these, by their keys: a public rule."""
        return self.part([index for index, key in enumerate(self.keys) if key not in questions])

    def part(self, rows: Sequence[int]) -> Pairs:
        """Return some of the rows, in the order given, with the public digest of those alone.

        Args:
            rows: Their numbers. They must be chosen without looking at a label.
        """
        digest = PublicDigest()
        for index in rows:
            digest.add(self.keys[index], None if self.persons is None else self.persons[index])
        columns: dict[str, Any] = {
            "labels": self.labels[list(rows)],
            "public_digest": digest.hexdigest(),
        }
        for name in ("keys", "prompts", "first", "second", "persons"):
            column = getattr(self, name)
            columns[name] = tuple(column[index] for index in rows) if column else column
        if self.given is not None:
            columns["given"] = self.given[list(rows)]
        return replace(self, **columns)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        columns: Mapping[str, str] | None = None,
        drop_identical: bool = False,
        person_field: str = "person",
    ) -> Pairs:
        """Return the pairs of a data frame, by the rules of :func:`sordino.read_pairs`.

        Args:
            frame: A pandas or polars ``DataFrame``, or a pyarrow ``Table``, of raw judgments.
            columns: What our fields are called there, where it is otherwise:
                ``{"prompt": "question"}``. Columns that are no field of ours are ignored.
            drop_identical: Drop pairs of identical answers instead of refusing them.
            person_field: Name of the optional public person id.

        Raises:
            UsageError: It is no frame, or ``columns`` names what is not there.
            DataError: A row cannot be used (counted from 0), or the frame holds randomized
                answers, which come from files with a manifest.

        Example:
            >>> class Frame:
            ...     columns = ("question", "chosen", "rejected")
            ...     def to_dict(self, orient):
            ...         return [dict(zip(self.columns, ("Hi", "Hello!", "What?")))]
            >>> Pairs.from_frame(Frame(), columns={"prompt": "question"})
            Pairs(n=1)
        """
        rows = frame_rows(frame, columns=columns, person_field=person_field)
        records = records_of(rows, person_field=person_field)
        found = gathered(records, drop_identical=drop_identical)
        return cls(**found.public, labels=found.outcomes)

    @classmethod
    def from_features(
        cls,
        differences: Any,
        labels: Any,
        *,
        persons: Iterable[str] | None = None,
        hides_records: bool = False,
    ) -> Pairs:
        """Return pairs from feature differences, put into an order that ignores the labels.

        A row x = φ(a) − φ(b) and its label say the same as −x with the other label, so each row
        is turned until its first nonzero entry is positive. Without this, rows written as
        "chosen minus rejected" would give every label away.

        Args:
            differences: φ(a) − φ(b), shape (n, d), finite.
            labels: 1 where a was preferred, 0 where b was, 0.5 where neither, shape (n,).
            persons: Public person ids, one per row.
            hides_records: Whether all of a record is private, as under unit ``"record"``: then
                rows that are zero are left out, there may be no row, and no message gives one.

        Raises:
            DataError: Shapes disagree, a value is not finite, a label is none of these, or a row
                is zero (identical answers carry no preference).
        """
        with untold(hides_records=hides_records):
            given = _validate.finite_array("differences", differences, ndim=2)
            outcome = number_labels(labels, len(given))
            people = None if persons is None else _validate.person_ids(persons, len(given))
        if not len(given) and not hides_records:
            raise DataError("differences is empty: no record in it.")
        kept = np.flatnonzero(given.any(axis=1) | (not hides_records))
        people = people and tuple(people[row] for row in kept)
        rows, outcome = turned_rows(given[kept], outcome[kept])
        keys = tuple(map(_row_key, rows))
        digest = PublicDigest()
        for index, key in enumerate(keys):
            digest.add(key, people[index] if people else None)
        return cls(
            keys=keys,
            public_digest=digest.hexdigest(),
            given=rows,
            persons=people or None,
            labels=outcome,
            dropped=len(given) - len(rows),
        )


def turned_rows(
    rows: Float[np.ndarray, "n d"], outcome: Integer[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, "n d"], Integer[np.ndarray, " n"]]:
    """Return feature differences and their labels in an order that ignores the labels.

    Raises:
        DataError: A row is zero.
    """
    lead = _leads(rows)
    if not lead.all():
        index = int(np.flatnonzero(lead == 0)[0])
        raise DataError(f"differences: row {index} is zero; identical answers say nothing.")
    # + 0.0 turns −0.0 into 0.0
    return rows * np.sign(lead)[:, None] + 0.0, turned(outcome, swap=lead < 0)


def number_labels(labels: Any, n: int) -> Integer[np.ndarray, " n"]:
    """Return n labels that were given as numbers: 0, 1 or 0.5.

    A 2 is refused although it is how undecided labels are kept: whoever counts the two answers
    as 1 and 2 would have every other judgment taken for a tie.
    """
    given = np.asarray(labels)
    if given.shape != (n,) or not np.isin(given, (0, 1, 0.5)).all():
        raise DataError(f"labels must be 0 or 1 (or 0.5: undecided), one for each of the {n} rows.")
    return np.where(given == 0.5, UNDECIDED, given).astype(np.int8)  # noqa: PLR2004 (y = ½)


def _leads(rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
    """Return the first nonzero entry of every row."""
    return np.asarray(rows[np.arange(len(rows)), (rows != 0).argmax(axis=1)])


def _row_key(row: Float[np.ndarray, " d"]) -> bytes:
    """Return the key of a question that is known by its features only."""
    return hashlib.sha256(row.tobytes()).digest()
