"""Planted leaks are found, honest files are not refuted, and nothing is touched."""

import gzip
import hashlib
import json
from functools import partial
from itertools import islice

import numpy as np
import pytest
from tests.privatized import privatize_file
from tests.tiers import few

import sordino
from sordino import _random
from sordino._random import SimulatedEntropy
from sordino.auditing.releases import leaks as releases
from sordino.auditing.releases.channels import recovery_bound
from sordino.auditing.releases.leaks import audit_release
from sordino.auditing.releases.recipes import coin_recipes
from sordino.auditing.releases.seed_attack import attack_coins
from sordino.errors import UsageError
from sordino.preferences.records import canonical

EPSILON = 0.5
PUBLISHED = "published_local_dp_eps0.10_val.jsonl.gz"
FEW = range(12)  # small seeds to try


@pytest.fixture(autouse=True)
def _common_coins(monkeypatch, request):
    """Try the 16 most common coins only, of almost two thousand."""
    if "published_file_alone" not in request.node.name:
        core = [recipe for recipe in coin_recipes() if recipe.core]
        monkeypatch.setattr(releases, "attack_coins", partial(attack_coins, recipes=core))


@pytest.fixture
def raw_rows(shared_data):
    with gzip.open(shared_data / "hh_helpful_a.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in islice(file, 400)]


@pytest.fixture
def write(tmp_path):
    def write(name, rows, folder="released"):
        (tmp_path / folder).mkdir(exist_ok=True)
        path = tmp_path / folder / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


def audited(path, raw=None, *, epsilon=EPSILON, unit="label", seeds=FEW, **settings):
    return audit_release(path, epsilon=epsilon, unit=unit, raw=raw, seeds=seeds, **settings)


def answered(raw_rows, *, epsilon=EPSILON, entropy=0):
    """Honest answers in canonical order, by coins of an unguessable seed."""
    generator = np.random.default_rng([20_240_817, 77_003, entropy])
    rows = []
    for row in raw_rows:
        swap, _ = canonical(row["prompt"], row["chosen"], row["rejected"])
        pair = [row["chosen"], row["rejected"]]
        flip = bool(generator.random() < 1 / (1 + np.exp(epsilon)))
        rows.append({"prompt": row["prompt"], "first": pair[swap], "second": pair[not swap],
                     "answer": int((not swap) ^ flip)})  # fmt: skip
    return rows


def label(released, raw):
    return int(released["first"] == raw["chosen"])


def outcomes(audit):
    return {found.attack: found.outcome for found in audit.findings}


def test_honest_answers_are_not_refuted(raw_rows, write):
    path, raw = write("x.jsonl", answered(raw_rows)), write("raw.jsonl", raw_rows, "elsewhere")
    alone, joined = audited(path), audited(path, raw)
    assert not alone.refuted
    assert not joined.refuted
    assert (alone.confidential, joined.confidential) == (False, True)
    assert (alone.kind, alone.subject, alone.level) == ("release", "x.jsonl", 1e-3)
    assert alone.claim.unit == "label"
    assert (alone.claim.epsilon, alone.claim.delta, alone.claim.trust) == (EPSILON, 0.0, "local")
    assert alone.measured == ()
    assert 0 < joined.lower_bound < EPSILON < joined.measured[0].upper
    assert outcomes(alone)["flip-rate"] == "skipped"
    assert outcomes(joined)["flip-rate"] == "clear"
    assert outcomes(joined)["shared-coin"] == "skipped"


@pytest.mark.deep
def test_the_published_file_alone(shared_data, tmp_path):
    (tmp_path / PUBLISHED).write_bytes((shared_data / PUBLISHED).read_bytes())
    manifest = shared_data / "published_local_dp_eps0.10_manifest.json"
    audit = audited(tmp_path / PUBLISHED, epsilon=0.1, manifest=manifest)
    assert set(audit.refuted_by) == {"seed", "position", "id-hash"}
    assert {found.recovered for found in audit.findings if found.outcome == "refutes"} == {1.0}
    assert outcomes(audit)["manifest"] == "warning"
    with pytest.raises(sordino.AuditRefuted, match="seed"):
        audit.require()


@pytest.mark.deep
def test_the_published_file_with_its_raw_file(shared_data):
    """Claim: PPKL, Section 6 (the released "privatized" data are private)
    Verdict: false: every label was recovered, by position, by hashed id, by a published seed
    Ours: sordino.preferences.records.canonical: orders before randomizing, random ids, no seed;
        sordino.audit: finds all three
    """
    raw = shared_data / "hh_helpful_a.jsonl.gz"
    audit = audited(shared_data / PUBLISHED, raw, epsilon=0.1)
    refuting = {f.attack: f.recovered for f in audit.findings if f.outcome == "refutes"}
    assert refuting == {"position": 1.0, "id-hash": 1.0, "seed": 1.0}
    assert audit.lower_bound > 4
    assert outcomes(audit)["surroundings"] == "warning"
    assert audit.to_dict()["verdict"] == "refuted"
    json.dumps(audit.to_dict(), allow_nan=False)


def test_the_published_file_without_its_manifest_and_seed(shared_data, tmp_path):
    """File order alone is a warning: an honest file may be written in any order."""
    (tmp_path / PUBLISHED).write_bytes((shared_data / PUBLISHED).read_bytes())
    audit = audited(tmp_path / PUBLISHED, epsilon=0.1)
    assert not audit.refuted
    found = outcomes(audit)
    assert found["position"] == found["id-hash"] == "warning"
    assert found["manifest"] == "skipped"


def chosen_first(raw_rows, *, is_label):
    """The preferred answer first, and whether the label or the flip is what is written."""
    rows = []
    for row, raw in zip(answered(raw_rows), raw_rows, strict=True):
        kept = row["answer"] == label(row, raw)
        rows.append({"prompt": raw["prompt"], "a1": raw["chosen"], "a2": raw["rejected"],
                     "z": 2 * kept - 1 if is_label else 1})  # fmt: skip
    return rows


def test_chosen_first_with_honest_coins(raw_rows, write):
    path = write("x.jsonl", chosen_first(raw_rows, is_label=True))
    audit = audited(path, write("raw.jsonl", raw_rows, "elsewhere"))
    assert audit.refuted_by == ("position",)
    assert audit.lower_bound > 3
    alone = audited(path)
    assert not alone.refuted
    assert outcomes(alone)["position"] == outcomes(alone)["constant-truth"] == "warning"
    agreeing = audited(write("x.jsonl", chosen_first(raw_rows, is_label=False)))
    assert outcomes(agreeing)["constant-truth"] == "clear"  # too often for a randomized constant


def test_what_is_public_anyway_is_taken_off_what_was_read_out():
    """All of 800 labels right: the chance is at least 0.05^(1/800) with 95 % confidence."""
    low = 0.05 ** (1 / 800)
    all_right, tastes = (recovery_bound(800, 800, odds, 0.95) for odds in (0.0, 1.25))
    assert all_right == pytest.approx(np.log(low / (1 - low)), rel=1e-9)
    assert tastes == pytest.approx(all_right - 1.25, rel=1e-9)
    assert recovery_bound(0, 800, 0.0, 0.95) == recovery_bound(800, 800, np.inf, 0.95) == 0.0


def test_rows_in_the_order_of_their_labels(raw_rows, write):
    rows = [(label(row, raw), row) for row, raw in zip(answered(raw_rows), raw_rows, strict=True)]
    ordered = [row for _, row in sorted(rows, key=lambda one: one[0])]
    audit = audited(write("x.jsonl", ordered), write("raw.jsonl", raw_rows, "elsewhere"))
    assert audit.refuted_by == ("row-order",)


@pytest.mark.parametrize(("real", "claimed"), [(1.5, EPSILON), (6.0, EPSILON), (100.0, 3.0)])
def test_a_coin_of_a_larger_epsilon(raw_rows, write, real, claimed):
    path = write("x.jsonl", answered(raw_rows, epsilon=real))
    audit = audited(path, write("raw.jsonl", raw_rows, "elsewhere"), epsilon=claimed)
    assert "flip-rate" in audit.refuted_by
    assert claimed < audit.lower_bound < real


COLUMNS = {
    "a label": lambda i, x, raw: {"c": x},
    "the winner": lambda i, x, raw: {"c": raw["chosen"]},
    "a text": lambda i, x, raw: {"meta": json.dumps({"id": i, "label": x})},
    "deeper": lambda i, x, raw: {"a": [{"b": {"ok": "ny"[x], "id": i}}]},
}


@pytest.mark.parametrize("hide", few(COLUMNS.values(), first=2), ids=COLUMNS)
def test_a_column_that_holds_the_label_is_a_leak_unless_it_is_declared(raw_rows, write, hide):
    rows = [
        {**row, **hide(i, label(row, raw), raw)}
        for i, (row, raw) in enumerate(zip(answered(raw_rows), raw_rows, strict=True))
    ]
    path, raw = write("x.jsonl", rows), write("raw.jsonl", raw_rows, "elsewhere")
    audit = audited(path, raw)
    assert audit.refuted_by == ("column",)
    assert audit.lower_bound > 3
    assert not audited(path, raw, covariates=list(hide(0, 0, raw_rows[0]))).refuted


def test_a_column_that_is_the_answer_again_is_no_leak(raw_rows, write):
    rows = [{**row, "copy": row["answer"]} for row in answered(raw_rows)]
    audit = audited(write("x.jsonl", rows), write("raw.jsonl", raw_rows, "elsewhere"))
    assert not audit.refuted


class Coins:
    """System coins as far as anybody can tell, and the same in every run of the tests."""

    randomness = "system"

    def __init__(self, seed):
        self._stream = SimulatedEntropy(seed)

    def words(self, n):
        return self._stream.words(n)


@pytest.fixture
def privatized(tmp_path, write, raw_rows, monkeypatch):
    """A maker of our own files: (released, raw)."""
    made = iter(range(1000))
    coins = iter(range(10**9, 10**9 + 1000))  # far from every seed that is tried
    real = _random.entropy
    monkeypatch.setattr(
        _random, "entropy", lambda seed: Coins(next(coins)) if seed is None else real(seed)
    )

    def make(rows=None, *, epsilon=EPSILON, unit="label", budget=100.0, coin=None, **settings):
        number = next(made)
        raw = write(f"raw{number}.jsonl", raw_rows if rows is None else rows, "elsewhere")
        limit = sordino.Guarantee(
            budget, delta=0.0, unit=unit, neighbors=sordino.REPLACE_ONE, trust="central",
            caveats=("labels-only",) if unit == "person" else (),
        )  # fmt: skip
        folder = tmp_path / f"ours{number}"
        folder.mkdir()
        ledger = sordino.Ledger.open(folder / "spend.db", data="x", budget=limit)
        path = folder / "p.jsonl"
        privatize_file(
            raw, path, sordino.RandomizedResponse(epsilon if coin is None else coin),
            ledger=ledger, **settings,
        )  # fmt: skip
        return path, raw

    return make


def test_our_own_simulated_file_with_its_raw_file(privatized):
    path, raw = privatized(simulate_seed=7)
    audit = audited(path, raw)
    assert audit.refuted_by == ("seed",)
    assert audit.claim.simulated
    assert audit.lower_bound > 3
    assert outcomes(audit)["claim"] == "warning"
    assert not audited(path).refuted, "labels that are not constant show no seed"


def test_our_own_file(privatized):
    path, raw = privatized()
    for given in (None, raw):
        audit = audited(path, given)
        assert not audit.refuted
        assert outcomes(audit)["claim"] == outcomes(audit)["manifest"] == "clear"
        assert audit.claim.trust == "central"
        assert "randomized-at-ingestion" in audit.claim.caveats


def test_chat_messages(privatized, raw_rows):
    rows = [
        {name: [{"role": "user", "content": text}] for name, text in row.items()}
        for row in raw_rows
    ]
    path, raw = privatized(rows)
    audit = audited(path, raw)
    assert not audit.refuted
    assert outcomes(audit)["flip-rate"] == "clear"


def persons(raw_rows, people=100):
    """Every person answers four questions, and one of them once more and otherwise."""
    rows = [{**row, "person": f"p{index % people}"} for index, row in enumerate(raw_rows[:400])]
    again = [{**row, "chosen": row["rejected"], "rejected": row["chosen"]} for row in rows[:people]]
    return [*rows, *again]


@pytest.mark.deep
@pytest.mark.parametrize("unit", ["label", "person"])
def test_persons_with_stored_answers(privatized, raw_rows, unit):
    path, raw = privatized(persons(raw_rows), unit=unit)
    total = EPSILON if unit == "label" else 4 * EPSILON
    for given in (None, raw):
        audit = audited(path, given, epsilon=total, unit=unit)
        assert not audit.refuted
        assert outcomes(audit)["repeats"] == "clear"
        assert audit.claim.unit == unit
        assert outcomes(audit)["claim"] == "clear"
    assert audit.measured[0].claimed == pytest.approx(EPSILON, rel=1e-9)


def test_a_person_who_pays_more_than_is_promised(privatized, raw_rows):
    path, _ = privatized(persons(raw_rows), unit="person")
    audit = audited(path, epsilon=4 * EPSILON - 0.01, unit="person")
    assert audit.refuted_by == ("repeats",)
    assert not audited(path, epsilon=4 * EPSILON).refuted


def test_a_person_who_may_lose_more_than_the_stated_coin_costs(privatized, raw_rows):
    """The coin of a promise is judged by its share of the total, not by what a file says of it."""
    path, raw = privatized(persons(raw_rows), unit="person")
    manifest = path.with_name("p.manifest.json")
    manifest.write_text('{"flip_probability": 0.45}')
    audit = audited(path, raw, epsilon=4 * EPSILON, unit="person")
    assert not audit.refuted
    assert audit.measured[0].claimed == EPSILON
    assert "repeats" in audited(path, raw, epsilon=0.4 * EPSILON, unit="person").refuted_by


def test_a_coin_used_again_for_a_changed_answer(raw_rows, write):
    raw = persons(raw_rows)
    coins = dict(zip(range(400), answered(raw[:400]), strict=True))
    released = []
    for index, row in enumerate(raw):
        honest = coins[index % 400]
        flip = honest["answer"] ^ label(honest, raw[index % 400])
        released.append({**honest, "answer": label(honest, row) ^ flip, "person": row["person"]})
    audit = audited(write("x.jsonl", released), write("raw.jsonl", raw, "elsewhere"))
    assert audit.refuted_by == ("reused-coin",)
    assert outcomes(audit)["repeats"] == "warning"


def test_people_who_like_longer_answers_are_no_leak(raw_rows, write):
    rows, raw = answered(raw_rows, epsilon=3.0), []
    for row in rows:
        pair = sorted((row["first"], row["second"]), key=len)
        raw.append({"prompt": row["prompt"], "chosen": pair[1], "rejected": pair[0]})
    honest = answered(raw, epsilon=3.0, entropy=1)
    audit = audited(write("x.jsonl", honest), write("raw.jsonl", raw, "elsewhere"), epsilon=3.0)
    assert not audit.refuted
    [content] = [found for found in audit.findings if found.attack == "content"]
    assert content.details["standard_deviations"] > 10
    assert content.outcome == "clear"


def test_an_order_that_answers_were_shown_in_is_no_leak(raw_rows, write):
    """Seven of ten prefer what they read first; the file keeps the order that was shown."""
    generator = np.random.default_rng([31, 41, 59])
    raw, released = [], []
    for row, honest in zip(raw_rows, answered(raw_rows), strict=True):
        shown = generator.permutation([row["chosen"], row["rejected"]]).tolist()
        truth = int(generator.random() < 0.7)
        flip = honest["answer"] ^ label(honest, row)
        texts = {"prompt": row["prompt"], "first": shown[0], "second": shown[1]}
        raw.append({**texts, "label": truth})
        released.append({**texts, "answer": truth ^ flip})
    audit = audited(write("x.jsonl", released), write("raw.jsonl", raw, "elsewhere"), epsilon=0.5)
    assert not audit.refuted


def snapshot(folder):
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            None if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in sorted(folder.rglob("*"))
    }


