"""What a ballot was offered is public; which of it a ballot lists, and in what order, is not."""

import itertools
import json
import math

import numpy as np
import pytest
from scipy.stats import spearmanr
from tests.apart import apart
from tests.tiers import few

import sordino
from sordino import cli
from sordino.errors import UsageError
from sordino.mechanisms.ranking_sum import RankingGaussian
from sordino.preferences.rankings import Rankings, read_rankings
from sordino.privacy.guarantee import REPLACE_ONE
from sordino.rewards.ranking_fit import _slate_rows, release_rankings

ITEMS = ("ale", "beer", "milk", "tea", "wine", "water")
OFFERS = (("ale", "milk"), ("beer", "tea", "wine"), ("ale", "beer", "milk", "tea"), ("milk", "tea"))
NOISE = RankingGaussian(1.0, delta=1e-6, statistic="borda")


def listings(offer):
    """Every list of some of what was offered, in every order; and one with a tie."""
    for size in range(len(offer) + 1):
        yield from map(list, itertools.permutations(offer, size))
    yield [list(offer)]


def ballots(lists, offers=OFFERS):
    return Rankings.from_orders(ITEMS, lists, offered=offers)


def design_of(rankings):
    slates = _slate_rows(rankings, None)
    return NOISE.prepare(slates.rows, slates.starts, slates=slates.slates)


def account(folder, unit="label"):
    budget = sordino.Guarantee(
        math.inf, delta=1e-3, unit=unit, neighbors=REPLACE_ONE, trust="central"
    )
    return sordino.Ledger.open(folder / "spend.db", data="votes", budget=budget)


def public(rankings):
    """All that is known of ballots before noise is drawn, and how much of it there will be."""
    design = design_of(rankings)
    return (
        rankings.public_digest, rankings.keys, rankings.starts.tolist(),
        rankings.offered.tolist(), rankings.named, design.moved, design.scale,
        design.starts.tolist(), design.slates.tolist(), design.factor.tolist(),
    )  # fmt: skip


@pytest.mark.parametrize("offers", [OFFERS, "all"])
def test_what_a_ballot_lists_shows_in_nothing_public(offers):
    lists = [list(offer) for offer in OFFERS]
    wanted = public(ballots(lists, offers))
    for place, offer in enumerate(OFFERS):
        for other in listings(offer):
            assert public(ballots([*lists[:place], other, *lists[place + 1 :]], offers)) == wanted


def test_no_list_of_what_was_offered_moves_the_sum_by_more_than_is_hidden():
    """Exactly: every two lists of each of four slates of different sizes, beside each other."""
    lists = [list(offer) for offer in OFFERS]
    design = design_of(ballots(lists))
    far = []
    for place, offer in enumerate(OFFERS):
        sums = np.array([
            design._total(ballots([*lists[:place], one, *lists[place + 1 :]]).doubled_ranks())
            for one in listings(offer)
        ])  # fmt: skip
        far.append(np.linalg.norm(sums[:, np.newaxis] - sums, axis=2).max())
    assert max(far) <= design.moved <= max(far) * (1 + 1e-5)
    assert design.moved * (1 - 1e-5) <= NOISE.mu * design.scale
    case = design.worst_case(REPLACE_ONE)  # what an auditor plays attains it
    attained = np.linalg.norm(design._total(case.one) - design._total(case.other))
    assert attained == pytest.approx(design.moved, rel=1e-5)
    assert far[0] == pytest.approx(max(far), rel=1e-5)  # a pair moves farthest, of all slates


def test_items_that_were_not_offered_do_not_move():
    rankings = ballots([["milk"], ["tea", "wine"], ["tea"], []])
    design = design_of(rankings)
    told = design.step @ design._total(rankings.doubled_ranks()) + design.offset
    assert told.sum() == pytest.approx(4.0, rel=1e-4)  # w(K − rank) of a ballot sum to 1
    assert told[rankings.items.index("water")] == pytest.approx(0.0, abs=1e-4)
    alone = design_of(part := rankings.part([0]))
    told = alone.step @ alone._total(part.doubled_ranks()) + alone.offset
    wanted = [float(name == "milk") for name in rankings.items]
    np.testing.assert_allclose(told, wanted, atol=1e-4)


def test_short_ballots_are_refused_where_nothing_says_what_was_offered():
    lists = [list(ITEMS), ["ale", "tea"]]
    rows = [{"items": list(ITEMS)}, *({"ranking": each} for each in lists)]
    for make in (
        lambda: Rankings.from_orders(ITEMS, lists),
        lambda: Rankings.from_ranks(["a", "b"], [[1, 2], [1, None]]),
        lambda: read_rankings(rows),
        lambda: read_rankings([*rows, {"ranking": ["tea"], "offered": ["ale", "tea"]}]),
        lambda: read_rankings(rows[:2], offered="each"),
    ):
        with pytest.raises(UsageError, match=r"--all-offered.*--named-offered") as caught:
            make()
        assert not any(name in str(caught.value) for name in (*ITEMS, "1"))


