"""REBEL fits the loss that it states, improves a policy, stays near its reference, and resumes."""

from __future__ import annotations

import copy
import json
import math
import shutil

import numpy as np
import pytest
from tests.tiers import few

torch = pytest.importorskip("torch", reason="the extra 'language' is not installed")
pytest.importorskip("trl", reason="the extra 'language' is not installed")

from datasets import Dataset  # noqa: E402
from peft import LoraConfig, get_peft_model  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

from sordino.errors import DataError, PrivacyError, UsageError  # noqa: E402
from sordino.language.models.checkpoints import load_causal_model, load_tokenizer  # noqa: E402
from sordino.language.models.generation import (  # noqa: E402
    answer_log_probabilities,
    sample_answers,
    sample_completions,
)
from sordino.language.models.promises import CheckpointPromise  # noqa: E402
from sordino.language.policies.rebel import (  # noqa: E402  # noqa: E402
    RebelConfig,
    RebelTrainer,
    _CollectionOrder,
)

from ._training import ending_at_once, moved  # noqa: E402
from .conftest import true_reward  # noqa: E402

WORDS = ("the", "answer", "is", "about", "bread", "music", "water", "paper")
PROMPTS = [f"tell me about {word}" for word in WORDS]
LORA = {"r": 4, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}


@pytest.fixture(scope="session")
def liked():
    """Return the reward that the tests' people go by, on texts, as trl calls rewards."""

    def reward(prompts, completions, **_):
        assert len(prompts) == len(completions)
        return [true_reward(text) for text in completions]

    return reward


def settings(folder, **chosen):
    """Return settings that draw short answers and save nothing."""
    fixed = {"max_completion_length": 12, "learning_rate": 3e-3, "save_strategy": "no"}
    sizes = {"per_device_train_batch_size": 8, "max_steps": 2, "steps_per_collection": 2}
    return RebelConfig(str(folder), **{**fixed, **sizes, **chosen})


# The loss --------------------------------------------------------------------------------------


def by_hand(policy, collected, reference, rollout, rewards, *, step, temperature):
    """Return the loss of REBEL in plain numpy: one answer and one token at a time."""

    def log_probability(model, row):
        prompt = zip(rollout.prompt_ids[row], rollout.prompt_mask[row], strict=True)
        answer = zip(rollout.completion_ids[row], rollout.completion_mask[row], strict=True)
        ids, total = [int(token) for token, real in prompt if real], 0.0
        for token in [int(token) for token, real in answer if real]:
            scores = model(torch.tensor([ids])).logits[0, -1].detach().double().numpy()
            top = scores.max()
            total += scores[token] - top - np.log(np.exp(scores - top).sum())
            ids.append(token)
        return total

    n, total = len(rewards) // 2, 0.0
    for i in range(n):
        gaps = []
        for row in (i, n + i):
            now, then = log_probability(policy, row), log_probability(collected, row)
            worth = rewards[row] - temperature * (then - log_probability(reference, row))
            gaps.append((now - then, worth))
        (grown, worth), (other_grown, other_worth) = gaps
        total += ((grown - other_grown) / step - (worth - other_worth)) ** 2
    return total / n


