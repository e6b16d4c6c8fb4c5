"""What every mechanism keeps, whatever it releases: one class of tests, one row for each."""

import math
import pickle

import numpy as np
import pytest

from sordino._random import SimulatedEntropy, SystemEntropy
from sordino.auditing.statistical.distinguishing import _says_of_itself
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.base import Mechanism, Repeatable, WorstCase
from sordino.mechanisms.gaussian import GaussianMechanism, SecondMoment
from sordino.mechanisms.gibbs import ExponentialMechanism, SoftmaxMechanism
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.mechanisms.minimum_count_release import MinimumCount
from sordino.mechanisms.objective_perturbation import (
    ObjectivePerturbation,
    RankingObjectivePerturbation,
)
from sordino.mechanisms.randomized_response import (
    KaryRandomizedResponse,
    NonPrivate,
    RandomizedResponse,
)
from sordino.mechanisms.ranking_sum import RankingGaussian
from sordino.mechanisms.regressions.base import RegressionTerms
from sordino.mechanisms.regressions.descent import OnePassDescent
from sordino.mechanisms.regressions.gaussian import AdaptiveStatistics, GaussianStatistics
from sordino.mechanisms.regressions.gibbs import ExponentialRegression
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL

FLAT = {"reference": (0.5, 0.2, 0.3), "neighbors": REPLACE_ONE}
NOISED = {"bound": 2.0, "delta": 1e-6, "neighbors": REPLACE_ONE}
LABELS, ROWS = np.array([0, 1, 2], dtype=np.int8), np.array([[1.0, 0.5], [0.2, -0.3], [0.1, 0.4]])


def regression(oracle, delta=1e-5):
    terms = RegressionTerms(feature_bound=1.0, target_bound=1.0, radius=2.0, rows=20)
    return oracle.calibrated(terms, 1.0, delta=delta, neighbors=REPLACE_ONE)


def rankings():
    noise = RankingGaussian(1.0, delta=1e-6, statistic="borda")
    return noise.prepare(np.eye(3), np.array([0, 3]), slates=np.zeros(4, dtype=int))


BATCH = np.column_stack([np.tile(ROWS, (7, 1))[:20], np.linspace(-1, 1, 20)])
# mechanism, made-up values, unit that it is about, and whether its release takes the values alone
MECHANISMS = {
    "coin": (RandomizedResponse(1.0), LABELS, "label"),
    "die": (KaryRandomizedResponse(1.0, 4), np.array([0, 3, -1]), "label"),
    "nothing": (NonPrivate(), LABELS, "label"),
    "sum": (GaussianMechanism(3.0, **NOISED), ROWS, "record"),
    "moment": (SecondMoment(3.0, **NOISED), ROWS, "record"),
    "labels": (LabelGaussian(1.0, delta=1e-6).prepare(ROWS), LABELS, "label"),
    "rankings": (rankings(), np.tile([2, 4, 6], 4), "label"),
    "exponential": (ExponentialMechanism(0.5, bound=1.0, **FLAT), np.eye(3), "record"),
    "softmax": (SoftmaxMechanism(0.5, score_range=0.3, draws=2, **FLAT), np.eye(3)[0], "record"),
    "count": (MinimumCount(0.5, delta=1e-3), np.array([30, 20], dtype=np.uint8), "record"),
    "tilt": (ObjectivePerturbation(1.0, **NOISED), ROWS, "record"),
    "tilted rankings": (
        RankingObjectivePerturbation(1.0, candidates=3, dimension=2, **NOISED),
        ROWS[np.newaxis], "record"),
    "regression": (regression(GaussianStatistics()), BATCH, "record"),
    "adaptive": (regression(AdaptiveStatistics()), BATCH, "record"),
    "descent": (regression(OnePassDescent(inner_batches=2)), BATCH, "record"),
    "ball": (regression(ExponentialRegression(), 0.0), BATCH, "record"),
    "candidates": (regression(ExponentialRegression(((0.0, 0.0), (1.0, 1.0))), 0.0), BATCH,
                   "record"),
}  # fmt: skip
WHOLE_BATCHES = {"tilt", "tilted rankings", "regression", "adaptive", "descent", "ball",
                 "candidates"}  # fmt: skip
EVERY = pytest.mark.parametrize("name", MECHANISMS)


