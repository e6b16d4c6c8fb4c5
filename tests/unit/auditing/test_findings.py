"""A finding says the sentence of its attack, and no other word for it."""

import ast
from pathlib import Path

import numpy as np
import pytest

import sordino
from sordino.auditing.findings import ATTACKS, Finding

AUDITING = Path(sordino.__file__).parent / "auditing"


@pytest.mark.parametrize("kind", [bool, np.bool_])
def test_what_was_compared_with_numpy_is_said_in_words(kind):
    found = Finding.judged("noise", wrong=kind(1), size=0.5, details={"tensors": 2})
    assert found.outcome == "refutes"
    assert found.summary.startswith("A step that nobody is in gives a tensor 0.5 of")
    odd = Finding.judged("shared-answers", odd=kind(1))
    assert (odd.outcome, odd.summary) == ("warning", ATTACKS["shared-answers"]["odd"])
    clear = Finding.judged("noise", wrong=kind(0), details={"tensors": 2})
    assert (clear.outcome, "2 trained tensors" in clear.summary) == ("clear", True)


def test_an_attack_without_a_sentence_is_noticed():
    with pytest.raises(KeyError, match="clear"):
        Finding.judged("chosen")


def test_every_sentence_that_is_named_exists_and_is_reached():
    """A name without a sentence would be shown as it is."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in AUDITING.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    words = {node.value for node in nodes if isinstance(node, ast.Constant)}
    words |= {node.arg for node in nodes if isinstance(node, ast.keyword)}
    named = {name for attack in ATTACKS.values() for name in attack}
    assert named <= words | {"title", "tries", "needs", "wrong", "odd", "clear"}
    missing = []
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            first = getattr(node.args[0], "value", None) if node.args else None
            if node.func.attr == "judged" and isinstance(first, str):
                told = [one.value for one in node.keywords if one.arg in {"wrong", "odd", "clear"}]
                texts = [getattr(one, "value", None) for one in told]
                missing += [(first, one) for one in texts if one not in ATTACKS[first]]
            if node.func.attr in {"refute", "warn"}:
                named = {one.arg for one in node.keywords} - {"told"}
                missing += [("mechanism", one) for one in named - ATTACKS["mechanism"].keys()]
    kept = [one for pair in missing for one in [pair[1] or pair[0]] if isinstance(one, str)]
    assert [one for one in kept if " " not in one and one not in ATTACKS] == []
