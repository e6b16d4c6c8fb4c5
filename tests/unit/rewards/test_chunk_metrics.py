"""Metrics on held-out labels in many files: those of memory, on rows that no fit saw."""

import math
import pickle

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy.special import expit

import sordino
from sordino.engines.engine import InProcess
from sordino.errors import BudgetExceeded, DataError, PrivacyError, UsageError
from sordino.mechanisms import label_sum
from sordino.preferences.chunk_survey import survey_chunks
from sordino.rewards.chunk_evidence import counted_vectors
from sordino.rewards.chunk_fit import fit_released_chunks
from sordino.rewards.label_release import countable_rows, release_chunks
from sordino.rewards.private_metric_releases import (
    METRICS_PASSES,
    measure_label_chunks,
    measure_labels,
)
from sordino.rewards.private_metrics import held_out_rows

N, D, DELTA = 700, 4, 1e-6
# no random shape: what rounding moves in an iteration is not what is tested here
NOISE = sordino.LabelGaussian(2.0, delta=DELTA, shaped=False)


class Counting(InProcess):
    """An engine that counts, and sends everything as if to another machine."""

    def __init__(self):
        self.folds = 0

    def fold(self, chunks, task, add, *, taken=None):
        self.folds += 1
        task = pickle.loads(pickle.dumps(task))  # noqa: S301 - our own
        return super().fold(chunks, task, add, taken=taken)


def world(n=N, *, people=None, repeats=0, ties=False, size=1.0):
    """Feature differences, labels and persons; the last rows repeat the first."""
    generator = np.random.default_rng(4)
    rows = generator.normal(size=(n, D)) * size
    rows[::5, 0] = 0.0 if ties else rows[::5, 0]
    labels = (generator.random(n) < expit(rows @ [1.0, -0.5, 0.2, 0.0] / size)).astype(float)
    labels[::7] = 0.5 if ties else labels[::7]
    again = np.arange(n) - n + repeats
    again = np.where(again >= 0, again, np.arange(n))
    rows, labels = rows[again], labels[again]
    return rows, labels, None if people is None else [f"p{at % people}" for at in again]


def in_files(folder, rows, labels, persons=None, *, files=3):
    """The same in Parquet files of several blocks."""
    folder.mkdir()
    for file, part in enumerate(np.array_split(np.arange(len(rows)), files)):
        lists = pa.FixedSizeListArray.from_arrays(pa.array(rows[part].ravel()), rows.shape[1])
        columns = {"difference": lists, "label": labels[part]}
        if persons is not None:
            columns["person"] = [persons[at] for at in part]
        parquet.write_table(pa.table(columns), folder / f"{file}.parquet", row_group_size=60)
    return sordino.find_chunks(folder)


def account(path, *, unit="label", epsilon=math.inf):
    budget = sordino.Guarantee(
        epsilon, delta=DELTA, unit=unit, neighbors=sordino.REPLACE_ONE, trust="central"
    )
    return sordino.Ledger.open(path, data="test", budget=budget)


def run(chunks, ledger, *, noise=NOISE, weights=None, temperature=0.5, engine=None, **more):
    """Fit one part and measure on the other."""
    engine = engine or InProcess()
    with survey_chunks(chunks, engine, most=noise.records_per_person, hold_out=True) as survey:
        fitted, held_out = survey.divided()
        released = release_chunks(fitted, noise, ledger=ledger, engine=engine, simulate_seed=0)
        reward = fit_released_chunks(released, ridge=2.0, ball=4.0)
        if weights is not None:
            reward.weights[:] = weights
        given = {"ledger": ledger, "engine": engine, "temperature": temperature, "simulate_seed": 1}
        return measure_label_chunks(reward, held_out, noise, **given | more), reward, released


def both(tmp_path, *, noise=NOISE, unit="label", temperature=0.5, weights=None, **kind):
    """What files give, and what memory gives."""
    rows, labels, persons = world(**kind)
    chunks = in_files(tmp_path / "in", rows, labels, persons, files=3 if persons is None else 1)
    told = {"noise": noise, "temperature": temperature, "weights": weights}
    mine, reward, _ = run(chunks, account(tmp_path / "f.db", unit=unit), **told)
    pairs = sordino.Pairs.from_features(rows, labels, persons=persons)
    ledger, out = account(tmp_path / "m.db", unit=unit), held_out_rows(pairs)
    other = sordino.fit_reward(
        pairs, mechanism=noise, ledger=ledger, held_out=out, ball=4.0, ridge=2.0, simulate_seed=0
    )
    other.weights[:] = reward.weights  # of the same sum, solved for in another way
    theirs = measure_labels(
        other, pairs, noise, held_out=out, ledger=ledger, temperature=temperature, simulate_seed=1
    )
    return mine, theirs, reward, other


