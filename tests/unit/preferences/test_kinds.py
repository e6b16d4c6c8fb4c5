"""What holds for judgments of every kind, however they are read."""

import json

import pytest

from sordino.errors import DataError, UsageError
from sordino.preferences.pairs import read_pairs
from sordino.preferences.rankings import read_rankings
from sordino.preferences.trajectories import read_trajectories

KINDS = {
    "pairs": (read_pairs, {"prompt": "p", "chosen": "a", "rejected": "b"}),
    "labels": (read_pairs, {"prompt": "p", "first": "a", "second": "b", "labels": [1]}),
    "ballots": (read_rankings, {"prompt": "p", "candidates": ["a", "b"], "ranking": [0]}),
    "trajectories": (read_trajectories, {"chosen": [[1.0]], "rejected": [[0.0]]}),
}
FIELDS = (
    "prompt", "chosen", "rejected", "first", "second", "label", "labels", "answer",
)  # fmt: skip
BALLOT_FIELDS = ("ranking", "ranks", "candidates", "items", "offered")


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def kind(request):
    return request.param


def named(row, person, field="person"):
    return row | ({f"{field}s": [person]} if "labels" in row else {field: person})


def persons_of(found):
    return getattr(found, "pairs", found).persons


def test_all_name_a_person_or_none_does(kind):
    read, row = kind
    assert persons_of(read([named(row, " ana "), named(row, 7)])) == ("ana", "7")
    assert persons_of(read([named(row, "ana", "rater")], person_field="rater")) == ("ana",)
    for rows in ([named(row, "ana"), row], [row, named(row, "ana")]):
        with pytest.raises(DataError, match=r"^record 2.*: a person id is given for some"):
            read(rows)
    with pytest.raises(DataError, match="'rater' is missing"):
        read([row], person_field="rater")


def test_no_person_is_read_from_what_was_judged(kind):
    read, row = kind
    for field in FIELDS if read is read_pairs else FIELDS + BALLOT_FIELDS:
        with pytest.raises(UsageError, match=f"'{field}': person ids are published"):
            read([row], person_field=field)


def test_a_file_says_what_its_rows_say(kind, tmp_path):
    read, row = kind
    path = tmp_path / "x.jsonl"
    path.write_text(f"{json.dumps(row)}\n\n{json.dumps(row)}")
    sources = [row, row], iter([row, row]), path, str(path)
    digests = {getattr(found, "pairs", found).public_digest for found in map(read, sources)}
    assert len(digests) == 1
    path.write_text("")
    for empty in ([], path):
        with pytest.raises(DataError, match="empty"):
            read(empty)
    for broken in ([], "text", None, 3):
        with pytest.raises(DataError, match=r"^record 2: expected an object"):
            read([row, broken])


@pytest.mark.parametrize("kind", ["ballots", "trajectories"])
def test_lists_are_not_read_from_tables(kind, tmp_path):
    with pytest.raises(DataError, match="not read from a table"):
        KINDS[kind][0](tmp_path / "x.csv")
