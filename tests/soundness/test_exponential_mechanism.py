"""The exponential mechanism, exactly: the probabilities that its thresholds realize, as fractions.

Nothing here is sampled but the inputs: every probability is a whole number of 2^-128.
"""

import math
from decimal import Context, Decimal
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiers import few

from sordino.auditing.exact import exact_epsilon
from sordino.mechanisms import gibbs
from sordino.mechanisms.gibbs import SLACK, ExponentialMechanism, thresholds
from sordino.privacy.conversions import bounded_range_delta
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL

RELATIONS = [ADD_OR_REMOVE_ONE, REPLACE_SPECIAL, REPLACE_ONE]
DIGITS = Context(prec=60)
BOTH_WAYS = [(0, 1), (1, 0)]


def exact(mechanism, values):
    """The probabilities that a release draws from, without any rounding."""
    cuts = [0, *thresholds(mechanism._log_weights(values))]
    assert cuts[-1] == 2**128
    return {
        action: Fraction(high - low, 2**128)
        for action, (low, high) in enumerate(pairwise(cuts))
        if high > low
    }


def exact_delta(channel, neighbors, epsilon):
    """The smallest δ at an ε: the largest hockey-stick divergence (Balle, Wang 2018, Theorem 5)."""
    factor = Fraction(DIGITS.exp(Decimal(epsilon)))
    return max(
        sum(max(p - factor * channel[other].get(y, 0), 0) for y, p in channel[one].items())
        for one, other in neighbors
    )


def logarithm(value):
    return DIGITS.ln(DIGITS.divide(Decimal(value.numerator), Decimal(value.denominator)))


def range_of_log_ratios(channel):
    """The length of the interval that all log-ratios lie in; infinite if a support differs."""
    if channel[0].keys() != channel[1].keys():
        return Decimal("Infinity")
    ratios = [chance / channel[1][action] for action, chance in channel[0].items()]
    return logarithm(max(ratios) / min(ratios))


def other_inputs(rows, index, new, neighbors):
    """The input after one change of one record."""
    if neighbors is ADD_OR_REMOVE_ONE:
        return np.delete(rows, index, axis=0)
    changed = rows.copy()
    changed[index] = new if neighbors is REPLACE_ONE else 0.0
    return changed


def keeps_its_promise(mechanism, one, other, neighbors):
    """The check that mutants must fail: range, pure loss and curve are all as stated."""
    stated = mechanism.bounded_range(neighbors)
    channel = {0: exact(mechanism, one), 1: exact(mechanism, other)}
    promise = mechanism.guarantee(unit="record", neighbors=neighbors, trust="central")
    return (
        range_of_log_ratios(channel) <= Decimal(stated)
        and exact_epsilon(channel, BOTH_WAYS) <= Decimal(promise.epsilon)
        and all(
            exact_delta(channel, BOTH_WAYS, share * stated)
            <= Decimal(bounded_range_delta(share * stated, stated))
            for share in (0.0, 0.3, 0.9)
        )
    )


def ideal(mechanism, rows):
    """An implementation of its own, for scores on the grid: fractions, then 60 digits."""
    step, most = Fraction(mechanism.bound) / 2**20, 2**20
    support = [a for a, chance in enumerate(mechanism.reference) if chance > 0]
    totals = dict.fromkeys(support, Fraction(0))
    for row in rows.tolist():
        least = min(Fraction(row[a]) for a in support)
        for a in support:
            totals[a] += min((Fraction(row[a]) - least) / step, Fraction(most)) * step
    with mpmath.workdps(60):
        levels = {
            a: mpmath.log(mpmath.mpf(mechanism.reference[a]))
            + mpmath.mpf(total.numerator) / total.denominator / mpmath.mpf(mechanism.temperature)
            for a, total in totals.items()
        }
        top = max(levels.values())
        weights = {a: mpmath.exp(max(level - top, -30)) for a, level in levels.items()}
        return {a: mpmath.log(w / sum(weights.values())) for a, w in weights.items()}


def follows_its_formula(mechanism, rows):
    """Log-probabilities within a quarter of the slack of what they are in real numbers."""
    realized, wanted = exact(mechanism, rows), ideal(mechanism, rows)
    if realized.keys() != wanted.keys():
        return False
    with mpmath.workdps(60):
        quarter = mpmath.mpf(SLACK.numerator) / SLACK.denominator / 4
        return all(
            abs(mpmath.log(mpmath.mpf(p.numerator) / p.denominator) - wanted[a]) <= quarter
            for a, p in realized.items()
        )


