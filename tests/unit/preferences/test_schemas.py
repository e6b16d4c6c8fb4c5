"""Files as the public data sets have them go in as they are, and mistakes are named with a way out.

Every file here is made in the test after the columns of a public data set; no row is anybody's.
"""

import json
import math

import pytest

from sordino.errors import DataError, UsageError
from sordino.preferences.pairs import read_pairs
from sordino.preferences.rankings import read_rankings
from sordino.preferences.records import Absent
from sordino.preferences.schemas import PUBLIC, decide, parsed_columns
from sordino.privacy.guarantee import SHARES

WINS = {1: "model_a", 0: "model_b", 0.5: "tie"}


def user(text):
    return {"role": "user", "content": text}


def says(text, role="assistant"):
    return {"role": role, "content": text}


def chat(prompt, answer):
    return [user(prompt), says(answer)]


def parts(prompt, answer):
    return [{**turn, "content": [{"type": "text", "text": turn["content"], "image": None}]}
            for turn in chat(prompt, answer)]  # fmt: skip


def ranked(y, one, other):
    return {"chosen": one if y else other, "rejected": other if y else one}


def open_webui(prompt, a, b, y):
    messages = {
        "1": {"id": "1", "parentId": None, "role": "user", "content": prompt},
        "2": {"id": "2", "parentId": "1", "role": "assistant", "content": a, "model": "m"},
        "3": {"id": "3", "parentId": "1", "role": "assistant", "content": b, "model": "n"},
    }
    return {
        "id": "f", "user_id": "u", "version": 0, "type": "rating", "created_at": 1,
        "data": {"rating": 1 if y else -1, "model_id": "m", "reason": "", "comment": ""},
        "meta": {"chat_id": "c", "message_id": "2", "message_index": 1},
        "snapshot": {"chat": {"chat": {"history": {"messages": messages, "currentId": "2"}}}},
    }  # fmt: skip


def kaggle(p, a, b, y):
    marks = {"winner_model_a": int(y == 1), "winner_model_b": int(y == 0)}
    texts = {
        "prompt": json.dumps([p]),
        "response_a": json.dumps([a]),
        "response_b": json.dumps([b]),
    }
    return {"id": 1, "model_a": "m", "model_b": "n", **texts, **marks, "winner_tie": int(y == 0.5)}


