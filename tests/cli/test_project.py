"""One project has one ledger, and knows a data set whatever its file is called."""

import json
import random
import re
import shlex
from contextlib import chdir
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiers import few

from sordino import cli
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import LEDGER

EPSILON = 0.5
N = 40


@pytest.fixture
def project(folder, monkeypatch):
    """A folder in which no command is told where its ledger is."""
    monkeypatch.setattr("tests.cli.conftest.apart", lambda words: [str(word) for word in words])
    monkeypatch.setattr(f"{type(folder).__module__}.apart", lambda words: [str(w) for w in words])
    return folder


def rows_of(n, *, first=0):
    return [
        {"prompt": f"p{at}", "chosen": f"yes {at}", "rejected": f"no {at}"}
        for at in range(first, first + n)
    ]


def accounts(folder):
    """What `ledger show` says was spent, by unit."""
    said = folder.run("ledger", "show", "--json")
    assert said.code == 0, said.err
    return {unit: told["epsilon"] for unit, told in said.value["accounts"].items()}


def spent(folder):
    """Rows that spend, as the one ledger of the project has them."""
    return Ledger.read(folder / LEDGER).rows


def test_the_first_command_that_spends_makes_the_project_and_says_where(project):
    project.write("in.jsonl", rows_of(N))
    said = project.run("privatize", "in.jsonl", "--epsilon", EPSILON, "--out", "out.jsonl")
    assert said.code == 0, said.err
    assert "This folder is a project now" in said.err
    assert str(LEDGER) in said.err
    assert (project / ".sordino/.gitignore").read_text() == "*\n"
    assert not list(project.path.glob("*.db"))
    (project / "deep/down").mkdir(parents=True)
    again = project.run("privatize", "in.jsonl", "--epsilon", EPSILON, "--out", "again.jsonl")
    assert again.code == 3  # the first release set the budget


def command_in(message):
    """The command that a message names, as a reader would type it."""
    way = r"ave the data's owner [a-z ]+: change_budget, or on the command line sordino (.*?)[.:] "
    return shlex.split(re.search(way, f"{' '.join(message.split())} ")[1])


@pytest.mark.parametrize(
    "case", few(["epsilon", "delta", "of one data set", "none", "another ledger"], first=2)
)
def test_the_command_that_a_refusal_names_is_what_its_way_out_takes(project, case):
    project.write("in.jsonl", rows_of(N))
    run = ["align", "in.jsonl", "--out", "run", "--dimension", 16, "--epsilon", 1]
    more = {"of one data set": ["--data", "it's ours"], "another ledger": ["--ledger", "a b.db"]}
    run += more.get(case, [])
    limited = ["budget", "set", "label", 0.5]
    if case in {"epsilon", "of one data set"}:
        assert project.run("init").code == project.run(*limited, *more.get(case, [])).code == 0
    else:
        first = [*run, "--budget", 9] if case in {"delta", "none"} else run
        assert project.run(*first).code == 0
    if case == "of one data set":
        assert project.run("budget", "set", "label", 99).code == 0
    if case in {"delta", "none"}:
        run += ["--noise", "estimate", "--unit", "label" if case == "delta" else "record"]
    said = project.run(*run, "--force")
    assert said.code in {2, 3}, said.err
    for _ in range(2):  # a budget for records, and what records take of that of labels
        if said.code:
            command = command_in(said.err)
            assert ("--data" in command) == (case == "of one data set")
            assert project.run(*command).code == 0, command
            said = project.run(*run, "--force")
    assert said.code == 0, said.err


def test_a_dry_run_makes_no_project(project):
    project.write("in.jsonl", rows_of(N))
    before = project.names()
    for command in ("align", "privatize"):
        said = project.run(command, "in.jsonl", "--epsilon", 1, "--out", "out.jsonl", "--dry-run")
        assert said.code == 0, said.err
    assert project.names() == before


def test_a_project_is_made_once_and_found_from_inside(project, monkeypatch):
    assert project.run("init").code == 0
    (project / "deep/down").mkdir(parents=True)
    assert project.run("init", "deep/down").code == 2
    assert project.run("ledger", "show").code == 0
    said = project.run("budget", "set", "label", 3)
    assert (said.code, f" {LEDGER}" in said.out) == (0, True), said.out
    monkeypatch.chdir(project / "deep/down")
    project.write("deep/down/in.jsonl", rows_of(N))
    said = project.run("privatize", "in.jsonl", "--epsilon", 1, "--out", "out.jsonl")
    assert (said.code, "project now" in said.err) == (0, False)
    assert accounts(project)["label"] == 1.0


