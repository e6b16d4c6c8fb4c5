"""A run that was tampered with is refuted by the check that it should fail; honest ones are not.

Runs are what the command line writes. Nothing in them is a matter of chance, so there is no
false-alarm rate: every honest run passes, every forgery here is caught.
"""

import hashlib
import json
import math
import re
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from itertools import count

import pytest
from tests.apart import apart
from tests.soundness.forgeries import Draft, Forgery, put
from tests.tiers import few

from sordino import cli
from sordino._files import to_json
from sordino._random import now
from sordino.auditing.runs.replay import audit_run
from sordino.errors import DataError, UsageError
from sordino.privacy import ledger_chain
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import canonical_json

SHORT = ["--dimension", "12"]
CHECKS = [
    "chain", "head", "digests", "entries", "totals", "claim", "caveats", "mechanism", "budget",
    "report", "strays",
]  # fmt: skip
HONEST = [
    "plain", "persons", "person", "pessimistic", "simulated", "answers", "on-device", "second",
    "again", "elsewhere", "labels", "persons-labels", "records", "hidden",
]  # fmt: skip


def command(*words):
    assert cli.run(apart(words)) == 0


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One honest run of every kind."""
    home = tmp_path_factory.mktemp("runs")
    plain, people = home / "plain.jsonl", home / "people.jsonl"
    command("simulate", "pairs", "--n", 60, "--out", plain)
    command("simulate", "pairs", "--n", 60, "--people", 12, "--out", people)

    def align(data, name, *words):
        command("align", data, "--out", home / name, *SHORT, *words)

    align(plain, "plain", "--epsilon", 2)
    align(plain, "other", "--epsilon", 2)
    align(people, "persons", "--epsilon", 2, "--budget", 9)
    align(people, "person", "--epsilon", 6, "--unit", "person", "--cap", 3)
    align(people, "pessimistic", "--epsilon", 2, "--confidence", 0.95, "--scale", 0.1)
    align(plain, "simulated", "--epsilon", 2, "--simulate-seed", 3)
    answers, mine = home / "answers.jsonl", home / "mine.jsonl"
    command("privatize", plain, "--epsilon", 1, "--out", answers)
    align(answers, "answers")
    one = home / "one.jsonl"
    rows = [json.loads(line) for line in people.read_text().splitlines()]
    one.write_text("".join(json.dumps(row | {"person": "me"}) + "\n" for row in rows))
    command("privatize", one, "--epsilon", 1, "--out", mine, "--on-device")
    align(mine, "on-device")
    align(plain, "first", "--epsilon", 1, "--budget", 4, "--ledger", home / "shared.db")
    align(plain, "second", "--epsilon", 1.5, "--ledger", home / "shared.db")
    align(plain, "elsewhere", "--epsilon", 1, "--ledger", home / "shared.db")
    align(people, "again", "--epsilon", 2, "--ledger", home / "persons" / "spend.db")
    curator = ("--noise", "estimate", "--epsilon", 1, "--delta", 1e-6)
    align(plain, "labels", *curator, "--metrics-epsilon", 1)
    align(people, "persons-labels", *curator, "--unit", "person", "--cap", 3)
    align(plain, "records", *curator, "--unit", "record")
    hidden = ("--unit", "record", "--neighbors", "add-remove", "--metrics-epsilon", 0.5)
    align(plain, "hidden", *curator, *hidden)
    return home


LEDGERS = {
    "first": "shared.db",
    "second": "shared.db",
    "elsewhere": "shared.db",
    "again": "persons/spend.db",
}


def where_is(home, name):
    return home / LEDGERS[name] if name in LEDGERS else None


class Copy(Forgery):
    """A copy of the whole folder of an honest run, with its ledger and its page."""

    def __init__(self, home, name, to):
        self.folder = to / name
        shutil.copytree(home / name, self.folder)
        if name in LEDGERS:
            shutil.copy(home / LEDGERS[name], self.folder / "spend.db")
        self.ledger = self.folder / "spend.db"

    def read(self, name):
        return json.loads((self.folder / name).read_text())

    def write(self, name, value):
        (self.folder / name).write_text(to_json(value))

    def content(self, name):
        return (self.folder / name).read_bytes()

    def sql(self, *statements):
        """Change the ledger behind its own back."""
        with closing(sqlite3.connect(self.ledger)) as connection:
            for verb in ("update", "delete"):
                connection.execute(f"DROP TRIGGER IF EXISTS no_{verb}")
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    def append(self, **values):
        """Add a row by hand, with a digest that fits."""
        with ledger_chain.connect(self.ledger) as connection:
            last = ledger_chain.read_rows(connection)[-1]
            with ledger_chain.transaction(connection):
                ledger_chain.append(connection, last, time=now(), **values)

    def spend_more(self, *, release_id="f" * 16, epsilon=2.0):
        """Add a spend by hand, whatever the budget says."""
        with ledger_chain.connect(self.ledger) as connection:
            known = next(r for r in ledger_chain.read_rows(connection) if r.kind == "reserve")
        names = ("event", "count", "unit", "neighbors", "trust", "randomness", "payload", "scope")
        same = {name: getattr(known, name) for name in names}
        parameters = canonical_json({"categories": 2, "epsilon": epsilon})
        self.append(kind="reserve", release_id=release_id, parameters=parameters, **same)

    def audit(self):
        return audit_run(self.folder)


def outcomes(audit):
    return {found.attack: found.outcome for found in audit.findings}


@pytest.fixture
def forged(made, tmp_path):
    counter = count()
    return lambda name="plain": Copy(made, name, tmp_path / str(next(counter)))


@pytest.fixture
def drafted(made, tmp_path):
    counter = count()
    return lambda name="plain": Draft(
        made / name, tmp_path / str(next(counter)), ledger=where_is(made, name)
    )


# Honest runs.


@pytest.mark.parametrize("name", few(HONEST, first=5))
def test_an_honest_run_is_not_refuted(made, name):
    audit = audit_run(made / name, ledger=where_is(made, name))
    found = outcomes(audit)
    assert sorted(found) == sorted(CHECKS)
    expected = dict.fromkeys(CHECKS, "clear")
    if name == "simulated":
        expected["caveats"] = "warning"
    if {*(made / name).glob("*.secret"), *(made / name).glob("*.memo")}:  # its ledger is there
        expected["strays"] = "warning"
    assert found == expected, [(f.attack, f.summary) for f in audit.findings]
    assert (audit.kind, audit.subject, audit.verdict) == ("run", name, "not refuted")
    result = json.loads((made / name / "result.json").read_text())
    assert audit.claim.to_dict() == result["guarantee"]
    assert list(audit.claim.caveats) == result["caveats"]


def test_every_kind_of_run_was_made(made):
    """The runs above are of the kinds that they are named after."""

    def read(name):
        return json.loads((made / name / "result.json").read_text())

    assert read("person")["guarantee"]["unit"] == "person"
    assert read("pessimistic")["policy"]["kind"] == "pessimistic"
    assert read("simulated")["guarantee"]["randomness"] == "simulated"
    assert read("answers")["certificate"]["ledger"]["total"] is None
    assert read("on-device")["guarantee"]["trust"] == "local"
    assert read("second")["certificate"]["ledger"]["total"]["epsilon"] == 2.5
    assert read("first")["certificate"]["ledger"]["rows"] == 3  # others came after it
    assert read("labels")["metrics"]["name"] == "label-gaussian"
    assert read("persons-labels")["mechanism"]["records_per_person"] == 3
    assert read("records")["mechanism"]["name"] == "objective-perturbation"
    assert read("hidden")["guarantee"]["neighbors"] == "ADD_OR_REMOVE_ONE"
    with ledger_chain.connect_reader(made / "persons" / "spend.db") as connection:
        assert [r.kind for r in ledger_chain.read_rows(connection)][-1] == "repeat"


def test_a_run_stays_honest_when_others_spend_after_it(made):
    audit = audit_run(made / "first", ledger=made / "shared.db")
    assert not audit.refuted
    (head,) = (f for f in audit.findings if f.attack == "head")
    assert head.details["position"] < head.details["rows"]


def test_a_page_that_was_drawn_again_later_is_of_this_run(forged):
    copied = forged("first")
    command("report", copied.folder, "--force")
    found = outcomes(copied.audit())
    assert found["report"] == "clear"


def test_a_budget_lowered_below_what_was_spent_is_honest(forged):
    copied = forged()
    budget = copied.read("result.json")["certificate"]["ledger"]["total"]
    copied.append(kind="budget", payload=canonical_json({"budget": budget | {"epsilon": 0.5}}))
    assert not copied.audit().refuted


def test_an_entry_that_a_crash_left_without_a_commit_is_honest(forged):
    """Its answers were stored before the crash, and a later entry paid for the rest."""
    copied = forged("persons")
    reward = copied.read("reward.json")
    copied.sql("DELETE FROM rows WHERE sequence > 1")
    reward["release_ids"] = ["a" * 16, "b" * 16]
    payload = {"caveats": reward["caveats"], "details": {"largest_person_labels": 5}}
    entry = {
        "data": "preferences", "kind": "reserve", "scope": "all", "count": 1,
        "event": "randomized-response",
        "parameters": canonical_json({"categories": 2, "epsilon": 2.0}), "unit": "label",
        "neighbors": "REPLACE_ONE", "trust": "central", "randomness": "system",
        "payload": canonical_json(payload),
    }  # fmt: skip
    for release_id in reward["release_ids"]:
        copied.append(release_id=release_id, **entry)
    outcome = canonical_json({"artifact": reward["artifact"]})
    copied.append(kind="commit", data="preferences", release_id="b" * 16, payload=outcome)
    copied.write("reward.json", reward)
    result = copied.read("result.json")
    result["certificate"]["release_ids"] = reward["release_ids"]
    with ledger_chain.connect_reader(copied.ledger) as connection:
        last = ledger_chain.read_rows(connection)[-1]
    total = result["certificate"]["ledger"]["total"] | {"epsilon": 4.0}
    result["certificate"]["ledger"] = {"head": last.digest, "rows": 4, "total": total}
    accounts = Ledger.read(copied.ledger).accounts()
    result["spent"] = {unit: account.to_dict() for unit, account in accounts.items()}
    copied.write("result.json", result)
    copied.reseal()
    assert not copied.audit().refuted


# The promise made stronger, in one place.

PLACES = {
    "result": ("result.json", (), "claim"),
    "certificate": ("result.json", ("certificate",), "claim"),
    "reward": ("reward.json", (), "claim"),
}
places = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)


@places
def test_a_smaller_epsilon(drafted, place):
    name, above, check = place
    draft = drafted()
    draft.change(name, *above, "guarantee", "epsilon", to=1.9999999999999998)
    if name == "reward.json":
        assert draft.refuted_by() == ("digests", check)
        draft.reseal()
    assert check in draft.refuted_by()
    assert ("totals" in draft.refuted_by()) == (above == ("certificate",))


@places
@pytest.mark.parametrize(
    ("run", "field", "value", "check"),
    [
        ("plain", "trust", "local", "claim"),
        ("plain", "unit", "person", "claim"),
        ("person", "unit", "label", "claim"),
        ("plain", "unit", "record", "claim"),
        ("plain", "neighbors", "REPLACE_SPECIAL", "claim"),
        ("simulated", "randomness", "system", "caveats"),
    ],
)
def test_other_terms(drafted, place, run, field, value, check):
    name, above, _ = place
    draft = drafted(run)
    draft.change(name, *above, "guarantee", field, to=value)
    draft.reseal()
    assert draft.refuted_by() == (check,)


@places
@pytest.mark.parametrize("run", ["plain", "persons", "person", "simulated"])
def test_a_dropped_caveat(drafted, place, run):
    name, above, _ = place
    draft = drafted(run)
    caveats = draft.read("result.json")["caveats"]
    assert caveats
    for index in range(len(caveats)):
        draft.change(name, *above, "caveats", to=caveats[:index] + caveats[index + 1 :])
        draft.reseal()
        assert draft.refuted_by() == ("caveats",)


IN_LEDGER = ("certificate", "ledger")
ONE_CHANGE = {
    "no total": ("plain", (*IN_LEDGER, "total"), None, "totals"),
    "less spent of labels": ("plain", ("spent", "label", "epsilon"), 0.5, "totals"),
    "records said to be hidden": (
        "plain",
        ("spent", "record"),
        {"epsilon": 4.0, "delta": 0.0, "neighbors": "REPLACE_ONE", "says": ""},
        "totals",
    ),
    "another head": ("plain", (*IN_LEDGER, "head"), "0" * 64, "head"),
    "fewer rows": ("plain", (*IN_LEDGER, "rows"), 2, "head"),
    "more rows": ("plain", (*IN_LEDGER, "rows"), 99, "head"),
    "another data set": ("plain", ("certificate", "data"), "something public", "head"),
    "another noise": ("plain", ("noise",), "central", "mechanism"),
    "another mechanism": ("plain", ("mechanism", "name"), "central", "mechanism"),
    "temperature": ("plain", ("policy", "temperature"), 0.25, "digests"),
    "scale": ("pessimistic", ("policy", "scale"), 1.0, "digests"),
    "confidence": ("pessimistic", ("policy", "confidence"), 0.99, "digests"),
    "optimism": ("pessimistic", ("policy", "kind"), "optimistic", "digests"),
    "another policy": ("pessimistic", ("policy", "kind"), "gibbs", "digests"),
}


@pytest.mark.parametrize(("run", "path", "value", "check"), ONE_CHANGE.values(), ids=ONE_CHANGE)
def test_one_value_changed_is_refuted_by_the_check_that_it_should_fail(
    drafted, run, path, value, check
):
    draft = drafted(run)
    draft.change("result.json", *path, to=value)
    assert draft.refuted_by() == (check,)


WEAKER = {
    "promise": (("guarantee", "epsilon"), 3.0, "claim"),
    "coin": (("mechanism", "epsilon_per_label"), 3.0, "mechanism"),
    "total": ((*IN_LEDGER, "total", "epsilon"), 2.5, "totals"),
}


@pytest.mark.parametrize(("path", "value", "check"), WEAKER.values(), ids=WEAKER)
def test_what_differs_and_is_weaker_is_a_warning(drafted, path, value, check):
    draft = drafted()
    draft.change("result.json", *path, to=value)
    assert not draft.audit().refuted
    assert outcomes(draft.audit())[check] == "warning"


@pytest.mark.parametrize("names", [[], ["0" * 16]])
@pytest.mark.parametrize("files", [("result",), ("reward",), ("result", "reward")])
def test_entries_shortened_or_invented(drafted, names, files):
    draft = drafted()
    if "result" in files:
        draft.change("result.json", "certificate", "release_ids", to=names)
    if "reward" in files:
        draft.change("reward.json", "release_ids", to=names)
        draft.reseal()
    assert draft.refuted_by() == ("entries",)


@pytest.mark.parametrize("run", ["plain", "second", "simulated"])
@pytest.mark.parametrize(
    "change", [{"epsilon": 0.5}, {"trust": "local"}, {"unit": "person"}, {"randomness": "system"}]
)
def test_the_total_of_the_ledger_lowered(drafted, run, change):
    copied = drafted(run)
    total = copied.read("result.json")["certificate"]["ledger"]["total"]
    copied.change("result.json", "certificate", "ledger", "total", to=total | change)
    expected = ("totals",) if total | change != total else ()
    assert copied.refuted_by() == expected


# The mechanism that is described.


@pytest.mark.parametrize("run", ["plain", "persons", "person", "answers", "on-device", "again"])
@pytest.mark.parametrize(
    ("path", "factor"),
    [
        (("mechanism", "epsilon_per_label"), 0.5),
        (("mechanism", "flip_probability"), 1.2),
        (("mechanism", "flip_probability"), 0.5),
    ],
)
def test_another_coin_than_the_one_that_was_paid_for(drafted, run, path, factor):
    copied = drafted(run)
    result = copied.read("result.json")
    copied.change("result.json", *path, to=factor * result["mechanism"][path[-1]])
    if run in {"answers", "on-device"} and factor > 1:  # their flips are on no ledger here
        assert not copied.audit().refuted
    else:
        assert copied.refuted_by() == ("mechanism",)


# Other files, other entries.


def test_weights_changed(forged):
    """In the files of a folder, also where the result names the changed file."""
    copied = forged()
    copied.change("reward.json", "weights", 3, to=0.125)
    assert copied.refuted_by() == ("digests",)
    sha256 = hashlib.sha256(copied.content("reward.json")).hexdigest()
    copied.change("result.json", "reward_sha256", to=sha256)
    assert copied.refuted_by() == ("digests",)


def test_one_value_of_each_file_end_to_end(forged):
    for name, path, to, check in (
        ("result.json", ("guarantee", "epsilon"), 1.9, "claim"),
        ("result.json", ("certificate", "guarantee", "trust"), "local", "claim"),
        ("result.json", ("mechanism", "flip_probability"), 0.4, "mechanism"),
        ("result.json", ("caveats",), [], "caveats"),
        ("result.json", ("certificate", "ledger", "rows"), 2, "head"),
        ("reward.json", ("release_ids",), [], "entries"),
    ):
        copied = forged()
        copied.change(name, *path, to=to)
        assert check in copied.refuted_by()


def test_the_reward_of_another_run(forged):
    copied, other = forged(), forged("other")
    shutil.copy(other.folder / "reward.json", copied.folder / "reward.json")
    assert {"digests", "entries"} <= set(copied.refuted_by())


def test_a_reward_that_was_only_written_anew_is_a_warning(forged):
    copied = forged()
    (copied.folder / "reward.json").write_text(json.dumps(copied.read("reward.json")))
    audit = copied.audit()
    assert not audit.refuted
    assert outcomes(audit)["digests"] == "warning"


def test_the_entries_of_another_release_on_the_same_ledger(drafted):
    copied, first = drafted("second"), drafted("first")
    cheaper = first.read("reward.json")["release_ids"]
    copied.change("reward.json", "release_ids", to=cheaper)
    copied.change("result.json", "certificate", "release_ids", to=cheaper)
    copied.reseal()
    assert copied.refuted_by() == ("entries",)


def test_an_entry_left_out_of_those_that_paid(made, tmp_path):
    """Of answers that grew over two runs, the second entry paid for half, and the first for half.

    Every row of the ledger is as it was: it says itself which entries the answers are of.
    """
    rows = (made / "people.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "half.jsonl").write_text("".join(rows[:30]))
    ledger = tmp_path / "spend.db"
    terms = ("--unit", "person", "--ledger", ledger, "--budget", 99, "--accept-weak", *SHORT)
    command("align", tmp_path / "half.jsonl", "--epsilon", 3, "--out", tmp_path / "half", *terms)
    known = json.loads((tmp_path / "half" / "result.json").read_text())["mechanism"]
    most = max(Counter(json.loads(row)["person"] for row in rows).values())
    epsilon = most * known["epsilon_per_label"]
    whole = ("align", made / "people.jsonl", "--epsilon", epsilon, "--out", tmp_path / "whole")
    command(*whole, *terms)
    assert not audit_run(tmp_path / "whole", ledger=ledger).refuted
    draft = Draft(tmp_path / "whole", tmp_path / "draft", ledger=ledger)
    first, second = (row for row in Ledger.read(ledger).rows if row.kind == "reserve")
    assert set(draft.read("reward.json")["release_ids"]) == {first.release_id, second.release_id}
    for name, above in (
        ("result.json", ()),
        ("result.json", ("certificate",)),
        ("reward.json", ()),
    ):
        draft.change(name, *above, "guarantee", "epsilon", to=epsilon * second.count / most)
    draft.change("result.json", "certificate", "release_ids", to=[second.release_id])
    draft.change("reward.json", "release_ids", to=[second.release_id])
    draft.reseal()
    assert draft.refuted_by() == ("entries",)


def test_an_entry_of_the_future(drafted):
    """What the certificate's head does not cover yet cannot have paid."""
    copied, first = drafted("second"), drafted("first")
    head = first.read("result.json")["certificate"]["ledger"]
    copied.change("result.json", "certificate", "ledger", to=head)
    assert copied.refuted_by() == ("entries",)


