"""A spend is on the ledger before anything is drawn, whenever the process is killed.

The driver runs in an interpreter of its own: it imports the ledger once, forks children that
spend, and kills them with SIGKILL at random times. ``late`` is a planted bug (draw first, write
afterwards) that shows that the kills are dense enough to find it.
"""

import json
import subprocess
import sys
import textwrap

import pytest
from tests.tiers import few

KILLS = 240

DRIVER = textwrap.dedent(
    """
    import json, os, random, signal, sys, time
    from pathlib import Path
    import sordino
    from sordino.errors import BudgetExceeded
    from sordino.privacy.guarantee import PureEvent

    mode, folder, kills = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    limit = float(sys.argv[4])
    rng = random.Random(20240607)
    TERMS = {"delta": 0.0, "unit": "label", "neighbors": sordino.REPLACE_ONE, "trust": "central"}
    BUDGET, PROMISE = sordino.Guarantee(limit, **TERMS), sordino.Guarantee(0.1, **TERMS)

    def draw(home, release_id):
        with (home / "drawn").open("a") as file:
            file.write(release_id + "\\n")
            file.flush()
            os.fsync(file.fileno())

    def spend(home):
        ledger = sordino.Ledger.open(home / "spend.db", data="answers", budget=BUDGET)
        for _ in range(1000):
            if mode == "late":
                from sordino import _random
                fixed = _random.secrets.token_hex(8)
                draw(home, fixed)
                _random.new_release_id = lambda: fixed
                ledger.reserve(PureEvent(0.1), promise=PROMISE)
            else:
                entry = ledger.reserve(PureEvent(0.1), promise=PROMISE)
                draw(home, entry.release_id)
                entry.commit("0" * 64)

    def create(home):
        sordino.Ledger.open(home / "spend.db", data="answers", budget=BUDGET)
        time.sleep(1)

    def killed(work, home, unit):
        child = os.fork()
        if child == 0:
            try:
                work(home)
                os._exit(0)
            except BudgetExceeded:
                os._exit(3)
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
                os._exit(9)
        time.sleep(unit * 0.3 * 60 ** rng.random())  # from a part of it to twenty
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        return "killed" if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    for warm in ("cold", "warm"):  # the first one also imports
        (folder / warm).mkdir()
        start = time.perf_counter()
        ledger = sordino.Ledger.open(folder / warm / "spend.db", data="answers", budget=BUDGET)
        opened = time.perf_counter() - start
        ledger.reserve(PureEvent(0.1), promise=PROMISE).commit("0" * 64)
        once = time.perf_counter() - start

    found = {"killed": 0, "spent_out": 0, "unrecorded": 0, "over": 0, "most": 0, "failed": 0,
             "absent": 0, "present": 0, "strays": 0, "uncommitted": 0}
    home, fresh = None, 0
    for number in range(kills):
        if home is None or mode == "create":
            home = folder / str(number)
            home.mkdir()
        ended = killed(*((create, home, opened) if mode == "create" else (spend, home, once)))
        found["killed"] += ended == "killed"
        found["failed"] += ended in (0, 9)
        path = home / "spend.db"
        found["strays"] += any(name.startswith(".spend") for name in os.listdir(home))
        if not path.exists():
            found["absent"] += 1
        else:
            found["present"] += 1
            ledger = sordino.Ledger.read(path)
            paid = {row.release_id for row in ledger.spends}
            drawn = (home / "drawn").read_text().split() if (home / "drawn").exists() else []
            found["unrecorded"] += not set(drawn) <= paid or len(drawn) > len(paid)
            total = ledger.total()
            found["over"] += total is not None and total.epsilon > limit
            found["most"] = max(found["most"], len(paid))
            done = {row.release_id for row in ledger.rows if row.kind == "commit"}
            found["uncommitted"] += bool(paid - done)
        if mode == "create":
            again = sordino.Ledger.open(path, data="answers", budget=BUDGET)
            again.reserve(PureEvent(0.1), promise=PROMISE).commit("0" * 64)
            assert [row.kind for row in sordino.Ledger.read(path).rows] == [
                "open", "reserve", "commit"]
        elif ended == 3:
            found["spent_out"] += 1
            home = None
    print(json.dumps(found))
    """
)


def outcome(mode, folder, kills, limit=3.0):
    """Run the driver and return what it found."""
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, mode, str(folder), str(kills), str(limit)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.deep
def test_a_crash_never_loses_a_spend(tmp_path):
    found = outcome("spend", tmp_path, KILLS, 1000.0)
    assert found["killed"] >= 200
    assert found["failed"] == 0
    assert found["unrecorded"] == 0
    assert found["uncommitted"] > 10  # the kills did fall between reserve and commit


@pytest.mark.deep
def test_a_crash_never_lets_the_budget_be_passed(tmp_path):
    found = outcome("spend", tmp_path, 60)
    assert found["spent_out"] >= 1
    assert found["most"] == 30
    assert found["over"] == 0


@pytest.mark.deep
def test_drawing_before_writing_would_be_caught(tmp_path):
    assert outcome("late", tmp_path, 60)["unrecorded"] > 0


@pytest.mark.deep
def test_a_crash_during_creation_leaves_a_valid_ledger_or_none(tmp_path):
    found = outcome("create", tmp_path, KILLS)
    assert found["failed"] == 0
    assert found["killed"] == KILLS
    assert min(found["absent"], found["present"], found["strays"]) > 10


@pytest.mark.parametrize("leftover", few(["", "-wal", "-shm"], "-wal"))
def test_remains_of_a_killed_creation_do_not_break_a_later_one(tmp_path, leftover):
    (tmp_path / f".spend.db.0123456789abcdef{leftover}").write_bytes(b"half a page")
    found = outcome("create", tmp_path, 3)
    assert found["failed"] == 0
