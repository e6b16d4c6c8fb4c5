"""Losses of rankings: a convex function of the scores on a ballot, less what is known of answers.

By the Plackett–Luce model a ballot is a sequence of choices: the best from all candidates, the next
from those that are left, and so on. A partial ranking stops early, and candidates that tie are each
chosen from those left at their tie. Its curvature depends on the rankings. That of the two losses
that a noised sum is fitted with does not: every pair of candidates, each as often as any other, and
the first choice alone. A slate that many people ranked is given once, with its number of ballots.

Everything is done for all ballots of one size at once, on scores in arrays (position, ballot);
features are multiplied twice, whatever the number of pairs or stages. The curvature is
Σ W_ab (v_a − v_b)² over pairs a < b along a direction v, with W never negative: no difference of
nearly equal numbers is taken.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int64, Integer
from scipy.sparse import csr_array, issparse
from scipy.special import expit

from sordino._validate import Square, Vector, finite_array
from sordino.errors import DataError
from sordino.mechanisms.ranking_sum import SizeGroup, checked_starts, groups_by_size, part_of

from .pair_losses import DENSE_FEATURES, PASSES_PER_FEATURE, HessianApproximation, MarginLoss


@dataclass(frozen=True, eq=False)
class _Terms(ABC):
    """A convex function of the scores of each ballot of one size."""

    rows: Int64[np.ndarray, "k g"]  # the flat candidates
    weights: Float[np.ndarray, "*any g"]  # how often a part of the function counts; 0 or more

    @abstractmethod
    def values(self, scores: Float[np.ndarray, "k g"]) -> Float[np.ndarray, " g"]:
        """Return the function of every ballot."""

    @abstractmethod
    def slopes(self, scores: Float[np.ndarray, "k g"]) -> Float[np.ndarray, "k g"]:
        """Return its derivative in every score."""

    @abstractmethod
    def bends(self, scores: Float[np.ndarray, "k g"]) -> Float[np.ndarray, "g k k"]:
        """Return W, symmetric, its diagonal 0."""

    def part(self, ballots: slice) -> _Terms:
        """Return the terms of some ballots."""
        return replace(self, rows=self.rows[:, ballots], weights=self.weights[..., ballots])


class _StageTerms(_Terms):
    """Σ_j times_j · log Σ_{a ≥ j} e^{score_a}: choices from what is left, best first."""

    # Rows are in the order of the ballot; weights say how often each candidate is chosen from those
    # from here on, shape (k, g).

    def values(self, scores: Float[np.ndarray, "k g"]) -> Float[np.ndarray, " g"]:
        return np.asarray((self.weights * _left(scores)).sum(axis=0))

    def slopes(self, scores: Float[np.ndarray, "k g"]) -> Float[np.ndarray, "k g"]:
        """Return how often each candidate is expected to be chosen."""
        return np.asarray(np.exp(scores + self._accumulated(_left(scores))))

    def bends(self, scores: Float[np.ndarray, "k g"]) -> Float[np.ndarray, "g k k"]:
        """Return Σ_j times_j p_ja p_jb over the stages in which both are left."""
        shared = self._accumulated(2 * _left(scores)).T
        least = np.minimum.outer(np.arange(len(scores)), np.arange(len(scores)))
        known = scores.T
        weights = np.exp(known[:, :, np.newaxis] + known[:, np.newaxis] + shared[:, least])
        return _without_diagonal(weights)

    def _accumulated(self, sizes: Float[np.ndarray, "k g"]) -> Float[np.ndarray, "k g"]:
        """Return log Σ_{j ≤ a} times_j e^{−size_j}."""
        with np.errstate(divide="ignore"):
            logs = np.log(self.weights) - sizes
        return np.asarray(np.logaddexp.accumulate(logs, axis=0))


class _PairTerms(_Terms):
    """weight · Σ_{a<b} log(e^{score_a} + e^{score_b}), one weight for every ballot."""

    def values(self, scores: Float[np.ndarray, "k g"]) -> Float[np.ndarray, " g"]:
        total = np.zeros(scores.shape[1])
        for a in range(len(scores) - 1):
            total += np.logaddexp(scores[a], scores[a + 1 :]).sum(axis=0)
        return np.asarray(self.weights * total)

    def slopes(self, scores: Float[np.ndarray, "k g"]) -> Float[np.ndarray, "k g"]:
        """Return weight · Σ_b σ(score_a − score_b)."""
        wins = [expit(own - scores).sum(axis=0) - 0.5 for own in scores]
        return np.asarray(self.weights * np.stack(wins))

    def bends(self, scores: Float[np.ndarray, "k g"]) -> Float[np.ndarray, "g k k"]:
        """Return weight · σ′(score_a − score_b)."""
        known = scores.T
        gaps = known[:, :, np.newaxis] - known[:, np.newaxis]
        weights = self.weights[:, np.newaxis, np.newaxis] * (expit(gaps) * expit(-gaps))
        return _without_diagonal(weights)


def _left(scores: Float[np.ndarray, "k g"]) -> Float[np.ndarray, "k g"]:
    """Return log Σ_{a ≥ j} e^{score_a} of every j."""
    return np.asarray(np.logaddexp.accumulate(scores[::-1], axis=0)[::-1])


def _without_diagonal(weights: Float[np.ndarray, "g k k"]) -> Float[np.ndarray, "g k k"]:
    """Return W with zeros on the diagonal."""
    places = np.arange(weights.shape[1])
    weights[:, places, places] = 0.0
    return weights


_ROWS = 32  # candidates a feature that a rough matrix rests on
_FLOPS = 1 << 27  # a matrix this cheap takes every ballot
_BLOCK = 1 << 20  # numbers of a block of features


class _BallotHessian(HessianApproximation):
    """The Hessian over evenly spaced ballots, or a diagonal where there are many features."""

    def __init__(self, loss: BallotLoss, margins: Float[np.ndarray, " m"]) -> None:
        self._loss, d = loss, loss.features.shape[1]
        few = 2.0 if _single_entries(loss.features) else max(2.0, PASSES_PER_FEATURE * d)
        self.patience = few if d <= DENSE_FEATURES else math.inf
        self.matrix = self._measure(margins, _ROWS)

    def refresh(self, margins: Float[np.ndarray, " m"]) -> None:
        """Measure again at the given scores, on more ballots."""
        self.matrix = self._measure(margins, 4 * _ROWS)

    def _measure(self, margins: Float[np.ndarray, " m"], rows_per_feature: int) -> np.ndarray:
        rows, terms = self._loss.rows, self._loss.terms
        m, d = rows.shape
        if d <= DENSE_FEATURES:
            step = max(1, m // max(rows_per_feature * d, _FLOPS // d**2, 1))
            return gram(rows, terms, margins, step=1 if _single_entries(rows) else step)
        # Σ W_ab (φ_a² + φ_b²), at most twice the diagonal's own size in sparse rows
        weights = np.zeros(len(margins))
        for term in terms:
            weights[term.rows] = term.bends(margins[term.rows]).sum(axis=2).T
        squares = rows.power(2) if issparse(rows) else rows * rows
        return np.asarray(squares.T @ weights)


def _single_entries(features: Any) -> bool:
    """Return whether every row has exactly one entry: candidates are items of a list."""
    return bool(issparse(features) and (np.diff(features.indptr) == 1).all())


def gram(
    features: Any, terms: Sequence[_Terms], margins: Float[np.ndarray, " m"], *, step: int = 1
) -> Square:
    """Return Σ W_ab (φ_a − φ_b)(φ_a − φ_b)ᵀ over the pairs of every ballot."""
    d = features.shape[1]
    total = np.zeros((d, d))
    for term in terms:
        width = term.rows.shape[1]
        taken = term.part(slice(None, None, step))
        part = np.zeros((d, d))
        size = max(1, _BLOCK // (len(term.rows) * max(len(term.rows), d)))
        for first in range(0, taken.rows.shape[1], size):
            block = taken.part(slice(first, first + size))
            add_bends(part, features, block.rows, block.bends(margins[block.rows]))
        total += part * (width / taken.rows.shape[1])
    return (total + total.T) / 2


def add_bends(
    total: Square, features: Any, rows: Int64[np.ndarray, "k g"], bends: Float[np.ndarray, "g k k"]
) -> None:
    """Add Σ W_ab (φ_a − φ_b)(φ_a − φ_b)ᵀ of some ballots of one size to a matrix."""
    own = bends.sum(axis=2)
    if _single_entries(features):  # count pairs of items
        d = len(total)
        items, sizes = features.indices[rows].T.astype(np.int64), features.data[rows].T
        cross = bends * sizes[:, :, np.newaxis] * sizes[:, np.newaxis]
        places = items[:, :, np.newaxis] * d + items[:, np.newaxis]
        total -= np.bincount(places.ravel(), cross.ravel(), d * d).reshape(d, d)
        total.flat[:: d + 1] += np.bincount(items.ravel(), (own * sizes**2).ravel(), d)
        return
    # ΦᵀLΦ with L the Laplacian of W, Φ less its mean
    k, g = rows.shape
    flat = features[rows.T.ravel()]
    centered = (flat.toarray() if issparse(flat) else flat).reshape(g, k, -1)
    centered = centered - centered.mean(axis=1, keepdims=True)
    bent = own[..., np.newaxis] * centered - bends @ centered
    total += centered.reshape(g * k, -1).T @ bent.reshape(g * k, -1)


@dataclass(frozen=True, eq=False)
class BallotLoss(MarginLoss):
    """Σ convex(scores of a ballot) − targetsᵀscores − linear_termᵀθ, scores = features·θ."""

    # φ of every flat candidate, shape (m, d), dense or `scipy.sparse.csr_array`.
    features: Float[np.ndarray, "m d"] | csr_array
    _: KW_ONLY
    # Ballot or slate i holds the candidates `starts[i]:starts[i+1]`; at least two.
    starts: Integer[np.ndarray, " s"]
    # How often every candidate is chosen, where it is known one by one; else 0.
    targets: Float[np.ndarray, " m"] = field(init=False)

    def __post_init__(self) -> None:
        features: Any = self.features
        if issparse(features):
            features = csr_array(features, dtype=np.float64)
            if features.ndim != 2 or not np.isfinite(features.data).all():  # noqa: PLR2004
                raise DataError("features must be finite in 2 dimensions.")
        else:
            features = np.ascontiguousarray(finite_array("features", features, ndim=2))
        object.__setattr__(self, "features", features)
        starts = checked_starts(self.starts, features.shape[0])
        object.__setattr__(self, "starts", starts)

    @property
    @abstractmethod
    def terms(self) -> tuple[_Terms, ...]:
        """Return the convex functions, of the ballots of each size."""

    @property
    def rows(self) -> Any:
        """Return the features of every candidate."""
        return self.features

    def hessian(self, theta: Vector) -> Square:
        """Return the Hessian, which no answers enter where they are known as a sum."""
        return gram(self.features, self.terms, np.asarray(self.features @ theta))

    def convex(self, margins: Float[np.ndarray, " m"]) -> Float[np.ndarray, " n"]:
        """Return the convex function of every ballot, those of one size after the other."""
        values = (term.values(margins[term.rows]) for term in self.terms)
        return np.concatenate([np.zeros(0), *values])

    def slopes(self, margins: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """Return the derivative of the convex part in each score."""
        slopes = np.zeros(len(margins))
        for term in self.terms:
            slopes[term.rows] = term.slopes(margins[term.rows])
        return slopes

    def span(self, change: Float[np.ndarray, " m"]) -> float:
        """Return the farthest that two scores of one ballot move apart."""
        # Along a line the third derivative of log-sum-exp is at most this times the second: it is
        # the third central moment of the change under the choice, and the second is its variance.
        widths = (float(np.ptp(change[term.rows], axis=0).max()) for term in self.terms)
        return max(widths, default=0.0)

    def bend(self, margins: Float[np.ndarray, " m"]) -> HessianApproximation:
        """Return the approximate Hessian at these scores."""
        return _BallotHessian(self, margins)


_LAST = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class PlackettLuce(BallotLoss):
    """Minus the log-likelihood of rankings, as a function of the reward weights."""

    # Candidates that are not listed are those that are left when a ballot ends. A tie of t
    # candidates counts as t choices of each of them from all that are left before the tie; ties of
    # the last candidates say nothing and are left out, as are those that are not listed.
    # Source: docs/central.md, "Rankings": Σ over stages of log Σ_{b left} e^{θᵀφ_b} − θᵀφ_chosen;
    # Plackett 1975, Luce 1959; ties as Breslow 1974 treats them in the partial likelihood, which is
    # the same function. Sums, not means; no ridge.

    _: KW_ONLY
    ranks: Integer[np.ndarray, " m"]  # 1 is the best; equal numbers tie; 0 was not listed
    pull: Vector | None = None  # what weights are multiplied by beside the choices
    _terms: tuple[_Terms, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        ranks, starts = np.asarray(self.ranks), self.starts
        if ranks.shape != (int(starts[-1]),) or ranks.dtype.kind not in "iu":
            raise DataError(
                f"ranks must be {int(starts[-1])} whole numbers in one dimension, one for each "
                f"candidate, got dtype {ranks.dtype}, shape {ranks.shape}."
            )
        if (ranks < 0).any():
            row = int(np.argmax(ranks < 0))
            raise DataError(f"ranks must be at least 0 (not listed): candidate {row} is below.")
        object.__setattr__(self, "ranks", ranks.astype(np.int64))
        terms, targets = [], np.zeros(len(ranks))
        for group in groups_by_size(starts):
            key = self.ranks[group.rows]
            key = np.where(key == 0, _LAST, key)
            order = np.argsort(key, axis=0, kind="stable")
            rows, key = (np.take_along_axis(found, order, axis=0) for found in (group.rows, key))
            # A candidate is chosen unless it ties with the last one, which nothing is chosen from.
            chosen = (key != key[-1]).astype(np.float64)
            new = np.ones(key.shape, dtype=bool)
            new[1:] = key[1:] != key[:-1]
            first = np.where(new, np.arange(len(key))[:, np.newaxis], 0)
            first, times = np.maximum.accumulate(first, axis=0), np.zeros(key.shape)
            np.add.at(times, (first, np.broadcast_to(np.arange(key.shape[1]), key.shape)), chosen)
            terms.append(_StageTerms(rows, times))
            targets[rows] = chosen
        object.__setattr__(self, "_terms", tuple(terms))
        object.__setattr__(self, "targets", targets)

    @property
    def terms(self) -> tuple[_Terms, ...]:
        """Return the stages of the ballots of each size."""
        return self._terms

    @property
    def linear_term(self) -> Vector | float:
        """Return the pull; 0 where there is none."""
        return 0.0 if self.pull is None else self.pull

    def sample(self, step: int) -> PlackettLuce:
        """Return the loss of every ``step``-th ballot."""
        rows, starts = part_of(self.starts, np.arange(0, len(self.starts) - 1, step))
        pull = None if self.pull is None else self.pull / step
        return PlackettLuce(self.features[rows], starts=starts, ranks=self.ranks[rows], pull=pull)


def pair_weight(size: int) -> float:
    """Return w = 2/(K(K − 1)), so that the pairs of one ballot weigh 1 together."""
    # Source: docs/central.md, "Rankings".
    return 2 / (size * (size - 1))


@dataclass(frozen=True, eq=False)
class _OneSum(BallotLoss):
    """A loss of slates and of one sum."""

    _: KW_ONLY
    # T̃, an estimate of the sum that the class is about, over all ballots.
    statistic: Vector
    counts: Any = None  # how many ballots rank each slate; one, if left out

    def __post_init__(self) -> None:
        super().__post_init__()
        (m, d), starts = self.features.shape, self.starts
        statistic = finite_array("statistic", self.statistic, ndim=1)
        if len(statistic) != d:
            raise DataError(f"statistic must have shape ({d},), got {statistic.shape}.")
        object.__setattr__(self, "statistic", statistic)
        # all that is known of answers is the sum
        object.__setattr__(self, "targets", np.zeros(m))
        counts = np.ones(len(starts) - 1) if self.counts is None else self.counts
        counts = finite_array("counts", counts, ndim=1)
        if len(counts) != len(starts) - 1 or (counts < 0).any():
            raise DataError("counts must be one number of at least 0 for each slate.")
        object.__setattr__(self, "counts", counts)

    @property
    def linear_term(self) -> Vector:
        """Return T̃."""
        return self.statistic

    @cached_property
    def terms(self) -> tuple[_Terms, ...]:
        """Return the convex functions, of the slates of each size."""
        return tuple(self._terms_of(group) for group in groups_by_size(self.starts))

    @abstractmethod
    def _terms_of(self, group: SizeGroup) -> _Terms:
        """Return the convex function of the slates of one size."""

    def sample(self, step: int) -> _OneSum:
        """Return the loss of every ``step``-th slate and the sum's share."""
        slates = np.arange(0, len(self.starts) - 1, step)
        rows, starts = part_of(self.starts, slates)
        return type(self)(
            self.features[rows],
            starts=starts,
            statistic=self.statistic / step,
            counts=self.counts[slates],
        )


