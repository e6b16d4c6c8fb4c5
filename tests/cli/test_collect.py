"""A study from outside: its file, links, answers and the file of them, up to the report."""

import json
import os
import re
import stat
import subprocess
import sys

import pytest

pytest.importorskip("sqlalchemy")

from sordino._files import Draft
from sordino.collection.study import read_study
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


def test_init_says_what_it_promises(folder):
    said = folder.run(*INIT, "--title", "Kitchen")
    assert (said.code, said.err) == (0, "")
    words = " ".join(said.out.split())
    for part in (
        "epsilon=1;", "2.72 times", "73.2 %", "26.8%", "about 1 in 3.72", "at most 5 answers",
        "epsilon=5 together", "149 times", "12, public", "collect invite study.toml",
    ):  # fmt: skip
        assert part in words, part
    assert folder.names() == {"study.toml", "questions.jsonl"}
    found = read_study(folder / "study.toml")
    assert (found.title, found.cap, len(found.questions)) == ("Kitchen", 5, 12)


@pytest.mark.parametrize(
    ("epsilon", "flipped", "odds", "note"),
    [("0.7", "33.1%", "1 in 3.02)", "about 33%"), ("2", "11.9%", "1 in 8.39)", "about 11%"),
     ("5", "0.669%", "1 in 150)", "about 0.66%")],
)  # fmt: skip
def test_no_number_is_rounded_in_favor_of_the_promise(folder, epsilon, flipped, odds, note):
    words = " ".join(folder.run(*INIT, "--epsilon", epsilon, "--accept-weak").out.split())
    assert flipped in words
    assert odds in words
    assert note in (folder / "study.toml").read_text()


@pytest.mark.parametrize("terms", [["--epsilon", "20.1", "--cap", "1"], ["--epsilon", "4.1"]])
def test_a_study_that_protects_nobody_is_refused_unless_everybody_is_told(folder, terms):
    """One answer, or all of an invitation together: exports speak about either."""
    said = folder.run(*INIT, *terms)
    assert (said.code, folder.names()) == (2, set())
    assert "--accept-weak" in said.err
    folder.write("questions.jsonl", QUESTIONS)
    said = folder.run(*INIT, *terms, "--questions", "questions.jsonl", "--accept-weak", "--json")
    assert "weak-promise" in said.value["caveats"]
    assert folder.run(*INVITE).code == 0
    give(folder, persons=3)
    exported = folder.run(*EXPORT, "--json").value
    assert "weak-promise" in exported["caveats"]
    assert "weak-promise" in folder.run("collect", "status", "study.toml").out
    of_label = folder.run(*EXPORT, "--force", "--unit", "label", "--json").value
    assert ("weak-promise" in of_label["caveats"]) == (terms[1] == "20.1")
    edit(folder, "accept_weak = true", "accept_weak = false")
    refused(folder, INVITE, 4, "study.toml", "accept_weak = true")


def test_a_study_at_the_limit_is_a_study(folder):
    said = folder.run(*INIT, "--epsilon", "4", "--json")
    assert (said.code, said.value["person_epsilon"]) == (0, 20.0)
    assert "weak-promise" not in said.value["caveats"]


def test_a_cap_that_is_never_reached_is_named(folder):
    said = folder.run("collect", "init", "study.toml")
    assert "the promise counts 12" in " ".join(said.out.split())
    assert "too much to protect a person's taste as a whole" in " ".join(said.out.split())


def test_questions_that_are_there_are_used_and_kept(folder):
    folder.write("questions.jsonl", QUESTIONS[:7])
    before = (folder / "questions.jsonl").read_bytes()
    said = folder.run(*INIT, "--json")
    told = [said.value[name] for name in ("questions", "examples", "trust", "person_epsilon")]
    assert told == [7, False, "local", pytest.approx(5)]
    assert any("was there already" in note for note in said.value["notes"])
    assert (folder / "questions.jsonl").read_bytes() == before


