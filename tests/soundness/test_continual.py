"""Noise that is correlated over updates: everybody pays for all that a change of theirs moves."""

import itertools
import json
import math

import numpy as np
import pytest
from scipy import sparse
from tests.tiers import few

import sordino
from sordino.auditing.runs.replay import audit_run
from sordino.mechanisms.label_sum import LabelGaussian, coefficients, growth
from sordino.preferences.comparisons import ItemDifferences
from sordino.preferences.pairs import read_pairs
from sordino.privacy.guarantee import REPLACE_ONE, GaussianEvent, Guarantee
from sordino.privacy.ledger import Ledger
from sordino.rewards.label_release import Judged, plan_updates
from sordino.rewards.leaderboard import Board, BoardRelease, Votes
from sordino.rewards.vote_release import release_votes

NAMES, WEEKS = ("x", "y", "z"), 3
PATTERNS = [weeks for size in (1, 2, 3) for weeks in itertools.combinations(range(WEEKS), size)]


def votes(until, *, each=1):
    """Votes of one person for every pattern of weeks; the week of each, and how old it is."""
    said, weeks = [], []
    for pattern in PATTERNS:
        for week, at in itertools.product(pattern, range(each)):
            who = "".join(map(str, pattern))
            one, other = "yz" if pattern == (0, 2) and week else "xy"
            said.append({"question_id": f"{who} {week} {at}", "model_a": one, "model_b": other,
                         "winner": "tie" if week else one, "person": who})  # fmt: skip
            weeks.append(week)
    kept = [at for at, week in enumerate(weeks) if week < until]
    weeks = np.array(weeks)[kept]
    return read_pairs([said[at] for at in kept]), weeks, until - 1 - weeks


def ledger_at(path, unit, epsilon=1e4):
    budget = Guarantee(epsilon, delta=1e-6, unit=unit, neighbors=REPLACE_ONE, trust="central")
    return Ledger.open(path, budget=budget)


def noise(cap, *, ties, epsilon=4.0, updates=WEEKS):
    whole = LabelGaussian(epsilon, delta=1e-6, ties=ties, records_per_person=cap)
    return whole.spread_over(updates)


def found_for(ledger, promise, shares, who):
    """Σ μ² of one person, as the rows of a ledger say it."""
    alone = read_pairs([{"prompt": "p", "chosen": "a", "rejected": "b", "person": who}]).people()
    (mark,) = ledger.roster_of(promise, alone).digests
    total = 0.0
    for event, _, people in shares:
        roster = ledger.roster_of(promise, people)
        times = int(roster.counts_of(np.array([mark]))[0])
        total += (event.mu * (min(times, 1) if promise.unit == "person" else times)) ** 2
    return total


@pytest.mark.parametrize("ties", few([False, True], True))
@pytest.mark.parametrize(("unit", "cap", "each"), [("label", None, 1), ("person", 2, 2)])
def test_no_pattern_of_weeks_moves_the_releases_farther_than_it_pays_for(
    tmp_path, unit, cap, each, ties
):
    """Every change of all labels of one, in whole steps, beside what a ledger finds of that one."""
    items, whole = ItemDifferences(NAMES, ties=ties), LabelGaussian(4.0, delta=1e-6).mu ** 2
    mechanism, moved, paid = noise(cap, ties=items.counters), {}, {}
    promise = mechanism.guarantee(unit=unit, neighbors=REPLACE_ONE, trust="central")
    of_label = np.zeros(WEEKS)
    for until in range(1, WEEKS + 1):
        pairs, weeks, ages = votes(until, each=each)
        ledger = ledger_at(tmp_path / f"{until}.db", unit)
        judged = Judged.of("test", pairs, mechanism, ledger, ages)
        shares = judged.shares(mechanism, promise)
        design = mechanism.prepare(
            pairs.differences(items), persons=judged.holders, rows=judged.rows,
            weights=coefficients(WEEKS)[ages],
        )  # fmt: skip
        for pattern in PATTERNS:
            who = "".join(map(str, pattern))
            mine = np.array(pairs.persons) == who
            paid[who] = paid.get(who, 0.0) + found_for(ledger, promise, shares, who)
            sides = list(itertools.product((0, 1, 2), repeat=len(pattern)))  # labels by the week
            sums = {}
            for side in sides:
                labels = np.zeros(len(pairs), np.int8)
                for week, label in zip(pattern, side, strict=True):
                    labels[mine & (weeks == week)] = label
                sums[side] = design._total(labels)
            for one, other in itertools.combinations(sides, 2):
                far = float(((sums[one] - sums[other]) ** 2).sum()) / design.scale**2
                moved[who, one, other] = moved.get((who, one, other), 0.0) + far
        for event, questions, _ in shares if unit == "label" else ():
            asked = np.array([np.frombuffer(key[:8], "<u8")[0] for key in pairs.keys])
            (week,) = set(weeks[np.isin(asked, questions)].tolist())  # each row is about one week
            assert np.isin(asked, questions).sum() == (weeks == week).sum()
            of_label[week] += event.mu**2
    for (who, *_), size in moved.items():
        assert size <= paid[who] * (1 + 1e-9), who
    assert max(size / paid[who] for (who, *_), size in moved.items()) > 0.9
    once = [paid[str(week)] for week in range(WEEKS)]
    assert once[0] == max(once) == pytest.approx(whole, rel=1e-5)  # ε is for all updates
    assert once[0] <= whole
    if unit == "label":
        assert of_label.max() == of_label[0] == pytest.approx(whole, rel=1e-5)
        assert of_label[0] <= whole


