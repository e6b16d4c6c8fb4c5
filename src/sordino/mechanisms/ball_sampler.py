"""Exact draws from a Gaussian that is cut off at a ball, by rejection and without a Markov chain.

The density is ∝ exp(−wᵀAw + 2bᵀw) on ‖w‖ ≤ W. Proposals come from the same density times
exp(−ν‖w‖²), on all of space, and are kept with probability exp(−ν(W² − ‖w‖²)) inside the ball and
never outside: what is kept has the wanted density for every ν. Only the waiting time depends on ν.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino._random import Entropy, normals
from sordino.errors import DataError
from sordino.privacy._search import narrow

__all__ = ["LONGEST_PULL", "BallProposal", "log_mass", "multiplier", "truncated_gaussian"]

LONGEST_PULL: Final = 2.0**40
"""Largest |b|W in each coordinate: beyond it 1 − ‖w‖²/W² has too few digits left."""

_CELLS: Final = 1 << 18  # normal numbers held at once
_FEWEST: Final = 64  # proposals made at once
_NEGATIVE: Final = 1e-9  # of the largest eigenvalue: more is no rounding error
_BITS: Final = 2.0**-64
_RADII, _ANGLES = 400, 4000


def truncated_gaussian(
    matrix: Float[np.ndarray, "d d"],
    shift: Float[np.ndarray, " d"],
    radius: float,
    *,
    entropy: Entropy,
    size: int = 1,
) -> Float[np.ndarray, "size d"]:
    """Return independent draws with density ∝ exp(−wᵀAw + 2bᵀw) on the ball ‖w‖ ≤ radius.

    Without the ball it would be the Gaussian with mean A⁻¹b and covariance (2A)⁻¹. About
    √(4πνW²) proposals are needed for a draw, ν ≥ 0 the multiplier; νW² is at most d/2 + ‖b‖W.

    Args:
        matrix: A, symmetric and positive semidefinite; 0 and singular ones are permitted.
        shift: b, any finite numbers.
        radius: W > 0, in the units of a draw.
        entropy: Source of 64-bit words; a release needs system entropy.
        size: How many draws.

    Raises:
        DataError: A or b cannot be used, A is not positive semidefinite, or |b|W is beyond 2^40.
        UsageError: ``radius`` or ``size`` is out of range.

    Guarantee:
        Exact in real arithmetic, for every A, b and W: there is no burn-in and no tolerance. How
        long it takes depends on A and b, which are private data: whoever can time a release
        learns more than the draw (caveats ``real-arithmetic`` and ``timing``). Draws noise, so
        the spend must already be on a ledger. Shown by
        tests/unit/mechanisms/test_ball_sampler.py.

    Source:
        docs/policy_optimization.md, "Exponential mechanism on a ball".

    Example:
        >>> from sordino._random import entropy
        >>> drawn = truncated_gaussian(
        ...     np.eye(2), np.array([30.0, 0.0]), 1.0, entropy=entropy(None), size=5)
        >>> drawn.shape, bool((np.hypot(*drawn.T) <= 1).all())
        ((5, 2), True)
    """
    size = _validate.integer("size", size, at_least=0)
    proposal = BallProposal.of(matrix, shift, radius)
    parts, missing = [np.empty((0, len(proposal.center)))], size
    while missing > 0:
        parts.append(proposal.kept(proposal.block(missing), entropy=entropy)[:missing])
        missing -= len(parts[-1])
    return np.concatenate(parts)


@dataclass(frozen=True)
class BallProposal:
    """What draws in a ball are chosen from, in the eigenvectors of A and in units of the radius.

    Args:
        center: Mean of a proposal.
        spread: Standard deviations of its coordinates, which are independent.
        tilt: νW²: 0 if a proposal only has to fall into the ball.
        axes: Eigenvectors of A, one in each column.
        radius: W.
    """

    center: Float[np.ndarray, " d"]
    spread: Float[np.ndarray, " d"]
    tilt: float
    axes: Float[np.ndarray, "d d"]
    radius: float

    @classmethod
    def of(
        cls, matrix: Float[np.ndarray, "d d"], shift: Float[np.ndarray, " d"], radius: float
    ) -> BallProposal:
        """Return the proposal of which the largest share is kept.

        The share is (∫ target)/(e^{νW²} ∫ proposal), both without their normalizers. Its
        logarithm is concave in ν, and its slope vanishes where ½tr(A+ν)⁻¹ + ‖(A+ν)⁻¹b‖² = W².

        Args:
            matrix: A, symmetric and positive semidefinite.
            shift: b.
            radius: W.

        Raises:
            DataError: As :func:`truncated_gaussian`, or |b|W is beyond 2^40.
            UsageError: ``radius`` is not finite and above 0.

        Source:
            docs/policy_optimization.md, "Exponential mechanism on a ball".
        """
        radius = _validate.positive("radius", radius)
        levels, axes = _spectrum(matrix, radius)
        shift = _validate.finite_array("shift", shift, ndim=1)
        if len(shift) != len(levels):
            raise DataError(
                f"shift must have one number for each of {len(levels)} rows of matrix, got shape "
                f"{shift.shape}. Nothing was drawn."
            )
        longest = LONGEST_PULL / radius
        if not (np.abs(shift) <= longest).all() or not np.isfinite(levels).all():
            raise DataError(
                f"shift may be at most {LONGEST_PULL:.3g}/radius in each coordinate, and matrix "
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

        Args:
            proposals: How many to make; each takes d + 1 words.
            entropy: Source of 64-bit words.

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


def multiplier(levels: Float[np.ndarray, " d"], pull: Float[np.ndarray, " d"]) -> float:
    """Return the ν ≥ 0 for which a proposal has a mean square of 1, or 0 if it has less at 0.

    ½Σ1/(a_j + ν) + Σb_j²/(a_j + ν)² = 1, for a ball of radius 1 and A diagonal; the left side
    falls in ν. Any ν > 0 gives exact draws: this one the fewest proposals.

    Args:
        levels: Eigenvalues a_j ≥ 0 of A.
        pull: Coordinates b_j of the shift.

    Example:
        >>> multiplier(np.zeros(6), np.zeros(6)), multiplier(np.full(2, 1e3), np.zeros(2))
        (3.0, 0.0)
    """

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


def _spectrum(
    matrix: Float[np.ndarray, "d d"], radius: float
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
    """Return the eigenvalues of A, at least 0 and in units of 1/W², and the eigenvectors."""
    matrix = _validate.finite_array("matrix", matrix, ndim=2)
    if matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise DataError(f"matrix must be square, got shape {matrix.shape}. Nothing was drawn.")
    levels, axes = np.linalg.eigh(matrix / 2 + matrix.T / 2)
    least, most = float(levels[0]), float(levels[-1])
    asymmetry = float(np.abs(matrix - matrix.T).max())
    # what is far below 1/W² moves no draw, and may be subnormal, where nothing is symmetric
    doubt = _NEGATIVE * max(most, 2.0**-900 / radius / radius)
    if least < -doubt or asymmetry > doubt:
        raise DataError(
            "matrix must be symmetric and positive semidefinite, and is not. Nothing was drawn."
        )
    with np.errstate(over="ignore"):
        return np.maximum(levels, 0.0) * radius * radius, axes


def log_mass(
    matrix: Float[np.ndarray, "2 2"], shift: Float[np.ndarray, " 2"], radius: float
) -> float:
    """Return the logarithm of ∫ exp(−wᵀAw + 2bᵀw) over a disk, for audits of made-up data.

    By 400 × 4,000 nodes in polar coordinates, which see densities down to a hundredth of the
    radius wide.

    Args:
        matrix: A, of two rows.
        shift: b.
        radius: W.

    Example:
        >>> round(math.exp(log_mass(np.zeros((2, 2)), np.zeros(2), 1.0)), 9)
        3.141592654
    """
    nodes, weights = np.polynomial.legendre.leggauss(_RADII)
    lengths = (nodes + 1) / 2 * radius
    angles = np.arange(_ANGLES) * (2 * math.pi / _ANGLES)
    ways = np.stack([np.cos(angles), np.sin(angles)])
    square = np.einsum("in,ij,jn->n", ways, matrix, ways)
    levels = -np.outer(lengths**2, square) + 2 * np.outer(lengths, shift @ ways)
    top = float(levels.max())
    rings = np.exp(levels - top).sum(axis=1) * lengths
    return top + math.log(float(weights @ rings) * radius * math.pi / _ANGLES)
