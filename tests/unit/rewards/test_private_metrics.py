"""Bought metrics: which rows, what they say in memory and in files, what a reward states then."""

import contextlib
import dataclasses
import math
import pickle

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy.special import expit
from tests.tiers import few

import sordino
from sordino.engines.engine import InProcess
from sordino.errors import BudgetExceeded, DataError, PrivacyError, UsageError
from sordino.mechanisms import label_sum
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.preferences.chunk_survey import survey_chunks
from sordino.preferences.comparisons import MEASURING, refuse_one_side
from sordino.privacy.conversions import gaussian_epsilon
from sordino.privacy.guarantee import REPLACE_ONE, REPLACE_SPECIAL, GaussianEvent
from sordino.privacy.ledger_chain import event_of
from sordino.rewards.evidence import Design, counted_vectors
from sordino.rewards.label_release import countable_rows, release_labels
from sordino.rewards.metrics import Estimate, HeldOut, measure_predictions
from sordino.rewards.private_metrics import (
    METRICS_PASSES,
    SHARE,
    measure_labels,
    measure_records,
    record_metrics_mechanism,
)
from sordino.rewards.release_checks import held_out_rows
from sordino.rewards.reward_fit import fit

pytestmark = pytest.mark.usefixtures("few_parts")
N, D, DELTA = 700, 4, 1e-6
TRUE = np.array([1.0, -0.5, 0.2, 0.0])
# no random shape: what rounding moves in an iteration is not what is compared here
NOISE = LabelGaussian(2.0, delta=DELTA, shaped=False)
PLACES = pytest.mark.parametrize("place", ["memory", "files"])


def account(folder, *, unit="label", neighbors=REPLACE_ONE, epsilon=math.inf, delta=DELTA):
    folder.mkdir(exist_ok=True, parents=True)
    budget = sordino.Guarantee(
        epsilon, delta=delta, unit=unit, neighbors=neighbors, trust="central"
    )
    return sordino.Ledger.open(folder / "spend.db", data="test", budget=budget)


def world(n=N, *, people=None, repeats=0, ties=False, size=1.0):
    """Feature differences, labels and persons; the last rows repeat the first."""
    generator = np.random.default_rng(4)
    rows = generator.normal(size=(n, D)) * size
    rows[::5, 0] = 0.0 if ties else rows[::5, 0]
    labels = (generator.random(n) < expit(rows @ TRUE / size)).astype(float)
    labels[::7] = 0.5 if ties else labels[::7]
    again = np.arange(n) - n + repeats
    again = np.where(again >= 0, again, np.arange(n))
    return rows[again], labels[again], people and [f"p{at % people}" for at in again]


def in_files(folder, rows, labels, persons=None):
    """Write Parquet files of several blocks; answers of persons are in one."""
    folder.mkdir(parents=True)
    files = 3 if persons is None else 1
    for file, part in enumerate(np.array_split(np.arange(len(rows)), files)):
        lists = pa.FixedSizeListArray.from_arrays(pa.array(rows[part].ravel()), rows.shape[1])
        columns = {"difference": lists, "label": labels[part]}
        if persons is not None:
            columns["person"] = [persons[at] for at in part]
        parquet.write_table(pa.table(columns), folder / f"{file}.parquet", row_group_size=60)
    return sordino.find_chunks(folder)


@contextlib.contextmanager
def judged(place, folder, rows, labels, persons=None, *, most=None, engine=None):
    """Judgments as a release reads them: pairs, or a survey of files."""
    if place == "memory":
        yield sordino.Pairs.from_features(rows, labels, persons=persons)
        return
    chunks = in_files(folder / "in", rows, labels, persons)
    with survey_chunks(chunks, engine or InProcess(), most=most, hold_out=True) as survey:
        yield survey


def bought(
    place, folder, data, *, noise=NOISE, unit="label", weights=None, temperature=0.5, ledger=None
):
    """Fit without the held-out rows and measure on them: metrics, reward, ledger, the release."""
    ledger = ledger or account(folder, unit=unit)
    with judged(place, folder, *data, most=noise.records_per_person) as judgments:
        released = release_labels(judgments, noise, ledger=ledger, held_out=True, simulate_seed=0)
        reward = fit(released, ridge=2.0, ball=4.0)
        if weights is not None:
            reward.weights[:] = weights
        given = {"ledger": ledger, "temperature": temperature, "simulate_seed": 1}
        return measure_labels(reward, judgments, noise, **given), reward, ledger, released


