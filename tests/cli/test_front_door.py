"""Any container with any kind of judgments goes into every command; mistakes are one clear line."""

import csv
import gzip
import json

import pyarrow as pa
import pytest
from pyarrow import feather, parquet
from tests.tiers import few

from sordino.runs.align_settings import Align
from sordino.runs.alignment import _reads_chunks
from sordino.runs.settings import Neighbors, Unit

from .conftest import CANARY, refused

N = 24
WINNERS = ("model_a", "model_b", "tie", "both_bad")
KINDS = {
    "pairs": [
        {"prompt": f"ask {i}", "chosen": f"yes, surely {i}", "rejected": f"no, never {i % 5}"}
        for i in range(N)
    ],
    "battles": [
        {"question": f"ask {i}", "response_a": f"yes, surely {i}", "model_a": "m", "model_b": "n",
         "response_b": f"no, never {i % 5}", "winner": WINNERS[i % 4]}
        for i in range(N)
    ],
    "thumbs": [
        {"prompt": f"ask {i}", "completion": f"yes, surely {i}", "label": i % 3 != 0}
        for i in range(N)
    ],
    "ratings": [
        {"prompt": f"ask {i}", "response": f"yes, surely {i}", "helpfulness": i % 5,
         "correctness": 1, "coherence": 4, "complexity": 0, "verbosity": 2}
        for i in range(N)
    ],
}  # fmt: skip


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def write_table(path, rows, mark=","):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], delimiter=mark)
        writer.writeheader()
        writer.writerows(rows)


def write_zst(path, rows):
    with pa.CompressedOutputStream(str(path), "zstd") as file:
        file.write(lines(rows))


def write_stream(folder, rows):
    """As ``save_to_disk`` of `datasets` writes it, in two files."""
    folder.mkdir()
    for part, name in enumerate(("data-00000-of-00002.arrow", "data-00001-of-00002.arrow")):
        table = pa.Table.from_pylist(rows[part::2])
        with pa.ipc.new_stream(str(folder / name), table.schema) as out:
            out.write_table(table)
    listed = [{"filename": path.name} for path in sorted(folder.glob("*.arrow"))]
    (folder / "state.json").write_text(json.dumps({"_data_files": listed}))
    (folder / "dataset_info.json").write_text("{}")


def write_folder(folder, rows):
    folder.mkdir()
    (folder / "one.jsonl").write_bytes(lines(rows))


CONTAINERS = {
    "x.jsonl": lambda path, rows: path.write_bytes(lines(rows)),
    "x.json": lambda path, rows: path.write_text(json.dumps(rows, indent=1)),
    "x.csv": write_table,
    "y.csv": lambda path, rows: write_table(path, rows, ";"),
    "x.tsv": lambda path, rows: write_table(path, rows, "\t"),
    "x.txt": lambda path, rows: write_table(path, rows, "|"),
    "x.jsonl.gz": lambda path, rows: path.write_bytes(gzip.compress(lines(rows))),
    "x.jsonl.zst": write_zst,
    "x.parquet": lambda path, rows: parquet.write_table(pa.Table.from_pylist(rows), path),
    "x.arrow": lambda path, rows: feather.write_feather(pa.Table.from_pylist(rows), path),
    "saved": write_stream,
    "folder": write_folder,
}


@pytest.mark.parametrize("kind", few(KINDS, first=1))
@pytest.mark.parametrize("name", few(CONTAINERS, first=6))
def test_every_container_with_every_kind_goes_into_every_command(folder, name, kind):
    CONTAINERS[name](folder / name, KINDS[kind])
    state = folder.state()
    seen = folder.run("inspect", name, "--json")
    assert (seen.code, seen.err) == (0, "")
    assert seen.value["counts"]["judgments"] == {"count": N, "public": True}
    assert seen.value["kind"] == ("pairs" if kind == "battles" else kind)
    assert len(seen.value["rows"]) == 3
    verb = "rank" if kind == "battles" else "align"
    assert seen.value["next"].startswith(f"sordino {verb} {name} ")
    said = folder.run("align", name, "--epsilon", "2", "--out", "o", "--dry-run", "--json")
    assert (said.code, said.value["pairs"]) == (0, N), said.err
    out = "o" if name == "saved" else "o.jsonl"
    said = folder.run("privatize", name, "--epsilon", "2", "--out", out, "--dry-run", "--json")
    assert (said.code, said.value["pairs"]) == (0, N), said.err
    assert folder.state() == state  # nothing is spent, and nothing is left on disk


