# ruff: noqa: INP001 (a script, not a package)
"""Builds docs/papers.md from the docstrings of the tests that show what is true of each claim.

``python docs/make.py`` writes the page, and ``--check`` compares it.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
CLAIMS = TESTS / "claims" / "claims.toml"
KEYS = ("Claim", "Verdict", "Ours")
NAME = re.compile(r"\bsordino(?:\.\w+)+")

HEADER = """# Papers

Published claim → verdict → what sordino does → the test that shows it, in the order of each paper
and under the numbers that it gives. Written by `python docs/make.py` from the docstrings of these
tests; a test compares the two.

Verdicts were re-derived and attacked numerically; the numbers are (true value against claimed
value) of a counterexample, or the factor by which a claim is off. The published formulas stand in
`tests/claims`, under tests only. There every false certificate of KLDP is refuted by two policies
whose exact loss is computed apart from the library, and ours for the same instance is not.
"None yet" means that nothing is built, "none" that nothing will be; a bound that is proved and that
nothing needs is in `tests/claims/proved_bounds.py`.
"""

RUN = """Every algorithm of the papers is a command, or ten lines of Python: the example of each
name is in [by example](by_example.md) or in its own docstring (`help(sordino.plan)`).
`sordino reproduce` draws the figures again."""


@dataclass(frozen=True)
class Block:
    """What one docstring says of one claim."""

    claim: str
    verdict: str
    ours: str
    path: str
    test: str

    @property
    def names(self) -> list[str]:
        """Return the names of ours that it gives."""
        return NAME.findall(self.ours)

    @property
    def link(self) -> str:
        """Return the test as Markdown."""
        return f"[{Path(self.path).stem}](../{self.path})" + (f"`::{self.test}`" * bool(self.test))


def read(docstring: str) -> Iterator[dict[str, str]]:
    """Yield every block of a docstring: from ``Claim:`` to the next blank line."""
    for part in re.split(r"\n\s*\n|\n(?=Claim: )", docstring):
        values: dict[str, str] = {}
        last = ""
        for line in part.splitlines():
            key, colon, rest = line.partition(": ")
            if colon and key in KEYS:
                last, values[key] = key, rest.strip()
            elif last:
                values[last] += f" {line.strip()}"
        if "Claim" in values:
            yield values


def documented(body: list[ast.stmt], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield (name, docstring) of every function and class."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield above + node.name, ast.get_docstring(node) or ""
        if isinstance(node, ast.ClassDef):
            yield from documented(node.body, f"{above}{node.name}::")


def blocks() -> list[Block]:
    """Return what all tests say, in the order of their paths, those of ``claims`` first."""
    found = []
    for path in sorted(TESTS.rglob("test_*.py"), key=lambda p: (p.parent.name != "claims", p)):
        text = path.read_text(encoding="utf-8")
        if "Claim: " not in text:
            continue
        tree = ast.parse(text)
        named = [("", ast.get_docstring(tree) or ""), *documented(tree.body)]
        where = path.relative_to(ROOT).as_posix()
        found += [
            Block(*(values.get(key, "") for key in KEYS), where, name)
            for name, docstring in named
            for values in read(docstring)
        ]
    return found


def papers() -> list[dict[str, list[str] | str]]:
    """Return what is listed: key, title, statements and claims of every paper."""
    listed: list[dict[str, list[str] | str]] = tomllib.loads(CLAIMS.read_text("utf-8"))["paper"]
    return listed


def algorithms() -> list[dict[str, str]]:
    """Return what the papers teach, and how each is run."""
    listed: list[dict[str, str]] = tomllib.loads(CLAIMS.read_text("utf-8"))["algorithm"]
    return listed


def runnable(one: dict[str, str]) -> str:
    """Return one row of the table of algorithms."""
    ways = [f"`{one['run']}`"] * bool(one["run"]) + [f"`{one['python']}`"]
    page, test = one["page"], one["test"]
    cells = [one["paper"], one["name"], "; ".join(ways), f"[{page.partition('#')[0]}]({page})"]
    cells.append(f"[{Path(test).stem}](../{test})")
    cells.append(f"[figure](figures/{one['figure']}.svg)" if one["figure"] else "")
    return f"| {' | '.join(cells)} |"


def refuse_strays(found: list[Block]) -> None:
    """Refuse a block whose claim is not listed, or a claim without exactly one verdict."""
    listed = [f"{paper['key']}, {claim}" for paper in papers() for claim in paper["claims"]]
    strays = {block.claim for block in found} - set(listed)
    if strays:
        raise SystemExit(f"Not listed in {CLAIMS.name}: {sorted(strays)}.")
    for claim in listed:
        given = [block for block in found if block.claim == claim and block.verdict]
        if len(given) != 1 or not given[0].ours:
            raise SystemExit(f"{claim!r} has {len(given)} verdicts; it needs one, with Ours.")


def row(claim: str, shown: list[Block]) -> str:
    """Return one row of a table."""
    (main,) = (block for block in shown if block.verdict)
    ours = NAME.sub(lambda name: f"`{name[0]}`", main.ours)
    tests = ", ".join(dict.fromkeys(block.link for block in (main, *shown)))
    cells = (part.replace("|", "\\|") for part in (claim, main.verdict, ours))
    return f"| {' | '.join(cells)} | {tests} |"


def page() -> str:
    """Return ``docs/papers.md``."""
    found = blocks()
    refuse_strays(found)
    lines = [HEADER]
    lines += [f"- **{paper['key']}**: {paper['title']}" for paper in papers()]
    for paper in papers():
        lines += ["", f"## {paper['key']}", ""]
        lines += ["| claim | verdict | our function | test |", "|---|---|---|---|"]
        for claim in paper["claims"]:
            name = f"{paper['key']}, {claim}"
            lines.append(row(claim, [block for block in found if block.claim == name]))
    lines += ["", "## Run this", "", RUN, ""]
    lines += ["| paper | algorithm | command; Python | page | test | figure |", "|" + "---|" * 6]
    return "\n".join([*lines, *map(runnable, algorithms())]) + "\n"