@pytest.mark.parametrize(
    ("architecture", "samples", "dtype", "error"),
    few(
        [
            ("llama", "on_policy", torch.float64, 1e-8),
            ("llama", "reference", torch.float64, 1e-8),
            ("gpt2", "on_policy", torch.float64, 1e-8),
            ("gpt2", "reference", torch.float32, 1e-5),
        ],
        first=2,
    ),
)
def test_the_loss_is_that_of_an_independent_computation(
    tiny_models, tmp_path, liked, architecture, samples, dtype, error
):
    """In 32 bits the log-probabilities themselves are known to 1e-6 only."""
    folder = tiny_models[architecture]
    reference = load_causal_model(folder, device="cpu").to(dtype)
    policy, collected = (moved(copy.deepcopy(reference), 0.03, 1) for _ in range(2))
    seen = []

    def reward(prompts, completions, **also):
        seen.extend(liked(prompts, completions, **also))
        return seen

    chosen = {"step": 0.7, "temperature": 0.4, "samples": samples, "use_cpu": True}
    trainer = RebelTrainer(
        policy,
        settings(tmp_path, **chosen),
        reward_funcs=reward,
        train_dataset=PROMPTS,
        processing_class=load_tokenizer(folder),
        reference=reference,
    )
    policy.train()
    first = trainer.compute_loss(policy, PROMPTS).item()
    rollout = trainer._collection.rollouts[0].completions
    both = {"step": 0.7, "temperature": 0.4}
    for model in (collected, reference):
        model.eval()
    wanted = by_hand(collected, collected, reference, rollout, seen, **both)
    assert first == pytest.approx(wanted, rel=error, abs=error)
    trainer.state.global_step, trainer._collection.place = 1, 0
    moved(policy, 0.02, 2)
    second = trainer.compute_loss(policy, PROMPTS).item()
    wanted = by_hand(policy.eval(), collected, reference, rollout, seen, **both)
    assert second == pytest.approx(wanted, rel=error, abs=error)
    assert abs(second - first) > 1e-3
    assert len(seen) == 16  # nothing was drawn again


def test_the_loss_of_a_step_is_the_mean_over_its_batches(tiny_llama, tmp_path, liked):
    sizes = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "max_steps": 1}
    trainer = run(tiny_llama, tmp_path, liked, logging_steps=1, **sizes)
    rewards = torch.stack([each.rewards for each in trainer._collection.rollouts])
    wanted = (rewards[:, :2] - rewards[:, 2:]).square().mean().item()
    assert rewards.shape == (4, 4)
    assert trainer.state.log_history[0]["loss"] == pytest.approx(wanted, abs=1e-3)
    assert wanted > 0.05


# The run ---------------------------------------------------------------------------------------


