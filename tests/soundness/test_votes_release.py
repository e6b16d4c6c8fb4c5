"""What boards see of battles: the sum that was paid for and nothing else, on whole finite cases."""

import itertools
import json
from fractions import Fraction

import numpy as np
import pytest

from sordino.engines.engine import InProcess
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.mechanisms.randomized_response import NonPrivate, RandomizedResponse
from sordino.preferences.chunk_survey import survey_chunks
from sordino.preferences.chunks import find_chunks
from sordino.preferences.comparisons import ItemDifferences
from sordino.preferences.pairs import read_pairs
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    Guarantee,
)
from sordino.privacy.ledger import Ledger
from sordino.privatization.answers import privatize
from sordino.rewards import vote_release
from sordino.rewards.leaderboard import fit_board
from sordino.rewards.vote_release import record_mechanism, release_votes, votes_of_answers

NAMES = ("a", "b", "c", "d")
ITEMS = ItemDifferences(NAMES, ties=True)
CODE = {0.0: 0, 1.0: 1, 0.5: 2}


def rows(n=300, people=20, groups=("de", "fr"), seed=0):
    """Battles of four items with and without repeats, from better to worse by their letters."""
    generator = np.random.default_rng(seed)
    for row in range(n):
        one, other = generator.permutation(4)[:2]
        won = generator.random() < 1 / (1 + np.exp(0.7 * (one - other)))
        yield {
            "prompt": f"q{row}", "first_name": NAMES[one], "second_name": NAMES[other],
            "label": 0.5 if generator.random() < 0.2 else float(won), "person": f"p{row % people}",
            "family": groups[row % len(groups)],
        }  # fmt: skip


def ledger_at(path, *, unit="label", neighbors=REPLACE_ONE, epsilon=1e4, delta=0.1):
    budget = Guarantee(epsilon, delta=delta, unit=unit, neighbors=neighbors, trust="central")
    return Ledger.open(path, data="battles" if unit == "record" else None, budget=budget)


def plain_sums(pairs, items):
    """Σ (y − ½) x and the ties, as a loop says it: battles as they were read."""
    place = {name: at for at, name in enumerate(items.items)}
    sums, ties, met = np.zeros(len(place)), 0, np.zeros((len(place),) * 2)
    for row in pairs:
        one, other = place[row["first_name"]], place[row["second_name"]]
        sums[one] += row["label"] - 0.5
        sums[other] -= row["label"] - 0.5
        ties += row["label"] == 0.5
        met[min(one, other), max(one, other)] += 1
    return sums, ties, met


def met_of(votes):
    met = np.zeros((len(votes.items),) * 2)
    for row, count in zip(votes.rows.toarray(), votes.counts, strict=True):
        at = np.flatnonzero(row[: len(votes.items)])
        met[at.min(), at.max()] += count
    return met


def near(votes, pairs, items, *, times=6.0):
    """Whether released votes are the true ones, within so many standard deviations."""
    sums, ties, met = plain_sums(pairs, items)
    size = np.sqrt(np.diag(votes.noise))
    assert (abs(votes.statistic - sums) <= times * size[: len(sums)] + 1e-3).all()
    assert abs(votes.ties - ties) <= times * size[-1] + 1e-3
    return (abs(met_of(votes) - met) <= times * np.sqrt(votes.count_variance) + 1e-9).all()


# --- labels and persons ---------------------------------------------------------------------------


def label_noise(epsilon=30.0, **settings):
    return LabelGaussian(epsilon, delta=1e-6, ties=ITEMS.counters, **settings)


def test_labels_are_released_as_one_sum_with_its_ties(tmp_path):
    pairs = read_pairs(rows())
    found = release_votes(
        pairs, label_noise(), items=ITEMS, ledger=(at := ledger_at(tmp_path / "a.db"))
    )
    votes = found.value[""]
    assert near(votes, pairs, ITEMS)
    assert (found.guarantee.unit, found.guarantee.epsilon <= 30) == ("label", True)
    assert "person-group" in found.guarantee.caveats
    assert at.remaining_epsilon() < 1e4
    assert fit_board(votes).ratings[0] > fit_board(votes).ratings[3]


