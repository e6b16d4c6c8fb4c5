"""Withheld rewards: what is fitted, what is refused, what a draw reads, and the way out."""

import copy
import json
import math
import re

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

import sordino
from sordino._withholding import confidential
from sordino.errors import (
    BudgetExceeded,
    DataError,
    PrivacyError,
    UsageError,
)
from sordino.preferences.pairs import Pairs
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL
from sordino.rewards import withheld as withheld_module
from sordino.rewards.withheld import WithheldReward

LABEL = {"unit": "label", "neighbors": REPLACE_ONE, "ridge": 0.5, "ball": 2.0}
RECORD = {"unit": "record", "neighbors": ADD_OR_REMOVE_ONE, "ridge": 0.5, "bound": 2.0}
ROWS = np.array([[1.0, 0.2], [0.3, -1.0], [0.5, 0.5], [2.0, 1.0], [0.1, 0.9]])
LABELS = [1, 0, 0.5, 1, 1]
EYE = np.eye(2)


def withheld(settings=LABEL, rows=ROWS, labels=LABELS, persons=None, **more):
    pairs = Pairs.from_features(rows, labels, persons=persons)
    return sordino.WithheldReward(pairs, **(settings | more))


def open_ledger(path, *, epsilon=math.inf, unit="label", neighbors=REPLACE_ONE):
    budget = sordino.Guarantee(epsilon, delta=0.0, unit=unit, neighbors=neighbors, trust="central")
    return sordino.Ledger.open(path / "spend.db", data="test", budget=budget)


def least(rows, labels, ridge, ball):
    """The same minimum by another way: in the ball's own coordinates, without constraints."""
    rows, targets = np.asarray(rows), np.asarray(labels, dtype=float)

    def objective(theta):
        margins = rows @ theta
        loss = np.logaddexp(0, margins) - targets * margins
        slopes = rows.T @ (expit(margins) - targets) + ridge * theta
        return loss.sum() + ridge / 2 * theta @ theta, slopes

    inside = {"type": "ineq", "fun": lambda t: ball**2 - t @ t, "jac": lambda t: -2 * t}
    start = np.zeros(rows.shape[1])
    options = {"ftol": 1e-16, "maxiter": 1000}
    return minimize(
        objective, start, jac=True, method="SLSQP", constraints=[inside], options=options
    ).x


# --- what is fitted ---------------------------------------------------------------------------


@pytest.mark.parametrize("ball", [0.1, 5.0])
@pytest.mark.parametrize("settings", [LABEL, RECORD], ids=["label", "record"])
def test_scores_are_those_of_the_regularized_minimizer(settings, ball):
    """An undecided label pulls neither way; scores are counted from the first candidate's."""
    found = withheld(settings, ball=ball)
    theta = least(
        ROWS / np.maximum(np.linalg.norm(ROWS, axis=1) / 2.0, 1.0)[:, None]
        if settings is RECORD
        else ROWS,
        LABELS,
        0.5,
        ball,
    )
    query = np.array([[3.0, 1.0], [0.0, -1.0], [2.0, 2.0]])
    np.testing.assert_allclose(found._scores(query), (query - query[0]) @ theta, atol=2e-6)
    assert (np.linalg.norm(theta) > 0.999 * ball) == (ball < 1)  # or one case says nothing


@pytest.mark.parametrize("settings", [LABEL, RECORD], ids=["label", "record"])
def test_the_penalty_is_a_norm_of_centered_features(settings):
    plain = withheld(settings)
    doubtful = withheld(settings, penalty=1.5, penalty_ridge=0.3)
    query = np.array([[3.0, 1.0], [0.0, -1.0], [2.0, 2.0]])
    rows = ROWS.copy()
    if settings is RECORD:
        rows /= np.maximum(np.linalg.norm(rows, axis=1) / 2.0, 1.0)[:, None]
    inverse = np.linalg.inv(0.3 * np.eye(2) + rows.T @ rows)
    centered = query - query.mean(axis=0)
    norms = np.sqrt(np.einsum("kd,de,ke->k", centered, inverse, centered))
    np.testing.assert_allclose(
        plain._scores(query) - doubtful._scores(query), 1.5 * norms, rtol=1e-9
    )
    shared = query + np.array([100.0, -7.0])  # what all candidates share
    np.testing.assert_allclose(doubtful._scores(shared), doubtful._scores(query), atol=1e-9)
    assert withheld(settings, penalty=1.5)._scores(query).tolist() == (
        withheld(settings, penalty=1.5, penalty_ridge=0.5)._scores(query).tolist()
    )


