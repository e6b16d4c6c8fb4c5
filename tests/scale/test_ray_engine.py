"""Ray computes the same sums as this process, and what goes wrong there is said in our words."""

import contextlib
import os
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from sordino.engines import ray_data
from sordino.engines.engine import InProcess
from sordino.engines.exchange import PARTS, opened_exchange
from sordino.engines.ray_data import RayData
from sordino.errors import DataError, EngineError, UsageError

SAID = "Zebra-7731-said-yes"


def plus(one, other):
    return one + other


def third(chunk):
    return 1 / (3 * chunk + 1)


def matrix(chunk):
    rows = np.random.default_rng(chunk).normal(size=(50, 8))
    return rows.T @ rows


@pytest.mark.parametrize("n", [1, 2, 33, 300])
def test_sums_are_the_same_bits_and_chunks_are_counted_to_the_last(ray_engine, n):
    seen = []
    found = ray_engine.fold(range(n), third, plus, taken=lambda done, of: seen.append((done, of)))
    assert found == InProcess().fold(range(n), third, plus)
    assert seen == sorted(seen)
    assert seen[-1] == (n, n)


def test_sums_of_arrays_are_the_same_bits(ray_engine):
    found = ray_engine.fold(range(70), matrix, plus)
    assert found.tobytes() == InProcess().fold(range(70), matrix, plus).tobytes()


def threads(_):
    from threadpoolctl import threadpool_info

    np.ones((300, 300)) @ np.ones((300, 300))
    return [os.environ.get("OMP_NUM_THREADS"), *(pool["num_threads"] for pool in threadpool_info())]


def test_a_task_uses_one_core(ray_engine):
    """Ray runs as many tasks as there are cores."""
    environment, *pools = ray_engine.fold([0], threads, plus)
    assert environment == "1"
    assert set(pools) <= {1}


def refuse(chunk):
    if chunk in {40, 41, 200}:
        time.sleep(0.5 if chunk == 40 else 0)
        raise DataError(f"piece {chunk}")
    return chunk


def test_the_error_is_that_of_the_first_chunk_that_failed(ray_engine):
    with pytest.raises(DataError, match=r"^piece 40$") as caught:
        ray_engine.fold(range(300), refuse, plus)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def stumble(chunk):
    said = f"{SAID}-{chunk}"
    if chunk == 3:
        int(said)
    if chunk == 103:
        raise MemoryError(said)
    return len(said)


@pytest.mark.parametrize(("chunks", "kind"), [(range(20), "ValueError"), ([103], "MemoryError")])
def test_of_an_error_in_a_task_only_the_kind_is_said_and_logged(
    ray_engine, written, capfd, chunks, kind
):
    with pytest.raises(EngineError, match=kind) as caught:
        ray_engine.fold(chunks, stumble, plus)
    shown = capfd.readouterr()
    assert SAID not in f"{caught.value!r}{caught.value.__context__!r}{shown}"
    assert "Traceback" not in shown.err + shown.out
    assert SAID.encode() not in written()


def leave(chunk):
    if chunk == 5:
        os._exit(1)
    return chunk


def test_a_task_that_always_kills_its_worker_ends_in_an_error(ray_engine, monkeypatch, capfd):
    monkeypatch.setattr(ray_data, "_TRIES", 2)
    with pytest.raises(EngineError, match="Ray gave up") as caught:
        ray_engine.fold(range(10), leave, plus)
    assert caught.value.__context__ is None
    time.sleep(1)  # Ray prints what it has to say from a thread of its own
    assert capfd.readouterr() == ("", "")
    assert ray_engine.fold(range(10), third, plus) == InProcess().fold(range(10), third, plus)


@pytest.mark.parametrize("what", ["chunk", "task"])
def test_what_cannot_be_sent_is_an_error(ray_engine, what, capfd):
    lock = sys.stdout.buffer
    chunks, task = ([lock], third) if what == "chunk" else ([1], lambda _: lock)
    with pytest.raises(EngineError, match="Nothing was released"):
        ray_engine.fold(chunks, task, plus)
    assert "Traceback" not in "".join(capfd.readouterr())


def test_no_chunks_are_refused(ray_engine):
    with pytest.raises(UsageError, match="no piece"):
        ray_engine.fold([], third, plus)


def doze(folder, chunk):
    (folder / str(chunk)).touch()
    time.sleep(0.2)
    return chunk


def test_a_sum_that_is_given_up_does_not_go_on(ray_engine, tmp_path):
    def stop(done, of):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ray_engine.fold(range(1000), lambda chunk: doze(tmp_path, chunk), plus, taken=stop)
    time.sleep(4)  # what is running may end
    begun = len(list(tmp_path.iterdir()))
    time.sleep(2)
    assert len(list(tmp_path.iterdir())) == begun < 200


def leave_rows(shuffle, chunk):
    rows = np.zeros(100, shuffle.dtype)
    rows["row"] = 100 * chunk + np.arange(100)
    shuffle.write(chunk, rows, rows["row"].astype(np.int64) * 37 % PARTS)
    return 100


def test_rows_are_shuffled_through_workers(ray_engine, tmp_path):
    with opened_exchange([("row", "<u8")], tmp_path) as shuffle:
        assert ray_engine.fold(range(30), lambda chunk: leave_rows(shuffle, chunk), plus) == 3000
        found = ray_engine.fold(range(PARTS), lambda at: len(shuffle.read(at, 30)), plus)
    assert found == 3000


def test_a_context_in_a_context_ends_with_the_outer_one(ray_engine):
    with ray_engine as same:
        assert same is ray_engine
    assert ray_engine.fold([1], third, plus) == 0.25


def test_another_engine_does_not_silently_use_the_ray_that_runs_here(ray_engine):
    """It may be on other machines than was asked for."""
    with pytest.raises(UsageError, match="uses Ray already"):
        RayData().fold([1], third, plus)
    with RayData("auto") as found:
        assert found.fold([1], third, plus) == 0.25
    assert ray_engine.fold([1], third, plus) == 0.25  # joining and leaving did not stop it


def test_settings_of_ray_are_as_they_were(ray_engine):
    import ray.data

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = True
    ray_engine.fold([1], third, plus)
    assert context.enable_progress_bars
    assert context.execution_no_progress_timeout_s < 6 * 3600


def test_nobody_without_the_token_can_join(ray_engine):
    """Ray listens on the network."""
    import ray

    address = ray.get_runtime_context().gcs_address
    clean = {name: value for name, value in os.environ.items() if "RAY_AUTH" not in name}
    code = f"import ray; ray.init(address={address!r}); print('joined', flush=True)"
    with subprocess.Popen([sys.executable, "-c", code], env=clean, stdout=subprocess.PIPE) as one:
        with contextlib.suppress(subprocess.TimeoutExpired):
            one.wait(10)  # Ray tries for longer; who has the token joins in two seconds
        one.kill()
        assert b"joined" not in one.stdout.read()


def test_workers_do_not_grow_with_the_number_of_chunks(ray_engine):
    """A chunk of 8 MB leaves nothing behind."""
    ray_engine.fold(range(32), lambda _: float(np.ones(1 << 20).sum()), plus)

    def largest():
        workers = [one for one in psutil.Process().children(recursive=True) if is_worker(one)]
        return max(one.memory_info().rss for one in workers)

    before = largest()
    ray_engine.fold(range(320), lambda _: float(np.ones(1 << 20).sum()), plus)
    assert largest() - before < 64 << 20


def is_worker(process):
    try:
        return process.cmdline()[0].startswith(("ray::IDLE", "ray::MapBatches"))
    except (psutil.Error, IndexError):
        return False
