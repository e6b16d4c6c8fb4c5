"""CSV and TSV say exactly what JSON Lines say, and what they cannot say is refused."""

import csv
import gzip
import io
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import few

from sordino.errors import DataError
from sordino.preferences import containers as files
from sordino.preferences import containers as tables
from sordino.preferences.files import COMPARISONS, records_of
from sordino.preferences.pairs import read_pairs

HEADER = ["prompt", "first", "second", "label"]
ROWS = [
    {"prompt": "1", "first": "a", "second": "b", "label": "1"},
    {"prompt": "😀", "first": "c\u2028, d", "second": 'say "hi"\r\n\r\nand\nmore', "label": "tie"},
    {"prompt": "", "first": " e\x85\x00 ", "second": "\tf\x0b", "label": "0"},
    {"prompt": "3 é", "first": '"', "second": '""', "label": "skip"},
]
CANARY = "kanarie"


def written(rows, *, delimiter=",", end="\r\n", quoting=csv.QUOTE_MINIMAL):
    out = io.StringIO()
    names = list(rows[0])
    writer = csv.writer(out, delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writerow(names)
    writer.writerows([row[name] for name in names] for row in rows)
    return out.getvalue().encode()


def write(tmp_path, content, name="x.csv"):
    path = tmp_path / name
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


def read_records(path, *, person_field="person", **how):
    """Yield the records of a file, one at a time."""
    rows = COMPARISONS.rows(path, person_field=person_field, **how)
    return records_of(rows, person_field=person_field)


def seen(path, **named):
    return [(r.prompt, r.first, r.second, r.outcome, r.person) for r in read_records(path, **named)]


def expected(rows, tmp_path):
    path = tmp_path / "same.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return seen(path)


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize(("ending", "mark"), [(".csv", ","), (".tsv", "\t"), (".CSV", ",")])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf", b"\r\n \n"])
@pytest.mark.parametrize("quoting", few([csv.QUOTE_MINIMAL, csv.QUOTE_ALL], first=1))
def test_dresses(tmp_path, packed, ending, mark, end, start, quoting):
    content = start + written(ROWS, delimiter=mark, end=end, quoting=quoting)
    path = write(tmp_path, content, f"x{ending}{packed}")
    assert seen(path) == expected(ROWS, tmp_path)


@pytest.mark.parametrize("tail", ["", "\n", "\r", "\r\n", "\n\n \n"])
def test_the_last_line_may_end_or_not(tmp_path, tail):
    path = write(tmp_path, "prompt,chosen,rejected\np,a,b" + tail)
    assert seen(path)[0][:1] == ("p",)
    assert sorted(seen(path)[0][1:3]) == ["a", "b"]


def test_columns_in_any_order_and_others_that_are_ignored(tmp_path):
    rows = [{"id": "7", "label": "first", "second": "b", "prompt": "p", "first": "a", "x y": ""}]
    assert seen(write(tmp_path, written(rows))) == expected(rows, tmp_path)
    rows = [{"rejected": "b c", "chosen": "b a"}]
    assert seen(write(tmp_path, written(rows))) == expected(rows, tmp_path)


CELLS = st.text(
    st.one_of(
        st.sampled_from('",\t\r\n \ufeff'), st.characters(exclude_categories=["Cs"], codec="utf-8")
    ),
    max_size=6,
)


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=5), st.sampled_from(",\t"))
def test_whatever_is_written_by_another_library_reads_back(cells, mark):
    out = io.StringIO()
    writer = csv.writer(out, delimiter=mark, lineterminator="\r\n")  # quotes cells with either
    writer.writerow(["a", "b", "c"])
    writer.writerows(cells)
    lines = enumerate(io.BytesIO(out.getvalue().encode()), start=1)
    read = tables.read_table(lines, mark, longest=10**6, optional="none")
    assert [tuple(row.values()) for _, row in read] == cells


