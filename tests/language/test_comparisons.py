"""Policies against their reference: who judges, and what a table says of several seeds."""

import math

import numpy as np
import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

from sordino.language.judging import RewardJudge, compare_policies
from sordino.language.studies.comparison import FULL, QUICK, Contest
from sordino.language.studies.comparison_table import (
    ComparisonRun,
    learning_curves,
    markdown_table,
    summary_rows,
)


class Lengths:
    """A reward that likes long answers and cannot read empty ones."""

    guarantee = None

    def __init__(self, bound=5.0):
        self.reward_bound = bound

    def can_read(self, prompt, answer):
        return bool(answer)

    def score(self, prompts, answers):
        assert all(answers)
        return np.array([min(len(answer), self.reward_bound) for answer in answers], dtype=float)


def run(mean, *, method="dpo", labels="epsilon=1", seed=0, curve=(), matched=None):
    win = {
        "mean": mean, "low": mean - 0.2, "high": mean + 0.2, "n": 10, "mean_length": 8.0,
        "reference_length": 9.0, "length_matched": matched,
    }  # fmt: skip
    return ComparisonRun(method=method, labels=labels, seed=seed, win=win, curve=curve)


def test_an_answer_that_cannot_be_read_loses():
    scores = RewardJudge(Lengths()).score(["p"] * 3, ["", "a", "long answer"])
    assert scores.tolist() == [-6.0, 1.0, 5.0]
    assert RewardJudge(Lengths()).score(["p"], [""]).tolist() == [-6.0]


@pytest.mark.deep
def test_draws_of_both_are_independent(tiny_llama):
    prompts = [f"tell me about {word} {i}" for i in range(12) for word in ("bread", "music")]
    judge = RewardJudge(Lengths(100.0))
    found = compare_policies(tiny_llama, tiny_llama, prompts, judge, max_new_tokens=8)
    assert found.n == 24
    assert found.ties < 24  # else the same answers were drawn for both
    assert compare_policies(
        tiny_llama, tiny_llama, prompts, judge, max_new_tokens=8
    ).to_dict() == found.to_dict()  # fmt: skip


def test_a_contest_compares_the_reference_with_itself(tiny_llama):
    contest = Contest(
        reference=tiny_llama, judge=RewardJudge(Lengths()), prompts=["tell me", "about bread"],
        trained_prompts=[], sizes=QUICK,
    )  # fmt: skip
    found = contest.baseline(3)
    assert found["curve"] == []
    assert found["win"]["n"] == 2
    assert found == contest.baseline(3)


def test_intervals_are_over_seeds():
    values = [0.4, 0.5, 0.6]
    (row,) = summary_rows(run(mean, seed=at) for at, mean in enumerate(values))
    reach = 4.302653 * 0.1 / math.sqrt(3)  # Student's quantile on two degrees of freedom
    assert row["win_rate"]["mean"] == pytest.approx(0.5)
    assert row["win_rate"]["low"] == pytest.approx(0.5 - reach)
    assert row["win_rate"]["high"] == pytest.approx(0.5 + reach)
    assert (row["seeds"], row["comparisons"]) == (3, 30)
    (alone,) = summary_rows([run(0.4)])
    assert (alone["win_rate"]["low"], alone["win_rate"]["high"]) == pytest.approx((0.2, 0.6))


def test_rows_keep_their_order_and_what_is_not_known():
    matched = {"mean": 0.5, "low": 0.4, "high": 0.6}
    rows = summary_rows(
        [
            run(0.5, method="reference", labels="label-free"),
            run(0.6, curve=[{"step": 1, "held_out_accuracy": 0.7}], matched=matched),
            run(0.7, labels="non-private"),
        ],
        {"epsilon=1": [1.0, 1.0, 1.0], "non-private": [math.inf]},
    )  # fmt: skip
    assert [row["labels"] for row in rows] == ["label-free", "epsilon=1", "non-private"]
    assert [row["held_out_accuracy"] for row in rows] == [None, 0.7, None]
    text = markdown_table(rows, ["a note"])
    lines = text.splitlines()
    assert lines[2] == "| reference | label-free | 0.500 [0.300, 0.700] | not known |  | 1 | 0 |"
    assert lines[3].startswith("| DPO | epsilon=1 | 0.600 [0.400, 0.800] | 0.500 [0.400, 0.600] |")
    assert lines[3].endswith("| 1 | 3 |")  # three releases of the same labels add up
    assert lines[4].endswith("| 1 | inf |")
    assert lines[-1] == "- a note"
    assert [row["epsilon_of_one_release"] for row in rows] == [0.0, 1.0, "inf"]
    assert [row["epsilon_of_all_releases"] for row in rows] == [0.0, 3.0, "inf"]
    assert [row["releases"] for row in rows] == [0, 3, 1]


def test_curves_are_means_at_the_steps_that_all_seeds_have():
    curves = learning_curves(
        [
            run(0.5, seed=0, curve=[{"step": 2, "loss": 1.0}, {"step": 4, "loss": 3.0}]),
            run(0.5, seed=1, curve=[{"step": 2, "loss": 2.0}]),
            run(0.5, method="reference", labels="label-free"),
        ]
    )
    (curve,) = curves
    assert curve["loss"] == {"steps": [2], "mean": [1.5], "seeds": [[1.0], [2.0]]}
    assert curve["held_out_accuracy"]["mean"] == []


def test_a_checkpoint_is_changed_in_smaller_steps():
    for sizes in (QUICK, FULL):
        given = sizes.for_checkpoint()
        assert given.dpo.learning_rate < sizes.dpo.learning_rate
        assert given.policy.learning_rate < sizes.policy.learning_rate
        assert given.reward.epochs == sizes.reward.epochs