@pytest.fixture
def silent(monkeypatch):
    """No noise: what comes out is the sum itself, up to the grid."""
    monkeypatch.setattr(label_sum, "with_noise", lambda total, *_: total)


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
    pairs, _ = linear_world(200, 2)
    private = sordino.privatize(pairs, sordino.RandomizedResponse(1.0), ledger=ledger(1.0))
    folds = Design.of(private, None).folds(MEASURING)
    assert ((folds == 0) == held_out_rows(pairs)).all()


def test_nothing_and_everything_are_refused():
    refuse_one_side(pairs=2, held_out=1)
    for rows, out in ((3, 0), (2, 2), (0, 0)):
        with pytest.raises(DataError, match="too few different questions"):
            refuse_one_side(pairs=rows, held_out=out)


@pytest.mark.parametrize("most", [None, 3])
def test_parts_of_files_hold_the_rows_of_the_public_rule(tmp_path, most):
    rows, labels, persons = world(people=25, repeats=150)
    pairs = sordino.Pairs.from_features(rows, labels, persons=persons)
    out, seen = held_out_rows(pairs), set()
    with judged("files", tmp_path, rows, labels, persons, most=most) as survey:
        for part in survey.divided():
            counts = countable_rows(pairs)
            counts = counts[out[counts] == (part.part == "held-out")]
            if most is not None:
                names = [persons[at] for at in counts]
                place = [names[:at].count(name) for at, name in enumerate(names)]
                counts = counts[np.array(place) < most]
            found = counted_vectors(part, None)
            blocks = [block for chunk in part.chunks for block in found.read(chunk)]
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
        assert survey.counted == sum(part.counted for part in survey.divided())


# --- the numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.02, 0.5, 20.0])
@PLACES
def test_every_number_without_noise(tmp_path, silent, place, temperature):
    rows, labels, _ = data = world()
    out = held_out_rows(sordino.Pairs.from_features(rows, labels))
    found, reward, _, _ = bought(place, tmp_path, data, temperature=temperature)
    plain = measure_predictions(
        HeldOut(
            differences=rows[out] @ reward.weights,
            answers=labels[out].astype(int),
            flip_probability=0.0,
        ),
        temperature=temperature,
    )
    assert found.pairs == out.sum()
    for name, close in (
        ("accuracy", 1e-5),
        ("win_rate", 1e-5),
        ("negative_log_likelihood", 1e-5),
        ("calibration_slope", 1e-3),
    ):
        assert getattr(found, name).value == pytest.approx(getattr(plain, name).value, abs=close)


@PLACES
def test_undecided_labels_and_even_scores_count_half(tmp_path, silent, place):
    rows, labels, _ = data = world(ties=True)
    found, *_ = bought(place, tmp_path, data, weights=[1.0, 0.0, 0.0, 0.0])
    out = held_out_rows(sordino.Pairs.from_features(rows, labels))
    margins, labels = rows[out, 0], labels[out]
    assert min((margins == 0).sum(), (labels == 0.5).sum()) > 5
    for name, picks in (("accuracy", 0.5 + np.sign(margins) / 2), ("win_rate", expit(2 * margins))):
        won = np.mean(labels * picks + (1 - labels) * (1 - picks))
        assert getattr(found, name).value == pytest.approx(won, abs=1e-5)
    loss = np.mean(np.logaddexp(0, margins) - labels * margins)
    assert found.negative_log_likelihood.value == pytest.approx(loss, abs=1e-5)


def test_standard_errors_by_hand(tmp_path):
    """Sampling as a plain count has it, and the noise of the released sum beside it."""
    rows, labels, _ = data = world()
    out = held_out_rows(sordino.Pairs.from_features(rows, labels))
    found, reward, *_ = bought("memory", tmp_path, data)
    margins, k = rows[out] @ reward.weights, int(out.sum())
    columns = np.stack([np.sign(margins), 2 * expit(margins / 0.5) - 1, margins], axis=1)
    sizes = np.abs(columns).max(axis=0)
    noise = np.diag(NOISE.prepare(columns / sizes).covariance) * sizes**2
    share = min(found.accuracy.value, 1.0)
    expected = math.sqrt(share * (1 - share) / k + noise[0] / k**2)
    assert found.accuracy.standard_error == pytest.approx(expected, rel=1e-3)
    predicted = HeldOut(differences=margins, answers=labels[out].astype(int), flip_probability=0.0)
    plain = measure_predictions(predicted, temperature=0.5)
    for name, column in (("win_rate", 1), ("negative_log_likelihood", 2)):
        error = math.hypot(getattr(plain, name).standard_error, math.sqrt(noise[column]) / k)
        assert getattr(found, name).standard_error == pytest.approx(error, rel=0.15)
    slope = found.calibration_slope.value
    information = np.sum(expit(slope * margins) * expit(-slope * margins) * margins**2)
    expected = math.sqrt(information + noise[2]) / information
    assert found.calibration_slope.standard_error == pytest.approx(expected, rel=1e-3)
    low, high = found.win_rate.share_interval
    assert 0 <= low <= high <= 1


