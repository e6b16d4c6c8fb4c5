"""No raw label anywhere: two inputs whose randomized answers coincide give the same bytes."""

import json
import sqlite3

import numpy as np
import pytest
from tests.apart import apart
from tests.tiers import few

from sordino import _random, cli
from sordino._random import SystemEntropy
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.pairs import read_pairs
from sordino.privatization.publication import _try_writing

EPSILON = 1.0
THRESHOLD = RandomizedResponse(EPSILON).threshold
N = 60


def rows_of(chosen_first, people):
    """Pairs of texts, one label for each; the label decides which answer is called chosen."""
    rows = []
    for index, label in enumerate(chosen_first):
        answers = [f"Answer {index}: yes, gladly.", f"Answer {index}: no, sorry, then."]
        chosen, rejected = answers if label else answers[::-1]
        row = {"prompt": f"Question {index}?", "chosen": chosen, "rejected": rejected}
        rows.append(row | ({"person": f"p{index % 20}"} if people else {}))
    return rows


def labels_of(rows):
    return read_pairs(rows).labels


def inject(monkeypatch, labels, answers):
    """Coins that turn these labels into those answers, and ids and clocks that repeat."""
    taken = 0
    flips = np.asarray(labels) != np.asarray(answers)

    def words(_, n):
        nonlocal taken
        part = flips[taken : taken + n]
        assert len(part) == n
        taken += n
        return np.where(part, np.uint64(THRESHOLD - 1), np.uint64(THRESHOLD))

    names = iter(range(10**6))
    ticks = iter(range(10**6))
    monkeypatch.setattr(SystemEntropy, "words", words)
    for module in ("sordino._random", "sordino._files", "sordino.privacy.ledger_chain"):
        monkeypatch.setattr(f"{module}.new_release_id", lambda: f"{next(names):016x}")
    monkeypatch.setattr(_random, "now", lambda: "2026-01-01T00:00:00Z")
    monkeypatch.setattr(_random, "new_token", lambda: "0" * 43)
    monkeypatch.setattr(_random, "clock", lambda: float(next(ticks)) / 1000)
    return lambda: taken


def ledger_rows(path):
    connection = sqlite3.connect(path)
    tables = [
        row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    ]
    found = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables}  # noqa: S608
    connection.close()
    return found


def everything(folder):
    """Every output byte under a folder but the raw file; databases also row by row."""
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "raw.jsonl"
    }
    tables = {name: ledger_rows(folder / name) for name in files if name.endswith(".db")}
    return files, tables


def run(tmp_path, monkeypatch, capsys, name, rows, answers, command):
    """Run one command in a folder of its own; return what it wrote and printed."""
    folder = tmp_path / name
    folder.mkdir()
    (folder / "raw.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _try_writing.cache_clear()  # names repeat here
    with monkeypatch.context() as patch:
        taken = inject(patch, labels_of(rows), answers)
        patch.chdir(folder)
        code = cli.run(apart(command))
        captured = capsys.readouterr()
        assert (code, captured.err) == (0, "")
        assert taken() == len(rows)
    return *everything(folder), captured.out


def two_worlds(monkeypatch):
    """Two label vectors that differ in many places, and one vector of randomized answers."""
    generator = np.random.default_rng(5)
    one = generator.integers(0, 2, N)
    other = one ^ (np.arange(N) % 3 == 0)
    other[1] ^= 1  # 21 labels differ, so that no count of them can be the same
    return one, other, generator.integers(0, 2, N)


ALIGN = ["align", "raw.jsonl", "--epsilon", str(EPSILON), "--out", "run"]
PRIVATIZE = ["privatize", "raw.jsonl", "--epsilon", str(EPSILON), "--out", "out.jsonl"]
OUTPUTS = {
    "align": {"run/result.json", "run/report.html", "run/reward.json", "run/spend.db"},
    "privatize": {"out.jsonl", "out.manifest.json", "out.spend.db"},
}


@pytest.mark.parametrize("people", [False, True], ids=["no ids", "ids"])
@pytest.mark.parametrize("as_json", few([False, True], first=1), ids=["table", "json"])
@pytest.mark.parametrize("command", [ALIGN, PRIVATIZE], ids=["align", "privatize"])
def test_every_byte_is_a_function_of_the_answers(
    tmp_path, monkeypatch, capsys, command, as_json, people
):
    one, other, answers = two_worlds(monkeypatch)
    command = command + ["--json"] * as_json
    seen = [
        run(tmp_path, monkeypatch, capsys, name, rows_of(labels, people), answers, command)
        for name, labels in (("one", one), ("other", other))
    ]
    (files, tables, said), (other_files, other_tables, other_said) = seen
    assert said == other_said
    assert tables == other_tables
    assert set(files) == set(other_files)
    for name in files:
        assert files[name] == other_files[name], name
    spend = "run/spend" if command[0] == "align" else "out.spend"
    linked = {f"{spend}.db.secret", f"{spend}.memo/settings.json"} if people else set()
    stored = {name for name in files if name.startswith(f"{spend}.memo/000-001-")}
    assert len(stored) == people
    assert set(files) == OUTPUTS[command[0]] | linked | stored


def test_the_comparison_sees_an_answer_that_differs(tmp_path, monkeypatch, capsys):
    one, _, answers = two_worlds(monkeypatch)
    changed = answers.copy()
    changed[7] ^= 1
    rows = rows_of(one, people=False)
    first = run(tmp_path, monkeypatch, capsys, "one", rows, answers, ALIGN)
    second = run(tmp_path, monkeypatch, capsys, "other", rows, changed, ALIGN)
    assert first[0]["run/reward.json"] != second[0]["run/reward.json"]


def test_one_label_with_the_same_coins_changes_one_answer_only(tmp_path, monkeypatch, capsys):
    """The ledger differs in the artifact's digest only, the manifest in sha256 only."""
    one, _, answers = two_worlds(monkeypatch)
    neighbor = one.copy()
    neighbor[11] ^= 1
    rows, other_rows = rows_of(one, people=False), rows_of(neighbor, people=False)
    same_coins = answers ^ labels_of(rows) ^ labels_of(other_rows)
    files, tables, _ = run(tmp_path, monkeypatch, capsys, "one", rows, answers, PRIVATIZE)
    other_files, other_tables, _ = run(
        tmp_path, monkeypatch, capsys, "other", other_rows, same_coins, PRIVATIZE
    )
    lines, other_lines = (
        [json.loads(line) for line in found["out.jsonl"].splitlines()]
        for found in (files, other_files)
    )
    differing = [i for i in range(N) if lines[i] != other_lines[i]]
    assert differing == [11]
    assert lines[11]["answer"] + other_lines[11]["answer"] == 1
    assert lines[11] | {"answer": 0} == other_lines[11] | {"answer": 0}
    manifest, other_manifest = (
        json.loads(found["out.manifest.json"]) for found in (files, other_files)
    )
    assert manifest["sha256"] != other_manifest["sha256"]
    assert manifest | {"sha256": ""} == other_manifest | {"sha256": ""}
    ledger, other_ledger = (t["out.spend.db"]["rows"] for t in (tables, other_tables))
    assert ledger[:2] == other_ledger[:2]  # open and reserve, with their digests
    assert len(ledger) == len(other_ledger) == 3
    cells = [i for i, (a, b) in enumerate(zip(ledger[2], other_ledger[2], strict=True)) if a != b]
    assert len(cells) == 2  # the artifact in the payload, and the row's own digest
