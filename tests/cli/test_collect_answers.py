"""Links, answers and the file of them from outside, up to the report."""

import json
import os
import re
import stat
import subprocess
import sys

import pytest

pytest.importorskip("sqlalchemy")

from sordino._files import Draft
from sordino.privacy.ledger import Ledger

from .collecting import EXPORT, INIT, INVITE, QUESTIONS, edit, give
from .conftest import refused


@pytest.fixture
def study(folder):
    """A folder with a study that nobody was invited to."""
    folder.write("questions.jsonl", QUESTIONS)
    said = folder.run(*INIT, "--questions", "questions.jsonl")
    assert said.code == 0, said.err
    return folder


@pytest.fixture
def begun(study):
    """A folder with a study that has begun."""
    said = study.run(*INVITE)
    assert said.code == 0, said.err
    return study


@pytest.fixture
def answered(begun):
    """A folder with answers of people who prefer what is kind, as a page would send them."""
    give(begun, persons=80)
    return begun


# --- invite, revoke, status ---


def test_links_are_shown_once_and_stored_nowhere(study):
    said = study.run(*INVITE)
    assert (said.code, said.err) == (0, "")
    links = [line.split() for line in said.out.splitlines() if "/#" in line]
    assert len(links) == 2
    for handle, link in links:
        assert len(handle) == 16
        address, token = link.split("/#")
        assert (address, len(token)) == ("http://127.0.0.1:8000", 43)
        for name in study.names():
            assert token.encode() not in (study / name).read_bytes()
        assert token not in study.run("collect", "status", "study.toml", "--invitations").out


def test_links_in_a_file_are_for_one_reader(study):
    said = study.run(*INVITE, "--out", "links.txt", "--url", "https://a.example.org/", "--json")
    assert said.code == 0, said.err
    assert stat.S_IMODE((study / "links.txt").stat().st_mode) == 0o600
    assert stat.S_IMODE((study / "study.db").stat().st_mode) == 0o600
    lines = (study / "links.txt").read_text().splitlines()
    assert [line.split()[0] for line in lines] == [
        row["handle"] for row in said.value["invitations"]
    ]
    assert all(line.split()[1].startswith("https://a.example.org/#") for line in lines)
    assert "link" not in said.value["invitations"][0]
    refused(study, [*INVITE, "--out", "links.txt"], 2, "exists already")


def test_a_file_of_links_is_never_open_to_others(study, monkeypatch):
    opened, seen = Draft.open, []

    def noticed(draft):
        opened(draft)
        seen.append(stat.S_IMODE(draft.path.stat().st_mode))

    monkeypatch.setattr(Draft, "open", noticed)
    before = os.umask(0)
    try:
        assert study.run(*INVITE, "--out", "links.txt").code == 0
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    assert seen == [0o600]


@pytest.mark.parametrize(
    "url", ["study.example.org", "ftp://a", "https://", "https://a/b", "https://a/#x", "http://[", "https://a:b"]
)  # fmt: skip
def test_an_address_without_a_page(study, url):
    refused(study, [*INVITE, "--url", url], 2, "--url")


@pytest.mark.parametrize(
    ("url", "warned"),
    [("http://a.example.org", True), ("http://localhost:8000", False), ("http://[::1]:80", False),
     ("https://a.example.org", False), ("http://192.0.2.1:8000", True)],
)  # fmt: skip
def test_plain_http_is_warned_of(study, url, warned):
    said = study.run(*INVITE, "--url", url, "--json")
    assert said.code == 0
    assert ("deploy_collection.md" in said.err) == warned
    assert said.value["invitations"][0]["link"].startswith(f"{url}/#")


@pytest.mark.parametrize(("words", "code"), [(["--days", "0"], 2), (["--days", "1e9"], 2)])
def test_invitations_out_of_range(study, words, code):
    assert study.run(*INVITE, *words).code == code


def test_revoked_is_shown(begun):
    value = begun.run("collect", "status", "study.toml", "--invitations", "--json").value
    one, other = (row["handle"] for row in value["invitation_states"])
    assert begun.run("collect", "revoke", "study.toml", one).code == 0
    said = begun.run("collect", "status", "study.toml", "--invitations", "--json")
    states = {row["handle"]: row["state"] for row in said.value["invitation_states"]}
    assert states == {one: "revoked", other: "made"}
    assert said.value["invitations"]["revoked"] == 1
    refused_now = begun.run("collect", "revoke", "study.toml", "0" * 16)
    assert refused_now.code == 4
    assert "None was withdrawn" in refused_now.err


def test_a_study_that_has_not_begun(study):
    for command in (
        ["collect", "status", "study.toml"],
        EXPORT,
        ["collect", "serve", "study.toml"],
    ):
        refused(study, command, 4, "not begun")


def test_status_counts(answered):
    said = answered.run("collect", "status", "study.toml")
    assert said.code == 0, said.err
    for part in (
        "400 of 80 people",
        "2 made",
        "counts as two",
        "epsilon=1 an answer, 5 per invitation",
    ):
        assert part in " ".join(said.out.split())
    value = answered.run("collect", "status", "study.toml", "--json").value
    assert (value["answers"], value["persons"]) == (400, 80)
    assert "invitation_states" not in value


