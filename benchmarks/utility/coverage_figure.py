"""Draws docs/figures/coverage_instance.svg from benchmarks/results/coverage_instance.json.

python benchmarks/utility/coverage_figure.py
"""

from __future__ import annotations

import json
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from figures import BLUE, GRAY, GREEN, INK, ORANGE, ROOT, STYLE
from matplotlib.figure import Figure


def coverage_instance(found: dict[str, Any]) -> Figure:
    """Return true values against the number of comparisons."""
    figure, axes = plt.subplots(figsize=(6.4, 4.8), layout="constrained")
    rows = found["results"]
    sizes = [row["n"] for row in rows]
    for name, dashes, label in (
        ("best", "--", "best"),
        ("uniform", ":", "reference (uniform)"),
        ("logging", "-.", "what made the log"),
    ):
        level = [row[name] for row in rows]
        color = INK if name == "best" else GRAY
        axes.plot(sizes, level, color=color, linestyle=dashes, label=label)
    curves = [("greedy", [row["greedy"] for row in rows], ORANGE, "s")]
    curves += [
        (
            f"pessimistic, {'proved radius' if scale == 1 else f'{scale:g} of it'}",
            [row["pessimistic"][at] for row in rows],
            color,
            mark,
        )
        for (at, scale), color, mark in zip(
            enumerate(found["scales"]), (BLUE, GREEN), ("o", "^"), strict=True
        )
    ]
    for label, points, color, mark in curves:
        means, widths = zip(*points, strict=True)
        axes.errorbar(
            sizes, means, yerr=widths, color=color, marker=mark, markersize=5, capsize=3,
            label=label,
        )  # fmt: skip
    axes.set(xscale="log", xlabel="comparisons n", ylabel="true mean reward")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.set_ylim(top=0.62)
    axes.set_title(
        f"Logs that hardly show the better candidates, ε = {found['setting']['epsilon']:g}"
    )
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def main() -> None:
    """Write the figure."""
    numbers = ROOT / "benchmarks" / "results" / "coverage_instance.json"
    target = ROOT / "docs" / "figures" / "coverage_instance.svg"
    with mpl.rc_context(STYLE):
        drawn = coverage_instance(json.loads(numbers.read_text("utf-8")))
        drawn.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main()
