"""The file of a board holds what was released, and all that it shows is made of that."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from sordino import REPLACE_ONE, Guarantee
from sordino.errors import DataError
from sordino.rewards.leaderboard import Board, BoardRelease, Votes, fit_board

PROMISE = Guarantee(1.0, delta=1e-6, unit="label", neighbors=REPLACE_ONE, trust="central")
NAMES = ("ale", "beer", "milk", "tea")


def votes(seed, items=NAMES, *, n=900, style=0, sigma=4.0, meet=None):
    """Return votes in which every item is better than those behind it, with noise."""
    generator, k = np.random.default_rng(seed), len(items)
    cells = meet or [(i, j) for i in range(k) for j in range(i + 1, k)]
    first, second = np.array(cells).T
    at, counts = np.arange(len(cells)), np.full(len(cells), float(n // len(cells)))
    rows = np.zeros((len(cells), k + style))
    rows[at, first], rows[at, second] = 1, -1
    rows[:, k:] = generator.normal(0, 0.1, (len(cells), style))
    won = generator.binomial(counts.astype(int), 1 / (1 + np.exp(0.4 * (first - second))))
    statistic = rows.T @ (won - counts / 2) + generator.normal(0, sigma, k + style)
    noise = np.eye(k + style + 1) * sigma**2
    return Votes(
        items=items,
        rows=sparse.csr_array(rows),
        counts=counts,
        statistic=statistic,
        ties=float(n / 5),
        noise=noise,
    )


def release(seed, name="first", groups=(), **terms):
    held = {"": votes(seed, **terms)} | {group: votes(seed + 9, **terms) for group in groups}
    styles = ("length",) * terms.get("style", 0)
    given = {"release_ids": (f"id {seed}",), "artifact": f"digest {seed}", "styles": styles}
    return BoardRelease(name=name, votes=held, **given)


def board(*releases, **more):
    return Board(releases=releases, guarantee=PROMISE, **more)


@pytest.mark.parametrize("style", [0, 1])
def test_what_is_read_back_is_the_same_to_the_last_digit(tmp_path, style):
    made = board(release(1, groups=("de",), style=style), anchor=("milk", 900.0))
    path = tmp_path / "leaderboard.json"
    path.write_text(json.dumps(made.to_dict()))
    read = Board.load(path)
    assert read.to_dict() == made.to_dict()
    (points,) = (item["points"] for item in made.told["items"] if item["name"] == "milk")
    assert points == pytest.approx(900)
    assert set(made.told["groups"]) == {"de"}
    assert len(made.told["style"]) == style


def test_updates_add_up_and_the_history_shows_each_as_it_was():
    one, two = release(1), release(2, "second", items=(*NAMES, "whey"))
    both = board(one, two)
    alone, after = both.told["history"]
    assert (alone["name"], after["name"]) == ("first", "second")
    assert alone["items"] == board(one).told["items"]
    together = fit_board(one.votes[""].plus(two.votes[""]))
    assert np.allclose(both.boards[""].ratings, together.ratings)
    assert both.items == (*NAMES, "whey")
    assert both.release_ids == ("id 1", "id 2")
    assert both.artifact == "digest 2"


@pytest.mark.parametrize(
    "change",
    [
        {"releases": [{}]},
        {"version": 99},
        {"confidence": 2},
        {"anchor": "tea"},
        {"guarantee": None},
    ],
)
def test_a_file_that_is_no_board_is_refused(tmp_path, change):
    path = tmp_path / "leaderboard.json"
    path.write_text(json.dumps(board(release(1)).to_dict() | change))
    with pytest.raises(DataError, match="cannot be used"):
        Board.load(path)


def test_rows_of_items_that_are_not_there_are_refused(tmp_path):
    values = board(release(1)).to_dict()
    values["releases"][0]["votes"][""]["places"][1][0] = 7
    path = tmp_path / "leaderboard.json"
    path.write_text(json.dumps(values))
    with pytest.raises(DataError, match="malformed"):
        Board.load(path)


def test_an_anchor_moves_all_points_alike():
    plain, anchored = (board(release(1), anchor=anchor) for anchor in (None, ("tea", 1500.0)))
    points = ([item["points"] for item in one.told["items"]] for one in (plain, anchored))
    assert np.ptp(np.subtract(*points)) == pytest.approx(0, abs=1e-9)
    assert replace(anchored, anchor=None).told == plain.told
