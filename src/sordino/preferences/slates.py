"""The public part of ballots: the questions, the candidates and who was asked, but no rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float, Integer

from sordino import _validate
from sordino.errors import DataError, UsageError
from sordino.preferences.ballots import bounds_of
from sordino.preferences.comparisons import Comparisons, PublicDigest
from sordino.preferences.features import Features, Matrix, refuse_learned
from sordino.preferences.ranking_records import items_key, row_order
from sordino.preferences.records import Text, candidate_order

__all__ = ["Slates", "digest_of_ballots", "keys_of_offers"]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Slates:
    """What n ballots are about: lists of candidates, each in canonical order.

    Ballot i is over the K_i >= 2 candidates ``starts[i]:starts[i + 1]`` of the flat columns.

    Attributes:
        keys: One key per ballot for its question, (prompt, set of candidates).
        public_digest: SHA-256 of all public fields.
        starts: Where each ballot begins, and m at the end; n + 1 numbers.
        prompts: Texts or chat messages, one per ballot; empty without texts.
        candidates: Texts or chat messages, m of them; empty without texts.
        items: The names of all that ballots choose from, sorted; None if ballots have candidates
            of their own.
        offered: Which item every flat candidate is, from 0 and rising within a ballot: what this
            ballot was offered, listed or not. All items, if left out.
        named: Whether, in public, every ballot names all that it was offered. Then which items a
            ballot names is public; else it is as private as their order.
        given: Features of the m candidates, or of the K items, when made from features.
        persons: Public person ids, or None.
    """

    keys: tuple[bytes, ...]
    public_digest: str
    starts: Integer[np.ndarray, " bounds"]
    prompts: tuple[Text, ...] = ()
    candidates: tuple[Text, ...] = ()
    items: tuple[str, ...] | None = None
    offered: Integer[np.ndarray, " m"] | None = None
    named: bool = False
    given: Float[np.ndarray, "rows d"] | None = None
    persons: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Read ids in one way, and refuse columns that do not fit together."""
        starts = bounds_of(self.starts, len(self))
        object.__setattr__(self, "starts", starts)
        texts = self.items is None and self.given is None
        m, k = int(starts[-1]), len(self.items or ())
        wanted = {
            "prompts": len(self) if texts else 0,
            "candidates": m if texts else 0,
            "given": k or m,
            "persons": len(self),
        }
        for name, length in wanted.items():
            column = getattr(self, name)
            if column is not None and len(column) != length:
                raise DataError(f"{name} must have {length} entries, got {len(column)}.")
        if self.persons is not None:
            object.__setattr__(self, "persons", _validate.person_ids(self.persons, len(self)))
        if self.items is not None:
            object.__setattr__(self, "offered", _offered_items(self.offered, starts, k))
        elif self.offered is not None or self.named:
            raise DataError("offered and named are for ballots over items.")

    def __len__(self) -> int:
        """Return the number of ballots."""
        return len(self.keys)

    def __repr__(self) -> str:
        """Return the kind and the size; never data."""
        return f"{type(self).__name__}(n={len(self)})"

    @property
    def sizes(self) -> Integer[np.ndarray, " n"]:
        """Return how many candidates each ballot has, listed or not; it is public."""
        return np.diff(self.starts)

    def first_rows(self) -> Bool[np.ndarray, " n"]:
        """Return which ballots are the first of their (person, question), as of pairs."""
        rows = np.empty((len(self), 0))
        return Comparisons(
            keys=self.keys, public_digest=self.public_digest, given=rows, persons=self.persons
        ).first_rows()

    def flat_features(self, features: Features | None) -> Matrix:
        """Return the features of all candidates of all ballots, shape (m, d), dense or sparse.

        Of items the rows are repeated for each ballot that was offered them;
        :meth:`item_features` has them once.

        Args:
            features: Turns texts into vectors; None if the rankings were made from features.

        Raises:
            UsageError: Features are missing, or were given twice.
        """
        if self.items is not None:
            return self.item_features(features)[self.offered]
        self._refuse_features(features, needed=self.given is None)
        refuse_learned(features)
        if features is None:
            assert self.given is not None  # noqa: S101 (for the type checker; shown above)
            return self.given
        sizes = self.sizes.tolist()
        prompts = [text for text, k in zip(self.prompts, sizes, strict=True) for _ in range(k)]
        return features.transform(prompts, self.candidates)

    def item_features(self, features: Features | None = None) -> Matrix:
        """Return the features of the items, shape (K, d), in the order of ``items``.

        Args:
            features: Turns the names into vectors, with an empty prompt. None gives the features
                that the rankings were made from or, without any, one coordinate for each item.

        Raises:
            UsageError: There are no items, or features were given twice.
        """
        if self.items is None:
            raise UsageError(
                "items are needed: these ballots have candidates of their own, so use "
                "flat_features."
            )
        if features is None:
            return np.eye(len(self.items)) if self.given is None else self.given
        self._refuse_features(features, needed=self.given is None)
        refuse_learned(features)
        return features.transform([""] * len(self.items), self.items)

    def _refuse_features(self, features: Features | None, *, needed: bool) -> None:
        """Refuse what is no feature map, and one too many or too few."""
        if features is not None and not isinstance(features, Features):
            raise UsageError(
                "features must be HashedText(...), or a function of yours wrapped as "
                f"FunctionFeatures(function, dimension=..., name=...); got {features!r}."
            )
        if needed != (features is not None):
            raise UsageError(
                "features must be given for rankings of texts, and left out for rankings made "
                "from features."
            )

    def canonical_keys(self) -> Iterator[bytes | None]:
        """Yield the key of every question, or None where its candidates are in another order."""
        if self.items is not None:
            assert self.offered is not None  # noqa: S101 (for the type checker; set at the start)
            in_order = list(self.items) == sorted(self.items)
            keys = keys_of_offers(self.items, self.offered, self.starts)
            yield from (key if in_order else None for key in keys)
            return
        key: bytes | None
        for index, (start, stop) in enumerate(pairwise(self.starts.tolist())):
            if self.given is None:
                order, key = candidate_order(self.prompts[index], self.candidates[start:stop])
            else:
                order, key = row_order(self.given[start:stop])
            yield key if order == list(range(stop - start)) else None


