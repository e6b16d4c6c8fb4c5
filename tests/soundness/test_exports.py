"""What an export says is never less than the ledger states, and never more than is promised."""

import itertools
import json
import math
import re

import dp_accounting as dp
import pytest
from dp_accounting import dp_event as kinds
from dp_accounting.pld import PLDAccountant
from tests.soundness.deltas import composed_delta
from tests.tiers import few

import sordino
from sordino.cli import app
from sordino.privacy.accountants import loss_distribution_bound, mixed_bound
from sordino.privacy.exports import TO_BE_FILLED_IN, dp_event, export
from sordino.privacy.guarantee import (
    ApproximateEvent,
    BoundedRangeEvent,
    GaussianEvent,
    NonPrivateEvent,
    PoissonGaussianEvent,
    PureEvent,
    RandomizedResponseEvent,
)
from sordino.privacy.guarantee import NeighboringRelation as Relation

COIN, FOUR = RandomizedResponseEvent(1.0), RandomizedResponseEvent(0.6, categories=4)
NORMAL, PURE = GaussianEvent(0.5), PureEvent(0.5)
FAILS, STEPS = ApproximateEvent(0.5, 1e-6), PoissonGaussianEvent(1.0, 0.1, steps=3)
DRAWS = BoundedRangeEvent(0.1, draws=40)
SETS = [
    {COIN: 3}, {FOUR: 3}, {NORMAL: 4}, {PURE: 3}, {FAILS: 2}, {DRAWS: 1}, {STEPS: 1},
    {COIN: 1, NORMAL: 1, PURE: 2}, {FAILS: 1, NORMAL: 2, PURE: 1}, {FAILS: 1, STEPS: 1, COIN: 1},
    {DRAWS: 2, STEPS: 1}, {FAILS: 1, DRAWS: 1}, {PURE: 1, NORMAL: 1, STEPS: 1},
]  # fmt: skip
UNITS = {
    Relation.REPLACE_ONE: "label",
    Relation.REPLACE_SPECIAL: "record",
    Relation.ADD_OR_REMOVE_ONE: "person",
}


def promise_of(relation, *, epsilon=math.inf, delta=0.0, unit=None, trust="central", **more):
    unit = unit or UNITS[relation]
    return sordino.Guarantee(
        epsilon, delta=delta, unit=unit, neighbors=relation, trust=trust, **more
    )


@pytest.fixture
def spent(tmp_path):
    """A ledger on which events were spent, without a limit."""
    numbers = itertools.count()

    def opened(events, relation=Relation.REPLACE_ONE, *, delta=1e-5, **more):
        budget = promise_of(relation, delta=delta)
        path = tmp_path / f"{next(numbers)}.db"
        ledger = sordino.Ledger.open(path, data="Answers: 'é' \"#1\"", budget=budget)
        for event, count in events.items():
            ledger.reserve(event, promise=promise_of(relation, **more), count=count)
        return ledger

    return opened


def composed(event, relation):
    return PLDAccountant(relation).compose(event)


def least_delta(events, relation, epsilon):
    """What is lost at least: exact, or by loss distributions that round up by less than 0.1 %."""
    known = {e: n for e, n in events.items() if not isinstance(e, BoundedRangeEvent)}
    if not known:
        return composed_delta(events, neighbors=relation, epsilon=epsilon)
    exact = mixed_bound(known, relation)
    if exact is not None and exact.exact:
        return exact.delta(epsilon) * (1 - 1e-8)
    bound = loss_distribution_bound(known, relation)
    return 0.0 if bound is None else bound.delta(epsilon) * (1 - 1e-3)


def assert_never_below(event, relation, events, own):
    theirs = composed(event, relation)
    for epsilon in (0.0, 0.3, 1.0, 5.0, 20.0, 60.0):
        assert theirs.get_delta(epsilon) >= least_delta(events, own, epsilon) - 1e-10, epsilon


def relations(events):
    """Those under which the events differ: without a coin, zero-out is as adding or removing."""
    coins = any(isinstance(event, RandomizedResponseEvent) for event in events)
    return [Relation.REPLACE_ONE, list(Relation)[2 if coins else 0]]


