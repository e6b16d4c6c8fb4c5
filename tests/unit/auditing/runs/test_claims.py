"""What a result describes, of every size: what an honest run writes is never accused."""

import copy
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tests.tiers import few

from sordino.auditing.runs.claims import (
    StatedMechanism,
    _check_coin,
    _Differences,
    _StatedGaussian,
    _StatedNumbers,
    _StatedObjective,
    check_mechanism,
    together,
)
from sordino.mechanisms.gaussian import joint_mechanisms
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.mechanisms.objective_perturbation import (
    ObjectivePerturbation,
    RankingObjectivePerturbation,
)
from sordino.mechanisms.randomized_response import KaryRandomizedResponse, RandomizedResponse
from sordino.mechanisms.ranking_sum import RankingGaussian
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    GaussianEvent,
    Guarantee,
    NonPrivateEvent,
    PureEvent,
    RandomizedResponseEvent,
    event_to_row,
)
from sordino.privacy.ledger_chain import Row, canonical_json
from sordino.privatization.randomization import coin_for_person
from sordino.rewards.model import RewardModel
from sordino.rewards.private_metrics import record_metrics_mechanism

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
    plain |= {
        "items": None,
        "worth_intervals": None,
        "features": None,
        "ellipsoid": None,
        "unoffered": (),
        "statistic": None,
    }
    return SimpleNamespace(method=method, artifact=ARTIFACT, **(plain | fields))


def promise(unit="label", neighbors=REPLACE_ONE, caveats=()):
    return Guarantee(
        1.0, delta=1e-6, unit=unit, neighbors=neighbors, trust="central", caveats=caveats
    )


def gaussian(epsilon, delta, mu, **more):
    return {"name": "label-gaussian", "epsilon": epsilon, "delta": delta, "mu": mu} | more


def stated(mechanism, **more):
    return StatedMechanism.read({"noise": "estimate", "mechanism": mechanism} | more)


def tilt(noise, moment=None):
    names = ("epsilon", "delta", "bound", "ridge", "standard_deviation", "second_moment_mu")
    told = {name: getattr(noise, name) for name in names}
    return told | {"name": "objective-perturbation", "second_moment": moment is not None}


@pytest.mark.parametrize(("epsilon", "delta"), few(SIZES, (1.0, 1e-6)))
def test_noise_on_labels_of_any_size_that_is_described_as_it_is(epsilon, delta):
    noise = LabelGaussian(epsilon, delta=delta)
    told = _StatedGaussian.read(gaussian(epsilon, delta, noise.mu))
    assert told.compared(noise.event, REPLACE_ONE) == _Differences()


@pytest.mark.parametrize(("epsilon", "delta"), few(SIZES, (1.0, 1e-6)))
@pytest.mark.parametrize("relation", RELATIONS)
def test_metrics_of_any_size_that_are_described_as_they_are(epsilon, delta, relation):
    noise = record_metrics_mechanism(epsilon, delta=delta, neighbors=relation)
    told = _StatedGaussian.read(gaussian(epsilon, delta, noise.event.mu))
    assert told.compared(noise.event, relation) == _Differences()


@pytest.mark.parametrize(("epsilon", "delta"), few(SIZES, (1.0, 1e-6)))
@pytest.mark.parametrize("bound", [0.01, 2.0])
@pytest.mark.parametrize("relation", RELATIONS)
def test_a_tilt_of_any_size_that_is_described_as_it_is(epsilon, delta, bound, relation):
    noise = ObjectivePerturbation(epsilon, delta=delta, bound=bound, neighbors=relation)
    told, found = _StatedObjective.read(tilt(noise)), reward(ridge=noise.ridge)
    assert told.compared(noise.event, relation, reward=found) == _Differences()


@pytest.mark.parametrize("relation", few(RELATIONS, first=1))
def test_a_tilt_with_a_second_moment(relation):
    noise, moment = joint_mechanisms(1.0, delta=1e-6, bound=2.0, neighbors=relation)
    held = SimpleNamespace(mechanism=moment)
    told, found = _StatedObjective.read(tilt(noise, moment)), reward(ridge=noise.ridge, moment=held)
    assert told.compared(noise.event, relation, reward=found) == _Differences()
    other = reward(ridge=noise.ridge, moment=SimpleNamespace(mechanism=replace(moment, bound=3.0)))
    assert "Another bound" in " ".join(told.compared(noise.event, relation, reward=other).wrong)


