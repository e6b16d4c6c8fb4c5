"""A win rate says what it is: how sure, at which lengths, and what its judge was promised."""

import json
import math
import sys

import numpy as np
import pytest
from scipy.special import expit

import sordino
from sordino.errors import DataError, UsageError
from sordino.language.judging import CommandJudge, _length_matched_share, _share, win_rate


def by_length(prompts, answers):
    return np.array([float(len(answer)) for answer in answers])


def share_won(won, clusters):
    even = np.full(len(won), 1 / len(won))
    return _share(won, even, np.zeros(len(won), int), clusters)


def one_each(n):
    return [f"prompt {i}" for i in range(n)]


class Promised:
    """A judge that says what its labels were promised."""

    def __init__(self, epsilon):
        self.guarantee = sordino.Guarantee(
            epsilon, delta=0.0, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
        )

    def score(self, prompts, answers):
        return by_length(prompts, answers)


def test_wins_and_ties_are_counted():
    found = win_rate(by_length, one_each(4), ["aaa", "a", "bb", "b"], ["a", "aa", "aa", "b"])
    assert (found.mean, found.n, found.ties, found.prompts) == (0.5, 4, 2, 4)
    assert (found.mean_length, found.reference_length) == (1.75, 1.5)
    assert 0 < found.low < 0.5 < found.high < 1


def test_the_same_answer_is_a_tie_whatever_the_judge_says():
    noise = np.random.default_rng(0)
    found = win_rate(lambda p, a: noise.normal(size=len(a)), one_each(50), ["a"] * 50, ["a"] * 50)
    assert (found.mean, found.ties) == (0.5, 50)
    assert found.low < 0.45, "fifty ties say little of what is to come"


def test_an_interval_is_wilsons():
    """30 of 100: 1.96 is the normal quantile, and ours are a little wider."""
    won = np.repeat([1.0, 0.0], [30, 70])
    share = share_won(won, np.arange(100))
    assert share.low == pytest.approx(0.2189, abs=0.005)
    assert share.high == pytest.approx(0.3958, abs=0.005)
    perfect = share_won(np.ones(100), np.arange(100))
    assert perfect.mean == perfect.high == 1
    assert perfect.low == pytest.approx(0.963, abs=0.002)


@pytest.mark.parametrize(("n", "chance"), [(30, 0.5), (100, 0.7), (100, 0.95), (500, 0.7)])
def test_the_interval_covers(n, chance):
    """1,000 seeded runs at 95 %: a right interval covers fewer than 925 times once in 3,000."""
    rng = np.random.default_rng(1)
    shares = [share_won((rng.random(n) < chance).astype(float), np.arange(n)) for _ in range(1000)]
    assert sum(share.low <= chance <= share.high for share in shares) >= 925


@pytest.mark.parametrize(("prompts", "each"), [(12, 8), (60, 4)])
def test_the_interval_covers_where_prompts_repeat(prompts, each):
    """As above; without the clusters it would cover 84 % of the time or less."""
    rng = np.random.default_rng(2)
    covered = naive = 0
    groups = np.repeat(np.arange(prompts), each)
    for _ in range(1000):
        chances = rng.beta(1.4, 0.6, size=prompts)[groups]
        won = (rng.random(len(groups)) < chances).astype(float)
        share = share_won(won, groups)
        covered += share.low <= 0.7 <= share.high
        share = share_won(won, np.arange(len(won)))
        naive += share.low <= 0.7 <= share.high
    assert covered >= 925
    assert naive < 880


def test_repeating_everything_adds_nothing():
    prompts, ours, others = one_each(40), ["aa"] * 24 + ["a"] * 16, ["b"] * 24 + ["bb"] * 16
    once = win_rate(by_length, prompts, ours, others)
    often = win_rate(by_length, prompts * 10, ours * 10, others * 10)
    assert (often.n, often.prompts) == (400, 40)
    assert often.high - often.low == pytest.approx(once.high - once.low, rel=0.03)


