"""Events, coins and conversions: values of the specification, refusals, round trips."""

import json
import math
from decimal import Decimal, localcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.errors import LedgerDamaged, PrivacyError, UsageError
from sordino.privacy import conversions as c
from sordino.privacy import guarantee as e

CORE = json.loads((Path(__file__).parents[2] / "data" / "core.json").read_text())

EXAMPLES = [
    e.RandomizedResponseEvent(1.0),
    e.RandomizedResponseEvent(0.3, categories=5),
    e.GaussianEvent(0.25),
    e.GaussianEvent(0.0),
    e.PureEvent(0.1),
    e.ApproximateEvent(0.5, 1e-7),
    e.BoundedRangeEvent(0.5),
    e.BoundedRangeEvent(0.5, draws=1000),
    e.PoissonGaussianEvent(1.1, 0.01, steps=1000),
    e.PoissonGaussianEvent(1.0, 1.0, steps=1),
    e.NonPrivateEvent(),
]
POISSON = {"noise_multiplier": 1.0, "sampling_probability": 0.5, "steps": 10}


SPECIFIED = {
    "gaussian_mu": lambda row: c.gaussian_mu(row["epsilon"], row["delta"]),
    "gaussian_delta": lambda row: c.gaussian_delta(row["epsilon"], row["mu"]),
    "gaussian_epsilon": lambda row: c.gaussian_epsilon(row["delta"], row["mu"]),
    "bounded_range_for": lambda row: c.bounded_range_for(row["epsilon"], row["delta"]),
    "bounded_range_composition_epsilon_at_delta_1e-6": lambda row: (
        c.bounded_range_composition_epsilon(1e-6, row["bounded_range"], row["draws"])
    ),
}


@pytest.mark.parametrize(("name", "row"), [(name, row) for name in SPECIFIED for row in CORE[name]])
def test_values_of_the_specification(name, row):
    assert SPECIFIED[name](row) == pytest.approx(row["value"], rel=row.get("rel_tol", 1e-6))


@pytest.mark.parametrize("row", CORE["policy_gradient_noise_times_m_over_RG"])
def test_policy_gradient_noise_of_the_specification(row):
    """Claim: PPO-DP, Theorem 1 (DP-PG noise 16 log(1.25/δ)R²G²/(m²ε²))"""
    sensitivity = {"REPLACE_ONE": 4, "REPLACE_SPECIAL": 2}[row["neighbors"]]
    noise = sensitivity / c.gaussian_mu(row["epsilon"], row["delta"])
    assert noise == pytest.approx(row["value"], rel=1e-6)


@pytest.mark.parametrize("row", CORE["randomized_response"])
def test_randomized_response_of_the_specification(row):
    """Claim: PPKL, equation (7): randomized response is ε-private for labels, locally"""
    assert 1 - c.flip_probability(row["epsilon"]) == pytest.approx(row["keep"], rel=1e-9)


def test_group_functions():
    assert c.group_approximate(0.0, 1e-6, 4) == (0.0, 4e-6)
    assert c.group_approximate(0.7, 1e-6, 1) == (0.7, 1e-6)
    assert c.group_approximate(1.0, 1e-6, 1000) == (1000.0, 1.0)
    assert c.group_approximate(1.0, 0.0, 1000) == (1000.0, 0.0)


@given(st.floats(0, 5), st.floats(1e-12, 1e-3), st.integers(1, 20))
def test_group_approximate_is_the_chain_of_single_changes(epsilon, delta, size):
    chain = sum(delta * math.exp(i * epsilon) for i in range(size))
    ours = c.group_approximate(epsilon, delta, size)
    assert ours[0] == size * epsilon
    assert min(1.0, chain) * (1 - 1e-14) <= ours[1] <= min(1.0, chain) * (1 + 1e-11)


