"""Playing a distinguishing game: two inputs, many releases of each, and a score for every one."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any, Final, Literal

import numpy as np
from jaxtyping import Float

from sordino._random import entropy
from sordino.errors import UsageError
from sordino.mechanisms.base import Mechanism, Repeatable, WorstCase

__all__ = ["Game", "Progress", "Score", "Scores", "learned_score", "play", "says_of_itself"]

Score = Callable[[np.ndarray], np.ndarray]
"""From outputs, one in each row, to one number for each: large on one input, small on the other."""

Progress = Callable[[int, int], None]
"""Called with how many releases were played, and how many there will be."""

_CHUNK: Final = 1000  # releases that one task plays
_SEEDS: Final = 2**32  # tasks of one seed
_CATEGORIES: Final = 64  # fewer different outputs are told apart one by one
_LEARNING: Final = 10  # one trial in so many teaches a score


@dataclass(frozen=True, kw_only=True)
class Game:
    """What is played.

    Attributes:
        mechanism: Whose releases are told apart.
        case: The two inputs.
        trials: Releases of each.
        score: How outputs are told apart; None learns it from one trial in ten.
        processes: How many work at once.
        seed: Seed of simulated entropy; None draws from the operating system.
        progress: Called after every task; None calls nobody.
    """

    mechanism: Mechanism
    case: WorstCase
    trials: int
    score: Score | None
    processes: int
    seed: int | None
    progress: Progress | None


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The scores of a game, in the order played, and how they were made.

    Attributes:
        one: On ``case.one``.
        other: On ``case.other``.
        score: ``"given"``, ``"log-ratio"`` or ``"learned"``.
    """

    one: Float[np.ndarray, " n"]
    other: Float[np.ndarray, " m"]
    score: Literal["given", "log-ratio", "learned"]


@dataclass(frozen=True)
class _Task:
    """Some releases of one input; everything that another process needs."""

    mechanism: Mechanism
    values: np.ndarray
    trials: int
    seed: int | None


def says_of_itself(mechanism: object, method: str) -> bool:
    """Return whether a method of :class:`Repeatable` speaks of the mechanism's own ``release``.

    A subclass that overrides ``release`` alone inherits a ``repeat`` and a ``log_ratio`` that
    would play the game of another mechanism: what it really does is then played and learned.
    """
    if not isinstance(mechanism, Repeatable):
        return False
    names = [vars(cls) for cls in type(mechanism).__mro__]
    own, release = (
        next((i for i, names_of in enumerate(names) if name in names_of), 0)
        for name in (method, "release")
    )
    return own <= release


def _played(task: _Task) -> np.ndarray:
    """Return the outputs of a task, one in each row."""
    source = entropy(task.seed)
    if isinstance(task.mechanism, Repeatable) and says_of_itself(task.mechanism, "repeat"):
        return np.asarray(task.mechanism.repeat(task.values, task.trials, entropy=source))
    rows = [task.mechanism.release(task.values, entropy=source) for _ in range(task.trials)]
    return np.stack([np.asarray(row) for row in rows])


def play(game: Game) -> Scores:
    """Return the scores of a game.

    The same seed gives the same scores whatever the number of processes.

    Raises:
        UsageError: The mechanism cannot be sent to another process, or its score is not one
            number for each output.

    Guarantee:
        None: it draws many releases of made-up inputs, never of private data.
    """
    with _worker(game) as outputs:
        if game.score is not None:
            return _scored(outputs, game.score, game.trials, "given")
        known = says_of_itself(game.mechanism, "log_ratio")
        if isinstance(game.mechanism, Repeatable) and known:
            ratio = partial(game.mechanism.log_ratio, case=game.case)
            return _scored(outputs, ratio, game.trials, "log-ratio")
        few = max(1, game.trials // _LEARNING)
        seen = [np.concatenate(list(outputs(side, few))) for side in (0, 1)]
        return _scored(outputs, learned_score(*seen), game.trials - few, "learned")


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

    with _mapped(game) as mapped:
        yield outputs


@contextmanager
def _mapped(game: Game) -> Iterator[Callable[..., Iterator[np.ndarray]]]:
    """Yield ``map``, or that of a pool of fresh processes."""
    if game.processes == 1:
        yield map
        return
    try:
        pickle.dumps(game.mechanism)
    except Exception as error:
        raise UsageError(
            f"{type(game.mechanism).__name__} cannot be sent to another process "
            f"({type(error).__name__}). Define its class in a module, or use processes=1."
        ) from error
    with ProcessPoolExecutor(game.processes, mp_context=get_context("spawn")) as pool:
        try:
            yield pool.map
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
        np.concatenate([_numbers(score(rows), rows) for rows in outputs(side, trials)])
        for side in (0, 1)
    )
    return Scores(one=one, other=other, score=name)


def _numbers(scores: Any, rows: np.ndarray) -> Float[np.ndarray, " n"]:
    """Return scores as floats; refuse what is not one number for each output."""
    array = np.asarray(scores)
    if array.shape != (len(rows),) or array.dtype.kind not in "biuf" or np.isnan(array).any():
        raise UsageError(
            f"score must return one number for each of {len(rows)} outputs and no NaN, got shape "
            f"{array.shape}, dtype {array.dtype}."
        )
    return array.astype(np.float64, copy=False)


def learned_score(one: np.ndarray, other: np.ndarray) -> Score:
    """Return a score that tells outputs apart, learned from some of each.

    Args:
        one: Outputs on one input, one in each row.
        other: Outputs on the other.

    Returns:
        The empirical log-ratio of each output if there are few different ones, else the
        projection on the difference of the mean outputs.
    """
    first, second = _flat(one), _flat(other)
    kinds = np.unique(np.concatenate([first, second]), axis=0)
    if len(kinds) <= _CATEGORIES:
        counts = [_occurrences(rows, kinds)[0] + 0.5 for rows in (first, second)]
        ratios = np.append(np.log(counts[0]) - np.log(counts[1]), 0.0)  # the last one: unseen
        return lambda rows: np.asarray(ratios[_occurrences(_flat(rows), kinds)[1]])
    direction = first.mean(axis=0) - second.mean(axis=0)
    return lambda rows: np.asarray(_flat(rows) @ direction)


def _flat(outputs: np.ndarray) -> Float[np.ndarray, "n d"]:
    """Return outputs as rows of floats."""
    # adding 0 makes −0.0 the same bytes as 0.0
    return np.asarray(outputs, dtype=np.float64).reshape(len(outputs), -1) + 0.0


def _occurrences(rows: np.ndarray, kinds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how often each kind occurs, and which kind every row is: one too many if none."""
    index = {kind.tobytes(): i for i, kind in enumerate(kinds)}
    which = np.array([index.get(row.tobytes(), len(kinds)) for row in rows], dtype=np.int64)
    return np.bincount(which, minlength=len(kinds) + 1)[: len(kinds)], which
