"""One word for a result, at the borders between words."""

import math

import pytest

from sordino.privacy.guarantee import LARGEST_DELTA, WEAKEST_EPSILON
from sordino.reporting.result import ENOUGH, FEW, GUESS, USABLE, WEAK, judge
from sordino.rewards import forecast

TERMS = {"unit": "label", "neighbors": "REPLACE_ONE", "trust": "central", "randomness": "system"}
COIN = {"name": "randomized-response", "epsilon_per_label": 1.0}
SUM = {"name": "label-gaussian", "epsilon": 1.0, "delta": 1e-6}
RECORDS = {"name": "objective-perturbation", "epsilon": 1.0, "delta": 1e-6}
HALF = 1.96 * 0.01  # of an interval whose standard error is .01


def told(epsilon=1.0, delta=0.0, *, n=10_000, mechanism=COIN, terms=(), **more):
    return {
        "guarantee": {**TERMS, "epsilon": epsilon, "delta": delta, **dict(terms)},
        "mechanism": mechanism,
        "data": {"pairs": n},
        **more,
    }


def measured(accuracy, error=0.01, **more):
    return {"accuracy": accuracy, "accuracy_standard_error": error, **more}


def test_a_promise_is_weak_above_the_limit_alone():
    at, above = (judge(told(epsilon)) for epsilon in (WEAKEST_EPSILON, WEAKEST_EPSILON + 1e-9))
    assert (at["word"], above["word"]) == (USABLE, WEAK)
    assert judge(told("inf"))["word"] == WEAK
    assert "20" in above["says"]


@pytest.mark.parametrize(
    ("unit", "data"),
    [("label", {"pairs": 100}), ("label", {"ballots": 100}), ("person", {"persons": 100})],
)
def test_delta_is_held_against_one_over_the_number_of_units(unit, data):
    below, at = (
        judge(told(1.0, delta, terms={"unit": unit}, mechanism={}) | {"data": data})
        for delta in (0.01 - 1e-9, 0.01)
    )
    assert (below["word"], at["word"]) == (USABLE, WEAK)


def test_a_number_that_is_private_or_not_told_is_not_held_against_delta():
    terms = {"unit": "record", "neighbors": "ADD_OR_REMOVE_ONE"}
    for hidden, n in ((terms, 10**9), ((), None)):
        below, at = (
            judge(told(1.0, delta, terms=hidden, n=n)) for delta in (0.0009, LARGEST_DELTA)
        )
        assert (below["word"], at["word"]) == (USABLE, WEAK)
        assert "is not told" in below["says"]
        assert "private" in at["says"]


def test_what_was_accepted_by_a_number_that_is_not_told_stays_weak():
    assert judge(told(caveats=["timing"]))["word"] == USABLE
    assert judge(told(caveats=["weak-promise"]))["word"] == WEAK


def test_an_interval_above_one_half_is_usable_even_if_more_were_foreseen_to_be_needed():
    for accuracy, word in ((0.5 + HALF + 1e-9, USABLE), (0.5 + HALF - 1e-9, GUESS)):
        found = judge(told(reward=measured(accuracy)))
        assert found["word"] == word
        assert f"± {100 * HALF:.1f} points (95%)" in found["says"]
    assert judge(told(n=12, reward=measured(0.9)))["word"] == USABLE


@pytest.mark.parametrize(
    ("mechanism", "way", "terms"),
    [(COIN, "labels", {}), (SUM, "label-estimate", {}),
     (RECORDS, "record-estimate", {"unit": "record", "neighbors": "REPLACE_SPECIAL"})],
)  # fmt: skip
@pytest.mark.parametrize("reward", [measured(0.5, 1e-4), {}], ids=["measured", "unmeasured"])
def test_as_many_answers_as_are_foreseen_to_do_are_not_too_few(mechanism, way, terms, reward):
    delta = 0.0 if mechanism is COIN else 1e-9

    def of(n):
        return judge(told(1.0, delta, n=n, mechanism=mechanism, terms=terms, reward=reward))

    found = of(20)
    assert found["word"] == FEW
    foreseen = forecast.estimate(
        20, dimension=12, epsilon=1.0, delta=1e-6, target=ENOUGH
    ).ways[way].labels_needed  # fmt: skip
    needed = found["answers_needed"]
    assert foreseen <= needed <= foreseen * 1.1  # rounded up to two digits
    assert f"{needed:,} would do" in found["says"]
    assert of(needed - 1)["word"] == FEW
    assert of(needed)["word"] == (GUESS if reward else USABLE)
    assert of(needed).get("answers_needed") is None


