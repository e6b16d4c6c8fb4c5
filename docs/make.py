# ruff: noqa: INP001 (a script, not a package)
"""Writes every part of the documents that is generated, or checks that it is up to date.

python docs/make.py            write cli.md, papers.md, numbers.md and the marked parts of pages
python docs/make.py --check    change nothing; fail if something would change
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import claims

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
import report

# Before sordino.cli is imported: the width and the style of --help do not depend on a terminal.
WIDTH = "96"
for _name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(_name, None)
os.environ.update(COLUMNS=WIDTH, TERMINAL_WIDTH=WIDTH, NO_COLOR="1", TERM="dumb", LC_ALL="C.UTF-8")

ROOT = Path(__file__).resolve().parents[1]
FLOW = [
    "engines", "privacy", "mechanisms", "preferences", "privatization", "rewards", "policies",
    "environments", "algorithms", "language", "auditing", "collection", "reporting", "runs",
    "cli",
]  # fmt: skip
CLI_HEADER = """# Command line

The `--help` of every command, written by `python docs/make.py`; a test compares the two.
`python -m sordino` is the same as `sordino`.

With `--json` a command prints one JSON object on standard output and nothing else there; messages
and progress go to standard error. Exit codes: 0 done, 1 a bug in sordino, 2 usage (a bad setting,
an existing output, a missing extra, a request that would break a promise), 3 over budget, 4 bad
data, 5 an audit refuted a claim, 6 an audit cannot tell, 7 file system, 8 ledger damaged or of
another data set, 9 a policy is not met, 130 interrupted.
"""


def help_of(*words: str) -> str:
    """Return what ``sordino WORDS --help`` prints."""
    from sordino.cli import app  # noqa: PLC0415 (after the environment was set)

    out = io.StringIO()
    with redirect_stdout(out):
        app(args=[*words, "--help"], prog_name="sordino", standalone_mode=False)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    return "\n".join(lines).strip("\n")


def commands() -> Iterator[tuple[str, ...]]:
    """Yield every command, as the words that follow ``sordino``."""
    from sordino.cli import COMMANDS, load_command  # noqa: PLC0415

    yield ()
    for name in COMMANDS:
        command = load_command(name)
        yield (name,)
        yield from ((name, below) for below in sorted(getattr(command, "commands", {})))


def cli_page() -> str:
    """Return ``docs/cli.md``."""
    parts = (
        f"## `{' '.join(('sordino', *words))}`\n\n```text\n{help_of(*words)}\n```\n"
        for words in commands()
    )
    return "\n".join([CLI_HEADER, *parts])


def support_rows() -> str:
    """Return the accounting support table as Markdown: one row for each event and relation."""
    from sordino.privacy.accountants import support_table  # noqa: PLC0415

    cells: dict[tuple[str, str], dict[str, str]] = {}
    notes: dict[str, int] = {}
    for row in support_table():
        mark = "yes"
        if not row["supported"]:
            mark = f"no [{notes.setdefault(str(row['why']), len(notes) + 1)}]"
        cells.setdefault((str(row["event"]), str(row["relation"])), {})[str(row["accountant"])] = (
            mark
        )
    accountants = list(next(iter(cells.values())))
    head = ["event", "relation", *accountants]
    rows = [
        [f"`{event}`", f"`{relation}`", *by.values()] for (event, relation), by in cells.items()
    ]
    lines = [" | ".join(head), " | ".join("---" for _ in head), *map(" | ".join, rows)]
    listed = [f"[{number}] {why}." for why, number in notes.items()]
    return "\n".join(f"| {line} |" for line in lines) + "\n\n" + "  \n".join(listed)


def caveat_rows() -> str:
    """Return every caveat with its sentence as Markdown."""
    from sordino.privacy.guarantee import CAVEATS  # noqa: PLC0415

    rows = [f"| `{name}` | {says} |" for name, says in sorted(CAVEATS.items())]
    return "\n".join(["| caveat | what it says |", "| --- | --- |", *rows])


def first_sentence(path: Path) -> str:
    """Return the first line of a module's docstring, without its full stop."""
    lines = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").splitlines()
    text = (lines or [""])[0].replace("``", "").rstrip(".")
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def packages(folder: Path) -> list[Path]:
    """Return the packages inside a package."""
    return [path for path in sorted(folder.iterdir()) if (path / "__init__.py").exists()]


