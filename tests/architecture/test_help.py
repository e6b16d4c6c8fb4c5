"""The manual and ``--help`` cannot drift apart, nor can any other generated page."""

import os
import re
import subprocess
import sys

import pytest

from sordino.cli import _RUNS, COMMANDS
from sordino.runs.align_settings import Align

AGAIN = "run `python docs/make.py`"


def make(root, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "docs/make.py", *arguments],
        cwd=root,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
    )


def test_generated_pages_are_up_to_date(root):
    """Also on a narrow terminal and where colors are forced: the width is fixed."""
    result = make(root, "--check", COLUMNS="40", FORCE_COLOR="1", GITHUB_ACTIONS="true")
    assert result.returncode == 0, f"{result.stdout}{result.stderr[-1500:]}{AGAIN}"


@pytest.mark.deep
def test_the_page_is_what_help_prints(root):
    """One command asked from outside, as a user does."""
    environment = {"COLUMNS": "96", "TERMINAL_WIDTH": "96", "NO_COLOR": "1", "TERM": "dumb"}
    environment["PYTHONUTF8"] = "1"
    kept = {n: v for n, v in os.environ.items() if n not in {"FORCE_COLOR", "GITHUB_ACTIONS"}}
    program = "import sys; from sordino.cli import app; app(sys.argv[1:], prog_name='sordino')"
    result = subprocess.run(
        [sys.executable, "-c", program, "privatize", "--help"],
        env=kept | environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=True,
    )
    shown = "\n".join(line.rstrip() for line in result.stdout.splitlines()).strip("\n")
    page = (root / "docs/cli.md").read_text(encoding="utf-8")
    assert f"## `sordino privatize`\n\n```text\n{shown}\n```\n" in page


def test_texts_have_as_many_features_as_help_says(root):
    """Tests of commands and of the README learn fewer, to be quick."""
    page = (root / "docs/cli.md").read_text(encoding="utf-8")
    align = page.split("## `sordino align`", 1)[1].split("\n## ", 1)[0]
    said = " ".join(align.split("--dimension", 1)[1].split()).split("--", 1)[0]
    assert f"By default {Align(prefs=[], out=None).text_dimension};" in said


def test_every_command_has_its_section(root):
    page = (root / "docs/cli.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^## `sordino (\w+)", page, re.MULTILINE))
    folder = root / "src/sordino/cli"
    files = {path.stem for path in folder.glob("[a-z]*.py")}
    assert listed == set(COMMANDS) == files | set(_RUNS)
