"""Playing a distinguishing game: two inputs, many releases of each, and a score for every one.

What is played may be code of other people: whatever it does, it ends in one of our errors.
Last, mechanisms by name: what a command line can audit, the library's own and anybody else's.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino._random import entropy
from sordino.errors import SordinoError, UsageError
from sordino.mechanisms.base import Mechanism, Repeatable, WorstCase
from sordino.mechanisms.gaussian import GaussianMechanism
from sordino.mechanisms.gibbs import ExponentialMechanism
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.privacy.guarantee import NeighboringRelation

_TERMINATED: Final = 143  # how the command line leaves when it is told to: no doing of a stranger


@contextmanager
def explained_stranger(problem: str) -> Iterator[None]:
    """Turn what somebody's code raises into one error that names the kind and is chained."""
    # Code that leaves the interpreter would leave with a code of its own, which could be the code
    # of an audit that refuted nothing: it is an error like any other.
    try:
        yield
    except SordinoError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and error.code == _TERMINATED:
            raise
        raise UsageError(problem.format(type(error).__name__)) from error


@contextmanager
def explained_calls(mechanism: object, member: str) -> Iterator[None]:
    """Turn what a member of a mechanism raises into one error."""
    kind = type(mechanism).__name__
    with explained_stranger(
        f"{member} of {kind} raised {{}}; nothing was audited. Call it in Python to see why."
    ):
        yield


Score = Callable[[np.ndarray], np.ndarray]
"""From outputs, one in each row, to one number for each: large on one input, small on the other."""

Progress = Callable[[int, int], None]
"""Called with how many releases were played, and how many there will be."""

_CHUNK: Final = 1000  # releases that one task plays
_SEEDS: Final = 2**32  # tasks of one seed
_CATEGORIES: Final = 64  # fewer different outputs are told apart one by one
_LEARNING: Final = 10  # one trial in so many teaches a score
_LARGEST: Final = 1e100  # of an output that is projected: sums and products then stay finite
_SHAPES: Final = "release must return arrays of one shape; nothing was audited."


@dataclass(frozen=True, kw_only=True)
class Game:
    """What is played."""

    mechanism: Mechanism  # whose releases are told apart
    case: WorstCase  # the two inputs
    trials: int  # releases of each
    score: Score | None  # how outputs are told apart; None learns it from one trial in ten
    processes: int  # how many work at once
    seed: int | None  # seed of simulated entropy; None draws from the operating system
    progress: Progress | None  # called after every task; None calls nobody


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The scores of a game, in the order played, and how they were made."""

    one: Float[np.ndarray, " n"]  # on `case.one`
    other: Float[np.ndarray, " m"]  # on `case.other`
    score: Literal["given", "log-ratio", "learned"]  # `"given"`, `"log-ratio"` or `"learned"`
    one_direction: bool  # whether the score saw the outputs along one direction only


@dataclass(frozen=True)
class _Projection:
    """A score that sees outputs along one direction: what lies across it is not looked at."""

    direction: Float[np.ndarray, " d"]

    def __call__(self, rows: np.ndarray) -> Float[np.ndarray, " n"]:
        flat = _flat(rows)
        if flat.shape[1] != len(self.direction):
            raise UsageError(_SHAPES)
        return np.asarray(np.clip(flat, -_LARGEST, _LARGEST) @ self.direction)


@dataclass(frozen=True)
class _Task:
    """Some releases of one input; everything that another process needs."""

    mechanism: Mechanism
    values: np.ndarray
    trials: int
    seed: int | None


def _says_of_itself(mechanism: object, method: str) -> bool:
    """Return whether a method of :class:`Repeatable` speaks of the mechanism's own ``release``."""
    # A subclass that overrides `release` alone inherits a `repeat` and a `log_ratio` that would
    # play the game of another mechanism: what it really does is then played and learned.
    if not isinstance(mechanism, Repeatable):
        return False
    names = [vars(cls) for cls in type(mechanism).__mro__]
    own, release = (
        next((i for i, names_of in enumerate(names) if name in names_of), 0)
        for name in (method, "release")
    )
    return own <= release


def _played(task: _Task) -> np.ndarray:
    source, mechanism = entropy(task.seed), task.mechanism
    if isinstance(mechanism, Repeatable) and _says_of_itself(mechanism, "repeat"):
        with explained_calls(mechanism, "repeat"):
            outputs = np.asarray(mechanism.repeat(task.values, task.trials, entropy=source))
        if outputs.shape[:1] != (task.trials,):
            raise UsageError(
                f"repeat of {type(mechanism).__name__} must return {task.trials} rows, got shape "
                f"{outputs.shape}; nothing was audited."
            )
        return outputs
    with explained_calls(mechanism, "release"):
        rows = [
            np.asarray(mechanism.release(task.values, entropy=source)) for _ in range(task.trials)
        ]
    if len({row.shape for row in rows}) > 1:
        raise UsageError(_SHAPES)
    return np.stack(rows)


