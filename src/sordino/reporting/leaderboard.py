"""A leaderboard as its page shows it: charts of ratings, ranges of ranks, who beats whom, history.

All of it is made of what was released, so it costs nothing.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from sordino.rewards.leaderboard import POINTS

from .drawing import Scale
from .wording import SAID, Json, percent, real, whole

_HEAT = 24  # the best so many are shown against each other
_NAMED = 2  # of those that an item is tied with
_LINES = 6  # with a color of their own, over time
_APART = 17.0  # between the names of two lines
_MARKS = 7  # updates with a name below
_DOTS = 24  # of more updates lines have no dots
_TEENS = range(11, 14)


def ordinal(place: int) -> str:
    """Return 1st, 2nd, 3rd and so on."""
    endings = {} if place % 100 in _TEENS else {1: "st", 2: "nd", 3: "rd"}
    return f"{place:,}{endings.get(place % 10, 'th')}"


def rank_words(rank: Sequence[int]) -> str:
    """Return a range of ranks as people say it."""
    best, worst = map(ordinal, rank)
    return best if best == worst else f"between {best} and {worst}"


def _ends_in_points(item: Json) -> list[float | None]:
    """Return the interval of an item in points; an open end is None."""
    rating, points = item["rating"], item["points"]
    return [None if end is None else points + POINTS * (end - rating) for end in item["interval"]]


def _points_text(value: float | None) -> str:
    """Return points as a page shows them; an end that is open has no number."""
    return "open" if value is None else whole(value).replace("-", "−")


def _scale_of(items: Sequence[Json], start: float, end: float) -> Scale:
    """Return where points stand, and the ends of their intervals."""
    ends = [v for item in items for v in (item["points"], *_ends_in_points(item)) if v is not None]
    return Scale.rounded(ends or (0.0, 1.0), start, end, least=1.0)


def describe_leaderboard(source: Json) -> dict[str, Any]:
    """Return every board of a result and its history, with texts and places."""
    boards = {"All": source, **(source.get("groups") or {})}
    return {
        "boards": [_board(board, title) for title, board in boards.items()],
        "history": _history(source.get("history") or ()),
    }


def _board(source: Json, title: str) -> dict[str, Any]:
    """Return one board: its rows from the best, those of which nothing can be said, its matrix."""
    items = [item for item in source["items"] if item["rating"] is not None]
    silent = [item for item in source["items"] if item["rating"] is None]
    alone = Counter(item["component"] for item in source["items"])
    axis = _scale_of(items, 0.06, 0.94)
    orders = {
        "n": sorted(items, key=lambda item: str(item["name"]).casefold()),
        "f": sorted(items, key=lambda item: -(item["field_win_rate"] or 0.0)),
        "w": sorted(items, key=_width),
    }
    rows = []
    for place, item in enumerate(items):
        low, high = _ends_in_points(item)
        # As many as its range has ranks beside its own; overlapping ranges may be told apart.
        tied = item["rank"][1] - item["rank"][0]
        near = [other["name"] for other in items if other is not item and _is_tied(item, other)]
        points, interval = _points_text(item["points"]), " to ".join(map(_points_text, (low, high)))
        rows.append(
            {
                "name": str(item["name"]),
                "line": f"{rank_words(item['rank'])}, {points} points ({interval})",
                "rank": "–".join(dict.fromkeys(map(ordinal, item["rank"]))),
                "rank_words": rank_words(item["rank"]),
                "tied": f"tied with {' and '.join(near)}" * bool(tied)
                if len(near) == tied <= _NAMED
                else f"tied with {whole(tied)} other{'s' * (tied > 1)}",
                "points": points,
                "interval": interval,
                "field": "—"
                if item["field_win_rate"] is None
                else percent(item["field_win_rate"], 0),
                "low": axis.at(axis.low if low is None else low),
                "high": axis.at(axis.high if high is None else high),
                "at": axis.at(item["points"]),
                "open": (low is None, high is None),
                "orders": {"r": place} | {by: order.index(item) for by, order in orders.items()},
            }
        )
    notes = [SAID["ranks"].format(percent(source["confidence"], 0))]
    notes += [SAID["apart"]] if len({item["component"] for item in items}) > 1 else []
    if (nu := real("tie_rate", source.get("tie_rate"))) is not None:
        ties = percent(nu / (2 + nu))
        notes.append(f"Two items of equal rating tie in {ties} of votes (Davidson’s ν {nu:.2f}).")
    if silent:
        counted = f"{whole(len(silent))} of {whole(len(source['items']))} items"
        notes.append(f"Nothing is said of {counted}.")
    lonely = "It met no other item."
    few = "Too few votes beside the noise: nothing can be said of it."
    return {
        "title": title,
        "rows": rows,
        "ticks": [(axis.at(tick), _points_text(tick)) for tick in axis.marks],
        "silent": [
            (str(one["name"]), lonely if alone[one["component"]] == 1 else few) for one in silent
        ],
        "notes": notes,
        "heat": _heat(source, items),
        "more": whole(len(items)) if len(items) > _HEAT else None,
        "style": [
            (str(row["name"]), f"{row['effect']:+.2f}".replace("-", "−")) for row in source["style"]
        ],
    }


def _width(item: Json) -> float:
    low, high = _ends_in_points(item)
    return math.inf if low is None or high is None else high - low


def _is_tied(one: Json, other: Json) -> bool:
    """Return whether the ranges of ranks of two overlap; else it is settled which is ahead."""
    overlap = one["rank"][0] <= other["rank"][1] and other["rank"][0] <= one["rank"][1]
    return bool(overlap and one["component"] == other["component"])


def _heat(source: Json, items: Sequence[Json]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return class and text of expected win rates of the best items against each other."""
    place = {item["name"]: at for at, item in enumerate(source["items"])}
    rows = []
    for one in items[:_HEAT]:
        cells = []
        for other in items[:_HEAT]:
            share = source["win_rates"][place[one["name"]]][place[other["name"]]]
            if one is other or share is None:
                cells.append(("same", ""))
            else:
                unsettled = " open" if _is_tied(one, other) else ""
                cells.append((f"h{round(10 * share)}{unsettled}", f"{100 * share:.0f}"))
        rows.append((str(one["name"]), cells))
    return rows


