"""What is counted of a unit is its own clipped gradient, whoever else is in the step.

Equalities are exact unless a tolerance is named: a unit is read alone, and sums are whole numbers.
"""

import math

import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import torch
from transformers import OPTConfig, OPTForCausalLM

from sordino.errors import UsageError
from sordino.language import CentralDPOConfig, CentralDPOTrainer, CentralPrivacy
from sordino.language.dp_sgd import clipping, training
from sordino.language.dp_sgd.clipping import ClippedSum
from sordino.language.dp_sgd.trainers import CentralRewardTrainer, with_reference_gaps
from sordino.language.dp_sgd.training import TokenPair
from sordino.language.training.settings import CentralRewardConfig
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE

SAME = 1e-12
CASES = [
    (CentralRewardTrainer, "llama", 0),
    (CentralRewardTrainer, "gpt2", 4),
    (CentralDPOTrainer, "llama", 4),
    (CentralDPOTrainer, "gpt2", 0),
]


@pytest.fixture
def make(tiny_models, word_pairs, ledger_of, tmp_path):
    """Return a maker of trainers on made-up units, whose head and adapters are not 0."""

    def make(kind, architecture, lora=0, *, clip=1e-3, **args):
        from peft import LoraConfig

        privacy = CentralPrivacy(
            2.0, 1e-6, unit="record", neighbors=ADD_OR_REMOVE_ONE, clip=clip,
            sampling_probability=1.0, steps=1, expected_batch=10.0,
        )  # fmt: skip
        policy = kind is CentralDPOTrainer
        config = CentralDPOConfig if policy else CentralRewardConfig
        task = "CAUSAL_LM" if policy else "SEQ_CLS"
        turned = {"fan_in_fan_out": architecture == "gpt2"}
        adapters = LoraConfig(r=lora, target_modules="all-linear", task_type=task, **turned)
        trainer = kind(
            str(tiny_models[architecture]),
            args=config(str(tmp_path / "run"), save_strategy="no", disable_tqdm=True, **args),
            train_dataset=word_pairs(2),
            privacy=privacy,
            ledger=ledger_of(),
            peft_config=adapters if lora else None,
        )
        torch.manual_seed(1)
        for one in trainer.model.parameters():
            if one.requires_grad and not one.any():
                torch.nn.init.normal_(one, std=0.2)
        return trainer

    return make


def unit(length, *, liked=1.0, pairs=1, seed=0):
    """Return a unit whose answers differ in their last token, after a prompt of some length."""
    words = torch.randint(10, 300, (length + 3,), generator=torch.Generator().manual_seed(seed))
    start, (one, other) = words[: length + 1].tolist(), words[-2:].tolist()
    return (TokenPair([*start, one], [*start, other], liked, (2, 2)),) * pairs


SHORT, LONG, PERSON = unit(1), unit(60, liked=0.0), unit(7, pairs=9, seed=3)


def summed(trainer, units):
    """Return the sum that a step finds, as one vector in units of the bound."""
    trainer._units = list(units)
    sums = trainer._clipped_sums(trainer.model, range(len(trainer._units)))
    return torch.cat([one.flatten() for one in sums]) / trainer._privacy.clip


@pytest.mark.parametrize(("kind", "architecture", "lora"), CASES)
def test_what_is_counted_of_a_unit_is_the_same_in_every_batch_order_and_company(
    make, monkeypatch, kind, architecture, lora
):
    trainer, norms = make(kind, architecture, lora), []
    add = ClippedSum.add
    monkeypatch.setattr(ClippedSum, "add", lambda of, given: norms.append(add(of, given)))
    kinds = {"short": SHORT, "long": LONG, "person": PERSON, "other": unit(1, liked=0.0)}
    alone = {name: summed(trainer, [one]) for name, one in kinds.items()}
    factor = dict(zip(kinds, norms, strict=True))
    blocks = [*["long"] * 4, *["short"] * 4, "person", *["other"] * 3]
    for order in (blocks, blocks[::-1], ["long", *blocks]):
        norms.clear()
        total = summed(trainer, [kinds[name] for name in order])
        assert norms == pytest.approx([factor[name] for name in order], rel=SAME)
        expected = torch.stack([alone[name] for name in order]).sum(0)
        assert float((total - expected).norm()) <= SAME
    assert all(float(one.norm()) <= 1 for one in alone.values())


