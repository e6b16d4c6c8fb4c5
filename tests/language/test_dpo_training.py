"""A policy from randomized answers by DPO: trl's robust loss, and no way around it."""

import numpy as np
import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM

import sordino
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.language import PrivateDPOConfig, PrivateDPOTrainer
from sordino.language.models.checkpoints import load_causal_model, load_tokenizer
from sordino.language.models.loading import quiet, upstream
from sordino.language.models.promises import CheckpointPromise
from sordino.language.policies import dpo
from sordino.language.training.losses import debiased_preference_loss


@pytest.fixture
def private(word_pairs, open_ledger):
    """Return a maker of randomized pairs; each is a release of its own."""

    def make(n=32, *, epsilon=1.0, seed=0, coin=1):
        return sordino.privatize(
            word_pairs(n, seed=seed),
            sordino.RandomizedResponse(epsilon=epsilon),
            ledger=open_ledger(epsilon),
            simulate_seed=coin,
        )

    return make


@pytest.fixture
def settings(tmp_path):
    """Return a maker of settings for short runs."""

    def make(folder="run", **changed):
        usual = {"max_steps": 4, "per_device_train_batch_size": 8, "learning_rate": 1e-3}
        quietly = {"save_strategy": "no", "disable_tqdm": True, "logging_steps": 2}
        return PrivateDPOConfig(str(tmp_path / folder), **{**usual, **quietly, **changed})

    return make


