"""Rewards and policies from randomized answers: loss, checkpoints, promise, scale, and refusals."""

import math
from functools import partial

import numpy as np
import pytest
from scipy.special import log_expit
from tests.tiers import few

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
from trl import DPOTrainer, RewardConfig

import sordino
from sordino.errors import ConvergenceError, DataError, PrivacyError, UsageError
from sordino.language import (
    PrivateDPOConfig,
    PrivateDPOTrainer,
    PrivateRewardConfig,
    PrivateRewardTrainer,
)
from sordino.language.models.checkpoints import (
    load_causal_model,
    load_reward_checkpoint,
    load_tokenizer,
)
from sordino.language.models.loading import quiet, upstream
from sordino.language.models.promises import CheckpointPromise
from sordino.language.training import label_training
from sordino.language.training.label_training import _excess_penalty
from sordino.language.training.losses import (
    LOSSES,
    debiased_preference_loss,
)
from sordino.privatization.answers import use_unprotected
from sordino.rewards.pair_losses import debias, debiased_loss

from ._training import Killed


def mixture_loss(epsilon, margins):
    """Minus the log probability of a label that a coin of this epsilon may have turned."""
    kept = log_expit(epsilon) + log_expit(margins)
    return -np.logaddexp(kept, log_expit(-epsilon) + log_expit(-margins))


KINDS = {
    PrivateRewardConfig: (PrivateRewardTrainer, 3e-3),
    PrivateDPOConfig: (PrivateDPOTrainer, 1e-3),
}


@pytest.fixture
def settings(tmp_path):
    """Return a maker of settings for short runs."""

    def make(folder="run", *, kind=PrivateRewardConfig, **changed):
        usual = {"max_steps": 4, "per_device_train_batch_size": 8, "learning_rate": KINDS[kind][1]}
        quietly = {"save_strategy": "no", "disable_tqdm": True, "logging_steps": 2}
        return kind(str(tmp_path / folder), **{**usual, **quietly, **changed})

    return make


@pytest.fixture
def dpo_settings(settings):
    """Return the same for DPO."""
    return partial(settings, kind=PrivateDPOConfig)


def trained(model, args, pairs, **more):
    trainer = KINDS[type(args)][0](str(model), args=args, train_dataset=pairs, **more)
    with quiet():
        trainer.train()
    return trainer


@pytest.mark.parametrize("kind", KINDS)
def test_raw_judgments_vectors_and_anything_else_are_refused(
    tiny_llama, word_pairs, open_ledger, settings, kind
):
    pairs = sordino.Pairs.from_features(np.eye(3), np.array([1, 0, 1]))
    coin = sordino.RandomizedResponse(epsilon=1.0)
    vectors = sordino.privatize(pairs, coin, ledger=open_ledger(1.0), simulate_seed=1)
    for wrong, error, said in (
        (word_pairs(8), PrivacyError, r"sordino\.privatize.*NonPrivate"),
        ([{"chosen": "yes"}], UsageError, "must be private pairs"),
        (vectors, DataError, "feature vectors"),
    ):
        with pytest.raises(error, match=said):
            KINDS[kind][0](str(tiny_llama), args=settings(kind=kind), train_dataset=wrong)