@pytest.mark.parametrize(("kind", "architecture", "lora"), CASES)
def test_one_long_unit_moves_a_step_by_its_own_clipped_gradient(make, kind, architecture, lora):
    """Behind a full batch of short ones, and in front of blocks, whose batches it shifts."""
    trainer = make(kind, architecture, lora)
    for canary in (LONG, unit(60), PERSON):
        alone = summed(trainer, [canary])
        few, blocks = [SHORT] * 15, [*[LONG] * 16, *[SHORT] * 16]
        for others, step in ((few, [*few, canary]), (blocks, [canary, *blocks])):
            change = summed(trainer, step) - summed(trainer, others)
            assert float(change.norm()) <= 1 + 1e-9
            assert float((change - alone).norm()) <= SAME


def test_what_the_reference_makes_of_a_pair_does_not_depend_on_others(make):
    trainer = make(CentralDPOTrainer, "llama")
    given = {"padding": trainer._tokens.tokenizer.pad_token_id}
    short = [unit(1 + seed, seed=seed) for seed in range(12)]
    alone = [with_reference_gaps(trainer.model, [one], **given)[0] for one in short]
    assert with_reference_gaps(trainer.model, [LONG, *short], **given)[1:] == alone
    assert all(one[0].reference for one in alone)


def gradients(vectors, bound=1.0, model=None):
    """Return the sum of clipped gradients that are these vectors."""
    model = model or torch.nn.Linear(vectors.shape[1], 1, bias=False)
    total = ClippedSum(model, bound)
    norms = [total.add([lambda one=one: model(one).sum()]) for one in vectors]
    return total.values()[0][0], norms


def test_sums_over_thousands_are_exact():
    """In 32-bit floats such a sum, or its rounding, moves by thousandths of the bound."""
    torch.manual_seed(0)
    others = torch.randn(1, 50) + 0.3 * torch.randn(2048, 50)
    canary = torch.randn(1, 50)
    without, _ = gradients(others)
    alone, _ = gradients(canary)
    for step in (torch.cat([canary, others]), torch.cat([others, canary])):
        change = gradients(step)[0] - without
        assert float(change.norm()) <= 1 + 1e-9
        assert float((change - alone).norm()) <= 1e-12


def test_a_gradient_is_clipped_to_the_bound_and_a_small_one_is_left_alone():
    vectors = torch.tensor([[3.0, 4.0], [0.3, -0.4], [0.0, 0.0]])
    for bound in (1.0, 1e-3, 1e-150, 100.0):
        for one in vectors:
            total, (norm,) = gradients(one[None], bound)
            factor = min(1.0, bound / norm) if norm else 1.0
            assert norm == pytest.approx(float(one.double().norm()), rel=1e-12)
            assert total.tolist() == pytest.approx((factor * one.double()).tolist(), rel=2e-6)
            assert float(total.norm()) <= bound


def test_all_parts_of_a_unit_are_clipped_together():
    model = torch.nn.Linear(2, 1, bias=False)
    total = ClippedSum(model, 1.0)
    parts = torch.tensor([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]])
    assert total.add([lambda one=one: model(one).sum() for one in parts]) == 5.0
    assert total.values()[0][0].tolist() == pytest.approx([0.6, 0.8], rel=2e-6)
    assert model.weight.grad is None


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_gradient_that_is_no_number_adds_nothing(broken):
    model = torch.nn.Linear(2, 1, bias=False)
    vectors = torch.tensor([[3.0, 4.0], [broken, 0.0]])
    assert torch.equal(gradients(vectors, model=model)[0], gradients(vectors[:1], model=model)[0])
    total = ClippedSum(model, 1.0)
    total.add([lambda one=one: model(one).sum() for one in vectors])
    assert not total.counts[0].any()


def test_an_error_leaves_no_gradient_behind():
    model = torch.nn.Linear(2, 1, bias=False)

    def fails():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ClippedSum(model, 1.0).add([lambda: model(torch.ones(2)).sum(), fails])
    assert model.weight.grad is None