def test_a_ridge_that_no_noise_suffices_for():
    noise = ObjectivePerturbation(1.0, delta=1e-6, bound=2.0, neighbors=REPLACE_SPECIAL)
    told = _StatedObjective.read(tilt(noise) | {"ridge": 1e-3})
    found = told.compared(noise.event, REPLACE_SPECIAL, reward=reward(ridge=1e-3))
    assert found.wrong == ["Less noise is described than what was paid for needs."]


def test_squares_of_several_releases_add_up():
    entries = [row for row in rows(GaussianEvent(0.3), GaussianEvent(0.4)) if row.kind == "reserve"]
    assert together(entries).mu == pytest.approx(0.5)
    assert together([]) == GaussianEvent(0.0)
    assert together([*entries, rows(PureEvent(1.0))[0]]) is None


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
        {"noise": "labels", "mechanism": coin, "metrics": gaussian(1.0, 1e-6, 0.2)}
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
    told = _StatedNumbers.read(
        {"policy": {"win_rate_interval": [None, None]}, "calibration": [], "reward": None}
    )
    assert not told.present
    told = _StatedNumbers.read({"data": {"capped": 0}, "examples": {"source": "public"}})
    assert told.present == {"data.capped"}
    assert not told.private_texts


@pytest.mark.parametrize("part", [[], "x", 3])
def test_numbers_of_a_malformed_result(part):
    with pytest.raises(TypeError):
        _StatedNumbers.read({"reward": part})


WEIGHTS = np.array([0.5, -1.25, 0.75, 0.0])
NAMES = ("Ada", "Bo", "Cy", "Di")
BORDA = RankingGaussian(1.0, delta=1e-6, statistic="borda")
TEMPERATURE = 0.5


def ranked_tilt(neighbors, epsilon=1.0, delta=1e-6, **sizes):
    given = {"bound": 1.0, "candidates": len(NAMES), "dimension": len(NAMES)} | sizes
    return RankingObjectivePerturbation(epsilon, delta=delta, neighbors=neighbors, **given)


def tilt_of_rankings(noise):
    names = ("epsilon", "delta", "bound", "candidates", "dimension", "ridge", "standard_deviation")
    return {name: getattr(noise, name) for name in names} | {"name": "ranked-perturbation"}


def sum_of_rankings(noise):
    names = ("epsilon", "delta", "mu", "statistic", "shaped", "records_per_person")
    return {name: getattr(noise, name) for name in names} | {"name": "ranking-gaussian"}


def election(noise, paid, **fields):
    """A reward that was learned from rankings of items."""
    ranked = isinstance(noise, RankingObjectivePerturbation)
    private = paid.neighbors == ADD_OR_REMOVE_ONE
    plain = {
        "weights": WEIGHTS, "features": None, "guarantee": paid, "ball": 10.0,
        "gradient_norm": 1e-9, "atol": 1e-8, "artifact": ARTIFACT, "items": NAMES,
        "ridge": noise.ridge if ranked else 1.0, "pairs": None if private else 60,
        "method": "ranked-perturbation" if ranked else "ranking-gaussian",
        "standard_errors": None if ranked else np.full(4, 0.1),
        "worth_intervals": None if ranked else np.tile([-9.0, 9.0], (4, 1)),
    }  # fmt: skip
    return RewardModel(**(plain | fields))


def written(noise, model):
    """What an honest run of rankings says."""
    ranked, worths = isinstance(noise, RankingObjectivePerturbation), model.worths()
    chances = np.exp([worth / TEMPERATURE for _, worth, *_ in worths])
    return {
        "noise": "estimate",
        "mechanism": tilt_of_rankings(noise) if ranked else sum_of_rankings(noise),
        "metrics": None,
        "data": {
            "name": "votes", "pairs": None, "ballots": model.pairs, "items": 4,
            "dropped": None, "capped": None if ranked else 0,
        },
        "reward": {"accuracy": None, "weight_standard_error": None if ranked else 0.1},
        "policy": {
            "temperature": TEMPERATURE, "win_rate": None, "kl": None, "pessimism": None,
            "choices": [
                {"name": name, "probability": chance}
                for (name, *_), chance in zip(worths, chances / chances.sum(), strict=True)
            ],
        },
        "items": [
            {"name": name, "worth": worth, "interval": None if low is None else [low, high]}
            for name, worth, low, high in worths
        ],
        "utility": None, "decisive": None, "examples": None, "calibration": [], "seconds": None,
    }  # fmt: skip