def test_an_entry_used_for_two_draws(forged):
    copied = forged()
    (name,) = copied.read("reward.json")["release_ids"]
    other = canonical_json({"artifact": "0" * 64})
    copied.append(kind="commit", release_id=name, payload=other)
    assert copied.refuted_by() == ("entries",)


def test_an_entry_that_never_committed(forged):
    copied = forged()
    with ledger_chain.connect_reader(copied.ledger) as connection:
        known = ledger_chain.read_rows(connection)
    copied.sql("DELETE FROM rows WHERE sequence > 2")
    ledger = {"head": known[1].digest, "rows": 2}
    for name, value in ledger.items():
        copied.change("result.json", "certificate", "ledger", name, to=value)
    assert copied.refuted_by() == ("entries",)


# The ledger.

DAMAGES = {
    "spend edited": "UPDATE rows SET parameters = replace(parameters, '2.0', '1.0') "
    "WHERE kind = 'reserve'",
    "trust edited": "UPDATE rows SET trust = 'local' WHERE kind = 'reserve'",
    "budget edited": "UPDATE rows SET payload = replace(payload, '2.0', '9.0') WHERE sequence = 1",
    "row removed": "DELETE FROM rows WHERE sequence = 2",
    "all removed": "DELETE FROM rows",
    "table gone": "DROP TABLE rows",
}


