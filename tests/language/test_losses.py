"""The losses for gradients are those that the arrays have."""

import math

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra 'language' is not installed")

import torch

from sordino.errors import UsageError
from sordino.language.training.losses import (
    LOSSES,
    debiased_preference_loss,
    mixture_preference_loss,
)
from sordino.rewards.pair_losses import debias, debiased_loss, mixture_negative_log_likelihood

MARGINS = np.array([-40.0, -3.0, -0.5, 0.0, 1e-3, 0.7, 5.0, 60.0])
FLIPS = [0.0, 1e-6, 0.1, 0.2689414213699951, 0.45]


def torch_loss(name, flip, dtype=torch.float64):
    margins = torch.tensor(MARGINS, dtype=dtype, requires_grad=True)
    losses = LOSSES[name](margins, flip)
    losses.sum().backward()
    return losses.detach().numpy(), margins.grad.numpy()


@pytest.mark.parametrize("flip", FLIPS)
def test_the_debiased_loss_is_that_of_the_arrays(flip):
    found, slope = torch_loss("debiased", flip)
    target = debias(np.ones(len(MARGINS), dtype=int), flip)
    np.testing.assert_allclose(found, debiased_loss(MARGINS, target), atol=1e-6)
    np.testing.assert_allclose(slope, 1 / (1 + np.exp(-MARGINS)) - target, atol=1e-6)


@pytest.mark.parametrize("flip", FLIPS)
def test_the_mixture_loss_is_that_of_the_arrays(flip):
    found, slope = torch_loss("mixture", flip)
    epsilon = math.log((1 - flip) / flip) if flip else math.inf
    expected = mixture_negative_log_likelihood(epsilon, MARGINS, np.ones(len(MARGINS), dtype=int))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.isfinite(slope).all()
    step = 1e-5
    up, down = (
        mixture_negative_log_likelihood(epsilon, MARGINS + s, np.ones(len(MARGINS), dtype=int))
        for s in (step, -step)
    )
    np.testing.assert_allclose(slope, (up - down) / (2 * step), atol=1e-6)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_without_flips_both_are_the_logistic_loss(name):
    found, slope = torch_loss(name, 0.0)
    np.testing.assert_allclose(found, np.logaddexp(0, -MARGINS), atol=1e-6)
    np.testing.assert_allclose(slope, -1 / (1 + np.exp(MARGINS)), atol=1e-6)


@pytest.mark.parametrize("flip", FLIPS)
def test_the_mean_over_the_flips_is_the_loss_of_the_true_label(flip):
    margins = torch.tensor(MARGINS)
    mean = (1 - flip) * debiased_preference_loss(margins, flip) + flip * debiased_preference_loss(
        -margins, flip
    )
    np.testing.assert_allclose(mean, np.logaddexp(0, -MARGINS), atol=1e-6)


def test_the_mixture_loss_is_bounded_where_an_answer_contradicts():
    assert float(mixture_preference_loss(torch.tensor(-1e4), 0.2)) == pytest.approx(-math.log(0.2))


def test_32_bits_are_kept_and_finite():
    for name in LOSSES:
        for flip in FLIPS:
            found, slope = torch_loss(name, flip, torch.float32)
            assert found.dtype == np.float32
            assert np.isfinite(found).all()
            assert np.isfinite(slope).all()


@pytest.mark.parametrize("flip", [0.5, 0.7, -0.1, math.nan])
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_a_coin_that_says_nothing_is_refused(name, flip):
    with pytest.raises(UsageError, match="flip_probability must be"):
        LOSSES[name](torch.zeros(2), flip)
