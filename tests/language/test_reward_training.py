"""A reward learned from randomized answers: its loss, its checkpoints, its promise, its scale."""

import math
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import torch
from peft import LoraConfig
from transformers import AutoModelForSequenceClassification, TrainerCallback

import sordino
from sordino.errors import ConvergenceError, DataError, PrivacyError, UsageError
from sordino.language import PrivateRewardConfig, PrivateRewardTrainer
from sordino.language.models.checkpoints import load_reward_checkpoint, load_tokenizer
from sordino.language.models.loading import quiet
from sordino.language.models.promises import CheckpointPromise
from sordino.language.rewards.reward_training import excess_penalty
from sordino.privatization.answers import use_unprotected
from sordino.rewards.pair_losses import (
    debias,
    debiased_loss,
    mixture_negative_log_likelihood,
)


@pytest.fixture
def private(word_pairs, open_ledger):
    """Return a maker of randomized pairs; each is a release of its own."""

    def make(n=64, *, epsilon=1.0, seed=0, coin=1):
        return sordino.privatize(
            word_pairs(n, seed=seed),
            sordino.RandomizedResponse(epsilon=epsilon),
            ledger=open_ledger(epsilon),
            simulate_seed=coin,
        )

    return make


@pytest.fixture
def unprotected(open_ledger):
    """Return what uses raw pairs as they are."""
    return lambda pairs: use_unprotected(pairs, sordino.NonPrivate(), ledger=open_ledger(math.inf))


@pytest.fixture
def settings(tmp_path):
    """Return a maker of settings for short runs."""

    def make(folder="run", **changed):
        usual = {"max_steps": 4, "per_device_train_batch_size": 8, "learning_rate": 3e-3}
        quietly = {"save_strategy": "no", "disable_tqdm": True, "logging_steps": 2}
        return PrivateRewardConfig(str(tmp_path / folder), **{**usual, **quietly, **changed})

    return make


class Killed(TrainerCallback):
    """Kills a run after a step, as a power cut would."""

    def __init__(self, step):
        self.step = step

    def on_step_begin(self, args, state, control, **_):
        if state.global_step == self.step:
            raise KeyboardInterrupt


def weights_of(trainer):
    return {name: one.detach().clone() for name, one in trainer.model.named_parameters()}


def trained(model, args, pairs, **more):
    trainer = PrivateRewardTrainer(str(model), args, train_dataset=pairs, **more)
    with quiet():
        trainer.train()
    return trainer


def with_random_head(trainer):
    """Give a reward that says something before it is trained."""
    torch.manual_seed(0)
    torch.nn.init.normal_(trainer.model.score.weight, std=0.2)
    return trainer


@pytest.mark.parametrize("loss", ["debiased", "mixture"])
def test_the_loss_is_that_of_the_likelihoods(tiny_llama, private, settings, loss):
    pairs = private(6)
    args = settings(loss=loss, center_rewards_coefficient=0.3, reward_bound=0.2)
    trainer = with_random_head(PrivateRewardTrainer(str(tiny_llama), args, train_dataset=pairs))
    batch = trainer.data_collator([trainer.train_dataset[i] for i in range(6)])
    found = trainer.compute_loss(trainer.model, dict(batch)).item()

    r = trainer.model(**batch).logits[:, 0].detach().numpy().astype(float)
    margins, flip = r[:6] - r[6:], pairs.flip_probability
    if loss == "debiased":
        losses = debiased_loss(margins, debias(np.ones(6, dtype=int), flip))
    else:
        losses = mixture_negative_log_likelihood(1.0, margins, np.ones(6, dtype=int))
    centered = 0.3 * np.mean((r[:6] + r[6:]) ** 2)
    excess = np.maximum(np.abs(r) - 0.2, 0) ** 2
    assert excess.max() > 0.01
    expected = losses.mean() + centered + excess.sum() / 6 / (1 - 2 * flip)
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_the_chosen_answer_is_the_one_that_the_randomized_label_prefers(
    tiny_llama, private, settings
):
    pairs = private(40)
    trainer = PrivateRewardTrainer(str(tiny_llama), settings(), train_dataset=pairs)
    tokenizer = trainer.processing_class
    for row, answer in enumerate(pairs.answers):
        both = (pairs.first[row], pairs.second[row])
        liked, other = both if answer else both[::-1]
        assert liked in tokenizer.decode(trainer.train_dataset[row]["chosen_ids"])
        assert other in tokenizer.decode(trainer.train_dataset[row]["rejected_ids"])
    assert 0 < pairs.answers.sum() < 40