@pytest.mark.parametrize("statement", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_ledger_supports_no_claim(forged, statement):
    copied = forged()
    copied.sql(statement)
    audit = copied.audit()
    assert audit.refuted_by == ("chain",)
    assert outcomes(audit)["digests"] == "clear"
    assert outcomes(audit)["totals"] == "skipped"
    with pytest.raises(Exception, match="chain"):
        audit.require()


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0", b"no ledger\n"])
def test_a_ledger_that_is_none(forged, content):
    copied = forged()
    copied.ledger.write_bytes(content)
    assert copied.refuted_by() == ("chain",)


def test_the_newest_row_removed(forged):
    copied = forged()
    copied.sql("DELETE FROM rows WHERE sequence = 3")
    assert {"head", "entries"} == set(copied.refuted_by())


def test_an_older_backup_put_back(forged):
    copied = forged("second")
    copied.sql("DELETE FROM rows WHERE sequence > 3")
    audit = audit_run(copied.folder, ledger=copied.ledger)
    assert audit.refuted_by == ("head", "entries")
    told = copied.audit()  # nobody said that it is
    assert told.verdict == "cannot tell"
    assert "not this run's ledger" in told.reasons[0]


def test_an_older_backup_under_answers_that_were_stored(forged):
    """The entry that paid is still there; the row that says what for is not."""
    copied = forged("again")
    copied.sql("DELETE FROM rows WHERE sequence = (SELECT max(sequence) FROM rows)")
    assert "head" in copied.refuted_by()


def test_the_ledger_of_another_run(made, forged):
    copied = forged()
    audit = audit_run(copied.folder, ledger=made / "other" / "spend.db")
    assert audit.refuted_by == ("head", "entries")
    (entries,) = (f for f in audit.findings if f.attack == "entries")
    assert "lacks an entry" in entries.summary


def test_a_ledger_that_an_earlier_run_left_in_the_folder_refutes_nothing(made, forged):
    """Neither side is believed: the run is not refuted, and it does not pass."""
    copied = forged()
    shutil.copy(made / "other" / "spend.db", copied.folder / "spend.db")
    audit = copied.audit()
    assert audit.verdict == "cannot tell"
    assert re.search(r"spend\.db .* not this run's ledger.*--ledger", *audit.reasons)
    assert not audit_run(copied.folder, ledger=made / "plain" / "spend.db").refuted


@pytest.mark.parametrize("kept", ["head", "entries"])
def test_a_ledger_that_knows_anything_of_the_run_is_its_ledger(made, forged, kept):
    copied = forged()
    if kept == "entries":
        copied.sql("DELETE FROM rows WHERE sequence > 2")
    else:
        copied.change("reward.json", "release_ids", to=["0" * 16])
        copied.change("result.json", "certificate", "release_ids", to=["0" * 16])
    assert copied.refuted_by()


@pytest.mark.parametrize("content", [b"", b"no ledger\n", "persons/spend.memo/settings.json"])
def test_a_file_that_was_named_by_mistake_refutes_nothing(made, forged, content, tmp_path):
    copied, path = forged(), tmp_path / "named.db"
    path.write_bytes((made / content).read_bytes() if isinstance(content, str) else content)
    with pytest.raises(UsageError, match=r"named\.db is no ledger, so nothing was audited"):
        audit_run(copied.folder, ledger=path)


@pytest.mark.parametrize("statement", [DAMAGES["spend edited"], DAMAGES["row removed"]])
def test_a_damaged_ledger_is_refused_also_where_it_was_named(forged, statement, tmp_path):
    copied, path = forged(), tmp_path / "named.db"
    copied.sql(statement)
    shutil.move(copied.ledger, path)
    assert audit_run(copied.folder, ledger=path).refuted_by == ("chain",)


def test_a_ledger_made_by_hand_that_passes_its_budget(forged):
    copied = forged()
    copied.spend_more()
    audit = copied.audit()
    assert audit.refuted_by == ("budget",)
    (found,) = (f for f in audit.findings if f.attack == "budget")
    assert found.details["row"] == 4


def test_a_budget_raised_after_it_was_passed_is_too_late(forged):
    copied = forged()
    copied.spend_more()
    budget = copied.read("result.json")["certificate"]["ledger"]["total"] | {"epsilon": 9.0}
    copied.append(kind="budget", payload=canonical_json({"budget": budget}))
    assert copied.refuted_by() == ("budget",)


def test_a_budget_raised_in_time_is_honest(forged):
    copied = forged()
    budget = copied.read("result.json")["certificate"]["ledger"]["total"] | {"epsilon": 4.0}
    copied.append(kind="budget", payload=canonical_json({"budget": budget}))
    copied.spend_more()
    assert not copied.audit().refuted


def test_a_cheaper_row_with_digests_that_fit(forged):
    """A forger who rewrites the chain too must also know to rewrite the head."""
    copied = forged()
    artifact = copied.read("reward.json")["artifact"]
    (name,) = copied.read("reward.json")["release_ids"]
    with ledger_chain.connect_reader(copied.ledger) as connection:
        known = ledger_chain.read_rows(connection)
    assert known[1].release_id == name
    copied.sql("CREATE TABLE was AS SELECT * FROM rows", "DELETE FROM rows WHERE sequence > 1")
    names = ("event", "count", "unit", "neighbors", "trust", "randomness", "payload", "scope")
    same = {field: getattr(known[1], field) for field in names}
    cheap = canonical_json({"categories": 2, "epsilon": 0.5})
    copied.append(kind="reserve", release_id=name, parameters=cheap, **same)
    copied.append(kind="commit", release_id=name, payload=canonical_json({"artifact": artifact}))
    for place, above in (("result.json", ()), ("result.json", ("certificate",))):
        copied.change(place, *above, "guarantee", "epsilon", to=0.5)
    copied.change("reward.json", "guarantee", "epsilon", to=0.5)
    copied.reseal()
    assert copied.refuted_by() == ("head",)


# The page.


def test_a_page_that_hides_a_simulation(forged):
    copied = forged("simulated")
    page = copied.folder / "report.html"
    page.write_text(page.read_text().replace("SIMULATED", "CAREFUL"))
    assert copied.refuted_by() == ("report",)


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("ε = 2<", "ε = 3<", "epsilon"),
        ("One label is replaced", "One thing is replaced", "unit"),
        ("Labels were randomized when", "Labels were not seen when", "caveat"),
        (None, "0" * 64, "head"),
    ],
)
def test_a_page_that_says_something_else(forged, old, new, word):
    copied = forged()
    page = copied.folder / "report.html"
    old = old or copied.read("result.json")["certificate"]["ledger"]["head"]
    text = page.read_text()
    assert old in text or old.lower() in text
    page.write_text(text.replace(old, new).replace(old[0].lower() + old[1:], new))
    audit = copied.audit()
    assert not audit.refuted
    (found,) = (f for f in audit.findings if f.attack == "report")
    assert found.outcome == "warning"
    assert word in found.summary


