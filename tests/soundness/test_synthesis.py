"""Preferences that a released reward makes tell of that reward and of public texts alone."""

import math
from dataclasses import replace

import numpy as np
import pytest

import sordino
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.policies.synthesis import synthesize

LABEL = sordino.Guarantee(
    1.0, delta=0.0, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
)
RECORD = replace(LABEL, unit="record", neighbors=sordino.ADD_OR_REMOVE_ONE)
PERSON = replace(LABEL, unit="person")


@pytest.fixture
def reward():
    """Return a reward of texts: longer words are liked."""
    features = sordino.FunctionFeatures(
        lambda prompts, answers: np.array([[len(a) / 10, 1.0] for a in answers]),
        name="length", dimension=2, feature_bound=2.0,
    )  # fmt: skip
    return sordino.RewardModel(
        weights=np.array([2.0, 0.5]), features=features, guarantee=LABEL, ridge=1.0, ball=9.0,
        gradient_norm=0.0, atol=1.0, pairs=None,
    )  # fmt: skip


def test_the_order_in_which_candidates_were_given_leaves_no_trace(reward):
    ranked = ["best", "good one", "bad", "good one", "same"]  # as somebody ranked them
    for pairs in ("extremes", "all"):
        made = [
            synthesize(reward, ["p"], [given], pairs=pairs, labels="likely")
            for given in (ranked, ranked[::-1], sorted(ranked))
        ]
        assert made[0] == made[1] == made[2]
    assert len(made[0]) == 6  # every two of the four that differ
    (row,) = synthesize(reward, ["p"], [ranked], labels="likely")
    assert (row["chosen"], row["rejected"]) == ("good one", "bad")
    assert row["score_chosen"] - row["score_rejected"] == pytest.approx(1.0)


def test_labels_are_drawn_as_likely_as_the_reward_says(reward):
    n = 20_000
    rows = synthesize(reward, ["p"] * n, [["12345", "1234567890"]] * n)
    kept = sum(row["score_chosen"] > row["score_rejected"] for row in rows)
    chance = 1 / (1 + math.exp(-1.0))
    # false alarms: one in 10^6; a fair coin would be 60 standard deviations away
    assert abs(kept - n * chance) < 4.9 * math.sqrt(n * chance * (1 - chance))
    for row in rows[:50]:
        assert row["score_chosen"] == pytest.approx(len(row["chosen"]) / 5 + 0.5)


def test_who_may_not_label_is_refused_with_the_way_out(reward, linear_world, open_ledger):
    raw, _ = linear_world(40, 2)
    withheld = sordino.WithheldReward(raw, ridge=1.0, unit="label", neighbors=sordino.REPLACE_ONE)
    ask = [["p"], [["a", "b"]]]
    for wrong, said in (
        (withheld, "withheld: every label"), (raw, "got Pairs"),
        (replace(reward, guarantee=replace(LABEL, epsilon=math.inf)), "promises nothing"),
        (replace(reward, guarantee=RECORD), "covers all of a record.*declare_public"),
        (replace(reward, guarantee=PERSON), "covers all of a person"),
    ):  # fmt: skip
        with pytest.raises(PrivacyError, match=said) as caught:
            synthesize(wrong, *ask)
        assert "Nothing was made." in str(caught.value)
    labels_only = replace(PERSON, caveats=("labels-only",))
    assert synthesize(replace(reward, guarantee=labels_only), *ask)
    assert synthesize(replace(reward, guarantee=RECORD), *ask, declare_public=True)


@pytest.mark.parametrize(
    ("prompts", "candidates", "more", "error"),
    [
        (["p"], [["a", "a"]], {}, DataError), (["p", "q"], [["a", "b"]], {}, DataError),
        (["p"], [["a", "\ud800"]], {}, DataError), ("p", [["a", "b"]], {}, DataError),
        (["p"], [["a", "b"]], {"pairs": "best"}, UsageError),
        (["p"], [["a", "b"]], {"labels": "true"}, UsageError),
        ([[]], [[[{"role": "assistant", "content": "a"}], "b"]], {}, DataError),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused(reward, prompts, candidates, more, error):
    with pytest.raises(error):
        synthesize(reward, prompts, candidates, **more)


def test_one_chat_makes_all_chat(reward):
    rows = synthesize(reward, ["p", [{"role": "user", "content": "q"}]], [["a", "bb"], ["c", "dd"]])
    assert [row["prompt"][0]["content"] for row in rows] == ["p", "q"]
    assert {row["chosen"][0]["role"] for row in rows} == {"assistant"}
