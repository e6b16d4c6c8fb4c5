"""The pages on clipped gradients say what was measured, and it is so still."""

import json
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import _trap_hooks as hooks
import clipping_traps as traps
import torch

pytestmark = pytest.mark.filterwarnings("ignore")  # of those who are measured
ROOT = Path(__file__).resolve().parents[2]
SAME = {"rel": 0.05}  # another processor rounds otherwise


@pytest.fixture(scope="module")
def measured():
    """Return what the benchmark recorded."""
    stored = ROOT / "benchmarks" / "results" / "clipping_traps.json"
    return json.loads(stored.read_text(encoding="utf-8"))


def page(name):
    return (ROOT / "docs" / "traps" / f"{name}.md").read_text(encoding="utf-8")


def short(value):
    """Return a number below one as the pages write it."""
    return f"{value:.2f}".removeprefix("0")


def close(found, stored):
    """Return whether all numbers agree, and all that is none is equal."""
    if isinstance(stored, dict):
        return set(found) == set(stored) and all(close(found[key], stored[key]) for key in stored)
    return found == (pytest.approx(stored, **SAME) if isinstance(stored, float) else stored)


@pytest.mark.parametrize("trained", ["all weights", "adapters"])
def test_a_pair_of_two_rows_moves_the_sum_by_more_than_the_bound(measured, trained):
    stored = measured["hooks"]["rows"][trained]
    found = hooks.row_clipping(trained)
    assert close(found, stored)
    assert found["largest"] > 1.5
    cells = f"| {stored['median']:.2f} C | {stored['largest']:.2f} C |"
    assert f"| {trained} {cells}" in page("rows-clipped-one-by-one")
    assert f"{hooks.TEXTS} texts of {hooks.LENGTH} tokens" in page("rows-clipped-one-by-one")


@pytest.mark.parametrize(("name", "tied"), [("tied weights", True), ("a head of its own", False)])
def test_hooks_do_not_see_the_head_of_a_policy(measured, name, tied):
    stored = measured["hooks"]["fused_head"][name]
    assert close(hooks.fused_head(tied=tied), stored)
    missing = f"`{stored['without'][0]}`" if stored["without"] else "nothing"
    cells = f"| {short(stored['error'])} | {short(stored['norm_seen'])} | {missing} |"
    assert f"| {name} {cells}" in page("fused-head")
    over = 1 / measured["hooks"]["fused_head"]["tied weights"]["norm_seen"]
    assert f"adds {over:.2f} times the bound" in page("fused-head")


def test_hooks_lose_layers_that_recompute_positions_and_late_adapters(measured):
    stored, text = measured["hooks"], page("gradient-checkpointing")
    for reentrant in (False, True):
        name = f"use_reentrant={reentrant}"
        found = hooks.recomputed(reentrant=reentrant)
        assert found == stored["recomputed"][name]
        cell = f"nothing of {found['without']} of {found['parameters']} parameters"
        assert f"| `gradient_checkpointing`, `{name}` | {cell} |" in text
    found = hooks.positions()
    assert found == stored["positions"]
    assert f"| {found['seen']} gradient for {found['rows']} rows |" in text
    assert hooks.late_adapters() == stored["late_adapters"]
    assert f'an error: "{stored["late_adapters"]}"' in text


@pytest.mark.deep
def test_half_the_noise_spends_what_the_page_says(measured):
    for claimed, found in measured["claims"]["rows"].items():
        assert f"| {claimed} | {found['real']} |" in page("rows-clipped-one-by-one")
    multiplier = measured["claims"]["rows"]["1"]["noise_multiplier"]
    assert traps.spent(multiplier) == pytest.approx(1, rel=1e-3)
    assert traps.spent(multiplier / 2) == pytest.approx(12.4, abs=0.05)


def test_shuffled_batches_spend_what_the_page_says(measured):
    steps = -(-traps.UNITS // traps.BATCH)
    for claimed, found in measured["claims"]["shuffled"].items():
        multiplier = found["noise_multiplier"]
        assert traps.shuffled_epsilon(multiplier, steps) == pytest.approx(found["real"], abs=0.05)
        assert f"| {claimed} | {multiplier:.3f} | {found['real']} |" in page("shuffled-batches")


def test_shuffled_sums_are_told_apart_as_often_as_the_bound_counts():
    """Draws of one epoch of 20 batches at noise 1, against the two exact chances.

    False alarm: four standard errors of each share, below 2e-4, seeded. Power: a share that is off
    by .02 is caught in more than .99 of all seeds.
    """
    import numpy as np
    from scipy.stats import norm

    rng, draws, steps, threshold = np.random.default_rng(0), 20_000, 20, 2.5
    for shift in (1, 2):
        sums = rng.normal(size=(draws, steps))
        sums[:, 0] += shift
        found = float((sums.max(1) > threshold).mean())
        expected = 1 - norm.cdf(threshold - shift) * norm.cdf(threshold) ** (steps - 1)
        assert abs(found - expected) < 4 * (expected * (1 - expected) / draws) ** 0.5


def test_a_divisor_of_the_data_is_read_off(measured):
    stored = measured["claims"]["divisor"]
    assert traps.divisor_read_off() == stored
    assert f"| 1 | {stored['told']:.3f} |" in page("batch-size-from-the-data")
    assert f"model of {stored['weights']:,} weights" in page("batch-size-from-the-data")


@pytest.mark.parametrize(("records", "divisor"), [(1279, 31), (1280, 32)])
def test_opacus_divides_by_the_number_of_records(records, divisor):
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    model = torch.nn.Linear(2, 1)
    _, optimizer, _ = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(TensorDataset(torch.zeros(records, 2)), batch_size=32),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    assert optimizer.expected_batch_size == divisor
    text = page("batch-size-from-the-data")
    assert f"{divisor} for {records:,}" in text
