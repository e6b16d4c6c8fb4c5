"""Worths of items: centered, best first, with what is known of them; and their files."""

import json

import numpy as np
import pytest

import sordino
from sordino.rewards.model import RewardModel, best_first, centered_weights, item_rows

ITEMS = ("ale", "beer", "tea")
ENDS = np.array([[0.0, 1.0], [-2.0, -0.5], [0.5, 0.5]])


@pytest.fixture(name="model")
def _model(budget):
    def make(**settings):
        given = {"weights": np.array([0.5, -1.0, 0.5]), "features": None, "items": ITEMS}
        plain = {"ridge": 1.0, "ball": 9.0, "gradient_norm": 0.0, "atol": 1e-5, "pairs": 7}
        return RewardModel(guarantee=budget(1.0), **(plain | given | settings))

    return make


def test_worths_are_centered_and_the_best_stands_first():
    ends = np.array([[-2.0, 1.0], [1.0, 3.0], [-1.5, 0.0]])
    found = best_first(ITEMS, np.array([1.0, 4.0, 1.0]), ends, ())
    assert [name for name, *_ in found] == ["beer", "ale", "tea"]  # equals keep their order
    assert found[0] == ("beer", 2.0, 1.0, 3.0)
    assert best_first(ITEMS, np.zeros(3), None, ())[0] == ("ale", 0.0, None, None)


def test_items_that_nobody_was_offered_are_not_ranked():
    ends = np.array([[-2.0, 1.0], [-1.5, 2.0]])
    found = best_first(ITEMS, np.array([-1.0, 0.0, 1.0]), ends, ("beer",))
    assert found == [
        ("tea", 1.0, -1.5, 2.0), ("ale", -1.0, -2.0, 1.0), ("beer", None, None, None)
    ]  # fmt: skip


def test_weights_are_centered_where_they_are_worths():
    theta = np.array([1.0, 2.0, 6.0])
    assert centered_weights(theta, np.ones(3, dtype=bool)).tolist() == [-2.0, -1.0, 3.0]
    assert centered_weights(theta, np.array([True, False, True])).tolist() == [-2.5, 0.0, 2.5]
    assert centered_weights(theta, None).tolist() == theta.tolist()


def test_items_with_texts_are_read_with_the_features():
    features = sordino.HashedText(dimension=16)
    rows = item_rows(ITEMS, features, None)
    assert rows.tolist() == features.transform([""] * 3, ITEMS).toarray().tolist()
    assert item_rows(ITEMS, None, None) is None
    assert item_rows(None, features, None) is None


def test_a_model_of_items_survives_its_file(model, tmp_path):
    made = {
        "plain": model(worth_intervals=ENDS),
        "part": model(worth_intervals=ENDS[:2], unoffered=("beer",)),
        "given": model(
            weights=np.array([1.0, 2.0]),
            item_features=np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 1.0]]),
        ),
        "texts": model(weights=np.ones(16), features=sordino.HashedText(dimension=16)),
    }
    for name, reward in made.items():
        reward.save(tmp_path / name)
        back = RewardModel.load(tmp_path / name)
        assert back.to_dict() == reward.to_dict()
        assert back.worths() == reward.worths()
        assert sum(worth or 0.0 for _, worth, *_ in back.worths()) == pytest.approx(0.0, abs=1e-12)
    scores = {name: worth for name, worth, *_ in made["given"].worths()}
    assert scores == pytest.approx({"ale": -5 / 3, "beer": -2 / 3, "tea": 7 / 3})


def test_a_reward_without_items_has_no_worths_and_no_keys_of_them(model):
    reward = model(items=None)
    assert "items" not in reward.to_dict()
    with pytest.raises(sordino.UsageError, match="items are needed"):
        reward.worths()


@pytest.mark.parametrize(
    "change",
    [
        {"items": ["ale", "beer"]},
        {"items": ["ale", "beer", "beer"]},
        {"items": "ale"},
        {"items": None},
        {"worth_intervals": [1.0]},
        {"worth_intervals": [[0.0, 1.0]] * 2},
        {"worth_intervals": [[0.0, 1.0]] * 2 + [[1.0, 0.0]]},
        {"worth_intervals": [[0.0, 1.0]] * 2 + [[0.0, float("inf")]]},
        {"unoffered": ["ale"]},
        {"unoffered": ["wine"], "worth_intervals": None},
        {"unoffered": ["ale", "ale"], "worth_intervals": None},
        {"unoffered": list(ITEMS), "worth_intervals": None},
        {"item_features": [[1.0, 2.0, 3.0]]},
        {"item_features": [[1.0], [2.0], [3.0]]},
    ],
)
def test_a_file_whose_items_do_not_fit_is_refused(model, tmp_path, change):
    values = model(worth_intervals=ENDS).to_dict() | change
    path = tmp_path / "reward.json"
    path.write_text(json.dumps(values))
    with pytest.raises(sordino.DataError):
        RewardModel.load(path)
