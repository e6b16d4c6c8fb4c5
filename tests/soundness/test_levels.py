"""Thumbs and ratings: exactly what one of them shows, by a coin and in a noised sum.

A label is a share of one, j/(K − 1). Of every label the real coin is cut by bisection, over all
2^64 words; of the sum every label is held against every other, in whole steps of its grid.
"""

import json
import math
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from tests.privatized import privatize_file
from tests.tiers import few

from sordino._random import SimulatedEntropy, SystemEntropy
from sordino.auditing.exact import exact_epsilon
from sordino.engines.engine import InProcess, Rows
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.label_sum import FINER, ChunkedLabels, LabelGaussian
from sordino.mechanisms.randomized_response import (
    NonPrivate,
    RandomizedResponse,
    drawn_bits,
    label_shares,
)
from sordino.preferences.chunk_survey import survey_chunks
from sordino.preferences.chunks import find_chunks
from sordino.preferences.features import HashedText, Intercept, differences
from sordino.preferences.pairs import Pairs, read_pairs
from sordino.preferences.records import Absent, Levels
from sordino.privacy.guarantee import CODES, REPLACE_ONE, REPLACE_SPECIAL, SHARES, Guarantee
from sordino.privacy.ledger import Ledger
from sordino.privatization.answers import privatize
from sordino.privatization.chunks import _pad
from sordino.rewards.pair_losses import DebiasedLogistic
from sordino.rewards.record_release import _decided_labels

WORDS = 2**64
ALL = np.arange(len(SHARES))


