"""Comparisons of trajectories from files, and from any iterable of mappings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino.errors import DataError, UsageError
from sordino.preferences.features import usable_feature_bound
from sordino.preferences.files import Progress, read_mappings, untold
from sordino.preferences.labels import UNDECIDED, WANTED, label_value
from sordino.preferences.ranking_records import refuse_person_name
from sordino.preferences.records import person_text
from sordino.preferences.trajectories import Trajectories, step_sum, steps_of

__all__ = ["read_trajectories"]

_STATIONARY, _BY_STEP = 3, 4  # dimensions of a table: states, actions, features; steps before them
_VISITS = ("states", "actions")


def read_trajectories(  # noqa: PLR0913 (each is one choice of the user)
    source: str | Path | Iterable[Mapping[str, Any]],
    *,
    features: Any = None,
    feature_bound: float | None = None,
    horizon: int | None = None,
    drop_identical: bool = False,
    person_field: str = "person",
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
        source: A ``.jsonl`` file, also with ``.gz``, or mappings.
        features: A table of features, shape (S, A, d), or (H, S, A, d) if it changes with the step.
        feature_bound: L, to which each step is clipped. None leaves the steps as they are, which
            record privacy does not allow.
        horizon: H, if it is to be checked; else that of the table or of the first record.
        drop_identical: Leave out comparisons whose features sum to the same instead of refusing
            them.
        person_field: Name of the optional public person id.
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
    refuse_person_name(person_field)
    table = None if features is None else _table(features)
    if horizon is None and table is not None and table.ndim == _BY_STEP:
        horizon = len(table)
    if hides_records:
        dimension = dimension if table is None else table.shape[-1]
        if horizon is None or dimension is None:
            raise UsageError(
                "horizon, and dimension or a table of features, must be given where records are "
                "private: both are released, and no record may tell them. Nothing was read."
            )
        drop_identical = True
    rows: Iterator[tuple[str, Any]]
    if isinstance(source, (str, Path)):
        rows = read_mappings(Path(source), progress, empty=True)
    else:
        rows = ((f"record {number}", row) for number, row in enumerate(source, start=1))
    bound = None if feature_bound is None else usable_feature_bound(feature_bound)
    with untold(hides_records=hides_records):
        return _gathered(
            rows,
            table,
            bound,
            horizon=horizon,
            dimension=dimension if hides_records else None,
            person_field=person_field,
            drop_identical=drop_identical,
        )


def _gathered(
    rows: Iterator[tuple[str, Any]],
    table: np.ndarray | None,
    bound: float | None,
    *,
    horizon: int | None,
    dimension: int | None,
    person_field: str,
    drop_identical: bool,
) -> Trajectories:
    """Return the comparisons of (place, row); there may be none of a dimension that is said."""
    hides_records = dimension is not None
    sums, labels, persons = [], [], []
    for where, row in rows:
        sides, label, person = _judgment(row, where, person_field)
        one, other = (_steps(side, table, where) for side in sides)
        horizon = len(one) if horizon is None else horizon
        sums.append(step_sum(one, other, where, horizon=horizon, feature_bound=bound))
        labels.append(label)
        persons.append(person)
        if not hides_records and (person is None) != (persons[0] is None):
            raise DataError(f"{where}: a person id is given for some records and not for others.")
    if horizon is None or not (sums or hides_records):
        raise DataError("The input is empty: no comparison in it.")
    return Trajectories.from_sums(
        sums,
        labels,
        None if None in persons else [person for person in persons if person is not None],
        horizon=horizon,
        feature_bound=bound,
        drop_identical=drop_identical,
        dimension=dimension,
    )


def _table(features: Any) -> np.ndarray:
    """Return a table of features as an array."""
    array = np.asarray(None)
    with suppress(ValueError):
        array = np.asarray(features)
    if array.ndim not in (_STATIONARY, _BY_STEP) or 0 in array.shape:
        raise UsageError(
            "features must be a table of shape (S, A, d), or (H, S, A, d) if it changes with the "
            f"step, got shape {array.shape}."
        )
    return _validate.finite_array("features", array, ndim=array.ndim)


def _judgment(row: Any, where: str, person_field: str) -> tuple[list[Any], float, str | None]:
    """Return the two trajectories of a record, its label as a number, and who gave it."""
    if not isinstance(row, Mapping):
        raise DataError(f"{where}: expected an object with named fields.")
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
    if person_field != "person" and person_field not in row:
        raise DataError(f"{where}: the person field {person_field!r} is missing.")
    person = person_text(row.get(person_field), f"{where}: field {person_field!r}")
    return [row[name] for name in names], 0.5 if label == UNDECIDED else label, person


def _steps(side: Any, table: np.ndarray | None, where: str) -> Float[np.ndarray, "h d"]:
    """Return the features of the steps of one trajectory, which a table may know.

    Messages do not say which of two trajectories is wrong.
    """
    visits = isinstance(side, Mapping)
    if visits != (table is not None):
        raise DataError(
            f"{where}: a trajectory must be "
            + (
                "a list of steps, each a list of features; 'states' and 'actions' need a table, "
                "features=."
                if table is None
                else "'states' and 'actions', two lists of numbers, beside a table of features."
            )
        )
    return steps_of(side, where) if table is None else _looked_up(side, table, where)


def _looked_up(
    visits: Mapping[str, Any], table: np.ndarray, where: str
) -> Float[np.ndarray, "h d"]:
    """Return the features that a table has for the states and actions of one trajectory."""
    found = [
        _numbers(visits.get(name), most)
        for name, most in zip(_VISITS, table.shape[-3:-1], strict=True)
    ]
    if found[0] is None or found[1] is None or found[0].shape != found[1].shape:
        raise DataError(
            f"{where}: 'states' and 'actions' must be lists of as many numbers, counted from 0, "
            "that the table of features knows."
        )
    if table.ndim == _STATIONARY:
        return np.asarray(table[found[0], found[1]])
    if len(found[0]) != len(table):
        raise DataError(
            f"{where}: trajectories of unequal length; all must have {len(table)} steps, as the "
            "table has."
        )
    return np.asarray(table[np.arange(len(table)), found[0], found[1]])


def _numbers(values: Any, most: int) -> np.ndarray | None:
    """Return whole numbers from 0 and below a limit, at least one, or None if they are not."""
    array = np.asarray(None)
    with suppress(ValueError, OverflowError):
        array = np.asarray(values)
    if array.dtype.kind not in "iu" or array.ndim != 1 or not len(array):
        return None
    return array if ((array >= 0) & (array < most)).all() else None
