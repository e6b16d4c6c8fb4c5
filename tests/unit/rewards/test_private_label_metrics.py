"""Metrics on held-out labels: without noise they are what a plain count gives."""

import math

import numpy as np
import pytest
from scipy.special import expit

import sordino
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms import label_sum
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.privacy.guarantee import REPLACE_ONE
from sordino.rewards import metrics
from sordino.rewards.label_release import countable_rows
from sordino.rewards.private_metric_releases import measure_labels
from sordino.rewards.private_metrics import held_out_rows

DELTA = 1e-6
NOISE = LabelGaussian(1.0, delta=DELTA)


def account(folder, unit="label"):
    budget = sordino.Guarantee(
        math.inf, delta=DELTA, unit=unit, neighbors=REPLACE_ONE, trust="central"
    )
    return sordino.Ledger.open(folder / "spend.db", data="test", budget=budget)


def world(n=400, *, ties=False):
    generator = np.random.default_rng(4)
    rows = generator.normal(size=(n, 3))
    rows[::5, 0] = 0.0 if ties else rows[::5, 0]
    labels = (generator.random(n) < expit(rows @ [1.0, -0.5, 0.2])).astype(float)
    labels[::7] = 0.5 if ties else labels[::7]
    return sordino.Pairs.from_features(rows, labels)


def measured(pairs, folder, *, mechanism=NOISE, weights=None, temperature=0.5, unit="label"):
    ledger = account(folder, unit)
    out = held_out_rows(pairs)
    reward = sordino.fit_reward(
        pairs, mechanism=mechanism, ledger=ledger, held_out=out, ball=4.0, simulate_seed=0
    )
    if weights is not None:
        reward.weights[:] = weights
    found = measure_labels(
        reward, pairs, mechanism, held_out=out, ledger=ledger, temperature=temperature,
        simulate_seed=1,
    )  # fmt: skip
    return found, reward, ledger


@pytest.fixture
def silent(monkeypatch):
    """No noise: what comes out is the sum itself, up to the grid."""
    monkeypatch.setattr(label_sum, "with_noise", lambda total, *_: total)


@pytest.mark.parametrize("temperature", [0.02, 0.5, 20.0])
def test_every_number_without_noise(tmp_path, silent, temperature):
    pairs = world()
    out = held_out_rows(pairs)
    found, reward, _ = measured(pairs, tmp_path, temperature=temperature)
    margins, labels = pairs.given[out] @ reward.weights, pairs.labels[out].astype(int)
    given = (margins, labels, 0.0)
    assert found.pairs == out.sum()
    assert found.accuracy.value == pytest.approx(metrics.accuracy(*given).value, abs=1e-5)
    assert found.win_rate.value == pytest.approx(
        metrics.win_rate(expit(margins / temperature), labels, 0.0).value, abs=1e-5
    )
    assert found.negative_log_likelihood.value == pytest.approx(
        metrics.negative_log_likelihood(*given).value, abs=1e-5
    )
    assert found.calibration_slope.value == pytest.approx(
        metrics.calibration_slope(*given).value, abs=1e-3
    )


def test_standard_errors_by_hand(tmp_path):
    """Sampling as a plain count has it, and the noise of the released sum beside it."""
    pairs = world()
    out = held_out_rows(pairs)
    found, reward, _ = measured(pairs, tmp_path)
    margins = pairs.given[out] @ reward.weights
    k = int(out.sum())
    columns = np.stack([np.sign(margins), 2 * expit(margins / 0.5) - 1, margins], axis=1)
    sizes = np.abs(columns).max(axis=0)
    noise = np.diag(NOISE.prepare(columns / sizes).covariance) * sizes**2
    share = min(found.accuracy.value, 1.0)
    expected = math.sqrt(share * (1 - share) / k + noise[0] / k**2)
    assert found.accuracy.standard_error == pytest.approx(expected, rel=1e-3)
    labels = pairs.labels[out].astype(int)
    for name, column, plain in (
        ("win_rate", 1, metrics.win_rate(expit(margins / 0.5), labels, 0.0)),
        ("negative_log_likelihood", 2, metrics.negative_log_likelihood(margins, labels, 0.0)),
    ):
        both = math.hypot(plain.standard_error, math.sqrt(noise[column]) / k)
        assert getattr(found, name).standard_error == pytest.approx(both, rel=0.15)
    slope = found.calibration_slope.value
    information = np.sum(expit(slope * margins) * expit(-slope * margins) * margins**2)
    expected = math.sqrt(information + noise[2]) / information
    assert found.calibration_slope.standard_error == pytest.approx(expected, rel=1e-3)
    assert found.win_rate.confidence == 0.95
    assert 0 <= found.win_rate.lower <= found.win_rate.upper <= 1


