"""Composition: every cell of the support table against a formula of its own, and the traps."""

import itertools
import math

import dp_accounting as dp
import mpmath as mp
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from tests.soundness.deltas import composed_delta

from sordino.errors import PrivacyError, UsageError
from sordino.privacy import accounting as a
from sordino.privacy.accountants import (
    closed_bounds,
    loss_distribution_bound,
    support_table,
)
from sordino.privacy.guarantee import (
    EVENTS,
    ApproximateEvent,
    BoundedRangeEvent,
    Event,
    GaussianEvent,
    NonPrivateEvent,
    PoissonGaussianEvent,
    PureEvent,
    RandomizedResponseEvent,
    event_to_row,
)
from sordino.privacy.guarantee import NeighboringRelation as Relation

REPLACE, ADD_REMOVE, ZERO_OUT = (
    Relation.REPLACE_ONE,
    Relation.ADD_OR_REMOVE_ONE,
    Relation.REPLACE_SPECIAL,
)
EXAMPLES = [
    (RandomizedResponseEvent(1.0), 3),
    (RandomizedResponseEvent(0.6, categories=4), 3),
    (GaussianEvent(0.5), 4),
    (PureEvent(0.5), 3),
    (ApproximateEvent(0.5, 1e-8), 3),
    (BoundedRangeEvent(0.5, draws=4), 2),
    (PoissonGaussianEvent(1.0, 0.1, steps=2), 1),
]
CELLS = list(itertools.product(EXAMPLES, Relation))
DELTA = 1e-6


# ----------------------------------------------------------------- formulas of their own


def answers(event, neighbors):
    """Return the two distributions of one answer, on all categories."""
    k = event.categories
    other = 1 / (math.exp(event.epsilon) + k - 1)
    kept = math.exp(event.epsilon) * other
    first = [kept] + [other] * (k - 1)
    second = [other, kept] + [other] * (k - 2)
    return first, [1 / k] * k if neighbors == ZERO_OUT else second


def product_delta(first, second, count, epsilon):
    """Return the hockey-stick divergence of two products, outcome by outcome."""
    total = mp.mpf(0)
    with mp.workdps(40):
        for outcome in itertools.product(range(len(first)), repeat=count):
            one = mp.fprod(mp.mpf(first[i]) for i in outcome)
            two = mp.fprod(mp.mpf(second[i]) for i in outcome)
            total += max(mp.mpf(0), one - mp.exp(epsilon) * two)
    return total


def both_ways(first, second, count, epsilon):
    return max(
        product_delta(first, second, count, epsilon), product_delta(second, first, count, epsilon)
    )


def least_epsilon(delta_at, delta, high=60.0):
    """Bisect a decreasing δ(ε)."""
    low = 0.0
    if delta_at(0.0) <= delta:
        return 0.0
    for _ in range(64):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_at(middle) > delta else (low, middle)
    return high


def gaussian_delta(epsilon, mu):
    with mp.workdps(40):
        mu = mp.mpf(mu)
        tail = mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)
        return mp.ncdf(mu / 2 - epsilon / mu) - tail


def renyi_epsilon(rho, delta):
    orders = 1 + np.geomspace(1e-3, 1e6, 200_001)
    odds = np.log(delta * orders) / (orders - 1)
    return max(0.0, float((rho * orders + np.log1p(-1 / orders) - odds).min()))


def truth(event, count, neighbors):
    """Return (exact, best provable) epsilon of a homogeneous composition at DELTA."""
    match event:
        case GaussianEvent():
            mu = event.mu * math.sqrt(count)
            exact = least_epsilon(lambda e: gaussian_delta(e, mu), DELTA)
            return exact, exact
        case BoundedRangeEvent():
            draws = event.draws * count
            exact, b = 0.0, event.bounded_range
            for t in (0.3 * b, 0.5 * b, 0.7 * b):
                first = [math.expm1(t - b) / math.expm1(-b)]
                first.append(1 - first[0])
                second = [first[0] * math.exp(-t), first[1] * math.exp(b - t)]
                exact = max(exact, least_epsilon(_binomial(first, second, draws), DELTA))
            return exact, min(b * draws, renyi_epsilon(b**2 / 8 * draws, DELTA))
        case RandomizedResponseEvent():
            first, second = answers(event, neighbors)
            exact = least_epsilon(lambda e: both_ways(first, second, count, e), DELTA)
            return exact, exact
        case PoissonGaussianEvent():
            noise, chance = event.noise_multiplier, event.sampling_probability
            exact = least_epsilon(lambda e: two_steps_delta(noise, chance, neighbors, e), DELTA)
            return exact, exact
        case PureEvent() | ApproximateEvent():
            p = 1 / (1 + math.exp(-event.epsilon))
            failed = getattr(event, "delta", 0.0)
            alive = (1 - failed) ** count

            def delta_at(epsilon):
                exact = product_delta([p, 1 - p], [1 - p, p], count, epsilon)
                return 1 - alive + alive * exact

            exact = least_epsilon(delta_at, DELTA)
            return exact, exact
    raise AssertionError(event)


