"""What a reward of central privacy shows, carries, and lets a third party do with its file."""

import copy
import json
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
from tests.tiers import few

import sordino
from sordino.rewards.confidence import least_ridge

DELTA = 1e-6
BALL = 0.5

PHRASE = "the kestrel counts in sevens"


def secret_pairs(n=24):
    return sordino.read_pairs(
        [
            {"prompt": f"{PHRASE} {i}", "chosen": f"yes {i} {PHRASE}", "rejected": f"no {i}?"}
            for i in range(n)
        ]
    )


def joint_noise(d):
    """Return both mechanisms, their ridge large enough for a confidence set."""
    settings = {"delta": DELTA, "bound": 2.0, "neighbors": sordino.ADD_OR_REMOVE_ONE}
    ridge = least_ridge(sordino.joint_mechanisms(8.0, **settings)[1], d=d, ball=BALL)
    return sordino.joint_mechanisms(8.0, ridge=1.01 * ridge, **settings)


def fitted(path, mechanism, unit, neighbors, **settings):
    budget = sordino.Guarantee(8.0, delta=DELTA, unit=unit, neighbors=neighbors, trust="central")
    ledger = sordino.Ledger.open(path / f"{unit}.db", data="test", budget=budget)
    given = {"features": sordino.HashedText(dimension=4), "ball": BALL} | settings
    return sordino.fit_reward(secret_pairs(), mechanism=mechanism, ledger=ledger, **given)


@pytest.fixture(name="rewards")
def _rewards(tmp_path):
    """Return rewards of both kinds on texts that nobody may see, with confidence sets."""
    labels = sordino.LabelGaussian(8.0, delta=DELTA)
    records, moment = joint_noise(4)
    added = sordino.ADD_OR_REMOVE_ONE
    return {
        "label": fitted(tmp_path, labels, "label", sordino.REPLACE_ONE),
        "record": fitted(tmp_path, records, "record", added, second_moment=moment),
    }


@pytest.mark.parametrize("kind", ["label", "record"])
def test_a_reward_shows_and_carries_no_raw_data(rewards, kind):
    """Neither a text nor the vector of a pair is in what is printed, pickled, copied or saved."""
    found, pairs = rewards[kind], secret_pairs()
    rows = pairs.differences(found.features).toarray()
    pickled = pickle.dumps(found)
    for stored in (pickled, json.dumps(found.to_dict()).encode(), repr(found).encode()):
        assert PHRASE.encode() not in stored
        assert not any(row.tobytes() in stored for row in rows)
        assert not any(b"%r" % float(row[0]) in stored for row in rows)
    for again in (pickle.loads(pickled), copy.deepcopy(found)):  # noqa: S301 (our own bytes)
        assert again.to_dict() == found.to_dict()
    assert not re.search(r"\d\.\d{5}", repr(found) + repr(found.ellipsoid) + repr(found.moment))


def test_what_is_on_the_way_to_a_release_prints_its_size_only():
    rows = np.random.default_rng(0).normal(size=(30, 3))
    design = sordino.LabelGaussian(1.0, delta=DELTA).prepare(rows)
    for thing in (design, design.ellipsoid):
        assert "array" not in repr(thing)
    assert repr(design).endswith("n=30, rank=3)")
    assert repr(design.ellipsoid) == "Ellipsoid(rank=3, d=3)"


def _system():
    from sordino._random import entropy

    return entropy(None)


THIRD_PARTY = """
import json, sys
import sordino
reward = sordino.RewardModel.load(sys.argv[1])
asked = ["Is it hard to grow tomatoes indoors?"]
candidates = [["Not at all.", "First gather what you need, then begin.", "Perhaps?"]]
policy = sordino.pessimistic_policy(reward, temperature=0.5, confidence=0.9)
told = {
    "kind": type(reward.ellipsoid).__name__,
    "radius": reward.ellipsoid.radius(0.9),
    "moment": None if reward.moment is None else reward.moment.matrix.tolist(),
    "probabilities": policy.probabilities(asked, candidates)[0].tolist(),
    "scores": reward.score(asked * 3, candidates[0]).tolist(),
    "file": reward.to_dict(),
}
print(json.dumps(told))
"""


@pytest.mark.parametrize("kind", few(["label", "record"], first=1))
def test_a_third_party_plans_with_the_file_alone(rewards, tmp_path, kind):
    """In a fresh process: the same set, moment, scores and pessimistic choice."""
    found, path = rewards[kind], tmp_path / "reward.json"
    found.save(path)
    run = subprocess.run(
        [sys.executable, "-c", THIRD_PARTY, str(path)],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    told = json.loads(run.stdout)
    assert told["kind"] == {"label": "ConfidenceEllipsoid", "record": "RecordEllipsoid"}[kind]
    assert told["file"] == json.loads(path.read_text(encoding="utf-8"))
    assert told["radius"] == found.ellipsoid.radius(0.9)
    assert told["moment"] == (None if kind == "label" else found.moment.matrix.tolist())
    asked = ["Is it hard to grow tomatoes indoors?"]
    candidates = [["Not at all.", "First gather what you need, then begin.", "Perhaps?"]]
    policy = sordino.pessimistic_policy(found, temperature=0.5, confidence=0.9)
    np.testing.assert_allclose(
        told["probabilities"], policy.probabilities(asked, candidates)[0], rtol=1e-12
    )
    np.testing.assert_allclose(told["scores"], found.score(asked * 3, candidates[0]), rtol=1e-12)
    trusting = sordino.gibbs_policy(found, temperature=0.5).probabilities(asked, candidates)[0]
    assert np.abs(trusting - told["probabilities"]).max() > 1e-3  # the set has changed something
