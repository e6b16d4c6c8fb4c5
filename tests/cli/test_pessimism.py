"""``align --confidence``: a policy that distrusts its reward, and how it is said."""

import pytest

from sordino.environments.annotators import simulate_pairs

N = 60


@pytest.fixture
def ready(folder):
    folder.write("in.jsonl", list(simulate_pairs(N, seed=1)[0]))
    ask = {"prompt": "How?", "candidates": ["First, then.", "Sorry.", "Perhaps, maybe, lovely."]}
    folder.write("ask.jsonl", [ask])
    return folder


ALIGN = ("align", "in.jsonl", "--epsilon", 2, "--dimension", 32, "--json")


def drawn_from(folder, run):
    said = folder.run("choose", run, "ask.jsonl", "--json", "--simulate-seed", 1)
    assert said.code == 0
    return said.value["choices"][0]["probability"]


def test_the_run_says_what_its_policy_is_and_choose_makes_it_again(ready):
    plain = ready.run(*ALIGN, "--out", "plain").value
    assert (plain["policy"]["kind"], plain["policy"]["pessimism"]) == ("gibbs", None)
    said = ready.run(*ALIGN, "--out", "run", "--confidence", 0.9, "--scale", 0.2, "--ball", 3)
    policy = said.value["policy"]
    assert (policy["kind"], policy["confidence"], policy["scale"]) == ("pessimistic", 0.9, 0.2)
    assert policy["pessimism"]["heuristic"] is True
    assert policy["pessimism"]["radius"] > 0
    assert said.value["reward"]["method"] == "debiased"
    page = (ready / "run/report.html").read_text(encoding="utf-8")
    assert "Heuristic, nothing is proved" in page
    assert drawn_from(ready, "plain") != drawn_from(ready, "run")


def test_both_commands_say_where_bonuses_change_choices_and_how_many_answers_it_takes(ready):
    said = ready.run(*ALIGN, "--out", "run", "--confidence", 0.9, "--ball", 3)
    effect = said.value["policy"]["pessimism"]["effect"]
    assert (effect["lists"], effect["alike"], effect["moved"]) == (N, N, 0)
    assert effect["said"].startswith("Bonuses cancel")
    assert effect["said"] in (ready / "run/report.html").read_text(encoding="utf-8")
    longer = ready.run("choose", "run", "ask.jsonl", "--json").value["pessimism"]
    assert (longer["lists"], longer["alike"], longer["certain"]) == (1, 0, 0)
    assert "No gain over the reference is certain" in longer["said"]
    shown = ready.run("choose", "run", "ask.jsonl")
    assert longer["said"] in " ".join(shown.err.split())
    ready.run(*ALIGN, "--out", "bold", "--confidence", 0.9, "--ball", 3, "--scale", 0)
    bold = ready.run("choose", "bold", "ask.jsonl", "--json").value["pessimism"]
    assert (bold["moved"], bold["certain"], bold["needed"]) == (0, 1, N)