def tree() -> str:
    """Return the annotated tree of the source: its folders alone."""
    package = ROOT / "src" / "sordino"
    folders = packages(package)
    folders.sort(key=lambda p: FLOW.index(p.name) if p.name in FLOW else len(FLOW))
    lines = ["src/sordino/"]
    for folder in folders:
        last, inside = folder == folders[-1], packages(folder)
        stem, bar = ("└──", "    ") if last else ("├──", "│   ")
        lines.append(f"{stem} {folder.name + '/':<20}{first_sentence(folder / '__init__.py')}")
        for path in inside:
            twig = "└──" if path == inside[-1] else "├──"
            lines.append(f"{bar}{twig} {path.name + '/':<16}{first_sentence(path / '__init__.py')}")
    return "```text\n" + "\n".join(lines) + "\n```"


def mutant_rows() -> str:
    """Return the planted privacy bugs as a table: what each would leak, and what catches it."""
    text = (ROOT / "tests" / "data" / "mutants.toml").read_text(encoding="utf-8")
    rows = []
    for mutant in tomllib.loads(text)["mutant"]:
        path, test = mutant["caught_by"].split("::")
        caught = f"[{Path(path).stem}](../{path})`::{test}`"
        rows.append(f"| {mutant['name']} | {mutant['leaks']} | `{mutant['file']}` | {caught} |")
    head = ["| planted bug | what it would leak | where | caught by |", "|---|---|---|---|"]
    return "\n".join([*head, *rows])


def board_rows() -> str:
    """Return how well private boards order language models, for every unit and ε."""
    path = ROOT / "benchmarks" / "results" / "ranking_judged.json"
    found = json.loads(path.read_text("utf-8"))
    said = {"label": "a vote", "person": "a person", "none": "nothing"}
    lines = [
        "| hidden | noise on | ε | Spearman | ± | 95%, points | ranks in range |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {said[row['unit']]} | {row['noise'] if row['epsilon'] else '–'} | "
            f"{'–' if row['epsilon'] is None else format(row['epsilon'], 'g')} | "
            f"{row['spearman']:.3f} | {row['spread']:.3f} | ± {row['points']:.0f} | "
            f"{100 * row['inside']:.1f}% |"
            for row in found["results"]
        ),
    ]
    setting = (
        f"{found['battles']:,} battles of {found['models']} language models on {found['prompts']} "
        f"prompts, {found['votes_per_person']} of one person, δ = {found['delta']:g}; order "
        "against the mean preference on all prompts; mean and standard deviation of "
        f"{found['seeds']} runs (`benchmarks/utility/ranking_judged.py`, which says how a battle "
        "is made)."
    )
    return "\n".join([*lines, "", setting])


