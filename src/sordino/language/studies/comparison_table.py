"""Runs of a comparison as a table: a row for each method and epsilon, with intervals over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.special import stdtrit

from sordino.privacy.guarantee import float_from_json, float_to_json, never_less

__all__ = [
    "ComparisonRun",
    "describe_cost",
    "describe_share",
    "learning_curves",
    "markdown_table",
    "summary_rows",
]

_LEVEL = 0.975
_NAMES = {"reference": "reference", "dpo": "DPO", "rebel": "reward, then REBEL"}


@dataclass(frozen=True, kw_only=True)
class ComparisonRun:
    """One policy that was trained and compared.

    Attributes:
        method: ``"reference"``, ``"dpo"`` or ``"rebel"``.
        labels: ``"label-free"``, ``"non-private"``, ``"epsilon=…"``, or ``"central, epsilon=…"``
            for raw judgments and a curator's noise.
        seed: Of its coins, training and draws.
        win: As ``WinRate.to_dict`` gives it.
        curve: Loss and held-out metrics by step.
    """

    method: str
    labels: str
    seed: int
    win: Mapping[str, Any]
    curve: Sequence[Mapping[str, float]] = field(default_factory=tuple)

    @property
    def name(self) -> str:
        """Return what a file of this run is called."""
        return f"{self.method}-{self.labels}-{self.seed}"

    def to_dict(self) -> dict[str, Any]:
        """Return the run as JSON holds it."""
        return asdict(self)


def summary_rows(
    runs: Iterable[ComparisonRun], releases: Mapping[str, Sequence[float]] = MappingProxyType({})
) -> list[dict[str, Any]]:
    """Return a row for each method and kind of labels, in the order of their first run.

    Where there are several seeds the interval is over seeds: over coins, training and draws, on
    the same held-out prompts. A single run has the interval of its judge, over prompts.

    Every seed has a release of its own, so a row about several of them costs their sum.

    Args:
        runs: Of one comparison.
        releases: The epsilon of each release behind a kind of labels; none where it is missing.
    """
    groups: dict[tuple[str, str], list[ComparisonRun]] = {}
    for run in runs:
        groups.setdefault((run.method, run.labels), []).append(run)
    return [
        {**_row(method, labels, group), **_costs(releases.get(labels, ()))}
        for (method, labels), group in groups.items()
    ]


def _costs(epsilons: Sequence[float]) -> dict[str, Any]:
    """Return what one label paid for a row: once for each release, and all of them together."""
    return {
        "unit": "label",
        "delta": 0.0,
        "releases": len(epsilons),
        "epsilon_of_one_release": float_to_json(max(epsilons, default=0.0)),
        "epsilon_of_all_releases": float_to_json(math.fsum(epsilons)),
    }


def _row(method: str, labels: str, runs: Sequence[ComparisonRun]) -> dict[str, Any]:
    """Return the row of one group."""
    wins = [run.win for run in runs]
    matched = [win["length_matched"] for win in wins if win["length_matched"]]
    accuracies = [run.curve[-1].get("held_out_accuracy") for run in runs if run.curve]
    known = [value for value in accuracies if value is not None]
    return {
        "method": method,
        "labels": labels,
        "seeds": len(runs),
        "win_rate": _share(wins),
        "length_matched": _share(matched) if matched else None,
        "mean_length": _mean([win["mean_length"] for win in wins]),
        "reference_length": _mean([win["reference_length"] for win in wins]),
        "held_out_accuracy": _mean(known) if known else None,
        "comparisons": sum(win["n"] for win in wins),
    }


def _share(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a mean share with its interval.

    Source:
        Student's interval for the mean of independent runs; with one run, its own.
    """
    values = [float(each["mean"]) for each in found]
    mean, count = _mean(values), len(values)
    if count == 1:
        low, high = float(found[0]["low"]), float(found[0]["high"])
    else:
        reach = stdtrit(count - 1, _LEVEL) * float(np.std(values, ddof=1)) / math.sqrt(count)
        low, high = max(mean - reach, 0.0), min(mean + reach, 1.0)
    return {"mean": mean, "low": low, "high": high, "values": values}


def _mean(values: Sequence[float]) -> float:
    """Return the mean."""
    return float(np.mean(values))


def markdown_table(rows: Sequence[Mapping[str, Any]], notes: Sequence[str]) -> str:
    """Return rows as a table that people read, with notes below it."""
    head = [
        "method",
        "labels, one release",
        "win rate [95 %]",
        "at equal length",
        "held-out accuracy",
        "seeds",
        "ε per label, all releases of the row",
    ]
    lines = [_line(head), _line(["---"] * len(head))]
    for row in rows:
        accuracy = row["held_out_accuracy"]
        lines.append(
            _line(
                [
                    _NAMES[row["method"]],
                    row["labels"],
                    describe_share(row["win_rate"]),
                    describe_share(row["length_matched"]),
                    "" if accuracy is None else f"{accuracy:.3f}",
                    str(row["seeds"]),
                    describe_cost(row),
                ]
            )
        )
    return "\n".join([*lines, "", *(f"- {note}" for note in notes)]) + "\n"


def describe_cost(row: Mapping[str, Any]) -> str:
    """Return what all releases of a row cost one label together, or another unit that is said."""
    cost = never_less(float_from_json(row["epsilon_of_all_releases"]))
    if row["unit"] == "label":
        return cost
    return f"{cost} per {row['unit']}, δ={never_less(row['delta'])}"


def describe_share(share: Mapping[str, Any] | None) -> str:
    """Return a share with its interval, or that it is not known."""
    if share is None:
        return "not known"
    return f"{share['mean']:.3f} [{share['low']:.3f}, {share['high']:.3f}]"


def _line(cells: Sequence[str]) -> str:
    """Return one line of a table."""
    return f"| {' | '.join(cells)} |"


def learning_curves(runs: Iterable[ComparisonRun]) -> list[dict[str, Any]]:
    """Return the mean training curve of each method and kind of labels, with every seed's own.

    Args:
        runs: Of one comparison; those without a curve are left out.
    """
    groups: dict[tuple[str, str], list[ComparisonRun]] = {}
    for run in runs:
        if run.curve:
            groups.setdefault((run.method, run.labels), []).append(run)
    return [
        {
            "method": method,
            "labels": labels,
            **{name: _curve(group, name) for name in ("loss", "held_out_accuracy")},
        }
        for (method, labels), group in groups.items()
    ]


def _curve(runs: Sequence[ComparisonRun], name: str) -> dict[str, list[Any]]:
    """Return steps, the mean over seeds, and each seed's values of one metric."""
    known = [{row["step"]: row[name] for row in run.curve if name in row} for run in runs]
    steps = sorted(set.intersection(*map(set, known)))
    values = [[by_step[step] for step in steps] for by_step in known]
    return {"steps": steps, "mean": np.mean(values, axis=0).tolist(), "seeds": values}
