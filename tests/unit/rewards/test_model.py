from __future__ import annotations

import json

import numpy as np
import pytest

import sordino
from sordino.rewards.model import RewardModel


@pytest.fixture
def reward(budget) -> RewardModel:
    return RewardModel(
        weights=np.linspace(-1, 1, 16) ** 3,
        features=sordino.HashedText(dimension=16),
        guarantee=budget(1.5).with_caveats("randomized-at-ingestion"),
        ridge=0.25,
        ball=100.0,
        gradient_norm=1e-7,
        atol=1e-5,
        pairs=12,
        release_ids=("ab",),
        artifact="cd",
    )


def test_a_saved_reward_comes_back_the_same(reward, tmp_path):
    reward.save(tmp_path / "reward.json")
    back = RewardModel.load(tmp_path / "reward.json")
    np.testing.assert_array_equal(back.weights, reward.weights)
    assert back.to_dict() == reward.to_dict()
    assert back.guarantee == reward.guarantee
    np.testing.assert_array_equal(
        back.score(["p"], ["Some answer."]), reward.score(["p"], ["Some answer."])
    )


def test_a_reward_is_not_overwritten_unless_asked(reward, tmp_path):
    reward.save(tmp_path / "reward.json")
    with pytest.raises(sordino.UsageError, match="exists already"):
        reward.save(tmp_path / "reward.json")
    reward.save(tmp_path / "reward.json", force=True)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 99},
        {"format": "other"},
        {"weights": None},
        {"weights": [[1.0]]},
        {"weights": [float("inf")] * 16},
        {"weights": [10**400] * 16},
        {"standard_errors": [10**400] * 16},
        {"guarantee": {}},
        {"features": {"kind": "unknown"}},
    ],
)
def test_a_malformed_reward_is_refused(reward, tmp_path, change):
    path = tmp_path / "reward.json"
    path.write_text(json.dumps(reward.to_dict() | change))
    with pytest.raises(sordino.SordinoError):
        RewardModel.load(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": "sordino.reward"}'])
def test_what_is_no_reward_is_refused(tmp_path, text):
    path = tmp_path / "reward.json"
    path.write_text(text)
    with pytest.raises(sordino.DataError, match=r"reward\.json"):
        RewardModel.load(path)


def test_a_reward_of_ones_own_function_needs_it_back(budget, tmp_path):
    def lengths(prompts, answers):
        return np.array([[len(answer) / 100] for answer in answers])

    features = sordino.FunctionFeatures(lengths, dimension=1, feature_bound=1.0, name="length")
    reward = RewardModel(
        weights=np.array([2.0]), features=features, guarantee=budget(1.0), ridge=1.0,
        ball=1.0, gradient_norm=0.0, atol=1.0, pairs=1,
    )  # fmt: skip
    reward.save(tmp_path / "reward.json")
    back = RewardModel.load(tmp_path / "reward.json", features=features)
    assert back.score(["p"], ["x" * 50])[0] == pytest.approx(1.0)
    with pytest.raises(sordino.UsageError):
        RewardModel.load(tmp_path / "reward.json")
    assert "RewardModel(d=1" in repr(back)


def test_a_reward_fitted_on_differences_reads_no_texts(budget):
    reward = RewardModel(
        weights=np.ones(2), features=None, guarantee=budget(1.0), ridge=1.0, ball=1.0,
        gradient_norm=0.0, atol=1.0, pairs=1,
    )  # fmt: skip
    with pytest.raises(sordino.UsageError, match="score_features"):
        reward.score(["p"], ["a"])
    assert reward.score_features(np.eye(2)).tolist() == [1.0, 1.0]
    assert reward.score_features([[1.0, 0.0]]).tolist() == [1.0]
    for rows in ([[np.nan, 0.0]], [["1", "0"]], [[1.0, 0.0], [1.0]], [1.0, 0.0], [[1.0]]):
        with pytest.raises(sordino.DataError, match="rows must"):
            reward.score_features(rows)