def test_where_the_interval_is_too_wide_more_answers_are_asked_for():
    """A reward of .6 must be told from a guess: the interval must reach .1 at most."""
    found = judge(told(n=10_000, reward=measured(0.5, 0.1)))
    assert found["word"] == FEW
    assert found["answers_needed"] == math.ceil(10_000 * (1.96 * 0.1 / 0.1) ** 2 / 1000) * 1000
    vague = {"accuracy": None, "accuracy_reason": "too few", "accuracy_standard_error": 0.1}
    again = judge(told(n=10_000, reward=vague))
    assert (again["word"], again["answers_needed"]) == (FEW, found["answers_needed"])
    assert "%" not in again["says"]
    unknown = judge(told(n=10_000, reward=vague | {"accuracy_standard_error": None}))
    assert unknown == again


def test_public_judgments_and_a_free_log_loss_speak_too():
    for share, word in ((0.6, USABLE), (0.52, GUESS)):
        public = {"accuracy": share, "pairs": 400}  # ± 4.9 points
        assert judge(told(public_evaluation=public))["word"] == word
    for loss, word in ((math.log(2) - HALF - 1e-9, USABLE), (math.log(2) - HALF + 1e-9, GUESS)):
        free = {"negative_log_likelihood": loss, "negative_log_likelihood_standard_error": 0.01}
        assert judge(told(mechanism=SUM, reward=free))["word"] == word


def test_items_are_judged_by_whether_any_two_intervals_lie_apart():
    def of(*ends, ballots=100):
        items = [
            {"name": str(pair), "worth": sum(pair) / 2, "interval": list(pair)} for pair in ends
        ]
        return judge(told(items=items) | {"data": {"ballots": ballots}})

    assert of((1, 3), (-3, 0.9))["word"] == USABLE
    few = of((1, 3), (-1, 2))
    # the gap is 1.5 and the two reaches are 2.5 together
    assert (few["word"], few["answers_needed"]) == (FEW, 280)
    assert of((-1, 1.01), (-1.01, 1))["word"] == GUESS  # thousands of times as many
    assert of((1, 3), (-1, 2), ballots=None)["word"] == GUESS
    assert judge(told(items=[{"name": "a", "worth": 1.0, "interval": None}]))["word"] == USABLE


@pytest.mark.parametrize(("bound", "word"), [(1.0, GUESS), (1.1, GUESS), (1.11, USABLE)])
def test_draws_that_no_log_can_move_are_a_guess(bound, word):
    found = judge(told(odds_bound=bound) | {"data": None})
    assert found["word"] == word
    assert f"{bound:g}" in found["says"]


def test_a_factor_that_bounds_nothing_is_called_so():
    """By default it is e^100: a policy that any log could turn to any arm."""
    found = judge(told(odds_bound=math.exp(100)) | {"data": None})
    assert "no useful bound" in found["says"]
    assert "2.689 × 10⁴³" in found["says"]
    assert "useful" not in judge(told(odds_bound=math.exp(20)) | {"data": None})["says"]


def test_how_many_labels_of_a_person_there_are_makes_the_noise_of_one_larger():
    one, ten = (
        judge(told(n=20, mechanism=SUM | {"records_per_person": most}))["answers_needed"]
        for most in (1, 10)
    )
    assert ten > 3 * one


def of_answers(**more):
    return judge(told(**more) | {"data": {"pairs": 10_000, "judged": "answers"}})


def test_of_single_answers_the_better_constant_is_the_guess():
    """Where nine answers in ten are liked, whoever always says so is right in nine of ten."""
    for likes in (0.9, 0.1):
        for accuracy, word in ((0.9, GUESS), (0.94, USABLE)):
            reward = measured(accuracy, likes=likes, likes_standard_error=0.01)
            found = of_answers(reward=reward)
            assert (found["word"], "always the same answer gives 90.0%" in found["says"]) == (
                word,
                True,
            )
    # both are uncertain, so that one alone being far enough from the other does not do
    reward = measured(0.925, likes=0.9, likes_standard_error=0.01)
    assert of_answers(reward=reward)["word"] == GUESS
    assert of_answers(reward=measured(0.94))["says"].count("is not told") == 1


def test_log_loss_and_public_accuracy_of_single_answers_have_the_same_peer():
    best = -0.9 * math.log(0.9) - 0.1 * math.log(0.1)
    for loss, word in ((best - 0.03, USABLE), (best - 0.01, GUESS)):
        losses = {"negative_log_likelihood": loss, "negative_log_likelihood_standard_error": 0.01}
        assert of_answers(reward=losses | {"likes": 0.1})["word"] == word
    for accuracy, word in ((0.92, GUESS), (0.95, USABLE)):
        public = {"accuracy": accuracy, "pairs": 2500, "likes": 0.9, "likes_standard_error": 0.006}
        assert of_answers(public_evaluation=public)["word"] == word
