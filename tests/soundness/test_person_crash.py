"""A process that is killed anywhere leaves no person with more than the ledger counts.

The driver runs in an interpreter of its own and forks children that privatize a file, people in two
parts. A child is killed with SIGKILL at its k-th moment (before or after an entry is
written, questions are chosen, answers are stored, a line is written, the outcome is recorded),
for every k; its successor is killed further on; the last one may finish.
"""

import json
import subprocess
import sys
import textwrap

import pytest

DRIVER = textwrap.dedent(
    """
    import json, os, signal, sys
    from collections import Counter
    from pathlib import Path
    import numpy as np
    import sordino
    from sordino.engines import exchange
    from sordino.engines.engine import InProcess
    from sordino.preferences import chunks, pairs as written
    from sordino.preferences.memo import AnswerMemo
    from sordino.preferences.pairs import read_pairs
    from sordino.preferences.records import canonical, person_key
    from sordino.privacy.ledger import Ledger, Reservation
    from sordino.privatization import chunks as module
    from sordino.privatization.people import AskedPeople

    mode, folder = sys.argv[1], Path(sys.argv[2])
    cap = None if sys.argv[3] == "none" else int(sys.argv[3])
    PEOPLE, QUESTIONS = 3, 4
    COIN = sordino.RandomizedResponse(0.5)
    BUDGET = sordino.Guarantee(1000.0, delta=0.0, unit="person", neighbors=sordino.REPLACE_ONE,
                               trust="central")
    chunks._RECORDS = 1
    os.fsync = lambda _: None  # no power is cut here
    for name, other in list(sys.modules.items()):
        if name.startswith("sordino.") and hasattr(other, "PARTS"):
            other.PARTS = 2
    exchange._HEAD, module._FEW = 8 * 3, 0
    moment, deadly = 0, None

    def tick():
        global moment
        moment += 1
        if moment == deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(owner, name):
        honest = getattr(owner, name)
        def around(*given, **more):
            tick()
            result = honest(*given, **more)
            tick()
            return result
        setattr(owner, name, around)

    for owner, name in ((Ledger, "reserve"), (AskedPeople, "_words"), (AnswerMemo, "keep"),
                        (module.AnswerPart, "__call__"), (Reservation, "commit"),
                        (written, "line_of")):
        watched(owner, name)
    if mode == "once":
        honest = AskedPeople._tally
        def once(self, part):
            tally = honest(self, part)
            people = tally.people._replace(counts=np.minimum(tally.people.counts, 1))
            return tally._replace(fresh=min(1, tally.fresh), people=people)
        AskedPeople._tally = once
    if mode == "forgetful":  # what is stored is not preferred when the cap is applied
        chosen, nothing = AskedPeople._chosen, AnswerMemo(None, 1).stored(0)
        AskedPeople._chosen = lambda self, asked, words, _: chosen(self, asked, words, nothing)

    rows = [{"prompt": f"q{q}", "chosen": f"{q} yes", "rejected": f"{q} no", "person": f"p{p}"}
            for q in range(QUESTIONS) for p in range(PEOPLE)]
    raw = folder / "raw.jsonl"
    raw.write_text("".join(json.dumps(row) + "\\n" for row in rows))

    def privatize(home):
        ledger = Ledger.open(home / "spend.db", data="answers", budget=BUDGET)
        module.privatize_chunks(chunks.find_chunks(raw), home / "out.jsonl", COIN, ledger=ledger,
                                engine=InProcess(), one_file=True, cap=cap, force=True)

    def child(home, at):
        global deadly
        pid = os.fork()
        if pid == 0:
            deadly = at
            try:
                privatize(home)
                os._exit(0)
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
                os._exit(9)
        status = os.waitpid(pid, 0)[1]
        return "killed" if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    def stored(home):
        path = home / "spend.memo"
        found = AnswerMemo(str(path) if path.exists() else None, 1).stored(0)
        keys = [bytes(key).ljust(32, b"\\0") for key in found.keys]
        return dict(zip(keys, found.answers.tolist(), strict=True))

    def shown(home):
        # what anybody could have read: finished files and what a kill left of them
        for path in [*home.glob("out.jsonl"), *home.glob(".out.jsonl*/*")]:
            for line in path.read_text(errors="replace").splitlines():
                try:
                    row = json.loads(line)
                except ValueError:
                    continue
                if isinstance(row, dict) and "prompt" in row:
                    key = canonical(row["prompt"], row["first"], row["second"])[1]
                    yield person_key(row["person"])[:16] + key[:16], row["answer"]

    found = {"killed": 0, "finished": 0, "failed": 0, "over": 0, "not_stored": 0, "most": 0,
             "refused": 0, "entries": 0}
    for at in range(1, 200):
        home = folder / str(at)
        home.mkdir()
        first = child(home, at)
        if first == 0:
            break
        for ended in (first, child(home, at + 3), child(home, at + 1), child(home, None)):
            found["killed"] += ended == "killed"
            found["finished"] += ended == 0
            found["failed"] += ended == 9
        answers = stored(home)
        most = max(Counter(key[:16] for key in answers).values(), default=0)
        ledger = Ledger.read(home / "spend.db")
        found["over"] += most * COIN.realized_epsilon > ledger.total().epsilon
        found["not_stored"] += any(answers.get(key) != answer for key, answer in shown(home))
        found["most"] = max(found["most"], most)
        found["entries"] = max(found["entries"], len(ledger.spends))
        if (home / "out.jsonl").exists():
            try:
                private = read_pairs(home / "out.jsonl")
                assert private.guarantee.epsilon == (cap or QUESTIONS) * COIN.realized_epsilon
            except sordino.PrivacyError:
                found["refused"] += 1
    print(json.dumps(found))
    """
)


def outcome(mode, folder, cap):
    """Run the driver and return what it found."""
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, mode, str(folder), str(cap)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize(("cap", "most"), [("none", 4), (2, 2)])
def test_wherever_it_is_killed_the_ledger_counts_at_least_what_was_drawn(tmp_path, cap, most):
    found = outcome("honest", tmp_path, cap)
    assert found["killed"] > 50
    assert found["finished"] > 25
    assert {found[bad] for bad in ("failed", "over", "not_stored", "refused")} == {0}
    assert found["most"] == most  # nobody was ever asked for more than the cap
    assert found["entries"] >= 2


def test_an_entry_for_one_label_only_is_found(tmp_path):
    assert outcome("once", tmp_path, 2)["over"] > 0


def test_a_choice_that_forgets_what_was_answered_is_found(tmp_path):
    """The same person is then asked more than the cap, or a run wants coins it did not pay for."""
    found = outcome("forgetful", tmp_path, 2)
    assert found["most"] > 2
    assert found["failed"] > 0
