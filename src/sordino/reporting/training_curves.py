"""How training went at each epsilon, as a picture: loss and held-out accuracy by step."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sordino._files import atomic_writer
from sordino.reporting.curves import STYLE, labeled

__all__ = ["describe_training", "write_training_curves"]

_TITLE = "Training on randomized answers"
_SIMULATED = "SIMULATED: a seed was used, so nothing here is private."
_PANELS = {
    "loss": ("debiased training loss", "What training says"),
    "held_out_accuracy": ("accuracy, corrected for the flips", "What held-out answers say"),
}
_COLORS = ("#d55e00", "#e69f00", "#0072b2", "#007a5a", "#6a1b7a", "#56b4e9")
_FREE: dict[str, Any] = {"color": "#4d4d4d", "linestyle": (0, (6, 3))}
_DASHES: Mapping[str, Any] = {"dpo": "-", "rebel": (0, (3, 1.5))}
_NAMES = {"dpo": "DPO", "rebel": "reward"}
_OVER = 0.15  # of the range that the means span, left free above and below
_FAR = 3.0  # range of a metric from which on its axis is logarithmic

Curve = Mapping[str, Any]


def write_training_curves(
    path: Path, curves: Sequence[Curve], *, force: bool = False, simulated: bool = False
) -> None:
    """Write the picture of a comparison's training, as SVG."""
    drawn = labeled(
        _render(curves, simulated=simulated), describe_training(curves, simulated=simulated)
    )
    with atomic_writer(path, force=force) as file:
        file.write(drawn)


def describe_training(curves: Sequence[Curve], *, simulated: bool = False) -> str:
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


def _name(curve: Curve) -> str:
    """Return what a curve is called."""
    return f"{_NAMES[curve['method']]}, {curve['labels'].replace('epsilon=', 'ε = ')}"


def _render(curves: Sequence[Curve], *, simulated: bool) -> bytes:
    """Return the picture as bytes; the same curves give the same bytes."""
    import matplotlib as mpl  # noqa: PLC0415 (slow to import)
    from matplotlib.figure import Figure  # noqa: PLC0415

    buffer = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10.4, 4.6), layout="constrained")
        styles = _styles(curves)
        for axes, metric in zip(figure.subplots(1, 2), _PANELS, strict=True):
            _draw(axes, curves, metric, styles)
        handles, names = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=4, frameon=False)
        if simulated:
            figure.suptitle(_SIMULATED, color="#b00020", fontweight="bold", gid="simulated")
        told = describe_training(curves, simulated=simulated)
        metadata = {"Title": _TITLE, "Description": told, "Date": None}
        figure.savefig(buffer, format="svg", metadata=metadata)
    return buffer.getvalue()


def _styles(curves: Sequence[Curve]) -> dict[str, dict[str, Any]]:
    """Return a color for each kind of labels, the same for every method."""
    private = [curve["labels"] for curve in curves if curve["labels"] != "non-private"]
    order = list(dict.fromkeys(private))
    styles = {
        labels: {"color": _COLORS[at % len(_COLORS)], "linestyle": "-"}
        for at, labels in enumerate(order)
    }
    return {**styles, "non-private": _FREE}


def _draw(
    axes: Any, curves: Sequence[Curve], metric: str, styles: Mapping[str, dict[str, Any]]
) -> None:
    """Draw one metric: the mean over seeds, and each seed faintly behind it."""
    label, title = _PANELS[metric]
    for curve in curves:
        found, style = curve[metric], dict(styles[curve["labels"]])
        if curve["labels"] != "non-private":
            style["linestyle"] = _DASHES[curve["method"]]
        if len(found["seeds"]) > 1:
            for values in found["seeds"]:
                axes.plot(found["steps"], values, **style, linewidth=0.7, alpha=0.3)
        axes.plot(found["steps"], found["mean"], **style, linewidth=2.0, label=_name(curve))
    axes.set_title(title)
    axes.set_xlabel("step")
    axes.set_ylabel(label)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    _limit(axes, [curve[metric]["mean"] for curve in curves])
    if metric == "held_out_accuracy":
        axes.axhline(0.5, color="#8a8a8a", linewidth=1.2, linestyle=(0, (1, 2)))
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, 0.0), min(high, 1.0))


def _limit(axes: Any, means: Sequence[Sequence[float]]) -> None:
    """Fit the axis to the means: at a small epsilon single seeds may go far beyond them."""
    # Where the means themselves lie far apart, as debiased losses do, differences near 0 stay
    # visible on a logarithmic axis.
    values = np.concatenate([np.asarray(mean, dtype=float) for mean in means] or [np.zeros(0)])
    if not values.size:
        return
    room = max(_OVER * float(np.ptp(values)), 0.01)
    axes.set_ylim(float(values.min()) - room, float(values.max()) + room)
    if np.ptp(values) > _FAR:
        axes.set_yscale("symlog", linthresh=1.0)
