"""How far one more record moves the penalty of an action that was seen a number of times."""

from __future__ import annotations

import math

from sordino import _validate

__all__ = ["penalty_step"]


def penalty_step(size: float, *, step: float = 1.0) -> float:
    """Return 1/√size − 1/√(size + step), without cancellation.

    What a pessimistic score loses is β/√(count + shrinkage), or β times a norm in the inverse of
    a second moment of least eigenvalue ``size`` that one record raises by at most ``step``.

    Args:
        size: What was seen before, > 0.
        step: What one record adds, > 0.

    Raises:
        UsageError: An argument is not positive and finite.

    Source:
        docs/intrinsic.md, "Setting and lemmas".

    Example:
        >>> round(penalty_step(1.0), 6)
        0.292893
    """
    size, step = _validate.positive("size", size), _validate.positive("step", step)
    before, after = math.sqrt(size), math.sqrt(size + step)
    # (after − before)/(before·after), with after − before = step/(before + after)
    return step / (before + after) / before / after
