"""Features are ranked by what they really move, and named as a reader would call them."""

import numpy as np
import pytest
import scipy.sparse

from sordino.errors import DataError, UsageError
from sordino.preferences.features import SIGNALS, FunctionFeatures, HashedText
from sordino.reporting.result import decisive_features, feature_names, feature_spread


def test_rows_are_sorted_by_weight_times_spread_and_not_by_weight():
    rows = decisive_features(
        np.array([10.0, -2.0, 0.5, 0.0]),
        spread=np.array([0.01, 0.5, 1.0, 9.0]),
        names=list("abcd"),
    )
    assert [row["name"] for row in rows] == ["b", "c", "a"]  # d has no effect at all
    assert [row["effect"] for row in rows] == pytest.approx([-1.0, 0.5, 0.1])
    assert [row["weight"] for row in rows] == [-2.0, 0.5, 10.0]
    # Intervals of ± 1.96 standard errors held 3 to 83 % of the time with 28 features.
    assert all(set(row) == {"name", "weight", "effect"} for row in rows)


def test_most_bounds_the_rows():
    weights = np.arange(1.0, 31.0)
    rows = decisive_features(weights, spread=np.ones(30), names=[str(k) for k in range(30)])
    assert len(rows) == 10
    assert rows[0]["name"] == "29"
    assert len(decisive_features(weights, spread=np.ones(30), names=["x"] * 30, most=2)) == 2


def test_equal_effects_keep_the_order_of_their_columns():
    rows = decisive_features(np.array([1.0, -1.0, 1.0]), spread=np.ones(3), names=list("abc"))
    assert [row["name"] for row in rows] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("weights", "changed", "error"),
    [
        ([1.0, np.nan], {}, DataError),
        ([1.0, 2.0], {"spread": np.ones(3)}, DataError),
        ([1.0, 2.0], {"names": ["a"]}, DataError),
        ([1.0, 2.0], {"spread": np.array([1.0, np.inf])}, DataError),
        ([1.0, 2.0], {"most": 0}, UsageError),
    ],
)
def test_what_does_not_fit_is_refused(weights, changed, error):
    with pytest.raises(error):
        decisive_features(
            np.array(weights), **{"spread": np.ones(2), "names": ["a", "b"], **changed}
        )


def test_the_spread_ignores_which_answer_stands_first_and_how_rows_are_stored():
    rows = np.array([[1.0, 0.0, 2.0], [-3.0, 0.0, 2.0]])
    expected = np.sqrt([5.0, 0.0, 4.0])
    assert feature_spread(rows) == pytest.approx(expected)
    assert feature_spread(-rows) == pytest.approx(expected)
    assert feature_spread(scipy.sparse.csr_array(rows)) == pytest.approx(expected)


@pytest.mark.parametrize("dimension", [512, 57, 56, 10, 2, 1])
def test_named_columns_are_those_where_the_signals_sit(dimension):
    # Without any weight on words, only the signals leave a trace.
    features = HashedText(dimension=dimension, word_norm=0.0)
    texts = ["", "Sorry, I cannot; maybe? " * 9, "1. a\n2. b!\n```x``` http (c): yes", "No, you."]
    used = np.flatnonzero(np.abs(features.transform(texts, texts).toarray()).sum(axis=0))
    names = feature_names(features, dimension)
    assert len(names) == dimension
    signals = [place for place, name in enumerate(names) if name in SIGNALS]
    assert set(used) <= set(signals)
    assert signals == list(range(min(len(SIGNALS), dimension)))
    halved = HashedText(dimension=dimension)  # with words, they get half of the columns
    assert halved.signals == min(len(SIGNALS), dimension // 2)
    for place in range(len(signals), dimension):
        assert names[place] == f"word group {place}"


def test_a_signal_stands_where_its_name_says():
    features = HashedText(dimension=512, word_norm=0.0)
    rows = features.transform(["?", "?"], ["It is so.", "It is so?"]).toarray()
    changed = {
        name
        for name, gap in zip(feature_names(features, 512), rows[1] - rows[0], strict=True)
        if abs(gap) > 0.05
    }
    assert changed == {"share of questions", "questions only", "ends with a question"}


def test_other_features_are_called_by_their_place_or_their_own_names():
    own = FunctionFeatures(lambda _, answers: [[1.0] * 2 for _ in answers], dimension=2, name="own")
    assert feature_names(own, 2) == feature_names(None, 2) == ["feature 0", "feature 1"]

    class Named:
        names = ("short", "polite")

    assert feature_names(Named(), 2) == ["short", "polite"]
    assert feature_names(Named(), 3) == ["feature 0", "feature 1", "feature 2"]