def honest(relation):
    """Noise, promise, reward and result: of whole ballots, or of their orders for no relation."""
    if relation is None:
        noise, paid = BORDA, promise()
    else:
        noise, paid = ranked_tilt(relation), promise("record", relation)
    model = election(noise, paid)
    return noise, paid, model, copy.deepcopy(written(noise, model))


def judged(noise, paid, model, told, cap=None):
    return check_mechanism(
        StatedMechanism.read(told), paid, rows(noise.event, cap=cap), reward=model
    )


@pytest.mark.parametrize("relation", [None, *RELATIONS])
def test_rankings_that_are_described_as_they_are(relation):
    found = judged(*honest(relation))
    assert (found.outcome, "and so is every number" in found.summary) == ("clear", True)


@pytest.mark.parametrize(
    ("epsilon", "delta"), few([size for size in SIZES if size[1] > 1e-11], (1.0, 1e-6))
)
@pytest.mark.parametrize(("relation", "candidates"), [*zip(RELATIONS, (2, 3, 30), strict=True)])
def test_a_tilt_of_rankings_of_any_size_that_is_described_as_it_is(
    epsilon, delta, relation, candidates
):
    noise = ranked_tilt(relation, epsilon, delta, candidates=candidates, dimension=8, bound=0.3)
    told = _StatedObjective.read(tilt_of_rankings(noise))
    found = reward(ridge=noise.ridge, weights=np.zeros(8))
    assert told.compared(noise.event, relation, reward=found) == _Differences()


def test_rankings_of_persons_and_their_cap():
    noise = RankingGaussian(1.0, delta=1e-6, statistic="first-choice", records_per_person=3)
    paid = promise("person", caveats=("labels-only",))
    model = election(noise, paid)
    told = written(noise, model)
    assert judged(noise, paid, model, told, cap=3).outcome == "clear"
    assert judged(noise, paid, model, told, cap=4).outcome == "warning"


def lines_up(*, at, to):
    """Return a change of one place in a result."""

    def change(told):
        part = told
        for step in at[:-1]:
            part = part[step]
        part[at[-1]] = to(part[at[-1]]) if callable(to) else to

    return change


SUM_LIES = {
    "less loss": (("mechanism", "epsilon"), 0.5, "A smaller loss"),
    "more noise": (("mechanism", "mu"), 0.01, "More noise"),
    "labels": (("mechanism", "name"), "label-gaussian", "Another mechanism"),
    "accuracy": (("reward", "accuracy"), 0.7, "Nothing on the ledger paid for reward.accuracy"),
}
TILT_LIES = {
    "less loss": (("mechanism", "epsilon"), 0.5, "A smaller loss"),
    "less delta": (("mechanism", "delta"), 1e-9, "A smaller loss"),
    "more noise": (("mechanism", "standard_deviation"), lambda s: s * 1.01, "More noise"),
    "less noise": (("mechanism", "standard_deviation"), lambda s: s * 0.99, "Less noise"),
    "longer": (("mechanism", "bound"), 2.0, "Less noise"),
    "more candidates": (("mechanism", "candidates"), 6, "Less noise"),
    "fewer candidates": (("mechanism", "candidates"), 3, "Fewer candidates are described"),
    "other features": (("mechanism", "dimension"), 40, "Another number of features"),
    "other ridge": (("mechanism", "ridge"), lambda ridge: ridge * 2, "Another ridge"),
    "pairs": (("mechanism", "name"), "ranking-gaussian", ""),
    "ballots": (("data", "ballots"), 60, "and this tells: data.ballots"),
    "capped": (("data", "capped"), 0, "tells data.capped"),
    "errors": (("reward", "weight_standard_error"), 0.1, "reward.weight_standard_error"),
}
ITEM_LIES = {
    "name": (("items", 0, "name"), "Eve", "Other items"),
    "twice": (("items", 0, "name"), "Ada", "Other items"),
    "worth": (("items", 1, "worth"), lambda worth: worth + 1e-3, "Another worth"),
    "order": (("items",), lambda items: items[::-1], "Another order"),
    "swapped": (("items",), lambda items: [items[1], items[0], *items[2:]], "Another order"),
    "left out": (("items",), lambda items: items[1:], "Other items"),
    "interval": (("items", 0, "interval"), [0.7, 0.8], "Another interval"),
    "count": (("data", "items"), 5, "Another number of items"),
    "chance": (("policy", "choices", 0, "probability"), 0.9, "do not follow"),
    "chosen": (("policy", "choices"), lambda rows: rows[::-1], "do not follow"),
    "unnamed": (("policy", "choices", 0, "name"), "Eve", "do not follow"),
    "one": (("policy", "choices"), lambda rows: rows[:1], "do not follow"),
}