def keys_of_offers(
    items: Sequence[str],
    offered: Integer[np.ndarray, " m"],
    starts: Integer[np.ndarray, " bounds"],
) -> tuple[bytes, ...]:
    """Return the key of every ballot over items: that of the items that it was offered."""
    known: dict[bytes, bytes] = {}
    keys = []
    for start, stop in pairwise(starts.tolist()):
        numbers = offered[start:stop]
        what = numbers.tobytes()
        if what not in known:
            known[what] = items_key([items[number] for number in numbers.tolist()])
        keys.append(known[what])
    return tuple(keys)


def _offered_items(
    offered: Integer[np.ndarray, " m"] | None, starts: Integer[np.ndarray, " bounds"], k: int
) -> Integer[np.ndarray, " m"]:
    """Return which item every flat candidate is, which nobody can change afterwards.

    Raises:
        DataError: They are no items, or do not rise within a ballot.
    """
    if offered is None:
        if not (np.diff(starts) == k).all():
            raise DataError("starts must be every multiple of the number of items.")
        offered = np.tile(np.arange(k), len(starts) - 1)
    numbers = np.array(offered)
    if numbers.shape != (int(starts[-1]),) or numbers.dtype.kind not in "iu":
        raise DataError("offered must be one whole number for each candidate of each ballot.")
    rises = np.diff(numbers) > 0
    rises[starts[1:-1] - 1] = True  # from one ballot to the next
    if not rises.all() or numbers.min(initial=0) < 0 or numbers.max(initial=0) >= k:
        raise DataError(f"offered must rise from 0 to at most {k - 1} within each ballot.")
    numbers = numbers.astype(np.int64)
    numbers.setflags(write=False)
    return numbers


def digest_of_ballots(keys: Sequence[bytes], persons: Sequence[str] | None) -> str:
    """Return the digest of the public fields of ballots."""
    digest = PublicDigest()
    for index, key in enumerate(keys):
        digest.add(key, None if persons is None else persons[index])
    return digest.hexdigest()
