"""A release under one unit and relation, read for another unit: every output, every neighbor."""

import itertools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from sordino.auditing.runs.replay import _check_budget
from sordino.errors import BudgetExceeded, PrivacyError, UsageError
from sordino.privacy import accounting
from sordino.privacy.books import UNITS, covers, event_for
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    ApproximateEvent,
    BoundedRangeEvent,
    GaussianEvent,
    Guarantee,
    NonPrivateEvent,
    PoissonGaussianEvent,
    PureEvent,
    RandomizedResponseEvent,
)
from sordino.privacy.ledger import Ledger
from sordino.privacy.persons import Use

# Two people, each with at most two records. A record is (question, label) or empty; a label may
# be a fair coin, which stands for the even mixture of the other two.
LABELS = (0, 1, "coin")
RECORDS = (*itertools.product("ab", LABELS), "empty")
HELD = [held for k in range(3) for held in itertools.combinations_with_replacement(RECORDS, k)]
DATA = list(itertools.product(HELD, repeat=2))
TERMS = [
    ("label", REPLACE_ONE, ()),
    ("label", REPLACE_SPECIAL, ()),
    *(("record", relation, ()) for relation in (REPLACE_ONE, REPLACE_SPECIAL, ADD_OR_REMOVE_ONE)),
    *(("person", relation, ()) for relation in (REPLACE_ONE, REPLACE_SPECIAL, ADD_OR_REMOVE_ONE)),
    *(("person", relation, ("labels-only",)) for relation in (REPLACE_ONE, REPLACE_SPECIAL)),
]


def promise(unit, relation, caveats=(), epsilon=1.0):
    return Guarantee(
        epsilon, delta=0.0, unit=unit, neighbors=relation, trust="central", caveats=caveats
    )


def held_by(records):
    return tuple(sorted(records, key=RECORDS.index))


def relabelled(record, relation):
    """The same record with its label changed once."""
    if record == "empty" or (relation is REPLACE_ONE and record[1] == "coin"):
        return []
    labels = LABELS[:2] if relation is REPLACE_ONE else ("coin",)
    return [(record[0], label) for label in labels if label != record[1]]


def of_a_person(held, relation, labels_only):
    """Everything that one change makes of all that one person holds."""
    if labels_only:
        options = [[record, *relabelled(record, relation)] for record in held]
        return itertools.product(*options)
    if relation is ADD_OR_REMOVE_ONE:
        return [()] if held else HELD
    if relation is REPLACE_SPECIAL:
        return [("empty",) * len(held)]
    return HELD


def of_a_record(record, unit, relation):
    """Everything that one change makes of a record, which may then be none."""
    if unit == "label":
        return [[new] for new in relabelled(record, relation)]
    options = {
        REPLACE_ONE: [[new] for new in RECORDS],
        REPLACE_SPECIAL: [["empty"]],
        ADD_OR_REMOVE_ONE: [[]],
    }
    return options[relation]


def changed(held, unit, relation, caveats):
    """Everything that one change makes of what one person holds."""
    if unit == "person":
        yield from of_a_person(held, relation, bool(caveats))
        return
    for i, record in enumerate(held):
        for new in of_a_record(record, unit, relation):
            yield (*held[:i], *new, *held[i + 1 :])


def moved(data, who):
    """Data sets in which a record of one person was replaced by one of the other."""
    for i in range(len(data[who])):
        for new in RECORDS:
            other = list(data)
            other[who] = data[who][:i] + data[who][i + 1 :]
            other[1 - who] = held_by((*data[1 - who], new))
            yield tuple(other)


def neighbors(unit, relation, caveats=()):
    """Pairs of data sets (by number) one change apart, both ways round."""
    place = {data: i for i, data in enumerate(DATA)}
    found = set()
    for data in DATA:
        for who in range(2):
            for new in changed(data[who], unit, relation, caveats):
                other = list(data)
                other[who] = held_by(new)
                one, two = place[data], place[tuple(other)]
                found |= {(one, two), (two, one)}
            if (unit, relation) == ("record", REPLACE_ONE) and len(data[1 - who]) < 2:
                for other in moved(data, who):  # the new record is of the other person
                    one, two = place[data], place[other]
                    found |= {(one, two), (two, one)}
    return np.array(sorted(found)).T