def two_steps_delta(noise, chance, neighbors, epsilon):
    """Integrate over the first of two Poisson-sampled sums, in both directions."""
    x = np.linspace(-12 * noise - 1, 12 * noise + 1, 200_001)

    def output(moved):
        return chance * norm.pdf(x, moved, noise) + (1 - chance) * norm.pdf(x, 0, noise)

    def delta(first, second):
        losses = np.log(first / second)
        order = np.argsort(losses)
        above = [np.cumsum(p[order][::-1])[::-1] * (x[1] - x[0]) for p in (first, second)]
        start = np.minimum(np.searchsorted(losses[order], epsilon - losses), len(x) - 1)
        rest = above[0][start] - np.exp(epsilon - losses) * above[1][start]
        return float(np.sum(first * np.maximum(rest, 0)) * (x[1] - x[0]))

    pair = output(1.0), output(-1.0 if neighbors == REPLACE else 0.0)
    return max(delta(*pair), delta(*pair[::-1]))


def _binomial(first, second, draws):
    def delta_at(epsilon):
        total = mp.mpf(0)
        for i in range(draws + 1):
            ways = mp.binomial(draws, i)
            one = ways * mp.mpf(first[0]) ** (draws - i) * mp.mpf(first[1]) ** i
            two = ways * mp.mpf(second[0]) ** (draws - i) * mp.mpf(second[1]) ** i
            total += max(mp.mpf(0), one - mp.exp(epsilon) * two)
        return total

    return delta_at


# ----------------------------------------------------------------- the support table


def shown(accountant, counts, neighbors):
    """Return what one accountant alone shows at DELTA, or None."""
    if accountant == "closed":
        return min(bound.epsilon(DELTA) for bound in closed_bounds(counts, neighbors))
    bound = loss_distribution_bound(counts, neighbors)
    return None if bound is None else bound.epsilon(DELTA)


@pytest.mark.deep
@pytest.mark.parametrize("accountant", ["closed", "pld"])
@pytest.mark.parametrize(("example", "neighbors"), CELLS, ids=str)
def test_every_cell_against_a_formula_of_its_own(example, neighbors, accountant):
    event, count = example
    supported, why = a.SUPPORT[event_to_row(event)[0], neighbors, accountant]
    assert why
    if not supported:
        if accountant == "closed":
            with pytest.raises(PrivacyError):
                a.composed_epsilon({event: count}, neighbors=neighbors, delta=DELTA)
        else:
            assert shown(accountant, {event: count}, neighbors) is None
        return
    exact, best = truth(event, count, neighbors)
    alone = shown(accountant, {event: count}, neighbors)
    assert alone >= exact * (1 - 1e-9), "an accountant under-reports"
    slack = 1.001
    if accountant == "closed" and isinstance(event, ApproximateEvent | RandomizedResponseEvent):
        slack = 1.5  # the closed forms add what loss distributions compose
    if accountant == "closed" and isinstance(event, PoissonGaussianEvent):
        slack = 8.0  # they make no use of sampling
    assert alone <= best * slack
    ours = a.composed_epsilon({event: count}, neighbors=neighbors, delta=DELTA)
    assert exact * (1 - 1e-9) <= ours <= best * 1.001
    delta = composed_delta({event: count}, neighbors=neighbors, epsilon=ours)
    assert delta <= DELTA * (1 + 1e-6)
    assert a.fits({event: count}, neighbors=neighbors, epsilon=ours, delta=DELTA)


def test_the_table_is_complete_and_prints():
    rows = support_table()
    assert len(rows) == len(EVENTS) * 3 * 2 == len(a.SUPPORT)
    assert {type(event) for event, _ in EXAMPLES} | {NonPrivateEvent} == set(EVENTS.values())
    for row in rows:
        cell = a.SUPPORT[row["event"], Relation[row["relation"]], row["accountant"]]
        assert cell == (row["supported"], row["why"])
    assert not a.SUPPORT["bounded-range", REPLACE, "pld"][0]


