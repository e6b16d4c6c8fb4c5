"""What breaks clipping without an error elsewhere is right here, or refused with a way out."""

import json
import logging
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForSequenceClassification,
    TrainerCallback,
)

from sordino.errors import PrivacyError, UsageError
from sordino.language.dp_sgd import training
from sordino.language.dp_sgd.clipping import differences
from sordino.language.dp_sgd.privacy import CentralPrivacy
from sordino.language.dp_sgd.trainers import CentralDPOTrainer, CentralRewardTrainer
from sordino.language.dp_sgd.training import invented_units
from sordino.language.models.checkpoints import load_reward_checkpoint
from sordino.language.models.loading import quiet, upstream
from sordino.language.training.settings import CentralDPOConfig, CentralRewardConfig
from sordino.preferences.pairs import Pairs
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE

TERMS = CentralPrivacy(
    4.0, 1e-5, unit="record", neighbors=ADD_OR_REMOVE_ONE, sampling_probability=0.25, steps=8,
    expected_batch=10,
)  # fmt: skip
ADAPTERS = LoraConfig(r=2, target_modules="all-linear", task_type="SEQ_CLS")


@pytest.fixture
def make(tiny_llama, word_pairs, ledger_of, tmp_path):
    """Return a maker of trainers of rewards."""

    def make(pairs=None, *, folder="run", model=None, kind=CentralRewardTrainer, args=None, **more):
        quietly = {"save_strategy": "no", "disable_tqdm": True, "logging_steps": 1}
        usual = {"learning_rate": 3e-3, **quietly}
        settings = CentralRewardConfig if kind is CentralRewardTrainer else CentralDPOConfig
        return kind(
            str(tiny_llama) if model is None else model,
            args=settings(str(tmp_path / folder), **{**usual, **(args or {})}),
            train_dataset=word_pairs(12) if pairs is None else pairs,
            **{"ledger": ledger_of(), "privacy": TERMS, "declare_unread": True, **more},
        )

    return make


def trained(trainer, **how):
    with quiet():
        trainer.train(**how)
    return trainer


def differs(trainer):
    """Return how far what the trainer clips is from autograd, one unit at a time."""

    def sums(units, bound):
        return trainer._own_sum(trainer.model, units, bound).values()

    found = differences(trainer.model, trainer._losses, sums, trainer._units[:4])
    return max(found.gradients, found.partners)


def nothing_spent(trainer, match):
    with pytest.raises(UsageError, match=match) as caught:
        trained(trainer)
    assert not trainer._ledger.spends
    return str(caught.value)


# Models.


@pytest.mark.deep
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_attention_may_be_computed_in_any_way(make, tiny_llama, attention):
    model = AutoModelForSequenceClassification.from_pretrained(
        tiny_llama, num_labels=1, attn_implementation=attention
    )
    assert differs(make(model=model)) < 1e-5


def test_positions_of_gpt2_are_read_by_every_row(make, tiny_gpt2):
    """Its embedding of positions has a batch of one, of which hooks would see one gradient."""
    assert differs(make(model=str(tiny_gpt2))) < 1e-5


@pytest.mark.deep
@pytest.mark.parametrize("reentrant", [False, True])
def test_layers_that_recompute_are_clipped(make, reentrant):
    args = {
        "activation_checkpointing": True,
        "activation_checkpointing_kwargs": {"use_reentrant": reentrant},
    }
    trainer = make(args=args)
    before = [one.clone() for one in trainer.model.parameters()]
    trained(trainer)
    moved = [
        not torch.equal(*both) for both in zip(before, trainer.model.parameters(), strict=True)
    ]
    assert all(moved)


@pytest.mark.parametrize("tied", [True, False])
def test_the_head_of_a_policy_is_not_hidden(make, tiny_llama, tied):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_llama)
    assert model.lm_head.weight is not model.model.embed_tokens.weight
    if tied:
        model.lm_head.weight = model.model.embed_tokens.weight
    trainer = make(model=model, kind=CentralDPOTrainer)
    assert differs(trainer) < 1e-4
    trained(trainer)


