"""How far one record really moves a policy of arms, against every stated range, in 40 digits.

Data sets are arms (N, S): N rewards in [0, R] of sum S. Nothing is sampled but the inputs.
"""

import json
import math
from fractions import Fraction
from itertools import product
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import differential_evolution
from tests.tiers import few

from sordino.mechanisms import score_sensitivity as arms_
from sordino.mechanisms.score_sensitivity import penalty_step

DATA = Path(__file__).parents[1] / "data"
VECTORS = json.loads((DATA / "intrinsic.json").read_text(encoding="utf-8"))
DIGITS = 40
EVEN, FIRST_RARE, SECOND_RARE = (0, 0), (-40, 0), (0, -40)
REFERENCES = [EVEN, FIRST_RARE, SECOND_RARE]


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(DIGITS):
        yield


# --- the truth -------------------------------------------------------------------------------


def exact(value):
    value = Fraction(value)
    return mpmath.mpf(value.numerator) / value.denominator


def score(arm, *, shrinkage=0.0, center=0.0, penalty=0.0):
    """The score of an arm, None for one that is never drawn."""
    count, total = arm
    size = exact(count) + exact(shrinkage)
    if size == 0:
        return None
    return (exact(total) + exact(shrinkage) * exact(center)) / size - exact(penalty) / mpmath.sqrt(
        size
    )


def policy(scores, temperature, log_reference):
    """The probabilities of all arms."""
    heat = exact(temperature)
    levels = [
        None if value is None else mpmath.mpf(start) + value / heat
        for value, start in zip(scores, log_reference, strict=True)
    ]
    top = max(level for level in levels if level is not None)
    weights = [mpmath.mpf(0) if level is None else mpmath.exp(level - top) for level in levels]
    return [weight / sum(weights) for weight in weights]


def loss(one, other):
    """The largest log-ratio, either way."""
    return max(abs(mpmath.log(p / q)) for p, q in zip(one, other, strict=True) if p or q)


def with_record(arms, arm, reward):
    changed = list(arms)
    count, total = changed[arm]
    changed[arm] = (count + 1, total + reward)
    return changed


def states(most, least=0, reward_range=1):
    """Every number of rewards on {0, R}, and every sum of them."""
    return [(n, k * reward_range) for n in range(least, most + 1) for k in range(n + 1)]


def records(arms, reward_range=1):
    return list(product(range(arms), (0, reward_range)))


def losses(one, other, bound, **settings):
    """The largest loss over references, at the temperature where ``bound`` allows 1."""
    found = [[score(arm, **settings) for arm in arms] for arms in (one, other)]
    return max(
        loss(*(policy(scores, bound, reference) for scores in found)) for reference in REFERENCES
    )


# --- shrunken means --------------------------------------------------------------------------

SHRINKAGES = (0.05, 1.0, 9.0)
PENALTIES = (0.0, 2.0, 30.0)
CENTERS = (0.0, 0.2, 0.5, 1.0)


def worst_of_shrunken(shrinkage, penalty, center, most=3):
    """The largest truth/bound over all data sets of two arms with up to ``most`` records each."""
    settings = {"shrinkage": shrinkage, "penalty": penalty, "center": center}
    bound = arms_.shrunken_mean_range(shrinkage, reward_range=1.0, center=center, penalty=penalty)
    return max(
        losses([first, second], with_record([first, second], 0, reward), bound, **settings)
        for first in states(most)
        for second in ((0, 0), (1, 1), (most, 0))
        for reward in (0, 1)
    )


@pytest.mark.parametrize("center", CENTERS)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("shrinkage", few(SHRINKAGES, SHRINKAGES[0], SHRINKAGES[-1]))
def test_no_record_moves_shrunken_means_farther_and_the_first_one_attains_it(
    shrinkage, penalty, center
):
    ratio = worst_of_shrunken(shrinkage, penalty, center)
    assert ratio <= 1
    if center <= 0.5 or penalty == 0:
        assert ratio >= 0.999
    if center <= 0.5:  # by nothing against one best reward of a rare arm
        settings = {"shrinkage": shrinkage, "penalty": penalty, "center": center}
        bound = arms_.shrunken_mean_range(
            shrinkage, reward_range=1.0, center=center, penalty=penalty
        )
        nothing = [(0, 0), (0, 0)]
        assert losses(nothing, with_record(nothing, 0, 1), bound, **settings) >= 0.999


