"""Strings planted in every text field turn up nowhere but where texts belong by design."""

import json

import pytest
from tests.privatized import privatize_file

from sordino.errors import SordinoError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.pairs import Pairs, read_manifest, read_pairs
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee
from sordino.privacy.ledger import Ledger

from .test_bad_input import FILES, LINES

N = 30
TEXTS = {"prompt", "chosen", "rejected", "role", "system"}
FIELDS = ("prompt", "chosen", "rejected", "extra", "person", "role", "system", "note")


def canary(field):
    return f"kanarie-zq-{field}"


def texts(index):
    return {
        "prompt": f"{canary('prompt')} {index}",
        "chosen": f"{canary('chosen')} {index} yes, then",
        "rejected": f"{canary('rejected')} {index} no, sorry",
        "extra": f"{canary('extra')} {index}",
        canary("note"): [canary("note")],
    }


def chats(index):
    plain = texts(index)
    start = [
        {"role": canary("role"), "content": canary("system"), "name": canary("note")},
        {"role": "user", "content": plain["prompt"]},
    ]
    sides = {
        side: [*start, {"role": "assistant", "content": plain[side]}]
        for side in ("chosen", "rejected")
    }
    return sides | {"extra": plain["extra"]}


def labeled(index):
    plain = texts(index)
    return {
        "prompt": plain["prompt"],
        "first": plain["chosen"],
        "second": plain["rejected"],
        "label": index % 2,
        "extra": plain["extra"],
    }


def transcripts(index):
    plain = texts(index)
    start = f"\n\nHuman: {plain['prompt']}\n\nAssistant:"
    return {side: f"{start} {plain[side]}" for side in ("chosen", "rejected")}


SHAPES = {"texts": texts, "chats": chats, "labeled": labeled, "transcripts": transcripts}


def declared_public(row):
    """Return a row whose texts may be shown: its canaries are of another kind."""
    return json.loads(json.dumps(row).replace(canary(""), "offen-"))


def found_in(content):
    content = content if isinstance(content, bytes) else content.encode()
    return {field for field in FIELDS if canary(field).encode() in content}


def check_files(folder, allowed):
    """Grep every file: only the privatized file and the input may hold texts."""
    for name in folder.names():
        if name not in allowed:
            assert found_in((folder / name).read_bytes()) == set(), name
        assert not [field for field in FIELDS if canary(field) in name]


