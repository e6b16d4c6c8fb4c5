"""A forecast as a picture: accuracy against epsilon, and against the number of labels.

Colors are told apart by color-blind readers, and lines by their dashes where there is no color.

A forecast in plain words: what is assumed, what comes out, and what epsilon means.
"""

from __future__ import annotations

import html
import importlib.util
import io
import math
from pathlib import Path
from typing import Any

import numpy as np

from sordino._files import atomic_writer, refuse_output
from sordino.errors import UsageError
from sordino.privacy.conversions import group_approximate
from sordino.rewards.forecast import IN_WORDS, Forecast, WayForecast, growth_curve, utility_curve
from sordino.rewards.forecast_model import Prediction

from .wording import at_least, belief_percent, percent, plain

_FORMATS = ("svg", "png", "pdf")
_TITLE = "Predicted accuracy of a reward learned from private judgments"
_LEAST, _MOST = 0.1, 10.0  # of epsilon; the chosen one is always inside
_POINTS = {
    "labels": 61,
    "label-estimate": 31,
    "record-estimate": 15,
}  # less where noise is searched
_COUNTS = 61
_BEYOND = 100.0  # how far the axis of labels reaches, as a factor
_MOST_LABELS = 1e18  # where the axis ends at the latest
_PLAIN = 1_000_000  # labels that are written out on the axis
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#596068",
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 10.0,
    "xtick.color": "#3b4148",
    "ytick.color": "#3b4148",
    "svg.fonttype": "path",
    "svg.hashsalt": "sordino",
    "pdf.fonttype": 42,
}
"""How every picture of ours looks."""
_WAYS: dict[str, dict[str, Any]] = {
    "labels": {"color": "#0072b2", "linewidth": 2.2, "label": IN_WORDS["labels"]},
    "label-estimate": {"color": "#e69f00", "linewidth": 3.6, "label": IN_WORDS["label-estimate"]},
    "record-estimate": {
        "color": "#6a1b7a", "linewidth": 1.6, "linestyle": (0, (4, 2)),
        "label": IN_WORDS["record-estimate"],
    },
}  # fmt: skip
_FREE: dict[str, Any] = {
    "color": "#4d4d4d", "linewidth": 1.4, "linestyle": (0, (6, 3)), "label": "without privacy"
}  # fmt: skip
_GUESS: dict[str, Any] = {
    "color": "#8a8a8a", "linewidth": 1.2, "linestyle": (0, (1, 2)), "label": "guessing"
}  # fmt: skip
_TARGET_LINE: dict[str, Any] = {
    "color": "#007a5a",
    "linewidth": 1.0,
    "linestyle": (0, (8, 2, 1, 2)),
}
_LEGEND = (
    *IN_WORDS.values(),
    "without privacy",
    "your choice",
    "target",
    "guessing",
)
_MARK = {"linestyle": "none", "markeredgecolor": "white", "markeredgewidth": 1.2, "zorder": 5}
_CHOSEN: dict[str, Any] = {**_MARK, "marker": "o", "markersize": 7.5, "color": "#d55e00"}
_TARGET: dict[str, Any] = {**_MARK, "marker": "D", "markersize": 7.5, "color": "#007a5a"}


def refuse_plot(path: Path, *, force: bool) -> None:
    """Refuse a name that no picture can be written under."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(
            "A picture needs matplotlib. Nothing was written. Install it with: pip install "
            "'sordino[plots]'"
        )
    if _format(path) not in _FORMATS:
        raise UsageError(
            f"A picture's name must end in .svg, .png or .pdf; {path.name} does not. Nothing was "
            "written."
        )
    refuse_output(path, force=force)


def write_curves(path: Path, forecast: Forecast, *, force: bool = False) -> None:
    """Write the picture of a forecast, in the format that the name's ending says."""
    refuse_plot(path, force=force)
    drawn = _render(forecast, _format(path))
    with atomic_writer(path, force=force) as file:
        file.write(drawn)


def describe_curves(forecast: Forecast) -> str:
    """Return in words what the picture shows, for readers who do not see it."""
    ways = "; ".join(_in_words(forecast, name) for name in forecast.ways)
    return (
        f"Predicted accuracy of a reward. With {forecast.n:,} labels and {forecast.dimension:,} "
        f"features it rises with epsilon: {ways}. Without privacy it would be "
        f"{forecast.non_private.accuracy:.3f}; guessing gives 0.5. With more labels it rises "
        f"towards {plain(forecast.assumed_accuracy, 6)}; {_goal(forecast)}."
    )