@pytest.mark.deep
def test_adapters_are_clipped_whenever_they_are_added(make, tiny_llama):
    """By the trainer, before it on a model that is on its device, and after it was made."""
    early = load_reward_checkpoint(tiny_llama).to("cpu")
    by_trainer = make(model=early, peft_config=ADAPTERS)
    with upstream():
        before = make(model=get_peft_model(load_reward_checkpoint(tiny_llama), ADAPTERS))
        after = make()
        get_peft_model(after.model, LoraConfig(r=2, target_modules=["q_proj", "down_proj"]))
    for trainer in (by_trainer, before, after):
        assert differs(trainer) < 1e-5
        weights = {name: one.clone() for name, one in trainer.model.named_parameters()}
        trained(trainer)
        moved = {
            name
            for name, one in trainer.model.named_parameters()
            if not torch.equal(weights[name], one)
        }
        trainable = {name for name, one in trainer.model.named_parameters() if one.requires_grad}
        assert moved == trainable
        assert any("lora_A" in name for name in moved)


class Scaled(torch.nn.Module):
    """A head whose parameter enters in a way that nobody declared."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.factor = inner, torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.factor * self.inner(x)


def test_a_layer_of_the_user_is_served(make, tiny_llama):
    model = load_reward_checkpoint(tiny_llama)
    model.score = Scaled(model.score)
    assert differs(make(model=model)) < 1e-5


# Arithmetic.


def test_halved_parameters_are_refused(make, tiny_llama):
    model = load_reward_checkpoint(tiny_llama).to(torch.bfloat16)
    assert "float32" in nothing_spent(make(model=model), "32-bit")


def test_autocast_around_training_is_refused(make):
    trainer = make()
    with torch.autocast("cpu", torch.bfloat16):
        nothing_spent(trainer, "32-bit floats")


@pytest.mark.parametrize("switch", ["tf32", "bf16"])
def test_coarse_products_are_refused_by_whatever_name_they_are_switched_on(make, switch):
    """``tf32=True`` sets the newer switch of torch, of which the older one knows nothing."""
    trainer = make()
    place = torch.backends.cuda.matmul if switch == "tf32" else torch.backends.mkldnn.matmul
    place.fp32_precision = switch
    try:
        assert "set_float32_matmul_precision" in nothing_spent(trainer, "TF32")
        torch.set_float32_matmul_precision("highest")  # as the message says
        trained(trainer)
    finally:
        torch.set_float32_matmul_precision("highest")


# Settings.


@pytest.mark.parametrize(
    "wrong",
    [
        {"train_sampling_strategy": "group_by_length"}, {"train_sampling_strategy": "sequential"},
        {"dataloader_drop_last": True}, {"data_seed": 1}, {"skip_memory_metrics": False},
        {"debug": "underflow_overflow"}, {"torch_compile_mode": "default"},
        {"torch_compile_backend": "eager"}, {"neftune_noise_alpha": 5.0}, {"bf16": True},
        {"max_grad_norm": 1.0},
    ],
    ids=lambda wrong: next(iter(wrong)),
)  # fmt: skip
def test_settings_that_would_promise_something_else_are_refused(make, wrong):
    with pytest.raises(UsageError, match="Nothing was trained") as caught:
        make(args=wrong)
    assert next(iter(wrong)).removesuffix("_mode").removesuffix("_backend") in str(caught.value)


def test_steps_are_not_joined_by_another_name(make):
    """transformers would take two steps for one, and pay twice for half of the noise's use."""
    more = {"gradient_accumulation_kwargs": {"num_steps": 2}}
    nothing_spent(make(args={"accelerator_config": more}), "gradient_accumulation_steps")


def test_settings_that_change_after_the_trainer_was_made_are_refused(make):
    trainer = make()
    trainer.args.max_grad_norm = 1.0
    nothing_spent(trainer, "max_grad_norm")


