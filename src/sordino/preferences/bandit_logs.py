"""Which arm was pulled for whom, and what it paid: raw, and confidential."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int64

from sordino import _validate
from sordino._markup import card
from sordino.errors import DataError, UsageError

from .catalogues import (
    Catalogue,
    ContextColumn,
    bounded_vectors,
    cell_of,
    cell_reader,
    columns_of,
    read_cells,
    whole_text,
)
from .containers import Progress
from .features import usable_bound
from .files import read_rows, untold

_ENDS = 2  # of a reward range


@dataclass(frozen=True, repr=False, eq=False)
class BanditLogs:
    """Records of a bandit: an arm, its reward, and what was known before; confidential.

    Everything that bounds what one record can do is enforced here, for each record on its own and
    whatever the others are: a record whose arm is not in the catalogue is left out, a reward
    outside the range is set to its nearer end, and no context is longer than 1. By contract nothing
    says how many records that concerned, nor how many there are: under add-or-remove that is
    private too. No record at all is a data set like any other.

    Attributes:
        arms: Number of the arm in the catalogue, from 0, of each record.
        rewards: What it paid, within ``reward_range``.
        catalogue: The arms that can be pulled; public.
        reward_range: Lowest and highest reward; public, and known without the logs.
        contexts: What was known before the arm was pulled, shape (n, p), of norm at most 1; or
            None.
        context_columns: The declared columns that contexts were made from; none for vectors.
        context_bound: What each context was divided by before it was shortened to norm 1.
        propensities: How likely the arm was to be pulled, each in (0, 1]; or None.

    Raises:
        DataError: Columns are of different lengths, hold what is not finite, or a context is
            longer than 1 or a propensity outside (0, 1]; the message gives the row.
        UsageError: The reward range, the catalogue, or the bound cannot be used.

    Example:
        >>> BanditLogs.from_arrays([0, 1, 7], [0.5, 9.0, 1.0], catalogue=2, reward_range=(0, 1))
        BanditLogs(arms=2, reward_range=(0.0, 1.0))
    """

    arms: Int64[np.ndarray, " n"]
    rewards: Float[np.ndarray, " n"]
    _: KW_ONLY
    catalogue: Catalogue
    reward_range: tuple[float, float]
    contexts: Float[np.ndarray, "n p"] | None = None
    context_columns: tuple[ContextColumn, ...] = ()
    context_bound: float = 1.0
    propensities: Float[np.ndarray, " n"] | None = None

    def __post_init__(self) -> None:
        low, high = usable_reward_range(self.reward_range)
        if not isinstance(self.catalogue, Catalogue):
            raise UsageError(f"catalogue must be a Catalogue, got {self.catalogue!r}.")
        object.__setattr__(self, "reward_range", (low, high))
        _validate.settle(self, context_bound=usable_bound)
        arms = np.asarray(self.arms)
        if arms.dtype.kind not in "iu" or arms.ndim != 1:
            raise DataError(
                "arms must be numbers of arms, one for each record; got shape "
                f"{arms.shape} of dtype {arms.dtype}. Use from_arrays."
            )
        kept = (arms >= 0) & (arms < len(self.catalogue))
        self._keep("arms", arms.astype(np.int64, copy=False), kept)
        self._keep("rewards", np.clip(self._checked("rewards", len(arms)), low, high), kept)
        if self.contexts is not None:
            self._keep("contexts", self._vectors(len(arms)), kept)
        if self.propensities is not None:
            shares = self._checked("propensities", len(arms))
            _refuse_row("propensities", "is not in (0, 1]", ~((shares > 0) & (shares <= 1)))
            self._keep("propensities", shares, kept)

    def _keep(self, name: str, values: np.ndarray, kept: Bool[np.ndarray, " n"]) -> None:
        copied = values[kept]
        copied.setflags(write=False)
        object.__setattr__(self, name, copied)

    def _checked(self, name: str, n: int, ndim: int = 1) -> np.ndarray:
        column = _validate.finite_array(name, getattr(self, name), ndim=ndim)
        if len(column) != n:
            raise DataError(
                f"{name} must have {n} rows, one for each of the arms, got {len(column)}."
            )
        return column

    def _vectors(self, n: int) -> Float[np.ndarray, "n p"]:
        rows = self._checked("contexts", n, ndim=2)
        width = sum(column.width for column in self.context_columns)
        if not rows.shape[1] or (self.context_columns and rows.shape[1] != width):
            raise DataError(
                f"contexts must have {width or 'at least one'} column(s), got {rows.shape[1]}."
            )
        with np.errstate(over="ignore"):
            squares = np.einsum("ij,ij->i", rows, rows)
        _refuse_row("contexts", "is longer than 1; from_arrays shortens such rows", squares > 1)
        return rows

    def __repr__(self) -> str:
        told = f"arms={len(self.catalogue)}, reward_range={self.reward_range}"
        if self.context_columns:
            told += f", context_columns={[str(column) for column in self.context_columns]}"
        return f"{type(self).__name__}({told})"

    def _repr_html_(self) -> str:
        low, high = self.reward_range
        columns = ", ".join(map(str, self.context_columns))
        rows = [
            ("arms", len(self.catalogue)),
            ("rewards", f"{low:g} to {high:g}"),
            ("contexts", columns or (None if self.contexts is None else "vectors")),
            ("propensities", None if self.propensities is None else "given"),
        ]
        return card(type(self).__name__, rows)

    @classmethod
    def from_arrays(
        cls,
        arms: object,
        rewards: object,
        *,
        catalogue: int | str | Sequence[str] | Catalogue,
        reward_range: tuple[float, float],
        contexts: object = None,
        context_bound: float = 1.0,
        propensities: object = None,
    ) -> BanditLogs:
        """Return logs from one array for each of their columns.

        Args:
            arms: n whole numbers or texts, which are looked up in the catalogue by the rule of
                :class:`Catalogue`; records of other arms are left out silently.
            rewards: n finite numbers; those outside the range are set to its nearer end.
            catalogue: The arms that can be pulled: their number, names, a Catalogue, or
                ``"path:column"`` of a file.
            reward_range: Lowest and highest reward.
            contexts: Vectors, shape (n, p). Each is divided by the bound, and shortened to norm 1
                if it is longer then.
            context_bound: Within 1e-100 and 1e100. (Logs of declared columns have another default,
                the square root of their number.)
            propensities: n numbers in (0, 1].

        Raises:
            DataError: Lengths differ or a value cannot be used; the message gives row or dtype.
            UsageError: A setting cannot be used.
        """
        bound = usable_bound("context_bound", context_bound)
        ends = usable_reward_range(reward_range)
        known = Catalogue.of(catalogue)
        vectors, shares = None, None
        if contexts is not None:
            vectors = bounded_vectors(_rows(contexts), (), bound)
        if propensities is not None:
            shares = _validate.finite_array("propensities", propensities, ndim=1)
        return cls(
            known.places(arms),
            _validate.finite_array("rewards", rewards, ndim=1),
            catalogue=known,
            reward_range=ends,
            contexts=vectors,
            context_bound=bound,
            propensities=shares,
        )

    def contexts_of(self, source: object) -> Float[np.ndarray, "m p"]:
        """Return the vectors of public contexts, made as those of the logs were."""
        # Of declared columns the source holds mappings, or is a file of such; else it is an array.
        if self.contexts is None:
            raise UsageError("These logs have no contexts, so nothing can be asked about one.")
        if self.context_columns:
            if isinstance(source, Mapping) or not isinstance(source, (str, Path, Iterable)):
                raise UsageError(
                    "contexts must be a file or a list of mappings that hold the declared columns, "
                    f"got {type(source).__name__}."
                )
            cells = read_cells(read_rows(source, unnamed=True), self.context_columns)
            return bounded_vectors(cells, self.context_columns, self.context_bound)
        rows = _rows(source)
        if rows.shape[1] != self.contexts.shape[1]:
            raise DataError(
                f"contexts must have {self.contexts.shape[1]} column(s), as those of the logs, got "
                f"shape {rows.shape}."
            )
        return bounded_vectors(rows, (), self.context_bound)


def usable_reward_range(value: object) -> tuple[float, float]:
    """Return the ends of a reward range as floats, the lower first."""
    ends: tuple[float, ...] = ()
    if isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, str):
        ends = tuple(_validate.number("reward_range", end) for end in value)
    if len(ends) != _ENDS or not 0 < ends[1] - ends[0] < math.inf:
        raise UsageError(
            f"reward_range must be two finite numbers, the lower one first, got {value!r}. Nothing "
            "was done. It must be known without the logs: read from them, it would give away two "
            "rewards."
        )
    return ends[0], ends[1]


def _rows(contexts: object) -> Float[np.ndarray, "n p"]:
    rows = _validate.finite_array("contexts", contexts, ndim=2)
    if not rows.shape[1]:
        raise DataError("contexts must have at least one column, got 0.")
    return rows


def _refuse_row(name: str, problem: str, wrong: Bool[np.ndarray, " n"]) -> None:
    if wrong.any():
        raise DataError(f"{name}: row {int(np.argmax(wrong))} {problem}.")


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
    same = False
    if isinstance(catalogue, str) and isinstance(source, (str, Path)):
        with suppress(OSError, ValueError):
            same = Path(source).samefile(catalogue.rpartition(":")[0])
    if same:
        raise UsageError(
            "catalogue must not be the file of the logs: which arms were pulled would be "
            "released. Nothing was read. Give the number of arms, or a public file of them."
        )
    ends = usable_reward_range(reward_range)
    contexts = columns_of("context_columns", context_columns)
    if context_bound is None:
        context_bound = math.sqrt(max(1, len(contexts)))
    bound = usable_bound("context_bound", context_bound)
    measured = tuple(ContextColumn(name) for name in (reward, propensity) if name is not None)
    names = [column.name for column in (ContextColumn(arm), *measured, *contexts)]
    if len(set(names)) < len(names):
        raise UsageError(
            "arm, reward, propensity and context_columns must be different columns, got "
            f"{', '.join(map(repr, names))}. Nothing was read."
        )
    known, read = Catalogue.of(catalogue), cell_reader(measured + contexts)
    arms, values = array("q"), array("d")
    with untold(hides_records=hides_records):
        for where, row in read_rows(source, unnamed=True, empty=True, progress=progress):
            name = whole_text(cell_of(row, arm, where))
            if name is None:
                raise DataError(f"{where}: field {arm!r} must be a text or a whole number.")
            found = read(row, where)
            if propensity is not None and not 0 < found[1] <= 1:
                raise DataError(f"{where}: field {propensity!r} must be a probability in (0, 1].")
            arms.append(known.place(name))  # −1: none of the catalogue
            values.extend(found)
    cells = np.array(values, dtype=np.float64).reshape(-1, len(measured + contexts))
    vectors = bounded_vectors(cells[:, len(measured) :], contexts, bound) if contexts else None
    return BanditLogs(
        np.array(arms, dtype=np.int64),
        cells[:, 0],
        catalogue=known,
        reward_range=ends,
        contexts=vectors,
        context_columns=contexts,
        context_bound=bound,
        propensities=None if propensity is None else cells[:, 1],
    )