PAIRS = {terms: neighbors(*terms) for terms in TERMS}


def without_coins(data):
    """The data sets of which one with coins is the even mixture."""
    for person in itertools.product(*(itertools.product(*map(faces, held)) for held in data)):
        yield tuple(map(held_by, person))


def faces(record):
    return [(record[0], 0), (record[0], 1)] if record[1] == "coin" else [record]


def mechanism(seed):
    """Probabilities of three outputs for every data set: scores that add up over people."""
    rng = np.random.default_rng(seed)
    large = [-2.0, -1.0, 1.0, 2.0] if seed % 2 else [-1.0, 0.0, 1.0]
    scores = {record: rng.choice(large, size=3) for record in RECORDS}
    scores["empty"] = np.zeros(3)
    most = 1.0 if seed % 2 else 2.0  # of one person: all they have, or clipped
    rows = {}
    for data in DATA:
        if any("coin" in record for held in data for record in held):
            continue
        each = [sum((scores[record] for record in held), np.zeros(3)) for held in data]
        total = sum(np.clip(part, -most, most) for part in each)
        rows[data] = np.exp(0.3 * total) / np.exp(0.3 * total).sum()
    return np.array([np.mean([rows[d] for d in without_coins(data)], axis=0) for data in DATA])


MECHANISMS = [mechanism(seed) for seed in range(6)]


def loss(table, pairs):
    """The largest log-ratio of any output, over pairs of data sets."""
    return float(np.max(np.log(table[pairs[0]]) - np.log(table[pairs[1]])))


def read(event, under, unit, relation):
    """A release of one kind as an account of another reads it."""
    return event_for(Use("", event, under.unit, under.neighbors, 1), unit, relation)


def bound(parts, unit, relation):
    """What accounting says of releases (promise, epsilon) when one unit changes."""
    events = Counter(read(PureEvent(eps), p, unit, relation) for p, eps in parts)
    return accounting.composed_epsilon(events, neighbors=relation, delta=0.0)


@pytest.mark.parametrize(
    ("unit", "caveats"),
    [("label", ()), ("record", ()), ("person", ()), ("person", ("labels-only",))],
)
def test_two_releases_of_any_units_show_one_unit_by_at_most_what_is_composed(unit, caveats):
    """Every output, every neighbor, each pair of units and relations; and the bound is met."""
    target = PAIRS[unit, REPLACE_ONE, caveats]
    able = [terms for terms in TERMS if covers(promise(*terms), unit)]
    if unit == "person" and not caveats:  # what hides labels only is accounted for as such
        able = [terms for terms in able if not terms[2]]
    tightest = 0.0
    for i, (one, two) in enumerate(itertools.combinations_with_replacement(able, 2)):
        first, second = MECHANISMS[i % 6], MECHANISMS[(i * 5 + 1) % 6]
        parts = [
            (promise(*one), loss(first, PAIRS[one])),
            (promise(*two), loss(second, PAIRS[two])),
        ]
        both = (first[:, :, None] * second[:, None, :]).reshape(len(DATA), -1)
        true, said = loss(both, target), bound(parts, unit, REPLACE_ONE)
        assert true <= said * (1 + 1e-12), (one, two)
        tightest = max(tightest, true / said)
    assert tightest > 0.75  # no slack that would hide a factor of two


@pytest.mark.parametrize("terms", [terms for terms in TERMS if terms[0] == "label" or terms[2]])
def test_a_promise_about_labels_says_nothing_of_a_record(terms):
    """A new question leads where no number of changed labels leads, and may be told in full."""
    links = csr_array((np.ones(PAIRS[terms].shape[1]), PAIRS[terms]), shape=(len(DATA), len(DATA)))
    _, group = connected_components(links, directed=False)
    one, two = PAIRS["record", REPLACE_ONE, ()]
    assert (group[one] != group[two]).any()
    assert not covers(promise(*terms), "record")


