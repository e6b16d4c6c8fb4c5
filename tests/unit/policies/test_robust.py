"""Policies over candidates: three solvers, one answer; checks; drawing; texts."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array
from tests.tiers import few

import sordino
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.policies.robust import (
    Contexts,
    _best_tempered,
    _context_program,
    _StochasticPolicy,
    certified_suboptimality,
    robust_policy,
)
from sordino.policies.worst_case import PlausibleRewards, solve_flows


@dataclass(frozen=True, eq=False)
class Known:
    center: np.ndarray
    metric: np.ndarray
    size: float = 1.0
    ball: float = 50.0

    def radius(self, confidence):
        return self.size * confidence


def draw(seed):
    """Return a set, ragged contexts, their reference and weights."""
    g = np.random.default_rng(seed)
    d, n = int(g.integers(1, 6)), int(g.integers(1, 8))
    candidates = [g.normal(size=(int(g.integers(1, 5)), d)) for _ in range(n)]
    root = g.normal(size=(d, d))
    center = g.normal(size=d)
    ball = float(np.linalg.norm(center) * g.uniform(1.0, 2.0) + 0.05)
    known = Known(center, root @ root.T + 0.1 * np.eye(d), float(np.exp(g.uniform(-3, 2))), ball)
    reference = [g.dirichlet(np.full(len(rows), 3.0)) for rows in candidates]
    return known, candidates, {"reference": reference, "weights": g.random(n) + 0.1}


def peer(known, contexts, offset, *, radius, ball, temperature):
    """The same problem in cvxpy."""
    cp = pytest.importorskip("cvxpy")
    chances = cp.Variable(len(contexts.reference), nonneg=True)
    q = (contexts.rows * contexts.spread[:, None]).T @ chances - offset
    whiten = np.linalg.inv(np.linalg.cholesky(known.metric))
    pull = cp.Variable(len(offset)) if ball else np.zeros(len(offset))
    value = known.center @ (q - pull) - radius * cp.norm(whiten @ (q - pull))
    value -= ball * cp.norm(pull) if ball else 0
    if temperature:
        divergence = cp.rel_entr(chances, contexts.reference)
        value -= temperature * cp.sum(cp.multiply(contexts.spread, divergence))
    sums = [
        cp.sum(chances[start : start + size]) == 1
        for start, size in zip(contexts.starts, contexts.sizes, strict=True)
    ]
    program = cp.Problem(cp.Maximize(value), sums)
    with warnings.catch_warnings():  # at these tolerances it is not sure of itself
        warnings.simplefilter("ignore")
        program.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    return float(program.value)


@pytest.mark.parametrize("seed", few(range(12), first=3))
@pytest.mark.parametrize("temperature", [None, 0.05, 1.0])
def test_both_solvers_agree_with_cvxpy(seed, temperature):
    known, candidates, given = draw(seed)
    within = seed % 2 == 0
    vector = "reference" if seed % 3 else None
    made = [
        robust_policy(
            known, None, candidates, **given, reference_vector=vector, temperature=temperature,
            within_ball=within, gap=1e-6, solver=solver,
        )
        for solver in ("frank-wolfe", "cone-program")
    ]  # fmt: skip
    contexts = Contexts.of(None, candidates, **given)
    offset = contexts.start()[0] if vector else np.zeros(len(known.center))
    wanted = peer(
        known, contexts, offset, radius=known.radius(0.95), ball=known.ball if within else None,
        temperature=temperature,
    )  # fmt: skip
    for policy in made:
        assert policy.value == pytest.approx(wanted, abs=1e-6)
        assert policy.gap <= 1e-6
        assert policy.upper >= wanted - 1e-7
        for chances in policy.probabilities:
            assert chances.min() >= 0
            assert chances.sum() == pytest.approx(1, abs=1e-12)


def test_the_tempered_policy_is_the_gibbs_policy_of_its_worst_reward():
    known, candidates, given = draw(4)
    contexts = Contexts.of(None, candidates, **given)
    plausible = PlausibleRewards.of(known, confidence=0.95)
    found = _best_tempered(
        plausible, contexts, temperature=0.5, reference_vector=contexts.start()[0], gap=1e-8
    )
    weights = contexts.reference * np.exp(contexts.rows @ found.theta / 0.5)
    totals = np.repeat(np.add.reduceat(weights, contexts.starts), contexts.sizes)
    assert found.chances == pytest.approx(weights / totals, abs=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_smoothing_is_within_the_gap_too(seed):
    known, candidates, given = draw(seed)
    gap = 1e-3
    found, exact = (
        robust_policy(known, None, candidates, **given, solver=solver, gap=gap)
        for solver in ("smoothing", "cone-program")
    )
    assert found.gap <= gap
    assert found.value <= exact.value + 1e-7 <= found.upper + 2e-7


def test_many_features_are_smoothed():
    g = np.random.default_rng(0)
    d = 80
    known = Known(g.normal(size=d) / 9, np.eye(d), 0.2)
    policy = robust_policy(known, None, g.normal(size=(60, 4, d)))
    assert policy.gap <= 1e-4
    assert policy.value > 0


def test_the_best_policy_is_stochastic():
    """Two candidates whose errors cancel: half of each is certain, either alone is not."""
    known = Known(np.array([1.0, 0.0]), np.diag([1e6, 1.0]))
    policy = robust_policy(
        known, None, [np.array([[1.0, 1.0], [1.0, -1.0]])], reference_vector=None
    )
    assert policy.probabilities[0] == pytest.approx([0.5, 0.5], abs=1e-3)


def test_sparse_rows_and_uneven_lists_give_the_same_numbers():
    known, candidates, given = draw(7)
    contexts = Contexts.of(None, candidates, **given)
    thin = Contexts(
        rows=csr_array(contexts.rows), sizes=contexts.sizes, reference=contexts.reference,
        weights=contexts.weights,
    )  # fmt: skip
    theta = known.center
    assert thin.best_response(theta)[0] == pytest.approx(contexts.best_response(theta)[0])
    chances = contexts.soft(theta, 0.3)[1]
    assert thin.means(chances) == pytest.approx(contexts.means(chances))
    assert thin.covariance(chances) == pytest.approx(contexts.covariance(chances))
    plausible = PlausibleRewards.of(known, confidence=0.9)
    assert certified_suboptimality(plausible, thin, chances) == pytest.approx(
        certified_suboptimality(plausible, contexts, chances)
    )
    offset = np.zeros(len(theta))
    assert solve_flows(plausible, _context_program(thin), reference_vector=offset)[
        0
    ] == pytest.approx(
        solve_flows(plausible, _context_program(contexts), reference_vector=offset)[0], abs=1e-6
    )


def test_an_array_of_contexts_is_read_like_a_list():
    g = np.random.default_rng(0)
    features = g.normal(size=(5, 3, 2))
    known = Known(g.normal(size=2), np.eye(2), 0.3)
    reference = g.dirichlet(np.ones(3), size=5)
    one = robust_policy(known, None, features, reference=reference)
    other = robust_policy(known, None, list(features), reference=list(reference))
    assert np.array(one.probabilities) == pytest.approx(np.array(other.probabilities))
    with pytest.raises(DataError, match="candidates must be finite"):
        robust_policy(known, None, features * np.nan)


def test_a_set_that_is_the_whole_ball_keeps_to_the_reference():
    g = np.random.default_rng(1)
    known = Known(g.normal(size=3), np.eye(3), 1e9, 5.0)
    policy = robust_policy(known, None, g.normal(size=(20, 4, 3)))
    assert policy.value == pytest.approx(0, abs=1e-6)


def test_drawing_is_free_and_never_draws_what_is_never_chosen():
    policy = _StochasticPolicy(
        probabilities=(np.array([0.0, 0.25, 0.75, 0.0]),) * 4000, value=0.0, upper=0.0,
        certificate=0.0, theta=np.zeros(1), confidence=0.9,
    )  # fmt: skip
    drawn = policy.draw(simulate_seed=0)
    assert set(drawn.tolist()) == {1, 2}
    assert abs(np.mean(drawn == 1) - 0.25) < 0.04  # six standard errors
    assert (drawn == policy.draw(simulate_seed=0)).all()
    assert set(policy.draw().tolist()) <= {1, 2}


def test_a_sum_that_rounds_below_one_draws_nothing_else(monkeypatch):
    last = SimpleNamespace(words=lambda n: np.full(n, 2**64 - 1, dtype=np.uint64))
    monkeypatch.setattr("sordino._random.entropy", lambda simulate_seed: last)
    policy = _StochasticPolicy(
        probabilities=(np.array([0.1] * 10 + [0.0]),), value=0.0, upper=0.0, certificate=0.0,
        theta=np.zeros(1), confidence=0.9,
    )  # fmt: skip
    assert policy.draw().tolist() == [9]


def test_what_a_policy_says_of_itself():
    known, candidates, given = draw(3)
    policy = robust_policy(known, None, candidates, **given, radius_scale=0.5, temperature=0.1)
    shown = repr(policy)
    assert "heuristic scale 0.5" in shown
    assert "temperature=0.1" in shown
    kept = json.loads(json.dumps(policy.to_dict()))
    assert kept["label"] == policy.label == "heuristic scale 0.5"
    assert kept["guarantee"] is None
    assert len(policy.probabilities) == len(candidates)
    assert robust_policy(known, None, candidates).label == "valid"


def test_texts_are_read_with_the_rewards_own_features(ledger):
    rows = [
        {"prompt": f"p{i}", "chosen": f"good answer {i}", "rejected": f"bad reply {i}"}
        for i in range(60)
    ]
    pairs = sordino.read_pairs(rows)
    features = sordino.HashedText(dimension=16)
    private = sordino.privatize(
        pairs, sordino.RandomizedResponse(2.0), ledger=ledger(2.0), simulate_seed=0
    )
    reward = sordino.fit_reward(private, features=features)
    candidates = [["good answer", "bad reply", "something else"], ["good", "bad"]]
    policy = robust_policy(reward, ["one", "two"], candidates, radius_scale=0.01)
    assert policy.guarantee == reward.guarantee
    assert policy.probabilities[0][0] > policy.probabilities[0][1]
    with pytest.raises(UsageError, match="reads texts"):
        robust_policy(reward, None, candidates)


FAR = Known(np.array([1.0, 2.0]), np.eye(2), 0.01, 1.0)


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"reward": np.ones(2)}, PrivacyError, "RewardModel"),
        ({"reward": FAR}, UsageError, "No reward is both"),
        ({"candidates": np.ones((2, 2, 3))}, DataError, "candidates must have 2 features, got 3"),
        ({"solver": "simplex"}, UsageError, "solver must be one of"),
        ({"gap": -1.0}, UsageError, "gap must be"),
        ({"temperature": 0.0}, UsageError, "temperature must be"),
        ({"radius_scale": -1.0}, UsageError, "radius_scale must be"),
        ({"weights": [1.0]}, DataError, "weights must have one entry"),
        ({"weights": [1.0, -1.0]}, DataError, "weights must be at least 0"),
        ({"weights": [0.0, 0.0]}, DataError, "not all 0"),
        ({"reference_vector": "mean"}, UsageError, "reference_vector must be one of"),
        ({"reference_vector": np.ones(3)}, DataError, "reference_vector must have 2"),
        ({"reference": [[0.5, 0.5], [0.9, 0.2]]}, DataError, "reference: entry 1"),
    ],
)
def test_settings_are_checked(changed, error, words):
    known = Known(np.array([1.0, 2.0]), np.eye(2))
    given = {"reward": known, "prompts": None, "candidates": np.ones((2, 2, 2))}
    with pytest.raises(error, match=words):
        robust_policy(**given | changed)