def test_a_page_that_states_a_smaller_epsilon(forged):
    copied = forged()
    page = copied.folder / "report.html"
    page.write_text(page.read_text().replace("ε = 2<", "ε = 0.5<"))
    assert copied.refuted_by() == ("report",)


# What one reader takes for one thing and another reader for another.


@pytest.mark.parametrize("name", ["result.json", "reward.json"])
@pytest.mark.parametrize(
    "hidden", ['"guarantee": {"epsilon": 0.1}', '"note": NaN', '"n": -Infinity']
)
def test_a_file_that_says_two_things_is_none(forged, name, hidden):
    """Of a name that stands twice some programs take the first, and NaN is less than nothing."""
    copied = forged()
    path = copied.folder / name
    path.write_text(path.read_text().replace("{", "{" + hidden + ",", 1))
    with pytest.raises(DataError, match=f"{name} is not a sordino"):
        copied.audit()


@pytest.mark.parametrize("name", ["leaderboard.json", "policy.json", "sordino.json"])
def test_a_file_of_another_run_beside_a_run(forged, name):
    """It would be loaded by its name, and nothing that was certified speaks for it."""
    copied = forged()
    (copied.folder / name).write_text("{}")
    assert copied.refuted_by() == ("digests",)


# Any value of a promise, changed for the stronger.

