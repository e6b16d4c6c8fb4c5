"""The smallest ellipsoid: every row is inside, and a design proves that none is much smaller."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg, optimize, sparse

from sordino import HashedText, read_pairs, simulate_pairs
from sordino.errors import DataError, UsageError
from sordino.mechanisms import _optimal_design, _row_sums, ellipsoid
from sordino.mechanisms.ellipsoid import (
    isotropic_ellipsoid,
    least_noise_ellipsoid,
    minimum_volume_ellipsoid,
)


def normal(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def norms(rows, held):
    return np.linalg.norm(rows @ held.whiten.T, axis=1)


def leverage(rows, held):
    """Of every row, over the rank, from the weights alone: an own computation in the span.

    By QR with the longest rows first: a second moment would square their sizes, and round.
    """
    inside = rows @ held.basis
    weighted = np.sqrt(held.weights)[:, None] * inside
    weighted = weighted[np.argsort(-np.linalg.norm(weighted, axis=1))]
    _, root, order = linalg.qr(weighted, mode="economic", pivoting=True)
    return (linalg.solve_triangular(root.T, inside[:, order].T, lower=True) ** 2).sum(0) / held.rank


def certified(rows, held):
    """The check that a broken solver must fail: feasible on both sides, with the stated gap."""
    return (
        norms(rows, held).max() <= 1
        and held.weights.min() >= 0
        and abs(held.weights.sum() - 1) < 1e-12
        and abs(leverage(rows, held).max() - 1 - held.gap) < 1e-5
    )


def log_volume(held):
    return np.linalg.slogdet(held.unwhiten)[1]


def rotation(d, seed=0):
    return np.linalg.qr(normal(d, d, seed))[0]


CASES = {
    "round": normal(2000, 6),
    "decaying": normal(2000, 12) * np.arange(1, 13) ** -3.0,
    "steep": normal(3000, 40) * 10 ** (-np.arange(40) / 5) @ rotation(40),
    "heavy tails": np.random.default_rng(1).standard_t(1.5, size=(2000, 5)),
    "one far row": np.vstack([normal(500, 6), 1e8 * normal(1, 6, 1)]),
    "a lone direction": np.vstack([np.pad(normal(500, 5), ((0, 0), (1, 0))), np.eye(6)[:1]]),
    "corners": np.array(list(itertools.product([-1.0, 1.0], repeat=5))),
    "one row": normal(1, 5),
    "one column": normal(9, 1),
    "rank 1": np.outer(normal(9, 1)[:, 0], [1.0, 2.0, -3.0]),
    "fewer rows than columns": normal(5, 40),
    "few rows of many columns": normal(12, 400) * 10 ** (-np.arange(400) / 40),
    "few dependent rows": normal(30, 7) @ normal(7, 200, 1),
    "dependent columns": normal(500, 8) @ normal(8, 20, 1),
    "repeated": np.repeat(normal(6, 3), 50, axis=0),
    "some rows are 0": normal(30, 4) * (np.arange(30) % 2)[:, None],
    "an empty column": normal(50, 4) * [1.0, 0.0, 1.0, 1.0],
    "huge": normal(50, 4) * 1e100,
    "tiny": normal(50, 4) * 1e-110,
    "columns of all sizes": normal(50, 4) * [1e-100, 1e100, 1.0, 1e30],
}
RANKS = {
    "one row": 1, "rank 1": 1, "fewer rows than columns": 5, "dependent columns": 8,
    "an empty column": 3, "few rows of many columns": 12, "few dependent rows": 7,
}  # fmt: skip


@pytest.mark.parametrize("gap", [0.05, 0.01])
@pytest.mark.parametrize("case", CASES)
def test_every_row_is_inside_and_the_design_certifies_the_gap(case, gap):
    rows = CASES[case]
    held = minimum_volume_ellipsoid(rows, gap=gap)
    # In one unit for all columns, so that the check itself does not round them away.
    size = np.abs(rows).max(axis=0)
    size[size == 0] = 1.0
    unit = ellipsoid.Ellipsoid(held.whiten * size, held.unwhiten / size[:, None], held.weights, 0.0)
    assert held.rank == RANKS.get(case, rows.shape[1])
    assert held.gap <= gap
    assert norms(rows, held).max() <= 1
    assert abs(held.weights.sum() - 1) < 1e-12
    assert held.weights.min() >= 0
    assert abs(leverage(rows / size, unit).max() - 1 - held.gap) < 1e-5
    assert np.allclose(held.whiten @ held.unwhiten, np.eye(held.rank), atol=1e-6)
    back = (rows @ held.whiten.T @ held.unwhiten.T - rows) / size
    assert np.abs(back).max() < 1e-6
    assert np.allclose(held.basis.T @ held.basis, np.eye(held.rank))


def test_single_precision_features_keep_their_rank_and_stay_inside():
    """Noise of 1e-8 is a direction of its own; rounding may then put a row outside by a little."""
    rows = (normal(500, 8) @ normal(8, 20, 1)).astype(np.float32)
    held = minimum_volume_ellipsoid(rows)
    assert held.rank == 20
    assert norms(rows.astype(np.float64), held).max() < 1 + 1e-7


@given(st.integers(1, 6), st.integers(1, 30), st.integers(0, 2**32 - 1), st.integers(-40, 40))
@settings(max_examples=60)
def test_any_small_rows(d, n, seed, exponent):
    generator = np.random.default_rng(seed)
    rows = np.rint(generator.standard_cauchy(size=(n, d)) * 3).clip(-1e6, 1e6)
    rows[0, 0] = 1.0
    rows *= 2.0**exponent
    held = minimum_volume_ellipsoid(rows)
    assert held.rank == np.linalg.matrix_rank(rows)
    assert certified(rows, held)
    assert held.gap <= 0.05


@pytest.mark.parametrize("d", [1, 2, 3, 7])
def test_the_known_optimum_of_axes_and_of_a_simplex(d):
    sizes = np.arange(1.0, d + 1)
    held = minimum_volume_ellipsoid(np.diag(sizes), gap=0.001)
    assert np.allclose(held.unwhiten @ held.unwhiten.T, np.diag(sizes**2), rtol=2e-3)
    corners = np.eye(d + 1) - 1 / (d + 1)  # a simplex, in a space of one dimension more
    held = minimum_volume_ellipsoid(corners, gap=0.001)
    assert held.rank == d
    radius = np.sqrt(d / (d + 1))
    assert np.allclose(np.linalg.svd(held.unwhiten)[1], radius, rtol=2e-3)


def area(shape, rows):
    """Of the smallest ellipse of a shape, over π: an angle and a log-ratio of the half-axes."""
    angle, stretch = shape
    axes = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    return ((rows @ axes) ** 2 @ np.exp([-stretch, stretch])).max()


@pytest.mark.parametrize("seed", range(4))
def test_no_smaller_ellipse_exists_by_brute_force(seed):
    """Every shape of the plane is tried on a grid, and the best ones are improved by descent."""
    rows = np.random.default_rng(seed).standard_t(2, size=(12, 2)) @ [[1.0, 0.4], [0.0, 0.3]]
    held = minimum_volume_ellipsoid(rows, gap=0.001)
    grid = itertools.product(np.linspace(0, np.pi, 60), np.linspace(0, 5, 60))
    starts = sorted(grid, key=lambda shape: area(shape, rows))[:5]
    best = min(
        optimize.minimize(area, start, args=(rows,), method="Nelder-Mead", tol=1e-9).fun
        for start in starts
    )
    ours = abs(np.linalg.det(held.unwhiten))
    assert best * (1 - 1e-6) <= ours <= best * (1 + held.gap) * (1 + 1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_it_turns_and_stretches_with_the_rows(seed):
    rows, by = normal(300, 5, seed), normal(5, 5, seed + 10)
    held = minimum_volume_ellipsoid(rows, gap=0.001)
    moved = minimum_volume_ellipsoid(rows @ by.T, gap=0.001)
    wanted = log_volume(held) + np.linalg.slogdet(by)[1]
    assert abs(log_volume(moved) - wanted) < 5 * 0.0011 / 2
    shape = by @ held.unwhiten
    assert np.allclose(moved.unwhiten @ moved.unwhiten.T, shape @ shape.T, rtol=0.1, atol=0.1)


def test_sparse_rows_are_as_dense_ones():
    rows = sparse.random(300, 64, density=0.05, random_state=1, format="csr")
    for form in (rows, rows.tocoo(), sparse.csr_array(rows)):
        held = minimum_volume_ellipsoid(form)
        assert certified(rows.toarray(), held)
        again = minimum_volume_ellipsoid(rows.toarray())
        assert np.allclose(held.weights, again.weights, atol=1e-9)


def test_parts_do_not_matter(monkeypatch):
    rows = normal(1000, 5)
    whole = minimum_volume_ellipsoid(rows)
    monkeypatch.setattr(_row_sums, "_PART", 37)
    parts = minimum_volume_ellipsoid(rows)
    assert np.allclose(whole.whiten.T @ whole.whiten, parts.whiten.T @ parts.whiten, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_a_ball_holds_every_row_and_no_smaller_one_does(case):
    rows = CASES[case]
    ball = isotropic_ellipsoid(rows)
    assert ball.rank == RANKS.get(case, rows.shape[1])
    reached = norms(rows, ball).max()
    assert 1 - 1e-7 < reached <= 1
    radius = np.linalg.norm(rows, axis=1).max()
    sides = np.linalg.svd(ball.unwhiten / radius, compute_uv=False)
    assert np.allclose(sides, 1, atol=1e-6)
    assert (ball.weights, ball.gap) == (None, None)


@pytest.mark.parametrize("decay", [0.0, 0.5, 2.0])
def test_the_least_noise_holds_every_row_and_is_near_its_bound(decay):
    # (tr M^{1/2})² of any weights is a lower bound of what any such ellipsoid has.
    rows = normal(500, 6) * np.arange(1, 7.0) ** -decay
    held = least_noise_ellipsoid(rows)
    assert norms(rows, held).max() <= 1
    assert np.allclose(held.whiten @ held.unwhiten, np.eye(6))
    weights, found = np.full(500, 1 / 500), np.sum(held.unwhiten**2)
    for _ in range(300):
        values, vectors = np.linalg.eigh((rows * weights[:, None]).T @ rows)
        lengths = np.sum((rows @ vectors) ** 2 / np.sqrt(values), axis=1)
        weights *= lengths / np.sqrt(values).sum()
    least = np.sqrt(values).sum() ** 2
    assert least * (1 - 1e-6) <= found <= 1.3 * least
    for other in (isotropic_ellipsoid(rows), minimum_volume_ellipsoid(rows)):
        assert found <= np.sum(other.unwhiten**2) * 1.1


def test_a_ball_in_all_directions_is_not_turned():
    ball = isotropic_ellipsoid(normal(50, 3))
    assert np.count_nonzero(ball.unwhiten) == 3


@pytest.mark.parametrize("make", [minimum_volume_ellipsoid, isotropic_ellipsoid])
@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (np.zeros((3, 3)), "a row that is not 0"),
        (np.full((3, 3), 1e-200), "a row that is not 0"),
        (np.zeros((0, 3)), "a row that is not 0"),
        (np.zeros((3, 0)), "a row that is not 0"),
        (sparse.csr_array((4, 3)), "a row that is not 0"),
        (np.full((2, 2), 1e200), r"at most 2\^400"),
        (np.array([[1.0], [np.nan]]), "row 1"),
        (np.ones(3), "2 dimension"),
        (np.array([["a"]]), "numeric"),
        (sparse.csr_array(np.array([[1.0, 2.0], [0.0, np.inf]])), "row 1"),
        (sparse.csr_array(np.array([[1j]])), "numeric"),
    ],
)
def test_what_has_no_ellipsoid_is_refused(make, rows, said):
    with pytest.raises(DataError, match=said):
        make(rows)


def test_more_directions_than_matrices_hold_are_refused(monkeypatch):
    monkeypatch.setattr(ellipsoid, "_MOST_DIRECTIONS", 4)
    assert minimum_volume_ellipsoid(normal(4, 90)).rank == 4
    for make in (minimum_volume_ellipsoid, isotropic_ellipsoid):
        with pytest.raises(UsageError, match=r"may have 5 directions.*Nothing was spent"):
            make(normal(5, 90))


@pytest.mark.parametrize(
    ("n", "d", "most"), [(2000, 64, 19), (2000, 256, 34), (300, 256, 8), (300, 2048, 0)]
)
def test_wide_texts_need_few_rounds(monkeypatch, n, d, most):
    """Rounds are what a wide fit costs. Without momentum the second case takes 56, and from
    equal weights for all added rows the others take 30 and 16.
    """
    rounds, honest = [], _optimal_design._shares_of_rank

    def counted(rows, shares):
        rounds.append(len(rows))
        return honest(rows, shares)

    monkeypatch.setattr(_optimal_design, "_shares_of_rank", counted)
    pairs = read_pairs(simulate_pairs(n, seed=1)[0])
    held = minimum_volume_ellipsoid(pairs.differences(HashedText(dimension=d)))
    assert held.gap <= 0.05
    assert len(rounds) <= most


def test_a_moment_that_single_precision_cannot_factor_is_left_to_double(monkeypatch):
    """Nothing is lost: the same certificate, from the passes that follow."""
    honest = _optimal_design._shares_of_rank

    def half_blind(rows, shares):
        if rows.dtype == np.float32:
            raise np.linalg.LinAlgError
        return honest(rows, shares)

    monkeypatch.setattr(_optimal_design, "_shares_of_rank", half_blind)
    held = minimum_volume_ellipsoid(CASES["heavy tails"])
    assert held.gap <= 0.05
    assert certified(CASES["heavy tails"], held)


@pytest.mark.parametrize("gap", [0.0, 0.0009, 1.5, math.nan, None])
def test_a_gap_out_of_range_is_refused(gap):
    with pytest.raises(UsageError, match="gap"):
        minimum_volume_ellipsoid(normal(5, 2), gap=gap)


def test_a_solver_that_stops_early_says_so_and_is_still_sound(monkeypatch):
    rows = CASES["heavy tails"]
    monkeypatch.setattr(_optimal_design, "_PASSES", 1)
    monkeypatch.setattr(_optimal_design, "_ROUNDS", 5)
    held = minimum_volume_ellipsoid(rows, gap=0.001)
    assert held.gap > 0.001
    assert certified(rows, held)


def test_the_check_sees_a_wrong_design(monkeypatch):
    """A moment that is not the weights' own, and rows left out of the final scaling."""
    rows = CASES["round"]
    right = ellipsoid.optimal_moment

    def stretched(*given):
        moment, *weights = right(*given)
        return moment * np.where(np.eye(6) > 0, np.arange(1.0, 7), 1.0), *weights

    with monkeypatch.context() as patch:
        patch.setattr(ellipsoid, "optimal_moment", stretched)
        assert not certified(rows, minimum_volume_ellipsoid(rows))
    whole = ellipsoid._longest
    with monkeypatch.context() as patch:
        patch.setattr(ellipsoid, "_longest", lambda x, whiten: whole(x[:50], whiten))
        assert not certified(rows, minimum_volume_ellipsoid(rows))
    assert certified(rows, minimum_volume_ellipsoid(rows))
