"""Sentence embeddings through the main flow: fit, choose, save, and load somewhere else."""

import json

import numpy as np
import pytest

import sordino
from sordino.errors import DataError, UsageError
from sordino.language import SentenceEmbeddings
from sordino.preferences.features import differences, features_from_dict
from sordino.rewards.model import RewardModel

GOOD = "first mix flour and water , then wait ."
BAD = "no no no ! i do not know {} ?"
QUESTION = "how do i bake rye bread {} ?"


@pytest.fixture
def reward(features, open_ledger):
    """A reward of 300 judgments, of which an honest 90 % prefer the good answer."""
    rows = [
        {
            "prompt": QUESTION.format(i),
            "first": GOOD,
            "second": BAD.format(i),
            "label": int(i % 10 != 0),
        }
        for i in range(300)
    ]
    pairs = sordino.read_pairs(rows)
    private = sordino.privatize(
        pairs, sordino.RandomizedResponse(epsilon=4.0), ledger=open_ledger(4.0)
    )
    return sordino.fit_reward(private, features=features)


def test_a_reward_is_learned_and_used(reward):
    """The label is right 9 of 10 times and kept with .982: 300 answers tell (chance of a wrong
    sign, by Hoeffding, below 1e-30)."""
    prompt = [QUESTION.format("now")]
    assert reward.predict_proba(prompt, [GOOD], [BAD.format("now")])[0] > 0.5
    policy = sordino.gibbs_policy(reward, temperature=0.1)
    chances = policy.probabilities(prompt, [[BAD.format("now"), GOOD]])[0]
    assert chances[1] > chances[0]


def test_a_pessimistic_policy_chooses_among_texts(reward):
    if reward.ellipsoid is None:
        pytest.skip("this fit states no ellipsoid")
    from sordino.policies.pessimism import pessimistic_policy

    policy = pessimistic_policy(reward, temperature=0.5, confidence=0.95)
    chances = policy.probabilities([QUESTION.format("now")], [[GOOD, BAD.format("now"), "yes"]])[0]
    assert np.isclose(sum(chances), 1)


def test_differences_are_bounded_and_change_sign(features):
    prompts, first, second = ["what", "how"], ["yes", "no !"], ["a piece .", "no !"]
    forth = differences(features, prompts, first, second)
    back = differences(features, prompts, second, first)
    np.testing.assert_allclose(forth, -back, atol=1e-6)
    assert (np.linalg.norm(forth, axis=1) <= 2 * features.feature_bound).all()
    assert np.linalg.norm(forth[0]) > 0.1
    assert not forth[1].any(), "equal answers differ in nothing, to the last bit"
    rows = [features.transform(prompts, answers) for answers in (first, second)]
    np.testing.assert_allclose(forth, rows[0] - rows[1], atol=1e-5)


def test_many_differences_embed_each_text_once(features, monkeypatch):
    read, encode = [], features._model.encode

    def spy(texts, **named):
        read.extend(texts)
        return encode(texts, **named)

    monkeypatch.setattr(features._model, "encode", spy)
    n = 10_000
    answers = [f"yes {i % 50}" for i in range(n)]
    rows = differences(features, ["what"] * n, answers, answers[1:] + answers[:1])
    assert rows.shape == (n, features.dimension)
    assert sorted(read) == sorted({"what", *answers})


def test_a_saved_reward_knows_the_model_and_not_its_place(reward, shared_model, tmp_path):
    reward.save(tmp_path / "reward.json")
    text = (tmp_path / "reward.json").read_text()
    assert str(shared_model.parent) not in text
    stored = json.loads(text)["features"]
    assert stored["name"] == "tiny"
    assert len(stored["digest"]) == 64


def test_a_saved_reward_is_used_with_the_model_in_another_folder(reward, tiny, tmp_path):
    reward.save(tmp_path / "reward.json")
    elsewhere = tiny.rename(tiny.parent / "renamed")
    features = SentenceEmbeddings(elsewhere, device="cpu")
    loaded = RewardModel.load(tmp_path / "reward.json", features=features)
    prompts, answers = [QUESTION.format(1), "what ?"], [GOOD, "a piece ."]
    np.testing.assert_array_equal(loaded.score(prompts, answers), reward.score(prompts, answers))


def test_another_model_is_refused(reward, tiny, tmp_path):
    config = tiny / "config.json"
    config.write_text(config.read_text().replace("1e-12", "1e-5"))
    other = SentenceEmbeddings(tiny, device="cpu")
    reward.save(tmp_path / "reward.json")
    with pytest.raises(DataError, match="digest would differ"):
        RewardModel.load(tmp_path / "reward.json", features=other)


@pytest.mark.parametrize(
    "setting", [{"feature_bound": 2.0}, {"embedding_norm": 0.25}, {"with_shape": False}]
)
def test_other_settings_are_refused(features, shared_model, setting):
    other = SentenceEmbeddings(shared_model, **{"device": "cpu"} | setting)
    with pytest.raises(DataError, match=next(iter(setting))):
        features_from_dict(features.to_dict(), features=other)


def test_speed_and_device_are_no_part_of_the_map(features, shared_model):
    other = SentenceEmbeddings(shared_model, device="cpu", batch_size=1, name="mine")
    assert features_from_dict(features.to_dict(), features=other) is other


def test_without_the_model_the_way_out_is_said(features):
    with pytest.raises(UsageError, match=r"sordino\.language\.SentenceEmbeddings"):
        features_from_dict(features.to_dict())


def test_only_feature_maps_of_the_same_kind_are_taken(features):
    settings = features.to_dict()
    with pytest.raises(UsageError, match="must be a feature map, got str"):
        features_from_dict(settings, features="tiny")
    with pytest.raises(DataError, match="kind"):
        features_from_dict(settings, features=sordino.HashedText(dimension=45))
    with pytest.raises(DataError, match="would differ"):
        features_from_dict(settings | {"more": 1}, features=features)
    hashed = sordino.HashedText(dimension=64)
    assert features_from_dict(hashed.to_dict(), features=hashed) is hashed
