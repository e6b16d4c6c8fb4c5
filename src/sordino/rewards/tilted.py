"""How far an estimate scatters whose objective was tilted by one draw of noise for all labels.

Both ways of a trusted curator come to this: noise on Σ yx tilts the objective by a random linear
term, and so does objective perturbation. The world is that of ``isotropic.py``, without flips.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.special import expit

from ._half_normal import mean, sizes
from .isotropic import Scatter

__all__ = ["Aim", "tilted_scatter"]

_EXACT = 1e-300  # absolute tolerance of a root: the relative one decides


@dataclass(frozen=True, kw_only=True)
class Aim:
    """What a fit with a ridge aims at, and how one pair bends its loss and makes it scatter.

    Source:
        docs/central.md, "Planning": bends B and variances S along θ and across it.

    Attributes:
        signal: Standard deviation of the reward difference that is aimed at, c·s.
        load: λ = Λd/n, the ridge over what a pair weighs in one direction.
        bends: E[σ′(cΔ)g²] and E[σ′(cΔ)].
        variances: Of (y − σ(cΔ))g, and E(y − σ(cΔ))².
    """

    signal: float
    load: float
    bends: tuple[float, float]
    variances: tuple[float, float]

    @classmethod
    def of_load(cls, spread: float, load: float) -> Aim:
        """Return the aim of a fit whose ridge weighs so much.

        Source:
            docs/central.md, "Planning": E[(σ(Δ) − σ(cΔ))g] = λcs.

        Args:
            spread: Standard deviation of Δ, s.
            load: λ, at least 0; 0 for next to no ridge.

        Example:
            >>> round(Aim.of_load(0.8, 0.0).signal, 6), round(Aim.of_load(0.8, 0.2).signal, 6)
            (0.8, 0.397492)
        """

        def excess(share: float) -> float:
            return mean(_missed(spread, share) * sizes()) - load * share * spread

        # Where the ridge weighs nothing that a float could tell, the truth itself is aimed at.
        share = brentq(excess, 0.0, 1.0, xtol=_EXACT) if excess(1.0) < 0 else 1.0
        return cls._at(spread, float(share), load)

    @classmethod
    def of_share(cls, spread: float, share: float) -> Aim:
        """Return the aim of a fit whose ridge leaves this share of the reward.

        Args:
            spread: Standard deviation of Δ, s.
            share: c, in (0, 1).
        """
        load = mean(_missed(spread, share) * sizes()) / (share * spread)
        return cls._at(spread, share, load)

    @classmethod
    def _at(cls, spread: float, share: float, load: float) -> Aim:
        """Return all expectations."""
        squares, margins = sizes() ** 2, spread * sizes()
        missed = _missed(spread, share)
        bend = expit(share * margins) * expit(-share * margins)
        noise = expit(margins) * expit(-margins) + missed**2
        return cls(
            signal=share * spread,
            load=load,
            bends=(mean(bend * squares), mean(bend)),
            variances=(mean(noise * squares) - mean(missed * sizes()) ** 2, mean(noise)),
        )

    def scatter(self, n: float, *, dimension: int, standard_deviation: float) -> Scatter:
        """Return how far n pairs and the tilt let the fit scatter.

        Source:
            docs/central.md, "Planning": (S + d·σ²/n)/(B + λ)², along θ and across it.

        Args:
            n: Number of pairs, > 0.
            dimension: Number of features d.
            standard_deviation: Of each coordinate of the tilt, for features of norm 1.
        """
        tilt = dimension * standard_deviation**2 / n
        along, across = (
            (variance + tilt) / (bend + self.load) ** 2
            for variance, bend in zip(self.variances, self.bends, strict=True)
        )
        return Scatter(signal=self.signal, along=along, across=across, dimension=dimension)


def tilted_scatter(
    spread: float, *, n: float, dimension: int, standard_deviation: float, ridge: float
) -> Scatter:
    """Return how the minimizer of a tilted objective with a fixed ridge scatters.

    Source:
        docs/central.md, "Planning".

    Args:
        spread: Standard deviation of Δ.
        n: Number of pairs, > 0.
        dimension: Number of features d.
        standard_deviation: Of each coordinate of the tilt, for features of norm 1.
        ridge: Λ, at least 0.

    Example:
        >>> found = tilted_scatter(0.8, n=1000, dimension=4, standard_deviation=0.0, ridge=0.0)
        >>> round(found.signal, 3), round(found.across, 3)
        (0.8, 4.566)
    """
    aim = Aim.of_load(spread, ridge * dimension / n)
    return aim.scatter(n, dimension=dimension, standard_deviation=standard_deviation)


def _missed(spread: float, share: float) -> Float[np.ndarray, " k"]:
    """Return σ(Δ) − σ(cΔ): what a reward that is too small misses of the chances."""
    margins = spread * sizes()
    gap = np.tanh((1 - share) * margins / 2)
    # tanh(a − b) = (tanh a − tanh b)/(1 − tanh a tanh b), so that nothing cancels near c = 1
    whole, part = np.tanh(margins / 2), np.tanh(share * margins / 2)
    return np.asarray(gap * (1 - whole * part) / 2)