def trained(model, args, pairs, **more):
    trainer = PrivateDPOTrainer(str(model), args=args, train_dataset=pairs, **more)
    with quiet():
        trainer.train()
    return trainer


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
    tiny_llama, tiny_gpt2, private, settings, epsilon
):
    """Another reference than the policy, so that the margins are not 0."""
    pairs = private(6, epsilon=epsilon)
    reference = load_causal_model(tiny_llama)
    with torch.no_grad():
        for weight in reference.parameters():
            weight.mul_(1.1)
    trainer = PrivateDPOTrainer(
        str(tiny_llama), reference, settings(beta=0.4), train_dataset=pairs
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


def test_the_reference_is_the_model_as_it_was(tiny_llama, private, settings, no_network):
    model = load_causal_model(tiny_llama)
    model.config._name_or_path = "nowhere/to-be-found"  # trl would load this name again
    before = [weight.detach().clone() for weight in model.parameters()]
    trainer = PrivateDPOTrainer(
        model, args=settings(), train_dataset=private(),
        processing_class=load_tokenizer(tiny_llama),
    )  # fmt: skip
    with quiet():
        trainer.train()
    after, reference = list(trainer.model.parameters()), list(trainer.ref_model.parameters())
    assert all(map(torch.equal, before, reference))
    assert not any(map(torch.equal, before, after))


def test_the_metrics_are_corrected_for_the_flips(tiny_llama, private, settings):
    pairs = private(32)
    trainer = trained(tiny_llama, settings(), pairs, eval_dataset=pairs)
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


def test_no_pair_is_left_out_and_no_token_straddles_the_border(tiny_llama, private, settings):
    pairs = private(32)
    trainer = PrivateDPOTrainer(str(tiny_llama), args=settings(), train_dataset=pairs)
    tokenizer = trainer.processing_class
    assert len(trainer.train_dataset) == 32
    for row, answer in enumerate(pairs.answers):
        asked = trainer.train_dataset[row]
        assert tokenizer.decode(asked["prompt_ids"]).endswith("<|assistant|>\n")
        liked, other = (pairs.first[row], pairs.second[row])[:: 1 if answer else -1]
        assert tokenizer.decode(asked["chosen_ids"]) == liked + "<|end|>"
        assert tokenizer.decode(asked["rejected_ids"]) == other + "<|end|>"


@pytest.mark.parametrize("lora", [False, True])
def test_a_policy_is_loaded_back_with_its_promise(
    tiny_llama, private, settings, tmp_path, no_network, lora
):
    pairs = private()
    adapters = LoraConfig(r=4, target_modules=["q_proj", "v_proj"]) if lora else None
    args = settings(save_strategy="steps", save_steps=2)
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
def test_another_loss_is_refused(tiny_llama, private, settings, changed, said):
    with pytest.raises(UsageError, match=said):
        PrivateDPOTrainer(str(tiny_llama), args=settings(**changed), train_dataset=private(8))


@pytest.mark.parametrize(
    "changed",
    [
        {"loss_type": ["robust"], "loss_weights": [2.0]},
        {"use_weighting": True},
        {"f_divergence_type": "forward_kl"},
        {"ld_alpha": 0.5},
        {"sync_ref_model": True},
        {"bf16": True, "use_cpu": True},
        {"label_smoothing_factor": 0.1},
        {"push_to_hub": True},
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings, changed):
    with pytest.raises(UsageError, match=list(changed)[-1 if "loss_type" in changed else 0]):
        settings(**changed)


def test_trl_ignores_label_smoothing_in_its_default_loss(tiny_llama, private, settings):
    """The trap that these trainers are guarded against: what the refusal above says is true."""
    from trl import DPOTrainer

    trainer = PrivateDPOTrainer(str(tiny_llama), args=settings(), train_dataset=private(8))
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


def test_one_set_of_settings_serves_several_trainers(tiny_llama, private, settings):
    args = settings()
    for epsilon in (1.0, 2.0):
        pairs = private(8, epsilon=epsilon)
        trainer = PrivateDPOTrainer(str(tiny_llama), args=args, train_dataset=pairs)
        assert trainer.args.label_smoothing == pairs.flip_probability
    assert args.label_smoothing is None


def test_a_trainer_whose_loss_is_another_one_does_not_start(
    tiny_llama, private, settings, monkeypatch
):
    trainer = PrivateDPOTrainer(str(tiny_llama), args=settings(), train_dataset=private(8))
    monkeypatch.setattr(
        dpo, "debiased_preference_loss", lambda gap, flip: debiased_preference_loss(gap, 0)
    )
    with pytest.raises(PrivacyError, match="At a gap of"):
        trainer.train()
    monkeypatch.undo()
    trainer.beta = 0.2
    dpo.refuse_other_losses(trainer, trainer._flips["train"])
    assert not trainer._metrics["eval"]


def test_raw_judgments_and_vectors_are_refused(tiny_llama, word_pairs, open_ledger, settings):
    with pytest.raises(PrivacyError, match=r"sordino\.privatize"):
        PrivateDPOTrainer(str(tiny_llama), args=settings(), train_dataset=word_pairs(8))
    pairs = sordino.Pairs.from_features(np.eye(3), np.array([1, 0, 1]))
    coin = sordino.RandomizedResponse(epsilon=1.0)
    private = sordino.privatize(pairs, coin, ledger=open_ledger(1.0), simulate_seed=1)
    with pytest.raises(DataError, match="feature vectors"):
        PrivateDPOTrainer(str(tiny_llama), args=settings(), train_dataset=private)


def test_another_architecture_and_a_folder_as_reference_will_do(tiny_gpt2, private, settings):
    trainer = trained(tiny_gpt2, settings(), private(), reference=str(tiny_gpt2))
    assert trainer.state.global_step == 4
    precomputed = settings("other", precompute_ref_log_probs=True)
    trainer = trained(tiny_gpt2, precomputed, private())
    assert trainer.ref_model is None


def test_what_it_starts_from_and_stays_near_counts(tiny_llama, private, settings, tmp_path):
    before, after = private(8), private(8, seed=3)
    first = PrivateDPOTrainer(str(tiny_llama), args=settings(), train_dataset=before)
    with quiet():
        first.save_model(str(tmp_path / "first"))

    def promised(start, reference=None):
        trainer = PrivateDPOTrainer(str(start), reference, settings(), train_dataset=after)
        return trainer._promise

    started, near = promised(tmp_path / "first"), promised(tiny_llama, tmp_path / "first")
    assert started.guarantee.epsilon == near.guarantee.epsilon == 2 * after.guarantee.epsilon
    assert {*before.release_ids, *after.release_ids} == set(started.release_ids)
    assert promised(tiny_llama).guarantee == after.guarantee