def best_of_n(part: str) -> str:
    """Return a table of best of n: what each noise chooses, what was foreseen, what draws cost."""
    path = ROOT / "benchmarks" / "results" / "best_of_n.json"
    found = json.loads(path.read_text("utf-8"))

    def number(value: float) -> str:
        return f"{value:.3f}".replace("0.", ".", 1)

    def told(value: dict[str, Any], *, signed: bool = False) -> str:
        ends = (number(end) for end in value["interval"])
        return f"{'+' * (signed and value['mean'] >= 0)}{number(value['mean'])} [{', '.join(ends)}]"

    if part == "choices":
        epsilons = sorted({row["epsilon"] for row in found["rows"] if row["epsilon"] is not None})
        kinds: dict[tuple[str, str], dict[float | None, Any]] = {}
        for row in found["rows"]:
            kinds.setdefault((row["unit"], row["noise"]), {})[row["epsilon"]] = row
        (bare,) = kinds.pop(("none", "none")).values()
        said = (
            f"Any answer (SFT): {told(found['uniform'])}. The best there is: "
            f"{number(found['best_there_is']['mean'])}. Without privacy: accuracy "
            f"{told(bare['accuracy'])}, preference\n{told(bare['preference'])} at temperature .5, "
            f"{told(bare['cold'])} at .02, which all but takes the best."
        )
        shown = " | ".join(f"ε = {each:g}" for each in epsilons)
        lines = [said, "", f"| unit | noise | | {shown} |", "|" + "---|" * (3 + len(epsilons))]
        for (unit, noise), rows in kinds.items():
            head = [unit, noise]
            for name, said in (("accuracy", "accuracy"), ("preference", "preference"),
                               ("cold", "at .02")):  # fmt: skip
                values = [rows[each].get(name) for each in epsilons]
                if all(values):
                    show = told if name == "preference" else lambda value: number(value["mean"])
                    lines.append(f"| {' | '.join([*head, said, *map(show, values)])} |")
                    head = ["", ""]
        return "\n".join(lines)
    if part == "foreseen":
        lines = [
            "| ε | foreseen: coins, sum | gain foreseen | gain measured |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| {row['epsilon']:g} | {number(row['labels']['accuracy'])}, "
            f"{number(row['estimate']['accuracy'])} | {row['foreseen_gain']:+.3f} | "
            f"{told(row['gain'], signed=True)} |"
            for row in found["foreseen"]
        ]
        return "\n".join(lines)
    requests = found["crossover"][0]["requests"]
    head = [
        "judgments",
        "one release",
        *(f"{count:,} requests" if count > 1 else "1 request" for count in requests),
    ]
    lines = [f"| {' | '.join([*head, 'release ahead from', 'surely from'])} |"]
    lines.append("|" + "---|" * (len(head) + 2))
    for row in found["crossover"]:
        cells = [f"{row['n']:,}", told(row["release"])]
        cells += [number(value["mean"]) for value in row["withheld"]]
        cells += [f"{row[name]:g}" if row[name] else "–" for name in ("crossover", "clear_from")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def collection(name: str) -> str:
    """Return what was measured of the collection service, as sentences."""
    root = report.stored({"load": "collection_load", "killed": "killed_collection"}[name])
    text = report.told()["sentences"][name]
    return str(report.fill(text, root, root)).strip()


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "docs/design.md": {"tree": tree},
    "docs/auditing.md": {"mutants": mutant_rows},
    "docs/best_of_n.md": {
        name: partial(best_of_n, name) for name in ("choices", "foreseen", "requests")
    },
    "docs/howto/deploy_collection.md": {
        name: partial(collection, name) for name in ("load", "killed")
    },
    "docs/privacy.md": {"caveats": caveat_rows, "support": support_rows},
    "docs/ranking.md": {"judged": board_rows},
}


def filled(text: str, name: str, part: str) -> str:
    """Return a page with the text between two markers replaced."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise SystemExit(f"The markers of {name!r} must occur once.")
    middle = f"\n{part}\n" if part else "\n"
    return pattern.sub(lambda _: f"{begin}{middle}{end}", text)


def pages() -> dict[str, str]:
    """Return every page that has a generated part, as it should be."""
    result = {
        "docs/cli.md": cli_page(),
        "docs/papers.md": claims.page(),
        "docs/numbers.md": report.page(),
        f"docs/figures/{report.CHART}.svg": report.chart(),
    }
    for path, parts in PARTS.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        for name, make in parts.items():
            text = filled(text, name, make())
        result[path] = text
    return result


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for path, text in pages().items():
        file = ROOT / path
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            stale.append(path)
            if not check:
                file.write_text(text, encoding="utf-8")
    for path in stale:
        sys.stdout.write(f"{path} {'is out of date' if check else 'written'}\n")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
