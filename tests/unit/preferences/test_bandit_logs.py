"""Bandit logs: what bounds one record is enforced, and no size is shown."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.errors import DataError, UsageError
from sordino.preferences.bandit_logs import BanditLogs, Catalogue, ContextColumn

ANY = st.floats(allow_nan=False, allow_infinity=False)


def logs(arms=(0, 1, 2), rewards=(0.0, 0.5, 1.0), *, catalogue=3, reward_range=(0, 1), **others):
    return BanditLogs.from_arrays(
        list(arms), list(rewards), catalogue=catalogue, reward_range=reward_range, **others
    )


def test_arms_outside_the_catalogue_are_left_out_with_all_that_is_theirs():
    found = logs(
        ["b", "x", "a", "B"],
        [1, 2, 3, 4],
        catalogue=["a", "b", "c"],
        reward_range=(0, 9),
        contexts=[[0.1], [0.2], [0.3], [0.4]],
        propensities=[0.1, 0.2, 0.3, 0.4],
    )
    assert found.arms.tolist() == [1, 0]
    assert found.rewards.tolist() == [1.0, 3.0]
    assert found.contexts.tolist() == [[0.1], [0.3]]
    assert found.propensities.tolist() == [0.1, 0.3]


def test_nothing_left_is_a_data_set_like_any_other():
    for found in (logs([7, 8, 9]), logs([], [], contexts=np.empty((0, 2)), propensities=[])):
        assert len(found.arms) == len(found.rewards) == 0


@given(st.lists(ANY, min_size=1, max_size=5), st.tuples(ANY, ANY))
def test_every_reward_is_within_the_range(rewards, ends):
    low, high = min(ends), max(ends)
    if not 0 < high - low < np.inf:
        return
    found = logs([0] * len(rewards), rewards, reward_range=(low, high))
    assert (found.rewards >= low).all()
    assert (found.rewards <= high).all()
    inside = (np.array(rewards) >= low) & (np.array(rewards) <= high)
    assert found.rewards[inside].tolist() == np.array(rewards)[inside].tolist()


@given(st.lists(st.lists(ANY, min_size=2, max_size=2), min_size=1, max_size=5))
def test_every_context_has_norm_one_at_most(rows):
    found = logs([0] * len(rows), [0] * len(rows), contexts=rows).contexts
    assert np.linalg.norm(found, axis=1).max() <= 1
    alone = [logs([0], [0], contexts=[row]).contexts[0].tolist() for row in rows]
    assert found.tolist() == alone


@pytest.mark.parametrize(
    "reward_range",
    [
        (1, 0),
        (1, 1),
        (0, np.inf),
        (-np.inf, 0),
        (np.nan, 1),
        (0, np.nan),
        (-1.7e308, 1.7e308),
        (0,),
        (0, 1, 2),
        "01",
        ("0", "1"),
        5,
        None,
        (0, None),
        (False, True),
    ],
)
def test_reward_ranges_that_cannot_be_used(reward_range):
    with pytest.raises(UsageError, match="reward_range"):
        logs(reward_range=reward_range)
    with pytest.raises(UsageError, match="reward_range"):
        replace(logs(), reward_range=reward_range)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"rewards": [0, np.nan, 1]}, "rewards .*row 1"),
        ({"rewards": [0, 1, np.inf]}, "rewards .*row 2"),
        ({"rewards": ["secret"] * 3}, "rewards .*dtype"),
        ({"rewards": [0, None, 1]}, "rewards .*dtype object"),
        ({"rewards": [0, 1]}, "rewards must have 3 rows"),
        ({"rewards": [[0], [1], [2]]}, "rewards .*shape"),
        ({"arms": [0, 1.5, 2]}, "arms: entry 1"),
        ({"propensities": [0.1, 0, 0.1]}, "propensities: row 1"),
        ({"propensities": [0.1, 0.1, -0.1]}, "propensities: row 2"),
        ({"propensities": [1.0000000000000002, 1, 1]}, "propensities: row 0"),
        ({"propensities": [0.1, np.nan, 0.1]}, "propensities .*row 1"),
        ({"propensities": [0.1]}, "propensities must have 3 rows"),
        ({"contexts": [[0.0], [np.nan], [0.0]]}, "contexts .*row 1"),
        ({"contexts": [0, 0, 0]}, "contexts .*shape"),
        ({"contexts": [[0.0]]}, "contexts must have 3 rows"),
        ({"contexts": [[], [], []]}, "contexts must have at least one column"),
        ({"contexts": [[1.0], [1.0, 2.0], [1.0]]}, "contexts must be numeric"),
    ],
)
def test_data_that_cannot_be_used(change, problem):
    with pytest.raises(DataError, match=problem) as caught:
        logs(**change)
    assert "secret" not in str(caught.value)


def test_a_bad_row_of_an_arm_outside_the_catalogue_is_bad_too():
    with pytest.raises(DataError, match="row 1"):
        logs([0, 99, 2], [0, np.nan, 1])
    with pytest.raises(DataError, match="row 1"):
        logs([0, 99, 2], propensities=[1, 0, 1])


def test_no_object_can_hold_what_breaks_its_bounds():
    """Rewards and arms are put right; for a context the constructor cannot know its bound."""
    whole = logs(contexts=[[0.5], [0.5], [0.5]])
    assert replace(whole, rewards=np.array([9.0, -9.0, 0.5])).rewards.tolist() == [1.0, 0.0, 0.5]
    assert replace(whole, arms=np.array([-1, 3, 1])).arms.tolist() == [1]
    with pytest.raises(DataError, match="contexts: row 1 is longer than 1"):
        replace(whole, contexts=np.array([[1.0], [1.000001], [2.0]]))
    with pytest.raises(DataError, match="contexts: row 2"):
        replace(whole, contexts=np.array([[1.0], [1.0], [1e300]]))
    with pytest.raises(DataError, match=r"contexts must have 3 column\(s\), got 1"):
        replace(whole, context_columns=(ContextColumn("a", 3),))
    with pytest.raises(UsageError, match="context_bound"):
        replace(whole, context_bound=0.0)
    with pytest.raises(UsageError, match="a Catalogue"):
        replace(whole, catalogue=3)
    for arms in (np.array([0.0, 1.0, 2.0]), ["0", "1", "2"], np.zeros((3, 1), int)):
        with pytest.raises(DataError, match="numbers of arms"):
            replace(whole, arms=arms)


def test_arrays_are_copies_that_nobody_can_change():
    arms, rewards, contexts = np.array([0, 1]), np.array([0.5, 0.5]), np.array([[0.5], [0.5]])
    catalogue = Catalogue.numbered(2)
    found = BanditLogs(arms, rewards, catalogue=catalogue, reward_range=(0, 1), contexts=contexts)
    for array in (arms, rewards, contexts):
        array[:] = 1
    assert found.rewards.tolist() == [0.5, 0.5]
    assert found.contexts.tolist() == [[0.5], [0.5]]
    assert found.arms.tolist() == [0, 1]
    for name in ("arms", "rewards", "contexts"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(found, name)[0] = 0


def test_queries_are_made_as_the_logs_were():
    rows = np.random.default_rng(0).normal(size=(50, 3)) * 2
    found = logs([0] * 50, [0] * 50, contexts=rows, context_bound=2.5)
    assert found.contexts_of(rows).tobytes() == found.contexts.tobytes()
    assert found.contexts_of(rows[7:8].tolist()).tobytes() == found.contexts[7:8].tobytes()
    with pytest.raises(DataError, match="3 column"):
        found.contexts_of(rows[:, :2])
    with pytest.raises(DataError, match="row 1"):
        found.contexts_of([[0, 0, 0], [0, np.inf, 0]])
    with pytest.raises(UsageError, match="no contexts"):
        logs().contexts_of(rows)


def test_what_is_shown_tells_no_size_and_no_data():
    few = logs(contexts=[[0.125]] * 3, propensities=[0.375] * 3)
    many = logs([0] * 777, [0.625] * 777, contexts=[[0.125]] * 777, propensities=[0.375] * 777)
    assert repr(few) == repr(many) == "BanditLogs(arms=3, reward_range=(0.0, 1.0))"
    assert few._repr_html_() == many._repr_html_()
    shown = " ".join(re.sub(r"<[^>]*>", " ", many._repr_html_()).split())
    assert shown == "BanditLogs arms 3 rewards 0 to 1 contexts vectors propensities given"
    assert "propensities" not in logs()._repr_html_()


def test_declared_columns_are_shown():
    columns = (ContextColumn("<age>"), ContextColumn("city", 8))
    rows = np.zeros((3, 9))
    found = replace(logs(contexts=rows), context_columns=columns)
    assert "context_columns=['<age>', 'city:8']" in repr(found)
    assert "&lt;age&gt;, city:8" in found._repr_html_()
