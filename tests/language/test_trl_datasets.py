"""What leaves for trl's own trainers: the rows, the promise beside them, and the same loss."""

import copy
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.tiers import few

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import torch
from datasets import load_from_disk
from trl import DPOConfig, DPOTrainer, RewardConfig, RewardTrainer

import sordino
from sordino.errors import DataError, MissingExtra, UsageError
from sordino.language import (
    PrivateDPOConfig,
    PrivateDPOTrainer,
    PrivateRewardConfig,
    PrivateRewardTrainer,
)
from sordino.language.models.checkpoints import load_causal_model, load_tokenizer
from sordino.language.models.loading import quiet, upstream
from sordino.privatization.answers import use_unprotected

PAGE = Path(__file__).resolve().parents[2] / "docs" / "language_models.md"
QUIETLY = {
    "save_strategy": "no", "disable_tqdm": True, "report_to": "none", "max_steps": 3,
    "bf16": False, "dataloader_pin_memory": False,
}  # fmt: skip
STOCK = {**QUIETLY, "activation_checkpointing": False}


@pytest.fixture
def private(word_pairs, open_ledger):
    """Return a maker of randomized answers, as texts or as chat messages."""

    def make(n=24, *, chat=False, epsilon=1.0, **more):
        pairs = word_pairs(n, seed=4)
        if chat:
            said = [
                {"prompt": [{"role": "user", "content": prompt}], "first": first, "second": second,
                 "label": int(label)}
                for prompt, first, second, label in zip(
                    pairs.prompts, pairs.first, pairs.second, pairs.labels, strict=True)
            ]  # fmt: skip
            pairs = sordino.read_pairs(said)
        coin = sordino.RandomizedResponse(epsilon)
        return sordino.privatize(pairs, coin, ledger=open_ledger(epsilon), **more)

    return make


def test_rows_are_those_of_the_randomized_answers_and_the_promise_travels(private, tmp_path):
    pairs = private()
    made = pairs.to_dataset()
    assert made.cache_files == []  # it lives in memory
    assert made.column_names == ["prompt", "chosen", "rejected"]
    for row, prompt, first, second, answer in zip(
        made, pairs.prompts, pairs.first, pairs.second, pairs.answers, strict=True
    ):
        both = (first, second) if answer else (second, first)
        assert (row["prompt"], row["chosen"], row["rejected"]) == (prompt, *both)
    assert 0 < pairs.answers.sum() < len(pairs)
    made.save_to_disk(tmp_path / "kept")
    for one in (made, load_from_disk(tmp_path / "kept"), made.select(range(3))):
        said = one.info.description
        assert f"flip_probability: {pairs.flip_probability}" in said
        assert str(pairs.guarantee) in said
        assert all(f"`{name}`" in said for name in pairs.guarantee.caveats)
        assert pairs.release_ids[0] in said
        assert "label_smoothing" in said
    seeded = private(simulate_seed=1).to_dataset().info.description
    assert "SIMULATED" in seeded
    assert "SIMULATED" not in made.info.description


def test_one_chat_makes_all_chat_and_what_trl_cannot_read_is_refused(private, open_ledger):
    chat = private(chat=True).to_dataset()
    assert chat[0]["prompt"][0]["role"] == "user"
    assert {turn["role"] for row in chat for turn in row["chosen"]} == {"assistant"}
    rows = [
        {"prompt": p, "first": [{"role": "assistant", "content": c}], "second": "d" * 2, "label": 1}
        if isinstance(c, list) else {"prompt": p, "first": c, "second": c * 2, "label": 1}
        for p, c in (("a", "b"), ([{"role": "user", "content": "e"}], "f"))
    ]  # fmt: skip
    coin = sordino.RandomizedResponse(1.0)
    mixed = sordino.privatize(sordino.read_pairs(rows), coin, ledger=open_ledger(1.0))
    assert [row["prompt"][0]["content"] for row in mixed.to_dataset()] == ["a", "e"]
    empty = [{**rows[1], "prompt": []}]
    for pairs, said in (
        (sordino.read_pairs(empty), "pair 0 has no message"),
        (sordino.Pairs.from_features(np.eye(2), [0, 1]), "feature vectors"),
    ):
        with pytest.raises(DataError, match=said):
            sordino.privatize(pairs, coin, ledger=open_ledger(1.0)).to_dataset()


def test_thumbs_go_as_rows_of_single_answers_and_no_loss_is_said_to_be_right(
    open_ledger, tiny_llama, tmp_path
):
    rows = [{"prompt": "a", "completion": f"b {i}", "label": i % 2} for i in range(12)]
    coin = sordino.RandomizedResponse(1.0)
    thumbs = sordino.privatize(sordino.read_pairs(rows), coin, ledger=open_ledger(1.0))
    made = thumbs.to_dataset()
    assert made.column_names == ["prompt", "completion", "label"]
    assert list(made["completion"]) == list(thumbs.first)
    assert list(made["label"]) == [bool(answer) for answer in thumbs.answers]
    for kind in ("dpo", "reward"):
        with pytest.raises(UsageError, match=r"corrects thumbs or ratings.*Nothing was set"):
            thumbs.trl_arguments(kind)
    with pytest.raises(DataError, match="judgments of single answers"):
        PrivateRewardTrainer(
            str(tiny_llama), PrivateRewardConfig(str(tmp_path), **QUIETLY), train_dataset=thumbs
        )


