"""A promise that protects nobody is refused, or accepted by name; a verdict comes first."""

import json
import re
from pathlib import Path

import pytest
from tests.tiers import few

import sordino
from sordino.preferences.pairs import read_manifest
from sordino.privacy.ledger import Ledger
from sordino.reporting.result import judge

from .conftest import pair, refused
from .test_bandit import PUBLIC, records, write

ACCEPT = "--accept-weak"
CHOOSE = ["choose", "run", "q.jsonl", "--judgments", "in.jsonl"]
ALIGN = ["align", "in.jsonl", "--out", "out"]
PRIVATIZE = ["privatize", "in.jsonl", "--out", "b.jsonl"]
ESTIMATE = [*ALIGN, "--noise", "estimate"]
BANDIT = ["bandit", "logs.csv", "--arm", "item", "--reward", "click", "--out", "out", *PUBLIC]
WEAK = {
    "labels": [*ALIGN, "--epsilon", "21"],
    "estimate": [*ESTIMATE, "--epsilon", "21"],
    "with metrics": [*ESTIMATE, "--epsilon", "12", "--metrics-epsilon", "19"],
    "records": [*ESTIMATE, "--unit", "record", "--epsilon", "21"],
    "delta of labels": [*ESTIMATE, "--epsilon", "1", "--delta", "0.05"],
    "delta of records": [*ESTIMATE, "--unit", "record", "--epsilon", "1", "--delta", "0.05"],
    "delta of a private number": [
        *[*ESTIMATE, "--unit", "record", "--neighbors", "add-remove", "--epsilon", "1"],
        *["--delta", "0.05"],
    ],
    "draws": [*ALIGN, "--noise", "draws", "--draws", "2", "--epsilon", "21"],
    "privatize": [*PRIVATIZE, "--epsilon", "21"],
    "bandit": [*BANDIT, "--epsilon", "21"],
    "bandit by temperature": [*BANDIT, "--temperature", "0.001", "--regularization", "1"],
}


@pytest.fixture
def ready(folder, pairs):
    folder.write("in.jsonl", pairs)
    folder.write("q.jsonl", [{"prompt": "q", "candidates": ["yes, then", "no, sorry"]}])
    write(folder / "logs.csv", records(300))
    return folder


def caveats_of(path):
    return [set(json.loads(row.payload)["caveats"]) for row in Ledger.read(path).spends]


@pytest.mark.parametrize("case", WEAK)
def test_a_weak_promise_is_refused_before_anything_is_spent(ready, case):
    refused(ready, WEAK[case], 2, ACCEPT)


@pytest.mark.parametrize("case", few(WEAK, first=5))
def test_what_was_accepted_stays_with_what_is_released(ready, case):
    said = ready.run(*WEAK[case], ACCEPT, "--json")
    assert said.code == 0, said.err
    assert "weak-promise" in said.value["caveats"]
    (ledger,) = ready.path.rglob("*.db")
    spends = caveats_of(ledger)
    assert spends or case == "draws"
    assert all("weak-promise" in names for names in spends)
    if case == "privatize":
        assert "weak-promise" in read_manifest(ready / "b.jsonl").guarantee.caveats
        return
    result = json.loads((ready / "out/result.json").read_text())
    assert next(iter(result)) == "verdict"
    assert result["verdict"]["word"] == "too weak a promise"
    assert "weak-promise" in result["caveats"]
    if "certificate" in result:
        assert "weak-promise" in result["certificate"]["caveats"]
        reward = sordino.RewardModel.load(ready / "out/reward.json")
        assert "weak-promise" in reward.guarantee.caveats
        page = (ready / "out/report.html").read_text()
        assert "Too weak a promise" in page
        assert "<code>weak-promise</code>" in page
        assert ready.run("audit", "run", "out").code == 0


def test_the_flag_alone_says_nothing_of_a_promise_that_is_not_weak(ready):
    result = ready.run(*ALIGN, "--epsilon", "20", ACCEPT, "--json").value
    assert "weak-promise" not in result["caveats"]
    command = [*ALIGN, "--epsilon", "20.001", ACCEPT, "--budget", "99", "--force", "--dry-run"]
    assert "weak-promise" in ready.run(*command, "--json").value["caveats"]