def refuted(relation, at, to, word):
    noise, paid, model, told = honest(relation)
    lines_up(at=at, to=to)(told)
    if at == ("mechanism", "name") and relation is not None:
        told["mechanism"] |= {"mu": 0.2, "records_per_person": None}
    found = judged(noise, paid, model, told)
    assert (found.outcome, word in found.summary) == ("refutes", True), found.summary


@pytest.mark.parametrize("lie", SUM_LIES)
def test_a_sum_of_rankings_that_is_described_otherwise(lie):
    refuted(None, *SUM_LIES[lie])


@pytest.mark.parametrize("lie", TILT_LIES)
def test_a_tilt_of_rankings_that_is_described_otherwise(lie):
    refuted(ADD_OR_REMOVE_ONE, *TILT_LIES[lie])


@pytest.mark.parametrize("lie", ITEM_LIES)
@pytest.mark.parametrize("relation", [None, REPLACE_SPECIAL])
def test_items_that_are_not_those_of_the_reward(lie, relation):
    refuted(relation, *ITEM_LIES[lie])


def test_rankings_are_neither_labels_nor_records():
    noise, _, model, told = honest(None)
    found = judged(noise, promise("record", REPLACE_SPECIAL), model, told)
    assert (found.outcome, "hides no record" in found.summary) == ("refutes", True)
    noise, _, model, told = honest(REPLACE_ONE)
    found = judged(noise, promise(), model, told)
    assert (found.outcome, "about a label" in found.summary) == ("refutes", True)


def test_errors_of_worths_tell_of_private_ballots():
    noise, paid, _, told = honest(REPLACE_SPECIAL)
    model = election(noise, paid, worth_intervals=np.tile([-9.0, 9.0], (4, 1)))
    told["items"] = written(noise, model)["items"]
    found = judged(noise, paid, model, told)
    assert (found.outcome, "reward.json.worth_intervals" in found.summary) == ("refutes", True)


def test_items_of_a_reward_without_any():
    noise, paid, _, told = honest(None)
    model = election(noise, paid, items=None, worth_intervals=None)
    assert judged(noise, paid, model, told).outcome == "refutes"
    told["items"] = told["data"]["items"] = told["policy"]["choices"] = None
    assert judged(noise, paid, model, told).outcome == "clear"
    found = judged(noise, paid, election(noise, paid), told)
    assert (found.outcome, "are not told" in found.summary) == ("warning", True)


def test_equal_items_may_change_places():
    noise, paid, _, _ = honest(None)
    model = election(noise, paid, weights=np.array([1.0, 1.0, -1.0, -1.0]))
    told = written(noise, model)
    first, second, *others = told["items"]
    told["items"] = [second, first, *others]
    assert judged(noise, paid, model, told).outcome == "clear"


@pytest.mark.parametrize(
    "items", ["x", [3], [{"name": 3, "worth": 1.0, "interval": None}], [{"name": "Ada"}]]
)
def test_items_of_a_malformed_result(items):
    with pytest.raises((KeyError, TypeError)):
        _StatedNumbers.read({"items": items})


def test_a_pessimistic_choice_follows_from_more_than_worths():
    noise, paid, model, told = honest(None)
    told["policy"]["choices"] = told["policy"]["choices"][::-1]
    assert judged(noise, paid, model, told).outcome == "refutes"
    told["policy"]["confidence"] = 0.9
    assert judged(noise, paid, model, told).outcome == "clear"


# Coins.

COIN_SIZES = [1e-6, 0.01, 0.1, 1.0, math.log(3), 5.0, 20.0, 25.0, 30.0, 40.0, 43.0]


def stated_coin(flips, loss, *, noise="labels", name="randomized-response"):
    return StatedMechanism.read(
        {
            "noise": noise,
            "mechanism": {"name": name, "flip_probability": flips, "epsilon_per_label": loss},
        }
    )


def kept(epsilon, unit="label"):
    return Guarantee(epsilon, delta=0.0, unit=unit, neighbors=REPLACE_ONE, trust="central")


def entry(event):
    return rows(event)[0]


ARRIVED = Row(sequence=1, kind="receive", time="")


