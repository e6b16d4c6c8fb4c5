"""One comparison, whatever its columns are called, in an order that ignores the label."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.errors import DataError
from sordino.preferences.records import _parse_record, canonical, person_key

UNICODE = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
CHATS = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": UNICODE}),
    min_size=1,
    max_size=3,
)
SIDES = st.one_of(st.tuples(UNICODE, UNICODE), st.tuples(CHATS, CHATS))
PROMPTS = st.one_of(UNICODE, CHATS)


def parse(row, **named):
    return _parse_record(row, "line 1", **named)


def public(record):
    return record.prompt, record.first, record.second, record.key, record.person, record.privatized


@given(PROMPTS, SIDES)
def test_which_side_was_chosen_shows_in_the_outcome_only(prompt, sides):
    one, other = sides
    as_is = parse({"prompt": prompt, "chosen": one, "rejected": other})
    turned = parse({"prompt": prompt, "chosen": other, "rejected": one})
    assert public(as_is) == public(turned)
    if not as_is.identical:
        assert as_is.outcome == 1 - turned.outcome


@given(CHATS | UNICODE, CHATS | UNICODE)
def test_a_shared_beginning_is_found_alike_from_both_sides(one, other):
    if isinstance(one, str) != isinstance(other, str):
        return
    there = parse({"chosen": one, "rejected": other})
    back = parse({"chosen": other, "rejected": one})
    assert public(there) == public(back)


@given(UNICODE, UNICODE, UNICODE)
def test_keys_are_equal_under_swap_and_differ_otherwise(prompt, one, other):
    swap, key = canonical(prompt, one, other)
    back, same = canonical(prompt, other, one)
    assert key == same
    assert swap != back or one == other
    assert canonical(prompt + "x", one, other)[1] != key
    assert canonical(prompt, one + "x", other)[1] != key or one + "x" == other


def test_parts_cannot_be_moved_across_their_borders():
    assert canonical("ab", "c", "d")[1] != canonical("a", "bc", "d")[1]
    assert canonical("", "ab", "c")[1] != canonical("", "a", "bc")[1]
    assert canonical("p", "a", "b")[1] != canonical("p", [{"role": "a", "content": ""}], "b")[1]


def test_the_order_is_the_documented_hash():
    def framed(text):
        raw = b"s" + text.encode()
        return len(raw).to_bytes(8, "big") + raw

    def digest(answer):
        return hashlib.sha256(framed("p") + framed(answer)).digest()

    record = parse({"prompt": "p", "chosen": "a", "rejected": "b"})
    assert [record.first, record.second] == sorted(["a", "b"], key=digest)


# --- the shapes ---


USER = {"role": "user", "content": "hi"}
GOOD = {"role": "assistant", "content": "hello"}
BAD = {"role": "assistant", "content": "what"}


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]},
        {"chosen": [USER, GOOD], "rejected": [USER, BAD]},
        {"prompt": (USER,), "chosen": (GOOD,), "rejected": (BAD,)},
    ],
    ids=["explicit prompt", "implicit prompt", "tuples"],
)
def test_chat_messages(row):
    record = parse(row)
    assert record.prompt == [USER]
    assert sorted([record.first[0]["content"], record.second[0]["content"]]) == ["hello", "what"]
    assert (record.outcome == 1) == (record.first == [GOOD])


HUMAN, TURN = "\n\nHuman: ", "\n\nAssistant:"


def test_transcripts_of_several_turns_share_all_but_the_last():
    start = f"{HUMAN}One{TURN} Two{HUMAN}Three{TURN}"
    record = parse({"chosen": f"{start} Four A", "rejected": f"{start} Four B"})
    assert record.prompt == start
    assert {record.first, record.second} == {" Four A", " Four B"}


def test_transcripts_that_part_early_keep_what_follows():
    start = f"{HUMAN}One{TURN}"
    sides = [f"{start} A{HUMAN}Then{TURN} C", f"{start} B{HUMAN}Then{TURN} C"]
    record = parse({"chosen": sides[0], "rejected": sides[1]})
    assert record.prompt == start
    assert {start + record.first, start + record.second} == set(sides)


def test_texts_without_turns_share_whole_words():
    record = parse({"chosen": "Say it: really", "rejected": "Say it: rarely"})
    assert (record.prompt, {record.first, record.second}) == ("Say it: ", {"really", "rarely"})
    assert parse({"chosen": "abc", "rejected": "abd"}).prompt == ""


@given(st.text(max_size=30), st.text(max_size=30))
def test_nothing_is_lost_of_a_shared_beginning(one, other):
    try:
        record = parse({"chosen": one, "rejected": other})
    except DataError:
        assert any("\ud800" <= letter <= "\udfff" for letter in one + other)
        return
    sides = [record.prompt + record.first, record.prompt + record.second]
    assert sorted(sides) == sorted([one, other])


@pytest.mark.parametrize("where", ["prompt", "chosen", "rejected"])
def test_lone_surrogates_are_refused(where):
    row = {"prompt": "p", "chosen": "a", "rejected": "b"} | {where: "x\ud83d"}
    with pytest.raises(DataError, match="line 1: a text is not valid Unicode"):
        parse(row)


# --- identical answers ---


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a", "a", True),
        ("a", "a ", False),
        ([GOOD], [dict(reversed(GOOD.items()))], True),
        ([GOOD | {"x": float("nan")}], [GOOD | {"x": float("nan")}], True),
        ([GOOD | {"x": 1}], [GOOD], True),
        ([GOOD], [GOOD, GOOD], False),
    ],
)
def test_identical_answers(one, other, same):
    assert parse({"prompt": "p", "chosen": one, "rejected": other}).identical is same


# --- person ids ---


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("ana", "ana"),
        (7, "7"),
        (None, None),
        (" Zoe\u0308\n", "Zo\u00eb"),
        ("Zo\u00eb", "Zo\u00eb"),
    ],
)
def test_person_ids(given, expected):
    row = {"prompt": "p", "chosen": "a", "rejected": "b", "who": given}
    assert parse(row, person_field="who").person == expected
    assert parse(row).person is None


def test_person_ids_do_not_change_the_question():
    row = {"prompt": "p", "chosen": "a", "rejected": "b"}
    assert parse(row).key == parse(row | {"person": "x"}).key
    assert person_key("1") != person_key("2")
    assert len(person_key("anybody at all")) == 32


def test_a_record_shows_no_data():
    record = parse({"prompt": "secret", "chosen": "a", "rejected": "b"})
    assert "secret" not in repr(record)