SHARED = [
    ({"overlong": "cut"}, "overlong"), ({"max_length": 1}, "max_length"),
    ({"bf16": True, "use_cpu": True}, "bf16=True needs an accelerator"),
    ({"fp16": True, "use_cpu": True}, "fp16=True needs an accelerator"),
    ({"push_to_hub": True}, "push_to_hub"), ({"trust_remote_code": True}, "trust_remote_code"),
    ({"pad_token": "<x>"}, "pad_token"),
    ({"label_smoothing_factor": 0.1}, "label_smoothing_factor"),
    ({"model_init_kwargs": {"num_labels": 2}}, "model_init_kwargs"),
]  # fmt: skip
REWARD = [
    ({"loss": "plain"}, "loss"), ({"reward_bound": 0.0}, "reward_bound"),
    ({"reward_bound": math.nan}, "reward_bound"), ({"head_epochs": -1}, "head_epochs"),
]  # fmt: skip
DPO = [
    ({"loss_type": ["robust"], "loss_weights": [2.0]}, "loss_weights"),
    ({"use_weighting": True}, "use_weighting"), ({"ld_alpha": 0.5}, "ld_alpha"),
    ({"f_divergence_type": "forward_kl"}, "f_divergence_type"),
    ({"sync_ref_model": True}, "sync_ref_model"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "changed", "said"),
    [
        *((kind, *one) for kind in KINDS for one in SHARED),
        *((PrivateRewardConfig, *one) for one in REWARD),
        *((PrivateDPOConfig, *one) for one in DPO),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings, kind, changed, said):
    with pytest.raises(UsageError, match=said):
        settings(kind=kind, **changed)


MARGINS = np.array([-40.0, -3.0, -0.5, 0.0, 1e-3, 0.7, 5.0, 60.0])
FLIPS = [0.0, 1e-6, 0.1, 0.2689414213699951, 0.45]


def torch_loss(name, flip, dtype=torch.float64):
    margins = torch.tensor(MARGINS, dtype=dtype, requires_grad=True)
    losses = LOSSES[name](margins, flip)
    losses.sum().backward()
    return losses.detach().numpy(), margins.grad.numpy()


@pytest.mark.parametrize("flip", FLIPS)
def test_the_debiased_loss_is_that_of_the_arrays(flip):
    found, slope = torch_loss("debiased", flip)
    target = debias(np.ones(len(MARGINS), dtype=int), flip)
    np.testing.assert_allclose(found, debiased_loss(MARGINS, target), atol=1e-6)
    np.testing.assert_allclose(slope, 1 / (1 + np.exp(-MARGINS)) - target, atol=1e-6)


@pytest.mark.parametrize("flip", FLIPS)
def test_the_mixture_loss_is_that_of_the_arrays(flip):
    found, slope = torch_loss("mixture", flip)
    epsilon = math.log((1 - flip) / flip) if flip else math.inf
    expected = mixture_loss(epsilon, MARGINS)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.isfinite(slope).all()
    step = 1e-5
    up, down = (mixture_loss(epsilon, MARGINS + s) for s in (step, -step))
    np.testing.assert_allclose(slope, (up - down) / (2 * step), atol=1e-6)


@pytest.mark.parametrize("flip", FLIPS)
def test_the_mean_over_the_flips_is_the_loss_of_the_true_label(flip):
    margins, loss = torch.tensor(MARGINS), LOSSES["debiased"]
    mean = (1 - flip) * loss(margins, flip) + flip * loss(-margins, flip)
    np.testing.assert_allclose(mean, np.logaddexp(0, -MARGINS), rtol=1e-12, atol=1e-6)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_an_undecided_label_has_the_mean_loss_of_both(name):
    margins = torch.tensor(MARGINS)
    first, second, either = (LOSSES[name](margins, 0.1, liked=liked) for liked in (1.0, 0.0, 0.5))
    np.testing.assert_allclose(either, (first + second) / 2, atol=1e-9)
    np.testing.assert_allclose(second, LOSSES[name](-margins, 0.1), atol=1e-9)


def test_32_bits_are_kept_and_finite():
    for name in LOSSES:
        for flip in FLIPS:
            found, slope = torch_loss(name, flip, torch.float32)
            assert found.dtype == np.float32
            assert np.isfinite(found).all()
            assert np.isfinite(slope).all()


@pytest.mark.parametrize("flip", [0.5, 0.7, -0.1, math.nan])
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_a_coin_that_says_nothing_is_refused(name, flip):
    with pytest.raises(UsageError, match="flip_probability must be"):
        LOSSES[name](torch.zeros(2), flip)


@pytest.fixture
def unprotected(open_ledger):
    """Return what uses raw pairs as they are."""
    return lambda pairs: use_unprotected(pairs, sordino.NonPrivate(), ledger=open_ledger(math.inf))


def weights_of(trainer):
    return {name: one.detach().clone() for name, one in trainer.model.named_parameters()}


def with_random_head(trainer):
    """Give a reward that says something before it is trained."""
    torch.manual_seed(0)
    torch.nn.init.normal_(trainer.model.score.weight, std=0.2)
    return trainer


@pytest.mark.parametrize("loss", ["debiased", "mixture"])
def test_the_loss_is_that_of_the_arrays(tiny_llama, private, settings, loss):
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
        losses = mixture_loss(1.0, margins)
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
    rewards = torch.tensor([0.0, 0.0], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([rewards], max_iter=500, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        value = debiased_preference_loss(rewards[:1] - rewards[1:], flip).mean()
        value = value + _excess_penalty(rewards, flip, 5.0)
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
        assert '"epsilon": "inf"' in card.split("---")[1]  # a promise of a seed protects nobody
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


def test_settings_that_were_changed_later_are_refused_too(tiny_llama, private, settings):
    args = settings()
    args.push_to_hub = True
    with pytest.raises(UsageError, match="push_to_hub"):
        PrivateRewardTrainer(str(tiny_llama), args, train_dataset=private(8))
    with pytest.raises(UsageError, match="args must be a PrivateRewardConfig"):
        PrivateRewardTrainer(
            str(tiny_llama), RewardConfig(gradient_checkpointing=None, bf16=False),
            train_dataset=private(8),
        )  # fmt: skip
    with pytest.raises(UsageError, match="must be at most the 64 tokens"):
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


def test_a_loss_that_is_no_number_stops_training(tiny_llama, private, settings):
    trainer = PrivateRewardTrainer(str(tiny_llama), settings(), train_dataset=private())
    with torch.no_grad():
        trainer.model.score.weight.fill_(math.nan)
    with quiet(), pytest.raises(ConvergenceError, match="not finite any more"):
        trainer.train()


@pytest.mark.deep
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


def log_probabilities(model, batch):
    """Return the sum over the answer of each row, one token after the other."""
    logs = model(batch["input_ids"], attention_mask=batch["attention_mask"]).logits.log_softmax(-1)
    totals = []
    for row, ids in enumerate(batch["input_ids"]):
        places = batch["completion_mask"][row].nonzero()[:, 0].tolist()
        totals.append(sum(logs[row, place - 1, ids[place]].item() for place in places))
    return np.array(totals)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_loss_is_the_debiased_one_of_the_margin(
    tiny_llama, tiny_gpt2, private, dpo_settings, epsilon
):
    """Another reference than the policy, so that the margins are not 0."""
    pairs = private(6, epsilon=epsilon)
    reference = load_causal_model(tiny_llama)
    with torch.no_grad():
        for weight in reference.parameters():
            weight.mul_(1.1)
    trainer = PrivateDPOTrainer(
        str(tiny_llama), dpo_settings(beta=0.4), reference=reference, train_dataset=pairs
    )  # fmt: skip
    assert trainer.ref_model is reference
    batch = trainer.data_collator([trainer.train_dataset[i] for i in range(6)])
    with torch.no_grad(), upstream():
        found = float(trainer.compute_loss(trainer.model, dict(batch)))
        ratios = log_probabilities(trainer.model, batch) - log_probabilities(reference, batch)
    margins = torch.tensor(0.4 * (ratios[:6] - ratios[6:]))
    assert margins.abs().max() > 0.05
    expected = debiased_preference_loss(margins, pairs.flip_probability).mean()
    assert found == pytest.approx(float(expected), abs=1e-4)
    assert trainer.label_smoothing == pairs.flip_probability


def test_the_reference_is_the_model_as_it_was(tiny_llama, private, dpo_settings, no_network):
    model = load_causal_model(tiny_llama)
    model.config._name_or_path = "nowhere/to-be-found"  # trl would load this name again
    before = [weight.detach().clone() for weight in model.parameters()]
    trainer = PrivateDPOTrainer(
        model, args=dpo_settings(), train_dataset=private(),
        processing_class=load_tokenizer(tiny_llama),
    )  # fmt: skip
    with quiet():
        trainer.train()
    after, reference = list(trainer.model.parameters()), list(trainer.ref_model.parameters())
    assert all(map(torch.equal, before, reference))
    assert not any(map(torch.equal, before, after))


def test_the_metrics_are_corrected_for_the_flips(tiny_llama, private, dpo_settings):
    pairs = private(32)
    trainer = trained(tiny_llama, dpo_settings(), pairs, eval_dataset=pairs)
    found = trainer.evaluate()
    batch = trainer.data_collator(list(trainer.train_dataset))
    with torch.no_grad():
        policy, reference = (
            log_probabilities(model, batch) for model in (trainer.model, trainer.ref_model)
        )
    ratios = policy - reference
    margins, flip = 0.1 * (ratios[:32] - ratios[32:]), pairs.flip_probability
    assert found["eval_rewards/margins"] == pytest.approx(margins.mean() / (1 - 2 * flip), abs=1e-4)
    assert found["eval_rewards/accuracies"] == pytest.approx(
        (np.mean(margins > 0) - flip) / (1 - 2 * flip), abs=1e-5
    )


def test_no_pair_is_left_out_and_no_token_straddles_the_border(tiny_llama, private, dpo_settings):
    pairs = private(32)
    trainer = PrivateDPOTrainer(str(tiny_llama), args=dpo_settings(), train_dataset=pairs)
    tokenizer = trainer.processing_class
    assert len(trainer.train_dataset) == 32
    for row, answer in enumerate(pairs.answers):
        asked = trainer.train_dataset[row]
        assert tokenizer.decode(asked["prompt_ids"]).endswith("<|assistant|>\n")
        liked, other = (pairs.first[row], pairs.second[row])[:: 1 if answer else -1]
        assert tokenizer.decode(asked["chosen_ids"]) == liked + "<|end|>"
        assert tokenizer.decode(asked["rejected_ids"]) == other + "<|end|>"


@pytest.mark.parametrize("lora", few([False, True], first=1))
def test_a_policy_is_loaded_back_with_its_promise(
    tiny_llama, private, dpo_settings, tmp_path, no_network, lora
):
    pairs = private()
    adapters = LoraConfig(r=4, target_modules=["q_proj", "v_proj"]) if lora else None
    args = dpo_settings(save_strategy="steps", save_steps=2)
    trainer = trained(tiny_llama, args, pairs, peft_config=adapters)
    ids = torch.arange(5, 25).reshape(2, 10)
    trainer.model.eval()
    with torch.no_grad(), quiet():
        trainer.save_model()
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "run").eval()
        torch.testing.assert_close(
            loaded(ids).logits, trainer.model(ids).logits, atol=2e-6, rtol=1e-5
        )
        start = load_causal_model(tiny_llama, device="cpu").eval()
        assert not torch.allclose(loaded(ids).logits, start(ids).logits, atol=1e-4)
    for folder in (tmp_path / "run", tmp_path / "run" / "checkpoint-2"):
        promise = CheckpointPromise.read(folder)
        assert (promise.kind, promise.guarantee) == ("policy", pairs.guarantee)
        assert promise.training["temperature"] == 0.1
        assert "privacy:" in (folder / "README.md").read_text()
    again = PrivateDPOTrainer(
        str(tiny_llama), args=args, train_dataset=pairs, peft_config=adapters
    )  # fmt: skip
    with quiet():
        again.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    again.model.eval()
    with torch.no_grad():
        torch.testing.assert_close(
            again.model(ids).logits, trainer.model(ids).logits, atol=1e-5, rtol=1e-4
        )
    other = PrivateDPOTrainer(str(tiny_llama), args=args, train_dataset=private(coin=2))
    with pytest.raises(PrivacyError, match="other answers"):
        other.train(resume_from_checkpoint=True)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"loss_type": ["sigmoid"]}, "'sigmoid' does not read label_smoothing"),
        ({"loss_type": "ipo"}, "does not correct"),
        ({"loss_type": ["robust", "sft"]}, "does not correct"),
        ({"label_smoothing": 0.1}, "not the probability"),
        ({"label_smoothing": 0.0}, "not the probability"),
    ],
)
def test_another_loss_is_refused(tiny_llama, private, dpo_settings, changed, said):
    with pytest.raises(UsageError, match=said):
        PrivateDPOTrainer(str(tiny_llama), args=dpo_settings(**changed), train_dataset=private(8))


