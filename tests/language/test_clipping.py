"""What is counted of a unit is its own clipped gradient, whoever else is in a step; and noise.

Equalities are exact unless a tolerance is named: a unit is read alone, and sums are whole numbers.
"""

import math
from fractions import Fraction
from functools import partial
from threading import Lock, get_ident
from time import sleep

import numpy as np
import pytest
from tests.tiers import few

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest
from torch.nn.functional import softplus
from transformers import (
    AutoModelForSequenceClassification,
    GPT2Config,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    OPTConfig,
    OPTForCausalLM,
)

from sordino._random import SimulatedEntropy, entropy
from sordino.errors import UsageError
from sordino.language.dp_sgd import clipping, training
from sordino.language.dp_sgd.clipping import (
    ClippedSum,
    add_gradient_noise,
    differences,
    refuse_shared_gradients,
)
from sordino.language.dp_sgd.privacy import poisson_sample, sampling_threshold
from sordino.language.dp_sgd.training import (
    TokenPair,
    _invented_units,
    reward_margins,
    unit_losses,
    with_reference_gaps,
)
from sordino.language.models.checkpoints import load_tokenizer
from sordino.language.models.tokens import DialogueTokens
from sordino.language.training.losses import debiased_preference_loss

from ._training import awake, privacy, trained


class Words:
    """Words that are known beforehand."""

    randomness = "simulated"

    def __init__(self, words):
        self.left = list(words)

    def words(self, n):
        taken, self.left = self.left[:n], self.left[n:]
        assert len(taken) == n
        return np.array(taken, dtype=np.uint64)


SAME = 1e-12
CASES = [
    ("reward", "llama", 0),
    ("reward", "gpt2", 4),
    ("dpo", "llama", 4),
    ("dpo", "gpt2", 0),
]


@pytest.fixture
def make(central, tiny_models):
    """Return a maker of trainers on made-up units, whose head and adapters are not 0."""
    from peft import LoraConfig

    def make(kind, architecture, lora=0):
        task = "CAUSAL_LM" if kind == "dpo" else "SEQ_CLS"
        turned = {"fan_in_fan_out": architecture == "gpt2"}
        adapters = LoraConfig(r=lora, target_modules="all-linear", task_type=task, **turned)
        terms = privacy(2.0, clip=1e-3, sampling_probability=1.0, steps=1, delta=1e-6)
        model = str(tiny_models[architecture])
        return awake(
            central(kind=kind, model=model, terms=terms, peft_config=adapters if lora else None)
        )

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


@pytest.mark.parametrize(("kind", "architecture", "lora"), few(CASES, CASES[2], first=1))
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


@pytest.mark.parametrize(("kind", "architecture", "lora"), few(CASES, first=1))
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
    trainer = make("dpo", "llama")
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


@pytest.mark.deep
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
    for bound in (1.0, 1e-3, 1e-50, 100.0):
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


@pytest.mark.parametrize("bound", [2.0**-1042 * 0.51, 1e-61, 1e61])
def test_a_bound_whose_parts_are_no_exact_floats_is_refused(bound):
    """Of subnormal ones a unit once added nearly twice its bound."""
    with pytest.raises(UsageError, match="within 1e-60 and"):
        ClippedSum(torch.nn.Linear(2, 1), bound)


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
    trainer = make("dpo", "llama")
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


def test_a_layer_that_draws_too_seldom_to_be_caught_tells_of_nobody(make):
    """One more unit shifted the coins of all others; checkpoints told how many were drawn."""
    config = OPTConfig(
        vocab_size=320, hidden_size=16, ffn_dim=16, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=70, word_embed_proj_dim=16, dropout=0.3, init_std=0.3,
    )  # fmt: skip
    trainer, model = make("dpo", "llama"), OPTForCausalLM(config).train()
    model.activation_checkpointing_enable()

    def counts(*units):
        return trainer._own_sum(model, units, 1.0).counts

    before = torch.get_rng_state()
    parts, whole = [counts(LONG), counts(SHORT), counts(PERSON)], counts(PERSON, LONG, SHORT)
    assert torch.equal(torch.get_rng_state(), before)  # a checkpoint holds it
    for count, *each in zip(whole, *parts, strict=True):
        assert torch.equal(count, sum(each))
    model.eval().activation_checkpointing_disable()
    assert not all(map(torch.equal, counts(LONG), parts[0]))  # there were coins