def test_the_range_of_a_label_by_hand():
    """One dimension: M = ridge + Σγx², range = |x|·|φ − φ′|/M; with a penalty it is the same."""
    rows, query = np.full((10, 1), 2.0), np.array([[1.0], [-1.0]])
    found = withheld(rows=rows, labels=[1] * 10, ridge=1.0, ball=0.2)
    least_curvature = 1.0 + 10 * expit(0.4) * expit(-0.4) * 4
    assert found.score_range(query) == pytest.approx(2 * 2 / least_curvature, rel=1e-6)
    again = withheld(rows=rows, labels=[0] * 10, ridge=1.0, ball=0.2, penalty=9.0)
    assert again.score_range(query) == found.score_range(query)
    assert found.score_range(query[:1]) == 0.0
    far = withheld(rows=rows[:1], labels=[1], ridge=1e-3, ball=0.01)
    assert far.score_range(query) == pytest.approx(2 * 0.01 * 2, rel=1e-9)


def test_the_range_of_a_record_by_hand():
    """D·X·σ(BX)/√(λ(λ + γX²)), plus what the penalty moves for centered rows of norm 1/√2."""
    bound, ball, ridge = 2.0, 0.3, 5.0
    settings = RECORD | {"bound": bound, "ball": ball, "ridge": ridge}
    slope = expit(ball * bound)
    curved = ridge + slope * (1 - slope) * bound**2
    moved = math.sqrt(2) * min(bound * slope / math.sqrt(ridge * curved), 2 * ball)
    assert withheld(settings).score_range(EYE) == pytest.approx(moved, rel=1e-6)
    step = 1 / math.sqrt(0.4) - 1 / math.sqrt(0.4 + bound**2)
    doubtful = withheld(settings, penalty=3.0, penalty_ridge=0.4)
    want = moved + 3.0 / math.sqrt(2) * step
    assert doubtful.score_range(EYE) == pytest.approx(want, rel=1e-5)
    replaced = withheld(settings, penalty=3.0, penalty_ridge=0.4, neighbors=REPLACE_ONE)
    assert replaced.score_range(EYE) == pytest.approx(2 * want, rel=1e-5)
    tight = withheld(settings, neighbors=REPLACE_ONE, ball=0.01)
    assert tight.score_range(EYE) == pytest.approx(2 * 0.01 * math.sqrt(2), rel=1e-9)


def test_the_range_of_a_record_reads_no_data():
    one = withheld(RECORD, penalty=1.0)
    other = withheld(RECORD, rows=100 * ROWS[:2], labels=[0, 0], penalty=1.0)
    assert one.score_range(EYE) == other.score_range(EYE)


def test_the_bound_of_records_comes_from_the_features():
    features = sordino.HashedText(dimension=8, feature_bound=0.5)
    rows = [{"prompt": "p", "first": "a b", "second": "c", "label": 1}]
    settings = {name: value for name, value in RECORD.items() if name != "bound"}
    settings["features"] = features
    pairs = sordino.read_pairs(rows)
    own = sordino.WithheldReward(pairs, **settings)
    said = sordino.WithheldReward(pairs, **settings, bound=1.0)
    assert own.score_range(np.eye(8)) == said.score_range(np.eye(8))
    with pytest.raises(UsageError, match=re.escape("bound is needed for unit='record'")):
        withheld({**RECORD, "bound": None})


def test_no_record_at_all_is_a_data_set_too():
    pairs = Pairs.from_features(ROWS, LABELS).part([])
    for settings in (RECORD, LABEL):
        found = sordino.WithheldReward(pairs, penalty=2.0, **settings)
        assert found._scores(EYE).tolist() == pytest.approx([-2 / math.sqrt(2 * 0.5)] * 2)


