"""The metrics: unbiased by enumerating every coin, their errors by formula and by simulation."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from tests.tiers import few

import sordino
from sordino import RandomizedResponse
from sordino.errors import DataError, UsageError
from sordino.reporting.result import measure_reward
from sordino.rewards.evidence import Design
from sordino.rewards.metrics import Estimate, HeldOut, cross_fit, legible, measure_predictions


def measured(differences, answers, flip, *, clusters=None):
    """Return all metrics of predictions in memory, the policy's at temperature 1."""
    predictions = HeldOut(
        differences=differences, answers=answers, flip_probability=flip, clusters=clusters
    )
    return measure_predictions(predictions, temperature=1.0)


DIFFERENCES = np.array([1.2, -0.4, 0.0, 3.0, -2.2])
TRUTH = np.array([1, 1, 0, 1, 0])


def expectation(metric, flip):
    """Sum a metric over all coins, each weighed by its probability."""
    total = 0.0
    for coins in itertools.product([0, 1], repeat=len(TRUTH)):
        weight = math.prod(flip if coin else 1 - flip for coin in coins)
        total += weight * metric(TRUTH ^ np.array(coins)).value
    return total


@pytest.mark.parametrize("flip", [0.0, 0.1, 0.2689414213699951, 0.45])
def test_unbiased_exactly(flip):
    truth = [
        (1 if difference * (2 * answer - 1) > 0 else 0.5 if difference == 0 else 0)
        for difference, answer in zip(DIFFERENCES, TRUTH, strict=True)
    ]
    expected = expectation(lambda z: measured(DIFFERENCES, z, flip).accuracy, flip)
    assert expected == pytest.approx(np.mean(truth), rel=1e-12)

    losses = [
        math.log1p(math.exp(-difference * (2 * answer - 1)))
        for difference, answer in zip(DIFFERENCES, TRUTH, strict=True)
    ]
    expected = expectation(lambda z: measured(DIFFERENCES, z, flip).negative_log_likelihood, flip)
    assert expected == pytest.approx(np.mean(losses), rel=1e-12)

    chance = 1 / (1 + np.exp(-DIFFERENCES))
    wins = np.where(TRUTH == 1, chance, 1 - chance)
    expected = expectation(lambda z: measured(DIFFERENCES, z, flip).win_rate, flip)
    assert expected == pytest.approx(np.mean(wins), rel=1e-12)


def test_accuracy_is_the_formula_of_the_specification():
    rng = np.random.default_rng(0)
    differences, answers, flip = rng.standard_normal(50), rng.integers(0, 2, 50), 0.3
    agreement = np.mean((differences > 0) == (answers == 1))
    found = measured(differences, answers, flip).accuracy
    assert found.value == pytest.approx((agreement - flip) / (1 - 2 * flip), rel=1e-12)
    error = math.sqrt(agreement * (1 - agreement) / 50) / (1 - 2 * flip)
    assert found.standard_error == pytest.approx(error, rel=1e-12)


def test_a_tie_counts_one_half():
    for answer in (0, 1):
        tie = measured(np.zeros(3), np.full(3, answer), 0.2).accuracy
        assert tie.value == pytest.approx(0.5, rel=1e-12)


def test_perfect_agreement_and_its_opposite():
    for answers, value in ([1, 0], 1.0), ([0, 1], 0.0):
        found = measured(np.array([1.0, -1.0]), np.array(answers), 0.0).accuracy
        assert found == Estimate(value, 0.0)


METRICS = ("accuracy", "negative_log_likelihood", "calibration_slope", "win_rate")


@pytest.mark.parametrize("name", METRICS)
def test_records_repeated_in_a_cluster_say_no_more_than_once(name):
    rng = np.random.default_rng(1)
    differences, answers = rng.standard_normal(40), rng.integers(0, 2, 40)
    once = getattr(measured(differences, answers, 0.2, clusters=np.arange(40)), name)
    many = np.repeat(differences, 5), np.repeat(answers, 5), 0.2
    repeated = getattr(measured(*many, clusters=np.repeat(np.arange(40) * 7 - 100, 5)), name)
    assert repeated.value == pytest.approx(once.value, rel=1e-9)
    assert repeated.standard_error == pytest.approx(once.standard_error, rel=1e-9)
    naive = getattr(measured(*many), name)
    assert naive.standard_error == pytest.approx(once.standard_error / math.sqrt(5), rel=0.03)


