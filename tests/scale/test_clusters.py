"""A cluster that runs already is joined only if it was asked for, and is left as it was."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

PROGRAM = """
import sys, time
from sordino.engines.ray_data import RayData
from sordino.errors import SordinoError
for address in sys.argv[1:]:
    start = time.monotonic()
    try:
        with RayData(address or None) as engine:
            import ray
            print("at", ray.get_runtime_context().gcs_address)
            print("sum", engine.fold(range(40), float, lambda one, other: one + other))
    except SordinoError as error:
        print(round(time.monotonic() - start, 1), type(error).__name__, error)
"""


@pytest.fixture(scope="module")
def cluster(one_ray):
    """A cluster of one machine, in a folder of its own: its address, and settings that find it."""
    with tempfile.TemporaryDirectory(prefix="r-", dir="/tmp") as folder:
        settings = {name: value for name, value in os.environ.items() if "RAY_" not in name}
        settings |= {"RAY_TMPDIR": folder, "RAY_AUTH_MODE": "disabled"}
        command = [
            str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--port=0",
            "--num-cpus=1", "--include-dashboard=false", "--object-store-memory=100000000",
            "--disable-usage-stats", f"--temp-dir={folder}",
        ]  # fmt: skip
        with Path(folder, "out").open("wb") as out:
            head = subprocess.Popen(
                command, env=settings, stdout=out, stderr=out, start_new_session=True
            )
        try:
            yield started(Path(folder, "ray_current_cluster")), settings
        finally:
            family = [psutil.Process(head.pid), *psutil.Process(head.pid).children(recursive=True)]
            head.terminate()
            _, alive = psutil.wait_procs(family, timeout=5)
            for one in alive:
                end(one)
            head.wait()


def end(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


def started(file):
    end = time.monotonic() + 50
    while time.monotonic() < end:
        if file.exists() and file.read_text():
            return file.read_text()
        time.sleep(0.2)
    raise AssertionError(file.parent.joinpath("out").read_text())


def run(settings, *addresses):
    """The lines that a program prints that uses one address after the other."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *addresses], env=settings, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.mark.parametrize("word", [True, False])
def test_a_running_cluster_is_joined_by_its_address_or_as_the_one_here(cluster, word):
    address, settings = cluster
    assert run(settings, "auto" if word else address) == [f"at {address}", "sum 780.0"]


def test_without_an_address_no_cluster_is_joined(cluster):
    """Whether Ray would find one or the environment names one: this machine alone was asked for."""
    address, settings = cluster
    where, found = run(settings | {"RAY_ADDRESS": address}, "")
    assert where.startswith("at ")
    assert address not in where
    assert found == "sum 780.0"


def test_the_wrong_token_ends_in_an_error(cluster):
    """Ray would try for minutes, or join and wait."""
    address, settings = cluster
    wrong = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
    [said] = run(settings | wrong, address)
    assert f"UsageError The Ray cluster at address={address!r} was not joined" in said
    assert "RAY_AUTH_MODE" in said


def test_without_a_cluster_there_is_a_clear_error_soon():
    settings = {name: value for name, value in os.environ.items() if "RAY_" not in name}
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(20)
        listening = f"127.0.0.1:{silent.getsockname()[1]}"
        addresses = ["auto", listening, "localhost:1", "nonsense"]
        gone = {"RAY_ADDRESS": "127.0.0.1:1"}
        *lines, last = run(settings | gone, *addresses, "ray://127.0.0.1:10001")
    for line, address in zip(lines, addresses, strict=True):
        seconds, said = line.split(" ", 1)
        assert said.startswith(f"UsageError No Ray cluster answers at address={address!r}.")
        assert float(seconds) < 15
    assert "UsageError" in last
    assert "remote client" in last


INTERRUPTED = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
from sordino.engines.ray_data import RayData
def slow(chunk):
    time.sleep(0.2)
    return 1
with RayData(cores=1) as engine:
    engine.fold(range(10_000), slow, int.__add__, taken=lambda *_: print("begun", flush=True))
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whoever_ends_a_program_ends_its_ray(one_ray, how):
    """From the keyboard every process of it is told; a killed one can remove no folder."""
    with tempfile.TemporaryDirectory(prefix="r-", dir="/tmp") as folder:
        program = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=os.environ | {"TMPDIR": folder}, start_new_session=True,
        )  # fmt: skip
        assert program.stdout.readline() == b"begun\n"
        family = psutil.Process(program.pid).children(recursive=True)
        assert len(family) > 4
        if how == signal.SIGINT:
            os.killpg(program.pid, how)
        else:
            program.send_signal(how)
        program.communicate(timeout=60)
        assert program.returncode != 0
        _, alive = psutil.wait_procs(family, timeout=60 if how != signal.SIGKILL else 20)
        # What watches over Ray, and holds no data, looks only once a minute whether it is gone.
        watching = {one for one in alive if how == signal.SIGKILL and "Agent" in one.name()}
        assert [one.name() for one in alive if one not in watching] == []
        for one in watching:
            end(one)
        left = list(Path(folder).glob("sordino-*"))
        assert len(left) == (how == signal.SIGKILL)
        for path in left:
            assert path.stat().st_mode & 0o077 == 0
            shutil.rmtree(path)
