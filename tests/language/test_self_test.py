"""The test before the first step passes what is right, catches what is not, leaves no trace."""

import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import torch
from torch.nn.functional import softplus
from transformers import AutoModelForSequenceClassification, GPT2Config, LlamaConfig

from sordino.errors import UsageError
from sordino.language.central.unit_rows import TokenPair, reward_losses, rows_of_units
from sordino.language.clipping import _taps, _uses, methods, pair_gradients
from sordino.language.clipping.self_test import differences_from_autograd, refuse_wrong_gradients


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


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("recomputed", [False, True])
def test_right_gradients_pass(architecture, fresh, recomputed):
    model = model_of(architecture, fresh=fresh)
    if recomputed:
        model.activation_checkpointing_enable()
    found = differences_from_autograd(model, losses, rows_of_units, units())
    assert max(found) < 1e-5
    assert refuse_wrong_gradients(model, losses, rows_of_units, units()) is None


def test_nothing_is_left_behind():
    model = model_of(fresh=True)
    model.score.weight.grad = torch.ones_like(model.score.weight)
    model.model.norm.eval()
    before = {name: one.clone() for name, one in model.named_parameters()}
    modes = [layer.training for layer in model.modules()]
    state = torch.get_rng_state()
    differences_from_autograd(model, losses, rows_of_units, units())
    assert all(torch.equal(before[name], one) for name, one in model.named_parameters())
    assert modes == [layer.training for layer in model.modules()]
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(model.score.weight.grad, torch.ones_like(model.score.weight))
    assert sum(one.grad is not None for one in model.parameters()) == 1


def refused(model=None, loss=losses):
    with pytest.raises(UsageError, match="nothing was spent") as caught:
        refuse_wrong_gradients(model or model_of(), loss, rows_of_units, units())
    return str(caught.value)


def by_row(kind):
    """Return a way to clip with the usual mistake: rows of a unit are clipped one by one."""

    class ByRow(kind):
        def __init__(self, model, rows):
            super().__init__(model, torch.arange(int(rows.max()) + 1)[:, None])
            self.units, self.alone = rows, super().norms

        def norms(self):
            apart = self.alone()
            return torch.stack([apart[rows[rows >= 0]].norm() for rows in self.units])

        def add_clipped(self, bound):
            self.norms = self.alone
            return super().add_clipped(bound)

    return ByRow


def test_clipping_row_by_row_is_caught(monkeypatch):
    monkeypatch.setattr(methods, "PairGradients", by_row(pair_gradients.PairGradients))
    refused()


def test_a_norm_that_is_too_small_is_caught(monkeypatch):
    """By one thousandth: then every unit adds so much more than the bound."""
    real = pair_gradients.PairGradients.norms
    monkeypatch.setattr(pair_gradients.PairGradients, "norms", lambda units: real(units) * 0.999)
    refused()


@pytest.mark.parametrize("layer", ["_Linear", "_Scale", "_Embedding"])
def test_a_layer_with_a_wrong_gradient_is_caught(monkeypatch, layer):
    """One thousandth too short, in one kind of layer."""
    kind = getattr(_taps, layer)
    backward = kind.backward

    def wrong(ctx, g):
        return backward(ctx, g * 0.999)

    monkeypatch.setattr(kind, "backward", staticmethod(wrong))
    refused()


def test_a_fresh_head_does_not_hide_a_wrong_body(monkeypatch):
    """With a head of zeros no gradient reaches the body, and everything about it would pass."""
    backward = _taps._Embedding.backward
    monkeypatch.setattr(
        _taps._Embedding, "backward", staticmethod(lambda ctx, g: backward(ctx, 2 * g))
    )
    refused(model_of(fresh=True))


def test_sums_that_are_wrong_where_norms_are_right_are_caught(monkeypatch):
    real = _uses.Share.clipped_sum
    monkeypatch.setattr(_uses.Share, "clipped_sum", lambda *a: real(*a) * 1.001)
    refused()


def test_units_that_see_each_other_are_caught():
    """A loss that divides by the size of the batch, and one that subtracts its mean."""

    def mean(model, some):
        return losses(model, some) / len(some)

    def centered(model, some):
        each = losses(model, some)
        return softplus(each - each.mean())

    for loss in (mean, centered):
        refused(loss=loss)


def test_a_gradient_that_is_no_number_is_refused():
    model = model_of()
    with torch.no_grad():
        model.score.weight[0, 0] = float("nan")
    message = refused(model)
    assert "nan" not in message
