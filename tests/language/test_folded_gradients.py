"""Hooks of opacus, folded by pair: what they find, what they refuse, and that they leave no trace.

Norms and clipped sums are those of autograd, one pair at a time; so are those of the other method
in test_pair_gradients.py.
"""

from functools import partial

import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import torch
from opacus.grad_sample import GradSampleHooks
from opacus.grad_sample.gsm_base import OPACUS_PARAM_MONKEYPATCH_ATTRS
from opacus.layers import DPMultiheadAttention
from tests.language import test_self_test as tested
from tests.language.test_pair_gradients import (
    CASES,
    LENGTH,
    PAIRS,
    batch,
    by_autograd,
    gradient,
    made,
    reward_losses,
)  # fmt: skip
from torch import nn
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from sordino.errors import UsageError
from sordino.language import CentralPrivacy, CentralRewardConfig, CentralRewardTrainer
from sordino.language.central.unit_rows import rows_of_units
from sordino.language.clipping import folded_gradients, self_test
from sordino.language.clipping.folded_gradients import FoldedGradients
from sordino.language.clipping.methods import PerPairClipping
from sordino.language.clipping.pair_gradients import rows_of_pairs
from sordino.language.models._loading import quiet
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE

WIDTH = 8


def folded(model, losses, rows=None, *, units=None):
    """Return gradients of units after one forward and one backward pass."""
    found = PerPairClipping(model, rows_of_pairs(PAIRS) if units is None else units, "hooks")
    with found.listening():
        (losses(model, rows) if rows is not None else losses(model)).sum().backward()
    return found


def refused(model, losses, match, rows=None):
    before = traces(model)
    with pytest.raises(UsageError, match=match) as caught:
        folded(model, losses, rows)
    assert "Nothing was trained" in str(caught.value)
    assert traces(model) == before


def traces(model):
    """Return the names of hooks on a model, and of what opacus notes on it."""
    kinds = {"_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"}
    noted = {"activations", "max_batch_len", "ft_compute_sample_grad", "autograd_grad_sample_hooks"}
    found = set()
    for layer in model.modules():
        found |= {kind for kind in kinds if vars(layer)[kind]} | noted & set(vars(layer))
    for one in model.parameters():
        found |= set(OPACUS_PARAM_MONKEYPATCH_ATTRS) & set(vars(one))
    return found


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("architecture", "losses", "lora", "tied"), CASES)
def test_norms_and_clipped_sums_are_those_of_single_pairs(
    architecture, losses, lora, tied, training
):
    """Positions of GPT-2 are read once for all rows, and tied weights are used twice."""
    model, rows = made(architecture, losses, lora=lora, tied=tied).train(training), batch()
    single = by_autograd(model, losses(model, rows))
    norms = single.norm(dim=1)
    units = folded(model, losses, rows)
    assert torch.allclose(units.norms().double(), norms, rtol=1e-5, atol=0)
    bound = float(norms.median())
    assert torch.allclose(units.add_clipped(bound).double(), norms, rtol=1e-5, atol=0)
    expected = (single * (bound * (1 - 1e-4) / norms).clamp(max=1)[:, None]).sum(0)
    assert (gradient(model) - expected).norm() / expected.norm() < 1e-5
    assert traces(model) == set()


def test_a_person_is_all_rows_of_their_pairs_and_nobody_elses_number_breaks_theirs():
    model, rows = made("llama", reward_losses), batch()
    single = by_autograd(model, reward_losses(model, rows))
    people = torch.tensor([[1, 5, 2, 6, -1, -1], [0, 4, -1, -1, -1, -1], [3, 7, -1, -1, -1, -1]])
    units = folded(model, reward_losses, rows, units=people)
    expected = torch.stack([single[1] + single[2], single[0], single[3]])
    assert torch.allclose(units.norms().double(), expected.norm(dim=1), rtol=1e-5, atol=0)

    def broken(model):
        each = reward_losses(model, rows)
        return torch.cat([each[:1] * float("inf"), each[1:]])

    units = folded(model, broken, units=people)
    assert units.norms().isfinite().tolist() == [True, False, True]
    units.add_clipped(1e9)
    expected = single[1:].sum(0)
    assert (gradient(model) - expected).norm() / expected.norm() < 1e-5


def test_a_pair_never_adds_more_than_the_bound():
    """Two equal rows that pull the same way: clipped alone, they would add twice the bound."""
    model, rows = made("llama", reward_losses), batch(1)
    rows = {name: one[[0, 0]] if name != "use_cache" else one for name, one in rows.items()}

    def both(model):
        return model(**rows).logits[:, 0]

    for units, most in ((rows_of_pairs(1), 0.01), (torch.tensor([[0], [1]]), 0.02)):
        model.zero_grad()
        folded(model, both, units=units).add_clipped(0.01)
        assert 0.99 * most < gradient(model).norm() <= most


