"""PPO-DP, private policy optimization: what was published and what is true of it."""

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
from published_ppo_dp import (
    published_gradient_noise,
    published_score_bound,
    published_selection_weights,
)
from scipy.special import softmax

from sordino.errors import UsageError
from sordino.policies.robust import Contexts, certified_suboptimality
from sordino.policies.worst_case import PlausibleRewards
from sordino.privacy.accounting import Spend
from sordino.privacy.conversions import gaussian_delta, gaussian_mu
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL, Guarantee

SOURCE = Path(__file__).parents[2] / "src" / "sordino"


def test_the_noise_of_the_gradient_is_short_by_a_root_of_two():
    """|Â| ≤ 2R, so one user's term has norm 2RG at most, and replacing it moves the sum by 4RG.

    Claim: PPO-DP, Theorem 1 (DP-PG noise 16 log(1.25/δ)R²G²/(m²ε²))
    Verdict: √2 short for replace-one (3.7e-5 against 1e-5 at ε = 1; refuted in 6 of 9
        settings); fine for zero-out
    Ours: sordino.algorithms.policy_optimization.GradientUpdate: per-person clipping, calibrated
        with sordino.privacy.conversions.gaussian_mu
    """
    reward_bound, score_bound, users = 2.0, 0.5, 100
    zeroed = 2 * reward_bound * score_bound / users
    refuted = []
    for epsilon, delta in itertools.product((0.1, 0.5, 1.0), (1e-4, 1e-5, 1e-8)):
        noise = published_gradient_noise(epsilon, delta, reward_bound, score_bound, users)
        refuted.append(gaussian_delta(epsilon, 2 * zeroed / noise) > delta)
        assert gaussian_delta(epsilon, zeroed / noise) <= delta
        classical = math.sqrt(2 * math.log(1.25 / delta)) * 2 * zeroed / epsilon
        assert classical / noise == pytest.approx(math.sqrt(2), rel=1e-12)
        assert gaussian_delta(epsilon, 2 * zeroed / classical) <= delta
        calibrated = 2 * zeroed / gaussian_mu(epsilon, delta)
        assert gaussian_delta(epsilon, 2 * zeroed / calibrated) <= delta * (1 + 1e-12)
        assert calibrated < classical
    assert sum(refuted) == 6  # the classical theorem has room to spare where ε is small


def test_the_bound_on_the_score_is_an_expectation():
    """∇ log π(y) = e_y − π for a table of softmax weights.

    Claim: PPO-DP, Assumption 1 (softmax: G² = 1 − 1/|Y|)
    Verdict: an expectation, not a supremum (√2)
    Ours: sordino.algorithms.policy_optimization.GradientUpdate: clips
    """
    for answers in (2, 4, 50):
        bound = published_score_bound(answers)
        for scale in (0.0, 1.0, 30.0):
            chances = softmax(scale * np.eye(answers)[0])
            squares = ((np.eye(answers) - chances) ** 2).sum(axis=1)
            assert chances @ squares <= bound**2 * (1 + 1e-12)
        assert math.sqrt(squares[1]) == pytest.approx(math.sqrt(2), rel=1e-9)  # a rare answer
        assert math.sqrt(squares[1]) > math.sqrt(2) * bound


def realized(predicted, advantage, epsilon=1.0):
    """The exact loss of the published selection when one user is replaced, R_max = 1.

    Two weights predict ±predicted for everybody; the others' advantages have settled on one.
    """
    losses = {
        sign: np.array([(w * predicted - sign * advantage) ** 2 for w in (1.0, -1.0)])
        for sign in (1, -1)
    }
    rest = 10 * losses[1]
    logs = []
    for mine in (1, -1):
        weights = published_selection_weights(rest + losses[mine], epsilon, 1.0)
        logs.append(weights - np.logaddexp(*weights))
    return float(np.abs(logs[0] - logs[1]).max())


def test_the_exponential_mechanism_realizes_up_to_four_times_its_loss():
    """Advantages are differences of two rewards: within ±2R, and so are their predictions.

    Claim: PPO-DP, Algorithm 5 (exponential mechanism at ε/(8R²))
    Verdict: realizes 2 to 4 ε for r ∈ [−R, R] (0.999 only where both are within R, 3.993 otherwise)
    Ours: sordino.mechanisms.regressions.gibbs.GibbsRegression: ε/(2(R_h + R_A)²)
    """
    assert 0.99 < realized(1.0, 1.0) <= 1.0
    assert 1.95 < realized(1.0, 2.0) <= 2.0
    assert 3.9 < realized(2.0, 2.0) <= 4.0
    for predicted, advantage in itertools.product((1.0, 2.0), repeat=2):
        corrected = 8 / (2 * (predicted + advantage) ** 2)  # ε/(2(R_h + R_A)²) for ε/(8R²)
        assert realized(predicted, advantage, epsilon=corrected) <= 1.0


