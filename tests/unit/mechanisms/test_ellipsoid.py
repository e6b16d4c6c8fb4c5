"""Ellipsoids: every row is inside, and hardly any other has less variance in all."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from sordino.errors import DataError, UsageError
from sordino.mechanisms import ellipsoid, grid
from sordino.mechanisms.ellipsoid import (
    isotropic_ellipsoid,
    least_noise_ellipsoid,
)


def normal(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def norms(rows, held):
    return np.linalg.norm(rows @ held.whiten.T, axis=1)


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


@pytest.mark.parametrize("case", CASES)
def test_every_row_is_inside_and_every_direction_kept(case):
    rows = CASES[case]
    held = least_noise_ellipsoid(rows)
    # What noise has in each column: rounding below it loses nothing, whatever the columns' units.
    reach = np.linalg.norm(held.unwhiten, axis=1)
    reach[~rows.any(axis=0)] = 1.0
    assert (np.abs(rows).max(axis=0) <= reach * (1 + 1e-9)).all()
    assert held.rank == RANKS.get(case, rows.shape[1])
    assert norms(rows, held).max() <= 1
    assert np.allclose(held.whiten @ held.unwhiten, np.eye(held.rank), atol=1e-6)
    assert np.abs((rows @ held.whiten.T @ held.unwhiten.T - rows) / reach).max() < 1e-6


def test_single_precision_features_keep_their_rank_and_stay_inside():
    """Noise of 1e-8 is a direction of its own; rounding may then put a row outside by a little."""
    rows = (normal(500, 8) @ normal(8, 20, 1)).astype(np.float32)
    held = least_noise_ellipsoid(rows)
    assert held.rank == 20
    assert norms(rows.astype(np.float64), held).max() < 1 + 1e-7


@given(st.integers(1, 6), st.integers(1, 30), st.integers(0, 2**32 - 1), st.integers(-40, 40))
@settings(max_examples=60)
def test_any_small_rows(d, n, seed, exponent):
    generator = np.random.default_rng(seed)
    rows = np.rint(generator.standard_cauchy(size=(n, d)) * 3).clip(-1e6, 1e6)
    rows[0, 0] = 1.0
    rows *= 2.0**exponent
    held = least_noise_ellipsoid(rows)
    assert held.rank == np.linalg.matrix_rank(rows)
    assert norms(rows, held).max() <= 1


def test_sparse_rows_are_as_dense_ones():
    rows = sparse.random(300, 64, density=0.05, random_state=1, format="csr")
    for form in (rows, rows.tocoo(), sparse.csr_array(rows)):
        held, again = least_noise_ellipsoid(form), least_noise_ellipsoid(rows.toarray())
        assert norms(rows, held).max() <= 1
        np.testing.assert_allclose(
            held.unwhiten @ held.unwhiten.T, again.unwhiten @ again.unwhiten.T
        )


def test_parts_do_not_matter(monkeypatch):
    rows = normal(1000, 5)
    whole = least_noise_ellipsoid(rows)
    monkeypatch.setattr(grid, "_PART", 37)
    parts = least_noise_ellipsoid(rows)
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
    assert found <= np.sum(isotropic_ellipsoid(rows).unwhiten ** 2) * 1.1


def test_a_ball_in_all_directions_is_not_turned():
    ball = isotropic_ellipsoid(normal(50, 3))
    assert np.count_nonzero(ball.unwhiten) == 3


@pytest.mark.parametrize("make", [least_noise_ellipsoid, isotropic_ellipsoid])
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
    assert least_noise_ellipsoid(normal(4, 90)).rank == 4
    for make in (least_noise_ellipsoid, isotropic_ellipsoid):
        with pytest.raises(UsageError, match=r"may have 5 directions.*Nothing was spent"):
            make(normal(5, 90))