def test_the_sum_of_a_step_is_rounded_to_32_bits_only_with_its_noise(make, monkeypatch):
    trainer, seen = make("reward", "llama"), []
    monkeypatch.setattr(
        training, "add_gradient_noise", lambda sums, size, *, entropy: seen.extend(sums)
    )
    trainer._tested, trainer._paid = True, 1
    trainer.training_step(trainer.model, {})
    trained = [one for one in trainer.model.parameters() if one.requires_grad]
    assert {one.dtype for one in seen} == {torch.float64}
    for one, noised in zip(trained, seen, strict=True):
        assert torch.equal(one.grad, noised.float())


def losses(model, units, padding=0):
    margins = reward_margins(model, [pair for unit in units for pair in unit], padding=padding)
    return unit_losses(margins, units, debiased_preference_loss)


def few_units(n=4):
    generator = torch.Generator().manual_seed(1)

    def text():
        length = int(torch.randint(3, 9, (), generator=generator))
        return torch.randint(1, 30, (length,), generator=generator).tolist()

    return [(TokenPair(text(), text(), float(i % 2)),) * (1 + i % 2) for i in range(n)]


def model_of(architecture="llama", *, fresh=False, dropout=0.3):
    sizes = {"vocab_size": 30, "pad_token_id": 0, "num_labels": 1}
    torch.manual_seed(0)
    if architecture == "gpt2":
        drop = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), dropout)
        config = GPT2Config(n_embd=12, n_layer=2, n_head=2, n_positions=16, **drop, **sizes)
    else:
        config = LlamaConfig(
            hidden_size=12, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2,
            max_position_embeddings=16, attention_dropout=dropout, **sizes,
        )  # fmt: skip
    model = AutoModelForSequenceClassification.from_config(config).train()
    for one in model.parameters():
        torch.nn.init.normal_(one, std=0.3)
    if fresh:
        torch.nn.init.zeros_(model.score.weight)
    return model


def summing(model, loss=losses, kind=ClippedSum):
    """Return what finds sums of clipped gradients on a model, as a trainer does."""

    def sums(some, bound):
        total = kind(model, bound)
        for unit in some:
            total.add((lambda pair=pair: loss(model, [(pair,)]).sum()) for pair in unit)
        return total.values()

    return sums


@pytest.mark.parametrize("architecture", few(["llama", "gpt2"], first=1))
@pytest.mark.parametrize("fresh", few([False, True], first=1))
@pytest.mark.parametrize("recomputed", [False, True])
def test_right_gradients_pass(architecture, fresh, recomputed):
    model = model_of(architecture, fresh=fresh)
    if recomputed:
        model.activation_checkpointing_enable()
    found = differences(model, losses, summing(model), few_units())
    assert found.gradients < 1e-5
    assert found.partners < 1e-12
    assert found.moved <= 1
    assert refuse_shared_gradients(model, losses, summing(model), few_units()) is None


def test_nothing_is_left_behind():
    model = model_of(fresh=True)
    model.score.weight.grad = torch.ones_like(model.score.weight)
    model.model.norm.eval()
    before = {name: one.clone() for name, one in model.named_parameters()}
    modes = [layer.training for layer in model.modules()]
    state = torch.get_rng_state()
    differences(model, losses, summing(model), few_units())
    assert all(torch.equal(before[name], one) for name, one in model.named_parameters())
    assert modes == [layer.training for layer in model.modules()]
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(model.score.weight.grad, torch.ones_like(model.score.weight))
    assert sum(one.grad is not None for one in model.parameters()) == 1


