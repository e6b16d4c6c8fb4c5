"""What stands beside the weights of a checkpoint: a promise that cannot be misread."""

import json
import math
from dataclasses import replace

import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import sordino
from sordino.errors import DataError, FileSystemError, PrivacyError, UsageError
from sordino.language.models.promises import CheckpointPromise
from sordino.privacy.guarantee import CAVEATS
from sordino.privatization.answers import use_unprotected


@pytest.fixture
def promise(word_pairs, open_ledger):
    """Return the promise of a reward trained on randomized answers."""
    coin = sordino.RandomizedResponse(epsilon=1.0)
    pairs = sordino.privatize(word_pairs(20), coin, ledger=open_ledger(1.0), simulate_seed=1)
    return CheckpointPromise.of(pairs, kind="reward", loss="debiased", reward_bound=5.0)


def test_what_is_written_is_read_back(promise, tmp_path):
    promise.write(tmp_path, title="A reward")
    assert CheckpointPromise.read(tmp_path) == promise
    assert promise.guarantee.epsilon == 1.0
    assert len(promise.artifact) == 64
    assert promise.release_ids


def test_the_card_carries_promise_and_caveats(promise):
    yaml = pytest.importorskip("yaml")
    card = promise.card("A reward")
    front = yaml.safe_load(card.split("---")[1])
    assert front["privacy"]["epsilon"] == 1.0
    assert front["privacy"]["unit"] == "label"
    assert front["privacy"]["caveats"] == list(promise.guarantee.caveats)
    assert front["training"] == {"loss": "debiased", "reward_bound": 5.0}
    for name in promise.guarantee.caveats:
        assert f"- `{name}`: {CAVEATS[name]}" in card
    assert "**SIMULATED" in card


def test_the_card_of_a_real_release_has_no_banner_and_of_none_an_infinity(word_pairs, open_ledger):
    pairs = word_pairs(20)
    coin = sordino.RandomizedResponse(epsilon=1.0)
    real = sordino.privatize(pairs, coin, ledger=open_ledger(1.0))
    assert "SIMULATED" not in CheckpointPromise.of(real, kind="policy").card("A policy")
    raw = use_unprotected(pairs, sordino.NonPrivate(), ledger=open_ledger(math.inf))
    found = CheckpointPromise.of(raw, kind="policy")
    assert math.isinf(found.guarantee.epsilon)
    assert '"epsilon": "inf"' in found.card("A policy")


def test_a_promise_of_nothing_known_is_refused(promise):
    with pytest.raises(UsageError, match="kind"):
        CheckpointPromise(kind="judge", sources=promise.sources)


@pytest.mark.parametrize(
    "damage",
    [
        {"version": 99},
        {"format": "sordino.reward"},
        {"kind": "judge"},
        {"guarantee": {"epsilon": -1}},
        {"caveats": ["fine"]},
        {"training": 7},
        {"sources": None},
        {"sources": []},
        {
            "guarantee": {
                "epsilon": 0.01,
                "delta": 0.0,
                "unit": "label",
                "neighbors": "REPLACE_ONE",
                "trust": "central",
                "randomness": "simulated",
            }
        },
    ],
)
def test_a_damaged_promise_is_refused(promise, tmp_path, damage):
    promise.write(tmp_path, title="A reward")
    path = tmp_path / "sordino.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | damage))
    with pytest.raises(DataError, match="promise cannot be used"):
        CheckpointPromise.read(tmp_path)


def test_releases_add_up_and_each_counts_once(promise):
    """Three answers of one person to one question at ε = 1 each are worth ε = 3, not 1."""
    (source,) = promise.sources
    others = [replace(source, release_ids=(), artifact=letter * 64) for letter in "ab"]
    three = replace(promise, sources=(source, *others, source))
    assert len(three.sources) == 3
    assert three.guarantee.epsilon == pytest.approx(3 * promise.guarantee.epsilon)
    assert three.with_those_of(promise, three) == three
    assert promise.with_those_of(three).guarantee == three.guarantee
    assert set(source.release_ids) < set(three.release_ids), "and two that no ledger knows"
    assert len(three.release_ids) == len(source.release_ids) + 2


def test_what_no_one_promise_covers_is_refused(promise):
    (source,) = promise.sources
    person = replace(source.guarantee, unit="person", caveats=("labels-only",))
    with pytest.raises(PrivacyError, match="cannot be composed"):
        replace(promise, sources=(source, replace(source, guarantee=person)))


def test_a_missing_promise_is_told_from_a_damaged_one(tmp_path):
    with pytest.raises(FileSystemError):
        CheckpointPromise.read(tmp_path)
    (tmp_path / "sordino.json").write_text("{")
    with pytest.raises(DataError):
        CheckpointPromise.read(tmp_path)
