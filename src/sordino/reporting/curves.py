"""Pictures: a forecast against epsilon and the number of labels, and how training went by step.

Colors are told apart by color-blind readers, and lines by their dashes where there is no color.
Each picture is also told in words, as is a forecast.
"""

from __future__ import annotations

import html
import importlib.util
import io
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sordino._files import atomic_writer, refuse_output
from sordino.errors import UsageError
from sordino.privacy.conversions import group_approximate
from sordino.rewards.forecast import IN_WORDS, Forecast, Prediction, growth_curve, utility_curve
from sordino.rewards.metrics import REACH

from .wording import Json, at_least, belief_percent, percent, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLE = {
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
_Look = dict[str, Any]  # what matplotlib draws a line with


def _write_picture(
    path: Path, height: float, fill: Callable[[Figure], None], *, title: str, text: str, force: bool
) -> None:
    """Write a picture in the format that its name ends in: the same drawing, the same bytes."""
    # Title and description are inside, and no time stamp. Screen readers announce an SVG as one
    # picture with a description.
    import matplotlib as mpl  # noqa: PLC0415 (slow to import)
    from matplotlib.figure import Figure  # noqa: PLC0415

    details: dict[str, dict[str, str | None]] = {
        "svg": {"Description": text, "Date": None},
        "png": {"Description": text},
        "pdf": {"Subject": text, "CreationDate": None},
    }
    kind, buffer = path.suffix.lower().removeprefix("."), io.BytesIO()
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(10.4, height), layout="constrained")
        fill(figure)
        metadata = {"Title": title, **details[kind]}
        figure.savefig(buffer, format=kind, dpi=200, metadata=metadata)
    drawn = buffer.getvalue()
    if kind == "svg":
        label = f'<svg role="img" aria-label="{html.escape(text)}" '.encode()
        drawn = drawn.replace(b"<svg ", label, 1)
    with atomic_writer(path, force=force) as file:
        file.write(drawn)


def _rule(axes: Axes) -> None:
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)


# A forecast.

_LEAST, _MOST = 0.1, 10.0  # of epsilon; the chosen one is always inside
_POINTS = {"labels": 61, "label-estimate": 31, "record-estimate": 15}  # less where noise is sought
_BEYOND = 100.0  # how far the axis of labels reaches, as a factor
_MOST_LABELS = 1e18  # where the axis ends at the latest
_PLAIN = 1_000_000  # labels that are written out on the axis
_WAYS: dict[str, _Look] = {
    "labels": {"color": "#0072b2", "linewidth": 2.2},
    "label-estimate": {"color": "#e69f00", "linewidth": 3.6},
    "record-estimate": {"color": "#6a1b7a", "linewidth": 1.6, "linestyle": (0, (4, 2))},
}
_FREE: _Look = {"color": "#4d4d4d", "linestyle": (0, (6, 3))}
_UNPROTECTED: _Look = {**_FREE, "linewidth": 1.4, "label": "without privacy"}
_GUESS: _Look = {"color": "#8a8a8a", "linewidth": 1.2, "linestyle": (0, (1, 2))}
_TARGET_LINE: _Look = {"color": "#007a5a", "linewidth": 1.0, "linestyle": (0, (8, 2, 1, 2))}
_MARK = {"linestyle": "none", "markeredgecolor": "white", "markeredgewidth": 1.2, "zorder": 5}
_CHOSEN: _Look = {
    **_MARK, "marker": "o", "markersize": 7.5, "color": "#d55e00", "label": "your choice"
}  # fmt: skip
_TARGET: _Look = {
    **_MARK, "marker": "D", "markersize": 7.5, "color": "#007a5a", "label": "target"
}  # fmt: skip
_LEGEND = (*IN_WORDS.values(), "without privacy", "your choice", "target", "guessing")


