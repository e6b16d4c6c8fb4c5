"""Text that holds the preferred answers only is noticed, and no label is looked at."""

import gzip
import json
import subprocess
import sys
import warnings

import numpy as np
import pytest

import sordino
from sordino.errors import DataError, FileSystemError, PrivacyError, PrivacyWarning
from sordino.language.references.texts import (
    _AnswerSearch,
    _OneSided,
    _spoken,
    read_documents,
    warn_of_labels,
)

LONG = "The first thing to know about rye bread is that it needs no kneading, and then {}"


def found_in(text, pairs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return warn_of_labels(text, pairs)


def asked(row, name):
    return {"prompt": row["prompt"], "completion": row[name]}


def rows_of(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="module")
def made():
    """Return rows with long and with short answers, and their pairs."""
    rows = [
        {
            "prompt": f"question {i}",
            "chosen": LONG.format(f"wait {i} hours") if i % 2 else f"yes {i}",
            "rejected": LONG.format(f"bake it for {i} minutes at once") if i % 3 else f"no {i}",
        }
        for i in range(30)
    ]
    return rows, sordino.read_pairs(rows)


@pytest.fixture
def helpful(shared_data):
    """Return rows and pairs of real preferences, one after the other."""
    rows = [row for part in "ab" for row in rows_of(shared_data / f"hh_helpful_{part}.jsonl.gz")]
    return rows, sordino.read_pairs(rows)


def test_real_dialogues_of_preferred_answers_are_noticed(helpful, shared_data):
    _, pairs = helpful
    with pytest.warns(PrivacyWarning, match=r"4346 of 4413 pairs \(98.5 %\).*language tiny"):
        found = warn_of_labels(read_documents(shared_data / "hh_dialogues.jsonl.gz"), pairs)
    assert found == _OneSided(both=67, one=4346, none=0)


@pytest.mark.deep
def test_what_the_real_dialogues_give_away(helpful, shared_data):
    """Whoever guesses that the answer in the text is the preferred one is always right."""
    _, pairs = helpful
    search = _AnswerSearch(pairs)
    for document in read_documents(shared_data / "hh_dialogues.jsonl.gz"):
        search.look_in(_spoken(document))
    told = search.found.sum(axis=1) == 1
    right = search.found[told, 0] == (pairs.labels[told] == 1)
    assert right.sum() == told.sum() == 4346


@pytest.mark.deep
def test_real_text_of_both_answers_is_not(helpful):
    rows, pairs = helpful
    text = [asked(row, name) for row in rows for name in ("chosen", "rejected")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert warn_of_labels(text, pairs, strict=True) == _OneSided(both=4413, one=0, none=0)


def test_real_answers_to_other_questions_are_not(shared_data):
    """Short answers ("You're welcome!") agree by chance, and the threshold is above that."""
    other = rows_of(shared_data / "hh_helpful_a.jsonl.gz")
    pairs = sordino.read_pairs(shared_data / "hh_helpful_b.jsonl.gz")
    found = warn_of_labels([asked(row, "chosen") for row in other], pairs, strict=True)
    assert found.share == pytest.approx(0.023, abs=0.001), "as the docstring says"


def chats(rows):
    return [
        {
            "messages": [
                {"role": "user", "content": row["prompt"]},
                {"role": "assistant", "content": row["chosen"]},
            ]
        }
        for row in rows
    ]


FORMS = {
    "messages": chats,
    "bare messages": lambda rows: [one["messages"] for one in chats(rows)],
    "completions": lambda rows: [asked(row, "chosen") for row in rows],
    "two texts": lambda rows: [(row["prompt"], row["chosen"]) for row in rows],
    "transcripts": lambda rows: [
        {"text": f"\n\nHuman: {row['prompt']}\n\nAssistant: {row['chosen']}"} for row in rows
    ],
    "templates": lambda rows: [
        f"<|user|>{row['prompt']}<|assistant|>{row['chosen']}<|end|>" for row in rows
    ],
    "one text": lambda rows: ["\n".join(f"A: {row['chosen']}" for row in rows)],
    "cut": lambda rows: [asked(row, "chosen") | {"completion": row["chosen"][:-2]} for row in rows],
    "other spaces and case": lambda rows: [
        {"text": row["chosen"].upper().replace(" ", " \n ")}
        if len(row["chosen"]) > 40
        else row["chosen"].upper()
        for row in rows
    ],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_text_is_read(made, form):
    rows, _ = made
    if form == "cut":
        rows = [row | {"chosen": row["chosen"] + " of your own and so on " * 3} for row in rows]
    found = found_in(FORMS[form](rows), sordino.read_pairs(rows))
    assert found == _OneSided(both=0, one=30, none=0)


def test_no_label_is_looked_at(made):
    rows, pairs = made
    turned = [row | {"chosen": row["rejected"], "rejected": row["chosen"]} for row in rows]
    text = [row["chosen"] for row in rows]
    assert found_in(text, pairs) == found_in(text, sordino.read_pairs(turned))


def test_randomized_pairs_do_as_well(made, ledger):
    rows, pairs = made
    private = sordino.privatize(pairs, sordino.RandomizedResponse(1.0), ledger=ledger())
    with pytest.raises(PrivacyError, match=r"30 of 30 pairs.*Nothing was done"):
        warn_of_labels([row["chosen"] for row in rows], private, strict=True)


def test_what_only_asks_is_not_said(made):
    rows, pairs = made
    roles = [[{"role": "user", "content": row["chosen"]}] for row in rows]
    assert found_in(roles, pairs).none == 30
    prompts = [(row["chosen"], "something else") for row in rows]
    assert found_in(prompts, pairs).none == 30


def test_a_beginning_that_both_share_tells_nothing():
    shared = "You should always begin with the flour and then slowly add the water, and "
    pairs = sordino.read_pairs([{"prompt": "p", "chosen": shared + "x", "rejected": shared + "y"}])
    assert found_in([shared], pairs).none == 1
    assert found_in([shared + "x"], pairs).one == 1


def test_a_short_answer_inside_a_longer_turn_is_none():
    pairs = sordino.read_pairs([{"prompt": "p", "chosen": "of course", "rejected": "no"}])
    assert found_in([("p", "of course, no problem")], pairs).none == 1
    assert found_in([("p", "Of  course")], pairs).one == 1


def test_a_few_of_many_are_no_alarm(made):
    rows, pairs = made
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert warn_of_labels([row["chosen"] for row in rows[:9]], pairs).one == 9
    with pytest.warns(PrivacyWarning):
        assert warn_of_labels([row["chosen"] for row in rows[:15]], pairs).share == 0.5


def test_twice_as_many_answers_that_begin_alike_take_twice_as_many_steps():
    """And not four times as many, as where every text is compared with every answer."""

    def steps(n):
        rows = [
            {"prompt": str(i), "chosen": LONG.format(i), "rejected": LONG.format(f"{i}!")}
            for i in range(n)
        ]
        texts, pairs, count = [row["chosen"] for row in rows], sordino.read_pairs(rows), 0

        def counted(*_):
            nonlocal count
            count += 1
            return counted

        before = sys.gettrace()
        sys.settrace(counted)
        try:
            found = found_in(texts, pairs)
        finally:
            sys.settrace(before)
        assert found.one == n
        return count

    assert steps(400) < 2.5 * steps(200)


def test_features_are_refused():
    pairs = sordino.Pairs.from_features(np.eye(2), [1, 0])
    with pytest.raises(DataError, match="feature vectors"):
        found_in(["a"], pairs)


@pytest.mark.parametrize(
    "bad",
    [7, None, {"chosen": "secret"}, {"completion": "secret"}, {"text": 3}, ("secret",), ["secret"],
     {"messages": [{"role": "assistant"}]}, {"messages": []}],
)  # fmt: skip
def test_what_is_no_document_is_refused_and_not_quoted(made, bad):
    with pytest.raises(DataError, match="document 1: ") as caught:
        found_in(["fine", bad], made[1])
    assert "secret" not in str(caught.value)


def test_files_are_read(tmp_path, made):
    rows, pairs = made
    lines = "".join(json.dumps(asked(row, "chosen")) + "\n" for row in rows)
    (tmp_path / "a.jsonl").write_text(lines)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    for path in (tmp_path / "a.jsonl", str(tmp_path / "a.jsonl.gz")):
        documents = list(read_documents(path))
        assert len(documents) == 30
        assert found_in(documents, pairs).one == 30


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", b'{"text": "a"}\n{"secret": "b"}\n', "line 2: expected a text"),
        ("a.jsonl", b'{"text": "a"}\n"secret"\n', "line 2: expected an object"),
        ("a.jsonl", b"", "empty"),
        ("a.jsonl.gz", b"no gzip", "not valid gzip"),
    ],
)
def test_bad_files_are_refused_by_line(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        list(read_documents(tmp_path / name))
    assert "secret" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileSystemError, match="cannot be read"):
        list(read_documents(tmp_path / "none.jsonl"))


def test_no_deep_learning_is_loaded():
    program = (
        "import sys, sordino.language.references.texts, sordino.language.judging\n"
        "print(sorted({'torch', 'transformers', 'trl'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