def test_trl_ignores_label_smoothing_in_its_default_loss(tiny_llama, private, dpo_settings):
    """The trap that these trainers are guarded against: what the refusal above says is true."""
    trainer = PrivateDPOTrainer(str(tiny_llama), args=dpo_settings(), train_dataset=private(8))
    batch = trainer.data_collator([trainer.train_dataset[i] for i in range(8)])
    batch["ref_chosen_logps"], batch["ref_rejected_logps"] = torch.zeros(8), torch.ones(8)
    trainer.precompute_ref_logps, losses = True, {}
    for kind in ("sigmoid", "robust"):
        for smoothing in (0.0, 0.3):
            trainer.loss_types, trainer.label_smoothing = [kind], smoothing
            with torch.no_grad(), upstream():
                found = DPOTrainer.compute_loss(trainer, trainer.model, dict(batch))
            losses[kind, smoothing] = float(found)
    assert losses["sigmoid", 0.0] == losses["sigmoid", 0.3] == losses["robust", 0.0]
    assert abs(losses["robust", 0.3] - losses["robust", 0.0]) > 1e-3


def test_one_set_of_settings_serves_several_trainers(tiny_llama, private, dpo_settings):
    args = dpo_settings()
    for epsilon in (1.0, 2.0):
        pairs = private(8, epsilon=epsilon)
        trainer = PrivateDPOTrainer(str(tiny_llama), args=args, train_dataset=pairs)
        assert trainer.args.label_smoothing == pairs.flip_probability
    assert args.label_smoothing is None


