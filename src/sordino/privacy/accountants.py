"""The accountants: closed forms, and loss distributions of dp_accounting; and which supports what.

The closed forms are bounds that add up on paper, cheap enough for every release. Each adds the
losses of some releases and gives the rest to one curve δ(ε). All of them hold, so the least counts.
Losses are read as the decimal numbers that they print as and added exactly: twenty releases of 0.1
spend 2, not 2.0000000000000004. Pure, approximate and Gaussian releases together have an exact one,
without a grid: the worst release of loss ε answers one of two ways whose probabilities differ by a
factor of e^ε, and fails outright with its δ; with Gaussian noise beside it, δ(ε) is a short sum.

The rest is written around what dp_accounting 0.6.0 really does: its Rényi accountant ignores
REPLACE_ONE for Gaussians, and is not used; its loss-distribution accountant drops the count of
randomized response (so distributions are built and composed here, one by one);
``noise_multiplier`` is the standard deviation over the bound on the norm of one value, not over the
sensitivity. What one change does at worst to noised sums of Poisson samples is proved in
docs/privacy.md, "Poisson-sampled Gaussian"; settings that dp_accounting cannot compute with are
moved to where more is lost: less noise, more sampling.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from functools import lru_cache, partial
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln

from sordino.privacy.conversions import (
    bounded_range_composition_delta,
    bounded_range_composition_epsilon,
    bounded_range_to_zcdp,
    bracket_up,
    composition_keeps,
    float_up,
    gaussian_delta,
    gaussian_epsilon,
    narrow,
    pure_to_zcdp,
    raised,
    two_point_delta,
    zcdp_delta,
    zcdp_epsilon,
)
from sordino.privacy.guarantee import (
    EVENTS,
    KINDS,
    ApproximateEvent,
    BoundedRangeEvent,
    Event,
    GaussianEvent,
    NeighboringRelation,
    PoissonGaussianEvent,
    PureEvent,
    RandomizedResponseEvent,
)

_EXACT = Context(prec=80, rounding=ROUND_CEILING)
_ROUNDED_UP = 1 + 1e-15
_MOST_COMPOSED = 1_000_000


def decimal(value: float) -> Decimal:
    """Return the decimal number that a float prints as."""
    return Decimal(repr(value))


def float_down(value: Decimal) -> float:
    """Return a float that prints as at most value."""
    nearest = float(value)
    return nearest if decimal(nearest) <= value else math.nextafter(nearest, -math.inf)


_TwoPoint = RandomizedResponseEvent | PureEvent | ApproximateEvent  # dominated by two answers


def pure_loss(event: _TwoPoint, neighbors: NeighboringRelation) -> float:
    """Return the pure loss of one release, failures apart, under a relation."""
    # An upper bound for a mechanism whose realized loss is at most the event's. Under REPLACE_ONE
    # it is the event's own epsilon. Of a coin under REPLACE_SPECIAL the null one uniformly, so with
    # p = e^ε/(e^ε + c − 1) and q = 1/(e^ε + c − 1) it is max(log(c p), −log(c q)).
    # Source: Warner (1965); dp_accounting 0.6.0, `RandomizedResponseDpEvent`.
    one = NeighboringRelation.REPLACE_ONE
    if not isinstance(event, RandomizedResponseEvent) or neighbors == one:
        return event.epsilon
    growth = -math.expm1(-event.epsilon) / event.categories
    raised = event.epsilon + math.log(growth + math.exp(-event.epsilon))  # −log(c q)
    if event.epsilon < 1:
        raised = math.log1p(math.expm1(event.epsilon) / event.categories)
    return min(event.epsilon, max(raised, event.epsilon - raised) * (1 + 1e-14))


def plain(
    event: Event, count: int, neighbors: NeighboringRelation, *, least_chance: float = 0.0
) -> tuple[Event, int]:
    """Return what a release is without sampling, and how often; other releases are unchanged."""
    # Loses at least as much, and as much if everybody was drawn.
    # Source: docs/privacy.md, "Poisson-sampled Gaussian" (more sampling never loses less).
    if not isinstance(event, PoissonGaussianEvent) or event.sampling_probability < least_chance:
        return event, count
    norm = 2.0 if neighbors == NeighboringRelation.REPLACE_ONE else 1.0
    return GaussianEvent(
        min(norm / event.noise_multiplier * _ROUNDED_UP, 1e300)
    ), count * event.steps


class Shown(ABC):
    """What every accountant answers of some releases together."""

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """Return the delta that this bound shows at epsilon; 1 if it shows nothing."""

    def fits(self, epsilon: float, delta: float) -> bool:
        """Return whether this bound shows (epsilon, delta)."""
        return self.delta(epsilon) <= delta

    def epsilon(self, delta: float) -> float:
        """Return the epsilon that this bound shows at delta; infinite if it shows nothing."""
        if self.fits(0.0, delta):
            return 0.0
        if not self.fits(math.inf, delta):
            return math.inf
        fails, enough = bracket_up(lambda epsilon: self.fits(epsilon, delta), 1.0)
        return narrow(lambda epsilon: self.fits(epsilon, delta), fails, enough, rtol=1e-12)[1]


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
    """Yield every closed-form bound on these releases, cheapest first."""
    # Each bound holds for adaptively chosen releases on one data set under one relation; draws
    # inside one bounded-range event are independent, and different such events compose through zCDP
    # or their pure losses only.
    # Source: Dwork, Roth (2014), Theorem 3.16 (losses add); Dong, Roth, Su (2022), Corollary 3.3
    # (√Σμ²); Bun, Steinke (2016), Lemma 1.7 (ρ adds); Kairouz, Oh, Viswanath (2017), Theorem 3.3
    # (homogeneous pure releases); Dong, Durfee, Rogers (2020) (draws from one policy).
    losses: Counter[float] = Counter()
    for event, count in counts.items():
        if isinstance(event, RandomizedResponseEvent | PureEvent):
            losses[pure_loss(event, neighbors)] += count
    pure = {loss: count for loss, count in losses.items() if loss > 0}
    ranges = {e: n for e, n in counts.items() if isinstance(e, BoundedRangeEvent)}
    rough = [(e, n) for e, n in counts.items() if isinstance(e, ApproximateEvent)]
    approximate = _sum((e.epsilon, n) for e, n in rough)
    failed = _sum((e.delta, n) for e, n in rough)
    released = [plain(e, n, neighbors) for e, n in counts.items()]
    mu = _root_sum([(raised(e.mu), n) for e, n in released if isinstance(e, GaussianEvent)])
    pure_too = _EXACT.add(approximate, _sum(pure.items()))  # what adds up if pure losses are added
    added = _EXACT.add(pure_too, _sum((e.bounded_range, e.draws * n) for e, n in ranges.items()))
    # zero-concentrated losses: of Gaussians with draws, and of pure releases
    drawn = [bounded_range_to_zcdp(e.bounded_range) * e.draws * n for e, n in ranges.items()]
    rest = _rounded_sum([mu * mu / 2, *drawn])
    of_pure = _rounded_sum([pure_to_zcdp(loss) * count for loss, count in pure.items()])
    # every loss adds but the Gaussian one, which has its curve
    yield Bound(added, failed, partial(gaussian_delta, mu=mu), partial(gaussian_epsilon, mu=mu))
    if rest > 0:
        yield _concentrated(pure_too, failed, rest)
    if of_pure > 0:
        yield _concentrated(approximate, failed, (rest + of_pure) * _ROUNDED_UP)
    if len(pure) == 1 and not rest > 0:
        ((loss, count),) = pure.items()
        if count <= _MOST_COMPOSED:  # the optimal composition of releases of one pure loss
            curve = partial(two_point_delta, high=loss, low=-loss, draws=count)
            inverse = partial(_two_point_epsilon, loss=loss, count=count)
            yield Bound(approximate, failed, curve, inverse)
    if list(ranges.values()) == [1] and not mu > 0:
        (draw,) = ranges  # independent draws from one policy
        b, draws = draw.bounded_range, draw.draws
        curve = partial(bounded_range_composition_delta, bounded_range=b, draws=draws)
        inverse = partial(bounded_range_composition_epsilon, bounded_range=b, draws=draws)
        keeps = partial(composition_keeps, bounded_range=b, draws=draws)
        yield Bound(pure_too, failed, curve, inverse, keeps)


def _concentrated(added: Decimal, failed: Decimal, rho: float) -> Bound:
    """Return the bound that gives all of rho to the zCDP curve."""
    return Bound(added, failed, partial(zcdp_delta, rho=rho), partial(zcdp_epsilon, rho=rho))


@lru_cache
def _two_point_epsilon(delta: float, loss: float, count: int) -> float:
    """Return the least epsilon at which so many pure releases of one loss keep delta."""

    def keeps(epsilon: float) -> bool:
        return two_point_delta(epsilon, loss, -loss, count) <= delta

    enough = loss * count * _ROUNDED_UP
    return 0.0 if keeps(0.0) else narrow(keeps, 0.0, enough, rtol=1e-10)[1]


def _sum(terms: Iterable[tuple[float, int]]) -> Decimal:
    """Return the sum of value · count over decimal values, rounded up after 80 digits."""
    total = Decimal(0)
    for value, count in terms:
        total = _EXACT.add(total, _EXACT.multiply(decimal(value), Decimal(count)))
    return total


def _rounded_sum(values: list[float]) -> float:
    """Return the sum, rounded up unless it is one number."""
    several = sum(value > 0 for value in values) > 1
    return math.fsum(values) * (_ROUNDED_UP if several else 1.0)


def _root_sum(terms: list[tuple[float, int]]) -> float:
    """Return √Σ n μ², rounded up unless it is one number."""
    if len(terms) == 1 and terms[0][1] == 1:
        return terms[0][0]
    largest = max((mu for mu, _ in terms), default=0.0)
    if largest == 0:
        return 0.0
    return largest * math.sqrt(math.fsum(n * (mu / largest) ** 2 for mu, n in terms)) * _ROUNDED_UP


_MOST_TERMS = 1024
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


def attained(event: Event, neighbors: NeighboringRelation) -> bool:
    """Return whether two answers are all that the release has."""
    if not isinstance(event, RandomizedResponseEvent):
        return True
    return event.categories == _TWO and neighbors == NeighboringRelation.REPLACE_ONE


def mixed_bound(counts: Mapping[Event, int], neighbors: NeighboringRelation) -> _MixedBound | None:
    """Return the composition of these releases as a short sum, or None."""
    # An upper bound for adaptively chosen releases: dominating pairs compose. It is attained, and
    # there is nothing to gain by a grid, unless a randomized response has more than two answers.
    # Source: Kairouz, Oh, Viswanath (2017): a release of (ε, δ) is dominated by two answers and an
    # outright failure; Dong, Roth, Su (2022), Corollary 3.3, for the Gaussians; docs/privacy.md,
    # "Mixed releases".
    if not all(isinstance(event, _TwoPoint | GaussianEvent) for event in counts):
        return None
    atoms = [(pure_loss(e, neighbors), n) for e, n in counts.items() if isinstance(e, _TwoPoint)]
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


def _cases(loss: float, count: int) -> Iterator[tuple[float, float]]:
    """Yield (sum of losses, chance) of so many answers: k tell one way, the rest the other."""
    # Source: Kairouz, Oh, Viswanath (2017), Theorem 3.3: binomial with chance e^ε/(1 + e^ε).
    up, down = -math.log1p(math.exp(-loss)), -loss - math.log1p(math.exp(-loss))
    for k in range(count + 1):
        ways = float(gammaln(count + 1) - gammaln(k + 1) - gammaln(count - k + 1))
        yield (2 * k - count) * loss, math.exp(ways + k * up + (count - k) * down)


Samples = Mapping[tuple[float, float], int]
"""(noise multiplier, sampling probability) → how many sums."""

_MOST_NOISE = 1e6
_LEAST_CHANCE = 1e-6  # from here on log(1 − q) is precise enough to be told from a loss
_WIDEST = 1e-4
_NARROWEST = 1e-6  # rounding of masses is 1e-16 over the width
_MOST_CELLS = 2**18
_MOST_LOSS = 400.0  # a larger loss promises nothing, overflows exp, and its odds are no float
_TAIL = 10.5  # standard deviations until nothing is left


def samples(counts: Mapping[Event, int]) -> Samples:
    """Return how many sums there were of each noise and chance, within what can be computed."""
    found: dict[tuple[float, float], int] = {}
    for event, count in counts.items():
        if isinstance(event, PoissonGaussianEvent):
            chance = max(event.sampling_probability, _LEAST_CHANCE)
            key = (
                min(event.noise_multiplier, _MOST_NOISE),
                chance if chance <= 1 - _LEAST_CHANCE else 1.0,
            )
            found[key] = found.get(key, 0) + count * event.steps
    return found


def _samples_interval(
    sums: Samples, neighbors: NeighboringRelation, rest: float = 0.0, widest: float = _WIDEST
) -> float | None:
    """Return the width of a cell, or None if no width would do."""
    norm = 2.0 if neighbors == NeighboringRelation.REPLACE_ONE else 1.0
    span, interval = 2 * rest, widest
    for (noise, chance), steps in sums.items():
        farthest = (_TAIL + norm / noise) / noise * norm
        if farthest > _MOST_LOSS:
            return None
        typical = norm * chance * math.sqrt(math.expm1(min(noise**-2, 500.0)))
        mean = min(chance * (norm / noise) ** 2 / 2, typical**2)
        span += farthest + steps * mean + _TAIL * math.sqrt(steps) * min(typical, farthest)
        interval = min(interval, typical / 16)
        if steps * mean > _MOST_LOSS or steps * min(typical, farthest) > _MOST_CELLS:
            return None
    # A power of two, so that the searches for a budget's rest find their distributions again.
    interval = 2.0 ** math.ceil(math.log2(max(interval, _NARROWEST, span / _MOST_CELLS)))
    # No cell may end so near log(1 − q) that dp_accounting takes it for that loss.
    last = [-math.log1p(-chance) for _, chance in sums if chance < 1]
    while any(math.isclose(cells := loss / interval, round(cells), rel_tol=1e-8) for loss in last):
        interval *= 1 + 1e-6
    return interval


@lru_cache(maxsize=16)
def _samples_losses(
    noise: float, chance: float, steps: int, neighbors: NeighboringRelation, interval: float
) -> Any:
    """Return the loss distribution of so many sums, as dp_accounting holds it."""
    # Dominates each of `steps` such sums, chosen adaptively, under the relation.
    # Source: Doroshenko, Ghazi, Kamath, Kumar, Manurangsi (2022), Algorithm 1 (connect the dots);
    # docs/privacy.md, "Poisson-sampled Gaussian".
    if steps > 1:  # one sum takes most of the time, and is the same for any number
        return _samples_losses(noise, chance, 1, neighbors, interval).self_compose(steps)
    from dp_accounting.pld import privacy_loss_distribution as pld  # noqa: PLC0415 - slow

    grid = {"value_discretization_interval": interval, "neighboring_relation": _theirs(neighbors)}
    return pld.from_gaussian_mechanism(noise, sampling_prob=chance, **grid)


_ACCOUNTANTS = ("closed", "pld")

_NO_COIN = (
    "randomized response reveals that there was a label, so adding or removing a record is "
    "unprotected"
)


def _theirs(neighbors: NeighboringRelation) -> Any:
    import dp_accounting as dp  # noqa: PLC0415 - only where it runs

    return dp.NeighboringRelation[neighbors.name]


def _table() -> dict[tuple[str, NeighboringRelation, str], tuple[bool, str]]:
    reasons = {
        "non-private": "its spend is infinite, which needs no accountant",
        "bounded-range": "dp_accounting 0.6.0 has no such event",
    }
    cells = {}
    for kind, neighbors, accountant in product(EVENTS, NeighboringRelation, _ACCOUNTANTS):
        why_not = reasons.get(kind, "") if accountant == "pld" else ""
        if (kind, neighbors.name) == ("randomized-response", "ADD_OR_REMOVE_ONE"):
            why_not = _NO_COIN
        why = "closed form" if accountant == "closed" else "translated for dp_accounting"
        cells[kind, neighbors, accountant] = (not why_not, why_not or why)
    return cells


SUPPORT: Mapping[tuple[str, NeighboringRelation, str], tuple[bool, str]] = MappingProxyType(
    _table()
)
"""(event kind, relation, accountant) → (supported, why)."""


def support_table() -> list[dict[str, str | bool]]:
    """Return the support table as rows that print: event, relation, accountant, supported, why."""
    names = ("event", "relation", "accountant", "supported", "why")
    return [
        dict(zip(names, (kind, neighbors.name, accountant, *cell), strict=True))
        for (kind, neighbors, accountant), cell in SUPPORT.items()
    ]


_CELLS = 2**17  # cells of a loss distribution to aim for
_MOST_GRID_CELLS = 2**20
_MOST_DISTINCT = 64
_UP = 1 + 1e-9
_LEAST_MU = 1e-100  # its square is nothing, and its inverse squared still a number


@dataclass(frozen=True)
class _LossDistributionBound(Shown):
    """A composed loss distribution, with an allowance for the rounding of Fourier transforms."""

    distribution: Any
    allowance: float

    def delta(self, epsilon: float) -> float:
        delta = float(self.distribution.get_delta_for_epsilon(min(epsilon, 2 * _MOST_LOSS)))
        return min(1.0, max(0.0, delta) + self.allowance)


def loss_distribution_bound(
    counts: Mapping[Event, int], neighbors: NeighboringRelation, *, widest: float = _WIDEST
) -> _LossDistributionBound | None:
    """Return the composition of these releases by loss distributions, or None."""
    # An upper bound: losses are rounded up onto the grid, cut tails count as infinite, and 1e-12
    # per distribution plus 1e-14 per release is added for the transforms.
    # Source: Sommer, Meiser, Mohammadi (2019); Doroshenko, Ghazi, Kamath, Kumar, Manurangsi (2022),
    # as built in dp_accounting 0.6.0 with pessimistic rounding.
    from dp_accounting.pld import privacy_loss_distribution as pld  # noqa: PLC0415 - slow

    supported = (SUPPORT[KINDS[type(event)], neighbors, "pld"][0] for event in counts)
    if not all(supported) or len(counts) > _MOST_DISTINCT:
        return None
    sizes = [(min(e.mu, _MOST_LOSS), n) for e, n in counts.items() if isinstance(e, GaussianEvent)]
    mu = math.sqrt(sum(n * size**2 for size, n in sizes))
    if any(size > 0 for size, _ in sizes):
        mu = max(mu, _LEAST_MU)  # more is always safe
    atoms = {e: n for e, n in counts.items() if isinstance(e, _TwoPoint)}
    sums, losses = samples(counts), [(e.epsilon, n) for e, n in atoms.items()]
    rest = sum(loss * n for loss, n in losses) + mu * (mu + 20)  # about the most, samples apart
    if rest > _MOST_LOSS:
        return None
    interval = _samples_interval(sums, neighbors, rest, widest) if sums else _interval(losses, mu)
    if interval is None:
        return None
    total = pld.identity(value_discretization_interval=interval)
    grid = {"value_discretization_interval": interval, "neighboring_relation": _theirs(neighbors)}
    if mu > 0:
        norm = 2.0 if neighbors == NeighboringRelation.REPLACE_ONE else 1.0
        total = total.compose(pld.from_gaussian_mechanism(norm / (mu * _UP), **grid))
    for event, count in atoms.items():
        total = total.compose(_atoms(event, neighbors, interval, pld).self_compose(count))
    for (noise, chance), steps in sums.items():
        total = total.compose(_samples_losses(noise, chance, steps, neighbors, interval))
    releases = sum(atoms.values()) + sum(sums.values())
    allowance = 1e-12 * (len(counts) + 1) + 1e-14 * releases
    return _LossDistributionBound(total, allowance)


def _atoms(event: _TwoPoint, neighbors: NeighboringRelation, interval: float, pld: Any) -> Any:
    """Return the loss distribution of one release that is not Gaussian."""
    from dp_accounting.pld.common import DifferentialPrivacyParameters  # noqa: PLC0415 - slow

    if isinstance(event, RandomizedResponseEvent):
        k = event.categories
        if k > 2 or neighbors != NeighboringRelation.REPLACE_ONE:  # noqa: PLR2004
            relation = _theirs(neighbors)
            grid = {"value_discretization_interval": interval, "neighboring_relation": relation}
            return pld.from_randomized_response(noise_parameter(event), k, **grid)
    delta = event.delta if isinstance(event, ApproximateEvent) else 0.0
    parameters = DifferentialPrivacyParameters(event.epsilon, delta)
    return pld.from_privacy_parameters(parameters, value_discretization_interval=interval)


def noise_parameter(event: RandomizedResponseEvent) -> float:
    """Return the chance of a uniform answer, k/(e^ε + k − 1), rounded towards more loss."""
    return event.categories / (math.expm1(event.epsilon) + event.categories) * (1 - 1e-14)


def _interval(losses: list[tuple[float, int]], mu: float) -> float | None:
    """Return the width of a cell, or None if no width would do."""
    # It is the loss that weighs most, divided by a power of two: repeated releases of that loss
    # then lie on the grid exactly, and their composition is exact.
    spans = [min(n * e, n * e * e / 2 + 10 * math.sqrt(n) * e) for e, n in losses]
    width = 2 * (sum(spans) + mu * mu / 2 + 10 * mu) / _CELLS
    if width == 0:
        return None
    heaviest = max(losses, key=math.prod, default=(width, 1))[0] or width
    interval = heaviest / 2.0 ** max(1, math.ceil(math.log2(heaviest / width)))
    if interval == 0:  # the loss is so small that half of it is no float
        return None
    longest = max([20 * mu, *(2 * loss for loss, _ in losses)])
    return interval if longest / interval <= _MOST_GRID_CELLS else None
