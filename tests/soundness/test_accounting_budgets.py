"""Budgets: what is left of one, and the largest parameter that fits one."""

import math
import tracemalloc

import pytest

from sordino.errors import PrivacyError
from sordino.privacy import accounting as a
from sordino.privacy.guarantee import (
    BoundedRangeEvent,
    GaussianEvent,
    NeighboringRelation,
    NonPrivateEvent,
    PureEvent,
)

REPLACE = NeighboringRelation.REPLACE_ONE


@pytest.mark.parametrize(
    ("events", "delta"),
    [
        ({}, 0.0),
        ({}, 1e-6),
        ({PureEvent(0.1): 3}, 1e-6),
        ({GaussianEvent(0.1): 3}, 1e-6),
        ({GaussianEvent(0.1): 3, PureEvent(0.05): 40}, 1e-6),
    ],
)
def test_what_is_left_fits_and_a_little_more_does_not(events, delta):
    budget = {"neighbors": REPLACE, "epsilon": 2.0, "delta": delta}
    left = a.largest_pure_epsilon(events, **budget)
    assert left > 0
    assert a.fits([*events.items(), (PureEvent(left), 1)], **budget)
    assert not a.fits([*events.items(), (PureEvent(left * 1.001), 1)], **budget)
    assert left >= 2.0 - a.composed_epsilon(events, neighbors=REPLACE, delta=delta) - 1e-5


def test_nothing_is_left_of_a_budget_that_is_spent():
    for events in ({PureEvent(2.1): 1}, {NonPrivateEvent(): 1}, {GaussianEvent(3.0): 1}):
        assert a.largest_pure_epsilon(events, neighbors=REPLACE, epsilon=2.0, delta=1e-6) == 0.0
    spent = {NonPrivateEvent(): 1}
    assert a.largest_pure_epsilon(spent, neighbors=REPLACE, epsilon=math.inf, delta=0.0) == math.inf


def test_calibration_inverts_composition():
    mu = a.calibrate(GaussianEvent, 1.0, 1e-6, neighbors=REPLACE)
    assert mu == pytest.approx(0.236704381, rel=1e-8)
    length = a.calibrate(BoundedRangeEvent, 1.0, 1e-3, neighbors=REPLACE)
    assert length == pytest.approx(1.051677566, rel=1e-8)
    assert a.calibrate(PureEvent, 1.0, 0.0, neighbors=REPLACE, bracket=(0.1, 0.5)) == 0.5
    half = a.calibrate(PureEvent, 1.0, 0.0, neighbors=REPLACE, count=2)
    assert half == pytest.approx(0.5, rel=1e-8) and half <= 0.5  # noqa: PT018 - the safe side
    with pytest.raises(PrivacyError):
        a.calibrate(GaussianEvent, 1.0, 0.0, neighbors=REPLACE)


def test_a_blow_up_is_refused_and_not_computed():
    for counts in (
        {PureEvent(1e-6 * i): 10 for i in range(1, 200)},
        {PureEvent(300.0): 1, PureEvent(1e-6): 10**9},
        {PureEvent(1e4): 3, GaussianEvent(50.0): 1},
    ):
        tracemalloc.start()
        assert a.composed_epsilon(counts, neighbors=REPLACE, delta=1e-6) > 0
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 10**8  # bytes: a grid of as many cells as there are losses takes gigabytes
