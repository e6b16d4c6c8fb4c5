"""The exponential mechanism for least squares: weights drawn with chance ∝ exp(−loss/temperature).

The weights are a point of a ball, drawn by rejection, or one of finitely many public candidates,
drawn in whole numbers. Neither needs a Markov chain, and neither sees its noise grow with d².

In the ball the density is ∝ exp(−wᵀAw + 2bᵀw) on ‖w‖ ≤ W. Proposals come from the same density
times exp(−ν‖w‖²), on all of space, and are kept with probability exp(−ν(W² − ‖w‖²)) inside the
ball and never outside: what is kept has the wanted density for every ν. Only the waiting time
depends on ν.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import ClassVar, Final

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino._random import Entropy, normals
from sordino._validate import Square, Vector
from sordino.errors import DataError, UsageError
from sordino.mechanisms.base import WorstCase, least_that_keeps
from sordino.mechanisms.gibbs import MOST_ACTIONS, SLACK, ExponentialMechanism, rounded_up
from sordino.mechanisms.score_sensitivity import UP
from sordino.privacy.conversions import bounded_range_for, narrow
from sordino.privacy.guarantee import REPLACE_ONE, BoundedRangeEvent, NeighboringRelation

from .base import (
    Batch,
    LeastSquares,
    Oracle,
    PlainRegression,
    PlayedRegression,
    Regression,
    RegressionTerms,
    keeps,
    slot_relation,
)

Candidates = tuple[tuple[float, ...], ...]
"""Public weights to choose from, one vector in each row."""


@dataclass(frozen=True)
class BestCandidate(PlainRegression):
    """The one of finitely many weights with the least squared loss, as it is: without privacy.

    Guarantee:
        None: ε = ∞ for every relation. Only a ledger whose budget is infinite accepts it. Shown
        by tests/unit/mechanisms/test_gibbs_regression.py.
    """

    _: KW_ONLY
    candidates: Candidates  # as for `GibbsRegression`

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "candidates", _pulled_back(self.candidates, self.radius))

    def _solution(
        self,
        rows: np.ndarray,
        targets: np.ndarray,
        entropy: Entropy,  # noqa: ARG002 (nothing is drawn)
    ) -> Regression:
        """Return the best candidate, the first one among equals."""
        candidates = np.array(self.candidates)
        totals = _scores_of(rows, targets, candidates).sum(axis=0)
        return Regression(weights=candidates[int(np.argmax(totals))], error=0.0)


def _scores_of(
    rows: Float[np.ndarray, "m d"],
    targets: Float[np.ndarray, " m"],
    candidates: Float[np.ndarray, "k d"],
) -> Float[np.ndarray, "m k"]:
    """Return minus the squared loss of every candidate for every row."""
    # Coordinates are added one after another, so that a row's scores depend on nothing but that
    # row: a product of matrices adds in an order that depends on the place of a row.
    if rows.shape[1] != candidates.shape[1]:
        raise DataError(
            f"rows must have one feature for each of {candidates.shape[1]} numbers of a "
            f"candidate, got {rows.shape[1]}. Nothing was released."
        )
    off = np.repeat(-targets[:, np.newaxis], len(candidates), axis=1)
    for feature, weights in zip(rows.T, candidates.T, strict=True):
        off += feature[:, np.newaxis] * weights
    return np.asarray(-(off * off))


def _public_vectors(candidates: Sequence[Sequence[float]]) -> Candidates:
    """Return public weights as tuples, which are compared and hashed by value."""
    try:
        found = _validate.finite_array("candidates", candidates, ndim=2)
    except DataError as error:  # they are a setting
        raise UsageError(str(error)) from None
    if not (2 <= len(found) <= MOST_ACTIONS and found.shape[1]):  # noqa: PLR2004 - a choice
        raise UsageError(
            f"candidates must be 2 to {MOST_ACTIONS} vectors, got shape {found.shape}. For the "
            "whole ball leave them out."
        )
    return tuple(map(tuple, found.tolist()))


def _pulled_back(candidates: Sequence[Sequence[float]], radius: float) -> Candidates:
    """Return public weights, those beyond the radius pulled back to it."""
    found = np.array(_public_vectors(candidates))
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    return _public_vectors(found * (radius / np.maximum(lengths, radius)))


_THIN: Final = 2000.0  # shared rows that keep draws within a hundredth of the radius of a line
_MOST: Final = 1e9  # more rows than any case holds
_TRIED: Final = 64  # candidates whose directions are tried
_LEAST: Final = 1e-300  # for a division by what may be 0


def loss_range(terms: RegressionTerms) -> float:
    """Return the largest difference of one row's squared losses within the radius, rounded up."""
    # (H + R)² for targets within ±R and predictions within ±H = WB; 4HR if R > H.
    # Source: docs/policy_optimization.md, "Exponential mechanism on a ball".
    reach, most = terms.radius * terms.feature_bound, terms.target_bound
    found = 4 * reach * most if most > reach else (reach + most) * (reach + most)
    return _validate.positive("(radius·feature_bound + target_bound)²", found * 2 * UP) / 2


