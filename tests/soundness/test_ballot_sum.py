"""Ballots for a board, exactly: what one moves, what is public, and what their sum means."""

import itertools
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import expit

from sordino.auditing.statistical.distinguishing import audit_mechanism
from sordino.errors import BudgetExceeded, DataError, PrivacyError, UsageError
from sordino.mechanisms import ranking_sum
from sordino.mechanisms.ranking_sum import BallotGaussian
from sordino.preferences.rankings import Rankings, read_rankings
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, Guarantee
from sordino.privacy.ledger import Ledger
from sordino.rewards.leaderboard import Ballots, fit_board
from sordino.rewards.vote_release import release_ballots, votes_of_ballots

NAMES = ("a", "b", "c", "d", "e")
SLACK = Fraction(2**20 + 1, 2**20)  # what the grid costs: see test_gaussian_mechanism


def noise(epsilon=1.0, **settings):
    return BallotGaussian(epsilon, delta=1e-6, **settings)


def weak_orders(m):
    """Ranks of every ballot on m items: with ties, and with items that are not listed."""
    found = set()
    for levels in itertools.product(range(m + 1), repeat=m):
        known = sorted({*levels} - {0})
        found.add(tuple(known.index(level) + 1 if level else 0 for level in levels))
    return np.array(sorted(found))


def hidden_squared(design):
    """The squared move, in steps, that the drawn noise hides for the stated mu: exact."""
    return (Fraction(design.mechanism.mu) * Fraction(design.scale) / SLACK) ** 2


def moved_squared(design, one, other):
    both = zip(design._total(one).tolist(), design._total(other).tolist(), strict=True)
    return sum((a - b) ** 2 for a, b in both)


# --- what one ballot moves ------------------------------------------------------------------------


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("m", [2, 3, 4, 5])
def test_no_two_ballots_are_farther_apart_than_is_hidden_and_two_attain_it(m, counted):
    """Every ballot against every other, with ties and of every length, in integers."""
    made = noise(counted=counted, grid=2.0**-12)
    design = made.prepare(np.arange(m), np.array([0, m]), items=m)
    orders = weak_orders(m) if counted else [o for o in weak_orders(m) if (np.array(o) > 0).all()]
    totals = np.array([design._total(np.array(order)) for order in orders])
    squares = (totals**2).sum(axis=1)
    farthest = int((squares[:, None] + squares - 2 * totals @ totals.T).max())
    assert farthest <= hidden_squared(design)
    case = design.worst_case(REPLACE_ONE)
    assert moved_squared(design, case.one, case.other) == farthest


@pytest.mark.parametrize("most", [None, 1, 3])
def test_no_change_moves_the_sum_by_more_than_is_hidden_whatever_was_offered(most):
    rng, people = np.random.default_rng(0), np.repeat(["p", "q", "r"], 4).tolist()
    offers = [sorted(rng.choice(8, rng.integers(2, 9), replace=False)) for _ in people]
    starts = np.cumsum([0, *map(len, offers)])
    made = noise(records_per_person=most)
    design = made.prepare(np.concatenate(offers), starts, items=8, persons=people if most else None)
    limit, worst = hidden_squared(design), design.worst_case(REPLACE_ONE)
    assert 0 < moved_squared(design, worst.one, worst.other) <= limit
    for _ in range(300):
        one = np.concatenate([rng.permutation(len(o)) * (rng.random(len(o)) < 0.8) for o in offers])
        mine = [int(rng.integers(12))] if most is None else np.flatnonzero(np.array(people) == "q")
        other = one.copy()
        for ballot in mine:
            part = slice(starts[ballot], starts[ballot + 1])
            whole = rng.permutation(starts[ballot + 1] - starts[ballot]) + 1
            one[part], other[part] = whole, (whole.max() + 1 - whole) * (rng.random() < 0.9)
        assert moved_squared(design, one, other) <= limit
    if most is not None:  # ballots beyond the cap change nothing
        assert design.used.sum() == 3 * most
        other = np.where(np.repeat(design.used, np.diff(starts)), one, 1)
        assert (design._total(one) == design._total(other)).all()


