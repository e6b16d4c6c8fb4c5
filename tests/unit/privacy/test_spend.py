"""How spends add up for the worst-off unit."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.errors import UsageError
from sordino.privacy.accounting import Spend
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    GaussianEvent,
    Guarantee,
    PureEvent,
)


def promise(epsilon=2.0, *, delta=0.0, unit="label", neighbors=REPLACE_ONE, **more):
    return Guarantee(
        epsilon, delta=delta, unit=unit, neighbors=neighbors, **{"trust": "central", **more}
    )


def epsilon(spend, delta=0.0):
    return spend.epsilon(neighbors=REPLACE_ONE, delta=delta)


def spent(groups=(), **scopes):
    spend = Spend(groups=[frozenset(group) for group in groups])
    for scope, value in scopes.items():
        spend.add(scope, PureEvent(value), 1)
    return spend


@settings(max_examples=12)
@given(
    values=st.dictionaries(
        st.sampled_from("abcdefgh"), st.integers(0, 16).map(lambda x: x / 8), max_size=8
    ),
    events=st.booleans(),
)
def test_no_unit_loses_more_than_the_total(values, events):
    groups = [["a", "b", "c"], ["d", "e"]]
    spend = Spend(groups=[frozenset(group) for group in groups])
    for scope, value in values.items():
        spend.add(scope, PureEvent(value), 1)
        if events:
            spend.add(scope, PureEvent(value), 2)
    times = 3 if events else 1
    worst = max(
        sum(times * value for scope, value in values.items() if scope in {*unit, "f", "g", "h"})
        for unit in product(*groups)
    )
    assert epsilon(spend) == pytest.approx(worst, abs=1e-12)


def test_asking_what_would_be_leaves_the_spend_as_it_is():
    spend = spent(a=0.5)
    assert epsilon(spend.with_one_more("a", PureEvent(0.5), 2)) == 1.5
    assert epsilon(spend.with_one_more("b", PureEvent(0.25), 1)) == 0.75
    assert epsilon(spend) == 0.5


def test_many_disjoint_scopes_of_equal_spend_are_composed_once():
    names = [f"s{number}" for number in range(3000)]
    spend = spent([names], **dict.fromkeys(names, 0.5))
    assert len(list(spend.worlds())) == 1
    assert epsilon(spend) == 0.5


@pytest.mark.parametrize(
    ("events", "delta"),
    [
        ([], 0.0),
        ([PureEvent(0.3)], 0.0),
        ([PureEvent(0.3)], 1e-6),
        ([GaussianEvent(0.05)], 1e-6),
        ([GaussianEvent(0.05), PureEvent(0.25)], 1e-6),
    ],
)
def test_what_remains_agrees_with_trying_every_size(events, delta):
    budget, spend = promise(1.0, delta=delta), Spend(groups=[frozenset("ab")])
    for scope in ("a", "shared"):
        for event in events:
            spend.add(scope, event, 1)
    remains = spend.remaining_epsilon(budget)
    sizes = [step / 20 for step in range(1, 41)]
    fitting = [x for x in sizes if spend.with_one_more("shared", PureEvent(x), 1).fits(budget)]
    assert max(fitting, default=0.0) <= remains + 1e-12
    assert remains < max(fitting, default=0.0) + 1 / 20 + 1e-9
    assert spend.with_one_more("shared", PureEvent(remains), 1).fits(budget)


@pytest.mark.parametrize(
    ("rule", "unit", "neighbors"),
    [
        ("public-fields", "label", REPLACE_ONE),
        ("person-id", "person", ADD_OR_REMOVE_ONE),
        ("slot", "record", REPLACE_ONE),
        ("slot", "record", REPLACE_SPECIAL),
    ],
)
def test_a_rule_that_one_change_cannot_alter_is_accepted(rule, unit, neighbors):
    Spend().check_disjoint(["a", "b"], rule, promise(unit=unit, neighbors=neighbors))


@pytest.mark.parametrize(
    ("rule", "unit", "neighbors"),
    [
        ("slot", "record", ADD_OR_REMOVE_ONE),
        ("slot", "label", REPLACE_ONE),
        ("slot", "person", REPLACE_ONE),
        ("public-fields", "record", REPLACE_ONE),
        ("public-fields", "person", REPLACE_ONE),
        ("person-id", "record", REPLACE_ONE),
        ("person-id", "label", REPLACE_ONE),
        ("by answer", "label", REPLACE_ONE),
        ("", "label", REPLACE_ONE),
    ],
)
def test_a_rule_that_one_change_could_alter_is_refused(rule, unit, neighbors):
    with pytest.raises(UsageError, match="Nothing was recorded"):
        Spend().check_disjoint(["a", "b"], rule, promise(unit=unit, neighbors=neighbors))


@pytest.mark.parametrize("scopes", ["ab", [], ["a"], ["a", "a"], ["a", ""], ["a", 3], ["a", "all"]])
def test_scopes_of_which_nothing_can_be_said_are_refused(scopes):
    with pytest.raises(UsageError):
        Spend().check_disjoint(scopes, "public-fields", promise())


def test_more_combinations_than_can_be_composed_are_refused():
    earlier = [frozenset(f"{group}{scope}" for scope in range(10)) for group in "abcd"]
    with pytest.raises(UsageError, match="combinations"):
        Spend(groups=earlier).check_disjoint(["x", "y"], "public-fields", promise())
    Spend().check_disjoint([f"s{scope}" for scope in range(10_000)], "public-fields", promise())
