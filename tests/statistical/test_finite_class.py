"""The theorem for finite reward classes, on answers of simulated people."""

from __future__ import annotations

import math

import numpy as np

import sordino
from sordino.environments.values import gibbs_rows, kl_regret, prefer_first
from sordino.policies.gibbs import pessimistic_policy, suboptimality_bound
from sordino.preferences.pairs import PrivatePairs
from sordino.rewards.finite import FiniteRewards

CONFIDENCE = 0.95
EPSILON = 2.0
TEMPERATURE = 0.25
ACTIONS = [str(index) for index in range(6)]
PROMPTS = ["0", "1", "2"]


def world(generator, size):
    """Return a class written down as a table, shape (N, prompts, actions), and a reference."""
    table = generator.random((size, len(PROMPTS), len(ACTIONS)))
    reference = generator.dirichlet(np.ones(len(ACTIONS)), len(PROMPTS)) * 0.9 + 0.1 / len(ACTIONS)
    functions = {
        f"r{at:02d}": lambda prompts, answers, rows=rows: rows[
            np.array(prompts, dtype=int), np.array(answers, dtype=int)
        ]
        for at, rows in enumerate(table)
    }
    return FiniteRewards(functions), table, reference


def judged(truth, reference, n, generator, *, turned=False):
    """Return n randomized answers to pairs that were drawn from the reference."""
    contexts = generator.integers(len(PROMPTS), size=n)
    levels = reference.cumsum(axis=1)
    first, second = (
        np.minimum((levels[contexts] < generator.random(n)[:, None]).sum(axis=1), 5)
        for _ in range(2)
    )
    labels = prefer_first(truth[contexts, first] - truth[contexts, second], generator)
    flip = sordino.RandomizedResponse(EPSILON).flip_probability
    answers = labels ^ (generator.random(n) < flip)
    return PrivatePairs(
        keys=tuple(at.to_bytes(8, "big") for at in range(n)),
        public_digest="",
        prompts=tuple(map(str, contexts)),
        first=tuple(map(str, first)),
        second=tuple(map(str, second)),
        answers=(1 - answers if turned else answers).astype(np.int8),
        flip_probability=flip,
        guarantee=sordino.Guarantee(
            EPSILON, delta=0.0, unit="label", neighbors=sordino.REPLACE_ONE, trust="local"
        ),
        artifact="",
    )


def run(seed, *, n, turned=False):
    """Return disagreement with the truth over β², and regret over its bound; ≤ 1 as promised."""
    generator = np.random.default_rng(seed)
    rewards, table, reference = world(generator, size=12)
    target = int(generator.integers(12))
    pairs = judged(table[target], reference, n, generator, turned=turned)
    options = {"prompts": PROMPTS, "candidates": [ACTIONS] * 3, "reference": reference}
    ratios = []
    for fitted in (rewards.fit(pairs), rewards.fit(pairs, drawn_from_reference=True, **options)):
        chosen = int(np.argmax(fitted.weights))
        policy = pessimistic_policy(fitted, temperature=TEMPERATURE, confidence=CONFIDENCE)
        chances = policy.probabilities(PROMPTS, [ACTIONS] * 3, reference=reference)
        best = gibbs_rows(table[target], TEMPERATURE, reference)
        lost = kl_regret(np.array(chances), table[target], TEMPERATURE, reference)
        known = fitted.ellipsoid.at(CONFIDENCE)
        radius = known.radius(CONFIDENCE)
        bonuses = policy.bonus(PROMPTS, [ACTIONS] * 3, reference=reference)
        bound = np.mean(
            [
                suboptimality_bound(bonus / radius, base, radius=radius, temperature=TEMPERATURE)
                for bonus, base in zip(bonuses, best, strict=True)
            ]
        )
        ratios.append(
            (
                fitted.ellipsoid.spread[chosen, target]
                / fitted.ellipsoid.radius_squared(CONFIDENCE),
                lost / bound,
            )
        )
    return ratios


def test_the_theorem_holds_as_often_as_it_says():
    """Claim: PPKL, Theorem 4.2 (finite class)
    Verdict: plausible; constants reconstructed, very loose; with λ in the bonus the factor must
        be β² + λ (1.28 times the bound without it)
    Ours: sordino.FiniteRewards
    """
    # Promised in 95 % of runs, and loose: it holds in all of them, at .05 of its bound at most.
    # False alarm: 170 or fewer of 200 runs at 95 % each have probability 9e-8. Power: see the
    # next test.
    found = np.array([run(seed, n=300) for seed in range(200)])
    assert ((found <= 1).all(axis=(1, 2))).sum() > 170
    assert math.isfinite(found.sum())


def test_answers_read_the_wrong_way_round_break_it():
    found = np.array([run(seed, n=20_000, turned=True) for seed in range(10)])
    assert (found[:, :, 0] > 1).mean() > 0.5