def measured(model, base, tokenizer, liked, n=25):
    """Return rewards of sampled answers, and log-ratios to the reference."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(11)
        drawn = sample_completions(model, tokenizer, PROMPTS * n, max_new_tokens=12)
        away = answer_log_probabilities(model, drawn) - answer_log_probabilities(base, drawn)
    texts = drawn.texts(tokenizer)
    return np.array(liked(texts, texts)), away.cpu().numpy()


def z_score(more, less):
    """Return how far two means are apart, in standard errors."""
    error = math.sqrt(more.var() / len(more) + less.var() / len(less))
    return (more.mean() - less.mean()) / error


@pytest.fixture(scope="module")
def runs(tiny_llama, tmp_path_factory, liked):
    """Return, for each temperature, a trainer after training with what its answers are worth."""
    base, tokenizer = load_causal_model(tiny_llama), load_tokenizer(tiny_llama)
    found = {None: (None, *measured(base, base, tokenizer, liked))}
    for temperature in (0.1, 1.0):
        chosen = {"max_steps": 45, "per_device_train_batch_size": 16, "logging_steps": 15}
        args = settings(tmp_path_factory.mktemp("run"), temperature=temperature, **chosen)
        trainer = RebelTrainer(tiny_llama, args, reward_funcs=liked, train_dataset=PROMPTS * 4)
        trainer.train()
        found[temperature] = (trainer, *measured(trainer.model, base, tokenizer, liked))
    return found


@pytest.mark.deep
def test_training_raises_the_true_reward(runs):
    assert z_score(runs[0.1][1], runs[None][1]) > 4


@pytest.mark.deep
def test_a_stronger_pull_stays_nearer_to_the_reference(runs):
    near, far = runs[1.0][2], runs[0.1][2]
    assert np.isfinite(far).all()
    assert 0 < near.mean() < far.mean() < 30
    assert z_score(far, near) > 4


@pytest.mark.deep
def test_reward_divergence_length_and_loss_are_logged(runs):
    for temperature in (0.1, 1.0):
        history = [log for log in runs[temperature][0].state.log_history if "loss" in log]
        assert len(history) == 3
        for log in history:
            assert all(math.isfinite(log[name]) for name in ("loss", "reward", "kl", "length"))
            assert 1 <= log["length"] <= 12
    rewards = [log["reward"] for log in runs[0.1][0].state.log_history if "loss" in log]
    assert rewards[0] < rewards[-1]


# Resuming --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("at", "peft"), few([(2, False), (4, True)], (4, True)))
def test_a_resumed_run_ends_where_an_uninterrupted_one_does(tiny_llama, tmp_path, liked, at, peft):
    """Checkpoint 4 is in the second epoch."""
    sizes = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "max_steps": 6}

    def trainer(folder):
        args = settings(folder, save_strategy="steps", save_steps=1, **sizes)
        adapter = LoraConfig(**LORA) if peft else None
        torch.manual_seed(5)
        return RebelTrainer(
            str(tiny_llama),
            args,
            reward_funcs=liked,
            train_dataset=PROMPTS[:7],
            peft_config=adapter,
        )

    whole = trainer(tmp_path / "whole")
    whole.train()
    shutil.copytree(tmp_path / "whole" / f"checkpoint-{at}", tmp_path / "half" / f"checkpoint-{at}")
    resumed = trainer(tmp_path / "half")
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 6
    assert len(resumed.state.log_history) == len(whole.state.log_history)
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_every_prompt_is_collected_once_an_epoch_and_gone_over_as_often_as_asked():
    order = _CollectionOrder(7, size=4, passes=3, seed=0)
    drawn = list(order)
    assert len(drawn) == len(order) == 24
    assert drawn[:4] == drawn[4:8] == drawn[8:12]
    assert sorted(set(drawn)) == list(range(7))
    assert len(set(drawn[:4]) | set(drawn[12:15])) == 7
    assert list(order) == drawn
    order.set_epoch(1)
    assert list(order) != drawn


# What enters, and what does not ----------------------------------------------------------------


def run(folder, tmp_path, reward, prompts=PROMPTS, *, named=None, **chosen):
    """Return a trainer after its steps."""
    trainer = RebelTrainer(
        str(folder),
        settings(tmp_path, **chosen),
        reward_funcs=reward,
        train_dataset=prompts,
        **(named or {}),
    )
    trainer.train()
    return trainer


@pytest.mark.parametrize(
    ("answer", "named"),
    few(
        [
            (lambda texts: [math.nan] * len(texts), "the reward of answer 0"),
            (lambda texts: [0.0] * 3 + [math.inf] * (len(texts) - 3), "the reward of answer 3"),
            (lambda texts: [None] * len(texts), "the reward of answer 0"),
            (lambda texts: texts, "the reward of answer 0"),
            (lambda texts: [0.0], "returned 1 rewards for 16 answers"),
        ],
        first=1,
    ),
)
def test_a_reward_that_is_none_is_refused_and_changes_nothing(
    tiny_llama, tmp_path, liked, answer, named
):
    before = load_causal_model(tiny_llama)
    policy = load_causal_model(tiny_llama)
    args, other = settings(tmp_path), lambda prompts, completions, **_: answer(completions)
    trainer = RebelTrainer(policy, args, reward_funcs=[liked, other], train_dataset=PROMPTS)
    with pytest.raises(DataError, match=f"Reward function 1.*{named}") as error:
        trainer.train()
    assert "bread" not in str(error.value)
    for one, two in zip(before.parameters(), policy.parameters(), strict=True):
        assert torch.equal(one, two)


def test_rewards_are_summed_and_only_prompts_reach_them(tiny_llama, tmp_path, liked):
    """A column of labels beside the prompts would be spent without a ledger."""
    seen = []

    def also(prompts, completions, **others):
        seen.append((prompts, set(others)))
        return torch.ones(len(completions))

    rows = Dataset.from_dict({"prompt": PROMPTS, "label": [1] * 8})
    trainer = run(tiny_llama, tmp_path, [liked, also], rows, logging_steps=1)
    assert len(seen) == 1
    assert sorted(seen[0][0]) == sorted(PROMPTS * 2)
    assert "label" not in seen[0][1]
    alone = run(tiny_llama, tmp_path, liked, logging_steps=1)
    assert {"loss", "reward", "kl", "length"} <= alone.state.log_history[0].keys()
    logged = [each.state.log_history[0]["reward"] for each in (trainer, alone)]
    assert logged[0] == pytest.approx(logged[1] + 1, abs=1e-5)


@pytest.mark.parametrize("prompts", [[], Dataset.from_dict({"prompt": []})])
def test_no_prompt_is_refused(tiny_llama, tmp_path, liked, prompts):
    with pytest.raises(DataError, match="no prompt"):
        run(tiny_llama, tmp_path, liked, prompts)


def test_empty_answers_will_do(tiny_llama, tmp_path, liked):
    tokenizer = load_tokenizer(tiny_llama)
    silent = ending_at_once(load_causal_model(tiny_llama), tokenizer.eos_token_id)
    trainer = RebelTrainer(
        silent, settings(tmp_path, logging_steps=1), reward_funcs=liked, train_dataset=PROMPTS
    )
    trainer.train()
    assert trainer.state.log_history[0]["length"] == 1
    assert all(torch.isfinite(weight).all() for weight in silent.parameters())


def test_second_answers_are_those_of_the_reference_if_wanted(tiny_llama, tmp_path, liked):
    tokenizer = load_tokenizer(tiny_llama)
    silent = ending_at_once(load_causal_model(tiny_llama), tokenizer.eos_token_id)
    trainer = RebelTrainer(
        silent,
        settings(tmp_path, samples="reference", max_steps=1, logging_steps=1),
        reward_funcs=liked,
        train_dataset=PROMPTS,
        reference=tiny_llama,
    )
    trainer.train()
    lengths = trainer._collection.rollouts[0].completions.completion_mask.sum(dim=1)
    assert lengths[:8].tolist() == [1] * 8
    assert int(lengths[8:].max()) > 1
    assert trainer.state.log_history[0]["length"] == 1  # of the policy's own answers


@pytest.mark.parametrize("samples", few(["on_policy", "reference"], first=1))
def test_an_adapter_learns_and_its_reference_is_the_model_without_it(
    tiny_llama, tmp_path, liked, samples
):
    named = {"peft_config": LoraConfig(**LORA)}
    chosen = {"samples": samples, "max_steps": 4, "logging_steps": 2, "learning_rate": 3e-2}
    trainer = run(tiny_llama, tmp_path, liked, named=named, **chosen)
    start, later = (log["kl"] for log in trainer.state.log_history if "kl" in log)
    assert start == pytest.approx(0, abs=1e-5)
    assert abs(later) > 1e-2
    trainer.save_model(str(tmp_path / "saved"))
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        assert torch.allclose(again(ids).logits, trainer.model.cpu()(ids).logits, atol=1e-5)
        with trainer.model.disable_adapter():
            untouched = trainer.model(ids).logits
        assert torch.equal(untouched, load_causal_model(tiny_llama, device="cpu")(ids).logits)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft's
def test_a_model_that_brings_its_adapter_keeps_a_copy_as_reference(tiny_llama, tmp_path, liked):
    adapted = get_peft_model(load_causal_model(tiny_llama), LoraConfig(**LORA))
    args, named = settings(tmp_path, max_steps=1, logging_steps=1), {"train_dataset": PROMPTS}
    trainer = RebelTrainer(adapted, args, reward_funcs=liked, **named)
    trainer.train()
    assert trainer.state.log_history[0]["kl"] == pytest.approx(0, abs=1e-5)
    fresh = get_peft_model(load_causal_model(tiny_llama), LoraConfig(**LORA))
    with pytest.raises(UsageError, match="adapter already"):
        RebelTrainer(fresh, args, reward_funcs=liked, peft_config=LoraConfig(**LORA), **named)
    unknown = moved(get_peft_model(load_causal_model(tiny_llama), LoraConfig(**LORA)), 0.02, 0)
    with pytest.raises(UsageError, match="trained before, and nothing says on what"):
        RebelTrainer(unknown, args, reward_funcs=liked, **named)


# What it promises ------------------------------------------------------------------------------


@pytest.fixture
def promises(private):
    """Return a maker of promises of private rewards, each of a release of its own."""

    def make(epsilon=1.0, kind="reward"):
        return CheckpointPromise.of(private(20, epsilon=epsilon), kind=kind, loss="debiased")

    return make


def carrying(liked, promise):
    """Return a reward that says what it promises."""

    def reward(**given):
        return liked(**given)

    reward.promise = promise
    return reward


def test_a_policy_promises_what_its_reward_does(tiny_llama, tmp_path, liked, promises):
    promise = promises()
    trainer = run(
        tiny_llama, tmp_path, carrying(liked, promise), save_strategy="steps", save_steps=2
    )
    trainer.save_model(str(tmp_path / "saved"))
    for folder in (tmp_path / "checkpoint-2", tmp_path / "saved"):
        found = CheckpointPromise.read(folder)
        assert (found.kind, found.guarantee) == ("policy", promise.guarantee)
        assert (found.release_ids, found.artifact) == (promise.release_ids, promise.artifact)
        assert found.training["method"] == "rebel"
        assert found.training["temperature"] == 0.1
        assert "epsilon=1" in (folder / "README.md").read_text()
    again = load_causal_model(tmp_path / "saved", device="cpu")
    for one, other in zip(again.parameters(), trainer.model.cpu().parameters(), strict=True):
        assert torch.equal(one, other)
    answers = sample_answers(again, load_tokenizer(tmp_path / "saved"), PROMPTS, max_new_tokens=4)
    assert len(answers) == 8


def test_what_enters_adds_up(tiny_llama, tmp_path, liked, promises):
    """Rewards of two releases, and one that cannot say what it was learned from."""
    one, other, third = promises(1.0), promises(2.0), promises(0.5)
    rewards = [carrying(liked, one), carrying(liked, other), carrying(liked, one), liked]
    same = {"train_dataset": PROMPTS, "args": settings(tmp_path)}
    trainer = RebelTrainer(tiny_llama, reward_funcs=rewards, **same)
    assert trainer.promise.guarantee.epsilon == pytest.approx(3.0)
    assert set(trainer.promise.release_ids) == {*one.release_ids, *other.release_ids}
    trainer = RebelTrainer(tiny_llama, reward_funcs=rewards, promise=third, **same)
    assert trainer.promise.guarantee.epsilon == pytest.approx(3.5)


def test_a_starting_policy_keeps_its_promise(tiny_llama, tmp_path, liked, promises):
    start = shutil.copytree(tiny_llama, tmp_path / "start")
    promise = promises(kind="policy")
    promise.write(start, title="Policy")
    same = {"train_dataset": PROMPTS, "args": settings(tmp_path)}
    for model in (str(start), load_causal_model(start)):
        trainer = RebelTrainer(model, reward_funcs=liked, **same)
        assert trainer.promise.guarantee == promise.guarantee
        both = RebelTrainer(model, reward_funcs=carrying(liked, promises()), **same)
        assert both.promise.guarantee.epsilon == pytest.approx(2.0)


def test_an_older_promise_does_not_stay_beside_new_weights(tiny_llama, tmp_path, liked, promises):
    promises(kind="policy").write(tmp_path, title="Old")
    run(tiny_llama, tmp_path / "run", liked).save_model(str(tmp_path))
    assert not (tmp_path / "sordino.json").exists()
    assert not (tmp_path / "README.md").exists()


def test_a_resumed_run_keeps_what_its_checkpoint_spoke_for(tiny_llama, tmp_path, liked, promises):
    """It began with a policy of another release; that stays in the weights."""
    chosen = {"save_strategy": "steps", "save_steps": 1}
    start = shutil.copytree(tiny_llama, tmp_path / "start")
    promises(2.0, kind="policy").write(start, title="Policy")
    reward = carrying(liked, promises())
    run(start, tmp_path / "run", reward, **chosen)
    other = RebelTrainer(
        tiny_llama, settings(tmp_path / "run", **chosen), reward_funcs=reward, train_dataset=PROMPTS
    )
    assert other.promise.guarantee.epsilon == pytest.approx(1.0)
    other.train(resume_from_checkpoint=True)
    assert other.promise.guarantee.epsilon == pytest.approx(3.0)


def test_another_reward_does_not_resume_a_run(tiny_llama, tmp_path, liked, promises):
    chosen = {"save_strategy": "steps", "save_steps": 1}
    run(tiny_llama, tmp_path, carrying(liked, promises()), **chosen)
    found = json.loads((tmp_path / "checkpoint-1" / "sordino.json").read_text())
    assert found["kind"] == "policy"
    other = RebelTrainer(
        tiny_llama,
        settings(tmp_path, **chosen),
        reward_funcs=carrying(liked, promises(2.0)),
        train_dataset=PROMPTS,
    )
    with pytest.raises(PrivacyError, match="other answers"):
        other.train(resume_from_checkpoint=True)


# Settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "named"),
    [
        ({"temperature": -1.0}, "temperature"), ({"temperature": math.inf}, "step"),
        ({"temperature": 2.0, "step": 0.6}, "step"), ({"step": 0.0}, "step"),
        ({"samples": "everybody"}, "samples"), ({"push_to_hub": True}, "uploaded"),
        ({"steps_per_collection": 0}, "steps_per_collection"),
        ({"max_completion_length": 0}, "max_completion_length"),
        ({"bf16": True, "use_cpu": True}, "accelerator"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_used_is_refused(tmp_path, chosen, named):
    with pytest.raises(UsageError, match=named):
        RebelConfig(str(tmp_path), **chosen)


def test_what_cannot_be_trained_is_refused(tiny_llama, tmp_path, liked, tiny_gpt2):
    same = {"train_dataset": PROMPTS, "args": settings(tmp_path)}
    model = load_causal_model(tiny_llama)
    for wrong in ("reward", [], [liked, None], model, type(liked)):
        with pytest.raises(UsageError, match="reward_funcs"):
            RebelTrainer(tiny_llama, reward_funcs=wrong, **same)
    with pytest.raises(UsageError, match="causal"):
        RebelTrainer(torch.nn.Linear(2, 2), reward_funcs=liked, **same)
    long = settings(tmp_path, max_completion_length=64)
    with pytest.raises(UsageError, match="length of an answer"):
        RebelTrainer(tiny_llama, long, reward_funcs=liked, train_dataset=PROMPTS)
    with pytest.raises(UsageError, match="RebelConfig"):
        RebelTrainer(tiny_llama, {}, reward_funcs=liked, train_dataset=PROMPTS)
    model.resize_token_embeddings(100)
    with pytest.raises(UsageError, match="different tokens"):
        RebelTrainer(tiny_gpt2, reward_funcs=liked, reference=model, **same)


def test_a_run_prints_nothing(tiny_llama, tmp_path, liked, capfd, no_network):
    trainer = run(tiny_llama, tmp_path, liked, logging_steps=1)
    trainer.save_model(str(tmp_path / "saved"))
    assert capfd.readouterr().out == ""
