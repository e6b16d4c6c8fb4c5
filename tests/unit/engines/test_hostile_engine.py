"""A whole release and fit on an engine that does all that an engine may do.

Every task runs twice or more, in random order, on what was sent; results are dropped, repeated
and arrive in random order. Nothing of it may be seen in what is released.
"""

import pickle
import random

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.tiers import few

import sordino
from sordino.engines.engine import InProcess, tree_sum
from sordino.engines.ray_data import _in_turn, _stretches, _summed
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.preferences.chunk_survey import survey_chunks
from sordino.preferences.chunks import find_chunks
from sordino.rewards.label_release import release_labels
from sordino.rewards.reward_fit import fit


class Hostile:
    """An engine that does to tasks and results all that may happen to them."""

    def __init__(self, seed):
        self.random = random.Random(seed)  # noqa: S311 - no secret
        self.runs = self.dropped = 0

    def fold(self, chunks, task, add, *, taken=None):
        stretches = _stretches(chunks, 9)
        rows = [
            row for part in enumerate(stretches) for row in self.lost_and_again(task, add, part)
        ]
        self.random.shuffle(rows)
        return tree_sum(_in_turn(rows, stretches, taken), add)

    def lost_and_again(self, task, add, part):
        """Results of a task: the first is lost now and then, the last is kept."""
        block = {"stretch": [pickle.dumps(part)]}
        found = [_summed(sent(task), sent(add), block)["found"][0] for _ in range(2)]
        self.runs += 2
        if self.random.random() < 0.5:
            self.dropped += 1
            found = found[1:]
        return found


def sent(thing):
    return pickle.loads(pickle.dumps(thing))  # noqa: S301 - our own


@pytest.fixture
def folder(tmp_path):
    """Twenty files of vectors and labels."""
    generator = np.random.default_rng(5)
    x = generator.normal(size=(600, 4))
    y = (generator.random(600) < 1 / (1 + np.exp(-x @ [1.0, -1.0, 0.5, 0.0]))).astype(np.int8)
    people = generator.integers(0, 90, size=600)
    for number, part in enumerate(np.array_split(np.arange(600), 20)):
        rows = pa.FixedSizeListArray.from_arrays(pa.array(x[part].ravel()), 4)
        table = pa.table(
            {"difference": rows, "label": y[part], "person": [f"p{k}" for k in people[part]]}
        )
        parquet.write_table(table, tmp_path / f"{number:02d}.parquet")
    return tmp_path


def released(folder, engine, name):
    """A release and a fit with one engine, and how many entries its ledger has."""
    budget = sordino.Guarantee(
        5.0, delta=1e-6, unit="person", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    with sordino.Ledger.open(folder / f"{name}.db", data="test", budget=budget) as ledger:
        noise = LabelGaussian(1.0, delta=1e-6, records_per_person=5)
        with survey_chunks(find_chunks(folder), engine, most=5) as survey:
            found = release_labels(survey, noise, ledger=ledger, simulate_seed=7)
            fitted = fit(found, ball=10.0)
        return found, fitted, len(ledger.spends)


@pytest.mark.deep
@pytest.mark.parametrize("seed", few(range(4), first=1))
def test_nothing_an_engine_does_to_its_tasks_is_seen_in_what_is_released(folder, seed):
    hostile = Hostile(seed)
    here, fitted_here, _ = released(folder, InProcess(), "here")
    there, fitted_there, spends = released(folder, hostile, "there")
    assert hostile.runs > 100
    assert hostile.dropped > 10
    assert spends == 1
    assert there.artifact == here.artifact
    assert there.evidence.statistic.tobytes() == here.evidence.statistic.tobytes()
    assert there.evidence.factor.tobytes() == here.evidence.factor.tobytes()
    assert fitted_there.weights.tobytes() == fitted_here.weights.tobytes()
