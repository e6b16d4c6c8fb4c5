"""A curator's run tells only what was released: every byte is a function of released values.

The mechanisms are replaced by ones that ignore private data. Two runs on different private data
must then agree in every byte that they write or print; whatever differs has gone around them.
"""

import json
import sqlite3

import numpy as np
import pytest
from tests.apart import apart
from tests.tiers import few

import sordino
from sordino import _random, cli
from sordino._random import entropy
from sordino.mechanisms.gaussian import GaussianMechanism
from sordino.mechanisms.label_sum import LabelDesign
from sordino.rewards import record_release

WORDS = (
    *("calm", "bright", "short", "plain", "warm", "clear", "kind"),
    *("brief", "wordy", "vague", "loud", "cold", "long", "harsh"),
)
N = 60
DIMENSION = 24
COMMON = ["--noise", "estimate", "--dimension", str(DIMENSION), "--out", "run"]
LABEL = ["align", "raw.jsonl", "--epsilon", "1", "--unit", "label", *COMMON]
PERSON = ["align", "raw.jsonl", "--epsilon", "2", "--unit", "person", "--cap", "4", *COMMON]
RECORD = ["align", "raw.jsonl", "--epsilon", "2", "--unit", "record", *COMMON]
METRICS = ["--metrics-epsilon", "0.5"]
ZERO_OUT, ADD_REMOVE = ["--neighbors", "zero-out"], ["--neighbors", "add-remove"]
PUBLIC = ["--evaluate", "../public.jsonl"]