def same_numbers(mine, theirs, **close):
    """Every number is the same, and so is the promise."""
    assert mine.pairs == theirs.pairs
    assert (mine.event, mine.guarantee) == (theirs.event, theirs.guarantee)
    for name, value in theirs.to_dict().items():
        if value is None or isinstance(value, str):
            assert mine.to_dict()[name] == value, name
            continue
        assert mine.to_dict()[name] == pytest.approx(value, **close), name


# --- the numbers ---


@pytest.mark.parametrize("temperature", [1e-300, 0.02, 0.5, 1e300])
@pytest.mark.parametrize("ties", [False, True], ids=["plain", "ties"])
def test_the_numbers_are_those_of_memory(tmp_path, temperature, ties):
    mine, theirs, _, _ = both(tmp_path, temperature=temperature, ties=ties)
    same_numbers(mine, theirs, rel=1e-9)
    assert mine.guarantee.simulated


@pytest.mark.parametrize("size", [1e-3, 50.0])
def test_rewards_that_are_far_from_calibrated(tmp_path, size):
    weights = np.array([1.0, -0.5, 0.2, 0.0]) * (1.0 if size < 1 else -1.0)
    mine, theirs, _, _ = both(tmp_path, weights=weights, size=size)
    same_numbers(mine, theirs, rel=1e-9)
    assert (mine.calibration_slope.value < 0) == (size > 1)


def test_noise_that_leaves_no_slope(tmp_path):
    noise = sordino.LabelGaussian(0.01, delta=DELTA, shaped=False)
    mine, theirs, _, _ = both(tmp_path, noise=noise, weights=[1.0, 1.0, 1.0, 1.0])
    assert mine.calibration_slope is None
    same_numbers(mine, theirs, rel=1e-9)


def test_with_noise_that_has_a_shape(tmp_path):
    noise = sordino.LabelGaussian(2.0, delta=DELTA)
    mine, theirs, _, _ = both(tmp_path, noise=noise)
    same_numbers(mine, theirs, rel=1e-4)


def test_repeats_and_rows_of_persons_count_as_in_memory(tmp_path, monkeypatch):
    for module in (label_sum, label_sum):  # no noise: its size differs between the two
        monkeypatch.setattr(module, "with_noise", lambda total, *_: total)
    mine, theirs, reward, other = both(tmp_path, people=25, repeats=100)
    assert mine.guarantee.caveats == ("person-group", "simulated")
    assert mine.pairs + reward.pairs == 600
    same_numbers(mine, theirs, rel=1e-9)
    (tmp_path / "capped").mkdir()
    noise = sordino.LabelGaussian(2.0, delta=DELTA, records_per_person=2, shaped=False)
    capped = {"people": 25, "repeats": 100, "noise": noise, "unit": "person"}
    mine, theirs, reward, other = both(tmp_path / "capped", **capped)
    assert (mine.pairs, reward.pairs) == (theirs.pairs, other.pairs) == (theirs.pairs, 50)
    assert mine.guarantee.unit == "person"
    for name in ("accuracy", "negative_log_likelihood", "calibration_slope"):
        close = pytest.approx(getattr(theirs, name).value, rel=1e-3)  # the grid is another
        assert getattr(mine, name).value == close


def test_texts_are_measured_with_the_features_of_the_reward(tmp_path):
    (tmp_path / "in").mkdir()
    for file in range(2):
        lines = [
            f'{{"prompt": "Q{at}?", "chosen": "good answer {at}", "rejected": "bad reply {at}"}}\n'
            for at in range(file * 100, file * 100 + 100)
        ]
        (tmp_path / "in" / f"{file}.jsonl").write_text("".join(lines))
    ledger, engine = account(tmp_path / "spend.db"), InProcess()
    noise = sordino.LabelGaussian(20.0, delta=DELTA)
    chunks, features = sordino.find_chunks(tmp_path / "in"), sordino.HashedText(dimension=32)
    with survey_chunks(chunks, engine, hold_out=True) as survey:
        fitted, held_out = survey.divided()
        released = release_chunks(fitted, noise, ledger=ledger, engine=engine, features=features)
        reward = fit_released_chunks(released, ball=10.0)
        found = measure_label_chunks(
            reward, held_out, noise, ledger=ledger, engine=engine, temperature=0.5
        )
    assert found.accuracy.value > 0.9
    assert len(ledger.spends) == 2