class TestContract:
    """Each mechanism under ``REPLACE_ONE``, which all of them promise."""

    @EVERY
    def test_it_is_a_value_that_an_auditor_can_play(self, name):
        mechanism, *_ = MECHANISMS[name]
        assert isinstance(mechanism, Mechanism)
        assert isinstance(mechanism, Repeatable)
        if name not in {"labels", "rankings"}:  # a design is as large as its rows
            assert pickle.loads(pickle.dumps(mechanism)) == mechanism  # noqa: S301 - our own
            assert hash(mechanism) == hash(pickle.loads(pickle.dumps(mechanism)))  # noqa: S301
        with pytest.raises(AttributeError):
            mechanism.epsilon = 1.0

    @EVERY
    def test_it_promises_something_to_its_unit_and_nothing_to_nobody(self, name):
        mechanism, _, unit = MECHANISMS[name]
        promise = mechanism.guarantee(unit=unit, neighbors=REPLACE_ONE, trust="central")
        assert (promise.unit, promise.neighbors) == (unit, REPLACE_ONE)
        assert promise.epsilon > 0
        assert math.isinf(promise.epsilon) == (name == "nothing")
        assert mechanism.sensitivity(REPLACE_ONE) > 0
        assert mechanism.event == mechanism.event
        if name == "nothing":
            return
        with pytest.raises((PrivacyError, UsageError)):
            mechanism.guarantee(unit="household", neighbors=REPLACE_ONE, trust="central")
        if name == "softmax":  # whoever bounds the change of scores says whose change it is
            return
        with pytest.raises((PrivacyError, UsageError)):
            mechanism.guarantee(unit="person", neighbors=REPLACE_ONE, trust="central")
        if name not in {"coin", "die"}:  # which answer under any relation but one
            with pytest.raises((PrivacyError, UsageError), match=r"neighbors|REPLACE"):
                mechanism.sensitivity("REPLACE")

    @EVERY
    def test_the_same_words_give_the_same_releases(self, name):
        mechanism, values, _ = MECHANISMS[name]
        many = mechanism.repeat(values, 5, entropy=SimulatedEntropy(3))
        again = mechanism.repeat(values, 5, entropy=SimulatedEntropy(3))
        assert len(many) == 5
        assert many.tobytes() == again.tobytes()
        if name not in WHOLE_BATCHES:
            one = mechanism.release(values, entropy=SimulatedEntropy(3))
            first = mechanism.repeat(values, 1, entropy=SimulatedEntropy(3))
            assert np.ravel(one).tobytes() == first[0].tobytes()
            assert one.dtype == many.dtype
        other = mechanism.repeat(values, 40, entropy=SimulatedEntropy(4))
        assert len(np.unique(other, axis=0)) > 1

    @EVERY
    def test_the_system_gives_another_release_each_time(self, name):
        mechanism, values, _ = MECHANISMS[name]
        one, other = (mechanism.repeat(values, 200, entropy=SystemEntropy()) for _ in range(2))
        assert np.isfinite(one).all()
        assert not np.array_equal(one, other)  # equal with chance below 2^-200

    @EVERY
    def test_a_worst_case_is_told_apart_as_its_log_ratio_says(self, name):
        """E[e^−L] = 1 where L is the log-ratio under the first input: 6 standard errors, 2e-9."""
        mechanism, *_ = MECHANISMS[name]
        case = mechanism.worst_case(REPLACE_ONE)
        outputs = mechanism.repeat(case.one, 2000, entropy=SimulatedEntropy(1))
        ratios = mechanism.log_ratio(outputs, case)
        assert ratios.shape == (2000,)
        assert not mechanism.log_ratio(outputs[:50], WorstCase(case.one, case.one)).any()
        if name == "nothing":
            assert np.isposinf(ratios).all()
            return
        back = np.exp(-ratios)
        assert abs(back.mean() - 1) < 6 * back.std() / math.sqrt(2000) + 1e-9
        assert ratios.std() > 0

    @EVERY
    @pytest.mark.parametrize("trials", [-1, 2.5])
    def test_trials_are_a_whole_number(self, name, trials):
        mechanism, values, _ = MECHANISMS[name]
        with pytest.raises(UsageError, match="trials"):
            mechanism.repeat(values, trials, entropy=SystemEntropy())


