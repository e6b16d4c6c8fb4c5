"""Whose answers met: read from any arena's columns, kept through every step, and never swapped."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest
from tests.privatized import privatize_file

from sordino.engines.engine import InProcess
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.chunk_survey import survey_chunks
from sordino.preferences.chunks import find_chunks
from sordino.preferences.comparisons import LEVEL, STYLE, ItemDifferences
from sordino.preferences.features import HashedText
from sordino.preferences.pairs import read_pairs
from sordino.preferences.records import Names
from sordino.privacy.guarantee import REPLACE_ONE, SHARES, Guarantee
from sordino.privacy.ledger import Ledger
from sordino.privatization.answers import privatize
from sordino.rewards.evidence import counted_vectors

BARE = {
    "an arena": [{"model_a": "x", "model_b": "y", "winner": "model_b"}],
    "an arena with ids": [{"question_id": 7, "model_a": "y", "model_b": "x", "winner": "model_a"}],
    "the winner by its name": [{"player_1": "x", "player_2": "y", "winner": "y"}],
    "numbers": [{"model_1": "x", "model_2": "y", "winner": 2}],
    "Kaggle": [{"id": 5, "model_a": "x", "model_b": "y", "winner_model_a": 0, "winner_model_b": 1,
                "winner_tie": 0}],
    "compar:IA": [{"conversation_pair_id": "c", "model_a_name": "x", "model_b_name": "y",
                   "chosen_model_name": "y", "both_equal": False}],
    "our own": [{"first_name": "x", "second_name": "y", "label": 0}],
}  # fmt: skip
TEXTS = {
    "LMArena": {"conversation_a": [{"role": "user", "content": "Hi"}, {"role": "assistant",
                "content": "one"}], "conversation_b": [{"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "two"}], "winner": "model_b", "model_a": "x",
                "model_b": "y"},
    "AlpacaEval": {"instruction": "Hi", "output_1": "one", "output_2": "two", "generator_1": "x",
                   "generator_2": "y", "preference": 2.0},
    "Kaggle": {"prompt": "Hi", "response_a": "one", "response_b": "two", "model_a": "x",
               "model_b": "y", "winner": "model_b"},
    "our own": {"prompt": "Hi", "first": "one", "second": "two", "label": 0, "first_name": "x",
                "second_name": "y"},
}  # fmt: skip


def battles(n=60, people=3, seed=0):
    generator = np.random.default_rng(seed)
    for row in range(n):
        one, other = generator.permutation(["gpt", "llama", "qwen"])[:2]
        yield {
            "prompt": f"Question {row // people}?", "first": f"Says {one} to {row // people}.",
            "second": f"Says {other} to {row // people}.", "first_name": one,
            "second_name": other, "label": float(generator.integers(0, 3) / 2),
            "person": f"p{row % people}",
        }  # fmt: skip


def ledger_at(path):
    budget = Guarantee(epsilon=9.0, delta=0.0, unit="label", neighbors=REPLACE_ONE, trust="central")
    return Ledger.open(path, budget=budget)


@pytest.mark.parametrize("rows", BARE.values(), ids=BARE)
def test_names_and_a_winner_are_a_battle_without_texts(rows):
    pairs = read_pairs(rows)
    (names,), (first,), (second,) = pairs.names, pairs.first, pairs.second
    assert (first, second) == names[:2]
    assert SHARES[pairs.labels[0]] == (first == "y")  # y won, wherever it stands
    assert pairs.bare


@pytest.mark.parametrize("row", TEXTS.values(), ids=TEXTS)
def test_names_go_with_their_texts_whichever_stands_first(row):
    pairs = read_pairs([row])
    told = {str(pairs.first[0])[-6:]: pairs.names[0].first}
    told |= {str(pairs.second[0])[-6:]: pairs.names[0].second}
    assert {text.rstrip("'}]")[-3:]: name for text, name in told.items()} == {
        "one": "x",
        "two": "y",
    }
    assert SHARES[pairs.labels[0]] == (pairs.names[0].first == "y")
    without = {name: value for name, value in row.items() if value not in ("x", "y")}
    if "instruction" in row or "first" in row or "prompt" in row or "conversation_a" in row:
        assert read_pairs([without]).keys == pairs.keys  # a ledger knows the judgments by texts


@pytest.mark.parametrize(("word", "share"), [
    ("tie", 0.5), ("both bad", 0.5), ("tie (bothbad)", 0.5), ("model_a", 1), ("left", 1),
])  # fmt: skip
def test_ties_and_both_bad_stay_in(word, share):
    pairs = read_pairs([{"model_a": "x", "model_b": "y", "winner": word}])
    won = SHARES[pairs.labels[0]]
    assert (won if pairs.names[0].first == "x" else 1 - won) == share


@pytest.mark.parametrize(("row", "said"), [
    ({"model_a": "x", "model_b": "y", "winner": "nobody knows"}, "must say who won: 'model_a'"),
    ({"model_a": "B", "model_b": "A", "winner": "A"}, "Give that model another name"),
    ({"model_a": "", "model_b": "y", "winner": "y"}, "field 'first_name' is empty"),
    ({"model_a": 1.5, "model_b": "y", "winner": "y"}, "must be a text or a whole number"),
    ({"model_a": "x", "model_b": "x", "winner": "x"}, "both answers are the same"),
    ({"model_a": "x", "winner": "x"}, "It is not clear what the columns mean"),
])  # fmt: skip
def test_what_cannot_be_meant_is_named_and_not_quoted(row, said):
    with pytest.raises(DataError, match=said) as raised:
        read_pairs([row])
    assert "nobody knows" not in str(raised.value)


def test_a_question_is_a_prompt_and_two_answers_never_the_two_names_alone():
    said = [{"model_a": "x", "model_b": "y", "winner": w, "judge": j}
            for w, j in (("x", "ann"), ("y", "ann"), ("tie", "bob"), ("x", "ann"))]  # fmt: skip
    pairs = read_pairs(said, person_field="judge")
    assert pairs.first_rows().all()
    assert len(set(zip(pairs.persons, pairs.keys, strict=True))) == 4
    turned = read_pairs([{**row, "model_a": "y", "model_b": "x"} for row in said],
                        person_field="judge")  # fmt: skip
    assert turned.keys == pairs.keys
    asked = [{**row, "prompt": f"p{number % 2}"} for number, row in enumerate(said)]
    assert read_pairs(asked, person_field="judge").first_rows().tolist() == [
        True,
        True,
        True,
        False,
    ]
    alone = read_pairs([{**row, "judge": None} for row in said], person_field=None)
    assert len(set(alone.keys)) == 1  # so a promise says repeats-not-linked


def test_names_stay_through_a_coin_lines_and_back(tmp_path):
    raw = tmp_path / "raw.jsonl"
    raw.write_text("".join(json.dumps(row) + "\n" for row in battles()))
    pairs = read_pairs(raw)
    private = privatize(pairs, RandomizedResponse(1.0), ledger=ledger_at(tmp_path / "a.db"))
    assert private.names == pairs.names
    assert private.public_digest == pairs.public_digest
    privatize_file(raw, tmp_path / "out.jsonl", RandomizedResponse(1.0),
                   ledger=ledger_at(tmp_path / "b.db"))  # fmt: skip
    back = read_pairs(tmp_path / "out.jsonl")
    assert (back.names, back.keys, back.public_digest) == (
        pairs.names,
        pairs.keys,
        pairs.public_digest,
    )
    assert pairs[0].keys() == {
        "prompt",
        "first",
        "second",
        "first_name",
        "second_name",
        "label",
        "person",
    }
    for whole in (pairs, private):
        part = whole.part([3, 1])
        assert part.names == (pairs.names[3], pairs.names[1])
        assert part.public_digest == pairs.part([3, 1]).public_digest
    assert (part.guarantee, part.release_ids) == (private.guarantee, private.release_ids)


def test_other_names_are_noticed(tmp_path):
    raw = tmp_path / "raw.jsonl"
    raw.write_text("".join(json.dumps(row) + "\n" for row in battles()))
    pairs, others = read_pairs(raw), read_pairs([
        {**row, "first_name": "other"} for row in battles()])  # fmt: skip
    assert others.keys == pairs.keys
    assert others.public_digest != pairs.public_digest
    private = privatize(pairs, RandomizedResponse(1.0), ledger=ledger_at(tmp_path / "a.db"))
    swapped = tuple(Names(each.second, each.first) for each in pairs.names)
    with pytest.raises(PrivacyError, match="not the answers that were released"):
        replace(private, names=swapped)
    out = tmp_path / "out.jsonl"
    privatize_file(raw, out, RandomizedResponse(1.0), ledger=ledger_at(tmp_path / "b.db"))
    out.write_text(out.read_text().replace('"first_name":"gpt"', '"first_name":"qwen"'))
    with pytest.raises(DataError, match="is of another file"):
        read_pairs(out)


def surveyed(folder, rows, *, most=None):
    folder.mkdir()
    lines = [json.dumps(row) + "\n" for row in rows]
    (folder / "one.jsonl").write_text("".join(lines[::2]))
    with gzip.open(folder / "two.jsonl.gz", "wt") as file:
        file.writelines(lines[1::2])
    chunks = find_chunks(folder)
    with survey_chunks(chunks, InProcess(), most=most) as survey:
        features = ItemDifferences(("gpt", "llama", "other", "qwen"), ties=True)
        vectors = counted_vectors(survey, features)
        total = vectors.fold(lambda _, x, labels: x.T @ (labels == 1), np.add)
        return survey.public_digest, total


def test_files_hold_the_same_names_and_notice_others(tmp_path):
    rows = list(battles())
    digest, total = surveyed(tmp_path / "a", rows)
    pairs = read_pairs(rows)
    features = ItemDifferences(("gpt", "llama", "other", "qwen"), ties=True)
    assert total.tolist() == (pairs.differences(features).T @ (pairs.labels == 1)).tolist()
    assert surveyed(tmp_path / "b", rows[::-1])[0] == digest
    altered = [{**rows[0], "first_name": "other"}, *rows[1:]]
    assert surveyed(tmp_path / "c", altered)[0] != digest
    bare = [{"model_a": "x", "model_b": "y", "winner": "tie", "person": f"p{n}"} for n in range(9)]
    with pytest.raises(DataError, match="Name a column with an id of the question"):
        surveyed(tmp_path / "d", bare)


def test_rows_are_differences_of_items_groups_and_styles():
    said = [("x", "y", "a", "# one\n- two", "one two three"), ("y", "z", "b", "one", "two"),
            ("z", "z", "a", "three", "four")]  # fmt: skip
    pairs = read_pairs([
        {"prompt": "p", "first": one, "second": two, "label": 1, "first_name": a,
         "second_name": b, "family": group} for a, b, group, one, two in said])  # fmt: skip
    features = ItemDifferences.of(pairs, groups=("a", "b"), style=("length", "lists"), ties=True)
    assert features.items == ("x", "y", "z")
    rows = pairs.differences(features).toarray()
    assert rows.shape == (3, features.dimension) == (3, 3 * 5 + 3)
    for row, (a, b, group, one, _) in zip(rows, said, strict=True):
        sign = 1 if pairs.first[list(rows[:, 0]).index(row[0])] == one else -1
        whole, own = row[features.board()], row[features.board(group)]
        np.testing.assert_array_equal(whole, own)
        np.testing.assert_array_equal(row[:15].reshape(3, 5)["ba".index(group) + 1], 0)
        wanted = np.eye(3)["xyz".index(a)] - np.eye(3)["xyz".index(b)]
        assert abs(whole[:3]).tolist() == abs(wanted).tolist()
        assert np.linalg.norm(row[:15]) <= 2 * features.feature_bound + 1e-12
        assert row[15:].tolist() == [1, group == "a", group == "b"]
        del sign
    assert abs(rows[0, 4]) == pytest.approx(0.3 * np.log2(2) / 2)
    assert set(STYLE) >= set(features.style)


def test_only_declared_items_are_ranked_and_only_of_names():
    pairs = read_pairs([{"model_a": "x", "model_b": "y", "winner": "x"}])
    with pytest.raises(DataError, match="item 'y' is not among the 2 that were declared"):
        pairs.differences(ItemDifferences(("x", "z")))
    with pytest.raises(DataError, match="group '' is not among"):
        pairs.differences(ItemDifferences(("x", "y"), groups=("de",)))
    with pytest.raises(DataError, match="no style to control for"):
        pairs.differences(ItemDifferences(("x", "y"), style=("length",)))
    with pytest.raises(DataError, match="Rank the names: sordino rank"):
        pairs.differences(HashedText())
    texts = read_pairs([{"prompt": "p", "chosen": "a", "rejected": "b"}])
    with pytest.raises(DataError, match="do not say whose answers met"):
        texts.differences(ItemDifferences(("x", "y")))
    for items in (("x",), ("x", "x")):
        with pytest.raises(UsageError, match="items must be at least 2 names, each once"):
            ItemDifferences(items)
    with pytest.raises(DataError, match="of some records and not of others"):
        read_pairs([{"prompt": "p", "first": "a", "second": "b", "label": 1, **names}
                    for names in ({"first_name": "x", "second_name": "y"}, {})])  # fmt: skip


def test_a_thumb_is_a_battle_against_what_is_expected():
    pairs = read_pairs([{"prompt": "p", "completion": f"a{n}", "label": n > 0, "first_name": name}
                        for n, name in enumerate("xyx")])  # fmt: skip
    features = ItemDifferences.of(pairs)
    assert features.items == ("x", "y", LEVEL)
    assert pairs.differences(features).toarray().tolist() == [[1, 0, -1], [0, 1, -1], [1, 0, -1]]


@pytest.mark.parametrize("row", TEXTS.values(), ids=TEXTS)
def test_a_group_may_be_any_public_column_of_any_schema(row):
    pairs = read_pairs([{**row, "language": "de"}], columns={"family": "language"})
    assert pairs.names[0].group == "de"
    assert pairs.keys == read_pairs([row]).keys
    other = read_pairs([{**row, "who": "v"}], columns={"first_name": "who"})
    assert "v" in other.names[0][:2]


def test_one_name_may_be_a_word_for_its_own_side():
    assert read_pairs([{"model_a": "A", "model_b": "B", "winner": "B"}]).bare
    whole = read_pairs([{"model_a": "x", "model_b": "y", "winner": "x", "is_code": True}],
                       columns={"family": "is_code"})  # fmt: skip
    assert whole.names[0].group == "True"


def test_pairs_of_ratings_hold_both_names():
    rated = [
        {"prompt": f"q{row // 2}", "completion": f"by {name} {row}", "first_name": name,
         "rating": 1 + 3 * (name == "good")}
        for row, name in enumerate(["good", "bad"] * 8)
    ]  # fmt: skip
    pairs = read_pairs(rated, levels=(1, 5), ratings="pairs")
    assert len(pairs) == 8
    assert {frozenset(names[:2]) for names in pairs.names} == {frozenset({"good", "bad"})}
    for names, text, label in zip(pairs.names, pairs.first, pairs.labels, strict=True):
        assert names.first in text
        assert label == (names.first == "good")
