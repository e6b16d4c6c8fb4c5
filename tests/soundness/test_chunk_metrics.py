"""Metrics on labels in many files: a neighbor moves one noised sum, by no more than is paid for."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import sordino
from sordino._random import SimulatedEntropy
from sordino.engines.engine import InProcess
from sordino.mechanisms import label_sum
from sordino.mechanisms.grid import GRID_SLACK
from sordino.preferences.chunk_survey import survey_chunks
from sordino.rewards.label_release import release_labels
from sordino.rewards.private_metrics import measure_labels
from sordino.rewards.release_checks import held_out_rows
from sordino.rewards.reward_fit import fit

N, D, DELTA = 240, 3, 1e-6
WEIGHTS = [1.0, -0.5, 0.2]


@pytest.fixture
def world():
    """Vectors and labels of all three kinds, and 24 persons."""
    generator = np.random.default_rng(3)
    rows, labels = generator.normal(size=(N, D)), generator.choice([0.0, 0.5, 1.0], size=N)
    return rows, labels, [f"p{at % 24}" for at in range(N)]


def held_out(rows):
    return held_out_rows(sordino.Pairs.from_features(rows, np.zeros(len(rows))))


def sums(folder, monkeypatch, rows, labels, persons, *, most=None):
    """Return (exact sum, noise) of the fit and of the metrics, as the noise is added to them."""
    (folder / "in").mkdir(parents=True)
    for file, part in enumerate(np.array_split(np.arange(N), 3)):
        lists = pa.FixedSizeListArray.from_arrays(pa.array(rows[part].ravel()), D)
        columns = {"difference": lists, "label": labels[part]}
        if most is not None:
            columns["person"] = [persons[at] for at in part]
        parquet.write_table(pa.table(columns), folder / f"in/{file}.parquet", row_group_size=50)
    noise = sordino.LabelGaussian(1.0, delta=DELTA, records_per_person=most)
    budget = sordino.Guarantee(
        9.0,
        delta=DELTA,
        unit="label" if most is None else "person",
        neighbors=sordino.REPLACE_ONE,
        trust="central",
    )
    ledger = sordino.Ledger.open(folder / "spend.db", data="test", budget=budget)
    seen, honest = [], label_sum.with_noise

    def watched(total, scale, entropy):
        assert len(ledger.spends) == len(seen) + 1  # paid before it is drawn
        assert isinstance(entropy, SimulatedEntropy)
        seen.append((total.copy(), scale))
        return honest(total, scale, entropy)

    engine = InProcess()
    with monkeypatch.context() as patched:
        patched.setattr(label_sum, "with_noise", watched)
        chunks = sordino.find_chunks(folder / "in")
        with survey_chunks(chunks, engine, most=most, hold_out=True) as survey:
            given = {"ledger": ledger, "simulate_seed": 0}
            reward = fit(release_labels(survey, noise, held_out=True, **given), ball=4.0)
            reward.weights[:] = WEIGHTS  # public, and no function of labels here
            given |= {"temperature": 0.5, "simulate_seed": 1}
            measure_labels(reward, survey, noise, **given)
    return seen, noise.mu


def moved(seen, others):
    """How far each sum moved, in standard deviations of its noise; the noise is the same."""
    for (_, one), (_, other) in zip(seen, others, strict=True):
        assert one == other
    return [
        float(np.linalg.norm(total - other)) / scale
        for (total, scale), (other, _) in zip(seen, others, strict=True)
    ]


def test_one_label_moves_one_sum_and_no_more_than_is_paid_for(world, tmp_path, monkeypatch):
    rows, labels, persons = world
    seen, mu = sums(tmp_path / "a", monkeypatch, rows, labels, persons)
    out, farthest = held_out(rows), 0.0
    margins = np.abs(rows @ WEIGHTS) * out
    for at in {0, 1, 2, int(np.argmax(margins)), int(np.argmax(out)), N - 1}:
        other = labels.copy()
        other[at] = 0.0 if labels[at] == 1.0 else 1.0
        others, _ = sums(tmp_path / f"b{at}", monkeypatch, rows, other, persons)
        fit, metrics = moved(seen, others)
        assert (fit, metrics)[1 - int(out[at])] == 0.0
        assert 0.0 < max(fit, metrics) <= mu
        farthest = max(farthest, metrics)
    assert farthest > mu / 4 / GRID_SLACK  # so the bound is not idle; half for one from undecided


def test_all_labels_of_a_person_move_each_sum_no_more_than_is_paid_for(
    world, tmp_path, monkeypatch
):
    rows, labels, persons = world
    seen, mu = sums(tmp_path / "a", monkeypatch, rows, labels, persons, most=2)
    for person in ("p0", "p7", "p23"):
        mine = np.array(persons) == person
        other = np.where(mine, 1.0 - labels, labels)
        others, _ = sums(tmp_path / person, monkeypatch, rows, other, persons, most=2)
        assert all(distance <= mu for distance in moved(seen, others))


@pytest.mark.parametrize("turned", ["held out", "fitted"])
def test_no_label_of_one_part_moves_the_sum_of_the_other(world, tmp_path, monkeypatch, turned):
    rows, labels, persons = world
    out = held_out(rows)
    which = out if turned == "held out" else ~out
    seen, _ = sums(tmp_path / "a", monkeypatch, rows, labels, persons)
    other = np.where(which, 1.0 - labels, labels)
    others, _ = sums(tmp_path / "b", monkeypatch, rows, other, persons)
    same = [np.array_equal(one, two) for (one, _), (two, _) in zip(seen, others, strict=True)]
    assert same == [turned == "held out", turned == "fitted"]
