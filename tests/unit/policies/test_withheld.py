"""A withheld policy draws only against a ledger, says nothing of itself, and cannot be copied."""

import copy
import json
import pickle

import numpy as np
import pytest

import sordino
from sordino.algorithms.offline_bandit import multi_armed_policy
from sordino.errors import (
    BudgetExceeded,
    PrivacyError,
    PrivacyWarning,
    UsageError,
)
from sordino.policies.gibbs import WithheldPolicy
from sordino.preferences.bandit_logs import BanditLogs
from sordino.privacy.guarantee import BoundedRangeEvent, event_to_row
from sordino.privacy.ledger_chain import event_of

TERMS = {"unit": "record", "neighbors": sordino.ADD_OR_REMOVE_ONE}


def logs_of(n=400, k=4, seed=0):
    random = np.random.default_rng(seed)
    arms = random.integers(0, k, n)
    rewards = random.random(n) < np.where(arms == 2, 0.9, 0.2)
    return BanditLogs.from_arrays(arms, rewards.astype(float), catalogue=k, reward_range=(0, 1))


@pytest.fixture
def policy():
    return multi_armed_policy(logs_of(), **TERMS, temperature=0.05, shrinkage=49.0)


@pytest.fixture
def opened(tmp_path):
    def make(epsilon=10.0, delta=0.0, name="spend", **terms):
        budget = sordino.Guarantee(epsilon, delta=delta, trust="central", **{**TERMS, **terms})
        return sordino.Ledger.open(tmp_path / f"{name}.db", data="log", budget=budget)

    return make


def test_every_kind_of_draw_is_one_entry_that_holds_no_size_of_the_log(policy, opened):
    ledger, size = opened(), policy.bounded_range()
    arm = policy.draw(ledger=ledger)
    many = policy.draw_many(5, ledger=ledger)
    each = policy.draw_each(None, [[0, 1], [2], [3, 1, 0]], ledger=ledger)
    assert isinstance(arm, int)
    assert arm in range(4)
    assert many.shape == (5,)
    assert each[0] in {0, 1}
    assert each[1] == 0
    events = BoundedRangeEvent(size), BoundedRangeEvent(size, draws=5), BoundedRangeEvent(size)
    counts = [(event_of(row), row.count) for row in ledger.spends]
    assert counts == list(zip(events, (1, 1, 3), strict=True))
    assert ledger.rows[-1].kind == "commit"
    for row in ledger.spends:
        kind, parameters = event_to_row(event_of(row))
        assert (kind, sorted(parameters)) == ("bounded-range", ["bounded_range", "draws"])
        assert json.loads(row.payload) == {"caveats": []}


def test_no_draw_without_a_ledger(policy):
    with pytest.raises(TypeError, match="ledger"):
        policy.draw()
    with pytest.raises(UsageError, match="a ledger is needed to record it"):
        policy.draw(ledger=None)
    with pytest.raises(UsageError, match="got dict"):
        WithheldPolicy({}, temperature=1.0)


def test_draws_that_would_overspend_draw_nothing(policy, opened, monkeypatch):
    ledger = opened(0.55)  # two draws fit, a hundred do not
    assert policy.bounded_range() == pytest.approx(0.2, rel=1e-9)
    drawn = []
    monkeypatch.setattr("sordino.mechanisms.gibbs.draw_actions", lambda *a, **k: drawn.append(a))
    with pytest.raises(BudgetExceeded, match="Nothing was released"):
        policy.draw_many(100, ledger=ledger)
    assert not drawn
    assert not ledger.spends
    assert ledger.remaining_epsilon() == 0.55


@pytest.mark.parametrize(
    "terms",
    [
        {"neighbors": sordino.REPLACE_ONE},
        {"unit": "person"},
        {"unit": "label", "neighbors": sordino.REPLACE_ONE},
    ],
)
def test_a_ledger_of_other_terms_is_refused(policy, opened, terms):
    with pytest.raises(PrivacyError):
        policy.draw(ledger=opened(**terms))


def test_nothing_of_the_estimate_shows(policy, opened):
    with pytest.raises(PrivacyError):
        sordino.certify(policy, opened())
    for held in (policy, policy.estimate):
        shown = f"{held!r} {held}"
        assert "withheld" in shown
        assert "counts" not in shown
        assert "[" not in shown
        for leave in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(PrivacyError, match="was not pickled or copied"):
                leave(held)
        with pytest.raises(TypeError):
            json.dumps(held)


def test_a_reference_is_followed_and_checked(opened):
    ledger = opened(1000.0)
    settings = {**TERMS, "temperature": 0.05, "shrinkage": 49.0}
    skewed = multi_armed_policy(logs_of(), **settings, reference=[0.0, 0.0, 0.0, 1.0])
    assert skewed.draw_many(3, ledger=ledger).tolist() == [3, 3, 3]
    assert skewed.bounded_range() == 0.0  # a choice of one shows nothing
    two = multi_armed_policy(logs_of(), **settings, reference=[0.5, 0.5, 0.0, 0.0])
    assert set(two.draw_many(50, ledger=ledger).tolist()) <= {0, 1}
    for wrong, said in (([0.5, 0.5], "one probability for each of 4"), ([0.5] * 4, "sum to 1")):
        with pytest.raises(UsageError, match=said):
            multi_armed_policy(logs_of(), **settings, reference=wrong).draw(ledger=ledger)


def test_a_vacuous_loss_is_said_plainly():
    cold = multi_armed_policy(logs_of(), **TERMS, temperature=1e-4, shrinkage=49.0)
    with pytest.warns(PrivacyWarning, match=r"One draw has epsilon=60.* protects nobody"):
        assert cold.bounded_range() > 20


def test_a_seed_repeats_the_draws_and_is_written_down(policy, opened):
    ledger = opened(100.0)
    first, second = (policy.draw_many(20, ledger=ledger, simulate_seed=3) for _ in range(2))
    assert first.tolist() == second.tolist()
    assert {entry.randomness for entry in ledger.spends} == {"simulated"}
    assert policy.draw(ledger=ledger) in range(4)
    assert ledger.spends[-1].randomness == "system"


@pytest.mark.parametrize(
    ("context", "candidates", "message"),
    [
        ([1.0], None, "no context"),
        (None, [], "different indices"),
        (None, [0, 0], "different indices"),
        (None, [-1], "different indices"),
        (None, [0.5], "different indices"),
    ],
)
def test_questions_that_are_none_are_refused_before_anything_is_spent(
    policy, opened, context, candidates, message
):
    ledger = opened()
    with pytest.raises(UsageError, match=message):
        policy.draw(context, candidates, ledger=ledger)
    assert not ledger.spends


def test_lengths_of_many_questions_must_agree(policy, opened):
    ledger = opened()
    with pytest.raises(UsageError, match="2 contexts, but 1 lists"):
        policy.draw_each([None, None], [[0, 1]], ledger=ledger)
    with pytest.raises(UsageError, match="Give contexts or candidates"):
        policy.draw_each(None, ledger=ledger)
    with pytest.raises(UsageError, match="There must be a question"):
        policy.draw_each(None, [], ledger=ledger)
    assert not ledger.spends


def test_a_guarantee_counts_the_draws_and_a_delta_helps(policy):
    once = policy.guarantee()
    assert once.epsilon == policy.bounded_range()
    assert (once.unit, once.neighbors, once.trust) == ("record", TERMS["neighbors"], "central")
    assert policy.guarantee(10).epsilon == pytest.approx(2.0, rel=1e-9)
    assert policy.guarantee(100, delta=1e-6).epsilon < 0.5 * policy.guarantee(100).epsilon
