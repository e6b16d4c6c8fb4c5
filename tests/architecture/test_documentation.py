"""The pages are true: what they name exists, what they compute comes out, what exists is named."""

import ast
import doctest
import math
import re
import tomllib

import pytest

import sordino
from sordino import errors
from sordino._version import __version__
from sordino.privacy.guarantee import CAVEATS, EVENTS
from sordino.privacy.ledger_chain import Row

from .conftest import ROOT, resolves

PAGES = sorted(
    [*(ROOT / "docs").glob("*.md"), *(ROOT / f"{n}.md" for n in ("README", "CHANGELOG"))]
    + [ROOT / f"{name}.md" for name in ("CONTRIBUTING", "SECURITY")]
)
WANTED = {
    "cli", "design", "files", "glossary", "local", "papers", "pitfalls", "privacy", "threat-model",
}  # fmt: skip
OUTSIDE = re.compile(
    r"\.\./shared|spec/\w+\.md|/home/|/tmp/|/root/|\bissue \d|pypi\.\w+|@\w+\.(com|org)",
    re.IGNORECASE,
)
BRITISH = re.compile(
    r"\b(\w*(?:isation|ise[sd]?|ising)|colour\w*|behaviour\w*|favour\w*|neighbour\w*|licence|"
    r"centre\w*|modell\w+|labell\w+|judgement)\b"
)
NOT_BRITISH = {
    "noise", "noised", "otherwise", "precise", "raise", "raised", "raises", "raising", "promise",
    "promises", "promised", "wise", "likewise", "exercise", "advise", "arise", "rise", "rises",
    "concise", "revise", "devise", "premise", "comprise", "surprise", "disguise", "expertise",
}  # fmt: skip


def read(path):
    return path.read_text(encoding="utf-8")


def page(name):
    return read(ROOT / name)


