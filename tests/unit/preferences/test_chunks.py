"""Many files as chunks: the same records as one file gives, and clear refusals."""

import csv
import gzip
import json
import os

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from sordino.engines.engine import InProcess
from sordino.errors import DataError, FileSystemError, UsageError
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.preferences import chunks as module
from sordino.preferences.chunk_survey import survey_chunks
from sordino.preferences.chunks import find_chunks, judged_vectors, judgments
from sordino.preferences.features import HashedText
from sordino.preferences.pairs import Pairs, read_pairs
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee
from sordino.privacy.ledger import Ledger
from sordino.rewards.label_release import release_labels
from sordino.rewards.reward_fit import fit

pytestmark = pytest.mark.usefixtures("few_parts")


def rows(n, start=0, people=None):
    made = []
    for index in range(start, start + n):
        row = {"prompt": f"Question {index}?", "chosen": f"Good {index}.", "rejected": "Ünwell."}
        if people:
            row["person"] = f"p{index % people}"
        made.append(row)
    return made


def write_lines(path, records):
    text = "".join(json.dumps(row) + "\n" for row in records).encode()
    if path.suffix == ".gz":
        text = gzip.compress(text)
    path.write_bytes(text)
    return path


def write_vectors(path, differences, labels, *, people=None, group=7, fixed=True):
    d = differences.shape[1]
    flat = pa.array(np.ravel(differences))
    column = (
        pa.FixedSizeListArray.from_arrays(flat, d)
        if fixed
        else pa.array(differences.tolist(), type=pa.list_(pa.float32()))
    )
    columns = {"difference": column, "label": labels}
    if people is not None:
        columns["person"] = people
    parquet.write_table(pa.table(columns), path, row_group_size=group)
    return path


def everything(chunks):
    return [block for chunk in chunks for block in judgments(chunks, chunk)]