def ones(drawn):
    """On how many of all words each label is answered by 1, cut by bisection for all at once."""
    first, last = (
        drawn(np.zeros(len(ALL), np.uint64)),
        drawn(np.full(len(ALL), WORDS - 1, np.uint64)),
    )
    low, high = [0] * len(ALL), [WORDS - 1] * len(ALL)
    for _ in range(64):
        middle = [(a + b) // 2 for a, b in zip(low, high, strict=True)]
        same = drawn(np.array(middle, np.uint64)) == first
        low = [m if s else a for a, m, s in zip(low, middle, same, strict=True)]
        high = [b if s else m for b, m, s in zip(high, middle, same, strict=True)]
    counts = []
    for one, other, at in zip(first.tolist(), last.tolist(), high, strict=True):
        below = WORDS if one == other else at
        counts.append(below if one else WORDS - below)
    return counts


def released_by(mechanism):
    class Tape:
        randomness = "system"

        def __init__(self, words):
            self.said = words

        def words(self, n):
            assert n == len(self.said)  # one for every label, whatever it is
            return self.said

    return lambda words: mechanism.release(ALL, entropy=Tape(words))


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 4.0, 20.0, 44.36])
def test_no_two_labels_differ_by_more_than_the_lowest_and_the_highest(epsilon):
    """Every output, every pair of all 121 labels, in exact fractions."""
    coin = RandomizedResponse(epsilon)
    counts = ones(released_by(coin))
    t = coin.threshold
    assert [counts[0], counts[1], counts[2]] == [t, WORDS - t, WORDS // 2]
    most = Fraction(WORDS - t, t)
    for one, other in product(counts, repeat=2):
        assert Fraction(one, other) <= most
        assert Fraction(WORDS - one, WORDS - other) <= most
    for count, share in zip(counts, SHARES, strict=True):  # unbiased, to the last word
        assert abs(count - (t + (WORDS - 2 * t) * share)) < 1
    order = sorted(range(len(SHARES)), key=SHARES.__getitem__)
    assert all(counts[one] < counts[other] for one, other in pairwise(order))


def test_what_the_mechanism_says_of_its_chances_is_so():
    coin = RandomizedResponse(1.0)
    shown = [round(float(share) * WORDS) for share in SHARES]
    for mechanism, counts in ((coin, ones(released_by(coin))), (NonPrivate(), shown)):
        with np.errstate(divide="ignore"):
            for bit in (0, 1):
                found = mechanism._log_chances(np.full((1, len(ALL)), bit), ALL)[0]
                chance = np.array([c if bit else WORDS - c for c in counts], float) / WORDS
                np.testing.assert_allclose(found, np.log(chance), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("neighbors", [REPLACE_ONE, REPLACE_SPECIAL])
def test_the_worst_case_of_an_auditor_is_the_worst_of_all(neighbors):
    coin = RandomizedResponse(2.0)
    counts = ones(released_by(coin))
    case = coin.worst_case(neighbors)

    def loss(one, other):
        sides = (counts[one], counts[other]), (WORDS - counts[one], WORDS - counts[other])
        return max(abs(math.log(Fraction(a, b))) for a, b in sides)

    others = ALL if neighbors is REPLACE_ONE else [2]
    worst = max(loss(one, other) for one in ALL for other in others)
    assert loss(case.one[0], case.other[0]) == pytest.approx(worst, rel=1e-12)
    outputs = np.array([[0], [1]])
    assert np.abs(coin.log_ratio(outputs, case)).max() == pytest.approx(worst, rel=1e-12)


def test_a_record_that_is_rated_is_decided_by_a_coin_of_its_share():
    counts = ones(lambda words: _decided_labels(ALL, words ^ np.uint64(0)).astype(int))
    for count, share, code in zip(counts, SHARES, ALL, strict=True):
        assert abs(count - share * WORDS) < 1 or code == 2  # a tie is decided by the lowest bit
    assert drawn_bits(np.array([0, 1]), np.array([0, 0], np.uint64)).tolist() == [0, 1]


PROMPTS = {"prompt": "Which?", "completion": "This one."}
SAID = {
    "thumb": ({}, [True, False, "skip"], "label"),
    "rating": ({"levels": "1..5"}, [1, 2, 3, 4, 5, "skip"], "rating"),
}


@pytest.mark.parametrize("kind", few(SAID, first=1))
def test_what_is_published_shows_one_judgment_by_epsilon(kind, tmp_path, monkeypatch):
    """The bytes of the file, its manifest without the digest of both, over all classes of words."""
    reading, said, name = SAID[kind]
    coin = RandomizedResponse(0.5)
    channel = {}
    steps = [Fraction(j, 4) for j in range(5)]
    cuts = {int(coin.threshold + (WORDS - 2 * coin.threshold) * y) for y in steps}
    run = 0
    for value in said:
        raw = tmp_path / "raw.jsonl"
        raw.write_text(json.dumps({**PROMPTS, name: value}) + "\n", encoding="utf-8")
        law = {}
        for low, high in pairwise(sorted({0, *cuts, WORDS})):
            monkeypatch.setattr(
                SystemEntropy, "words", lambda _, n, at=low: np.full(n, at, np.uint64)
            )
            run += 1
            budget = Guarantee(1.0, delta=0.0, unit="label", neighbors=REPLACE_ONE, trust="central")
            ledger = Ledger.open(tmp_path / f"{run}.db", data="a", budget=budget)
            out = tmp_path / "out.jsonl"
            note = privatize_file(raw, out, coin, ledger=ledger, reading=reading, force=True)
            seen = out.read_bytes(), note.to_dict() | {"release_id": "", "sha256": ""}
            key = json.dumps([seen[0].decode(), seen[1]])
            law[key] = law.get(key, Fraction(0)) + Fraction(high - low, WORDS)
        channel[(value,)] = law
    pairs = [((one,), (other,)) for one, other in product(said, repeat=2)]
    assert float(exact_epsilon(channel, pairs)) == pytest.approx(coin.realized_epsilon, abs=1e-15)


# --- the noised sum -------------------------------------------------------------------------------


def design_of(levels, *, persons=None, longest=math.inf):
    rows = np.random.default_rng(levels).normal(size=(4, 2)) * [[1.0], [0.3], [2.0], [1e-3]]
    most = None if persons is None else 2
    noise = LabelGaussian(2.0, delta=1e-6, records_per_person=most, longest=longest)
    parts = Levels(1, levels).parts
    return noise.prepare(rows, persons=persons, parts=parts), rows, parts


@pytest.mark.parametrize("levels", [2, 3, 5, 6, 20])
@pytest.mark.parametrize("longest", [math.inf, 0.5])
def test_no_rating_moves_the_sum_by_more_than_is_hidden(levels, longest):
    """Every level of every row against every other, as exact squares of whole steps."""
    design, rows, parts = design_of(levels, longest=longest)
    codes = [CODES[Fraction(j, levels - 1)] for j in range(levels)] + [2]
    start = np.array([codes[j % len(codes)] for j in range(4)], np.int8)
    hidden, attained = Fraction(design.moved) ** 2, Fraction(0)
    for row, one, other in product(range(4), codes, codes):
        a, b = start.copy(), start.copy()
        a[row], b[row] = one, other
        gap = design._total(a) - design._total(b)
        square = Fraction(int(gap @ gap))
        assert square <= hidden
        attained = max(attained, square)
    assert (Fraction(design.moved) - Fraction(1, FINER)) ** 2 < attained
    case = design.worst_case(REPLACE_ONE)
    gap = design._total(case.one) - design._total(case.other)
    assert Fraction(int(gap @ gap)) == attained
    # what is summed is Σ y x, to the rounding of one part of a step for each row
    weights = np.minimum(1, longest / np.linalg.norm(rows, axis=1))
    exact = (label_shares(start) * weights) @ rows
    slack = len(rows) * parts / 2 * np.abs(design.step).sum(axis=1)
    assert (np.abs(design._total(start) @ design.step.T - exact) <= slack).all()


def test_all_ratings_of_one_person_move_the_sum_by_no_more_than_is_hidden():
    design, _, _ = design_of(5, persons=["a", "a", "b", "b"])
    codes = [CODES[Fraction(j, 4)] for j in range(5)]
    for first, second in ((0, 1), (2, 3)):
        for one in product(codes, repeat=2):
            a, b = np.zeros((2, 4), np.int8)
            a[[first, second]] = one
            gap = design._total(a) - design._total(b)
            assert Fraction(int(gap @ gap)) <= Fraction(design.moved) ** 2


def test_files_are_summed_in_the_same_steps_as_memory():
    design, rows, parts = design_of(5)
    labels = np.array([0, 1, CODES[Fraction(1, 4)], 2], np.int8)
    in_files = ChunkedLabels(design.mechanism, design.ellipsoid, parts)
    total = in_files.total(Rows.of(rows, labels))
    assert total.added.total.tolist() == design._total(labels).tolist()
    assert total.moved == design.moved


def test_a_rating_of_other_levels_is_refused():
    design, _, _ = design_of(5)
    with pytest.raises(DataError, match="declared levels"):
        design.release(np.array([0, 1, CODES[Fraction(1, 3)], 2]), entropy=SimulatedEntropy(1))
    with pytest.raises(DataError, match="labels must be"):
        Pairs.from_features(np.ones((1, 1)), [1 / 3], parts=4)


def test_a_pad_hides_every_bit_of_a_label():
    pad = _pad(b"secret", 3, 5, 4096)
    assert set(pad.tolist()) == set(range(256))


# --- the likelihood -------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", 10.0 ** np.arange(-5, 5))
@pytest.mark.parametrize("levels", [2, 5])
def test_gradient_and_hessian_are_those_of_as_many_thumbs(levels, scale):
    """A rating j of K is K − 1 thumbs, j of them up; slopes by finite differences."""
    rng = np.random.default_rng(levels)
    features = Intercept(HashedText(dimension=6), families=("a", "b"))
    texts = [" ".join(rng.choice(["sure", "no", "why", "a b"], 4)) for _ in range(30)]
    families = [Absent("ab"[row % 2]) for row in range(30)]
    rows = np.asarray(differences(features, texts, texts, families).toarray()) * scale
    marks = rng.integers(0, levels, 30)
    rated = DebiasedLogistic(rows, targets=marks / (levels - 1))
    thumbs = np.repeat(rows, levels - 1, axis=0)
    up = np.concatenate([np.arange(levels - 1) < mark for mark in marks]).astype(float)
    each = DebiasedLogistic(thumbs, targets=up)
    theta = rng.normal(size=8) / scale
    for name in ("value", "gradient", "hessian"):
        one, other = (getattr(loss, name)(theta) for loss in (rated, each))
        np.testing.assert_allclose(one * (levels - 1), other, rtol=1e-12, atol=1e-12 * scale**2)
    step = 1e-5 / scale
    for place in range(8):
        along = np.eye(8)[place] * step
        slope = (rated.value(theta + along) - rated.value(theta - along)) / (2 * step)
        assert slope == pytest.approx(rated.gradient(theta)[place], rel=1e-6, abs=1e-8 * scale)
        bend = (rated.gradient(theta + along) - rated.gradient(theta - along)) / (2 * step)
        np.testing.assert_allclose(
            bend, rated.hessian(theta)[place], rtol=1e-6, atol=1e-8 * scale**2
        )


def test_an_intercept_cancels_between_answers_and_is_bounded():
    plain = HashedText(dimension=40, feature_bound=3.0)
    features = Intercept(plain, families=("a", "b"))
    prompts, one, other = ["q", "p"], ["yes it is", "no"], ["never", "perhaps so"]
    both = differences(features, prompts, one, other).toarray()
    np.testing.assert_array_equal(both[:, :40], differences(plain, prompts, one, other).toarray())
    assert not both[:, 40:].any()
    alone = differences(features, prompts, one, [Absent("b"), Absent("c")]).toarray()
    assert alone[:, 40:].tolist() == [[0.0, 1.5], [0.0, 0.0]]  # of no family that is known: none
    assert np.linalg.norm(alone, axis=1).max() <= 2 * features.feature_bound
    only = differences(plain, prompts, one, [Absent(), Absent()])
    np.testing.assert_array_equal(only.toarray(), plain.transform(prompts, one).toarray())


# --- what is read ---------------------------------------------------------------------------------


def test_levels_are_never_taken_from_the_ratings():
    with pytest.raises(DataError, match="must be declared"):
        read_pairs([{**PROMPTS, "rating": 3}])


@pytest.mark.parametrize(
    ("row", "levels", "share"),
    [
        ({"label": True}, None, 1),
        ({"label": "Thumbs  Down"}, None, 0),
        ({"label": "skip"}, None, Fraction(1, 2)),
        ({"rating": 2}, "1..5", Fraction(1, 4)),
        ({"rating": " 5 "}, (1, 5), 1),
        ({"rating": 0.0}, "-2..2", Fraction(1, 2)),
        ({"rating": "skip"}, "1..4", Fraction(1, 2)),
    ],
)
def test_a_judgment_of_one_answer_is_a_share(row, levels, share):
    pairs = read_pairs([{**PROMPTS, **row}], levels=levels)
    assert pairs.alone
    assert SHARES[pairs.labels[0]] == share


@pytest.mark.parametrize("value", [0, 6, 2.5, "two", None, True, float("nan"), "1e999", [3]])
def test_a_rating_that_is_no_level_is_refused_without_its_value(value):
    with pytest.raises(DataError, match=r"field 'rating' must be a whole number in 1\.\.5") as told:
        read_pairs([{**PROMPTS, "rating": value}], levels="1..5")
    assert repr(value) not in str(told.value).replace("'rating'", "").replace("1..5", "")


def test_ratings_of_one_prompt_become_disjoint_pairs_by_a_public_rule():
    rows = [
        {"prompt": prompt, "completion": f"answer {n}", "rating": 1 + n % 5, "person": who}
        for prompt in ("p", "q")
        for who in ("a", "b")
        for n in range(5)
    ]
    found = read_pairs(rows, levels="1..5", ratings="pairs")
    assert len(found) == 8  # two of five answers of each person to each prompt; one is left over
    assert not found.alone
    used = [
        (p, w, text)
        for p, w, *both in zip(found.prompts, found.persons, found.first, found.second, strict=True)
        for text in both
    ]
    assert len(set(used)) == len(used)  # one rating is in one label
    marks = {f"answer {n}": 1 + n % 5 for n in range(5)}
    for one, other, label in zip(found.first, found.second, found.labels, strict=True):
        gap = marks[one] - marks[other]
        assert label == (2 if gap == 0 else int(gap > 0))
    # neither the ratings nor the order of the file decide who is compared with whom
    other = read_pairs([{**row, "rating": 3} for row in rows[::-1]], levels="1..5", ratings="pairs")
    assert set(other.keys) == set(found.keys)
    assert (other.labels == 2).all()


RATED = [{"prompt": "p", "completion": f"answer {n}", "rating": n} for n in range(1, 6)]
THUMBS = [
    {"prompt": row["prompt"], "completion": row["completion"], "label": True} for row in RATED
]


def test_all_judgments_of_one_answer_are_one_data_set_and_add_up(tmp_path):
    """A thumb, a rating and a pair of ratings may be the same opinion: nobody is charged once."""
    read = [
        read_pairs(THUMBS),
        read_pairs(RATED, levels="1..5"),
        read_pairs(RATED, levels="0..5"),
        read_pairs(RATED, levels="1..5", ratings="pairs"),
    ]
    keys = [set(pairs.keys) for pairs in read]
    assert not any(one & other for one, other in combinations(keys, 2))  # a coin of its own each
    known = [set(pairs.questions.tolist()) for pairs in read]
    assert all(one & other for one, other in combinations(known, 2))
    budget = Guarantee(4.0, delta=0.0, unit="label", neighbors=REPLACE_ONE, trust="central")
    in_memory = Ledger.open(tmp_path / "memory.db", data="a", budget=budget)
    in_files = Ledger.open(tmp_path / "files.db", data="a", budget=budget)
    coin = RandomizedResponse(1.0)
    for number, (pairs, rows, ratings) in enumerate(
        zip(read, (THUMBS, RATED, RATED, RATED), ("levels",) * 3 + ("pairs",), strict=True)
    ):
        privatize(pairs, coin, ledger=in_memory)
        raw = tmp_path / f"{number}.jsonl"
        raw.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        reading = {"levels": pairs.levels or Levels(1, 5), "ratings": ratings}
        out = tmp_path / f"{number}.out.jsonl"
        privatize_file(raw, out, coin, ledger=in_files, reading=reading)
        for ledger in (in_memory, in_files):
            assert ledger.total().epsilon == pytest.approx(number + 1, abs=1e-9)


def test_a_released_rating_is_known_again_by_its_question(tmp_path):
    raw, out = tmp_path / "raw.jsonl", tmp_path / "out.jsonl"
    raw.write_text("".join(json.dumps(row) + "\n" for row in RATED), encoding="utf-8")
    budget = Guarantee(1.0, delta=0.0, unit="label", neighbors=REPLACE_ONE, trust="central")
    ledger = Ledger.open(tmp_path / "spend.db", data="a", budget=budget)
    privatize_file(raw, out, RandomizedResponse(1.0), ledger=ledger, reading={"levels": "1..5"})
    fields = [set(json.loads(line)) for line in out.read_text(encoding="utf-8").splitlines()]
    assert all(each == {"prompt", "completion", "levels", "answer"} for each in fields)
    private = read_pairs(out)
    assert private.keys == read_pairs(RATED, levels="1..5").keys
    assert private.alone
    with pytest.raises(DataError, match="comparisons of two"):
        private.refuse_alone()
    with pytest.raises(UsageError, match="No trainer of trl"):
        private.trl_arguments()


def test_families_are_bound_to_what_was_released(tmp_path):
    """Whoever moves an answer to another family holds something that was not released."""
    rows = [
        {"prompt": f"q{i % 4}", "completion": f"a{i}", "label": i % 2, "family": "xy"[i % 2]}
        for i in range(8)
    ]
    moved = [row | {"family": "x"} for row in rows]
    bare = [{name: row[name] for name in row if name != "family"} for row in rows]
    digests = []
    for number, some in enumerate((rows, moved, bare, rows)):
        path = tmp_path / f"{number}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in some))
        with survey_chunks(find_chunks(path), InProcess()) as survey:
            pairs = read_pairs(some)
            assert survey.families == pairs.families
            together = pairs.part(range(4)).public_digest
            digests.append((pairs.public_digest, together, survey.public_digest, survey.digests))
    assert digests[0] == digests[3]
    assert all(len({one[place] for one in digests[:3]}) == 3 for place in range(4))
    budget = Guarantee(1.0, delta=0.0, unit="label", neighbors=REPLACE_ONE, trust="central")
    ledger = Ledger.open(tmp_path / "spend.db", data="a", budget=budget)
    private = privatize(read_pairs(rows), RandomizedResponse(1.0), ledger=ledger)
    assert replace(private, second=private.second).seal == private.seal
    with pytest.raises(PrivacyError, match="not the answers that were released"):
        replace(private, second=(Absent("x"),) * 8)