@pytest.mark.parametrize("unit", ["label", "person"])
def test_a_board_of_three_updates_spends_what_was_said_and_holds_the_sum_of_all(tmp_path, unit):
    ledger, releases = ledger_at(tmp_path / "spend.db", unit, epsilon=50.0), []
    items, cap = ItemDifferences(NAMES, ties=True), 2 if unit == "person" else None
    mechanism = noise(cap, ties=1, epsilon=30.0)
    for until in range(1, WEEKS + 1):
        said, weeks = [], []
        for week, row in itertools.product(range(until), range(200)):
            one, other = NAMES[row % 3], NAMES[(row + 1) % 3]
            winner = "tie" if row % 5 == 0 else one
            said.append({"question_id": f"{week} {row}", "model_a": one, "model_b": other,
                         "winner": winner, "person": f"{week} {row % 100}"})  # fmt: skip
            weeks.append(week)
        pairs = read_pairs(said)
        released = release_votes(
            pairs, mechanism, items=items, ledger=ledger, ages=until - 1 - np.array(weeks)
        )
        assert len(released.release_ids) == until
        assert released.value[""].counts.sum() == 200
        releases.append(BoardRelease(name="w", votes=released.value, artifact="",
                                     release_ids=released.release_ids))  # fmt: skip
    board = Board(releases=tuple(releases), guarantee=released.guarantee, updates=WEEKS)
    held = [board._sums(until)[""] for until in (1, 2, 3)]
    x = pairs.differences(items).toarray()
    value = np.array([0.0, 1.0, 0.5])[pairs.labels]
    for until, told in enumerate(held, 1):
        counted = np.array(weeks) < until
        assert told.counts.sum() == counted.sum()
        wanted = (value[counted] - 0.5) @ x[counted, :3]
        size = np.sqrt(np.diag(told.noise))
        assert (abs(told.statistic - wanted) <= 6 * size[:3] + 1e-3).all()
        assert abs(told.ties - (pairs.labels[counted] == 2).sum()) <= 6 * size[3] + 1e-3
    each = releases[0].votes[""].noise
    np.testing.assert_allclose(held[2].noise, each * growth(3), rtol=1e-3, atol=1e-9)
    spent = ledger.accounts()[unit].guarantee
    assert 29 < spent.epsilon <= 30


