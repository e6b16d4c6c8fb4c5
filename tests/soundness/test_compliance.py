"""A policy is met only where it is: every way to a signature that is not deserved is closed."""

import json
import math
import re
import shutil
from contextlib import chdir
from fractions import Fraction
from pathlib import Path

import pytest

import sordino
from sordino import cli
from sordino.auditing.compliance import Compliance, Policy
from sordino.errors import FileSystemError, LedgerDamaged, UsageError
from sordino.preferences.pairs import read_manifest
from sordino.privacy.accounting import DISJOINT_RULES
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    ApproximateEvent,
    Guarantee,
    NonPrivateEvent,
    PureEvent,
)
from sordino.privacy.ledger import Ledger

DIGEST = "a" * 64
LABEL4 = "[policy.epsilon]\nlabel = 4\n"


def promise(epsilon, unit="label", neighbors=REPLACE_ONE, delta=0.0, **more):
    return Guarantee(epsilon, delta=delta, unit=unit, neighbors=neighbors, trust="central", **more)


@pytest.fixture
def ledger(tmp_path):
    """A ledger with ample budgets for labels, records and persons."""
    (tmp_path / "files").mkdir()
    found = Ledger.open(tmp_path / "spend.db", data="answers", budget=promise(math.inf, delta=0.01))
    found.change_budget(promise(math.inf, "record", REPLACE_SPECIAL, 0.01))
    found.change_budget(promise(math.inf, "person", ADD_OR_REMOVE_ONE, 0.01))
    return found


def spend(ledger, event, told, **more):
    reservation = ledger.reserve(event, promise=told, **more)
    reservation.commit(DIGEST)
    return reservation.release_id


def policy(folder, text):
    (folder / "sordino.toml").write_text(text)
    return Policy.read(folder / "sordino.toml")


def held(ledger, text, folder=None, **more):
    home = ledger.path.parent
    rules = None if text is None else policy(home, text)
    return Compliance.of(folder or home / "files", ledger.path, rules, **more)


def broken(found):
    """Return what is not met: the subjects of sentences, without the data set, and files."""
    sentences = [
        each.subject.partition(": ")[2] for each in found.clauses if each.state == "not met"
    ]
    return sentences + [each.name for each in found.artifacts if each.state == "not met"]


# The policy file.


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "epsilon"),
        ("[policy]\n", "epsilon"),
        ("policy = 4\n", "table"),
        ("[policy]\nepsilon = 4\n", "table"),
        ("[policies]\nepsilon = 4\n", "policies"),
        (f"{LABEL4}\n[policy]\nepsilom = 3\n", ""),
        (f"[policy]\nepsilom = 3\n{LABEL4}", "epsilom"),
        ("[policy.epsilon]\nlabels = 4\n", "labels"),
        ("[policy.epsilon]\nlabel = nan\n", "nan"),
        ("[policy.epsilon]\nlabel = inf\n", "finite"),
        ("[policy.epsilon]\nlabel = -1\n", "greater than 0"),
        ("[policy.epsilon]\nlabel = true\n", "True"),
        ('[policy.epsilon]\nlabel = "4"\n', "number"),
        ("[policy.epsilon]\nrecord = {neighbors = 'REPLACE_ONE'}\n", "None"),
        ("[policy.epsilon]\nrecord = {at_most = 4, neighbors = 'replace'}\n", "REPLACE_ONE"),
        ("[policy.epsilon]\nrecord = {at_most = 4, relation = 'REPLACE_ONE'}\n", "relation"),
        ("[policy.epsilon]\nlabel = {at_most = 4, neighbors = 'ADD_OR_REMOVE_ONE'}\n", "label"),
        (f"{LABEL4}[policy.delta]\nbelow = nan\n", "nan"),
        (f"{LABEL4}[policy.delta]\nbelow = 0\n", "(0, 1)"),
        (f"{LABEL4}[policy.delta]\nbelow = 1.5\n", "(0, 1)"),
        (f"{LABEL4}[policy.delta]\nrecords = 5\n", "below"),
        (f"{LABEL4}[policy.delta]\nbelow = '1/n'\n", "records"),
        (f"{LABEL4}[policy.delta]\nbelow = '1/n'\npeople = 5\n", "records"),
        ("[policy.epsilon]\nperson = 4\n[policy.delta]\nbelow = '1/n'\nrecords = 5\n", "people"),
        (f"{LABEL4}[policy.delta]\nbelow = '1/n'\nrecords = 2.5\n", "records"),
        (f"{LABEL4}[policy.delta]\nbelow = '1/n'\nrecords = 0\n", "records"),
        (f"[policy]\ncovered = 'label'\n{LABEL4}", "list"),
        (f"[policy]\ncovered = ['labels']\n{LABEL4}", "labels"),
        (f"[policy]\ncovered = [[]]\n{LABEL4}", "covered"),
        (f"[policy]\naudits = ['runs']\n{LABEL4}", "runs"),
        (f"[policy]\ncaveats_not_allowed = ['simulate']\n{LABEL4}", "simulate"),
        (f"[policy]\nhead = 'abc'\n{LABEL4}", "64"),
        (f"[policy]\nhead = 4\n{LABEL4}", "64"),
        ("[policy\n", "line 1"),
        ("[policy.epsilon]\nlabel = 4\nlabel = 5\n", "line 3"),
    ],
)
def test_a_policy_that_means_something_else_than_it_says_is_refused(tmp_path, text, word):
    with pytest.raises(UsageError, match=r"Nothing was checked.*what_to_sign") as error:
        policy(tmp_path, text)
    assert word in str(error.value)


