"""The coin that a result describes, of every size: what an honest run writes is never refuted."""

import math

import pytest

from sordino.auditing.runs.claims import StatedCoin, check_coin
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.privacy.events import GaussianEvent, NonPrivateEvent, event_to_row
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee
from sordino.privacy.ledger_chain import Row, canonical_json
from sordino.privatization.randomization import coin_for_person

SIZES = [1e-6, 0.01, 0.1, 1.0, math.log(3), 5.0, 20.0, 25.0, 30.0, 40.0, 43.0]


def stated(flips, loss, *, noise="labels", name="randomized-response"):
    return StatedCoin.read(
        {
            "noise": noise,
            "mechanism": {"name": name, "flip_probability": flips, "epsilon_per_label": loss},
        }
    )


def promise(epsilon, unit="label"):
    return Guarantee(epsilon, delta=0.0, unit=unit, neighbors=REPLACE_ONE, trust="central")


def entry(event, kind="reserve"):
    name, parameters = event_to_row(event)
    return Row(
        sequence=1, kind=kind, time="", event=name, parameters=canonical_json(parameters), count=1
    )


ARRIVED = Row(sequence=1, kind="receive", time="")


@pytest.mark.parametrize("epsilon", SIZES)
def test_a_coin_of_any_size_that_is_described_as_it_is(epsilon):
    coin = RandomizedResponse(epsilon)
    told = stated(coin.flip_probability, coin.realized_epsilon)
    for rows in ([entry(coin.event)], [entry(coin.event)] * 3, [ARRIVED]):
        found = check_coin(told, promise(coin.realized_epsilon), rows)
        assert found.outcome == "clear", found.summary


@pytest.mark.parametrize("epsilon", SIZES[1:])
@pytest.mark.parametrize("labels", [1, 3, 7])
def test_the_share_of_one_label_of_a_person(epsilon, labels):
    coin = coin_for_person(epsilon, labels=labels)
    total = promise(coin.realized_epsilon * labels, "person")
    told = stated(coin.flip_probability, total.epsilon / labels)
    for rows in ([entry(coin.event)], [ARRIVED]):
        assert check_coin(told, total, rows).outcome == "clear"


def test_spends_that_no_person_ids_link_may_add_up_for_one_label():
    coin = RandomizedResponse(1.0)
    rows = [entry(coin.event)] * 2
    assert check_coin(stated(coin.flip_probability, 2.0), promise(2.0), rows).outcome == "clear"


def test_a_promise_that_arrived_may_be_weaker_than_its_coin():
    coin = RandomizedResponse(0.9)
    found = check_coin(stated(coin.flip_probability, 1.0), promise(1.0), [ARRIVED])
    assert found.outcome == "clear"


@pytest.mark.parametrize("epsilon", SIZES[1:])
@pytest.mark.parametrize(
    ("flips", "loss", "word"),
    [(1.0, 0.99, "smaller loss"), (1.01, 1.0, "More labels"), (0.99, 1.0, "Fewer labels")],
)
def test_a_coin_of_any_size_that_is_described_as_stronger(epsilon, flips, loss, word):
    coin = RandomizedResponse(epsilon)
    if flips > 1 and coin.flip_probability * flips > 0.5:
        flips = 0.5 / coin.flip_probability
    told = stated(flips * coin.flip_probability, loss * coin.realized_epsilon)
    found = check_coin(told, promise(coin.realized_epsilon), [entry(coin.event)])
    assert found.outcome == "refutes"
    assert word in found.summary


@pytest.mark.parametrize("told", [(0.0, "inf"), (0.5, 0.0), (0.5, None)])
def test_the_ends_of_both_scales_can_be_read(told):
    coin = RandomizedResponse(1.0)
    found = check_coin(stated(*told), promise(1.0), [entry(coin.event)])
    assert found.outcome == ("warning" if told[0] == 0 else "refutes")


@pytest.mark.parametrize("event", [GaussianEvent(1.0), NonPrivateEvent()])
def test_what_is_no_coin_is_not_compared(event):
    found = check_coin(stated(0.25, 1.0, name="other"), promise(1.0), [entry(event)])
    assert found.outcome == "skipped"


def test_a_mechanism_that_flips_no_label_need_not_say_so():
    told = StatedCoin.read({"noise": "estimate", "mechanism": {"name": "other"}})
    assert (told.flips, told.loss) == (0.0, None)
    assert check_coin(told, promise(1.0), [entry(GaussianEvent(1.0))]).outcome == "skipped"
    coin = entry(RandomizedResponse(1.0).event)
    assert check_coin(told, promise(1.0), [coin]).outcome == "refutes"
