"""One self-contained page: no script, no font, no image and no address outside itself.

Figures are inline SVG that follows the page's colors, each also in words for whoever cannot see it.
Most coordinates across are percentages, so that text keeps its size at every width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sordino import _validate
from sordino._files import write_text
from sordino._markup import harmless
from sordino.auditing.findings import Audit
from sordino.certificates import Certificate
from sordino.errors import DataError
from sordino.privacy.guarantee import float_from_json
from sordino.privacy.ledger import Ledger

from .audits import describe_audits
from .drawing import Scale, environment, powers_of_ten, round_step, share
from .result import describe_ledger_rows
from .summary import signed_worth, summarize
from .wording import SAID, Json, percent, plain, shortened

_ROW, _HEAD = 52, 26


def _bar_values(decisive: Json) -> dict[str, Any]:
    """Return what the template needs to draw a bar for each feature, left or right of zero."""
    rows = decisive["rows"]
    largest = max(abs(row["effect"]) for row in rows) or 1.0
    told = ", ".join(f"{row['name']} {row['effect_text']}" for row in rows)
    halves = [row["effect"] / largest / 2 for row in rows]
    return {
        "label": f"Effect of a usual difference on the log odds of being preferred: {told}.",
        "height": _HEAD + _ROW * len(rows),
        "rows": [
            {
                "y": _HEAD + _ROW * place,
                "name": shortened(row["name"], 36),  # characters of a name beside a bar
                "text": row["effect_text"],
                "x": share(0.5 + min(0.0, half)),
                "width": share(abs(half)),
            }
            for place, (row, half) in enumerate(zip(rows, halves, strict=True))
        ],
    }


_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 372.0, 30.0, 248.0
_USUAL = (0.1, 10.0)  # epsilons that the axis always covers
_STEP = 0.05  # between shares on the axis; doubled where there are many
_LINES = 7


def _curve_values(prediction: Json) -> dict[str, Any]:
    """Return what the template needs to draw accuracy against ε."""
    epsilons = [epsilon for epsilon, _ in prediction["points"]]
    low, high = min(_USUAL[0], *epsilons), max(_USUAL[1], *epsilons)
    x = Scale(low, high, _LEFT, _RIGHT, math.log10)
    chosen, measured, ceiling = (prediction[key] for key in ("chosen", "measured", "ceiling"))
    ends = (measured["interval"] or [measured["value"]] * 2) if measured else []
    shares = [0.5 - _STEP, *(accuracy for _, accuracy in prediction["points"]), *ends]
    shares += [] if ceiling is None else [ceiling + _STEP / 2]
    first, last = math.floor(min(shares) / _STEP), math.ceil(max(shares) / _STEP)
    every = 1 if last - first <= _LINES else 2
    y = Scale(first * _STEP, last * _STEP, _BOTTOM, _TOP, step=every * _STEP)
    at = x.at(chosen["epsilon"]) if chosen else _RIGHT
    left_half = at < (_LEFT + _RIGHT) / 2
    path = " L".join(f"{x.at(a):.1f} {y.at(b):.1f}" for a, b in prediction["points"])
    return {
        "label": _curve_label(prediction),
        "x": x,
        "y": y,
        "x_ticks": powers_of_ten(low, high),
        "y_ticks": y.marks,
        "path": f"M{path}",
        "ceiling": ceiling,
        "ceiling_text": f"without privacy: {prediction['ceiling_text']}",
        # The lines are named on the side where no ε is marked; the text of an ε stays inside.
        "aside": {"x": _RIGHT - 4, "side": "end"}
        if left_half
        else {"x": _LEFT + 4, "side": "start"},
        "side": "middle" if _LEFT + 24 < at < _RIGHT - 24 else "start" if left_half else "end",
        "chosen": chosen,
        "measured": measured,
        "ends": ends,
    }


def _curve_label(prediction: Json) -> str:
    """Return the figure in words."""
    (first, low), (last, high) = prediction["points"][0], prediction["points"][-1]
    chosen, measured = prediction["chosen"], prediction["measured"]
    start = f"Predicted accuracy goes from {percent(low)} at ε = {plain(first)}"
    told = [f"{start} to {percent(high)} at ε = {plain(last)}"]
    told += [f"{chosen['text']} at the chosen ε = {chosen['epsilon_text']}"] if chosen else []
    if chosen and measured:
        interval = f", 95% interval {measured['detail']}" if measured["detail"] else ""
        told.append(f"measured there {measured['text']}{interval}")
    ceiling = prediction["ceiling_text"]
    told += [f"{ceiling} is assumed without privacy"] if ceiling else []
    return "; ".join([*told, "guessing is 50%"]) + "."


_AT_ONCE = 20  # items before the others are folded away
_EDGE = 0.03  # of a chart left free at each end
_TIGHT = 4  # a text beside zero takes up to this part of the axis


def _item_values(items: Json) -> dict[str, Any]:
    """Return what the template needs to draw the interval of every item on one common axis."""
    rows = items["rows"]
    ends = [end for row in rows for end in (row["worth"], *(row["ends"] or ()), 0.0)]
    low, high = min(ends), max(ends)
    span = (high - low) or 1.0
    scale = Scale(low, low + span, _EDGE, 1 - _EDGE)
    return {
        "scale": scale,
        "low": low,
        "low_text": signed_worth(low) if low < -span / _TIGHT else "",
        "high": high,
        "high_text": signed_worth(high) if high > span / _TIGHT else "",
        "first": rows[:_AT_ONCE],
        "others": rows[_AT_ONCE:],
    }


_LARGEST, _SMALLEST, _ROOM = 1e300, 1e-300, 1.15  # the last one is left free above the largest
_ASIDE = 0.25  # of the width at either end: text there is written inward
_PANEL_HEAD, _PANEL_ROW, _FOOT = 26, 54, 44


def _inward(place: float) -> str:
    """Return on which side of a place text stays inside the figure."""
    return "start" if place < _ASIDE else "end" if place > 1 - _ASIDE else "middle"


def _interval_values(audit: Json) -> list[dict[str, Any]]:
    """Return what the template needs to draw claimed against measured, for every claim in turn."""
    panels: dict[tuple[str, Any], list[Json]] = {}
    for found in audit["measured"]:
        panels.setdefault((found["metric"], found["claimed"]), []).append(found)
    return [_panel(rows, audit) for rows in panels.values()]


def _panel(rows: Sequence[Json], audit: Json) -> dict[str, Any]:
    """Return one figure: measurements on one scale, against one claim."""
    first, claimed = rows[0], float_from_json(rows[0]["claimed"])
    ends = [row[key] for row in rows for key in ("lower", "upper") if row[key] not in {None, "inf"}]
    finite = [size for size in (claimed, *map(float_from_json, ends)) if size < math.inf]
    largest = min(_LARGEST, max(finite, default=0.0))
    top = (largest if largest > _SMALLEST else 1.0) * _ROOM
    axis = Scale(0.0, top, step=round_step(top))  # what is infinite stands at its end
    limited = claimed < math.inf
    claim_text = f"claimed: {first['claimed_text']}" if limited else "no limit is claimed"
    drawn, told = [], [claim_text]
    for place, row in enumerate(rows):
        drawn.append(_interval(axis, row, _PANEL_HEAD + _PANEL_ROW * place))
        upper = "" if drawn[-1]["high"] is None else f" and at most {row['upper_text']}"
        told.append(f"measured {drawn[-1]['text']}{upper} {drawn[-1]['aside']}")
        if row["power_text"]:
            told.append(f"would have detected {row['power_text']} or more")
    per = f" per {audit['claim']['unit']}" if first["metric"] == "epsilon" else ""
    bottom = _PANEL_HEAD + _PANEL_ROW * len(rows)
    return {
        "title": f"{first['scale'].capitalize()}, claimed against measured",
        "label": f"{first['scale']}: {'; '.join(told)}.",
        "height": bottom + _FOOT,
        "bottom": bottom,
        "claim": share(axis.at(claimed)) if limited else None,
        "claim_text": claim_text,
        "claim_side": _inward(axis.at(claimed)) if limited else "start",
        "rows": drawn,
        "ticks": [
            {"x": share(axis.at(mark)), "text": plain(mark, 6), "side": _inward(axis.at(mark))}
            for mark in axis.marks
        ],
        "scale": f"{first['symbol']}{per}: less privacy to the right",
    }


def _interval(axis: Scale, row: Json, y: int) -> dict[str, Any]:
    """Return where one measurement stands: a bar to its lower bound, a line to its upper one."""
    lower = float_from_json(row["lower"])
    bounded = row["upper"] not in {None, "inf"}
    return {
        "y": y,
        "text": "unlimited" if lower == math.inf else f"at least {row['lower_text']}",
        "aside": f"with {row['confidence_text']} confidence",
        "low": share(axis.at(lower)),
        "high": share(axis.at(max(lower, float_from_json(row["upper"])))) if bounded else None,
        "breaks": row["breaks"],
    }


def render_report(summary: Json) -> str:
    """Return the report as one HTML file."""
    if summary.get("format") != "sordino.summary" or summary.get("version") != 1:
        raise DataError("summary must be what summarize returned, version 1.")
    bins = summary["calibration"]
    figures = {"prediction": _curve_values, "decisive": _bar_values, "worths": _item_values}
    drawn = {name: values(summary[name]) for name, values in figures.items() if summary[name]}
    return _page(
        "report.html.j2",
        summary["audits"],
        summary=summary,
        drawn=drawn
        | {
            "calibration": {  # observed against predicted shares
                "x": Scale(0.0, 1.0, 52.0, 372.0),
                "y": Scale(0.0, 1.0, 332.0, 12.0),
                "largest": max((row["pairs"] or 1.0 for row in bins), default=1.0),
            }
        },
        clipped=sum(row["low"] < 0 or row["high"] > 1 for row in bins),
    )


def _page(name: str, audits: Sequence[Json], **values: object) -> str:
    """Return a page in which nothing hides and nothing is an address."""
    # It loads nothing and runs nothing, follows light and dark mode, and prints. The same values
    # give the same bytes.
    drawn = [{**audit, "panels": _interval_values(audit)} for audit in audits]
    text = environment().get_template(name).render(audits=drawn, **values)
    # Names chosen by users may look like addresses; as an entity they read the same.
    return harmless(text).replace("://", ":&#47;&#47;")


@_validate.typed
def write_report(
    path: str | Path,
    certificate: Certificate,
    ledger: Ledger | None = None,
    *,
    audits: Audit | Sequence[Audit] = (),
    force: bool = False,
) -> None:
    """Write one HTML page that says what an artifact promises and what was spent.

    Args:
        path: The page; one file that loads nothing from outside.
        certificate: From :func:`sordino.certify`.
        ledger: The ledger to show; left out, the page has no section on what was spent.
        audits: What was tried against it; left out, the page has no section on that.
        force: Overwrite the page.

    Raises:
        UsageError: The path exists and ``force`` is False.
        FileSystemError: It cannot be written.
    """
    told = certificate.to_dict()
    values = {key: told[key] for key in ("guarantee", "caveats")} | {"data": {"name": told["data"]}}
    shown = None if ledger is None else describe_ledger_rows(ledger)
    summary = summarize(values, ledger=shown, audits=audits)
    write_text(Path(path), render_report(summary), force=force)


def write_sign_off(path: str | Path, told: Json, *, force: bool = False) -> None:
    """Write one HTML page that holds what was released against a policy, with a place to sign."""
    text = _page("sign_off.html.j2", (), told=told, simulated_text=SAID["simulated"])
    write_text(Path(path), text, force=force)


def _render_audit(audit: Audit) -> str:
    """Return an audit as one HTML file."""
    # If it was computed from raw judgments, the page says on top that it is not for publication.
    described = describe_audits(audit)
    title = f"Audit: {described[0]['subject']}"
    return _page("audit_page.html.j2", described, title=title, simulated_text=SAID["simulated"])


def write_audit(path: str | Path, audit: Audit, *, force: bool = False) -> None:
    """Write one HTML page that says what was claimed, what was measured, and what broke it."""
    write_text(Path(path), _render_audit(audit), force=force)