@dataclass(frozen=True, eq=False)
class PairwiseComposite(_OneSum):
    """The composite likelihood of all pairs of a ballot, where only their sum is known."""

    # Under Plackett–Luce a better rank of two candidates follows the Bradley–Terry model, so that
    # its minimizer estimates the same weights. The sum is T = Σ w Σ_a (K − rank_a)φ_a, with average
    # ranks for ties.
    # Source: docs/central.md, "Rankings": Σ w Σ_{a<b} log(e^{θᵀφ_a} + e^{θᵀφ_b}) − T̃ᵀθ, w = 2/(K(K
    # − 1)). Sums, not means; no ridge.

    def _terms_of(self, group: SizeGroup) -> _Terms:
        return _PairTerms(group.rows, pair_weight(group.size) * self.counts[group.slates])


@dataclass(frozen=True, eq=False)
class FirstChoice(_OneSum):
    """The likelihood of the best candidate of every ballot, where only their sum is known."""

    # The sum is T = Σ φ(chosen), with the mean of the candidates that tie as the best.
    # Source: docs/central.md, "Rankings": Σ log Σ_a e^{θᵀφ_a} − T̃ᵀθ (multinomial logit). Sums, not
    # means; no ridge.

    def _terms_of(self, group: SizeGroup) -> _Terms:
        times = np.zeros(group.rows.shape)
        times[0] = self.counts[group.slates]
        return _StageTerms(group.rows, times)
