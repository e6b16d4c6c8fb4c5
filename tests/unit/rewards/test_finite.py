from __future__ import annotations

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sordino
from sordino.policies.gibbs import optimistic_policy, pessimistic_policy
from sordino.preferences.features import Features
from sordino.rewards import confidence as disagreement
from sordino.rewards import finite
from sordino.rewards.confidence import DisagreementSet
from sordino.rewards.finite import FiniteRewards


def share_of(letter):
    def function(prompts, answers):
        return np.array([answer.count(letter) / len(answer) for answer in answers])

    return function


def prefers_long(prompts, answers):
    return [min(len(answer), 12) / 12 for answer in answers]


REWARDS = FiniteRewards(
    {"o": share_of("o"), "a": share_of("a"), "long": prefers_long, "half": share_of("e")}
)
WORDS = ["sonata", "motet", "opera", "fugue", "concerto", "aria", "oboe", "cantata"]


def records(n, seed=0, people=None):
    generator = np.random.default_rng(seed)
    rows = []
    for index in range(n):
        chosen, rejected = generator.choice(WORDS, 2, replace=False)
        row = {"prompt": f"q{index % 40}", "chosen": str(chosen), "rejected": str(rejected)}
        rows.append(row if people is None else row | {"person": f"p{index % people}"})
    return rows


@pytest.fixture
def answers(ledger):
    def make(n=80, epsilon=1.5, people=None, seed=0):
        pairs = sordino.read_pairs(records(n, seed, people))
        coin = sordino.RandomizedResponse(epsilon)
        return sordino.privatize(pairs, coin, ledger=ledger(epsilon * 2 if people else epsilon))

    return make


def chosen(fitted):
    return fitted.features.names[int(np.argmax(fitted.weights))]


def exact_likelihoods(pairs, rows):
    """50 digits, one answer after the other."""
    found = []
    with mpmath.workdps(50):
        flip = mpmath.mpf(float(pairs.flip_probability))
        for name in REWARDS.names:
            total = mpmath.mpf(0)
            for at in rows:
                both = [pairs.first[at], pairs.second[at]]
                one, two = REWARDS.score(name, [pairs.prompts[at]] * 2, both)
                gap = mpmath.mpf(float(one)) - mpmath.mpf(float(two))
                chance = (1 - 2 * flip) / (1 + mpmath.exp(-gap)) + flip
                total += mpmath.log(chance if pairs.answers[at] == 1 else 1 - chance)
            found.append(float(total))
    return np.array(found)


@pytest.mark.parametrize("epsilon", [0.2, 1.5, 30.0])
def test_the_likeliest_is_found_by_enumeration(answers, epsilon):
    pairs = answers(epsilon=epsilon)
    fitted = REWARDS.fit(pairs)
    wanted = exact_likelihoods(pairs, range(len(pairs)))
    np.testing.assert_allclose(fitted.statistic, wanted, rtol=1e-12)
    assert chosen(fitted) == REWARDS.names[int(wanted.argmax())]
    assert (fitted.pairs, fitted.artifact) == (80, pairs.artifact)
    assert (fitted.guarantee, fitted.release_ids) == (pairs.guarantee, pairs.release_ids)


def test_repeats_of_one_person_count_once(ledger):
    rows = records(40, seed=3, people=8)
    account, coin = ledger(40.0), sordino.RandomizedResponse(1.0)
    pairs = sordino.read_pairs(rows + rows + rows[:7])
    private = sordino.privatize(pairs, coin, ledger=account)
    once = np.flatnonzero(private.first_rows())
    fitted = REWARDS.fit(private)
    assert fitted.pairs == len(once) < len(private)
    np.testing.assert_allclose(fitted.statistic, exact_likelihoods(private, once), rtol=1e-12)


def test_ties_go_to_the_name_that_comes_first(answers):
    pairs = answers()
    for names in (["b", "a", "c"], ["c", "b", "a"]):
        assert chosen(FiniteRewards(dict.fromkeys(names, prefers_long)).fit(pairs)) == "a"


def test_one_block_or_many(answers, monkeypatch):
    pairs = answers(people=3)
    one = REWARDS.fit(pairs)
    monkeypatch.setattr(finite, "_BLOCK", 12)
    two = REWARDS.fit(pairs)
    np.testing.assert_allclose(one.statistic, two.statistic, rtol=1e-12)
    np.testing.assert_allclose(one.ellipsoid.spread, two.ellipsoid.spread, rtol=1e-12, atol=1e-15)


def test_disagreement_on_the_pairs(answers):
    pairs = answers()
    fitted = REWARDS.fit(pairs)
    gaps = REWARDS.transform(pairs.prompts, pairs.first) - REWARDS.transform(
        pairs.prompts, pairs.second
    )
    for i in range(4):
        for j in range(4):
            wanted = np.mean((gaps[:, i] - gaps[:, j]) ** 2) / 2
            assert fitted.ellipsoid.spread[i, j] == pytest.approx(wanted, abs=1e-14)


