"""The test before the first step passes what is right, catches what is not, leaves no trace."""

import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import torch
from torch.nn.functional import softplus
from transformers import AutoModelForSequenceClassification, GPT2Config, LlamaConfig

from sordino.errors import UsageError
from sordino.language.dp_sgd.clipping import ClippedSum, differences, refuse_shared_gradients
from sordino.language.dp_sgd.trainers import reward_losses
from sordino.language.dp_sgd.training import TokenPair


def losses(model, units):
    return reward_losses(model, units, padding=0)


def units(n=4):
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


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("recomputed", [False, True])
def test_right_gradients_pass(architecture, fresh, recomputed):
    model = model_of(architecture, fresh=fresh)
    if recomputed:
        model.activation_checkpointing_enable()
    found = differences(model, losses, summing(model), units())
    assert found.gradients < 1e-5
    assert found.partners < 1e-12
    assert found.moved <= 1
    assert refuse_shared_gradients(model, losses, summing(model), units()) is None


def test_nothing_is_left_behind():
    model = model_of(fresh=True)
    model.score.weight.grad = torch.ones_like(model.score.weight)
    model.model.norm.eval()
    before = {name: one.clone() for name, one in model.named_parameters()}
    modes = [layer.training for layer in model.modules()]
    state = torch.get_rng_state()
    differences(model, losses, summing(model), units())
    assert all(torch.equal(before[name], one) for name, one in model.named_parameters())
    assert modes == [layer.training for layer in model.modules()]
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(model.score.weight.grad, torch.ones_like(model.score.weight))
    assert sum(one.grad is not None for one in model.parameters()) == 1


def refused(model=None, loss=losses, kind=ClippedSum, sums=None):
    model = model or model_of()
    with pytest.raises(UsageError, match="nothing was spent") as caught:
        refuse_shared_gradients(model, loss, sums or summing(model, loss, kind), units())
    return str(caught.value)


def test_pairs_of_a_unit_that_are_clipped_one_by_one_are_caught():
    class PairByPair(ClippedSum):
        def add(self, losses):
            for loss in losses:
                super().add([loss])

    refused(kind=PairByPair)


def test_a_norm_that_is_too_small_is_caught():
    """By one thousandth: then every unit adds so much more than the bound."""

    class Short(ClippedSum):
        def __init__(self, model, bound):
            super().__init__(model, bound * 1.001)

    refused(kind=Short)


def test_a_norm_that_depends_on_how_many_there_are_is_caught():
    class Crowded(ClippedSum):
        def _clipped(self):
            self._bound *= 1 - 1e-4 * self._units
            return super()._clipped()

    refused(kind=Crowded)


def test_reading_units_together_is_caught_where_layers_draw():
    """Dropout that stays on: one unit more, and the coins of all others are new."""
    model = model_of()
    model.model.layers[0].mlp.act_fn = Drawing()
    refused(model)


class Drawing(torch.nn.Module):
    """Draws whatever the mode is."""

    def forward(self, x):
        return torch.nn.functional.dropout(x, 0.2, training=True)


class Remembering(torch.nn.Module):
    """Scales by the longest text that it ever read."""

    longest = 0

    def forward(self, x):
        self.longest = max(self.longest, x.shape[1])
        return torch.nn.functional.silu(x) * self.longest


def test_a_layer_that_remembers_is_caught():
    model = model_of()
    model.model.layers[0].mlp.act_fn = Remembering()
    refused(model)


def test_a_fresh_head_does_not_hide_a_wrong_body():
    """With a head of zeros no gradient reaches the body, and everything about it would pass."""
    model = model_of(fresh=True)
    model.model.layers[0].mlp.act_fn = Remembering()
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
