"""Battles as differences of items: who met whom, in which group, and how differently it was said.

What a board learns from is public but for who won: a row has a 1 for the item whose answer stands
first and a −1 for the other. Which items there are is declared, and no vote decides it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from jaxtyping import Float
from scipy import sparse

from sordino._validate import person_id
from sordino.errors import DataError, UsageError

from .features import flatten
from .records import Names, Text

if TYPE_CHECKING:
    from .comparisons import Comparisons

LEVEL: Final = "(liked)"
"""The item that a thumb holds an answer against: what people expect."""

STYLE: Final = {
    "length": re.compile(r"\w+"),
    "headings": re.compile(r"^#{1,6} ", re.MULTILINE),
    "lists": re.compile(r"^[ \t]{0,8}(?:[-*•]|\d{1,3}[.)]) ", re.MULTILINE),
    "bold": re.compile(r"\*\*[^*\n]+\*\*"),
    "code": re.compile(r"```"),
}
"""What is counted of an answer to control for style."""

_WEIGHT: Final = 0.3  # of a full difference in style, where one of two items is 1
_DOUBLINGS: Final = 2.0  # a full difference: four times as much


@dataclass(frozen=True)
class ItemDifferences:
    """Features of battles: e_a − e_b over declared items, for all votes and for each group.

    A row holds the items, then the differences in style, then both again for each group, of which
    only the group of the battle is not 0. A style is w·clip(log₂((1 + s_a)/(1 + s_b))/2, −1, 1), s
    what :data:`STYLE` counts in an answer and w = 0.3. With ``ties`` a counter for all votes and
    one for each group come last, as :class:`~sordino.mechanisms.label_sum.LabelGaussian` takes
    them.

    Args:
        items: Their names, declared or public; at least two, each once.
        groups: Public groups of prompts that get a board of their own.
        style: Which of :data:`STYLE` are differences beside the items.
        ties: Whether ties are counted, or are half a win for both.
    """

    items: tuple[str, ...]
    _: KW_ONLY
    groups: tuple[str, ...] = ()
    style: tuple[str, ...] = ()
    ties: bool = False

    def __post_init__(self) -> None:
        for name, least in (("items", 2), ("groups", 0)):
            given = tuple(person_id(f"{name} {one!r}", one) for one in getattr(self, name))
            object.__setattr__(self, name, given)
            if len(set(given)) < max(len(given), least):
                raise UsageError(f"{name} must be at least {least} names, each once.")
        if not {*self.style} <= {*STYLE}:
            raise UsageError(f"style must be of {', '.join(STYLE)}, got {self.style!r}.")

    @classmethod
    def of(cls, pairs: Comparisons, **settings: Any) -> ItemDifferences:
        """Return the features of all items that are named: only where names are public."""
        named = {name for each in _names_of(pairs) for name in each[:2]} - {""}
        items = (*sorted(named), *([LEVEL] if pairs.alone else []))
        return cls(items, **settings)

    @property
    def width(self) -> int:
        """Return how many numbers each board has: its items and styles."""
        return len(self.items) + len(self.style)

    @property
    def counters(self) -> int:
        """Return how many numbers of ties are counted."""
        return (1 + len(self.groups)) * self.ties

    @property
    def dimension(self) -> int:
        """Return d, counters of ties included."""
        return self.width * (1 + len(self.groups)) + self.counters

    @property
    def feature_bound(self) -> float:
        """Return half of the longest row, without counters of ties."""
        square = 2 + len(self.style) * _WEIGHT**2
        return float(np.sqrt(square * (2 if self.groups else 1)) / 2)

    def transform(self, prompts: Sequence[Text], answers: Sequence[Text]) -> sparse.csr_array:
        """Return a row for each answer that is the name of an item."""
        del prompts
        places = [self._place(self._items, str(name), "item") for name in answers]
        ones = np.ones(len(places)), (np.arange(len(places)), places)
        return sparse.csr_array(ones, shape=(len(places), self.dimension))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        public = {name: list(getattr(self, name)) for name in ("items", "groups", "style")}
        return {"kind": "items", **public, "ties": self.ties}

    def rows(self, pairs: Comparisons) -> sparse.csr_array:
        """Return the differences of all battles.

        Raises:
            DataError: An answer has no name, or a name or a group is not among the declared ones.
        """
        names = _names_of(pairs)
        second = [LEVEL if pairs.alone else each.second for each in names]
        n, base = len(names), np.arange(len(names))
        blocks = [np.zeros(n, dtype=np.int64)]
        if self.groups:
            groups = [self._place(self._groups, each.group, "group") for each in names]
            blocks.append(1 + np.array(groups, dtype=np.int64))
        sides = (1.0, [each.first for each in names]), (-1.0, second)
        parts: list[tuple[Any, Any, Any]] = []
        for sign, side in sides:
            places = [self._place(self._items, name, "item") for name in side]
            parts += [(base, np.array(places, np.int64) + at * self.width, sign) for at in blocks]
        for number, style in enumerate(self._styles(pairs), start=len(self.items)):
            parts += [(base, number + at * self.width, style) for at in blocks]
        if self.ties:
            start = self.width * (1 + len(self.groups))
            parts += [(base, start + at, 1.0) for at in blocks]
        rows, columns, values = (
            np.concatenate([np.broadcast_to(part[k], n) for part in parts]) for k in range(3)
        )
        made = sparse.csr_array((values, (rows, columns)), shape=(n, self.dimension))
        made.sum_duplicates()  # an item that met itself
        made.eliminate_zeros()
        return made

    def board(self, group: str = "") -> slice:
        """Return the columns of the board of all votes, or of a group."""
        at = self.width * (0 if not group else 1 + self._groups[group])
        return slice(at, at + self.width)

    @cached_property
    def _items(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.items)}

    @cached_property
    def _groups(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.groups)}

    @staticmethod
    def _place(known: dict[str, int], name: str, what: str) -> int:
        if name not in known:
            raise DataError(
                f"{what} {name!r} is not among the {len(known)} that were declared. Nothing was "
                f"released. Declare it too ({what}s), or leave its battles out."
            )
        return known[name]

    def _styles(self, pairs: Comparisons) -> list[Float[np.ndarray, " n"]]:
        """Return the difference in every style, for all battles."""
        if not self.style:
            return []
        if pairs.bare or pairs.alone:
            raise DataError(
                "There is no style to control for: two answers to each prompt are needed, and "
                "these judgments hold none. Nothing was released. Leave style out."
            )
        sides = [
            flatten(side, name) for name, side in (("first", pairs.first), ("second", pairs.second))
        ]
        found = []
        for style in self.style:
            one, other = (
                np.log2([1.0 + len(STYLE[style].findall(text)) for text in side]) for side in sides
            )
            found.append(_WEIGHT * np.clip((one - other) / _DOUBLINGS, -1, 1))
        return found

    def _has_read(self, _private: object) -> dict[str, bool]:
        return {"known": True, "read": False}  # a public rule


def _names_of(pairs: Comparisons) -> Sequence[Names]:
    """Return whose answers met; refuse judgments that do not say it."""
    if pairs.names is None and len(pairs):
        raise DataError(
            "These judgments do not say whose answers met. Nothing was released. Name the columns "
            "that do: --columns first_name=COLUMN,second_name=COLUMN."
        )
    return pairs.names or ()
