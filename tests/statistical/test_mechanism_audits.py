"""Games come near a claim that is exactly true, refute it as rarely as said, and find bugs."""

from __future__ import annotations

import math

import audit_power
import pytest

import sordino
from sordino.mechanisms.gibbs import ExponentialMechanism

METRICS = sorted(audit_power.METRIC)


@pytest.mark.parametrize("game", audit_power.GAMES, ids=lambda game: f"{game[0]}-{game[1]}")
def test_the_bound_is_near_a_claim_that_is_exactly_true(game):
    # The seeds are fixed: 100 of 100 are above .9, the least at .913 (draws at range 1). Power:
    # a bound twice as far below the claim (a quarter of the trials) gives 92, 74 and 82 in the
    # first game of each mechanism, and fails.
    found = audit_power.tightness(*game, runs=100)
    assert found["metric"] == audit_power.METRIC[game[0]]
    assert found["at_least_nine_tenths"] >= 95
    # Coverage .95: more than 12 of 100 above the claim have probability 2e-3 if it were exact,
    # and bounds on two counts are conservative (measured: 0 to 4).
    assert found["above_the_claim"] <= 12


@pytest.mark.parametrize("kind", METRICS)
def test_a_claim_that_is_exactly_true_is_refuted_as_rarely_as_said(kind):
    # 1000 audits at a level of .05, three standard errors above it: a test that errs at its
    # level fails with probability 1.5e-3; measured 12, 1 and 27 of 1000. Power: one that errs
    # at .09 fails 98 times of 100.
    level, runs = 0.05, 1000
    found = audit_power.false_alarms(kind, size=1.0, trials=1000, level=level, runs=runs)
    assert found / runs <= level + 3 * math.sqrt(level * (1 - level) / runs)


def test_so_is_one_about_a_draw_of_several_actions():
    # As above, where a third action is drawn sometimes; 300 audits.
    level, runs = 0.05, 300
    choice = ExponentialMechanism(
        1.0, bound=1.0, reference=(0.7, 0.2, 0.1), neighbors=sordino.REPLACE_ONE
    )
    refuted = sum(
        audit_power.played(choice, seed, trials=1000, level=level).refuted for seed in range(runs)
    )
    assert refuted / runs <= level + 3 * math.sqrt(level * (1 - level) / runs)


@pytest.mark.parametrize("kind", METRICS)
def test_half_the_noise_is_refuted_at_default_settings(kind):
    # The loss is 2 where 1 is claimed, and 1.16 would be refuted 95 times of 100: a miss has
    # probability below 1e-9. False alarm: as above, at a level of 1e-3.
    assert audit_power.planted(kind, 1.0, runs=10) == 10


@pytest.mark.parametrize("kind", METRICS)
def test_what_is_said_to_be_detectable_is_refuted(kind):
    # 95 of 100 are promised, and quantiles of both counts at once promise too little (measured:
    # 100 of 100). 40 audits, at least 34: below that with probability 3e-3 at exactly .95.
    assert audit_power.refuted_at_power(kind, 1.0, trials=4000, runs=40) >= 34


@pytest.mark.parametrize("mu", [0.1, 1.0])
def test_a_gaussian_game_chooses_a_threshold_near_the_best_one(mu):
    # The power of μ assumes at most 1.25 standard deviations in 99 of 100; measured: 1.06, 1.03.
    assert audit_power.off_center(mu, trials=20_000, runs=300) <= 1.25