# --- cases -----------------------------------------------------------------------------------

REFERENCES = [
    (0.5, 0.5),
    (0.25, 0.75),
    (0.0, 0.3, 0.0, 0.7),
    (0.2, 0.2, 0.2, 0.4),
    (1e-300, 1.0),
    (1e-9, 0.0, 1e-14, 1.0 - 1e-9),
    (1e-6, 1.0 - 1.1e-5, 1e-5),
]
HUGE = [1.7e308, -1.7e308, 1e200, -1e200]
SCORES = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 0.5, 3.0, -3.0, 5e-324, 2.0**-21, *HUGE]),
    st.floats(-4.0, 4.0),
    st.floats(allow_nan=False, allow_infinity=False),
)


@st.composite
def cases(draw):
    """A mechanism, two neighboring inputs and their relation."""
    reference = draw(st.sampled_from(REFERENCES))
    neighbors = draw(st.sampled_from(RELATIONS))
    bound = draw(st.sampled_from([1.0, 0.1, 3.0, 1e-3, 1e6]))
    mechanism = ExponentialMechanism(
        bound * 10 ** draw(st.floats(-2.0, 2.0)),
        bound=bound,
        reference=reference,
        neighbors=neighbors,
    )
    row = st.lists(SCORES, min_size=len(reference), max_size=len(reference))
    rows = np.array(draw(st.lists(row, min_size=1, max_size=6)))
    rows = np.repeat(rows, draw(st.integers(1, 40)), axis=0)  # far enough to meet the floor
    index = draw(st.integers(0, len(rows) - 1))
    return mechanism, rows, other_inputs(rows, index, np.array(draw(row)), neighbors), neighbors


def worst_inputs(k, temperature):
    """Fixed records: huge ones that cancel, large sums, one that dwarfs the rest, the floor."""
    wide = np.array([[10.0, 0.0, 0.0], [0.0, 1e9, 0.0], [0.0, 0.0, -1e9]])[:, :k]
    deep = np.zeros((math.ceil(33 * temperature), k))
    deep[:, 0] = 1.0
    yield from (wide, wide[1:2], deep, -deep)
    yield from (np.vstack([deep[:9], row]) for row in wide)
    yield np.array([[10.0, 0.0, 10.0], [0.0, 20.0, 10.0]])[:, :k]
    yield np.array([[1.0, -1.0, 0.5]])[:, :k]
    first, step = max(1, math.floor(26 * temperature)), max(1, math.floor(temperature / 3))
    yield from (deep[:rows] for rows in range(first, len(deep), step))


def worst_cases(epsilon=1.0, reference=(0.2, 0.3, 0.5)):
    """All of them for every relation, and the worst case that each mechanism says of itself."""
    for neighbors in RELATIONS:
        made = ExponentialMechanism.calibrated(
            epsilon, delta=0.0, bound=1.0, reference=reference, neighbors=neighbors
        )
        case = made.worst_case(neighbors)
        yield made, case.one, case.other, neighbors
        for rows in worst_inputs(len(reference), made.temperature):
            for index in (0, len(rows) - 1):
                new = np.roll(rows[index], 1)
                yield made, rows, other_inputs(rows, index, new, neighbors), neighbors


def all_keep_their_promise(**settings):
    """The check over all fixed inputs; a mutant is caught by any of them."""
    return all(keeps_its_promise(*case) for case in worst_cases(**settings))


ON_THE_GRID = np.array([[0.0, 0.25, 3.0], [1.0, 0.0, -1.0], [2.0**-20, 0.5, 0.5]])


def all_follow_their_formula():
    made = [
        ExponentialMechanism(temperature, bound=1.0, reference=reference, neighbors=REPLACE_ONE)
        for temperature in (0.003, 0.1, 0.7, 100.0)
        for reference in [(0.2, 0.3, 0.5), (1e-300, 0.5, 0.5), (0.4, 0.0, 0.6), (1e-20, 1.0, 0.0)]
    ]
    many = np.repeat(ON_THE_GRID, 7, axis=0)
    return all(follows_its_formula(m, rows) for m in made for rows in (ON_THE_GRID, many))


# --- what is promised ------------------------------------------------------------------------


@settings(max_examples=400)
@given(cases())
def test_no_change_of_one_record_shows_by_more_than_stated(case):
    assert keeps_its_promise(*case)


