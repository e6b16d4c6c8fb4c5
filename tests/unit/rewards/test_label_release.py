"""One noised sum of labels: which rows are in it, and what is said before it is paid for."""

import json
import math

import numpy as np
import pytest

import sordino
from sordino import _random
from sordino.errors import UsageError
from sordino.mechanisms import label_sum
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.privacy.guarantee import LARGEST_DELTA, REPLACE_ONE
from sordino.rewards.label_release import label_promise, release_labels
from sordino.rewards.release_checks import held_out_rows, refuse_large_delta

DELTA = 1e-6
NOISE = LabelGaussian(1.0, delta=DELTA)


def account(folder, *, unit="label", epsilon=math.inf):
    folder.mkdir(exist_ok=True)
    budget = sordino.Guarantee(
        epsilon, delta=DELTA, unit=unit, neighbors=REPLACE_ONE, trust="central"
    )
    return sordino.Ledger.open(folder / "spend.db", data="test", budget=budget)


@pytest.fixture(name="pairs")
def _pairs(linear_world):
    return linear_world(200, 3)[0]


def test_held_out_rows_are_no_part_of_the_sum(pairs, tmp_path, monkeypatch):
    """The sum is that of the other rows alone, and its noise is made for them."""
    monkeypatch.setattr(label_sum, "with_noise", lambda total, *_: total)
    out = held_out_rows(pairs)
    ledger = account(tmp_path)
    released = release_labels(pairs, NOISE, ledger=ledger, held_out=True)
    labels = pairs.labels[~out].astype(float)
    np.testing.assert_allclose(released.evidence.statistic, labels @ pairs.given[~out], atol=1e-3)
    assert released.evidence.sample.tolist() == pairs.given[~out].tolist()
    alone = NOISE.prepare(pairs.given[~out])
    np.testing.assert_allclose(released.evidence.factor, alone.factor)
    assert json.loads(ledger.spends[-1].payload)["details"] == {"held_out": "unread"}
    plain = release_labels(pairs, NOISE, ledger=ledger)
    assert len(plain.evidence) == 200
    assert "details" not in json.loads(ledger.spends[-1].payload)


def test_the_ledger_stays_that_of_all_pairs(pairs, tmp_path):
    """Held-out rows or not, or the part alone: it is one data set."""
    ledger = account(tmp_path)
    out = held_out_rows(pairs)
    release_labels(pairs, NOISE, ledger=ledger, held_out=True)
    release_labels(pairs, NOISE, ledger=ledger)
    release_labels(pairs.part(np.flatnonzero(~out).tolist()), NOISE, ledger=ledger)
    assert len(ledger.spends) == 3
    assert len(ledger.data_sets) == 1


def test_the_cap_of_a_person_is_filled_from_the_rows_that_remain(linear_world, tmp_path):
    rows = linear_world(60, 3)[0]
    people = [f"p{index % 6}" for index in range(60)]
    pairs = sordino.Pairs.from_features(rows.given, rows.labels, persons=people)
    noise = LabelGaussian(1.0, delta=DELTA, records_per_person=4)
    ledger = account(tmp_path, unit="person")
    released = release_labels(pairs, noise, ledger=ledger, held_out=True)
    assert len(released.evidence) == 6 * 4
    details = json.loads(ledger.spends[-1].payload)["details"]
    assert details == {"cap": 4, "held_out": "unread"}


def test_other_ways_take_no_mask(pairs, tmp_path, ledger):
    answers = sordino.privatize(pairs, sordino.RandomizedResponse(1.0), ledger=ledger(1.0))
    with pytest.raises(sordino.UsageError, match="held_out goes with"):
        sordino.fit_reward(answers, held_out=True)
    with pytest.raises(sordino.UsageError, match="held_out goes with"):
        sordino.fit_reward(
            pairs, mechanism=sordino.NonPrivate(), ledger=account(tmp_path), held_out=True
        )


def test_the_promise_is_known_before_the_release(pairs, tmp_path):
    ledger = account(tmp_path)
    for seed in (None, 3):
        promise = label_promise(pairs, NOISE, ledger, _random.entropy(seed))
        found = release_labels(pairs, NOISE, ledger=ledger, simulate_seed=seed)
        assert found.guarantee == promise
        assert promise.simulated == (seed == 3)


# --- a delta that promises nothing ------------------------------------------------------------


@pytest.mark.parametrize("delta", [1 / 200, 0.5])
def test_a_delta_of_one_in_the_number_of_labels_is_refused_before_the_spend(pairs, tmp_path, delta):
    ledger = account(tmp_path)
    with pytest.raises(UsageError, match=r"below 1/n=1/200, got .*Nothing was spent"):
        sordino.fit_reward(pairs, mechanism=LabelGaussian(1.0, delta=delta), ledger=ledger)
    assert not ledger.spends
    release_labels(pairs, LabelGaussian(1.0, delta=0.004), ledger=ledger)


@pytest.mark.parametrize("delta", [1e-6, 9e-4, LARGEST_DELTA, 0.5])
def test_where_the_number_is_private_it_does_not_decide_which_delta_is_refused(delta):
    terms = {"delta": delta, "unit": "record", "trust": "central"}
    promise = sordino.Guarantee(1.0, neighbors=sordino.ADD_OR_REMOVE_ONE, **terms)
    for n in (None, 0, 1, 10**9):
        if delta < LARGEST_DELTA:
            refuse_large_delta(promise, n)
            continue
        with pytest.raises(UsageError, match=r"delta must be below 0\.001") as caught:
            refuse_large_delta(promise, n)
        assert "1/n" not in str(caught.value)