def _in_words(forecast: Forecast, name: str) -> str:
    """Return where the line of one way begins and ends, and where it is at the chosen epsilon."""
    (first, low), *_, (last, high) = _line(forecast, name, 2)
    return (
        f"with {IN_WORDS[name]} from {low:.3f} at {plain(first)} to {high:.3f} at {plain(last)}, "
        f"and {forecast.ways[name].accuracy:.3f} at the chosen {plain(forecast.epsilon)}"
    )


def _format(path: Path) -> str:
    """Return the format that a name asks for."""
    return path.suffix.lower().removeprefix(".")


def _line(forecast: Forecast, name: str, points: int) -> list[tuple[float, float]]:
    """Return epsilon and accuracy of one way, the chosen epsilon among them."""
    chosen = forecast.epsilon
    low, high = _range(forecast)
    grid = sorted({*np.geomspace(low, high, points)[1:-1].tolist(), low, chosen, high})
    rows = [row for epsilon in grid for row in _row(forecast, name, epsilon)]
    return [(row["epsilon"], row["accuracy"]) for row in rows]


def _row(forecast: Forecast, name: str, epsilon: float) -> list[dict[str, float]]:
    """Return what another epsilon would give; nothing where no noise keeps it."""
    given = {"noise": name, "delta": forecast.delta, **_world(forecast)}
    try:
        return utility_curve(forecast.n, epsilons=[epsilon], **given)
    except UsageError:
        return []


def _range(forecast: Forecast) -> tuple[float, float]:
    """Return the least and the largest epsilon that is drawn."""
    return min(_LEAST, forecast.epsilon), max(_MOST, forecast.epsilon)


def _world(forecast: Forecast) -> dict[str, Any]:
    """Return what a forecast assumes, as arguments."""
    return {
        "dimension": forecast.dimension,
        "accuracy": forecast.assumed_accuracy,
        "method": forecast.method,
    }


def _render(forecast: Forecast, kind: str) -> bytes:
    """Return the picture as bytes; the same forecast gives the same bytes."""
    import matplotlib as mpl  # noqa: PLC0415 (slow to import)
    from matplotlib.figure import Figure  # noqa: PLC0415

    buffer = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10.4, 4.9), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        _draw_epsilons(left, forecast)
        _draw_labels(right, forecast)
        _dress(figure, left, forecast)
        figure.savefig(buffer, format=kind, dpi=200, metadata=_metadata(forecast, kind))
    drawn = buffer.getvalue()
    return labeled(drawn, describe_curves(forecast)) if kind == "svg" else drawn


def _metadata(forecast: Forecast, kind: str) -> dict[str, str | None]:
    """Return title and description, and no time stamp."""
    text = describe_curves(forecast)
    details: dict[str, dict[str, str | None]] = {
        "svg": {"Description": text, "Date": None},
        "png": {"Description": text},
        "pdf": {"Subject": text, "CreationDate": None},
    }
    return {"Title": _TITLE, **details[kind]}


def labeled(svg: bytes, text: str) -> bytes:
    """Return an SVG that screen readers announce as one picture with a description."""
    label = html.escape(text).encode()
    return svg.replace(b"<svg ", b'<svg role="img" aria-label="' + label + b'" ', 1)


def _draw_epsilons(axes: Any, forecast: Forecast) -> None:
    """Draw accuracy against epsilon."""
    chosen = forecast.epsilon
    axes.set_title(
        f"What ε costs, at n = {plain(forecast.n, 6)}\n"
        f"ε = {plain(chosen)} gives {_briefly(forecast)}"
    )
    axes.set_xlabel("ε, privacy loss of one label or record")
    axes.set_ylabel("predicted accuracy")
    axes.axhline(forecast.non_private.accuracy, **_FREE)
    for name, way in forecast.ways.items():
        axes.plot(*zip(*_line(forecast, name, _POINTS[name]), strict=True), **_WAYS[name])
        _mark(axes, chosen, way.accuracy, "your choice", _CHOSEN)
    axes.set_xscale("log")
    _mark_epsilons(axes, *_range(forecast))


def _briefly(forecast: Forecast) -> str:
    """Return the accuracy of the ways from the worst to the best."""
    found = sorted({f"{way.accuracy:.3f}" for way in forecast.ways.values()})
    between = found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"
    return f"{between}, no privacy {forecast.non_private.accuracy:.3f}"


def _mark_epsilons(axes: Any, low: float, high: float) -> None:
    """Write epsilons as people do, if there are few decades."""
    from matplotlib import ticker  # noqa: PLC0415

    few = high / low < 2000  # noqa: PLR2004
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if few else (1,), numticks=12))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: plain(value)))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())


