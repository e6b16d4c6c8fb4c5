"""The attack "id-hash": does an id hash the preferred answer first?

An id that is a hash of the prompt and both answers shows in which order they were hashed. Where
that order is the preference, the id is the label, whatever the randomized answer says.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from jaxtyping import Bool

from .evidence import Channel
from .reading import UNKNOWN, Released
from .recipes import IdRecipe, id_recipes

# Share of the rows that a recipe must reproduce.
_MATCHED = 0.99

_FIRST_ROWS = 4  # with different answers; a recipe that misses two of them is given up
_SAMPLE = 500
_MOST_COLUMNS = 16
_LEAST_NUMBER = 10**6  # a smaller number is no digest
_TEXT_ID = re.compile(r"[0-9A-Za-z+/_-]{6,}={0,2}")
_LONGEST_ID = 256  # of a digest of 64 bytes: 128 digits in hexadecimal, 155 in decimals
_HEXADECIMAL = re.compile(r"[0-9a-f]{6,}")
_ORDERS = ("reversed", "written")
_DIGITS = range(6, 17)  # of a number made from the beginning of a hexadecimal digest


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class IdChannel(Channel):
    """The order of the answers that an id hashes, and the recipe that shows it."""

    recipe: IdRecipe  # reproduces the column; the coins may be keyed by what it makes

    @property
    def column(self) -> str:
        """Return the name of the column that it reads."""
        return str(self.details["column"])


def id_channels(released: Released, recipes: Sequence[IdRecipe] | None = None) -> list[IdChannel]:
    """Return what the ids of a released file say of the order in which answers were hashed."""
    # Every column that may hold digests (hexadecimal, base 64 or large numbers, also cut short) is
    # compared with every recipe: on a few rows first, then on a sample, then on all.
    tried = id_recipes() if recipes is None else recipes
    names = []
    for name, values in released.columns.items():
        shown = [value for value in values[: 8 * _FIRST_ROWS] if value is not None]
        # What a digest, or a part of one, may look like.
        if shown and all(
            abs(value) >= _LEAST_NUMBER
            if isinstance(value, int)
            else isinstance(value, str) and _TEXT_ID.fullmatch(_bare(value))
            for value in shown[: 2 * _FIRST_ROWS]
        ):
            names.append(name)
    found = (_Search(released, name).best(tried) for name in names[:_MOST_COLUMNS])
    return [channel for channel in found if channel is not None]


def _bare(text: str) -> str:
    """Return an id without spaces around it and without what names the hash in front of it."""
    return text.strip().rpartition(":")[2]


def _test(value: object) -> Callable[[bytes], bool]:
    """Return a function that says whether a digest may be shown as this value."""
    if isinstance(value, int):
        return lambda digest: value in _numbers(digest)
    if not isinstance(value, str):
        return lambda _: False
    bare = _bare(value)
    return lambda digest: _shown_as_text(bare, digest)


def _shown_as_text(text: str, digest: bytes) -> bool:
    """Return whether a text is a digest in hexadecimal, base 64 or decimals, also cut short."""
    if len(text) > _LONGEST_ID:
        return False
    plain = text.replace("-", "").lower()
    if _HEXADECIMAL.fullmatch(plain):
        whole = digest.hex()
        if whole.startswith(plain) or whole.endswith(plain):
            return True
        if plain == text and text.isdecimal() and int(text) in _numbers(digest):
            return True
    coded = text.translate(str.maketrans("-_", "+/")).rstrip("=")
    if not _TEXT_ID.fullmatch(coded):
        return False
    part = digest[: len(coded) * 3 // 4]
    exact = base64.b64encode(part).decode().rstrip("=")
    return coded == exact or base64.b64encode(digest).decode().startswith(coded)


def _numbers(digest: bytes) -> set[int]:
    """Return the numbers that are commonly made from a digest."""
    whole, bits = int.from_bytes(digest, "big"), 8 * len(digest)
    found = {whole, *(whole >> bits - 4 * k for k in _DIGITS if 4 * k <= bits)}
    found |= {whole % 10**k for k in range(7, 19)} | {whole % 2**k for k in (31, 32, 63, 64)}
    for size in (4, 6, 8):
        part = digest[:size]
        found |= {int.from_bytes(part, "big"), int.from_bytes(part, "little")}
        found |= {int.from_bytes(part, "big", signed=True), int.from_bytes(part, "big") >> 1}
        found |= {int.from_bytes(part, "little", signed=True)}
    return found | {int.from_bytes(digest[:8], "big") % 2**63}


class _Search:
    """The search for the recipe of one column; its first rows are normalized once."""

    def __init__(self, released: Released, column: str) -> None:
        self.released, self.column = released, column
        self.values = released.columns[column]
        # Rows whose two answers differ in more than spaces and letter case.
        telling = (
            row
            for row, pair in enumerate(zip(released.first, released.second, strict=True))
            if len({"".join(text.lower().split()) for text in pair}) == len(pair)
            and self.values[row] is not None
        )
        self.tests = {row: _test(self.values[row]) for row in islice(telling, _FIRST_ROWS)}
        self.normalized: dict[tuple[Callable[[str], str], int], list[str]] = {}

    def best(self, recipes: Sequence[IdRecipe]) -> IdChannel | None:
        """Return the channel of the first recipe that reproduces the column, if any does."""
        rows = range(len(self.values))
        sample = rows[:: max(1, len(rows) // _SAMPLE)]
        for recipe in recipes:
            if not self._reproduces_first_rows(recipe):
                continue
            forward, backward = self._orders(recipe, sample)
            if np.mean(forward | backward) < _MATCHED:
                continue
            forward, backward = self._orders(recipe, rows)
            if np.mean(forward | backward) < _MATCHED:
                continue
            # The rows that match in exactly one order say something.
            guesses = np.where(forward == backward, UNKNOWN, forward.astype(np.int8))
            spoken = guesses[guesses != UNKNOWN]
            if not len(spoken):
                return None
            constant = spoken.min() == spoken.max()
            details = {
                "recipe": recipe.name,
                "column": self.column,
                "matched": float(np.mean(forward | backward)),
                "file_order": _ORDERS[int(spoken[0])] if constant else None,
            }
            guesses = guesses.astype(np.int8)
            return IdChannel(name="id-hash", guesses=guesses, details=details, recipe=recipe)
        return None

    def _reproduces_first_rows(self, recipe: IdRecipe) -> bool:
        """Return whether all but at most one of the first rows match in either order."""
        misses = 0
        for row, test in self.tests.items():
            key = (recipe.normalize, row)
            if key not in self.normalized:
                self.normalized[key] = [recipe.normalize(text) for text in self._texts(row)]
            prompt, one, other = self.normalized[key]
            hit = test(recipe.joined(prompt, one, other)) or test(recipe.joined(prompt, other, one))
            misses += not hit
            if misses > min(1, len(self.tests) - 1):
                return False
        return bool(self.tests)

    def _texts(self, row: int) -> tuple[str, str, str]:
        released = self.released
        return released.prompts[row], released.first[row], released.second[row]

    def _orders(
        self, recipe: IdRecipe, rows: Sequence[int]
    ) -> tuple[Bool[np.ndarray, " m"], Bool[np.ndarray, " m"]]:
        """Return which rows match with the answers as written, and which with them reversed."""
        forward, backward = np.zeros(len(rows), dtype=bool), np.zeros(len(rows), dtype=bool)
        for place, row in enumerate(rows):
            test = _test(self.values[row])
            prompt, one, other = map(recipe.normalize, self._texts(row))
            forward[place] = test(recipe.joined(prompt, one, other))
            backward[place] = test(recipe.joined(prompt, other, one))
        return forward, backward