def _history(updates: Sequence[Json]) -> dict[str, Any] | None:
    """Return the points of every update as lines; None if there was one only."""
    if len(updates) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    told = [
        {str(item["name"]): item for item in update["items"] if item["rating"] is not None}
        for update in updates
    ]
    left, right = 52.0, 640.0
    dots = len(updates) <= _DOTS
    across = [
        left + 14 + (right - left - 28) * at / (len(updates) - 1) for at in range(len(updates))
    ]
    last = sorted(told[-1], key=lambda name: -told[-1][name]["points"])
    # what is drawn: intervals of the best, and points of all
    shaded = [items[name] for items in told for name in last[:_LINES] if name in items]
    bare = [item | {"interval": (None, None)} for items in told for item in items.values()]
    y = _scale_of([*shaded, *bare], 330.0, 12.0)
    lines: list[dict[str, Any]] = []
    for rank, name in enumerate(last):
        seen = [(x, items[name]) for x, items in zip(across, told, strict=True) if name in items]
        ends = [(x, *_ends_in_points(item)) for x, item in seen]
        lines.append(
            {
                "name": name,
                "kind": f"s{rank}" if rank < _LINES else "rest",
                "path": [(x, y.at(item["points"])) for x, item in seen],
                "dots": dots or len(seen) == 1,
                # an open end goes to the edge
                "area": [(x, y.at(y.high if high is None else high)) for x, _, high in ends]
                + [(x, y.at(y.low if low is None else low)) for x, low, _ in ends[::-1]],
            }
        )
    floor = -math.inf  # names stand below each other
    for line in lines:
        floor = line["y"] = max(line["path"][-1][1], floor + _APART)
    said = f"Points after each of {len(updates)} updates."
    if last:
        said += f" {last[0]} leads at the end, with {_points_text(told[-1][last[0]]['points'])}."
    every = math.ceil(len(updates) / _MARKS)
    return {
        "label": said,
        "left": left,
        "right": right,
        "lines": lines[::-1],  # the best on top
        "shaded": whole(min(len(lines), _LINES)),
        "y_ticks": [(y.at(tick), _points_text(tick)) for tick in y.marks],
        "x_ticks": [
            (x, str(update["name"]))
            for at, (x, update) in enumerate(zip(across, updates, strict=True))
            if (len(updates) - 1 - at) % every == 0
        ],
    }


_COLUMNS = ("rating", "interval", "points", "field_win_rate")


def board_table(told: Json) -> str:
    """Return every board as CSV, one line for each item."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    ends = ("rank_best", "rank_worst"), ("rating", "rating_lower", "rating_upper")
    writer.writerow(["board", *ends[0], "item", *ends[1], *_COLUMNS[2:]])
    for board, held in {"": told, **told["groups"]}.items():
        for item in held["items"]:
            numbers = np.hstack([np.array(item[name], dtype=float) for name in _COLUMNS]).tolist()
            shown = ["" if math.isnan(value) else f"{value:.6g}" for value in numbers]
            writer.writerow([board, *item["rank"], item["name"], *shown])
    return text.getvalue()