def test_many_draws_are_weak_together(ready):
    prepared = ["align", "in.jsonl", "--out", "run", "--noise", "draws", "--draws", "2"]
    assert ready.run(*prepared, "--epsilon", "19", "--budget", "1000").code == 0
    many = [{"prompt": f"q{n}", "candidates": ["yes, then", "no, sorry"]} for n in range(40)]
    ready.write("q.jsonl", many)
    refused(ready, CHOOSE, 2, ACCEPT)
    said = ready.run(*CHOOSE, ACCEPT, "--json")
    assert said.code == 0, said.err
    assert "weak-promise" in said.value["caveats"]
    assert all("weak-promise" in names for names in caveats_of(ready / "run/spend.db"))


def test_one_question_that_is_shared_makes_a_public_file_doubtful(ready, pairs):
    ready.write("public.jsonl", [pairs[0], *(pair(index) for index in range(100, 130))])
    command = [*ESTIMATE, "--epsilon", "1", "--evaluate", "public.jsonl"]
    refused(ready, command, 2, ACCEPT)
    result = ready.run(*command, ACCEPT, "--json").value
    assert result["public_evaluation"]["pairs"] == 30
    for place in (result, result["certificate"]):
        assert {"public-overlap"} == set(place["caveats"]) & {"public-overlap", "weak-promise"}
    assert caveats_of(ready / "out/spend.db")[0] >= {"public-overlap"}
    ready.write("public.jsonl", pairs)
    said = ready.run(*command, ACCEPT, "--force")
    assert (said.code, "no decided judgment" in said.err) == (4, True)


ANSWERS = [f"answer {number}" for number in range(24)]
KINDS = {
    "thumbs": [{"completion": text, "label": n % 3 == 0} for n, text in enumerate(ANSWERS)],
    "ratings": [{"completion": text, "rating": 1 + n % 2} for n, text in enumerate(ANSWERS)],
    "pairs": [
        {"chosen": one, "rejected": other}
        for one, other in zip(ANSWERS[::2], ANSWERS[1::2], strict=True)
    ],
}


@pytest.mark.parametrize(
    ("private", "public", "more"),
    [
        ("ratings", "thumbs", ["--levels", "1..5"]),
        ("thumbs", "ratings", ["--levels", "1..5"]),
        ("ratings", "thumbs", ["--levels", "1..5", "--unit", "person", "--noise", "estimate"]),
        ("pairs", "thumbs", []),
    ],
)
def test_what_was_asked_about_is_shared_in_any_kind_of_judgment(folder, private, public, more):
    """The first row of the public file is about an answer that was judged in private, too."""
    rows = enumerate(KINDS[private])
    folder.write("in.jsonl", [{"prompt": "?", "person": f"p{n % 6}"} | row for n, row in rows])
    first, *others = KINDS[public]
    others = [{"prompt": "other"} | row for row in others]
    folder.write("public.jsonl", [{"prompt": "?"} | first, *others])
    command = [*ALIGN, "--epsilon", "1", "--evaluate", "public.jsonl", *more]
    refused(folder, command, 2, ACCEPT)
    result = folder.run(*command, ACCEPT, "--json").value
    assert "public-overlap" in result["caveats"]
    assert result["public_evaluation"]["pairs"] == len(others)


def test_ratings_that_were_put_into_pairs_are_known_by_their_answers():
    rated = [{"prompt": "?"} | row for row in KINDS["ratings"]]
    thumbs = sordino.read_pairs([{"prompt": "?"} | row for row in KINDS["thumbs"]])
    made = sordino.read_pairs(rated, levels="1..5", ratings="pairs")
    assert set().union(*made.subjects(thumbs)) == set().union(*thumbs.subjects(made))
    assert made.subjects(made)[0] != {made.keys[0]}
    pairs = sordino.read_pairs([{"prompt": "?"} | row for row in KINDS["pairs"]])
    assert pairs.subjects(pairs) == [{key} for key in pairs.keys]


def test_of_records_it_is_not_told_whether_a_public_file_shares_them(ready, pairs):
    ready.write("public.jsonl", pairs)
    command = [*ESTIMATE, "--unit", "record", "--epsilon", "1", "--evaluate", "public.jsonl"]
    result = ready.run(*command, "--json").value
    assert "public-overlap" not in result["caveats"]
    assert result["public_evaluation"]["pairs"] == len(pairs)


