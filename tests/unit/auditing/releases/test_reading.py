"""Released files are read as they are, and joined to their raw file by question and person."""

import gzip
import json

import pytest

from sordino.auditing.releases.reading import UNKNOWN, _read_manifest_of, join_truth, read_released
from sordino.errors import DataError, FileSystemError, UsageError

TURN = "\n\nHuman: secret-hi\n\nAssistant:"
CHAT = [{"role": "user", "content": "secret-hi"}]


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def write(tmp_path):
    def write(name, *rows):
        path = tmp_path / name
        text = rows[0] if isinstance(rows[0], str) else lines(*rows)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write


def z(answer, prompt="p", one="a", other="b", **more):
    return {"prompt": prompt, "a1": one, "a2": other, "z": answer, **more}


def ours(answer, prompt="p", one="a", other="b", **more):
    return {"prompt": prompt, "first": one, "second": other, "answer": answer, **more}


def raw(chosen="a", rejected="b", prompt="p", **more):
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected, **more}


def texts(released):
    return list(zip(released.prompts, released.first, released.second, strict=True))


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
def test_the_order_and_every_other_column_are_kept(write, name):
    path = write(name, z(1, pair_id="q1", at=[3]), z(-1, one="y", other="x", late="l"))
    released = read_released(path, epsilon=0.1)
    assert released.layout == "z"
    assert texts(released) == [("p", "a", "b"), ("p", "y", "x")]
    assert released.answers.tolist() == [1, 0]
    assert dict(released.columns) == {
        "pair_id": ("q1", None),
        "at": ([3], None),
        "at[0]": (3, None),
        "late": (None, "l"),
    }
    assert released.persons is None
    assert released.truth is None
    assert released.manifest is None


def test_our_own_layout_in_either_order(write):
    path = write("x.jsonl", ours(0, person=7), ours(1, one="b", other="a", person=" bo "))
    released = read_released(path, epsilon=1)
    assert texts(released) == [("p", "a", "b"), ("p", "b", "a")]
    assert released.answers.tolist() == [0, 1]
    assert released.persons == ("7", "bo")
    assert released.keys[0] == released.keys[1]
    assert released.swapped.tolist() in ([True, False], [False, True])


@pytest.mark.parametrize("extra", [{"label": 1}, {"chosen": "a", "rejected": "b"}, {"z": 1}])
def test_a_raw_judgment_beside_the_answer_is_a_column_for_the_attacks(write, extra):
    released = read_released(write("x.jsonl", ours(0, **extra)), epsilon=1)
    assert released.layout == "answer"
    assert {name: column[0] for name, column in released.columns.items()} == extra


@pytest.mark.parametrize("mark", ["csv", "tsv"])
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_tables(write, mark, packed):
    rows = [
        ["prompt", "a1", "a2", "z", "id"],
        ["p", "a", '"b,\t"', "1", "q"],
        ["p", "c", "d", "-1", ""],
    ]
    text = "\n".join({"csv": ",", "tsv": "\t"}[mark].join(row) for row in rows)
    released = read_released(write(f"x.{mark}{packed}", text), epsilon=1)
    assert texts(released) == [("p", "a", "b,\t"), ("p", "c", "d")]
    assert released.answers.tolist() == [1, 0]
    assert released.columns["id"] == ("q", "")


@pytest.mark.parametrize("values", [(1, 0), (1, -1), (1.0, -1.0), ("1", "-1"), ("+1", "0")])
def test_z_in_both_codes(write, values):
    path = write("x.jsonl", z(values[0]), z(values[1]))
    assert read_released(path, epsilon=1).answers.tolist() == [1, 0]


