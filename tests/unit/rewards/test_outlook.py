"""A world, and how many labels it takes where scatter depends on their number."""

import math

import pytest

from sordino import UsageError
from sordino.rewards.forecast_model import (
    Outlook,
    Scatter,
    World,
    asymptotic_scatter,
    share_of_judgments,
    without_privacy,
)


def outlook(noise):
    """Scatter that falls as 1/n beside scatter that does not."""
    world = World.of(5, 0.65, "debiased")
    free, _ = world.free

    def scatter(n):
        return Scatter(
            signal=free.signal,
            along=free.along,
            across=free.across * (1 + noise / n),
            dimension=5,
        )

    return Outlook(world=world, small_ridge=scatter, fits=lambda n: [scatter(n)])


@pytest.mark.parametrize("noise", [0.0, 1.0, 1e3, 1e7])
@pytest.mark.parametrize("target", [0.51, 0.6, 0.6499])
def test_the_needed_number_is_the_smallest(noise, target):
    found = outlook(noise)
    needed = found.labels_needed(target)
    assert found.accuracy(needed) >= target
    assert needed == 1 or found.accuracy(needed - 1) < target
    assert found.predict(needed, target).labels_needed == needed
    assert found.predict(needed, None).labels_needed is None


def test_errors_and_their_worth_depend_on_the_number_of_labels():
    noisy, free = outlook(1e4), without_privacy(World.of(5, 0.65, "debiased"))
    assert free.effective_judgments(77) == 77
    for n in (10, 10**3, 10**6):
        worth = noisy.effective_judgments(n)
        assert worth < n
        assert free.standard_error(worth) == pytest.approx(noisy.standard_error(n))
    assert noisy.effective_judgments(10**6) / 10**6 > 0.98
    assert noisy.effective_judgments(10) / 10 < 0.002


def test_no_fit_is_foreseen_to_beat_judgments_as_they_are():
    world = World.of(5, 0.65, "debiased")
    better = Scatter(signal=1.0, along=0.0, across=1e-9, dimension=5)
    found = Outlook(world=world, small_ridge=lambda _: better, fits=lambda _: [better])
    assert found.accuracy(100) == without_privacy(world).accuracy(100)


def test_a_world_holds_what_was_assumed():
    world = World.of(5, 0.7, "mixture")
    assert (world.dimension, world.accuracy, world.method) == (5, 0.7, "mixture")
    assert world.free[0] == asymptotic_scatter(world.spread, 0.0, dimension=5)


@pytest.mark.parametrize("value", [0.5, 1.0, math.nan, "0.6", True])
def test_shares_out_of_range(value):
    with pytest.raises(UsageError, match="target"):
        share_of_judgments("target", value)