@pytest.mark.parametrize("flip", [0.0, 0.25, 0.45])
def test_the_debiased_loss_has_a_minimum_within_a_quarter_of_the_bound(flip):
    from sordino.language.training.losses import debiased_preference_loss

    rewards = torch.tensor([0.0, 0.0], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([rewards], max_iter=500, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        value = debiased_preference_loss(rewards[:1] - rewards[1:], flip).mean()
        value = value + excess_penalty(rewards, flip, 5.0)
        value.backward()
        return value

    optimizer.step(loss)
    reached = rewards.detach().abs().numpy()
    if flip:
        np.testing.assert_allclose(reached, 5 + flip / 2, atol=1e-3)
    else:
        assert (reached < 5.01).all()


def test_metrics_are_corrected_for_the_flips(tiny_llama, private, settings):
    pairs = private(40)
    trainer = with_random_head(
        PrivateRewardTrainer(
            str(tiny_llama), settings(), train_dataset=pairs, eval_dataset=pairs
        )
    )  # fmt: skip
    found = trainer.evaluate()
    reward = trainer.text_reward()
    scores = [reward.score(pairs.prompts, side) for side in (pairs.first, pairs.second)]
    margins = (2 * pairs.answers - 1.0) * (scores[0] - scores[1])
    flip = pairs.flip_probability
    assert found["eval_accuracy"] == pytest.approx(
        (np.mean(margins > 0) - flip) / (1 - 2 * flip), abs=1e-5
    )
    assert found["eval_margin"] == pytest.approx(margins.mean() / (1 - 2 * flip), abs=1e-4)
    assert found["eval_mean_reward"] == pytest.approx(np.mean(scores), abs=1e-4)


def test_a_checkpoint_is_loaded_back_and_says_what_it_promises(
    tiny_llama, private, settings, tmp_path, no_network, monkeypatch
):
    monkeypatch.delenv("CI", raising=False)  # where trl would be silent anyway
    pairs = private()
    args = settings(save_strategy="steps", save_steps=2)
    trainer = trained(tiny_llama, args, pairs)
    reward, run = trainer.text_reward(), tmp_path / "run"
    with quiet():
        trainer.save_model()
    texts = [list(pairs.prompts[:20]), list(pairs.first[:20])]
    before = reward.score(*texts)
    assert np.ptp(before) > 1e-3
    rows = trainer.data_collator([trainer.train_dataset[i] for i in range(20)])
    with torch.no_grad():
        raw = trainer.merged().eval()(**rows).logits
    for folder in (run, run / "checkpoint-4"):
        with quiet():
            loaded = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        with torch.no_grad():
            np.testing.assert_allclose(loaded(**rows).logits, raw, atol=1e-6)
        again = type(reward).load(folder, device="cpu").score(*texts)
        np.testing.assert_allclose(again, before, atol=1e-6)
    for folder in (run, run / "checkpoint-2", run / "checkpoint-4"):
        promise = CheckpointPromise.read(folder)
        assert (promise.guarantee, promise.artifact) == (pairs.guarantee, pairs.artifact)
        assert promise.release_ids == pairs.release_ids
        assert promise.training["reward_bound"] == 10.0
        card = (folder / "README.md").read_text()
        assert '"epsilon": 1.0' in card.split("---")[1]
        assert "SIMULATED" in card


def test_a_killed_run_goes_on_and_spends_nothing(tiny_llama, word_pairs, open_ledger, settings):
    ledger = open_ledger(1.0)
    coin = sordino.RandomizedResponse(epsilon=1.0)
    pairs = sordino.privatize(word_pairs(64), coin, ledger=ledger, simulate_seed=1)
    spent = ledger.path.read_bytes()
    wanted = {"save_strategy": "steps", "save_steps": 2, "max_steps": 8, "head_epochs": 0.6}
    whole = weights_of(trained(tiny_llama, settings("whole", **wanted), pairs))
    args = settings("killed", **wanted)
    with pytest.raises(KeyboardInterrupt):
        trained(tiny_llama, args, pairs, callbacks=[Killed(5)])
    again = PrivateRewardTrainer(str(tiny_llama), args, train_dataset=pairs)
    with quiet():
        again.train(resume_from_checkpoint=True)
    assert again.state.global_step == 8
    for name, weight in weights_of(again).items():
        torch.testing.assert_close(weight, whole[name], atol=1e-6, rtol=1e-5)
    assert ledger.path.read_bytes() == spent


def test_a_run_goes_on_only_with_its_own_answers_and_settings(
    tiny_llama, private, settings, tmp_path
):
    args = settings(save_strategy="steps", save_steps=2)
    pairs, others = private(coin=1), private(coin=2)
    trained(tiny_llama, args, pairs)

    def resume(pairs, folder=True, **changed):
        args = settings(**changed)
        trainer = PrivateRewardTrainer(str(tiny_llama), args, train_dataset=pairs)
        trainer.train(resume_from_checkpoint=folder)

    with pytest.raises(PrivacyError, match="other answers"):
        resume(others)
    with pytest.raises(UsageError, match="other settings"):
        resume(pairs, reward_bound=3.0)
    with pytest.raises(UsageError, match="no complete checkpoint"):
        resume(pairs, folder="empty")
    with pytest.raises(UsageError, match="no complete checkpoint"):
        resume(pairs, tmp_path / "run")
    (tmp_path / "run" / "checkpoint-4" / "trainer_state.json").unlink()  # killed while saving
    with quiet():
        resume(pairs)


def test_the_head_learns_first(tiny_llama, private, settings):
    pairs = private(64)  # eight steps are an epoch
    start = PrivateRewardTrainer(str(tiny_llama), settings(), train_dataset=pairs)
    assert not start.model.score.weight.any(), "a fresh head says nothing"
    before = weights_of(start)
    head = weights_of(trained(tiny_llama, settings(max_steps=4, head_epochs=0.5), pairs))
    both = weights_of(trained(tiny_llama, settings(max_steps=5, head_epochs=0.5), pairs))
    for name, weight in before.items():
        moved = [not torch.equal(weight, after[name]) for after in (head, both)]
        assert moved == ([True, True] if name == "score.weight" else [False, True]), name


def test_adapters_carry_the_head_and_are_merged_when_saved(
    tiny_llama, private, settings, tmp_path, no_network
):
    pairs = private()
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"])
    args = settings(save_strategy="steps", save_steps=2, head_epochs=0.25)
    trainer = trained(tiny_llama, args, pairs, peft_config=lora)
    assert lora.modules_to_save is None, "the user's settings stay theirs"
    learned = {n for n, p in trainer.model.named_parameters() if p.requires_grad}
    assert {name for name in learned if "lora_" not in name} == {
        "base_model.model.score.modules_to_save.default.weight"
    }
    rows = trainer.data_collator([trainer.train_dataset[i] for i in range(8)])
    trainer.model.eval()
    with torch.no_grad(), quiet():
        before = trainer.model(**rows).logits
        trainer.save_model(str(tmp_path / "saved"))
        loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved").eval()
        np.testing.assert_allclose(loaded(**rows).logits, before, atol=1e-6)
    assert np.ptp(before.numpy()) > 1e-4
    assert CheckpointPromise.read(tmp_path / "saved").artifact == pairs.artifact
    checkpoint = tmp_path / "run" / "checkpoint-2"
    assert (checkpoint / "adapter_model.safetensors").is_file()
    assert "privacy:" in (checkpoint / "README.md").read_text()
    again = PrivateRewardTrainer(str(tiny_llama), args, train_dataset=pairs, peft_config=lora)
    with quiet():
        again.train(resume_from_checkpoint=str(checkpoint))
    again.model.eval()
    with torch.no_grad():
        torch.testing.assert_close(again.model(**rows).logits, before, atol=1e-5, rtol=1e-4)
    assert trainer.text_reward().guarantee == pairs.guarantee


def test_answers_of_another_release_to_measure_on_add_their_loss(tiny_llama, private, settings):
    pairs, others = private(epsilon=1.0), private(epsilon=2.0, seed=3)
    one, both = (
        PrivateRewardTrainer(str(tiny_llama), settings(), train_dataset=pairs, eval_dataset=held)
        for held in (pairs, others)
    )
    assert one._promise.guarantee.epsilon == 1.0
    assert both._promise.guarantee.epsilon == 3.0
    assert set(both._promise.release_ids) == {*pairs.release_ids, *others.release_ids}
    assert both._flips == {"train": pairs.flip_probability, "eval": others.flip_probability}


def test_judgments_that_are_not_randomized_are_not_measured_on(
    tiny_llama, private, settings, word_pairs, unprotected
):
    raw = unprotected(word_pairs(20))
    with pytest.raises(PrivacyError, match="not randomized"):
        PrivateRewardTrainer(
            str(tiny_llama), settings(), train_dataset=private(), eval_dataset=raw
        )  # fmt: skip
    trainer = PrivateRewardTrainer(str(tiny_llama), settings(), train_dataset=private())
    with pytest.raises(PrivacyError, match="not randomized"):
        trainer.evaluate(raw)
    with pytest.raises(PrivacyError, match="raw judgments"):
        trainer.evaluate(word_pairs(20))
    with pytest.raises(UsageError, match="no pairs to evaluate on"):
        trainer.evaluate()
    trainer = PrivateRewardTrainer(str(tiny_llama), settings(), train_dataset=raw)
    assert trainer._flips["train"] == 0.0
    assert math.isinf(trainer._promise.guarantee.epsilon)


def test_raw_judgments_are_refused_with_the_ways_out(tiny_llama, word_pairs, settings):
    with pytest.raises(PrivacyError, match=r"sordino\.privatize.*NonPrivate"):
        PrivateRewardTrainer(str(tiny_llama), settings(), train_dataset=word_pairs(8))
    with pytest.raises(UsageError, match="must be private pairs"):
        PrivateRewardTrainer(str(tiny_llama), settings(), train_dataset=[{"chosen": "yes"}])


def test_pairs_of_features_are_refused(tiny_llama, open_ledger, settings):
    pairs = sordino.Pairs.from_features(np.eye(3), np.array([1, 0, 1]))
    coin = sordino.RandomizedResponse(epsilon=1.0)
    private = sordino.privatize(pairs, coin, ledger=open_ledger(1.0), simulate_seed=1)
    with pytest.raises(DataError, match="feature vectors"):
        PrivateRewardTrainer(str(tiny_llama), settings(), train_dataset=private)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"loss": "plain"}, "loss"),
        ({"reward_bound": 0.0}, "reward_bound"),
        ({"reward_bound": math.nan}, "reward_bound"),
        ({"head_epochs": -1}, "head_epochs"),
        ({"overlong": "cut"}, "overlong"),
        ({"max_length": 1}, "max_length"),
        ({"bf16": True, "use_cpu": True}, "bf16=True needs an accelerator"),
        ({"fp16": True, "use_cpu": True}, "fp16=True needs an accelerator"),
        ({"push_to_hub": True}, "push_to_hub"),
        ({"trust_remote_code": True}, "trust_remote_code"),
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor"),
        ({"pad_token": "<x>"}, "pad_token"),
        ({"model_init_kwargs": {"num_labels": 2}}, "model_init_kwargs"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings, changed, said):
    with pytest.raises(UsageError, match=said):
        settings(**changed)


