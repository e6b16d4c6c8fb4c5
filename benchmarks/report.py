"""Writes docs/numbers.md: every stored result beside its peer, and a picture of the speeds.

python benchmarks/report.py       print the page; docs/make.py writes it, and checks that it is new

benchmarks/report.toml says what is told of each JSON in benchmarks/results. There ``{path:format}``
stands for a value. A path is the keys that lead to it, between slashes: of a list an index, or
``key=value&key=value`` for its one entry that agrees, or ``*`` for all. ``{_}`` is the key of the
entry that a row is for, ``{.}`` that entry, and a path that begins with a slash starts at the
whole file. ``a ÷ b`` is a ratio; ``min(path)`` and ``max(path)`` are of many values.
"""

from __future__ import annotations

import json
import math
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
CHART = "numbers_speed"
_VALUE = re.compile(r"\{((?:[^{}:]|\{[^{}]*\})+)(?::([^{}]*))?\}")
_HEAD = """# Numbers

Everything that was measured and kept, beside what it was compared with. This page is written by
`python docs/make.py` from the files in `benchmarks/results`; each is what the script printed, and
the [last table](#where-they-are-from) names it. Nothing here is a promise: promises are in
[privacy.md](privacy.md).
"""


@cache
def stored(name: str) -> Any:
    """Return a stored result."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def names() -> list[str]:
    """Return the names of all stored results."""
    return sorted(path.stem for path in RESULTS.glob("*.json"))


def found(value: Any, path: str) -> list[Any]:
    """Return every value that a path leads to."""
    values = [value]
    for step in filter(None, path.split("/")):
        values = [below for each in values for below in _below(each, step)]
    return values


def _below(value: Any, step: str) -> list[Any]:
    """Return what one step of a path leads to."""
    if isinstance(value, dict):
        if step != "*" and step not in value:
            raise SystemExit(f"report.toml names {step!r}; there are {', '.join(value)}.")
        return list(value.values()) if step == "*" else [value[step]]
    if step == "*":
        return list(value)
    if step.isdigit():
        return [value[int(step)]]
    wanted = [one.split("=", 1) for one in step.split("&")]
    return [row for row in value if all(_equal(row.get(key), said) for key, said in wanted)]


def _equal(value: Any, said: str) -> bool:
    """Return whether a value is what a path says of it."""
    if isinstance(value, int | float) and re.fullmatch(r"-?[\d.]+(e-?\d+)?", said):
        return float(value) == float(said)
    return str(value) == said


def fill(text: str, root: Any, here: Any, key: str = "") -> str:
    """Return a text with the values in it."""

    def one(path: str) -> Any:
        path = _VALUE.sub(lambda inner: str(one(inner[1])), path.strip())
        if path in {"_", "."}:
            return key if path == "_" else here
        values = found(root if path.startswith("/") else here, path)
        if len(values) != 1:
            raise KeyError(f"{path!r} leads to {len(values)} values")
        return values[0]

    def value(match: re.Match[str]) -> str:
        path, style = match[1], match[2] or ""
        above, _, under = path.partition(" ÷ ")
        if under:
            return format(one(above) / one(under), style)
        if many := re.fullmatch(r"(min|max)\((.+)\)", path):
            values = [each for each in found(here, many[2]) if each is not None]
            return format((min if many[1] == "min" else max)(values), style)
        result = one(path)
        return format(result, style) if style else str(result)

    # A number such as 2.99e+03 is written as 2,990.
    shown = _VALUE.sub(value, text)
    return re.sub(r"\d[.\d]*e\+\d+", lambda match: f"{float(match[0]):,.0f}", shown)


def rows(name: str, table: list[Any]) -> Iterator[list[str]]:
    """Yield what is told of one result."""
    root = stored(name)
    for row in table:
        if isinstance(row, list):
            yield [fill(cell, root, root) for cell in row]
            continue
        entries: Any = found(root, row["each"])
        if not re.search(
            r"=|/\d+$", row["each"]
        ):  # the one list, or object, and not chosen entries
            (entries,) = entries
        pairs = entries.items() if isinstance(entries, dict) else enumerate(entries)
        for key, entry in pairs:
            yield [fill(cell, root, entry, str(key)) for cell in row["row"]]


@cache
def told() -> dict[str, Any]:
    """Return benchmarks/report.toml."""
    return tomllib.loads((HERE / "report.toml").read_text(encoding="utf-8"))


def script(name: str) -> str:
    """Return the script that measured a result, and its arguments."""
    if name in told()["scripts"]:
        return str(told()["scripts"][name])
    (path,) = (p for p in HERE.glob(f"*/{name}.py") if p.parent.name != "results")
    return path.relative_to(HERE).as_posix()


def _lines(group: str) -> Iterator[tuple[str, list[str]]]:
    """Yield name and row of all that is told in a group."""
    for name, table in told()[group].items():
        for row in rows(name, table["rows"]):
            yield name, row


def _line(cells: list[str]) -> str:
    """Return one row of a table."""
    return f"| {' | '.join(cells)} |"


def _link(name: str) -> str:
    """Return a link to a stored result."""
    return f"[{name}](../benchmarks/results/{name}.json)"


def _machine(value: Any) -> str:
    """Return what a result says of where it was measured."""
    inside = [value, *(each for each in value.values() if isinstance(each, dict))]
    inside += list(value["runs"].values()) if isinstance(value.get("runs"), dict) else []
    said = [str(one[key]) for one in inside for key in ("card", "machine") if key in one]
    versions: dict[str, str] = {}
    for one in inside:
        plain = {key: one[key] for key in ("python", "numpy", "pyarrow", "ray") if key in one}
        versions |= {**plain, **one.get("versions", {}), **one.get("peer_versions", {})}
    said += [f"{key} {number}" for key, number in versions.items() if key != "sordino"]
    return "; ".join(dict.fromkeys(said)) or "not written down"


def page() -> str:
    """Return docs/numbers.md."""
    parts = [_HEAD]
    for group, said in told()["groups"].items():
        parts.append(f"## {group.capitalize()}\n\n{said}\n")
        if group == "speed":
            parts.append(
                f"![How many times faster ours is than its peer](figures/{CHART}.svg)\n\n"
                "Drawn from the ratios below, by `benchmarks/report.py`.\n"
            )
        parts.append(
            "| what | ours | beside it, in the same run | ratio | JSON |\n|---|---|---|---|---|"
        )
        parts[-1] += (
            "".join(
                "\n" + _line([cell or "–" for cell in row] + [_link(name)])
                for name, row in _lines(group)
            )
            + "\n"
        )
    parts.append(
        "## Where they are from\n\nTimes of different rows may be of different machines: compare "
        "ours with what stands beside it.\n\n"
        "| JSON | script | machine and versions |\n|---|---|---|"
    )
    parts[-1] += (
        "".join(
            "\n" + _line([_link(name), f"`benchmarks/{script(name)}`", _machine(stored(name))])
            for name in names()
        )
        + "\n"
    )
    return "\n".join(parts)


def chart() -> str:
    """Return the ratios of speeds as a picture, slowest first, on a scale of powers of ten."""
    bars = []
    for name, row in _lines("speed"):
        ratio = row[3].split(";")[0].replace(",", "")
        if ratio:
            under = ratio.removeprefix("1/")
            bars.append((float(under) if under == ratio else 1 / float(under), row[0], name))
    bars.sort()
    high, left, width = 18, 340, 400
    low, top = (math.floor(math.log10(bars[0][0])), math.ceil(math.log10(bars[-1][0])))

    def at(value: float) -> float:
        return left + width * (math.log10(value) - low) / (top - low)

    bottom = 24 + high * len(bars)
    size = f'viewBox="0 0 {left + width + 90} {bottom + 30}" font-size="11"'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" role="img">',
        "<title>How many times faster ours is than its peer in the same run</title>",
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for power in range(low, top + 1):
        x, mark = at(10.0**power), f"{10.0**power:,.{max(0, -power)}f}×"
        color = "#333" if power == 0 else "#ddd"
        out.append(f'<path d="M{x:.1f} 16V{bottom}" stroke="{color}"/>')
        out.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{mark}</text>')
    for number, (times, what, _) in enumerate(bars):
        y, x, one = 24 + high * number, at(times), at(1.0)
        color = "#2a6f97" if times >= 1 else "#b5651d"
        shown = fill("{.:.3g}", times, times)
        out.append(
            f'<rect x="{min(x, one):.1f}" y="{y}" width="{max(1.0, abs(x - one)):.1f}" '
            f'height="{high - 5}" fill="{color}"/>'
        )
        label = what.replace("&", "&amp;").replace("<", "&lt;").replace("`", "")
        out.append(f'<text x="{left - 8}" y="{y + 10}" text-anchor="end">{label}</text>')
        out.append(f'<text x="{max(x, one) + 4:.1f}" y="{y + 10}">{shown}×</text>')
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    sys.stdout.write(page())
