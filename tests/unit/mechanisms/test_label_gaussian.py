"""Noise on labels: settings, which rows count, and the statistic that is released."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from sordino._random import SimulatedEntropy, SystemEntropy
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.label_sum import (
    LabelGaussian,
    _half_steps,
    counted_rows,
    lengths,
)
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
)

NOISE = LabelGaussian(1.0, delta=1e-6)


def normal(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def exact(differences, labels):
    return differences.T @ np.array([0.0, 1.0, 0.5])[labels]


def some_labels(n, seed=0):
    return np.random.default_rng(seed).integers(0, 3, n)


# --- what is promised -----------------------------------------------------------------------------


def test_labels_and_persons_are_promised():
    promise = NOISE.guarantee(unit="label", neighbors=REPLACE_ONE, trust="central")
    assert 1 - 1e-9 < promise.epsilon <= 1
    assert (promise.delta, promise.caveats) == (1e-6, ())
    capped = LabelGaussian(1.0, delta=1e-6, records_per_person=3)
    promise = capped.guarantee(unit="person", neighbors=REPLACE_ONE, trust="central")
    assert promise.epsilon <= 1
    assert promise.change == "all labels of one person are replaced by any others"


@pytest.mark.parametrize(
    ("unit", "neighbors", "said"),
    [
        ("record", REPLACE_ONE, "protects labels, not unit='record'"),
        ("records", REPLACE_ONE, "protects labels, not unit='records'"),
        ("person", REPLACE_ONE, "Set records_per_person"),
        ("label", REPLACE_SPECIAL, "under REPLACE_SPECIAL"),
        ("label", ADD_OR_REMOVE_ONE, "under ADD_OR_REMOVE_ONE"),
        ("record", ADD_OR_REMOVE_ONE, "under ADD_OR_REMOVE_ONE"),
        ("label", "REPLACE", "under REPLACE"),
    ],
)
def test_anything_else_is_refused(unit, neighbors, said):
    with pytest.raises(PrivacyError, match=said):
        NOISE.guarantee(unit=unit, neighbors=neighbors, trust="central")
    if neighbors != REPLACE_ONE:
        for thing in (NOISE.sensitivity, NOISE.prepare(normal(3, 2)).worst_case):
            with pytest.raises(PrivacyError, match="nothing is promised"):
                thing(neighbors)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"delta": 1e-308}, "too small"),
        ({"epsilon": 1e-200, "delta": 1e-300}, "too small"),
        ({"shaped": "yes"}, "shaped"),
        ({"grid": 2.0**-11}, "grid"),
        ({"grid": 2.0**-25}, "grid"),
    ],
)
def test_a_setting_out_of_range_is_refused(given, said):
    with pytest.raises(UsageError, match=said):
        LabelGaussian(**{"epsilon": 1.0, "delta": 1e-6, **given})


@pytest.mark.parametrize(("epsilon", "grid"), [(1e5, 2.0**-20), (30.0, 2.0**-12)])
def test_too_little_noise_for_the_grid_is_refused(epsilon, grid):
    with pytest.raises(UsageError, match="steps of the grid"):
        LabelGaussian(epsilon, delta=0.1, grid=grid).prepare(normal(5, 2))


# --- which rows count -----------------------------------------------------------------------------


def test_the_first_rows_of_a_person_count_in_the_order_of_preference():
    ids = ["a", "b", "a", "a", "b"]
    assert counted_rows(5, ids, None, 2).tolist() == [True, True, True, False, True]
    assert counted_rows(5, ids, [3, 2, 1, 0], 2).tolist() == [False, True, True, True, False]
    assert counted_rows(5, None, [3, 1], None).tolist() == [False, True, False, True, False]
    assert counted_rows(3, None, None, None).all()


def test_rows_that_do_not_count_change_nothing():
    rows, ids = normal(6, 2), ["a", "a", "b", "b", "b", "c"]
    noise = LabelGaussian(1.0, delta=1e-6, records_per_person=1)
    design = noise.prepare(rows, persons=ids)
    assert design.used.tolist() == [True, False, True, False, False, True]
    alone = NOISE.prepare(rows[design.used])
    assert np.allclose(design.covariance, alone.covariance, rtol=1e-9)
    labels = some_labels(6)
    for other in (labels, np.where(design.used, labels, 2)):
        assert design._total(other).tolist() == alone._total(labels[design.used]).tolist()
    wild = rows.copy()
    wild[~design.used] = 1e30
    assert np.array_equal(noise.prepare(wild, persons=ids).halves, design.halves)


@pytest.mark.parametrize(
    ("persons", "most", "rows", "error"),
    [
        (None, 2, None, UsageError),
        (["a"] * 4, None, None, UsageError),
        (["a"] * 3, 2, None, DataError),
        (["a", "b", "c", None], 2, None, DataError),
        (["a", "b", "c", math.nan], 2, [0], DataError),
        (None, None, [0, 4], DataError),
        (None, None, [-1], DataError),
        (None, None, [1, 1], DataError),
        (None, None, [0.5], DataError),
        (None, None, np.zeros((2, 2), dtype=int), DataError),
        (None, None, [], DataError),
    ],
)
def test_what_says_not_which_rows_count_is_refused(persons, most, rows, error):
    noise = LabelGaussian(1.0, delta=1e-6, records_per_person=most)
    with pytest.raises(error, match=r"persons|rows"):
        noise.prepare(normal(4, 2), persons=persons, rows=rows)


# --- whole steps ----------------------------------------------------------------------------------


def test_lengths_are_rounded_up_and_never_by_more_than_a_part_of_a_step():
    generator = np.random.default_rng(0)
    halves = generator.integers(-(2**22), 2**22, size=(500, 7)).astype(np.int32)
    halves[0], halves[1] = 0, [3, 4, 0, 0, 0, 0, 0]
    for row, length in zip(halves, lengths(halves), strict=True):
        square = 4 * sum(int(h) ** 2 for h in row)
        assert Fraction(int(length), 64) ** 2 >= square
        assert length == 0 or Fraction(int(length) - 1, 64) ** 2 < square
    assert lengths(halves)[:2].tolist() == [0, 640]


def test_the_largest_grid_does_not_overflow():
    halves = _half_steps(
        np.ones((1, 4)), np.ones(1, dtype=bool), np.eye(4) * 2.0**24, longest=2.0**24
    )
    assert lengths(halves).tolist() == [2**25 * 64]


@pytest.mark.parametrize("size", [np.nan, np.inf, 3.0, 1e200])
def test_a_row_that_counts_and_leaves_the_grid_is_refused(size):
    rows, used = np.array([[1.0, 0.0], [size, 0.0]]), np.array([True, True])
    with pytest.raises(DataError, match="Nothing was spent"):
        _half_steps(rows, used, np.eye(2) * 2.0, longest=2.0)
    halves = _half_steps(rows, np.array([True, False]), np.eye(2) * 2.0, longest=2.0)
    assert halves.tolist() == [[1, 0], [0, 0]]


# --- the statistic --------------------------------------------------------------------------------


def test_sparse_vectors_give_what_dense_ones_give():
    rows = sparse.random(200, 30, density=0.1, random_state=0, format="csr")
    ids = np.arange(200) // 3
    noise = LabelGaussian(1.0, delta=1e-6, records_per_person=2)
    dense = noise.prepare(rows.toarray(), persons=ids)
    for form in (rows, rows.tocoo(), sparse.csr_array(rows)):
        design = noise.prepare(form, persons=ids)
        assert np.allclose(design.covariance, dense.covariance, rtol=1e-6)
        assert abs(design.halves - dense.halves).max() <= 1


@pytest.mark.parametrize("shaped", [True, False])
def test_a_release_is_the_sum_up_to_its_noise(shaped):
    """Off by more than 7 standard deviations with probability below 1e-10, from system entropy."""
    rows, labels = normal(50, 3) * [10.0, 1.0, 1e-6], some_labels(50)
    noise = LabelGaussian(1.0, delta=1e-6, shaped=shaped)
    design = noise.prepare(rows)
    statistic = design.release(labels, entropy=SystemEntropy())
    off = np.linalg.solve(design.factor, statistic - exact(rows, labels))
    assert abs(off).max() < 7
    assert design.used.all()
    assert (design.release(labels, entropy=SystemEntropy()) != statistic).any()


@pytest.mark.parametrize("rank", [4, 2])
@pytest.mark.parametrize("shaped", [True, False])
def test_the_noise_has_the_stated_covariance(shaped, rank):
    """40,000 seeded draws. False alarm below 1e-7: 10 entries and 4 means at 6 deviations.

    A variance wrong by 5 % is 7 deviations off.
    """
    rows = normal(60, rank) @ normal(rank, 4, 1) * [5.0, 1.0, 0.2, 0.01]
    design = LabelGaussian(1.0, delta=1e-6, shaped=shaped).prepare(rows)
    labels, trials = some_labels(60), 40_000
    draws = design.repeat(labels, trials, entropy=SimulatedEntropy(0)) - exact(rows, labels)
    assert design.factor.shape == (4, rank)
    white = draws @ np.linalg.pinv(design.factor).T
    assert np.allclose(white @ design.factor.T, draws, atol=1e-3)
    assert abs(white.mean(axis=0)).max() < 6 / math.sqrt(trials)
    spread = math.sqrt(trials) * (white.T @ white / trials - np.eye(rank))
    spread /= np.where(np.eye(rank) > 0, math.sqrt(2), 1)
    assert abs(spread).max() < 6


def test_the_log_ratio_is_that_of_gaussians_with_the_stated_covariance():
    rows = normal(40, 3) * [3.0, 1.0, 0.1]
    design = NOISE.prepare(rows)
    case = design.worst_case(REPLACE_ONE)
    outputs = design.repeat(case.one, 50, entropy=SimulatedEntropy(1))
    one, other = (exact(rows, side) for side in (case.one, case.other))
    inverse = np.linalg.inv(design.covariance)
    direct = (outputs - (one + other) / 2) @ inverse @ (one - other)
    assert np.allclose(design.log_ratio(outputs, case), direct, atol=1e-4)
    size = (one - other) @ inverse @ (one - other)
    assert abs(math.sqrt(size) / NOISE.mu - 1) < 1e-5


def noise_felt(rows, *, shaped):
    """The expected squared size of the noise."""
    return np.trace(LabelGaussian(1.0, delta=1e-6, shaped=shaped).prepare(rows).covariance)


@pytest.mark.parametrize(
    ("decay", "least", "most"), [(0.0, 1.1, 1.3), (0.5, 2.5, 3.5), (2.0, 12.0, 20.0)]
)
def test_shaped_noise_is_felt_less(decay, least, most):
    rows = normal(2000, 20) * np.arange(1, 21) ** -decay
    gain = noise_felt(rows, shaped=False) / noise_felt(rows, shaped=True)
    assert least < gain < most


@pytest.mark.parametrize("labels", [[0, 1], [0, 1, 3], [0, 1, 0.5], [[0, 1, 1]], [0, 1, 1, 1]])
def test_labels_that_cannot_be_used_are_refused(labels):
    design = NOISE.prepare(normal(3, 2))
    with pytest.raises(DataError, match="Labels"):
        design.release(np.array(labels), entropy=SystemEntropy())