def test_settings_that_were_changed_later_are_refused_too(tiny_llama, private, settings):
    args = settings()
    args.push_to_hub = True
    with pytest.raises(UsageError, match="push_to_hub"):
        PrivateRewardTrainer(str(tiny_llama), args, train_dataset=private(8))
    from trl import RewardConfig

    with pytest.raises(UsageError, match="args must be a PrivateRewardConfig"):
        PrivateRewardTrainer(
            str(tiny_llama), RewardConfig(gradient_checkpointing=None, bf16=False),
            train_dataset=private(8),
        )  # fmt: skip
    with pytest.raises(UsageError, match="max_length must be at most the 64 tokens"):
        PrivateRewardTrainer(str(tiny_llama), settings(max_length=65), train_dataset=private(8))


def test_models_that_are_no_reward_are_refused(tiny_llama, private, settings):
    pairs, tokenizer = private(8), load_tokenizer(tiny_llama)
    with quiet():
        several = AutoModelForSequenceClassification.from_pretrained(tiny_llama, num_labels=3)
    with pytest.raises(UsageError, match="one output"):
        PrivateRewardTrainer(
            several, settings(), train_dataset=pairs, processing_class=tokenizer
        )  # fmt: skip
    model = load_reward_checkpoint(tiny_llama)
    model.config._name_or_path = "nowhere/to-be-found"
    with pytest.raises(UsageError, match="pass processing_class"):
        PrivateRewardTrainer(model, settings(), train_dataset=pairs)


