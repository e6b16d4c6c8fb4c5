"""Runs what the documents show again, smaller, and holds the stored numbers against it.

``sordino reproduce`` lists papers and results; ``sordino reproduce PAPER [RESULT ...]`` runs the
scripts that benchmarks/reproduce.toml names, draws their figures beside the stored ones, and writes
numbers, pictures and one page into a folder. A number counts as reproduced if the stored one lies
in the interval of the fresh run. Intervals hold for all numbers of a result together (95 %,
Student's, Bonferroni); what has no interval is shown and not judged.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from scipy.stats import t as student

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
NO_NUMBERS = {"deltas", "scales", "interval_95", "above_interval_95", "versions"}
_ROUNDED = 6e-4  # of a value: stored numbers have three digits or more,
_LAST_DIGIT = 1.01e-4  # or four decimals
_LEVEL = 0.05
_HEAD = """<!doctype html><html lang=en><meta charset=utf-8>
<meta name=viewport content="width=device-width"><title>{0} again</title><style>
body {{font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem}}
figure {{margin: 0; flex: 1 1 24rem}} img {{width: 100%}} code {{background: #f2f2f2}}
.two {{display: flex; flex-wrap: wrap; gap: 1rem}}
</style><h1>{0}, run again</h1>"""


class Point(NamedTuple):
    """One number, stored and fresh, and the standard error of the fresh one."""

    where: str
    stored: float
    fresh: float
    error: float


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _pair(value: object) -> bool:
    """Return whether this is a mean with the half width of its interval."""
    return isinstance(value, list) and len(value) == 2 and all(map(_number, value))


def _listed(value: Any) -> list[float]:
    return value if isinstance(value, list) else [value]


def _error_of(name: str, row: dict[str, Any], stored: dict[str, Any], runs: int, fits: int) -> Any:
    """Return the standard error of a number of a fresh row, or of each in a list, if it is told."""
    if name == "mean" and "half_width" in row:
        return row["half_width"] / 1.96
    if f"{name}_standard_deviation" in row:
        return row[f"{name}_standard_deviation"] / math.sqrt(runs)
    if name.endswith("coverage") and _number(row[name]):  # a share of so many fits
        return math.sqrt(max(stored[name] * (1 - stored[name]), 1 / fits) / fits)
    if name == "clicks_per_1000":
        return (row["interval_95"][1] - row["interval_95"][0]) / 3.92
    return row.get(
        f"{name}_standard_error", row.get("standard_error") if name == "regret" else None
    )


class Comparison(NamedTuple):
    """How a stored and a fresh result are laid side by side."""

    fields: set[str]  # what tells rows apart
    exact: bool  # whether every number is without chance
    runs: int  # how many repetitions the fresh numbers are means of,
    fits: int  # and shares

    def points(self, stored: Any, fresh: Any, where: str = "") -> Iterator[Point]:
        """Yield every number that both have and that the fresh one is told an error of."""
        if isinstance(fresh, dict):
            for name in fresh.keys() & stored.keys() - NO_NUMBERS:
                names_a_row = name in self.fields and not isinstance(fresh[name], list | dict)
                if not names_a_row and not name.endswith("standard_error"):
                    yield from self._value(name, stored, fresh, f"{where}.{name}".strip("."))
        elif _pair(fresh) and not self.exact:
            wide = student.ppf(0.975, max(self.runs - 1, 1))
            yield Point(where, stored[0], fresh[0], fresh[1] / wide)
        elif isinstance(fresh, list) and fresh and isinstance(fresh[0], dict):
            known = {self._settings(row): row for row in stored}
            for row in fresh:
                if (key := self._settings(row)) in known:
                    said = ", ".join(f"{name} {value}" for name, value in key)
                    yield from self.points(known[key], row, f"{where}({said})")
        elif isinstance(fresh, list) and len(stored) == len(fresh):
            for at, (one, other) in enumerate(zip(stored, fresh, strict=True)):
                yield from self.points(one, other, f"{where}[{at}]")

    def _value(self, name: str, stored: Any, fresh: Any, where: str) -> Iterator[Point]:
        error = _error_of(name, fresh, stored, self.runs, self.fits)
        if error is not None:
            each = zip(*map(_listed, (stored[name], fresh[name], error)), strict=True)
            yield from (Point(where, *numbers) for numbers in each)
        elif self.exact and _number(fresh[name]):
            yield Point(where, stored[name], fresh[name], 0.0)
        else:
            yield from self.points(stored[name], fresh[name], where)

    def _settings(self, row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(sorted((name, str(row[name])) for name in self.fields & set(row)))


def outside(found: list[Point], runs: int) -> list[Point]:
    """Return the stored numbers that are not in the fresh intervals, which hold together."""
    wide = student.ppf(1 - _LEVEL / (2 * max(len(found), 1)), max(runs - 1, 1))
    return [
        point
        for point in found
        if abs(point.stored - point.fresh)
        > max(
            wide * point.error or _LAST_DIGIT,
            _ROUNDED * max(abs(point.stored), abs(point.fresh)),
        )
    ]


def draw(result: dict[str, Any], fresh: dict[str, Any], folder: Path) -> list[str]:
    """Write the figures of a fresh result and return their names."""
    import matplotlib as mpl

    sys.path.insert(0, str(HERE / "utility"))
    style = import_module("figures").STYLE
    names = []
    for module, functions in result.get("figures", {}).items():
        for function in functions:
            with mpl.rc_context(style):
                figure = getattr(import_module(module), function)(fresh)
                figure.savefig(folder / f"{function}.svg", metadata={"Date": None})
            names.append(function)
    return names


def run(name: str, result: dict[str, Any], fields: set[str], folder: Path) -> dict[str, Any]:
    """Run one script and return the verdict on what is stored of it."""
    script, *arguments = result["run"].split()
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        cwd=HERE / "utility", stdout=subprocess.PIPE, text=True, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{script} ended with {done.returncode}; nothing was compared.")
    (folder / f"{name}.json").write_text(done.stdout, encoding="utf-8")
    fresh = json.loads(done.stdout)
    stored = json.loads((HERE / "results" / f"{name}.json").read_text(encoding="utf-8"))
    sizes = dict(zip(arguments[::2], map(int, arguments[1::2]), strict=False))
    fits = sizes.pop("--fits", 1)
    runs = result.get("repetitions") or next(iter(sizes.values()), fits)
    compared = Comparison(fields, bool(result.get("exact")), runs, fits)
    found = sorted(compared.points(stored, fresh))
    return {
        "name": name,
        "title": result["title"],
        "page": result["page"],
        "command": f"python benchmarks/{result['run']}",
        "seconds": round(time.monotonic() - start, 1),
        "repetitions": runs,
        "compared": len(found),
        "outside": [point._asdict() for point in outside(found, runs)],
        "figures": draw(result, fresh, folder),
    }


def page(paper: str, told: list[dict[str, Any]], folder: Path) -> str:
    """Return one page with the verdict first and every figure beside the stored one."""
    parts = [_HEAD.format(escape(paper))]
    for one in told:
        parts.append(f"<h2>{escape(one['title'])}</h2><p><b>{escape(verdict(one))}</b></p>")
        parts.append(
            f"<p><code>{escape(one['command'])}</code>, {one['repetitions']} repetitions, "
            f"{one['seconds']:.0f} s; the stored numbers stand in "
            f"<code>benchmarks/results/{one['name']}.json</code>, explained in "
            f"<code>docs/{escape(one['page'])}</code></p>"
        )
        for figure in one["figures"]:
            stored = os.path.relpath(ROOT / "docs" / "figures" / f"{figure}.svg", folder)
            parts.append("<div class=two>")
            for file, said in ((f"{figure}.svg", "fresh"), (stored, "stored")):
                parts.append(
                    f"<figure><figcaption>{said}</figcaption><img src='{escape(file)}' "
                    f"alt='{escape(figure)}, {said}'></figure>"
                )
            parts.append("</div>")
        if one["outside"]:
            rows = "".join(
                f"<li>{escape(point['where'])}: stored {point['stored']:.4g}, fresh "
                f"{point['fresh']:.4g} ± {point['error']:.2g}</li>" for point in one["outside"]
            )  # fmt: skip
            parts.append(f"<ul>{rows}</ul>")
    return "\n".join(parts)


def verdict(one: dict[str, Any]) -> str:
    """Return in one sentence what came out."""
    if not one["compared"]:
        return "Nothing to compare: no number of it is told with an interval."
    away = len(one["outside"])
    if not away:
        return f"Reproduced: all {one['compared']} stored numbers lie in the fresh intervals."
    return f"Not reproduced: {away} of {one['compared']} stored numbers lie outside."


def main() -> int:
    """Run what is asked for."""
    table = tomllib.loads((HERE / "reproduce.toml").read_text(encoding="utf-8"))
    fields = set(table.pop("tells_rows_apart"))
    parser = argparse.ArgumentParser(prog="sordino reproduce", description=__doc__)
    parser.add_argument("paper", nargs="?", choices=table, help="left out, all are listed")
    parser.add_argument(
        "result", nargs="*", help="results or figures; all of the paper if left out"
    )
    parser.add_argument("--out", type=Path, help="folder to write into; runs/reproduce-PAPER")
    asked = parser.parse_args()
    if asked.paper is None:
        for paper, results in table.items():
            for name, result in results.items():
                print(f"{paper:8} {name:28} {result['title']}")
        return 0
    known = table[asked.paper]
    names = {figure: name for name, result in known.items()
             for figures in result.get("figures", {}).values() for figure in figures}  # fmt: skip
    wanted = [names.get(name, name) for name in asked.result] or list(known)
    for name in wanted:
        if name not in known:
            parser.error(f"{asked.paper} has no {name!r}. It has: {', '.join(known)}.")
    folder = (asked.out or Path("runs") / f"reproduce-{asked.paper}").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    told = []
    print("The studies are run anew, which takes minutes for most of them.", flush=True)
    for name in dict.fromkeys(wanted):
        print(f"{name}: {known[name]['title']} ...", flush=True)
        told.append(run(name, known[name], fields, folder))
        print(f"  {verdict(told[-1])} ({told[-1]['seconds']:.0f} s)", flush=True)
    (folder / "reproduced.json").write_text(json.dumps(told, indent=2), encoding="utf-8")
    (folder / "index.html").write_text(page(asked.paper, told, folder), encoding="utf-8")
    print(f"The page is {folder / 'index.html'}")
    return int(any(one["outside"] for one in told))


if __name__ == "__main__":
    raise SystemExit(main())
