"""Runs of a comparison as a table: a row for each method and epsilon, with intervals over seeds.

One file of pairs as three parts that share no prompt, chosen without looking at a label.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from sordino._validate import number
from sordino.errors import DataError, UsageError
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.records import Text, encoded
from sordino.privacy.guarantee import float_from_json, float_to_json, never_less

_LEVEL = 0.975
_NAMES = {"reference": "reference", "dpo": "DPO", "rebel": "reward, then REBEL"}


class ComparisonRun(NamedTuple):
    """One policy that was trained and compared."""

    method: str  # `"reference"`, `"dpo"` or `"rebel"`
    # `"label-free"`, `"non-private"`, `"epsilon=…"`, or `"central, epsilon=…"` for raw judgments
    # and a curator's noise.
    labels: str
    seed: int  # of its coins, training and draws
    win: Mapping[str, Any]  # as `WinRate.to_dict` gives it
    curve: Sequence[Mapping[str, float]] = ()  # loss and held-out metrics by step


def summary_rows(
    runs: Iterable[ComparisonRun], releases: Mapping[str, Sequence[float]] = MappingProxyType({})
) -> list[dict[str, Any]]:
    """Return a row for each method and kind of labels, in the order of their first run."""
    # Where there are several seeds the interval is over seeds: over coins, training and draws, on
    # the same held-out prompts. A single run has the interval of its judge, over prompts.
    # Every seed has a release of its own, so a row about several of them costs their sum.
    return [
        _row(method, labels, group, releases.get(labels, ()))
        for (method, labels), group in _grouped(runs).items()
    ]


def _grouped(runs: Iterable[ComparisonRun]) -> dict[tuple[str, str], list[ComparisonRun]]:
    groups: dict[tuple[str, str], list[ComparisonRun]] = {}
    for run in runs:
        groups.setdefault((run.method, run.labels), []).append(run)
    return groups


def _row(
    method: str, labels: str, runs: Sequence[ComparisonRun], epsilons: Sequence[float]
) -> dict[str, Any]:
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
        "mean_length": float(np.mean([win["mean_length"] for win in wins])),
        "reference_length": float(np.mean([win["reference_length"] for win in wins])),
        "held_out_accuracy": float(np.mean(known)) if known else None,
        "comparisons": sum(win["n"] for win in wins),
        "unit": "label",
        "delta": 0.0,
        "releases": len(epsilons),
        "epsilon_of_one_release": float_to_json(max(epsilons, default=0.0)),
        "epsilon_of_all_releases": float_to_json(math.fsum(epsilons)),
    }


def _share(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    # Source: Student's interval for the mean of independent runs; with one run, its own.
    values = [float(each["mean"]) for each in found]
    mean, count = float(np.mean(values)), len(values)
    if count == 1:
        low, high = float(found[0]["low"]), float(found[0]["high"])
    else:
        reach = stdtrit(count - 1, _LEVEL) * float(np.std(values, ddof=1)) / math.sqrt(count)
        low, high = max(mean - reach, 0.0), min(mean + reach, 1.0)
    return {"mean": mean, "low": low, "high": high, "values": values}


_HEAD = (
    *("method", "labels, one release", "win rate [95 %]", "at equal length", "held-out accuracy"),
    *("seeds", "ε per label, all releases of the row"),
)


def markdown_table(rows: Sequence[Mapping[str, Any]], notes: Sequence[str]) -> str:
    """Return rows as a table that people read, with notes below it."""
    lines = [f"| {' | '.join(_HEAD)} |", f"|{' --- |' * len(_HEAD)}"]
    for row in rows:
        accuracy = row["held_out_accuracy"]
        cells = [
            *(_NAMES[row["method"]], row["labels"]),
            *(describe_share(row["win_rate"]), describe_share(row["length_matched"])),
            *("" if accuracy is None else f"{accuracy:.3f}", str(row["seeds"]), describe_cost(row)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
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


def learning_curves(runs: Iterable[ComparisonRun]) -> list[dict[str, Any]]:
    """Return the mean training curve of each method and kind of labels, with every seed's own."""
    return [
        {
            "method": method,
            "labels": labels,
            **{name: _curve(group, name) for name in ("loss", "held_out_accuracy")},
        }
        for (method, labels), group in _grouped(run for run in runs if run.curve).items()
    ]


def _curve(runs: Sequence[ComparisonRun], name: str) -> dict[str, list[Any]]:
    """Return steps, the mean over seeds, and each seed's values of one metric."""
    known = [{row["step"]: row[name] for row in run.curve if name in row} for run in runs]
    steps = sorted(set.intersection(*map(set, known)))
    values = [[by_step[step] for step in steps] for by_step in known]
    return {"steps": steps, "mean": np.mean(values, axis=0).tolist(), "seeds": values}


_SALT = b"sordino.split\0"  # so that no other hash of a prompt decides where it goes
_WORDS = 2**64


class PreferenceSplit(NamedTuple):
    """Row numbers of each part, ascending."""

    training: list[int]  # what policies learn from
    # Whose randomized answers measure them, and whose prompts they are compared on.
    held_out: list[int]
    judge: list[int]  # what the judge of the comparison learns from; no policy sees its prompts

    @property
    def learned(self) -> list[int]:
        """Return the rows whose answers are randomized: training and held out, in order."""
        return sorted([*self.training, *self.held_out])


def split_by_prompt(
    pairs: Comparisons, *, judge: float = 0.5, held_out: float = 0.1
) -> PreferenceSplit:
    """Return three parts of the pairs; a public hash of its prompt places every pair."""
    # All pairs of one prompt are in one part, so nobody is measured on a prompt that was learned
    # from, and who owns the file cannot choose where a judgment goes.
    if pairs.given is not None:
        raise DataError("A split goes by prompts, and these pairs hold feature vectors.")
    if not (number("judge", judge) >= 0 < number("held_out", held_out) and judge + held_out < 1):
        raise UsageError(
            "judge must be at least 0, held_out above 0, and both together below 1; got "
            f"{judge!r} and {held_out!r}."
        )
    parts = PreferenceSplit([], [], [])
    for row, prompt in enumerate(pairs.prompts):
        # A hash places a prompt in [0, 1).
        digest = hashlib.sha256(_SALT + encoded(prompt)).digest()
        place = int.from_bytes(digest[:8], "big") / _WORDS
        part = parts.judge if place < judge else parts.training
        (parts.held_out if judge <= place < judge + held_out else part).append(row)
    if not parts.training or not parts.held_out or bool(parts.judge) != (judge > 0):
        raise DataError(
            f"{len(pairs)} pairs are too few prompts to split: a part would be empty. Nothing was "
            "done. Take more pairs."
        )
    return parts


def unique_prompts(prompts: Sequence[Text]) -> list[Text]:
    """Return each prompt once, in the order of its first occurrence."""
    found: dict[bytes, Text] = {}
    for prompt in prompts:
        found.setdefault(encoded(prompt), prompt)
    return list(found.values())
