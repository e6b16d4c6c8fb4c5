from __future__ import annotations

import copy
import json
import math
import operator
import pickle
from functools import partial

import numpy as np
import pytest

import sordino
from sordino._withholding import Withholding
from sordino.auditing.instance_losses import (
    ArmAudit,
    InstanceLoss,
    LinearAudit,
)
from sordino.errors import DataError, PrivacyError, UsageError

SECRET = 0.8251734069
ARMS = ([3, 2], [1.5, 1.0], [0.2, 0.0], [0.9, 1.0])
RULE = {"temperature": 0.5, "reward_range": 1.0}
ROWS = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, -1.0]])
REWARDS = np.array([1.0, 0.5, 0.0])
QUERIES = np.eye(2)
AUDIT, LINEAR = ArmAudit(**RULE), LinearAudit(ridge=1.0, **RULE)


@pytest.fixture
def loss():
    return InstanceLoss(SECRET, about="loss of one draw", changes="removals", public=("arms",))


def test_only_the_curator_reads_the_number(loss):
    assert loss.for_curator_only() == SECRET
    assert isinstance(loss, Withholding)


def test_what_is_shown_is_what_it_is_about(loss):
    shown = [repr(loss), str(loss), f"{loss}", loss._repr_html_(), repr([loss]), str(vars(loss))]
    assert not any("0.8" in text or "825" in text for text in shown)
    assert all("confidential" in text and "removals" in text for text in shown[:5])
    assert loss.neighbors is sordino.ADD_OR_REMOVE_ONE
    assert loss.public == ("arms",)


def refuse_ways():
    yield from (float, int, bool, round, abs, complex, np.float64, operator.index, math.sqrt, hash)
    yield from (pickle.dumps, copy.copy, copy.deepcopy, json.dumps, InstanceLoss.to_dict)
    yield from (lambda loss: np.array([loss], dtype=float), lambda loss: f"{loss:.3f}")
    yield from (lambda loss: loss + 0.0, lambda loss: 1.0 * loss, lambda loss: max(loss, 0.0))
    for compare in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
        yield lambda loss, compare=compare: compare(loss, 0.5)
        yield lambda loss, compare=compare: compare(0.5, loss)
        yield lambda loss, compare=compare: compare(loss, loss)


@pytest.mark.parametrize("way", list(refuse_ways()))
def test_it_becomes_no_number_and_leaves_no_trace(loss, way):
    with pytest.raises((PrivacyError, TypeError)) as caught:
        way(loss)
    assert "825" not in str(caught.value)
    assert caught.type is TypeError or "Publish the Guarantee" in str(caught.value)


def test_json_cannot_be_made_to_hold_it(loss):
    assert "825" not in json.dumps([loss], default=vars)
    assert "825" not in json.dumps([loss], default=str)


@pytest.mark.parametrize(
    "kept", [InstanceLoss(1.0, about="a", changes="b", public=()), Withholding()]
)
def test_what_is_withheld_is_never_certified(kept, ledger):
    with pytest.raises(PrivacyError, match=r"nothing was certified.*ledger.total"):
        sordino.certify(kept, ledger())


@pytest.mark.parametrize("stranger", [0.5, None, {"epsilon": 1.0}, object()])
def test_what_is_neither_reward_nor_policy_is_never_certified(stranger, ledger, budget):
    with pytest.raises(PrivacyError, match=r"RewardModel from fit_reward.*Nothing was certified"):
        sordino.certify(stranger, ledger())
    with pytest.raises(PrivacyError, match="got Guarantee"):
        sordino.certify(budget(), ledger())


def test_every_audit_of_an_instance_is_confidential():
    several = [
        AUDIT.loss(*ARMS),
        AUDIT.delta(*ARMS, epsilon=0.1),
        AUDIT.class_bound(ARMS[0]),
        LINEAR.loss(ROWS, REWARDS, QUERIES),
        LINEAR.loss(ROWS, REWARDS, QUERIES, QUERIES),
        LINEAR.class_bound(ROWS, QUERIES),
    ]
    for loss in several:
        assert isinstance(loss, InstanceLoss)
        assert 0 < loss.for_curator_only() < 10
        assert f"{loss.for_curator_only():.6g}"[:5] not in repr(loss)
    assert "added" not in several[3].changes
    assert "added" in several[4].changes
    assert "ε = 0.1" in several[1].about


def test_one_arm_or_one_action_gives_nothing_away():
    arm = [5], [2.0], [0.0], [1.0]
    alone = [AUDIT.loss(*arm), AUDIT.delta(*arm, epsilon=0.0)]
    alone += [LINEAR.loss(ROWS, REWARDS, [[1.0, 0.0]])]
    assert [loss.for_curator_only() for loss in alone] == pytest.approx([0, 0, 0], abs=1e-15)


def test_delta_falls_to_zero_at_the_loss():
    loss = AUDIT.loss(*ARMS).for_curator_only()
    below, above, beyond = (
        AUDIT.delta(*ARMS, epsilon=epsilon).for_curator_only()
        for epsilon in (0.99 * loss, 1.01 * loss, 1000.0)
    )
    assert below > 0 == above == beyond


def test_arms_without_records_may_hold_anything():
    held = ([3, 0], [1.5, 0.0], [0.2, 7.0], [0.9, -7.0])
    tidy = ([3, 0], [1.5, 0.0], [0.2, 0.0], [0.9, 0.0])
    one, other = (ArmAudit(shrinkage=1.0, **RULE).loss(*arms) for arms in (held, tidy))
    assert one.for_curator_only() == other.for_curator_only()


