"""The ledger's verbs: what each records, and what each refuses."""

import math
import os
import pickle
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

import sordino
from sordino.errors import (
    BudgetExceeded,
    FileSystemError,
    LedgerMismatch,
    PrivacyError,
    UsageError,
)
from sordino.privacy.guarantee import (
    GaussianEvent,
    NonPrivateEvent,
    PureEvent,
)
from sordino.privacy.ledger import Ledger
from sordino.reporting.result import describe_ledger_rows


def promise(epsilon=2.0, **more):
    terms = {"delta": 0.0, "unit": "label", "neighbors": sordino.REPLACE_ONE, "trust": "central"}
    return sordino.Guarantee(epsilon, **{**terms, **more})


EVENT = PureEvent(0.5)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spend.db"


def opened(path, **more):
    return Ledger.open(path, data="answers", budget=promise(**more))


def kinds(path):
    return [row.kind for row in Ledger.read(path).rows]


def test_a_new_ledger_holds_its_name_and_budget_and_no_spend(path):
    ledger = opened(path)
    assert ledger.total() is None
    assert ledger.remaining_epsilon() == 2.0
    again = Ledger.open(path)
    assert (again.data, again.budget, again.head) == ("answers", promise(), ledger.head)


@pytest.mark.parametrize(
    "given",
    [{}, {"data": "answers"}, {"budget": 2.0}, {"data": "half \ud800", "budget": promise()}],
)
def test_a_ledger_is_not_made_without_a_budget(path, given):
    with pytest.raises(UsageError, match=r"to create it|data must be a text|budget must be"):
        Ledger.open(path, **given)
    assert not path.exists()


def test_another_data_set_needs_a_budget_of_its_own_and_is_not_known_before(path):
    opened(path)
    with pytest.raises(UsageError, match="no budget for label changes"):
        Ledger.open(path, data="rankings")
    with pytest.raises(LedgerMismatch, match="no data set 'rankings'") as caught:
        Ledger.read(path, data="rankings")
    assert caught.value.exit_code == 8


def test_another_budget_on_opening_is_refused_and_not_recorded(path):
    opened(path)
    for other in ({"epsilon": 3.0}, {"delta": 0.1}, {"trust": "local"}):
        with pytest.raises(UsageError, match="change_budget"):
            opened(path, **other)
    for wrong in ({"budget": 2.0}, {"budget": promise(), "unit": "person"}, {"unit": 1}):
        with pytest.raises(UsageError, match=f"{[*wrong][-1]} must be"):
            Ledger.open(path, **wrong)
    for unit in ("person", "soul"):
        with pytest.raises(UsageError, match=f"no budget for {unit} changes"):
            Ledger.read(path, data="answers", unit=unit)
    assert kinds(path) == ["open"]


def test_a_reservation_is_spent_whether_or_not_it_is_committed(path):
    opened(path).reserve(EVENT, promise=promise())
    assert Ledger.open(path).total().epsilon == 0.5
    assert kinds(path) == ["open", "reserve"]


def test_one_entry_is_committed_once_in_any_process(path):
    entry = opened(path).reserve(EVENT, promise=promise())
    twin = pickle.loads(pickle.dumps(entry))  # noqa: S301 (a copy, as another process has it)
    entry.commit("0" * 64)
    for one in (entry, twin):
        with pytest.raises(PrivacyError, match="already committed"):
            one.commit("1" * 64)
    assert kinds(path) == ["open", "reserve", "commit"]


def test_only_what_was_paid_for_on_this_ledger_is_free_again(path):
    ledger = opened(path)
    entry = ledger.reserve(EVENT, promise=promise())
    entry.commit("1" * 64)
    ledger.repeat(entry.release_id, "1" * 64)
    with pytest.raises(LedgerMismatch, match="paid for on another ledger"):
        ledger.repeat("0123456789abcdef", "1" * 64)
    assert ledger.total().epsilon == 0.5


def test_a_repeat_is_of_what_was_drawn(path):
    ledger = opened(path)
    entry = ledger.reserve(EVENT, promise=promise())
    with pytest.raises(PrivacyError, match="not what it drew"):
        ledger.repeat(entry.release_id, "1" * 64)  # nothing is known of it
    ledger.repeat(entry.release_id, "1" * 64, drawn=[b"one"])  # its run died, and went on
    entry.commit("0" * 64, drawn=[b"one", b"two"])
    ledger.repeat(entry.release_id, "2" * 64, drawn=iter([b"onetwo"]))
    before = ledger.head
    for other in ([], [b"one"], [b"one", b"two", b"three"]):
        with pytest.raises(PrivacyError, match="not what it drew"):
            ledger.repeat(entry.release_id, "3" * 64, drawn=other)
    assert ledger.head == before == opened(path).head


