"""A curator's run that says more than was paid for is refuted; honest ones are not.

The runs are made by the library, with what ``result.json`` holds with noise on an estimate
written out here, so that the auditor is compared with the format and not with the command line.
Nothing in them is a matter of chance: every honest run passes, every forgery here is caught.
"""

import copy
import hashlib
import json
from dataclasses import replace

import pytest
from tests.soundness.forgeries import Draft

import sordino
from sordino._files import to_json
from sordino.auditing.runs.replay import audit_run
from sordino.certificates import certify, paid_guarantee
from sordino.environments.annotators import simulate_pairs
from sordino.mechanisms.gaussian import joint_mechanisms
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.policies.gibbs import gibbs_policy
from sordino.privacy.conversions import gaussian_mu
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    GaussianEvent,
    Guarantee,
)
from sordino.privacy.ledger import Ledger
from sordino.reporting.html import render_report
from sordino.reporting.result import (
    describe_fit_settings,
    describe_guarantee_and_caveats,
    describe_ledger_rows,
)
from sordino.reporting.summary import summarize
from sordino.rewards.estimation import fit_reward
from sordino.rewards.label_release import release_labels
from sordino.rewards.metrics import measure_statistic
from sordino.rewards.reward_fit import fit

DELTA = 1e-6
EVERYTHING = 2.5e-6  # the δ at which a reward and its metrics are composed
MU = gaussian_mu(0.5, DELTA)  # of the metrics
TEXTS = sordino.HashedText(dimension=8)
UNITS = {
    "label": ("label", REPLACE_ONE),
    "person": ("person", REPLACE_ONE),
    "zero-out": ("record", REPLACE_SPECIAL),
    "add-remove": ("record", ADD_OR_REMOVE_ONE),
    "replace": ("record", REPLACE_ONE),
}
RUNS = [*UNITS, *(f"{name}+metrics" for name in UNITS), "moment", "moment+metrics"]
WITHOUT = [name for name in RUNS if "+" not in name]
WITH = [name for name in RUNS if "+" in name]
RECORDS = ["zero-out", "add-remove", "replace", "moment"]
LABELS = ["label", "person"]
SOME = ["label", "person+metrics", "zero-out", "add-remove+metrics"]


def terms(kind):
    return UNITS["zero-out" if kind == "moment" else kind]


def released(kind, pairs, ledger):
    """The reward, what result.json says of its mechanism, and what was measured for nothing."""
    unit, neighbors = terms(kind)
    if unit != "record":
        noise = LabelGaussian(1.0, delta=DELTA, records_per_person=4 if unit == "person" else None)
        labels = release_labels(pairs, noise, ledger=ledger, features=TEXTS)
        told = {
            "name": "label-gaussian", "epsilon": noise.epsilon, "delta": DELTA, "mu": noise.mu,
            "shaped": True, "records_per_person": noise.records_per_person,
        }  # fmt: skip
        return fit(labels, ball=8.0), told, measure_statistic(labels.evidence, ball=8.0)
    given = {"delta": DELTA, "bound": 2.0, "neighbors": neighbors}
    tilt, moment = ObjectivePerturbation(1.0, **given), None
    if kind == "moment":
        tilt, moment = joint_mechanisms(1.0, **given)
    reward = fit_reward(
        pairs, features=TEXTS, mechanism=tilt, second_moment=moment, ellipsoid=False, ledger=ledger
    )
    names = ("epsilon", "delta", "bound", "ridge", "standard_deviation", "second_moment_mu")
    told = {name: getattr(tilt, name) for name in names}
    told |= {"name": "objective-perturbation", "second_moment": moment is not None}
    names = ("accuracy", "negative_log_likelihood", "calibration_slope")
    free = dict.fromkeys([*names, *(f"{name}_standard_error" for name in names)])
    return reward, told, free


def buy(reward, ledger, unit, neighbors):
    """Record a purchase of metrics; the reward then names both entries."""
    same = {"unit": unit, "neighbors": neighbors, "trust": "central"}
    promise = Guarantee(0.5, delta=DELTA, **same, caveats=reward.guarantee.caveats)
    entry = ledger.reserve(GaussianEvent(MU), promise=promise)
    entry.commit(hashlib.sha256(b"metrics").hexdigest())
    both = (*reward.release_ids, entry.release_id)
    asked = replace(reward, release_ids=both, guarantee=replace(promise, delta=EVERYTHING))
    return replace(asked, guarantee=paid_guarantee(asked, ledger))


