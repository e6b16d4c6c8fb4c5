"""A promise about whole people: answers and files that it does not cover are refused."""

import json
import math
from dataclasses import replace

import pytest
from tests.privatized import privatize_file

import sordino
from sordino._files import sha256_of
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.preferences.pairs import label_loss, read_pairs
from sordino.privacy.conversions import flip_probability
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, Guarantee

COIN = sordino.RandomizedResponse(0.8)
ROWS = [
    {"prompt": f"q{i // 2}", "chosen": f"{i} yes", "rejected": f"{i} no", "person": f"p{i % 2}"}
    for i in range(10)
]


@pytest.fixture
def ledger(tmp_path):
    budget = Guarantee(100.0, delta=0.0, unit="person", neighbors=REPLACE_ONE, trust="central")
    return sordino.Ledger.open(tmp_path / "spend.db", data="answers", budget=budget)


@pytest.fixture
def private(ledger):
    return sordino.privatize(read_pairs(ROWS), COIN, ledger=ledger)


@pytest.fixture
def path(tmp_path, ledger):
    raw = tmp_path / "raw.jsonl"
    raw.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    privatize_file(raw, tmp_path / "p.jsonl", COIN, ledger=ledger)
    return tmp_path / "p.jsonl"


def edit(path, **values):
    manifest = path.with_name("p.manifest.json")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | values))


def append(path, **row):
    """Add an answer that the promise was not made for, and its digest to the manifest."""
    with path.open("a") as file:
        file.write(json.dumps({"prompt": "more", "first": "a", "second": "b", **row}) + "\n")
    edit(path, sha256=sha256_of(path))


# --- the mechanism ---


@pytest.mark.parametrize("labels", [1, 2, 7])
def test_a_person_pays_for_every_label(labels):
    promise = COIN.guarantee(unit="person", neighbors=REPLACE_ONE, trust="central", labels=labels)
    assert promise.epsilon == pytest.approx(labels * 0.8, rel=1e-15)
    assert (promise.unit, promise.caveats, promise.delta) == ("person", ("labels-only",), 0.0)


def test_how_many_labels_is_said_for_a_person_and_not_for_a_label():
    terms = {"neighbors": REPLACE_ONE, "trust": "central"}
    with pytest.raises(PrivacyError, match="labels=m"):
        COIN.guarantee(unit="person", **terms)
    with pytest.raises(PrivacyError, match="record"):
        COIN.guarantee(unit="record", labels=2, **terms)
    with pytest.raises(UsageError, match="leave it out"):
        COIN.guarantee(unit="label", labels=2, **terms)
    for labels in (0, -1, 1.5, True):
        with pytest.raises(UsageError, match="labels"):
            COIN.guarantee(unit="person", labels=labels, **terms)
    with pytest.raises(PrivacyError, match="REPLACE_ONE"):
        COIN.guarantee(unit="person", neighbors=ADD_OR_REMOVE_ONE, trust="central", labels=2)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.5, 1.0, 5.0, 30.0, 44.0])
def test_the_loss_of_a_flip_probability(epsilon):
    realized = sordino.RandomizedResponse(epsilon).realized_epsilon
    assert label_loss(flip_probability(epsilon)) == pytest.approx(realized, rel=2e-10)


# --- answers in memory ---


def test_answers_beyond_the_promise_are_refused(private):
    less = replace(private.guarantee, epsilon=3.2)
    with pytest.raises(PrivacyError, match="does not cover 5 answers"):
        replace(private, guarantee=less)
    more = replace(private.guarantee, epsilon=8.0)
    assert replace(private, guarantee=more).label_epsilon == pytest.approx(0.8)


def test_a_promise_about_people_needs_people_and_its_caveat(private):
    with pytest.raises(PrivacyError, match="not the answers"):
        replace(private, persons=None)
    with pytest.raises(PrivacyError, match="not the answers"):
        replace(private, persons=tuple(f"p{i}" for i in range(10)))
    with pytest.raises(PrivacyError, match="person ids"):
        replace(private, persons=None, seal=None)
    with pytest.raises(PrivacyError, match="labels-only"):
        replace(private, guarantee=replace(private.guarantee, caveats=()))


