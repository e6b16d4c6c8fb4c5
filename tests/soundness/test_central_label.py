"""A reward from raw pairs depends on labels through one noised sum, which was paid for first.

Judgments are in memory, or in files: then partial sums are exact, and noise is drawn once.
"""

import dataclasses
import itertools
import json
import pickle
import random

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.soundness.test_release_order import durable_kinds

import sordino
from sordino import _random
from sordino._random import SystemEntropy
from sordino.engines.engine import InProcess, Rows, tree_sum
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms import label_sum
from sordino.mechanisms.label_sum import FINER, ChunkedLabels, LabelDesign, LabelGaussian
from sordino.preferences.chunk_survey import survey_chunks
from sordino.preferences.chunks import Chunk, find_chunks
from sordino.rewards import label_release
from sordino.rewards.evidence import Design
from sordino.rewards.label_release import Judged, release_labels, release_sum
from sordino.rewards.metrics import measure_statistic
from sordino.rewards.reward_fit import fit

N, D = 120, 4
MECHANISM = LabelGaussian(1.0, delta=1e-6)
OF_PERSONS = LabelGaussian(1.0, delta=1e-6, records_per_person=2)


def pairs_of(labels, *, persons=False):
    rows = np.random.default_rng(0).normal(size=(N, D))
    names = [f"p{index % 30}" for index in range(N)] if persons else None
    return sordino.Pairs.from_features(rows, labels, persons=names)


def labels_of(seed=1):
    return np.random.default_rng(seed).choice([0, 1, 0.5], size=N)


def account(folder, epsilon=3.0, unit="label"):
    folder.mkdir(exist_ok=True)
    budget = sordino.Guarantee(
        epsilon, delta=1e-6, unit=unit, neighbors=sordino.REPLACE_ONE, trust="central"
    )
    return sordino.Ledger.open(folder / "spend.db", data="test", budget=budget)


@pytest.fixture
def accounts(tmp_path):
    """Return a maker of ledgers, each in a folder of its own."""
    made = itertools.count()
    return lambda **terms: account(tmp_path / f"account{next(made)}", **terms)


def artifacts(folder, monkeypatch, labels, *, outcome, mechanism=MECHANISM, unit="label"):
    """Every byte of one run whose noised sum is ``outcome``; and the sum before the noise."""
    totals = []

    def noise(total, scale, entropy):
        totals.append(total.tolist())
        return np.asarray(outcome, dtype=np.int64)

    names = iter(range(10**6))
    pairs = pairs_of(labels, persons=unit == "person")
    with monkeypatch.context() as patch:
        patch.setattr(label_sum, "with_noise", noise)
        for module in ("sordino._random", "sordino.privacy.ledger_chain", "sordino._files"):
            patch.setattr(f"{module}.new_release_id", lambda: f"{next(names):016x}", raising=False)
        patch.setattr(_random, "now", lambda: "2026-01-01T00:00:00Z")
        patch.setattr(_random, "new_token", lambda: "0" * 43)
        ledger = account(folder, unit=unit)
        reward = sordino.fit_reward(pairs, mechanism=mechanism, ledger=ledger, ball=3.0)
        reward.save(folder / "reward.json")
        released = release_labels(pairs, mechanism, ledger=ledger)
        again = fit(released, ball=3.0, criterion="thinning")
        shown = {
            "reward": (folder / "reward.json").read_bytes(),
            "again": json.dumps(again.to_dict()),
            "metrics": json.dumps(measure_statistic(released.evidence, ball=3.0)),
            "certificate": json.dumps(sordino.certify(reward, ledger).to_dict()),
            "texts": repr((reward, again, released, released.evidence)),
            "rows": [tuple(vars(row).items()) for row in ledger.rows],
        }
    return shown, totals


@pytest.mark.parametrize("change", [0, 1, 0.5])
def test_one_label_shows_in_the_sum_alone(tmp_path, monkeypatch, change):
    one = labels_of()
    at = int(np.flatnonzero(one != change)[0])
    other = one.copy()
    other[at] = change
    outcome = np.arange(D) * 10**6
    seen, totals = artifacts(tmp_path / "one", monkeypatch, one, outcome=outcome)
    same, moved = artifacts(tmp_path / "other", monkeypatch, other, outcome=outcome)
    assert totals != moved  # the label is read, and was hidden by the noise alone
    assert seen == same


