"""Numbers are in one place: every stored result is on docs/numbers.md."""

import importlib.util
import re

import pytest

from .conftest import ROOT


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
    stored = {path.stem for path in (ROOT / "benchmarks/results").glob("*.json")}
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
