from __future__ import annotations

import hashlib
import math
from dataclasses import replace

import numpy as np
import pytest

import sordino
from sordino.policies.gibbs import gibbs_policy, optimistic_policy, pessimistic_policy
from sordino.privacy.ledger_chain import canonical_json
from sordino.rewards import candidates as candidates_module
from sordino.rewards.confidence import ConfidenceEllipsoid, _NoiseTerm
from sordino.rewards.model import RewardModel

D = 6
PROMPTS = ["a", "b", "c"]
CANDIDATES = [["one", "two then"], ["three"], ["four", "five?", "six six"]]
REFERENCE = [[0.2, 0.8], [1.0], [0.1, 0.3, 0.6]]


def ellipsoid(d: int, seed: int = 0) -> ConfidenceEllipsoid:
    generator = np.random.default_rng(seed)
    root = generator.normal(size=(d, d)) / math.sqrt(d)
    metric = root @ root.T * 40 + 2 * np.eye(d)
    return ConfidenceEllipsoid(
        center=generator.normal(size=d),
        metric=metric,
        ball=2.0,
        ridge=1.0,
        candidates=1,
        gradient_norm=0.0,
        least_eigenvalue=float(np.linalg.eigvalsh(metric)[0]),
        noise=(_NoiseTerm(factor=1 / 1.6, trace=float(d), trace_of_square=float(d), largest=1.0),),
    )


@pytest.fixture
def make_reward(budget):
    def make(d=D, features=None, seed=0):
        known = ellipsoid(d, seed)
        # weights that were refined: confidence sets stay around the debiased center
        return RewardModel(
            weights=known.center + 0.5,
            features=features,
            guarantee=budget(1.0),
            method="mixture",
            ridge=1.0,
            ball=2.0,
            gradient_norm=0.0,
            atol=1e-9,
            pairs=50,
            ellipsoid=known,
        )

    return make


@pytest.fixture
def rows():
    generator = np.random.default_rng(5)
    return [generator.normal(size=(size, D)) / 2 for size in (4, 1, 3, 7)]


def plain_bonus(known, rows, reference, confidence, scale):
    """The definition, one candidate after the other."""
    inverse = np.linalg.inv(known.metric)
    mean = sum(p * row for p, row in zip(reference, rows, strict=True))
    return np.array(
        [
            scale * known.radius(confidence) * math.sqrt((row - mean) @ inverse @ (row - mean))
            for row in rows
        ]
    )


@pytest.mark.parametrize(("make", "sign"), [(pessimistic_policy, -1), (optimistic_policy, 1)])
def test_the_policy_is_the_definition(make_reward, rows, make, sign):
    reward = make_reward()
    policy = make(reward, temperature=0.7, confidence=0.9, scale=0.4)
    reference = [np.random.default_rng(i).dirichlet(np.ones(len(r))) for i, r in enumerate(rows)]
    found = policy.probabilities(None, rows, reference=reference)
    bonuses = policy.bonus(None, rows, reference=reference)
    for options, base, bonus, chances in zip(rows, reference, bonuses, found, strict=True):
        wanted = plain_bonus(reward.ellipsoid, options, base, 0.9, 0.4)
        np.testing.assert_allclose(bonus, wanted, rtol=1e-10, atol=1e-12)
        weights = base * np.exp((options @ reward.ellipsoid.center + sign * wanted) / 0.7)
        np.testing.assert_allclose(chances, weights / weights.sum(), rtol=1e-10)


def test_texts_and_their_features_give_the_same_policy(make_reward):
    features = sordino.HashedText(dimension=32)
    reward = make_reward(32, features)
    rows = [
        features.transform([prompt] * len(options), options).toarray()
        for prompt, options in zip(PROMPTS, CANDIDATES, strict=True)
    ]
    texts = pessimistic_policy(reward, temperature=0.5)
    plain = pessimistic_policy(replace(reward, features=None), temperature=0.5)
    one = texts.probabilities(PROMPTS, CANDIDATES, reference=REFERENCE)
    two = plain.probabilities(None, rows, reference=REFERENCE)
    for chances, wanted in zip(one, two, strict=True):
        np.testing.assert_allclose(chances, wanted, rtol=1e-10)
    gibbs = gibbs_policy(replace(reward, features=None), temperature=0.5)
    again = gibbs_policy(reward, temperature=0.5).expected_reward(PROMPTS, CANDIDATES)
    np.testing.assert_allclose(gibbs.expected_reward(None, rows), again, rtol=1e-10)


