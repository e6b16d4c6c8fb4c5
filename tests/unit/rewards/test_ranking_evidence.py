"""What a fit sees of released rankings, against enumeration."""

import itertools

import numpy as np
import pytest

import sordino
from sordino.rewards import ranking_fit
from sordino.rewards.ranking_fit import RankingEvidence, SlateRows


def evidence_of(rows, starts, counts, kind="borda", noise=0.0):
    d = rows.shape[1]
    return RankingEvidence(
        rows=rows,
        starts=np.array(starts),
        counts=np.array(counts),
        kind=kind,
        statistic=np.zeros(d),
        factor=noise * np.eye(d),
        feature_bound=1.0,
        rounding=0.0,
    )


@pytest.mark.parametrize("k", [2, 3, 4, 5])
@pytest.mark.parametrize("kind", ["borda", "first-choice"])
def test_the_spread_is_exact_for_candidates_that_are_as_good(k, kind):
    """All K! orders, each as likely, by their sum Σ w(K − rank)φ or φ(best)."""
    rows = np.random.default_rng(k).normal(size=(k, 3))
    sums = []
    for order in itertools.permutations(range(k)):
        times = np.zeros(k)
        places = np.arange(k)
        times[list(order)] = 2 / (k * (k - 1)) * (k - 1 - places)
        if kind == "first-choice":
            times = np.eye(k)[order[0]]
        sums.append(times @ rows)
    wanted = 7 * np.cov(np.array(sums).T, bias=True) + 0.25 * np.eye(3)
    found = evidence_of(rows, [0, k], [7], kind, noise=0.5).spread(np.zeros(3))
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def test_ballots_of_several_sizes_are_each_counted_in_their_own_way():
    rows = np.random.default_rng(1).normal(size=(7, 2))
    theta = np.array([0.3, -0.2])
    both = evidence_of(rows, [0, 3, 7], [2, 5]).spread(theta)
    one = evidence_of(rows[:3], [0, 3], [2]).spread(theta)
    other = evidence_of(rows[3:], [0, 4], [5]).spread(theta)
    np.testing.assert_allclose(both, one + other, rtol=1e-12)


def test_sizes_and_what_is_printed():
    evidence = evidence_of(np.eye(3), [0, 3], [9])
    assert len(evidence) == 9
    assert repr(evidence) == "RankingEvidence(n=9, d=3)"


def test_the_reach_of_two_candidates_is_half_their_difference():
    rows = np.array([[3.0, 0.0], [0.0, 4.0], [1.0, 1.0], [1.0, 2.0]])
    slates = SlateRows(rows=rows, starts=np.array([0, 2, 4]), slates=np.arange(2))
    assert slates.bound(None) == pytest.approx(2.5)
    features = sordino.HashedText(dimension=8)
    assert slates.bound(features) == features.feature_bound


def test_a_matrix_from_some_ballots_is_close_to_that_of_all(monkeypatch):
    """Every ninth of 9,000 slates: relative errors of a mean of 1,000, within 15 %."""
    generator = np.random.default_rng(2)
    evidence = evidence_of(
        generator.normal(size=(27_000, 2)), np.arange(9001) * 3, np.ones(9000, dtype=int)
    )
    theta = np.array([0.5, -1.0])
    exact = evidence.loss.hessian(theta)
    np.testing.assert_allclose(evidence.hessian(theta), exact, rtol=1e-9)
    monkeypatch.setattr(ranking_fit, "_FLOPS", 0)
    monkeypatch.setattr(ranking_fit, "_ROWS", 500)
    rough = evidence.hessian(theta)
    assert 0 < np.linalg.norm(rough - exact) < 0.15 * np.linalg.norm(exact)


@pytest.mark.parametrize("kind", ["borda", "first-choice"])
def test_the_inflation_is_that_of_the_matrices(kind):
    rows = np.random.default_rng(5).normal(size=(9, 3))
    evidence = evidence_of(rows, [0, 2, 5, 9], [4, 1, 3], kind, noise=0.7)
    wanted = np.trace(evidence.spread(np.zeros(3))) / np.trace(evidence.loss.hessian(np.zeros(3)))
    assert evidence.inflation == pytest.approx(wanted, rel=1e-9)
    assert evidence_of(rows[:2], [0, 2], [5], kind).inflation == pytest.approx(1.0)
