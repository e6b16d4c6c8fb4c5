"""A page of a board says ranks as ranges, what is tied or too few, and sorts without script."""

import re

import pytest
from tests.unit.rewards.test_board_files import NAMES, board, release

from sordino.reporting.leaderboard import ordinal, rank_words
from sordino.reporting.result import judge

from .conftest import RESULT
from .pages import HOSTILE, Reader, page_of

BASE = {name: RESULT[name] for name in ("noise", "guarantee", "caveats", "data")}


def result(*releases, **more):
    return BASE | {"leaderboard": board(*releases, **more).told}


def shown(page):
    return Reader(page).words


def test_a_page_is_complete_and_runs_nothing():
    told = result(release(1, groups=("de", "fr")), release(2, "second", groups=("de", "fr")))
    page = page_of(told)
    reader = Reader(page)
    ids, labelled = reader.values("id"), reader.values("aria-labelledby")
    assert sorted(ids) == sorted(labelled)
    assert {"leaderboard", "history", "head-to-head", "guarantee"} <= set(ids)
    assert not {"script", "img", "link", "form"} & {tag for tag, _ in reader.tags}
    assert not {"src", "href"} & {name for _, attrs in reader.tags for name in attrs}
    assert "default-src 'none'" in page
    for name in (*NAMES, "All", "de", "fr", "Sort by", "Certainty"):
        assert name in reader.words
    assert page.count('type="radio"') == 3 + 4
    assert page_of(told) == page


def test_every_way_to_sort_is_an_order_of_all_items():
    page = page_of(result(release(1)))
    for way in "rnfw":
        places = re.findall(rf'style="[^"]*--{way}:(\d+)', page)
        assert sorted(map(int, places)) == list(range(len(NAMES)))


def test_ranks_are_ranges_and_ties_are_named():
    told = result(release(1, n=240, sigma=6.0))
    items = told["leaderboard"]["items"]
    assert any(low < high for low, high in (item["rank"] for item in items))
    words = shown(page_of(told))
    many = [high - low for low, high in (item["rank"] for item in items) if high - low > 2]
    counts = map(int, re.findall(r"tied with (\d+) others", words))
    assert [count for count in counts if count > 2] == many != []
    for item in items:
        low, high = map(ordinal, item["rank"])
        assert (low if low == high else f"{low}–{high}") in words
        assert f"{rank_words(item['rank'])}." in page_of(told)
    assert "tied with" in words


@pytest.mark.parametrize(
    ("place", "said"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (22, "22nd")]
)
def test_places_are_written_as_people_say_them(place, said):
    assert ordinal(place) == said
    assert rank_words((place, place)) == said
    assert rank_words((place, 113)) == f"between {said} and 113th"


def test_what_is_too_few_is_said_in_words():
    told = result(release(1, n=12, sigma=30.0))
    assert all(item["rating"] is None for item in told["leaderboard"]["items"])
    page = page_of(told)
    assert "nothing can be said of it" in shown(page)
    assert "head-to-head" not in page  # a heading over nothing
    verdict = judge(told)
    assert verdict["word"] == "too few answers"
    assert "too few votes" in verdict["says"]


def test_parts_that_never_met_are_said_and_have_ranks_of_their_own():
    told = result(release(1, meet=[(0, 1), (2, 3)]))
    words = shown(page_of(told))
    assert "never met the others" in words
    assert {tuple(item["rank"]) for item in told["leaderboard"]["items"]} <= {
        (1, 1),
        (2, 2),
        (1, 2),
    }
    assert "several boards" in judge(told)["says"]


def test_the_verdict_says_who_is_ahead():
    clear = judge(result(release(1, n=30_000)))
    assert clear == {"word": "usable", "says": "ale is ahead of all others."}


def test_an_open_interval_points_outward():
    told = result(release(1))
    told["leaderboard"]["items"][0]["interval"][1] = None
    page = page_of(told)
    assert "to open" in shown(page)
    assert page.count('class="cut"') == 1


def test_names_are_text_whatever_they_look_like():
    page = page_of(result(release(1, items=(HOSTILE, *NAMES[1:]), groups=(HOSTILE,))))
    assert "<script" not in page
    assert "://" not in page
    Reader(page)
