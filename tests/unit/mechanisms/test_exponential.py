"""One drawn action: settings, errors, the sampler's words, and what an auditor may ask."""

import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from sordino._random import SimulatedEntropy
from sordino.errors import BudgetExceeded, DataError, PrivacyError, UsageError
from sordino.mechanisms import gibbs
from sordino.mechanisms.gibbs import ExponentialMechanism, draw_actions, log_chances, thresholds
from sordino.privacy import accounting
from sordino.privacy.conversions import bounded_range_for
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    BoundedRangeEvent,
    Guarantee,
)
from sordino.privacy.ledger import Ledger

RELATIONS = [ADD_OR_REMOVE_ONE, REPLACE_SPECIAL, REPLACE_ONE]
REFERENCE = (0.5, 0.2, 0.3)


class Words:
    """An entropy that says the words it was given, and counts them."""

    randomness = "system"

    def __init__(self, words=()):
        self.given, self.taken = np.array(words, dtype=np.uint64), 0

    def words(self, n):
        start, self.taken = self.taken, self.taken + n
        assert self.taken <= len(self.given), "more words than allowed"
        return self.given[start : self.taken]


def halves(number):
    return [number >> 64, number % 2**64]


def made(temperature=0.5, **settings):
    given = {"bound": 1.0, "reference": REFERENCE, "neighbors": REPLACE_ONE}
    return ExponentialMechanism(temperature, **{**given, **settings})


# --- contract --------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_sensitivity_event_and_guarantee_agree(neighbors):
    mechanism = made(neighbors=neighbors)
    moved = 2.0 if neighbors is REPLACE_ONE else 1.0
    promise = mechanism.guarantee(unit="record", neighbors=neighbors, trust="central")
    assert mechanism.sensitivity(neighbors) == moved
    assert mechanism.bounded_range(neighbors) == pytest.approx(moved / 0.5, rel=1e-14)
    assert mechanism.event == BoundedRangeEvent(mechanism.bounded_range(neighbors))
    assert 0 <= promise.epsilon - mechanism.event.bounded_range < 1e-14  # as it prints, rounded up
    assert (promise.delta, promise.unit, promise.neighbors) == (0.0, "record", neighbors)
    assert promise.caveats == ()


def test_the_range_ends_where_the_floor_does():
    assert made(1e-9).bounded_range(REPLACE_ONE) == pytest.approx(60.0, rel=1e-14)
    assert made(1e-300, bound=1e300).bounded_range(REPLACE_ONE) >= 60.0


def test_units():
    label = made().guarantee(unit="label", neighbors=REPLACE_ONE, trust="central")
    assert 0 <= label.epsilon - made().bounded_range(REPLACE_ONE) < 1e-14  # as it prints
    for unit, neighbors in [
        ("person", REPLACE_ONE),
        ("label", REPLACE_SPECIAL),
        ("label", ADD_OR_REMOVE_ONE),
        ("household", REPLACE_ONE),
    ]:
        with pytest.raises(PrivacyError, match="one row of scores"):
            made().guarantee(unit=unit, neighbors=neighbors, trust="central")


# --- settings --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"bound": 1.7e308}, "bound"),
        ({"reference": (1.0,)}, "reference"),
        ({"reference": (1.0, 0.0)}, "reference"),
        ({"reference": (0.5, math.inf)}, "reference"),
    ],
)
def test_settings_that_are_refused(settings, word):
    with pytest.raises(UsageError, match=word):
        made(**settings)


