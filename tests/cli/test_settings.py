"""Settings that cannot be used, outputs that exist or cannot be written, and nothing spent."""

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from tests.apart import apart
from tests.tiers import few

from sordino.cli._language_run import TrainReward
from sordino.errors import UsageError
from sordino.privacy.ledger import Ledger
from sordino.runs.align_settings import Align
from sordino.runs.bandit_run import Bandit
from sordino.runs.settings import declared, flag_of, refuse_foreign

from .conftest import CANARY, pair, refused

ALIGN = ["align", "in.jsonl", "--out", "out", "--epsilon"]
PRIVATIZE = ["privatize", "in.jsonl", "--out", "out.jsonl", "--epsilon"]
both = pytest.mark.parametrize("command", [ALIGN, PRIVATIZE], ids=["align", "privatize"])


@pytest.fixture
def ready(folder, pairs):
    folder.write("in.jsonl", pairs)
    return folder


@both
@pytest.mark.parametrize("epsilon", ["0", "nan", "inf", "1e-30", "abc"])
def test_epsilon_out_of_range(ready, command, epsilon):
    lines = None if epsilon in {"abc", ""} else 1
    refused(ready, [*command, epsilon], 2, "epsilon", lines=lines)


def test_epsilon_is_needed_and_must_teach_something(ready):
    """One with which nothing is learned was printed as epsilon=0."""
    for noise in ("labels", "estimate", "draws"):
        refused(ready, [*ALIGN, "1e-300", "--noise", noise], 2, "at least 1e-06")
    for more in ([], ["--dry-run"]):
        refused(ready, [*ALIGN[:-1], *more], 2, "--epsilon", "raw")
    refused(ready, PRIVATIZE[:-1], 2, "--epsilon", lines=None)


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (["--temperature", "0"], "--temperature"),
        (["--dimension", "0"], "--dimension"),
        (["--ridge", "-1"], "--ridge"),
        (["--ball", "0"], "--ball"),
        (["--method", "best"], "--method"),
        (["--method", "mixture", "--dimension", "2048"], "1024"),
        (["--scale", "0.5"], "--confidence"),
        (["--confidence", "1.0"], "--confidence"),
        (["--confidence", "0.9", "--scale", "-1"], "--scale"),
        (["--confidence", "0.9", "--method", "mixture"], "debiased"),
        (["--confidence", "0.9", "--dimension", "2048"], "1024"),
        (["--budget", "-1"], "--budget"),
        (["--data", ""], "--data"),
        (["--data", "\udcff"], "--data"),
        (["--simulate-seed", "-1"], "--simulate-seed"),
        (["--neighbors", "zero-out"], "zero-out"),
        (["--person-field", "chosen"], "chosen"),
    ],
)
def test_other_settings_out_of_range(ready, more, word):
    refused(ready, [*ALIGN, "1", *more], 2, word, lines=None)
    if more[0] in {"--budget", "--data", "--simulate-seed", "--person-field"}:
        refused(ready, [*PRIVATIZE, "1", *more], 2, word, lines=None)