def test_independent_answers_to_one_prompt_count_each():
    rng = np.random.default_rng(5)
    won = (rng.random(400) < 0.6).astype(float)
    apart = share_won(won, np.arange(400))
    together = share_won(won, np.repeat(np.arange(40), 10))
    assert together.high - together.low < 1.5 * (apart.high - apart.low), "40 alone: 3.1 times"


def answers_of(log_lengths):
    return ["x" * round(100 * math.exp(size)) for size in log_lengths]


def test_a_judge_of_length_alone_wins_nothing_at_matched_lengths():
    """A policy that writes half as much again as the reference, most of the time."""
    rng = np.random.default_rng(3)
    ours, others = answers_of(rng.normal(0.6, 0.3, 2000)), answers_of(rng.normal(0, 0.2, 2000))
    found = win_rate(by_length, one_each(2000), ours, others)
    assert found.mean > 0.9
    assert found.length_matched.mean == pytest.approx(0.5, abs=0.02)
    assert found.length_matched.low < 0.5 < found.length_matched.high
    assert found.length_matched.n < found.n


@pytest.mark.parametrize("slope", [0.0, 3.0])
def test_matching_removes_length_and_keeps_quality(slope):
    """The truth is the mean over lengths ±s; 400 runs cover fewer than 365 once in 2,000."""
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(400):
        ratios = rng.normal(0.4, 0.6, size=300)
        won = (rng.random(300) < expit(slope * ratios)).astype(float)
        share = _length_matched_share(won, ratios, np.arange(300))
        covered += share.low <= 0.5 <= share.high
    assert covered >= 365
    ratios = rng.normal(0.4, 0.6, size=20_000)
    won = (rng.random(20_000) < expit(1 + slope * ratios)).astype(float)
    share = _length_matched_share(won, ratios, np.arange(20_000))
    assert 0.64 < share.mean < 0.76, "sigma(1) is .731; plain, slope 3 gives .83"
    assert slope == 0 or won.mean() > 0.8


def test_lengths_that_cannot_be_matched_are_said_so():
    longer = win_rate(by_length, one_each(50), ["xxxx"] * 50, ["xxx"] * 50)
    assert longer.length_matched is None
    assert "length-matched not known" in str(longer)
    equal = win_rate(lambda p, a: np.array([x == "a" for x in a]), one_each(50), "a" * 50, "b" * 50)
    assert (equal.length_matched.mean, equal.length_matched.n) == (1.0, 50)


def test_one_prompt_alone_says_nothing():
    found = win_rate(by_length, ["p"] * 20, ["aa"] * 20, ["a"] * 20)
    assert (found.low, found.high) == (0, 1)


def test_empty_answers_and_messages_have_lengths():
    said = [[{"role": "assistant", "content": "abc"}]]
    found = win_rate(lambda p, a: np.zeros(1), [[{"role": "user", "content": "p"}]], said, [""])
    assert (found.mean_length, found.reference_length) == (3, 0)


def test_a_judge_of_unprotected_labels_is_named():
    arguments = (one_each(2), ["aa", "a"], ["a", "aa"])
    found = win_rate(Promised(math.inf).score, *arguments)
    assert "publish it only if the judge's labels are public" in str(found)
    assert found.to_dict()["judge_guarantee"]["epsilon"] == "inf"
    protected = str(win_rate(Promised(2.0).score, *arguments))
    assert "epsilon=2" in protected
    assert "publish" not in protected
    assert win_rate(by_length, *arguments).guarantee is None


def test_numbers_fit_json():
    found = win_rate(Promised(1.0).score, one_each(20), ["aa", "b"] * 10, ["a", "bb"] * 10)
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert set(values["length_matched"]) == {"mean", "low", "high", "n"}
    assert win_rate(by_length, ["p"], ["aa"], ["b"]).to_dict()["length_matched"] is None
    assert {"mean", "low", "high", "n", "ties", "prompts", "confidence"} < set(values)
    assert values["judge_guarantee"]["caveats"] == []
    assert "guarantee" not in values  # which would be read as that of the policy


