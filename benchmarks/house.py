"""Prints as JSON how large the house is, and how many files of the package three journeys cross.

tests/architecture/test_sizes.py counts with the functions of this file, and holds the ceilings.

python benchmarks/house.py [--files]      with --files also each journey's files, least lines first
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import subprocess
import sys
import tempfile
import threading
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "sordino"
LEDGER = "privacy/ledger.py"
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One Python file: its path below the folder that was read, and its text."""

    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Return the file as a syntax tree."""
        return ast.parse(self.text)

    @property
    def lines(self) -> int:
        """Return how many lines there are, empty ones too."""
        return self.text.count("\n")

    @property
    def comments(self) -> int:
        """Return how many comments there are; what ``#`` means inside a string is none."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return sum(token.type == tokenize.COMMENT for token in tokens)

    @property
    def module(self) -> str:
        """Return the dotted name, below the folder's own."""
        return ".".join(self.path.with_suffix("").parts).removesuffix("__init__").rstrip(".")


def read_sources(folder: Path) -> list[Source]:
    """Return all Python files of a folder in the order of their paths."""
    files = sorted(folder.rglob("*.py"))
    return [Source(file.relative_to(folder), file.read_text(encoding="utf-8")) for file in files]


def comments_per_thousand(sources: list[Source]) -> float:
    """Return how many comments there are in 1,000 lines."""
    return 1000 * sum(s.comments for s in sources) / sum(s.lines for s in sources)


def public_definitions(sources: list[Source]) -> list[tuple[str, str]]:
    """Return module and name of each class and function at module level without an underscore."""
    return [
        (source.module, node.name)
        for source in sources
        for node in source.tree.body
        if isinstance(node, FUNCTION | ast.ClassDef) and not node.name.startswith("_")
    ]


def used_once(sources: list[Source]) -> list[tuple[str, str]]:
    """Return module and name of each function and method that one place alone names."""
    # By name, so that what shares its name with another definition is never counted.
    uses: Counter[str] = Counter()
    homes = defaultdict(list)
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, FUNCTION):
                homes[node.name].append(source.module)
            elif isinstance(node, ast.Name):
                uses[node.id] += 1
            elif isinstance(node, ast.Attribute):
                uses[node.attr] += 1
    return [
        (modules[0], name)
        for name, modules in homes.items()
        if len(modules) == uses[name] == 1 and not name.startswith("__")
    ]


def reservations(sources: list[Source]) -> list[str]:
    """Return where a ledger's ``reserve`` is called outside the ledger's own file."""
    return [
        f"{source.path}:{node.lineno}"
        for source in sources
        if source.path.as_posix() != LEDGER
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", None) == "reserve"
    ]


def imports(sources: list[Source], package: str = "sordino") -> dict[str, set[str]]:
    """Return for each module the modules of the package that it imports when it runs."""
    # Imports inside functions count: a cycle is one, however late it closes.
    known = {source.module for source in sources}
    found: dict[str, set[str]] = {}
    for source in sources:
        names: set[str] = set()
        here = source.path.parent.parts
        for node in _when_it_runs(source.tree):
            if isinstance(node, ast.Import):
                names |= {alias.name.removeprefix(f"{package}.") for alias in node.names}
                continue
            above = here[: len(here) - node.level + 1] if node.level else ()
            stem = ".".join([*above, *filter(None, [node.module])])
            stem = stem if node.level else f"{stem}.".removeprefix(f"{package}.").rstrip(".")
            below = {f"{stem}.{alias.name}".lstrip(".") for alias in node.names}
            names |= below & known or {stem}
        found[source.module] = names & known - {source.module}
    return found