def test_a_dense_and_a_sparse_design_agree():
    features = sordino.HashedText(dimension=16)
    records = [
        {"prompt": "p", "first": f"a {n}", "second": "no no", "label": n % 2} for n in range(12)
    ]
    pairs = sordino.read_pairs(records)
    sparse = sordino.WithheldReward(pairs, features=features, penalty=1.0, **LABEL)
    dense = sordino.FunctionFeatures(
        lambda prompts, answers: features.transform(prompts, answers).toarray(),
        dimension=16,
        name="dense",
    )
    other = sordino.WithheldReward(pairs, features=dense, penalty=1.0, **LABEL)
    query = sparse.options("p", ["a 1", "no no", "a whole other answer"])
    np.testing.assert_allclose(sparse._scores(query), other._scores(query), atol=1e-6)
    assert sparse.score_range(query) == pytest.approx(other.score_range(query), rel=1e-6)


# --- a fit that is not exact enough -----------------------------------------------------------


@pytest.mark.parametrize("settings", [LABEL, RECORD], ids=["label", "record"])
def test_the_range_pays_for_what_the_solver_may_be_off(monkeypatch, settings):
    """A gradient of the accepted norm moves scores by no more than the range was raised by."""
    exact = withheld(settings).score_range(EYE)
    monkeypatch.setattr(withheld_module, "ATOL", 1e-2)
    loose = withheld(settings)
    raised = loose.score_range(EYE) - exact
    assert raised > 0
    atol = loose._known.atol
    assert raised >= 2 * 2 * atol * math.sqrt(2) / (0.5 + (ROWS**2).sum() / 4)  # M ≤ this
    if settings is RECORD:
        assert raised == pytest.approx(4 * (math.sqrt(2) / 2) * 2 * atol / 0.5, rel=1e-5)


def test_no_fit_is_refused_where_rounding_ends_it(monkeypatch):
    """To refuse would tell of a hidden record, and for nothing: no draw would be on the ledger."""
    rows, labels = [[1.0, 0.3], [0.2, 0.7]] * 20, [1, 0, 1, 1] * 10
    usual = withheld(RECORD, rows=rows, labels=labels)
    monkeypatch.setattr(withheld_module, "ATOL", 1e-300)
    strained = withheld(RECORD, rows=rows, labels=labels)
    np.testing.assert_allclose(
        confidential(strained).weights, confidential(usual).weights, atol=1e-7
    )


def test_a_penalty_that_rounding_would_decide_is_refused():
    for rows in (ROWS, ROWS[:1]):  # whatever the data are
        with pytest.raises(UsageError, match="penalty_ridge=1e-14 is so small beside 2 features"):
            withheld(RECORD, rows=rows, labels=[1] * len(rows), penalty=1.0, penalty_ridge=1e-14)


def test_a_ridge_with_which_fits_may_fail_is_refused_on_all_data():
    for rows in (ROWS, ROWS[:1]):
        with pytest.raises(UsageError, match="fits might fail on some data and not on others"):
            withheld(RECORD, rows=rows, labels=[1] * len(rows), ridge=1e-7)


def test_equal_candidates_have_equal_scores_and_cost_nothing():
    found = withheld(RECORD, penalty=1.0)
    query = np.tile([[0.3, 0.7]], (9, 1))
    assert withheld(RECORD).score_range(query) == 0.0
    assert set(withheld(RECORD)._scores(query).tolist()) == {0.0}
    assert np.ptp(found._scores(query)) == 0.0


def test_it_cannot_be_changed():
    found = withheld(RECORD)
    for name in ("_weights", "_known", "unit"):
        with pytest.raises((PrivacyError, AttributeError)):
            setattr(found, name, None)
    with pytest.raises(ValueError, match="read-only"):
        confidential(found).weights[0] = 0.0


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"unit": None}, UsageError, "unit must be 'label' or 'record'"),
        ({"unit": "person"}, PrivacyError, "a person may have given many"),
        ({"neighbors": None}, UsageError, "neighbors must be ADD_OR_REMOVE_ONE"),
        ({"neighbors": ADD_OR_REMOVE_ONE}, PrivacyError, "a label is replaced"),
        ({"neighbors": REPLACE_SPECIAL}, PrivacyError, "a label is replaced"),
        ({"ridge": None}, UsageError, "choosing it on raw labels would be a release"),
        ({"ridge": 0.0}, UsageError, "ridge must be finite and greater than 0"),
        ({"ball": math.inf}, UsageError, "ball must be finite"),
        ({"bound": 1.0}, UsageError, "bound=1.0 is for unit='record'"),
        ({"penalty": -1.0}, UsageError, "penalty must be 0, or within"),
        ({"penalty_ridge": 1.0}, UsageError, "of no use without a penalty"),
        ({"penalty": 1.0, "penalty_ridge": 0.0}, UsageError, "penalty_ridge must be within"),
        ({"features": sordino.HashedText()}, UsageError, "features must be given for pairs of"),
    ],
)
def test_settings_that_promise_nothing_are_refused(settings, error, words):
    with pytest.raises(error, match=re.escape(words)):
        withheld(**settings)