@pytest.mark.parametrize(
    ("events", "relation"),
    few([(events, relation) for events in SETS for relation in relations(events)], first=2),
    ids=str,
)
def test_dp_accounting_never_says_less_than_the_ledger(spent, events, relation):
    ledger = spent(events, relation)
    event, theirs = dp_event(ledger)
    assert theirs.name == (relation if FAILS not in events else Relation.REPLACE_ONE).name
    assert_never_below(event, theirs, events, relation)
    if not {STEPS, DRAWS, FOUR} & set(events):  # as tight as dp_accounting's grid
        ours = ledger.total().epsilon
        assert composed(event, theirs).get_epsilon(1e-5) <= ours + 0.002


def test_of_disjoint_scopes_only_the_most_of_each_event_counts(tmp_path):
    relation = Relation.REPLACE_ONE
    budget = promise_of(relation, unit="person", delta=1e-5)
    ledger = sordino.Ledger.open(tmp_path / "a.db", data="a", budget=budget)
    ledger.declare_disjoint(["a", "b"], rule="person-id")
    for scope, event, count in [("a", PURE, 3), ("b", PURE, 2), ("b", NORMAL, 1), ("all", COIN, 1)]:
        ledger.reserve(event, promise=promise_of(relation, unit="person"), scope=scope, count=count)
    assert ledger.events == {PURE: 3, NORMAL: 1, COIN: 1}
    event, theirs = dp_event(ledger)
    assert composed(event, theirs).get_epsilon(1e-5) >= ledger.total().epsilon * (1 - 1e-8)


def test_flips_are_listed_because_dp_accounting_drops_their_count(spent):
    event, _ = dp_event(spent({COIN: 5}))
    assert len(event.events) == 5
    many = spent({RandomizedResponseEvent(0.01): 1001})
    with pytest.raises(sordino.PrivacyError, match=r"1001 of a loss of 10[.]01 together"):
        dp_event(many)
    whole, relation = dp_event(many.total())
    assert composed(whole, relation).get_epsilon(2e-5) >= many.total().epsilon - 1e-8


@pytest.mark.parametrize("form", ["dp-event", "opendp-registry"])
def test_a_simulated_promise_is_no_event_and_no_record(spent, form):
    ledger = spent({COIN: 1}, randomness="simulated")
    with pytest.raises(sordino.PrivacyError, match=r"simulated.*Nothing was exported"):
        export(ledger, form)
    yaml = pytest.importorskip("yaml")
    card = export(ledger, "model-card")
    front = yaml.safe_load(card.split("---\n")[1])
    assert front["privacy"]["epsilon"] == "inf"
    assert "differential-privacy" not in front["tags"]
    assert "**SIMULATED" in card


def test_what_a_release_leaves_bare_is_not_exported_as_covered(spent):
    ledger = spent({COIN: 1})
    assert "To one record, not protected" in export(ledger, "model-card")
    bare = spent({PURE: 1}, Relation.ADD_OR_REMOVE_ONE)
    bare.change_budget(promise_of(Relation.REPLACE_ONE, delta=1e-5))
    bare.reserve(PURE, promise=promise_of(Relation.REPLACE_ONE))
    for form in ("dp-event", "opendp-registry", "model-card"):
        with pytest.raises(sordino.PrivacyError, match="no promise to one person"):
            export(bare, form)
    assert dp_event(bare.counting("label"))[1].name == "REPLACE_ONE"


def test_no_protection_is_exported_as_none(spent):
    ledger = spent({NonPrivateEvent(): 1, PURE: 1})
    assert math.isinf(ledger.accounts()["label"].guarantee.epsilon)
    assert dp_event(ledger)[0] == dp.NonPrivateDpEvent()
    with pytest.raises(sordino.PrivacyError, match="no finite epsilon"):
        export(ledger, "opendp-registry")
    with pytest.raises(sordino.UsageError, match="Nothing was spent"):
        export(spent({}), "dp-event")
    with pytest.raises(sordino.UsageError, match="form"):
        export(ledger, "opendp")


