"""From votes to a board: the formulas, what holds of intervals, and what a board does not say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, sparse
from scipy.special import expit

from sordino.errors import DataError, UsageError
from sordino.rewards.leaderboard import Votes, fit_board

NAMES = tuple("abcdefghijklmnopqrstuvwxyz")


def _met(k: int, counts: np.ndarray) -> sparse.csr_array:
    """Return one row for each two items, in the order of ``np.triu_indices``."""
    one, two = np.triu_indices(k, 1)
    rows = np.zeros((len(one), k))
    rows[np.arange(len(one)), one], rows[np.arange(len(one)), two] = 1, -1
    assert counts.shape == one.shape
    return sparse.csr_array(rows)


def _played(theta, each: int, *, nu: float = 0.0, seed: int = 0, noise: float = 0.0) -> Votes:
    """Return votes of a world with known ratings, every two items having met equally often."""
    rng, k = np.random.default_rng(seed), len(theta)
    counts = np.full(k * (k - 1) // 2, float(each))
    rows = _met(k, counts)
    half = np.exp(rows @ theta / 2)
    odds = np.stack([1 / half, np.full_like(half, nu), half], axis=1)
    outcomes = rng.multinomial(each, odds / odds.sum(axis=1, keepdims=True)).astype(float)
    statistic = rows.T @ ((outcomes[:, 2] - outcomes[:, 0]) / 2)
    size = k + (nu > 0)
    drawn = rng.normal(0, noise, size) if noise else np.zeros(size)
    return Votes(
        items=NAMES[:k],
        rows=rows,
        counts=counts,
        statistic=statistic + drawn[:k],
        ties=float(outcomes[:, 1].sum() + drawn[k]) if nu else None,
        noise=noise**2 * np.eye(size),
        outcomes=None if noise else outcomes,
    )


def test_without_noise_it_is_the_board_of_arenas():
    """Ratings by a general optimizer, and the sandwich of their scores, written out."""
    rng, k = np.random.default_rng(0), 8
    one, two = np.triu_indices(k, 1)
    counts = rng.integers(5, 60, len(one)).astype(float)
    wins = np.array([rng.multinomial(int(n), [0.5, 0.2, 0.3]) for n in counts]).astype(float)
    rows = _met(k, counts)
    votes = Votes(
        items=NAMES[:k],
        rows=rows,
        counts=counts,
        statistic=rows.T @ ((wins[:, 0] - wins[:, 2]) / 2),
        noise=np.zeros((k, k)),
        outcomes=wins[:, ::-1].copy(),
    )
    board = fit_board(votes)
    y, weight = np.repeat([[1.0, 0.5, 0.0]], len(one), axis=0), wins

    def loss(theta):
        eta = (theta[one] - theta[two])[:, None]
        return -np.sum(weight * (y * eta - np.logaddexp(0, eta)))

    def slope(theta):
        over = (weight * (expit(theta[one] - theta[two])[:, None] - y)).sum(axis=1)
        return rows.T @ over

    found = optimize.minimize(
        loss, np.zeros(k), jac=slope, method="BFGS", options={"gtol": 1e-9, "maxiter": 2000}
    ).x
    np.testing.assert_allclose(board.ratings, found - found.mean(), atol=1e-6)
    p = expit(found[one] - found[two])
    hessian = (rows.T @ rows.multiply((counts * p * (1 - p))[:, None])).toarray()
    meat = (rows.T @ rows.multiply((weight * (y - p[:, None]) ** 2).sum(axis=1)[:, None])).toarray()
    variance = np.diag(np.linalg.pinv(hessian) @ meat @ np.linalg.pinv(hessian))
    width = (board.intervals[:, 1] - board.ratings) / 1.959963984540054
    np.testing.assert_allclose(width, np.sqrt(variance), atol=1e-6)


@pytest.mark.parametrize("nu", [0.0, 0.4, 1.5])
def test_ratings_and_ties_are_found_again(nu):
    theta = np.linspace(-1, 1, 6)
    board = fit_board(_played(theta, 40_000, nu=nu))
    np.testing.assert_allclose(board.ratings, theta, atol=0.03)
    assert board.tie_rate == (pytest.approx(nu, rel=0.02) if nu else None)
    rates = board.win_rates
    np.testing.assert_allclose(rates + rates.T, 1)
    half = np.exp((theta[0] - theta[5]) / 2)
    assert rates[0, 5] == pytest.approx((half + nu / 2) / (half + nu + 1 / half), abs=0.01)


@pytest.mark.deep
@pytest.mark.parametrize(("each", "noise"), [(60, 0.0), (60, 6.0), (600, 40.0)])
def test_intervals_bands_and_ranks_hold(each, noise):
    """200 boards of 6: missed with probability below 1e-3 if each level were .95 exactly.

    Half the noise in the covariance would bring coverage under noise to at most .80 (seen).
    """
    theta = np.array([0.9, 0.5, 0.1, -0.2, -0.5, -0.8])
    truth = np.arange(1, 7)
    inside, all_inside, ranked = [], [], []
    for seed in range(200):
        board = fit_board(_played(theta, each, nu=0.3, seed=seed, noise=noise))
        assert np.isfinite(board.intervals).all()
        inside.append((board.intervals[:, 0] <= theta) & (theta <= board.intervals[:, 1]))
        all_inside.append(((board.bands[:, 0] <= theta) & (theta <= board.bands[:, 1])).all())
        ranked.append(((board.ranks[:, 0] <= truth) & (truth <= board.ranks[:, 1])).all())
    assert 0.93 <= np.mean(inside) <= 0.97
    assert 0.9 <= np.mean(all_inside) <= 0.99
    assert np.mean(ranked) >= 0.95


def test_noise_widens_intervals_and_then_silences():
    theta = np.linspace(-1, 1, 6)
    quiet, some = (fit_board(_played(theta, 100, noise=noise)) for noise in (1e-9, 20.0))
    assert (np.diff(some.intervals) > 1.5 * np.diff(quiet.intervals)).all()
    loud = fit_board(_played(theta, 100, noise=500.0))
    assert np.isnan(loud.ratings).all()
    assert np.isinf(loud.intervals).all()
    assert loud.ranks.tolist() == [[1, 6]] * 6
    assert all(row["rating"] is None for row in loud.to_dict()["items"])


def test_noise_by_which_an_item_wins_more_than_all_its_votes_gives_it_no_number():
    counts, noise = np.full(3, 400.0), 80.0**2 * np.eye(3)
    terms = {"items": NAMES[:3], "rows": _met(3, counts), "counts": counts, "noise": noise}
    won = np.array([800.0, -400.0, -400.0])  # of 800 votes: at most 400 more than lost, halved
    board = fit_board(Votes(**terms, statistic=won))
    assert np.isnan(board.ratings[0])
    assert np.isinf(board.intervals[0]).all()
    less = fit_board(Votes(**terms, statistic=won / 4))
    assert np.isfinite(less.ratings).all()


def test_only_wins_are_finite_and_open_upwards():
    votes = _played(np.zeros(4), 40)
    outcomes = votes.outcomes.copy()
    first = votes.rows.toarray()[:, 0] == 1
    outcomes[first] = [0, 0, 40]
    statistic = votes.rows.T @ ((outcomes[:, 2] - outcomes[:, 0]) / 2)
    board = fit_board(
        Votes(
            items=votes.items,
            rows=votes.rows,
            counts=votes.counts,
            statistic=statistic,
            noise=votes.noise,
            outcomes=outcomes,
        )
    )
    low, high = board.intervals[0]
    assert high == math.inf
    # 120 wins of 120: Wilson's lower bound for the probability, against the mean of the others
    assert low == pytest.approx(math.log(120 / 1.96**2) + board.ratings[1:].mean(), abs=0.3)
    assert low < board.ratings[0] < 8
    assert np.isfinite(board.intervals[1:]).all()


def test_what_never_met_is_not_compared():
    counts = np.zeros(6)
    counts[[0, 5]] = 200  # a with b, c with d
    rows = _met(4, counts)
    won = np.array([150.0, 0, 0, 0, 0, 105.0])
    votes = Votes(
        items=NAMES[:4],
        rows=rows,
        counts=counts,
        statistic=rows.T @ (won - counts / 2),
        noise=np.zeros((4, 4)),
    )
    board = fit_board(votes)
    assert board.components.tolist() == [0, 0, 1, 1]
    np.testing.assert_allclose(board.ratings, [0.549, -0.549, 0.05, -0.05], atol=1e-3)
    assert board.ranks.tolist() == [[1, 1], [2, 2], [1, 2], [1, 2]]
    assert np.isnan(board.win_rates[0, 2])
    assert board.field_win_rates[0] == pytest.approx(0.75, abs=1e-3)


def test_two_weeks_are_their_sum_and_new_items_join():
    first, second = (_played(np.linspace(-1, 1, k), 50, nu=0.3, seed=k, noise=3.0) for k in (4, 5))
    both = first.plus(second)
    assert both.items == NAMES[:5]
    np.testing.assert_allclose(both.statistic[:4], first.statistic + second.statistic[:4])
    assert both.ties == first.ties + second.ties
    assert np.diag(both.noise).tolist() == [18.0, 18.0, 18.0, 18.0, 9.0, 18.0]
    swapped = fit_board(second.plus(first))
    np.testing.assert_allclose(fit_board(both).ratings, swapped.ratings, atol=1e-9)
    with pytest.raises(DataError, match="count ties, or neither"):
        first.plus(_played(np.zeros(4), 50))


def test_style_is_told_apart_from_skill():
    rng = np.random.default_rng(5)
    theta, beta, n = np.array([0.6, 0.0, -0.6]), 0.8, 60_000
    one = rng.integers(0, 3, n)
    two = (one + rng.integers(1, 3, n)) % 3
    length = np.clip(rng.normal(theta[one] - theta[two], 0.5), -1, 1)  # the better write more
    rows = np.zeros((n, 4))
    rows[np.arange(n), one], rows[np.arange(n), two], rows[:, 3] = 1, -1, length
    y = rng.random(n) < expit(theta[one] - theta[two] + beta * length)
    votes = Votes(
        items=NAMES[:3],
        rows=sparse.csr_array(rows),
        counts=np.ones(n),
        statistic=rows.T @ (y - 0.5),
        noise=np.zeros((4, 4)),
    )
    board = fit_board(votes)
    np.testing.assert_allclose(board.ratings, theta, atol=0.05)
    assert board.style == pytest.approx([beta], abs=0.05)


def test_bad_votes_and_levels_are_refused():
    good = _played(np.zeros(3), 5)
    shapes = {"rows": good.rows, "counts": good.counts, "statistic": good.statistic}
    with pytest.raises(DataError, match="two items or more, each named once"):
        Votes(items=("a", "a", "b"), noise=good.noise, **shapes)
    with pytest.raises(DataError, match="counts, sums and noise"):
        Votes(items=NAMES[:3], noise=np.zeros((2, 2)), **shapes)
    with pytest.raises(DataError, match="finite"):
        Votes(items=NAMES[:3], noise=np.full((3, 3), np.nan), **shapes)
    with pytest.raises(UsageError, match="confidence"):
        fit_board(good, confidence=1.0)
