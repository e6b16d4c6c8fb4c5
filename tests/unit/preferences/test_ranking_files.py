"""Rankings from files: every accepted form says the same, and no error quotes the data."""

import gzip
import json

import pytest

from sordino.errors import DataError, FileSystemError, UsageError
from sordino.preferences.ballots import parse_ballot
from sordino.preferences.rankings import read_rankings

TEXTS = ["Salt.", "Sugar.", "Neither, and that is that."]
ROW = {"prompt": "What belongs into tea?", "candidates": TEXTS}
PRIVATE = "the secret ballot"


def by_text(row, **settings):
    """What one ballot says, as text → doubled rank."""
    rankings = read_rankings([row], **settings)
    names = rankings.items or rankings.candidates
    return dict(zip(map(str, names), rankings.doubled_ranks().tolist(), strict=True))


@pytest.mark.parametrize(
    "judged",
    [
        {"ranking": [2, 0, 1]},
        {"ranking": [TEXTS[2], TEXTS[0], TEXTS[1]]},
        {"ranking": [[2], [TEXTS[0]], 1]},
        {"ranking": [2, 0]},
        {"ranks": [2, 3, 1]},
        {"ranks": [2, 3.0, 1]},
        {"ranks": [20, 30, 10]},
        {"ranks": [2, None, 1]},
    ],
)
def test_every_form_says_the_same(judged):
    assert by_text(ROW | judged) == {TEXTS[2]: 2, TEXTS[0]: 4, TEXTS[1]: 6}


@pytest.mark.parametrize(
    "judged", [{"ranking": [1]}, {"ranks": [None, 4, None]}, {"ranking": [1, [0, 2]]}]
)
def test_ties_and_who_is_not_listed(judged):
    assert by_text(ROW | judged) == {TEXTS[1]: 2, TEXTS[0]: 5, TEXTS[2]: 5}


def test_chat_messages():
    chats = [[{"role": "assistant", "content": text, "id": 1}] for text in TEXTS]
    row = {
        "prompt": [{"role": "user", "content": "?"}],
        "candidates": chats,
        "ranking": [1, [0, 2]],
    }
    rankings = read_rankings([row])
    assert rankings.ranks[[c[0]["content"] for c in rankings.candidates].index("Sugar.")] == 1
    assert all(set(candidate[0]) == {"role", "content"} for candidate in rankings.candidates)
    with pytest.raises(DataError, match="unknown"):
        read_rankings([row | {"ranking": [chats[0]]}])


ELECTION = ["bob", "carol", "alice"]
BALLOTS = [{"ranking": ["alice", "bob"]}, {"ranks": [2, None, 1]}, {"ranking": []}]


def test_an_election(tmp_path):
    path = tmp_path / "x.jsonl"
    lines = [{"items": ELECTION}, *BALLOTS]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    packed = tmp_path / "x.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    found = [
        read_rankings(path, offered="all"),
        read_rankings(str(packed), offered="all"),
        read_rankings(lines, offered="all"),
        read_rankings(iter(lines), offered="all"),
        read_rankings(BALLOTS, items=ELECTION, offered="all"),
        read_rankings(iter(BALLOTS), items=tuple(ELECTION[::1]), offered="all"),
    ]
    for rankings in found:
        assert rankings.items == ("alice", "bob", "carol")
        assert rankings.ranks.tolist() == [1, 2, 0, 1, 2, 0, 0, 0, 0]
        assert rankings.keys == found[0].keys
        assert rankings.public_digest == found[0].public_digest
        rankings.refuse_other_order()
    assert len(set(found[0].keys)) == 1