def _draw_labels(axes: Any, forecast: Forecast) -> None:
    """Draw accuracy against the number of labels, and where it meets the target."""
    needed = [count for count in _needed(forecast) if count <= _MOST_LABELS]
    low = max(1.0, min([forecast.n, *needed]) / _BEYOND)
    high = min(max([forecast.n, *needed]) * _BEYOND, _MOST_LABELS)
    counts = [int(count) for count in np.geomspace(low, high, _COUNTS)]
    found = growth_curve(counts, epsilon=forecast.epsilon, delta=forecast.delta, **_world(forecast))
    axes.set_title(f"What more labels give, at ε = {plain(forecast.epsilon)}\n{_goal(forecast)}")
    axes.set_xlabel("n, number of labels")
    axes.plot(counts, found["non-private"], **_FREE)
    for name, way in forecast.ways.items():
        axes.plot(counts, found[name], **_WAYS[name])
        _mark(axes, forecast.n, way.accuracy, "your choice", _CHOSEN)
    if forecast.target is not None and needed:
        axes.axhline(forecast.target, **_TARGET_LINE)
        for count in needed:
            _mark(axes, count, forecast.target, "target", _TARGET)
    axes.set_xscale("log")
    _mark_labels(axes)


def _needed(forecast: Forecast) -> list[int]:
    """Return how many labels the target needs, in each way in which some number is enough."""
    counts = (way.labels_needed for way in forecast.ways.values())
    return [count for count in counts if count is not None]


def _goal(forecast: Forecast) -> str:
    """Return what the target needs, or where the curves end."""
    target, needed = forecast.target, _needed(forecast)
    if target is None:
        return f"no number of labels gives more than {plain(forecast.assumed_accuracy, 6)}"
    if not needed:
        return f"no number of labels reaches {plain(target, 6)}"
    least, most = _labels(min(needed)), _labels(max(needed))
    return f"{plain(target, 6)} needs {least if least == most else f'{least} to {most}'} labels"


def _labels(count: int) -> str:
    """Return a number of labels, shortened where it is long."""
    return plain(count, 6 if count < _PLAIN else 3)


def _mark_labels(axes: Any) -> None:
    """Write numbers of labels with separators, or as powers of ten when they are long."""
    from matplotlib import ticker  # noqa: PLC0415

    def text(value: float, _: Any) -> str:
        return f"{value:,.0f}" if value < _PLAIN else f"$10^{{{math.log10(value):.0f}}}$"

    axes.xaxis.set_major_locator(ticker.LogLocator(numticks=7))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(text))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())


def _mark(axes: Any, x: float, y: float, label: str, style: dict[str, Any]) -> None:
    """Draw one point, and a thin line down to the axis."""
    axes.vlines(x, 0, y, color=style["color"], linewidth=0.9, alpha=0.7)
    axes.plot([x], [y], label=label, **style)