def test_an_answer_that_does_not_fit_is_refused_or_left_out(
    tiny_llama, open_ledger, settings, word_pairs
):
    rows = [
        {"prompt": "tell me", "first": "kind " * 90, "second": "rude", "label": 1},
        {"prompt": "tell me", "first": "kind", "second": "rude", "label": 1},
    ]
    coin = sordino.RandomizedResponse(epsilon=1.0)
    private = sordino.privatize(
        sordino.read_pairs(rows), coin, ledger=open_ledger(1.0), simulate_seed=1
    )
    with pytest.raises(DataError, match="pair 0: an answer has"):
        PrivateRewardTrainer(str(tiny_llama), settings(), train_dataset=private)
    args = settings(overlong="drop")
    trainer = PrivateRewardTrainer(str(tiny_llama), args, train_dataset=private)
    assert len(trainer.train_dataset) == 1


def test_a_loss_that_is_no_number_stops_training(tiny_llama, private, settings):
    trainer = PrivateRewardTrainer(str(tiny_llama), settings(), train_dataset=private())
    with torch.no_grad():
        trainer.model.score.weight.fill_(math.nan)
    with quiet(), pytest.raises(ConvergenceError, match="not finite any more"):
        trainer.train()


def test_a_tokenizer_without_padding_and_another_architecture_will_do(
    tiny_gpt2, private, settings, tmp_path
):
    tokenizer = load_tokenizer(tiny_gpt2)
    tokenizer.pad_token = None
    trainer = trained(tiny_gpt2, settings(), private(), processing_class=tokenizer)
    assert trainer.processing_class.pad_token == tokenizer.eos_token
    assert trainer.model.config.pad_token_id == tokenizer.eos_token_id