def surveyed(chunks, **settings):
    with survey_chunks(chunks, InProcess(), **settings) as found:
        left = {p.number: found.selection.left_out(p.number).tolist() for p in chunks}
        return found, {number: rows for number, rows in left.items() if rows}


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".parquet"])
def test_texts_are_the_records_of_one_file(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(module, "_LINES", 2)
    records = rows(40)
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(4):
        part, path = records[number * 10 :][:10], folder / f"{number}{suffix}"
        if suffix == ".parquet":
            parquet.write_table(pa.Table.from_pylist(part), path, row_group_size=3)
        else:
            write_lines(path, part)
    whole = read_pairs(records)
    found = find_chunks(folder)
    assert found.layout == "texts"
    if suffix == ".jsonl":
        assert len(found.chunks) > 8
    blocks = everything(found)
    assert tuple(key for block in blocks for key in block.keys) == whole.keys
    assert np.concatenate([block.labels for block in blocks]).tolist() == whole.labels.tolist()
    features = HashedText(dimension=32)
    vectors = [block.differences(features) for block in blocks]
    assert np.array_equal(
        np.concatenate([x.toarray() for x in vectors]), whole.differences(features).toarray()
    )


@pytest.mark.parametrize("chunk", [1, 2, 50, 1 << 20])
@pytest.mark.parametrize("size", range(1, 20, 3))
def test_no_line_is_lost_or_read_twice_wherever_a_file_is_cut(tmp_path, monkeypatch, size, chunk):
    monkeypatch.setattr(module, "_LINES", size)
    monkeypatch.setattr(module, "_CHUNK", chunk)
    records = rows(9)
    path = tmp_path / "a.jsonl"
    lines = [json.dumps(row, ensure_ascii=False) for row in records]
    path.write_text("\ufeff" + "\n\n".join(lines), encoding="utf-8")  # no newline at the end
    found = find_chunks(path)
    assert found.rows == 17  # of which eight are blank
    assert [chunk.start for chunk in found.chunks] == list(range(0, 17, size))
    assert [chunk.rows for chunk in found.chunks[:-1]] == [size] * (len(found.chunks) - 1)
    keys = [key for block in everything(found) for key in block.keys]
    assert tuple(keys) == read_pairs(records).keys


def write_other(path, records):
    """The same rows in a file of another kind, with what makes it hard to cut."""
    if path.suffix == ".csv":  # texts hold line ends and quotes, and the header does too
        with path.open("w", newline="", encoding="utf-8-sig") as file:
            file.write("\r\n")
            out = csv.DictWriter(file, [*records[0], 'no"te\n\nof'], restval="\n\n")
            out.writeheader()
            out.writerows(records)
        return
    table = pa.Table.from_pylist(records)
    if path.suffix == ".feather":
        table = table.set_column(0, "prompt", table.column("prompt").dictionary_encode())
    kind = pa.ipc.new_stream if path.stem == "stream" else pa.ipc.new_file
    with kind(str(path), table.schema) as file:
        file.write_table(table, max_chunksize=3)


@pytest.mark.parametrize(
    "name", ["a.csv", "a.arrow", "stream.arrow", "a.feather", "stream.feather", "a.csv.zst"]
)
def test_what_is_read_in_chunks_teaches_what_json_lines_teach(tmp_path, monkeypatch, name):
    """Wherever files of other kinds are cut: the same digest, and the same reward."""
    for constant, value in {"_LINES": 7, "_ROWS": 7, "_CHUNK": 5}.items():
        monkeypatch.setattr(module, constant, value)
    records = [row | {"chosen": f'"{row["chosen"]}"\n\r\n,'} for row in rows(24, people=9)]
    write_lines(tmp_path / "a.jsonl", records)
    path = tmp_path / name
    write_other(path.with_suffix("") if path.suffix == ".zst" else path, records)
    if path.suffix == ".zst":
        with pa.CompressedOutputStream(str(path), "zstd") as file:
            file.write(path.with_suffix("").read_bytes())
    taught = []
    for source in (tmp_path / "a.jsonl", path):
        found = find_chunks(source)
        budget = Guarantee(1.0, delta=1e-6, unit="label", neighbors=REPLACE_ONE, trust="central")
        ledger = Ledger.open(tmp_path / f"{source.name}.db", data="x", budget=budget)
        with survey_chunks(found, InProcess()) as survey:
            released = release_labels(
                survey, LabelGaussian(1.0, delta=1e-6), ledger=ledger,
                features=HashedText(dimension=8), simulate_seed=1,
            )  # fmt: skip
            reward = fit(released, ball=10.0).weights.tolist()
        taught.append((survey.n, survey.public_digest, reward))
    assert taught[0][:2] == taught[1][:2]
    # sums are rounded by where files are cut, and tables are cut where lines are
    assert taught[1][2] == (taught[0][2] if name == "a.csv" else pytest.approx(taught[0][2]))
    assert len(found) == (1 if name in ("stream.feather", "a.csv.zst") else 4)
    assert found.rows == (None if name.endswith("zst") else 24)
    keys = read_pairs(records).keys
    for size in range(1, 6):
        monkeypatch.setattr(module, "_LINES", size)
        assert tuple(key for one in everything(find_chunks(path)) for key in one.keys) == keys


@pytest.mark.parametrize("fixed", [True, False])
def test_vectors_are_those_of_from_features(tmp_path, fixed):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(50, 3)).astype(np.float32)
    y = rng.choice([0.0, 1.0, 0.5], size=50)
    for number in range(2):
        part = slice(number * 25, number * 25 + 25)
        write_vectors(tmp_path / f"{number}.parquet", x[part], y[part], fixed=fixed)
    whole = Pairs.from_features(x, y)
    found = find_chunks(tmp_path)
    assert (found.layout, found.dimension) == ("vectors", 3)
    lean = [block for chunk in found.chunks for block in judged_vectors(found, chunk)]
    assert np.array_equal(np.concatenate([x for x, _ in lean]), whole.given)
    assert np.concatenate([labels for _, labels in lean]).tolist() == whole.labels.tolist()
    assert tuple(key for block in everything(found) for key in block.keys) == whole.keys


def test_a_survey_says_what_one_file_would(tmp_path):
    records = rows(30, people=4)
    write_lines(tmp_path / "a.jsonl", records[:11] + records[:2])  # two are said twice, in one file
    write_lines(tmp_path / "b.jsonl", records[11:])
    found, left_out = surveyed(find_chunks(tmp_path))
    assert (found.n, found.counted, found.linked, found.repeats) == (32, 30, True, False)
    assert left_out == {0: [11, 12]}
    assert found.starts == (0, 13, 32)


@pytest.mark.parametrize("most", [1, 3])
def test_a_cap_leaves_the_same_questions_as_in_memory(tmp_path, most):
    """Which rows of a person count is decided by digests, so files do not matter."""
    from sordino.mechanisms.label_sum import counted_rows
    from sordino.rewards.label_release import countable_rows

    records = rows(40, people=3)
    pairs = read_pairs(records)
    used = counted_rows(len(pairs), pairs.persons, countable_rows(pairs), most)
    for number in range(4):
        write_lines(tmp_path / f"{number}.jsonl", records[number * 10 :][:10])
    found, left_out = surveyed(find_chunks(tmp_path), most=most)
    gone = [10 * chunk + row for chunk, rows in left_out.items() for row in rows]
    assert sorted(gone) == np.flatnonzero(~used).tolist()
    assert found.counted == 3 * most