def both(tmp_path, data, **told):
    """What files give, and what memory gives for the same weights."""
    mine, reward, *_ = bought("files", tmp_path / "f", data, **told)
    theirs, other, *_ = bought("memory", tmp_path / "m", data, **told | {"weights": reward.weights})
    return mine, theirs, reward, other


def same_numbers(mine, theirs, **close):
    """Every number is the same, and so is the promise."""
    assert mine.pairs == theirs.pairs
    assert mine.guarantee == theirs.guarantee
    for name, value in theirs.to_dict().items():
        if value is None or isinstance(value, str):
            assert mine.to_dict()[name] == value, name
            continue
        assert mine.to_dict()[name] == pytest.approx(value, **close), name


@pytest.mark.parametrize("temperature", few([1e-300, 0.02, 0.5, 1e300], 0.5, 1e300))
@pytest.mark.parametrize("ties", [False, True], ids=["plain", "ties"])
def test_the_numbers_of_files_are_those_of_memory(tmp_path, temperature, ties):
    mine, theirs, _, _ = both(tmp_path, world(ties=ties), temperature=temperature)
    same_numbers(mine, theirs, rel=1e-9)
    assert mine.guarantee.simulated
    if temperature == 1e300:
        assert mine.win_rate.value == 0.5
        assert mine.win_rate.share_interval[0] == pytest.approx(0.5, abs=0.12)
    elif temperature < 1e-9:
        assert mine.win_rate.value == pytest.approx(mine.accuracy.value, abs=1e-6)


@pytest.mark.parametrize("size", [1e-3, 50.0])
def test_rewards_that_are_far_from_calibrated(tmp_path, size):
    weights = TRUE * (1.0 if size < 1 else -1.0)
    mine, theirs, _, _ = both(tmp_path, world(size=size), weights=weights)
    same_numbers(mine, theirs, rel=1e-9)
    assert (mine.calibration_slope.value < 0) == (size > 1)


def test_far_too_much_noise_leaves_no_slope_and_is_told_as_such(tmp_path):
    """Errors are large, and sentences stand for what nobody can know."""
    noise = LabelGaussian(0.01, delta=DELTA, shaped=False)
    mine, theirs, _, _ = both(tmp_path, world(), noise=noise, weights=np.ones(D))
    same_numbers(mine, theirs, rel=1e-9)
    assert mine.calibration_slope is None
    assert mine.accuracy.standard_error > 1
    told = mine.to_dict()
    for name in ("accuracy", "negative_log_likelihood"):
        assert told[name] is None
        assert "too few answers" in told[f"{name}_reason"]
        assert np.isfinite(told[f"{name}_standard_error"])


def test_with_noise_that_has_a_shape(tmp_path):
    mine, theirs, _, _ = both(tmp_path, world(), noise=LabelGaussian(2.0, delta=DELTA))
    same_numbers(mine, theirs, rel=1e-4)


def test_repeats_and_rows_of_persons_count_as_the_public_rule_says(tmp_path, silent):
    data = world(people=25, repeats=100)
    mine, theirs, reward, _ = both(tmp_path / "all", data)
    assert mine.guarantee.caveats == ("person-group", "simulated")
    assert mine.pairs + reward.pairs == 600  # a repeat of the same person does not count
    same_numbers(mine, theirs, rel=1e-9)
    noise = LabelGaussian(2.0, delta=DELTA, records_per_person=2, shaped=False)
    mine, theirs, reward, other = both(tmp_path / "capped", data, noise=noise, unit="person")
    assert (mine.pairs, reward.pairs) == (theirs.pairs, other.pairs) == (theirs.pairs, 50)
    assert mine.guarantee.unit == "person"
    for name in ("accuracy", "negative_log_likelihood", "calibration_slope"):
        close = pytest.approx(getattr(theirs, name).value, rel=1e-3)  # the grid is another
        assert getattr(mine, name).value == close