@pytest.mark.deep
@pytest.mark.parametrize("people", [False, True], ids=["no ids", "ids"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_good_runs(folder, shape, people):
    who = {"person": canary("person")} if people else {}
    folder.write("in.jsonl", [shape(index) | who for index in range(N)])
    folder.write("public.jsonl", [declared_public(shape(100 + index)) for index in range(N)])
    commands = [
        ["align", "in.jsonl", "--epsilon", 1, "--out", "dry", "--dry-run"],
        ["align", "in.jsonl", "--epsilon", 1, "--out", "run", "--evaluate", "public.jsonl"],
        ["privatize", "in.jsonl", "--epsilon", 1, "--out", "dry.jsonl", "--dry-run"],
        ["privatize", "in.jsonl", "--epsilon", 1, "--out", "p.jsonl"],
        ["align", "p.jsonl", "--out", "second"],
        ["fit", "p.jsonl", "--out", "reward.json"],
        ["ledger", "show", "p.spend.db"],
        ["ledger", "verify", "p.spend.db"],
        ["report", "run", "--force"],
        ["report", "run", "--out", "again.html"],
        ["align", "in.jsonl", "--epsilon", 1, "--out", "run", "--force"],
        ["align", "in.jsonl", "--epsilon", 1, "--out", "third", "--ledger", "p.spend.db"],
    ]
    for command in commands:
        for words in (command, [*command, "--json", "--force"]):
            if words is not command and command[0] in {"ledger", "report"}:
                continue
            said = folder.run(*words)
            # A plan shows the texts of its first record, which are public: label privacy.
            plans = command[0] == "align" and "--dry-run" in words
            answers = command[1] == "p.jsonl" and "--json" in words
            shown = TEXTS if plans or answers else set()
            assert found_in(said.out) <= shown, command
            assert found_in(said.err) == set(), command
            assert "InternalError" not in said.err
    # Examples are texts of the answer file, which had been released before.
    released = {"second/result.json", "second/report.html"}
    check_files(folder, {"in.jsonl", "public.jsonl", "p.jsonl"} | released)
    for name in released:
        assert found_in((folder / name).read_bytes()) <= TEXTS
    kept = found_in((folder / "p.jsonl").read_bytes())
    assert not {"extra", "note"} & kept
    assert {"prompt", "chosen", "rejected"} <= kept
    assert ("person" in kept) == people
    expected = {"texts": 3, "labeled": 3, "transcripts": 3, "chats": 5}
    assert len(kept - {"person"}) == expected[shape.__name__]


def everything_said(error):
    """Every text that an exception carries, with the whole chain of what led to it."""
    seen, waiting = [], [error]
    while waiting:
        one = waiting.pop()
        if one is None or one in seen:
            continue
        seen.append(one)
        waiting += [one.__context__, one.__cause__]
    carried = [
        repr((str(one), repr(one), one.args, vars(one), getattr(one, "__notes__", ""),
              getattr(one, "object", ""), getattr(one, "doc", "")))
        for one in seen
    ]  # fmt: skip
    return "\n".join(carried)


def raised(function, *given, **named):
    with pytest.raises(SordinoError) as caught:
        function(*given, **named)
    return everything_said(caught.value)


def spoiled(line):
    """A bad line of the other test with our canaries in it."""
    return line.replace("CANARY", canary("chosen"))


def ledger_at(path):
    budget = Guarantee(1.0, delta=0.0, unit="label", neighbors=REPLACE_ONE, trust="central")
    return Ledger.open(path, data="preferences", budget=budget)


@pytest.mark.parametrize(("line", "words"), LINES.values(), ids=LINES)
def test_exceptions_of_bad_lines(folder, line, words):
    folder.write("in.jsonl", [texts(0), texts(1), spoiled(line)])
    source, ledger = folder / "in.jsonl", ledger_at(folder / "spend.db")
    out = (folder / "o.jsonl", RandomizedResponse(1.0))
    read = raised(read_pairs, source)
    for said in (read, raised(privatize_file, source, *out, ledger=ledger)):
        assert found_in(said) == set()
        assert "CANARY" not in said
        assert all(word in said.replace("\\'", "'") for word in words), said
    check_files(folder, {"in.jsonl"})


@pytest.mark.parametrize(("content", "words"), FILES.values(), ids=FILES)
def test_exceptions_of_bad_files(folder, content, words):
    content = content.replace(b"CANARY", canary("chosen").encode())
    (folder / "in.jsonl").write_bytes(content)
    (folder / "in.jsonl.gz").write_bytes(content or b"x")
    for name in ("in.jsonl", "in.jsonl.gz"):
        said = raised(read_pairs, folder / name)
        assert found_in(said) == set()
        assert "CANARY" not in said
        assert name.endswith("gz") or all(word in said.replace("\\'", "'") for word in words), said


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        ([[1.0, 2.5]], [canary("note")]),
        ([[canary("note")]], [1]),
        ([[1.0, 2.5]], [0, 1]),
        ([[float("nan"), 2.5]], [1]),
        ([[0.0, 0.0]], [1]),
        ([[[2.5]]], [1]),
        ([], []),
        ([[1.0]], [2.5]),
    ],
)
def test_exceptions_of_bad_arrays(rows, labels):
    said = raised(Pairs.from_features, rows, labels)
    assert found_in(said) == set()
    assert "2.5" not in said


@pytest.mark.parametrize("people", [[canary("person") + "\ud800"], [None], [1.5], [], ["a", "b"]])
def test_exceptions_of_bad_people(people):
    said = raised(Pairs.from_features, [[1.0]], [1], persons=people)
    assert found_in(said) == set()


def test_exceptions_of_bad_manifests(folder):
    folder.write("p.jsonl", [labeled(0)])
    for text in (
        "{",
        canary("note"),
        '["' + canary("note") + '"]',
        b"\xff" + canary("note").encode(),
    ):
        raw = text if isinstance(text, bytes) else text.encode()
        (folder / "p.manifest.json").write_bytes(raw)
        assert found_in(raised(read_manifest, folder / "p.jsonl")) == set()


def test_a_crash_that_nobody_foresaw_shows_no_message(folder, monkeypatch):
    folder.write("in.jsonl", [texts(index) for index in range(N)])

    def crash(*_, **__):
        raise RuntimeError(canary("note"))

    monkeypatch.setattr("sordino.preferences.records._parse_record", crash)
    said = folder.run("align", "in.jsonl", "--epsilon", 1, "--out", "run")
    assert (said.code, said.out) == (1, "")
    assert "RuntimeError" in said.err
    assert found_in(said.err) == set()
    assert folder.names() == {"in.jsonl"}