def test_what_no_accountant_supports_is_refused():
    class Tame(PureEvent):
        pass

    for events in (
        {RandomizedResponseEvent(1.0): 1},
        {RandomizedResponseEvent(1.0): 1, NonPrivateEvent(): 1},
        {RandomizedResponseEvent(1.0): 0},
        {Tame(1.0): 1},
        {Event(): 1},
        [(dp.GaussianDpEvent(1.0), 1)],
    ):
        for call in (
            lambda events=events: a.composed_epsilon(events, neighbors=ADD_REMOVE, delta=1e-6),
            lambda events=events: composed_delta(events, neighbors=ADD_REMOVE, epsilon=9.0),
            lambda events=events: a.fits(events, neighbors=ADD_REMOVE, epsilon=math.inf, delta=0.5),
            lambda events=events: a.largest_pure_epsilon(
                events, neighbors=ADD_REMOVE, epsilon=math.inf, delta=0.5
            ),
        ):
            with pytest.raises(PrivacyError):
                call()


def test_bad_arguments_are_refused():
    one = {PureEvent(1.0): 1}
    with pytest.raises(UsageError):
        a.composed_epsilon(one, neighbors="REPLACE_ONE", delta=0.0)
    with pytest.raises(UsageError):
        a.composed_epsilon(one, neighbors=REPLACE, delta=1.0)
    with pytest.raises(UsageError):
        composed_delta(one, neighbors=REPLACE, epsilon=-1.0)
    with pytest.raises(UsageError):
        a.fits({PureEvent(1.0): -1}, neighbors=REPLACE, epsilon=1.0, delta=0.0)
    with pytest.raises(UsageError):
        a.fits({PureEvent(1.0): 1.5}, neighbors=REPLACE, epsilon=9.0, delta=0.0)
    with pytest.raises(UsageError):
        a.calibrate(PureEvent, 1.0, 0.0, neighbors=REPLACE, bracket=(1.0, 1.0))
    with pytest.raises(TypeError):
        a.composed_epsilon(one, delta=0.0)


# ----------------------------------------------------------------- the traps


def test_the_renyi_accountant_of_dp_accounting_under_reports_and_ours_does_not():
    theirs = RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    theirs.compose(dp.GaussianDpEvent(2.0))
    assert theirs.get_epsilon(1e-6) == pytest.approx(2.419, abs=1e-3)
    ours = a.composed_epsilon({GaussianEvent(1.0): 1}, neighbors=REPLACE, delta=1e-6)
    assert ours == pytest.approx(4.887, abs=1e-3)
    numerical = loss_distribution_bound({GaussianEvent(1.0): 1}, REPLACE)
    assert numerical.epsilon(1e-6) == pytest.approx(ours, rel=1e-4)


def test_the_loss_distribution_accountant_of_dp_accounting_drops_counts_and_ours_does_not():
    theirs = PLDAccountant(dp.NeighboringRelation.REPLACE_ONE)
    theirs.compose(dp.RandomizedResponseDpEvent(2 / (1 + math.e), 2), 10)
    assert theirs.get_epsilon(1e-9) == pytest.approx(1.0, abs=1e-3)  # ten answers, counted once
    ours = a.composed_epsilon({RandomizedResponseEvent(1.0): 10}, neighbors=REPLACE, delta=1e-9)
    assert ours > 8


def test_a_gaussian_is_worth_the_same_under_every_relation():
    counts = {GaussianEvent(0.5): 1, PureEvent(0.2): 3}
    values = [a.composed_epsilon(counts, neighbors=r, delta=1e-6) for r in Relation]
    assert max(values) <= min(values) * (1 + 1e-4)


def test_one_answer_under_the_two_relations():
    coin = {RandomizedResponseEvent(1.0): 1}
    assert a.composed_epsilon(coin, neighbors=REPLACE, delta=0.0) == 1.0
    zero_out = a.composed_epsilon(coin, neighbors=ZERO_OUT, delta=0.0)
    assert zero_out == pytest.approx(math.log((math.e + 1) / 2), rel=1e-12)
    for epsilon, k in itertools.product((1e-9, 0.01, 1.0, 5.0, 40.0, 800.0), (2, 3, 50)):
        event = RandomizedResponseEvent(epsilon, k)
        with mp.workdps(50):
            total = mp.exp(mp.mpf(epsilon)) + k - 1
            exact = max(epsilon - mp.log(total / k), mp.log(total / k))
        ours = a.composed_epsilon({event: 1}, neighbors=ZERO_OUT, delta=0.0)
        assert exact <= ours <= exact * (1 + 1e-12)


