"""Draws the figures of docs/policy_optimization.md from the JSON in benchmarks/results.

python benchmarks/utility/policy_figures.py
"""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from figures import BLUE, GRAY, GREEN, INK, ORANGE, write
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
from policy_optimization import played

from sordino.environments.linear_worlds import Dosing

Rows = list[dict[str, Any]]
PURPLE = "#7a4fa3"
ORACLES = (
    ("gaussian-statistics", BLUE, "o", "Gaussian statistics"),
    ("adaptive-statistics", GREEN, "^", "adaptive statistics"),
    ("exponential-ball", PURPLE, "D", "exponential mechanism"),
    ("one-pass-descent", ORANGE, "s", "one-pass descent"),
)
EPSILONS = ((0.5, ORANGE, "s"), (1.0, BLUE, "o"), (5.0, GREEN, "^"), ("inf", INK, "D"))


def only(rows: Rows, **wanted: Any) -> Rows:
    """Return the rows that have these values."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def curve(axes: Axes, rows: Rows, x: str, **style: Any) -> None:
    """Draw means against a column, with their 95 % intervals as a light band."""
    xs = np.array([row[x] for row in rows], dtype=float)
    means = np.array([row["mean"] for row in rows])
    halves = np.array([row.get("half_width", 0.0) for row in rows])
    axes.plot(xs, means, markersize=4.5, **style)
    low = np.maximum(means - halves, means / 20)
    axes.fill_between(xs, low, means + halves, color=style["color"], alpha=0.13, linewidth=0)


def shown(epsilon: float | str) -> str:
    """Return an epsilon as a legend has it."""
    return "not private" if epsilon == "inf" else f"ε = {epsilon:g}"


def policy_oracles(found: dict[str, Any]) -> Figure:
    """Return suboptimality against users (ε = 1) and against ε (20,000 users), by oracle."""
    figure, panels = plt.subplots(2, 2, figsize=(9.6, 7.2), sharey="row", layout="constrained")
    rows = only(found["oracles"], reward_noise=0.0)
    for column, update in enumerate(("npg", "rebel")):
        for axes, fixed, x in (
            (panels[0][column], {"epsilon": 1.0}, "users"),
            (panels[1][column], {"users": 20_000}, "epsilon"),
        ):
            for oracle, color, mark, label in ORACLES:
                some = only(rows, update=update, oracle=oracle, **fixed)
                private = [row for row in some if row["epsilon"] != "inf"]
                curve(axes, private, x, color=color, marker=mark, label=label)
            free = only(rows, update=update, oracle=ORACLES[0][0], **fixed | {"epsilon": "inf"})
            level = free[-1]["mean"]
            axes.axhline(level, color=INK, linestyle=":", label="not private")
            axes.set(xscale="log", yscale="log", xlabel=x if x == "users" else "ε of one person")
            axes.set_title(f"{update.upper()}, " + ("ε = 1" if x == "users" else "20,000 users"))
        _users(panels[0][column], (5_000, 20_000, 80_000))
        panels[1][column].set_xticks([0.5, 1, 5], ["0.5", "1", "5"])
        panels[1][column].minorticks_off()
    for row in panels:
        row[0].set_ylabel("suboptimality (uniform policy: .626)")
        _plain(row[0])
    _legend(figure, panels[0][0], 5)
    return figure


def policy_exploration(found: dict[str, Any]) -> Figure:
    """Return what privacy adds by users, and what a fixed exploration saves."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.2), layout="constrained")
    for one, color, mark in zip(found["slopes"][2:], (BLUE, GREEN), ("o", "^"), strict=True):
        sizes, name = one["users"], one["update"].upper()
        added = [{"users": n, **row} for n, row in zip(sizes, one["added_by_privacy"], strict=True)]
        free = [{"users": n, **row} for n, row in zip(sizes, one["non_private"], strict=True)]
        label = f"{name}: ε = 1 adds (slope {one['slope_added']:.2f})".replace("-", "−")
        curve(left, added, "users", color=color, marker=mark, label=label)
        label = f"{name}: without privacy ({one['slope_non_private']:.2f})".replace("-", "−")
        curve(left, free, "users", color=color, linestyle="--", label=label)
    left.set(xscale="log", yscale="log", xlabel="users", ylabel="suboptimality")
    left.set_title("Privacy is a lower-order term (T = √N/8)")
    left.legend(fontsize=9)
    for (update, reference), color, dashes in zip(
        (("npg", "uniform"), ("rebel", "uniform"), ("npg", "current"), ("rebel", "current")),
        (BLUE, GREEN, BLUE, GREEN), ("-", "-", "--", "--"), strict=True,
    ):  # fmt: skip
        rows = only(found["exploration"], update=update, exploration=reference)
        for row in rows:
            row["epsilon"] = 16.0 if row["epsilon"] == "inf" else row["epsilon"]
        label = f"{update.upper()}, {'the current policy' if reference == 'current' else reference}"
        curve(right, rows, "epsilon", color=color, linestyle=dashes, marker="o", label=label)
    right.set(xscale="log", yscale="log", xlabel="ε of one person")
    right.set_xticks([0.5, 1, 5, 16], ["0.5", "1", "5", "∞"])
    right.minorticks_off()
    _plain(right)
    right.set_title("What explores, 20,000 users, with reward noise")
    right.legend(fontsize=9)
    return figure