def test_many_records_of_one_person_are_not_hidden_by_hiding_one():
    assert not covers(promise("record", REPLACE_ONE), "person")


@pytest.mark.parametrize(
    ("event", "twice"),
    [
        (PureEvent(0.3), PureEvent(0.6)),
        (GaussianEvent(0.25), GaussianEvent(0.5)),
        (BoundedRangeEvent(0.5, 3), BoundedRangeEvent(1.0, 3)),
        (RandomizedResponseEvent(1.0), RandomizedResponseEvent(1.0)),
        (PoissonGaussianEvent(1.0, 0.1, 5), PoissonGaussianEvent(1.0, 0.1, 5)),
        (NonPrivateEvent(), NonPrivateEvent()),
        (ApproximateEvent(1.0, 0.5), NonPrivateEvent()),
    ],
)
def test_two_steps_over_what_is_absent_count_twice(event, twice):
    under = promise("record", ADD_OR_REMOVE_ONE)
    assert read(event, under, "label", REPLACE_ONE) == twice
    assert read(event, under, "record", ADD_OR_REMOVE_ONE) == event
    assert read(event, promise("record", REPLACE_ONE), "label", REPLACE_ONE) == event


def test_a_bare_promise_of_two_steps_is_that_of_a_group():
    event = read(
        ApproximateEvent(0.5, 1e-6), promise("person", REPLACE_SPECIAL), "label", REPLACE_ONE
    )
    assert event.epsilon == 1.0
    assert 1e-6 * (1 + math.exp(0.5)) <= event.delta <= 1e-6 * (1 + math.exp(0.5)) * (1 + 1e-9)


def test_a_clipped_sum_per_person_shows_a_record_that_moves_twice():
    """From a person with 2 and -1 to one with 1: there 1 becomes -1, and here 1 becomes -1."""
    scores = dict(zip([*itertools.product("ab", (0, 1))], (2, -1, 1, -2), strict=True))

    def clipped(data):
        return sum(np.clip(sum(scores.get(r, 0) for r in held), -1, 1) for held in data)

    sums = np.array([np.mean([clipped(d) for d in without_coins(data)]) for data in DATA])
    table = 1 / (1 + np.exp(-0.05 * np.outer(sums, [1, -1])))
    person = promise("person", REPLACE_ONE)
    once, twice = (loss(table, PAIRS[unit, REPLACE_ONE, ()]) for unit in ("person", "record"))
    assert once * 1.9 < twice <= bound([(person, once)], "record", REPLACE_ONE)


def test_a_record_that_goes_to_another_person_changes_two():
    """Twice for two persons, and twice again where each goes away and comes back."""
    for relation, steps in ((REPLACE_ONE, 2), (ADD_OR_REMOVE_ONE, 4)):
        person = promise("person", relation)
        event = read(GaussianEvent(0.25), person, "record", REPLACE_ONE)
        assert event == GaussianEvent(0.25 * steps)
        event = read(PoissonGaussianEvent(1.5, 0.5, 5), person, "record", REPLACE_ONE)
        assert event == PoissonGaussianEvent(0.75, 0.75, 5)  # 1 - (1 - .5)^2
        assert read(PureEvent(0.5), person, "label", REPLACE_ONE) == PureEvent(steps / 4)


def test_a_loss_that_no_float_holds_protects_nobody():
    for event in (PureEvent(1e308), GaussianEvent(1e308)):
        under = promise("record", REPLACE_SPECIAL)
        assert read(event, under, "label", REPLACE_ONE) == NonPrivateEvent()


def spent(tmp_path, unit, relation, *events, caveats=()):
    """A ledger on which some releases of one kind were paid for."""
    terms = promise(unit, relation, epsilon=math.inf)
    ledger = Ledger.open(tmp_path / "spend.db", data="answers", budget=terms)
    names = [
        ledger.reserve(event, promise=terms.with_caveats(*caveats)).release_id for event in events
    ]
    return ledger, names


