"""The certificate of a robust policy bounds what it loses, for every reward in the set.

Truths are placed inside the set, also on its border. The form that compares with the best
policy's features alone, as published, is no bound: shown on the same problems.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.tiers import few

from sordino.algorithms.planning import _planned, tabular_world
from sordino.errors import UsageError
from sordino.policies import robust
from sordino.policies.robust import Contexts, _best_tempered, certified_suboptimality
from sordino.policies.worst_case import PlausibleRewards, best_mixture

SLACK = 1e-9
GAP = 1e-5  # within which policies are the best


def draw(seed):
    """Return contexts, a set, and a truth in it."""
    g = np.random.default_rng(seed)
    d, n = int(g.integers(1, 6)), int(g.integers(1, 6))
    rows = [g.normal(size=(int(g.integers(2, 5)), d)) for _ in range(n)]
    contexts = Contexts.of(None, rows, weights=g.random(n) + 0.1)
    root = g.normal(size=(d, d))
    plausible = PlausibleRewards(
        center=g.normal(size=d), metric=root @ root.T + 0.05 * np.eye(d),
        radius=float(np.exp(g.uniform(-2, 1))), ball=30.0,
    )  # fmt: skip
    way = g.normal(size=d)
    way /= np.sqrt(way @ plausible.metric @ way)
    share = 1.0 if seed % 2 else g.random()
    truth = plausible.pulled(plausible.center + share * plausible.radius * way)
    return contexts, plausible, truth


def solved(contexts, plausible):
    offset, start = contexts.start()[0], (contexts.start(),)
    mix = best_mixture(
        plausible, contexts.best_response, reference_vector=offset, start=start, gap=GAP
    )
    return contexts.mixed(mix.weights, tuple(policy for _, policy in mix.responses))


def published(plausible, moments):
    """2 · radius · ‖q‖ in M⁻¹: a bound at the best policy's q, stated at the returned one's."""
    return (
        2 * plausible.radius * float(np.sqrt(moments @ np.linalg.solve(plausible.metric, moments)))
    )


def shares(seeds, certificate):
    """Return how often a certificate, and the published form at either policy, is exceeded."""
    exceeded = np.zeros(3)
    for seed in seeds:
        contexts, plausible, truth = draw(seed)
        chances, offset = solved(contexts, plausible), contexts.start()[0]
        best, mine = contexts.best_response(truth)[0], contexts.moments(chances)
        bounds = (
            certificate(plausible, contexts, chances),
            published(plausible, best - offset),
            published(plausible, mine - offset),
        )
        exceeded += [(best - mine) @ truth > bound + 2 * GAP for bound in bounds]
    return exceeded / len(seeds)


@pytest.mark.deep
def test_the_certificate_holds_in_a_thousand_problems_and_the_published_form_does_not():
    """Claim: PPO-DP, suboptimality bound with the optimum evaluated at the returned policy (PPHJ,
        Theorem 4.2, used as a certificate)
    Verdict: not a bound: violated in 32 % of random problems (in 35 % with stochastic policies)
    Ours: sordino.policies.robust.certified_suboptimality: a certificate that does not need
        the optimum
    """
    ours, knowing_the_best, at_the_returned = shares(range(1000), certified_suboptimality)
    assert ours == 0
    assert knowing_the_best == 0
    assert 0.3 < at_the_returned < 0.4


@pytest.mark.deep
def test_half_the_radius_would_be_noticed(monkeypatch):
    honest = PlausibleRewards.most

    def halved(self, rows):
        return (honest(self, rows) + rows @ self.center) / 2

    monkeypatch.setattr(PlausibleRewards, "most", halved)
    assert shares(range(200), robust.certified_suboptimality)[0] > 0


def test_the_certificate_with_a_penalty_holds_in_150_problems():
    for seed in range(150):
        contexts, plausible, truth = draw(seed)
        temperature = float(np.exp(np.random.default_rng(seed).uniform(-3, 1)))
        found = _best_tempered(
            plausible, contexts, temperature=temperature, reference_vector=contexts.start()[0]
        )
        mine = contexts.moments(found.chances) @ truth - temperature * contexts.kl(found.chances)
        lost = contexts.soft(truth, temperature)[0] - mine
        bound = certified_suboptimality(plausible, contexts, found.chances, temperature=temperature)
        assert lost <= bound + SLACK, seed


def test_no_policy_has_a_better_worst_case():
    """Claim: PPHJ, Algorithm 3 (arg max over deterministic policies)
    Verdict: not tractable as stated; its bound at the returned policy is none
    Ours: sordino.robust_policy; sordino.plan: convex programs over stochastic policies, with a
        certificate
    """
    for seed in range(60):
        contexts, plausible, _ = draw(seed)
        offset = contexts.start()[0]
        value = plausible.worst(contexts.moments(solved(contexts, plausible)) - offset).value
        g = np.random.default_rng(seed)
        for _ in range(40):
            tried = g.exponential(size=len(contexts.reference)) ** g.choice([0.2, 1, 5])
            tried /= np.repeat(np.add.reduceat(tried, contexts.starts), contexts.sizes)
            assert plausible.worst(contexts.moments(tried) - offset).value <= value + 1e-5


@pytest.mark.deep
@pytest.mark.parametrize("ended", few([False, True], True))
def test_the_certificate_holds_in_decision_processes(ended):
    for seed in range(150):
        g = np.random.default_rng(seed)
        states, actions, horizon, d = 3, 2, 4, 3
        moves = g.dirichlet(np.full(states, 0.5), size=(states, actions))
        table = moves
        if ended:  # whatever leads to the last state ends the episode
            table = {
                s: {a: [(p, t, 0.0, t == 2) for t, p in enumerate(moves[s, a])] for a in (0, 1)}
                for s in range(states)
            }
        world = tabular_world(
            table, horizon=horizon, d=d, features=g.normal(size=(states, actions, d)), initial=0
        )
        root = g.normal(size=(d, d))
        plausible = PlausibleRewards(
            center=g.normal(size=d), metric=root @ root.T + 0.05 * np.eye(d),
            radius=float(np.exp(g.uniform(-2, 1))),
        )  # fmt: skip
        found = _planned(plausible, world, None, "reference", "frank-wolfe", 1e-4)
        truth = plausible.pulled(plausible.center + 50 * g.normal(size=d))
        best = world.backward(world.scores(truth))[0]
        mine = world.moments(world.occupancy(world.policy(found["policy"]))).sum(axis=0) @ truth
        assert best - mine <= found["certificate"] + SLACK


def test_what_no_comparison_sees_is_unbounded_without_a_reference_vector():
    """All data compare candidates 1 and 2; every φ shares a component that cancels in them.

    With the ridge Λ the value without v is −radius/√Λ to leading order: unbounded as Λ falls.
    """
    features = np.array([[[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]])
    x = features[0, 0] - features[0, 1]
    contexts = Contexts.of(None, features)
    offset = contexts.start()[0]
    bounded, free = [], []
    for ridge in (1.0, 1e-4, 1e-8):
        plausible = PlausibleRewards(
            center=np.array([0.5, -0.5, 0.0]), metric=100 * np.outer(x, x) + ridge * np.eye(3),
            radius=2.0,
        )  # fmt: skip
        for vector, values in ((offset, bounded), (None, free)):
            mix = best_mixture(
                plausible, contexts.best_response, reference_vector=vector, gap=1e-4 / ridge**0.5
            )
            values.append(mix.value)
    assert bounded == pytest.approx([0.5 - 2 * 0.05] * 3, abs=0.01)  # ‖x/2‖ in M⁻¹ is .05
    assert free[1] < 50 * free[0]
    assert free[2] < 50 * free[1] < 0
    # with no ridge at all
    blind = PlausibleRewards(
        center=np.array([0.5, -0.5, 0.0]), metric=100 * np.outer(x, x), radius=2.0
    )
    assert blind.worst(contexts.start()[0]).value == -np.inf
    with pytest.raises(UsageError, match="no comparison saw"):
        best_mixture(blind, contexts.best_response)
    found = best_mixture(blind, contexts.best_response, reference_vector=offset)
    assert found.value == pytest.approx(0.5 - 2 * 0.05, abs=1e-4)