def test_what_is_no_text_or_not_there_is_no_policy(tmp_path):
    (tmp_path / "sordino.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="no policy"):
        Policy.read(tmp_path / "sordino.toml")
    with pytest.raises(FileSystemError, match=r"gone\.toml"):
        Policy.read(tmp_path / "gone.toml")


def test_a_whole_policy_is_read(tmp_path):
    found = policy(
        tmp_path,
        f"""[policy]
covered = ["label", "person", "label"]
audits = ["run"]
caveats_not_allowed = ["real-arithmetic"]
head = "{DIGEST}"
[policy.epsilon]
label = 4
person = {{at_most = 8, neighbors = "ADD_OR_REMOVE_ONE"}}
[policy.delta]
below = "1/n"
records = 300
people = 3
""",
    )
    assert found.limits["label"].epsilon == 4
    assert found.limits["label"].neighbors is REPLACE_ONE
    assert found.limits["person"].neighbors is ADD_OR_REMOVE_ONE
    assert found.below == {"label": Fraction(1, 300), "person": Fraction(1, 3)}
    assert found.covered == ("label", "person")
    assert (found.audits, found.head) == (("run",), DIGEST)
    assert found.caveats_not_allowed == ("real-arithmetic",)
    assert len(found.digest) == 64


def test_the_policy_on_the_page_for_privacy_officers_is_one(tmp_path):
    page = (Path(__file__).parents[2] / "docs/what_to_sign.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    found = policy(tmp_path, text)
    assert found.below == {"label": Fraction(1, 4400), "person": Fraction(1, 210)}
    assert found.covered == tuple(found.limits) == ("label", "person")


# Sizes.


def test_limits_are_compared_as_they_are_and_not_as_they_print(tmp_path):
    (tmp_path / "files").mkdir()
    ledger = Ledger.open(tmp_path / "spend.db", data="answers", budget=promise(9.0))
    for _ in range(3):
        spend(ledger, PureEvent(0.1), promise(0.1))
    assert broken(held(ledger, "[policy.epsilon]\nlabel = 0.3\n")) == []
    less = math.nextafter(0.3, 0)
    found = held(ledger, f"[policy.epsilon]\nlabel = {less!r}\n")
    assert f"{less:g}" == "0.3"
    assert broken(found) == ["epsilon of one label"]
    assert found.verdict == "not met"


def test_nothing_spent_is_within_every_limit(ledger):
    text = "[policy]\ncovered = ['person']\n[policy.epsilon]\nperson = 0.1\n"
    assert held(ledger, text).verdict == "met"


def test_a_unit_that_a_release_leaves_bare_is_not_one_of_which_nothing_was_spent(ledger):
    bare = spend(ledger, PureEvent(0.1), promise(0.1))
    found = held(ledger, "[policy.epsilon]\nperson = 1000\n")
    assert broken(found) == ["epsilon of one person"]
    assert bare in found.clauses[-2].found
    text = f"[policy]\ncovered = ['label', 'record']\n{LABEL4}"
    assert broken(held(ledger, text)) == ["protection of one record"]
    text = "[policy.epsilon]\nperson = 9\n[policy.delta]\nbelow = 0.5\n"
    assert broken(held(ledger, text)) == ["epsilon of one person", "delta of one person"]


def test_an_infinite_loss_covers_nobody(ledger):
    ledger.reserve(NonPrivateEvent(), promise=promise(math.inf)).commit(DIGEST)
    text = f"[policy]\ncovered = ['label']\n{LABEL4}"
    assert broken(held(ledger, text)) == ["epsilon of one label", "protection of one label"]


def test_a_limit_is_about_one_relation(ledger):
    spend(ledger, PureEvent(4.0), promise(4.0, "record", REPLACE_SPECIAL))
    found = held(ledger, "[policy.epsilon]\nrecord = 4\n")
    assert broken(found) == ["epsilon of one record"]
    (sentence,) = (each for each in found.clauses if each.state == "not met")
    assert 'record = {at_most = ..., neighbors = "REPLACE_SPECIAL"}' in sentence.way_out
    same = "[policy.epsilon]\nrecord = {at_most = 4, neighbors = 'REPLACE_SPECIAL'}\n"
    assert broken(held(ledger, same)) == []
    assert broken(held(ledger, LABEL4)) == ["epsilon of one label"]  # away and back: twice


@pytest.mark.parametrize(
    ("below", "met"),
    [
        ("0.001", False),
        ("0.0010000001", True),
        ('"1/n"\nrecords = 1000', False),
        ('"1/n"\nrecords = 1001', False),
        ('"1/n"\nrecords = 999', True),
    ],
)
def test_delta_is_less_than_its_bound_and_not_the_same(tmp_path, below, met):
    (tmp_path / "files").mkdir()
    ledger = Ledger.open(tmp_path / "spend.db", data="answers", budget=promise(9.0, delta=0.001))
    spend(ledger, ApproximateEvent(1.0, 0.001), promise(1.0, delta=0.001))
    found = held(ledger, f"{LABEL4}[policy.delta]\nbelow = {below}\n")
    assert broken(found) == ([] if met else ["delta of one label"])


# What qualifies a promise.


def test_a_seed_is_never_met(ledger):
    told = promise(0.1, randomness="simulated")
    spend(ledger, PureEvent(0.1), told)
    found = held(ledger, LABEL4)
    assert broken(found) == ["randomness"]
    assert found.simulated
    assert broken(held(ledger, None)) == ["randomness"]


def test_caveats_of_one_release_and_of_the_total_count(ledger):
    text = f"[policy]\ncaveats_not_allowed = ['timing', 'declared-disjoint']\n{LABEL4}"
    spend(ledger, PureEvent(0.1), promise(0.1))
    assert broken(held(ledger, text)) == []
    rule = next(rule for rule, unit in DISJOINT_RULES.items() if unit == "label")
    ledger.declare_disjoint(["one", "other"], rule=rule)
    spend(ledger, PureEvent(0.1), promise(0.1, caveats=("timing",)), scope="one")
    spend(ledger, PureEvent(0.1), promise(0.1), scope="other")
    assert broken(held(ledger, text)) == ["caveat timing", "caveat declared-disjoint"]
    assert broken(held(ledger, LABEL4)) == []


# The ledger.


def test_an_older_copy_of_the_ledger_is_refused_where_the_policy_notes_a_head(ledger, tmp_path):
    spend(ledger, PureEvent(1.0), promise(1.0))
    shutil.copy(ledger.path, tmp_path / "older.db")
    older = Ledger.read(tmp_path / "older.db")
    spend(ledger, PureEvent(9.0), promise(9.0))
    assert broken(held(older, LABEL4)) == []  # nothing shows that it is an older one
    noted = f'[policy]\nhead = "{ledger.head.digest}"\n{LABEL4}'
    with pytest.raises(LedgerDamaged, match=r"sordino\.toml notes"):
        held(older, noted)
    assert broken(held(ledger, noted)) == ["epsilon of one label"]
    before = f'[policy]\nhead = "{older.head.digest}"\n{LABEL4}'
    assert broken(held(ledger, before)) == ["epsilon of one label"]


def test_a_second_ledger_in_the_folder_is_named(ledger):
    home = ledger.path.parent
    shutil.copy(ledger.path, home / "files/older.db")
    (home / "files/no.db").write_text("no database")
    spend(ledger, PureEvent(1.0), promise(1.0))
    shutil.copy(ledger.path, home / "files/copy.db")
    assert broken(held(ledger, LABEL4)) == []
    other = Ledger.open(home / "files/more.db", data="answers", budget=promise(99.0))
    spend(other, PureEvent(99.0), promise(99.0))
    assert broken(held(ledger, LABEL4)) == ["more.db"]


def test_what_was_paid_and_is_not_here_is_a_warning(ledger):
    name = spend(ledger, PureEvent(1.0), promise(1.0))
    found, strictly = held(ledger, LABEL4), held(ledger, LABEL4, strict=True)
    assert (found.verdict, strictly.verdict) == ("met", "not met")
    assert name in found.clauses[-1].found
    ledger.reserve(PureEvent(1.0), promise=promise(1.0))  # its run died: nothing can be here
    assert len(held(ledger, LABEL4).clauses) == len(found.clauses)


def test_without_a_policy_nothing_is_met(ledger):
    assert held(ledger, None).verdict == "no policy"
    assert held(ledger, None, strict=True).verdict == "not met"


def test_no_data_set_on_a_ledger_is_left_out(ledger):
    other = Ledger.open(ledger.path, data="others", budget=promise(99.0))
    spend(other, PureEvent(4.0), promise(4.0))
    assert held(ledger, LABEL4).verdict == "met"
    spend(other, PureEvent(1.0), promise(1.0))
    assert held(ledger, LABEL4).verdict == "not met"


# The files of a project.


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder with two runs and two privatized files, all on one ledger."""
    home = tmp_path_factory.mktemp("project")
    rows = [
        {"prompt": f"Question {i}?", "chosen": f"Yes, {i} times.", "rejected": f"No, not {i}."}
        for i in range(60)
    ]
    for name, part in (("in", rows), ("a", rows[:30]), ("b", rows[30:])):
        (home / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    raw, paid = ["in.jsonl", "--epsilon", "1", "--out"], ["--ledger", "spend.db"]
    central = ["--noise", "estimate", "--metrics-epsilon", "0.5"]
    with chdir(home):
        for words in (
            ["align", *raw, "out/run", *paid, "--budget", "9", "--budget-delta", "1e-6"],
            ["align", *raw, "out/sum", *paid, *central],
            ["privatize", *raw, "out/p.jsonl", *paid],
            ["fit", "out/p.jsonl", "--out", "out/reward.json"],
            ["privatize", "a.jsonl", "b.jsonl", *raw[1:], "many", "--ledger", "many.db"],
        ):
            assert cli.run(words) == 0, words
    return home


@pytest.fixture
def files(project, tmp_path):
    shutil.copytree(project, tmp_path, dirs_exist_ok=True)
    return tmp_path / "out"


NINE = "[policy]\naudits = ['run']\ncovered = ['label']\n[policy.epsilon]\nlabel = 9\n"


def look(files, text=NINE, **more):
    return held(Ledger.read(files.parent / "spend.db"), text, files, **more)


def edit(path, **changes):
    told = json.loads(path.read_bytes())
    path.write_text(json.dumps(told | changes))


def test_every_file_that_was_paid_for_is_met_even_strictly(files):
    found = look(files, strict=True)
    assert [each.name for each in found.artifacts if each.state != "met"] == []
    assert found.verdict == "met", found.clauses
    told = {each.name: each for each in found.artifacts}
    assert len(told) == 6
    assert {each.audit for each in found.artifacts if each.kind == "sordino.result"} == {
        "not refuted"
    }
    assert told["p.jsonl"].artifact == told["p.jsonl"].sha256
    assert told["p.jsonl"].release_ids == told["reward.json"].release_ids
    assert len(told["sum/reward.json"].release_ids) == 2  # metrics were bought
    assert all(each.entries for each in found.artifacts)


def test_answers_that_were_changed_are_not_met(files):
    lines = (files / "p.jsonl").read_text().splitlines()
    (files / "p.jsonl").write_text("\n".join(lines[1:]) + "\n")
    assert broken(look(files)) == ["p.manifest.json"]
    # with a manifest to match, the ledger knows better
    digest = sordino._files.sha256_of(files / "p.jsonl")
    edit(files / "p.manifest.json", sha256=digest)
    assert broken(look(files)) == ["p.jsonl"]


@pytest.mark.deep
def test_an_artifact_by_name_alone_is_not_met(files):
    """Whatever names an entry of the ledger must have that entry's digest."""
    entry = read_manifest(files / "p.jsonl").release_id
    for change in (
        {"artifact": DIGEST},
        {"release_ids": [entry], "artifact": DIGEST},
        {"release_ids": [], "artifact": DIGEST},
        {"release_ids": [], "artifact": ""},
        {"release_ids": [entry, "0" * 16]},
        {"release_ids": ["0" * 16]},
        {"guarantee": promise(0.5).to_dict()},
        {"caveats": []},
        {"guarantee": promise(1.0).to_dict() | {"epsilon": "none"}},
        {"guarantee": promise(1.0).to_dict() | {"trust": "local"}},
        {"release_ids": None},
    ):
        shutil.copy(files / "reward.json", files / "kept")
        edit(files / "reward.json", **change)
        assert broken(look(files)) == ["reward.json"], change
        (files / "kept").replace(files / "reward.json")
    edit(files / "reward.json", release_ids=[entry])
    assert broken(look(files)) == []


def test_a_run_whose_files_were_changed_is_refuted(files):
    edit(files / "run/reward.json", weights=[0.0] * 512)
    assert broken(look(files)) == ["run/result.json"]
    assert broken(look(files, LABEL4.replace("4", "9"))) == ["run/result.json"]
    (files / "run/reward.json").unlink()
    assert broken(look(files)) == ["run/result.json"]


def test_an_audit_that_cannot_tell_is_enough_only_where_none_is_asked_for(files, monkeypatch):
    from sordino.auditing import compliance
    from sordino.auditing.findings import Audit

    def lacking(*_, **__):
        claim = promise(1.0)
        return Audit(kind="run", subject="run", claim=claim, findings=(), lacks=("Too little.",))

    monkeypatch.setattr(compliance, "audit_run", lacking)
    assert broken(look(files)) == ["run/result.json", "sum/result.json"]
    without = look(files, NINE.replace("audits = ['run']\n", ""))
    assert broken(without) == []
    assert [each.state for each in without.artifacts].count("warning") == 2


def test_an_audit_is_of_these_files_and_of_this_ledger(files, tmp_path):
    """Nobody's word is taken for an audit: a file that says so changes nothing."""
    edit(files / "run/reward.json", weights=[0.0] * 512)
    word = {"format": "sordino.audit", "version": 2, "verdict": "not refuted"}
    (files / "run/audit.json").write_text(json.dumps(word))
    assert broken(look(files)) == ["run/result.json"]
    shutil.rmtree(files / "run")
    shutil.rmtree(files / "sum")
    found = look(files)
    assert next(each.subject for each in found.clauses if each.state == "warning") == "audits"


def test_what_another_ledger_paid_for_is_foreign(files, tmp_path):
    with chdir(tmp_path):
        words = ["privatize", "in.jsonl", "--epsilon", "8", "--out", "out/q.jsonl"]
        assert cli.run([*words, "--ledger", "other.db"]) == 0
        words = ["align", "in.jsonl", "--epsilon", "8", "--out", "out/own"]
        assert cli.run([*words, "--ledger", "out/own/spend.db"]) == 0
    names = ["own/spend.db", "own/result.json", "own/reward.json", "q.jsonl"]
    assert sorted(broken(look(files))) == sorted(names)


def test_a_release_of_many_files_is_whole_or_not_met(files, tmp_path):
    there, many = Ledger.read(tmp_path / "many.db"), tmp_path / "many"
    found = held(there, NINE.replace("audits = ['run']", ""), many, strict=True)
    assert (found.verdict, len(found.artifacts)) == ("met", 2)
    shutil.copytree(many, many / "again")
    assert broken(held(there, NINE, many)) == []
    shutil.rmtree(many / "again")
    stem = min(many.glob("*.manifest.json")).name.removesuffix(".manifest.json")
    for path in many.glob(f"{stem}.*"):
        path.unlink()
    (name,) = broken(held(there, NINE, many))
    assert name.endswith(".jsonl")


def test_what_arrived_already_private_counts(files, tmp_path):
    """A ledger charges nothing for what arrives; a policy does."""
    (tmp_path / "away").mkdir()
    there = Ledger.open(tmp_path / "away.db", data="answers", budget=promise(math.inf, delta=0.01))
    manifest = read_manifest(files / "p.jsonl")
    (tmp_path / "away/p.jsonl").write_bytes((files / "p.jsonl").read_bytes())
    shutil.copy(files / "p.manifest.json", tmp_path / "away")
    there.receive(files / "p.jsonl", manifest)
    assert there.accounts()["label"].guarantee is None
    text = "[policy.epsilon]\nlabel = 1\n"
    assert broken(held(there, text, tmp_path / "away")) == []
    assert held(there, text, tmp_path / "away", strict=True).verdict == "met"
    less = text.replace("1", "0.99")
    assert broken(held(there, less, tmp_path / "away")) == ["epsilon of one label"]
    spend(there, PureEvent(0.1), promise(0.1))
    found = held(there, text, tmp_path / "away")
    assert broken(found) == ["epsilon of one label"]
    assert broken(held(there, "[policy.epsilon]\nlabel = 1.1\n", tmp_path / "away")) == []
    assert broken(held(there, "[policy.epsilon]\nperson = 99\n", tmp_path / "away")) == [
        "epsilon of one person"
    ]


def test_what_arrived_with_a_seed_is_simulated(files, tmp_path):
    with chdir(tmp_path):
        words = ["privatize", "in.jsonl", "--epsilon", "1", "--simulate-seed", "1"]
        assert cli.run([*words, "--out", "s.jsonl", "--ledger", "s.db"]) == 0
    there = Ledger.open(tmp_path / "away.db", data="answers", budget=promise(9.0))
    there.receive(tmp_path / "s.jsonl", read_manifest(tmp_path / "s.jsonl"))
    (tmp_path / "none").mkdir()
    assert broken(held(there, LABEL4, tmp_path / "none")) == ["randomness"]


def test_weights_of_a_model_go_with_what_speaks_for_them(files):
    reward = json.loads((files / "reward.json").read_bytes())
    source = {key: reward[key] for key in ("guarantee", "caveats", "artifact")}
    source["release_ids"] = [read_manifest(files / "p.jsonl").release_id]
    model = files / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"weights")
    told = {"format": "sordino.checkpoint", "version": 1, "sources": [source]}
    told |= {key: source[key] for key in ("guarantee", "caveats")}
    (model / "sordino.json").write_text(json.dumps(told))
    found = {each.name: each for each in look(files).artifacts}
    assert found["model/model.safetensors"].state == "met"
    assert found["model/model.safetensors"].sha256 != found["model/sordino.json"].sha256
    edit(model / "sordino.json", sources=[source, source])  # two releases promise less than one
    assert "model/model.safetensors" in broken(look(files))
    for forged in (
        {"guarantee": source["guarantee"] | {"trust": "local"}},
        {"guarantee": source["guarantee"] | {"unit": "person"}},
        {"caveats": []},
        {"sources": []},
    ):
        (model / "sordino.json").write_text(json.dumps(told | forged))
        assert "model/sordino.json" in broken(look(files)), forged
    edit(model / "sordino.json", **told | {"sources": [source | {"artifact": DIGEST}]})
    assert broken(look(files)) == ["model/sordino.json", "model/model.safetensors"]


def test_files_that_name_no_digest_are_warned_of(files):
    told = {"format": "sordino.bandit", "guarantee": promise(1.0).to_dict(), "caveats": []}
    (files / "draws.json").write_text(json.dumps(told))
    (files / "plan.json").write_text(json.dumps(told | {"format": "sordino.intrinsic"}))
    (files / "none.json").write_text("{")
    (files / ".hidden").mkdir()
    (files / ".hidden/reward.json").write_text(json.dumps(told))
    found = look(files)
    assert found.verdict == "met"
    assert [each.name for each in found.artifacts if each.state == "warning"] == ["draws.json"]
    assert look(files, strict=True).verdict == "not met"
    (files / "draws.json").write_text(json.dumps(told | {"format": "sordino.of-tomorrow"}))
    assert broken(look(files)) == ["draws.json"]


def test_answers_that_were_stored_and_are_released_again_are_paid_for(files, tmp_path):
    """The same persons' answers are drawn once: a second file of them costs nothing."""
    rows = [
        {"prompt": f"{i % 20}?", "chosen": "Yes.", "rejected": "No.", "person": f"p{i % 7}"}
        for i in range(40)
    ]
    (tmp_path / "persons.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "again").mkdir()
    words = ["privatize", "persons.jsonl", "--epsilon", "1", "--ledger", "persons.db", "--out"]
    with chdir(tmp_path):
        for name in ("x", "y"):
            assert cli.run([*words, f"again/{name}.jsonl"]) == 0
    found = held(Ledger.read(tmp_path / "persons.db"), LABEL4, tmp_path / "again", strict=True)
    assert [(each.name, each.state) for each in found.artifacts] == [
        ("x.jsonl", "met"), ("y.jsonl", "met"),
    ]  # fmt: skip
    assert found.verdict == "met"


def test_a_manifest_without_its_file_is_a_warning(files):
    (files / "p.jsonl").unlink()
    found = look(files)
    assert found.verdict == "met"
    assert [each.name for each in found.artifacts if each.state == "warning"] == ["p.manifest.json"]


def test_there_must_be_a_folder_and_a_ledger(ledger, tmp_path):
    with pytest.raises(FileSystemError, match="no folder gone"):
        Compliance.of(tmp_path / "gone", ledger.path, None)
    with pytest.raises(FileSystemError, match="no ledger"):
        Compliance.of(tmp_path, tmp_path / "gone.db", None)
    (tmp_path / "text.db").write_text("text")
    with pytest.raises(UsageError, match="no ledger"):
        Compliance.of(tmp_path, tmp_path / "text.db", None)


def test_a_folder_behind_a_link_is_looked_into(files, tmp_path):
    """What lies there is in the folder for whoever opens it; a circle of links ends."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    told = {"format": "sordino.reward", "guarantee": promise(0.1).to_dict(), "caveats": []}
    (elsewhere / "reward.json").write_text(json.dumps(told))
    (elsewhere / "back").symlink_to(files)
    assert broken(look(files)) == []
    (files / "linked").symlink_to(elsewhere)
    assert broken(look(files)) == ["linked/reward.json"]


def test_a_file_that_says_two_things_is_not_met(files):
    path = files / "p.manifest.json"
    path.write_text(path.read_text().replace("{", '{"epsilon": 0.1,', 1))
    assert broken(look(files)) == ["p.manifest.json"]