def test_a_ledger_says_for_each_unit_what_all_its_releases_promise(tmp_path):
    ledger, _ = spent(tmp_path, "record", ADD_OR_REMOVE_ONE, GaussianEvent(0.3), GaussianEvent(0.4))
    found = ledger.accounts(delta=1e-6)
    assert found["record"].guarantee == ledger.total(delta=1e-6)
    assert found["label"].guarantee == replace(
        found["record"].guarantee,
        epsilon=accounting.composed_epsilon(
            {GaussianEvent(0.6): 1, GaussianEvent(0.8): 1}, neighbors=REPLACE_ONE, delta=1e-6
        ),
        unit="label",
        neighbors=REPLACE_ONE,
    )
    assert found["person"].guarantee is None


def test_a_ledger_names_the_release_that_leaves_a_unit_bare(tmp_path):
    ledger, (first, _) = spent(
        tmp_path, "label", REPLACE_ONE, RandomizedResponseEvent(0.5), PureEvent(0.5)
    )
    found = ledger.accounts()
    assert found["label"].guarantee == ledger.total()
    said = f"not protected: release {first} and 1 more treated prompts and answers as public"
    told = found["record"].to_dict()
    assert (told.pop("says"), told.pop("caveats")) == (said, [])
    assert set(told.values()) == {None}


def test_scopes_of_different_people_stay_apart_for_their_labels(tmp_path):
    ledger, _ = spent(tmp_path, "person", REPLACE_ONE)
    ledger.declare_disjoint(["one", "two"], rule="person-id")
    for scope, epsilon in (("one", 1.0), ("two", 2.0)):
        ledger.reserve(PureEvent(epsilon), promise=promise("person", REPLACE_ONE), scope=scope)
    label = ledger.accounts()["label"].guarantee
    assert (label.epsilon, label.caveats) == (2.0, ("declared-disjoint",))


def test_a_change_of_two_steps_is_given_the_delta_of_two(tmp_path):
    terms = Guarantee(2.0, delta=1e-6, unit="record", neighbors=ADD_OR_REMOVE_ONE, trust="central")
    with Ledger.open(tmp_path / "spend.db", data="answers", budget=terms) as ledger:
        ledger.reserve(ApproximateEvent(2.0, 1e-6), promise=terms)
        label = ledger.accounts()["label"].guarantee
    assert label.epsilon == pytest.approx(4.0)
    assert label.delta == pytest.approx(1e-6 * (1 + math.exp(2)))


def of(unit, relation, epsilon, delta=0.0):
    return Guarantee(epsilon, delta=delta, unit=unit, neighbors=relation, trust="central")


@pytest.fixture
def mixed(tmp_path):
    """A ledger on which labels (ε = 1) and records (ε = ½, added or removed) were released."""
    with Ledger.open(tmp_path / "spend.db", data="a", budget=of("label", REPLACE_ONE, 2.5)) as own:
        own.reserve(RandomizedResponseEvent(1.0), promise=of("label", REPLACE_ONE, 1.0))
    record = of("record", ADD_OR_REMOVE_ONE, 1.0)
    with Ledger.open(tmp_path / "spend.db", budget=record) as ledger:
        ledger.reserve(PureEvent(0.5), promise=record)
        yield ledger


def test_releases_under_several_units_add_up_for_the_smallest(mixed):
    found = mixed.accounts()
    assert found["label"].guarantee.epsilon == 2.0  # 1 + 2 · ½, over the absent record
    assert found["record"].guarantee is None
    assert found["record"].uncovered == (mixed.spends[0].release_id,)
    assert mixed.total().epsilon == 0.5  # what covers records
    assert mixed.counting("label").total() == found["label"].guarantee
    assert Ledger.read(mixed.path, unit="label").remaining_epsilon() == pytest.approx(0.5)
    assert mixed.remaining_epsilon() == pytest.approx(0.5)


def test_a_release_spends_of_the_budget_of_every_unit_that_it_covers(mixed):
    """Half of the records' budget is left, but twice as much of the labels' would go."""
    half = of("record", ADD_OR_REMOVE_ONE, 0.5)
    mixed.check(PureEvent(0.25), promise=half)
    with pytest.raises(BudgetExceeded, match="epsilon=3 in total for a label, over the budget"):
        mixed.reserve(PureEvent(0.5), promise=half)
    assert len(Ledger.read(mixed.path).spends) == 2
    with pytest.raises(PrivacyError, match="no budget for person changes"):
        mixed.check(PureEvent(0.1), promise=of("person", REPLACE_ONE, 0.1))


