"""What a run hands to its report: taken from released and public things only."""

import numpy as np
import pytest
import scipy.sparse

import sordino
from sordino.environments.annotators import simulate_pairs
from sordino.policies.pessimism import optimistic_policy
from sordino.reporting import result as results
from sordino.reporting import summarize
from sordino.rewards.forecast import utility_curve


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    rows, _ = simulate_pairs(300, seed=3)
    pairs = sordino.read_pairs(list(rows))
    budget = sordino.Guarantee(
        3.0, delta=0.0, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    path = tmp_path_factory.mktemp("run") / "spend.db"
    ledger = sordino.Ledger.open(path, data="x", budget=budget)
    private = sordino.privatize(
        pairs, sordino.RandomizedResponse(2.0), ledger=ledger, simulate_seed=1
    )
    reward = sordino.fit_reward(private, features=sordino.HashedText(dimension=32), ellipsoid=True)
    return pairs, private, reward


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
    _, private, reward = run
    gaps = private.differences(reward.features)
    found = results.predict_utility(len(private), gaps, chosen=1.7)
    losses = [row["epsilon"] for row in found["curve"]]
    assert losses == sorted(losses)
    assert 1.7 in losses
    (row,) = utility_curve(
        len(private), dimension=found["effective_dimension"], epsilons=[1.7], accuracy=0.65
    )
    at = losses.index(1.7)
    assert found["curve"][at] == {"epsilon": 1.7, "accuracy": row["accuracy"]}
    outside = results.predict_utility(len(private), gaps, chosen=20.0)
    assert outside["chosen_epsilon"] is None
    assert max(row["epsilon"] for row in outside["curve"]) == 10.0


def test_the_parts_of_a_run_make_a_page(run):
    pairs, private, reward = run
    policy = optimistic_policy(reward, temperature=0.5, confidence=0.9)
    gaps = private.differences(reward.features)
    told = results.measure_confidence(policy, pairs)
    assert told["radius"] == pytest.approx(reward.ellipsoid.radius(0.9))
    assert (told["kind"], told["heuristic"], told["scale"]) == ("optimistic", False, 1.0)
    decisive = results.measure_decisive(reward, gaps, source="comparisons", most=4)
    assert decisive["features"] == 32
    assert len(decisive["rows"]) == 4
    fit = results.describe_fit_settings(reward, asked="debiased")
    assert fit["weight_standard_error"] == pytest.approx(float(np.median(reward.standard_errors)))
    summary = summarize(
        {
            **results.describe_guarantee_and_caveats(reward.guarantee),
            "data": {"pairs": len(private)},
            "reward": fit,
            "policy": {"pessimism": told},
            "decisive": decisive,
            "utility": results.predict_utility(len(private), gaps, chosen=2.0),
        }
    )
    for part in ("fit", "confidence", "decisive", "prediction"):
        assert summary[part], part


def test_examples_carry_the_policys_own_probabilities_and_no_label(run):
    pairs, _, reward = run
    policy = sordino.gibbs_policy(reward, temperature=0.5)
    found = results.measure_examples(policy, pairs, source="public")
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
    assert results.measure_examples(policy, flipped, source="public") == found


def test_pairs_of_features_have_no_examples(run):
    _, _, reward = run
    given = sordino.Pairs.from_features([[1.0, 0.5]] * 3, [0, 1, 1])
    policy = sordino.gibbs_policy(reward, temperature=0.5)
    assert results.measure_examples(policy, given, source="public") is None