def test_a_trainer_whose_loss_is_another_one_does_not_start(
    tiny_llama, private, dpo_settings, monkeypatch
):
    trainer = PrivateDPOTrainer(str(tiny_llama), args=dpo_settings(), train_dataset=private(8))
    monkeypatch.setattr(
        label_training,
        "debiased_preference_loss",
        lambda gap, flip: debiased_preference_loss(gap, 0),
    )
    with pytest.raises(PrivacyError, match="At a gap of"):
        trainer.train()
    monkeypatch.undo()
    trainer.beta = 0.2
    label_training._refuse_other_losses(trainer, trainer._flips["train"])
    assert not trainer._metrics["eval"]


@pytest.mark.deep
def test_another_architecture_and_a_folder_as_reference_will_do(tiny_gpt2, private, dpo_settings):
    trainer = trained(tiny_gpt2, dpo_settings(), private(), reference=str(tiny_gpt2))
    assert trainer.state.global_step == 4
    precomputed = dpo_settings("other", precompute_ref_log_probs=True)
    trainer = trained(tiny_gpt2, precomputed, private())
    assert trainer.ref_model is None


def test_what_it_starts_from_and_stays_near_counts(tiny_llama, private, dpo_settings, tmp_path):
    before, after = private(8), private(8, seed=3)
    first = PrivateDPOTrainer(str(tiny_llama), args=dpo_settings(), train_dataset=before)
    with quiet():
        first.save_model(str(tmp_path / "first"))

    def promised(start, reference=None):
        trainer = PrivateDPOTrainer(
            str(start), dpo_settings(), reference=reference, train_dataset=after
        )
        return trainer._promise

    started, near = promised(tmp_path / "first"), promised(tiny_llama, tmp_path / "first")
    assert started.guarantee.epsilon == near.guarantee.epsilon == 2 * after.guarantee.epsilon
    assert {*before.release_ids, *after.release_ids} == set(started.release_ids)
    assert promised(tiny_llama).guarantee == after.guarantee
