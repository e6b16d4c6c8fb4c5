"""Who is ahead: the worth of every item that people ranked, and how settled the order is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from sordino.reporting._numbers import percent, real, whole

__all__ = ["describe_items", "item_values"]

_Plain = Mapping[str, Any]

_AT_ONCE = 20  # items before the others are folded away
_NAMED = 3  # of those whose order is open
_EDGE = 3.0  # percent of a chart left free at each end
_TIGHT = 4  # a text beside zero takes up to this part of the axis
_SHORT = (
    "A ballot need not list all that it was offered: what it leaves out counts as tied for its "
    "last place. Not to know an item and to rank it last look alike, so short ballots shrink the "
    "worths by an unknown part, and no interval could be relied on."
)
_UNKNOWN = (
    "No intervals are known: ballots are private, and would decide them. How much of the order is "
    "settled cannot be said."
)
_NO_ERRORS = (
    "No intervals are known: there are too few ballots for this epsilon, or it is private whether "
    "they are complete. How much of the order is settled cannot be said."
)
_APPROXIMATE = (
    "Each 95% interval holds for one item by itself. The noise is counted in, and that the "
    "estimate is drawn towards the mean; worths are taken to be of size 3 or less, as a standard "
    "deviation."
)


def describe_items(result: _Plain, *, records: bool) -> dict[str, Any] | None:
    """Return what everybody ranked, the best first, or None if there is nothing of the kind.

    Args:
        result: The run: ``items`` with name, worth and interval, the best first; the chances of a
            policy are its ``choices``.
        records: Whether whole ballots are private, and not their orders alone.

    Returns:
        ``rows``, each with the chance in the policy if that is known; ``notes``, sentences on how
        settled the order is and on short ballots; and whether there are ``intervals``,
        ``choices`` and several ``groups``.

    Raises:
        DataError: A worth, an end of an interval or a chance is not a number.
    """
    chances = _chances(result.get("policy"))
    items = result.get("items") or ()
    rows = [row for item in items if (row := _row(item, chances))]
    if not rows:
        return None
    unknown = [str(item.get("name") or "unnamed") for item in items if item.get("worth") is None]
    known = all(row["ends"] for row in rows)
    groups = _grouped(rows) if known else [rows]
    for group in groups[1:]:
        group[0]["divided"] = True
    name = (result.get("mechanism") or {}).get("name")
    return {
        "rows": rows,
        "notes": [
            *([_order(groups), _APPROXIMATE] if known else [_UNKNOWN if records else _NO_ERRORS]),
            *([_SHORT] if name == "ranking-gaussian" and _may_be_short(result) else []),
            *([_no_data(unknown)] if unknown else []),
        ],
        "intervals": known,
        "choices": bool(chances),
        "groups": len(groups) > 1,
        "count": whole(len(rows)),
    }


def _may_be_short(result: _Plain) -> bool:
    """Return whether ballots may leave out what they were offered, as far as is public."""
    return "named-offered" not in (result.get("caveats") or ())


def _no_data(names: Sequence[str]) -> str:
    """Return that nothing is known of items that no ballot was offered."""
    more = len(names) - _AT_ONCE
    shown = [*names[:_AT_ONCE], *([f"{whole(more)} more"] if more > 0 else [])]
    return f"No data, because no ballot was offered it: {_listed(shown)}."


def _chances(policy: _Plain | None) -> dict[str, float]:
    """Return how likely a policy picks each item, as far as it is told."""
    told = {
        str(row.get("name")): real("choices.probability", row.get("probability"))
        for row in (policy or {}).get("choices") or ()
    }
    return {name: chance for name, chance in told.items() if chance is not None}


def _row(item: _Plain, chances: Mapping[str, float]) -> dict[str, Any] | None:
    """Return one item with its texts, or None if its worth is missing."""
    worth = real("items.worth", item.get("worth"))
    if worth is None:
        return None
    low, high = (real("items.interval", end) for end in item.get("interval") or (None, None))
    ends = None if low is None or high is None else [low, high]
    chance = chances.get(str(item.get("name")))
    return {
        "name": str(item.get("name") or "unnamed"),
        "worth": worth,
        "text": _signed(worth),
        "ends": ends,
        "interval": "—" if ends is None else f"{_signed(ends[0])} to {_signed(ends[1])}",
        "chance": "—" if chance is None else percent(chance),
        "divided": False,
    }


def _signed(value: float) -> str:
    """Return a worth with its sign, in two decimals; what rounds to nothing has a plus."""
    return f"{value:+.2f}".replace("-0.00", "+0.00").replace("-", "−")


def _listed(names: Sequence[str]) -> str:
    """Return names as a sentence lists them."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _grouped(rows: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the rows in groups: no interval of a group overlaps one of a later group."""
    lowest = accumulate((row["ends"][0] for row in rows), min)
    highest = [*accumulate((row["ends"][1] for row in reversed(rows)), max)][::-1]
    groups = [[rows[0]]]
    for row, above, below in zip(rows[1:], lowest, highest[1:], strict=False):
        if below < above:
            groups.append([])
        groups[-1].append(row)
    return groups


def _order(groups: Sequence[Sequence[_Plain]]) -> str:
    """Return how much of the order is settled."""
    first, *others = groups[0]
    near = [row["name"] for row in others if row["ends"][1] >= first["ends"][0]]
    more = len(near) - _NAMED
    names = [*near[:_NAMED], *([f"{whole(more)} more"] if more > 0 else [])]
    told = (
        f"It is not settled who is ahead: the interval of {first['name']} overlaps that of "
        f"{_listed(names)}."
        if near
        else f"{first['name']} is ahead: no other interval reaches up to this one's."
    )
    line = " Across a heavy line none overlap." if len(groups) > 1 else ""
    return f"{told} Where intervals overlap, the order of these is not settled.{line}"


def item_values(items: _Plain) -> dict[str, Any]:
    """Return what the template needs to draw the interval of every item on one common axis.

    Args:
        items: What :func:`describe_items` returned.
    """
    rows = items["rows"]
    ends = [end for row in rows for end in (row["worth"], *(row["ends"] or ()), 0.0)]
    low, high = min(ends), max(ends)
    span = (high - low) or 1.0

    def at(value: float) -> str:
        return f"{_EDGE + (100 - 2 * _EDGE) * (value - low) / span:.2f}%"

    drawn = [
        {**row, "x": at(row["worth"]), "range": row["ends"] and [at(end) for end in row["ends"]]}
        for row in rows
    ]
    return {
        "zero": at(0.0),
        "low": at(low),
        "low_text": _signed(low) if low < -span / _TIGHT else "",
        "high": at(high),
        "high_text": _signed(high) if high > span / _TIGHT else "",
        "first": drawn[:_AT_ONCE],
        "others": drawn[_AT_ONCE:],
    }
