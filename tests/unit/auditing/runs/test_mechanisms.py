"""What a curator's result describes, of every size: what an honest run writes is never accused."""

from types import SimpleNamespace

import pytest

from sordino.auditing.runs.mechanisms import StatedMechanism, check_mechanism
from sordino.auditing.runs.numbers import StatedNumbers
from sordino.auditing.runs.perturbations import StatedGaussian, StatedTilt, cap_of, together
from sordino.mechanisms.label_gaussian import LabelGaussian
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.mechanisms.second_moment import joint_mechanisms
from sordino.privacy.chain import Row, canonical_json
from sordino.privacy.events import (
    GaussianEvent,
    NonPrivateEvent,
    PureEvent,
    RandomizedResponseEvent,
    event_to_row,
)
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL, Guarantee
from sordino.rewards.paid_record_metrics import record_metrics_mechanism

SIZES = [(0.01, 1e-9), (0.1, 1e-6), (1.0, 1e-6), (1.0, 1e-12), (4.0, 1e-3), (10.0, 1e-8)]
RELATIONS = [ADD_OR_REMOVE_ONE, REPLACE_SPECIAL, REPLACE_ONE]
ARTIFACT = "a" * 64


def rows(*events, drawn=0, cap=None):
    """One entry for each event; the reward was drawn on one of them."""
    made = []
    for index, event in enumerate(events):
        kind, parameters = event_to_row(event)
        details = {} if cap is None else {"details": {"cap": cap}}
        same = {"time": "", "release_id": f"r{index}"}
        given = {"event": kind, "parameters": canonical_json(parameters), "count": 1}
        paid = Row(
            sequence=2 * index, kind="reserve", payload=canonical_json(details), **given, **same
        )
        artifact = canonical_json({"artifact": ARTIFACT if index == drawn else "b" * 64})
        made += [paid, Row(sequence=2 * index + 1, kind="commit", payload=artifact, **same)]
    return made


def reward(method="label-gaussian", **fields):
    plain = {"pairs": None, "standard_errors": None, "moment": None, "ridge": 1.0}
    return SimpleNamespace(method=method, artifact=ARTIFACT, **(plain | fields))


def promise(unit="label", neighbors=REPLACE_ONE, caveats=()):
    return Guarantee(
        1.0, delta=1e-6, unit=unit, neighbors=neighbors, trust="central", caveats=caveats
    )


def gaussian(epsilon, delta, mu, **more):
    return {"name": "label-gaussian", "epsilon": epsilon, "delta": delta, "mu": mu} | more


def stated(mechanism, **more):
    return StatedMechanism.read({"way": "central", "mechanism": mechanism} | more)


def tilt(noise, moment=None):
    names = ("epsilon", "delta", "bound", "ridge", "standard_deviation", "second_moment_mu")
    told = {name: getattr(noise, name) for name in names}
    return told | {"name": "objective-perturbation", "second_moment": moment is not None}


@pytest.mark.parametrize(("epsilon", "delta"), SIZES)
def test_noise_on_labels_of_any_size_that_is_described_as_it_is(epsilon, delta):
    noise = LabelGaussian(epsilon, delta=delta)
    told = StatedGaussian.read(gaussian(epsilon, delta, noise.mu))
    assert not [*told.wrong(noise.event, REPLACE_ONE), *told.odd(noise.event, REPLACE_ONE)]


@pytest.mark.parametrize(("epsilon", "delta"), SIZES)
@pytest.mark.parametrize("relation", RELATIONS)
def test_metrics_of_any_size_that_are_described_as_they_are(epsilon, delta, relation):
    noise = record_metrics_mechanism(epsilon, delta=delta, neighbors=relation)
    told = StatedGaussian.read(gaussian(epsilon, delta, noise.event.mu))
    assert not [*told.wrong(noise.event, relation), *told.odd(noise.event, relation)]


@pytest.mark.parametrize(("epsilon", "delta"), SIZES)
@pytest.mark.parametrize("bound", [0.01, 2.0])
@pytest.mark.parametrize("relation", RELATIONS)
def test_a_tilt_of_any_size_that_is_described_as_it_is(epsilon, delta, bound, relation):
    noise = ObjectivePerturbation(epsilon, delta=delta, bound=bound, neighbors=relation)
    told, found = StatedTilt.read(tilt(noise)), reward(ridge=noise.ridge)
    assert not [*told.wrong(noise.event, relation, reward=found), *told.odd(noise.event)]


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_tilt_with_a_second_moment(relation):
    noise, moment = joint_mechanisms(1.0, delta=1e-6, bound=2.0, neighbors=relation)
    held = SimpleNamespace(mechanism=moment, bound=moment.bound)
    told, found = StatedTilt.read(tilt(noise, moment)), reward(ridge=noise.ridge, moment=held)
    assert not [*told.wrong(noise.event, relation, reward=found), *told.odd(noise.event)]
    other = reward(ridge=noise.ridge, moment=SimpleNamespace(mechanism=moment, bound=3.0))
    assert "Another bound" in " ".join(told.wrong(noise.event, relation, reward=other))