def test_what_all_candidates_share_changes_nothing(make_reward, rows):
    policy = pessimistic_policy(make_reward(), temperature=0.5)
    reference = [np.random.default_rng(i).dirichlet(np.ones(len(r))) for i, r in enumerate(rows)]
    shifts = np.random.default_rng(1).normal(size=(len(rows), D)) * 10
    moved = [options + shift for options, shift in zip(rows, shifts, strict=True)]
    for one, two in zip(
        policy.probabilities(None, rows, reference=reference),
        policy.probabilities(None, moved, reference=reference),
        strict=True,
    ):
        np.testing.assert_allclose(one, two, rtol=1e-9)
    # also where probabilities are off 1 by what is still accepted
    off = [base * (1 + 9e-7) for base in reference]
    far = [options + 1e6 for options in rows]
    for one, two in zip(
        policy.bonus(None, rows, reference=reference),
        policy.bonus(None, far, reference=off),
        strict=True,
    ):
        np.testing.assert_allclose(one, two, atol=1e-6)


def test_scale_zero_is_the_gibbs_policy_of_the_center(make_reward, rows):
    reward = make_reward()
    center = replace(reward, weights=reward.ellipsoid.center)
    wanted = gibbs_policy(center, temperature=0.5).probabilities(None, rows)
    for make in (pessimistic_policy, optimistic_policy):
        found = make(reward, temperature=0.5, scale=0).probabilities(None, rows)
        for one, two in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-13)


def test_blocks_change_nothing(make_reward, rows, monkeypatch):
    features = sordino.HashedText(dimension=32)
    reward = make_reward(32, features)
    policy = pessimistic_policy(reward, temperature=0.5)
    plain = pessimistic_policy(make_reward(), temperature=0.5)
    whole = policy.bonus(PROMPTS, CANDIDATES), plain.bonus(None, rows)
    for block in (1, 40, 100):
        monkeypatch.setattr(candidates_module, "_BLOCK", block)
        monkeypatch.setattr("sordino.rewards.pair_losses._BLOCK", block)
        parts = policy.bonus(PROMPTS, CANDIDATES), plain.bonus(None, rows)
        for one, two in zip(whole, parts, strict=True):
            np.testing.assert_allclose(np.concatenate(one), np.concatenate(two), rtol=1e-12)


def test_coverage_is_the_definition(make_reward, rows):
    reward = make_reward()
    policy = pessimistic_policy(reward, temperature=0.5, scale=0.3)
    uncertainty, ratios = [], []
    inverse = np.linalg.inv(reward.ellipsoid.metric)
    for options, chances in zip(rows, policy.probabilities(None, rows), strict=True):
        centered = options - options.mean(axis=0)
        squares = np.einsum("ij,jk,ik->i", centered, inverse, centered)
        uncertainty.append(50 * chances @ squares)
        ratios.append(chances.max() * len(options))
    assert policy.coverage(None, rows) == {
        "mean_uncertainty": pytest.approx(np.mean(uncertainty), abs=1e-12),
        "max_density_ratio": pytest.approx(max(ratios)),
    }


def test_it_draws_and_measures_like_any_policy(make_reward, rows):
    reward = make_reward()
    policy = pessimistic_policy(reward, temperature=0.5, scale=0.3)
    drawn, chances = policy.draw(None, rows, simulate_seed=1)
    assert (drawn < [len(options) for options in rows]).all()
    divergence, value = policy.kl(None, rows), policy.expected_reward(None, rows)
    for at, options in enumerate(rows):
        ratio = np.log(chances[at] * len(options))
        assert divergence[at] == pytest.approx(chances[at] @ ratio, abs=1e-12)
        # the estimate itself, without the bonus
        assert value[at] == pytest.approx(chances[at] @ (options @ reward.ellipsoid.center))