def test_all_labels_of_one_person_show_in_the_sum_alone(tmp_path, monkeypatch):
    one = labels_of()
    other = one.copy()
    other[7::30] = 1 - one[7::30] + (one[7::30] == 0.5) / 2  # a tie becomes a 1
    given = {"outcome": np.arange(D), "mechanism": OF_PERSONS, "unit": "person"}
    seen, totals = artifacts(tmp_path / "one", monkeypatch, one, **given)
    same, moved = artifacts(tmp_path / "other", monkeypatch, other, **given)
    assert totals != moved
    assert seen == same


def test_another_sum_shows_everywhere(tmp_path, monkeypatch):
    """The comparison above can fail: the sum reaches every artifact."""
    one = labels_of()
    seen, _ = artifacts(tmp_path / "one", monkeypatch, one, outcome=np.arange(D) * 10**6)
    other, _ = artifacts(tmp_path / "two", monkeypatch, one, outcome=np.arange(D) * 10**6 + 1)
    differing = {name for name in seen if seen[name] != other[name]}
    assert differing == {"reward", "again", "metrics", "certificate", "rows"}


class Watched(sordino.Pairs):
    """Pairs that note what the ledger says whenever labels are looked at."""

    def __getattribute__(self, name):
        if name == "labels":
            object.__getattribute__(self, "looks").append(
                durable_kinds(object.__getattribute__(self, "path"))
            )
        return object.__getattribute__(self, name)


def watched(pairs, path):
    found = object.__new__(Watched)
    found.__dict__.update(pairs.__dict__, looks=[], path=path)
    return found


@pytest.mark.parametrize("unit", ["label", "person"])
def test_labels_are_read_once_and_after_the_entry(tmp_path, monkeypatch, unit):
    ledger = account(tmp_path, unit=unit)
    drawn = []
    honest = label_sum.with_noise

    def noise(*given):
        drawn.append(durable_kinds(ledger.path))
        return honest(*given)

    monkeypatch.setattr(label_sum, "with_noise", noise)
    pairs = watched(pairs_of(labels_of(), persons=unit == "person"), ledger.path)
    mechanism = OF_PERSONS if unit == "person" else MECHANISM
    sordino.fit_reward(pairs, mechanism=mechanism, ledger=ledger, ball=3.0)
    assert pairs.__dict__["looks"] == drawn == [["open", "reserve"]]


@pytest.mark.parametrize("criterion", ["tic", "thinning"])
def test_nothing_after_the_release_spends_or_looks_at_labels(tmp_path, monkeypatch, criterion):
    ledger = account(tmp_path)
    pairs = pairs_of(labels_of())
    honest = LabelDesign.release

    def release(self, labels, **given):
        found = honest(self, labels, **given)
        object.__setattr__(pairs, "labels", None)
        labels.setflags(write=True)
        labels[:] = 77  # whoever kept a reference would be refused or misled
        return found

    monkeypatch.setattr(LabelDesign, "release", release)
    released = release_labels(pairs, MECHANISM, ledger=ledger)
    before = ledger.head
    monkeypatch.setattr(SystemEntropy, "words", lambda *_: pytest.fail("coins were drawn"))
    reward = fit(released, ball=3.0, criterion=criterion)
    measure_statistic(released.evidence, ball=3.0)
    sordino.certify(reward, ledger)
    assert ledger.head == before
    assert sordino.Ledger.open(ledger.path).head == before


def test_a_budget_that_another_process_used_up_is_seen(tmp_path, monkeypatch):
    """The first check is a courtesy; what counts is the one under the ledger's lock."""
    ledger = account(tmp_path, 1.2)
    honest = label_release.Judged.prepare

    def prepared(*given):
        elsewhere = sordino.Ledger.open(ledger.path)
        promise = MECHANISM.guarantee(unit="label", neighbors=sordino.REPLACE_ONE, trust="central")
        elsewhere.reserve(MECHANISM.event, promise=promise)
        return honest(*given)

    monkeypatch.setattr(label_release.Judged, "prepare", prepared)
    monkeypatch.setattr(label_sum, "with_noise", lambda *_: pytest.fail("noise was drawn"))
    with pytest.raises(sordino.BudgetExceeded):
        sordino.fit_reward(pairs_of(labels_of()), mechanism=MECHANISM, ledger=ledger)


