"""What many tests need: budgets, ledgers, and private pairs."""

from __future__ import annotations

import fcntl
import gc
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the tests themselves run side by side
os.environ.setdefault("OMP_NUM_THREADS", "1")  # PyTorch's threads wait for each other by spinning

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, is_hypothesis_test, settings

import sordino

MEMORY = Path("/dev/shm")
ROOMY = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 6 * 2**30
if ROOMY and "TMPDIR" not in os.environ:
    # A ledger waits for the disk at every entry; a kill, unlike a power cut, loses nothing here.
    os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="tests-", dir=MEMORY)  # of the workers too
    tempfile.tempdir, OWN_FOLDER = None, os.environ["TMPDIR"]
    Path(OWN_FOLDER).chmod(0o711)  # some tests of root are another user for a moment
else:
    OWN_FOLDER = None

# The same examples in every run: what passed once passes again. HYPOTHESIS_PROFILE=explore draws
# new ones. No test fails because the machine is busy.
SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("repeatable", derandomize=True, **SLOW)
settings.register_profile("explore", **SLOW)
settings.register_profile(
    "first-failure",  # as repeatable, and the example that fails is not made smaller
    derandomize=True, phases=(Phase.explicit, Phase.generate), **SLOW,
)  # fmt: skip
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

SYSTEM_COINS = os.urandom

DEEP = {  # folders and files that run in `make test-all` only; others are marked test by test
    "browser", "scale", "statistical", "test_interrupted.py", "test_interrupted_answers.py",
    "test_person_crash.py", "test_several_processes.py",
}  # fmt: skip


FEW_EXAMPLES = 20  # of a property in `make test`; `make test-all` tries as many as it says


def pytest_ignore_collect(collection_path, config):
    """Import no file, in `make test`, of which no test runs there."""
    if config.option.markexpr == "not deep" and DEEP & set(collection_path.parts[-2:]):
        return True
    return None


UNTIL = "SORDINO_TESTS_UNTIL"


def pytest_addoption(parser):
    said = "begin no test after so many minutes; the commit says which files come first"
    parser.addoption("--for-minutes", type=float, metavar="MINUTES", help=said)


def pytest_configure(config):
    if config.option.for_minutes is not None:  # processes that run tests have it from the first one
        os.environ.setdefault(UNTIL, str(time.time() + 60 * config.option.for_minutes))


def pytest_runtest_setup(item):
    if item.config.option.for_minutes is not None and time.time() > float(os.environ[UNTIL]):
        pytest.skip("the minutes of --for-minutes are over")


def pytest_collection_modifyitems(config, items):
    if config.option.for_minutes is not None:
        command, here = ["git", "rev-parse", "HEAD"], Path(__file__).parent
        commit = subprocess.run(command, cwd=here, capture_output=True, check=False).stdout
        items.sort(key=lambda item: hashlib.sha256(commit + item.location[0].encode()).digest())
    for item in items:
        if DEEP & set(item.path.parts[-2:]):
            item.add_marker(pytest.mark.deep)
        if config.option.markexpr == "not deep" and is_hypothesis_test(getattr(item, "obj", None)):
            said = item.function._hypothesis_internal_use_settings or settings.default
            few = settings(said, max_examples=min(FEW_EXAMPLES, said.max_examples))
            item.function._hypothesis_internal_use_settings = few


def pytest_collection_finish():
    """Let no later collection of garbage walk over what modules hold."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(exitstatus):
    """Leave nothing in memory, unless a failure is to be looked at."""
    if OWN_FOLDER is not None and exitstatus == pytest.ExitCode.OK:
        for left in Path(OWN_FOLDER).iterdir():
            if left.is_dir() and not left.name.startswith("pymp-"):  # that goes at exit by itself
                shutil.rmtree(left, ignore_errors=True)
            with suppress(OSError):
                left.unlink()
        with suppress(OSError):
            Path(OWN_FOLDER).rmdir()


class Coins:
    """What tests get for the system's coins: for each test the same ones in every run.

    One false alarm in a thousand is fine for a test alone, and not where there are thousands.
    Processes that a test starts, and tests run with TEST_COINS=system, have the system's.
    """

    def __init__(self) -> None:
        """Start with the system's."""
        self._generator: np.random.Generator | None = None
        self._process = os.getpid()

    def urandom(self, n: int) -> bytes:
        """Return n bytes of the stream that is on, or of the system if none is."""
        if self._generator is None or os.getpid() != self._process:
            return SYSTEM_COINS(n)
        return self._generator.bytes(n)

    @contextmanager
    def named(self, name: str) -> Iterator[None]:
        """Switch to the stream of a name for a while."""
        before = self._generator
        self._generator = np.random.default_rng(list(hashlib.sha256(name.encode()).digest()))
        try:
            yield
        finally:
            self._generator = before