@pytest.mark.parametrize(
    "judge",
    [lambda p, a: np.zeros(3), lambda p, a: np.full(2, np.nan), lambda p, a: ["x", "y"],
     lambda p, a: np.zeros((2, 1))],
)  # fmt: skip
def test_what_no_judge_says_is_refused(judge):
    with pytest.raises(DataError, match="judge"):
        win_rate(judge, one_each(2), ["a", "b"], ["c", "d"])


def test_columns_must_fit():
    for columns in (([], [], []), (["p"], ["a"], []), (["p"], ["a", "b"], ["a", "b"])):
        with pytest.raises(DataError, match="as many and at least one"):
            win_rate(by_length, *columns)


def program(body):
    return [
        sys.executable,
        "-c",
        f"import sys, json\nrows = list(map(json.loads, sys.stdin))\n{body}",
    ]


LONGER = program(
    "for row in rows:\n"
    "    p = .9 if len(row['first']) > len(row['second']) else .2\n"
    "    print(json.dumps({'preference': p}))"
)


def test_a_command_judges():
    ours, others = ["aaa", "b", "ccc"], ["a", "bb", "é"]
    judge = CommandJudge(LONGER, timeout=60, seed=0)
    chances = judge.preferences(one_each(3), ours, others)
    turned = [0.8, 0.1, 0.8]
    straight = [0.9, 0.2, 0.9]
    assert all(
        min(abs(chance - one), abs(chance - other)) < 1e-12
        for chance, one, other in zip(chances, turned, straight, strict=True)
    )
    found = win_rate(judge, one_each(3), ours, others)
    assert found.mean == pytest.approx(chances.mean())


def test_a_judge_who_likes_a_position_is_no_help():
    """1,000 fair coins are 100 away from one half once in 10 billion times."""
    judge = CommandJudge(program("print('{\"preference\": 1}\\n' * len(rows), end='')"))
    found = win_rate(judge, one_each(1000), ["a"] * 1000, ["b"] * 1000)
    assert 0.4 < found.mean < 0.6


def test_no_shell_reads_the_command(tmp_path):
    mark = tmp_path / "mark"
    body = "print(json.dumps({'preference': float(sys.argv[1].startswith('$('))}))"
    judge = CommandJudge([*program(body), f"$(touch {mark}); touch {mark}"])
    judge.preferences(["p"], ["a"], ["b"])
    assert not mark.exists()


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        ("sys.exit(3)", UsageError, "ended with status 3"),
        ("import time; time.sleep(60)", UsageError, "did not finish in 1 seconds"),
        ("print('{\"preference\": 1}')", DataError, "1 lines for 2 rows"),
        ("print('{\"preference\": 1}\\nsecret')", DataError, "line 2 is not an object"),
        ('print(\'{"preference": 1}\\n{"preference": 1.1}\')', DataError, "line 2"),
        ('print(\'{"preference": true}\\n{"preference": 1}\')', DataError, "line 1"),
        ('print(\'{"preference": NaN}\\n{"preference": 1}\')', DataError, "line 1"),
        ("print('[]\\n[]')", DataError, "line 1"),
        ("print('{}\\n{}')", DataError, "line 1"),
    ],
)
def test_a_command_that_fails_is_named(body, error, words):
    with pytest.raises(error, match=words) as caught:
        CommandJudge(program(body), timeout=1 if "sleep" in body else 60).preferences(
            one_each(2), ["secret", "b"], ["c", "d"]
        )
    assert "secret" not in str(caught.value)


def test_a_program_that_is_not_there():
    for command in (["no-such-judge"], ["a\0b"], ["."]):
        with pytest.raises(UsageError, match=r"cannot be run.*Nothing was judged"):
            CommandJudge(command).preferences(["p"], ["a"], ["b"])


@pytest.mark.parametrize("command", ["my-judge --fast", [], [1], b"judge"])
def test_what_is_no_command_is_refused(command):
    with pytest.raises(UsageError, match="list of texts"):
        CommandJudge(command)


def test_numbers_of_a_command_are_checked():
    with pytest.raises(UsageError, match="timeout"):
        CommandJudge(["judge"], timeout=0)
    with pytest.raises(UsageError, match="seed"):
        CommandJudge(["judge"], seed=-1)