def test_what_is_not_stored_is_never_released_again_as_something_else(path):
    ledger = opened(path)
    entry = ledger.reserve(EVENT, promise=promise())
    entry.commit("0" * 64)
    ledger.repeat(entry.release_id, "0" * 64)
    with pytest.raises(PrivacyError, match="paid for one artifact"):
        ledger.repeat(entry.release_id, "1" * 64)
    with pytest.raises(PrivacyError, match="not what it drew"):
        ledger.repeat(entry.release_id, "1" * 64, drawn=[b"anything"])


def test_a_total_says_that_it_rests_on_a_declaration(path):
    ledger = opened(path)
    ledger.declare_disjoint(["a", "b"], rule="public-fields")
    ledger.reserve(EVENT, promise=promise(), scope="a")
    assert "declared-disjoint" not in ledger.total().caveats
    ledger.reserve(EVENT, promise=promise(), scope="b")
    assert ledger.total().epsilon == 0.5
    assert "declared-disjoint" in ledger.total().caveats
    assert "declared-disjoint" in describe_ledger_rows(ledger)["budget"]["caveats"]


def test_checking_raises_what_reserving_would_and_writes_nothing(path):
    ledger = opened(path)
    ledger.check(EVENT, promise=promise())
    with pytest.raises(BudgetExceeded):
        ledger.check(PureEvent(2.5), promise=promise())
    with pytest.raises(PrivacyError):
        ledger.check(EVENT, promise=promise(unit="record"))
    assert kinds(path) == ["open"]


def test_what_is_left_is_never_printed_as_more(path):
    ledger = opened(path)
    ledger.reserve(PureEvent(4 / 3), promise=promise())
    with pytest.raises(BudgetExceeded, match=r"; 0\.666666 is left"):
        ledger.reserve(PureEvent(1.0), promise=promise())
    ledger.reserve(PureEvent(0.666666), promise=promise())


def test_the_budget_in_the_message_is_not_rounded(path):
    ledger = opened(path, epsilon=2.00000049)
    with pytest.raises(
        BudgetExceeded, match=r"epsilon=3 in total, over the budget of epsilon=2\.00000049 "
    ):
        ledger.reserve(PureEvent(3.0), promise=promise())


def test_a_gaussian_never_fits_a_budget_without_delta(path):
    with pytest.raises(BudgetExceeded, match=r"delta is too small: .* allows delta=0"):
        opened(path).reserve(GaussianEvent(0.001), promise=promise(delta=1e-6))


def test_what_protects_nobody_needs_an_infinite_budget(path):
    ledger = opened(path)
    with pytest.raises(BudgetExceeded):
        ledger.reserve(NonPrivateEvent(), promise=promise(math.inf))
    ledger.change_budget(promise(math.inf))
    ledger.reserve(NonPrivateEvent(), promise=promise(math.inf))
    assert Ledger.open(path).total().epsilon == math.inf
    assert Ledger.open(path).remaining_epsilon() == math.inf


def test_a_changed_budget_is_recorded_and_holds_in_every_process(path):
    ledger, other = opened(path), opened(path)
    other.change_budget(promise(0.4))
    with pytest.raises(BudgetExceeded, match=r"budget of epsilon=0\.4"):
        ledger.reserve(EVENT, promise=promise())
    ledger.change_budget(promise(3.0, delta=1e-6))
    assert Ledger.open(path).budget == promise(3.0, delta=1e-6)
    assert kinds(path) == ["open", "budget", "budget"]


def test_a_budget_below_what_was_spent_stops_everything(path):
    ledger = opened(path)
    ledger.reserve(EVENT, promise=promise())
    ledger.change_budget(promise(0.25))
    assert ledger.remaining_epsilon() == 0.0
    with pytest.raises(BudgetExceeded):
        ledger.reserve(PureEvent(1e-9), promise=promise())


@pytest.mark.parametrize("terms", [{"neighbors": sordino.REPLACE_SPECIAL}, {"trust": "local"}])
def test_a_budget_changes_in_size_only(path, terms):
    with pytest.raises(PrivacyError, match="size only"):
        opened(path).change_budget(promise(3.0, **terms))
    assert kinds(path) == ["open"]


@pytest.mark.parametrize(
    ("budget", "other"),
    [
        ({}, {"unit": "record"}),
        ({}, {"neighbors": sordino.REPLACE_SPECIAL}),
        ({"trust": "local"}, {"trust": "central"}),
    ],
)
def test_a_promise_of_another_kind_is_refused(path, budget, other):
    ledger = opened(path, **budget)
    with pytest.raises(PrivacyError, match="Nothing was released"):
        ledger.reserve(EVENT, promise=promise(**{**budget, **other}))
    assert kinds(path) == ["open"]


