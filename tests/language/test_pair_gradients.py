"""Norms and clipped sums of whole pairs equal those of autograd, one pair at a time."""

import warnings
from contextlib import contextmanager

import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import torch
from peft import LoraConfig, get_peft_model
from torch.nn.functional import softplus
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    GPT2Config,
    LlamaConfig,
)

from sordino.errors import UsageError
from sordino.language.clipping import _uses
from sordino.language.clipping.methods import PerPairClipping
from sordino.language.clipping.pair_gradients import PairGradients, rows_of_pairs

PAIRS, LENGTH, WORDS = 4, 9, 50


def config(architecture, *, tied=False):
    sizes = {"vocab_size": WORDS, "pad_token_id": 0, "num_labels": 1, "tie_word_embeddings": tied}
    if architecture == "gpt2":
        off = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
        return GPT2Config(n_embd=12, n_layer=2, n_head=2, n_positions=16, **off, **sizes)
    return LlamaConfig(
        hidden_size=12, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=16, attention_bias=True, **sizes,
    )  # fmt: skip


@contextmanager
def quietly():
    """Let peft call what transformers has renamed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def batch(pairs=PAIRS):
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, WORDS, (2 * pairs, LENGTH), generator=generator)
    lengths = torch.randint(4, LENGTH + 1, (2 * pairs, 1), generator=generator)
    mask = (torch.arange(LENGTH) < lengths).long()
    return {"input_ids": ids * mask, "attention_mask": mask, "use_cache": False}


def reward_losses(model, rows):
    rewards = model(**rows).logits[:, 0]
    preferred, other = rewards.chunk(2)
    return softplus(other - preferred)


def dpo_losses(model, rows):
    logits = model(**rows).logits[:, :-1].log_softmax(-1)
    chosen = rows["input_ids"][:, 1:, None]
    sums = (logits.gather(2, chosen)[:, :, 0] * rows["attention_mask"][:, 1:]).sum(1)
    preferred, other = sums.chunk(2)
    return softplus(0.1 * (other - preferred))


def made(architecture, losses, *, lora=False, tied=False):
    torch.manual_seed(0)
    kind = AutoModelForSequenceClassification if losses is reward_losses else AutoModelForCausalLM
    model = kind.from_config(config(architecture, tied=tied)).train()
    for parameter in model.parameters():  # no bias at 0, no weight at 1
        torch.nn.init.normal_(parameter, std=0.3)
    if not lora:
        return model
    task = "SEQ_CLS" if losses is reward_losses else "CAUSAL_LM"
    turned = {"fan_in_fan_out": architecture == "gpt2"}
    with quietly():
        adapted = get_peft_model(
            model, LoraConfig(r=3, target_modules="all-linear", task_type=task, **turned)
        )
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    return adapted


def by_autograd(model, each):
    """Return the gradient of each unit as one long row, in double precision."""
    trained = [one for one in model.parameters() if one.requires_grad]
    found = [
        torch.autograd.grad(loss, trained, retain_graph=True, allow_unused=True) for loss in each
    ]
    return torch.stack([
        torch.cat([
            (torch.zeros_like(one) if g is None else g).flatten().double()
            for g, one in zip(row, trained, strict=True)
        ])
        for row in found
    ])  # fmt: skip


def gradient(model):
    return torch.cat([
        one.grad.flatten().double() for one in model.parameters() if one.requires_grad
    ])  # fmt: skip


CASES = [
    (architecture, losses, lora, False)
    for architecture in ("llama", "gpt2")
    for losses in (reward_losses, dpo_losses)
    for lora in (False, True)
] + [("llama", dpo_losses, False, True), ("gpt2", dpo_losses, False, True)]


@pytest.mark.parametrize("largest", [0.0, _uses._LARGEST, 1e9])
@pytest.mark.parametrize(("architecture", "losses", "lora", "tied"), CASES)
def test_norms_and_clipped_sums_are_those_of_single_pairs(
    architecture, losses, lora, tied, largest, monkeypatch
):
    """By Gram matrices, by gradients of units, and as the sizes of the layers decide."""
    monkeypatch.setattr(_uses, "_LARGEST", largest)
    model, rows = made(architecture, losses, lora=lora, tied=tied), batch()
    single = by_autograd(model, losses(model, rows))
    norms = single.norm(dim=1)
    units = PairGradients(model, rows_of_pairs(PAIRS))
    with units.listening():
        losses(model, rows).sum().backward()
    assert torch.allclose(units.norms().double(), norms, rtol=1e-5, atol=0)
    bound = float(norms.median())
    counted = units.add_clipped(bound).double() / norms
    assert counted.min() > 1 - 1e-5
    assert counted.max() < 1 + 1e-4, "what is proved of rounding hardly clips more"
    factors = (bound / norms / counted).clamp(max=1)
    expected = (single * factors[:, None]).sum(0)
    error = (gradient(model) - expected).norm() / expected.norm()
    assert error < 1.2e-4, "the rounding that is kept free, and nothing else"


def test_a_pair_never_adds_more_than_the_bound():
    """Each pair alone, at bounds below and above its norm."""
    model, rows = made("llama", reward_losses), batch(1)
    for bound in (1e-3, 0.1, 1e3):
        model.zero_grad()
        units = PairGradients(model, rows_of_pairs(1))
        with units.listening():
            reward_losses(model, rows).sum().backward()
        units.add_clipped(bound)
        assert gradient(model).norm() <= bound


def test_row_by_row_clipping_would_let_a_pair_add_twice_the_bound():
    """What the usual hooks do: rows are clipped, and a pair is two of them."""
    model, rows = made("llama", reward_losses), batch(1)
    rows = {**rows, "input_ids": rows["input_ids"][[0, 0]], "attention_mask": rows["attention_mask"][[0, 0]]}  # fmt: skip  # noqa: E501

    def apart(found, rows):
        rewards = found(**rows).logits[:, 0]
        return rewards.sum()  # both rows pull the same way

    def added(units):
        model.zero_grad()
        gradients = PairGradients(model, units)
        with gradients.listening():
            apart(model, rows).backward()
        gradients.add_clipped(0.01)
        return float(gradient(model).norm())

    assert added(torch.tensor([[0], [1]])) > 0.0199
    assert added(rows_of_pairs(1)) <= 0.01


def test_a_person_is_all_rows_of_their_pairs():
    model, rows = made("gpt2", reward_losses), batch()
    single = by_autograd(model, reward_losses(model, rows))
    people = torch.tensor([[0, 4, 2, 6, -1, -1], [1, 5, -1, -1, -1, -1], [3, 7, -1, -1, -1, -1]])
    units = PairGradients(model, people)
    with units.listening():
        reward_losses(model, rows).sum().backward()
    expected = torch.stack([single[0] + single[2], single[1], single[3]]).norm(dim=1)
    assert torch.allclose(units.norms().double(), expected, rtol=1e-5, atol=0)


def test_a_gradient_that_is_no_number_adds_nothing():
    model, rows = made("llama", reward_losses), batch()
    clean = PairGradients(model, rows_of_pairs(PAIRS))

    def losses():
        each = reward_losses(model, rows)
        return torch.cat([each[:1] * broken, each[1:]]).sum()

    broken = 0.0
    with clean.listening():
        losses().backward()
    clean.add_clipped(1.0)
    expected = gradient(model)
    model.zero_grad()
    broken = float("inf")
    units = PairGradients(model, rows_of_pairs(PAIRS))
    with units.listening():
        losses().backward()
    assert not bool(units.add_clipped(1.0)[0].isfinite())
    assert torch.allclose(gradient(model), expected, atol=1e-9)


@pytest.mark.parametrize("largest", [0.0, 1e9])
def test_a_broken_gradient_of_one_person_takes_nobody_else_along(largest, monkeypatch):
    """Padding must not stand for a row of somebody whose gradient is no number."""
    monkeypatch.setattr(_uses, "_LARGEST", largest)
    model, rows = made("llama", reward_losses), batch()
    people = torch.tensor([[1, 5, 2, 6, -1, -1], [0, 4, -1, -1, -1, -1], [3, 7, -1, -1, -1, -1]])
    single = by_autograd(model, reward_losses(model, rows))
    units = PairGradients(model, people)
    with units.listening():
        each = reward_losses(model, rows)
        torch.cat([each[:1] * float("inf"), each[1:]]).sum().backward()
    assert units.norms().isfinite().tolist() == [True, False, True]
    units.add_clipped(1e9)
    expected = single[1:].sum(0)
    assert (gradient(model) - expected).norm() / expected.norm() < 1.2e-4


class Heads(torch.nn.Module):
    """A norm within each head, whose scale all heads share, and a head that reads one vector."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(6, 12)
        self.norm, self.last = torch.nn.LayerNorm(3), torch.nn.Linear(12, 1)

    def forward(self, x):
        heads = self.norm(self.first(x).unflatten(2, (4, 3)))
        return self.last(heads.flatten(2).sin().sum(1))[:, 0]


