"""A file that was changed by hand is refused as malformed, never as a bug, and never quoted."""

import copy
import json
import random
import shutil

import numpy as np
import pytest
from tests.apart import apart
from tests.tiers import few

from sordino import cli
from sordino.errors import DataError
from sordino.preferences.pairs import read_manifest
from sordino.privacy.conversions import flip_probability
from sordino.rewards.model import RewardModel

SEED, ROUNDS = 20, 30
WORD = "judged"
VALUES = (None, True, -1, 0, 1e308, float("nan"), "", "x", [], {}, [[]], [None], {"x": 1}, 10**400)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    home = tmp_path_factory.mktemp("run")
    rows = [{"prompt": f"p{at}", "chosen": "yes", "rejected": "no"} for at in range(30)]
    (home / "raw.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (home / "asked.jsonl").write_text('{"prompt": "p", "candidates": ["a", "b"]}\n')
    words = ["align", home / "raw.jsonl", "--epsilon", 1, "--dimension", 8, "--out", home / "run"]
    assert cli.run(apart(words)) == 0
    return home


def refusal(read, path):
    """What is said of a file that cannot be used."""
    try:
        read(path)
    except DataError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("value", [WORD, [WORD], {WORD: 1}, "9" * 5000, 10**400])
def test_no_value_of_a_reward_or_a_manifest_is_quoted(made, tmp_path, value):
    words = ["privatize", made / "raw.jsonl", "--epsilon", 1, "--out", tmp_path / "p.jsonl"]
    assert cli.run(apart(words)) == 0
    files = {
        made / "run" / "reward.json": RewardModel.load,
        tmp_path / "p.manifest.json": lambda _: read_manifest(tmp_path / "p.jsonl"),
    }
    for path, read in files.items():
        honest = json.loads(path.read_text())
        for name in honest.keys() - {"pairs"}:
            edit = tmp_path / "p.manifest.json" if "manifest" in path.name else tmp_path / "r.json"
            edit.write_text(json.dumps(honest | {name: value}))
            said = refusal(read, edit)
            assert not [part for part in (WORD, "999", "00000") if part in said], name


@pytest.mark.parametrize(
    "edit",
    few(
        ["answer", "value", "object", "type", "shape", "entry", "question", "name", "settings"],
        first=3,
    ),
)
def test_an_edited_memo_is_refused_before_an_answer_is_used(tmp_path, edit, capsys):
    row = {"prompt": "p", "chosen": "yes", "rejected": "no", "person": "ana"}
    (tmp_path / "raw.jsonl").write_text(json.dumps(row))
    words = ["privatize", tmp_path / "raw.jsonl", "--epsilon", 1, "--out", tmp_path / "p.jsonl"]
    words = [str(word) for word in words]
    assert cli.run(apart(words)) == 0
    [stored] = (tmp_path / "p.spend.memo").glob("*.npy")
    settings, rows = stored.with_name("settings.json"), np.load(stored)
    if edit in ("answer", "question"):
        rows[{"question": "key"}.get(edit, edit)][0] = 127 if edit == "answer" else b"0" * 32
    forms = {"object": np.array([WORD], object), "type": np.array([WORD]), "shape": rows[:1, None]}
    np.save(stored, forms.get(edit, rows))
    told = settings.read_text()
    edits = {"value": told.replace("system", WORD), "name": told.replace("randomness", WORD)}
    settings.write_text(edits.get(edit, WORD if edit == "settings" else told))
    if edit == "entry":
        stored.rename(stored.with_name(f"000-001-{'f' * 16}.npy"))
    before = (tmp_path / "p.jsonl").read_bytes()
    capsys.readouterr()
    # whoever is not known to have answered is asked, and what was paid for is not there
    assert cli.run(apart([*words, "--force"])) in (2, 3, 4, 8)
    assert WORD not in capsys.readouterr().err
    assert (tmp_path / "p.jsonl").read_bytes() == before


def places(value):
    """Every container in a JSON value, with a key or an index in it."""
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def edited(whole, generator, field):
    """The same with one value deleted or replaced: anywhere, or in one field."""
    changed = copy.deepcopy(whole)
    within = changed if field is None else {field: changed[field]}
    container, key = generator.choice(list(places(within)))
    container = changed if container is within else container
    if generator.random() < 0.3:
        del container[key]
    else:
        container[key] = generator.choice(VALUES)
    return changed


@pytest.mark.parametrize(("command", "field"), [("report", None), ("choose", "policy")])
def test_an_edited_result_is_never_a_bug(made, command, field, capsys):
    path = made / "run" / "result.json"
    honest = path.read_text()
    generator = random.Random(SEED)  # noqa: S311 (which edits are tried)
    words = ["report", made / "run", "--force"]
    if command == "choose":
        words = ["choose", made / "run", made / "asked.jsonl"]
    bugs, refused = [], 0
    try:
        for _ in range(ROUNDS):
            text = json.dumps(edited(json.loads(honest), generator, field))
            path.write_text(text)
            code = cli.run(apart(words))
            said = capsys.readouterr().err
            if code == 1:
                bugs.append(said[-300:])
            refused += code != 0
    finally:
        path.write_text(honest)
    assert not bugs, (len(bugs), bugs[:3])
    assert refused


@pytest.mark.parametrize("edit", few(["promise", "reward", "page"], first=3))
def test_no_page_is_written_of_a_run_that_its_ledger_contradicts(made, tmp_path, edit, capsys):
    run = tmp_path / "run"
    shutil.copytree(made / "run", run)
    page, result, reward = (run / f for f in ("report.html", "result.json", "reward.json"))
    if edit == "page":  # which is drawn anew
        page.write_text(page.read_text().replace("ε = 1<", "ε = 0.1<"))
    elif edit == "promise":
        told = json.loads(result.read_text())
        told["guarantee"]["epsilon"] = 0.1
        result.write_text(json.dumps(told))
    else:
        told = json.loads(reward.read_text())
        told["weights"][0] += 0.5
        reward.write_text(json.dumps(told))
    before = page.read_bytes()
    code = cli.run(apart(["report", run, "--force"]))
    said = capsys.readouterr().err
    assert code == (0 if edit == "page" else 5), said
    assert ("No page was written" in said) is (edit != "page")
    assert (page.read_bytes() == before) is (edit != "page")


@pytest.mark.parametrize("seed", few([False, True], first=2))
def test_a_manifest_may_not_promise_more_than_this_ledger_paid_for(made, tmp_path, seed, capsys):
    """The ledger that paid for the answers knows their coin, whatever lies beside the file now."""
    answers, paid = tmp_path / "p.jsonl", ["--ledger", tmp_path / "spend.db", "--out"]
    words = ["privatize", made / "raw.jsonl", "--epsilon", 2, "--budget", 9, *paid, answers]
    assert cli.run(apart([*words, *(["--simulate-seed", 3] if seed else [])])) == 0
    note, fit = tmp_path / "p.manifest.json", ["align", answers, "--dimension", 8, *paid]
    honest = json.loads(note.read_text())
    caveats = [name for name in honest["caveats"] if name != "simulated"]
    coin = {"epsilon": 1.0, "flip_probability": flip_probability(1.0)}
    note.write_text(json.dumps(honest | ({"caveats": caveats} if seed else coin)))
    assert cli.run(apart([*fit, tmp_path / "forged"])) == 2
    assert "promises more than the answers were paid for" in capsys.readouterr().err
    assert not (tmp_path / "forged").exists()
    note.write_text(json.dumps(honest))
    assert cli.run(apart([*fit, tmp_path / "run"])) == 0