def refused(model=None, loss=losses, kind=ClippedSum, sums=None):
    model = model or model_of()
    with pytest.raises(UsageError, match="nothing was spent") as caught:
        refuse_shared_gradients(model, loss, sums or summing(model, loss, kind), few_units())
    return str(caught.value)


class PairByPair(ClippedSum):
    def add(self, losses):
        for loss in losses:
            super().add([loss])


class Short(ClippedSum):
    """Every unit adds one thousandth more than the bound."""

    def __init__(self, model, bound):
        super().__init__(model, bound * 1.001)


class Crowded(ClippedSum):
    """The more there are, the smaller the norm of each."""

    def _clipped(self):
        self._bound *= 1 - 1e-4 * self._units
        return super()._clipped()


@pytest.mark.parametrize("kind", [PairByPair, Short, Crowded])
def test_sums_that_are_not_of_clipped_units_are_caught(kind):
    refused(kind=kind)


class Drawing(torch.nn.Module):
    """Dropout that stays on: one unit more, and the coins of all others are new."""

    def forward(self, x):
        return torch.nn.functional.dropout(x, 0.2, training=True)


class Remembering(torch.nn.Module):
    """Scales by the longest text that it ever read."""

    longest = 0

    def forward(self, x):
        self.longest = max(self.longest, x.shape[1])
        return torch.nn.functional.silu(x) * self.longest


@pytest.mark.parametrize(("layer", "fresh"), [(Drawing, 0), (Remembering, 0), (Remembering, 1)])
def test_a_layer_that_draws_or_remembers_is_caught(layer, fresh):
    """With a fresh head of zeros no gradient reaches the body, and everything would pass."""
    model = model_of(fresh=fresh)
    model.model.layers[0].mlp.act_fn = layer()
    refused(model)


def test_units_that_see_each_other_are_caught():
    """A loss that divides by the size of the batch, and one that subtracts its mean."""

    def mean(model, some):
        return losses(model, some) / len(some)

    def centered(model, some):
        each = losses(model, some)
        return softplus(each - each.mean())

    for loss in (mean, centered):
        model = model_of()

        def together(some, bound, loss=loss, model=model):
            total = ClippedSum(model, bound)
            for at in range(len(some)):
                total.add([lambda at=at: loss(model, some)[at]])
            return total.values()

        refused(model, loss, sums=together)


def test_a_gradient_that_is_no_number_is_refused():
    model = model_of()
    with torch.no_grad():
        model.score.weight[0, 0] = float("nan")
    message = refused(model)
    assert "nan" not in message


SAFE, READ = 32, 64
CODES = {
    "rope_type": "longrope", "rope_theta": 1e4, "factor": 2.0,
    "original_max_position_embeddings": SAFE, "short_factor": [1.0] * 4,
    "long_factor": [4.0, 5.0, 6.0, 7.0],
}  # fmt: skip


def built(kind, words, **more):
    """Return a tiny Llama."""
    torch.manual_seed(3)
    model = kind(
        LlamaConfig(
            vocab_size=words, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
            num_attention_heads=2, max_position_embeddings=READ, pad_token_id=0, **more,
        )
    )  # fmt: skip
    with torch.no_grad():
        for one in model.parameters():
            if one.dim() > 1:
                one.normal_(std=0.3)
    return model


@pytest.mark.deep
def test_positions_that_the_longest_row_decides_are_refused(central, tiny_llama):
    given = {"processing_class": load_tokenizer(tiny_llama), "terms": privacy(steps=2)}
    words = len(load_tokenizer(tiny_llama))
    for kind, built_as in (("dpo", LlamaForCausalLM), ("reward", LlamaForSequenceClassification)):
        more = {} if kind == "dpo" else {"num_labels": 1}
        model = built(built_as, words, rope_parameters=dict(CODES), **more)
        with pytest.raises(UsageError, match="max_length to at most 32"):
            central(model=model, kind=kind, **given)
        trainer = central(model=model, kind=kind, args={"max_length": SAFE}, **given)
        trained(trainer)