# --- a study that was changed ---


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [("epsilon = 1.0", "epsilon = 2.0", "epsilon"), ("cap = 5", "cap = 6", "cap"),
     ("ties = true", "ties = false", "ties"), ('"refused"', '"paid"', "changes"),
     ("tick_seconds = 15", "tick_seconds = 1", "tick_seconds")],
)  # fmt: skip
def test_what_was_promised_cannot_be_changed(answered, old, new, part):
    edit(answered, old, new)
    for command in (INVITE, EXPORT, ["collect", "status", "study.toml"]):
        said = answered.run(*command)
        assert said.code == 6, said.err
        assert part in said.err
        assert "promised" in said.err
    assert not (answered / "answers.jsonl").exists()


def test_questions_cannot_be_changed(answered):
    answered.write("questions.jsonl", QUESTIONS[:-1])
    said = answered.run(*EXPORT)
    assert (said.code, "questions" in said.err) == (6, True)


def test_titles_may_change(answered):
    edit(answered, "Which answer is better?", "Another title")
    assert answered.run(*EXPORT).code == 0


def test_the_database_of_another_study(begun):
    said = begun.run("collect", "init", "other.toml", "--questions", "questions.jsonl")
    assert said.code == 0, said.err
    text = (begun / "other.toml").read_text().replace("other.db", "study.db")
    (begun / "other.toml").write_text(text)
    for command in ("invite", "status"):
        said = begun.run("collect", command, "other.toml")
        assert said.code == 6, said.err
        assert "another study" in said.err


def test_a_database_that_is_none(study):
    edit(study, '"study.db"', '"mysql://somewhere"')
    said = study.run(*INVITE)
    assert said.code == 2, said.err
    (study / "text.db").write_text("no database at all, but long enough to be looked at" * 9)
    edit(study, '"mysql://somewhere"', '"text.db"')
    assert study.run(*INVITE).code == 7


# --- export ---


def test_export_of_nothing(begun):
    said = begun.run(*EXPORT)
    assert said.code == 4
    assert "no answers yet" in said.err
    assert not (begun / "answers.jsonl").exists()


def test_export_says_what_was_written(answered):
    said = answered.run(*EXPORT)
    assert said.code == 0, said.err
    words = " ".join(said.out.split())
    assert "answers.jsonl and answers.manifest.json" in words
    assert "epsilon=5 per person, trust: local" in words
    assert all(
        part in words for part in ("at most 5 per invitation", "labels-only", "sordino align")
    )
    before = answered.state()
    said = answered.run(*EXPORT)
    assert said.code == 2
    assert "exists already" in said.err
    assert answered.state().keys() - before.keys() == set()
    value = answered.run(*EXPORT, "--force", "--unit", "label", "--json").value
    assert (value["unit"], value["caveats"], value["links_forgotten"]) == (
        "label", ["person-total"], None,
    )  # fmt: skip
    assert value["epsilon"] == value["epsilon_per_label"] == pytest.approx(1)


@pytest.mark.parametrize(
    "words", [["--out", "a.csv"], ["--out", "a.jsonl", "--unit", "record"]], ids=["name", "unit"]
)
def test_exports_that_are_none(answered, words):
    said = answered.run("collect", "export", "study.toml", *words)
    assert said.code == 2, said.err
    assert not list(answered.path.glob("a.*"))


def test_forgetting_happens_after_the_export(answered):
    (answered / "answers.jsonl").write_text("mine")
    assert answered.run(*EXPORT, "--forget").code == 2
    value = answered.run("collect", "status", "study.toml", "--json").value
    assert (value["invitations"]["made"], value["closed"]) == (2, False)
    said = answered.run(*EXPORT, "--forget", "--force")
    assert said.code == 0, said.err
    assert "nobody can send" in " ".join(said.out.split())
    value = answered.run("collect", "status", "study.toml", "--json").value
    assert (value["invitations"]["made"], value["closed"], value["answers"]) == (0, True, 400)


@pytest.mark.deep
def test_the_whole_path_to_a_report(answered):
    """What arrived private costs nothing, and every page says how private it is."""
    assert answered.run(*EXPORT).code == 0
    audit = ["audit", "release", "answers.jsonl", "--epsilon", "5", "--unit", "person"]
    assert answered.run(*audit).code == 0
    said = answered.run("align", "answers.jsonl", "--out", "out", "--json")
    assert said.code == 0, said.err
    result = said.value
    promise = result["guarantee"]
    assert (promise["trust"], promise["unit"], promise["delta"]) == ("local", "person", 0)
    assert promise["epsilon"] == pytest.approx(5)
    assert result["mechanism"]["epsilon_per_label"] == pytest.approx(1)
    assert promise["epsilon"] == pytest.approx(5 * result["mechanism"]["epsilon_per_label"])
    assert (result["data"]["pairs"], result["data"]["persons"]) == (400, 80)
    ledger = Ledger.read(answered / "out/spend.db")
    kinds = [entry["kind"] for entry in ledger_rows(answered)]
    assert "receive" in kinds
    assert "reserve" not in kinds
    assert ledger.total() is None or ledger.total().epsilon == 0
    page = " ".join((answered / "out/report.html").read_text("utf-8").split())
    assert "Nobody but the person saw the raw label" in page
    for part in ("All labels of one person are replaced", "ε = 5", "Spent: ε = 0 of 5"):
        assert part in re.sub(r"<[^>]+>|&nbsp;|\u00a0", " ", page).replace("  ", " "), part
    shown = answered.run("align", "answers.jsonl", "--out", "told")
    assert "epsilon=1; all labels of one person keep" in " ".join(shown.out.split())
    assert answered.run("report", "out", "--out", "again.html").code == 0


