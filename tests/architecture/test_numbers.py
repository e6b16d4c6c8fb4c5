"""Numbers of the documents are those of the stored results, and each result is on one page.

The rule. A block is what stands between two empty lines of a page, or an item of a list there,
outside of code. It *tells a
measurement* if it has a number beside a word of measuring, a time, a size, a spread (``±``) or
"times faster", or if it is a table of at least six decimals. Such a block

- has ``<!-- from benchmarks/results/NAME.json -->`` in it, or alone in the block before, and then
  all its numbers are in that file; several files may be named, and a colon may narrow one down to
  a part: ``NAME.json:results``;
- or is a generated part (``docs/make.py``);
- or has ``<!-- computed: HOW -->``: arithmetic, a limit of the program, a setting;
- or says in plain words that its numbers are ``not kept`` (of a table: the block before says so).

A figure names its file and the script that draws it in the line below.

Which numbers: those with a decimal point or a thousands separator, and those before ``%``, ``×`` or
a unit. What follows ``ε =`` (or another letter) is a setting, and 95% is a level. In the file, as
written: a value that rounds to it, that of a percentage, in thousands or thousandths (ms, kB), and
of ``×``, ``%`` and "times" also a ratio of two values that stand side by side. Numbers that are
none of these are named in the marker: ``<!-- from ...; besides: 1.28 .05 -->``.
"""

import importlib.util
import itertools
import json
import re
from functools import cache

import pytest

from .conftest import ROOT

RESULTS = ROOT / "benchmarks/results"
GENERATED = {"cli.md", "numbers.md", "papers.md"}
PAGES = [
    path
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if path.name not in GENERATED and path.parent.name != "reference"
]
NUMBER = r"(?:\d[\d,]*(?:\.\d+)?|\.\d+)"
UNIT = r"(?: (?:core )?s| ?(?:ms|µs|ns|MB|GB))\b"
MEASURES = re.compile(
    rf"\b[Mm]easured\b[^.]*?(?<![\w.]){NUMBER}|{NUMBER}{UNIT}|(?:\d|\babout) ± ?{NUMBER}"
    rf"|{NUMBER}(?:×| times) (?:as (?:fast|much|slow)|faster|slower)|\baccuracy (?:of )?{NUMBER}"
    rf"|\b(?:takes?|took|waits?) (?:about )?{NUMBER} (?:to {NUMBER} )?(?:seconds|minutes)"
    rf"|{NUMBER} (?:answers|records|pairs|users|rounds|labels) (?:a|per) second"
    rf"|\bmean of {NUMBER}|\b(?:of|over|in) {NUMBER} (?:simulated )?runs"
    rf"|{NUMBER} (?:seeds|runs each)"
)
DECIMAL = re.compile(r"(?<![\w.])\d*\.\d+(?!\.?\d)")
SETTING = re.compile(
    rf"(?:\b[nNdKBkCcTα]|[εδηβκαμτΛ]|‖|\bball|\bridge|[Tt]emperature|size|scales?)"
    rf" ?(?:=|of|from|at|≤|≥) ?{NUMBER}(?:(?:,| and| or| to|, and) {NUMBER})*"
    rf"|\b95 ?%|\bof \.95\b|\blevel of {NUMBER}"
)
TOLD = re.compile(
    rf"(?<![\w.^⁻·²/√]){NUMBER}(?![\w^⁰¹²³⁴⁵⁶⁷⁸⁹]|\.\d|-\d)"
    rf"(·10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+| ?%| ?×(?! \d)| times\b|{UNIT}| MiB)?"
)
RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
HIDDEN = re.compile(r"`[^`]*`|\]\([^)]*\)|\d{4}-\d\d-\d\d|\b\d+\.\d+\.\d+\b|^#.*$", re.MULTILINE)