def test_places_are_the_lines_where_records_begin(tmp_path):
    content = 'prompt,first,second,label\n\n"a\n\nb",x,y,1\n\np,x,y,oops\n'
    with pytest.raises(DataError, match="line 7: field 'label' must be"):
        seen(write(tmp_path, content))


# --- person ids ---


def test_person_ids_of_all_or_of_none(tmp_path):
    rows = [row | {"person": who} for row, who in zip(ROWS, "abab", strict=True)]
    assert [row[-1] for row in seen(write(tmp_path, written(rows)))] == ["a", "b", "a", "b"]
    nobody = [row | {"person": ""} for row in ROWS]
    assert [row[-1] for row in seen(write(tmp_path, written(nobody)))] == [None] * 4
    some = [rows[0], nobody[1]]
    with pytest.raises(DataError, match="line 3: a person id is given for some"):
        seen(write(tmp_path, written(some)))
    named = [row | {"rater": "r"} for row in ROWS]
    assert {r[-1] for r in seen(write(tmp_path, written(named)), person_field="rater")} == {"r"}


# --- what is refused ---

GOOD = "prompt,first,second,label\np,a,b,1\n"
REFUSED = {
    "empty": ("", "empty"),
    "blank": ("\n\r\n \n", "empty"),
    "header only": ("prompt,first,second,label\n", "empty"),
    "no header": (f"{CANARY},{CANARY}x,{CANARY}y\np,a,b\n", "None of the 3 columns .* not quoted"),
    "unnamed column": (",prompt,first,second,label\n0,p,a,b,1\n", "line 1: .*index=False"),
    "empty name in quotes": ('"",prompt\n1,2\n', "line 1: a column has no name"),
    "two columns of one name": (f"{CANARY},{CANARY}\n1,2\n", "line 1: two columns"),
    "answer": ("prompt,first,second,answer\np,a,b,1\n", "line 1: .*'answer'.*manifest"),
    "answer beside label": ("prompt,first,second,label,answer\np,a,b,1,1\n", "'answer'"),
    "too few cells": (f"{GOOD}p,{CANARY},b\n", "line 3: 3 cells, .* 4 columns"),
    "too many cells": (f"{GOOD}p,{CANARY},b,1,\n", "line 3: 5 cells, .* 4 columns"),
    "a tab in a table with commas": (f"{GOOD}p\t{CANARY}\tb\t1\n", "line 3: 1 cells"),
    "a quote inside a plain cell": (f'{GOOD}p,{CANARY} 5" x 7",b,1\n', "line 3: a cell has"),
    "a stray quote": (f'{GOOD}p,{CANARY} 5" x,b,1\np,a,b,1\n', "line 3: a quoted cell"),
    "a stray quote that another ends": (f'{GOOD}p,{CANARY}",b,1\np,a",b,1\n', "line 3: a cell"),
    "text behind a quoted cell": (f'{GOOD}p,"{CANARY}" x,b,1\n', "line 3: a cell has"),
    "a space before a quoted cell": (f'{GOOD}p, "{CANARY}, x",b,1\n', "line 3: a cell has"),
    "a quote that does not end": (f'{GOOD}p,"{CANARY},b,1\np,a,b,1\n', "line 3: a quoted cell"),
    "a line end of its own kind": (f"{GOOD}p,{CANARY}\rx,b,1\n", "line 3: a cell has"),
    "not UTF-8": (GOOD.encode() + b"p," + CANARY.encode() + b"\xff,b,1\n", "line 3: not valid UTF"),
    "UTF-16": (GOOD.encode("utf-16"), "line 1: not valid UTF-8"),
    "Latin-1": ("prompt,chosen,rejected\n\xe9,a,b\n".encode("latin-1"), "line 2: not valid UTF-8"),
    "an empty label": (f"{GOOD}p,{CANARY},b,\n", 'line 3: .*write "skip"'),
    "a label that is none": (f"{GOOD}p,a,b,{CANARY}\n", "line 3: field 'label' must be"),
    "a list of labels": ('prompt,first,second,labels\np,a,b,"[1, 0]"\n', "'labels' must be a list"),
    "label and chosen": ("chosen,rejected,label\na,b,1\n", "exclude each other"),
    "identical": (f"{GOOD}p,{CANARY},{CANARY},1\n", "line 3: both answers are the same"),
}  # fmt: skip


