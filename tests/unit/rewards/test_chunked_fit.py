"""Fits on sums over chunks: the same minimizers as in memory, certified the same way."""

import numpy as np
import pytest

from sordino.engines.engine import InProcess, Rows
from sordino.errors import ConvergenceError
from sordino.rewards import solver
from sordino.rewards.confidence import flattest_curvature
from sordino.rewards.pair_losses import DebiasedLogistic
from sordino.rewards.solver import ChunkedLoss, minimize_ridge, nearest_minimum, ridge_path

D = 5


class Blocks:
    """Rows in memory, read as if they were in files."""

    def __init__(self, x):
        self.x = x

    def __call__(self, chunk):
        for start in range(chunk * 40, min(chunk * 40 + 40, len(self.x)), 11):
            end = min(start + 11, chunk * 40 + 40)
            yield start, self.x[start:end], np.zeros(end - start, dtype=np.int8)


def world(n=400, size=1.0, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, D)) * np.geomspace(3, 0.3, D) * size
    y = rng.random(n) < 1 / (1 + np.exp(-x @ rng.normal(size=D)))
    rows = Rows(InProcess(), range(-(-n // 40)), Blocks(x), x.shape)
    return x, rows, x.T @ y


@pytest.mark.parametrize("pushed", [1.0, 1.5, 30.0])
@pytest.mark.parametrize("ball", [0.3, 2.0, 100.0])
def test_minimizers_are_those_of_the_solver_in_memory(ball, pushed):
    """With and without a ball that binds; noise may have moved the sum out of all reach."""
    x, rows, total = world()
    ridges = [0.01, 1.0, 100.0, 1e4]
    found = ridge_path(ChunkedLoss(rows, pushed * total), ridges, ball=ball, atol=1e-7)
    loss = DebiasedLogistic.of_statistic(x, pushed * total)
    for ridge, mine in zip(ridges, found, strict=True):
        theirs = minimize_ridge(loss, ridge=ridge, ball=ball, atol=1e-7)
        assert mine.theta == pytest.approx(theirs.theta, abs=2e-7 / ridge + 1e-9, rel=1e-6)
        assert np.linalg.norm(mine.theta) <= ball
        assert mine.multiplier == pytest.approx(theirs.multiplier, rel=1e-4, abs=1e-6)
        assert mine.value == pytest.approx(loss.value(mine.theta), rel=1e-9)
        left = loss.gradient(mine.theta) + (ridge + mine.multiplier) * mine.theta
        assert np.linalg.norm(left) == pytest.approx(mine.gradient_norm, abs=1e-10)
        assert mine.gradient_norm <= 1e-7


@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
def test_bad_starts_are_left_behind(size):
    """Margins of hundreds at the start, where the curvature is nothing."""
    x, rows, total = world(size=size)
    terms = {"ridge": 1e-2 * size**2, "ball": 50 / size, "atol": 1e-6 * size}
    found = minimize_ridge(ChunkedLoss(rows, total), start=np.full(D, 10.0 / size), **terms)
    loss = DebiasedLogistic.of_statistic(x, total)
    theirs = minimize_ridge(loss, **terms)
    assert found.theta == pytest.approx(theirs.theta, rel=1e-4, abs=1e-5 / size)


def test_a_start_outside_the_ball_is_brought_inside():
    _, rows, total = world()
    loss, outside = ChunkedLoss(rows, total), np.full(D, 1e6)
    found = minimize_ridge(loss, ridge=1.0, ball=0.1, atol=1e-6, start=outside)
    assert np.linalg.norm(found.theta) <= 0.1


def test_what_cannot_be_certified_is_not_returned(monkeypatch):
    _, rows, total = world()
    monkeypatch.setattr(solver, "_FILE_PASSES", 2)
    with pytest.raises(ConvergenceError, match="within 2 passes"):
        minimize_ridge(ChunkedLoss(rows, total), ridge=1.0, ball=9.0, atol=1e-9)


def test_where_a_refusal_would_tell_the_nearest_point_is_returned():
    _, rows, total = world()
    usual = minimize_ridge(ChunkedLoss(rows, total), ridge=1.0, ball=9.0, atol=1e-9)
    found = nearest_minimum(ChunkedLoss(rows, total), ridge=1.0, ball=9.0, atol=1e-300)
    assert found.gradient_norm <= 1e-9
    assert found.theta == pytest.approx(usual.theta, abs=1e-8)


def test_a_good_start_needs_few_passes(monkeypatch):
    """From a tenth of the rows, eight ridges are done within ten passes over all."""
    x, rows, total = world(n=4000)
    ridges = [4.0**power for power in range(-3, 5)]
    part = DebiasedLogistic.of_statistic(x[::10], total / 10)
    passes = []
    honest = ChunkedLoss.measure
    monkeypatch.setattr(ChunkedLoss, "measure", lambda *given: passes.append(1) or honest(*given))
    ridge_path(ChunkedLoss(rows, total, sample=part), ridges, ball=9.0, atol=4e-4)
    assert len(passes) <= 10


def test_the_curvature_of_chunks_is_that_of_the_whole():
    x, rows, _ = world()
    whole = flattest_curvature(x, ball=2.0, ridge=0.5)
    chunked = flattest_curvature(rows, ball=2.0, ridge=0.5)
    for one, other in zip(whole, chunked, strict=True):
        assert one == pytest.approx(other, rel=1e-12, abs=1e-12)