def test_a_ridge_that_no_noise_suffices_for():
    noise = ObjectivePerturbation(1.0, delta=1e-6, bound=2.0, neighbors=REPLACE_SPECIAL)
    told = StatedTilt.read(tilt(noise) | {"ridge": 1e-3})
    found = list(told.wrong(noise.event, REPLACE_SPECIAL, reward=reward(ridge=1e-3)))
    assert found == ["Less noise is described than what was paid for needs."]


def test_squares_of_several_releases_add_up():
    entries = [row for row in rows(GaussianEvent(0.3), GaussianEvent(0.4)) if row.kind == "reserve"]
    assert together(entries).mu == pytest.approx(0.5)
    assert together([]) == GaussianEvent(0.0)
    assert together([*entries, rows(PureEvent(1.0))[0]]) is None


def test_the_cap_of_an_entry():
    assert cap_of(rows(GaussianEvent(0.3), cap=4)[0]) == 4
    assert cap_of(rows(GaussianEvent(0.3))[0]) is None
    assert cap_of(Row(sequence=1, kind="reserve", time="")) is None


@pytest.mark.parametrize("drawn", [0, 1])
def test_which_entry_paid_for_the_reward_is_told_by_what_was_drawn_on_it(drawn):
    """And not by the order of entries."""
    events = [GaussianEvent(0.1), GaussianEvent(0.2)]
    mu = events[drawn].mu
    told = stated(gaussian(2.0, 1e-6, mu), metrics=gaussian(2.0, 1e-6, 0.3 - mu))
    found = check_mechanism(told, promise(), rows(*events, drawn=drawn), reward=reward())
    assert found.details["paid"] == {"mu": mu}
    assert found.outcome == "warning"  # both losses are larger than need be
    other = check_mechanism(told, promise(), rows(*events, drawn=1 - drawn), reward=reward())
    assert other.outcome == "refutes"


@pytest.mark.parametrize("event", [NonPrivateEvent(), PureEvent(1.0)])
def test_what_no_description_fits_is_not_compared(event):
    told = stated({"name": "other"})
    assert check_mechanism(told, promise(), rows(event), reward=reward()).outcome == "skipped"


def test_coins_that_say_to_have_bought_metrics():
    coin = {"name": "randomized-response", "flip_probability": 0.27, "epsilon_per_label": 1.0}
    told = StatedMechanism.read(
        {"way": "local", "mechanism": coin, "metrics": gaussian(1.0, 1e-6, 0.2)}
    )
    entries = rows(RandomizedResponseEvent(1.0))
    found = check_mechanism(told, promise(), entries, reward=reward("debiased"))
    assert found.outcome == "refutes"
    assert "nothing on the ledger paid" in found.summary


def test_metrics_that_another_kind_of_release_paid_for():
    told = stated(gaussian(2.0, 1e-6, 0.1), metrics=gaussian(1.0, 1e-6, 0.2))
    entries = rows(GaussianEvent(0.1), PureEvent(1.0))
    found = check_mechanism(told, promise(), entries, reward=reward())
    assert found.outcome == "refutes"
    assert "another mechanism than was paid" in found.summary


def test_only_numbers_that_say_something_count():
    told = StatedNumbers.read(
        {"policy": {"win_rate_interval": [None, None]}, "calibration": [], "reward": None}
    )
    assert not told.present
    told = StatedNumbers.read({"data": {"capped": 0}, "examples": {"source": "public"}})
    assert told.present == {("data", "capped")}
    assert not told.private_texts


@pytest.mark.parametrize("part", [[], "x", 3])
def test_numbers_of_a_malformed_result(part):
    with pytest.raises(TypeError):
        StatedNumbers.read({"reward": part})


def test_noise_on_labels_hides_no_record():
    """Whatever else agrees: the entry, the reward and the description."""
    found = check_mechanism(
        stated(gaussian(2.0, 1e-6, 0.1)),
        promise("record", REPLACE_SPECIAL),
        rows(GaussianEvent(0.1)),
        reward=reward(),
    )
    assert (found.outcome, "hides no record" in found.summary) == ("refutes", True)


def test_a_tilted_objective_promises_nothing_about_labels():
    noise = ObjectivePerturbation(1.0, delta=1e-6, bound=2.0, neighbors=REPLACE_ONE)
    found = check_mechanism(
        stated(tilt(noise)),
        promise(),
        rows(noise.event),
        reward=reward("objective-perturbation", ridge=noise.ridge),
    )
    assert (found.outcome, "about a label" in found.summary) == ("refutes", True)


def test_the_description_is_about_the_reward_in_the_file():
    told, entries = stated(gaussian(2.0, 1e-6, 0.1)), rows(GaussianEvent(0.1))
    assert check_mechanism(told, promise(), entries, reward=reward()).outcome == "warning"
    found = check_mechanism(told, promise(), entries, reward=reward("debiased"))
    assert (found.outcome, "Another mechanism" in found.summary) == ("refutes", True)