def read_event(value):
    """The event that the JSON of an export describes, by the names of dp_accounting."""
    if isinstance(value, list):
        return [read_event(part) for part in value]
    if not isinstance(value, dict):
        return value
    fields = {name: read_event(part) for name, part in value.items() if not name.endswith("_name")}
    return getattr(kinds, value["class_name"])(**fields)


@pytest.mark.parametrize("events", [{COIN: 2, NORMAL: 1}, {FAILS: 2}, {DRAWS: 2, STEPS: 1}])
def test_the_json_of_an_event_reads_back(spent, events):
    relation = Relation.ADD_OR_REMOVE_ONE if DRAWS in events else Relation.REPLACE_ONE
    ledger = spent(events, relation)
    found, (event, theirs) = (
        json.loads(export(ledger, "dp-event")),
        dp_event(ledger),
    )
    assert read_event(found["event"]) == event
    assert found["compose_with"] == {
        "library": "dp_accounting",
        "accountant": "PLDAccountant",
        "neighboring_relation": theirs.name,
    }
    assert found["promise"]["epsilon"] == ledger.total().epsilon


# The registry's schema, as far as we write it (opendp/deployments-registry-data, 2026).
ENUMS = {
    "variant_name": {"Pure DP", "Approximate DP"},
    "model_name": {"Local", "Central"},
    "release_type": {"One release", "Many releases"},
    "status": {"Draft"},
}
FIELDS = {
    "basic": {
        "name", "data_curators", "description", "intended_use", "data_product_type",
        "data_product_region", "publication_date",
    },
    "dp_variant": {"variant_name", "data_domain", "unprotected_quantities"},
    "privacy_loss": {
        "privacy_unit", "privacy_unit_details", "privacy_parameters", "privacy_parameters_details",
    },
    "deployment_model": {
        "model_name", "model_name_details", "release_type", "data_source_type", "access_type",
    },
    "implementation": {"mechanisms", "composition", "post_processing"},
    "administrative": {"status", "registry_authors", "tier"},
}  # fmt: skip


def test_a_record_of_the_registry_parses_and_says_what_it_has_no_field_for(spent):
    yaml = pytest.importorskip("yaml")
    ledger = spent({FAILS: 1, NORMAL: 2}, caveats=("labels-only", "real-arithmetic"))
    total = ledger.total()
    record = yaml.safe_load(export(ledger, "opendp-registry"))
    assert record["url_slug"] == "answers-1"
    found = record["deployment"]
    assert {name: set(part) for name, part in found.items()} == FIELDS
    flat = {name: value for part in found.values() for name, value in part.items()}
    assert all(flat[name] in allowed for name, allowed in ENUMS.items())
    assert flat["name"] == ledger.data
    assert flat["privacy_parameters"] == {"epsilon": total.epsilon, "delta": 1e-5}
    assert flat["data_curators"][0]["data_curator_name"] == TO_BE_FILLED_IN
    assert flat["privacy_unit"] == "label"
    assert "not a record and not all of a person" in flat["privacy_unit_details"]
    assert "REPLACE_ONE" in flat["privacy_unit_details"]
    assert "not to be compared" in flat["privacy_unit_details"]
    assert "saw the raw judgments" in flat["model_name_details"]
    for name in total.caveats:
        assert sordino.privacy.guarantee.CAVEATS[name] in flat["privacy_parameters_details"]
    pure = yaml.safe_load(export(spent({PURE: 1}, delta=0.0), "opendp-registry"))
    assert pure["deployment"]["dp_variant"]["variant_name"] == "Pure DP"
    assert pure["deployment"]["privacy_loss"]["privacy_parameters"] == {"epsilon": 0.5}


@pytest.mark.parametrize("text", ["a: b # c", "---\n", "é😀\u2028\x07", '"{}"', "1e-06", "null"])
def test_hostile_names_stay_one_value(text):
    yaml = pytest.importorskip("yaml")
    promise = promise_of(Relation.REPLACE_ONE, epsilon=1e-6, delta=1e-7)
    record = yaml.safe_load(export(promise, "opendp-registry", title=text))
    said = record["deployment"]["basic"]["name"]
    assert said == sordino._markup.harmless(text)
    assert record["deployment"]["privacy_loss"]["privacy_parameters"] == {
        "epsilon": 1e-6,
        "delta": 1e-7,
    }


