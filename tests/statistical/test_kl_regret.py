"""Regret falls as one over the number of comparisons, and privacy costs a factor of 1/κ²."""

from __future__ import annotations

import kl_regret
import numpy as np

import sordino


def test_regret_falls_as_one_over_n():
    # From 2^13 to 2^17 comparisons at epsilon 1. One run's regret scatters by 55, 36, 15 % (bonus
    # scale 0, .3, 1), so the slope has a standard error of .034, .023, .010 around -1.00, -1.00,
    # -.97: false alarm below 3e-5. Power: regret that falls as 1/√n has slope -.5.
    few, many = 2**13, 2**17
    at_few = np.mean([kl_regret.regrets(1.0, n=few, seed=s) for s in range(2000, 2100)], axis=0)
    at_many = np.mean([kl_regret.regrets(1.0, n=many, seed=s) for s in range(3000, 3050)], axis=0)
    slopes = np.log(at_many / at_few) / np.log(many / few)
    assert np.abs(slopes + 1).max() <= 0.15
    assert (np.diff(at_many) > 0).all()  # where all is covered, caution costs


def test_privacy_costs_a_factor_of_kappa_squared():
    # The ratio is .98/κ² at epsilon 1 with a relative standard error of 7 %, so its logarithm is
    # 4.8 standard errors above that of .7: false alarm 1e-6. Power: no flips give 1 = .21/κ²;
    # plain regression's shrunken reward gives more than 10/κ².
    epsilon, n = 1.0, 2**14
    private, exact = (
        np.mean([kl_regret.regrets(level, n=n, seed=s)[0] for s in range(4000, 4110)])
        for level in (epsilon, kl_regret.NEVER)
    )
    kept = sordino.RandomizedResponse(epsilon).kappa
    assert 0.7 <= private / exact * kept**2 <= 1.8