def test_several_questions_are_as_bad_as_the_worst():
    questions = np.array([[[1.0, 0.0], [0.9, 0.1]], QUERIES])
    audit = LinearAudit(ridge=0.5, penalty=0.2, **RULE)
    each = [audit.loss(ROWS, REWARDS, q, QUERIES) for q in questions]
    both = audit.loss(ROWS, REWARDS, questions, QUERIES).for_curator_only()
    assert both == max(loss.for_curator_only() for loss in each)


def test_blocks_change_nothing(monkeypatch):
    audits = [
        partial(LinearAudit(ridge=0.5, penalty=0.2, **RULE).loss, ROWS, REWARDS, QUERIES, ROWS),
        partial(AUDIT.loss, *ARMS),
        partial(AUDIT.delta, *ARMS, epsilon=0.1),
    ]
    whole = [audit().for_curator_only() for audit in audits]
    monkeypatch.setattr("sordino.auditing.instance_losses._BLOCK", 1)
    apart = [audit().for_curator_only() for audit in audits]
    assert apart == pytest.approx(whole, rel=1e-13)


@pytest.mark.parametrize(
    ("arms", "match"),
    [
        (([1.5, 2], *ARMS[1:]), "counts: entry 0 is no whole number"),
        (([3, -1], *ARMS[1:]), "counts: entry 1"),
        (([3], *ARMS[1:]), "one entry for each"),
        (([], [], [], []), "one entry for each"),
        ((ARMS[0], [1.5, 2.5], *ARMS[2:]), "arm 1"),
        ((*ARMS[:2], [0.2, -0.1], ARMS[3]), "arm 1"),
        ((*ARMS[:3], [1.1, 1.0]), "arm 0"),
        (([3, 0], *ARMS[1:]), "arm 1"),
        (([1, 0], [0.5, 0.0], [0.5, 0.0], [0.5, 0.0]), "two records or more"),
        ((ARMS[0], ["a", "b"], *ARMS[2:]), "sums must be numeric"),
        ((ARMS[0], [math.nan, 1.0], *ARMS[2:]), "sums must be finite"),
    ],
)
def test_sums_that_no_records_have_are_refused(arms, match):
    with pytest.raises(DataError, match=match):
        AUDIT.loss(*arms)


@pytest.mark.parametrize(
    ("setting", "match"),
    [
        ({"temperature": 0.0}, "temperature"),
        ({"reward_range": -1.0}, "reward_range"),
        ({"shrinkage": -1.0}, "shrinkage"),
        ({"shrinkage": math.inf}, "shrinkage"),
        ({"penalty": math.inf}, "penalty"),
        ({"center": 1.5}, "center"),
        ({"center": math.nan}, "center"),
    ],
)
def test_settings_that_make_no_policy_are_refused(setting, match):
    with pytest.raises(UsageError, match=match):
        ArmAudit(**RULE | setting)
    if "shrinkage" not in setting:
        with pytest.raises(UsageError, match=match):
            LinearAudit(ridge=1.0, **RULE | setting)


@pytest.mark.parametrize("epsilon", [-0.1, math.nan, math.inf])
def test_an_epsilon_out_of_range_is_refused(epsilon):
    with pytest.raises(UsageError, match="epsilon"):
        AUDIT.delta(*ARMS, epsilon=epsilon)


@pytest.mark.parametrize("reference", [[1.0], [0.5, 0.4], [1.0, 0.0], [1.5, -0.5], [[0.5, 0.5]]])
def test_a_reference_is_a_positive_distribution(reference):
    with pytest.raises(DataError, match="reference"):
        ArmAudit(reference=reference, **RULE).loss(*ARMS)


@pytest.mark.parametrize("counts", [[3, 1], [0, 5], []])
def test_a_class_without_a_bound_is_refused(counts):
    with pytest.raises(DataError, match="two records"):
        AUDIT.class_bound(counts)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"rewards": REWARDS + 0.1}, DataError, "row 0 is not between"),
        ({"rewards": REWARDS[:2]}, DataError, "3 rows of features, but 2"),
        ({"queries": np.eye(3)}, DataError, "queries"),
        ({"queries": np.empty((0, 2))}, DataError, "queries"),
        ({"queries": [1.0, 0.0]}, DataError, "queries"),
        ({"additions": np.eye(3)}, DataError, "additions"),
        ({"queries": [[1.0, 0.0], [1.0]]}, DataError, "queries"),
        ({"reference": [[0.5, 0.5], [1.0]]}, DataError, "reference"),
        ({"ridge": 0.0}, UsageError, "ridge"),
        ({"ridge": 1e-30}, UsageError, "ridge is too small"),
        ({"ridge": 1e-13}, UsageError, "ridge is too small"),
        ({"reference": [[0.5, 0.5]] * 2}, DataError, "reference"),
    ],
)
def test_linear_logs_that_do_not_fit_are_refused(change, error, match):
    given = {"features": ROWS, "rewards": REWARDS, "queries": QUERIES}
    if change.get("ridge", 1.0) < 1e-9:  # the row alone holds up its direction
        given |= {"features": ROWS[:1], "rewards": REWARDS[:1]}
    public = {k: v for k, v in change.items() if k in ("ridge", "reference")}
    with pytest.raises(error, match=match):
        LinearAudit(**{"ridge": 1.0} | RULE | public).loss(
            **given | {k: v for k, v in change.items() if k not in public}
        )


@pytest.mark.parametrize("name", ["features", "queries"])
def test_the_class_of_linear_logs_has_rows_of_norm_one(name):
    given = {"features": ROWS, "queries": QUERIES}
    with pytest.raises(DataError, match=f"{name}: row 0 is longer than 1"):
        LINEAR.class_bound(**given | {name: 1.1 * given[name]})


def test_no_error_prints_data():
    with pytest.raises(DataError) as caught:
        LINEAR.loss(ROWS, [0.3, 7.25, 0.0], QUERIES)
    assert "7.25" not in str(caught.value)
