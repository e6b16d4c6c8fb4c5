"""Finite-horizon decision processes as tables: read and checked, walked forward, planned back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array, eye_array

from sordino import _validate
from sordino.errors import DataError, UsageError

_SUM = 1e-8  # how far probabilities may be from summing to 1


def _moves_of_lists(table: Mapping[Any, Any]) -> tuple[tuple[Any, ...], bool]:
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
    _distributions("environment", chances, np.bincount(at, chances, size * actions))
    return (csr_array((chances, (at, to)), shape=(size * actions, size)),), ended


def _distributions(
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


def _beginning(begin: object, states: int) -> Float[np.ndarray, " s"]:
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
    return _distributions("initial", array)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class TabularWorld:
    """States, actions, where they lead, and what is felt on the way; made by tabular_world."""

    # A state is added at the end where the source of the tables says that episodes end: nothing
    # leads out of it and its features are 0.

    # For every step, or one for all: rows (state, action), columns next states.
    transitions: tuple[Any, ...]
    # For every step, or one for all: shape (states · actions, d), dense or sparse.
    features: tuple[Any, ...]
    initial: Float[np.ndarray, " s"]  # how often an episode begins in each state
    horizon: int  # number of steps H
    actions: int
    states: int  # without the one that was added

    def __repr__(self) -> str:
        return (
            f"TabularWorld({self.states} states, {self.actions} actions, horizon={self.horizon}, "
            f"d={self.features[0].shape[1]})"
        )

    def transition(self, step: int) -> Any:
        """Return where (state, action) leads at a step."""
        return self.transitions[step % len(self.transitions)]

    def feature(self, step: int) -> Any:
        """Return the features of (state, action) at a step."""
        return self.features[step % len(self.features)]

    def backward(self, rewards: Float[np.ndarray, "h m"]) -> tuple[float, Int[np.ndarray, "h s"]]:
        """Return the largest total reward of any policy, and the actions that have it."""
        # Source: Bellman 1957: backward induction.
        values = np.zeros(len(self.initial))
        chosen = np.empty((self.horizon, len(values)), dtype=np.int64)
        for step in reversed(range(self.horizon)):
            table = (rewards[step] + self.transition(step) @ values).reshape(len(values), -1)
            chosen[step], values = table.argmax(axis=1), table.max(axis=1)
        return float(self.initial @ values), chosen

    def occupancy(self, policy: Float[np.ndarray, "h s a"]) -> Float[np.ndarray, "h m"]:
        """Return how often a policy is in a state and takes an action, at every step."""
        found = np.empty((self.horizon, policy[0].size))
        here = self.initial
        for step in range(self.horizon):
            found[step] = (here[:, None] * policy[step]).ravel()
            here = self.transition(step).T @ found[step]
        return found

    def moments(self, occupancy: Float[np.ndarray, "h m"]) -> Float[np.ndarray, "h d"]:
        """Return the mean features at every step."""
        return np.stack([visits @ self.feature(step) for step, visits in enumerate(occupancy)])

    def scores(self, theta: Float[np.ndarray, " d"]) -> Float[np.ndarray, "h m"]:
        """Return the reward θ of every (state, action) at every step."""
        once = np.stack([rows @ theta for rows in self.features])
        return np.broadcast_to(once, (self.horizon, once.shape[1]))

    def policy(self, given: object) -> Float[np.ndarray, "h t a"]:
        """Return a checked policy with a row for each step and state; uniform if None is given."""
        shape = (self.horizon, self.states, self.actions)
        array = np.full(shape, 1 / self.actions) if given is None else np.asarray(given)
        if array.shape not in {shape, shape[1:]}:
            raise DataError(f"reference must have shape {shape} or {shape[1:]}, got {array.shape}.")
        if given is not None:
            array = _validate.finite_array("reference", array, ndim=array.ndim)
            array = np.broadcast_to(_distributions("reference", array), shape)
        extra = len(self.initial) - self.states  # the state that was added
        return np.pad(array, ((0, 0), (0, extra), (0, 0)), constant_values=1 / self.actions)


def tabular_world(
    environment: object, *, horizon: int, d: int, features: object = None, initial: object = None
) -> TabularWorld:
    """Return the tables of an environment, checked.

    Args:
        environment: A gymnasium environment with a table (``env.unwrapped.P``; transitions that
            are done end the episode), or that table, or probabilities of shape (states, actions,
            states) or (H, states, actions, states).
        horizon: Number of steps H ≥ 1.
        d: Number of features of the reward.
        features: Shape (states, actions, d) or (H, states, actions, d). If left out, one feature
            for every (state, action), or for every (step, state, action).
        initial: How often each state comes first, or one state's number; by default what the
            environment says of itself.

    Raises:
        DataError: Shapes disagree, a probability is negative, or a row does not sum to 1.
        UsageError: The environment has no tables, or does not say where an episode begins.
    """
    steps = _validate.integer("horizon", horizon, at_least=1)
    inner = getattr(environment, "unwrapped", environment)
    table = getattr(inner, "P", inner)
    if isinstance(table, Mapping):
        moves, ended = _moves_of_lists(table)
    elif isinstance(table, np.ndarray | list):
        given = np.asarray(table)
        array = given[None] if given.ndim == 3 else given  # noqa: PLR2004
        if array.ndim != 4 or array.shape[1] != array.shape[3] or not array.size:  # noqa: PLR2004
            raise DataError(
                "environment must have shape (states, actions, states) or (H, states, actions, "
                f"states), got {given.shape}."
            )
        if len(array) not in {1, steps}:
            raise DataError(f"environment has {len(array)} steps, but horizon={steps}.")
        checked = _distributions(
            "environment", _validate.finite_array("environment", array, ndim=4)
        )
        moves, ended = tuple(step.reshape(-1, array.shape[3]) for step in checked), False
    else:
        raise UsageError(
            f"environment must have a table of transitions, got {type(environment).__name__}. "
            "Give an environment with env.unwrapped.P, an array of shape (states, actions, "
            "states), or an object with best_response(theta)."
        )
    rows, columns = moves[0].shape
    states = columns - ended
    actions = rows // columns
    begin = getattr(inner, "initial_state_distrib", None) if initial is None else initial
    shape = (states, actions)
    return TabularWorld(
        transitions=moves,
        features=_features(features, shape, horizon=steps, d=d, ended=ended),
        initial=np.pad(_beginning(begin, states), (0, int(ended))),
        horizon=steps,
        actions=actions,
        states=states,
    )


def _features(
    given: object, shape: tuple[int, int], *, horizon: int, d: int, ended: bool
) -> tuple[Any, ...]:
    """Return the features of every (state, action), one matrix for every step or for all."""
    states, actions = shape
    cells = states * actions
    if given is None and d == cells:
        found: list[Any] = [eye_array(cells, format="csr")]
    elif given is None and d == cells * horizon:
        steps = range(horizon)
        found = [eye_array(cells, d, k=step * cells, format="csr") for step in steps]
    elif given is None:
        raise UsageError(
            f"features is missing, and the reward has {d} features: one for every state and "
            f"action would be {cells}, for every step as well {cells * horizon}. Give features of "
            f"shape (states, actions, {d})."
        )
    else:
        array = np.asarray(given)
        own = array.shape[0] if array.ndim == 4 else 1  # noqa: PLR2004
        if array.shape[-3:] != (states, actions, d) or array.ndim > 4 or own not in {1, horizon}:  # noqa: PLR2004
            raise DataError(
                f"features must have shape {(states, actions, d)} or "
                f"{(horizon, states, actions, d)}, got {array.shape}."
            )
        checked = _validate.finite_array("features", array, ndim=array.ndim)
        found = list(checked.reshape(own, cells, d))
    if not ended:
        return tuple(found)
    # with zeros for the state that was added
    return tuple(
        np.pad(rows, ((0, actions), (0, 0)))
        if isinstance(rows, np.ndarray)
        else csr_array(
            (rows.data, rows.indices, np.pad(rows.indptr, (0, actions), mode="edge")),
            shape=(rows.shape[0] + actions, rows.shape[1]),
        )
        for rows in found
    )