def test_a_study_is_not_overwritten_nor_begun_anew(study):
    refused(study, INIT, 2, "exists already")
    assert study.run(*INIT, "--force").code == 0
    assert study.run(*INVITE).code == 0
    refused(study, [*INIT, "--force"], 2, "study.db", "earlier study")


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["--epsilon", "0"], 2, "epsilon"),
        (["--epsilon", "nan"], 2, "epsilon"),
        (["--title", " "], 2, "title"),
        (["--title", "x" * 301], 2, "title"),
        (["--questions", "none.jsonl"], 7, "none.jsonl"),
    ],
)
def test_what_no_study_can_have_leaves_nothing(folder, words, code, part):
    said = folder.run(*INIT, *words)
    assert said.code == code, said.err
    if code == 2:
        assert part in said.err
    assert folder.names() == set()


def test_studies_and_questions_that_cannot_be_used(study):
    """Every kind is shown in tests/unit/collection; here, that a command says which file it is."""
    refused(study, ["collect", "init", "study"], 2, ".toml")
    refused(study, ["collect", "invite", "none.toml"], 7, "none.toml")
    study.write("odd.jsonl", [{**QUESTIONS[0], "label": 1}])
    words = ["collect", "init", "other.toml", "--questions", "odd.jsonl"]
    refused(study, words, 4, "'label'")
    edit(study, "cap = 5", 'cap = "five"')
    refused(study, INVITE, 4, "cap")


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
    "url", ["study.example.org", "ftp://a", "https://", "https://a/?b", "https://a/#x", "http://[", "https://a:b"]
)  # fmt: skip
def test_an_address_without_a_page(study, url):
    refused(study, [*INVITE, "--url", url], 2, "--url")
    for days in ("0", "1e9"):
        assert study.run(*INVITE, "--days", days).code == 2


@pytest.mark.parametrize(
    ("url", "warned"),
    [("http://a.example.org", True), ("http://localhost:8000", False), ("http://[::1]:80", False),
     ("https://a.example.org", False), ("http://192.0.2.1:8000", True),
     ("http://localhost/study", False), ("http://a.example.org/study", True)],
)  # fmt: skip
def test_plain_http_is_warned_of(study, url, warned):
    said = study.run(*INVITE, "--url", url, "--json")
    assert said.code == 0
    assert ("deploy_collection.md" in said.err) == warned
    assert said.value["invitations"][0]["link"].startswith(f"{url}/#")


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


def test_what_was_promised_cannot_be_changed(answered):
    edit(answered, "epsilon = 1.0", "epsilon = 2.0")
    for command in (INVITE, EXPORT, ["collect", "status", "study.toml"]):
        refused(answered, command, 8, "epsilon", "promised")
    edit(answered, "epsilon = 2.0", "epsilon = 1.0")
    edit(answered, "Which answer is better?", "Another title")
    assert answered.run(*EXPORT).code == 0


def test_a_database_that_is_none_or_of_another_study(begun):
    said = begun.run("collect", "init", "other.toml", "--questions", "questions.jsonl")
    assert said.code == 0, said.err
    honest = (begun / "other.toml").read_text()
    (begun / "text.db").write_text("no database at all, but long enough to be looked at" * 9)
    for name, code in (("study.db", 8), ("mysql://somewhere", 2), ("text.db", 7)):
        (begun / "other.toml").write_text(honest.replace("other.db", name))
        assert begun.run("collect", "invite", "other.toml").code == code


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


def test_a_backup_is_for_one_reader_and_comes_back_into_an_empty_database(answered):
    words = ["collect", "backup", "study.toml", "--out", "b.zip"]
    assert answered.run(*EXPORT).code == 0
    before = (answered / "answers.jsonl").read_bytes()
    said = answered.run(*words, "--json")
    assert (said.code, said.value["rows"]["sordino_answers"]) == (0, 400)
    assert stat.S_IMODE((answered / "b.zip").stat().st_mode) == 0o600
    refused(answered, words, 2, "exists already")
    refused(answered, ["collect", "restore", "study.toml", "b.zip"], 2, "holds something already")
    (answered / "study.db").rename(answered / "lost.db")
    refused(answered, ["collect", "restore", "study.toml", "answers.jsonl"], 4, "damaged")
    said = answered.run("collect", "restore", "study.toml", "b.zip")
    assert (said.code, "400 answers" in said.out) == (0, True)
    assert stat.S_IMODE((answered / "study.db").stat().st_mode) == 0o600
    assert answered.run(*EXPORT, "--force").code == 0
    assert (answered / "answers.jsonl").read_bytes() == before


