"""Thumbs and ratings from outside: the commands take them as they take pairs."""

import json

import numpy as np
import pytest
from tests.tiers import few

from .conftest import refused

GOOD = "A long and helpful answer, because it says more than the question asks for. "
BAD = ("No.", "I am sorry, I cannot.", "Why do you ask?")


@pytest.fixture(scope="module")
def rows():
    """One answer in two is good, and nearly always liked; good and bad ones to every prompt."""
    rng = np.random.default_rng(0)
    made = []
    for n in range(300):
        text = f"{GOOD * int(rng.integers(1, 4)) if n % 2 else BAD[n % 3]} {n}"
        liked = bool(rng.random() < (0.9 if n % 2 else 0.1))
        one = {"prompt": f"question {n // 2}?", "completion": text, "liked": liked}
        made.append(one | {"family": "chat" if n < 150 else "code"})
    return made


@pytest.fixture
def files(rows, folder):
    plain = ("prompt", "completion", "family")
    folder.write("t.jsonl", [{n: r[n] for n in plain} | {"label": r["liked"]} for r in rows])
    rated = [{n: r[n] for n in plain[:2]} | {"rating": 5 if r["liked"] else 2} for r in rows]
    folder.write("r.jsonl", rated)
    folder.write("q.jsonl", [{"prompt": "q?", "candidates": ["No. 3", GOOD]}])
    return folder


@pytest.mark.parametrize(
    ("data", "more", "weights"),
    few(
        [
            ("t.jsonl", ["--intercept", "family"], 30),
            ("t.jsonl", ["--intercept", "none"], 28),
            ("t.jsonl", ["--noise", "estimate"], 29),
            (
                "t.jsonl",
                ["--noise", "estimate", "--engine", "process", "--intercept", "family"],
                30,
            ),
            ("r.jsonl", ["--levels", "1..5"], 29),
            ("r.jsonl", ["--levels", "1..5", "--ratings", "pairs"], 28),
        ],
        first=3,
    ),
)
def test_a_reward_of_single_answers_chooses_between_two(data, more, weights, files):
    spend = ["--epsilon", "8", "--dimension", "28", "--ledger", "spend.db", "--out", "run"]
    said = files.run("align", data, *more, *spend, "--json")
    assert said.code == 0, said.err
    alone = "pairs" not in more
    assert said.value["data"].get("judged") == ("answers" if alone else None)
    assert (said.value["policy"]["win_rate"] is None) == alone
    assert len(json.loads((files / "run/reward.json").read_bytes())["weights"]) == weights
    page = (files / "run/report.html").read_text(encoding="utf-8")
    assert ("Learned from 300 answers" in page) == alone
    (chosen,) = files.run("choose", "run", "q.jsonl", "--json").value["choices"]
    better = chosen["probability"] if chosen["answer"] == GOOD else 1 - chosen["probability"]
    assert better > 0.7


@pytest.mark.parametrize(
    ("code", "command", "said"),
    [
        (4, "align r.jsonl --out x --epsilon 1", "must be declared"),
        (2, "privatize r.jsonl --out x.jsonl --epsilon 1 --levels 5", "1..5"),
        (2, "align t.jsonl --out x --epsilon 1 --noise estimate --unit record --intercept family",
         "Use --intercept one"),
        (2, ("align r.jsonl --out x --epsilon 1 --noise estimate --engine process --levels 1..5 "
         "--ratings pairs"), "different pieces"),
        pytest.param(4, "language tiny t.jsonl --out x", "comparisons of two",
                     marks=pytest.mark.deep),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_said(code, command, said, files):
    refused(files, command.split(), code, said)


def test_answers_in_pieces_are_fitted_with_a_bar_for_each_family(files):
    words = ["t.jsonl", "--epsilon", "2", "--engine", "process", "--out", "private"]
    assert files.run("privatize", *words, "--ledger", "s.db").code == 0
    fitting = ["--dimension", "28", "--intercept", "family", "--out", "reward.json"]
    assert files.run("fit", "private", *fitting).code == 0
    told = json.loads((files / "reward.json").read_bytes())["features"]
    assert told["families"] == ["chat", "code"]


@pytest.mark.parametrize("noise", few(["labels", "estimate"], first=1))
def test_what_is_liked_anyhow_is_told_beside_a_reward_and_is_its_peer(folder, noise):
    """Nothing tells answers apart, and four of five are liked: no reward is better than that."""
    draw = np.random.default_rng(3)
    rows = [
        {"prompt": f"q{n}", "completion": f"an answer, {n}", "label": bool(draw.random() < 0.8)}
        for n in range(3000)
    ]
    folder.write("in.jsonl", rows[:2400])
    folder.write("public.jsonl", rows[2400:])
    words = ["--epsilon", "4", "--evaluate", "public.jsonl", "--simulate-seed", "1"]
    said = folder.run("align", "in.jsonl", "--noise", noise, *words, "--out", "out", "--json")
    told = said.value
    share, error = (told["reward"][name] for name in ("likes", "likes_standard_error"))
    true = np.mean([row["label"] for row in rows[:2400]])
    assert 0 < error < 0.03
    assert abs(share - true) <= 3 * error
    assert told["public_evaluation"]["likes"] == np.mean([row["label"] for row in rows[2400:]])
    assert told["verdict"]["word"] == "not better than a guess"
    assert "always the same answer gives" in told["verdict"]["says"]
    assert "always saying the same" in (folder / "out/report.html").read_text()
