"""What an audit of a run refuses, what it says, and what it looks at beside the run."""

import gzip
import json
import os
import shutil
import sqlite3
from contextlib import closing

import pytest
from tests.apart import apart

from sordino import cli
from sordino._files import to_json
from sordino.auditing.runs import replay
from sordino.auditing.runs.replay import audit_run
from sordino.errors import (
    AuditInconclusive,
    DataError,
    FileSystemError,
    LedgerDamaged,
    LedgerError,
    UsageError,
)
from sordino.privacy import ledger_chain

CANARY = "CANARY"
RAW = {"prompt": CANARY, "chosen": f"{CANARY} yes, then", "rejected": f"{CANARY} no, sorry"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    home = tmp_path_factory.mktemp("run")
    rows = [RAW | {"prompt": f"{CANARY} {index}"} for index in range(30)]
    data = home / "raw.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["align", data, "--epsilon", 1, "--dimension", 8, "--out", home / "run"]
    assert cli.run(apart(words)) == 0
    return home


@pytest.fixture
def run(made, tmp_path):
    return shutil.copytree(made / "run", tmp_path / "run")


def change(path, *steps, to):
    whole = part = json.loads(path.read_text())
    for step in steps[:-1]:
        part = part[step]
    part[steps[-1]] = to
    path.write_text(to_json(whole))


def finding(audit, name):
    (found,) = (found for found in audit.findings if found.attack == name)
    return found


def refused(kind, run, *words, **options):
    with pytest.raises(kind) as caught:
        audit_run(run, **options)
    assert type(caught.value) is kind
    for word in words:
        assert word in str(caught.value)
    assert CANARY not in str(caught.value)


def test_the_audit_names_the_folder_and_never_data(run, monkeypatch):
    monkeypatch.chdir(run)
    audit = audit_run(".")
    assert audit.subject == "run"
    assert audit.require() is audit
    assert CANARY not in to_json(audit.to_dict())
    assert audit.measured == ()
    assert not audit.confidential


def test_a_folder_that_is_no_run(tmp_path, run):
    refused(FileSystemError, tmp_path / "nowhere", "no folder nowhere")
    refused(DataError, tmp_path, "holds no result.json", "--out")
    (run / "reward.json").unlink()
    refused(FileSystemError, run, "reward.json cannot be read")


def test_a_ledger_that_is_not_there(run, tmp_path):
    shutil.move(run / "spend.db", tmp_path / "kept.db")
    audit = audit_run(run)
    assert (audit.verdict, audit.exit_code) == ("cannot tell", 6)
    assert "no ledger ledger.db" in audit.reasons[0]
    assert "ledger=... (--ledger)" in audit.reasons[0]
    with pytest.raises(AuditInconclusive, match="no ledger"):
        audit.require()
    assert not audit_run(run, ledger=tmp_path / "kept.db").refuted
    assert not audit_run(str(run), ledger=str(tmp_path / "kept.db")).refuted
    refused(FileSystemError, run, "no ledger", ledger=tmp_path)


def test_a_ledger_behind_a_link_is_read_with_what_waits_beside_it(run, tmp_path):
    shutil.move(run / "spend.db", tmp_path / "kept.db")
    (run / "spend.db").symlink_to(tmp_path / "kept.db")
    with closing(sqlite3.connect(tmp_path / "kept.db", isolation_level=None)) as held:
        held.execute("SELECT count(*) FROM rows").fetchone()
        with (
            ledger_chain.connect(tmp_path / "kept.db") as connection,
            ledger_chain.transaction(connection),
        ):
            last = ledger_chain.read_rows(connection)[-1]
            ledger_chain.append(connection, last, kind="budget", time="now", payload=budget(run))
        assert finding(audit_run(run), "head").details["rows"] == 4


def budget(run):
    """The budget of a run's ledger as a row holds it."""
    total = json.loads((run / "result.json").read_text())["certificate"]["ledger"]["total"]
    return ledger_chain.canonical_json({"budget": total})


NEWER = {
    "result": ("result.json", ("version",)),
    "certificate": ("result.json", ("certificate", "version")),
    "reward": ("reward.json", ("version",)),
}


@pytest.mark.parametrize(("name", "path"), NEWER.values(), ids=NEWER)
def test_files_of_a_newer_version_are_refused(run, name, path):
    change(run / name, *path, to=99)
    refused(DataError, run, "newer sordino", "Upgrade")


def test_a_ledger_of_a_newer_version_is_no_refutation(run):
    with closing(sqlite3.connect(run / "spend.db")) as connection:
        connection.execute("DROP TRIGGER no_update")
        connection.execute(
            "UPDATE rows SET payload = replace(payload, '\"version\":2', '\"version\":3')"
        )
        connection.commit()
    refused(LedgerError, run, "newer sordino", "Upgrade")


MALFORMED = [
    (("guarantee",), None),
    (("guarantee", "epsilon"), "2"),
    (("caveats",), [CANARY]),
    (("caveats",), "simulated"),
    (("certificate",), []),
    (("certificate", "format"), CANARY),
    (("certificate", "version"), True),
    (("certificate", "artifact"), CANARY),
    (("certificate", "digest"), 7),
    (("certificate", "release_ids"), CANARY),
    (("certificate", "ledger"), None),
    (("certificate", "ledger", "rows"), 0),
    (("certificate", "ledger", "total"), {}),
    (("reward_sha256",), None),
    (("policy",), None),
    (("policy", "temperature"), 0),
    (("policy", "kind"), "pessimistic"),
    (("policy", "temperature"), 10**400),
    (("guarantee", "epsilon"), 10**400),
    (("noise",), None),
    (("mechanism", "flip_probability"), CANARY),
    (("mechanism", "flip_probability"), 0.7),
    (("mechanism", "epsilon_per_label"), -1.0),
    (("mechanism", "epsilon_per_label"), 10**400),
]


@pytest.mark.parametrize(("path", "value"), MALFORMED)
def test_a_malformed_result_is_refused_without_quoting_it(run, path, value):
    change(run / "result.json", *path, to=value)
    refused(DataError, run, "cannot be used", "result.json", "malformed")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": "other"}', "[" * 100_000])
@pytest.mark.parametrize("name", ["result.json", "reward.json"])
def test_what_is_no_result_is_refused(run, name, text):
    (run / name).write_text(text)
    refused(DataError, run, "cannot be used", name)


def test_a_reward_that_cannot_be_read_is_refused(run):
    change(run / "reward.json", "weights", to=[CANARY])
    refused(DataError, run, "reward.json")
    change(run / "reward.json", "features", to={"kind": "sentence-embeddings"})
    refused(UsageError, run, "sentence model")


@pytest.mark.parametrize("path", [("weights", 0), ("standard_errors", 0), ("ridge",)])
def test_a_number_that_no_float_holds_is_refused(run, path):
    change(run / "reward.json", *path, to=10**400)
    refused(DataError, run)


def test_an_early_result_that_does_not_state_the_loss_of_a_label(run):
    whole = json.loads((run / "result.json").read_text())
    del whole["mechanism"]["epsilon_per_label"]
    (run / "result.json").write_text(to_json(whole))
    assert finding(audit_run(run), "mechanism").outcome == "clear"


def test_a_ledger_that_never_stands_still(run, monkeypatch):
    looks = iter(range(10**6))
    monkeypatch.setattr(replay, "_look", lambda path: {"": b"%d" % next(looks)})
    refused(LedgerError, run, "written all the time", "try again")


def test_a_ledger_that_is_written_while_it_is_read(run, monkeypatch):
    """Half of the one and half of the other state is no ledger; it is looked at again."""
    whole = replay._look(run / "spend.db")
    torn = [{"": whole[""][:4096]}, {"": whole[""][:4096] + bytes(4096)}]
    real = replay._look
    monkeypatch.setattr(replay, "_look", lambda path: torn.pop() if torn else real(path))
    assert not audit_run(run).refuted
    assert not torn


def test_a_damaged_ledger_is_told_from_a_newer_one(run):
    (run / "spend.db").write_bytes(b"no ledger")
    with pytest.raises(LedgerDamaged):
        replay.read_ledger(run / "spend.db")
    found = finding(audit_run(run), "chain")
    assert found.outcome == "refutes"
    assert "spend.db" in found.details["problem"]


# What lies beside the run.

STRAYS = {
    "raw.jsonl": json.dumps(RAW),
    "raw.json": json.dumps([{"prompt": "a", "first": "b", "second": "c", "label": 1}]),
    "several.jsonl": json.dumps({"prompt": "a", "first": "b", "second": "c", "labels": [1, 0]}),
    "raw.csv": "prompt,chosen,rejected\na,b,c\n",
    "quoted.csv": '\ufeff"prompt","first","second","Label"\n"a","b","c","1"\n',
    "raw.tsv": "prompt\tfirst\tsecond\tlabel\na\tb\tc\t1\n",
    "cut.jsonl": '{"chosen" : "' + "x" * 100_000,
    "deep/below/raw.txt": json.dumps(RAW),
}


@pytest.mark.parametrize("name", STRAYS)
def test_raw_judgments_beside_a_run_are_a_warning(run, name):
    (run / name).parent.mkdir(parents=True, exist_ok=True)
    (run / name).write_text(STRAYS[name])
    audit = audit_run(run)
    found = finding(audit, "strays")
    assert (found.outcome, found.details["files"], found.details["count"]) == ("warning", [name], 1)
    assert not audit.refuted
    assert CANARY not in to_json(audit.to_dict())


@pytest.mark.parametrize("name", ["spend.db.secret", "spend.memo/settings.json", ".sordino/secret"])
def test_what_tells_who_took_part_is_a_warning_beside_a_run(run, name):
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).write_text("0" * 43)
    found = finding(audit_run(run), "strays")
    told = name.removesuffix("/settings.json")  # all of the store of answers
    assert (found.outcome, found.details["files"]) == ("warning", [told])
    assert "who took part" in found.summary


def test_packed_raw_judgments_are_seen(run):
    (run / "raw.jsonl.gz").write_bytes(gzip.compress(json.dumps(RAW).encode()))
    (run / "cut.jsonl.gz").write_bytes(gzip.compress(os.urandom(2000))[:900])
    assert finding(audit_run(run), "strays").details["files"] == ["raw.jsonl.gz"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00",
        json.dumps({"prompt": "a", "first": "b", "second": "c", "answer": 1}).encode(),
        json.dumps({"prompt": '{"label": 1}', "answer": 1}).encode(),
        b"prompt,first,second,answer\nlabel,chosen,rejected,1\n",
        b"We labeled what was chosen, not what was rejected.\n",
    ],
)
def test_other_files_beside_a_run_are_nobodys_business(run, content):
    (run / "notes.txt").write_bytes(content)
    found = finding(audit_run(run), "strays")
    assert (found.outcome, found.details["looked_at"]) == ("clear", 2)