def write(folder, name, pairs):
    """Write one run as noise on the estimate does."""
    kind, _, bought = name.partition("+")
    unit, neighbors = terms(kind)
    folder.mkdir()
    budget = Guarantee(9.0, delta=1e-5, unit=unit, neighbors=neighbors, trust="central")
    ledger = Ledger.open(folder / "spend.db", data="preferences", budget=budget)
    reward, mechanism, measured = released(kind, pairs, ledger)
    records, hidden = unit == "record", neighbors == ADD_OR_REMOVE_ONE
    win, metrics = {"win_rate": None, "win_rate_interval": None}, None
    if bought:
        reward = buy(reward, ledger, unit, neighbors)
        measured |= {"accuracy": 0.61, "accuracy_standard_error": 0.03}
        measured["negative_log_likelihood"] = 0.66
        win = {"win_rate": 0.6, "win_rate_interval": [0.55, 0.65]}
        metrics = {
            "name": "gaussian" if records else "label-gaussian", "epsilon": 0.5, "delta": DELTA,
            "mu": MU, "share": 0.2, "pairs": None if hidden else 40,
        }  # fmt: skip
    policy = gibbs_policy(reward, temperature=0.5)
    certificate = certify(policy, ledger)
    model = to_json(reward.to_dict())
    result = {
        "format": "sordino.result",
        "version": 1,
        "sordino": sordino.__version__,
        "noise": "estimate",
        **describe_guarantee_and_caveats(certificate.guarantee),
        "mechanism": mechanism,
        "metrics": metrics,
        "data": {
            "name": "preferences",
            "pairs": None if hidden else len(pairs),
            "dropped": None if records else 0,
            "capped": None if records else 0,
            **({"persons": 50} if unit == "person" else {}),
        },
        "reward": measured | describe_fit_settings(reward),
        "policy": {
            "kind": "gibbs", "confidence": None, "scale": None, "temperature": 0.5, **win,
            "kl": None if records else 0.02, "pessimism": None,
        },
        "utility": None if records else {"curve": [], "assumed_accuracy": 0.65},
        "decisive": None,
        "examples": None,
        "calibration": [],
        "certificate": certificate.to_dict(),
        "spent": describe_ledger_rows(ledger)["accounts"],
        "reward_sha256": hashlib.sha256(model.encode()).hexdigest(),
        "seconds": None if records else 1.5,
    }  # fmt: skip
    (folder / "reward.json").write_text(model)
    (folder / "result.json").write_text(to_json(result))
    page = render_report(summarize(result, ledger=describe_ledger_rows(ledger)))
    (folder / "report.html").write_text(page)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One honest run of every kind."""
    home = tmp_path_factory.mktemp("central")
    rows, _ = simulate_pairs(n=200, people=50, seed=4)
    pairs = sordino.read_pairs(rows)
    for name in RUNS:
        write(home / name, name, pairs)
    return home


@pytest.fixture
def forge(made, tmp_path):
    """Change a value of a run's result, and return what the check of the mechanism found."""
    drafts = {}

    def change(name, *path, to, file="result.json"):
        if name not in drafts:
            drafts[name] = Draft(made / name, tmp_path / name)
        drafts[name].change(file, *path, to=to)
        if file == "reward.json":
            drafts[name].reseal()
        audit = drafts[name].audit()
        (found,) = (each for each in audit.findings if each.attack == "mechanism")
        return found, audit

    return change


def told(made, name, *path):
    value = json.loads((made / name / "result.json").read_text())
    for step in path:
        value = value[step]
    return copy.deepcopy(value)


def refuted(found, *words):
    finding, audit = found
    assert audit.refuted_by == ("mechanism",), finding.summary
    for word in words:
        assert word in finding.summary, finding.summary


def warned(found, *words):
    finding, audit = found
    assert not audit.refuted
    assert finding.outcome == "warning", finding.summary
    for word in words:
        assert word in finding.summary, finding.summary


def clear(found, *_):
    assert found[0].outcome == "clear", found[0].summary


# Honest runs.


@pytest.mark.parametrize("name", RUNS)
def test_an_honest_run_is_clear_in_every_check(made, name):
    found = {each.attack: (each.outcome, each.summary) for each in audit_run(made / name).findings}
    named = (made / name / "spend.db.secret").exists()  # which lies with its ledger in the folder
    assert found.pop("strays")[0] == ("warning" if named else "clear")
    assert {outcome for outcome, _ in found.values()} == {"clear"}, found


