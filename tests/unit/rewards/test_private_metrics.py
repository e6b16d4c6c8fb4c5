"""Which rows are held out, and what a reward states beside the metrics that were bought."""

import dataclasses
import math

import numpy as np
import pytest

import sordino
from sordino.errors import BudgetExceeded, DataError, PrivacyError, UsageError
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.privacy.events import UNDECIDED, GaussianEvent
from sordino.privacy.gaussian import gaussian_epsilon
from sordino.privacy.guarantee import REPLACE_ONE, REPLACE_SPECIAL
from sordino.rewards.metrics import Estimate
from sordino.rewards.private_metric_releases import (
    measure_labels,
    measure_records,
    record_metrics_mechanism,
)
from sordino.rewards.private_metrics import (
    SHARE,
    PrivateMetrics,
    checked_rows,
    held_out_rows,
    refuse_one_sided,
)

DELTA = 1e-6
NOISE = LabelGaussian(1.0, delta=DELTA)


def account(folder, *, unit="label", neighbors=REPLACE_ONE, epsilon=9.0, delta=DELTA):
    folder.mkdir(exist_ok=True)
    budget = sordino.Guarantee(
        epsilon, delta=delta, unit=unit, neighbors=neighbors, trust="central"
    )
    return sordino.Ledger.open(folder / "spend.db", data="test", budget=budget)


@pytest.fixture(name="bought")
def _bought(linear_world, tmp_path):
    """A reward, its metrics, and the ledger that paid for both."""
    pairs, _ = linear_world(300, 3)
    ledger = account(tmp_path / "label")
    out = held_out_rows(pairs)
    reward = sordino.fit_reward(pairs, mechanism=NOISE, ledger=ledger, held_out=out, ball=4.0)
    asked = {"held_out": out, "ledger": ledger, "temperature": 1.0}
    return reward, measure_labels(reward, pairs, NOISE, **asked), ledger, pairs


# --- the rule ---------------------------------------------------------------------------------


def test_a_fifth_of_the_questions_is_held_out(linear_world):
    pairs, _ = linear_world(20_000, 2)
    rows = held_out_rows(pairs)
    assert rows.dtype == np.bool_
    assert rows.mean() == pytest.approx(SHARE, abs=4 * math.sqrt(0.16 / 20_000))


def test_the_rule_reads_one_question_at_a_time():
    rows = np.random.default_rng(0).normal(size=(200, 2))
    pairs = sordino.Pairs.from_features(rows, np.zeros(200))
    held_out = held_out_rows(pairs)
    order = np.random.default_rng(1).permutation(200)
    turned = sordino.Pairs.from_features(-rows[order], np.ones(200), persons=map(str, order))
    assert held_out_rows(turned).tolist() == held_out[order].tolist()
    for index in range(20):
        assert held_out_rows(pairs.part([index])).tolist() == [held_out[index]]
    assert held_out_rows(pairs.part([])).shape == (0,)


def test_it_is_the_fold_that_randomized_answers_are_measured_on(linear_world, ledger):
    """So a page may compare both ways on the same questions."""
    from sordino.preferences.folds import MEASURING
    from sordino.rewards.evidence import Design

    pairs, _ = linear_world(200, 2)
    private = sordino.privatize(pairs, sordino.RandomizedResponse(1.0), ledger=ledger(1.0))
    folds = Design.of(private, None).folds(MEASURING)
    assert ((folds == 0) == held_out_rows(pairs)).all()


def test_only_that_mask_is_taken(linear_world):
    pairs, _ = linear_world(50, 2)
    rows = held_out_rows(pairs)
    assert checked_rows(pairs, rows.tolist()).tolist() == rows.tolist()
    for wrong in (~rows, rows[1:], rows.astype(int), None, np.flatnonzero(rows)):
        with pytest.raises(PrivacyError, match="held_out_rows") as caught:
            checked_rows(pairs, wrong)
        assert "50" not in str(caught.value)


def test_nothing_and_everything_are_refused():
    refuse_one_sided(np.array([True, False]))
    for rows in (np.zeros(3, bool), np.ones(2, bool), np.zeros(0, bool)):
        with pytest.raises(DataError, match="too few different questions"):
            refuse_one_sided(rows)


# --- what is told -----------------------------------------------------------------------------


def test_the_names_are_those_of_a_result(bought):
    found = bought[1]
    values = found.to_dict()
    assert [name for name in values if not name.endswith("_reason")] == [
        "accuracy", "accuracy_standard_error",
        "negative_log_likelihood", "negative_log_likelihood_standard_error",
        "calibration_slope", "calibration_slope_standard_error",
        "win_rate", "win_rate_interval",
    ]  # fmt: skip
    assert values["accuracy_standard_error"] == found.accuracy.standard_error
    precise = dataclasses.replace(
        found, win_rate=dataclasses.replace(found.win_rate, value=0.6, lower=0.5, upper=0.7)
    )
    assert precise.to_dict()["win_rate_interval"] == [0.5, 0.7]
    nothing = dataclasses.replace(
        found, accuracy=None, negative_log_likelihood=None, calibration_slope=None, win_rate=None
    )
    assert set(nothing.to_dict().values()) == {None}
    assert nothing.to_dict().keys() <= values.keys()
    other = dataclasses.replace(found, accuracy=Estimate(0.5, 0.25))
    assert other.to_dict()["accuracy_standard_error"] == 0.25
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.pairs = 3
    assert isinstance(found, PrivateMetrics)