LISTED = {
    "rankings": [
        {"prompt": f"ask {i}", "candidates": [f"yes {i}", "no", "well"], "annotator": f"w{i % 5}",
         "ranking": [1, 0, 2][: 2 + i % 2]}
        for i in range(N)
    ],
    "trajectories": [
        {"first": [[1.0, 0.0], [0.5, i]], "second": [[0.0, 1.0], [0.5, 2.0]], "label": i % 2}
        for i in map(float, range(N))
    ],
}  # fmt: skip
TABLES = ("x.csv", "y.csv", "x.tsv", "x.txt")


@pytest.mark.parametrize("kind", LISTED)
@pytest.mark.parametrize("name", few(CONTAINERS, first=3))
def test_where_a_kind_is_not_taken_the_way_on_is_named(folder, name, kind):
    CONTAINERS[name](folder / name, LISTED[kind])
    state = folder.state()
    seen = folder.run("inspect", name, "--json")
    others = [
        folder.run("align", name, "--epsilon", "2", "--out", "o", "--dry-run"),
        folder.run("privatize", name, "--epsilon", "2", "--out", "o.jsonl", "--dry-run"),
    ]
    assert folder.state() == state
    if kind == "rankings":
        assert all(said.code in (2, 4) for said in others)
        assert "--noise estimate" in others[1].err
        assert seen.value["kind"] == kind
        assert len(seen.value["columns"]) == 4
        words = ["align", name, "--noise", "estimate", "--epsilon", "1", "--no-persons"]
        if name in TABLES:
            more = folder.run(*words, "--out", "o", "--dry-run")
            assert all("Convert it to JSON Lines" in said.err for said in (seen, more))
            return
        assert seen.value["next"].endswith("--person-field annotator --out run --dry-run")
        counts = seen.value["counts"]
        assert counts["with ties, or not all listed"] == {"count": N // 2, "public": False}
        assert counts["most candidates of one"] == {"count": 3, "public": True}
        assert folder.run(*seen.value["next"].split()[1:], "--json").value["ballots"] == N
        return
    if name in TABLES:  # texts of numbers are texts: nobody knows what they mean
        assert "trajectories are read from JSON Lines" in folder.run("inspect", name).out
        return
    taken, refused = others
    assert (taken.code, refused.code) == (0, 4), taken.err
    assert "sordino inspect shows how" in refused.err
    assert seen.value["kind"] == kind
    assert seen.value["counts"]["steps of each"] == {"count": 2, "public": True}
    assert {row["label"] for row in seen.value["rows"]} <= {"0.0", "1.0"}
    assert folder.run(*seen.value["next"].split()[1:]).code == 0


def test_inspect_says_how_ballots_over_items_and_states_are_read(folder):
    folder.write("votes.jsonl", [{"items": ["a", "b", "c"]}, {"ranking": ["a"]}, {"ranking": []}])
    seen = folder.run("inspect", "votes.jsonl", "--json").value
    assert "--all-offered" in seen["next"]
    walk = {"states": [0, 1], "actions": [1, 1]}
    folder.write("walks.jsonl", [{"chosen": walk, "rejected": {**walk, "actions": [0, 1]}}])
    seen = folder.run("inspect", "walks.jsonl", "--json").value
    assert "--step-features TABLE" in seen["next"]


@pytest.mark.parametrize("noise", ["labels", "estimate", "draws"])
@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "saved", "folder", "x.json"])
def test_every_kind_of_noise_reads_what_is_small_in_memory(folder, name, noise):
    CONTAINERS[name](folder / name, KINDS["battles"] * 1)
    words = ["align", name, "--noise", noise, "--epsilon", "2", "--out", "o", "--dry-run", "--json"]
    said = folder.run(*words, *(["--draws", "3"] if noise == "draws" else []))
    assert said.code == 0, said.err


