"""The whole problem as one second-order cone program: exact, for what fits into memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import clarabel
import numpy as np
from jaxtyping import Float
from scipy import sparse

from .conic import Block, reach_of, solve_conic
from .contexts import Contexts
from .worst_case import PlausibleRewards

__all__ = ["FlowProgram", "KlPenalty", "context_program", "solve_flows"]


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


def context_program(contexts: Contexts, *, temperature: float | None = None) -> FlowProgram:
    """Return the program over all probabilities of all candidates."""
    # Source: docs/planning.md, "Two solvers".
    m, n = len(contexts.reference), len(contexts)
    ends = np.append(contexts.starts, m)
    spread = sparse.diags_array(contexts.spread)
    penalty = None
    if temperature is not None:
        penalty = KlPenalty(
            temperature=temperature, weights=contexts.spread, reference=contexts.reference
        )
    return FlowProgram(
        features=spread @ sparse.csr_array(contexts.rows),
        constraints=sparse.csr_array((np.ones(m), np.arange(m), ends), shape=(n, m)),
        totals=np.ones(n),
        penalty=penalty,
    )


def solve_flows(
    rewards: PlausibleRewards,
    program: FlowProgram,
    *,
    reference_vector: Float[np.ndarray, " d"],
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " d"]]:
    """Return the x whose worst case, less the penalty, is best, and the reward that shows it."""
    # Source: docs/planning.md, "Two solvers": maximize θ̂ᵀ(q − u) − radius·‖q − u‖_{M⁻¹} − B‖u‖, q
    # = featuresᵀx − v; without a ball u = 0.
    turned = sparse.csc_array(program.features @ rewards.axes)
    # in units in which features and rewards are of size 1
    unit = float(abs(turned).max()) or 1.0
    scale = float(np.linalg.norm(rewards.middle) + np.linalg.norm(reach_of(rewards))) or 1.0
    form = _Form.of(turned.shape, rewards, program)
    offset = reference_vector @ rewards.axes / unit
    blocks = [
        form.zero({"x": program.constraints}, program.totals),
        form.zero({"x": turned.T / unit, "p": -1.0, "u": -1.0}, offset),
        form.positive("x"),
        *form.seen(rewards, scale),
        *form.norm("length", "u", 1.0),
        *form.relative_entropy(program.penalty),
    ]
    cost = {"p": -rewards.middle / scale, "width": 1.0, "length": (rewards.ball or 0.0) / scale}
    if program.penalty is not None:
        rate = program.penalty.temperature / (unit * scale)
        cost["entropy"] = rate * program.penalty.weights
    found, multipliers = solve_conic(form.vector(cost), blocks)
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

    @classmethod
    def of(cls, shape: tuple[int, int], rewards: PlausibleRewards, program: FlowProgram) -> _Form:
        """Return the variables: x, p + u = q, and what bounds norms and entropies."""
        m, d = shape
        ball, tempered = int(rewards.ball is not None), int(program.penalty is not None)
        sizes = {"x": m, "p": d, "u": ball * d, "width": 1, "length": ball}
        return cls(sizes | {"entropy": tempered * m})

    def vector(self, parts: dict[str, Any]) -> Float[np.ndarray, " x"]:
        """Return a vector with the given parts; what is not there is left out."""
        found = np.zeros(self.total)
        for name, values in parts.items():
            if name in self.at:
                found[self.at[name]] = values
        return found

    def rows(self, parts: dict[str, Any], height: int) -> Any:
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
        return self.rows(parts, len(bound)), bound, [clarabel.ZeroConeT(len(bound))]

    def positive(self, name: str) -> Block:
        """Return the rows of a variable ≥ 0."""
        size = self.at[name].stop - self.at[name].start
        return self.rows({name: -1.0}, size), np.zeros(size), [clarabel.NonnegativeConeT(size)]

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

    def norm(self, bound: str, name: str, shape: Any) -> list[Block]:
        """Return the rows of bound ≥ ‖shape · variable‖; none for a variable that is not there."""
        if name not in self.at:
            return []
        d = self.at[name].stop - self.at[name].start
        column = sparse.csc_array(([-1.0], ([0], [0])), shape=(d + 1, 1))
        below = sparse.diags_array(-shape * np.ones(d), offsets=-1, shape=(d + 1, d))
        return [
            (
                self.rows({bound: column, name: below}, d + 1),
                np.zeros(d + 1),
                [clarabel.SecondOrderConeT(d + 1)],
            )
        ]

    def relative_entropy(self, penalty: KlPenalty | None) -> list[Block]:
        """Return the rows of entropy ≥ x log(x / reference)."""
        if penalty is None:
            return []
        m = len(penalty.reference)
        at = np.arange(m)
        first = sparse.csc_array((np.ones(m), (3 * at, at)), shape=(3 * m, m))
        second = sparse.csc_array((-np.ones(m), (3 * at + 1, at)), shape=(3 * m, m))
        bound = np.zeros(3 * m)
        bound[2::3] = penalty.reference
        rows = self.rows({"entropy": first, "x": second}, 3 * m)
        cones = [clarabel.ExponentialConeT() for _ in range(m)]
        return [(rows, bound, cones)]