@given(
    st.floats(1e-6, 50.0),
    st.sampled_from([0.0, 1e-12, 1e-6, 0.1]),
    st.floats(1e-6, 1e6),
    st.sampled_from(RELATIONS),
)
def test_calibration_keeps_its_target_and_wastes_nothing(epsilon, delta, bound, neighbors):
    mechanism = ExponentialMechanism.calibrated(
        epsilon, delta=delta, bound=bound, reference=REFERENCE, neighbors=neighbors
    )
    spent = [(mechanism.event, 1)]
    assert accounting.fits(spent, neighbors=neighbors, epsilon=epsilon, delta=delta)
    assert mechanism.event.bounded_range <= bounded_range_for(epsilon, delta)
    hotter = replace(mechanism, temperature=mechanism.temperature * (1 - 1e-9))
    assert not accounting.fits(
        [(hotter.event, 1)], neighbors=neighbors, epsilon=epsilon, delta=delta
    )


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.3, 1e-9), (4.0, 0.01)])
def test_a_ledger_with_exactly_that_budget_takes_one_draw(tmp_path, epsilon, delta):
    """The smallest ε that is found for δ is up to 10⁻⁶ larger: the search for it stops there."""
    record = {"unit": "record", "neighbors": REPLACE_ONE, "trust": "central"}
    mechanism = ExponentialMechanism.calibrated(
        epsilon, delta=delta, bound=1.0, reference=REFERENCE, neighbors=REPLACE_ONE
    )
    budget = Guarantee(epsilon, delta=delta, **record)
    ledger = Ledger.open(tmp_path / "spend.db", data="scores", budget=budget)
    promise = mechanism.guarantee(**record)
    ledger.reserve(mechanism.event, promise=promise)
    with pytest.raises(BudgetExceeded):
        ledger.reserve(mechanism.event, promise=promise)


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(0.0, 0.0), (1e-20, 0.0), (-1.0, 0.0), (math.inf, 0.0), (1.0, 1.0), (1.0, -0.1)],
)
def test_calibration_to_what_cannot_be_kept_is_refused(epsilon, delta):
    with pytest.raises(UsageError, match=r"epsilon|delta"):
        ExponentialMechanism.calibrated(
            epsilon, delta=delta, bound=1.0, reference=REFERENCE, neighbors=REPLACE_ONE
        )


def test_a_temperature_that_no_float_holds_is_refused():
    with pytest.raises(UsageError, match="temperature"):
        ExponentialMechanism.calibrated(
            1e-10, delta=0.0, bound=8e307, reference=REFERENCE, neighbors=REPLACE_ONE
        )


# --- data ------------------------------------------------------------------------------------


def test_no_record_draws_from_the_reference():
    chances = np.exp(made().log_probabilities(np.zeros((0, 3))))
    assert chances == pytest.approx(REFERENCE, rel=1e-15)
    skewed = made(reference=(1e-300, 1.0)).log_probabilities(np.zeros((0, 2)))
    assert skewed[0] == pytest.approx(-30.0, abs=1e-12)


def test_the_formula():
    values = np.array([[0.0, 0.25, 0.5], [3.0, 2.5, 3.0], [-10.0, 10.0, -9.75]])
    totals = np.sum([[0.0, 0.25, 0.5], [0.5, 0.0, 0.5], [0.0, 1.0, 0.25]], axis=0)
    weights = np.array(REFERENCE) * np.exp(totals / 0.5)
    wanted = np.log(weights / weights.sum())
    assert made().log_probabilities(values) == pytest.approx(wanted, rel=1e-13)


@given(st.lists(st.integers(-(2**30), 2**30), min_size=1, max_size=5))
def test_a_constant_added_to_all_scores_of_a_record_changes_nothing(shifts):
    values = np.arange(3.0 * len(shifts)).reshape(-1, 3) % 0.75
    moved = values + np.array(shifts, dtype=float)[:, None] * 0.25
    assert np.array_equal(made().log_probabilities(values), made().log_probabilities(moved))


def test_chunks_do_not_show(monkeypatch):
    values = np.random.default_rng(0).normal(size=(50, 3))
    whole = made().log_probabilities(values)
    monkeypatch.setattr(gibbs, "_EXPONENTIAL_CELLS", 7)
    assert np.array_equal(made().log_probabilities(values), whole)


def test_sums_do_not_overflow():
    """Records of 2^20 steps, 2^23 + 1 times: totals are Python's integers."""
    mechanism = made(1e9, reference=(0.5, 0.5))
    values = np.broadcast_to(np.array([[-1.7e308, 1.7e308]]), (2**23 + 1, 2))
    assert mechanism._totals(values) == {0: 0, 1: 2**43 + 2**20}


