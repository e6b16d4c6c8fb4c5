"""A reward from raw pairs depends on labels through one noised sum, which was paid for first."""

import dataclasses
import json
import sqlite3

import numpy as np
import pytest

import sordino
from sordino import _random
from sordino._random import SystemEntropy
from sordino.mechanisms import label_sum
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.rewards import label_release
from sordino.rewards.evidence import Design
from sordino.rewards.label_release import Judged, release_labels, release_sum
from sordino.rewards.metrics import measure_statistic
from sordino.rewards.reward_fit import fit

N, D = 120, 4
MECHANISM = LabelGaussian(1.0, delta=1e-6)
OF_PERSONS = LabelGaussian(1.0, delta=1e-6, records_per_person=2)


def pairs_of(labels, *, persons=False):
    rows = np.random.default_rng(0).normal(size=(N, D))
    names = [f"p{index % 30}" for index in range(N)] if persons else None
    return sordino.Pairs.from_features(rows, labels, persons=names)


def labels_of(seed=1):
    return np.random.default_rng(seed).choice([0, 1, 0.5], size=N)


def account(folder, epsilon=3.0, unit="label"):
    folder.mkdir(exist_ok=True)
    budget = sordino.Guarantee(
        epsilon, delta=1e-6, unit=unit, neighbors=sordino.REPLACE_ONE, trust="central"
    )
    return sordino.Ledger.open(folder / "spend.db", data="test", budget=budget)