def test_odd_things_beside_a_run_do_not_stop_an_audit(run, tmp_path):
    os.mkfifo(run / "pipe")
    (run / "gone").symlink_to(tmp_path / "nowhere")
    (run / "loop").symlink_to(run)
    assert finding(audit_run(run), "strays").outcome == "clear"


def test_a_crowd_of_files_is_looked_at_in_part(run, monkeypatch):
    monkeypatch.setattr("sordino.auditing.runs.replay._MOST_FILES", 3)
    for name in "abc":
        (run / name).write_text("nothing")
    found = finding(audit_run(run), "strays")
    assert found.details["looked_at"] == 3
    assert "first" in found.summary


def test_without_a_page_there_is_nothing_to_compare(run):
    (run / "report.html").unlink()
    assert finding(audit_run(run), "report").outcome == "skipped"


def test_the_page_of_another_run(run, tmp_path):
    (run / "report.html").write_text("<p>ε = 1</p>")
    found = finding(audit_run(run), "report")
    assert found.outcome == "warning"
    assert "unit" in found.summary
    assert "epsilon" not in found.summary


def test_a_page_is_read_in_one_pass(run):
    """300 kB of "<" took 40 seconds, and ten times as many an hour."""
    page = run / "report.html"
    honest = page.read_text()
    page.write_text("<" * 3_000_000)
    assert finding(audit_run(run), "report").outcome == "warning"
    page.write_text(honest.replace("<body", "<" * 1000 + " <body"))
    assert finding(audit_run(run), "report").outcome == "clear"