def test_once_a_larger_unit_covers_it_a_unit_is_counted_as_replaced(mixed):
    mixed.change_budget(of("person", ADD_OR_REMOVE_ONE, 1.0))
    mixed.change_budget(of("label", REPLACE_ONE, 9.0))
    person = of("person", ADD_OR_REMOVE_ONE, 0.25)
    with pytest.raises(BudgetExceeded, match="in total for a record"):
        mixed.reserve(PureEvent(0.25), promise=person)
    mixed.change_budget(of("record", ADD_OR_REMOVE_ONE, 2.5))
    mixed.reserve(PureEvent(0.25), promise=person)
    assert mixed.total() == of("record", REPLACE_ONE, 2.0)  # 2 · ½ + 4 · ¼
    assert mixed.remaining_epsilon() == pytest.approx(0.25)  # of a release that counts twice
    mixed.check(PureEvent(mixed.remaining_epsilon()), promise=of("record", ADD_OR_REMOVE_ONE, 1.0))


def test_what_is_left_can_be_said_only_of_a_unit(mixed):
    with pytest.raises(UsageError, match="counts label and record changes"):
        Ledger.open(mixed.path)
    with pytest.raises(UsageError, match="no budget for person"):
        Ledger.open(mixed.path, unit="person")


def test_slots_do_not_keep_a_person_apart(tmp_path):
    """Records of one person may lie in several slots, so what was spent in those adds up."""
    record, person = (of(unit, REPLACE_ONE, math.inf) for unit in ("record", "person"))
    with Ledger.open(tmp_path / "spend.db", data="a", budget=record) as ledger:
        ledger.change_budget(person)
        ledger.declare_disjoint(["one", "two"], rule="slot")
        for scope in ("one", "two"):
            ledger.reserve(PureEvent(1.0), promise=person, scope=scope)
        found = ledger.accounts()
    assert [found[unit].guarantee.epsilon for unit in UNITS] == [1.0, 2.0, 2.0]


def test_a_release_that_says_nothing_of_a_budget_is_refused(mixed):
    """Records may be added; what is replaced can tell their number. Trust is one for all units."""
    mixed.change_budget(of("person", REPLACE_ONE, 1.0))
    with pytest.raises(PrivacyError, match="says nothing"):
        mixed.check(PureEvent(0.1), promise=of("person", REPLACE_ONE, 0.1))
    labels = of("record", ADD_OR_REMOVE_ONE, 0.1).with_caveats("labels-only")
    with pytest.raises(PrivacyError, match="labels-only"):
        mixed.check(PureEvent(0.1), promise=labels)
    local = replace(of("label", REPLACE_ONE, 9.0), trust="local")
    with pytest.raises(PrivacyError, match="size only"):
        mixed.change_budget(local)
    assert [row.kind for row in Ledger.read(mixed.path).rows][-1] == "budget"


def test_two_who_set_the_first_budget_of_a_unit_leave_one(tmp_path):
    """A budget is compared with those of other processes under the lock that writes it."""
    label, person = of("label", REPLACE_ONE, 1.0), of("person", REPLACE_SPECIAL, 1.0)
    with Ledger.open(tmp_path / "spend.db", data="a", budget=label):
        pass
    one, two = (Ledger.open(tmp_path / "spend.db", unit="label") for _ in range(2))
    one.change_budget(person)
    with pytest.raises(PrivacyError, match="size only"):
        two.change_budget(replace(person, neighbors=ADD_OR_REMOVE_ONE))
    assert Ledger.read(tmp_path / "spend.db", unit="person").budget == person


def test_a_budget_that_was_lowered_forbids_only_what_it_covers(mixed):
    mixed.change_budget(of("record", ADD_OR_REMOVE_ONE, 0.1))
    label = of("label", REPLACE_ONE, 0.25)
    mixed.reserve(PureEvent(0.25), promise=label)
    assert _check_budget(mixed).outcome == "clear"
