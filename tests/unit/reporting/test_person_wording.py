"""What a report says of a promise to a whole person."""

import math

import pytest

from sordino.privacy.guarantee import REPLACE_ONE, REPLACE_SPECIAL, Guarantee
from sordino.reporting.wording import describe_guarantee, read_guarantee


def promise(epsilon=4.0, neighbors=REPLACE_ONE, caveats=("labels-only",)):
    return Guarantee(
        epsilon, delta=0.0, unit="person", neighbors=neighbors, trust="central", caveats=caveats
    )


def test_the_question_is_about_all_labels_of_one_person():
    words = describe_guarantee(promise())
    assert words["question"] == "between any two sets of labels of one person"
    assert words["change"] == "all labels of one person are replaced by any others"
    assert "the odds between any two sets of labels of one person by at most" in words["odds"]
    assert words["between"] == ""


def test_what_stays_open_is_listed():
    gaps = " ".join(describe_guarantee(promise())["unprotected"])
    for word in ("prompts", "answers, word for word", "who was asked what", "how many judgments"):
        assert word in gaps
    assert "m times" not in gaps  # the promise is about the person already
    assert "crowd" in gaps


def test_whole_records_are_worded_as_before():
    words = describe_guarantee(promise(caveats=()))
    assert words["question"] == "between any two values of one person’s set of records"
    assert "how many judgments" not in " ".join(words["unprotected"])


def test_labels_that_become_fair_coins():
    words = describe_guarantee(promise(neighbors=REPLACE_SPECIAL))
    assert words["question"] == (
        "that all labels of one person were used, and not replaced by fair coins"
    )
    assert words["change"] == "all labels of one person are replaced by fair coins"
    assert words["between"].startswith("Between two values of one person’s set of labels")


@pytest.mark.parametrize("epsilon", [0.5, 20.0, math.inf])
def test_it_reads_at_every_size(epsilon):
    assert describe_guarantee(promise(epsilon))["odds"]


def test_a_budget_may_say_what_its_promises_are_about():
    values = promise().to_dict()
    assert "records" in read_guarantee("b", values).change
    assert "labels" in read_guarantee("b", values | {"caveats": ["labels-only"]}).change
    assert "labels" in read_guarantee("b", values, ("labels-only",)).change
