from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sordino.auditing.releases.channels import (
    DISPLAYED,
    FAILURE,
    PublicKnowledge,
    attack_channels,
    independent_rows,
    numbered,
    order_channels,
    ordered_values,
    ranked_blocks,
    readings,
)
from sordino.auditing.releases.reading import (
    UNKNOWN,
    Channel,
    Released,
    at_least,
    at_most,
    mixed_at_least,
)

N = 400


def file_of(n: int = N, *, seed: int = 0, **changes) -> Released:
    r = np.random.default_rng(seed)
    fields = {
        "layout": "answer",
        "prompts": tuple(f"p{i}" for i in range(n)),
        "first": tuple(f"a{x}" for x in r.integers(10**6, size=n)),
        "second": tuple(f"a{x}" for x in r.integers(10**6, size=n)),
        "answers": r.integers(2, size=n),
        "epsilon": 1.0,
        "truth": r.integers(2, size=n),
    }
    return Released(**{**fields, **changes})


def only(evidence, attack: str):
    return [one for one in evidence if one.attack == attack]


def position(file: Released, **settings):
    channel = Channel(name="position", guesses=np.ones(len(file), dtype=np.int64))
    return attack_channels(file, [channel], **settings)[0]


def test_tails_are_those_of_scipy():
    from scipy.stats import binom

    for k, n, p in [(0, 5, 0.3), (3, 5, 0.3), (5, 5, 0.3), (40, 100, 0.2), (100, 100, 0.9)]:
        assert at_least(k, n, p) == pytest.approx(binom.sf(k - 1, n, p), rel=1e-10)
        assert at_most(k, n, p) == pytest.approx(binom.cdf(k, n, p), rel=1e-10)


def test_unequal_chances_have_no_heavier_tail_than_their_mean():
    # Exact Poisson-binomial tails by convolution against the bound at every count.
    r = np.random.default_rng(0)
    for _ in range(50):
        chances = r.random(12)
        law = np.ones(1)
        for chance in chances:
            law = np.convolve(law, [1 - chance, chance])
        for count in range(13):
            assert law[count:].sum() <= mixed_at_least(count, 12, chances.mean()) + 1e-12


def test_position_is_no_channel_where_the_order_is_the_answer():
    names = [c.name for c in order_channels(file_of(layout="chosen-rejected"))]
    assert "position" not in names
    assert "row-order" in names
    assert [c.name for c in order_channels(file_of())].count("position") == 1


def test_without_truth_nothing_is_learned_and_nothing_is_said():
    file = file_of(truth=None, columns={"c": tuple(f"{i % 7}" for i in range(N))})
    channels = order_channels(file)
    assert channels
    assert not any(channel.details.get("learned") for channel in channels)
    assert attack_channels(file, channels) == []


def test_a_guess_never_depends_on_labels_of_its_own_half():
    columns = {"c": tuple(f"{i * 7 % 11}" for i in range(N))}
    file = file_of(columns=columns)
    half = np.arange(N) // 2 % 2 == 1
    other = replace(file, truth=np.where(half, 1 - file.truth, file.truth))
    for one, two in zip(order_channels(file), order_channels(other), strict=True):
        assert np.array_equal(one.guesses[half], two.guesses[half])
    moved = [
        not np.array_equal(one.guesses[~half], two.guesses[~half])
        for one, two in zip(order_channels(file), order_channels(other), strict=True)
        if one.details.get("learned")
    ]
    assert all(moved)


def test_no_channel_looks_at_answers():
    file = file_of(columns={"c": tuple(f"{i * 7 % 11}" for i in range(N))})
    other = replace(file, answers=1 - file.answers)
    for one, two in zip(order_channels(file), order_channels(other), strict=True):
        assert np.array_equal(one.guesses, two.guesses)