def test_the_plan_says_what_is_measured_and_where_it_does_not_help():
    for planned in (2, 4, 12, 52):
        told, c = plan_updates(planned), coefficients(planned)
        prefix = np.tril(np.ones((planned, planned)))
        factor = np.array([[c[t - s] if s <= t else 0.0 for s in range(planned)]
                           for t in range(planned)])  # fmt: skip
        np.testing.assert_allclose(factor @ factor, prefix, atol=1e-12)
        size = (factor[-1] ** 2).sum() * (factor[:, 0] ** 2).sum()
        assert told["correlated"] == pytest.approx(math.sqrt(size))
        assert told["correlated"] < told["single"] == math.sqrt(planned)
        for visits in range(1, planned + 1):  # the first weeks are those that move it most
            moved = (factor[:, :visits].sum(axis=1) ** 2).sum()
            better = (factor[-1] ** 2).sum() * moved < planned * visits
            assert better == (visits <= told["visits"])
        for pattern in itertools.combinations(range(min(planned, 8)), 3):
            moved = (factor[:, list(pattern)].sum(axis=1) ** 2).sum()
            assert moved <= (factor[:, :3].sum(axis=1) ** 2).sum() + 1e-12
        at = told["from"]
        assert growth(at) * growth(planned) < at
        assert all(growth(t) * growth(planned) >= t for t in range(1, at))


@pytest.mark.deep
def test_intervals_hold_after_every_update():
    """120 boards of 5 items over 4 updates, with a seed."""
    generator, planned, theta = np.random.default_rng(5), 4, np.linspace(-0.8, 0.8, 5)
    rows = np.array([np.eye(5)[a] - np.eye(5)[b] for a, b in itertools.combinations(range(5), 2)])
    promise, holds = Guarantee(1.0, delta=1e-6, unit="label", neighbors=REPLACE_ONE,
                               trust="central"), []  # fmt: skip
    c, n, sigma = coefficients(planned), 30, 6.0
    for _ in range(120):
        wins = generator.binomial(n, 1 / (1 + np.exp(-rows @ theta)), size=(planned, len(rows)))
        sums = (wins - n / 2) @ rows
        releases = []
        for t in range(planned):
            value = c[t::-1] @ sums[: t + 1] + generator.normal(0, sigma, 5)
            told = Votes(
                items=tuple("abcde"),
                rows=sparse.csr_array(rows),
                statistic=value,
                counts=np.full(len(rows), float(n)),
                noise=np.eye(5) * sigma**2,
            )
            releases.append(BoardRelease(name="", votes={"": told}, release_ids=(), artifact=""))
        board = Board(releases=tuple(releases), guarantee=promise, updates=planned)
        after = [one["items"] for one in board.told["history"]]
        truth = dict(zip("abcde", theta, strict=True))
        holds.append(
            [np.mean([(i["interval"][0] or -9) <= truth[i["name"]] <= (i["interval"][1] or 9)
                      for i in items]) for items in after]
        )  # fmt: skip
    assert (np.mean(holds, axis=0) > 0.93).all(), np.mean(holds, axis=0)


@pytest.mark.parametrize("unit", ["label", "person"])
@pytest.mark.parametrize("planted", ["nothing", "for one update", "for others"])
def test_the_audit_knows_who_is_in_later_sums_and_did_not_pay(tmp_path, monkeypatch, unit, planted):
    real = Judged.shares

    def shares(self, mechanism, promise):
        found = real(self, mechanism, promise)
        if planted == "for one update":
            return [(GaussianEvent(min(one.mu, mechanism.mu)), *about) for one, *about in found]
        return [(one, *found[0][1:]) for one, *_ in found] if planted == "for others" else found

    monkeypatch.setattr(Judged, "shares", shares)
    if unit == "label" and planted == "for one update":
        pytest.skip("no vote is in two updates")
    rows, folder = [], None
    terms = {"epsilon": 4, "unit": unit, "ledger": tmp_path / "spend.db", "noise": "estimate"}
    terms |= {"cap": 3} if unit == "person" else {}
    for week in range(2):
        for at in range(120):
            who = f"{at % 30 if at % 30 < 9 else (week, at % 30)}"
            asked = {"question_id": f"{week} {at}", "person": who, "winner": "tie"}
            asked |= {"model_a": NAMES[at % 3], "model_b": NAMES[(at + 1) % 3]}
            rows.append(asked)
        (tmp_path / f"{week}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        then = {"updates": 3, "budget": 50} if folder is None else {"update": folder}
        folder = tmp_path / f"board{week}"
        sordino.rank(tmp_path / f"{week}.jsonl", out=folder, **terms, **then)
    (found,) = (
        one
        for one in audit_run(folder, ledger=tmp_path / "spend.db").findings
        if one.attack == "mechanism"
    )
    assert ("did not pay" in found.summary) == (planted != "nothing")
