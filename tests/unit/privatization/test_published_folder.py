"""Answers in a folder appear all or are not read, and are never overwritten unasked."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.tiers import few

import sordino
from sordino.engines.engine import InProcess
from sordino.errors import DataError, FileSystemError, UsageError
from sordino.preferences.chunks import find_chunks
from sordino.preferences.pairs import manifest_path
from sordino.privatization import chunks as module
from sordino.privatization import publication
from sordino.privatization.chunks import privatize_chunks
from sordino.privatization.publication import ChunkOutputs

COIN = sordino.RandomizedResponse(1.0)
pytestmark = pytest.mark.usefixtures("few_parts")

PARTS = 4


def write_raw(folder, *, people=None):
    """Write three files of judgments."""
    folder.mkdir()
    for file in "abc":
        rows = [
            {"prompt": f"{file}{at}", "chosen": "yes", "rejected": "no"}
            | ({"person": f"p{at % people}"} if people else {})
            for at in range(30)
        ]
        (folder / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(params=[None, 3], ids=["unlinked", "linked"])
def raw(request, tmp_path):
    """A folder of three files."""
    return write_raw(tmp_path / "raw", people=request.param)


def run(raw, out, ledger, **more):
    """Privatize in this process."""
    given = {"mechanism": COIN, "engine": InProcess()} | more
    return privatize_chunks(find_chunks(raw), out, ledger=ledger, **given)


def sole_run(folder):
    """Hold a folder for the answers, as a run does."""
    return ChunkOutputs(folder, (), force=False)._alone


def answers(out):
    """Return every file of answers and every manifest, by name."""
    return {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}


class Stopped(BaseException):
    """What stops a run between two files."""


def interrupt(raw, out, ledger, *, at=2, error=Stopped, **more):
    """Start a run that ends when its ``at``-th file is about to appear."""
    honest, seen = publication._show, []

    def show(made, final, **given):
        seen.append(made)
        if len(seen) == at:
            raise error
        honest(made, final, **given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publication, "_show", show)
        run(raw, out, ledger, **more)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_what_was_interrupted_is_not_read_and_appears_for_nothing(raw, tmp_path, account, at):
    ledger, out = account(epsilon=1.0), tmp_path / "out"  # for one release and no other
    with pytest.raises(Stopped):
        interrupt(raw, out, ledger, at=at)
    assert len(list(out.glob("*.jsonl"))) == at - 1
    if at > 1:
        with pytest.raises(DataError, match="was interrupted, or is still going on"):
            find_chunks(out, privatized=True)
        with pytest.raises(DataError, match="was interrupted, or is still going on"):
            find_chunks(sorted(out.glob("*.jsonl")), privatized=True)
    before, rows = answers(out), len(ledger.rows)
    [left] = out.glob(".sordino-*.parts")
    before |= {path.name: path.read_bytes() for path in left.glob("*.jsonl")}
    before |= {path.name: path.read_bytes() for path in left.glob("*.manifest.json")}
    manifests = run(raw, out, ledger)
    assert answers(out) == before
    assert sorted(before) == sorted(
        f"{file}{end}" for file in "abc" for end in (".jsonl", ".manifest.json")
    )
    assert len(sordino.Ledger.read(ledger.path).rows) == rows
    assert sorted(path.name for path in out.iterdir()) == sorted(before)
    assert [manifest.sha256 for manifest in manifests] == [
        sordino._files.sha256_of(out / f"{file}.jsonl") for file in "abc"
    ]
    assert len(find_chunks(out, privatized=True).chunks) == 3


def test_a_full_disk_says_how_to_go_on(raw, tmp_path, account):
    ledger, out = account(epsilon=1.0), tmp_path / "out"
    with pytest.raises(FileSystemError, match="made and paid for: give the same command again"):
        interrupt(raw, out, ledger, error=OSError(28, "No space left on device"))
    assert len(run(raw, out, ledger)) == 3


def test_a_forced_run_that_was_interrupted_ends_as_it_began(raw, tmp_path, account):
    ledger, out = account(), tmp_path / "out"
    run(raw, out, ledger)
    first = answers(out)
    with pytest.raises(Stopped):
        interrupt(raw, out, ledger, force=True)
    mixed, spends = answers(out), len(ledger.spends)
    run(raw, out, ledger, force=True)
    assert len(ledger.spends) == spends
    assert answers(out)["a.jsonl"] == mixed["a.jsonl"]
    if spends == 2:  # nobody knows who answered, so each run draws
        assert answers(out)["a.jsonl"] != first["a.jsonl"]
    assert not list(out.glob(".sordino*"))


@pytest.mark.parametrize("other", ["coin", "cap", "seed", "ledger"])
def test_another_request_is_not_answered_by_it(raw, tmp_path, account, other):
    ledger, out, more = account(), tmp_path / "out", {}
    if other == "cap" and "person" not in (raw / "a.jsonl").read_text():
        pytest.skip("a cap needs persons")
    with pytest.raises(Stopped):
        interrupt(raw, out, ledger, simulate_seed=2 if other == "seed" else None)
    if other == "ledger":
        ledger = account()
    more = {"coin": {"mechanism": sordino.RandomizedResponse(0.5)}, "cap": {"cap": 2}}.get(
        other, {}
    )
    more |= {"simulate_seed": 3} if other == "seed" else {}
    rows, before = len(ledger.rows), answers(out)
    with pytest.raises(UsageError, match="exists already"):
        run(raw, out, ledger, **more)
    assert (len(ledger.rows), answers(out)) == (rows, before)


@pytest.mark.parametrize("damage", ["answers", "manifest", "shown", "gone"])
def test_what_is_damaged_does_not_appear(raw, tmp_path, account, damage):
    ledger, out = account(), tmp_path / "out"
    with pytest.raises(Stopped):
        interrupt(raw, out, ledger)
    [left] = out.glob(".sordino-*.parts")
    path = {
        "answers": left / "c.jsonl",
        "manifest": left / "c.manifest.json",
        "shown": out / "a.jsonl",
        "gone": left / "b.jsonl",
    }[damage]
    path.write_bytes(path.read_bytes() + b"{")
    if damage == "gone":
        path.unlink()
    with pytest.raises(UsageError, match="exists already"):
        run(raw, out, ledger)
    assert len(list(out.glob("*.jsonl"))) == 1


def test_what_was_made_and_not_recorded_does_not_appear(raw, tmp_path, account):
    ledger, out = account(), tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.ChunkOutputs, "publish", lambda *_: None)
        patch.setattr(module, "record_release", lambda *_: None)
        patch.setattr("sordino.privatization.publication._take_away", lambda _: None)
        run(raw, out, ledger)
    assert list(out.glob(".sordino-*.parts/noted.json"))
    spends = len(ledger.spends)
    assert len(run(raw, out, ledger)) == 3  # it blocks nobody, and is tidied
    assert len(ledger.spends) == spends + (0 if (ledger.path.with_suffix(".memo")).exists() else 1)
    assert not list(out.glob(".sordino*"))


def test_nothing_of_raw_files_stays_in_what_a_killed_run_leaves(raw, tmp_path, account):
    """Neither size nor time is in the note, so that another time finds the same note."""
    ledger, out = account(epsilon=1.0), tmp_path / "out"
    with pytest.raises(Stopped):
        interrupt(raw, out, ledger)
    os.utime(raw / "c.jsonl", ns=(0, 0))
    assert len(run(raw, out, ledger)) == 3
    assert len(ledger.spends) == 1


def test_a_manifest_without_its_file_is_named(tmp_path, account):
    raw, out = write_raw(tmp_path / "raw"), tmp_path / "out"
    run(raw, out, account())
    (out / "b.jsonl").unlink()
    with pytest.raises(DataError, match=r"b\.manifest\.json without the file"):
        find_chunks(out, privatized=True)
    manifest_path(out / "b.jsonl").unlink()
    assert len(find_chunks(out, privatized=True).chunks) == 2


DRIVER = textwrap.dedent(
    """
    import json, os, signal, sys
    from pathlib import Path
    import sordino
    from sordino.engines import exchange
    from sordino.engines.engine import InProcess
    from sordino.preferences.chunks import find_chunks
    from sordino.privatization import chunks
    from sordino.privatization.chunks import privatize_chunks

    folder, raw = Path(sys.argv[1]), Path(sys.argv[2])
    os.fsync = lambda _: None  # no power is cut here
    for name, module in list(sys.modules.items()):
        if name.startswith("sordino.") and hasattr(module, "PARTS"):
            module.PARTS = 4
    exchange._HEAD, chunks._FEW = 8 * 5, 0

    def privatize(home):
        budget = sordino.Guarantee(1.0, delta=0.0, unit="label", neighbors=sordino.REPLACE_ONE,
                                   trust="central")
        ledger = sordino.Ledger.open(home / "spend.db", data="t", budget=budget)
        privatize_chunks(find_chunks(raw), home / "out", sordino.RandomizedResponse(1.0),
                         ledger=ledger, engine=InProcess(), scratch=home)

    def child(home, deadly):
        pid = os.fork()
        if pid == 0:
            moment = 0
            def watched(owner, name):
                honest = getattr(owner, name)
                def around(*given, **more):
                    nonlocal moment
                    moment += 1
                    if moment == deadly:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return honest(*given, **more)
                setattr(owner, name, around)
            if deadly is not None:
                real = chunks.record_release
                def recorded(*given):
                    real(*given)
                    for name in ("replace", "unlink", "rename"):
                        watched(Path, name)
                    watched(os, "rmdir")
                chunks.record_release = recorded
            try:
                privatize(home)
                os._exit(0)
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
                os._exit(9)
        status = os.waitpid(pid, 0)[1]
        return "killed" if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    found = {"killed": 0, "half": 0, "whole": 0, "read": 0, "finished": 0, "changed": 0, "left": 0}
    for deadly in range(1, 100):
        home = folder / str(deadly)
        home.mkdir()
        if child(home, deadly) == 0:
            break
        found["killed"] += 1
        shown = {path.name: path.read_bytes() for path in (home / "out").glob("*.json*")}
        names = [name for name in shown if name.endswith(".jsonl")]
        found["whole" if len(names) == 3 else "half"] += 1
        try:
            if names:
                find_chunks(home / "out", privatized=True)
                found["read"] += len(names) < 3
        except sordino.DataError:
            pass
        if len(names) == 3 and not list((home / "out").glob(".sordino-*.parts")):
            continue  # nothing is missing
        found["finished"] += child(home, None) == 0
        after = {path.name: path.read_bytes() for path in (home / "out").glob("*.json*")}
        found["changed"] += not shown.items() <= after.items() or len(after) != 6
        found["left"] += bool(list((home / "out").glob(".sordino*")))
        assert len(sordino.Ledger.read(home / "spend.db").spends) == 1
    print(json.dumps(found))
    """
)


@pytest.mark.deep
@pytest.mark.parametrize("raw", few([None, 3], 3), indirect=True)
def test_wherever_it_is_killed_its_files_appear_later(raw, tmp_path):
    """With SIGKILL, at every step from the outcome on the ledger to the end."""
    (tmp_path / "homes").mkdir()
    given = [sys.executable, "-c", DRIVER, str(tmp_path / "homes"), str(raw)]
    done = subprocess.run(given, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["half"] >= 6
    assert found["finished"] >= found["half"]
    assert (found["read"], found["changed"], found["left"]) == (0, 0, 0)


@pytest.mark.parametrize("force", [False, True])
def test_a_second_run_is_refused_while_one_is_alive(raw, tmp_path, account, force):
    out, mine, others, tried = tmp_path / "out", account(), account(), []

    def second(done, total):
        if list(out.glob(".sordino-*.parts")) and not tried:
            tried.append(done)
            with pytest.raises((FileSystemError, UsageError), match=r"still going|is writing"):
                run(raw, out, others, force=force)

    run(raw, out, mine, taken=second)
    assert tried
    assert not others.spends
    assert len(list(out.iterdir())) == 6


def test_what_another_run_published_meanwhile_stays(raw, tmp_path, account):
    """It began later and ended first, while this one still looked at the files."""
    out, mine, others, first = tmp_path / "out", account(), account(), []

    def second(*_):
        if not first:
            first.append(None)
            run(raw, out, others)
            first.append(answers(out))

    with pytest.raises(UsageError, match="exists already"):
        run(raw, out, mine, taken=second)
    assert answers(out) == first[1]
    assert not mine.spends


def test_a_run_that_was_killed_holds_nothing(tmp_path):
    """Not even where it left the file; and a file that is taken away meanwhile locks nobody out."""
    pid = os.fork()
    if pid == 0:
        with sole_run(tmp_path):
            os._exit(9)
    os.waitpid(pid, 0)
    assert list(tmp_path.iterdir())
    with sole_run(tmp_path):
        with pytest.raises(FileSystemError, match="Another run"), sole_run(tmp_path):
            pass
        (tmp_path / ".sordino.lock").unlink()
    with sole_run(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_a_lock_of_a_file_that_is_gone_is_none(tmp_path, monkeypatch):
    """Whoever opens the file just before its holder takes it away opens it again."""
    honest, opened = os.open, []

    def late(path, *given, **more):
        handle = honest(path, *given, **more)
        if str(path).endswith(".lock") and not opened:
            opened.append(handle)
            Path(path).unlink()
        return handle

    monkeypatch.setattr(os, "open", late)
    with sole_run(tmp_path):
        assert (tmp_path / ".sordino.lock").exists()
        with pytest.raises(FileSystemError), sole_run(tmp_path):
            pass


def test_a_folder_that_cannot_be_locked_is_refused(tmp_path, monkeypatch):
    def unknown(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", unknown)
    with pytest.raises(FileSystemError, match="cannot be locked"), sole_run(tmp_path):
        pass


@pytest.mark.parametrize("where", ["out", "spend.memo"])
def test_a_folder_without_hard_links_is_refused_before_the_spend(
    raw, tmp_path, account, monkeypatch, where
):
    ledger, link = account(), os.link
    if where == "spend.memo":
        if "person" not in (raw / "a.jsonl").read_text():
            pytest.skip("nothing is stored")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module.Randomization, "pay", lambda *_: {}["died"])
            with pytest.raises(KeyError):
                run(raw, tmp_path / "out", ledger)  # makes the folder

    def without(source, target, **more):
        if f"/{where}/" in str(target):
            raise PermissionError(1, "Operation not permitted")
        return link(source, target, **more)

    monkeypatch.setattr(os, "link", without)
    with pytest.raises(FileSystemError, match=r"written once \(Operation not permitted\)"):
        run(raw, tmp_path / "out", ledger)
    assert not ledger.spends
    assert not list((tmp_path / "out").iterdir())
    assert not list(ledger.path.parent.rglob("*.partial"))


def test_a_folder_of_stored_answers_is_closed_to_others(tmp_path, account):
    raw, ledger = write_raw(tmp_path / "raw", people=3), account()
    memo = ledger.path.with_suffix(".memo")
    memo.mkdir()
    memo.chmod(0o755)
    run(raw, tmp_path / "one", ledger)
    assert memo.stat().st_mode & 0o777 == 0o700
    memo.chmod(0o750)
    run(raw, tmp_path / "two", ledger)
    assert memo.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_closed_to_others_is_refused(tmp_path, account, monkeypatch):
    raw, ledger = write_raw(tmp_path / "raw", people=3), account()
    memo = ledger.path.with_suffix(".memo")
    memo.mkdir()
    memo.chmod(0o755)

    def foreign(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", foreign)
    with pytest.raises(FileSystemError, match="only you can read"):
        run(raw, tmp_path / "one", ledger)
    assert not ledger.spends
