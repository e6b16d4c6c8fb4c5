"""Answers that were shown are never drawn again, whichever run showed them and whatever is lost.

A run that dies after its answers are stored has an entry without an outcome; a later one releases
these answers. From then on losing them must be noticed.
"""

import json
import shutil

import pytest
from tests.privatized import privatize_file

import sordino
from sordino.engines.engine import InProcess
from sordino.errors import PrivacyError
from sordino.preferences.chunks import find_chunks
from sordino.privacy.ledger import Reservation
from sordino.privatization.answers import privatize
from sordino.privatization.chunks import privatize_chunks

COIN = sordino.RandomizedResponse(1.0)
pytestmark = pytest.mark.usefixtures("few_parts")

PARTS = 4


class Killed(BaseException):
    """What stops a run where it is."""


@pytest.fixture(params=["label", "person"])
def ledger(request, tmp_path):
    """A ledger in a folder of its own."""
    (tmp_path / "account").mkdir()
    budget = sordino.Guarantee(
        100.0, delta=0.0, unit=request.param, neighbors=sordino.REPLACE_ONE, trust="central"
    )
    return sordino.Ledger.open(tmp_path / "account" / "spend.db", data="t", budget=budget)


class Runs:
    """Runs of one kind, each of so many questions of every person, and what they store."""

    def __init__(self, kind, folder, ledger):
        self.kind, self.folder, self.ledger, self.number = kind, folder, ledger, 0

    def __call__(self, questions, *, people=6, dies=False):
        """Answer, or die when everything is stored and nothing is recorded."""
        self.number += 1
        raw = self.folder / f"raw-{self.number}.jsonl"
        rows = [
            {"prompt": f"q{q}", "chosen": "yes", "rejected": "no", "person": f"p{p}"}
            for q in range(questions)
            for p in range(people)
        ]
        raw.write_text("".join(json.dumps(row) + "\n" for row in rows))
        if not dies:
            self._run(raw)
            return
        with pytest.MonkeyPatch.context() as patch:

            def dying(*_, **_named):
                raise Killed

            patch.setattr(Reservation, "commit", dying)
            with pytest.raises(Killed):
                self._run(raw)

    def _run(self, raw):
        if self.kind == "memory":
            privatize(sordino.read_pairs(raw), COIN, ledger=self.ledger)
        elif self.kind == "stream":
            privatize_file(raw, raw.with_suffix(".out.jsonl"), COIN, ledger=self.ledger)
        else:
            out = self.folder / f"out-{self.number}"
            privatize_chunks(find_chunks(raw), out, COIN, ledger=self.ledger, engine=InProcess())

    def lose(self, entry, part=None):
        """Take the stored answers away that one entry paid for, of one part or all."""
        memo = self.ledger.path.with_suffix(".memo")
        for path in memo.glob(f"{'*' if part is None else f'{part:03d}'}-*-{entry}.npy"):
            path.unlink()


@pytest.fixture(params=["memory", "stream", "chunks"])
def runs(request, tmp_path, ledger):
    """Runs over memory, one file, and many."""
    return Runs(request.param, tmp_path, ledger)


def kinds(ledger):
    """What is on a ledger."""
    return [row.kind for row in sordino.Ledger.read(ledger.path).rows]


def refused(runs, ledger):
    """Whether a run is refused, and spends nothing."""
    before = kinds(ledger)
    with pytest.raises(PrivacyError, match=r"lacks answers that this ledger paid for"):
        runs(4)
    assert kinds(ledger) == before


def test_answers_of_a_run_that_died_are_missed_once_they_were_shown(runs, ledger):
    runs(4, dies=True)
    runs(4)
    assert kinds(ledger) == ["open", "reserve", "repeat"]
    runs.lose(ledger.spends[0].release_id)
    refused(runs, ledger)


@pytest.mark.parametrize("ledger", ["person"], indirect=True)  # others are bound to their questions
def test_answers_of_a_run_that_died_are_missed_where_others_were_drawn_beside_them(runs, ledger):
    runs(3, dies=True)
    runs(4)
    assert kinds(ledger) == ["open", "reserve", "reserve", "repeat", "commit"]
    died, paid = (row.release_id for row in ledger.spends)
    outcomes = {row.kind: row for row in ledger.rows[3:]}
    assert (outcomes["repeat"].release_id, outcomes["commit"].release_id) == (died, paid)
    told = [json.loads(outcomes[kind].payload) for kind in ("repeat", "commit")]
    assert told[0]["artifact"] == told[1]["artifact"]
    assert told[0]["drawn"] != told[1]["drawn"]  # each entry is bound to what it drew
    runs.lose(died)
    refused(runs, ledger)


@pytest.mark.parametrize("ledger", ["person"], indirect=True)
def test_every_entry_that_paid_for_free_answers_has_an_outcome(runs, ledger):
    """Two runs died; a third shows what both had stored."""
    runs(2, dies=True)
    runs(4, dies=True)
    before = len(ledger.rows)
    runs(4)
    assert [row.kind for row in ledger.rows[before:]] == ["repeat", "repeat"]
    assert {row.release_id for row in ledger.rows[before:]} == {
        row.release_id for row in ledger.spends
    }
    runs.lose(max(row.release_id for row in ledger.spends))
    refused(runs, ledger)


def test_answers_that_were_never_shown_may_be_lost(runs, ledger):
    """Only the spend is: nobody saw what is drawn again."""
    runs(4, dies=True)
    runs.lose(ledger.spends[0].release_id)
    runs(4)
    assert kinds(ledger) == ["open", "reserve", "reserve", "commit"]


@pytest.mark.parametrize("loss", ["part", "folder"])
def test_one_part_that_is_lost_is_missed(tmp_path, ledger, loss):
    runs = Runs("chunks", tmp_path, ledger)
    runs(4, dies=True)
    runs(4)
    if loss == "part":
        runs.lose(ledger.spends[0].release_id, part=2)
        refused(runs, ledger)
        return
    shutil.rmtree(ledger.path.with_suffix(".memo"))
    with pytest.raises(PrivacyError, match="is gone"):
        runs(4)
