"""``sordino rank``: from votes to a board whose every number follows from what was paid for."""

import json
import math
import re

import numpy as np
import pytest
from tests.tiers import few

import sordino
from sordino.environments.annotators import simulate_battles
from sordino.privacy.ledger import Ledger

FILES = {"leaderboard.json", "leaderboard.csv", "report.html", "result.json"}


def battles(folder, name="in.jsonl", n=1000, **world):
    rows, ratings = simulate_battles(
        n, **{"seed": 3, "items": 5, "people": 100, "spread": 1.5} | world
    )
    folder.write(name, list(rows))
    return ratings


@pytest.fixture
def voted(folder):
    """A folder with votes, of which the board is known."""
    folder.ratings = battles(folder)
    return folder


def rank(folder, *words, code=0):
    said = folder.run("rank", *words, "--json")
    assert said.code == code, said.err
    return said.value if code == 0 else said.err


def test_a_board_is_planned_released_audited_checked_and_drawn_again(voted):
    voted.ratings = battles(voted, n=3000, people=300)
    plan = rank(voted, "in.jsonl", "--epsilon", 1, "--out", "run", "--updates", 8, "--dry-run")
    assert plan["board"] == {"items": 5, "groups": []}
    assert plan["updates"]["correlated"] < 2 < plan["updates"]["single"] == 8**0.5
    assert plan["forecast"]["estimate"]["correlated"] < plan["forecast"]["estimate"]["single"]
    plan = rank(voted, "in.jsonl", "--epsilon", 1, "--out", "run", "--dry-run")
    assert {*plan["forecast"]} == {"labels", "estimate"}
    assert "updates" not in plan
    assert not (voted / "run").exists()
    told = rank(voted, "in.jsonl", "--epsilon", 1, "--out", "run")
    assert told["noise"] == min(plan["forecast"], key=lambda kind: plan["forecast"][kind]["points"])
    assert {path.name for path in (voted / "run").iterdir()} >= FILES
    best = max(voted.ratings, key=voted.ratings.get)
    items = told["leaderboard"]["items"]
    assert items[0]["name"] == best
    for item in items:  # in twice the band: false alarm below 1e-5
        low, high = item["band"]
        assert abs(voted.ratings[item["name"]] - item["rating"]) < high - low
    assert json.loads((voted / "run/leaderboard.json").read_text())["items"] == items
    assert (voted / "run/leaderboard.csv").read_text().count("\n") == 6
    audit = voted.run("audit", "run", "run", "--json")
    assert audit.code == 0, audit.err
    outcomes = {one["attack"]: one["outcome"] for one in audit.value["findings"]}
    assert outcomes["mechanism"] == outcomes["digests"] == outcomes["report"] == "clear"
    assert voted.run("report", "run", "--force").code == 0
    assert voted.run("check").code == 0


@pytest.mark.parametrize("where", ["result.json", "leaderboard.json"])
def test_a_board_that_does_not_follow_from_what_was_released_is_refuted(voted, where):
    rank(voted, "in.jsonl", "--epsilon", 1, "--out", "run", "--noise", "estimate")
    path = voted / "run" / where
    told = json.loads(path.read_text())
    items = (told["leaderboard"] if where == "result.json" else told)["items"]
    items[0]["rank"], items[1]["rank"] = items[1]["rank"], items[0]["rank"]
    items[0]["rating"] += 0.25
    path.write_text(json.dumps(told))
    assert voted.run("audit", "run", "run").code == 5


def less_noise(path, divisor=4):
    """Let the oldest release of a board say that its noise was less than was drawn."""
    told = json.loads(path.read_text())
    for votes in told["releases"][0]["votes"].values():
        votes["noise"] = [[cell / divisor for cell in row] for row in votes["noise"]]
        votes["count_variance"] /= divisor
    path.write_text(json.dumps(told))


def refuted(folder, run, why="Another noise of the sum"):
    said = folder.run("audit", "run", run, "--ledger", "spend.db", "--json")
    (found,) = (one for one in said.value["findings"] if one["attack"] == "mechanism")
    return (said.code, why in found["summary"])


TERMS = {
    "label": ("--noise", "estimate", "--ties", "half"), "ties": ("--noise", "estimate"),
    "person": ("--unit", "person", "--cap", 4), "groups": ("--noise", "estimate", "--groups", "g"),
    "record": ("--unit", "record", "--items", "model-01,model-02,model-03,model-04,model-05"),
}  # fmt: skip


