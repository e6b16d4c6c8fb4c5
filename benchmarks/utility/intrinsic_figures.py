"""Draws the figures of docs/intrinsic.md from the JSON in benchmarks/results.

python benchmarks/utility/intrinsic_figures.py
"""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
from figures import BLUE, GRAY, GREEN, INK, ORANGE, write
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Rows = list[dict[str, Any]]
RED = "#b3261e"
VARIED = {"n": "records n", "penalty": "pessimism β0", "temperature": "temperature η"}


def line(axes: Axes, xs: Any, points: Any, **style: Any) -> None:
    """Draw means with their intervals as a light band."""
    means, halves = zip(*points, strict=True)
    axes.plot(xs, means, markersize=4, **style)
    low = [mean - half for mean, half in points]
    high = [mean + half for mean, half in points]
    axes.fill_between(xs, low, high, color=style["color"], alpha=0.12, linewidth=0)
    del halves


def intrinsic_epsilon(found: dict[str, Any]) -> Figure:
    """Return ε of one draw against records, pessimism and temperature, ours and published."""
    figure, panels = plt.subplots(2, 3, figsize=(10.4, 7.4), sharey="row", layout="constrained")
    curves = (
        ("published", ORANGE, "--", "published (Theorem 1, 2): of this log alone, confidential"),
        ("published_appendix", RED, "-.", "Theorem 2 as in the appendix: false, below a loss"),
        ("true", INK, ":", "largest loss of the published policy on this log"),
        ("ours", BLUE, "-", "ours, its policy as strongly regularized: of every log, public"),
    )
    base = found["base"]
    for row, (kind, title) in zip(
        panels, (("multi_armed", "Ten arms, balanced log"), ("linear", "Linear, on a line")),
        strict=True,
    ):  # fmt: skip
        for axes, (varied, label) in zip(row, VARIED.items(), strict=True):
            rows: Rows = found[kind][varied]
            for key, color, dashes, name in curves:
                if key in rows[0]:
                    axes.plot(
                        [one[varied] for one in rows], [one[key] for one in rows], color=color,
                        linestyle=dashes, linewidth=1.8, label=name,
                    )  # fmt: skip
            axes.set(yscale="log", xlabel=label)
            if varied != "penalty":
                axes.set_xscale("log")
            others = {
                "n": "n = {n:,}",
                "penalty": "β0 = {penalty:g}",
                "temperature": "η = {temperature:g}",
            }
            kept = ", ".join(text.format(**base) for key, text in others.items() if key != varied)
            axes.set_title(f"{title}: {kept}", fontsize=9)
        row[0].set_ylabel("ε of one draw")
    handles, labels = panels[1][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9)
    return figure


