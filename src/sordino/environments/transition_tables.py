"""Tables of transitions as others write them, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array

from sordino import _validate
from sordino.errors import DataError, UsageError

__all__ = ["beginning", "distributions", "moves_of_array", "moves_of_lists"]

_SUM = 1e-8  # how far probabilities may be from summing to 1


def moves_of_lists(table: Mapping[Any, Any]) -> tuple[tuple[Any, ...], bool]:
    """Return the one matrix of {state: {action: [(probability, next, reward, done)]}}."""
    states = len(table)
    try:
        actions = len(table[0])
        entries = [
            (state * actions + action, states if done else int(to), float(chance))
            for state in range(states)
            for action in range(len(table[state]))
            for chance, to, _, done in table[state][action]
        ]
        even = all(len(table[state]) == actions for state in range(states))
    except (KeyError, TypeError, ValueError, IndexError):
        even, entries, actions = False, [], 0
    if not even or not entries:
        raise DataError(
            "environment: P must be {state: {action: [(probability, next, reward, done), ...]}}, "
            "states and actions numbered from 0, and as many actions in every state."
        )
    at, to, chances = (np.array(column) for column in zip(*entries, strict=True))
    if to.min() < 0 or to.max() > states:
        raise DataError(f"environment: a transition leads to a state outside 0..{states - 1}.")
    ended = bool((to == states).any())
    size = states + ended
    if ended:  # the state that was added leads to itself
        loops = states * actions + np.arange(actions)
        at, to = np.append(at, loops), np.append(to, np.full(actions, states))
        chances = np.append(chances, np.ones(actions))
    distributions("environment", chances, np.bincount(at, chances, size * actions))
    return (csr_array((chances, (at, to)), shape=(size * actions, size)),), ended


def moves_of_array(table: Any, horizon: int) -> tuple[Any, ...]:
    """Return one matrix for every step, or one for all."""
    array = np.asarray(table)
    if array.ndim == 3:  # noqa: PLR2004
        array = array[None]
    if array.ndim != 4 or array.shape[1] != array.shape[3] or not array.size:  # noqa: PLR2004
        raise DataError(
            "environment must have shape (states, actions, states) or (H, states, actions, "
            f"states), got {np.shape(table)}."
        )
    if len(array) not in {1, horizon}:
        raise DataError(f"environment has {len(array)} steps, but horizon={horizon}.")
    checked = distributions("environment", _validate.finite_array("environment", array, ndim=4))
    return tuple(step.reshape(-1, array.shape[3]) for step in checked)


def distributions(
    name: str, chances: Float[np.ndarray, "*any"], sums: Float[np.ndarray, "*some"] | None = None
) -> Float[np.ndarray, "*any"]:
    """Return probabilities; refuse what is negative, and rows that do not sum to 1."""
    if not np.isfinite(chances).all() or chances.min() < 0:
        raise DataError(f"{name} has a probability that is negative or not finite.")
    totals = np.asarray(chances.sum(axis=-1) if sums is None else sums)
    wrong = np.flatnonzero(abs(totals.ravel() - 1) > _SUM)
    if len(wrong):
        raise DataError(
            f"{name}: probabilities of row {wrong[0]} sum to {totals.ravel()[wrong[0]]:.6g}, not "
            "to 1 (rows are numbered over steps, states and actions)."
        )
    return chances


def beginning(begin: Any, states: int) -> Float[np.ndarray, " s"]:
    """Return how often each state comes first."""
    if begin is None:
        raise UsageError(
            "initial is missing, and the environment does not say where an episode begins. Give "
            f"the number of a state, or {states} probabilities."
        )
    if isinstance(begin, int | np.integer):
        return np.asarray(
            np.arange(states)
            == _validate.integer("initial", begin, at_least=0, at_most=states - 1),
            dtype=np.float64,
        )
    array = _validate.finite_array("initial", begin, ndim=1)
    if len(array) != states:
        raise DataError(
            f"initial must have {states} entries, one for each state, got {len(array)}."
        )
    return distributions("initial", array)
