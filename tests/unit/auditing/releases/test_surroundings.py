"""What lies beside a released file and inside its manifest."""

import gzip
import json

import pytest

from sordino._files import sha256_of
from sordino.auditing.releases import leaks as surroundings
from sordino.auditing.releases.leaks import (
    find_manifest_leaks,
    find_neighbors,
    find_other_claims,
)
from sordino.auditing.releases.reading import read_released
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee

ROWS = [{"prompt": f"secret{i}", "a1": "x", "a2": "y", "z": (-1) ** (i // 2)} for i in range(30)]
RAW = [{"prompt": f"secret{i}", "chosen": "y", "rejected": "x"} for i in range(30)]


def claim(epsilon=1.0, unit="label"):
    return Guarantee(epsilon, delta=0.0, unit=unit, neighbors=REPLACE_ONE, trust="local")


@pytest.fixture
def put(tmp_path):
    def put(name, rows):
        path = tmp_path / name
        text = rows if isinstance(rows, str) else "".join(json.dumps(row) + "\n" for row in rows)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return put


@pytest.fixture
def released(put):
    def released(manifest=None):
        path = put("released.jsonl", ROWS)
        if manifest is not None:
            put("released.manifest.json", json.dumps(manifest))
        return read_released(path, epsilon=1.0)

    return released


TELLING = {
    "flips": {"flips": {"count": 20659}},
    "flip rate": {"flips": {"empirical_rate": 0.4778}},
    "flip number": {"n_flipped": 12},
    "observed": {"observed_flip_rate": 0.47},
    "seed": {"global_seed": 1234},
    "salt": {"settings": {"Salt": "secret-salt"}},
    "digest": {"raw_sha256": "secret-00"},
    "digests": {"md5": {"raw.jsonl": "secret-00"}},
    "paths": {"raw_source_files": {"train": "secret-path"}},
    "source": {"source_path": "secret-path"},
    "counts": {"split_counts": {"val": 2100}},
    "rows": {"raw_rows": 2100},
    "time": {"created_at": "2025-09-27T10:29:28Z"},
    "epoch": {"timestamp": 1758968968.2},
    "sample": {"audit_sample": [{"pair_id": "secret-id", "z": 1}]},
    "preview": {"nested": {"deeper": {"preview": ["secret-1"]}}},
}


@pytest.mark.parametrize("manifest", TELLING.values(), ids=TELLING)
def test_a_manifest_that_tells_too_much(released, manifest):
    found = find_manifest_leaks(released(manifest))
    assert (found.attack, found.outcome) == ("manifest", "warning")
    shown = found.summary + json.dumps(dict(found.details))
    assert next(iter(manifest)) in shown
    for value in ("secret", "20659", "0.47", "1234", "2100", "2025", "17589"):
        assert value not in shown


FINE = {
    "ours": {"format": "sordino.manifest", "version": 1, "sha256": "0", "mechanism": "x",
             "epsilon": 1.0, "flip_probability": 0.27, "unit": "label", "trust": "local",
             "neighbors": "REPLACE_ONE", "caveats": []},
    "theirs": {"epsilon_float": 0.1, "flip_rate": 0.475, "alpha": 0.525, "dp_version": "v1"},
    "a day": {"created_at": "2025-09-27"},
    "nothing": {"seed": None, "flips": {}, "audit_sample": []},
}  # fmt: skip


@pytest.mark.parametrize("manifest", FINE.values(), ids=FINE)
def test_a_manifest_that_does_not(released, manifest):
    assert find_manifest_leaks(released(manifest)).outcome == "clear"


def test_a_key_that_is_a_text_is_not_shown(released):
    found = find_manifest_leaks(released({"seed": {"secret text of a prompt": 1}}))
    assert found.outcome == "warning"
    assert "secret" not in str(found)


def test_a_manifest_without_end(released):
    deep = {"seed": 1}
    for _ in range(50):
        deep = {"a": deep}
    assert find_manifest_leaks(released(deep)).outcome in {"clear", "warning"}
    wide = {f"k{i}": 1 for i in range(5000)} | {"seed": 1}
    assert find_manifest_leaks(released(wide)).outcome == "clear"


def test_without_a_manifest_there_is_nothing_to_look_at(released, tmp_path):
    file, path = released(), tmp_path / "released.jsonl"
    assert find_manifest_leaks(file).outcome == "skipped"
    assert find_other_claims(file, claim(), path).outcome == "skipped"


OTHER = {
    "epsilon": ({"epsilon": 2.0}, "it states epsilon=2 and epsilon=1 was tested"),
    "less": ({"epsilon_float": 0.5}, "it states epsilon_float=0.5"),
    "flips": ({"flip_rate": 0.1}, "its flip probability costs at least epsilon=1.386"),
    "file": ({"format": "sordino.manifest", "sha256": "00"}, "it is of another file"),
    "simulated": ({"local_dp_simulated": True}, "the coins are simulated"),
    "ours": ({"caveats": ["simulated"]}, "the coins are simulated"),
    "unit": ({"unit": "person"}, "its unit is 'person'"),
    "trust": ({"trust": "central"}, "its trust is 'central'"),
}


@pytest.mark.parametrize(("manifest", "words"), OTHER.values(), ids=OTHER)
def test_a_manifest_of_another_claim(released, tmp_path, manifest, words):
    found = find_other_claims(released(manifest), claim(), tmp_path / "released.jsonl")
    assert found.outcome == "warning"
    assert words in found.summary


@pytest.mark.parametrize(
    "manifest",
    [{}, {"epsilon": 1.0, "flip_rate": 0.2689}, {"flip_rate": 0.45}, {"unit": "secret", "trust": 3},
     {"epsilon": "secret"}, {"epsilon": True}, {"caveats": "simulated"}],
)  # fmt: skip
def test_a_manifest_that_states_nothing_else(released, tmp_path, manifest):
    found = find_other_claims(released(manifest), claim(), tmp_path / "released.jsonl")
    assert found.outcome == "clear", found.summary
    assert "secret" not in str(found)


def test_the_digest_of_the_file_itself_is_fine(released, tmp_path):
    released({})
    manifest = {"format": "sordino.manifest", "sha256": sha256_of(tmp_path / "released.jsonl")}
    found = find_other_claims(released(manifest), claim(), tmp_path / "released.jsonl")
    assert found.outcome == "clear"


def neighbors(released, tmp_path):
    found = find_neighbors(released(), tmp_path / "released.jsonl")
    assert found.attack == "surroundings"
    assert "secret" not in str(found)
    return found


LABELS = [{"prompt": row["prompt"], "first": "x", "second": "y", "label": 1} for row in RAW]
ANSWERS = [{k: v for k, v in {**row, "answer": 1}.items() if k != "label"} for row in LABELS]


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("raw.jsonl", RAW),
        ("raw.jsonl.gz", RAW),
        ("raw.jsonl", LABELS),
        ("raw.jsonl", [{**LABELS[0], "label": None, "labels": [1, 0]}]),
        ("raw.csv", "prompt,chosen,rejected\nsecret1,x,y\n"),
        ("raw.tsv.gz", "prompt\tchosen\trejected\nsecret1\tx\ty\n"),
        ("raw.jsonl", ["not json", *RAW]),
    ],
)
def test_raw_labels_beside_it(released, tmp_path, put, name, rows):
    put(name, rows)
    found = neighbors(released, tmp_path)
    assert found.outcome == "warning"
    assert "raw labels" in found.summary
    assert found.details["raw"] == [name]


@pytest.mark.parametrize("rows", [[{**row, "z": -row["z"]} for row in ROWS], ANSWERS, ROWS[:3]])
def test_other_answers_to_the_same_questions_beside_it(released, tmp_path, put, rows):
    put("other.jsonl", rows)
    found = neighbors(released, tmp_path)
    assert found.outcome == "warning"
    assert found.details["released"] == ["other.jsonl"]


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("copy.jsonl", ROWS),
        ("others.jsonl", [{**row, "prompt": "another"} for row in RAW]),
        ("questions.jsonl", [{"prompt": "secret1", "first": "x", "second": "y"}]),
        ("broken.jsonl.gz", "nothing"),
        ("broken.csv", "prompt,chosen\nsecret,x,y\n"),
        ("list.jsonl", "[" * 100_000),
        ("odd.jsonl", [{"chosen": "secret\ud800", "rejected": 3}, {"z": 1}, {"chosen": 1}]),
        ("raw.txt", RAW),
    ],
)
def test_other_files_beside_it(released, tmp_path, put, name, rows):
    path = put(name, rows)
    if name.startswith("broken.jsonl"):
        path.write_bytes(b"no gzip")
    assert neighbors(released, tmp_path).outcome == "clear"