@pytest.mark.parametrize("method", ["ghost", "hooks"])
@pytest.mark.parametrize("largest", [0.0, 1e9])
def test_a_scale_that_heads_share_has_one_gradient(method, largest, monkeypatch):
    monkeypatch.setattr(_uses, "_LARGEST", largest)
    model, x = Heads(), torch.randn(2 * PAIRS, LENGTH, 6, requires_grad=True)
    single = by_autograd(model, [sum(pair) for pair in zip(*model(x).chunk(2), strict=True)])
    units = PerPairClipping(model, rows_of_pairs(PAIRS), method)
    with units.listening():
        model(x).sum().backward()
    assert torch.allclose(units.norms().double(), single.norm(dim=1), rtol=1e-5, atol=0)
    units.add_clipped(1e9)
    assert torch.allclose(gradient(model), single.sum(0), rtol=1e-4, atol=1e-4)


class Doubled(torch.nn.Embedding):
    """An embedding with a forward pass of its own."""

    def forward(self, ids):
        return 2 * super().forward(ids)


def test_descendants_of_known_layers_are_not_taken_for_them():
    model, rows = made("llama", reward_losses), batch()
    model.model.embed_tokens = Doubled(WORDS, 12)
    units = PairGradients(model, rows_of_pairs(PAIRS))
    with pytest.raises(UsageError, match=r"'model.embed_tokens' is a Doubled"), units.listening():
        reward_losses(model, rows).sum().backward()