def test_the_runs_are_of_the_kinds_that_they_are_named_after(made):
    def promise(name):
        guarantee = told(made, name, "guarantee")
        return guarantee["unit"], guarantee["neighbors"], round(guarantee["epsilon"], 3)

    assert promise("label") == ("label", "REPLACE_ONE", 1.0)
    assert promise("person")[:2] == ("person", "REPLACE_ONE")
    assert promise("add-remove") == ("record", "ADD_OR_REMOVE_ONE", 1.0)
    for name in WITH:  # both entries count
        assert promise(name)[2] > promise(name.partition("+")[0])[2]
        assert len(told(made, name, "certificate", "release_ids")) == 2
    assert told(made, "moment", "mechanism", "second_moment_mu") > 0


# One value after another: what it becomes, what the auditor says, and a word of it.


def times(factor):
    """A number that is so many times as large as what was paid for."""
    return lambda paid: factor * paid()


def always(value):
    return lambda _: value


LIKELIHOOD = {
    "reward.negative_log_likelihood": 0.6,
    "reward.negative_log_likelihood_standard_error": 0.01,
}
BOUGHT = {
    "reward.accuracy": 0.7,
    "reward.accuracy_standard_error": 0.01,
    "policy.win_rate": 0.7,
    "policy.win_rate_interval": [0.6, 0.8],
}
OF_TEXTS = {
    "reward.calibration_slope": 1.0,
    "reward.calibration_slope_standard_error": 0.1,
    "reward.weight_standard_error": 0.2,
    "policy.kl": 0.02,
    "policy.pessimism": {"mean_uncertainty": 3.0},
    "data.dropped": 0,
    "data.capped": 2,
    "data.persons": 50,
    "utility": {"curve": [], "effective_dimension": 7},
    "seconds": 1.5,
    "decisive": {"source": "comparisons", "rows": []},
    "examples": {"source": "released", "rows": []},
}
BINS = [{"predicted": 0.5, "observed": 0.5, "low": 0.4, "high": 0.6, "pairs": 9}]
COIN = {"name": "randomized-response", "flip_probability": 0.27, "epsilon_per_label": 1.0}
OF_LABELS = [name for name in SOME if name.partition("+")[0] in LABELS]
MECHANISM_OF_RECORDS = [name for name in WITH if name.partition("+")[0] in RECORDS]
SETTING = ("zero-out", "moment")
FORGERIES = [
    (RUNS, "mechanism.epsilon", times(0.9), refuted, "loss"),
    (RUNS, "mechanism.delta", times(0.9), refuted, "loss"),
    (SOME, "mechanism.epsilon", times(1.5), warned, "larger loss"),
    (SOME, "mechanism.delta", times(1.1), warned, "larger loss"),
    (LABELS, "mechanism.mu", times(0.999), refuted, "More noise"),
    (LABELS, "mechanism.mu", always(0.0), refuted, "More noise"),
    (LABELS, "mechanism.mu", times(1.1), warned, "Less noise"),
    (["person"], "mechanism.records_per_person", always(2), warned, "records of one person"),
    (["person"], "mechanism.records_per_person", always(None), warned, "records of one person"),
    (RECORDS, "mechanism.standard_deviation", times(1.01), refuted, "More noise"),
    (RECORDS, "mechanism.standard_deviation", times(0.99), refuted, "Less noise"),
    (SETTING, "mechanism.ridge", times(1.1), refuted, "ridge"),
    (SETTING, "mechanism.ridge", times(0.01), refuted, "ridge"),
    (SETTING, "mechanism.bound", times(0.5), refuted, "More noise"),
    (SETTING, "mechanism.bound", times(2.0), refuted, "Less noise"),
    (SETTING, "mechanism.bound", times(1e9), refuted, "Less noise"),
    (["moment"], "mechanism.second_moment_mu", times(0.5), refuted, "second moment"),
    (["moment"], "mechanism.second_moment_mu", always(0.0), refuted, "second moment"),
    (["moment"], "mechanism.second_moment", always(False), refuted, "second moment"),
    (["zero-out"], "mechanism.second_moment", always(True), refuted, "second moment"),
    (SOME, "mechanism", always(COIN), refuted, "Another mechanism"),
    *(
        (SOME, path, always(name), refuted, "Another mechanism")
        for path in ("noise", "mechanism.name")
        for name in ("local", "laplace", "label-gaussian-2")
    ),
    (WITH, "metrics.mu", times(0.99), refuted, "Metrics:"),
    (WITH, "metrics.epsilon", times(0.9), refuted, "Metrics:"),
    (WITH, "metrics.delta", times(0.5), refuted, "Metrics:"),
    (["label+metrics", "add-remove+metrics"], "metrics.mu", times(1.01), warned, "Metrics:"),
    (["label+metrics", "add-remove+metrics"], "metrics.epsilon", times(1.5), warned, "Metrics:"),
    (["label+metrics", "add-remove+metrics"], "metrics.delta", times(1.5), warned, "Metrics:"),
    (WITH, "metrics", always(None), warned, "not described"),
    (WITH, "metrics.name", always("laplace"), refuted, "another mechanism"),
    (MECHANISM_OF_RECORDS, "metrics.name", always("label-gaussian"), refuted, "hides no record"),
    *(
        (["label", "person", "zero-out", "add-remove"], path, always(value), refuted, "paid for")
        for path, value in BOUGHT.items()
    ),
    *(  # of records not even the likelihood is free
        (["zero-out", "add-remove"], path, always(value), refuted, "paid for")
        for path, value in LIKELIHOOD.items()
    ),
    (SOME, "calibration", always(BINS), refuted, "calibration"),
    *(
        (["zero-out", "add-remove+metrics"], path, always(value), refuted, "private prompts")
        for path, value in OF_TEXTS.items()
    ),
    *(  # of labels the texts are public
        (["person"], path, always(value), clear, "") for path, value in OF_TEXTS.items()
    ),
    (["zero-out"], "decisive", always({"source": "public", "rows": []}), clear, ""),
    (["zero-out"], "examples", always({"source": "public", "rows": []}), clear, ""),
    (["add-remove", "add-remove+metrics"], "data.pairs", always(200), refuted, "How many records"),
    (["add-remove+metrics"], "metrics.pairs", always(200), refuted, "How many records"),
]