@pytest.mark.parametrize("epsilon", COIN_SIZES)
def test_a_coin_of_any_size_that_is_described_as_it_is(epsilon):
    coin = RandomizedResponse(epsilon)
    told = stated_coin(coin.flip_probability, coin.realized_epsilon)
    for paid in ([entry(coin.event)], [entry(coin.event)] * 3, [ARRIVED]):
        found = _check_coin(told, kept(coin.realized_epsilon), paid)
        assert found.outcome == "clear", found.summary


@pytest.mark.parametrize("epsilon", COIN_SIZES[1:])
@pytest.mark.parametrize("labels", [1, 3, 7])
def test_the_share_of_one_label_of_a_person(epsilon, labels):
    coin = coin_for_person(epsilon, labels=labels)
    total = kept(coin.realized_epsilon * labels, "person")
    told = stated_coin(coin.flip_probability, total.epsilon / labels)
    for paid in ([entry(coin.event)], [ARRIVED]):
        assert _check_coin(told, total, paid).outcome == "clear"


def test_spends_that_no_person_ids_link_may_add_up_for_one_label():
    coin = RandomizedResponse(1.0)
    twice = [entry(coin.event)] * 2
    assert _check_coin(stated_coin(coin.flip_probability, 2.0), kept(2.0), twice).outcome == "clear"


def test_a_promise_that_arrived_may_be_weaker_than_its_coin():
    coin = RandomizedResponse(0.9)
    found = _check_coin(stated_coin(coin.flip_probability, 1.0), kept(1.0), [ARRIVED])
    assert found.outcome == "clear"


@pytest.mark.parametrize("epsilon", COIN_SIZES[1:])
@pytest.mark.parametrize(
    ("flips", "loss", "word"),
    [(1.0, 0.99, "smaller loss"), (1.01, 1.0, "More labels"), (0.99, 1.0, "Fewer labels")],
)
def test_a_coin_of_any_size_that_is_described_as_stronger(epsilon, flips, loss, word):
    coin = RandomizedResponse(epsilon)
    if flips > 1 and coin.flip_probability * flips > 0.5:
        flips = 0.5 / coin.flip_probability
    told = stated_coin(flips * coin.flip_probability, loss * coin.realized_epsilon)
    found = _check_coin(told, kept(coin.realized_epsilon), [entry(coin.event)])
    assert found.outcome == "refutes"
    assert word in found.summary


@pytest.mark.parametrize("told", [(0.0, "inf"), (0.5, 0.0), (0.5, None)])
def test_the_ends_of_both_scales_can_be_read(told):
    coin = RandomizedResponse(1.0)
    found = _check_coin(stated_coin(*told), kept(1.0), [entry(coin.event)])
    assert found.outcome == ("warning" if told[0] == 0 else "refutes")


@pytest.mark.parametrize("event", [GaussianEvent(1.0), NonPrivateEvent()])
def test_what_is_no_coin_is_not_compared(event):
    found = _check_coin(stated_coin(0.25, 1.0, name="other"), kept(1.0), [entry(event)])
    assert found.outcome == "skipped"


def test_a_mechanism_that_flips_no_label_need_not_say_so():
    told = StatedMechanism.read({"noise": "estimate", "mechanism": {"name": "other"}})
    assert (told.flips, told.loss) == (0.0, None)
    assert _check_coin(told, kept(1.0), [entry(GaussianEvent(1.0))]).outcome == "skipped"
    coin = entry(RandomizedResponse(1.0).event)
    assert _check_coin(told, kept(1.0), [coin]).outcome == "refutes"


@pytest.mark.parametrize("categories", [2, 3, 7, 40])
@pytest.mark.parametrize(
    ("labels", "share", "outcome"), [(1, 1, "clear"), (3, 1, "clear"), (1, 0.9, "refutes")]
)
def test_a_die_turns_as_many_as_its_loss_needs(categories, labels, share, outcome):
    """Of K choices it turns (K − 1)e^-ε/(1 + (K − 1)e^-ε), which for K above 3 is above a half."""
    die = coin_for_person(
        1.5, labels=labels, make=lambda loss: KaryRandomizedResponse(loss, categories)
    )
    total = kept(die.realized_epsilon * labels, "person" if labels > 1 else "label")
    told = stated_coin(
        share * die.flip_probability, total.epsilon / labels, name="randomized-choice"
    )
    for paid in ([entry(die.event)], [entry(die.event)] * 2):
        assert _check_coin(told, total, paid).outcome == outcome
    coin = stated_coin(die.flip_probability * 0.5, total.epsilon / labels)
    assert _check_coin(coin, total, [entry(die.event)]).outcome == "refutes"