def test_other_data_is_refused(open_ledger):
    rankings = sordino.read_rankings(
        [{"prompt": "p", "candidates": ["a", "b", "c"], "ranking": [1, 0, 2]}]
    )
    pairs = Pairs.from_features(ROWS, LABELS)
    private = sordino.privatize(pairs, sordino.RandomizedResponse(1.0), ledger=open_ledger())
    for other in (rankings, private, ROWS):
        with pytest.raises(UsageError, match="is for raw judgments of two answers"):
            sordino.WithheldReward(other, **LABEL)


def test_public_questions_in_another_order_are_refused():
    pairs = Pairs.from_features(ROWS, LABELS)
    turned = sordino.Pairs(
        keys=pairs.keys,
        public_digest=pairs.public_digest,
        given=-pairs.given,
        labels=pairs.labels,
    )
    with pytest.raises(PrivacyError, match="not in canonical order"):
        sordino.WithheldReward(turned, **LABEL)


def test_records_that_cannot_be_used_are_not_counted():
    pairs = Pairs.from_features(ROWS, LABELS)
    broken = pairs.given.copy()
    broken[3, 1] = math.nan
    object.__setattr__(pairs, "given", broken)
    with pytest.raises(DataError, match="Which record is not said"):
        sordino.WithheldReward(pairs, **RECORD)
    object.__setattr__(pairs, "keys", Pairs.from_features(ROWS, LABELS).keys)
    with pytest.raises((DataError, PrivacyError)):
        sordino.WithheldReward(pairs, **LABEL)


# --- what is asked ----------------------------------------------------------------------------


def test_options_are_features_of_the_candidates():
    found = withheld()
    assert found.options(None, [[1, 2], [3, 4]]).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    for candidates, error in (
        (None, UsageError),
        ([], DataError),
        ("text", DataError),
        (["a", "b"], DataError),
        ([[1.0], [2.0]], DataError),
        ([[math.nan, 1.0]], DataError),
        (np.zeros((0, 2)), DataError),
    ):
        with pytest.raises(error):
            found.options(None, candidates)
    with pytest.raises(UsageError, match="fitted on feature differences"):
        found.options("prompt", EYE)


def test_options_of_texts_are_read_with_the_features():
    features = sordino.HashedText(dimension=16)
    records = [{"prompt": "p", "first": "a", "second": "b", "label": 1}]
    pairs = sordino.read_pairs(records)
    found = sordino.WithheldReward(pairs, features=features, **LABEL)
    options = found.options("p", ["a", "b", "c"])
    assert options.tolist() == features.transform(["p"] * 3, ["a", "b", "c"]).toarray().tolist()
    assert len(options) == 3
    with pytest.raises(UsageError, match="reads texts"):
        found.options(None, np.eye(16))
    chat = [{"role": "user", "content": "p"}]
    assert found.options(chat, ["a"]).shape == (1, 16)


def test_what_is_public_can_be_read():
    found = withheld(persons=["a", "b", "c", "d", "e"])
    assert (found.unit, found.neighbors) == ("label", REPLACE_ONE)
    assert found.caveats == ("real-arithmetic", "person-group")
    assert found.questions is None  # numbers name no data set
    repeated = withheld(rows=np.vstack([ROWS, ROWS[:1]]), labels=[*LABELS, 1])
    assert repeated.caveats == ("real-arithmetic", "repeats-not-linked")
    record = withheld(RECORD, rows=np.vstack([ROWS, ROWS[:1]]), labels=[*LABELS, 1])
    assert (record.caveats, record.questions) == (("real-arithmetic", "person-group"), None)
    assert repr(found) == "WithheldReward(withheld, d=2, unit='label', neighbors=REPLACE_ONE)"


