"""A forecast in plain words."""

import pytest

from sordino import estimate
from sordino.reporting.planning import describe_forecast


def rows(n=20_000, *, dimension=8, epsilon=1.0, **more):
    return describe_forecast(estimate(n, dimension=dimension, epsilon=epsilon, **more))


def test_the_assumption_and_what_epsilon_means_are_said():
    found = rows()
    assert "65.0% of judgments (--accuracy" in found["assumption"]
    assert found["local way"].startswith("accuracy 0.649")
    assert "factor of 2.719" in found["epsilon"]
    assert "at most 73.2%" in found["epsilon"]
    assert "26.9% of answers are flipped" in found["epsilon"]
    assert found["delta"].startswith("0;")
    assert "nothing was spent" in found["touched"]


@pytest.mark.parametrize("epsilon", [5.0, 10.0, 15.0])
def test_a_belief_that_can_be_wrong_is_not_shown_as_certain(epsilon):
    assert " 100%" not in rows(epsilon=epsilon)["epsilon"]
    assert " 0% of" not in rows(epsilon=epsilon)["epsilon"]


def test_a_target():
    assert not [name for name in rows() if name.startswith("accuracy")]
    found = rows(target=0.64)["accuracy 0.64"]
    assert found == "needs 1,976 labels in the local way, 374 labels without privacy"
    assert rows(target=0.5000001)["accuracy 0.5"].startswith("needs 1 label in the local way")
    assert "no number of labels reaches it" in rows(target=0.7)["accuracy 0.7"]
    assert "× 10" in rows(target=0.6499999999, epsilon=0.1)["accuracy 0.65"]


def test_one_person():
    assert "m times epsilon" in rows()["one person"]
    assert rows(labels_per_person=7)["one person"].endswith("7 labels is protected with epsilon 7")


def test_what_answers_are_worth():
    assert rows()["worth"] == "about as much as 3,680 judgments without privacy"
    assert rows(2, epsilon=0.1)["worth"].startswith("less than one")