def test_no_number_of_private_records_decides_how_they_are_read(folder):
    """Where n is private, no rows are read as many are; where it is public, few go to memory."""
    settings = {"out": folder / "o", "noise": "estimate", "unit": Unit.record}
    for n in (0, N):
        table = pa.Table.from_pylist(KINDS["pairs"]).slice(0, n)
        parquet.write_table(table, folder / "x.parquet")
        chosen = [
            _reads_chunks(
                Align(prefs=[folder / "x.parquet"], epsilon=1.0, neighbors=one, **settings)
            )
            for one in (Neighbors.add_remove, Neighbors.replace_one, None)
        ]
        assert chosen == [True, False, False]


def test_answers_of_any_container_are_lines_with_a_manifest(folder):
    """What is released does not depend on the container: the same texts, in the same order."""
    found = []
    for name in ("x.jsonl", "x.csv", "x.parquet", "x.jsonl.zst"):
        CONTAINERS[name](folder / name, KINDS["battles"])
        words = ["privatize", name, "--epsilon", "2", "--out", f"{name}.private.jsonl"]
        assert folder.run(*words, "--ledger", f"{name}.db", "--simulate-seed", "1").code == 0
        found.append((folder / f"{name}.private.jsonl").read_bytes())
    assert len({*found}) == 1
    kept = {"prompt", "first", "second", "first_name", "second_name", "answer"}
    assert set(json.loads(found[0].splitlines()[0])) == kept