def blocks(text):
    """Yield number of the first line, marker (or nothing) and text of every block."""
    text = re.sub(
        r"<!-- begin (\w+) -->.*?<!-- end \1 -->", lambda m: "\n" * m[0].count("\n"), text,
        flags=re.DOTALL,
    )  # fmt: skip
    text = re.sub(
        r"^```.*?^```$", lambda m: "\n" * m[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL
    )
    marker, line = "", 1
    for block in re.split(r"(\n\s*\n)", text):
        if re.fullmatch(r"<!--[^>]*-->", block.strip()):
            marker = block.strip()[4:-3].strip()
        elif block.strip() and not re.fullmatch(r"(    .*\n?)+", block.strip("\n")):
            first = line
            for told in re.split(r"\n(?=(?:-|\d+\.) )", block):
                inside = re.search(r"<!-- (.*?) -->", told)
                yield first, inside[1] if inside else marker, re.sub(r"<!--.*?-->", "", told)
                first += told.count("\n") + 1
            marker = ""
        line += block.count("\n")


def tells_a_measurement(block):
    shown = SETTING.sub("", HIDDEN.sub("", block))
    table = block.lstrip().startswith("|") and len(DECIMAL.findall(shown)) >= 6
    return table or MEASURES.search(shown) is not None


def told_numbers(block):
    """Yield every number of a block that has to be in a file, and what follows it."""
    for found in TOLD.finditer(SETTING.sub("", HIDDEN.sub("", block))):
        number, unit = found[0].removesuffix(found[1] or "").strip().rstrip(","), found[1] or ""
        if unit or "." in number or "," in number:
            yield number, unit.strip()


def values(part):
    """Return all numbers of a part of a file, those in its keys and texts too."""
    if isinstance(part, dict):
        return values(" ".join(part)).union(*map(values, part.values()))
    if isinstance(part, list):
        return set().union(*map(values, part))
    if isinstance(part, str):
        return {float(number.replace(",", "")) for number in re.findall(NUMBER, part)}
    return set() if part is None or isinstance(part, bool) else {abs(float(part))}


def ratios(part):
    """Return the ratios of numbers that stand side by side, or bear one name in entries that do."""
    below = list(part.values()) if isinstance(part, dict) else part
    if not isinstance(below, list):
        return set()
    groups = [below] if isinstance(part, dict) else []
    if isinstance(part, dict):
        rows = [each for each in below if isinstance(each, dict)]
        groups += [[row.get(key) for row in rows] for key in set().union(*rows)]
    numbers = [[abs(v) for v in group if isinstance(v, int | float)] for group in groups]
    found = {a / b for group in numbers for a, b in itertools.permutations(group, 2) if b}
    return found.union(*map(ratios, below))


@cache
def parts(marker):
    """Return the parts of files that a marker names."""
    found = []
    for name in marker.split():
        path, _, keys = name.partition(":")
        text = (ROOT / path).read_text(encoding="utf-8")
        part = json.loads(text) if path.endswith(".json") else text
        for key in filter(None, keys.split("/")):
            part = part[key]
        found.append(part)
    return found


@cache
def written(marker, digits, unit):
    """Return every number that a file holds, as it is written with so many digits and this unit."""
    if unit.startswith("·10"):
        scales = [10.0 ** -int(unit[3:].translate(RAISED))]
    else:
        bytes_too = [1e-6, 1e-9] if unit.endswith("B") else []
        scales = [1.0, 100.0] if unit in {"", "%"} else [1.0, 1e3, 1e-3, *bytes_too]
    found = {v * scale for part in parts(marker) for v in values(part) for scale in scales}
    if unit in {"×", "times", "%"}:
        scale = 100.0 if unit == "%" else 1.0
        found |= {ratio * scale for part in parts(marker) for ratio in ratios(part)}
    # A half may have been rounded either way.
    return {round(v * 10.0**digits + nudge) for v in found for nudge in (-1e-6, 1e-6)}


def is_in(number, unit, marker):
    named, _, besides = marker.removeprefix("from ").partition("; besides:")
    if number in besides.split():
        return True
    digits = len(number.partition(".")[2])
    if not digits and number.endswith("0") and "," in number:  # 3,120 is told with three digits
        digits = min(0, 3 - len(number.replace(",", "")))
    return round(float(number.replace(",", "")) * 10.0**digits) in written(named, digits, unit)


def names_its_source(figure, block):
    """Return whether a figure has a script and, unless its numbers are not kept, a file."""
    script = re.search(r"`((?:benchmarks|examples)/[\w/]+\.py)`", block)
    file = re.search(r"\[(\w+)\.json\]\([./]+benchmarks/results/\1\.json\)", block)
    if not (script and (ROOT / script[1]).is_file()):
        return False
    text = (ROOT / script[1]).read_text(encoding="utf-8")
    return "not kept" in block or bool(file and file[1] in text and figure in text)


def wrong(text):
    """Return what breaks the rule on a page."""
    bad, before = [], ""
    for line, marker, block in blocks(text):
        told = "not kept" in block or (block.lstrip().startswith("|") and "not kept" in before)
        before = block
        if (figure := re.search(r"/?figures/(\w+)\.svg\)", block)) and not block.startswith("|"):
            if not names_its_source(figure[1], block):
                bad.append(f"{line}: a figure names its file and its script in the line below")
        elif marker.startswith("from "):
            strange = [n for n, unit in told_numbers(block) if not is_in(n, unit, marker)]
            if strange:
                bad.append(f"{line}: in none of its files: {' '.join(strange)}")
        elif tells_a_measurement(block) and not (marker.startswith("computed: ") or told):
            bad.append(f"{line}: from which file? {block[:80]!r}")
    return bad


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT / "docs")))
def test_numbers_are_those_of_a_stored_result(path):
    assert wrong(path.read_text(encoding="utf-8")) == []


