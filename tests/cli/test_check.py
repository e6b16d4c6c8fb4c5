"""``sordino check`` as a user meets it: exit codes, the page to sign, and nothing touched."""

import re
import shutil
import sqlite3
from contextlib import chdir

import pytest

from sordino import cli
from sordino.privacy.ledger import Ledger

from .conftest import Folder, pair, refused

POLICY = """[policy]
covered = ["label"]
audits = ["run"]
[policy.epsilon]
label = 2
[policy.delta]
below = "1/n"
records = 40
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project with a ledger of its own, a run and a privatized file."""
    home = tmp_path_factory.mktemp("project")
    (home / ".sordino").mkdir()
    made = Folder(home, None)
    made.write("in.jsonl", [pair(index) for index in range(40)])
    raw, paid = ["in.jsonl", "--epsilon", "1", "--out"], ["--ledger", ".sordino/ledger.db"]
    with chdir(home):
        assert cli.run(["align", *raw, "out/run", *paid, "--budget", "2"]) == 0
        assert cli.run(["privatize", *raw, "out/answers.jsonl", *paid]) == 0
    (home / "sordino.toml").write_text(POLICY)
    return home


@pytest.fixture
def ready(folder, project):
    shutil.copytree(project, folder.path, dirs_exist_ok=True)
    return folder


def write(folder, old, new):
    assert old in POLICY
    (folder / "sordino.toml").write_text(POLICY.replace(old, new))


def test_a_policy_that_is_met_leaves_with_0_and_touches_nothing(ready):
    before = ready.state()
    for words in (["out"], ["out", "--strict"], ["--strict"], []):
        said = ready.run("check", *words)
        assert (said.code, said.err) == (0, ""), said.out
        assert "MET" in said.out
        assert "NOT MET" not in said.out
    assert ready.state() == before


def test_it_is_found_from_below(ready, monkeypatch):
    monkeypatch.chdir(ready / "out")
    assert ready.run("check", "--policy", "../sordino.toml", "--strict").code == 0


@pytest.mark.parametrize(
    ("old", "new", "subject"),
    [
        ("label = 2", "label = 1.99", "epsilon of one label"),
        ('["label"]', '["record"]', "one record"),
        (
            "records = 40",
            "records = 40\npeople = 4\n[policy.epsilon.person]\nat_most = 9",
            "one person",
        ),
        ("audits", "caveats_not_allowed = ['randomized-at-ingestion']\naudits", "caveat"),
    ],
)
def test_a_policy_that_is_not_met_leaves_with_9(ready, old, new, subject):
    write(ready, old, new)
    said = ready.run("check", "out")
    assert (said.code, said.err) == (9, "")
    assert "NOT MET" in said.out
    told = ready.run("check", "out", "--json")
    assert told.code == 9
    assert told.value["verdict"] == "not met"
    wrong = [each for each in told.value["clauses"] if each["state"] == "not met"]
    assert wrong
    assert all(subject in each["subject"] for each in wrong)
    assert all(each["way_out"] for each in wrong)


def test_one_json_object_says_all_of_it(ready):
    said = ready.run("check", "out", "--json")
    assert (said.code, said.err) == (0, "")
    head = Ledger.read(ready / ".sordino/ledger.db").head
    assert said.value["ledger"] == {"name": "ledger.db", "head": head.digest, "rows": 5}
    assert said.value["verdict"] == "met"
    assert [each["name"] for each in said.value["artifacts"]] == [
        "answers.jsonl", "run/result.json", "run/reward.json",
    ]  # fmt: skip
    assert [each["audit"] for each in said.value["artifacts"]] == [None, "not refuted", None]
    assert [each["bound"] for each in said.value["artifacts"]] == [True, False, False]
    assert said.value["accounts"]["preferences"]["label"]["epsilon"] == 2.0


def test_what_was_changed_or_is_foreign_is_named(ready):
    path = ready / "out/answers.jsonl"
    path.write_bytes(path.read_bytes() + b"\n")
    said = ready.run("check", "out")
    assert said.code == 9
    assert "answers.manifest.json" in said.out
    shutil.copytree(ready / "out/run", ready / "out/more")
    reward = ready / "out/more/reward.json"
    reward.write_text(re.sub('"artifact": "....', '"artifact": "ffff', reward.read_text()))
    assert "more/reward.json" in ready.run("check", "out").out