def moved(one, other, batch, batches):
    """How far two streams' batch sums are apart, batch by batch."""
    sums = [
        np.reshape(users[: batch * batches], (batches, batch)).sum(axis=1) for users in (one, other)
    ]
    return np.abs(sums[0] - sums[1])


def test_a_user_who_leaves_moves_every_later_batch():
    """Batches of users 0 and 1 in turn; each batch's sum is released with the same noise.

    Claim: PPO-DP, Proposition 1 (parallel composition)
    Verdict: true for replace and zero-out with fixed slots; false for add/remove
    Ours: sordino.mechanisms.regressions.base.slot_relation;
        sordino.privacy.accounting.Spend.check_disjoint: the ledger's rule `slot` refuses add/remove
    """
    batches, epsilon, delta = 30, 1.0, 1e-6
    mu = gaussian_mu(epsilon, delta)  # of a change by 1 in one batch
    for batch in (1, 3):
        users = np.arange(batch * batches + 1) % 2.0
        replaced = users.copy()
        replaced[0] = 1.0
        touched = moved(users, replaced, batch, batches)
        assert np.count_nonzero(touched) == 1
        assert gaussian_delta(epsilon, mu * math.sqrt((touched**2).sum())) <= delta
        shifted = moved(users, users[1:], batch, batches)
        assert np.count_nonzero(shifted) == batches
        assert gaussian_delta(epsilon, mu * math.sqrt((shifted**2).sum())) > 1e5 * delta
    for neighbors in (REPLACE_ONE, REPLACE_SPECIAL):
        Spend().check_disjoint(["1", "2"], "slot", promise(neighbors))
    with pytest.raises(UsageError, match="Nothing was recorded"):
        Spend().check_disjoint(["1", "2"], "slot", promise(ADD_OR_REMOVE_ONE))


def promise(neighbors):
    return Guarantee(1.0, delta=1e-6, unit="record", neighbors=neighbors, trust="central")


def test_oracles_without_constants_are_not_shipped():
    """Their error is stated up to unnamed constants and logarithms: nothing that could be checked.

    Claim: PPO-DP, Corollary 2, Corollary 3 (ISSP, improper batch SGD)
    Verdict: constants not verified
    Ours: none of these two; sordino.optimize: sufficient statistics, exponential mechanism,
        one-pass SGD
    """
    text = {path: path.read_text(encoding="utf-8").lower() for path in SOURCE.rglob("*.py")}
    assert len(text) > 100
    named = re.compile(r"\bissp\b|improper_batch|improper batch")
    assert [path.name for path, words in text.items() if named.search(words)] == []


def test_a_bound_at_the_returned_policy_is_none():
    """1,000 problems of one context, five answers and five features; one answer is the reference.

    Algorithm 3 of PPHJ over deterministic policies; the truth is on the border of the set. The
    bound at the optimum, which nobody knows, and ours hold in all of them. At the returned policy
    320 exceed it: where the reference itself is returned it says that nothing is lost. The share
    depends on how problems are drawn (2 % to 62 % over 216 variants); this one gives the stated
    32 %.

    Claim: PPO-DP, suboptimality bound with the optimum evaluated at the returned policy (PPHJ,
        Theorem 4.2, used as a certificate)
    """
    exceeded = np.zeros(3)
    for seed in range(1000):
        g = np.random.default_rng(seed)
        features, root = g.normal(size=(5, 5)), g.normal(size=(5, 5))
        metric, radius = root @ root.T + 0.05 * np.eye(5), math.exp(g.uniform(-2, 1))
        center, way = g.normal(size=5), g.normal(size=5)
        truth = center + radius * way / math.sqrt(way @ metric @ way)
        q = features - features[0]
        widths = radius * np.sqrt(np.einsum("ad,da->a", q, np.linalg.solve(metric, q.T)))
        mine, best = int(np.argmax(q @ center - widths)), int(np.argmax(features @ truth))
        rewards = PlausibleRewards(center=center, metric=metric, radius=radius)
        contexts = Contexts.of(None, [features])
        ours = certified_suboptimality(rewards, contexts, np.eye(5)[mine])
        lost = (features[best] - features[mine]) @ truth
        exceeded += lost > np.array([ours, 2 * widths[best], 2 * widths[mine]]) + 1e-9
    assert exceeded[:2].tolist() == [0, 0]
    assert 300 < exceeded[2] < 340
