"""One Ray at a time, started and stopped here, and nothing of it left behind."""

import fcntl
import os
import sys
import time
from pathlib import Path

import psutil
import pytest

SOON = 10  # seconds
START_AND_STOP = 60  # seconds, that are permitted for both together
CORES = 2


@pytest.fixture(scope="package")
def one_ray(tmp_path_factory):
    """Wait until no other process of this test run has a Ray of its own."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (base / "ray.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def family(process=None):
    """All processes that one started, and what these started."""
    return (process or psutil.Process()).children(recursive=True)


def remaining(processes):
    """Those that do not end soon, by name and command."""
    _, alive = psutil.wait_procs(processes, timeout=SOON)
    return [(one.name(), one.cmdline()) for one in alive if one.is_running()]


@pytest.fixture(scope="package")
def no_word_on_threads():
    """Take away what tests/conftest.py says on threads: Ray's workers are to know by themselves."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="package")
def started_ray(one_ray, no_word_on_threads):
    """Ray on this machine, which starts and stops within a minute and leaves nothing behind."""
    from sordino.engines.ray_data import RayData

    before = set(family())
    home = Path.home() / ".ray"
    known = home.exists()
    clock = time.monotonic()
    with RayData(cores=CORES) as engine:
        seconds = time.monotonic() - clock
        folder = place()
        assert folder.stat().st_mode & 0o077 == 0
        yield engine, folder
        started = [one for one in family() if one not in before]
        assert started
        clock = time.monotonic()
    seconds += time.monotonic() - clock
    assert remaining(started) == []
    assert not folder.exists()
    assert home.exists() == known  # no token was written into the user's home
    assert "RAY_AUTH_TOKEN" not in os.environ
    assert seconds < START_AND_STOP


@pytest.fixture
def ray_engine(started_ray):
    return started_ray[0]


@pytest.fixture
def written(started_ray):
    """Return a reader of all that Ray wrote so far."""
    folder = started_ray[1]
    return lambda: b"".join(p.read_bytes() for p in folder.rglob("*") if p.is_file())


def place():
    """The folder that the Ray of this process writes to."""
    import ray

    return Path(ray._private.worker._global_node.get_session_dir_path()).parents[1]


@pytest.fixture(scope="module", autouse=True)
def _tasks_are_sent_by_value(request):
    """A worker cannot import the files of tests."""
    from ray import cloudpickle

    module = sys.modules[request.module.__name__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)