def test_a_reference_that_reads_texts_by_how_long_others_are_is_refused(central, tiny_llama):
    """What it makes of a record would follow the records that it read before."""
    tokenizer = load_tokenizer(tiny_llama)
    codes = {"rope_type": "dynamic", "factor": 4.0, "original_max_position_embeddings": SAFE}
    given = {"kind": "dpo", "model": built(LlamaForCausalLM, len(tokenizer))}
    for reference, problem in (
        (built(LlamaForCausalLM, len(tokenizer), rope_parameters=codes), "max_length to at most"),
        (built(LlamaForCausalLM, len(tokenizer), attention_type="block_sparse"), "a short one"),
        (built(LlamaForCausalLM, len(tokenizer) - 1), "resize_token_embeddings"),
    ):
        with pytest.raises(UsageError, match=problem):
            central(reference=reference, processing_class=tokenizer, **given)


def test_the_test_before_the_first_step_finds_them_too(tiny_llama):
    """Made-up units hold a text as long as any beside short ones."""
    tokenizer = load_tokenizer(tiny_llama)
    codes = {"rope_parameters": dict(CODES), "num_labels": 1}
    model = built(LlamaForSequenceClassification, len(tokenizer), **codes)

    padded = partial(losses, padding=tokenizer.pad_token_id)

    def in_batches(units, bound):
        """Clip the gradients of units that are read together."""
        total = ClippedSum(model, bound)
        for at in range(len(units)):
            total.add([lambda at=at: padded(model, units)[at]])
        return total.values()

    checks = padded, in_batches
    units = _invented_units(4, DialogueTokens(tokenizer, SAFE))
    refuse_shared_gradients(model, *checks, units)
    with pytest.raises(UsageError, match="depends on who else"):
        refuse_shared_gradients(model, *checks, _invented_units(4, DialogueTokens(tokenizer, READ)))


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(central, tiny_llama):
    tokenizer = load_tokenizer(tiny_llama)
    model = built(LlamaForCausalLM, len(tokenizer) - 1)
    with pytest.raises(UsageError, match="resize_token_embeddings"):
        central(model=model, kind="dpo", processing_class=tokenizer)


@pytest.mark.deep
def test_whether_a_run_is_refused_does_not_depend_on_a_record(central, tiny_llama):
    """A record whose gradient is no number adds nothing, and stops nothing."""
    tokenizer = load_tokenizer(tiny_llama)
    model = built(LlamaForCausalLM, len(tokenizer))
    trainer = central(model=model, kind="dpo", processing_class=tokenizer, terms=privacy(steps=2))
    first = trainer._units[0][0]
    units = [*trainer._units, *_invented_units(4, trainer._tokens)]
    used = {token for unit in units for pair in unit for token in (*pair.first, *pair.second)}
    ids = sorted({*range(len(tokenizer))} - used)
    bad = TokenPair([*first.first[:-1], ids[-1]], first.second, 1.0, first.answers)
    with torch.no_grad():
        model.get_input_embeddings().weight[ids[-1]] = torch.nan
    trainer._units.insert(0, (bad,))
    trained(trainer)
    weights = [one for one in trainer.model.parameters() if one.requires_grad]
    assert sum(int(one.isnan().any()) for one in weights) <= 1  # the embedding, as it was


def test_the_noise_is_normal_with_the_stated_size():
    """False alarms: 1e-6 for the Kolmogorov test, below 1e-6 for each moment (five errors)."""
    one, two = (torch.full(shape, 2.0, dtype=torch.float64) for shape in ((1000, 401), (7,)))
    add_gradient_noise([one, two], 3.0, entropy=entropy(11))
    noise = (one.flatten().numpy() - 2) / 3
    n = len(noise)
    assert abs(noise.mean()) < 5 / math.sqrt(n)
    assert abs(noise.var() - 1) < 5 * math.sqrt(2 / n)
    assert abs((noise**4).mean() - 3) < 5 * math.sqrt(96 / n)
    assert kstest(noise, "norm").pvalue > 1e-6
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 5 / math.sqrt(n)
    half = n // 2  # lengths and angles are shared by entries this far apart
    assert abs(np.corrcoef(noise[:half] ** 2, noise[-half:] ** 2)[0, 1]) < 5 / math.sqrt(half)
    assert not torch.equal(one[0, :7], two)