def rows_of(seed, n, labels=None, *, people=False):
    """Judgments of made-up texts, the labels as given."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, n) if labels is None else labels
    rows = []
    for index in range(n):
        picked = generator.permutation(len(WORDS))
        answers = " ".join(WORDS[i] for i in picked[:4]), " ".join(WORDS[i] for i in picked[4:8])
        best = int(labels[index])
        row = {"prompt": f"{seed} {index}", "chosen": answers[best], "rejected": answers[1 - best]}
        rows.append(row | ({"person": f"p{index % 7}"} if people else {}))
    return rows


def ignore_private_data(patch):
    """Replace what reads private data by what does not; noise is drawn as ever."""
    release, noised = LabelDesign.release, GaussianMechanism.release

    def no_labels(self, labels, *, entropy):
        return release(self, np.zeros_like(labels), entropy=_random.entropy(1))

    def no_records(records, mechanism, *, ball, second_moment, entropy):
        weights = np.linspace(-0.3, 0.4, records.shape[1])
        moment = [] if second_moment is None else 500 * np.eye(records.shape[1])
        return np.concatenate([weights, np.ravel(moment)])

    def no_values(self, values, *, entropy, **more):
        fixed = np.tile([1.0, 0.2, 0.2, 0.1][: values.shape[1]], (200, 1))
        return noised(self, fixed, entropy=_random.entropy(2))

    patch.setattr(LabelDesign, "release", no_labels)
    patch.setattr(record_release, "release_records", no_records)
    patch.setattr(GaussianMechanism, "release", no_values)
    names, ticks, stamps = iter(range(10**6)), iter(range(10**6)), iter(range(60))
    for module in ("sordino._random", "sordino._files", "sordino.privacy.ledger_chain"):
        patch.setattr(f"{module}.new_release_id", lambda: f"{next(names):016x}")
    patch.setattr(_random, "now", lambda: f"2026-01-01T00:00:{next(stamps):02d}Z")
    patch.setattr(_random, "new_token", lambda: "0" * 43)
    patch.setattr(_random, "today", lambda: "2026-01-01T00:00:00Z")
    patch.setattr(_random, "clock", lambda: float(next(ticks)) / 1000)


def ledger_rows(path):
    """Every table of a ledger, row by row."""
    connection = sqlite3.connect(path)
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    found = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for (name,) in tables}  # noqa: S608
    connection.close()
    return found


def run(tmp_path, monkeypatch, capsys, name, rows, command):
    """Run one command in a folder of its own; return all that it wrote and printed."""
    folder = tmp_path / name
    folder.mkdir()
    public = rows_of(99, 20, np.arange(20) % 2)
    (tmp_path / "public.jsonl").write_text("".join(json.dumps(row) + "\n" for row in public))
    (folder / "raw.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with monkeypatch.context() as patch:
        ignore_private_data(patch)
        patch.chdir(folder)
        code = cli.run(apart(command))
        captured = capsys.readouterr()
    assert code == 0, captured.err
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "raw.jsonl"
    }
    assert set(files) - {"run/spend.db.secret"} == {
        f"run/{n}" for n in ("result.json", "reward.json", "report.html", "spend.db")
    }
    return files, ledger_rows(folder / "run" / "spend.db"), captured.out + captured.err


def same(tmp_path, monkeypatch, capsys, one, other, command):
    """Compare two runs byte by byte."""
    files, tables, said = run(tmp_path, monkeypatch, capsys, "one", one, command)
    others, other_tables, other_said = run(tmp_path, monkeypatch, capsys, "two", other, command)
    assert said == other_said
    assert tables == other_tables
    for name, found in files.items():
        assert found == others[name], name
    return json.loads(files["run/result.json"])


@pytest.mark.parametrize("as_json", few([[], ["--json"]], first=1), ids=["table", "json"])
@pytest.mark.parametrize(
    "metrics", few([[], METRICS], METRICS), ids=["nothing bought", "metrics bought"]
)
@pytest.mark.parametrize("command", [LABEL, PERSON], ids=["label", "person"])
def test_labels_leave_no_trace_but_the_sum(
    tmp_path, monkeypatch, capsys, command, metrics, as_json
):
    generator = np.random.default_rng(5)
    one = generator.integers(0, 2, N)
    other = one ^ (np.arange(N) % 3 == 0)
    people = command is PERSON
    result = same(
        tmp_path,
        monkeypatch,
        capsys,
        rows_of(1, N, one, people=people),
        rows_of(1, N, other, people=people),
        [*command, *metrics, *as_json],
    )
    assert result["data"]["pairs"] + result["data"]["capped"] == N
    told = result["reward"]  # numbers that are too vague have a reason instead
    assert (told["accuracy"] is None and "accuracy_reason" not in told) == (not metrics)
    likelihood = told["negative_log_likelihood"]  # free, or paid for
    assert likelihood is not None or "negative_log_likelihood_reason" in told


@pytest.mark.parametrize("as_json", few([[], ["--json"]], first=1), ids=["table", "json"])
@pytest.mark.parametrize(
    "more", few([[], METRICS, ["--second-moment"], PUBLIC], METRICS, PUBLIC), ids=str
)
def test_records_and_their_number_leave_no_trace_but_the_weights(
    tmp_path, monkeypatch, capsys, more, as_json
):
    command = [*RECORD, *ADD_REMOVE, *more, *as_json]
    one, other = rows_of(2, N), rows_of(3, N + 23)
    result = same(tmp_path, monkeypatch, capsys, one, other, command)
    assert result["data"]["pairs"] is None
    assert result["seconds"] is None
    told = result["reward"]
    assert (told["accuracy"] is None and "accuracy_reason" not in told) == (more is not METRICS)
    assert result["policy"]["kl"] is None


@pytest.mark.parametrize("more", few([[], METRICS, PUBLIC], first=1), ids=str)
def test_records_leave_no_trace_but_their_number(tmp_path, monkeypatch, capsys, more):
    command = [*RECORD, *ZERO_OUT, *more]
    result = same(tmp_path, monkeypatch, capsys, rows_of(2, N), rows_of(3, N), command)
    assert result["data"] == {
        "name": "",  # of whichever data set: the questions are private
        "pairs": N,
        "dropped": None,
        "capped": None,
    }
    if not more:
        assert result["reward"]["accuracy"] is None
        assert result["reward"]["negative_log_likelihood"] is None


def test_zero_out_is_the_default_for_records(tmp_path, monkeypatch, capsys):
    *_, said = run(tmp_path, monkeypatch, capsys, "one", rows_of(2, N), RECORD)
    assert "REPLACE_SPECIAL" in said


def test_the_comparison_sees_a_sum_that_differs(tmp_path, monkeypatch, capsys):
    """Without the replaced mechanism two vectors of labels do not give one file."""
    found = []
    for index, labels in enumerate((np.zeros(N, int), np.ones(N, int))):
        folder = tmp_path / str(index)
        folder.mkdir()
        raw = rows_of(1, N, labels)
        (folder / "raw.jsonl").write_text("".join(json.dumps(row) + "\n" for row in raw))
        monkeypatch.chdir(folder)
        assert cli.run(apart([*LABEL, "--simulate-seed", "1"])) == 0
        capsys.readouterr()
        found.append((folder / "run" / "reward.json").read_bytes())
    assert found[0] != found[1]
    assert sordino.REPLACE_ONE  # the relation of labels
    assert entropy(1).randomness == "simulated"