def everything_said(error):
    said = []
    while error is not None:
        said.append(repr((str(error), error.args, vars(error), getattr(error, "object", ""))))
        error = error.__cause__ or error.__context__
    return "\n".join(said)


@pytest.mark.parametrize("packed", few(["", ".gz"], first=1))
@pytest.mark.parametrize(("content", "words"), REFUSED.values(), ids=REFUSED)
def test_tables_that_cannot_be_used(tmp_path, content, words, packed):
    with pytest.raises(DataError, match=words) as caught:
        read_pairs(write(tmp_path, content, f"x.csv{packed}"))
    assert CANARY not in everything_said(caught.value)


@pytest.mark.parametrize("column", [*HEADER, "person", "chosen", "note"])
@pytest.mark.parametrize("fault", ["cells", "label", "quote", "bytes", "same"])
def test_a_canary_in_any_cell_is_never_quoted(tmp_path, column, fault):
    row = {"prompt": "p", "first": "a", "second": "b", "label": "1", "note": "", "person": "x"}
    row = row | {column: CANARY} if column != "chosen" else {"chosen": CANARY, "rejected": "b"}
    content = written([row])
    content += {
        "cells": b"%s,%s\n",
        "label": b"",
        "quote": b'%s"",%s\n',
        "bytes": b"%s\xff\n%s",
        "same": b"%s,a,a,1,%s,x\n",
    }[fault].replace(b"%s", CANARY.encode())
    path = write(tmp_path, content)
    if fault == "label" and column != "label":
        assert len(read_pairs(path)) == 1
        return
    with pytest.raises(DataError) as caught:
        read_pairs(path)
    assert CANARY not in everything_said(caught.value)


# --- size ---


def test_cells_beyond_the_limit_of_pythons_own_parser(tmp_path):
    """It refuses cells above 131,072 characters by a setting of the whole process."""
    before = csv.field_size_limit()
    rows = [{"prompt": "p", "chosen": "é" * 300_000, "rejected": '"\n' * 100_000}]
    (record,) = read_records(write(tmp_path, written(rows)))
    assert record.size == 500_001
    assert csv.field_size_limit() == before


@pytest.mark.parametrize("cell", ["a" * 99, '"' + "a\n" * 60 + '"', '"' + "a\n" * 60])
def test_the_longest_record_is_refused(tmp_path, monkeypatch, cell):
    monkeypatch.setattr(files, "LONGEST_LINE", 100)
    path = write(tmp_path, f"chosen,rejected\nx,y\nb,{cell}\nx,y\n")
    with pytest.raises(DataError, match="line 3: longer than 16 MiB"):
        seen(path)


@pytest.mark.deep
def test_memory_does_not_grow_with_the_file(tmp_path):
    row = b'"p\n1",yes,' + b"no " * 200 + b"\n"
    path = write(tmp_path, b"prompt,chosen,rejected\n" + row * 10_000)
    tracemalloc.start()
    count = sum(1 for _ in read_records(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 10_000
    assert peak < 1_000_000 < path.stat().st_size / 5


def test_a_message_does_not_tell_which_answer_is_malformed(tmp_path):
    """It would tell which of two answers, whose texts are known, was the chosen one."""
    said = []
    for row in ('p,5" x 7",b', 'p,b,5" x 7"'):
        path = tmp_path / "in.csv"
        path.write_text(f"prompt,chosen,rejected\n{row}\n")
        with pytest.raises(DataError) as error:
            read_pairs(path)
        said.append(str(error.value))
    assert said[0] == said[1]