def test_decimal_budgets_are_spent_exactly():
    def fit(count, epsilon):
        return a.fits({PureEvent(0.1): count}, neighbors=REPLACE, epsilon=epsilon, delta=0.0)

    assert fit(20, 2.0)
    assert fit(3, 0.3)
    assert not fit(21, 2.0)
    assert not fit(20, math.nextafter(2.0, 0))
    assert a.composed_epsilon([(PureEvent(0.1), 1)] * 3, neighbors=REPLACE, delta=0.0) == 0.3
    left = a.largest_pure_epsilon({PureEvent(0.1): 3}, neighbors=REPLACE, epsilon=2.0, delta=0.0)
    assert left == 1.7


def test_zero_one_and_infinity():
    for neighbors in Relation:
        assert a.composed_epsilon({}, neighbors=neighbors, delta=0.0) == 0.0
        assert composed_delta([], neighbors=neighbors, epsilon=0.0) == 0.0
        assert a.composed_epsilon({PureEvent(1.0): 0}, neighbors=neighbors, delta=0.0) == 0.0
        gaussian, none = {GaussianEvent(0.1): 1}, {NonPrivateEvent(): 1}
        assert a.composed_epsilon(gaussian, neighbors=neighbors, delta=0.0) == math.inf
        assert a.composed_epsilon({GaussianEvent(0.0): 3}, neighbors=neighbors, delta=0.0) == 0.0
        assert a.composed_epsilon(none, neighbors=neighbors, delta=0.5) == math.inf
        assert composed_delta(none, neighbors=neighbors, epsilon=math.inf) == 1.0
        assert not a.fits(none, neighbors=neighbors, epsilon=1e300, delta=0.999)
        assert a.fits(none, neighbors=neighbors, epsilon=math.inf, delta=0.0)
        rough = {ApproximateEvent(1.0, 1e-6): 2}
        assert a.composed_epsilon(rough, neighbors=neighbors, delta=1.9e-6) == math.inf
        both = a.composed_epsilon(rough, neighbors=neighbors, delta=2e-6)
        assert 2 - 1e-11 < both <= 2  # (1 − 1e-6)² leaves 1e-12 to spare
        huge = {PureEvent(1e200): 10, GaussianEvent(1e200): 2}
        assert a.composed_epsilon(huge, neighbors=neighbors, delta=1e-6) >= 1e200
        assert composed_delta(huge, neighbors=neighbors, epsilon=1.0) == 1.0


def test_draws_of_different_policies_are_not_treated_as_draws_of_one():
    one = {BoundedRangeEvent(0.5, draws=10): 1}
    several = {BoundedRangeEvent(0.5): 10}
    tight = a.composed_epsilon(one, neighbors=REPLACE, delta=1e-6)
    loose = a.composed_epsilon(several, neighbors=REPLACE, delta=1e-6)
    assert tight == pytest.approx(3.57, abs=0.01)
    assert loose == pytest.approx(renyi_epsilon(10 * 0.5**2 / 8, 1e-6), rel=1e-6)
    mixed = {BoundedRangeEvent(0.5, draws=5): 1, BoundedRangeEvent(0.50001, draws=5): 1}
    assert a.composed_epsilon(mixed, neighbors=REPLACE, delta=1e-6) >= loose
    twice = {BoundedRangeEvent(0.5, draws=5): 2}
    assert a.composed_epsilon(twice, neighbors=REPLACE, delta=1e-6) >= loose * (1 - 1e-9)
    assert a.composed_epsilon(several, neighbors=REPLACE, delta=0.0) == 5.0


# ----------------------------------------------------------------- mixtures


def mixture_delta(losses, mu, epsilon):
    """Average the Gaussian curve over the exact losses of pure two-point pairs."""
    total = mp.mpf(0)
    with mp.workdps(40):
        for signs in itertools.product((1, -1), repeat=len(losses)):
            loss = sum(s * x for s, x in zip(signs, losses, strict=True))
            mass = mp.fprod(1 / (1 + mp.exp(-s * x)) for s, x in zip(signs, losses, strict=True))
            rest = mp.mpf(epsilon) - loss
            if mu:
                total += mass * gaussian_delta(rest, mu)
            else:
                total += mass * max(mp.mpf(0), 1 - mp.exp(rest))
    return total


