"""Input that cannot be used: one clear error with line and field, and nothing left behind."""

import gzip
import json
import os

import pytest
from tests.tiers import few

from .conftest import CANARY, pair, refused

GOOD = json.dumps(pair(0))
LABELED = {"prompt": f"{CANARY} p", "first": f"{CANARY} a", "second": f"{CANARY} b"}
CHAT = [{"role": "user", "content": f"{CANARY} hello"}]


def without(*names, **more):
    return json.dumps({k: v for k, v in pair(1).items() if k not in names} | more)


SAME = json.dumps({"prompt": f"{CANARY} p", "chosen": f"{CANARY} x", "rejected": f"{CANARY} x"})
LINES = {
    "malformed": ('{"prompt": "' + CANARY, ["line 3", "not valid JSON"]),
    "not an object": (f'["{CANARY}"]', ["line 3", "object"]),
    "number": ("7", ["line 3", "object"]),
    "null": ("null", ["line 3", "object"]),
    "two on a line": (f"{GOOD} {GOOD}", ["line 3", "not valid JSON"]),
    "deep": ("[" * 100_000, ["line 3", "not valid JSON"]),
    "huge number": ('{"prompt": ' + "9" * 5000 + "}", ["line 3", "not valid JSON"]),
    "no chosen": (without("chosen"), ["line 3", "'chosen'", "missing"]),
    "no rejected": (without("rejected"), ["line 3", "'rejected'", "missing"]),
    "no prompt": (json.dumps({"first": "a", "second": "b", "label": 1}), ["line 3", "for some"]),
    "no label": (json.dumps(LABELED), ["line 3", "'label'", "missing"]),
    "prompt is a number": (without(prompt=3), ["line 3", "'prompt'"]),
    "prompt is null": (without(prompt=None), ["line 3", "'prompt'"]),
    "chosen is an object": (without(chosen={CANARY: CANARY}), ["line 3", "'chosen'"]),
    "chosen is empty chat": (without(chosen=[], rejected=[]), ["line 3", "'chosen'"]),
    "chat without content": (without(chosen=[{"role": CANARY}]), ["line 3", "'chosen'"]),
    "content is a number": (
        without(chosen=[{"role": CANARY, "content": 1}], rejected=CHAT), ["line 3", "'chosen'"],
    ),
    "text and chat": (without(chosen=CHAT), ["line 3", "'chosen'", "'rejected'"]),
    "first text, second chat": (
        json.dumps({**LABELED, "second": CHAT, "label": 1}), ["line 3", "'first'", "'second'"],
    ),
    "lone surrogate": (without(prompt=f"{CANARY} \ud800"), ["line 3", "Unicode"]),
    "surrogate in chat": (
        without(chosen=[{"role": "user", "content": f"{CANARY} \udfff"}], rejected=CHAT),
        ["line 3", "Unicode"],
    ),
    "label 2": (json.dumps({**LABELED, "label": 2}), ["line 3", "'label'", "0 or 1"]),
    "label text": (json.dumps({**LABELED, "label": CANARY}), ["line 3", "'label'", "0 or 1"]),
    "label true": (json.dumps({**LABELED, "label": True}), ["line 3", "'label'", "0 or 1"]),
    "label null": (json.dumps({**LABELED, "label": None}), ["line 3", "'label'", "0 or 1"]),
    "label 0.25": (json.dumps({**LABELED, "label": 0.25}), ["line 3", "'label'", "0 or 1"]),
    "label NaN": ('{"prompt":"p","first":"a","second":"b","label":NaN}', ["line 3", "'label'"]),
    "label and answer": (
        json.dumps({**LABELED, "label": 1, "answer": 0}), ["line 3", "'label'", "'answer'"],
    ),
    "chosen and answer": (without(answer=1), ["line 3", "'chosen'", "'answer'"]),
    "chosen and label": (without(label=1), ["line 3", "'chosen'", "'label'"]),
    "answer among raw": (json.dumps({**LABELED, "answer": 1}), ["line 3", "raw", "randomized"]),
    "identical": (SAME, ["line 3", "same", "--drop", "identical"]),
    "person is a list": (without(person=[CANARY]), ["line 3", "'person'"]),
    "person is true": (without(person=True), ["line 3", "'person'"]),
    "person surrogate": (without(person=f"{CANARY}\ud800"), ["line 3", "'person'", "Unicode"]),
    "person of some": (without(person=f"{CANARY}-p"), ["line 3", "person"]),
}  # fmt: skip
FILES = {
    "empty": (b"", ["empty"]),
    "blank": (b"\n \r\n\t\n", ["empty"]),
    "not UTF-8": (
        GOOD.encode() + b'\n{"prompt": "' + CANARY.encode() + b'\xff"}\n',
        ["line 2", "UTF-8"],
    ),
    "UTF-16": (GOOD.encode("utf-16"), ["line 1", "UTF-8"]),
    "binary": (b"\x00\x01\x02" + CANARY.encode(), ["line 1"]),
}
COMMANDS = {
    "align": ["align", "{}", "--epsilon", "1", "--out", "out"],
    "align dry": ["align", "{}", "--epsilon", "1", "--out", "out", "--dry-run"],
    "privatize": ["privatize", "{}", "--epsilon", "1", "--out", "out.jsonl"],
    "privatize dry": ["privatize", "{}", "--epsilon", "1", "--out", "out.jsonl", "--dry-run"],
    "fit": ["fit", "{}", "--out", "out.json"],
    "json": ["align", "{}", "--epsilon", "1", "--out", "out", "--json"],
}
commands = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)


