"""The one way into the conic solver, and the policies that one second-order cone program gives.

The program is exact, for what fits into memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import clarabel
import numpy as np
from jaxtyping import Float
from scipy import sparse

from sordino._validate import Vector
from sordino.errors import ConvergenceError

from .worst_case import PlausibleRewards

Block: TypeAlias = tuple[Any, Float[np.ndarray, " _"], list[Any]]
"""Rows A, their bounds b, and the cones that b − Ax is in."""

_SCALE_FREE = 1e-10  # feasibility and gap that the solver is asked for, in its own units
_GOOD = {"Solved", "AlmostSolved", "InsufficientProgress", "NumericalError", "MaxIterations"}


def solve_conic(
    cost: Float[np.ndarray, " x"],
    blocks: Sequence[Block],
    *,
    quadratic: np.ndarray | None = None,
    atol: float = _SCALE_FREE,
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


def reach_of(rewards: PlausibleRewards) -> Vector:
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


def _cone(shape: Vector, middle: Vector, columns: int) -> Block:
    """Return the rows of ‖middle + shape · z‖ ≤ 1."""
    d = len(shape)
    at = np.arange(d)
    matrix = sparse.csc_matrix((-shape, (at + 1, at)), shape=(d + 1, columns))
    return matrix, np.concatenate([[1.0], middle]), [clarabel.SecondOrderConeT(d + 1)]


@dataclass(frozen=True, kw_only=True, eq=False)
class KlPenalty:
    """temperature · Σ weight · x log(x / reference), subtracted from the value."""

    temperature: float  # > 0
    weights: Float[np.ndarray, " m"]  # how often each variable's context comes, shape (m,)
    reference: Float[np.ndarray, " m"]  # probabilities of the starting policy, shape (m,)


@dataclass(frozen=True, kw_only=True, eq=False)
class FlowProgram:
    """Policies as the points of a polytope: x ≥ 0, constraints · x = totals."""

    features: Any  # what each variable adds to the mean features, shape (m, d), dense or sparse
    constraints: Any  # shape (c, m), dense or sparse
    totals: Float[np.ndarray, " c"]  # shape (c,)
    penalty: KlPenalty | None = None  # none for none


def solve_flows(
    rewards: PlausibleRewards, program: FlowProgram, *, reference_vector: Vector
) -> tuple[Float[np.ndarray, " m"], Vector]:
    """Return the x whose worst case, less the penalty, is best, and the reward that shows it."""
    # Source: docs/planning.md, "Two solvers": maximize θ̂ᵀ(q − u) − radius·‖q − u‖_{M⁻¹} − B‖u‖, q
    # = featuresᵀx − v; without a ball u = 0.
    turned = sparse.csc_array(program.features @ rewards.axes)
    # in units in which features and rewards are of size 1
    unit = float(abs(turned).max()) or 1.0
    scale = float(np.linalg.norm(rewards.middle) + np.linalg.norm(reach_of(rewards))) or 1.0
    (m, d), ball = turned.shape, int(rewards.ball is not None)
    # The variables: x, p + u = q, and what bounds norms and entropies.
    sizes = {"x": m, "p": d, "u": ball * d, "width": 1, "length": ball}
    form = _Form(sizes | {"entropy": m * (program.penalty is not None)})
    offset = reference_vector @ rewards.axes / unit
    blocks = [
        form.zero({"x": program.constraints}, program.totals),
        form.zero({"x": turned.T / unit, "p": -1.0, "u": -1.0}, offset),
        form.positive("x"),
        *form.seen(rewards, scale),
        *form.norm("length", "u", 1.0),
    ]
    if program.penalty is not None:
        blocks.append(form.relative_entropy(program.penalty.reference))
    cost = np.zeros(form.total)
    cost[form.at["p"]], cost[form.at["width"]] = -rewards.middle / scale, 1.0
    if rewards.ball is not None:
        cost[form.at["length"]] = rewards.ball / scale
    if program.penalty is not None:
        rate = program.penalty.temperature / (unit * scale)
        cost[form.at["entropy"]] = rate * program.penalty.weights
    found, multipliers = solve_conic(cost, blocks)
    first = len(program.totals)
    # what one more unit of features would be worth is the reward that is worst for the policy
    theta = rewards.axes @ (-scale * multipliers[first : first + len(rewards.center)])
    return np.maximum(found[form.at["x"]], 0.0), rewards.pulled(theta)


class _Form:
    """Where the variables of the program are, and rows in terms of their names."""

    def __init__(self, sizes: dict[str, int]) -> None:
        ends = np.cumsum([0, *sizes.values()]).tolist()
        self.at = {n: slice(*ends[k : k + 2]) for k, n in enumerate(sizes) if sizes[n]}
        self.total = ends[-1]

    def _rows(self, parts: dict[str, Any], height: int) -> Any:
        """Return rows over all variables; a number stands for a multiple of the identity."""
        blocks = []
        for name, where in self.at.items():
            size = where.stop - where.start
            part = parts.get(name)
            if part is None:
                part = sparse.csc_array((height, size))
            elif np.isscalar(part):
                part = part * sparse.eye_array(height, size)
            blocks.append(part)
        return sparse.hstack(blocks, format="csc")

    def zero(self, parts: dict[str, Any], bound: Float[np.ndarray, " b"]) -> Block:
        """Return rows that are equal to their bound."""
        return self._rows(parts, len(bound)), bound, [clarabel.ZeroConeT(len(bound))]

    def positive(self, name: str) -> Block:
        """Return the rows of a variable ≥ 0."""
        size = self.at[name].stop - self.at[name].start
        return self._rows({name: -1.0}, size), np.zeros(size), [clarabel.NonnegativeConeT(size)]

    def seen(self, rewards: PlausibleRewards, scale: float) -> list[Block]:
        """Return the rows of the width in the metric, and of p = 0 where nothing was seen."""
        d, flat = len(rewards.center), np.flatnonzero(rewards.curvatures == 0)
        shape = np.zeros(d)
        some = rewards.curvatures > 0
        shape[some] = rewards.radius / scale / np.sqrt(rewards.curvatures[some])
        picked = sparse.csc_array(
            (np.ones(len(flat)), (np.arange(len(flat)), flat)), shape=(len(flat), d)
        )
        unseen = [self.zero({"p": picked}, np.zeros(len(flat)))] if len(flat) else []
        return unseen + self.norm("width", "p", shape)

    def norm(self, bound: str, name: str, shape: float | np.ndarray) -> list[Block]:
        """Return the rows of bound ≥ ‖shape · variable‖; none for a variable that is not there."""
        if name not in self.at:
            return []
        d = self.at[name].stop - self.at[name].start
        column = sparse.csc_array(([-1.0], ([0], [0])), shape=(d + 1, 1))
        below = sparse.diags_array(-shape * np.ones(d), offsets=-1, shape=(d + 1, d))
        return [
            (
                self._rows({bound: column, name: below}, d + 1),
                np.zeros(d + 1),
                [clarabel.SecondOrderConeT(d + 1)],
            )
        ]

    def relative_entropy(self, reference: Float[np.ndarray, " m"]) -> Block:
        """Return the rows of entropy ≥ x log(x / reference)."""
        m = len(reference)
        at = np.arange(m)
        first = sparse.csc_array((np.ones(m), (3 * at, at)), shape=(3 * m, m))
        second = sparse.csc_array((-np.ones(m), (3 * at + 1, at)), shape=(3 * m, m))
        bound = np.zeros(3 * m)
        bound[2::3] = reference
        rows = self._rows({"entropy": first, "x": second}, 3 * m)
        return rows, bound, [clarabel.ExponentialConeT() for _ in range(m)]