def test_it_reaches_every_entry_of_every_sum_and_none_that_is_rounded_already():
    sums = [torch.zeros(shape, dtype=torch.float64) for shape in ((3, 2), (1,), ())]
    add_gradient_noise(sums, 1.0, entropy=entropy(None))
    assert all(bool((one != 0).all()) for one in sums)
    rounded = torch.zeros(4)
    with pytest.raises(UsageError, match="64-bit"):
        add_gradient_noise([rounded], 1.0, entropy=entropy(None))
    assert not rounded.any()


def test_threads_draw_for_entries_of_their_own(monkeypatch):
    """Parts are of one size, and words are given out in blocks of it: whatever part a block falls
    to, the noise of all parts together is the same."""
    lock = Lock()

    class System:
        def __init__(self, randomness):
            self.randomness, self.threads = randomness, set()

        def words(self, n):
            assert n == 8
            self.threads.add(get_ident())
            sleep(0.001)  # so that another thread gets in between
            with lock:
                return next(taken)

    monkeypatch.setattr(clipping, "_CHUNK", 8)
    monkeypatch.setattr(clipping.os, "cpu_count", lambda: 4)
    found = {}
    for randomness in ("simulated", "system"):
        taken, source = iter(SimulatedEntropy(4).words(1200).reshape(-1, 8)), System(randomness)
        sums = [
            torch.zeros(shape, dtype=torch.float64) for shape in ((50, 16), (8,), (49, 8), (0,))
        ]
        add_gradient_noise(sums, 2.0, entropy=source)
        assert (len(source.threads) > 1) == (randomness == "system")
        found[randomness] = torch.cat([one.flatten() for one in sums])
        assert not list(taken)
    assert torch.equal(found["simulated"].sort().values, found["system"].sort().values)
    assert len(found["system"].unique()) == 1200


def test_it_is_seeded_for_simulation_alone():
    def drawn(seed):
        one = torch.zeros(9, dtype=torch.float64)
        add_gradient_noise([one], 1.0, entropy=entropy(seed))
        return one

    assert torch.equal(drawn(5), drawn(5))
    torch.manual_seed(0)
    first = drawn(None)
    torch.manual_seed(0)
    assert not torch.equal(first, drawn(None))


@pytest.mark.gpu
def test_an_accelerator_gives_the_same_sums_and_the_same_noise():
    if not torch.cuda.is_available():
        pytest.skip("there is no accelerator")
    found = {}
    for device in ("cpu", "cuda"):
        model = model_of(dropout=0.0).to(device)
        found[device] = summing(model)(few_units(), 1.0)
        assert {one.device.type for one in found[device]} == {device}
    gaps = (one - other.cpu() for one, other in zip(*found.values(), strict=True))
    assert math.hypot(*(float(one.norm()) for one in gaps)) < 1e-4
    assert math.hypot(*(float(one.norm()) for one in found["cpu"])) > 0.5
    noise = {device: torch.zeros(401, dtype=torch.float64, device=device) for device in found}
    for one in noise.values():
        add_gradient_noise([one], 3.0, entropy=entropy(11))
    torch.testing.assert_close(noise["cpu"], noise["cuda"].cpu(), rtol=1e-9, atol=1e-9)


def test_extreme_words_give_numbers():
    one = torch.zeros(6, dtype=torch.float64)
    add_gradient_noise([one], 1.0, entropy=Words([0, 2**64 - 1] * 8))
    assert bool(one.isfinite().all())
    assert 13.3 < float(one.abs().max()) < 13.4


