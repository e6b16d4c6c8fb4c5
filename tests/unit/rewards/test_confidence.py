"""The confidence ellipsoid: its radius and widths by hand, its file, its refusals."""

import json
import math

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import expit

import sordino
from sordino.rewards.confidence import ConfidenceEllipsoid, confidence_ellipsoid, quadratic_tail
from sordino.rewards.pair_losses import DebiasedLogistic, debias
from sordino.rewards.solver import minimize_ridge

FLIP, BALL, RIDGE = 0.2, 3.0, 2.0


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(300, 4)) * np.array([1.0, 2.0, 0.5, 0.1])


def ellipsoid_of(rows, candidates=1):
    answers = np.random.default_rng(1).integers(0, 2, 300)
    loss = DebiasedLogistic(rows, debias(answers, FLIP))
    solution = minimize_ridge(loss, ridge=RIDGE, ball=BALL, atol=1e-6)
    return confidence_ellipsoid(
        rows, solution, flip_probability=FLIP, ball=BALL, ridge=RIDGE, candidates=candidates
    )


def test_the_radius_by_hand(rows):
    """Claim: PPKL, Theorem 4.2 (linear class)"""
    found = ellipsoid_of(rows)
    weights = [expit(z) * expit(-z) for z in BALL * np.linalg.norm(rows, axis=1)]
    metric = sum(w * np.outer(x, x) for w, x in zip(weights, rows, strict=True)) + RIDGE * np.eye(4)
    np.testing.assert_allclose(found.metric, metric, rtol=1e-12)
    values, vectors = np.linalg.eigh(metric)
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    spread = root @ rows.T @ rows @ root
    t = math.log(1 / 0.05)
    tail = (
        np.trace(spread)
        + 2 * math.sqrt(np.trace(spread @ spread) * t)
        + 2 * np.linalg.norm(spread, 2) * t
    )
    kappa = 1 - 2 * FLIP
    bias = RIDGE * BALL / math.sqrt(values[0])
    assert found.radius(0.95) == pytest.approx(math.sqrt(tail) / (2 * kappa) + bias, rel=1e-6)
    assert found.radius(0.95) >= math.sqrt(tail) / (2 * kappa) + bias  # inexactness adds
    assert quadratic_tail(2.0, 3.0, 1.0, 0.5) == 2 + 2 * math.sqrt(1.5) + 1


def test_more_confidence_and_more_candidates_widen_it(rows):
    one, six = ellipsoid_of(rows), ellipsoid_of(rows, candidates=6)
    assert one.radius(0.5) < one.radius(0.95) < one.radius(0.999)
    # six ridges at 95% are one at 1 − .05/6
    assert six.radius(0.95) == pytest.approx(one.radius(1 - 0.05 / 6), rel=1e-12)


def test_widths_dense_and_sparse(rows):
    found = ellipsoid_of(rows)
    inverse = np.linalg.inv(found.metric)
    by_hand = np.sqrt(np.einsum("ij,jk,ik->i", rows, inverse, rows))
    np.testing.assert_allclose(found.widths(rows), by_hand, rtol=1e-9)
    np.testing.assert_allclose(found.widths(csr_array(rows)), by_hand, rtol=1e-9)
    with pytest.raises(sordino.DataError, match="4"):
        found.widths(rows[:, :2])


def test_what_lies_inside(rows):
    found = ellipsoid_of(rows)
    direction = np.array([1.0, 0.0, 0.0, 0.0])
    reach = found.radius(0.95) / math.sqrt(found.metric[0, 0])
    assert found.contains(found.center + 0.999 * reach * direction, 0.95)
    assert not found.contains(found.center + 1.001 * reach * direction, 0.95)


def test_it_is_the_same_after_a_file(rows):
    found = ellipsoid_of(rows)
    again = ConfidenceEllipsoid.from_dict(json.loads(json.dumps(found.to_dict())))
    np.testing.assert_array_equal(again.metric, found.metric)
    np.testing.assert_array_equal(again.center, found.center)
    assert again.radius(0.9) == found.radius(0.9)
    assert repr(again) == repr(found)
    assert "0." in repr(found)


@pytest.mark.parametrize(
    "change",
    [
        {"metric": "AAAA"}, {"metric": None}, {"center": [0.0]}, {"center": ["x"] * 4},
        {"kappa": 0.0}, {"ball": -1.0}, {"ridge": None}, {"candidates": 0}, {"trace": -1.0},
    ],
)  # fmt: skip
def test_a_malformed_set_is_refused(rows, change):
    with pytest.raises(sordino.SordinoError):
        ConfidenceEllipsoid.from_dict(ellipsoid_of(rows).to_dict() | change)


def test_a_metric_that_is_not_positive_definite_is_refused(rows):
    values = ellipsoid_of(rows)
    negative = ConfidenceEllipsoid(
        **{name: getattr(values, name) for name in values.__dataclass_fields__}
        | {"metric": -values.metric}
    ).to_dict()
    with pytest.raises(sordino.DataError, match="malformed"):
        ConfidenceEllipsoid.from_dict(negative)