def policy_dimensions(found: dict[str, Any]) -> Figure:
    """Return the share of the start's suboptimality that is left, by number of features."""
    figure, panels = plt.subplots(1, 3, figsize=(10.8, 4.0), sharey=True, layout="constrained")
    cases = ((20_000, 1.0), (20_000, 5.0), (400_000, 1.0))
    for axes, (users, epsilon) in zip(panels, cases, strict=True):
        rows = only(found["dimensions"], users=users)
        for oracle, color, mark, label in (ORACLES[0], ORACLES[3]):
            _shares(axes, only(rows, epsilon=epsilon, oracle=oracle),
                    color=color, marker=mark, label=label)  # fmt: skip
        _shares(
            axes, only(rows, epsilon="inf"), color=INK, marker="D", linestyle=":",
            label="not private",
        )  # fmt: skip
        axes.axhline(1.0, color=GRAY, linewidth=1)
        axes.set(xscale="log", xlabel="features d", title=f"ε = {epsilon:g}, {users:,} users")
        axes.set_xticks([8, 256, 2048], ["8", "256", "2,048"])
        axes.minorticks_off()
    panels[0].set_ylabel("suboptimality ÷ that of the uniform policy")
    panels[0].legend(fontsize=9)
    return figure


def _shares(axes: Axes, rows: Rows, **style: Any) -> None:
    """Draw suboptimality as a share of the start's."""
    parts = [
        {
            "features": row["features"],
            "mean": row["mean"] / row["uniform"],
            "half_width": row.get("half_width", 0.0) / row["uniform"],
        }
        for row in rows
    ]
    curve(axes, parts, "features", **style)


def policy_gradients(found: dict[str, Any]) -> Figure:
    """Return ‖∇J‖² of a drawn policy of PG, by number of batches and ε."""
    figure, panels = plt.subplots(1, 3, figsize=(10.4, 3.9), sharey=True, layout="constrained")
    for axes, users in zip(panels, (5_000, 20_000, 80_000), strict=True):
        for epsilon, color, mark in EPSILONS:
            rows = only(found["gradients"], users=users, epsilon=epsilon)
            curve(axes, rows, "batches", color=color, marker=mark, label=shown(epsilon))
        axes.set(xscale="log", yscale="log", xlabel="batches T", title=f"{users:,} users")
        axes.set_xticks([5, 20, 80], ["5", "20", "80"])
        axes.minorticks_off()
    panels[0].set_ylabel("‖∇J‖² of a drawn policy")
    _plain(panels[0])
    panels[0].legend(fontsize=9)
    return figure