def durable_kinds(path):
    """The kinds of all rows that another process sees at this moment."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    kinds = [row[0] for row in connection.execute("SELECT kind FROM rows ORDER BY sequence")]
    connection.close()
    return kinds


def artifacts(folder, monkeypatch, labels, *, outcome, mechanism=MECHANISM, unit="label"):
    """Every byte of one run whose noised sum is ``outcome``; and the sum before the noise."""
    totals = []

    def noise(total, scale, entropy):
        totals.append(total.tolist())
        return np.asarray(outcome, dtype=np.int64)

    names = iter(range(10**6))
    pairs = pairs_of(labels, persons=unit == "person")
    with monkeypatch.context() as patch:
        patch.setattr(label_sum, "with_noise", noise)
        for module in ("sordino._random", "sordino.privacy.ledger_chain", "sordino._files"):
            patch.setattr(f"{module}.new_release_id", lambda: f"{next(names):016x}", raising=False)
        patch.setattr(_random, "now", lambda: "2026-01-01T00:00:00Z")
        ledger = account(folder, unit=unit)
        reward = sordino.fit_reward(pairs, mechanism=mechanism, ledger=ledger, ball=3.0)
        reward.save(folder / "reward.json")
        released = release_labels(pairs, mechanism, ledger=ledger)
        again = fit(released, ball=3.0, criterion="thinning")
        shown = {
            "reward": (folder / "reward.json").read_bytes(),
            "again": json.dumps(again.to_dict()),
            "metrics": json.dumps(measure_statistic(released.evidence, ball=3.0)),
            "certificate": json.dumps(sordino.certify(reward, ledger).to_dict()),
            "texts": repr((reward, again, released, released.evidence)),
            "rows": [tuple(vars(row).items()) for row in ledger.rows],
        }
    return shown, totals


@pytest.mark.parametrize("change", [0, 1, 0.5])
def test_one_label_shows_in_the_sum_alone(tmp_path, monkeypatch, change):
    one = labels_of()
    at = int(np.flatnonzero(one != change)[0])
    other = one.copy()
    other[at] = change
    outcome = np.arange(D) * 10**6
    seen, totals = artifacts(tmp_path / "one", monkeypatch, one, outcome=outcome)
    same, moved = artifacts(tmp_path / "other", monkeypatch, other, outcome=outcome)
    assert totals != moved  # the label is read, and was hidden by the noise alone
    assert seen == same


def test_all_labels_of_one_person_show_in_the_sum_alone(tmp_path, monkeypatch):
    one = labels_of()
    other = one.copy()
    other[7::30] = 1 - one[7::30] + (one[7::30] == 0.5) / 2  # a tie becomes a 1
    given = {"outcome": np.arange(D), "mechanism": OF_PERSONS, "unit": "person"}
    seen, totals = artifacts(tmp_path / "one", monkeypatch, one, **given)
    same, moved = artifacts(tmp_path / "other", monkeypatch, other, **given)
    assert totals != moved
    assert seen == same


def test_another_sum_shows_everywhere(tmp_path, monkeypatch):
    """The comparison above can fail: the sum reaches every artifact."""
    one = labels_of()
    seen, _ = artifacts(tmp_path / "one", monkeypatch, one, outcome=np.arange(D) * 10**6)
    other, _ = artifacts(tmp_path / "two", monkeypatch, one, outcome=np.arange(D) * 10**6 + 1)
    differing = {name for name in seen if seen[name] != other[name]}
    assert differing == {"reward", "again", "metrics", "certificate", "rows"}


class Watched(sordino.Pairs):
    """Pairs that note what the ledger says whenever labels are looked at."""

    def __getattribute__(self, name):
        if name == "labels":
            object.__getattribute__(self, "looks").append(
                durable_kinds(object.__getattribute__(self, "path"))
            )
        return object.__getattribute__(self, name)


def watched(pairs, path):
    found = object.__new__(Watched)
    found.__dict__.update(pairs.__dict__, looks=[], path=path)
    return found


@pytest.mark.parametrize("unit", ["label", "person"])
def test_labels_are_read_once_and_after_the_entry(tmp_path, monkeypatch, unit):
    ledger = account(tmp_path, unit=unit)
    drawn = []
    honest = label_sum.with_noise

    def noise(*given):
        drawn.append(durable_kinds(ledger.path))
        return honest(*given)

    monkeypatch.setattr(label_sum, "with_noise", noise)
    pairs = watched(pairs_of(labels_of(), persons=unit == "person"), ledger.path)
    mechanism = OF_PERSONS if unit == "person" else MECHANISM
    sordino.fit_reward(pairs, mechanism=mechanism, ledger=ledger, ball=3.0)
    assert pairs.__dict__["looks"] == drawn == [["open", "reserve"]]


@pytest.mark.parametrize("criterion", ["tic", "thinning"])
def test_nothing_after_the_release_spends_or_looks_at_labels(tmp_path, monkeypatch, criterion):
    ledger = account(tmp_path)
    pairs = pairs_of(labels_of())
    honest = LabelGaussian.release

    def release(self, labels, **given):
        found = honest(self, labels, **given)
        object.__setattr__(pairs, "labels", None)
        labels.setflags(write=True)
        labels[:] = 77  # whoever kept a reference would be refused or misled
        return found

    monkeypatch.setattr(LabelGaussian, "release", release)
    released = release_labels(pairs, MECHANISM, ledger=ledger)
    before = ledger.head
    monkeypatch.setattr(SystemEntropy, "words", lambda *_: pytest.fail("coins were drawn"))
    reward = fit(released, ball=3.0, criterion=criterion)
    measure_statistic(released.evidence, ball=3.0)
    sordino.certify(reward, ledger)
    assert ledger.head == before
    assert sordino.Ledger.open(ledger.path).head == before


def test_over_the_budget_nothing_is_drawn(tmp_path, monkeypatch):
    ledger = account(tmp_path, 0.9)
    pairs = watched(pairs_of(labels_of()), ledger.path)
    monkeypatch.setattr(label_sum, "with_noise", lambda *_: pytest.fail("noise was drawn"))
    monkeypatch.setattr(SystemEntropy, "words", lambda *_: pytest.fail("coins were drawn"))
    with pytest.raises(sordino.BudgetExceeded):
        sordino.fit_reward(pairs, mechanism=MECHANISM, ledger=ledger)
    assert pairs.__dict__["looks"] == []
    assert durable_kinds(ledger.path) == ["open"]


def test_a_budget_that_another_process_used_up_is_seen(tmp_path, monkeypatch):
    """The first check is a courtesy; what counts is the one under the ledger's lock."""
    ledger = account(tmp_path, 1.2)
    honest = label_release.Judged.prepare

    def prepared(*given):
        elsewhere = sordino.Ledger.open(ledger.path)
        promise = MECHANISM.guarantee(unit="label", neighbors=sordino.REPLACE_ONE, trust="central")
        elsewhere.reserve(MECHANISM.event, promise=promise)
        return honest(*given)

    monkeypatch.setattr(label_release.Judged, "prepare", prepared)
    monkeypatch.setattr(label_sum, "with_noise", lambda *_: pytest.fail("noise was drawn"))
    with pytest.raises(sordino.BudgetExceeded):
        sordino.fit_reward(pairs_of(labels_of()), mechanism=MECHANISM, ledger=ledger)