@pytest.mark.deep
def test_only_debiased_training_recovers_the_scale(
    tiny_llama, word_pairs, open_ledger, unprotected, settings, tmp_path
):
    """A public reward lends its features; the private head on them is learned from 12,000 pairs.

    At ε = 1 the coins move the scale with a standard deviation of 5 %: four seeds gave .94, .98,
    .90 and 1.03, and the first is kept. Plain training gave .35 to .42.
    """
    whole = {"max_steps": -1}
    public = trained(
        tiny_llama,
        settings(
            "public",
            **whole,
            num_train_epochs=3,
            per_device_train_batch_size=32,
            learning_rate=5e-3,
        ),
        unprotected(word_pairs(1200, seed=5, strength=2.0)),
    )
    torch.nn.init.zeros_(public.model.score.weight)
    with quiet():
        public.save_model(str(tmp_path / "start"))
    raw, test = word_pairs(12000, strength=2.0), word_pairs(300, seed=77)
    coin = sordino.RandomizedResponse(epsilon=1.0)
    private = sordino.privatize(raw, coin, ledger=open_ledger(1.0), simulate_seed=2)
    flipped = sordino.read_pairs(
        {"prompt": prompt, "first": first, "second": second, "label": int(answer)}
        for prompt, first, second, answer in zip(
            private.prompts, private.first, private.second, private.answers, strict=True
        )
    )

    def gaps(pairs):
        args = settings(
            "head", **whole, num_train_epochs=2, head_epochs=2,
            per_device_train_batch_size=200, learning_rate=3e-2,
        )  # fmt: skip
        reward = trained(tmp_path / "start", args, pairs).text_reward()
        return reward.score(test.prompts, test.first) - reward.score(test.prompts, test.second)

    truth, debiased, plain = map(gaps, (unprotected(raw), private, unprotected(flipped)))
    slopes = [float(found @ truth / (truth @ truth)) for found in (debiased, plain)]
    assert abs(slopes[0] - 1) < 0.15, slopes
    assert slopes[1] < 0.5, slopes


