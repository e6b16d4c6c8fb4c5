"""Which cases of a grid run in `make test`; `make test-all` runs all of them."""

from collections.abc import Iterable

import pytest


def few(cases: Iterable, *kept: object, first: int = 0) -> list:
    """Return all cases, marked as deep but for the first so many and those named here."""
    return [
        case
        if at < first or any(case == one for one in kept)
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.deep)
        for at, case in enumerate(cases)
    ]