@pytest.mark.parametrize("terms", few(TERMS, "label", "record"))
def test_less_noise_than_was_drawn_is_refuted_of_any_update(voted, terms):
    rows = [json.loads(line) for line in (voted / "in.jsonl").read_text().splitlines()]
    for week in ("one", "two"):
        fresh = {"question_id": "{} {question_id}", "person": "{} {person}"}
        said = [row | {name: text.format(week, **row) for name, text in fresh.items()} | {"g": "x"}
                for row in rows[:600]]  # fmt: skip
        voted.write(f"{week}.jsonl", said)
    terms = ("--epsilon", 2, "--budget", 20, "--ledger", "spend.db", *TERMS[terms])
    rank(voted, "one.jsonl", *terms, "--out", "one")
    assert refuted(voted, "one") == (0, False)
    less_noise(voted / "one/leaderboard.json", 30)
    assert refuted(voted, "one") == (5, True)
    rank(voted, "two.jsonl", *terms, "--update", "one", "--out", "two")
    assert refuted(voted, "two") == (5, True)


BALLOT = [{"items": ["a", "b", "c"]}]


@pytest.mark.parametrize("noise", ["labels", "estimate", "ballots"])
def test_what_one_person_says_again_is_left_out_and_that_is_said(folder, noise):
    votes = [{"model_a": "a", "model_b": "b", "winner": "model_a", "question_id": n}
             for n in range(50)]  # fmt: skip
    if noise == "ballots":
        votes = [{"ranking": ["a", "c", "b"]} for _ in range(50)]
    rows = [row | {"person": f"p{n}"} for n, row in enumerate(votes) for _ in range(8)]
    folder.write("in.jsonl", (BALLOT if noise == "ballots" else []) + rows)
    words = [] if noise == "ballots" else ["--noise", noise]
    said = folder.run("rank", "in.jsonl", "--epsilon", 4, "--out", "run", *words)
    assert said.code == 0, said.err
    data = json.loads((folder / "run/result.json").read_text())["data"]
    assert (data["pairs"], data["repeats"]) == (50, 350)
    page = re.sub(r"<[^>]*>", "", (folder / "run/report.html").read_text())
    for text in (said.out, page):
        assert "50 without 350 repeats by the same person or beyond" in " ".join(text.split())


@pytest.mark.deep
def test_next_weeks_votes_add_up_and_pay_for_themselves(voted):
    battles(voted, n=3000, people=300)
    terms = ("--unit", "person", "--epsilon", 8, "--ledger", "spend.db")
    rank(voted, "in.jsonl", *terms, "--out", "one")
    rows = [json.loads(line) for line in (voted / "in.jsonl").read_text().splitlines()]
    fresh = [
        row | {"question_id": f"n{at}", "person": f"new {at % 300}"} for at, row in enumerate(rows)
    ]
    voted.write("two.jsonl", fresh)
    told = rank(voted, "two.jsonl", *terms, "--update", "one", "--out", "two")
    assert told["guarantee"]["epsilon"] == pytest.approx(8, rel=1e-3)  # nobody is in both
    assert told["spent"]["person"]["epsilon"] == pytest.approx(8, rel=1e-3)
    first, after = told["leaderboard"]["history"]
    known = json.loads((voted / "one/leaderboard.json").read_text())["items"]
    assert first["items"] == known
    assert after["items"] == told["leaderboard"]["items"]
    widths = [
        sum(i["interval"][1] - i["interval"][0] for i in one["items"]) for one in (first, after)
    ]
    assert widths[1] < widths[0]
    assert voted.run("audit", "run", "two", "--ledger", "spend.db").code == 0
    assert "Over time" in (voted / "two/report.html").read_text()
    voted.write("again.jsonl", [row | {"question_id": f"r{at}"} for at, row in enumerate(rows)])
    refused = rank(voted, "again.jsonl", *terms, "--update", "two", "--out", "three", code=3)
    assert "budget" in refused  # they would have twice as much
    more = ("--update", "two", "--out", "three", "--budget", 40)
    told = rank(voted, "again.jsonl", *terms, *more)
    assert told["guarantee"]["epsilon"] > 10  # of whoever came back
    assert voted.run("audit", "run", "three", "--ledger", "spend.db").code == 0


