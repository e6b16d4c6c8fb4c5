"""Honest files are not refuted: 45 that the library wrote, with and without the raw file.

False alarms: every audit refutes a true claim with probability at most 1e-4 here (``level``), so
that one of the 65 does with probability at most .7 %, and that with the fixed seeds below none
does is checked once and for all. In fact the tests of an audit are far from using up the level:
most are exact tails under the worst rate that the claim permits, or bounds on them.

Power: an audit that refutes one honest file in ten with its raw file passes 45 of them with
probability below .01. Of 20 files whose coin is that of 1.5 ε (ε = 1, 2,100 rows), 19
must be refuted; the flip-rate interval does so with probability above .999 each.
"""

import gzip
import json
from functools import partial

import numpy as np
import pytest
from tests.privatized import privatize_file

import sordino
from sordino import _random
from sordino.auditing.releases import leaks as releases
from sordino.auditing.releases.leaks import audit_release
from sordino.auditing.releases.recipes import coin_recipes
from sordino.auditing.releases.seed_attack import attack_coins

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0)
LEVEL = 1e-4
SEEDS = range(50)


class FixedEntropy:
    """One long stream of words from a seed that no audit tries."""

    randomness = "system"

    def __init__(self, *key):
        self.generator = np.random.Generator(np.random.Philox([2**40 + 12_345, *key]))

    def words(self, n):
        return self.generator.integers(0, 2**64, size=n, dtype=np.uint64)


@pytest.fixture
def make(tmp_path, shared_data, monkeypatch):
    """A maker of (released, raw): a sample of real pairs, by coins of a fixed generator."""
    with gzip.open(shared_data / "hh_helpful_a.jsonl.gz", "rt") as file:
        rows = file.read().splitlines()

    def make(epsilon, number, *, size=None, persons=0):
        entropy = FixedEntropy(round(10 * epsilon), number)
        monkeypatch.setattr(_random, "entropy", lambda _: entropy)
        size = int(entropy.generator.integers(300, len(rows) + 1)) if size is None else size
        chosen = entropy.generator.permutation(len(rows))[:size]
        folder = tmp_path / f"{epsilon}-{number}"
        for name in ("raw", "out"):
            (folder / name).mkdir(parents=True)
        raw, out = folder / "raw" / "raw.jsonl", folder / "out" / "p.jsonl.gz"
        lines = [json.loads(rows[index]) for index in chosen]
        if persons:
            lines = [{**row, "person": f"p{i % persons}"} for i, row in enumerate(lines)]
        raw.write_text("".join(json.dumps(row) + "\n" for row in lines))
        budget = sordino.Guarantee(
            epsilon, delta=0.0, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
        )
        ledger = sordino.Ledger.open(folder / "spend.db", data="x", budget=budget)
        privatize_file(raw, out, sordino.RandomizedResponse(epsilon), ledger=ledger)
        return out, raw

    return make


@pytest.fixture
def common_coins(monkeypatch):
    """Try the most common coins only: the long search has a false-alarm rate of 1e-9."""
    core = [recipe for recipe in coin_recipes() if recipe.core]
    monkeypatch.setattr(releases, "attack_coins", partial(attack_coins, recipes=core))


def refuted(files, epsilon, *, alone=True):
    """Return what refutes a file, audited with its raw file, and without it where it is said."""
    out, raw = files
    terms = {"epsilon": epsilon, "unit": "label", "level": LEVEL, "seeds": SEEDS}
    audits = [audit_release(out, raw=raw, **terms)]
    assert audits[0].measured, "the flip rate was measured"
    if alone:
        audits.append(audit_release(out, **terms))
        claim = {found.outcome for found in audits[1].findings if found.attack == "claim"}
        assert claim == {"clear"}
    return [name for audit in audits for name in audit.refuted_by]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_an_honest_file_against_all_coins(make, epsilon):
    assert refuted(make(epsilon, 0), epsilon) == []


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.usefixtures("common_coins")
def test_eight_honest_files_against_common_coins(make, epsilon):
    found = [
        refuted(make(epsilon, number, persons=50 * (number % 3)), epsilon, alone=number < 7)
        for number in range(4, 12)
    ]
    assert found == [[]] * 8


@pytest.mark.usefixtures("common_coins")
def test_a_coin_of_another_epsilon_is_found(make):
    found = []
    for number in range(20):
        out, raw = make(1.5, 100 + number, size=2100)
        audit = audit_release(out, epsilon=1.0, unit="label", raw=raw, level=LEVEL, seeds=SEEDS)
        found.append(audit.refuted_by)
        assert audit.lower_bound > 1.0
    assert sum("flip-rate" in names for names in found) >= 19
    named = {name for names in found for name in names}
    assert all(name.endswith(("flips", "flip-rate")) for name in named)  # no coin is named


ROWS, RUNS, FALSE_ALARMS = 160, 150, 0.05


@pytest.mark.deep
def test_the_loss_that_would_have_been_found_is_found(tmp_path, monkeypatch):
    """What "not refuted" says: which loss would have been found, how often, at which false alarms.

    Rate of false alarms: .05 here, over all attacks together. Of 150 honest files at exactly the
    claim more than 22 are refuted with probability below 1e-5 (a sound audit refutes far fewer).
    Power: .95. Of 150 files whose coins are those of the loss that would have been found, fewer
    than 129 are refuted with probability below 1e-5; an audit that states the power of one attack
    at the level of all of them together refutes about 110.
    """
    core = [recipe for recipe in coin_recipes() if recipe.core][:1]
    monkeypatch.setattr(releases, "attack_coins", partial(attack_coins, recipes=core))
    texts = [(f"q{i}", f"{i} yes, then", f"{i} no, so") for i in range(ROWS)]
    generator = np.random.default_rng(77_001)
    truth = generator.integers(2, size=ROWS)
    for name in ("raw", "out"):
        (tmp_path / name).mkdir()
    raw, out = tmp_path / "raw" / "raw.jsonl", tmp_path / "out" / "out.jsonl"
    fields = ("prompt", "first", "second")
    rows = [dict(zip(fields, each, strict=True)) for each in texts]
    labeled = [row | {"label": int(one)} for row, one in zip(rows, truth, strict=True)]
    raw.write_text("".join(json.dumps(row) + "\n" for row in labeled))
    out.with_suffix(".manifest.json").write_text('{"epsilon": 1.0}')

    def audits(epsilon):
        for _ in range(RUNS):
            flips = generator.random(ROWS) < 1 / (1 + np.exp(epsilon))
            answers = (truth ^ flips).tolist()
            answered = [row | {"answer": one} for row, one in zip(rows, answers, strict=True)]
            out.write_text("".join(json.dumps(row) + "\n" for row in answered))
            yield audit_release(
                out, epsilon=1.0, unit="label", raw=raw, level=FALSE_ALARMS, seeds=range(1)
            )

    honest = list(audits(1.0))
    found = {audit.would_have_found for audit in honest}
    (detects,) = found  # public numbers decide it, no answer does
    assert (detects.attack, detects.power, detects.false_alarms) == ("flip-rate", 0.95, 0.05)
    assert sum(audit.refuted for audit in honest) <= 22
    assert {audit.verdict for audit in honest} <= {"refuted", "not refuted"}
    assert sum(audit.refuted for audit in audits(detects.loss)) >= 129
