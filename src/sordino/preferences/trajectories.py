"""Raw judgments of which of two trajectories went better."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from sordino import _validate
from sordino._files import explained
from sordino.errors import DataError, UsageError
from sordino.privacy.guarantee import UNDECIDED

from .comparisons import all_named
from .containers import Progress
from .features import clipped_rows, usable_bound
from .files import Kind, untold
from .pairs import Pairs, number_labels
from .records import JUDGING_FIELDS, WANTED, label_value, person_of


@dataclass(frozen=True, repr=False, eq=False)
class Trajectories:
    """Comparisons of trajectories of one known length, as pairs of summed features.

    A comparison of two trajectories is a pair whose x = Σ_h (φ_h(first) − φ_h(second)), so all that
    takes pairs takes ``pairs``. With a bound L on a step, ‖x‖ is at most 2HL: the bound is
    enforced, each step is clipped to L before the sum. The second moment is that of the sums,
    Σ x xᵀ. Steps are not kept: the sum of their own outer products is a smaller matrix that does
    not bound the curvature.

    Attributes:
        pairs: The summed differences and the labels; confidential.
        horizon: H, the number of steps of every trajectory.
        feature_bound: L, to which each step was clipped, or None if none was.

    Source:
        docs/rankings.md, "Trajectories".

    Example:
        >>> Trajectories.from_steps([[[1.0], [1.0]]], [[[0.0], [0.5]]], [1], feature_bound=1.0)
        Trajectories(n=1, horizon=2)
    """

    pairs: Pairs
    _: KW_ONLY
    horizon: int
    feature_bound: float | None = None

    def __post_init__(self) -> None:
        _validate.integer("horizon", self.horizon, at_least=1)
        if self.feature_bound is not None:
            _validate.settle(self, feature_bound=usable_bound)
        if self.pairs.given is None:
            raise DataError("pairs must be made from features; use from_steps.")
        bound = self.difference_bound
        if bound is not None and (np.linalg.norm(self.pairs.given, axis=1) > bound).any():
            raise DataError("pairs hold a row above 2HL, the bound of a sum; use from_steps.")

    def __len__(self) -> int:
        return len(self.pairs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={len(self)}, horizon={self.horizon})"

    @property
    def difference_bound(self) -> float | None:
        """Return R = 2HL, which no row of ``pairs`` exceeds, or None if no bound was enforced."""
        return None if self.feature_bound is None else 2 * self.horizon * self.feature_bound

    @classmethod
    @_validate.typed
    def from_steps(
        cls,
        first: Sequence[ArrayLike],
        second: Sequence[ArrayLike],
        labels: object,
        persons: Iterable[str] | None = None,
        *,
        feature_bound: float | None = None,
        horizon: int | None = None,
        drop: Collection[str] = (),
    ) -> Trajectories:
        """Return comparisons of trajectories that are known by the features of their steps.

        Which is called ``first`` tells nothing afterwards, as in :meth:`Pairs.from_features`.

        Args:
            first: φ of each step, shape (n, H, d), or n arrays of shape (H, d).
            second: The same of the trajectories compared with them.
            labels: 1 where ``first`` went better, 0 where ``second`` did, 0.5 where neither.
            persons: Public person ids, one per comparison.
            feature_bound: L; each step is clipped to this norm on its own. None leaves the steps as
                they are, which record privacy does not allow.
            horizon: H, if it is to be checked; else that of the first trajectory.
            drop: ``["identical"]`` leaves out comparisons whose features sum to the same, a rule
                on public fields, instead of refusing them.

        Raises:
            DataError: Lengths or shapes differ, or a value is not finite; the message gives the
                comparison, from 0. Or labels cannot be used, or a sum is zero.

        Example:
            >>> one, other = [[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 3.0]]
            >>> made = Trajectories.from_steps([one], [other], [1], feature_bound=1.0)
            >>> made.pairs.given.round(6).tolist(), made.difference_bound
            ([[2.0, -2.0]], 4.0)
        """
        if len(first) != len(second):
            raise DataError(
                f"first and second must be as many, got {len(first)} and {len(second)}."
            )
        if not len(first):
            raise DataError("first is empty: no comparison in it.")
        sums: list[Float[np.ndarray, " d"]] = []
        bound = None if feature_bound is None else usable_bound("feature_bound", feature_bound)
        for index, sides in enumerate(zip(first, second, strict=True)):
            where = f"comparison {index}"
            one, other = (steps_of(side, where) for side in sides)
            horizon = len(one) if horizon is None else horizon
            sums.append(_step_sum(one, other, where, horizon=horizon, feature_bound=bound))
        assert horizon is not None  # noqa: S101 (for the type checker; there is a comparison)
        terms: dict[str, Any] = {"horizon": horizon, "feature_bound": bound, "drop": drop}
        return cls.from_sums(sums, labels, persons, **terms)

    @classmethod
    def from_sums(
        cls,
        sums: Sequence[Float[np.ndarray, " d"]],
        labels: object,
        persons: Iterable[str] | None,
        *,
        horizon: int,
        feature_bound: float | None,
        drop: Collection[str],
        dimension: int | None = None,
    ) -> Trajectories:
        """Return comparisons of which :func:`_step_sum` has made each row; there may be none."""
        for name in drop:
            _validate.one_of("drop", name, ("identical",))
        widths = {len(row) for row in sums} | ({dimension} - {None})
        if len(widths) > 1:
            raise DataError("The steps of all trajectories must have as many features.")
        rows = np.array(sums).reshape(-1, *widths)
        number_labels(labels, len(rows))  # refuses them before any is left out
        people = None if persons is None else _validate.person_ids(persons, len(rows))
        kept = rows.any(axis=1)
        if not (kept.all() or "identical" in drop):
            raise DataError(
                f"Comparison {int(np.flatnonzero(~kept)[0])}: the features of both trajectories "
                "have the same sum, so neither can be preferred. Nothing was released. Remove it, "
                "or drop all such comparisons with drop=['identical'] (align: --drop identical)."
            )
        pairs = Pairs.from_features(
            rows[kept],
            np.asarray(labels)[kept],
            persons=people and [people[row] for row in np.flatnonzero(kept)],
            hides_records=dimension is not None,
        )
        pairs = replace(pairs, dropped=int(len(rows) - kept.sum()))
        return cls(pairs, horizon=horizon, feature_bound=feature_bound)


def steps_of(trajectory: object, where: str) -> Float[np.ndarray, "h d"]:
    """Return the features of the steps of one trajectory."""
    # Messages do not say which of two is wrong: it may be known which was preferred.
    steps = _validate.finite_array(f"{where}: each trajectory", trajectory, ndim=2)
    if 0 in steps.shape:
        raise DataError(f"{where}: each trajectory must have at least one step and one feature.")
    return steps


def _step_sum(
    one: Float[np.ndarray, "h d"],
    other: Float[np.ndarray, "k e"],
    where: str,
    *,
    horizon: int,
    feature_bound: float | None,
) -> Float[np.ndarray, " d"]:
    """Return Σ_h (φ_h(one) − φ_h(other)) for two trajectories, each step clipped on its own."""
    # Swapping the two changes the sign and nothing else.
    _validate.integer("horizon", horizon, at_least=1)
    steps = [one, other]
    if any(len(side) != horizon for side in steps):
        raise DataError(
            f"{where}: trajectories of unequal length; all must have {horizon} steps, like the "
            "first, or as --horizon or the world says."
        )
    if one.shape != other.shape:
        raise DataError(f"{where}: the steps of both trajectories must have as many features.")
    if feature_bound is None:
        with np.errstate(over="ignore", invalid="ignore"):  # refused as not finite, by its row
            return np.asarray((one - other).sum(axis=0))
    bounded = [clipped_rows(side, feature_bound) for side in steps]
    total = (bounded[0] - bounded[1]).sum(axis=0, keepdims=True)
    within = clipped_rows(total, 2 * horizon * feature_bound)  # the sum may have been rounded up
    return np.asarray(within[0])


_TRAJECTORIES = Kind(  # of two trajectories
    fields=JUDGING_FIELDS,
    not_in_tables=(
        "Trajectories are not read from a table. Nothing was read. Convert it to JSON Lines, or "
        "give arrays to sordino.Trajectories.from_steps."
    ),
)
_STATIONARY, _BY_STEP = 3, 4  # dimensions of a table: states, actions, features; steps before them


@_validate.typed
def read_trajectories(  # noqa: PLR0913 (each is one choice of the user)
    source: str | Path | Iterable[Mapping[str, Any]],
    *,
    features: object = None,
    feature_bound: float | None = None,
    horizon: int | None = None,
    drop: Collection[str] = (),
    person_field: str | None = "person",
    dimension: int | None = None,
    hides_records: bool = False,
    progress: Progress | None = None,
) -> Trajectories:
    """Return the comparisons of trajectories of a file, or of any iterable of mappings.

    A record holds ``first``, ``second`` and ``label`` (1 if ``first`` went better, 0, or undecided:
    0.5, "tie", "skip"), or ``chosen`` and ``rejected``. A trajectory is a list of H steps, each a
    list of d features; or, with a table of features, ``{"states": [...], "actions": [...]}``: H
    numbers each, counted from 0. All trajectories have the same, publicly known length.

    Args:
        source: A source as :func:`sordino.read_pairs` takes it, but no table.
        features: A table of features, shape (S, A, d), or (H, S, A, d) if it changes with the step.
        feature_bound: L, to which each step is clipped. None leaves the steps as they are, which
            record privacy does not allow.
        horizon: H, if it is to be checked; else that of the table or of the first record.
        drop: ``["identical"]`` leaves out comparisons whose features sum to the same instead of
            refusing them.
        person_field: Name of the optional public person id; None if persons do not matter.
        dimension: d, where ``hides_records`` is said and there is no table.
        hides_records: Whether all of a record is private, as under unit ``"record"``. Then there
            may be none, those whose features sum to the same are left out, persons are known if
            every record names one, and no message says which record cannot be used, or why.
        progress: Called with (bytes read, size of the file).

    Raises:
        DataError: A record cannot be used; the place is named. Trajectories are of unequal length.
        UsageError: The table or another setting cannot be used.
        FileSystemError: The file cannot be read.

    Example:
        >>> read_trajectories([{"chosen": [[1.0], [1.0]], "rejected": [[0.0], [0.5]]}])
        Trajectories(n=1, horizon=2)
    """
    rows = _TRAJECTORIES.rows(
        source, person_field=person_field, asks=not hides_records, empty=True, progress=progress
    )
    table = None if features is None else step_table(features)
    if horizon is None and table is not None and table.ndim == _BY_STEP:
        horizon = len(table)
    if hides_records:
        dimension = dimension if table is None else table.shape[-1]
        if horizon is None or dimension is None:
            raise UsageError(
                "horizon (--horizon), and dimension (--dimension) or a table of features "
                "(--step-features), must be given where records are private: both are released, "
                "and no record may tell them. Nothing was read."
            )
        drop = ["identical"]
    bound = None if feature_bound is None else usable_bound("feature_bound", feature_bound)
    with untold(hides_records=hides_records):
        sums, labels, persons = [], [], list[str | None]()
        parse = partial(_judgments, person_field=person_field or "person")
        for found in _TRAJECTORIES.judgments(rows, parse, hides_records=hides_records):
            one, other = _both(found.sides, table, found.where)
            horizon = min(len(one), len(other)) if horizon is None else horizon
            sums.append(_step_sum(one, other, found.where, horizon=horizon, feature_bound=bound))
            labels.append(found.label)
            persons.append(found.person)
        if horizon is None or not (sums or hides_records):
            raise DataError("The input is empty: no comparison in it.")
        terms: dict[str, Any] = {"horizon": horizon, "feature_bound": bound, "drop": drop}
        known = dimension if hides_records else None
        return Trajectories.from_sums(sums, labels, all_named(persons), **terms, dimension=known)


def step_table(features: object) -> np.ndarray:
    """Return a table of features of states and actions, or of a JSON or ``.npy`` file with one."""
    array = np.asarray(None)
    if isinstance(features, Path):
        with explained(f"{features.name} cannot be read"):
            raw = features.read_bytes()
        features = None
        with suppress(ValueError, RecursionError, EOFError):
            is_numpy = raw.startswith(b"\x93NUMPY")
            features = np.load(BytesIO(raw), allow_pickle=False) if is_numpy else json.loads(raw)
    with suppress(ValueError):
        array = np.asarray(features)
    if array.ndim not in (_STATIONARY, _BY_STEP) or 0 in array.shape:
        raise UsageError(
            "features must be a table of shape (S, A, d), or (H, S, A, d) if it changes with the "
            f"step, got shape {array.shape}."
        )
    return _validate.finite_array("features", array, ndim=array.ndim)


class _Judgment(NamedTuple):
    sides: list[object]
    label: float
    person: str | None
    where: str


def _judgments(row: object, where: str, person_field: str) -> Iterator[_Judgment]:
    person = person_of(row, where, person_field)
    assert isinstance(row, Mapping)  # noqa: S101 (for the type checker; shown above)
    ranked = {"chosen", "rejected"} & row.keys()
    if ranked and {"first", "second", "label"} & row.keys():
        raise DataError(
            f"{where}: 'chosen' and 'rejected' exclude 'first', 'second' and 'label'; give one "
            "of the two forms."
        )
    names = ("chosen", "rejected") if ranked else ("first", "second")
    if not row.keys() >= set(names):
        raise DataError(f"{where}: fields {names[0]!r} and {names[1]!r} are both needed.")
    label = 1 if ranked else label_value(row.get("label"))
    if label is None:
        raise DataError(f"{where}: field 'label' must be {WANTED}.")
    sides = [row[name] for name in names]
    yield _Judgment(sides, 0.5 if label == UNDECIDED else label, person, where)


def _both(
    sides: Sequence[object], table: np.ndarray | None, where: str
) -> Sequence[Float[np.ndarray, "h d"]]:
    """Return the steps of both trajectories; what is wrong is said in the same words of either."""
    found, wrong = [], []
    for side in sides:
        try:
            found.append(_steps(side, table, where))
        except DataError as error:
            wrong.append(f"{error}")
    if wrong:  # where both are, which is preferred does not decide what is said
        raise DataError(min(wrong))
    return found


def _steps(side: object, table: np.ndarray | None, where: str) -> Float[np.ndarray, "h d"]:
    """Return the features of the steps of one trajectory, which a table may know."""
    # Messages do not say which of two trajectories is wrong.
    if table is None:
        if isinstance(side, Mapping):
            raise DataError(
                f"{where}: a trajectory must be a list of steps, each a list of features; "
                "'states' and 'actions' need a table, features= (--step-features)."
            )
        return steps_of(side, where)
    if not isinstance(side, Mapping):
        raise DataError(
            f"{where}: a trajectory must be 'states' and 'actions', two lists of numbers, beside a "
            "table of features."
        )
    most, fewest = table.shape[-3:-1]
    states, actions = _numbers(side.get("states"), most), _numbers(side.get("actions"), fewest)
    if states is None or actions is None or states.shape != actions.shape:
        raise DataError(
            f"{where}: 'states' and 'actions' must be lists of as many numbers, counted from 0, "
            "that the table of features knows."
        )
    if table.ndim == _STATIONARY:
        return np.asarray(table[states, actions])
    if len(states) != len(table):
        raise DataError(
            f"{where}: trajectories of unequal length; all must have {len(table)} steps, as the "
            "table has."
        )
    return np.asarray(table[np.arange(len(table)), states, actions])


def _numbers(values: object, most: int) -> np.ndarray | None:
    """Return whole numbers from 0 and below a limit, at least one, or None if they are not."""
    array = np.asarray(None)
    with suppress(ValueError, OverflowError):
        array = np.asarray(values)
    if array.dtype.kind not in "iu" or array.ndim != 1 or not len(array):
        return None
    return array if ((array >= 0) & (array < most)).all() else None