def test_undecided_labels_and_even_scores_count_half(tmp_path, silent):
    pairs = world(ties=True)
    found, _, _ = measured(pairs, tmp_path, weights=[1.0, 0.0, 0.0])
    out = held_out_rows(pairs)
    margins, labels = pairs.given[out, 0], pairs.labels[out] / 1.0
    labels[labels == 2] = 0.5
    assert (margins == 0).sum() > 5
    assert (labels == 0.5).sum() > 5
    picks = 0.5 + np.sign(margins) / 2
    right = np.mean(labels * picks + (1 - labels) * (1 - picks))
    assert found.accuracy.value == pytest.approx(right, abs=1e-5)
    likely = expit(margins / 0.5)
    won = np.mean(labels * likely + (1 - labels) * (1 - likely))
    assert found.win_rate.value == pytest.approx(won, abs=1e-5)
    loss = np.mean(np.logaddexp(0, margins) - labels * margins)
    assert found.negative_log_likelihood.value == pytest.approx(loss, abs=1e-5)


def test_rows_of_persons_count_as_the_public_rule_says(tmp_path, silent):
    rows = np.random.default_rng(0).normal(size=(150, 3))
    twice = sordino.Pairs.from_features(
        np.vstack([rows, rows]), np.tile([1, 0, 1], 100), persons=[f"p{i % 15}" for i in range(300)]
    )  # a repeat of the same person, since 150 is a multiple of 15
    out = held_out_rows(twice)
    (tmp_path / "0").mkdir()
    found, reward, _ = measured(twice, tmp_path / "0")
    assert found.pairs == out.sum() / 2 == np.sum(out[countable_rows(twice)])
    assert reward.pairs == (~out).sum() / 2
    assert found.guarantee.caveats == ("person-group", "simulated")
    (tmp_path / "1").mkdir()
    capped = LabelGaussian(1.0, delta=DELTA, records_per_person=1)
    found, reward, ledger = measured(twice, tmp_path / "1", mechanism=capped, unit="person")
    people = {twice.persons[index] for index in np.flatnonzero(out)}
    assert found.pairs == len(people)
    assert reward.pairs == 15
    assert found.guarantee.unit == "person"
    assert "labels-only" in found.attached(reward, ledger).guarantee.caveats
    assert ledger.spends[-1].payload.count('"cap":1') == 1


@pytest.mark.parametrize("temperature", [1e-300, 1e300])
def test_extreme_temperatures(tmp_path, temperature):
    found, _, _ = measured(world(), tmp_path, temperature=temperature)
    rate = found.win_rate
    if temperature > 1:
        assert (rate.value, rate.lower) == (0.5, pytest.approx(0.5, abs=0.12))
    else:
        assert rate.value == pytest.approx(found.accuracy.value, abs=1e-6)


def test_far_too_much_noise_is_told_as_such(tmp_path):
    """No slope fits, errors are large, and sentences stand for what nobody can know."""
    pairs = world()
    found, _, _ = measured(
        pairs, tmp_path, mechanism=LabelGaussian(0.01, delta=DELTA), weights=[1.0, 1.0, 1.0]
    )
    assert found.accuracy.standard_error > 1
    told = found.to_dict()
    for name in ("accuracy", "negative_log_likelihood"):
        assert told[name] is None
        assert "too few answers" in told[f"{name}_reason"]
        assert np.isfinite(told[f"{name}_standard_error"])


def test_texts_are_measured_with_the_features_of_the_reward(tmp_path):
    records = [
        {"prompt": f"Q{i}?", "chosen": f"good answer {i}", "rejected": f"bad reply {i}"}
        for i in range(200)
    ]
    pairs = sordino.read_pairs(records)
    ledger = account(tmp_path)
    out = held_out_rows(pairs)
    mechanism = LabelGaussian(20.0, delta=DELTA)
    reward = sordino.fit_reward(
        pairs, mechanism=mechanism, ledger=ledger, held_out=out,
        features=sordino.HashedText(dimension=32),
    )  # fmt: skip
    found = measure_labels(reward, pairs, mechanism, held_out=out, ledger=ledger, temperature=0.5)
    assert found.accuracy.value > 0.9
    with pytest.raises(UsageError, match="features"):
        measure_labels(
            reward, world(), mechanism, held_out=held_out_rows(world()), temperature=1.0,
            ledger=ledger,
        )  # fmt: skip


def test_refusals_spend_nothing(tmp_path):
    pairs = world()
    _, reward, ledger = measured(pairs, tmp_path)
    asked = {"held_out": held_out_rows(pairs), "ledger": ledger, "temperature": 1.0}
    before = len(ledger.spends)
    for change in ({"temperature": 0.0}, {"temperature": math.inf}, {"simulate_seed": -1}):
        with pytest.raises(UsageError, match=next(iter(change))):
            measure_labels(reward, pairs, NOISE, **asked | change)
    with pytest.raises(UsageError, match="measure_labels needs a LabelGaussian"):
        measure_labels(reward, pairs, None, **asked)
    with pytest.raises(PrivacyError, match="raw judgments"):
        measure_labels(reward, None, NOISE, **asked)
    with pytest.raises(DataError, match="no person ids"):
        measure_labels(
            reward, pairs, LabelGaussian(1.0, delta=DELTA, records_per_person=1), **asked
        )
    reward.weights[:] = 0.0
    with pytest.raises(DataError, match="prefers nothing"):
        measure_labels(reward, pairs, NOISE, **asked)
    few = pairs.part(np.flatnonzero(~asked["held_out"])[:9].tolist())
    with pytest.raises(DataError, match="too few"):
        measure_labels(reward, few, NOISE, **asked | {"held_out": held_out_rows(few)})
    assert len(ledger.spends) == before