@pytest.mark.parametrize("name", METRICS[1:])
def test_clusters_of_one_change_nothing(name):
    rng = np.random.default_rng(2)
    differences, answers = rng.standard_normal(40), rng.integers(0, 2, 40)
    alone = getattr(measured(differences, answers, 0.2, clusters=rng.permutation(40)), name)
    plain = getattr(measured(differences, answers, 0.2), name)
    assert alone.standard_error == pytest.approx(plain.standard_error, rel=1e-12)


def test_one_cluster_tells_nothing_of_its_error():
    found = measured(DIFFERENCES, TRUTH, 0.1, clusters=np.zeros(5, int)).negative_log_likelihood
    assert found.standard_error == math.inf
    assert (
        measured(DIFFERENCES[:1], TRUTH[:1], 0.1).negative_log_likelihood.standard_error == math.inf
    )
    assert measured(np.zeros(1), np.array([1]), 0.1).win_rate.share_interval == [0.0, 1.0]


def test_loss_and_win_rate_errors_are_those_of_a_mean():
    flip, n = 0.25, len(TRUTH)
    targets = (TRUTH - flip) / (1 - 2 * flip)
    losses = np.log1p(np.exp(DIFFERENCES)) - targets * DIFFERENCES
    found = measured(DIFFERENCES, TRUTH, flip).negative_log_likelihood
    assert found.standard_error == pytest.approx(losses.std(ddof=1) / math.sqrt(n), rel=1e-12)


def test_calibration_slope_against_50_digits():
    rng = np.random.default_rng(3)
    differences = rng.standard_normal(60)
    answers = (rng.random(60) < 1 / (1 + np.exp(-differences))).astype(int)
    flip = 0.2
    targets = (answers - flip) / (1 - 2 * flip)
    with mpmath.workdps(50):

        def score(slope):
            chances = [1 / (1 + mpmath.exp(-slope * mpmath.mpf(x))) for x in differences]
            terms = zip(chances, targets, differences, strict=True)
            return mpmath.fsum((p - t) * x for p, t, x in terms)

        root = mpmath.findroot(score, (0.01, 20), solver="anderson")
        information = float(mpmath.diff(score, root))
    found = measured(differences, answers, flip).calibration_slope
    assert found.value == pytest.approx(float(root), rel=1e-11)
    residuals = (1 / (1 + np.exp(-float(root) * differences)) - targets) * differences
    error = math.sqrt(60 / 59 * np.sum(residuals**2)) / information
    assert found.standard_error == pytest.approx(error, rel=1e-9)


@given(scale=st.floats(1e-6, 1e6))
def test_the_slope_undoes_the_scale(scale):
    base = measured(DIFFERENCES, np.array([1, 1, 0, 0, 0]), 0.1).calibration_slope
    found = measured(scale * DIFFERENCES, np.array([1, 1, 0, 0, 0]), 0.1).calibration_slope
    assert found.value * scale == pytest.approx(base.value, rel=1e-9)
    assert found.standard_error * scale == pytest.approx(base.standard_error, rel=1e-6)


def test_no_finite_slope_is_none():
    signs = (DIFFERENCES > 0).astype(int)
    assert measured(DIFFERENCES, signs, 0.0).calibration_slope is None
    assert measured(DIFFERENCES, 1 - signs, 0.0).calibration_slope is None
    assert measured(DIFFERENCES, signs, 0.4).calibration_slope is None
    assert measured(np.zeros(5), signs, 0.1).calibration_slope is None


def test_interval_is_normal_and_clipped():
    low, high = Estimate(0.7, 0.1).share_interval
    assert low == pytest.approx(0.7 - 0.1 * norm.ppf(0.975), rel=1e-12)
    assert high == pytest.approx(0.7 + 0.1 * norm.ppf(0.975), rel=1e-12)
    rate = measured(np.full(4, 50.0), np.array([1, 1, 1, 0]), 0.4).win_rate
    assert rate.share_interval == [0.0, 1.0]
    # The value itself stays unbiased, even where that is out of range.
    assert measured(np.full(4, 50.0), np.ones(4, int), 0.25).win_rate.value == pytest.approx(1.5)


def simulate(rng, persons, each):
    """Return predictions of the truth itself, true answers that agree within a person."""
    question = rng.standard_normal((persons, 1)) * 1.5
    differences = np.repeat(question, each, axis=1).ravel()
    chance = 1 / (1 + np.exp(-question))
    same = rng.random((persons, 1)) < chance
    return differences, np.repeat(same, each, axis=1).ravel().astype(int)


