"""Answers in many files: promise, fit and metrics are those of the same answers in memory."""

import json
import math
import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy.optimize import brentq
from scipy.special import expit
from tests.tiers import few

import sordino
from sordino.engines import exchange
from sordino.engines.engine import InProcess
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.preferences import chunk_survey, chunks
from sordino.preferences.chunk_survey import survey_chunks
from sordino.preferences.chunks import find_chunks
from sordino.preferences.comparisons import MEASURING
from sordino.preferences.features import HashedText
from sordino.preferences.pairs import PrivatePairs, manifest_path
from sordino.privatization import chunks as local_chunks
from sordino.privatization.chunks import privatize_chunks
from sordino.rewards import estimation, metrics, reward_fit
from sordino.rewards.estimation import fit_and_measure_chunks
from sordino.rewards.evidence import Design, counted_vectors, evidence_of_answers, ridges_around
from sordino.rewards.label_release import release_labels
from sordino.rewards.metrics import (
    HeldOut,
    increasing_root,
    measure_predictions,
    opened_predictions,
)
from sordino.rewards.reward_fit import ellipsoid_of, fit_design, fit_sum, standard_errors

COIN = sordino.RandomizedResponse(1.0)
PARTS = 4
FITTED = {"ridge": 3.0, "ball": 20.0}
LONGEST_HELD_OUT = 7  # a seed with which the longest vector is held out
OF_A_REFIT = math.sqrt(1.25)  # errors are √(1 + 1/4) times as large: the released fit saw all parts


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Cut files into many chunks, and chunks into many blocks; bring people together in four."""
    for module in (exchange, chunk_survey, local_chunks, metrics):
        monkeypatch.setattr(module, "PARTS", PARTS)
    monkeypatch.setattr(exchange, "_HEAD", 8 * (PARTS + 1))
    monkeypatch.setattr(chunks, "_ROWS", 300)
    monkeypatch.setattr(chunks, "_LINES", 40)
    monkeypatch.setattr(chunks, "_RECORDS", 50)
    monkeypatch.setattr(chunks, "_NUMBERS", 500)


class Posted:
    """An engine whose tasks and results are sent away, as to other machines, in any order."""

    def __init__(self):
        self.passes, self.heaviest = [], 0

    def fold(self, chunks, task, add, *, taken=None):
        self.passes.append(type(chunks))
        generator, found = np.random.default_rng(len(self.passes)), {}
        for index in generator.permutation(len(chunks)):
            chunk, work = pickle.loads(pickle.dumps((chunks[index], task)))  # noqa: S301
            sent = pickle.dumps(work(chunk))
            if isinstance(chunks, range):
                self.heaviest = max(self.heaviest, len(sent))
            found[index] = pickle.loads(sent)  # noqa: S301
        return InProcess().fold(range(len(chunks)), found.__getitem__, add, taken=taken)

    @property
    def readings(self):
        """How often the files were read."""
        return sum(kind is not range for kind in self.passes)


def ledger_at(folder, unit="label"):
    budget = sordino.Guarantee(
        1e4, delta=0.0, unit=unit, neighbors=sordino.REPLACE_ONE, trust="central"
    )
    return sordino.Ledger.open(folder / "spend.db", data="answers", budget=budget)


def raw(folder, n=1500, d=4, *, each=None, files=3, seed=0, again=True, moved=0.0):
    """Write judgments of a known reward in many files.

    Of people with so many each, some of them asked twice in the file where they were asked first.
    """
    folder.mkdir(parents=True)
    generator = np.random.default_rng(seed)
    theta = 3 * generator.normal(size=d)
    rows = generator.normal(size=(n, d)) / np.sqrt(d)
    labels = (generator.random(n) < expit(rows @ theta)).astype(np.int8)
    people = np.array([f"p{at // each}" for at in generator.permutation(n)] if each else [])
    twice = generator.integers(n, size=n // 10) if each and again else np.zeros(0, int)
    for file, once in enumerate(np.array_split(np.arange(n), files)):
        part = np.concatenate([once, np.intersect1d(twice, once)])
        flat = pa.FixedSizeListArray.from_arrays(pa.array((rows[part] + moved).ravel()), d)
        columns = {"difference": flat, "label": labels[part]}
        columns |= {"person": people[part]} if each else {}
        parquet.write_table(pa.table(columns), folder / f"s{file}.parquet", row_group_size=150)
    return find_chunks(folder)


def released(folder, *, unit="label", coin=COIN, **kind):
    """Return randomized answers in many files."""
    judged = raw(folder / "raw", **kind)
    privatize_chunks(
        judged, folder / "out", coin, ledger=ledger_at(folder, unit), engine=InProcess()
    )
    return find_chunks(folder / "out", privatized=True)


def private_of(folder):
    """Return the same answers in memory."""
    paths = sorted((folder / "out").glob("*.parquet"))
    table = pa.concat_tables([parquet.read_table(path) for path in paths])
    rows = np.stack(table["difference"].to_numpy())
    people = table["person"].to_pylist() if "person" in table.column_names else None
    pairs = sordino.Pairs.from_features(rows, table["answer"].to_numpy(), persons=people)
    assert np.array_equal(pairs.given, rows)  # nothing had to be turned
    fields = {name: getattr(pairs, name) for name in pairs.__dataclass_fields__ if name != "labels"}
    note = json.loads(manifest_path(paths[0]).read_text())
    guarantee = sordino.Guarantee(
        note["epsilon"], delta=0.0, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    return PrivatePairs(
        **fields,
        answers=pairs.labels,
        flip_probability=note["flip_probability"],
        guarantee=guarantee,
        artifact="0" * 64,
    )


def design_of(folder):
    return Design.of(private_of(folder), None)


def texts_of(folder, n=300):
    """Return randomized answers to texts in two files, and their design in memory."""
    (folder / "raw").mkdir()
    rows = [
        {
            "prompt": f"{i}",
            "chosen": f"warm {i}",
            "rejected": f"cold {i % 7}",
            "person": f"p{i % 50}",
        }
        for i in range(n)
    ]
    for file in range(2):
        lines = "".join(json.dumps(row) + "\n" for row in rows[file::2])
        (folder / f"raw/{file}.jsonl").write_text(lines)
    found = find_chunks(folder / "raw")
    privatize_chunks(found, folder / "out", COIN, ledger=ledger_at(folder), engine=InProcess())
    features = HashedText(dimension=32)
    parts = [sordino.read_pairs(folder / f"out/{file}.jsonl") for file in range(2)]
    designs = [Design.of(part, features) for part in parts]
    whole = Design(
        differences=np.concatenate([part.differences.toarray() for part in designs]),
        answers=np.concatenate([part.answers for part in designs]),
        flip_probability=COIN.flip_probability,
        feature_bound=features.feature_bound,
        questions=np.concatenate([part.questions for part in designs]),
        clusters=np.concatenate([[int(who[1:]) for who in part.persons] for part in parts]),
    )
    return find_chunks(folder / "out", privatized=True), features, whole


def held_out_of(design):
    """Return what is measured on, and what is fitted."""
    measured = design.folds(MEASURING) == 0
    return design.part(measured), design.part(~measured)


def in_memory(design, weights, temperature, widening=1.0):
    """Return the metrics by the formulas in memory."""
    predictions = HeldOut(
        differences=design.differences @ weights,
        answers=design.answers,
        flip_probability=design.flip_probability,
        clusters=design.clusters,
        widening=widening,
    )
    found = measure_predictions(predictions, temperature=temperature, widening=widening)
    return {name: value for name, value in vars(found).items() if name != "rows"}


def assert_equal(found, wanted, tolerance):
    for name, estimate in wanted.items():
        mine = getattr(found, name)
        assert (mine is None) == (estimate is None)  # as coins have it, there may be no slope
        if estimate is None:
            continue
        for part in vars(estimate):
            expected = pytest.approx(getattr(estimate, part), rel=tolerance, abs=tolerance)
            assert getattr(mine, part) == expected, (name, part)


def measured(answers, weights, *, engine=None, temperature=None, flips=COIN.flip_probability):
    """Return the metrics of weights on the held-out answers."""
    engine = engine or InProcess()
    with (
        survey_chunks(answers, engine, hold_out=True) as survey,
        opened_predictions(
            survey.divided()[1],
            np.asarray(weights, dtype=np.float64),
            features=None,
            flip_probability=flips,
        ) as predictions,
    ):
        return measure_predictions(predictions, temperature=temperature)


# --- the fit ---


@pytest.mark.parametrize("each", [None, 3])
def test_the_fit_is_that_in_memory(tmp_path, each):
    answers = released(tmp_path, n=1200, d=5, each=each)  # the sample is all rows
    found = sordino.fit_reward(answers, **FITTED)
    design = design_of(tmp_path)
    wanted = fit_design(design, **FITTED, method="debiased")
    scale = np.linalg.norm(wanted.weights)
    assert np.linalg.norm(found.weights - wanted.weights) <= 1e-6 * scale
    assert found.standard_errors == pytest.approx(standard_errors(design, wanted), rel=1e-6)
    region = ellipsoid_of(design, wanted, ball=FITTED["ball"])
    assert found.ellipsoid.metric == pytest.approx(region.metric, rel=1e-10)
    assert found.ellipsoid.radius(0.95) == pytest.approx(region.radius(0.95), rel=1e-6)
    assert found.pairs == len(design) == 1200  # a repeat of one person counts once
    assert found.method == "debiased"
    assert found.guarantee.epsilon == COIN.realized_epsilon
    assert "randomized-at-ingestion" in found.guarantee.caveats


def test_a_ridge_is_chosen_from_the_same_public_ones(tmp_path):
    found = sordino.fit_reward(released(tmp_path), ball=20.0)
    tried = ridges_around((design_of(tmp_path).feature_bound / COIN.kappa) ** 2)
    assert found.ridge == pytest.approx(min(tried, key=lambda ridge: abs(ridge - found.ridge)))
    assert found.ellipsoid.candidates == 6
    assert found.ridge < max(tried)


def test_the_sum_of_answers_is_debiased_and_its_criterion_is_the_loss_on_fresh_ones(tmp_path):
    """tr[(H + ΛI)⁻¹N] against the covariance of the fit with the sum, by finite differences."""
    answers = released(tmp_path, n=600, d=3)
    private = private_of(tmp_path)
    with survey_chunks(answers, InProcess()) as survey:
        rows = counted_vectors(survey, None, answers=True)
        known = evidence_of_answers(rows, None, private.flip_probability)
        f, kappa = private.flip_probability, 1 - 2 * private.flip_probability
        targets = (private.answers - f) / kappa
        assert known.statistic == pytest.approx(private.given.T @ targets, rel=1e-12)
        longest = np.linalg.norm(private.given, axis=1).max()
        assert known.feature_bound == pytest.approx(longest / 2, rel=1e-12)

        def fitted(shift):
            moved = replace(known, statistic=known.statistic + shift)
            return fit_sum(moved, ridge=2.0, ball=50.0).solution

        middle, step = fitted(np.zeros(3)), 1.0
        response = np.stack(
            [
                (fitted(step * axis).theta - fitted(-step * axis).theta) / (2 * step)
                for axis in np.eye(3)
            ]
        )
        chance = f + kappa * expit(known.sample @ middle.theta)
        weights = chance * (1 - chance) / kappa**2
        noise = known.sample.T @ (weights[:, np.newaxis] * known.sample)
        expected = float(np.sum(response * noise))
        assert known.optimism(middle, 2.0) == pytest.approx(expected, rel=1e-3)


def test_texts_are_fitted_and_measured_like_one_file(tmp_path):
    answers, features, whole = texts_of(tmp_path)
    reward, found = fit_and_measure_chunks(answers, features=features, **FITTED)
    wanted = fit_design(whole, **FITTED, method="debiased").weights
    assert np.linalg.norm(reward.weights - wanted) <= 1e-6 * np.linalg.norm(wanted)
    held_out, fitted = held_out_of(whole)
    theta = fit_design(fitted, method="debiased", **FITTED).weights
    numbers = in_memory(held_out, theta, 1.0, OF_A_REFIT)
    numbers.pop("win_rate")
    assert_equal(found, numbers, 1e-4)  # both fits are certified to no more


# --- what is promised, and what is refused ---


def test_a_copy_of_a_file_of_persons_counts_once(tmp_path):
    answers = released(tmp_path, n=300, each=3)
    once = sordino.fit_reward(answers, **FITTED)
    first, copy = tmp_path / "out" / "s0.parquet", tmp_path / "out" / "t0.parquet"
    copy.write_bytes(first.read_bytes())
    manifest_path(copy).write_bytes(manifest_path(first).read_bytes())
    twice = sordino.fit_reward(find_chunks(tmp_path / "out", privatized=True), **FITTED)
    assert twice.pairs == once.pairs
    assert twice.weights == pytest.approx(once.weights, rel=1e-9)


def test_a_file_without_its_manifest_is_refused(tmp_path):
    answers = released(tmp_path, n=300)
    note = manifest_path(tmp_path / "out" / "s1.parquet")
    kept = note.read_text()
    note.unlink()
    with pytest.raises(DataError, match=r"no s1\.manifest\.json"):
        sordino.fit_reward(answers)
    other = manifest_path(tmp_path / "out" / "s0.parquet").read_text()
    for text, said in (
        (other, "sha256 differs"),
        (kept.replace('"randomized-at-ingestion"', '"labels-only"'), "contradicts itself"),
    ):
        note.write_text(text)
        with pytest.raises(DataError, match=said):
            sordino.fit_reward(answers)
    for wrong in (None, 7, "", "0123456789abcde", "0123456789ABCDEF", "g" * 16):
        note.write_text(json.dumps(json.loads(kept) | {"release_id": wrong}))
        with pytest.raises(DataError, match="wrong type or value"):
            sordino.fit_reward(answers)


def test_files_of_two_coins_are_refused(tmp_path):
    for name, epsilon in (("one", 1.0), ("two", 2.0)):
        (tmp_path / name).mkdir()
        released(tmp_path / name, n=60, coin=sordino.RandomizedResponse(epsilon))
    mixed = find_chunks([tmp_path / "one" / "out", tmp_path / "two" / "out"], privatized=True)
    with pytest.raises(DataError, match="disagree about epsilon"):
        sordino.fit_reward(mixed)


def two_releases(folder, *, each):
    """Randomize the same labels twice, on ledgers that know nothing of each other."""
    for name, files in (("a", 1), ("b", 2)):  # cut otherwise, so that no file is a copy
        (folder / name).mkdir()
        released(folder / name, n=60, files=files, each=each, again=False)
    return [sorted((folder / name / "out").glob("*.parquet")) for name in "ab"]


def test_two_releases_of_the_same_labels_in_one_folder_are_refused(tmp_path):
    one, other = two_releases(tmp_path, each=None)
    answers = find_chunks([*one, *other], privatized=True)
    with pytest.raises(PrivacyError, match="several releases"):
        sordino.fit_reward(answers)
    for path in (*one, *other):  # of one release each label is drawn once
        note = manifest_path(path)
        told = json.loads(note.read_text()) | {"release_id": "0123456789abcdef"}
        note.write_text(json.dumps(told))
    assert sordino.fit_reward(answers).guarantee.caveats[-1] == "repeats-not-linked"
    alone = sordino.fit_reward(find_chunks(other, privatized=True))
    assert alone.guarantee.epsilon == COIN.realized_epsilon


def test_of_two_releases_one_answer_of_a_person_counts(tmp_path):
    one, other = two_releases(tmp_path, each=3)
    alone = sordino.fit_reward(find_chunks(one, privatized=True), **FITTED)
    both = sordino.fit_reward(find_chunks([*one, *other], privatized=True), **FITTED)
    assert alone.pairs == both.pairs == 60
    assert alone.weights == pytest.approx(both.weights, rel=1e-9)


def test_a_person_with_more_answers_than_promised_is_refused(tmp_path):
    answers = released(tmp_path, n=300, each=3, unit="person")
    found = sordino.fit_reward(answers)
    assert found.guarantee.unit == "person"
    assert found.guarantee.epsilon == pytest.approx(3 * COIN.realized_epsilon)
    # the same people on other questions: each release alone keeps its promise
    (tmp_path / "more").mkdir()
    released(tmp_path / "more", n=300, each=3, unit="person", moved=1.0)
    folders = [tmp_path / "out", tmp_path / "more" / "out"]
    with pytest.raises(PrivacyError, match="does not cover"):
        sordino.fit_reward(find_chunks(folders, privatized=True))


def test_raw_and_randomized_are_not_taken_for_each_other(tmp_path):
    answers = released(tmp_path, n=300)
    with pytest.raises(PrivacyError, match="privatized=True"):
        sordino.fit_reward(find_chunks(tmp_path / "raw"))
    with pytest.raises(DataError, match=r"raw judgments|no s0.manifest"):
        sordino.fit_reward(find_chunks(tmp_path / "raw", privatized=True))
    for number, wrong in enumerate((find_chunks(tmp_path / "out"), answers)):
        out, ledger = tmp_path / f"twice-{number}", ledger_at(tmp_path)
        with pytest.raises((DataError, UsageError), match="randomized already"):
            privatize_chunks(wrong, out, COIN, ledger=ledger, engine=InProcess())
    budget = sordino.Guarantee(
        5.0, delta=1e-6, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    ledger = sordino.Ledger.open(tmp_path / "central.db", data="a", budget=budget)
    with (
        survey_chunks(answers, InProcess()) as survey,
        pytest.raises(DataError, match="randomized already"),
    ):
        release_labels(survey, sordino.LabelGaussian(1.0, delta=1e-6), ledger=ledger)
    assert not ledger.spends


# --- the metrics ---


@pytest.mark.parametrize("each", few([None, 1, 6, 700], None, 6))
def test_every_metric_is_that_in_memory(tmp_path, each):
    """Without persons, with few answers of each, with many; weights short, right and too long."""
    answers = released(tmp_path, each=each)
    held_out, _ = held_out_of(design_of(tmp_path))
    direction = np.array([1.0, -2.0, 0.5, 0.0])
    for length in (1e-3, 1.0, 300.0):
        found = measured(answers, length * direction, temperature=0.5)
        assert_equal(found, in_memory(held_out, length * direction, 0.5), 1e-9)
        assert found.rows == len(held_out)
    if each == 6:  # as if all answers were of different people it is another number
        alone = replace(held_out, clusters=None)
        error = in_memory(alone, length * direction, 0.5)["accuracy"].standard_error
        assert abs(found.accuracy.standard_error / error - 1) > 1e-4


def test_wherever_parts_are_added_up_the_bits_are_the_same(tmp_path):
    answers, weights = released(tmp_path, each=6), [1.0, -2.0, 0.5, 0.0]
    engine = Posted()
    assert measured(answers, weights, engine=engine) == measured(answers, weights)
    assert engine.readings == 2  # the survey, and the predictions
    assert len(engine.passes) - engine.readings <= 9
    assert engine.heaviest < 2000  # bytes: sums, and not what is predicted for 75 answers


@pytest.mark.parametrize("each", few([None, 6], 6))
def test_the_metrics_are_of_a_fit_that_did_not_see_what_they_are_measured_on(tmp_path, each):
    answers = released(tmp_path, each=each)
    design = design_of(tmp_path)
    engine = Posted()
    terms = {"ridge": 3.0, "ball": 20.0}
    reward, found = fit_and_measure_chunks(answers, engine=engine, temperature=0.5, **terms)
    held_out, fitted = held_out_of(design)
    fit = fit_design(fitted, method="debiased", **terms)
    wanted = in_memory(held_out, fit.solution.theta, 0.5, OF_A_REFIT)
    assert_equal(found, wanted, 1e-5)  # both fits are certified to no more
    cheating = in_memory(held_out, fit_design(design, **terms).solution.theta, 0.5)
    gap = cheating["negative_log_likelihood"].value - found.negative_log_likelihood.value
    # Of a fit that saw them it is clearly another number: the gap is about .005 times a χ² with
    # 4 degrees of freedom over 4, which is below 1/250 in less than one run in ten thousand.
    assert abs(gap) > 2e-5
    alone = Posted()
    plain = sordino.fit_reward(answers, engine=alone, **terms)
    assert np.array_equal(reward.weights, plain.weights)
    assert reward.pairs == plain.pairs == len(design)
    assert engine.readings <= 2 * alone.readings


def test_the_ridge_is_chosen_on_what_the_fit_sees(tmp_path, monkeypatch):
    answers, seen = released(tmp_path, n=900, seed=LONGEST_HELD_OUT), []
    held_out, fitted = held_out_of(design_of(tmp_path))
    longest = [np.linalg.norm(part.differences, axis=1).max() for part in (held_out, fitted)]
    assert longest[0] > longest[1]
    fit = reward_fit.fit_sum

    def spy(evidence, **terms):
        seen.append((len(evidence), evidence.feature_bound, terms["ridge"]))
        return fit(evidence, **terms)

    for module in (reward_fit, estimation):
        monkeypatch.setattr(module, "fit_sum", spy)
    _, found = fit_and_measure_chunks(answers, ball=20.0)
    (n, bound, _), (part, same, asked) = seen
    assert (n, part, same, asked) == (900, 900 - found.rows, bound, None)
    assert found.win_rate is None
    assert 120 < found.rows < 240


def test_what_cannot_be_measured_is_said_before_the_fit(tmp_path, monkeypatch):
    answers = released(tmp_path, n=1, files=1)
    monkeypatch.setattr(reward_fit, "fit_sum", None)
    with pytest.raises(DataError, match="1 answers are to too few different questions"):
        fit_and_measure_chunks(answers, ball=20.0)
    for wrong in ({"temperature": 0.0}, {"ridge": -1.0}, {"ball": 0.0}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            fit_and_measure_chunks(answers, **({"ball": 20.0} | wrong))


def test_files_that_change_while_they_are_read_are_not_measured(tmp_path):
    answers = released(tmp_path)
    with survey_chunks(answers, InProcess(), hold_out=True) as survey:
        part = replace(survey.divided()[1], counted=7)
        given = {"features": None, "flip_probability": COIN.flip_probability}
        with (
            pytest.raises(DataError, match="changed"),
            opened_predictions(part, np.ones(4), **given),
        ):
            pass


def test_no_slope_where_none_fits_and_no_error_of_one_person(tmp_path):
    answers = released(tmp_path, each=1500)
    theta = np.random.default_rng(0).normal(size=4)
    found = measured(answers, np.zeros(4))
    assert found.calibration_slope is None
    assert found.accuracy.value == pytest.approx(0.5, rel=1e-12)
    # of weights that say nothing: that no slope fits 300 such answers is beyond six deviations
    one = measured(answers, [theta[1], -theta[0], theta[3], -theta[2]])
    assert one.accuracy.standard_error == math.inf
    told = one.to_dict()
    assert (told["calibration_slope"], told["calibration_slope_standard_error"]) == (None, None)
    assert "too few answers" in told["calibration_slope_reason"]
    assert found.to_dict()["calibration_slope"] is None


@pytest.mark.parametrize("sign", [-1, 1])
def test_answers_that_agree_more_than_the_coin_lets_them_have_no_slope(tmp_path, sign):
    answers = released(tmp_path, n=600)
    held_out, _ = held_out_of(design_of(tmp_path))
    weights, noisier = sign * fit_design(held_out, ridge=1.0, ball=20.0).solution.theta, 0.49
    wanted = in_memory(replace(held_out, flip_probability=noisier), weights, 1.0)
    assert wanted.pop("calibration_slope") is None
    found = measured(answers, weights, flips=noisier, temperature=1.0)
    assert found.calibration_slope is None
    assert_equal(found, wanted, 1e-9)


# --- where a rising sum crosses zero ---


@pytest.mark.parametrize("slope", [-2e4, -3.0, 0.0, 1e-6, 0.3, 1.0, 40.0, 1e5, 1e9, 1e30])
def test_a_root_is_found_in_few_passes(slope):
    generator = np.random.default_rng(7)
    gaps = generator.normal(size=400) / max(1.0, abs(slope))
    gaps[0] = 1.0 if abs(slope) <= 1e3 else gaps[0]
    targets, asked = expit(slope * gaps) + 1e-3 * generator.normal(size=400), []

    def rising(at):
        asked.append(at)
        chosen = expit(at * gaps)
        return np.array([(chosen - targets) @ gaps, (chosen * (1 - chosen)) @ gaps**2])

    found, passes = increasing_root(rising), len(asked)
    wide = 10 * (1 + abs(slope))
    exact = brentq(lambda at: rising(at)[0], -wide, wide, xtol=1e-300, rtol=1e-14)
    rounding = 1e-14 * np.abs(gaps).sum() / rising(exact)[1]
    assert abs(found - exact) <= 1e-11 * abs(exact) + rounding
    assert passes <= 7


def test_a_root_among_sizes_of_every_order_is_found():
    gaps = np.concatenate([np.geomspace(1e-12, 1.0, 200), [-1e-9]])
    at = np.array([expit(3e8 * gaps) @ gaps, 0.0])
    found = increasing_root(
        lambda b: (
            np.array([expit(b * gaps) @ gaps, (expit(b * gaps) * expit(-b * gaps)) @ gaps**2]) - at
        )
    )
    assert found == pytest.approx(3e8, rel=1e-5)  # where a float tells the sum from its limit


@pytest.mark.parametrize("value", [-1.0, 1.0])
def test_no_root_is_none(value):
    assert increasing_root(lambda _: np.array([value, 0.0])) is None
    assert increasing_root(lambda _: np.array([value, 1e-120])) is None
