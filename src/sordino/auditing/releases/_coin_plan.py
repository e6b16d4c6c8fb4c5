"""Which coins to try on a released file: recipes, seeds, ids, and orders of its rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Integer

from sordino.auditing.releases._coin_search import Case
from sordino.auditing.releases.digests import JOINS, IdRecipe, id_recipes
from sordino.auditing.releases.evidence import Channel
from sordino.auditing.releases.ids import IdChannel
from sordino.auditing.releases.nesting import parts_of
from sordino.auditing.releases.recipes import CoinRecipe
from sordino.auditing.releases.released import Released

__all__ = ["SMALL", "UNSEEDED", "Plan", "manifest_integers"]

Text = Callable[[int], str]

SMALL = "small seed"
UNSEEDED = "no seed"
_MOST_INTEGERS = 200
_MOST_FULL = 8  # seeds of the manifest that are tried with every recipe, not only the core
_LARGEST = 2**128
_CALLED_SEED = re.compile(r"seed|state|random|rng|salt|key|nonce", re.IGNORECASE)
_INTEGER = re.compile(r"[+-]?[0-9]{1,39}")
_LONG_STREAM = 4096  # of longer files, small seeds are not run over all rows twice
_MOST_COLUMNS = 4
_DISTINCT = 0.9
_DEEPEST = 100
_END = object()  # of a list of parts
_MOST_JOINED = 1001  # small seeds that are tried with the ways to join texts
_BARRED = "prompt, x, y by '|'"
_COMMON_JOINS = tuple(f"prompt, x, y by {mark!a}" for mark in ("", "|", "\n", " "))
_SOME = 40  # rows by which keys are told apart


def manifest_integers(manifest: Mapping[str, Any] | None) -> dict[int, str]:
    """Return every whole number in a manifest, and where it stands first.

    Args:
        manifest: JSON beside a file, or None. Whole numbers in texts count; at most 200 numbers
            are returned, those whose name sounds like a seed first.

    Example:
        >>> manifest_integers({"split": {"n": 7}, "runs": [{"seed": "12"}]})
        {12: 'manifest.runs[0].seed', 7: 'manifest.split.n'}
    """
    found: dict[int, str] = {}
    places = list(_integers(manifest, "manifest"))
    for value, path in sorted(places, key=lambda place: not _CALLED_SEED.search(place[1])):
        found.setdefault(value, path)
    return dict(list(found.items())[:_MOST_INTEGERS])


def _integers(value: Any, path: str) -> Iterator[tuple[int, str]]:
    """Yield whole numbers with their path, in the order of the JSON text.

    What lies deeper than 100 levels is left out, and nothing calls itself.
    """
    inside: list[Iterator[tuple[str, Any]]] = [iter([(path, value)])]
    while inside:
        path, value = next(inside[-1], ("", _END))
        if value is _END:
            inside.pop()
        elif (isinstance(value, str) and _INTEGER.fullmatch(value.strip())) or _is_whole(value):
            yield int(value), path
        elif len(inside) <= _DEEPEST:
            inside.append(parts_of(value, path))


def _is_whole(value: Any) -> bool:
    """Return whether a value is a whole number that may be a seed."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < _LARGEST and value == int(value)


@dataclass(frozen=True, kw_only=True, repr=False)
class _Keys:
    """What a keyed coin may be keyed by."""

    name: str
    text: Text
    core: bool = False