def test_what_a_data_loader_is_told_is_not_used(make, word_pairs):
    """Workers, prefetching and an own order are for loaders of pairs, and none is made."""
    args = {"dataloader_num_workers": 2, "dataloader_persistent_workers": True, "seed": 5}
    trainer = make(args={**args, "dataloader_prefetch_factor": 2})
    loader = trainer.get_train_dataloader()
    assert loader.num_workers == 0
    assert next(iter(loader)) == {}
    assert trainer.train_dataset is None
    trained(trainer)
    with pytest.raises(TypeError):
        make(data_collator=lambda rows: rows)


# What comes out.


class Spy(TrainerCallback):
    """Keeps what callbacks are shown, and asks for a measurement if wanted."""

    def __init__(self, *, measure=False):
        self.shown, self.measure = [], measure

    def on_step_end(self, args, state, control, **given):
        state = {name: value for name, value in vars(state).items() if name != "trial_name"}
        self.shown.append(repr((sorted(given), state)))
        control.should_evaluate = self.measure

    def on_log(self, args, state, control, logs=None, **given):
        self.shown.append(repr(logs))


def people(word_pairs, n):
    pairs = word_pairs(40)
    return pairs.part(range(n)) if n < 40 else pairs


@pytest.fixture
def runs(make, word_pairs, monkeypatch, tmp_path, caplog):
    """Train on nobody, one, and forty; return what files, callbacks and logs of each show."""
    monkeypatch.setattr("sordino.language.dp_sgd.privacy.new_release_id", lambda: "r")
    caplog.set_level(logging.INFO, logger="transformers")
    found = {}
    for n in (0, 1, 2, 40):
        ids = iter(f"{i:016x}" for i in range(99))
        monkeypatch.setattr("sordino._random.new_release_id", ids.__next__)
        saving = {"save_strategy": "steps", "save_steps": 4, "include_num_input_tokens_seen": "all"}
        spy = Spy()
        args = {**saving, "log_level": "info", "weight_decay": 0.1, "logging_nan_inf_filter": False}
        trainer = make(people(word_pairs, n), args=args, callbacks=[spy], simulate_seed=3)
        result = trainer.train()
        written = {
            str(path.relative_to(tmp_path / "run")): path
            for path in sorted((tmp_path / "run").rglob("*"))
            if path.is_file()
        }
        found[n] = {
            "steps": trainer.state.global_step,
            "logs": trainer.state.log_history,
            "callbacks": spy.shown,
            "messages": [one.getMessage() for one in caplog.records],
            "result": repr(result),
            "promise": trainer._promise.guarantee,
            "contents": {name: path.read_bytes() for name, path in written.items()},
            "random": torch.load(tmp_path / "run/checkpoint-8/rng_state.pth", weights_only=False),
            "finite": all(bool(one.isfinite().all()) for one in trainer.model.parameters()),
        }
        caplog.clear()
        (tmp_path / "run").rename(tmp_path / f"run-{n}")
    return found


@pytest.mark.deep
def test_nothing_that_comes_out_tells_how_many_there_are(runs):
    """Nobody, one, two, forty: files without weights, logs, callbacks and messages are the same."""
    alone, *others = runs.values()
    assert alone["steps"] == 8
    assert alone["finite"]
    assert set(alone["logs"][0]) == {
        "learning_rate", "epsilon", "epoch", "step", "num_input_tokens_seen"
    }  # fmt: skip
    assert {row["num_input_tokens_seen"] for row in alone["logs"]} == {0}
    for other in others:
        for name in ("steps", "logs", "callbacks", "messages", "result", "promise", "finite"):
            assert alone[name] == other[name], name
        assert repr(alone["random"]) == repr(other["random"])
        assert set(alone["contents"]) == set(other["contents"])
        differ = {
            name.split("/")[-1]
            for name, content in alone["contents"].items()
            if other["contents"][name] != content
        }
        assert differ == {"model.safetensors", "optimizer.pt", "sordino.json", "config.json"}
        for name in ("sordino.json", "config.json"):  # they hold a digest of the weights
            both = [json.loads(run["contents"][f"checkpoint-8/{name}"]) for run in (alone, other)]
            for found in both:
                found.get("sordino_texts_read", {}).update(made="", heads=[])
                sources = found.get("sources") or found["sordino_promise"]["sources"]
                sources[0]["artifact"] = ""
            assert both[0] == both[1]


