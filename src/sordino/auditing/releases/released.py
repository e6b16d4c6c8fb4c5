"""A file that claims local privacy, as an attacker holds it: every column, in the order written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Integer

from sordino.preferences.records import canonical

__all__ = ["UNKNOWN", "Layout", "Released"]

Layout = Literal["answer", "z", "chosen-rejected"]
UNKNOWN = -1
"""The truth of a row that no raw record, or no single one, was found for."""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Released:
    """The rows of a released file, with nothing changed that an attacker could use.

    Attributes:
        name: Name of the file.
        layout: ``"answer"`` (``prompt``, ``first``, ``second``, ``answer``), ``"z"`` (``prompt``,
            ``a1``, ``a2``, ``z`` = ±1 or 0/1) or ``"chosen-rejected"``, where the order written
            *is* the answer, so that every entry of ``answers`` is 1.
        prompts, first, second: Texts in the order written.
        answers: 1 where the released answer prefers the one written first, else 0.
        epsilon: The privacy loss per label that the file claims.
        persons: Public person ids, or None.
        columns: Every other column, by name; None where a row lacks it.
        manifest: What lies beside the file, as JSON, or None; of a folder what all agree on.
        releases: The release that each row is of, by its manifest; None unless it is a folder.
        truth: With the raw file, 1 where the one written first was truly preferred, 0 where the
            other was, :data:`UNKNOWN` elsewhere; None without the raw file.
        displayed: With a raw file that wrote its answers in an order that is not the label, 1
            where the one written first was written first there too, 0 where the other was,
            :data:`UNKNOWN` elsewhere; None otherwise.
    """

    name: str
    layout: Layout
    prompts: tuple[str, ...]
    first: tuple[str, ...]
    second: tuple[str, ...]
    answers: Integer[np.ndarray, " n"]
    epsilon: float
    persons: tuple[str, ...] | None = None
    columns: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    manifest: Mapping[str, Any] | None = None
    releases: tuple[str, ...] | None = None
    truth: Integer[np.ndarray, " n"] | None = None
    displayed: Integer[np.ndarray, " n"] | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.prompts)

    def __repr__(self) -> str:
        """Return the layout and the size; never data."""
        return f"Released(n={len(self)}, layout={self.layout!r})"

    @cached_property
    def swapped(self) -> Bool[np.ndarray, " n"]:
        """Return where the order written is not the canonical one, a hash order of the texts."""
        rows = zip(self.prompts, self.first, self.second, strict=True)
        return np.fromiter((canonical(*row)[0] for row in rows), dtype=bool, count=len(self))

    @cached_property
    def keys(self) -> tuple[bytes, ...]:
        """Return what identifies the question of each row, whatever the order of its answers."""
        rows = zip(self.prompts, self.first, self.second, strict=True)
        return tuple(canonical(*row)[1] for row in rows)
