"""What the README shows can be run, what it lists exists, and what exists it lists."""

import json
import re
import shlex
import subprocess
from contextlib import chdir, redirect_stdout

import pytest

from sordino import cli
from sordino.auditing.releases import leaks
from sordino.auditing.releases.recipes import coin_recipes
from sordino.auditing.releases.seed_attack import attack_coins
from sordino.runs.align_settings import Align

SKIPPED = re.compile(r"^(make|pip) ")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text):
    return [(found[1], found[2]) for found in BLOCK.finditer(text)]


@pytest.fixture(scope="module")
def readme(root):
    return (root / "README.md").read_text(encoding="utf-8")


def run_line(line):
    """Run a line as a shell would, with ``sordino`` standing for the package in this process."""
    line = line.replace("--n 4000", "--n 1200").replace("fit answers", "fit --dimension 64 answers")
    words = shlex.split(line, comments=True)
    if words[:1] == ["sordino"] and not {"|", ">", ">>"} & set(words):
        return cli.run(words[1:])
    return subprocess.run(["bash", "-c", line], check=False).returncode


def run_bash(script, folder):
    """Run lines up to the first that fails, and return its exit code and itself."""
    with chdir(folder):
        for line in script.replace("\\\n", " ").splitlines():
            if line.strip() and not SKIPPED.match(line) and (code := run_line(line)):
                return code, line
    return 0, None


def run_blocks(page, place):
    """Run every block of a page: commands in order, then all Python as one program."""
    programs = []
    for language, text in blocks(page):
        if language == "python":
            programs.append(text.replace("dimension=512", "dimension=64"))
        if language == "bash":
            assert run_bash(text, place) == (0, None)
    said = (place / "python.txt").open("w", encoding="utf-8")
    with chdir(place), said, redirect_stdout(said):
        exec("\n".join(programs), {"__name__": "__main__"})  # noqa: S102 (our own page)


@pytest.fixture(scope="module", autouse=True)
def few_coins():
    """An audit tries a few seeds of the most common coins, and a reward has 64 features."""
    core = [recipe for recipe in coin_recipes() if recipe.core][:2]

    def attack(*given, **more):
        return attack_coins(*given, **{**more, "recipes": core, "seeds": range(20)})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaks, "attack_coins", attack)
        patch.setattr(Align, "text_dimension", 64)
        yield


@pytest.fixture(scope="module")
def folder(readme, tmp_path_factory):
    """Where every block of the README was run, in order; Python blocks share their names."""
    place = tmp_path_factory.mktemp("readme")
    run_blocks(readme, place)
    return place


def test_every_block_is_of_a_kind_that_is_run_or_shown(readme):
    kinds = [language for language, _ in blocks(readme)]
    assert set(kinds) <= {"bash", "python", "text"}
    assert kinds.count("bash") >= 5
    assert kinds.count("python") >= 2


def test_a_failing_command_is_noticed(tmp_path):
    wrong = "sordino align missing.jsonl --epsilon 1 --out runs"
    assert run_bash(f"sordino init\n{wrong}\nfalse", tmp_path) == (7, wrong)
    assert run_bash("make nothing\npip install nothing", tmp_path) == (0, None)
    assert run_bash("false", tmp_path) == (1, "false")


def test_the_blocks_run(folder):
    run = folder / "runs/first"
    assert {path.name for path in run.iterdir()} == {
        "report.html",
        "result.json",
        "reward.json",
    }
    assert {path.name for path in folder.rglob("*.db")} == {"ledger.db"}  # one for everything
    (chosen,) = (folder / "chosen.jsonl").read_text(encoding="utf-8").splitlines()
    assert set(json.loads(chosen)) == {"prompt", "answer", "probability"}
    said = (folder / "python.txt").read_text(encoding="utf-8")
    assert "when one label is replaced by any other (REPLACE_ONE)" in said
    assert "These are raw judgments" in said
    assert not list(folder.rglob("*.partial"))


@pytest.mark.deep
def test_the_tutorial_runs(root, tmp_path):
    run_blocks((root / "docs/tutorial.md").read_text(encoding="utf-8"), tmp_path)
    assert "heuristic scale 0.05" in (tmp_path / "python.txt").read_text(encoding="utf-8")


@pytest.mark.deep
def test_the_tour_runs(root, tmp_path):
    run_blocks((root / "docs/tour.md").read_text(encoding="utf-8"), tmp_path)
    assert "epsilon=" in (tmp_path / "python.txt").read_text(encoding="utf-8")


def test_every_file_that_the_blocks_wrote_is_documented(folder, root):
    """Keys of JSON files are in docs/files.md, in backticks."""
    page = (root / "docs/files.md").read_text(encoding="utf-8")
    known = set(re.findall(r"`([^`]+)`", page))
    for name in ("runs/first/result.json", "answers.manifest.json", "reward.json"):
        value = json.loads((folder / name).read_text(encoding="utf-8"))
        assert set(value) <= known, name
    result = json.loads((folder / "runs/first/result.json").read_text(encoding="utf-8"))
    for part in ("guarantee", "policy", "truth", "mechanism"):
        assert set(result[part]) - {"name"} <= known, part
    plain = {name for name in result["reward"] if not name.endswith("_standard_error")}
    assert plain <= known


def test_make_targets_exist(readme, root):
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^(\w+):", makefile, re.MULTILINE))
    text = readme + (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = {a or b for a, b in re.findall(r"^make (\w+)|`make (\w+)`", text, re.MULTILINE)}
    assert {"demo", "test"} <= named
    assert named <= targets


def listed(tree):
    """Return the paths of a drawn tree."""
    paths, above = set(), []
    for line in tree.splitlines():
        found = re.match(r"^((?:│   |    )*)(?:[├└]── )?([\w./]+)", line)
        depth = len(found[1]) // 4 + (1 if "── " in line else 0)
        above = [*above[:depth], found[2].rstrip("/")]
        paths.add("/".join(above))
    return paths


def test_the_tree_is_the_tree(root):
    design = (root / "docs/design.md").read_text(encoding="utf-8")
    (tree,) = (text for _, text in blocks(design) if text.startswith("src/sordino/"))
    shown = listed(tree)
    folders = {
        str(path.parent.relative_to(root)) for path in (root / "src/sordino").rglob("*/__init__.py")
    }
    inside = {path for path in shown if path.startswith("src/sordino/")}
    assert inside == folders


def test_folders_of_tests_are_listed(root):
    listed = set(re.findall(r"`(tests/\w+)`", (root / "CONTRIBUTING.md").read_text("utf-8")))
    there = {
        str(path.relative_to(root))
        for path in (root / "tests").iterdir()
        if path.is_dir() and path.name != "__pycache__" and any(path.rglob("*.*"))
    }
    assert there <= listed


def test_the_tree_is_read_with_its_folders():
    tree = "a/\n├── b.py      text\n├── c/        more\n│   └── d.py  x\n└── e/\n    └── f.py"
    assert listed(tree) == {"a", "a/b.py", "a/c", "a/c/d.py", "a/e", "a/e/f.py"}
