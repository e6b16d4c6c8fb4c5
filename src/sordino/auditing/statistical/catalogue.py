"""Mechanisms by name: what a command line can audit, the library's own and anybody else's."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from sordino import _validate
from sordino.errors import UsageError
from sordino.mechanisms.base import Mechanism
from sordino.mechanisms.gaussian import GaussianMechanism
from sordino.mechanisms.gibbs import ExponentialMechanism
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.privacy.guarantee import NeighboringRelation

from .games import explained_stranger

_MEMBERS: Final = ("event", "sensitivity", "guarantee", "release", "worst_case")
_BOUND: Final = 1.0  # of a value; only its ratio to the noise matters
NAMES: Final = ("randomized-response", "gaussian", "exponential")
"""What :func:`build_mechanism` knows beside ``module:attribute``."""


def build_mechanism(
    name: str, *, epsilon: float | None, delta: float, neighbors: NeighboringRelation
) -> Mechanism:
    """Return a mechanism by name, as noisy as a promise needs, or somebody's own."""
    if ":" in name:
        found = _guarded(name, lambda: _attribute(name))
        if callable(found) and (isinstance(found, type) or _guarded(name, lambda: _lacking(found))):
            found = _guarded(name, found)
        lacking = _guarded(name, lambda: _lacking(found))
        if lacking:
            raise UsageError(
                f"{name!r} is no mechanism: {type(found).__name__} lacks {', '.join(lacking)}. "
                "Give it what sordino.mechanisms.base.Mechanism lists."
            )
        mechanism: Mechanism = found
        return mechanism
    if name not in NAMES:
        raise UsageError(
            f"No mechanism is called {name!r}. Choose {', '.join(NAMES)}, or give "
            "module:attribute for one of your own."
        )
    epsilon = _validate.positive("epsilon", epsilon)
    delta = _validate.failure_probability("delta", delta)
    if name == "gaussian":  # noise on one number in [−1, 1]
        if delta == 0:
            raise UsageError("delta must be above 0 for gaussian: its noise keeps no pure promise.")
        return GaussianMechanism.calibrated(epsilon, delta=delta, bound=_BOUND, neighbors=neighbors)
    if name == "exponential":  # a draw of one of two actions
        return ExponentialMechanism.calibrated(
            epsilon, delta=delta, bound=_BOUND, reference=(0.5, 0.5), neighbors=neighbors
        )
    if delta > 0:  # a coin needs none, and would ignore one
        raise UsageError(f"delta must be 0 for randomized-response, which is pure, got {delta!r}.")
    coin = RandomizedResponse(epsilon)
    coin.sensitivity(neighbors)
    return coin


def _lacking(found: object) -> list[str]:
    """Return what the protocol asks for and an object has not."""
    return [member for member in _MEMBERS if not hasattr(found, member)]


def _attribute(name: str) -> object:
    module_name, _, path = name.partition(":")
    parts = path.split(".")
    if not all(part.isidentifier() for part in [*module_name.split("."), *parts]):
        raise UsageError(f"A mechanism of your own is named module:attribute, got {name!r}.")
    here = str(Path.cwd())
    if here not in sys.path:
        # at the end, so that no file here hides an installed package; processes inherit it
        sys.path.append(here)
    found: object = import_module(module_name)
    for part in parts:
        if not hasattr(found, part):
            raise UsageError(f"{name!r} was not found: {module_name} has no {path}.")
        found = getattr(found, part)
    return found


def _guarded(name: str, made: Callable[[], Any]) -> Any:
    """Return what somebody's code makes; what it raises names the kind, and is chained."""
    shown = repr(name).replace("{", "{{").replace("}", "}}")
    with explained_stranger(
        f"{shown} could not be loaded ({{}}): nothing was audited. Import it in Python to see why."
    ):
        return made()