@pytest.mark.parametrize("m", [6, 9, 14])
def test_counting_comparisons_costs_nothing_on_long_ballots(m):
    """Short ballots against reversed ones of every length, and those with the others unlisted."""
    design = noise().prepare(np.arange(m), np.array([0, m]), items=m)
    limit, order = hidden_squared(design), np.arange(1, m + 1)
    for k, other in itertools.product(range(m + 1), repeat=2):
        one = np.where(order <= k, order, 0)
        for turned in (order[::-1], np.roll(order[::-1], m // 2), order):
            two = np.where(turned <= other, turned, 0)
            assert moved_squared(design, one, two) <= limit


@pytest.mark.parametrize("counted", [True, False])
def test_the_auditor_comes_near_the_promise_and_does_not_pass_it(counted):
    """Refuted with probability 1e-3 at most if honest; the audit is seeded."""
    made = BallotGaussian(2.0, delta=0.01, counted=counted)
    design = made.prepare(np.tile(np.arange(3), 4), np.arange(0, 13, 3), items=3)
    known = {"unit": "label", "neighbors": REPLACE_ONE, "trust": "central"}
    audit = audit_mechanism(design, **known, trials=10_000, simulate_seed=1)
    assert audit.verdict == "not refuted"
    broken = replace(design)
    object.__setattr__(broken, "moved", design.moved / 2)
    assert audit_mechanism(broken, **known, trials=10_000, simulate_seed=1).verdict == "refuted"


# --- what the sum means, over all rankings --------------------------------------------------------


def rankings_of(worths):
    """Every ranking with its probability by Plackett–Luce."""
    for order in itertools.permutations(range(len(worths))):
        left, chance = list(order), 1.0
        for item in order:
            chance *= worths[item] / worths[left].sum()
            left.remove(item)
        yield order, chance


ENDS = {
    "full": len,
    "two": lambda order: 2,
    "one": lambda order: 1,
    "nothing": lambda order: 0,
    "until it lists one": lambda order: order.index(1) + 1,
    "after a bad start": lambda order: 1 if order[0] in (0, 3) else 3,
}


@pytest.mark.parametrize("end", ENDS)
def test_ballots_that_end_early_are_unbiased_and_vary_less_than_is_said(end):
    """By enumeration: the score has mean 0 at the truth, its covariance is at most `scatter`."""
    theta, m = np.array([0.9, -1.3, 0.2, 0.5]), 4
    mean, square = np.zeros(m), np.zeros((m, m))
    mechanism = noise(grid=2.0**-12)
    design = mechanism.prepare(np.arange(m), np.array([0, m]), items=m)
    gaps = expit(theta[:, None] - theta) - 0.5
    for order, chance in rankings_of(np.exp(theta)):
        ranks = np.zeros(m, dtype=int)
        ranks[list(order[: ENDS[end](order)])] = np.arange(1, ENDS[end](order) + 1)
        told = design._total(ranks) * design.worth
        met = np.zeros((m, m))
        met[tuple(design.pairs.T)] = told[m:]
        score = told[:m] - ((met + met.T) * gaps).sum(axis=1)
        mean += chance * score
        square += chance * np.outer(score, score)
    said = Ballots(np.ones((1, m), bool), np.ones(1), design.shares).scatter(theta)
    np.testing.assert_allclose(mean, 0, atol=1e-12)
    assert np.linalg.eigvalsh(said - square)[0] > -1e-12
    if end == "full":
        np.testing.assert_allclose(said, square, atol=1e-12)


# --- what is released -----------------------------------------------------------------------------


def ledger_at(path, *, unit="label", neighbors=REPLACE_ONE, epsilon=1e4):
    path.mkdir(exist_ok=True)
    budget = Guarantee(epsilon, delta=1e-6, unit=unit, neighbors=neighbors, trust="central")
    return Ledger.open(path / "spend.db", data="ballots", budget=budget)


def ballots(n=60, *, persons=None, seed=0, **options):
    """Ballots on some of five items, of every length; nobody was offered the last."""
    rng, rows = np.random.default_rng(seed), [{"items": list(NAMES)}]
    for row in range(n):
        offered = [NAMES[i] for i in rng.permutation(4)[: rng.integers(2, 5)]]
        listed = list(rng.permutation(offered)[: rng.integers(0, len(offered) + 1)])
        person = {} if persons is None else {"person": f"p{row % persons}"}
        rows.append({"ranking": listed, "offered": sorted(offered), **person})
    return rows[1:], read_rankings(rows, **options)


def test_items_are_compared_where_they_were_offered_and_one_is_listed(tmp_path, monkeypatch):
    """By its definition: who is not listed is worse, who was not offered is not compared."""
    monkeypatch.setattr(ranking_sum, "with_noise", lambda total, *_: total)
    rows, made = ballots()
    released = release_ballots(made, noise(), ledger=ledger_at(tmp_path))
    votes, place = released.value[""], {name: i for i, name in enumerate(NAMES)}
    sums, met = np.zeros(5), np.zeros((5, 5))
    for row in rows:
        m = len(row["offered"])
        weight = 0.6 * np.sqrt(4 * 15 / (m * (m**2 - 1)))
        for one, two in itertools.combinations(row["offered"], 2):
            listed = [name for name in row["ranking"] if name in (one, two)]
            if listed:
                better = place[listed[0]]
                worse = place[two if listed[0] == one else one]
                sums[[better, worse]] += np.array([0.5, -0.5]) * weight
                met[min(better, worse), max(better, worse)] += weight
    np.testing.assert_allclose(votes.statistic, sums, rtol=1e-4)
    found = np.zeros((5, 5))
    for row, count in zip(votes.rows.toarray(), votes.counts, strict=True):
        found[tuple(np.flatnonzero(row))] = count
    np.testing.assert_allclose(found, met, rtol=1e-4)
    assert votes.count_variance > 0
    assert votes.number == 60
    assert not votes.ballots.members[:, 4].any()
    assert np.isnan(fit_board(votes).ratings[4])  # nobody was offered it
    assert released.guarantee.unit == "label"


def test_named_ballots_need_no_count_of_comparisons(tmp_path, monkeypatch):
    monkeypatch.setattr(ranking_sum, "with_noise", lambda total, *_: total)
    rows, _ = ballots()
    short = [{"items": list(NAMES)}, *({"ranking": row["ranking"]} for row in rows)]
    named = read_rankings(
        [row for row in short if len(row.get("ranking", "ab")) > 1], offered="named"
    )
    released = release_ballots(named, noise(counted=False), ledger=ledger_at(tmp_path))
    votes = released.value[""]
    assert votes.count_variance == 0
    assert "named-offered" in released.guarantee.caveats
    counted = noise().prepare(named.offered, named.starts, items=5)
    same = votes_of_ballots(counted, counted._total(named.ranks) * counted.worth, NAMES)
    np.testing.assert_allclose(same.counts, votes.counts)
    np.testing.assert_allclose(same.statistic, votes.statistic)


@pytest.mark.parametrize("cap", [1, 2])
def test_no_person_counts_more_often_than_the_noise_hides(tmp_path, cap):
    _, made = ballots(persons=12)
    ledger = ledger_at(tmp_path, unit="person")
    released = release_ballots(made, noise(records_per_person=cap), ledger=ledger)
    sets = {*zip(made.persons, made.keys, strict=True)}  # a second ballot on the same is a repeat
    each = Counter(person for person, _ in sets)
    assert released.value[""].number == sum(min(cap, n) for n in each.values())
    assert released.guarantee.unit == "person"


def test_what_no_board_is_made_of_is_refused_before_anything_is_spent(tmp_path):
    _, made = ballots()
    own = Rankings.from_ranks(np.random.default_rng(0).normal(size=(3, 2, 4)), [[1, 2]] * 3)
    ledgers = {
        name: ledger_at(tmp_path / name, **terms)
        for name, terms in {
            "label": {},
            "record": {"unit": "record", "neighbors": ADD_OR_REMOVE_ONE},
            "small": {"epsilon": 1e-3},
        }.items()
    }
    for data, mechanism, name, kind, said in (
        (own, noise(), "label", DataError, "candidates of their own"),
        ([1], noise(), "label", PrivacyError, "takes raw rankings"),
        (made, noise(counted=False), "label", UsageError, "Whether a ballot compares two"),
        (made, noise(records_per_person=2), "label", DataError, "have no person ids"),
        (made, noise(), "record", PrivacyError, None),
        (made, noise(), "small", BudgetExceeded, None),
    ):
        with pytest.raises(kind, match=said):
            release_ballots(data, mechanism, ledger=ledgers[name])
    kinds = {row.kind for ledger in ledgers.values() for row in ledger.rows}
    assert "reserve" not in kinds
    with pytest.raises(DataError, match="Ranks must be"):
        noise().prepare(np.arange(3), np.array([0, 3]), items=3)._total(np.array([-1, 1, 2]))
    with pytest.raises(UsageError, match="too long for the grid"):
        noise(grid=2.0**-12).prepare(np.arange(200), np.array([0, 200]), items=200)


@pytest.mark.parametrize("offered", [[0, 0, 1], [0, 2, 1], [-1, 0, 1], [0, 1, 3]])
def test_a_ballot_with_an_item_twice_or_with_no_item_of_the_board_is_refused(offered):
    """Twenty places for two items move the sum 2.7 times as far as an order of twenty items."""
    with pytest.raises(DataError, match="must rise from 0 to at most 2"):
        noise().prepare(np.array(offered), np.array([0, 3]), items=3)
