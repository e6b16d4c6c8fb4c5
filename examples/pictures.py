"""How the pictures of the examples look, and what both examples do alike."""  # noqa: INP001

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from scipy.stats import t as student

import sordino

INK, BLUE, ORANGE, GREEN, GRAY = "#222222", "#1f5fa8", "#c2540a", "#2b7a4b", "#8a8a8a"
STYLE = {
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
plt.rcParams.update(STYLE)


def new_figure(width: float, height: float) -> tuple[Figure, plt.Axes]:
    """Return an empty picture, sizes in inches."""
    figure, axes = plt.subplots(figsize=(width, height), layout="constrained")
    return figure, axes


def save(figure: Figure, path: Path) -> None:
    """Write a picture; without a date, so that the same numbers give the same file."""
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def new_folder(path: Path) -> Path:
    """Return an empty folder, made now; a release is never written over."""
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        raise SystemExit(f"--out {path}: exists. Nothing was spent. Name a new folder.") from None
    return path


def write_numbers(numbers: Any, path: Path) -> None:
    """Write numbers as JSON holds them."""
    text = json.dumps(numbers, indent=2, default=lambda array: np.round(array, 5).tolist())
    path.write_text(text + "\n", encoding="utf-8")


def budget(epsilon: float, delta: float) -> sordino.Guarantee:
    """Return the limit on all that is spent: one judgment is what is hidden."""
    return sordino.Guarantee(
        epsilon, delta=delta, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
    )


def half_width(values: Any) -> Any:
    """Return half of a 95% interval of the mean over the first axis; 0 for a single value."""
    count = len(values)
    if count < 2:  # noqa: PLR2004 (one value has no spread)
        return np.zeros(np.shape(values)[1:])
    return student.ppf(0.975, count - 1) * np.std(values, axis=0, ddof=1) / np.sqrt(count)


def certified(reward: sordino.RewardModel, ledger: sordino.Ledger, folder: Path) -> None:
    """Write and print what was promised: the certificate, and a page for people.

    Args:
        reward: What was released.
        ledger: What it cost.
        folder: Gets ``certificate.json`` and ``report.html``.
    """
    # A seed was asked for by name: the certificate then says "simulated", for study only.
    proof = sordino.certify(reward, ledger, for_study=reward.guarantee.simulated)
    write_numbers(proof.to_dict(), folder / "certificate.json")
    sordino.write_report(folder / "report.html", proof, ledger)
    print(f"certificate: {proof}")  # noqa: T201
