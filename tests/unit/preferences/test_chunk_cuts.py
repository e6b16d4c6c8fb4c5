"""Nothing that is said of many files depends on how a label is spelled; no value is in an error."""

import gzip
import json
import os
import shutil
import traceback
from functools import reduce
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.tiers import few

import sordino
from sordino.engines.engine import InProcess
from sordino.errors import DataError, EngineError, SordinoError, UsageError
from sordino.mechanisms.label_sum import ChunkedLabels, LabelGaussian
from sordino.preferences import chunks as module
from sordino.preferences.chunk_survey import ChunkSurvey, survey_chunks
from sordino.preferences.chunks import find_chunks, judgments
from sordino.preferences.parquet import _row_batches
from sordino.rewards.evidence import counted_vectors
from sordino.runs.settings import ManyFiles
from sordino.runs.tables import _files_rows as files_rows

pytestmark = pytest.mark.usefixtures("few_parts")
CANARY = "xylophone-canary"


def row(index, label=1, **more):
    return {"prompt": f"q{index}", "first": f"yes {index}", "second": "no", "label": label, **more}


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    return path


def table(path, columns, names=None, **how):
    arrays = pa.table(columns) if names is None else pa.Table.from_arrays(columns, names=names)
    parquet.write_table(arrays, path, **how)
    return path


def lists(n, d=2):
    return pa.FixedSizeListArray.from_arrays(pa.array(np.arange(1.0, d * n + 1)), d)


def surveyed(sources, engine=None, *, most=None, hold_out=False, **reading):
    chunks = find_chunks(sources, **reading)
    with survey_chunks(chunks, engine or InProcess(), most=most, hold_out=hold_out) as found:
        return found


# --- one label decides nothing but the noised sum ---


def geometry(path):
    """All that is public of a release, and its noise's shape."""
    with survey_chunks(find_chunks(path), InProcess()) as found:
        rows = counted_vectors(found, sordino.HashedText(dimension=16))
        design = ChunkedLabels.prepare(LabelGaussian(1.0, delta=1e-6), rows)
        told = found.n, found.starts, found.public_digest, found.digests
        cuts = [(chunk.start, chunk.rows) for chunk in found.chunks]
        return told, cuts, design.ellipsoid.unwhiten.tobytes()


@pytest.mark.parametrize("at", few([0, 7, 59], 7))
def test_how_a_label_is_spelled_moves_no_cut(tmp_path, monkeypatch, at):
    """Chunks of bytes would be cut elsewhere: sums are then rounded otherwise."""
    monkeypatch.setattr(module, "_LINES", 8)
    monkeypatch.setattr(module, "_CHUNK", 100)
    pad = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"]
    rows = [{**row(i), "first": " ".join(pad[i % 7 :: 1 + i % 3])} for i in range(60)]
    found = []
    for label in (1, "tie (bothbad)"):
        rows[at]["label"] = label
        found.append(geometry(write(tmp_path / f"{len(found)}" / "a.jsonl", rows)))
    assert found[0] == found[1]
    assert [rows for _, rows in found[0][1]] == [8] * 7 + [4]


def test_no_more_row_groups_are_asked_for_at_once_than_fill_a_batch(tmp_path):
    """Of all that it was asked for pyarrow keeps what it read: memory grew with the file."""
    rows = {"x": list(range(23))}
    path, asked = table(tmp_path / "a.parquet", rows, row_group_size=3), []
    with parquet.ParquetFile(path) as file:

        def iter_batches(size, *, row_groups, **how):
            asked.append(row_groups)
            return file.iter_batches(size, row_groups=row_groups, **how)

        watched = SimpleNamespace(metadata=file.metadata, iter_batches=iter_batches)
        found = [batch.column(0).to_pylist() for batch in _row_batches(watched, range(1, 8), 6)]
    assert [one for some in found for one in some] == list(range(3, 23))
    assert max(map(len, found)) <= 6
    assert asked == [[1, 2], [3, 4], [5, 6], [7]]