def test_the_tail_does_not_end_where_a_word_does():
    """Behind a word of 0 the law goes on: KS test of 2,000 lengths, false alarm 1e-6, seeded."""

    class Zeros:
        randomness = "simulated"
        _rest = np.random.default_rng(5)

        def words(self, n):
            found = self._rest.integers(0, 2**64, size=n, dtype=np.uint64)
            if n == 4000:  # the others are what a small word is refined by
                found[:2000] = 0
            return found

    one = torch.zeros(4000, dtype=torch.float64)
    add_gradient_noise([one], 1.0, entropy=Zeros())
    squares = (one[:2000].square() + one[2000:].square()).numpy()
    assert squares.min() > 2 * 64 * math.log(2)
    assert kstest(np.exp(64 * math.log(2) - squares / 2), "uniform").pvalue > 1e-6


@pytest.mark.parametrize("size", [0.0, -1.0, math.nan, math.inf])
def test_noise_of_no_size_is_refused(size):
    with pytest.raises(UsageError, match="standard_deviation"):
        add_gradient_noise([torch.zeros(1).double()], size, entropy=entropy(None))


@given(st.floats(min_value=2.0**-60, max_value=1.0))
def test_the_realized_chance_is_never_more_than_stated(probability):
    realized = Fraction(sampling_threshold(probability), 2**64)
    assert realized <= Fraction(probability)
    assert realized <= Fraction(repr(probability))
    assert realized > Fraction(probability) * (1 - Fraction(1, 10**15)) - Fraction(2, 2**64)


def test_a_unit_takes_part_exactly_below_the_threshold():
    words = Words([0, sampling_threshold(0.3) - 1, sampling_threshold(0.3), 2**64 - 1])
    assert poisson_sample("abcd", 0.3, entropy=words) == ["a", "b"]
    assert words.left == []


@pytest.mark.parametrize("probability", [0.0, -0.1, 1.0000001, 2.0**-65, math.nan, math.inf])
def test_what_is_no_chance_is_refused(probability):
    with pytest.raises(UsageError, match="sampling_probability"):
        poisson_sample([1], probability, entropy=entropy(1))


def test_everybody_and_nobody():
    assert poisson_sample(range(5), 1.0, entropy=Words([2**64 - 1] * 5)) == list(range(5))
    assert poisson_sample([], 0.5, entropy=entropy(None)) == []
    assert poisson_sample(iter(range(3)), 0.5, entropy=Words([2**63] * 3)) == []


def test_more_units_than_are_read_at_once():
    """Any iterable will do, and nothing asks for its length."""
    n = (1 << 16) + 7
    assert poisson_sample((i for i in range(n)), 1.0, entropy=entropy(None)) == list(range(n))


def test_frequencies_and_independence():
    """False alarms: below 1e-6 for each of 5 comparisons, of five standard errors; seeded."""
    n, rounds, q = 40, 6_000, 0.2
    source = SimulatedEntropy(7)
    drawn = np.zeros((rounds, n))
    for row in drawn:
        row[poisson_sample(range(n), q, entropy=source)] = 1
    error = math.sqrt(q * (1 - q) / rounds)
    assert np.abs(drawn.mean(0) - q).max() < 6 * error  # the largest of 40
    sizes = drawn.sum(1)
    variance = n * q * (1 - q)
    assert abs(sizes.mean() - n * q) < 5 * math.sqrt(variance / rounds)
    assert abs(sizes.var() / variance - 1) < 5 * math.sqrt(2.1 / rounds)  # binomial: not fixed
    together = np.corrcoef(drawn[:, :-1].ravel(), drawn[:, 1:].ravel())[0, 1]
    assert abs(together) < 5 / math.sqrt(rounds * (n - 1))
    again = np.corrcoef(drawn[:-1].ravel(), drawn[1:].ravel())[0, 1]
    assert abs(again) < 5 / math.sqrt((rounds - 1) * n)


def test_one_unit_does_not_move_the_chance_of_another():
    """The same words for those before, whoever comes after."""
    few = poisson_sample(range(10), 0.5, entropy=entropy(3))
    many = poisson_sample(range(20), 0.5, entropy=entropy(3))
    assert few == [unit for unit in many if unit < 10]
