"""Under a unit of records how many there are is private: none is an input like any other."""

import gzip
import json
import re

import numpy as np
import pytest
from tests.tiers import few

import sordino
from sordino.errors import DataError, UsageError
from sordino.preferences.trajectories import read_trajectories

RECORDS = ["--unit", "record", "--epsilon", "2"]
CENTRAL = ["align", "IN", "--noise", "estimate", *RECORDS, "--dimension", "8"]
BANDIT = ["bandit", "IN", "--arm", "arm", "--reward", "reward", "--arms", "3", *RECORDS]
BANDIT += ["--reward-range", "0", "1"]
TRAINED = ["IN", "--model", "tiny", "--noise", "updates", "--units", "60", "--epsilon", "2"]
TRAINED += ["--steps", "2", "--batch", "8"]


WALKED = [*RECORDS, "--horizon", "1", "--step-bound", "1", "--dimension", "2"]


def judged(at):
    return {"prompt": f"p{at}", "chosen": f"good {at}", "rejected": f"bad {at}", "person": f"u{at}"}


def liked(at):
    return {"prompt": f"p{at}", "completion": f"good {at}", "label": True}


def rated(at):
    return {"prompt": f"p{at}", "completion": f"good {at}", "rating": 2}


def walked(at):
    return {"first": [[1.0, at]], "second": [[0.0, 1.0]], "label": 1, "person": f"u{at}"}


def pulled(at):
    return {"arm": str(at), "reward": 1, "age": 0.5}


def ranked(at):
    return {"ranking": ["a", "b"] if at % 2 else ["c", "a"], "person": f"u{at}"}


CASES = {
    **{kind: (kind, judged, CENTRAL) for kind in ("file", "packed", "folder")},
    "set": ("file", judged, [*CENTRAL, "--confidence", ".9", "--bound", "1"]),
    "set in a folder": ("folder", judged, [*CENTRAL, "--confidence", ".9", "--bound", "1"]),
    "metrics": ("file", judged, [*CENTRAL, "--metrics-epsilon", "1"]),
    "plan": ("file", judged, [*CENTRAL, "--dry-run"]),
    **{
        f"{kind} of thumbs": (kind, liked, [*CENTRAL, "--intercept", "one"])
        for kind in ("file", "folder")
    },
    "ratings": ("file", rated, [*CENTRAL, "--intercept", "none", "--levels", "1..5"]),
    "draws of thumbs": (
        *("file", liked),
        ["align", "IN", "--noise", "draws", *RECORDS, "--draws", "2", "--intercept", "one"],
    ),
    "intrinsic": ("file", judged, ["align", "IN", "--noise", "draws", *RECORDS, "--draws", "2"]),
    "ballots": ("file", ranked, ["align", "IN", "--noise", "estimate", *RECORDS, "--all-offered"]),
    "trajectories": (
        "file",
        walked,
        ["align", "IN", "--noise", "estimate", *WALKED, "--second-moment"],
    ),
    "arms": ("file", pulled, BANDIT),
    "regression": ("file", pulled, [*BANDIT, "--method", "linear", "--context-columns", "age"]),
}


