"""The fit of answers in many files is that of the same answers in memory."""

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import sordino
from sordino.engines import exchange
from sordino.engines.engine import InProcess
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.preferences import chunk_reading, chunk_survey, chunks
from sordino.preferences.chunk_survey import survey_chunks
from sordino.preferences.chunks import find_chunks
from sordino.preferences.features import HashedText
from sordino.preferences.pairs import PrivatePairs, manifest_path
from sordino.privatization import chunk_tasks
from sordino.privatization import chunks as local_chunks
from sordino.privatization.chunks import privatize_chunks
from sordino.rewards.evidence import Design, counted_vectors, evidence_of_answers, ridges
from sordino.rewards.label_release import release_labels
from sordino.rewards.reward_fit import ellipsoid_of, fit_design, fit_sum, standard_errors

COIN = sordino.RandomizedResponse(1.0)


class Backwards:
    """An engine that takes chunks from the last one on."""

    def fold(self, chunks, task, add, *, taken=None):
        found = {index: task(chunks[index]) for index in reversed(range(len(chunks)))}
        return InProcess().fold(range(len(chunks)), found.__getitem__, add, taken=taken)


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Cut files into many chunks, and chunks into many blocks; bring people together in four."""
    for module in (exchange, chunk_survey, chunk_tasks, chunk_tasks, local_chunks):
        monkeypatch.setattr(module, "PARTS", 4)
    monkeypatch.setattr(exchange, "_HEAD", 8 * 5)
    monkeypatch.setattr(chunks, "_ROWS", 500)
    monkeypatch.setattr(chunks, "_LINES", 100)
    monkeypatch.setattr(chunk_reading, "_RECORDS", 100)
    monkeypatch.setattr(chunk_reading, "_NUMBERS", 1000)


def ledger_at(folder, unit="label"):
    budget = sordino.Guarantee(
        1e4, delta=0.0, unit=unit, neighbors=sordino.REPLACE_ONE, trust="central"
    )
    return sordino.Ledger.open(folder / "spend.db", data="answers", budget=budget)


def vectors(folder, n=3000, d=5, *, persons=False, files=3):
    """Write vectors and labels of a known reward."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    theta = generator.normal(size=d)
    rows = generator.normal(size=(n, d)) / np.sqrt(d)
    labels = (generator.random(n) < 1 / (1 + np.exp(-2 * rows @ theta))).astype(np.int8)
    for file, part in enumerate(np.array_split(np.arange(n), files)):
        flat = pa.FixedSizeListArray.from_arrays(pa.array(rows[part].ravel()), d)
        columns = {"difference": flat, "label": labels[part]}
        if persons:
            columns["person"] = [f"p{row // 3}" for row in part]
        parquet.write_table(pa.table(columns), folder / f"s{file}.parquet", row_group_size=200)
    return find_chunks(folder)


def in_memory(folder, *, persons=False):
    """Return the answers of Parquet files as one set of private pairs."""
    tables = [parquet.read_table(path) for path in sorted(folder.glob("*.parquet"))]
    table = pa.concat_tables(tables)
    rows = np.stack(table["difference"].to_numpy())
    people = table["person"].to_pylist() if persons else None
    answers = table["answer"].to_numpy()
    pairs = sordino.Pairs.from_features(rows, answers, persons=people)
    assert np.array_equal(pairs.given, rows)  # nothing had to be turned
    fields = {name: getattr(pairs, name) for name in pairs.__dataclass_fields__ if name != "labels"}
    note = json.loads(manifest_path(next(iter(sorted(folder.glob("*.parquet"))))).read_text())
    guarantee = sordino.Guarantee(
        note["epsilon"],
        delta=0.0,
        unit=note["unit"],
        neighbors=sordino.REPLACE_ONE,
        trust=note["trust"],
        caveats=tuple(note["caveats"]),
    )
    return PrivatePairs(
        **fields,
        answers=answers,
        flip_probability=note["flip_probability"],
        guarantee=guarantee,
        artifact="0" * 64,
    )


def released(tmp_path, *, engine=None, unit="label", **more):
    """Return a folder of answers, and the chunks in it."""
    raw = vectors(tmp_path / "raw", **more)
    privatize_chunks(
        raw, tmp_path / "out", COIN, ledger=ledger_at(tmp_path, unit), engine=InProcess()
    )
    return tmp_path / "out", find_chunks(tmp_path / "out", privatized=True)


