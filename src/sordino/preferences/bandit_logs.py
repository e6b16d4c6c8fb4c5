"""Which arm was pulled for whom, and what it paid: raw, and confidential."""

from __future__ import annotations

import hashlib
import math
import re
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, lru_cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any, cast

import numpy as np
from jaxtyping import Bool, Float, Int64

from sordino import _validate
from sordino._markup import card
from sordino.errors import DataError, UsageError

from .containers import UNNAMED, Progress
from .features import clipped_rows, usable_bound
from .files import read_rows, untold
from .records import framed

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
    @_validate.typed
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
        known, given = Catalogue.of(catalogue), cast("Any", (rewards, propensities))
        return cls(
            known.places(arms),
            given[0],
            catalogue=known,
            reward_range=reward_range,
            contexts=None if contexts is None else bounded_vectors(_rows(contexts), (), bound),
            context_bound=bound,
            propensities=given[1],
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


@_validate.typed
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


_HASHED = re.compile(r"(.+):([0-9]{1,9})", re.DOTALL)
_MOST_BUCKETS = 1 << 16
_CACHED = 1 << 16  # texts of a column whose buckets are remembered while it is read


@dataclass(frozen=True)
class ContextColumn:
    """A column that is declared to hold numbers, or texts that are hashed into one-hot vectors."""

    # Which of the two, the user says; it is never guessed from records. The bucket of a text is
    # SHA-256 of the column's name and the text (spaces around it taken off), a public rule without
    # a seed: the same text has the same bucket in every file and on every machine, and a text that
    # nobody has written before has one too.

    name: str  # of the column
    # How many entries a text becomes, one of which is 1; None for a number.
    buckets: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise UsageError(f"A column must have a name, a text, got {self.name!r}.")
        if self.buckets is not None:
            _validate.integer("buckets", self.buckets, at_least=1, at_most=_MOST_BUCKETS)

    def __str__(self) -> str:
        return self.name if self.buckets is None else f"{self.name}:{self.buckets}"

    @classmethod
    def of(cls, declared: str | ContextColumn) -> ContextColumn:
        """Return the column that ``name`` (a number) or ``name:8`` (hashed) declares."""
        if isinstance(declared, ContextColumn):
            return declared
        hashed = _HASHED.fullmatch(declared) if isinstance(declared, str) else None
        return cls(hashed[1], int(hashed[2])) if hashed else cls(declared)

    @property
    def width(self) -> int:
        """Return how many entries of a vector it becomes."""
        return self.buckets or 1

    def reader(self) -> Callable[[Any], float]:
        """Return what turns a cell into a number, or a bucket; NaN if the cell cannot be used."""
        if self.buckets is None:
            return _number
        start, buckets = hashlib.sha256(framed(_bytes(self.name))), self.buckets

        @lru_cache(_CACHED)  # which goes with the reader
        def bucket_of(text: str) -> float:
            whole = start.copy()
            whole.update(framed(_bytes(text)))
            return float((int.from_bytes(whole.digest()[:8], "big") * buckets) >> 64)

        def read(cell: object) -> float:
            text = _text(cell)
            return math.nan if text is None else bucket_of(text)

        return read


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def whole_text(value: object) -> str | None:
    """Return a text without spaces around it, or a whole number as decimal text, or else None."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool) or not isinstance(value, Integral):
        return None
    with suppress(ValueError):  # thousands of digits
        return str(int(value))
    return None


def _text(value: object) -> str | None:
    """Return what is hashed: a number as its shortest text, nothing as an empty one."""
    if value is None:
        return ""
    if isinstance(value, float):
        return "" if math.isnan(value) else repr(float(value))
    return whole_text(value)


def _number(value: object) -> float:
    """Return a finite number, also one written as a text, or NaN if it is none."""
    number = math.nan
    if isinstance(value, Real) or (isinstance(value, str) and "_" not in value):
        with suppress(ValueError, OverflowError):
            number = float(value)
    return number if math.isfinite(number) else math.nan


def columns_of(argument: str, declared: object) -> tuple[ContextColumn, ...]:
    """Return declared columns, no two of one name."""
    if isinstance(declared, (str, Mapping)) or not isinstance(declared, Iterable):
        raise UsageError(
            f'{argument} must be a list of columns, "name" for a number or "name:8" for texts '
            f"that are hashed into 8 entries, got {declared!r}. Nothing was read."
        )
    columns = tuple(ContextColumn.of(one) for one in declared)
    names = [column.name for column in columns]
    if len(set(names)) < len(names):
        raise UsageError(f"{argument} must not name a column twice, got {names}.")
    return columns


_BLOCK = 1 << 13  # rows that are worked on at once, which bounds the memory


def cell_of(row: Any, name: str, where: str) -> Any:
    """Return one cell of a record."""
    with suppress(LookupError, TypeError, ValueError):
        return row[name]
    named = isinstance(row, Mapping)
    problem = f"field {name!r} is missing" if named else "expected an object with named fields"
    raise DataError(f"{where}: {problem}.")


def cell_reader(columns: Iterable[ContextColumn]) -> Callable[[object, str], list[float]]:
    """Return what reads a number or bucket for each column, of one record after another."""
    readers = [(column, column.reader()) for column in columns]

    def read(row: object, where: str) -> list[float]:
        values = [value_of(cell_of(row, column.name, where)) for column, value_of in readers]
        for (column, _), value in zip(readers, values, strict=True):
            if math.isnan(value):
                wanted = "a finite number" if column.buckets is None else "a text or a number"
                raise DataError(f"{where}: field {column.name!r} must be {wanted}.")
        return values

    return read


def read_cells(
    rows: Iterable[tuple[str, Any]], columns: tuple[ContextColumn, ...]
) -> Float[np.ndarray, "n c"]:
    """Return the declared cells of all records."""
    read, cells = cell_reader(columns), array("d")
    for where, row in rows:
        cells.extend(read(row, where))
    return np.array(cells).reshape(-1, len(columns))


def _expanded(
    cells: Float[np.ndarray, "n c"], columns: tuple[ContextColumn, ...]
) -> Float[np.ndarray, "n p"]:
    """Return numbers as they are and each bucket as a one-hot vector, side by side."""
    rows = np.zeros((len(cells), sum(column.width for column in columns)))
    start = 0
    for column, values in zip(columns, cells.T, strict=True):
        if column.buckets is None:
            rows[:, start] = values
        else:
            rows[np.arange(len(cells)), start + values.astype(np.int64)] = 1.0
        start += column.width
    return rows


def bounded_vectors(
    cells: Float[np.ndarray, "n c"], columns: tuple[ContextColumn, ...], context_bound: float
) -> Float[np.ndarray, "n p"]:
    """Return each row over the bound, shortened to norm at most 1 on its own."""
    width = sum(column.width for column in columns) if columns else cells.shape[1]
    vectors = np.empty((len(cells), width))
    for start in range(0, len(cells), _BLOCK):
        block = np.ascontiguousarray(cells[start : start + _BLOCK])
        rows = _expanded(block, columns) if columns else block
        vectors[start : start + _BLOCK] = clipped_rows(rows, context_bound) / context_bound
    return vectors


_MOST_ARMS = 10_000_000
_ARM = "a text that is not empty, or a whole number"


@dataclass(frozen=True, repr=False, eq=False)
class Catalogue:
    """The k arms that can be pulled: public, and never collected from logs."""

    # Names are texts. Spaces around them are taken off, whole numbers are their decimal texts, and
    # apart from that names are compared letter by letter: 14 and "14" are one arm, "14.0" and "014"
    # are others.

    names: tuple[str, ...]  # one for each arm, no two alike
    _: KW_ONLY
    # What is known of each arm, shape (k, q), as it was given; or None.
    features: Float[np.ndarray, "k q"] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.names, (str, Mapping)) or not isinstance(self.names, Iterable):
            raise UsageError(f"names must be a list of texts, got {type(self.names).__name__}.")
        places = ((f"names: entry {index}", name) for index, name in enumerate(self.names))
        object.__setattr__(self, "names", _distinct(places))
        if self.features is not None:
            features = np.array(_validate.finite_array("features", self.features, ndim=2))
            if len(features) != len(self) or not features.shape[1]:
                raise DataError(
                    f"features must have a row for each of the {len(self)} arms and at least one "
                    f"column, got shape {features.shape}."
                )
            features.setflags(write=False)
            object.__setattr__(self, "features", features)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        known = "" if self.features is None else f", features={self.features.shape[1]}"
        return f"{type(self).__name__}(arms={len(self)}{known})"

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    @classmethod
    def numbered(cls, k: object) -> Catalogue:
        """Return k arms that are called "0", "1", … by their number."""
        count = _validate.integer("The number of arms", k, at_least=1, at_most=_MOST_ARMS)
        return cls(tuple(map(str, range(count))))

    @classmethod
    def of(cls, given: object) -> Catalogue:
        """Return the catalogue that a number of arms, a list of names, or a file says."""
        if isinstance(given, Catalogue):
            return given
        if isinstance(given, Integral):
            return cls.numbered(given)
        if isinstance(given, str):
            path, _, column = given.rpartition(":")
            if path and column:
                return cls.read(path, arm=column)
            if given.isascii() and given.isdigit() and len(given) <= len(str(_MOST_ARMS)):
                return cls.numbered(int(given))
        elif isinstance(given, Iterable) and not isinstance(given, Mapping):
            return cls(tuple(given))
        raise UsageError(
            "catalogue must be a number of arms, a list of their names, a Catalogue, or "
            f'"path:column" of a file, got {given!r}. Nothing was read.'
        )

    @classmethod
    def read(
        cls,
        source: str | Path | Iterable[Mapping[str, Any]],
        *,
        arm: str,
        features: bool | Iterable[str | ContextColumn] | None = None,
    ) -> Catalogue:
        """Return the catalogue of a file, or of mappings, with one record for each arm."""
        # A catalogue is public, so that it may be looked at: with `features=True` its features are
        # all columns besides `arm` whose cells are all numbers. Columns without a name are ignored.
        listed = features is not None and not isinstance(features, bool)
        columns = columns_of("features", features) if listed else ()
        rows = list(read_rows(source, unnamed=True))
        cells = ((f"{where}: field {arm!r}", cell_of(row, arm, where)) for where, row in rows)
        names = _distinct(cells)
        if features is True:
            declared = [
                ContextColumn(name)
                for name in rows[0][1]
                if name and name != arm and not name.startswith(UNNAMED)
            ]
            columns = tuple(
                column
                for column in declared
                if not any(math.isnan(_number(row.get(column.name))) for _, row in rows)
            )
            if not columns:
                raise DataError(
                    "features: no column of the catalogue besides the arms is all numbers."
                )
        known = _expanded(read_cells(rows, columns), columns) if columns else None
        return cls(names, features=known)

    def place(self, name: str) -> int:
        """Return the number of an arm from 0, −1 if the catalogue does not have it."""
        return self._places.get(name, -1)

    def places(self, arms: object) -> Int64[np.ndarray, " n"]:
        """Return the number of each arm from 0, −1 for those that the catalogue does not have."""
        if isinstance(arms, (str, Mapping)) or not isinstance(arms, Iterable):
            raise DataError(f"arms must be a list or an array, got {type(arms).__name__}.")
        given = np.asarray(arms) if hasattr(arms, "__array__") else np.array(list(arms), object)
        if given.ndim != 1:
            raise DataError(f"arms must have 1 dimension, got shape {given.shape}.")
        if given.size and given.dtype.kind not in "iuUTO":
            raise DataError(f"arms must be whole numbers or texts, got dtype {given.dtype}.")
        if given.dtype.kind in "iu":
            known, inverse = np.unique(given, return_inverse=True)
            return self.places(known.tolist())[inverse]
        names = [whole_text(value) for value in given.tolist()]
        if None in names:
            raise DataError(f"arms: entry {names.index(None)} must be a text or a whole number.")
        found = (self._places.get(name, -1) for name in names if name is not None)
        return np.fromiter(found, np.int64, len(names))


def _distinct(places: Iterable[tuple[str, Any]]) -> tuple[str, ...]:
    """Return the names of arms, which must be different ones; messages say where they stand."""
    seen: dict[str, str] = {}
    for where, value in places:
        name = whole_text(value)
        if not name:
            raise DataError(f"{where} must name an arm: {_ARM}.")
        if name in seen:
            raise DataError(f"{where} names an arm that {seen[name]} names already.")
        seen[name] = where
    if not seen:
        raise DataError("The catalogue is empty: no arm in it.")
    return tuple(seen)