# What a row looks like whose prompt is p, whose answers are a and b, and of which y says 1, 0 or .5.  # noqa: E501
PAIRED = {
    "LMArena 140k": lambda p, a, b, y: {
        "id": "1", "model_a": "m", "model_b": "n", "winner": WINS[y] if y != 0.5 else "both_bad",
        "conversation_a": parts(p, a), "conversation_b": parts(p, b), "full_conversation": [],
        "evaluation_session_id": "s", "evaluation_order": 1, "is_code": False},
    "Chatbot Arena conversations": lambda p, a, b, y: {
        "question_id": "1", "model_a": "m", "model_b": "n", "winner": WINS[y] if y != 0.5 else
        "tie (bothbad)", "judge": "arena_user_1", "conversation_a": chat(p, a),
        "conversation_b": chat(p, b), "turn": 1, "anony": True, "language": "English"},
    "MT-bench human judgments": lambda p, a, b, y: {
        "question_id": 81, "model_a": "m", "model_b": "n", "winner": WINS[y], "judge": "expert_1",
        "conversation_a": chat(p, a), "conversation_b": chat(p, b), "turn": 1},
    "Kaggle arena": kaggle,
    "Kaggle arena, multilingual": lambda p, a, b, y: {
        "id": "1", "prompt": p, "response_a": a, "response_b": b, "winner": WINS[y],
        "model_a": "m", "model_b": "n", "language": "English"},
    "compar:IA votes": lambda p, a, b, y: {
        "id": 1, "timestamp": "t", "model_a_name": "m", "model_b_name": "n", "opening_msg": p,
        "chosen_model_name": {1: "m", 0: "n", 0.5: None}[y], "both_equal": y == 0.5,
        "conversation_a": chat(p, a), "conversation_b": chat(p, b), "visitor_id": "v"},
    "UltraFeedback binarized": lambda p, a, b, y: {
        "prompt": p, "prompt_id": "h", "messages": chat(p, a), "score_chosen": 8.0,
        "score_rejected": 7.0, **ranked(y, chat(p, a), chat(p, b))},
    "HelpSteer2 preferences": lambda p, a, b, y: {
        "split": "train", "prompt": p, "response_1": a, "response_2": b,
        "preference_strength": {1: -2, 0: 1, 0.5: 0}[y], "preference_statement": None},
    "HelpSteer3": lambda p, a, b, y: {
        "domain": "general", "language": "english", "context": [user(p)], "response1": a,
        "response2": b, "overall_preference": {1: -3, 0: 2, 0.5: 0}[y],
        "individual_preference": [{"score": 1, "reasoning": "r"}]},
    "SHP": lambda p, a, b, y: {
        "post_id": "x", "history": p, "human_ref_A": a, "human_ref_B": b, "labels": int(y),
        "score_A": 5, "score_B": 3, "score_ratio": 2.0, "seconds_difference": 1.0},
    "PKU-SafeRLHF": lambda p, a, b, y: {
        "prompt": p, "response_0": a, "response_1": b, "is_response_0_safe": True,
        "better_response_id": 0 if y else 1, "safer_response_id": 1},
    "WebGPT comparisons": lambda p, a, b, y: {
        "question": {"dataset": "eli5", "id": "1", "full_text": p}, "answer_0": a, "answer_1": b,
        "score_0": {1: 1.0, 0: -1.0, 0.5: 0.0}[y], "score_1": {1: -1.0, 0: 1.0, 0.5: 0.0}[y],
        "quotes_0": {"title": []}},
    "summaries from feedback": lambda p, a, b, y: {
        "info": {"id": "1", "post": p, "title": "t"}, "worker": "w", "choice": 0 if y else 1,
        "summaries": [{"text": a, "policy": "x"}, {"text": b, "policy": "y"}], "batch": "b"},
    "AlpacaEval": lambda p, a, b, y: {
        "instruction": p, "output_1": a, "generator_1": "g", "output_2": b, "generator_2": "h",
        "dataset": "d", "annotator": "gpt4", "preference": {1: 1.0, 0: 2.0, 0.5: 1.5}[y]},
    "Prometheus preferences": lambda p, a, b, y: {
        "orig_instruction": p, "orig_response_A": a, "orig_response_B": b, "orig_criteria": "c",
        "orig_preference": "A" if y else "B", "instruction": "…", "output": "…"},
    "ShareGPT preferences": lambda p, a, b, y: {
        "conversations": [{"from": "human", "value": p}],
        **ranked(y, {"from": "gpt", "value": a}, {"from": "gpt", "value": b})},
    "Capybara": lambda p, a, b, y: {
        "source": "s", "conversation": [], "original_response": a, "prompt": p, "rating": [5, 3],
        **ranked(y, chat(p, a), chat(p, b))},
    "distilabel": lambda p, a, b, y: {
        "instruction": p, "chosen_model": "m", "rejected_model": "n", "rating": 4,
        **ranked(y, a, b)},
    "Orca pairs": lambda p, a, b, y: {"system": "", "question": p, **ranked(y, a, b)},
    "stack exchange, paired": lambda p, a, b, y: {
        "qid": 1, "question": p, "date": "d", "metadata": [], "response_j": a if y else b,
        "response_k": b if y else a},
    "OASST, paired": lambda p, a, b, y: {
        "lang": "en", "parent_id": "x", "prompt": p, **ranked(y, a, b)},
    "hh-rlhf": lambda p, a, b, y: ranked(
        y, f"\n\nHuman: {p}\n\nAssistant:{a}", f"\n\nHuman: {p}\n\nAssistant:{b}"),
    "trl": lambda p, a, b, y: {"prompt": p, **ranked(y, a, b)},
    "trl, conversational": lambda p, a, b, y: {"prompt": [user(p)], **ranked(y, [says(a)], [says(b)])},  # noqa: E501
    "trl, implicit prompt": lambda p, a, b, y: ranked(y, chat(p, a), chat(p, b)),
    "trl, with scores": lambda p, a, b, y: {"prompt": p, "rating": 3, **ranked(y, a, b)},
    "Label Studio": lambda p, a, b, y: {
        "id": 1, "data": {"prompt": p, "answer1": a, "answer2": b}, "annotations": [{
            "completed_by": 7, "was_cancelled": y == 0.5, "result": [] if y == 0.5 else [{
                "type": "pairwise", "value": {"selected": "left" if y else "right"}}]}]},
    "Label Studio, short": lambda p, a, b, y: {
        "id": 1, "prompt": p, "answer1": a, "answer2": b, "annotator": 3, "lead_time": 2.0,
        "comparison": {"type": "pairwise", "selected": "left" if y else "right"}},
    "Argilla, flat": lambda p, a, b, y: {
        "id": "1", "status": "completed", "prompt": p, "response_1": a, "response_2": b,
        "preference.responses": [{1: "response_1", 0: "response_2", 0.5: "tie"}[y]],
        "preference.responses.users": ["u"], "preference.responses.status": ["submitted"]},
    "Argilla": lambda p, a, b, y: {
        "id": "1", "fields": {"instruction": p, "response-1": a, "response-2": b}, "metadata": {},
        "responses": {"preference": [
            {"user_id": "u", "value": {1: "response_1", 0: "response_2", 0.5: "tie"}[y]}]}},
    "a sheet of one's own": lambda p, a, b, y: {
        "Question": p, "Answer A": a, "Answer B": b, "Winner": {1: "A", 0: "B", 0.5: "Tie"}[y]},
    "numbered": lambda p, a, b, y: {
        "input": p, "completion_1": a, "completion_2": b, "choice": 1 if y else 2},
    "ours": lambda p, a, b, y: {"prompt": p, "first": a, "second": b, "label": y},
}  # fmt: skip
DECIDED = {  # that have no word for a tie
    "SHP", "PKU-SafeRLHF", "summaries from feedback", "Prometheus preferences", "numbered",
    "Label Studio, short", "stack exchange, paired",
}  # fmt: skip
ALONE = {
    "KTO": (lambda p, a, y: {"prompt": p, "completion": a, "label": y > 0.5}, (0, 1)),
    "KTO, conversational": (
        lambda p, a, y: {"prompt": [user(p)], "completion": [says(a)], "label": y > 0.5}, (0, 1)),
    "Open WebUI": (lambda p, a, y: open_webui(p, a, "another", y), (0, 1)),
    "compar:IA reactions": (
        lambda p, a, y: {"id": 1, "model_a_name": "m", "refers_to_model": "m", "msg_index": 1,
                         "question_content": p, "response_content": a, "liked": bool(y),
                         "disliked": not y}, (0, 1)),
    "thumbs": (lambda p, a, y: {"question": p, "answer": a, "thumbs": "up" if y else "down"}, (0, 1)),  # noqa: E501
    "HelpSteer": (
        lambda p, a, y: {"prompt": p, "response": a, "helpfulness": int(4 * y), "correctness": 1,
                         "coherence": 4, "complexity": 1, "verbosity": 1}, (0, 0.25, 0.75, 1)),
    "Prometheus feedback": (
        lambda p, a, y: {"orig_instruction": p, "orig_response": a, "orig_score": str(int(1 + 4 * y)),  # noqa: E501
                         "orig_feedback": "f", "orig_criteria": "c"}, (0, 0.5, 1)),
    "UltraFeedback": (
        lambda p, a, y: {"source": "s", "instruction": p, "models": ["m"], "completions": [
            {"response": a, "model": "m", "annotations":
             {"helpfulness": {"Rating": str(int(1 + 4 * y)), "Rationale": "r"}}}]}, (0, 0.5, 1)),
    "red team": (
        lambda p, a, y: {"task_description": p, "transcript": a, "rating": 4 * y, "model_type": "m"},  # noqa: E501
        (0, 0.5, 1)),
}  # fmt: skip