@pytest.mark.parametrize("cap", [1, 4])
def test_no_person_counts_more_often_than_the_noise_hides(tmp_path, cap):
    pairs = read_pairs(rows())
    ledger = ledger_at(tmp_path / "a.db", unit="person")
    found = release_votes(pairs, label_noise(records_per_person=cap), items=ITEMS, ledger=ledger)
    assert found.guarantee.unit == "person"
    assert found.value[""].counts.sum() == 20 * cap
    design = label_noise(records_per_person=cap).prepare(
        pairs.differences(ITEMS), persons=pairs.persons
    )
    ties = np.full(300, 2, np.int8)
    for person in sorted(set(pairs.persons)):
        mine = np.array(pairs.persons) == person
        for code in (0, 1):
            moved = np.linalg.norm(design._total(ties) - design._total(np.where(mine, code, 2)))
            assert moved <= design.moved * (1 + 1e-12)


def test_a_second_vote_on_another_prompt_counts_and_a_repeat_does_not(tmp_path):
    said = [{"prompt": p, "model_a": "x", "model_b": "y", "winner": w, "person": "ann"}
            for p, w in (("p", "x"), ("q", "y"), ("p", "y"), ("p", "tie"))]  # fmt: skip
    pairs, items = read_pairs(said), ItemDifferences(("x", "y"), ties=True)
    found = release_votes(pairs, NonPrivate(), items=items, ledger=open_ledger(tmp_path))
    assert found.value[""].counts.tolist() == [2]
    assert found.value[""].statistic.tolist() == [0, 0]


def open_ledger(path):
    return ledger_at(path / "open.db", epsilon=np.inf, delta=0.0)


def test_without_privacy_every_vote_is_there_and_the_same_in_files(tmp_path):
    pairs = read_pairs(rows())
    found = release_votes(pairs, NonPrivate(), items=ITEMS, ledger=open_ledger(tmp_path))
    votes = found.value[""]
    assert near(votes, pairs, ITEMS, times=0)
    assert votes.is_public
    assert votes.outcomes.sum() == 300
    assert votes.outcomes[:, 1].sum() == votes.ties
    won = votes.rows.T @ (votes.outcomes[:, 2] - votes.outcomes[:, 0]) / 2
    assert won.tolist() == votes.statistic.tolist()
    with files(tmp_path / "files", rows()) as survey:
        ledger = ledger_at(tmp_path / "b.db", epsilon=np.inf, delta=0.0)
        other = release_votes(survey, NonPrivate(), items=ITEMS, ledger=ledger).value[""]
    assert met_of(other).tolist() == met_of(votes).tolist()
    assert (other.statistic.tolist(), other.ties) == (votes.statistic.tolist(), votes.ties)


def files(folder, said, **settings):
    folder.mkdir()
    lines = [json.dumps(row) + "\n" for row in said]
    for number in range(3):
        (folder / f"{number}.jsonl").write_text("".join(lines[number::3]))
    return survey_chunks(find_chunks(folder, **settings), InProcess())


def test_files_release_the_same_sum(tmp_path):
    pairs = read_pairs(rows())
    with files(tmp_path / "files", rows()) as survey:
        found = release_votes(
            survey, label_noise(), items=ITEMS, ledger=ledger_at(tmp_path / "a.db")
        )
    assert near(found.value[""], pairs, ITEMS)
    memory = release_votes(pairs, label_noise(), items=ITEMS, ledger=ledger_at(tmp_path / "b.db"))
    one, other = (np.linalg.eigvalsh(each.value[""].noise)[1:] for each in (found, memory))
    np.testing.assert_allclose(one, other, rtol=0.05)  # of rows once each, and as often as they are


