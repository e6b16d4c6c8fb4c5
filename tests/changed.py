"""Prints the tests of what has changed since a commit: those changed, and those that import it.

python tests/changed.py            since where this branch left main, with what is not committed
python tests/changed.py COMMIT     since that commit
"""

import ast
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks/utility")]  # as pyproject.toml has it


def git(*words: str) -> list[str]:
    """Return the lines that git prints."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def changed(base: str) -> set[Path]:
    """Return the files that differ from a commit, and those that git does not know yet."""
    names = git("diff", "--name-only", base) + git("ls-files", "--others", "--exclude-standard")
    return {ROOT / name for name in names if (ROOT / name).exists()}


def tests_of(files: set[Path]) -> set[Path]:
    """Return the test files among these, and those that name a changed module of the package."""
    found = {file for file in files if file.name.startswith("test_") and file.suffix == ".py"}
    modules = {
        ".".join(file.relative_to(ROOT / "src").with_suffix("").parts)
        for file in files
        if file.suffix == ".py" and file.is_relative_to(ROOT / "src")
    }
    if not modules:
        return found
    forms = []
    for module in modules:
        package, _, name = module.rpartition(".")
        forms.append(rf"{re.escape(module)}\b|from {re.escape(package)} import .*\b{name}\b")
    named = re.compile("|".join(forms))
    everywhere = (ROOT / "tests").rglob("test_*.py")
    return found | {file for file in everywhere if named.search(file.read_text(encoding="utf-8"))}


def runs_here(file: Path) -> bool:
    """Return whether what a test imports first is installed; say so where it is not."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    names = [a.name for node in tree.body if isinstance(node, ast.Import) for a in node.names]
    names += [n.module or "" for n in tree.body if isinstance(n, ast.ImportFrom) and not n.level]
    missing = [
        name
        for name in names
        if not find_spec(name.partition(".")[0]) and not (file.parent / f"{name}.py").exists()
    ]
    if missing:
        where = file.relative_to(ROOT)
        sys.stderr.write(f"Left out: {where} needs {missing[0]} (make test installs it).\n")
    return not missing


if __name__ == "__main__":
    since = sys.argv[1] if len(sys.argv) > 1 else git("merge-base", "main", "HEAD")[0]
    files = sorted(file for file in tests_of(changed(since)) if runs_here(file))
    print(*(file.relative_to(ROOT) for file in files), sep="\n")