@pytest.mark.deep
@pytest.mark.parametrize("each", [1, 4])
def test_intervals_cover(each):
    """Nominal .95 in 1500 runs, seeded; demanded within .025.

    One run covers with a probability of .95 up to .005 (a normal interval at 600 persons), the
    share has a standard deviation of .0056, so that a right program fails with a new seed with
    probability 2 · P(N > 3.5) < 5e-4 a metric at worst; a standard error that is 20 % off
    moves coverage to below .885 or above .98 and is caught with probability above .97.
    """
    flip, runs, persons = 0.2689414213699951, 1500, 600
    truths = {"calibration_slope": 1.0}
    rng = np.random.default_rng(each)
    big, _ = simulate(rng, 400_000, 1)
    chance = 1 / (1 + np.exp(-big))
    truths["accuracy"] = np.mean(np.maximum(chance, 1 - chance))
    truths["negative_log_likelihood"] = np.mean(
        -chance * np.log(chance) - (1 - chance) * np.log1p(-chance)
    )
    truths["win_rate"] = np.mean(chance**2 + (1 - chance) ** 2)
    covered = dict.fromkeys(truths, 0)
    clusters = np.repeat(np.arange(persons), each)
    for _ in range(runs):
        differences, truth = simulate(rng, persons, each)
        answers = truth ^ (rng.random(len(truth)) < flip)
        metrics = measured(differences, answers, flip, clusters=clusters)
        for name, truth_value in truths.items():
            found = getattr(metrics, name)
            if found is not None:  # no finite slope counts as a miss
                reach = 1.959964 * found.standard_error
                covered[name] += abs(found.value - truth_value) <= reach
    for name, count in covered.items():
        assert abs(count / runs - 0.95) < 0.025, (name, count / runs)


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"flip": 0.5}, UsageError, "flip_probability"),
        ({"answers": TRUTH + 1}, DataError, "answers must be 0 or 1"),
        ({"differences": DIFFERENCES[:4]}, DataError, "as many"),
        ({"differences": np.zeros(0), "answers": np.zeros(0, int)}, DataError, "at least one"),
        ({"differences": np.full(5, np.nan)}, DataError, "finite"),
        ({"clusters": np.zeros(4, int)}, DataError, "clusters"),
        ({"clusters": np.zeros(5)}, DataError, "clusters"),
    ],
)
def test_arguments_are_refused(change, error, said):
    given_ = {"differences": DIFFERENCES, "answers": TRUTH, "flip": 0.1} | change
    with pytest.raises(error, match=said):
        measured(**given_)


@pytest.mark.parametrize("n", few([1, 2, 3, 7], first=1))
def test_answers_that_all_agree_have_no_error_whatever_the_coin(n):
    """Debiasing and undoing it may end a rounding above 1, of which there is no square root."""
    for epsilon in np.linspace(0.05, 6, 400):
        flips = RandomizedResponse(float(epsilon)).flip_probability
        for sign in (1.0, -1.0):
            found = measured(np.full(n, sign), np.ones(n, dtype=int), flips).accuracy
            assert found.standard_error == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("error", [math.inf, math.nan, 0.1001, None])
def test_a_vague_number_becomes_a_sentence_and_none_is_outside_its_range(error):
    told = legible({"accuracy": -0.149, "accuracy_standard_error": error})
    assert told["accuracy"] is None
    assert told["accuracy_reason"].startswith("too few answers to tell")
    known = legible({"accuracy": -0.001, "accuracy_standard_error": 0.1})
    assert known["accuracy"] == 0.0
    assert "accuracy_reason" not in known
    wins = legible({"win_rate": 0.9, "win_rate_interval": [0.2, 1.0]})
    assert (wins["win_rate"], wins["win_rate_interval"]) == (None, None)


def test_ten_answers_give_sentences(tmp_path):
    rows = np.random.default_rng(0).normal(size=(10, 3))
    pairs = sordino.Pairs.from_features(rows, np.arange(10) % 2)
    budget = sordino.Guarantee(
        0.5, delta=0.0, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    ledger = sordino.Ledger.open(tmp_path / "spend.db", data="pairs", budget=budget)
    private = sordino.privatize(pairs, RandomizedResponse(0.5), ledger=ledger, simulate_seed=0)
    told = measure_reward(cross_fit(Design.of(private, None)))
    assert told["accuracy"] is None
    assert "too few answers to tell" in told["accuracy_reason"]