def refuse_plot(path: Path, *, force: bool) -> None:
    """Refuse a name that no picture can be written under."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(
            "A picture needs matplotlib. Nothing was written. Install it with: pip install "
            "'sordino[plots]'"
        )
    if path.suffix.lower().removeprefix(".") not in {"svg", "png", "pdf"}:
        raise UsageError(
            f"A picture's name must end in .svg, .png or .pdf; {path.name} does not. Nothing was "
            "written."
        )
    refuse_output(path, force=force)


def write_curves(path: Path, forecast: Forecast, *, force: bool = False) -> None:
    """Write the picture of a forecast, in the format that the name's ending says."""
    refuse_plot(path, force=force)

    def fill(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        _draw_epsilons(left, forecast)
        _draw_labels(right, forecast)
        gain = forecast.assumed_accuracy - 0.5
        for axes in figure.axes:
            axes.axhline(0.5, **_GUESS, label="guessing")
            _rule(axes)
        left.set_ylim(0.5 - 0.05 * gain, 0.5 + 1.07 * gain)
        drawn = [line for axes in figure.axes for line in axes.get_lines()]
        by_name = {line.get_label(): line for line in drawn}
        named = {name: by_name[name] for name in _LEGEND if name in by_name}
        figure.legend(named.values(), named, loc="outside lower center", ncols=4, frameon=False)
        figure.suptitle(
            f"Foreseen from public numbers only: {forecast.dimension:,} features, assuming that "
            f"the true reward predicts {plain(100 * forecast.assumed_accuracy, 6)}% of judgments",
            x=0.01, ha="left", fontsize=10.5, color="#3b4148",
        )  # fmt: skip

    _write_picture(
        path,
        4.9,
        fill,
        title="Predicted accuracy of a reward learned from private judgments",
        text=_describe_curves(forecast),
        force=force,
    )


def _describe_curves(forecast: Forecast) -> str:
    """Return in words what the picture shows, for readers who do not see it."""
    ways = []
    for name, way in forecast.ways.items():
        (first, low), *_, (last, high) = _line(forecast, name, 2)
        ways.append(
            f"with {IN_WORDS[name]} from {low:.3f} at {plain(first)} to {high:.3f} at "
            f"{plain(last)}, and {way.accuracy:.3f} at the chosen {plain(forecast.epsilon)}"
        )
    return (
        f"Predicted accuracy of a reward. With {forecast.n:,} labels and {forecast.dimension:,} "
        f"features it rises with epsilon: {'; '.join(ways)}. Without privacy it would be "
        f"{forecast.non_private.accuracy:.3f}; guessing gives 0.5. With more labels it rises "
        f"towards {plain(forecast.assumed_accuracy, 6)}; {_goal(forecast)}."
    )


def _line(forecast: Forecast, name: str, points: int) -> list[tuple[float, float]]:
    """Return epsilon and accuracy of one way, the chosen epsilon among them."""
    low, high = _range(forecast)
    grid = {*np.geomspace(low, high, points)[1:-1].tolist(), low, forecast.epsilon, high}
    rows: list[dict[str, float]] = []
    for epsilon in sorted(grid):
        with suppress(UsageError):  # no noise keeps this one
            rows += utility_curve(
                forecast.n,
                dimension=forecast.dimension,
                epsilons=[epsilon],
                accuracy=forecast.assumed_accuracy,
                method=forecast.method,
                noise=name,
                delta=forecast.delta,
            )
    return [(row["epsilon"], row["accuracy"]) for row in rows]


def _range(forecast: Forecast) -> tuple[float, float]:
    return min(_LEAST, forecast.epsilon), max(_MOST, forecast.epsilon)


def _draw_epsilons(axes: Axes, forecast: Forecast) -> None:
    from matplotlib import ticker  # noqa: PLC0415

    (low, high), free = _range(forecast), forecast.non_private.accuracy
    found = sorted({f"{way.accuracy:.3f}" for way in forecast.ways.values()})
    between = found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"
    axes.set_title(
        f"What ε costs, at n = {plain(forecast.n, 6)}\n"
        f"ε = {plain(forecast.epsilon)} gives {between}, no privacy {free:.3f}"
    )
    axes.set_xlabel("ε, privacy loss of one label or record")
    axes.set_ylabel("predicted accuracy")
    axes.axhline(free, **_UNPROTECTED)
    for name, way in forecast.ways.items():
        points = _line(forecast, name, _POINTS[name])
        axes.plot(*zip(*points, strict=True), **_WAYS[name], label=IN_WORDS[name])
        _mark(axes, forecast.epsilon, way.accuracy, _CHOSEN)
    few = high / low < 2000  # noqa: PLR2004
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if few else (1,), numticks=12))
    axes.xaxis.set_major_formatter(lambda value, _: plain(value))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())


