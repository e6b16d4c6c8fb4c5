"""Curves are estimates side by side."""

import pytest

from sordino import UsageError, estimate
from sordino.rewards.forecast import growth_curve, utility_curve

WORLD = {"dimension": 9, "accuracy": 0.8}


@pytest.mark.parametrize("name", ["labels", "label-estimate", "record-estimate"])
def test_rows_are_those_of_estimate(name):
    rows = utility_curve(700, epsilons=[0.7, 2.0], noise=name, delta=1e-5, **WORLD)
    for row, epsilon in zip(rows, [0.7, 2.0], strict=True):
        way = estimate(700, epsilon=epsilon, delta=1e-5, **WORLD).ways[name]
        expected = {
            "epsilon": epsilon,
            "accuracy": way.accuracy,
            "standard_error": way.standard_error,
            "effective_judgments": way.effective_judgments,
        }
        if name == "labels":
            expected["flip_probability"] = way.flip_probability
        assert row == expected


def test_growth_is_that_of_estimate():
    found = growth_curve([1, 50, 7000], epsilon=0.7, delta=1e-5, **WORLD)
    assert list(found) == ["non-private", "labels", "label-estimate", "record-estimate"]
    for k, n in enumerate((1, 50, 7000)):
        forecast = estimate(n, epsilon=0.7, delta=1e-5, **WORLD)
        assert found["non-private"][k] == forecast.non_private.accuracy
        for name, way in forecast.ways.items():
            assert found[name][k] == way.accuracy
    assert list(growth_curve([5], epsilon=0.7, delta=0.0, **WORLD)) == ["non-private", "labels"]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"noise": "central"}, "noise"),
        ({"noise": "label-estimate", "delta": 0.0}, "delta"),
        ({"noise": "record-estimate", "delta": 0.0}, "delta"),
        ({"noise": "record-estimate", "delta": 1e-100}, "delta"),
        ({"noise": "label-estimate", "epsilons": [0.0]}, "epsilon"),
    ],
)
def test_settings_out_of_range(change, word):
    with pytest.raises(UsageError, match=word):
        utility_curve(100, **({"epsilons": [1.0], "dimension": 4} | change))


@pytest.mark.parametrize("change", [{"epsilon": 0.0}, {"epsilon": 1e-9}, {"delta": 1.0}])
def test_growth_out_of_range(change):
    with pytest.raises(UsageError):
        growth_curve([1], **({"epsilon": 1.0, "dimension": 4} | change))
    with pytest.raises(UsageError, match="counts"):
        growth_curve([0], epsilon=1.0, dimension=4)
