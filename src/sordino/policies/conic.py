"""The one way into the conic solver: settings, scaling of the cones, and what failure says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import clarabel
import numpy as np
from jaxtyping import Float
from scipy import sparse

from sordino.errors import ConvergenceError

from .worst_case import PlausibleRewards

Block: TypeAlias = tuple[Any, Float[np.ndarray, " _"], list[Any]]
"""Rows A, their bounds b, and the cones that b − Ax is in."""

SCALE_FREE = 1e-10  # feasibility and gap that the solver is asked for, in its own units
_GOOD = {"Solved", "AlmostSolved", "InsufficientProgress", "NumericalError", "MaxIterations"}


def solve_conic(
    cost: Float[np.ndarray, " x"],
    blocks: Sequence[Block],
    *,
    quadratic: Any | None = None,
    atol: float = SCALE_FREE,
) -> tuple[Float[np.ndarray, " x"], Float[np.ndarray, " z"]]:
    """Return the minimizer of a conic program, and the multipliers of its rows."""
    # Every caller certifies by itself what is returned, so an answer that the solver only calls
    # almost solved is passed on.
    # Source: docs/planning.md, "Two solvers": minimize costᵀx + xᵀPx/2 subject to b − Ax in a cone.
    matrix = sparse.csc_matrix(sparse.vstack([block for block, _, _ in blocks]))
    bounds = np.concatenate([bound for _, bound, _ in blocks])
    n = len(cost)
    squares = (
        sparse.csc_matrix((n, n)) if quadratic is None else sparse.triu(quadratic, format="csc")
    )
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1  # the same numbers on every machine
    settings.tol_feas = settings.tol_gap_abs = settings.tol_gap_rel = atol
    solver = clarabel.DefaultSolver(
        squares, cost, matrix, bounds, [cone for *_, group in blocks for cone in group], settings
    )
    found = solver.solve()
    x, z = np.array(found.x), np.array(found.z)
    if str(found.status) not in _GOOD or not (np.isfinite(x).all() and np.isfinite(z).all()):
        raise ConvergenceError(
            f"The conic solver stopped with {found.status}. No policy was returned. Bring features "
            "and weights to a common scale of about 1."
        )
    return x, z


def refuse_gap(upper: float, value: float, gap: float) -> None:
    """Refuse a solution that its own certificate does not show to be within the gap."""
    if upper - value > gap:
        raise ConvergenceError(
            f"gap={gap!r} could not be certified: {upper - value:.3g} was reached. No policy was "
            "returned. Allow a larger gap, or solver='frank-wolfe', or bring features and weights "
            "to a common scale of about 1."
        )


def reach_of(rewards: PlausibleRewards) -> Float[np.ndarray, " d"]:
    """Return how far the set reaches along each axis at most: units in which it has size 1."""
    # Source: docs/planning.md, "Two solvers".
    with np.errstate(divide="ignore"):
        widths = rewards.radius / np.sqrt(rewards.curvatures)
    if rewards.ball is None:  # what nothing bounds is no direction to search
        return np.where(np.isfinite(widths), widths, 0.0)
    return np.minimum(np.where(rewards.curvatures > 0, widths, np.inf), 2 * rewards.ball)


def second_order_rows(rewards: PlausibleRewards, columns: int) -> list[Block]:
    """Return the rows that keep θ = center + reach · z in the set, z the first d variables."""
    # Source: docs/planning.md, "Two solvers".
    reach, d = reach_of(rewards), len(rewards.center)
    found = []
    if rewards.radius > 0:
        shape = np.sqrt(rewards.curvatures) * reach / rewards.radius
        found.append(_cone(shape, np.zeros(d), columns))
    if rewards.ball is not None:
        found.append(_cone(reach / rewards.ball, rewards.middle / rewards.ball, columns))
    return found


def _cone(shape: Float[np.ndarray, " d"], middle: Float[np.ndarray, " d"], columns: int) -> Block:
    """Return the rows of ‖middle + shape · z‖ ≤ 1."""
    d = len(shape)
    at = np.arange(d)
    matrix = sparse.csc_matrix((-shape, (at + 1, at)), shape=(d + 1, columns))
    return matrix, np.concatenate([[1.0], middle]), [clarabel.SecondOrderConeT(d + 1)]