def test_a_question_without_persons_may_occur_twice_and_is_told(tmp_path):
    write_lines(tmp_path / "a.jsonl", rows(5))
    write_lines(tmp_path / "b.jsonl", rows(5, 4))
    found, left_out = surveyed(find_chunks(tmp_path))
    assert (found.repeats, found.counted, left_out) == (True, 10, {})


def test_files_that_overlap_are_refused_by_name(tmp_path):
    write_lines(tmp_path / "a.jsonl", rows(6, people=2))
    write_lines(tmp_path / "b.jsonl", rows(6, start=5, people=1))
    write_lines(tmp_path / "c.jsonl", rows(6, start=4, people=2))
    with pytest.raises(DataError, match=r"a\.jsonl and c\.jsonl both hold"):
        surveyed(find_chunks(tmp_path))


def test_persons_in_some_files_only_are_refused(tmp_path):
    write_lines(tmp_path / "a.jsonl", rows(3))
    write_lines(tmp_path / "b.jsonl", rows(3, start=3, people=2))
    with pytest.raises(DataError, match=r"b\.jsonl: a person id"):
        surveyed(find_chunks(tmp_path))


def test_a_file_cut_short_is_named(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", rows(3))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"a\.jsonl: line 3: not valid JSON"):
        surveyed(find_chunks(path))
    table = write_vectors(tmp_path / "a.parquet", np.eye(3), [1, 0, 1])
    table.write_bytes(table.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"a\.parquet is no Parquet file"):
        find_chunks(table)


def test_a_page_that_is_damaged_is_named(tmp_path):
    table = write_vectors(
        tmp_path / "a.parquet", np.random.default_rng(0).normal(size=(500, 8)), [1] * 500
    )
    data = bytearray(table.read_bytes())
    data[4:64] = os.urandom(60)
    table.write_bytes(bytes(data))
    with pytest.raises(DataError, match=r"a\.parquet"):
        surveyed(find_chunks(table))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (np.where(x == 1, np.nan, x), y), "must be finite: row 0"),
        (lambda x, y: (x * 0, y), "row 0 is zero"),
        (lambda x, y: (x, [2, 0, 1]), "labels must be 0 or 1"),
        (lambda x, y: (x, [None, 0, 1]), "labels must be 0 or 1"),
    ],
)
def test_what_cannot_be_used_is_named_and_not_shown(tmp_path, change, message):
    x, y = change(np.eye(3), [1, 0, 1])
    write_vectors(tmp_path / "bad.parquet", x, y)
    with pytest.raises(DataError, match=rf"bad\.parquet: .*{message}"):
        surveyed(find_chunks(tmp_path))


def test_identical_answers_are_dropped_only_when_asked(tmp_path):
    same = {"prompt": "q", "chosen": "a", "rejected": "a"}
    write_lines(tmp_path / "a.jsonl", [same])
    write_lines(tmp_path / "b.jsonl", [*rows(2), same])
    with pytest.raises(DataError, match="both answers are the same"):
        surveyed(find_chunks(tmp_path))
    found, _ = surveyed(find_chunks(tmp_path, drop=["identical"]))
    assert (found.n, found.dropped) == (2, 2)


def test_places_that_cannot_be_read(tmp_path):
    with pytest.raises(FileSystemError, match=r"gone\.parquet cannot be read"):
        find_chunks(tmp_path / "gone.parquet")
    with pytest.raises(UsageError, match="No file to read"):
        find_chunks(tmp_path)
    with pytest.raises(FileSystemError, match=r"a\.csv"):
        find_chunks(tmp_path / "a.csv")
    one = write_lines(tmp_path / "a.jsonl", rows(1))
    with pytest.raises(UsageError, match="given twice"):
        find_chunks([one, one])
    os.link(one, tmp_path / "b.jsonl")
    with pytest.raises(UsageError, match="given twice"):
        find_chunks(tmp_path)
    write_vectors(tmp_path / "c.parquet", np.eye(2), [1, 0])
    with pytest.raises(UsageError, match="one kind at a time"):
        find_chunks([one, tmp_path / "c.parquet"])
    (tmp_path / "e.jsonl").touch()
    with pytest.raises(DataError, match="empty"):
        find_chunks(tmp_path / "e.jsonl")


def test_the_shuffle_leaves_nothing_behind(tmp_path):
    write_lines(tmp_path / "a.jsonl", rows(3, people=1))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with survey_chunks(find_chunks(tmp_path), InProcess(), most=1, scratch=scratch):
        [folder] = scratch.iterdir()
        assert folder.stat().st_mode & 0o077 == 0
        assert (folder / "left-out.npy").exists()
    assert list(scratch.iterdir()) == []