_LONGEST_PULL: Final = 2.0**40
"""Largest |b|W in each coordinate: beyond it 1 − ‖w‖²/W² has too few digits left."""

_CELLS: Final = 1 << 18  # normal numbers held at once
_FEWEST: Final = 64  # proposals made at once
_NEGATIVE: Final = 1e-9  # of the largest eigenvalue: more is no rounding error
_BITS: Final = 2.0**-64
_RADII, _ANGLES = 400, 4000


def truncated_gaussian(
    matrix: Square, shift: Vector, radius: float, *, entropy: Entropy, size: int = 1
) -> Float[np.ndarray, "size d"]:
    """Return independent draws with density ∝ exp(−wᵀAw + 2bᵀw) on the ball ‖w‖ ≤ radius.

    Guarantee:
        Exact in real arithmetic, for every A, b and W: there is no burn-in and no tolerance. How
        long it takes depends on A and b, which are private data: whoever can time a release learns
        more than the draw (caveats ``real-arithmetic`` and ``timing``). Draws noise, so the spend
        must already be on a ledger. Shown by tests/unit/mechanisms/test_ball_sampler.py.
    """
    # Without the ball it would be the Gaussian with mean A⁻¹b and covariance (2A)⁻¹. About √(4πνW²)
    # proposals are needed for a draw, ν ≥ 0 the multiplier; νW² is at most d/2 + ‖b‖W.
    # Source: docs/policy_optimization.md, "Exponential mechanism on a ball".
    size = _validate.integer("size", size, at_least=0)
    proposal = _BallProposal.of(matrix, shift, radius)
    parts, missing = [np.empty((0, len(proposal.center)))], size
    while missing > 0:
        parts.append(proposal.kept(proposal.block(missing), entropy=entropy)[:missing])
        missing -= len(parts[-1])
    return np.concatenate(parts)