def test_a_missing_library_is_named(private, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"Nothing was made.*sordino\[language\]"):
        private().to_dataset()


def gradients(trainer, model, batch):
    """Return the loss of a batch and its gradients at some weights, all in 64 bits."""
    model = copy.deepcopy(model).double().train()
    with upstream():
        loss = trainer.compute_loss(model, {name: part.clone() for name, part in batch.items()})
    loss.backward()
    return float(loss.detach()), {
        name: one.grad for name, one in model.named_parameters() if one.grad is not None
    }


def assert_same(one, other, atol=1e-6):
    assert abs(one[0] - other[0]) <= atol
    assert one[1].keys() == other[1].keys()
    for name, slope in one[1].items():
        assert torch.allclose(slope, other[1][name], rtol=0, atol=atol), name


def stock_dpo(folder, pairs, model, **settings):
    with upstream(), quiet():
        return DPOTrainer(
            load_causal_model(model),
            ref_model=load_causal_model(model),
            args=DPOConfig(str(folder), **{**STOCK, **settings}),
            train_dataset=pairs.to_dataset(),
            processing_class=load_tokenizer(model),
        )


@pytest.mark.parametrize("epsilon", few([0.5, 2.0], first=1))
def test_trls_own_dpo_has_the_same_loss_and_gradient(private, tiny_llama, tmp_path, epsilon):
    pairs = private(8, chat=True, epsilon=epsilon)
    ours = PrivateDPOTrainer(
        str(tiny_llama), PrivateDPOConfig(str(tmp_path / "a"), beta=0.5, **QUIETLY),
        train_dataset=pairs,
    )  # fmt: skip
    theirs = stock_dpo(tmp_path / "b", pairs, tiny_llama, beta=0.5, **pairs.trl_arguments())
    rows = [[t.train_dataset[i] for i in range(8)] for t in (ours, theirs)]
    for one, other in zip(*rows, strict=True):  # of chats trl makes the same tokens
        assert all(one[name] == other[name] for name in one)
    batch = ours.data_collator(rows[0])
    moved = copy.deepcopy(ours.model)
    with torch.no_grad():
        for one in moved.parameters():
            one.add_(0.02 * torch.randn(one.shape, generator=torch.Generator().manual_seed(1)))
    found = gradients(ours, moved, batch)
    assert_same(found, gradients(theirs, moved, batch))
    plain = stock_dpo(tmp_path / "c", pairs, tiny_llama, beta=0.5,
                      label_smoothing=pairs.flip_probability)  # fmt: skip
    with pytest.raises(AssertionError):  # the default loss does not read it
        assert_same(found, gradients(plain, moved, batch))


def test_a_stock_run_goes_from_judgments_to_a_policy(private, tiny_llama, tmp_path):
    pairs = private(16)
    trainer = stock_dpo(tmp_path / "run", pairs, tiny_llama, learning_rate=1e-3,
                        **pairs.trl_arguments())  # fmt: skip
    before = [one.detach().clone() for one in trainer.model.parameters()]
    with upstream(), quiet():
        done = trainer.train()
    assert done.global_step == 3
    assert np.isfinite(done.training_loss)
    assert any(
        not torch.equal(*both) for both in zip(before, trainer.model.parameters(), strict=True)
    )


def shown_trainer():
    """Return the trainer that the page shows, as a reader would paste it."""
    shown = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = (block for block in shown if "class Debiased" in block)
    names = {}
    exec(code, names)  # noqa: S102 (of our own page)
    return names["DebiasedRewardTrainer"]


def test_trls_reward_trainer_is_right_only_with_the_loss_of_the_page(
    private, word_pairs, open_ledger, tiny_llama, tmp_path
):
    pairs = private(8)
    with pytest.raises(UsageError, match=r"No setting of trl's RewardTrainer.*Nothing was set"):
        pairs.trl_arguments("reward")
    true = use_unprotected(word_pairs(8), sordino.NonPrivate(), ledger=open_ledger(float("inf")))
    assert true.trl_arguments("reward") == {}  # which has nothing to correct
    ours = PrivateRewardTrainer(
        str(tiny_llama), PrivateRewardConfig(str(tmp_path / "a"), **QUIETLY), train_dataset=pairs
    )
    torch.nn.init.normal_(ours.model.score.weight, std=0.2)
    batch = ours.data_collator([ours.train_dataset[i] for i in range(8)])
    found = gradients(ours, ours.model, batch)

    def stock(kind, folder):
        with upstream(), quiet():
            return kind(
                copy.deepcopy(ours.model), args=RewardConfig(str(tmp_path / folder), **STOCK),
                train_dataset=pairs.to_dataset(), processing_class=ours.processing_class,
            )  # fmt: skip

    shown = shown_trainer()
    shown.flip_probability = pairs.flip_probability
    assert_same(found, gradients(stock(shown, "b"), ours.model, batch))
    with pytest.raises(AssertionError):
        assert_same(found, gradients(stock(RewardTrainer, "c"), ours.model, batch))
