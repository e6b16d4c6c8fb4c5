"""What a curator keeps of a bandit: means of arms, and a regression inside a ball."""

import math
from decimal import Context, Decimal, Inexact, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sordino
from sordino._withholding import confidential
from sordino.errors import PrivacyError, UsageError
from sordino.mechanisms.minimum_count_release import MinimumCount
from sordino.mechanisms.score_sensitivity import farthest_rows
from sordino.preferences.bandit_logs import BanditLogs, Catalogue
from sordino.rewards.bandits import (
    ArmMeans,
    BallRidge,
    JointFeatures,
    ScreenedMeans,
    _minimize_in_ball,
    ball_ridge_range,
)

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


BALL = {"unit": "record", "neighbors": sordino.ADD_OR_REMOVE_ONE}
FEATURES = np.array([[0.0, 1.0], [3.0, 1.0], [-1.0, 2.0], [5.0, -4.0]])


def logs_with_contexts(n=300, contexts=True, features=True, seed=0, reward_range=(0, 1)):
    random = np.random.default_rng(seed)
    arms = random.integers(0, 4, n)
    seen = random.normal(size=(n, 2)) if contexts else None
    names = tuple("0123")
    catalogue = Catalogue(names, features=FEATURES if features else None)
    rewards = random.random(n) * (arms == 1)
    return BanditLogs.from_arrays(
        arms,
        rewards,
        catalogue=catalogue,
        reward_range=reward_range,
        contexts=seen,
        context_bound=3.0,
    )


@pytest.mark.parametrize("contexts", [True, False])
@pytest.mark.parametrize("features", [True, False])
def test_features_have_norm_at_most_one_and_hold_a_constant(contexts, features):
    logs = logs_with_contexts(contexts=contexts, features=features)
    joint = JointFeatures.of(logs)
    rows = np.vstack([rows for _, rows in joint.blocks(logs)])
    assert rows.shape == (300, joint.dimension)
    assert joint.dimension == (3 if contexts else 1) * (3 if features else 5)
    assert np.linalg.norm(rows, axis=1).max() <= 1
    assert np.ptp(rows[:, 0]) == 0
    assert rows[0, 0] > 0.49


def test_a_context_and_an_arm_are_all_products():
    logs = logs_with_contexts()
    joint = JointFeatures.of(logs)
    row = joint.options([0.6, -0.8], np.array([2]))[0]
    seen = np.array([1, 0.6, -0.8]) / math.sqrt(2)
    np.testing.assert_allclose(row, np.outer(seen, joint.arms[2]).ravel(), rtol=1e-9)


def test_no_question_is_wider_than_the_stated_spread():
    joint = JointFeatures.of(logs_with_contexts())
    random = np.random.default_rng(1)
    for _ in range(200):
        context = random.normal(size=2)
        context /= max(1.0, np.linalg.norm(context))
        rows = joint.options(context, np.arange(4))
        apart = np.linalg.norm(rows[:, None] - rows[None], axis=2).max()
        assert apart <= farthest_rows(rows) <= joint.spread * (1 + 1e-11)
        assert farthest_rows(rows) <= apart * (1 + 1e-9)


@given(st.integers(0, 10_000), st.floats(0.01, 100), st.floats(0.05, 5))
@settings(max_examples=40)
def test_the_minimizer_in_the_ball_meets_its_conditions(seed, ridge, ball):
    random = np.random.default_rng(seed)
    rows, rewards = random.normal(size=(20, 3)) / 2, random.random(20)
    moment, pull = rows.T @ rows + ridge * np.eye(3), rows.T @ rewards
    theta = _minimize_in_ball(moment, pull, ball)
    assert np.linalg.norm(theta) <= ball * (1 + 1e-12)
    gradient = moment @ theta - pull
    if np.linalg.norm(theta) < ball * (1 - 1e-9):
        assert np.linalg.norm(gradient) < 1e-9
    else:
        shift = -gradient @ theta / ball**2
        assert shift >= -1e-9
        assert np.linalg.norm(gradient + shift * theta) < 1e-8


def test_no_data_are_refused_once_they_were_read():
    theta = _minimize_in_ball(np.diag([3.0, 1e16]), np.array([1e16, 1e16]) / 7, 1.0)
    assert np.linalg.norm(theta) == pytest.approx(1.0)
    for width in (1e-300, 1e300):
        with pytest.raises(UsageError, match="the width of reward_range"):
            BallRidge(logs_with_contexts(reward_range=(0.0, width)), **BALL, ridge=1.0)


def test_scores_subtract_a_penalty_for_what_was_seen_rarely():
    logs = logs_with_contexts()
    plain = BallRidge(logs, **BALL, ridge=1.0)
    wary = BallRidge(logs, **BALL, ridge=1.0, penalty=0.5)
    options = plain.options([0.1, 0.2], None)
    width = np.sqrt(
        np.einsum(
            "kd,dk->k",
            options,
            np.linalg.inv(confidential(plain).factor @ confidential(plain).factor.T) @ options.T,
        )
    )
    np.testing.assert_allclose(
        wary._scores(options), plain._scores(options) - 0.5 * width, atol=1e-9
    )
    np.testing.assert_allclose(
        plain._scores(options), (options - options[0]) @ confidential(plain).weights
    )
    assert wary.score_range(options) > plain.score_range(options)