def test_no_number_of_units_makes_one_count_less_and_sums_without_a_bound_are_refused(monkeypatch):
    """Once there was a number of tokens, 1.7e7, above which nobody in a batch counted at all."""
    model = torch.nn.Linear(2, 1, bias=False)
    total = ClippedSum(model, 1.0)
    total._units = 2**30 - 1
    total.add([lambda: model(torch.tensor([3.0, 4.0])).sum()])
    assert float(total.values()[0].norm()) == pytest.approx(1, rel=2e-6)
    with pytest.raises(UsageError, match="1,073,741,824"):
        total.add([])
    monkeypatch.setattr(clipping, "_MOST_ENTRIES", 1)
    with pytest.raises(UsageError, match="Train adapters"):
        ClippedSum(model, 1.0)


class Mixed(torch.nn.Module):
    """Layers of which nothing needs to be known: attention, convolutions, weights on their own."""

    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)
        self.convolution = torch.nn.Conv1d(4, 4, 3, padding=1)
        self.own = torch.nn.Parameter(torch.randn(4))
        self.words = torch.nn.Embedding(9, 4, sparse=True)

    def forward(self, words):
        x = self.words(words) * self.own
        x = self.attention(x, x, x, need_weights=False)[0]
        return self.convolution(x.mT).sum()


def test_every_layer_is_served():
    torch.manual_seed(0)
    model, words = Mixed(), torch.randint(0, 9, (1, 5))
    total = ClippedSum(model, 1e-2)
    norm = total.add([lambda: model(words)])
    model(words).backward()
    found = [one.grad.to_dense().double() for one in model.parameters()]
    assert norm == pytest.approx(math.sqrt(sum(float(one.square().sum()) for one in found)))
    for one, other in zip(total.values(), found, strict=True):
        assert torch.allclose(one, other * (1e-2 / norm), rtol=1e-5, atol=1e-10)


@pytest.mark.parametrize("kind", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_that_see_gradients_before_they_are_clipped_are_refused(kind):
    model = torch.nn.Linear(2, 1)
    handle = getattr(model.weight, kind)(lambda *_: None)
    with pytest.raises(UsageError, match="Remove them"):
        ClippedSum(model, 1.0)
    handle.remove()
    ClippedSum(model, 1.0)
    handle = getattr(model.weight, kind)(lambda *_: None)
    model.weight.requires_grad_(requires_grad=False)
    ClippedSum(model, 1.0)


def test_dropout_that_recomputing_layers_bring_along_is_refused(tiny_llama, make):
    """One more unit would shift the coins of all others, which a seed decides."""
    from sordino.language.dp_sgd.clipping import refuse_shared_gradients

    torch.manual_seed(0)
    config = OPTConfig(
        vocab_size=320, hidden_size=16, ffn_dim=16, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=70, word_embed_proj_dim=16, dropout=0.3, init_std=0.3,
    )  # fmt: skip
    trainer = make(CentralDPOTrainer, "llama")
    model = OPTForCausalLM(config).train()
    given = (
        trainer._losses,
        lambda units, bound: trainer._own_sum(model, units, bound).values(),
        [LONG, SHORT, PERSON],
    )
    refuse_shared_gradients(model, *given)
    model.activation_checkpointing_enable()
    with pytest.raises(UsageError, match="depends on who else"):
        refuse_shared_gradients(model, *given)


def test_the_sum_of_a_step_is_rounded_to_32_bits_only_with_its_noise(make, monkeypatch):
    trainer, seen = make(CentralRewardTrainer, "llama"), []
    monkeypatch.setattr(
        training, "add_gradient_noise", lambda sums, size, *, entropy: seen.extend(sums)
    )
    trainer._tested, trainer._paid = True, 1
    trainer.training_step(trainer.model, {})
    trained = [one for one in trainer.model.parameters() if one.requires_grad]
    assert {one.dtype for one in seen} == {torch.float64}
    for one, noised in zip(trained, seen, strict=True):
        assert torch.equal(one.grad, noised.float())
