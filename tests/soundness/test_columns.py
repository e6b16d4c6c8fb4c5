"""What a column is called decides what is read, and no choice of columns shows a judgment."""

import json

import pytest

from sordino.engines.engine import InProcess
from sordino.errors import DataError, UsageError
from sordino.preferences.chunk_survey import survey_chunks
from sordino.preferences.chunks import find_chunks
from sordino.preferences.pairs import read_pairs

ARENA = {"prompt": "p", "response_a": "x", "response_b": "y", "winner": "model_a"}
CHAT = [[{"role": "user", "content": "p"}, {"role": "assistant", "content": c}] for c in "xy"]
VOTE = {
    **dict(zip(("conversation_a", "conversation_b"), CHAT, strict=True)),
    "model_a_name": "m",
    "model_b_name": "n",
    "chosen_model_name": "n",
    "both_equal": False,
}


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (ARENA, "winner"),
        ({"prompt": "p", "left": "x", "right": "y", "Vote": "A"}, "Vote"),
        ({"prompt": "p", "completion": "x", "score": "5"}, "score"),
        (VOTE, "chosen_model_name"),
        ({"prompt": "p", "response_j": "x", "response_k": "y"}, "response_k"),
    ],
)
def test_a_judgment_is_nobody(row, field):
    """Person ids are published."""
    with pytest.raises(UsageError, match=f"must not be '{field}', which says what was judged"):
        read_pairs([row], person_field=field, levels="1..5")


@pytest.mark.parametrize(
    "columns",
    [
        {"prompt": "y_w", "completion": "said", "label": "good_one"},
        {"prompt": "said", "completion": "Preferred", "label": "good_one"},
        {"prompt": "said", "completion": "reply", "label": "good_one", "family": "feedback"},
        {"prompt": "Winner", "completion": "reply", "label": "good_one"},
    ],
)
def test_what_tells_a_judgment_is_no_text(columns):
    """Texts are published, and one that won tells by itself that it did."""
    names = ("y_w", "y_l", "Preferred", "said", "reply", "good_one", "feedback", "Winner")
    with pytest.raises(UsageError, match="a judgment could be published"):
        read_pairs([dict.fromkeys(names, "1")], columns=columns)


def test_which_answer_is_missing_is_not_said():
    """It would tell which was chosen."""
    whole, told = {"prompt": "p", "response_j": "x", "response_k": "y"}, set()
    for name in ("response_j", "response_k"):
        with pytest.raises(DataError) as caught:
            read_pairs([whole, {key: text for key, text in whole.items() if key != name}])
        told.add(str(caught.value))
    assert len(told) == 1


def test_a_record_in_place_of_names_is_not_quoted(tmp_path):
    path = tmp_path / "without-names.csv"
    path.write_text("What is 2+2?,four,five,model_a\nWhat is 3?,a,b,model_b\n")
    for columns in (None, {"winner": "vote"}, {"prompt": "What"}):
        with pytest.raises((DataError, UsageError)) as caught:
            read_pairs(path, columns=columns)
        said = str(caught.value)
        assert "may be a record" in said
        assert not any(cell in said for cell in ("2+2", "four", "five", "model_a"))


@pytest.mark.parametrize("hides_records", [False, True])
def test_levels_of_a_record_are_not_quoted(hides_records):
    row = {"prompt": "p", "completion": "x", "rating": 3, "levels": "a secret"}
    with pytest.raises(DataError) as caught:
        read_pairs([row], hides_records=hides_records)
    assert "secret" not in str(caught.value)
    assert ("cannot be used" in str(caught.value)) == hides_records
    with pytest.raises(DataError, match="as they were declared"):
        read_pairs([row | {"levels": "1..5"}], levels="0..5")


@pytest.mark.parametrize("rating", [1, 2, 3])
def test_other_levels_are_refused_whatever_was_rated(rating, tmp_path):
    """A sum in pieces would else refuse those ratings that are no half, and so tell them."""
    path = tmp_path / "ratings.jsonl"
    row = {"prompt": "p", "completion": "x", "rating": rating, "levels": "1..5"}
    path.write_text(json.dumps(row))
    found = find_chunks(path, levels="1..3")
    wanted = "as they were declared"
    with pytest.raises(DataError, match=wanted), survey_chunks(found, engine=InProcess()):
        pass
    for levels in ("1..5", None):  # declared by the caller, or by the file
        found = find_chunks(path, levels=levels)
        assert str(found.levels) == "1..5"
        with survey_chunks(found, engine=InProcess()) as survey:
            assert survey.n == 1
    later = {"prompt": "p", "completion": "y", "rating": rating, "levels": "1..3"}
    path.write_text(f"{json.dumps(row)}\n{json.dumps(later)}\n")
    found = find_chunks(path)
    with pytest.raises(DataError), survey_chunks(found, engine=InProcess()):
        pass
    thumb = {"prompt": "p", "completion": "y", "label": True}  # the first one declares no levels
    path.write_text(f"{json.dumps(thumb)}\n{json.dumps(row)}\n")
    with (
        pytest.raises(DataError, match="other levels"),
        survey_chunks(find_chunks(path), engine=InProcess()),
    ):
        pass
