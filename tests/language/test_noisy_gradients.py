"""Noise on gradients: its distribution, and whom it reaches."""

import math

import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import numpy as np
import torch
from scipy.stats import kstest

from sordino._random import entropy
from sordino.errors import UsageError
from sordino.language.dp_sgd.clipping import add_gradient_noise


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


def test_extreme_words_give_numbers():
    class Words:
        randomness = "simulated"

        def words(self, n):
            return np.array([0, 2**64 - 1] * (n // 2), dtype=np.uint64)

    one = torch.zeros(6, dtype=torch.float64)
    add_gradient_noise([one], 1.0, entropy=Words())
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
