"""One wording for each argument error: the name, the value, and what is permitted."""

import math

import numpy as np
import pytest

from sordino import _validate
from sordino.errors import DataError, UsageError

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