def test_relations():
    """Claim: KLDP, Proposition 1 (add/remove ⇒ swap)

    Claim: KLDP, Proposition 1 (swap ⇒ add/remove)
    """
    pair = c.replace_from_add_remove(1.0, 1e-6)
    assert pair == (2.0, pytest.approx(1e-6 * (1 + math.e), rel=1e-12))
    assert c.replace_from_add_remove(1000.0, 1e-6)[1] == 1.0
    assert c.add_remove_from_replace(0.0, 0.0, ignored_null_record=True) == (0.0, 0.0)
    with pytest.raises(PrivacyError, match="number of records"):
        c.add_remove_from_replace(0.0, 0.0, ignored_null_record=False)
    with pytest.raises(PrivacyError):
        c.add_remove_from_replace(0.0, 0.0, ignored_null_record=1)
    with pytest.raises(TypeError):
        c.add_remove_from_replace(0.0, 0.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: c.gaussian_delta(math.nan, 1.0),
        lambda: c.gaussian_delta(1.0, -1.0),
        lambda: c.gaussian_epsilon(1.0, 1.0),
        lambda: c.gaussian_epsilon(-1e-9, 1.0),
        lambda: c.gaussian_mu(-1.0, 1e-6),
        lambda: c.gaussian_mu(True, 1e-6),
        lambda: c.bounded_range_delta(-0.1, 1.0),
        lambda: c.bounded_range_for(math.inf, 1e-6),
        lambda: c.bounded_range_composition_delta(1.0, 1.0, 0),
        lambda: c.bounded_range_composition_delta(1.0, 1.0, 2.0),
        lambda: c.bounded_range_composition_epsilon(1e-6, math.inf, 2),
        lambda: c.two_point_delta(1.0, 1.0, 0.5, 2),
        lambda: c.two_point_delta(1.0, 1.0, -0.5, 2_000_000),
        lambda: c.zcdp_delta(-1.0, 1.0),
        lambda: c.zcdp_epsilon(2.0, 1.0),
        lambda: c.pure_to_zcdp(-1.0),
        lambda: c.group_approximate(1.0, 1e-6, 1.5),
        lambda: c.replace_from_add_remove(1.0, 1.0),
        lambda: c.randomized_response_threshold(0.0),
        lambda: c.randomized_response_threshold(math.inf),
        lambda: c.randomized_response_threshold(1.0, 1),
        lambda: c.realized_epsilon(0),
        lambda: c.realized_epsilon(2**64),
        lambda: c.randomized_response_threshold(1e-30, 3),
    ],
)
def test_out_of_range_is_refused(call):
    with pytest.raises(UsageError):
        call()


def test_ends_of_the_scale():
    assert c.gaussian_epsilon(0.0, 1.0) == math.inf
    assert c.gaussian_epsilon(0.0, 0.0) == 0.0
    assert c.gaussian_mu(1.0, 0.0) == 0.0
    assert c.gaussian_mu(math.inf, 1e-6) == math.inf
    assert c.gaussian_delta(1.0, math.inf) == 1.0
    assert 0 < c.gaussian_delta(50.0, 0.01) < 1e-307  # it underflows, and is not zero
    assert c.gaussian_delta(-1.0, 0.0) == pytest.approx(1 - math.exp(-1))
    assert c.zcdp_epsilon(0.0, 0.1) == math.inf
    assert c.zcdp_epsilon(0.0, 0.0) == 0.0
    assert c.zcdp_delta(0.0, 1e300) == 1.0
    assert c.bounded_range_composition_epsilon(0.0, 0.5, 10) == 5.0
    assert c.bounded_range_composition_epsilon(0.0, 0.0, 10) == 0.0
    assert c.bounded_range_composition_delta(5.0, 0.5, 10) == 0.0


@given(st.floats(1e-6, 60), st.integers(2, 1000))
def test_the_threshold_is_the_smallest_that_keeps_epsilon(epsilon, categories):
    threshold = c.randomized_response_threshold(epsilon, categories)
    with localcontext() as context:
        context.prec = 120
        others = categories - 1
        loss = abs((Decimal((2**64 - threshold) * others) / Decimal(threshold)).ln())
        target = min(Decimal(epsilon), Decimal(repr(epsilon)))  # as a float, and as it is written
        assert loss <= target
        assert Decimal(c.randomized_response_epsilon(epsilon, categories)) >= loss
        assert Decimal(c.realized_epsilon(threshold, categories)) >= loss
        if threshold > 1:
            less = (Decimal((2**64 - threshold + 1) * others) / Decimal(threshold - 1)).ln()
            assert less > target
    assert c.randomized_response_epsilon(epsilon, categories) <= epsilon
    assert c.flip_probability(epsilon, categories) == threshold / 2**64