def test_what_it_starts_from_is_part_of_the_promise(
    tiny_llama, private, unprotected, word_pairs, settings, tmp_path
):
    """A reward that goes on from another release carries both; from its own it carries one."""
    before, after = private(8), private(8, epsilon=2.0, seed=3)
    first = PrivateRewardTrainer(str(tiny_llama), settings(), train_dataset=before)
    with quiet():
        first.save_model(str(tmp_path / "first"))

    def promised(pairs, start):
        trainer = PrivateRewardTrainer(str(start), settings(), train_dataset=pairs)
        return trainer.text_reward().promise

    both = promised(after, tmp_path / "first")
    assert both.guarantee.epsilon == pytest.approx(3.0)
    assert set(both.release_ids) == {*before.release_ids, *after.release_ids}
    assert promised(before, tmp_path / "first").guarantee == before.guarantee
    loaded = load_reward_checkpoint(tmp_path / "first")
    trainer = PrivateRewardTrainer(loaded, settings(), train_dataset=after)
    assert trainer.text_reward().promise == both, "a model that was loaded before says the same"

    bare = PrivateRewardTrainer(
        str(tiny_llama), settings(), train_dataset=unprotected(word_pairs(8, seed=5))
    )
    with quiet():
        bare.save_model(str(tmp_path / "bare"))
    assert promised(after, tmp_path / "bare").guarantee.epsilon == math.inf


def test_going_back_to_the_first_answers_takes_nothing_off_the_promise(
    tiny_llama, private, settings, tmp_path
):
    """A, then B, then A again, from files that no ledger of this machine knows."""
    one, other = (
        replace(pairs, release_ids=()) for pairs in (private(8), private(8, epsilon=2.0, seed=3))
    )
    start = tiny_llama
    for step, pairs in enumerate((one, other, one)):
        trainer = PrivateRewardTrainer(str(start), settings(), train_dataset=pairs)
        start = tmp_path / f"step{step}"
        with quiet():
            trainer.save_model(str(start))
    assert trainer.text_reward().guarantee.epsilon == pytest.approx(3.0)


def test_a_resumed_run_speaks_for_all_that_its_checkpoint_did(
    tiny_llama, private, settings, tmp_path
):
    """It started from another release, which the second command leaves out."""
    before, after = private(8), private(16, epsilon=2.0, seed=3)
    first = PrivateRewardTrainer(str(tiny_llama), settings(), train_dataset=before)
    with quiet():
        first.save_model(str(tmp_path / "first"))
    kept = settings("kept", save_strategy="steps", save_steps=2)
    trained(tmp_path / "first", kept, after)
    other = PrivateRewardTrainer(str(tiny_llama), kept, train_dataset=after)
    with quiet():
        other.train(resume_from_checkpoint=True)
    assert other.text_reward().guarantee.epsilon == pytest.approx(3.0)


def test_a_trained_model_takes_its_promise_to_the_next_trainer(tiny_llama, private, settings):
    before, after = private(8), private(8, epsilon=2.0, seed=3)
    model = trained(tiny_llama, settings(), before).merged()
    tokenizer = load_tokenizer(tiny_llama)
    follower = PrivateRewardTrainer(
        model, settings(), train_dataset=after, processing_class=tokenizer
    )
    assert follower.text_reward().guarantee.epsilon == pytest.approx(3.0)