@pytest.mark.parametrize("persons", [False, True])
def test_the_fit_is_that_in_memory(tmp_path, persons):
    folder, answers = released(tmp_path, n=1200, persons=persons)  # the sample is all rows
    ridge, ball = 3.0, 20.0
    found = sordino.fit_reward(answers, ridge=ridge, ball=ball)
    design = Design.of(in_memory(folder, persons=persons), None)
    wanted = fit_design(design, ridge=ridge, ball=ball, method="debiased")
    scale = np.linalg.norm(wanted.solution.theta)
    assert np.linalg.norm(found.weights - wanted.solution.theta) <= 1e-6 * scale
    assert found.standard_errors == pytest.approx(standard_errors(design, wanted), rel=1e-6)
    region = ellipsoid_of(design, wanted, ball=ball)
    assert found.ellipsoid.metric == pytest.approx(region.metric, rel=1e-10)
    assert found.ellipsoid.radius(0.95) == pytest.approx(region.radius(0.95), rel=1e-6)
    assert found.pairs == len(design)
    assert found.method == "debiased"
    assert found.guarantee.epsilon == COIN.realized_epsilon
    assert "randomized-at-ingestion" in found.guarantee.caveats


def test_a_ridge_is_chosen_from_the_same_public_ones(tmp_path):
    folder, answers = released(tmp_path)
    found = sordino.fit_reward(answers, ball=20.0)
    design = Design.of(in_memory(folder), None)
    assert found.ridge == pytest.approx(
        min(ridges(design.feature_bound, COIN.flip_probability), key=lambda r: abs(r - found.ridge))
    )
    assert found.ellipsoid.candidates == 6
    assert found.ridge < max(ridges(design.feature_bound, COIN.flip_probability))


def noise_of(known, theta):
    """Return Σ p(1 − p)/κ² xxᵀ, the covariance of Σ ỹx, over all rows."""
    rows, kappa = known.sample, 1 - 2 * known.flip_probability
    chance = known.flip_probability + kappa / (1 + np.exp(-rows @ theta))
    return rows.T @ ((chance * (1 - chance) / kappa**2)[:, np.newaxis] * rows)


def test_the_criterion_is_the_loss_on_fresh_answers(tmp_path):
    """tr[(H + ΛI)⁻¹N] against the covariance of the fit with the sum, by finite differences."""
    _, answers = released(tmp_path, n=600, d=3)
    with survey_chunks(answers, InProcess()) as survey:
        rows = counted_vectors(survey, None, answers=True)
        known = evidence_of_answers(rows, None, COIN.flip_probability)

        def fitted(shift):
            moved = dataclasses.replace(known, statistic=known.statistic + shift)
            return fit_sum(moved, ridge=2.0, ball=50.0).solution

        middle, step = fitted(np.zeros(3)), 1.0
        response = np.stack(
            [
                (fitted(step * axis).theta - fitted(-step * axis).theta) / (2 * step)
                for axis in np.eye(3)
            ]
        )
        noise = noise_of(known, middle.theta)
        expected = float(np.sum(response * noise))
        assert known.optimism(middle, 2.0) == pytest.approx(expected, rel=1e-3)


def test_another_order_of_tasks_gives_the_same_bits(tmp_path):
    _, answers = released(tmp_path)
    one = sordino.fit_reward(answers, ball=20.0)
    other = sordino.fit_reward(answers, ball=20.0, engine=Backwards())
    assert np.array_equal(one.weights, other.weights)