# --- what a reward states then ----------------------------------------------------------------


def test_both_releases_compose(bought):
    reward, found, ledger, _ = bought
    attached = found.attached(reward, ledger)
    assert attached.release_ids == (*reward.release_ids, found.release_id)
    both = gaussian_epsilon(DELTA, math.sqrt(2) * NOISE.mu)
    assert attached.guarantee.epsilon == pytest.approx(both, rel=1e-6)
    assert attached.guarantee.delta == DELTA
    assert found.guarantee.epsilon == pytest.approx(1.0, rel=1e-6)
    assert found.event == GaussianEvent(NOISE.mu)
    assert sordino.certify(attached, ledger).guarantee == attached.guarantee
    assert attached.weights is reward.weights
    again = found.attached(attached, ledger)
    assert again.to_dict() == attached.to_dict()


def test_records_need_a_delta_for_each_release(linear_world, tmp_path):
    pairs, _ = linear_world(300, 3)
    out = held_out_rows(pairs)
    tilt = ObjectivePerturbation(1.0, delta=DELTA, bound=1.0, neighbors=REPLACE_SPECIAL)
    noise = record_metrics_mechanism(1.0, delta=DELTA, neighbors=REPLACE_SPECIAL)
    for delta, epsilon in ((DELTA, math.inf), (2 * DELTA, 5.0)):
        ledger = account(
            tmp_path / str(delta), unit="record", neighbors=REPLACE_SPECIAL, delta=delta,
            epsilon=epsilon,
        )  # fmt: skip
        reward = sordino.fit_reward(pairs, mechanism=tilt, ledger=ledger, held_out=out, ball=4.0)
        asked = {"held_out": out, "ledger": ledger, "temperature": 1.0}
        if delta == DELTA:  # refused before it is paid for, though the budget would allow it
            with pytest.raises(BudgetExceeded, match="larger delta"):
                measure_records(reward, pairs, noise, **asked)
            assert len(ledger.spends) == 1
    attached = measure_records(reward, pairs, noise, **asked).attached(reward, ledger)
    assert attached.guarantee.delta == 2 * DELTA
    assert 1.9 < attached.guarantee.epsilon <= 2.0
    assert attached.pairs == reward.pairs == 300
    assert sordino.certify(attached, ledger).guarantee == attached.guarantee


def test_caveats_and_seeds_of_both_are_said(linear_world, tmp_path):
    pairs, _ = linear_world(100, 3)
    out = held_out_rows(pairs)
    ledger = account(tmp_path)
    reward = sordino.fit_reward(pairs, mechanism=NOISE, ledger=ledger, held_out=out, ball=4.0)
    asked = {"held_out": out, "ledger": ledger, "temperature": 1.0, "simulate_seed": 1}
    found = measure_labels(reward, pairs, NOISE, **asked)
    assert found.guarantee.simulated
    attached = found.attached(reward, ledger)
    assert attached.guarantee.simulated
    assert attached.guarantee.caveats == ("simulated",)
    again = measure_labels(reward, pairs, NOISE, **asked)
    assert again.to_dict() == found.to_dict()


def test_metrics_are_attached_to_their_own_reward_and_ledger(bought, tmp_path):
    reward, found, ledger, pairs = bought
    with pytest.raises(UsageError, match="another reward"):
        found.attached(dataclasses.replace(reward, artifact="00"), ledger)
    other = account(tmp_path / "other")
    with pytest.raises(PrivacyError, match="lacks an entry"):
        found.attached(reward, other)
    asked = {"held_out": held_out_rows(pairs), "temperature": 1.0}
    with pytest.raises(PrivacyError, match="lacks an entry"):
        measure_labels(reward, pairs, NOISE, ledger=other, **asked)
    with pytest.raises(PrivacyError, match="lacks an entry"):
        measure_labels(
            dataclasses.replace(reward, release_ids=()), pairs, NOISE, ledger=ledger, **asked
        )
    assert not other.spends


def test_another_kind_of_reward_is_refused(bought):
    reward, _, ledger, pairs = bought
    asked = {"held_out": held_out_rows(pairs), "ledger": ledger, "temperature": 1.0}
    for wrong in (None, dataclasses.replace(reward, method="debiased")):
        with pytest.raises(UsageError, match="method='label-gaussian'"):
            measure_labels(wrong, pairs, NOISE, **asked)
    assert pairs.labels.max() < UNDECIDED
    assert len(ledger.spends) == 2