def changed(rows, how, seed):
    """The same judgments in other files: lists of rows, one for each file."""
    rng = random.Random(seed)  # noqa: S311 (which form is tried)
    rows = [dict(row) for row in rows]
    if how == "shuffled":
        rng.shuffle(rows)
    elif how == "field added":
        rows = [{"id": at, **row, "note": "x"} for at, row in enumerate(rows)]
    elif how == "answered anew":
        rows = [
            {**row, "chosen": row["rejected"], "rejected": row["chosen"]}
            if rng.random() < 0.5
            else row
            for row in rows
        ]
    elif how == "halved":
        rows = rng.sample(rows, len(rows) // 2)
    elif how == "doubled":
        rows += rows_of(len(rows), first=len(rows))
    elif how == "split in ten":
        cuts = [*range(0, len(rows), len(rows) // 10), len(rows)]
        return [rows[a:b] for a, b in pairwise(cuts)]
    return [rows]


def words_of(at):
    return ["privatize", f"in{at}.jsonl", "--epsilon", str(EPSILON)]


HOW = ["renamed", "shuffled", "field added", "answered anew", "halved", "doubled", "split in ten"]


@pytest.mark.deep
@settings(max_examples=5)
@given(st.lists(st.sampled_from(HOW), min_size=1, max_size=2), st.integers(0, 99))
def test_the_same_judgments_in_another_file_are_the_same_data_set(tmp_path_factory, hows, seed):
    where = tmp_path_factory.mktemp("project")
    rows = rows_of(N)
    files = [rows]
    for how in hows:
        files += changed(files[-1], how, seed)
    assert cli.run(["init", str(where)]) == 0
    with chdir(where):
        assert cli.run(["budget", "set", "label", str(EPSILON * len(files))]) == 0
        for at, file in enumerate(files):
            text = "".join(json.dumps(row) + "\n" for row in file)
            Path(f"in{at}.jsonl").write_text(text)
            assert cli.run([*words_of(at), "--out", f"{at}.jsonl"]) == 0
        ledger = Ledger.read(LEDGER)
        assert ledger.data_sets == ("preferences",)
        assert ledger.total().epsilon == pytest.approx(EPSILON * len(files), rel=1e-9)
        # nothing more fits, whichever of the files it is of
        for at in range(len(files)):
            assert cli.run([*words_of(at), "--out", "more.jsonl"]) == 3


def test_other_questions_are_another_data_set_until_a_file_has_both(project):
    project.run("init")
    project.run("budget", "set", "label", 2 * EPSILON)
    one = project.write("one.jsonl", rows_of(N))
    other = project.write("other.jsonl", rows_of(N, first=N))
    for name in (one, other):
        said = project.run("privatize", name, "--epsilon", EPSILON, "--out", f"p-{name}")
        assert said.code == 0, said.err
    assert accounts(project)["label"] == EPSILON  # no label is in both
    assert Ledger.read(project / LEDGER).data_sets == ("preferences", "preferences-2")
    both = project.write("both.jsonl", rows_of(2 * N))
    said = project.run("privatize", both, "--epsilon", EPSILON, "--out", "p-both.jsonl")
    assert said.code == 3  # all three are one data set now
    assert "over the budget" in said.err
    assert project.run("budget", "set", "label", 3 * EPSILON).code == 0
    said = project.run("privatize", both, "--epsilon", EPSILON, "--out", "p-both.jsonl")
    assert said.code == 0, said.err
    assert Ledger.read(project / LEDGER).data_sets == ("preferences",)
    assert accounts(project)["label"] == 3 * EPSILON


def test_records_without_a_name_count_in_every_data_set(project):
    project.run("init")
    for unit in ("label", "record"):
        project.run("budget", "set", unit, 4, "--delta", 1e-5)
    one = project.write("one.jsonl", rows_of(N))
    other = project.write("other.jsonl", rows_of(N, first=N))
    project.run("privatize", one, "--epsilon", EPSILON, "--out", "p-one.jsonl")
    words = ["--noise", "estimate", "--unit", "record", "--epsilon", 1, "--delta", 1e-6]
    said = project.run("align", other, *words, "--out", "run")
    assert said.code == 0, said.err
    ledger = Ledger.read(project / LEDGER)
    record = ledger.accounts()["record"]
    assert record.uncovered  # labels of the first file were released with public prompts
    first = ledger.about("preferences").accounts()["label"].guarantee.epsilon
    assert first > EPSILON  # the records may be the same file
    said = project.run("privatize", other, "--epsilon", EPSILON, "--out", "p-other.jsonl")
    assert said.code == 0, said.err
    second = Ledger.read(project / LEDGER).about("preferences-2").accounts()["label"]
    assert second.guarantee.epsilon == first  # also in data sets that are known later only


def test_records_with_a_name_count_there_and_the_total_says_that_it_rests_on_names(project):
    project.run("init")
    for unit in ("label", "record"):
        project.run("budget", "set", unit, 4, "--delta", 1e-5)
    one = project.write("one.jsonl", rows_of(N))
    project.run("privatize", one, "--epsilon", EPSILON, "--out", "p-one.jsonl", "--data", "one")
    words = ["--noise", "estimate", "--unit", "record", "--epsilon", 1, "--delta", 1e-6]
    said = project.run("align", one, *words, "--out", "run", "--data", "another")
    assert said.code == 0, said.err
    held = Ledger.read(project / LEDGER).about("one").accounts()["label"].guarantee
    assert held.epsilon == pytest.approx(EPSILON, rel=1e-3)  # at a delta that the coin can use
    assert "declared-disjoint" in held.caveats


def test_the_report_the_audit_and_the_ledger_say_the_same_total(project):
    project.run("init")
    project.run("budget", "set", "label", 3)
    project.write("in.jsonl", rows_of(N))
    project.write("renamed.jsonl", rows_of(N)[::-1])
    assert project.run("align", "in.jsonl", "--epsilon", 1, "--out", "one").code == 0
    assert project.run("align", "renamed.jsonl", "--epsilon", 2, "--out", "two").code == 0
    told = json.loads((project / "two/result.json").read_text())["spent"]["label"]["epsilon"]
    rows = [row for row in spent(project) if row.kind == "reserve"]
    by_hand = sum(json.loads(row.parameters)["epsilon"] * row.count for row in rows)
    assert told == accounts(project)["label"] == by_hand == 3.0
    audit = project.run("audit", "run", "two", "--json")
    assert audit.code == 0, audit.out + audit.err
    assert project.run("report", "one", "--force").code == 0
    assert "3" in (project / "one/report.html").read_text()
