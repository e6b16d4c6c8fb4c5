"""Planted privacy bugs: each is one edit of the source, and a named test must then fail.

The list is tests/data/mutants.toml, which docs/auditing.md is written from. Every mutant is planted
in a tree of links to the package, in which one file is another, and its test runs on that tree in a
process of its own, up to the first case that fails. On links alone those cases must pass, which is
seen in the end, in one process.
"""

import multiprocessing
import os
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MUTANTS = tomllib.loads((ROOT / "tests/data/mutants.toml").read_text(encoding="utf-8"))["mutant"]
NO_NOISE = {"base", "catalogue", "ellipsoid"}  # promise nothing of their own
LEAST = 15
# A test runs in a process of its own, forked from one that has imported what is slow to import,
# and nothing of the package. Modules that are loaded cannot be rewritten for better messages. That
# a test fails is enough: no smaller example is looked for.
PROGRAM = """
import gc, os, pathlib, sys
gc.freeze()  # what was imported before is not looked through again and again
root, source, log = map(str, at)
for stream in (1, 2):
    os.dup2(os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND), stream)
os.chdir(root)
sys.path.insert(0, source)
os.environ.update(
    PYTHONPATH=source, PYTHONDONTWRITEBYTECODE="1", HYPOTHESIS_PROFILE="first-failure"
)
sys.dont_write_bytecode = True
import pytest, sordino
assert sordino.__file__.startswith(source), sordino.__file__
class Failed:
    def pytest_runtest_logreport(self, report):
        if report.failed:
            pathlib.Path(log).with_name("failed.txt").write_text(report.nodeid, encoding="utf-8")

words = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no", "--assert=plain"]
sys.exit(int(pytest.main([*tests, *words], plugins=[Failed()])))
"""
STARTED = multiprocessing.get_context("forkserver")
STARTED.set_forkserver_preload([
    "schemathesis.pytest.plugin", "anyio.pytest_plugin", "hypothesis.extra.numpy", "mpmath",
    "scipy.stats", "scipy.optimize", "dp_accounting.pld.privacy_loss_distribution",
    "dp_accounting.rdp", "opendp.measurements", "jaxtyping", "pyarrow.parquet", "trl", "peft",
])  # fmt: skip


def edits(mutant):
    """The replacements of one mutant: (old, new)."""
    yield mutant["old"], mutant["new"]
    if "also" in mutant:
        yield tuple(mutant["also"])


def link_all(source, folder):
    """Make a folder of links to everything in another one."""
    folder.mkdir(parents=True)
    for path in source.iterdir():
        (folder / path.name).symlink_to(path)


def edited(mutant):
    """Return the text of the file with the bug in it."""
    text = (ROOT / "src/sordino" / mutant["file"]).read_text(encoding="utf-8")
    for old, new in edits(mutant):
        assert text.count(old) == 1, f"{mutant['name']}: the source has changed; plant it anew"
        text = text.replace(old, new)
    return text


def plant(mutant, folder):
    """Make a tree of links to the package with one bug in it; the rest is compiled already."""
    place = Path("sordino", mutant["file"])
    link_all(ROOT / "src", folder)
    for parent in reversed(place.parents[:-1]):  # folders on the way to the file
        (folder / parent).unlink()
        link_all(ROOT / "src" / parent, folder / parent)
    (folder / place).unlink()
    text = edited(mutant)
    compile(text, str(place), "exec")
    (folder / place).write_text(text, encoding="utf-8")
    os.utime(folder / place, (1, 1))  # no compiled file is of this time


def outcome(tests, source):
    """Run tests against a copy of the package; return the exit code and what was printed."""
    log = source.parent / "printed.txt"
    process = STARTED.Process(
        target=exec, args=(PROGRAM, {"tests": tests, "at": [ROOT, source, log]})
    )
    process.start()
    process.join(600 + 10 * len(tests))
    process.kill()
    process.join()
    return process.exitcode, log.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def passes(tmp_path_factory):
    """Return what notes a case; in the end all of them must pass on a copy without a bug."""
    cases = {}
    yield cases.setdefault
    if cases:
        source = tmp_path_factory.mktemp("whole") / "src"
        link_all(ROOT / "src", source)
        code, text = outcome(list(cases), source)
        assert code == 0, f"a case fails by itself, without a bug: {text[-2000:]}"


@pytest.mark.deep
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant["name"])
def test_a_planted_bug_is_caught_by_its_test(tmp_path, passes, mutant):
    if "[postgresql]" in mutant["caught_by"] and "SORDINO_TEST_POSTGRES" not in os.environ:
        pytest.skip("SORDINO_TEST_POSTGRES names no PostgreSQL server")
    plant(mutant, tmp_path / "src")
    code, text = outcome([mutant["caught_by"]], tmp_path / "src")
    assert code == 1, text[-2000:]
    assert re.search(r"\b1 failed", text), f"it must fail, not break: {text[-2000:]}"
    assert " error" not in text.splitlines()[-1], text[-2000:]
    passes((tmp_path / "failed.txt").read_text(encoding="utf-8"))


def test_every_bug_can_be_planted_and_names_a_test():
    for mutant in MUTANTS:
        file, _, test = mutant["caught_by"].partition("::")
        name = test.partition("[")[0].rpartition("::")[2]
        assert f"def {name}(" in (ROOT / file).read_text("utf-8"), mutant["caught_by"]
        assert edited(mutant)


def test_every_mechanism_has_a_mutant():
    folder = ROOT / "src/sordino/mechanisms"
    names = {path.stem for path in folder.rglob("*.py") if not path.stem.startswith("_")}
    planted = {Path(m["file"]).stem for m in MUTANTS if m["file"].startswith("mechanisms/")}
    assert names - NO_NOISE <= planted, names - NO_NOISE - planted


def test_there_are_enough_and_no_name_twice():
    names = [mutant["name"] for mutant in MUTANTS]
    assert len(set(names)) == len(names) >= LEAST