@pytest.mark.deep
def test_a_checkpoint_holds_these_files_and_no_other(runs):
    """Each is released weights, a function of released gradients, or public settings."""
    last = {Path(name).name for name in runs[40]["contents"] if name.startswith("checkpoint-8/")}
    assert last == {
        "README.md", "chat_template.jinja", "config.json", "model.safetensors", "optimizer.pt",
        "rng_state.pth", "scheduler.pt", "sordino.json", "tokenizer.json", "tokenizer_config.json",
        "trainer_state.json", "training_args.bin",
    }  # fmt: skip


def test_a_callback_that_asks_for_a_measurement_is_refused(make):
    with pytest.raises(PrivacyError, match="metric"):
        trained(make(callbacks=[Spy(measure=True)]))


@pytest.mark.deep
def test_checkpoints_without_an_optimizer_go_on(make, ledger_of):
    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            control.should_training_stop = state.global_step == 4

    saving = {"save_strategy": "steps", "save_steps": 4, "save_only_model": True}
    ledger = ledger_of()
    trained(make(args=saving, ledger=ledger, callbacks=[Stop()]))
    again = trained(make(args=saving, ledger=ledger), resume_from_checkpoint=True)
    assert again.state.global_step == 8


# Few, and nobody.


@pytest.mark.deep
def test_a_wrong_gradient_is_refused_whoever_is_in_the_data(make, word_pairs, monkeypatch):
    loss = training.CentralTraining._loss
    monkeypatch.setattr(training.CentralTraining, "_loss", lambda *given: loss(*given) / 1.01)
    messages = {nothing_spent(make(people(word_pairs, n)), "clipped") for n in (0, 1, 40)}
    assert len(messages) == 1


def test_where_all_pairs_are_too_long_nobody_is_left(make, word_pairs):
    """Their number is private, so that it is no mistake that none is left."""
    args = {"max_length": 2, "overlong": "drop"}
    trainer = make(args=args)
    assert trainer._units == []
    assert trained(trainer).state.global_step == 8


def test_a_policy_trains_on_nobody(make, word_pairs):
    trainer = make(people(word_pairs, 0), kind=CentralDPOTrainer)
    before = [one.clone() for one in trainer.model.parameters()]
    trained(trainer)
    assert all(
        not torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True)
    )


def test_people_may_be_nobody(make, word_pairs, ledger_of):
    from dataclasses import replace

    terms = replace(TERMS, unit="person", cap=2)
    pairs = replace(word_pairs(2), persons=("a", "b")).part([])
    assert isinstance(pairs, Pairs)
    trainer = make(pairs, privacy=terms, ledger=ledger_of(unit="person"))
    assert trained(trainer).state.global_step == 8


def test_invented_units_are_the_same_always_and_hold_no_padding(make):
    tokens = make()._tokens
    one, other = (invented_units(4, tokens) for _ in range(2))
    assert one == other
    assert len(one) == 4
    assert [len(unit) for unit in one] == [1, 1, 2, 1]
    assert max(len(pair.first) for unit in one for pair in unit) == tokens.max_length
    for pair in (pair for unit in one for pair in unit):
        assert pair.first[0] == pair.second[0]
        for ids, answer in zip((pair.first, pair.second), pair.answers, strict=True):
            assert 1 <= answer == len(ids) - 1 < tokens.max_length
            assert tokens.tokenizer.pad_token_id not in ids
            assert max(ids) < len(tokens.tokenizer)
