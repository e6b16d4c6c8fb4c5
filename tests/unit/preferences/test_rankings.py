"""Rankings: what is public does not depend on ranks, and two candidates are a pair."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.errors import DataError, PrivacyError, UsageError
from sordino.preferences.features import FunctionFeatures, HashedText
from sordino.preferences.pairs import read_pairs
from sordino.preferences.rankings import Rankings, read_rankings

NAMES = ["tea", "beer", "milk", "ale"]
WEAK = st.lists(st.lists(st.integers(0, 4), min_size=4, max_size=4), min_size=1, max_size=6)
FEATURES = HashedText(dimension=64)


def public(rankings):
    given = rankings.given
    return (
        rankings.keys, rankings.public_digest, rankings.starts.tolist(), rankings.prompts,
        rankings.candidates, rankings.items, rankings.persons, len(rankings), repr(rankings),
        None if given is None else given.tobytes(),
    )  # fmt: skip


def records(ranks, order):
    """Ballots of four texts each, written in the given order."""
    rows = []
    for index, ballot in enumerate(ranks):
        texts = [f"answer {index} {name}" for name in NAMES]
        rows.append(
            {
                "prompt": f"p{index}",
                "candidates": [texts[place] for place in order],
                "ranks": [ballot[place] or None for place in order],
            }
        )
    return rows


@given(WEAK, st.permutations(range(4)), st.permutations(range(4)))
def test_everything_public_is_independent_of_the_ranks(ranks, one, other):
    """Also of the order in which the candidates are written down, which may be the ranking."""
    blank = [[0] * 4] * len(ranks)
    table = np.random.default_rng(len(ranks)).normal(size=(len(ranks), 4, 3))
    makers = (
        lambda ranks, order: read_rankings(records(ranks, order)),
        lambda ranks, order: Rankings.from_ranks(
            [NAMES[i] for i in order], np.array(ranks)[:, order], unlisted=0, offered="all"
        ),
        lambda ranks, order: Rankings.from_ranks(
            table[:, order], np.array(ranks)[:, order], unlisted=0
        ),
    )
    for make in makers:
        found = [make(ranks, list(one)), make(ranks, list(other)), make(blank, list(other))]
        assert public(found[0]) == public(found[1]) == public(found[2])
        assert found[0].ranks.tolist() == found[1].ranks.tolist()
        assert found[2].doubled_ranks().tolist() == [5] * 4 * len(ranks)
        for rankings in found:
            rankings.refuse_other_order()


@given(WEAK)
def test_every_candidate_keeps_its_rank(ranks):
    table = np.arange(4 * len(ranks), dtype=float).reshape(len(ranks), 4, 1)
    found = Rankings.from_ranks(table, ranks, unlisted=0)
    back = np.empty(4 * len(ranks), dtype=int)
    back[found.given[:, 0].astype(int)] = found.doubled_ranks()
    items = Rankings.from_ranks(NAMES, ranks, unlisted=0, offered="all")
    doubled = items.doubled_ranks().reshape(-1, 4)
    straight = doubled[:, [items.items.index(name) for name in NAMES]]
    assert back.tolist() == straight.ravel().tolist()
    assert found.given[:4, 0].tolist() == [3.0, 2.0, 1.0, 0.0], "from the largest to the smallest"


def test_ballots_of_different_sizes():
    sizes, generator = [2, 5, 3], np.random.default_rng(0)
    ballots = [
        {
            "prompt": f"q{k}",
            "candidates": [f"a{i}" for i in range(k)],
            "ranks": (generator.permutation(k) + 1).tolist(),
        }
        for k in sizes
    ]
    rankings = read_rankings(ballots)
    assert rankings.sizes.tolist() == sizes
    assert rankings.complete.all()
    part = rankings.part([2, 0])
    for mistaken in ([0, 0], [False, True, True]):
        with pytest.raises(DataError, match="each once"):
            rankings.part(mistaken)
    assert part.sizes.tolist() == [3, 2]
    assert part.ranks.tolist() == [*rankings.ranks[7:], *rankings.ranks[:2]]
    assert part.candidates == (*rankings.candidates[7:], *rankings.candidates[:2])
    part.refuse_other_order()


# --- part, persons, keys ---


def test_a_part_has_the_digest_of_its_own_rows():
    rows = records([[1, 2, 3, 4], [2, 1, 0, 0], [1, 1, 2, 2]], range(4))
    people = ["ana", "ben", "ana"]
    rows = [row | {"person": who} for row, who in zip(rows, people, strict=True)]
    part = read_rankings(rows).part([2, 1])
    again = read_rankings([rows[2], rows[1]])
    assert public(part) == public(again)
    assert part.ranks.tolist() == again.ranks.tolist()
    assert len(part.part([])) == 0
    items = Rankings.from_ranks(NAMES, [[1, 2, 3, 4], [4, 3, 2, 1]], features=np.eye(4))
    assert items.part([1]).ranks.tolist() == items.ranks[4:].tolist()
    assert items.part([1]).item_features().tolist() == items.item_features().tolist()


def test_a_repeated_ballot_of_one_person_counts_once():
    people = ["ana", "ben", "ana"]
    rankings = Rankings.from_orders(NAMES, [["tea"], ["ale"], ["ale"]], people, offered="all")
    assert rankings.persons == tuple(people)
    assert rankings.first_rows().tolist() == [True, True, False]
    assert Rankings.from_orders(NAMES, [["tea"]] * 3, offered="all").first_rows().all()
    with pytest.raises(DataError, match="persons"):
        Rankings.from_orders(NAMES, [["tea"]], ["a", "b"], offered="all")


def test_the_digest_sees_every_public_change():
    rows = records([[1, 2, 3, 4], [2, 1, 0, 0]], range(4))
    digests = {
        read_rankings(change).public_digest
        for change in (
            rows,
            rows[::-1],
            rows[:1],
            [rows[0] | {"prompt": "other"}, rows[1]],
            [rows[0] | {"candidates": ["x", *rows[0]["candidates"][1:]]}, rows[1]],
            [row | {"person": "p"} for row in rows],
        )
    }
    assert len(digests) == 6


@pytest.mark.parametrize("kind", ["texts", "features", "items"])
def test_another_order_is_refused_before_anything_is_released(kind):
    made = {
        "texts": read_rankings(records([[1, 2, 3, 4]] * 2, range(4))),
        "features": Rankings.from_ranks(
            np.random.default_rng(0).normal(size=(2, 4, 2)), [NUMBERS] * 2
        ),
        "items": Rankings.from_orders(NAMES, [["tea"], ["ale"]], offered="all"),
    }[kind]
    made.refuse_other_order()
    with pytest.raises(PrivacyError, match="Ballot 0"):
        replace(made, keys=(b"x" * 32, made.keys[1])).refuse_other_order()
    column = {"texts": "candidates", "features": "given", "items": "items"}[kind]
    values = getattr(made, column)
    swapped = (*values[:-2], values[-1], values[-2])
    other = replace(made, **{column: np.array(swapped) if kind == "features" else swapped})
    with pytest.raises(PrivacyError, match="Ballot 0" if kind == "items" else "Ballot 1"):
        other.refuse_other_order()


NUMBERS = [1, 2, 3, 4]


# --- two candidates ---


@given(st.lists(st.integers(0, 2), min_size=1, max_size=12), st.booleans())
def test_two_candidates_are_a_pair(outcomes, turned):
    """1: the first text won, 0: the other, 2: neither; the pairs are those of read_pairs."""
    ranks = {1: [1, 2], 0: [2, 1], 2: [1, 1]}
    ballots, pairs = [], []
    for index, outcome in enumerate(outcomes):
        texts = [f"a{index}", f"b{index}"]
        label = 0.5 if outcome == 2 else outcome
        pairs.append({"prompt": "p", "first": texts[0], "second": texts[1], "label": label})
        turn = -1 if turned else 1
        row = {"prompt": "p", "candidates": texts[::turn], "ranks": ranks[outcome][::turn]}
        ballots.append(row)
    found, wanted = read_rankings(ballots), read_pairs(pairs)
    for name in ("keys", "public_digest", "prompts", "persons"):
        assert getattr(found, name) == getattr(wanted, name)
    assert (found.candidates[::2], found.candidates[1::2]) == (wanted.first, wanted.second)
    doubled = found.doubled_ranks()
    labels = {-1: 1, 1: 0, 0: 2}
    assert [labels[x] for x in np.sign(doubled[::2] - doubled[1::2])] == wanted.labels.tolist()


# --- features ---


def test_features_of_texts_follow_the_candidates():
    rankings = read_rankings(records([NUMBERS, [1, 0, 0, 2]], range(4)))
    rows = rankings.flat_features(FEATURES).toarray()
    prompts = [rankings.prompts[index // 4] for index in range(8)]
    assert (rows == FEATURES.transform(prompts, rankings.candidates).toarray()).all()
    with pytest.raises(UsageError, match="must be given"):
        rankings.flat_features(None)
    with pytest.raises(UsageError, match="HashedText"):
        rankings.flat_features("text")
    with pytest.raises(UsageError, match="items are needed"):
        rankings.item_features(FEATURES)
    with pytest.raises(UsageError, match="left out"):
        Rankings.from_ranks([np.eye(2)], [[1, 2]]).flat_features(FEATURES)


def test_features_of_items():
    length = FunctionFeatures(
        lambda prompts, names: [[len(name)] for name in names],
        dimension=1,
        feature_bound=9.0,
        name="length",
    )
    rankings = Rankings.from_orders(NAMES, [["tea"], ["beer", "ale"]], offered="all")
    assert rankings.item_features().tolist() == np.eye(4).tolist()
    assert rankings.item_features(length).tolist() == [[3.0], [4.0], [4.0], [3.0]]
    assert rankings.flat_features(length).tolist() == [[3.0], [4.0], [4.0], [3.0]] * 2
    assert rankings.flat_features(None).shape == (8, 4)
    own = Rankings.from_ranks(NAMES, [NUMBERS], features=[[1.0], [2.0], [3.0], [4.0]])
    assert own.item_features().tolist() == [[4.0], [2.0], [3.0], [1.0]]  # ale, beer, milk, tea
    with pytest.raises(UsageError, match="left out"):
        own.item_features(length)


# --- what cannot be used ---


@pytest.mark.parametrize(
    ("make", "error", "word"),
    [
        (lambda: Rankings.from_ranks(NAMES, [[0, 1, 2, 3]]), DataError, "row 0 .* unlisted=0"),
        (lambda: Rankings.from_ranks(NAMES, [NUMBERS], unlisted=1), UsageError, "below 1"),
        (lambda: Rankings.from_ranks(NAMES, [[1, 2, 3]]), DataError, "shape"),
        (lambda: Rankings.from_ranks(["a", "a"], [[1, 2]]), DataError, "twice"),
        (lambda: Rankings.from_ranks(["a"], [[1]]), DataError, "at least two"),
        (lambda: Rankings.from_ranks(["a", " b"], [[1, 2]]), DataError, "entry 1"),
        (lambda: Rankings.from_ranks(["a", ""], [[1, 2]]), DataError, "entry 1"),
        (lambda: Rankings.from_ranks(["a", 3], [[1, 2]]), DataError, "entry 1"),
        (lambda: Rankings.from_ranks(np.ones((1, 2, 3)), [[1, 2]]), DataError, "Ballot 0 has two"),
        (lambda: Rankings.from_ranks([[[-0.0], [0.0]]], [[1, 2]]), DataError, "Ballot 0 has two"),
        (lambda: Rankings.from_ranks([[[1.0], [np.nan]]], [[1, 2]]), DataError, "row 0"),
        (lambda: Rankings.from_ranks(np.ones((1, 2, 0)), [[1, 2]]), DataError, "shape"),
        (lambda: Rankings.from_ranks(np.ones((2, 2, 1)), [[1, 2]]), DataError, "shape"),
        (lambda: Rankings.from_ranks(np.ones((1, 1, 1)), [[1]]), DataError, "fewer than two"),
        (lambda: Rankings.from_ranks(np.eye(2), [[1, 2]]), DataError, "3 dimension"),
        (lambda: Rankings.from_ranks(NAMES, np.zeros((0, 4))), DataError, "no ballot"),
        (lambda: Rankings.from_ranks(NAMES, [NUMBERS], features=np.eye(3)), DataError, "shape"),
        (
            lambda: Rankings.from_ranks([[[1.0], [2.0]]], [[1, 2]], features=[[1.0]]),
            UsageError,
            "already",
        ),
        (lambda: Rankings.from_orders(NAMES, []), DataError, "no ballot"),
        (lambda: Rankings.from_orders(NAMES, [[], ["wine"]]), DataError, "ballot 1 .* unknown"),
        (lambda: Rankings.from_orders(NAMES, [["ale", "ale"]]), DataError, "ballot 0 .* twice"),
        (lambda: Rankings.from_orders("tea", [["t"]]), DataError, "list"),
        (lambda: Rankings.from_orders(None, [["t"]]), UsageError, "items must be Iterable"),
        (lambda: Rankings.from_orders(NAMES, 5), UsageError, "orders must be Iterable"),
        (lambda: Rankings.from_orders(NAMES, [], persons=5), UsageError, "persons must be"),
        (
            lambda: read_rankings(records([NUMBERS], range(4)), manifest="x"),
            UsageError,
            "raw judgments",
        ),
    ],
)
def test_arrays_that_cannot_be_used(make, error, word):
    with pytest.raises(error, match=word) as caught:
        make()
    assert not any(name in str(caught.value) for name in ("wine", "ale"))


def test_columns_of_different_lengths():
    rankings = read_rankings(records([NUMBERS], range(4)))
    for change in (
        {"prompts": ()},
        {"candidates": rankings.candidates[:3]},
        {"given": np.eye(4)},
        {"items": ("a", "b", "c", "d")},
        {"persons": ("a", "b")},
        {"ranks": [1, 2]},
        {"starts": [0, 3]},
    ):
        with pytest.raises(DataError):
            replace(rankings, **change)
    items = Rankings.from_orders(NAMES, [["tea"]], offered="all")
    with pytest.raises(DataError, match="rise from 0 to at most 1"):
        replace(items, items=("a", "b"))
