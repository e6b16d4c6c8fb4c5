"""A promise is complete, prints honestly, and merges into nothing better than its parts."""

import json
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sordino.errors import PrivacyError, UsageError
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    CAVEATS,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    Guarantee,
    merge,
    never_less,
)

TERMS = {"delta": 0.0, "unit": "label", "neighbors": REPLACE_ONE, "trust": "central"}
KINDS = [
    (unit, neighbors)
    for unit in ("label", "record", "person")
    for neighbors in (REPLACE_ONE, REPLACE_SPECIAL, ADD_OR_REMOVE_ONE)
    if (unit, neighbors) != ("label", ADD_OR_REMOVE_ONE)
]


def promise(epsilon=1.0, **more):
    return Guarantee(epsilon, **{**TERMS, **more})


@pytest.mark.parametrize("missing", ["delta", "unit", "neighbors", "trust"])
def test_what_a_promise_is_about_has_no_default(missing):
    terms = {name: value for name, value in TERMS.items() if name != missing}
    with pytest.raises(TypeError, match=missing):
        Guarantee(1.0, **terms)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("epsilon", value) for value in (-1, -1e-300, math.nan, "1", None, True, 1j)),
        *(("delta", value) for value in (-1e-9, 1, 1.5, math.nan, math.inf, "0", None, False)),
        *(("unit", value) for value in ("user", "Label", "", None)),
        *(("neighbors", value) for value in ("REPLACE_ONE", None, 1)),
        *(("trust", value) for value in ("shuffle", "Central", None)),
        *(("randomness", value) for value in ("seed", "", None)),
    ],
)
def test_what_is_outside_its_range_is_refused_by_name(name, value):
    with pytest.raises(UsageError, match=f"^{name} must be"):
        promise(**{name: value})


def test_a_label_is_never_added_or_removed_on_its_own():
    with pytest.raises(UsageError, match="cannot be added or removed"):
        promise(neighbors=ADD_OR_REMOVE_ONE)


@pytest.mark.parametrize(("unit", "neighbors"), KINDS)
@pytest.mark.parametrize("epsilon", [0, 1.5, 1e-300, math.inf])
def test_a_promise_survives_json(unit, neighbors, epsilon):
    before = promise(epsilon, unit=unit, neighbors=neighbors, randomness="simulated", delta=1e-6)
    text = json.dumps(before.to_dict(), allow_nan=False)
    assert Guarantee.from_dict(json.loads(text)) == before


def test_caveats_travel_beside_the_promise():
    before = promise(caveats=("real-arithmetic", "labels-only"))
    assert "caveats" not in before.to_dict()
    assert Guarantee.from_dict(before.to_dict(), before.caveats) == before


@pytest.mark.parametrize(("unit", "neighbors"), KINDS)
def test_a_promise_prints_all_that_it_depends_on(unit, neighbors):
    one = promise(1 / 3, unit=unit, neighbors=neighbors, delta=1e-6, trust="local")
    text = str(one)
    for part in ("epsilon=0.333334", "delta=1e-06", one.change, neighbors.name, "trust: local"):
        assert part in text
    assert "SIMULATED" not in text


def test_a_simulated_promise_says_so_first():
    one = promise(randomness="simulated", caveats=("simulated",))
    assert one.simulated
    assert str(one).startswith("SIMULATED, not private: ")
    assert str(one).endswith("caveats: simulated")


def test_caveats_are_kept_once_and_in_order():
    one = promise().with_caveats("real-arithmetic", "labels-only").with_caveats("labels-only")
    assert one.caveats == ("labels-only", "real-arithmetic")
    assert all(name in CAVEATS for name in one.caveats)


@pytest.mark.parametrize(
    ("epsilon", "odds"), [(0, 1.0), (math.log(3), 3.0), (1e4, math.inf), (math.inf, math.inf)]
)
def test_odds_are_the_exponential_and_never_overflow(epsilon, odds):
    assert promise(epsilon).odds == pytest.approx(odds)


positive = st.floats(min_value=0, allow_infinity=False, allow_nan=False, allow_subnormal=False)


@given(positive, st.integers(1, 17))
def test_a_printed_bound_is_never_less_than_the_bound(value, digits):
    printed = float(never_less(value, digits))
    assert printed >= value
    assume(math.isfinite(printed))
    assert printed <= value * (1 + 10.0 ** (1 - digits)) * (1 + 1e-15)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (2.0, "2"),
        (0.1, "0.1"),
        (2.0000001, "2.00001"),
        (1e-12, "1e-12"),
        (math.inf, "inf"),
    ],
)
def test_a_bound_prints_in_six_digits_rounded_up(value, text):
    assert never_less(value) == text


def test_merging_keeps_the_weakest_of_everything():
    merged = merge(
        [
            promise(trust="local", caveats=("labels-only",)),
            promise(trust="central", randomness="simulated", caveats=("real-arithmetic",)),
        ],
        epsilon=2.0,
        delta=1e-6,
    )
    assert (merged.epsilon, merged.delta) == (2.0, 1e-6)
    assert (merged.trust, merged.randomness) == ("central", "simulated")
    assert merged.caveats == ("labels-only", "real-arithmetic")
    assert merge([promise(trust="local")], epsilon=1.0, delta=0.0).trust == "local"


@pytest.mark.parametrize("other", [{"unit": "record"}, {"neighbors": REPLACE_SPECIAL}])
def test_promises_about_different_changes_are_not_merged(other):
    for parts in ([promise(), promise(**other)], []):
        with pytest.raises(PrivacyError, match="cannot be composed"):
            merge(parts, epsilon=2.0, delta=0.0)


@pytest.mark.parametrize("caveats", ["labels-only", ("unknown",), (1,), ("labels-only", None)])
def test_a_caveat_is_a_name_that_can_be_looked_up(caveats):
    with pytest.raises(UsageError, match="caveats"):
        Guarantee(
            1.0, delta=0.0, unit="label", neighbors=REPLACE_ONE, trust="local", caveats=caveats
        )


@pytest.mark.parametrize(
    "change",
    [{"epsilon": "much"}, {"epsilon": True}, {"epsilon": None}, {"delta": "0"}, {"trust": []},
     {"unit": "user"}, {"randomness": "dice"},
     {"delta": 1}, {"neighbors": "ALL"}, {"neighbors": []}, {"unit": {}}, {"epsilon": 10**400}],
)  # fmt: skip
def test_what_is_no_promise_is_refused_as_a_setting(change):
    good = Guarantee(1.0, delta=0.0, unit="label", neighbors=REPLACE_ONE, trust="local").to_dict()
    with pytest.raises(UsageError):
        Guarantee.from_dict(good | change)
    for name in ("epsilon", "delta", "unit", "neighbors", "trust"):
        with pytest.raises(UsageError, match=name):
            Guarantee.from_dict({key: value for key, value in good.items() if key != name})
