"""Means of arms: the formula to 50 digits, whole sums, questions, and terms that are refused."""

import math
from decimal import Context, Decimal, Inexact, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sordino
from sordino._withholding import confidential
from sordino.errors import PrivacyError, UsageError
from sordino.mechanisms.minimum_count_release import MinimumCount
from sordino.preferences.bandit_logs import BanditLogs
from sordino.rewards.arm_means import ArmMeans, ScreenedMeans, arms_digest

TERMS = {"unit": "record", "neighbors": sordino.ADD_OR_REMOVE_ONE}
LABELS = {"unit": "label", "neighbors": sordino.REPLACE_ONE}


def logs_of(arms, rewards, k=3, reward_range=(0, 1)):
    return BanditLogs.from_arrays(arms, rewards, catalogue=k, reward_range=reward_range)


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(-2, 3)), max_size=30))
def test_scores_are_the_formula(records):
    arms, rewards = [arm for arm, _ in records], [reward for _, reward in records]
    logs = logs_of(np.array(arms, dtype=int), np.array(rewards), reward_range=(-1, 2))
    means = ArmMeans(logs, **TERMS, shrinkage=2.5, penalty=0.3, center=1.0)
    for arm, score in enumerate(means._scores(np.arange(3))):
        own = [min(2.0, max(-1.0, r)) + 1 for a, r in records if a == arm]
        wanted = (sum(own) + 2.5) / (len(own) + 2.5) - 0.3 / math.sqrt(len(own) + 2.5)
        assert abs(float(score) - wanted) <= 3 * 2.0**-20


def test_scores_have_fifty_digits_and_sums_are_whole():
    logs = logs_of([0] * 3, [1.0, 0.0, 1.0])
    means = ArmMeans(logs, **TERMS, shrinkage=1.0)
    with localcontext(prec=50):
        assert abs(means._scores(np.array([0]))[0] - Decimal(5) / Decimal(8)) < Decimal(10) ** -48
    assert confidential(means).sums.dtype == np.int64
    assert confidential(means).sums.tolist() == [2 * 2**20, 0, 0]


def test_order_and_arms_of_others_do_not_move_a_score():
    one = ArmMeans(logs_of([0, 1, 1], [0.3, 0.9, 0.1]), **TERMS, shrinkage=1.0)
    other = ArmMeans(logs_of([1, 0, 1, 9], [0.1, 0.3, 0.9, 1.0]), **TERMS, shrinkage=1.0)
    assert one._scores(np.arange(3)) == other._scores(np.arange(3))


def test_an_empty_log_is_a_log_like_any_other():
    means = ArmMeans(logs_of([], []), **TERMS, shrinkage=1.0)
    assert [float(score) for score in means._scores(np.arange(3))] == [0.5] * 3


@pytest.mark.parametrize(
    ("terms", "times"),
    [(TERMS, 1), ({**TERMS, "neighbors": sordino.REPLACE_SPECIAL}, 1),
     ({**TERMS, "neighbors": sordino.REPLACE_ONE}, 2)],
)  # fmt: skip
def test_a_replaced_record_counts_twice(terms, times):
    means = ArmMeans(logs_of([0], [1.0]), **terms, shrinkage=1.0, penalty=1.0)
    wanted = times * (0.25 + 1 - 1 / math.sqrt(2))
    assert math.isclose(means.score_range(np.arange(3)), wanted, rel_tol=1e-12)
    assert means.score_range(np.arange(3)) >= wanted * (1 - 1e-15)


def test_labels_show_less_where_their_arm_was_pulled_often():
    logs = logs_of([0] * 9 + [1] * 4, [1.0] * 13)
    means = ArmMeans(logs, **LABELS, shrinkage=1.0, penalty=5.0)
    assert math.isclose(means.score_range(np.array([0, 1])), 1 / 5, rel_tol=1e-12)
    assert math.isclose(means.score_range(np.array([0, 2])), 1 / 10, rel_tol=1e-12)
    assert means.public_digest == arms_digest(logs)
    assert ArmMeans(logs, **TERMS, shrinkage=1.0).public_digest is None