def test_totals_beyond_the_digits_of_a_float_are_told_apart(monkeypatch):
    mechanism = made(2.0**-20, reference=(0.5, 0.5))  # one step is one e
    for large in (0, 2**80):
        monkeypatch.setattr(
            ExponentialMechanism, "_totals", lambda self, _, by=large: {0: by, 1: by + 1}
        )
        chances = mechanism.log_probabilities(np.zeros((0, 2)))
        assert chances[1] - chances[0] == pytest.approx(1.0, rel=1e-14)


@given(st.fractions(0, 1000), st.sampled_from([0, 1, -1]))
def test_a_bound_is_rounded_up_and_so_is_what_it_prints_as(value, bits):
    given = max(Fraction(0), value + bits * Fraction(1, 2**64))
    result = gibbs.rounded_up(given, "value")
    assert min(Fraction(result), Fraction(repr(result))) >= given
    assert float(given) <= result <= math.nextafter(math.nextafter(float(given), 2e3), 2e3)


# --- what an auditor asks --------------------------------------------------------------------


@pytest.mark.parametrize("bad", [3, -1, 0.5, 1])
def test_log_ratios_of_what_is_never_drawn_are_refused(bad):
    mechanism = made(reference=(0.5, 0.0, 0.5))
    with pytest.raises(UsageError, match="outputs"):
        mechanism.log_ratio(np.array([[bad]]), mechanism.worst_case(REPLACE_ONE))


def test_the_worst_case_shows_in_few_draws():
    """The odds of two actions cross from one side of even to the other, and both are common."""
    for epsilon in (0.05, 0.5, 2.0):
        mechanism = ExponentialMechanism.calibrated(
            epsilon, delta=0.0, bound=1.0, reference=(0.01,) * 100, neighbors=ADD_OR_REMOVE_ONE
        )
        case = mechanism.worst_case(ADD_OR_REMOVE_ONE)
        chances = np.exp(mechanism.log_probabilities(case.other))
        losses = mechanism.log_ratio(np.arange(100), case)
        assert np.ptp(losses) == pytest.approx(epsilon, rel=1e-6)
        assert min(chances[np.argmax(losses)], chances[np.argmin(losses)]) > 0.15
        assert case.one.size < 2**18


def test_a_worst_case_lies_on_the_grid():
    """So that what it is meant to show is what the mechanism sees."""
    for neighbors in RELATIONS:
        case = made(0.9).worst_case(neighbors)
        assert case.one * 2**20 == pytest.approx(np.rint(case.one * 2**20), abs=1e-9)


def test_a_worst_case_that_would_be_enormous_is_refused():
    mechanism = made(1e6, reference=(1e-100, 1.0))
    with pytest.raises(UsageError, match="too uneven"):
        mechanism.worst_case(REPLACE_ONE)


# --- the sampler -----------------------------------------------------------------------------


def test_two_words_are_taken_for_each_draw_and_no_more():
    entropy = Words([0] * 14)
    assert draw_actions([0.0, 1.0], 7, entropy=entropy).tolist() == [0] * 7
    assert entropy.taken == 14
    one = Words([0, 0])
    made().release(np.zeros((3, 3)), entropy=one)
    assert one.taken == 2


@given(st.lists(st.floats(-50.0, 50.0) | st.just(-math.inf), min_size=1, max_size=6))
def test_both_edges_of_every_threshold(log_weights):
    if max(log_weights) == -math.inf:
        log_weights = [*log_weights, 0.0]
    cuts = [0, *thresholds(log_weights)]
    for action, (low, high) in enumerate(pairwise(cuts)):
        if low < high:
            edges = Words([*halves(low), *halves(high - 1)])
            assert draw_actions(log_weights, 2, entropy=edges).tolist() == [action, action]
        else:
            assert log_weights[action] == -math.inf


@given(
    st.lists(st.integers(0, 2**66), min_size=0, max_size=8),
    st.lists(st.integers(0, 2**66), min_size=1, max_size=8),
)
def test_thresholds_that_share_their_high_word_are_told_apart(cuts, numbers):
    cuts = sorted([*cuts, *numbers[:2]])
    high, low = np.array([halves(number) for number in numbers], dtype=np.uint64).T
    drawn = gibbs._drawn(cuts, high, low)
    assert drawn.tolist() == [sum(cut <= number for cut in cuts) for number in numbers]


