"""`sordino audit`: exit 0, 5 or 6, one JSON object, a page, and nothing of the data."""

import gzip
import json
import shutil
from contextlib import chdir, contextmanager

import pytest
from tests.apart import apart
from tests.tiers import few

import sordino
from sordino import cli
from sordino.auditing.findings import ATTACKS
from sordino.auditing.releases import leaks
from sordino.auditing.releases.recipes import coin_recipes
from sordino.auditing.releases.seed_attack import attack_coins

from .conftest import CANARY, Folder, pair


def chosen_first(rows, path, *, flips=4):
    """A file whose order is the preference, with a coin that is honest about its rate."""
    with path.open("w") as file:
        for index, row in enumerate(rows):
            answer = int(index % flips != 0)
            texts = {"prompt": row["prompt"], "first": row["chosen"], "second": row["rejected"]}
            file.write(json.dumps({**texts, "answer": answer}) + "\n")


def words(index):
    """Two answers of which no rule of the texts says which was preferred."""
    texts = [f"{CANARY} {index} yes, then", f"{CANARY} {index} no, so"]
    turn = (index * index + index // 3) % 2
    return {"chosen": texts[turn], "rejected": texts[1 - turn]}


@pytest.fixture
def raw(folder):
    rows = [pair(index, **words(index)) for index in range(400)]
    folder.write("raw.jsonl", rows)
    chosen_first(rows, folder / "out.jsonl")
    return folder


@pytest.fixture
def few_coins(monkeypatch):
    """Return a context in which a few seeds of the most common coins only are tried."""
    core = [recipe for recipe in coin_recipes() if recipe.core][:2]

    def attack(*given, **more):
        return attack_coins(*given, **{**more, "recipes": core, "seeds": range(20)})

    @contextmanager
    def tried():
        with monkeypatch.context() as patch:
            patch.setattr(leaks, "attack_coins", attack)
            yield

    return tried


@pytest.mark.deep
def test_our_own_file_is_not_refuted_and_no_word_of_it_is_printed(raw, few_coins):
    """With all coins where it is not refuted; what is printed is the same with a few."""
    assert raw.run("privatize", "raw.jsonl", "--epsilon", "1", "--out", "own.jsonl").code == 0
    before = raw.state()
    for words in (["--json"], []):
        with few_coins():
            said = raw.run("audit", "release", "own.jsonl", "--epsilon", "1", *words)
        assert (said.code, said.err) == (6, "")  # nobody counts flips without the raw file
        assert CANARY not in said.out
        assert "proved" not in said.out
    said = raw.run("audit", "release", "own.jsonl", "--epsilon", "1", "--raw", "raw.jsonl")
    assert said.code == 0, said.out
    assert CANARY not in said.out + said.err
    assert raw.state() == before


@pytest.mark.deep
def test_the_page_is_written_also_where_the_claim_is_refuted(raw, few_coins):
    words = ["audit", "release", "out.jsonl", "--epsilon", "1.1", "--raw", "raw.jsonl"]
    with few_coins():
        said = raw.run(*words, "--out", "page.html")
    assert said.code == 5
    page = (raw / "page.html").read_text()
    assert "REFUTED" in page
    assert CANARY not in page
    again = raw.run(*words, "--out", "page.html")
    assert again.code == 2
    assert "--force" in again.err


def test_our_mechanisms_are_not_refuted(folder):
    """Every one of them is played in tests/statistical."""
    said = folder.run(
        "audit", "mechanism", "gaussian", "--epsilon", "1", "--delta", "1e-5", "--neighbors",
        "zero-out", "--trials", "2000", "--simulate-seed", "1", "--json",
    )  # fmt: skip
    assert said.code == 0, said.err
    assert said.value["verdict"] == "not refuted"
    measured = said.value["measured"][0]
    assert 0 < measured["lower"] < measured["claimed"] < measured["power"]
    assert folder.names() == set()


OWN = '''
from dataclasses import dataclass

from sordino import RandomizedResponse


@dataclass(frozen=True)
class Half(RandomizedResponse):
    """Half the noise that it says."""

    @property
    def threshold(self):
        return super().threshold // 2


mechanism = Half(1.0)
'''


def test_somebody_elses_mechanism_is_refuted(folder):
    (folder / "their_coin.py").write_text(OWN)
    said = folder.run("audit", "mechanism", "their_coin:mechanism", "--epsilon", "1",
                          "--unit", "label", "--json")  # fmt: skip
    assert said.code == 5, said.err
    assert said.value["refuted_by"] == ["distinguishing-game"]
    assert said.value["lower_bound"] > 1


LOUD = (
    OWN
    + '''
print("hello from the module")


class Loud(Half):
    """A mechanism that prints, as examples do."""

    def release(self, values, *, entropy):
        print("hello from release")
        return super().release(values, entropy=entropy)


class Leaving(Loud):
    """Leaves as if nothing had been refuted."""

    def release(self, values, *, entropy):
        raise SystemExit(0)


loud, leaving = Loud(1.0), Leaving(1.0)
'''
)


def test_one_json_object_and_nothing_else_whatever_their_code_prints(folder):
    (folder / "their_loud.py").write_text(LOUD)
    said = folder.run(
        "audit", "mechanism", "their_loud:loud", "--epsilon", "1", "--trials", "300", "--json"
    )
    assert said.value["kind"] == "mechanism"
    assert "hello from the module" in said.err
    assert "hello from release" in said.err


@pytest.mark.parametrize("name", few(["sys:exit", "their_loud:leaving"], "their_loud:leaving"))
def test_code_that_leaves_is_no_audit_that_refuted_nothing(folder, name):
    (folder / "their_loud.py").write_text(LOUD)
    said = folder.run("audit", "mechanism", name, "--epsilon", "1", "--trials", "300")
    assert (said.code, said.out) == (2, "")
    assert "SystemExit" in said.err
    assert "nothing was audited" in said.err


def test_a_run_that_spent_elsewhere_is_not_refuted_by_an_older_ledger(raw):
    words = ["align", "raw.jsonl", "--out", "run", "--epsilon", "1"]
    assert raw.run(*words).code == 0
    assert raw.run(*words, "--ledger", "other.db", "--force").code == 0
    said = raw.run("audit", "run", "run")
    assert said.code == 6
    assert "CANNOT TELL" in said.out
    assert "--ledger" in said.out
    assert raw.run("audit", "run", "run", "--ledger", "other.db").code == 0
    said = raw.run("audit", "run", "run", "--ledger", "raw.jsonl")
    assert (said.code, said.out) == (2, "")
    assert "raw.jsonl is no ledger" in said.err


@pytest.mark.parametrize("name", ["page", "page.html.gz"])
@pytest.mark.parametrize(
    "words",
    [
        ["release", "none.jsonl", "--epsilon", "1"],
        ["mechanism", "nowhere:mechanism", "--epsilon", "1"],
        ["run", "none"],
    ],
)
def test_a_page_is_no_text_and_that_is_said_before_anything_is_tried(folder, words, name):
    said = folder.run("audit", *words, "--out", name)
    assert (said.code, said.out) == (2, "")
    assert ".html or .htm" in said.err
    assert folder.names() == set()


def test_a_person_is_no_option_and_the_way_out_is_one_that_exists(folder):
    said = folder.run("audit", "mechanism", "gaussian", "--epsilon", "1", "--unit", "person")
    assert (said.code, said.out) == (2, "")
    assert "mine:noise" in said.err
    assert "leave --unit out" in said.err
    (folder / "mine_person.py").write_text(
        "from sordino import REPLACE_ONE\n"
        "from sordino.mechanisms.gaussian import GaussianMechanism\n"
        "noise = GaussianMechanism.calibrated(\n"
        "    1.0, delta=1e-5, bound=1.0, neighbors=REPLACE_ONE, records_per_person=3)\n"
    )
    words = ["mine_person:noise", "--epsilon", "1", "--delta", "1e-5", "--unit", "person"]
    said = folder.run("audit", "mechanism", *words, "--trials", "1000", "--json")
    assert said.code == 0, said.err


def test_a_run_is_audited_and_a_changed_one_is_refuted(raw):
    words = ["align", "raw.jsonl", "--out", "run", "--epsilon", "1"]
    assert raw.run(*words).code == 0
    before = raw.state()
    said = raw.run("audit", "run", "run", "--json")
    assert (said.code, said.value["verdict"]) == (0, "not refuted"), said.out
    assert raw.state() == before
    path = raw / "run/result.json"
    result = json.loads(path.read_text())
    result["guarantee"]["epsilon"] = 0.5
    path.write_text(json.dumps(result))
    said = raw.run("audit", "run", "run", "--json")
    assert said.code == 5
    assert "claim" in said.value["refuted_by"]


@pytest.mark.parametrize(
    ("words", "code", "shown"),
    [
        (["release", "none.jsonl", "--epsilon", "1"], 7, "cannot be read"),
        (["release", "raw.jsonl", "--epsilon", "-1"], 2, "epsilon"),
        (["release", "broken.jsonl", "--epsilon", "1"], 4, "line 1"),
        (["mechanism", "laplace", "--epsilon", "1"], 2, "randomized-response"),
        (["mechanism", "gaussian", "--epsilon", "1"], 2, "delta"),
        (["mechanism", "randomized-response", "--epsilon", "inf"], 2, "finite"),
        (["mechanism", "nowhere:mechanism", "--epsilon", "1"], 2, "nowhere"),
        (["run", "."], 4, "result.json"),
        (["run", "none"], 7, "none"),
    ],
)
def test_what_cannot_be_audited(raw, words, code, shown):
    raw.write("broken.jsonl", [f"{{{CANARY}"])
    said = raw.run("audit", *words)
    assert (said.code, said.out) == (code, ""), said.err
    assert shown in said.err
    assert CANARY not in said.err


# The three ends.

PUBLISHED = "published_local_dp_eps0.10_val.jsonl.gz"
EXIT = {"refuted": 5, "not refuted": 0, "cannot tell": 6}
RELEASES = {  # what is audited, beside what, how it ends, and what is said of it
    "a raw file": ("raw.jsonl", None, "refuted", "sordino privatize FILE"),
    "a raw file that is its own raw file": ("raw.jsonl", "raw.jsonl", "refuted", "raw judgments"),
    "a raw file beside our manifest": ("posing.jsonl", None, "refuted", "'chosen' and 'rejected'"),
    "a raw table": ("raw.csv", None, "refuted", "'label'"),
    "labels of several people": ("several.jsonl", None, "refuted", "'labels'"),
    "labels beside the answers": ("both.jsonl", None, "refuted", "take them out"),
    "what is chosen beside the answers": ("told.jsonl", None, "refuted", "take them out"),
    "no manifest": ("bare/own.jsonl", None, "cannot tell", "There is no manifest"),
    "no manifest, the raw file": ("bare/own.jsonl", "raw.jsonl", "cannot tell", "no manifest"),
    "another's manifest": ("other/own.jsonl", "raw.jsonl", "cannot tell", "of another file"),
    "no raw file": ("own.jsonl", None, "cannot tell", "Without the raw file"),
    "20 rows": ("few.jsonl", "raw.jsonl", "cannot tell", "Too few rows"),
    "our own release": ("own.jsonl", "raw.jsonl", "not refuted", None),
    "a folder of our own": ("own", "raw.jsonl", "not refuted", None),
    "the raw schema, said to be randomized": ("order.jsonl", None, "cannot tell", "raw file"),
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with files of every kind."""
    folder = Folder(tmp_path_factory.mktemp("releases"), None)
    rows = [pair(index, **words(index)) for index in range(400)]
    folder.write("raw.jsonl", rows)
    few = folder.write("raw_few.jsonl", rows[:20])
    with chdir(folder.path):
        for raw, out in (("raw.jsonl", "own.jsonl"), (few, "few.jsonl")):
            assert cli.run(apart(["privatize", raw, "--epsilon", "1", "--out", out])) == 0
    own = [json.loads(line) for line in (folder / "own.jsonl").read_text().splitlines()]
    shutil.copy(folder / "own.manifest.json", folder / "posing.manifest.json")
    folder.write("posing.jsonl", rows)
    table = "prompt,first,second,label\n" + "".join(f"p{i},yes,no,{i % 2}\n" for i in range(30))
    (folder / "raw.csv").write_text(table)
    folder.write("several.jsonl", [{"prompt": "p", "first": "a", "second": "b", "labels": [1, 0]}])
    folder.write("both.jsonl", [row | {"label": index % 2} for index, row in enumerate(own)])
    folder.write("told.jsonl", [row | {"chosen": row["first"], "rejected": "b"} for row in own])
    folder.write("order.jsonl", rows)
    (folder / "order.manifest.json").write_text('{"epsilon": 1.0, "flip_probability": 0.27}')
    for name in ("bare", "other", "own"):
        (folder / name).mkdir()
        shutil.copy(folder / "own.jsonl", folder / name / "own.jsonl")
    shutil.copy(folder / "few.manifest.json", folder / "other" / "own.manifest.json")
    shutil.copy(folder / "own.manifest.json", folder / "own" / "own.manifest.json")
    return folder.path


@pytest.fixture
def releases(made, few_coins, monkeypatch, capsys):
    """Files of every kind; a few seeds of the most common coins only are tried on them."""
    monkeypatch.chdir(made)
    with few_coins():
        yield Folder(made, capsys)


@pytest.mark.parametrize("name", few(RELEASES, first=5))
def test_a_release_has_the_right_end(releases, name):
    path, raw, verdict, why = RELEASES[name]
    words = ["audit", "release", path, "--epsilon", "1", *([] if raw is None else ["--raw", raw])]
    said = releases.run(*words, "--json")
    assert (said.value["verdict"], said.code) == (verdict, EXIT[verdict]), said.value["reasons"]
    assert why is None or why in " ".join(said.value["reasons"])
    found = said.value["would_have_found"]
    if verdict == "not refuted":
        assert 1 < found["loss"] <= 2
        assert (found["attack"], found["power"], found["false_alarms"]) == ("flip-rate", 0.95, 1e-3)
        assert said.value["reasons"] == []
    ranks = [["refutes", "warning", "skipped", "clear"].index(one["outcome"])
             for one in said.value["findings"]]  # fmt: skip
    assert ranks == sorted(ranks)
    for one in said.value["findings"]:
        assert one["needs"] == ATTACKS[one["attack"]]["needs"]
        assert one["ran"] == (one["outcome"] != "skipped")
    shown = releases.run(*words).out
    assert {"refuted": "REFUTED by", "cannot tell": "CANNOT TELL"}.get(verdict, verdict) in shown
    assert shown.index("verdict") < shown.index("what was tried")
    assert CANARY not in shown


@pytest.mark.deep
def test_the_published_file_is_refuted(releases, shared_data):
    raw = gzip.decompress((shared_data / "hh_helpful_a.jsonl.gz").read_bytes())
    (releases / "hh.jsonl").write_bytes(raw)
    said = releases.run("audit", "release", shared_data / PUBLISHED, "--epsilon", "0.1",
                        "--raw", "hh.jsonl", "--json")  # fmt: skip
    assert (said.code, said.value["verdict"]) == (5, "refuted")
    assert "position" in said.value["refuted_by"]
    said = releases.run("audit", "release", "hh.jsonl", "--epsilon", "1", "--json")
    assert (said.code, said.value["refuted_by"]) == (5, ["raw-schema"])


def test_python_has_the_same_ends(releases):
    terms = {"epsilon": 1.0, "unit": "label", "seeds": range(1)}
    with pytest.raises(sordino.AuditRefuted, match="raw-schema"):
        sordino.audit("raw.jsonl", **terms).require()
    with pytest.raises(sordino.AuditInconclusive, match="Without the raw file") as caught:
        sordino.audit("own.jsonl", **terms).require()
    assert caught.value.exit_code == 6
    audit = sordino.audit("own", raw="raw.jsonl", **terms)  # a folder of files, not of a run
    assert audit.require() is audit
    assert "or more would have been found" in str(audit)


def test_a_run_and_a_mechanism_have_the_same_ends(raw):
    assert raw.run("align", "raw.jsonl", "--out", "run", "--epsilon", "1").code == 0
    said = raw.run("audit", "run", "run", "--json")
    assert (said.code, said.value["would_have_found"]["loss"]) == (0, 1.0)
    assert said.value["would_have_found"]["false_alarms"] == 0
    (raw / "run" / "spend.db").rename(raw / "elsewhere.db")
    said = raw.run("audit", "run", "run", "--json")
    assert (said.code, said.value["verdict"]) == (6, "cannot tell")
    assert "--ledger" in said.value["reasons"][0]
    played = ["audit", "mechanism", "randomized-response", "--epsilon", "1", "--json"]
    for trials, verdict in ((100, "cannot tell"), (4000, "not refuted")):
        said = raw.run(*played, "--trials", trials, "--simulate-seed", "1")
        assert (said.code, said.value["verdict"]) == (EXIT[verdict], verdict)