@pytest.mark.deep
def test_the_whole_path_to_a_report(answered):
    """What arrived private costs nothing, and every page says how private it is."""
    assert answered.run(*EXPORT).code == 0
    audit = ["audit", "release", "answers.jsonl", "--epsilon", "5", "--unit", "person"]
    assert answered.run(*audit).code == 6  # nobody holds the raw file, so nobody counts flips
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
    assert ledger.total().epsilon == pytest.approx(5)  # what persons gave when they answered
    page = " ".join((answered / "out/report.html").read_text("utf-8").split())
    assert "Nobody but the person saw the raw label" in page
    for part in ("All labels of one person are replaced", "ε = 5", "Spent: ε = 5 of 5"):
        assert part in re.sub(r"<[^>]+>|&nbsp;|\u00a0", " ", page).replace("  ", " "), part
    shown = answered.run("align", "answers.jsonl", "--out", "told")
    assert "one person At most 5, ε = 5 together." in " ".join(shown.out.split())
    assert answered.run("report", "out", "--out", "again.html").code == 0


def ledger_rows(folder):
    return folder.run("ledger", "show", "out/spend.db", "--json").value["entries"]


def test_serve_shows_what_to_compare(begun, monkeypatch):
    from sordino.collection import service
    from sordino.collection.study import read_page

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
    assert started[0][1] == {"listening": ("127.0.0.1", 8000)}
    assert begun.run(*words, "--json").value["admin_token"] == token
    other = begun.run("collect", "serve", "study.toml", "--json").value["admin_token"]
    assert other != token
    shown = begun.run(*words).out
    assert "http://127.0.0.1:8000/admin (" in shown
    assert f"/admin#{token}" not in shown
    assert re.search(rf"admin token\W+{token}", shown)


def test_serve_prints_the_digest_of_its_own_words(begun, monkeypatch):
    from sordino.collection import service
    from sordino.collection import study as studies

    monkeypatch.setattr(service, "serve", lambda *_, **__: None)
    monkeypatch.setattr(service, "listener", lambda *where: where)
    words = json.loads((studies._folder() / "languages" / "en.json").read_text("utf-8"))
    words["texts"]["page.name"] = "Mine"
    (begun / "own.json").write_text(json.dumps(words))
    edit(begun, '["en", "de", "es", "fr"]', '["own.json"]')
    value = begun.run("collect", "serve", "study.toml", "--json").value
    assert value["page_sha256"] == studies.read_page([words]).digest
    assert value["page_sha256"] != studies.read_page().digest


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o600])
def test_a_token_that_others_may_read_is_refused_and_so_is_none(begun, mode):
    (begun / "admin.token").write_text("t" * (7 if mode == 0o600 else 43))
    (begun / "admin.token").chmod(mode)
    words = ["collect", "serve", "study.toml", "--admin-token-file", "admin.token"]
    word = "holds no admin token" if mode == 0o600 else "chmod 600 admin.token"
    assert "ttttt" not in refused(begun, words, 4, word)


@pytest.mark.deep
def test_serve_may_open_as_many_files_as_there_may_be(begun):
    resource = pytest.importorskip("resource")
    code = (
        "import resource, sys; from sordino.collection import service; "
        "most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]; "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, most)); "
        "service.uvicorn.Config = lambda *_, **__: "
        "sys.exit(resource.getrlimit(resource.RLIMIT_NOFILE) != (most, most)); "
        "service.serve(None, listening=None)"
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


def test_a_missing_extra_is_explained(study, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("sordino.collection.database")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    refused(study, INVITE, 2, "pip install 'sordino[collect]'")
    assert study.run("collect", "--help").code == 0