class Convolved(nn.Module):
    """Layers that the other method refuses, one used three times, and a padding token inside."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(20, WIDTH, padding_idx=0)
        self.near = nn.Conv1d(WIDTH, WIDTH, 3, padding="same")
        self.around = nn.Conv1d(WIDTH, WIDTH, 3, padding=1, padding_mode="circular")
        self.groups = nn.GroupNorm(2, WIDTH)
        self.attention = DPMultiheadAttention(WIDTH, 2, batch_first=True)
        self.twice = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, bias=False)
        self.odd = Scaled()
        self.head = nn.Linear(WIDTH, 1)
        for one in self.parameters():
            nn.init.normal_(one, std=0.4)

    def forward(self, ids):
        x = self.words(ids).mT
        x = self.groups(self.around(self.near(x))).mT
        x = x + self.attention(x, x, x)[0]
        x = self.twice(torch.tanh(self.twice(x))) + self.twice(x)
        return self.head(self.odd(self.norm(x))).sum(1)[:, 0]


class Scaled(nn.Module):
    """A layer with a parameter and a layer of its own."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.sin(self.inner(x) * self.scale)


def word_ids():
    return torch.randint(0, 20, (2 * PAIRS, LENGTH), generator=torch.Generator().manual_seed(2))


def margins(model):
    preferred, other = model(word_ids()).chunk(2)
    return torch.nn.functional.softplus(other - preferred)


def test_layers_that_the_other_method_refuses_are_served():
    model = Convolved()
    single = by_autograd(model, margins(model))
    norms = single.norm(dim=1)
    with pytest.raises(UsageError, match="'near' is a Conv1d"):
        PerPairClipping(model, rows_of_pairs(PAIRS)).listening().__enter__()
    units = folded(model, margins)
    assert torch.allclose(units.norms().double(), norms, rtol=1e-5, atol=0)
    units.add_clipped(1e9)
    assert (gradient(model) - single.sum(0)).norm() / single.sum(0).norm() < 1e-5


class Small(nn.Module):
    """An embedding and a head, with something between."""

    def __init__(self, between, read=None, **words):
        super().__init__()
        self.words = nn.Embedding(20, WIDTH, **words)
        self.between = between
        self.head = nn.Linear(WIDTH, 1)
        self.read = read or (lambda layer, x: layer(x))

    def forward(self, ids):
        x = self.words(ids)
        x = x if self.between is None else self.read(self.between, x)
        return self.head(x).sum(1)[:, 0]


class Reader(nn.Module):
    """A layer that reads something besides, by name."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x, *, factor=1.0):
        return x * self.weight * factor


class Spread(nn.Module):
    """A layer that reads one row and returns it for all."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return (x * self.weight).expand(2 * PAIRS, LENGTH, WIDTH)


UNKNOWN = {
    "Spread": (Spread(), lambda layer, x: x * layer(torch.ones(1, LENGTH, WIDTH))),
    "MultiheadAttention": (
        nn.MultiheadAttention(WIDTH, 2, batch_first=True), lambda layer, x: layer(x, x, x)[0],
    ),
    "LSTM": (nn.LSTM(WIDTH, WIDTH, batch_first=True), lambda layer, x: layer(x)[0]),
    "BatchNorm1d": (nn.BatchNorm1d(LENGTH), None),
    "Reader": (Reader(), lambda layer, x: layer(x, factor=2.0)),
    "Linear": (nn.Linear(WIDTH, WIDTH), lambda layer, x: layer(x.flatten(0, 1)).view_as(x)),
    "LayerNorm": (nn.LayerNorm(WIDTH), lambda layer, x: layer(x.mT.mT.transpose(0, 1)).mT.mT.transpose(0, 1)),  # noqa: E501
}  # fmt: skip


@pytest.mark.parametrize("kind", UNKNOWN)
def test_a_layer_whose_rows_cannot_be_told_apart_is_refused_by_name(kind):
    refused(Small(*UNKNOWN[kind]), margins, f"'between' is a {kind}")


def test_embeddings_that_depend_on_the_whole_batch_are_refused():
    for how in ({"max_norm": 1.0}, {"scale_grad_by_freq": True}):
        refused(Small(None, **how), margins, "'words' is a Embedding")


def test_a_parameter_that_no_layer_told_of_is_refused():
    model = Small(nn.Linear(WIDTH, WIDTH), lambda layer, x: linear(x, layer.weight))
    refused(model, margins, r"'between.weight' was seen, and 1 more")


def test_a_use_that_the_loss_leaves_out_is_refused():
    def read(layer, x):
        layer(x)
        return layer(x)

    refused(Small(nn.Linear(WIDTH, WIDTH), read), margins, "'between.weight' was used where no")


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_layers_that_recompute_themselves_are_refused(architecture):
    model, rows = made(architecture, reward_losses), batch()
    model.activation_checkpointing_enable()
    refused(model, reward_losses, "recomputes itself", rows)
    model.eval()  # then they do not
    folded(model, reward_losses, rows)


