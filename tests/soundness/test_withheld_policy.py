"""The entry is durable before anything is drawn, and says what was really drawn from."""

import numpy as np
import pytest

import sordino
from sordino.algorithms.offline_bandit import multi_armed_policy
from sordino.preferences.bandit_logs import BanditLogs
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import event_of

TERMS = {"unit": "record", "neighbors": sordino.ADD_OR_REMOVE_ONE}


@pytest.fixture
def policy():
    logs = BanditLogs.from_arrays([0, 1, 1], [0.0, 1.0, 1.0], catalogue=3, reward_range=(0, 1))
    return multi_armed_policy(logs, **TERMS, temperature=0.5, shrinkage=4.0)


@pytest.fixture
def ledger(tmp_path):
    budget = sordino.Guarantee(5.0, delta=0.0, trust="central", **TERMS)
    return Ledger.open(tmp_path / "spend.db", data="log", budget=budget)


@pytest.mark.parametrize("way", ["draw", "draw_many", "draw_each"])
def test_the_entry_is_on_disk_when_scores_are_read(policy, ledger, monkeypatch, way):
    """A crash between entry and draw overcounts; none undercounts."""

    def crash(*_):
        assert len(Ledger.read(ledger.path).spends) == 1
        raise KeyboardInterrupt

    monkeypatch.setattr(type(policy.estimate), "_scores", crash)
    asked = {"draw": (), "draw_many": (7,), "draw_each": (None, [[0, 1], [1, 2]])}[way]
    with pytest.raises(KeyboardInterrupt):
        getattr(policy, way)(*asked, ledger=ledger)
    assert len(Ledger.read(ledger.path).spends) == 1


def test_what_is_recorded_is_at_least_what_was_drawn_from(policy, ledger, monkeypatch):
    """Each release is of the stated mechanism: its range is never above its entry's."""
    from sordino.mechanisms.gibbs import SoftmaxMechanism

    drawn = []
    honest = SoftmaxMechanism.release

    def watched(self, values, *, entropy):
        drawn.append((self.bounded_range, self.draws))
        return honest(self, values, entropy=entropy)

    monkeypatch.setattr(SoftmaxMechanism, "release", watched)
    policy.draw(ledger=ledger)
    policy.draw_many(4, ledger=ledger)
    policy.draw_each(None, [[0, 1], [0, 1, 2], [2]], ledger=ledger)
    stated = [event_of(row) for row in ledger.spends for _ in range(row.count)]
    assert len(stated) == len(drawn) == 5
    for event, (length, draws) in zip(stated, drawn, strict=True):
        assert event.draws == draws
        assert event.bounded_range >= length


def test_draws_of_one_call_are_independent_given_the_scores(policy, ledger):
    # 20,000 pairs of draws, false alarm 1e-6 at a fixed seed: a correlation of .035 is found.
    budget = sordino.Guarantee(1e9, delta=0.0, trust="central", **TERMS)
    ledger.change_budget(budget)
    drawn = policy.draw_many(40_000, ledger=ledger, simulate_seed=11).reshape(-1, 2)
    first, second = (drawn == 1).T.astype(float)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.035


def test_two_logs_that_differ_show_the_same_public_facts(tmp_path):
    """Range, guarantee, errors and entries agree in every byte; only the drawn arm may differ."""
    seen = []
    for index, rewards in enumerate(([0.0, 1.0], [0.0, 1.0, 1.0, 0.0, 0.3])):
        logs = BanditLogs.from_arrays([0] * len(rewards), rewards, catalogue=3, reward_range=(0, 1))
        policy = multi_armed_policy(logs, **TERMS, epsilon=0.5, draws=3)
        budget = sordino.Guarantee(0.5, delta=0.0, trust="central", **TERMS)
        ledger = Ledger.open(tmp_path / f"{index}.db", data="log", budget=budget)
        policy.draw_many(3, ledger=ledger)
        (entry,) = ledger.spends
        facts = (entry.event, entry.parameters, entry.payload, entry.count, entry.scope)
        seen.append((repr(policy), repr(logs), policy.guarantee(3), policy.bounded_range(), facts))
    assert seen[0] == seen[1]