@pytest.mark.parametrize("grades", [[("labels-only",), ()], [(), ("labels-only",)]])
def test_grades_of_a_person_stay_apart_also_between_processes(path, grades):
    ledger, other = opened(path, unit="person"), opened(path, unit="person")
    first, second = (promise(unit="person", caveats=caveats) for caveats in grades)
    other.reserve(EVENT, promise=first)
    ledger.reserve(EVENT, promise=first)
    with pytest.raises(PrivacyError, match="cannot share a ledger"):
        ledger.reserve(EVENT, promise=second)


@pytest.mark.parametrize("unit", ["record", "person"])
def test_nothing_about_the_data_is_digested_under_other_units(path, unit):
    ledger = opened(path, unit=unit)
    with pytest.raises(PrivacyError, match="Only under unit='label'"):
        ledger.reserve(EVENT, promise=promise(unit=unit), questions=np.arange(3, dtype="<u8"))
    assert kinds(path) == ["open"]


@pytest.mark.parametrize(
    "argument",
    [
        {"scope": ""},
        {"scope": None},
        {"scope": "half \udc80"},
        {"details": {"m": math.nan}},
        {"questions": 3},
        {"questions": np.arange(3.0)},
    ],
)
def test_an_argument_that_cannot_be_written_is_refused_before_anything_is(path, argument):
    with pytest.raises(UsageError):
        opened(path).reserve(EVENT, promise=promise(), **argument)
    assert kinds(path) == ["open"]


@pytest.fixture
def stranger():
    """A folder and the rights of a user whom the system refuses what is read-only."""
    folder = Path(tempfile.mkdtemp())  # of tests, the folders are closed to other users
    if os.geteuid() == 0:
        os.chown(folder, 65534, 65534)
        os.setresuid(65534, 65534, 0)
    yield folder
    if os.getresuid()[2] == 0:
        os.setresuid(0, 0, 0)
    shutil.rmtree(folder)


def test_a_read_only_ledger_is_read_and_nothing_beside_it_blocks_it_later(stranger):
    path = stranger / "spend.db"
    opened(path)
    path.chmod(0o444)
    assert len(Ledger.read(path).rows) == 1
    with pytest.raises(FileSystemError, match="it is read-only"):
        opened(path).reserve(EVENT, promise=promise())
    assert [item.name for item in stranger.iterdir()] == ["spend.db"]
    path.chmod(0o644)
    opened(path).reserve(EVENT, promise=promise())
    assert kinds(path) == ["open", "reserve"]


def test_a_scope_is_declared_before_it_is_spent_in(path):
    ledger, other = opened(path), opened(path)
    other.reserve(EVENT, promise=promise(), scope="a")
    for scopes in (["a", "b"], "cd"):
        with pytest.raises(UsageError):
            ledger.declare_disjoint(scopes, rule="public-fields")
    assert kinds(path) == ["open", "reserve"]
    ledger.declare_disjoint(iter(["c", "d"]), rule="public-fields")
    with pytest.raises(UsageError):
        other.declare_disjoint(["d", "e"], rule="public-fields")
    assert kinds(path) == ["open", "reserve", "disjoint"]


def test_slots_are_not_disjoint_where_records_come_and_go(path):
    """Claim: PPO-DP, Proposition 1 (parallel composition)"""
    ledger = opened(path, unit="record", neighbors=sordino.ADD_OR_REMOVE_ONE)
    with pytest.raises(UsageError, match="moves the slots"):
        ledger.declare_disjoint(["a", "b"], rule="slot")


def test_the_total_carries_every_caveat_and_the_weakest_trust(path):
    ledger = opened(path)
    ledger.reserve(EVENT, promise=promise(trust="local", caveats=("real-arithmetic",)))
    assert ledger.total().trust == "local"
    ledger.reserve(EVENT, promise=promise(randomness="simulated", caveats=("person-total",)))
    total = Ledger.open(path).total()
    assert (total.trust, total.simulated, total.epsilon) == ("central", True, 1.0)
    assert total.caveats == ("person-total", "real-arithmetic")


def test_a_total_can_be_read_at_another_delta(path):
    ledger = opened(path, delta=1e-6)
    ledger.reserve(GaussianEvent(0.1), promise=promise(delta=1e-6))
    assert ledger.total(delta=1e-3).epsilon < ledger.total().epsilon < math.inf
    assert ledger.total(delta=0.0).epsilon == math.inf
