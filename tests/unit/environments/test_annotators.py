from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import expit

import sordino
from sordino.environments.annotators import TrueReward, simulate_battles, simulate_pairs


def test_the_same_seed_gives_the_same_world():
    one, other = (list(simulate_pairs(50, seed=7)[0]) for _ in range(2))
    assert one == other
    assert one != list(simulate_pairs(50, seed=8)[0])


def test_people_follow_the_known_reward_with_bradley_terry_noise():
    # Calibration over 5,000 pairs: |z| < 4.5 in each half has false alarm 1e-5; choosing at
    # random or always the better answer is off by more than 10 standard errors.
    rows, truth = simulate_pairs(5_000, seed=1)
    rows = list(rows)
    gap = truth.score([r["chosen"] for r in rows]) - truth.score([r["rejected"] for r in rows])
    sizes = abs(gap)
    for part in (sizes <= np.median(sizes), sizes > np.median(sizes)):
        p = expit(sizes[part])
        hits = np.where(gap[part] == 0, p, gap[part] > 0)
        error = np.sqrt((p * (1 - p)).sum())
        assert abs(hits.sum() - p.sum()) < 4.5 * error
    assert sizes.mean() > 0.5


def test_answers_of_a_pair_differ_and_people_are_spread():
    rows = list(simulate_pairs(60, seed=0, people=7)[0])
    assert all(row["chosen"] != row["rejected"] for row in rows)
    assert {row["person"] for row in rows} == {f"p{i}" for i in range(7)}
    assert "person" not in next(simulate_pairs(1, seed=0)[0])


@pytest.mark.parametrize(("n", "people"), [(0, None), (-1, None), (2.5, None), (3, 0)])
def test_sizes_are_whole_numbers_of_at_least_one(n, people):
    with pytest.raises(sordino.UsageError, match="at least 1"):
        simulate_pairs(n, seed=0, people=people)


def test_a_truth_comes_back_from_its_file_and_a_malformed_one_is_refused(tmp_path):
    truth = TrueReward({"then": 0.4})
    path = tmp_path / "truth.json"
    path.write_text(json.dumps(truth.to_dict()))
    assert TrueReward.load(path) == truth
    for weights in (None, [1], {"then": "much"}):
        path.write_text(json.dumps(truth.to_dict() | {"weights": weights}))
        with pytest.raises(sordino.DataError, match="weights"):
            TrueReward.load(path)


def test_chat_messages_are_scored_by_their_content():
    assert TrueReward({"then": 0.4}).score(
        [[{"role": "assistant", "content": "Then rest, then go."}]]
    ) == pytest.approx([0.8])


def test_battles_follow_the_known_ratings_by_davidsons_model():
    # |z| < 4.5 for wins less losses, by the sign of the gap, and for ties: false alarm below 1e-4.
    rows, ratings = simulate_battles(5_000, seed=2, items=6, people=50, ties=0.3)
    rows = list(rows)
    assert rows == list(simulate_battles(5_000, seed=2, items=6, people=50, ties=0.3)[0])
    gap = np.array([ratings[row["model_a"]] - ratings[row["model_b"]] for row in rows])
    odds = np.stack([np.exp(gap / 2), np.full(len(gap), 2 * 0.3 / 0.7), np.exp(-gap / 2)])
    win, tie, loss = odds / odds.sum(axis=0)
    words = np.array([row["winner"] for row in rows])
    score = (1.0 * (words == "model_a") - (words == "model_b")) * np.sign(gap)
    mean, square = (win - loss) * np.sign(gap), win + loss
    assert abs((score - mean).sum()) < 4.5 * np.sqrt((square - mean**2).sum())
    assert abs(((words == "tie") - tie).sum()) < 4.5 * np.sqrt((tie * (1 - tie)).sum())
    assert abs(sum(ratings.values())) < 1e-9
    assert len({row["person"] for row in rows}) == 50
    assert len({row["question_id"] for row in rows}) == len(rows)


@pytest.mark.parametrize("world", [{"items": 1}, {"n": 0}, {"ties": 1.0}, {"spread": 0}])
def test_no_world_of_battles_is_out_of_range(world):
    with pytest.raises(sordino.UsageError):
        simulate_battles(**{"n": 3, "seed": 0} | world)