def test_recomputing_by_hand_is_right_or_refused():
    """What is recorded and then recomputed counts twice; what is only recomputed counts once."""

    def how(*, reentrant):
        once = partial(checkpoint, use_reentrant=reentrant)
        return lambda layer, x: once(layer, once(layer, x))

    def two():
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))

    refused(Small(two(), how(reentrant=False)), margins, r"'between.0.weight' was used where no")
    model = Small(two(), how(reentrant=True))
    norms = folded(model, margins).norms()
    model.read = lambda layer, x: layer(layer(x))
    assert torch.allclose(norms.double(), by_autograd(model, margins(model)).norm(dim=1), rtol=1e-5)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # what is outside is not ours
def test_gradients_and_layers_are_put_back_after_an_error_too():
    model, rows = made("gpt2", reward_losses), batch()
    before = torch.ones_like(model.score.weight)
    model.score.weight.grad = before

    def stop(model, rows):
        loss = reward_losses(model, rows)
        loss.sum().backward(retain_graph=True)
        graphs.append(loss)
        raise RuntimeError("stop")

    graphs = []
    with pytest.raises(RuntimeError, match="stop"):
        folded(model, stop, rows)
    assert traces(model) == set()
    assert model.score.weight.grad is before
    assert torch.equal(before, torch.ones_like(before))
    assert model.transformer.wte.weight.grad is None
    graphs[0].sum().backward()  # its hooks are still there, and keep silent
    assert traces(model) == set()


def test_hooks_of_somebody_else_stay():
    model = Small(None)
    GradSampleHooks(model, loss_reduction="sum")
    with pytest.raises(UsageError, match="on the model already"):
        folded(model, margins)
    assert traces(model) != set()


def test_other_methods_and_16_bit_arithmetic_are_refused(tmp_path):
    model = Small(None)
    with pytest.raises(UsageError, match="'ghost', 'hooks'"):
        PerPairClipping(model, rows_of_pairs(PAIRS), "rows")
    with pytest.raises(UsageError, match="clipping"):
        CentralRewardConfig(str(tmp_path), clipping="rows").check()
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(UsageError, match="32-bit"):
        folded(model, margins)


def test_the_test_before_the_first_step_passes_hooks_and_refuses_a_wrong_folding(monkeypatch):
    """Clipping by row, and a row that is left out."""
    given = tested.losses, rows_of_units, tested.units(), "hooks"
    model = tested.model_of()
    assert max(self_test.differences_from_autograd(model, *given)) < 1e-5
    with monkeypatch.context() as planted:
        planted.setattr(folded_gradients, "FoldedGradients", tested.by_row(FoldedGradients))
        with pytest.raises(UsageError, match="nothing was spent"):
            self_test.refuse_wrong_gradients(model, *given)
    take = FoldedGradients._take
    second = torch.tensor([1])
    monkeypatch.setattr(
        FoldedGradients, "_take", lambda units, p, g: take(units, p, g.index_fill(0, second, 0.0))
    )
    with pytest.raises(UsageError, match="nothing was spent"):
        self_test.refuse_wrong_gradients(model, *given)


@pytest.fixture
def trained(tiny_llama, word_pairs, ledger_of, tmp_path):
    """Return a maker of trainers that took their steps."""

    def make(**args):
        privacy = CentralPrivacy(
            4.0, 1e-5, unit="record", neighbors=ADD_OR_REMOVE_ONE, sampling_probability=0.25,
            steps=3, expected_batch=10,
        )  # fmt: skip
        usual = {"save_strategy": "no", "disable_tqdm": True, "learning_rate": 3e-3}
        trainer = CentralRewardTrainer(
            str(tiny_llama),
            CentralRewardConfig(str(tmp_path / "run"), **usual, **args),
            train_dataset=word_pairs(40), privacy=privacy, ledger=ledger_of(), simulate_seed=7,
        )  # fmt: skip
        with quiet():
            trainer.train()
        return trainer

    return make


def test_training_ends_with_the_same_weights_by_both_methods(trained, monkeypatch):
    calls, take = [], FoldedGradients._take
    monkeypatch.setattr(FoldedGradients, "_take", lambda *a: calls.append(1) or take(*a))
    one = trained()
    assert not calls
    other = trained(clipping="hooks")
    assert calls
    for ghost, hooks in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert torch.allclose(ghost, hooks, rtol=0, atol=2e-5)
    assert one._promise.guarantee == other._promise.guarantee
    assert traces(other.model) == set()


def test_layers_that_recompute_themselves_are_refused_before_anything_is_spent(trained):
    with pytest.raises(UsageError, match="clipping='ghost'"):
        trained(clipping="hooks", activation_checkpointing=True)