@PLACES
def test_texts_are_measured_with_the_features_of_the_reward(tmp_path, place):
    lines = [
        f'{{"prompt": "Q{at}?", "chosen": "good answer {at}", "rejected": "bad reply {at}"}}\n'
        for at in range(200)
    ]
    for file in range(2):
        (tmp_path / f"{file}.jsonl").write_text("".join(lines[file::2]))
    ledger, noise = account(tmp_path), LabelGaussian(20.0, delta=DELTA)
    chunks, features = sordino.find_chunks(tmp_path), sordino.HashedText(dimension=32)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "all.jsonl").write_text("".join(lines))
    with survey_chunks(chunks, InProcess(), hold_out=True) as survey:
        pairs = sordino.read_pairs(tmp_path / "one" / "all.jsonl")
        judgments = survey if place == "files" else pairs
        given = {"ledger": ledger, "held_out": True, "features": features}
        reward = fit(release_labels(judgments, noise, **given), ball=10.0)
        found = measure_labels(reward, judgments, noise, ledger=ledger, temperature=0.5)
        assert found.accuracy.value > 0.9
        others = sordino.Pairs.from_features(*world()[:2])
        with pytest.raises((UsageError, sordino.LedgerMismatch)):
            measure_labels(reward, others, noise, ledger=ledger, temperature=1.0)
    assert len(ledger.spends) == 2


def test_as_many_passes_as_a_plan_says(tmp_path):
    """And never an array of all margins here: what comes back from a pass is small."""
    sizes = []

    class Counting(InProcess):
        def fold(self, chunks, task, add, *, taken=None):
            task = pickle.loads(pickle.dumps(task))  # noqa: S301 - our own: as on another machine
            found = super().fold(chunks, task, add, taken=taken)
            sizes.append(len(pickle.dumps(found)))
            return found

    ledger, noise = account(tmp_path), LabelGaussian(2.0, delta=DELTA)
    with judged("files", tmp_path, *world(6 * N)[:2], engine=Counting()) as survey:
        reward = fit(release_labels(survey, noise, ledger=ledger, held_out=True), ball=4.0)
        sizes.clear()
        measure_labels(reward, survey, noise, ledger=ledger, temperature=1.0)
        # Newton's method takes a step more for some noise: of 60 draws, 56 took 18 passes.
        assert METRICS_PASSES / 2 <= len(sizes) <= METRICS_PASSES + 3
        assert max(sizes) < 2000 < 8 * survey.divided()[1].counted / 3


# --- what is told, and what a reward states then ----------------------------------------------


def test_the_names_are_those_of_a_result(tmp_path):
    found, *_ = bought("memory", tmp_path, world())
    values = found.to_dict()
    assert [name for name in values if not name.endswith("_reason")] == [
        "accuracy", "accuracy_standard_error",
        "negative_log_likelihood", "negative_log_likelihood_standard_error",
        "calibration_slope", "calibration_slope_standard_error",
        "win_rate", "win_rate_interval",
    ]  # fmt: skip
    precise = dataclasses.replace(found, win_rate=Estimate(0.6, 0.05))
    assert precise.to_dict()["win_rate_interval"] == pytest.approx([0.502, 0.698], abs=1e-4)
    nothing = dict.fromkeys(
        ("accuracy", "negative_log_likelihood", "calibration_slope", "win_rate")
    )
    told = dataclasses.replace(found, **nothing).to_dict()
    assert set(told.values()) == {None}
    assert told.keys() <= values.keys()


@PLACES
def test_both_releases_compose_and_say_what_they_read(tmp_path, place):
    found, reward, ledger, _ = bought(place, tmp_path, world())
    payloads = [spend.payload for spend in ledger.spends]
    assert '"held_out":"unread"' in payloads[0]
    assert '"held_out":"measured"' in payloads[1]
    attached = found.attached(reward, ledger)
    assert attached.release_ids == (*reward.release_ids, found.release_id)
    together = gaussian_epsilon(DELTA, math.sqrt(2) * NOISE.mu)
    assert attached.guarantee.epsilon == pytest.approx(together, rel=1e-6)
    assert attached.guarantee.delta == DELTA
    assert attached.guarantee.caveats == ("simulated",)
    assert found.guarantee.epsilon == pytest.approx(2.0, rel=1e-6)
    assert event_of(ledger.spends[1]) == GaussianEvent(NOISE.mu)
    assert sordino.certify(attached, ledger, for_study=True).guarantee == attached.guarantee
    assert attached.weights is reward.weights
    assert found.attached(attached, ledger).to_dict() == attached.to_dict()