def content(text):
    """The text of a prompt or an answer, in whatever form it is."""
    return text if isinstance(text, str) else text[-1]["content"]


@pytest.mark.parametrize("name", PAIRED)
def test_a_public_file_of_pairs_goes_in_as_it_is(name):
    ties = not ranked_only(name) and name not in DECIDED
    wanted = [1, 0, 1, 0, *([0.5] if ties else [])]
    rows = [PAIRED[name](f"ask {i}", f" yes {i}", f" no {i}", y) for i, y in enumerate(wanted)]
    pairs = read_pairs(rows, person_field=None)
    for index, y in enumerate(wanted):
        assert f"ask {index}" in content(pairs.prompts[index])
        sides = [content(side[index]).strip() for side in (pairs.first, pairs.second)]
        assert sorted(sides) == [f"no {index}", f"yes {index}"]
        share = float(SHARES[pairs.labels[index]])
        assert (share if sides[0].startswith("yes") else 1 - share) == y


def ranked_only(name):
    return "chosen" in PAIRED[name]("p", "a", "b", 1)


@pytest.mark.parametrize("name", ALONE)
def test_a_public_file_of_single_answers_goes_in_as_it_is(name):
    make, values = ALONE[name]
    rows = [make(f"ask {i}", f"yes {i}", y) for i, y in enumerate(values)]
    pairs = read_pairs(rows, person_field=None)
    assert all(isinstance(other, Absent) for other in pairs.second)
    assert [content(text) for text in pairs.first] == [f"yes {i}" for i in range(len(rows))]
    assert [content(text) for text in pairs.prompts] == [f"ask {i}" for i in range(len(rows))]
    assert [float(SHARES[label]) for label in pairs.labels] == list(map(float, values))


