"""Policies from logs: calibration keeps what it says, bad input is refused, accuracy is there."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sordino
from sordino.algorithms.offline_bandit import (
    bounded_range_of_draws,
    count_tested_policy,
    linear_policy,
    multi_armed_policy,
)
from sordino.errors import BudgetExceeded, PrivacyError, UsageError
from sordino.preferences.bandit_logs import BanditLogs
from sordino.privacy import accounting
from sordino.privacy.guarantee import ApproximateEvent, BoundedRangeEvent
from sordino.privacy.ledger_chain import event_of

ADD = sordino.ADD_OR_REMOVE_ONE
TERMS = {"unit": "record", "neighbors": ADD}


def logs_of(n=2000, k=5, seed=0, contexts=False):
    random = np.random.default_rng(seed)
    arms = random.integers(0, k, n)
    rewards = (random.random(n) < np.where(arms == 1, 0.8, 0.2)).astype(float)
    seen = random.normal(size=(n, 2)) if contexts else None
    return BanditLogs.from_arrays(
        arms, rewards, catalogue=k, reward_range=(0, 1), contexts=seen, context_bound=4.0
    )


def chances(policy, context=None):
    options = policy.estimate.options(context, None)
    sampling = policy._sampling(options)
    return np.exp(sampling.log_probabilities(policy.estimate._scores(options)))


@pytest.mark.deep
@given(
    st.floats(0.01, 30),
    st.sampled_from([0.0, 1e-9, 1e-5]),
    st.integers(1, 300),
    st.booleans(),
)
@settings(max_examples=60)
def test_the_range_of_one_draw_keeps_the_promise_of_all(epsilon, delta, draws, adaptive):
    found = bounded_range_of_draws(epsilon, delta, draws, neighbors=ADD, adaptive=adaptive)
    event = BoundedRangeEvent(found, draws=1 if adaptive else draws)
    counted = [(event, draws if adaptive else 1)]
    assert accounting.composed_epsilon(counted, neighbors=ADD, delta=delta) <= epsilon
    assert found >= epsilon / draws * (1 - 1e-15)


def test_the_range_of_one_draw_is_the_best_of_all_compositions():
    alone = bounded_range_of_draws(1.0, 1e-6, 100, neighbors=ADD, adaptive=True)
    together = bounded_range_of_draws(1.0, 1e-6, 100, neighbors=ADD)
    log = math.log(1e6)
    published = math.sqrt(8 / 100) * (math.sqrt(log + 1) - math.sqrt(log))
    assert published <= alone < together


@pytest.mark.parametrize(
    "given_settings",
    [
        {},
        {"records": 2000},
        {"temperature": 0.02},
        {"shrinkage": 50.0},
        {"penalty": 0.3},
        {"center": 0.0},
    ],
)
@pytest.mark.parametrize("neighbors", [ADD, sordino.REPLACE_ONE])
def test_a_calibrated_policy_keeps_exactly_what_was_asked(given_settings, neighbors):
    policy = multi_armed_policy(
        logs_of(), unit="record", neighbors=neighbors, epsilon=1.0, delta=1e-6, draws=20,
        **given_settings,
    )  # fmt: skip
    promise = policy.guarantee(20, delta=1e-6)
    assert 0.999 <= promise.epsilon <= 1.0
    if "temperature" in given_settings:
        assert policy.temperature == pytest.approx(0.02, rel=1e-6)
    if "shrinkage" in given_settings:
        assert policy.estimate.shrinkage == given_settings["shrinkage"]


@pytest.mark.parametrize(
    "given_settings", [{}, {"records": 2000}, {"temperature": 0.02}, {"ridge": 50.0}, {"ball": 0.3}]
)
def test_so_does_a_linear_one_in_every_context(given_settings):
    logs = logs_of(contexts=True)
    policy = linear_policy(
        logs, **TERMS, epsilon=1.0, delta=1e-6, draws=20, adaptive=True, **given_settings
    )
    share = bounded_range_of_draws(1.0, 1e-6, 20, neighbors=ADD, adaptive=True)
    for context in ([0.0, 0.0], [1.0, 0.0], [0.6, -0.8], None):
        assert policy.bounded_range(context) <= share
    assert policy.bounded_range([1.0, 0.0]) >= 0.98 * share


def test_all_planned_draws_can_be_paid_and_not_one_more(tmp_path):
    budget = sordino.Guarantee(1.0, delta=1e-6, trust="central", **TERMS)
    ledger = sordino.Ledger.open(tmp_path / "a.db", data="log", budget=budget)
    policy = multi_armed_policy(logs_of(), **TERMS, epsilon=1.0, delta=1e-6, draws=20)
    assert len(policy.draw_many(20, ledger=ledger)) == 20
    with pytest.raises(BudgetExceeded):
        policy.draw(ledger=ledger)
    ledger = sordino.Ledger.open(tmp_path / "b.db", data="log", budget=budget)
    linear = linear_policy(
        logs_of(contexts=True), **TERMS, epsilon=1.0, delta=1e-6, draws=20, adaptive=True
    )
    for step in range(20):
        linear.draw([math.sin(step), math.cos(step)], ledger=ledger)
    with pytest.raises(BudgetExceeded):
        linear.draw([1.0, 0.0], ledger=ledger)


def test_the_simulated_log_of_the_docs_closes_half_of_the_gap():
    # 10 arms, one .2 better, 1e5 pulls, epsilon 1 without a delta for 10 draws.
    random = np.random.default_rng(0)
    means = np.full(10, 0.4)
    means[3] = 0.6
    arms = random.integers(0, 10, 100_000)
    rewards = (random.random(len(arms)) < means[arms]).astype(float)
    logs = BanditLogs.from_arrays(arms, rewards, catalogue=10, reward_range=(0, 1))
    for records in (None, 100_000):
        policy = multi_armed_policy(logs, **TERMS, epsilon=1.0, draws=10, records=records)
        closed = (chances(policy) @ means - means.mean()) / (means.max() - means.mean())
        assert closed >= 0.5


def test_a_linear_policy_follows_the_context():
    random = np.random.default_rng(1)
    n = 20_000
    contexts, arms = random.choice([-1.0, 1.0], size=(n, 1)), random.integers(0, 2, n)
    rewards = (random.random(n) < 0.5 + 0.4 * contexts[:, 0] * (2 * arms - 1)).astype(float)
    logs = BanditLogs.from_arrays(
        arms, rewards, catalogue=2, reward_range=(0, 1), contexts=contexts
    )
    policy = linear_policy(logs, **TERMS, epsilon=2.0, draws=2, adaptive=True)
    assert chances(policy, [1.0])[1] > 0.8
    assert chances(policy, [-1.0])[0] > 0.8


def test_a_test_of_counts_is_paid_once_and_sharpens_the_draws(tmp_path):
    budget = sordino.Guarantee(3.0, delta=1e-6, trust="central", **TERMS)
    ledger = sordino.Ledger.open(tmp_path / "a.db", data="log", budget=budget)
    settings = {"neighbors": ADD, "epsilon": 1.0, "draws": 5}
    test = {"test_epsilon": 1.0, "test_delta": 1e-7}
    policy = count_tested_policy(logs_of(), **settings, **test, ledger=ledger)
    assert [event_of(row) for row in ledger.spends] == [ApproximateEvent(1.0, 1e-7)]
    assert 300 < policy.estimate.least_count < 400
    assert policy.guarantee(5).epsilon == math.inf  # without a delta the test promises nothing
    assert 1.0 < policy.guarantee(5, delta=1e-6).epsilon <= 2.0
    with pytest.raises(BudgetExceeded):
        count_tested_policy(logs_of(), **settings, **test | {"test_epsilon": 2.5}, ledger=ledger)
    assert len(ledger.spends) == 1
    other = sordino.Ledger.open(tmp_path / "other.db", data="log", budget=budget)
    with pytest.raises(PrivacyError, match="Use the ledger of the test"):
        policy.draw(ledger=other)
    blunt = multi_armed_policy(logs_of(), **TERMS, epsilon=1.0, draws=5, shrinkage=1.0)
    assert policy.temperature < 0.02 * blunt.temperature
    policy.draw_many(5, ledger=ledger)
    assert ledger.total().epsilon <= 2.0


def test_a_test_that_finds_too_little_draws_from_the_reference_for_free(tmp_path):
    budget = sordino.Guarantee(1.0, delta=1e-6, trust="central", **TERMS)
    ledger = sordino.Ledger.open(tmp_path / "a.db", data="log", budget=budget)
    rare = BanditLogs.from_arrays([0] * 50, [1.0] * 50, catalogue=3, reward_range=(0, 1))
    policy = count_tested_policy(
        rare, neighbors=ADD, epsilon=0.5, draws=1, test_epsilon=1.0, test_delta=1e-7, ledger=ledger
    )
    assert policy.bounded_range() == 0.0
    np.testing.assert_allclose(chances(policy), 1 / 3, rtol=1e-12)
    policy.draw_many(1000, ledger=ledger)
    assert ledger.total().epsilon == 1.0


def test_a_test_over_budget_draws_no_noise(tmp_path):
    budget = sordino.Guarantee(0.5, delta=1e-6, trust="central", **TERMS)
    ledger = sordino.Ledger.open(tmp_path / "a.db", data="log", budget=budget)
    with pytest.raises(BudgetExceeded):
        count_tested_policy(
            logs_of(), neighbors=ADD, epsilon=0.5, draws=1, test_epsilon=1.0, test_delta=1e-7,
            ledger=ledger,
        )  # fmt: skip
    assert not ledger.spends


@pytest.mark.parametrize(
    "arms_and_rewards",
    [
        ([], []),
        ([0] * 10, [0.5] * 10),  # arms never pulled, constant rewards
        ([0, 1, 2], [5.0, -5.0, 0.3]),  # clipped
        ([7, 9], [1.0, 1.0]),  # none in the catalogue
    ],
)
@pytest.mark.parametrize("make", [multi_armed_policy, linear_policy])
def test_thin_logs_make_policies_like_any_other(arms_and_rewards, make):
    logs = BanditLogs.from_arrays(*arms_and_rewards, catalogue=3, reward_range=(0, 1))
    policy = make(logs, **TERMS, epsilon=1.0)
    assert chances(policy).shape == (3,)
    assert policy.guarantee().epsilon <= 1.0
    logs = BanditLogs.from_arrays(*arms_and_rewards, catalogue=1, reward_range=(0, 1))
    alone = make(logs, **TERMS, epsilon=1.0)
    assert alone.guarantee(100).epsilon == 0.0  # one arm is drawn for free
    assert chances(alone).tolist() == [1.0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "Give an epsilon and at most one of"),
        ({"temperature": 1.0}, "Give an epsilon and at most one of"),
        ({"epsilon": 1.0, "temperature": 1.0, "regularization": 1.0}, "at most one of"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta"),
        ({"epsilon": 1.0, "draws": 0}, "draws"),
        ({"epsilon": 1.0, "temperature": -1.0}, "temperature"),
        ({"epsilon": 1.0, "regularization": 0.0}, "shrinkage|ridge"),
        ({"epsilon": 1e-9, "temperature": 1e-9}, "private enough"),
        ({"epsilon": 1.0, "logs": []}, "logs must be BanditLogs, got list"),
        ({"epsilon": 1.0, "reference": 1.0}, "reference must be Sequence"),
        ({"epsilon": True}, "epsilon must be float or None, got bool"),
    ],
)
@pytest.mark.parametrize("make", [multi_armed_policy, linear_policy])
def test_settings_are_checked(make, settings, message):
    name = "shrinkage" if make is multi_armed_policy else "ridge"
    used = {name if key == "regularization" else key: value for key, value in settings.items()}
    with pytest.raises(UsageError, match=message):
        make(**{"logs": logs_of(20), **TERMS, **used})


def test_labels_of_a_linear_bandit_take_both_settings_and_no_epsilon():
    logs = logs_of(contexts=True)
    terms = {"unit": "label", "neighbors": sordino.REPLACE_ONE}
    policy = linear_policy(logs, **terms, temperature=0.1, ridge=1.0)
    assert 0 < policy.guarantee(1, [0.5, 0.5]).epsilon < 1
    with pytest.raises(UsageError, match="no epsilon"):
        linear_policy(logs, **terms, epsilon=1.0, ridge=1.0)
    few = multi_armed_policy(logs, **terms, epsilon=1.0, draws=10)
    assert few.guarantee(10).epsilon <= 1.0
    assert few.temperature < 0.03  # every arm was pulled hundreds of times, in public


@pytest.mark.parametrize("make", [multi_armed_policy, linear_policy])
def test_persons_are_refused_with_a_way_out(make):
    with pytest.raises(PrivacyError, match="one record of each person"):
        make(logs_of(20), unit="person", neighbors=ADD, epsilon=1.0)
