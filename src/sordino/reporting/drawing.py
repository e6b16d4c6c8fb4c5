"""How figures are drawn: where a number stands, which numbers are marked, and what fills templates.

Every figure is SVG made by a template; there is no other way of drawing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING

from .wording import percent, plain

if TYPE_CHECKING:
    from jinja2 import Environment

_TICKS = 4  # steps between marks, about
_STEPS = (1.0, 2.0, 5.0, 10.0)
_POWERS = 7  # of ten that are marked, at most


@dataclass(frozen=True)
class Scale:
    """Where a number stands on a line; what is outside stands at the nearer end."""

    low: float
    high: float
    start: float = 0.0
    end: float = 1.0
    bend: Callable[[float], float] = float  # what is drawn in equal steps, such as logarithms
    step: float = math.inf  # between two marks

    @classmethod
    def rounded(
        cls, values: Sequence[float], start: float, end: float, *, least: float = 0.0
    ) -> Scale:
        """Return a scale of equal steps, from one mark to another; marks are not below a step."""
        low, high = min(values), max(values)
        step = max(least, round_step((high - low) or 1.0))
        low, high = math.floor(low / step) * step, math.ceil(high / step) * step
        return cls(low, high + (step if high == low else 0.0), start, end, step=step)

    @property
    def marks(self) -> list[float]:
        """Return the multiples of a step."""
        first, last = math.ceil(self.low / self.step), math.floor(self.high / self.step + 1e-9)
        return [number * self.step for number in range(first, last + 1)]

    def at(self, value: float) -> float:
        """Return where a number stands."""
        inside = min(self.high, max(self.low, value))
        first, here, last = map(self.bend, (self.low, inside, self.high))
        return self.start + (self.end - self.start) * (here - first) / (last - first)


def round_step(span: float) -> float:
    """Return the least round number of which a few reach a span."""
    power = 10.0 ** math.floor(math.log10(span / _TICKS))
    return next(step * power for step in _STEPS if step * power * _TICKS >= span * 0.999)


def powers_of_ten(low: float, high: float) -> list[float]:
    """Return the marks of a logarithmic axis: powers of ten, and three times if they are few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, math.ceil((last - first) / _POWERS))
    found = [
        part * 10.0**power
        for power in range(first, last + 1, every)
        for part in ((1.0, 3.0) if every == 1 else (1.0,))
    ]
    return [mark for mark in found if low * 0.999 <= mark <= high * 1.001]


@cache
def environment() -> Environment:
    """Return the environment that renders pages and figures: it escapes, and knows no default."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415

    made = Environment(
        loader=PackageLoader("sordino.reporting", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "share": share,
        "percent": percent,
        "plain": plain,
        "place": lambda value: f"{value:.1f}",
        "complement": lambda text: f"{100 - Decimal(text.rstrip('%'))}%",
    }
    return made


def share(value: float) -> str:
    """Return a share of the width, moved into [0, 1], as an SVG coordinate."""
    return f"{100 * min(1.0, max(0.0, value)):.2f}%"
