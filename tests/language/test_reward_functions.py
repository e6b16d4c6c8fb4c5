"""A private reward inside trl's own policy trainers, which really run."""

import os
import subprocess
import sys

import numpy as np
import pytest

import sordino
from sordino.errors import PrivacyError, UsageError

torch = pytest.importorskip("torch", reason="the extra 'language' is not installed")
pytest.importorskip("trl", reason="the extra 'language' is not installed")

from sordino.language.models.checkpoints import (  # noqa: E402
    load_causal_model,
    load_reward_checkpoint,
    load_tokenizer,
)
from sordino.language.models.promises import CheckpointPromise  # noqa: E402
from sordino.language.rewards.reward_functions import reward_function  # noqa: E402
from sordino.language.rewards.text_rewards import TextRewardModel  # noqa: E402

PROMPT = "tell me about bread"


@pytest.fixture
def reward(word_pairs, open_ledger, tiny_llama):
    """Return a reward whose head is random, with its uncertainty."""
    pairs = sordino.privatize(
        word_pairs(120), sordino.RandomizedResponse(epsilon=1.0), ledger=open_ledger(1.0)
    )
    model, tokenizer = load_reward_checkpoint(tiny_llama, device="cpu"), load_tokenizer(tiny_llama)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model.score.weight.data.normal_()
    promise = CheckpointPromise.of(pairs, kind="reward")
    made = TextRewardModel(model, tokenizer, promise=promise, reward_bound=4.0, max_length=48)
    return made.with_uncertainty(pairs)


def test_it_is_the_score(reward):
    function = reward_function(reward)
    prompts, answers = [PROMPT] * 3, ["kind", "rude and cold", "the answer is about bread"]
    found = function(prompts=prompts, completions=answers, completion_ids=[], source=["x"] * 3)
    assert found == reward.score(prompts, answers).tolist()
    assert all(type(value) is float for value in found)


def test_it_is_the_pessimistic_score(reward):
    prompts, answers = [PROMPT] * 3, ["kind", "rude and cold", "the answer is about bread"]
    expected = reward.pessimistic_score(prompts, answers, scale=0.1).tolist()
    assert reward_function(reward, pessimism=0.1)(prompts, answers) == expected


def test_messages_are_read_as_texts_are(reward):
    function = reward_function(reward)
    asked = [{"role": "user", "content": PROMPT}]
    said = [{"role": "assistant", "content": "kind words"}]
    assert function([asked], [said]) == pytest.approx(function([PROMPT], ["kind words"]), abs=1e-6)


@pytest.mark.parametrize("silent", ["", "  \n", [{"role": "assistant", "content": None}], []])
@pytest.mark.parametrize("pessimism", [0.0, 3.0])
def test_saying_nothing_or_too_much_never_pays(reward, silent, pessimism):
    function = reward_function(reward, pessimism=pessimism)
    prompts = [PROMPT] * 5
    found = function(prompts, ["kind", silent, "rude", "clear " * 90, "()?!"])
    assert found[1] == found[3] == min(found) <= -reward.reward_bound
    if not pessimism:
        assert found[1] == -reward.reward_bound
    assert function([PROMPT], [silent]) == [-reward.reward_bound]


def test_it_carries_name_and_promise(reward):
    from trl.trainer.utils import get_callable_name, is_async_callable

    function = reward_function(reward)
    assert get_callable_name(function) == "private_reward"
    assert get_callable_name(reward_function(reward, pessimism=1.0)) == "pessimistic_reward"
    assert not is_async_callable(function)
    assert function.promise == reward.promise


def test_what_is_no_reward_is_refused(reward, word_pairs):
    import dataclasses

    for wrong in (reward.model, reward.score, word_pairs(3), None):
        with pytest.raises(PrivacyError, match="TextRewardModel"):
            reward_function(wrong)
    for wrong in (-1.0, float("inf"), "much"):
        with pytest.raises(UsageError, match="pessimism"):
            reward_function(reward, pessimism=wrong)
    with pytest.raises(UsageError, match="with_uncertainty"):
        reward_function(dataclasses.replace(reward, uncertainty=None), pessimism=1.0)


def test_the_variable_of_the_docstring_silences_trl():
    """It is read where Python starts; trl's report looks at this constant before it is sent."""
    code = "from huggingface_hub import constants as c; print(c.HF_HUB_DISABLE_TELEMETRY)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"HF_HUB_DISABLE_TELEMETRY": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.strip() == "True"
    assert "HF_HUB_DISABLE_TELEMETRY=1" in reward_function.__doc__


# trl 1.16 sets the old name of this setting, which transformers 5.23 is about to drop.
@pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("conversational", [False, True])
@pytest.mark.parametrize("name", ["RLOO", "GRPO"])
def test_trl_trains_a_policy_on_it(
    reward, name, conversational, tiny_llama, tmp_path, monkeypatch, no_network
):
    import trl
    from datasets import Dataset
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)  # what the variable sets
    prompts = [f"tell me about {word}" for word in ("bread", "music", "water", "paper")]
    if conversational:
        prompts = [[{"role": "user", "content": prompt}] for prompt in prompts]
    settings = getattr(trl, f"{name}Config")(
        output_dir=str(tmp_path),
        max_steps=2,
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=8,
        temperature=4.0,  # a raw prompt, without its template, is followed by the end at once
        beta=0.05,
        learning_rate=1e-3,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        seed=1,
    )
    model = load_causal_model(tiny_llama, device="cpu")
    before = [p.detach().clone() for p in model.parameters()]
    trainer = getattr(trl, f"{name}Trainer")(
        model,
        reward_funcs=reward_function(reward, pessimism=0.01),
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": prompts * 4}),
        processing_class=load_tokenizer(tiny_llama),
    )
    trainer.train()
    logged = [
        row["rewards/pessimistic_reward/mean"]
        for row in trainer.state.log_history
        if "rewards/pessimistic_reward/mean" in row
    ]
    assert len(logged) == 2
    assert np.isfinite(logged).all()
    changed = [
        not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)
    ]
    assert any(changed), trainer.state.log_history
