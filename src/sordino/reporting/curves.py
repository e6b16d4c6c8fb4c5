"""Pictures: a forecast against epsilon, and how training went by step.

Each is one SVG file. Colors are told apart by color-blind readers, and lines by their
dashes where there is no color. Each picture is also told in words, as is a forecast.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sordino._files import refuse_output, write_text
from sordino.errors import UsageError
from sordino.rewards.forecast import IN_WORDS, WAYS, Forecast, Prediction
from sordino.rewards.metrics import REACH

from .drawing import Scale, environment, powers_of_ten, round_step
from .wording import Json, at_least, belief_percent, percent, plain

_LEFT, _RIGHT = (64.0, 504.0), (576.0, 1016.0)  # where two panels begin and end
_BOTTOM, _TOP = 376.0, 96.0
_Points = Iterable[tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class _Panel:
    """One chart; the template knows how each kind of line looks."""

    title: tuple[str, str]  # in two lines
    across: str
    up: str
    x: Scale
    y: Scale
    x_marks: Sequence[float]
    lines: Sequence[tuple[str, _Points]]
    levels: Mapping[str, float]  # lines across
    points: Sequence[tuple[str, float, float]] = ()


def refuse_plot(path: Path, *, force: bool) -> None:
    """Refuse a name that no picture can be written under."""
    if path.suffix.lower() != ".svg":
        raise UsageError(
            f"A picture's name must end in .svg; {path.name} does not. Nothing was written."
        )
    refuse_output(path, force=force)


def _write_picture(path: Path, *, force: bool, **shown: object) -> None:
    """Write panels as SVG: the same drawing, the same bytes, and no time stamp."""
    told = {"assumption": "", "simulated": ""} | shown
    template = environment().get_template("picture.svg.j2")
    write_text(path, template.render(**told), force=force)


# A forecast.

_LEAST, _MOST = 0.1, 10.0  # of epsilon; the chosen one is always inside
_POINTS = {"labels": 61, "label-estimate": 31, "record-estimate": 15}  # less where noise is sought


def write_curves(path: Path, forecast: Forecast, *, force: bool = False) -> None:
    """Write the picture of a forecast."""
    refuse_plot(path, force=force)
    legend = [(name, IN_WORDS[name]) for name in forecast.ways]
    legend += [("unprotected", "without privacy"), ("chosen", "your choice")]
    _write_picture(
        path,
        panels=[_epsilon_panel(forecast)],
        title="Predicted accuracy of a reward learned from private judgments",
        text=_describe_curves(forecast),
        legend=[*legend, ("guessing", "guessing")],
        assumption=f"Foreseen from public numbers only: {forecast.dimension:,} features, assuming "
        f"that the true reward predicts {plain(100 * forecast.assumed_accuracy, 6)}% of judgments",
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
        f"{forecast.non_private.accuracy:.3f}; guessing gives 0.5."
    )


def _line(forecast: Forecast, name: str, points: int) -> list[tuple[float, float]]:
    """Return epsilon and accuracy of one way, the chosen epsilon among them."""
    low, high = _range(forecast)
    grid = {*np.geomspace(low, high, points)[1:-1].tolist(), low, forecast.epsilon, high}
    line: list[tuple[float, float]] = []
    for epsilon in sorted(grid):
        with suppress(UsageError):  # no noise keeps this one
            way = WAYS[name](forecast.world, epsilon, forecast.delta)
            line.append((epsilon, way.accuracy(forecast.n)))
    return line


def _range(forecast: Forecast) -> tuple[float, float]:
    return min(_LEAST, forecast.epsilon), max(_MOST, forecast.epsilon)


def _epsilon_panel(forecast: Forecast) -> _Panel:
    """Return accuracy against epsilon."""
    (low, high), free = _range(forecast), forecast.non_private.accuracy
    found = sorted({f"{way.accuracy:.3f}" for way in forecast.ways.values()})
    between = found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"
    chosen, gain = plain(forecast.epsilon), forecast.assumed_accuracy - 0.5
    return _Panel(
        title=(
            f"What ε costs, at n = {plain(forecast.n, 6)}",
            f"ε = {chosen} gives {between}, no privacy {free:.3f}",
        ),
        across="ε, privacy loss of one label or record",
        up="predicted accuracy",
        x=Scale(low, high, _LEFT[0], _RIGHT[1], math.log10),
        # From guessing to what the true reward predicts.
        y=Scale(0.5 - 0.05 * gain, 0.5 + 1.07 * gain, _BOTTOM, _TOP, step=round_step(gain)),
        x_marks=powers_of_ten(low, high),
        lines=[(name, _line(forecast, name, _POINTS[name])) for name in forecast.ways],
        levels={"guessing": 0.5, "unprotected": free},
        points=[("chosen", forecast.epsilon, way.accuracy) for way in forecast.ways.values()],
    )


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
    rows["compared"] = "; ".join([*parts, _NEEDS])
    rows["one person"] = (
        "who gives m labels is protected with m times epsilon with noise on labels"
        + "; with noise on the estimate less well" * (len(forecast.ways) > 1)
    )
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


def _count(needed: int) -> str:
    """Return a number of labels, rounded up where there are very many."""
    return f"{at_least(needed) if needed >= _MANY else f'{needed:,}'} label{'s' * (needed != 1)}"


# Training.

_SIMULATED = "SIMULATED: a seed was used, so nothing here is private."
_PANELS = {
    "loss": ("debiased training loss", "What training says", _LEFT),
    "held_out_accuracy": ("accuracy, corrected for the flips", "What held-out answers say", _RIGHT),
}
_COLORS = 6
_NAMES = {"dpo": "DPO", "rebel": "reward"}


def write_training_curves(
    path: Path, curves: Sequence[Json], *, force: bool = False, simulated: bool = False
) -> None:
    """Write the picture of a comparison's training: one color for each kind of labels."""
    private = dict.fromkeys(c["labels"] for c in curves if c["labels"] != "non-private")
    colors = {labels: f"color{at % _COLORS}" for at, labels in enumerate(private)}
    kinds = [f"{colors.get(c['labels'], 'unprotected')} {c['method']}" for c in curves]
    _write_picture(
        path,
        panels=[_training_panel(metric, curves, kinds) for metric in _PANELS],
        title="Training on randomized answers",
        text=_describe_training(curves, simulated=simulated),
        legend=list(zip(kinds, map(_name, curves), strict=True)),
        simulated=_SIMULATED if simulated else "",
        force=force,
    )