def intrinsic_published(found: dict[str, Any]) -> Figure:
    """Return two published certificates below losses that exist."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.9), layout="constrained")
    rows: Rows = found["theorem_1_approximate"]
    sizes = [row["n"] for row in rows]
    truth = [row["true_delta"] for row in rows]
    claim = [row["published_delta"] for row in rows]
    left.plot(sizes, truth, color=INK, marker="o", markersize=4, label="δ that exists")
    left.plot(sizes, claim, color=ORANGE, marker="s", markersize=4, label="δ of Theorem 1")
    false = [one > other for one, other in zip(truth, claim, strict=True)]
    left.fill_between(sizes, claim, truth, where=false, color=RED, alpha=0.1)
    left.text(sizes[-1], 0.055, "false here ", color=RED, ha="right")
    left.set(xscale="log", yscale="log", xlabel="pulls of the first arm", ylabel="δ at ε = 4.1")
    left.set_title("Theorem 1, approximate part")
    left.set_ylim(top=3)
    left.legend(loc="upper left")
    rows = found["theorem_3"]
    sizes = [row["n"] for row in rows]
    for key, color, mark, label in (
        ("ours", BLUE, "o", "ours"),
        ("true", INK, "", "loss that exists"),
        ("published", ORANGE, "s", "Theorem 3"),
    ):
        right.plot(
            sizes, [row[key] for row in rows], color=color, marker=mark, markersize=4, label=label,
            linestyle=":" if key == "true" else "-",
        )  # fmt: skip
    right.fill_between(
        sizes, [row["published"] for row in rows], [row["true"] for row in rows], color=RED,
        alpha=0.1,
    )  # fmt: skip
    right.text(sizes[-1], 0.6, "false here ", color=RED, ha="right")
    right.set(xscale="log", ylim=(0, 1.25), xlabel="pairs n", ylabel="ε of one flipped label")
    right.set_title("Theorem 3, preferences")
    right.legend(loc="lower left", bbox_to_anchor=(0.0, 0.3))
    return figure


def intrinsic_simulated(found: dict[str, Any]) -> Figure:
    """Return the share of the gap that ten draws close, against records and ε."""
    figure, panels = plt.subplots(2, 2, figsize=(9.6, 7.0), sharey=True, layout="constrained")
    colors = dict(zip(found["true_means"], (BLUE, GREEN, ORANGE, GRAY), strict=True))
    for axes, key, varied in (
        (panels[0][0], "sizes", "n"),
        (panels[0][1], "epsilons", "epsilon"),
    ):
        for name, color in colors.items():
            for calibration, dashes in (("default", "--"), ("records", "-")):
                rows = [
                    row
                    for row in found[key]
                    if (row["means"], row["calibration"]) == (name, calibration)
                ]
                line(
                    axes, [row[varied] for row in rows], [row["policy"] for row in rows],
                    color=color, linestyle=dashes, marker="o",
                    label=name if calibration == "records" else None,
                )  # fmt: skip
        axes.axhline(0.5, color=INK, linewidth=0.8, linestyle=":")
        axes.set(xscale="log")
    panels[0][0].set(xlabel="records n (ε = 1)", ylabel="share of the gap closed")
    panels[0][0].set_title("Uniform logging: solid with a guess of n, dashed without")
    panels[0][1].set(xlabel="ε (n = 10,000)", title="The same against ε")
    for axes, n in zip(panels[1], (10_000, 100_000), strict=True):
        _calibrations(axes, found, colors, n)
    panels[1][0].set_ylabel("share of the gap closed")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=4, title="true means of ten arms"
    )
    return figure


def _calibrations(axes: Axes, found: dict[str, Any], colors: dict[str, str], n: int) -> None:
    """Draw what other calibrations give where logging is skewed."""
    shown = {
        "default": "5 %",
        "temperature 0.01": "1 %",
        "temperature 1/2 standard error": "½ s.e.",
        "temperature 1/5 standard error": "⅕ s.e.",
        "records": "n/k",
        "records, center 0.01": "n/k,\nlow center",
    }
    for shift, (name, color) in enumerate(colors.items()):
        rows = {
            row["calibration"]: row["policy"]
            for row in found["skewed"]
            if (row["means"], row["n"]) == (name, n)
        }
        points = [rows[key] for key in shown]
        means, halves = zip(*points, strict=True)
        axes.errorbar(
            [at + 0.13 * (shift - 1.5) for at in range(len(shown))], means, yerr=halves,
            color=color, marker="o", markersize=5,
            linestyle="none", capsize=3,
        )  # fmt: skip
    axes.axhline(0.0, color=INK, linewidth=0.8)
    axes.set_xticks(range(len(shown)), shown.values())
    axes.set_title(f"Skewed logging, n = {n:,}, ε = 1")
    axes.set_xlabel("temperature, or made-up pulls of an arm")


def intrinsic_real(found: dict[str, Any]) -> Figure:
    """Return importance-weighted clicks against ε, one panel a number of draws."""
    figure, panels = plt.subplots(1, 3, figsize=(10.4, 4.4), sharey=True, layout="constrained")
    rows: Rows = found["results"]
    fixed = {row["policy"]: row for row in rows if "draws" not in row}
    labels_of = {
        "default": "default",
        "records, center 0": "guess of n, center 0",
        "records": "guess of n, center .5",
        "linear, records": "linear, guess of n",
    }
    for axes, draws in zip(panels, (1, 10, 100), strict=True):
        for name, color, mark in (
            ("default", GRAY, "s"),
            ("records, center 0", BLUE, "o"),
            ("records", RED, "v"),
            ("linear, records", GREEN, "^"),
        ):
            some = [row for row in rows if row["policy"] == name and row["draws"] == draws]
            xs = [row["epsilon"] for row in some]
            axes.plot(
                xs, [row["clicks_per_1000"] for row in some], color=color, marker=mark,
                markersize=5, label=labels_of[name],
            )  # fmt: skip
            if name in {"records", "records, center 0"}:  # those of the others are like uniform's
                low, high = zip(*(row["interval_95"] for row in some), strict=True)
                axes.fill_between(xs, low, high, color=color, alpha=0.1, linewidth=0)
        axes.axhline(fixed["uniform"]["clicks_per_1000"], color=INK, linestyle=":", label="uniform")
        best = fixed["greedy"]
        axes.errorbar(
            [16], [best["clicks_per_1000"]],
            yerr=[
                [best["clicks_per_1000"] - best["interval_95"][0]],
                [best["interval_95"][1] - best["clicks_per_1000"]],
            ],
            color=ORANGE, marker="D", markersize=5, capsize=3, linestyle="none",
            label="greedy, not private",
        )  # fmt: skip
        axes.set(xscale="log", xlabel="ε of all draws together")
        axes.set_xticks([0.5, 1, 2, 4, 8, 16], ["0.5", "1", "2", "4", "8", "∞"])
        axes.minorticks_off()
        axes.set_title(f"{draws} draw{'s' if draws > 1 else ''}")
    panels[0].set_ylabel("clicks per 1,000, importance-weighted")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=9)
    return figure


def intrinsic_against_release(found: dict[str, Any]) -> Figure:
    """Return shares against the number of draws, beside those of one noisy release."""
    figure, panels = plt.subplots(2, 3, figsize=(10.4, 7.0), layout="constrained")
    arms, draws = found["multi_armed"], found["draws"]
    for axes, one in zip(panels[0], arms[:3], strict=True):
        _against(axes, draws, one["share"])
        axes.set_title(f"Ten arms, one better by .2, n = {one['n']:,}")
    for axes, one in zip(panels[1][:1], arms[:1], strict=True):
        _against(axes, draws, one["objective"])
        axes.set_title(f"n = {one['n']:,}: mean less {found['wanted_temperature']:g} KL")
    for axes, one in zip(panels[1][1:], (found["linear"][0], found["linear"][2]), strict=True):
        _against(axes, draws, one["share"])
        axes.set_title(f"Linear, n = {one['n']:,}, d = 25, δ = {one['delta']:g}")
    for row in panels:
        row[0].set_ylabel("share of what can be had")
    handles, labels = list[Any](), list[str]()
    for axes in panels.flat:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            if label not in labels:
                handles, labels = [*handles, handle], [*labels, label]
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)
    return figure


def _against(axes: Axes, draws: list[int], shares: dict[str, Any]) -> None:
    """Draw one panel."""
    for name, color, dashes, label in (
        ("one arm", GREEN, "-.", "one arm drawn once, used for all"),
        ("sums", ORANGE, "--", "noisy sums once"),
        ("means", "#7a4fa3", ":", "noisy sums and counts once"),
        ("weights", ORANGE, "-", "noisy weights once"),
        ("moments", "#7a4fa3", (0, (4, 1)), "noisy moments once"),
        ("intrinsic", BLUE, "-", "intrinsic: each draw spends"),
    ):
        if name not in shares:
            continue
        points = shares[name]
        several = isinstance(points[0], list)
        line(
            axes, draws, points if several else [points] * len(draws), color=color,
            linestyle=dashes, label=label, marker="o" if several else "",
        )  # fmt: skip
    axes.set(xscale="log", xlabel="draws T", ylim=(-0.02, 1.05))


def main() -> None:
    """Write every figure."""
    for source, draw in (
        ("intrinsic_epsilon", intrinsic_epsilon),
        ("intrinsic_epsilon", intrinsic_published),
        ("intrinsic_simulated", intrinsic_simulated),
        ("intrinsic_real", intrinsic_real),
        ("intrinsic_against_release", intrinsic_against_release),
    ):
        write(source, draw)


if __name__ == "__main__":
    main()
