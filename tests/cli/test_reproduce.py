"""``sordino reproduce``: what is registered exists, what differs is found, and one study runs."""

import json
import sys
import tomllib
from pathlib import Path

import pytest

from sordino.cli import run

ROOT = Path(__file__).resolve().parents[2]
TABLE = tomllib.loads((ROOT / "benchmarks" / "reproduce.toml").read_text(encoding="utf-8"))
FIELDS = set(TABLE.pop("tells_rows_apart"))
RESULTS = [(name, result) for of in TABLE.values() for name, result in of.items()]
ELSEWHERE = {
    "ballots_agreement", "trajectories_lake", "trajectories_value",  # of scripts in `examples`
    "dosing_policies",  # of no stored number
    "best_of_n",  # of judgments that are no part of the project
    "numbers_speed",  # of every result, by benchmarks/report.py
}  # fmt: skip


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import reproduce

    yield reproduce
    sys.modules.pop("reproduce")


def test_every_figure_of_the_pages_can_be_run_again():
    drawings = [result.get("figures", {}).values() for _, result in RESULTS]
    drawn = {name for modules in drawings for names in modules for name in names}
    stored = {path.stem for path in (ROOT / "docs" / "figures").glob("*.svg")}
    assert drawn | ELSEWHERE == stored


@pytest.mark.parametrize(("name", "result"), RESULTS, ids=[name for name, _ in RESULTS])
def test_what_is_registered_exists(name, result):
    stored = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text("utf-8"))
    assert stored["versions"]
    assert (ROOT / "benchmarks" / result["run"].split()[0]).is_file()
    assert (ROOT / "docs" / result["page"]).is_file()
    for module, functions in result.get("figures", {}).items():
        source = (ROOT / "benchmarks" / "utility" / f"{module}.py").read_text(encoding="utf-8")
        assert all(f"def {function}(" in source for function in functions)


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"n": 10, "mean": 0.5, "half_width": 0.098}, "mean"),
        ({"n": 10, "error": 0.5, "error_standard_error": 0.05}, "error"),
        ({"n": 10, "slope": 0.5, "slope_standard_deviation": 0.1}, "slope"),
        ({"n": 10, "regret": [0.5, 1.0], "standard_error": [0.05, 0.05]}, "regret"),
        ({"n": 10, "share": [0.5, 0.1591]}, "share"),
    ],
    ids=["half-width", "standard-error", "deviation", "lists", "pairs"],
)
def test_a_stored_number_outside_the_interval_is_found(script, row, name):
    # Four repetitions and one number: 3.18 standard errors of .05; with two numbers 4.18.
    def outside(moved):
        value = row[name]
        there = [value[0] + moved, *value[1:]] if isinstance(value, list) else value + moved
        stored = {"rows": [{"n": 20, name: value}, row | {name: there}]}
        compared = script.Comparison({"n"}, exact=False, runs=4, fits=4)
        found = list(compared.points(stored, {"rows": [row]}))
        assert len(found) == (2 if name == "regret" else 1)
        assert all(point.error == pytest.approx(0.05, rel=1e-3) for point in found)
        return script.outside(found, 4)

    assert not outside(0.1)
    assert len(outside(0.25)) == 1


def test_a_number_without_chance_must_be_the_same(script):
    compared = script.Comparison({"n"}, exact=True, runs=1, fits=1)
    found = list(compared.points({"a": [{"n": 1, "x": 1.01}]}, {"a": [{"n": 1, "x": 1.0}]}))
    assert [point.where for point in script.outside(found, 1)] == ["a(n 1).x"]


@pytest.mark.deep
def test_one_study_is_run_again(tmp_path, capfd):
    assert run(["reproduce", "kldp", "intrinsic_published", "--out", str(tmp_path)]) == 0
    assert "all 703 stored numbers" in capfd.readouterr().out
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "Reproduced" in page
    assert (tmp_path / "intrinsic_published.svg").stat().st_size > 1000


@pytest.mark.deep
def test_mistakes_are_said(tmp_path, monkeypatch, capfd):
    assert run(["reproduce", "kldp", "nothing"]) == 2
    assert "It has: intrinsic_epsilon" in capfd.readouterr().err
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sordino.cli.reproduce._SCRIPT", Path("nowhere.py"))
    assert run(["reproduce"]) == 2
    assert "in a clone of the project" in capfd.readouterr().err