def test_a_huge_epsilon_flips_one_word_and_says_so():
    assert c.randomized_response_threshold(1e9) == 1
    assert c.randomized_response_epsilon(1e9) == pytest.approx(64 * math.log(2))
    assert c.randomized_response_threshold(1e-25) == 2**63


@pytest.mark.parametrize("event", EXAMPLES)
def test_an_event_survives_the_ledger(event):
    kind, params = e.event_to_row(event)
    assert e.EVENTS[kind] is type(event)
    assert e.event_from_row(kind, json.loads(json.dumps(params))) == event
    assert all(type(value) in (int, float) for value in params.values())
    assert hash(event) == hash(e.event_from_row(kind, params))


def test_every_kind_is_in_the_examples():
    assert {type(event) for event in EXAMPLES} == set(e.EVENTS.values())
    with pytest.raises(TypeError):
        e.EVENTS["other"] = e.PureEvent


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("GaussianDpEvent", {"noise_multiplier": 1.0}),
        ("os.system", {}),
        ("sordino.privacy.guarantee.PureEvent", {"epsilon": 1.0}),
        (None, {}),
        (["pure"], {"epsilon": 1.0}),
        ("pure", {}),
        ("pure", None),
        ("pure", [("epsilon", 1.0)]),
        ("pure", {"epsilon": 1.0, "delta": 0.0}),
        ("pure", {"epsilon": "1.0"}),
        ("pure", {"epsilon": True}),
        ("pure", {"epsilon": -1.0}),
        ("pure", {"epsilon": 10**400}),
        ("bounded-range", {"bounded_range": 1.0, "draws": 1.0}),
        ("bounded-range", {"bounded_range": 1.0}),
        ("poisson-gaussian", {"noise_multiplier": 1.0, "sampling_probability": 1.0}),
        ("poisson-gaussian", POISSON | {"steps": 1.0}),
        ("poisson-gaussian", POISSON | {"steps": 2**63}),
        ("poisson-gaussian", POISSON | {"neighbors": "REPLACE_ONE"}),
        ("randomized-response", {"epsilon": 1.0, "categories": True}),
        ("non-private", {"epsilon": 1.0}),
    ],
)
def test_a_damaged_row_is_refused(kind, params):
    with pytest.raises(LedgerDamaged):
        e.event_from_row(kind, params)


def test_only_the_closed_set_has_rows():
    class Tame(e.PureEvent):
        pass

    for foreign in (Tame(1.0), "pure", e.Event()):
        with pytest.raises(UsageError):
            e.event_to_row(foreign)


@pytest.mark.parametrize(
    "make",
    [
        lambda: e.RandomizedResponseEvent(0.0),
        lambda: e.RandomizedResponseEvent(1.0, 1),
        lambda: e.GaussianEvent(math.inf),
        lambda: e.PureEvent(-1.0),
        lambda: e.ApproximateEvent(1.0, 1.0),
        lambda: e.GaussianEvent(math.nan),
        lambda: e.BoundedRangeEvent(1.0, 0),
        lambda: e.BoundedRangeEvent("1"),
        lambda: e.PoissonGaussianEvent(0.0, 0.5, 1),
        lambda: e.PoissonGaussianEvent(math.inf, 0.5, 1),
        lambda: e.PoissonGaussianEvent(math.nan, 0.5, 1),
        lambda: e.PoissonGaussianEvent(1.0, 0.0, 1),
        lambda: e.PoissonGaussianEvent(1.0, math.nextafter(1.0, 2.0), 1),
        lambda: e.PoissonGaussianEvent(1.0, math.nan, 1),
        lambda: e.PoissonGaussianEvent(1.0, 0.5, 0),
        lambda: e.PoissonGaussianEvent(1.0, 0.5, 1.5),
        lambda: e.PoissonGaussianEvent(1.0, 0.5, True),
    ],
)
def test_an_event_checks_its_settings(make):
    with pytest.raises(UsageError):
        make()


def test_settings_become_plain_numbers():
    event = e.BoundedRangeEvent(np.float32(0.5), np.int64(3))
    assert (type(event.bounded_range), type(event.draws)) == (float, int)