def _draw_labels(axes: Axes, forecast: Forecast) -> None:
    """Draw accuracy against the number of labels, and where it meets the target."""
    from matplotlib import ticker  # noqa: PLC0415

    needed = [count for count in _needed(forecast) if count <= _MOST_LABELS]
    low = max(1.0, min([forecast.n, *needed]) / _BEYOND)
    high = min(max([forecast.n, *needed]) * _BEYOND, _MOST_LABELS)
    counts = [int(count) for count in np.geomspace(low, high, 61)]
    found = growth_curve(
        counts,
        dimension=forecast.dimension,
        epsilon=forecast.epsilon,
        accuracy=forecast.assumed_accuracy,
        method=forecast.method,
        delta=forecast.delta,
    )
    axes.set_title(f"What more labels give, at ε = {plain(forecast.epsilon)}\n{_goal(forecast)}")
    axes.set_xlabel("n, number of labels")
    axes.plot(counts, found["non-private"], **_UNPROTECTED)
    for name, way in forecast.ways.items():
        axes.plot(counts, found[name], **_WAYS[name], label=IN_WORDS[name])
        _mark(axes, forecast.n, way.accuracy, _CHOSEN)
    if forecast.target is not None and needed:
        axes.axhline(forecast.target, **_TARGET_LINE)
        for count in needed:
            _mark(axes, count, forecast.target, _TARGET)

    def written(value: float, _: object) -> str:
        return f"{value:,.0f}" if value < _PLAIN else f"$10^{{{math.log10(value):.0f}}}$"

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(ticker.LogLocator(numticks=7))
    axes.xaxis.set_major_formatter(written)
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())


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
    least, most = (plain(count, 6 if count < _PLAIN else 3) for count in (min(needed), max(needed)))
    return f"{plain(target, 6)} needs {least if least == most else f'{least} to {most}'} labels"


def _mark(axes: Axes, x: float, y: float, look: _Look) -> None:
    """Draw one point, and a thin line down to the axis."""
    axes.vlines(x, 0, y, color=look["color"], linewidth=0.9, alpha=0.7)
    axes.plot([x], [y], **look)


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
        many = way.effective_judgments  # the number need not be whole
        worth = (
            f"about as much as {plain(many)} judgments" if many >= 1 else "less than one judgment"
        )
        rows[IN_WORDS[name]] = f"{_outcome(way)}; {worth} without privacy"
        # What epsilon bounds is never rounded down.
        slack = f"apart from the slack delta = {at_least(way.delta)}" if way.delta else "delta 0"
        flips = (
            "the curator sees answers as they are"
            if way.flip_probability is None
            else f"{plain(100 * way.flip_probability)}% of answers are flipped"
        )
        rows[f"epsilon, {name}"] = (
            f"{at_least(way.epsilon)} per {_UNITS[way.unit]}: odds about it move by at most a "
            f"factor of {at_least(way.odds)}, a belief of 50% to at most "
            f"{belief_percent(way.belief)}, {slack}; {flips}"
        )
    rows |= {IN_WORDS[name]: reason for name, reason in forecast.left_out.items()}
    best, local = forecast.ways[forecast.best], forecast.ways["labels"]
    parts = [f"{IN_WORDS[forecast.best]} is best here"]
    if (gain := best.accuracy - local.accuracy) > 0:
        parts[0] += f", by {plain(100 * gain, 2)} points of accuracy over noise on labels"
    if forecast.break_even is not None:
        count = _count(forecast.break_even)
        parts.append(f"one noised sum of labels errs less than noise on labels from {count} on")
    rows["compared"] = "; ".join([*parts, _NEEDS])
    rows["one person"] = _person(forecast)
    if forecast.target is not None:
        ways = {IN_WORDS[name]: way.labels_needed for name, way in forecast.ways.items()}
        needed = [f"{_count(count or 0)} with {name}" for name, count in ways.items()]
        needed.append(f"{_count(forecast.non_private.labels_needed or 0)} without privacy")
        rows[f"accuracy {plain(forecast.target, 6)}"] = (
            f"needs {', '.join(needed)}"
            if forecast.reachable
            else "no number of labels reaches it: even the true reward predicts only "
            f"{percent(forecast.assumed_accuracy)}"
        )
    return rows | {"touched": "nothing: no data were read, nothing was spent"}


def _outcome(found: Prediction) -> str:
    return (
        f"accuracy {found.accuracy:.3f}; an estimated reward difference is off by at most "
        f"± {plain(REACH * found.standard_error, 2)} (95%)"
    )


