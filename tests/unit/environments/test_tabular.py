"""Tables of decision processes: read, refused, walked and planned."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from sordino.algorithms.planning import tabular_world
from sordino.errors import DataError, UsageError

# state 0 goes to 1 with "go", state 1 ends with "go"; "stay" stays
LINE = {
    0: {0: [(1.0, 0, 0.0, False)], 1: [(1.0, 1, 0.0, False)]},
    1: {0: [(1.0, 1, 0.0, False)], 1: [(0.5, 1, 1.0, True), (0.5, 0, 0.0, False)]},
}


def random_tables(seed, *, states=4, actions=3, horizon=5, d=2, steps=True):
    g = np.random.default_rng(seed)
    shape = (horizon,) if steps else ()
    moves = g.dirichlet(np.full(states, 0.5), size=(*shape, states, actions))
    features = g.normal(size=(*shape, states, actions, d))
    return moves, features, g.dirichlet(np.ones(states)), g


def environment(**changed):
    inner = SimpleNamespace(P=LINE, initial_state_distrib=np.array([1.0, 0.0]))
    for name, value in changed.items():
        setattr(inner, name, value)
    return SimpleNamespace(unwrapped=inner)


def test_what_is_done_ends_without_features():
    world = tabular_world(environment(), horizon=4, d=4)
    assert repr(world) == "TabularWorld(2 states, 2 actions, horizon=4, d=4)"
    go = world.policy(np.array([[0.0, 1.0], [0.0, 1.0]]))
    visits = world.occupancy(go).reshape(4, 3, 2)
    assert visits[:, :, 1] == pytest.approx(
        np.array([[1, 0, 0], [0, 1, 0], [0.5, 0, 0.25], [0, 0.5, 0.25]])
    )
    # in the state that was added, what is done does not matter: half of each
    assert visits.sum(axis=(1, 2)) == pytest.approx(1)
    moments = world.moments(world.occupancy(go))
    assert moments.sum(axis=1) == pytest.approx([1, 1, 0.5, 0.5])


def test_the_table_alone_needs_a_start():
    with pytest.raises(UsageError, match="initial is missing"):
        tabular_world(LINE, horizon=2, d=4)
    assert tabular_world(LINE, horizon=2, d=4, initial=1).initial.tolist() == [0, 1, 0]


@pytest.mark.parametrize("steps", [True, False])
def test_backward_induction_is_the_best_of_all_policies(steps):
    moves, features, start, g = random_tables(0, states=2, actions=2, horizon=3, steps=steps)
    world = tabular_world(moves, horizon=3, d=2, features=features, initial=start)
    theta = g.normal(size=2)
    best, chosen = world.backward(world.scores(theta))
    totals = []
    for code in range(2**6):
        actions = np.array([(code >> bit) & 1 for bit in range(6)]).reshape(3, 2)
        policy = np.eye(2)[actions]
        totals.append(float(world.moments(world.occupancy(policy)).sum(axis=0) @ theta))
    assert best == pytest.approx(max(totals))
    mine = np.eye(2)[chosen]
    assert world.moments(world.occupancy(mine)).sum(axis=0) @ theta == pytest.approx(best)


def test_one_feature_for_every_state_and_action():
    moves, _, start, _ = random_tables(1)
    once = tabular_world(moves, horizon=5, d=12, initial=start)
    visits = once.occupancy(once.policy(None))
    assert once.moments(visits) == pytest.approx(visits)
    each = tabular_world(moves, horizon=5, d=60, initial=start)
    assert each.moments(visits).sum(axis=0) == pytest.approx(visits.ravel())


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"environment": object()}, UsageError, "must have a table of transitions"),
        ({"environment": np.ones((2, 2))}, DataError, r"must have shape \(states, actions"),
        ({"environment": np.full((2, 1, 2), 0.4)}, DataError, "row 0 sum to 0.8"),
        ({"environment": np.full((3, 2, 1, 2), 0.5)}, DataError, "has 3 steps, but horizon=2"),
        ({"environment": np.array([[[1.5, -0.5]], [[0.5, 0.5]]])}, DataError, "negative"),
        ({"environment": np.full((2, 1, 2), np.nan)}, DataError, "finite"),
        ({"initial": [0.5, 0.6]}, DataError, "initial: probabilities of row 0 sum to 1.1"),
        ({"initial": [1.0]}, DataError, "initial must have 2 entries"),
        ({"initial": 2}, UsageError, "initial must be at most 1"),
        ({"initial": None}, UsageError, "initial is missing"),
        ({"horizon": 0}, UsageError, "horizon must be a whole number of at least 1"),
        ({"features": np.ones((2, 2, 3))}, DataError, "features must have shape"),
        ({"features": np.full((2, 1, 3), np.nan)}, DataError, "features must be finite"),
        ({"features": None}, UsageError, "features is missing, and the reward has 3"),
    ],
)
def test_bad_tables_are_refused(changed, error, words):
    given = {
        "environment": np.full((2, 1, 2), 0.5),
        "initial": 0,
        "horizon": 2,
        "features": np.ones((2, 1, 3)),
    }
    given |= changed
    with pytest.raises(error, match=words):
        tabular_world(given.pop("environment"), d=3, **given)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({0: LINE[0], 1: {0: LINE[1][0]}}, "as many actions in every state"),
        ({1: LINE[0], 2: LINE[1]}, "numbered from 0"),
        ({0: {0: [(1.0, 0)]}}, "must be"),
        ({}, "must be"),
        ({0: {0: [(0.9, 0, 0.0, False)]}}, "row 0 sum to 0.9"),
        ({0: {0: [(0.5, 0, 0.0, False)], 1: [(1.0, 0, 0.0, True)]}}, "row 0 sum to 0.5"),
        ({0: {0: [(1.5, 0, 0.0, False), (-0.5, 0, 0.0, False)]}}, "negative"),
        ({0: {0: [(1.0, 3, 0.0, False)]}}, "outside 0..0"),
    ],
)
def test_bad_lists_are_refused(table, words):
    with pytest.raises(DataError, match=words):
        tabular_world(table, horizon=2, d=1, initial=0)


def test_policies_are_checked():
    moves, features, start, _ = random_tables(2)
    world = tabular_world(moves, horizon=5, d=2, features=features, initial=start)
    with pytest.raises(DataError, match="reference must have shape"):
        world.policy(np.ones((3, 4)) / 4)
    with pytest.raises(DataError, match="reference: probabilities of row 0"):
        world.policy(np.ones((4, 3)))