def test_disagreement_under_the_reference(answers):
    prompts, options = ["x", "y"], [WORDS[:3], WORDS[3:8]]
    reference = [[0.2, 0.3, 0.5], [0.1, 0.2, 0.3, 0.2, 0.2]]
    fitted = REWARDS.fit(
        answers(), drawn_from_reference=True, prompts=prompts, candidates=options,
        reference=reference,
    )  # fmt: skip
    wanted = np.zeros((4, 4))
    for prompt, words, base in zip(prompts, options, reference, strict=True):
        rows = REWARDS.transform([prompt] * len(words), words)
        for i in range(4):
            for j in range(4):
                gap = rows[:, i] - rows[:, j]
                wanted[i, j] += (base @ gap**2 - (base @ gap) ** 2) / 2
    np.testing.assert_allclose(fitted.ellipsoid.spread, wanted, atol=1e-15)
    # pairs that are drawn from the reference disagree as much, in expectation
    both = [
        ((one[i] - two[i]) - (one[j] - two[j])) ** 2 / 2 * p * q / 2
        for prompt, words, base in zip(prompts, options, reference, strict=True)
        for one, p in zip(REWARDS.transform([prompt] * len(words), words), base, strict=True)
        for two, q in zip(REWARDS.transform([prompt] * len(words), words), base, strict=True)
        for i, j in [(0, 2)]
    ]
    assert sum(both) == pytest.approx(fitted.ellipsoid.spread[0, 2])


@pytest.mark.parametrize("make", [pessimistic_policy, optimistic_policy])
def test_policies_use_the_definition_of_the_bonus(answers, make):
    """Claim: PPKL, Theorem 4.2 (finite class)"""
    pairs = answers()
    fitted = REWARDS.fit(pairs)
    prompts, options = ["x", "y"], [WORDS[:3], WORDS[3:8]]
    reference = [np.array([0.2, 0.3, 0.5]), np.array([0.1, 0.2, 0.3, 0.2, 0.2])]
    policy = make(fitted, temperature=0.5, confidence=0.9)
    square = (103.5 / (1 - 2 * pairs.flip_probability) ** 2 + 8) * math.log(2 * 4 / 0.1) / 80
    assert fitted.ellipsoid.radius_squared(0.9) == pytest.approx(square)
    found = policy.bonus(prompts, options, reference=reference)
    chances = policy.probabilities(prompts, options, reference=reference)
    sign = {pessimistic_policy: -1, optimistic_policy: 1}[make]
    for at, (words, base) in enumerate(zip(options, reference, strict=True)):
        rows = REWARDS.transform([prompts[at]] * len(words), words)
        largest = np.zeros(len(words))
        for i in range(4):
            for j in range(4):
                gap = rows[:, i] - rows[:, j]
                squared = (gap - base @ gap) ** 2 / (square + fitted.ellipsoid.spread[i, j])
                largest = np.maximum(largest, squared)
        bonus = np.sqrt((square + square) * largest)
        np.testing.assert_allclose(found[at], bonus, rtol=1e-9)
        rewards = fitted.score([prompts[at]] * len(words), words)
        weights = base * np.exp((rewards + sign * bonus) / 0.5)
        np.testing.assert_allclose(chances[at], weights / weights.sum(), rtol=1e-9)


@settings(max_examples=60)
@given(st.integers(1, 9), st.integers(0, 40), st.floats(1e-6, 10), st.integers(0, 2**32))
def test_widths_are_the_largest_of_all_pairs(size, m, ridge, seed):
    generator = np.random.default_rng(seed)
    moments = generator.normal(size=(size, size))
    spread = disagreement.spread_of(moments @ moments.T)
    rows = generator.normal(size=(m, size))
    known = DisagreementSet(center=np.eye(size)[0], spread=spread, ridge=ridge, n=10, kappa=0.5)
    wanted = [
        max(
            [0.0]
            + [
                abs(row[i] - row[j]) / math.sqrt(ridge + spread[i, j])
                for i in range(size)
                for j in range(i)
            ]
        )
        for row in rows
    ]
    np.testing.assert_allclose(known.widths(rows), np.reshape(wanted, m), rtol=1e-12)


def test_widths_in_blocks(monkeypatch):
    generator = np.random.default_rng(0)
    spread = disagreement.spread_of(np.cov(generator.normal(size=(5, 30))))
    rows = generator.normal(size=(50, 5))
    known = DisagreementSet(center=np.eye(5)[0], spread=spread, ridge=0.1, n=10, kappa=1.0)
    whole = known.widths(rows)
    monkeypatch.setattr(disagreement, "_CACHED", 12)
    np.testing.assert_array_equal(known.widths(rows), whole)


