"""Labels in many files behind one noised sum: exact partial sums, and noise once."""

import pickle
import random
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import sordino
from sordino import _random
from sordino.engines.engine import InProcess, Reduction, Rows
from sordino.errors import BudgetExceeded, DataError, PrivacyError, UsageError
from sordino.mechanisms import label_sum
from sordino.mechanisms.label_sum import FINER, ChunkedLabels, LabelGaussian
from sordino.preferences.chunk_survey import survey_chunks
from sordino.preferences.chunks import Chunk, find_chunks
from sordino.rewards.label_release import release_labels

NOISE = LabelGaussian(1.0, delta=1e-6)


@pytest.fixture
def accounts(tmp_path):
    """Return a maker of ledgers, each in a file of its own."""
    made = iter(range(1000))

    def make(*, epsilon=3.0, delta=1e-6, unit="label"):
        budget = sordino.Guarantee(
            epsilon, delta=delta, unit=unit, neighbors=sordino.REPLACE_ONE, trust="central"
        )
        return sordino.Ledger.open(tmp_path / f"{next(made)}.db", data="test", budget=budget)

    return make


class Hostile:
    """An engine whose machines run every task twice, anywhere, in any order."""

    def __init__(self, seed):
        self.random = random.Random(seed)  # noqa: S311 - no secret

    def fold(self, chunks, task, add, *, taken=None):
        total = Reduction(len(chunks), add)
        order = [index for index in range(len(chunks)) for _ in range(2)]
        self.random.shuffle(order)
        for index in order:
            part = sent(sent(task)(chunks[index]))
            total.take(index, part)
        return total.result()


def sent(thing):
    """What arrives on another machine."""
    return pickle.loads(pickle.dumps(thing))  # noqa: S301 - our own


class Blocks:
    """Vectors and labels in memory, read as if they were in files."""

    def __init__(self, x, y, size):
        self.x, self.y, self.size = x, y, size

    def __call__(self, chunk):
        part = slice(chunk * self.size, (chunk + 1) * self.size)
        for start in range(part.start, min(part.stop, len(self.x)), 5):
            some = slice(start, min(start + 5, part.stop))
            yield start, self.x[some], self.y[some]


