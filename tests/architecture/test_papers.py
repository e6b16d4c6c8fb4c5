"""The page of papers is what the tests say, and what it names exists."""

import importlib.util
import json
import re
import sys

import pytest

from sordino.cli import COMMANDS, load_command

from .conftest import resolves
from .test_documentation import slug

NUMBER = re.compile(
    r"(?:(KLDP|PPKL|PPHJ|PPO-DP), )?"
    r"((?:Theorem|Lemma|Corollary|Proposition|Algorithm|Assumption|Definition) [A-Z]?\.?\d[\d.]*)"
)


@pytest.fixture(scope="module")
def claims(root):
    """Return the script that builds the page."""
    spec = importlib.util.spec_from_file_location("docs_claims", root / "docs" / "claims.py")
    module = sys.modules["docs_claims"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def misnamed(paper, claim, statements):
    """Return the numbers of a claim that its paper, or the paper it points to, does not have."""
    return [
        f"{key or paper}, {name.rstrip('.')}"
        for key, name in NUMBER.findall(claim)
        if name.rstrip(".") not in statements[key or paper]
    ]


def test_the_page_is_what_the_tests_say(root, claims):
    page = (root / "docs" / "papers.md").read_text(encoding="utf-8")
    assert page == claims.page(), "run `python docs/make.py`"


def test_every_claim_has_a_test_with_one_verdict(claims):
    found = claims.blocks()
    claims.refuse_strays(found)
    missing = claims.Block("KLDP, Theorem 9", "true", "none", "tests/a.py", "test_a")
    with pytest.raises(SystemExit, match="Theorem 9"):
        claims.refuse_strays([*found, missing])
    with pytest.raises(SystemExit, match="0 verdicts"):
        claims.refuse_strays(found[1:] if found[0].verdict else [])
    with pytest.raises(SystemExit, match="2 verdicts"):
        claims.refuse_strays([*found, next(block for block in found if block.verdict)])


def test_whatever_is_ours_can_be_imported(claims):
    wrong = []
    for block in claims.blocks():
        wrong += [f"{block.claim}: {name}" for name in block.names if not resolves(name)]
        if block.ours and not block.names and not block.ours.startswith("none"):
            wrong.append(f"{block.claim}: {block.ours}")
    assert not wrong, "\n".join(wrong)
    assert not resolves("sordino.privacy.conversions.gaussian_nu")


def test_theorems_are_named_as_in_their_papers(claims):
    listed = claims.papers()
    statements = {paper["key"]: paper["statements"] for paper in listed}
    for paper in listed:
        if not paper["statements"]:
            continue
        for claim in paper["claims"]:
            assert misnamed(paper["key"], claim, statements) == []
    named = {name for _, name in NUMBER.findall("\n".join(listed[0]["claims"]))}
    assert set(statements["KLDP"]) <= named  # every numbered statement of this paper has a row
    assert misnamed("KLDP", "Theorem 4.2 (linear)", statements) == ["KLDP, Theorem 4.2"]
    assert misnamed("KLDP", "as in PPKL, Theorem 4.2", statements) == []


def test_every_stored_counterexample_is_used(root):
    stored = json.loads((root / "tests/data/published_counterexamples.json").read_text("utf-8"))
    texts = [path.read_text(encoding="utf-8") for path in (root / "tests/claims").glob("test_*.py")]
    assert [name for name in stored if not any(f'"{name}"' in text for text in texts)] == []


def test_published_formulas_are_under_tests_only_and_all_are_used(root, functions):
    assert [f.where for f in functions if f.name.startswith("published_")] == []
    texts = [path.read_text(encoding="utf-8") for path in (root / "tests/claims").glob("*.py")]
    tests = "\n".join(texts)
    made = re.findall(r"^def (published_\w+)", tests, re.MULTILINE)
    assert len(made) > 20
    assert [name for name in made if len(re.findall(rf"\b{name}\b", tests)) < 2] == []


def test_a_block_ends_at_an_empty_line(claims):
    text = """One.

Claim: KLDP, Lemma 1
Verdict: true, and
    so on
Ours: sordino.audit: all;
    none else
Claim: KLDP, Theorem 1

What follows says nothing of Claims.
"""
    assert list(claims.read(text)) == [
        {"Claim": "KLDP, Lemma 1", "Verdict": "true, and so on",
         "Ours": "sordino.audit: all; none else"},
        {"Claim": "KLDP, Theorem 1"},
    ]  # fmt: skip


def test_every_algorithm_of_the_papers_can_be_run(root, claims):
    commands = load_all()
    for one in claims.algorithms():
        words = one["run"].split()
        if words:
            command = commands[words[1]]
            command = getattr(command, "commands", {}).get(words[2], command)
            known = {name for option in command.params for name in option.opts}
            asked = {word for word in words if word.startswith("--")}
            needed = {o.opts[0] for o in command.params if o.required and o.opts[0][0] == "-"}
            assert needed <= asked <= known, f"{one['name']}: {sorted(asked - known)}"
        assert resolves(one["python"]), one["name"]
        page, _, anchor = one["page"].partition("#")
        text = (root / "docs" / page).read_text(encoding="utf-8")
        assert not anchor or f"#{anchor}" in {f"#{slug(h)}" for h in headings(text)}, one["name"]
        assert (root / one["test"]).is_file(), one["name"]
        figure = root / "docs" / "figures" / f"{one['figure']}.svg"
        assert not one["figure"] or figure.is_file(), one["name"]
    assert {one["paper"] for one in claims.algorithms()} == {"KLDP", "PPKL", "PPHJ", "PPO-DP"}


def load_all():
    return {name: load_command(name) for name in COMMANDS}


def headings(text):
    return re.findall(r"^#+ (.+)$", text, re.MULTILINE)
