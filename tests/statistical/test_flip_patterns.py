"""Files whose flips follow a pattern are refuted with the raw file; honest ones are not.

Every planted file flips about as many labels as the claim says, so that their number alone tells
nothing, and has an infinite loss: somebody knows of some label how it was answered.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom

from sordino.auditing.releases.flips import (
    _count_ratio,
    attack_flips,
    find_exact_count,
)
from sordino.auditing.releases.reading import Released, decide

LEVEL = 1e-3
HARD = LEVEL / 60  # what Holm leaves of the level beside the channels of an ordinary file
N = 1200
WORDS = ("ab", "cde", "fghi", "j", "klmnop", "qrs", "tu", "vwxyz", "efg", "hijkl")


@cache
def world(seed: int, n: int = N, people: int = 40, epsilon: float = 1.0) -> Released:
    """Return a file of people who like longer answers; the answers are the labels themselves."""
    r = np.random.default_rng(seed)
    first, second = (
        tuple(" ".join(r.choice(WORDS, r.integers(2, 30))) for _ in range(n)) for _ in range(2)
    )
    longer = np.array([len(a) > len(b) for a, b in zip(first, second, strict=True)])
    truth = (r.random(n) < np.where(longer, 0.65, 0.35)).astype(np.int64)
    return Released(
        layout="answer",
        prompts=tuple(f"{w} {i}" for i, w in enumerate(r.choice(WORDS, n))),
        first=first,
        second=second,
        answers=truth,
        epsilon=epsilon,
        persons=tuple(f"p{i}" for i in r.integers(people, size=n)),
        columns={"time": tuple(np.cumsum(r.integers(1, 300, size=n)).tolist())},
        truth=truth,
    )


def flipped(file: Released, flips: np.ndarray) -> Released:
    return replace(file, answers=(file.truth ^ flips).astype(np.int64))


def first_longer(file: Released) -> np.ndarray:
    return np.array([len(a) > len(b) for a, b in zip(file.first, file.second, strict=True)])


def long_prompt(file: Released) -> np.ndarray:
    sizes = np.array([len(prompt) for prompt in file.prompts])
    return sizes > np.median(sizes)


def of_person(file: Released) -> np.ndarray:
    return np.array([int(person[1:]) for person in file.persons])


def fixed_numbers(file: Released, rate: float, r: np.random.Generator) -> np.ndarray:
    """Return just the expected number of flips in every 50 rows."""
    flips = np.zeros(len(file), dtype=bool)
    for start in range(0, len(file), 50):
        flips[start + r.permutation(50)[: round(50 * rate)]] = True
    return flips


AT = np.arange(N)
PLANTED = {
    "one label only": ("label-flips", lambda f, u, q, r: (f.truth == 1) & (u < 2 * q)),
    "one label in canonical order": (
        "label-flips",
        lambda f, u, q, r: ((f.truth ^ f.swapped) == 1) & (u < 2 * q),
    ),
    "who likes the longer one": (
        "label-flips",
        lambda f, u, q, r: ((f.truth == 1) == first_longer(f)) & (u < q / 0.65),
    ),
    "one label, then the other": (
        "label-flips",
        lambda f, u, q, r: (f.truth == (AT < N // 2)) & (u < 2 * q),
    ),
    "first half only": ("block-flips", lambda f, u, q, r: u < np.where(AT < N // 2, 2 * q, 0)),
    "a fifth never": ("block-flips", lambda f, u, q, r: u < np.where(AT < N // 5, 0, q / 0.8)),
    "every second row": ("block-flips", lambda f, u, q, r: u < np.where(AT % 2, 2 * q, 0)),
    "long answers never": (
        "stratum-flips",
        lambda f, u, q, r: u < np.where(first_longer(f), 0, 2 * q),
    ),
    "long prompts never": (
        "stratum-flips",
        lambda f, u, q, r: u < np.where(long_prompt(f), 0, q / (1 - long_prompt(f).mean())),
    ),
    "half of the people never": (
        "neighbor-flips",
        lambda f, u, q, r: u < np.where(of_person(f) % 2, 0, 2 * q),
    ),
    "one coin for two rows": ("neighbor-flips", lambda f, u, q, r: u[AT // 2 * 2] < q),
    "the same, beginning later": (
        "neighbor-flips",
        lambda f, u, q, r: u[(AT + 1) // 2 * 2 % N] < q,
    ),
    "the coins of the first half again": (
        "neighbor-flips",
        lambda f, u, q, r: u[AT % (N // 2)] < q,
    ),
    "400 coins again and again": ("neighbor-flips", lambda f, u, q, r: u[AT % 400] < q),
    "the coins backwards": ("neighbor-flips", lambda f, u, q, r: u[np.minimum(AT, N - 1 - AT)] < q),
    "never both of two rows": (
        "neighbor-flips",
        lambda f, u, q, r: (u < 2 * q) & (r.integers(2, size=N)[AT // 2] == AT % 2),
    ),
    "numbers fixed in every 50 rows": ("exact-flips", lambda f, u, q, r: fixed_numbers(f, q, r)),
}


CASES = [(name, epsilon) for name in PLANTED for epsilon in (0.5, 1.0, 2.0)]
CASES.remove(("never both of two rows", 2.0))  # honest coins are both flipped in 1.4 % of pairs


@pytest.mark.parametrize(("name", "epsilon"), CASES)
def test_a_pattern_of_flips_is_refuted(name, epsilon):
    # Power at 1,200 rows of 40 people: each of these in 10 of 10 seeds.
    attack, plant = PLANTED[name]
    file, r = replace(world(3), epsilon=epsilon), np.random.default_rng(4)
    bad = flipped(file, plant(file, r.random(N), expit(-epsilon), r))
    found = {one.attack: one.p_value for one in attack_flips(bad)}
    assert found["flip-rate"] > HARD, "their number alone must not tell"
    assert found[attack] < HARD


def test_honest_files_are_not_refuted():
    # 200 files of 100 to 300 rows. All p-values are bounds on exact tails, so that none of the
    # files is refuted with probability above .8; in fact they are far from using up the level.
    for seed in range(200):
        r = np.random.default_rng([8, seed])
        epsilon = float(r.choice([0.1, 0.5, 1.0, 2.0, 4.0]))
        file = replace(world(seed % 4, 100 + 60 * (seed % 4), 1 + 7 * (seed % 4)), epsilon=epsilon)
        file = file if seed % 3 else replace(file, persons=None)
        honest = flipped(file, r.random(len(file)) < expit(-epsilon))
        assert not [x for x in decide(attack_flips(honest), LEVEL) if x.outcome == "refutes"]


def test_p_values_are_valid_at_exactly_the_claim():
    # 200 files: the share of p ≤ α exceeds α + 4 standard errors with chance < 1e-4 each.
    values: dict[str, list[float]] = {}
    file, r = world(1, 80, 10), np.random.default_rng(2)
    for _ in range(200):
        for one in attack_flips(flipped(file, r.random(80) < expit(-1.0))):
            values.setdefault(one.attack, []).append(one.p_value)
    for attack, found in values.items():
        for level in (0.01, 0.05, 0.2):
            assert np.mean(np.array(found) <= level) <= level + 4 * np.sqrt(level / 200), attack


def test_a_smaller_loss_than_claimed_is_no_violation():
    # Rates between that of the claim and its complement, different by place, length and person.
    file = world(5)
    for seed in range(20):
        r = np.random.default_rng([9, seed])
        rates = r.choice([expit(-1.0), 0.4, 0.5, 0.6, expit(1.0)], size=(4, 40))
        rate = rates[2 * first_longer(file) + (AT < N // 2), of_person(file)]
        honest = flipped(file, r.random(N) < rate)
        assert not [x for x in decide(attack_flips(honest), LEVEL) if x.outcome == "refutes"]


def test_one_number_of_flips_is_a_warning_and_many_are_a_refutation():
    # Of honest files of 1,200 labels one in 39 has just the expected number; so one says little.
    file, r, rate = world(3), np.random.default_rng(4), expit(-1.0)
    flips = np.zeros(N, dtype=bool)
    flips[r.permutation(N)[: round(N * rate)]] = True
    decided = find_exact_count(decide(attack_flips(flipped(file, flips)), LEVEL))
    (found,) = [one for one in decided if one.attack == "exact-flips"]
    assert found.outcome == "warning"
    assert not [one for one in decided if one.outcome == "refutes"]
    each = np.zeros(N, dtype=bool)
    for person in range(40):
        mine = np.flatnonzero(of_person(file) == person)
        each[r.permutation(mine)[: round(len(mine) * rate)]] = True
    decided = decide(attack_flips(flipped(file, each)), HARD)
    assert {one.attack for one in decided if one.outcome == "refutes"} == {"exact-flips"}


def test_the_bound_on_one_number_of_flips_holds():
    from scipy.special import i0e

    for n in (2, 5, 10, 50, 1000):
        for chance in (0.02, 0.1, 0.27, 0.5):
            assert binom.pmf(np.arange(n + 1), n, chance).max() <= i0e(n * chance * (1 - chance))


def test_the_ratio_of_two_counts_is_judged_conservatively():
    # 2,000 pairs of counts at the worst rates that the claim permits, also where they differ by
    # label: one output is written for e times as many of the one label.
    r = np.random.default_rng(6)
    for under in (0.05, 0.269, 0.36):
        kept = r.binomial(80, min(1.0, under * np.e), size=1000)
        turned = r.binomial(50, under, size=1000)
        found = [_count_ratio(k, 80, t, 50, 1.0) for k, t in zip(kept, turned, strict=True)]
        for level in (0.01, 0.1):
            assert np.mean(np.array(found) <= level) <= level
    assert _count_ratio(70, 80, 0, 80, 1.0) < 1e-9
    assert _count_ratio(0, 0, 5, 50, 1.0) == _count_ratio(5, 50, 0, 0, 1.0) == 1.0