class Found(MinimumCount):
    """A test of counts that finds what it is told."""

    told = 4

    def release(self, values, *, entropy):
        assert entropy.randomness == "simulated"
        return np.array([self.told])


@pytest.fixture
def purse(tmp_path):
    budget = sordino.Guarantee(9.0, delta=5e-4, trust="central", **TERMS)
    return sordino.Ledger.open(tmp_path / "spend.db", data="log", budget=budget)


def screened(count, ledger):
    means = ScreenedMeans(logs_of([0], [1.0]), neighbors=sordino.ADD_OR_REMOVE_ONE)
    test = type("Told", (Found,), {"told": count})(0.5, delta=1e-4)
    assert means.screen(test, ledger=ledger, simulate_seed=0) == count
    return means


@pytest.mark.parametrize("count", [0, -3])
def test_after_a_test_that_failed_all_scores_are_equal(count, purse):
    means = screened(count, purse)
    assert set(means._scores(np.arange(3))) == {Decimal(0)}
    assert means.score_range(np.arange(3)) == 0.0


def test_after_a_test_that_passed_scores_are_plain_means(purse):
    passed = screened(4, purse)
    assert passed.score_range(np.arange(3)) == pytest.approx(0.2)
    assert [float(score) for score in passed._scores(np.arange(3))] == [1.0, 0.5, 0.5]


def test_nothing_is_drawn_from_means_that_were_not_screened():
    means = ScreenedMeans(logs_of([0], [1.0]), neighbors=sordino.ADD_OR_REMOVE_ONE)
    with pytest.raises(UsageError, match="call screen first"):
        means.options(None, None)


def test_one_entry_pays_for_one_test(purse):
    means = screened(4, purse)
    with pytest.raises(UsageError, match="screened before"):
        means.screen(Found(1.0, delta=1e-4), ledger=purse)
    assert means.least_count == 4
    assert [release_id for release_id, _ in means.payments] == [purse.spends[0].release_id]
    fresh = ScreenedMeans(logs_of([0], [1.0]), neighbors=sordino.ADD_OR_REMOVE_ONE)
    with pytest.raises(UsageError, match="a ledger is needed"):
        fresh.screen(Found(1.0, delta=1e-4), ledger=None)


def test_means_cannot_be_changed():
    means = ArmMeans(logs_of([0], [1.0]), **TERMS, shrinkage=1.0)
    for name in ("shrinkage", "penalty", "_sums", "anything"):
        with pytest.raises(PrivacyError, match="cannot be changed"):
            setattr(means, name, 1e9)
    with pytest.raises(ValueError, match="read-only"):
        confidential(means).sums[0] = 0


def test_the_arithmetic_of_the_caller_changes_nothing():
    means = ArmMeans(logs_of([0, 0], [1.0, 0.0]), **TERMS, shrinkage=1.0, penalty=1.0)
    usual = means._scores(np.arange(3))
    with localcontext(Context(prec=3, traps=[Inexact])):
        assert means._scores(np.arange(3)) == usual


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"shrinkage": 0.0}, UsageError, "shrinkage"),
        ({"penalty": -1.0}, UsageError, "penalty"),
        ({"center": 1.5}, UsageError, "center must lie between 0 and the reward range 1.0"),
        ({"center": -0.1}, UsageError, "center"),
        ({"unit": "person"}, PrivacyError, "one record of each person"),
        ({"unit": "label"}, PrivacyError, "a label is replaced"),
        ({"unit": "row"}, UsageError, "unit"),
        ({"neighbors": None}, UsageError, "neighbors"),
    ],
)
def test_settings_are_checked(settings, error, message):
    with pytest.raises(error, match=message):
        ArmMeans(logs_of([0], [1.0]), **{**TERMS, "shrinkage": 1.0, **settings})