def _when_it_runs(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports below a node that are not for type checkers alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            yield from _when_it_runs(child)


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Return modules that import each other in a circle, or nothing."""
    done: set[str] = set()

    def search(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        for imported in sorted(graph[module]):
            if found := search(imported, [*path, module]):
                return found
        done.add(module)
        return []

    return next((found for module in sorted(graph) if (found := search(module, []))), [])


def measure() -> dict[str, object]:
    """Return the numbers of the house that reading its files gives."""
    src, tests = read_sources(PACKAGE), read_sources(ROOT / "tests")
    return {
        "src lines": sum(source.lines for source in src),
        "src files": len(src),
        "longest src file": max(source.lines for source in src),
        "tests lines": sum(source.lines for source in tests),
        "tests files": len(tests),
        "comments per 1,000 lines": round(comments_per_thousand(src), 1),
        ": Any": sum(source.text.count(": Any") for source in src),
        "functions used once": len(used_once(src)),
        "public definitions": len(public_definitions(src)),
        "reserve outside the ledger": len(reservations(src)),
    }


class Recorder:
    """Notes which functions of the package run while it is on, in every thread."""

    def __init__(self) -> None:
        """Note nothing yet."""
        self._codes: set[CodeType] = set()

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        """Keep the code of a function that begins; bodies of modules and classes are none."""
        if event == "call" and frame.f_code.co_flags & CO_OPTIMIZED:
            self._codes.add(frame.f_code)

    def __enter__(self) -> Self:
        """Begin."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        sys.setprofile(None)
        threading.setprofile(None)

    def lines(self) -> dict[str, int]:
        """Return for each file how many lines the functions have that ran, least first."""
        found: dict[str, set[int]] = defaultdict(set)
        for code in self._codes:
            path = Path(code.co_filename)
            if path.is_relative_to(PACKAGE) and path.suffix == ".py":  # no template
                lines = {line for _, _, line in code.co_lines() if line}
                found[path.relative_to(PACKAGE).as_posix()] |= lines
        return dict(sorted(((path, len(n)) for path, n in found.items()), key=lambda row: row[1]))


def _simulated(folder: Path, *, pairs: int = 600) -> str:
    """Write simulated pairs and return the name of their file."""
    from sordino import cli

    name = str(folder / "prefs.jsonl")
    _checked(cli.run(["simulate", "pairs", "--n", str(pairs), "--out", name]))
    return name


def _checked(code: int) -> None:
    """Go on only if a command ended well."""
    if code:
        sys.exit(code)


def align(folder: Path) -> Recorder:
    """Run ``align --noise estimate`` from the command line's entry to its end."""
    from sordino import cli

    words = ["align", _simulated(folder), "--noise", "estimate", "--epsilon", "2"]
    with Recorder() as seen:
        out = folder / "run"  # its ledger too, and not that of a project around this folder
        _checked(cli.run([*words, "--out", str(out), "--ledger", str(folder / "spend.db")]))
    return seen


def fit_reward(folder: Path) -> Recorder:
    """Call ``fit_reward`` on raw pairs with one noised sum of their labels."""
    import sordino

    budget = sordino.Guarantee.per_label(2.0, delta=1e-6)
    ledger = sordino.Ledger.open(folder / "spend.db", data="x", budget=budget)
    pairs, features = sordino.read_pairs(_simulated(folder)), sordino.HashedText(dimension=64)
    coin = sordino.LabelGaussian(epsilon=1.0, delta=1e-6)
    with Recorder() as seen:
        sordino.fit_reward(pairs, features=features, mechanism=coin, ledger=ledger)
    return seen


def training_step(folder: Path) -> Recorder:
    """Take the first step of DP-SGD on the reward of a tiny model, from its call to its end."""
    import sordino
    from sordino import cli
    from sordino.language import CentralPrivacy, CentralRewardConfig, CentralRewardTrainer

    source, model = _simulated(folder, pairs=200), str(folder / "tiny")
    size = ["--width", "16", "--layers", "1", "--heads", "2", "--context", "256"]
    size += ["--vocabulary", "320", "--steps", "15"]
    _checked(cli.run(["language", "tiny", source, *size, "--out", model]))
    others = [  # than the model has read
        {"prompt": f"question {i}", "chosen": f"yes {i}", "rejected": f"no {i}"} for i in range(200)
    ]
    hidden = sordino.ADD_OR_REMOVE_ONE
    budget = sordino.Guarantee(100.0, delta=1e-5, unit="record", neighbors=hidden, trust="central")
    seen = Recorder()

    class Trainer(CentralRewardTrainer):
        """Steps that are recorded."""

        def training_step(self, *given: Any, **named: Any) -> Any:
            """Take a step."""
            with seen:
                return super().training_step(*given, **named)

    trainer = Trainer(
        model,
        CentralRewardConfig(str(folder / "out"), save_strategy="no", disable_tqdm=True),
        train_dataset=sordino.read_pairs(others),
        privacy=CentralPrivacy(
            8.0,
            1e-5,
            sampling_probability=0.1,
            steps=1,
            expected_batch=20,
            unit="record",
            neighbors=hidden,
        ),
        ledger=sordino.Ledger.open(folder / "spend.db", data="x", budget=budget),
        declare_unread=True,
    )
    trainer.train()
    return seen


JOURNEYS: dict[str, Callable[[Path], Recorder]] = {
    "align --noise estimate": align,
    "fit_reward with LabelGaussian": fit_reward,
    "one step of DP-SGD": training_step,
}


def _travel(name: str) -> dict[str, int]:
    """Take one journey in this process: files and lines of the functions that ran."""
    deep = JOURNEYS[name] is training_step
    for source in read_sources(PACKAGE):  # what an import runs is not the journey's
        if source.module != "__main__" and (deep or not source.module.startswith("language")):
            import_module(f"sordino.{source.module}".rstrip("."))
    with tempfile.TemporaryDirectory() as folder:
        return JOURNEYS[name](Path(folder)).lines()


def travel(name: str) -> dict[str, int]:
    """Take one journey in a process of its own, so that none finds what another has cached."""
    command = [sys.executable, "-W", "ignore", __file__, "--journey", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name}: {done.stderr[-2000:]}")
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", action="store_true", help="list each journey's files")
    parser.add_argument("--journey", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.journey:
        print("\n" + json.dumps(_travel(asked.journey)))
        sys.exit()
    journeys = {name: travel(name) for name in JOURNEYS}
    shown = journeys if asked.files else {name: len(files) for name, files in journeys.items()}
    print(json.dumps({**measure(), "files crossed": shown}, indent=2))
