"""A bound never looks smaller than it is; what is left never looks larger."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.errors import DataError
from sordino.reporting.wording import at_least, at_most, belief_percent, percent, plain, real

_DIGITS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹−", "-0123456789-")


def _read(text: str) -> float:
    mantissa, _, power = text.replace(",", "").partition(" × 10")
    return float(mantissa.translate(_DIGITS) + ("e" + power.translate(_DIGITS) if power else ""))


@given(st.floats(1e-300, 1e300))
def test_a_bound_is_rounded_up_and_a_remainder_down_by_less_than_a_thousandth(value):
    assert value <= _read(at_least(value)) <= value * 1.0011
    assert value * 0.9989 <= _read(at_most(value)) <= value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.999999, "2"),
        (2.0, "2"),
        (2.0000001, "2.001"),
        (0.1, "0.1"),
        (1e-6, "1 × 10⁻⁶"),
        (1.23456e-9, "1.235 × 10⁻⁹"),
        (12.5, "12.5"),
        (123456.0, "123,500"),
        (0.0, "0"),
        (math.inf, "∞"),
    ],
)
def test_bounds_read_humanely(value, text):
    assert at_least(value) == text


def test_what_is_left_is_rounded_down():
    assert (at_most(1.999999), at_most(0.0), at_most(1.0)) == ("1.999", "0", "1")


def test_measured_numbers_are_rounded_to_the_nearest():
    assert (plain(0.97), plain(-0.01234), plain(1e-6)) == ("0.97", "−0.0123", "1 × 10⁻⁶")
    assert (percent(0.6449), percent(-0.015)) == ("64.5%", "−1.5%")


@given(st.floats(0.5, 1.0))
def test_a_belief_is_rounded_up_and_reaches_100_only_at_the_end(value):
    shown = float(belief_percent(value).rstrip("%"))
    assert shown >= 100 * value * (1 - 1e-15)
    assert shown < 100 or value > 1 - 1.1e-8


def test_missing_is_none_and_text_is_refused_without_being_quoted():
    assert real("x", None) is None
    assert real("x", math.nan) is None
    assert real("x", 3) == 3.0
    for wrong in ("secret", True, [1]):
        with pytest.raises(DataError, match="x must be a number or null") as caught:
            real("x", wrong)
        assert "secret" not in str(caught.value)