@pytest.mark.deep
@pytest.mark.parametrize("neighbors", Relation)
@pytest.mark.parametrize(
    ("losses", "mu"),
    [((0.3, 0.2, 0.1), 0.5), ((0.05,) * 5 + (0.3,), 0.1), ((1.0, 0.7, 0.3, 0.2), 0.0)],
)
def test_mixtures_against_an_exact_sum(losses, mu, neighbors):
    events = [(PureEvent(loss), 1) for loss in losses] + [(GaussianEvent(mu), 1)]
    for delta in (1e-3, 1e-6, 1e-9):
        exact = least_epsilon(lambda e: mixture_delta(losses, mu, e), delta)
        ours = a.composed_epsilon(events, neighbors=neighbors, delta=delta)
        assert exact <= ours <= exact * 1.002
    for epsilon in (0.5, 1.0):
        exact = mixture_delta(losses, mu, epsilon)
        ours = composed_delta(events, neighbors=neighbors, epsilon=epsilon)
        assert exact <= ours <= exact * 1.02 + 1e-11


@pytest.mark.parametrize(("loss", "count"), [(0.1, 1000), (0.01, 20000), (1.0, 40)])
def test_the_allowance_covers_the_fourier_transforms(loss, count):
    """Two routes to the optimal composition: exact sums and loss distributions."""
    counts = {PureEvent(loss): count}
    numerical = loss_distribution_bound(counts, REPLACE)
    for share in (0.05, 0.1, 0.2, 0.3):
        epsilon = loss * count * share
        exact = min(bound.delta(epsilon) for bound in closed_bounds(counts, REPLACE))
        if exact > 1e-10:
            assert exact * (1 - 1e-6) <= numerical.delta(epsilon) <= exact * 1.01 + 1e-9


EVENT = st.one_of(
    st.builds(PureEvent, st.floats(0, 1)),
    st.builds(GaussianEvent, st.floats(0, 1)),
    st.builds(RandomizedResponseEvent, st.floats(1e-3, 1), st.integers(2, 5)),
    st.builds(ApproximateEvent, st.floats(0, 1), st.floats(0, 1e-7)),
    st.builds(BoundedRangeEvent, st.floats(0, 1), st.integers(1, 5)),
)
EVENTS_LIST = st.lists(st.tuples(EVENT, st.integers(1, 5)), max_size=4)


def rho_of(event):
    match event:
        case PureEvent() | RandomizedResponseEvent():
            return event.epsilon**2 / 2
        case GaussianEvent():
            return event.mu**2 / 2
        case BoundedRangeEvent():
            return event.bounded_range**2 / 8 * event.draws
    return 0.0


@settings(max_examples=40)
@given(EVENTS_LIST, EVENT, st.sampled_from([REPLACE, ZERO_OUT]))
@example([(PureEvent(5e-324), 1)], GaussianEvent(1.0), REPLACE)
def test_more_releases_never_spend_less(events, extra, neighbors):
    delta = 1e-5
    base = a.composed_epsilon(events, neighbors=neighbors, delta=delta)
    more = a.composed_epsilon([*events, (extra, 1)], neighbors=neighbors, delta=delta)
    # Bounds of different accountants differ: where the best one changes, allow its tightness.
    assert more >= base * 0.9 - 1e-9
    rough = [(e, n) for e, n in [*events, (extra, 1)] if isinstance(e, ApproximateEvent)]
    failed = sum(e.delta * n for e, n in rough)
    if failed < delta:
        rho = sum(rho_of(e) * n for e, n in [*events, (extra, 1)])
        added = sum(e.epsilon * n for e, n in rough)
        assert more <= (added + renyi_epsilon(rho, delta - failed)) * (1 + 1e-6) + 1e-9
    assert a.fits([*events, (extra, 1)], neighbors=neighbors, epsilon=more, delta=delta)


@settings(max_examples=40)
@given(EVENTS_LIST, st.sampled_from([REPLACE, ZERO_OUT]))
def test_pure_sums_bound_everything_that_has_one(events, neighbors):
    bounded = [(e, n) for e, n in events if isinstance(e, PureEvent | RandomizedResponseEvent)]
    total = sum(e.epsilon * n for e, n in bounded)
    ours = a.composed_epsilon(bounded, neighbors=neighbors, delta=1e-5)
    assert ours <= total * (1 + 1e-12)
    tighter = a.composed_epsilon(bounded, neighbors=neighbors, delta=1e-3)
    assert tighter <= ours * (1 + 1e-9)


@pytest.mark.parametrize("mu", [1e-300, 1e-160, 1e-100])
def test_a_loss_too_small_for_floating_point_is_no_error(mu):
    coin = RandomizedResponseEvent(1.0, 2)
    alone = a.composed_epsilon([(coin, 1)], neighbors=ZERO_OUT, delta=1e-5)
    both = a.composed_epsilon([(coin, 1), (GaussianEvent(mu), 1)], neighbors=ZERO_OUT, delta=1e-5)
    assert both == pytest.approx(alone, rel=1e-4)  # the numerical bound makes use of δ
