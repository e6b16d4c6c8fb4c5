"""Draws the figures of the documents from the JSON in benchmarks/results.

python benchmarks/utility/figures.py
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[2]
INK, BLUE, ORANGE, GREEN, GRAY = "#222222", "#1f5fa8", "#c2540a", "#2b7a4b", "#8a8a8a"
STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": GRAY,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "figure.facecolor": "white",
    "font.family": "sans-serif",
    "font.size": 10,
    "grid.color": "#e6e6e6",
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "sordino",  # the same numbers give the same file
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def calibration(found: dict[str, Any]) -> Figure:
    """Return the calibration slopes of the debiased and of the plain fit."""
    figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    rows = found["results"]
    epsilons = [row["epsilon"] for row in rows]
    axes.axhline(1.0, color=INK, linewidth=1)
    axes.plot(
        epsilons, [row["plain_in_theory"] for row in rows], color=ORANGE, linestyle="--",
        label="plain logistic regression, theory",
    )  # fmt: skip
    for name, color, mark, label in (
        ("plain", ORANGE, "s", "plain logistic regression"),
        ("debiased", BLUE, "o", "sordino"),
    ):
        means = [row[name] for row in rows]
        spread = [2 * row[f"{name}_standard_deviation"] for row in rows]
        axes.errorbar(
            epsilons, means, yerr=spread, color=color, marker=mark, linestyle="none", capsize=3,
            label=label,
        )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="ε per label", ylabel="calibration slope")
    axes.set_xticks(epsilons, [f"{value:g}" for value in epsilons])
    axes.set_yticks([0.8, 1, 2, 5, 10, 20], ["0.8", "1 (calibrated)", "2", "5", "10", "20"])
    axes.minorticks_off()
    axes.set_title(
        f"Is the reward on the right scale? n = {found['n']:,}, d = {found['dimension']}"
    )
    axes.legend()
    return figure


def hard_instance(found: dict[str, Any]) -> Figure:
    """Return regret between the two bounds, one panel an epsilon."""
    curves = [
        one
        for one in found["results"]
        if one["contexts"] == 4 and one["epsilon"] in {0.5, 1.0, 2.0}
    ]
    figure, panels = plt.subplots(
        1, len(curves), figsize=(10.0, 4.2), sharey=True, layout="constrained"
    )
    for axes, curve in zip(panels, curves, strict=True):
        _panel(axes, curve, found["scales"])
    panels[0].set_ylabel("KL-regularized regret")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    first = curves[0]
    figure.suptitle(
        f"Hard instance: {first['contexts']} contexts, concentrability "
        f"{first['concentrability']:g}, temperature {found['temperature']:g}",
        fontsize=11,
    )
    return figure


def _panel(axes: Axes, curve: dict[str, Any], scales: list[float]) -> None:
    """Draw one epsilon."""
    sizes = [row["n"] for row in curve["rows"]]
    lower, upper = ([row[name] for row in curve["rows"]] for name in ("lower", "upper"))
    axes.fill_between(sizes, lower, upper, color="#f1f4f8")
    axes.plot(sizes, upper, color=INK, linestyle="--", label="proved: pessimism loses at most")
    for scale, color, mark, label in (
        (1.0, BLUE, "o", "pessimistic, proved bonus"),
        (0.3, GREEN, "^", "pessimistic, 0.3 of it"),
        (0.0, ORANGE, "s", "Gibbs, no bonus"),
    ):
        at = scales.index(scale)
        regret = [row["regret"][at] for row in curve["rows"]]
        axes.plot(sizes, regret, color=color, marker=mark, markersize=5, label=label)
    axes.plot(sizes, lower, color=INK, linestyle=":", label="proved: nobody loses less")
    shape = [row["shape"] for row in curve["rows"]]
    axes.plot(sizes, shape, color=GRAY, linestyle="-.", label="shape C·S/(n(e^ε − 1)²)")
    axes.set(xscale="log", yscale="log", xlabel="comparisons n", title=f"ε = {curve['epsilon']:g}")
    axes.minorticks_off()


def central_slope(found: dict[str, Any]) -> Figure:
    """Return what privacy adds to the error, and what the judgments themselves leave open."""
    figure, axes = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
    sizes = [row["n"] for row in found["rows"]]
    for part, color, mark, line, label in (
        ("randomized_response", ORANGE, "s", "-", "privacy: randomized response"),
        ("judgments", INK, "", "--", "judgments: no privacy, to the truth"),
        ("record", GREEN, "^", "-", "privacy: one record, zero-out"),
        ("label", BLUE, "o", "-", "privacy: one label"),
    ):
        means = [row[part] for row in found["rows"]]
        spread = [2 * row[f"{part}_standard_error"] for row in found["rows"]]
        axes.errorbar(
            sizes, means, yerr=spread, color=color, marker=mark, linestyle=line, markersize=5,
            label=f"{label} (slope −{-found['slopes'][part]:.2f})",
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set(yscale="log", xlabel="comparisons n", ylabel="distance of the weights")
    axes.set_yticks([0.01, 0.1, 1], ["0.01", "0.1", "1"])
    axes.minorticks_off()
    axes.set_title(
        "A curator's noise fades as 1/n, that of coins as 1/√n: "
        f"ε = {found['epsilon']:g}, d = {found['dimension']}"
    )
    axes.legend()
    return figure


def best_of_n(found: dict[str, Any]) -> Figure:
    """Return what is chosen among many answers by epsilon, and requests beside one release."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.6, 5.0), layout="constrained")
    plain = next(row for row in found["rows"] if row["epsilon"] is None)
    left.axhspan(*plain["preference"]["interval"], color="#f1f4f8")
    left.axhline(plain["preference"]["mean"], color=INK, linewidth=1, label="without privacy")
    left.axhline(found["uniform"]["mean"], color=INK, linestyle=":", label="any answer (SFT)")
    ways = dict.fromkeys((row["unit"], row["noise"]) for row in found["rows"])
    del ways["none", "none"]
    styles = zip((BLUE, ORANGE, GREEN, GRAY, "#6b3fa0", "#b0307a"), "sodv^P", strict=True)
    for place, ((unit, noise), (color, mark)) in enumerate(zip(ways, styles, strict=True)):
        rows = [row for row in found["rows"] if (row["unit"], row["noise"]) == (unit, noise)]
        shift = 1.05 ** (place - 2.5)  # so that bars do not cover each other
        _bars(
            left, [row["epsilon"] * shift for row in rows], [row["preference"] for row in rows],
            color=color, marker=mark, label=f"{unit}: {noise}",
        )  # fmt: skip
    epsilons = list(dict.fromkeys(row["epsilon"] for row in found["rows"] if row["epsilon"]))
    left.set(xscale="log", xlabel="ε", ylabel="preference of what is chosen", ylim=(0.05, 0.65))
    left.set_xticks(epsilons, [f"{one:g}" for one in epsilons])
    left.set_title("Chosen among 57 answers, temperature .5")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=2, fontsize=8)
    for curve, color, mark in zip(
        found["crossover"], (GRAY, GREEN, ORANGE, BLUE), "ds^o", strict=True
    ):
        requests = curve["requests"]
        _bars(
            right, requests, curve["withheld"], color=color, marker=mark,
            label=f"{curve['n']:,} judgments, withheld",
        )  # fmt: skip
        right.axhline(curve["release"]["mean"], color=color, linestyle="--", linewidth=1)
    right.plot([], [], color=GRAY, linestyle="--", label="one release, any number of requests")
    right.set(xscale="log", xlabel="requests at ε = 1 in total", ylim=(0.05, 0.65))
    right.set_title("Withheld, or one release; temperature .02")
    handles, labels = right.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower right", fontsize=8)
    for axes in (left, right):
        axes.minorticks_off()
    return figure


def _bars(axes: Axes, places: list[float], rows: list[dict[str, Any]], **style: Any) -> None:
    """Draw means with their intervals."""
    means = [row["mean"] for row in rows]
    ends = [[abs(row["interval"][end] - row["mean"]) for row in rows] for end in (0, 1)]
    axes.errorbar(places, means, yerr=ends, capsize=2, markersize=4, linewidth=1, **style)


def write(source: str, draw: Callable[[dict[str, Any]], Figure]) -> None:
    """Write the figure that a function draws from benchmarks/results, under the function's name."""
    numbers = ROOT / "benchmarks" / "results" / f"{source}.json"
    target = ROOT / "docs" / "figures" / f"{draw.__name__}.svg"
    target.parent.mkdir(exist_ok=True)
    with mpl.rc_context(STYLE):
        draw(json.loads(numbers.read_text("utf-8"))).savefig(target, metadata={"Date": None})


def main() -> None:
    """Write every figure."""
    for draw in (calibration, hard_instance, central_slope, best_of_n):
        write(draw.__name__, draw)


if __name__ == "__main__":
    main()
