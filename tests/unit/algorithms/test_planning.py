"""Plans for tables and for oracles: two solvers, one answer; what they certify; bad input."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

import sordino
from sordino.algorithms.planning import plan
from sordino.errors import ConvergenceError, DataError, PrivacyError, UsageError
from sordino.rewards.confidence import ConfidenceEllipsoid, _NoiseTerm
from sordino.rewards.model import RewardModel

LAKE = {  # a walk over four states; the last one ends it
    state: {
        action: [
            (0.8, min(max(state + step, 0), 3), 0.0, min(state + step, 3) == 3),
            (0.2, state, 0.0, state == 3),
        ]
        for action, step in enumerate((-1, 1))
    }
    for state in range(4)
}


def ellipsoid(d, seed=0, *, scale=40.0, ball=4.0):
    g = np.random.default_rng(seed)
    root = g.normal(size=(d, d)) / np.sqrt(d)
    metric = scale * root @ root.T + 2 * np.eye(d)
    center = g.normal(size=d)
    return ConfidenceEllipsoid(
        center=2 * center / np.linalg.norm(center), metric=metric, ball=ball, ridge=1.0,
        candidates=1, gradient_norm=0.0, least_eigenvalue=float(np.linalg.eigvalsh(metric)[0]),
        noise=(_NoiseTerm(factor=1 / 1.6, trace=float(d), trace_of_square=float(d), largest=1.0),),
    )  # fmt: skip


def tables(seed, *, states=4, actions=3, horizon=5, d=3):
    g = np.random.default_rng(seed)
    return {
        "environment": g.dirichlet(np.full(states, 0.5), size=(horizon, states, actions)),
        "features": g.normal(size=(horizon, states, actions, d)),
        "initial": g.dirichlet(np.ones(states)),
        "horizon": horizon,
        "reference": g.dirichlet(np.full(actions, 2.0), size=(states,)),
    }


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("radius_scale", [0.0, 0.02, 1.0])
def test_both_solvers_agree(seed, radius_scale):
    """Claim: PPHJ, Algorithm 3 (arg max over deterministic policies)"""
    known, given = ellipsoid(3, seed), tables(seed)
    if seed % 3 == 0:
        given["reference_vector"] = None
    one, other = (
        plan(known, **given, radius_scale=radius_scale, gap=1e-6, solver=solver)
        for solver in ("frank-wolfe", "cone-program")
    )
    assert one.value == pytest.approx(other.value, abs=1e-6)
    assert max(one.gap, other.gap) <= 1e-6
    for found in (one, other):
        assert found.policy.shape == (5, 4, 3)
        assert found.policy.min() >= 0
        assert found.policy.sum(axis=2) == pytest.approx(1)
    assert 1 <= len(one.mixture.weights) <= 4


@pytest.mark.parametrize("seed", range(6))
def test_cvxpy_agrees_over_occupancy_measures(seed):
    cp = pytest.importorskip("cvxpy")
    known, given = ellipsoid(3, seed), tables(seed)
    found = plan(known, **given, radius_scale=0.1, within_ball=False, gap=1e-7)
    visits = [cp.Variable((4, 3), nonneg=True) for _ in range(5)]
    flows = [cp.sum(visits[0], axis=1) == given["initial"]]
    reference, here = [], given["initial"]
    for step in range(5):
        reference.append(here[:, None] * given["reference"])
        here = np.einsum("sa,sat->t", reference[-1], given["environment"][step])
        if step < 4:
            arrived = cp.vec(visits[step], order="C") @ given["environment"][step].reshape(12, 4)
            flows.append(cp.sum(visits[step + 1], axis=1) == arrived)
    q = sum(
        cp.vec(one - base, order="C") @ rows.reshape(12, 3)
        for one, base, rows in zip(visits, reference, given["features"], strict=True)
    )
    whiten = np.linalg.inv(np.linalg.cholesky(known.metric))
    value = known.center @ q - 0.1 * known.radius(0.95) * cp.norm(whiten @ q)
    program = cp.Problem(cp.Maximize(value), flows)
    program.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    assert found.value == pytest.approx(program.value, abs=1e-6)


def test_without_distrust_it_is_value_iteration():
    known, given = ellipsoid(3, 1), tables(1)
    found = plan(known, **given, radius_scale=0.0, reference_vector=None)
    values = np.zeros(4)
    for step in reversed(range(5)):
        rewards = given["features"][step] @ known.center
        values = (rewards + given["environment"][step] @ values).max(axis=1)
    assert found.value == pytest.approx(given["initial"] @ values)
    assert found.certificate == pytest.approx(0, abs=1e-9)
    assert set(np.unique(found.policy)) <= {0.0, 1.0} | set(np.unique(given["reference"]))


def test_a_saved_reward_is_enough(tmp_path, budget):
    known = ellipsoid(8, 2)
    reward = RewardModel(
        weights=known.center, features=None, guarantee=budget(1.0), ridge=1.0, ball=4.0,
        gradient_norm=0.0, atol=1e-9, pairs=50, ellipsoid=known,
    )  # fmt: skip
    reward.save(tmp_path / "reward.json")
    loaded = sordino.RewardModel.load(tmp_path / "reward.json")
    inner = SimpleNamespace(P=LAKE, initial_state_distrib=np.array([1.0, 0, 0, 0]))
    environment = SimpleNamespace(unwrapped=inner)
    found = plan(loaded, environment, horizon=6, radius_scale=0.05)
    again = plan(reward, LAKE, horizon=6, radius_scale=0.05, initial=0)
    assert found.policy == pytest.approx(again.policy)
    assert found.guarantee == reward.guarantee
    assert found.policy.shape == (6, 4, 2)
    kept = json.loads(json.dumps(found.to_dict()))
    assert kept["guarantee"]["epsilon"] == 1.0
    assert kept["label"] == "heuristic scale 0.05"
    assert repr(found).startswith("Plan((6, 4, 2), value=")


def test_gymnasium_itself():
    gymnasium = pytest.importorskip("gymnasium")
    environment = gymnasium.make("FrozenLake-v1", is_slippery=True)
    g = np.random.default_rng(0)
    features = g.normal(size=(16, 4, 3))
    found = plan(ellipsoid(3), environment, horizon=8, features=features, radius_scale=0.05)
    assert found.policy.shape == (8, 16, 4)
    assert found.gap <= 1e-4


def test_states_that_are_never_reached_keep_to_the_reference():
    moves = np.zeros((2, 2, 2))
    moves[0, :, 0] = moves[1, :, 1] = 1  # whoever begins in 0 stays in 0
    reference = np.array([[0.5, 0.5], [0.3, 0.7]])
    found = plan(ellipsoid(4), moves, horizon=3, initial=0, reference=reference, radius_scale=0.01)
    assert found.policy[:, 1] == pytest.approx(np.tile(reference[1], (3, 1)))


@pytest.mark.parametrize("solver", ["frank-wolfe", "cone-program"])
def test_much_distrust_is_worth_nothing_less_than_the_reference(solver):
    known, given = ellipsoid(3, 4), tables(4)
    found = plan(known, **given, radius_scale=100.0, solver=solver)
    assert found.value == pytest.approx(0, abs=1e-5)


class Cube:
    """Policies are the corners of a cube."""

    def best_response(self, theta):
        return np.sign(theta), "corner"


def test_an_oracle_is_enough():
    known = ellipsoid(3, 0)
    found = plan(known, Cube(), reference_vector=None, radius_scale=0.1, within_ball=False)
    assert found.policy is None
    assert found.certificate is None
    assert found.gap <= 1e-4
    assert found.mixture.responses[0][1] == "corner"
    assert "an oracle's policies" in repr(found)
    assert found.to_dict()["policy"] is None
    bound = known.center - 0.1 * known.radius(0.95) * np.sqrt(np.diag(np.linalg.inv(known.metric)))
    assert found.value >= abs(bound).min()  # a corner alone would be at least this good


ORACLE = {"environment": Cube(), "horizon": None, "features": None, "reference": None}
NOTHING = {"reference_vector": None}


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"horizon": None}, UsageError, "horizon is missing"),
        ({"solver": "policy-iteration"}, UsageError, "solver must be one of"),
        ({"confidence": 1.0}, UsageError, "confidence must be"),
        ({"radius_scale": -1.0}, UsageError, "radius_scale must be"),
        ({"gap": 0.0}, UsageError, "gap must be"),
        ({"reference": np.ones((4, 3))}, DataError, "reference: probabilities"),
        ({"reference_vector": np.ones(4)}, DataError, "reference_vector must have 3"),
        ({"environment": Cube()}, UsageError, "leave them out"),
        (ORACLE, UsageError, "mean total features"),
        (ORACLE | NOTHING | {"solver": "cone-program"}, UsageError, "must be 'frank-wolfe'"),
        ({"reward": np.ones(3)}, PrivacyError, "RewardModel"),
        (
            {"gap": 1e-15, "radius_scale": 0.05, "solver": "cone-program"},
            ConvergenceError, "could not be certified",
        ),
    ],
)  # fmt: skip
def test_settings_are_checked(changed, error, words):
    given = tables(0) | {"reward": ellipsoid(3)} | changed
    with pytest.raises(error, match=words):
        plan(given.pop("reward"), given.pop("environment"), **given)