@pytest.mark.parametrize(
    "row",
    [
        {"chosen": TURN + " yes", "rejected": TURN + " no"},
        {"chosen": [*CHAT, {"role": "assistant", "content": "yes"}],
         "rejected": [*CHAT, {"role": "assistant", "content": "no"}]},
        raw("yes", "no"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("turned", [False, True])
def test_chosen_and_rejected_stay_in_the_order_written(write, row, turned):
    if turned:
        row = {**row, "chosen": row["rejected"], "rejected": row["chosen"]}
    released = read_released(write("x.jsonl", row), epsilon=1)
    assert released.layout == "chosen-rejected"
    assert released.answers.tolist() == [1]
    [(prompt, first, second)] = texts(released)
    assert ("no" if turned else "yes") in first
    assert ("yes" if turned else "no") in second
    assert prompt == "p" or "secret-hi" in prompt
    truth = join_truth(released, write("raw.jsonl", row))[0].truth
    assert truth.tolist() == [1]


def test_messages_become_texts_that_do_not_depend_on_how_they_were_written(write):
    other_way = [{"content": "secret-hi", "role": "user", "more": 1}]
    one = read_released(write("x.jsonl", ours(1, prompt=CHAT)), epsilon=1)
    other = read_released(write("y.jsonl", ours(1, prompt=other_way)), epsilon=1)
    assert one.prompts == other.prompts == ('[{"content":"secret-hi","role":"user"}]',)
    assert one.keys == other.keys


BAD = {
    "no column": ({"prompt": "secret", "a1": "secret", "z": 1}, "line 1: a released row must"),
    "z is 2": (z(2, "secret"), "line 1: field 'z' must be -1 or 1"),
    "z is true": (z(True, "secret"), "line 1: field 'z'"),
    "z is secret": (z("secret"), "line 1: field 'z'"),
    "z is a list": (z([1], "secret"), "line 1: field 'z'"),
    "z is nan": (z(float("nan"), "secret"), "line 1: field 'z'"),
    "answer is -1": (ours(-1, "secret"), "line 1: field 'answer' must be 0 or 1"),
    "no text": (z(1, "secret", one=7), "line 1: field 'a1'"),
    "half a character": (z(1, "secret\ud800"), "line 1: a text is not valid Unicode"),
    "no person": (z(1, "secret", person=[]), "line 1: field 'person'"),
    "no texts": (raw(chosen="secret", rejected=7), "line 1: fields 'chosen' and 'rejected'"),
}  # fmt: skip


@pytest.mark.parametrize(("row", "message"), BAD.values(), ids=BAD)
def test_rows_that_cannot_be_used(write, row, message):
    with pytest.raises(DataError) as caught:
        read_released(write("x.jsonl", row), epsilon=1)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_later_row_that_cannot_be_used(write):
    for rows, message in [
        ([z(1), ours(1)], "line 2: field 'a1' is missing"),
        ([z(1), {**z(1), "z": None}], "line 2: field 'z'"),
        ([z(1, person="ann"), z(1)], "line 2: a person id is given for some"),
        ([z(0), z(-1)], "both are used"),
        ([z(1, **{f"c{i}": 1 for i in range(257)})], "more than 256"),
    ]:
        with pytest.raises(DataError, match=message):
            read_released(write("x.jsonl", *rows), epsilon=1)


def test_files_that_cannot_be_used(write, tmp_path):
    with pytest.raises(DataError, match="empty"):
        read_released(write("x.jsonl", "\n"), epsilon=1)
    with pytest.raises(DataError, match="not valid JSON"):
        read_released(write("x.jsonl", "nothing"), epsilon=1)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(DataError, match="holds no file"):
        read_released(tmp_path / "nothing", epsilon=1)
    with pytest.raises(FileSystemError, match="cannot be read"):
        read_released(tmp_path / "absent.jsonl", epsilon=1)


def test_the_person_field(write):
    path = write("x.jsonl", z(1, who="ann", person="no"), z(1, who="bo", person="no"))
    released = read_released(path, epsilon=1, person_field="who")
    assert released.persons == ("ann", "bo")
    assert released.columns == {"person": ("no", "no")}
    with pytest.raises(DataError, match="'nobody' is missing"):
        read_released(path, epsilon=1, person_field="nobody")
    for name in ("z", "answer", "chosen", "a1"):
        with pytest.raises(UsageError, match="person field"):
            read_released(path, epsilon=1, person_field=name)


def test_our_files_say_person_whatever_the_raw_file_called_it(write):
    path = write("x.jsonl", ours(1, person="ann"), ours(1, "q", person="bo"))
    released = read_released(path, epsilon=1, person_field="who")
    assert released.persons == ("ann", "bo")
    assert not released.columns
    table = "prompt,chosen,rejected,who\np,a,b,bo\np,b,a,ann\nq,a,b,bo\n"
    found, _ = join_truth(released, write("raw.csv", table), person_field="who")
    assert found.truth.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("name", "manifest"),
    [
        ("p.jsonl", "p.manifest.json"),
        ("p.jsonl.gz", "p.manifest.json"),
        ("p.csv", "p.manifest.json"),
        ("p.csv.gz", "p.csv.manifest.json"),
        ("p.jsonl", "p_manifest.json"),
        ("p_eps0.10_val.jsonl.gz", "p_eps0.10_manifest.json"),
        ("p_eps0.10_val.jsonl.gz", "p-manifest.json"),
    ],
)
def test_a_manifest_beside_the_file(tmp_path, name, manifest):
    (tmp_path / manifest).write_text('{"n": 1}')
    assert _read_manifest_of(tmp_path / name) == {"n": 1}


def test_the_manifest_of_another_file_is_not_taken(tmp_path, write):
    for name in ("manifest.json", "q_manifest.json", "pp.manifest.json", "p.json"):
        (tmp_path / name).write_text("{}")
    assert _read_manifest_of(tmp_path / "p_2.jsonl") is None
    (tmp_path / "p.manifest.json").write_text('{"n": 1}')
    assert _read_manifest_of(tmp_path / "p_2.jsonl") == {"n": 1}
    write("p.jsonl", ours(1))
    assert _read_manifest_of(tmp_path / "p_2.jsonl") is None
    assert _read_manifest_of(tmp_path / "p_2.jsonl", tmp_path / "p.manifest.json") == {"n": 1}


@pytest.mark.parametrize("text", ["", "[]", '"secret"', "{", "\x80", "[" * 100_000])
def test_a_malformed_manifest(tmp_path, write, text):
    path = write("x.jsonl", z(1))
    (tmp_path / "x.manifest.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=r"x\.manifest\.json is no manifest") as caught:
        read_released(path, epsilon=1)
    assert "secret" not in str(caught.value)


def test_a_manifest_that_is_not_there(tmp_path, write):
    path = write("x.jsonl", z(1))
    with pytest.raises(FileSystemError, match="cannot be read"):
        read_released(path, epsilon=1, manifest=tmp_path / "absent.json")
    with pytest.raises(FileSystemError, match="folder"):
        read_released(path, epsilon=1, manifest=tmp_path)


def joined(write, released, judgments, **settings):
    file = read_released(write("x.jsonl", *released), epsilon=1)
    found, counts = join_truth(file, write("raw.jsonl", *judgments), **settings)
    each = (counts.matched, counts.unmatched, counts.ambiguous, counts.undecided)
    assert sum(each) == len(file)
    assert counts.matched == (found.truth != UNKNOWN).sum()
    return found, each


def shown(label, prompt, first="a", second="b"):
    return {"prompt": prompt, "first": first, "second": second, "label": label}


JOINED = {  # released rows, raw judgments, truths, and how many are known, missing, vague, ties
    "truth is in the order written": (
        [z(1), z(1, one="b", other="a"), z(1, "q"), z(1, "r")],
        [raw(), raw("b", "a", "q"), raw("a", "b", "s")],
        *([1, 0, 0, UNKNOWN], (3, 1, 0, 0)),
    ),
    "spaces, line ends and accents are no difference": (
        [z(1, "caf\u00e9 x", "a\nb", "c"), z(1, "q", "c", "a  b")],
        [raw(" a\r\nb ", "c ", "cafe\u0301\tx"), raw("a b", "c", "q")],
        *([1, 0], (2, 0, 0, 0)),
    ),
    "what is there letter by letter is not confused with what is alike": (
        [z(1), z(1, "p ")],
        [raw(), raw("b", "a", "p ")],
        *([1, 0], (2, 0, 0, 0)),
    ),
    "persons decide between judgments of one question": (
        [z(1, person="ann"), z(1, person="bo"), z(1, person="cy")],
        [raw("b", "a", person="bo"), raw(person="ann")],
        *([1, 0, UNKNOWN], (2, 0, 1, 0)),
    ),
    "pseudonyms are joined where all labels agree": (
        [z(1, person="7"), z(1, "q", person="7"), z(1, "q", person="8")],
        [raw(person="ann"), raw(prompt="q", person="ann"), raw(prompt="q", person="bo")],
        *([1, 1, 1], (3, 0, 0, 0)),
    ),
    "the nth judgment of a person goes to the nth row": (
        [z(1, person="ann"), z(0, person="bo"), z(0, one="b", other="a", person="ann")],
        [raw(person="ann"), raw("b", "a", person="ann"), raw(person="bo")],
        *([1, 1, 1], (3, 0, 0, 0)),
    ),
    "other numbers of judgments are known only if they agree": (
        [z(1), z(1), z(1, "q", person=None), z(1, "r")],
        [raw(), raw(), raw(), raw(prompt="q"), raw("b", "a", "q"), raw(prompt="r")],
        *([1, 1, UNKNOWN, 1], (3, 0, 1, 0)),
    ),
    "ties and equal answers have no truth": (
        [z(1), z(1, "q", "a", "a"), z(1, "r"), z(1, "s")],
        [shown("tie", "p"), shown(1, "q", "a", "a"),
         {"prompt": "r", "first": "a", "second": "b", "labels": [0, "skip"]},
         {"prompt": "s", "first": "b", "second": "a", "labels": [1, 1]}],
        *([UNKNOWN, UNKNOWN, UNKNOWN, 0], (1, 0, 2, 1)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", JOINED)
def test_rows_are_found_by_question_and_person(write, what):
    rows, raws, truth, counts = JOINED[what]
    found, each = joined(write, rows, raws)
    assert (found.truth.tolist(), each) == (truth, counts)
    assert found.displayed is None or what.startswith("ties")


def test_an_order_that_was_there_before_the_label(write):
    rows = [z(1, "p"), z(1, "q"), z(1, "r", "b", "a"), z(1, "s")]
    raws = [shown(1, "p"), shown(0, "q"), shown(1, "r"), shown(0, "x")]
    found, _ = joined(write, rows, raws)
    assert found.truth.tolist() == [1, 0, 0, UNKNOWN]
    assert found.displayed.tolist() == [1, 1, 0, UNKNOWN]
    # An order that is the label was not there before it.
    found, _ = joined(write, [z(1, "p"), z(1, "q")], [shown(1, "p"), shown(1, "q")])
    assert found.displayed is None


def test_a_raw_file_that_does_not_fit(write):
    rows = [z(1, "secret"), z(1, "q"), z(1, "r")]
    with pytest.raises(DataError, match="of 3 released rows, 1 have a question") as caught:
        joined(write, rows, [raw(prompt="secret")])
    assert "secret" not in str(caught.value)
    with pytest.raises(DataError, match=r"at least one label that is certain"):
        joined(write, [z(1)], [raw(), raw("b", "a")])


def test_a_released_file_given_as_raw(write):
    with pytest.raises(DataError, match="line 1: a randomized answer"):
        joined(write, [z(1)], [ours(1)])


def test_raw_tables_and_their_persons(write):
    file = read_released(write("x.jsonl", z(1, who="ann"), z(1, who="bo")), epsilon=1,
                         person_field="who")  # fmt: skip
    table = "prompt,chosen,rejected,who\np,a,b,ann\np,b,a,bo\n"
    found, _ = join_truth(file, write("raw.csv", table), person_field="who")
    assert found.truth.tolist() == [1, 0]
    nobody = "prompt,chosen,rejected\np,a,b\n"
    found, _ = join_truth(file, write("raw.csv", nobody), person_field="who")
    assert found.truth.tolist() == [1, 1]


def test_the_published_example(shared_data):
    path = shared_data / "published_local_dp_eps0.10_val.jsonl.gz"
    released = read_released(path, epsilon=0.1)
    assert len(released) == 2100
    assert released.manifest["global_seed"] == 1234
    assert list(released.columns) == ["pair_id"]
    assert int((2 * released.answers.astype(int) - 1).sum()) == 1088 - 1012
    found, counts = join_truth(released, shared_data / "hh_helpful_a.jsonl.gz")
    assert counts.matched == 2100
    assert found.truth.all()
    with pytest.raises(DataError, match="of 2100 released rows, 0 have"):
        join_truth(released, shared_data / "hh_helpful_b.jsonl.gz")


def test_what_lies_inside_a_column_is_a_column(write):
    rows = z(1, meta={"id": 17, "label": 1}, m=[1, [2, {"x": 3}]]), z(1, meta={"label": 0})
    columns = read_released(write("x.jsonl", *rows), epsilon=1).columns
    assert columns["meta"] == ({"id": 17, "label": 1}, {"label": 0})
    assert columns["meta.label"] == (1, 0)
    assert columns["meta.id"] == (17, None)
    assert columns["m[1][1].x"] == (3, None)


def test_nothing_hides_under_the_name_of_another_column(write):
    row = z(1, **{"meta.label": 5, "meta": {"label": 1}, "m": {"x.y": 2, "x": {"y": 3}}})
    columns = read_released(write("x.jsonl", row), epsilon=1).columns
    assert (columns["meta.label"], columns["meta.label'"]) == ((5,), (1,))
    assert {columns["m.x.y"], columns["m.x.y'"]} == {(2,), (3,)}


def nested(levels):
    value = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def test_hostile_nesting_is_refused_and_long_lists_are_kept_whole(write):
    long = list(range(9))
    released = read_released(write("x.jsonl", z(1, m=long, deep=nested(60))), epsilon=1)
    assert released.columns["m"] == (long,)
    assert set(released.columns) == {"m", "deep", "deep.a.a.a.a"}
    with pytest.raises(DataError, match="line 1: field 'deep' is nested over 64 levels"):
        read_released(write("x.jsonl", z(1, deep=nested(400))), epsilon=1)


def test_columns_inside_others_count(write):
    wide = {f"k{i}": i for i in range(255)}
    assert len(read_released(write("x.jsonl", z(1, wide=wide)), epsilon=1).columns) == 256
    with pytest.raises(DataError, match="more than 256 different columns"):
        read_released(write("x.jsonl", z(1, wide={**wide, "more": 1})), epsilon=1)