def test_that_names_are_public_is_said(tmp_path):
    lists = [["tea", "ale"], ["milk", "wine", "ale"]]
    for place, (offers, named) in enumerate([("named", True), ("all", False), (lists, False)]):
        (tmp_path / str(place)).mkdir()
        released = release_rankings(
            Rankings.from_orders(ITEMS, lists, offered=offers),
            NOISE,
            ledger=account(tmp_path / str(place)),
        )
        assert ("named-offered" in released.guarantee.caveats) == named
    full = Rankings.from_orders(ITEMS, [ITEMS, ITEMS[::-1]])  # not said, and nothing to guess
    assert full.named
    assert full.public_digest == Rankings.from_orders(ITEMS, [ITEMS] * 2).public_digest


def test_a_ballot_lists_only_what_it_was_offered(tmp_path):
    rows = [{"items": list(ITEMS)}, {"ranking": ["tea"], "offered": ["ale", "beer"]}]
    with pytest.raises(sordino.DataError, match=r"record 2: .*not offered"):
        read_rankings(rows)
    for wrong in (["tea"], ["tea", ["ale", "beer"]], ["tea", "tea"], "tea", ["tea", "cola"], 3):
        with pytest.raises(sordino.DataError, match="record 2: field 'offered'"):
            read_rankings([rows[0], {"ranking": [], "offered": wrong}])
    with pytest.raises(sordino.DataError, match="ballot 0 lists"):
        Rankings.from_orders(ITEMS, [["tea"]], offered=[["ale", "beer"]])
    with pytest.raises(sordino.DataError, match="fewer than two"):
        Rankings.from_orders(ITEMS, [["tea"]], offered="named")


@pytest.mark.parametrize("k", few([10, 30], first=1))
def test_short_ballots_give_the_right_order_at_epsilon_100(tmp_path, k):
    """Each is offered 2 to 4 of k - 1 items; one item is offered to nobody.

    Seeded. Measured: Spearman's correlation .983 and .981. Every other item is offered six times
    as often; with all that is not listed tied last the correlation is .53 and .37.
    """
    generator = np.random.default_rng(k)
    names = [f"i{index:02}" for index in range(k)]
    worths = generator.permutation(np.linspace(1.5, -1.5, k - 1))
    chances = np.where(np.arange(k - 1) % 2, 1.0, 6.0) / np.where(np.arange(k - 1) % 2, 1, 6).sum()
    rows = []
    for _ in range(3000):
        offer = generator.choice(k - 1, size=generator.integers(2, 5), replace=False, p=chances)
        order = offer[np.argsort(-(worths[offer] + generator.gumbel(size=len(offer))))]
        rows.append({
            "ranking": [names[i] for i in order],
            "offered": [names[i] for i in generator.permutation(offer)],
        })  # fmt: skip
    data = tmp_path / "votes.jsonl"
    data.write_text("\n".join(map(json.dumps, [{"items": names}, *rows])) + "\n")
    command = ["align", data, "--noise", "estimate", "--epsilon", "100", "--out", tmp_path / "run"]
    command.append("--accept-weak")
    assert cli.run(apart([*command, "--simulate-seed", "1"])) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    *told, last = result["items"]
    assert last == {"name": names[-1], "worth": None, "interval": None}
    found = {item["name"]: item["worth"] for item in told}
    assert spearmanr([found[name] for name in names[:-1]], worths).statistic >= 0.95
    page = (tmp_path / "run" / "report.html").read_text()
    assert f"No data, because no ballot was offered it: {names[-1]}." in page
    reward = sordino.RewardModel.load(tmp_path / "run" / "reward.json")
    assert reward.unoffered == (names[-1],)
    assert reward.worths()[-1] == (names[-1], None, None, None)
    assert sordino.audit(tmp_path / "run").refuted is False
    # Whoever counts what was not offered as tied last learns how often items are shown.
    lists = [row["ranking"] for row in rows]
    guessed = sordino.fit_reward(
        Rankings.from_orders(names[:-1], lists, offered="all"),
        mechanism=RankingGaussian(100.0, delta=1e-6, statistic="borda"),
        ledger=account(tmp_path),
        simulate_seed=1,
    )
    assert spearmanr(guessed.weights, worths).statistic < 0.8