def prose(text):
    """Return a page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def slug(heading):
    kept = re.sub(r"[^\w\- ]", "", heading.lower().replace("`", ""))
    return kept.strip().replace(" ", "-")


def test_every_page_is_there():
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} >= WANTED


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)]+)\)", prose(read(path))):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name) if name else path
        assert file.is_file(), f"{path.name} → {target}"
        headings = re.findall(r"^#+ (.+)$", read(file), re.MULTILINE) if anchor else []
        assert not anchor or anchor in map(slug, headings), f"{path.name} → {target}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_speak_of_the_project_alone(path):
    assert OUTSIDE.findall(read(path)) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_american_spelling(path):
    found = {word for word in BRITISH.findall(prose(read(path)).lower()) if word not in NOT_BRITISH}
    # The title of a paper is quoted as it is.
    assert found <= ({"judgement"} if path.name == "papers.md" else set())


def named_objects(text):
    return set(re.findall(r"`(sordino(?:\.\w+)+)`", text))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_functions_that_are_named_exist(path):
    formats = set(re.findall(r"`(sordino\.\w+)` \| \d", read(path)))
    for dotted in sorted(
        named_objects(read(path)) - formats - {"sordino.json", "sordino.toml"}
    ):  # files
        assert resolves(dotted), f"{path.name} names {dotted}"


def test_a_name_that_does_not_exist_is_noticed():
    assert resolves("sordino.privacy.conversions.gaussian_mu")
    assert not resolves("sordino.privacy.conversions.gaussian_nu")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_tests_that_are_named_exist(path):
    named = set(re.findall(r"`?(tests/[\w/]+(?:\.py)?)`?", read(path)))
    missing = sorted(name for name in named if not (ROOT / name).exists())
    assert not missing, "\n".join(missing)


EXAMPLES = ["local.md", "privacy.md", "by_example.md", "planning.md", "policy_optimization.md"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_come_out(name):
    result = doctest.testfile(str(ROOT / "docs" / name), module_relative=False)
    assert result.attempted >= 2
    assert result.failed == 0


def test_every_public_name_is_in_an_example_that_runs():
    """Examples of docstrings run as those of pages do: every public definition is in one."""
    pages = "\n".join(re.findall(r"^ *(?:>>>|\.\.\.) (.*)$", "".join(
        page(f"docs/{name}") for name in EXAMPLES), re.MULTILINE))  # fmt: skip
    missing = []
    for name in sordino.__all__:
        found = getattr(sordino, name)
        if not callable(found) or (isinstance(found, type) and issubclass(found, Exception)):
            continue
        own = re.findall(r"^ *>>> (.*)$", found.__doc__ or "", re.MULTILINE)
        runs = [line for line in own if "+SKIP" not in line]
        if not runs and not re.search(rf"\bsordino\.{name}\b", pages):
            missing.append(name)
    assert not missing, f"no example that runs: {', '.join(missing)}"


def test_changelog_has_this_version_with_privacy_first():
    text = page("CHANGELOG.md")
    versions = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert versions[0].startswith(f"[{__version__}]")
    for version in versions:
        sections = re.findall(r"^### (.+)$", version, re.MULTILINE)
        assert sections[0] == "Privacy", version.splitlines()[0]
        assert set(sections) <= {"Privacy", "Added", "Changed", "Deprecated", "Removed", "Fixed"}


def test_exit_codes_are_those_of_the_errors():
    text = page("docs/files.md").partition("## Exit codes")[2].partition("##")[0]
    shown = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    kinds = [kind for kind in vars(errors).values() if hasattr(kind, "exit_code")]
    assert len(kinds) > 5
    ours = {kind.exit_code for kind in kinds}
    assert shown == {0, 130} | ours
    epilog = page("docs/cli.md").partition("Exit codes: 2 usage")[2].partition("```")[0]
    assert {int(code) for code in re.findall(r"\d+", epilog)} == {130, 143} | ours - {1, 2}


def test_every_caveat_is_listed():
    text = page("docs/privacy.md")
    assert {name for name in CAVEATS if f"`{name}`" not in text} == set()


def test_every_event_is_in_the_support_table():
    text = page("docs/privacy.md")
    assert {kind for kind in EVENTS if f"| `{kind}` |" not in text} == set()


def test_formats_and_versions_are_listed(modules):
    text = page("docs/files.md")
    listed = dict(re.findall(r"\| `(sordino\.\w+)` \| (\d+) \|", text))
    formats, versions = {}, {}
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                name, value = getattr(node.targets[0], "id", ""), node.value.value
                if name.endswith("FORMAT"):
                    formats[module.path] = value
                elif name.endswith("VERSION") and isinstance(value, int):
                    versions[module.path] = value
    assert listed == {formats[path]: str(versions[path]) for path in formats}


def test_ledger_columns_and_kinds_are_listed():
    text = page("docs/files.md")
    known = set(re.findall(r"`([^`]+)`", text))
    assert set(Row.__dataclass_fields__) <= known
    for kind in re.findall(r"``(\w+)``", Row.__doc__.split("``kind`` is", 1)[1]):
        assert f"`{kind}`" in text, kind
        assert f"| `{kind}` |" in page("docs/privacy.md"), kind


def test_the_table_of_the_readme_is_computed():
    """Factor and belief are rounded up: they bound something."""
    rows = re.findall(
        r"^\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) % \| ([\d.]+) % \| ([\d.]+) judgments \|",
        page("README.md"),
        re.MULTILINE,
    )
    assert len(rows) == 4
    for epsilon, factor, belief, flipped, worth in (map(float, row) for row in rows):
        assert 0 <= factor - math.exp(epsilon) < 0.01
        assert 0 <= belief - 100 / (1 + math.exp(-epsilon)) < 0.1
        assert flipped == round(100 / (1 + math.exp(epsilon)), 1)
        assert worth == round(math.tanh(epsilon / 2) ** 2, 3)


def test_import_order_of_the_design_page_is_the_contract():
    settings = tomllib.loads(page("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (contract,) = (given for given in settings if given["type"] == "layers")
    placed = [
        name.strip()
        for layer in reversed(contract["layers"])
        for name in layer.split("|")
        if not name.strip().startswith("(")
    ]
    section = page("docs/design.md").split("## Import order", 1)[1].split(".\n\n", 1)[0]
    assert re.findall(r"`(\w+)`", section) == placed