@pytest.mark.parametrize("reverse", [False, True])
def test_the_order_kept_is_refuted_and_so_is_its_reverse(reverse):
    found = position(file_of(truth=np.full(N, int(not reverse))))
    assert found.details["reversed"] is reverse
    assert found.p_value < 1e-5
    assert found.recovered == 1.0
    assert 0.731 < found.details["permitted"] < 0.9
    assert "100.0 %" in found.if_refutes


@pytest.mark.parametrize("learned", [True, False])
def test_two_tails_and_the_chance_that_a_bound_fails_are_paid_for(learned):
    truth = (np.arange(N) % 100 < 98).astype(np.int64)
    file = file_of(truth=truth, epsilon=0.1)
    channel = Channel(name="c", guesses=np.ones(N, dtype=np.int64), details={"learned": learned})
    public = PublicKnowledge(released=file)
    half = np.arange(N) // 2 % 2 == 1
    tails = []
    for rows in [half, ~half] if learned else [np.ones(N, dtype=bool)]:
        mean = 1 / (1 + np.exp(-0.1 - public.log_odds(rows)))
        tails.append(at_least(int(truth[rows].sum()), int(rows.sum()), mean))
    expected = 2 * (min(tails) + FAILURE)
    found = attack_channels(file, [channel])[0]
    assert found.p_value == pytest.approx(expected, rel=1e-9)
    assert min(tails) < 1e-3


def test_a_column_about_as_telling_as_a_public_order_is_no_leak(monkeypatch):
    # People take the longer answer in 85 of 100 rows; a column counts something much like length.
    n, r = 2000, np.random.default_rng(0)
    sizes = r.permuted(np.tile([1, 2], (n, 1)), axis=1)
    longer = (sizes[:, 0] > sizes[:, 1]).astype(np.int64)
    file = file_of(
        n,
        first=tuple(f"{r.integers(10, 99)}{'w' * k}" for k in sizes[:, 0]),
        second=tuple(f"{r.integers(10, 99)}{'v' * k}" for k in sizes[:, 1]),
        truth=np.where(r.random(n) < 0.85, longer, 1 - longer),
        epsilon=0.1,
        columns={"more": tuple("ny"[x] for x in np.where(r.random(n) < 0.95, longer, 1 - longer))},
    )
    found = attack_channels(file, order_channels(file))
    assert max(one.recovered for one in found) > 0.75
    assert min(one.p_value for one in found) == 1.0
    monkeypatch.setattr("sordino.auditing.releases.recipes._ORDER_RULES", {})
    unknowing = attack_channels(file, order_channels(file))
    assert min(one.p_value for one in unknowing) < 1e-5


@pytest.mark.parametrize(("taste", "leaks"), [(0.85, False), (1.0, True)])
def test_what_tells_people_apart_tells_tastes_in_an_order_by_length(taste, leaks):
    # Half of the people like longer answers, half shorter ones, and a column says who is who.
    n, r = 2000, np.random.default_rng(0)
    kind = r.integers(2, size=n)
    truth = np.where(r.random(n) < taste, kind, 1 - kind)
    columns = {"kind": tuple("xy"[k] for k in kind)}
    file = replace(lengths(n), truth=truth, columns=columns, epsilon=0.1)
    found = attack_channels(file, order_channels(file))
    assert (min(one.p_value for one in found) < 1e-5) is leaks


def test_a_channel_that_the_claim_permits_is_no_evidence():
    truth = (np.arange(N) % 10 < 7).astype(np.int64)  # 70 %, and e/(1 + e) is 73.1 %
    assert position(file_of(truth=truth)).p_value == 1.0
    more = file_of(4000, truth=np.tile(truth, 10), epsilon=0.01)
    assert position(more).p_value < 1e-5


def lengths(n: int = N, share: float = 1.0) -> Released:
    """Return a file whose first answer is the longer one and is preferred in some share."""
    return file_of(
        n,
        first=tuple("x" * 9 + str(i) for i in range(n)),
        second=tuple(f"y{i}" for i in range(n)),
        truth=(np.arange(n) < share * n).astype(np.int64),
    )