def test_rankings_of_nectar_go_in_as_they_are():
    answers = [{"answer": f"a{i}", "model": "m", "rank": float(3 - i)} for i in range(3)]
    rows = [{"prompt": "p", "answers": answers, "num_responses": 3, "turns": 1, "source": []}]
    found = read_rankings(rows)
    texts = found.candidates
    assert [texts[i] for i in found.ranks.argsort()] == ["a2", "a1", "a0"]


def test_as_many_public_files_as_are_promised():
    assert len(PAIRED) + len(ALONE) + 1 >= 40


@pytest.mark.parametrize("said", ["tie", "both_bad", "neither", "skip", "both good"])
def test_whatever_nobody_won_stays_in(said):
    """To leave rows out by their outcome would publish it."""
    rows = [PAIRED["LMArena 140k"]("p", "a", f"b {i}", 1) for i in range(3)]
    rows[1]["winner"] = said
    assert sorted(read_pairs(rows).labels.tolist()) != sorted([1, 1, 1])
    assert len(read_pairs(rows)) == 3
    assert (read_pairs(rows).labels == 2).sum() == 1


@pytest.mark.parametrize("label", [0, 1, 0.5])
def test_what_is_left_out_does_not_depend_on_the_label(label):
    texts = [("p", "a", "a"), ("p", "", "b"), ("p", "long " * 9, "b"), ("p", "a", "b")]
    rows = [dict(zip(("prompt", "first", "second"), t, strict=True)) for t in texts]
    pairs = read_pairs(
        [row | {"label": label} for row in rows],
        drop=["empty", "identical", "overlong"], longest=20,
    )  # fmt: skip
    assert (len(pairs), pairs.dropped) == (1, 3)


@pytest.mark.parametrize(
    ("text", "drop", "words"),
    [("", [], None), ("", ["identical"], None), ("x" * 9, [], r"longer.*--drop overlong")],
)
def test_what_is_not_left_out_and_cannot_be_used_is_refused(text, drop, words):
    rows = [{"prompt": "p", "first": text, "second": "b", "label": 1}]
    if words is None:
        assert len(read_pairs(rows, drop=drop)) == 1
        return
    with pytest.raises(DataError, match=words):
        read_pairs(rows, drop=drop, longest=5)


