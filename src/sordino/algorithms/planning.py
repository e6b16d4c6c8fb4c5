"""Pessimistic planning in finite-horizon decision processes, from a released reward alone.

The processes are tables: read and checked, walked forward, planned back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse
from scipy.sparse import csr_array, eye_array, vstack

from sordino import _validate
from sordino._files import explained
from sordino.errors import DataError, UsageError
from sordino.policies.gibbs import ReleasedReward
from sordino.policies.robust import Solver, WorstCaseResult, confidence_ellipsoid_of, vector_of
from sordino.policies.worst_case import (
    Ellipsoidal,
    FlowProgram,
    Mixture,
    PlausibleRewards,
    Response,
    best_mixture,
    refuse_gap,
    solve_flows,
    stated,
)
from sordino.preferences.files import read_rows

PLAN: Final = "plan.json"
PLAN_FORMAT = "sordino.plan"
PLAN_VERSION = 1

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
        first = _validate.integer("initial", begin, at_least=0, at_most=states - 1)
        return np.asarray(np.eye(states)[first])
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

    def occupancy(self, policy: np.ndarray) -> Float[np.ndarray, "h m"]:
        """Return how often a policy is in a state and takes an action, at every step."""
        # Of probabilities, or of one action for each step and state.
        chances = policy if policy.dtype.kind == "f" else np.eye(self.actions)[policy]
        found = np.empty((self.horizon, chances[0].size))
        here = self.initial
        for step in range(self.horizon):
            found[step] = (here[:, None] * chances[step]).ravel()
            here = self.transition(step).T @ found[step]
        return found

    def moments(self, occupancy: Float[np.ndarray, "h m"]) -> Float[np.ndarray, "h d"]:
        """Return the mean features at every step."""
        return np.stack([visits @ self.feature(step) for step, visits in enumerate(occupancy)])

    def scores(self, theta: Float[np.ndarray, " d"]) -> Float[np.ndarray, "h m"]:
        """Return the reward θ of every (state, action) at every step."""
        once = np.stack([rows @ theta for rows in self.features])
        return np.broadcast_to(once, (self.horizon, once.shape[1]))

    def total(self, policy: np.ndarray) -> Float[np.ndarray, " d"]:
        """Return the mean total features of a policy."""
        return np.asarray(self.moments(self.occupancy(policy)).sum(axis=0))

    def response(self, theta: Float[np.ndarray, " d"]) -> Response:
        """Return the policy with the largest total reward θ: its mean features, and its actions."""
        chosen = self.backward(self.scores(theta))[1]
        return self.total(chosen), chosen

    def program(self) -> FlowProgram:
        """Return the occupancy measures: what flows out of a state is what flowed in."""
        states, steps = len(self.initial), range(self.horizon)
        out = sparse.kron(sparse.eye_array(states), np.ones((1, self.actions)))
        blocks: list[list[Any]] = [[None] * self.horizon for _ in steps]
        for step in steps:
            blocks[step][step] = out
            if step:
                blocks[step][step - 1] = -sparse.csr_array(self.transition(step - 1)).T
        features = [sparse.csr_array(self.feature(step)) for step in steps]
        return FlowProgram(
            features=sparse.vstack(features, format="csr"),
            constraints=sparse.block_array(blocks, format="csr"),
            totals=np.append(self.initial, np.zeros(states * (self.horizon - 1))),
        )

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
        else vstack([rows, csr_array((actions, d))], format="csr")
        for rows in found
    )


_CELL = ("state", "action", "next", "probability")


def read_world(path: Path) -> dict[str, Any]:
    """Return the tables of a file, as :func:`plan` takes them, and more if it is JSON.

    JSON holds ``transitions``, shape (states, actions, states) or (H, states, actions, states), and
    may hold ``features``, ``initial``, ``horizon`` and ``reference``. A table has the columns
    ``state``, ``action``, ``next`` and ``probability``, one row for each way to go on.

    Raises:
        DataError: It lacks something, or holds what is no table; nothing in it is private.
    """
    problem = f"{path.name} cannot be used as a world"
    if path.suffix == ".json":
        with explained(f"{path.name} cannot be read"):
            raw = path.read_bytes()
        held = None
        with suppress(ValueError, RecursionError):
            held = json.loads(raw)
        if not isinstance(held, dict) or "transitions" not in held:
            raise DataError(f"{problem}: it must be an object with 'transitions'.")
        names = ("features", "initial", "horizon", "reference")
        if strange := sorted(held.keys() - {"transitions", *names}):
            raise DataError(f"{problem}: {strange[0]!r} is not known; it may hold {names}.")
        return {"transitions": held["transitions"], **{name: held.get(name) for name in names}}
    cells: list[tuple[int, int, int, float]] = []
    for where, row in read_rows(path, unnamed=True):
        try:
            at, action, to = (int(row[name]) for name in _CELL[:3])
            cells.append((at, action, to, float(row[_CELL[3]])))
        except (KeyError, TypeError, ValueError):
            raise DataError(f"{problem}: {where} must hold {', '.join(_CELL)}.") from None
        if min(cells[-1]) < 0:
            raise DataError(f"{problem}: {where} holds a number below 0.")
    states = 1 + max((max(at, to) for at, _, to, _ in cells), default=0)
    actions = 1 + max((action for _, action, _, _ in cells), default=0)
    _validate.refuse_unholdable("states", states, states * states * actions)
    table = np.zeros((states, actions, states))
    for at, action, to, chance in cells:
        table[at, action, to] += chance
    return {"transitions": table.tolist(), **dict.fromkeys(("features", "initial", "horizon"))}


_SMALL = 2000  # variables up to which the whole program is solved at once, unless asked otherwise
_NEVER = 1e-9  # what an interior-point solver visits less often is not visited


def _planned(
    plausible: PlausibleRewards,
    world: TabularWorld,
    reference: object,
    against: object,
    solver: str | None,
    gap: float,
) -> dict[str, Any]:
    """Return the fields of a plan on tables, for the policy that is handed out."""
    # Source: docs/planning.md, "Decision processes".
    start = world.policy(reference)
    begin = world.total(start)
    offset, mixture = vector_of(against, begin), None
    if solver == "frank-wolfe" or (solver is None and start.size > _SMALL):
        mixture = best_mixture(
            plausible, world.response, reference_vector=offset, start=((begin, start),), gap=gap
        )
        theta = mixture.theta
        visits = sum(
            weight * world.occupancy(policy)
            for weight, (_, policy) in zip(mixture.weights, mixture.responses, strict=True)
        )
    else:
        flows, theta = solve_flows(plausible, world.program(), reference_vector=offset)
        visits = flows.reshape(world.horizon, -1)
    # The policy that visits as often; where it never comes, the reference.
    table = np.asarray(visits).reshape(start.shape)
    table = np.where(table > _NEVER, table, 0.0)
    often = table.sum(axis=2, keepdims=True)
    policy = np.where(often > 0, table / np.where(often > 0, often, 1.0), start)
    found = assess(plausible, world, policy, theta=theta, offset=offset)
    if mixture is None:
        refuse_gap(found["upper"], found["value"], _validate.positive("gap", gap))
    found |= {"policy": policy[:, : world.states], "theta": theta, "mixture": mixture}
    return found | {"offset": offset}


def assess(
    plausible: PlausibleRewards,
    world: TabularWorld,
    policy: Float[np.ndarray, "h s a"],
    *,
    theta: Float[np.ndarray, " d"],
    offset: Float[np.ndarray, " d"],
) -> dict[str, Any]:
    """Return what a policy is worth in the worst case, and what no policy exceeds, by a reward."""
    moments = world.total(policy) - offset
    # Source: docs/planning.md, "Certificate": backward induction with the reward
    # θ̂ᵀ(φ_h − c_h) + radius·‖φ_h − c_h‖_{M⁻¹}, c_h the policy's mean features at step h.
    bounds = []
    for step, center in enumerate(world.moments(world.occupancy(policy))):
        rows = world.feature(step)
        dense = rows.toarray() if sparse.issparse(rows) else rows
        bounds.append(plausible.most(dense - center))
    return {
        "value": plausible.worst(moments).value,
        "upper": float((world.response(theta)[0] - offset) @ theta),
        "certificate": max(world.backward(np.stack(bounds))[0], 0.0),
        "moments": moments,
    }


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Plan(WorstCaseResult):
    """A policy for every step and state; worst-case optimal up to the gap.

    Made by :func:`plan`. It is computed from what was released, so using it is free.

    Attributes:
        policy: Probabilities of actions, shape (H, states, actions); None where an oracle
            answered, whose policies are in ``mixture``.
        value: The least total reward over all rewards that may be true, relative to the
            reference vector.
        upper: What no policy exceeds in the worst case.
        certificate: What the best policy gains over this one at most if the true reward is in
            the confidence set; None where an oracle answered.
        moments: Mean total features of the policy, less the reference vector, shape (d,).
        theta: The reward that shows ``upper``, shape (d,).
        mixture: The policies that it mixes, and how often; None from the cone program.
        confidence: How often the confidence set holds the true reward.
        radius_scale: What its radius was multiplied by; below 1 nothing is proved.
        guarantee: What the release behind the reward promises; None for a bare confidence set.
        needed: How many answers it takes until ``value`` is above 0; None of a set of one's own.
    """

    policy: Float[np.ndarray, "h s a"] | None
    certificate: float | None
    moments: Float[np.ndarray, " d"]
    mixture: Mixture | None

    def __repr__(self) -> str:
        shape = "an oracle's policies" if self.policy is None else f"{self.policy.shape}"
        known = "" if self.certificate is None else f"certificate={self.certificate:.6g}, "
        return (
            f"Plan({shape}, value={self.value:.6g}, gap={self.gap:.2g}, {known}"
            f"confidence={self.confidence:g}, {self.label}{self.warning})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON holds it."""
        return super().to_dict() | {
            "policy": None if self.policy is None else self.policy.tolist(),
            "certificate": self.certificate,
        }