# --- vectors of texts are made once ---


def test_texts_are_read_once_for_all_passes_and_labels_lie_hidden(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_LINES", 24)
    chunks = find_chunks(write(tmp_path / "a.jsonl", [row(i, int(i % 60 > 2)) for i in range(60)]))
    read, made = ChunkSurvey.read, []
    monkeypatch.setattr(ChunkSurvey, "read", lambda *a: made.append(a) or read(*a))
    with survey_chunks(chunks, InProcess()) as found:
        rows = counted_vectors(found, sordino.HashedText(dimension=40))
        passes = [[block for chunk in chunks for block in rows.read(chunk)] for _ in range(3)]
        assert len(made) == len(chunks) == 3
        files = sorted(Path(found.folder).glob("*.vectors"))
        with files[0].open("rb") as file:
            np.load(file)
            hidden = np.load(file)
    assert len(made) == 3
    fresh = [block for chunk in chunks for block in rows.read(chunk)]  # the folder is gone
    assert len(made) == 6
    for some in passes:
        for one, other in zip(some, fresh, strict=True):
            assert one[0] == other[0]
            np.testing.assert_array_equal(one[1].toarray(), other[1].toarray())
            np.testing.assert_array_equal(one[2], other[2])
    assert len(hidden) == len(fresh[0][2]) == 24
    assert {*fresh[0][2].tolist()} < {0, 1, 2}
    assert len({*hidden.tolist()}) > 8


def test_other_texts_than_were_surveyed_are_not_kept(tmp_path, monkeypatch):
    """Also where clocks were set back, so that nothing else tells."""
    path = write(tmp_path / "a.jsonl", [row(i) for i in range(9)])
    monkeypatch.setattr(module.Chunk, "refuse_change", lambda self: None)
    with survey_chunks(find_chunks(path), InProcess()) as found:
        write(path, [row(i + (i == 8)) for i in range(9)])
        rows = counted_vectors(found, sordino.HashedText(dimension=16))
        with pytest.raises(DataError, match=r"a\.jsonl changed while it was read"):
            list(rows.read(found.chunks[0]))
        assert not list(Path(found.folder).glob("*vectors*"))


def test_a_place_in_a_later_chunk_is_that_in_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_LINES", 4)
    path = write(tmp_path / "a.jsonl", [*map(row, range(9)), {**row(9), "label": CANARY}])
    with pytest.raises(DataError, match=r"a\.jsonl: line 10: field 'label'"):
        surveyed(path)
    monkeypatch.setattr(module, "_ROWS", 3)
    columns = {name: [row(i)[name] for i in range(9)] for name in ("prompt", "first", "second")}
    labels = [1] * 8 + [3]
    made = table(tmp_path / "a.parquet", {**columns, "label": labels}, row_group_size=2)
    with pytest.raises(DataError, match=r"a\.parquet: row 8: field 'label'"):
        surveyed(made)


# --- the public digest ---


def digest(tmp_path, *files, **reading):
    """The digest of records in files."""
    shutil.rmtree(tmp_path / "in", ignore_errors=True)
    paths = [write(tmp_path / "in" / name, rows) for name, rows in files]
    return surveyed(paths, **reading).public_digest


@pytest.mark.parametrize("people", few([None, 3], 3))
def test_the_digest_is_of_all_records_however_they_lie(tmp_path, monkeypatch, people):
    known = [{} if people is None else {"person": f"p{i % people}"} for i in range(20)]
    rows = [row(i, i % 2, **known[i]) for i in range(20)]
    same = {"prompt": "q", "first": "a", "second": "a", "label": 1, **known[0]}
    whole = digest(tmp_path, ("a.jsonl", rows))
    assert digest(tmp_path, ("a.jsonl.gz", rows)) == whole
    assert digest(tmp_path, ("a.jsonl", rows[::-1])) == whole
    assert digest(tmp_path, ("a.jsonl", rows[7:]), ("b.jsonl", rows[:7])) == whole
    monkeypatch.setattr(module, "_LINES", 3)
    assert digest(tmp_path, ("a.jsonl", rows)) == whole
    assert digest(tmp_path, ("a.jsonl", rows), hold_out=True) == whole
    other = [rows[:-1], [*rows, rows[0]], [*rows[:-1], {**rows[-1], "prompt": "another"}]]
    other += [[*rows[:-1], {**rows[-1], "second": "another"}]]
    if people:
        other += [[*rows[:-1], {**rows[-1], "person": "another"}]]
    found = [digest(tmp_path, ("a.jsonl", some)) for some in other]
    left_out = {"drop": ["identical"]}
    found += [digest(tmp_path, ("a.jsonl", [*rows, *[same] * k]), **left_out) for k in (1, 2)]
    found += [digest(tmp_path, ("a.jsonl", [*rows, {**same, "prompt": "z"}]), **left_out)]
    assert len({whole, *found}) == 1 + len(found)


def test_files_of_vectors_have_a_digest_that_no_cut_changes(tmp_path, monkeypatch):
    x, y = np.random.default_rng(0).normal(size=(30, 2)), [0, 1] * 15
    column = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 2)
    path = table(tmp_path / "a.parquet", {"difference": column, "label": y}, row_group_size=5)
    whole = surveyed(path)
    monkeypatch.setattr(module, "_ROWS", 10)
    cut = surveyed(path)
    assert (len(whole.chunks), len(cut.chunks)) == (1, 3)
    assert cut.public_digest == whole.public_digest
    assert cut.starts == (0, 10, 20, 30)


