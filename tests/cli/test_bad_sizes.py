"""Settings that nothing can be made of are refused before a ledger entry is written, not after."""

import os

import pytest
from tests.tiers import few

from sordino.privacy.ledger import Ledger

from .conftest import pair

ITEMS = ("apple", "banana", "cherry", "date")
CENTRAL = ("--noise", "estimate", "--epsilon", "2")
RECORD = (*CENTRAL, "--unit", "record", "--dimension", "16")
DISTRUST = ("--confidence", "0.9")
INTRINSIC = ("--noise", "draws", "--epsilon", "2", "--draws", "10", "--dimension", "16")
RUNS = {
    "local": ("align", "in.jsonl", "--epsilon", "2", "--dimension", "16"),
    "labels": ("align", "in.jsonl", *CENTRAL),
    "labels, distrusted": ("align", "in.jsonl", *CENTRAL, "--dimension", "8", *DISTRUST),
    "labels, measured": ("align", "in.jsonl", *CENTRAL, "--metrics-epsilon", "1"),
    "persons": ("align", "in.jsonl", *CENTRAL, "--unit", "person", "--cap", "2"),
    "records": ("align", "in.jsonl", *RECORD),
    "records, measured": ("align", "in.jsonl", *RECORD, "--metrics-epsilon", "1"),
    "labels in files": ("align", "files", *CENTRAL),
    "records in files": ("align", "files", *RECORD),
    "ballots": ("align", "votes.jsonl", *CENTRAL),
    "whole ballots": ("align", "votes.jsonl", *CENTRAL, "--unit", "record"),
    "rankings": ("align", "lists.jsonl", *CENTRAL, "--dimension", "16"),
    "intrinsic": ("align", "in.jsonl", *INTRINSIC),
    "privatize": ("privatize", "in.jsonl", "--epsilon", "2"),
    "privatize files": ("privatize", "files", "--epsilon", "2"),
}
BAD = {
    "--dimension": ("0", "2147483648", "2147483647", "10000000"),
    "--ball": ("1e-300", "1e-160", "0", "inf", "1e300"),
    "--epsilon": ("1e-300", "1e300"),
    "--delta": ("5e-324", "0", "1"),
    "--ridge": ("5e-324", "1e-160", "1e300"),
    "--temperature": ("0", "1e-300"),
    "--cap": ("0",),
    "--confidence": ("1",),
    "--scale": ("inf",),
    "--bound": ("1e-300", "1e300"),
    "--metrics-epsilon": ("1e-300", "1e300"),
    "--draws": ("0", "9223372036854775807"),
}
OF_PRIVATIZE = ("--epsilon", "--cap")


@pytest.fixture
def ready(folder):
    rows = [pair(index, person=f"p{index % 20}") for index in range(40)]
    folder.write("in.jsonl", rows)
    (folder / "files").mkdir()
    for at in range(2):
        folder.write(f"files/{at}.jsonl", rows[20 * at : 20 * at + 20])
    orders = [ITEMS[at % 4 :] + ITEMS[: at % 4] for at in range(60)]
    folder.write("votes.jsonl", [{"items": ITEMS}, *({"ranking": order} for order in orders)])
    answers = [[f"{word} {at}" for word in ("yes", "no, sorry", "?")] for at in range(40)]
    lists = [
        {"prompt": f"{at}", "candidates": said, "ranking": [0, 2, 1]}
        for at, said in enumerate(answers)
    ]
    folder.write("lists.jsonl", lists)
    return folder


def changed(run, option, value):
    """Return a command with one option set anew."""
    words = list(run)
    if option in words:
        words[words.index(option) + 1] = value
        return words
    return [*words, option, value]


def spends_of(path):
    """Return how many entries a ledger holds; none where there is no ledger."""
    return len(Ledger.read(path).spends) if path.exists() else 0


@pytest.mark.parametrize("run", few(RUNS, first=5))
def test_what_is_refused_is_not_paid_for(ready, run):
    wrong = []
    for option, values in BAD.items():
        if RUNS[run][0] == "privatize" and option not in OF_PRIVATIZE:
            continue
        for at, value in enumerate(values):
            name = f"{option[2:]}{at}"
            ledger = ready / f"{name}.db"
            out = f"{name}.jsonl" if RUNS[run][:2] == ("privatize", "in.jsonl") else name
            words = changed(RUNS[run], option, value)
            said = ready.run(*words, "--out", out, "--ledger", ledger)
            paid = spends_of(ledger)
            if said.code not in (0, 2) or (said.code == 2 and paid):
                wrong.append((option, value, said.code, paid, said.err))
    assert not wrong


MATRICES = {
    "labels": ("align", "in.jsonl", *CENTRAL),
    "labels in files": ("align", "files", *CENTRAL),
    "records in files": ("align", "files", *CENTRAL, "--unit", "record"),
    "rankings": ("align", "lists.jsonl", *CENTRAL),
    "records": ("align", "in.jsonl", *CENTRAL, "--unit", "record", "--second-moment"),
}


@pytest.mark.parametrize("run", MATRICES)
def test_what_memory_cannot_hold_is_not_paid_for(ready, monkeypatch, run):
    monkeypatch.setattr(os, "sysconf", lambda _: 1000)  # a million bytes
    words = [*MATRICES[run], "--dimension", "4096", "--out", "out", "--ledger", "spend.db"]
    said = ready.run(*words)
    assert said.code == 2
    assert "dimension=" in said.err
    assert "GiB" in said.err
    assert spends_of(ready / "spend.db") == 0
