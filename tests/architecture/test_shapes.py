"""Shapes and dtypes in annotations are true of what really flows through the library."""

from __future__ import annotations

import subprocess
import sys

import pytest

FLOW = """
import sys, tempfile, types
from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook
lenient = types.ModuleType("lenient")  # an int is a float, as type checkers have it
lenient.check = beartype(conf=BeartypeConf(is_pep484_tower=True))
sys.modules["lenient"] = lenient
with install_import_hook("sordino", "lenient.check"):
    import sordino
    from sordino.environments.annotators import simulate_pairs
    from sordino.rewards.evidence import Design
    from sordino.rewards.metrics import cross_fit
    from sordino.rewards.estimation import fit_reward
    from sordino.reporting import result
    rows, truth = simulate_pairs(200, seed=1, people=40)
    pairs = sordino.read_pairs(list(rows))
    folder = tempfile.mkdtemp()
    budget = sordino.Guarantee(4.0, delta=0.0, unit="label", neighbors=sordino.REPLACE_ONE,
                               trust="central")
    ledger = sordino.Ledger.open(folder + "/spend.db", data="x", budget=budget)
    answers = sordino.privatize(pairs, sordino.RandomizedResponse(4.0), ledger=ledger)
    features = sordino.HashedText(dimension=64)
    design = Design.of(answers, features)
    reward = fit_reward(answers, features=features)
    held_out = cross_fit(design)
    policy = sordino.gibbs_policy(reward, temperature=0.5)
    policy.sample(["p"], [["a", "b"]])
    policy.kl(["p"], [["a", "b"]])
    policy.expected_reward(["p"], [["a", "b"]])
    few = sordino.FiniteRewards({"flat": lambda p, a: [0.5] * len(a)}).fit(answers)
    for make in (sordino.pessimistic_policy, sordino.optimistic_policy):
        for known in (reward, few):
            distrust = make(known, temperature=0.5)
            distrust.bonus(["p"], [["a", "b"]])
            distrust.coverage(["p"], [["a", "b"]])
    reward.predict_proba(["p"], ["a"], ["b"])
    result.measure_reward(held_out)
    result.measure_policy(held_out, 0.5)
    result.measure_public(reward, pairs, 0.5)
    result.measure_truth(policy, pairs, truth)
    result.calibration_bins(held_out.differences, held_out.answers, 0.25)
    given = sordino.Pairs.from_features([[1.0, 0.5]] * 30 + [[0.1, 2.0]] * 30, [0, 1] * 30)
    account = sordino.Ledger.open(folder + "/two.db", data="x", budget=budget)
    fit_reward(sordino.privatize(given, sordino.RandomizedResponse(2.0), ledger=account))
    sordino.write_report(folder + "/a.html", sordino.certify(policy, ledger), ledger=ledger)
    print(sordino.certify(reward, ledger))
"""


@pytest.mark.deep
def test_annotations_hold_in_the_main_flow():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FLOW], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("reward: epsilon=4")