def test_the_digest_does_not_depend_on_the_order_of_files_or_on_labels(tmp_path):
    """A ledger knows its data by it, so no label may move it."""
    one, two = (
        write(tmp_path / f"{at}.jsonl", [row(5 * at + k) for k in range(5)]) for at in (0, 1)
    )
    forward = surveyed([one, two]).public_digest
    assert surveyed([two, one]).public_digest == forward
    write(one, [row(k, label=0) for k in range(5)])
    assert surveyed([one, two]).public_digest == forward
    write(one, [row(k) for k in range(4)])
    assert surveyed([one, two]).public_digest != forward


# --- files that change ---


def test_a_file_of_equal_size_and_time_is_another(tmp_path):
    path = write(tmp_path / "a.jsonl", map(row, range(3)))
    found, before = find_chunks(path), path.stat()
    path.write_bytes(path.read_bytes().replace(b"no", b"so"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    with pytest.raises(DataError, match=r"a\.jsonl changed"), survey_chunks(found, InProcess()):
        pass
    again = find_chunks(path)
    copy = shutil.copy2(path, tmp_path / "copy.jsonl")
    os.replace(copy, path)  # noqa: PTH105
    with pytest.raises(DataError, match=r"a\.jsonl changed"), survey_chunks(again, InProcess()):
        pass


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_what_is_appended_while_files_are_cut_is_noticed(tmp_path, monkeypatch, kind):
    if kind == "jsonl":
        path, reader = write(tmp_path / "a.jsonl", map(row, range(3))), "_spans"
    else:
        path, reader = table(tmp_path / "a.parquet", {"difference": lists(1), "label": [1]}), ""
        reader = "row_groups"
    honest = getattr(module, reader)

    def late(file, *settings):
        found = honest(file, *settings)
        with file.open("a") as more:
            more.write(json.dumps(row(9)) + "\n")
        return found

    monkeypatch.setattr(module, reader, late)
    found = find_chunks(path)
    with pytest.raises(DataError, match="changed"), survey_chunks(found, InProcess()):
        pass


# --- files that would be left out, or counted twice ---


def test_a_copy_under_another_name_is_refused(tmp_path):
    rows = list(map(row, range(30)))
    for name in ("a.jsonl", "a.jsonl.gz"):
        write(tmp_path / name, rows)
    with pytest.raises(DataError, match=r"a\.jsonl and a\.jsonl\.gz hold the same questions"):
        surveyed(tmp_path)
    write(tmp_path / "a.jsonl.gz", [*rows[:-1], row(30)])
    assert surveyed(tmp_path).repeats
    write(tmp_path / "a.jsonl.gz", rows[:-1])
    assert surveyed(tmp_path).repeats


def test_a_copy_is_found_wherever_it_is_cut_and_named_by_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_LINES", 4)
    rows = list(map(row, range(30)))
    one, other = write(tmp_path / "one" / "a.jsonl", rows), tmp_path / "other" / "a.jsonl"
    write(other, rows[13:] + rows[:13])
    between = write(tmp_path / "b.jsonl", map(row, range(30, 60)))
    with pytest.raises(DataError, match=r"one/a\.jsonl and other/a\.jsonl hold the same"):
        surveyed([one, between, other])


@pytest.mark.parametrize("name", ["c.xlsx", "year=2025/b.jsonl", "x/y/b.JSON"])
def test_what_looks_like_data_is_not_left_out_silently(tmp_path, name):
    write(tmp_path / "a.jsonl", [row(0)])
    write(tmp_path / name, [row(1)])
    with pytest.raises(SordinoError, match=rf"^{name.split('/')[0]} .*Nothing was read"):
        find_chunks(tmp_path)


@pytest.mark.parametrize("name", ["c.JSONL", "c.jsonl.GZ", "c.json", "c.ndjson"])
def test_every_container_in_a_folder_is_read(tmp_path, name):
    write(tmp_path / "a.jsonl", [row(0)])
    lines = (json.dumps(row(1)) + "\n").encode()
    (tmp_path / name).write_bytes(gzip.compress(lines) if name.endswith("GZ") else lines)
    chunks = find_chunks(tmp_path)
    assert sum(len(pairs) for chunk in chunks for pairs in judgments(chunks, chunk)) == 2


def test_what_does_not_look_like_data_is_left_out(tmp_path):
    write(tmp_path / "a.jsonl", [row(0)])
    left_out = ["notes.txt", "a.manifest.json", "_SUCCESS.json", ".b.jsonl", "x/notes.txt"]
    left_out += [".work/b.jsonl", "_temporary/b.jsonl", "x/.hidden/b.jsonl", "x/a.manifest.json"]
    for name in left_out:
        write(tmp_path / name, [row(1)])
    (tmp_path / "g.jsonl").mkdir()
    assert [chunk.name for chunk in find_chunks(tmp_path).chunks] == ["a.jsonl"]


def test_empty_files_of_every_kind_are_read(tmp_path):
    write(tmp_path / "texts" / "a.jsonl", [row(0)])
    for name, data in (("b.jsonl", b""), ("c.jsonl.gz", b""), ("d.jsonl.gz", gzip.compress(b""))):
        (tmp_path / "texts" / name).write_bytes(data)
    (tmp_path / "texts" / "e.jsonl.gz").write_bytes(gzip.compress(b"\n \n"))
    (tmp_path / "texts" / "f.jsonl").write_bytes(b"\n \n")
    assert surveyed(tmp_path / "texts").n == 1
    (tmp_path / "vectors").mkdir()
    for name, x in (("a", []), ("b", [[1.0, 2.0]]), ("c", []), ("d", [[3.0, 4.0]])):
        column = pa.array(x, pa.list_(pa.float64()))
        labels = pa.array([1] * len(x), pa.int64())
        table(tmp_path / "vectors" / f"{name}.parquet", {"difference": column, "label": labels})
    found = surveyed(tmp_path / "vectors")
    assert (found.n, found.chunks.dimension) == (2, 2)
    with pytest.raises(DataError, match="empty"):
        find_chunks(tmp_path / "vectors" / "a.parquet")
    wider = pa.array([[1.0, 2.0, 3.0]], pa.list_(pa.float64()))
    table(tmp_path / "vectors" / "e.parquet", {"difference": wider, "label": [1]})
    with pytest.raises(DataError, match=r"e\.parquet has other columns"):
        find_chunks(tmp_path / "vectors")


def test_a_packed_file_that_is_cut_short_is_named(tmp_path):
    path = write(tmp_path / "a.jsonl.gz", map(row, range(300)))
    whole = path.read_bytes()
    for kept in (5, len(whole) // 2):
        path.write_bytes(whole[:kept])
        with pytest.raises(DataError, match=r"a\.jsonl\.gz: after line \d+: the file is not valid"):
            surveyed(path)


# --- persons ---


def test_a_person_field_that_was_named_is_there(tmp_path):
    columns = {"difference": lists(4), "label": [1, 0, 1, 0], "annotator": ["p"] * 4}
    path = table(tmp_path / "v.parquet", columns)
    assert surveyed(path, person_field="annotator").linked
    assert not surveyed(path).linked
    with pytest.raises(DataError, match=r"v\.parquet: the person field 'anotator' is missing"):
        surveyed(path, person_field="anotator")


@pytest.mark.parametrize(
    ("column", "field"), [("labels", "person"), ("persons", "person"), ("raters", "rater")]
)
def test_lists_beside_vectors_are_refused(tmp_path, column, field):
    columns = {"difference": lists(2), "label": [1, 0], column: [["p"], ["q"]]}
    path = table(tmp_path / "v.parquet", {**columns, field: ["p", "q"]})
    with pytest.raises(DataError, match=rf"v\.parquet: column '{column}' is not read beside"):
        find_chunks(path, person_field=field)


@pytest.mark.parametrize("field", ["label", "answer", "chosen"])
def test_labels_are_no_person_ids(tmp_path, field):
    """Person ids are published."""
    path = table(tmp_path / "v.parquet", {"difference": lists(2), "label": [1, 0]})
    with pytest.raises(UsageError, match="person ids are published"):
        find_chunks(path, person_field=field)


# --- columns that cannot be read ---


def broken(text):
    """A column of one text that is no UTF-8."""
    offsets = np.array([0, len(text)], np.int32).tobytes()
    return pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def texts(n, **more):
    return {"prompt": [f"q{i}" for i in range(n)], "first": ["a"] * n, "second": ["b"] * n, **more}


BROKEN = broken(CANARY.encode() + b"\xff")
MARS = pa.timestamp("us", tz="Mars/Phobos")
COLUMNS = {
    "date": ("label", texts(2, label=pa.array([86400000 * 10**9, 0], pa.date64()))),
    "prompt": ("prompt", {**texts(1, label=[1]), "prompt": BROKEN}),
    "person": ("person", texts(1, label=[1], person=BROKEN)),
    "label": ("label", texts(1, label=BROKEN)),
    "zone": ("label", texts(1, label=pa.array([1], MARS))),
    "vector struct": ("label", {"difference": lists(2), "label": pa.array([{"a": 1}, {"a": 0}])}),
    "vector list": ("label", {"difference": lists(2), "label": pa.array([[1], [0, 1]])}),
    "vector text": ("label", {"difference": lists(2), "label": ["1", CANARY]}),
    "vector label": ("label", {"difference": lists(1), "label": BROKEN}),
    "vector person": ("person", {"difference": lists(1), "label": [1], "person": BROKEN}),
    "map": (
        "difference",
        {"difference": pa.array([[(1, 2.0)]], pa.map_(pa.int32(), pa.float64())), "label": [1]},
    ),
    "nested": ("difference", {"difference": [[[1.0], [2.0]]], "label": [1]}),
    "words": ("difference", {"difference": [["1.5", CANARY]], "label": [1]}),
    "number": ("difference", {"difference": [1.5], "label": [1]}),
    "missing": ("difference", {"difference": [[1.0, 2.0], None], "label": [1, 0]}),
    "missing number": ("difference", {"difference": [[1.0, 2.0], [1.0, None]], "label": [1, 0]}),
}


@pytest.mark.parametrize("case", COLUMNS)
def test_errors_name_the_column_and_hold_no_value(tmp_path, case):
    name, columns = COLUMNS[case]
    table(tmp_path / "t.parquet", columns)
    with pytest.raises(DataError, match=rf"^t\.parquet: .*'{name}'") as refused:
        surveyed(tmp_path)
    error = refused.value
    while error is not None:
        assert isinstance(error, DataError)
        assert CANARY not in repr(vars(error)) + repr(error.args)
        assert error.__cause__ is None
        error = error.__context__
    assert CANARY not in "".join(traceback.format_exception_only(refused.value))


@pytest.mark.parametrize("kind", ["texts", "vectors"])
def test_a_column_that_is_there_twice_is_refused(tmp_path, kind):
    columns = texts(1) if kind == "texts" else {"difference": lists(1)}
    arrays = [*map(pa.array, columns.values())] if kind == "texts" else [lists(1)]
    names = [*columns, "label", "label"]
    table(tmp_path / "t.parquet", [*arrays, pa.array([1]), pa.array([0])], names)
    with pytest.raises(DataError, match=r"t\.parquet: two columns have the same name"):
        find_chunks(tmp_path)


@pytest.mark.parametrize(
    "labels",
    [
        pa.array([1, 0, 1]).dictionary_encode(),
        pa.array([True, False, True]),
        pa.array(["1.0", "0.0", "1.0"]).cast(pa.decimal128(3, 1)),
        pa.array([1, 0, 1], pa.float16()) if hasattr(pa, "float16") else pa.array([1.0, 0.0, 1.0]),
    ],
    ids=["dictionary", "bool", "decimal", "half"],
)
def test_numbers_of_many_types_are_labels(tmp_path, labels):
    path = table(tmp_path / "t.parquet", {"difference": lists(3), "label": labels})
    chunks = find_chunks(path)
    [pairs] = judgments(chunks, chunks[0])
    assert pairs.labels.tolist() == [1, 0, 1]


# --- an engine that loses or repeats ---


class Careless:
    """An engine that changes the list of parts of one of the two sums of a survey."""

    def __init__(self, change, parts):
        self.change, self.parts = change, parts

    def fold(self, chunks, task, add, *, taken=None):
        parts = [task(chunk) for chunk in chunks]
        if (len(parts) == 4) == self.parts:
            parts = self.change(parts, task, chunks)
        return reduce(add, parts)


CHANGES = {
    "lost": lambda parts, *_: parts[1:],
    "twice": lambda parts, task, chunks: [*parts, task(chunks[0])],
    "one for another": lambda parts, task, chunks: [*parts[1:], task(chunks[1])],
}


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("how", CHANGES)
def test_an_engine_that_loses_or_repeats_is_noticed(tmp_path, how, parts):
    for file in range(3):
        rows = [row(10 * file + i, person=f"p{i % 4}") for i in range(10)]
        write(tmp_path / f"{file}.jsonl", rows)
    assert surveyed(tmp_path, Careless(lambda parts, *_: parts, parts=parts), most=1).counted == 4
    with pytest.raises(EngineError, match="Nothing was released"):
        surveyed(tmp_path, Careless(CHANGES[how], parts), most=1)


# --- what a plan prints ---


def test_a_plan_does_not_tell_how_long_labels_are(tmp_path):
    said = []
    for label in (1, "tie (bothbad)"):
        write(tmp_path / "a.jsonl", [row(i, label if i == 3 else 1) for i in range(50)])
        plan = ManyFiles().describe_files(find_chunks(tmp_path), passes=18)
        said.append((plan, files_rows(plan)))
    assert said[0] == said[1]
    assert said[0][0]["rows"] == 50
    assert "900 rows read" in said[0][1]["passes"]
    write(tmp_path / "b.jsonl.gz", [row(60)])
    plan = ManyFiles().describe_files(find_chunks(tmp_path), passes=18)
    assert plan["rows"] is None
    assert "packed" in files_rows(plan)["files"]