def test_records_need_a_delta_for_each_release(linear_world, tmp_path):
    pairs, _ = linear_world(300, 3)
    tilt = ObjectivePerturbation(1.0, delta=DELTA, bound=1.0, neighbors=REPLACE_SPECIAL)
    noise = record_metrics_mechanism(1.0, delta=DELTA, neighbors=REPLACE_SPECIAL)
    of_records = {"unit": "record", "neighbors": REPLACE_SPECIAL}
    for delta, epsilon in ((DELTA, math.inf), (2 * DELTA, 5.0)):
        ledger = account(tmp_path / str(delta), delta=delta, epsilon=epsilon, **of_records)
        reward = sordino.fit_reward(pairs, mechanism=tilt, ledger=ledger, held_out=True, ball=4.0)
        asked = {"ledger": ledger, "temperature": 1.0}
        if delta == DELTA:  # refused before it is paid for, though the budget would allow it
            with pytest.raises(BudgetExceeded, match="larger delta"):
                measure_records(reward, pairs, noise, **asked)
            assert len(ledger.spends) == 1
    attached = measure_records(reward, pairs, noise, **asked).attached(reward, ledger)
    assert attached.guarantee.delta == 2 * DELTA
    assert 1.9 < attached.guarantee.epsilon <= 2.0
    assert attached.pairs == reward.pairs == 300
    assert sordino.certify(attached, ledger).guarantee == attached.guarantee


# --- refusals ---------------------------------------------------------------------------------


@PLACES
def test_refusals_spend_nothing(tmp_path, place):
    rows, labels, _ = data = world()
    found, reward, ledger, _ = bought(place, tmp_path, data)
    before, other = len(ledger.spends), account(tmp_path / "other")
    asked = {"ledger": ledger, "temperature": 1.0}
    with judged(place, tmp_path / "again", rows, labels) as judgments:
        for change in ({"temperature": 0.0}, {"temperature": math.inf}, {"simulate_seed": -1}):
            with pytest.raises(UsageError, match=next(iter(change))):
                measure_labels(reward, judgments, NOISE, **asked | change)
        with pytest.raises(UsageError, match="measure_labels needs a LabelGaussian"):
            measure_labels(reward, judgments, None, **asked)
        with pytest.raises(PrivacyError, match="raw judgments"):
            measure_labels(reward, None, NOISE, **asked)
        capped = LabelGaussian(1.0, delta=DELTA, records_per_person=1)
        with pytest.raises((UsageError, DataError), match=r"records_per_person=1|no person ids"):
            measure_labels(reward, judgments, capped, **asked)
        for wrong in (None, dataclasses.replace(reward, method="debiased")):
            with pytest.raises(UsageError, match="method='label-gaussian'"):
                measure_labels(wrong, judgments, NOISE, **asked)
        unpaid = dataclasses.replace(reward, release_ids=())
        for judge, account_of in ((unpaid, ledger), (reward, other)):
            with pytest.raises(PrivacyError, match="lacks an entry"):
                measure_labels(judge, judgments, NOISE, ledger=account_of, temperature=1.0)
        if place == "files":
            for part in judgments.divided():
                with pytest.raises(UsageError, match="takes the whole survey"):
                    measure_labels(reward, part, NOISE, **asked)
        reward.weights[:] = 0.0
        with pytest.raises(DataError, match="prefers nothing"):
            measure_labels(reward, judgments, NOISE, **asked)
    with pytest.raises(UsageError, match="another reward"):
        found.attached(dataclasses.replace(reward, artifact="00"), ledger)
    with pytest.raises(PrivacyError, match="lacks an entry"):
        found.attached(reward, other)
    assert len(ledger.spends) == before
    assert not other.spends


@PLACES
def test_too_few_questions_and_a_survey_for_something_else(tmp_path, place):
    rows, labels, _ = world()
    out = held_out_rows(sordino.Pairs.from_features(rows, labels))
    ledger = account(tmp_path)
    for name, some in (("none", np.flatnonzero(~out)[:9]), ("all", np.flatnonzero(out)[:9])):
        with (
            judged(place, tmp_path / name, rows[some], labels[some]) as few,
            pytest.raises(DataError, match="9 pairs are too few different questions"),
        ):
            release_labels(few, NOISE, ledger=ledger, held_out=True)
    with (
        survey_chunks(in_files(tmp_path / "in", rows, labels), InProcess()) as survey,
        pytest.raises(UsageError, match="hold_out=True"),
    ):
        release_labels(survey, NOISE, ledger=ledger, held_out=True)
    assert not ledger.spends
