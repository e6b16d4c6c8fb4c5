"""Workers are killed at random while labels are released: nothing of it is seen in the result."""

import contextlib
import random
import signal
import threading
import time
from dataclasses import replace
from functools import partial

import numpy as np
import psutil
import pyarrow as pa
import pytest
from pyarrow import parquet

import sordino
from sordino.engines.engine import InProcess
from sordino.errors import EngineError
from sordino.mechanisms.gaussian import joint_mechanisms
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.preferences.chunk_survey import survey_chunks
from sordino.preferences.chunks import find_chunks
from sordino.rewards.label_release import release_labels
from sordino.rewards.record_release import fit_records
from sordino.rewards.reward_fit import fit

FILES, ROWS, D = 240, 25, 3
KILLS = 50
BETWEEN = (1, 12)  # tasks that end from one to the next
BUSY = 0.8  # how often it is a worker at work that is killed
NOISE = LabelGaussian(1.0, delta=1e-6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Some hundred small files of vectors and labels."""
    made = tmp_path_factory.mktemp("chunks")
    generator = np.random.default_rng(11)
    for number in range(FILES):
        x = generator.normal(size=(ROWS, D))
        y = (generator.random(ROWS) < 1 / (1 + np.exp(-x @ [1.0, -1.0, 0.5]))).astype(np.int8)
        rows = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), D)
        parquet.write_table(
            pa.table({"difference": rows, "label": y}), made / f"{number:03d}.parquet"
        )
    return made


class Slowed:
    """An engine whose tasks take a little longer, so that more of them are met at work."""

    def __init__(self, engine):
        self.engine = engine
        self.ended = 0

    def fold(self, chunks, task, add, *, taken=None):
        return self.engine.fold(chunks, partial(slowly, task), add, taken=self.count)

    def count(self, *_):
        self.ended += 1


def slowly(task, chunk):
    time.sleep(0.004)
    return task(chunk)


class Killer(threading.Thread):
    """Kills a worker of Ray each time that some tasks ended: most often one that is at work.

    It counts tasks and not seconds, so that a busy machine gets as far as an idle one.
    """

    def __init__(self, engine, seed, kills):
        super().__init__(daemon=True)
        self.engine, self.kills_left, self.at_work = engine, kills, 0
        self.random = random.Random(seed)  # noqa: S311 - no secret
        self.over = threading.Event()

    def run(self):
        while self.kills_left:
            goal = self.engine.ended + self.random.randint(*BETWEEN)
            busy = self.random.random() < BUSY
            while self.engine.ended < goal or not (found := workers(busy=busy)):
                if self.over.wait(0.03):  # looking costs what starting a worker needs
                    return
            time.sleep(self.random.uniform(0, 0.03))
            with contextlib.suppress(psutil.Error):
                self.random.choice(found).send_signal(signal.SIGKILL)
                self.kills_left -= 1
                self.at_work += busy

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


def workers(*, busy):
    """The processes in which tasks run."""
    names = ("ray::MapBatches",) if busy else ("ray::MapBatches", "ray::IDLE")
    found = []
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error, IndexError):
            if one.cmdline()[0].startswith(names):
                found.append(one)
    return found


def outcome(folder, survey, engine, ledger):
    """What is released and fitted, as bytes."""
    found = release_labels(replace(survey, engine=engine), NOISE, ledger=ledger, simulate_seed=3)
    weights = fit(found, ball=10.0).weights
    evidence = found.evidence
    return (
        found.artifact,
        evidence.statistic.tobytes(),
        evidence.factor.tobytes(),
        weights.tobytes(),
    )


def account(folder, name):
    budget = sordino.Guarantee(
        3.0, delta=1e-6, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    return sordino.Ledger.open(folder / f"{name}.db", data="test", budget=budget)


@pytest.mark.deep
def test_killed_workers_change_nothing_and_nothing_is_spent_twice(ray_engine, folder, tmp_path):
    """The release and the fit, again and again, until enough workers were killed in them."""
    with survey_chunks(find_chunks(folder), InProcess()) as survey:
        expected = outcome(folder, survey, InProcess(), account(tmp_path, "here"))
        engine, runs, errors = Slowed(ray_engine), 0, 0
        with Killer(engine, seed=2, kills=KILLS) as killer:
            while killer.kills_left:
                ledger, complete = account(tmp_path, str(runs)), False
                with contextlib.suppress(EngineError):
                    assert outcome(folder, survey, engine, ledger) == expected
                    complete = True
                # One release is paid for once, if it was reached, before its noise is drawn.
                assert len(ledger.spends) == 1 or (not complete and not ledger.spends)
                runs, errors = runs + 1, errors + (not complete)
                assert errors <= 1 + runs // 4  # Ray is to try again, and seldom gives up
        print(f"{KILLS} kills, {killer.at_work} at work, {runs} runs, {errors} errors")
    assert killer.at_work >= KILLS // 2
    assert errors <= runs // 4


@pytest.mark.deep
def test_killed_workers_change_no_survey(ray_engine, folder):
    """Its first pass writes files from the tasks, which its second one reads."""
    chunks, engine = find_chunks(folder), Slowed(ray_engine)
    with survey_chunks(chunks, InProcess()) as survey:
        expected = survey.n, survey.counted, survey.public_digest, survey.starts
    with Killer(engine, seed=5, kills=KILLS // 5) as killer:
        while killer.kills_left:
            with survey_chunks(chunks, engine) as survey:
                found = survey.n, survey.counted, survey.public_digest, survey.starts
            assert found == expected


TERMS = {"delta": 1e-6, "bound": 1.0, "neighbors": sordino.REPLACE_ONE}
TILT, MOMENT = joint_mechanisms(2.0, ridge=4.0, **TERMS)


def records(survey, engine, ledger):
    """What is released of whole records."""
    found = fit_records(
        replace(survey, engine=engine),
        TILT,
        ledger=ledger,
        ball=1.0,
        second_moment=MOMENT,
        ellipsoid=False,
        simulate_seed=3,
    )
    return found.moment.matrix.tobytes(), found.weights.tobytes()


@pytest.mark.deep
def test_killed_workers_change_no_release_of_records(ray_engine, folder, tmp_path):
    """Some judgments are undecided: their coins are the same in a task that is run again."""
    undecided = tmp_path / "in"
    undecided.mkdir()
    for path in folder.iterdir():
        table = parquet.read_table(path)
        label = pa.array(np.where(np.arange(ROWS) % 5, table["label"].to_numpy(), 0.5))
        parquet.write_table(table.set_column(1, "label", label), undecided / path.name)

    def opened(name):
        budget = sordino.Guarantee(
            2.0, delta=1e-6, unit="record", neighbors=sordino.REPLACE_ONE, trust="central"
        )
        return sordino.Ledger.open(tmp_path / f"{name}.db", data="test", budget=budget)

    with survey_chunks(find_chunks(undecided), InProcess()) as survey:
        expected = records(survey, InProcess(), opened("here"))
        engine, runs, errors = Slowed(ray_engine), 0, 0
        with Killer(engine, seed=7, kills=KILLS // 5) as killer:
            while killer.kills_left or not runs:
                ledger, complete = opened(str(runs)), False
                with contextlib.suppress(EngineError):
                    assert records(survey, engine, ledger) == expected
                    complete = True
                assert len(ledger.spends) == 1 or (not complete and not ledger.spends)
                runs, errors = runs + 1, errors + (not complete)
                assert errors <= 1 + runs // 4
