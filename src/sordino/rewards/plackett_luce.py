"""How well a reward explains rankings by the Plackett–Luce model, and its certified fit.

A ballot is a sequence of choices: the best from all candidates, the next from those that are left,
and so on. A partial ranking stops early. Candidates that tie are each chosen from those left at
their tie, so that the tied order is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int64, Integer
from scipy.sparse import csr_array

from sordino.errors import DataError
from sordino.mechanisms._slates import checked_starts, groups_by_size, part_of

from ._ballot_loss import BallotLoss, checked_features
from ._ballot_terms import StageTerms, Terms
from .solver import Solution, minimize_ridge

__all__ = ["PlackettLuce", "fit_plackett_luce"]

_LAST = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class PlackettLuce(BallotLoss):
    """Minus the log-likelihood of rankings, as a function of the reward weights.

    Candidates that are not listed are those that are left when a ballot ends. A tie of t
    candidates counts as t choices of each of them from all that are left before the tie; ties of
    the last candidates say nothing and are left out, as are those that are not listed.

    Source:
        docs/central.md, "Rankings": Σ over stages of log Σ_{b left} e^{θᵀφ_b} − θᵀφ_chosen;
        Plackett 1975, Luce 1959; ties as Breslow 1974 treats them in the partial likelihood,
        which is the same function. Sums, not means; no ridge.

    Attributes:
        features: φ of every flat candidate, shape (m, d), dense or ``scipy.sparse.csr_array``.
        starts: Ballot i ranks the candidates ``starts[i]:starts[i+1]``; at least two.
        ranks: 1 is the best; equal numbers tie; 0 was not listed.

    Raises:
        DataError: Shapes do not fit, a rank is negative or a feature not finite.

    Example:
        >>> loss = PlackettLuce(np.eye(3), starts=np.array([0, 3]), ranks=np.array([2, 1, 3]))
        >>> round(loss.value(np.zeros(3)), 6)  # log 3! orders
        1.791759
    """

    features: Float[np.ndarray, "m d"] | csr_array
    _: KW_ONLY
    starts: Integer[np.ndarray, " s"]
    ranks: Integer[np.ndarray, " m"]

    def __post_init__(self) -> None:
        """Check shapes and ranks."""
        object.__setattr__(self, "features", checked_features(self.features))
        starts = checked_starts(self.starts, self.features.shape[0])
        object.__setattr__(self, "starts", starts)
        ranks = np.asarray(self.ranks)
        if ranks.shape != (int(starts[-1]),) or ranks.dtype.kind not in "iu":
            raise DataError(
                f"ranks must be {int(starts[-1])} whole numbers in one dimension, one for each "
                f"candidate, got dtype {ranks.dtype}, shape {ranks.shape}."
            )
        if (ranks < 0).any():
            row = int(np.argmax(ranks < 0))
            raise DataError(f"ranks must be at least 0 (not listed): candidate {row} is below.")
        object.__setattr__(self, "ranks", ranks.astype(np.int64))

    @classmethod
    def of_items(
        cls,
        items: Integer[np.ndarray, " m"],
        count: int,
        *,
        starts: Integer[np.ndarray, " s"],
        ranks: Integer[np.ndarray, " m"],
    ) -> PlackettLuce:
        """Return the loss of items without features: one weight for each, its worth.

        The likelihood does not change when all worths do by the same amount; a ridge makes them
        sum to 0.

        Args:
            items: Which item every flat candidate is, from 0.
            count: How many items there are.
            starts: As for the class.
            ranks: As for the class.

        Raises:
            DataError: An item is out of range, or is on a ballot twice; or as for the class.
        """
        known = np.asarray(items)
        if known.ndim != 1 or known.dtype.kind not in "iu":
            raise DataError("items must be whole numbers in one dimension.")
        wrong = (known < 0) | (known >= count)
        if wrong.any():
            raise DataError(f"items must be from 0 to {count - 1}: candidate {wrong.argmax()}.")
        cuts = checked_starts(starts, len(known))
        owner = np.repeat(np.arange(len(cuts) - 1), np.diff(cuts))
        twice = np.flatnonzero(np.diff(np.sort(owner * count + known.astype(np.int64))) == 0)
        if len(twice):
            raise DataError("items must be on a ballot at most once each: one is there twice.")
        places = np.ones(len(known)), known.astype(np.int64), np.arange(len(known) + 1)
        features = csr_array(places, shape=(len(known), count))
        return cls(features, starts=starts, ranks=ranks)

    @cached_property
    def terms(self) -> tuple[Terms, ...]:
        """Return the stages of the ballots of each size."""
        return tuple(term for term, _ in self._choices)

    @cached_property
    def targets(self) -> Float[np.ndarray, " m"]:
        """Return 1 for every candidate that is chosen at some stage, else 0."""
        found = np.zeros(len(self.ranks))
        for term, chosen in self._choices:
            found[term.rows] = chosen
        return found

    def sample(self, step: int) -> PlackettLuce:
        """Return the loss of every ``step``-th ballot."""
        rows, starts = part_of(self.starts, np.arange(0, len(self.starts) - 1, step))
        return PlackettLuce(self.features[rows], starts=starts, ranks=self.ranks[rows])

    @cached_property
    def _choices(self) -> tuple[tuple[StageTerms, Float[np.ndarray, "k g"]], ...]:
        return tuple(_stages(self.starts, self.ranks))


def _stages(
    starts: Int64[np.ndarray, " s"], ranks: Int64[np.ndarray, " m"]
) -> Iterator[tuple[StageTerms, Float[np.ndarray, "k g"]]]:
    """Yield the stages of the ballots of each size, and which candidates are chosen."""
    for group in groups_by_size(starts):
        key = ranks[group.rows]
        key = np.where(key == 0, _LAST, key)
        order = np.argsort(key, axis=0, kind="stable")
        rows, key = (np.take_along_axis(values, order, axis=0) for values in (group.rows, key))
        # A candidate is chosen unless it ties with the last one, which nothing is chosen from.
        chosen = key != key[-1]
        new = np.ones(key.shape, dtype=bool)
        new[1:] = key[1:] != key[:-1]
        times = np.zeros(key.shape)
        first = np.maximum.accumulate(np.where(new, np.arange(len(key))[:, np.newaxis], 0), axis=0)
        columns = np.broadcast_to(np.arange(key.shape[1]), key.shape)
        np.add.at(times, (first, columns), chosen.astype(np.float64))
        yield StageTerms(rows, times), chosen.astype(np.float64)


def fit_plackett_luce(
    loss: PlackettLuce,
    *,
    ridge: float,
    atol: float,
    ball: float | None = None,
    start: Float[np.ndarray, " d"] | None = None,
    max_passes: int = 1000,
) -> Solution:
    """Return the weights that explain rankings best, certified; nothing here is private.

    Source:
        docs/central.md, "Rankings", plus (Λ/2)‖θ‖², over ‖θ‖ ≤ B. The solver is that of pairs.

    Args:
        loss: The rankings.
        ridge: Λ ≥ 0.
        atol: Largest norm of the gradient that is accepted.
        ball: B > 0, or None for no bound; needed with ridge 0.
        start: Where to start; it does not change what is found.
        max_passes: Passes over the ballots after which the fit is given up.

    Raises:
        UsageError: A setting is out of range, or there is neither ridge nor ball.
        ConvergenceError: The certificate was not reached; nothing is returned.

    Example:
        >>> loss = PlackettLuce.of_items(
        ...     np.array([0, 1, 1, 0, 0, 1]), 2,
        ...     starts=np.array([0, 2, 4, 6]), ranks=np.array([1, 2, 2, 1, 2, 1]))
        >>> found = fit_plackett_luce(loss, ridge=1e-9, atol=1e-9).theta
        >>> round(float(found[0] - found[1]), 4)  # won two of three: log 2
        0.6931
    """
    return minimize_ridge(
        loss, ridge=ridge, atol=atol, ball=ball, start=start, max_passes=max_passes
    )