def test_an_order_by_length_is_public_whatever_it_predicts(monkeypatch):
    found = position(lengths())
    assert found.p_value == 1.0
    assert "characters" in found.if_clear or "alphabetical" in found.if_clear
    assert found.details["exempt"]
    monkeypatch.setattr("sordino.auditing.releases.recipes._ORDER_RULES", {})
    assert position(lengths()).p_value < 1e-5  # the verdict is due to the rule alone


def shown(file: Released, share: float) -> Released:
    first = (np.arange(len(file)) < share * len(file)).astype(np.int64)
    return replace(file, truth=first, displayed=np.ones(len(file), dtype=np.int64))


def test_an_order_shown_is_exempt_up_to_a_habit_of_people():
    file = replace(file_of(), epsilon=0.01)
    habit = position(shown(file, 0.85))
    assert habit.p_value == 1.0
    assert DISPLAYED in habit.if_clear
    assert position(shown(file, 0.95)).p_value < 1e-5
    assert position(replace(shown(file, 0.85), displayed=None)).p_value < 1e-5


def test_a_declared_column_is_exempt_and_an_undeclared_one_is_told_the_way_out():
    file = file_of()
    file = replace(file, columns={"country": tuple("AB"[x] for x in file.truth)})
    found = only(attack_channels(file, order_channels(file)), "column")
    assert min(one.p_value for one in found) < 1e-5
    assert "covariates=['country']" in found[0].if_refutes
    declared = attack_channels(file, order_channels(file), covariates=["country"])
    assert all(one.p_value == 1.0 for one in only(declared, "column"))


def test_a_column_that_a_declared_one_explains_is_exempt():
    file = file_of()
    kinds = np.random.default_rng(5).integers(6, size=N)
    truth = (kinds % 2) ^ file.swapped
    columns = {"kind": tuple(map(str, kinds)), "copy": tuple("xy"[k % 2] for k in kinds)}
    file = replace(file, truth=truth, columns=columns)
    plain = attack_channels(file, order_channels(file))
    assert min(one.p_value for one in plain if one.details.get("column") == "copy") < 1e-5
    declared = attack_channels(file, order_channels(file), covariates=["kind"])
    assert min(one.p_value for one in declared) == 1.0
    copies = [one for one in declared if one.details.get("column") == "copy"]
    assert any("explained by the declared column 'kind'" in one.if_clear for one in copies)


def test_people_of_one_answer_each_are_one_group():
    # A group of one always agrees with its majority, which would make every label public.
    file = file_of(truth=np.ones(N, dtype=np.int64), persons=tuple(map(str, range(N))))
    assert position(file).p_value < 1e-5


def test_a_declared_column_does_not_excuse_the_order_kept():
    file = file_of(truth=np.ones(N, dtype=np.int64))
    for values in (("same",) * N, tuple(map(str, range(N))), tuple("AB"[i % 2] for i in range(N))):
        assert position(replace(file, columns={"c": values}), covariates=["c"]).p_value < 1e-5


def test_persons_and_questions_are_public_not_channels():
    # One person always takes the canonical first, one the second; a column names the person.
    person = np.arange(N) * 2 // N
    file = file_of()
    truth = person ^ file.swapped
    columns = {"batch": tuple("xy"[x] for x in person)}
    file = replace(file, truth=truth, columns=columns)
    anonymous = attack_channels(file, order_channels(file))
    assert min(one.p_value for one in only(anonymous, "column")) < 1e-5
    named = replace(file, persons=tuple(map(str, person)))
    assert min(one.p_value for one in attack_channels(named, order_channels(named))) == 1.0


