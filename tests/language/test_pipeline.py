"""One call for each stage: what is read, what is written, and that the promise goes along."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import sordino
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.language.judging import RewardJudge, compare_policies
from sordino.language.models.promises import CheckpointPromise, folder_promises
from sordino.language.references.tiny import TinyModel
from sordino.language.rewards.text_rewards import TextRewardModel
from sordino.language.studies.comparison_table import (
    part_of_answers,
    split_by_prompt,
    unique_prompts,
)
from sordino.language.studies.pipeline import (
    TRAINING_LOG,
    build_reference,
    count_fitting,
    improve_policy,
    train_policy,
    train_reward,
)
from sordino.language.training.settings import PolicyTerms, TrainingTerms
from sordino.privatization.answers import privatize, use_unprotected

from .conftest import true_reward

FAST = TrainingTerms(epochs=3, learning_rate=5e-3, log_every=5)


@pytest.fixture(scope="module")
def answers(word_pairs, tmp_path_factory):
    """Return a maker of randomized answers to word pairs."""

    def make(n=240, *, epsilon=4.0, seed=0):
        budget = sordino.Guarantee(
            epsilon, delta=0.0, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
        )
        path = tmp_path_factory.mktemp("ledger") / "spend.db"
        ledger = sordino.Ledger.open(path, data="words", budget=budget)
        coin = sordino.RandomizedResponse(epsilon)
        return privatize(word_pairs(n, seed=seed), coin, ledger=ledger, simulate_seed=seed)

    return make


@pytest.fixture(scope="module")
def trained(answers, tiny_llama, tmp_path_factory):
    """Return the folder of a reward, its log and the answers behind it."""
    folder, private = tmp_path_factory.mktemp("made") / "reward", answers()
    seen = []
    log = train_reward(private, tiny_llama, folder, FAST, progress=lambda *at: seen.append(at))
    assert seen[-1] == (45, 45)
    return folder, log, private


# --- parts ---


def test_parts_share_no_prompt_and_do_not_depend_on_labels(word_pairs):
    pairs = word_pairs(300)
    varied = replace(pairs, prompts=tuple(f"{p} {i % 90}" for i, p in enumerate(pairs.prompts)))
    parts = split_by_prompt(varied)
    assert sorted([row for part in parts for row in part]) == list(range(300))
    asked = [{varied.prompts[row] for row in part} for part in parts]
    assert sum(map(len, asked)) == len(set.union(*asked))
    assert 0.3 < len(parts.judge) / 300 < 0.7
    assert split_by_prompt(replace(varied, labels=1 - varied.labels)) == parts
    assert split_by_prompt(varied, judge=0.0).judge == []
    assert parts.learned == sorted([*parts.training, *parts.held_out])


def test_a_part_that_would_be_empty_is_refused(word_pairs):
    with pytest.raises(DataError, match="too few prompts"):
        split_by_prompt(word_pairs(2))
    with pytest.raises(UsageError, match="below 1"):
        split_by_prompt(word_pairs(50), judge=0.9, held_out=0.1)
    vectors = sordino.Pairs.from_features([[1.0], [2.0]], [1, 0])
    with pytest.raises(DataError, match="feature vectors"):
        split_by_prompt(vectors)


def test_a_part_of_released_answers_keeps_their_promise(answers):
    private = answers(40)
    part = part_of_answers(private, [3, 5, 39])
    assert part.answers.tolist() == private.answers[[3, 5, 39]].tolist()
    assert part.prompts == tuple(private.prompts[row] for row in (3, 5, 39))
    assert (part.guarantee, part.release_ids) == (private.guarantee, private.release_ids)
    assert part.artifact == private.artifact
    assert part.public_digest != private.public_digest


def test_prompts_are_used_once():
    chat = [{"role": "user", "content": "a"}]
    assert unique_prompts(["a", "b", "a", chat, list(chat)]) == ["a", "b", chat]


# --- the reference ---


def test_the_reference_is_a_function_of_texts_alone(word_pairs, tmp_path):
    pairs = word_pairs(60)
    size = TinyModel(vocabulary=300, width=16, layers=1, heads=2, context=48)
    losses = build_reference(pairs, size, tmp_path / "a", steps=20)
    turned = replace(pairs, labels=1 - pairs.labels)
    assert build_reference(turned, size, tmp_path / "b", steps=20) == losses
    assert losses[-1] < losses[0]
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


# --- rewards ---


def test_a_reward_learns_and_carries_the_promise(trained):
    folder, log, private = trained
    reward = TextRewardModel.load(folder)
    assert reward.guarantee == private.guarantee
    assert reward.release_ids == private.release_ids
    assert reward.artifact == private.artifact
    texts = ["kind clear useful warm", "the answer is about bread", "rude vague wrong cold"]
    scores = reward.score(["tell me about bread"] * 3, texts)
    assert [true_reward(text) for text in texts] == [2.0, 0.0, -2.0]
    assert scores[0] > scores[1] > scores[2], scores
    assert json.loads((folder / TRAINING_LOG).read_text()) == log
    assert log[-1]["step"] == 45
    assert not any("runtime" in name or "second" in name for row in log for name in row)


def test_a_reward_says_how_far_it_may_be_trusted_if_asked(trained, answers, tiny_llama, tmp_path):
    assert TextRewardModel.load(trained[0]).uncertainty is not None
    few = replace(FAST, epochs=0.2)
    train_reward(answers(40), tiny_llama, tmp_path / "plain", few, uncertain=False)
    assert TextRewardModel.load(tmp_path / "plain").uncertainty is None


def test_held_out_answers_are_measured_as_training_goes(answers, tiny_gpt2, tmp_path):
    private = answers(120)
    rows = range(120)
    training = part_of_answers(private, [row for row in rows if row % 5])
    held_out = part_of_answers(private, [row for row in rows if not row % 5])
    log = train_reward(
        training, tiny_gpt2, tmp_path / "r", replace(FAST, log_every=3), held_out=held_out
    )
    measured = [row for row in log if "eval_accuracy" in row]
    assert len(measured) >= 5
    assert all(np.isfinite(row["eval_loss"]) for row in measured)
    assert CheckpointPromise.read(tmp_path / "r").guarantee == private.guarantee  # counted once


def test_epochs_of_the_head_come_before_the_others(answers, tiny_llama, tmp_path):
    """One of each is two passes, and the body learns in the second."""
    head_first = replace(FAST, epochs=1, head_epochs=1, log_every=1)
    log = train_reward(answers(32), tiny_llama, tmp_path / "r", head_first, uncertain=False)
    assert log[-1]["step"] == 4  # 32 pairs, 16 in a step, two passes
    before, after = (load_file(at / "model.safetensors") for at in (tiny_llama, tmp_path / "r"))
    body = "model.layers.0.self_attn.q_proj.weight"
    assert not np.array_equal(before[body], after[body])


def test_adapters_leave_a_whole_checkpoint(answers, tiny_llama, tmp_path):
    train_reward(answers(32), tiny_llama, tmp_path / "r", replace(FAST, epochs=1, lora=2))
    assert not list((tmp_path / "r").glob("adapter*"))
    assert TextRewardModel.load(tmp_path / "r").score(["p"], ["kind answer"]).shape == (1,)


# --- policies ---


def test_dpo_writes_a_policy_with_the_promise_of_its_answers(answers, tiny_llama, tmp_path):
    private = answers(32)
    log = train_policy(private, tiny_llama, tmp_path / "p", replace(FAST, epochs=1))
    promise = CheckpointPromise.read(tmp_path / "p")
    assert (promise.kind, promise.guarantee) == ("policy", private.guarantee)
    assert promise.release_ids == private.release_ids
    assert json.loads((tmp_path / "p" / TRAINING_LOG).read_text()) == log
    assert not list((tmp_path / "p").glob("*.bin"))  # pickled settings name folders


@pytest.mark.parametrize("update", ["rebel", "rloo", "grpo"])
def test_improving_a_policy_adds_nothing_to_the_promise(update, trained, tiny_llama, tmp_path):
    folder, _, private = trained
    terms = PolicyTerms(
        update=update, steps=2, batch_size=8, max_new_tokens=6, pessimism=0.5, log_every=1
    )
    prompts = [f"tell me about {word}" for word in ("bread", "music", "water", "paper")]
    reward = TextRewardModel.load(folder)
    log = improve_policy(reward, tiny_llama, prompts, tmp_path / "p", terms)
    promise = CheckpointPromise.read(tmp_path / "p")
    assert (promise.kind, promise.guarantee) == ("policy", private.guarantee)
    assert promise.release_ids == private.release_ids
    assert promise.training["update"] == update
    assert any("reward" in row for row in log)


@pytest.mark.parametrize("update", ["rebel", "rloo"])
def test_a_start_that_another_release_taught_adds_its_own(
    update, trained, answers, tiny_llama, tmp_path
):
    train_policy(answers(32, seed=5), tiny_llama, tmp_path / "p", replace(FAST, epochs=0.5))
    reward = TextRewardModel.load(trained[0])
    terms = PolicyTerms(update=update, steps=1, batch_size=8, max_new_tokens=4)
    improve_policy(reward, tmp_path / "p", ["hello", "bread"], tmp_path / "q", terms)
    promise = CheckpointPromise.read(tmp_path / "q")
    assert promise.guarantee.epsilon == 8.0
    assert len(promise.sources) == 2
    (tmp_path / "q" / "sordino.json").unlink()  # the weights say it by themselves as well
    assert {one.guarantee.epsilon for one in folder_promises(tmp_path / "q")} == {8.0}


# --- refusals ---


def test_what_does_not_fit_is_known_before_training(word_pairs, tiny_llama):
    pairs = word_pairs(30)
    assert count_fitting(pairs, tiny_llama, FAST) == 30
    short = replace(FAST, max_length=6)
    with pytest.raises(DataError, match="answers are never cut"):
        count_fitting(pairs, tiny_llama, short)
    assert 0 < count_fitting(pairs, tiny_llama, replace(short, overlong="drop")) < 30
    with pytest.raises(UsageError, match="at most the 64 tokens"):
        count_fitting(pairs, tiny_llama, replace(FAST, max_length=65))
    assert count_fitting(pairs, tiny_llama, replace(FAST, max_length=64)) == 30


@pytest.mark.parametrize(
    "wrong",
    [
        {"loss": "plain"}, {"epochs": 0}, {"batch_size": 0}, {"learning_rate": -1.0},
        {"overlong": "cut"}, {"lora": -1}, {"head_epochs": -1.0}, {"temperature": 0.0},
    ],
)  # fmt: skip
def test_settings_that_train_nothing_are_refused(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        TrainingTerms(**wrong)


@pytest.mark.parametrize("wrong", [{"update": "ppo"}, {"steps": 0}, {"pessimism": -1.0}])
def test_settings_that_improve_nothing_are_refused(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        PolicyTerms(**wrong)


def test_raw_judgments_are_refused(word_pairs, tiny_llama, tmp_path):
    for train in (train_reward, train_policy):
        with pytest.raises(PrivacyError, match="raw judgments"):
            train(word_pairs(8), tiny_llama, tmp_path / "r", FAST)
    assert not (tmp_path / "r").exists()


# --- all of it ---


@pytest.mark.deep
def test_a_policy_at_epsilon_2_beats_its_reference_before_another_judge(
    answers, tiny_llama, word_pairs, open_ledger, tmp_path
):
    """The judge learned from other judgments, unprotected, and its interval leaves .5 out."""
    private = answers(4000, epsilon=2.0, seed=1)
    terms = replace(FAST, learning_rate=3e-3)
    train_reward(private, tiny_llama, tmp_path / "reward", terms, uncertain=False)
    public = use_unprotected(
        word_pairs(3000, seed=50), sordino.NonPrivate(), ledger=open_ledger(math.inf)
    )
    train_reward(public, tiny_llama, tmp_path / "judge", terms, uncertain=False)
    words = ("the", "answer", "is", "about", "bread", "music", "water", "paper")
    prompts = [f"tell me about {word}" for word in words]
    improve_policy(
        TextRewardModel.load(tmp_path / "reward"), tiny_llama, prompts, tmp_path / "policy",
        PolicyTerms(steps=100, learning_rate=3e-3, max_new_tokens=8),
    )  # fmt: skip
    found = compare_policies(
        tmp_path / "policy", tiny_llama, 25 * prompts,
        RewardJudge(TextRewardModel.load(tmp_path / "judge")), max_new_tokens=8, seed=3,
    )  # fmt: skip
    assert found.low > 0.5, found
    assert found.guarantee.epsilon == math.inf, "the judge's labels are in the number"
    assert CheckpointPromise.read(tmp_path / "policy").guarantee == private.guarantee
