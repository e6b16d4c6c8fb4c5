"""``fit_reward`` on many files: one call, the promise of one release, and clear refusals."""

import json

import numpy as np
import pytest

import sordino
from sordino.engines.engine import InProcess
from sordino.errors import PrivacyError, UsageError

pytestmark = pytest.mark.usefixtures("few_parts")

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

N, D = 900, 4
NOISE = sordino.LabelGaussian(2.0, delta=1e-6)


class Counting(InProcess):
    """An engine of the user's own: one method is all there is to it."""

    def __init__(self):
        self.folds = 0

    def fold(self, chunks, task, add, *, taken=None):
        self.folds += 1
        return super().fold(chunks, task, add, taken=taken)


@pytest.fixture
def world():
    """Feature differences, labels and persons."""
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(N, D)) / np.sqrt(D)
    labels = (generator.random(N) < 1 / (1 + np.exp(-3 * rows[:, 0]))).astype(np.int8)
    return rows, labels, [f"p{at % 50}" for at in range(N)]


@pytest.fixture
def files(world, tmp_path):
    """The same in three Parquet files."""
    rows, labels, persons = world
    (tmp_path / "in").mkdir()
    for file, part in enumerate(np.array_split(np.arange(N), 3)):
        lists = pa.FixedSizeListArray.from_arrays(pa.array(rows[part].ravel()), D)
        columns = {"label": labels[part], "person": [persons[at] for at in part]}
        path = tmp_path / "in" / f"{file}.parquet"
        parquet.write_table(pa.table({"difference": lists, **columns}), path)
    return sordino.find_chunks(tmp_path / "in")


@pytest.fixture
def ledger(tmp_path):
    return opened(tmp_path / "a.db")


def opened(path, unit="label", epsilon=2.0):
    budget = sordino.Guarantee(
        epsilon, delta=1e-6, unit=unit, neighbors=sordino.REPLACE_ONE, trust="central"
    )
    return sordino.Ledger.open(path, data="a", budget=budget)


@pytest.mark.parametrize("most", [None, 3])
def test_many_files_give_what_memory_gives(world, files, tmp_path, most):
    rows, labels, persons = world
    unit = "label" if most is None else "person"
    # no random shape: what rounding moves in an iteration is not what is tested here
    noise = sordino.LabelGaussian(2.0, delta=1e-6, records_per_person=most, shaped=False)
    pairs = sordino.Pairs.from_features(rows, labels, persons=persons)
    told = {"mechanism": noise, "simulate_seed": 7, "ball": 10.0, "ridge": 2.0}
    in_memory = sordino.fit_reward(pairs, ledger=opened(tmp_path / "m.db", unit), **told)
    in_files = sordino.fit_reward(files, ledger=opened(tmp_path / "f.db", unit), **told)
    assert in_files.guarantee == in_memory.guarantee
    assert in_files.pairs == in_memory.pairs == (N if most is None else 150)
    if most is not None:
        return  # the same rows count, and what one person may move is bounded more simply
    np.testing.assert_allclose(in_files.weights, in_memory.weights, rtol=1e-6, atol=1e-9)


def test_any_object_with_the_one_method_is_an_engine(files, ledger, tmp_path):
    engine, scratch = Counting(), tmp_path / "scratch"
    scratch.mkdir()
    reward = sordino.fit_reward(
        files, mechanism=NOISE, ledger=ledger, engine=engine, scratch=scratch
    )
    assert engine.folds > 3
    assert len(ledger.spends) == 1
    assert list(scratch.iterdir()) == []  # nothing that was exchanged stays
    assert sordino.certify(reward, ledger).guarantee.epsilon <= 2


def test_a_reward_of_many_files_is_not_withheld(files):
    with pytest.raises(UsageError, match="many files, read few enough into memory"):
        sordino.WithheldReward(files, unit="label", neighbors=sordino.REPLACE_ONE, ridge=1.0)


def test_rows_are_held_out_by_the_public_rule_alone(files, tmp_path):
    whole, ledger = opened(tmp_path / "whole.db"), opened(tmp_path / "part.db")
    given = {"mechanism": NOISE, "simulate_seed": 0}
    reward = sordino.fit_reward(files, ledger=ledger, held_out=True, **given)
    everything = sordino.fit_reward(files, ledger=whole, held_out=False, **given)
    assert 0.7 * everything.pairs < reward.pairs < 0.9 * everything.pairs
    assert json.loads(ledger.spends[0].payload) != json.loads(whole.spends[0].payload)
    for mask in (np.zeros(N, dtype=bool), "all"):
        with pytest.raises(PrivacyError, match="public rule"):
            sordino.fit_reward(files, ledger=ledger, held_out=mask, **given)
    assert len(ledger.spends) == 1


def test_raw_files_are_not_fitted_without_noise_for_them(files, ledger):
    for given in ({}, {"ledger": ledger}):
        with pytest.raises(PrivacyError, match="would give them away"):
            sordino.fit_reward(files, **given)
    with pytest.raises(UsageError, match="a ledger is needed"):
        sordino.fit_reward(files, mechanism=NOISE)
    for mechanism in (sordino.RandomizedResponse(1.0), sordino.NonPrivate()):
        with pytest.raises(UsageError, match=f"{type(mechanism).__name__} is not there for"):
            sordino.fit_reward(files, mechanism=mechanism, ledger=ledger)
    assert len(ledger.spends) == 0


def test_an_engine_is_for_files_and_must_be_one(world, files, ledger):
    rows, labels, _ = world
    pairs = sordino.Pairs.from_features(rows, labels)
    for given in ({"engine": InProcess()}, {"scratch": "."}):
        with pytest.raises(UsageError, match=f"{next(iter(given))} is for judgments in files"):
            sordino.fit_reward(pairs, mechanism=NOISE, ledger=ledger, **given)
    with pytest.raises(UsageError, match="engine must be InProcess"):
        sordino.fit_reward(files, mechanism=NOISE, ledger=ledger, engine="ray")
    assert len(ledger.spends) == 0


@pytest.fixture
def answers(files, tmp_path):
    """The same judgments, randomized."""
    from sordino.privatization.chunks import privatize_chunks

    budget = sordino.Guarantee(
        1.0, delta=0.0, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    ledger = sordino.Ledger.open(tmp_path / "coins.db", data="a", budget=budget)
    coin = sordino.RandomizedResponse(1.0)
    privatize_chunks(files, tmp_path / "out", coin, ledger=ledger, engine=InProcess())
    return sordino.find_chunks(tmp_path / "out", privatized=True)


def test_answers_in_many_files_cost_nothing(answers, ledger):
    for method in ("auto", "debiased"):
        reward = sordino.fit_reward(answers, method=method, ball=10.0)
        assert (reward.method, reward.guarantee.epsilon, reward.pairs) == ("debiased", 1.0, N)
    for given in ({"mechanism": NOISE, "ledger": ledger}, {"ledger": ledger}, {"simulate_seed": 1}):
        with pytest.raises(UsageError, match="private already"):
            sordino.fit_reward(answers, **given)
    with pytest.raises(UsageError, match="method is not there"):
        sordino.fit_reward(answers, method="mixture")
    assert len(ledger.spends) == 0
