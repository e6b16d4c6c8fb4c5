from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from sordino.auditing.releases.flips import attack_flips, measure_flips
from sordino.auditing.releases.reading import UNKNOWN, Released


def file_of(flips, truth=None, *, persons=None, questions=None, epsilon: float = 1.0) -> Released:
    n = len(flips)
    truth = np.arange(n) % 2 if truth is None else np.asarray(truth)
    questions = range(n) if questions is None else questions
    return Released(
        layout="answer",
        prompts=tuple(f"p{i}" for i in questions),
        first=("a",) * n,
        second=("b",) * n,
        answers=np.where(truth == UNKNOWN, 0, truth ^ np.asarray(flips)),
        epsilon=epsilon,
        truth=truth,
        persons=persons,
    )


def found(file: Released):
    return {one.attack: one for one in attack_flips(file)}


@pytest.mark.parametrize("flips", [0, 5, 27, 60, 73, 95, 100])
def test_the_p_value_is_twice_the_smaller_exact_tail(flips):
    rate = 1 / (1 + math.e)
    one = found(file_of([1] * flips + [0] * (100 - flips)))["flip-rate"]
    tails = binom.cdf(flips, 100, rate), binom.sf(flips - 1, 100, 1 - rate)
    assert one.p_value == pytest.approx(min(1.0, 2 * min(tails)), rel=1e-9)
    assert one.details["flipped"] == flips


def test_unknown_labels_do_not_count():
    truth = [1] * 50 + [UNKNOWN] * 50
    assert found(file_of([0] * 100, truth))["flip-rate"].details["rows"] == 50
    assert attack_flips(file_of([0] * 9, [UNKNOWN] * 9)) == []
    assert measure_flips(file_of([0] * 9, [UNKNOWN] * 9)) is None


def test_a_stored_answer_repeated_counts_once():
    file = file_of([0] * 60, [1] * 60, persons=("x",) * 60, questions=[i // 20 for i in range(60)])
    assert found(file)["flip-rate"].details["rows"] == 3
    nobody = replace(file, persons=None)
    assert found(nobody)["flip-rate"].details["rows"] == 3


def test_a_first_row_of_unknown_truth_is_not_replaced_by_a_later_one():
    file = file_of([0, 0], [UNKNOWN, 1], persons=("x", "x"), questions=[0, 0])
    assert "flip-rate" not in found(file)


def people(flips, truth=None):
    """Return a file of four persons a question."""
    n = len(flips)
    persons = tuple(f"x{i % 4}" for i in range(n))
    return file_of(flips, truth, persons=persons, questions=[i // 4 for i in range(n)])


def test_persons_on_one_question_are_paired_once_each():
    one = found(people([1, 1, 0, 0, 0, 1, 1, 1]))["shared-coin"]
    assert (one.details["pairs"], one.details["agree"]) == (4, 3)
    most = (math.e**2 + 1) / (math.e + 1) ** 2
    assert one.details["permitted"] == pytest.approx(most, rel=1e-12)
    assert one.p_value == pytest.approx(binom.sf(2, 4, most), rel=1e-9)


def test_equal_labels_and_answers_of_persons_are_not_a_shared_coin():
    # All agree on every question; their coins are their own.
    r = np.random.default_rng(0)
    truth = np.repeat(r.integers(2, size=100), 4)
    assert found(people((r.random(400) < 0.27).astype(int), truth))["shared-coin"].p_value > 1e-3


def test_stored_answers_of_one_person_are_no_shared_coin():
    file = file_of([0] * 60, [1] * 60, persons=("x",) * 60, questions=[i // 20 for i in range(60)])
    assert "shared-coin" not in found(file)
    two = file_of([0, 0, 0, 1], [1] * 4, persons=("x", "x", "x", "y"), questions=[0] * 4)
    assert found(two)["shared-coin"].details == pytest.approx(
        {"pairs": 1, "agree": 0, "permitted": found(two)["shared-coin"].details["permitted"]}
    )


def changed(flips):
    """Return a file where each person answers one question twice, first yes, then no."""
    n = len(flips)
    persons = tuple(f"x{i // 2}" for i in range(n))
    return file_of(flips, [1, 0] * (n // 2), persons=persons, questions=[0] * n)


def test_a_coin_reused_on_a_changed_answer_is_refuted():
    r = np.random.default_rng(1)
    coin = np.repeat(r.random(80) < 0.27, 2).astype(int)
    one = found(changed(coin))["reused-coin"]
    assert one.details["pairs"] == 80
    assert one.p_value < 1e-10


def test_a_stored_answer_to_a_changed_label_is_not():
    r = np.random.default_rng(1)
    first = (r.random(80) < 0.27).astype(int)
    flips = np.stack([first, 1 - first], axis=1).ravel()  # the answer stays, the label does not
    file = changed(flips)
    assert np.array_equal(file.answers[::2], file.answers[1::2])
    assert found(file)["reused-coin"].p_value == 1.0


def test_new_coins_for_changed_answers_are_not():
    r = np.random.default_rng(1)
    one = found(changed((r.random(160) < 0.27).astype(int)))["reused-coin"]
    assert one.p_value > 0.01


def test_repeats_of_an_unchanged_label_say_nothing():
    persons = tuple(f"x{i // 2}" for i in range(80))
    file = file_of([0] * 80, [1] * 80, persons=persons, questions=[0] * 80)
    assert "reused-coin" not in found(file)


def test_the_interval_is_that_of_clopper_and_pearson():
    measured = measure_flips(file_of([1] * 20 + [0] * 80), 0.95)
    low, high = 0.1266556, 0.2918427  # of 20 in 100
    assert measured.lower == pytest.approx(math.log((1 - high) / high), rel=1e-6)
    assert measured.upper == pytest.approx(math.log((1 - low) / low), rel=1e-6)
    assert measured.claimed == 1.0
    assert measured.confidence == 0.95


def test_no_flips_have_no_upper_end_and_half_have_no_lower_end():
    none = measure_flips(file_of([0] * 100))
    assert none.upper == math.inf
    assert none.lower == pytest.approx(math.log(1 / (1 - 0.025**0.01) - 1), rel=1e-9)
    assert measure_flips(file_of([1] * 100)).lower == pytest.approx(none.lower, rel=1e-9)
    assert measure_flips(file_of([0, 1] * 50)).lower == 0.0


def test_power_is_infinite_where_no_count_would_refute():
    assert measure_flips(file_of([0] * 3)).power == math.inf
    assert 1.0 < measure_flips(file_of([0] * 1000)).power < 1.5


def test_nothing_of_the_data_is_in_a_sentence():
    file = replace(people([0] * 40), prompts=tuple(f"secret{i // 4}" for i in range(40)))
    for one in attack_flips(file):
        assert "secret" not in f"{one.if_refutes}{one.if_clear}{dict(one.details)}"


def test_a_stored_answer_is_no_coin_of_the_person():
    file = file_of([0] * 60, [1] * 60, persons=("x",) * 60, questions=[i // 20 for i in range(60)])
    assert found(file)["person-coin"].details["pairs"] == 1
    assert "person-coin" not in found(file_of([0] * 9, persons=tuple("abcdefghi")))
