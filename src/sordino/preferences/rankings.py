"""Raw judgments of several candidates at once: rankings, whole, partial or with ties."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Integer
from numpy.typing import ArrayLike

from sordino import _validate
from sordino.errors import DataError, UsageError

from .ballots import (
    array_ranks,
    bounds_of,
    doubled_average_ranks,
    flat_ranks,
    item_names,
    offered_table,
    order_ranks,
    row_order,
)
from .comparisons import RAW, PublicDigest, Questions, taken
from .features import Features, Matrix, refuse_other_features
from .pairs import Pairs, number_labels
from .records import Text, candidate_order

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
_TWO = 2  # candidates of a pair


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

    def as_pairs(self) -> Pairs:
        """Return the same judgments as pairs, where every ballot has two candidates.

        A tie, and a ballot that lists nothing, is an undecided label.

        Raises:
            DataError: A ballot has more than two candidates.
        """
        if not (self.sizes == _TWO).all():
            index = int(np.flatnonzero(self.sizes != _TWO)[0])
            raise DataError(f"Ballot {index} has more than two candidates, so it is not a pair.")
        doubled = self.doubled_ranks()
        labels = (1 + np.sign(doubled[1::2] - doubled[::2])) / 2
        if self.given is not None:
            rows = self.flat_features(None)
            return Pairs.from_features(rows[::2] - rows[1::2], labels, persons=self.persons)
        texts = self.candidates
        if self.items is not None:
            assert self.offered is not None  # noqa: S101 (for the type checker; set at the start)
            names = [self.items[number] for number in self.offered.tolist()]
            both = list(zip(names[::2], names[1::2], strict=True))
            orders = [candidate_order("", pair)[0] for pair in both]
            pairs = zip(both, orders, strict=True)
            texts = tuple(pair[place] for pair, order in pairs for place in order)
            labels = np.where([order[0] == 1 for order in orders], 1 - labels, labels)
        return Pairs(
            keys=self.keys,
            public_digest=self.public_digest,
            prompts=self.prompts or ("",) * len(self),
            first=texts[::2],
            second=texts[1::2],
            persons=self.persons,
            labels=number_labels(labels, len(self)),
        )

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
        cube = _validate.finite_array("candidates", candidates, ndim=_CUBE)
        _refuse_shape("candidates", cube.shape, (n, k, cube.shape[2]))
        starts = np.arange(n + 1) * k
        return cls.from_flat(cube.reshape(n * k, cube.shape[2]), starts, table.ravel(), persons)

    @classmethod
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
    def from_flat(
        cls,
        features: object,
        starts: ArrayLike,
        ranks: object,
        persons: Iterable[str] | None = None,
    ) -> Rankings:
        """Return rankings from flat arrays, where ballots may differ in how many candidates.

        Args:
            features: Features of the candidates of all ballots, shape (m, d).
            starts: Where each ballot begins, and m at the end, shape (n + 1,).
            ranks: 1 for the best, equal in a tie, 0 where not listed, shape (m,).
            persons: Public person ids, one per ballot.

        Raises:
            DataError: As :meth:`from_ranks`.
        """
        rows = _validate.finite_array("features", features, ndim=2) + 0.0  # −0.0 becomes 0.0
        bounds = bounds_of(starts, np.size(starts) - 1)
        flat = flat_ranks(ranks, bounds)
        _refuse_shape("features", rows.shape, (len(flat), max(1, rows.shape[1])))
        turned = np.empty(len(flat), dtype=np.int64)
        keys = []
        for index, (start, stop) in enumerate(pairwise(bounds.tolist())):
            order, key = row_order(rows[start:stop])
            if key is None:
                raise DataError(
                    f"Ballot {index} has two candidates with the same features, so neither can be "
                    "preferred. Merge them."
                )
            turned[start:stop] = np.add(order, start)
            keys.append(key)
        return cls._made(
            tuple(keys), persons, starts=bounds, ranks=flat[turned], given=rows[turned]
        )

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
