"""Everything that one run of ``sordino bandit`` reads; all but the logs is public."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from sordino._files import explained
from sordino.cli._bandit_settings import BanditSettings
from sordino.cli._console import Bar
from sordino.cli._option_words import named_option, split_names
from sordino.cli._options import Unit
from sordino.errors import DataError, UsageError
from sordino.preferences.bandit_files import read_bandit_logs
from sordino.preferences.bandit_logs import BanditLogs
from sordino.preferences.catalogues import Catalogue
from sordino.preferences.context_columns import columns_of, whole_text
from sordino.preferences.context_vectors import rows_of

__all__ = ["BanditInputs", "read_bandit_inputs"]

_UNIFORM = "uniform"
_PROBABILITY = "probability"
_SUM_ATOL = 1e-9


@dataclass(frozen=True, kw_only=True)
class BanditInputs:
    """What a run reads, checked before anything is spent.

    Attributes:
        logs: Raw records; confidential.
        contexts: Public contexts to draw for, shape (m, p); None where nothing was asked.
        reference: Public starting probabilities of the arms; None for uniform ones.
    """

    logs: BanditLogs
    contexts: Float[np.ndarray, "m p"] | None
    reference: tuple[float, ...] | None

    @property
    def questions(self) -> list[Any]:
        """Return the contexts to draw for, at least one; None is the context of zeros."""
        return [None] if self.contexts is None else list(self.contexts)


def read_bandit_inputs(source: Path, settings: BanditSettings) -> BanditInputs:
    """Return the inputs of a run.

    Raises:
        DataError: A file cannot be used; place and field are named, unless records are private.
        UsageError: What must be public is the file of the logs, or a column cannot be declared.
        FileSystemError: A file cannot be read.
    """
    _refuse_own(source, settings)
    catalogue = _catalogue(settings)
    reference = _reference(settings, catalogue)
    columns = columns_of("--context-columns", settings.declared_contexts)
    with Bar.shown("Reading") as bar:
        logs = read_bandit_logs(
            source,
            arm=settings.arm,
            reward=settings.reward,
            catalogue=catalogue,
            reward_range=settings.ends,
            context_columns=columns,
            context_bound=settings.context_bound,
            hides_records=settings.unit is not Unit.label,
            progress=bar,
        )
    contexts = None
    if settings.contexts is not None:
        with named_option("--contexts"):
            contexts = logs.contexts_of(settings.contexts)
            if not len(contexts):
                raise DataError("no context in it. Nothing was drawn.")
    return BanditInputs(logs=logs, contexts=contexts, reference=reference)


def _refuse_own(source: Path, settings: BanditSettings) -> None:
    """Refuse to take what must be public from the logs.

    Raises:
        UsageError: An option names the file of the logs.
    """
    arms, reference = (settings.arms or "").rpartition(":")[0], settings.reference
    public = {
        "--arms": Path(arms) if arms else None,
        "--action-features": settings.action_features,
        "--contexts": settings.contexts,
        "--reference": None if reference == _UNIFORM else Path(reference),
    }
    for option, path in public.items():
        with suppress(OSError, ValueError):
            if path is not None and path.samefile(source):
                clash = option
                break
    else:
        return
    raise UsageError(
        f"{clash} must not be the file of the logs: what was pulled, and for whom, would be "
        "released. Nothing was read. Give a file that is public."
    )


def _catalogue(settings: BanditSettings) -> Catalogue:
    """Return the arms, with features where a file of them is given."""
    with named_option("--arms"):
        arms = Catalogue.of(settings.arms or "")
    if settings.action_features is None:
        return arms
    column = (settings.arms or "").rpartition(":")[2]
    column = settings.arm if column.isdigit() else column
    listed = split_names("--action-columns", settings.action_columns)
    with named_option("--action-features"):
        known = Catalogue.read(settings.action_features, arm=column, features=listed or True)
        places = known.places(arms.names)
        if (places < 0).any():
            missing = arms.names[int(np.argmax(places < 0))]
            raise DataError(f"no record of the arm {missing!r}, which --arms has.")
    assert known.features is not None  # noqa: S101 - asked for
    return Catalogue(arms.names, features=known.features[places])


def _reference(settings: BanditSettings, catalogue: Catalogue) -> tuple[float, ...] | None:
    """Return the starting probability of every arm; None for uniform ones.

    Raises:
        DataError: An arm is missing, unknown or twice, or the probabilities do not sum to 1.
    """
    if settings.reference == _UNIFORM:
        return None
    path = Path(settings.reference)
    with named_option("--reference"):
        chances = [math.nan] * len(catalogue)
        for where, arm, chance in _stated(path, settings.arm):
            name = whole_text(arm)
            place = -1 if name is None else catalogue.place(name)
            if place < 0:
                raise DataError(f"{where} names no arm of --arms.")
            if not math.isnan(chances[place]):
                raise DataError(f"{where} names an arm a second time.")
            chances[place] = _chance(chance, where)
        _refuse_incomplete(chances, catalogue)
    return tuple(chances)


def _chance(value: Any, where: str) -> float:
    """Return a probability; texts of a table are read as numbers."""
    try:
        chance = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        chance = math.nan
    if not 0 <= chance <= 1:
        raise DataError(f"{where}: field {_PROBABILITY!r} must be a probability, 0 to 1.")
    return chance


def _refuse_incomplete(chances: list[float], catalogue: Catalogue) -> None:
    """Refuse what is no distribution over the catalogue."""
    for name, chance in zip(catalogue.names, chances, strict=True):
        if math.isnan(chance):
            raise DataError(f"no probability for the arm {name!r}. Write 0 for one never drawn.")
    total = math.fsum(chances)
    if not abs(total - 1) <= _SUM_ATOL:
        raise DataError(f"the probabilities must sum to 1; they sum to {total!r}.")


def _stated(path: Path, column: str) -> Iterable[tuple[str, Any, Any]]:
    """Yield (place, arm, probability) of a .json object, or of the rows of any other file."""
    if path.suffix == ".json":
        yield from _stated_object(path)
        return
    for where, row in rows_of(path):
        name = column if column in row else "arm"
        missing = [field for field in (name, _PROBABILITY) if field not in row]
        if missing:
            raise DataError(f"{where}: field {missing[0]!r} is missing.")
        yield where, row[name], row[_PROBABILITY]


def _stated_object(path: Path) -> Iterable[tuple[str, Any, Any]]:
    """Yield (place, arm, probability) of one JSON object from arms to probabilities."""
    with explained(f"{path.name} cannot be read"):
        raw = path.read_bytes()
    try:
        pairs = json.loads(raw, object_pairs_hook=list)
    except (ValueError, RecursionError):
        pairs = None
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        raise DataError(f"{path.name} must be one JSON object from arms to probabilities.")
    for number, (arm, chance) in enumerate(pairs, start=1):
        yield f"entry {number}", arm, chance