NUMBERS = (0.0, -1.0, math.inf, math.nan, "1", True)
CHANCES = (0.0, 1.0, -1e-9, math.nan, None)
GOOD = {
    RandomizedResponse: {"epsilon": 1.0},
    KaryRandomizedResponse: {"epsilon": 1.0, "categories": 4},
    GaussianMechanism: {"standard_deviation": 3.0, "grid": 2.0**-19, **NOISED},
    SecondMoment: {"standard_deviation": 3.0, **NOISED},
    LabelGaussian: {"epsilon": 1.0, "delta": 1e-6, "grid": 2.0**-20, "records_per_person": 2},
    RankingGaussian: {"epsilon": 1.0, "delta": 1e-6, "statistic": "borda", "grid": 2.0**-20},
    ExponentialMechanism: {"temperature": 0.5, "bound": 1.0, **FLAT},
    SoftmaxMechanism: {"temperature": 0.5, "score_range": 0.3, "draws": 2, **FLAT},
    MinimumCount: {"epsilon": 0.5, "delta": 1e-3},
    ObjectivePerturbation: {"epsilon": 1.0, **NOISED},
    RankingObjectivePerturbation: {"epsilon": 1.0, "candidates": 3, "dimension": 2, **NOISED},
}
BAD = {
    "epsilon": NUMBERS, "standard_deviation": (-1.0, math.inf, math.nan), "bound": NUMBERS[:4],
    "temperature": NUMBERS, "score_range": (-1.0, math.inf, math.nan), "delta": CHANCES,
    "grid": (0.0, math.nan, 100.0), "neighbors": ("replace", None, 1), "draws": (0, 1.5),
    "records_per_person": (0, 1.5), "categories": (1, 2.5, 2**20), "candidates": (1, 2.5),
    "dimension": (0, 1.5), "statistic": ("mean", None), "unit": ("answer", None),
    "reference": ((), (0.5, 0.6), (1.5, -0.5), (0.5, math.nan), (2.0**-17,) * 2**17),
}  # fmt: skip


@pytest.mark.parametrize("kind", GOOD, ids=lambda kind: kind.__name__)
def test_settings_out_of_range_are_refused_by_their_name(kind):
    kind(**GOOD[kind])
    for name in GOOD[kind]:
        for bad in BAD[name]:
            with pytest.raises(UsageError, match=name):
                kind(**GOOD[kind] | {name: bad})


@pytest.mark.parametrize("name", ["sum", "moment", "exponential"])
@pytest.mark.parametrize(
    "bad",
    [
        np.ones(1234), np.ones((1234, 0)), np.ones((1234, 3, 1)), np.full((1234, 3), "x"),
        np.ones((1234, 3), dtype=complex), [[1.0] * 3] * 1234,
        np.ma.masked_array(np.ones((1234, 3)), mask=True),
    ],
)  # fmt: skip
def test_values_that_cannot_be_used_do_not_tell_how_many_there_are(name, bad):
    with pytest.raises(DataError) as caught:
        MECHANISMS[name][0].release(bad, entropy=SystemEntropy())
    assert "1234" not in str(caught.value)


@pytest.mark.parametrize("name", ["sum", "moment", "exponential"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_of_a_value_that_is_no_number_only_the_row_is_named(name, bad):
    values = np.full((4, 3), 0.123)
    values[2, 1] = values[3, 0] = bad
    with pytest.raises(DataError, match="row 2 holds a NaN or an infinity") as caught:
        MECHANISMS[name][0].release(values, entropy=SystemEntropy())
    assert "123" not in str(caught.value)


@pytest.mark.parametrize("relation", [ADD_OR_REMOVE_ONE, REPLACE_SPECIAL])
def test_relations_that_labels_and_slots_do_not_promise_are_refused(relation):
    for name in ("labels", "rankings"):
        with pytest.raises(PrivacyError, match=relation.name):
            MECHANISMS[name][0].worst_case(relation)
    for name in ("regression", "adaptive", "descent", "ball", "candidates"):
        if relation is ADD_OR_REMOVE_ONE:
            with pytest.raises(PrivacyError, match="moves all later users to another slot"):
                MECHANISMS[name][0].worst_case(relation)


@EVERY
@pytest.mark.parametrize("method", ["repeat", "log_ratio"])
def test_an_auditor_plays_what_the_mechanism_says_of_itself(name, method):
    """Learned from releases alone a fault is found less often, and a person's needs ids."""
    mechanism = MECHANISMS[name][0]
    if isinstance(mechanism, Repeatable):
        assert _says_of_itself(mechanism, method)
