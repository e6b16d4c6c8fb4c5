"""JSON Lines in every dress, and what a privatized file and its manifest look like."""

import gzip
import json
from pathlib import Path

import pytest

from sordino._files import sha256_of
from sordino.errors import DataError, FileSystemError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences import containers as files
from sordino.preferences.containers import every_line
from sordino.preferences.files import (
    COMPARISONS,
    line_of,
    read_rows,
    records_of,
)
from sordino.preferences.pairs import Manifest, manifest_path, read_manifest, read_pairs, stem
from sordino.preferences.records import _parse_record

ROWS = [
    {"prompt": "1", "chosen": "a", "rejected": "b"},
    {"prompt": "😀", "chosen": "c\u2028", "rejected": "d\r\n"},
    {"prompt": "3 é", "chosen": "e\x85", "rejected": "f\x0b"},
]
LINES = [json.dumps(row, ensure_ascii=False) for row in ROWS]
DATA = Path(__file__).parents[4] / "shared" / "data"


def read_records(path, *, person_field="person", **how):
    """Yield the records of a file, one at a time."""
    rows = COMPARISONS.rows(path, person_field=person_field, **how)
    return records_of(rows, person_field=person_field)


def seen(path):
    return [(row.prompt, {row.first, row.second}) for row in read_records(path)]


EXPECTED = [(row["prompt"], {row["chosen"], row["rejected"]}) for row in ROWS]
DRESSES = {
    "plain": "\n".join(LINES) + "\n",
    "no last line feed": "\n".join(LINES),
    "CRLF": "\r\n".join(LINES) + "\r\n",
    "blank lines": "\n\n" + " \t \n".join(line + "\n" for line in LINES) + "\n\n",
    "BOM": "\ufeff" + "\n".join(LINES),
    "escaped": "\n".join(json.dumps(row) for row in ROWS),
    "spaces around": "\n".join(f"  {line}\t" for line in LINES),
}


@pytest.mark.parametrize("text", DRESSES.values(), ids=DRESSES)
@pytest.mark.parametrize("packed", [False, True])
def test_dresses(tmp_path, text, packed):
    path = tmp_path / ("x.jsonl.gz" if packed else "x.jsonl")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    assert seen(path) == EXPECTED


def test_a_mark_in_the_middle_is_no_byte_order_mark(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(LINES[0] + "\n\ufeff" + LINES[1])
    with pytest.raises(DataError, match="line 2"):
        seen(path)


def test_the_longest_line_is_refused_one_byte_later(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 100)
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"a" * 98 + b"\n" + b"b" * 99 + b"\n")
    with pytest.raises(DataError, match="line 2"):
        list(every_line(path))
    path.write_bytes(b"a" * 98 + b"\n" + b"b" * 98 + b"\n")
    assert [number for number, _ in every_line(path)] == [1, 2]


@pytest.mark.parametrize("blank", [b"\n", b" \t\r\n"])
def test_blank_lines_do_not_go_on_for_ever(tmp_path, monkeypatch, blank):
    """A small .gz holds gigabytes of them; what is unpacked after the bound is never looked at."""
    monkeypatch.setattr(files, "LONGEST_LINE", 1000)
    path, line = tmp_path / "x.jsonl.gz", LINES[0].encode() + b"\n"
    near = blank * (999 // len(blank))
    path.write_bytes(gzip.compress((line + near) * 3))
    assert len(seen(path)) == 3
    taken = []
    for size in (5000, 20_000):
        path.write_bytes(gzip.compress(line + blank * size))
        numbers = []
        with pytest.raises(DataError, match="blank lines"):
            numbers.extend(number for number, _ in files.every_line(path))
        taken.append(len(numbers))
    assert taken[0] == taken[1] <= 1000


def test_records_that_are_packed_do_not_go_on_for_ever(tmp_path, monkeypatch):
    """Valid lines, as many as one likes, pack to a thousandth; a plain file may have any size."""
    line = LINES[0].encode() + b"\n"
    monkeypatch.setattr(files, "UNPACKED", 100 * len(line))
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(line * 100))
    assert len(seen(path)) == 100
    path.write_bytes(gzip.compress(line * 100_000))
    read = []
    with pytest.raises(DataError, match="unpack it"):
        read.extend(number for number, _ in files.every_line(path))
    assert len(read) * len(line) <= 200 * path.stat().st_size
    plain = tmp_path / "x.jsonl"
    plain.write_bytes(line * 1000)
    assert len(list(files.every_line(plain))) == 1000


def test_line_numbers_count_blank_lines(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("\n\n" + LINES[0] + "\n\n{")
    with pytest.raises(DataError, match="line 5"):
        list(read_rows(path))


def test_progress_never_passes_the_size(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text((LINES[0] + "\n") * 5000)
    calls = []
    list(read_records(path, progress=lambda done, total: calls.append((done, total))))
    assert len(calls) == 5000 // 1024
    assert all(0 < done <= total for done, total in calls)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(FileSystemError, match="No such file"):
        list(every_line(tmp_path / "none"))
    with pytest.raises(FileSystemError, match="folder"):
        list(every_line(tmp_path))


ARRAYS = {
    "one line": "[" + ", ".join(LINES) + "]",
    "indented": json.dumps(ROWS, indent=1),
    "behind blank lines": "\r\n \n [" + LINES[0] + "]",
    "behind a BOM": "\ufeff[" + LINES[0] + "]",
}


@pytest.mark.parametrize("text", ARRAYS.values(), ids=ARRAYS)
@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "x", "x.json.gz"])
def test_a_json_array_is_read_as_its_lines_would_be(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    assert seen(path) == EXPECTED[: text.count("prompt")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" + LINES[0], "after record 1: .* cut short"),
        ("[" + LINES[0] + ", 7]", "record 2: expected an object"),
        ("[" + LINES[0] + "] x", "after record 1: something stands behind"),
        ("[" + LINES[0][:-3] + "]", "record 1: not valid JSON"),
    ],
)
def test_an_array_that_is_broken_is_refused_with_its_place(tmp_path, text, words):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(DataError, match=words):
        seen(tmp_path / "x.json")