def given(command, name):
    """Return a command on one file."""
    return [word.format(name) for word in command]


@commands
@pytest.mark.parametrize("kind", ["line", "file", "gzip"])
def test_what_cannot_be_read_is_refused_in_one_line_that_says_where(folder, command, kind):
    """Every kind of bad line is shown to the reader itself in test_canary.py."""
    name, (content, words) = "bad.jsonl", FILES["not UTF-8"]
    if kind == "line":
        line, words = LINES["label and answer"]
        content = f"{GOOD}\n{GOOD}\n{line}\n".encode()
    if kind == "gzip":
        name, words = "bad.jsonl.gz", ["line", "gzip"]
        content = gzip.compress(GOOD.encode())[:-9]
    (folder / name).write_bytes(content)
    refused(folder, given(command, name), 4, *words)


@pytest.mark.parametrize("cut", few([0.5, 0.9, "crc", "plain", "tail"], 0.5, "tail"))
def test_bad_gzip(folder, cut):
    noise = [pair(index, note=os.urandom(40).hex()) for index in range(1000)]
    raw = gzip.compress("".join(json.dumps(row) + "\n" for row in noise).encode())
    content = {
        "crc": raw[:-8] + b"\0\0\0\0" + raw[-4:],
        "plain": GOOD.encode(),
        "tail": raw + b"garbage" + CANARY.encode(),
    }.get(cut) or raw[: int(len(raw) * cut)]
    (folder / "bad.jsonl.gz").write_bytes(content)
    refused(folder, given(COMMANDS["privatize"], "bad.jsonl.gz"), 4, "line", "gzip")


@commands
def test_input_that_is_missing_or_an_empty_folder(folder, command):
    """Folders are read file by file, where there is any."""
    refused(folder, given(command, "none.jsonl"), 7, "No such file")
    (folder / "in.jsonl").mkdir()
    refused(folder, given(command, "in.jsonl"), 2, "folder")


@commands
def test_input_that_may_not_be_read(folder, command, as_nobody):
    (folder / folder.write("in.jsonl", [GOOD])).chmod(0)
    with as_nobody():
        said = folder.run(*given(command, "in.jsonl"))
    assert said.code == 7
    assert (said.out, len(said.err.splitlines())) == ("", 1)
    assert "Permission denied" in said.err
    assert folder.names() == {"in.jsonl"}


@pytest.mark.parametrize("command", [COMMANDS["privatize"], COMMANDS["align"]])
def test_lines_that_are_too_long_and_pairs_that_say_nothing(folder, monkeypatch, command):
    folder.write("in.jsonl", [SAME, SAME])
    refused(folder, [*given(command, "in.jsonl"), "--drop", "identical"], 4, "No pair is left")
    monkeypatch.setattr("sordino.preferences.containers.LONGEST_LINE", 1000)
    folder.write("in.jsonl", [GOOD, json.dumps(pair(1, note="x" * 2000))])
    refused(folder, given(command, "in.jsonl"), 4, "line 2", "longer")


def test_a_pipe_cannot_be_privatized_because_it_is_read_twice(folder):
    os.mkfifo(folder / "in.jsonl")
    assert folder.run("privatize", "in.jsonl", "--epsilon", 1, "--out", "out.jsonl").code == 2
    assert folder.names() == set()


@pytest.mark.parametrize("public", [[], [GOOD, "{"], [json.dumps({**LABELED, "answer": 1})]])
def test_a_bad_public_file_is_named(folder, pairs, public):
    folder.write("in.jsonl", pairs)
    folder.write("public.jsonl", public)
    command = [*given(COMMANDS["align"], "in.jsonl"), "--evaluate", "public.jsonl"]
    refused(folder, command, 4, "--evaluate")


def test_bad_prompts_to_choose_from(folder, pairs):
    folder.write("in.jsonl", pairs)
    assert folder.run("align", "in.jsonl", "--epsilon", 4, "--out", "run").code == 0
    for rows, words in (
        ([{"prompt": CANARY}], ["line 1", "'candidates'"]),
        ([{"prompt": CANARY, "candidates": []}], ["line 1", "'candidates'"]),
        ([{"prompt": CANARY, "candidates": [CANARY, 3]}], ["line 1", "candidates[1]"]),
        ([{"candidates": [CANARY]}], ["line 1", "'prompt'"]),
        ([{"prompt": "\ud800", "candidates": [CANARY]}], ["line 1", "Unicode"]),
        (["{"], ["line 1", "JSON"]),
        ([], ["empty"]),
    ):
        folder.write("prompts.jsonl", rows)
        refused(folder, ["choose", "run", "prompts.jsonl", "--out", "chosen.jsonl"], 4, *words)