@pytest.mark.parametrize("cap", [1, 4])
def test_of_files_no_person_counts_more_often_and_the_noise_is_the_same_whoever_won(tmp_path, cap):
    found = []
    for turned in (False, True):
        said = [row | {"label": 1.0} if turned else row for row in rows()]
        files(tmp_path / str(turned), said)
        chunks = find_chunks(tmp_path / str(turned))
        ledger = ledger_at(tmp_path / f"{turned}.db", unit="person")
        noise = label_noise(records_per_person=cap)
        with survey_chunks(chunks, InProcess(), most=cap) as survey:
            votes = release_votes(survey, noise, items=ITEMS, ledger=ledger).value[""]
        assert votes.counts.sum() == 20 * cap
        found.append((votes.noise.tolist(), votes.rows.toarray().tolist(), votes.counts.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("drop", [(), ("identical",)])
def test_a_table_of_names_and_winners_is_read_once_for_each_kind_of_row(tmp_path, drop):
    """The same integers, digest and noise as of the rows one by one, whatever the row groups."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    items = ItemDifferences(tuple(f"m-{name}" for name in NAMES), ties=True)
    plain = [{"model_a": f"m-{row['first_name']}", "model_b": f"m-{row['second_name']}",
              "winner": {1.0: "model_a", 0.0: "model_b", 0.5: "tie"}[row["label"]]}
             for row in rows(600)]  # fmt: skip
    plain += [{"model_a": "m-a", "model_b": "m-a", "winner": "tie"}] * (7 if drop else 0)
    parquet.write_table(pa.Table.from_pylist(plain), tmp_path / "a.parquet", row_group_size=50)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in plain))
    found = {}
    for name in ("a.parquet", "a.jsonl"):
        with survey_chunks(find_chunks(tmp_path / name, drop=drop), InProcess()) as survey:
            assert (survey.n, survey.counted, survey.dropped) == (600, 600, len(plain) - 600)
            assert survey.repeats
            assert {one for each in survey.names for one in each[:2]} == {*items.items}
            ledger = ledger_at(tmp_path / f"{name}.open.db", epsilon=np.inf, delta=0.0)
            known = release_votes(survey, NonPrivate(), items=items, ledger=ledger).value[""]
            ledger = ledger_at(tmp_path / f"{name}.db")
            noised = release_votes(
                survey, label_noise(), items=items, ledger=ledger, simulate_seed=5
            ).value[""]
        found[name] = survey.public_digest, known, noised
    (one, known, noised), (other, again, too) = found.values()
    assert one == other
    assert near(known, read_pairs(plain, drop=drop), items, times=0)
    for left, right in ((known, again), (noised, too)):
        assert left.statistic.tolist() == right.statistic.tolist()
        assert (left.ties, left.noise.tolist()) == (right.ties, right.noise.tolist())
        assert (left.counts.tolist(), left.rows.toarray().tolist()) == (
            right.counts.tolist(), right.rows.toarray().tolist()
        )  # fmt: skip


def test_a_group_has_a_board_of_its_own_under_one_spend(tmp_path):
    said = list(rows(groups=("de", "fr", "it")))
    pairs = read_pairs(said)
    items = ItemDifferences(NAMES, groups=("de", "fr", "it"), ties=True)
    mechanism = LabelGaussian(30.0, delta=1e-6, ties=4)
    ledger = ledger_at(tmp_path / "a.db")
    found = release_votes(pairs, mechanism, items=items, ledger=ledger)
    assert len(found.release_ids) == 1
    assert found.guarantee.epsilon <= 30
    for group in ("de", "fr", "it"):
        own = read_pairs([row for row in said if row["family"] == group])
        assert near(found.value[group], own, items)
    assert near(found.value[""], pairs, items)
    alone = release_votes(pairs, label_noise(), items=ITEMS, ledger=ledger_at(tmp_path / "b.db"))
    ratio = found.value[""].noise.trace() / alone.value[""].noise.trace()
    assert 1.6 < ratio < 2.6  # half of the budget


# --- answers of a coin ----------------------------------------------------------------------------


def test_answers_of_a_coin_are_debiased_and_free(tmp_path):
    pairs, items = read_pairs(rows()), ItemDifferences(NAMES)
    private = privatize(pairs, RandomizedResponse(1.0), ledger=ledger_at(tmp_path / "a.db"))
    found = votes_of_answers(private, items)
    votes, flips = found.value[""], private.flip_probability
    x = pairs.differences(items).toarray()
    wanted = ((private.answers - 0.5) / (1 - 2 * flips)) @ x
    np.testing.assert_allclose(votes.statistic, wanted, atol=1e-9)
    assert votes.inflation == pytest.approx((1 - 2 * flips) ** -2)
    assert votes.ties is None
    assert not votes.noise.any()
    assert (found.guarantee, found.release_ids) == (private.guarantee, private.release_ids)
    with pytest.raises(UsageError, match="a coin that knows no tie"):
        votes_of_answers(private, ITEMS)


# --- whole records --------------------------------------------------------------------------------

RELATIONS = {"replaced": REPLACE_ONE, "added": ADD_OR_REMOVE_ONE, "emptied": REPLACE_SPECIAL}


def kinds(k):
    """Every record there is: who met, and who won."""
    return list(range(3 * (k * (k - 1) // 2)))


@pytest.mark.parametrize("neighbors", RELATIONS.values(), ids=RELATIONS)
@pytest.mark.parametrize("k", [2, 3, 5])
def test_no_record_moves_the_sum_by_more_than_is_hidden(k, neighbors):
    mechanism = record_mechanism(1.0, delta=1e-6, items=k, neighbors=neighbors)
    step, vectors = Fraction(mechanism.step), {}
    for kind in kinds(k):
        table = np.zeros(len(kinds(k)), dtype=np.int64)
        table[kind] = 1
        vectors[kind] = [int(x) for x in vote_release._record_total(mechanism, table, k)]
    nothing = [0] * len(vectors[0])
    if neighbors == REPLACE_ONE:
        moves = [[a - b for a, b in zip(vectors[one], vectors[other], strict=True)]
                 for one, other in itertools.product(vectors, repeat=2)]  # fmt: skip
    else:
        moves = [*vectors.values(), nothing]
    limit = Fraction(mechanism.sensitivity(neighbors))
    assert max(sum(x * x for x in move) for move in moves) * step**2 <= limit**2
    stated = mechanism.guarantee(unit="record", neighbors=neighbors, trust="central")
    assert stated.epsilon <= 1
    several = np.random.default_rng(0).integers(0, 9, len(kinds(k)))  # the sum is of all records
    total = vote_release._record_total(mechanism, several, k)
    np.testing.assert_array_equal(
        total, sum(n * np.array(vectors[i]) for i, n in enumerate(several))
    )


def test_a_vector_that_is_too_long_is_cut():
    mechanism = record_mechanism(1.0, delta=1e-6, items=4, neighbors=REPLACE_ONE)
    most = int(Fraction(mechanism.bound) // Fraction(mechanism.step))
    total = mechanism.total(np.full((1, 11), 9.0), np.array([1]))
    assert sum(int(x) ** 2 for x in total) <= most**2


@pytest.mark.parametrize("neighbors", RELATIONS.values(), ids=RELATIONS)
def test_who_met_whom_is_known_from_the_noised_sum_alone(tmp_path, neighbors):
    pairs = read_pairs(rows(), hides_records=True)
    mechanism = record_mechanism(40.0, delta=1e-6, items=4, neighbors=neighbors)
    ledger = ledger_at(tmp_path / "a.db", unit="record", neighbors=neighbors)
    found = release_votes(pairs, mechanism, items=ITEMS, ledger=ledger)
    votes = found.value[""]
    assert near(votes, pairs, ITEMS)
    assert votes.count_variance > 0
    assert (votes.counts != np.rint(votes.counts)).all()
    assert votes.rows.shape == (6, 4)  # of every two, whether they met or not
    assert found.guarantee.unit == "record"
    with files(tmp_path / "files", rows(), hides_records=True) as survey:
        again = ledger_at(tmp_path / "b.db", unit="record", neighbors=neighbors)
        other = release_votes(survey, mechanism, items=ITEMS, ledger=again).value[""]
    assert near(other, pairs, ITEMS)


def test_the_table_of_records_is_each_record_once():
    pairs = read_pairs(rows(), hides_records=True)
    source = vote_release._record_rows(pairs, ITEMS)
    whole = vote_release._table(4, 0, source.held, pairs.labels)
    for row in (0, 7, 299):
        rest = np.delete(np.arange(300), row)
        without = vote_release._table(4, 0, source.held[rest], pairs.labels[rest])
        assert (whole - without).sum() == abs(whole - without).sum() == 1
    empty = read_pairs([], hides_records=True)
    held = vote_release._record_rows(empty, ITEMS).held
    assert vote_release._table(4, 0, held, empty.labels).sum() == 0


@pytest.mark.parametrize(("change", "said"), [
    ({"groups": ("de", "fr")}, "Groups and style are read from records"),
    ({"style": ("length",)}, "Groups and style are read from records"),
    ({"items": ("a", "b", "c", "other")}, "A record cannot be used"),
])  # fmt: skip
def test_nothing_of_a_record_is_read_or_told(tmp_path, change, said):
    items = ItemDifferences(**({"items": NAMES} | change))
    mechanism = record_mechanism(1.0, delta=1e-6, items=4, neighbors=REPLACE_ONE)
    ledger = ledger_at(tmp_path / "a.db", unit="record")
    with pytest.raises((UsageError, DataError), match=said) as raised:
        release_votes(read_pairs(rows(), hides_records=True), mechanism, items=items, ledger=ledger)
    assert "'d'" not in str(raised.value)
    assert ledger.remaining_epsilon() == 1e4


@pytest.mark.parametrize("place", ["memory", "files"])
def test_a_record_with_several_labels_is_no_vote_for_each(tmp_path, place):
    names = {"first_name": "a", "second_name": "b"}
    record = {"prompt": "p", "first": "x", "second": "y", "labels": [1, 0, 1], **names}
    (path := tmp_path / "a.jsonl").write_text(json.dumps(record) + "\n")
    mechanism = record_mechanism(1.0, delta=1e-6, items=4, neighbors=REPLACE_ONE)
    ledger = ledger_at(tmp_path / "a.db", unit="record")
    with survey_chunks(find_chunks(path), InProcess()) as survey:
        battles = read_pairs(path) if place == "memory" else survey
        assert battles.n == 3
        with pytest.raises(PrivacyError, match="a record of its own"):
            release_votes(battles, mechanism, items=ITEMS, ledger=ledger)
    assert ledger.remaining_epsilon() == 1e4


def test_other_settings_are_refused_before_anything_is_spent(tmp_path):
    pairs, ledger = read_pairs(rows()), ledger_at(tmp_path / "a.db")
    other = record_mechanism(1.0, delta=1e-6, items=5, neighbors=REPLACE_ONE)
    joined = record_mechanism(1.0, delta=1e-6, items=4, neighbors=ADD_OR_REMOVE_ONE)
    fits = record_mechanism(1.0, delta=1e-6, items=4, neighbors=REPLACE_ONE)
    for mechanism, error, said in (
        (LabelGaussian(1.0, delta=1e-6), UsageError, "counts ties=0 numbers of ties"),
        (other, UsageError, "Make the mechanism with record_mechanism"),
        (joined, PrivacyError, "Make both for the same"),
        (fits, PrivacyError, "This ledger counts labels"),
        (RandomizedResponse(1.0), UsageError, "needs a LabelGaussian"),
    ):
        with pytest.raises(error, match=said):
            release_votes(pairs, mechanism, items=ITEMS, ledger=ledger)
    rated = read_pairs(
        [{"prompt": "p", "completion": "x", "rating": 3, "first_name": "a"}], levels=(1, 5)
    )
    with pytest.raises(DataError, match="a board is made of battles and thumbs"):
        release_votes(rated, label_noise(), items=ITEMS, ledger=ledger)
    assert ledger.remaining_epsilon() == 1e4