@pytest.mark.parametrize("flips", [0.0, 0.2, 0.5, 0.7, -0.1, math.nan])
def test_flips_that_do_not_keep_the_promise_are_refused(private, flips):
    with pytest.raises(PrivacyError, match=r"cover|flip_probability"):
        replace(private, flip_probability=flips)


# --- files ---


def test_a_file_keeps_its_promise(path):
    found = read_pairs(path)
    assert (found.guarantee.unit, found.guarantee.epsilon) == ("person", 4.0)
    assert set(found.guarantee.caveats) == {"labels-only", "randomized-at-ingestion"}
    assert found.label_epsilon == 0.8
    manifest = json.loads(path.with_name("p.manifest.json").read_text())
    assert set(manifest) == {
        "format", "version", "sha256", "mechanism", "epsilon", "flip_probability", "unit",
        "neighbors", "trust", "caveats", "release_id", "categories",
    }  # fmt: skip
    assert manifest["flip_probability"] == COIN.flip_probability


def test_one_answer_too_many_is_refused(path):
    append(path, answer=1, person="somebody else")
    assert len(read_pairs(path)) == 11
    append(path, answer=1, person="p0", prompt="another")
    with pytest.raises(PrivacyError, match="does not cover 6 answers"):
        read_pairs(path)


def test_a_file_whose_people_are_hidden_is_refused(path):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        del row["person"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    edit(path, sha256=sha256_of(path))
    with pytest.raises(PrivacyError, match="person ids"):
        read_pairs(path)


@pytest.mark.parametrize("epsilon", [0.8 * 0.5, 4.0 + 1e-6, 4.1, 0.4, 1e-3, 1e300, 3.9999])
def test_a_total_is_a_whole_multiple_of_what_the_flips_keep(path, epsilon):
    edit(path, epsilon=epsilon)
    with pytest.raises(DataError, match="disagree"):
        read_pairs(path)


def test_a_total_of_fewer_labels_is_refused_where_there_are_more(path):
    edit(path, epsilon=3.2)
    with pytest.raises(PrivacyError, match="does not cover 5"):
        read_pairs(path)
    edit(path, epsilon=4.8)
    assert read_pairs(path).guarantee.epsilon == 4.8


@pytest.mark.parametrize("epsilon", [1e-5, 0.3, 7.7, 33.3, 44.0, 60.0])
def test_a_file_of_any_coin_is_read(tmp_path, ledger, epsilon):
    raw, coin = tmp_path / "raw.jsonl", sordino.RandomizedResponse(epsilon)
    raw.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    ledger.change_budget(replace(ledger.budget, epsilon=1000.0))
    privatize_file(raw, tmp_path / "p.jsonl", coin, ledger=ledger)
    found = read_pairs(tmp_path / "p.jsonl")
    assert found.guarantee.epsilon == pytest.approx(5 * coin.realized_epsilon, rel=1e-15)
    assert found.label_epsilon == pytest.approx(coin.realized_epsilon, rel=1e-15)


@pytest.mark.parametrize("flips", [0.5, 0.9, 0.25, 1e-30, 0.49999999999999994])
def test_other_flips_are_refused(path, flips):
    edit(path, flip_probability=flips)
    with pytest.raises(DataError, match="disagree"):
        read_pairs(path)


def test_who_answered_what_is_in_the_file_and_said(path):
    edit(path, caveats=["randomized-at-ingestion"])
    with pytest.raises(DataError, match="labels-only"):
        read_pairs(path)
    edit(path, caveats=["labels-only", "randomized-at-ingestion"], unit="record")
    with pytest.raises(DataError, match="another mechanism, unit or relation"):
        read_pairs(path)