PROMISE = ("epsilon", "trust", "randomness", "unit", "neighbors")
IN_CERTIFICATE = [
    *[("guarantee", name) for name in PROMISE],
    *[("ledger", "total", name) for name in PROMISE],
    ("caveats",), ("artifact",), ("digest",), ("data",), ("release_ids",),
    ("ledger", "head"), ("ledger", "rows"),
]  # fmt: skip
LEAVES = [
    *[("result.json", ("guarantee", name)) for name in PROMISE],
    ("result.json", ("caveats",)),
    *[("result.json", ("certificate", *path)) for path in IN_CERTIFICATE],
    *[("reward.json", ("guarantee", name)) for name in PROMISE],
    ("reward.json", ("caveats",)),
    ("reward.json", ("release_ids",)),
    ("reward.json", ("artifact",)),
]
OTHER_WORDS = {
    "label": ["person"],
    "person": ["label", "record"],
    "central": ["local"],
    "simulated": ["system"],
    "system": [],  # nothing is stronger
    "REPLACE_ONE": ["REPLACE_SPECIAL"],
    "policy": ["reward"],
}


def stronger(value):
    """Return values that promise more than this one, or something about something else."""
    if isinstance(value, float):
        return [math.nextafter(value, 0), value / 2, 0.0]
    if isinstance(value, int):
        return [1, value - 1, value + 1]
    if isinstance(value, list):
        return [value[:index] + value[index + 1 :] for index in range(len(value))]
    return OTHER_WORDS.get(value, ["0" * 64])