def _person(forecast: Forecast) -> str:
    labels = forecast.labels_per_person
    if labels is None:
        curator = "; with noise on the estimate less well (--labels-per-person)" * (
            len(forecast.ways) > 1
        )
        return f"who gives m labels is protected with m times epsilon with noise on labels{curator}"
    parts = []
    for name, way in forecast.ways.items():
        # Where no epsilon is known at the same delta, it is that of a group at the group's delta.
        epsilon, delta = way.person_epsilon, way.delta
        if epsilon is None:
            epsilon, delta = group_approximate(way.epsilon, way.delta, labels)
        slack = f" (delta {at_least(delta)})" if delta > 0 else ""
        parts.append(
            f"epsilon {at_least(epsilon)} with {IN_WORDS[name]}{slack}"
            if delta < 1
            else f"nothing with {IN_WORDS[name]} (only single {way.unit}s are)"
        )
    return f"who gives {labels:,} label{'s' * (labels != 1)} is protected with " + ", ".join(parts)


def _count(needed: int) -> str:
    """Return a number of labels, rounded up where there are very many."""
    return f"{at_least(needed) if needed >= _MANY else f'{needed:,}'} label{'s' * (needed != 1)}"


# Training.

_SIMULATED = "SIMULATED: a seed was used, so nothing here is private."
_PANELS = {
    "loss": ("debiased training loss", "What training says"),
    "held_out_accuracy": ("accuracy, corrected for the flips", "What held-out answers say"),
}
_COLORS = ("#d55e00", "#e69f00", "#0072b2", "#007a5a", "#6a1b7a", "#56b4e9")
_DASHES = {"dpo": "-", "rebel": (0, (3, 1.5))}
_NAMES = {"dpo": "DPO", "rebel": "reward"}
_OVER = 0.15  # of the range that the means span, left free above and below
_FAR = 3.0  # range of a metric from which on its axis is logarithmic


def write_training_curves(
    path: Path, curves: Sequence[Json], *, force: bool = False, simulated: bool = False
) -> None:
    """Write the picture of a comparison's training, as SVG: one color for each kind of labels."""
    private = [curve["labels"] for curve in curves if curve["labels"] != "non-private"]
    looks: dict[str, _Look] = {
        labels: {"color": _COLORS[at % len(_COLORS)]}
        for at, labels in enumerate(dict.fromkeys(private))
    }

    def fill(figure: Figure) -> None:
        for axes, metric in zip(figure.subplots(1, 2), _PANELS, strict=True):
            label, title = _PANELS[metric]
            for curve in curves:
                found = curve[metric]
                look = {
                    "linestyle": _DASHES[curve["method"]],
                    **{**looks, "non-private": _FREE}[curve["labels"]],
                }
                if len(found["seeds"]) > 1:
                    for values in found["seeds"]:
                        axes.plot(found["steps"], values, **look, linewidth=0.7, alpha=0.3)
                axes.plot(found["steps"], found["mean"], **look, linewidth=2.0, label=_name(curve))
            axes.set_title(title)
            axes.set_xlabel("step")
            axes.set_ylabel(label)
            # The axis fits the means: at a small epsilon single seeds may go far beyond them. Where
            # the means themselves lie far apart, as debiased losses do, differences near 0 stay
            # visible on a logarithmic axis.
            means = np.concatenate([np.zeros(0), *(curve[metric]["mean"] for curve in curves)])
            if means.size:
                room = max(_OVER * float(np.ptp(means)), 0.01)
                axes.set_ylim(float(means.min()) - room, float(means.max()) + room)
                if np.ptp(means) > _FAR:
                    axes.set_yscale("symlog", linthresh=1.0)
            _rule(axes)
            if metric == "held_out_accuracy":
                axes.axhline(0.5, **_GUESS)
                low, high = axes.get_ylim()
                axes.set_ylim(max(low, 0.0), min(high, 1.0))
        handles, names = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=4, frameon=False)
        if simulated:
            figure.suptitle(_SIMULATED, color="#b00020", fontweight="bold", gid="simulated")

    text = _describe_training(curves, simulated=simulated)
    _write_picture(path, 4.6, fill, title="Training on randomized answers", text=text, force=force)


def _describe_training(curves: Sequence[Json], *, simulated: bool = False) -> str:
    """Return in words what the picture shows, for readers who do not see it."""
    ends = [
        f"{_name(curve)} from {values[0]:.3f} to {values[-1]:.3f}"
        for curve in curves
        if (values := curve["held_out_accuracy"]["mean"])
    ]
    return (
        f"{f'{_SIMULATED} ' if simulated else ''}"
        "Training curves on randomized answers. Held-out accuracy, corrected for the flips, goes: "
        f"{'; '.join(ends) or 'not measured'}."
    )


def _name(curve: Json) -> str:
    return f"{_NAMES[curve['method']]}, {curve['labels'].replace('epsilon=', 'ε = ')}"