def test_the_range_of_a_question_is_never_above_that_of_all():
    logs = logs_with_contexts()
    fit = BallRidge(logs, **BALL, ridge=3.0, ball=0.7)
    most = ball_ridge_range(
        3.0,
        spread=fit.features.spread,
        ball=0.7,
        reward_range=1.0,
        neighbors=BALL["neighbors"],
    )
    for context in ([0, 0], [1, 0], [0.6, 0.8], None):
        assert 0 < fit.score_range(fit.options(context, None)) <= most
    assert fit.score_range(fit.options([0, 0], [1])) <= most * 1e-6  # a choice of one


def test_replacing_a_record_counts_twice():
    logs = logs_with_contexts()
    once = BallRidge(logs, **BALL, ridge=2.0)
    twice = BallRidge(logs, unit="record", neighbors=sordino.REPLACE_ONE, ridge=2.0)
    options = once.options(None, None)
    assert twice.score_range(options) == 2 * once.score_range(options)


def test_labels_have_no_ball_and_bind_the_public_rows():
    logs = logs_with_contexts(seed=0)
    settings = {"unit": "label", "neighbors": sordino.REPLACE_ONE, "ridge": 1.0}
    fit = BallRidge(logs, **settings)
    assert fit.caveats == ("real-arithmetic",)
    assert fit.questions is None  # scaled contexts would be others
    assert fit.score_range(fit.options(None, None)) > 0
    with pytest.raises(UsageError, match="ball is for unit='record'"):
        BallRidge(logs, **settings, ball=1.0)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"ridge": 0.0}, UsageError, "ridge"),
        ({"ball": -1.0}, UsageError, "ball"),
        ({"penalty": -1.0}, UsageError, "penalty"),
        ({"unit": "person"}, PrivacyError, "one record of each person"),
    ],
)
def test_settings_of_a_regression_are_checked(change, error, message):
    with pytest.raises(error, match=message):
        BallRidge(logs_with_contexts(10), **{**BALL, "ridge": 1.0, **change})


@pytest.mark.parametrize(
    ("context", "candidates", "message"),
    [
        ([0.1], None, "context must be 2 finite numbers"),
        ([0.1, math.nan], None, "context must be 2 finite numbers"),
        ([1.0, 1.0], None, "norm at most 1"),
        (None, [9], "indices of arms"),
        (None, [], "indices of arms"),
        (None, ["a"], "indices of arms"),
    ],
)
def test_questions_are_checked(context, candidates, message):
    fit = BallRidge(logs_with_contexts(10), **BALL, ridge=1.0)
    with pytest.raises(UsageError, match=message):
        fit.options(context, candidates)


def test_equal_options_have_equal_scores_and_cost_nothing():
    """Rows that are equal may be multiplied by different parts of a BLAS kernel."""
    fit = BallRidge(logs_with_contexts(), **BALL, ridge=0.1)
    for repeats in range(2, 20):
        options = fit.options([0.3, 0.1], [1] * repeats)
        assert fit.score_range(options) == 0.0
        assert set(fit._scores(options).tolist()) == {0.0}


def test_a_range_of_one_ulp_is_halved_exactly():
    """Its middle is no float, so rewards are counted from the lower end first."""
    low = 2.0**53
    logs = BanditLogs.from_arrays([0], [low + 2], catalogue=2, reward_range=(low, low + 2))
    fit, empty = (
        BallRidge(some, **BALL, ridge=1.0)
        for some in (logs, BanditLogs.from_arrays([], [], catalogue=2, reward_range=(low, low + 2)))
    )
    options = fit.options(None, None)
    change = fit._scores(options) - empty._scores(options)
    assert 0 < np.ptp(change) <= fit.score_range(options)


def test_a_fit_cannot_be_changed():
    fit = BallRidge(logs_with_contexts(), **BALL, ridge=1.0)
    for name in ("ridge", "ball", "_weights"):
        with pytest.raises(PrivacyError, match="cannot be changed"):
            setattr(fit, name, 1e12)
    for held in (confidential(fit).weights, fit.features.arms):
        with pytest.raises(ValueError, match="read-only"):
            held[...] = 0


@pytest.mark.parametrize("settings", [{"ridge": 1e-9}, {"ball": 1e-12}, {"ball": 1e12}])
def test_settings_whose_fit_may_fail_on_some_data_are_refused_on_all(settings):
    for n in (0, 1, 50):
        with pytest.raises(UsageError, match="must be within"):
            BallRidge(logs_with_contexts(n), **{**BALL, "ridge": 1.0, **settings})
