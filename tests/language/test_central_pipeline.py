"""One call for each stage on raw pairs: what is written, what it cost, and what is not told."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from safetensors.numpy import load_file

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import sordino
from sordino.errors import BudgetExceeded, DataError, PrivacyError, UsageError
from sordino.language.dp_sgd.privacy import CentralPrivacy
from sordino.language.models.promises import CheckpointPromise, folder_promises
from sordino.language.rewards.text_rewards import TextRewardModel
from sordino.language.studies.comparison import FULL, QUICK
from sordino.language.studies.pipeline import (
    TRAINING_LOG,
    refuse_unusable,
    train_centrally,
)
from sordino.language.training.settings import TrainingTerms
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE
from sordino.privacy.ledger import Ledger
from sordino.privatization.answers import privatize

from .conftest import true_reward

FAST = TrainingTerms(learning_rate=5e-3, log_every=1)


def privacy(epsilon=4.0, **changed):
    usual = {"sampling_probability": 0.25, "steps": 4, "expected_batch": 10}
    return CentralPrivacy(
        epsilon, 1e-5, unit="record", neighbors=ADD_OR_REMOVE_ONE, **{**usual, **changed}
    )


STAGES = {kind: partial(train_centrally, kind) for kind in ("reward", "policy")}


@pytest.mark.parametrize("kind", STAGES)
def test_a_checkpoint_carries_what_its_entries_promise(
    kind, word_pairs, tiny_llama, ledger_of, tmp_path
):
    ledger, seen, terms = ledger_of(), [], replace(FAST, lora=2)
    log = STAGES[kind](
        word_pairs(40), tiny_llama, tmp_path / "m", terms, privacy=privacy(), ledger=ledger,
        progress=lambda *at: seen.append(at),
    )  # fmt: skip
    assert seen[-1] == (4, 4)
    promise = CheckpointPromise.read(tmp_path / "m")
    assert promise.kind == kind
    assert promise.release_ids == tuple(row.release_id for row in ledger.spends)
    told = promise.guarantee
    assert (told.unit, told.neighbors, told.trust) == ("record", ADD_OR_REMOVE_ONE, "central")
    assert 3.99 < told.epsilon <= 4.0
    assert folder_promises(tmp_path / "m")[0].guarantee == told  # the weights say it as well
    assert json.loads((tmp_path / "m" / TRAINING_LOG).read_text()) == log
    assert {name for row in log for name in row} == {"learning_rate", "epsilon", "epoch", "step"}
    assert not list((tmp_path / "m").rglob("training_args.bin"))
    assert not list((tmp_path / "m").rglob("adapter*"))  # they are merged


@pytest.mark.deep
@pytest.mark.parametrize("kind", STAGES)
def test_a_run_goes_on_from_its_last_checkpoint(kind, word_pairs, tiny_llama, ledger_of, tmp_path):
    """Killed after three steps of four, it has two in a checkpoint and pays twice for the rest."""
    ledger, place = ledger_of(), tmp_path / "m"
    given = {"privacy": privacy(), "ledger": ledger, "simulate_seed": 1, "save_every": 2}

    def stop(step, _):
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        STAGES[kind](word_pairs(40), tiny_llama, place, FAST, progress=stop, **given)
    assert len(ledger.spends) == 2
    log = STAGES[kind](word_pairs(40), tiny_llama, place, FAST, resume=True, **given)
    assert [row["step"] for row in log] == [1, 2, 3, 4]
    paid = Ledger.read(ledger.path).spends
    assert len(paid) == 3
    promise = CheckpointPromise.read(place)
    assert len(promise.release_ids) == 3
    assert promise.guarantee.epsilon > 4.0
    whole = {**given, "ledger": ledger_of(), "save_every": None}
    STAGES[kind](word_pairs(40), tiny_llama, tmp_path / "w", FAST, **whole)
    ours, theirs = (load_file(at / "model.safetensors") for at in (place, tmp_path / "w"))
    assert all(np.allclose(ours[name], theirs[name], atol=1e-5) for name in theirs)


@pytest.mark.deep
def test_a_reward_learns_what_people_like(word_pairs, tiny_llama, ledger_of, tmp_path):
    """Of other pairs too. Noise is small at this epsilon, and the seed is fixed."""
    terms = privacy(1000.0, sampling_probability=0.2, steps=30, expected_batch=60)
    STAGES["reward"](
        word_pairs(300), tiny_llama, tmp_path / "r", FAST, privacy=terms,
        ledger=ledger_of(2000.0), simulate_seed=3,
    )  # fmt: skip
    others, reward = word_pairs(200, seed=5), TextRewardModel.load(tmp_path / "r")
    scores = [reward.score(others.prompts, texts) for texts in (others.first, others.second)]
    true = [[true_reward(text) for text in texts] for texts in (others.first, others.second)]
    found, right = np.sign(np.subtract(*scores)), np.sign(np.subtract(*true))
    assert (found == right)[right != 0].mean() > 0.7  # 143 pairs; of coins, .5 ± .042
    assert "simulated" in reward.guarantee.caveats


def test_a_budget_that_is_too_small_is_met_before_anything_is_drawn(
    word_pairs, tiny_llama, ledger_of, tmp_path
):
    ledger = ledger_of(3.0)
    with pytest.raises(BudgetExceeded):
        STAGES["policy"](
            word_pairs(20), tiny_llama, tmp_path / "m", FAST, privacy=privacy(), ledger=ledger
        )
    assert not ledger.spends
    assert not list((tmp_path / "m").iterdir())


def test_what_training_would_refuse_is_refused_beforehand(word_pairs, tiny_llama, tmp_path):
    pairs = word_pairs(20)
    refuse_unusable(pairs, tiny_llama, FAST, privacy(), writes=True)
    with pytest.raises(DataError, match="which one is not said"):
        refuse_unusable(pairs, tiny_llama, replace(FAST, max_length=6), privacy())
    people = CentralPrivacy(
        4.0, 1e-5, unit="person", neighbors=ADD_OR_REMOVE_ONE, cap=2, sampling_probability=0.5,
        steps=2, expected_batch=2,
    )  # fmt: skip
    with pytest.raises(PrivacyError, match="person ids"):
        refuse_unusable(pairs, tiny_llama, FAST, people)
    budget = sordino.Guarantee(
        2.0, delta=0.0, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    ledger = sordino.Ledger.open(tmp_path / "spend.db", data="words", budget=budget)
    private = privatize(pairs, sordino.RandomizedResponse(2.0), ledger=ledger)
    with pytest.raises(UsageError, match="randomized already"):
        refuse_unusable(private, tiny_llama, FAST, privacy())


def test_sizes_of_central_rows_are_public_and_whole():
    for sizes in (QUICK, FULL):
        central = sizes.central
        assert central.terms.overlong == sizes.dpo.overlong == "drop"  # one check for both
        assert sizes.to_dict()["central"]["steps"] == central.steps
        given = sizes.for_checkpoint().central
        assert given.terms.learning_rate < central.terms.learning_rate
        assert given.steps == central.steps
