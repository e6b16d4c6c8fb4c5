"""A result.json that was changed by hand is refused as malformed, never as a bug of ours."""

import copy
import json
import random

import pytest

from sordino import cli

SEED, ROUNDS = 20, 30
VALUES = (None, True, -1, 0, 1e308, float("nan"), "", "x", [], {}, [[]], [None], {"x": 1}, 10**400)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    home = tmp_path_factory.mktemp("run")
    rows = [{"prompt": f"p{at}", "chosen": "yes", "rejected": "no"} for at in range(30)]
    (home / "raw.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (home / "asked.jsonl").write_text('{"prompt": "p", "candidates": ["a", "b"]}\n')
    words = ["align", home / "raw.jsonl", "--epsilon", 1, "--dimension", 8, "--out", home / "run"]
    assert cli.run([str(word) for word in words]) == 0
    return home


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
            code = cli.run([str(word) for word in words])
            said = capsys.readouterr().err
            if code == 1:
                bugs.append(said[-300:])
            refused += code != 0
    finally:
        path.write_text(honest)
    assert not bugs, (len(bugs), bugs[:3])
    assert refused