@dataclass(frozen=True)
class _BallProposal:
    """What draws in a ball are chosen from, in the eigenvectors of A and in units of the radius."""

    center: Vector  # mean of a proposal
    spread: Vector  # standard deviations of its coordinates, which are independent
    tilt: float  # νW²: 0 if a proposal only has to fall into the ball
    axes: Square  # eigenvectors of A, one in each column
    radius: float  # W

    @classmethod
    def of(cls, matrix: Square, shift: Vector, radius: float) -> _BallProposal:
        """Return the proposal of which the largest share is kept."""
        # The share is (∫ target)/(e^{νW²} ∫ proposal), both without their normalizers. Its
        # logarithm is concave in ν, and its slope vanishes where ½tr(A+ν)⁻¹ + ‖(A+ν)⁻¹b‖² = W².
        # Source: docs/policy_optimization.md, "Exponential mechanism on a ball".
        radius = _validate.positive("radius", radius)
        matrix = _validate.finite_array("matrix", matrix, ndim=2)
        if matrix.shape[0] != matrix.shape[1] or not matrix.size:
            raise DataError(f"matrix must be square, got shape {matrix.shape}. Nothing was drawn.")
        levels, axes = np.linalg.eigh(matrix / 2 + matrix.T / 2)
        asymmetry = float(np.abs(matrix - matrix.T).max())
        # what is far below 1/W² moves no draw, and may be subnormal, where nothing is symmetric
        doubt = _NEGATIVE * max(float(levels[-1]), 2.0**-900 / radius / radius)
        if levels[0] < -doubt or asymmetry > doubt:
            raise DataError(
                "matrix must be symmetric and positive semidefinite, and is not. Nothing was drawn."
            )
        with np.errstate(over="ignore"):  # in units of 1/W²
            levels = np.maximum(levels, 0.0) * radius * radius
        shift = _validate.finite_array("shift", shift, ndim=1)
        if len(shift) != len(levels):
            raise DataError(
                f"shift must have one number for each of {len(levels)} rows of matrix, got shape "
                f"{shift.shape}. Nothing was drawn."
            )
        longest = _LONGEST_PULL / radius
        if not (np.abs(shift) <= longest).all() or not np.isfinite(levels).all():
            raise DataError(
                f"shift may be at most {_LONGEST_PULL:.3g}/radius in each coordinate, and matrix "
                "times the square of radius finite: they are not. Nothing was drawn."
            )
        pull = axes.T @ shift * radius
        tilt = multiplier(levels, pull)
        tilted = levels + tilt
        return cls(pull / tilted, np.sqrt(0.5 / tilted), tilt, axes, radius)

    def block(self, wanted: int) -> int:
        """Return how many proposals to make at once for a number of draws, memory permitting."""
        share = 2 * math.sqrt(math.pi * self.tilt)
        most = max(_FEWEST, _CELLS // len(self.center))
        return int(min(most, max(_FEWEST, 1.5 * wanted * (1 + share))))

    def kept(self, proposals: int, *, entropy: Entropy) -> Float[np.ndarray, "kept d"]:
        """Return those of a number of fresh proposals that are kept, in order.

        Guarantee:
            As :func:`truncated_gaussian`; how many are kept depends on private data.
        """
        d = len(self.center)
        drawn = self.center + self.spread * normals(entropy, proposals * d).reshape(-1, d)
        inside = 1.0 - np.einsum("nd,nd->n", drawn, drawn)
        chance = (entropy.words(proposals).astype(np.float64) + 0.5) * _BITS
        keep = (inside >= 0) & (np.log(chance) <= -self.tilt * inside)
        found = drawn[keep] @ self.axes.T * self.radius
        # Rounding may leave a draw on the border an ulp outside.
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        return np.asarray(found * np.minimum(1.0, self.radius / np.maximum(lengths, 1e-300)))


def multiplier(levels: Vector, pull: Vector) -> float:
    """Return the ν ≥ 0 for which a proposal has a mean square of 1, or 0 if it has less at 0."""
    # ½Σ1/(a_j + ν) + Σb_j²/(a_j + ν)² = 1, for a ball of radius 1 and A diagonal; the left side
    # falls in ν. Any ν > 0 gives exact draws: this one the fewest proposals.

    def short(tilt: float) -> bool:
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            tilted = levels + tilt
            square = np.sum(0.5 / tilted) + np.sum((pull / tilted) ** 2)
        return bool(square <= 1.0)  # infinite or 0/0, at an eigenvalue of 0: not short

    if short(0.0):
        return 0.0
    d, most = len(levels), float(np.linalg.norm(pull))
    enough = d / 4 + math.hypot(d / 4, most)  # the root if all eigenvalues are 0: never too small
    least = max(enough - float(levels.max()), 0.0) / 2
    while not short(enough):  # by a rounding error
        enough *= 1 + 2.0**-50
    return narrow(short, least, enough, rtol=1e-12)[1]


def _log_mass(
    matrix: Float[np.ndarray, "2 2"], shift: Float[np.ndarray, " 2"], radius: float
) -> float:
    """Return the logarithm of ∫ exp(−wᵀAw + 2bᵀw) over a disk, for audits of made-up data."""
    # By 400 × 4,000 nodes in polar coordinates, which see densities down to a hundredth of the
    # radius wide.
    nodes, weights = np.polynomial.legendre.leggauss(_RADII)
    lengths = (nodes + 1) / 2 * radius
    angles = np.arange(_ANGLES) * (2 * math.pi / _ANGLES)
    ways = np.stack([np.cos(angles), np.sin(angles)])
    square = np.einsum("in,ij,jn->n", ways, matrix, ways)
    levels = -np.outer(lengths**2, square) + 2 * np.outer(lengths, shift @ ways)
    top = float(levels.max())
    rings = np.exp(levels - top).sum(axis=1) * lengths
    return top + math.log(float(weights @ rings) * radius * math.pi / _ANGLES)


@dataclass(frozen=True)
class GibbsRegression(PlayedRegression):
    """Draw weights w with probability ∝ exp(−Σ(xᵀw − A)²/temperature): no number is noised.

    Guarantee:
        BoundedRangeEvent of :meth:`sensitivity`/temperature, so pure ε, for one row and target
        and any finite values. Among candidates it is exact. In the ball it holds in real
        arithmetic, and how long a draw takes depends on the batch (caveats ``real-arithmetic``
        and ``timing``). Shown by tests/soundness/test_gibbs_regression.py.

        Proof. Log-densities of two neighbors differ by h = (ℓ′ − ℓ)/temperature and a constant,
        with ℓ and ℓ′ the losses of the one row, so all log-ratios lie in an interval as long as
        the range of h over ‖w‖ ≤ W. With p = xᵀw and q = xᵀv, |p|, |q| ≤ H = WB, one row has
        ℓ(w) − ℓ(v) = (p − q)(p + q − 2A) ≤ |p − q|(|p + q| + 2R): (H + R)² at most if R ≤ H and
        4HR otherwise. ℓ′ and ℓ both have that range Δ, and ℓ′ = 0 for an emptied slot.
    """

    # Source: McSherry & Talwar 2007; docs/policy_optimization.md, "Exponential mechanism on a
    # ball". Differs: Δ is 4HR, which is less than (H + R)², where targets exceed all predictions.

    _: KW_ONLY
    temperature: float  # in units of the squared loss, > 0; large draws uniformly
    # 2 to 2^16 public vectors to choose from; longer ones are pulled back to the radius. A batch
    #   then takes 8 bytes for each row and candidate.
    candidates: Candidates | None = None
    pure: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse settings that are out of range, and batches that no draw in a ball could end."""
        super().__post_init__()
        _validate.settle(self, temperature=_validate.positive)
        if self.candidates is not None:
            object.__setattr__(self, "candidates", _pulled_back(self.candidates, self.radius))
        elif not self.rows * self.loss_range / self.temperature <= _LONGEST_PULL:
            raise UsageError(
                f"rows·{self.loss_range:.3g}/temperature must be at most {_LONGEST_PULL:.3g} for a "
                f"draw in a ball, got rows={self.rows!r} and temperature={self.temperature!r}. "
                "Use a smaller epsilon or batch, or a finite set of candidates."
            )

    @property
    def loss_range(self) -> float:
        """Return Δ: by how much one row's squared loss can differ between two weights, at most."""
        return loss_range(self)

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return the largest range (over weights) of the change of the total loss."""
        # Δ if a row is emptied, 2Δ if it is replaced; Δ is `loss_range`.
        return self.loss_range * (2 if slot_relation(neighbors) == REPLACE_ONE else 1)

    def bounded_range(self, neighbors: NeighboringRelation) -> float:
        """Return the length of the interval that holds all log-ratios of one release."""
        # Source: docs/privacy.md, "Bounded range".
        moved = self.sensitivity(neighbors)
        if self.candidates is not None:
            return self._choice(self.candidates).bounded_range(neighbors)
        return rounded_up(Fraction(moved) / Fraction(self.temperature), "bounded range")

    def predicted_error(self, d: int) -> float:
        """Return ``Regression.error``, which no batch changes: √(d·temperature/(2m)) in a ball."""
        # That bounds the root mean square, with ŵ the best weights in the ball. Log-concavity gives
        # E∇L(w)ᵀ(w − ŵ) ≤ d·temperature, and the left side is at least 2E‖X(w − ŵ)‖². Among k
        # candidates the loss exceeds the least by temperature·log k on average at most, and the
        # estimate is √(temperature·log k/m).
        degrees = _validate.integer("d", d, at_least=1) / 2
        if self.candidates is not None:
            degrees = math.log(len(self.candidates))
        return min(math.sqrt(degrees * self.temperature / self.rows), self.widest)

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return two neighboring batches, targets in the last column, that are told apart well."""
        # In a ball the two ends of a chord are where one row's loss differs by Δ; the rows that
        # both batches share keep the draw near that chord and let it lie anywhere on it. Among
        # candidates, of the rows that point to one of them, those whose change has the longest
        # range.
        replaced = slot_relation(neighbors) == REPLACE_ONE
        if self.candidates is None:
            # At one end of the chord the differing row of the first batch loses nothing and that of
            # the second one all that it can, and at the other end the reverse. The rows that both
            # share lose nothing on the chord, and much beside it.
            bound, radius, most = self.feature_bound, self.radius, self.target_bound
            cosine = -min(1.0, most / (radius * bound))  # of the angle of the chord at the center
            across, along = math.sqrt((1 + cosine) / 2), math.sqrt((1 - cosine) / 2)
            size = min(bound, most / max(across * radius, _LEAST))
            unit = max(size * radius, _LEAST)
            thin = 1 + min(
                self.rows - 1, math.ceil(min(_THIN * self.temperature / unit / unit, _MOST))
            )
            one = np.zeros((self.rows, 3))
            one[1:thin] = size, 0.0, size * across * radius
            other = one.copy()
            one[0] = bound * across, bound * along, -most
            if replaced:
                other[0] = bound * across, -bound * along, -most
            return WorstCase(one, other)
        candidates = np.array(self.candidates)
        # The best of all rows, or pairs of rows, that point to one of the first 64 candidates and
        # have a target at one of its bounds; all others are empty.
        ways = candidates[:_TRIED]
        lengths = np.maximum(np.linalg.norm(ways, axis=1, keepdims=True), _LEAST)
        ways = np.vstack([ways / lengths, ways / lengths]) * self.feature_bound
        targets = np.repeat([self.target_bound, -self.target_bound], len(lengths))
        scores = _scores_of(ways, targets, candidates)
        ranges = np.zeros((len(scores), len(scores) if replaced else 1))
        for index, score in enumerate(scores):  # an emptied row scores every candidate alike
            ranges[index] = np.ptp(scores[: ranges.shape[1]] * replaced - score, axis=1)
        first, second = np.unravel_index(int(ranges.argmax()), ranges.shape)
        one, other = np.zeros((2, self.rows, candidates.shape[1] + 1))
        one[0] = *ways[first], targets[first]
        if replaced:
            other[0] = *ways[second], targets[second]
        return WorstCase(one, other)

    def _event(self, neighbors: NeighboringRelation) -> BoundedRangeEvent:
        return BoundedRangeEvent(self.bounded_range(neighbors))

    @property
    def _caveats(self) -> tuple[str, ...]:
        return ("real-arithmetic", "timing") if self.candidates is None else ()

    def _solution(self, rows: np.ndarray, targets: np.ndarray, entropy: Entropy) -> Regression:
        """Return weights that were drawn."""
        (drawn,) = self._seen(rows, targets, 1, entropy)
        weights = drawn if self.candidates is None else np.array(self.candidates)[int(drawn[0])]
        return Regression(weights=weights, error=self.predicted_error(rows.shape[1]))

    def _seen(
        self, rows: np.ndarray, targets: np.ndarray, trials: int, entropy: Entropy
    ) -> np.ndarray:
        """Return weights in the ball, or the index of a candidate, one in each row."""
        if self.candidates is not None:
            scores = _scores_of(rows, targets, np.array(self.candidates))
            drawn = self._choice(self.candidates).repeat(scores, trials, entropy=entropy)
            return drawn.astype(np.float64)
        exponent = self._exponent(rows, targets)
        return truncated_gaussian(*exponent, self.radius, entropy=entropy, size=trials)

    def _log_ratio(self, outputs: np.ndarray, one: Batch, other: Batch) -> np.ndarray:
        if self.candidates is not None:
            choice, candidates = self._choice(self.candidates), np.array(self.candidates)
            logs = [
                choice.log_probabilities(_scores_of(*side, candidates)) for side in (one, other)
            ]
            return np.asarray((logs[0] - logs[1])[outputs[:, 0].astype(np.int64)])
        if outputs.shape[1] != 2:  # noqa: PLR2004 (a plane)
            raise UsageError("log_ratio in a ball is for two features only, as worst_case has.")
        levels = []  # logarithms of the density in the disk
        for matrix, shift in (self._exponent(*side) for side in (one, other)):
            square = np.einsum("ti,ij,tj->t", outputs, matrix, outputs)
            levels.append(2 * outputs @ shift - square - _log_mass(matrix, shift, self.radius))
        return np.asarray(levels[0] - levels[1])

    def _choice(self, candidates: Candidates) -> ExponentialMechanism:
        """Return what draws one of the candidates; it cuts each row's scores to the range Δ."""
        return ExponentialMechanism(
            self.temperature,
            bound=self.loss_range,
            reference=(1 / len(candidates),) * len(candidates),
            neighbors=self.neighbors,
        )

    def _exponent(
        self, rows: Float[np.ndarray, "m d"], targets: Float[np.ndarray, " m"]
    ) -> tuple[Square, Vector]:
        """Return the matrix and the shift of the density, XᵀX and Xᵀy over the temperature."""
        scaled = rows / self.temperature
        return scaled.T @ rows, scaled.T @ targets


@dataclass(frozen=True)
class ExponentialRegression(Oracle):
    """The oracle of :class:`GibbsRegression`: weights drawn by how little they lose."""

    # Source: docs/policy_optimization.md, "Exponential mechanism on a ball".

    # Public weights to choose from, one vector in each row (an array will do); the whole ball if
    # left out.
    candidates: Candidates | None = None

    def __post_init__(self) -> None:
        if self.candidates is not None:
            object.__setattr__(self, "candidates", _public_vectors(self.candidates))

    @property
    def name(self) -> str:
        """Return a short name."""
        return "exponential-ball" if self.candidates is None else "exponential-candidates"

    def _within_budget(
        self, terms: RegressionTerms, epsilon: float, delta: float, neighbors: NeighboringRelation
    ) -> LeastSquares:
        """Return the least temperature, Δ/ε if a row is emptied and 2Δ/ε if it is replaced."""
        # A delta above 0 buys a little, by the exact curve of a bounded range.
        target = bounded_range_for(_validate.positive("epsilon", epsilon), delta)
        room = Fraction(target) - (SLACK if self.candidates is not None else 0)
        if room <= 0:
            raise UsageError(
                f"epsilon={epsilon!r} with delta={delta!r} is kept by no finite temperature. "
                "Nothing was spent. Use a larger epsilon."
            )

        def make(temperature: float) -> GibbsRegression:
            return GibbsRegression(
                **vars(terms),
                temperature=temperature,
                neighbors=neighbors,
                delta=delta,
                candidates=self.candidates,
            )

        changes = 2 if slot_relation(neighbors) == REPLACE_ONE else 1
        start = rounded_up(changes * Fraction(loss_range(terms)) / room, "temperature")
        return least_that_keeps(start, make, lambda made: keeps(made, epsilon))

    def _without_noise(
        self, terms: RegressionTerms, neighbors: NeighboringRelation
    ) -> LeastSquares:
        """Return the regression, or the choice of a candidate, without a promise."""
        if self.candidates is None:
            return super()._without_noise(terms, neighbors)
        return BestCandidate(**vars(terms), neighbors=neighbors, candidates=self.candidates)
