from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom

import sordino
from sordino.environments.hard_instances import HardInstance, hardest_gap, minimax_regret

TEMPERATURE = 0.25


def hard(**changes):
    level = HardInstance.balanced_level(concentrability=5.0, temperature=TEMPERATURE)
    settings = {"contexts": 3, "concentrability": 5.0, "gap": 0.2, "level": level, "seed": 1}
    return HardInstance.random(**(settings | changes))


def test_rewards_features_and_reference_are_as_stated():
    world = HardInstance(signs=np.array([1, -1]), concentrability=4.0, gap=0.5, level=0.25)
    assert world.rewards == pytest.approx(np.array([[0.0, 0.75], [0.0, -0.25]]))
    assert world.reference == pytest.approx(np.array([[0.75, 0.25]] * 2))
    assert world.features @ world.weights == pytest.approx(world.rewards)
    assert np.linalg.norm(world.features, axis=2).max() == 1


def test_the_best_policy_is_balanced_and_within_the_concentrability():
    world = hard()
    best = world.best_policy(temperature=TEMPERATURE)
    assert best[:, 1] == pytest.approx(expit(0.2 * world.signs / TEMPERATURE))
    ratio = (best / world.reference).max()
    assert 5.0 / 2 < ratio <= 5.0
    assert 0 <= world.regret(best, temperature=TEMPERATURE) < 1e-15
    assert world.regret(world.reference, temperature=TEMPERATURE) > 0.01


def test_signs_are_fair_and_seeded():
    # Within 4.5 standard errors: false alarm 1e-5; power: a sign that is always + is 100 off.
    signs = hard(contexts=10_000).signs
    assert abs(signs.mean()) < 4.5 / 100
    assert np.array_equal(signs, hard(contexts=10_000).signs)
    assert not np.array_equal(signs, hard(contexts=10_000, seed=2).signs)


def test_comparisons_show_both_actions_as_often_as_the_reference_does():
    # n = 100,000: the share of rows, the share of each context, the share of rows with the rare
    # action first, and wins per context, each within 5 standard errors: false alarm below 1e-5.
    # Power: actions drawn evenly show both half of the time instead of .32: 120 errors.
    n, world = 100_000, hard()
    found = world.comparisons(n, seed=3)
    rows = len(found.labels)
    shown = 2 / 5 * 4 / 5
    assert found.drawn == n
    assert abs(rows / n - shown) < 5 * np.sqrt(shown * (1 - shown) / n)
    assert np.array_equal(np.abs(found.differences).sum(axis=1), np.ones(rows))
    sides, contexts = found.differences.sum(axis=1), np.abs(found.differences).argmax(axis=1)
    assert abs(sides.mean()) < 5 / np.sqrt(rows)
    for context, weight in enumerate(world.weights):
        part = contexts == context
        assert abs(part.mean() - 1 / 3) < 5 * np.sqrt(2 / 9 / rows)
        wins = np.where(sides[part] > 0, found.labels[part], 1 - found.labels[part]).mean()
        chance = expit(weight)
        assert abs(wins - chance) < 5 * np.sqrt(chance * (1 - chance) / part.sum())


@pytest.mark.parametrize("flip", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("n", [50, 800])
def test_the_hardest_gap_keeps_the_total_variation_below_one_half(flip, n):
    # exactly, over how often the pair is shown and how often the rare action wins
    level = HardInstance.balanced_level(concentrability=3.0, temperature=TEMPERATURE)
    gap = hardest_gap(n, contexts=2, concentrability=3.0, level=level, flip_probability=flip)
    shown = np.arange(n + 1)
    weights = binom.pmf(shown, n, 2 / 3 * 2 / 3 / 2)
    plus, minus = (flip + (1 - 2 * flip) * expit(level + sign * gap) for sign in (1, -1))
    distance = sum(
        weight * 0.5 * np.abs(binom.pmf(wins, m, plus) - binom.pmf(wins, m, minus)).sum()
        for m, weight in zip(shown, weights, strict=True)
        for wins in [np.arange(m + 1)]
        if weight > 1e-12
    )
    assert 0.2 < distance <= 0.5


def test_no_method_beats_the_lower_bound_where_all_of_them_can_be_tried():
    """Claim: PPKL, Theorem 4.5 (lower bound)
    Verdict: constant made explicit, (e^ε − 1)² sharpened to κ²
    Ours: sordino.environments.hard_instances.minimax_regret
    """
    # One context, few comparisons: the best policy for each outcome against the mean over signs
    # is the posterior's, so its exact risk is the smallest of all methods.
    concentrability, flip, n = 2.0, 0.2, 40
    level = HardInstance.balanced_level(concentrability=concentrability, temperature=TEMPERATURE)
    gap = hardest_gap(
        n, contexts=1, concentrability=concentrability, level=level, flip_probability=flip
    )
    chances = [flip + (1 - 2 * flip) * expit(level + sign * gap) for sign in (1, -1)]
    best = [expit(sign * gap / TEMPERATURE) for sign in (1, -1)]
    risk = 0.0
    for shown, weight in enumerate(binom.pmf(np.arange(n + 1), n, 0.5)):
        for wins in range(shown + 1):
            joint = np.array([0.5 * weight * binom.pmf(wins, shown, p) for p in chances])
            # KL(p ‖ q) averaged over signs is least at the geometric mean of the odds
            log_odds = (joint @ np.log(np.divide(best, 1 - np.array(best)))) / joint.sum()
            p = expit(log_odds)
            for share, q in zip(joint, best, strict=True):
                loss = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
                risk += share * TEMPERATURE * loss
    bound = minimax_regret(
        n,
        contexts=1,
        concentrability=concentrability,
        temperature=TEMPERATURE,
        flip_probability=flip,
    )
    assert 0.3 * risk < bound <= risk


def test_the_lower_bound_grows_as_its_closed_form_for_many_comparisons():
    # at a small level: C·S/(32·temperature·(1 − 1/C)·nκ²)
    for contexts, flip in product((3, 12), (0.1, 0.45)):
        bound = minimax_regret(
            10**8, contexts=contexts, concentrability=2.0, temperature=1.0, flip_probability=flip
        )
        shape = 2 * contexts / (32 * 0.5 * 10**8 * (1 - 2 * flip) ** 2)
        assert bound == pytest.approx(shape, rel=1e-3)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"concentrability": 1.0}, "concentrability"),
        ({"gap": -0.1}, "gap"),
        ({"gap": np.inf}, "gap"),
        ({"level": np.nan}, "level"),
        ({"contexts": 0}, "contexts"),
    ],
)
def test_instances_out_of_range_are_refused(change, match):
    with pytest.raises(sordino.UsageError, match=match):
        hard(**change)


@pytest.mark.parametrize("signs", [[0, 1], [], [[1, -1]], [2, 1]])
def test_signs_that_are_none_are_refused(signs):
    with pytest.raises(sordino.DataError, match="signs"):
        HardInstance(signs=np.array(signs), concentrability=2.0, gap=0.1, level=0.0)


def test_too_few_comparisons_have_no_hardest_gap():
    size = {"contexts": 10, "concentrability": 20.0, "level": 0.7, "flip_probability": 0.49}
    with pytest.raises(sordino.UsageError, match="n=5"):
        hardest_gap(5, **size)
    with pytest.raises(sordino.UsageError, match="flip_probability"):
        hardest_gap(5000, **(size | {"flip_probability": 0.5}))
