"""Examples are picked by a rule that anybody can repeat, and cannot mislead a reader."""

import numpy as np
import pytest

from sordino.errors import DataError, UsageError
from sordino.reporting.result import choose_examples


def _choose(chances, most=3, **changed):
    n = len(chances)
    columns = {
        "prompts": [f"prompt {k}" for k in range(n)],
        "first": [f"first {k}" for k in range(n)],
        "second": [f"second {k}" for k in range(n)],
        **changed,
    }
    return choose_examples(**columns, probabilities=np.array(chances), most=most)


def test_three_are_the_largest_the_median_and_the_smallest_shift():
    rows = _choose([0.5, 0.9, 0.45, 0.3, 0.6])  # shifts 0, .4, .05, .2, .1
    assert [row["prompt"] for row in rows] == ["prompt 1", "prompt 4", "prompt 0"]
    first, second = rows[0]["answers"]
    assert first == {"text": "first 1", "reference": 0.5, "policy": 0.9}
    assert second["policy"] == pytest.approx(0.1)


@pytest.mark.parametrize(("n", "most", "shown"), [(0, 3, 0), (1, 3, 1), (2, 3, 2), (9, 5, 5)])
def test_never_more_than_there_are_and_never_one_twice(n, most, shown):
    rows = _choose(np.linspace(0.5, 1, n), most=most)
    assert len({row["prompt"] for row in rows}) == len(rows) == shown


@pytest.mark.parametrize("column", ["prompts", "first", "second"])
def test_a_text_with_an_address_is_never_chosen(column):
    texts = ["see x://y", "plain"]
    rows = _choose([0.99, 0.6], **{column: texts})
    assert len(rows) == 1
    assert "://" not in str(rows)
    chat = [[{"role": "user", "content": "see x://y"}], [{"role": "user", "content": "plain"}]]
    assert len(_choose([0.99, 0.6], **{column: chat})) == 1
    far = ["a" * 1000 + "://" + "b" * 1000, "plain"]  # in the part that would be cut off
    assert len(_choose([0.99, 0.6], **{column: far})) == 1


def test_a_question_is_shown_once_whichever_answer_stands_first():
    rows = _choose([0.9, 0.1], prompts=["p", "p"], first=["a", "b"], second=["b", "a"])
    assert len(rows) == 1


def test_empty_texts_are_not_shown():
    assert _choose([0.9], prompts=["  \n "]) == []


def test_long_texts_are_cut_where_a_reader_loses_least():
    (row,) = _choose([0.9], prompts=["start " * 200 + "end?"], first=["Begin " + "word " * 200])
    assert row["prompt"].startswith("…")
    assert row["prompt"].endswith("end?")
    assert row["answers"][0]["text"].startswith("Begin")
    assert row["answers"][0]["text"].endswith("…")
    assert all(len(text) <= 401 for text in (row["prompt"], row["answers"][0]["text"]))
    assert row["answers"][1]["text"] == "second 0"


def test_chats_say_who_speaks():
    chat = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
    (row,) = _choose([0.9], prompts=[chat])
    assert row["prompt"] == "user: Hi.\nassistant: Hello."


def test_characters_that_change_how_others_read_are_replaced():
    hostile = "a\u202eb\u2066c\x1b[31md\x00e\u200bf\ud800g\ufeffh\u2028i\U000e0041j\r\nk\rl\tm"
    (row,) = _choose([0.9], first=[hostile])
    assert row["answers"][0]["text"] == "a�b�c�[31md�e�f�g�h�i�j\nk\nl\tm"
    row["answers"][0]["text"].encode()


def test_letters_of_other_scripts_stay():
    text = "Ünïcode שלום नमस्ते 👩\u200d👩\u200d👧 می\u200cخواهم"
    (row,) = _choose([0.9], first=[text])
    assert row["answers"][0]["text"] == text


@pytest.mark.parametrize(
    ("chances", "changed", "error"),
    [
        ([0.5, 1.2], {}, DataError),
        ([0.5, np.nan], {}, DataError),
        ([0.5, 0.6], {"first": ["a"]}, DataError),
        ([0.5, 0.6], {"most": 0}, UsageError),
    ],
)
def test_what_does_not_fit_is_refused(chances, changed, error):
    with pytest.raises(error):
        _choose(chances, **changed)
