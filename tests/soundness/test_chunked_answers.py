"""Answers of many files are drawn once and paid once, wherever and however often a task runs."""

import json
import os
import re
import shutil
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom
from tests.privatized import privatize_file

import sordino
from sordino import _files, _random
from sordino.engines import exchange
from sordino.engines import exchange as folders
from sordino.engines.engine import InProcess
from sordino.errors import PrivacyError, UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.chunks import Chunk, find_chunks
from sordino.preferences.memo import AnswerMemo
from sordino.preferences.pairs import manifest_path
from sordino.preferences.records import canonical, person_key
from sordino.privatization import chunks
from sordino.privatization.answers import privatize
from sordino.privatization.chunks import (
    AnswerChunk,
    AnswerPart,
    privatize_chunks,
)
from sordino.privatization.people import AskedPeople
from sordino.privatization.randomization import Randomization

COIN = RandomizedResponse(1.0)
pytestmark = pytest.mark.usefixtures("few_parts")

PARTS = 4


class Twice:
    """An engine that runs every task two times, and uses either result."""

    def __init__(self):
        self.generator = np.random.default_rng(0)

    def fold(self, chunks, task, add, *, taken=None):
        def both(chunk):
            return (task(chunk), task(chunk))[self.generator.integers(2)]

        return InProcess().fold(chunks, both, add, taken=taken)


class Killed(BaseException):
    """What stops a task or a run wherever it is."""


class Again:
    """An engine whose tasks may be killed, and are then run again."""

    def fold(self, chunks, task, add, *, taken=None):
        def stubborn(chunk):
            while True:
                try:
                    return task(chunk)
                except Killed:
                    continue

        return InProcess().fold(chunks, stubborn, add, taken=taken)


class Moments:
    """Counts moments; at the deadly one everything stops as it is, with no file taken away."""

    def __init__(self, patch, places, *, deadly):
        self.now, self.deadly, self.cleaning = 0, deadly, True
        for owner, name in places:
            patch.setattr(owner, name, self._watched(getattr(owner, name)))
        abandon, rmtree = _files.Draft.abandon, shutil.rmtree
        patch.setattr(
            _files.Draft, "abandon", lambda draft: abandon(draft) if self.cleaning else shut(draft)
        )
        patch.setattr(
            shutil, "rmtree", lambda path, **more: self._removes(path) and rmtree(path, **more)
        )

    def _removes(self, path):
        """Whether a folder goes: of a killed run's answers, none."""
        return self.cleaning or not Path(path).name.startswith(".sordino")

    def _watched(self, honest):
        def around(*given, **more):
            self._tick()
            result = honest(*given, **more)
            self._tick()
            return result

        return around

    def _tick(self):
        self.cleaning = True  # the next attempt cleans up behind itself
        self.now += 1
        if self.now == self.deadly:
            self.cleaning = False
            raise Killed


def shut(draft):
    """Leave what was written where it is, as the system does for a process that dies."""
    if draft._raw is not None:
        draft._raw.close()


IN_TASKS = (
    (_files.Draft, "open"),
    (_files.Draft, "finish"),
    (os, "link"),
    (RandomizedResponse, "release"),
    (exchange.Exchange, "write"),
    (exchange.Exchange, "read"),
    (AnswerMemo, "stored"),
    (chunks, "_answers_of_chunk"),
    (chunks, "sha256_of"),
)
IN_DRIVER = (
    (sordino.Ledger, "reserve"),
    (sordino.privacy.ledger.Reservation, "commit"),
    (chunks.ChunkOutputs, "note"),
    (chunks.ChunkOutputs, "publish"),
    (chunks, "manifest_of"),
    (AnswerMemo, "keep"),
    (AnswerChunk, "__call__"),
    (AnswerPart, "__call__"),
    (Path, "replace"),
)


