"""What a run hands to its report: taken from released and public things only."""

from __future__ import annotations

import itertools
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
from scipy.special import expit

import sordino
from sordino.environments.annotators import simulate_pairs
from sordino.policies.gibbs import optimistic_policy
from sordino.preferences.features import SIGNALS, FunctionFeatures, HashedText
from sordino.reporting import calibration_bins, summarize
from sordino.reporting import result as results
from sordino.reporting.result import _feature_names, measure_decisive, measure_examples
from sordino.rewards.forecast import utility_curve
from sordino.rewards.metrics import HeldOut


@pytest.fixture
def held_out() -> HeldOut:
    generator = np.random.default_rng(0)
    gaps = generator.normal(size=3000)
    labels = (generator.random(3000) < expit(gaps)).astype(np.int8)
    flips = generator.random(3000) < 0.25
    return HeldOut(differences=gaps, answers=labels ^ flips, flip_probability=0.25, clusters=None)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    rows, truth = simulate_pairs(300, seed=3)
    pairs = sordino.read_pairs(list(rows))
    budget = sordino.Guarantee(
        3.0, delta=0.0, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    path = tmp_path_factory.mktemp("run") / "spend.db"
    ledger = sordino.Ledger.open(path, data="x", budget=budget)
    private = sordino.privatize(
        pairs, sordino.RandomizedResponse(2.0), ledger=ledger, simulate_seed=1
    )
    reward = sordino.fit_reward(private, features=HashedText(dimension=32), ellipsoid=True)
    return SimpleNamespace(pairs=pairs, private=private, reward=reward, truth=truth)


# Metrics.


def test_metrics_of_a_reward_are_debiased(held_out):
    measured = results.measure_reward(held_out)
    agrees = np.mean((held_out.differences > 0) == (held_out.answers == 1))
    assert measured["accuracy"] == pytest.approx((agrees - 0.25) / 0.5, rel=1e-12)
    # 4.5 standard errors: false alarm 1e-5
    assert abs(measured["calibration_slope"] - 1) < (
        4.5 * measured["calibration_slope_standard_error"]
    )
    assert measured["negative_log_likelihood"] < np.log(2)


def test_a_policy_on_two_answers_is_measured_at_its_temperature(held_out):
    measured = results.measure_policy(held_out, 0.5)
    chances = expit(held_out.differences / 0.5)
    targets = (held_out.answers - 0.25) / 0.5
    assert measured["win_rate"] == pytest.approx(
        (targets * chances + (1 - targets) * (1 - chances)).mean()
    )
    low, high = measured["win_rate_interval"]
    assert low < measured["win_rate"] < high
    kl = chances * np.log(2 * chances) + (1 - chances) * np.log(2 * (1 - chances))
    assert measured["kl"] == pytest.approx(kl.mean())
    certain = np.sign(held_out.differences) * 1e6
    assert results.mean_kl(certain, 1.0) == pytest.approx(np.log(2))


def test_public_and_true_metrics_describe_the_fitted_reward(run):
    policy = sordino.gibbs_policy(run.reward, temperature=0.5)
    answers = (run.pairs.first, run.pairs.second)
    first, second = (run.reward.score(run.pairs.prompts, texts) for texts in answers)
    public = results.measure_public(run.reward, run.pairs, 0.5)
    assert public["pairs"] == 300
    assert public["accuracy"] == pytest.approx(((first > second) == run.pairs.labels).mean())
    found = results.measure_truth(policy, run.pairs, run.truth)
    assert 0 <= found["kl_regret"] == pytest.approx(found["best_value"] - found["value"])
    uniform = np.mean([run.truth.score(texts) for texts in answers])
    assert found["value"] > uniform  # better than the reference


# Calibration.


def test_bins_are_unbiased_over_every_outcome_of_the_randomization():
    flip = 0.3
    labels = np.array([0.0, 1, 1, 0, 1, 1, 0, 1])
    differences = np.array([-2.0, -1.5, -1.0, 0.3, 0.3, 0.9, 1.5, 4.0])
    mean, total = np.zeros(3), 0.0
    for flips in itertools.product((0, 1), repeat=8):
        weight = flip ** sum(flips) * (1 - flip) ** (8 - sum(flips))
        answers = np.abs(labels - np.array(flips))
        bins = calibration_bins(differences, answers, flip, bins=3)
        mean += weight * np.array([row["observed"] for row in bins])
        total += weight
    truth = calibration_bins(differences, labels, 0.0, bins=3)
    assert total == pytest.approx(1.0)
    assert mean == pytest.approx([row["observed"] for row in truth], abs=1e-12)


def test_bins_state_the_formula_of_their_interval():
    answers = np.array([1.0, 0, 1, 1])
    (row,) = calibration_bins(np.zeros(4), answers, 0.25)
    assert (row["pairs"], row["predicted"]) == (4, 0.5)
    assert row["observed"] == pytest.approx(1.0)
    # Wilson: shares p at which the observed one is 1.96 standard errors away.
    for end in (row["low"], row["high"]):
        share = 0.25 + 0.5 * end
        assert abs(0.75 - share) == pytest.approx(1.96 * np.sqrt(share * (1 - share) / 4))


@pytest.mark.parametrize("pairs", [3, 10, 40])
def test_intervals_of_small_groups_hold(pairs):
    # Every outcome, chances from .05 to .95: at least .83 each, .93 in the mean. The normal
    # interval held with chance .41 to .84 for groups of two to five.
    chances = np.linspace(0.05, 0.95, 91)
    held = np.zeros(91)
    for right in range(pairs + 1):
        answers = (np.arange(pairs) < right).astype(float)
        (row,) = calibration_bins(np.zeros(pairs), answers, 0.0)
        weight = math.comb(pairs, right) * chances**right * (1 - chances) ** (pairs - right)
        held += weight * ((row["low"] <= chances) & (chances <= row["high"]))
    assert held.min() > 0.83
    assert held.mean() > 0.93


def test_bins_are_quantiles_in_order_and_keep_ties_together_in_any_order():
    rng = np.random.default_rng(5)
    differences, answers = rng.normal(size=1000), rng.integers(0, 2, 1000).astype(float)
    bins = calibration_bins(differences, answers, 0.1)
    assert [row["pairs"] for row in bins] == [100] * 10
    predicted = [row["predicted"] for row in bins]
    assert predicted == sorted(predicted)
    assert predicted[0] == pytest.approx(np.mean(1 / (1 + np.exp(-np.sort(differences)[:100]))))
    tied = np.repeat([0.0, 1.0], [700, 300])
    order = rng.permutation(1000)
    shuffled = calibration_bins(tied[order], answers[order], 0.1)
    assert [row["pairs"] for row in shuffled] == [700, 300]
    assert [row["observed"] for row in shuffled] == pytest.approx(
        [row["observed"] for row in calibration_bins(tied, answers, 0.1)]
    )
    far = calibration_bins(np.array([-1e4, 1e4]), np.array([0.0, 1.0]), 0.0, bins=2)
    assert [row["predicted"] for row in far] == [0.0, 1.0]  # and no warning


def test_bins_cover_the_truth_at_the_stated_rate():
    # Seeded. 400 groups of 500 answers: the rate has a standard error of 1.1 points, so a right
    # formula fails here at most once in 10^4 seeds; 1.64 for 1.96, or no debiasing, fails always.
    rng = np.random.default_rng(11)
    differences = np.repeat(np.linspace(-2, 2, 400), 500)
    share = 1 / (1 + np.exp(-differences))
    labels = rng.random(len(share)) < share
    answers = np.where(rng.random(len(share)) < 0.25, ~labels, labels).astype(float)
    bins = calibration_bins(differences, answers, 0.25, bins=400)
    covered = np.mean([row["low"] <= row["predicted"] <= row["high"] for row in bins])
    assert len(bins) == 400
    assert 0.91 <= covered <= 0.99


# What was foreseen.


def test_the_effective_dimension_counts_directions_and_not_columns():
    rng = np.random.default_rng(2)
    few = rng.normal(size=(5000, 3)) @ rng.normal(size=(3, 40))
    assert 1 < results.effective_dimension(few) <= 3
    # 3,000 rows of 20 equal directions: the sample of 1,500 has a ratio within 2% of 20.
    even = rng.normal(size=(3000, 20))
    assert results.effective_dimension(even) == pytest.approx(20, rel=0.03)
    assert results.effective_dimension(scipy.sparse.csr_array(np.eye(4))) == pytest.approx(4)
    assert results.effective_dimension(np.zeros((3, 2))) == 1.0


def test_the_prediction_is_that_of_estimate_and_holds_the_chosen_epsilon(run):
    gaps, n = run.private.differences(run.reward.features), len(run.private)
    found = results.predict_utility(n, gaps, chosen=1.7)
    losses = [row["epsilon"] for row in found["curve"]]
    assert losses == sorted(losses)
    (row,) = utility_curve(n, dimension=found["effective_dimension"], epsilons=[1.7], accuracy=0.65)
    at = losses.index(1.7)
    assert found["curve"][at] == {"epsilon": 1.7, "accuracy": row["accuracy"]}
    outside = results.predict_utility(n, gaps, chosen=20.0)
    assert outside["chosen_epsilon"] is None
    assert max(row["epsilon"] for row in outside["curve"]) == 10.0


# Features that decide.


def decisive(weights, spread, names=(), **more):
    reward = SimpleNamespace(weights=np.array(weights), features=SimpleNamespace(names=names))
    return measure_decisive(reward, np.array([spread]), source="public", **more)["rows"]


def test_features_are_sorted_by_weight_times_spread_and_not_by_weight():
    rows = decisive([10.0, -2.0, 0.5, 0.0], [0.01, 0.5, 1.0, 9.0], "abcd")
    assert [row["name"] for row in rows] == ["b", "c", "a"]  # d has no effect at all
    assert [row["effect"] for row in rows] == pytest.approx([-1.0, 0.5, 0.1])
    assert [row["weight"] for row in rows] == [-2.0, 0.5, 10.0]
    # Intervals of ± 1.96 standard errors held 3 to 83 % of the time with 28 features.
    assert all(set(row) == {"name", "weight", "effect"} for row in rows)
    many = np.arange(1.0, 31.0)
    assert [row["name"] for row in decisive(many, many)] == [
        f"feature {k}" for k in range(29, 19, -1)
    ]
    assert len(decisive(many, many, most=2)) == 2
    alike = decisive([1.0, -1.0, 1.0], [1.0, 1.0, 1.0], "abc")
    assert [row["name"] for row in alike] == ["a", "b", "c"]


def test_the_spread_ignores_which_answer_stands_first_and_how_rows_are_stored(run):
    rows = np.array([[1.0, 0.0, 2.0], [-3.0, 0.0, 2.0]])
    reward = SimpleNamespace(weights=np.ones(3), features=None)
    for told in (rows, -rows, scipy.sparse.csr_array(rows)):
        found = measure_decisive(reward, told, source="public")["rows"]
        assert [row["effect"] for row in found] == pytest.approx(np.sqrt([5.0, 4.0]))


@pytest.mark.parametrize("dimension", [512, 57, 56, 10, 2, 1])
def test_named_columns_are_those_where_the_signals_sit(dimension):
    # Without any weight on words, only the signals leave a trace.
    features = HashedText(dimension=dimension, word_norm=0.0)
    texts = ["", "Sorry, I cannot; maybe? " * 9, "1. a\n2. b!\n```x``` http (c): yes", "No, you."]
    used = np.flatnonzero(np.abs(features.transform(texts, texts).toarray()).sum(axis=0))
    names = _feature_names(features, dimension)
    assert len(names) == dimension
    signals = [place for place, name in enumerate(names) if name in SIGNALS]
    assert set(used) <= set(signals)
    assert signals == list(range(min(len(SIGNALS), dimension)))
    halved = HashedText(dimension=dimension)  # with words, they get half of the columns
    assert halved.signals == min(len(SIGNALS), dimension // 2)
    for place in range(len(signals), dimension):
        assert names[place] == f"word group {place}"


def test_other_features_are_called_by_their_place_or_their_own_names():
    own = FunctionFeatures(lambda _, answers: [[1.0] * 2 for _ in answers], dimension=2, name="own")
    assert _feature_names(own, 2) == _feature_names(None, 2) == ["feature 0", "feature 1"]
    named = SimpleNamespace(names=("short", "polite"))
    assert _feature_names(named, 2) == ["short", "polite"]
    assert _feature_names(named, 3) == ["feature 0", "feature 1", "feature 2"]


# Examples: picked by a rule that anybody can repeat.


def examples(chances, most=3, **changed):
    n = len(chances)
    names = {"prompts": "prompt", "first": "first", "second": "second"}
    columns = {name: [f"{text} {k}" for k in range(n)] for name, text in names.items()}
    policy = SimpleNamespace(probabilities=lambda *_: [[chance, 1 - chance] for chance in chances])
    pairs = SimpleNamespace(**{**columns, **changed})
    found = measure_examples(policy, pairs, source="public", most=most)
    return [] if found is None else found["rows"]


def test_three_are_the_largest_the_median_and_the_smallest_shift():
    rows = examples([0.5, 0.9, 0.45, 0.3, 0.6])  # shifts 0, .4, .05, .2, .1
    assert [row["prompt"] for row in rows] == ["prompt 1", "prompt 4", "prompt 0"]
    first, second = rows[0]["answers"]
    assert first == {"text": "first 1", "reference": 0.5, "policy": 0.9}
    assert second["policy"] == pytest.approx(0.1)


@pytest.mark.parametrize(("n", "most", "shown"), [(0, 3, 0), (1, 3, 1), (2, 3, 2), (9, 5, 5)])
def test_never_more_than_there_are_and_never_one_twice(n, most, shown):
    rows = examples(np.linspace(0.5, 1, n), most=most)
    assert len({row["prompt"] for row in rows}) == len(rows) == shown


@pytest.mark.parametrize("column", ["prompts", "first", "second"])
def test_a_text_with_an_address_is_never_chosen(column):
    far = "a" * 1000 + "://" + "b" * 1000  # in the part that would be cut off
    chat = [{"role": "user", "content": "see x://y"}]
    for text in ("see x://y", far, chat):
        rows = examples([0.99, 0.6], **{column: [text, "plain"]})
        assert len(rows) == 1
        assert "://" not in str(rows)


def test_a_question_is_shown_once_and_empty_texts_are_not():
    assert len(examples([0.9, 0.1], prompts=["p", "p"], first=["a", "b"], second=["b", "a"])) == 1
    assert examples([0.9], prompts=["  \n "]) == []


def test_long_texts_are_cut_where_a_reader_loses_least():
    (row,) = examples([0.9], prompts=["start " * 200 + "end?"], first=["Begin " + "word " * 200])
    answer = row["answers"][0]["text"]
    assert (row["prompt"][0], row["prompt"][-4:]) == ("…", "end?")
    assert (answer[:5], answer[-1]) == ("Begin", "…")
    assert max(len(row["prompt"]), len(answer)) <= 401
    assert row["answers"][1]["text"] == "second 0"


HOSTILE = "a\u202eb\u2066c\x1b[31md\x00e\u200bf\ud800g\ufeffh\u2028i\U000e0041j\r\nk\rl\tm"
SCRIPTS = "Ünïcode שלום नमस्ते 👩\u200d👩\u200d👧 می\u200cخواهم"
CHAT = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (HOSTILE, "a�b�c�[31md�e�f�g�h�i�j\nk\nl\tm"),
        (SCRIPTS, SCRIPTS),
        (CHAT, "user: Hi.\nassistant: Hello."),
    ],
)
def test_characters_that_change_how_others_read_are_replaced_and_chats_say_who_speaks(text, shown):
    (row,) = examples([0.9], first=[text])
    assert row["answers"][0]["text"] == shown
    shown.encode()