@pytest.mark.parametrize("sealed", few([True, False], first=1))
@pytest.mark.parametrize("run", few(["person", "simulated"], first=1))
@pytest.mark.parametrize(("name", "path"), LEAVES)
def test_any_one_value_made_stronger_is_refuted(drafted, run, name, path, sealed):
    copied = drafted(run)
    whole = copied.read(name)
    for value in stronger(put(copied.read(name), path, None)):
        old = put(whole, path, value)
        copied.write(name, whole)
        if sealed and path[-1] not in {"digest", "artifact"}:
            copied.reseal()
        assert copied.audit().refuted, value
        put(whole, path, old)


# Reading, and nothing else.


def state(folder):
    found = {str(folder): folder.stat().st_mtime_ns}
    for path in folder.rglob("*"):
        content = path.read_bytes() if path.is_file() else None
        found[str(path)] = (path.stat().st_mtime_ns, content)
    return found


@pytest.mark.parametrize("name", ["plain", "persons", "answers"])
def test_nothing_in_the_folder_changes_not_even_for_a_moment(forged, name):
    """The time stamp of a folder tells of every file that was made in it and removed again."""
    copied = forged(name)
    before = state(copied.folder)
    copied.audit()
    assert state(copied.folder) == before


def test_rows_that_wait_beside_the_ledger_are_read_and_left_there(forged):
    copied = forged()
    with closing(sqlite3.connect(copied.ledger)) as held:  # the last to close would move the rows
        held.execute("SELECT count(*) FROM rows").fetchone()
        copied.spend_more()
        assert copied.ledger.with_name("spend.db-wal").stat().st_size > 0
        before = state(copied.folder)
        assert copied.refuted_by() == ("budget",)
        assert state(copied.folder) == before