def test_a_question_that_many_answer_alike_is_no_leak_by_row_order():
    n = 600
    which = np.sort(np.random.default_rng(1).integers(12, size=n))
    likes = np.arange(12) % 2
    file = file_of(
        n,
        prompts=tuple(f"q{i}" for i in which),
        first=("a",) * n,
        second=("b",) * n,
        persons=tuple(f"p{i}" for i in range(n)),
        truth=likes[which],
    )
    channels = order_channels(file)
    rows = only(attack_channels(file, channels), "row-order")
    assert max(one.recovered for one in rows) > 0.8
    assert min(one.p_value for one in rows) == 1.0


def test_repeats_of_one_person_count_once():
    file = file_of(4)
    file = replace(file, prompts=("p", "p", "p", "q"), first=("a",) * 4, second=("b",) * 4)
    assert independent_rows(file).tolist() == [True, False, False, True]
    named = replace(file, persons=("x", "x", "y", "x"))
    assert independent_rows(named).tolist() == [True, False, True, True]
    assert position(named).details["rows"] == 3


def test_unknown_truths_and_silent_rows_are_not_judged():
    file = file_of(truth=np.array([1] * 300 + [UNKNOWN] * 100))
    assert position(file).details["rows"] == 300
    silent = Channel(name="id-hash", guesses=np.full(N, UNKNOWN))
    assert attack_channels(file, [silent]) == []
    some = Channel(name="id-hash", guesses=np.where(np.arange(N) < 200, 1, UNKNOWN))
    found = attack_channels(file, [some])[0]
    assert found.details["rows"] == 200
    assert found.recovered == 1.0


def test_labels_that_what_is_public_makes_certain_leave_no_evidence():
    file = file_of(truth=file_of().swapped.astype(np.int64))
    assert PublicKnowledge(released=file).log_odds(np.ones(N, dtype=bool)) == np.inf
    assert position(file).p_value == 1.0


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1970-01-01", None], [0, None]),
        (["1970-01-01T00:00:01.5+01:00"], [1_500_000 - 3_600_000_000]),
        (["1970-01-01T00:00-0130"], [5_400_000_000]),
        (["1970-01-01 00:01", "1970-01-02T00:00:00Z"], [60_000_000, 86_400_000_000]),
        (["12", 3, "-1.5"], [12, 3, -1.5]),
        ([10**30, "1" * 25], [10**30, int("1" * 25)]),
        (["2024-13-45"], None),
        ([True, False], None),
        ([float("nan"), 1], None),
        (["x", 1], None),
        ([None], None),
    ],
)
def test_numbers_and_time_stamps_are_recognized(values, expected):
    assert ordered_values(values) == expected


def test_blocks_are_of_about_equal_size_and_keep_equal_numbers_together():
    blocks = ranked_blocks([3] * 10 + list(range(10, 30)), 3)
    assert np.bincount(blocks).tolist() == [10, 10, 10]


def test_values_of_different_kinds_are_different_groups():
    values = [1, "1", True, None, 1.0, [1], {"a": 1}, {"a": 1}]
    assert numbered(values).tolist().count(0) == 2
    assert len(set(numbered(values).tolist())) == 7
    assert numbered(map(str, range(9)), most=4).max() == 3


def test_a_column_is_read_in_the_ways_that_fit_it():
    def names(values):
        return [reading.name for reading in readings(values)]

    assert names(["x"] * 100) == []
    assert names(["x", None] * 50) == ["value"]
    texts = names([f"{'a' * (i % 3)}#{i}#{i % 2}?{'xyz'[i % 3]}" for i in range(1000)])
    parts = ["part 3", "part 4", "last part"]
    assert texts == ["first character", "last character", "length", "part 1", *parts]
    assert {"parity", "range", "half", "last digit"} <= set(names(list(range(1000, 2000))))
    assert "parity" in names([f"{i:08x}" for i in range(1000)])