def online_regret(found: dict[str, Any]) -> Figure:
    """Return regret against rounds by exploration, one panel an ε."""
    figure, panels = plt.subplots(1, 4, figsize=(11.4, 4.2), sharey=True, layout="constrained")
    rounds = np.array(found["rounds"], dtype=float)
    for axes, epsilon in zip(panels, (0.5, 1.0, 2.0, None), strict=True):
        for name, color, mark in (
            ("optimistic", BLUE, "o"), ("none", GREEN, "^"), ("symmetric", PURPLE, "D"),
            ("uniform", ORANGE, "s"),
        ):  # fmt: skip
            (one,) = only(found["family"], epsilon=epsilon, exploration=name)
            means, errors = np.array(one["regret"]), 1.96 * np.array(one["standard_error"])
            label = {"none": "no exploration"}.get(name, name)
            axes.plot(rounds, means, color=color, marker=mark, markersize=4, label=label)
            axes.fill_between(
                rounds, means - errors, means + errors, color=color, alpha=0.13, linewidth=0
            )
        (best,) = only(found["family"], epsilon=epsilon, exploration="optimistic")
        axes.set(xscale="log", yscale="log", xlabel="rounds T")
        named = "not private" if epsilon is None else f"ε = {epsilon:g}"
        axes.set_title(f"{named}: last slope {best['slope']:.2f}")
        axes.set_xticks([512, 2048, 8192], ["512", "2,048", "8,192"])
        axes.minorticks_off()
    panels[0].set_ylabel("regret")
    _plain(panels[0])
    _legend(figure, panels[0], 4)
    return figure


def dosing_policies(_: dict[str, Any]) -> Figure:
    """Return what three patients would gain by dose, and the doses of private policies."""
    world = Dosing()
    patients = np.array([[0.1, 0.8, 0.8], [0.6, 0.5, 0.5], [0.95, 0.2, 0.2]])
    features, doses = world.features(patients), world.doses
    gains = world.mean_rewards(features)
    runs = {
        epsilon: played(world, update="npg", users=20_000, epsilon=epsilon, seed=0).policy
        for epsilon in (0.5, 1.0, float("inf"))
    }
    figure, panels = plt.subplots(
        2, 3, figsize=(10.0, 5.6), sharex=True, sharey="row", layout="constrained"
    )
    for column, who in enumerate(("mildly ill, slow, old", "in between", "very ill, fast, young")):
        top, low = panels[0][column], panels[1][column]
        best = gains[column].argmax()
        top.plot(doses, gains[column], color=INK, marker="o", markersize=4)
        top.plot(doses[best], gains[column][best], color=ORANGE, marker="o", markersize=9)
        top.set_title(who)
        for place, (epsilon, policy) in enumerate(runs.items()):
            label = "not private" if epsilon == float("inf") else f"ε = {epsilon:g}"
            low.bar(
                doses + 0.06 * (place - 1), policy.probabilities(features)[column], width=0.055,
                color=(ORANGE, BLUE, INK)[place], label=label,
            )  # fmt: skip
        low.set(xlabel="dose, share of the largest")
    panels[0][0].set_ylabel("mean reward against half the dose")
    panels[1][0].set_ylabel("probability")
    panels[1][1].legend(fontsize=9)
    return figure


def _plain(axes: Axes) -> None:
    """Label a logarithmic axis with 1, 2, 5 and their tens, as numbers."""
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _users(axes: Axes, sizes: tuple[int, ...]) -> None:
    """Label numbers of users as people write them."""
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()


def _legend(figure: Figure, axes: Axes, columns: int) -> None:
    """Draw one legend for all panels below them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=9)


def main() -> None:
    """Write every figure."""
    for source, draw in (
        ("policy_optimization", policy_oracles),
        ("policy_optimization", policy_exploration),
        ("policy_optimization", policy_dimensions),
        ("policy_optimization", policy_gradients),
        ("online_regret", online_regret),
        ("online_regret", dosing_policies),
    ):
        write(source, draw)


if __name__ == "__main__":
    main()