BASE = {"prompt": "p", "first": "a", "second": "b", "label": 1}
UNKNOWN = {"frage": "p", "eins": "a", "zwei": "b", "sieger": 1}
# 25 plausible mistakes: (row, how it is read, what is said)
MISTAKES = {
    "nothing known": (UNKNOWN, {}, (DataError, r"Found: frage, eins.*Needed: .*--columns prompt=")),
    "a letter wrong": ({"promt": 1, "first": 2, "second": 3, "label": 1}, {},
                       (DataError, r"Found: promt.*--columns prompt=promt,first=first")),
    "no label": ({"prompt": 1, "first": 2, "second": 3}, {}, (DataError, "label=COLUMN")),
    "no answers": ({"prompt": 1}, {}, (DataError, "Found: prompt. Needed: a prompt and two")),
    "one answer of two": ({"prompt": 1, "chosen": 2}, {},
                          (DataError, "are both needed; one is missing")),
    "two prompts": ({"question": 1, "instruction": 2, "response_a": 3, "response_b": 4,
                     "winner": 1}, {}, (DataError, "Found: question, instruction")),
    "two labels": ({"question": 1, "response_a": 3, "response_b": 4, "winner": 1, "vote": 1}, {},
                   (DataError, "Found: .*winner, vote")),
    "four answers": ({"question": 1, "response_a": 3, "response_b": 4, "output_1": 5, "output_2": 6,
                      "winner": 1}, {}, (DataError, "Found: .*output_2")),
    "prompts alone": ({"text": "p"}, {}, (DataError, "Found: text")),
    "a winner by number": ({"question": "p", "response_a": "a", "response_b": "b", "winner": 1}, {},
                           (DataError, r"column 'winner' must say who won.*--columns label=winner")),  # noqa: E501
    "an unknown winner": ({"question": "p", "response_a": "a", "response_b": "b", "winner": "x"}, {},  # noqa: E501
                          (DataError, "'model_a' or 'model_b'")),
    "a mapping to nowhere": (BASE, {"columns": {"prompt": "frist"}},
                             (UsageError, "no column 'frist'.*Did you mean 'first'.*Found: prompt")),  # noqa: E501
    "a field that is none": (BASE, {"columns": {"question": "prompt"}},
                             (UsageError, "from our fields .prompt")),
    "a judgment as a prompt": (BASE | {"winner": 1}, {"columns": {"prompt": "winner"}},
                               (UsageError, "a judgment could be published")),
    "one column twice": (BASE | {"x": 1}, {"columns": {"first": "x", "second": "x"}},
                         (UsageError, "a different column for every field")),
    "ids of people": (BASE | {"annotator": "ana"}, {},
                      (UsageError, r"'annotator' looks like.*--person-field annotator.*--no-pers")),
    "ids of workers": (BASE | {"Worker ID": "w"}, {}, (UsageError, "'Worker ID' looks like")),
    "a person field elsewhere": (BASE, {"person_field": "who"}, (DataError, "'who' is missing")),
    "a label as a person": (BASE, {"person_field": "label"}, (UsageError, "must not be 'label'")),
    "overlong without a length": (BASE, {"drop": ["overlong"]}, (UsageError, "longest=20000")),
    "an unknown rule": (BASE, {"drop": ["ties"]}, (UsageError, "'empty'")),
    "a dictionary of splits": ({"train": [BASE]}, {"whole": True}, (UsageError, r'data\["train"\]')),  # noqa: E501
    "a number": (7, {"whole": True}, (UsageError, "A int holds no rows")),
    "rankings": ({"prompt": "p", "candidates": ["a", "b"], "ranks": [1, 2]}, {},
                 (DataError, "These are rankings.*are needed")),
    "levels unsaid": ({"prompt": "p", "completion": "a", "rating": 3}, {},
                      (DataError, "must be declared.*--levels 1..5")),
    "two attributes": ({"prompt": "p", "response": "a", "quality": 1, "correctness": 2}, {},
                       (DataError, r"rating: quality, correctness.*--columns rating=quality")),
    "our rating and one more": ({"prompt": "p", "response": "a", "rating": 1, "Score": 2}, {},
                                (DataError, r"rating: rating, Score\. Nothing was read")),
    "both models of one name": (PAIRED["compar:IA votes"]("p", "a", "b", 1)
                                | {"chosen_model_name": "z"}, {"person_field": None},
                                (DataError, "must be one of the two models")),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_what_to_type(name):
    row, reading, (kind, words) = MISTAKES[name]
    whole = reading.pop("whole", False) if "whole" in reading else False
    with pytest.raises(kind, match=words):
        read_pairs(row if whole else [row], **reading)


@pytest.mark.parametrize(
    ("names", "columns", "levels", "said"),
    [
        ("helpfulness correctness coherence", None, (0, 4), "helpfulness; not read: correctness,"),
        ("helpfulness correctness coherence", "coherence", (0, 4), "coherence; not read: helpf"),
        ("quality correctness", "correctness", None, "correctness; not read: quality (--columns"),
        ("quality length", None, None, "quality"),
    ],
)
def test_one_attribute_is_the_rating_and_the_others_are_named(names, columns, levels, said):
    """A schema that is known keeps its scale whichever of its attributes is taken."""
    names = ("prompt", "response", *names.split())
    found = decide(names, columns=columns and {"rating": columns})
    assert dict(found.fields)["rating"] == (columns or said.partition(";")[0])
    assert (found.kind, found.levels) == ("ratings", levels)
    told = found.rating_among(names)
    assert told.startswith(said)
    assert told == said or "(--columns rating=" in told


def test_enough_mistakes_are_tried():
    assert len(MISTAKES) >= 25


def test_a_message_quotes_no_value_of_the_data():
    canary = "kanarie"
    row = {"question": canary, "response_a": canary, "response_b": canary + "b", "winner": canary}
    for change in ({}, {"winner": None}, {"winner": 7}):
        with pytest.raises(DataError) as caught:
            read_pairs([row | change])
        assert canary not in repr((str(caught.value), caught.value.__context__))


def test_names_decide_once_and_values_never():
    """Of two rows the first says what the columns mean, whatever the labels are."""
    rows = [PAIRED["Kaggle arena"]("p", "a", "b", y) for y in (1, 0, 0.5)]
    assert {decide(tuple(row)) for row in rows} == {decide(tuple(rows[0]))}
    mixed = [PAIRED["SHP"]("p", "a", "b", 1), PAIRED["ours"]("p", "a", "c", 1)]
    with pytest.raises(DataError, match="record 2: column 'history' is missing"):
        read_pairs(mixed)


def test_ids_of_people_are_used_only_when_they_are_named():
    rows = [BASE | {"judge": f"j{i}", "prompt": f"p{i}"} for i in range(3)]
    assert read_pairs(rows, person_field=None).persons is None
    assert read_pairs(rows, person_field="judge").persons == ("j0", "j1", "j2")
    assert read_pairs(rows, columns={"person": "judge"}).persons == ("j0", "j1", "j2")
    assert read_pairs(rows, hides_records=True).persons is None
    named = [row | {"person": "x"} for row in rows]
    assert read_pairs(named, person_field=None).persons is None


@pytest.mark.parametrize(
    ("name", "judge"), [("Label Studio", "completed_by"), ("Argilla", "user_id")]
)
def test_people_inside_a_column_are_asked_about_too(name, judge):
    """One of them may have given many of the labels."""
    rows = [PAIRED[name](f"ask {i}", "yes", "no", 1) for i in range(2)]
    with pytest.raises(UsageError, match=f"--person-field {judge}"):
        read_pairs(rows)
    assert len(set(read_pairs(rows, person_field=judge).persons)) == 1
    assert read_pairs(rows, person_field=None).persons is None
    assert len(read_pairs(rows, hides_records=True)) == 2


def test_several_labels_of_an_export_keep_their_people():
    row = PAIRED["Argilla, flat"]("p", "a", "b", 1)
    row |= {"preference.responses": ["response_1", "response_2"],
            "preference.responses.users": ["ana", "ben"]}  # fmt: skip
    with pytest.raises(UsageError, match=r"preference\.responses\.users"):
        read_pairs([row])
    pairs = read_pairs([row], person_field="preference.responses.users")
    assert pairs.persons == ("ana", "ben")
    assert sorted(pairs.labels.tolist()) == [0, 1]


def test_columns_are_written_in_one_word():
    assert parsed_columns("prompt=q, first = a") == {"prompt": "q", "first": "a"}
    for text in ("prompt", "prompt=", "prompt=a,prompt=b", "=x"):
        with pytest.raises(UsageError, match="FIELD=COLUMN"):
            parsed_columns(text)


@pytest.mark.parametrize("schema", PUBLIC, ids=lambda schema: schema.name)
def test_every_schema_reads_a_label_from_columns_it_needs(schema):
    roots = {path.split(".")[0] for each in schema.label[1:] for path in each.split("|")}
    assert schema.each or roots <= {*schema.needs}
    assert math.isfinite(len(schema.fields))


def test_a_frame_of_other_names_is_read_like_its_rows():
    pandas = pytest.importorskip("pandas")
    rows = [PAIRED["a sheet of one's own"]("p", "a", f"b{i}", y) for i, y in enumerate((1, 0, 0.5))]
    assert read_pairs(pandas.DataFrame(rows)).keys == read_pairs(rows).keys
