from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import sordino
from sordino.rewards import candidates as module
from sordino.rewards.candidates import Candidates

FEATURES = sordino.HashedText(dimension=16)


def of(prompts, options, reference=None, features=None):
    return Candidates.of(prompts, options, reference=reference, features=features)


def test_texts_are_laid_out_one_after_the_other():
    options = of(["p", "q"], [["a", "b"], ["c"]], features=FEATURES)
    assert list(options.prompts) == ["p", "p", "q"]
    assert list(options.answers) == ["a", "b", "c"]
    assert options.starts.tolist() == [0, 2]
    assert options.reference.tolist() == [0.5, 0.5, 1.0]
    assert len(options) == 3
    first, second = options.split(np.arange(3.0))
    assert (first.tolist(), second.tolist()) == ([0, 1], [2])
    assert options.means(np.arange(3.0), options.reference).tolist() == [0.5, 2.0]


@settings(max_examples=80)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=8), st.integers(1, 60), st.integers(0, 2**32)
)
def test_stretches_cover_all_candidates_in_order(sizes, block, seed):
    generator = np.random.default_rng(seed)
    rows = [generator.normal(size=(size, 3)) for size in sizes]
    reference = [generator.dirichlet(np.ones(size)) + 1e-9 for size in sizes]
    options = of(None, rows, reference)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK", block)
        patch.setattr("sordino.rewards.pair_losses._BLOCK", block)
        parts = list(options.centered(None))
    np.testing.assert_array_equal(
        np.concatenate([np.arange(len(options))[here] for here, _, _ in parts]),
        np.arange(len(options)),
    )
    np.testing.assert_array_equal(np.concatenate([part for _, part, _ in parts]), options.given)
    wanted = [row - base @ row / base.sum() for row, base in zip(rows, reference, strict=True)]
    np.testing.assert_allclose(
        np.concatenate([centered for *_, centered in parts]), np.concatenate(wanted), atol=1e-12
    )
    largest = max(sizes) * 3
    assert all(part.size <= max(block, 3, largest) for _, part, _ in parts)


def test_errors_name_the_entry_and_quote_nothing():
    with pytest.raises(sordino.DataError, match="entry 1 is empty"):
        of(["SECRET", "b"], [["SECRET"], []], features=FEATURES)
    with pytest.raises(sordino.DataError, match="2 prompts, but 1"):
        of(["a", "b"], [["x"]], features=FEATURES)
    with pytest.raises(sordino.DataError, match="one probability for each"):
        of(["a"], [["x", "y"]], [[1.0]], FEATURES)
    with pytest.raises(sordino.DataError, match="entry 1 must be positive"):
        of(None, np.ones((2, 2, 1)), [[0.5, 0.5], [1.0, 0.0]])
    with pytest.raises(sordino.UsageError, match="give prompts"):
        of(None, [["x"]], features=FEATURES)
    with pytest.raises(sordino.UsageError, match="prompts=None"):
        of(["SECRET"], [np.ones((2, 2))])
    with pytest.raises(sordino.DataError, match=r"entry 0 must be numeric"):
        of(None, [["SECRET"]])


def test_one_text_is_no_list_of_letters():
    with pytest.raises(
        sordino.DataError, match="candidates: entry 1 must be a list, got str"
    ) as it:
        of(["p", "q"], [["a"], "SECRET"], features=FEATURES)
    assert "SECRET" not in str(it.value)
    with pytest.raises(sordino.DataError, match="prompts must be a list"):
        of("pq", [["a"], ["b"]], features=FEATURES)
    with pytest.raises(sordino.DataError, match="candidates: entry 0 must be a list, got NoneType"):
        of(["p"], [None], features=FEATURES)
    with pytest.raises(
        sordino.DataError, match="candidates: entry 0 must be a list, got csr_array"
    ):
        of(None, [csr_array(np.eye(2))])
    with pytest.raises(sordino.DataError, match="reference: entry 0 must be a list, got float"):
        of(["p"], [["a", "b"]], [0.5], FEATURES)
    assert list(of(["p"], [("a", "b")], [np.array([0.5, 0.5])], FEATURES).answers) == ["a", "b"]