@_validate.typed
def plan(  # noqa: PLR0913 (each is one choice of the user)
    reward: ReleasedReward | Ellipsoidal,
    environment: object,
    *,
    horizon: int | None = None,
    features: object = None,
    confidence: float = 0.95,
    radius_scale: float = 1.0,
    reference: object = None,
    reference_vector: object = "reference",
    initial: object = None,
    within_ball: bool = True,
    gap: float = 1e-4,
    solver: Solver | None = None,
) -> Plan:
    """Return the policy whose least total reward, over all rewards that may be true, is largest.

    Source:
        docs/planning.md, "Decision processes".

    Args:
        reward: A :class:`sordino.RewardModel` with a confidence set, such as one that was loaded
            from a file, or the set itself.
        environment: As in :func:`sordino.algorithms.planning.tabular_world`: a gymnasium
            environment with a table, or an array of probabilities; or any object whose
            ``best_response(theta)`` returns the mean total features of a best policy, or these
            and the policy.
        horizon: Number of steps H; not needed with an oracle.
        features: Shape (states, actions, d) or (H, states, actions, d); one feature for every
            (state, action) if left out.
        confidence: How often the confidence set holds the true reward, in (0, 1).
        radius_scale: What its radius is multiplied by, ≥ 0; below 1 is a heuristic, marked so.
        reference: The starting policy, shape (states, actions) or (H, states, actions); uniform
            if left out. States that the plan never reaches keep to it. Not with an oracle.
        reference_vector: What mean features are compared with: ``"reference"``, those of the
            starting policy; or an array of shape (d,); or None for nothing. With an oracle one
            of the last two.
        initial: How often each state comes first, or one state's number; by default what the
            environment says of itself.
        within_ball: Also use that the true reward lies in the ball that the set assumes.
        gap: What the worst case may fall short of the best one, in units of reward, > 0.
        solver: ``"frank-wolfe"``, or ``"cone-program"``, which solves everything at once; by
            default the latter for up to 2,000 numbers H · states · actions.

    Raises:
        UsageError: A setting is missing or out of range, no reward is left, or nothing bounds
            the worst case.
        DataError: Tables are malformed.
        PrivacyError: The reward is not a released one.
        ConvergenceError: The gap could not be certified in floats.
    """
    known = confidence_ellipsoid_of(reward)
    plausible = PlausibleRewards.of(
        known, confidence=confidence, radius_scale=radius_scale, within_ball=within_ball
    )
    _validate.one_of("solver", solver, (None, "frank-wolfe", "cone-program"))
    d = len(known.center)
    if hasattr(environment, "best_response"):
        if horizon is not None or features is not None or reference is not None:
            raise UsageError("An oracle knows its horizon, features and reference: leave them out.")
        if isinstance(reference_vector, str):
            raise UsageError(
                "With an oracle, reference_vector must be the mean total features of a reference "
                "policy, an array, or None for no comparison."
            )
        if solver == "cone-program":
            raise UsageError("With an oracle, solver must be 'frank-wolfe'.")
        offset, respond = vector_of(reference_vector, np.zeros(d)), environment.best_response
        mixture = best_mixture(plausible, respond, reference_vector=offset, gap=gap)
        shown = ("value", "upper", "moments", "theta")
        found = {name: getattr(mixture, name) for name in shown}
        found |= {"policy": None, "certificate": None, "mixture": mixture, "offset": offset}
    else:
        if horizon is None:
            raise UsageError("horizon is missing: how many steps does an episode have?")
        world = tabular_world(environment, horizon=horizon, d=d, features=features, initial=initial)
        respond = world.response
        found = _planned(plausible, world, reference, reference_vector, solver, gap)
    offset, certain = found.pop("offset"), found["value"] > gap
    return Plan(**found, **stated(reward, plausible, respond, offset, certain=certain))