def _dress(figure: Any, left: Any, forecast: Forecast) -> None:
    """Draw what both panels share: the level of guessing, the range, the legend, the caption."""
    gain = forecast.assumed_accuracy - 0.5
    for axes in figure.axes:
        axes.axhline(0.5, **_GUESS)
        axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
        axes.set_axisbelow(True)
    left.set_ylim(0.5 - 0.05 * gain, 0.5 + 1.07 * gain)
    drawn = [line for axes in figure.axes for line in axes.get_lines()]
    by_name = {line.get_label(): line for line in drawn}
    named = {name: by_name[name] for name in _LEGEND if name in by_name}
    figure.legend(named.values(), named, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(
        f"Foreseen from public numbers only: {forecast.dimension:,} features, assuming that the "
        f"true reward predicts {plain(100 * forecast.assumed_accuracy, 6)}% of judgments",
        x=0.01, ha="left", fontsize=10.5, color="#3b4148",
    )  # fmt: skip


_MANY = 10**9  # labels beyond which single ones do not matter
_NEEDS = (
    "noise on the estimate needs a curator who sees the labels and delta above 0; noise on labels "
    "needs neither"
)
_UNITS = {"label": "label", "record": "record (prompt, answers and label; used, or made empty)"}


def describe_forecast(forecast: Forecast) -> dict[str, str]:
    """Return a forecast as sentences, by topic, in the order in which they are read."""
    rows = {
        "question": f"{forecast.n:,} labels, {forecast.dimension:,} features",
        "assumption": f"the true reward predicts {percent(forecast.assumed_accuracy)} of "
        "judgments (--accuracy; guessing predicts 50%), so that its differences spread by "
        f"{plain(forecast.reward_spread, 2)}",
        "without privacy": _outcome(forecast.non_private),
    }
    for name, way in forecast.ways.items():
        rows[IN_WORDS[name]] = f"{_outcome(way)}; {_worth(way.effective_judgments)}"
        rows[f"epsilon, {name}"] = _meaning(way)
    rows |= {IN_WORDS[name]: reason for name, reason in forecast.left_out.items()}
    rows["compared"] = _compared(forecast)
    rows["one person"] = _person(forecast)
    if forecast.target is not None:
        rows[f"accuracy {plain(forecast.target, 6)}"] = _needed_size(forecast)
    return rows | {"touched": "nothing: no data were read, nothing was spent"}


def _outcome(found: Prediction) -> str:
    """Return accuracy and standard error."""
    return (
        f"accuracy {found.accuracy:.3f}; an estimated reward difference is off by "
        f"± {plain(found.standard_error, 2)}"
    )


def _worth(value: float) -> str:
    """Return how many judgments without privacy tell as much; the number need not be whole."""
    if value < 1:
        return "less than one judgment without privacy"
    return f"about as much as {plain(value)} judgments without privacy"


def _meaning(way: WayForecast) -> str:
    """Return what epsilon bounds, never rounded down, and how often an answer is flipped."""
    slack = "delta 0" if way.delta == 0 else f"apart from the slack delta = {at_least(way.delta)}"
    flips = (
        "the curator sees answers as they are"
        if way.flip_probability is None
        else f"{plain(100 * way.flip_probability)}% of answers are flipped"
    )
    return (
        f"{at_least(way.epsilon)} per {_UNITS[way.unit]}: odds about it move by at most a factor "
        f"of {at_least(way.odds)}, a belief of 50% to at most {belief_percent(way.belief)}, "
        f"{slack}; {flips}"
    )


def _compared(forecast: Forecast) -> str:
    """Return which way is foreseen to be best, from where on, and what a curator's way needs."""
    best, local = forecast.ways[forecast.best], forecast.ways["labels"]
    parts = [f"{IN_WORDS[forecast.best]} is best here"]
    if (gain := best.accuracy - local.accuracy) > 0:
        parts[0] += f", by {plain(100 * gain, 2)} points of accuracy over noise on labels"
    if forecast.break_even is not None:
        parts.append(
            "one noised sum of labels errs less than noise on labels from "
            f"{_count(forecast.break_even)} on"
        )
    return "; ".join([*parts, _NEEDS])


def _person(forecast: Forecast) -> str:
    """Return what the labels of one person cost together, in each way."""
    labels = forecast.labels_per_person
    if labels is None:
        curator = "; with noise on the estimate less well (--labels-per-person)" * (
            len(forecast.ways) > 1
        )
        return f"who gives m labels is protected with m times epsilon with noise on labels{curator}"
    parts = [_together(name, way, labels) for name, way in forecast.ways.items()]
    return f"who gives {labels:,} label{'s' * (labels != 1)} is protected with " + ", ".join(parts)


def _together(name: str, way: WayForecast, labels: int) -> str:
    """Return what one person's labels cost in one way."""
    # Where no epsilon is known at the same delta, it is that of a group at the group's delta.
    epsilon, delta = way.person_epsilon, way.delta
    if epsilon is None:
        epsilon, delta = group_approximate(way.epsilon, way.delta, labels)
    if delta >= 1:
        return f"nothing with {IN_WORDS[name]} (only single {way.unit}s are)"
    where = f"with {IN_WORDS[name]}"
    return f"epsilon {at_least(epsilon)} {where}" + (
        f" (delta {at_least(delta)})" if delta > 0 else ""
    )


def _needed_size(forecast: Forecast) -> str:
    """Return how many labels a target needs, in each way."""
    if not forecast.reachable:
        return (
            "no number of labels reaches it: even the true reward predicts only "
            f"{percent(forecast.assumed_accuracy)}"
        )
    ways = [f"{_size_labels(way)} with {IN_WORDS[name]}" for name, way in forecast.ways.items()]
    return "needs " + ", ".join([*ways, f"{_size_labels(forecast.non_private)} without privacy"])


def _size_labels(found: Prediction) -> str:
    """Return how many labels are needed."""
    return _count(found.labels_needed or 0)


def _count(needed: int) -> str:
    """Return a number of labels, rounded up where there are very many."""
    return (
        f"{at_least(needed)} labels"
        if needed >= _MANY
        else f"{needed:,} label{'s' * (needed != 1)}"
    )