def test_folders_and_links_are_left_alone(released, tmp_path, put):
    (tmp_path / "folder.jsonl").mkdir()
    elsewhere = tmp_path / "folder.jsonl" / "raw.jsonl"
    elsewhere.write_text(json.dumps(RAW[0]))
    (tmp_path / "link.jsonl").symlink_to(elsewhere)
    found = neighbors(released, tmp_path)
    assert found.outcome == "clear"
    assert found.details["looked_at"] == 0


def test_only_the_beginning_of_a_file_is_read(released, tmp_path, put, monkeypatch):
    monkeypatch.setattr(surroundings, "_HEAD", 1 << 12)
    far = [{"prompt": "far", "chosen": "z" * 3000, "rejected": "y"}] * 2
    put("raw.jsonl", [*far, *RAW])
    assert neighbors(released, tmp_path).outcome == "clear"
    put("raw.jsonl", [RAW[0], *far])
    assert neighbors(released, tmp_path).outcome == "warning"


def test_only_some_names_are_looked_at(released, tmp_path, put, monkeypatch):
    monkeypatch.setattr(surroundings, "_MOST_FILES", 3)
    for i in range(9):
        put(f"n{i}.jsonl", RAW)
    assert neighbors(released, tmp_path).details["looked_at"] <= 3


@pytest.mark.parametrize("name", ["epsilon", "eps", "epsilon_float"])
@pytest.mark.parametrize("value", [10**400, -(10**400), float("inf"), float("nan")])
def test_a_number_that_no_float_holds_is_no_epsilon(released, tmp_path, name, value):
    found = find_other_claims(released({name: value}), claim(), tmp_path / "released.jsonl")
    assert found.outcome == "clear"


def test_what_the_manifest_states_can_be_written_as_json(released, tmp_path):
    found = find_other_claims(released({"flip_rate": 0.1}), claim(), tmp_path / "released.jsonl")
    assert found.details["label_losses"][1] == "inf"
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_name_with_signs_of_control_is_shown_harmlessly(released, tmp_path, put):
    put("raw\x1b[2J\n\u202e.jsonl", RAW)
    found = neighbors(released, tmp_path)
    assert "raw labels" in found.summary
    for text in (found.summary, *found.details["raw"]):
        assert text.isprintable()
