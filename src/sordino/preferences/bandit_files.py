"""Bandit logs from files, and from any iterable of mappings."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from sordino.errors import DataError, UsageError
from sordino.preferences.bandit_logs import BanditLogs, usable_reward_range
from sordino.preferences.catalogues import Catalogue
from sordino.preferences.context_columns import ContextColumn, columns_of, whole_text
from sordino.preferences.context_vectors import (
    CellReader,
    bounded_vectors,
    cell_of,
    rows_of,
    usable_context_bound,
)
from sordino.preferences.files import Progress, untold

__all__ = ["read_bandit_logs"]


def read_bandit_logs(  # noqa: PLR0913 (each is one choice of the user)
    source: str | Path | Iterable[Mapping[str, Any]],
    *,
    arm: str,
    reward: str,
    catalogue: int | str | Sequence[str] | Catalogue,
    reward_range: tuple[float, float],
    context_columns: Iterable[str | ContextColumn] = (),
    context_bound: float | None = None,
    propensity: str | None = None,
    hides_records: bool = False,
    progress: Progress | None = None,
) -> BanditLogs:
    """Return the bandit logs of a file, or of any iterable of mappings.

    A record is one pull: which arm, what it paid and, if columns are declared, what was known
    before. Other columns are ignored. Bounds are enforced, record by record: one whose arm is not
    in the catalogue is left out, a reward outside the range is set to its nearer end, a context is
    shortened to norm 1. By contract nothing says how many records that concerned.

    An arm is a text or a whole number, compared as a text without the spaces around it: a cell of
    a table is its text, a number of JSON Lines its decimal text. So 14 and "14" are one arm, and
    "14.0" and "014" are others; a JSON number like 14.0 is refused.

    Args:
        source: A ``.jsonl``, ``.csv`` or ``.tsv`` file, also with ``.gz``, or mappings.
        arm: The column of arms.
        reward: The column of rewards, finite numbers.
        catalogue: The arms that can be pulled, which must be public: their number (arms "0", "1",
            …), a list of names, a Catalogue, or ``"path:column"`` of a file.
        reward_range: Lowest and highest reward, which must be public.
        context_columns: What was known before, ``"name"`` for a number or ``"name:8"`` for a text
            that is hashed into 8 entries. Nothing is guessed from the records.
        context_bound: What contexts are divided by; the square root of the number of declared
            columns if None, so that columns within [−1, 1] fit.
        propensity: The column of how likely the arm was to be pulled, in (0, 1].
        hides_records: Whether all of a record is private, as under unit ``"record"``: then no
            message says which record cannot be used, or why. Logs may hold none in any case.
        progress: Called with (bytes read, size of the file).

    Raises:
        DataError: A record or the catalogue cannot be used; place and field are named.
        UsageError: A setting cannot be used.
        FileSystemError: A file cannot be read.

    Example:
        >>> read_bandit_logs([{"item": "a", "click": 1}, {"item": "z", "click": 0}], arm="item",
        ...                  reward="click", catalogue=["a", "b"], reward_range=(0, 1))
        BanditLogs(arms=2, reward_range=(0.0, 1.0))
    """
    _refuse_own_catalogue(source, catalogue)
    ends = usable_reward_range(reward_range)
    contexts = columns_of("context_columns", context_columns)
    if context_bound is None:
        context_bound = math.sqrt(max(1, len(contexts)))
    bound = usable_context_bound(context_bound)
    measured = tuple(ContextColumn(name) for name in (reward, propensity) if name is not None)
    _refuse_shared([ContextColumn(arm), *measured, *contexts])
    known = Catalogue.of(catalogue)
    reader = _LogReader(arm, measured, contexts, known)
    with untold(hides_records=hides_records):
        for where, row in rows_of(source, progress, empty=True):
            reader.add(row, where)
    arms, cells = reader.columns()
    vectors = bounded_vectors(cells[:, len(measured) :], contexts, bound) if contexts else None
    return BanditLogs(
        arms,
        cells[:, 0],
        catalogue=known,
        reward_range=ends,
        contexts=vectors,
        context_columns=contexts,
        context_bound=bound,
        propensities=None if propensity is None else cells[:, 1],
    )


class _LogReader:
    """Takes in one record after another."""

    def __init__(
        self,
        arm: str,
        measured: tuple[ContextColumn, ...],
        contexts: tuple[ContextColumn, ...],
        catalogue: Catalogue,
    ) -> None:
        """Begin with no record."""
        self._arm, self._measured, self._catalogue = arm, measured, catalogue
        self._read = CellReader(measured + contexts)
        self._width = len(measured + contexts)
        self._arms, self._cells = array("q"), array("d")

    def add(self, row: Any, where: str) -> None:
        """Take in one record.

        Raises:
            DataError: It cannot be used.
        """
        name = whole_text(cell_of(row, self._arm, where))
        if name is None:
            raise DataError(f"{where}: field {self._arm!r} must be a text or a whole number.")
        values = self._read(row, where)
        if len(self._measured) > 1 and not 0 < values[1] <= 1:
            field = self._measured[1].name
            raise DataError(f"{where}: field {field!r} must be a probability in (0, 1].")
        self._arms.append(self._catalogue.place(name))
        self._cells.extend(values)

    def columns(self) -> tuple[Int64[np.ndarray, " n"], Float[np.ndarray, "n c"]]:
        """Return the number of each record's arm (−1: none of the catalogue), and its cells."""
        cells = np.array(self._cells, dtype=np.float64).reshape(-1, self._width)
        return np.array(self._arms, dtype=np.int64), cells


def _refuse_shared(columns: Iterable[ContextColumn]) -> None:
    """Refuse one column for two meanings."""
    names = [column.name for column in columns]
    if len(set(names)) < len(names):
        raise UsageError(
            "arm, reward, propensity and context_columns must be different columns, got "
            f"{', '.join(map(repr, names))}. Nothing was read."
        )


def _refuse_own_catalogue(source: Any, catalogue: Any) -> None:
    """Refuse to collect the arms from the logs: which were pulled would be released."""
    same = False
    if isinstance(catalogue, str) and isinstance(source, (str, Path)):
        with suppress(OSError, ValueError):
            same = Path(source).samefile(catalogue.rpartition(":")[0])
    if same:
        raise UsageError(
            "catalogue must not be the file of the logs: which arms were pulled would be "
            "released. Nothing was read. Give the number of arms, or a public file of them."
        )