def test_a_number_that_is_changed_is_noticed():
    """Most are: a changed one may happen to be another value of the same file."""
    seen, noticed = 0, 0
    for path in PAGES:
        for _, marker, block in blocks(path.read_text(encoding="utf-8")):
            for number, unit in told_numbers(block) if marker.startswith("from ") else ():
                digits = len(number.partition(".")[2])
                more = float(number.replace(",", "")) * 4 / 3 + 10.0**-digits
                seen += 1
                noticed += not is_in(f"{more:.{digits}f}", unit, marker)
    assert seen > 500
    assert noticed / seen > 0.75, f"{noticed} of {seen}"


def test_a_measurement_without_a_file_is_noticed():
    assert wrong("A fit takes 2.5 s here.")
    assert wrong("Measured on two cores: 17 of 20.")
    assert wrong("| a | b |\n|---|---|\n| .1 | .2 |\n| .3 | .4 |\n| .5 | .6 |")
    assert wrong("![Calibration](figures/calibration.svg)")
    assert wrong("A fit takes 2.5 s here.\n<!-- from benchmarks/results/hashing.json -->")
    assert not wrong("Bodies have 20 seconds, and 16 MiB.")


@pytest.fixture(scope="module")
def report():
    path = ROOT / "benchmarks/report.py"
    spec = importlib.util.spec_from_file_location("report", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_stored_result_is_shown_with_its_numbers_and_its_script(report):
    page = (ROOT / "docs/numbers.md").read_text(encoding="utf-8")
    measured, _, sources = page.partition("## Where they are from")
    stored = {path.stem for path in RESULTS.glob("*.json")}
    link = r"\[(\w+)\]\(\.\./benchmarks/results/\1\.json\)"
    assert set(re.findall(link, measured)) == stored
    assert set(re.findall(link, sources)) == stored
    scripts = re.findall(r"`(benchmarks/[\w/]+\.py)", sources)
    assert len(scripts) == len(stored)
    assert all((ROOT / script).is_file() for script in scripts)


def test_the_page_is_what_the_files_say(report):
    page = (ROOT / "docs/numbers.md").read_text(encoding="utf-8")
    assert page == report.page(), "run `python docs/make.py`"
    chart = (ROOT / f"docs/figures/{report.CHART}.svg").read_text(encoding="utf-8")
    assert chart == report.chart(), "run `python docs/make.py`"