def test_gradient_checkpointing_changes_nothing():
    model, rows = made("llama", reward_losses), batch()
    expected = by_autograd(model, reward_losses(model, rows)).norm(dim=1)
    model.activation_checkpointing_enable()
    units = PairGradients(model, rows_of_pairs(PAIRS))
    with units.listening():
        reward_losses(model, rows).sum().backward()
    assert torch.allclose(units.norms().double(), expected, rtol=1e-5, atol=0)


def test_layers_are_put_back():
    model, rows = made("llama", reward_losses), batch()
    before = reward_losses(model, rows)
    units = PairGradients(model, rows_of_pairs(PAIRS))
    with pytest.raises(RuntimeError, match="stop"), units.listening():
        raise RuntimeError("stop")
    assert not any("forward" in vars(layer) for layer in model.modules())
    assert torch.equal(reward_losses(model, rows), before)


class Odd(torch.nn.Module):
    """A layer whose parameter enters in its own way."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(12))

    def forward(self, x):
        return x**2 * self.weight


def test_a_row_of_two_units_is_refused():
    model = made("llama", reward_losses)
    with pytest.raises(UsageError, match="one unit"):
        PairGradients(model, torch.tensor([[0, 4], [1, 4]]))


def test_what_is_not_known_is_refused_by_name():
    model, rows = made("llama", reward_losses), batch()
    model.model.norm = Odd()
    units = PairGradients(model, rows_of_pairs(PAIRS))
    with pytest.raises(UsageError, match=r"'model.norm' is a Odd"), units.listening():
        reward_losses(model, rows).sum().backward()
    model.model.norm.requires_grad_(requires_grad=False)
    with units.listening():
        reward_losses(model, rows).sum().backward()


def test_a_parameter_that_no_layer_told_of_is_refused():
    model, rows = made("llama", reward_losses), batch()
    model.unused = torch.nn.Linear(3, 3)
    units = PairGradients(model, rows_of_pairs(PAIRS))
    with (
        pytest.raises(UsageError, match=r"'unused.weight' was seen, and 1 more"),
        units.listening(),
    ):
        reward_losses(model, rows).sum().backward()


def test_half_precision_and_another_batch_are_refused():
    model, rows = made("llama", reward_losses), batch()
    units = PairGradients(model, rows_of_pairs(PAIRS))
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(UsageError, match="32-bit"),
        units.listening(),
    ):
        reward_losses(model, rows).sum().backward()
    units = PairGradients(model, rows_of_pairs(PAIRS + 1))
    with pytest.raises((UsageError, RuntimeError)), units.listening():
        reward_losses(model, rows).sum().backward()


def hooked(kind):
    model, rows = made("llama", reward_losses), batch()
    handle = getattr(model.model.norm.weight, kind)(lambda one: None)
    return model, rows, handle


@pytest.mark.parametrize("method", ["ghost", "hooks"])
@pytest.mark.parametrize("kind", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_that_see_gradients_before_they_are_clipped_are_refused(kind, method):
    model, rows, handle = hooked(kind)
    units = PerPairClipping(model, rows_of_pairs(PAIRS), method)
    with pytest.raises(UsageError, match=r"'model.norm.weight' has hooks"), units.listening():
        pytest.fail("nothing runs")
    handle.remove()
    with units.listening():
        reward_losses(model, rows).sum().backward()


def test_hooks_on_frozen_parameters_see_nothing_and_may_stay():
    model, rows, _ = hooked("register_hook")
    model.model.norm.requires_grad_(requires_grad=False)
    units = PairGradients(model, rows_of_pairs(PAIRS))
    with units.listening():
        reward_losses(model, rows).sum().backward()
