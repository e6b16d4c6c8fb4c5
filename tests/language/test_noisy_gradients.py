"""Noise on gradients: its distribution, and whom it reaches."""

import math

import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import numpy as np
import torch
from scipy.stats import kstest

from sordino._random import entropy
from sordino.errors import UsageError
from sordino.language.clipping.noisy_gradients import add_gradient_noise


def parameters(*shapes, grad=0.0):
    made = [torch.nn.Parameter(torch.zeros(shape)) for shape in shapes]
    for one in made:
        one.grad = torch.full_like(one, grad)
    return made


def test_the_noise_is_normal_with_the_stated_size():
    """False alarms: 1e-6 for the Kolmogorov test, below 1e-6 for each moment (five errors)."""
    one, two = parameters((1000, 401), (7,), grad=2.0)
    add_gradient_noise([one, two], 3.0, entropy=entropy(11))
    noise = (one.grad.double().flatten().numpy() - 2) / 3
    n = len(noise)
    assert abs(noise.mean()) < 5 / math.sqrt(n)
    assert abs(noise.var() - 1) < 5 * math.sqrt(2 / n)
    assert abs((noise**4).mean() - 3) < 5 * math.sqrt(96 / n)
    assert kstest(noise, "norm").pvalue > 1e-6
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 5 / math.sqrt(n)
    half = n // 2  # lengths and angles are shared by entries this far apart
    assert abs(np.corrcoef(noise[:half] ** 2, noise[-half:] ** 2)[0, 1]) < 5 / math.sqrt(half)
    assert not torch.equal(one.grad[0, :7], two.grad)


def test_whom_it_reaches():
    """Frozen parameters get none; those without a gradient get the noise alone."""
    frozen, bare, odd = parameters((4,), (3, 2), (1,))
    frozen.requires_grad_(requires_grad=False)
    bare.grad = None
    add_gradient_noise([frozen, bare, odd], 1.0, entropy=entropy(None))
    assert torch.equal(frozen.grad, torch.zeros(4))
    assert bare.grad.shape == (3, 2)
    assert bool((bare.grad != 0).all())
    assert bool((odd.grad != 0).all())


def test_it_is_seeded_for_simulation_alone():
    def drawn(seed):
        (one,) = parameters((9,))
        add_gradient_noise([one], 1.0, entropy=entropy(seed))
        return one.grad

    assert torch.equal(drawn(5), drawn(5))
    torch.manual_seed(0)
    first = drawn(None)
    torch.manual_seed(0)
    assert not torch.equal(first, drawn(None))


def test_extreme_words_give_numbers():
    class Words:
        randomness = "simulated"

        def words(self, n):
            return np.array([0, 2**64 - 1] * (n // 2), dtype=np.uint64)

    (one,) = parameters((6,))
    add_gradient_noise([one], 1.0, entropy=Words())
    assert bool(one.grad.isfinite().all())
    assert 13.3 < float(one.grad.abs().max()) < 13.4


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

    one = torch.nn.Parameter(torch.zeros(4000, dtype=torch.float64))
    add_gradient_noise([one], 1.0, entropy=Zeros())
    squares = (one.grad[:2000].square() + one.grad[2000:].square()).numpy()
    assert squares.min() > 2 * 64 * math.log(2)
    assert kstest(np.exp(64 * math.log(2) - squares / 2), "uniform").pvalue > 1e-6


@pytest.mark.parametrize("size", [0.0, -1.0, math.nan, math.inf])
def test_noise_of_no_size_is_refused(size):
    with pytest.raises(UsageError, match="standard_deviation"):
        add_gradient_noise(parameters((1,)), size, entropy=entropy(None))
