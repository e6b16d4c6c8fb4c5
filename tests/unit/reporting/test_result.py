from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import expit

import sordino
from sordino.environments.annotators import simulate_pairs
from sordino.reporting.result import (
    calibration,
    describe_ledger_rows,
    measure_policy,
    measure_public,
    measure_reward,
    measure_truth,
)
from sordino.rewards.estimation import fit_reward
from sordino.rewards.evidence import HeldOut
from sordino.rewards.metrics import accuracy


@pytest.fixture
def held_out() -> HeldOut:
    generator = np.random.default_rng(0)
    gaps = generator.normal(size=3000)
    labels = (generator.random(3000) < expit(gaps)).astype(np.int8)
    flips = generator.random(3000) < 0.25
    return HeldOut(differences=gaps, answers=labels ^ flips, flip_probability=0.25, clusters=None)


def test_metrics_of_a_reward_are_debiased(held_out):
    measured = measure_reward(held_out)
    assert measured["accuracy"] == accuracy(held_out.differences, held_out.answers, 0.25).value
    # 4.5 standard errors: false alarm 1e-5
    assert abs(measured["calibration_slope"] - 1) < (
        4.5 * measured["calibration_slope_standard_error"]
    )
    assert measured["negative_log_likelihood"] < np.log(2)


def test_a_policy_on_two_answers_is_measured_at_its_temperature(held_out):
    measured = measure_policy(held_out, 0.5)
    chances = expit(held_out.differences / 0.5)
    targets = (held_out.answers - 0.25) / 0.5
    assert measured["win_rate"] == pytest.approx(
        (targets * chances + (1 - targets) * (1 - chances)).mean()
    )
    low, high = measured["win_rate_interval"]
    assert low < measured["win_rate"] < high
    kl = chances * np.log(2 * chances) + (1 - chances) * np.log(2 * (1 - chances))
    assert measured["kl"] == pytest.approx(kl.mean())


def test_certain_choices_have_a_finite_distance(held_out):
    extreme = HeldOut(
        differences=np.sign(held_out.differences) * 1e6,
        answers=held_out.answers,
        flip_probability=0.25,
        clusters=None,
    )
    assert measure_policy(extreme, 1.0)["kl"] == pytest.approx(np.log(2))


def test_calibration_groups_hold_every_pair_once(held_out):
    assert sum(row["pairs"] for row in calibration(held_out)) == 3000


def test_public_and_true_metrics_describe_the_fitted_reward(open_ledger):
    rows, truth = simulate_pairs(600, seed=2)
    pairs = sordino.read_pairs(list(rows))
    account = open_ledger(8.0)
    answers = sordino.privatize(
        pairs, sordino.RandomizedResponse(8.0), ledger=account, simulate_seed=0
    )
    features = sordino.HashedText(dimension=256)
    reward = fit_reward(answers, features=features)
    policy = sordino.gibbs_policy(reward, temperature=0.5)
    gaps = reward.score(pairs.prompts, pairs.first) - reward.score(pairs.prompts, pairs.second)
    public = measure_public(reward, pairs, 0.5)
    assert public["pairs"] == 600
    assert public["accuracy"] == pytest.approx(((gaps > 0) == pairs.labels).mean())
    found = measure_truth(policy, pairs, truth)
    assert 0 <= found["kl_regret"] == pytest.approx(found["best_value"] - found["value"])
    first, second = truth.score(pairs.first), truth.score(pairs.second)
    uniform = (first + second).mean() / 2
    assert found["value"] > uniform  # better than the reference


def test_a_ledger_is_described_as_json(open_ledger):
    account = open_ledger(2.0)
    pairs = sordino.Pairs.from_features([[1.0], [2.0]], [0, 1], persons=["a", "a"])
    sordino.privatize(pairs, sordino.RandomizedResponse(0.5), ledger=account)
    view = json.loads(json.dumps(describe_ledger_rows(account)))
    assert view["remaining_epsilon"] == 1.5
    assert view["entries"][1]["details"] == {
        "largest_person_labels": 2,
        "largest_person_epsilon": 1.0,
    }


def test_one_page_from_a_certificate(open_ledger, linear_world, tmp_path):
    pairs, _ = linear_world(60, 2)
    account = open_ledger(1.0)
    answers = sordino.privatize(pairs, sordino.RandomizedResponse(1.0), ledger=account)
    certificate = sordino.certify(fit_reward(answers, ridge=1.0), account)
    sordino.write_report(tmp_path / "a.html", certificate)
    sordino.write_report(tmp_path / "b.html", certificate, ledger=account)
    short, full = ((tmp_path / name).read_text() for name in ("a.html", "b.html"))
    assert "://" not in short + full
    assert account.head.digest in full
    with pytest.raises(sordino.UsageError, match="exists already"):
        sordino.write_report(tmp_path / "a.html", certificate)
