"""Whole records in many files: clipped in tasks, tilted and noised once, whatever tasks do."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

import sordino
from sordino._random import words_of_secret
from sordino.engines.engine import InProcess
from sordino.errors import BudgetExceeded, DataError, PrivacyError, UsageError
from sordino.mechanisms.gaussian import SecondMoment, joint_mechanisms
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.preferences.chunk_survey import survey_chunks
from sordino.preferences.features import HashedText
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL
from sordino.rewards import record_release
from sordino.rewards.confidence import least_ridge
from sordino.rewards.record_release import fit_records

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

N, D, DELTA, BALL = 600, 3, 1e-6, 1.0
RELATIONS = (REPLACE_SPECIAL, ADD_OR_REMOVE_ONE, REPLACE_ONE)


class Twice(InProcess):
    """An engine whose every task is lost once, after it was done, and run again."""

    def fold(self, chunks, task, add, *, taken=None):
        def again(chunk):
            task(chunk)
            return task(chunk)

        return super().fold(chunks, again, add, taken=taken)


@pytest.fixture
def world():
    """Feature differences, a few of them far beyond any bound, and labels."""
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(N, D)) / 2
    rows[:4] *= [[1e3], [1e150], [1e-150], [1e300]]
    labels = (generator.random(N) < expit(2 * rows[:, 0])).astype(np.int8)
    return rows, labels


def write(folder, rows, labels, *, files=3, **columns):
    """Write records in Parquet files with several groups each."""
    folder.mkdir(exist_ok=True)
    for file, part in enumerate(np.array_split(np.arange(len(rows)), files)):
        lists = pa.FixedSizeListArray.from_arrays(pa.array(rows[part].ravel()), rows.shape[1])
        more = {name: [values[at] for at in part] for name, values in columns.items()}
        table = pa.table({"difference": lists, "label": labels[part], **more})
        parquet.write_table(table, folder / f"{file}.parquet", row_group_size=70)
    return sordino.find_chunks(folder)


def opened(path, neighbors, *, unit="record", epsilon=1.0):
    path.mkdir(exist_ok=True)
    budget = sordino.Guarantee(
        epsilon, delta=DELTA, unit=unit, neighbors=neighbors, trust="central"
    )
    return sordino.Ledger.open(path / "spend.db", data="test", budget=budget)


def mechanisms(neighbors):
    settings = {"delta": DELTA, "bound": 1.0, "neighbors": neighbors}
    ridge = least_ridge(joint_mechanisms(1.0, **settings)[1], d=D, ball=BALL)
    return joint_mechanisms(1.0, ridge=1.01 * ridge, **settings)


def fitted(chunks, path, neighbors=REPLACE_ONE, engine=None, **settings):
    noise, moment = mechanisms(neighbors)
    ledger = opened(path, neighbors)
    given = {"ball": BALL, "second_moment": moment, "simulate_seed": 0} | settings
    return released(chunks, noise, ledger, engine, **given), ledger


def released(chunks, noise, ledger, engine=None, **given):
    engine = engine or InProcess()
    with survey_chunks(chunks, engine) as survey:
        return fit_records(survey, noise, ledger=ledger, **given)


# --- the same as in memory --------------------------------------------------------------------


@pytest.mark.parametrize("files", [1, 4])
@pytest.mark.parametrize("neighbors", RELATIONS)
def test_weights_and_moment_are_those_of_the_release_in_memory(world, tmp_path, neighbors, files):
    noise, moment = mechanisms(neighbors)
    pairs = sordino.preferences.pairs.Pairs.from_features(*world)
    expected = fit_records(
        pairs,
        noise,
        ledger=opened(tmp_path / "m", neighbors),
        ball=BALL,
        second_moment=moment,
        simulate_seed=0,
    )
    found, _ = fitted(write(tmp_path / "in", *world, files=files), tmp_path / "p", neighbors)
    assert (found.moment.matrix == expected.moment.matrix).all()  # to the last bit
    # both are within atol/ridge of the minimizer, plus other draws of the output noise
    near = 10 * noise.output_standard_deviation + 2 * noise.atol / noise.ridge
    assert np.linalg.norm(found.weights - expected.weights) < near
    assert (found.pairs, found.guarantee) == (expected.pairs, expected.guarantee)
    assert (found.pairs is None) == (neighbors == ADD_OR_REMOVE_ONE)
    assert found.ellipsoid is not None


def test_texts_too(tmp_path):
    generator = np.random.default_rng(1)
    lines = [
        {
            "prompt": f"question {at}",
            "chosen": f"word{generator.integers(9)} good",
            "rejected": f"word{generator.integers(9)} bad",
        }
        for at in range(400)
    ]
    (tmp_path / "in").mkdir()
    for file in range(3):
        text = "".join(json.dumps(line) + "\n" for line in lines[file::3])
        (tmp_path / "in" / f"{file}.jsonl").write_text(text)
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    features = HashedText(dimension=8)
    noise = ObjectivePerturbation(1.0, delta=DELTA, bound=1.0, neighbors=REPLACE_ONE)
    given = {"mechanism": noise, "features": features, "ball": BALL, "simulate_seed": 0}
    ledgers = [opened(tmp_path / name, REPLACE_ONE) for name in "ab"]
    one = sordino.fit_reward(sordino.read_pairs(tmp_path / "all.jsonl"), ledger=ledgers[0], **given)
    many = sordino.fit_reward(sordino.find_chunks(tmp_path / "in"), ledger=ledgers[1], **given)
    assert np.linalg.norm(one.weights - many.weights) < 10 * noise.output_standard_deviation + 1e-7
    assert many.method == "objective-perturbation"
    assert many.guarantee == one.guarantee


def test_the_gradient_is_as_small_as_the_promise_needs(world, tmp_path, monkeypatch):
    """Computed again from all records with more digits, tilt and ball included."""
    kept = {}
    honest = ObjectivePerturbation.finish, ObjectivePerturbation.draw

    def finish(self, theta, size, *, entropy):
        kept["theta"] = theta
        return honest[0](self, theta, size, entropy=entropy)

    def draw(self, d, *, entropy):
        kept["tilt"] = honest[1](self, d, entropy=entropy)
        return kept["tilt"]

    monkeypatch.setattr(ObjectivePerturbation, "finish", finish)
    monkeypatch.setattr(ObjectivePerturbation, "draw", draw)
    noise = ObjectivePerturbation(1.0, delta=DELTA, bound=1.0, neighbors=REPLACE_ONE)
    chunks = write(tmp_path / "in", *world)
    ledger = opened(tmp_path / "l", REPLACE_ONE)
    released(chunks, noise, ledger, ball=50.0, simulate_seed=3)
    x, y = noise.clipped(world[0]).astype(np.longdouble), world[1]
    theta = kept["theta"].astype(np.longdouble)
    gradient = x.T @ (1 / (1 + np.exp(-(x @ theta))) - y) + noise.ridge * theta + kept["tilt"]
    assert 0 < np.linalg.norm(theta) < 50
    assert float(np.sqrt(gradient @ gradient)) < noise.atol


# --- bounds, coins and tasks ------------------------------------------------------------------


def test_every_task_clips_what_it_reads(world, tmp_path, monkeypatch):
    seen = []
    honest = record_release.tilted_loss

    def loss(records, tilt, entropy):
        for chunk in records.chunks:
            seen.extend(block for _, block, _ in records.read(chunk))
        return honest(records, tilt, entropy)

    monkeypatch.setattr(record_release, "tilted_loss", loss)
    fitted(write(tmp_path / "in", *world), tmp_path / "l")
    rows = np.concatenate(seen)
    assert rows.shape == (N, D)
    lengths = np.linalg.norm(rows, axis=1)
    assert lengths.max() <= 1.0
    assert np.isfinite(rows).all()
    assert lengths[3] > 0.999


def test_tasks_that_run_twice_change_nothing(world, tmp_path):
    rows, labels = world
    undecided = labels.astype(float)
    undecided[::3] = 0.5
    chunks = write(tmp_path / "in", rows, undecided)
    once, _ = fitted(chunks, tmp_path / "a")
    twice, ledger = fitted(chunks, tmp_path / "b", engine=Twice())
    assert once.weights.tolist() == twice.weights.tolist()
    assert (once.moment.matrix == twice.moment.matrix).all()
    assert len(ledger.spends) == 1


def test_coins_are_fair_differ_by_place_and_run_and_stay(world, tmp_path, monkeypatch):
    """False alarms: below 1e-6, five standard deviations."""
    rows, _ = world
    chunks = write(tmp_path / "in", rows, np.full(N, 0.5))
    drawn = []
    honest = sordino.rewards.record_release.minimize_tilted

    def minimize(loss, *given, **settings):
        passes = [
            [block[2] for chunk in loss.rows.chunks for block in loss.rows.read(chunk)]
            for _ in range(2)
        ]
        drawn.append(np.concatenate(passes[0]))
        assert np.concatenate(passes[1]).tolist() == drawn[-1].tolist()
        return honest(loss, *given, **settings)

    monkeypatch.setattr(sordino.rewards.record_release, "minimize_tilted", minimize)
    for name, seed in {"a": None, "b": None, "c": 0, "d": 0, "e": 1}.items():
        fitted(chunks, tmp_path / name, simulate_seed=seed)
    for coins in drawn:
        assert set(coins) == {0.0, 1.0}
        assert abs(coins.mean() - 0.5) < 5 * 0.5 / np.sqrt(N)
        blocks = coins.reshape(-1, 200)[:, :60]
        assert len({tuple(block) for block in blocks}) == len(blocks)
    assert drawn[2].tolist() == drawn[3].tolist()
    for one, other in ((0, 1), (2, 4), (0, 2)):
        agree = (drawn[one] == drawn[other]).mean()
        assert abs(agree - 0.5) < 5 * 0.5 / np.sqrt(N)


def test_words_depend_on_every_part_of_what_names_them():
    known = words_of_secret(b"a" * 32, "0 1", 1000)
    assert known.dtype == np.uint64
    assert words_of_secret(b"a" * 32, "0 1", 400).tolist() == known[:400].tolist()
    for secret, part in ((b"b" * 32, "0 1"), (b"a" * 32, "0 2"), (b"a" * 32, "1 1")):
        assert not np.isin(words_of_secret(secret, part, 1000), known).any()
    ones = np.unpackbits(known.view(np.uint8)).mean()
    assert abs(ones - 0.5) < 5 * 0.5 / np.sqrt(64_000)


def test_nobody_is_told_how_many_passes_a_fit_of_records_takes(world, tmp_path):
    """It depends on them."""
    told = []

    class Watched(InProcess):
        def fold(self, chunks, task, add, *, taken=None):
            told.append(taken)
            return super().fold(chunks, task, add, taken=taken)

    chunks = write(tmp_path / "in", *world)
    noise, moment = mechanisms(REPLACE_ONE)
    given = {"ball": BALL, "second_moment": moment}
    with survey_chunks(chunks, Watched(), taken=lambda *_: None) as survey:
        told.clear()
        fit_records(survey, noise, ledger=opened(tmp_path / "l", REPLACE_ONE), **given)
    assert len(told) >= 5
    assert set(told) == {None}


# --- the order of the steps -------------------------------------------------------------------


def test_one_entry_is_durable_before_any_noise(world, tmp_path, monkeypatch):
    steps = []

    def watch(owner, name):
        honest = getattr(owner, name)

        def call(self, *given, **settings):
            steps.append(name)
            return honest(self, *given, **settings)

        monkeypatch.setattr(owner, name, call)

    watch(ObjectivePerturbation, "draw")
    watch(SecondMoment, "release_total")
    watch(sordino.Ledger, "reserve")
    _, ledger = fitted(write(tmp_path / "in", *world), tmp_path / "l", simulate_seed=None)
    assert steps == ["reserve", "release_total", "draw"]
    assert [row.kind for row in ledger.rows] == ["open", "reserve", "commit"]


def test_over_budget_no_feature_is_made(world, tmp_path):
    chunks = write(tmp_path / "in", *world)
    noise, moment = mechanisms(REPLACE_ONE)
    ledger = opened(tmp_path / "l", REPLACE_ONE, epsilon=0.5)

    class Unused(InProcess):
        def fold(self, *_, **__):
            raise AssertionError

    with survey_chunks(chunks, InProcess()) as survey:
        unused = replace(survey, engine=Unused())
        with pytest.raises(BudgetExceeded):
            fit_records(unused, noise, ledger=ledger, ball=BALL, second_moment=moment)
    assert not ledger.spends


@pytest.mark.parametrize("unit", ["label", "person"])
def test_ledgers_of_other_units_are_refused(world, tmp_path, unit):
    chunks = write(tmp_path / "in", *world)
    noise = ObjectivePerturbation(1.0, delta=DELTA, bound=1.0, neighbors=REPLACE_ONE)
    with pytest.raises(PrivacyError, match="unit='record'"):
        released(chunks, noise, opened(tmp_path / "l", REPLACE_ONE, unit=unit), ball=BALL)


def test_features_that_fail_spend_nothing_and_name_no_record(tmp_path):
    class Broken:
        dimension, feature_bound, digest, declare_unread = 2, 1.0, "broken", True

        def differences(self, *_):
            return np.full((1, 2), np.nan)

    (tmp_path / "in").mkdir()
    line = {"prompt": "p", "chosen": "a", "rejected": "b"}
    (tmp_path / "in" / "a.jsonl").write_text(json.dumps(line) + "\n")
    noise = ObjectivePerturbation(1.0, delta=DELTA, bound=1.0, neighbors=REPLACE_ONE)
    ledger = opened(tmp_path / "l", REPLACE_ONE)
    with pytest.raises((DataError, UsageError)):
        released(sordino.find_chunks(tmp_path / "in"), noise, ledger, features=Broken(), ball=9e9)
    assert not ledger.spends


def test_repeats_are_records_of_their_own_and_overlap_is_refused(world, tmp_path):
    rows, labels = world
    rows, labels = np.repeat(rows[10:110], 2, axis=0), np.repeat(labels[10:110], 2)
    people = [f"p{at}" for at in range(len(rows) // 2) for _ in range(2)]
    found, _ = fitted(write(tmp_path / "in", rows, labels, files=2, person=people), tmp_path / "l")
    assert found.pairs == len(rows)
    assert "person-group" in found.guarantee.caveats
    apart = np.arange(len(rows)).reshape(-1, 2).T.ravel()  # a repeat in another file
    again = write(
        tmp_path / "apart", rows[apart], labels[apart], files=2, person=[people[i] for i in apart]
    )
    with pytest.raises(DataError, match="overlap"):
        fitted(again, tmp_path / "m")


def test_other_mechanisms_and_settings_are_refused(world, tmp_path):
    chunks = write(tmp_path / "in", *world)
    ledger = opened(tmp_path / "l", REPLACE_ONE)
    noise = ObjectivePerturbation(1.0, delta=DELTA, bound=1.0, neighbors=REPLACE_ONE)
    with pytest.raises(UsageError, match="ObjectivePerturbation"):
        released(chunks, 3, ledger, ball=1.0)
    given = {"mechanism": noise, "ledger": ledger, "ball": 1.0}
    with pytest.raises(UsageError, match="part of the promise"):
        sordino.fit_reward(chunks, **given, ridge=1.0)
    with pytest.raises(UsageError, match="held_out"):
        sordino.fit_reward(chunks, **given, held_out=True)
    with pytest.raises(UsageError, match="files of vectors"):
        sordino.fit_reward(chunks, **given, features=HashedText(dimension=4))
    assert not ledger.spends