def test_nothing_is_written(privatized, tmp_path):
    path, raw = privatized()
    before = snapshot(tmp_path)
    assert len(before) > 5
    audited(path, raw)
    audited(path)
    assert snapshot(tmp_path) == before


Z = {"prompt": "secret", "a1": "secret-a", "a2": "secret-b", "z": 1}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"unit": "record"}, "unit must be one of 'label', 'person'"),
        ({"level": 1.0}, "level"),
        ({"covariates": ["topic"]}, "covariates"),
        ({"covariates": "topic"}, "covariates"),
    ],
)
def test_settings_that_cannot_be_audited(write, settings, message):
    with pytest.raises(UsageError, match=message) as caught:
        audited(write("x.jsonl", [Z]), **settings)
    assert "secret" not in str(caught.value)


def test_one_row_is_too_little_to_tell_anything(write):
    path, raw = write("x.jsonl", [Z]), write(
        "raw.jsonl", [{"prompt": "secret", "chosen": "secret-a", "rejected": "secret-b"}], "there"
    )  # fmt: skip
    for given in (None, raw):
        audit = audited(path, given)
        assert not audit.refuted
        assert "secret" not in json.dumps(audit.to_dict(), allow_nan=False)


def test_progress_is_told(write, raw_rows):
    calls = []
    rows = answered(raw_rows)
    audited(write("x.jsonl", rows), progress=lambda done, total: calls.append((done, total)))
    assert calls
    assert all(0 <= done <= total for done, total in calls)


HOSTILE = {
    "huge epsilon": '{"epsilon": 1%s}' % ("0" * 400),
    "caveats": '{"format": "sordino.manifest", "caveats": [[1], {}, "simulated"]}',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_manifest(write, text):
    path = write("x.jsonl", [Z])
    path.with_name("x.manifest.json").write_text(text)
    audit = audited(path)
    assert not audit.refuted
    json.dumps(audit.to_dict(), allow_nan=False)