def test_a_scale_below_one_is_labelled(make_reward):
    reward = make_reward()
    valid = pessimistic_policy(reward, temperature=0.5)
    guess = optimistic_policy(reward, temperature=0.5, confidence=0.9, scale=0.3)
    assert repr(valid).endswith("confidence=0.95, valid)")
    assert "optimistic" in repr(guess)
    assert repr(guess).endswith("confidence=0.9, heuristic scale 0.3)")
    assert guess.to_dict() == {
        "reward": reward.to_dict(),
        "temperature": 0.5,
        "kind": "optimistic",
        "confidence": 0.9,
        "scale": 0.3,
        "label": "heuristic scale 0.3",
    }
    assert valid.to_dict()["label"] == "valid"
    assert pessimistic_policy(reward, temperature=0.5, scale=1.5).label == "valid"


@pytest.mark.parametrize(
    "setting",
    [
        {"temperature": math.nan},
        {"confidence": 0},
        {"confidence": "sure"},
        {"scale": -0.1},
        {"scale": math.inf},
    ],
)
def test_settings_out_of_range_are_refused(make_reward, setting):
    (name,) = setting
    for make in (pessimistic_policy, optimistic_policy):
        with pytest.raises(sordino.UsageError, match=name):
            make(make_reward(), **{"temperature": 0.5, **setting})


def test_a_policy_needs_a_released_reward_with_a_confidence_set(make_reward):
    with pytest.raises(sordino.PrivacyError, match="RewardModel"):
        pessimistic_policy("reward", temperature=1.0)
    with pytest.raises(sordino.UsageError, match="ellipsoid=True"):
        pessimistic_policy(replace(make_reward(), ellipsoid=None), temperature=0.5)


def test_candidates_that_do_not_fit_are_refused(make_reward, rows):
    for make in (pessimistic_policy, gibbs_policy):
        policy = make(make_reward(), temperature=0.5)
        with pytest.raises(sordino.UsageError, match="prompts=None"):
            policy.probabilities(PROMPTS, CANDIDATES)
        with pytest.raises(sordino.DataError, match="entry 1"):
            policy.probabilities(None, [rows[0], rows[0][0]])
        with pytest.raises(sordino.DataError, match=r"entry 1.* 5 features"):
            policy.probabilities(None, [rows[0], rows[0][:, 1:]])
        with pytest.raises(sordino.DataError, match="6"):
            policy.probabilities(None, [rows[0][:, 1:]])
        with pytest.raises(sordino.DataError, match="entry 0"):
            policy.probabilities(None, [[[1.0], [2.0, 3.0]]])
        with pytest.raises(sordino.DataError, match="NaN"):
            policy.probabilities(None, [rows[0] * math.nan])
        with pytest.raises(sordino.DataError, match="empty"):
            policy.probabilities(None, [])
        reading = make(make_reward(32, sordino.HashedText(dimension=32)), temperature=0.5)
        with pytest.raises(sordino.UsageError, match="give prompts"):
            reading.probabilities(None, CANDIDATES)


def test_certificates_tell_policies_apart_and_keep_the_digest_of_gibbs(linear_world, ledger):
    pairs, _ = linear_world(100, 3)
    account = ledger(2.0)
    answers = sordino.privatize(pairs, sordino.RandomizedResponse(1.5), ledger=account)
    reward = sordino.fit_reward(answers, ridge=1.0, ball=2.0)
    made = [
        gibbs_policy(reward, temperature=0.5),
        pessimistic_policy(reward, temperature=0.5),
        pessimistic_policy(reward, temperature=0.5, scale=0.5),
        pessimistic_policy(reward, temperature=0.5, confidence=0.9),
        optimistic_policy(reward, temperature=0.5),
    ]
    certificates = [sordino.certify(policy, account) for policy in made]
    assert {certificate.artifact for certificate in certificates} == {"policy"}
    assert {certificate.guarantee.epsilon for certificate in certificates} == {1.5}
    assert len({certificate.digest for certificate in certificates}) == len(made)
    plain = canonical_json({"reward": reward.to_dict(), "temperature": 0.5})
    assert certificates[0].digest == hashlib.sha256(plain.encode()).hexdigest()