KINDS = {
    kind: said.choices
    for kind, name in {Align: "noise", Bandit: "method", TrainReward: "noise"}.items()
    for own, _, said in declared(kind)
    if own.name == name
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_has_no_meaning_where_the_noise_is_is_refused_by_name(kind):
    """Of every option of these commands that declares with which noise it has one."""
    told = 0
    for field, _, said in declared(kind):
        if not getattr(said, "noise", ()):
            continue
        chosen = object.__new__(kind)
        for each in fields(kind):
            object.__setattr__(chosen, each.name, "given" if each is field else each.default)
        for noise in KINDS[kind]:
            if noise in said.noise:
                refuse_foreign(chosen, noise, "why")
                continue
            with pytest.raises(UsageError, match=rf"^{flag_of(field, said)}: {said.why or 'why'}"):
                refuse_foreign(chosen, noise, "why")
            told += 1
    assert told > 5


THERE = {
    "file": ([*ALIGN, "1"], "out", "mine", 2),
    "link": ([*PRIVATIZE, "1"], "out.jsonl", Path("nowhere"), 2),
    "folder": ([*ALIGN, "1"], "out/notes.txt", "mine", 2),
    "manifest": ([*PRIVATIZE, "1"], "out.manifest.json", "mine", 2),
    "a folder for a file": ([*PRIVATIZE, "1", "--force"], "out.jsonl", None, 7),
    "a file for a folder": ([*ALIGN, "1", "--force"], "out", "mine", 7),
}


@pytest.mark.parametrize(("command", "name", "content", "code"), THERE.values(), ids=THERE)
def test_what_is_there_is_kept(ready, command, name, content, code):
    path = ready / name
    path.parent.mkdir(exist_ok=True)
    if content is None:
        path.mkdir()
    elif isinstance(content, Path):
        path.symlink_to(ready / content)
    else:
        path.write_text(content)
    words = ["exists"] if code == 2 else []
    refused(ready, command, code, name.partition("/")[0], *words)


@both
def test_force_overwrites_and_keeps_the_ledger(done, command):
    database = done / ("out/spend.db" if command is ALIGN else "out.spend.db")
    head = Ledger.read(database).head.digest
    said = done.run(*command, "1", "--force")
    assert said.code == 3  # the budget was the first epsilon, and it is spent
    assert Ledger.read(database, expected_head=head).head.digest == head
    assert done.run(*command, "1", "--force", "--budget", "2").code == 0
    ledger = Ledger.read(database, expected_head=head)
    assert ledger.total().epsilon == 2.0
    assert [row.kind for row in ledger.rows].count("budget") == 1


def test_force_never_overwrites_a_ledger(ready, pairs):
    target = "out.spend.db"
    ready.write("in.jsonl", [row | {"person": f"p{i}"} for i, row in enumerate(pairs)])
    assert ready.run(*PRIVATIZE, "1").code == 0
    command = ["privatize", "in.jsonl", "--out", target, "--epsilon", "1", "--force"]
    refused(ready, command, 2, target, "ledger")
    assert ready.run(*ALIGN, "1").code == 0
    for words in (["report", "out"], ["fit", "out.jsonl"], ["choose", "out", "in.jsonl"]):
        refused(ready, [*words, "--out", target, "--force"], 2, target, "ledger")


@pytest.mark.parametrize(
    "command",
    [
        ["privatize", "in.jsonl", "--out", "in.jsonl", "--epsilon", "1", "--force"],
        ["privatize", "in.jsonl", "--out", "o.jsonl", "--ledger", "o.jsonl", "--epsilon", "1"],
        ["privatize", "./in.jsonl", "--out", f"{os.curdir}/in.jsonl", "--epsilon", "1", "--force"],
    ],
)
def test_input_output_and_ledger_are_different_files(ready, command):
    refused(ready, command, 2, "different")


@both
def test_output_in_a_missing_or_impossible_place_spends_nothing(ready, command):
    place = "/proc/1/none" if command is ALIGN else "missing"
    words = [*command[:3], f"{place}/{command[3]}", "--epsilon", "1", "--ledger", "other.db"]
    refused(ready, words, 7, "cannot be")
    assert not (ready / "other.db").exists()


CLOSED = {
    "align": [*ALIGN[:3], "closed/out", "--epsilon", "1"],
    "privatize": [*PRIVATIZE[:3], "closed/out.jsonl", "--epsilon", "1"],
    "a run that is there": [*ALIGN[:3], "closed", "--epsilon", "1", "--force"],
}


@pytest.mark.parametrize("command", CLOSED.values(), ids=CLOSED)
def test_output_that_may_not_be_written_spends_nothing(ready, command, as_nobody):
    """The ledger lies elsewhere, where writing is allowed."""
    (ready / "closed").mkdir(mode=0o555)
    (ready / "open").mkdir()
    (ready / "open").chmod(0o777)
    with as_nobody():
        said = ready.run(*command, "--ledger", "open/l.db")
    assert said.code == 7
    assert "Permission denied" in said.err
    assert ready.names() == {"in.jsonl"}


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
from sordino.cli import main
sys.argv = ["sordino", *sys.argv[2:]]
main()
"""


def check_after_a_full_disk(folder, database, outputs):
    """Nothing half-written; whatever may have been drawn is on the ledger."""
    names = folder.names()
    assert not [name for name in names if "partial" in name]
    assert not set(outputs) & names
    if (folder / database).exists():
        kinds = [row.kind for row in Ledger.read(folder / database).rows]
        assert kinds in (["open"], ["open", "reserve"], ["open", "reserve", "commit"])
        return kinds
    return []


@pytest.mark.deep
@pytest.mark.parametrize(
    ("command", "limit", "spent"),
    few(
        [
            (PRIVATIZE, 40_000, True),
            (PRIVATIZE, 3000, False),
            (ALIGN, 3000, False),
            ([*ALIGN[:-1], "--dimension", "8192", "--epsilon"], 40_000, True),
        ],
        first=1,
    ),
)
def test_a_limit_on_file_size_like_a_full_disk(folder, command, limit, spent):
    folder.write(
        "in.jsonl", [pair(index, prompt="long " * 100 + str(index)) for index in range(200)]
    )
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(limit), *apart([*command, "1"])],
        capture_output=True, text=True, cwd=folder.path,
    )  # fmt: skip
    assert done.returncode == 7, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert (done.stdout, CANARY in done.stderr) == ("", False)
    database = "out/spend.db" if command[0] == "align" else "out.spend.db"
    outputs = ["out.jsonl", "out.manifest.json", "out/result.json", "out/report.html"]
    kinds = check_after_a_full_disk(folder, database, [*outputs, "out/reward.json"])
    assert ("reserve" in kinds) == spent


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
@pytest.mark.deep
@pytest.mark.parametrize("command", [ALIGN, PRIVATIZE], ids=["align", "privatize"])
def test_a_disk_that_is_really_full(folder, command):
    folder.write(
        "in.jsonl", [pair(index, prompt="long " * 100 + str(index)) for index in range(400)]
    )
    disk = folder / "disk"
    disk.mkdir()
    size = "40k" if command is ALIGN else "150k"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        words = [*command[:3], f"disk/{command[3]}", "--epsilon", "1"]
        said = folder.process(*words)
        assert said.code == 7, said.err
        assert (said.out, len(said.err.splitlines())) == ("", 1)
        names = {name for name in folder.names() if name.startswith("disk/")}
        allowed = {"disk/out/spend.db", "disk/out.spend.db"}
        # what the same command would go on with stands beside the output, in a hidden folder
        seen = {name for name in names if not re.match(r"disk/\.out\.jsonl-\w+\.parts/", name)}
        assert {name.removesuffix("-wal").removesuffix("-shm") for name in seen} <= allowed
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.deep
def test_standard_output_on_a_full_disk(ready):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "sordino", *PRIVATIZE, "1", "--dry-run", "--json"],
            stdout=full, stderr=subprocess.PIPE, text=True, cwd=ready.path,
        )  # fmt: skip
    assert done.returncode == 7
    assert "Traceback" not in done.stderr


def test_a_person_field_that_was_named_must_be_there(ready):
    refused(ready, [*ALIGN, "1", "--person-field", "annotator"], 4, "line 1", "annotator")


def test_answers_cannot_promise_less_than_they_were_randomized_with(done):
    words = ["align", "out.jsonl", "--out", "run", "--epsilon", "0.01"]
    refused(done, words, 2, "Leave --epsilon out")


def test_a_head_is_a_whole_digest_in_either_case(done):
    head = done.run("ledger", "verify", "out.spend.db", "--json").value["head"]
    for text, code in ((head.upper(), 0), (head[:20], 2), ("", 2), ("0" * 64, 8)):
        assert done.run("ledger", "verify", "out.spend.db", "--head", text).code == code


def test_simulated_is_said_wherever_it_is_shown(ready):
    assert ready.run(*ALIGN, "1", "--simulate-seed", "1").code == 0
    ready.write("q.jsonl", [{"prompt": "p", "candidates": ["a", "b"]}])
    for words in (
        ["ledger", "show", "out/spend.db"],
        ["ledger", "verify", "out/spend.db"],
        ["report", "out", "--force"],
        ["choose", "out", "q.jsonl"],
    ):
        said = ready.run(*words)
        assert said.code == 0
        assert "SIMULATED" in said.out + said.err