def test_repeats_of_one_person_count_once_for_labels_and_each_time_for_records():
    rows, labels = np.vstack([ROWS, ROWS[:1]]), [*LABELS, 0]
    persons = ["a", "b", "c", "d", "e", "a"]
    once, both = withheld(persons=persons[:5]), withheld(None or LABEL, rows, labels, persons)
    assert once._scores(EYE).tolist() == both._scores(EYE).tolist()
    record = withheld(RECORD, rows, labels, persons)
    assert record._scores(EYE).tolist() != withheld(RECORD)._scores(EYE).tolist()


# --- what does not leave ----------------------------------------------------------------------


def test_a_score_and_a_file_are_refused_with_the_two_ways_out(tmp_path):
    found = withheld()
    for name in ("score", "score_features", "predict_proba", "to_dict", "save"):
        with pytest.raises(PrivacyError, match=r"gibbs_policy\(withheld.*reveal\(ledger") as caught:
            getattr(found, name)()
        assert str(caught.value).startswith(f"{name}: ")
    assert not list(tmp_path.iterdir())
    for copied in (copy.copy, copy.deepcopy):
        with pytest.raises(PrivacyError, match="not pickled or copied"):
            copied(found)


def test_it_is_no_released_reward():
    assert not isinstance(withheld(), sordino.RewardModel)
    with pytest.raises(PrivacyError):
        sordino.pessimistic_policy(withheld(), temperature=1.0)
    assert WithheldReward.__init__.__kwdefaults__ is not None
    assert not {"unit", "neighbors", "ridge"} & set(WithheldReward.__init__.__kwdefaults__)


# --- the way out ------------------------------------------------------------------------------


def test_revealing_records_an_infinite_spend_first(tmp_path, monkeypatch):
    found, ledger = withheld(penalty=1.0), open_ledger(tmp_path)
    model = found.reveal(ledger=ledger)
    entry = ledger.spends[0]
    assert ledger.total().epsilon == math.inf
    assert model.guarantee.epsilon == math.inf
    assert model.guarantee.caveats == ("real-arithmetic",)
    assert model.release_ids == (entry.release_id,)
    np.testing.assert_allclose(model.weights, least(ROWS, LABELS, 0.5, 2.0), atol=2e-6)
    model.save(tmp_path / "reward.json")
    loaded = sordino.RewardModel.load(tmp_path / "reward.json")
    assert loaded.weights.tolist() == model.weights.tolist()
    assert json.loads((tmp_path / "reward.json").read_text())["gradient_norm"] == 1e-8 * math.sqrt(
        5
    )
    assert sordino.certify(model, ledger).guarantee.epsilon == math.inf
    model.weights[:] = 0
    assert found._scores(EYE).any()


@pytest.mark.parametrize("size", [ADD_OR_REMOVE_ONE, REPLACE_ONE])
def test_a_revealed_reward_of_records_says_their_number_where_it_is_public(tmp_path, size):
    ledger = open_ledger(tmp_path, unit="record", neighbors=size)
    model = withheld(RECORD, neighbors=size).reveal(ledger=ledger)
    assert model.pairs == (None if size is ADD_OR_REMOVE_ONE else 5)
    assert "asked" not in ledger.spends[0].payload


def test_nothing_is_revealed_without_an_infinite_budget(tmp_path):
    found = withheld()
    ledger = open_ledger(tmp_path, epsilon=1e6)
    with pytest.raises(BudgetExceeded):
        found.reveal(ledger=ledger)
    assert ledger.spends == ()
    with pytest.raises(UsageError, match="Nothing was revealed"):
        found.reveal(ledger=None)


def test_a_ledger_of_something_else_reveals_nothing(tmp_path):
    (tmp_path / "other").mkdir()
    found = withheld()
    record = open_ledger(tmp_path, unit="record")
    with pytest.raises(PrivacyError):
        found.reveal(ledger=record)
    ledger = open_ledger(tmp_path / "other")
    assert len(ledger.spends) == 0
    assert record.spends == ()


def test_a_crash_after_the_entry_overcounts(tmp_path, monkeypatch):
    """Whatever happens while the model is made, the spend is on the ledger already."""
    found, ledger = withheld(), open_ledger(tmp_path)

    def crash(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr("sordino.rewards.withheld.RewardModel", crash)
    with pytest.raises(KeyboardInterrupt):
        found.reveal(ledger=ledger)
    assert ledger.total().epsilon == math.inf