def test_nor_on_the_inputs_that_mutants_fail():
    assert all_keep_their_promise()
    assert all_keep_their_promise(epsilon=0.01)
    assert all_keep_their_promise(epsilon=40.0)
    assert all_keep_their_promise(reference=(1e-12, 1.0 - 1e-12, 0.0))


def test_the_event_states_the_range_of_its_relation():
    for made, *_, neighbors in worst_cases():
        assert made.event.bounded_range == made.bounded_range(neighbors)
        assert made.event.draws == 1


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize(
    "epsilon", few([1e-3, 0.1, 1.0, 8.0, 29.0, 45.0, 59.0, 200.0], 1e-3, 8.0, 200.0)
)
@pytest.mark.parametrize("reference", [*REFERENCES[:4], REFERENCES[-1], (0.1,) * 10])
def test_the_worst_case_attains_the_range_between_two_actions(neighbors, epsilon, reference):
    made = ExponentialMechanism.calibrated(
        epsilon, delta=0.0, bound=2.5, reference=reference, neighbors=neighbors
    )
    case = made.worst_case(neighbors)
    channel = {0: exact(made, case.one), 1: exact(made, case.other)}
    stated = made.bounded_range(neighbors)
    assert abs(float(range_of_log_ratios(channel)) - stated) <= 1e-6 * stated
    assert keeps_its_promise(made, case.one, case.other, neighbors)
    rows = len(case.one) - len(case.other)
    assert rows == (neighbors is ADD_OR_REMOVE_ONE)
    different = (case.one[: len(case.other)] != case.other).any(axis=1).sum()
    assert different + rows == 1, "they are neighbors"


@pytest.mark.parametrize("width", [0.1, 1.0, 5.0])
def test_the_curve_of_the_bounded_range_is_attained(width):
    """The balanced pair has the largest total variation of its range: tanh(b/4)."""
    likely = 1 / (1 + math.exp(-width / 2))
    made = ExponentialMechanism(
        1 / width, bound=1.0, reference=(likely, 1 - likely), neighbors=ADD_OR_REMOVE_ONE
    )
    channel = {0: exact(made, np.zeros((0, 2))), 1: exact(made, np.array([[0.0, 1.0]]))}
    worst = bounded_range_delta(0.0, made.bounded_range(ADD_OR_REMOVE_ONE))
    assert float(exact_delta(channel, BOTH_WAYS, 0.0)) == pytest.approx(worst, rel=1e-9)


def test_the_stated_range_is_no_larger_than_the_formula_by_more_than_a_rounding():
    made = ExponentialMechanism(0.7, bound=0.3, reference=(0.5, 0.5), neighbors=REPLACE_ONE)
    for neighbors, size in [(REPLACE_ONE, 2), (ADD_OR_REMOVE_ONE, 1), (REPLACE_SPECIAL, 1)]:
        exactly = size * Fraction(0.3) / Fraction(0.7)
        stated = made.bounded_range(neighbors)
        assert exactly + SLACK <= Fraction(stated)
        assert exactly + SLACK <= Fraction(repr(stated)), "as the accountant reads it"
        assert stated <= float(exactly) * (1 + 1e-15)


# --- what is drawn ---------------------------------------------------------------------------


def test_probabilities_are_within_the_slack_of_the_formula():
    assert all_follow_their_formula()


@pytest.mark.deep
def test_probabilities_are_within_the_slack_with_many_actions_at_the_floor():
    k = 2**16
    chances = (1.0 - 65535 * 2.0**-40, *[2.0**-40] * (k - 1))
    made = ExponentialMechanism(1e-3, bound=1.0, reference=chances, neighbors=REPLACE_ONE)
    rows = np.zeros((1, k))
    rows[0, 0] = 1.0  # e^1000 likelier than all others, which are floored
    realized = exact(made, rows)
    with mpmath.workdps(60):
        rare = mpmath.exp(-30) / (1 + (k - 1) * mpmath.exp(-30))
        worst = max(
            abs(mpmath.mpf(p.numerator) / p.denominator / rare - 1)
            for p in {p for a, p in realized.items() if a}
        )
    assert len(realized) == k
    assert worst < 2.0**-68


