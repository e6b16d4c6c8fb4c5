"""Settings of central training: what they promise is what their event spends."""

import math

import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import dp_accounting
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

from sordino.errors import UsageError
from sordino.language.dp_sgd.privacy import CentralPrivacy
from sordino.privacy.accounting import composed_epsilon
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL

TERMS = {
    "unit": "record", "neighbors": ADD_OR_REMOVE_ONE, "sampling_probability": 0.25, "steps": 8,
    "expected_batch": 10,
}  # fmt: skip


@pytest.mark.deep
@pytest.mark.parametrize("neighbors", [ADD_OR_REMOVE_ONE, REPLACE_SPECIAL])
def test_the_noise_is_the_least_that_keeps_the_promise(neighbors):
    """Beside what dp_accounting says of the same steps, computed here."""
    privacy = CentralPrivacy(4.0, 1e-5, **{**TERMS, "neighbors": neighbors})
    spent = composed_epsilon({privacy.event(8): 1}, neighbors=neighbors, delta=1e-5)
    assert 3.99 < spent <= 4.0
    one = from_gaussian_mechanism(
        privacy.noise_multiplier, sampling_prob=0.25, value_discretization_interval=1e-4,
        neighboring_relation=dp_accounting.NeighboringRelation[neighbors.name],
    )  # fmt: skip
    assert one.self_compose(8).get_epsilon_for_delta(1e-5) == pytest.approx(spent, rel=1e-3)


def test_what_it_promises():
    privacy = CentralPrivacy(4.0, 1e-5, **{**TERMS, "unit": "person", "cap": 3})
    promise = privacy.guarantee
    assert (promise.epsilon, promise.delta, promise.unit) == (4.0, 1e-5, "person")
    assert (promise.neighbors, promise.trust) == (ADD_OR_REMOVE_ONE, "central")
    assert promise.caveats == ("real-arithmetic", "timing")
    assert privacy.event(3).steps == 3
    assert privacy.to_dict()["noise_multiplier"] == privacy.noise_multiplier
    assert privacy.to_dict()["neighbors"] == "ADD_OR_REMOVE_ONE"


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0}, {"epsilon": math.inf}, {"delta": 0}, {"delta": 1}, {"unit": "label"},
        {"neighbors": REPLACE_ONE}, {"sampling_probability": 0}, {"sampling_probability": 1.1},
        {"steps": 0}, {"steps": 1.5}, {"expected_batch": 0}, {"clip": 0}, {"clip": math.inf},
        {"cap": 2}, {"unit": "person"}, {"unit": "person", "cap": 0},
    ],
)  # fmt: skip
def test_settings_that_promise_nothing_are_refused(wrong):
    settings = {"epsilon": 4.0, "delta": 1e-5, **TERMS, **wrong}
    with pytest.raises(UsageError):
        CentralPrivacy(settings.pop("epsilon"), settings.pop("delta"), **settings)


@pytest.mark.parametrize("name", ["unit", "neighbors", "expected_batch", "steps"])
def test_nothing_that_a_promise_needs_has_a_default(name):
    with pytest.raises(TypeError, match=name):
        CentralPrivacy(4.0, 1e-5, **{key: TERMS[key] for key in TERMS if key != name})