def test_log_weights_may_be_decimals_floats_or_an_array():
    wanted = thresholds([Decimal("-0.5"), Decimal(0), Decimal("-Infinity")])
    assert thresholds([-0.5, 0, -math.inf]) == wanted
    assert thresholds(np.array([-0.5, 0.0, -math.inf])) == wanted
    assert thresholds([1e300, -1e300]) == thresholds([30.0, 0.0])
    assert thresholds([1e300 + 2e284, 1e300]) == thresholds([1e9, 0.0])


def test_chances_add_up_and_are_what_the_thresholds_say():
    cuts = thresholds([math.log(3.0), -math.inf, 0.0])
    assert cuts[-1] == 2**128
    assert float(Fraction(cuts[0], 2**128)) == pytest.approx(0.75, rel=1e-15)
    assert np.exp(log_chances(cuts)) == pytest.approx([0.75, 0.0, 0.25], rel=1e-15)


@pytest.mark.parametrize(
    "bad", [[0.0, math.nan], [0.0, math.inf], [-math.inf], [], [Decimal("NaN")]]
)
def test_log_weights_that_are_none_draw_nothing(bad):
    with pytest.raises(DataError, match="og-weight"):
        draw_actions(bad, 1, entropy=Words())


def test_too_many_actions_or_no_number_of_draws():
    with pytest.raises(UsageError, match="65536"):
        draw_actions([0.0] * (2**16 + 1), 1, entropy=Words())
    for bad in (-1, 1.5, True):
        with pytest.raises(UsageError, match="trials"):
            draw_actions([0.0], bad, entropy=Words())


# --- frequencies -----------------------------------------------------------------------------

# 200,000 draws at a fixed seed against 5 degrees of freedom; an honest sampler fails one seed in
# a million. Power: scores at a temperature 3 % off, or a likely action 1 % likelier, fail it
# (asserted below).
FALSE_ALARM = 1e-6
DRAWS = 200_000


def statistic(drawn, chances):
    counts = np.bincount(drawn[:, 0], minlength=len(chances))
    return ((counts - DRAWS * chances) ** 2 / (DRAWS * chances)).sum()


def test_frequencies_are_the_stated_probabilities():
    reference = (0.05, 0.1, 0.4, 0.2, 0.05, 0.2)
    values = np.random.default_rng(1).normal(size=(40, 6))
    mechanism = made(2.0, reference=reference)
    drawn = mechanism.repeat(values, DRAWS, entropy=SimulatedEntropy(11))
    limit = chi2.isf(FALSE_ALARM, 5)
    assert statistic(drawn, np.exp(mechanism.log_probabilities(values))) < limit
    warmer = np.exp(made(2.0 * 1.03, reference=reference).log_probabilities(values))
    assert statistic(drawn, warmer) > limit


@pytest.mark.parametrize("seed", range(3))
def test_few_draws_by_floats_are_those_of_exact_thresholds(seed):
    generator = np.random.default_rng(seed)
    for _ in range(300):
        k = int(generator.integers(1, 30))
        levels = [Decimal(x) for x in (generator.normal(size=k) * 20).tolist()]
        for index in np.flatnonzero(generator.random(k) < 0.2)[: k - 1]:
            levels[index] = Decimal("-Infinity")
        words = Words(generator.integers(0, 2**64, 8, dtype=np.uint64))
        few = draw_actions(levels, 4, entropy=words)
        cuts = [cut for cut in thresholds(levels) if cut < 2**128]
        high, low = words.given.reshape(4, 2).T
        assert few.tolist() == gibbs._drawn(cuts, high, low).tolist()


@pytest.mark.parametrize("off", [0, 1, -1, 2**20, -(2**20)])
def test_words_near_a_threshold_are_left_to_exact_arithmetic(off, monkeypatch):
    """Floats cannot tell on which side such a word lies."""
    levels = [Decimal(0), Decimal("0.1"), Decimal("-0.2")]
    cut = thresholds(levels)[0]
    word = cut + off
    drawn = draw_actions(levels, 1, entropy=Words(halves(word)))
    assert drawn.tolist() == [0 if word < cut else 1]
    assert gibbs._drawn_plainly(levels, np.array([word >> 64], dtype=np.uint64)) is None