@pytest.mark.parametrize(("shrinkage", "penalty"), [(1.0, 0.0), (0.3, 4.0)])
def test_replacing_a_record_is_twice_as_much_and_no_more(shrinkage, penalty):
    bound = 2 * arms_.shrunken_mean_range(shrinkage, reward_range=1.0, penalty=penalty)
    settings = {"shrinkage": shrinkage, "penalty": penalty, "center": 0.5}
    ratio = max(
        losses(with_record(shared, *old), with_record(shared, *new), bound, **settings)
        for shared in product(states(1), repeat=2)
        for old, new in product(records(2), repeat=2)
    )
    assert 0.999 <= ratio <= 1


REWARDS = st.floats(0, 1)


@st.composite
def tables(draw):
    """Three arms, with sums that their counts allow."""
    counts = draw(st.lists(st.integers(0, 10**6), min_size=3, max_size=3))
    return [(count, Fraction(count) * Fraction(draw(REWARDS))) for count in counts]


@given(
    tables(),
    REWARDS,
    REWARDS,
    st.floats(1e-3, 1e3),
    st.floats(0, 1e3),
    REWARDS,
    st.lists(st.floats(-30, 30), min_size=3, max_size=3),
    st.floats(-3, 3),
)
def test_no_table_of_any_size_moves_farther(
    table, old, new, shrinkage, penalty, center, log_reference, heat
):
    width = 7.0
    table = [(count, total * Fraction(width)) for count, total in table]
    settings = {"shrinkage": shrinkage, "penalty": penalty, "center": center * width}
    bound = arms_.shrunken_mean_range(
        shrinkage, reward_range=width, center=center * width, penalty=penalty
    )
    temperature = bound * 10**heat
    made = [
        [score(arm, **settings) for arm in arms]
        for arms in (
            table,
            with_record(table, 0, Fraction(old) * 7),
            with_record(table, 1, Fraction(new) * 7),
        )
    ]
    first, second, third = (policy(scores, temperature, log_reference) for scores in made)
    allowed = exact(bound) / exact(temperature)
    rounding = mpmath.mpf(10) ** -30  # of 40 digits, relative to nothing
    assert loss(first, second) <= allowed + rounding
    assert loss(second, third) <= 2 * allowed + rounding


def test_an_optimizer_finds_nothing_beyond_the_bound():
    """Over shrinkage, counts, sums, reward, center and penalty at once."""

    def missing(point):
        shrinkage, count, share, reward, center, penalty = point
        shrinkage, count, penalty = 10**shrinkage, round(10**count - 1), 10**penalty
        size = count + shrinkage
        mean = (count * share + shrinkage * center) / size
        moved = (reward - mean) / (size + 1) + penalty * penalty_step(size)
        bound = arms_.shrunken_mean_range(
            shrinkage, reward_range=1.0, center=center, penalty=penalty
        )
        return -abs(moved) / bound

    found = differential_evolution(
        missing, [(-3, 3), (0, 4), (0, 1), (0, 1), (0, 1), (-4, 4)], rng=5, maxiter=60, tol=1e-12
    )
    assert 0.999 <= -found.fun <= 1 + 1e-12


@pytest.mark.parametrize(
    "row", [row for row in VECTORS if row["name"] == "MAB shrunken mean, all D"], ids=str
)
def test_the_vectors_of_shrunken_means(row):
    given_ = row["inputs"]
    assert given_["m0"] == given_["R"] / 2
    bound = arms_.shrunken_mean_range(
        given_["lam"], reward_range=given_["R"], penalty=given_["beta0"]
    )
    assert bound / given_["eta"] == pytest.approx(row["corrected"], rel=1e-12)
    settings = {"shrinkage": given_["lam"], "penalty": given_["beta0"], "center": given_["m0"]}
    one, other = (
        policy([score(arm, **settings) for arm in arms], given_["eta"], FIRST_RARE)
        for arms in ([(0, 0), (0, 0)], [(1, given_["R"]), (0, 0)])
    )
    assert float(loss(one, other)) == pytest.approx(row["exact"], rel=1e-9)
    assert 0.999 <= loss(one, other) / (exact(bound) / exact(given_["eta"])) <= 1


# --- rewards only, and after a test ----------------------------------------------------------


@pytest.mark.parametrize("shrinkage", [0.0, 0.5, 4.0])
def test_no_reward_moves_the_means_of_public_arms_farther(shrinkage):
    """Whatever the penalty, which is public."""
    worst = mpmath.mpf(0)
    made = {"shrinkage": shrinkage, "center": 0.5, "penalty": 3.0}
    for first, second in product(states(3), repeat=2):
        counts = np.array([first[0], second[0]])
        bound = arms_.rewards_only_range(counts, shrinkage=shrinkage, reward_range=1.0)
        assert (bound > 0) == any(counts)
        if first[0] > first[1]:  # one of its rewards is 0, and becomes 1
            other = (first[0], first[1] + 1)
            worst = max(worst, losses([first, second], [other, second], bound, **made))
    assert 0.999 <= worst <= 1