def test_texts_are_fitted_like_one_file(tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    for file in range(2):
        with (raw / f"s{file}.jsonl").open("w") as out:
            for index in range(300):
                words = ["good", "bad"][:: 1 if (index + file) % 5 else -1]
                row = {"prompt": f"q{index} {file}", "chosen": words[0], "rejected": words[1]}
                out.write(json.dumps(row | {"person": f"p{index % 7}"}) + "\n")
    privatize_chunks(
        find_chunks(raw), tmp_path / "out", COIN, ledger=ledger_at(tmp_path), engine=InProcess()
    )
    features = HashedText(dimension=16)
    answers = find_chunks(tmp_path / "out", privatized=True)
    found = sordino.fit_reward(answers, features=features, ridge=5.0, ball=20.0)
    both = [sordino.read_pairs(path) for path in sorted((tmp_path / "out").glob("*.jsonl"))]
    designs = [Design.of(private, features) for private in both]
    rows = np.vstack([design.differences.toarray() for design in designs])
    whole = dataclasses.replace(
        designs[0],
        differences=rows,
        answers=np.concatenate([design.answers for design in designs]),
        questions=np.concatenate([design.questions for design in designs]),
        clusters=None,
    )
    wanted = fit_design(whole, ridge=5.0, ball=20.0, method="debiased").solution.theta
    assert np.linalg.norm(found.weights - wanted) <= 1e-6 * np.linalg.norm(wanted)


def test_a_repeat_counts_once_within_and_across_files(tmp_path):
    folder, answers = released(tmp_path, n=300, persons=True)
    once = sordino.fit_reward(answers, ridge=3.0, ball=20.0)
    (tmp_path / "again").mkdir()
    for path in [*folder.glob("*.parquet"), *folder.glob("*.json")]:
        (tmp_path / "again" / path.name).write_bytes(path.read_bytes())
    first = folder / "s0.parquet"
    copy = tmp_path / "again" / "t0.parquet"
    copy.write_bytes(first.read_bytes())
    manifest_path(copy).write_bytes(manifest_path(first).read_bytes())
    twice = sordino.fit_reward(
        find_chunks(tmp_path / "again", privatized=True), ridge=3.0, ball=20.0
    )
    assert twice.pairs == once.pairs
    assert twice.weights == pytest.approx(once.weights, rel=1e-9)


def test_a_file_without_its_manifest_is_refused(tmp_path):
    folder, answers = released(tmp_path, n=300)
    note = manifest_path(folder / "s1.parquet")
    kept = note.read_text()
    note.unlink()
    with pytest.raises(DataError, match=r"no s1\.manifest\.json"):
        sordino.fit_reward(answers, ball=20.0)
    note.write_text(manifest_path(folder / "s0.parquet").read_text())
    with pytest.raises(DataError, match="sha256 differs"):
        sordino.fit_reward(answers, ball=20.0)
    note.write_text(kept.replace('"randomized-at-ingestion"', '"labels-only"'))
    with pytest.raises(DataError, match="contradicts itself"):
        sordino.fit_reward(answers, ball=20.0)


def test_files_of_two_releases_are_refused(tmp_path):
    folder, _ = released(tmp_path, n=300)
    raw = find_chunks(tmp_path / "raw" / "s0.parquet")
    (tmp_path / "other").mkdir()
    privatize_chunks(
        raw,
        tmp_path / "two",
        sordino.RandomizedResponse(2.0),
        ledger=ledger_at(tmp_path / "other"),
        engine=InProcess(),
    )
    mixed = find_chunks([folder, tmp_path / "two"], privatized=True)
    with pytest.raises(DataError, match="disagree about epsilon"):
        sordino.fit_reward(mixed, ball=20.0)


def two_releases(tmp_path, *, persons):
    """Randomize files of one question twice, on ledgers that know nothing of each other."""
    (tmp_path / "together").mkdir()
    for name, files in (("a", 1), ("b", 2)):  # cut otherwise, so that no file is a copy
        (tmp_path / name).mkdir()
        raw = vectors(tmp_path / name / "raw", n=60, persons=persons, files=files)
        out = tmp_path / name / "out"
        privatize_chunks(raw, out, COIN, ledger=ledger_at(tmp_path / name), engine=InProcess())
        for path in out.iterdir():
            path.rename(tmp_path / "together" / f"{name}-{path.name}")
    return tmp_path / "together"


def test_two_releases_of_the_same_labels_in_one_folder_are_refused(tmp_path):
    folder = two_releases(tmp_path, persons=False)
    answers = find_chunks(folder, privatized=True)
    with pytest.raises(PrivacyError, match="several releases"):
        sordino.fit_reward(answers, ball=20.0)
    for note in folder.glob("*.manifest.json"):  # of one release each label is drawn once
        told = json.loads(note.read_text()) | {"release_id": "0123456789abcdef"}
        note.write_text(json.dumps(told))
    found = sordino.fit_reward(answers, ball=20.0)
    assert found.guarantee.caveats[-1] == "repeats-not-linked"
    one = find_chunks(list(folder.glob("b-*.parquet")), privatized=True)
    assert sordino.fit_reward(one, ball=20.0).guarantee.epsilon == COIN.realized_epsilon


def test_of_two_releases_one_answer_of_a_person_counts(tmp_path):
    folder = two_releases(tmp_path, persons=True)
    alone = find_chunks(sorted(folder.glob("a-*.parquet")), privatized=True)
    both = find_chunks(folder, privatized=True)
    one, two = (sordino.fit_reward(some, ridge=3.0, ball=20.0) for some in (alone, both))
    assert one.pairs == two.pairs == 60
    assert one.weights == pytest.approx(two.weights, rel=1e-9)


@pytest.mark.parametrize("wrong", [None, 7, "", "0123456789abcde", "0123456789ABCDEF", "g" * 16])
def test_a_release_has_a_random_name(tmp_path, wrong):
    folder, answers = released(tmp_path, n=300)
    note = manifest_path(folder / "s1.parquet")
    told = json.loads(note.read_text())
    note.write_text(json.dumps(told | {"release_id": wrong}))
    with pytest.raises(DataError, match="wrong type or value"):
        sordino.fit_reward(answers, ball=20.0)


def test_a_person_with_more_answers_than_promised_is_refused(tmp_path):
    folder, answers = released(tmp_path, n=300, persons=True, unit="person")
    found = sordino.fit_reward(answers, ball=20.0)
    assert found.guarantee.unit == "person"
    assert found.guarantee.epsilon == pytest.approx(3 * COIN.realized_epsilon)
    (tmp_path / "more").mkdir()
    other = vectors(tmp_path / "more" / "raw", n=300, d=5, persons=True)
    (tmp_path / "more" / "ledger").mkdir()
    # the same people on other questions: each release alone keeps its promise
    tables = [parquet.read_table(path) for path in sorted((tmp_path / "more" / "raw").iterdir())]
    for file, table in enumerate(tables):
        rows = np.stack(table["difference"].to_numpy()) + 1.0
        flat = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 5)
        changed = table.set_column(0, "difference", flat)
        parquet.write_table(changed, tmp_path / "more" / "raw" / f"s{file}.parquet")
    other = find_chunks(tmp_path / "more" / "raw")
    privatize_chunks(
        other,
        tmp_path / "more" / "out",
        COIN,
        ledger=ledger_at(tmp_path / "more" / "ledger", "person"),
        engine=InProcess(),
    )
    with pytest.raises(PrivacyError, match="does not cover"):
        sordino.fit_reward(
            find_chunks([folder, tmp_path / "more" / "out"], privatized=True), ball=20.0
        )