def test_every_ridge_is_valid_and_moves_the_bonus_between_its_limits(answers):
    fitted = REWARDS.fit(answers())
    rows = REWARDS.transform(["x"] * 3, WORDS[:3])
    centered = rows - rows.mean(axis=0)
    widest = np.ptp(centered, axis=1)  # what any bonus must reach where it knows nothing
    huge = replace(fitted.ellipsoid, ridge=1e12)
    np.testing.assert_allclose(huge.radius(0.9) * huge.widths(centered), widest, rtol=1e-5)
    default = fitted.ellipsoid.at(0.9)
    assert default.ridge == fitted.ellipsoid.radius_squared(0.9)
    assert default.radius(0.9) == pytest.approx(math.sqrt(2 * default.ridge))
    with pytest.raises(sordino.UsageError, match="ridge"):
        replace(fitted.ellipsoid, ridge=0).at(0.9)


def radius_squared(confidence, *, candidates, **known):
    center, spread = np.eye(candidates)[0], np.zeros((candidates, candidates))
    return DisagreementSet(center=center, spread=spread, **known).radius_squared(confidence)


def test_the_radius_falls_as_the_effective_number_of_answers():
    first = radius_squared(0.95, n=1000, candidates=7, kappa=0.1)
    assert radius_squared(0.95, n=4000, candidates=7, kappa=0.1) == pytest.approx(first / 4)
    tenth = radius_squared(0.95, n=1000, candidates=7, kappa=0.01)
    assert tenth / first == pytest.approx(100, rel=1e-3)
    assert radius_squared(0.99, n=1000, candidates=7, kappa=0.1) > first
    for wrong in (0, 1, math.nan):
        with pytest.raises(sordino.UsageError, match="confidence"):
            radius_squared(wrong, n=10, candidates=2, kappa=1.0)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([0.1, 1.2], r"'bad'.*entry 1"),
        ([-1e-9, 0.1], r"'bad'.*entry 0"),
        ([0.1, math.nan], r"'bad'.*row 1"),
        ([0.1], r"'bad' must be 2"),
        ([[0.1], [0.2]], r"'bad'.*dimension"),
        (["x", "y"], r"'bad'.*numeric"),
    ],
)
def test_rewards_outside_zero_and_one_are_refused(returned, message):
    rewards = FiniteRewards({"bad": lambda prompts, answers: returned, "good": prefers_long})
    with pytest.raises(sordino.DataError, match=message) as caught:
        rewards.transform(["SECRET", "b"], ["c", "SECRET"])
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("functions", [{}, {"": prefers_long}, {3: prefers_long}, {"a": 1}, [1]])
def test_what_is_no_class_is_refused(functions):
    with pytest.raises(sordino.UsageError, match="functions"):
        FiniteRewards(functions)


def test_raw_judgments_and_pairs_without_texts_are_refused(answers, linear_world, ledger):
    raw = sordino.read_pairs(records(5))
    with pytest.raises(sordino.PrivacyError, match="raw judgments"):
        REWARDS.fit(raw)
    with pytest.raises(sordino.UsageError, match="privatize"):
        REWARDS.fit([1, 2])
    pairs, _ = linear_world(5, 2)
    given = sordino.privatize(pairs, sordino.RandomizedResponse(1.0), ledger=ledger(1.0))
    with pytest.raises(sordino.UsageError, match="from_features"):
        REWARDS.fit(given)
    private = answers()
    for setting in (
        {"drawn_from_reference": True},
        {"drawn_from_reference": True, "prompts": ["x"]},
        {"prompts": ["x"], "candidates": [WORDS]},
        {"prompts": ["x"]},
        {"reference": [[1.0]]},
    ):
        with pytest.raises(sordino.UsageError, match="drawn_from_reference"):
            REWARDS.fit(private, **setting)


def test_what_is_stored_holds_no_code_and_tells_fits_apart(answers):
    pairs = answers()
    fitted = REWARDS.fit(pairs)
    known = fitted.to_dict()
    assert known["features"] == {"kind": "finite-class", "names": ["a", "half", "long", "o"]}
    assert known["guarantee"] == pairs.guarantee.to_dict()
    other = REWARDS.fit(pairs, drawn_from_reference=True, prompts=["x"], candidates=[WORDS])
    third = REWARDS.fit(pairs, drawn_from_reference=True, prompts=["x"], candidates=[WORDS[:4]])
    assert len({str(made.to_dict()) for made in (fitted, other, third)}) == 3
    assert str(known) == str(REWARDS.fit(pairs).to_dict())
    assert repr(fitted).startswith("RewardModel(d=4, epsilon=1.5")
    assert isinstance(REWARDS, Features)
    assert repr(REWARDS) == "FiniteRewards('a', 'half', 'long', 'o')"