ROW = {"prompt": "p", "first": f"{CANARY} a", "second": f"{CANARY} b", "label": 1}
WRONG = {
    "columns that nobody knows": ({"frage": 1, "eins": 2}, [], 4, ["frage, eins", "--columns"]),
    "a mapping to nowhere": (ROW, ["--columns", "prompt=x"], 2, ["no column 'x'", "Found: prompt"]),
    "half a mapping": (ROW, ["--columns", "prompt"], 2, ["FIELD=COLUMN"]),
    "a label as the prompt": (ROW, ["--columns", "prompt=label"], 2, ["could be published"]),
    "ids that are not used": (
        ROW | {"worker_id": 1}, [], 2, ["'worker_id'", "--person-field worker_id", "--no-persons"],
    ),
    "both ways on": (ROW, ["--no-persons", "--person-field", "x"], 2, ["exclude each other"]),
    "a rule that looks at labels": (ROW, ["--drop", "ties"], 2, ["--drop", "empty"]),
    "overlong without a length": (ROW, ["--drop", "overlong"], 2, ["--longest 20000"]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("command", ["align", "privatize"])
def test_a_mistake_is_told_before_anything_is_spent(folder, name, command):
    row, words, code, said = WRONG[name]
    folder.write("in.jsonl", [row] * 3)
    out = "out.jsonl" if command == "privatize" else "out"
    refused(folder, [command, "in.jsonl", "--epsilon", "1", "--out", out, *words], code, *said)


def test_both_ways_on_are_taken(folder):
    rows = [row | {"annotator": f"w{i % 6}"} for i, row in enumerate(KINDS["pairs"])]
    folder.write("in.jsonl", rows)
    words = ["align", "in.jsonl", "--epsilon", "1", "--out", "o", "--dry-run", "--json"]
    assert folder.run(*words).code == 2
    assert "persons" not in folder.run(*words, "--no-persons").value
    assert folder.run(*words, "--person-field", "annotator").value["persons"] == 6
    asked = folder.run("inspect", "in.jsonl", "--json").value
    assert asked["people"] == ["annotator"]
    assert "--person-field annotator" in asked["next"]
    record = ["--noise", "estimate", "--unit", "record"]
    assert folder.run(*words, *record).code == 0  # nobody is asked where no person is read


def test_inspect_says_what_it_found_of_what_it_cannot_read(folder):
    folder.write("in.jsonl", [{"frage": "p", "eins": "a"}])
    said = folder.run("inspect", "in.jsonl", "--json")
    assert said.code == 4
    assert said.value["columns"] == {"frage": "not used", "eins": "not used"}
    assert said.value["next"] is None
    assert "Needed: a prompt and two answers" in said.value["problem"]
    assert "sordino bandit --help" in said.value["problem"]
    (folder / "none.jsonl").write_text("\n")
    said = folder.run("inspect", "none.jsonl", "--json")
    assert (said.code, said.value["problem"][:19]) == (4, "The input is empty:")
    assert "absent.jsonl cannot be read" in folder.run("inspect", "absent.jsonl").err
    folder.write("my in.jsonl", [KINDS["pairs"][0] | {"user id": "w"}])
    asked = folder.run("inspect", "my in.jsonl", "--json").value
    assert "'my in.jsonl'" in asked["next"]
    assert "--person-field 'user id'" in asked["next"]


def test_inspect_says_what_takes_users_and_no_judgments(folder):
    user = {"person": "p", "context": [1.0], "rewards": [0.0, 1.0]}
    (folder / "u.jsonl").write_text(json.dumps(user) + "\n")
    (folder / "r.jsonl").write_text(json.dumps({"prompt": "q", "ranking": [0, 1]} | user) + "\n")
    assert folder.run("inspect", "u.jsonl", "--json").value["next"].startswith("sordino optimize u")
    assert "'candidates' is missing. Call" in folder.run("inspect", "r.jsonl", "--json").err


def test_inspect_says_that_it_is_raw_and_what_is_public(folder):
    rows = [*KINDS["battles"], KINDS["battles"][0] | {"response_b": "yes, surely 0"}]
    rows.append(KINDS["battles"][1] | {"response_a": ""})
    folder.write("in.jsonl", rows)
    said = folder.run("inspect", "in.jsonl")
    assert said.code == 0
    assert "raw: it shows texts and judgments" in said.out
    value = folder.run("inspect", "in.jsonl", "--json").value
    assert value["counts"]["ties or undecided"] == {"count": N // 2, "public": False}
    assert value["counts"]["identical answers"]["count"] == 1
    assert value["counts"]["empty answers"]["count"] == 1
    assert value["next"].endswith("--drop empty,identical --out run --dry-run")
    told = folder.run("inspect", "in.jsonl", "--unit", "record", "--json").value
    assert not any(one["public"] for one in told["counts"].values())
    words = value["next"].replace("--out run --dry-run", "--out run --dry-run --json").split()
    assert folder.run(*words[1:]).value["votes"] == N


def test_prompts_and_answers_that_look_swapped_are_asked_about(folder):
    rows = [
        {"prompt": f"It is {i}.", "first": f"What is {i}?", "second": "Is it?", "label": i % 2}
        for i in range(N)
    ]
    folder.write("in.jsonl", rows)
    assert folder.run("inspect", "in.jsonl", "--json").value["swapped"]
    assert "are they swapped?" in folder.run("inspect", "in.jsonl").out
    words = ["align", "in.jsonl", "--epsilon", "1", "--out", "o", "--dry-run"]
    assert "swapped" in folder.run(*words).err
    folder.write("in.jsonl", KINDS["pairs"])
    assert "swapped" not in folder.run(*words).err


def test_which_attribute_is_the_rating_is_said_before_anything_is_spent(folder):
    folder.write("in.jsonl", KINDS["ratings"])
    wanted = "correctness; not read: helpfulness, coherence, complexity, verbosity (--columns"
    asked = ["in.jsonl", "--columns", "rating=correctness", "--json"]
    assert folder.run("inspect", *asked).value["rating"].startswith(wanted)
    dry = [*asked, "--epsilon", "1", "--dry-run", "--out"]
    assert folder.run("privatize", *dry, "o.jsonl").value["rating"].startswith(wanted)
    assert folder.run("align", *dry, "run").value["forecast"]["rating"].startswith(wanted)