def _training_panel(metric: str, curves: Sequence[Json], kinds: Sequence[str]) -> _Panel:
    """Return one metric by step: means, and single seeds behind them."""
    (up, title, ends), found = _PANELS[metric], [curve[metric] for curve in curves]
    lines = [
        (f"{kind} single", list(zip(values["steps"], seed, strict=True)))
        for kind, values in zip(kinds, found, strict=True)
        for seed in (values["seeds"] if len(values["seeds"]) > 1 else ())
    ]
    lines += [
        (kind, list(zip(values["steps"], values["mean"], strict=True)))
        for kind, values in zip(kinds, found, strict=True)
    ]
    steps = [step for values in found for step in values["steps"]] or [0]
    x = Scale.rounded([min(steps), max(steps)], *ends, least=1.0)
    # The axis fits the means: at a small epsilon single seeds may go far beyond them.
    means = [value for values in found for value in values["mean"]] or [0.0, 1.0]
    share = metric == "held_out_accuracy"
    if share:  # corrected for the flips, a mean of few answers may lie beyond 0 or 1
        means = [min(max(value, 0.0), 1.0) for value in means]
    y = Scale.rounded(means, _BOTTOM, _TOP)
    return _Panel(
        title=("", title),
        across="step",
        up=up,
        x=x,
        y=y,
        x_marks=x.marks,
        lines=lines,
        levels={"guessing": 0.5} if share and y.low < 0.5 < y.high else {},  # noqa: PLR2004
    )


def _describe_training(curves: Sequence[Json], *, simulated: bool = False) -> str:
    """Return in words what the picture shows, for readers who do not see it."""
    ends = [
        f"{_name(curve)} from {values[0]:.3f} to {values[-1]:.3f}"
        for curve in curves
        if (values := curve["held_out_accuracy"]["mean"])
    ]
    return (
        f"{f'{_SIMULATED} ' if simulated else ''}Training curves on randomized answers. Held-out "
        f"accuracy, corrected for the flips, goes: {'; '.join(ends) or 'not measured'}."
    )


def _name(curve: Json) -> str:
    return f"{_NAMES[curve['method']]}, {curve['labels'].replace('epsilon=', 'ε = ')}"
