"""What goes into a folder of privatized files, and what is refused before anything is spent."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import sordino
from sordino.engines.engine import InProcess
from sordino.errors import BudgetExceeded, DataError, FileSystemError, LedgerDamaged, UsageError
from sordino.preferences import chunks
from sordino.preferences.chunk_survey import survey_chunks
from sordino.preferences.chunks import find_chunks
from sordino.preferences.pairs import read_manifest
from sordino.privatization import chunks as module
from sordino.privatization.answers import plan_answers
from sordino.privatization.chunks import plan_chunks, privatize_chunks
from sordino.privatization.randomization import Randomization

COIN = sordino.RandomizedResponse(1.0)


@pytest.fixture(autouse=True)
def _small(monkeypatch, few_parts):
    """Cut files into many chunks, and bring people together in four parts."""
    monkeypatch.setattr(chunks, "_ROWS", 10)
    monkeypatch.setattr(chunks, "_LINES", 5)
    monkeypatch.setattr(chunks, "_RECORDS", 3)


def records(n, *, people=None, start=0):
    """Return judgments of a question each."""
    rows = []
    for index in range(start, start + n):
        row = {"prompt": f"Über {index}?", "chosen": f"Good {index}", "rejected": "Bad"}
        rows.append(row | ({"annotator": f"p{index % people}"} if people else {}))
    return rows


def write(path, rows):
    """Write JSON Lines, or a Parquet file of texts."""
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path, row_group_size=4)
        return path
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def run(given, out, ledger, **more):
    """Privatize in this process."""
    return privatize_chunks(given, out, COIN, ledger=ledger, engine=InProcess(), **more)


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".parquet"])
@pytest.mark.parametrize("people", [None, 3])
def test_every_file_has_its_answers_in_its_order(tmp_path, account, ending, people):
    for file in range(2):
        write(tmp_path / "raw" / f"s{file}{ending}", records(20, people=people, start=20 * file))
    field = "annotator" if people else "person"
    given = find_chunks(tmp_path / "raw", person_field=field)
    assert (len(given.chunks) > 2) == (ending != ".jsonl.gz")
    manifests = run(given, tmp_path / "out", account())
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["s0.jsonl", "s0.manifest.json", "s1.jsonl", "s1.manifest.json"]
    for file, manifest in enumerate(manifests):
        path = tmp_path / "out" / f"s{file}.jsonl"
        assert read_manifest(path) == manifest
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        assert [row["prompt"] for row in rows] == [f"Über {20 * file + at}?" for at in range(20)]
        fields = {"prompt", "first", "second", "answer"} | ({"person"} if people else set())
        assert {frozenset(row) for row in rows} == {frozenset(fields)}
        read = sordino.read_pairs(path)
        assert [read.first[at] for at in range(20)] == [row["first"] for row in rows]


@pytest.mark.parametrize("people", [None, 4])
def test_vectors_stay_vectors(tmp_path, account, people):
    (tmp_path / "raw").mkdir()
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(30, 3)).astype(np.float32)
    columns = {
        "difference": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 3),
        "label": np.ones(30),
        "secret": np.arange(30),
    }
    if people:
        columns["person"] = [f"p{index % people}" for index in range(30)]
    parquet.write_table(pa.table(columns), tmp_path / "raw" / "s.parquet", row_group_size=4)
    [manifest] = run(find_chunks(tmp_path / "raw"), tmp_path / "out", account())
    table = parquet.read_table(tmp_path / "out" / "s.parquet")
    assert table.column_names == ["difference", "answer", *(["person"] if people else [])]
    shown = np.stack(table["difference"].to_numpy())
    assert (shown[:, 0] > 0).all()  # so that no sign tells which was preferred
    assert np.array_equal(np.abs(shown), np.abs(rows.astype(float)))
    assert set(table["answer"].to_pylist()) == {0, 1}
    assert read_manifest(tmp_path / "out" / "s.parquet") == manifest
    if people:
        assert table["person"].to_pylist() == columns["person"]


def test_a_file_may_end_without_any_record(tmp_path, account):
    same = [{"prompt": "a", "chosen": "b", "rejected": "b"}]
    write(tmp_path / "raw" / "a.jsonl", same)
    write(tmp_path / "raw" / "b.jsonl", records(3))
    given = find_chunks(tmp_path / "raw", drop=["identical"])
    manifests = run(given, tmp_path / "out", account())
    assert (tmp_path / "out" / "a.jsonl").read_bytes() == b""
    assert len(manifests) == 2
    assert find_chunks(tmp_path / "out", privatized=True).chunks[-1].name == "b.jsonl"


def test_names_that_would_meet_are_refused(tmp_path, account):
    one = write(tmp_path / "a" / "s.jsonl", records(3))
    other = write(tmp_path / "b" / "s.jsonl.gz", records(3, start=3))
    with pytest.raises(UsageError, match=r"both be called s\.jsonl"):
        run(find_chunks([one, other]), tmp_path / "out", account())


def test_answers_do_not_lie_among_the_judgments(tmp_path, account):
    write(tmp_path / "raw" / "s.jsonl", records(3))
    raw = (tmp_path / "raw" / "s.jsonl").read_bytes()
    with pytest.raises(UsageError, match="among the raw"):
        run(find_chunks(tmp_path / "raw"), tmp_path / "raw", account(), force=True)
    assert (tmp_path / "raw" / "s.jsonl").read_bytes() == raw


def test_a_second_run_is_refused_and_pays_again_if_forced(tmp_path, account):
    write(tmp_path / "raw" / "s.jsonl", records(20))
    given, ledger = find_chunks(tmp_path / "raw"), account()
    run(given, tmp_path / "out", ledger)
    before = (tmp_path / "out" / "s.jsonl").read_bytes()
    with pytest.raises(UsageError, match="exists already"):
        run(given, tmp_path / "out", ledger)
    assert len(ledger.spends) == 1
    run(given, tmp_path / "out", ledger, force=True)
    assert len(ledger.spends) == 2
    assert (tmp_path / "out" / "s.jsonl").read_bytes() != before


def test_files_of_others_are_not_mixed_with_answers(tmp_path, account):
    write(tmp_path / "raw" / "s.jsonl", records(3))
    write(tmp_path / "out" / "older.jsonl", records(3))
    with pytest.raises(UsageError, match=r"older\.jsonl lies in the folder"):
        run(find_chunks(tmp_path / "raw"), tmp_path / "out", account(), force=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileSystemError, match="no folder"):
        run(find_chunks(tmp_path / "raw"), tmp_path / "file", account())


def test_a_plan_says_what_a_run_spends_and_touches_nothing(tmp_path, account):
    write(tmp_path / "raw" / "s.jsonl", records(20, people=3))
    given = find_chunks(tmp_path / "raw", person_field="annotator")
    for unit, spend in (("label", 1.0), ("person", 7.0)):
        ledger = account(unit)
        randomization = Randomization(COIN, ledger, on_device=False, simulate_seed=None)
        plan = plan_chunks(given, randomization, engine=InProcess())
        pairs = sordino.read_pairs(tmp_path / "raw" / "s.jsonl", person_field="annotator")
        assert plan == plan_answers(pairs, randomization)
        assert plan["spend"] == pytest.approx(spend)
        assert sorted(path.name for path in ledger.path.parent.iterdir()) == ["spend.db"]
        assert len(ledger.rows) == 1
        run(given, tmp_path / f"out-{unit}", ledger)
        assert ledger.total().epsilon == pytest.approx(plan["spend"])
        after = plan_chunks(given, randomization, engine=InProcess())
        assert after["spend"] == 0


@pytest.mark.parametrize("people", [None, 3])
def test_files_that_were_surveyed_are_read_once_less(tmp_path, account, monkeypatch, people):
    write(tmp_path / "raw" / "s.jsonl", records(20, people=people))
    given = find_chunks(tmp_path / "raw", person_field="annotator" if people else "person")
    read, honest = [], chunks._rows
    monkeypatch.setattr(
        chunks, "_rows", lambda *chunk: read.append(chunk[1].number) or honest(*chunk)
    )
    passes, found = [], []
    with survey_chunks(given, InProcess()) as surveyed:
        for more in ({}, {"surveyed": surveyed}):
            read.clear()
            out = tmp_path / f"out-{len(found)}"
            run(given, out, account(), simulate_seed=1, **more)
            passes.append(len(read) / len(given.chunks))
            found.append((out / "s.jsonl").read_bytes())
    assert passes == ([3, 2] if people else [2, 1])
    assert found[0] == found[1]


@pytest.mark.parametrize("people", [None, 3])
def test_files_that_changed_since_they_were_surveyed_are_refused(tmp_path, account, people):
    """Nothing is spent, whether a file holds other bytes now or was found anew."""
    path = write(tmp_path / "raw" / "s.jsonl", records(20, people=people))
    name = "annotator" if people else "person"
    given, ledger = find_chunks(tmp_path / "raw", person_field=name), account()
    with survey_chunks(given, InProcess()) as surveyed:
        write(path, records(20, people=people, start=1))
        with pytest.raises(DataError, match=r"s\.jsonl changed"):
            run(given, tmp_path / "out", ledger, surveyed=surveyed)
        again = find_chunks(tmp_path / "raw", person_field=name)
        with pytest.raises(UsageError, match="surveyed must be"):
            run(again, tmp_path / "out", ledger, surveyed=surveyed)
        randomization = Randomization(COIN, ledger, on_device=False, simulate_seed=None)
        with pytest.raises(UsageError, match="surveyed must be"):
            plan_chunks(again, randomization, engine=InProcess(), surveyed=surveyed)
    assert len(ledger.rows) == 1
    assert not list((tmp_path / "out").glob("*"))


def test_a_cap_or_a_budget_for_persons_needs_persons(tmp_path, account):
    write(tmp_path / "raw" / "s.jsonl", records(3))
    given = find_chunks(tmp_path / "raw")
    with pytest.raises(DataError, match="no person ids"):
        run(given, tmp_path / "out", account("person"))
    with pytest.raises(DataError, match="no person ids"):
        run(given, tmp_path / "out", account(), cap=2)
    assert not (tmp_path / "out").exists()


def test_nothing_is_spent_on_what_cannot_be_written_or_paid(tmp_path, account):
    write(tmp_path / "raw" / "s.jsonl", records(3))
    given, ledger = find_chunks(tmp_path / "raw"), account(epsilon=0.5)
    with pytest.raises(BudgetExceeded):
        run(given, tmp_path / "out", ledger)
    with pytest.raises(FileSystemError):
        run(given, tmp_path / "raw" / "s.jsonl" / "out", account())
    with pytest.raises(UsageError, match="engine must be"):
        privatize_chunks(given, tmp_path / "out", COIN, ledger=ledger, engine=object())
    with pytest.raises(UsageError, match="find_chunks"):
        run([tmp_path], tmp_path / "out", ledger)


def test_a_damaged_memo_is_named(tmp_path, account):
    write(tmp_path / "raw" / "s.jsonl", records(6, people=3))
    given, ledger = find_chunks(tmp_path / "raw", person_field="annotator"), account()
    run(given, tmp_path / "out", ledger)
    folder = ledger.path.with_suffix(".memo")
    next(folder.glob("000-*.npy")).write_bytes(b"nonsense")
    with pytest.raises(LedgerDamaged, match="000-"):
        run(given, tmp_path / "two", ledger)
    for path in folder.glob("settings.json"):
        path.unlink()
    with pytest.raises(LedgerDamaged, match="lacks its settings"):
        run(given, tmp_path / "two", ledger)


def test_only_the_user_can_read_what_lies_between(tmp_path, account, monkeypatch):
    write(tmp_path / "raw" / "s.jsonl", records(6, people=3))
    given, ledger = find_chunks(tmp_path / "raw", person_field="annotator"), account()
    seen = []
    honest = module.AnswerChunk.__call__

    def seeing(self, work):
        seen.append([path.stat().st_mode & 0o777 for path in (tmp_path / "out").glob(".sordino-*")])
        return honest(self, work)

    monkeypatch.setattr(module.AnswerChunk, "__call__", seeing)
    run(given, tmp_path / "out", ledger)
    assert {tuple(modes) for modes in seen} == {(0o700,)}
    assert ledger.path.with_suffix(".memo").stat().st_mode & 0o777 == 0o700