@pytest.mark.parametrize("noise", ["labels", "estimate"])
def test_a_verdict_comes_first_and_is_made_of_what_was_released_alone(ready, noise):
    """Whoever holds result.json alone finds the same word: no neighbor could change it."""
    said = ready.run(*ALIGN, "--noise", noise, "--epsilon", "1", "--dimension", "16")
    result = json.loads((ready / "out/result.json").read_text())
    verdict = result.pop("verdict")
    assert judge(result) == verdict
    lines = said.out.splitlines()
    assert lines[1].split()[0] == "verdict"
    assert verdict["word"] in lines[1]
    page = (ready / "out/report.html").read_text()
    first = page.index(verdict["word"].capitalize())
    assert first < page.index("What is promised")


def test_numbers_that_mean_nothing_are_folded_away(ready):
    said = ready.run(*ALIGN, "--epsilon", "0.1", "--dimension", "16")
    verdict = json.loads((ready / "out/result.json").read_text())["verdict"]
    assert verdict["word"] == "too few answers"
    assert verdict["answers_needed"] > 1000
    assert f"{verdict['answers_needed']:,}" in " ".join(said.out.split())
    names = {line.split("  ")[0] for line in said.out.splitlines()}
    assert "measured" in names
    assert not names & {"accuracy", "calibration slope", "win rate"}
    page = (ready / "out/report.html").read_text()
    opened = page.index('<details class="folded">')
    assert page.count('<details class="folded">') >= 2
    assert 'id="reward"' in page[:opened]
    assert "Calibration slope" not in page[:opened]


def test_what_is_only_randomized_has_a_verdict_and_its_manifest_says_as_little_as_before(ready):
    said = ready.run("privatize", "in.jsonl", "--out", "a.jsonl", "--epsilon", "0.5")
    assert said.out.splitlines()[1].startswith("verdict")
    assert "too few answers" in said.out
    assert "verdict" not in json.loads((ready / "a.manifest.json").read_text())
    told = [*PRIVATIZE, "--epsilon", "21", ACCEPT, "--json"]
    value = ready.run(*told).value
    assert next(iter(value)) == "verdict"
    assert value["verdict"]["word"] == "too weak a promise"


def test_the_share_of_one_person_is_not_too_few(ready):
    said = ready.run(*PRIVATIZE, "--epsilon", "1", "--on-device", "--json")
    assert said.value["verdict"]["word"] == "usable"
    assert "answers would do" in said.value["verdict"]["says"]


def test_a_fit_has_a_verdict_too(ready):
    assert ready.run("privatize", "in.jsonl", "--out", "a.jsonl", "--epsilon", "0.5").code == 0
    value = ready.run("fit", "a.jsonl", "--out", "r.json", "--json").value
    assert next(iter(value)) == "verdict"
    assert value["verdict"]["word"] == "too few answers"


def names_of(screen):
    """The names of the lines of a summary, up to the first table."""
    lines = screen.splitlines()[1:]
    some = lines[: lines.index("entries") if "entries" in lines else None]
    return [line.split("  ")[0] for line in some if line.strip() and line[0] != " "]


def test_the_page_for_whoever_signs_shows_screens_as_they_are_printed(ready):
    page = (Path(__file__).parents[2] / "docs/what_to_sign.md").read_text("utf-8")
    verdict, refusal, spent, check = re.findall(
        r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL
    )
    said = ready.run(*PRIVATIZE, "--epsilon", "25")
    assert said.err.split() == refusal.split()
    said = ready.run(*ALIGN, "--epsilon", "0.1", "--dimension", "16", "--ledger", "l.db")
    assert names_of(said.out) == names_of(verdict)
    found = judge(json.loads((ready / "out/result.json").read_text()))
    assert found["word"] in verdict
    shown = [line.rstrip() for line in ready.run("ledger", "show", "l.db").out.splitlines()]
    assert names_of("\n".join(shown)) == names_of(spent)
    assert check.split()[:5] == ["sordino", "check", "verdict", "NOT", "MET"]