def test_raw_and_randomized_are_not_taken_for_each_other(tmp_path):
    folder, _ = released(tmp_path, n=300)
    raw = tmp_path / "raw"
    with pytest.raises(PrivacyError, match="privatized=True"):
        sordino.fit_reward(find_chunks(raw), ball=20.0)
    with pytest.raises(DataError, match=r"raw judgments|no s0.manifest"):
        sordino.fit_reward(find_chunks(raw, privatized=True), ball=20.0)
    for wrong, told in ((find_chunks(folder), False), (find_chunks(folder, privatized=True), True)):
        with pytest.raises((DataError, UsageError), match="randomized already"):
            privatize_chunks(
                wrong,
                tmp_path / f"twice-{told}",
                COIN,
                ledger=ledger_at(tmp_path),
                engine=InProcess(),
            )
    budget = sordino.Guarantee(
        5.0, delta=1e-6, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    ledger = sordino.Ledger.open(tmp_path / "central.db", data="a", budget=budget)
    answers = find_chunks(folder, privatized=True)
    with (
        survey_chunks(answers, InProcess()) as survey,
        pytest.raises(DataError, match="randomized already"),
    ):
        release_labels(survey, sordino.LabelGaussian(1.0, delta=1e-6), ledger=ledger)
    assert not ledger.spends


def test_the_sum_of_answers_is_the_debiased_one(tmp_path):
    _, answers = released(tmp_path, n=300)
    folder = tmp_path / "out"
    private = in_memory(folder)
    with survey_chunks(answers, InProcess()) as survey:
        rows = counted_vectors(survey, None, answers=True)
        known = evidence_of_answers(rows, None, private.flip_probability)
        f = private.flip_probability
        targets = (private.answers - f) / (1 - 2 * f)
        assert known.statistic == pytest.approx(private.given.T @ targets, rel=1e-12)
        assert known.feature_bound == pytest.approx(
            np.linalg.norm(private.given, axis=1).max() / 2, rel=1e-12
        )
