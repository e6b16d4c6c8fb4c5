"""A forecast in plain words."""

import pytest

from sordino import estimate
from sordino.reporting.curves import describe_forecast


def rows(n=20_000, *, dimension=8, epsilon=1.0, **more):
    return describe_forecast(estimate(n, dimension=dimension, epsilon=epsilon, **more))


def test_the_assumption_and_what_epsilon_means_are_said():
    found = rows()
    assert "65.0% of judgments (--accuracy" in found["assumption"]
    assert found["local way"].startswith("accuracy 0.649")
    for name in ("local", "label-central", "record-central"):
        assert "factor of 2.719" in found[f"{name} epsilon"]
        assert "at most 73.2%" in found[f"{name} epsilon"]
    assert "1 per label: " in found["local epsilon"]
    assert "delta 0; 26.9% of answers are flipped" in found["local epsilon"]
    assert "slack delta = 1 × 10⁻⁶; the curator sees" in found["label-central epsilon"]
    assert "1 per record (prompt, answers and label; used, or" in found["record-central epsilon"]
    assert "nothing was spent" in found["touched"]


def test_the_ways_are_compared():
    need = "central label privacy needs a curator who sees the labels and delta above 0; local "
    few, many = (rows(n, dimension=32)["compared"] for n in (200, 5000))
    assert few.startswith("local is best here; label-central errs less than local from 621 labels ")
    assert many.startswith("label-central is best here, by 1.1 points of accuracy over local; ")
    assert need in few
    assert need in many


def test_ways_that_are_left_out_are_named():
    found = rows(delta=0.0)
    assert found["label-central way"] == "left out, needs delta above 0"
    assert found["record-central way"] == "left out, needs delta above 0"
    assert found["compared"].startswith("local is best here; central label privacy needs")


@pytest.mark.parametrize("name", ["local", "label-central", "record-central"])
@pytest.mark.parametrize("epsilon", [5.0, 10.0, 15.0])
def test_a_belief_that_can_be_wrong_is_not_shown_as_certain(epsilon, name):
    assert " 100%" not in rows(epsilon=epsilon)[f"{name} epsilon"]
    assert " 0% of" not in rows(epsilon=epsilon)[f"{name} epsilon"]


def test_a_target():
    assert not [name for name in rows() if name.startswith("accuracy")]
    found = rows(target=0.64)["accuracy 0.64"]
    assert found == (
        "needs 1,976 labels in the local way, 714 labels in the label-central way, "
        "719 labels in the record-central way, 374 labels without privacy"
    )
    assert rows(target=0.5000001)["accuracy 0.5"].startswith("needs 1 label in the local way")
    assert "no number of labels reaches it" in rows(target=0.7)["accuracy 0.7"]
    assert "× 10" in rows(target=0.6499999999, epsilon=0.1)["accuracy 0.65"]


def test_one_person():
    assert "m times epsilon in the local way; in a central" in rows()["one person"]
    assert rows(delta=0.0)["one person"].endswith("m times epsilon in the local way")
    assert rows(labels_per_person=5)["one person"] == (
        "who gives 5 labels is protected with epsilon 5 in the local way, epsilon 5.927 in the "
        "label-central way (delta 1 × 10⁻⁶), epsilon 5 in the record-central way "
        "(delta 8.58 × 10⁻⁵)"
    )
    assert rows(labels_per_person=50)["one person"].endswith(
        "nothing in the record-central way (only single records are)"
    )


def test_what_answers_are_worth():
    found = rows()["local way"]
    assert found.endswith("about as much as 3,680 judgments without privacy")
    assert rows(2, epsilon=0.1)["local way"].endswith("less than one judgment without privacy")