@pytest.mark.parametrize("penalty", [0.0, 3.0, 50.0])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_no_record_moves_means_farther_that_each_have_so_many_others(count, penalty):
    bound = arms_.mean_range_after_test(count, reward_range=1.0, penalty=penalty)
    for shrinkage in (0.0, 0.7):
        settings = {"shrinkage": shrinkage, "center": 0.5, "penalty": penalty}
        ratio = max(
            losses([first, second], with_record([first, second], 0, reward), bound, **settings)
            for first in states(count + 2, least=count)
            for second in ((count, 0), (count + 3, 1))
            for reward in (0, 1)
        )
        assert ratio <= 1
        assert shrinkage or ratio >= 0.999


def test_replacing_a_record_moves_tested_means_twice_as_far():
    bound = 2 * arms_.mean_range_after_test(2, reward_range=1.0, penalty=1.0)
    ratio = max(
        losses(with_record(shared, *old), with_record(shared, *new), bound, penalty=1.0)
        for shared in product(states(2, least=2), repeat=2)
        for old, new in product(records(2), repeat=2)
    )
    assert 0.999 <= ratio <= 1


@pytest.mark.parametrize("row", [r for r in VECTORS if r["name"] == "MAB instance"], ids=str)
def test_the_vectors_of_one_data_set_are_within_the_range_of_its_least_count(row):
    """All neighbors of that data set have every arm once at least beside what differs."""
    given_ = row["inputs"]
    rewards = [[Fraction(str(r)) for r in arm] for arm in given_["data"]]
    table = [(len(arm), sum(arm)) for arm in rewards]
    uniform = given_["pi0"] == "uniform"
    reference = [0, 0, 0] if uniform else [math.log(p) for p in (0.98, 0.01, 0.01)]
    least = min(map(len, rewards))
    bound = arms_.mean_range_after_test(least - 1, reward_range=1.0, penalty=given_["beta0"])
    assert bound / given_["eta"] == pytest.approx(row["corrected"], rel=1e-12)
    fewer = [
        [(n - 1, s - reward) if i == arm else (n, s) for i, (n, s) in enumerate(table)]
        for arm in range(3)
        for reward in rewards[arm]
    ]
    more = [with_record(table, *record) for record in records(3)]
    truth = max(
        loss(*(
            policy([score(a, penalty=given_["beta0"]) for a in arms], given_["eta"], reference)
            for arms in (table, other)
        ))
        for other in fewer + more
    )  # fmt: skip
    assert float(truth) == pytest.approx(row["exact"], rel=1e-9)
    assert truth <= exact(bound) / exact(given_["eta"])
    assert truth < row["published"]


# --- pessimism only --------------------------------------------------------------------------


# --- rounding --------------------------------------------------------------------------------

SIZES = st.floats(1e-300, 1e300) | st.floats(1e-6, 1e6) | st.integers(1, 10**15).map(float)
AMOUNTS = st.floats(0, 1e300) | st.floats(0, 10)


def step(size):
    with mpmath.workdps(400):  # the difference cancels up to 300 digits
        return 1 / mpmath.sqrt(exact(size)) - 1 / mpmath.sqrt(exact(size) + 1)


@given(SIZES, st.floats(1e-300, 1e300) | st.floats(1e-3, 1e3), AMOUNTS)
def test_no_range_is_rounded_below_its_formula(size, width, penalty):
    extra = exact(penalty) * step(size)
    wanted = exact(width) / 2 / (exact(size) + 1) + extra
    assume(wanted < 1e308)  # larger ranges are refused
    made = arms_.shrunken_mean_range(size, reward_range=width, penalty=penalty)
    lost = exact(penalty) * exact(math.ulp(0.0)) + exact(math.ulp(0.0))  # to what underflows
    assert wanted <= exact(made) <= wanted * (1 + mpmath.mpf(2) ** -47) + 2 * lost
    if size >= 1 and size == int(size) and size < 2**62:
        wanted = exact(width) / (exact(size) + 1) + extra
        made = arms_.mean_range_after_test(int(size), reward_range=width, penalty=penalty)
        assert wanted <= exact(made) <= wanted * (1 + mpmath.mpf(2) ** -47) + 2 * lost
        wanted = exact(width) / exact(size)
        made = arms_.rewards_only_range(np.array([int(size)]), shrinkage=0.0, reward_range=width)
        assert wanted <= exact(made) <= wanted * (1 + mpmath.mpf(2) ** -50) + 2 * lost