class Plan:
    """Every case to try on one file, in three stages."""

    def __init__(
        self,
        released: Released,
        channels: Sequence[Channel],
        recipes: Sequence[CoinRecipe],
        seeds: Sequence[int],
    ) -> None:
        """Look at the columns; nothing is hashed yet."""
        self.released, self.recipes, self.n = released, recipes, len(released)
        self.ids = [channel for channel in channels if isinstance(channel, IdChannel)]
        self.columns = _key_columns(released, [channel.column for channel in self.ids])
        self.published = manifest_integers(released.manifest)
        first = [seed for seed, path in self.published.items() if _CALLED_SEED.search(path)]
        self.full = (first or list(self.published))[:_MOST_FULL]
        self.small = [seed for seed in seeds if seed not in self.published]

    def source(self, case: Case, seed: int) -> str:
        """Return where a seed is from."""
        unkeyed = case.recipe.kind == "unkeyed"
        return UNSEEDED if unkeyed else self.published.get(seed, SMALL)

    def stages(self) -> list[list[Case]]:
        """Return the cases: those without a seed and of the manifest's seeds; the small seeds."""
        others = [seed for seed in self.published if seed not in self.full]
        core = [recipe for recipe in self.recipes if recipe.core]
        first = [*self._cases(self.recipes, self.full), *self._cases(core, others, core=True)]
        return [first, list(self._cases(core, self.small, core=True))]

    def _cases(
        self, recipes: Sequence[CoinRecipe], seeds: Sequence[int], *, core: bool = False
    ) -> Iterator[Case]:
        """Yield every recipe with every kind of key."""
        for recipe in recipes:
            unkeyed = recipe.kind == "unkeyed"
            able = [0] if unkeyed else [seed for seed in seeds if recipe.takes(seed)]
            if not able or (unkeyed and core):  # which was tried already
                continue
            if recipe.kind == "stream":
                yield from self._streams(recipe, able)
            elif recipe.kind == "row":
                for start in (0,) if core else (0, 1):
                    yield self._case(recipe, able, f"row number from {start}", start.__add__)
            else:
                for keys in self._keys:
                    if keys.core or not core:
                        yield self._case(recipe, able, keys.name, keys.text)
                for keys in self._joins if recipe.core else ():
                    if keys.core or unkeyed:
                        yield self._case(recipe, able[:_MOST_JOINED], keys.name, keys.text)

    def _case(
        self, recipe: CoinRecipe, seeds: Sequence[int], keyed: str, key: Callable[[int], object]
    ) -> Case:
        """Return a recipe with one kind of key."""
        return Case(recipe=recipe, keyed=keyed, n=self.n, seeds=seeds, key=key)

    def _streams(self, recipe: CoinRecipe, seeds: Sequence[int]) -> Iterator[Case]:
        """Yield draws in the order of the file, and in the order of an id column."""
        blocks = len(seeds) <= _MOST_INTEGERS or self.n <= _LONG_STREAM
        for name, order in self._row_orders:
            yield Case(recipe=recipe, keyed=name, n=self.n, seeds=seeds, order=order, blocks=blocks)

    @cached_property
    def _row_orders(self) -> list[tuple[str, Integer[np.ndarray, " n"]]]:
        """Return the orders in which one generator may have served the rows."""
        orders = [("rows in file order", np.arange(self.n))]
        for name in self.columns[:1]:
            values = np.array([str(value) for value in self.released.columns[name]])
            orders.append((f"rows sorted by column {name!r}", np.argsort(values, kind="stable")))
        return orders

    @cached_property
    def _keys(self) -> list[_Keys]:
        """Return the ids: columns, hashes and joined texts in three orders, prompts, numbers."""
        released = self.released
        found = [
            _Keys(name=f"column {name!r}", text=_column_text(released, name), core=place == 0)
            for place, name in enumerate(self.columns)
        ]
        recipe = self.ids[0].recipe if self.ids else id_recipes()[0]
        for order in self._orders:
            arranged = _arranged(released, order)
            core = order == "canonical" or (order == "written" and not self.columns)
            found.append(_Keys(name=f"id, {order}", text=_hashed(recipe, arranged), core=core))
        found.append(_Keys(name="prompt", text=released.prompts.__getitem__, core=True))
        found += [_Keys(name="row from 0", text=str), _Keys(name="row from 1", text=_next)]
        found += [
            _Keys(name=f"texts, {order}", text=_joined(JOINS[_BARRED], _arranged(released, order)))
            for order in self._orders
            if "reversed" not in order
        ]
        return self._distinct(found)

    @cached_property
    def _joins(self) -> list[_Keys]:
        """Return every way to join the texts of a row; with a seed, the common ones are tried."""
        return self._distinct(
            [
                _Keys(
                    name=f"{name}, {order}",
                    text=_joined(join, _arranged(self.released, order)),
                    core=name in _COMMON_JOINS and "reversed" not in order,
                )
                for name, join in JOINS.items()
                for order in self._orders
            ]
        )

    @property
    def _orders(self) -> list[str]:
        """Return the orders in which the answers of a row may have been put."""
        if self.released.layout == "chosen-rejected":
            return ["canonical", "canonical, reversed"]
        return ["written", "reversed", "canonical"]

    def _distinct(self, found: Sequence[_Keys]) -> list[_Keys]:
        """Return keys without those that are the same in some rows: they are tried once."""
        some = range(0, self.n, max(1, self.n // _SOME))
        distinct = {tuple(map(keys.text, some)): keys for keys in reversed(found)}
        return [keys for keys in found if keys in distinct.values()]


def _next(row: int) -> str:
    """Return the number of a row, counted from 1."""
    return str(row + 1)


def _key_columns(released: Released, first: Sequence[str]) -> list[str]:
    """Return the columns that may key a coin: almost every row has a value of its own."""
    able = [
        name
        for name, values in released.columns.items()
        if all(isinstance(value, str | int) for value in values)
        and len(set(values)) >= _DISTINCT * len(values)
    ]
    return sorted(able, key=lambda name: name not in first)[:_MOST_COLUMNS]


def _column_text(released: Released, name: str) -> Text:
    """Return a column as id texts."""
    values = released.columns[name]
    return lambda row: str(values[row])


def _arranged(released: Released, order: str) -> Callable[[int], tuple[str, str, str]]:
    """Return prompt and answers of a row in an order."""

    def texts(row: int) -> tuple[str, str, str]:
        turn = order.endswith("reversed") ^ (
            order.startswith("canonical") and bool(released.swapped[row])
        )
        pair = released.first[row], released.second[row]
        return released.prompts[row], pair[turn], pair[not turn]

    return texts


def _hashed(recipe: IdRecipe, texts: Callable[[int], tuple[str, str, str]]) -> Text:
    """Return the ids that a recipe makes, in hexadecimal."""
    made: dict[int, str] = {}

    def text(row: int) -> str:
        if row not in made:
            made[row] = recipe.of(*texts(row)).hex()
        return made[row]

    return text


def _joined(
    join: Callable[[str, str, str], str], texts: Callable[[int], tuple[str, str, str]]
) -> Text:
    """Return the texts of a row as one."""
    return lambda row: join(*texts(row))