def by_week(folder, weeks=3):
    """Write the votes of every week, and those of all weeks until then; half the people return."""
    rows = [json.loads(line) for line in (folder / "in.jsonl").read_text().splitlines()][:600]
    for week in range(weeks):
        mine = [row | {"g": "vw"[at // 2 % 2]} | ({"person": f"{at} {week}"} if at % 2 else {})
                for at, row in enumerate(rows) if at * weeks // len(rows) == week]  # fmt: skip
        folder.write(f"{week}.jsonl", mine)
    for week in range(weeks):
        files = [(folder / f"{at}.jsonl").read_text() for at in range(week + 1)]
        (folder / f"until{week}.jsonl").write_text("".join(files))


@pytest.mark.deep
@pytest.mark.parametrize(
    "words", few([["--groups", "g"], ["--unit", "person", "--cap", 3]], first=1)
)
def test_noise_that_is_correlated_over_updates_is_paid_by_everybody_in_them(voted, words):
    by_week(voted)
    terms = ("--epsilon", 4, "--ledger", "spend.db", *words)
    told = rank(voted, "0.jsonl", *terms, "--updates", 3, "--out", "run0", "--budget", 20)
    assert told["guarantee"]["epsilon"] < 4
    assert told["data"]["pairs"] <= 200
    refused = rank(voted, "1.jsonl", *terms, "--update", "run0", "--out", "run1", code=2)
    assert "those of update 1 are not all here" in refused
    rank(voted, "0.jsonl", "1.jsonl", *terms, "--update", "run0", "--out", "run1")
    other = rank(voted, "until2.jsonl", *terms, "--update", "run1", "--updates", 4, "--out", "run2",
                 code=2)  # fmt: skip
    assert "was made for --updates 3" in other
    told = rank(voted, "until2.jsonl", *terms, "--update", "run1", "--out", "run2")
    assert len(told["leaderboard"]["history"]) == told["leaderboard"]["updates"] == 3
    if "person" in words:
        assert 4 < told["guarantee"]["epsilon"] < 20  # of whoever came every week
    else:
        assert 3.9 < told["guarantee"]["epsilon"] <= 4  # a vote is in one week
    assert voted.run("audit", "run", "run2", "--ledger", "spend.db").code == 0
    path = voted / "run2/leaderboard.json"
    board = json.loads(path.read_text())
    board["releases"][-1]["release_ids"].pop()
    path.write_text(json.dumps(board))
    audit = voted.run("audit", "run", "run2", "--ledger", "spend.db", "--json").value["findings"]
    (found,) = (one["summary"] for one in audit if one["attack"] == "mechanism")
    assert "did not pay" in found


@pytest.mark.parametrize(
    ("words", "then", "why"),
    few([(("--unit", "person", "--cap", 3), ("--cap", 2), "the same votes again"),
     ((), ("--data", "weeks"), "named data set"), ((), ("--updates", 3), "made for --updates 2"),
     (("--unit", "person", "--cap", 3), ("--epsilon", 3), "the same votes again"),
     ((), ("--groups", "g"), "the same votes again"),
     (("--groups", "g"), ("--groups", "question_id"), "the same votes again")], first=3),
)  # fmt: skip
def test_planned_updates_whose_votes_would_not_add_up_are_refused(voted, words, then, why):
    by_week(voted, weeks=2)
    terms = ("--epsilon", 4, "--ledger", "spend.db", "--budget", 20, *words)
    rank(voted, "0.jsonl", *terms, "--updates", 2, "--out", "run0")
    paid = len(Ledger.read(voted / "spend.db").rows)
    refused = rank(voted, "until1.jsonl", *terms, *then, "--update", "run0", "--out", "run1",
                   code=2)  # fmt: skip
    assert why in refused
    assert len(Ledger.read(voted / "spend.db").rows) == paid


def test_no_update_follows_those_that_were_planned_and_no_question_is_asked_in_two(voted):
    by_week(voted)
    terms = ("--epsilon", 4, "--ledger", "spend.db", "--budget", 20)
    rank(voted, "0.jsonl", *terms, "--updates", 2, "--out", "run0")
    again = [json.loads(line) for line in (voted / "0.jsonl").read_text().splitlines()][:1]
    voted.write("twice.jsonl", [row | {"person": "another"} for row in again])
    twice = ("0.jsonl", "1.jsonl", "twice.jsonl")
    refused = rank(voted, *twice, *terms, "--update", "run0", "--out", "run1", code=2)
    assert "asked in two of the planned updates" in refused
    rank(voted, "until1.jsonl", *terms, "--update", "run0", "--out", "run1")
    refused = rank(voted, "until2.jsonl", *terms, "--update", "run1", "--out", "run2", code=2)
    assert "All 2 updates that were planned are made" in refused


def test_votes_that_are_on_the_board_already_do_not_count_again(voted):
    by_week(voted, weeks=2)
    terms = ("--epsilon", 4, "--ledger", "spend.db", "--noise", "estimate")
    rank(voted, "0.jsonl", *terms, "--out", "one")
    told = rank(voted, "until1.jsonl", *terms, "--update", "one", "--out", "two")
    assert (told["data"]["pairs"], told["data"]["left_out"]) == (600, 300)
    assert told["guarantee"]["epsilon"] == pytest.approx(4, rel=1e-3)  # each vote is in one update
    refused = rank(voted, "until1.jsonl", *terms, "--update", "two", "--out", "more", code=2)
    assert "on the board already" in refused


@pytest.mark.parametrize(
    ("words", "why"),
    [(("--noise", "labels"), "no noise can be saved"), (("--unit", "person"), "needs --cap"),
     (("--unit", "record", "--items", "x,y"), "nor which update it is of"),
     (("--engine", "process"), "read at once"), (("--no-persons",), "know these votes again")],
)  # fmt: skip
def test_where_no_noise_can_be_correlated_it_is_refused(folder, words, why):
    rows = [{"model_a": "x", "model_b": "y", "winner": "model_a", "person": "p"}] * 4
    folder.write("bare.jsonl", rows)
    assert why in rank(folder, "bare.jsonl", "--epsilon", 1, "--updates", 4, *words, "--out", "run",
                       code=2)  # fmt: skip
    assert not (folder / "run").exists()


def test_groups_style_anchor_and_ties_are_on_one_board(voted):
    rows = [json.loads(line) for line in (voted / "in.jsonl").read_text().splitlines()]
    rows = [
        row
        | {
            "prompt": row.pop("question_id"),
            "response_a": "word " * (at % 7),
            "response_b": "- a\n- b",
        }
        | {"category": ["code", "talk"][at % 2]}
        for at, row in enumerate(rows)
    ]
    voted.write("texts.jsonl", rows)
    words = ("--groups", "category", "--style", "length,lists", "--anchor", "model-01=700")
    told = rank(voted, "texts.jsonl", "--epsilon", 4, "--out", "run", *words)
    board = told["leaderboard"]
    assert set(board["groups"]) == {"code", "talk"}
    assert [row["name"] for row in board["style"]] == ["length", "lists"]
    points = {item["name"]: item["points"] for item in board["items"]}
    assert points["model-01"] == pytest.approx(700)
    assert board["tie_rate"] > 0
    assert json.loads((voted / "run/leaderboard.json").read_text())["releases"][0]["styles"]


def test_votes_that_do_not_count_are_not_told_as_votes(voted):
    rows = [json.loads(line) for line in (voted / "in.jsonl").read_text().splitlines()]
    voted.write("twice.jsonl", rows + rows[:50])
    told = rank(voted, "twice.jsonl", "--epsilon", 4, "--noise", "estimate", "--out", "run")
    assert told["data"]["pairs"] == len(rows)
    capped = ("--unit", "person", "--cap", 2, "--ledger", "other.db", "--out", "capped")
    told = rank(voted, "twice.jsonl", "--epsilon", 4, *capped)
    people = [row["person"] for row in rows]
    assert told["data"]["pairs"] == sum(min(people.count(who), 2) for who in set(people))


def test_a_tie_may_be_half_a_win(voted):
    told = rank(voted, "in.jsonl", "--epsilon", 4, "--out", "run", "--ties", "half")
    assert told["leaderboard"]["tie_rate"] is None
    assert "ties" not in told["mechanism"] or not told["mechanism"]["ties"]


def test_weeks_that_arrive_randomized_are_believed_each_by_its_own_coin(folder):
    """Together they promise 2; a coin of 1 is not fewer flips than was paid for."""
    for week in "ab":
        rows, _ = simulate_battles(600, seed=ord(week), items=4, people=None, spread=1.0)
        named = [row | {"question_id": week + row["question_id"]} for row in rows]
        folder.write(f"{week}.jsonl", named)
        paid = ("--epsilon", 1, "--ledger", f"{week}.db")
        assert (
            folder.run("privatize", f"{week}.jsonl", "--out", f"{week}.out.jsonl", *paid).code == 0
        )
    rank(folder, "a.out.jsonl", "--out", "first")
    told = rank(folder, "b.out.jsonl", "--update", "first", "--out", "second")
    assert told["guarantee"]["epsilon"] == pytest.approx(2)
    audit = folder.run("audit", "run", "second", "--json")
    assert audit.code == 0, audit.err


def test_randomized_votes_are_ranked_for_nothing_further(voted):
    made = voted.run("privatize", "in.jsonl", "--epsilon", 2, "--out", "answers.jsonl")
    assert made.code == 0, made.err
    told = rank(voted, "answers.jsonl", "--out", "run")
    assert told["noise"] == "labels"
    assert voted.run("audit", "run", "run").code in (0, 6)
    refused = rank(voted, "answers.jsonl", "--update", "run", "--out", "again", code=2)
    assert "would count twice" in refused
    direct = rank(voted, "in.jsonl", "--epsilon", 2, "--noise", "labels", "--out", "direct")
    assert direct["guarantee"]["delta"] == 0
    assert voted.run("audit", "run", "direct").code == 0


def test_records_need_declared_items_and_tell_no_number_of_votes(voted):
    words = ("in.jsonl", "--unit", "record", "--epsilon", 4, "--neighbors", "add-remove")
    refused = rank(voted, *words, "--out", "run", code=2)
    assert "--items" in refused
    names = ",".join(voted.ratings)
    told = rank(voted, *words, "--out", "run", "--items", names)
    assert told["data"]["pairs"] is None
    assert told["seconds"] is None
    assert voted.run("audit", "run", "run").code == 0


def seen(folder, run):
    """All that is told of a run but what was drawn, and what follows from it."""
    told = json.loads((folder / run / "leaderboard.json").read_text())
    result = json.loads((folder / run / "result.json").read_text())
    drawn = {"statistic", "ties"}
    return (
        told["anchor"],
        sorted((item["name"], item["component"]) for item in told["items"]),
        [
            {group: {name: votes[name] for name in votes.keys() - drawn
                     if name != "counts" or not votes["count_variance"]}
             for group, votes in one["votes"].items()}
            for one in told["releases"]
        ],
        {name: result[name] for name in ("guarantee", "caveats", "mechanism", "data", "noise")},
        {path.name for path in (folder / run).iterdir()},
        [(row.kind, row.parameters) for row in Ledger.read(folder / f"{run}.db").rows],
    )  # fmt: skip


@pytest.mark.parametrize("words", few([
    ["--noise", "estimate"], ["--unit", "person", "--cap", 3], ["--noise", "labels"],
    ["--groups", "category", "--noise", "estimate"],
], first=2))  # fmt: skip
def test_nothing_but_the_released_sum_depends_on_who_won(voted, words):
    rows = [json.loads(line) for line in (voted / "in.jsonl").read_text().splitlines()][:120]
    runs = []
    for name, won in (("as it was", None), ("one wins", "best"), ("all tied", "tie"), ("bad", "b")):
        said = []
        for at, row in enumerate(rows):
            pair = sorted((row["model_a"], row["model_b"]))
            who = {None: row["winner"], "best": pair[0], "b": "tie (bothbad)"}.get(won, won)
            said.append(row | {"winner": who, "category": "xy"[at % 2]})
        voted.write("votes.jsonl", said)
        told = ("votes.jsonl", "--epsilon", 4, "--ledger", f"{name}.db", "--out", name, *words)
        plan = rank(voted, *told, "--dry-run")
        rank(voted, *told)
        runs.append((plan, seen(voted, name)))
    assert all(run == runs[0] for run in runs[1:])


@pytest.mark.parametrize("relation", few(["add-remove", "replace", "zero-out"], first=2))
def test_no_record_decides_how_many_votes_a_board_tells(voted, relation):
    rows = [json.loads(line) for line in (voted / "in.jsonl").read_text().splitlines()][:200]
    other = [dict(row) for row in rows]
    other[7]["model_a"] = other[7]["model_b"]  # it met itself
    known = None if relation == "add-remove" else 200
    for name, said in (("one", rows), ("other", other)):
        voted.write(f"{name}.jsonl", said)
        (voted / f"{name}s").mkdir()
        for part in (0, 1):
            voted.write(f"{name}s/{part}.jsonl", said[part::2])
        for source in (f"{name}.jsonl", f"{name}s"):
            words = ("--unit", "record", "--epsilon", 4, "--neighbors", relation, "--items")
            words = (source, *words, ",".join(voted.ratings), "--out", f"{source}.run")
            plan = voted.run("rank", *words, "--ledger", f"{source}.db", "--dry-run")
            assert plan.code == 0, plan.err
            told = rank(voted, *words, "--ledger", f"{source}.db")
            assert told["data"]["pairs"] == known
            if source == f"{name}.jsonl":
                again = rank(voted, *words, "--ledger", "new.db", "--force", "--dry-run")
                assert again["votes"] == known


def test_votes_that_cannot_be_added_to_a_board_are_refused_before_anything_is_spent(voted):
    battles(voted, "next.jsonl", seed=4)
    terms = ("next.jsonl", "--epsilon", 1, "--noise", "estimate", "--out", "two")
    rank(voted, "in.jsonl", *terms[1:-1], "one", "--ledger", "spend.db")
    paid = Ledger.read(voted / "spend.db").head
    for words, said in (
        (("--ledger", "other.db"), "did not pay for the board"),
        (("--ledger", "spend.db", "--ties", "half"), "counts ties otherwise"),
        (("--ledger", "spend.db", "--noise", "labels"), "another coin"),
        (("--ledger", "spend.db", "--anchor", "nobody=1"), "not among the items"),
    ):
        refused = voted.run("rank", *terms, "--update", "one", "--budget", 50, *words)
        assert (refused.code, said in refused.err) == (2, True), refused.err
        assert "Nothing was released" in refused.err
    assert Ledger.read(voted / "spend.db").head == paid
    assert not (voted / "other.db").exists()
    assert not (voted / "two").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--noise", "labels", "--groups", "x"], "--groups"),
        (["--noise", "labels", "--ties", "davidson"], "--ties davidson"),
        (["--style", "loud"], "--style"),
        (["--anchor", "model-01=high"], "--anchor"),
        (["--items", "one"], "--items"),
        (["--unit", "record", "--items", "a,b", "--groups", "x"], "--groups"),
        (["--cap", "3"], "--cap"),
    ],
)
def test_settings_that_cannot_be_met_are_refused_before_a_file_is_opened(folder, words, said):
    found = folder.run("rank", "nowhere.jsonl", "--epsilon", 1, "--out", "run", *words)
    assert found.code == 2
    assert said in found.err
    assert "Nothing was done" in found.err
    assert not (folder / "run").exists()


def test_bad_votes_are_named_before_anything_is_spent(voted):
    rows = [json.loads(line) for line in (voted / "in.jsonl").read_text().splitlines()]
    voted.write("words.jsonl", [*rows[:5], rows[5] | {"winner": "sideways"}])
    found = voted.run("rank", "words.jsonl", "--epsilon", 1, "--out", "run")
    assert found.code == 4
    assert "sideways" not in found.err
    assert "tie" in found.err  # of the words that are known
    assert not (voted / "run").exists()


def test_a_model_with_wins_only_is_finite_and_open_upwards_and_parts_are_said(folder):
    rows = []
    for at in range(1200):
        pair = [("best", "mid"), ("mid", "low"), ("one", "other")][at % 3]
        won = "model_a" if at % 3 == 0 or at % 4 < 3 else "model_b"
        rows.append({"question_id": at, "model_a": pair[0], "model_b": pair[1], "winner": won})
    folder.write("in.jsonl", rows)
    told = rank(folder, "in.jsonl", "--epsilon", 8, "--out", "run")
    items = {item["name"]: item for item in told["leaderboard"]["items"]}
    assert items["best"]["rank"][0] == 1
    assert items["best"]["rating"] is not None
    assert items["best"]["interval"][1] is None
    assert items["one"]["component"] != items["mid"]["component"]
    assert "never met" in told["verdict"]["says"]


def test_the_call_is_the_commands_own_run_and_gives_a_board(folder):
    rows, _ = simulate_battles(400, seed=0, items=4)
    board = sordino.rank(list(rows), epsilon=2, ledger=folder / "spend.db", simulate_seed=0)
    assert board.guarantee.simulated
    assert board.win_rates.shape == (4, 4)
    board.save(folder / "saved")
    assert {path.name for path in (folder / "saved").iterdir()} == FILES
    assert "SIMULATED" in board._repr_html_()
    assert "SIMULATED" in board.report
    pytest.importorskip("pandas")
    assert list(board.to_frame()["competitors"]) == [board.items[i] for i in board.order]


def test_files_that_are_read_in_pieces_make_the_same_kind_of_board(folder):
    ratings = battles(folder, "a.jsonl", n=400)
    rows = [json.loads(line) for line in (folder / "a.jsonl").read_text().splitlines()]
    folder.write("b.jsonl", [row | {"question_id": f"r{at}"} for at, row in enumerate(rows)])
    both = ("a.jsonl", "b.jsonl", "--epsilon", 2, "--out", "run")
    assert "--items" in rank(folder, *both, code=2)
    told = rank(folder, *both, "--items", ",".join(ratings))
    assert told["data"]["pairs"] == 800
    assert folder.run("audit", "run", "run").code == 0


@pytest.mark.parametrize("each", [[1] * 300 + [400], [6] * 400, [1] * 50 + [60] * 40])
def test_as_many_votes_of_a_person_count_as_serve_the_board_best(each, folder):
    """By the variance written out for every bound; one who votes all day does not set the noise."""
    rows, k = [], 8
    for person, votes in enumerate(each):
        for vote in range(votes):
            names = {"model_a": f"m{vote % k}", "model_b": f"m{(vote + 1 + person % (k - 1)) % k}"}
            rows.append({"question_id": f"q{vote}-{person}", "person": f"p{person}", **names})
            rows[-1]["winner"] = "model_a"
    folder.write("in.jsonl", rows)
    terms = ("--unit", "person", "--epsilon", 2, "--noise", "estimate")
    plan = rank(folder, "in.jsonl", *terms, "--out", "run", "--dry-run")
    noise = plan["mechanism"]

    def variance(most):
        known = sum(min(votes, most) for votes in each) / (2 * k)
        moved = most * (1 + 2 * (most - 1) / k)  # two votes share 4/k items
        return (known + 2 * moved / noise["mu"] ** 2) / known**2

    assert noise["records_per_person"] == min(range(1, max(each) + 1), key=variance)


# --- ballots --------------------------------------------------------------------------------------

ITEMS = ("ale", "beer", "cola", "milk", "tea", "wine")


def elect(folder, name, n=1000, *, week=0, says=None):
    """Short ballots over three to five of the first five items; nobody is offered wine."""
    rng, worth = (
        np.random.default_rng(week),
        dict(zip(ITEMS, (1.5, 0.7, 0, -0.7, -1.5), strict=False)),
    )
    rows = [{"items": list(ITEMS)}]
    for at in range(n):
        offered = sorted(rng.choice(ITEMS[:5], rng.integers(3, 6), replace=False).tolist())
        when = {name: rng.exponential(np.exp(-worth[name])) for name in offered}
        listed = sorted(offered, key=when.get)[: rng.integers(0, 4)]
        told = {None: listed, "nothing": [], "turned": offered[::-1], "tied": [offered]}[says]
        rows.append({"ranking": told, "offered": offered, "person": f"{week} {at}"})
    folder.write(name, rows)


def test_short_ballots_make_a_board_that_goes_on_and_is_audited(folder):
    terms = ("--epsilon", 2, "--budget", 4, "--ledger", "spend.db")
    elect(folder, "one.jsonl")
    elect(folder, "two.jsonl", week=1)
    plan = rank(folder, "one.jsonl", *terms, "--out", "run", "--dry-run")
    assert plan["mechanism"]["counted"] is True
    one = rank(folder, "one.jsonl", *terms, "--out", "run")
    assert one["data"]["pairs"] == 1000
    told = rank(folder, "two.jsonl", *terms, "--update", "run", "--out", "both")
    items = told["leaderboard"]["items"]
    assert [item["name"] for item in items] == list(ITEMS)
    assert (items[5]["rating"], items[5]["rank"]) == (None, [1, 1])  # nobody was offered it
    for item, worth in zip(items, (1.5, 0.7, 0, -0.7, -1.5), strict=False):
        low, high = item["band"]
        assert abs(item["rating"] - worth) < high - low
    assert "1,000 ballots" in (folder / "run/report.html").read_text()
    again = rank(folder, "one.jsonl", *terms, "--update", "both", "--out", "more", code=2)
    assert "on the board already" in again
    for run in ("run", "both"):
        assert refuted(folder, run) == (0, False)
    path = folder / "both/leaderboard.json"
    kept = path.read_text()
    less_noise(path)
    assert refuted(folder, "both") == (5, True)
    told = json.loads(kept)
    votes = told["releases"][0]["votes"][""]
    for less, said in ((2, "Another noise of the sum"), (math.inf, "tells it as it was")):
        known = votes | {"count_variance": votes["count_variance"] / less}
        told["releases"][0]["votes"][""] = known  # comparisons, better than was paid for
        path.write_text(json.dumps(told))
        assert refuted(folder, "both", said) == (5, True)


def test_nothing_but_the_released_sum_depends_on_what_a_ballot_lists(folder):
    runs = []
    for at, says in enumerate((None, "nothing", "turned", "tied")):
        elect(folder, "in.jsonl", 60, says=says)
        told = ("in.jsonl", "--epsilon", 4, "--ledger", f"run{at}.db", "--out", f"run{at}")
        plan = rank(folder, *told, "--dry-run")
        rank(folder, *told)
        runs.append((plan, seen(folder, f"run{at}")))
    for run in runs[1:]:
        assert run == runs[0]


def test_what_is_not_known_of_ballots_is_refused_before_anything_is_spent(voted):
    elect(voted, "ballots.jsonl", 60)
    voted.write("own.jsonl", [{"prompt": "p", "candidates": ["x", "y", "z"], "ranking": [1]}])
    terms = ("--epsilon", 1, "--ledger", "spend.db", "--budget", 9, "--out")
    rank(voted, "in.jsonl", *terms, "one", "--noise", "estimate", "--ties", "half")
    paid = Ledger.read(voted / "spend.db").head
    for words, said in (
        (["ballots.jsonl", "--unit", "record", "--items", ",".join(ITEMS)], "Use --unit label"),
        (["ballots.jsonl", "--groups", "offered"], "--groups"),
        (["ballots.jsonl", "--style", "all"], "--style"),
        (["ballots.jsonl", "--ties", "davidson"], "--ties davidson"),
        (["ballots.jsonl", "--noise", "labels"], "--noise labels"),
        (["ballots.jsonl", "--all-offered", "--named-offered"], "exclude each other"),
        (["ballots.jsonl", "--update", "one"], "of ballots where this is of votes"),
        (["in.jsonl", "--all-offered"], "only ballots over items"),
        (["own.jsonl"], "Learn a reward: sordino align --noise estimate."),
    ):
        found = voted.run("rank", *words, *terms, "run")
        assert (found.code, said in found.err) == (2, True), found.err
    assert Ledger.read(voted / "spend.db").head == paid
    assert not (voted / "run").exists()


def test_ballots_in_memory_and_of_persons(folder):
    rows = [{"items": list(ITEMS)}]
    rows += [{"ranking": list(ITEMS[at % 3 :]), "person": f"p{at}"} for at in range(300)]
    known = {"epsilon": 4, "ledger": folder / "a.db", "simulate_seed": 1}
    board = sordino.rank(rows, unit="person", named_offered=True, **known)
    assert board.result["mechanism"]["records_per_person"] == 1
    assert "named-offered" in board.guarantee.caveats
    assert [board.items[i] for i in board.order][2:] == list(ITEMS[2:])
    same = sordino.read_rankings(rows, offered="named")
    known["ledger"] = folder / "b.db"
    other = sordino.rank(same, unit="person", **known)
    assert other.ratings.tolist() == board.ratings.tolist()