def test_items_are_said_once():
    with pytest.raises(UsageError, match="left out"):
        read_rankings([{"items": ELECTION}, *BALLOTS], items=ELECTION)
    with pytest.raises(DataError, match="record 2: ballots choose"):
        read_rankings([BALLOTS[0], {"items": ELECTION, "ranking": []}], items=ELECTION)
    with pytest.raises(DataError, match="record 3: field 'ranking'"):
        read_rankings([{"items": ELECTION}, BALLOTS[0], {"items": ELECTION}])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"ranking": [TEXTS[0], 0]}, "twice"),
        ({"ranking": [True]}, "unknown"),
        ({"ranking": [PRIVATE]}, "unknown"),
        ({"ranking": PRIVATE}, "must be a list"),
        ({"ranks": [1, 2]}, "'ranks' must be a list of one number for each"),
        ({"ranks": "123"}, "'ranks' must be a list of one number for each"),
        ({"ranks": [0, 1, 2]}, "whole numbers from 1"),
        ({"ranks": [1, 2, PRIVATE]}, "whole numbers from 1"),
        ({"ranks": [1, 2, float("nan")]}, "whole numbers from 1"),
        ({"ranks": [1, 2, True]}, "whole numbers from 1"),
        ({"ranking": [0], "ranks": [1, 2, 3]}, "exclude each other"),
        ({"ranking": [0], "chosen": PRIVATE}, "read_pairs"),
        ({"label": 1}, "read_pairs"),
        ({}, "'ranking' \\(or 'ranks'\\) is missing"),
        ({"ranking": [0], "prompt": None}, "'prompt' must be"),
        ({"ranking": [0], "candidates": [PRIVATE]}, "at least two"),
        ({"ranking": [0], "candidates": PRIVATE}, "at least two"),
        ({"ranking": [0], "candidates": [PRIVATE, PRIVATE]}, "two candidates are the same"),
        ({"ranking": [0], "candidates": [PRIVATE, 3]}, "'candidates' must be"),
        ({"ranking": [0], "candidates": [PRIVATE, [{"role": "u", "content": "x"}]]}, "all texts"),
        ({"ranking": [0], "candidates": [PRIVATE, "\ud800"]}, "Unicode"),
        ({"ranking": [0], "person": ""}, "'person'"),
    ],
)
def test_ballots_that_cannot_be_used(change, word):
    with pytest.raises(DataError, match=f"^record 2: .*{word}") as caught:
        read_rankings([ROW | {"ranking": []}, ROW | change])
    assert not any(text in str(caught.value) for text in (PRIVATE, *TEXTS, ROW["prompt"]))


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ({"ranking": ["dave"]}, "unknown"),
        ({"ranking": [0]}, "unknown"),
        ({"ranking": [], "candidates": ["a", "b"]}, "Do not mix"),
        ({"ranking": [], "items": ELECTION}, "Do not mix"),
        ({"chosen": "a"}, "read_pairs"),
    ],
)
def test_votes_that_cannot_be_used(row, word):
    with pytest.raises(DataError, match=f"^record 3: .*{word}") as caught:
        read_rankings([{"items": ELECTION}, BALLOTS[0], row])
    assert not any(name in str(caught.value) for name in ("dave", *ELECTION))


@pytest.mark.parametrize(
    ("items", "word"),
    [
        (["a"], "at least two"),
        (["a", "a"], "twice"),
        (["a", 3], "entry 1"),
        (["a", "b "], "entry 1"),
        ("ab", "list"),
        ({"a": 1, "b": 2}, "list"),
        (None, "list"),
        (3, "list"),
    ],
)
def test_items_that_cannot_be_used(items, word):
    with pytest.raises(DataError, match=f"record 1: field 'items'.*{word}"):
        read_rankings([{"items": items}, {"ranking": []}])


def test_sources_without_ballots(tmp_path):
    for source in ([], [{"items": ELECTION}]):
        with pytest.raises(DataError, match="no ballot"):
            read_rankings(source)
    empty = tmp_path / "x.jsonl"
    empty.write_text("")
    with pytest.raises(DataError, match="empty"):
        read_rankings(empty)
    with pytest.raises(FileSystemError):
        read_rankings(tmp_path / "missing.jsonl")
    (tmp_path / "x.csv").write_text("ranking\n")
    with pytest.raises(DataError, match="not read from a table"):
        read_rankings(tmp_path / "x.csv")
    (tmp_path / "y.jsonl").write_text(json.dumps(ROW | {"ranking": [0]}) + "\n{")
    with pytest.raises(DataError, match="line 2"):
        read_rankings(tmp_path / "y.jsonl")


def test_keys_are_of_the_prompt_and_the_set_of_candidates():
    def key(prompt, texts):
        (ballot,) = parse_ballot({"prompt": prompt, "candidates": texts, "ranking": []}, "x")
        return ballot.key

    one = key("p", ["a", "b", "c"])
    assert one == key("p", ["c", "a", "b"])
    assert len({one, key("q", ["a", "b", "c"]), key("p", ["a", "b"]), key("p", ["ab", "c"])}) == 4