def ledger_rows(folder):
    return folder.run("ledger", "show", "out/spend.db", "--json").value["entries"]


# --- serve, and what is missing ---


def test_serve_shows_what_to_compare(begun, monkeypatch):
    from sordino.collection import service
    from sordino.collection.page_files import read_page

    started = []
    monkeypatch.setattr(service, "serve", lambda *a, **more: started.append((a, more)))
    monkeypatch.setattr(service, "listener", lambda *where: where)
    words = ["collect", "serve", "study.toml", "--admin-token-file", "admin.token"]
    said = begun.run(*words, "--json")
    assert (said.code, said.err) == (0, "")
    token = (begun / "admin.token").read_text().strip()
    assert stat.S_IMODE((begun / "admin.token").stat().st_mode) == 0o600
    assert said.value["admin"] == "http://127.0.0.1:8000/admin"
    assert said.value["admin_token"] == token
    assert said.value["page_sha256"] == read_page().digest
    assert (said.value["epsilon"], said.value["cap"]) == (1, 5)
    assert started[0][1] == {"listening": ("127.0.0.1", 8000), "admin_token": token}
    assert begun.run(*words, "--json").value["admin_token"] == token
    other = begun.run("collect", "serve", "study.toml", "--json").value["admin_token"]
    assert other != token
    shown = begun.run(*words).out
    assert "http://127.0.0.1:8000/admin (" in shown
    assert f"/admin#{token}" not in shown
    assert re.search(rf"admin token\W+{token}", shown)


def test_serve_prints_the_digest_of_its_own_words(begun, monkeypatch):
    from sordino.collection import page_files, service

    monkeypatch.setattr(service, "serve", lambda *_, **__: None)
    monkeypatch.setattr(service, "listener", lambda *where: where)
    words = json.loads((page_files._folder() / "languages" / "en.json").read_text("utf-8"))
    words["texts"]["page.name"] = "Mine"
    (begun / "own.json").write_text(json.dumps(words))
    edit(begun, '["en", "de"]', '["own.json"]')
    value = begun.run("collect", "serve", "study.toml", "--json").value
    assert value["page_sha256"] == page_files.read_page([words]).digest
    assert value["page_sha256"] != page_files.read_page().digest


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_token_that_others_may_read_is_refused(begun, mode):
    (begun / "admin.token").write_text("t" * 43)
    (begun / "admin.token").chmod(mode)
    words = ["collect", "serve", "study.toml", "--admin-token-file", "admin.token"]
    refused(begun, words, 4, "chmod 600 admin.token")


def test_serve_may_open_as_many_files_as_there_may_be(begun):
    resource = pytest.importorskip("resource")
    code = (
        "import resource, sys; from sordino.collection import service; "
        "most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]; "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, most)); service._take_all_files(); "
        "sys.exit(resource.getrlimit(resource.RLIMIT_NOFILE) != (most, most))"
    )
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] != 64
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


EVERYWHERE = "0.0.0.0"  # noqa: S104 (nothing listens)


@pytest.mark.parametrize(
    ("words", "page", "warned"),
    [(["--host", EVERYWHERE], "http://127.0.0.1:8000/", True),
     (["--host", "::1", "--port", "81"], "http://[::1]:81/", False),
     (["--host", EVERYWHERE, "--url", "https://a.example.org"], "https://a.example.org/", False)],
)  # fmt: skip
def test_serve_without_tls_is_warned_of(begun, monkeypatch, words, page, warned):
    from sordino.collection import service

    monkeypatch.setattr(service, "serve", lambda *_, **__: None)
    monkeypatch.setattr(service, "listener", lambda *where: where)
    said = begun.run("collect", "serve", "study.toml", "--json", *words)
    assert (said.code, said.value["page"]) == (0, page)
    assert ("deploy_collection.md" in said.err) == warned


def test_a_token_file_that_holds_none(begun):
    (begun / "admin.token").write_text("short\n")
    (begun / "admin.token").chmod(0o600)
    said = begun.run("collect", "serve", "study.toml", "--admin-token-file", "admin.token")
    assert said.code == 4
    assert "short" not in said.err


def test_a_missing_extra_is_explained(study, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("sordino.collection.database")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    refused(study, INVITE, 2, "pip install 'sordino[collect]'")
    assert study.run("collect", "--help").code == 0
