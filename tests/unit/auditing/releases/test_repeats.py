"""One question asked more than once, without the raw file."""

from dataclasses import replace

import numpy as np
import pytest

from sordino.auditing.releases.leaks import (
    agreement_of_coins,
    find_repeats,
    most_paid_labels,
    stated_losses,
)
from sordino.auditing.releases.reading import Released
from sordino.privacy.conversions import flip_probability
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee


def claim(epsilon=1.0, unit="label"):
    caveats = ("labels-only",) if unit == "person" else ()
    return Guarantee(
        epsilon, delta=0.0, unit=unit, neighbors=REPLACE_ONE, trust="local", caveats=caveats
    )


def released(rows, *, epsilon=1.0, manifest=None):
    """Rows of (question, answer) or (question, answer, person), all written in one order."""
    people = [row[2] for row in rows if len(row) > 2]
    return Released(
        layout="z",
        prompts=tuple(row[0] for row in rows),
        first=("a",) * len(rows),
        second=("b",) * len(rows),
        answers=np.array([row[1] for row in rows], dtype=np.int8),
        epsilon=epsilon,
        persons=tuple(people) or None,
        manifest=manifest,
    )


def outcomes(file, promise=None):
    return {found.attack: found.outcome for found in find_repeats(file, promise or claim())}


def test_no_repeats():
    assert outcomes(released([("p", 1), ("q", 0)])) == {"repeats": "clear"}
    assert outcomes(released([("p", 1, "ann"), ("p", 0, "bo")])) == {
        "repeats": "clear",
        "shared-answers": "clear",
    }


@pytest.mark.parametrize("answers", [(1, 1), (1, 0)])
def test_repeats_without_ids_are_a_warning_whatever_they_say(answers):
    rows = [("p", answer) for answer in answers]
    for unit in ("label", "person"):
        file = released(rows, manifest={"flip_probability": 0.4})
        assert outcomes(file, claim(1e-3, unit)) == {"repeats": "warning"}


def test_several_releases_in_one_folder_are_told():
    rows = [("p", 1), ("p", 0), ("q", 1)]
    for releases, outcome in ((("a", "b", "a"), "warning"), (("a", "a", "b"), "clear")):
        found = find_repeats(replace(released(rows), releases=releases), claim())[0]
        assert (found.attack, found.outcome) == ("releases", outcome)
        assert found.details["releases"] == 2
    people = replace(released([("p", 1, "ann"), ("p", 0, "bo")]), releases=("a", "b"))
    assert find_repeats(people, claim())[0].outcome == "clear"


def test_an_answer_repeated_is_free_and_a_new_one_is_not():
    stored = released([("p", 1, "ann")] * 5)
    assert outcomes(stored)["repeats"] == "clear"
    again = released([("p", 1, "ann"), ("p", 0, "ann"), ("p", 1, "ann")])
    [found] = [one for one in find_repeats(again, claim()) if one.attack == "repeats"]
    assert found.outcome == "warning"
    assert found.details == {"differing": 1, "most": 3}


def test_the_same_answer_in_the_other_order_is_the_same_answer():
    file = released([("p", 1, "ann"), ("p", 0, "ann")])
    turned = Released(
        **{name: getattr(file, name) for name in ("layout", "prompts", "answers")},
        first=("a", "b"), second=("b", "a"), epsilon=1.0, persons=file.persons,
    )  # fmt: skip
    assert outcomes(file)["repeats"] == "warning"
    assert outcomes(turned)["repeats"] == "clear"


def test_equal_answers_cannot_differ():
    file = Released(layout="z", prompts=("p", "p"), first=("a", "a"),
                    second=("a", "a"), answers=np.array([1, 0]), epsilon=1.0,
                    persons=("ann", "ann"))  # fmt: skip
    assert outcomes(file)["repeats"] == "clear"
    assert most_paid_labels(file) == 1


FLIPS = flip_probability(1.0)
PAID = [("p", 1, "ann"), ("p", 0, "ann"), ("q", 1, "ann"), ("q", 1, "ann"), ("p", 1, "bo")]


@pytest.mark.parametrize(("total", "outcome"), [(2.9, "refutes"), (3.0, "warning")])
def test_a_person_who_pays_more_than_is_promised(total, outcome):
    assert most_paid_labels(released(PAID)) == 3
    file = released(PAID, manifest={"flip_probability": FLIPS})
    assert outcomes(file, claim(total, "person"))["repeats"] == outcome


def test_only_a_promise_about_persons_with_a_stated_coin_is_refuted():
    with_coin = released(PAID, manifest={"flip_probability": FLIPS})
    assert outcomes(with_coin, claim(0.1))["repeats"] == "warning"
    assert outcomes(released(PAID), claim(0.1, "person"))["repeats"] == "warning"


def test_a_person_whose_answers_all_count_is_told_from_repeats_of_one():
    rows = [(f"q{i}", 1, "ann") for i in range(4)] * 3
    file = released(rows, manifest={"flip_probability": FLIPS})
    assert outcomes(file, claim(4.0, "person"))["repeats"] == "clear"
    assert outcomes(file, claim(3.99, "person"))["repeats"] == "refutes"


def loss(flips):
    return np.log((1 - flips) / flips)