def test_what_the_entry_says_is_what_the_noise_keeps(tmp_path):
    ledger = account(tmp_path)
    reward = sordino.fit_reward(pairs_of(labels_of()), mechanism=MECHANISM, ledger=ledger)
    [row] = ledger.spends
    assert (row.event, row.unit, row.neighbors) == ("gaussian", "label", "REPLACE_ONE")
    assert (row.trust, row.count) == ("central", 1)
    design = MECHANISM.prepare(pairs_of(labels_of()).given)
    steps = 2 * np.linalg.norm(design.halves.astype(float), axis=1)  # of one label, from 0 to 1
    mu = next(value for value in json.loads(row.parameters).values())
    assert steps.max() / design.scale <= mu
    assert steps.max() / design.scale == pytest.approx(mu, rel=1e-5)
    assert reward.guarantee.epsilon == pytest.approx(1.0, rel=1e-6)
    assert reward.guarantee.epsilon <= 1.0


def test_a_sum_is_released_under_its_own_promise_only(tmp_path):
    """Another mechanism than rows were checked for counts more of a person than is said."""
    ledger, pairs = account(tmp_path, unit="person"), pairs_of(labels_of(), persons=True)
    judged = Judged.of("fit", pairs, OF_PERSONS, ledger)
    source = SystemEntropy()
    vectors = judged.vectors(None)
    given = {"details": {}, "ledger": ledger, "entropy": source}
    with pytest.raises(sordino.UsageError, match="checked for records_per_person=2"):
        release_sum(judged, MECHANISM, vectors, **given)
    assert durable_kinds(ledger.path) == ["open"]


def test_what_is_released_cannot_draw_again_and_shows_no_answer(tmp_path):
    """Noise drawn twice on one entry averages out."""
    ledger, pairs = account(tmp_path), pairs_of(labels_of())
    source = SystemEntropy()
    judged = Judged.of("fit", pairs, MECHANISM, ledger)
    known, released = release_sum(
        judged, MECHANISM, judged.vectors(None), details={}, ledger=ledger, entropy=source
    )
    values = [*vars(released).values(), *vars(known).values()]
    assert not any(callable(value) for value in values)
    private = sordino.privatize(
        pairs_of(labels_of()), sordino.RandomizedResponse(1.0), ledger=account(tmp_path / "pure")
    )
    assert repr(Design.of(private, None)) == f"Design(n={N}, d={D})"


def test_rows_written_as_chosen_first_are_refused(tmp_path):
    """Their order gives every label away, whatever the noise."""
    ledger = account(tmp_path)
    pairs = pairs_of(labels_of())
    given = pairs.given.copy()
    given[3] *= -1
    with pytest.raises(sordino.PrivacyError, match="Row 3 is not in canonical order"):
        sordino.fit_reward(
            dataclasses.replace(pairs, given=given), mechanism=MECHANISM, ledger=ledger
        )
    assert durable_kinds(ledger.path) == ["open"]


@pytest.mark.parametrize("delta", [1e-6, 1e-5, 1e-7])
def test_a_reward_is_certified_whatever_the_budget_allows(tmp_path, delta):
    """The certificate composes the entries at the failure probability that the reward states."""
    ledger = account(tmp_path / "ledger")
    mechanism = LabelGaussian(1.0, delta=delta)
    reward = sordino.fit_reward(pairs_of(labels_of()), mechanism=mechanism, ledger=ledger)
    certificate = sordino.certify(reward, ledger)
    assert certificate.guarantee.delta == delta
    assert 0.99 < certificate.guarantee.epsilon <= 1.0
    assert certificate.ledger_total.delta == ledger.budget.delta


# --- in files -----------------------------------------------------------------------------------


class Hostile:
    """An engine whose machines run every task twice, anywhere, in any order."""

    def __init__(self, seed):
        self.random = random.Random(seed)  # noqa: S311 - no secret

    def fold(self, chunks, task, add, *, taken=None):
        order = [index for index in range(len(chunks)) for _ in range(2)]
        self.random.shuffle(order)
        parts = {index: sent(sent(task)(chunks[index])) for index in order}
        return tree_sum((parts[index] for index in range(len(chunks))), add)


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
    task = label_sum._Steps(whiten.T / 2, 1 / design.mechanism.grid, design.mechanism, 2)
    return rows.fold(task, label_sum._Sum.plus)


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
    design = ChunkedLabels.prepare(MECHANISM, chunked(x, y))
    base = total_of(chunked(x, y), design)
    farthest = 0.0
    for row, label in itertools.product(range(len(x)), (0, 1, 2)):
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
    released = design.total(chunked(x, other))
    assert moved <= released.scale * noise.mu
    assert moved >= 0.99 * released.scale * noise.mu


