"""One wording for each argument error: the name, the value, and what is permitted."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

import sordino
from sordino import _validate
from sordino.errors import DataError, UsageError

SIZES = {"d": 3, "feature_bound": 1.0, "delta": 1e-6}
NOT_NUMBERS = ["1", None, True, [1], math.nan, np.array([1.0]), 1j]


@pytest.mark.parametrize("check", [_validate.number, _validate.positive, _validate.non_negative])
@pytest.mark.parametrize("value", NOT_NUMBERS, ids=repr)
def test_not_a_number(check, value):
    with pytest.raises(UsageError, match="size must be a number"):
        check("size", value)


@pytest.mark.parametrize("value", [0, -1, math.inf, -math.inf])
def test_not_positive(value):
    with pytest.raises(UsageError, match="size must be finite and greater than 0"):
        _validate.positive("size", value)


def test_non_negative():
    assert _validate.non_negative("size", 0) == 0.0
    assert _validate.non_negative("size", math.inf) == math.inf
    with pytest.raises(UsageError, match="at least 0"):
        _validate.non_negative("size", -1e-300)


def test_failure_probability():
    assert _validate.failure_probability("delta", 0) == 0.0
    for value, zero in ((1, True), (-0.1, True), (0, False), (math.inf, True)):
        with pytest.raises(UsageError, match="delta must be in"):
            _validate.failure_probability("delta", value, zero=zero)


@pytest.mark.parametrize("value", [0, -1, 1.0, "1", None, True, math.nan])
def test_not_a_whole_number(value):
    with pytest.raises(UsageError, match="whole number of at least 1"):
        _validate.integer("n", value, at_least=1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: sordino.LabelGaussian.for_sizes(1.0, n=1.5, **SIZES), "n must be a whole number"),
        (lambda: sordino.LabelGaussian.for_sizes(1.0, n="9", **SIZES), "n must be int, got str"),
        (lambda: sordino.find_chunks(5), "sources must be str or Path or Iterable"),
        (lambda: sordino.find_chunks("a.jsonl", privatized="no"), "privatized must be bool"),
        (lambda: sordino.find_chunks("a.jsonl", columns=["a"]), "columns must be Mapping"),
        (lambda: sordino.read_pairs([], person_field=1), "person_field must be str or None"),
        (lambda: sordino.read_trajectories([], horizon="2"), "horizon must be int or None"),
        (lambda: sordino.read_bandit_logs([], arm=1), "arm must be str"),
        (lambda: sordino.certify(None, "spend.db"), "ledger must be Ledger, got str"),
        (lambda: sordino.write_report(None, None), "path must be str or Path, got NoneType"),
        (lambda: sordino.write_report("a.html", "a"), "certificate must be Certificate, got str"),
        (lambda: sordino.plan(None, None, gap="x"), "gap must be float, got str"),
        (lambda: sordino.RewardModel.load(None), "path must be str or Path"),
        (lambda: sordino.simulate_pairs(3, seed=-1), "seed must be a whole number"),
    ],
)
def test_an_argument_of_another_type_is_refused_at_the_entrance(call, words):
    with pytest.raises(UsageError, match=words) as caught:
        call()
    assert caught.traceback[-1].frame.code.path.name == "_validate.py"


def test_arrays_and_whole_numbers_and_names_of_arguments_are_taken_as_annotations_mean_them():
    @_validate.typed
    def taken(rows: Sequence[float], size: float = 1.0, *, name: str | None = None) -> list[object]:
        return [*rows, size, name]

    assert taken(np.ones(1), 2, name="a") == [1.0, 2, "a"]
    assert taken([True], np.float32(0.5)) == [True, 0.5, None]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'rows'"):
        taken()


def test_one_of():
    assert _validate.one_of("unit", "label", ("label", "person")) == "label"
    with pytest.raises(UsageError, match="unit must be one of 'label', 'person'; got 'soul'"):
        _validate.one_of("unit", "soul", iter(("label", "person")))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_arrays_name_the_row_and_never_the_value(bad):
    with pytest.raises(DataError, match="row 1") as caught:
        _validate.finite_array("features", [[4.25, 4.25], [4.25, bad]], ndim=2)
    assert "4.25" not in str(caught.value)


def test_arrays():
    found = _validate.finite_array("features", [[1, 2]], ndim=2)
    assert (found.dtype, found.shape) == (np.float64, (1, 2))
    assert _validate.finite_array("features", np.zeros((0, 2)), ndim=2).shape == (0, 2)
    for value, word in (([1], "dimension"), ([["a"]], "dtype"), ([[None]], "dtype")):
        with pytest.raises(DataError, match=word):
            _validate.finite_array("features", value, ndim=2)