@pytest.mark.parametrize(
    ("name", "path", "change", "outcome", "word"),
    [(name, *forgery) for names, *forgery in FORGERIES for name in names],
)
def test_one_value_that_says_something_else(made, forge, name, path, change, outcome, word):
    steps = path.split(".")
    value = change(lambda: told(made, name, *steps))
    named = path if word in ("paid for", "private prompts", "How many records") else ""
    outcome(forge(name, *steps, to=value), word, named)


@pytest.mark.parametrize("name", SOME)
def test_the_mechanism_of_another_unit(made, forge, name):
    other = "label" if name not in OF_LABELS else "zero-out"
    refuted(forge(name, "mechanism", to=told(made, other, "mechanism")), "Another mechanism")
    forge(name, "noise", to="labels")
    refuted(forge(name, "mechanism", to=COIN), "Another mechanism")


@pytest.mark.parametrize("name", WITHOUT)
def test_metrics_that_nothing_paid_for(made, forge, name):
    bought = told(made, f"{name}+metrics", "metrics") | {"pairs": None}
    refuted(forge(name, "metrics", to=bought), "nothing on the ledger paid")


def test_what_the_reward_itself_says(made, forge):
    """A reward that says that it was fitted so, how many records there were, or what texts tell."""
    forge("zero-out", "method", to="label-gaussian", file="reward.json")
    refuted(forge("zero-out", "mechanism", to=told(made, "label", "mechanism")))
    found = forge("add-remove", "pairs", to=200, file="reward.json")
    refuted(found, "How many records", "reward.json")
    found = forge("moment", "standard_errors", to=[0.1] * 8, file="reward.json")
    refuted(found, "private prompts", "standard_errors")


# Malformed files are refused, and say nothing of the run.


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("label", ("mechanism", "mu"), "0.2"),
        ("label", ("mechanism", "mu"), -1.0),
        ("label", ("mechanism", "delta"), 2.0),
        ("label", ("mechanism", "records_per_person"), 0),
        ("zero-out", ("mechanism", "bound"), 0.0),
        ("zero-out", ("mechanism", "second_moment"), 1),
        ("zero-out", ("reward",), [1]),
        ("label+metrics", ("metrics",), []),
        ("label+metrics", ("metrics", "name"), 3),
    ],
)
def test_a_malformed_description(forge, name, path, value):
    with pytest.raises(sordino.errors.DataError, match="malformed"):
        forge(name, *path, to=value)