@pytest.mark.deep
def test_the_noise_is_as_large_as_its_sensitivity_needs():
    """Standard deviation Δ/μ, over 4,000 releases: off by 8 % with probability below 1e-6."""
    x, y = world(60, d=2)
    design = ChunkedLabels.prepare(MECHANISM, chunked(x, y))
    exact = total_of(chunked(x, y), design)
    step = design.ellipsoid.unwhiten * MECHANISM.grid
    values = [
        design.total(chunked(x, y, size=60)).release(entropy=_random.SimulatedEntropy(seed))
        for seed in range(2000)
    ]
    errors = np.linalg.solve(step, (np.array(values) - step @ exact.total).T)
    assert errors.std() * MECHANISM.mu / (exact.moved / FINER) == pytest.approx(1, abs=0.08)


def write(folder, x, y, *, people=None, files=3):
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(np.array_split(np.arange(len(x)), files)):
        column = pa.FixedSizeListArray.from_arrays(pa.array(x[part].ravel()), x.shape[1])
        columns = {"difference": column, "label": np.where(y[part] == 2, 0.5, y[part])}
        if people is not None:
            columns["person"] = [people[index] for index in part]
        parquet.write_table(pa.table(columns), folder / f"{number}.parquet", row_group_size=9)
    return find_chunks(folder)


def released_of_files(chunks, ledger, engine, noise=MECHANISM, **settings):
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
        found.append(released_of_files(chunks, ledger, engine, simulate_seed=5).evidence.statistic)
        assert len(ledger.spends) == 1
    assert [one.tobytes() for one in found] == [found[0].tobytes()] * 3
    assert len(drawn) == 3


def test_rows_that_change_on_the_way_are_refused():
    x, y = world()
    design = ChunkedLabels.prepare(MECHANISM, chunked(x, y))
    fewer = Blocks(x[:-1], y[:-1], 200)
    with pytest.raises(DataError, match="changed while it was read"):
        design.total(Rows(InProcess(), range(1), fewer, x.shape))
    with pytest.raises(DataError, match="changed while it was read"):
        design.total(chunked(x * 3, y))
    with pytest.raises(DataError, match="changed while it was read"):
        design.total(chunked(x * np.nan, y))


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
    design = ChunkedLabels.prepare(MECHANISM, chunked(x, y))
    one = design.total(chunked(x, y)).scale
    assert design.total(chunked(1.5 * x, y)).scale == pytest.approx(1.5 * one)


@pytest.mark.deep
def test_a_cap_holds_over_files(tmp_path, accounts):
    """One person in all files: what they say in rows beyond the cap does not move the sum."""
    x, y = world(20)
    people = ["ann"] * 10 + [f"p{index}" for index in range(10)]
    noise = LabelGaussian(1.0, delta=1e-6, records_per_person=2)
    order = np.random.default_rng(3).permutation(20)
    sums = []
    for flip in range(11):
        labels = y.copy()
        if flip < 10:
            labels[flip] = (labels[flip] + 1) % 3
        folder = tmp_path / str(flip)
        chunks = write(folder, x[order], labels[order], people=[people[at] for at in order])
        ledger = accounts(unit="person")
        found = released_of_files(chunks, ledger, InProcess(), noise, simulate_seed=1)
        sums.append(found.evidence.statistic.tobytes())
        assert len(found.evidence) == 12
    assert sum(one != sums[-1] for one in sums[:-1]) == 2


def test_a_promise_to_a_person_needs_a_cap_and_a_survey_for_it(tmp_path, accounts):
    x, y = world(20)
    chunks = write(tmp_path / "in", x, y, people=["ann"] * 20)
    ledger = accounts(unit="person")
    with pytest.raises(PrivacyError, match="records_per_person"):
        released_of_files(chunks, ledger, InProcess())
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