def test_as_many_passes_as_a_plan_says(tmp_path):
    """And never an array of all margins here: what comes back from a pass is small."""
    chunks, engine = in_files(tmp_path / "in", *world(6 * N)), Counting()
    ledger, before = account(tmp_path / "spend.db"), []
    noise = sordino.LabelGaussian(2.0, delta=DELTA)

    def fold(chunks, task, add, *, taken=None):
        found = Counting.fold(engine, chunks, task, add, taken=taken)
        before.append(len(pickle.dumps(found)))
        return found

    with survey_chunks(chunks, engine, hold_out=True) as survey:
        fitted, held_out = survey.divided()
        released = release_chunks(fitted, noise, ledger=ledger, engine=engine)
        reward = fit_released_chunks(released, ball=4.0)
        engine.folds, engine.fold = 0, fold
        measure_label_chunks(reward, held_out, noise, ledger=ledger, engine=engine, temperature=1.0)
    assert METRICS_PASSES / 2 <= engine.folds <= METRICS_PASSES
    assert max(before) < 2000 < 8 * held_out.counted / 3


# --- which rows: the public rule, and each row in one part ---


@pytest.mark.parametrize("most", [None, 3])
def test_parts_hold_the_rows_of_the_public_rule(tmp_path, most):
    rows, labels, persons = world(people=25, repeats=150)
    chunks = in_files(tmp_path / "in", rows, labels, persons, files=1)
    pairs = sordino.Pairs.from_features(rows, labels, persons=persons)
    out, seen = held_out_rows(pairs), set()
    with survey_chunks(chunks, InProcess(), most=most, hold_out=True) as survey:
        parts = survey.divided()
        for part in parts:
            counts = countable_rows(pairs)
            counts = counts[out[counts] == (part.part == "held-out")]
            if most is not None:
                names = [persons[at] for at in counts]
                place = [names[:at].count(name) for at, name in enumerate(names)]
                counts = counts[np.array(place) < most]
            found = counted_vectors(part, Counting(), None)
            blocks = [block for chunk in chunks.chunks for block in found.read(chunk)]
            assert [first for first, _, _ in blocks] == np.cumsum(
                [0, *(len(block) for _, block, _ in blocks[:-1])]
            ).tolist()
            vectors = np.concatenate([block for _, block, _ in blocks])
            assert np.array_equal(vectors, pairs.differences(None)[np.sort(counts)])
            assert found.shape == vectors.shape
            assert part.counted == len(counts)
            keys = {row.tobytes() for row in vectors}
            assert not keys & seen
            seen |= keys
        assert survey.counted == sum(part.counted for part in parts)
        both_parts = counted_vectors(survey, InProcess(), None)
        total = sum(len(block) for chunk in chunks.chunks for _, block, _ in both_parts.read(chunk))
        assert total == survey.counted


def test_no_label_of_one_part_moves_the_other(tmp_path):
    """Labels of held-out rows leave the fit's sum bit by bit; those of others, the metrics'."""
    rows, labels, _ = world()
    out = held_out_rows(sordino.Pairs.from_features(rows, labels))
    weights = [1.0, -0.5, 0.2, 0.0]
    found = {}
    for name, turned in (("as is", out & False), ("held out", out), ("fitted", ~out)):
        folder = tmp_path / name
        folder.mkdir()
        chunks = in_files(folder / "in", rows, np.where(turned, 1 - labels, labels))
        paid, _, released = run(chunks, account(folder / "a.db"), weights=weights)
        found[name] = released.evidence.statistic.tobytes(), paid.to_dict()
    assert found["held out"][0] == found["as is"][0]
    assert found["held out"][1] != found["as is"][1]
    assert found["fitted"][1] == found["as is"][1]
    assert found["fitted"][0] != found["as is"][0]


# --- the ledger, and what is refused ---