def test_the_card_is_one_of_the_hub_and_names_every_caveat(spent):
    hub = pytest.importorskip("huggingface_hub")
    ledger = spent({COIN: 1, NORMAL: 1}, caveats=("randomized-at-ingestion",))
    card = hub.ModelCard(export(ledger, "model-card"))
    data = card.data.to_dict()
    assert data["library_name"] == "sordino"
    assert data["tags"] == ["sordino", "differential-privacy"]
    assert data["privacy"]["epsilon"] == ledger.total().epsilon
    assert data["privacy"]["delta"] == 1e-5
    assert data["privacy"]["caveats"] == ["randomized-at-ingestion"]
    assert card.text.count("whoever holds the raw file, saw the raw labels") == 1
    assert ledger.head.digest in card.text
    assert not re.search("protects|guarantees? that nobody", card.text)


def test_a_certificate_exports_its_own_promise_and_its_anchor(linear_world, ledger):
    yaml = pytest.importorskip("yaml")
    pairs, _ = linear_world(60, 3)
    account = ledger(3.0)
    coin = sordino.RandomizedResponse(1.5)
    reward = sordino.fit_reward(sordino.privatize(pairs, coin, ledger=account), ridge=1.0)
    other = account.reserve(PureEvent(1.0), promise=coin.guarantee(
        unit="label", neighbors=sordino.REPLACE_ONE, trust="central"))  # fmt: skip
    assert other
    certificate = sordino.certify(reward, account)
    for form in ("dp-event", "opendp-registry", "model-card"):
        text = certificate.export(form)
        assert certificate.digest in text or form == "opendp-registry"
    record = yaml.safe_load(certificate.export("opendp-registry"))
    assert record["deployment"]["privacy_loss"]["privacy_parameters"] == {"epsilon": 1.5}
    found = json.loads(certificate.export("dp-event"))
    assert composed(read_event(found["event"]), dp.NeighboringRelation.REPLACE_ONE).get_epsilon(
        0.0
    ) == pytest.approx(1.5, abs=2e-4)


@pytest.mark.parametrize("form", ["dp-event", "opendp-registry", "model-card"])
def test_the_command_prints_what_python_returns(spent, capsys, form):
    ledger = spent({COIN: 2})
    words = ["ledger", "export", str(ledger.path), "--form", form]
    app(args=words, standalone_mode=False)
    assert capsys.readouterr().out == export(ledger, form)
    app(args=[*words, "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert found == {"form": form, "text": export(ledger, form)}


@pytest.mark.parametrize("named", few(["", "one"], first=2))
def test_an_export_of_several_data_sets_is_of_the_largest_of_them(tmp_path, named, capsys):
    """Whether the ledger was made for all of them, or for the one of which least was spent."""
    path, budget = tmp_path / "spend.db", promise_of(Relation.REPLACE_ONE, delta=1e-5)
    sordino.Ledger.create(path, data=named or None, budget=budget)
    for data, events in {"one": {COIN: 1}, "other": {COIN: 3, NORMAL: 2}}.items():
        for event, count in events.items():
            ledger = sordino.Ledger.open(path, data=data, budget=budget)
            ledger.reserve(event, promise=promise_of(Relation.REPLACE_ONE), count=count)
    whole = sordino.Ledger.read(path)
    assert whole.total() == whole.about("other").total()
    event, relation = dp_event(whole)
    assert_never_below(event, relation, {COIN: 3, NORMAL: 2}, Relation.REPLACE_ONE)
    said = " ".join(json.loads(export(whole, "dp-event"))["said"])
    assert "everything on one ledger together" in said
    said = " ".join(json.loads(export(whole.about("one"), "dp-event"))["said"])
    assert "the data set 'one', and of no other, on one ledger" in said
    app(args=["ledger", "show", str(path), "--json"], standalone_mode=False)
    told = json.loads(capsys.readouterr().out)
    assert told["total"]["epsilon"] == whole.about("other").total().epsilon