def test_nothing_of_the_data_is_in_a_sentence():
    file = file_of(prompts=tuple(f"secretprompt{i}" for i in range(N)))
    columns = {"c": tuple(f"secretvalue{x}" for x in file.truth)}
    file = replace(file, columns=columns, first=tuple(f"secret{i}" for i in range(N)))
    for one in attack_channels(file, order_channels(file)):
        assert "secret" not in f"{one.if_refutes}{one.if_clear}{dict(one.details)}"


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5])
def test_tiny_files_are_no_error_and_no_evidence(n):
    file = file_of(n, columns={"c": tuple(range(n)), "t": ("2024-01-01",) * n})
    assert all(one.p_value > 0.01 for one in attack_channels(file, order_channels(file)))


def told(file: Released, values, **settings) -> set[str]:
    """Return the readings of a column by which it is refuted."""
    file = replace(file, columns={"c": tuple(values)})
    found = attack_channels(file, order_channels(file), **settings)
    return {one.details["reading"] for one in found
            if one.details.get("column") == "c" and one.p_value < 1e-5}  # fmt: skip


def test_a_fraction_of_a_second_that_is_the_label_is_found():
    file = file_of()
    stamps = [f"2024-05-01T10:{i % 60:02d}:{i * 7 % 60:02d}" for i in range(N)]
    labels = [*zip(stamps, file.truth, strict=True)]
    assert "fraction" in told(file, (f"{at}.{'01'[x]}00Z" for at, x in labels))
    assert "fraction" in told(file, (at + ("" if x else ".25+02:00") for at, x in labels))
    seconds = [1_700_000_000 + 61 * i for i in range(N)]
    parts = [*zip(seconds, file.truth, strict=True)]
    assert "fraction" in told(file, (s + x / 10 for s, x in parts))
    assert "fraction" in told(file, (1000 * s + 100 * int(x) for s, x in parts))
    assert "fraction" in told(file, (str(10**6 * s + 500_000 * int(x)) for s, x in parts))
    r = np.random.default_rng(1)
    halves = (f"{at}.{500 * x + r.integers(500):03d}Z" for at, x in labels)
    assert "half of the fraction" in told(file, halves)
    assert not told(file, (f"{at}.{r.integers(1000):03d}Z" for at in stamps))


def test_a_part_of_an_id_that_is_the_label_is_found():
    file = file_of()
    rows = [*enumerate(file.truth)]
    assert "part 2" in told(file, (f"q{i}-{x}-{i * i}" for i, x in rows))
    long = "-".join("x" * 9)
    assert "last part" in told(file, (f"{i}-{long}-{('no', 'yes')[x]}z" for i, x in rows))
    assert not told(file, (f"q{i}-{i * 7 % 11}-{i * i}" for i in range(N)))


@pytest.mark.parametrize("huge", [10**400, -(10**400)])
def test_a_number_that_no_float_holds_is_a_number(huge):
    assert ordered_values([huge, 1.5]) == [huge, 1.5]
    file = file_of(columns={"c": (huge, 0.5, *range(N - 2)), "d": (huge,) * N})
    assert attack_channels(file, order_channels(file), covariates=["c"])


def test_an_order_that_is_refuted_is_told_the_way_out():
    file = file_of(truth=np.ones(N, dtype=np.int64))
    assert "as first, second, label" in position(file).if_refutes
    rows = file_of(truth=np.arange(N) * 2 // N)
    [found, *_] = [one for one in attack_channels(rows, order_channels(rows))
                   if one.attack == "row-order" and one.p_value < 1e-5]  # fmt: skip
    assert "as first, second, label" in found.if_refutes


def test_what_says_no_more_than_the_order_written_reads_out_nothing():
    file = file_of(truth=np.ones(N, dtype=np.int64))
    evidence = attack_channels(file, order_channels(file))
    found = [one for one in evidence if "no more than the order written" in one.if_clear]
    assert {one.attack for one in found} == {"row-order"}
    assert {one.recovered for one in found} == {None}
    assert position(file).recovered == 1.0