def test_both_entries_and_what_both_promise(tmp_path):
    chunks, ledger = in_files(tmp_path / "in", *world()), account(tmp_path / "spend.db")
    paid, reward, _ = run(chunks, ledger)
    words = [spend.payload for spend in ledger.spends]
    assert ['"held_out":"unread"' in words[0], '"held_out":"measured"' in words[1]] == [True, True]
    reward.weights.flags.writeable = True
    both_promise = paid.attached(reward, ledger).guarantee
    assert reward.guarantee.epsilon < both_promise.epsilon < 2 * reward.guarantee.epsilon


def test_no_noise_is_drawn_for_what_cannot_be_paid(tmp_path, monkeypatch):
    chunks, ledger = in_files(tmp_path / "in", *world()), account(tmp_path / "a.db", epsilon=2.5)
    drawn, honest = [], label_sum.with_noise
    draw = lambda *given: drawn.append(1) or honest(*given)  # noqa: E731
    monkeypatch.setattr(label_sum, "with_noise", draw)
    with pytest.raises(BudgetExceeded):
        run(chunks, ledger)
    assert len(drawn) == len(ledger.spends) == 1


def test_refusals_spend_nothing(tmp_path):
    chunks, ledger = in_files(tmp_path / "in", *world()), account(tmp_path / "spend.db")
    _, reward, _ = run(chunks, ledger)
    before, engine = len(ledger.spends), InProcess()
    asked = {"ledger": ledger, "engine": engine, "temperature": 1.0}
    with survey_chunks(chunks, engine, hold_out=True) as survey:
        fitted, held_out = survey.divided()
        for part in (survey, fitted):
            with pytest.raises(UsageError, match="survey must be of the held-out rows"):
                measure_label_chunks(reward, part, NOISE, **asked)
        with pytest.raises(UsageError, match="Held-out rows are for metrics"):
            release_chunks(held_out, NOISE, ledger=ledger, engine=engine)
        for change in ({"temperature": 0.0}, {"simulate_seed": -1}):
            with pytest.raises(UsageError, match=next(iter(change))):
                measure_label_chunks(reward, held_out, NOISE, **asked | change)
        with pytest.raises(UsageError, match="measure_label_chunks needs a LabelGaussian"):
            measure_label_chunks(reward, held_out, None, **asked)
        capped = sordino.LabelGaussian(1.0, delta=DELTA, records_per_person=1)
        with pytest.raises(UsageError, match="records_per_person=1"):
            measure_label_chunks(reward, held_out, capped, **asked)
        other = {**asked, "ledger": account(tmp_path / "other.db")}
        with pytest.raises(PrivacyError, match="lacks an entry"):
            measure_label_chunks(reward, held_out, NOISE, **other)
        reward.weights[:] = 0.0
        with pytest.raises(DataError, match="prefers nothing"):
            measure_label_chunks(reward, held_out, NOISE, **asked)
    assert len(ledger.spends) == before


def test_a_reward_that_saw_the_held_out_rows_is_refused(tmp_path):
    chunks, ledger = in_files(tmp_path / "in", *world()), account(tmp_path / "spend.db")
    reward = sordino.fit_reward(chunks, mechanism=NOISE, ledger=ledger, ball=4.0)
    engine = InProcess()
    with survey_chunks(chunks, engine, hold_out=True) as survey:
        asked = {"ledger": ledger, "engine": engine, "temperature": 1.0}
        with pytest.raises(UsageError, match="also on those that would judge it"):
            measure_label_chunks(reward, survey.divided()[1], NOISE, **asked)
    assert len(ledger.spends) == 1


def test_too_few_questions_and_a_survey_for_something_else(tmp_path):
    rows, labels, _ = world()
    out = held_out_rows(sordino.Pairs.from_features(rows, labels))
    for name, some in (("none", np.flatnonzero(~out)[:9]), ("all", np.flatnonzero(out)[:9])):
        chunks = in_files(tmp_path / name, rows[some], labels[some])
        with (
            survey_chunks(chunks, InProcess(), hold_out=True) as survey,
            pytest.raises(DataError, match="9 pairs are too few different questions"),
        ):
            survey.divided()
    with (
        survey_chunks(chunks, InProcess()) as survey,
        pytest.raises(UsageError, match="hold_out=True"),
    ):
        survey.divided()
