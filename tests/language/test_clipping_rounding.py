"""What a unit adds stays within the bound where terms of its norm cancel in 32-bit floats."""

import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import torch
from tests.language.test_pair_gradients import by_autograd, gradient

from sordino.language.clipping import _uses
from sordino.language.clipping.methods import PerPairClipping
from sordino.language.clipping.pair_gradients import PairGradients, rows_of_pairs

WORDS, WIDTH = 50, 256
HAIR = 1e-3  # by which two words differ


class Wide(torch.nn.Module):
    """One use of every kind whose norms are found from products of vectors, or from sums.

    What tokens add is summed by a head that is frozen, so that answers that are almost the same
    have gradients that almost cancel.
    """

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.words = torch.nn.Embedding(WORDS, WIDTH)
        self.words.weight.data[10] = self.words.weight.data[11] + HAIR * torch.randn(WIDTH)
        self.words.requires_grad_(requires_grad=kind in {"embedding", "tied"})
        self.layer = torch.nn.Linear(WIDTH, WORDS if kind == "tied" else WIDTH, bias=False)
        if kind == "tied":
            self.layer.weight = self.words.weight
        self.layer.requires_grad_(requires_grad=kind in {"linear", "tied"})
        self.norm = torch.nn.LayerNorm(WORDS if kind == "tied" else WIDTH)
        self.norm.requires_grad_(requires_grad=kind == "norm")

    def forward(self, ids):
        return self.norm(self.layer(self.words(ids))).sin().sum((1, 2))


@pytest.mark.parametrize("method", ["ghost", "hooks"])
@pytest.mark.parametrize("kind", ["linear", "embedding", "tied", "norm"])
def test_a_pair_of_almost_equal_answers_never_adds_more_than_the_bound(kind, method, monkeypatch):
    """Terms of its norm cancel in 32 bits, down to nothing; what it adds does not."""
    monkeypatch.setattr(_uses, "_LARGEST", 0.0)
    model, most, counted = Wide(kind), 0.0, 0
    for trial in range(15):
        generator = torch.Generator().manual_seed(trial)
        ids = torch.randint(12, WORDS, (1, 12), generator=generator).repeat(2, 1)
        ids[:, 5] = torch.tensor([10, 11])
        for bound in (1.0, 1e-3, 1e-5, 1e-7):
            model.zero_grad()
            units = PerPairClipping(model, rows_of_pairs(1), method)
            with units.listening():
                first, second = model(ids).chunk(2)
                (1e-2 * (first - second)).sum().backward()
            units.add_clipped(bound)
            added = float(gradient(model).norm()) / bound
            most, counted = max(most, added), counted + (added > 0.5)
    assert most <= 1
    assert counted >= 15, "bounds are not held by adding nothing"


def test_norms_that_cancel_are_found_again():
    """In 64 bits: 32 would leave an error of about 3e-4 of the norm of one answer."""
    model = Wide("linear")
    ids = torch.randint(12, WORDS, (4, 12), generator=torch.Generator().manual_seed(0))
    ids[2:] = ids[:2]
    ids[[0, 2], 5] = torch.tensor([10, 11])
    ids[3, 5] = 11  # this pair is no different from others
    units = PairGradients(model, rows_of_pairs(2))

    def losses():
        first, second = model(ids).chunk(2)
        return first - second

    with units.listening():
        losses().sum().backward()
    found = units.norms().double()
    expected = by_autograd(model.double(), losses()).norm(dim=1)
    assert expected[0] < 0.01 * expected[1]
    assert torch.allclose(found, expected, rtol=1e-3, atol=0)