def play(game: Game) -> Scores:
    """Return the scores of a game.

    Guarantee:
        None: it draws many releases of made-up inputs, never of private data.
    """
    # The same seed gives the same scores whatever the number of processes.
    with _worker(game) as outputs:
        if game.score is not None:
            return _scored(outputs, game.score, game.trials, "given")
        mechanism = game.mechanism
        if isinstance(mechanism, Repeatable) and _says_of_itself(mechanism, "log_ratio"):

            def ratio(rows: np.ndarray) -> np.ndarray:
                with explained_calls(mechanism, "log_ratio"):
                    return mechanism.log_ratio(rows, game.case)

            return _scored(outputs, ratio, game.trials, "log-ratio")
        few = max(1, game.trials // _LEARNING)
        seen = [[_flat(rows) for rows in outputs(side, few)] for side in (0, 1)]
        if len({rows.shape[1] for side in seen for rows in side}) > 1:
            raise UsageError(_SHAPES)
        first, second = map(np.concatenate, seen)
        kinds = np.unique(np.concatenate([first, second]), axis=0)
        means = [np.clip(rows, -_LARGEST, _LARGEST).mean(axis=0) for rows in (first, second)]
        score: Score = _Projection(means[0] - means[1])
        if len(kinds) <= _CATEGORIES:
            counts = [_occurrences(rows, kinds)[0] + 0.5 for rows in (first, second)]
            ratios = np.append(np.log(counts[0]) - np.log(counts[1]), 0.0)  # the last one: unseen

            def score(rows: np.ndarray) -> np.ndarray:
                return np.asarray(ratios[_occurrences(_flat(rows), kinds)[1]])

        return _scored(outputs, score, game.trials - few, "learned")


_Outputs = Callable[[int, int], Iterator[np.ndarray]]


@contextmanager
def _worker(game: Game) -> Iterator[_Outputs]:
    """Yield what plays a number of releases of one side (0 or 1), task by task."""
    inputs = (game.case.one, game.case.other)
    started, done = 0, 0

    def tasks(side: int, trials: int) -> Iterator[_Task]:
        nonlocal started
        for first in range(0, trials, _CHUNK):
            seed = None if game.seed is None else game.seed * _SEEDS + started
            started += 1
            yield _Task(game.mechanism, inputs[side], min(_CHUNK, trials - first), seed)

    def outputs(side: int, trials: int) -> Iterator[np.ndarray]:
        nonlocal done
        for rows in mapped(_played, tasks(side, trials)):
            done += len(rows)
            yield rows
            if game.progress is not None:
                game.progress(done, 2 * game.trials)

    mapped: Callable[..., Iterator[np.ndarray]] = map
    if game.processes == 1:
        yield outputs
        return
    try:
        pickle.dumps(game.mechanism)
    except Exception as error:
        raise UsageError(
            f"{type(game.mechanism).__name__} cannot be sent to another process "
            f"({type(error).__name__}). Define its class in a module, or use processes=1."
        ) from error
    with ProcessPoolExecutor(game.processes, mp_context=get_context("spawn")) as pool:
        mapped = pool.map
        try:
            yield outputs
        except BrokenProcessPool as error:
            raise UsageError(
                "The other processes stopped before they began. In a script, put the call below "
                "`if __name__ == '__main__':`, or use processes=1."
            ) from error


def _scored(
    outputs: _Outputs, score: Score, trials: int, name: Literal["given", "log-ratio", "learned"]
) -> Scores:
    """Return the scores of both sides; outputs are dropped as soon as they are scored."""
    one, other = (
        np.concatenate([_numbers(score(rows), rows, name) for rows in outputs(side, trials)])
        for side in (0, 1)
    )
    return Scores(one=one, other=other, score=name, one_direction=isinstance(score, _Projection))


def _numbers(scores: object, rows: np.ndarray, name: str) -> Float[np.ndarray, " n"]:
    """Return scores as floats; refuse what is not one number for each output."""
    array = np.asarray(scores)
    if rows.dtype.kind == "f" and array.dtype.kind == "f" and np.isnan(array).any():
        _refuse_nan(rows)
    if array.shape != (len(rows),) or array.dtype.kind not in "biuf" or np.isnan(array).any():
        raise UsageError(
            f"{'log_ratio' if name == 'log-ratio' else 'score'} must return one number for each of "
            f"{len(rows)} outputs and no NaN, got shape {array.shape}, dtype {array.dtype}. "
            "Nothing was audited."
        )
    return array.astype(np.float64, copy=False)


def _flat(outputs: np.ndarray) -> Float[np.ndarray, "n d"]:
    """Return outputs as rows of floats; refuse what are no numbers."""
    if outputs.dtype.kind not in "biuf":
        raise UsageError(
            f"release must return an array of numbers, got dtype {outputs.dtype}; nothing was "
            "audited."
        )
    _refuse_nan(outputs)
    # adding 0 makes −0.0 the same bytes as 0.0
    return np.asarray(outputs, dtype=np.float64).reshape(len(outputs), -1) + 0.0


def _refuse_nan(outputs: np.ndarray) -> None:
    """Refuse outputs that no score can order."""
    if outputs.dtype.kind == "f" and np.isnan(outputs).any():
        raise UsageError(
            "release returned NaN, which is told apart from nothing; nothing was "
            "audited. Let it return numbers."
        )


def _occurrences(rows: np.ndarray, kinds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how often each kind occurs, and which kind every row is: one too many if none."""
    index = {kind.tobytes(): i for i, kind in enumerate(kinds)}
    which = np.array([index.get(row.tobytes(), len(kinds)) for row in rows], dtype=np.int64)
    return np.bincount(which, minlength=len(kinds) + 1)[: len(kinds)], which


_MEMBERS: Final = ("event", "sensitivity", "guarantee", "release", "worst_case")
_BOUND: Final = 1.0  # of a value; only its ratio to the noise matters
NAMES: Final = ("randomized-response", "gaussian", "exponential")
"""What :func:`build_mechanism` knows beside ``module:attribute``."""


def build_mechanism(
    name: str, *, epsilon: float | None, delta: float, neighbors: NeighboringRelation
) -> Mechanism:
    """Return a mechanism by name, as noisy as a promise needs, or somebody's own."""
    if ":" in name:
        found = _guarded(name, lambda: _attribute(name))
        if callable(found) and (isinstance(found, type) or _guarded(name, lambda: _lacking(found))):
            found = _guarded(name, found)
        lacking = _guarded(name, lambda: _lacking(found))
        if lacking:
            raise UsageError(
                f"{name!r} is no mechanism: {type(found).__name__} lacks {', '.join(lacking)}. "
                "Give it what sordino.mechanisms.base.Mechanism lists."
            )
        mechanism: Mechanism = found
        return mechanism
    if name not in NAMES:
        raise UsageError(
            f"No mechanism is called {name!r}. Choose {', '.join(NAMES)}, or give "
            "module:attribute for one of your own."
        )
    epsilon = _validate.positive("epsilon", epsilon)
    delta = _validate.failure_probability("delta", delta)
    if name == "gaussian":  # noise on one number in [−1, 1]
        if delta == 0:
            raise UsageError("delta must be above 0 for gaussian: its noise keeps no pure promise.")
        return GaussianMechanism.calibrated(epsilon, delta=delta, bound=_BOUND, neighbors=neighbors)
    if name == "exponential":  # a draw of one of two actions
        return ExponentialMechanism.calibrated(
            epsilon, delta=delta, bound=_BOUND, reference=(0.5, 0.5), neighbors=neighbors
        )
    if delta > 0:  # a coin needs none, and would ignore one
        raise UsageError(f"delta must be 0 for randomized-response, which is pure, got {delta!r}.")
    coin = RandomizedResponse(epsilon)
    coin.sensitivity(neighbors)
    return coin


def _lacking(found: object) -> list[str]:
    """Return what the protocol asks for and an object has not."""
    return [member for member in _MEMBERS if not hasattr(found, member)]


def _attribute(name: str) -> object:
    module_name, _, path = name.partition(":")
    parts = path.split(".")
    if not all(part.isidentifier() for part in [*module_name.split("."), *parts]):
        raise UsageError(f"A mechanism of your own is named module:attribute, got {name!r}.")
    here = str(Path.cwd())
    if here not in sys.path:
        # at the end, so that no file here hides an installed package; processes inherit it
        sys.path.append(here)
    found: object = import_module(module_name)
    for part in parts:
        if not hasattr(found, part):
            raise UsageError(f"{name!r} was not found: {module_name} has no {path}.")
        found = getattr(found, part)
    return found


def _guarded(name: str, made: Callable[[], Any]) -> Any:
    """Return what somebody's code makes; what it raises names the kind, and is chained."""
    shown = repr(name).replace("{", "{{").replace("}", "}}")
    with explained_stranger(
        f"{shown} could not be loaded ({{}}): nothing was audited. Import it in Python to see why."
    ):
        return made()