@pytest.fixture
def drawn(monkeypatch):
    """Count for which records coins were drawn."""
    found = Counter()
    of_chunk, of_part = AnswerChunk._drawn, AskedPeople._drawn

    def chunk(self, pairs, entropy):
        found.update(zip(pairs.prompts, pairs.keys, strict=True))
        return of_chunk(self, pairs, entropy)

    def part(self, coin, keys, labels, entropy):
        found.update(keys.tolist())
        return of_part(self, coin, keys, labels, entropy)

    monkeypatch.setattr(AnswerChunk, "_drawn", chunk)
    monkeypatch.setattr(AskedPeople, "_drawn", part)
    return found


def write_raw(folder, *, files=3, questions=8, people=5, linked=True, start=0):
    """Write judgments: every person answers every question of one file or another."""
    folder.mkdir()
    generator = np.random.default_rng(1)
    for file in range(files):
        rows = []
        for question in range(start, start + questions):
            for person in range(people) if linked else [None]:
                if linked and (question + person) % files != file:
                    continue
                row = {"prompt": f"q{question}", "chosen": "yes", "rejected": "no"}
                if not linked:
                    row["prompt"] += f" {file}"
                if generator.integers(2):
                    row["chosen"], row["rejected"] = row["rejected"], row["chosen"]
                rows.append(row | ({"person": f"p{person}"} if linked else {}))
        if linked:
            rows.append(rows[0] | {"chosen": rows[0]["rejected"], "rejected": rows[0]["chosen"]})
        (folder / f"s{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return find_chunks(folder)


@pytest.fixture
def raw(tmp_path):
    """Return a maker of raw files."""
    made = iter(range(1000))
    return lambda **more: write_raw(tmp_path / f"raw-{next(made)}", **more)


def lines(folder):
    """Return every record in a folder of answers."""
    return [
        json.loads(line)
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def contents(folder):
    """Return every byte in a folder, by name, but for what is random in every release."""
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    return {name: re.sub(rb'("release_id": )"\w+"', rb"\1", told) for name, told in files.items()}


def short_key(row):
    """Return who answered what, as it is stored."""
    question = canonical(row["prompt"], row["first"], row["second"])[1]
    return person_key(row["person"])[:16] + question[:16]


def memo_of(ledger):
    """Return every stored answer."""
    memo = AnswerMemo(str(ledger.path.with_suffix(".memo")), PARTS)
    found = {}
    for part in range(PARTS):
        stored = memo.stored(part)
        for key, answer in zip(stored.keys, stored.answers, strict=True):
            assert bytes(key) not in found
            found[bytes(key).ljust(32, b"\0")] = int(answer)
    return found


@pytest.mark.parametrize("linked", [False, True])
def test_a_task_that_runs_twice_draws_once(raw, account, drawn, monkeypatch, tmp_path, linked):
    given, ledger, words = raw(linked=linked), account(), []
    honest = _random.SystemEntropy.words
    monkeypatch.setattr(
        _random.SystemEntropy, "words", lambda self, n: words.append(n) or honest(self, n)
    )
    privatize_chunks(given, tmp_path / "out", COIN, ledger=ledger, engine=Twice())
    assert sum(words) == len(drawn)  # of the system's, one for each answer
    assert set(drawn.values()) == {1}
    assert len(drawn) == (40 if linked else 24)
    assert [row.kind for row in ledger.rows] == ["open", "reserve", "commit"]
    assert len(lines(tmp_path / "out")) == (43 if linked else 24)


@pytest.mark.parametrize("linked", [False, True])
def test_of_two_tasks_at_once_one_answers_and_the_other_is_thrown_away(
    raw, account, monkeypatch, tmp_path, linked
):
    """Inside a draw the same task is run as a whole: its answers count, and nobody's else."""
    ledger, honest, inside = account(), RandomizedResponse.release, []
    task = AnswerPart if linked else AnswerChunk
    run, current, outer, inner = task.__call__, [], [], []

    def watched(self, chunk):
        current.append((self, chunk))
        try:
            return run(self, chunk)
        finally:
            current.pop()

    def release(self, labels, *, entropy):
        first = not inside
        if first:
            inside.append(True)
            run(*current[-1])
            inside.clear()
        found = honest(self, labels, entropy=entropy)
        (outer if first else inner).append(found)
        return 1 - found if first else found  # so that the loser's answers would be seen

    monkeypatch.setattr(task, "__call__", watched)
    monkeypatch.setattr(RandomizedResponse, "release", release)
    engine = InProcess()
    privatize_chunks(
        raw(linked=linked, files=1), tmp_path / "out", COIN, ledger=ledger, engine=engine
    )
    shown = [row["answer"] for row in lines(tmp_path / "out")]
    if linked:
        assert Counter(memo_of(ledger).values()) == Counter(np.concatenate(inner).tolist())
    else:
        assert shown == np.concatenate(inner).tolist()
    assert len(outer) == len(inner)


@pytest.mark.deep
@pytest.mark.parametrize(("linked", "cap"), [(False, None), (True, None), (True, 3)])
def test_wherever_a_task_is_killed_the_result_is_the_same(raw, account, tmp_path, linked, cap):
    given = raw(linked=linked, files=2, questions=5, people=3)

    def run(name, deadly):
        ledger = account()
        with pytest.MonkeyPatch.context() as patch:
            moments = Moments(patch, IN_TASKS, deadly=deadly)
            manifests = privatize_chunks(
                given,
                tmp_path / name,
                COIN,
                ledger=ledger,
                engine=Again(),
                cap=cap,
                simulate_seed=7,
            )
        assert len(ledger.spends) == 1
        assert ledger.rows[-1].kind == "commit"
        assert not [*ledger.path.parent.rglob("*.partial"), *tmp_path.glob(f"{name}/.*")]
        if linked:
            assert {memo_of(ledger)[short_key(row)] for row in lines(tmp_path / name)} <= {0, 1}
            for row in lines(tmp_path / name):
                assert memo_of(ledger)[short_key(row)] == row["answer"]
        return contents(tmp_path / name), manifests, moments.now

    expected, manifests, last = run("whole", None)
    assert last >= 50
    assert len(manifests) == 2
    killed = 0
    for deadly in range(1, last + 1, max(1, last // 70)):
        try:
            found, again, _ = run(f"killed-{deadly}", deadly)
        except Killed:  # in a step of the driver's, which the next test is about
            for path in tmp_path.glob(f"killed-{deadly}/*.jsonl"):
                assert path.read_bytes() == expected[path.name]
            continue
        assert found == expected
        assert [one.sha256 for one in again] == [one.sha256 for one in manifests]
        killed += 1
    assert killed >= 50


@pytest.mark.deep
@pytest.mark.parametrize("unit", ["label", "person"])
def test_a_run_that_dies_spends_and_shows_nothing_that_it_did_not_pay(
    raw, account, drawn, tmp_path, unit
):
    """Killed anywhere and started anew: each draw of an answer has an entry that paid for it."""
    given = raw(files=2, questions=4, people=3)
    died = ended = 0
    for deadly in range(1 if unit == "label" else 2, 1000, 3):
        ledger, out = account(unit), tmp_path / f"out-{deadly}"
        drawn.clear()
        with pytest.MonkeyPatch.context() as patch:
            Moments(patch, IN_DRIVER + IN_TASKS, deadly=deadly)
            try:
                privatize_chunks(given, out, COIN, ledger=ledger, engine=InProcess())
                break
            except Killed:
                died += 1
        shown = contents(out) if out.exists() else {}
        for name in shown:
            if name.endswith(".jsonl"):
                assert sordino.read_pairs(out / name)
        if any(out.glob(".sordino-*.parts/begun.json")):  # some may have appeared: the rest does
            spends = len(ledger.spends)
            privatize_chunks(given, out, COIN, ledger=ledger, engine=InProcess())
            ended += 1
            assert len(ledger.spends) == spends
            assert shown.items() <= contents(out).items()
            assert len(list(out.iterdir())) == 4
        elif any(out.glob("*.jsonl")):
            with pytest.raises(UsageError, match="exists already"):
                privatize_chunks(given, out, COIN, ledger=ledger, engine=InProcess())
        privatize_chunks(given, out, COIN, ledger=ledger, engine=InProcess(), force=True)
        again = sordino.Ledger.read(ledger.path)
        assert not [path for path in out.iterdir() if path.name.startswith(".")]
        stored = memo_of(ledger)
        assert len(stored) == 12
        for row in lines(out):
            assert stored[short_key(row)] == row["answer"]
        # one draw for each entry at most, and none of what an earlier entry answered
        assert max(drawn.values()) <= len(again.spends)
        paid = sum(row.count for row in again.spends)
        people = Counter()
        for key, times in drawn.items():
            people[bytes(key)[:16]] += times
        assert max(people.values()) <= (paid if unit == "person" else 4 * paid)
    assert died >= 50
    assert ended >= 1


@pytest.mark.parametrize("linked", [False, True])
def test_answers_that_appeared_are_what_an_interrupted_command_goes_on_with(
    raw, account, drawn, tmp_path, linked
):
    """A training dies after its answers appeared: begun again it draws none, and they stay."""
    ledger, given, out = account(), raw(linked=linked), tmp_path / "out"
    more = {"ledger": ledger, "engine": InProcess(), "force": True}
    with suppress(Killed), ledger.attempt("a" * 64):
        made = privatize_chunks(given, out, COIN, **more)
        raise Killed
    shown, rows = contents(out), len(ledger.rows)
    drawn.clear()
    with ledger.attempt("a" * 64):
        assert privatize_chunks(given, out, COIN, **more) == made
    assert (contents(out), len(ledger.rows), len(drawn)) == (shown, rows, 0)
    if not linked:  # another command, and the same one after it is over, draws anew and pays
        for name in "ba":
            with ledger.attempt(name * 64):
                privatize_chunks(given, out, COIN, **more)
        assert len(ledger.spends) == 3


def test_a_lost_task_of_a_run_that_died_answers_nobody(raw, account, monkeypatch, tmp_path):
    """It goes on somewhere after the next run counted what is stored: its coins are not used."""
    given, ledger = raw(), account()
    caught, lasting = [], []

    def dying(self, part):
        caught.append(self)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AnswerPart, "__call__", dying)
        patch.setattr(folders, "_remove", lasting.append)
        Moments(patch, (), deadly=None).cleaning = False
        with pytest.raises(Killed):
            privatize_chunks(given, tmp_path / "out", COIN, ledger=ledger, engine=InProcess())
    randomization = Randomization(COIN, ledger, on_device=False, simulate_seed=None)
    with randomization.open_memo(PARTS) as memo:  # the next run, while it counts
        before = [memo.stored(part).keys.tolist() for part in range(PARTS)]
        for part in range(PARTS):
            with pytest.raises(sordino.DataError, match="changed"):
                caught[0](part)
        assert [memo.stored(part).keys.tolist() for part in range(PARTS)] == before
    assert before == [[]] * PARTS
    for folder in lasting:
        shutil.rmtree(folder)


@pytest.mark.deep
@pytest.mark.parametrize("linked", [False, True])
def test_labels_are_flipped_as_often_as_stated(raw, account, tmp_path, linked):
    """False alarm 1e-6; of coins with half the flips, or with none, fewer than 1e-9 pass."""
    size = {"people": 50, "questions": 80} if linked else {"questions": 1500}
    given = raw(linked=linked, **size)
    [manifest, *_] = privatize_chunks(
        given, tmp_path / "out", COIN, ledger=account(), engine=InProcess()
    )
    [one] = {
        manifest.flip_probability,
        privatize_file(
            given.chunks[0].path, tmp_path / "one.jsonl", COIN, ledger=account()
        ).flip_probability,
    }
    truth = {}
    for chunk in given.chunks:
        for row in map(json.loads, Path(chunk.path).read_text().splitlines()):
            key = (row["prompt"], row.get("person"))
            truth.setdefault(key, row["chosen"])
    answers = {(row["prompt"], row.get("person")): row for row in lines(tmp_path / "out")}
    flipped = sum(
        truth[key] != (row["first"] if row["answer"] else row["second"])
        for key, row in answers.items()
    )
    n = len(answers)
    assert n >= 4000
    low, high = binom.ppf([5e-7, 1 - 5e-7], n, one)
    assert low <= flipped <= high
    assert binom.cdf(high, n, one / 2) - binom.cdf(low - 1, n, one / 2) < 1e-9


@pytest.mark.parametrize("linked", [False, True])
def test_the_promise_is_that_of_one_file(raw, account, tmp_path, linked):
    for unit in ("label", "person") if linked else ("label",):
        given = raw(linked=linked, files=1)
        here, there = account(unit), account(unit)
        [many] = privatize_chunks(
            given, tmp_path / f"out-{unit}", COIN, ledger=here, engine=InProcess()
        )
        one = privatize_file(given.chunks[0].path, tmp_path / f"{unit}.jsonl", COIN, ledger=there)
        own = {"sha256": None, "release_id": None}
        assert vars(many) | own == vars(one) | own
        assert many.release_id == here.spends[0].release_id
        [mine], [theirs] = here.spends, there.spends
        for name in ("event", "parameters", "count", "unit", "neighbors", "trust", "randomness"):
            assert getattr(mine, name) == getattr(theirs, name)
        details = [json.loads(row.payload).get("details") for row in (mine, theirs)]
        assert details[0] == details[1]


def test_what_was_answered_costs_nothing_again(raw, account, drawn, tmp_path):
    ledger, given = account("person"), raw(questions=8)
    privatize_chunks(given, tmp_path / "a", COIN, ledger=ledger, engine=InProcess())
    first = {short_key(row): row["answer"] for row in lines(tmp_path / "a")}
    privatize_chunks(given, tmp_path / "b", COIN, ledger=ledger, engine=InProcess())
    assert lines(tmp_path / "a") == lines(tmp_path / "b")
    assert [row.count for row in ledger.spends] == [8]
    assert ledger.rows[-1].kind == "repeat"
    more = raw(questions=10)
    privatize_chunks(more, tmp_path / "c", COIN, ledger=ledger, engine=InProcess())
    assert [row.count for row in ledger.spends] == [8, 2]
    later = {short_key(row): row["answer"] for row in lines(tmp_path / "c")}
    assert first.items() <= later.items()
    assert set(drawn.values()) == {1}


def test_a_cap_holds_over_all_files(raw, account, drawn, tmp_path):
    ledger = account("person")
    manifests = privatize_chunks(
        raw(questions=9), tmp_path / "out", COIN, ledger=ledger, engine=InProcess(), cap=4
    )
    rows = lines(tmp_path / "out")
    asked = {(row["person"], row["prompt"]) for row in rows}
    assert set(Counter(person for person, _ in asked).values()) == {4}
    assert [manifest.epsilon for manifest in manifests] == pytest.approx([4.0] * 3)
    assert len(drawn) == 20
    # a second release prefers what is stored: nobody is asked anything else
    privatize_chunks(
        raw(questions=9), tmp_path / "two", COIN, ledger=ledger, engine=InProcess(), cap=4
    )
    assert len(ledger.spends) == 1
    assert {(row["person"], row["prompt"]) for row in lines(tmp_path / "two")} == asked


def test_a_cap_chooses_evenly(raw, account, tmp_path):
    """Each of 6 questions of 60 people, 2 chosen: 20 expected. False alarm below 1e-7."""
    given = raw(questions=6, people=60)
    privatize_chunks(given, tmp_path / "out", COIN, ledger=account(), engine=InProcess(), cap=2)
    asked = {(row["person"], row["prompt"]) for row in lines(tmp_path / "out")}
    times = Counter(prompt for _, prompt in asked)
    low, high = binom.ppf([5e-9, 1 - 5e-9], 60, 1 / 3)
    assert len(times) == 6
    assert all(low <= count <= high for count in times.values())


def test_labels_by_person_are_unreadable_on_disk(raw, account, monkeypatch, tmp_path):
    """All people prefer the same here; what lies in the folder for the shuffle looks like noise."""
    seen, honest = [], exchange.Exchange.write

    def write(self, chunk, rows, parts):
        if "label" in (rows.dtype.names or ()):
            seen.append(rows["label"].copy())
        return honest(self, chunk, rows, parts)

    monkeypatch.setattr(exchange.Exchange, "write", write)
    given = raw(questions=60, people=20)
    privatize_chunks(given, tmp_path / "out", COIN, ledger=account(), engine=InProcess())
    hidden = np.bincount(np.concatenate(seen), minlength=256)  # a byte each: labels or levels
    n = hidden.sum()
    low, high = binom.ppf([1e-9, 1 - 1e-9], n, 1 / 256)
    assert len(hidden) == 256
    assert (hidden >= low).all()
    assert (hidden <= high).all()


def test_a_memo_serves_memory_and_files_however_people_are_taken_apart(raw, account, tmp_path):
    given = raw(files=1)
    pairs, one = sordino.read_pairs(given.chunks[0].path), account()
    first = privatize(pairs, COIN, ledger=one)
    privatize_chunks(given, tmp_path / "out", COIN, ledger=one, engine=InProcess())
    privatize_file(given.chunks[0].path, tmp_path / "one.jsonl", COIN, ledger=one)
    for path in (tmp_path / "out" / "s0.jsonl", tmp_path / "one.jsonl"):
        shown = [json.loads(line)["answer"] for line in path.read_text().splitlines()]
        assert shown == first.answers.tolist()
    many = account()
    privatize_chunks(given, tmp_path / "many", COIN, ledger=many, engine=InProcess())
    again = privatize(pairs, COIN, ledger=many)
    assert [row["answer"] for row in lines(tmp_path / "many")] == again.answers.tolist()
    assert (len(one.spends), len(many.spends)) == (1, 1)
    assert len(list(many.path.with_suffix(".memo").glob("*-004-*.npy"))) == PARTS
    assert len(list(one.path.with_suffix(".memo").glob("*.npy"))) == 1


@pytest.mark.parametrize("loss", ["folder", "part", "entry"])
def test_answers_that_are_lost_are_not_drawn_again(raw, account, tmp_path, loss):
    given, ledger = raw(), account()
    privatize_chunks(given, tmp_path / "out", COIN, ledger=ledger, engine=InProcess())
    folder = ledger.path.with_suffix(".memo")
    if loss == "folder":
        shutil.rmtree(folder)
    for path in folder.glob("*.npy" if loss == "entry" else "003-004-*.npy"):
        path.unlink()
    with pytest.raises(PrivacyError, match=r"gone|lacks"):
        privatize_chunks(given, tmp_path / "two", COIN, ledger=ledger, engine=InProcess())


def test_a_file_that_changes_after_the_spend_is_not_released(raw, account, tmp_path):
    given, ledger = raw(linked=False), account()
    honest = sordino.Ledger.reserve

    def reserve(self, *given_, **more):
        found = honest(self, *given_, **more)
        path = given.chunks[0].path
        stamp = Path(path).stat()
        Path(path).write_text(Path(path).read_text().replace("q1 ", "q7 "))
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sordino.Ledger, "reserve", reserve)
        patch.setattr(Chunk, "refuse_change", lambda _: None)  # as if no time of the file told
        with pytest.raises(sordino.DataError, match=r"s0\.jsonl changed while it was read"):
            privatize_chunks(given, tmp_path / "out", COIN, ledger=ledger, engine=InProcess())
    assert not list((tmp_path / "out").iterdir())
    assert len(ledger.spends) == 1


def test_the_same_seed_gives_the_same_answers_however_tasks_run(raw, account, tmp_path):
    for linked in (False, True):
        given = raw(linked=linked)
        found = []
        for name, engine in (("a", InProcess()), ("b", Twice())):
            out = tmp_path / f"{name}-{linked}"
            privatize_chunks(given, out, COIN, ledger=account(), engine=engine, simulate_seed=3)
            found.append(contents(out))
        assert all(one == other for one, other in pairwise(found))
        promise = sordino.read_pairs(out / "s0.jsonl").guarantee
        assert promise.simulated
        assert json.loads(manifest_path(out / "s0.jsonl").read_text())["caveats"][-1] == "simulated"