def write(folder, kind, make, rows):
    """Write records, and return what a command is given to read them."""
    head = [{"items": ["a", "b", "c"]}] if make is ranked else []
    name = folder.write("in.jsonl", [*head, *rows])
    if kind == "packed":
        (folder / "in.jsonl.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
        return "in.jsonl.gz"
    if kind == "folder":
        (folder / "in").mkdir(exist_ok=True)
        (folder / name).replace(folder / "in/one.jsonl")
        return "in"
    return name


def paths(value, name=""):
    """Name every key of a JSON object, with the kind of what stands there."""
    if isinstance(value, dict):
        return {path for key, inner in value.items() for path in paths(inner, f"{name}.{key}")}
    return {f"{name}: {type(value).__name__}"}


def told(folder, command, source, out):
    """Run a command; return all that is told of it and does not come from noise."""
    said = folder.run(*(source if word == "IN" else word for word in command), "--out", out)
    made, result = [], None
    if (folder / out).exists():
        made = sorted(path.name for path in (folder / out).iterdir())
        if "result.json" in made:
            result = json.loads((folder / out / "result.json").read_text())
    lines = re.sub(r"[\d.e+-]+|[0-9a-f]{64}", "#", said.out.replace(out, "")).count("\n")
    caveats = None if result is None else result["caveats"]
    return said.code, said.err, lines, made, result and sorted(paths(result)), caveats


def test_no_record_tells_that_single_answers_were_judged(folder, tmp_path):
    """Their rewards have a weight more, which is released."""
    source = write(folder, "file", liked, [liked(0)])
    done = folder.run("align", source, *CENTRAL[2:], "--out", "out")
    assert (done.code, "it has to be said" in done.err) == (2, True)
    terms = {"delta": 1e-6, "unit": "record", "neighbors": sordino.REPLACE_SPECIAL}
    budget = sordino.Guarantee(2.0, trust="central", **terms)
    ledger = sordino.Ledger.open(tmp_path / "spend.db", data="x", budget=budget)
    pairs = sordino.read_pairs([liked(0)], hides_records=True)
    noise = sordino.ObjectivePerturbation(
        1.0, delta=1e-6, bound=0.6, neighbors=sordino.REPLACE_SPECIAL
    )
    features = sordino.HashedText(dimension=8)
    withheld = {"unit": "record", "neighbors": sordino.REPLACE_SPECIAL, "ridge": 1.0, "bound": 1.0}
    for fit in (
        lambda: sordino.fit_reward(pairs, mechanism=noise, features=features, ledger=ledger),
        lambda: sordino.WithheldReward(pairs, features=features, **withheld),
    ):
        with pytest.raises(UsageError, match="no record may tell"):
            fit()


@pytest.mark.parametrize("neighbors", few(["add-remove", "zero-out"], first=1))
@pytest.mark.parametrize("case", few(CASES, first=8))
def test_no_exit_code_message_or_key_tells_how_many_records(folder, case, neighbors):
    kind, make, words = CASES[case]
    command = [*words, "--neighbors", neighbors]
    found = []
    for n in (0, 1, 2):
        source = write(folder, kind, make, [make(at) for at in range(n)])
        found.append(told(folder, command, source, f"out{n}"))
    assert found[0][:2] == (0, "")
    assert found[0] == found[1] == found[2]


@pytest.mark.deep
@pytest.mark.parametrize(
    "unit",
    [["record"], ["person", "--cap", "2"]],
    ids=["record", "person"],
)
@pytest.mark.parametrize("neighbors", ["add-remove", "zero-out"])
def test_training_takes_no_record_as_it_takes_some(ready, unit, neighbors):
    pytest.importorskip("trl", reason="the extra 'language' is not installed")
    command = ["language", "reward", *TRAINED, "--neighbors", neighbors, "--unit", *unit]
    found = []
    for n in (0, 1, 2):
        write(ready, "file", judged, [judged(at) for at in range(n)])
        found.append(told(ready, [*command, "--json"], "in.jsonl", f"out{n}"))
    assert found[0][:2] == (0, "")
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("kind", few(["file", "packed", "folder"], first=1))
def test_a_record_that_names_nobody_is_one_like_others(folder, kind):
    rows = [judged(at) for at in range(3)]
    alike = [dict(rows[0], rejected=rows[0]["chosen"])]
    nameless = [rows[0], {**rows[1], "person": None}, rows[2]]
    found = [
        told(folder, CENTRAL, write(folder, kind, judged, some), f"out{number}")
        for number, some in enumerate((rows, nameless, alike))
    ]
    assert found[0][:2] == (0, "")
    assert found[0] == found[1] == found[2]


WRONG = {
    judged: {"prompt": 1, "chosen": 2, "rejected": 3},
    pulled: {"arm": 1.5, "reward": 1, "age": 0.5},
    ranked: {"ranking": 7},
}


@pytest.mark.parametrize(
    "case",
    few(["file", "packed", "folder", "intrinsic", "ballots", "arms"], "file", "ballots", "arms"),
)
def test_what_is_wrong_with_which_record_is_not_said(folder, case):
    kind, make, words = CASES[case]
    said = set()
    for wrong in ("{", "[1]", {"x": 1}, WRONG[make], {**make(1), "reward": "x", "person": ""}):
        for place in (0, 1, 3):
            rows = [make(at) for at in range(3)]
            source = write(folder, kind, make, [*rows[:place], wrong, *rows[place:]])
            code, error, *rest = told(folder, words, source, "out")
            assert (code, rest[1]) == (4, []), error
            said.add(error)
    (only,) = said
    assert not re.search(r"\d|line|one\.jsonl|in\.jsonl|'", only)
    assert "Nothing was released" in only


def test_two_files_of_the_same_records_are_named_by_nothing(folder):
    write(folder, "folder", judged, [judged(1)])
    (folder / "in/two.jsonl").write_bytes((folder / "in/one.jsonl").read_bytes())
    code, error, *_ = told(folder, CENTRAL, "in", "out")
    assert code == 4
    assert "one.jsonl" not in error


@pytest.mark.parametrize("n", [0, 1, 2])
def test_vectors_of_a_length_that_no_record_tells(folder, n):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    (folder / "in").mkdir()
    found = []
    for size in (3, -1):
        lists = pa.array([[0.0, 0.0, 0.0], [0.1, 0.2, 0.3]][:n], pa.list_(pa.float64(), size))
        table = pa.table({"difference": lists, "label": pa.array([1, 0][:n], pa.int8())})
        parquet.write_table(table, folder / "in/one.parquet")
        words = [word for word in CENTRAL if word not in ("--dimension", "8")]
        found.append(told(folder, words, "in", f"out{size}"))
    assert found[0][:2] == (0, "")
    assert found[1][0] == 4
    assert "fixed size" in found[1][1]


def test_readers_in_python_take_none_where_records_are_private():
    hidden = {"hides_records": True}
    assert len(sordino.read_pairs([], **hidden)) == 0
    assert len(sordino.Pairs.from_features(np.zeros((0, 3)), [], **hidden)) == 0
    assert sordino.Pairs.from_features([[0.0], [1.0]], [1, 0], **hidden).dropped == 1
    assert len(sordino.read_rankings([], items=["a", "b"], offered="all", **hidden)) == 0
    walks = [{"chosen": [[1.0]], "rejected": [[0.5]]}]
    for rows in ([], walks):
        made = read_trajectories(rows, horizon=1, dimension=1, feature_bound=1.0, **hidden)
        assert made.pairs.given.shape == (len(rows), 1)
    with pytest.raises(UsageError, match="no record may tell"):
        read_trajectories(walks, **hidden)
    for read, bad in (
        (lambda rows: sordino.read_pairs(rows, **hidden), [judged(1), {"x": 1}]),
        (lambda rows: sordino.read_pairs(rows, **hidden), [judged(1), {**judged(2), "answer": 1}]),
        (lambda rows: read_trajectories(rows, horizon=1, dimension=1, **hidden), [{"x": 1}]),
        (lambda rows: read_trajectories(rows, horizon=2, dimension=1, **hidden), walks),
        (lambda rows: sordino.Pairs.from_features(rows, [1], **hidden), [[np.nan]]),
    ):
        with pytest.raises(DataError, match="Which one it is, and why, is not said"):
            read(bad)


def test_kinds_of_files_that_are_not_read_are_still_named(folder):
    (folder / "in.xlsx").write_bytes(b"")
    code, error, *_ = told(folder, CENTRAL, "in.xlsx", "out")
    assert code == 4
    assert "read_excel" in error