def test_elements_of_an_array_may_be_longer_than_what_is_read_at_once(tmp_path):
    rows = [{"prompt": f"{i}", "chosen": "a" * 200_000 + str(i), "rejected": "b"} for i in range(3)]
    (tmp_path / "x.json").write_text(json.dumps(rows, indent=1))
    assert [len(max(two, key=len)) for _, two in seen(tmp_path / "x.json")] == [200_001] * 3


@pytest.mark.parametrize("name", ["x.json", "x.ndjson", "x.txt", "x"])
def test_json_lines_under_any_other_name(tmp_path, name):
    path = tmp_path / name
    path.write_text("\n".join(LINES))
    assert seen(path) == EXPECTED


@pytest.mark.parametrize("ending", ["xlsx", "XLS", "ods"])
def test_sheets_are_refused_with_a_way_out(tmp_path, ending):
    with pytest.raises(DataError, match=r"pandas\.read_excel\).*\.csv"):
        read_pairs(tmp_path / f"x.{ending}")


def test_mixed_kinds_are_refused(tmp_path):
    labeled = {"prompt": "p", "first": "a", "second": "b"}
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(labeled | {"label": 1}) + "\n" + json.dumps(labeled | {"answer": 1}))
    with pytest.raises(DataError, match="line 2: raw"):
        list(read_records(path))


@pytest.mark.parametrize("name", ["p.jsonl", "p.jsonl.gz", "p.parquet", "p"])
def test_names_beside_a_file(name):
    assert stem(Path(name)) == "p"
    assert manifest_path(Path("a") / name) == Path("a/p.manifest.json")


@pytest.mark.parametrize("answer", [0, 1])
@pytest.mark.parametrize("person", [None, "ana 😀"])
def test_lines_that_are_written_read_back(answer, person):
    row = {"prompt": "p\n", "chosen": "a\u2028", "rejected": "b", "person": person, "secret": 1}
    record = _parse_record(row, "line 1")
    line = line_of(record.prompt, record.first, record.second, answer, record.person)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    values = json.loads(line)
    assert tuple(values) == ("prompt", "first", "second", "answer") + ("person",) * bool(person)
    back = _parse_record(values, "line 1")
    assert (back.key, back.first, back.person) == (record.key, record.first, record.person)
    assert (back.outcome, back.privatized) == (answer, True)


def manifest(tmp_path, content=b"{}\n", **changes):
    path = tmp_path / "p.jsonl"
    path.write_bytes(content)
    coin = RandomizedResponse(1.0)
    values = {
        "sha256": sha256_of(path), "release_id": "5" * 16, "mechanism": "randomized-response",
        "epsilon": coin.realized_epsilon, "flip_probability": coin.flip_probability,
        "unit": "label", "neighbors": "REPLACE_ONE", "trust": "local", "caveats": (),
        "categories": 2,
    } | changes  # fmt: skip
    made = Manifest(**values)
    manifest_path(path).write_text(json.dumps(made.to_dict()))
    return path, made


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 10.0, 40.0, 44.36])
def test_manifests_read_back(tmp_path, epsilon):
    coin = RandomizedResponse(epsilon)
    numbers = {"epsilon": coin.realized_epsilon, "flip_probability": coin.flip_probability}
    path, made = manifest(tmp_path, caveats=("person-total", "simulated"), **numbers)
    assert read_manifest(path) == made
    assert read_manifest(path).guarantee.simulated
    elsewhere = manifest_path(path).rename(tmp_path / "other.json")
    assert read_manifest(path, elsewhere) == made


def test_a_manifest_promises_exactly_what_it_says(tmp_path):
    promise = read_manifest(manifest(tmp_path)[0]).guarantee
    assert (promise.epsilon, promise.delta, promise.unit) == (1.0, 0.0, "label")
    assert (promise.trust, promise.simulated, promise.caveats) == ("local", False, ())


def test_an_empty_privatized_file_has_no_pairs(tmp_path):
    path, _ = manifest(tmp_path, content=b"")
    with pytest.raises(DataError, match="empty"):
        read_pairs(path)


@pytest.mark.parametrize("name", ["hh_helpful_a.jsonl.gz", "hh_helpful_b.jsonl.gz"])
def test_real_files(name):
    path = DATA / name
    if not path.exists():
        pytest.skip("shared/data is not beside this checkout")
    pairs = read_pairs(path)
    with gzip.open(path, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    assert len(pairs) == len(rows)
    assert 0.45 < pairs.labels.mean() < 0.55  # chosen answers stand first half of the time
    for index, row in enumerate(rows):
        preferred = (pairs.second, pairs.first)[pairs.labels[index]][index]
        assert (pairs.prompts[index], preferred) == (row["prompt"], row["chosen"])
