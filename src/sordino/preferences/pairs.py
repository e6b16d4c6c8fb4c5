"""Pairs of answers, one of which somebody preferred: raw, or already randomized."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Integer
from scipy.sparse import csr_array

from sordino import _validate
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.preferences.features import Features, differences
from sordino.preferences.records import (
    Text,
    canonical,
    person_key,
    person_text,
)
from sordino.privacy.conversions import flip_probability
from sordino.privacy.guarantee import Guarantee

__all__ = ["Comparisons", "Pairs", "PrivatePairs", "PublicDigest"]


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

    def __post_init__(self) -> None:
        """Refuse columns of different lengths: one question, one answer, one coin."""
        for name in ("prompts", "first", "second", "given", "persons"):
            column = getattr(self, name)
            if column is not None and len(column) not in {len(self)} | _absent(self, name):
                raise DataError(
                    f"{name} must have one entry for each of the {len(self)} keys, got "
                    f"{len(column)}."
                )

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
        if features is not None and not isinstance(features, Features):
            raise UsageError(
                "features must be HashedText(...), or a function of yours wrapped as "
                f"FunctionFeatures(function, dimension=..., name=...); got {features!r}."
            )
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

    def __post_init__(self) -> None:
        """Refuse labels that are not one 0 or 1 for every question."""
        super().__post_init__()
        object.__setattr__(self, "labels", _outcomes("labels", self.labels, len(self)))

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
        lead = _leads(rows)
        rows = rows * np.sign(lead)[:, None] + 0.0  # + 0.0 turns −0.0 into 0.0
        keys = tuple(map(_row_key, rows))
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
    seal: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse answers that are not those that the promise was made for."""
        super().__post_init__()
        object.__setattr__(self, "answers", _outcomes("answers", self.answers, len(self)))
        seal = digest_of_answers(self.public_digest, self.answers)
        if self.seal not in {None, seal}:
            raise PrivacyError(
                "These are not the answers that were released under this promise, so it does not "
                "speak for them. Make private pairs with privatize or read_pairs."
            )
        object.__setattr__(self, "seal", seal)
        epsilon = self.guarantee.epsilon
        flips = 0.0 if math.isinf(epsilon) else flip_probability(epsilon)
        if not math.isclose(self.flip_probability, flips, rel_tol=1e-9):
            raise PrivacyError(
                f"Answers that promise epsilon={epsilon:g} are flipped with probability "
                f"{flips:.9g}, not {self.flip_probability:.9g}."
            )

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


def _absent(pairs: Comparisons, name: str) -> set[int]:
    """Return the lengths besides n that a column may have: texts are left out with features."""
    return {0} if name in {"prompts", "first", "second"} and pairs.given is not None else set()


def _outcomes(name: str, values: Any, n: int) -> Integer[np.ndarray, " n"]:
    """Return n outcomes of 0 or 1 that nobody can change afterwards."""
    outcomes = np.array(values)
    if outcomes.shape != (n,) or not np.isin(outcomes, (0, 1)).all():
        raise DataError(f"{name} must be 0 or 1, one for each of the {n} keys.")
    outcomes = outcomes.astype(np.int8)
    outcomes.setflags(write=False)
    return outcomes


def _leads(rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
    """Return the first nonzero entry of every row."""
    return np.asarray(rows[np.arange(len(rows)), (rows != 0).argmax(axis=1)])


def _row_key(row: Float[np.ndarray, " d"]) -> bytes:
    """Return the key of a question that is known by its features only."""
    return hashlib.sha256(row.tobytes()).digest()


def digest_of_answers(public_digest: str, answers: Integer[np.ndarray, " n"]) -> str:
    """Return the SHA-256 of released answers together with what they answer."""
    return hashlib.sha256(f"{public_digest}\n".encode() + answers.tobytes()).hexdigest()