COINS = Coins()
if os.environ.get("TEST_COINS", "same") != "system":
    os.urandom = COINS.urandom


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Give every test coins of its own."""
    with COINS.named(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """Give fixtures that tests share coins of their own, whichever test comes first."""
    if fixturedef.scope == "function":
        return (yield)
    with COINS.named(f"{fixturedef.baseid}/{fixturedef.argname}/{request.param_index}"):
        return (yield)


@pytest.fixture(autouse=True)
def _nothing_finalized_at_the_end_of_the_stack(request):
    """Keep the collector away from tests of deep nesting.

    What it finds there, of whatever test before, has no stack left to be finalized on.
    """
    if not request.node.name.endswith("deep]"):
        yield
        return
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session")
def built_site(tmp_path_factory):
    """Return the site, built strictly by whichever process of the tests comes first."""
    pytest.importorskip("material", reason="the extra 'docs' is not installed")
    base = tmp_path_factory.getbasetemp()
    place = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "site"
    with (place.parent / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "index.html").exists():
            done = subprocess.run(
                [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)],
                cwd=Path(__file__).resolve().parents[1],
                env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr[-3000:]
            assert "WARNING" not in done.stderr
    return place


SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture
def budget() -> Callable[..., sordino.Guarantee]:
    """Return a maker of label budgets."""

    def make(epsilon: float = 2.0, *, trust: str = "central") -> sordino.Guarantee:
        return sordino.Guarantee(
            epsilon, delta=0.0, unit="label", neighbors=sordino.REPLACE_ONE, trust=trust
        )

    return make


@pytest.fixture(name="ledger")
def _ledger(open_ledger):
    """Return the same maker under its short name."""
    return open_ledger


@pytest.fixture
def open_ledger(tmp_path, budget) -> Callable[..., sordino.Ledger]:
    """Return a maker of ledgers, each in a folder of its own."""
    made = iter(range(1000))

    def make(epsilon: float = 2.0, *, trust: str = "central") -> sordino.Ledger:
        folder = tmp_path / f"ledger-{next(made)}"
        folder.mkdir()
        return sordino.Ledger.open(
            folder / "spend.db", data="test", budget=budget(epsilon, trust=trust)
        )

    return make


@pytest.fixture
def few_parts(monkeypatch) -> None:
    """Bring people together in four parts of many files: what holds for them holds for more."""
    # all are loaded before the first is changed: else one would keep the number of the other
    names = (
        "engines.exchange",
        "preferences.chunk_survey",
        "privatization.chunks",
        "rewards.metrics",
    )
    for module in [import_module(f"sordino.{name}") for name in names]:
        monkeypatch.setattr(module, "PARTS", 4)
    monkeypatch.setattr("sordino.privatization.chunks._FEW", 0)  # however few there are
    monkeypatch.setattr("sordino.engines.exchange._HEAD", 8 * 5)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # no power is cut here


@pytest.fixture
def account(tmp_path) -> Callable[..., sordino.Ledger]:
    """Return a maker of ledgers of labels or persons, each in a folder of its own."""
    made = iter(range(10_000))

    def make(unit: str = "label", epsilon: float = 1000.0) -> sordino.Ledger:
        folder = tmp_path / f"account-{next(made)}"
        folder.mkdir()
        budget = sordino.Guarantee(
            epsilon, delta=0.0, unit=unit, neighbors=sordino.REPLACE_ONE, trust="central"
        )
        return sordino.Ledger.open(folder / "spend.db", data="answers", budget=budget)

    return make


@pytest.fixture
def linear_world() -> Callable[..., tuple[sordino.Pairs, np.ndarray]]:
    """Return a maker of Bradley-Terry pairs with a known reward."""

    def make(n: int, d: int, *, size: float = 2.0, seed: int = 0):
        generator = np.random.default_rng(seed)
        theta = generator.normal(size=d)
        theta *= size / np.linalg.norm(theta)
        rows = generator.normal(size=(n, d))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        labels = generator.random(n) < 1 / (1 + np.exp(-rows @ theta))
        return sordino.Pairs.from_features(rows, labels.astype(int)), theta

    return make


@pytest.fixture
def shared_data() -> Path:
    """Return the folder of real data, or skip."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the folder of real data is not beside this checkout")
    return SHARED_DATA
