"""What many tests need: budgets, ledgers, and private pairs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the tests themselves run side by side

import numpy as np
import pytest
from hypothesis import settings

import sordino

# The same examples in every run: what passed once passes again. HYPOTHESIS_PROFILE=explore draws
# new ones.
settings.register_profile("repeatable", derandomize=True)
settings.register_profile("explore")
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture
def budget() -> Callable[..., sordino.Guarantee]:
    """Return a maker of label budgets."""

    def make(epsilon: float = 2.0, *, trust: str = "central") -> sordino.Guarantee:
        return sordino.Guarantee(
            epsilon, delta=0.0, unit="label", neighbors=sordino.REPLACE_ONE, trust=trust
        )

    return make


@pytest.fixture(name="ledger")
def _ledger(open_ledger):
    """Return the same maker under its short name."""
    return open_ledger


@pytest.fixture
def open_ledger(tmp_path, budget) -> Callable[..., sordino.Ledger]:
    """Return a maker of ledgers, each in a folder of its own."""
    made = iter(range(1000))

    def make(epsilon: float = 2.0, *, trust: str = "central") -> sordino.Ledger:
        folder = tmp_path / f"ledger-{next(made)}"
        folder.mkdir()
        return sordino.Ledger.open(
            folder / "spend.db", data="test", budget=budget(epsilon, trust=trust)
        )

    return make


@pytest.fixture
def linear_world() -> Callable[..., tuple[sordino.Pairs, np.ndarray]]:
    """Return a maker of Bradley-Terry pairs with a known reward."""

    def make(n: int, d: int, *, size: float = 2.0, seed: int = 0):
        generator = np.random.default_rng(seed)
        theta = generator.normal(size=d)
        theta *= size / np.linalg.norm(theta)
        rows = generator.normal(size=(n, d))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        labels = generator.random(n) < 1 / (1 + np.exp(-rows @ theta))
        return sordino.Pairs.from_features(rows, labels.astype(int)), theta

    return make


@pytest.fixture
def shared_data() -> Path:
    """Return the folder of real data, or skip."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the folder of real data is not beside this checkout")
    return SHARED_DATA
