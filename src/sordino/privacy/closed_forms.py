"""The accountant of closed forms: bounds that add up on paper, cheap enough for every release.

Each bound adds the losses of some releases and gives the rest to one curve δ(ε). All of them
hold, so the least counts. Losses are read as the decimal numbers that they print as and added
exactly: twenty releases of 0.1 spend 2, not 2.0000000000000004. Pure, approximate and Gaussian
releases together have an exact one, without a grid: the worst release of loss ε answers one of two
ways whose probabilities differ by a factor of e^ε, and fails outright with its δ; with Gaussian
noise beside it, δ(ε) is a short sum.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from functools import partial
from itertools import product

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln

from .bounded_range import (
    bounded_range_composition_delta,
    bounded_range_composition_epsilon,
    bounded_range_to_zcdp,
    composition_keeps,
    pure_to_zcdp,
    two_point_delta,
    zcdp_delta,
    zcdp_epsilon,
)
from .events import (
    ApproximateEvent,
    BoundedRangeEvent,
    Event,
    GaussianEvent,
    PoissonGaussianEvent,
    PureEvent,
    RandomizedResponseEvent,
    ZeroConcentratedEvent,
)
from .gaussian import float_up, gaussian_delta, gaussian_epsilon, narrow, raised
from .guarantee import NeighboringRelation

_EXACT = Context(prec=80, rounding=ROUND_CEILING)
_UP = 1 + 1e-15
_MOST_COMPOSED = 1_000_000


def decimal(value: float) -> Decimal:
    """Return the decimal number that a float prints as."""
    return Decimal(repr(value))


def float_down(value: Decimal) -> float:
    """Return a float that prints as at most value."""
    nearest = float(value)
    return nearest if decimal(nearest) <= value else math.nextafter(nearest, -math.inf)


def randomized_response_loss(
    event: RandomizedResponseEvent, neighbors: NeighboringRelation
) -> float:
    """Return the pure loss of one answer under a relation.

    Guarantee:
        an upper bound for a mechanism whose realized loss is at most the event's.
    """
    # Under REPLACE_ONE it is the event's own epsilon. Under REPLACE_SPECIAL the null record answers
    # uniformly, so with p = e^ε/(e^ε + c − 1) and q = 1/(e^ε + c − 1) it is max(log(c p), −log(c
    # q)).
    # Source: Warner (1965); dp_accounting 0.6.0, `RandomizedResponseDpEvent`.
    if neighbors == NeighboringRelation.REPLACE_ONE:
        return event.epsilon
    growth = -math.expm1(-event.epsilon) / event.categories
    raised = event.epsilon + math.log(growth + math.exp(-event.epsilon))  # −log(c q)
    if event.epsilon < 1:
        raised = math.log1p(math.expm1(event.epsilon) / event.categories)
    return min(event.epsilon, max(raised, event.epsilon - raised) * (1 + 1e-14))


def plain(
    event: Event, count: int, neighbors: NeighboringRelation, *, least_chance: float = 0.0
) -> tuple[Event, int]:
    """Return what a release is without sampling, and how often; other releases are unchanged.

    Guarantee:
        loses at least as much, and as much if everybody was drawn.
    """
    # Source: docs/privacy.md, "Poisson-sampled Gaussian" (more sampling never loses less).
    if not isinstance(event, PoissonGaussianEvent) or event.sampling_probability < least_chance:
        return event, count
    norm = 2.0 if neighbors == NeighboringRelation.REPLACE_ONE else 1.0
    return GaussianEvent(min(norm / event.noise_multiplier * _UP, 1e300)), count * event.steps


class Shown(ABC):
    """What every accountant answers of some releases together."""

    def fits(self, epsilon: float, delta: float) -> bool:
        """Return whether this bound shows (epsilon, delta)."""
        return self.delta(epsilon) <= delta

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """Return the delta that this bound shows at epsilon; 1 if it shows nothing."""

    @abstractmethod
    def epsilon(self, delta: float) -> float:
        """Return the epsilon that this bound shows at delta; infinite if it shows nothing."""


@dataclass(frozen=True)
class Bound(Shown):
    """Losses that add, and one curve for the rest: (added + ε, failed + δ(ε))."""

    added: Decimal
    failed: Decimal
    curve: Callable[[float], float]
    inverse: Callable[[float], float]
    keeps: Callable[[float, float], bool] | None = None

    def fits(self, epsilon: float, delta: float) -> bool:
        """Return whether this bound shows (epsilon, delta)."""
        spare, rest = _EXACT.subtract(decimal(delta), self.failed), self._rest(epsilon)
        if spare < 0 or rest < 0:
            return False
        if self.keeps is not None:
            return self.keeps(rest, max(0.0, float_down(spare)))
        return decimal(self.curve(rest)) <= spare

    def delta(self, epsilon: float) -> float:
        """Return the delta that this bound shows at epsilon; 1 if it shows nothing."""
        rest = self._rest(epsilon)
        if rest < 0:
            return 1.0
        total = _EXACT.add(self.failed, decimal(self.curve(rest)))
        return min(1.0, float_up(total))

    def epsilon(self, delta: float) -> float:
        """Return the epsilon that this bound shows at delta; infinite if it shows nothing."""
        spare = _EXACT.subtract(decimal(delta), self.failed)
        if spare < 0:
            return math.inf
        rest = self.inverse(max(0.0, float_down(spare)))
        if rest == math.inf:
            return math.inf
        total = float_up(_EXACT.add(self.added, decimal(rest)))
        for _ in range(8):  # the sum may have rounded the rest away
            if self.fits(total, delta):
                return total
            total = math.nextafter(total, math.inf) * (1 + 1e-14)
        return math.inf

    def _rest(self, epsilon: float) -> float:
        if epsilon == math.inf:
            return math.inf
        return float_down(_EXACT.subtract(decimal(epsilon), self.added))


def closed_bounds(counts: Mapping[Event, int], neighbors: NeighboringRelation) -> Iterator[Bound]:
    """Yield every closed-form bound on these releases, cheapest first.

    Guarantee:
        each bound holds for adaptively chosen releases on one data set under one relation; draws
        inside one bounded-range event are independent, and different such events compose through
        zCDP or their pure losses only.
    """
    # Source: Dwork, Roth (2014), Theorem 3.16 (losses add); Dong, Roth, Su (2022), Corollary 3.3
    # (√Σμ²); Bun, Steinke (2016), Lemma 1.7 (ρ adds); Kairouz, Oh, Viswanath (2017), Theorem 3.3
    # (homogeneous pure releases); Dong, Durfee, Rogers (2020) (draws from one policy).
    totals = _Totals.of(counts, neighbors)
    if totals.zero_concentrated == 0:
        yield totals.gaussian_rest()
    if totals.rho_of_rest > 0:
        yield _concentrated(totals.pure_and_approximate, totals.failed, totals.rho_of_rest)
    if totals.zero_concentrated > 0 and totals.ranges:
        added = _EXACT.add(totals.pure_and_approximate, totals.pure_ranges)
        yield _concentrated(added, totals.failed, totals.rho_without_ranges)
    if totals.rho_of_pure > 0:
        rho = (totals.rho_of_rest + totals.rho_of_pure) * _UP
        yield _concentrated(totals.approximate, totals.failed, rho)
    yield from totals.repeated_pure()
    yield from totals.draws_of_one_policy()


@dataclass(frozen=True)
class _Totals:
    """What the bounds need to know of the releases."""

    pure: Mapping[float, int]
    ranges: Mapping[BoundedRangeEvent, int]
    approximate: Decimal
    failed: Decimal
    mu: float
    zero_concentrated: float

    @classmethod
    def of(cls, counts: Mapping[Event, int], neighbors: NeighboringRelation) -> _Totals:
        """Sort the events by what is known of them."""
        pure: dict[float, int] = {}
        released = [plain(e, n, neighbors) for e, n in counts.items()]
        normal = [(e, n) for e, n in released if isinstance(e, GaussianEvent)]
        for event, count in counts.items():
            if isinstance(event, PureEvent | RandomizedResponseEvent):
                loss = event.epsilon
                if isinstance(event, RandomizedResponseEvent):
                    loss = randomized_response_loss(event, neighbors)
                if loss > 0:
                    pure[loss] = pure.get(loss, 0) + count
        rough = [(e, n) for e, n in counts.items() if isinstance(e, ApproximateEvent)]
        return cls(
            pure=pure,
            ranges={e: n for e, n in counts.items() if isinstance(e, BoundedRangeEvent)},
            approximate=_sum((e.epsilon, n) for e, n in rough),
            failed=_sum((e.delta, n) for e, n in rough),
            mu=_root_sum([(raised(e.mu), n) for e, n in normal]),
            zero_concentrated=_rounded_sum(
                [
                    raised(e.rho) * n
                    for e, n in counts.items()
                    if isinstance(e, ZeroConcentratedEvent)
                ]
            ),
        )

    @property
    def pure_and_approximate(self) -> Decimal:
        """Return what adds up if pure losses are added."""
        return _EXACT.add(self.approximate, _sum(self.pure.items()))

    @property
    def rho_of_pure(self) -> float:
        """Return the zero-concentrated loss of the pure releases."""
        return _rounded_sum([pure_to_zcdp(loss) * count for loss, count in self.pure.items()])

    @property
    def pure_ranges(self) -> Decimal:
        """Return the pure loss of all draws."""
        return _sum((e.bounded_range, e.draws * n) for e, n in self.ranges.items())

    @property
    def rho_without_ranges(self) -> float:
        """Return the zero-concentrated loss of Gaussians and of what is only zCDP."""
        return _rounded_sum([self.zero_concentrated, self.mu * self.mu / 2])

    @property
    def rho_of_rest(self) -> float:
        """Return the zero-concentrated loss of all that is neither pure nor approximate."""
        draws = [
            bounded_range_to_zcdp(e.bounded_range) * e.draws * n for e, n in self.ranges.items()
        ]
        return _rounded_sum([self.rho_without_ranges, *draws])

    def gaussian_rest(self) -> Bound:
        """Return the bound that adds every loss but the Gaussian one, which has its curve."""
        return Bound(
            _EXACT.add(self.pure_and_approximate, self.pure_ranges),
            self.failed,
            partial(_swapped, gaussian_delta, self.mu),
            partial(_swapped, gaussian_epsilon, self.mu),
        )

    def repeated_pure(self) -> Iterator[Bound]:
        """Yield the optimal composition of releases that are all pure with one loss."""
        if len(self.pure) != 1 or self.rho_of_rest > 0:
            return
        ((loss, count),) = self.pure.items()
        if count > _MOST_COMPOSED:
            return
        curve = partial(_swapped, two_point_delta, loss, -loss, count)
        inverse = partial(_least, curve, loss * count)
        yield Bound(self.approximate, self.failed, curve, inverse)

    def draws_of_one_policy(self) -> Iterator[Bound]:
        """Yield the composition of independent draws, if one event is all that has a curve."""
        if list(self.ranges.values()) != [1] or self.mu > 0 or self.zero_concentrated > 0:
            return
        (event,) = self.ranges
        size = (event.bounded_range, event.draws)
        yield Bound(
            self.pure_and_approximate,
            self.failed,
            partial(_swapped, bounded_range_composition_delta, *size),
            partial(_swapped, bounded_range_composition_epsilon, *size),
            lambda epsilon, delta: composition_keeps(epsilon, delta, *size),
        )


def _concentrated(added: Decimal, failed: Decimal, rho: float) -> Bound:
    """Return the bound that gives all of rho to the zCDP curve."""
    curve, inverse = partial(_swapped, zcdp_delta, rho), partial(_swapped, zcdp_epsilon, rho)
    return Bound(added, failed, curve, inverse)


def _swapped(function: Callable[..., float], *rest_then_first: float) -> float:
    """Return function(first, *rest): a partial that leaves the first argument free."""
    *rest, first = rest_then_first
    return function(first, *rest)


def _least(curve: Callable[[float], float], enough: float, delta: float) -> float:
    """Return the least epsilon at which the curve is at most delta; enough always is."""
    if curve(0.0) <= delta:
        return 0.0
    return narrow(lambda epsilon: curve(epsilon) <= delta, 0.0, enough * _UP, rtol=1e-10)[1]


def _sum(terms: Iterable[tuple[float, int]]) -> Decimal:
    """Return the sum of value · count over decimal values, rounded up after 80 digits."""
    total = Decimal(0)
    for value, count in terms:
        total = _EXACT.add(total, _EXACT.multiply(decimal(value), Decimal(count)))
    return total


def _rounded_sum(values: list[float]) -> float:
    """Return the sum, rounded up unless it is one number."""
    several = sum(value > 0 for value in values) > 1
    return math.fsum(values) * (_UP if several else 1.0)


def _root_sum(terms: list[tuple[float, int]]) -> float:
    """Return √Σ n μ², rounded up unless it is one number."""
    if len(terms) == 1 and terms[0][1] == 1:
        return terms[0][0]
    largest = max((mu for mu, _ in terms), default=0.0)
    if largest == 0:
        return 0.0
    return largest * math.sqrt(math.fsum(n * (mu / largest) ** 2 for mu, n in terms)) * _UP


_MOST_TERMS = 1024
_MOST_LOSS = 400.0  # a larger one promises nothing, and its odds are no float
_UPWARD = 1 + 1e-11
_TWO = 2


@dataclass(frozen=True, eq=False)
class _MixedBound(Shown):
    """δ(ε) of two-point losses and one Gaussian, as a mixture of Gaussian curves."""

    shifts: Float[np.ndarray, " k"]  # what the two-point losses add up to, in every case
    weights: Float[np.ndarray, " k"]  # how likely each case is, rounded up
    failed: float  # chance that some approximate release fails outright
    mu: float  # of all Gaussian releases together
    exact: bool  # whether some releases attain it

    def delta(self, epsilon: float) -> float:
        """Return the delta that this bound shows at epsilon."""
        # Source: docs/privacy.md, "Mixed releases": 1 − Π(1 − δᵢ)·(1 − Σ w·gaussian_delta(ε −
        # shift, μ)).
        if epsilon == math.inf or self.failed >= 1:
            return min(1.0, self.failed)
        rounding = 1e-15 * (epsilon + float(np.max(np.abs(self.shifts))))
        curve = sum(
            weight * gaussian_delta(epsilon - shift - rounding, self.mu)
            for shift, weight in zip(self.shifts.tolist(), self.weights.tolist(), strict=True)
        )
        kept = math.log1p(-self.failed) + math.log1p(-min(curve, 1 - 2.0**-53))
        return min(1.0, -math.expm1(kept) * _UPWARD)

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


def mixed_bound(counts: Mapping[Event, int], neighbors: NeighboringRelation) -> _MixedBound | None:
    """Return the composition of these releases as a short sum, or None.

    Guarantee:
        an upper bound for adaptively chosen releases: dominating pairs compose. It is attained,
        and there is nothing to gain by a grid, unless a randomized response has more than two
        answers.
    """
    # Source: Kairouz, Oh, Viswanath (2017): a release of (ε, δ) is dominated by two answers and an
    # outright failure; Dong, Roth, Su (2022), Corollary 3.3, for the Gaussians; docs/privacy.md,
    # "Mixed releases".
    if not all(isinstance(event, _KNOWN) for event in counts):
        return None
    atoms = [
        (_loss(event, neighbors), n)
        for event, n in counts.items()
        if not isinstance(event, GaussianEvent)
    ]
    terms = math.prod(n + 1 for _, n in atoms)
    if not atoms or terms > _MOST_TERMS or sum(loss * n for loss, n in atoms) > _MOST_LOSS:
        return None
    cases = [list(_cases(loss, n)) for loss, n in atoms]
    sums = [tuple(zip(*case, strict=True)) for case in product(*cases)]
    sizes = [(raised(e.mu), n) for e, n in counts.items() if isinstance(e, GaussianEvent)]
    if any(mu > _MOST_LOSS for mu, _ in sizes):
        return None
    # that some approximate release fails: 1 − Π(1 − δᵢ)
    failures = [(e.delta, n) for e, n in counts.items() if isinstance(e, ApproximateEvent)]
    kept = sum(n * math.log1p(-delta) if delta < 1 else -math.inf for delta, n in failures)
    return _MixedBound(
        shifts=np.array([math.fsum(shifts) for shifts, _ in sums]),
        weights=np.array([math.prod(weights) for _, weights in sums]) * _UPWARD,
        failed=min(1.0, -math.expm1(kept) * _UPWARD),
        mu=math.sqrt(sum(n * mu**2 for mu, n in sizes)) * _UPWARD,
        exact=all(attained(event, neighbors) for event in counts),
    )


_KNOWN = (PureEvent, ApproximateEvent, RandomizedResponseEvent, GaussianEvent)


def _loss(event: Event, neighbors: NeighboringRelation) -> float:
    """Return the largest finite loss of one release that is not Gaussian."""
    if isinstance(event, RandomizedResponseEvent):
        return randomized_response_loss(event, neighbors)
    assert isinstance(event, PureEvent | ApproximateEvent)  # noqa: S101 - for the type checker
    return event.epsilon


def _cases(loss: float, count: int) -> Iterator[tuple[float, float]]:
    """Yield (sum of losses, chance) of so many answers: k tell one way, the rest the other."""
    # Source: Kairouz, Oh, Viswanath (2017), Theorem 3.3: binomial with chance e^ε/(1 + e^ε).
    up, down = -math.log1p(math.exp(-loss)), -loss - math.log1p(math.exp(-loss))
    for k in range(count + 1):
        ways = float(gammaln(count + 1) - gammaln(k + 1) - gammaln(count - k + 1))
        yield (2 * k - count) * loss, math.exp(ways + k * up + (count - k) * down)