def test_a_crash_while_drawing_counts_as_spent(tmp_path, monkeypatch):
    ledger = account(tmp_path)

    def crash(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(label_sum, "with_noise", crash)
    with pytest.raises(KeyboardInterrupt):
        sordino.fit_reward(pairs_of(labels_of()), mechanism=MECHANISM, ledger=ledger)
    assert durable_kinds(ledger.path) == ["open", "reserve"]
    assert ledger.total().epsilon == pytest.approx(1.0, rel=1e-6)


def test_what_the_entry_says_is_what_the_noise_keeps(tmp_path):
    ledger = account(tmp_path)
    reward = sordino.fit_reward(pairs_of(labels_of()), mechanism=MECHANISM, ledger=ledger)
    [row] = ledger.spends
    assert (row.event, row.unit, row.neighbors) == ("gaussian", "label", "REPLACE_ONE")
    assert (row.trust, row.count) == ("central", 1)
    design = MECHANISM.prepare(pairs_of(labels_of()).given)
    steps = 2 * np.linalg.norm(design.halves.astype(float), axis=1)  # of one label, from 0 to 1
    mu = next(value for value in json.loads(row.parameters).values())
    assert steps.max() / design.scale <= mu
    assert steps.max() / design.scale == pytest.approx(mu, rel=1e-5)
    assert reward.guarantee.epsilon == pytest.approx(1.0, rel=1e-6)
    assert reward.guarantee.epsilon <= 1.0


@pytest.mark.parametrize(
    ("unit", "neighbors", "trust"),
    [
        ("record", "REPLACE_ONE", "central"),
        ("record", "ADD_OR_REMOVE_ONE", "central"),
        ("label", "REPLACE_SPECIAL", "central"),
        ("label", "REPLACE_ONE", "local"),
    ],
)
def test_a_ledger_about_something_else_is_refused(tmp_path, unit, neighbors, trust):
    budget = sordino.Guarantee(
        3.0, delta=1e-6, unit=unit, neighbors=getattr(sordino.privacy.guarantee, neighbors),
        trust=trust,
    )  # fmt: skip
    ledger = sordino.Ledger.open(tmp_path / "spend.db", data="test", budget=budget)
    with pytest.raises(sordino.PrivacyError):
        sordino.fit_reward(pairs_of(labels_of()), mechanism=MECHANISM, ledger=ledger)
    assert durable_kinds(ledger.path) == ["open"]


def test_another_data_set_is_refused(tmp_path):
    ledger = account(tmp_path)
    sordino.fit_reward(pairs_of(labels_of()), mechanism=MECHANISM, ledger=ledger)
    other = sordino.Pairs.from_features(np.ones((3, D)), [0, 1, 1])
    with pytest.raises(sordino.LedgerMismatch):
        sordino.fit_reward(other, mechanism=MECHANISM, ledger=ledger)


def test_a_sum_is_released_under_its_own_promise_only(tmp_path):
    """Another mechanism than rows were checked for counts more of a person than is said."""
    ledger, pairs = account(tmp_path, unit="person"), pairs_of(labels_of(), persons=True)
    judged = Judged.of("fit", pairs, OF_PERSONS, ledger)
    source = SystemEntropy()
    promise = judged.promise(OF_PERSONS, ledger, source)
    vectors = judged.vectors(None)
    given = {"details": {}, "ledger": ledger, "entropy": source}
    with pytest.raises(sordino.UsageError, match="checked for records_per_person=2"):
        release_sum(judged, MECHANISM, vectors, promise=promise, **given)
    other = dataclasses.replace(promise, epsilon=promise.epsilon / 2)
    with pytest.raises(sordino.PrivacyError, match="not that of the release"):
        release_sum(judged, OF_PERSONS, vectors, promise=other, **given)
    assert durable_kinds(ledger.path) == ["open"]


def test_what_is_released_cannot_draw_again_and_shows_no_answer(tmp_path):
    """Noise drawn twice on one entry averages out."""
    ledger, pairs = account(tmp_path), pairs_of(labels_of())
    source = SystemEntropy()
    judged = Judged.of("fit", pairs, MECHANISM, ledger)
    promise = judged.promise(MECHANISM, ledger, source)
    released = release_sum(
        judged, MECHANISM, judged.vectors(None), promise=promise, details={}, ledger=ledger,
        entropy=source,
    )  # fmt: skip
    values = [*vars(released).values(), *vars(released.known).values()]
    assert not any(callable(value) for value in values)
    private = sordino.privatize(
        pairs_of(labels_of()), sordino.RandomizedResponse(1.0), ledger=account(tmp_path / "pure")
    )
    assert repr(Design.of(private, None)) == f"Design(n={N}, d={D})"


def test_rows_written_as_chosen_first_are_refused(tmp_path):
    """Their order gives every label away, whatever the noise."""
    ledger = account(tmp_path)
    pairs = pairs_of(labels_of())
    given = pairs.given.copy()
    given[3] *= -1
    with pytest.raises(sordino.PrivacyError, match="Row 3 is not in canonical order"):
        sordino.fit_reward(
            dataclasses.replace(pairs, given=given), mechanism=MECHANISM, ledger=ledger
        )
    assert durable_kinds(ledger.path) == ["open"]


@pytest.mark.parametrize("delta", [1e-6, 1e-5, 1e-7])
def test_a_reward_is_certified_whatever_the_budget_allows(tmp_path, delta):
    """The certificate composes the entries at the failure probability that the reward states."""
    ledger = account(tmp_path / "ledger")
    mechanism = LabelGaussian(1.0, delta=delta)
    reward = sordino.fit_reward(pairs_of(labels_of()), mechanism=mechanism, ledger=ledger)
    certificate = sordino.certify(reward, ledger)
    assert certificate.guarantee.delta == delta
    assert 0.99 < certificate.guarantee.epsilon <= 1.0
    assert certificate.ledger_total.delta == ledger.budget.delta
