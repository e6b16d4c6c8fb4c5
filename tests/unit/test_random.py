"""What a run takes from outside itself."""

import os

import numpy as np
import pytest

from sordino import _random
from sordino.errors import UsageError


def test_system_entropy_asks_the_operating_system_for_every_word(monkeypatch):
    asked = []

    def urandom(n):
        asked.append(n)
        return bytes(range(n))

    monkeypatch.setattr(os, "urandom", urandom)
    words = _random.SystemEntropy().words(4)
    assert asked == [32]
    assert words.tobytes() == bytes(range(32))
    assert (words.dtype, words.shape) == (np.uint64, (4,))


def test_a_release_uses_system_entropy_unless_a_seed_is_given():
    assert isinstance(_random.entropy(None), _random.SystemEntropy)
    assert _random.entropy(None).randomness == "system"
    assert _random.entropy(0).randomness == "simulated"


def test_numpy_seeds_do_not_reach_system_entropy():
    draws = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002 (the global one is meant)
        draws.append(_random.entropy(None).words(4).tobytes())
    assert draws[0] != draws[1]


def test_a_seeded_stream_repeats_and_goes_on():
    one, other = _random.entropy(7), _random.entropy(7)
    first, second = one.words(5), one.words(5)
    assert np.array_equal(first, other.words(5))
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, _random.entropy(8).words(5))
    assert first.dtype == np.uint64


@pytest.mark.parametrize("seed", [-1, 0.5, True])
def test_what_is_no_seed_is_refused_in_our_own_words(seed):
    with pytest.raises(UsageError, match="simulate_seed must be a whole number"):
        _random.entropy(seed)