def test_what_is_missing_is_refused(ready):
    (ready / "sordino.toml").unlink()
    assert ready.run("check", "out").code == 0
    assert "NO POLICY" in ready.run("check", "out").out
    refused(ready, ["check", "out", "--strict"], 2, "--strict", "--policy", "Nothing was checked")
    refused(ready, ["check", "out", "--policy", "gone.toml"], 7, "gone.toml")
    refused(ready, ["check", "gone"], 7, "gone", "Nothing was checked")
    refused(ready, ["check", "out", "--ledger", "gone.db"], 7, "gone.db")
    (ready / ".sordino/ledger.db").unlink()
    refused(ready, ["check", "out"], 2, ".sordino/ledger.db", "--ledger")
    (ready / "sordino.toml").write_text("[policy]\nepsilon = 2\n")
    (ready / ".sordino/ledger.db").touch()
    refused(ready, ["check", "out"], 2, "sordino.toml is no policy", "Nothing was checked")


def test_a_damaged_or_older_ledger_leaves_with_8(ready):
    (ready / "sordino.toml").write_text(
        POLICY.replace("[policy]", f'[policy]\nhead = "{"0" * 64}"')
    )
    refused(ready, ["check", "out"], 8, "sordino.toml notes")
    (ready / "sordino.toml").write_text(POLICY)
    with sqlite3.connect(ready / ".sordino/ledger.db") as connection:
        connection.execute("DROP TRIGGER no_update")
        connection.execute("UPDATE rows SET payload = '{}' WHERE kind = 'commit'")
    connection.close()
    refused(ready, ["check", "out", "--page", "page.html"], 8, "edited")


def words_of(path):
    text = re.sub("<style>.*?</style>|<[^>]*>", " ", path.read_text(), flags=re.DOTALL)
    return " ".join(text.split())


def test_the_page_has_a_place_to_sign_only_where_the_policy_is_met(ready):
    said = ready.run("check", "out", "--page", "page.html")
    assert (said.code, said.err) == (0, "")
    value, page = ready.run("check", "out", "--json").value, words_of(ready / "page.html")
    assert page.count(value["sha256"]) == 2  # on the first sheet and on the one that is signed
    for needed in (
        value["ledger"]["head"],
        value["policy"]["sha256"],
        *(each["sha256"] for each in value["artifacts"]),
        *(entry for each in value["artifacts"] for entry in each["entries"]),
        *(each["promise"] for each in value["artifacts"]),
        *(account["says"] for account in value["accounts"]["preferences"].values()),
        "The policy is met",
        "Signature",
        "the digest of this file",
        "Not refuted",
        "What this does not show",
    ):
        assert needed in page, needed
    assert "DO NOT SIGN" not in page
    refused(ready, ["check", "out", "--page", "page.html"], 2, "page.html exists")
    write(ready, "label = 2", "label = 1")
    assert ready.run("check", "out", "--page", "page.html", "--force").code == 9
    page = words_of(ready / "page.html")
    assert "DO NOT SIGN" in page
    assert "Signature" not in page
    assert page.index("epsilon of one label") < page.index("The policy, point by point")
    (ready / "sordino.toml").unlink()
    assert ready.run("check", "out", "--page", "page.html", "--force").code == 0
    page = words_of(ready / "page.html")
    assert "There is no policy" in page
    assert "Signature" not in page


def test_a_seed_shows_on_every_page(ready):
    shutil.rmtree(ready / ".sordino")  # else its ledger knows these judgments
    words = ["privatize", "in.jsonl", "--epsilon", "1", "--out", "s.jsonl", "--ledger", "s.db"]
    assert ready.run(*words, "--simulate-seed", "1").code == 0
    said = ready.run("check", "out", "--ledger", "s.db", "--page", "page.html")
    assert said.code == 9
    assert "SIMULATED" in said.out
    page = words_of(ready / "page.html")
    assert "SIMULATED" in page
    assert "Signature" not in page


def test_names_of_files_cannot_write_on_the_page(ready):
    name = "<b>signed</b>.json"
    shutil.copy(ready / "out/run/reward.json", ready / "out" / name.replace("/", ""))
    assert ready.run("check", "out", "--page", "page.html").code == 0
    assert "<b>signed" not in (ready / "page.html").read_text()
