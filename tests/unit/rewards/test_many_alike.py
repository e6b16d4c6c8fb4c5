"""Many records that are alike: sums of them must not round their way past the certificate."""

import math

import numpy as np
import pytest
from scipy.sparse import csr_array
from tests.tiers import few

from sordino.rewards.pair_losses import DebiasedLogistic
from sordino.rewards.solver import _FitState, minimize_ridge


@pytest.mark.parametrize("n", few([150_000, 300_000, 1_000_000], first=1))
@pytest.mark.parametrize("ball", [1.0, 100.0])
def test_it_is_fitted_whatever_their_number(n, ball):
    """An error for one number of records and none for the next would tell the number."""
    rows = np.ones((n, 1))
    targets = np.ones(n) if ball == 1.0 else (np.arange(n) % 2).astype(float)
    loss = DebiasedLogistic(rows, targets=targets, pull=np.array([0.3]))
    found = minimize_ridge(loss, ridge=0.77, atol=1e-8, ball=ball)
    assert found.gradient_norm <= 1e-8


@pytest.mark.parametrize("form", few([np.asarray, csr_array], first=1), ids=["dense", "sparse"])
def test_the_gradient_is_that_of_exact_sums(form):
    """Against a sum in exact arithmetic, within what is accepted; one product is not."""
    n = 3_000_000
    rows = form(np.ones((n, 1)))
    loss = DebiasedLogistic(rows, targets=np.ones(n))
    point = _FitState(loss, 1e-8, 10).exactly(np.array([0.7]))
    slope = 1 / (1 + math.exp(-0.7)) - 1
    assert abs(point.gradient[0] - n * slope) < 1e-8
