"""Pure, approximate and Gaussian releases together, exactly and without a grid.

The worst release of loss ε answers one of two ways whose probabilities differ by a factor of e^ε,
and fails outright with its δ. With Gaussian noise beside it, δ(ε) is a short sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
from dp_accounting import NeighboringRelation
from jaxtyping import Float
from scipy.special import gammaln

from ._search import narrow, raised
from .closed_forms import randomized_response_loss
from .events import ApproximateEvent, Event, GaussianEvent, PureEvent, RandomizedResponseEvent
from .gaussian import gaussian_delta, gaussian_epsilon

__all__ = ["MixedBound", "attained", "mixed_bound"]

_MOST_TERMS = 1024
_MOST_LOSS = 400.0  # a larger one promises nothing, and its odds are no float
_UP = 1 + 1e-11
_TWO = 2


@dataclass(frozen=True, eq=False)
class MixedBound:
    """δ(ε) of two-point losses and one Gaussian, as a mixture of Gaussian curves.

    Attributes:
        shifts: What the two-point losses add up to, in every case.
        weights: How likely each case is, rounded up.
        failed: Chance that some approximate release fails outright.
        mu: Of all Gaussian releases together.
        exact: Whether some releases attain it.
    """

    shifts: Float[np.ndarray, " k"]
    weights: Float[np.ndarray, " k"]
    failed: float
    mu: float
    exact: bool

    def fits(self, epsilon: float, delta: float) -> bool:
        """Return whether this bound shows (epsilon, delta)."""
        return self.delta(epsilon) <= delta

    def delta(self, epsilon: float) -> float:
        """Return the delta that this bound shows at epsilon.

        Source:
            docs/privacy.md, "Mixed releases": 1 − Π(1 − δᵢ)·(1 − Σ w·gaussian_delta(ε − shift, μ)).
        """
        if epsilon == math.inf or self.failed >= 1:
            return min(1.0, self.failed)
        rounding = 1e-15 * (epsilon + float(np.max(np.abs(self.shifts))))
        curve = sum(
            weight * gaussian_delta(epsilon - shift - rounding, self.mu)
            for shift, weight in zip(self.shifts.tolist(), self.weights.tolist(), strict=True)
        )
        kept = math.log1p(-self.failed) + math.log1p(-min(curve, 1 - 2.0**-53))
        return min(1.0, -math.expm1(kept) * _UP)

    def epsilon(self, delta: float) -> float:
        """Return the epsilon that this bound shows at delta; infinite if it shows nothing."""
        if self.fits(0.0, delta):
            return 0.0
        if not delta > self.failed:
            return math.inf
        enough = float(np.max(self.shifts)) + gaussian_epsilon((delta - self.failed) / 2, self.mu)
        if not math.isfinite(enough) or not self.fits(enough, delta):
            return math.inf
        return narrow(lambda epsilon: self.fits(epsilon, delta), 0.0, enough, rtol=1e-12)[1]


def attained(event: Event, neighbors: NeighboringRelation) -> bool:
    """Return whether two answers are all that the release has."""
    if not isinstance(event, RandomizedResponseEvent):
        return True
    return event.categories == _TWO and neighbors == NeighboringRelation.REPLACE_ONE


def mixed_bound(counts: Mapping[Event, int], neighbors: NeighboringRelation) -> MixedBound | None:
    """Return the composition of these releases as a short sum, or None.

    Args:
        counts: How often each event happened.
        neighbors: What one change is; what events state holds under it.

    Returns:
        None if another kind of event is among them, if there is nothing but Gaussians, if the sum
        would be long, or if the losses add up to nothing that is worth a promise.

    Source:
        Kairouz, Oh, Viswanath (2017): a release of (ε, δ) is dominated by two answers and an
        outright failure; Dong, Roth, Su (2022), Corollary 3.3, for the Gaussians; docs/privacy.md,
        "Mixed releases".

    Guarantee:
        an upper bound for adaptively chosen releases: dominating pairs compose. It is attained,
        and there is nothing to gain by a grid, unless a randomized response has more than two
        answers.
    """
    if not all(isinstance(event, _KNOWN) for event in counts):
        return None
    atoms = [(_loss(event, neighbors), n) for event, n in counts.items() if _has_atoms(event)]
    terms = math.prod(n + 1 for _, n in atoms)
    if not atoms or terms > _MOST_TERMS or sum(loss * n for loss, n in atoms) > _MOST_LOSS:
        return None
    cases = [list(_cases(loss, n)) for loss, n in atoms]
    sums = [tuple(zip(*case, strict=True)) for case in product(*cases)]
    mu = _root_sum(counts)
    if mu is None:
        return None
    failures = ((e.delta, n) for e, n in counts.items() if isinstance(e, ApproximateEvent))
    return MixedBound(
        shifts=np.array([math.fsum(shifts) for shifts, _ in sums]),
        weights=np.array([math.prod(weights) for _, weights in sums]) * _UP,
        failed=_at_least_one_fails(failures),
        mu=mu,
        exact=all(attained(event, neighbors) for event in counts),
    )


def _at_least_one_fails(failures: Iterable[tuple[float, int]]) -> float:
    """Return 1 − Π(1 − δᵢ), rounded up."""
    kept = sum(n * math.log1p(-delta) if delta < 1 else -math.inf for delta, n in failures)
    return min(1.0, -math.expm1(kept) * _UP)


def _root_sum(counts: Mapping[Event, int]) -> float | None:
    """Return √Σμ² of all Gaussians, rounded up; None where it promises nothing."""
    sizes = [(raised(e.mu), n) for e, n in counts.items() if isinstance(e, GaussianEvent)]
    if any(mu > _MOST_LOSS for mu, _ in sizes):
        return None
    return math.sqrt(sum(n * mu**2 for mu, n in sizes)) * _UP


_KNOWN = (PureEvent, ApproximateEvent, RandomizedResponseEvent, GaussianEvent)


def _has_atoms(event: Event) -> bool:
    """Return whether the loss of a release has two values."""
    return not isinstance(event, GaussianEvent)


def _loss(event: Event, neighbors: NeighboringRelation) -> float:
    """Return the largest finite loss of one release that is not Gaussian."""
    if isinstance(event, RandomizedResponseEvent):
        return randomized_response_loss(event, neighbors)
    assert isinstance(event, PureEvent | ApproximateEvent)  # noqa: S101 - for the type checker
    return event.epsilon


def _cases(loss: float, count: int) -> Iterator[tuple[float, float]]:
    """Yield (sum of losses, chance) of so many answers: k of them tell one way, the rest the other.

    Source:
        Kairouz, Oh, Viswanath (2017), Theorem 3.3: binomial with chance e^ε/(1 + e^ε).
    """
    up, down = -math.log1p(math.exp(-loss)), -loss - math.log1p(math.exp(-loss))
    for k in range(count + 1):
        ways = float(gammaln(count + 1) - gammaln(k + 1) - gammaln(count - k + 1))
        yield (2 * k - count) * loss, math.exp(ways + k * up + (count - k) * down)