def chunked(x, y, engine=None, size=17):
    chunks = range(-(-len(x) // size))
    return Rows(engine or InProcess(), chunks, Blocks(x, y, size), x.shape)


def world(n=101, d=4, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * np.geomspace(1, 1e-2, d)
    return x, rng.choice([0, 1, 2], size=n).astype(np.int8)


def total_of(rows, design):
    whiten = design.ellipsoid.whiten / design.mechanism.grid
    longest = design.mechanism.longest
    task = label_sum._Steps(whiten.T / 2, 1 / design.mechanism.grid, counted=longest)
    return rows.fold(task, label_sum._Sum.plus)


def statistic(design, rows, *, entropy):
    total = design.total(rows)
    return total.described(total.release(entropy=entropy))


@pytest.mark.parametrize("longest", [np.inf, 0.5])
@pytest.mark.parametrize("grid", [2.0**-24, 2.0**-20, 2.0**-12])
def test_partial_sums_are_the_integers_of_one_machine(grid, longest):
    """The sum and how far a label moves it are those of the release in memory, to the last bit."""
    noise = LabelGaussian(0.1, delta=1e-6, grid=grid, longest=longest)
    x, y = world()
    whole = noise.prepare(x)
    design = ChunkedLabels(noise, whole.ellipsoid)
    for size in (1, 17, 200):
        found = total_of(chunked(x, y, size=size), design)
        assert found.total.tolist() == whole._total(y).tolist()
        assert found.moved / FINER == whole.moved
        assert found.rows == len(x)


def test_no_label_moves_the_sum_farther_than_its_noise_is_made_for():
    """Every label of every row, exhaustively; the farthest attains it."""
    x, y = world()
    design = ChunkedLabels.prepare(NOISE, chunked(x, y))
    base = total_of(chunked(x, y), design)
    farthest = 0.0
    for row, label in product(range(len(x)), (0, 1, 2)):
        other = y.copy()
        other[row] = label
        moved = total_of(chunked(x, other), design)
        assert moved.moved == base.moved  # no label enters what the noise is made for
        farthest = max(farthest, float(np.linalg.norm(moved.total - base.total)))
    assert base.moved / FINER - 1 <= farthest <= base.moved / FINER


def test_all_labels_of_a_person_move_it_no_farther_than_claimed():
    x, y = world(40)
    noise = LabelGaussian(1.0, delta=1e-6, records_per_person=4)
    design = ChunkedLabels.prepare(noise, chunked(x, y))
    base = total_of(chunked(x, y * 0), design)
    order = np.argsort(-np.linalg.norm(x @ design.ellipsoid.whiten.T, axis=1))
    rows = order[:4]
    x[rows] = x[rows[0]]  # the same vector four times: it moves as far as anything can
    other = (y * 0).copy()
    other[rows] = 1
    moved = np.linalg.norm(total_of(chunked(x, other), design).total - base.total)
    released = statistic(design, chunked(x, other), entropy=_random.SimulatedEntropy(0))
    assert moved <= released.scale * noise.mu
    assert moved >= 0.99 * released.scale * noise.mu


@pytest.mark.deep
def test_the_noise_is_as_large_as_its_sensitivity_needs():
    """Standard deviation Δ/μ, over 4,000 releases: off by 8 % with probability below 1e-6."""
    x, y = world(60, d=2)
    design = ChunkedLabels.prepare(NOISE, chunked(x, y))
    exact = total_of(chunked(x, y), design)
    step = design.ellipsoid.unwhiten * NOISE.grid
    values = [
        statistic(design, chunked(x, y, size=60), entropy=_random.SimulatedEntropy(seed)).value
        for seed in range(2000)
    ]
    errors = np.linalg.solve(step, (np.array(values) - step @ exact.total).T)
    assert errors.std() * NOISE.mu / (exact.moved / FINER) == pytest.approx(1, abs=0.08)


def write(folder, x, y, *, people=None, files=3):
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(np.array_split(np.arange(len(x)), files)):
        column = pa.FixedSizeListArray.from_arrays(pa.array(x[part].ravel()), x.shape[1])
        columns = {"difference": column, "label": np.where(y[part] == 2, 0.5, y[part])}
        if people is not None:
            columns["person"] = [people[index] for index in part]
        parquet.write_table(pa.table(columns), folder / f"{number}.parquet", row_group_size=9)
    return find_chunks(folder)


def released(chunks, ledger, engine, noise=NOISE, **settings):
    most = noise.records_per_person
    with survey_chunks(chunks, engine, most=most) as survey:
        return release_labels(survey, noise, ledger=ledger, **settings)


def test_machines_that_run_tasks_twice_change_nothing(tmp_path, accounts, monkeypatch):
    """Same bytes from the same coins; one entry; the noise is drawn once."""
    chunks = write(tmp_path / "in", *world())
    drawn = []
    honest = label_sum.with_noise
    monkeypatch.setattr(label_sum, "with_noise", lambda *given: drawn.append(1) or honest(*given))
    found = []
    for engine in (InProcess(), Hostile(1), Hostile(2)):
        ledger = accounts()
        found.append(released(chunks, ledger, engine, simulate_seed=5).evidence.statistic)
        assert len(ledger.spends) == 1
    assert [one.tobytes() for one in found] == [found[0].tobytes()] * 3
    assert len(drawn) == 3


@pytest.mark.parametrize("drawn", [False, True])
def test_the_entry_is_written_before_any_noise_is_drawn(tmp_path, accounts, monkeypatch, drawn):
    """A crash then leaves the spend on the ledger; one while labels are added up does not."""
    chunks = write(tmp_path / "in", *world())
    ledger = accounts()

    def crash(*_):
        raise KeyboardInterrupt

    owner, name = (label_sum, "with_noise") if drawn else (label_sum._Steps, "__call__")
    monkeypatch.setattr(owner, name, crash)
    with pytest.raises(KeyboardInterrupt):
        released(chunks, ledger, InProcess())
    assert len(ledger.spends) == drawn


def test_what_the_ledger_does_not_allow_draws_nothing(tmp_path, accounts, monkeypatch):
    chunks = write(tmp_path / "in", *world())
    monkeypatch.setattr(label_sum, "with_noise", None)
    ledger = accounts(epsilon=0.5)
    with pytest.raises(BudgetExceeded):
        released(chunks, ledger, InProcess())
    assert not ledger.spends


def test_rows_that_change_on_the_way_are_refused():
    x, y = world()
    design = ChunkedLabels.prepare(NOISE, chunked(x, y))
    entropy = _random.SimulatedEntropy(0)
    fewer = Blocks(x[:-1], y[:-1], 200)
    with pytest.raises(DataError, match="changed while it was read"):
        statistic(design, Rows(InProcess(), range(1), fewer, x.shape), entropy=entropy)
    with pytest.raises(DataError, match="changed while it was read"):
        statistic(design, chunked(x * 3, y), entropy=entropy)
    with pytest.raises(DataError, match="changed while it was read"):
        statistic(design, chunked(x * np.nan, y), entropy=entropy)


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": 5.0, "delta": 1e-3, "grid": 2.0**-12},
        {"epsilon": 0.01, "delta": 1e-6, "grid": 2.0**-24, "records_per_person": 2**22},
    ],
    ids=["too coarse", "too fine"],
)
def test_a_grid_that_no_noise_fits_is_refused_before_anything_is_read(settings):
    with pytest.raises(UsageError, match="steps of the grid"):
        LabelGaussian(**settings)


def test_files_of_other_persons_are_refused_before_the_spend(tmp_path, accounts, monkeypatch):
    """Also one of the same size and time, which the system does not tell apart."""
    x, y = world()
    chunks = write(tmp_path / "in", x, y, people=[f"p{index}" for index in range(len(x))], files=1)
    noise = LabelGaussian(1.0, delta=1e-6, records_per_person=1)
    monkeypatch.setattr(Chunk, "refuse_change", lambda _: None)
    ledger = accounts(unit="person")
    with survey_chunks(chunks, InProcess(), most=1) as survey:
        write(tmp_path / "in", x, y, people=["p0"] * len(x), files=1)
        with pytest.raises(DataError, match="changed while it was read"):
            release_labels(survey, noise, ledger=ledger)
    assert not ledger.spends


def test_longer_rows_get_more_noise():
    """What the noise hides is measured where it is summed, not where it was planned."""
    x, y = world()
    design = ChunkedLabels.prepare(NOISE, chunked(x, y))
    entropy = _random.SimulatedEntropy(0)
    one = statistic(design, chunked(x, y), entropy=entropy).scale
    assert statistic(design, chunked(1.5 * x, y), entropy=entropy).scale == pytest.approx(1.5 * one)


def test_a_cap_holds_over_files(tmp_path, accounts):
    """One person in all files: what they say in rows beyond the cap does not move the sum."""
    x, y = world(60)
    people = ["ann"] * 30 + [f"p{index}" for index in range(30)]
    noise = LabelGaussian(1.0, delta=1e-6, records_per_person=2)
    order = np.random.default_rng(3).permutation(60)
    sums = []
    for flip in range(31):
        labels = y.copy()
        if flip < 30:
            labels[flip] = (labels[flip] + 1) % 3
        folder = tmp_path / str(flip)
        chunks = write(folder, x[order], labels[order], people=[people[at] for at in order])
        ledger = accounts(unit="person")
        found = released(chunks, ledger, InProcess(), noise, simulate_seed=1)
        sums.append(found.evidence.statistic.tobytes())
        assert len(found.evidence) == 32
    assert sum(one != sums[-1] for one in sums[:-1]) == 2


def test_a_promise_to_a_person_needs_a_cap_and_a_survey_for_it(tmp_path, accounts):
    x, y = world(20)
    chunks = write(tmp_path / "in", x, y, people=["ann"] * 20)
    ledger = accounts(unit="person")
    with pytest.raises(PrivacyError, match="records_per_person"):
        released(chunks, ledger, InProcess())
    noise = LabelGaussian(1.0, delta=1e-6, records_per_person=3)
    with (
        survey_chunks(chunks, InProcess(), most=4) as survey,
        pytest.raises(UsageError, match="surveyed for most=4"),
    ):
        release_labels(survey, noise, ledger=ledger)
    assert not ledger.spends


def test_a_cap_of_each_part_is_no_cap_of_both(tmp_path, accounts):
    """A survey with held-out rows counts as many of a person in each part: twice what is hidden."""
    x, y = world(60)
    chunks = write(tmp_path / "in", x, y, people=["ann"] * 40 + [f"p{at}" for at in range(20)])
    ledger, noise = accounts(unit="person"), LabelGaussian(1.0, delta=1e-6, records_per_person=3)
    with survey_chunks(chunks, InProcess(), most=3, hold_out=True) as survey:
        with pytest.raises(UsageError, match="more of one person than the mechanism hides"):
            release_labels(survey, noise, ledger=ledger)
        assert not ledger.spends
        assert release_labels(survey, noise, ledger=ledger, held_out=True).release_ids


def test_a_ledger_of_other_questions_is_refused(tmp_path, accounts):
    ledger = accounts(epsilon=9.0)
    released(write(tmp_path / "one", *world()), ledger, InProcess())
    with pytest.raises(sordino.LedgerMismatch):
        released(write(tmp_path / "two", *world(seed=1)), ledger, InProcess())
    assert len(ledger.spends) == 1