@pytest.mark.parametrize(
    ("manifest", "ends"),
    [
        ({"flip_rate": 0.475}, (0.476, 0.474)),
        ({"flip_probability": 0.4}, (0.5, 0.3)),
        ({"flip_rate": 1.2e-05}, (1.3e-5, 1.1e-5)),
        ({"flip_probability": 0.25, "format": "sordino.manifest"}, (0.25, 0.25)),
    ],
)
def test_a_stated_coin_may_have_been_rounded(manifest, ends):
    assert stated_losses(manifest) == pytest.approx(tuple(map(loss, ends)), rel=1e-9)


def test_a_fair_coin_costs_nothing():
    assert stated_losses({"flip_rate": 0.5})[0] == 0.0


@pytest.mark.parametrize(
    "manifest",
    [
        None,
        {},
        {"flip_probability": 0.7},
        {"flip_probability": 0.0},
        {"flip_probability": "0.2"},
        {"flip_probability": True},
        {"flip_probability": float("nan")},
    ],
)
def test_no_coin_is_stated(manifest):
    assert stated_losses(manifest) is None


@pytest.mark.parametrize("digits", range(1, 9))
def test_an_honest_coin_that_was_rounded_or_cut_for_the_manifest_is_not_refuted(digits):
    for epsilon in (0.1, 0.5, 1.0, 3.0):
        flips = flip_probability(epsilon)
        cut = int(flips * 10**digits) / 10**digits
        for manifest in ({"flip_rate": round(flips, digits)}, {"flip_probability": cut}):
            file = released(PAID, manifest=manifest)
            assert outcomes(file, claim(3 * epsilon, "person"))["repeats"] == "warning"


def test_agreement_of_two_coins():
    kept = np.exp(0.7) / (1 + np.exp(0.7))
    assert agreement_of_coins(0.7) == pytest.approx(kept**2 + (1 - kept) ** 2, rel=1e-12)
    assert agreement_of_coins(1000.0) == 1.0


def together(answers, epsilon):
    rows = [(f"q{i}", a, name) for i, pair in enumerate(answers)
            for a, name in zip(pair, ("ann", "bo"), strict=True)]  # fmt: skip
    [found] = [
        one
        for one in find_repeats(released(rows, epsilon=epsilon), claim(epsilon))
        if one.attack == "shared-answers"
    ]
    return found


def test_persons_who_always_agree_are_suspicious():
    generator = np.random.default_rng(0)
    coins = generator.integers(0, 2, size=60)
    shared = together([(one, one) for one in coins], 0.5)
    assert shared.outcome == "warning"
    assert shared.details["agree"] == 60
    # 60 couples agree with chance at most 0.53 each: all of them in one of 10^16 files.
    assert shared.p_value < 1e-15


def test_persons_who_answer_alike_through_their_own_coins_are_not():
    # 200 files whose persons all hold the same truth, the worst honest case; at 1e-3 each the
    # chance that more than 3 are suspicious is below 1e-4 (Poisson of mean 0.2).
    generator = np.random.default_rng(1)
    suspicious = 0
    for _ in range(200):
        keeps = generator.random((40, 2)) < np.exp(2) / (1 + np.exp(2))
        suspicious += together(keeps.astype(int), 2.0).outcome == "warning"
    assert suspicious <= 3


def people(n, each, **options):
    return released([(f"q{i}", i % 2, f"p{i // each}") for i in range(n)], **options)


@pytest.mark.parametrize("name", ["epsilon", "epsilon_float", "eps"])
@pytest.mark.parametrize(
    ("rate", "outcome"),
    [
        (0.4613, "warning"),  # counted: each of five coins has .1
        (0.3775, "refutes"),  # the coin of .5, five times
        (0.2, "warning"),  # no coin of .5
    ],
)
def test_a_flip_rate_is_a_coin_only_if_it_is_that_of_a_stated_epsilon(name, rate, outcome):
    file = people(2000, 5, manifest={name: 0.5, "flip_rate": rate})
    assert outcomes(file, claim(0.5, "person"))["repeats"] == outcome


@pytest.mark.parametrize("stated", [None, True, "0.5", [0.5], 10**400, float("nan")])
def test_a_flip_rate_without_an_epsilon_is_no_coin(stated):
    file = people(2000, 5, manifest={"epsilon": stated, "flip_rate": 0.3775})
    [found] = [one for one in find_repeats(file, claim(0.5, "person")) if one.attack == "repeats"]
    assert found.outcome == "warning"
    assert "counted" in found.summary


def test_a_counted_rate_that_fits_a_stated_epsilon_by_chance_is_no_coin():
    # Ten rows of five coins of .1 each: .378 of them flipped is nothing unusual, nor is 1 % less
    # than a coin of .02 flips in 2,000 rows.
    few = people(10, 5, manifest={"epsilon": 0.5, "flip_rate": 0.378})
    assert outcomes(few, claim(0.5, "person"))["repeats"] == "warning"
    weak = people(2000, 5, manifest={"epsilon": 0.1, "flip_rate": 0.475})
    assert outcomes(weak, claim(0.1, "person"))["repeats"] == "warning"
    stored = released(
        [("q", 1, f"p{i // 100}") for i in range(1000)] + [("r", 1, f"p{i}") for i in range(10)],
        manifest={"epsilon": 0.5, "flip_rate": 0.3775},
    )
    assert outcomes(stored, claim(0.5, "person"))["repeats"] == "warning"