@given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3), max_size=5))
def test_an_action_without_reference_is_never_drawn_and_its_scores_do_not_count(rows):
    made = ExponentialMechanism(0.5, bound=1.0, reference=(0.4, 0.0, 0.6), neighbors=REPLACE_ONE)
    values = np.array(rows).reshape(-1, 3)
    other = values.copy()
    other[:, 1] = 1e300
    assert exact(made, values) == exact(made, other)
    assert exact(made, values).keys() == {0, 2}


# --- planted bugs ----------------------------------------------------------------------------


STEPS = 2**20


def unclipped(scores, bound):
    above = scores - scores.min(axis=1, keepdims=True)
    return np.rint(np.minimum(above / bound * STEPS, 2.0**60)).astype(np.int64)


def clipped_relative_to_all_records(scores, bound):
    return np.rint(np.minimum((scores - scores.min()) / bound, 1.0) * STEPS).astype(np.int64)


def clipped_to_a_ball(scores, bound):
    """The classical slip: |score| <= bound, whose range is twice the bound."""
    return np.rint(np.clip(scores / bound, -1.0, 1.0) * STEPS).astype(np.int64)


def scaled_by_the_largest_record(scores, bound):
    above = scores - scores.min(axis=1, keepdims=True)
    return np.rint(above / max(bound, above.max()) * STEPS).astype(np.int64)


@pytest.mark.parametrize(
    "mutant",
    [unclipped, clipped_relative_to_all_records, clipped_to_a_ball, scaled_by_the_largest_record],
)
def test_records_that_are_not_bounded_one_by_one_are_caught(mutant, monkeypatch):
    monkeypatch.setattr(gibbs, "_in_steps", mutant)
    assert not all_keep_their_promise()


def test_clipping_after_summing_is_caught(monkeypatch):
    def totals(self, values):
        sums = unclipped(np.asarray(values), self.bound).sum(axis=0)
        return dict(enumerate(np.minimum(sums - sums.min(), STEPS).tolist()))

    monkeypatch.setattr(ExponentialMechanism, "_totals", totals)
    assert not all_keep_their_promise()


def test_the_bound_instead_of_twice_the_bound_is_caught(monkeypatch):
    monkeypatch.setattr(ExponentialMechanism, "sensitivity", lambda self, neighbors: self.bound)
    assert not all_keep_their_promise()


def test_half_the_temperature_is_caught(monkeypatch):
    honest = ExponentialMechanism._totals

    def doubled(self, values):
        return {action: 2 * total for action, total in honest(self, values).items()}

    monkeypatch.setattr(ExponentialMechanism, "_totals", doubled)
    assert not all_keep_their_promise()
    assert not all_follow_their_formula()


def weight(depth):
    """2^160·exp(depth), rounded down."""
    return int(gibbs.DIGITS.multiply(2**160, gibbs.DIGITS.exp(depth)))


def test_cutting_rare_actions_off_instead_of_flooring_is_caught(monkeypatch):
    def cut_off(levels):
        top = max(levels)
        return [weight(v - top) if v - top > -30 else 0 for v in levels]

    monkeypatch.setattr(gibbs, "_weights", cut_off)
    assert not all_keep_their_promise()


def test_underflow_of_ordinary_floats_is_caught(monkeypatch):
    def floats(levels):
        top = max(levels)
        return [int(math.exp(max(-800.0, float(v - top))) * 2.0**53) for v in levels]

    monkeypatch.setattr(gibbs, "_weights", floats)
    assert not all_keep_their_promise()
    assert not all_follow_their_formula()


def test_a_floor_relative_to_a_constant_is_caught(monkeypatch):
    """It hides as much (the maximum of two monotone maps), but it is another policy."""

    def floored(levels):
        top = max(levels)
        return [weight(max(v, Decimal(-30)) - max(top, -30)) for v in levels]

    monkeypatch.setattr(gibbs, "_weights", floored)
    assert not all_follow_their_formula()


def test_coarse_thresholds_are_caught(monkeypatch):
    honest = gibbs.thresholds
    monkeypatch.setitem(
        globals(), "thresholds", lambda given: [cut >> 112 << 112 for cut in honest(given)]
    )
    assert not all_keep_their_promise()


def test_forgetting_the_reference_is_caught(monkeypatch):
    """It hides as much, but it is another policy, and draws what must never be drawn."""
    monkeypatch.setattr(gibbs, "log_of_chance", lambda chance: Decimal(0))
    assert not all_follow_their_formula()


def test_single_precision_is_caught(monkeypatch):
    monkeypatch.setattr(gibbs, "DIGITS", Context(prec=9))
    assert not all_follow_their_formula()