def test_examples_carry_the_policys_own_probabilities_and_no_label(run):
    policy, pairs = sordino.gibbs_policy(run.reward, temperature=0.5), run.pairs
    found = measure_examples(policy, pairs, source="public")
    assert len(found["rows"]) == 3
    texts = {text: index for index, text in enumerate(pairs.first)}
    for row in found["rows"]:
        index = texts[row["answers"][0]["text"]]
        (chances,) = policy.probabilities(
            [pairs.prompts[index]], [[pairs.first[index], pairs.second[index]]]
        )
        assert [answer["policy"] for answer in row["answers"]] == pytest.approx(list(chances))
        assert set(row) == {"prompt", "answers"}
    flipped = sordino.Pairs(
        **{name: getattr(pairs, name) for name in pairs.__dataclass_fields__ if name != "labels"},
        labels=1 - pairs.labels,
    )
    assert measure_examples(policy, flipped, source="public") == found
    given = sordino.Pairs.from_features([[1.0, 0.5]] * 3, [0, 1, 1])
    assert measure_examples(policy, given, source="public") is None


# All together.


def test_the_parts_of_a_run_make_a_page(run):
    policy = optimistic_policy(run.reward, temperature=0.5, confidence=0.9)
    gaps = run.private.differences(run.reward.features)
    told = results.measure_confidence(policy, run.pairs)
    assert told["radius"] == pytest.approx(run.reward.ellipsoid.radius(0.9))
    assert (told["kind"], told["heuristic"], told["scale"]) == ("optimistic", False, 1.0)
    deciding = measure_decisive(run.reward, gaps, source="comparisons", most=4)
    assert (deciding["features"], len(deciding["rows"])) == (32, 4)
    fit = results.describe_fit_settings(run.reward, asked="debiased")
    assert fit["weight_standard_error"] == pytest.approx(np.median(run.reward.standard_errors))
    summary = summarize(
        {
            **results.describe_guarantee_and_caveats(run.reward.guarantee),
            "data": {"pairs": len(run.private)},
            "reward": fit,
            "policy": {"pessimism": told},
            "decisive": deciding,
            "utility": results.predict_utility(len(run.private), gaps, chosen=2.0),
        }
    )
    for part in ("fit", "confidence", "decisive", "prediction"):
        assert summary[part], part


def test_a_ledger_is_described_as_json(open_ledger):
    account = open_ledger(2.0)
    pairs = sordino.Pairs.from_features([[1.0], [2.0]], [0, 1], persons=["a", "a"])
    sordino.privatize(pairs, sordino.RandomizedResponse(0.5), ledger=account)
    view = json.loads(json.dumps(results.describe_ledger_rows(account)))
    assert view["remaining_epsilon"] == 1.5
    assert view["entries"][1]["details"] == {
        "largest_person_labels": 2,
        "largest_person_epsilon": 1.0,
    }
